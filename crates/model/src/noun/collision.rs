//! Calls that are launched together and use the same bytes, of which one writes: nothing orders them.
//!
//! The collectives of a group on one communicator share a kernel, and so do transfers; on several communicators they are
//! launched in an order that the program does not know. Source: `enqueue.cc:392-416` and `1583-1636` (the order in a
//! group), `include/group.h:104-121` (that of communicators), `specs/rules/memory.md`, MEM-2.
//! Not here: a collective whose output overlaps its own input ([`crate::noun::collective`]).

use crate::cx::Cx;
use crate::host::value::{Buffer, CommId, MemoryId};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::noun::collective::Launch;
use crate::noun::memory::overlap;
use crate::noun::p2p::{Called, Direction};
use crate::order::dependence::Access;
use crate::rank::Rank;

/// Bytes that a call reads or writes.
struct CallAccess<'a> {
    /// Which of the calls it is.
    call: usize,
    op: OpRef,
    buffer: &'a Buffer,
    access: Access,
    /// For half of a transfer of a rank with itself, the communicator.
    to_itself: Option<CommId>,
}

impl CallAccess<'_> {
    /// Whose memory it is, and which.
    fn memory(&self, rank: Rank) -> (Rank, MemoryId) {
        (self.buffer.home(rank), self.buffer.memory)
    }

    fn range(&self) -> (u64, u64) {
        (self.buffer.offset_bytes, self.buffer.len_bytes)
    }

    fn writes(&self) -> bool {
        self.access == Access::Write
    }

    /// Whether nothing orders the two, and it matters. What a rank sends itself may lie where it is received: that is
    /// how a root gathers and scatters in place (`nccl.h`).
    fn collides(&self, other: &Self, rank: Rank) -> bool {
        let in_place = self.to_itself.is_some()
            && self.to_itself == other.to_itself
            && self.writes() != other.writes()
            && self.range() == other.range();
        self.call != other.call
            && (self.writes() || other.writes())
            && self.memory(rank) == other.memory(rank)
            && overlap(self.range(), other.range())
            && !in_place
    }
}

/// Whether two of these may collide: tells the usual group, in which none do, without a look at every pair.
fn may_collide(touches: &[CallAccess<'_>], rank: Rank) -> bool {
    let mut sorted: Vec<&CallAccess<'_>> = touches.iter().collect();
    sorted.sort_by_key(|touch| (touch.memory(rank), touch.buffer.offset_bytes));
    let mut sorted = sorted.into_iter().peekable();
    while let Some(first) = sorted.next() {
        let memory = first.memory(rank);
        let end = |touch: &CallAccess<'_>| touch.range().0.saturating_add(touch.range().1);
        let (mut touched, mut written) = (end(first), if first.writes() { end(first) } else { 0 });
        while let Some(next) = sorted.next_if(|next| next.memory(rank) == memory) {
            let before = if next.writes() { touched } else { written };
            if next.range().0 < before {
                return true;
            }
            touched = touched.max(end(next));
            if next.writes() {
                written = written.max(end(next));
            }
        }
    }
    false
}

impl Cx<'_> {
    /// Judges what a group launches.
    pub(crate) fn judge_collisions_in_group(&mut self, launches: &[Launch], transfers: &[Called]) {
        if launches.len() + transfers.len() < 2 {
            return;
        }
        let (m, rank) = (self.m, self.rank);
        let mut touches = Vec::new();
        for (call, launch) in launches.iter().enumerate() {
            let counting = m.counting(rank, launch.comm, launch.call.kind);
            let one = |buffer, access| CallAccess { call, op: launch.op, buffer, access, to_itself: None };
            touches.extend(counting.reads().then(|| one(&*launch.send, Access::Read)));
            touches.extend(counting.writes().then(|| one(&*launch.recv, Access::Write)));
        }
        touches.extend(halves(transfers, rank, launches.len()));
        self.judge_collisions(&touches);
    }

    /// Judges transfers that one call is made of.
    pub(crate) fn judge_collisions_of_call(&mut self, transfers: &[Called]) {
        if transfers.len() > 1 {
            let touches: Vec<CallAccess<'_>> = halves(transfers, self.rank, 0).collect();
            self.judge_collisions(&touches);
        }
    }

    fn judge_collisions(&mut self, touches: &[CallAccess<'_>]) {
        let (m, rank) = (self.m, self.rank);
        if !may_collide(touches, rank) {
            return;
        }
        for (at, one) in touches.iter().enumerate() {
            let Some(other) = touches[..at].iter().find(|other| one.collides(other, rank)) else { continue };
            let past = self.here().past();
            let about = About::Memory(rank, one.buffer.memory);
            m.find(self.state, Rule::Mem2, about, &[one.op, other.op], past, || {
                if one.op == other.op {
                    return format!(
                        "on rank {} nothing orders what is sent and what is received at {}, which are the same bytes of {}: it does not \
                         work in place there",
                        rank.0,
                        m.at(&one.op),
                        m.buffer_name(one.buffer)
                    );
                }
                format!(
                    "on rank {} nothing orders the accesses to {} at {} and at {}: a group runs them together",
                    rank.0,
                    m.buffer_name(one.buffer),
                    m.at(&other.op),
                    m.at(&one.op)
                )
            });
            Machine::undefine(self.state, one.op);
        }
    }
}

/// What transfers read and write; the calls are numbered from `first` on.
fn halves(transfers: &[Called], rank: Rank, first: usize) -> impl Iterator<Item = CallAccess<'_>> {
    transfers.iter().zip(first..).map(move |((comm, _, half), call)| CallAccess {
        call,
        op: half.op,
        buffer: &half.buffer,
        access: match half.direction {
            Direction::Send => Access::Read,
            Direction::Recv => Access::Write,
        },
        to_itself: (half.peer == rank).then_some(*comm),
    })
}
