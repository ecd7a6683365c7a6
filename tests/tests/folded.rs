//! What is found in a recorded run does not depend on folding.
//!
//! The judge of these laws is the plainest there is: every call that concerns others waits for them, and what
//! meets is compared. It says who never gets on, and what met that is not alike, each with its first call.
//! Not here: the rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use rankcheck::runs::fold::{Fold, Folding, fold};
use rankcheck::runs::judge::{self as judging, Judged, Recording, RunVerdict, read, read_folded};
use rankcheck::runs::sequence::{ReadUntil, Sequence, Symbol, read_all};
use rankcheck::runs::world::{RunCommId, World, files};
use rankcheck_model::Rank;
use rankcheck_recording::{Argument, Shape};
use rankcheck_tests::draws::{Draws, wanted};
use rankcheck_tests::edited::{Edit, EditableFile};
use rankcheck_tests::recording::Run;
use rankcheck_tests::repository::enter;
use rankcheck_tests::training::{Change, Divergence, DivergesWith, Sizes, Training};
use rstest::{Context, rstest};

use crate::copies::{left_and_whole, rules};

/// A directory that goes when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("rankcheck-folded-{name}-{}", std::process::id())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // It may never have been made.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Whom a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    Comm(RunCommId),
    Link(RunCommId, Rank, Rank),
}

/// A call that waits for others: of which number, whom for, and what must be alike.
type Step = (u64, Meeting, String);

fn steps(world: &World, at: usize, sequence: &Sequence) -> VecDeque<Step> {
    let member = &world.members[at];
    let mut steps = VecDeque::new();
    for (number, symbol) in sequence.numbered() {
        let (Symbol::Call { call, .. } | Symbol::Never { call, .. }) = symbol else { continue };
        let shape = sequence.shape(call);
        let Some(comm) = shape.get("comm").and_then(Argument::number) else { continue };
        let Some(comm) = member.comm_at(comm, number) else { continue };
        let get = |key: &str| shape.get(key).and_then(Argument::number);
        let peer = || {
            let peer = usize::try_from(get("peer").expect("it is a message")).expect("small");
            world.comm(comm).members[peer].expect("all are recorded")
        };
        let (meeting, name) = match &*shape.name {
            "ncclSend" => (Meeting::Link(comm, member.rank, peer()), "message"),
            "ncclRecv" => (Meeting::Link(comm, peer(), member.rank), "message"),
            name => (Meeting::Comm(comm), name),
        };
        steps.push_back((number, meeting, format!("{name} {:?}", get("count"))));
    }
    steps
}

/// Who never gets on, and what met that is not alike: words, and the first call of each rank.
fn plainly(world: &World, sequences: &[Sequence]) -> Found {
    let mut ranks: BTreeMap<Rank, VecDeque<Step>> = sequences
        .iter()
        .enumerate()
        .map(|(at, sequence)| (world.members[at].rank, steps(world, at, sequence)))
        .collect();
    let mut found: BTreeMap<String, BTreeSet<(Rank, u64)>> = BTreeMap::new();
    let mut moved = true;
    while moved {
        moved = false;
        for rank in ranks.keys().copied().collect::<Vec<_>>() {
            while let Some(&(_, meeting, _)) = ranks[&rank].front() {
                let who: Vec<Rank> = match meeting {
                    Meeting::Comm(comm) => world.comm(comm).members.iter().flatten().copied().collect(),
                    Meeting::Link(_, from, to) => vec![from, to],
                };
                let there = |rank: &Rank| ranks[rank].front().is_some_and(|(_, other, _)| *other == meeting);
                if !who.iter().all(there) {
                    break;
                }
                let met: Vec<(Rank, Step)> = who
                    .iter()
                    .map(|rank| {
                        let steps = ranks.get_mut(rank).expect("a member");
                        (*rank, steps.pop_front().expect("it is there"))
                    })
                    .collect();
                let contents: BTreeSet<&String> = met.iter().map(|(_, (.., content))| content).collect();
                if contents.len() > 1 {
                    let ordinals = met.iter().map(|(rank, (number, ..))| (*rank, *number)).collect();
                    let contents: Vec<&String> = met.iter().map(|(_, (.., content))| content).collect();
                    found.entry(format!("{meeting:?}: {contents:?}")).or_insert(ordinals);
                }
                moved = true;
            }
        }
    }
    for (rank, steps) in ranks {
        if let Some((number, meeting, content)) = steps.front() {
            found.insert(
                format!("{rank:?} waits in {meeting:?}: {content}"),
                BTreeSet::from([(rank, *number)]),
            );
        }
    }
    found
}

