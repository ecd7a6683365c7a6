//! The counterexample: a run that breaks a rule, the operations of it that matter, and what decided it.
//!
//! An operation matters if the run without it does not show the finding; a cause is a decision or a difference between
//! ranks that makes the finding go away where it falls otherwise, or where ranks decide alike. Both are tried, not guessed.
//! Not here: how a run is told ([`mod@super::replay`]), how a trial is made ([`super::trial`]), and layout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::edit::OpPosition;
use rankcheck_model::machine::Kind;
use rankcheck_model::{
    Answer, Choice, GraphOp, GroupOp, Loc, LocId, Op, Question, Rank, Rule, Slot, Source, SourceError,
    ThreadStart,
};
use rustc_hash::FxHashMap;

use super::explore::Exploration;
use super::repair::Repairs;
use super::replay::{BrokenRule, Decided, Decision, Located, ReplayError, Replayed, replay};
use super::trial::{TrialResult, Trials};
use super::{Detail, Operation};

/// A run that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The rule, and how it is broken.
    pub broken: BrokenRule,
    /// The operations without which the same run does not break the rule on the same object, those of the finding
    /// first. What only made something that one of them uses is left out. Empty where they were not asked for.
    pub essential: Vec<Located>,
    /// What decided it. None where nothing does alone, or where it was not asked for.
    pub cause: Option<Cause>,
    /// What would repair the program. None where it was not asked for.
    pub repairs: Option<Repairs>,
    /// How many operations and causes were not tried, because that would have taken too long.
    pub untried: usize,
    /// The run that breaks the rule, step by step.
    pub run: Replayed,
    /// The texts of the files in which the operations above stand, and with [`KeptOfRun::Memory`](super::KeptOfRun::Memory) all of
    /// the run, by the names that locations give them, as far as they can be read.
    pub sources: BTreeMap<Arc<str>, Arc<str>>,
}

/// A decision or a difference that makes a finding go away where it falls otherwise, or is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A value that nobody determines.
    Value {
        /// Which of the decisions of the run.
        decision: usize,
        /// Which of the values that it decides.
        nth: usize,
        /// The value that makes the finding go away, in words.
        instead: String,
        /// Whether the rank has to take it each time that it comes by again too.
        each_time: bool,
        /// A decision of another rank at the same location that fell otherwise, and which of its values.
        peer: Option<(usize, usize)>,
    },
    /// Ranks decide otherwise in one place, and the finding goes away where all of them decide alike there, each time.
    Disagreement {
        /// Which of the decisions of the run, and which of the values that it decides.
        decision: (usize, usize),
        /// The same of another rank.
        peer: (usize, usize),
    },
    /// A question has one answer on a rank and another one on its peer, and the finding goes away where one of them gets the answer
    /// of the other.
    Answer {
        /// What is asked, and the answer in words.
        at: (Located, String),
        /// The same of the peer.
        peer: (Located, String),
    },
    /// Which of several operations goes first.
    Order {
        /// Which of the decisions of the run.
        decision: usize,
        /// What goes first where the finding goes away: the operation, and the same in words.
        instead: (Located, String),
    },
    /// A rank does something that its peer does not do.
    Extra {
        /// The operation without which the finding goes away.
        at: Located,
        /// The same call in the same place again, without which it goes away only with this one: also what the rank does not come to.
        again: Vec<OpPosition>,
        /// The same call of other ranks, without which it goes away only with this one.
        also: Vec<OpPosition>,
        /// The rank that does not do it.
        peer: Rank,
    },
    /// A rank does something else than its peer.
    Difference {
        /// The operation that breaks the rule.
        at: Located,
        /// The operation of the peer, in whose place the finding goes away.
        peer: Located,
    },
}

