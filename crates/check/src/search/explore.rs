//! Explores every choice of a program: the only file that names stateright.
//!
//! A state is what [`Machine::advance`] leaves; a transition is one choice. A program without choices is one
//! state. Finding a contended object restarts the exploration with it. stateright does breadth-first search,
//! so the first witness of a rule has the fewest choices; the verdict is made here, from what complete runs
//! left, because stateright's own "pass" also stands for runs that a bound cut short.
//! Not here: what the choices mean, and what was expected.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rankcheck_model::machine::{Costs, Executed};
use rankcheck_model::{
    Choice, Config, FindingKey, Interruption, Loc, Machine, Mode, Nondet, Outcome, Rank, Rule, Source,
    SourceError, State, Symmetry, Token,
};
use stateright::{Checker, Model, Property};

use super::memory;
use super::predict::DecidedRun;

/// Whether somebody wants no more of a search: whoever keeps a clone may say so while it goes on.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Ends all searches that have this within their bounds, soon.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for StopRequest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StopRequest {}

/// Bounds of an exploration. A bound that is hit makes the verdict unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// How many states are kept at most.
    pub states: u64,
    /// Choices in one run.
    pub choices: u32,
    /// Wall time of the exploration; none for no bound.
    pub time: Option<Duration>,
    /// Operations of one run between two choices.
    pub steps: u64,
    /// Bytes that the process may hold. Of several searches in one process, the largest gives up.
    pub memory: Option<u64>,
    /// Whether it was interrupted.
    pub stop: StopRequest,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            states: 20_000_000,
            choices: 10_000,
            time: None,
            steps: 2_000_000_000,
            memory: memory::share(),
            stop: StopRequest::default(),
        }
    }
}

/// A bound that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundHit {
    /// More states than allowed.
    States(u64),
    /// A run with more choices than allowed.
    Choices(u32),
    /// More time than allowed.
    Time(Duration),
    /// A run with more operations than allowed.
    Steps(u64),
    /// More bytes than the process may hold.
    Memory(u64),
    /// Somebody wanted no more of it, after so many states.
    Interrupted(u64),
}

impl std::fmt::Display for BoundHit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::States(states) => write!(f, "stopped at {states} states (--max-states)"),
            Self::Choices(choices) => {
                write!(f, "stopped at {choices} choices in a run (--max-choices)")
            }
            Self::Time(time) => write!(f, "stopped after {} s (--max-seconds)", time.as_secs_f64()),
            Self::Steps(steps) => write!(f, "stopped at {steps} operations in a run (--max-steps)"),
            Self::Memory(bytes) => write!(f, "stopped at {} (--max-memory)", Size(*bytes)),
            Self::Interrupted(1) => write!(f, "interrupted after 1 state"),
            Self::Interrupted(states) => write!(f, "interrupted after {states} states"),
        }
    }
}

/// A number of bytes, to two digits after the point.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let Some((unit, shift)) = units.into_iter().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        let hundredths = (u128::from(self.0) * 100) >> shift;
        match hundredths % 100 {
            0 => write!(f, "{} {unit}", hundredths / 100),
            rest => write!(f, "{}.{rest:02} {unit}", hundredths / 100),
        }
    }
}

/// A run that shows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The choices that lead to it, in original rank numbers.
    pub choices: Vec<Choice>,
    /// Operations in the causal past of the finding.
    pub past: u64,
}

/// All that complete runs showed.
#[derive(Debug, Clone)]
pub struct Exploration {
    /// Every outcome, with the first run that led to it. Up to renumbering where ranks are interchangeable.
    pub outcomes: BTreeMap<Outcome, Witness>,
    /// For each rule broken in some run, the best witness: fewest choices, then smallest causal past.
    pub broken: BTreeMap<Rule, Witness>,
    /// How many distinct states were found.
    pub states: u64,
    /// Complete runs, as far as states tell them apart.
    pub executions: u64,
    /// How many operations were executed, over all runs.
    pub steps: u64,
    /// Objects that turned out to be contended, in words.
    pub contended: BTreeSet<String>,
    /// The bound that cut the exploration short.
    pub bound: Option<BoundHit>,
    /// Labels that some run came by.
    pub reached: BTreeSet<String>,
    /// Costs, as maxima over ranks and runs.
    pub costs: Costs,
    /// What was executed of that which a verdict is about, as maxima over ranks and runs.
    pub executed: Executed,
    /// Ranks that executed nothing of the kind in any run.
    pub idle_ranks: BTreeSet<Rank>,
    /// Where, in some run, two ranks use the same buffers in another order, in words.
    pub another_order: Option<String>,
    /// What `r.measure` recorded, as maxima.
    pub measured: BTreeMap<String, i64>,
    /// The configuration that the exploration ended with, for replays.
    pub config: Config,
}

