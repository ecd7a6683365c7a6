//! Operations and questions, read from the words that describe them: one line for each.
//!
//! The tables need only what programs that are kept in text have; a verb that is missing is named when it is read.
//! Not here: programs, and how words are spelt.
#![expect(clippy::wildcard_enum_match_arm, reason = "other words are what this is not")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::describe::{Describe, Naming};
use rankcheck_model::{
    BarrierOp, CaptureMode, Collective, CollectiveKind, CommOp, DataOrigin, Declared, Direction, Dtype,
    EventOp, ExchangeOp, FlagAct, FlagOp, GraphOp, GroupOp, IpcOp, ListOp, Made, MapOp, MapOrder, MemoryKind,
    MemoryOp, MutexOp, Op, Operand, Operation, OverlapOp, Parting, PoolOp, Question, Rank, ReduceOp, Release,
    Resources, SizeClasses, Slot, StoreOp, StreamOp, Test, ThreadOp, ThreadStart, TieBreak, Token, Transfer,
    WindowFlags, WindowOp,
};

use super::words::Words;

/// What the label of an operation stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Labelled {
    pub(super) operation: Operation,
    /// The first of its slots, if it produces any.
    pub(super) slot: Option<Slot>,
}

/// What the names and labels of a program stand for.
pub(super) struct Scope<'a> {
    pub(super) token: &'a dyn Fn(&str) -> Token,
    /// None while the labels are still being collected: then each stands for anything.
    pub(super) labels: Option<&'a BTreeMap<String, Labelled>>,
}

impl Scope<'_> {
    fn labelled(&self, label: &str) -> Result<Labelled, String> {
        let start = ThreadStart(0);
        let anything =
            Labelled { operation: Operation { start, index: 0 }, slot: Some(Slot { start, index: 0 }) };
        let Some(labels) = self.labels else { return Ok(anything) };
        labels.get(label).copied().ok_or_else(|| format!("nothing is called ${label}"))
    }
}

/// What can be read from its description.
pub(super) trait Read: Sized {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String>;
}

/// The fields of a call.
struct Fields<'a> {
    of: &'a [(String, Words)],
    scope: &'a Scope<'a>,
}

impl Fields<'_> {
    fn optional<T: Read>(&self, name: &str) -> Result<Option<T>, String> {
        let field = self.of.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| T::read(value, self.scope)).transpose()
    }

    fn get<T: Read>(&self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("the field `{name}` is missing"))
    }
}

