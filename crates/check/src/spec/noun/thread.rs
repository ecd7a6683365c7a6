//! The host threads of a rank: what they do alone, how they start and end, and what they raise.
//!
//! Not here: what they wait for each other with (`mutex.rs`, `flag.rs`, `barrier.rs`).

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rankcheck_model::id::ContentIds;
use rankcheck_model::{Answer, Op, Operand, Rank, ThreadOp, ThreadStart};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::ListRef;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, TupleRef, UnpackTuple};
use starlark::values::{FrozenValue, Heap, UnpackValue, Value};

use crate::spec::argument::{expected, for_each_leaf, operand};
use crate::spec::builder::{Builder, Flow, Stop};
use crate::spec::error::{Texts, wrong};
use crate::spec::evaluation::{Evaluation, builder, call};
use crate::spec::handle::{Handle, a};
use crate::spec::noun::value::Holdable;
use crate::spec::rank::RankValue;

/// A host thread that was started.
#[derive(Debug, Clone)]
pub struct Thread(pub(crate) Operand);

/// What a thread of a closure does.
pub(crate) type Body = Arc<dyn Fn(&Builder) -> Flow + Send + Sync>;

/// The functions that threads run; the program itself is not listed.
#[derive(Debug)]
pub(crate) struct Spawned {
    known: Mutex<ContentIds<ThreadStart, Spawn>>,
    /// Functions that are what their name says: it is that of one function in all files.
    plain: BTreeSet<String>,
}

/// A spawn: which thread does it as its how manieth, and what it starts. Ranks that do the same share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SpawnKey {
    parent: ThreadStart,
    slot: u32,
    name: String,
    body: BodyKey,
}

/// What tells what a thread runs apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum BodyKey {
    /// The name of a function, and its arguments.
    Named(String, Vec<Datum>),
    /// What it captured, and which of several functions it is, follow from the rank, if the program read it, and from the
    /// answers so far.
    After(Option<Rank>, Box<[Answer]>),
}

/// A spawn, and what it starts.
#[derive(Debug)]
struct Spawn {
    key: SpawnKey,
    runs: Runs,
}

impl Borrow<SpawnKey> for Spawn {
    fn borrow(&self) -> &SpawnKey {
        &self.key
    }
}

/// What a thread runs.
#[derive(Clone)]
pub(crate) enum Runs {
    /// A function of a spec.
    Starlark { function: FrozenValue, args: Vec<Datum> },
    /// A closure of a Rust program.
    Rust { body: Body },
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starlark { .. } => "Starlark",
            Self::Rust { .. } => "Rust",
        })
    }
}

impl Spawned {
    /// Nothing is spawned yet by the program of these files.
    pub(crate) fn by(texts: &Texts) -> Self {
        let mut defined: BTreeMap<&str, bool> = BTreeMap::new();
        for line in texts.values().flat_map(|text| text.original.lines()) {
            let Some((name, _)) = line.trim_start().strip_prefix("def ").and_then(|of| of.split_once('('))
            else {
                continue;
            };
            // One that is defined twice, or where a loop or another function may come by again, is not one function.
            let once = line.starts_with("def ");
            defined.entry(name.trim()).and_modify(|plain| *plain = false).or_insert(once);
        }
        let plain = defined.into_iter().filter(|(_, plain)| *plain).map(|(name, _)| name.to_owned());
        Self { known: Mutex::default(), plain: plain.collect() }
    }

    fn known(&self) -> MutexGuard<'_, ContentIds<ThreadStart, Spawn>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, key: SpawnKey, runs: Runs) -> ThreadStart {
        self.known().id_of(&key, |key| Spawn { key: key.clone(), runs })
    }

    /// What a thread runs that has this start, unless it is the program itself.
    pub(crate) fn runs(&self, start: ThreadStart) -> Option<Runs> {
        self.known().get(start).map(|spawn| spawn.runs.clone())
    }
}

