//! Communicators of a program on the device.
//!
//! Not here: windows ([`super::window`]), groups ([`super::group`]), and whether what the ranks do fits together.

use std::sync::Arc;

use rankcheck_model::host::value::{CommId, Value};
use rankcheck_model::{CommOp, Operand, Rank, Resources, Token};

use super::device::locked;
use super::dispatch::{Execute, Produced};
use super::group::INVALID_ARGUMENT;
use super::inspect::WaitsFor;
use super::tables::{CommLifetime, CommRow};
use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;
use crate::Error;
use crate::case::{CommHistory, CommTicket};
use crate::comm::{Color, NcclComm};
use crate::ffi::nccl::NcclUniqueId;

impl Execute for CommOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Init { name, members, children } => {
                thread.comm_init(text, *name, members, *children).map(|comm| vec![comm])
            }
            Self::Split { comm, name, color } => {
                thread.comm_split(text, comm, *name, *color).map(|child| vec![child])
            }
            Self::Finalize { comm } => thread.comm_finalize(text, comm).map(|()| Vec::new()),
            Self::Destroy { comm } => thread.comm_destroy(text, comm).map(|()| Vec::new()),
        }
    }
}

impl ProgramThread<'_, '_> {
    fn comm_init(
        &mut self,
        text: &str,
        name: Token,
        members: &Arc<[Rank]>,
        children: Resources,
    ) -> Result<Value<OnDevice>, Halt> {
        let Some(position) = members.iter().position(|member| *member == self.run.rank) else {
            return Ok(Value::Null);
        };
        let nth = {
            let mut tables = self.run.tables();
            let count = tables.inits.entry(name).or_default();
            *count += 1;
            *count - 1
        };
        let name = self.run.source.token(name);
        let call = format!("{name}.init");
        if self.fails() {
            self.failed(call, 1, None);
            return Ok(Value::Null);
        }
        self.end_turn()?;
        let made = self.inside(text, WaitsFor::Hosts, |thread| {
            let ticket = thread.run.host.init(&name, nth, members, children)?;
            thread.communicator(&ticket, position)
        });
        let Some((comm, lifetime)) = self.noted(&call, made)? else { return Ok(Value::Null) };
        Ok(self.entered(name, comm, lifetime))
    }

    /// The communicator of a ticket: kept from an earlier case, or made now.
    fn communicator(
        &self,
        ticket: &CommTicket,
        position: usize,
    ) -> Result<(Arc<NcclComm>, CommLifetime), Error> {
        let run = self.run;
        if ticket.comms == CommHistory::Warm {
            let kept = locked(&run.shared.kept).get(&ticket.id).cloned();
            let what =
                || format!("communicator {} was promised from an earlier case, but is not here", ticket.id);
            return kept
                .map(|comm| (comm, CommLifetime::Process))
                .ok_or_else(|| Error::Malformed { what: what() });
        }
        let own =
            if position == 0 { Some(NcclUniqueId::create(&run.shared.libraries)?.bytes()) } else { None };
        let bytes = run.host.unique_id(ticket, own)?;
        let what = || format!("a unique id has {} bytes", bytes.len());
        let id = NcclUniqueId::from_bytes(&bytes).ok_or_else(|| Error::Malformed { what: what() })?;
        let member = u32::try_from(position).expect("few members");
        let size = u32::try_from(ticket.members.len()).expect("few members");
        let comm = NcclComm::init_rank(&self.device, &id, member, size, ticket.children)?;
        if run.case.comms == CommHistory::Fresh {
            return Ok((Arc::new(comm), CommLifetime::Case));
        }
        if let Err(error) = comm.warm_up(&run.shared.libraries, &self.device, &run.shared.aside) {
            comm.abort()?;
            return Err(error);
        }
        let comm = Arc::new(comm);
        locked(&run.shared.kept).insert(ticket.id, Arc::clone(&comm));
        Ok((comm, CommLifetime::Process))
    }

    fn entered(&self, name: Arc<str>, comm: Arc<NcclComm>, lifetime: CommLifetime) -> Value<OnDevice> {
        let mut tables = self.run.tables();
        let (address, comm) = (comm.address(), Some(comm));
        tables.comms.push(CommRow { name, address, comm, lifetime, destroyed: false, windows: Vec::new() });
        Value::Comm(CommId(tables.comms.len() as u64 - 1))
    }

    /// The communicator of an operand, with its number and name, if this rank may use it.
    pub(crate) fn usable(&self, comm: &Operand) -> Option<(CommId, Arc<str>, Arc<NcclComm>)> {
        let tables = self.run.tables();
        let at = tables.comm_of(&*self.run.source, comm)?;
        let row = tables.comm(at);
        if row.destroyed {
            return None;
        }
        Some((at, Arc::clone(&row.name), Arc::clone(row.comm.as_ref()?)))
    }

    fn comm_split(
        &mut self,
        text: &str,
        comm: &Operand,
        name: Token,
        color: Option<i64>,
    ) -> Result<Value<OnDevice>, Halt> {
        let Some((_, parent, comm)) = self.usable(comm) else {
            self.failed("split".to_owned(), INVALID_ARGUMENT, None);
            return Ok(Value::Null);
        };
        self.end_turn()?;
        // What is no C int is no color either; NCCL refuses negative ones.
        let color = color.map_or(Color::Nothing, |color| Color::Of(i32::try_from(color).unwrap_or(-2)));
        let child = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.split(color)));
        let Some(Some(child)) = self.noted(&format!("{parent}.split"), child)? else {
            return Ok(Value::Null);
        };
        Ok(self.entered(self.run.source.token(name), Arc::new(child), CommLifetime::Case))
    }

    /// Communicators that are kept between cases are only struck from the tables of this one.
    fn comm_finalize(&mut self, text: &str, comm: &Operand) -> Result<(), Halt> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        drop(self.wait_inside(text, |tables| !tables.captured(at))?);
        // A communicator that is kept between cases serves again, so it is only waited for.
        if self.run.tables().comm(at).lifetime == CommLifetime::Process {
            return self.drain(text);
        }
        let result = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.finalize()));
        self.noted(&format!("{name}.finalize"), result).map(drop)
    }

    fn comm_destroy(&mut self, text: &str, comm: &Operand) -> Result<(), Halt> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        // NCCL waits for the graphs that captured a communicator; one that is kept between cases is not
        // destroyed, so the wait is made here.
        if self.run.tables().comm(at).lifetime == CommLifetime::Process {
            drop(self.wait_inside(text, |tables| !tables.captured(at))?);
        }
        let owned = {
            let mut tables = self.run.tables();
            let row = tables.comm_mut(at);
            row.destroyed = true;
            drop(comm);
            if row.lifetime == CommLifetime::Case { row.comm.take() } else { None }
        };
        // Another thread that is inside a call of the communicator keeps it; then it ends with the case.
        let Some(owned) = owned else { return Ok(()) };
        match Arc::try_unwrap(owned) {
            Ok(comm) => {
                let result = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.end()));
                self.noted(&format!("{name}.destroy"), result).map(drop)
            }
            Err(shared) => {
                self.run.tables().comm_mut(at).comm = Some(shared);
                Ok(())
            }
        }
    }
}
