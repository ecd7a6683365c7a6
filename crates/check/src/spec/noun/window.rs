//! Windows: memory that is registered with a communicator.
//!
//! Not here: when a window must be registered, which the program knows.

use rankcheck_model::{Op, Operand, Question, WindowFlags, WindowOp};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected, word};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::builder;
use crate::spec::handle::Handle;
use crate::spec::noun::comm::Comm;
use crate::spec::noun::memory::Buffer;

/// A window; null if the registration failed.
#[derive(Debug, Clone)]
pub struct Window(pub(crate) Operand);

impl Comm {
    /// `ncclCommWindowRegister` with the symmetric flag.
    #[track_caller]
    pub fn register(&self, r: &Builder, memory: impl Into<Buffer>) -> Flow<Window> {
        self.register_with(r, memory, WindowFlags::CollSymmetric)
    }

    /// `ncclCommWindowRegister` with these flags.
    #[track_caller]
    pub fn register_with(&self, r: &Builder, memory: impl Into<Buffer>, flags: WindowFlags) -> Flow<Window> {
        let (comm, memory) = (self.0.clone(), memory.into().of);
        r.add_result(Op::Window(WindowOp::Register { comm, memory, flags })).map(Window)
    }

    /// `ncclCommWindowDeregister`, of a window that this communicator registered.
    #[track_caller]
    pub fn deregister(&self, r: &Builder, window: &Window) -> Flow {
        r.add(Op::Window(WindowOp::Deregister { comm: self.0.clone(), window: window.0.clone() }))
    }

    /// Asks whether a window of this communicator holds the start of the buffer.
    #[track_caller]
    pub fn has_window(&self, r: &Builder, buffer: impl Into<Buffer>) -> Flow<bool> {
        r.ask_whether(Question::HasWindow { comm: self.0.clone(), buffer: buffer.into().of })
    }
}

#[starlark_module]
pub(crate) fn window_methods(methods: &mut MethodsBuilder) {
    fn register<'v>(
        this: Value<'v>,
        memory: Value<'v>,
        #[starlark(default = "symmetric")] flags: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Window> {
        let memory = if memory.is_none() { Buffer::null() } else { argument::memory("memory", memory)? };
        let known = [("symmetric", WindowFlags::CollSymmetric), ("default", WindowFlags::Default)];
        let (comm, flags) = (argument::comm(this)?, word("flags", flags, &known)?);
        Ok(comm.register_with(builder(eval)?, memory, flags)?)
    }

    fn deregister<'v>(
        this: Value<'v>,
        window: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let window = match Handle::of(window) {
            Some(Handle::Window(of) | Handle::Slot(of)) => Window(of.clone()),
            _ => return Err(expected("window", "a window", window)),
        };
        argument::comm(this)?.deregister(builder(eval)?, &window)?;
        Ok(NoneType)
    }

    fn has_window<'v>(
        this: Value<'v>,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let buffer = argument::memory("buffer", buffer)?;
        Ok(argument::comm(this)?.has_window(builder(eval)?, buffer)?)
    }
}
