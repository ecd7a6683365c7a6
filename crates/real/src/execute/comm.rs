//! Communicators, windows, groups and collectives of a program on the device.
//!
//! Not here: whether what the ranks do fits together.

use std::sync::Arc;

use rankcheck_model::{Collective, Counting, Op, Operand, Rank, Resources, Token, WindowFlags};

use super::device::locked;
use super::inspect::WaitsFor;
use super::luck::{Kind, number};
use super::tables::{CommRow, Kept, WindowRow};
use super::thread::{Grouped, Stop, Thread};
use super::value::{Buffer, Value};
use crate::Error;
use crate::case::{CommTicket, Comms, Pick};
use crate::collective::{self, Buffers, Elements};
use crate::comm::{Color, Comm};
use crate::ffi::DeviceRange;
use crate::ffi::nccl::UniqueId;
use crate::group;
use crate::window::Window;

/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: i32 = 4;
/// What the model has a deregistration of what is no window return.
const UNKNOWN_WINDOW: i32 = 3;

impl Thread<'_, '_> {
    pub(crate) fn comm_init(
        &mut self,
        verb: &Op,
        name: Token,
        members: &Arc<[Rank]>,
        children: Resources,
    ) -> Result<Value, Stop> {
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
        let words = self.words(verb);
        self.end_turn()?;
        let made = self.inside(&words, WaitsFor::Hosts, |thread| {
            let ticket = thread.run.host.init(&name, nth, members, children)?;
            thread.communicator(&ticket, position)
        });
        let Some((comm, kept)) = self.noted(&call, made)? else { return Ok(Value::Null) };
        Ok(self.entered(name, Some(comm), kept))
    }

    /// The communicator of a ticket: kept from an earlier case, or made now.
    fn communicator(&self, ticket: &CommTicket, position: usize) -> Result<(Arc<Comm>, Kept), Error> {
        let run = self.run;
        if ticket.comms == Comms::Warm {
            let kept = locked(&run.shared.kept).get(&ticket.id).cloned();
            let what =
                || format!("communicator {} was promised from an earlier case, but is not here", ticket.id);
            return kept.map(|comm| (comm, Kept::Kept)).ok_or_else(|| Error::Malformed { what: what() });
        }
        let own = if position == 0 { Some(UniqueId::create(&run.shared.libraries)?.bytes()) } else { None };
        let bytes = run.host.unique_id(ticket, own)?;
        let what = || format!("a unique id has {} bytes", bytes.len());
        let id = UniqueId::from_bytes(&bytes).ok_or_else(|| Error::Malformed { what: what() })?;
        let member = u32::try_from(position).expect("few members");
        let size = u32::try_from(ticket.members.len()).expect("few members");
        let comm = Comm::init_rank(&self.device, &id, member, size, ticket.children)?;
        if run.case.comms == Comms::Fresh {
            return Ok((Arc::new(comm), Kept::Ours));
        }
        if let Err(error) = comm.warm_up(&run.shared.libraries, &self.device, &run.shared.aside) {
            comm.abort()?;
            return Err(error);
        }
        let comm = Arc::new(comm);
        locked(&run.shared.kept).insert(ticket.id, Arc::clone(&comm));
        Ok((comm, Kept::Kept))
    }

    fn entered(&self, name: Arc<str>, comm: Option<Arc<Comm>>, kept: Kept) -> Value {
        let mut tables = self.run.tables();
        let address = comm.as_ref().map_or(0, |comm| comm.address());
        tables.comms.push(CommRow { name, address, comm, kept, destroyed: false, windows: Vec::new() });
        Value::Comm(tables.comms.len() - 1)
    }

    /// The communicator of an operand, with its number and name, if this rank may use it.
    pub(crate) fn usable(&self, comm: &Operand) -> Option<(usize, Arc<str>, Arc<Comm>)> {
        let tables = self.run.tables();
        let at = tables.comm_number(&*self.run.source, comm)?;
        let row = &tables.comms[at];
        if row.destroyed {
            return None;
        }
        Some((at, Arc::clone(&row.name), Arc::clone(row.comm.as_ref()?)))
    }

