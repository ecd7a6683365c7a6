//! Explores every choice of a program.
//!
//! A state is what [`Machine::advance`] leaves; a transition is one choice: a [`Model`] of stateright. A program without
//! choices is one state. Finding a contended object restarts the exploration with it. The states are walked depth first
//! (`graph.rs`), and what complete runs show is put in the order of a breadth-first search afterwards, so that the
//! witness of a rule has the fewest choices. stateright's own checker goes through the same model in [`breadth_first`], for
//! comparison: it keeps whole states, which is too much for large programs.
//! Not here: what the choices mean, and what was expected.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rankcheck_model::id::fingerprint;
use rankcheck_model::machine::{ConcurrentCalls, Costs, Executed};
use rankcheck_model::{
    Choice, Config, Interruption, Loc, Machine, Mode, Nondet, Object, ObjectKind, Outcome, Rank, Rule,
    Source, SourceError, State, Symmetry,
};
use stateright::{Checker, Model, Property};

use super::bounds::{BoundHit, Bounds};
use super::complete::{CompleteRuns, FirstRuns, SearchCounts, ShownRun};
use super::decisions::{DecisionTally, RunDecisions};
use super::graph::{GraphWalk, StateGraph, StateId, Visitor, WalkedState, locked};
use super::kept::{Keeping, KeptSettings};
use super::predict::DecidedRun;
use super::tally::EdgeTally;

/// A run that shows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The choices that lead to it, in original rank numbers.
    pub choices: Arc<[Choice]>,
    /// Operations in the causal past of the finding.
    pub past: u64,
}

/// All that complete runs showed.
#[derive(Debug, Clone)]
pub struct Exploration {
    /// Every outcome, with the choices of the first run that led to it, in original rank numbers. Up to renumbering where ranks are
    /// interchangeable.
    pub outcomes: BTreeMap<Outcome, Arc<[Choice]>>,
    /// For each rule broken in some run, the best witness: fewest choices, then smallest causal past.
    pub broken: BTreeMap<Rule, Witness>,
    /// How many distinct states were found.
    pub states: u64,
    /// The sum of their fingerprints: the same in whatever order, by how many threads and in whichever process they were
    /// found.
    pub fingerprint: u128,
    /// Complete runs, as far as states tell them apart.
    pub executions: u64,
    /// How many operations were executed, over all runs.
    pub steps: u64,
    /// Bytes kept of all states and edges when the last walk was over; 0 of a search that keeps whole states.
    pub kept_bytes: u64,
    /// Objects that turned out to be contended, in words.
    pub contended: BTreeSet<String>,
    /// What one run decides, where the exploration is large.
    pub decisions: Option<RunDecisions>,
    /// The bound that cut the exploration short.
    pub bound: Option<BoundHit>,
    /// Labels that some run came by.
    pub reached: BTreeSet<String>,
    /// Costs, as maxima over ranks and runs.
    pub costs: Costs,
    /// What was executed of that which a verdict is about, as maxima over ranks and runs.
    pub executed: Executed,
    /// Whether NCCL may end a call before others come to it, in some run.
    pub may_let_go: bool,
    /// Whether some run may depend on whether NCCL ends a call before others come to it.
    pub early_ends_may_be_seen: bool,
    /// Ranks that executed nothing of the kind in any run.
    pub idle_ranks: BTreeSet<Rank>,
    /// Where, in some run, two ranks use the same buffers in another order, in words.
    pub another_order: Option<String>,
    /// What `r.measure` recorded, as maxima.
    pub measured: BTreeMap<String, i64>,
    /// The configuration that the exploration ended with, for replays.
    pub config: Config,
}

