//! Repairs: programs close to the one that fails, and that hold.
//!
//! A repair is a change of the text at one place, made on all ranks: a synchronize, a barrier, two calls in the other
//! order or in one group, one decision that all ranks take alike. Each is explored before it is shown, at the
//! ranks of the finding first and then at others. Nothing is taken away, so the program still does what it did.
//! Not here: how programs are changed (`changed.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rankcheck_model::describe::{NamesOf, Naming, uses};
use rankcheck_model::edit::OpPosition;
use rankcheck_model::machine::{Kind, Launcher};
use rankcheck_model::{
    BarrierOp, Block, CommOp, Config, GraphOp, GroupOp, IpcOp, Loc, MemoryOp, Op, Operand, Outcome, Platform,
    PoolOp, Rank, RankOutcome, Rule, Slot, Source, Statement, StreamOp, ThreadOp, ThreadStart, WindowOp,
};

use super::bounds::Bounds;
use super::changed::{alike, changed};
use super::data_order::keeps_data_order;
use super::explore::{Exploration, explore_agreeing};
use super::replay::Ahead;
use super::trial::Trials;
use super::verdict::{config, or_freer};
use super::{Cause, Counterexample, Decided, Located, Operation};
use crate::spec::{Check, Param};

/// A change with which the program holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// What is changed of the program.
    pub change: RepairChange,
    /// Rank counts at which the changed program was explored and holds.
    pub holds_at: Vec<u32>,
    /// Rank counts at which a bound was hit first.
    pub unknown_at: Vec<u32>,
    /// Rank counts that the check does not name, at which the changed program does not hold.
    pub fails_at: Vec<u32>,
    /// Rank counts for which the program was not written: it cannot be evaluated for them, or makes mistakes there that
    /// the change has nothing to do with.
    pub not_written_for: Vec<u32>,
}

impl Repair {
    fn of(change: RepairChange) -> Self {
        Self {
            change,
            holds_at: Vec::new(),
            unknown_at: Vec::new(),
            fails_at: Vec::new(),
            not_written_for: Vec::new(),
        }
    }
}

/// What the search for repairs came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Those that were found, the nearest first.
    pub found: Vec<Repair>,
    /// How many changes were explored.
    pub tried: usize,
    /// The time after which the search was given up, if it was.
    pub gave_up_after: Option<Duration>,
    /// Whether nothing was tried because declarations name launches by their numbers, which a change would move.
    pub declares_overlap: bool,
}

/// A change of a program, the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairChange {
    /// All ranks decide alike.
    SameDecision {
        /// What is decided in each place, and where.
        of: Vec<(String, Loc)>,
    },
    /// Something is waited for beside a call.
    Wait {
        /// What the inserted call waits for.
        what: Wait,
        /// Whether before or after the call.
        side: Side,
        /// The call beside which that is, in words.
        call: String,
        /// Where that call is written.
        at: Loc,
    },
    /// Memory is kept that the program frees, or a mapping that it closes.
    Keep {
        /// The call that is left out, in words.
        call: String,
        /// Where that call is written.
        at: Loc,
        /// Whether another call gives it back.
        twice: bool,
    },
    /// Two calls change places.
    Swap {
        /// The first of the program that fails, and where it is written.
        first: (String, Loc),
        /// The second, which comes first in the repaired one.
        second: (String, Loc),
        /// The ranks on which they do.
        on: Scope,
    },
    /// The calls of a group are made one after the other.
    Apart {
        /// Where the group is written.
        at: Loc,
        /// The ranks on which they are.
        on: Scope,
    },
    /// Two calls are made in one group, with what lies between them.
    Group {
        /// The first, and where it is written.
        first: (String, Loc),
        /// The last call of the group.
        last: (String, Loc),
        /// Whether the group goes from the first such call to the last one that follows, and not only to the next.
        wide: bool,
        /// The ranks on which they are.
        on: Scope,
    },
}

/// A program as a change makes it.
struct Applied {
    source: Arc<dyn Source>,
    /// The places at which its ranks decide alike.
    agreed: Vec<Loc>,
}

/// What a change makes of a block; none if it has nothing to do with it.
type OwnBlockChange = Box<dyn Fn(&Block) -> Option<Block> + Send + Sync>;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The work of the device: `cudaDeviceSynchronize`.
    Device,
    /// All ranks: a barrier of host processes.
    Ranks,
    /// The work of the devices of all ranks.
    Devices,
}

/// The ranks on which something is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All ranks of the world.
    All,
    /// Those that make the first of two calls before the second.
    InOrder,
    /// Those with an odd number.
    Odd,
    /// The rank of this number alone.
    One(Rank),
}

impl Scope {
    fn has(self, rank: Rank) -> bool {
        match self {
            Self::All | Self::InOrder => true,
            Self::Odd => rank.0 % 2 == 1,
            Self::One(one) => rank == one,
        }
    }
}

/// On which side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Right before the call.
    Before,
    /// Right after the call.
    After,
}

