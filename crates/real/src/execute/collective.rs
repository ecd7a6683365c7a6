//! Collectives of a program on the device.
//!
//! Not here: which call of NCCL a kind is ([`crate::collective`]), and whether the members' calls fit together.

use rankcheck_model::host::value::Value;
use rankcheck_model::{Collective, Counting};

use super::dispatch::{Execute, Produced};
use super::group::LaunchOf;
use super::inspect::WaitsFor;
use super::thread::ProgramThread;
use super::value::{OnDevice, range};
use crate::collective::{self, Buffers, Elements};
use crate::ffi::DeviceRange;

impl Execute for Collective {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Some((number, name, comm)) = thread.usable(&self.comm) else {
            return thread.impossible(self.kind.name().to_owned());
        };
        let call = format!("{name}.{}", self.kind.name());
        let counting = self.kind.counting(|root| root == comm.rank);
        let buffer = |value: Value<OnDevice>, ignored: Counting| match value.buffer() {
            Some(buffer) => Some(range(buffer)),
            None => (counting == ignored).then_some(DeviceRange::NULL),
        };
        let send = buffer(thread.value(&self.send), Counting::Recv);
        let recv = buffer(thread.value(&self.recv), Counting::Send);
        let (Some(send), Some(recv)) = (send, recv) else { return thread.impossible(call) };
        let (at, stream) = thread.stream(self.stream)?;
        let buffers = Buffers { send, recv };
        let elements = Elements { count: self.count, dtype: self.dtype };
        thread.end_turn()?;
        let result = thread.inside(text, WaitsFor::Hosts, |thread| {
            let what = (self.kind, self.op);
            thread.unrelaxed(|| collective::collective(&comm, &buffers, elements, what, &stream))
        });
        if thread.noted(&call, result)?.is_some() {
            thread.captured_collective(number, &stream)?;
            thread.launched_by_nccl(at, LaunchOf::Collective(number))?;
        }
        Ok(Vec::new())
    }
}
