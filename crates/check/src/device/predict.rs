//! What the model predicts for one program on one platform: a set of runs, each with the answers to force.
//!
//! Not here: whether a device did it ([`mod@super::compare`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::machine::{Connections, FaultOf, InFlight, Logged, MemoryId, Owner};
use rankcheck_model::{
    Choice, Config, Dtype, Ending, Explain, Machine, Nondet, Outcome, Platform, Rank, Source, SourceError,
    State, Thread,
};
use rankcheck_real::case::{At, CommHistory, Forced, NondetValue, SegmentName};

use super::digest::{DigestBuilder, printed};
use crate::search::changed::distinct;
use crate::search::explore::explore_alone;
use crate::search::verdict;
use crate::search::{BoundHit, Bounds};
use crate::spec::{Assumption, Check, Param, Spec, SpecError};

/// Runs of one program that are tried on a device.
pub const TRIED_AT_MOST: usize = 12;

/// States after which a prediction is given up.
const STATES: u64 = 200_000;

/// A program, and where it is run.
#[derive(Debug, Clone, Copy)]
pub struct PredictionQuery<'a> {
    /// The spec that the program comes from.
    pub spec: &'a Spec,
    /// One of its checks.
    pub check: &'a Check,
    /// How many ranks run the program.
    pub ranks: u32,
    /// Names and values of the check's parameters.
    pub params: &'a [(String, Param)],
    /// What is known of the NCCL version.
    pub platform: Platform,
    /// New or used communicators.
    pub comms: CommHistory,
}

/// In which element type the contents of buffers are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComparedType {
    /// In this one, which all collectives of the program have; f32 if there are none.
    Of(Dtype),
    /// In none, for this reason.
    None(String),
}

impl ComparedType {
    /// The type that buffers are filled and reported in.
    #[must_use]
    pub fn filled(&self) -> Dtype {
        match self {
            Self::Of(dtype) => *dtype,
            Self::None(_) => Dtype::F32,
        }
    }
}

/// One run that the model predicts.
#[derive(Debug, Clone)]
pub struct Prediction {
    /// The choices that lead to it.
    pub choices: Arc<[Choice]>,
    /// How the run ends.
    pub outcome: Outcome,
    /// How each rank ends.
    pub endings: Vec<Ending>,
    /// Whether somebody specifies what follows from the operations of the run.
    pub defined: Defined,
    /// The nondeterminism of it.
    pub forced: Forced,
}

/// Whether a run's end is specified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defined {
    /// Somebody specifies what follows every operation.
    Yes,
    /// Nobody specifies what follows some operation: every end agrees with it.
    No,
}

/// What the model predicts for a program.
pub struct Predictions {
    /// How many ranks run the program.
    pub ranks: u32,
    /// Parameters, as they print.
    pub params: Vec<(String, String)>,
    /// What the predictions rest on.
    pub platform: Platform,
    /// New or used communicators.
    pub comms: CommHistory,
    /// How contents are compared.
    pub element: ComparedType,
    /// Digest of the program.
    pub digest: String,
    /// The runs to try, those with the fewest choices first, one for each distinct outcome.
    pub runs: Vec<Prediction>,
    /// Distinct outcomes, tried or not.
    pub outcomes: usize,
    /// The bound that cut the exploration short.
    pub bound: Option<BoundHit>,
    pub(super) source: Arc<dyn Source>,
    pub(super) config: Config,
}

impl std::fmt::Debug for Predictions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Predictions")
            .field("digest", &self.digest)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

/// Predicts what the ranks of a program do.
///
/// # Errors
/// If the spec is bad.
pub fn predict(question: &PredictionQuery<'_>) -> Result<Predictions, SpecError> {
    let PredictionQuery { spec, check, ranks, params, platform, comms } = *question;
    let source: Arc<dyn Source> = Arc::new(check.source(ranks, params, &check.assume)?);
    let source = distinct(&source);
    // Who runs ranks on devices ends none of them for another.
    let (mut assume, launcher) = (check.assume.clone(), Assumption::JobEndsWithARank);
    assume.retain(|assumption| *assumption != launcher);
    let config = verdict::config(check, ranks, platform, &assume);
    predicted(source, config, &printed(params), comms).map_err(|error| spec.diagnose(&error))
}