/// What a matcher found, in words, and the calls in question.
type Found = BTreeMap<String, BTreeSet<(Rank, u64)>>;

/// Writes a run and judges it whole and folded. Gives the folds, what is left, and what was found.
fn compare(training: &Training, name: &str) -> (Vec<Fold>, f64, Found) {
    let directory = Directory::new(name);
    training.write(&directory.0).expect("the directory for temporary files can be written");
    let (mut world, mut sequences) =
        read_all(&files(&directory.0).expect("they are there"), ReadUntil::End).expect("they are whole");
    let whole = plainly(&world, &sequences);
    let symbols =
        |sequences: &[Sequence]| sequences.iter().map(|sequence| sequence.symbols.len()).sum::<usize>();
    let before = symbols(&sequences);
    let folds = fold(&mut world, &mut sequences, Folding::Iterations).iterations;
    assert_eq!(whole, plainly(&world, &sequences), "{training:?} {folds:?}");
    (folds, symbols(&sequences) as f64 / before as f64, whole)
}

#[test]
fn a_long_run_becomes_a_short_one() {
    let training = Training { iterations: 600, ..Training::default() };
    let (folds, left, found) = compare(&training, "long");
    assert_eq!(folds.len(), 1, "{folds:?}");
    assert_eq!(folds[0].ranks.len(), 8);
    assert!(left < 0.05, "{left}");
    assert!(found.is_empty(), "{found:?}");
    assert!(folds[0].to_string().contains("iterations on ranks 0 to 7 repeat others"), "{}", folds[0]);
}

#[test]
fn a_loop_in_a_loop_is_folded_twice() {
    let training = Training { iterations: 1500, checkpoint: 60, ..Training::default() };
    let (folds, left, _) = compare(&training, "nested");
    assert_eq!(folds.len(), 1, "{folds:?}");
    assert!(left < 0.06, "{left} {folds:?}");
}

#[rstest]
#[case::other_count(Change::OtherCount)]
#[case::once_more(Change::OnceMore)]
#[case::never(Change::Never)]
#[case::no_message(Change::NoMessage)]
#[case::other_order(Change::OtherOrder)]
#[case::no_iteration(Change::NoIteration)]
#[case::killed(Change::Killed)]
fn what_differs_once_is_found_with_its_call(#[context] context: Context, #[case] change: Change) {
    let name = context.description.expect("every case has a name");
    for iteration in [0, 1, 100, 298, 299] {
        let divergence = Some(Divergence { rank: 5, iteration, with: DivergesWith::Nobody, change });
        let training = Training { iterations: 300, divergence, ..Training::default() };
        let (folds, _, found) = compare(&training, &format!("differs-{name}"));
        assert!(!found.is_empty(), "in iteration {iteration}");
        assert!(!folds.is_empty() || iteration <= 1, "in iteration {iteration}");
    }
}

#[test]
fn a_kernel_more_is_no_reason_to_judge_the_rest_again() {
    let divergence = Some(Divergence {
        rank: 3,
        iteration: 150,
        with: DivergesWith::Nobody,
        change: Change::OneKernelMore,
    });
    let training = Training { iterations: 300, divergence, ..Training::default() };
    let (folds, left, found) = compare(&training, "kernel");
    assert_eq!(folds.len(), 1, "{folds:?}");
    assert!(left < 0.2 && found.is_empty(), "{left} {found:?}");
}

#[test]
fn an_order_that_never_repeats_is_not_folded() {
    // No two iterations have the same sizes, and none has a loop in itself.
    let sizes = Sizes::Drawn(1 << 20);
    let training = Training { iterations: 200, sizes, layers: 1, microbatches: 1, ..Training::default() };
    let (folds, left, _) = compare(&training, "drawn");
    assert!(folds.is_empty() && left == 1.0, "{folds:?}");
    // What repeats within an iteration is folded there.
    let training = Training { layers: 1, microbatches: 8, ..training };
    let (folds, left, _) = compare(&training, "drawn-inside");
    assert!(!folds.is_empty() && left > 0.2, "{left} {folds:?}");
}

/// A run; three of four times one rank once does something else.
fn drawn(draws: &mut Draws) -> Training {
    let mut training = Training {
        tensor: 1 + draws.small(2),
        pipeline: 1 + draws.small(3),
        data: 1 + draws.small(2),
        layers: 1 + draws.small(2),
        microbatches: 1 + draws.small(3),
        iterations: 30 + draws.below(120),
        irregular: draws.below(20),
        checkpoint: draws.one(&[0, 0, 3, 7, 12]),
        ..Training::default()
    };
    if draws.below(4) > 0 {
        let change = draws.one(&[
            Change::OtherCount,
            Change::OnceMore,
            Change::Never,
            Change::NoMessage,
            Change::OtherOrder,
            Change::OneKernelMore,
            Change::NoIteration,
            Change::Killed,
        ]);
        let (rank, iteration) = (draws.small(training.ranks()), draws.below(training.iterations));
        training.divergence = Some(Divergence { rank, iteration, with: DivergesWith::Nobody, change });
    }
    training
}

