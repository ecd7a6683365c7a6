//! What the complete runs of a search show, and when a search gives up.
//!
//! Not here: how states are walked over (`graph.rs`), and what a state is ([`super::explore`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rankcheck_model::machine::{Costs, Executed, ObjectId, Tally};
use rankcheck_model::{
    About, Choice, Config, FindingKey, Machine, Outcome, Rank, Rule, State, Symmetry, Token,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::bounds::{BoundHit, Bounds};
use super::explore::{Exploration, ExploredState, Witness};
use super::graph::{Model, StateGraph, StateId, locked};
use super::memory;

/// How a complete run ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunEnd {
    outcome: Arc<Outcome>,
    /// The rules that are broken.
    broken: BTreeSet<Rule>,
    /// Where two ranks use the same buffers in another order, in words.
    another_order: Option<String>,
}

/// What complete runs leave behind, in the order in which a search came to them.
#[derive(Debug, Default)]
struct Collected {
    /// All ends, each with its number.
    ends: BTreeMap<RunEnd, u32>,
    /// The complete runs, each with the number of its end.
    complete: Vec<(StateId, u32)>,
    /// The first of them. If nothing was to be chosen, there is no other.
    first: Option<(StateId, CausalPasts)>,
    costs: Costs,
    executed: Executed,
    active: BTreeSet<Rank>,
    /// All rules that some run breaks.
    broken: BTreeSet<Rule>,
    /// Objects that turned out to be contended before the search was kept, in words.
    contended: BTreeSet<String>,
    bound: Option<BoundHit>,
}

impl Collected {
    /// A rank did something in some run that a verdict may be about, or did not.
    fn notice(&mut self, rank: Rank, costs: &Costs, executed: Executed) {
        if executed != Executed::default() || costs.registrations + costs.registrations_warm_up > 0 {
            self.active.insert(rank);
        }
    }
}

/// What is kept of complete runs beside which they are, for a search that goes on in another process. How each ended is found
/// out again.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptRuns {
    costs: Costs,
    executed: Executed,
    active: BTreeSet<Rank>,
    /// Objects that turned out to be contended, in words.
    contended: BTreeSet<String>,
}

/// The smallest causal past of a finding of each rule in a run. It depends on the way to a state, and of several threads that
/// search either may find a way first: so it is asked of the runs that are shown, and of no others.
pub(super) type CausalPasts = BTreeMap<Rule, u64>;

/// Of so many runs that break a rule after the fewest choices, the one with the smallest causal past is shown.
const CANDIDATES: usize = 64;

/// The first complete run of each kind, fewest choices first.
#[derive(Debug)]
pub(super) struct FirstRuns<R> {
    outcomes: BTreeMap<Arc<Outcome>, R>,
    /// By rule: the fewest choices, and the first runs after so many.
    broken: BTreeMap<Rule, (usize, Vec<R>)>,
    /// After how many choices, and in words.
    another_order: Option<(usize, String)>,
}

/// A run that is shown.
#[derive(Debug, Clone)]
pub(super) struct ShownRun {
    pub(super) choices: Arc<[Choice]>,
    pub(super) pasts: CausalPasts,
}

fn causal_pasts(ended: &State) -> CausalPasts {
    let mut pasts = CausalPasts::new();
    for (FindingKey { rule, .. }, finding) in ended.findings() {
        let past = pasts.entry(*rule).or_insert(finding.past);
        *past = finding.past.min(*past);
    }
    pasts
}

impl<R> Default for FirstRuns<R> {
    fn default() -> Self {
        Self { outcomes: BTreeMap::new(), broken: BTreeMap::new(), another_order: None }
    }
}

impl<R: Clone> FirstRuns<R> {
    /// Adds a run; those with fewer choices have been added before.
    pub(super) fn add(&mut self, end: &RunEnd, choices: usize, run: &R) {
        if let Some(told) = &end.another_order
            && self.another_order.as_ref().is_none_or(|(fewest, best)| (choices, told) < (*fewest, best))
        {
            self.another_order = Some((choices, told.clone()));
        }
        self.outcomes.entry(Arc::clone(&end.outcome)).or_insert_with(|| run.clone());
        for rule in &end.broken {
            let (fewest, first) = self.broken.entry(*rule).or_insert_with(|| (choices, Vec::new()));
            if choices == *fewest && first.len() < CANDIDATES {
                first.push(run.clone());
            }
        }
    }
}

