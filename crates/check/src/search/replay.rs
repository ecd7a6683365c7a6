//! One run of a program, in words: what was decided in it, what its ranks did, which rules it breaks, how it ends.
//!
//! A run is a list of choices; only this module takes them one after another in words.
//! Not here: which of its operations matter ([`super::explain`]), and choices that are kept in a file
//! ([`crate::trace`]).

use std::sync::Arc;

use rankcheck_model::history::{self, History};
use rankcheck_model::machine::{Awaited, Kind, OpAhead, Standing};
use rankcheck_model::snapshot::MemoryChange;
use rankcheck_model::{
    Choice, Config, Explain, Interruption, Loc, Machine, Mode, Op, OpRef, Outcome, Rank, Rule, Slot, Source,
    SourceError, State, Thread,
};

/// An operation, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Rank, thread and position in the run.
    pub op: OpRef,
    /// Where it is written.
    pub loc: Loc,
}

impl Located {
    pub(crate) fn new(machine: &Machine, op: OpRef) -> Self {
        Self { op, loc: machine.loc(&op) }
    }

    /// Whether both are one operation of the run.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        same(&self.op, &other.op)
    }
}

/// Whether both name one operation of a run, wherever it is written.
fn same(a: &OpRef, b: &OpRef) -> bool {
    (a.rank, a.thread, a.index) == (b.rank, b.thread, b.index)
}

/// A choice of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The operation or question that it is about.
    pub at: Located,
    /// The operation or question in words.
    pub op: String,
    /// The stream whose head goes first; none for a choice of a host thread.
    pub stream: Option<String>,
    /// Which values were taken, or that this one goes first.
    pub decided: Decided,
}

/// What a choice decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// Values that nobody determines.
    Values {
        /// As numbers, one for each value that the operation leaves open.
        values: Vec<u32>,
        /// In words, for example `this allocation fails`.
        words: Vec<String>,
    },
    /// Which of several operations goes first, in words.
    Order(String),
}

/// An operation or question of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The operation or question, and where it is written.
    pub at: Located,
    /// In the spec's names.
    pub text: String,
    /// The same with the operands that tell it from a call that is otherwise the same.
    pub call: String,
    /// Whether it is a question.
    pub asks: bool,
    /// What it is to a reader.
    pub kind: Kind,
    /// The stream that it names; none for what the host does alone.
    pub stream: Option<String>,
}

/// Where a step of a run was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// On a host thread of a rank.
    Thread(Rank, Thread),
    /// On the stream of a rank that has this name.
    Stream(Rank, String),
}

/// One step of one lane: an operation or question of a host thread, or the work that an operation left on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The operation; of work that a graph replays, the one that was captured.
    pub at: Located,
    /// The launch of the graph that replays it.
    pub replayed_by: Option<Located>,
    /// Where it was taken.
    pub lane: Lane,
}

/// An operation that is not over when nothing can run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The operation; in a group, the call that waits.
    pub at: Located,
    /// The thread or stream that it blocks.
    pub lane: Lane,
    /// What it waits in, as in `in the set-up of tp`.
    pub text: String,
    /// The operations, blocked too, that it waits for.
    pub waits_for: Vec<Located>,
    /// Ranks that it waits for in vain: they exited, or go on somewhere else.
    pub waits_in_vain_for: Vec<Rank>,
}

/// A rule that a run breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    /// The rule that the operations break.
    pub rule: Rule,
    /// On what, in words.
    pub about: String,
    /// The rank whose operations alone break it; none where several ranks do it together.
    pub by: Option<Rank>,
    /// The operations that break it together, the blocked or failing one first.
    pub ops: Vec<Located>,
    /// How many operations are in its causal past.
    pub past: u64,
    /// One sentence, in the spec's names.
    pub sentence: String,
}

/// A run, replayed and put into words: what was decided, what was done, what is broken, and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The choices that were taken, in their order.
    pub decisions: Vec<Decision>,
    /// The operations and questions in the order in which this run did them, those last that it is blocked in.
    pub operations: Vec<Operation>,
    /// The rules that it breaks.
    pub broken: Vec<BrokenRule>,
    /// How the run ends for each rank, and what buffers hold.
    pub outcome: Outcome,
    /// The steps of all lanes, in the order in which this run took them.
    pub steps: Vec<Step>,
    /// Steps that met, in a rendezvous, a collective or a transfer: each a set of positions in `steps`.
    pub meetings: Vec<Vec<usize>>,
    /// Which step is ordered after which, the earlier one first, as positions in `steps`. What follows from the order
    /// within a lane, from a rendezvous or from other pairs is not listed.
    pub order: Vec<(usize, usize)>,
    /// How memory changed, in the order of the steps; empty unless the run was replayed with [`Explain::Memory`].
    pub memory: Vec<MemoryChange>,
    /// What is blocked at the end.
    pub blocked: Vec<Blocked>,
    /// What host threads that are blocked would do next, as far as that is known, in words.
    pub ahead: Vec<Ahead>,
}