/// What terminal states leave behind.
#[derive(Debug, Default)]
struct Collected {
    outcomes: BTreeMap<Outcome, Witness>,
    broken: BTreeMap<Rule, Witness>,
    executions: u64,
    costs: Costs,
    executed: Executed,
    active: BTreeSet<Rank>,
    /// After how many choices, and in words.
    another_order: Option<(usize, String)>,
    bound: Option<BoundHit>,
}

/// Collects what complete runs show; shared with the naive exploration.
#[derive(Debug)]
pub(crate) struct CompleteRuns {
    collected: Mutex<Collected>,
    states: Arc<AtomicU64>,
    cut: AtomicBool,
    bounds: Bounds,
    started: Instant,
}

/// The numbers of states of the searches that go on in this process: the largest gives up where memory ends.
static SEARCHES: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

fn searches() -> std::sync::MutexGuard<'static, Vec<Arc<AtomicU64>>> {
    SEARCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The states of all searches of this process that are over.
static FINISHED_STATES: AtomicU64 = AtomicU64::new(0);

/// How many states all searches of this process have explored so far.
#[must_use]
pub fn states_so_far() -> u64 {
    let searches = searches();
    let going_on: u64 = searches.iter().map(|states| states.load(Ordering::Relaxed)).sum();
    going_on + FINISHED_STATES.load(Ordering::Relaxed)
}

impl Drop for CompleteRuns {
    fn drop(&mut self) {
        let mut searches = searches();
        FINISHED_STATES.fetch_add(self.states.load(Ordering::Relaxed), Ordering::Relaxed);
        searches.retain(|states| !Arc::ptr_eq(states, &self.states));
    }
}

