//! Communicators of a program on the device.
//!
//! Not here: windows ([`super::window`]), groups ([`super::group`]), and whether what the ranks do fits together.

use std::sync::Arc;

use rankcheck_model::host::value::{CommId, Value};
use rankcheck_model::{CommOp, Operand, Rank, Resources, Token};

use super::device::locked;
use super::dispatch::{Execute, Produced};
use super::group::{GroupedInit, GroupedSplit};
use super::inspect::WaitsFor;
use super::tables::{CommLifetime, CommRow};
use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;
use crate::Error;
use crate::case::{CommHistory, CommTicket};
use crate::comm::{Color, NcclComm, PendingComm};
use crate::ffi::nccl::NcclUniqueId;

/// An init at the end of a group.
pub(crate) struct BegunInit {
    slot: usize,
    name: Arc<str>,
    nth: u32,
    ticket: CommTicket,
    /// None if the communicator was kept from an earlier case.
    pending: Option<PendingComm>,
}

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
            Self::Destroy { comm, parting: _ } => thread.comm_destroy(text, comm).map(|()| Vec::new()),
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
        if self.group.depth > 0 {
            let slot = self.run.tables().threads[self.number as usize].slots.len();
            let members = Arc::clone(members);
            self.group.inits.push(GroupedInit { slot, name, nth, members, children, position });
            return Ok(Value::Null);
        }
        self.end_turn()?;
        let made = self.inside(text, WaitsFor::Hosts, |thread| {
            let ticket = thread.run.host.init(&name, nth, members, children)?;
            if ticket.comms == CommHistory::Warm {
                return thread.kept(&ticket);
            }
            let first = position == 0;
            let own =
                if first { Some(NcclUniqueId::create(&thread.run.shared.libraries)?.bytes()) } else { None };
            let pending = thread.init_rank(&ticket, position, own)?;
            thread.communicator(&ticket, pending)
        });
        let Some((comm, lifetime)) = self.noted(&call, made)? else { return Ok(Value::Null) };
        Ok(self.entered(name, comm, lifetime))
    }

    /// An init of a group, at its end: nobody is waited for before NCCL does.
    pub(crate) fn begin_init(&self, init: GroupedInit) -> Result<BegunInit, Error> {
        let GroupedInit { slot, name, nth, members, children, position } = init;
        let ticket = self.run.host.announce(&name, nth, &members, children)?;
        let pending = match ticket.comms {
            CommHistory::Warm => None,
            CommHistory::Fresh => {
                let own = NcclUniqueId::create(&self.run.shared.libraries)?.bytes();
                Some(self.init_rank(&ticket, position, Some(own))?)
            }
        };
        Ok(BegunInit { slot, name, nth, ticket, pending })
    }

    /// NCCL has made some communicators in an earlier case, and does not wait for the others now: all at once, as it would.
    pub(crate) fn meet_for_kept(&self, inits: &[BegunInit]) -> Result<(), Error> {
        let host = &self.run.host;
        std::thread::scope(|scope| {
            let kept = inits.iter().filter(|init| init.pending.is_none());
            let met = kept.map(|init| {
                let (name, nth, ticket) = (&init.name, init.nth, &init.ticket);
                scope.spawn(move || host.init(name, nth, &ticket.members, ticket.children))
            });
            let met: Vec<_> = met.collect();
            met.into_iter().try_for_each(|met| met.join().expect("it only waits").map(drop))
        })
    }

    /// The group has ended, and the communicator is there.
    pub(crate) fn end_init(&mut self, init: BegunInit) -> Result<(), Halt> {
        let BegunInit { slot, name, nth: _, ticket, pending } = init;
        let made = match pending {
            Some(pending) => self.communicator(&ticket, pending),
            None => self.kept(&ticket),
        };
        if let Some((comm, lifetime)) = self.noted("group_end", made)? {
            let value = self.entered(name, comm, lifetime);
            self.run.tables().threads[self.number as usize].slots[slot] = value;
        }
        Ok(())
    }

    /// The communicator of a ticket that was kept from an earlier case.
    fn kept(&self, ticket: &CommTicket) -> Result<(Arc<NcclComm>, CommLifetime), Error> {
        let kept = locked(&self.run.shared.kept).get(&ticket.id).cloned();
        let what =
            || format!("communicator {} was promised from an earlier case, but is not here", ticket.id);
        kept.map(|comm| (comm, CommLifetime::Process)).ok_or_else(|| Error::Malformed { what: what() })
    }

    /// Makes the communicator of a ticket, by the unique id that a member brings.
    fn init_rank(
        &self,
        ticket: &CommTicket,
        position: usize,
        own: Option<Vec<u8>>,
    ) -> Result<PendingComm, Error> {
        let bytes = self.run.host.unique_id(ticket, own)?;
        let what = || format!("a unique id has {} bytes", bytes.len());
        let id = NcclUniqueId::from_bytes(&bytes).ok_or_else(|| Error::Malformed { what: what() })?;
        let member = u32::try_from(position).expect("few members");
        let size = u32::try_from(ticket.members.len()).expect("few members");
        NcclComm::init_rank(&self.device, &id, member, size, ticket.children)
    }

    /// The communicator that was made for a ticket, warm if later cases are to have it.
    fn communicator(
        &self,
        ticket: &CommTicket,
        pending: PendingComm,
    ) -> Result<(Arc<NcclComm>, CommLifetime), Error> {
        let run = self.run;
        let what = || "NCCL made no communicator and returned no error".to_owned();
        let comm = pending.take()?.ok_or_else(|| Error::Malformed { what: what() })?;
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

    pub(crate) fn entered(
        &self,
        name: Arc<str>,
        comm: Arc<NcclComm>,
        lifetime: CommLifetime,
    ) -> Value<OnDevice> {
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
            return self.impossible("split".to_owned()).map(|_| Value::Null);
        };
        self.end_turn()?;
        // What is no C int is no color either; NCCL refuses negative ones.
        let color = color.map_or(Color::Nothing, |color| Color::Of(i32::try_from(color).unwrap_or(-2)));
        let (call, name) = (format!("{parent}.split"), self.run.source.token(name));
        let pending = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.split(color)));
        let Some(pending) = self.noted(&call, pending)? else { return Ok(Value::Null) };
        if self.group.depth > 0 {
            let slot = self.run.tables().threads[self.number as usize].slots.len();
            self.group.splits.push(GroupedSplit { slot, name, pending });
            return Ok(Value::Null);
        }
        let Some(Some(child)) = self.noted(&call, pending.take())? else { return Ok(Value::Null) };
        Ok(self.entered(name, Arc::new(child), CommLifetime::Case))
    }

    /// Communicators that are kept between cases are only struck from the tables of this one.
    fn comm_finalize(&mut self, text: &str, comm: &Operand) -> Result<(), Halt> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        drop(self.wait_inside(text, |tables| !tables.captured(at))?);
        // A communicator that is kept between cases serves again, so it is only waited for.
        if self.run.tables().comm(at).lifetime == CommLifetime::Process {
            return self.drain(text, WaitsFor::Device);
        }
        let result = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.finalize()));
        self.noted(&format!("{name}.finalize"), result).map(drop)
    }

    fn comm_destroy(&mut self, text: &str, comm: &Operand) -> Result<(), Halt> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        // NCCL waits for what the rank launched and for the graphs that captured a communicator; one that is kept between
        // cases is not destroyed, so the wait is made here. For other ranks it is not.
        if self.run.tables().comm(at).lifetime == CommLifetime::Process {
            drop(self.wait_inside(text, |tables| !tables.captured(at))?);
            self.drain(text, WaitsFor::Hosts)?;
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
