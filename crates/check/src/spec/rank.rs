//! `r`, the rank: the first argument of every program, and the start of everything that it does.
//!
//! Not here: the methods of what it hands out.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allocative::Allocative;
use rankcheck_model::{
    BarrierOp, CommOp, ExchangeOp, GroupOp, MemoryKind, MemoryOp, Op, Operand, OverlapOp, PoolOp, Question,
    Rank, Resources, StreamOp, ThreadOp,
};
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder, MethodsStatic};
use starlark::eval::Evaluator;
use starlark::values::list::UnpackList;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Value, starlark_value};
use starlark::{starlark_module, starlark_simple_value};

use crate::spec::comm::{map_order, memory, memory_kind, size_classes, tie_break};
use crate::spec::error::wrong;
use crate::spec::evaluation::{
    Datum, Evaluation, Start, ask, ask_bool, call, expected, finally, natural, operand, raise, record,
    record_slot, stream,
};
use crate::spec::ipc::mappings;
use crate::spec::memory::PoolValue;
use crate::spec::noun::Noun;

/// The rank that is evaluated.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
#[allocative(skip)]
pub(crate) struct RankValue {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Set once the program looks at `r.rank`.
    pub(crate) read: Arc<AtomicBool>,
}

starlark_simple_value!(RankValue);

impl fmt::Display for RankValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<rank>")
    }
}

#[starlark_value(type = "rank")]
impl<'v> StarlarkValue<'v> for RankValue {
    fn get_methods() -> Option<&'static Methods> {
        static METHODS: MethodsStatic = MethodsStatic::new("RankValue", rank_methods);
        Some(METHODS.methods())
    }
}

/// The methods of `r`, in groups.
pub(crate) fn rank_methods(builder: &mut MethodsBuilder) {
    identity(builder);
    names(builder);
    memory_and_marks(builder);
    together(builder);
    questions(builder);
    control(builder);
}

fn token(eval: &Evaluator<'_, '_, '_>, text: &str) -> starlark::Result<rankcheck_model::Token> {
    Evaluation::of(eval).map(|evaluation| evaluation.token(text))
}

/// The number of a rank of this check.
fn known_rank(eval: &Evaluator<'_, '_, '_>, argument: &str, value: Value<'_>) -> starlark::Result<Rank> {
    let ranks = Evaluation::of(eval)?.recorder.ranks;
    let number: Option<i64> = starlark::values::UnpackValue::unpack_value(value)?;
    let Some(number) = number else { return Err(expected(argument, "a rank number", value)) };
    u32::try_from(number).ok().filter(|rank| *rank < ranks).map(Rank).ok_or_else(|| {
        wrong(format!("there is no rank {number}"), format!("this check runs {ranks} ranks, numbered from 0"))
    })
}

/// World ranks that take part; nothing given means all.
fn members(eval: &Evaluator<'_, '_, '_>, ranks: Option<Value<'_>>) -> starlark::Result<Arc<[Rank]>> {
    let recorder = &Evaluation::of(eval)?.recorder;
    let Some(ranks) = ranks.filter(|ranks| !ranks.is_none()) else {
        return Ok((0..recorder.ranks).map(Rank).collect());
    };
    let given: Option<UnpackList<Value<'_>>> = starlark::values::UnpackValue::unpack_value(ranks)?;
    let Some(given) = given else { return Err(expected("ranks", "a list of rank numbers", ranks)) };
    let mut seen = BTreeSet::new();
    let mut list = Vec::new();
    for value in given.items {
        let rank = known_rank(eval, "ranks", value)?;
        if !seen.insert(rank) {
            return Err(wrong(format!("rank {} is listed twice", rank.0), "list every member once"));
        }
        list.push(rank);
    }
    if list.is_empty() {
        return Err(wrong("`ranks` is empty", "list at least one rank"));
    }
    if !list.iter().copied().eq((0..recorder.ranks).map(Rank)) {
        recorder.names.make_distinct();
    }
    Ok(list.into())
}

