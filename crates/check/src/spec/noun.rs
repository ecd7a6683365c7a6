//! The values of the language: what an operation works on, with the guards that keep control flow from
//! asking about a pointer by accident.
//!
//! Each noun is one Starlark type, so that each has its own methods and a wrong one gets its own message.
//! Not here: the methods (`comm.rs`, `memory.rs`, `host.rs`, `graph.rs`, `container.rs`).

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use allocative::Allocative;
use rankcheck_model::{MapOrder, Operand, Operation, Token};
use starlark::any::ProvidesStaticType;
use starlark::collections::StarlarkHasher;
use starlark::environment::{Methods, MethodsStatic};
use starlark::starlark_simple_value;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Value, starlark_value};

use crate::spec::error::wrong;

/// What a value of the language stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Noun {
    Comm(Operand),
    /// With its length where it is known.
    Buffer(Operand, Option<u64>),
    Segment(Operand),
    Window(Operand),
    Handle(Operand),
    Thread(Operand),
    /// Something that came out of a map, a list or the store.
    Slot(Operand),
    Truth(Operand),
    Address(Operand),
    Stream(Token),
    Event(Token),
    Mutex(Token),
    Store,
    /// What `r.ipc` is.
    Ipc,
    Flag(Token),
    Graph(Token),
    Map(Token, MapOrder),
    List(Token),
    /// A launch, for declarations about it.
    Operation(Operation),
}

