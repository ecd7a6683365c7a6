//! The host threads of a rank: what they do alone, how they start and end, and what they raise.
//!
//! Not here: what they wait for each other with (`mutex.rs`, `flag.rs`, `barrier.rs`).

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

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
use crate::spec::error::wrong;
use crate::spec::evaluation::{Evaluation, builder, call};
use crate::spec::handle::{Handle, a};
use crate::spec::noun::value::Holdable;
use crate::spec::rank::RankValue;

/// A host thread that was started.
#[derive(Debug, Clone)]
pub struct Thread(pub(crate) Operand);

/// What a thread of a closure does.
pub(crate) type Body = Arc<dyn Fn(&Builder) -> Flow + Send + Sync>;

/// The functions that threads run. Number 0 is the program itself and not listed.
#[derive(Debug, Default)]
pub(crate) struct Spawned(Mutex<Vec<Spawn>>);

/// A spawn: which thread does it as its how manieth, and what it starts. Ranks that do the same share it.
#[derive(Debug, Clone)]
struct Spawn {
    parent: ThreadStart,
    slot: u32,
    name: String,
    runs: Runs,
}

/// What a thread runs.
#[derive(Clone)]
pub(crate) enum Runs {
    /// A function of a spec.
    Starlark { function: FrozenValue, args: Vec<Datum> },
    /// A closure. What it captured follows from the rank, if the program read it, and from the answers so far.
    Rust { rank: Option<Rank>, answers: Box<[Answer]>, body: Body },
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starlark { .. } => "Starlark",
            Self::Rust { .. } => "Rust",
        })
    }
}

impl Runs {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Starlark { function, args }, Self::Starlark { function: known, args: known_args }) => {
                function.to_value().ptr_eq(known.to_value()) && args == known_args
            }
            (Self::Rust { rank, answers, .. }, Self::Rust { rank: known, answers: known_answers, .. }) => {
                rank == known && answers == known_answers
            }
            (Self::Starlark { .. }, Self::Rust { .. }) | (Self::Rust { .. }, Self::Starlark { .. }) => false,
        }
    }
}

impl Spawned {
    fn start(&self, spawn: Spawn) -> ThreadStart {
        let mut spawns = self.0.lock().expect("nothing panics while it holds this lock");
        let same = |known: &Spawn| {
            known.parent == spawn.parent
                && known.slot == spawn.slot
                && known.name == spawn.name
                && known.runs.same(&spawn.runs)
        };
        let at = spawns.iter().position(same).unwrap_or_else(|| {
            spawns.push(spawn);
            spawns.len() - 1
        });
        ThreadStart(u32::try_from(at + 1).expect("fewer than 2^32 threads"))
    }

    /// What a thread runs that has this start, unless it is the program itself.
    pub(crate) fn runs(&self, start: ThreadStart) -> Option<Runs> {
        let spawns = self.0.lock().expect("nothing panics while it holds this lock");
        start.at().checked_sub(1).and_then(|at| spawns.get(at)).map(|spawn| spawn.runs.clone())
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
        let read_rank = self.read_rank.load(Ordering::Relaxed);
        let rank = read_rank.then_some(self.rank);
        let answers = self.answers_so_far().into();
        self.spawn(name, Runs::Rust { rank, answers, body: Arc::new(body) })
    }

    #[track_caller]
    fn spawn(&self, name: &str, runs: Runs) -> Flow<Thread> {
        let spawn = Spawn { parent: self.start, slot: self.next_slot(), name: name.to_owned(), runs };
        let start = self.setting.threads.start(spawn);
        self.add_result(Op::Thread(ThreadOp::Spawn { start })).map(Thread)
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
#[derive(Debug, Clone, PartialEq)]
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
