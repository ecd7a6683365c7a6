//! What the builtins find behind the evaluator while a program is evaluated, and what they share.
//!
//! Not here: the builtins themselves.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

use rankcheck_model::{Answer, Entry, Line, Op, Operand, Place, PlaceId, Question, Slot, Token};
use rustc_hash::FxHashMap;
use starlark::any::ProvidesStaticType;
use starlark::codemap::{CodeMapId, FileSpan};
use starlark::eval::Evaluator;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{FrozenValue, Heap, UnpackValue, Value};

use crate::recorder::{Recorder, Stop};
use crate::spec::error::{Texts, place_of, wrong};
use crate::spec::noun::{Noun, a, take_tested, tested_message};

/// File and position, and the position in the program's file where that is another.
type Written = (CodeMapId, u32, Option<u32>);

/// One evaluation of one thread of a Starlark program.
#[derive(Debug, ProvidesStaticType)]
pub(crate) struct Evaluation {
    pub(crate) recorder: Recorder,
    pub(crate) entries: Arc<Entries>,
    pub(crate) assumed: Arc<[String]>,
    texts: Arc<Texts>,
    places: RefCell<FxHashMap<Written, PlaceId>>,
    /// The file of the program.
    file: Cell<Option<CodeMapId>>,
    allocated: RefCell<FxHashMap<Token, u32>>,
}

/// The functions from which threads start. Entry 0 is the program itself and not listed.
#[derive(Debug, Default)]
pub(crate) struct Entries(Mutex<Vec<Start>>);

/// A spawn: which thread does it as its how manieth, and what it starts. Ranks that do the same share it.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) parent: Entry,
    pub(crate) slot: u32,
    pub(crate) name: String,
    pub(crate) function: FrozenValue,
    pub(crate) args: Vec<Datum>,
}

/// A value that can be handed to another thread.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Datum {
    None,
    Bool(bool),
    Int(i64),
    Str(String),
    List(Vec<Datum>),
    Tuple(Vec<Datum>),
    Noun(Noun),
}

impl Entries {
    pub(crate) fn entry(&self, start: Start) -> Entry {
        let mut starts = self.0.lock().expect("nothing panics while it holds this lock");
        let same = |known: &Start| {
            known.parent == start.parent
                && known.slot == start.slot
                && known.name == start.name
                && known.function.to_value().ptr_eq(start.function.to_value())
                && known.args == start.args
        };
        let at = starts.iter().position(same).unwrap_or_else(|| {
            starts.push(start);
            starts.len() - 1
        });
        Entry(u32::try_from(at + 1).expect("fewer than 2^32 threads"))
    }

    pub(crate) fn start(&self, entry: Entry) -> Option<Start> {
        let starts = self.0.lock().expect("nothing panics while it holds this lock");
        entry.at().checked_sub(1).and_then(|at| starts.get(at)).cloned()
    }
}

impl Datum {
    pub(crate) fn of(value: Value<'_>) -> starlark::Result<Self> {
        if value.is_none() {
            return Ok(Self::None);
        }
        if let Some(bool) = value.unpack_bool() {
            return Ok(Self::Bool(bool));
        }
        if let Some(int) = i64::unpack_value(value)? {
            return Ok(Self::Int(int));
        }
        if let Some(text) = value.unpack_str() {
            return Ok(Self::Str(text.to_owned()));
        }
        if let Some(noun) = Noun::of(value) {
            return Ok(Self::Noun(noun.clone()));
        }
        if let Some(list) = ListRef::from_value(value) {
            return Ok(Self::List(list.iter().map(Self::of).collect::<starlark::Result<_>>()?));
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return Ok(Self::Tuple(tuple.iter().map(Self::of).collect::<starlark::Result<_>>()?));
        }
        let help = "ints, strings, bools, None, nouns and slots of this rank, lists and tuples of these; a pool with \
                    hooks is declared again by the thread";
        Err(wrong(format!("{} cannot be handed to a thread", a(value.get_type())), help))
    }