/// Where repairs are looked for.
pub(crate) struct Broken<'a> {
    pub(crate) check: &'a Check,
    pub(crate) params: &'a [(String, Param)],
    pub(crate) ranks: u32,
    pub(crate) platform: Platform,
    pub(crate) source: &'a Arc<dyn Source>,
    pub(crate) exploration: &'a Exploration,
    pub(crate) shown: &'a Counterexample,
}

/// Repairs that are shown at most.
const SHOWN: usize = 2;
/// Rank counts at which a repair has to hold, beside those of the check.
const RANKS: [u32; 3] = [2, 4, 8];

/// Looks for repairs until two are found, or for so long.
pub(crate) fn repairs(broken: &Broken<'_>, at_most: Duration) -> Repairs {
    let started = Instant::now();
    let mut repairs = Repairs::default();
    if broken.source.declares_overlap() {
        repairs.declares_overlap = true;
        return repairs;
    }
    // Those that hold at the check's own rank counts, and not at others.
    let mut there_alone: Vec<Repair> = Vec::new();
    for change in candidates(broken) {
        let left = at_most.saturating_sub(started.elapsed());
        if left.is_zero() {
            repairs.gave_up_after = Some(at_most);
            break;
        }
        if repairs.found.iter().any(|found| found.change.says_as_much_as(&change)) {
            continue;
        }
        repairs.tried += 1;
        if let Some(repair) = verified(broken, change, left) {
            if !repair.fails_at.is_empty() {
                if !there_alone.iter().any(|found| found.change.says_as_much_as(&repair.change)) {
                    there_alone.push(repair);
                }
                continue;
            }
            repairs.found.push(repair);
            if repairs.found.len() == SHOWN {
                break;
            }
        }
    }
    if repairs.found.is_empty() {
        there_alone.truncate(SHOWN);
        repairs.found = there_alone;
    }
    repairs
}

/// The repair that a change is, if it is one.
fn verified(broken: &Broken<'_>, change: RepairChange, left: Duration) -> Option<Repair> {
    let states = 10_000 + 10 * broken.exploration.states;
    let bounds = Bounds { states, time: Some(left), ..Bounds::default() };
    let turns = Arc::new(AtomicBool::new(false));
    let explored = |source: &Arc<dyn Source>, ranks: u32, bounds: &Bounds| {
        let config = config(broken.check, ranks, broken.platform, &broken.check.assume);
        let config = Config { contended: broken.exploration.config.contended.clone(), ..config };
        let Applied { source: changed, agreed } = change.applied(source, ranks, &turns);
        let held = explore_agreeing(&changed, config, bounds, agreed.clone()).ok()?;
        or_freer(held, |freer| explore_agreeing(&changed, freer, bounds, agreed)).ok()
    };
    // Most changes repair nothing, and the first run that shows it ends their search.
    let until_broken = Bounds { until_broken: true, ..bounds.clone() };
    let first = explored(broken.source, broken.ranks, &until_broken)?;
    let does_as_much = |other: &Exploration| {
        let (now, before) = (&other.executed, &broken.exploration.executed);
        let executes = now.collectives >= before.collectives && now.transfers >= before.transfers;
        let (now, before) = (&other.costs, &broken.exploration.costs);
        executes
            && now.collectives >= before.collectives
            && now.registrations + now.registrations_warm_up
                >= before.registrations + before.registrations_warm_up
    };
    let turns_data = || turns.load(Ordering::Relaxed);
    if first.bound.is_some() || !first.broken.is_empty() || !does_as_much(&first) || turns_data() {
        return None;
    }
    if !holds_by_itself(broken, &change, &first, &bounds) {
        return None;
    }
    let mut repair = Repair::of(change.clone());
    let others: BTreeSet<u32> = RANKS.into_iter().chain(broken.check.ranks.iter().copied()).collect();
    for ranks in others {
        if ranks == broken.ranks {
            repair.holds_at.push(ranks);
            continue;
        }
        // Some programs are written for a number of ranks.
        let source = broken.check.source(ranks, broken.params, &broken.check.assume).ok();
        let source = source.map(|source| Arc::new(source) as Arc<dyn Source>);
        let Some(exploration) = source.and_then(|source| explored(&source, ranks, &bounds)) else {
            repair.not_written_for.push(ranks);
            continue;
        };
        match (&exploration.bound, exploration.broken.is_empty()) {
            (Some(_), _) => repair.unknown_at.push(ranks),
            (None, true) => repair.holds_at.push(ranks),
            (None, false) if mistaken(broken, &exploration, ranks, &bounds) => {
                repair.not_written_for.push(ranks);
            }
            (None, false) if !broken.check.ranks.contains(&ranks) => repair.fails_at.push(ranks),
            (None, false) => return None,
        }
    }
    (!turns_data()).then_some(repair)
}

