//! The dumps of a job become its launches: brackets are put together, groups of different processes are found to be one,
//! and of each number it is settled what it counts.
//!
//! A dump of active calls lacks those that are over, a ring lacks the oldest, and `pg_status` counts by numbers of its own
//! process; what each of them proves is said where it is used.
//! Not here: what the launches say of the job ([`crate::launches`]).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::folder::{DumpFolder, DumpNote, DumpedJob, display_ranks};
use super::operation::EntryKind;
use super::read::{Dump, DumpEntry, EntryState, GroupProgress, StackFrame, Tensors};
use super::strays::Strays;
use crate::launches::job::{
    CallPlace, CalledKind, DeviceLaunch, GroupAt, GroupReached, JobGroup, KnownPart, LaunchState,
    LaunchedCall, LaunchedJob, NotCompared, Process, What,
};

/// Missing ranks of which each is named.
const MOST_MISSING: u64 = 1 << 20;

/// Calls without one that is over that are taken for a ring's, and not for the active ones alone.
const RING: usize = 1_000;

/// Types of elements: torch's words, and what NCCL is given for them in the words of all reports. Another text is no type
/// that is known. torch gives truth values as bytes, and complex numbers as twice as many of their parts, which the dump
/// does not count.
const DTYPES: [(&str, &str); 24] = [
    ("Byte", "u8"),
    ("Char", "i8"),
    ("Short", "i16"),
    ("Int", "i32"),
    ("Long", "i64"),
    ("Half", "f16"),
    ("Float", "f32"),
    ("Double", "f64"),
    ("ComplexHalf", "complex f16"),
    ("ComplexFloat", "complex f32"),
    ("ComplexDouble", "complex f64"),
    ("Bool", "u8"),
    ("QInt8", "qint8"),
    ("QUInt8", "quint8"),
    ("QInt32", "qint32"),
    ("BFloat16", "bf16"),
    ("Float8_e5m2", "fp8 e5m2"),
    ("Float8_e4m3fn", "fp8 e4m3"),
    ("Float8_e5m2fnuz", "fp8 e5m2fnuz"),
    ("Float8_e4m3fnuz", "fp8 e4m3fnuz"),
    ("Float8_e8m0fnu", "fp8 e8m0"),
    ("UInt16", "u16"),
    ("UInt32", "u32"),
    ("UInt64", "u64"),
];

/// Returns the launches of each job of a folder.
#[must_use]
pub fn jobs(folder: &DumpFolder, source: &Path) -> Vec<LaunchedJob> {
    let several = folder.jobs.len() > 1;
    if folder.jobs.is_empty() {
        // Of dumps that all are damaged, or of nobody, it has to be said.
        let mut job = LaunchedJob { source: source.to_owned(), ..LaunchedJob::default() };
        say(&mut job, folder, &DumpedJob::default());
        return vec![job];
    }
    folder
        .jobs
        .iter()
        .map(|dumped| {
            let mut job = JobBuilder::new(dumped).job();
            job.source = source.to_owned();
            if several && let Some(prefix) = dumped.prefixes.first() {
                job.source = format!("{prefix}*").into();
            }
            say(&mut job, folder, dumped);
            job
        })
        .collect()
}

/// Sorts what is odd about files by whether anything is not known because of it.
fn say(job: &mut LaunchedJob, folder: &DumpFolder, dumped: &DumpedJob) {
    if !job.processes.iter().any(|process| process.timed) {
        job.limits
            .push("what devices had begun is not known (TORCH_NCCL_ENABLE_TIMING was not set)".to_owned());
    }
    job.limits.push("not known: reductions, roots, streams, waits of hosts, kernels".to_owned());
    let of_job = |path: &Path| dumped.ranks.values().any(|rank| rank.path == path);
    for note in &folder.notes {
        match note {
            DumpNote::CutOff { path, .. } if !of_job(path) => {}
            DumpNote::Unreadable { rank: Some(rank), .. } if dumped.ranks.contains_key(rank) => {
                job.notes.push(note.to_string());
            }
            DumpNote::Unreadable { .. } | DumpNote::NoRank { .. } | DumpNote::CutOff { .. } => {
                job.gaps.push(note.to_string());
            }
            DumpNote::RankDisagrees { .. }
            | DumpNote::PrefixesJoined { .. }
            | DumpNote::SeveralJobs { .. }
            | DumpNote::Duplicate { .. }
            | DumpNote::Versions { .. }
            | DumpNote::UnknownFields { .. } => job.notes.push(note.to_string()),
            // A log beside the dumps is nothing odd. What is missing is said of this job alone.
            DumpNote::Ignored { .. } | DumpNote::NoEntries { .. } | DumpNote::Missing { .. } => {}
        }
    }
    job.gaps.extend(dumped.strays.iter().map(ToString::to_string));
    let ranks = without_dump(dumped);
    if !ranks.is_empty() {
        let one = matches!(&ranks[..], [range] if range.start() == range.end());
        job.gaps.push(format!(
            "{} {} {} no dump here that was read",
            if one { "rank" } else { "ranks" },
            display_ranks(&ranks),
            if one { "has" } else { "have" }
        ));
    }
}

