//! Threads, streams, events, mutexes, the store and flags.
//!
//! Not here: maps and lists (`container.rs`), barriers (`rank.rs`).

use rankcheck_model::{
    EventOp, FlagAct, FlagOp, MutexOp, Op, Operand, Question, StoreOp, StreamOp, Test, ThreadOp, Token,
};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::error::wrong;
use crate::spec::evaluation::{
    Evaluation, ask_bool, call, expected, finally, operand, record, record_slot, stream,
};
use crate::spec::noun::Noun;

fn named(this: Value<'_>) -> starlark::Result<Token> {
    match Noun::of(this) {
        Some(Noun::Stream(name) | Noun::Event(name) | Noun::Mutex(name) | Noun::Flag(name)) => Ok(*name),
        _ => Err(expected("this", "a named object", this)),
    }
}

fn event(value: Value<'_>) -> starlark::Result<Token> {
    match Noun::of(value) {
        Some(Noun::Event(name)) => Ok(*name),
        _ => Err(expected("event", "an event", value)),
    }
}

#[starlark_module]
pub(crate) fn thread_methods(builder: &mut MethodsBuilder) {
    fn join<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let thread = match Noun::of(this) {
            Some(Noun::Thread(of) | Noun::Slot(of)) => of.clone(),
            _ => return Err(expected("thread", "a thread", this)),
        };
        record(eval, Op::Thread(ThreadOp::Join { thread }))?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn stream_methods(builder: &mut MethodsBuilder) {
    fn wait<'v>(
        this: Value<'v>,
        event: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        record(eval, Op::Stream(StreamOp::Wait { stream: named(this)?, event: self::event(event)? }))?;
        Ok(NoneType)
    }

    fn synchronize<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(named(this)?) }))?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn event_methods(builder: &mut MethodsBuilder) {
    fn record<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let stream = self::stream(eval, stream)?;
        self::record(eval, Op::Event(EventOp { event: named(this)?, stream }))?;
        Ok(NoneType)
    }

    fn synchronize<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        self::record(eval, Op::Stream(StreamOp::Synchronize { what: Operand::Event(named(this)?) }))?;
        Ok(NoneType)
    }

    fn query<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<bool> {
        ask_bool(eval, Question::EventQuery { event: named(this)? })
    }
}

#[starlark_module]
pub(crate) fn mutex_methods(builder: &mut MethodsBuilder) {
    fn lock<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Mutex(MutexOp::Lock { mutex: named(this)? }))?;
        Ok(NoneType)
    }

    fn unlock<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Mutex(MutexOp::Unlock { mutex: named(this)? }))?;
        Ok(NoneType)
    }

    fn locked<'v>(
        this: Value<'v>,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mutex = named(this)?;
        record(eval, Op::Mutex(MutexOp::Lock { mutex }))?;
        finally(
            eval,
            |eval| call(eval, body, &[]),
            |eval| record(eval, Op::Mutex(MutexOp::Unlock { mutex })).map(|_| ()),
        )
    }
}

#[starlark_module]
pub(crate) fn store_methods(builder: &mut MethodsBuilder) {
    fn set<'v>(
        this: Value<'v>,
        key: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let _ = this;
        let (key, value) = (Evaluation::of(eval)?.token(key), operand(eval, value)?);
        record(eval, Op::Store(StoreOp::Set { key, value }))?;
        Ok(NoneType)
    }

    fn get<'v>(this: Value<'v>, key: &str, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>> {
        let _ = this;
        let key = Evaluation::of(eval)?.token(key);
        Ok(Noun::Slot(record_slot(eval, Op::Store(StoreOp::Get { key }))?).alloc(eval.heap()))
    }

    fn delete<'v>(
        this: Value<'v>,
        key: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let _ = this;
        let key = Evaluation::of(eval)?.token(key);
        record(eval, Op::Store(StoreOp::Delete { key }))?;
        Ok(NoneType)
    }
}

/// Flags are words of 32 bits, so that streams can work on them.
fn word(value: i64) -> starlark::Result<i64> {
    match u32::try_from(value) {
        Ok(_) => Ok(value),
        Err(_) => Err(wrong(
            format!("a flag cannot hold {value}"),
            format!("a flag is a word of 32 bits: give a number from 0 to {}", u32::MAX),
        )),
    }
}

/// On the host thread where no stream is given.
fn act<'v>(
    eval: &Evaluator<'v, '_, '_>,
    flag: Value<'v>,
    act: FlagAct,
    stream: Option<Value<'v>>,
) -> starlark::Result<NoneType> {
    let stream = match stream {
        Some(stream) if !stream.is_none() => Some(self::stream(eval, Some(stream))?),
        _ => None,
    };
    record(eval, Op::Flag(FlagOp { flag: named(flag)?, act, stream }))?;
    Ok(NoneType)
}

#[starlark_module]
pub(crate) fn flag_methods(builder: &mut MethodsBuilder) {
    fn write<'v>(
        this: Value<'v>,
        value: i64,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        act(eval, this, FlagAct::Write(word(value)?), stream)
    }

    fn wait<'v>(
        this: Value<'v>,
        value: Option<i64>,
        at_least: Option<i64>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let waits = match (value, at_least) {
            (Some(value), None) => FlagAct::Wait(Test::Equal, word(value)?),
            (None, Some(value)) => FlagAct::Wait(Test::AtLeast, word(value)?),
            (None, None) | (Some(_), Some(_)) => {
                return Err(wrong(
                    "a flag is awaited for one value",
                    "write f.wait(1) for that value, f.wait(at_least = 1) for it or more",
                ));
            }
        };
        act(eval, this, waits, stream)
    }

    fn swap<'v>(
        this: Value<'v>,
        old: i64,
        new: i64,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        act(eval, this, FlagAct::Swap { from: word(old)?, to: word(new)? }, stream)
    }
}
