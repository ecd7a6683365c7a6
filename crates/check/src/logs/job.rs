//! The processes of logs become the ranks of jobs: communicators of different processes are found to be one, and each
//! call gets its number among those of its communicator.
//!
//! All members print one `commId`. A communicator that was split from another is known by that one, by how many were
//! split from it before, and by its color. Where a version prints less than that, communicators are one only if their
//! ranks fit together without a gap; else their calls are not compared.
//! `opCount` is not used: since NCCL 2.8 it counts launches that need a thread of the host, and stays 0 over NVLink.
//! Not here: what the launches say of the job ([`crate::launches`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::copies::{Copies, copies};
use super::read::{CommEnd, LogCall, LogProcess, Logs};
use crate::joined_sets::JoinedSets;
use crate::launches::concluded::conclude;
use crate::launches::job::{
    CalledKind, DeviceLaunch, GroupAt, GroupReached, JobGroup, KnownCompletion, KnownPart, LaunchState,
    LaunchedCall, LaunchedJob, NotCompared, Process, What,
};
use crate::launches::judge::in_words;

/// Members of a communicator of whom no log is there have numbers from here on, which are no ranks.
const NOBODY: u32 = 1 << 31;

/// What it is called that a communicator is made.
const INIT: &str = "init";

/// The types of elements, by NCCL's numbers.
const DTYPES: [&str; 12] =
    ["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "fp8 e4m3", "fp8 e5m2"];

/// The reductions that NCCL brings, by its numbers. Those of programs are numbered as each process makes them.
const REDUCTIONS: [&str; 5] = ["sum", "prod", "max", "min", "avg"];

/// By what communicators of different processes are found to be one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// What all members print; and how many with the same one the process had before, for a version that gives splits
    /// of one color one.
    Id(u64, usize),
    /// What it was split from, which split of it, and with which color.
    Split(Box<Identity>, u64, i64),
    /// The same, where the process's own splits of that color have to be counted.
    CountedSplit(Box<Identity>, usize, i64),
    /// How many ranks it has, which are all there are, and how many such the process had before.
    All(u32, usize),
}

impl Identity {
    /// What a process prints of several communicators.
    const fn repeated(&self) -> Option<u64> {
        match self {
            Self::Id(id, 1..) => Some(*id),
            Self::Id(..) | Self::Split(..) | Self::CountedSplit(..) | Self::All(..) => None,
        }
    }

    /// Whether it can be no other communicator's.
    fn is_sure(&self) -> bool {
        match self {
            Self::Id(_, before) => *before == 0,
            Self::Split(parent, ..) => parent.is_sure(),
            Self::CountedSplit(..) | Self::All(..) => false,
        }
    }
}

/// A rank: the part of a process that uses one device.
struct LogRank<'a> {
    process: &'a LogProcess,
    device: Option<u32>,
    /// What each of its communicators is, by their places in the process.
    comms: BTreeMap<usize, Option<Identity>>,
}

/// The members of a communicator: the ranks of logs by their ranks in it.
type Members = BTreeMap<u32, usize>;

/// The groups that a communicator is in a job.
#[derive(Debug, Clone, Copy)]
struct CommGroups {
    /// That of its calls.
    calls: GroupAt,
    /// That in which it is made, if that is not known to be over.
    init: Option<GroupAt>,
    /// Whether nobody says that it is made.
    begun_only: bool,
}

/// Returns the launches of each job of which there are logs.
#[must_use]
pub fn jobs(logs: &Logs, source: &Path) -> Vec<LaunchedJob> {
    let Copies { unused, notes, gaps } = copies(logs);
    let mut ranks = split(logs, &unused);
    let mut not_one = identify(&mut ranks);
    let (comms, several) = together(&ranks);
    not_one += several;
    let components = components(&ranks, &comms);
    let several_jobs = components.len() > 1;
    let mut jobs: Vec<LaunchedJob> = components
        .into_iter()
        .map(|members| {
            let first = &ranks[members[0]];
            let mut job = JobOfLogs::new(logs, &ranks, members, &comms).job();
            job.source = source.to_owned();
            if several_jobs {
                job.source = logs.files[first.process.file].path.clone();
                job.notes.push(
                    "other logs here share no communicator with these, and are judged by themselves"
                        .to_owned(),
                );
            }
            job
        })
        .collect();
    if jobs.is_empty() {
        jobs.push(LaunchedJob { source: source.to_owned(), ..LaunchedJob::default() });
    }
    for job in &mut jobs {
        job.notes.extend(notes.iter().cloned());
        job.gaps.extend(gaps.iter().cloned());
        if not_one > 0 {
            job.gaps.push(format!(
                "{not_one} communicators are not found in other logs: what would say that they are one is not printed, or \
                 is not there"
            ));
        }
        job.limits.push(
            "a log does not say: what is over, where groups of calls begin and end, waits of hosts, kernels, replays of \
             graphs, and whether lines were still to be written"
                .to_owned(),
        );
        job.completion = KnownCompletion::Concluded;
        let unsure = conclude(job);
        if !unsure.is_empty() {
            job.gaps.push(format!(
                "whether sends and receives of {} were in groups of calls: one by one they wait for one another",
                in_words(&unsure)
            ));
        }
    }
    jobs
}

