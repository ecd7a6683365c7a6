//! Memory of one process that another has open: which export an open is of, and when the memory was freed.
//!
//! Across processes a handle is known by its digest. How it travelled was not recorded, nor whatever else orders
//! processes on a host. So an open comes after its export, because it must, and nothing more is taken for ordered.
//! When memory was freed is read off the clock of the host, where both processes ran on one: what was over before
//! the other was entered came before it. Where that does not tell, the memory was freed after it was closed.
//! Two steps: `IpcListener` listens to the calls of one process, `join` brings all processes together.
//! Not here: rules, and what addresses mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::{Freed, Rank};
use rankcheck_recording::{Argument, Header, Shape};
use rustc_hash::FxHashMap;

use super::call::{Allocator, CallKind, failure};

/// Each process counts its time from when it began by the host's clock, and that may be set in between. Calls that
/// are no further apart are not put in order.
const MARGIN_NS: u64 = 5_000_000;

/// When a call was entered and when it returned: nanoseconds since its process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it was entered.
    pub entered: u64,
    /// When it returned, in nanoseconds.
    pub returned: u64,
}

/// Memory of this process that was exported.
#[derive(Debug, Clone)]
struct ExportedRegion {
    len_bytes: u64,
    freed: Option<Span>,
}

/// A call of `cudaIpcGetMemHandle`.
#[derive(Debug, Clone)]
struct HandleExport {
    digest: Box<str>,
    /// The number of the call.
    number: u64,
    at: Span,
    /// None of memory that nobody was seen to allocate.
    exported: Option<usize>,
}

/// A call of `cudaIpcOpenMemHandle`.
#[derive(Debug, Clone)]
struct HandleOpen {
    digest: Box<str>,
    /// The number of the call.
    number: u64,
    at: Span,
    mapping: usize,
}

/// An address at which memory of another process is, from the first open to the last close.
#[derive(Debug, Clone, Default)]
struct OpenMapping {
    /// Opens that were not closed yet.
    count: u32,
    closed: Option<Span>,
}

/// What one process says of memory that it exports or opens. It listens to the process's calls in the order in which
/// they returned.
#[derive(Debug, Clone, Default)]
pub(super) struct IpcListener {
    /// Keyed by address: the length, and its index among what is exported.
    living: BTreeMap<u64, (u64, Option<usize>)>,
    exported: Vec<ExportedRegion>,
    exports: Vec<HandleExport>,
    opens: Vec<HandleOpen>,
    mappings: Vec<OpenMapping>,
    /// The open mapping at each address, as an index among `mappings`.
    mapped: FxHashMap<u64, usize>,
    /// When it was last seen to live.
    lived: u64,
}

impl IpcListener {
    /// Whether the process lent memory to others, or opened theirs.
    pub(super) fn shares_memory(&self) -> bool {
        !self.exports.is_empty() || !self.opens.is_empty()
    }

    /// What the handles of memory are called that it gave to others or had from them.
    pub(super) fn handles(&self) -> impl Iterator<Item = &str> {
        let exports = self.exports.iter().map(|export| &*export.digest);
        exports.chain(self.opens.iter().map(|open| &*open.digest))
    }

    /// Whether calls of this kind are of interest here. Memory of other allocators cannot be exported.
    pub(super) fn listens(kind: CallKind) -> bool {
        matches!(
            kind,
            CallKind::IpcExport
                | CallKind::IpcOpen
                | CallKind::IpcClose
                | CallKind::Allocate(Allocator::Cuda)
                | CallKind::Free(Allocator::Cuda)
                | CallKind::Exit
        )
    }

    /// A call that returned.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls concern memory of other processes")]
    pub(super) fn call(&mut self, number: u64, at: Span, call: &Shape, result: Option<&Shape>) {
        self.lived = self.lived.max(at.entered);
        if failure(result).is_some() {
            return;
        }
        let address = call.get("address").and_then(Argument::number).unwrap_or(0);
        let made = result.and_then(|result| result.get("address")).and_then(Argument::number);
        // A handle that is not known is no other handle.
        let handle = |of: Option<&Shape>| {
            let id = of.and_then(|of| of.get("handle")).filter(|id| **id != Argument::None)?;
            Some(id.to_string().into())
        };
        match CallKind::of(&call.name) {
            CallKind::Allocate(Allocator::Cuda) => {
                if let Some(made) = made {
                    let bytes = call.get("bytes").and_then(Argument::number).unwrap_or(0);
                    self.living.insert(made, (bytes, None));
                }
            }
            CallKind::Free(Allocator::Cuda) => {
                if let Some((_, Some(exported))) = self.living.remove(&address) {
                    self.exported[exported].freed = Some(at);
                }
            }
            CallKind::IpcExport => {
                if let Some(digest) = handle(result) {
                    let exported = self.exported_at(address);
                    self.exports.push(HandleExport { digest, number, at, exported });
                }
            }
            CallKind::IpcOpen => {
                if let (Some(digest), Some(made)) = (handle(Some(call)), made) {
                    let mapping = *self.mapped.entry(made).or_insert_with(|| {
                        self.mappings.push(OpenMapping::default());
                        self.mappings.len() - 1
                    });
                    self.mappings[mapping].count += 1;
                    self.opens.push(HandleOpen { digest, number, at, mapping });
                }
            }
            CallKind::IpcClose => {
                let Some(&mapping) = self.mapped.get(&address) else { return };
                let row = &mut self.mappings[mapping];
                row.count -= 1;
                if row.count == 0 {
                    row.closed = Some(at);
                    self.mapped.remove(&address);
                }
            }
            _ => {}
        }
    }

