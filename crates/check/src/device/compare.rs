//! Whether a device did what the model predicts, and where the two diverge.
//!
//! The model walks along the answers that the device gave: choices that contradict a value or an answer are not
//! taken. What is left are the ends that the model has for these answers. The device agrees if its end is among
//! them. Every element of every buffer that a rank holds takes part: values by how often each stands.
//! Not here: what is predicted ([`mod@super::predict`]), and where reports come from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rankcheck_model::machine::{HeldBuffer, Logged, StuckThread, Waits};
use rankcheck_model::number::{Run, STRIPE_BYTES};
use rankcheck_model::{Choice, Class, Ending, Machine, Rank, RankOutcome, State, Thread};
use rankcheck_real::case::{At, CallFailed, Ended, Forced, Held, NondetValue, RankReport, Report};

use super::predict::{ComparedType, Defined, Prediction, Predictions, at, defined, nondet_of, turn_of};

/// States after which a walk along a device's answers is given up.
const STATES: usize = 20_000;
/// Ends of a walk that are compared.
const ENDS: usize = 256;

/// Whether a report fits the predictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agreement {
    /// The forced answers were taken, and the run ended as predicted for them.
    Agrees,
    /// The device took other values than those forced, and the run ended as predicted for these.
    AgreesOtherwise,
    /// Nobody specifies how the run ends.
    Undefined,
    /// The device did something that the model does not have.
    Disagrees(Difference),
    /// Nothing can be said, for this reason.
    NotComparable(String),
}

/// An agreement, and how much it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the report fits.
    pub agreement: Agreement,
    /// How many outcomes the model has for the answers that the device gave. Only one is a prediction.
    pub outcomes: usize,
    /// The class of the outcome that was seen, where the report agrees with a specified one.
    pub class: Option<Class>,
}

impl Judgement {
    fn without_class(agreement: Agreement, outcomes: usize) -> Self {
        Self { agreement, outcomes, class: None }
    }

    /// Whether one specified outcome was predicted, and no other.
    #[must_use]
    pub fn single(&self) -> bool {
        self.outcomes == 1 && matches!(self.agreement, Agreement::Agrees | Agreement::AgreesOtherwise)
    }
}

/// The first event at which model and device diverge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where: rank, operation, location.
    pub at: String,
    /// What the model says.
    pub model: String,
    /// What the device did.
    pub device: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the model says {}; the device: {}", self.at, self.model, self.device)
    }
}

/// A difference before it is known which comes first.
#[derive(Debug)]
struct Mismatch {
    rank: Rank,
    site: Site,
    model: String,
    device: String,
}

/// Where rank and model diverge.
#[derive(Debug)]
enum Site {
    /// At an operation or question.
    Op(Thread, u32),
    /// At the n-th question of a thread.
    Question(Thread, usize),
    /// At a call of the model that is displayed so.
    Call(String),
    /// When everything is over.
    End(String),
}

/// An end of the model's walk along a device's answers.
struct Walked {
    prediction: Prediction,
    mismatches: Vec<Mismatch>,
}

/// Compares what a device did with what is predicted, given what was forced.
#[must_use]
pub fn compare(predictions: &Predictions, forced: &Forced, report: &Report) -> Judgement {
    if report.ranks.len() != predictions.ranks as usize {
        let why = format!("{} of {} ranks reported", report.ranks.len(), predictions.ranks);
        return Judgement::without_class(Agreement::NotComparable(why), 0);
    }
    let taken = taken_as_forced(report);
    let mut differing = None;
    for assumed in [Some(forced), None] {
        let (ends, cut) = walk(predictions, assumed, report);
        match judge(&ends, cut) {
            Some(mut judgement) => {
                let as_told = taken && assumed.is_some();
                if judgement.agreement == Agreement::Agrees && !as_told {
                    judgement.agreement = Agreement::AgreesOtherwise;
                }
                return judgement;
            }
            None => differing = differing.or_else(|| ends.into_iter().next()),
        }
    }
    // Our own failure to do the work, or a crash: nobody can say here which.
    let lost = report.ranks.iter().zip(0..).find_map(|(rank, nth): (_, u32)| match &rank.ended {
        Ended::Lost { why } => Some(format!("the process of rank {nth} was lost: {why}")),
        Ended::Finishes
        | Ended::HostHang { .. }
        | Ended::GpuHang { .. }
        | Ended::Dead { .. }
        | Ended::Broken { .. } => None,
    });
    if let Some(why) = lost {
        return Judgement::without_class(Agreement::NotComparable(why), 0);
    }
    let outcomes = usize::from(differing.is_some());
    let agreement = match differing.or_else(|| unreached(predictions, forced, report)) {
        Some(end) => Agreement::Disagrees(first(predictions, &end)),
        None => Agreement::NotComparable("no run of the model has the picks of the device".to_owned()),
    };
    Judgement::without_class(agreement, outcomes)
}