/// Tells how a rule is broken, by the witness of an exploration. None if its witness does not break it.
///
/// # Errors
/// If the program cannot be evaluated, or the exploration is of another one.
pub fn counterexample(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    rule: Rule,
    detail: Detail,
) -> Result<Option<Counterexample>, ReplayError> {
    let Some(witness) = exploration.broken.get(&rule) else { return Ok(None) };
    let run = replay(source, &exploration.config, &witness.choices)?;
    // The one with the smallest past is the first to be told.
    let of_rule = run.broken.iter().filter(|broken| broken.rule == rule);
    let Some(broken) = of_rule.min_by_key(|broken| broken.past).cloned() else {
        return Ok(None);
    };
    let mut shown = Counterexample {
        broken,
        essential: Vec::new(),
        cause: None,
        repairs: None,
        untried: 0,
        run,
        sources: BTreeMap::new(),
    };
    if detail >= Detail::Reason {
        let limit = TRIED_AT_LEAST.max(2 * exploration.steps);
        let about = shown.broken.about.clone();
        let of = (rule, about.as_str(), shown.broken.by);
        if let Some(trials) = Trials::new(source, &exploration.config, &witness.choices, of, limit)? {
            let mut explaining = Explaining { trials, shown: &mut shown };
            explaining.find_essential()?;
            explaining.find_cause()?;
        }
    }
    Ok(Some(shown))
}

/// Operations that trials may execute together, if the exploration took fewer.
const TRIED_AT_LEAST: u64 = 2_000_000;

/// A counterexample whose reasons are being looked for.
struct Explaining<'a> {
    trials: Trials<'a>,
    shown: &'a mut Counterexample,
}

/// Whether an operation of a run can be named. Locks that the pool takes for its hooks are nobody's operation.
pub(crate) fn nameable(operation: &Operation) -> bool {
    !operation.asks && !operation.text.contains("allocator's lock")
}

impl<'a> Explaining<'a> {
    /// Whether a trial made the finding go away. One that did not come to an end is counted.
    fn is_gone(&mut self, trial: TrialResult) -> bool {
        self.shown.untried += usize::from(trial == TrialResult::Unknown);
        trial == TrialResult::Gone
    }

    /// Leaves out one operation after the other: those that break the rule first, then the others, the last first.
    fn find_essential(&mut self) -> Result<(), SourceError> {
        let run = &self.shown.run;
        let named = self.shown.broken.ops.iter().filter_map(|at| run.operation(at));
        let is_named = |operation: &&Operation| self.shown.broken.ops.iter().any(|at| at.is(&operation.at));
        let others = run.operations.iter().rev().filter(|operation| !is_named(operation));
        let order = named.chain(others).filter(|operation| nameable(operation));
        let order: Vec<Located> = order.map(|operation| operation.at.clone()).collect();
        let mut known: BTreeMap<OpPosition, TrialResult> = BTreeMap::new();
        let mut found: Vec<(OpPosition, Located)> = Vec::new();
        for at in order {
            let Some(position) = self.trials.position(&at.op) else { continue };
            if found.iter().any(|(_, other)| other.is(&at)) {
                continue;
            }
            let twin = OpPosition { rank: self.trials.twin_of(position.rank), ..position };
            let trial = match known.get(&twin) {
                Some(trial) => *trial,
                None => *known.entry(twin).or_insert(self.trials.without(twin)?),
            };
            if self.is_gone(trial) {
                found.push((position, at));
            }
        }
        let makers: BTreeSet<OpPosition> =
            found.iter().flat_map(|(position, _)| self.trials.makers(*position)).collect();
        let essential = found.into_iter().filter(|(position, _)| !makers.contains(position));
        self.shown.essential = essential.map(|(_, at)| at).collect();
        Ok(())
    }

    /// Lets one decision after the other fall otherwise: values in which ranks differ first, then other values, then
    /// orders; then differences between what ranks do.
    fn find_cause(&mut self) -> Result<(), SourceError> {
        let values = self.values();
        for &(decision, nth, peer) in &values {
            if let Some(instead) = self.other_value(decision, nth, Trials::instead)? {
                let peer = match peer {
                    Some(peer) if self.is_own_affair(decision, peer)? => None,
                    peer => peer,
                };
                self.shown.cause = Some(Cause::Value { decision, nth, instead, each_time: false, peer });
                return Ok(());
            }
        }
        for decision in (0..self.shown.run.decisions.len()).rev() {
            if let Some(instead) = self.other_order(decision)? {
                self.shown.cause = Some(Cause::Order { decision, instead });
                return Ok(());
            }
        }
        let mut cause = self.disagreement(&values)?;
        if cause.is_none() {
            cause = self.each_time(&values)?;
        }
        if cause.is_none() {
            cause = self.answer()?;
        }
        if cause.is_none() {
            cause = self.difference()?;
        }
        self.shown.cause = cause;
        Ok(())
    }