/// The ranks of which there is no dump at all, not even one that is not used.
fn without_dump(dumped: &DumpedJob) -> Vec<RangeInclusive<u32>> {
    let mut missing = dumped.missing.clone();
    for rank in dumped.strays.iter().flat_map(Strays::ranks) {
        let Some(at) = missing.iter().position(|range| range.contains(&rank)) else { continue };
        let (from, to) = missing.remove(at).into_inner();
        let parts = [(from, rank.checked_sub(1)), (rank.saturating_add(1), Some(to))];
        let parts = parts.into_iter().filter_map(|(from, to)| Some(from..=to?));
        missing.splice(at..at, parts.filter(|part| !part.is_empty()));
    }
    missing
}

struct JobBuilder<'a> {
    dumped: &'a DumpedJob,
    groups: Vec<JobGroup>,
    at: FxHashMap<(Arc<str>, Arc<[u32]>), GroupAt>,
    /// The groups of each rank by name, as its dump has them.
    names: FxHashMap<(u32, Arc<str>), GroupAt>,
    /// Groups in which anybody transferred anything.
    transfers: FxHashSet<GroupAt>,
    /// Groups in which anybody put calls into brackets.
    brackets: FxHashSet<GroupAt>,
    /// Groups whose collective numbers count transfers too.
    miscounted: FxHashSet<GroupAt>,
    words: FxHashMap<Arc<str>, Arc<str>>,
    dtypes: FxHashMap<&'static str, Arc<str>>,
    places: FxHashMap<*const StackFrame, Option<CallPlace>>,
    left_out: FxHashMap<NotCompared, u64>,
    gaps: Vec<String>,
}

/// What an entry is in.
struct LocatedEntry<'a> {
    entry: &'a DumpEntry,
    group: GroupAt,
}

impl<'a> JobBuilder<'a> {
    fn new(dumped: &'a DumpedJob) -> Self {
        let mut builder = Self {
            dumped,
            groups: Vec::new(),
            at: FxHashMap::default(),
            names: FxHashMap::default(),
            transfers: FxHashSet::default(),
            brackets: FxHashSet::default(),
            miscounted: FxHashSet::default(),
            words: FxHashMap::default(),
            dtypes: FxHashMap::default(),
            places: FxHashMap::default(),
            left_out: FxHashMap::default(),
            gaps: Vec::new(),
        };
        for (rank, dump) in &dumped.ranks {
            for group in &dump.dump.groups {
                let Some(ranks) = group.ranks.as_ref().filter(|ranks| ranks.contains(rank)) else { continue };
                let at = builder.group(&group.name, group.desc.as_ref(), ranks);
                builder.names.insert((*rank, Arc::clone(&group.name)), at);
            }
        }
        builder
    }

    fn group(&mut self, name: &Arc<str>, desc: Option<&Arc<str>>, ranks: &Arc<[u32]>) -> GroupAt {
        let groups = &mut self.groups;
        *self.at.entry((Arc::clone(name), Arc::clone(ranks))).or_insert_with(|| {
            let (name, ranks) = (Arc::clone(name), Arc::clone(ranks));
            groups.push(JobGroup { noun: "group", name, desc: desc.cloned(), ranks });
            GroupAt(u32::try_from(groups.len() - 1).expect("fewer than 2^32 groups"))
        })
    }

