//! Which processes of a recording are one job: `torchrun a.py && torchrun b.py` under one `rankcheck record`, or a test suite.
//!
//! Processes that share a communicator, or memory, are of one job. So are processes that ran at the same time, were started as ranks
//! of as many, and are not the same rank. Whoever communicates with nobody stands by the job that ran meanwhile.
//! Not here: which process is which rank of its job ([`super::world`]).

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::path::PathBuf;

use super::sequence::Sequence;
use super::world::CommListener;
use crate::joined_sets::JoinedSets;

/// A process that was read, as one of the ranks that it is.
pub(super) type ReadProcess = (PathBuf, Sequence, CommListener);

/// Processes start together, but not at once: nanoseconds.
const STARTED_TOGETHER: u64 = 5_000_000_000;

/// Processes that belong together, as far as is known.
#[derive(Debug, Default)]
struct JobProcesses {
    processes: Vec<usize>,
    /// When the first began and the last ended: nanoseconds since 1970.
    lived: Range<u64>,
    /// The ranks that the launcher gave those that communicate.
    ranks: BTreeSet<u32>,
    /// How many ranks the launcher started.
    of: Option<u32>,
    communicates: bool,
}

impl JobProcesses {
    fn of(at: usize, (_, sequence, local): &ReadProcess) -> Self {
        let header = &sequence.header;
        let ended = header.alive.unwrap_or(0).max(header.began.saturating_add(sequence.ended));
        let communicates = local.communicates();
        let ranks = header.rank.filter(|_| communicates && !local.is_share()).into_iter().collect();
        Self { processes: vec![at], lived: header.began..ended + 1, ranks, of: header.ranks, communicates }
    }

    fn add(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.lived = self.lived.start.min(other.lived.start)..self.lived.end.max(other.lived.end);
        self.ranks.extend(other.ranks);
        self.of = self.of.or(other.of);
        self.communicates |= other.communicates;
    }

    fn meets(&self, other: &Self) -> bool {
        self.lived.start < other.lived.end && other.lived.start < self.lived.end
    }

    /// Whether the launcher may have started both.
    fn is_started_with(&self, other: &Self) -> bool {
        self.of.is_some()
            && self.of == other.of
            && self.ranks.is_disjoint(&other.ranks)
            && (self.meets(other) || self.lived.start.abs_diff(other.lived.start) < STARTED_TOGETHER)
    }
}

/// The jobs of a recording, each with the indices of its processes, in the order in which they began. The ranks that one
/// process is stand next to each other.
pub(super) fn jobs(processes: &[ReadProcess]) -> Vec<Vec<usize>> {
    // Who shares something is of one job.
    let mut first_with: BTreeMap<&str, usize> = BTreeMap::new();
    let mut together = JoinedSets::new(processes.len());
    for (at, (path, _, local)) in processes.iter().enumerate() {
        for id in local.shared_ids() {
            together.join(*first_with.entry(id).or_insert(at), at);
        }
        if let Some(before) = at.checked_sub(1)
            && processes[before].0 == *path
        {
            together.join(before, at);
        }
    }
    let mut joined: BTreeMap<usize, JobProcesses> = BTreeMap::new();
    for (at, process) in processes.iter().enumerate() {
        let group = JobProcesses::of(at, process);
        match joined.entry(together.first(at)) {
            Entry::Occupied(mut others) => others.get_mut().add(group),
            Entry::Vacant(alone) => _ = alone.insert(group),
        }
    }
    let mut groups: Vec<JobProcesses> = joined.into_values().collect();
    // Those that communicate first, so that others stand by them.
    groups.sort_by_key(|group| (!group.communicates, group.lived.start));
    let mut jobs: Vec<JobProcesses> = Vec::new();
    for group in groups {
        let with = jobs.iter().position(|job| job.is_started_with(&group)).or_else(|| {
            jobs.iter().position(|job| !group.communicates && group.of.is_none() && job.meets(&group))
        });
        match with {
            Some(with) => jobs[with].add(group),
            None => jobs.push(group),
        }
    }
    jobs.sort_by_key(|job| job.lived.start);
    for job in &mut jobs {
        job.processes.sort_unstable();
    }
    jobs.into_iter().map(|job| job.processes).collect()
}
