//! The graph of all states of a [`Model`]: walked depth first by several threads, who share what they have seen.
//!
//! Of a state that was expanded its fingerprint is kept, and where its actions lead: some fifty bytes. States themselves
//! live only as long as they wait to be expanded, and depth first few of them do. What a breadth-first search is for, the
//! shortest way to a state, is read off the graph afterwards ([`StateGraph::nearest_first`]) and its states are made again
//! ([`StateGraph::along_shortest_paths`]). So what is found does not depend on which thread came where first.
//! A walk can pause between two states, and be kept.
//! Not here: what a state is, and what is looked for in one.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rankcheck_model::machine::Tally;
use rustc_hash::FxHashMap;

use super::tally::{CountedEdges, EdgeTally, TallyTable};
use crate::spec::stack::spawn_deep;

pub(super) use stateright::Model;

/// A state of a model, as a walk comes to it.
pub(super) trait WalkedState {
    /// The fingerprint of what a state may still do: equal for equal states, in any order and in any process.
    fn fingerprint(&self) -> u128;

    /// How many choices led to it. An action may be several in a row.
    fn choices(&self) -> u32;

    /// What its ranks have come to on the edge that led to it, where that stands in no state.
    fn tally(&self) -> Option<&EdgeTally>;
}

/// The power of ten, 1 in 10^n, below which the chance lies that of so many states two different ones have one
/// fingerprint of 128 bits, and were taken for one: states² / 2¹²⁹.
#[must_use]
pub fn taken_for_one_below(states: u64) -> u32 {
    let pairs = 2.0 * (states.max(1) as f64).log10();
    let odds = 129.0 * std::f64::consts::LOG10_2 - pairs;
    // At 2^64 states the chance is one half.
    odds.floor().max(0.0) as u32
}

/// Who looks at each state when it is expanded.
pub(super) trait Visitor<S>: Sync {
    /// Whether the walk goes on from a state; once it does not, the walk ends.
    fn enter(&self, state: &S) -> bool;

    /// A state without actions.
    fn end(&self, at: StateId, state: &S);
}

/// A state of the graph. Which number a state has depends on who came there first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StateId(pub(super) u32);

impl StateId {
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// States that one thread expands before others help it: starting them takes as long as this.
const ALONE_STATES: usize = 2_000;
/// So many tables of fingerprints, that threads seldom wait for one another.
const SHARDS: usize = 64;

/// A state that waits to be expanded.
pub(super) type Waiting<S> = (StateId, S);

/// What threads share on a part of a walk.
struct SharedWalk<'a, M: Model, V> {
    model: &'a M,
    visitor: &'a V,
    seen: &'a Seen,
    /// States that some thread has given away.
    given: Mutex<Vec<Waiting<M::State>>>,
    news: Condvar,
    /// How many threads there are; changed by those who hold what was given.
    threads: AtomicUsize,
    /// How many threads have nothing to do; changed by those who hold what was given.
    idle: AtomicUsize,
    over: AtomicBool,
    /// When this part of the walk ends at the latest.
    until: Option<Instant>,
}

/// All states that were seen.
struct Seen {
    shards: Vec<Mutex<SeenStates>>,
    states: AtomicU32,
}

impl Default for Seen {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), states: AtomicU32::new(0) }
    }
}

impl Seen {
    /// The number of a fingerprint, and whether it is new.
    fn number(&self, fingerprint: u128) -> (StateId, bool) {
        // The map uses the low half.
        let shard = (fingerprint >> 64) as usize % SHARDS;
        let mut seen = locked(&self.shards[shard]);
        let mut new = false;
        let id = *seen.numbers.entry(fingerprint).or_insert_with(|| {
            new = true;
            StateId(self.states.fetch_add(1, Ordering::Relaxed))
        });
        if new {
            seen.sum = seen.sum.wrapping_add(fingerprint);
        }
        (id, new)
    }

    fn states(&self) -> usize {
        self.states.load(Ordering::Relaxed) as usize
    }