/// What a search counts beside the states.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SearchCounts {
    pub(super) executions: u64,
    pub(super) steps: u64,
    /// The sum of the fingerprints of all states.
    pub(super) fingerprint: u128,
    pub(super) kept_bytes: u64,
}

/// Collects what complete runs show.
#[derive(Debug)]
pub(super) struct CompleteRuns {
    collected: Mutex<Collected>,
    pub(super) states: Arc<AtomicU64>,
    pub(super) cut: AtomicBool,
    /// Whether there were so many states that histories are to merge.
    pub(super) many: AtomicBool,
    bounds: Bounds,
    started: Instant,
}

/// The numbers of states of the searches that go on in this process: the largest gives up where memory ends.
static SEARCHES: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

fn searches() -> MutexGuard<'static, Vec<Arc<AtomicU64>>> {
    locked(&SEARCHES)
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
    pub(super) fn new(bounds: Bounds, started: Instant) -> Self {
        let states = Arc::new(AtomicU64::new(0));
        searches().push(Arc::clone(&states));
        Self {
            collected: Mutex::default(),
            states,
            cut: AtomicBool::new(false),
            many: AtomicBool::new(false),
            bounds,
            started,
        }
    }

    fn locked(&self) -> MutexGuard<'_, Collected> {
        locked(&self.collected)
    }

    pub(super) fn cut(&self, bound: BoundHit) {
        self.locked().bound.get_or_insert(bound);
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Forgets what complete runs showed.
    pub(super) fn forget(&self) {
        *self.locked() = Collected::default();
    }

    /// Whether some run breaks a rule.
    pub(super) fn breaks(&self, rule: Rule) -> bool {
        self.locked().broken.contains(&rule)
    }

    /// Whether no bound has cut the search.
    pub(super) fn is_whole(&self) -> bool {
        self.locked().bound.is_none()
    }

    /// Counts a state, before which so many operations were executed in all; returns whether the exploration may go on from
    /// it.
    fn count(&self, choices: u32, operations: u64) -> bool {
        if self.cut.load(Ordering::Relaxed) {
            return false;
        }
        if self.bounds.stop.asked() {
            self.cut(BoundHit::Interrupted(self.states.load(Ordering::Relaxed)));
            return false;
        }
        let states = self.states.fetch_add(1, Ordering::Relaxed) + 1;
        if self.bounds.merges(states, operations) {
            self.many.store(true, Ordering::Relaxed);
            self.cut.store(true, Ordering::Relaxed);
            return false;
        }
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

    /// Whether an exploration may go on from a state to which so many choices led.
    pub(super) fn goes_on(&self, machine: &Machine, choices: u32) -> bool {
        !machine.interrupted() && self.count(choices, machine.steps_total())
    }

    /// Whether the process holds more than it may, and no other search has more states.
    fn exhausts(&self, limit: u64) -> bool {
        let own = self.states.load(Ordering::Relaxed);
        memory::held().is_some_and(|held| held > limit)
            && searches().iter().all(|states| states.load(Ordering::Relaxed) <= own)
    }

    /// A run that is complete, with the causal pasts of what it breaks; none if it is no run of the program.
    pub(super) fn end(&self, machine: &Machine, state: &State) -> Option<(RunEnd, CausalPasts)> {
        machine.contend_blocked(state);
        if machine.interrupted() || machine.infeasible(state) {
            return None;
        }
        let mut state = state.clone();
        machine.finish(&mut state);
        let pasts = causal_pasts(&state);
        let broken = pasts.keys().copied().collect();
        let outcome = Arc::new(machine.outcome(&state));
        let another_order = machine.operands_in_another_order(&state);
        let end = RunEnd { outcome, broken, another_order };
        let mut collected = self.locked();
        collected.broken.extend(&end.broken);
        if self.bounds.until_broken && !end.broken.is_empty() {
            self.cut.store(true, Ordering::Relaxed);
        }
        for rank in (0..machine.config.ranks).map(Rank) {
            let costs = state.rank(rank).costs_at_end();
            collected.costs.raise_to(&costs);
            let executed = *state.rank(rank).executed();
            collected.executed.raise_to(&executed);
            collected.notice(rank, &costs, executed);
        }
        Some((end, pasts))
    }

    pub(super) fn complete(&self, machine: &Machine, at: StateId, state: &State) {
        let Some((end, pasts)) = self.end(machine, state) else { return };
        let mut collected = self.locked();
        if collected.complete.is_empty() {
            collected.first = Some((at, pasts));
        }
        let next = u32::try_from(collected.ends.len()).expect("fewer than 2^32 ends");
        let end = *collected.ends.entry(end).or_insert(next);
        collected.complete.push((at, end));
    }

    /// What is to be kept of the runs so far.
    pub(super) fn kept(&self, machine: &Machine) -> KeptRuns {
        let contended = self.contended(machine);
        let Collected { costs, executed, active, .. } = &*self.locked();
        KeptRuns { costs: *costs, executed: *executed, active: active.clone(), contended }
    }

    /// The complete runs so far, each with the number of its end.
    pub(super) fn ended(&self) -> Vec<(StateId, u32)> {
        self.locked().complete.clone()
    }

    /// Takes over the runs of a search that was kept, of which each of these states shows an end, and so many states.
    /// Returns whether they can be those of the program.
    pub(super) fn take_over(
        &self,
        machine: &Machine,
        KeptRuns { costs, executed, active, contended }: KeptRuns,
        (complete, states): (Vec<(StateId, u32)>, u64),
        shown: &BTreeMap<u32, State>,
    ) -> bool {
        for (number, state) in shown {
            let Some((end, _)) = self.end(machine, state) else { return false };
            self.locked().ends.insert(end, *number);
        }
        let mut collected = self.locked();
        collected.costs.raise_to(&costs);
        collected.executed.raise_to(&executed);
        collected.active.extend(active);
        collected.contended = contended;
        collected.complete = complete;
        self.states.store(states, Ordering::Relaxed);
        collected.ends.len() == shown.len()
    }

    /// The objects that turned out to be contended, in words.
    fn contended(&self, machine: &Machine) -> BTreeSet<String> {
        let met = machine.config.contended.iter().filter(|object| machine.has_met(**object));
        let mut contended: BTreeSet<String> = met.map(|object| object_name(machine, *object)).collect();
        contended.extend(self.locked().contended.iter().cloned());
        contended
    }

    /// What was found on a walk over a model, with the shortest ways to it.
    pub(super) fn exploration<M>(&self, machine: &Machine, model: &M, graph: &StateGraph) -> Exploration
    where
        M: Model,
        M::State: ExploredState,
    {
        let (ends, complete, alone) = {
            let mut collected = self.locked();
            let Collected { ends, complete, first, .. } = &mut *collected;
            (std::mem::take(ends), std::mem::take(complete), first.take())
        };
        let mut by_number: Vec<&RunEnd> = ends.keys().collect();
        ends.iter().for_each(|(end, number)| by_number[*number as usize] = end);
        let executions = complete.len() as u64;
        let complete: FxHashMap<StateId, u32> = complete.into_iter().collect();
        self.add_tallies(&graph.most(machine.config.ranks, |state| complete.contains_key(&state)));
        let order = graph.nearest_first();
        let mut first = FirstRuns::default();
        for state in &order.states {
            if let Some(end) = complete.get(state) {
                first.add(by_number[*end as usize], order.depth(*state) as usize, state);
            }
        }
        // What was not the first of its kind is no longer kept.
        drop((complete, by_number));
        drop(ends);
        let steps = machine.steps_total();
        let candidates = || first.broken.values().flat_map(|(_, runs)| runs);
        // No choices lead to the state that a run starts with, and it is not made again.
        let there = |state: &StateId| order.depth(*state) > 0;
        let shown: BTreeSet<StateId> =
            first.outcomes.values().chain(candidates()).copied().filter(there).collect();
        let candidates: BTreeSet<StateId> = candidates().copied().collect();
        let mut runs: FxHashMap<StateId, ShownRun> = FxHashMap::default();
        runs.extend(alone.map(|(state, pasts)| (state, ShownRun { choices: Arc::default(), pasts })));
        graph.along_shortest_paths(model, &order, &shown, |id, state| {
            let state = state.as_ref();
            let mut pasts = CausalPasts::new();
            if candidates.contains(&id) {
                let mut ended = state.clone();
                machine.finish(&mut ended);
                pasts = causal_pasts(&ended);
            }
            runs.insert(id, ShownRun { choices: state.choices().into(), pasts });
        });
        self.found(
            machine,
            first,
            SearchCounts {
                executions,
                steps,
                fingerprint: graph.fingerprint,
                kept_bytes: graph.kept_bytes(),
            },
            |run| runs[run].clone(),
        )
    }

    /// Takes in what ranks have come to that stands in no state.
    fn add_tallies(&self, most: &[Tally]) {
        let mut collected = self.locked();
        for (rank, tally) in (0..).map(Rank).zip(most) {
            let (costs, executed) = (tally.costs(), tally.executed());
            collected.costs.raise_to(&costs);
            collected.executed.raise_to(&executed);
            collected.notice(rank, &costs, executed);
        }
    }

    pub(super) fn found<R>(
        &self,
        machine: &Machine,
        first: FirstRuns<R>,
        SearchCounts { executions, steps, fingerprint, kept_bytes }: SearchCounts,
        shown: impl Fn(&R) -> ShownRun,
    ) -> Exploration {
        let contended = self.contended(machine);
        let collected = self.locked();
        let word = |token: Token| machine.name(token).to_string();
        // Of interchangeable ranks, each does in some run what one does in this.
        let all_alike =
            machine.source.symmetry() == Symmetry::Interchangeable && !collected.active.is_empty();
        let idle = |rank: &Rank| !all_alike && !collected.active.contains(rank);
        let idle_ranks = (0..machine.config.ranks).map(Rank).filter(idle).collect();
        let told = |(outcome, run): (Arc<Outcome>, R)| (Arc::unwrap_or_clone(outcome), shown(&run).choices);
        let outcomes = first.outcomes.into_iter().map(told);
        let broken = first.broken.iter().filter_map(|(rule, (_, runs))| {
            let witness = |ShownRun { choices, pasts }: ShownRun| Witness { choices, past: pasts[rule] };
            Some((*rule, runs.iter().map(&shown).map(witness).min_by_key(|witness| witness.past)?))
        });
        Exploration {
            outcomes: outcomes.collect(),
            broken: broken.collect(),
            states: self.states.load(Ordering::Relaxed),
            fingerprint,
            executions,
            steps,
            kept_bytes,
            contended,
            decisions: None,
            bound: collected.bound.clone(),
            reached: machine.reached().into_iter().map(word).collect(),
            costs: collected.costs,
            executed: collected.executed,
            may_let_go: machine.may_let_go(),
            early_ends_may_be_seen: machine.early_ends_may_be_seen(),
            idle_ranks,
            another_order: first.another_order.map(|(_, told)| told),
            measured: machine.measured().into_iter().map(|(name, value)| (word(name), value)).collect(),
            config: Config { remembered: None, ..machine.config.clone() },
        }
    }
}

fn object_name(machine: &Machine, object: rankcheck_model::Object) -> String {
    use rankcheck_model::ObjectKind as Kind;
    let named = |noun: &str| match object.id {
        ObjectId::All => noun.to_owned(),
        ObjectId::Named(name) => format!("{noun} {}", machine.name(name)),
        ObjectId::Comm(comm) => format!("{noun} {}", machine.about(About::Comm(comm))),
    };
    match object.kind {
        Kind::StoreKey => named("key"),
        Kind::Flag => named("flag"),
        Kind::Stream if object.id == ObjectId::All => "the device".to_owned(),
        Kind::Stream => named("stream"),
        Kind::Event => named("event"),
        Kind::Mutex => named("mutex"),
        Kind::Pool => named("pool"),
        Kind::Map => named("map"),
        Kind::List => named("list"),
        Kind::Hosts => "host barriers".to_owned(),
        Kind::Init => named("init of"),
        Kind::Comm => named("communicator"),
        Kind::Memory => named("memory"),
        Kind::Addresses => "addresses".to_owned(),
        Kind::Graph => named("graph"),
        Kind::Capture => "captures".to_owned(),
        Kind::CommHashes => "the order in which groups take communicators".to_owned(),
    }
}
