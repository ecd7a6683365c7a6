//! The streams of a rank: queues whose heads run.
//! Not here: what runs.

use std::collections::VecDeque;

use super::{Queued, Work};
use crate::clock::Clock;
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::state::{RankState, Table};
use crate::walk::walk;
use std::hash::Hash;

/// A stream: a queue whose head runs.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    queue: VecDeque<Queued>,
    /// The head never ends: ranks run different kernels.
    hung: bool,
    clock: Clock,
}

walk!(struct Stream { queue: hashed moved, hung: hashed fixed, clock: hashed moved });

impl Stream {
    /// A stream of which nobody knew, with its first work.
    pub(super) fn new(clock: Clock, first: Queued) -> Self {
        Self { queue: VecDeque::from([first]), hung: false, clock }
    }

    /// What waits, the head first.
    pub(crate) fn queue(&self) -> &VecDeque<Queued> {
        &self.queue
    }

    /// Returns the work at the head, which runs next.
    pub(crate) fn head(&self) -> Option<&Queued> {
        self.queue.front()
    }

    /// The work that runs next.
    pub(crate) fn work(&self) -> Option<&Work> {
        self.head().map(|head| &head.work)
    }

    /// Returns whether no work is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Enqueues work at the end.
    pub(crate) fn push(&mut self, work: Queued) {
        self.queue.push_back(work);
    }

    /// Takes the head off the queue, as it runs.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        self.queue.pop_front()
    }

    /// The head does run, and never ends.
    pub(crate) fn hang_in(&mut self, head: Queued) {
        self.queue.push_front(head);
        self.hung = true;
    }

    /// The head never ends.
    pub(crate) fn hang(&mut self) {
        self.hung = true;
    }

    /// Whether the head never ends.
    pub(crate) fn is_hung(&self) -> bool {
        self.hung
    }

    /// What is known where the stream stands.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What is known where the stream stands, to be added to.
    pub(crate) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

/// The streams of a rank, in the order of their first use.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamQueues {
    rows: Vec<(Token, Stream)>,
}

walk!(apart struct StreamQueues { rows: hashed moved });

impl Identify for StreamQueues {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rows } = self;
        for row @ (_, stream) in rows {
            // A stream that is idle and tells nobody anything new is one that was never used.
            to.unless_known(stream.is_empty().then_some(&stream.clock), |to| row.identify(to));
        }
        u64::MAX.hash(to);
    }
}

impl RankState {
    /// The streams, in the order of their first use.
    pub(crate) fn streams(&self) -> &[(Token, Stream)] {
        &StreamQueues::of(self).rows
    }

    /// Returns the stream at a position.
    pub(crate) fn stream(&self, at: usize) -> &Stream {
        &StreamQueues::of(self).rows[at].1
    }

    /// A stream, to be changed.
    pub(crate) fn stream_mut(&mut self, at: usize) -> &mut Stream {
        &mut StreamQueues::of_mut(self).rows[at].1
    }

    /// Where the stream of a name is, if it was used.
    pub(crate) fn stream_named(&self, name: Token) -> Option<usize> {
        self.streams().iter().position(|(known, _)| *known == name)
    }

    /// A stream is used for the first time.
    pub(super) fn add_stream(&mut self, name: Token, stream: Stream) {
        StreamQueues::of_mut(self).rows.push((name, stream));
    }

    /// All that waits on streams.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &Queued> {
        self.streams().iter().flat_map(|(_, stream)| stream.queue())
    }
}