    /// A call that cannot be made for want of a communicator or buffer: it fails as it would have, and takes
    /// its group with it.
    pub(crate) fn impossible(&self, call: String) -> Result<(), Stop> {
        self.failed(call, INVALID_ARGUMENT, None);
        if self.group.depth == 0 {
            return Ok(());
        }
        match group::spoil(&self.run.shared.libraries) {
            Ok(()) | Err(Error::Nccl { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn comm_split(
        &mut self,
        verb: &Op,
        comm: &Operand,
        name: Token,
        color: Option<i64>,
    ) -> Result<Value, Stop> {
        let Some((_, parent, comm)) = self.usable(comm) else {
            self.failed("split".to_owned(), INVALID_ARGUMENT, None);
            return Ok(Value::Null);
        };
        let words = self.words(verb);
        self.end_turn()?;
        // What is no C int is no color either; NCCL refuses negative ones.
        let color = color.map_or(Color::Nothing, |color| Color::Of(i32::try_from(color).unwrap_or(-2)));
        let child = self.inside(&words, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.split(color)));
        let Some(Some(child)) = self.noted(&format!("{parent}.split"), child)? else {
            return Ok(Value::Null);
        };
        Ok(self.entered(self.run.source.token(name), Some(Arc::new(child)), Kept::Ours))
    }

    /// Communicators that are kept between cases are only struck from the tables of this one.
    pub(crate) fn comm_destroy(&mut self, verb: &Op, comm: &Operand) -> Result<(), Stop> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        let words = self.words(verb);
        // NCCL waits for the graphs that captured a communicator; one that is kept between cases is not
        // destroyed, so the wait is made here.
        if self.run.tables().comms[at].kept == Kept::Kept {
            drop(self.wait_inside(&words, |tables| !tables.captured(at))?);
        }
        let owned = {
            let row = &mut self.run.tables().comms[at];
            row.destroyed = true;
            drop(comm);
            if row.kept == Kept::Ours { row.comm.take() } else { None }
        };
        // Another thread that is inside a call of the communicator keeps it; then it ends with the case.
        let Some(owned) = owned else { return Ok(()) };
        match Arc::try_unwrap(owned) {
            Ok(comm) => {
                let result = self.inside(&words, WaitsFor::Hosts, |thread| thread.unrelaxed(|| comm.end()));
                self.noted(&format!("{name}.destroy"), result).map(drop)
            }
            Err(shared) => {
                self.run.tables().comms[at].comm = Some(shared);
                Ok(())
            }
        }
    }

    pub(crate) fn register(
        &mut self,
        verb: &Op,
        comm: &Operand,
        memory: &Operand,
        flags: WindowFlags,
    ) -> Result<Value, Stop> {
        let Some((at, name, comm)) = self.usable(comm) else {
            return self.impossible("register".to_owned()).map(|()| Value::Null);
        };
        let call = format!("{name}.register");
        if self.fails() {
            self.failed(call, 1, None);
            return Ok(Value::Null);
        }
        let words = self.words(verb);
        let buffer = if let Value::Buffer(buffer) = self.value(memory) { Some(buffer) } else { None };
        let range = buffer.as_ref().map_or(DeviceRange::NULL, |buffer| buffer.range());
        if self.group.depth > 0 {
            let later = self.inside(&words, WaitsFor::Hosts, |thread| {
                thread.unrelaxed(|| Window::register_later(&comm, &range, flags))
            });
            if let Some(pending) = self.noted(&call, later)? {
                let slot = self.run.tables().threads[self.number as usize].slots.len();
                self.group.registrations.push(Grouped { slot, comm: at, buffer, pending });
            }
            return Ok(Value::Null);
        }
        self.end_turn()?;
        let window = self.inside(&words, WaitsFor::Hosts, |thread| {
            thread.unrelaxed(|| Window::register(&comm, &range, flags))
        });
        let window = self.noted(&call, window)?.flatten();
        Ok(window.map_or(Value::Null, |window| self.registered(at, window, buffer)))
    }

    fn registered(&self, comm: usize, window: Window, buffer: Option<Arc<Buffer>>) -> Value {
        let windows = &mut self.run.tables().comms[comm].windows;
        windows.push(WindowRow { window, buffer, live: true });
        Value::Window(comm, windows.len() - 1)
    }

    pub(crate) fn deregister(&mut self, verb: &Op, comm: &Operand, window: &Operand) -> Result<(), Stop> {
        let Some((at, name, comm)) = self.usable(comm) else { return Ok(()) };
        let call = format!("{name}.deregister");
        let value = self.value(window);
        let named = if let Value::Window(of, nth) = value { Some((of, nth)) } else { None };
        if named.is_none() && value != Value::Null {
            self.failed(call, UNKNOWN_WINDOW, None);
            return Ok(());
        }
        let words = self.words(verb);
        let window = named.map(|(of, nth)| self.run.tables().comms[of].windows[nth].window);
        let result = self
            .inside(&words, WaitsFor::Hosts, |thread| thread.unrelaxed(|| Window::deregister(&comm, window)));
        let done = self.noted(&call, result)?;
        if let (Some(()), Some((of, nth))) = (done, named)
            && of == at
        {
            self.run.tables().comms[of].windows[nth].live = false;
        }
        Ok(())
    }

    pub(crate) fn group_start(&mut self, verb: &Op) -> Result<(), Stop> {
        let words = self.words(verb);
        let result =
            self.inside(&words, WaitsFor::Hosts, |thread| group::start(&thread.run.shared.libraries));
        if self.noted("group_start", result)?.is_some() {
            self.group.depth += 1;
        }
        Ok(())
    }

    pub(crate) fn group_end(&mut self, verb: &Op) -> Result<(), Stop> {
        if self.group.depth == 1 {
            self.order_comms();
        }
        let words = self.words(verb);
        self.end_turn()?;
        let result = self.inside(&words, WaitsFor::Hosts, |thread| {
            thread.unrelaxed(|| group::end(&thread.run.shared.libraries))
        });
        let ended = self.noted("group_end", result)?;
        self.group.depth = self.group.depth.saturating_sub(1);
        if self.group.depth > 0 {
            return Ok(());
        }
        let group = std::mem::take(&mut self.group);
        if ended.is_some() {
            for Grouped { slot, comm, buffer, pending } in group.registrations {
                let Some(window) = pending.take()? else { continue };
                let value = self.registered(comm, window, buffer);
                self.run.tables().threads[self.number as usize].slots[slot] = value;
            }
        }
        // After an error some launches may have been made and some not; a mark behind nothing does no harm.
        for (stream, index) in group.launches {
            self.launched(stream, index)?;
        }
        Ok(())
    }

    /// The order of the communicators that register in this group, as luck wants it. NCCL sorts them by a
    /// hash of its own, which nobody outside can see or choose: this order is kept, not made.
    fn order_comms(&self) {
        let mut comms: Vec<usize> = Vec::new();
        for registration in &self.group.registrations {
            if !comms.contains(&registration.comm) {
                comms.push(registration.comm);
            }
        }
        if comms.len() < 2 {
            return;
        }
        for comm in comms {
            let known = self.run.tables().comm_order.len();
            if self.run.tables().comm_order.contains(&comm) {
                continue;
            }
            let wanted = if known == 0 { None } else { self.wanted(Kind::CommOrder) };
            let at = wanted.as_ref().map_or(known, |pick| (number(pick) as usize).min(known));
            if known > 0 {
                let position = u32::try_from(at).expect("few communicators");
                self.took(wanted, Pick::CommOrder { position });
            }
            self.run.tables().comm_order.insert(at, comm);
        }
    }

    pub(crate) fn collect(&mut self, verb: &Op, call: &Collective) -> Result<(), Stop> {
        let Some((number, name, comm)) = self.usable(&call.comm) else {
            return self.impossible(call.kind.name().to_owned());
        };
        let words = self.words(verb);
        let called = format!("{name}.{}", call.kind.name());
        let counting = call.kind.counting(|root| root == comm.rank);
        let range = |value: Value, ignored: Counting| {
            if let Value::Buffer(buffer) = value {
                return Some(buffer.range());
            }
            (counting == ignored).then_some(DeviceRange::NULL)
        };
        let send = range(self.value(&call.send), Counting::Recv);
        let recv = range(self.value(&call.recv), Counting::Send);
        let (Some(send), Some(recv)) = (send, recv) else { return self.impossible(called) };
        let (at, stream) = self.stream(call.stream)?;
        let buffers = Buffers { send, recv };
        let elements = Elements { count: call.count, dtype: call.dtype };
        self.end_turn()?;
        let result = self.inside(&words, WaitsFor::Hosts, |thread| {
            let what = (call.kind, call.op);
            thread.unrelaxed(|| collective::collective(&comm, &buffers, elements, what, &stream))
        });
        if self.noted(&called, result)?.is_none() {
            return Ok(());
        }
        self.collected(number, &stream)?;
        if self.group.depth > 0 {
            self.group.launches.push((at, self.at().index));
            return Ok(());
        }
        self.launched(at, self.at().index)
    }
}
