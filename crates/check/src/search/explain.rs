//! The run that shows a finding: replayed with words, and cut down to what matters.
//!
//! Operations are named only if leaving either of them out changes the verdict; that is tried, not guessed.
//! Not here: layout.

use std::collections::BTreeSet;
use std::sync::Arc;

use rankcheck_model::machine::{Expectations, Kind, Logged};
use rankcheck_model::{
    Choice, Class, Config, Data, Explain, Finding, Machine, Mode, OpRef, Outcome, Rank, RankOutcome, Rule,
    Source, SourceError, Thread,
};

use super::explore::{Distinct, Exploration, Witness};
use super::verdict::{Options, Verdict, explored};

/// A choice of a run, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Rank.
    pub rank: Rank,
    /// Thread.
    pub thread: Thread,
    /// The operation or question at which luck had a say.
    pub op: OpRef,
    /// What it was about, for example `this allocation fails`.
    pub text: String,
    /// Whether luck picked, or only an order was chosen.
    pub picked: bool,
}

/// A replayed run.
pub struct Replay {
    /// What luck did.
    pub steps: Vec<Step>,
    /// The operations and questions, in the order in which this run did them.
    pub log: Vec<Logged>,
    /// The findings, with sentences.
    pub findings: Vec<Finding>,
    /// How it ends.
    pub outcome: Outcome,
    /// The machine, for names and places.
    pub machine: Machine,
}

/// Why a replay does not fit the program.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program cannot be evaluated.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// A recorded choice is not among those possible now.
    #[error("choice {nth} of the trace no longer fits: {recorded}; possible here: {possible}")]
    Misfit {
        /// Position, from 1.
        nth: usize,
        /// What was recorded.
        recorded: String,
        /// What could be done instead.
        possible: String,
    },
}

/// Replays choices, in original rank numbers.
///
/// # Errors
/// If a choice does not fit.
pub fn replay(source: &Arc<dyn Source>, config: &Config, choices: &[Choice]) -> Result<Replay, ReplayError> {
    let config = Config { explain: Explain::Yes, ..config.clone() };
    let reduced = config.mode == Mode::Reduced;
    let machine = Machine::new(Arc::clone(source), config);
    let mut state = machine.init();
    if reduced {
        machine.advance(&mut state);
    }
    let mut steps = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        match choice {
            Choice::Pick(rank, thread, picks) => {
                let about = machine.picks_of(&state, *rank, *thread, picks);
                if about.is_empty() {
                    let recorded = format!("rank {} thread {} picks {picks:?}", rank.0, thread.0);
                    let possible = format!("{} other choices", machine.choices(&state).len());
                    return Err(ReplayError::Misfit { nth: at + 1, recorded, possible });
                }
                let op = machine.next_op(&state, *rank, *thread);
                for (of, pick) in about {
                    let text = machine.pick_name(&of, pick);
                    steps.push(Step { rank: *rank, thread: *thread, op, text, picked: true });
                }
            }
            // Without reduction every step is a choice; only what luck picks is worth telling.
            Choice::Thread(..) if !reduced => {}
            Choice::Thread(rank, thread) => {
                let op = machine.next_op(&state, *rank, *thread);
                let name = machine.next_name(&state, *rank, *thread);
                // A call that waits for other ranks runs in two parts.
                let text = match Machine::waits_in(&state, *rank, *thread) {
                    Some(_) => format!("{name} returns first"),
                    None => format!("{name} goes first"),
                };
                steps.push(Step { rank: *rank, thread: *thread, op, text, picked: false });
            }
            Choice::Stream(rank, stream) if reduced => {
                if let Some((op, name)) = machine.head(&state, *rank, *stream) {
                    let text = format!("{name} goes first");
                    steps.push(Step { rank: *rank, thread: op.thread, op, text, picked: false });
                }
            }
            Choice::Stream(..) | Choice::Transfer(_) | Choice::Meet(_) => {}
        }
        machine.take(&mut state, choice);
        if reduced {
            machine.advance(&mut state);
        }
    }
    // A trace that ends before the run does shows nothing.
    let open = if reduced { machine.choices(&state) } else { Vec::new() };
    let stands = match open.first() {
        Some(Choice::Pick(rank, thread, _) | Choice::Thread(rank, thread)) => {
            Some((rank, machine.next_name(&state, *rank, *thread)))
        }
        Some(Choice::Stream(rank, stream)) => {
            machine.head(&state, *rank, *stream).map(|(_, name)| (rank, name))
        }
        Some(Choice::Transfer(_) | Choice::Meet(_)) | None => None,
    };
    if let Some((rank, at)) = stands {
        return Err(ReplayError::Misfit {
            nth: choices.len() + 1,
            recorded: "the end of the trace".to_owned(),
            possible: format!("rank {} stands at {at}", rank.0),
        });
    }
    machine.log_blocked(&state);
    if let Some(rankcheck_model::Interruption::Source(error)) = machine.interruption() {
        return Err(error.into());
    }
    machine.finish(&mut state);
    let outcome = machine.outcome(&state);
    let findings = state.findings().values().map(|finding| Finding::clone(finding)).collect();
    Ok(Replay { steps, log: machine.log(), findings, outcome, machine })
}

