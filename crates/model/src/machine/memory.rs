//! Memory of a rank: contents in pieces, and the race detector over past accesses.
//!
//! A race is judged by clocks alone: two accesses to the same bytes, one a write, that happens-before does
//! not order, whatever order this run took. Not here: who hands memory out ([`super::pool`]).

use std::sync::Arc;

use super::contention::{Object, Touch};
use super::state::{Access, Accessed, Memory, State, whole};
use super::value::{Buffer, MemoryId};
use super::{Machine, locked};
use crate::fault::{About, OpRef, Rule};
use crate::program::MemoryKind;
use crate::rank::Rank;
use crate::term::{Content, TermNode};

/// A range of physical memory of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) memory: MemoryId,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Range {
    pub(crate) fn of(buffer: &Buffer) -> Self {
        Self { memory: buffer.memory, offset_bytes: buffer.offset_bytes, len_bytes: buffer.len_bytes }
    }

    /// A part of the range.
    pub(crate) fn sub(&self, at: u64, len_bytes: u64) -> Self {
        Self { memory: self.memory, offset_bytes: self.offset_bytes + at, len_bytes }
    }
}

/// Whether two ranges, each a start and a length, share a byte.
pub(crate) fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

impl Machine {
    /// New physical memory of a rank.
    pub(crate) fn create(&self, state: &mut State, rank: Rank, kind: MemoryKind, buffer: &Arc<Buffer>) {
        let memory = Memory {
            kind,
            buffer: Arc::clone(buffer),
            released: None,
            pieces: Vec::new(),
            accesses: Vec::new(),
        };
        let r = state.rank_mut(rank);
        r.memory.insert(buffer.memory, Arc::new(memory));
        r.costs.reserved_bytes += buffer.len_bytes;
        r.costs.reserved_bytes_max = r.costs.reserved_bytes_max.max(r.costs.reserved_bytes);
    }

    /// A buffer was just handed out: what it holds is its own initial term.
    pub(crate) fn fresh_contents(&self, state: &mut State, rank: Rank, buffer: &Buffer) {
        let original = rank;
        let term = locked(&self.terms).intern(TermNode::Initial(original, buffer.name));
        self.write(state, rank, &Range::of(buffer), Content::Whole(term));
    }

    /// What a range holds.
    pub(crate) fn read(&self, state: &State, rank: Rank, range: &Range) -> Content {
        let nothing = || TermNode::Row(Vec::new());
        let Some(memory) = state.ranks[rank.at()].memory.get(&range.memory) else {
            return Content::Whole(locked(&self.terms).intern(nothing()));
        };
        let (start, len) = (range.offset_bytes, range.len_bytes);
        // The usual case: the range is exactly one piece.
        if let Ok(at) = memory.pieces.binary_search_by_key(&start, |piece| piece.0)
            && memory.pieces[at].1 == len
        {
            return memory.pieces[at].2.clone();
        }
        let mut terms = locked(&self.terms);
        let mut parts = Vec::new();
        for (at, piece_len, content) in &memory.pieces {
            if !overlap((*at, *piece_len), (start, len)) {
                continue;
            }
            let term = whole(&mut terms, content);
            let (from, to) = ((*at).max(start), (at + piece_len).min(start + len));
            let covered = from == *at && to == at + piece_len;
            let part = if covered { term } else { terms.intern(TermNode::Part(term, from - at, to - from)) };
            parts.push((part, to - from));
        }
        Content::Whole(match parts.as_slice() {
            [(one, _)] => *one,
            _ => terms.intern(TermNode::Row(parts)),
        })
    }

    /// Replaces what a range holds.
    pub(crate) fn write(&self, state: &mut State, rank: Rank, range: &Range, content: Content) {
        let Some(memory) = state.rank_mut(rank).memory.get_mut(&range.memory) else { return };
        let memory = Arc::make_mut(memory);
        let (start, len) = (range.offset_bytes, range.len_bytes);
        if let Ok(at) = memory.pieces.binary_search_by_key(&start, |piece| piece.0)
            && memory.pieces[at].1 == len
        {
            memory.pieces[at].2 = content;
            return;
        }
        let mut kept = Vec::with_capacity(memory.pieces.len() + 2);
        let mut terms = locked(&self.terms);
        for (at, piece_len, old) in memory.pieces.drain(..) {
            if !overlap((at, piece_len), (start, len)) {
                kept.push((at, piece_len, old));
                continue;
            }
            let end = at + piece_len;
            let mut part = |from: u64, to: u64| {
                let term = whole(&mut terms, &old);
                Content::Whole(terms.intern(TermNode::Part(term, from - at, to - from)))
            };
            if at < start {
                kept.push((at, start - at, part(at, start)));
            }
            if end > start + len {
                kept.push((start + len, end - start - len, part(start + len, end)));
            }
        }
        if len > 0 {
            kept.push((start, len, content));
        }
        kept.sort_unstable_by_key(|piece| piece.0);
        memory.pieces = kept;
    }