/// Splits processes that use several devices, without those that are not used.
fn split<'a>(logs: &'a Logs, unused: &BTreeSet<usize>) -> Vec<LogRank<'a>> {
    let mut ranks = Vec::new();
    let used = logs.processes.iter().enumerate().filter(|(at, _)| !unused.contains(at));
    for (_, process) in used {
        let mut devices: BTreeMap<Option<u32>, BTreeMap<usize, Option<Identity>>> = BTreeMap::new();
        for (at, comm) in process.comms.iter().enumerate() {
            devices.entry(comm.init.device).or_default().insert(at, None);
        }
        if devices.is_empty() && !process.calls.is_empty() {
            devices.insert(None, BTreeMap::new());
        }
        ranks.extend(devices.into_iter().map(|(device, comms)| LogRank { process, device, comms }));
    }
    ranks
}

/// Finds what each communicator is known by. Returns how many are known by nothing.
fn identify(ranks: &mut [LogRank<'_>]) -> usize {
    let all = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let mut unknown = 0;
    for rank in ranks {
        let mut before: FxHashMap<String, usize> = FxHashMap::default();
        let mut count = |what: String| {
            let before = before.entry(what).or_default();
            std::mem::replace(before, *before + 1)
        };
        let places: Vec<usize> = rank.comms.keys().copied().collect();
        for at in places {
            let comm = &rank.process.comms[at];
            let init = comm.init;
            let parent = || {
                let parent = comm.parent.and_then(|parent| rank.comms.get(&parent).cloned().flatten());
                parent.map(Box::new)
            };
            let identity = match (init.id, init.split) {
                _ if comm.contradicts => None,
                (Some(id), _) => Some(Identity::Id(id, count(format!("{id:x}")))),
                (None, Some(split)) => match (parent(), split.nth) {
                    (Some(parent), Some(nth)) => Some(Identity::Split(parent, nth, split.color)),
                    (Some(parent), None) => {
                        let nth = count(format!("{parent:?} {}", split.color));
                        Some(Identity::CountedSplit(parent, nth, split.color))
                    }
                    (None, _) => None,
                },
                (None, None) if init.nranks == all => Some(Identity::All(all, count(String::new()))),
                (None, None) => None,
            };
            // One that is used by nobody is missed by nobody.
            unknown += usize::from(
                identity.is_none() && rank.process.calls.iter().any(|call| call.comm == Some(at)),
            );
            rank.comms.insert(at, identity);
        }
    }
    unknown
}

/// Puts the communicators of one identity together. Returns how many do not fit together, too.
fn together(ranks: &[LogRank<'_>]) -> (BTreeMap<Identity, (u32, Members)>, usize) {
    let mut comms: BTreeMap<Identity, (u32, Members)> = BTreeMap::new();
    let mut wrong: BTreeSet<Identity> = BTreeSet::new();
    for (at, rank) in ranks.iter().enumerate() {
        for (place, identity) in &rank.comms {
            let Some(identity) = identity else { continue };
            let init = rank.process.comms[*place].init;
            let (nranks, members) =
                comms.entry(identity.clone()).or_insert_with(|| (init.nranks, Members::new()));
            if *nranks != init.nranks || members.insert(init.rank, at).is_some() {
                wrong.insert(identity.clone());
            }
        }
    }
    // Where one log is missing, a part of one communicator and a part of another may look like a whole.
    let most = comms.values().map(|(nranks, _)| *nranks as usize).max().unwrap_or(0);
    let all_there = ranks.len() >= most;
    let repeated: FxHashSet<u64> = comms.keys().filter_map(Identity::repeated).collect();
    for (identity, (nranks, members)) in &comms {
        let is_sure = identity.is_sure() && !matches!(identity, Identity::Id(id, 0) if repeated.contains(id));
        let is_whole = all_there && members.len() == *nranks as usize;
        if !is_sure && !is_whole {
            wrong.insert(identity.clone());
        }
    }
    comms.retain(|identity, _| !wrong.contains(identity));
    (comms, wrong.len())
}

/// Finds ranks that have communicators in common, also through others. Those that have none are with the first.
fn components(ranks: &[LogRank<'_>], comms: &BTreeMap<Identity, (u32, Members)>) -> Vec<Vec<usize>> {
    let mut together = JoinedSets::new(ranks.len());
    for (_, members) in comms.values() {
        let mut members = members.values();
        let Some(first) = members.next() else { continue };
        for other in members {
            together.join(*first, *other);
        }
    }
    let in_one: FxHashSet<usize> =
        comms.values().flat_map(|(_, members)| members.values().copied()).collect();
    let mut components: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in (0..ranks.len()).filter(|at| in_one.contains(at)) {
        components.entry(together.first(at)).or_default().push(at);
    }
    let mut components: Vec<Vec<usize>> = components.into_values().collect();
    let alone = (0..ranks.len()).filter(|at| !in_one.contains(at));
    match components.first_mut() {
        Some(first) => first.extend(alone),
        None => components.extend(Some(alone.collect::<Vec<_>>()).filter(|alone| !alone.is_empty())),
    }
    components
}

struct JobOfLogs<'a> {
    logs: &'a Logs,
    ranks: &'a [LogRank<'a>],
    members: Vec<usize>,
    comms: &'a BTreeMap<Identity, (u32, Members)>,
    /// How many calls each rank made in communicators of which no line says how they were made.
    unmade: BTreeMap<u32, u64>,
    job: LaunchedJob,
}

impl<'a> JobOfLogs<'a> {
    fn new(
        logs: &'a Logs,
        ranks: &'a [LogRank<'a>],
        members: Vec<usize>,
        comms: &'a BTreeMap<Identity, (u32, Members)>,
    ) -> Self {
        Self { logs, ranks, members, comms, unmade: BTreeMap::new(), job: LaunchedJob::default() }
    }

    fn job(mut self) -> LaunchedJob {
        let numbers = self.number();
        let groups = self.groups(&numbers);
        self.say_of_files();

        for at in self.members.clone() {
            let process = self.process(at, numbers[&at], &groups);
            self.job.processes.push(process);
        }
        self.job.processes.sort_by_key(|process| process.rank);
        let mut missing = Vec::new();
        if let Some((_, (nranks, _))) = self.world() {
            missing.extend((0..*nranks).filter(|rank| self.job.process_at(*rank).is_none()));
        }
        if !missing.is_empty() {
            let have = if missing.len() == 1 { "has" } else { "have" };
            self.job.gaps.push(format!("{} {have} no log here", in_words(&missing)));
            self.job.processes.extend(missing.into_iter().map(|rank| Process { rank, ..Process::default() }));
            self.job.processes.sort_by_key(|process| process.rank);
        }
        self.say_what_has_no_calls();
        let times = self.job.processes.iter().flat_map(|process| &process.launches);
        self.job.latest = times.filter_map(|launch| launch.created).max();
        self.job
    }

    /// The communicator in which all are, if there is one: the largest.
    fn world(&self) -> Option<(&Identity, &(u32, Members))> {
        let all: BTreeSet<usize> = self.members.iter().copied().collect();
        let of_job = |members: &Members| members.values().any(|at| all.contains(at));
        let largest = self.comms.iter().filter(|(_, (_, members))| of_job(members));
        let largest =
            largest.max_by_key(|(identity, (nranks, _))| (*nranks, std::cmp::Reverse(*identity)))?;
        let identified = |at: &&usize| self.ranks[**at].comms.values().any(Option::is_some);
        let within: BTreeSet<usize> = largest.1.1.values().copied().collect();
        self.members.iter().filter(identified).all(|at| within.contains(at)).then_some(largest)
    }

    /// Gives each its rank in the job.
    fn number(&mut self) -> FxHashMap<usize, u32> {
        let mut numbers: FxHashMap<usize, u32> = FxHashMap::default();
        let labels: FxHashSet<u32> =
            self.members.iter().filter_map(|at| self.ranks[*at].process.label).collect();
        if let Some((identity, (nranks, members))) = self.world() {
            numbers.extend(members.iter().map(|(rank, at)| (*at, *rank)));
            // Those that are in no communicator of others come behind it.
            let others: Vec<usize> =
                self.members.iter().copied().filter(|at| !numbers.contains_key(at)).collect();
            numbers.extend(others.into_iter().zip(*nranks..));
            let name = name(identity);
            self.job.notes.push(format!("ranks are those in communicator {name}, in which all are"));
        } else if labels.len() == self.members.len() {
            let labelled = self.members.iter().map(|at| (*at, self.ranks[*at].process.label.unwrap_or(0)));
            numbers.extend(labelled);
            self.job.notes.push("ranks are those that stand before the lines".to_owned());
        } else {
            let mut order = self.members.clone();
            order.sort_by_key(|at| {
                let rank = &self.ranks[*at];
                (&rank.process.host, rank.device, rank.process.pid, rank.process.file)
            });
            numbers.extend(order.into_iter().zip(0..));
            self.job.notes.push(
                "ranks are numbers of processes in the order of hosts and devices: there is no communicator in which all are"
                    .to_owned(),
            );
        }
        numbers
    }

    /// Makes the groups of the job. Members that no log shows are the ranks that are left, if it can be no others.
    fn groups(&mut self, numbers: &FxHashMap<usize, u32>) -> BTreeMap<Identity, CommGroups> {
        let mut groups = BTreeMap::new();
        let world = self.world().map(|(identity, (nranks, _))| (identity.clone(), *nranks));
        let mut nobody = NOBODY;
        for (identity, (nranks, members)) in self.comms {
            if !members.values().any(|at| numbers.contains_key(at)) {
                continue;
            }
            let is_world = world.as_ref().is_some_and(|(world, _)| world == identity);
            let is_made = |(rank, at): (&u32, &usize)| {
                let of = self.ranks[*at].comms.iter().filter(|(_, other)| other.as_ref() == Some(identity));
                let mut of = of.map(|(place, _)| &self.ranks[*at].process.comms[*place]);
                of.any(|comm| comm.init.rank == *rank && comm.made)
            };
            let made = members.iter().filter(|(rank, at)| is_made((*rank, *at))).count();
            let known: BTreeSet<u32> = members.values().map(|at| numbers[at]).collect();
            let all = world.as_ref().map_or(0, |(_, all)| *all);
            let others: Vec<u32> = (0..all).filter(|rank| !known.contains(rank)).collect();
            let missing = *nranks as usize - members.len();
            // One that was never made has no calls, so in which order its members are makes no difference.
            let sole = others.len() == missing && (missing == 1 || made == 0);
            let mut others = others.into_iter().filter(|_| sole);
            let mut member = |rank: u32| match members.get(&rank) {
                Some(at) => numbers[at],
                None if is_world => rank,
                None => others.next().unwrap_or_else(|| {
                    nobody += 1;
                    nobody
                }),
            };
            let ranks: Arc<[u32]> = (0..*nranks).map(&mut member).collect();
            let job_groups = &mut self.job.groups;
            let mut group = || {
                let (name, ranks) = (name(identity).into(), Arc::clone(&ranks));
                job_groups.push(JobGroup { noun: "communicator", name, desc: None, ranks });
                GroupAt(u32::try_from(job_groups.len() - 1).expect("fewer than 2^32 communicators"))
            };
            let calls = group();
            let init = (made < members.len()).then(group);
            groups.insert(identity.clone(), CommGroups { calls, init, begun_only: made == 0 });
        }
        groups
    }

    fn say_of_files(&mut self) {
        let files: BTreeSet<usize> = self.members.iter().map(|at| self.ranks[*at].process.file).collect();
        let mut versions: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut gave_up: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for file in files.into_iter().map(|file| &self.logs.files[file]) {
            versions.extend(file.version.clone());
            for (rank, said) in &file.gave_up {
                gave_up.entry(said).or_default().extend(*rank);
            }
            if file.torn > 0 {
                self.job.gaps.push(format!(
                    "{} has {} lines of calls that are not whole, and nothing says whose",
                    file.path.display(),
                    file.torn
                ));
            }
        }
        self.job.gave_up.extend(gave_up.into_iter().map(|(said, ranks)| match ranks.is_empty() {
            true => said.to_owned(),
            false => format!("{}: {said}", in_words(&ranks)),
        }));
        if !versions.is_empty() {
            self.job.library = Some(versions.into_iter().collect::<Vec<_>>().join(" and ").into());
        }
    }

    /// Whose log has no calls may not have been told to print them.
    fn say_what_has_no_calls(&mut self) {
        let has_called = |process: &Process| {
            let mut calls = process.launches.iter().flat_map(|launch| &launch.calls);
            calls.any(|call| &*call.word != INIT)
        };
        if !self.unmade.is_empty() {
            let calls: u64 = self.unmade.values().sum();
            self.job.gaps.push(format!(
                "whether {calls} {} of {} fit: no line says how their communicators were made; NCCL_DEBUG_SUBSYS=INIT,COLL \
                 prints it",
                if calls == 1 { "call" } else { "calls" },
                in_words(self.unmade.keys())
            ));
        }
        let silent = self.job.processes.iter().filter(|process| {
            !has_called(process) && process.from_start && !self.unmade.contains_key(&process.rank)
        });
        let silent: Vec<u32> = silent.map(|process| process.rank).collect();
        if !silent.is_empty() {
            self.job.gaps.push(format!(
                "whether {} called anything: no line says so, and none would if NCCL_DEBUG_SUBSYS had no COLL",
                in_words(&silent)
            ));
        }
    }

    fn process(&mut self, at: usize, number: u32, groups: &BTreeMap<Identity, CommGroups>) -> Process {
        let rank = &self.ranks[at];
        let of: BTreeMap<usize, CommGroups> = rank
            .comms
            .iter()
            .filter_map(|(place, identity)| Some((*place, *groups.get(identity.as_ref()?)?)))
            .collect();
        let mut process = Process { rank: number, from_start: true, ..Process::default() };
        process.warning = rank.process.warning.clone();
        // It made nothing of what it is not known to have begun.
        let is_in = |group: &GroupAt| self.job.group(*group).ranks.contains(&number);
        let groups = groups.values().flat_map(|groups| [Some(groups.calls), groups.init]).flatten();
        let mut counts: FxHashMap<GroupAt, u64> = groups.filter(is_in).map(|group| (group, 0)).collect();
        let mut inits = of
            .iter()
            .filter_map(|(place, groups)| Some((*place, groups.init?, groups.begun_only)))
            .peekable();
        let mut counts_of_inits: Vec<GroupAt> = Vec::new();
        let mut begin = |calls: usize, launches: &mut Vec<DeviceLaunch>| {
            while let Some((_, group, begun_only)) =
                inits.next_if(|(place, ..)| rank.process.comms[*place].calls_before <= calls)
            {
                counts_of_inits.push(group);
                launches.push(init_of(group, begun_only));
            }
        };
        let mut called = false;
        for (nth, call) in rank.process.calls.iter().enumerate() {
            begin(nth, &mut process.launches);
            let is_torn = rank.process.torn.is_some_and(|torn| nth >= torn);
            match call.comm {
                Some(comm) if !rank.comms.contains_key(&comm) => continue,
                // Whose device it was does not matter where nothing is known of it.
                None if rank.device != self.first_device(rank.process) => continue,
                Some(_) | None => called = true,
            }
            let Some(CommGroups { calls: group, .. }) = call.comm.and_then(|comm| of.get(&comm)) else {
                *self.job.left_out.entry(NotCompared::Members).or_default() += 1;
                if call.comm.is_none() {
                    *self.unmade.entry(number).or_default() += 1;
                }
                continue;
            };
            // NCCL does nothing for a collective without elements.
            let transfers = matches!(&*call.name, "Send" | "Recv");
            if call.count == 0 && !transfers {
                continue;
            }
            let count = counts.entry(*group).or_default();
            if !transfers && is_collective(&call.name) {
                *count += 1;
            }
            let launched = self.call(call, *group, (!is_torn && !transfers).then_some(*count), is_torn);
            process.launches.push(DeviceLaunch {
                group: *group,
                calls: vec![launched],
                cut: false,
                state: LaunchState::Unclear,
                created: call.time,
                stream: call.stream,
                finished: None,
                deadline: None,
                timed_out: false,
            });
        }
        begin(usize::MAX, &mut process.launches);

        counts.extend(counts_of_inits.into_iter().map(|group| (group, 1)));
        let torn = rank.process.torn.is_some();
        process.known = if torn || rank.process.cut { KnownPart::Partly } else { KnownPart::Whole };
        if torn {
            let what = "lines are missing or damaged, and calls behind the first of them are not counted";
            self.job.gaps.push(format!("what rank {number} called: {what}"));
        } else if rank.process.cut {
            self.job
                .gaps
                .push(format!("what rank {number} called last: its log ends in the middle of a line"));
        }
        let destroyed =
            |(place, _): &(&usize, &CommGroups)| rank.process.comms[**place].end == Some(CommEnd::Destroyed);
        let left: FxHashSet<GroupAt> =
            of.iter().filter(destroyed).map(|(_, groups)| groups.calls).filter(|_| called && !torn).collect();
        process.reached.extend(counts.into_iter().map(|(group, launched)| {
            let launched = Some(launched).filter(|_| !torn);
            (group, GroupReached { launched, finished: None, left: left.contains(&group) })
        }));
        process
    }

    fn first_device(&self, process: &LogProcess) -> Option<u32> {
        process.comms.first().and_then(|comm| comm.init.device)
    }

    fn call(&mut self, call: &LogCall, group: GroupAt, number: Option<u64>, is_torn: bool) -> LaunchedCall {
        let member = |rank: u32| self.job.group(group).ranks.get(rank as usize).copied();
        let peer = || member(call.root).filter(|peer| *peer < NOBODY && !is_torn);
        let what = match &*call.name {
            "Send" => peer().map_or(What::Unknown, What::Send),
            "Recv" => peer().map_or(What::Unknown, What::Recv),
            name if is_collective(name) => What::Collective(kind(name)),
            _ => What::Unknown,
        };
        let (reduces, rooted) = match what {
            What::Collective(CalledKind::AllReduce | CalledKind::ReduceScatter) => (true, false),
            What::Collective(CalledKind::Reduce) => (true, true),
            What::Collective(CalledKind::Broadcast | CalledKind::Gather | CalledKind::Scatter) => {
                (false, true)
            }
            What::Collective(_) | What::Send(_) | What::Recv(_) | What::Unknown => (false, false),
        };
        let sized = what != What::Collective(CalledKind::Named) && what != What::Unknown;
        let named = |names: &[&str], number: u32| names.get(number as usize).map(|name| Arc::from(*name));
        let dtype = || named(&DTYPES, call.dtype).unwrap_or_else(|| format!("type {}", call.dtype).into());
        let root = member(call.root).filter(|_| rooted);
        if is_torn {
            *self.job.left_out.entry(NotCompared::Numbers).or_default() += 1;
        } else if what == What::Unknown {
            *self.job.left_out.entry(NotCompared::Peers).or_default() += 1;
        }
        LaunchedCall {
            word: Arc::clone(&call.name),
            what,
            number: number.filter(|_| matches!(what, What::Collective(_))),
            elements: sized.then_some(call.count),
            dtype: sized.then(dtype),
            reduction: named(&REDUCTIONS, call.reduction).filter(|_| reduces),
            root,
            place: None,
        }
    }
}