/// A state in which only choices are left, and how many choices led to it.
#[derive(Debug, Clone)]
struct Settled {
    state: State,
    /// Of the state alone.
    fingerprint: u128,
    choices: u32,
    agreed: Arc<SameDecisions>,
    /// Whether there is no other.
    only: bool,
    /// What can be chosen here, if somebody has asked already.
    open: Option<Vec<Choice>>,
    /// Where histories merge, what its ranks have come to since the state before.
    tally: Option<EdgeTally>,
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

impl WalkedState for Settled {
    fn choices(&self) -> u32 {
        self.choices
    }

    fn fingerprint(&self) -> u128 {
        if self.only {
            return 0;
        }
        if self.agreed.counts.is_empty() {
            return self.fingerprint;
        }
        fingerprint(&(self.fingerprint, self.agreed()))
    }

    fn tally(&self) -> Option<&EdgeTally> {
        self.tally.as_ref()
    }
}

impl AsRef<State> for Settled {
    fn as_ref(&self) -> &State {
        &self.state
    }
}

impl Hash for Settled {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.fingerprint().hash(hasher);
    }
}

impl PartialEq for Settled {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
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

impl Restriction {
    fn is_empty(&self) -> bool {
        self.alike_at.is_empty() && self.decided.is_empty()
    }
}

/// Who looks at states, one after the other.
type SeenBy = Box<dyn Fn(&Settled) + Send + Sync>;

/// In so many states at most, every order of concurrent calls is tried for what is contended behind them.
const EVERY_ORDER_STATES: u64 = 10_000;

/// So many choices are taken in a row at most where each is the only one.
const IN_A_ROW: u32 = 64;

/// The reduced semantics as stateright sees it.
struct Reduced {
    machine: Arc<Machine>,
    /// Whether ranks were renumbered: then they must have been interchangeable to the end.
    renumbered: Arc<AtomicBool>,
    restriction: Arc<Restriction>,
    /// Whether states know the choices that led to them.
    remembers: bool,
    /// Whether states are told apart: those that are only made again need not be.
    tells_apart: bool,
    /// Who looks at each state that stateright's checker comes to.
    seen: Option<SeenBy>,
    /// What a scout decides.
    tally: Mutex<DecisionTally>,
}

impl Reduced {
    fn new(machine: &Arc<Machine>, restriction: &Arc<Restriction>, remembers: bool) -> Self {
        let (machine, restriction) = (Arc::clone(machine), Arc::clone(restriction));
        Self {
            machine,
            renumbered: Arc::default(),
            restriction,
            remembers,
            tells_apart: true,
            seen: None,
            tally: Mutex::default(),
        }
    }

    /// Whether a rank looked at its number after ranks were taken for interchangeable.
    fn misnumbered(&self) -> bool {
        Self::is_misnumbered(&self.machine, &self.renumbered)
    }

    fn is_misnumbered(machine: &Machine, renumbered: &AtomicBool) -> bool {
        machine.source.symmetry() == Symmetry::Distinct && renumbered.load(Ordering::Relaxed)
    }

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

    /// Whether states are passed over in which one choice is possible. Where histories are told apart, every state counts.
    fn passes_over(&self) -> bool {
        let config = &self.machine.config;
        config.remembered.is_some() && !config.scouts && self.restriction.is_empty()
    }

    /// Takes a choice of a state, and all that follows without one.
    fn take(&self, state: &mut State, choice: &Choice) {
        if self.remembers {
            self.machine.remember(state, choice);
        }
        self.machine.take(state, choice);
        self.machine.advance_on(state);
    }

