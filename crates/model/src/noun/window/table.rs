//! The windows of a communicator on a rank, registered still or not, and registrations that were left over.
//! Not here: how they are made and which of them a buffer is found in.

use std::hash::Hash;

use crate::clock::{Actor, Clock};
use crate::host::value::{Buffer, Value};
use crate::identity::{Identify, StateIdentity};
use crate::judge::finding::OpRef;
use crate::noun::window::WindowFlags;
use crate::walk::walk;

/// A registration as one rank made it.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Position among the set-up events of the communicator.
    pub(super) nth: u32,
    pub(super) buffer: Buffer,
    pub(super) flags: WindowFlags,
    pub(super) live: bool,
    /// Gone, but the lookup table still names it.
    pub(super) dangling: bool,
    pub(super) op: OpRef,
    /// Last use by each actor.
    uses: Vec<LastUse>,
}

walk!(apart struct Window {
    nth: hashed fixed,
    buffer: hashed fixed,
    flags: hashed fixed,
    live: hashed fixed,
    dangling: hashed fixed,
    op: hashed moved,
    uses: hashed moved,
});

impl Identify for Window {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { nth, buffer, flags, live, dangling, op, uses } = self;
        (nth, buffer, flags, live, dangling).hash(to);
        op.identify(to);
        let unknown: Vec<&LastUse> =
            uses.iter().filter(|used| !to.is_known(used.actor, used.epoch)).collect();
        to.unordered(unknown, |used, to| to.asked_about(used.actor, used.epoch));
    }
}

impl Window {
    fn use_by(&mut self, now: LastUse) {
        self.uses.retain(|used| used.actor != now.actor);
        self.uses.push(now);
    }

    /// Whether whoever has this clock knows that every use is over.
    pub(super) fn unused_for(&self, clock: &Clock) -> bool {
        self.uses.iter().all(|used| clock.after(used.actor, used.epoch))
    }

    /// Whether the lookup table orders the two by nothing but their insertion.
    pub(super) fn starts_with(&self, other: &Self) -> bool {
        self.buffer.address == other.buffer.address && self.buffer.offset_bytes == other.buffer.offset_bytes
    }
}

/// The last operation of an actor that used a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastUse {
    actor: Actor,
    epoch: u32,
}

walk!(apart struct LastUse { actor: hashed moved, epoch: hashed fixed });

/// A registration that was queued by a group that was discarded.
#[derive(Debug, Clone)]
pub(super) struct Leftover {
    pub(super) memory: Value,
    pub(super) flags: WindowFlags,
    pub(super) op: OpRef,
}

walk!(struct Leftover { memory: hashed fixed, flags: hashed fixed, op: hashed moved });

impl LastUse {
    /// The operation that whoever has this clock does now.
    pub(crate) fn now(clock: &Clock) -> Self {
        Self { actor: clock.actor(), epoch: clock.epoch() }
    }
}

/// The windows of a communicator on a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    pub(super) rows: Vec<Window>,
    /// Registrations of discarded groups, oldest first. They run before the rank's next one.
    pub(super) leftover: Vec<Leftover>,
}

walk!(struct Windows { rows: hashed moved, leftover: hashed moved });

impl Window {
    pub(super) fn new(nth: u32, buffer: Buffer, flags: WindowFlags, op: OpRef) -> Self {
        Self { nth, buffer, flags, live: true, dangling: false, op, uses: Vec::new() }
    }

    /// Position among the set-up events of the communicator.
    pub(crate) fn nth(&self) -> u32 {
        self.nth
    }

    /// Returns the memory that was registered.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// What it was registered as.
    pub(crate) fn flags(&self) -> WindowFlags {
        self.flags
    }

    /// Whether it is gone and the lookup table still names it.
    pub(crate) fn is_dangling(&self) -> bool {
        self.dangling
    }

    /// Whether it is registered still.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// The operation that registered it.
    pub(crate) fn op(&self) -> OpRef {
        self.op
    }
}

impl Windows {
    /// All windows that were made, registered still or not.
    pub(crate) fn rows(&self) -> &[Window] {
        &self.rows
    }

    /// The memory of registrations of discarded groups, which run later.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = &Value> {
        self.leftover.iter().map(|leftover| &leftover.memory)
    }

    /// The window that the n-th set-up event made, registered still or not.
    pub(crate) fn get(&self, nth: u32) -> Option<&Window> {
        self.rows.iter().find(|window| window.nth == nth)
    }

    /// The n-th window is used.
    pub(crate) fn use_by(&mut self, nth: u32, now: LastUse) {
        if let Some(window) = self.rows.iter_mut().find(|window| window.nth == nth) {
            window.use_by(now);
        }
    }

    /// Whether the lookup table names a window that is gone where this one starts.
    pub(crate) fn dangles_at(&self, window: &Window) -> bool {
        self.rows.iter().any(|other| other.dangling && other.starts_with(window))
    }

    /// A group was discarded that would have registered this.
    pub(crate) fn leave(&mut self, memory: Value, flags: WindowFlags, op: OpRef) {
        self.leftover.push(Leftover { memory, flags, op });
    }

    /// What was left over first: memory, flags, and the operation that meant to register it.
    pub(crate) fn first_leftover(&self) -> Option<(&Value, WindowFlags, OpRef)> {
        self.leftover.first().map(|Leftover { memory, flags, op }| (memory, *flags, *op))
    }
}
