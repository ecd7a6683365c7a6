//! Workers and coordinators without a GPU, for the tests of jobs: programs are lists of steps for each rank.
//!
//! `mock worker …` is a worker, `mock coordinator` holds a job that hangs until it is killed, `mock launched` is
//! one process of a launcher that starts one a rank, `mock measure` prints how fast cases go.
//! Not here: anything of CUDA or NCCL.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rankcheck_model::{Dtype, FlagAct, Rank, Resources, Test};
use rankcheck_real::case::{
    At, CallFailed, Case, CommHistory, Ended, Forced, Host, Inspect, RankReport, Vote,
};
use rankcheck_real::ffi::process;
use rankcheck_real::flag::{HostWords, Tried};
use rankcheck_real::job::{Job, JobConfig, Limits, WorkerCommand, agent};
use rankcheck_real::launch::ProcessRole;
use rankcheck_real::worker::{self, Inspection, WorkerConfig};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a thread does next.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MockStep {
    Agree(bool),
    Init(String),
    Set(String, Value),
    Get(String),
    Delete(String),
    FlagWrite(String, i64),
    FlagWait(String, i64),
    /// Waits for its turn, takes a note and says that the turn is over.
    Turn,
    Thread(Vec<MockStep>),
    /// Asks something again and again.
    BusyForMs(u64),
    /// Never comes back from a call.
    Hang,
    /// Neither comes back nor says where it is.
    Mute,
    /// A call fails with code 4, and the thread goes on.
    Fail,
    Exit(i32),
    Panic,
    /// SIGKILL to itself inside a call.
    Die,
    /// SIGKILL to the process whose id is under a key of the store.
    Kill(String),
}

/// What the steps left behind.
#[derive(Debug, Default)]
struct Notes {
    inside: BTreeMap<u32, (u32, String)>,
    errors: Vec<CallFailed>,
    reached: Vec<String>,
    inits: BTreeMap<String, u32>,
    agreements: u32,
}

struct Mock {
    rank: Rank,
    ranks: u32,
    host: Arc<dyn Host>,
    notes: Mutex<Notes>,
}

impl Inspect for Mock {
    fn inspect(&self) -> RankReport {
        let inside = self.notes().inside.clone();
        let inside = inside.into_iter().map(|(thread, (index, call))| (thread, index, call));
        self.report(Ended::HostHang { inside: inside.collect() })
    }
}