/// Whether a changed program, of which this was explored, needs nobody who ends its job: some run of it goes well without, or it breaks
/// no rule then that the unchanged one keeps. What waits for a rank that is gone is ended with the job, and a change that
/// makes all wait for it in every run repairs nothing.
fn holds_by_itself(
    broken: &Broken<'_>,
    change: &RepairChange,
    explored: &Exploration,
    bounds: &Bounds,
) -> bool {
    let config = config(broken.check, broken.ranks, broken.platform, &broken.check.assume);
    let is_ended = |outcome: &Outcome| outcome.ranks.iter().any(|rank| matches!(rank, RankOutcome::Dead(_)));
    if config.launcher == Launcher::LeavesPeers || !explored.outcomes.keys().all(is_ended) {
        return true;
    }
    let alone = Config { launcher: Launcher::LeavesPeers, ..config };
    let explored = |source: &Arc<dyn Source>, agreed| explore_agreeing(source, alone.clone(), bounds, agreed);
    let Applied { source: changed, agreed } = change.applied(broken.source, broken.ranks, &Arc::default());
    let (Ok(changed), Ok(unchanged)) = (explored(&changed, agreed), explored(broken.source, Vec::new()))
    else {
        return false;
    };
    let whole = changed.bound.is_none() && unchanged.bound.is_none();
    whole && changed.broken.keys().all(|rule| unchanged.broken.contains_key(rule))
}

/// Whether all that a changed program breaks at so many ranks are mistakes that the unchanged one makes there alone, such
/// as a peer that does not exist: it was not written for that number of ranks.
fn mistaken(broken: &Broken<'_>, changed: &Exploration, ranks: u32, bounds: &Bounds) -> bool {
    let Ok(source) = broken.check.source(ranks, broken.params, &broken.check.assume) else { return true };
    let source: Arc<dyn Source> = Arc::new(source);
    let config = config(broken.check, ranks, broken.platform, &broken.check.assume);
    let Ok(unchanged) = explore_agreeing(&source, config, bounds, Vec::new()) else { return true };
    let known = &broken.exploration.broken;
    unchanged.bound.is_none()
        && changed.broken.keys().all(|rule| unchanged.broken.contains_key(rule) && !known.contains_key(rule))
}

/// Changes that may be repairs, the nearest to the cause first.
fn candidates(broken: &Broken<'_>) -> Vec<RepairChange> {
    let shown = broken.shown;
    let mut all: Vec<RepairChange> = Vec::new();
    let mut add = |change: RepairChange| {
        if !all.iter().any(|known| known.places() == change.places()) {
            all.push(change);
        }
    };
    let decisions = decisions(shown);
    for decision in &decisions {
        add(RepairChange::SameDecision { of: vec![decision.clone()] });
    }
    let calls = calls(shown);
    for what in [Wait::Device, Wait::Ranks, Wait::Devices] {
        for side in [Side::Before, Side::After] {
            for operation in &calls {
                let (call, at) = in_words(shown, &operation.text, &operation.at.loc);
                add(RepairChange::Wait { what, side, call, at });
            }
        }
    }
    let all_calls = all_calls(broken);
    // What is given back too early is given back later, before it is kept.
    let late = |call: &&Rc<KnownCall>| gives_back(&call.op) || meets_others(&call.op);
    for (first, second, swaps) in neighbours(&all_calls.iter().filter(late).cloned().collect::<Vec<_>>()) {
        let literally = as_written(&all_calls, &first, &second, Scope::All);
        if swaps
            && gives_back(&first.op)
            && literally
            && in_turn(&all_calls, &first, &second, Scope::All)
            && !changes_capture(&all_calls, &first, &second)
            && let Some((first, second)) = in_words_of_both(&all_calls, &first, &second, Scope::All)
        {
            add(RepairChange::Swap { first, second, on: Scope::All });
        }
    }
    for call in all_calls.iter().filter(|call| call.near.is_some() && gives_back(&call.op)) {
        // A pool gives back its segments where it is trimmed.
        let trims = |other: &&Rc<KnownCall>| {
            matches!(other.op, Op::Pool(PoolOp::Trim { .. })) && other.named.1 == call.named.1
        };
        let (call, at) = all_calls.iter().find(trims).unwrap_or(call).named.clone();
        add(RepairChange::Keep { call, at, twice: shown.broken.rule == Rule::Mem3 });
    }
    let meeting: Vec<Rc<KnownCall>> =
        all_calls.iter().filter(|call| meets_others(&call.op)).cloned().collect();
    for (first, second, swaps) in neighbours(&meeting) {
        let swaps = swaps && !changes_capture(&all_calls, &first, &second);
        for on in [Scope::All, Scope::Odd, Scope::One(first.rank), Scope::InOrder] {
            if !as_written(&all_calls, &first, &second, on) {
                continue;
            }
            let Some((one, other)) = in_words_of_both(&all_calls, &first, &second, on) else { continue };
            if swaps && in_turn(&all_calls, &first, &second, on) {
                add(RepairChange::Swap { first: one.clone(), second: other.clone(), on });
            }
            if on != Scope::InOrder && grouped(&first.op) && grouped(&second.op) {
                for wide in [false, true] {
                    let (first, last) = (one.clone(), other.clone());
                    add(RepairChange::Group { first, last, wide, on });
                }
            }
        }
    }
    for (at, rank) in groups_near(&all_calls) {
        for on in [Scope::All, Scope::Odd, Scope::One(rank)] {
            add(RepairChange::Apart { at: at.clone(), on });
        }
    }
    if decisions.len() > 1 {
        add(RepairChange::SameDecision { of: decisions });
    }
    all
}

