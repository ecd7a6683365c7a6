//! Values: what maps, lists, the store and questions take, and what comes out of them.
//!
//! Not here: what can be asked about them (`question.rs`).

use rankcheck_model::Operand;

use crate::spec::builder::Builder;
use crate::spec::noun::barrier::Agreed;
use crate::spec::noun::comm::Comm;
use crate::spec::noun::event::Event;
use crate::spec::noun::ipc::IpcHandle;
use crate::spec::noun::memory::{Address, Buffer, Segment};
use crate::spec::noun::stream::Stream;
use crate::spec::noun::thread::Thread;
use crate::spec::noun::window::Window;

/// Something that came out of a map, a list or the store: it can be used as whatever it is, `Comm::from(&x)`.
///
/// It has no equality, because what it is is not known while a program is built: [`Builder::equal`] asks.
#[derive(Debug, Clone)]
pub struct Fetched(pub(crate) Operand);

/// What operations can hold: numbers, texts, truth values, results, and tuples of these. `()` is null.
pub trait Holdable {
    /// What operations work on.
    #[doc(hidden)]
    fn operand(&self, r: &Builder) -> Operand;

    /// What it is, in messages.
    #[doc(hidden)]
    fn noun(&self) -> &'static str {
        "value"
    }
}

impl<T: Holdable + ?Sized> Holdable for &T {
    fn operand(&self, r: &Builder) -> Operand {
        (**self).operand(r)
    }

    fn noun(&self) -> &'static str {
        (**self).noun()
    }
}

/// What Starlark passed is an operand already.
impl Holdable for Operand {
    fn operand(&self, _r: &Builder) -> Operand {
        self.clone()
    }
}

impl Holdable for () {
    fn operand(&self, _r: &Builder) -> Operand {
        Operand::Null
    }
}

impl Holdable for bool {
    fn operand(&self, _r: &Builder) -> Operand {
        Operand::Bool(*self)
    }
}

impl Holdable for str {
    fn operand(&self, r: &Builder) -> Operand {
        Operand::Token(r.token(self))
    }
}

impl Holdable for String {
    fn operand(&self, r: &Builder) -> Operand {
        self.as_str().operand(r)
    }
}

impl<A: Holdable, B: Holdable> Holdable for (A, B) {
    fn operand(&self, r: &Builder) -> Operand {
        Operand::Tuple([self.0.operand(r), self.1.operand(r)].into())
    }
}

impl<A: Holdable, B: Holdable, C: Holdable> Holdable for (A, B, C) {
    fn operand(&self, r: &Builder) -> Operand {
        Operand::Tuple([self.0.operand(r), self.1.operand(r), self.2.operand(r)].into())
    }
}

macro_rules! holdable {
    ($($what:ty, $noun:literal, $this:ident => $operand:expr;)*) => {
        $(impl Holdable for $what {
            fn operand(&self, _r: &Builder) -> Operand {
                let $this = self;
                $operand
            }

            fn noun(&self) -> &'static str {
                $noun
            }
        })*
    };
}
holdable! {
    i32, "int", n => Operand::Int((*n).into());
    i64, "int", n => Operand::Int(*n);
    u32, "int", n => Operand::Int((*n).into());
    Address, "address", it => it.0.clone();
    Buffer, "buffer", it => it.of.clone();
    Comm, "comm", it => it.0.clone();
    Event, "event", it => Operand::Event(it.0);
    Fetched, "slot", it => it.0.clone();
    IpcHandle, "handle", it => it.0.clone();
    Segment, "segment", it => it.0.clone();
    Stream, "stream", it => Operand::Stream(it.0);
    Thread, "thread", it => it.0.clone();
    Agreed, "truth slot", it => it.0.clone();
    Window, "window", it => it.0.clone();
}

/// What came out of a map, a list or the store is taken for what it is used as.
macro_rules! taken_for {
    ($($what:ident)*) => {
        $(impl From<&Fetched> for $what {
            fn from(fetched: &Fetched) -> Self {
                Self(fetched.0.clone())
            }
        })*
    };
}
taken_for! { Comm IpcHandle Thread Window }

impl From<&Fetched> for Buffer {
    fn from(fetched: &Fetched) -> Self {
        Self { of: fetched.0.clone(), len_bytes: None }
    }
}