    /// The sum of all fingerprints.
    fn sum(&self) -> u128 {
        self.shards.iter().map(|seen| locked(seen).sum).fold(0, u128::wrapping_add)
    }

    /// The fingerprints in the order of their numbers.
    fn fingerprints(&self) -> Vec<u128> {
        let mut all = vec![0; self.states()];
        for shard in &self.shards {
            locked(shard).numbers.iter().for_each(|(fingerprint, id)| all[id.at()] = *fingerprint);
        }
        all
    }
}

/// States that were seen, by fingerprint.
#[derive(Default)]
struct SeenStates {
    numbers: FxHashMap<u128, StateId>,
    /// The sum of the fingerprints.
    sum: u128,
}

/// A lock that a panic elsewhere has poisoned still guards plain data.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where actions lead, as one thread found it.
#[derive(Debug, Default)]
pub(super) struct EdgeLog {
    /// For each state its number, how many actions it has, and the states that they lead to, in their order.
    pub(super) states: Vec<u32>,
    /// How many edges there are.
    edges: usize,
    /// Of each edge how many choices it is; empty as long as all are one.
    pub(super) choices: Vec<u8>,
    /// Of each edge what it counts, by its number in the table; empty as long as none counts anything.
    pub(super) counted: Vec<u32>,
    pub(super) tallies: TallyTable,
}

impl EdgeLog {
    /// A log that was kept; none if it is no log of so many states.
    pub(super) fn kept(
        states: Vec<u32>,
        choices: Vec<u8>,
        (counted, tallies): (Vec<u32>, Vec<EdgeTally>),
        known: usize,
    ) -> Option<Self> {
        let mut log = Self { states, edges: 0, choices, counted, tallies: TallyTable::kept(tallies) };
        let mut rest = &*log.states;
        while let [from, count, behind @ ..] = rest {
            let (to, next) = behind.split_at_checked(*count as usize)?;
            if [from].into_iter().chain(to).any(|state| *state as usize >= known) {
                return None;
            }
            (rest, log.edges) = (next, log.edges + to.len());
        }
        let of_each = |len: usize| len == 0 || len == log.edges;
        let whole = rest.is_empty() && of_each(log.choices.len()) && of_each(log.counted.len());
        let counted = log.counted.iter().all(|number| *number as usize <= log.tallies.all.len());
        (whole && counted).then_some(log)
    }

    /// Adds an action of the state that was added last.
    fn add(&mut self, to: StateId, choices: u32, tally: Option<&EdgeTally>) {
        self.states.push(to.0);
        if choices > 1 || !self.choices.is_empty() {
            self.choices.resize(self.edges, 1);
            self.choices.push(u8::try_from(choices).expect("an action is few choices"));
        }
        let number = tally.map_or(0, |tally| self.tallies.number(tally));
        if number > 0 || !self.counted.is_empty() {
            self.counted.resize(self.edges, 0);
            self.counted.push(number);
        }
        self.edges += 1;
    }

    /// Forgets the edges behind so many.
    fn truncate(&mut self, states: usize, edges: usize) {
        self.states.truncate(states);
        self.choices.truncate(edges);
        self.counted.truncate(edges);
        self.edges = edges;
    }

    /// Each state, with the numbers of those that its actions lead to, and the number of the first edge.
    fn entries(&self) -> impl Iterator<Item = (StateId, &[u32], usize)> {
        let (mut rest, mut edge) = (&*self.states, 0);
        std::iter::from_fn(move || {
            let [from, count, behind @ ..] = rest else { return None };
            let (to, next) = behind.split_at(*count as usize);
            let first = edge;
            (rest, edge) = (next, edge + to.len());
            Some((StateId(*from), to, first))
        })
    }
}

