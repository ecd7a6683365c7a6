//! Trials: the run that is shown, once more with something changed, to see whether its finding is still there.
//!
//! An operation is left out, a decision falls otherwise, an operation is exchanged for another. The rest of the run
//! stays what it was: the values and orders that were chosen are chosen again, by the operation that they belong to.
//! What the change newly leaves open is explored, and the finding is gone only if no completion shows it.
//! Not here: what is tried, and what is said about it ([`super::explain`]).

mod performed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::edit::{Edits, OpPosition};
use rankcheck_model::{
    About, Answer, Choice, Config, Explain, FindingKey, Interruption, Loc, LocId, Machine, Mode, Op, OpRef,
    Rank, Rule, Slot, Source, SourceError, State, Symmetry, Thread, ThreadStart,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bounds::Bounds;
use super::changed::changed;
use super::explore::explore_agreeing;
use super::replay::{Decision, decision};
use super::turn::{Turn, fails};
use performed::{PerformedOps, performed};

pub use performed::Performed;

/// What a change does to the finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialResult {
    /// Some completion of the changed run breaks the same rule on the same object.
    Stays,
    /// No completion does.
    Gone,
    /// The trials together took more operations than they may, or this one has too many completions.
    Unknown,
}

/// What a choice of the run was about, and what was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TakenChoice {
    turn: Turn,
    /// The values; none for an order.
    values: Option<Vec<u32>>,
}

/// A moment of the run, and which of the recorded choices were taken by then.
#[derive(Clone)]
struct Reached {
    state: State,
    taken: Vec<bool>,
}

/// The shown run as far as it is known what is contended, ready to be tried.
struct KnownRun {
    machine: Machine,
    /// What was chosen, in the order of the run. Orders that only a wider set of contended objects leaves open come
    /// after those of the run that is shown.
    chosen: Vec<TakenChoice>,
    by_choice: FxHashMap<TakenChoice, Vec<usize>>,
    /// Moments of the run in their order, so that a trial need not begin at its start; the last one is its end.
    moments: Moments,
}

/// Moments of a run that are kept: every so many choices, and every so many operations between them.
struct Moments {
    kept: Vec<Reached>,
    choices: u64,
    operations: u64,
    /// Choices since the last moment that was kept before one.
    passed: u64,
}

/// Moments that are kept at most.
const MOMENTS: usize = 256;
/// Operations of a rank between two moments at least: a copy of a rank takes as long as a few of them.
const OPERATIONS_OF_RANK: u64 = 16;
/// Completions of one changed run that are looked at.
const COMPLETIONS: usize = 64;
/// States of a program whose ranks decide alike that are looked at.
const AGREEING_STATES: u64 = 2_000;
/// How often a run is begun again at most, each time with more known to be contended.
const ATTEMPTS: usize = 8;

/// Values that a rank takes in one place.
struct PlacedValues {
    rank: Rank,
    loc: LocId,
    values: Vec<u32>,
}

/// Why a run has to be begun again, or cannot be made.
enum Again {
    With(Box<Config>),
    Source(SourceError),
    GiveUp,
}

impl KnownRun {
    /// Makes the run of these choices, and takes the first of what is open beside them.
    fn new(source: &Arc<dyn Source>, config: Config, chosen: Vec<TakenChoice>) -> Result<Self, Again> {
        let mut by_choice: FxHashMap<TakenChoice, Vec<usize>> = FxHashMap::default();
        for (nth, chosen) in chosen.iter().enumerate() {
            by_choice.entry(chosen.clone()).or_default().push(nth);
        }
        let machine = Machine::new(Arc::clone(source), config);
        let moments = Moments::of_run(machine.config.ranks);
        let mut base = Self { machine, chosen, by_choice, moments };
        base.follow()?;
        Ok(base)
    }

    fn follow(&mut self) -> Result<(), Again> {
        let mut moment = self.start();
        self.moments.kept.push(moment.clone());
        loop {
            self.advance(&mut moment)?;
            let choices = self.machine.choices(&moment.state);
            if choices.is_empty() {
                break;
            }
            self.moments.pass_choice(&moment);
            let recorded = self.recorded(&moment, &choices);
            let (choice, nth) = recorded.unwrap_or_else(|| (choices[0].clone(), self.chosen.len()));
            if nth == self.chosen.len()
                && let Some(chosen) = taken(&self.machine, &moment.state, &choice)
            {
                self.by_choice.entry(chosen.clone()).or_default().push(nth);
                self.chosen.push(chosen);
            }
            moment.note_taken(nth);
            self.machine.take(&mut moment.state, &choice);
        }
        self.machine.contend_blocked(&moment.state);
        self.interrupted()?;
        self.moments.kept.push(moment);
        Ok(())
    }