impl Builder {
    /// A local step that touches nothing.
    #[track_caller]
    pub fn step(&self, label: &str) -> Flow {
        self.add(Op::Thread(ThreadOp::Step { label: self.token(label) }))
    }

    /// Some execution must come by here, if the check says so.
    #[track_caller]
    pub fn reach(&self, label: &str) -> Flow {
        self.add(Op::Thread(ThreadOp::Reach { label: self.token(label) }))
    }

    /// Warm-up ends; costs are counted from here.
    #[track_caller]
    pub fn steady(&self) -> Flow {
        self.add(Op::Thread(ThreadOp::Steady))
    }

    /// Adds a number to the costs.
    #[track_caller]
    pub fn measure(&self, name: &str, value: impl Holdable) -> Flow {
        let (name, value) = (self.token(name), value.operand(self));
        self.add(Op::Thread(ThreadOp::Measure { name, value }))
    }

    /// The process ends: `return r.exit("…")`.
    #[track_caller]
    pub fn exit<T>(&self, message: &str) -> Flow<T> {
        let code = self.token(message);
        self.add(Op::Thread(ThreadOp::Exit { code }))?;
        Err(self.end())
    }

    /// Raises: `return r.raises("…")`. What nobody catches ends the rank.
    #[track_caller]
    pub fn raises<T>(&self, message: &str) -> Flow<T> {
        Err(self.raise_at(message.to_owned(), self.loc()))
    }

    /// Calls the three; `leave` also while an exception unwinds.
    pub fn context<T>(
        &self,
        enter: impl FnOnce() -> Flow,
        leave: impl FnOnce() -> Flow,
        body: impl FnOnce() -> Flow<T>,
    ) -> Flow<T> {
        enter()?;
        self.finally(body, leave)
    }

    /// Calls a body; gives its value, or the message of what it raised.
    pub fn attempt<T>(&self, body: impl FnOnce() -> Flow<T>) -> Flow<Result<T, String>> {
        self.attempted(body)
    }

    fn attempted<T, E: From<Stop>>(
        &self,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, String>, E> {
        match body() {
            Ok(value) => Ok(Ok(value)),
            Err(error) => self.take_raise().map(|(message, _)| Err(message)).ok_or(error),
        }
    }

    /// Starts a host thread that runs a closure with a builder of its own. It may capture what this thread made.
    #[track_caller]
    pub fn thread(&self, name: &str, body: impl Fn(&Self) -> Flow + Send + Sync + 'static) -> Flow<Thread> {
        self.spawn(name, Runs::Rust { body: Arc::new(body) })
    }

    #[track_caller]
    fn spawn(&self, name: &str, runs: Runs) -> Flow<Thread> {
        let body = self.body_key(&runs);
        let key = SpawnKey { parent: self.start, slot: self.next_slot(), name: name.to_owned(), body };
        let start = self.setting.threads.start(key, runs);
        self.add_result(Op::Thread(ThreadOp::Spawn { start })).map(Thread)
    }
}

impl Builder {
    fn body_key(&self, runs: &Runs) -> BodyKey {
        if let Runs::Starlark { function, args } = runs {
            // The signature begins with the name.
            let signature = function.to_value().to_string();
            let name = signature.split('(').next().unwrap_or_default();
            if self.setting.threads.plain.contains(name) {
                return BodyKey::Named(name.to_owned(), args.clone());
            }
        }
        let read_rank = self.read_rank.is_read();
        BodyKey::After(read_rank.then_some(self.rank), self.answers_so_far().into())
    }
}

impl Thread {
    /// Waits until it ends.
    #[track_caller]
    pub fn join(&self, r: &Builder) -> Flow {
        r.add(Op::Thread(ThreadOp::Join { thread: self.0.clone() }))
    }
}

/// A value of Starlark that can be handed to another thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Datum {
    None,
    Bool(bool),
    Int(i64),
    Str(String),
    List(Vec<Datum>),
    Tuple(Vec<Datum>),
    Handle(Handle),
}