impl Mock {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, ended: Ended) -> RankReport {
        let notes = self.notes();
        RankReport {
            ended,
            errors: notes.errors.clone(),
            taken: vec![],
            answers: BTreeMap::new(),
            held: vec![],
            reached: notes.reached.clone(),
        }
    }

    fn steps(&self, thread: u32, steps: &[MockStep], inspection: &Inspection) {
        for (index, step) in (0..).zip(steps) {
            let call = format!("{step:?}");
            self.notes().inside.insert(thread, (index, call.clone()));
            self.host.enter(thread, index, &call);
            let at = At { rank: self.rank, thread, index };
            let seen = self.step(at, step, inspection).expect("the coordinator is there");
            self.host.leave(thread, index);
            let mut notes = self.notes();
            notes.inside.remove(&thread);
            notes.reached.extend(seen);
        }
    }

    /// The word is one for all processes, without a device as well.
    fn work_on(&self, flag: &str, act: FlagAct) -> Result<(), rankcheck_real::Error> {
        let word = self.host.word(flag)?;
        let words = HostWords::open(&word.file)?;
        while words.attempt(word.nth, act) == Tried::NotYet {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        words.end()
    }

    fn step(
        &self,
        at: At,
        step: &MockStep,
        inspection: &Inspection,
    ) -> Result<Option<String>, rankcheck_real::Error> {
        let members: Vec<Rank> = (0..self.ranks).map(Rank).collect();
        let seen = match step {
            MockStep::Agree(vote) => {
                let mut notes = self.notes();
                notes.agreements += 1;
                let nth = notes.agreements - 1;
                drop(notes);
                let vote = if *vote { Vote::Yes } else { Vote::No };
                Some(format!("{:?}", self.host.agree(&members, nth, vote)?))
            }
            MockStep::Init(name) => {
                let mut notes = self.notes();
                let next = notes.inits.entry(name.clone()).or_default();
                let nth = std::mem::replace(next, *next + 1);
                drop(notes);
                let ticket = self.host.init(name, nth, &members, Resources::Own)?;
                let own = (members[0] == self.rank).then(|| vec![42]);
                let unique = self.host.unique_id(&ticket, own)?;
                Some(format!("{} {:?} {unique:?}", ticket.id, ticket.comms))
            }
            MockStep::Set(key, value) => {
                self.host.store_set(key, value.clone())?;
                None
            }
            MockStep::Get(key) => Some(self.host.store_get(key)?.to_string()),
            MockStep::Delete(key) => {
                self.host.store_delete(key)?;
                None
            }
            MockStep::FlagWrite(flag, value) => {
                self.work_on(flag, FlagAct::Write(*value))?;
                None
            }
            MockStep::FlagWait(flag, value) => {
                self.work_on(flag, FlagAct::Wait(Test::Equal, *value))?;
                None
            }
            MockStep::Turn => {
                self.host.turn(at)?;
                let nth = self.host.store_get("turns")?.as_i64().expect("a number");
                self.host.store_set("turns", json!(nth + 1))?;
                self.host.turn_over(at)?;
                Some(format!("turn {nth}"))
            }
            MockStep::Thread(steps) => {
                std::thread::scope(|scope| {
                    scope.spawn(|| self.steps(at.thread + 1, steps, inspection)).join()
                })
                .expect("steps do not panic");
                None
            }
            MockStep::BusyForMs(duration) => {
                let until = Instant::now() + Duration::from_millis(*duration);
                while Instant::now() < until {
                    self.host.store_set("busy", Value::Null)?;
                }
                None
            }
            MockStep::Hang => loop {
                std::thread::park();
            },
            MockStep::Mute => {
                inspection.open(Arc::new(Nobody));
                loop {
                    std::thread::park();
                }
            }
            MockStep::Fail => {
                let (thread, index) = (at.thread, at.index);
                let failed = CallFailed { call: "mock".to_owned(), code: 4, thread, index, detail: None };
                self.notes().errors.push(failed);
                None
            }
            MockStep::Exit(code) => std::process::exit(*code),
            MockStep::Panic => panic!("as the program says"),
            MockStep::Die => process::die(),
            MockStep::Kill(key) => {
                let target = self.host.store_get(key)?;
                let killed = Command::new("sh").args(["-c", &format!("kill -9 {target}")]).status();
                assert!(killed.expect("sh is there").success());
                None
            }
        };
        Ok(seen)
    }
}

/// Never says where the rank stands, as if its process were blocked.
struct Nobody;

impl Inspect for Nobody {
    fn inspect(&self) -> RankReport {
        loop {
            std::thread::park();
        }
    }
}

fn load(program: &Value, rank: Rank) -> Result<Vec<MockStep>, String> {
    let Some(steps) = program.get(rank.at()) else { return Err("there are no steps".to_owned()) };
    serde_json::from_value(steps.clone()).map_err(|error| error.to_string())
}

fn work(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let config = WorkerConfig::from_arguments(arguments)?;
    let nvls = std::env::var("NCCL_NVLS_ENABLE").ok();
    let device = json!({ "pid": std::process::id(), "device": config.device, "nvls": nvls });
    let run = |case: &Case, steps: Vec<MockStep>, host: Arc<dyn Host>, inspection: &Inspection| {
        let mock = Arc::new(Mock { rank: config.rank, ranks: case.ranks, host, notes: Mutex::default() });
        inspection.open(Arc::clone(&mock) as Arc<dyn Inspect>);
        mock.steps(0, &steps, inspection);
        mock.report(Ended::Finishes)
    };
    Ok(worker::serve(&config, device, load, run)?)
}