/// The function from the name of a call and its fields to the value, none if the table has no such call. A field is
/// described by its name here unless `as` says otherwise; one with `or` is described only where it is something else.
macro_rules! calls {
    ($(#[$doc:meta])* $function:ident -> $type:ty {
        $($text:literal => $($variant:ident)::+ { $($field:ident $(as $name:literal)? $(or $default:expr)?),* })*
    }) => {
        $(#[$doc])*
        fn $function(name: &str, fields: &Fields<'_>) -> Option<Result<$type, String>> {
            let value = match name {
                $($text => (|| Ok($($variant)::+ {
                    $($field: calls!(@ fields, $field $(as $name)? $(or $default)?)),*
                }))(),)*
                _ => return None,
            };
            Some(value)
        }
    };
    (@ $fields:ident, $field:ident) => { $fields.get(stringify!($field))? };
    (@ $fields:ident, $field:ident as $name:literal) => { $fields.get($name)? };
    (@ $fields:ident, $field:ident or $default:expr) => {
        $fields.optional(stringify!($field))?.unwrap_or($default)
    };
}

calls! { thread -> ThreadOp {
    "Step" => ThreadOp::Step { label }
    "Spawn" => ThreadOp::Spawn { start as "entry" }
    "Join" => ThreadOp::Join { thread }
    "Exit" => ThreadOp::Exit { code }
    "Reach" => ThreadOp::Reach { label }
} }

calls! { comm -> CommOp {
    "CommInit" => CommOp::Init { name, members, children or Resources::Own }
    "CommSplit" => CommOp::Split { comm, name, color }
    "CommFinalize" => CommOp::Finalize { comm }
    "CommDestroy" => CommOp::Destroy { comm, parting or Parting::Together }
} }

calls! { window -> WindowOp {
    "Register" => WindowOp::Register { comm, memory, flags }
    "Deregister" => WindowOp::Deregister { comm, window }
} }

calls! { collective -> Collective {
    "Collective" => Collective { kind, comm, send, recv, count, dtype, op, stream, declared }
} }

calls! { transfer -> Transfer {
    "Transfer" => Transfer { direction as "way", comm, peer, buffer, count, dtype, stream }
} }

calls! { overlap -> OverlapOp {
    "Overlap" => OverlapOp { one, other }
} }

calls! { stream -> StreamOp {
    "Kernel" => StreamOp::Kernel { name, reads, writes, stream }
    "StreamWait" => StreamOp::Wait { stream, event }
    "Synchronize" => StreamOp::Synchronize { what }
} }

calls! { event -> EventOp {
    "EventRecord" => EventOp { event, stream }
} }

calls! { graph -> GraphOp {
    "GraphBegin" => GraphOp::Begin { graph, stream, mode, pool }
    "GraphEnd" => GraphOp::End { graph }
    "GraphReplay" => GraphOp::Replay { graph, stream }
    "GraphDestroy" => GraphOp::Destroy { graph }
} }

calls! { memory -> MemoryOp {
    "Copy" => MemoryOp::Copy { to, from, stream }
    "Free" => MemoryOp::Free { buffer, after }
    "FreeOn" => MemoryOp::FreeOn { buffer, stream }
    "Release" => MemoryOp::Release { segment }
    "MemAlloc" => MemoryOp::Alloc { name, len_bytes, memory }
} }

/// What a buffer is expected to hold, which is said in one of several fields.
fn expect(fields: &Fields<'_>) -> Result<MemoryOp, String> {
    let origin = match fields.optional("kernel")? {
        Some(kernel) => DataOrigin::Kernel(kernel),
        None => DataOrigin::Allocated(fields.get("of")?),
    };
    let made = match (fields.optional("gathered")?, fields.optional("reduced")?) {
        (Some(comm), _) => Made::Gathered(comm),
        (None, Some(comm)) => Made::Reduced(comm, fields.get("op")?),
        (None, None) => Made::By(fields.get("by")?),
    };
    Ok(MemoryOp::Expect { buffer: fields.get("buffer")?, origin, made, stream: fields.get("stream")? })
}

calls! { pool -> PoolOp {
    "Pool" => PoolOp::Declare { pool, classes, tie, memory }
    "PoolLock" => PoolOp::Lock { pool }
    "PoolUnlock" => PoolOp::Unlock { pool }
    "Alloc" => PoolOp::Alloc { pool, name, len_bytes, stream }
    "Trim" => PoolOp::Trim { pool, release }
    "Havoc" => PoolOp::Havoc { pool, max, sizes_bytes }
} }

calls! { ipc -> IpcOp {
    "IpcExport" => IpcOp::Export { buffer }
    "ShareableExport" => IpcOp::ExportShareable { buffer }
    "IpcOpen" => IpcOp::Open { handle }
    "IpcClose" => IpcOp::Close { mapping }
} }

calls! { exchange -> ExchangeOp {
    "Exchange" => ExchangeOp { members, name, buffer }
} }

calls! { barrier -> BarrierOp {
    "Barrier" => BarrierOp::Enter { members }
    "AllAgree" => BarrierOp::AllAgree { members, value }
} }

calls! { mutex -> MutexOp {
    "Lock" => MutexOp::Lock { mutex }
    "Unlock" => MutexOp::Unlock { mutex }
} }

calls! { store -> StoreOp {
    "StoreSet" => StoreOp::Set { key, value }
    "StoreGet" => StoreOp::Get { key }
    "StoreDelete" => StoreOp::Delete { key }
} }

calls! { flag -> FlagOp {
    "Flag" => FlagOp { flag, act, stream }
} }

calls! { swap -> FlagAct {
    "Swap" => FlagAct::Swap { from, to }
} }

calls! { map -> MapOp {
    "MapPut" => MapOp::Put { map, key, value }
    "MapPop" => MapOp::Pop { map, key }
    "MapGet" => MapOp::Get { map, key, default }
    "MapClear" => MapOp::Clear { map }
} }

calls! { list -> ListOp {
    "ListPush" => ListOp::Push { list, value }
    "ListGet" => ListOp::Get { list, index }
    "ListSet" => ListOp::Set { list, index, value }
    "ListPop" => ListOp::Pop { list }
    "ListClear" => ListOp::Clear { list }
} }

calls! { rooted -> CollectiveKind {
    "Broadcast" => CollectiveKind::Broadcast { root }
    "Reduce" => CollectiveKind::Reduce { root }
    "Gather" => CollectiveKind::Gather { root }
    "Scatter" => CollectiveKind::Scatter { root }
} }

calls! { derived -> Operand {
    "Slice" => Operand::Slice { of, offset_bytes, len_bytes }
    "At" => Operand::At { of, like }
} }

calls! { slot -> Slot {
    "Slot" => Slot { start as "entry", index }
} }

calls! { operation -> Operation {
    "Operation" => Operation { start as "entry", index }
} }

calls! { question -> Question {
    "Choose" => Question::Choose { name, options }
    "MapHas" => Question::MapHas { map, key }
    "MapItems" => Question::MapItems { map, order }
    "ListLen" => Question::ListLen { list }
    "HasWindow" => Question::HasWindow { comm, buffer }
    "EventQuery" => Question::EventQuery { event }
} }

impl Read for Op {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let (name, of): (&str, &[_]) = match words {
            Words::Word(name) => (name, &[]),
            Words::Call(name, fields) => (name, fields),
            Words::Parts(name, parts) => match &parts[..] {
                [call] if name == "Collect" => {
                    return Ok(Self::Collective(read_call(call, scope, collective)?.into()));
                }
                [call] if name == "Transfer" => {
                    return Ok(Self::Transfer(read_call(call, scope, transfer)?.into()));
                }
                _ => return Err(unknown(words)),
            },
            Words::Name(_) | Words::Label(..) | Words::Thread(_) | Words::List(_) => {
                return Err(unknown(words));
            }
        };
        match name {
            "GroupStart" => return Ok(Self::Group(GroupOp::Start)),
            "GroupEnd" => return Ok(Self::Group(GroupOp::End)),
            "Steady" => return Ok(Self::Thread(ThreadOp::Steady)),
            _ => {}
        }
        let fields = &Fields { of, scope };
        let read = (thread(name, fields).map(|op| op.map(Self::Thread)))
            .or_else(|| comm(name, fields).map(|op| op.map(Self::Comm)))
            .or_else(|| window(name, fields).map(|op| op.map(Self::Window)))
            .or_else(|| overlap(name, fields).map(|op| op.map(Self::Overlap)))
            .or_else(|| stream(name, fields).map(|op| op.map(Self::Stream)))
            .or_else(|| event(name, fields).map(|op| op.map(Self::Event)))
            .or_else(|| graph(name, fields).map(|op| op.map(Self::Graph)))
            .or_else(|| (name == "Expect").then(|| expect(fields).map(Self::Memory)))
            .or_else(|| memory(name, fields).map(|op| op.map(Self::Memory)))
            .or_else(|| pool(name, fields).map(|op| op.map(Self::Pool)))
            .or_else(|| ipc(name, fields).map(|op| op.map(Self::Ipc)))
            .or_else(|| exchange(name, fields).map(|op| op.map(Self::Exchange)))
            .or_else(|| barrier(name, fields).map(|op| op.map(Self::Barrier)))
            .or_else(|| mutex(name, fields).map(|op| op.map(Self::Mutex)))
            .or_else(|| store(name, fields).map(|op| op.map(Self::Store)))
            .or_else(|| flag(name, fields).map(|op| op.map(Self::Flag)))
            .or_else(|| map(name, fields).map(|op| op.map(Self::Map)))
            .or_else(|| list(name, fields).map(|op| op.map(Self::List)));
        read.unwrap_or_else(|| Err(unknown(words)))
    }
}

