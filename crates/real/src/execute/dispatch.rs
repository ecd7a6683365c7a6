//! One dispatch of operations to the files of their nouns.
//!
//! Not here: what the operations do, and questions ([`super::question`]).

use rankcheck_model::Op;
use rankcheck_model::host::value::Value;

use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;

/// The values that an operation produces, one for each of its slots, or why its thread goes no further.
pub(crate) type Produced = Result<Vec<Value<OnDevice>>, Halt>;

/// What an operation of a noun does on the device.
pub(crate) trait Execute {
    /// Runs the operation on its thread. `text` is the operation in words, as others see the thread inside of it.
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced;
}

impl ProgramThread<'_, '_> {
    pub(super) fn operation(&mut self, op: &Op) -> Produced {
        let text = self.text(op);
        let op: &dyn Execute = match op {
            Op::Thread(op) => op,
            Op::Comm(op) => op,
            Op::Window(op) => op,
            Op::Group(op) => op,
            Op::Collective(op) => &**op,
            Op::Transfer(op) => &**op,
            Op::Overlap(op) => op,
            Op::Stream(op) => op,
            Op::Event(op) => op,
            Op::Graph(op) => op,
            Op::Memory(op) => op,
            Op::Pool(op) => op,
            Op::Ipc(op) => op,
            Op::Exchange(op) => op,
            Op::Barrier(op) => op,
            Op::Mutex(op) => op,
            Op::Store(op) => op,
            Op::Flag(op) => op,
            Op::Map(op) => op,
            Op::List(op) => op,
        };
        op.execute(self, &text)
    }
}