fn command() -> Result<WorkerCommand, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    Ok(WorkerCommand { program, arguments: vec!["worker".into()], environment: vec![] })
}

fn local(ranks: u32) -> Result<JobConfig, Box<dyn Error>> {
    let limits = Limits::default();
    Ok(JobConfig { ranks, worker: command()?, cluster: None, spares: 1, limits })
}

fn case(ranks: u32, deadline: Duration, program: Value) -> Case {
    let (comms, element, forced) = (CommHistory::Warm, Dtype::F32, Forced::default());
    Case { program, ranks, comms, element, forced, deadline }
}

fn say(what: &Value) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

/// Says which processes its workers are, and then waits for one that hangs.
fn coordinate() -> Result<(), Box<dyn Error>> {
    let mut job = Job::start(local(2)?)?;
    say(&json!(job.devices()))?;
    job.run(&case(2, Duration::from_secs(60), json!([["hang"], []])))?;
    Ok(job.end()?)
}

/// What every process does that a launcher starts. With `MOCK_HANGS` it waits to be killed.
fn launched() -> Result<(), Box<dyn Error>> {
    let cluster = match ProcessRole::from_environment()? {
        ProcessRole::Local => return Err("no launcher is to be seen".into()),
        ProcessRole::Agent(cluster) => {
            return Ok(agent::serve(&cluster, command()?, Duration::from_secs(20))?);
        }
        ProcessRole::Coordinator(cluster) => cluster,
    };
    let mut job = Job::start(JobConfig { cluster: Some(cluster.clone()), ..local(cluster.ranks)? })?;
    if std::env::var_os("MOCK_HANGS").is_some() {
        say(&json!(job.devices()))?;
        job.run(&case(cluster.ranks, Duration::from_secs(60), json!([["hang"], ["hang"]])))?;
    }
    let steps = json!([{ "agree": true }, { "init": "tp" }]);
    let hang = case(cluster.ranks, Duration::from_millis(200), json!([["hang"], []]));
    let clean = case(cluster.ranks, Duration::from_secs(5), json!([steps, steps]));
    let reports = [job.run(&clean)?, job.run(&hang)?, job.run(&clean)?];
    say(&serde_json::to_value(&reports)?)?;
    say(&json!(job.devices()))?;
    Ok(job.end()?)
}

/// Prints how fast cases go.
fn measure() -> Result<(), Box<dyn Error>> {
    let mut job = Job::start(local(2)?)?;
    let steps =
        json!([{ "init": "tp" }, { "agree": true }, { "set": ["k", 1] }, { "get": "k" }, { "agree": true }]);
    let (clean, cases) = (case(2, Duration::from_secs(2), json!([steps, steps])), 2000_u32);
    let start = Instant::now();
    for _ in 0..cases {
        job.run(&clean)?;
    }
    let a_minute = f64::from(cases) / start.elapsed().as_secs_f64() * 60.0;
    say(&json!({ "clean cases a minute": a_minute.round() }))?;
    let hang = case(2, Duration::from_millis(200), json!([["hang"], []]));
    let mut above = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        job.run(&hang)?;
        above.push((start.elapsed() - hang.deadline).as_secs_f64() * 1000.0);
    }
    above.sort_by(f64::total_cmp);
    say(
        &json!({ "milliseconds of a hung case above its deadline": { "median": above[25], "most": above[49] } }),
    )?;
    Ok(job.end()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("worker") => work(&arguments[1..]),
        Some("coordinator") => coordinate(),
        Some("launched") => launched(),
        Some("measure") => measure(),
        _ => Err("mock worker|coordinator|launched|measure".into()),
    }
}