    /// A value that makes the finding go away only where the rank takes it each time that it comes by again: in a loop another
    /// round may decide otherwise.
    fn each_time(&mut self, values: &[DecidedValue]) -> Result<Option<Cause>, SourceError> {
        let mut tried: Vec<usize> = Vec::new();
        for &(decision, nth, _) in values {
            let decisions = &self.shown.run.decisions;
            let at = &decisions[decision].at;
            let is_there = |of: &Decision| of.at.op.rank == at.op.rank && of.at.loc == at.loc;
            let first = decisions.iter().position(is_there).expect("it is one of them");
            if tried.contains(&first) {
                continue;
            }
            tried.push(first);
            if let Some(instead) = self.other_value(first, nth, Trials::instead_each_time)? {
                return Ok(Some(Cause::Value { decision: first, nth, instead, each_time: true, peer: None }));
            }
        }
        Ok(None)
    }

    /// Whether what another rank decided otherwise has nothing to do with the finding: it stays where all ranks decide alike, or,
    /// if it is one rank's alone, where the other one decides as that did.
    fn is_own_affair(&mut self, decision: usize, (peer, nth): (usize, usize)) -> Result<bool, SourceError> {
        let decisions = &self.shown.run.decisions;
        let (of, by) = (&decisions[decision], decisions[decision].at.op.rank);
        let (Decided::Values { values: own, .. }, Decided::Values { values: theirs, .. }) =
            (&of.decided, &decisions[peer].decided)
        else {
            return Ok(false);
        };
        if self.shown.broken.ops.iter().any(|at| at.op.rank != by) {
            let at = of.at.loc.clone();
            return Ok(self.trials.agreeing(&at)? == TrialResult::Stays);
        }
        let (Some(wanted), theirs) = (own.get(nth).copied(), theirs.clone()) else { return Ok(false) };
        let Some(choice) = self.trials.choice_of(peer) else { return Ok(false) };
        for other in self.trials.alternatives(choice)? {
            let Choice::Value(_, _, others) = &other else { continue };
            if others.get(..nth) == theirs.get(..nth) && others.get(nth) == Some(&wanted) {
                return Ok(self.trials.instead(choice, &other)? == TrialResult::Stays);
            }
        }
        Ok(false)
    }

    /// Values in which ranks differ, where the finding goes away if all ranks decide alike there, each time that they come by. A
    /// value that falls otherwise alone leaves open what is decided behind it, so in a loop it may change nothing.
    fn disagreement(&mut self, values: &[DecidedValue]) -> Result<Option<Cause>, SourceError> {
        let mut tried: Vec<Loc> = Vec::new();
        for (decision, nth, peer) in values {
            let Some(peer) = *peer else { continue };
            let at = self.shown.run.decisions[*decision].at.loc.clone();
            if tried.contains(&at) {
                continue;
            }
            let trial = self.trials.agreeing(&at)?;
            if self.is_gone(trial) {
                return Ok(Some(Cause::Disagreement { decision: (*decision, *nth), peer }));
            }
            tried.push(at);
        }
        Ok(None)
    }

    /// A question that two ranks ask in one place, and that has another answer on each: what they do behind it may differ only
    /// for that. What nobody determines was tried before.
    fn answer(&mut self) -> Result<Option<Cause>, SourceError> {
        let run = &self.shown.run;
        let decided = |at: &Located| run.decisions.iter().any(|decision| decision.at.is(at));
        let mut times: FxHashMap<(Rank, &Loc), usize> = FxHashMap::default();
        let mut asked: Vec<AskedQuestion> = Vec::new();
        for operation in run.operations.iter().filter(|operation| operation.asks && !decided(&operation.at)) {
            let Some(position) = self.trials.position(&operation.at.op) else { continue };
            let performed = self.trials.performed_at(position);
            let Some((question, answer)) = performed.and_then(|at| at.answered.clone()) else { continue };
            let time = times.entry((position.rank, &operation.at.loc)).or_default();
            *time += 1;
            let words = answer_in_words(&question, answer);
            asked.push(AskedQuestion { at: operation.at.clone(), position, time: *time, answer, words });
        }
        for (nth, one) in asked.iter().enumerate() {
            let of_peer = |other: &&AskedQuestion| {
                other.position.rank != one.position.rank
                    && (&other.at.loc, other.time) == (&one.at.loc, one.time)
                    && other.answer != one.answer
            };
            let Some(peer) = asked[nth + 1..].iter().find(of_peer) else { continue };
            for (of, as_of) in [(one, peer), (peer, one)] {
                let trial = self.trials.answered(of.position, as_of.answer)?;
                if self.is_gone(trial) {
                    let told = |of: &AskedQuestion| (of.at.clone(), of.words.clone());
                    return Ok(Some(Cause::Answer { at: told(one), peer: told(peer) }));
                }
            }
        }
        Ok(None)
    }

