//! What data result from a collective: what the program meant, and what kernels leave behind that reach it through
//! windows.
//! Not here: which windows were paired ([`crate::noun::window`]).

use super::kind::{Counting, PartSource, SymmetricKernel};
use super::run::Member;
use crate::host::value::{Buffer, MemoryId};
use crate::machine::{Machine, locked};
use crate::noun::collective::Launch;
use crate::noun::memory::ByteRange;
use crate::order::dependence::Access;
use crate::platform::KernelPath;
use crate::rank::Rank;
use crate::state::State;
use crate::term::{Content, Term, TermNode};

impl Machine {
    /// What every member's buffers hold afterwards.
    pub(super) fn move_data(&self, state: &mut State, members: &[Member], inputs: &[Content]) {
        let through = match members[0].launch.path {
            KernelPath::Ordinary => false,
            // Small kernels copy through NCCL's own slots, but find their own buffer through the window.
            KernelPath::SymmetricLl => members.iter().any(|m| self.stale(state, m)),
            KernelPath::SymmetricLsa => !self.aligned(state, members),
        };
        let followed = if through { self.needs_contents() } else { self.config.follows_contents };
        if !followed {
            return;
        }
        let intended = self.intended(state, members, inputs);
        if !through {
            for (range, content, rank) in intended {
                self.write(state, rank, &range, content);
            }
            return;
        }
        if members.iter().any(|m| m.launch.companions) {
            // The kernels of a group run at the same time, and these reach into one another's buffers.
            Self::undefine(state, members[0].launch.op);
        }
        self.access_through_windows(state, members);
        let mut written = self.through_windows(state, members);
        written.sort_by_key(|(rank, range, _)| (*rank, range.memory, range.offset_bytes));
        let collides = written.windows(2).any(|pair| {
            let [(rank, range, content), (next_rank, next, other)] = pair else { return false };
            let meet = range.offset_bytes + range.len_bytes > next.offset_bytes;
            (rank, range.memory) == (next_rank, next.memory) && meet && self.differ_in_content(content, other)
        });
        if collides {
            // Which of two ranks writes last is chance.
            Self::undefine(state, members[0].launch.op);
        }
        for (rank, range, content) in written {
            self.write(state, rank, &range, content);
            let given = |m: &Member| m.rank == rank && ByteRange::of(&m.launch.recv) == range;
            if let Some(memory) = state.rank(rank).memory(range.memory)
                && !members.iter().any(given)
            {
                let name = memory.whole().name;
                self.forget_contents(state, rank, name, &range);
            }
        }
        for (range, content, rank) in intended {
            let held = self.read(state, rank, &range);
            if self.differ_in_content(&held, &content) {
                self.note_wrong(state, rank, &range, || self.stripes(&content));
                state.rank_mut(rank).spoil();
            }
        }
    }

    /// What kernels touch through windows that are not the buffers they were given can race like any access.
    fn access_through_windows(&self, state: &mut State, members: &[Member]) {
        let (send_bytes, recv_bytes) = Launch::needs(&members[0].launch.call, members.len(), Counting::Both);
        for p in members {
            for by in members {
                for (send, access, len_bytes) in
                    [(true, Access::Read, send_bytes), (false, Access::Write, recv_bytes)]
                {
                    let Some((memory, offset_bytes)) = self.through(state, by, p, send) else { continue };
                    let Some(whole) = state.rank(p.rank).memory(memory) else { continue };
                    // Old pages that a stale window still reaches belong to nobody who could race for them. A
                    // release that nothing orders before the kernel is a use of freed memory in either order.
                    let clock = state.rank(p.rank).stream(p.stream).clock();
                    if whole.released().is_some_and(|released| released.before(clock)) {
                        continue;
                    }
                    let touched = Buffer { offset_bytes, len_bytes, ..Buffer::clone(whole.whole()) };
                    self.access_memory(state, p.rank, p.stream, &touched, access, p.launch.op);
                }
            }
        }
    }