/// A failing run, explained.
pub struct Explanation {
    /// The run.
    pub replay: Replay,
    /// The finding of the rule that is explained.
    pub finding: Finding,
    /// Two operations without either of which the verdict is another, the blocked or failing one first.
    pub named: Vec<OpRef>,
    /// Operations of the run that the lanes show, by rank.
    pub lanes: Vec<(Rank, Vec<Logged>)>,
    /// Operations of the whole run.
    pub operations: usize,
}

/// Explains how a rule is broken, by its witness.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explain(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    rule: Rule,
    witness: &Witness,
    options: &Options,
) -> Result<Option<Explanation>, ReplayError> {
    let replay = replay(source, &exploration.config, &witness.choices)?;
    let Some(finding) = replay.findings.iter().find(|finding| finding.rule == rule).cloned() else {
        return Ok(None);
    };
    let named = named(source, exploration, &replay, &finding, options)?;
    let lanes = lanes(&replay, &finding, &named, exploration.config.ranks);
    let operations = replay.log.iter().filter(|logged| !logged.asks).count();
    Ok(Some(Explanation { replay, finding, named, lanes, operations }))
}

/// What a program does, as far as leaving an operation out may change it: the verdict, and how runs end.
///
/// Expectations are left out, because no device does them, unless one of them is what is broken. Ranks are told apart,
/// because a rank that leaves something out is.
pub struct Baseline {
    source: Arc<dyn Source>,
    config: Config,
    seen: Seen,
}

/// What can be seen of an exploration.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    verdict: Verdict,
    ends: BTreeSet<End>,
}

/// An end of a run, without what buffers hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    findings: BTreeSet<(Rule, Arc<str>)>,
    ranks: Vec<RankOutcome>,
    class: Class,
    undefined: bool,
}

impl Seen {
    fn of(exploration: &Exploration) -> Self {
        let end = |outcome: &Outcome| End {
            findings: outcome.findings.clone(),
            ranks: outcome.ranks.clone(),
            class: outcome.class,
            undefined: outcome.data == Data::Undefined,
        };
        Self { verdict: Verdict::of(exploration), ends: exploration.outcomes.keys().map(end).collect() }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.ends.iter().any(|end| end.findings.iter().any(|(broken, _)| *broken == rule))
    }
}

impl Baseline {
    /// What a program that breaks a rule is compared with.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn of(
        source: &Arc<dyn Source>,
        config: &Config,
        rule: Rule,
        options: &Options,
    ) -> Result<Self, SourceError> {
        let source: Arc<dyn Source> = Arc::new(Distinct(Arc::clone(source)));
        let bare = Config { expectations: Expectations::LeftOut, ..config.clone() };
        let seen = Seen::of(&explored(&source, bare.clone(), options)?);
        if seen.breaks(rule) {
            return Ok(Self { source, config: bare, seen });
        }
        let seen = Seen::of(&explored(&source, config.clone(), options)?);
        Ok(Self { source, config: config.clone(), seen })
    }

    /// Whether leaving an operation out changes what can be seen. An expectation is left out wherever its line
    /// states it.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn needs(&self, op: &OpRef, kind: Kind, options: &Options) -> Result<bool, SourceError> {
        let mut config = self.config.clone();
        if kind == Kind::Expectation {
            config.expectations = Expectations::LeftOutAt(op.place);
        } else {
            config.left_out.insert((op.rank, op.thread, op.index));
        }
        Ok(Seen::of(&explored(&self.source, config, options)?) != self.seen)
    }
}