impl Read for Question {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let Words::Parts(name, parts) = words else { return read_call(words, scope, question) };
        match (name.as_str(), &parts[..]) {
            ("Grew", [of]) => Ok(Self::Grew(Read::read(of, scope)?)),
            ("Failed", [of]) => Ok(Self::Failed(Read::read(of, scope)?)),
            ("Equal", [one, other]) => Ok(Self::Equal(Read::read(one, scope)?, Read::read(other, scope)?)),
            ("Truth", [of]) => Ok(Self::Truth(Read::read(of, scope)?)),
            ("Number", [of]) => Ok(Self::Number(Read::read(of, scope)?)),
            ("Trimmed", [of]) => Ok(Self::Trimmed(Read::read(of, scope)?)),
            _ => Err(unknown(words)),
        }
    }
}

impl Read for Operand {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        match words {
            Words::Label(label, nth) => {
                let first =
                    scope.labelled(label)?.slot.ok_or_else(|| format!("${label} produces nothing"))?;
                Ok(Self::Slot(Slot { index: first.index + nth, ..first }))
            }
            Words::Word(word) if word == "Null" => Ok(Self::Null),
            Words::Word(word) if word == "Device" => Ok(Self::Device),
            Words::Parts(name, parts) => match (name.as_str(), &parts[..]) {
                ("Int", [of]) => Ok(Self::Int(Read::read(of, scope)?)),
                ("Token", [of]) => Ok(Self::Token(Read::read(of, scope)?)),
                ("Bool", [of]) => Ok(Self::Bool(Read::read(of, scope)?)),
                ("Slot", [of]) => Ok(Self::Slot(read_call(of, scope, slot)?)),
                ("Segment", [of]) => Ok(Self::Segment(Read::read(of, scope)?)),
                ("Address", [of]) => Ok(Self::Address(Read::read(of, scope)?)),
                ("Tuple", [of]) => Ok(Self::Tuple(Read::read(of, scope)?)),
                ("Stream", [of]) => Ok(Self::Stream(Read::read(of, scope)?)),
                ("Event", [of]) => Ok(Self::Event(Read::read(of, scope)?)),
                _ => Err(unknown(words)),
            },
            Words::Word(_) | Words::Name(_) | Words::Thread(_) | Words::Call(..) | Words::List(_) => {
                read_call(words, scope, derived)
            }
        }
    }
}