/// Predicts what the ranks of a program do that need not be a check.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn predicted(
    source: Arc<dyn Source>,
    config: Config,
    params: &[(String, String)],
    comms: CommHistory,
) -> Result<Predictions, SourceError> {
    let connections = match comms {
        CommHistory::Fresh => Connections::OnFirstUse,
        CommHistory::Warm => Connections::Made,
    };
    let config = Config { connections, in_flight: InFlight::OfPlatform, ..config };
    let bounds = Bounds { states: STATES, merge_from: u64::MAX, ..Bounds::default() };
    let exploration = explore_alone(&source, config, &bounds)?;
    let config = exploration.config.clone();
    let outcomes = exploration.outcomes.len();
    let mut witnesses: Vec<_> = exploration.outcomes.into_iter().collect();
    witnesses.sort_by(|(a, v), (b, w)| (v.len(), a).cmp(&(w.len(), b)));
    witnesses.truncate(TRIED_AT_MOST);
    let mut digest = DigestBuilder::of(config.ranks, params, config.platform, comms);
    let mut ended = Vec::new();
    for (_, choices) in witnesses {
        let machine = Machine::new(Arc::clone(&source), config.clone());
        let (state, forced) = follow(&machine, &choices);
        digest.add(&machine, &state)?;
        ended.push((machine, state, forced, choices));
    }
    let element = element(&digest.dtypes());
    let runs = ended
        .into_iter()
        .map(|(machine, state, forced, choices)| prediction(&machine, state, forced, choices, &element))
        .collect();
    Ok(Predictions {
        ranks: config.ranks,
        params: params.to_vec(),
        platform: config.platform,
        comms,
        element,
        digest: digest.digest(),
        runs,
        outcomes,
        bound: exploration.bound,
        source,
        config,
    })
}

fn prediction(
    machine: &Machine,
    mut state: State,
    mut forced: Forced,
    choices: Arc<[Choice]>,
    element: &ComparedType,
) -> Prediction {
    machine.finish(&mut state);
    let endings = machine.endings(&state, element.filled());
    forced.addresses = endings.iter().map(|end| segments(machine, &end.addresses)).collect();
    let (outcome, defined) = (machine.outcome(&state), defined(machine, &state));
    Prediction { choices, outcome, endings, defined, forced }
}

pub(super) fn defined(machine: &Machine, state: &State) -> Defined {
    if machine.undefined(state) { Defined::No } else { Defined::Yes }
}

/// One element type for the whole run: buffers are filled before anybody knows what reads them.
fn element(dtypes: &[Dtype]) -> ComparedType {
    match dtypes {
        [] => ComparedType::Of(Dtype::F32),
        [one @ (Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64)] => ComparedType::Of(*one),
        [other] => ComparedType::None(format!("no contents are compared in {}", other.name())),
        several => {
            let names: Vec<&str> = several.iter().map(|dtype| dtype.name()).collect();
            ComparedType::None(format!("collectives have several element types: {}", names.join(", ")))
        }
    }
}

/// Takes the choices of a witness, and notes their values and schedules.
fn follow(machine: &Machine, choices: &[Choice]) -> (State, Forced) {
    let mut forced = Forced::default();
    let mut state = machine.init();
    machine.advance(&mut state);
    for choice in choices {
        let before = standing(machine, &state, choice);
        if let Choice::Value(rank, thread, values) = choice {
            let values = nondet_of(machine, &state, *rank, *thread, values);
            forced.nondet.entry(at(machine, &state, *rank, *thread)).or_default().extend(values);
        }
        let turn = turn_of(machine, &state, choice);
        machine.take(&mut state, choice);
        // A poll that was chosen to see what has not come yet does not run now.
        if before != standing(machine, &state, choice) {
            forced.turns.extend(turn);
        }
        machine.advance(&mut state);
    }
    // An operation that is never scheduled in this run must not come first on the device.
    for (rank, r) in (0..machine.config.ranks).map(|rank| (Rank(rank), state.rank(Rank(rank)))) {
        for (thread, t) in (0..).map(Thread).zip(r.threads()) {
            let ready = t.is_ready();
            if ready && t.running() && machine.is_turn(&state, rank, thread) {
                forced.turns.push(at(machine, &state, rank, thread));
            }
        }
    }
    (state, forced)
}

