//! What a rank has to show for: errors that calls returned, what it cost, and whether its data are right.
//! Not here: what a whole run leaves behind ([`super::outcome`]).

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::state::{RankState, Table};
use crate::walk::{LocalHash, walk};

/// A call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallError {
    /// The call, with its object.
    pub call: Arc<str>,
    /// `ncclResult_t`, or 2 for an allocation that ran out of memory.
    pub code: i32,
    /// The host thread that made it.
    pub thread: u32,
}

/// What a rank holds that it could give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct HeldResources {
    /// Communicators that are not destroyed.
    pub communicators: u32,
    /// Windows that are registered with them.
    pub registrations: u32,
    /// Mappings of memory of other ranks.
    pub mappings: u32,
    /// Bytes of the segments that it holds.
    pub reserved_bytes: u64,
}

impl HeldResources {
    fn raise_to(&mut self, other: &Self) {
        self.communicators = self.communicators.max(other.communicators);
        self.registrations = self.registrations.max(other.registrations);
        self.mappings = self.mappings.max(other.mappings);
        self.reserved_bytes = self.reserved_bytes.max(other.reserved_bytes);
    }

    /// What of this was not held then.
    fn beyond(self, then: Self) -> Self {
        Self {
            communicators: self.communicators.saturating_sub(then.communicators),
            registrations: self.registrations.saturating_sub(then.registrations),
            mappings: self.mappings.saturating_sub(then.mappings),
            reserved_bytes: self.reserved_bytes.saturating_sub(then.reserved_bytes),
        }
    }
}

/// What a program costs; counted for each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Communicators made, whether by an init or by a split.
    pub communicators: u32,
    /// Window registrations before `r.steady()`.
    pub registrations_warm_up: u32,
    /// Window registrations after it.
    pub registrations: u32,
    /// Host barriers and agreements after it.
    pub barriers: u32,
    /// Store calls after it.
    pub store_calls: u32,
    /// Collectives launched after it.
    pub collectives: u32,
    /// Bytes of segments held now.
    pub reserved_bytes: u64,
    /// The most bytes of segments held at once.
    pub reserved_bytes_max: u64,
    /// Whether `r.steady()` was passed.
    pub steady: bool,
    /// What the rank held there.
    pub held_at_steady: HeldResources,
    /// How much more it holds where the run ends.
    pub left: HeldResources,
}

impl Costs {
    /// Raises each maximum to what another rank or run cost. What is held now is no maximum.
    pub fn raise_to(&mut self, other: &Self) {
        self.communicators = self.communicators.max(other.communicators);
        self.registrations = self.registrations.max(other.registrations);
        self.registrations_warm_up = self.registrations_warm_up.max(other.registrations_warm_up);
        self.barriers = self.barriers.max(other.barriers);
        self.store_calls = self.store_calls.max(other.store_calls);
        self.collectives = self.collectives.max(other.collectives);
        self.reserved_bytes_max = self.reserved_bytes_max.max(other.reserved_bytes_max);
        self.steady |= other.steady;
        self.left.raise_to(&other.left);
    }
}

/// What a rank has executed of that which a verdict is about. It follows from the answers that its threads were given and
/// from the values that were chosen for it, so it tells no states apart where these are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Executed {
    /// Collectives, each replay of a captured one too.
    pub collectives: u32,
    /// Halves of transfers, also those that a collective is made of.
    pub transfers: u32,
    /// Mappings of memory of other ranks.
    pub mappings: u32,
    /// Barriers, votes, store calls, flags, mutexes, kernels, copies, frees and accesses of lists.
    pub others: u32,
}

impl Executed {
    /// Raises each number to what another rank or run executed.
    pub fn raise_to(&mut self, other: &Self) {
        self.collectives = self.collectives.max(other.collectives);
        self.transfers = self.transfers.max(other.transfers);
        self.mappings = self.mappings.max(other.mappings);
        self.others = self.others.max(other.others);
    }
}