impl Datum {
    fn of(value: Value<'_>) -> starlark::Result<Self> {
        for_each_leaf(value, |_| Ok(()))?;
        Self::copy_of(value)
    }

    fn copy_of(value: Value<'_>) -> starlark::Result<Self> {
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
        if let Some(handle) = Handle::of(value) {
            return Ok(Self::Handle(handle.clone()));
        }
        if let Some(list) = ListRef::from_value(value) {
            return Ok(Self::List(list.iter().map(Self::copy_of).collect::<starlark::Result<_>>()?));
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return Ok(Self::Tuple(tuple.iter().map(Self::copy_of).collect::<starlark::Result<_>>()?));
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
            Self::Handle(handle) => handle.clone().alloc(heap),
        }
    }
}

#[starlark_module]
pub(crate) fn marks_of_rank(methods: &mut MethodsBuilder) {
    fn step<'v>(
        #[starlark(this)] _this: &RankValue,
        label: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.step(label)?;
        Ok(NoneType)
    }

    fn reach<'v>(
        #[starlark(this)] _this: &RankValue,
        label: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.reach(label)?;
        Ok(NoneType)
    }

    fn steady<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.steady()?;
        Ok(NoneType)
    }

    fn measure<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        // Texts are numbered in order of first use: the name comes before the value.
        Evaluation::of(eval)?.builder.token(name);
        let value = operand(eval, value)?;
        builder(eval)?.measure(name, value)?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn control_of_rank(methods: &mut MethodsBuilder) {
    fn exit<'v>(
        #[starlark(this)] _this: &RankValue,
        message: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.exit::<()>(message)?;
        Ok(NoneType)
    }

    fn raises<'v>(
        #[starlark(this)] _this: &RankValue,
        message: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.raises::<()>(message)?;
        Ok(NoneType)
    }

    fn context<'v>(
        #[starlark(this)] _this: &RankValue,
        enter: Value<'v>,
        leave: Value<'v>,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let builder = &Evaluation::of(eval)?.builder;
        call(eval, enter, &[])?;
        let eval = RefCell::new(eval);
        builder.finally(
            || call(&mut eval.borrow_mut(), body, &[]),
            || call(&mut eval.borrow_mut(), leave, &[]).map(|_| ()),
        )
    }

    fn attempt<'v>(
        #[starlark(this)] _this: &RankValue,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let builder = &Evaluation::of(eval)?.builder;
        match builder.attempted(|| call(eval, body, &[]))? {
            Ok(_) => Ok(Value::new_none()),
            Err(message) => Ok(eval.heap().alloc(message)),
        }
    }

    fn thread<'v>(
        #[starlark(this)] _this: &RankValue,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] f: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Thread> {
        if f.get_type() != "function" {
            return Err(expected("f", "a function", f));
        }
        let Some(function) = f.unpack_frozen() else {
            return Err(wrong(
                "a thread's function must be a `def` at the level of the file",
                "a lambda or an inner function captures variables that another thread cannot share: pass them as \
                 arguments, r.thread(name, f, x, y), and share state through r.map(name) and r.list(name)",
            ));
        };
        let args = args.items.iter().map(|arg| Datum::of(*arg)).collect::<starlark::Result<_>>()?;
        Ok(builder(eval)?.spawn(name, Runs::Starlark { function, args })?)
    }
}

#[starlark_module]
pub(crate) fn thread_methods(methods: &mut MethodsBuilder) {
    fn join<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let thread = match Handle::of(this) {
            Some(Handle::Thread(of) | Handle::Slot(of)) => Thread(of.clone()),
            _ => return Err(expected("thread", "a thread", this)),
        };
        thread.join(builder(eval)?)?;
        Ok(NoneType)
    }
}
