//! Which process is which rank, and which communicator of one process is which of another's.
//!
//! A process knows its communicators by address, and an address comes back. Across processes a communicator
//! is known by its unique id; a child by its parent, by which split of the parent it was, and by its color.
//! Two steps: [`CommListener`] listens to the calls of one process, [`World::join`] brings all processes together.
//! Not here: what is done on communicators.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rankcheck_model::Rank;
use rankcheck_recording::read::read_header;
use rankcheck_recording::{Argument, Header, ReadError, Shape};
use rustc_hash::FxHashMap;

use super::RunError;
use super::call::{CallKind, signed};
use super::device_share::DeviceShare;
use super::ipc::{self, SharedMemory, Span};
use super::shared_events::SharedEventCalls;

/// The files of a directory that are recordings, in the order of their names.
///
/// # Errors
///
/// If the directory cannot be listed, or holds none.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>, RunError> {
    if is_one_file(directory) {
        let folder = directory.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        return Err(RunError::OneFile { path: directory.to_owned(), folder });
    }
    let io = |source| RunError::Directory { path: directory.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.is_file() && begins_as_recording(&path) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(RunError::Empty { path: directory.to_owned() });
    }
    Ok(files)
}

/// The files of a directory that are named as recordings are and do not begin as one: of their processes nothing is known.
pub(super) fn empty_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| is_named_recording(path) && !begins_as_recording(path)).collect();
    files.sort();
    files
}

/// Whether a path is the file of a process, and no folder.
pub(super) fn is_one_file(path: &Path) -> bool {
    is_named_recording(path) || path.is_file() && begins_as_recording(path)
}

/// Whether a file is named as the recording of a process is.
fn is_named_recording(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "rankrec")
}

/// Whether a file begins as recordings do, and says of which process it is. A file that cannot be read does not.
fn begins_as_recording(path: &Path) -> bool {
    use std::io::Read as _;
    let mut bytes = [0; rankcheck_recording::layout::MAGIC.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    // `rankrec` alone: a file of another version is one too, and the reader says so.
    let begins = read.is_ok() && bytes[..7] == rankcheck_recording::layout::MAGIC[..7];
    begins && !matches!(read_header(path), Err(ReadError::CutOff { .. }))
}

/// More ranks than any run has: a damaged number must not ask for memory.
const RANKS_MAX: u32 = 1 << 20;

/// The n-th communicator that a process got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalComm(pub u32);

/// A communicator of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunCommId(pub u32);

/// How a process came to a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Birth {
    /// `ncclCommInitRank` and its variants.
    Init {
        /// The id of the communicator, in hexadecimal digits.
        id: Box<str>,
        /// The n-th communicator of this id in this process: an id of unknown bytes comes back.
        nth: u32,
        rank: u32,
        ranks: u32,
    },
    /// `ncclCommSplit`; whoever gave no color is no member, and has no entry.
    Split { parent: LocalComm, nth: u32, color: i64, key: i64 },
    /// `ncclCommShrink`; the excluded are ranks of the parent.
    Shrink { parent: LocalComm, nth: u32, excluded: Box<[u32]> },
    /// `ncclCommInitAll` of one device: nobody else is a member.
    Alone,
    /// The call does not say which communicator it makes: it is no other process's, as far as anybody knows.
    NotKnown,
}

/// What one process knows of a communicator.
#[derive(Debug, Clone)]
struct KnownComm {
    birth: Birth,
    address: u64,
    /// The number of the call that made it.
    born: u64,
    /// The number of the call that destroyed or aborted it.
    died: Option<u64>,
}

/// What one process says of itself and of its communicators. It listens to the process's calls in their order.
#[derive(Debug, Clone, Default)]
pub struct CommListener {
    comms: Vec<KnownComm>,
    /// By address: the communicator that lives there.
    living: FxHashMap<u64, LocalComm>,
    /// Splits and shrinks of each communicator so far.
    children: FxHashMap<LocalComm, u32>,
    inits: FxHashMap<Box<str>, u32>,
    noted_rank: Option<u32>,
    noted_ranks: Option<u32>,
    /// The first call that made this process two ranks of one communicator.
    twice: Option<u64>,
    ipc: ipc::IpcListener,
    /// The device whose calls these are, of a process that is a rank on each of several.
    share: Option<DeviceShare>,
    /// What no other process of the run is called.
    process: Box<str>,
}