    /// What stands for a state in which only choices are left, behind another one.
    fn settled(
        &self,
        mut state: State,
        choices: u32,
        agreed: Arc<SameDecisions>,
        before: Option<&State>,
    ) -> Settled {
        // A run without choices is told apart from none: what many ranks know of each other need not be worked out.
        if choices == 0 && (self.machine.interrupted() || self.machine.choices(&state).is_empty()) {
            return Settled { state, fingerprint: 0, choices, agreed, only: true, open: None, tally: None };
        }
        let merges = self.machine.config.remembered.is_some() && !self.machine.config.scouts;
        let mut tally = merges.then(|| EdgeTally::take(&mut state, before));
        let symmetric = self.machine.source.symmetry() == Symmetry::Interchangeable
            && self.machine.config.edits.is_empty();
        let known = if symmetric && choices > 0 {
            self.renumbered.store(true, Ordering::Relaxed);
            let numbers = state.originals().to_vec();
            let known = self.machine.canonicalize(&mut state);
            tally.iter_mut().for_each(|tally| tally.renumber(&numbers, &state));
            known
        } else {
            None
        };
        let fingerprint = if !self.tells_apart {
            0
        } else if merges && !self.machine.interrupted() {
            known.unwrap_or_else(|| state.merged_fingerprint(&self.machine))
        } else {
            state.seal();
            state.fingerprint()
        };
        state.share();
        Settled { state, fingerprint, choices, agreed, only: false, open: None, tally }
    }
}

impl Model for Reduced {
    type State = Settled;
    type Action = Choice;

    fn init_states(&self) -> Vec<Settled> {
        let mut state = self.machine.init();
        self.machine.advance(&mut state);
        vec![self.settled(state, 0, Arc::default(), None)]
    }

    fn actions(&self, settled: &Settled, actions: &mut Vec<Choice>) {
        if self.machine.interrupted() {
            return;
        }
        *actions = settled.open.clone().unwrap_or_else(|| self.machine.choices(&settled.state));
        self.restriction.decided.keep(&self.machine, &settled.state, actions);
        if !self.restriction.alike_at.is_empty() {
            self.agree(settled, actions);
        }
        if self.machine.config.scouts {
            locked(&self.tally).add(&self.machine, &settled.state, actions);
        }
    }

    fn next_state(&self, settled: &Settled, choice: Choice) -> Option<Settled> {
        if self.machine.interrupted() || self.misnumbered() {
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
        self.take(&mut state, &choice);
        let mut choices = settled.choices + 1;
        let mut open = None;
        while self.passes_over() && choices - settled.choices < IN_A_ROW && !self.machine.interrupted() {
            let here = self.machine.choices(&state);
            let [only] = &*here else {
                open = Some(here);
                break;
            };
            self.take(&mut state, only);
            choices += 1;
        }
        // Ranks that are alike get other numbers.
        let open = open.filter(|_| self.machine.source.symmetry() == Symmetry::Distinct);
        Some(Settled { open, ..self.settled(state, choices, agreed, Some(&settled.state)) })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // One property that only an interruption falsifies: the search ends early then, and starts again.
        vec![Property::always("uninterrupted", |reduced: &Self, settled: &Settled| {
            if let Some(seen) = &reduced.seen {
                seen(settled);
            }
            !reduced.machine.interrupted()
        })]
    }
}

/// A state of a program, as a walk comes to it.
pub(super) trait ExploredState: WalkedState + AsRef<State> {}

impl<S: WalkedState + AsRef<State>> ExploredState for S {}

/// Looks at the states of one walk.
pub(super) struct Visit<'a> {
    pub(super) machine: &'a Machine,
    pub(super) runs: &'a CompleteRuns,
}

impl<S: ExploredState> Visitor<S> for Visit<'_> {
    fn enter(&self, explored: &S) -> bool {
        self.runs.goes_on(self.machine, explored.choices())
    }

    fn end(&self, at: StateId, explored: &S) {
        self.runs.complete(self.machine, at, explored.as_ref());
        if self.machine.config.scouts {
            self.runs.cut.store(true, Ordering::Relaxed);
        }
    }
}

/// Explores every choice of a program within bounds. How many threads do it changes nothing of what is found.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    explore_with(source, config, bounds, (threads, Restriction::default(), None))
}

/// Explores every choice of a program, and keeps the search from time to time, or goes on with what was kept of it.
///
/// # Errors
/// If the program cannot be evaluated.
pub(super) fn explore_keeping(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
    keeping: Keeping<'_>,
) -> Result<Exploration, SourceError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    explore_with(source, config, bounds, (threads, Restriction::default(), Some(keeping)))
}