/// An operation that a blocked thread does not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The operation, and where it is written.
    pub at: Located,
    /// The operation as the program has it.
    pub op: Op,
    /// In the spec's names.
    pub text: String,
    /// Whether another operation may use its result.
    pub used: bool,
}

impl Replayed {
    /// The operation that is meant, if the run came by it.
    #[must_use]
    pub fn operation(&self, at: &Located) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.at.is(at))
    }

    /// The operations that an operation met: the same rendezvous, collective or transfer on other ranks.
    #[must_use]
    pub fn partners(&self, at: &Located) -> Vec<&Located> {
        let steps =
            |meeting: &Vec<usize>| meeting.iter().map(|step| &self.steps[*step].at).collect::<Vec<_>>();
        let met = self.meetings.iter().map(steps).filter(|met| met.iter().any(|other| other.is(at)));
        let mut partners: Vec<&Located> = Vec::new();
        for other in met.flatten() {
            if !other.is(at) && !partners.iter().any(|known| known.is(other)) {
                partners.push(other);
            }
        }
        partners
    }

    /// How an operation is blocked at the end of the run, if it is.
    #[must_use]
    pub fn blocked_at(&self, at: &Located) -> Option<&Blocked> {
        self.blocked.iter().find(|blocked| blocked.at.is(at))
    }
}

/// Why a list of choices is no run of a program.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program cannot be evaluated.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// A choice is not among those possible now.
    #[error("choice {nth} of the trace no longer fits: {recorded}; possible here: {possible}")]
    Misfit {
        /// Position of the choice among those of the trace, from 1.
        nth: usize,
        /// The choice that the trace has, in words.
        recorded: String,
        /// What could be done instead.
        possible: String,
    },
}

/// Takes choices, in original rank numbers, and tells the run; what memory holds after each step only where the
/// configuration asks for it.
///
/// # Errors
/// If a choice does not fit, or the run is not over with the last one.
pub fn replay(
    source: &Arc<dyn Source>,
    config: &Config,
    choices: &[Choice],
) -> Result<Replayed, ReplayError> {
    let explain = match config.explain {
        Explain::Memory => Explain::Memory,
        Explain::No | Explain::Sentences | Explain::Yes => Explain::Yes,
    };
    let config = Config { explain, ..config.clone() };
    let reduced = config.mode == Mode::Reduced;
    let machine = Machine::new(Arc::clone(source), config);
    let mut state = machine.init();
    if reduced {
        machine.advance(&mut state);
    }
    let mut decisions = Vec::new();
    for (nth, choice) in (1..).zip(choices) {
        // Without reduction every step is a choice; only open values are worth telling.
        if reduced || matches!(choice, Choice::Value(..)) {
            decisions.extend(decision(&machine, &state, choice, nth)?);
        }
        machine.take(&mut state, choice);
        if reduced {
            machine.advance(&mut state);
        }
    }
    if reduced {
        ended(&machine, &state, choices.len())?;
    }
    machine.log_blocked(&state);
    if let Some(Interruption::Source(error)) = machine.interruption() {
        return Err(error.into());
    }
    let ahead = ahead(&machine, &state);
    Ok(Replayed { decisions, ahead, ..over(&machine, &mut state) })
}

/// A run that is over, in words; without its decisions, and without what is ahead of whoever is blocked.
pub(crate) fn over(machine: &Machine, state: &mut State) -> Replayed {
    let blocked = blocked(machine, state);
    let History { moments, meetings, order } = machine.history(state);
    let steps = moments.into_iter().map(|moment| Step {
        at: Located::new(machine, moment.op),
        replayed_by: moment.replay.map(|op| Located::new(machine, op)),
        lane: lane(machine, state, moment.lane),
    });
    let steps = steps.collect();
    let memory = machine.memory_changes(state);
    machine.finish(state);
    let outcome = machine.outcome(state);
    let (operations, broken) = (operations(machine), broken(machine, state));
    let (decisions, ahead) = (Vec::new(), Vec::new());
    Replayed { decisions, operations, broken, outcome, steps, meetings, order, memory, blocked, ahead }
}

fn lane(machine: &Machine, state: &State, lane: history::Lane) -> Lane {
    match lane {
        history::Lane::Thread(rank, thread) => Lane::Thread(rank, thread),
        history::Lane::Stream(rank, stream) => {
            Lane::Stream(rank, machine.stream_name(state, rank, stream).to_string())
        }
    }
}

fn ahead(machine: &Machine, state: &State) -> Vec<Ahead> {
    let mut all = Vec::new();
    for rank in (0..machine.config.ranks).map(Rank) {
        let threads = (0..).map(Thread).zip(state.rank(rank).threads());
        for (thread, _) in threads.filter(|(_, thread)| thread.running()) {
            let used = machine.used_ahead(state, rank, thread);
            all.extend(machine.ahead(state, rank, thread).into_iter().map(
                |OpAhead { at, op, text, produces }| {
                    let is_used = |used: &Vec<Slot>| used.iter().any(|slot| produces.contains(&slot.index));
                    let used = used.as_ref().map_or(!produces.is_empty(), is_used);
                    Ahead { at: Located::new(machine, at), op, text, used }
                },
            ));
        }
    }
    all
}