impl CommListener {
    /// One that has heard nothing yet.
    pub(super) fn of(header: &Header, share: Option<&DeviceShare>) -> Self {
        let process = format!("{}-{}-{}", header.host, header.pid, header.began).into();
        Self { share: share.cloned(), process, ..Self::default() }
    }

    /// Whether it made communicators, or shares memory with others.
    pub(super) fn communicates(&self) -> bool {
        !self.comms.is_empty() || self.ipc.shares_memory()
    }

    /// Whether these are the calls of one device of a process.
    pub(super) fn is_share(&self) -> bool {
        self.share.is_some()
    }

    /// What the process shares with others of its job alone: ids of communicators, and handles of memory.
    pub(super) fn shared_ids(&self) -> impl Iterator<Item = &str> {
        let comms = self.comms.iter().filter_map(|known| match &known.birth {
            Birth::Init { id, .. } if !id.is_empty() => Some(&**id),
            Birth::Init { .. }
            | Birth::Split { .. }
            | Birth::Shrink { .. }
            | Birth::Alone
            | Birth::NotKnown => None,
        });
        comms.chain(self.ipc.handles())
    }

    /// Whether the process is known to be several ranks of one communicator.
    pub(super) fn is_several(&self) -> bool {
        self.twice.is_some()
    }

    /// Whether the process has several communicators.
    pub(super) fn has_several(&self) -> bool {
        self.comms.len() > 1
    }

    /// Whether calls of this kind are of interest here; all others may be left out.
    pub(super) fn listens(kind: CallKind) -> bool {
        matches!(kind, CallKind::Process | CallKind::Exists)
            || kind.of_comms()
            || ipc::IpcListener::listens(kind)
    }

    /// A call, when it was, and what it returned (`None` if nothing worth a word).
    ///
    /// `number` counts the calls and notes of the process from 0, in the order in which they were entered.
    /// Calls are passed in the order in which they returned.
    pub fn returned(&mut self, number: u64, at: Span, call: &Shape, result: Option<&Shape>) {
        self.ipc.call(number, at, call, result);
        self.call(number, call, result);
    }

    /// A call, and what it returned (`None` if nothing worth a word, or if it never returned), as far as it is
    /// about communicators. Numbers are those of [`CommListener::returned`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls say who a process is")]
    pub fn call(&mut self, number: u64, call: &Shape, result: Option<&Shape>) {
        let get = |key: &str| call.get(key).and_then(Argument::number);
        match CallKind::of(&call.name) {
            CallKind::Process => {
                let small = |key: &str| get(key).and_then(|number| u32::try_from(number).ok());
                self.noted_rank = self.noted_rank.or(small("rank"));
                self.noted_ranks = self.noted_ranks.or(small("ranks"));
            }
            CallKind::Exists if get("comm").is_some() => {
                let id: Box<str> = call.get("id").map_or_else(String::new, ToString::to_string).into();
                let nth = self.inits.entry(id.clone()).or_default();
                let birth = match call.get("id") {
                    None | Some(Argument::None) => Birth::NotKnown,
                    Some(_) => {
                        let (rank, ranks) = (number_u32(get("rank")), number_u32(get("ranks")));
                        Birth::Init { id, nth: *nth, rank, ranks }
                    }
                };
                *nth += 1;
                self.born(number, birth, Some(call));
            }
            // Without a parent nobody makes a communicator.
            kind if kind.makes_comm(call)
                && kind.lacks(call).is_some()
                && (kind == CallKind::Init
                    || get("comm").is_none_or(|address| self.last_at(address).is_some())) =>
            {
                self.born(number, Birth::NotKnown, result);
            }
            CallKind::Init => {
                let id: Box<str> = call.get("id").map_or_else(String::new, ToString::to_string).into();
                let nth = self.inits.entry(id.clone()).or_default();
                let (rank, ranks) = (number_u32(get("rank")), number_u32(get("ranks")));
                let again = self.comms.iter().any(|known| {
                    known.died.is_none()
                        && matches!(&known.birth, Birth::Init { id: other, rank: claimed, .. }
                            if *other == id && *claimed != rank)
                });
                if again {
                    self.twice = self.twice.or(Some(number));
                }
                let birth = Birth::Init { id, nth: *nth, rank, ranks };
                *nth += 1;
                self.born(number, birth, result);
            }
            CallKind::InitAll => {
                let ranks = number_u32(get("ranks"));
                let Some(share) = &self.share else {
                    let alone = ranks == 1;
                    // Which of several communicators is whose shows where each device is read by itself.
                    self.twice = self.twice.or((!alone).then_some(number));
                    self.born(number, if alone { Birth::Alone } else { Birth::NotKnown }, result);
                    return;
                };
                // Not every device has a communicator of it.
                let Some(rank) = share.nth_of(call) else { return };
                let own = result.and_then(|result| share.of_result(call, result));
                let id = format!("{number:08} of {}", self.process).into();
                self.born(number, Birth::Init { id, nth: 0, rank, ranks }, own.as_ref().or(result));
            }
            CallKind::Split => {
                let Some(parent) = get("comm").and_then(|address| self.last_at(address)) else { return };
                let nth = self.child_of(parent);
                let (color, key) = (signed(call, "color"), signed(call, "key"));
                if color >= 0 {
                    let birth = Birth::Split { parent, nth, color, key };
                    self.born(number, birth, result);
                }
            }
            CallKind::Shrink => {
                let Some(parent) = get("comm").and_then(|address| self.last_at(address)) else { return };
                let nth = self.child_of(parent);
                let excluded = match call.get("excluded") {
                    Some(Argument::Bytes(bytes)) => bytes
                        .chunks_exact(4)
                        .map(|rank| u32::from_le_bytes([rank[0], rank[1], rank[2], rank[3]]))
                        .collect(),
                    _ => Box::default(),
                };
                self.born(number, Birth::Shrink { parent, nth, excluded }, result);
            }
            CallKind::Destroy => {
                if let Some(comm) = get("comm").and_then(|address| self.living.remove(&address)) {
                    self.comms[comm.0 as usize].died = Some(number);
                }
            }
            _ => {}
        }
    }