impl<M, V> SharedWalk<'_, M, V>
where
    M: Model + Sync,
    M::State: WalkedState + Send,
    V: Visitor<M::State>,
{
    /// Expands states until none is left, or so many are known, or the part of the walk is over. Returns whether others
    /// may help.
    fn expand(&self, stack: &mut Vec<Waiting<M::State>>, log: &mut EdgeLog, at_most: usize) -> bool {
        let mut actions = Vec::new();
        while let Some((id, state)) = stack.pop() {
            if self.over.load(Ordering::Relaxed) || !self.visitor.enter(&state) {
                // Whoever goes on later begins with it.
                stack.push((id, state));
                self.over.store(true, Ordering::Relaxed);
                return false;
            }
            self.model.actions(&state, &mut actions);
            if actions.is_empty() {
                self.visitor.end(id, &state);
                continue;
            }
            let first = stack.len();
            let entry = log.states.len();
            log.states.extend([id.0, u32::try_from(actions.len()).expect("fewer than 2^32 actions")]);
            for action in actions.drain(..) {
                // Where an action leads nowhere, the model was interrupted. A state has all its edges or none.
                let Some(next) = self.model.next_state(&state, action) else {
                    log.truncate(entry, log.edges - (log.states.len() - entry - 2));
                    self.over.store(true, Ordering::Relaxed);
                    return false;
                };
                let (to, new) = self.seen.number(next.fingerprint());
                log.add(to, next.choices() - state.choices(), next.tally());
                if new {
                    stack.push((to, next));
                }
            }
            // The first action first.
            stack[first..].reverse();
            if self.idle.load(Ordering::Relaxed) > 0 {
                self.give(stack);
            }
            // Each part of a walk gets somewhere, however short it is.
            if self.until.is_some_and(|until| Instant::now() >= until) {
                self.over.store(true, Ordering::Relaxed);
                return false;
            }
            if self.seen.states() > at_most {
                return !stack.is_empty();
            }
        }
        false
    }

    /// Gives half of what waits to threads that have nothing to do: what came first, because more lies behind it.
    fn give(&self, stack: &mut Vec<Waiting<M::State>>) {
        if stack.len() > 1 {
            locked(&self.given).extend(stack.drain(..stack.len() / 2));
            self.news.notify_all();
        }
    }

    /// There are so many threads: fewer than were asked for where memory holds no more stacks.
    fn has_threads(&self, threads: usize) {
        let _given = locked(&self.given);
        self.threads.store(threads, Ordering::Relaxed);
        self.news.notify_all();
    }

    /// Waits for a state that another thread gives away; none once all wait.
    fn take(&self) -> Option<Vec<Waiting<M::State>>> {
        let mut given = locked(&self.given);
        self.idle.fetch_add(1, Ordering::Relaxed);
        loop {
            let threads = self.threads.load(Ordering::Relaxed);
            let all_wait = self.idle.load(Ordering::Relaxed) == threads && given.is_empty();
            if all_wait || self.over.load(Ordering::Relaxed) {
                self.over.store(true, Ordering::Relaxed);
                self.news.notify_all();
                return None;
            }
            if !given.is_empty() {
                self.idle.fetch_sub(1, Ordering::Relaxed);
                let half = given.len().div_ceil(2);
                return Some(given.drain(..half).collect());
            }
            given = self.news.wait(given).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Expands states until the part of the walk is over. Returns where they lead, and what was not expanded.
    fn work(&self, mut stack: Vec<Waiting<M::State>>) -> (EdgeLog, Vec<Waiting<M::State>>) {
        let mut log = EdgeLog::default();
        let _end = EndOnPanic(self);
        loop {
            self.expand(&mut stack, &mut log, usize::MAX);
            if self.over.load(Ordering::Relaxed) {
                // Others may wait for states.
                let _given = locked(&self.given);
                self.news.notify_all();
                return (log, stack);
            }
            match self.take() {
                Some(given) => stack = given,
                None => return (log, Vec::new()),
            }
        }
    }
}

/// Whoever waits for a thread that panics would wait for ever.
struct EndOnPanic<'a, 'b, M: Model, V>(&'a SharedWalk<'b, M, V>);

impl<M: Model, V> Drop for EndOnPanic<'_, '_, M, V> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _given = locked(&self.0.given);
            self.0.over.store(true, Ordering::Relaxed);
            self.0.news.notify_all();
        }
    }
}

