//! What a rank keeps on its device between cases: device code, streams, reserved addresses, communicators.
//!
//! Not here: what one case needs, apart from cleaning it up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inspect::RankInspector;
use super::tables::{CommLifetime, CommRow, Tables};
use crate::Error;
use crate::comm::NcclComm;
use crate::event::CudaEvent;
use crate::ffi::Libraries;
use crate::ffi::cuda::{Completion, Context, Device, Pinned};
use crate::kernel::{DeviceCode, Gate};
use crate::placement::AddressSlots;
use crate::stream::CudaStream;
use crate::window::NcclWindow;

/// Bytes that are read back at once; a multiple of every element's size.
pub(crate) const STAGING_BYTES: u64 = 16 << 20;

/// One rank's device, for any number of cases, one after another.
#[derive(Debug)]
pub struct RankDevice {
    device: Device,
    pub(crate) shared: SharedDevice,
    /// What the last case left behind.
    pub(crate) left: Option<Tables>,
}

/// The part of it that all threads of the rank use.
#[derive(Debug)]
pub(crate) struct SharedDevice {
    pub(crate) libraries: Libraries,
    pub(crate) context: Context,
    pub(crate) code: DeviceCode,
    pub(crate) placement: AddressSlots,
    /// For fills and copies that are no part of the program.
    pub(crate) aside: CudaStream,
    pub(crate) staging: Mutex<Pinned>,
    pub(crate) gate: Gate,
    /// The last ticket that a spinning kernel got.
    pub(crate) ticket: AtomicU32,
    spare_streams: Mutex<Vec<CudaStream>>,
    spare_events: Mutex<Vec<CudaEvent>>,
    /// By ticket: connected, without windows.
    pub(crate) kept: Mutex<BTreeMap<u64, Arc<NcclComm>>>,
    pub(crate) inspect: Arc<RankInspector>,
}

/// A lock that a panic elsewhere has poisoned still guards whole data.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedDevice {
    /// A stream on which nothing was launched.
    pub(crate) fn stream(&self, device: &Device) -> Result<CudaStream, Error> {
        let spare = locked(&self.spare_streams).pop();
        spare.map_or_else(|| CudaStream::create(device), Ok)
    }

    pub(crate) fn event(&self, device: &Device) -> Result<CudaEvent, Error> {
        let spare = locked(&self.spare_events).pop();
        spare.map_or_else(|| CudaEvent::create(device), Ok)
    }

    /// Waits until the stream aside is done. It holds nothing that could hang.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        while self.aside.query()? == Completion::Pending {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets every kernel go that spins so that an event is not complete yet.
    pub(crate) fn open_gate(&self) {
        self.gate.open(self.ticket.load(Ordering::SeqCst));
    }
}

impl RankDevice {
    /// Opens a device and loads what cases need on it.
    ///
    /// # Errors
    /// [`Error::Cuda`], also when there is no such device.
    pub fn open(libraries: &Libraries, ordinal: i32) -> Result<Self, Error> {
        let device = Device::open(libraries, ordinal)?;
        let context = device.context();
        let staging_bytes = usize::try_from(STAGING_BYTES).expect("a few megabytes");
        let shared = SharedDevice {
            libraries: libraries.clone(),
            context,
            code: DeviceCode::load(&device)?,
            placement: AddressSlots::reserve(&device)?,
            aside: CudaStream::create(&device)?,
            staging: Mutex::new(Pinned::alloc(&device, staging_bytes)?),
            gate: Gate::create(&device)?,
            ticket: AtomicU32::new(0),
            spare_streams: Mutex::default(),
            spare_events: Mutex::default(),
            kept: Mutex::default(),
            inspect: Arc::new(RankInspector::new(context)),
        };
        Ok(Self { device, shared, left: None })
    }

    /// What the running case has done so far, for another thread to look at.
    #[must_use]
    pub fn inspect(&self) -> Arc<RankInspector> {
        Arc::clone(&self.shared.inspect)
    }

    /// Gives back what the last case left: deregisters its windows, destroys splits and fresh communicators,
    /// frees memory. [`super::execute`] does so before a new case. Call it earlier once *every* rank has
    /// reported that it finished: destroying a communicator may wait for the peers' work, so nothing of it
    /// may be done while another rank still hangs.
    ///
    /// # Errors
    /// The first [`Error::Nccl`] or [`Error::Cuda`]; the rest is given back all the same.
    pub fn clean(&mut self) -> Result<(), Error> {
        let Some(tables) = self.left.take() else { return Ok(()) };
        self.shared.inspect.reset();
        let Tables {
            comms,
            memory,
            mappings,
            host_words,
            streams,
            events,
            marks,
            sums,
            graphs,
            captured_events,
            ..
        } = tables;
        // NCCL destroys no communicator while a graph lives that captured it.
        let mut ended = Ok(());
        for graph in graphs.into_values() {
            ended = ended.and(graph.end());
        }
        let mut result = ended.and(end_comms(comms));
        let mut note = |done: Result<(), Error>| result = result.clone().and(done);
        for mapping in mappings.into_iter().flat_map(|row| row.open) {
            note(mapping.end());
        }
        if let Some(words) = host_words.and_then(Arc::into_inner) {
            note(words.end());
        }
        for row in memory.into_values() {
            if let Some(physical) = row.physical {
                note(physical.end());
            }
        }
        for sum in sums {
            note(sum.end());
        }
        let records = events.into_values().flat_map(|row| row.records).map(|record| record.event);
        let spare = records.chain(marks).chain(captured_events.into_values()).filter_map(Arc::into_inner);
        locked(&self.shared.spare_events).extend(spare);
        let spare = streams.into_iter().filter_map(|(_, stream)| Arc::into_inner(stream));
        locked(&self.shared.spare_streams).extend(spare);
        result
    }

    /// Gives everything back, kept communicators included. Every member of those has to do so.
    ///
    /// # Errors
    /// The first [`Error::Nccl`] or [`Error::Cuda`]; the rest is then left to the end of the process.
    pub fn end(mut self) -> Result<(), Error> {
        self.clean()?;
        let Self { device, shared, .. } = self;
        for comm in shared.kept.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
            Arc::into_inner(comm).map_or(Ok(()), NcclComm::end)?;
        }
        for event in shared.spare_events.into_inner().unwrap_or_else(PoisonError::into_inner) {
            event.end()?;
        }
        for stream in shared.spare_streams.into_inner().unwrap_or_else(PoisonError::into_inner) {
            stream.end()?;
        }
        shared.aside.end()?;
        shared.gate.end()?;
        shared.staging.into_inner().unwrap_or_else(PoisonError::into_inner).end()?;
        shared.placement.end()?;
        shared.code.end()?;
        device.end()
    }
}

/// Deregisters what is registered, and ends the communicators by their names: NCCL waits in the end of one for its other
/// members, who may have made them in another order.
fn end_comms(mut comms: Vec<CommRow>) -> Result<(), Error> {
    comms.sort_by(|one, other| one.name.cmp(&other.name));
    let mut result = Ok(());
    for mut row in comms.into_iter().rev() {
        let Some(comm) = row.comm.take() else { continue };
        for window in row.windows.iter().filter(|window| window.live) {
            result = result.and(NcclWindow::deregister(&comm, Some(window.window)));
        }
        if row.lifetime == CommLifetime::Case {
            result = result.and(Arc::into_inner(comm).map_or(Ok(()), NcclComm::end));
        }
    }
    result
}