    /// The group of an entry's name: as its dump has it, or the only one of that name that the rank can be in.
    fn group_of(&mut self, rank: u32, name: &Arc<str>, desc: &Arc<str>) -> GroupAt {
        if let Some(at) = self.names.get(&(rank, Arc::clone(name))) {
            return *at;
        }
        let mut named = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.name == *name && group.ranks.contains(&rank));
        let at = match (named.next(), named.next()) {
            (Some((at, _)), None) => GroupAt(u32::try_from(at).expect("fewer than 2^32 groups")),
            (_, _) => self.group(name, Some(desc), &Arc::from(Vec::new())),
        };
        self.names.insert((rank, Arc::clone(name)), at);
        at
    }

    fn job(mut self) -> LaunchedJob {
        let located = self.locate();
        let mut processes: Vec<Process> = Vec::new();
        let mut latest: Vec<i64> = Vec::new();
        for (rank, dump) in &self.dumped.ranks {
            let entries = &located[rank];
            let mut process = self.process(*rank, &dump.dump, entries);
            if process.known != KnownPart::Nothing {
                let times = |entry: &DumpEntry| {
                    [Some(entry.time_created_ns), entry.time_started_ns, entry.time_completed_ns]
                };
                process.latest = dump.dump.entries.iter().flat_map(times).flatten().max();
                latest.extend(process.latest);
            }
            processes.push(process);
        }
        let has_progress = self.dumped.ranks.values().any(|rank| !rank.dump.progress.is_empty());
        for (process, dump) in processes.iter_mut().zip(self.dumped.ranks.values()) {
            if process.known != KnownPart::Nothing {
                self.reach(process, &dump.dump, has_progress, &located[&process.rank]);
            }
        }
        let mut ranks: BTreeSet<u32> =
            self.groups.iter().flat_map(|group| group.ranks.iter().copied()).collect();
        let missing: u64 =
            self.dumped.missing.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
        if missing < MOST_MISSING {
            ranks.extend(self.dumped.missing.iter().flat_map(Clone::clone));
        }
        for rank in ranks {
            if !self.dumped.ranks.contains_key(&rank) {
                processes.push(Process { rank, ..Process::default() });
            }
        }
        processes.sort_by_key(|process| process.rank);
        // One clock may be wrong: a time counts that two of them have reached.
        latest.sort_unstable_by(|one, other| other.cmp(one));
        let library = self.dumped.ranks.values().find_map(|rank| rank.dump.comm_lib_version.clone());
        LaunchedJob {
            groups: self.groups,
            processes,
            latest: latest.get(1).or(latest.first()).copied(),
            library,
            gaps: self.gaps,
            left_out: self.left_out,
            ..LaunchedJob::default()
        }
    }

    /// Finds the group of every entry, and what groups are used for.
    fn locate(&mut self) -> FxHashMap<u32, Vec<LocatedEntry<'a>>> {
        let mut located = FxHashMap::default();
        for (rank, dump) in &self.dumped.ranks {
            let mut ids: FxHashMap<&Arc<str>, i64> = FxHashMap::default();
            let mut twice: FxHashSet<&Arc<str>> = FxHashSet::default();
            for entry in &dump.dump.entries {
                if *ids.entry(&entry.group).or_insert(entry.pg_id) != entry.pg_id {
                    twice.insert(&entry.group);
                }
            }
            // Of two groups of one name, a dump has the members of one, and does not say of which.
            for name in twice {
                let unknown = self.group(name, None, &Arc::from(Vec::new()));
                self.names.insert((*rank, Arc::clone(name)), unknown);
            }
            let torchcomms = is_torchcomms(&dump.dump);
            let mut last: Option<(&Arc<str>, GroupAt)> = None;
            let mut entries: Vec<LocatedEntry<'a>> = Vec::with_capacity(dump.dump.entries.len());
            let mut before: FxHashMap<GroupAt, &DumpEntry> = FxHashMap::default();
            for entry in &dump.dump.entries {
                let group = match last {
                    Some((name, group)) if Arc::ptr_eq(name, &entry.group) => group,
                    Some(_) | None => self.group_of(*rank, &entry.group, &entry.group_desc),
                };
                last = Some((&entry.group, group));
                if is_transfer(entry) {
                    self.transfers.insert(group);
                    // Until torch 2.5 a batch counted as a collective, and not as a transfer.
                    if entry.p2p_seq_id == 0 && !torchcomms {
                        self.miscounted.insert(group);
                    }
                    let previous = before.get(&group);
                    if previous.is_some_and(|previous| {
                        previous.collective_seq_id < entry.collective_seq_id
                            && previous.op_id + 1 >= entry.op_id
                            && entry.is_p2p != Some(false)
                    }) {
                        self.miscounted.insert(group);
                    }
                }
                // Calls of one launch share their number; its end may be gone.
                let shares = |previous: &&DumpEntry| {
                    is_transfer(previous) && is_transfer(entry) && previous.p2p_seq_id == entry.p2p_seq_id
                };
                let ends = entry.name.kind == EntryKind::Coalesced && entry.is_p2p == Some(true);
                if ends || entry.is_p2p == Some(true) && before.get(&group).is_some_and(shares) {
                    self.brackets.insert(group);
                }
                before.insert(group, entry);
                entries.push(LocatedEntry { entry, group });
            }
            located.insert(*rank, entries);
        }
        // What a program calls alike it uses alike.
        let desc =
            |at: &GroupAt| self.groups[at.0 as usize].desc.clone().filter(|desc| &**desc != "undefined");
        let used: FxHashSet<Arc<str>> = self.brackets.iter().filter_map(desc).collect();
        let alike = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.desc.as_ref().is_some_and(|desc| used.contains(desc)));
        let alike: Vec<GroupAt> =
            alike.map(|(at, _)| GroupAt(u32::try_from(at).expect("fewer than 2^32 groups"))).collect();
        self.brackets.extend(alike);
        located
    }

    fn process(&mut self, rank: u32, dump: &Dump, entries: &[LocatedEntry<'_>]) -> Process {
        let contiguous = dump.entries.windows(2).all(|pair| pair[0].record_id + 1 == pair[1].record_id);
        let active_only = is_active_only(dump, contiguous);
        let torchcomms = is_torchcomms(dump);
        let from_start =
            contiguous && !active_only && dump.entries.first().is_none_or(|first| first.record_id == 0);
        let one_counter = counts_all_groups(dump, contiguous);
        if let Some(why) = contradiction(entries, one_counter) {
            self.gaps.push(format!("rank {rank}: its dump contradicts itself and is not used: {why}"));
            return Process { rank, ..Process::default() };
        }
        let known = if dump.cut.is_some() { KnownPart::Partly } else { KnownPart::Whole };
        let timed = dump
            .entries
            .iter()
            .any(|entry| entry.state == EntryState::Started || entry.time_started_ns.is_some())
            || dump.progress.values().any(|progress| progress.last_started.is_some_and(|last| last >= 0));
        let mut process = Process {
            rank,
            known,
            from_start: from_start && !dump.entries.is_empty(),
            timed,
            ..Process::default()
        };
        let mut open: FxHashMap<GroupAt, OpenLaunch> = FxHashMap::default();
        let mut ordinals: FxHashMap<GroupAt, (u64, u64)> = FxHashMap::default();
        let one_peer = one_peer(entries);
        for LocatedEntry { entry, group } in entries {
            let miscounted = self.miscounted.contains(group);
            let key = Key::of(entry, miscounted);
            if entry.name.kind == EntryKind::Coalesced {
                match open.remove(group) {
                    Some(open) if open.key.ends_with(entry) => {
                        end_launch(&mut process.launches[open.at], entry, torchcomms)
                    }
                    other => {
                        self.close(other, &mut process);
                        let mut launch = launch_of(*group, entry, torchcomms);
                        launch.calls.push(self.call(rank, *group, entry, None));
                        process.launches.push(launch);
                    }
                }
                continue;
            }
            let number = match is_collective(entry) {
                false => None,
                true if (one_counter || miscounted) && from_start => {
                    // Those of a bracket have one number.
                    let (ordinal, last) = ordinals.entry(*group).or_default();
                    *ordinal += u64::from(*ordinal == 0 || *last != entry.collective_seq_id);
                    *last = entry.collective_seq_id;
                    Some(*ordinal)
                }
                true if one_counter || miscounted => {
                    *self.left_out.entry(NotCompared::Numbers).or_default() += 1;
                    None
                }
                true => Some(entry.collective_seq_id),
            };
            let call = self.call(rank, *group, entry, number);
            if let Some(inside) = open.get_mut(group).filter(|open| open.key == key && !one_counter) {
                process.launches[inside.at].calls.push(call);
                inside.inside = Inside::Bracket;
                continue;
            }
            self.close(open.remove(group), &mut process);
            let mut launch = launch_of(*group, entry, torchcomms);
            launch.calls.push(call);
            process.launches.push(launch);
            let alone = !in_bracket(entry);
            let may_be_inside = is_transfer(entry)
                && active_only
                && (self.brackets.contains(group) || one_peer.contains(group));
            // The status counts them by their own numbers, if those are beyond the collectives'. What a communicator has
            // done is done in order: a bracket on the group's, and transfers with one peer on one.
            let completed = dump.progress.get(&entry.pg_id).and_then(|progress| progress.last_completed);
            let completed = completed.and_then(|completed| u64::try_from(completed).ok());
            let passed = completed.is_some_and(|completed| {
                completed > entry.collective_seq_id && entry.p2p_seq_id <= completed
            });
            let inside = match (alone, may_be_inside) {
                (false, _) => Inside::Bracket,
                (true, true) if passed => Inside::Bracket,
                (true, true) if self.brackets.contains(group) => Inside::NotKnown,
                (true, _) => Inside::Nothing,
            };
            open.insert(*group, OpenLaunch { key, at: process.launches.len() - 1, inside, active_only });
        }
        for (_, left) in open {
            self.close(Some(left), &mut process);
        }
        if let Some(oldest) = process.launches.first_mut().filter(|_| !from_start && !active_only) {
            oldest.cut = may_be_cut(entries, oldest.calls.len());
        }
        if !torchcomms {
            process.all_transfers = all_transfers(dump, entries);
        }
        process.lost_may_be_open = !from_start && contiguous && lost_may_be_open(dump, &process, active_only);
        process
    }

    /// Calls of a bracket stay scheduled for ever, and its end, which has the state, is written down when it is launched. So
    /// where only active calls are written and the end is not there, it is over. Where all are, the ring may have lost it,
    /// or the host may be inside.
    fn close(&mut self, open: Option<OpenLaunch>, process: &mut Process) {
        let Some(open) = open.filter(|open| open.inside != Inside::Nothing) else { return };
        let launch = &mut process.launches[open.at];
        if !launch.state.is_open() {
            return;
        }
        if open.active_only && open.inside == Inside::Bracket {
            launch.state = LaunchState::Done;
        } else {
            launch.state = LaunchState::Unclear;
            *self.left_out.entry(NotCompared::Inside).or_default() += launch.calls.len() as u64;
        }
    }

    fn call(&mut self, rank: u32, group: GroupAt, entry: &DumpEntry, number: Option<u64>) -> LaunchedCall {
        let word =
            self.words.entry(Arc::clone(&entry.name.text)).or_insert_with(|| Arc::from(entry.name.word()));
        let word = Arc::clone(word);
        let ranks = &self.groups[group.0 as usize].ranks;
        let what = match entry.name.kind {
            EntryKind::Send(peers) | EntryKind::Recv(peers) => {
                let sends = matches!(entry.name.kind, EntryKind::Send(_));
                let (own, peer) = peers.map_or((None, None), |peers| {
                    let of = |place: u32| ranks.get(place as usize).copied();
                    if sends { (of(peers.from), of(peers.to)) } else { (of(peers.to), of(peers.from)) }
                });
                match peer.filter(|_| own == Some(rank)) {
                    Some(peer) if sends => What::Send(peer),
                    Some(peer) => What::Recv(peer),
                    None => What::Unknown,
                }
            }
            EntryKind::AllReduce => What::Collective(CalledKind::AllReduce),
            EntryKind::Broadcast => What::Collective(CalledKind::Broadcast),
            EntryKind::Reduce => What::Collective(CalledKind::Reduce),
            EntryKind::AllGather => What::Collective(CalledKind::AllGather),
            EntryKind::ReduceScatter => What::Collective(CalledKind::ReduceScatter),
            EntryKind::AllToAll => What::Collective(CalledKind::AllToAll),
            EntryKind::Gather => What::Collective(CalledKind::Gather),
            EntryKind::Scatter => What::Collective(CalledKind::Scatter),
            // torch's barrier is an all-reduce of one element, and NCCL cannot tell it from another.
            EntryKind::Barrier if &*word == "all_reduce_barrier" => What::Collective(CalledKind::AllReduce),
            EntryKind::Barrier => What::Collective(CalledKind::Barrier),
            EntryKind::Split | EntryKind::NewWindow | EntryKind::Other => What::Collective(CalledKind::Named),
            EntryKind::Coalesced => What::Unknown,
        };
        if ranks.is_empty() {
            *self.left_out.entry(NotCompared::Members).or_default() += 1;
        } else if what == What::Unknown && is_transfer(entry) {
            *self.left_out.entry(NotCompared::Peers).or_default() += 1;
        }
        let (elements, dtype) = operands(entry, what, ranks.len());
        let dtype = dtype.map(|dtype| Arc::clone(self.dtypes.entry(dtype).or_insert_with(|| dtype.into())));
        let place = self.place(entry);
        LaunchedCall { word, what, number, elements, dtype, reduction: None, root: None, place }
    }

    /// The innermost line that is the program's own, or else the innermost.
    fn place(&mut self, entry: &DumpEntry) -> Option<CallPlace> {
        let frames = entry.frames.as_ref().filter(|frames| !frames.is_empty())?;
        let place = self.places.entry(frames.as_ptr()).or_insert_with(|| {
            let own = frames.iter().find(|frame| is_own(&frame.file));
            let frame = own.or(frames.first())?;
            Some(CallPlace { file: Arc::clone(&frame.file), line: frame.line })
        });
        place.clone()
    }

    /// Settles how far a process came with the collectives of each group.
    fn reach(&self, process: &mut Process, dump: &Dump, has_progress: bool, entries: &[LocatedEntry<'_>]) {
        let contiguous = dump.entries.windows(2).all(|pair| pair[0].record_id + 1 == pair[1].record_id);
        let active_only = is_active_only(dump, contiguous);
        let one_counter = counts_all_groups(dump, contiguous);
        let status = self.status(process.rank, dump, entries);
        let mut last: FxHashMap<GroupAt, &DumpEntry> = FxHashMap::default();
        for LocatedEntry { entry, group } in entries {
            last.insert(*group, entry);
        }
        let groups: BTreeSet<GroupAt> = self
            .names
            .iter()
            .filter(|((rank, _), at)| *rank == process.rank && !self.groups[at.0 as usize].ranks.is_empty())
            .map(|(_, at)| *at)
            .collect();
        let mut numbers: FxHashMap<GroupAt, (u64, u64)> = FxHashMap::default();
        let mut finished: FxHashMap<GroupAt, u64> = FxHashMap::default();
        for launch in &process.launches {
            for number in launch.calls.iter().filter_map(|call| call.number) {
                let (first, last) = numbers.entry(launch.group).or_insert((number, number));
                (*first, *last) = ((*first).min(number), (*last).max(number));
                if launch.state == LaunchState::Done {
                    let finished = finished.entry(launch.group).or_default();
                    *finished = (*finished).max(number);
                }
            }
        }
        for group in groups {
            let miscounted = self.miscounted.contains(&group);
            if miscounted && !process.from_start {
                continue;
            }
            let mut reached =
                GroupReached { launched: None, finished: finished.get(&group).copied(), left: false };
            let range = numbers.get(&group);
            if one_counter || miscounted {
                if process.from_start {
                    reached.launched = Some(range.map_or(0, |(_, last)| *last));
                }
                process.reached.insert(group, reached);
                continue;
            }
            let entry = last.get(&group);
            reached.launched = entry.map(|entry| entry.collective_seq_id);
            let used = self.transfers.contains(&group);
            if let Some(progress) = status.get(&group) {
                let transfers = entry.map(|entry| entry.p2p_seq_id);
                let collectives = entry.map(|entry| entry.collective_seq_id);
                // The numbers of transfers are mixed into it.
                let counts = |count: Option<i64>| {
                    let count = match count? {
                        // Where nothing was called yet.
                        -1 => return Some(0),
                        count => u64::try_from(count).ok()?,
                    };
                    let not_transfers =
                        transfers.map_or(!used, |transfers| count > transfers || transfers == 0);
                    let possible = collectives.is_none_or(|collectives| count <= collectives);
                    (not_transfers && possible).then_some(count)
                };
                reached.launched = reached.launched.max(counts(progress.last_enqueued));
                reached.finished = reached.finished.max(counts(progress.last_completed));
            } else if entry.is_none()
                && (has_progress || process.from_start)
                && process.known == KnownPart::Whole
            {
                // It never called anything in this group.
                (reached.launched, reached.finished) = (Some(0), Some(0));
            }
            if active_only
                && !process.lost_may_be_open
                && process.known == KnownPart::Whole
                && entry.is_some()
            {
                // What is not there is over.
                let over = range.map_or(reached.launched, |(first, _)| first.checked_sub(1));
                reached.finished = reached.finished.max(over);
            }
            process.reached.insert(group, reached);
        }
    }

    /// The status of each group of a rank. It is kept by the number of a group in its process, which the process's calls
    /// give. Where they do not, numbers are in the order in which groups were made, and so are their names if torch gave
    /// them; all of them have to fit.
    fn status(
        &self,
        rank: u32,
        dump: &Dump,
        entries: &[LocatedEntry<'_>],
    ) -> FxHashMap<GroupAt, GroupProgress> {
        let called: FxHashMap<i64, GroupAt> =
            entries.iter().map(|LocatedEntry { entry, group }| (entry.pg_id, *group)).collect();
        let mut status: FxHashMap<GroupAt, _> = FxHashMap::default();
        for (id, progress) in &dump.progress {
            if let Some(group) = called.get(id) {
                status.insert(*group, *progress);
            }
        }
        let names: Option<Vec<(u64, &Arc<str>)>> =
            dump.groups.iter().map(|group| Some((group.name.parse().ok()?, &group.name))).collect();
        let Some(mut names) = names else { return status };
        names.sort_unstable();
        let groups: Vec<Option<GroupAt>> =
            names.iter().map(|(_, name)| self.names.get(&(rank, Arc::clone(name))).copied()).collect();
        let by_order: Vec<(i64, Option<GroupAt>)> = if groups.len() == dump.progress.len() {
            dump.progress.keys().copied().zip(groups).collect()
        } else {
            // Those that were never used have no status: then the numbers have to be those of all groups.
            (0..).zip(groups).collect()
        };
        let fits = |id: &i64| by_order.iter().any(|(other, _)| other == id);
        let contradicts = |(id, group): &(i64, Option<GroupAt>)| {
            called.get(id).is_some_and(|called| Some(*called) != *group)
        };
        if by_order.iter().any(contradicts) || !dump.progress.keys().all(fits) {
            return status;
        }
        for (id, group) in by_order {
            if let (Some(group), Some(progress)) = (group, dump.progress.get(&id)) {
                status.entry(group).or_insert(*progress);
            }
        }
        status
    }
}

/// A launch that calls may be added to.
struct OpenLaunch {
    key: Key,
    at: usize,
    inside: Inside,
    /// Whether its process wrote active calls only.
    active_only: bool,
}

/// Whether a call is inside a bracket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Bracket,
    NotKnown,
}

/// What the calls of one bracket share: each launch has a number of its own among those of its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    transfers: bool,
    collective: u64,
    transfer: u64,
}