    /// Goes on until only choices are left, and keeps moments on the way.
    fn advance(&mut self, moment: &mut Reached) -> Result<(), Again> {
        let before = moment.state.steps;
        while !self.machine.advance_for(&mut moment.state, self.moments.operations) {
            if moment.state.steps - before > self.machine.config.steps_at_most {
                return Err(Again::GiveUp);
            }
            self.interrupted()?;
            self.moments.keep(moment);
        }
        self.interrupted()
    }

    /// The choice that comes first in the recorded run, of those that are possible now.
    fn recorded(&self, moment: &Reached, choices: &[Choice]) -> Option<(Choice, usize)> {
        let known = choices.iter().filter_map(|choice| {
            let of = self.by_choice.get(&taken(&self.machine, &moment.state, choice)?)?;
            let nth = of.iter().copied().find(|nth| !moment.is_taken(*nth))?;
            Some((choice, nth))
        });
        let (choice, nth) = known.min_by_key(|(_, nth)| *nth)?;
        Some((choice.clone(), nth))
    }

    fn take(&self, moment: &mut Reached, choice: &Choice, nth: Option<usize>) {
        if let Some(nth) = nth {
            moment.note_taken(nth);
        }
        self.machine.take(&mut moment.state, choice);
        self.machine.advance(&mut moment.state);
    }

    fn interrupted(&self) -> Result<(), Again> {
        let config = || Config { edits: Edits::default(), ..self.machine.config.clone() };
        match self.machine.interruption() {
            None => Ok(()),
            Some(Interruption::Source(error)) => Err(Again::Source(error)),
            Some(Interruption::Steps(_)) => Err(Again::GiveUp),
            Some(Interruption::Actors(actors)) => {
                Err(Again::With(Box::new(Config { actors_per_rank: actors, ..config() })))
            }
            Some(Interruption::Contents) => {
                Err(Again::With(Box::new(Config { follows_contents: true, ..config() })))
            }
            Some(Interruption::Remember(_)) => unreachable!("runs that are tried tell histories apart"),
            Some(Interruption::Contended(objects)) => {
                let mut wider = config();
                wider.contended.extend(objects);
                Err(Again::With(Box::new(wider)))
            }
        }
    }

    /// The moment before a choice of the run, and what else could be chosen there.
    fn before(&self, nth: usize) -> Result<Option<(Reached, Vec<Choice>)>, Again> {
        let Some(mut moment) = self.moments.last_before(|moment| moment.is_taken(nth)) else {
            return Ok(None);
        };
        self.machine.advance(&mut moment.state);
        self.interrupted()?;
        loop {
            let choices = self.machine.choices(&moment.state);
            let Some((choice, next)) = self.recorded(&moment, &choices) else { return Ok(None) };
            if next == nth {
                let others = choices.into_iter().filter(|other| *other != choice).collect();
                return Ok(Some((moment, others)));
            }
            self.take(&mut moment, &choice, Some(next));
            self.interrupted()?;
        }
    }

    /// The last moment at which a thread has not begun an operation.
    fn before_operation(&self, at: OpPosition) -> Option<Reached> {
        let begun = |moment: &Reached| {
            let thread = moment.state.rank(at.rank).threads().iter().find(|t| t.start() == at.start);
            // Whoever was let on in a call that waits for others is ready again, in the midst of it.
            thread.is_some_and(|t| (t.index(), t.taken()) > (at.index, 0) || !t.is_ready())
        };
        self.moments.last_before(begun)
    }

    /// The moment before anything has happened.
    /// The values of a choice, and where they are taken.
    fn place(&self, state: &State, choice: &Choice) -> Option<PlacedValues> {
        let Choice::Value(rank, thread, values) = choice else { return None };
        let loc = self.machine.next_op(state, *rank, *thread).loc;
        Some(PlacedValues { rank: *rank, loc, values: values.clone() })
    }

    /// Leaves of the choices those in which a rank takes the same values in a place as it always does, if it can.
    fn keep_always(&self, state: &State, always: &PlacedValues, choices: &mut Vec<Choice>) {
        let is_there = |placed: &PlacedValues| (placed.rank, placed.loc) == (always.rank, always.loc);
        let takes = |choice: &Choice| {
            let placed = self.place(state, choice).filter(is_there);
            placed.is_none_or(|placed| placed.values == always.values)
        };
        if choices.iter().any(takes) {
            choices.retain(takes);
        }
    }

