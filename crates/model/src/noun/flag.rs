//! Flags: words that all ranks see, worked on by host threads and by streams.
//!
//! A waiter sees the value that is there when it looks. Which looks come between which writes is a choice
//! wherever happens-before leaves it open: then also the heads of streams take turns.
//! Not here: the store ([`crate::noun::store`]).

use crate::clock::Clock;
use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::noun::cell::Written;
use crate::order::dependence::{Object, ObjectKind, Touch};
use crate::program::FlagAct;
use crate::rank::{Rank, Token};
use crate::state::{State, StreamOp, Work};

/// What an act does to the word, as far as orders matter.
pub(crate) fn touch_of(act: FlagAct) -> Touch {
    if act.writes().is_some() { Touch::Mutate } else { Touch::Read }
}

impl Machine {
    /// Whether a flag allows an act now.
    pub(crate) fn flag_allows(state: &State, flag: Token, act: FlagAct) -> bool {
        let word = state.shared.flags.get(&flag).and_then(|flag| flag.last()).map_or(0, |write| write.value);
        act.possible(word)
    }

    /// A flag that allows it is worked on, by whoever has this clock.
    pub(crate) fn act(&self, state: &mut State, (flag, act): (Token, FlagAct), clock: &mut Clock, op: OpRef) {
        let object = Object::named(ObjectKind::Flag, flag);
        if !matches!(act, FlagAct::Write(_))
            && let Some(cell) = state.shared.flags.get(&flag)
        {
            let after = if self.orders_by_sight(object) {
                cell.last().map(|write| &write.by)
            } else {
                cell.enabling(clock, |word| act.possible(*word))
            };
            if let Some(after) = after {
                clock.join(after);
            }
        }
        self.touch_shared(state, object, touch_of(act), clock);
        if let Some(value) = act.writes() {
            let write = Written { value, by: clock.clone(), op };
            state.shared_mut().flags.entry(flag).or_default().writes.push(write);
        }
    }

    /// A host thread works on a flag, or has a stream do it.
    pub(crate) fn run_flag(
        &self,
        state: &mut State,
        (rank, thread): (Rank, u32),
        (flag, act): (Token, FlagAct),
        stream: Option<Token>,
        op: OpRef,
    ) {
        let mut clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        if let Some(stream) = stream {
            self.touch(state, rank, thread, Object::named(ObjectKind::Stream, stream), Touch::Mutate);
            self.enqueue(
                state,
                rank,
                stream,
                StreamOp { work: Work::Flag(flag, act), issue: clock, op, replay: None },
            );
        } else {
            self.act(state, (flag, act), &mut clock, op);
            state.rank_mut(rank).threads[thread as usize].clock = clock;
        }
        self.done(state, rank, thread, &[]);
    }

    /// The flag at the head of a stream.
    pub(crate) fn flag_at_head(state: &State, rank: Rank, stream: usize) -> Option<(Token, FlagAct)> {
        match state.ranks[rank.at()].streams[stream].1.queue.front().map(|op| &op.work) {
            Some(Work::Flag(flag, act)) => Some((*flag, *act)),
            _ => None,
        }
    }

    /// Whether the head of a stream works on a contended flag, so that its place in the order is a choice.
    pub(crate) fn head_is_turn(&self, state: &State, rank: Rank, stream: usize) -> bool {
        !self.config.contended.is_empty()
            && self.config.mode == crate::machine::Mode::Reduced
            && Self::flag_at_head(state, rank, stream).is_some_and(|(flag, _)| {
                self.config.contended.contains(&Object::named(ObjectKind::Flag, flag))
            })
    }
}