/// A walk from the one initial state of a model to all others. It can pause between two states.
pub(super) struct GraphWalk<S> {
    /// The state before any action.
    pub(super) root: StateId,
    /// What its ranks have come to before any.
    first: Option<EdgeTally>,
    seen: Seen,
    /// States that were come to and not expanded.
    pub(super) waiting: Vec<Waiting<S>>,
    pub(super) logs: Vec<EdgeLog>,
}

impl<S: WalkedState + Send> GraphWalk<S> {
    pub(super) fn new<M: Model<State = S>>(model: &M) -> Self {
        let seen = Seen::default();
        let number = |state: S| (seen.number(state.fingerprint()).0, state);
        let waiting: Vec<Waiting<S>> = model.init_states().into_iter().map(number).collect();
        let root = waiting.first().map_or(StateId(0), |(id, _)| *id);
        let first = waiting.first().and_then(|(_, state)| state.tally().cloned());
        Self { root, first, seen, waiting, logs: Vec::new() }
    }

    /// A walk that was kept, in which so far no state waits.
    pub(super) fn kept<M: Model<State = S>>(
        model: &M,
        root: StateId,
        fingerprints: &[u128],
        logs: Vec<EdgeLog>,
    ) -> Self {
        let seen = Seen::default();
        for fingerprint in fingerprints {
            seen.number(*fingerprint);
        }
        let first = model.init_states().first().and_then(|state| state.tally().cloned());
        Self { root, first, seen, waiting: Vec::new(), logs }
    }

    /// Walks on, until no state waits, or somebody ends the walk, or for so long.
    pub(super) fn go_on<M, V>(&mut self, model: &M, visitor: &V, threads: usize, until: Option<Instant>)
    where
        M: Model<State = S> + Sync,
        V: Visitor<S>,
    {
        let shared = SharedWalk {
            model,
            visitor,
            seen: &self.seen,
            given: Mutex::default(),
            news: Condvar::new(),
            threads: AtomicUsize::new(threads),
            idle: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            until,
        };
        let mut log = EdgeLog::default();
        let alone = if threads > 1 { ALONE_STATES } else { usize::MAX };
        if shared.expand(&mut self.waiting, &mut log, alone) {
            let stack = std::mem::take(&mut self.waiting);
            let done = std::thread::scope(|scope| {
                let spawn = |_| spawn_deep(scope, || shared.work(Vec::new())).ok();
                let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
                shared.has_threads(1 + helpers.len());
                let mut done = vec![shared.work(stack)];
                for helper in helpers {
                    done.push(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                }
                done
            });
            self.waiting = shared.given.into_inner().unwrap_or_else(PoisonError::into_inner);
            for (log, left) in done {
                self.logs.push(log);
                self.waiting.extend(left);
            }
        }
        self.logs.push(log);
    }

    /// How many states were come to.
    pub(super) fn states(&self) -> usize {
        self.seen.states()
    }

    /// The fingerprints of all states, in the order of their numbers.
    pub(super) fn fingerprints(&self) -> Vec<u128> {
        self.seen.fingerprints()
    }

    /// What was walked over so far.
    pub(super) fn graph_so_far(&self) -> StateGraph {
        StateGraph::of_logs(self.root, self.states(), &self.logs)
    }

    /// What was walked over.
    pub(super) fn into_graph(self) -> StateGraph {
        let Self { root, first, seen, waiting: _, logs } = self;
        let (states, fingerprint) = (seen.states(), seen.sum());
        drop(seen);
        StateGraph { fingerprint, before: first, ..StateGraph::of_logs(root, states, &logs) }
    }
}

/// Every state that a walk came to, and where actions lead.
#[derive(Debug)]
pub(super) struct StateGraph {
    /// The state before any action.
    root: StateId,
    /// Where the edges of each state begin; as many as it has actions.
    first: Vec<u32>,
    edges: Vec<StateId>,
    /// Of each edge how many choices it is; empty if all are one.
    choices: Vec<u8>,
    /// Of each edge the number of what it counts, from 1; empty if none counts anything.
    counted: Vec<u32>,
    tallies: Vec<Arc<EdgeTally>>,
    /// What ranks have come to before any action.
    before: Option<EdgeTally>,
    /// The sum of the fingerprints of all states.
    pub(super) fingerprint: u128,
}

impl StateGraph {
    /// Walks from the one initial state of a model to all others.
    pub(super) fn of<M, V>(model: &M, visitor: &V, threads: usize) -> Self
    where
        M: Model + Sync,
        M::State: WalkedState + Send,
        V: Visitor<M::State>,
    {
        let mut walk = GraphWalk::new(model);
        walk.go_on(model, visitor, threads, None);
        walk.into_graph()
    }