/// Whether a change of two calls on some ranks can be read as it is written: whoever of them makes one makes the other, and in
/// this order. Where the order is another one on some rank, only those are meant that have it.
fn as_written(all: &[Rc<KnownCall>], first: &KnownCall, second: &KnownCall, on: Scope) -> bool {
    let there = |of: &KnownCall| -> BTreeMap<Rank, u32> {
        let calls = all.iter().filter(|call| call.named.1 == of.named.1 && on.has(call.rank));
        let mut begun = BTreeMap::new();
        for call in calls {
            begun.entry(call.rank).or_insert(call.index);
        }
        begun
    };
    let (first, second) = (there(first), there(second));
    let in_order = first.iter().all(|(rank, index)| second.get(rank).is_none_or(|other| index <= other));
    first.keys().eq(second.keys()) && in_order != (on == Scope::InOrder)
}

/// Whether whoever makes the two calls makes them in turn, beginning with the first: where a loop makes several of one and then
/// several of the other, nobody who exchanges the lines exchanges two of them alone.
fn in_turn(all: &[Rc<KnownCall>], first: &KnownCall, second: &KnownCall, on: Scope) -> bool {
    let mut made: BTreeMap<Rank, Vec<(ThreadStart, u32, bool)>> = BTreeMap::new();
    for call in all.iter().filter(|call| on.has(call.rank)) {
        let is_first = call.named.1 == first.named.1;
        if is_first || call.named.1 == second.named.1 {
            made.entry(call.rank).or_default().push((call.start, call.index, is_first));
        }
    }
    made.values_mut().all(|calls| {
        calls.sort_unstable();
        let begins = calls.first().is_some_and(|(.., is_first)| *is_first);
        let turns = calls.iter().enumerate().all(|(nth, (.., is_first))| *is_first == (nth % 2 == 0));
        turns || on == Scope::InOrder && !begins
    })
}

/// Two calls as a change names them: as all ranks make them, or, where that says the same of both, as these ranks do if they
/// do alike. None if that still says the same, and of one place: nobody would know which is meant.
fn in_words_of_both(
    all: &[Rc<KnownCall>],
    first: &KnownCall,
    second: &KnownCall,
    on: Scope,
) -> Option<((String, Loc), (String, Loc))> {
    let alike = |one: &KnownCall| {
        let there = all.iter().filter(|call| call.named.1 == one.named.1 && on.has(call.rank));
        there.into_iter().all(|call| call.text == one.text)
    };
    let own = matches!(on, Scope::One(_))
        || (first.named.0 == second.named.0 && on.has(first.rank) && alike(first) && alike(second));
    let named = |call: &KnownCall| {
        let text = if own { &call.text } else { &call.named.0 };
        (text.clone(), call.named.1.clone())
    };
    let (first, second) = (named(first), named(second));
    (first != second).then_some((first, second))
}

/// Whether calls in each other's place may leave a capture, or come into one: then the program does something else.
fn changes_capture(all: &[Rc<KnownCall>], first: &KnownCall, second: &KnownCall) -> bool {
    let of_thread = all.iter().filter(|call| (call.rank, call.start) == (first.rank, first.start));
    let mut captures = false;
    for call in of_thread.filter(|call| call.index <= second.index) {
        let Op::Graph(op @ (GraphOp::Begin { .. } | GraphOp::End { .. })) = &call.op else { continue };
        if call.index >= first.index {
            return true;
        }
        captures = matches!(op, GraphOp::Begin { .. });
    }
    let forks = |op: &Op| matches!(op, Op::Event(_) | Op::Stream(StreamOp::Wait { .. }));
    captures && (forks(&first.op) || forks(&second.op))
}

/// Where groups are written that have a call of the finding in them, or are marked, each with a rank.
fn groups_near(all: &[Rc<KnownCall>]) -> Vec<(Loc, Rank)> {
    let mut groups = Vec::new();
    for begin in all.iter().filter(|call| matches!(call.op, Op::Group(GroupOp::Start))) {
        let behind = all.iter().filter(|call| (call.rank, call.start) == (begin.rank, begin.start));
        let behind = behind.filter(|call| call.index >= begin.index);
        let until = behind
            .clone()
            .find(|call| matches!(call.op, Op::Group(GroupOp::End)) && call.named.1 == begin.named.1);
        let Some(until) = until else { continue };
        if behind.into_iter().any(|call| call.index <= until.index && call.near.is_some()) {
            groups.push((begin.named.1.clone(), begin.rank));
        }
    }
    groups
}