    fn stale(&self, state: &State, member: &Member) -> bool {
        let launch = &member.launch;
        [(&launch.send, launch.send_window), (&launch.recv, launch.recv_window)].iter().any(
            |(buffer, found)| {
                let Some((nth, _)) = found else { return false };
                let window =
                    state.rank(member.rank).comm(launch.comm).and_then(|comm_state| comm_state.window(*nth));
                window.is_some_and(|window| window.buffer().memory != buffer.memory)
            },
        )
    }

    /// Whether every kernel finds every peer's buffer where the peer passed it.
    fn aligned(&self, state: &State, members: &[Member]) -> bool {
        let first = &members[0].launch;
        members.iter().all(|m| {
            let base = |nth: Option<(u32, u64)>| {
                let window = state.rank(m.rank).comm(m.launch.comm)?.window(nth?.0)?;
                Some(window.buffer().offset_bytes)
            };
            let firsts = |nth: Option<(u32, u64)>| {
                let window = state.rank(members[0].rank).comm(first.comm)?.window(nth?.0)?;
                Some(window.buffer().offset_bytes)
            };
            m.launch.send_window == first.send_window
                && m.launch.recv_window == first.recv_window
                && base(m.launch.send_window) == firsts(first.send_window)
                && base(m.launch.recv_window) == firsts(first.recv_window)
                && !self.stale(state, m)
        })
    }

    /// What the program meant: the contents of each member's output, from the buffers that members passed.
    fn intended(
        &self,
        state: &State,
        members: &[Member],
        inputs: &[Content],
    ) -> Vec<(ByteRange, Content, Rank)> {
        let (part, kind) = (members[0].launch.part_bytes(), members[0].launch.call.kind);
        let input = |of: usize, part_nth: u64| {
            if !kind.gives_parts() {
                return inputs[of].clone();
            }
            let send = &members[of].launch.send;
            self.read(state, send.home(members[of].rank), &ByteRange::of(send).sub(part_nth * part, part))
        };
        // Members that get the same reduction share it.
        let mut reduced: Option<(u64, Content)> = None;
        let mut out = Vec::with_capacity(members.len());
        for (nth, m) in members.iter().enumerate().filter(|(_, m)| m.handed_over.is_none()) {
            for (at, source) in kind.output(nth, members.len()) {
                let content = match source {
                    PartSource::Part { of, part } => input(of, part),
                    PartSource::Reduction { part } => match &reduced {
                        Some((known, content)) if *known == part => content.clone(),
                        Some(_) | None => {
                            let inputs: Vec<Content> = (0..members.len()).map(|of| input(of, part)).collect();
                            let content = self.reduce(members, &inputs);
                            reduced.insert((part, content)).1.clone()
                        }
                    },
                };
                let recv = &m.launch.recv;
                out.push((ByteRange::of(recv).sub(at * part, part), content, recv.home(m.rank)));
            }
        }
        out
    }

    fn reduce(&self, members: &[Member], inputs: &[Content]) -> Content {
        let op = members[0].launch.call.op.name();
        let mut terms = locked(&self.terms);
        let shares = inputs.iter().find_map(|content| match content {
            Content::Shares(shares) => Some(shares.len()),
            Content::Whole(_) => None,
        });
        let Some(count) = shares else {
            let parts = inputs.iter().map(|content| terms.whole(content)).collect();
            return Content::Whole(terms.intern(TermNode::Reduced(op, parts)));
        };
        let mut reduced: Vec<Term> = Vec::with_capacity(count);
        for share in 0..count {
            let parts = inputs.iter().map(|content| match content {
                Content::Shares(shares) if shares.len() == count => shares[share],
                Content::Shares(_) | Content::Whole(_) => terms.whole(content),
            });
            let parts = parts.collect();
            reduced.push(terms.intern(TermNode::Reduced(op, parts)));
        }
        merged(reduced)
    }