/// Explores with so many threads.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore_by(
    threads: NonZero<usize>,
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    explore_with(source, config, bounds, (threads.get(), Restriction::default(), None))
}

/// Explores with one thread.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore_alone(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    explore_with(source, config, bounds, (1, Restriction::default(), None))
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
    explore_with(source, config, bounds, (1, Restriction { alike_at, ..Restriction::default() }, None))
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
    explore_with(source, config, bounds, (1, Restriction { decided, ..Restriction::default() }, None))
}

/// Explores, again from the start whenever something turned out to be contended.
fn explore_with(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
    (threads, restriction, keeping): (usize, Restriction, Option<Keeping<'_>>),
) -> Result<Exploration, SourceError> {
    let restriction = Arc::new(restriction);
    let mut walk = RepeatedWalk::new(Config { mode: Mode::Reduced, ..config }, bounds);
    // What is decided already is decided at positions in histories, edits are made there, and overlaps are declared of
    // such; and a recorded run is long and has no choices.
    if !restriction.is_empty()
        || !walk.config.edits.is_empty()
        || source.declares_overlap()
        || source.hides_order()
    {
        walk = walk.tells_histories_apart();
    }
    let keeping = keeping.filter(|_| source.evaluated().is_some());
    let mut kept = keeping.and_then(Keeping::kept);
    if let Some(kept) = &kept {
        walk.begins_with(kept.settings(source));
    }
    loop {
        let machine = walk.machine(source);
        let reduced = Reduced::new(&machine, &restriction, false);
        let visit = Visit { machine: &machine, runs: &walk.runs };
        let graph = match keeping {
            None => StateGraph::of(&reduced, &visit, threads),
            Some(keeping) => {
                let goes_on = kept.take().map(|kept| kept.go_on(keeping, (&reduced, &machine), &walk.runs));
                let Some(mut states) = goes_on.unwrap_or_else(|| Some(GraphWalk::new(&reduced))) else {
                    walk.begins_anew(bounds);
                    continue;
                };
                keeping.walk(&mut states, (&reduced, &visit), threads, &walk.settings());
                states.into_graph()
            }
        };
        let scouted = machine.config.scouts && walk.runs.is_whole();
        if scouted && !machine.interrupted() && !reduced.misnumbered() {
            let tally = std::mem::take(&mut *locked(&reduced.tally));
            walk.is_large(tally.into_decisions(&machine));
        }
        if walk.is_over(&machine, reduced.misnumbered())? {
            // A new machine: an interrupted one takes no more steps, and those that are taken again do not count.
            let again = Reduced::new(&walk.machine(source), &restriction, true);
            let again = Reduced { tells_apart: false, ..again };
            let exploration = walk.runs.exploration(&machine, &again, &graph);
            return Ok(Exploration { decisions: walk.decisions, ..exploration });
        }
    }
}

/// As [`explore_alone`], by stateright's own breadth-first checker, which keeps whole states: for comparison.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn breadth_first(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    let mut walk =
        RepeatedWalk::new(Config { mode: Mode::Reduced, ..config }, bounds).tells_histories_apart();
    loop {
        let machine = walk.machine(source);
        let mut reduced = Reduced::new(&machine, &Arc::default(), true);
        let renumbered = Arc::clone(&reduced.renumbered);
        let first: Arc<Mutex<(FirstRuns<Arc<ShownRun>>, SearchCounts)>> = Arc::default();
        let (runs, found) = (Arc::clone(&walk.runs), Arc::clone(&first));
        let of_runs = Arc::clone(&machine);
        reduced.seen = Some(Box::new(move |settled| {
            let mut found = locked(&found);
            let (first, counted) = &mut *found;
            counted.fingerprint = counted.fingerprint.wrapping_add(settled.fingerprint());
            if !runs.goes_on(&of_runs, settled.choices) || !of_runs.choices(&settled.state).is_empty() {
                return;
            }
            if let Some((end, pasts)) = runs.end(&of_runs, &settled.state) {
                let run = ShownRun { choices: settled.state.choices().into(), pasts };
                first.add(&end, run.choices.len(), &Arc::new(run));
                counted.executions += 1;
            }
        }));
        drop(reduced.checker().threads(1).spawn_bfs().join());
        if walk.is_over(&machine, Reduced::is_misnumbered(&machine, &renumbered))? {
            let (first, counted) = std::mem::take(&mut *locked(&first));
            let counted = SearchCounts { steps: machine.steps_total(), ..counted };
            return Ok(walk.runs.found(&machine, first, counted, |run| ShownRun::clone(run)));
        }
    }
}

