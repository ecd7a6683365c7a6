//! The values of the language: what an operation works on, with the guards that keep control flow from
//! asking about a pointer by accident.
//!
//! Each noun is one Starlark type, so that each has its own methods and a wrong one gets its own message.
//! Not here: the methods, which stand with each noun.

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;

use allocative::Allocative;
use rankcheck_model::{MapOrder, Operand, Operation, Token};
use starlark::any::ProvidesStaticType;
use starlark::collections::StarlarkHasher;
use starlark::environment::{Methods, MethodsStatic};
use starlark::starlark_simple_value;
use starlark::typing::Ty;
use starlark::values::type_repr::StarlarkTypeRepr;
use starlark::values::{AllocValue, Heap, NoSerialize, StarlarkValue, Value, starlark_value};

use crate::spec::error::wrong;
use crate::spec::noun::barrier::Agreed;
use crate::spec::noun::collective::LaunchId;
use crate::spec::noun::comm::Comm;
use crate::spec::noun::container::{List, Map};
use crate::spec::noun::event::Event;
use crate::spec::noun::flag::Flag;
use crate::spec::noun::graph::Graph;
use crate::spec::noun::ipc::IpcHandle;
use crate::spec::noun::memory::{Address, Buffer, Segment};
use crate::spec::noun::mutex::Mutex;
use crate::spec::noun::stream::Stream;
use crate::spec::noun::thread::Thread;
use crate::spec::noun::value::Fetched;
use crate::spec::noun::window::Window;

/// What a value of the language stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    Comm(Operand),
    /// With its length where it is known.
    Buffer(Operand, Option<u64>),
    Segment(Operand),
    Window(Operand),
    Exported(Operand),
    Thread(Operand),
    /// Something that came out of a map, a list or the store.
    Slot(Operand),
    Truth(Operand),
    Address(Operand),
    Stream(Token),
    Event(Token),
    Mutex(Token),
    Store,
    /// What `r.ipc` is: the verbs of IPC, without an object of their own.
    Ipc,
    Flag(Token),
    Graph(Token),
    Map(Token, MapOrder),
    List(Token),
    /// A launch, for declarations about it.
    Operation(Operation),
}

impl Handle {
    /// What operations work on, if this noun is a value.
    pub(crate) fn operand(&self) -> Option<Operand> {
        match self {
            Self::Comm(of)
            | Self::Buffer(of, _)
            | Self::Segment(of)
            | Self::Window(of)
            | Self::Exported(of)
            | Self::Thread(of)
            | Self::Slot(of)
            | Self::Truth(of)
            | Self::Address(of) => Some(of.clone()),
            Self::Stream(name) => Some(Operand::Stream(*name)),
            Self::Event(name) => Some(Operand::Event(*name)),
            Self::Mutex(_)
            | Self::Store
            | Self::Ipc
            | Self::Flag(_)
            | Self::Graph(_)
            | Self::Map(..)
            | Self::List(_)
            | Self::Operation(_) => None,
        }
    }

    /// Whether the noun is known while a program is recorded: named things are, and threads, which start without fail.
    /// Other results are not.
    fn known(&self) -> bool {
        // Whether a launch goes well shows only once it is made.
        let launch = matches!(self, Self::Operation(_));
        let named = matches!(self.operand(), None | Some(Operand::Stream(_) | Operand::Event(_)));
        matches!(self, Self::Thread(_)) || named && !launch
    }

