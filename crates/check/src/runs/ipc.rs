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
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{Allocator, CallKind, failure};

/// What is done with memory that goes to other processes by a handle of the driver's or of a pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareableCall {
    /// Memory is made, and mapped nowhere yet.
    CreatesMemory,
    /// A handle is made of it.
    ExportsMemory,
    /// It becomes memory that can be mapped.
    ImportsMemory,
    /// A handle is made of a pool.
    ExportsPool,
    /// It becomes a pool here.
    ImportsPool,
    /// A handle is made of an allocation of a pool.
    ExportsPointer,
    /// It is mapped here.
    ImportsPointer,
}

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
    /// Whether it lives on as long as somebody has it mapped.
    held: bool,
}

/// Memory of this process, or of a pool of it, that others may get.
#[derive(Debug, Clone)]
struct LivingRegion {
    len_bytes: u64,
    /// Its index among what is exported.
    exported: Option<usize>,
    /// What the driver calls the memory that is mapped there, 0 once that is another's name; none of what is not of
    /// `cuMemCreate`.
    physical: Option<u64>,
    /// The pool that it is of, if the call says one.
    pool: Option<u64>,
}

/// A call of `cudaIpcGetMemHandle`, or another that makes a handle.
#[derive(Debug, Clone)]
struct HandleExport {
    digest: Box<str>,
    /// The number of the call.
    number: u64,
    at: Span,
    address: u64,
    /// None of memory that nobody was seen to allocate.
    exported: Option<usize>,
}

