//! Flags: words that all ranks see, worked on by host threads and by streams.
//!
//! Not here: the store, which holds more than words.

use rankcheck_model::{FlagAct, FlagOp, Op, Test, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::wrong;
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::handle::Handle;
use crate::spec::noun::stream::Stream;
use crate::spec::rank::RankValue;

/// A flag that all ranks see, by name: a word of 32 bits. Its verbs are done by the host thread where no stream is
/// given.
#[derive(Debug, Clone, Copy)]
pub struct Flag(pub(crate) Token);

impl Builder {
    /// The flag of this name.
    pub fn flag(&self, name: &str) -> Flag {
        Flag(self.token(name))
    }
}

impl Flag {
    /// Writes a value to the flag, from the host or in the order of a stream.
    #[track_caller]
    pub fn write(&self, r: &Builder, value: u32, stream: Option<&Stream>) -> Flow {
        self.act(r, FlagAct::Write(value.into()), stream)
    }

    /// Waits until it has this value.
    #[track_caller]
    pub fn wait(&self, r: &Builder, value: u32, stream: Option<&Stream>) -> Flow {
        self.act(r, FlagAct::Wait(Test::Equal, value.into()), stream)
    }

    /// Waits until it has this value or a larger one.
    #[track_caller]
    pub fn wait_at_least(&self, r: &Builder, value: u32, stream: Option<&Stream>) -> Flow {
        let test = if stream.is_some() { Test::AtLeastAround } else { Test::AtLeast };
        self.act(r, FlagAct::Wait(test, value.into()), stream)
    }

    /// Waits until it has the old value, and writes the new one in the same step.
    #[track_caller]
    pub fn swap(&self, r: &Builder, old: u32, new: u32, stream: Option<&Stream>) -> Flow {
        self.act(r, FlagAct::Swap { from: old.into(), to: new.into() }, stream)
    }

    #[track_caller]
    fn act(&self, r: &Builder, act: FlagAct, stream: Option<&Stream>) -> Flow {
        r.add(Op::Flag(FlagOp { flag: self.0, act, stream: stream.map(|stream| stream.0) }))
    }
}

fn flag(this: Value<'_>) -> starlark::Result<Flag> {
    match Handle::of(this) {
        Some(Handle::Flag(name)) => Ok(Flag(*name)),
        _ => Err(expected("this", "a flag", this)),
    }
}

/// Flags are words of 32 bits, so that streams can work on them.
fn word(value: i64) -> starlark::Result<u32> {
    u32::try_from(value).map_err(|_| {
        wrong(
            format!("a flag cannot hold {value}"),
            format!("a flag is a word of 32 bits: give a number from 0 to {}", u32::MAX),
        )
    })
}

#[starlark_module]
pub(crate) fn flag_of_rank(methods: &mut MethodsBuilder) {
    fn flag<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Flag> {
        Ok(Evaluation::of(eval)?.builder.flag(name))
    }
}

#[starlark_module]
pub(crate) fn flag_methods(methods: &mut MethodsBuilder) {
    fn write<'v>(
        this: Value<'v>,
        value: i64,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (value, stream) = (word(value)?, argument::stream(stream)?);
        flag(this)?.write(builder(eval)?, value, stream.as_ref())?;
        Ok(NoneType)
    }

    fn wait<'v>(
        this: Value<'v>,
        value: Option<i64>,
        at_least: Option<i64>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (flag, stream) = (flag(this)?, argument::stream(stream)?);
        match (value, at_least) {
            (Some(value), None) => {
                let value = word(value)?;
                flag.wait(builder(eval)?, value, stream.as_ref())?;
            }
            (None, Some(value)) => {
                let value = word(value)?;
                flag.wait_at_least(builder(eval)?, value, stream.as_ref())?;
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(wrong(
                    "a flag is awaited for one value",
                    "write f.wait(1) for that value, f.wait(at_least = 1) for it or more",
                ));
            }
        }
        Ok(NoneType)
    }

    fn swap<'v>(
        this: Value<'v>,
        old: i64,
        new: i64,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (old, new, stream) = (word(old)?, word(new)?, argument::stream(stream)?);
        flag(this)?.swap(builder(eval)?, old, new, stream.as_ref())?;
        Ok(NoneType)
    }
}