/// What a rank has come to on a part of a run: what that cost, and what was executed. Nothing that a rank does depends on it, so where
/// histories merge it tells no states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Tally([u64; Tally::NUMBERS.end]);

impl Tally {
    /// The numbers that a tally has.
    pub const NUMBERS: Range<usize> = 0..13;
    /// Of these the ones that are told of a run.
    pub const TOLD: Range<usize> = 0..11;
    /// The one that is no sum: how many more bytes of segments were held at once than at the beginning.
    const PEAK: usize = 10;
    /// How many more were held at the end than at the beginning, and how many fewer.
    const MORE: usize = 11;
    const LESS: usize = 12;

    fn of(Ledger { costs, executed, reserved_before, .. }: &Ledger) -> Self {
        let sums = [
            costs.communicators,
            costs.registrations_warm_up,
            costs.registrations,
            costs.barriers,
            costs.store_calls,
            costs.collectives,
            executed.collectives,
            executed.transfers,
            executed.mappings,
            executed.others,
        ];
        let mut tally = Self::default();
        tally.0.iter_mut().zip(sums).for_each(|(number, sum)| *number = sum.into());
        tally.0[Self::MORE] = costs.reserved_bytes.saturating_sub(*reserved_before);
        tally.0[Self::LESS] = reserved_before.saturating_sub(costs.reserved_bytes);
        tally.0[Self::PEAK] = costs.reserved_bytes_max - reserved_before;
        tally
    }

    /// One of its numbers.
    #[must_use]
    pub fn get(&self, number: usize) -> u64 {
        self.0[number]
    }

    /// Sets one of its numbers.
    pub fn set(&mut self, number: usize, to: u64) {
        self.0[number] = to;
    }

    /// The numbers on which it depends what one of them comes to on two parts of a run: itself first.
    #[must_use]
    pub fn needed_for(number: usize) -> [usize; 3] {
        [number, Self::MORE, Self::LESS]
    }

    /// What one of its numbers comes to on a part of a run on which those that it needs come to these, and the next, on which it
    /// comes to this.
    #[must_use]
    pub fn together(number: usize, [own, more, less]: [u64; 3], next: u64) -> u64 {
        if number == Self::PEAK { (more + next).saturating_sub(less).max(own) } else { own + next }
    }

    /// What a run cost that comes to this.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let sum = |at: usize| u32::try_from(self.0[at]).unwrap_or(u32::MAX);
        Costs {
            communicators: sum(0),
            registrations_warm_up: sum(1),
            registrations: sum(2),
            barriers: sum(3),
            store_calls: sum(4),
            collectives: sum(5),
            // A run begins with none.
            reserved_bytes_max: self.0[Self::PEAK],
            ..Costs::default()
        }
    }

    /// What was executed on that part of the run.
    #[must_use]
    pub fn executed(&self) -> Executed {
        let sum = |at: usize| u32::try_from(self.0[at]).unwrap_or(u32::MAX);
        Executed { collectives: sum(6), transfers: sum(7), mappings: sum(8), others: sum(9) }
    }
}

/// The ledger of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// By thread, and in the order of each.
    errors: Vec<CallError>,
    /// The operations that are calls which returned an error.
    failed: Vec<OpRef>,
    costs: Costs,
    /// What the rank held when its costs were last taken.
    reserved_before: u64,
    executed: Executed,
    /// Something left wrong data without an error.
    corrupt: bool,
}

identify_as_hashed!(CallError, HeldResources);
walk!(apart struct Ledger {
    errors: hashed fixed,
    // What is told of it stands in `errors`.
    failed: explains moved,
    costs: hashed fixed,
    // What was counted since stands on the way to a state.
    reserved_before: explains fixed,
    // A kernel that a capture of another thread records is not executed, wherever the threads stand.
    executed: hashed fixed,
    corrupt: hashed fixed,
});