    fn start(&self) -> Reached {
        Reached { state: self.machine.init(), taken: vec![false; self.chosen.len()] }
    }
}

impl Moments {
    fn of_run(ranks: u32) -> Self {
        let operations = OPERATIONS_OF_RANK * u64::from(ranks);
        Self { kept: Vec::new(), choices: 1, operations, passed: 0 }
    }

    /// The run comes to a choice.
    fn pass_choice(&mut self, moment: &Reached) {
        self.passed += 1;
        if self.passed >= self.choices {
            self.passed = 0;
            self.keep(moment);
        }
    }

    fn keep(&mut self, moment: &Reached) {
        self.kept.push(moment.clone());
        if self.kept.len() > MOMENTS {
            let mut nth = 0_usize;
            self.kept.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.choices *= 2;
            self.operations *= 2;
        }
    }

    /// The last moment before something has happened.
    fn last_before(&self, has_happened: impl Fn(&Reached) -> bool) -> Option<Reached> {
        let until = self.kept.partition_point(|moment| !has_happened(moment));
        until.checked_sub(1).map(|last| self.kept[last].clone())
    }

    /// The end of the run, once it was followed.
    fn end(&self) -> Option<&State> {
        self.kept.last().map(|moment| &moment.state)
    }
}

impl Reached {
    fn note_taken(&mut self, nth: usize) {
        self.taken.resize(self.taken.len().max(nth + 1), false);
        self.taken[nth] = true;
    }

    fn is_taken(&self, nth: usize) -> bool {
        self.taken.get(nth).copied().unwrap_or(false)
    }
}

/// The shown run, ready to be tried.
pub struct Trials<'a> {
    source: &'a Arc<dyn Source>,
    rule: Rule,
    about: String,
    by: Option<Rank>,
    /// What the shown run breaks: the rule, the object in words, and the rank that it belongs to, if it does to one.
    shown: BTreeSet<(Rule, String, Option<Rank>)>,
    performed: PerformedOps,
    /// Results that operations of the run use.
    used: FxHashSet<(Rank, Slot)>,
    answers: Arc<BTreeMap<OpPosition, Answer>>,
    /// Which choices the decisions of the told run are.
    told: Vec<usize>,
    /// The run as it is shown, then with more known to be contended, as changed runs found out. A trial begins with the
    /// first, so that it does not matter what was tried before.
    bases: Vec<KnownRun>,
    /// Operations that were executed in trials, and how many may be.
    spent: u64,
    limit: u64,
    /// For each rank the smallest one that did the same.
    twin_of: Vec<Rank>,
}

