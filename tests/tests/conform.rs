//! The comparison of devices with the model, on devices that do what they are told and on bent ones.
//!
//! Not here: what real devices did (`observed.rs`).

use std::path::Path;

use rankcheck::device::{Agreement, Judgement, Prediction, PredictionQuery, Predictions, compare, predict};
use rankcheck::spec::{self, CheckKind};
use rankcheck_model::{Platform, RankOutcome};
use rankcheck_real::case::{CallFailed, CommHistory, Ended, Report};
use rankcheck_tests::device::played;
use rankcheck_tests::repository::{enter, specs};

fn predictions_of(file: &str, check: &str, ranks: u32, comms: CommHistory) -> Predictions {
    enter();
    let spec = spec::load(Path::new(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let check = spec.checks.iter().find(|c| c.name == check).expect("the check is there");
    let params = check.combinations().swap_remove(0);
    let platform = Platform::V2_28_9;
    let question = PredictionQuery { spec: &spec, check, ranks, params: &params, platform, comms };
    predict(&question).expect("the spec is good")
}

fn window(check: &str) -> Predictions {
    predictions_of("specs/rules/window.star", check, 2, CommHistory::Fresh)
}

fn judged(predictions: &Predictions, bend: impl FnOnce(&mut Report)) -> Judgement {
    let run = &predictions.runs[0];
    let mut report = played(predictions, run);
    bend(&mut report);
    compare(predictions, &run.forced, &report)
}

#[track_caller]
fn differs(predictions: &Predictions, bend: impl FnOnce(&mut Report), words: &[&str]) {
    let judgement = judged(predictions, bend);
    let Agreement::Disagrees(difference) = &judgement.agreement else { panic!("{judgement:?}") };
    let text = difference.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

/// What the usual machine can run.
const RANKS_AT_MOST: u32 = 4;

/// Every program of the repository that the usual machine can run.
#[test]
fn a_device_that_does_what_is_predicted_agrees() {
    let (mut wrong, mut runs, mut single, mut undefined) = (Vec::new(), 0, 0, 0);
    for path in specs() {
        let spec = spec::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for check in spec.checks.iter().filter(|check| check.kind != CheckKind::SameOperations) {
            let few = check.ranks.iter().copied().filter(|ranks| *ranks <= RANKS_AT_MOST);
            for (ranks, params) in few.flat_map(|r| check.combinations().into_iter().map(move |p| (r, p))) {
                for comms in [CommHistory::Fresh, CommHistory::Warm] {
                    let platform = Platform::V2_28_9;
                    let question =
                        PredictionQuery { spec: &spec, check, ranks, params: &params, platform, comms };
                    let predictions = predict(&question).expect("the spec is good");
                    assert!(!predictions.runs.is_empty(), "{} \"{}\"", path.display(), check.name);
                    for run in &predictions.runs {
                        runs += 1;
                        let judgement = compare(&predictions, &run.forced, &played(&predictions, run));
                        single += usize::from(judgement.single());
                        match judgement.agreement {
                            Agreement::Agrees => {}
                            Agreement::Undefined => undefined += 1,
                            other @ (Agreement::AgreesOtherwise
                            | Agreement::Disagrees(_)
                            | Agreement::NotComparable(_)) => wrong.push(format!(
                                "{} \"{}\" {params:?} {comms:?}: {other:?}",
                                path.display(),
                                check.name
                            )),
                        }
                    }
                }
            }
        }
    }
    println!("{runs} predicted runs, {single} of a single outcome, {undefined} undefined");
    assert!(wrong.is_empty(), "{} of {runs}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(single * 10 >= (runs - undefined) * 9, "{single} of {runs} runs have a single outcome");
}

#[test]
fn one_wrong_element_is_a_difference() {
    let predictions = window("WIN-2 kept");
    differs(
        &predictions,
        |report| {
            let held = &mut report.ranks[1].held[0];
            held.values[0].1 -= 1;
            held.values.push((7.0, 1, 4711));
            held.distinct += 1;
        },
        &["rank 1 at the end, a", "×1048576", "×1048575"],
    );
}

#[test]
fn a_misregistration_is_predicted_in_every_element() {
    let predictions = window("WIN-2 broken");
    assert!(judged(&predictions, |_| {}).single());
    let held = &predictions.runs[0].endings[0].held;
    let shares: Vec<usize> =
        held.iter().map(|b| b.numbers.as_ref().expect("sums are exact")[0].shares.len()).collect();
    assert_eq!(shares, [2, 2], "both buffers of rank 0 are mixed");
    // A device on which the right sum came out.
    let right = window("WIN-2 kept");
    let right = played(&right, &right.runs[0]);
    differs(
        &predictions,
        |report| report.ranks[0].held.clone_from(&right.ranks[0].held),
        &["rank 0 at the end, a", "×524288"],
    );
}

#[test]
fn a_reduce_gives_the_sum_to_its_root_alone() {
    let predictions =
        predictions_of("specs/rules/collective.star", "COLL-3 kept, root", 2, CommHistory::Fresh);
    let held = |rank: usize, name: &str| {
        let buffers = &predictions.runs[0].endings[rank].held;
        let buffer = buffers.iter().find(|buffer| &*buffer.name == name).expect("it is held");
        buffer.numbers.as_ref().expect("sums are exact")[0].shares.clone()
    };
    let sum: f64 = [0, 1].iter().map(|rank| held(*rank, "x")[0]).sum();
    assert_eq!(held(0, "y"), [sum]);
    assert_ne!(held(1, "y"), [sum], "the output of another rank stays as it was");
}

#[test]
fn an_error_that_did_not_come_is_a_difference_at_its_call() {
    let predictions = window("WIN-3 broken");
    differs(
        &predictions,
        |report| report.ranks[0].errors.clear(),
        &["rank 0 at c.register(x) (window.star:", "that c.register returns 1", "no such error"],
    );
    differs(
        &predictions,
        |report| report.ranks[1].errors[0].code = 5,
        &["it returns 1", "c.register returns 5"],
    );
}

#[test]
fn an_error_that_nobody_predicted_is_a_difference_at_its_call() {
    let failed = CallFailed { call: "c.register".to_owned(), code: 2, thread: 0, index: 2, detail: None };
    differs(
        &window("WIN-3 kept"),
        |report| report.ranks[1].errors.push(failed),
        &["rank 1 at c.register(x)", "that it succeeds", "c.register returns 2"],
    );
}

#[test]
fn a_hang_elsewhere_is_a_difference() {
    let predictions = window("WIN-1 broken");
    let elsewhere = Ended::HostHang { inside: vec![(0, 0, "c.init".to_owned())] };
    differs(
        &predictions,
        |report| report.ranks[0].ended = elsewhere,
        &["rank 0 at c.init", "never comes out of c.register(x)", "never comes out of c.init"],
    );
    differs(
        &predictions,
        |report| report.ranks[1].ended = Ended::Finishes,
        &["rank 1 at c.all_reduce(x)", "the rank finishes"],
    );
    let hung = Ended::GpuHang { streams: vec![("default".to_owned(), None)] };
    differs(&predictions, |report| report.ranks[1].ended = hung, &["stream default never drains"]);
    differs(&predictions, |report| report.ranks[1].ended = Ended::Broken { code: 700 }, &["CUDA error 700"]);
}

#[test]
fn a_gpu_hang_is_compared_by_stream_and_head() {
    let predictions = window("WIN-7 broken");
    let stream = |head| Ended::GpuHang { streams: vec![("default".to_owned(), head)] };
    assert!(judged(&predictions, |report| report.ranks[0].ended = stream(None)).single());
    differs(
        &predictions,
        |report| report.ranks[0].ended = stream(Some((0, 1))),
        &["rank 0 at x = mem_alloc"],
    );
    differs(
        &predictions,
        |report| report.ranks[0].ended = Ended::GpuHang { streams: vec![("other".to_owned(), None)] },
        &["stream other never drains"],
    );
}

#[test]
fn warm_communicators_do_not_meet_on_first_use() {
    let check = |comms| predictions_of("specs/rules/window.star", "WIN-1 broken", 2, comms);
    let (fresh, warm) = (check(CommHistory::Fresh), check(CommHistory::Warm));
    let how = |predictions: &Predictions| predictions.runs[0].endings[1].how.clone();
    assert_eq!(how(&fresh), RankOutcome::HostHang("c.all_reduce(x)".into()));
    assert_eq!(how(&warm), RankOutcome::GpuHang("c.all_reduce(x) on stream default".into()));
    assert_ne!(fresh.digest, warm.digest);
}

#[test]
fn what_nobody_specifies_agrees_and_predicts_nothing() {
    let predictions = window("WIN-9 broken");
    let judgement = judged(&predictions, |report| report.ranks[0].ended = Ended::Broken { code: 700 });
    assert_eq!(judgement.agreement, Agreement::Undefined);
    assert!(!judgement.single());
}

#[test]
fn a_lost_process_is_neither_agreement_nor_disagreement() {
    let lost = |report: &mut Report| report.ranks[1].ended = Ended::Lost { why: "signal 9".to_owned() };
    let judgement = judged(&window("WIN-2 kept"), lost);
    let why = "the process of rank 1 was lost: signal 9".to_owned();
    assert_eq!(judgement.agreement, Agreement::NotComparable(why));
}

const OPTION_A: &str = "specs/systems/sglang-20153-shared-pool/option_a.star";

/// Two runs of a program that differ in nondeterministic values.
fn two_runs(predictions: &Predictions) -> (&Prediction, &Prediction) {
    let first = &predictions.runs[0];
    let other = predictions.runs.iter().find(|run| run.endings != first.endings);
    (first, other.expect("a value decides"))
}

#[test]
fn values_that_are_not_as_forced_are_followed() {
    let predictions = predictions_of(OPTION_A, "b: hash order, equal sizes", 2, CommHistory::Fresh);
    let (first, other) = two_runs(&predictions);
    let judgement = compare(&predictions, &first.forced, &played(&predictions, other));
    assert_eq!(judgement.agreement, Agreement::AgreesOtherwise);
}

#[test]
fn an_answer_that_no_run_has_is_a_difference_at_its_question() {
    let predictions = predictions_of(OPTION_A, "b: hash order, equal sizes", 2, CommHistory::Fresh);
    differs(
        &predictions,
        |report| report.ranks[0].answers.entry(0).or_default()[0] = 9,
        &["rank 0 at ", "answer 9"],
    );
}

#[test]
fn a_digest_is_of_what_is_recorded_and_not_of_the_text() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("digests");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let digest = |name: &str, body: &str| {
        let path = folder.join(format!("{name}.star"));
        let text = format!("{body}\ncheck(\"c\", program, ranks = 2, expect = holds())\n");
        std::fs::write(&path, text).expect("a file can be written");
        predictions_of(path.to_str().expect("an ASCII path"), "c", 2, CommHistory::Fresh).digest
    };
    let program = "def program(r):\n    c = r.comm(\"c\", r.world)\n    x = r.mem_alloc(\"x\", 4 * MiB)\n    c.all_reduce(x)\n";
    let plain = digest("plain", program);
    assert_eq!(plain, digest("commented", &format!("# A comment.\n\n{program}")));
    assert_ne!(plain, digest("longer", &program.replace("4 * MiB", "8 * MiB")));
    assert_ne!(plain, digest("renamed", &program.replace("\"x\"", "\"y\"")));
}