impl Identify for Ledger {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { errors, failed: _, costs, reserved_before: _, executed: _, corrupt } = self;
        // What is counted stands on the way to a state. Of what is held, only how much more that is at the end than it was in
        // the steady state.
        let Costs { reserved_bytes, steady, held_at_steady, left, .. } = costs;
        (errors, steady).identify(to);
        let beyond = steady.then(|| reserved_bytes.wrapping_sub(held_at_steady.reserved_bytes));
        let held = HeldResources { reserved_bytes: 0, ..*held_at_steady };
        (beyond, held, left).identify(to);
        corrupt.identify(to);
    }
}

impl LocalHash for Ledger {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.errors.hash(state);
    }
}

impl RankState {
    /// Calls that returned an error, by thread and in the order of each.
    #[must_use]
    pub fn errors(&self) -> &[CallError] {
        &Ledger::of(self).errors
    }

    /// Returns the operations that are calls which returned an error, in no particular order of their threads.
    #[must_use]
    pub fn failed(&self) -> &[OpRef] {
        &Ledger::of(self).failed
    }

    /// A call, which is this operation, returned an error.
    pub(crate) fn add_error(&mut self, error: CallError, op: OpRef) {
        Ledger::of_mut(self).failed.push(op);
        let errors = &mut Ledger::of_mut(self).errors;
        // Nothing orders what different threads see: by thread, so that equal outcomes look equal.
        let at = errors.partition_point(|earlier| earlier.thread <= error.thread);
        errors.insert(at, error);
    }

    /// Returns what the run has cost so far.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &Ledger::of(self).costs
    }

    /// Returns what a run has cost that ends here.
    #[must_use]
    pub fn costs_at_end(&self) -> Costs {
        let costs = *self.costs();
        let left = if costs.steady { self.held().beyond(costs.held_at_steady) } else { costs.left };
        Costs { left, ..costs }
    }

    /// What the rank holds that it could give back.
    fn held(&self) -> HeldResources {
        let count = |number: usize| u32::try_from(number).expect("few objects a rank");
        let comms = || self.comms().filter(|(_, comm)| !comm.is_destroyed());
        HeldResources {
            communicators: count(comms().count()),
            registrations: comms()
                .map(|(_, comm)| {
                    count(comm.windows().rows().iter().filter(|window| window.is_live()).count())
                })
                .sum(),
            mappings: count(self.mapped().count()),
            reserved_bytes: self.costs().reserved_bytes,
        }
    }

    /// From here on the rank does again and again what it does.
    pub(crate) fn becomes_steady(&mut self) {
        let held = self.held();
        let costs = self.costs_mut();
        (costs.steady, costs.held_at_steady) = (true, held);
    }

    /// Costs, to be added to.
    pub(crate) fn costs_mut(&mut self) -> &mut Costs {
        &mut Ledger::of_mut(self).costs
    }

    /// Returns what the rank has executed so far.
    #[must_use]
    pub fn executed(&self) -> &Executed {
        &Ledger::of(self).executed
    }

    /// What the rank has executed, to be added to.
    pub(crate) fn executed_mut(&mut self) -> &mut Executed {
        &mut Ledger::of_mut(self).executed
    }

    /// What the rank has come to since this was last taken.
    pub(crate) fn tally(&self) -> Tally {
        Tally::of(Ledger::of(self))
    }

    /// Whether nothing is left of what was taken.
    pub(crate) fn counts_nothing(&self) -> bool {
        self.tally() == Tally::default()
    }

    /// From here on it is counted anew.
    pub(crate) fn count_anew(&mut self) {
        let Costs { reserved_bytes, steady, held_at_steady, left, .. } = *self.costs();
        *self.costs_mut() = Costs {
            reserved_bytes,
            reserved_bytes_max: reserved_bytes,
            steady,
            held_at_steady,
            left,
            ..Costs::default()
        };
        *self.executed_mut() = Executed::default();
        Ledger::of_mut(self).reserved_before = reserved_bytes;
    }

    /// Whether something left wrong data without an error.
    pub(crate) fn is_corrupt(&self) -> bool {
        Ledger::of(self).corrupt
    }

    /// Something left wrong data without an error.
    pub(crate) fn spoil(&mut self) {
        Ledger::of_mut(self).corrupt = true;
    }
}