    pub(crate) fn alloc<'v>(&self, heap: Heap<'v>) -> Value<'v> {
        match self {
            Self::None => Value::new_none(),
            Self::Bool(bool) => Value::new_bool(*bool),
            Self::Int(int) => heap.alloc(*int),
            Self::Str(text) => heap.alloc(text.as_str()),
            Self::List(items) => heap.alloc(items.iter().map(|item| item.alloc(heap)).collect::<Vec<_>>()),
            Self::Tuple(items) => {
                heap.alloc(AllocTuple(items.iter().map(|item| item.alloc(heap)).collect::<Vec<_>>()))
            }
            Self::Noun(noun) => noun.clone().alloc(heap),
        }
    }
}

/// The error that carries a [`Stop`] through the interpreter. What it means stands in the recorder.
#[derive(Debug, thiserror::Error)]
#[error("the evaluation stops here")]
struct Stopped;

pub(crate) fn stopped(_stop: Stop) -> starlark::Error {
    starlark::Error::new_native(Stopped)
}

impl Evaluation {
    pub(crate) fn new(
        recorder: Recorder,
        entries: Arc<Entries>,
        assumed: Arc<[String]>,
        texts: Arc<Texts>,
    ) -> Self {
        let (places, allocated) = (RefCell::default(), RefCell::default());
        Self { recorder, entries, assumed, texts, places, file: Cell::new(None), allocated }
    }

    /// The evaluation behind an evaluator.
    pub(crate) fn of<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Self> {
        eval.extra.and_then(|extra| extra.downcast_ref::<Self>()).ok_or_else(|| {
            wrong(
                "operations are recorded inside programs only",
                "call it from the function that is given to check()",
            )
        })
    }

    /// The innermost line of Starlark; if it stands in a library, with the innermost line of the program's own file.
    pub(crate) fn place(&self, eval: &Evaluator<'_, '_, '_>) -> PlaceId {
        let Some(span) = eval.call_stack_top_location() else {
            let place = Place { file: "".into(), line: 1, column: 1, called_at: None };
            return self.recorder.names.place_id(&place);
        };
        let caller = self.caller(eval, &span);
        let key = (span.file.id(), span.span.begin().get(), caller.as_ref().map(|at| at.span.begin().get()));
        let known = self.places.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let mut place = place_of(&span, &self.texts);
            place.called_at = caller.map(|at| {
                let Place { file, line, .. } = place_of(&at, &self.texts);
                Line { file, line }
            });
            let id = self.recorder.names.place_id(&place);
            self.places.borrow_mut().insert(key, id);
            id
        })
    }

    /// The innermost line of the program's file, where what runs stands in another.
    fn caller(&self, eval: &Evaluator<'_, '_, '_>, span: &FileSpan) -> Option<FileSpan> {
        if self.file.get() == Some(span.file.id()) {
            return None;
        }
        let calls = || eval.call_stack().frames.into_iter().filter_map(|frame| frame.location);
        // The first call that has a place stands in the program.
        let file = self.file.get().or_else(|| calls().next().map(|at| at.file.id()));
        self.file.set(file);
        calls().filter(|at| Some(at.file.id()) == file && at.file.id() != span.file.id()).last()
    }

    /// A fresh number for a block of this pool.
    pub(crate) fn count_block(&self, pool: Token) -> u32 {
        let mut allocated = self.allocated.borrow_mut();
        let count = allocated.entry(pool).or_default();
        *count += 1;
        *count - 1
    }

    pub(crate) fn token(&self, text: &str) -> Token {
        self.recorder.names.token(text)
    }

    fn tested(&self, place: PlaceId) -> starlark::Result<()> {
        let Some(noun) = take_tested() else { return Ok(()) };
        let (message, help) = tested_message(noun);
        Err(stopped(self.recorder.fail(message, Some(place), Some(help))))
    }
}

/// Records an operation at the innermost line.
pub(crate) fn record(eval: &Evaluator<'_, '_, '_>, verb: Op) -> starlark::Result<Option<Slot>> {
    let evaluation = Evaluation::of(eval)?;
    let place = evaluation.place(eval);
    evaluation.tested(place)?;
    evaluation.recorder.record(verb, place).map_err(stopped)
}

/// Records an operation that produces a slot.
pub(crate) fn record_slot(eval: &Evaluator<'_, '_, '_>, verb: Op) -> starlark::Result<Operand> {
    record(eval, verb).map(|slot| Operand::Slot(slot.expect("callers pass verbs that produce a slot")))
}