impl Read for Operation {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        match words {
            Words::Label(label, 0) => Ok(scope.labelled(label)?.operation),
            _ => read_call(words, scope, operation),
        }
    }
}

impl Read for FlagAct {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let Words::Parts(name, parts) = words else { return read_call(words, scope, swap) };
        match (name.as_str(), &parts[..]) {
            ("Write", [value]) => Ok(Self::Write(Read::read(value, scope)?)),
            ("Wait", [test, value]) => Ok(Self::Wait(Read::read(test, scope)?, Read::read(value, scope)?)),
            _ => Err(unknown(words)),
        }
    }
}

impl Read for CollectiveKind {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let plain = one_of(&Self::ALL, words);
        plain.or_else(|_| read_call(words, scope, rooted))
    }
}

impl Read for Token {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        if let Words::Name(name) = words {
            Ok((scope.token)(name))
        } else {
            Err(format!("{words} is no name"))
        }
    }
}

impl Read for ThreadStart {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let Words::Thread(of) = words else { return Err(format!("{words} is no thread")) };
        let number: Option<u64> = Read::read(of, scope)?;
        number.map(Self).ok_or_else(|| "a thread has no number".to_owned())
    }
}

impl Read for Rank {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        match words {
            Words::Parts(name, parts) if name == "Rank" && parts.len() == 1 => {
                Ok(Self(Read::read(&parts[0], scope)?))
            }
            _ => Err(format!("{words} is no rank")),
        }
    }
}

