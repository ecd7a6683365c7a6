//! Point-to-point of a program on the device.
//!
//! Not here: whether the halves of a transfer fit together.

use rankcheck_model::{Op, Transfer, Way};

use super::inspect::WaitsFor;
use super::thread::{Stop, Thread};
use super::value::Value;
use crate::collective::{self, Elements};

impl Thread<'_, '_> {
    /// The first use of a link blocks the host until the peer comes.
    pub(crate) fn transfer(&mut self, verb: &Op, call: &Transfer) -> Result<(), Stop> {
        let Some((_, name, comm)) = self.usable(&call.comm) else {
            return self.impossible(call.way.name().to_owned());
        };
        let words = self.words(verb);
        let called = format!("{name}.{}", call.way.name());
        let Value::Buffer(buffer) = self.value(&call.buffer) else {
            return self.impossible(called);
        };
        let (at, stream) = self.stream(call.stream)?;
        let elements = Elements { count: call.count, dtype: call.dtype };
        self.end_turn()?;
        let result = self.inside(&words, WaitsFor::Hosts, |_| match call.way {
            Way::Send => collective::send(&comm, &buffer.range(), elements, call.peer, &stream),
            Way::Recv => collective::receive(&comm, &buffer.range(), elements, call.peer, &stream),
        });
        if self.noted(&called, result)?.is_none() {
            return Ok(());
        }
        let index = self.at().index;
        if self.group.depth > 0 {
            self.group.launches.push((at, index));
            return Ok(());
        }
        self.launched(at, index)
    }
}