    /// Every value that was decided: those first in which another rank differs, then what is not the usual case, and
    /// of each kind the latest first.
    fn values(&self) -> Vec<DecidedValue> {
        let decisions = &self.shown.run.decisions;
        let words = |decision: &Decision| match &decision.decided {
            Decided::Values { words, .. } => words.clone(),
            Decided::Order(_) => Vec::new(),
        };
        // The how-manieth time that this rank decides there.
        let occurrence = |nth: usize| {
            let of = &decisions[nth].at;
            let same = |other: &&Decision| other.at.op.rank == of.op.rank && other.at.loc == of.loc;
            decisions[..nth].iter().filter(same).count()
        };
        let is_named = |of: usize| {
            let by = decisions[of].at.op.rank;
            self.shown.broken.ops.iter().any(|at| at.op.rank == by)
        };
        let mut all = Vec::new();
        for (nth, decision) in decisions.iter().enumerate() {
            for (value, text) in words(decision).iter().enumerate() {
                let differs = |other: &usize| {
                    let peer = &decisions[*other];
                    peer.at.op.rank != decision.at.op.rank
                        && peer.at.loc == decision.at.loc
                        && words(peer).get(value).is_some_and(|other| other != text)
                        && occurrence(*other) == occurrence(nth)
                };
                let peer = (0..decisions.len()).filter(differs).min_by_key(|peer| !is_named(*peer));
                let peer = peer.map(|peer| (peer, value));
                let usual = text.ends_with("succeeds");
                all.push(((peer.is_none(), usual, std::cmp::Reverse(nth), value), (nth, value, peer)));
            }
        }
        all.sort();
        all.into_iter().map(|(_, of)| of).collect()
    }