#[starlark_module]
fn identity(builder: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn rank(this: &RankValue) -> starlark::Result<u32> {
        this.read.store(true, Ordering::Relaxed);
        Ok(this.rank)
    }

    #[starlark(attribute)]
    fn size(this: &RankValue) -> starlark::Result<u32> {
        Ok(this.size)
    }

    #[starlark(attribute)]
    fn world(this: &RankValue) -> starlark::Result<Vec<u32>> {
        Ok((0..this.size).collect())
    }

    #[starlark(attribute)]
    fn store<'v>(this: &RankValue, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let _ = this;
        Ok(Noun::Store.alloc(heap))
    }

    #[starlark(attribute)]
    fn ipc<'v>(this: &RankValue, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let _ = this;
        Ok(Noun::Ipc.alloc(heap))
    }
}

#[starlark_module]
fn names(builder: &mut MethodsBuilder) {
    fn stream<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Stream(token(eval, name)?).alloc(eval.heap()))
    }

    fn event<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Event(token(eval, name)?).alloc(eval.heap()))
    }

    fn mutex<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Mutex(token(eval, name)?).alloc(eval.heap()))
    }

    fn flag<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Flag(token(eval, name)?).alloc(eval.heap()))
    }

    fn graph<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Graph(token(eval, name)?).alloc(eval.heap()))
    }

    fn map<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        #[starlark(default = "insertion")] order: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::Map(token(eval, name)?, map_order(order)?).alloc(eval.heap()))
    }

    fn list<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(Noun::List(token(eval, name)?).alloc(eval.heap()))
    }
}

fn alloc_memory<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    name: &str,
    bytes: Value<'v>,
    memory: MemoryKind,
) -> starlark::Result<Value<'v>> {
    let len_bytes = natural("bytes", bytes)?;
    let verb = Op::Memory(MemoryOp::Alloc { name: token(eval, name)?, len_bytes, memory });
    Ok(Noun::Buffer(record_slot(eval, verb)?, Some(len_bytes)).alloc(eval.heap()))
}

fn operands(
    eval: &Evaluator<'_, '_, '_>,
    argument: &str,
    values: Option<UnpackList<Value<'_>>>,
) -> starlark::Result<Arc<[Operand]>> {
    let _ = eval;
    let values = values.map_or_else(Vec::new, |values| values.items);
    let operands = values.into_iter().map(|value| memory(argument, value).map(|(of, _)| of));
    operands.collect::<starlark::Result<Vec<_>>>().map(Into::into)
}

#[starlark_module]
fn memory_and_marks(builder: &mut MethodsBuilder) {
    fn pool<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        #[starlark(default = "exact")] classes: &str,
        #[starlark(default = "counter")] tie: &str,
        #[starlark(default = "nccl")] memory: &str,
        on_segment: Option<Value<'v>>,
        on_segment_free: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let pool = token(eval, name)?;
        let (classes, tie, memory) = (size_classes(classes)?, tie_break(tie)?, memory_kind(memory)?);
        record(eval, Op::Pool(PoolOp::Declare { pool, classes, tie, memory }))?;
        let hook = |hook: Option<Value<'v>>| hook.filter(|hook| !hook.is_none());
        let (on_segment, on_segment_free) = (hook(on_segment), hook(on_segment_free));
        Ok(eval.heap().alloc(PoolValue { pool, on_segment, on_segment_free }))
    }

    fn malloc<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        bytes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        alloc_memory(eval, name, bytes, MemoryKind::Cuda)
    }

    fn mem_alloc<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        bytes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        alloc_memory(eval, name, bytes, MemoryKind::Nccl)
    }

    fn step<'v>(
        #[starlark(this)] _this: &RankValue,
        label: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let label = token(eval, label)?;
        record(eval, Op::Thread(ThreadOp::Step { label }))?;
        Ok(NoneType)
    }

    fn reach<'v>(
        #[starlark(this)] _this: &RankValue,
        label: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let label = token(eval, label)?;
        record(eval, Op::Thread(ThreadOp::Reach { label }))?;
        Ok(NoneType)
    }

    fn steady<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        record(eval, Op::Thread(ThreadOp::Steady))?;
        Ok(NoneType)
    }

    fn measure<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (name, value) = (token(eval, name)?, operand(eval, value)?);
        record(eval, Op::Thread(ThreadOp::Measure { name, value }))?;
        Ok(NoneType)
    }

    fn synchronize<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        record(eval, Op::Stream(StreamOp::Synchronize { what: Operand::Device }))?;
        Ok(NoneType)
    }

    fn kernel<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        reads: Option<UnpackList<Value<'v>>>,
        writes: Option<UnpackList<Value<'v>>>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (reads, writes) = (operands(eval, "reads", reads)?, operands(eval, "writes", writes)?);
        let stream = self::stream(eval, stream)?;
        let name = token(eval, name)?;
        record(eval, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }))?;
        Ok(NoneType)
    }

    fn overlap<'v>(
        #[starlark(this)] _this: &RankValue,
        one: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let launch = |argument: &str, value: Value<'v>| match Noun::of(value) {
            Some(Noun::Operation(operation)) => Ok(*operation),
            _ => Err(expected(argument, "what a send, a receive or a collective returned", value)),
        };
        let (one, other) = (launch("one", one)?, launch("other", other)?);
        record(eval, Op::Overlap(OverlapOp { one, other }))?;
        Ok(NoneType)
    }

    fn copy<'v>(
        #[starlark(this)] _this: &RankValue,
        dst: Value<'v>,
        src: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let ((to, room), (from, len)) = (memory("dst", dst)?, memory("src", src)?);
        if let (Some(room), Some(len)) = (room, len)
            && room < len
        {
            return Err(wrong(
                format!("a copy of {len} bytes into {room}"),
                "a copy takes all of `src`: cut it, src[0:n]",
            ));
        }
        let stream = self::stream(eval, stream)?;
        record(eval, Op::Memory(MemoryOp::Copy { to, from, stream }))?;
        Ok(NoneType)
    }

    fn expect<'v>(
        #[starlark(this)] _this: &RankValue,
        buffer: Value<'v>,
        kernel: &str,
        rank: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (buffer, _) = memory("buffer", buffer)?;
        let by = known_rank(eval, "rank", rank)?;
        let (kernel, stream) = (token(eval, kernel)?, self::stream(eval, stream)?);
        record(eval, Op::Memory(MemoryOp::Expect { buffer, kernel, by, stream }))?;
        Ok(NoneType)
    }
}