/// A run of which ranks do the same; two of three times some of them do something else once.
fn drawn_copies(draws: &mut Draws) -> Training {
    let mut training = Training {
        tensor: 1 + draws.small(3),
        pipeline: 1 + draws.small(3),
        data: 1 + draws.small(4),
        iterations: 4 + draws.below(8),
        sizes: draws.one(&[Sizes::Fixed, Sizes::Drawn(64)]),
        divergence: None,
        ..drawn(draws)
    };
    if draws.below(3) > 0 {
        let change = draws.one(&[
            Change::OtherCount,
            Change::OnceMore,
            Change::Never,
            Change::NoMessage,
            Change::OtherOrder,
            Change::OneKernelMore,
            Change::NoWait,
            Change::NoWait,
            Change::NoIteration,
            Change::Killed,
        ]);
        let with = draws.one(&[
            DivergesWith::Nobody,
            DivergesWith::Stage,
            DivergesWith::Part,
            DivergesWith::Copy,
            DivergesWith::Everybody,
        ]);
        let (rank, iteration) = (draws.small(training.ranks()), draws.below(training.iterations));
        training.divergence = Some(Divergence { rank, iteration, with, change });
    }
    training
}

#[test]
fn folded_and_whole_agree() {
    let runs = wanted("RANKCHECK_RUNS").unwrap_or(60);
    let mut draws = Draws(wanted("RANKCHECK_SEED").unwrap_or(1));
    let (mut folded, mut differ) = (0, 0);
    for run in 0..runs {
        let (folds, _, found) = compare(&drawn(&mut draws), &format!("law-{run}"));
        folded += usize::from(!folds.is_empty());
        differ += usize::from(!found.is_empty());
    }
    println!("{runs} runs, {folded} folded, {differ} with findings");
    assert!(folded as u64 * 2 > runs && differ as u64 * 4 > runs, "{folded} folded, {differ} with findings");
}

/// Ranks that do what others do are left out, and what is left is judged alone: it holds if the whole does, and breaks the same
/// rules.
#[test]
fn copies_are_judged_like_the_whole() {
    let runs = wanted("RANKCHECK_RUNS").unwrap_or(150);
    let mut draws = Draws(wanted("RANKCHECK_SEED").unwrap_or(5));
    let (mut folded, mut wrong) = (0, 0);
    let mut broken = BTreeSet::new();
    for run in 0..runs {
        let training = drawn_copies(&mut draws);
        let directory = Directory::new(&format!("copies-{run}"));
        training.write(&directory.0).expect("the directory for temporary files can be written");
        let (left, whole) = left_and_whole(&directory.0);
        assert_eq!(rules(&left), rules(&whole), "{training:?}\n{:?}", left.recording.folded.copies);
        assert_eq!(left.went_well(), whole.went_well(), "{training:?}");
        let copies = !left.recording.folded.copies.is_empty();
        folded += u64::from(copies);
        wrong += u64::from(copies && whole.verdict != RunVerdict::Holds);
        broken.extend(rules(&whole).1.into_iter().filter(|_| copies));
    }
    println!("{runs} runs, {folded} with copies, {wrong} of these do not hold: {broken:?}");
    assert!(folded * 2 > runs && wrong * 8 > runs, "{folded} with copies, {wrong} do not hold");
}

/// The second all-reduce waits for ever, so the copy races with the first as well.
#[test]
fn what_never_runs_takes_no_place() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (one, other) = (process.init(1, rank, 2), process.init(2, rank, 2));
        let (buffer, copied) = (process.malloc(1 << 16), process.malloc(1 << 16));
        let (stream, beside) = (process.stream(), process.stream());
        // The first use of a communicator would stop the host.
        process.all_reduce(other, copied, 1024, stream);
        process.synchronize(stream);
        process.all_reduce(one, buffer, 1024, stream);
        if rank == 0 {
            process.all_reduce(other, buffer, 1024, stream);
            process.copy(copied, buffer, 64, beside);
        }
    });
    run.exit();
    let saved = run.save("takes-no-place");
    let [folded, whole] = [Folding::Iterations, Folding::Nothing].map(|folding| {
        let judged = judging::judge(read_folded(&saved.folder, folding).expect("it is a run"), None);
        says(&judged.expect("it is not too long"))
    });
    assert_eq!(folded, whole);
    assert!(whole.iter().any(|sentence| sentence.starts_with("Mem2")), "{whole:?}");
}