    /// Where `by`'s kernel finds a peer's buffer: the peer's contribution to `by`'s own window, at `by`'s
    /// own offset.
    fn through(&self, state: &State, by: &Member, peer: &Member, send: bool) -> Option<(MemoryId, u64)> {
        let (nth, offset) = if send { by.launch.send_window? } else { by.launch.recv_window? };
        let comm_state = state.rank(peer.rank).comm(by.launch.comm)?;
        let window = comm_state.window(nth)?;
        // A window's address is the peer's memory plus the own offset in it (`core__funcs.h:114-141`).
        let own = state.rank(by.rank).comm(by.launch.comm)?.window(nth)?;
        Some((window.buffer().memory, own.buffer().offset_bytes + offset))
    }

    /// What loads and stores through the windows leave behind.
    fn through_windows(&self, state: &State, members: &[Member]) -> Vec<(Rank, ByteRange, Content)> {
        let part = members[0].launch.part_bytes();
        let mut out: Vec<(Rank, ByteRange, Content)> = Vec::new();
        let whole_of = |content: &Content| locked(&self.terms).whole(content);
        match members[0].launch.call.kind.symmetric() {
            Some(SymmetricKernel::AllReduce) => {
                /// Shares with their terms.
                type Pieces = Vec<(usize, Term)>;
                let mut written: Vec<(Rank, ByteRange, Pieces)> = Vec::new();
                for (share, by) in members.iter().enumerate() {
                    let inputs: Vec<Content> = members
                        .iter()
                        .filter_map(|p| {
                            let (memory, at) = self.through(state, by, p, true)?;
                            let range = ByteRange { memory, offset_bytes: at, len_bytes: part };
                            let content = self.read(state, p.rank, &range);
                            Some(share_of(&content, share, members.len()))
                        })
                        .collect();
                    let term = whole_of(&self.reduce(members, &inputs));
                    for p in members {
                        let Some((memory, at)) = self.through(state, by, p, false) else { continue };
                        let range = ByteRange { memory, offset_bytes: at, len_bytes: part };
                        match written.iter_mut().find(|(rank, r, _)| (*rank, r) == (p.rank, &range)) {
                            Some((.., shares)) => shares.push((share, term)),
                            None => written.push((p.rank, range, vec![(share, term)])),
                        }
                    }
                }
                for (rank, range, shares) in written {
                    let before = self.read(state, rank, &range);
                    let mut all: Vec<Term> = (0..members.len())
                        .map(|share| whole_of(&share_of(&before, share, members.len())))
                        .collect();
                    for (share, term) in shares {
                        all[share] = term;
                    }
                    out.push((rank, range, merged(all)));
                }
            }
            Some(SymmetricKernel::AllGather) => {
                for (nth, by) in members.iter().enumerate() {
                    let content = self.read(
                        state,
                        by.launch.send.home(by.rank),
                        &ByteRange::of(&by.launch.send).sub(0, part),
                    );
                    for p in members {
                        let Some((memory, at)) = self.through(state, by, p, false) else { continue };
                        let offset_bytes = at + nth as u64 * part;
                        let range = ByteRange { memory, offset_bytes, len_bytes: part };
                        out.push((p.rank, range, content.clone()));
                    }
                }
            }
            Some(SymmetricKernel::ReduceScatter) => {
                for (nth, by) in members.iter().enumerate() {
                    let inputs: Vec<Content> = members
                        .iter()
                        .filter_map(|p| {
                            let (memory, at) = self.through(state, by, p, true)?;
                            let offset_bytes = at + nth as u64 * part;
                            Some(self.read(
                                state,
                                p.rank,
                                &ByteRange { memory, offset_bytes, len_bytes: part },
                            ))
                        })
                        .collect();
                    let content = self.reduce(members, &inputs);
                    out.push((by.rank, ByteRange::of(&by.launch.recv).sub(0, part), content));
                }
            }
            None => {}
        }
        out
    }
}

/// The content of one share of a range.
fn share_of(content: &Content, share: usize, shares: usize) -> Content {
    match content {
        Content::Shares(terms) if terms.len() == shares => Content::Whole(terms[share]),
        Content::Shares(_) | Content::Whole(_) => content.clone(),
    }
}

/// One term where all shares are equal.
fn merged(shares: Vec<Term>) -> Content {
    if shares.iter().all(|term| *term == shares[0]) {
        Content::Whole(shares[0])
    } else {
        Content::Shares(shares.into())
    }
}