    /// Allocates the Starlark value.
    pub(crate) fn alloc<'v>(self, heap: Heap<'v>) -> Value<'v> {
        match self {
            Self::Comm(_) => heap.alloc(CommValue(self)),
            Self::Buffer(..) => heap.alloc(BufferValue(self)),
            Self::Segment(_) => heap.alloc(SegmentValue(self)),
            Self::Window(_) => heap.alloc(WindowValue(self)),
            Self::Exported(_) => heap.alloc(HandleValue(self)),
            Self::Thread(_) => heap.alloc(ThreadValue(self)),
            Self::Slot(_) => heap.alloc(SlotValue(self)),
            Self::Truth(_) => heap.alloc(TruthValue(self)),
            Self::Address(_) => heap.alloc(AddressValue(self)),
            Self::Stream(_) => heap.alloc(StreamValue(self)),
            Self::Event(_) => heap.alloc(EventValue(self)),
            Self::Mutex(_) => heap.alloc(MutexValue(self)),
            Self::Store => heap.alloc(StoreValue(self)),
            Self::Ipc => heap.alloc(IpcValue(self)),
            Self::Flag(_) => heap.alloc(FlagValue(self)),
            Self::Graph(_) => heap.alloc(GraphValue(self)),
            Self::Map(..) => heap.alloc(MapValue(self)),
            Self::List(_) => heap.alloc(ListValue(self)),
            Self::Operation(_) => heap.alloc(OperationValue(self)),
        }
    }

    /// The noun that a Starlark value stands for.
    pub(crate) fn of<'v>(value: Value<'v>) -> Option<&'v Self> {
        macro_rules! first {
            ($($wrapper:ident)*) => {
                $(if let Some(found) = $wrapper::from_value(value) { return Some(&found.0); })*
            };
        }
        first!(BufferValue CommValue SegmentValue WindowValue SlotValue AddressValue TruthValue ThreadValue
            StreamValue EventValue MutexValue StoreValue IpcValue HandleValue FlagValue GraphValue MapValue ListValue
            OperationValue);
        None
    }
}

thread_local! {
    /// A truth test of a slot cannot fail where it happens (`to_bool` gives no error), so it is noted here and
    /// reported at the next operation or at the end of the evaluation that runs on this thread.
    static TESTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Takes the note that a value of this type was used as a condition.
pub(crate) fn take_tested() -> Option<&'static str> {
    TESTED.take()
}

const EQUAL: &str = "ask with r.equal(a, b); r.failed(x) for `x == None`";
const NUMBER: &str = "ask with r.number(x), which gives an int";
const TRUTH: &str = "ask with r.failed(x) whether it is null, with r.truth(x) whether a vote or value is true; \
                     a text cannot hold it";

/// What a vote gives.
const VOTE: &str = "truth slot";

/// What a launch gives.
const LAUNCH: &str = "operation";

/// A noun with its article.
pub(crate) fn a(noun: &str) -> String {
    if noun.starts_with(['a', 'e', 'i', 'o']) { format!("an {noun}") } else { format!("a {noun}") }
}

/// The error of control flow that looks into a value.
fn about(what: &str, noun: &str, help: &str) -> starlark::Error {
    if noun == LAUNCH {
        let (message, help) = tested_message(noun);
        return wrong(message, help);
    }
    wrong(
        format!("question about a pointer: {what} of {} is not known while the program is recorded", a(noun)),
        help,
    )
}

/// An error if the equality of the value is a question.
pub(crate) fn comparable(value: Value<'_>) -> starlark::Result<()> {
    match Handle::of(value) {
        Some(noun) if !noun.known() => Err(about("the equality", value.get_type(), EQUAL)),
        _ => Ok(()),
    }
}

/// An error if the truth of the value is a question.
pub(crate) fn condition(value: Value<'_>) -> starlark::Result<()> {
    match Handle::of(value) {
        Some(noun) if !noun.known() => {
            let (message, help) = tested_message(value.get_type());
            Err(wrong(message, help))
        }
        _ => Ok(()),
    }
}

/// The message of a truth test that was noted.
pub(crate) fn tested_message(noun: &str) -> (String, String) {
    if noun == VOTE {
        let message =
            "the result of a vote is known to the ranks only when they run: here it is a condition or a text";
        return (
            message.to_owned(),
            "ask for it: `if r.truth(r.all_agree(ok)):`; a text cannot hold it".to_owned(),
        );
    }
    if noun == LAUNCH {
        let message =
            "whether a launch goes well is not known when it returns, so that nothing can depend on it";
        let help = "leave it out: a call that is refused is a finding, and its rank goes on";
        return (message.to_owned(), help.to_owned());
    }
    let message = format!("question about a pointer: {} is used as a condition or a text", a(noun));
    (message, TRUTH.to_owned())
}