/// The kind of a logged operation, if it was one.
fn kind(log: &[Logged], op: &OpRef) -> Option<Kind> {
    // Locks that the pool takes for its hooks are nobody's operation.
    let nameable = |l: &&Logged| same(&l.op, op) && !l.asks && !l.text.contains("allocator's lock");
    log.iter().find(nameable).map(|logged| logged.kind)
}

fn same(a: &OpRef, b: &OpRef) -> bool {
    (a.rank, a.thread, a.index) == (b.rank, b.thread, b.index)
}

fn named(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    replay: &Replay,
    finding: &Finding,
    options: &Options,
) -> Result<Vec<OpRef>, ReplayError> {
    /// Candidates tried.
    const TRIED_AT_MOST: usize = 24;
    let baseline = Baseline::of(source, &exploration.config, finding.rule, options)?;
    let mut named: Vec<OpRef> = Vec::new();
    let mut tried: BTreeSet<OpRef> = BTreeSet::new();
    let mut consider = |op: &OpRef, named: &mut Vec<OpRef>| -> Result<(), SourceError> {
        if let Some(kind) = kind(&replay.log, op)
            && tried.len() < TRIED_AT_MOST
            && tried.insert(*op)
            && baseline.needs(op, kind, options)?
        {
            named.push(*op);
        }
        Ok(())
    };
    for op in &finding.ops {
        if named.len() < 2 {
            consider(op, &mut named)?;
        }
    }
    // Where luck decided, then what came last before it.
    let picked = replay.steps.iter().filter(|step| step.picked).map(|step| step.op);
    let others: Vec<OpRef> = picked.chain(replay.log.iter().rev().map(|logged| logged.op)).collect();
    let kept = |op: &OpRef| kind(&replay.log, op).is_some_and(|kind| kind != Kind::Bookkeeping);
    let elsewhere = |op: &OpRef, named: &[OpRef]| named.first().is_none_or(|first| first.rank != op.rank);
    // Preferably on another rank, and nothing that only the program remembers.
    type Wanted<'a> = &'a dyn Fn(&OpRef, &[OpRef]) -> bool;
    let wanted: [Wanted<'_>; 3] =
        [&|op, named| kept(op) && elsewhere(op, named), &|op, _| kept(op), &|_, _| true];
    for wanted in wanted {
        for op in &others {
            if named.len() < 2 && wanted(op, &named) {
                consider(op, &mut named)?;
            }
        }
    }
    Ok(named)
}

/// The operations that a reader needs: on the ranks of the finding, what touches others, and what is named.
fn lanes(replay: &Replay, finding: &Finding, named: &[OpRef], ranks: u32) -> Vec<(Rank, Vec<Logged>)> {
    let mut shown: BTreeSet<Rank> = finding.ops.iter().chain(named).map(|op| op.rank).collect();
    for rank in 0..ranks.min(2) {
        if shown.len() < 2 {
            shown.insert(Rank(rank));
        }
    }
    let visible = |logged: &Logged| {
        let name = |op: &OpRef| (op.rank, op.thread, op.index);
        let is = name(&logged.op);
        named.iter().any(|op| name(op) == is)
            || finding.ops.iter().any(|op| name(op) == is)
            || logged.kind != Kind::Bookkeeping
    };
    shown
        .into_iter()
        .take(4)
        .map(|rank| {
            let of = replay.log.iter().filter(|logged| logged.op.rank == rank && visible(logged));
            (rank, of.cloned().collect())
        })
        .collect()
}