impl Key {
    fn of(entry: &DumpEntry, miscounted: bool) -> Self {
        let transfers = is_transfer(entry);
        // Only its own kind's number belongs to a launch, if it counts those.
        let (collective, transfer) = match transfers {
            true if miscounted => (entry.collective_seq_id, entry.p2p_seq_id),
            true => (0, entry.p2p_seq_id),
            false => (entry.collective_seq_id, 0),
        };
        Self { transfers, collective, transfer }
    }

    fn ends_with(self, end: &DumpEntry) -> bool {
        match self.transfers {
            true => {
                let counted = self.collective == 0 || self.collective == end.collective_seq_id;
                counted && self.transfer == end.p2p_seq_id
            }
            false => self.collective == end.collective_seq_id,
        }
    }
}

fn is_transfer(entry: &DumpEntry) -> bool {
    matches!(entry.name.kind, EntryKind::Send(_) | EntryKind::Recv(_))
}

fn is_collective(entry: &DumpEntry) -> bool {
    !is_transfer(entry) && entry.name.kind != EntryKind::Coalesced
}

/// Returns whether calls that are over seem to have been left out: none is there, and there were some, or there are gaps.
fn is_active_only(dump: &Dump, contiguous: bool) -> bool {
    let from_start = contiguous && dump.entries.first().is_none_or(|first| first.record_id == 0);
    let ring = contiguous && dump.entries.len() >= RING;
    let over = dump.progress.values().any(|progress| progress.last_completed.is_some_and(|last| last > 0));
    let torchcomms = is_torchcomms(dump);
    dump.entries.iter().all(|entry| state_of(entry, torchcomms) != LaunchState::Done)
        && (over || !from_start && !ring)
}