/// Each place where the ranks of the run decide something that a program could agree on: the cause first.
fn decisions(shown: &Counterexample) -> Vec<(String, Loc)> {
    let mut places: Vec<(String, Loc)> = Vec::new();
    let cause = match &shown.cause {
        Some(Cause::Value { decision, .. } | Cause::Disagreement { decision: (decision, _), .. }) => {
            Some(*decision)
        }
        Some(Cause::Answer { .. } | Cause::Order { .. } | Cause::Extra { .. } | Cause::Difference { .. })
        | None => None,
    };
    let order = cause.into_iter().chain((0..shown.run.decisions.len()).rev());
    for decision in order.map(|nth| &shown.run.decisions[nth]) {
        let known = places.iter().any(|(_, at)| *at == decision.at.loc);
        // Where memory lies, and what an allocator did before, no program decides.
        let asks = shown.run.operation(&decision.at).is_some_and(|operation| operation.asks);
        if !known && asks && matches!(decision.decided, Decided::Values { .. }) {
            // The repair is about all that is decided there, such as in each round of a loop.
            let there = shown.run.decisions.iter().filter(|other| other.at.loc == decision.at.loc);
            let mut named: Vec<&str> = Vec::new();
            for what in there.map(|other| other.op.strip_prefix("choose ").unwrap_or(&other.op)) {
                if !named.contains(&what) {
                    named.push(what);
                }
            }
            let named = match named[..] {
                [one, two, _, _, ..] => format!("{one}, {two} and {} more", named.len() - 2),
                _ => named.join(" and "),
            };
            places.push((named, decision.at.loc.clone()));
        }
    }
    places
}

/// A call as repairs name it: with its operands where those are the same on all ranks that make it.
fn in_words(shown: &Counterexample, text: &str, loc: &Loc) -> (String, Loc) {
    let done = shown.run.operations.iter().map(|other| (&other.at.loc, &other.text));
    let ahead = shown.run.ahead.iter().map(|other| (&other.at.loc, &other.text));
    let there: Vec<&String> =
        done.chain(ahead).filter(|(at, _)| *at == loc).map(|(_, other)| other).collect();
    // Of a copy, which is no call of something, the verb.
    let call = |text: &str| match text.split_once('(') {
        Some((call, _)) if !call.contains(' ') => call.to_owned(),
        _ if text.contains(' ') => text.split(' ').next().unwrap_or(text).to_owned(),
        _ => text.to_owned(),
    };
    let named = if there.iter().all(|other| *other == text) {
        text.to_owned()
    } else if there.iter().all(|other| call(other) == call(text)) {
        call(text)
    } else {
        // On whom it is called differs too.
        let call = call(text);
        call.rsplit('.').next().unwrap_or(&call).to_owned()
    };
    (named, loc.clone())
}

/// The operations of the finding and those that are marked, one for each place.
fn calls(shown: &Counterexample) -> Vec<&Operation> {
    const TRIED: usize = 12;
    let mut calls: Vec<&Operation> = Vec::new();
    for at in shown.broken.ops.iter().chain(&shown.essential) {
        let Some(operation) = shown.run.operation(at) else { continue };
        let known = calls.iter().any(|call| call.at.loc == operation.at.loc);
        if !known
            && super::explain::nameable(operation)
            && operation.kind != Kind::Bookkeeping
            && calls.len() < TRIED
        {
            calls.push(operation);
        }
    }
    calls
}

/// A call of a thread: done, blocked, or known to come.
struct KnownCall {
    rank: Rank,
    start: ThreadStart,
    index: u32,
    /// The call as all ranks make it, and where it is written.
    named: (String, Loc),
    /// The call as this rank makes it.
    text: String,
    /// How near to the finding it is: 0 for the operation that breaks the rule; none if it is not marked.
    near: Option<usize>,
    op: Op,
    /// Whether its result is used, as far as anybody knows.
    used: bool,
}

/// Calls that a thread makes near one another, of which the finding has one or one is marked, nearest first, and whether
/// they can change places.
fn neighbours(calls: &[Rc<KnownCall>]) -> Vec<(Rc<KnownCall>, Rc<KnownCall>, bool)> {
    /// Operations that may lie between them.
    const BETWEEN: u32 = 8;
    let mut pairs = Vec::new();
    for first in calls {
        for second in calls {
            let follows =
                (first.rank, first.start) == (second.rank, second.start) && first.index < second.index;
            let near = [first.near, second.near].into_iter().flatten().min();
            let Some(near) = near.filter(|_| follows && second.index - first.index <= BETWEEN) else {
                continue;
            };
            // Nobody reads a result under the number of the other.
            let group = |call: &KnownCall| matches!(call.op, Op::Group(_));
            let swaps = first.op.slots() == second.op.slots()
                && !(first.used || second.used || group(first) || group(second));
            pairs.push((near, second.index - first.index, Rc::clone(first), Rc::clone(second), swaps));
        }
    }
    pairs.sort_by_key(|(near, between, ..)| (*near, *between));
    pairs.into_iter().map(|(.., first, second, swaps)| (first, second, swaps)).collect()
}