/// The best that the ends of a walk say; nothing if all differ from what the device did.
fn judge(ends: &[Walked], cut: Option<String>) -> Option<Judgement> {
    let outcomes: BTreeSet<_> = ends.iter().map(|end| &end.prediction.outcome).collect();
    let unspecified = ends.iter().any(|end| end.prediction.defined == Defined::No);
    let matches = |end: &Walked| end.mismatches.is_empty() && end.prediction.defined == Defined::Yes;
    // Where some end is unspecified, every outcome is predicted.
    let count = if unspecified || cut.is_some() { usize::MAX } else { outcomes.len() };
    if let Some(end) = ends.iter().find(|end| matches(end)) {
        let class = Some(end.prediction.outcome.class);
        return Some(Judgement { agreement: Agreement::Agrees, outcomes: count, class });
    }
    if unspecified {
        return Some(Judgement::without_class(Agreement::Undefined, count));
    }
    cut.map(|why| Judgement::without_class(Agreement::NotComparable(why), count))
}

/// No run of the model gives the device's answers: where the forced one diverges from them.
fn unreached(predictions: &Predictions, forced: &Forced, report: &Report) -> Option<Walked> {
    let prediction = predictions.run_of(forced).or(predictions.runs.first())?.clone();
    let mut mismatches = Vec::new();
    for ((ending, seen), rank) in prediction.endings.iter().zip(&report.ranks).zip((0..).map(Rank)) {
        for (thread, answers) in ending.answers.iter().enumerate() {
            let number = u32::try_from(thread).expect("few threads");
            let given = seen.answers.get(&number).map_or(&[][..], Vec::as_slice);
            if let Some(nth) = answers.iter().zip(given).position(|(model, device)| model != device) {
                mismatches.push(Mismatch {
                    rank,
                    site: Site::Question(Thread(number), nth),
                    model: format!("answer {}", answers[nth]),
                    device: format!("answer {}", given[nth]),
                });
            }
        }
        mismatches.extend(rank_mismatches(predictions, ending, seen, rank));
    }
    // Values that no run has leave no trace in what ranks did.
    (!mismatches.is_empty()).then_some(Walked { prediction, mismatches })
}

/// Whether the values are those that were forced, as far as ranks noticed.
fn taken_as_forced(report: &Report) -> bool {
    let mut taken = report.ranks.iter().flat_map(|rank| &rank.taken);
    taken.all(|taken| taken.wanted.as_ref().is_none_or(|wanted| *wanted == taken.value))
}

/// The ends of all runs that fit the answers of a report, and why some may be missing.
fn walk(
    predictions: &Predictions,
    assumed: Option<&Forced>,
    report: &Report,
) -> (Vec<Walked>, Option<String>) {
    let machine = Machine::new(Arc::clone(&predictions.source), predictions.config.clone());
    let mut first = machine.init();
    machine.advance(&mut first);
    let mut open = vec![(first, Vec::<Choice>::new(), 0)];
    let (mut ends, mut states) = (Vec::new(), 0);
    while let Some((state, choices, turns)) = open.pop() {
        states += 1;
        if states > STATES || ends.len() >= ENDS {
            return (ends, Some("too many runs of the model fit the answers of the device".to_owned()));
        }
        if !fits_answers(&machine, &state, report) {
            continue;
        }
        let possible = machine.choices(&state);
        if possible.is_empty() {
            if !machine.infeasible(&state) {
                ends.push(ended(predictions, &machine, state, choices, report));
            }
            continue;
        }
        for choice in possible.into_iter().rev() {
            let turn = turn_of(&machine, &state, &choice);
            if !fits_picks(&machine, &state, &choice, assumed, report) {
                continue;
            }
            let wanted = assumed.and_then(|forced| forced.turns.get(turns));
            if let (Some(wanted), Some(turn)) = (wanted, turn)
                && *wanted != turn
            {
                continue;
            }
            let mut next = state.clone();
            machine.take(&mut next, &choice);
            machine.advance(&mut next);
            let mut longer = choices.clone();
            longer.push(choice);
            open.push((next, longer, turns + usize::from(turn.is_some())));
        }
    }
    // A program that showed something new about its objects on the way was explored without it.
    let cut = machine.interrupted().then(|| "the device went where the exploration did not".to_owned());
    (ends, cut)
}