#[starlark_module]
fn together(builder: &mut MethodsBuilder) {
    fn comm<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        ranks: Value<'v>,
        #[starlark(default = false)] split_share: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if ranks.is_none() {
            return Err(expected("ranks", "a list of rank numbers", ranks));
        }
        let (name, members) = (token(eval, name)?, members(eval, Some(ranks))?);
        let children = if split_share { Resources::Shared } else { Resources::Own };
        let verb = Op::Comm(CommOp::Init { name, members, children });
        Ok(Noun::Comm(record_slot(eval, verb)?).alloc(eval.heap()))
    }

    fn barrier<'v>(
        #[starlark(this)] _this: &RankValue,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let members = members(eval, ranks)?;
        record(eval, Op::Barrier(BarrierOp::Enter { members }))?;
        Ok(NoneType)
    }

    fn all_agree<'v>(
        #[starlark(this)] _this: &RankValue,
        ok: Value<'v>,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (members, value) = (members(eval, ranks)?, operand(eval, ok)?);
        Ok(Noun::Truth(record_slot(eval, Op::Barrier(BarrierOp::AllAgree { members, value }))?)
            .alloc(eval.heap()))
    }

    fn exchange<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        buffer: Value<'v>,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Vec<Value<'v>>> {
        let (name, members) = (token(eval, name)?, members(eval, ranks)?);
        let (buffer, _) = memory("buffer", buffer)?;
        let count = members.len();
        let first = record(eval, Op::Exchange(ExchangeOp { members, name, buffer }))?;
        Ok(mappings(eval, first.expect("an exchange has members"), count))
    }

    fn group<'v>(
        #[starlark(this)] _this: &RankValue,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        record(eval, Op::Group(GroupOp::Start))?;
        let value = call(eval, body, &[])?;
        record(eval, Op::Group(GroupOp::End))?;
        Ok(value)
    }

    fn group_start<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        record(eval, Op::Group(GroupOp::Start))?;
        Ok(NoneType)
    }

    fn group_end<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        record(eval, Op::Group(GroupOp::End))?;
        Ok(NoneType)
    }
}

fn is_null<'v>(eval: &mut Evaluator<'v, '_, '_>, x: Value<'v>) -> starlark::Result<bool> {
    let x = operand(eval, x)?;
    if x == Operand::Null { Ok(true) } else { ask_bool(eval, Question::Failed(x)) }
}