impl CompleteRuns {
    pub(crate) fn new(bounds: Bounds, started: Instant) -> Self {
        let states = Arc::new(AtomicU64::new(0));
        searches().push(Arc::clone(&states));
        Self { collected: Mutex::default(), states, cut: AtomicBool::new(false), bounds, started }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cut(&self, bound: BoundHit) {
        self.locked().bound.get_or_insert(bound);
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Counts a state; returns whether the exploration may go on from it.
    pub(crate) fn count(&self, choices: u32) -> bool {
        if self.cut.load(Ordering::Relaxed) {
            return false;
        }
        if self.bounds.stop.asked() {
            self.cut(BoundHit::Interrupted(self.states.load(Ordering::Relaxed)));
            return false;
        }
        let states = self.states.fetch_add(1, Ordering::Relaxed) + 1;
        if states > self.bounds.states {
            self.cut(BoundHit::States(self.bounds.states));
            return false;
        }
        if choices > self.bounds.choices {
            self.cut(BoundHit::Choices(self.bounds.choices));
            return false;
        }
        if let Some(time) = self.bounds.time
            && states.is_multiple_of(64)
            && self.started.elapsed() > time
        {
            self.cut(BoundHit::Time(time));
            return false;
        }
        if let Some(limit) = self.bounds.memory
            && states.is_multiple_of(16)
            && self.exhausts(limit)
        {
            self.cut(BoundHit::Memory(limit));
            return false;
        }
        true
    }

    /// Whether the process holds more than it may, and no other search has more states.
    fn exhausts(&self, limit: u64) -> bool {
        let own = self.states.load(Ordering::Relaxed);
        memory::held().is_some_and(|held| held > limit)
            && searches().iter().all(|states| states.load(Ordering::Relaxed) <= own)
    }

    /// A run that is complete.
    pub(crate) fn complete(&self, machine: &Machine, state: &State) {
        machine.contend_blocked(state);
        if machine.interrupted() || machine.infeasible(state) {
            return;
        }
        let mut state = state.clone();
        machine.finish(&mut state);
        let outcome = machine.outcome(&state);
        let another_order = machine.operands_in_another_order(&state);
        let mut collected = self.locked();
        collected.executions += 1;
        if let Some(told) = another_order.map(|told| (state.choices().len(), told))
            && collected.another_order.as_ref().is_none_or(|best| told < *best)
        {
            collected.another_order = Some(told);
        }
        for rank in (0..machine.config.ranks).map(rankcheck_model::Rank) {
            let costs = state.rank(rank).costs();
            collected.costs.raise_to(costs);
            let executed = state.rank(rank).executed();
            collected.executed.raise_to(executed);
            let registered = costs.registrations + costs.registrations_warm_up > 0;
            if *executed != Executed::default() || registered {
                collected.active.insert(rank);
            }
        }
        collected.outcomes.entry(outcome).or_insert_with(|| Witness { choices: state.choices(), past: 0 });
        for (FindingKey { rule, .. }, finding) in state.findings() {
            let better = collected.broken.get(rule).is_none_or(|best| {
                let choices = state.choices().len();
                (choices, finding.past) < (best.choices.len(), best.past)
            });
            if better {
                collected.broken.insert(*rule, Witness { choices: state.choices(), past: finding.past });
            }
        }
    }

    pub(crate) fn exploration(&self, machine: &Machine) -> Exploration {
        let mut collected = self.locked();
        let word = |token: Token| machine.name(token).to_string();
        // Of interchangeable ranks, each does in some run what one does in this.
        let all_alike =
            machine.source.symmetry() == Symmetry::Interchangeable && !collected.active.is_empty();
        let idle = |rank: &Rank| !all_alike && !collected.active.contains(rank);
        let idle_ranks = (0..machine.config.ranks).map(Rank).filter(idle).collect();
        Exploration {
            outcomes: std::mem::take(&mut collected.outcomes),
            broken: std::mem::take(&mut collected.broken),
            states: self.states.load(Ordering::Relaxed),
            executions: collected.executions,
            steps: machine.steps_total(),
            contended: machine.config.contended.iter().map(|object| object_name(machine, *object)).collect(),
            bound: collected.bound.clone(),
            reached: machine.reached().into_iter().map(word).collect(),
            costs: collected.costs,
            executed: collected.executed,
            idle_ranks,
            another_order: collected.another_order.take().map(|(_, told)| told),
            measured: machine.measured().into_iter().map(|(name, value)| (word(name), value)).collect(),
            config: machine.config.clone(),
        }
    }
}

fn object_name(machine: &Machine, object: rankcheck_model::Object) -> String {
    use rankcheck_model::ObjectKind as Kind;
    let named = |noun: &str| format!("{noun} {}", machine.name(Token(object.id)));
    match object.kind {
        Kind::StoreKey => named("key"),
        Kind::Flag => named("flag"),
        Kind::Stream if object.id == u32::MAX => "the device".to_owned(),
        Kind::Stream => named("stream"),
        Kind::Event => named("event"),
        Kind::Mutex => named("mutex"),
        Kind::Pool => named("pool"),
        Kind::Map => named("map"),
        Kind::List => named("list"),
        Kind::Hosts => "host barriers".to_owned(),
        Kind::Init => named("init of"),
        Kind::Comm => format!("communicator {}", object.id),
        Kind::Memory => named("memory"),
        Kind::Addresses => "addresses".to_owned(),
        Kind::Graph => named("graph"),
        Kind::Capture => "captures".to_owned(),
    }
}

/// A state in which only choices are left, and how many choices led to it.
#[derive(Debug, Clone)]
struct Settled {
    state: State,
    choices: u32,
    agreed: Arc<SameDecisions>,
}

/// What ranks decided where all are to decide alike: the values of each place and occurrence, and how often each rank
/// decided there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct SameDecisions {
    values: AgreedValues,
    /// By place and original number of the rank.
    counts: DecidedTimes,
}

/// The values of each place and occurrence.
type AgreedValues = BTreeMap<(usize, u32), Vec<u32>>;
/// How often each rank decided in each place.
type DecidedTimes = BTreeMap<(usize, Rank), u32>;

impl Settled {
    /// What ranks agreed on, with the ranks' numbers of this state.
    fn agreed(&self) -> (&AgreedValues, DecidedTimes) {
        let SameDecisions { values, counts } = &*self.agreed;
        let now = counts.iter().map(|((place, rank), count)| ((*place, self.state.now(*rank)), *count));
        (values, now.collect())
    }
}

impl Hash for Settled {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.state.fingerprint());
        if !self.agreed.counts.is_empty() {
            self.agreed().hash(hasher);
        }
    }
}

impl PartialEq for Settled {
    fn eq(&self, other: &Self) -> bool {
        self.state.fingerprint() == other.state.fingerprint()
            && (Arc::ptr_eq(&self.agreed, &other.agreed) || self.agreed() == other.agreed())
    }
}