impl<T: Read> Read for Option<T> {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        match words {
            Words::Word(word) if word == "None" => Ok(None),
            Words::Parts(name, parts) if name == "Some" && parts.len() == 1 => {
                Ok(Some(T::read(&parts[0], scope)?))
            }
            _ => Err(format!("{words} is neither None nor Some(…)")),
        }
    }
}

impl<T: Read> Read for Arc<T> {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        T::read(words, scope).map(Self::new)
    }
}

impl<T: Read> Read for Arc<[T]> {
    fn read(words: &Words, scope: &Scope<'_>) -> Result<Self, String> {
        let Words::List(items) = words else { return Err(format!("{words} is no list")) };
        items.iter().map(|item| T::read(item, scope)).collect()
    }
}

macro_rules! read_as_printed {
    ($($of:ty),*) => {$(
        impl Read for $of {
            fn read(words: &Words, _: &Scope<'_>) -> Result<Self, String> {
                let wrong = || format!("{words} is no {}", stringify!($of));
                if let Words::Word(word) = words { word.parse().map_err(|_| wrong()) } else { Err(wrong()) }
            }
        }
    )*};
}
read_as_printed!(u32, u64, i64, bool);

macro_rules! read_one_of {
    ($($of:ident: $($variant:ident),*;)*) => {$(
        impl Read for $of {
            fn read(words: &Words, _: &Scope<'_>) -> Result<Self, String> {
                one_of(&[$(Self::$variant),*], words)
            }
        }
    )*};
}
read_one_of! {
    CaptureMode: Global, ThreadLocal, Relaxed;
    Declared: Nothing, Symmetric;
    MapOrder: Insertion, Hash, Address;
    MemoryKind: Nccl, Cuda, CuMem;
    Release: Now, AfterHook;
    Parting: Together, Alone;
    Resources: Own, Shared;
    SizeClasses: Exact, Torch;
    Test: Equal, AtLeast;
    TieBreak: Address, Counter;
    Direction: Send, Recv;
    WindowFlags: Default, CollSymmetric;
}

impl Read for Dtype {
    fn read(words: &Words, _: &Scope<'_>) -> Result<Self, String> {
        one_of(&[&Self::ALL[..], &[Self::Invalid]].concat(), words)
    }
}

impl Read for ReduceOp {
    fn read(words: &Words, _: &Scope<'_>) -> Result<Self, String> {
        one_of(&[&Self::ALL[..], &[Self::Invalid]].concat(), words)
    }
}

/// Values that name nothing are described without names.
struct NoNames;

impl Naming for NoNames {
    fn name(&self, _: Token) -> Arc<str> {
        "".into()
    }

    fn thread(&self, _: ThreadStart) -> Option<usize> {
        None
    }
}

/// The one of these values that is described so.
fn one_of<T: Describe + Clone>(values: &[T], words: &Words) -> Result<T, String> {
    let value = values.iter().find(|value| Words::of(*value, &NoNames) == *words);
    value.cloned().ok_or_else(|| unknown(words))
}

fn read_call<T>(
    words: &Words,
    scope: &Scope<'_>,
    read: impl Fn(&str, &Fields<'_>) -> Option<Result<T, String>>,
) -> Result<T, String> {
    let Words::Call(name, of) = words else { return Err(unknown(words)) };
    read(name, &Fields { of, scope }).unwrap_or_else(|| Err(unknown(words)))
}

fn unknown(words: &Words) -> String {
    format!("`{words}` is not known here; what is known stands in tests/src/script/verbs.rs")
}