    /// The communicator that lives at an address now.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<LocalComm> {
        self.living.get(&address).copied()
    }

    /// The communicator that lives at an address, or lived there last.
    fn last_at(&self, address: u64) -> Option<LocalComm> {
        let last = self.comms.iter().rposition(|known| known.address == address && address != 0)?;
        Some(LocalComm(u32::try_from(last).expect("fewer than 2^32 communicators")))
    }

    fn child_of(&mut self, parent: LocalComm) -> u32 {
        let count = self.children.entry(parent).or_default();
        *count += 1;
        *count - 1
    }

    /// A call that makes a communicator. One that failed, or never returned, made one without an address: the
    /// process is a member all the same.
    fn born(&mut self, number: u64, birth: Birth, result: Option<&Shape>) {
        let address = result.and_then(|result| result.get("comm")).and_then(Argument::number).unwrap_or(0);
        let comm = LocalComm(u32::try_from(self.comms.len()).expect("fewer than 2^32 communicators"));
        if address != 0 {
            self.living.insert(address, comm);
        }
        self.comms.push(KnownComm { birth, address, born: number, died: None });
    }
}

/// A number that a call carries. What is not there or too large is a rank that nobody has.
fn number_u32(number: Option<u64>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX)
}

/// A communicator of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunComm {
    /// What people read: the first digits of the id, or the parent's name, the split and the color.
    pub name: String,
    /// The members in the communicator's order; `None` where that rank was not recorded.
    pub members: Vec<Option<Rank>>,
    /// Whether all members were recorded. A child of a communicator that is not whole is not either.
    pub whole: bool,
    /// The communicator that it was split or shrunk from.
    pub parent: Option<RunCommId>,
    /// Whether it was shrunk from it: then nobody who is left out takes part.
    pub shrunk: bool,
}

impl RunComm {
    /// Whether it is known which of its members has which number. Who was not recorded has a place among the members of a split that
    /// nothing says.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        self.whole || self.parent.is_none() || self.shrunk
    }

    /// The rank in the communicator of a rank of the world.
    #[must_use]
    pub fn rank_of(&self, rank: Rank) -> Option<u32> {
        let at = self.members.iter().position(|&member| member == Some(rank))?;
        u32::try_from(at).ok()
    }
}