/// What is wrong with a run and where its ranks diverge.
fn says(judged: &Judged) -> Vec<String> {
    let findings = judged.findings.iter().map(|finding| format!("{:?}: {}", finding.rule, finding.sentence));
    let divergences = judged.divergences.iter().map(|divergence| divergence.sentence(&judged.recording));
    let mut sentences: Vec<String> = findings.chain(divergences).collect();
    sentences.sort();
    sentences
}

/// All that a judged recording says of the run.
fn says_all(recording: Recording) -> (RunVerdict, Vec<String>) {
    let judged = judging::judge(recording, None).expect("it is not too long");
    let mut sentences = says(&judged);
    sentences.extend(judged.standing.iter().map(|standing| standing.text.clone()));
    sentences.sort();
    (judged.verdict, sentences)
}

#[test]
fn the_rules_find_the_same_folded_and_whole() {
    let runs = wanted("RANKCHECK_RUNS").unwrap_or(20);
    let mut draws = Draws(wanted("RANKCHECK_SEED").unwrap_or(2));
    let (mut folded, mut fail) = (0, 0);
    for run in 0..runs {
        let training = drawn(&mut draws);
        let directory = Directory::new(&format!("rules-{run}"));
        training.write(&directory.0).expect("the directory for temporary files can be written");
        let recording = read(&directory.0).expect("it is a run");
        folded += u64::from(!recording.folded.iterations.is_empty());
        let found = says_all(recording);
        fail += u64::from(found.0 == RunVerdict::Fails);
        assert_eq!(
            found,
            says_all(read_folded(&directory.0, Folding::Nothing).expect("it is a run")),
            "{training:?}"
        );
    }
    println!("{runs} runs, {folded} folded, {fail} fail");
    assert!(folded * 2 > runs && fail * 4 > runs, "{folded} folded, {fail} fail");
}

/// What a judged recording says, but for where ranks stand: of polls it is only sometimes left that the host got by.
fn found(recording: Recording) -> (RunVerdict, Vec<String>) {
    let judged = judging::judge(recording, None).expect("it is not too long");
    (judged.verdict, says(&judged))
}

/// Folders of recorded training, or of what `RANKCHECK_RECORDINGS` names.
fn recorded_loops() -> Vec<PathBuf> {
    match std::env::var("RANKCHECK_RECORDINGS") {
        Ok(folders) => folders.split(':').map(PathBuf::from).collect(),
        Err(_) => TRAINING.iter().map(|name| enter().join("tests/recordings/training").join(name)).collect(),
    }
}

/// What `tests/recordings/training.py` did on two GPUs, eager and compiled.
const TRAINING: [&str; 6] =
    ["ddp", "ddp-compiled", "fsdp2", "fsdp2-compiled", "pipeline", "pipeline-compiled"];

#[test]
fn recorded_training_is_folded() {
    for folder in recorded_loops() {
        let recording = read(&folder).expect("it is a run");
        let calls: u64 = recording.program.ranks.iter().map(|rank| rank.calls).sum();
        let folded: u64 = recording.folded.iterations.iter().map(|fold| fold.calls).sum();
        let what = format!("{}: {folded} of {calls}", folder.display());
        assert!(calls > 2 * 20_000 && folded * 100 >= calls * 95, "{what}");
        let judged = found(recording);
        assert_eq!(judged.0, RunVerdict::Holds, "{what}");
        assert_eq!(judged, found(read_folded(&folder, Folding::Nothing).expect("it is a run")), "{what}");
    }
}

/// Where a call is that is changed.
#[derive(Debug, Clone, Copy)]
enum Zone {
    Middle,
    Edge,
    Last,
}

/// The number of a call in a zone: an iteration begins with a call that comes as often as there are iterations.
fn call_in(zone: Zone, file: &EditableFile, draws: &mut Draws) -> usize {
    let mut of_shape: BTreeMap<(&str, Option<&str>), Vec<usize>> = BTreeMap::new();
    for (nth, shape) in file.calls().enumerate() {
        let place = shape.get("place").and_then(Argument::text);
        of_shape.entry((&shape.name, place)).or_default().push(nth);
    }
    let loops = of_shape.values().filter(|calls| calls.len() >= 20);
    let edges = loops.min_by_key(|calls| calls.len()).expect("the run has a loop");
    let at = draws.below(edges.len() as u64 - 2) as usize;
    let within = |from: usize, to: usize, draws: &mut Draws| from + draws.below((to - from) as u64) as usize;
    match zone {
        Zone::Middle => within(edges[at], edges[at + 1], draws),
        Zone::Edge => edges[at + 1].saturating_sub(draws.below(3) as usize),
        Zone::Last => within(edges[edges.len() - 2], file.calls().count() - 1, draws),
    }
}

