//! Windows of a program on the device.
//!
//! Not here: which registrations of the ranks belong together, and registrations that a group makes at its end
//! ([`super::group`]).

use std::sync::Arc;

use rankcheck_model::host::value::{Buffer, CommId, Value};
use rankcheck_model::{Operand, WindowFlags, WindowOp};

use super::dispatch::{Execute, Produced};
use super::group::Grouped;
use super::inspect::WaitsFor;
use super::tables::WindowRow;
use super::thread::{Halt, ProgramThread};
use super::value::{OnDevice, range};
use crate::ffi::DeviceRange;
use crate::window::NcclWindow;

/// What the model has a deregistration of what is no window return.
const UNKNOWN_WINDOW: i32 = 3;

impl Execute for WindowOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Register { comm, memory, flags } => {
                thread.register(text, comm, memory, *flags).map(|window| vec![window])
            }
            Self::Deregister { comm, window } => thread.deregister(text, comm, window).map(|()| Vec::new()),
        }
    }
}

impl ProgramThread<'_, '_> {
    fn register(
        &mut self,
        text: &str,
        comm: &Operand,
        memory: &Operand,
        flags: WindowFlags,
    ) -> Result<Value<OnDevice>, Halt> {
        let Some((at, name, comm)) = self.usable(comm) else {
            return self.impossible("register".to_owned()).map(|_| Value::Null);
        };
        let call = format!("{name}.register");
        if self.fails() {
            self.failed(call, 1, None);
            return Ok(Value::Null);
        }
        let buffer = self.value(memory).buffer().map(Arc::clone);
        let memory = buffer.as_deref().map_or(DeviceRange::NULL, range);
        if self.group.depth > 0 {
            let later = self.inside(text, WaitsFor::Hosts, |thread| {
                thread.unrelaxed(|| NcclWindow::register_later(&comm, &memory, flags))
            });
            if let Some(pending) = self.noted(&call, later)? {
                let slot = self.run.tables().threads[self.number as usize].slots.len();
                self.group.registrations.push(Grouped { slot, comm: at, buffer, pending });
            }
            return Ok(Value::Null);
        }
        self.end_turn()?;
        let window = self.inside(text, WaitsFor::Hosts, |thread| {
            thread.unrelaxed(|| NcclWindow::register(&comm, &memory, flags))
        });
        let window = self.noted(&call, window)?.flatten();
        Ok(window.map_or(Value::Null, |window| self.registered(at, window, buffer)))
    }

    /// Notes a window that NCCL made.
    pub(crate) fn registered(
        &self,
        comm: CommId,
        window: NcclWindow,
        buffer: Option<Arc<Buffer<OnDevice>>>,
    ) -> Value<OnDevice> {
        let mut tables = self.run.tables();
        let windows = &mut tables.comm_mut(comm).windows;
        windows.push(WindowRow { window, buffer, live: true });
        Value::Window(comm, u32::try_from(windows.len() - 1).expect("few windows"))
    }

    fn deregister(&mut self, text: &str, comm: &Operand, window: &Operand) -> Result<(), Halt> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        let call = format!("{name}.deregister");
        let value = self.value(window);
        let named = if let Value::Window(of, nth) = value { Some((of, nth as usize)) } else { None };
        if named.is_none() && value != Value::Null {
            self.failed(call, UNKNOWN_WINDOW, None);
            return Ok(());
        }
        let window = named.map(|(of, nth)| self.run.tables().comm(of).windows[nth].window);
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            thread.unrelaxed(|| NcclWindow::deregister(&comm, window))
        });
        let done = self.noted(&call, result)?;
        if let (Some(()), Some((of, nth))) = (done, named)
            && of == at
        {
            self.run.tables().comm_mut(of).windows[nth].live = false;
        }
        Ok(())
    }
}