fn all_calls(broken: &Broken<'_>) -> Vec<Rc<KnownCall>> {
    let shown = broken.shown;
    let of = (shown.broken.rule, shown.broken.about.as_str(), shown.broken.by);
    let choices = &broken.exploration.broken[&shown.broken.rule].choices;
    let trials = Trials::new(broken.source, &broken.exploration.config, choices, of, u64::MAX);
    let Ok(Some(trials)) = trials else { return Vec::new() };
    let near = |at: &Located| shown.broken.ops.iter().chain(&shown.essential).position(|other| other.is(at));
    let done = shown.run.operations.iter().filter_map(|operation| {
        let at = trials.position(&operation.at.op)?;
        let performed = trials.performed_at(at)?;
        let op = performed.op.clone()?;
        let named = in_words(shown, &operation.text, &operation.at.loc);
        let (near, used) = (near(&operation.at), trials.is_used(performed));
        let text = operation.text.clone();
        Some(KnownCall { rank: at.rank, start: at.start, index: at.index, named, text, near, op, used })
    });
    let ahead = shown.run.ahead.iter().filter_map(|Ahead { at, op, text, used }| {
        let OpPosition { rank, start, index } = trials.position(&at.op)?;
        let (op, named) = (op.clone(), in_words(shown, text, &at.loc));
        let (text, used) = (text.clone(), *used);
        Some(KnownCall { rank, start, index, named, text, near: None, op, used })
    });
    done.chain(ahead).map(Rc::new).collect()
}

/// Whether a call gives memory or a mapping back, and nothing else.
fn gives_back(op: &Op) -> bool {
    let gives = match op {
        Op::Memory(op) => {
            matches!(op, MemoryOp::Free { .. } | MemoryOp::FreeOn { .. } | MemoryOp::Release { .. })
        }
        Op::Ipc(op) => matches!(op, IpcOp::Close { .. }),
        Op::Pool(op) => matches!(op, PoolOp::Trim { .. }),
        Op::Thread(_)
        | Op::Comm(_)
        | Op::Window(_)
        | Op::Group(_)
        | Op::Collective(_)
        | Op::Transfer(_)
        | Op::Overlap(_)
        | Op::Stream(_)
        | Op::Event(_)
        | Op::Graph(_)
        | Op::Exchange(_)
        | Op::Barrier(_)
        | Op::Mutex(_)
        | Op::Store(_)
        | Op::Flag(_)
        | Op::Map(_)
        | Op::List(_) => false,
    };
    gives && op.slots() == 0
}

/// Whether a call can be the first or the last of a group.
fn grouped(op: &Op) -> bool {
    // What the end of a group waits for that destroys a communicator is not modelled.
    let ends = matches!(op, Op::Comm(CommOp::Finalize { .. } | CommOp::Destroy { .. }));
    matches!(op, Op::Collective(_) | Op::Transfer(_) | Op::Group(_) | Op::Window(_) | Op::Comm(_)) && !ends
}

/// Whether calls can be made in one group: what is launched between them would come before what the end of the group
/// launches, so it may not use what they use.
fn may_be_grouped(statements: &[Statement], naming: &dyn Naming) -> bool {
    let of = |such: fn(&Op) -> bool| -> BTreeSet<Slot> {
        let ops = statements.iter().map(|statement| &*statement.op).filter(|op| such(op));
        ops.flat_map(|op| uses(op, naming)).collect()
    };
    let communicates = |op: &Op| matches!(op, Op::Collective(_) | Op::Transfer(_));
    let works = |op: &Op| {
        matches!(
            op,
            Op::Stream(StreamOp::Kernel { .. })
                | Op::Memory(MemoryOp::Copy { .. } | MemoryOp::Expect { .. })
                | Op::Memory(MemoryOp::Free { .. } | MemoryOp::FreeOn { .. })
        )
    };
    // NCCL's group knows nothing of a capture that begins or ends in it, and takes a window out at once.
    let apart = |statement: &Statement| {
        matches!(&*statement.op, Op::Graph(_) | Op::Window(WindowOp::Deregister { .. }))
    };
    !statements.iter().any(apart) && of(communicates).is_disjoint(&of(works))
}

/// Whether a call may wait for other ranks, or they for it.
fn meets_others(op: &Op) -> bool {
    match op {
        Op::Comm(_)
        | Op::Window(_)
        | Op::Group(_)
        | Op::Collective(_)
        | Op::Transfer(_)
        | Op::Ipc(_)
        | Op::Exchange(_)
        | Op::Barrier(_)
        | Op::Store(_)
        | Op::Flag(_)
        | Op::Stream(StreamOp::Synchronize { .. } | StreamOp::Wait { .. })
        | Op::Mutex(_)
        | Op::Event(_)
        | Op::Graph(GraphOp::Destroy { .. }) => true,
        // An end with an error is no call of the program.
        Op::Thread(op) => !matches!(op, ThreadOp::Exit { .. }),
        Op::Overlap(_)
        | Op::Stream(_)
        | Op::Graph(_)
        | Op::Memory(_)
        | Op::Pool(_)
        | Op::Map(_)
        | Op::List(_) => false,
    }
}

