//! `rankcheck diff` and what follows from it, on devices that do as told and on bent ones.
//!
//! Not here: the comparison of one report (`conform.rs`), and arguments (`cli.rs`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankcheck::device::Runner;
use rankcheck::device::diff::{DiffEvent, PlannedRun, Selection, Settings, Summary, plan, run};
use rankcheck::device::digest::ProgramName;
use rankcheck::device::observation::{self, Multicast, Testbed, Validity};
use rankcheck::device::reproduce::{Reproduced, reproduce};
use rankcheck::device::{PredictionQuery, predict};
use rankcheck::device::{contract, observed_rules};
use rankcheck::search::{Detail, Options, search};
use rankcheck::shard::Shard;
use rankcheck::spec::{self, Spec};
use rankcheck_model::Platform;
use rankcheck_real::Error;
use rankcheck_real::case::{Case, CommHistory, Ended, Report};
use rankcheck_tests::device::played;
use rankcheck_tests::repository::enter;

/// A device that does as told, and then something to its report.
struct Device<F> {
    bend: F,
    cases: u32,
}

impl<F: FnMut(&Case, &mut Report)> Runner for Device<F> {
    fn run(&mut self, case: &Case) -> Result<Report, Error> {
        self.cases += 1;
        let name: ProgramName = serde_json::from_value(case.program.clone()).expect("cases name programs");
        let spec = spec::load(Path::new(&name.spec)).expect("the spec is good");
        let (check, params) = name.find(&spec).expect("the check is there");
        let question = PredictionQuery {
            spec: &spec,
            check,
            ranks: case.ranks,
            params: &params,
            platform: Platform::V2_28_9,
            comms: case.comms,
        };
        let predictions = predict(&question).expect("the spec is good");
        let wanted = predictions.run_of(&case.forced).unwrap_or(&predictions.runs[0]);
        let mut report = played(&predictions, wanted);
        (self.bend)(case, &mut report);
        Ok(report)
    }
}

fn bent<F: FnMut(&Case, &mut Report)>(bend: F) -> Device<F> {
    Device { bend, cases: 0 }
}

/// A machine without workers.
struct Broken;