/// A call of `cudaIpcOpenMemHandle`, or another that maps memory of a handle.
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
    /// Memory of this process, keyed by address.
    living: BTreeMap<u64, LivingRegion>,
    /// What the driver calls memory that came in: what its handle is called.
    imported: FxHashMap<u64, Box<str>>,
    /// What pools that went to other processes, or came from them, are called there.
    pools: FxHashMap<u64, Box<str>>,
    /// What `cuMemCreate` made, with its length.
    created: FxHashMap<u64, u64>,
    /// The numbers of calls by which handles and memory came in, where it is known which.
    imports: FxHashSet<u64>,
    exported: Vec<ExportedRegion>,
    exports: Vec<HandleExport>,
    opens: Vec<HandleOpen>,
    mappings: Vec<OpenMapping>,
    /// The open mapping at each address, as an index among `mappings`.
    mapped: FxHashMap<u64, usize>,
    /// When it was last seen to live.
    lived: u64,
    /// Whether it gave events to others, or had them from others.
    events: bool,
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
                | CallKind::Allocate(Allocator::Cuda | Allocator::CudaAsync)
                | CallKind::Free(Allocator::Cuda | Allocator::CudaAsync)
                | CallKind::Map
                | CallKind::Unmap
                | CallKind::Share(_)
                | CallKind::EventExport
                | CallKind::EventOpen
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
        match CallKind::of(&call.name) {
            CallKind::Allocate(_) => {
                if let Some(made) = made {
                    self.appears(made, call, None);
                }
            }
            CallKind::Free(_) | CallKind::Unmap => match self.living.remove(&address) {
                Some(LivingRegion { exported: Some(exported), .. }) => {
                    self.exported[exported].freed = Some(at);
                }
                Some(_) => {}
                None => self.closed(address, at),
            },
            CallKind::IpcExport => {
                if let Some(digest) = result.and_then(handle_of) {
                    self.exports(digest, (number, at), address);
                }
            }
            CallKind::IpcOpen => {
                if let (Some(digest), Some(made)) = (handle_of(call), made) {
                    self.opens(digest, (number, at), made);
                }
            }
            CallKind::IpcClose => self.closed(address, at),
            CallKind::EventExport | CallKind::EventOpen => self.events = true,
            CallKind::Map => {
                let physical = call.get("memory").and_then(Argument::number);
                match physical.and_then(|physical| self.imported.get(&physical)) {
                    Some(digest) => self.opens(digest.clone(), (number, at), address),
                    None => self.appears(address, call, physical),
                }
            }
            CallKind::Share(shared) => self.shares(shared, (number, at), call, result),
            _ => {}
        }
    }

    /// A handle of the driver's or of a pool's goes out or comes in.
    fn shares(
        &mut self,
        shared: ShareableCall,
        (number, at): (u64, Span),
        call: &Shape,
        result: Option<&Shape>,
    ) {
        let given = |key: &str| call.get(key).and_then(Argument::number);
        let made = |key: &str| result.and_then(|result| result.get(key)).and_then(Argument::number);
        let (goes, comes) = (result.and_then(handle_of), handle_of(call));
        match shared {
            ShareableCall::CreatesMemory => {
                if let (Some(physical), Some(len_bytes)) = (made("memory"), given("bytes")) {
                    self.comes_back(physical);
                    self.created.insert(physical, len_bytes);
                }
            }
            ShareableCall::ExportsMemory => {
                let physical = given("memory");
                let created = physical.and_then(|physical| self.created.get(&physical).copied());
                let (Some(digest), Some(len_bytes)) = (goes, created) else { return };
                let mapped = self.living.iter().find(|(_, region)| region.physical == physical);
                if let Some((&address, _)) = mapped {
                    return self.exports(digest, (number, at), address);
                }
                self.exported.push(ExportedRegion { len_bytes, freed: None, held: true });
                let exported = Some(self.exported.len() - 1);
                self.exports.push(HandleExport { digest, number, at, address: 0, exported });
            }
            ShareableCall::ImportsMemory => {
                if let (Some(digest), Some(physical)) = (comes, made("memory")) {
                    self.comes_back(physical);
                    self.imported.insert(physical, digest);
                    self.imports.insert(number);
                }
            }
            ShareableCall::ExportsPool => {
                if let (Some(digest), Some(pool)) = (goes, given("pool")) {
                    self.pools.insert(pool, digest);
                }
            }
            ShareableCall::ImportsPool => {
                if let (Some(digest), Some(pool)) = (comes, made("pool")) {
                    self.pools.insert(pool, digest);
                }
            }
            ShareableCall::ExportsPointer => {
                let address = given("address").unwrap_or(0);
                let pool = self.living.get(&address).and_then(|region| region.pool);
                let pool = pool.and_then(|pool| self.pools.get(&pool));
                if let (Some(pointer), Some(pool)) = (goes, pool) {
                    self.exports(format!("{pool} {pointer}").into(), (number, at), address);
                }
            }
            ShareableCall::ImportsPointer => {
                let pool = given("pool").and_then(|pool| self.pools.get(&pool));
                if let (Some(pointer), Some(pool), Some(made)) = (comes, pool, made("address")) {
                    let digest = format!("{pool} {pointer}").into();
                    self.opens(digest, (number, at), made);
                }
            }
        }
    }

    /// What the driver called memory before that was released is another's name: what is mapped of that stays.
    fn comes_back(&mut self, physical: u64) {
        self.created.remove(&physical);
        self.imported.remove(&physical);
        for region in self.living.values_mut().filter(|region| region.physical == Some(physical)) {
            region.physical = Some(0);
        }
    }

    fn appears(&mut self, address: u64, call: &Shape, physical: Option<u64>) {
        let given = |key: &str| call.get(key).and_then(Argument::number);
        let len_bytes = given("bytes").unwrap_or(0);
        let region = LivingRegion { len_bytes, exported: None, physical, pool: given("pool") };
        self.living.insert(address, region);
    }

    fn exports(&mut self, digest: Box<str>, (number, at): (u64, Span), address: u64) {
        let exported = self.exported_at(address);
        self.exports.push(HandleExport { digest, number, at, address, exported });
    }

    fn opens(&mut self, digest: Box<str>, (number, at): (u64, Span), address: u64) {
        let mapping = *self.mapped.entry(address).or_insert_with(|| {
            self.mappings.push(OpenMapping::default());
            self.mappings.len() - 1
        });
        self.mappings[mapping].count += 1;
        self.imports.insert(number);
        self.opens.push(HandleOpen { digest, number, at, mapping });
    }

    fn closed(&mut self, address: u64, at: Span) {
        let Some(&mapping) = self.mapped.get(&address) else { return };
        let row = &mut self.mappings[mapping];
        row.count -= 1;
        if row.count == 0 {
            row.closed = Some(at);
            self.mapped.remove(&address);
        }
    }

    /// The memory in which an address lies, as one that is exported.
    fn exported_at(&mut self, address: u64) -> Option<usize> {
        let (start, region) = self.living.range_mut(..=address).next_back()?;
        if address - start >= region.len_bytes {
            return None;
        }
        Some(*region.exported.get_or_insert_with(|| {
            let (len_bytes, held) = (region.len_bytes, region.physical.is_some());
            self.exported.push(ExportedRegion { len_bytes, freed: None, held });
            self.exported.len() - 1
        }))
    }
}