    /// A stream of the rank accesses a buffer now.
    pub(crate) fn access(
        &self,
        state: &mut State,
        rank: Rank,
        stream: usize,
        buffer: &Buffer,
        access: Access,
        op: OpRef,
    ) {
        let r = state.rank_mut(rank);
        let clock = r.streams[stream].1.clock.clone();
        let Some(memory) = r.memory.get_mut(&buffer.memory) else { return };
        let memory = Arc::make_mut(memory);
        let range = (buffer.offset_bytes, buffer.len_bytes);
        let released = memory.released.is_some();
        let mut race = None;
        let epoch = clock.epoch();
        memory.accesses.retain(|old| {
            let theirs = (old.offset_bytes, old.len_bytes);
            if !overlap(theirs, range) {
                return true;
            }
            let ordered = clock.after(old.actor, old.epoch);
            if !ordered && (access == Access::Write || old.access == Access::Write) {
                race.get_or_insert(old.op);
            }
            // Whatever is unordered with an access that this one covers is unordered with this one.
            let covers = range.0 <= theirs.0 && theirs.0 + theirs.1 <= range.0 + range.1;
            let stronger = access == Access::Write || old.access == Access::Read;
            !(ordered && covers && stronger)
        });
        memory.accesses.push(Accessed {
            offset_bytes: range.0,
            len_bytes: range.1,
            actor: clock.actor(),
            epoch,
            access,
            op,
        });
        let about = About::Memory(rank, buffer.memory);
        if released {
            self.find(state, Rule::Mem1, about, &[op], clock.past(), || {
                format!(
                    "rank {} still uses {} ({}) when its memory is freed",
                    rank.0,
                    self.buffer_name(buffer),
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
        }
        if let Some(other) = race {
            self.find(state, Rule::Mem2, about, &[op, other], clock.past(), || {
                format!(
                    "on rank {} nothing orders the accesses to {} at {} and at {}",
                    rank.0,
                    self.buffer_name(buffer),
                    self.at(&other),
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
        }
    }

    /// Physical memory goes back to the driver.
    pub(crate) fn release(&self, state: &mut State, rank: Rank, thread: u32, id: MemoryId, op: OpRef) {
        let past = Self::past(state, rank, thread);
        let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        let Some(memory) = state.ranks[rank.at()].memory.get(&id) else { return };
        if memory.released.is_some() {
            self.find(state, Rule::Mem3, About::Memory(rank, id), &[op], past, || {
                format!("rank {} frees {} twice ({})", rank.0, self.memory_name(id), self.at(&op))
            });
            return;
        }
        let buffer = Arc::clone(&memory.buffer);
        let running = memory.accesses.iter().find(|a| !clock.after(a.actor, a.epoch)).map(|a| a.op);
        let queued = state.ranks[rank.at()]
            .streams
            .iter()
            .flat_map(|(_, stream)| &stream.queue)
            .find(|queued| queued.work.touches(id))
            .map(|queued| queued.op);
        if let Some(user) = running.or(queued) {
            self.find(state, Rule::Mem1, About::Memory(rank, id), &[op, user], past, || {
                format!(
                    "rank {} frees {} ({}) without waiting for the operation at {} that uses it",
                    rank.0,
                    self.memory_name(id),
                    self.at(&op),
                    self.at(&user)
                )
            });
            Self::undefine(state, user);
        }
        let frees = || format!("rank {} frees {} ({})", rank.0, self.memory_name(id), self.at(&op));
        if let Some((comm, nth, registered)) = Self::covering(state, rank, id) {
            self.find(state, Rule::Win11, About::Memory(rank, id), &[op, registered], past, || {
                let (comm, at) = (self.comm_name(comm), self.at(&registered));
                format!("{} while it is window #{nth} of {comm} (registered at {at})", frees())
            });
        } else if let Some((comm, registered)) = self.under_way(state, rank, id) {
            self.find(state, Rule::Win11, About::Memory(rank, id), &[op, registered], past, || {
                let (comm, at) = (self.comm_name(comm), self.at(&registered));
                format!("{} while its registration with {comm} ({at}) is under way", frees())
            });
        }
        self.touch(state, rank, thread, Object::ADDRESSES, Touch::Mutate);
        let r = state.rank_mut(rank);
        r.free_addresses.push((buffer.address, buffer.len_bytes));
        r.free_addresses.sort_unstable();
        r.costs.reserved_bytes -= buffer.len_bytes;
        let memory = r.memory.get_mut(&id).expect("looked up above");
        // Peers and stale windows still see the old pages.
        Arc::make_mut(memory).released = Some((clock.actor(), clock.epoch()));
    }
}