fn blocked(machine: &Machine, state: &State) -> Vec<Blocked> {
    let standing = machine.standing(state).into_iter();
    standing
        .map(|Standing { op, text, stream, awaits }| {
            let mut waits_for = Vec::new();
            let mut waits_in_vain_for = Vec::new();
            for awaited in awaits {
                match awaited {
                    Awaited::Blocked(other) => waits_for.push(Located::new(machine, other)),
                    Awaited::Ended(rank) | Awaited::Unknown(rank) => waits_in_vain_for.push(rank),
                }
            }
            let on = stream.map_or(history::Lane::Thread(op.rank, op.thread), |stream| {
                history::Lane::Stream(op.rank, stream)
            });
            let (at, lane) = (Located::new(machine, op), lane(machine, state, on));
            Blocked { at, lane, text, waits_for, waits_in_vain_for }
        })
        .collect()
}

fn operations(machine: &Machine) -> Vec<Operation> {
    let operation = |logged: rankcheck_model::machine::Logged| Operation {
        at: Located::new(machine, logged.op),
        text: logged.text,
        call: logged.call,
        asks: logged.asks,
        kind: logged.kind,
        stream: logged.stream.map(|stream| stream.to_string()),
    };
    machine.log().into_iter().map(operation).collect()
}

fn broken(machine: &Machine, state: &State) -> Vec<BrokenRule> {
    machine
        .findings(state)
        .into_iter()
        .map(|(key, finding)| BrokenRule {
            rule: finding.rule,
            about: machine.about(finding.about),
            by: key.by,
            ops: finding.ops.iter().map(|op| Located::new(machine, *op)).collect(),
            past: finding.past,
            sentence: finding.sentence.clone(),
        })
        .collect()
}

/// What is decided by a choice that is possible in this state; nothing for steps that only the unreduced semantics
/// knows.
pub(crate) fn decision(
    machine: &Machine,
    state: &State,
    choice: &Choice,
    nth: usize,
) -> Result<Option<Decision>, ReplayError> {
    let Some(Subject { at, op, stream }) = subject(machine, state, choice) else { return Ok(None) };
    let decided = match choice {
        Choice::Value(rank, thread, values) => {
            let about = machine.nondet_of(state, *rank, *thread, values);
            if about.is_empty() {
                let recorded = format!("rank {} thread {} picks {values:?}", rank.0, thread.0);
                let possible = format!("{} other choices", machine.choices(state).len());
                return Err(ReplayError::Misfit { nth, recorded, possible });
            }
            let words = about.iter().map(|(of, value)| machine.nondet_name(of, *value)).collect();
            Decided::Values { values: values.clone(), words }
        }
        // A call that waits for other ranks runs in two parts.
        Choice::Thread(rank, thread) if Machine::waits_in(state, *rank, *thread).is_some() => {
            Decided::Order(format!("{op} returns first"))
        }
        Choice::Thread(..) | Choice::Stream(..) | Choice::Transfer(_) | Choice::Meet(_) => {
            Decided::Order(format!("{op} goes first"))
        }
    };
    Ok(Some(Decision { at, op, stream, decided }))
}

/// What a choice is about, whether it is possible or not.
pub(crate) struct Subject {
    /// The operation or question.
    pub(crate) at: Located,
    /// The operation or question in words.
    pub(crate) op: String,
    /// The stream at whose head it stands; none for a choice of a host thread.
    pub(crate) stream: Option<String>,
}

/// What a choice of a thread or stream is about that exists in this state.
pub(crate) fn subject(machine: &Machine, state: &State, choice: &Choice) -> Option<Subject> {
    match choice {
        Choice::Value(rank, thread, _) | Choice::Thread(rank, thread) => Some(Subject {
            at: Located::new(machine, machine.next_op(state, *rank, *thread)),
            op: machine.next_name(state, *rank, *thread),
            stream: None,
        }),
        Choice::Stream(rank, stream) => {
            let (head, op) = machine.head(state, *rank, *stream)?;
            let stream = machine.stream_name(state, *rank, *stream).to_string();
            Some(Subject { at: Located::new(machine, head), op, stream: Some(stream) })
        }
        Choice::Transfer(_) | Choice::Meet(_) => None,
    }
}

/// A list of choices that ends before the run does shows nothing.
fn ended(machine: &Machine, state: &State, taken: usize) -> Result<(), ReplayError> {
    let stands = match machine.choices(state).first() {
        Some(Choice::Value(rank, thread, _) | Choice::Thread(rank, thread)) => {
            Some((*rank, machine.next_name(state, *rank, *thread)))
        }
        Some(Choice::Stream(rank, stream)) => {
            machine.head(state, *rank, *stream).map(|(_, name)| (*rank, name))
        }
        Some(Choice::Transfer(_) | Choice::Meet(_)) | None => None,
    };
    let Some((rank, at)) = stands else { return Ok(()) };
    Err(ReplayError::Misfit {
        nth: taken + 1,
        recorded: "the end of the trace".to_owned(),
        possible: format!("rank {} stands at {at}", rank.0),
    })
}