    fn of_logs(root: StateId, states: usize, logs: &[EdgeLog]) -> Self {
        // At first how many edges each state has, one place further on.
        let mut first = vec![0_u32; states + 1];
        for (from, to, _) in logs.iter().flat_map(EdgeLog::entries) {
            first[from.at() + 1] = u32::try_from(to.len()).expect("it was written in 32 bits");
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut edges = vec![root; first[states] as usize];
        let all_are_one = logs.iter().all(|log| log.choices.is_empty());
        let mut choices = if all_are_one { Vec::new() } else { vec![1; edges.len()] };
        let none_counts = logs.iter().all(|log| log.counted.is_empty());
        let mut counted = if none_counts { Vec::new() } else { vec![0; edges.len()] };
        let mut tallies: Vec<Arc<EdgeTally>> = Vec::new();
        for log in logs {
            for (from, to, logged) in log.entries() {
                let at = first[from.at()] as usize;
                if let Some(of_edges) = log.choices.get(logged..logged + to.len()) {
                    choices[at..at + to.len()].copy_from_slice(of_edges);
                }
                if let Some(of_edges) = log.counted.get(logged..logged + to.len()) {
                    let others = u32::try_from(tallies.len()).expect("fewer than 2^32 kinds of edges");
                    let here = of_edges.iter().map(|number| if *number == 0 { 0 } else { number + others });
                    counted[at..].iter_mut().zip(here).for_each(|(counted, number)| *counted = number);
                }
                for (edge, to) in edges[at..].iter_mut().zip(to) {
                    *edge = StateId(*to);
                }
            }
            tallies.extend_from_slice(&log.tallies.all);
        }
        Self { root, first, edges, choices, counted, tallies, before: None, fingerprint: 0 }
    }

    /// How many states were found, expanded or not.
    fn states(&self) -> usize {
        self.first.len() - 1
    }

    /// How many bytes the walk kept of all its states when it was over: their fingerprints and numbers, and each edge where
    /// it was found and where it is read. Not what tables hold in reserve, nor states that wait.
    pub(super) fn kept_bytes(&self) -> u64 {
        let seen = self.states() * size_of::<(u128, StateId)>();
        let expanded = self.first.windows(2).filter(|edges| edges[0] < edges[1]).count();
        let logged =
            (2 * expanded + self.edges.len() + self.counted.len()) * size_of::<u32>() + self.choices.len();
        let read = size_of_val(&*self.first)
            + size_of_val(&*self.edges)
            + size_of_val(&*self.choices)
            + size_of_val(&*self.counted);
        (seen + logged + read) as u64
    }

    /// The most that each of so many ranks comes to in any run that ends in such a state, where it stands in no state.
    pub(super) fn most(&self, ranks: u32, is_end: impl Fn(StateId) -> bool) -> Vec<Tally> {
        let Some(before) = &self.before else { return Vec::new() };
        let edges = CountedEdges {
            first: &self.first,
            to: &self.edges,
            counted: &self.counted,
            tallies: &self.tallies,
        };
        edges.most(before, (self.root, ranks), is_end)
    }

    fn edges(&self, of: StateId) -> Range<usize> {
        self.first[of.at()] as usize..self.first[of.at() + 1] as usize
    }

    fn successors(&self, of: StateId) -> &[StateId] {
        &self.edges[self.edges(of)]
    }

    /// All states in the order in which a search comes to them that takes those with the fewest choices first.
    pub(super) fn nearest_first(&self) -> NearestFirst {
        let mut order = NearestFirst {
            states: Vec::with_capacity(self.states()),
            depth: vec![u32::MAX; self.states()],
            before: vec![self.root; self.states()],
        };
        if self.states() == 0 {
            return order;
        }
        // States that were come by, by the number of choices. Only those just ahead are open.
        let mut open: VecDeque<Vec<StateId>> = VecDeque::from([vec![self.root]]);
        order.depth[self.root.at()] = 0;
        let mut depth = 0;
        while let Some(nearest) = open.pop_front() {
            for state in nearest {
                // It was come by again, with fewer choices.
                if order.depth[state.at()] != depth {
                    continue;
                }
                order.states.push(state);
                for edge in self.edges(state) {
                    let next = self.edges[edge];
                    let choices = self.choices.get(edge).copied().unwrap_or(1);
                    if depth + u32::from(choices) < order.depth[next.at()] {
                        order.depth[next.at()] = depth + u32::from(choices);
                        order.before[next.at()] = state;
                        let ahead = usize::from(choices) - 1;
                        open.resize_with(open.len().max(ahead + 1), Vec::new);
                        open[ahead].push(next);
                    }
                }
            }
            depth += 1;
        }
        order
    }

    /// Makes some states again, each along the shortest way to it: no other states are made, and none twice.
    ///
    /// That states of one fingerprint have the same actions in the same order is what makes it one fingerprint.
    pub(super) fn along_shortest_paths<M>(
        &self,
        model: &M,
        order: &NearestFirst,
        wanted: &BTreeSet<StateId>,
        mut each: impl FnMut(StateId, &M::State),
    ) where
        M: Model,
        M::State: WalkedState,
    {
        if wanted.is_empty() {
            return;
        }
        // On the way to some state that is wanted.
        let mut on_the_way: FxHashMap<StateId, Vec<StateId>> = FxHashMap::default();
        let mut known: BTreeSet<StateId> = BTreeSet::from([self.root]);
        for &state in wanted {
            let mut at = state;
            while known.insert(at) {
                let before = order.before[at.at()];
                on_the_way.entry(before).or_default().push(at);
                at = before;
            }
        }
        let mut stack: Vec<Waiting<M::State>> =
            model.init_states().into_iter().map(|state| (self.root, state)).collect();
        while let Some((id, state)) = stack.pop() {
            if wanted.contains(&id) {
                each(id, &state);
            }
            let Some(next) = on_the_way.get(&id) else { continue };
            let mut actions = Vec::new();
            model.actions(&state, &mut actions);
            let successors = self.successors(id);
            debug_assert_eq!(
                successors.len(),
                actions.len(),
                "states of one fingerprint have the same actions"
            );
            let mut missing: BTreeSet<StateId> = next.iter().copied().collect();
            for (&to, action) in successors.iter().zip(actions) {
                if missing.remove(&to)
                    && let Some(state) = model.next_state(&state, action)
                {
                    stack.push((to, state));
                }
            }
        }
    }
}

/// States in the order of the number of choices that lead to them at least.
#[derive(Debug)]
pub(super) struct NearestFirst {
    /// Those that can be reached, the nearest first.
    pub(super) states: Vec<StateId>,
    depth: Vec<u32>,
    before: Vec<StateId>,
}

impl NearestFirst {
    /// How many choices lead to a state at least.
    pub(super) fn depth(&self, of: StateId) -> u32 {
        self.depth[of.at()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_a_mistake_grows_with_the_square_of_the_states() {
        let below = [1, 6, 1_000_000, 100_000_000, 1 << 63, u64::MAX].map(taken_for_one_below);
        assert_eq!(below, [38, 37, 26, 22, 0, 0]);
    }
}
