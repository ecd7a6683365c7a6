//! Jobs of real processes without a GPU: what ranks ask of each other, hangs, deaths, launchers.
//!
//! The workers are `examples/mock.rs`, which cargo builds together with the tests.
//! Not here: CUDA and NCCL, and the tables that need no process; those are tested where they stand.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankcheck_model::{Dtype, Rank};
use rankcheck_real::Error;
use rankcheck_real::case::{At, Case, CommHistory, Ended, Forced, NondetValue, RankReport, Report};
use rankcheck_real::job::{Job, JobConfig, Limits, WorkerCommand};
use serde_json::{Value, json};

/// Of cases that hang: they cost it. Others come nowhere near it.
const DEADLINE: Duration = Duration::from_millis(200);

/// For what takes no time on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(20);

fn mock() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let profile = test.ancestors().nth(2).expect("tests are built into deps/");
    let mock = profile.join("examples").join("mock");
    assert!(mock.exists(), "`cargo build -p rankcheck-real --example mock` builds {}", mock.display());
    mock
}

fn config(ranks: u32) -> JobConfig {
    let worker = WorkerCommand { program: mock(), arguments: vec!["worker".into()], environment: vec![] };
    JobConfig { ranks, worker, cluster: None, spares: 1, limits: Limits::default() }
}

fn start(ranks: u32) -> Job {
    Job::start(config(ranks)).expect("the mock starts")
}

/// One list of steps for each rank.
fn case(program: &[Value]) -> Case {
    Case {
        program: json!(program),
        ranks: u32::try_from(program.len()).expect("few ranks"),
        comms: CommHistory::Warm,
        element: Dtype::F32,
        forced: Forced::default(),
        deadline: PATIENCE,
    }
}

fn hanging(program: &[Value]) -> Case {
    Case { deadline: DEADLINE, ..case(program) }
}

fn run(job: &mut Job, case: &Case) -> Report {
    job.run(case).expect("the case can be run")
}

/// What each rank saw, after a case that ended well.
fn seen(job: &mut Job, program: &[Value]) -> Vec<Vec<String>> {
    let report = run(job, &case(program));
    for rank in &report.ranks {
        assert_eq!(rank.ended, Ended::Finishes, "{report:?}");
    }
    report.ranks.into_iter().map(|rank| rank.reached).collect()
}

fn ended(report: &Report) -> Vec<&Ended> {
    report.ranks.iter().map(|rank| &rank.ended).collect()
}

fn hang(inside: &[(u32, u32, &str)]) -> Ended {
    let inside = inside.iter().map(|(thread, index, call)| (*thread, *index, (*call).to_owned()));
    Ended::HostHang { inside: inside.collect() }
}

/// The process of each worker at work.
fn pids(job: &Job) -> Vec<u64> {
    let pid = |device: Option<Value>| device.and_then(|device| device["pid"].as_u64());
    job.devices().into_iter().map(|device| pid(device).expect("the mock tells its process id")).collect()
}

/// Whether a process is there and has not ended. Who waits for orphans is not ours to say.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// How many processes have this mark in their environment.
fn marked_processes(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("the list of processes");
    let environment = |entry: &std::fs::DirEntry| std::fs::read(entry.path().join("environ"));
    let marked = |environment: &[u8]| environment.windows(mark.len()).any(|part| part == mark.as_bytes());
    processes.flatten().filter(|entry| environment(entry).is_ok_and(|all| marked(&all))).count()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < limit, "{what} within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn ranks_meet_and_vote() {
    let mut job = start(2);
    let (yes, no) = (json!({ "agree": true }), json!({ "agree": false }));
    let seen = seen(&mut job, &[json!([yes, yes, yes]), json!([yes, no, yes])]);
    assert_eq!(seen, [["Yes", "No", "Yes"], ["Yes", "No", "Yes"]]);
    job.end().expect("it ends");
}