fn ended(
    predictions: &Predictions,
    machine: &Machine,
    mut state: State,
    choices: Vec<Choice>,
    report: &Report,
) -> Walked {
    machine.finish(&mut state);
    let endings = machine.endings(&state, predictions.element.filled());
    let pairs = endings.iter().zip(&report.ranks).zip((0..).map(Rank));
    let mismatches =
        pairs.flat_map(|((end, seen), rank)| rank_mismatches(predictions, end, seen, rank)).collect();
    let (outcome, defined) = (machine.outcome(&state), defined(machine, &state));
    let prediction =
        Prediction { choices: choices.into(), outcome, endings, defined, forced: Forced::default() };
    Walked { prediction, mismatches }
}

/// Whether no thread was answered otherwise than on the device, as far as both came.
fn fits_answers(machine: &Machine, state: &State, report: &Report) -> bool {
    report.ranks.iter().zip((0..machine.config.ranks).map(Rank)).all(|(seen, rank)| {
        seen.answers.iter().all(|(thread, given)| {
            let Some(thread) = state.rank(rank).threads().get(*thread as usize) else { return true };
            thread.answers().iter().zip(given).all(|(model, device)| model == device)
        })
    })
}

/// Whether a choice has the values of the device there; what it does not tell is taken as it was forced.
fn fits_picks(
    machine: &Machine,
    state: &State,
    choice: &Choice,
    assumed: Option<&Forced>,
    report: &Report,
) -> bool {
    let Choice::Value(rank, thread, values) = choice else { return true };
    let at: At = at(machine, state, *rank, *thread);
    let values = nondet_of(machine, state, *rank, *thread, values);
    let told = report.ranks[rank.at()].taken.iter().filter(|taken| taken.at == at).map(|taken| &taken.value);
    let mut told = told.collect::<Vec<_>>().into_iter();
    let mut wanted = assumed.and_then(|forced| forced.nondet.get(&at)).into_iter().flatten();
    let kind = |value: &NondetValue| std::mem::discriminant(value);
    values.iter().all(|value| {
        // Devices tell of values that are none in the model too: a call that cannot fail there did not fail.
        let mut rest = told.clone();
        let wanted = wanted.next();
        match rest.find(|told| kind(told) == kind(value)) {
            Some(device) => {
                told = rest;
                device == value
            }
            None => wanted.is_none_or(|wanted| wanted == value),
        }
    })
}

fn rank_mismatches(
    predictions: &Predictions,
    model: &Ending,
    device: &RankReport,
    rank: Rank,
) -> Vec<Mismatch> {
    let mut mismatches = error_mismatches(model, device, rank);
    mismatches.extend(end_mismatch(model, device, rank));
    let finished = model.how == RankOutcome::Finishes && device.ended == Ended::Finishes;
    if finished && matches!(predictions.element, ComparedType::Of(_)) {
        let element_bytes = predictions.element.filled().len_bytes();
        mismatches.extend(content_mismatches(model, device, rank, element_bytes));
    }
    mismatches
}

/// Calls that return errors on one side only; threads may run in any order.
fn error_mismatches(model: &Ending, device: &RankReport, rank: Rank) -> Vec<Mismatch> {
    let mut expected = model.errors.clone();
    let mut surplus: Vec<&CallFailed> = Vec::new();
    for failed in &device.errors {
        match expected.iter().position(|e| *e.call == *failed.call && e.code == failed.code) {
            Some(at) => drop(expected.remove(at)),
            None => surplus.push(failed),
        }
    }
    let mut mismatches = Vec::new();
    for failed in surplus {
        let model = match expected.iter().position(|e| *e.call == *failed.call) {
            Some(at) => format!("that it returns {}", expected.remove(at).code),
            None => "that it succeeds".to_owned(),
        };
        let detail = failed.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
        mismatches.push(Mismatch {
            rank,
            site: Site::Op(Thread(failed.thread), failed.index),
            model,
            device: format!("{} returns {}{detail}", failed.call, failed.code),
        });
    }
    mismatches.extend(expected.into_iter().map(|error| Mismatch {
        rank,
        site: Site::Call(error.call.to_string()),
        model: format!("that {} returns {}", error.call, error.code),
        device: "it returned no such error".to_owned(),
    }));
    mismatches
}