    /// Another value of a decision with which the finding goes away where it is taken so, in words.
    fn other_value(
        &mut self,
        decision: usize,
        nth: usize,
        instead: fn(&mut Trials<'a>, usize, &Choice) -> Result<TrialResult, SourceError>,
    ) -> Result<Option<String>, SourceError> {
        let Decided::Values { values, .. } = &self.shown.run.decisions[decision].decided else {
            return Ok(None);
        };
        let values = values.clone();
        let Some(choice) = self.trials.choice_of(decision) else { return Ok(None) };
        for other in self.trials.alternatives(choice)? {
            let Choice::Value(_, _, others) = &other else { continue };
            // One value differs, and what depends on it may.
            if others.get(..nth) != values.get(..nth) || others.get(nth) == values.get(nth) {
                continue;
            }
            let trial = instead(&mut self.trials, choice, &other)?;
            if self.is_gone(trial) {
                return self.words(choice, &other, nth);
            }
        }
        Ok(None)
    }

    /// What else goes first where the finding goes away, and that in words.
    fn other_order(&mut self, decision: usize) -> Result<Option<(Located, String)>, SourceError> {
        if matches!(self.shown.run.decisions[decision].decided, Decided::Values { .. }) {
            return Ok(None);
        }
        let Some(choice) = self.trials.choice_of(decision) else { return Ok(None) };
        for other in self.trials.alternatives(choice)? {
            let trial = self.trials.instead(choice, &other)?;
            if self.is_gone(trial) {
                return Ok(self.trials.told(choice, &other)?.map(|told| (told.at, told.op)));
            }
        }
        Ok(None)
    }

    /// What another choice decides, in words.
    fn words(&mut self, choice: usize, other: &Choice, nth: usize) -> Result<Option<String>, SourceError> {
        Ok(self.trials.told(choice, other)?.and_then(|told| match told.decided {
            Decided::Values { words, .. } => words.get(nth).cloned(),
            Decided::Order(words) => Some(words),
        }))
    }

    /// An operation that another rank does not do, or does otherwise in its place, where the finding goes away if
    /// this one does the same.
    fn difference(&mut self) -> Result<Option<Cause>, SourceError> {
        for (rank, peer) in self.pairs() {
            let (own, others) = (self.alike(rank, peer), self.alike(peer, rank));
            let (mut at, mut there) = (0, 0);
            let mut common = None;
            while at < own.len() || there < others.len() {
                let (a, b) = (own.get(at), others.get(there));
                let same = |a: Option<&AlikeOperation>, b: Option<&AlikeOperation>| {
                    a.map(|a| &a.op) == b.map(|b| &b.op)
                };
                // The same call on another line stands for itself where that of this line comes next.
                let on_line = |of: Option<&AlikeOperation>, other: Option<&AlikeOperation>| {
                    same(of, other) && of.map(|of| of.at.op.loc) == other.map(|other| other.at.op.loc)
                };
                let fits_next = || on_line(own.get(at + 1), b) || on_line(a, others.get(there + 1));
                if same(a, b) && (on_line(a, b) || !fits_next()) {
                    (at, there) = (at + 1, there + 1);
                    continue;
                }
                let common = *common.get_or_insert(a.or(b).map_or(0, |first| first.slots));
                // What the other does too, and only later, is no more than done in another order.
                let more =
                    |of: Option<&AlikeOperation>, own: &[AlikeOperation], others: &[AlikeOperation]| {
                        let told = of.map(|of| &of.call);
                        let count =
                            |all: &[AlikeOperation]| all.iter().filter(|op| Some(&op.call) == told).count();
                        count(own) > count(others)
                    };
                // What the other would do behind the call in which it waits is nothing that it does not do.
                let lacks = |whose: Rank, of: Option<&AlikeOperation>| {
                    of.is_some_and(|of| !self.trials.may_do(whose, &of.op))
                };
                // What waits in a call does the next one behind it.
                let next =
                    |all: &[AlikeOperation], at: usize, whose: Rank, wanted: Option<&AlikeOperation>| {
                        let awaited = |wanted: &AlikeOperation| self.trials.may_do(whose, &wanted.op);
                        same(all.get(at + 1), wanted) || all.len() == at + 1 && wanted.is_some_and(awaited)
                    };
                let (extra, moved) = if next(&own, at, rank, b) && more(a, &own, &others) && lacks(peer, a) {
                    (self.extra(a, peer, common)?, (at + 1, there))
                } else if next(&others, there, peer, a) && more(b, &others, &own) && lacks(rank, b) {
                    (self.extra(b, rank, common)?, (at, there + 1))
                } else {
                    (None, (at + 1, there + 1))
                };
                (at, there) = moved;
                if extra.is_some() {
                    return Ok(extra);
                }
                let (Some(a), Some(b)) = (a, b) else { continue };
                for (of, by) in [(a, b), (b, a)] {
                    let exchanged = self.exchange(of, by, common)?;
                    if exchanged.is_some() {
                        return Ok(exchanged);
                    }
                }
            }
        }
        Ok(None)
    }

    /// An operation that the peer does not do, once or in each round of a loop. Slots before `common` are the same to both.
    fn extra(
        &mut self,
        of: Option<&AlikeOperation>,
        peer: Rank,
        common: u32,
    ) -> Result<Option<Cause>, SourceError> {
        let Some(of) = of else { return Ok(None) };
        // Without its end alone a group would never end. What a rank does alone with what it alone has is its role.
        let of_role = !of.op.seen_by_others() && of.uses.iter().any(|slot| slot.index >= common);
        if of_role || matches!(of.op, Op::Group(GroupOp::End)) {
            return Ok(None);
        }
        let cause = |again, also| Cause::Extra { at: of.at.clone(), again, also, peer };
        // If something else breaks then, somebody needs it; what begins without its end, or ends without it, is no word about that.
        let begins = matches!(of.op, Op::Group(GroupOp::Start) | Op::Graph(GraphOp::Begin { .. }));
        let trial = match begins {
            true => self.trials.without(of.position)?,
            false => self.trials.repaired_without(&[of.position])?,
        };
        if self.is_gone(trial) {
            // What uses the result went with it. If that alone decides, it is told where it stands.
            let decides = match self.trials.without_users(of.position)? {
                Some(trial) => !self.is_gone(trial),
                None => true,
            };
            return Ok(decides.then(|| cause(Vec::new(), Vec::new())));
        }
        let again = self.trials.again(of.position, of.at.op.loc)?;
        if !again.is_empty() {
            let trial = self.trials.repaired_without(&[&[of.position], &*again].concat())?;
            if self.is_gone(trial) {
                return Ok(Some(cause(again, Vec::new())));
            }
        }
        // What one rank lacks is missed by all others.
        let also = self.same_of_others(of, peer);
        if also.is_empty() {
            return Ok(None);
        }
        let trial = self.trials.repaired_without(&[&[of.position], &*also].concat())?;
        Ok(self.is_gone(trial).then(|| cause(Vec::new(), also)))
    }

    /// The same call of other ranks: the how-manieth that it is on its own.
    fn same_of_others(&self, of: &AlikeOperation, peer: Rank) -> Vec<OpPosition> {
        let rank = of.position.rank;
        let calls = |rank: Rank| {
            let is = |other: &AlikeOperation| other.op == of.op && other.at.op.loc == of.at.op.loc;
            self.alike(rank, peer).into_iter().filter(is).map(|other| other.position).collect::<Vec<_>>()
        };
        let Some(nth) = calls(rank).iter().position(|at| *at == of.position) else { return Vec::new() };
        let ranks: BTreeSet<Rank> = self.shown.run.operations.iter().map(|o| o.at.op.rank).collect();
        let others = ranks.into_iter().filter(|other| *other != rank && *other != peer);
        others.filter_map(|other| calls(other).get(nth).copied()).collect()
    }

    /// An operation in whose place the peer does another. Slots before `common` are the same to both.
    fn exchange(
        &mut self,
        of: &AlikeOperation,
        peer: &AlikeOperation,
        common: u32,
    ) -> Result<Option<Cause>, SourceError> {
        let known = of.slots == peer.slots || peer.uses.iter().all(|slot| slot.index < common);
        let possible = peer.op.slots() <= of.op.slots() && peer.op.admits(of.position.rank);
        // What uses the result goes on with that of the other. Two calls of the same words differ in nothing that could be told.
        let Some(performed) = self.trials.performed_at(of.position) else { return Ok(None) };
        let alike = peer.op.makes_what_is_made_by(&of.op);
        let usable = alike || !self.trials.is_used(performed);
        let told_apart = of.call != peer.call && !peer.op.is_but_for_its_name(&of.op);
        if !(known && possible && usable && told_apart) {
            return Ok(None);
        }
        // Of contents, ranks have parts by their roles: with that of another, something else is wrong.
        let trial = match self.shown.broken.rule == Rule::Mem5 {
            true => self.trials.repaired_by_exchange(of.position, &peer.op),
            false => self.trials.exchanged(of.position, &peer.op),
        };
        let alone = self.shown.broken.ops.iter().all(|at| at.op.rank == of.position.rank);
        // What is not missed where it is left out only stands where the other one would have to.
        let decides =
            self.is_gone(trial) && (alike || (self.matters(of)? && (alone || self.matters(peer)?)));
        Ok(decides.then(|| Cause::Difference { at: of.at.clone(), peer: peer.at.clone() }))
    }

    /// Whether the finding names an operation, or goes away without it.
    fn matters(&mut self, of: &AlikeOperation) -> Result<bool, SourceError> {
        let named = self.shown.broken.ops.iter().any(|at| at.is(&of.at));
        Ok(named || self.trials.without(of.position)? != TrialResult::Stays)
    }

    /// Ranks whose operations are compared: those of the finding and of its marks with one another, and the one rank
    /// of the finding with a rank beside it.
    fn pairs(&self) -> Vec<(Rank, Rank)> {
        let broken: BTreeSet<Rank> = self.shown.broken.ops.iter().map(|at| at.op.rank).collect();
        let mut ranks = broken.clone();
        ranks.extend(self.shown.essential.iter().map(|at| at.op.rank));
        let ranks = self.unlike(ranks);
        let pairs = ranks.iter().enumerate();
        let mut pairs: Vec<(Rank, Rank)> =
            pairs.flat_map(|(nth, a)| ranks[nth + 1..].iter().map(|b| (*a, *b))).collect();
        let beside = [Rank(0), Rank(1)].into_iter().filter(|rank| self.trials.has(*rank));
        let beside: BTreeSet<Rank> = broken.iter().copied().chain(beside).collect();
        let mut beside = beside.into_iter();
        if broken.len() < 2
            && let (Some(a), Some(b)) = (beside.next(), beside.next())
            && !pairs.contains(&(a, b))
        {
            pairs.push((a, b));
        }
        pairs
    }

    /// Of many ranks a few, of those that did the same one: those first that came by other places than most, then those that did
    /// something else there.
    fn unlike(&self, ranks: BTreeSet<Rank>) -> Vec<Rank> {
        if ranks.len() <= COMPARED {
            return ranks.into_iter().collect();
        }
        let mut came_by: BTreeMap<Vec<LocId>, Vec<Rank>> = BTreeMap::new();
        let mut did: FxHashMap<Vec<Op>, Vec<Rank>> = FxHashMap::default();
        for rank in ranks {
            let own = self.alike(rank, rank);
            came_by.entry(own.iter().map(|of| of.at.op.loc).collect()).or_default().push(rank);
            did.entry(own.into_iter().map(|of| of.op).collect()).or_default().push(rank);
        }
        let firsts = |of: Vec<Vec<Rank>>| {
            let most = of.iter().map(|ranks| (ranks.len(), std::cmp::Reverse(ranks[0]))).max();
            let mut firsts: Vec<(usize, Rank)> = of.iter().map(|ranks| (ranks.len(), ranks[0])).collect();
            // What most did is what the others are held against.
            firsts.sort_by_key(|first| (Some((first.0, std::cmp::Reverse(first.1))) != most, *first));
            firsts.into_iter().map(|(_, rank)| rank)
        };
        let mut few: Vec<Rank> = Vec::new();
        let all = firsts(came_by.into_values().collect()).chain(firsts(did.into_values().collect()));
        for rank in all {
            if few.len() < COMPARED && !few.contains(&rank) {
                few.push(rank);
            }
        }
        few.sort_unstable();
        few
    }

    /// The operations of a rank's first thread that ranks usually do alike. What they do in roles is no difference:
    /// one sends and another receives, one sets a key and another gets it, one is a member where the peer is none.
    fn alike(&self, rank: Rank, peer: Rank) -> Vec<AlikeOperation> {
        let of = |o: &&Operation| {
            o.at.op.rank == rank && o.at.op.thread.0 == 0 && o.kind == Kind::Alike && nameable(o)
        };
        let operations = self.shown.run.operations.iter().filter(of);
        let apart = self.trials.made_apart(rank, peer);
        let known = operations.filter_map(|operation| {
            let position = OpPosition { rank, start: ThreadStart(0), index: operation.at.op.index };
            let performed = self.trials.performed_at(position)?;
            let (uses, slots) = (performed.uses.clone(), performed.produces.start);
            let op = performed.op.clone()?;
            if !op.admits(peer) || uses.iter().any(|slot| apart.contains(slot)) {
                return None;
            }
            Some(AlikeOperation {
                at: operation.at.clone(),
                call: operation.call.clone(),
                position,
                op,
                uses,
                slots,
            })
        });
        known.collect()
    }
}

/// Ranks of which each is compared with each.
const COMPARED: usize = 4;

/// A decision, which of its values is meant, and the same of a rank that decided otherwise in the same place.
type DecidedValue = (usize, usize, Option<(usize, usize)>);

/// A question that a rank asked.
struct AskedQuestion {
    at: Located,
    position: OpPosition,
    /// The how-manieth time that its rank asks there, from 1.
    time: usize,
    answer: Answer,
    words: String,
}

fn answer_in_words(question: &Question, answer: Answer) -> String {
    // What is chosen has names, and is a decision.
    match question.answers() {
        Some(_) => if answer == 0 { "no" } else { "yes" }.to_owned(),
        None => answer.to_string(),
    }
}

/// An operation that ranks usually do alike.
struct AlikeOperation {
    at: Located,
    /// What the report says of it.
    call: String,
    position: OpPosition,
    op: Op,
    uses: Vec<Slot>,
    /// How many slots its thread made before it.
    slots: u32,
}