/// A process that takes part.
#[derive(Debug, Clone)]
pub struct RankProcess {
    /// The file that it wrote.
    pub path: PathBuf,
    /// Its index in the list that [`World::join`] was given.
    pub file: usize,
    /// Its rank in the world.
    pub rank: Rank,
    /// The device whose calls are this rank's, if the process is a rank on each of several.
    pub share: Option<DeviceShare>,
    /// The communicator that each [`LocalComm`] of the process is, indexed by it.
    comms: Vec<RunCommId>,
    /// By address: since which call which communicator lives there, and until which.
    spans: FxHashMap<u64, Vec<CommSpan>>,
    /// Memory that it exports and opens.
    pub(super) shared: SharedMemory,
    /// What its calls have to do with events that several ranks use.
    pub(super) event_calls: SharedEventCalls,
}

/// When a communicator lived at an address: from the call that made it to the one that destroyed it.
#[derive(Debug, Clone, Copy)]
struct CommSpan {
    born: u64,
    died: Option<u64>,
    comm: RunCommId,
}

impl RankProcess {
    /// The communicator at an address, when the call of this number was entered.
    #[must_use]
    pub fn comm_at(&self, address: u64, call: u64) -> Option<RunCommId> {
        let spans = self.spans.get(&address)?;
        let after = spans.partition_point(|span| span.born < call);
        let span = spans[..after].last()?;
        // The call that destroys it still names it.
        span.died.is_none_or(|died| call <= died).then_some(span.comm)
    }

    /// All communicators that were at an address.
    pub(super) fn comms_at(&self, address: u64) -> impl Iterator<Item = RunCommId> {
        self.spans.get(&address).into_iter().flatten().map(|span| span.comm)
    }

    /// The communicator that the process got as its n-th.
    ///
    /// # Panics
    ///
    /// If the process has fewer.
    #[must_use]
    pub fn comm(&self, comm: LocalComm) -> RunCommId {
        self.comms[comm.0 as usize]
    }

    /// Its communicators, in the order in which it made them.
    pub(super) fn births(&self) -> &[RunCommId] {
        &self.comms
    }
}

/// The processes of a run and their communicators.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// How many ranks the run had, as far as anybody says.
    pub ranks: u32,
    /// By rank; those that were not recorded are left out.
    pub members: Vec<RankProcess>,
    /// The communicators of the run, indexed by [`RunCommId`].
    pub comms: Vec<RunComm>,
    /// Files of processes that communicate with nobody beside one of the same rank that does: a loader of
    /// data, a compiler.
    pub bystanders: Vec<PathBuf>,
    /// Ranks that were recorded and are no members, because they do what members do, and how many calls each made.
    pub(super) copies: BTreeMap<Rank, u64>,
}

impl World {
    /// Brings the processes together.
    ///
    /// # Errors
    ///
    /// If they are not the processes of one run, with one rank each.
    pub fn join(processes: Vec<(PathBuf, Header, CommListener)>) -> Result<Self, RunError> {
        one_run(&processes)?;
        for (path, _, local) in &processes {
            if let Some(call) = local.twice {
                return Err(RunError::TwoRanks { path: path.clone(), call });
            }
        }
        let (by_rank, bystanders) = assign(&processes)?;
        let mut world = Self { bystanders, ..Self::default() };
        let highest = by_rank.last_key_value().map_or(0, |(rank, _)| rank.0 + 1);
        world.ranks = started(&processes).max(highest);

        let order: Vec<(Rank, usize)> = by_rank.into_iter().collect();
        let comms = world.name(&order, &processes)?;
        let listeners: Vec<_> =
            order.iter().map(|&(rank, file)| (rank, &processes[file].1, &processes[file].2.ipc)).collect();
        let shared = ipc::join(&listeners);
        for (((rank, file), comms), shared) in order.into_iter().zip(comms).zip(shared) {
            let (path, _, local) = &processes[file];
            let mut spans: FxHashMap<u64, Vec<CommSpan>> = FxHashMap::default();
            for (known, &comm) in local.comms.iter().zip(&comms).filter(|(known, _)| known.address != 0) {
                let span = CommSpan { born: known.born, died: known.died, comm };
                spans.entry(known.address).or_default().push(span);
            }
            let share = local.share.clone();
            let (path, event_calls) = (path.clone(), SharedEventCalls::default());
            let member = RankProcess { path, file, rank, share, comms, spans, shared, event_calls };
            world.members.push(member);
        }
        Ok(world)
    }

    /// The ranks that were not recorded.
    #[must_use]
    pub fn missing(&self) -> Vec<Rank> {
        let there: Vec<Rank> = self.members.iter().map(|member| member.rank).collect();
        let missing = |rank: &Rank| there.binary_search(rank).is_err() && !self.copies.contains_key(rank);
        (0..self.ranks).map(Rank).filter(missing).collect()
    }