/// Walks over the states of a program, one after the other: each knows of more that is contended.
pub(super) struct RepeatedWalk {
    config: Config,
    bounds: Bounds,
    started: Instant,
    /// What the walk that goes on has found.
    pub(super) runs: Arc<CompleteRuns>,
    /// What one run decides, once a scout has made one.
    decisions: Option<RunDecisions>,
    /// Whether every order of concurrent calls was tried for what is contended behind them.
    tried_every_order: bool,
}

impl RepeatedWalk {
    pub(super) fn new(config: Config, bounds: &Bounds) -> Self {
        let started = Instant::now();
        let config = Config { steps_at_most: bounds.steps, ..config };
        let runs = Arc::new(CompleteRuns::new(bounds.clone(), started));
        Self { config, bounds: bounds.clone(), started, runs, decisions: None, tried_every_order: false }
    }

    /// Histories are told apart, however many states there are.
    pub(super) fn tells_histories_apart(mut self) -> Self {
        self.bounds.merge_from = u64::MAX;
        self.runs = Arc::new(CompleteRuns::new(self.bounds.clone(), self.started));
        self
    }

    /// What it has found out about how to search.
    fn settings(&self) -> KeptSettings {
        KeptSettings {
            contended: self.config.contended.clone(),
            remembered: self.config.remembered.as_deref().cloned(),
            actors_per_rank: self.config.actors_per_rank,
            merging_is_settled: self.bounds.merge_from == u64::MAX,
            decisions: self.decisions.clone(),
        }
    }

    /// Begins with what a search that was kept had found out.
    fn begins_with(&mut self, settings: KeptSettings) {
        let KeptSettings { contended, remembered, actors_per_rank, merging_is_settled, decisions } = settings;
        self.config.contended = contended;
        self.config.remembered = remembered.map(Arc::new);
        self.config.actors_per_rank = actors_per_rank;
        if let Some(decisions) = decisions {
            self.is_large(decisions);
        }
        if merging_is_settled {
            self.bounds.merge_from = u64::MAX;
            self.runs = Arc::new(CompleteRuns::new(self.bounds.clone(), self.started));
        }
    }

    /// Begins anew, with nothing of what was found.
    fn begins_anew(&mut self, bounds: &Bounds) {
        self.config = Config {
            contended: BTreeSet::new(),
            remembered: None,
            actors_per_rank: Config::new(self.config.ranks).actors_per_rank,
            ..self.config.clone()
        };
        self.bounds = bounds.clone();
        self.runs = Arc::new(CompleteRuns::new(self.bounds.clone(), self.started));
    }

    /// The search is large, and one run decides this.
    fn is_large(&mut self, decisions: RunDecisions) {
        self.bounds.large.tell(&decisions);
        self.decisions = Some(decisions);
    }

    /// A machine that knows what is contended.
    pub(super) fn machine(&self, source: &Arc<dyn Source>) -> Arc<Machine> {
        Arc::new(Machine::new(Arc::clone(source), self.config.clone()))
    }