impl Runner for Broken {
    fn run(&mut self, _: &Case) -> Result<Report, Error> {
        Err(Error::Cuda { call: "cuInit", code: 999 })
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("an old folder can be removed");
    }
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

fn settings(nccl: &str, observe: Option<&Path>) -> Settings {
    Settings {
        runs: 2,
        budget: None,
        observe: observe.map(Path::to_owned),
        observed: Vec::new(),
        machine: Testbed {
            gpu: "NVIDIA H200".to_owned(),
            driver: "13.0".to_owned(),
            nccl: nccl.to_owned(),
            multicast: Multicast::Off,
        },
        platform: observation::platform_of(nccl).expect("it is modelled"),
        command: "rankcheck diff".to_owned(),
        deadline: Duration::from_secs(2),
    }
}

fn windows() -> Vec<Spec> {
    enter();
    vec![spec::load(Path::new("specs/rules/window.star")).expect("the spec is good")]
}

fn wanted(only: &str, ranks_at_most: u32) -> Selection {
    let only = Some(only.to_owned());
    Selection { only, ranks_at_most, comms: vec![CommHistory::Fresh], shard: Shard::WHOLE }
}

fn diff(specs: &[Spec], only: &str, runner: &mut dyn Runner, settings: &Settings) -> (Summary, Vec<String>) {
    let mut rows = Vec::new();
    let plan = plan(specs, &wanted(only, 2));
    let summary = run(runner, &plan, settings, &mut |event| {
        if let DiffEvent::Over(row) = event {
            rows.push(row.text());
        }
    });
    (summary.expect("specs are good and folders can be written to"), rows)
}

#[test]
fn a_table_has_a_row_for_each_program() {
    let (summary, rows) = diff(&windows(), "WIN-2", &mut bent(|_, _| {}), &settings("2.28.9", None));
    assert_eq!(
        rows[0],
        "agrees     specs/rules/window.star \"WIN-2 broken\", 2 ranks, reversed_on = 1, bytes = 4194304, fresh\n           \
         predicted silent corruption; seen silent corruption ×2"
    );
    assert_eq!((summary.run, summary.agree, summary.single, summary.exit_code()), (3, 3, 3, 0));
}

#[test]
fn a_device_that_does_something_else_is_told_with_both_sides() {
    let bend = |_: &Case, report: &mut Report| report.ranks[0].ended = Ended::Broken { code: 700 };
    let (summary, rows) = diff(&windows(), "WIN-2 kept", &mut bent(bend), &settings("2.28.9", None));
    assert!(rows[0].starts_with("DISAGREES  specs/rules/window.star \"WIN-2 kept\""), "{}", rows[0]);
    assert!(
        rows[0].contains("the model says that the rank finishes; the device: CUDA error 700"),
        "{}",
        rows[0]
    );
    assert_eq!((summary.disagree, summary.exit_code()), (1, 1));
}

#[test]
fn what_is_not_run_is_told_and_why() {
    let specs = windows();
    let (summary, _) = diff(&specs, "", &mut Broken, &settings("2.28.9", None));
    assert_eq!((summary.run, summary.exit_code()), (0, 3));
    assert!(summary.text().contains("3 cases in a row could not be run"), "{}", summary.text());
    let short = Settings { budget: Some(Duration::ZERO), ..settings("2.28.9", None) };
    let mut device = bent(|_, _| {});
    let (summary, _) = diff(&specs, "WIN-2", &mut device, &short);
    assert_eq!((device.cases, summary.not_run.len()), (0, 3));
    assert!(summary.text().contains("the time is up"), "{}", summary.text());
    let one = plan(&specs, &wanted("WIN-2", 1));
    assert!(one.items.is_empty() && one.left_out[0].1.contains("more than 1"), "{:?}", one.left_out);
    let hosts = [spec::load(Path::new("specs/rules/host.star")).expect("the spec is good")];
    let one = plan(&hosts, &wanted("the job ends with a rank", 8));
    assert!(one.items.is_empty() && one.left_out[0].1.contains("without one"), "{:?}", one.left_out);
}

/// Machines of two and of eight GPUs deal the same programs to the same shards, and each program to one.
#[test]
fn shards_are_the_same_on_every_machine() {
    let pool = Path::new("specs/systems/sglang-20153-shared-pool/fifo.star");
    let specs = [windows(), vec![spec::load(pool).expect("the spec is good")]].concat();
    let titles = |ranks_at_most: u32, shard: Shard| {
        let plan = plan(&specs, &Selection { shard, ..wanted("", ranks_at_most) });
        let titles: Vec<String> = plan.items.iter().map(PlannedRun::title).collect();
        (titles, plan)
    };
    let (mut all, whole) = titles(8, Shard::WHOLE);
    assert!(whole.programs == all.len() && all.len() > 20, "{} programs", all.len());
    let mut dealt = Vec::new();
    for number in 1..=3 {
        let shard = Shard::new(number, 3).expect("it is one of three");
        let (own, plan) = titles(8, shard);
        assert_eq!((own.len(), plan.programs), (shard.len_of(whole.programs), whole.programs));
        let (fits, few) = titles(2, shard);
        assert!(own.starts_with(&fits) && fits.len() < own.len(), "{fits:?}");
        assert!(few.left_out.iter().any(|(_, why)| why.contains("more than 2")), "{:?}", few.left_out);
        dealt.extend(own);
    }
    all.sort();
    dealt.sort();
    assert_eq!(all, dealt);
}

#[test]
fn what_was_observed_is_filed_compared_and_resumed() {
    let (folder, specs) = (folder("recorded"), windows());
    let first = settings("2.28.9", Some(&folder));
    diff(&specs, "WIN-2", &mut bent(|_, _| {}), &first);
    let lines = folder.join(observation::FILE_NAME);
    let observed = observation::read(&lines).expect("it was just written");
    assert_eq!(observed.len(), 3);
    let resumed = Settings { observed, ..settings("2.28.9", Some(&folder)) };
    let mut device = bent(|_, _| {});
    let (summary, _) = diff(&specs, "WIN-2", &mut device, &resumed);
    assert_eq!((device.cases, summary.not_run.len()), (0, 3));
    let root = folder.join("kept");
    for _ in 0..2 {
        let changed = observation::unpack(&lines, &root).expect("it can be filed");
        let files: Vec<_> = changed.into_iter().collect();
        assert_eq!(files, [(root.join("h200-nccl-2.28.9/rules.window.json"), 3)]);
    }
    let kept = observation::kept(&root).expect("specs are good");
    assert_eq!(kept.len(), 3);
    assert!(kept.iter().all(|kept| kept.validity.single()));
    assert_eq!(observation::stale_list(&kept), "");
    let lines = observed_rules::lines(&kept);
    let broken = "- NCCL 2.28.9, NVIDIA H200: \"WIN-2 broken\", 2 ranks, reversed_on = 1, bytes = 4194304, fresh: silent corruption";
    assert!(lines["WIN-2"].contains(broken), "{lines:?}");
}

#[test]
fn an_observation_of_another_program_is_stale() {
    let folder = folder("stale");
    let bend = |_: &Case, report: &mut Report| report.ranks[1].ended = Ended::Broken { code: 700 };
    diff(&windows(), "WIN-2 kept", &mut bent(bend), &settings("2.28.9", Some(&folder)));
    let lines = folder.join(observation::FILE_NAME);
    let root = folder.join("kept");
    observation::unpack(&lines, &root).expect("it can be filed");
    let mut kept = observation::kept(&root).expect("specs are good");
    let title = kept[0].title();
    assert_eq!(
        title,
        "h200-nccl-2.28.9: specs/rules/window.star \"WIN-2 kept\", 2 ranks, reversed_on = None, bytes = 4194304, fresh"
    );
    let difference = kept[0].validity.difference().expect("it disagrees").to_string();
    assert!(observation::unexplained(&kept, "")[0].contains("is not in"));
    assert!(observation::unexplained(&kept, &format!("## {title}\n\nOther words.\n"))[0].contains("pins"));
    assert!(observation::unexplained(&kept, &format!("## {title}\n\n{difference}\n")).is_empty());
    kept[0].validity = Validity::Stale;
    assert_eq!(observation::stale_list(&kept), title.clone() + "\n");
    assert!(observation::unexplained(&kept, &format!("## {title}\n"))[0].contains("does not disagree"));
    let text = std::fs::read_to_string(&lines).expect("it is there");
    let digest = observation::read(&lines).expect("it is there")[0].digest.clone();
    std::fs::write(&lines, text.replace(&digest, "another")).expect("it can be written");
    observation::unpack(&lines, &root).expect("it can be filed");
    let kept = observation::kept(&root).expect("specs are good");
    assert!(matches!(kept[0].validity, Validity::Stale), "it replaced the first: {}", kept.len());
}

#[test]
fn the_contract_says_what_another_version_does() {
    let (folder, specs) = (folder("contract"), windows());
    let old = settings("2.28.3", Some(&folder));
    diff(&specs, "WIN-2", &mut bent(|_, _| {}), &old);
    let root = folder.join("kept");
    observation::unpack(&folder.join(observation::FILE_NAME), &root).expect("it can be filed");
    let bend = |case: &Case, report: &mut Report| {
        if case.program["check"] == "WIN-2 kept" {
            report.ranks[0].ended = Ended::Broken { code: 700 };
        }
    };
    let (summary, _) = diff(&specs, "WIN-2", &mut bent(bend), &settings("2.28.9", None));
    let text = contract::text(&contract::changes(&summary.observations, &root).expect("it can be read"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "against h200-nccl-2.28.3: 1 changed");
    assert!(lines[1].ends_with("there finishes, here cuda error on 0; finishes on 1"), "{text}");
}

#[test]
fn a_trace_is_confirmed_or_not() {
    let folder = folder("traces");
    let specs = windows();
    let spec = &specs[0];
    let check = spec.checks.iter().find(|check| check.name == "WIN-7 broken").expect("it is there");
    let options = Options::telling(Detail::Run);
    let explained = search(spec, check, &options).expect("the spec is good");
    let trace = rankcheck::trace::Trace::of(&explained).expect("it fails");
    trace.write(&folder, &std::collections::BTreeSet::new()).expect("it can be written");
    let path = folder.join("window.win-7-broken.trace");
    let try_on = |runner: &mut dyn Runner| {
        reproduce(runner, &path, 3, Duration::from_secs(2)).unwrap_or_else(|error| panic!("{error}"))
    };
    let confirmed = try_on(&mut bent(|_, _| {}));
    assert_eq!(confirmed.text(), "confirmed in try 1: gpu hang");
    let bend = |_: &Case, report: &mut Report| report.ranks[0].ended = Ended::Finishes;
    let Reproduced::NotReproduced { tries: 3, last } = try_on(&mut bent(bend)) else {
        panic!("it does something else")
    };
    assert!(last.contains("the rank finishes"), "{last}");
    assert!(matches!(try_on(&mut Broken), Reproduced::Impossible(_)));
}