    /// Takes out ranks that do what others do: they are members of nothing any more. Communicators are as large as they were.
    pub(super) fn take_out(&mut self, copies: BTreeMap<Rank, u64>) {
        self.members.retain(|member| !copies.contains_key(&member.rank));
        for member in self.comms.iter_mut().flat_map(|comm| &mut comm.members) {
            *member = member.filter(|rank| !copies.contains_key(rank));
        }
        self.copies = copies;
    }

    /// A communicator.
    ///
    /// # Panics
    ///
    /// If it is another world's.
    #[must_use]
    pub fn comm(&self, comm: RunCommId) -> &RunComm {
        &self.comms[comm.0 as usize]
    }

    /// The process of a rank.
    #[must_use]
    pub fn member(&self, rank: Rank) -> Option<&RankProcess> {
        self.members.binary_search_by_key(&rank, |member| member.rank).ok().map(|at| &self.members[at])
    }

    /// Finds the communicators. Gives for each process the communicators by [`LocalComm`].
    ///
    /// Parents come before their children in each process, so one pass in the order of births suffices once
    /// the generation of each is known: all processes are walked together, generation by generation.
    fn name(
        &mut self,
        order: &[(Rank, usize)],
        processes: &[(PathBuf, Header, CommListener)],
    ) -> Result<Vec<Vec<RunCommId>>, RunError> {
        const NOT_YET: RunCommId = RunCommId(u32::MAX);
        let mut found: Vec<Vec<RunCommId>> =
            order.iter().map(|&(_, file)| vec![NOT_YET; processes[file].2.comms.len()]).collect();
        loop {
            let mut births: BTreeMap<CommKey<'_>, Vec<(usize, usize)>> = BTreeMap::new();
            for (at, &(_, file)) in order.iter().enumerate() {
                for (local, known) in processes[file].2.comms.iter().enumerate() {
                    if found[at][local] != NOT_YET {
                        continue;
                    }
                    let key = match &known.birth {
                        Birth::Init { id, nth, .. } => CommKey::Id(id, *nth),
                        Birth::Split { parent, nth, color, .. } => {
                            CommKey::Split(found[at][parent.0 as usize], *nth, *color)
                        }
                        Birth::Shrink { parent, nth, .. } => {
                            CommKey::Shrink(found[at][parent.0 as usize], *nth)
                        }
                        Birth::Alone | Birth::NotKnown => CommKey::OfOne(at, local),
                    };
                    if !matches!(key, CommKey::Split(NOT_YET, ..) | CommKey::Shrink(NOT_YET, _)) {
                        births.entry(key).or_default().push((at, local));
                    }
                }
            }
            if births.is_empty() {
                return Ok(found);
            }
            for (key, born) in births {
                let comm = RunCommId(u32::try_from(self.comms.len()).expect("fewer than 2^32 communicators"));
                let known = |(at, local): (usize, usize)| {
                    let (rank, file) = order[at];
                    (rank, &processes[file].0, &processes[file].2.comms[local].birth)
                };
                let named = match key {
                    CommKey::Id(id, nth) => root(id, nth, born.iter().map(|&at| known(at)))?,
                    CommKey::Split(parent, nth, color) => {
                        self.split(parent, nth, color, born.iter().map(|&at| known(at)))
                    }
                    CommKey::Shrink(parent, nth) => {
                        self.shrink(parent, nth, born.iter().map(|&at| known(at)))
                    }
                    CommKey::OfOne(at, local) => {
                        let alone = *known((at, local)).2 == Birth::Alone;
                        let (rank, what) = (order[at].0, if alone { "alone" } else { "that is not known" });
                        RunComm {
                            name: format!("a communicator of rank {} {what}", rank.0),
                            members: if alone { vec![Some(rank)] } else { Vec::new() },
                            whole: alone,
                            parent: None,
                            shrunk: false,
                        }
                    }
                };
                self.comms.push(named);
                for (at, local) in born {
                    found[at][local] = comm;
                }
            }
        }
    }

