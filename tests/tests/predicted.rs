//! What reports print as predicted: the same set for every reader, and never what devices contradict.
//!
//! Not here: whether the model has a run for each observation (`observed.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rankcheck::device::digest::ProgramName;
use rankcheck::device::observation::Validity;
use rankcheck::report;
use rankcheck::search::explore::{Witness, explore};
use rankcheck::search::{Basis, Bounds, Explained, Explored, Options, Verdict, predict, search, verdict};
use rankcheck::spec;
use rankcheck_model::{Class, Config, Source};
use rankcheck_real::case::{Ended, RankReport};
use rankcheck_tests::random::Family;
use rankcheck_tests::script::Trial;

use crate::laws::runner;
use crate::observed::kept;
use crate::specs::{CheckedProgram, checked_programs, verified};

fn classes(run: &Explored) -> BTreeSet<Class> {
    run.ends.iter().map(|end| end.outcome.class).collect()
}

/// The classes of ends, and of runs with other values or another schedule, which devices may have taken.
fn printed(run: &Explored) -> BTreeSet<Class> {
    classes(run).union(&run.other_runs).copied().collect()
}

/// The class of what ranks reported, where no run of the model says which it is.
fn class_of(ranks: &[RankReport]) -> Class {
    let class = |rank: &RankReport| match &rank.ended {
        Ended::Finishes if rank.errors.is_empty() => Class::Finishes,
        Ended::Finishes => Class::Error,
        Ended::HostHang { .. } => Class::HostHang,
        Ended::GpuHang { .. } => Class::GpuHang,
        Ended::Dead { .. } => Class::Dead,
        Ended::Broken { .. } | Ended::Lost { .. } => Class::CudaError,
    };
    ranks.iter().map(class).max().expect("somebody reported")
}

/// The classes of what was seen of each program with the platform's own version, one entry for each behaviour.
fn seen() -> BTreeMap<(String, String, u32, String), Vec<Class>> {
    let mut seen: BTreeMap<_, Vec<Class>> = BTreeMap::new();
    for kept in kept() {
        let Validity::Judged(judgements) = &kept.validity else { continue };
        let program = &kept.observation.program;
        let key =
            (program.spec.clone(), program.check.clone(), program.ranks, format!("{:?}", program.params));
        let all = seen.entry(key).or_default();
        for (behaviour, judgement) in kept.observation.seen.iter().zip(judgements) {
            all.push(judgement.class.unwrap_or_else(|| class_of(&behaviour.ranks)));
        }
    }
    seen
}