macro_rules! nouns {
    ($($wrapper:ident $noun:literal $methods:path;)*) => {
        $(
            #[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
            #[allocative(skip)]
            pub(crate) struct $wrapper(pub(crate) Handle);

            starlark_simple_value!($wrapper);

            impl fmt::Display for $wrapper {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(concat!("<", $noun, ">"))
                }
            }

            #[starlark_value(type = $noun)]
            impl<'v> StarlarkValue<'v> for $wrapper {
                fn get_methods() -> Option<&'static Methods> {
                    static METHODS: MethodsStatic = MethodsStatic::new(stringify!($wrapper), $methods);
                    Some(METHODS.methods())
                }

                fn to_bool(&self) -> bool {
                    if !self.0.known() {
                        TESTED.set(Some($noun));
                    }
                    true
                }

                fn write_hash(&self, _hasher: &mut StarlarkHasher) -> starlark::Result<()> {
                    Err(wrong(
                        format!("{} cannot be a key of a dict or an element of a set", a($noun)),
                        "two of them may be equal without the recording knowing; use r.map(name)",
                    ))
                }

                fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
                    let with = Handle::of(other);
                    if !self.0.known() {
                        return Err(about("the equality", $noun, EQUAL));
                    }
                    if with.is_some_and(|with| !with.known()) {
                        return Err(about("the equality", other.get_type(), EQUAL));
                    }
                    Ok(with == Some(&self.0))
                }

                fn compare(&self, _other: Value<'v>) -> starlark::Result<Ordering> {
                    Err(about("the order", $noun, NUMBER))
                }

                fn add(&self, _rhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
                    Some(Err(about("the number", $noun, NUMBER)))
                }

                fn radd(&self, _lhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
                    Some(Err(about("the number", $noun, NUMBER)))
                }

                fn sub(&self, _other: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
                    Err(about("the number", $noun, NUMBER))
                }

                fn mul(&self, _rhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
                    Some(Err(about("the number", $noun, NUMBER)))
                }

                fn rmul(&self, _lhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
                    Some(Err(about("the number", $noun, NUMBER)))
                }

                fn floor_div(&self, _other: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
                    Err(about("the number", $noun, NUMBER))
                }

                fn percent(&self, _other: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
                    Err(about("the number", $noun, NUMBER))
                }

                fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
                    Err(wrong(
                        format!("a {} cannot be iterated: its elements are not known here", $noun),
                        "ask for them: m.items() of a map, l.items() of a list",
                    ))
                }

                fn collect_repr(&self, collector: &mut String) {
                    self.collect_str(collector);
                }

                fn collect_str(&self, collector: &mut String) {
                    // An error about a launch may show it.
                    if !self.0.known() && $noun != LAUNCH {
                        TESTED.set(Some($noun));
                    }
                    collector.push_str(concat!("<", $noun, ">"));
                }

                fn length(&self) -> starlark::Result<i32> {
                    length(&self.0, $noun)
                }

                fn slice(
                    &self,
                    start: Option<Value<'v>>,
                    stop: Option<Value<'v>>,
                    stride: Option<Value<'v>>,
                    heap: Heap<'v>,
                ) -> starlark::Result<Value<'v>> {
                    if stride.is_some() {
                        return Err(wrong("a slice of a buffer has no step", "write x[from_byte:to_byte]"));
                    }
                    slice(&self.0, $noun, start, stop).map(|noun| noun.alloc(heap))
                }
            }
        )*

        /// Every noun with its methods.
        pub(crate) fn every_noun() -> Vec<(&'static str, &'static Methods)> {
            vec![$(($noun, <$wrapper as StarlarkValue<'static>>::get_methods().expect("nouns have methods"))),*]
        }
    };
}

nouns! {
    CommValue "comm" crate::spec::rank::comm_methods;
    BufferValue "buffer" crate::spec::rank::buffer_methods;
    SegmentValue "segment" crate::spec::noun::memory::address_methods;
    WindowValue "window" crate::spec::rank::nothing;
    HandleValue "handle" crate::spec::rank::nothing;
    ThreadValue "thread" crate::spec::noun::thread::thread_methods;
    SlotValue "slot" crate::spec::rank::slot_methods;
    TruthValue "truth slot" crate::spec::rank::nothing;
    AddressValue "address" crate::spec::rank::nothing;
    StreamValue "stream" crate::spec::noun::stream::stream_methods;
    EventValue "event" crate::spec::noun::event::event_methods;
    MutexValue "mutex" crate::spec::noun::mutex::mutex_methods;
    StoreValue "store" crate::spec::noun::store::store_methods;
    IpcValue "ipc" crate::spec::noun::ipc::ipc_methods;
    FlagValue "flag" crate::spec::noun::flag::flag_methods;
    GraphValue "graph" crate::spec::noun::graph::graph_methods;
    MapValue "map" crate::spec::noun::container::map_methods;
    ListValue "list" crate::spec::noun::container::list_methods;
    OperationValue "operation" crate::spec::rank::nothing;
}

fn length(noun: &Handle, name: &'static str) -> starlark::Result<i32> {
    match noun {
        Handle::Buffer(_, Some(len_bytes)) => i32::try_from(*len_bytes).map_err(|_| {
            wrong(
                format!("len() holds at most {} bytes; this buffer has {len_bytes}", i32::MAX),
                "keep the size in a variable",
            )
        }),
        Handle::List(_) => Err(wrong("len() of a list is a question", "ask: l.len()")),
        Handle::Comm(_)
        | Handle::Buffer(_, None)
        | Handle::Segment(_)
        | Handle::Window(_)
        | Handle::Exported(_)
        | Handle::Thread(_)
        | Handle::Slot(_)
        | Handle::Truth(_)
        | Handle::Address(_)
        | Handle::Stream(_)
        | Handle::Event(_)
        | Handle::Mutex(_)
        | Handle::Store
        | Handle::Ipc
        | Handle::Flag(_)
        | Handle::Operation(_)
        | Handle::Graph(_)
        | Handle::Map(..) => Err(wrong(
            format!("the length of a {name} is not known while the program is recorded"),
            "len() works on what pool.alloc, r.malloc, r.mem_alloc, r.mem_create and slices of them give",
        )),
    }
}

fn slice(
    noun: &Handle,
    name: &'static str,
    start: Option<Value<'_>>,
    stop: Option<Value<'_>>,
) -> starlark::Result<Handle> {
    let (Handle::Buffer(of, _) | Handle::Segment(of) | Handle::Slot(of)) = noun else {
        return Err(wrong(format!("a {name} has no bytes"), "slices are of buffers and segments"));
    };
    let len = if let Handle::Buffer(_, len) = noun { *len } else { None };
    let bound = |value: Option<Value<'_>>, otherwise: Option<u64>, which: &str| match value {
        Some(value) if !value.is_none() => {
            let bytes =
                starlark::values::UnpackValue::unpack_value(value)?.and_then(|n: i64| u64::try_from(n).ok());
            bytes.ok_or_else(|| {
                wrong(
                    format!("the {which} of a slice is {}, not a number of bytes", value.to_repr()),
                    "slices count bytes from the start of the buffer, from 0 on",
                )
            })
        }
        _ => otherwise.ok_or_else(|| {
            wrong(
                format!("the {which} of this slice is not known: the {name} has no known length"),
                "give both ends, in bytes",
            )
        }),
    };
    let (from, to) = (bound(start, Some(0), "start")?, bound(stop, len, "end")?);
    let buffer = Buffer { of: of.clone(), len_bytes: len };
    Ok(buffer.cut(name, from..to)?.into())
}