/// Returns the groups of which all transfers of a process are there: the first is the first of all calls but collectives, each
/// that follows has the next number, and nothing was launched behind the last call that is there.
fn all_transfers(dump: &Dump, entries: &[LocatedEntry<'_>]) -> FxHashSet<GroupAt> {
    let mut of_groups: FxHashMap<GroupAt, Vec<&DumpEntry>> = FxHashMap::default();
    for LocatedEntry { entry, group } in entries {
        of_groups.entry(*group).or_default().push(entry);
    }
    let is_whole = |entries: &[&DumpEntry]| {
        let mut transfers = entries.iter().filter(|entry| is_transfer(entry));
        let Some((first, last)) = transfers.next().zip(entries.last()) else { return false };
        let begins = first.p2p_seq_id == 1 && first.op_id == first.collective_seq_id + 1;
        let mut number = first.p2p_seq_id;
        let mut counted =
            transfers.all(|entry| std::mem::replace(&mut number, entry.p2p_seq_id) + 1 >= entry.p2p_seq_id);
        counted &= number == last.p2p_seq_id;
        let launched = if is_collective(last) { last.collective_seq_id } else { last.p2p_seq_id };
        let enqueued = dump.progress.get(&last.pg_id).and_then(|progress| progress.last_enqueued);
        begins && counted && enqueued.and_then(|enqueued| u64::try_from(enqueued).ok()) == Some(launched)
    };
    of_groups.into_iter().filter(|(_, entries)| is_whole(entries)).map(|(group, _)| group).collect()
}

/// Returns whether the oldest launch of a dump that has lost its first calls, of which so many are there, is a bracket: a ring drops
/// one call after the other, and may have dropped some of it.
fn may_be_cut(entries: &[LocatedEntry<'_>], calls: usize) -> bool {
    let Some(first) = entries.first() else { return false };
    let mut of_group = entries.iter().filter(|other| other.group == first.group);
    let behind = of_group.nth(calls).map(|behind| behind.entry);
    calls > 1
        || in_bracket(first.entry)
        || behind.is_some_and(|behind| behind.name.kind == EntryKind::Coalesced)
}

/// Returns whether a ring that has lost its first calls may have lost some that are not over: the oldest that it kept is not.
/// Where all that is there is open, it may also be that active calls alone were written. Then the status of each group says
/// that what was before its calls is over, and a bracket is whole.
fn lost_may_be_open(dump: &Dump, process: &Process, active_only: bool) -> bool {
    let (Some(entry), Some(oldest)) = (dump.entries.first(), process.launches.first()) else { return false };
    if oldest.state == LaunchState::Done {
        return false;
    }
    if !active_only {
        return true;
    }
    let bracket = oldest.calls.len() + 1;
    if dump.entries.iter().take(bracket).any(|entry| entry.name.kind == EntryKind::Coalesced)
        && entry.op_id > 1
    {
        return true;
    }
    let mut first: FxHashMap<i64, &DumpEntry> = FxHashMap::default();
    for entry in &dump.entries {
        first.entry(entry.pg_id).or_insert(entry);
    }
    let is_over = |entry: &DumpEntry| {
        let (collectives, transfers) = match is_transfer(entry) {
            true => (entry.collective_seq_id, entry.p2p_seq_id.saturating_sub(1)),
            false => (entry.collective_seq_id.saturating_sub(1), entry.p2p_seq_id),
        };
        let completed = dump.progress.get(&entry.pg_id).and_then(|progress| progress.last_completed);
        // The status does not say which of the two it counts: it is a number of one that the other never came to.
        let is_last = |completed: u64| {
            let of = |own: u64, other: u64| completed == own && (other == 0 || completed > other);
            of(collectives, transfers) || of(transfers, collectives)
        };
        // Nothing of its group was before it, or it is known to be over.
        entry.op_id <= 1 || completed.and_then(|completed| u64::try_from(completed).ok()).is_some_and(is_last)
    };
    let all_gone_over = |(id, progress): (&i64, &GroupProgress)| {
        first.contains_key(id) || progress.last_enqueued == progress.last_completed
    };
    !first.values().all(|entry| is_over(entry)) || !dump.progress.iter().all(all_gone_over)
}

/// Returns whether torchcomms wrote a dump, and not torch: what it calls a group is the backend, which its calls name too, and it
/// has no numbers of transfers.
fn is_torchcomms(dump: &Dump) -> bool {
    let by_it = |entry: &DumpEntry| {
        let backend = entry.name.backend();
        !backend.is_empty() && *entry.group_desc == *backend && entry.p2p_seq_id == 0
    };
    !dump.entries.is_empty() && dump.entries.iter().all(by_it)
}

/// Returns whether one number counts the calls of all groups together, as in torchcomms.
fn counts_all_groups(dump: &Dump, contiguous: bool) -> bool {
    let unnamed = |entry: &DumpEntry| is_transfer(entry) && entry.name.kind.peers().is_none();
    let several = || {
        let first = dump.entries.first().map(|entry| entry.pg_id);
        dump.entries.iter().any(|entry| Some(entry.pg_id) != first)
    };
    let counted =
        || dump.entries.windows(2).all(|pair| pair[0].collective_seq_id + 1 == pair[1].collective_seq_id);
    is_torchcomms(dump)
        || dump.entries.iter().any(unnamed)
        || dump.entries.len() > 2 && contiguous && several() && counted()
}

/// Returns the groups in which a process transfers with one peer alone.
fn one_peer(entries: &[LocatedEntry<'_>]) -> FxHashSet<GroupAt> {
    let mut peers: FxHashMap<GroupAt, FxHashSet<u32>> = FxHashMap::default();
    for LocatedEntry { entry, group } in entries {
        let Some(of) = entry.name.kind.peers() else { continue };
        let caller = entry.name.kind.caller();
        peers.entry(*group).or_default().insert(if caller == Some(of.from) { of.to } else { of.from });
    }
    peers.into_iter().filter(|(_, peers)| peers.len() == 1).map(|(group, _)| group).collect()
}

/// Returns in what the numbers of a dump contradict one another.
fn contradiction(entries: &[LocatedEntry<'_>], one_counter: bool) -> Option<String> {
    let mut last: FxHashMap<GroupAt, &DumpEntry> = FxHashMap::default();
    let mut record = None;
    for LocatedEntry { entry, group } in entries {
        if record.replace(entry.record_id).is_some_and(|before| before >= entry.record_id) {
            return Some(format!("call {} comes behind a later one", entry.record_id));
        }
        let Some(before) = last.insert(*group, entry) else { continue };
        let back = before.collective_seq_id > entry.collective_seq_id
            || before.p2p_seq_id > entry.p2p_seq_id
            || before.op_id > entry.op_id;
        let calls = entry.op_id.saturating_sub(before.op_id);
        let counted = entry.collective_seq_id.saturating_sub(before.collective_seq_id);
        let counted = counted.saturating_add(entry.p2p_seq_id.saturating_sub(before.p2p_seq_id));
        if back || !one_counter && counted > calls.saturating_mul(2) {
            return Some(format!("call {} does not go on with the numbers of its group", entry.record_id));
        }
    }
    None
}

/// How far a call has come. torchcomms retires what is over, and does not look at its events again, so that it may read as
/// begun for ever.
fn state_of(entry: &DumpEntry, torchcomms: bool) -> LaunchState {
    match entry.state {
        EntryState::Scheduled | EntryState::Started if torchcomms && entry.retired => LaunchState::Done,
        EntryState::Scheduled => LaunchState::Open,
        EntryState::Started => LaunchState::Begun,
        EntryState::Completed => LaunchState::Done,
    }
}

fn launch_of(group: GroupAt, entry: &DumpEntry, torchcomms: bool) -> DeviceLaunch {
    let mut launch = DeviceLaunch {
        group,
        calls: Vec::new(),
        cut: false,
        state: LaunchState::Open,
        created: Some(entry.time_created_ns),
        stream: None,
        finished: None,
        deadline: None,
        timed_out: false,
    };
    end_launch(&mut launch, entry, torchcomms);
    launch
}

/// What the entry that stands for a launch says of it: its own, or the end of its bracket.
fn end_launch(launch: &mut DeviceLaunch, entry: &DumpEntry, torchcomms: bool) {
    launch.state = state_of(entry, torchcomms);
    launch.finished = entry.time_completed_ns;
    launch.timed_out = entry.retired && launch.state.is_open();
    // torchcomms writes ten minutes for every call, whatever its timeout is.
    let timeout = entry.timeout_ms.filter(|timeout| *timeout > 0 && !torchcomms);
    launch.deadline =
        timeout.and_then(|timeout| entry.time_created_ns.checked_add(timeout.checked_mul(1_000_000)?));
}

/// Returns whether the stack of a call says that it is inside a bracket.
fn in_bracket(entry: &DumpEntry) -> bool {
    let manages =
        |frame: &StackFrame| matches!(&*frame.function, "batch_isend_irecv" | "_coalescing_manager");
    entry.frames.as_ref().is_some_and(|frames| frames.iter().any(manages))
}

/// Returns whether a file is neither torch's, nor Python's, nor of an installed package.
fn is_own(file: &str) -> bool {
    const OTHERS: [&str; 9] = [
        "/site-packages/",
        "/dist-packages/",
        "/lib/python3",
        "/torch/distributed/",
        "/torch/nn/",
        "/torch/autograd/",
        "/torch/utils/",
        "/torch/_",
        "/rankcheck_record/",
    ];
    const ENDINGS: [&str; 6] = [".cpp", ".h", ".hpp", ".c", ".cc", ".so"];
    !file.starts_with('<')
        && file != "??"
        && !OTHERS.iter().any(|part| file.contains(part))
        && !ENDINGS.iter().any(|ending| file.ends_with(ending))
}

/// Returns the elements and the type on which those who take part have to agree. What goes in and what comes out have to
/// fit; if they do not, they are not known.
fn operands(entry: &DumpEntry, what: What, members: usize) -> (Option<u64>, Option<&'static str>) {
    let dtype = |tensors: &Tensors| {
        let torch = tensors.dtypes.as_ref().and_then(|dtypes| dtypes.first())?;
        DTYPES.iter().find(|(word, _)| *word == &**torch).map(|(_, name)| *name)
    };
    let there = |tensors: &Tensors| (!tensors.sizes.is_empty()).then(|| tensors.elements()).flatten();
    let (inputs, outputs) = (there(&entry.inputs), there(&entry.outputs));
    let members = members as u64;
    // The one side, and how many times larger each is.
    let agreed = |(one, times): (Option<u64>, u64), (other, of_other): (Option<u64>, u64)| {
        let one_part = one.map(|one| one.checked_mul(times));
        let other_part = other.map(|other| other.checked_mul(of_other));
        (one_part.is_none() || other_part.is_none() || one_part == other_part).then_some(())
    };
    let elements = match what {
        What::Collective(CalledKind::AllToAll | CalledKind::Barrier | CalledKind::Named) | What::Unknown => {
            None
        }
        What::Collective(CalledKind::AllReduce | CalledKind::Broadcast | CalledKind::Reduce)
        | What::Send(_)
        | What::Recv(_) => agreed((inputs, 1), (outputs, 1)).and(inputs.or(outputs)),
        What::Collective(CalledKind::AllGather | CalledKind::Gather) => {
            agreed((inputs, members), (outputs, 1)).and(inputs)
        }
        What::Collective(CalledKind::ReduceScatter | CalledKind::Scatter) => {
            agreed((inputs, 1), (outputs, members)).and(outputs)
        }
    };
    let dtype = match what {
        What::Collective(CalledKind::Barrier | CalledKind::Named) | What::Unknown => None,
        What::Collective(_) | What::Send(_) | What::Recv(_) => {
            let (input, output) = (dtype(&entry.inputs), dtype(&entry.outputs));
            let differ = input.is_some() && output.is_some() && input != output;
            if differ { None } else { input.or(output) }
        }
    };
    (elements, dtype)
}