impl Wait {
    /// The operations that wait for it.
    fn ops(self, ranks: u32) -> Vec<Op> {
        let device = Op::Stream(StreamOp::Synchronize { what: Operand::Device });
        let members: Arc<[Rank]> = (0..ranks).map(Rank).collect();
        let barrier = Op::Barrier(BarrierOp::Enter { members });
        match self {
            Self::Device => vec![device],
            Self::Ranks => vec![barrier],
            Self::Devices => vec![device, barrier],
        }
    }
}

impl RepairChange {
    /// The changed program. Notes whether a block of it turns round what the unchanged one does with data.
    fn applied(&self, source: &Arc<dyn Source>, ranks: u32, turns: &Arc<AtomicBool>) -> Applied {
        let changed = |on: Scope, change: OwnBlockChange| {
            let turns = Arc::clone(turns);
            let source = on.applied(source, move |block| {
                let changed = change(block)?;
                if !keeps_data_order(block, &changed) {
                    turns.store(true, Ordering::Relaxed);
                }
                Some(changed)
            });
            Applied { source, agreed: Vec::new() }
        };
        let locs = Arc::clone(source);
        let is = move |statement: &Statement, at: &Loc| locs.loc(statement.loc) == *at;
        match self.clone() {
            Self::SameDecision { of } => {
                let agreed = of.into_iter().map(|(_, at)| at).collect();
                Applied { source: Arc::clone(source), agreed }
            }
            Self::Wait { what, side, call: _, at } => {
                let inserted: Vec<Arc<Op>> = what.ops(ranks).into_iter().map(Arc::new).collect();
                let change = move |block: &Block| {
                    block.ops.iter().any(|statement| is(statement, &at)).then(|| {
                        let mut ops = Vec::new();
                        for statement in &block.ops {
                            let there = is(statement, &at);
                            let new = || {
                                inserted.iter().map(|op| Statement { op: Arc::clone(op), loc: statement.loc })
                            };
                            ops.extend(new().filter(|_| there && side == Side::Before));
                            ops.push(statement.clone());
                            ops.extend(new().filter(|_| there && side == Side::After));
                        }
                        Block { ops, terminator: block.terminator.clone() }
                    })
                };
                changed(Scope::All, Box::new(change))
            }
            Self::Keep { call: _, at, twice: _ } => {
                let change = move |block: &Block| {
                    let mut block = block.clone();
                    let before = block.ops.len();
                    block.ops.retain(|statement| !is(statement, &at));
                    (block.ops.len() != before).then_some(block)
                };
                changed(Scope::All, Box::new(change))
            }
            Self::Swap { first: (_, first), second: (_, second), on } => {
                let change = move |block: &Block| {
                    let mut block = block.clone();
                    let pairs =
                        pairs(&block, |statement| is(statement, &first), |statement| is(statement, &second));
                    for (first, second) in &pairs {
                        block.ops.swap(*first, *second);
                    }
                    (!pairs.is_empty()).then_some(block)
                };
                changed(on, Box::new(change))
            }
            Self::Apart { at, on } => {
                let change = move |block: &Block| {
                    let mut block = block.clone();
                    let before = block.ops.len();
                    block
                        .ops
                        .retain(|statement| !(is(statement, &at) && matches!(&*statement.op, Op::Group(_))));
                    (block.ops.len() != before).then_some(block)
                };
                changed(on, Box::new(change))
            }
            Self::Group { first: (_, first), last: (_, last), wide, on } => {
                let names = Arc::clone(source);
                let change = move |block: &Block| {
                    let mut ops = block.ops.clone();
                    let (first, last) = (|s: &Statement| is(s, &first), |s: &Statement| is(s, &last));
                    let mut pairs = if wide { spans(block, first, last) } else { pairs(block, first, last) };
                    let names = NamesOf::new(&*names);
                    pairs.retain(|(first, last)| may_be_grouped(&block.ops[*first..=*last], &names));
                    let group = |op: GroupOp, loc| Statement { op: Op::Group(op).into(), loc };
                    for (first, last) in pairs.iter().rev() {
                        let (begins, ends) = (ops[*first].loc, ops[*last].loc);
                        ops.insert(last + 1, group(GroupOp::End, ends));
                        ops.insert(*first, group(GroupOp::Start, begins));
                    }
                    (!pairs.is_empty()).then(|| Block { ops, terminator: block.terminator.clone() })
                };
                changed(on, Box::new(change))
            }
        }
    }

    /// The lines at which something is changed.
    #[must_use]
    pub fn locs(&self) -> Vec<&Loc> {
        match self {
            Self::SameDecision { of } => of.iter().map(|(_, at)| at).collect(),
            Self::Wait { at, .. } | Self::Keep { at, .. } | Self::Apart { at, .. } => vec![at],
            Self::Swap { first: (_, first), second: (_, last), .. }
            | Self::Group { first: (_, first), last: (_, last), .. } => vec![first, last],
        }
    }