/// That a process began to make a communicator, for which its host waits for all other members.
fn init_of(group: GroupAt, begun_only: bool) -> DeviceLaunch {
    let call = LaunchedCall {
        word: INIT.into(),
        what: What::Collective(CalledKind::Barrier),
        number: Some(1),
        elements: None,
        dtype: None,
        reduction: None,
        root: None,
        place: None,
    };
    DeviceLaunch {
        group,
        calls: vec![call],
        cut: false,
        state: if begun_only { LaunchState::Open } else { LaunchState::Unclear },
        created: None,
        stream: None,
        finished: None,
        deadline: None,
        timed_out: false,
    }
}

/// What a communicator is called.
fn name(identity: &Identity) -> String {
    match identity {
        Identity::Id(id, 0) => format!("0x{id:x}"),
        Identity::Id(id, before) => format!("0x{id:x}, number {}", before + 1),
        Identity::Split(parent, nth, color) => format!("{}/{nth}/{color}", name(parent)),
        Identity::CountedSplit(parent, nth, color) => format!("{}/{}/{color}", name(parent), nth + 1),
        Identity::All(_, nth) => format!("of all, number {}", nth + 1),
    }
}

fn kind(name: &str) -> CalledKind {
    match name {
        "AllReduce" => CalledKind::AllReduce,
        "Broadcast" => CalledKind::Broadcast,
        "Reduce" => CalledKind::Reduce,
        "AllGather" => CalledKind::AllGather,
        "ReduceScatter" => CalledKind::ReduceScatter,
        "AlltoAll" | "AllToAll" => CalledKind::AllToAll,
        "Gather" => CalledKind::Gather,
        "Scatter" => CalledKind::Scatter,
        _ => CalledKind::Named,
    }
}

/// Whether all members of the communicator take part. Signals and transfers between windows are between two.
fn is_collective(name: &str) -> bool {
    !matches!(name, "Send" | "Recv" | "PutSignal" | "Signal" | "WaitSignal")
}