/// Asks at the innermost line.
pub(crate) fn ask(eval: &Evaluator<'_, '_, '_>, question: Question) -> starlark::Result<(Answer, Slot)> {
    let evaluation = Evaluation::of(eval)?;
    let place = evaluation.place(eval);
    evaluation.tested(place)?;
    evaluation.recorder.ask(question, place).map_err(stopped)
}

/// Asks what is true or false.
pub(crate) fn ask_bool(eval: &Evaluator<'_, '_, '_>, question: Question) -> starlark::Result<bool> {
    ask(eval, question).map(|(answer, _)| answer != 0)
}

/// Raises at the innermost line.
pub(crate) fn raise(eval: &Evaluator<'_, '_, '_>, message: &str) -> starlark::Result<starlark::Error> {
    let evaluation = Evaluation::of(eval)?;
    let place = evaluation.place(eval);
    Ok(stopped(evaluation.recorder.raise(message.to_owned(), place)))
}

/// Calls a function of the spec.
pub(crate) fn call<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    function: Value<'v>,
    args: &[Value<'v>],
) -> starlark::Result<Value<'v>> {
    eval.eval_function(function, args, &[])
}

/// Runs `leave` after a body, also while what was raised unwinds. Never after a question without an answer.
pub(crate) fn finally<'v, 'a, 'e>(
    eval: &mut Evaluator<'v, 'a, 'e>,
    body: impl FnOnce(&mut Evaluator<'v, 'a, 'e>) -> starlark::Result<Value<'v>>,
    leave: impl FnOnce(&mut Evaluator<'v, 'a, 'e>) -> starlark::Result<()>,
) -> starlark::Result<Value<'v>> {
    match body(eval) {
        Ok(value) => leave(eval).map(|()| value),
        Err(error) => {
            let recorder = &Evaluation::of(eval)?.recorder;
            let Some((message, place)) = recorder.take_raise() else { return Err(error) };
            leave(eval)?;
            recorder.raise(message, place);
            Err(error)
        }
    }
}

/// What operations work on, for a value of the language.
pub(crate) fn operand(eval: &Evaluator<'_, '_, '_>, value: Value<'_>) -> starlark::Result<Operand> {
    if value.is_none() {
        return Ok(Operand::Null);
    }
    if let Some(bool) = value.unpack_bool() {
        return Ok(Operand::Bool(bool));
    }
    if let Some(int) = i64::unpack_value(value)? {
        return Ok(Operand::Int(int));
    }
    if let Some(text) = value.unpack_str() {
        return Ok(Operand::Token(Evaluation::of(eval)?.token(text)));
    }
    if let Some(operand) = Noun::of(value).and_then(Noun::operand) {
        return Ok(operand);
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        let items = tuple.iter().map(|item| operand(eval, item));
        return Ok(Operand::Tuple(items.collect::<starlark::Result<Vec<_>>>()?.into()));
    }
    let list = ListRef::from_value(value).is_some() || DictRef::from_value(value).is_some();
    let help = if list {
        "put its elements one by one, or write a tuple"
    } else {
        "use an int, string, bool or slot"
    };
    Err(wrong(format!("{} is not a value that operations can hold", a(value.get_type())), help))
}

/// The stream that was named, or the default one.
pub(crate) fn stream(eval: &Evaluator<'_, '_, '_>, value: Option<Value<'_>>) -> starlark::Result<Token> {
    match value {
        Some(value) if !value.is_none() => match Noun::of(value) {
            Some(Noun::Stream(name)) => Ok(*name),
            _ => Err(expected("stream", "a stream", value)),
        },
        _ => Ok(Evaluation::of(eval)?.token("default")),
    }
}

/// The error for an argument of the wrong type.
pub(crate) fn expected(argument: &str, what: &str, value: Value<'_>) -> starlark::Error {
    let got = if value.is_none() { "None".to_owned() } else { a(value.get_type()) };
    wrong(format!("`{argument}` must be {what}, not {got}"), format!("give {what}"))
}

/// A number of bytes or elements.
pub(crate) fn natural(argument: &str, value: Value<'_>) -> starlark::Result<u64> {
    match i64::unpack_value(value)? {
        Some(number) => u64::try_from(number).map_err(|_| {
            wrong(format!("`{argument}` is {number}, which is negative"), "give a number from 0 on")
        }),
        None => Err(expected(argument, "a number", value)),
    }
}