    fn split<'a>(
        &self,
        parent: RunCommId,
        nth: u32,
        color: i64,
        born: impl Iterator<Item = (Rank, &'a PathBuf, &'a Birth)>,
    ) -> RunComm {
        let of = self.comm(parent);
        let mut members: Vec<(i64, Option<u32>, Rank)> = born
            .map(|(rank, _, birth)| {
                let key = if let Birth::Split { key, .. } = birth { *key } else { 0 };
                (key, of.rank_of(rank), rank)
            })
            .collect();
        members.sort();
        RunComm {
            name: format!("{}/{nth}.{color}", of.name),
            members: members.into_iter().map(|(_, _, rank)| Some(rank)).collect(),
            whole: of.whole,
            parent: Some(parent),
            shrunk: false,
        }
    }

    fn shrink<'a>(
        &self,
        parent: RunCommId,
        nth: u32,
        mut born: impl Iterator<Item = (Rank, &'a PathBuf, &'a Birth)>,
    ) -> RunComm {
        let of = self.comm(parent);
        let excluded: &[u32] = match born.next() {
            Some((_, _, Birth::Shrink { excluded, .. })) => excluded,
            _ => &[],
        };
        let members: Vec<Option<Rank>> = (0_u32..)
            .zip(&of.members)
            .filter(|(rank, _)| !excluded.contains(rank))
            .map(|(_, &member)| member)
            .collect();
        let whole = members.iter().all(Option::is_some);
        RunComm {
            name: format!("{}/{nth}.shrunk", of.name),
            members,
            whole,
            parent: Some(parent),
            shrunk: true,
        }
    }
}

/// What makes a communicator of one process the same as another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CommKey<'a> {
    Id(&'a str, u32),
    Split(RunCommId, u32, i64),
    Shrink(RunCommId, u32),
    /// The n-th communicator of a process, which no other process is known to share.
    OfOne(usize, usize),
}

/// A communicator that was made with a unique id.
fn root<'a>(
    id: &str,
    nth: u32,
    born: impl Iterator<Item = (Rank, &'a PathBuf, &'a Birth)>,
) -> Result<RunComm, RunError> {
    let mut name: String = format!("comm {}", id.get(..8).unwrap_or(id));
    if nth > 0 {
        name = format!("{name} ({})", nth + 1);
    }
    let mut members: Vec<Option<(Rank, &PathBuf)>> = Vec::new();
    let mut size: Option<(u32, &PathBuf)> = None;
    for (world, path, birth) in born {
        let Birth::Init { rank, ranks, .. } = birth else { continue };
        let (first_ranks, first) = *size.get_or_insert((*ranks, path));
        if first_ranks != *ranks {
            return Err(RunError::Sizes {
                id: name,
                first: first.clone(),
                first_ranks,
                second: path.clone(),
                second_ranks: *ranks,
            });
        }
        // A rank outside the communicator is an error of the call, which the run has met by itself.
        if *rank >= *ranks || *ranks > RANKS_MAX {
            continue;
        }
        let at = *rank as usize;
        if members.len() <= at {
            members.resize(at + 1, None);
        }
        if let Some((_, first)) = members[at].replace((world, path)) {
            return Err(RunError::SameRank {
                id: name,
                rank: *rank,
                first: first.clone(),
                second: path.clone(),
            });
        }
    }
    let ranks = size.map_or(0, |(ranks, _)| ranks) as usize;
    if ranks <= RANKS_MAX as usize {
        members.resize(members.len().max(ranks), None);
    }
    let whole = members.len() == ranks && members.iter().all(Option::is_some);
    Ok(RunComm {
        name,
        members: members.into_iter().map(|member| member.map(|(rank, _)| rank)).collect(),
        whole,
        parent: None,
        shrunk: false,
    })
}

fn one_run(processes: &[(PathBuf, Header, CommListener)]) -> Result<(), RunError> {
    let Some((first, header, _)) = processes.first() else { return Ok(()) };
    match processes.iter().find(|(_, other, _)| other.run != header.run) {
        Some((second, other, _)) => Err(RunError::TwoRuns {
            first: first.clone(),
            first_run: header.run.clone(),
            second: second.clone(),
            second_run: other.run.clone(),
        }),
        None => Ok(()),
    }
}