/// What a handle that a call was given, or returned, is called. One that is not known is no other handle.
pub(super) fn handle_of(shape: &Shape) -> Option<Box<str>> {
    let id = shape.get("handle").filter(|id| **id != Argument::None)?;
    Some(id.to_string().into())
}

/// Memory that a call opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// What its handle is called.
    pub(super) handle: Arc<str>,
    /// All of it: a handle is of a whole allocation.
    pub(super) len_bytes: u64,
    pub(super) freed: Freed,
    /// Whether the clocks do not tell if it was freed before it was closed.
    pub(super) too_close: bool,
}

/// What a process exported and opened, by the numbers of its calls.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMemory {
    /// Of handles that somebody opened.
    pub(super) exports: FxHashMap<u64, Exported>,
    /// Of handles whose memory is known.
    pub(super) opens: FxHashMap<u64, Opened>,
    /// The numbers of calls by which handles and memory came in, where it is known which.
    pub(super) imports: FxHashSet<u64>,
    /// Whether the process gave events to others, or had them from others.
    pub(super) events: bool,
}

impl SharedMemory {
    /// Whether any memory is shared.
    pub(super) fn is_shared(&self) -> bool {
        !(self.exports.is_empty() && self.opens.is_empty() && self.imports.is_empty())
    }
}

/// Memory of which a call made a handle.
#[derive(Debug, Clone)]
pub(super) struct Exported {
    /// What its handle is called.
    pub(super) handle: Arc<str>,
    /// An address in it; 0 of memory that was mapped nowhere.
    pub(super) address: u64,
    pub(super) len_bytes: u64,
    /// Whether it lives on as long as somebody has it mapped.
    pub(super) held: bool,
}

/// Brings the processes of all ranks together. The result is in their order.
pub(super) fn join(processes: &[(Rank, &Header, &IpcListener)]) -> Vec<SharedMemory> {
    let known = |(_, _, local): &(Rank, &Header, &IpcListener)| SharedMemory {
        imports: local.imports.clone(),
        events: local.events,
        ..SharedMemory::default()
    };
    let mut shared: Vec<SharedMemory> = processes.iter().map(known).collect();
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
            let told = Exported {
                handle: Arc::clone(&handle),
                address: export.address,
                len_bytes: exported.len_bytes,
                held: exported.held,
            };
            shared[owner].exports.insert(export.number, told);
            let closed = local.mappings[open.mapping]
                .closed
                .unwrap_or(Span { entered: local.lived, returned: local.lived });
            let there = HostTime { header: there };
            let may_be_gone = exported.freed.filter(|_| !exported.held);
            let freed = match may_be_gone {
                Some(freed) if there.before(freed, (here, open.at)) => Freed::BeforeOpened,
                // It could be opened, so it was there then.
                Some(freed) if there.before(freed, (here, closed)) => Freed::WhileOpen,
                Some(_) | None => Freed::AfterClosed,
            };
            let too_close = freed == Freed::AfterClosed
                && may_be_gone.is_some_and(|freed| !here.before(closed, (there, freed)));
            let opened = Opened { handle, len_bytes: exported.len_bytes, freed, too_close };
            shared[opener].opens.insert(open.number, opened);
        }
    }
    shared
}

/// The times of a process.
#[derive(Clone, Copy)]
pub(super) struct HostTime<'a> {
    pub(super) header: &'a Header,
}

impl HostTime<'_> {
    /// Each process counts its time from when it began by the host's clock, and that may be set in between. Calls that
    /// are no further apart are not put in order.
    pub(super) const MARGIN_NS: u64 = 5_000_000;
    /// The same where processes say when they began by a clock that nobody sets: the recorder's own differs by a microsecond.
    const RUNNING_MARGIN_NS: u64 = 2_000;

    /// Returns a time in nanoseconds since 1970.
    pub(super) fn time(self, since_began: u64) -> u64 {
        self.header.began.saturating_add(since_began)
    }

    /// Whether a call of this process was over before one of another was entered. On two hosts nobody knows.
    pub(super) fn before(self, one: Span, (there, other): (Self, Span)) -> bool {
        if let (Some(mine), Some(its)) = (&self.header.running, &there.header.running)
            && mine.boot == its.boot
        {
            let over = mine.began.saturating_add(one.returned).saturating_add(Self::RUNNING_MARGIN_NS);
            return over <= its.began.saturating_add(other.entered);
        }
        self.header.host == there.header.host
            && self.time(one.returned).saturating_add(Self::MARGIN_NS) <= there.time(other.entered)
    }
}