impl Noun {
    /// What operations work on, if this noun is a value.
    pub(crate) fn operand(&self) -> Option<Operand> {
        match self {
            Self::Comm(of)
            | Self::Buffer(of, _)
            | Self::Segment(of)
            | Self::Window(of)
            | Self::Handle(of)
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

    /// Whether the noun is known while a program is recorded: named things are, results are not.
    fn known(&self) -> bool {
        matches!(self.operand(), None | Some(Operand::Stream(_) | Operand::Event(_)))
    }

    /// Allocates the Starlark value.
    pub(crate) fn alloc<'v>(self, heap: Heap<'v>) -> Value<'v> {
        match self {
            Self::Comm(_) => heap.alloc(CommValue(self)),
            Self::Buffer(..) => heap.alloc(BufferValue(self)),
            Self::Segment(_) => heap.alloc(SegmentValue(self)),
            Self::Window(_) => heap.alloc(WindowValue(self)),
            Self::Handle(_) => heap.alloc(HandleValue(self)),
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

/// A noun with its article.
pub(crate) fn a(noun: &str) -> String {
    if noun.starts_with(['a', 'e', 'i', 'o']) { format!("an {noun}") } else { format!("a {noun}") }
}

/// The error of control flow that looks into a value.
fn about(what: &str, noun: &str, help: &str) -> starlark::Error {
    wrong(
        format!("question about a pointer: {what} of {} is not known while the program is recorded", a(noun)),
        help,
    )
}

/// An error if the equality of the value is a question.
pub(crate) fn comparable(value: Value<'_>) -> starlark::Result<()> {
    match Noun::of(value) {
        Some(noun) if !noun.known() => Err(about("the equality", value.get_type(), EQUAL)),
        _ => Ok(()),
    }
}

/// An error if the truth of the value is a question.
pub(crate) fn condition(value: Value<'_>) -> starlark::Result<()> {
    match Noun::of(value) {
        Some(noun) if !noun.known() => {
            let (message, help) = tested_message(value.get_type());
            Err(wrong(message, help))
        }
        _ => Ok(()),
    }
}

/// The message of a truth test that was noted.
pub(crate) fn tested_message(noun: &str) -> (String, String) {
    let message = format!("question about a pointer: {} is used as a condition or a text", a(noun));
    (message, TRUTH.to_owned())
}

macro_rules! nouns {
    ($($wrapper:ident $noun:literal $methods:path;)*) => {
        $(
            #[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
            #[allocative(skip)]
            pub(crate) struct $wrapper(pub(crate) Noun);

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
                    if self.0.known() {
                        return Ok(Noun::of(other) == Some(&self.0));
                    }
                    Err(about("the equality", $noun, EQUAL))
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
                    if !self.0.known() {
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

        /// Every noun with its methods, so that none is forgotten in the docs.
        #[cfg(test)]
        pub(crate) fn every_noun() -> Vec<(&'static str, &'static Methods)> {
            vec![$(($noun, <$wrapper as StarlarkValue<'static>>::get_methods().expect("nouns have methods"))),*]
        }
    };
}

nouns! {
    CommValue "comm" crate::spec::comm::comm_methods;
    BufferValue "buffer" crate::spec::memory::buffer_and_address_methods;
    SegmentValue "segment" crate::spec::memory::segment_methods;
    WindowValue "window" crate::spec::memory::nothing;
    HandleValue "handle" crate::spec::memory::nothing;
    ThreadValue "thread" crate::spec::host::thread_methods;
    SlotValue "slot" crate::spec::memory::slot_methods;
    TruthValue "truth slot" crate::spec::memory::nothing;
    AddressValue "address" crate::spec::memory::nothing;
    StreamValue "stream" crate::spec::host::stream_methods;
    EventValue "event" crate::spec::host::event_methods;
    MutexValue "mutex" crate::spec::host::mutex_methods;
    StoreValue "store" crate::spec::host::store_methods;
    IpcValue "ipc" crate::spec::ipc::ipc_methods;
    FlagValue "flag" crate::spec::host::flag_methods;
    GraphValue "graph" crate::spec::graph::graph_methods;
    MapValue "map" crate::spec::container::map_methods;
    ListValue "list" crate::spec::container::list_methods;
    OperationValue "operation" crate::spec::memory::nothing;
}

fn length(noun: &Noun, name: &'static str) -> starlark::Result<i32> {
    match noun {
        Noun::Buffer(_, Some(len_bytes)) => i32::try_from(*len_bytes).map_err(|_| {
            wrong(
                format!("len() holds at most {} bytes; this buffer has {len_bytes}", i32::MAX),
                "keep the size in a variable",
            )
        }),
        Noun::List(_) => Err(wrong("len() of a list is a question", "ask: l.len()")),
        Noun::Comm(_)
        | Noun::Buffer(_, None)
        | Noun::Segment(_)
        | Noun::Window(_)
        | Noun::Handle(_)
        | Noun::Thread(_)
        | Noun::Slot(_)
        | Noun::Truth(_)
        | Noun::Address(_)
        | Noun::Stream(_)
        | Noun::Event(_)
        | Noun::Mutex(_)
        | Noun::Store
        | Noun::Ipc
        | Noun::Flag(_)
        | Noun::Operation(_)
        | Noun::Graph(_)
        | Noun::Map(..) => Err(wrong(
            format!("the length of a {name} is not known while the program is recorded"),
            "len() works on what pool.alloc, r.malloc, r.mem_alloc and slices of them give",
        )),
    }
}

fn slice(
    noun: &Noun,
    name: &'static str,
    start: Option<Value<'_>>,
    stop: Option<Value<'_>>,
) -> starlark::Result<Noun> {
    let (Noun::Buffer(of, _) | Noun::Segment(of) | Noun::Slot(of)) = noun else {
        return Err(wrong(format!("a {name} has no bytes"), "slices are of buffers and segments"));
    };
    let len = if let Noun::Buffer(_, len) = noun { *len } else { None };
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
    if from > to || len.is_some_and(|len| to > len) {
        let has = len.map_or(String::new(), |len| format!(" of a {name} of {len} bytes"));
        return Err(wrong(
            format!("slice out of the buffer: [{from}:{to}]{has}"),
            "a slice starts at or before its end and ends inside the buffer",
        ));
    }
    let (of, before) = if let Operand::Slice { of, offset_bytes, .. } = of {
        (of.clone(), *offset_bytes)
    } else {
        (Arc::new(of.clone()), 0)
    };
    let operand = Operand::Slice { of, offset_bytes: before + from, len_bytes: to - from };
    Ok(Noun::Buffer(operand, Some(to - from)))
}