impl<'a> Trials<'a> {
    /// Prepares trials of the run that takes these choices, for its finding. None if the run does not show it.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn new(
        source: &'a Arc<dyn Source>,
        config: &Config,
        choices: &[Choice],
        (rule, about, by): (Rule, &str, Option<Rank>),
        limit: u64,
    ) -> Result<Option<Self>, SourceError> {
        let config = Config { explain: Explain::No, edits: Edits::default(), ..config.clone() };
        let machine = Machine::new(Arc::clone(source), config.clone());
        let mut state = machine.init();
        let naive = config.mode == Mode::Naive;
        let settle = |state: &mut State| {
            if !naive {
                machine.advance(state);
            }
        };
        settle(&mut state);
        let mut chosen = Vec::new();
        for choice in choices {
            chosen.extend(taken(&machine, &state, choice));
            machine.take(&mut state, choice);
            settle(&mut state);
        }
        if let Some(Interruption::Source(error)) = machine.interruption() {
            return Err(error);
        }
        let (performed, answers) = performed(source, &config, &state)?;
        let uses = |user: &Performed| {
            let rank = user.at.rank;
            user.uses.iter().map(move |slot| (rank, *slot)).collect::<Vec<_>>()
        };
        let mut used: FxHashSet<(Rank, Slot)> = performed.values().flat_map(uses).collect();
        for rank in (0..config.ranks).map(Rank) {
            let threads = (0..).map(Thread).zip(state.rank(rank).threads());
            let ahead = threads.filter_map(|(thread, _)| machine.used_ahead(&state, rank, thread));
            used.extend(ahead.flatten().map(|slot| (rank, slot)));
        }
        // Without reduction every step is a choice, and only values are told.
        let told = |nth: &usize| !naive || chosen[*nth].values.is_some();
        let told = (0..chosen.len()).filter(told).collect();
        let mut trials = Self {
            source,
            rule,
            about: about.to_owned(),
            by,
            shown: BTreeSet::new(),
            performed,
            used,
            answers: Arc::new(answers),
            told,
            bases: Vec::new(),
            spent: 0,
            limit,
            twin_of: Vec::new(),
        };
        let mut config = Config { mode: Mode::Reduced, ..config };
        for _ in 0..ATTEMPTS {
            match KnownRun::new(source, config, chosen.clone()) {
                Ok(base) => {
                    let end = base.moments.end().cloned();
                    trials.bases.push(base);
                    if !end.as_ref().is_some_and(|end| trials.shows(0, end)) {
                        return Ok(None);
                    }
                    let machine = &trials.bases[0].machine;
                    let end = end.and_then(|end| finished(machine, &end)).expect("it shows the finding");
                    let told = |key: &FindingKey| (key.rule, machine.about(key.about), key.by);
                    trials.shown = end.findings().keys().map(told).collect();
                    trials.twin_of = trials.twins();
                    return Ok(Some(trials));
                }
                Err(Again::With(wider)) => config = *wider,
                Err(Again::Source(error)) => return Err(error),
                Err(Again::GiveUp) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The operation or question at a position, if the run came by it.
    #[must_use]
    pub fn performed_at(&self, at: OpPosition) -> Option<&Performed> {
        self.performed.get(&at)
    }

    /// The position of an operation of the shown run.
    #[must_use]
    pub fn position(&self, op: &OpRef) -> Option<OpPosition> {
        let end = self.bases.first()?.moments.end()?;
        let start = end.rank(op.rank).threads().get(op.thread.at())?.start();
        Some(OpPosition { rank: op.rank, start, index: op.index })
    }

    /// Whether the program has this rank.
    pub(crate) fn has(&self, rank: Rank) -> bool {
        rank.0 < self.bases[0].machine.config.ranks
    }

    /// Whether a rank's first thread may still do an operation where the shown run ends.
    pub(crate) fn may_do(&self, rank: Rank, op: &Op) -> bool {
        let first = |end: &State| end.rank(rank).threads().first().is_some_and(|thread| thread.may_do(op));
        self.bases[0].moments.end().is_none_or(first)
    }

    /// Whether an operation of the run uses what this one makes.
    #[must_use]
    pub fn is_used(&self, performed: &Performed) -> bool {
        let OpPosition { rank, start, .. } = performed.at;
        performed.produces.clone().any(|index| self.used.contains(&(rank, Slot { start, index })))
    }

    /// The smallest rank that did the same as this one in everything, so that a trial of one is a trial of the other.
    pub(crate) fn twin_of(&self, rank: Rank) -> Rank {
        self.twin_of.get(rank.at()).copied().unwrap_or(rank)
    }

    /// Whether a complete run breaks the rule on the object.
    fn shows(&self, base: usize, state: &State) -> bool {
        let machine = &self.bases[base].machine;
        finished(machine, state).is_some_and(|state| self.found(machine, &state).is_some())
    }

    /// Whether a complete run breaks the rule on the object, or what the shown run does not break.
    fn shows_or_breaks_more(&self, base: usize, state: &State) -> bool {
        let machine = &self.bases[base].machine;
        let known = |key: &FindingKey| self.shown.contains(&(key.rule, machine.about(key.about), key.by));
        finished(machine, state)
            .is_some_and(|state| self.found(machine, &state).is_some() || !state.findings().keys().all(known))
    }

    /// Whether a complete run breaks any rule.
    fn breaks(&self, base: usize, state: &State) -> bool {
        finished(&self.bases[base].machine, state).is_some_and(|state| !state.findings().is_empty())
    }

    /// The object of the finding, if it is among those of a state.
    fn found(&self, machine: &Machine, state: &State) -> Option<About> {
        let is = |key: &&FindingKey| (key.rule, key.by) == (self.rule, self.by);
        let mut same = state.findings().keys().filter(is).map(|key| key.about);
        same.find(|about| machine.about(*about) == self.about)
    }

    /// For each rank the smallest one that did the same, where ranks are interchangeable and only values were chosen.
    fn twins(&self) -> Vec<Rank> {
        let KnownRun { machine, chosen, moments, .. } = &self.bases[0];
        let ranks = (0..machine.config.ranks).map(Rank);
        let ordered = chosen.iter().any(|chosen| chosen.values.is_none());
        if self.source.symmetry() != Symmetry::Interchangeable || ordered {
            return ranks.collect();
        }
        // A rank that the finding belongs to is like no other.
        let mut end = moments.end().expect("the run was followed").clone();
        machine.finish(&mut end);
        let mut special = self.found(machine, &end).map(ranks_of).unwrap_or_default();
        special.extend(self.by);
        type Did<'a> = (Vec<(ThreadStart, Option<&'a Op>)>, Vec<(ThreadStart, u32, &'a [u32])>, Option<Rank>);
        let mut known: FxHashMap<Did<'_>, Rank> = FxHashMap::default();
        let twin = |rank| {
            let did = self.performed.values().filter(|performed| performed.at.rank == rank);
            let of = chosen.iter().filter_map(|chosen| match &chosen.turn {
                Turn::Thread { op, .. } if op.at.rank == rank => Some((op.at, chosen.values.as_deref()?)),
                Turn::Thread { .. } | Turn::Meets(_) | Turn::Stream { .. } => None,
            });
            let did = (
                did.map(|performed| (performed.at.start, performed.op.as_ref())).collect(),
                of.map(|(at, values)| (at.start, at.index, values)).collect(),
                special.contains(&rank).then_some(rank),
            );
            *known.entry(did).or_insert(rank)
        };
        ranks.map(twin).collect()
    }

    /// Whether some completion of a run from this moment shows something, of those in which a rank always takes the same values in
    /// a place, if such are given.
    fn complete_until(
        &mut self,
        base: usize,
        mut moment: Reached,
        shows: fn(&Self, usize, &State) -> bool,
        always: Option<&PlacedValues>,
    ) -> Result<TrialResult, Again> {
        let of = &self.bases[base];
        let before = of.machine.steps_total();
        of.machine.advance(&mut moment.state);
        of.interrupted()?;
        let mut open = vec![moment];
        let mut completions = 0;
        let effect = loop {
            let Some(mut moment) = open.pop() else { break TrialResult::Gone };
            let of = &self.bases[base];
            if self.spent + (of.machine.steps_total() - before) > self.limit || completions > COMPLETIONS {
                break TrialResult::Unknown;
            }
            let mut choices = of.machine.choices(&moment.state);
            if let Some(always) = always {
                of.keep_always(&moment.state, always, &mut choices);
            }
            if choices.is_empty() {
                completions += 1;
                if shows(self, base, &moment.state) {
                    break TrialResult::Stays;
                }
                of.interrupted()?;
                continue;
            }
            if let Some((choice, nth)) = of.recorded(&moment, &choices) {
                of.take(&mut moment, &choice, Some(nth));
                open.push(moment);
            } else {
                // What did not fail in the shown run does not fail now.
                for choice in choices.iter().filter(|choice| !fails(&of.machine, &moment.state, choice)).rev()
                {
                    let mut other = moment.clone();
                    of.take(&mut other, choice, None);
                    open.push(other);
                }
            }
            of.interrupted()?;
        };
        self.spent += self.bases[base].machine.steps_total() - before;
        Ok(effect)
    }

    /// What the program shows if its ranks decide alike in a place, each time: the rule must not be broken in any run of it.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn agreeing(&mut self, at: &Loc) -> Result<TrialResult, SourceError> {
        let left = self.limit.saturating_sub(self.spent);
        // A state takes at most about as many operations as the run that is shown.
        let states = (left / self.performed.len().max(1) as u64).min(AGREEING_STATES);
        let bounds = Bounds { states, ..Bounds::default() };
        let config = self.bases[0].machine.config.clone();
        let found = explore_agreeing(self.source, config, &bounds, vec![at.clone()])?;
        self.spent += found.steps;
        Ok(match found.bound {
            Some(_) => TrialResult::Unknown,
            None if found.broken.contains_key(&self.rule) => TrialResult::Stays,
            None => TrialResult::Gone,
        })
    }

    /// Makes a trial, again with more known to be contended where it finds something.
    fn attempt(
        &mut self,
        trial: impl Fn(&mut Self, usize) -> Result<TrialResult, Again>,
    ) -> Result<TrialResult, SourceError> {
        let mut base = 0;
        for _ in 0..ATTEMPTS {
            if self.spent > self.limit {
                return Ok(TrialResult::Unknown);
            }
            let result = trial(self, base);
            self.bases[base].machine.config.edits = Edits::default();
            if result.is_err() {
                self.renew(base)?;
            }
            match result {
                Ok(effect) => return Ok(effect),
                // What is changed so is no program: without an operation, somebody may ask for what it would have made.
                Err(Again::Source(_)) => return Ok(TrialResult::Stays),
                Err(Again::GiveUp) => return Ok(TrialResult::Unknown),
                Err(Again::With(config)) => match self.base_of(*config)? {
                    Some(wider) => base = wider,
                    None => return Ok(TrialResult::Unknown),
                },
            }
        }
        Ok(TrialResult::Unknown)
    }

    /// A machine that was interrupted does not go on.
    fn renew(&mut self, base: usize) -> Result<(), SourceError> {
        let KnownRun { machine, chosen, .. } = &self.bases[base];
        let (config, chosen) = (machine.config.clone(), chosen.clone());
        match KnownRun::new(self.source, config, chosen) {
            Ok(renewed) => self.bases[base] = renewed,
            Err(Again::Source(error)) => return Err(error),
            Err(Again::With(_) | Again::GiveUp) => unreachable!("the same run was made before"),
        }
        Ok(())
    }

    /// The shown run with so much known to be contended. None if it cannot be made, or does not show the finding.
    fn base_of(&mut self, mut config: Config) -> Result<Option<usize>, SourceError> {
        for _ in 0..ATTEMPTS {
            let is = |base: &KnownRun| {
                let known = &base.machine.config;
                (&known.contended, known.actors_per_rank) == (&config.contended, config.actors_per_rank)
            };
            if let Some(known) = self.bases.iter().position(is) {
                return Ok(Some(known));
            }
            match KnownRun::new(self.source, config, self.bases[0].chosen.clone()) {
                Ok(base) => {
                    let end = base.moments.end().cloned();
                    self.bases.push(base);
                    let at = self.bases.len() - 1;
                    if end.is_some_and(|end| self.shows(at, &end)) {
                        return Ok(Some(at));
                    }
                    self.bases.pop();
                    return Ok(None);
                }
                Err(Again::With(wider)) => config = *wider,
                Err(Again::Source(error)) => return Err(error),
                Err(Again::GiveUp) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// What the run shows without an operation and without whatever uses its result.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn without(&mut self, at: OpPosition) -> Result<TrialResult, SourceError> {
        self.without_all(at, &self.with_users(at), Self::shows)
    }

    /// What the run shows without some operations and whatever uses their results, where what it breaks instead counts as the
    /// finding does.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn repaired_without(&mut self, all: &[OpPosition]) -> Result<TrialResult, SourceError> {
        let Some(first) = all.iter().min() else { return Ok(TrialResult::Stays) };
        let left_out = all.iter().flat_map(|at| self.with_users(*at)).collect();
        self.without_all(*first, &left_out, Self::shows_or_breaks_more)
    }

    /// Where the thread of an operation does the same behind it in the same place, as far as its questions were answered.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub(crate) fn again(&self, at: OpPosition, loc: LocId) -> Result<Vec<OpPosition>, SourceError> {
        let Some(end) = self.bases[0].moments.end() else { return Ok(Vec::new()) };
        let thread = end.rank(at.rank).threads().iter().find(|thread| thread.start() == at.start);
        let op = self.performed_at(at).and_then(|performed| performed.op.as_ref());
        let (Some(thread), Some(op)) = (thread, op) else { return Ok(Vec::new()) };
        let (mut again, mut index) = (Vec::new(), 0);
        let answers = thread.answers();
        for known in 0..=answers.len() {
            let block = self.source.block(at.rank, at.start, &answers[..known])?;
            for statement in &block.ops {
                if index > at.index && statement.loc == loc && *statement.op == *op {
                    again.push(OpPosition { index, ..at });
                }
                index += 1;
            }
            // The question that was answered.
            index += 1;
        }
        Ok(again)
    }

    /// What the run shows without whatever uses the result of an operation; none if nothing does.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn without_users(&mut self, at: OpPosition) -> Result<Option<TrialResult>, SourceError> {
        let mut users = self.with_users(at);
        users.remove(&at);
        if users.is_empty() { Ok(None) } else { self.without_all(at, &users, Self::shows).map(Some) }
    }

    /// What the run shows without some operations, of which none comes before the first.
    fn without_all(
        &mut self,
        at: OpPosition,
        left_out: &BTreeSet<OpPosition>,
        shows: fn(&Self, usize, &State) -> bool,
    ) -> Result<TrialResult, SourceError> {
        self.attempt(|trials, base| {
            let moment = trials.bases[base].before_operation(at);
            trials.bases[base].machine.config.edits = Edits {
                left_out: left_out.clone(),
                answers: Arc::clone(&trials.answers),
                ..Edits::default()
            };
            let moment = moment.expect("at its start, the run has begun nothing");
            trials.complete_until(base, moment, shows, None)
        })
    }

    /// An operation, and all that use what it makes.
    fn with_users(&self, at: OpPosition) -> BTreeSet<OpPosition> {
        let mut left_out = BTreeSet::from([at]);
        let mut slots: BTreeSet<Slot> = BTreeSet::new();
        // A thread's operations stand in their order, and slots of a thread are used by those that it starts.
        loop {
            let known = left_out.len();
            for performed in self.performed.values() {
                let uses =
                    performed.at.rank == at.rank && performed.uses.iter().any(|slot| slots.contains(slot));
                if performed.op.is_some() && uses {
                    left_out.insert(performed.at);
                }
                if uses || left_out.contains(&performed.at) {
                    let start = performed.at.start;
                    slots.extend(performed.produces.clone().map(|index| Slot { start, index }));
                }
            }
            if left_out.len() == known {
                return left_out;
            }
        }
    }

    /// The operations that made what this one uses, and what those used, on and on.
    #[must_use]
    pub fn makers(&self, at: OpPosition) -> BTreeSet<OpPosition> {
        let mut makers = BTreeSet::new();
        let mut wanted = vec![at];
        while let Some(at) = wanted.pop() {
            let Some(user) = self.performed_at(at) else { continue };
            for slot in &user.uses {
                let made = self.performed.values().find(|performed| {
                    performed.at.rank == at.rank
                        && performed.at.start == slot.start
                        && performed.produces.contains(&slot.index)
                });
                if let Some(made) = made
                    && makers.insert(made.at)
                {
                    wanted.push(made.at);
                }
            }
        }
        makers
    }

    /// Slots of a rank that come from what another rank has no part in: a communicator of which it is no member.
    pub(crate) fn made_apart(&self, rank: Rank, peer: Rank) -> FxHashSet<Slot> {
        let mut apart: FxHashSet<Slot> = FxHashSet::default();
        for performed in self.performed.values().filter(|performed| performed.at.rank == rank) {
            let own = performed.op.as_ref().is_some_and(|op| !op.admits(peer));
            if own || performed.uses.iter().any(|slot| apart.contains(slot)) {
                let start = performed.at.start;
                apart.extend(performed.produces.clone().map(|index| Slot { start, index }));
            }
        }
        apart
    }

    /// What else could have been chosen than the n-th choice of the run: other values of the same thread, or another
    /// order.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn alternatives(&mut self, nth: usize) -> Result<Vec<Choice>, SourceError> {
        match self.bases[0].before(nth) {
            Ok(before) => Ok(before.map(|(_, others)| others).unwrap_or_default()),
            Err(Again::Source(error)) => Err(error),
            Err(Again::GiveUp | Again::With(_)) => Ok(Vec::new()),
        }
    }

    /// What the run shows where another choice was taken in place of the n-th.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn instead(&mut self, nth: usize, other: &Choice) -> Result<TrialResult, SourceError> {
        self.instead_at(nth, other, false)
    }

    /// What the run shows where other values were taken in place of the n-th choice, and in the same place each time that the
    /// rank comes by again.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn instead_each_time(&mut self, nth: usize, other: &Choice) -> Result<TrialResult, SourceError> {
        self.instead_at(nth, other, true)
    }

    fn instead_at(
        &mut self,
        nth: usize,
        other: &Choice,
        each_time: bool,
    ) -> Result<TrialResult, SourceError> {
        self.attempt(|trials, base| {
            let of = &trials.bases[base];
            let Some((mut moment, others)) = of.before(nth)? else { return Ok(TrialResult::Unknown) };
            if !others.contains(other) {
                return Ok(TrialResult::Unknown);
            }
            // An order that comes later is a choice that is still to be taken.
            let later = taken(&of.machine, &moment.state, other)
                .filter(|chosen| chosen.values.is_none())
                .and_then(|chosen| of.by_choice.get(&chosen))
                .and_then(|of| of.iter().copied().find(|nth| !moment.is_taken(*nth)));
            let taken = if of.chosen[nth].values.is_some() { Some(nth) } else { later };
            let always = of.place(&moment.state, other).filter(|_| each_time);
            of.take(&mut moment, other, taken);
            of.interrupted()?;
            trials.complete_until(base, moment, Self::shows, always.as_ref())
        })
    }

    /// What the run shows where a question is answered otherwise. The program may do something else then, so the finding is gone
    /// only if nothing is broken at all.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn answered(&mut self, at: OpPosition, answer: Answer) -> Result<TrialResult, SourceError> {
        // What its thread asks behind that is another program's.
        let kept =
            |other: &OpPosition| (other.rank, other.start) != (at.rank, at.start) || other.index < at.index;
        let others = self.answers.iter().filter(|(other, _)| kept(other));
        let answers = others.map(|(other, answer)| (*other, *answer)).chain([(at, answer)]).collect();
        let answers: Arc<BTreeMap<OpPosition, Answer>> = Arc::new(answers);
        self.attempt(|trials, base| {
            let moment = trials.bases[base].before_operation(at);
            trials.bases[base].machine.config.edits =
                Edits { answers: Arc::clone(&answers), ..Edits::default() };
            let moment = moment.expect("at its start, the run has begun nothing");
            trials.complete_until(base, moment, Self::breaks, None)
        })
    }

    /// What the run shows where an operation is another one, which [admits](Op::admits) its rank. What uses the result
    /// of the first goes on with that of the other.
    pub fn exchanged(&mut self, at: OpPosition, op: &Op) -> TrialResult {
        self.exchanged_until(at, op, Self::shows)
    }

    /// As [`Trials::exchanged`], where what the run breaks instead counts as the finding does.
    pub fn repaired_by_exchange(&mut self, at: OpPosition, op: &Op) -> TrialResult {
        self.exchanged_until(at, op, Self::shows_or_breaks_more)
    }

    fn exchanged_until(
        &mut self,
        at: OpPosition,
        op: &Op,
        shows: fn(&Self, usize, &State) -> bool,
    ) -> TrialResult {
        let op = op.clone();
        let slots =
            self.performed_at(at).map(|performed| (at, performed.produces.end - performed.produces.start));
        let edits = Edits {
            slots: slots.into_iter().collect(),
            answers: Arc::clone(&self.answers),
            ..Edits::default()
        };
        let source = changed(self.source, move |block, of| {
            if (of.rank, of.start) != (at.rank, at.start) {
                return Ok(None);
            }
            let nth = at.index.checked_sub(of.first()?).map(|nth| nth as usize);
            Ok(nth.filter(|nth| *nth < block.ops.len()).map(|nth| {
                let mut block = block.clone();
                block.ops[nth].op = op.clone().into();
                block
            }))
        });
        let KnownRun { machine, chosen, by_choice, .. } = &self.bases[0];
        let (chosen, by_choice) = (chosen.clone(), by_choice.clone());
        let mut config = Config { edits: edits.clone(), ..machine.config.clone() };
        for _ in 0..ATTEMPTS {
            let machine = Machine::new(Arc::clone(&source), config);
            let (chosen, by_choice) = (chosen.clone(), by_choice.clone());
            let moments = Moments::of_run(machine.config.ranks);
            self.bases.push(KnownRun { machine, chosen, by_choice, moments });
            let at = self.bases.len() - 1;
            let start = self.bases[at].start();
            let result = self.complete_until(at, start, shows, None);
            self.bases.pop();
            match result {
                Ok(effect) => return effect,
                Err(Again::With(wider)) => config = Config { edits: edits.clone(), ..*wider },
                // An operation where it was not written may be no program at all.
                Err(Again::Source(_) | Again::GiveUp) => return TrialResult::Unknown,
            }
        }
        TrialResult::Unknown
    }

    /// The choice that a decision of the told run tells.
    #[must_use]
    pub fn choice_of(&self, decision: usize) -> Option<usize> {
        self.told.get(decision).copied()
    }

    /// What another choice in place of the n-th decides.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub(crate) fn told(&mut self, nth: usize, other: &Choice) -> Result<Option<Decision>, SourceError> {
        match self.bases[0].before(nth) {
            Ok(Some((moment, _))) => {
                let told = decision(&self.bases[0].machine, &moment.state, other, nth);
                Ok(told.ok().flatten())
            }
            Ok(None) | Err(Again::GiveUp | Again::With(_)) => Ok(None),
            Err(Again::Source(error)) => Err(error),
        }
    }
}

/// The end of a complete run with what is found there; none if it is no run of the program, or is to be made again.
fn finished(machine: &Machine, state: &State) -> Option<State> {
    machine.contend_blocked(state);
    if machine.interrupted() || machine.infeasible(state) {
        return None;
    }
    let mut state = state.clone();
    machine.finish(&mut state);
    Some(state)
}

/// What a choice takes, for choices of the reduced semantics and values of the other.
fn taken(machine: &Machine, state: &State, choice: &Choice) -> Option<TakenChoice> {
    let values = match choice {
        Choice::Value(_, _, values) => Some(values.clone()),
        Choice::Thread(..) | Choice::Stream(..) | Choice::Transfer(_) | Choice::Meet(_) => None,
    };
    Some(TakenChoice { turn: Turn::of(machine, state, choice)?, values })
}

/// The ranks that an object belongs to, if it is of some alone.
fn ranks_of(about: About) -> Vec<Rank> {
    match about {
        About::Pair(_, from, to) => vec![from, to],
        About::Memory(rank, _) | About::Of(rank, _) | About::Rank(rank) => vec![rank],
        About::Comm(_) | About::Window(..) | About::Named(_) | About::Hosts => Vec::new(),
    }
}