fn end_mismatch(model: &Ending, device: &RankReport, rank: Rank) -> Option<Mismatch> {
    let says = model_text(model);
    let seen = device_text(&device.ended);
    let stuck = model.inside.first().map(|stuck| Site::Op(stuck.thread, stuck.index));
    let head = model.undrained.first().map(|stream| Site::Op(stream.head.thread, stream.head.index));
    let model_site = || stuck.or(head).unwrap_or_else(|| Site::End(String::new()));
    let mismatch = |site| Some(Mismatch { rank, site, model: says.clone(), device: seen.clone() });
    match (&model.how, &device.ended) {
        (RankOutcome::Finishes, Ended::Finishes) => None,
        (RankOutcome::Dead(why), Ended::Dead { message }) if **why == **message => None,
        (_, Ended::HostHang { inside }) => {
            let among = |thread: u32, index: u32| {
                model.inside.iter().any(|stuck| (stuck.thread.0, stuck.index) == (thread, index))
            };
            match inside.iter().find(|(thread, index, _)| !among(*thread, *index)) {
                Some((thread, index, _)) => mismatch(Site::Op(Thread(*thread), *index)),
                None if inside.is_empty() => mismatch(model_site()),
                None => None,
            }
        }
        (RankOutcome::GpuHang(_) | RankOutcome::HostHang(_), Ended::GpuHang { streams }) => {
            if model.inside.iter().any(|stuck| stuck.waits == Waits::Host) {
                return mismatch(model_site());
            }
            let wrong = streams.iter().find(|(name, head)| {
                !model.undrained.iter().any(|stuck| {
                    let here = (stuck.head.thread.0, stuck.head.index);
                    *stuck.name == **name && head.is_none_or(|head| head == here)
                })
            });
            match wrong {
                Some((_, Some((thread, index)))) => mismatch(Site::Op(Thread(*thread), *index)),
                Some((_, None)) => mismatch(model_site()),
                None if streams.is_empty() => mismatch(model_site()),
                None => None,
            }
        }
        (_, Ended::GpuHang { streams }) => {
            let head = streams.iter().find_map(|(_, head)| *head);
            mismatch(head.map_or_else(model_site, |(thread, index)| Site::Op(Thread(thread), index)))
        }
        (_, Ended::Finishes | Ended::Dead { .. } | Ended::Broken { .. } | Ended::Lost { .. }) => {
            mismatch(model_site())
        }
    }
}

fn model_text(model: &Ending) -> String {
    let inside = |stuck: &StuckThread| stuck.call.clone();
    match &model.how {
        RankOutcome::Finishes => "that the rank finishes".to_owned(),
        RankOutcome::Dead(why) => format!("that the rank dies: {why}"),
        RankOutcome::Undefined => "nothing, because nobody specifies it".to_owned(),
        RankOutcome::GpuHang(what) => format!("that {what} never ends"),
        RankOutcome::HostHang(_) => {
            let calls: Vec<String> = model.inside.iter().map(inside).collect();
            format!("that the host never comes out of {}", calls.join(", "))
        }
    }
}

/// How a rank ended on a device, for people.
#[must_use]
pub fn device_text(ended: &Ended) -> String {
    match ended {
        Ended::Finishes => "the rank finishes".to_owned(),
        Ended::HostHang { inside } => {
            let calls: Vec<&str> = inside.iter().map(|(.., call)| call.as_str()).collect();
            format!("the host never comes out of {}", calls.join(", "))
        }
        Ended::GpuHang { streams } => {
            let names: Vec<&str> = streams.iter().map(|(name, _)| name.as_str()).collect();
            format!("stream {} never drains", names.join(", "))
        }
        Ended::Dead { message } => format!("the rank dies: {message}"),
        Ended::Broken { code } => format!("CUDA error {code}, and no call works after it"),
        Ended::Lost { why } => format!("the process was lost: {why}"),
    }
}

fn content_mismatches(model: &Ending, device: &RankReport, rank: Rank, element_bytes: u64) -> Vec<Mismatch> {
    let slot = |held: &Held| (held.thread, held.slot);
    let mut mismatches = Vec::new();
    let mut mismatch = |name: &str, model: String, device: String| {
        mismatches.push(Mismatch { rank, site: Site::End(name.to_owned()), model, device });
    };
    for buffer in &model.held {
        match device.held.iter().find(|held| slot(held) == (buffer.thread.0, buffer.slot)) {
            None => mismatch(&buffer.name, "that the rank still has it".to_owned(), "it does not".to_owned()),
            Some(held) => {
                if let Some((model, device)) = contents_differ(buffer, held, element_bytes) {
                    mismatch(&buffer.name, model, device);
                }
            }
        }
    }
    for held in &device.held {
        if !model.held.iter().any(|buffer| slot(held) == (buffer.thread.0, buffer.slot)) {
            mismatch(&held.name, "that the rank no longer has it".to_owned(), "it does".to_owned());
        }
    }
    mismatches
}