/// What is changed in a call of this shape.
fn drawn_edit(shape: &Shape, file: &EditableFile, draws: &mut Draws) -> Edit {
    let movable = ["event", "stream", "send", "recv", "address", "to", "from"];
    let mut keys = movable.into_iter().filter(|key| shape.get(key).is_some());
    match (draws.below(4), keys.next()) {
        (0, _) => Edit::LeaveOut,
        (1, _) => Edit::Double,
        (2, _) | (_, None) => Edit::SwapWithNext,
        (_, Some(first)) => {
            let key = draws.one(&keys.chain([first]).collect::<Vec<_>>());
            let values: BTreeSet<u64> =
                file.calls().filter_map(|other| other.get(key).and_then(Argument::number)).collect();
            let values: Vec<u64> = values.into_iter().collect();
            Edit::Argument { key, value: draws.one(&values) }
        }
    }
}

#[test]
fn recorded_loops_with_one_call_changed_are_judged_alike() {
    let changes = wanted("RANKCHECK_RUNS").unwrap_or(2);
    let mut draws = Draws(wanted("RANKCHECK_SEED").unwrap_or(3));
    let (mut judged, mut other, mut folded) = (0, 0, 0);
    let mut differ = Vec::new();
    for folder in recorded_loops() {
        let paths = files(&folder).expect("the recording is there");
        let originals: Vec<EditableFile> =
            paths.iter().map(|path| EditableFile::read(path).expect("it is whole")).collect();
        let plain = found(read(&folder).expect("it is a run"));
        for change in 0..changes {
            let zone = draws.one(&[Zone::Middle, Zone::Edge, Zone::Last]);
            let rank = draws.below(originals.len() as u64) as usize;
            // Most calls launch kernels, of which nothing follows: those that concern others are drawn as often.
            let wanted = draws.one(&["nccl", "nccl", "Event", "Event", "Stream", "Memcpy", ""]);
            let mut call = || {
                let nth = call_in(zone, &originals[rank], &mut draws);
                (nth, originals[rank].calls().nth(nth).expect("it was drawn").clone())
            };
            let mut drawn = (0..50).map(|_| call());
            let first = drawn.find(|(_, shape)| shape.name.contains(wanted));
            let (nth, shape) = first.unwrap_or_else(call);
            let edit = drawn_edit(&shape, &originals[rank], &mut draws);
            let same = |other: &Shape| other.name == shape.name;
            let before = originals[rank].calls().take(nth).filter(|other| same(other)).count();
            let everywhere = draws.below(3) == 0;
            let directory = Directory::new(&format!("changed-{change}"));
            std::fs::create_dir_all(&directory.0).expect("the directory for temporary files can be written");
            for (at, original) in originals.iter().enumerate() {
                let mut file = original.clone();
                let of_rank = file.calls().enumerate().filter(|(_, other)| same(other)).nth(before);
                let at_call =
                    if at == rank { Some(nth) } else { of_rank.map(|(nth, _)| nth).filter(|_| everywhere) };
                at_call.map(|nth| file.edit(nth, &edit));
                file.write(&directory.0.join(format!("rank{at}.rankrec")));
            }
            let recording = read(&directory.0).expect("it is a run");
            folded += usize::from(!recording.folded.iterations.is_empty());
            let judged_folded = found(recording);
            let whole = found(read_folded(&directory.0, Folding::Nothing).expect("it is a run"));
            let what = format!(
                "{}: {zone:?} call {nth} ({}) of rank {rank}: {edit:?}, all {everywhere}",
                folder.display(),
                shape.name
            );
            if judged_folded != whole {
                if let Some(kept_in) = std::env::var_os("RANKCHECK_KEEP") {
                    let name = format!("{}-{change}", folder.file_name().unwrap_or_default().display());
                    std::fs::rename(&directory.0, PathBuf::from(kept_in).join(name))
                        .expect("the folder is there");
                }
                differ.push(format!("{what}\n  folded {judged_folded:?}\n  whole  {whole:?}"));
            }
            other += usize::from(judged_folded != plain);
            judged += 1;
        }
    }
    println!("{judged} changed runs, {folded} folded, {other} judged otherwise than the run itself");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
