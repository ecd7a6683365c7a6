//! Dumps that lie with those of a job and are not what their names say: copies of another rank's, and those of another run.
//!
//! Clocks of machines differ. So a dump is of another run only if all of its times lie before all of the others', by more than
//! any clock may be off.
//! Not here: which rank a dump is of ([`super::folder`]).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rankcheck_model::{Rank, ranks_in_words};
use rustc_hash::FxHashMap;

use super::folder::{RankDump, rank_by_transfers};
use super::read::Dump;

/// By how many nanoseconds the dumps of one run do not lie apart, whatever their clocks are.
const APART: i64 = 2 * HOUR;

const HOUR: i64 = 3_600_000_000_000;

/// How many calls have to have the same times for two dumps to be one. Two processes may call once at one moment.
const SAME_CALLS: usize = 2;

/// Dumps that are not used, and why.
#[derive(Debug)]
pub enum Strays {
    /// Files of several ranks have the same times to the nanosecond in every call: they are one dump.
    OneDump {
        /// The files, by the ranks in whose places they lie.
        files: BTreeMap<u32, PathBuf>,
        /// The rank whose transfers are in it: that one keeps it.
        of: Option<u32>,
    },
    /// A dump ends long before the others begin.
    OtherRun {
        /// The rank in whose place it lies.
        rank: u32,
        /// The file that is not used.
        path: PathBuf,
        /// How many hours lie between, to the nearest.
        hours: i64,
    },
}

impl Strays {
    /// The ranks that are not known because of it.
    pub fn ranks(&self) -> Vec<u32> {
        match self {
            Self::OneDump { files, of } => files.keys().copied().filter(|rank| Some(*rank) != *of).collect(),
            Self::OtherRun { rank, .. } => vec![*rank],
        }
    }

    /// Whether a file is one of those that are meant.
    pub(super) fn has(&self, file: &Path) -> bool {
        match self {
            Self::OneDump { files, .. } => files.values().any(|path| path == file),
            Self::OtherRun { path, .. } => path == file,
        }
    }
}

impl fmt::Display for Strays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |path: &Path| path.display().to_string();
        match self {
            Self::OneDump { files, of } => {
                let mut paths: Vec<String> = files.values().map(|path| named(path)).collect();
                let last = paths.pop().unwrap_or_default();
                write!(
                    f,
                    "{} and {last} are one dump, with the same times to the nanosecond",
                    paths.join(", ")
                )?;
                match of {
                    Some(of) => write!(f, "; by its transfers it is of rank {of}")?,
                    None => f.write_str("; nothing says of which rank it is, and it is not used")?,
                }
            }
            Self::OtherRun { path, hours, .. } => write!(
                f,
                "by its times {} is of another run, and is not used: its last lies {hours} h before the first of the others",
                named(path)
            )?,
        }
        let ranks = self.ranks();
        let are = if ranks.len() == 1 { "is" } else { "are" };
        write!(f, "; {} {are} not known", ranks_in_words(ranks.into_iter().map(Rank)))
    }
}

/// Takes what is not of a job out of its dumps.
pub(super) fn take_out(dumps: &mut BTreeMap<u32, RankDump>) -> Vec<Strays> {
    let mut strays = copies(dumps);
    strays.extend(other_runs(dumps));
    for rank in strays.iter().flat_map(Strays::ranks) {
        dumps.remove(&rank);
    }
    strays
}

/// Finds dumps that are one.
fn copies(dumps: &BTreeMap<u32, RankDump>) -> Vec<Strays> {
    let mut alike: FxHashMap<Vec<(u64, i64)>, Vec<u32>> = FxHashMap::default();
    for (rank, RankDump { dump, .. }) in dumps {
        if dump.entries.len() >= SAME_CALLS {
            let calls = dump.entries.iter().map(|entry| (entry.record_id, entry.time_created_ns));
            alike.entry(calls.collect()).or_default().push(*rank);
        }
    }
    let mut found: Vec<Strays> = alike
        .into_values()
        .filter(|ranks| ranks.len() > 1)
        .map(|ranks| Strays::OneDump {
            of: rank_by_transfers(&dumps[&ranks[0]].dump).filter(|of| ranks.contains(of)),
            files: ranks.into_iter().map(|rank| (rank, dumps[&rank].path.clone())).collect(),
        })
        .collect();
    found.sort_by_key(Strays::ranks);
    found
}

/// The first and the last time in a dump.
fn span(dump: &Dump) -> Option<(i64, i64)> {
    let first = dump.entries.iter().map(|entry| entry.time_created_ns).min()?;
    let times = dump
        .entries
        .iter()
        .flat_map(|entry| [Some(entry.time_created_ns), entry.time_started_ns, entry.time_completed_ns]);
    Some((first, times.flatten().max()?))
}

/// Finds dumps that end long before all later ones begin.
fn other_runs(dumps: &BTreeMap<u32, RankDump>) -> Vec<Strays> {
    let mut spans: Vec<(i64, i64, u32)> = dumps
        .iter()
        .filter_map(|(rank, of)| span(&of.dump).map(|(first, last)| (first, last, *rank)))
        .collect();
    spans.sort_unstable();
    let mut last = i64::MIN;
    let mut begins = 0;
    for (at, span) in spans.iter().enumerate() {
        if at > 0 && span.0.saturating_sub(last) > APART {
            begins = at;
        }
        last = last.max(span.1);
    }
    let Some(first) = spans.get(begins).map(|span| span.0) else { return Vec::new() };
    let stray = spans[..begins].iter().map(|(_, last, rank)| Strays::OtherRun {
        rank: *rank,
        path: dumps[rank].path.clone(),
        hours: (first.saturating_sub(*last) + HOUR / 2) / HOUR,
    });
    stray.collect()
}
