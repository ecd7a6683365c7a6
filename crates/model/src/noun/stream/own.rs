//! Streams and events that the program does not name: those of graphs, and those by which a group makes streams wait for
//! one another.
//! Not here: graphs ([`crate::noun::graph`]) and groups ([`crate::noun::group`]).

use std::sync::{Arc, PoisonError};

use super::Work;
use crate::cx::Cx;
use crate::id::Token;
use crate::judge::finding::OpRef;
use crate::machine::Machine;

/// A stream or an event that the program does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OwnName {
    /// What a graph calls a stream or an event of this name, so that each of its replays uses the same.
    OfGraph { graph: Token, of: Token },
    /// The event that a group on a communicator of this name records on a stream.
    OfGroup { comm: Token, stream: Token },
}

impl Machine {
    pub(crate) fn own_name(&self, of: OwnName) -> Token {
        let mut known = self.own_names.lock().unwrap_or_else(PoisonError::into_inner);
        known.id_of(&of, |of| *of).own()
    }

    /// The name of a stream or event that the program does not name; none if the token is of the program.
    pub(crate) fn name_of_own(&self, token: Token) -> Option<Arc<str>> {
        if !token.is_own() {
            return None;
        }
        let known = *self.own_names.lock().unwrap_or_else(PoisonError::into_inner).get(token.plain())?;
        let name = match known {
            OwnName::OfGraph { graph, of } => format!("{} in {}", self.name(of), self.name(graph)),
            OwnName::OfGroup { comm, stream } => {
                format!("stream {} in a group on {}", self.name_behind_stream(stream), self.name(comm))
            }
        };
        Some(name.into())
    }

    /// Whether the program does not name a stream, so that a device does not show it.
    pub(crate) fn hidden(stream: Token) -> bool {
        stream.is_own()
    }
}

impl Cx<'_> {
    /// Lets a stream wait until another one has come here, as a group on a communicator does that was given both. Each
    /// does it for the call that gave it to the group.
    pub(crate) fn let_wait(
        &mut self,
        comm: Token,
        (stream, op): (Token, OpRef),
        (awaited, of_awaited): (Token, OpRef),
    ) {
        let (m, rank) = (self.m, self.rank);
        // Nothing is launched then, and the launch says so.
        if self.here().capture_is_lost(awaited) {
            return;
        }
        let event = m.own_name(OwnName::OfGroup { comm, stream: awaited });
        if !m.record_captured(self.state, rank, (event, awaited), of_awaited) {
            let record = self.me_mut().records(event);
            self.enqueue(awaited, Work::Record(record), of_awaited);
        }
        if !self.wait_captured((stream, event)) {
            let record = self.me().last_record(event);
            self.enqueue(stream, Work::Wait(record), op);
        }
    }
}