/// What verbs give is what builtins give.
macro_rules! given {
    ($($what:ident $wrapper:ident $value:ident => $handle:expr;)*) => {
        $(
            impl From<$what> for Handle {
                fn from($value: $what) -> Self {
                    $handle
                }
            }

            impl StarlarkTypeRepr for $what {
                type Canonical = Self;

                fn starlark_type_repr() -> Ty {
                    $wrapper::get_type_starlark_repr()
                }
            }

            impl<'v> AllocValue<'v> for $what {
                fn alloc_value(self, heap: Heap<'v>) -> Value<'v> {
                    heap.alloc($wrapper(self.into()))
                }
            }
        )*
    };
}
given! {
    Address AddressValue it => Handle::Address(it.0);
    Buffer BufferValue it => Handle::Buffer(it.of, it.len_bytes);
    Comm CommValue it => Handle::Comm(it.0);
    Event EventValue it => Handle::Event(it.0);
    Flag FlagValue it => Handle::Flag(it.0);
    Graph GraphValue it => Handle::Graph(it.0);
    Fetched SlotValue it => Handle::Slot(it.0);
    IpcHandle HandleValue it => Handle::Exported(it.0);
    LaunchId OperationValue it => Handle::Operation(it.0);
    List ListValue it => Handle::List(it.0);
    Map MapValue it => Handle::Map(it.0, it.1);
    Mutex MutexValue it => Handle::Mutex(it.0);
    Segment SegmentValue it => Handle::Segment(it.0);
    Stream StreamValue it => Handle::Stream(it.0);
    Thread ThreadValue it => Handle::Thread(it.0);
    Agreed TruthValue it => Handle::Truth(it.0);
    Window WindowValue it => Handle::Window(it.0);
}