#[starlark_module]
fn questions(builder: &mut MethodsBuilder) {
    fn choose<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        options: UnpackList<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if options.items.is_empty() {
            return Err(wrong("nothing to choose from", "give at least one option"));
        }
        let mut tokens = Vec::new();
        for option in &options.items {
            let known = option.unpack_str().map(str::to_owned).or_else(|| {
                let number = matches!(option.get_type(), "int" | "bool");
                number.then(|| option.to_repr())
            });
            let known =
                known.ok_or_else(|| expected("options", "a list of ints, strings or bools", *option))?;
            tokens.push(token(eval, &known)?);
        }
        let name = token(eval, name)?;
        let (answer, _) = ask(eval, Question::Choose { name, options: tokens.into() })?;
        options.items.get(answer as usize).copied().ok_or_else(|| {
            wrong(
                format!("the answer {answer} is none of the options"),
                "the answers do not fit this program",
            )
        })
    }

    fn may<'v>(
        #[starlark(this)] _this: &RankValue,
        assumption: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let evaluation = Evaluation::of(eval)?;
        evaluation.recorder.names.mention(assumption);
        if evaluation.assumed.iter().any(|assumed| assumed == assumption) {
            return Ok(false);
        }
        let options = [evaluation.token("no"), evaluation.token("yes")].into();
        ask_bool(eval, Question::Choose { name: token(eval, assumption)?, options })
    }

    fn failed<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        is_null(eval, x)
    }

    fn require<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if is_null(eval, x)? {
            return Err(raise(eval, &format!("required {} is null", x.get_type()))?);
        }
        Ok(x)
    }

    fn equal<'v>(
        #[starlark(this)] _this: &RankValue,
        a: Value<'v>,
        b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let (a, b) = (operand(eval, a)?, operand(eval, b)?);
        ask_bool(eval, Question::Equal(a, b))
    }

    fn truth<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let x = operand(eval, x)?;
        if let Operand::Bool(known) = x { Ok(known) } else { ask_bool(eval, Question::Truth(x)) }
    }

    fn number<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<i64> {
        let x = operand(eval, x)?;
        if let Operand::Int(known) = x {
            return Ok(known);
        }
        ask(eval, Question::Number(x)).map(|(answer, _)| answer.into())
    }

    fn grew<'v>(
        #[starlark(this)] _this: &RankValue,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let (buffer, _) = memory("buffer", buffer)?;
        ask_bool(eval, Question::Grew(buffer))
    }
}

#[starlark_module]
fn control(builder: &mut MethodsBuilder) {
    fn exit<'v>(
        #[starlark(this)] _this: &RankValue,
        message: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let code = token(eval, message)?;
        record(eval, Op::Thread(ThreadOp::Exit { code }))?;
        Err(crate::spec::evaluation::stopped(Evaluation::of(eval)?.recorder.end()))
    }

    fn raises<'v>(
        #[starlark(this)] _this: &RankValue,
        message: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        Err(raise(eval, message)?)
    }

    fn context<'v>(
        #[starlark(this)] _this: &RankValue,
        enter: Value<'v>,
        leave: Value<'v>,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        call(eval, enter, &[])?;
        finally(eval, |eval| call(eval, body, &[]), |eval| call(eval, leave, &[]).map(|_| ()))
    }

    fn attempt<'v>(
        #[starlark(this)] _this: &RankValue,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        match call(eval, body, &[]) {
            Ok(_) => Ok(Value::new_none()),
            Err(error) => match Evaluation::of(eval)?.recorder.take_raise() {
                Some((message, _)) => Ok(eval.heap().alloc(message)),
                None => Err(error),
            },
        }
    }

    fn thread<'v>(
        #[starlark(this)] _this: &RankValue,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] f: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
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
        let evaluation = Evaluation::of(eval)?;
        let start = Start {
            parent: evaluation.recorder.entry,
            slot: evaluation.recorder.next_slot(),
            name: name.to_owned(),
            function,
            args,
        };
        let entry = evaluation.entries.entry(start);
        Ok(Noun::Thread(record_slot(eval, Op::Thread(ThreadOp::Spawn { entry }))?).alloc(eval.heap()))
    }
}