#[test]
fn no_printed_prediction_is_contradicted_by_every_run() {
    let (seen, mut wrong, mut compared) = (seen(), Vec::new(), 0);
    for file in verified() {
        for (check, explained) in file.spec.checks.iter().zip(&file.explained) {
            let failing =
                |run: &&Explored| matches!(run.verdict, Verdict::Fails { .. }) && run.platform.observed();
            for run in explained.runs.iter().filter(failing) {
                let name = ProgramName::new(&file.spec, check, run.ranks, &run.params);
                let key = (name.spec, name.check, name.ranks, format!("{:?}", name.params));
                let (printed, Some(seen)) = (printed(run), seen.get(&key)) else { continue };
                compared += 1;
                // Nobody specifies what follows: nothing contradicts it.
                if !printed.contains(&Class::Undefined) && !seen.iter().any(|class| printed.contains(class)) {
                    wrong.push(format!("{key:?}: printed {printed:?}, seen {seen:?}"));
                }
            }
        }
    }
    println!("{compared} printed predictions of programs that were observed");
    assert!(compared > 150, "{compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A set of ends that became wider, or undefined, says less. It is a change to be meant, and names the observation or
/// the source that makes the added end possible.
#[test]
fn most_predictions_have_one_end() {
    let (mut one, mut several, mut undefined, mut measured) = (0, 0, 0, 0);
    for file in verified() {
        for run in file.explained.iter().map(Explained::run) {
            if !matches!(run.verdict, Verdict::Fails { .. }) {
                continue;
            }
            measured += usize::from(run.ends.iter().any(|end| end.basis == Basis::Measured));
            match (classes(run).contains(&Class::Undefined), run.ends.len()) {
                (true, _) => undefined += 1,
                (false, 1) => one += 1,
                (false, _) => several += 1,
            }
        }
    }
    println!(
        "{one} predictions of one end, {several} of several, {undefined} undefined; {measured} rest on what was measured"
    );
    assert_eq!((one, several, undefined, measured), (249, 2, 79, 17));
}

fn searched(name: &str, text: &str) -> Vec<Explained> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("predicted");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let path = folder.join(format!("{name}.star"));
    std::fs::write(&path, text).expect("a file can be written");
    let spec = spec::load(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let search = |check| search(&spec, check, &Options::telling(rankcheck::search::Detail::Run));
    spec.checks.iter().map(|check| search(check).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

/// One program, stated with each of several outcomes: which of them are taken, and the report.
fn accepted(name: &str, program: &str, rule: &str, arguments: &str, stated: &[&str]) -> (Vec<bool>, String) {
    let checks: Vec<String> = stated
        .iter()
        .zip(0..)
        .map(|(outcome, nth): (_, u32)| {
            format!("check(\"{nth}\", program, {arguments}, expect = fails({rule}, outcome = {{\"2.28.9\": {outcome}}}))")
        })
        .collect();
    let explained = searched(name, &format!("{program}\n{}\n", checks.join("\n")));
    (explained.iter().map(|e| e.unexpected.is_none()).collect(), report::text(&explained[0]))
}

const RING: &str = r#"
def program(r, megabytes):
    c = r.comm("c", r.world)
    to, of = (r.rank + 1) % r.size, (r.rank - 1) % r.size
    w, x, y = r.mem_alloc("w", 2 * KiB), r.mem_alloc("x", megabytes * MiB), r.mem_alloc("y", megabytes * MiB)
    def first():
        c.send(w[0:KiB], peer = to)
        c.recv(w[KiB:2 * KiB], peer = of)
    r.group(first)
    r.synchronize()
    c.send(x, peer = to)
    c.recv(y, peer = of)
"#;

/// What NCCL certainly holds decides alone; a spec may still state what nobody promises not to happen.
#[test]
fn sends_that_fit_finish_and_may_be_stated_to_hang() {
    let stated =
        [r#"["finishes", "gpu hang"]"#, r#""finishes""#, r#""gpu hang""#, r#"["finishes", "host hang"]"#];
    let (taken, text) = accepted("fits", RING, r#""P2P-2""#, "ranks = 3, megabytes = 24", &stated);
    assert_eq!(taken, [true, true, false, false], "{text}");
    assert!(
        text.contains("predicts  NCCL 2.28.9: finishes (measured and not promised: gpu hang where only what is promised holds)"),
        "{text}"
    );
}

#[test]
fn sends_whose_size_was_not_measured_end_either_way() {
    let stated = [r#"["finishes", "gpu hang"]"#, r#""finishes""#, r#""gpu hang""#];
    let (taken, text) = accepted("open", RING, r#""P2P-2""#, "ranks = 4, megabytes = 48", &stated);
    assert_eq!(taken, [true, false, false], "{text}");
    assert!(
        text.contains("finishes if NCCL holds all of a send that was not measured to hang; or rank 0 GPU"),
        "{text}"
    );
}

#[test]
fn sends_that_never_fit_hang() {
    let stated = [r#""gpu hang""#, r#"["finishes", "gpu hang"]"#];
    let (taken, text) = accepted("never", RING, r#""P2P-2""#, "ranks = 4, megabytes = 64", &stated);
    assert_eq!(taken, [true, false], "{text}");
}

/// Rank 1 never comes to the second collective; before that somebody used what it had freed.
const FREED: &str = r#"
def program(r, hangs):
    c = r.comm("c", r.world)
    x, y = r.mem_alloc("x", MiB), r.mem_alloc("y", MiB)
    c.all_reduce(x)
    r.synchronize()
    y.free()
    r.kernel("late", writes = [y])
    if r.rank == 0 or not hangs:
        c.all_reduce(x)
"#;

#[test]
fn nothing_outranks_what_nobody_specifies() {
    for (hangs, rules) in [("False", r#""MEM-1""#), ("True", r#""MEM-1", also = ["COLL-1"]"#)] {
        let stated = [
            r#""undefined""#,
            r#"["undefined", "cuda error"]"#,
            r#""gpu hang""#,
            r#""finishes""#,
            r#""cuda error""#,
        ];
        let name = format!("undefined-{hangs}");
        let (taken, text) = accepted(&name, FREED, rules, &format!("hangs = {hangs}"), &stated);
        assert_eq!(taken, [true, true, false, false, false], "{text}");
        assert!(text.lines().next().is_some_and(|line| line.contains(", undefined;")), "{text}");
    }
}

#[test]
fn the_json_of_an_undefined_run_knows_no_ends_of_ranks() {
    let program = format!(
        "{FREED}\ncheck(\"c\", program, hangs = True, expect = fails(\"MEM-1\", also = [\"COLL-1\"]))\n"
    );
    let explained = searched("json", &program);
    let json = serde_json::to_value(report::json(&explained, [], [], &[])).expect("a report is data");
    let outcome = &json["checks"][0]["outcomes"][0];
    assert_eq!(outcome["class"], "undefined");
    assert_eq!(outcome["basis"], "unspecified");
    assert_eq!(outcome["ranks"], serde_json::json!(["undefined", "undefined"]));
}

/// Two ranks hand over to one that comes late: it waits for a flag that they write afterwards.
const LATE: &str = r#"
def program(r, bytes, launches):
    c = r.comm("c", [0, 1])
    x = r.mem_alloc("x", bytes)
    through = r.flag("through")
    def launch():
        c.reduce(x, root = 0, op = "max")
    launch()
    r.synchronize()
    r.barrier()
    if r.rank == 0:
        through.wait(1)
    for _ in range(launches):
        launch()
    r.synchronize()
    if r.rank == 1:
        through.write(1)
"#;

#[test]
fn who_only_hands_over_does_not_wait_for_who_takes() {
    let finishes = [r#""finishes""#, r#""host hang""#, r#"["finishes", "host hang"]"#];
    for (bytes, launches) in [("512", 8), ("MiB", 4), ("32 * MiB", 1)] {
        let arguments = format!("bytes = {bytes}, launches = {launches}");
        let (taken, text) = accepted("late", LATE, r#""FLAG-1""#, &arguments, &finishes);
        assert_eq!(taken, [true, false, true], "{arguments}\n{text}");
    }
    for (bytes, launches) in [("512", 9), ("MiB", 5), ("128 * MiB", 1)] {
        let arguments = format!("bytes = {bytes}, launches = {launches}");
        let (taken, text) = accepted("too-late", LATE, r#""FLAG-1""#, &arguments, &finishes);
        assert_eq!(taken, [false, true, false], "{arguments}\n{text}");
    }
    let (taken, text) = accepted("perhaps", LATE, r#""FLAG-1""#, "bytes = 64 * KiB, launches = 6", &finishes);
    assert_eq!(taken, [false, false, true], "{text}");
}

/// A split that waits for a rank that is gone; who is told goes another way.
const GONE: &str = r#"
def program(r):
    c = r.comm("c", r.world)
    if r.choose("%d stays" % r.rank, [True, False]) if r.rank == r.size - 1 else True:
        child = c.split("d", color = r.rank % 2)
        if r.failed(child):
            r.reach("told")
    else:
        r.exit("out of memory")
"#;

#[test]
fn a_split_without_the_dead_returns_an_error_between_two_ranks() {
    let stated = [r#""error""#, r#""dead""#, r#""host hang""#, r#"["dead", "host hang"]"#];
    let (taken, text) = accepted("gone", GONE, r#""COMM-1""#, "ranks = 2", &stated);
    assert_eq!(taken, [false, true, false, true], "{text}");
    assert!(text.contains("rank 0 c.split returns 6"), "{text}");
    let (taken, text) =
        accepted("gone-of-three", GONE, r#""COMM-1""#, "ranks = 3", &[r#""undefined""#, r#""host hang""#]);
    assert_eq!(taken, [true, false], "{text}");
}

const DECIDED: &str = r#"
def steps(r, numbers):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    def pass_on():
        if r.rank == 0:
            c.send(x, 1)
        else:
            c.recv(x, 0)
    pass_on()
    for _ in range(r.choose("steps", numbers)):
        pass_on()

def one_size(r, bad):
    c = r.comm("c", r.world)
    x, y = r.malloc("x", 4 * KiB), r.malloc("y", 4 * KiB)
    r.group(lambda: (c.send(x, 1 - r.rank), c.recv(y, 1 - r.rank)))
    if r.truth(r.all_agree(r.choose("bad root", bad))):
        c.broadcast(x, root = 7)
    else:
        c.send(x, 1 - r.rank)
        c.recv(y, 1 - r.rank)

def swap(r, big):
    c = r.comm("c", r.world)
    x, y = r.malloc("x", 256 * MiB), r.malloc("y", 256 * MiB)
    r.group(lambda: (c.send(x[0:4], 1 - r.rank), c.recv(y[0:4], 1 - r.rank)))
    n = 256 * MiB if r.truth(r.all_agree(r.choose("big", big))) else 4 * KiB
    c.send(x[0:n], 1 - r.rank)
    c.recv(y[0:n], 1 - r.rank)

def putter(r, m):
    m.put("k", 1)

def early(r, threads):
    c = r.comm("c", r.world)
    x, y = r.malloc("x", 4 * KiB), r.malloc("y", 4 * KiB)
    m = r.map("m")
    r.group(lambda: (c.send(x, 1 - r.rank), c.recv(y, 1 - r.rank)))
    r.synchronize()
    threaded = r.rank == 0 and r.choose("a thread", threads)
    if threaded:
        t = r.thread("t", putter, m)
    c.send(x, 1 - r.rank)
    r.synchronize()
    c.recv(y, 1 - r.rank)
    r.synchronize()
    if threaded:
        # Whoever is let go before the thread comes by sees nothing yet.
        if not m.has("k"):
            c.recv(x, 1)
        t.join()

def long(r, goes_on):
    c = r.comm("c", r.world)
    x, y = r.malloc("x", 4 * KiB), r.malloc("y", 4 * KiB)
    r.group(lambda: (c.send(x, 1 - r.rank), c.recv(y, 1 - r.rank)))
    on = r.rank == 0 and r.choose("goes on", goes_on)
    c.send(x, 1 - r.rank)
    c.recv(y, 1 - r.rank)
    r.synchronize()
    if on:
        bits = [r.choose("bit %d" % nth, [0, 1]) for nth in range(13)]
        if not any(bits):
            c.recv(x, 1)
"#;

/// What other runs do is what the platform makes of them, and the order of what may be chosen decides nothing of it.
#[test]
fn the_ends_of_other_runs_are_those_on_the_platform() {
    let programs = [
        ("early", ["False", "True"], r#""P2P-2""#, r#"["finishes", "gpu hang"]"#),
        ("long", ["False", "True"], r#""P2P-2""#, r#"["finishes", "gpu hang"]"#),
        ("steps", ["1", "2"], r#""P2P-2""#, r#"["finishes", "gpu hang"]"#),
        ("swap", ["False", "True"], r#""P2P-2""#, r#"["finishes", "gpu hang"]"#),
        ("one_size", ["False", "True"], r#""COMM-5", also = ["P2P-2"]"#, r#"["error", "finishes"]"#),
    ];
    for (program, alternatives, rule, outcome) in programs {
        let turned = [alternatives[1], alternatives[0]];
        let checks = [alternatives, turned].map(|[first, second]| {
            let of = format!("lambda r: {program}(r, [{first}, {second}])");
            format!(
                "check(\"{first}\", {of}, expect = fails({rule}, outcome = {{\"2.28.9\": {outcome}}}))\n\
                 check(\"latent, {first}\", {of}, expect = fails({rule}, latent = True))\n"
            )
        });
        let explained = searched(program, &format!("{DECIDED}\n{}", checks.concat()));
        let taken: Vec<bool> = explained.iter().map(|e| e.unexpected.is_none()).collect();
        assert_eq!(taken, [true, false, true, false], "{}", report::text(&explained[0]));
    }
}

/// What is told of all runs on the platform is what each of them does there by itself.
#[test]
fn all_runs_end_on_the_platform_as_each_does() {
    let (mut compared, mut let_go, mut wrong) = (0, 0, Vec::new());
    let bounds = Bounds { states: 2_000, ..Bounds::default() };
    let mut compare = |name: &str, source: &Arc<dyn Source>, config: Config| {
        let explored = explore(source, config, &bounds).expect("it can be evaluated");
        let freer = predict::may_end_otherwise(&explored).then(|| {
            explore(source, verdict::freer(&explored.config), &bounds).expect("it can be evaluated")
        });
        if explored.bound.is_some() || freer.as_ref().is_some_and(|freer| freer.bound.is_some()) {
            return;
        }
        let told = predict::failing(freer.as_ref().unwrap_or(&explored));
        for (outcome, choices) in explored.outcomes.iter().filter(|(outcome, _)| !outcome.findings.is_empty())
        {
            let witness = Witness { choices: Arc::clone(choices), past: 0 };
            let ends = predict::ends(source, &explored, &witness, &bounds).expect("it can be evaluated");
            let broken = ends.ends.iter().filter(|end| !end.outcome.findings.is_empty());
            let anew: BTreeSet<Class> = broken.map(|end| end.outcome.class).collect();
            compared += 1;
            let_go += usize::from(ends.ends.iter().any(|end| end.outcome.class != outcome.class));
            let agree = if explored.executions == 1 { anew == told } else { anew.is_subset(&told) };
            if !agree {
                wrong.push(format!("{name}: all {told:?}, by itself {anew:?}"));
            }
        }
    };
    for CheckedProgram { name, source, config } in checked_programs() {
        compare(&name, &source, config);
    }
    let mut runner = runner(7);
    let strategy = Family::General.recipes();
    for _ in 0..2_000 {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let Trial { script, config } = recipe.trial();
        let source: Arc<dyn Source> = script;
        compare(&format!("{recipe:?}"), &source, config);
    }
    println!("{compared} outcomes that break a rule; of {let_go} the platform makes something else");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(let_go >= 20, "{let_go}");
}