fn standing(machine: &Machine, state: &State, choice: &Choice) -> Option<(u32, bool)> {
    let (Choice::Value(rank, thread, _) | Choice::Thread(rank, thread)) = choice else { return None };
    let t = &state.rank(*rank).threads()[thread.at()];
    Some((machine.next_op(state, *rank, *thread).index, t.is_ready()))
}

/// The operation that a choice schedules, if orders were open.
pub(super) fn turn_of(machine: &Machine, state: &State, choice: &Choice) -> Option<At> {
    let (Choice::Value(rank, thread, _) | Choice::Thread(rank, thread)) = choice else { return None };
    // What a thread that waits for others does next is the return of its call, which nobody can delay.
    let call = Machine::waits_in(state, *rank, *thread).is_none();
    (call && machine.is_turn(state, *rank, *thread)).then(|| at(machine, state, *rank, *thread))
}

pub(super) fn at(machine: &Machine, state: &State, rank: Rank, thread: Thread) -> At {
    At { rank, thread: thread.0, index: machine.next_op(state, rank, thread).index }
}

/// Returns the values of a choice, as cases name them.
pub(super) fn nondet_of(
    machine: &Machine,
    state: &State,
    rank: Rank,
    thread: Thread,
    values: &[u32],
) -> Vec<NondetValue> {
    let values = machine.nondet_of(state, rank, thread, values).into_iter();
    values
        .map(|(of, value)| match of {
            Nondet::Choose(..) => NondetValue::Choose { option: value },
            Nondet::Fault(FaultOf::Death) => NondetValue::Death { dies: value == 1 },
            Nondet::Fault(FaultOf::Alloc | FaultOf::Register | FaultOf::Init) => {
                NondetValue::Fault { fails: value == 1 }
            }
            Nondet::Poll(_) | Nondet::Deferred(_) => NondetValue::Poll { done: value == 1 },
            Nondet::AddressOrder(_) => NondetValue::AddressOrder { position: value },
            Nondet::HashOrder(_) => NondetValue::HashOrder { position: value },
            Nondet::CommOrder(_) => NondetValue::CommOrder { position: value },
            Nondet::AddressReuse => NondetValue::AddressReuse { which: value },
            Nondet::InFlight => NondetValue::InFlight { all: value == 1 },
            Nondet::Serialized => NondetValue::Serialized { all: value == 1 },
            Nondet::Havoc(_) => NondetValue::Havoc { which: value },
        })
        .collect()
}

fn segments(machine: &Machine, addresses: &[MemoryId]) -> Vec<SegmentName> {
    let name = |memory: &MemoryId| match memory.owner {
        Owner::Pool(token) | Owner::Program(token) => {
            SegmentName { owner: machine.name(token).to_string(), nth: memory.nth }
        }
    };
    addresses.iter().map(name).collect()
}

impl Predictions {
    /// The operations of a run, in the order in which the model does them.
    pub(super) fn log(&self, choices: &[Choice]) -> (Machine, Vec<Logged>) {
        let config = Config { explain: Explain::Yes, ..self.config.clone() };
        let machine = Machine::new(Arc::clone(&self.source), config);
        let (state, _) = follow(&machine, choices);
        machine.log_blocked(&state);
        let log = machine.log();
        (machine, log)
    }

    /// The run of these choices, in original rank numbers, which must be possible.
    #[must_use]
    pub fn of_choices(&self, choices: Arc<[Choice]>) -> Prediction {
        let machine = Machine::new(Arc::clone(&self.source), self.config.clone());
        let (state, forced) = follow(&machine, &choices);
        prediction(&machine, state, forced, choices, &self.element)
    }

    /// Where the forced answers of a run stand among the runs to try.
    #[must_use]
    pub fn run_of(&self, forced: &Forced) -> Option<&Prediction> {
        self.runs.iter().find(|run| run.forced == *forced)
    }

    /// How often each class of outcome is predicted, for people.
    #[must_use]
    pub fn classes(&self) -> String {
        let mut classes: BTreeMap<_, usize> = BTreeMap::new();
        for run in &self.runs {
            *classes.entry(run.outcome.class).or_default() += 1;
        }
        let texts: Vec<String> = classes
            .into_iter()
            .map(|(class, count)| if count == 1 { class.to_string() } else { format!("{class} ×{count}") })
            .collect();
        texts.join(", ")
    }
}
