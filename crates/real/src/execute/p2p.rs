//! Point-to-point of a program on the device.
//!
//! Not here: whether the halves of a transfer fit together.

use rankcheck_model::host::value::Value;
use rankcheck_model::{Direction, Transfer};

use super::dispatch::{Execute, Produced};
use super::group::LaunchOf;
use super::inspect::WaitsFor;
use super::thread::ProgramThread;
use super::value::range;
use crate::collective::{self, Elements};

impl Execute for Transfer {
    /// The first use of a link blocks the host until the peer comes.
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Some((number, name, comm)) = thread.usable(&self.comm) else {
            return thread.impossible(self.direction.name().to_owned());
        };
        let call = format!("{name}.{}", self.direction.name());
        let Value::Buffer(buffer) = thread.value(&self.buffer) else { return thread.impossible(call) };
        let (at, stream) = thread.stream(self.stream)?;
        let elements = Elements { count: self.count, dtype: self.dtype };
        thread.end_turn()?;
        let result = thread.inside(text, WaitsFor::Hosts, |_| match self.direction {
            Direction::Send => collective::send(&comm, &range(&buffer), elements, self.peer, &stream),
            Direction::Recv => collective::receive(&comm, &range(&buffer), elements, self.peer, &stream),
        });
        if thread.noted(&call, result)?.is_some() {
            thread.launched_by_nccl(at, LaunchOf::Transfer(number))?;
        }
        Ok(Vec::new())
    }
}