#[test]
fn store_and_flags_pass_values_and_begin_empty() {
    let mut job = start(2);
    let first = json!([{ "get": "a" }, { "flag_write": ["go", 3] }, { "agree": true }]);
    let second = json!([{ "set": ["a", { "n": 1 }] }, { "flag_wait": ["go", 3] }, { "agree": true }]);
    assert_eq!(seen(&mut job, &[first, second])[0], [r#"{"n":1}"#, "Yes"]);

    let report = run(&mut job, &hanging(&[json!([{ "get": "a" }]), json!([{ "flag_wait": ["go", 3] }])]));
    let wanted = [hang(&[(0, 0, "Get(\"a\")")]), hang(&[(0, 0, "FlagWait(\"go\", 3)")])];
    assert_eq!(ended(&report), wanted.iter().collect::<Vec<_>>());
    let deleted = json!([{ "set": ["a", 1] }, { "delete": "a" }, { "get": "a" }]);
    let report = run(&mut job, &hanging(&[deleted, json!([])]));
    assert_eq!(ended(&report), [&hang(&[(0, 2, "Get(\"a\")")]), &Ended::Finishes]);
    job.end().expect("it ends");
}

#[test]
fn turns_are_taken_in_order() {
    let mut job = start(2);
    let at = |rank, index| At { rank: Rank(rank), thread: 0, index };
    let mut turns = |order: [At; 3]| {
        let first = json!([{ "set": ["turns", 0] }, { "agree": true }, "turn"]);
        let program = [first, json!([{ "agree": true }, "turn", "turn"])];
        let forced = Forced { turns: order.to_vec(), ..Forced::default() };
        let report = run(&mut job, &Case { forced, ..case(&program) });
        report.ranks.into_iter().map(|rank| rank.reached[1..].join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(turns([at(0, 2), at(1, 1), at(1, 2)]), ["turn 0", "turn 1 turn 2"]);
    assert_eq!(turns([at(1, 1), at(0, 2), at(1, 2)]), ["turn 1", "turn 0 turn 2"]);
    assert_eq!(turns([at(1, 1), at(1, 2), at(0, 2)]), ["turn 2", "turn 0 turn 1"]);
    job.end().expect("it ends");
}

#[test]
fn communicators_are_kept_by_those_who_ended_well() {
    let mut job = start(2);
    let steps = json!([{ "init": "tp" }, { "init": "ep" }]);
    let program = [steps.clone(), steps];
    let fresh = ["1 Fresh [42]", "2 Fresh [42]"];
    assert_eq!(seen(&mut job, &program), [fresh, fresh]);
    let warm = ["1 Warm [42]", "2 Warm [42]"];
    assert_eq!(seen(&mut job, &program), [warm, warm]);
    let cold = run(&mut job, &Case { comms: CommHistory::Fresh, ..case(&program) });
    assert_eq!(cold.ranks[1].reached, ["3 Fresh [42]", "4 Fresh [42]"]);
    assert_eq!(seen(&mut job, &program), [warm, warm]);

    // Rank 1 holds communicators that rank 0 takes with it, so both are replaced.
    let before = pids(&job);
    run(&mut job, &case(&[json!([{ "exit": 3 }])]));
    let fresh = ["5 Fresh [42]", "6 Fresh [42]"];
    assert_eq!(seen(&mut job, &program), [fresh, fresh]);
    let after = pids(&job);
    assert!(before.iter().all(|pid| !after.contains(pid)), "{before:?} {after:?}");
    job.end().expect("it ends");
}

#[test]
fn who_ended_well_is_used_again_and_who_had_an_error_is_not() {
    let mut job = start(2);
    let before = pids(&job);
    seen(&mut job, &[json!([{ "agree": true }]), json!([{ "agree": true }])]);
    assert_eq!(pids(&job), before);
    let report = run(&mut job, &case(&[json!(["fail"]), json!([])]));
    assert_eq!(report.ranks[0].errors.len(), 1);
    seen(&mut job, &[json!([]), json!([])]);
    assert!(pids(&job).iter().all(|pid| !before.contains(pid)));
    job.end().expect("it ends");
}

#[test]
fn a_program_that_cannot_be_loaded_is_an_error_and_nobody_runs_it() {
    let mut job = start(2);
    let before = pids(&job);
    let wrong = job.run(&case(&[json!(["hang"]), json!(["dance"])])).expect_err("there is no such step");
    assert!(matches!(&wrong, Error::Program { rank: 1, why } if why.contains("dance")), "{wrong}");
    seen(&mut job, &[json!([]), json!([])]);
    assert_eq!(pids(&job), before);
    job.end().expect("it ends");
}

#[test]
fn a_hang_is_told_by_its_call_and_costs_its_deadline() {
    let mut job = start(2);
    let thread = json!({ "thread": [{ "agree": true }, "hang"] });
    let begun = Instant::now();
    let report = run(&mut job, &hanging(&[json!([thread]), json!([{ "agree": true }])]));
    let cost = begun.elapsed();
    let Ended::HostHang { inside } = &report.ranks[0].ended else { panic!("{report:?}") };
    assert_eq!(inside[1], (1, 1, "Hang".to_owned()), "the thread that hangs is beside the one that joins it");
    assert_eq!(report.ranks[0].reached, ["Yes"], "what it did before is in the report");
    assert_eq!(report.ranks[1].ended, Ended::Finishes);
    assert!(report.took >= DEADLINE && cost < DEADLINE + Duration::from_secs(2), "{cost:?}");
    seen(&mut job, &[json!([]), json!([])]);
    job.end().expect("it ends");
}

#[test]
fn who_cannot_be_inspected_is_told_by_the_calls_that_it_did_not_leave() {
    let mut job = start(2);
    let report = run(&mut job, &hanging(&[json!(["mute"]), json!([{ "agree": true }])]));
    assert_eq!(ended(&report), [&hang(&[(0, 0, "Mute")]), &hang(&[(0, 0, "Agree(true)")])]);
    job.end().expect("it ends");
}

#[test]
fn progress_of_one_rank_is_progress() {
    let mut job = start(2);
    let busy = json!([{ "busy_for_ms": 3 * DEADLINE.as_millis() }]);
    let report = run(&mut job, &hanging(&[busy, json!([{ "get": "never set" }])]));
    assert_eq!(ended(&report), [&Ended::Finishes, &hang(&[(0, 0, "Get(\"never set\")")])]);
    assert!(report.took >= 4 * DEADLINE, "{:?}", report.took);
    job.end().expect("it ends");
}

#[test]
fn fifty_hangs_leave_nobody_behind() {
    let mark = format!("mock-of-{}-fifty", std::process::id());
    let mut config = config(2);
    config.worker.environment.push(("MARK".into(), mark.clone().into()));
    let mut job = Job::start(config).expect("the mock starts");
    let case = Case { deadline: Duration::from_millis(20), ..hanging(&[json!(["hang"]), json!(["hang"])]) };
    let mut processes = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let report = run(&mut job, &case);
        assert_eq!(ended(&report), [&hang(&[(0, 0, "Hang")]); 2]);
        seen(&mut job, &[json!([]), json!([])]);
        processes.extend(pids(&job));
    }
    assert_eq!(processes.len(), 100, "each hang costs both processes");
    assert!(marked_processes(&mark) >= 2);
    job.end().expect("it ends");
    assert_eq!(marked_processes(&mark), 0);
    let left: Vec<_> =
        processes.into_iter().filter(|pid| PathBuf::from(format!("/proc/{pid}")).exists()).collect();
    assert_eq!(left, [0_u64; 0], "all were waited for");
}

#[test]
fn a_killed_worker_is_lost_and_the_next_case_runs() {
    let mut config = config(2);
    // A backtrace takes longer than the deadline.
    config.worker.environment.push(("RUST_BACKTRACE".into(), "0".into()));
    let mut job = Job::start(config).expect("the mock starts");
    let pid = pids(&job)[1];
    let killer = json!([{ "set": ["pid", pid] }, { "kill": "pid" }]);
    let report = run(&mut job, &case(&[killer, json!([{ "get": "pid" }, "hang"])]));
    assert_eq!(report.ranks[0].ended, Ended::Finishes);
    assert_eq!(report.ranks[1].ended, Ended::Lost { why: "signal: 9 (SIGKILL)".to_owned() });
    seen(&mut job, &[json!([]), json!([])]);

    // The others run on, and may hang for want of the one that is gone.
    let report = run(&mut job, &hanging(&[json!([{ "agree": true }]), json!(["panic"])]));
    let [RankReport { ended: first, .. }, RankReport { ended: Ended::Lost { why }, .. }] =
        report.ranks.as_slice()
    else {
        panic!("{report:?}")
    };
    assert_eq!(*first, hang(&[(0, 0, "Agree(true)")]));
    assert!(why.starts_with("exit status: 101") && why.contains("as the program says"), "{why}");

    // Between cases nobody looks; the next one finds another worker.
    seen(&mut job, &[json!([]), json!([])]);
    let pid = pids(&job);
    let kill = format!("kill -9 {}", pid[0]);
    Command::new("sh").args(["-c", &kill]).status().expect("sh is there");
    until("the worker ends", || !runs(pid[0]));
    seen(&mut job, &[json!([{ "agree": true }]), json!([{ "agree": true }])]);
    assert_ne!(pids(&job)[0], pid[0]);
    job.end().expect("it ends");
}

#[test]
fn a_forced_death_is_a_death() {
    let mut job = start(2);
    let at = At { rank: Rank(1), thread: 0, index: 1 };
    let values = BTreeMap::from([(at, vec![NondetValue::Death { dies: true }])]);
    let forced = Forced { nondet: values, ..Forced::default() };
    let report = run(&mut job, &Case { forced, ..case(&[json!([]), json!([{ "set": ["k", 1] }, "die"])]) });
    assert_eq!(ended(&report), [&Ended::Finishes, &Ended::Dead { message: "killed".to_owned() }]);
    seen(&mut job, &[json!([]), json!([])]);
    job.end().expect("it ends");
}

#[test]
fn a_worker_that_does_not_start_says_why() {
    let mut wrong = config(2);
    wrong.worker.arguments = vec!["dance".into()];
    let error = Job::start(wrong).expect_err("the mock knows no such word");
    let Error::Worker { why, .. } = &error else { panic!("{error}") };
    assert!(why.starts_with("exit status: 1") && why.contains("mock worker|coordinator"), "{why}");

    let mut missing = config(1);
    missing.worker.program = PathBuf::from("/there/is/nothing");
    let error = Job::start(missing).expect_err("there is nothing");
    assert!(error.to_string().contains("/there/is/nothing did not start"), "{error}");
}

#[test]
fn workers_know_their_device_and_run_without_multicast() {
    let job = start(2);
    let devices: Vec<Value> =
        job.devices().into_iter().flatten().map(|device| device["device"].clone()).collect();
    assert_eq!(devices, [json!(0), json!(1)]);
    let multicast = job.devices()[0].as_ref().expect("it is at work")["nvls"].clone();
    assert_eq!(multicast, json!(std::env::var("NCCL_NVLS_ENABLE").unwrap_or_else(|_| "0".to_owned())));
    job.end().expect("it ends");
}

/// A process of the mock whose output is read; killed if the test fails.
struct Watched(Child);

impl Watched {
    fn start(argument: &str, environment: &[(&str, String)]) -> Self {
        let mut command = Command::new(mock());
        command
            .arg(argument)
            .stdout(Stdio::piped())
            .envs(environment.iter().map(|(name, value)| (name, value)));
        Self(command.spawn().expect("the mock starts"))
    }

    fn lines(&mut self, count: usize) -> Vec<Value> {
        let out = self.0.stdout.take().expect("its output is piped, and read once");
        let lines: Vec<String> = BufReader::new(out).lines().take(count).map_while(Result::ok).collect();
        lines.iter().map(|line| serde_json::from_str(line).expect("the mock prints JSON")).collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn workers_end_with_a_coordinator_that_is_killed() {
    let mark = format!("mock-of-{}-orphan", std::process::id());
    let mut coordinator = Watched::start("coordinator", &[("MARK", mark.clone())]);
    let devices = coordinator.lines(1).remove(0);
    let pids: Vec<u64> =
        devices.as_array().expect("a list").iter().filter_map(|d| d["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| runs(*pid)));
    drop(coordinator);
    until("the workers end", || pids.iter().all(|pid| !runs(*pid)));
    // The spares as well.
    until("the spares end", || marked_processes(&mark) == 0);
}

/// Nobody else takes a port that was free a moment ago.
fn free_port() -> String {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.expect("there is a free port").port().to_string()
}

/// One of two processes, as torchrun starts them.
fn launched(rank: u32, port: &str, more: &[(&str, String)]) -> Watched {
    let environment = [
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", "1".to_owned()),
        ("RANKCHECK_PORT", port.to_owned()),
    ];
    Watched::start("launched", &[&environment, more].concat())
}

#[test]
fn agents_and_their_workers_end_with_a_coordinator_that_is_killed() {
    let mark = format!("mock-of-{}-agents", std::process::id());
    let (port, more) = (free_port(), [("MARK", mark.clone()), ("MOCK_HANGS", "yes".to_owned())]);
    let (mut coordinator, mut agent) = (launched(0, &port, &more), launched(1, &port, &more));
    let devices = coordinator.lines(1).remove(0);
    let pid = devices[1]["pid"].as_u64().expect("the mock tells its process id");
    assert!(runs(pid));
    drop(coordinator);
    assert!(!agent.0.wait().expect("it can be waited for").success(), "it says that something went wrong");
    assert!(!runs(pid), "the agent has waited for its worker");
    until("all end", || marked_processes(&mark) == 0);
}

#[test]
fn a_launcher_starts_one_process_a_rank() {
    let port = free_port();
    let process = |rank| launched(rank, &port, &[]);
    // The agent comes first and has to wait.
    let mut agent = process(1);
    let mut coordinator = process(0);
    let said = coordinator.lines(2);
    let reports: Vec<Report> = serde_json::from_value(said[0].clone()).expect("reports");
    assert_eq!(ended(&reports[0]), [&Ended::Finishes; 2]);
    assert_eq!(reports[0].ranks[1].reached, ["Yes", "1 Fresh [42]"]);
    assert_eq!(ended(&reports[1]), [&hang(&[(0, 0, "Hang")]), &Ended::Finishes]);
    assert_eq!(reports[2].ranks[1].reached, ["Yes", "2 Fresh [42]"], "both were replaced after the hang");
    assert_eq!(said[1][1]["device"], json!(1));
    assert!(coordinator.0.wait().expect("it can be waited for").success());
    assert!(agent.0.wait().expect("it can be waited for").success());
}
