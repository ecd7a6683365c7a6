//! Mutexes of a rank.
//!
//! Not here: the lock of a pool, which its hooks run under (`pool.rs`).

use rankcheck_model::{MutexOp, Op, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::expected;
use crate::spec::builder::{Builder, Flow, Stop};
use crate::spec::evaluation::{Evaluation, builder, call};
use crate::spec::handle::Handle;
use crate::spec::rank::RankValue;

/// A mutex of a rank, by name.
#[derive(Debug, Clone, Copy)]
pub struct Mutex(pub(crate) Token);

impl Builder {
    /// The mutex of this name.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex(self.token(name))
    }
}

impl Mutex {
    /// Locks the mutex, and waits until it is free.
    #[track_caller]
    pub fn lock(&self, r: &Builder) -> Flow {
        r.add(Op::Mutex(MutexOp::Lock { mutex: self.0 }))
    }

    /// Unlocks the mutex. Unlocking one that the thread does not hold breaks a rule.
    #[track_caller]
    pub fn unlock(&self, r: &Builder) -> Flow {
        r.add(Op::Mutex(MutexOp::Unlock { mutex: self.0 }))
    }

    /// Runs a body under it; unlocks also while an exception unwinds.
    #[track_caller]
    pub fn locked<T>(&self, r: &Builder, body: impl FnOnce() -> Flow<T>) -> Flow<T> {
        self.under(r, body)
    }

    #[track_caller]
    fn under<T, E: From<Stop>>(&self, r: &Builder, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let loc = r.loc();
        self.lock(r)?;
        r.finally(body, || Ok(r.add_at(Op::Mutex(MutexOp::Unlock { mutex: self.0 }), loc).map(|_| ())?))
    }
}

fn mutex(this: Value<'_>) -> starlark::Result<Mutex> {
    match Handle::of(this) {
        Some(Handle::Mutex(name)) => Ok(Mutex(*name)),
        _ => Err(expected("this", "a mutex", this)),
    }
}

#[starlark_module]
pub(crate) fn mutex_of_rank(methods: &mut MethodsBuilder) {
    fn mutex<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Mutex> {
        Ok(Evaluation::of(eval)?.builder.mutex(name))
    }
}

#[starlark_module]
pub(crate) fn mutex_methods(methods: &mut MethodsBuilder) {
    fn lock<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        mutex(this)?.lock(builder(eval)?)?;
        Ok(NoneType)
    }

    fn unlock<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        mutex(this)?.unlock(builder(eval)?)?;
        Ok(NoneType)
    }

    fn locked<'v>(
        this: Value<'v>,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        mutex(this)?.under(builder(eval)?, || call(eval, body, &[]))
    }
}
