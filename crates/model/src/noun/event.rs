//! Events of a rank: a point in a stream that others can wait for.
//! Not here: waiting ([`super::stream`]).

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::rank::Token;

/// `cudaEventRecord`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventOp {
    /// The event.
    pub event: Token,
    /// The stream.
    pub stream: Token,
}

impl Describe for EventOp {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { event, stream } = self;
        to.call("EventRecord", &[("event", event), ("stream", stream)]);
    }
}

impl Verb for EventOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn stream(&self) -> Option<Token> {
        Some(self.stream)
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let Self { event, stream } = self;
        format!("{}.record({})", name(event), name(stream))
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(Object::named(ObjectKind::Event, self.event), Access::Write);
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.event_record(self.event, self.stream);
    }
}