/// Values with how many elements hold each, and by how many that may be off.
fn expected(runs: &[Run], element_bytes: u64) -> BTreeMap<u64, (f64, u64, u64)> {
    let mut values: BTreeMap<u64, (f64, u64, u64)> = BTreeMap::new();
    for run in runs {
        let elements = run.len_bytes / element_bytes;
        let shares = run.shares.len() as u64;
        // Shares are equal where stripes come out even; else one has a stripe more than another.
        let even = run.len_bytes.is_multiple_of(shares * STRIPE_BYTES) || shares == 1;
        let slack = if even { 0 } else { STRIPE_BYTES / element_bytes };
        for share in &run.shares {
            let value = values.entry(share.to_bits()).or_insert((*share, 0, 0));
            value.1 += elements / shares;
            value.2 += slack;
        }
    }
    values
}

/// Both sides, for people, if the elements are not those expected.
fn contents_differ(model: &HeldBuffer, device: &Held, element_bytes: u64) -> Option<(String, String)> {
    let elements = model.len_bytes / element_bytes;
    if elements != device.elements {
        return Some((format!("{elements} elements"), format!("{} elements", device.elements)));
    }
    let expected = expected(model.numbers.as_ref()?, element_bytes);
    let says = || {
        let values: Vec<String> =
            expected.values().map(|(value, count, _)| format!("{value} ×{count}")).collect();
        values.join(", ")
    };
    for (value, count, first) in &device.values {
        let wanted = expected.get(&value.to_bits());
        if wanted.is_none_or(|(_, wanted, slack)| count.abs_diff(*wanted) > *slack) {
            return Some((says(), format!("{value} ×{count}, first at element {first}")));
        }
    }
    let missing = expected.values().find(|(value, ..)| !device.values.iter().any(|(v, ..)| v == value));
    if let Some((value, ..)) = missing {
        return Some((says(), format!("{value} in no element")));
    }
    let counted: u64 = device.values.iter().map(|(_, count, _)| count).sum();
    (counted != elements).then(|| (says(), format!("{} distinct values", device.distinct)))
}

/// The mismatch that comes first in the run of the model.
fn first(predictions: &Predictions, end: &Walked) -> Difference {
    let (machine, log) = predictions.log(&end.prediction.choices);
    let loc = |logged: &Logged| {
        let loc = machine.loc(&logged.op);
        let file = loc.file.rsplit('/').next().unwrap_or(&loc.file).to_owned();
        format!("rank {} at {} ({file}:{})", logged.op.rank.0, logged.text, loc.line)
    };
    let find = |mismatch: &Mismatch| -> Option<usize> {
        let of_rank = |logged: &&(usize, &Logged)| logged.1.op.rank == mismatch.rank;
        let rows: Vec<(usize, &Logged)> = log.iter().enumerate().collect();
        let mut rows = rows.iter().filter(of_rank);
        let row = match &mismatch.site {
            Site::Op(thread, index) => rows.find(|(_, l)| (l.op.thread, l.op.index) == (*thread, *index)),
            Site::Question(thread, nth) => rows.filter(|(_, l)| l.asks && l.op.thread == *thread).nth(*nth),
            Site::Call(call) => rows.find(|(_, l)| l.text.starts_with(call.as_str())),
            Site::End(_) => None,
        };
        row.map(|(at, _)| *at)
    };
    let (at, mismatch) = end
        .mismatches
        .iter()
        .map(|mismatch| (find(mismatch), mismatch))
        .min_by_key(|(at, _)| at.unwrap_or(usize::MAX))
        .expect("an end that differs has a mismatch");
    let at_text = match (at, &mismatch.site) {
        (Some(at), _) => loc(&log[at]),
        (None, Site::End(name)) if !name.is_empty() => format!("rank {} at the end, {name}", mismatch.rank.0),
        (None, Site::Op(thread, index)) => {
            format!(
                "rank {} at operation {index} of thread {}, which the model does not reach",
                mismatch.rank.0, thread.0
            )
        }
        (None, Site::End(_) | Site::Call(_) | Site::Question(..)) => {
            format!("rank {} at the end", mismatch.rank.0)
        }
    };
    Difference { at: at_text, model: mismatch.model.clone(), device: mismatch.device.clone() }
}