/// The file of each rank, and the files of processes beside them.
fn assign(
    processes: &[(PathBuf, Header, CommListener)],
) -> Result<(BTreeMap<Rank, usize>, Vec<PathBuf>), RunError> {
    let said: Vec<Option<u32>> =
        processes.iter().map(|(_, header, local)| local.noted_rank.or(header.rank)).collect();
    let said: Vec<Option<u32>> = said.into_iter().map(|rank| rank.filter(|&rank| rank < RANKS_MAX)).collect();
    let several = processes.iter().any(|(_, _, local)| local.share.is_some());
    let ranks = if several {
        by_device(processes, &said)
    } else if said.iter().all(Option::is_some) {
        said
    } else {
        by_communicator(processes, said)
    };
    let ranks = with_lenders(processes, ranks);
    let mut by_rank: BTreeMap<Rank, usize> = BTreeMap::new();
    let mut bystanders = Vec::new();
    for (file, rank) in ranks.into_iter().enumerate() {
        let (path, _, local) = &processes[file];
        let Some(rank) = rank else {
            if local.comms.is_empty() && processes.len() > 1 {
                bystanders.push(path.clone());
                continue;
            }
            return Err(RunError::NoRank { path: path.clone(), files: processes.len() });
        };
        let Some(&other) = by_rank.get(&Rank(rank)) else {
            by_rank.insert(Rank(rank), file);
            continue;
        };
        match (processes[other].2.comms.is_empty(), local.comms.is_empty()) {
            (false, true) => bystanders.push(path.clone()),
            (true, false) => {
                by_rank.insert(Rank(rank), file);
                bystanders.push(processes[other].0.clone());
            }
            (true, true) | (false, false) => {
                return Err(RunError::TwoFiles {
                    rank,
                    first: processes[other].0.clone(),
                    second: path.clone(),
                });
            }
        }
    }
    Ok((by_rank, bystanders))
}

/// How many ranks were started, as far as anybody says.
fn started(processes: &[(PathBuf, Header, CommListener)]) -> u32 {
    let said = processes.iter().filter_map(|(_, header, local)| header.ranks.or(local.noted_ranks)).max();
    said.unwrap_or(0).min(RANKS_MAX)
}

/// A process that nobody called a rank, and that lends memory to others or opens theirs, is one behind all others.
fn with_lenders(
    processes: &[(PathBuf, Header, CommListener)],
    mut ranks: Vec<Option<u32>>,
) -> Vec<Option<u32>> {
    let highest = ranks.iter().flatten().max().map_or(0, |highest| highest + 1);
    let mut next = started(processes).max(highest);
    for (rank, (_, _, local)) in ranks.iter_mut().zip(processes) {
        if rank.is_none() && local.comms.is_empty() && local.ipc.shares_memory() {
            *rank = Some(next);
            next += 1;
        }
    }
    ranks
}

/// Ranks where a process is one on each of several devices, so that the launcher's say nothing: those in a communicator that all
/// have, or else in the order of what the launcher said, and of devices.
fn by_device(processes: &[(PathBuf, Header, CommListener)], said: &[Option<u32>]) -> Vec<Option<u32>> {
    let ranks = by_communicator(processes, vec![None; processes.len()]);
    let communicates = |file: usize| !processes[file].2.comms.is_empty();
    if (0..processes.len()).all(|file| ranks[file].is_some() || !communicates(file)) {
        return ranks;
    }
    let mut order: Vec<usize> = (0..processes.len()).filter(|file| communicates(*file)).collect();
    let device = |file: usize| processes[file].2.share.as_ref().map(|share| share.device);
    order.sort_by_key(|file| (said[*file], *file, device(*file)));
    let mut ranks = vec![None; processes.len()];
    for (rank, file) in (0..).zip(order) {
        ranks[file] = Some(rank);
    }
    ranks
}

/// Ranks where the launcher said none: those in a communicator that has all processes that communicate.
fn by_communicator(
    processes: &[(PathBuf, Header, CommListener)],
    said: Vec<Option<u32>>,
) -> Vec<Option<u32>> {
    if processes.len() == 1 {
        return vec![Some(said[0].unwrap_or(0))];
    }
    let communicating = processes.iter().filter(|(_, _, local)| !local.comms.is_empty()).count();
    let mut ids: BTreeMap<&str, Vec<(usize, u32)>> = BTreeMap::new();
    for (file, (_, _, local)) in processes.iter().enumerate() {
        for known in &local.comms {
            if let Birth::Init { id, nth: 0, rank, ranks } = &known.birth
                && *ranks as usize == communicating
            {
                ids.entry(id).or_default().push((file, *rank));
            }
        }
    }
    let Some(all) = ids.into_values().find(|members| members.len() == communicating) else { return said };
    let mut ranks = vec![None; processes.len()];
    for (file, rank) in all {
        ranks[file] = Some(rank);
    }
    ranks
}