    /// What is found to be contended in other orders of calls that nothing orders, and is not known to be.
    ///
    /// One order of such calls stands for all, but a thread whose call comes first in it may leave another one waiting for
    /// ever. What that one does behind its call may be what a run depends on in which nothing is wrong with the calls.
    fn contended_in_every_order(&mut self, machine: &Machine) -> Result<BTreeSet<Object>, SourceError> {
        let Config { mode, concurrent_calls, .. } = self.config;
        let one_order = mode == Mode::Reduced && concurrent_calls == ConcurrentCalls::InOneOrder;
        if self.tried_every_order || !one_order || self.bounds.until_broken || !self.runs.breaks(Rule::Comm4)
        {
            return Ok(BTreeSet::new());
        }
        self.tried_every_order = true;
        // Its own bounds, so that a bound that does not cut what is searched changes nothing of what is found.
        let Bounds { choices, .. } = Bounds::default();
        let bounds =
            Bounds { states: EVERY_ORDER_STATES, choices, merge_from: u64::MAX, ..self.bounds.clone() };
        let config = Config {
            concurrent_calls: ConcurrentCalls::InEveryOrder,
            remembered: None,
            ..self.config.clone()
        };
        let Exploration { config, bound, .. } = explore_alone(&machine.source, config, &bounds)?;
        if let Some(bound) = bound.filter(|bound| *bound != BoundHit::States(EVERY_ORDER_STATES)) {
            self.runs.cut(bound);
        }
        let contended = config.contended;
        // That calls contend for their communicator is COMM-4 itself.
        let more = contended.into_iter().filter(|object| object.kind != ObjectKind::Comm);
        Ok(more.filter(|object| !self.config.contended.contains(object)).collect())
    }

    /// Whether nothing was found on a walk that another one has to start with.
    pub(super) fn is_over(&mut self, machine: &Machine, misnumbered: bool) -> Result<bool, SourceError> {
        match machine.interruption() {
            None if misnumbered => {}
            // What several threads do at the same time is counted when the walk is over.
            None if self.runs.many.load(Ordering::Relaxed)
                || self.bounds.merges(self.runs.states.load(Ordering::Relaxed), machine.steps_total()) =>
            {
                // One run shows most of what matters: otherwise each thing would have a search start again.
                self.config.remembered = Some(Arc::default());
                self.config.scouts = true;
            }
            None if self.config.scouts => {
                self.config.remembered = Some(Arc::new(machine.learned()));
                self.config.scouts = false;
            }
            None => {
                let more = self.contended_in_every_order(machine)?;
                if more.is_empty() {
                    return Ok(true);
                }
                self.config.contended.extend(more);
            }
            Some(Interruption::Source(error)) => return Err(error),
            Some(Interruption::Steps(steps)) => {
                if misnumbered {
                    self.runs.forget();
                }
                self.runs.cut(BoundHit::Steps(steps));
                return Ok(true);
            }
            Some(Interruption::Actors(actors)) => self.config.actors_per_rank = actors,
            Some(Interruption::Contents) => self.config.follows_contents = true,
            Some(Interruption::Contended(objects)) => self.config.contended.extend(objects),
            Some(Interruption::Remember(more)) => {
                let mut remembered = self.config.remembered.as_deref().cloned().unwrap_or_default();
                remembered.extend(&more);
                self.bounds.merge_from = u64::MAX;
                self.config.remembered = (!remembered.gives_up).then(|| Arc::new(remembered));
            }
        }
        if let Some(time) = self.bounds.time
            && self.started.elapsed() > time
        {
            // What was found so far, it was found without what another walk would know.
            self.runs.forget();
            self.runs.cut(BoundHit::Time(time));
            return Ok(true);
        }
        if self.config.remembered.is_some() {
            self.bounds.merge_from = u64::MAX;
        }
        self.runs = Arc::new(CompleteRuns::new(self.bounds.clone(), self.started));
        Ok(false)
    }
}