    /// What is changed, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let named = |(call, at): &(String, Loc)| format!("{call} ({at})");
        match self {
            Self::SameDecision { of } => {
                let of: Vec<String> = of.iter().map(named).collect();
                format!("the same decision on all ranks: {}", of.join(" and "))
            }
            Self::Wait { what, side, call, at } => {
                let what = match what {
                    Wait::Device => "a synchronize of the device",
                    Wait::Ranks => "a barrier of all ranks",
                    Wait::Devices => "a synchronize of the device and a barrier of all ranks",
                };
                let side = match side {
                    Side::Before => "before",
                    Side::After => "after",
                };
                format!("{what} {side} {call} ({at})")
            }
            Self::Keep { call, at, twice: true } => format!("without {call} ({at})"),
            Self::Keep { call, at, twice: false } => {
                format!("without {call} ({at}), whose memory then stays to the end of the program")
            }
            Self::Swap { first, second, on: Scope::InOrder } => {
                let (first, second) = (named(first), named(second));
                format!("where {first} comes before {second}, in each other's place")
            }
            Self::Swap { first, second, on } => {
                format!("{}{} and {} in each other's place", on.words(), named(first), named(second))
            }
            Self::Apart { at, on } => format!("{}without the group ({at}), its calls one by one", on.words()),
            Self::Group { first, last, wide: _, on } => {
                format!("{}from {} to {} in one group", on.words(), named(first), named(last))
            }
        }
    }
}

impl RepairChange {
    /// Whether another change tells nobody more than this one: the same calls, on fewer ranks, one more wait of the kind, or
    /// more decisions that ranks take alike.
    fn says_as_much_as(&self, other: &Self) -> bool {
        let is = |one: &(String, Loc), other: &(String, Loc)| one.1 == other.1;
        match (self, other) {
            (Self::Wait { what, .. }, Self::Wait { what: other, .. }) => {
                what == other || *other == Wait::Devices
            }
            (Self::Swap { first, second, .. }, Self::Swap { first: one, second: other, .. })
            | (Self::Group { first, last: second, .. }, Self::Group { first: one, last: other, .. }) => {
                is(first, one) && is(second, other)
            }
            (Self::Apart { at, .. }, Self::Apart { at: other, .. }) => at == other,
            (Self::SameDecision { of }, Self::SameDecision { of: more }) => {
                of.iter().all(|decision| more.iter().any(|other| is(decision, other)))
            }
            _ => self.words() == other.words(),
        }
    }

    /// What is changed where, whatever the calls there are called.
    fn places(&self) -> Self {
        let at = |(_, at): &(String, Loc)| (String::new(), at.clone());
        let mut places = self.clone();
        match &mut places {
            Self::SameDecision { .. } | Self::Apart { .. } => {}
            Self::Wait { call, .. } | Self::Keep { call, .. } => call.clear(),
            Self::Swap { first, second, .. } => (*first, *second) = (at(first), at(second)),
            Self::Group { first, last, .. } => (*first, *last) = (at(first), at(last)),
        }
        places
    }
}

impl Scope {
    fn applied(
        self,
        source: &Arc<dyn Source>,
        change: impl Fn(&Block) -> Option<Block> + Send + Sync + 'static,
    ) -> Arc<dyn Source> {
        match self {
            Self::All | Self::InOrder => alike(source, change),
            Self::Odd | Self::One(_) => {
                changed(source, move |block, of| Ok(self.has(of.rank).then(|| change(block)).flatten()))
            }
        }
    }

    fn words(self) -> String {
        match self {
            Self::All | Self::InOrder => String::new(),
            Self::Odd => "on odd ranks ".to_owned(),
            Self::One(rank) => format!("on rank {} ", rank.0),
        }
    }
}

/// Positions of one statement and of another that follows it, pair by pair.
fn pairs(
    block: &Block,
    first: impl Fn(&Statement) -> bool,
    second: impl Fn(&Statement) -> bool,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut open = None;
    for (at, statement) in block.ops.iter().enumerate() {
        match open {
            Some(begun) if second(statement) => {
                pairs.push((begun, at));
                open = None;
            }
            _ if first(statement) => open = Some(at),
            _ => {}
        }
    }
    pairs
}

/// Positions of the first of some statements and of the last of others that follow them, span by span.
fn spans(
    block: &Block,
    first: impl Fn(&Statement) -> bool,
    last: impl Fn(&Statement) -> bool,
) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut open = None;
    let mut closed = false;
    for (at, statement) in block.ops.iter().enumerate() {
        if last(statement)
            && let Some(begun) = open
        {
            if closed {
                spans.pop();
            }
            spans.push((begun, at));
            closed = true;
        }
        if first(statement) && (open.is_none() || closed) {
            (open, closed) = (Some(at), false);
        }
    }
    spans
}