    /// The memory in which an address lies, as one that is exported.
    fn exported_at(&mut self, address: u64) -> Option<usize> {
        let (start, (len_bytes, exported)) = self.living.range_mut(..=address).next_back()?;
        if address - start >= *len_bytes {
            return None;
        }
        Some(*exported.get_or_insert_with(|| {
            self.exported.push(ExportedRegion { len_bytes: *len_bytes, freed: None });
            self.exported.len() - 1
        }))
    }
}

/// Memory that a call opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// What its handle is called.
    pub(super) handle: Arc<str>,
    /// All of it: a handle is of a whole allocation.
    pub(super) len_bytes: u64,
    pub(super) freed: Freed,
    /// Whether the clocks do not tell if it was freed before it was opened or closed.
    pub(super) too_close: bool,
}

/// What a process exported and opened, by the numbers of its calls.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMemory {
    /// What a handle is called that somebody opened.
    pub(super) exports: FxHashMap<u64, Arc<str>>,
    /// Of handles whose memory is known.
    pub(super) opens: FxHashMap<u64, Opened>,
}

/// Brings the processes of all ranks together. The result is in their order.
pub(super) fn join(processes: &[(Rank, &Header, &IpcListener)]) -> Vec<SharedMemory> {
    let mut shared = vec![SharedMemory::default(); processes.len()];
    let mut exports: FxHashMap<&str, Vec<(usize, &HandleExport)>> = FxHashMap::default();
    for (owner, (_, _, local)) in processes.iter().enumerate() {
        for export in &local.exports {
            exports.entry(&export.digest).or_default().push((owner, export));
        }
    }
    for (opener, (_, header, local)) in processes.iter().enumerate() {
        let here = HostTime { header };
        for open in &local.opens {
            let of = exports.get(&*open.digest).into_iter().flatten();
            // A handle may come back with its address, and then the last that was there to be opened counts.
            let of = of.filter(|(owner, export)| {
                *owner != opener
                    && !here.before(open.at, (HostTime { header: processes[*owner].1 }, export.at))
            });
            let last = of.max_by_key(|(owner, export)| {
                HostTime { header: processes[*owner].1 }.time(export.at.entered)
            });
            let Some(&(owner, export)) = last else { continue };
            let Some(exported) = export.exported else { continue };
            let (rank, there, exporter) = processes[owner];
            let exported = &exporter.exported[exported];
            let handle: Arc<str> = format!("handle {} of rank {}", export.number, rank.0).into();
            shared[owner].exports.insert(export.number, Arc::clone(&handle));
            let closed = local.mappings[open.mapping]
                .closed
                .unwrap_or(Span { entered: local.lived, returned: local.lived });
            let there = HostTime { header: there };
            let freed = match exported.freed {
                Some(freed) if there.before(freed, (here, open.at)) => Freed::BeforeOpened,
                Some(freed)
                    if here.before(open.at, (there, freed)) && there.before(freed, (here, closed)) =>
                {
                    Freed::WhileOpen
                }
                Some(_) | None => Freed::AfterClosed,
            };
            let too_close = freed == Freed::AfterClosed
                && exported.freed.is_some_and(|freed| !here.before(closed, (there, freed)));
            let opened = Opened { handle, len_bytes: exported.len_bytes, freed, too_close };
            shared[opener].opens.insert(open.number, opened);
        }
    }
    shared
}

/// The times of a process.
#[derive(Clone, Copy)]
struct HostTime<'a> {
    header: &'a Header,
}

impl HostTime<'_> {
    /// Returns a time in nanoseconds since 1970.
    fn time(self, since_began: u64) -> u64 {
        self.header.began.saturating_add(since_began)
    }

    /// Whether a call of this process was over before one of another was entered. On two hosts nobody knows.
    fn before(self, one: Span, (there, other): (Self, Span)) -> bool {
        self.header.host == there.header.host
            && self.time(one.returned).saturating_add(MARGIN_NS) <= there.time(other.entered)
    }
}