/// Which choices of a program are left out.
#[derive(Debug, Default)]
struct Restriction {
    /// What is decided already.
    decided: DecidedRun,
    /// Places at which all ranks decide alike.
    alike_at: Vec<Loc>,
}

/// The reduced semantics as stateright sees it.
struct Reduced {
    machine: Arc<Machine>,
    collector: Arc<CompleteRuns>,
    /// Whether ranks were renumbered: then they must have been interchangeable to the end.
    renumbered: Arc<AtomicBool>,
    restriction: Arc<Restriction>,
}

impl Reduced {
    /// The place and the occurrence of a value that ranks agree on, and the rank's original number.
    fn agreement(&self, settled: &Settled, choice: &Choice) -> Option<(usize, u32, Rank)> {
        let Choice::Value(rank, thread, values) = choice else { return None };
        if self.restriction.alike_at.is_empty() {
            return None;
        }
        // Nobody decides that a call fails.
        let nondet = self.machine.nondet_of(&settled.state, *rank, *thread, values);
        if nondet.iter().any(|(of, _)| matches!(of, Nondet::Fault(_))) {
            return None;
        }
        let at = self.machine.loc(&self.machine.next_op(&settled.state, *rank, *thread));
        let place = self.restriction.alike_at.iter().position(|known| *known == at)?;
        let rank = settled.state.original(*rank);
        let nth = settled.agreed.counts.get(&(place, rank)).copied().unwrap_or(0);
        Some((place, nth, rank))
    }

    /// Leaves out values that differ from what another rank decided in the same place.
    fn agree(&self, settled: &Settled, choices: &mut Vec<Choice>) {
        let fits = |choice: &Choice| {
            let (Choice::Value(_, _, values), Some((place, nth, _))) =
                (choice, self.agreement(settled, choice))
            else {
                return true;
            };
            settled.agreed.values.get(&(place, nth)).is_none_or(|agreed| agreed == values)
        };
        // What cannot be decided alike, because other values are possible here, is open.
        if choices.iter().any(fits) {
            choices.retain(|choice| fits(choice));
        }
    }

    /// What stands for a state in which only choices are left.
    fn settled(&self, mut state: State, choices: u32, agreed: Arc<SameDecisions>) -> Settled {
        let symmetric = self.machine.source.symmetry() == Symmetry::Interchangeable
            && self.machine.config.edits.is_empty();
        if symmetric && choices > 0 {
            self.renumbered.store(true, Ordering::Relaxed);
            self.machine.canonicalize(&mut state);
        }
        state.seal();
        Settled { state, choices, agreed }
    }
}

impl Model for Reduced {
    type State = Settled;
    type Action = Choice;

    fn init_states(&self) -> Vec<Settled> {
        let mut state = self.machine.init();
        self.machine.advance(&mut state);
        vec![self.settled(state, 0, Arc::default())]
    }

    fn actions(&self, settled: &Settled, actions: &mut Vec<Choice>) {
        if self.machine.interrupted() || !self.collector.count(settled.choices) {
            return;
        }
        *actions = self.machine.choices(&settled.state);
        self.restriction.decided.keep(&self.machine, &settled.state, actions);
        if actions.is_empty() {
            self.collector.complete(&self.machine, &settled.state);
        }
        if !self.restriction.alike_at.is_empty() {
            self.agree(settled, actions);
        }
    }

    fn next_state(&self, settled: &Settled, choice: Choice) -> Option<Settled> {
        if self.machine.interrupted() {
            return None;
        }
        let mut agreed = Arc::clone(&settled.agreed);
        if let (Choice::Value(_, _, values), Some((place, nth, rank))) =
            (&choice, self.agreement(settled, &choice))
        {
            let agreed = Arc::make_mut(&mut agreed);
            agreed.values.entry((place, nth)).or_insert_with(|| values.clone());
            agreed.counts.insert((place, rank), nth + 1);
        }
        let mut state = settled.state.clone();
        self.machine.remember(&mut state, &choice);
        self.machine.take(&mut state, &choice);
        self.machine.advance_from(&settled.state, &mut state);
        Some(self.settled(state, settled.choices + 1, agreed))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // One property that only an interruption falsifies: the search ends early then, and starts again.
        vec![Property::always("uninterrupted", |reduced: &Self, _| !reduced.machine.interrupted())]
    }
}

/// States that one thread explores before others help it.
const ALONE_STATES: u64 = 2_000;

/// Explores every choice of a program within bounds.
///
/// What is found is always the same. So are the witnesses of broken rules: breadth-first search by several
/// threads may come upon a longer run first, so an exploration that finds a rule broken is done by one. Only
/// which of several runs witnesses an outcome that breaks nothing may differ.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    if threads > 1 && bounds.states > ALONE_STATES {
        let few = Bounds { states: ALONE_STATES, ..bounds.clone() };
        let first = alone(source, config.clone(), &few, started, &Arc::default())?;
        if first.bound != Some(BoundHit::States(ALONE_STATES)) {
            return Ok(first);
        }
        if first.broken.is_empty() {
            let pass = Pass::new(source, first.config, bounds, started, (threads, &Arc::default()));
            let done = pass.machine.interruption().is_none() && !pass.misnumbered(source);
            let exploration = pass.collector.exploration(&pass.machine);
            let interrupted = matches!(exploration.bound, Some(BoundHit::Interrupted(_)));
            if interrupted || done && exploration.bound.is_none() && exploration.broken.is_empty() {
                return Ok(exploration);
            }
        }
    }
    alone(source, config, bounds, started, &Arc::default())
}

/// Explores with one thread, so that the witness of every outcome is always the same too.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore_alone(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    alone(source, config, bounds, Instant::now(), &Arc::default())
}

/// Explores a program whose ranks decide alike in these places: each takes the value that the first of them took, at
/// every occurrence.
///
/// # Errors
/// If the program cannot be evaluated.
pub(crate) fn explore_agreeing(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
    alike_at: Vec<Loc>,
) -> Result<Exploration, SourceError> {
    let restriction = Restriction { alike_at, ..Restriction::default() };
    alone(source, config, bounds, Instant::now(), &Arc::new(restriction))
}

/// Explores what a run leaves open: every choice of a program that the run did not come by.
///
/// # Errors
/// If the program cannot be evaluated.
pub(super) fn explore_as_decided(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
    decided: DecidedRun,
) -> Result<Exploration, SourceError> {
    let restriction = Restriction { decided, ..Restriction::default() };
    alone(source, config, bounds, Instant::now(), &Arc::new(restriction))
}

/// A search from the beginning to the end, or to what interrupts it.
struct Pass {
    machine: Arc<Machine>,
    collector: Arc<CompleteRuns>,
    renumbered: Arc<AtomicBool>,
}

impl Pass {
    fn new(
        source: &Arc<dyn Source>,
        config: Config,
        bounds: &Bounds,
        started: Instant,
        (threads, restriction): (usize, &Arc<Restriction>),
    ) -> Self {
        let pass = Self {
            machine: Arc::new(Machine::new(Arc::clone(source), config)),
            collector: Arc::new(CompleteRuns::new(bounds.clone(), started)),
            renumbered: Arc::new(AtomicBool::new(false)),
        };
        let reduced = Reduced {
            machine: Arc::clone(&pass.machine),
            collector: Arc::clone(&pass.collector),
            renumbered: Arc::clone(&pass.renumbered),
            restriction: Arc::clone(restriction),
        };
        drop(reduced.checker().threads(threads).spawn_bfs().join());
        pass
    }

    /// Whether a rank looked at its number after ranks were taken for interchangeable.
    fn misnumbered(&self, source: &Arc<dyn Source>) -> bool {
        source.symmetry() == Symmetry::Distinct && self.renumbered.load(Ordering::Relaxed)
    }
}

/// Explores with one thread, again from the start whenever something turned out to be contended.
fn alone(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
    started: Instant,
    restriction: &Arc<Restriction>,
) -> Result<Exploration, SourceError> {
    let mut config = Config { mode: Mode::Reduced, steps_at_most: bounds.steps, ..config };
    loop {
        let pass = Pass::new(source, config.clone(), bounds, started, (1, restriction));
        let exploration = || pass.collector.exploration(&pass.machine);
        match pass.machine.interruption() {
            None if pass.misnumbered(source) => {}
            None => return Ok(exploration()),
            Some(Interruption::Source(error)) => return Err(error),
            Some(Interruption::Steps(steps)) => {
                pass.collector.cut(BoundHit::Steps(steps));
                return Ok(exploration());
            }
            Some(Interruption::Actors(actors)) => config.actors_per_rank = actors,
            Some(Interruption::Contended(objects)) => config.contended.extend(objects),
        }
        if let Some(time) = bounds.time
            && started.elapsed() > time
        {
            pass.collector.cut(BoundHit::Time(time));
            return Ok(exploration());
        }
    }
}
