//! Files become the ranks of jobs. A rank is in the name of its file (`nccl_trace_rank_3`, `comm_lib_trace_rank_3`,
//! any prefix, with or without an ending), and what the dump says of its groups is held against it.
//!
//! Nothing is left out in silence: what is odd about the files is a [`DumpNote`].
//! Not here: what the dumps say of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use super::read::{Dump, DumpError, DumpVersion, read_dump};
use super::strays::{Strays, take_out};
use crate::parallel::in_parallel;

/// The largest file that is read. A ring of a million calls with their stacks is smaller.
pub const MOST_BYTES: u64 = u32::MAX as u64;

/// How deep folders are looked into.
const DEPTH: usize = 8;

/// From how many bytes on files are read by several threads.
const WORTH_THREADS: u64 = 1 << 20;

/// All that was found.
#[derive(Debug, Default)]
pub struct DumpFolder {
    /// The jobs, or attempts of one, whose dumps lie together. Most folders have one.
    pub jobs: Vec<DumpedJob>,
    /// Dumps of which nothing says which rank they are of.
    pub unplaced: Vec<(PathBuf, Dump)>,
    /// What is odd about the files, in the order in which it is best read.
    pub notes: Vec<DumpNote>,
}

/// The dumps of one job.
#[derive(Debug, Default)]
pub struct DumpedJob {
    /// What stands before the rank in the names of its files, with the folder; several if nodes have names of their own.
    pub prefixes: BTreeSet<String>,
    /// The dump of each rank that has one.
    pub ranks: BTreeMap<u32, RankDump>,
    /// The ranks without a dump that was read.
    pub missing: Vec<RangeInclusive<u32>>,
    /// Whether the groups of the dumps say which ranks there are. Otherwise only gaps are known, and not how many
    /// ranks follow the last.
    pub size_known: bool,
    /// Dumps that lay in the places of ranks and are not used.
    pub strays: Vec<Strays>,
}

/// The dump of one rank.
#[derive(Debug)]
pub struct RankDump {
    /// The file it was read from.
    pub path: PathBuf,
    /// What was read of it.
    pub dump: Dump,
}

/// Why nothing can be read.
#[derive(Debug, Error)]
#[error("cannot read {path}: {source}")]
pub struct DumpFolderError {
    /// The path that was given, or a folder in it.
    pub path: PathBuf,
    /// What the operating system says.
    pub source: io::Error,
}

/// Why one file was not read.
#[derive(Debug, Error)]
pub enum DumpFileError {
    /// The operating system does not let it be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a pipe or a device.
    #[error("it is no regular file")]
    NotRegular,
    /// It has more than [`MOST_BYTES`].
    #[error("it has {0} bytes, and a dump has {MOST_BYTES} at most")]
    TooLarge(u64),
    /// Its bytes are no dump.
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// Something odd about the files, for people.
#[derive(Debug)]
pub enum DumpNote {
    /// A file looks like something else than a dump.
    Ignored {
        /// The file that is not looked at.
        path: PathBuf,
        /// Why it is none.
        error: DumpFileError,
    },
    /// A file is a dump, or is named like one, and cannot be read.
    Unreadable {
        /// The file that is not used.
        path: PathBuf,
        /// The rank that its name has.
        rank: Option<u32>,
        /// What is wrong with it.
        error: DumpFileError,
    },
    /// Nothing says which rank a dump is of.
    NoRank {
        /// The file that is not used.
        path: PathBuf,
        /// The rank that its name has, which is in none of its groups.
        named: Option<u32>,
    },
    /// The name of a file has another rank than its groups and transfers.
    RankDisagrees {
        /// The file in question.
        path: PathBuf,
        /// The rank in its name.
        named: u32,
        /// The rank that its groups and transfers leave.
        found: u32,
        /// The one of them that is used: the latter, unless several files would be the same rank by it.
        used: u32,
    },
    /// Files with several prefixes have no rank twice and the same groups: they are taken for one job.
    PrefixesJoined {
        /// What stands before the ranks.
        prefixes: BTreeSet<String>,
    },
    /// Files of several jobs, or of several attempts of one, lie together. Each is looked at by itself.
    SeveralJobs {
        /// What stands before the ranks in the files of each.
        prefixes: Vec<BTreeSet<String>>,
    },
    /// Two files are dumps of one rank.
    Duplicate {
        /// The rank that has two.
        rank: u32,
        /// The one that is used: whole rather than cut off, and then the one that knows of a later call.
        used: PathBuf,
        /// The one that is not.
        unused: PathBuf,
    },
    /// A dump is cut off: its last calls may be lost.
    CutOff {
        /// The rank that it is of.
        rank: u32,
        /// The file that ends too early.
        path: PathBuf,
        /// Where in the file it ends.
        error: super::pickle::PickleError,
        /// How many calls stand before that.
        entries: usize,
    },
    /// Dumps have no calls in them: the ring was empty, or only active calls were written and none was.
    NoEntries {
        /// The ranks that they are of.
        ranks: Vec<RangeInclusive<u32>>,
    },
    /// The dumps of one job are of several versions.
    Versions {
        /// The ranks that have each.
        versions: BTreeMap<DumpVersion, Vec<RangeInclusive<u32>>>,
    },
    /// Fields are not known here, and were not looked at.
    UnknownFields {
        /// How often each occurs, over all dumps.
        fields: BTreeMap<String, u64>,
    },
    /// Ranks have no dump that was read.
    Missing {
        /// The ranks that have none.
        ranks: Vec<RangeInclusive<u32>>,
        /// Whether the groups of the others say that they exist; otherwise the numbers of the others do.
        by_groups: bool,
    },
}

/// Returns a list of ranks as people write it: `0-3, 7`.
#[must_use]
pub fn display_ranks(ranks: &[RangeInclusive<u32>]) -> String {
    let one = |range: &RangeInclusive<u32>| {
        let (from, to) = (range.start(), range.end());
        if from == to { from.to_string() } else { format!("{from}-{to}") }
    };
    ranks.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns sorted ranks as ranges.
fn ranges(ranks: impl IntoIterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(rank) => *last = *last.start()..=rank,
            Some(_) | None => ranges.push(rank..=rank),
        }
    }
    ranges
}

fn display_prefixes(prefixes: &BTreeSet<String>) -> String {
    prefixes.iter().map(|prefix| format!("`{prefix}`")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for DumpNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored { path, error } => write!(f, "{} is not looked at: {error}", path.display()),
            Self::Unreadable { path, rank, error } => {
                write!(f, "{} cannot be read", path.display())?;
                if let Some(rank) = rank {
                    write!(f, ", so rank {rank} is not known")?;
                }
                write!(f, ": {error}")
            }
            Self::NoRank { path, named: None } => {
                write!(
                    f,
                    "{} is not used: neither its name nor its groups say which rank it is of",
                    path.display()
                )
            }
            Self::NoRank { path, named: Some(named) } => {
                write!(
                    f,
                    "{} is not used: rank {named}, which its name has, is not in all of its groups",
                    path.display()
                )
            }
            Self::RankDisagrees { path, named, found, used } => write!(
                f,
                "{} is named for rank {named}, but its groups and transfers are those of rank {found}; it is taken for rank {used}",
                path.display()
            ),
            Self::PrefixesJoined { prefixes } => {
                write!(
                    f,
                    "files that begin with {} are taken for one job: no rank is there twice",
                    display_prefixes(prefixes)
                )
            }
            Self::SeveralJobs { prefixes } => {
                let each: Vec<_> = prefixes.iter().map(display_prefixes).collect();
                write!(
                    f,
                    "{} jobs lie together, and each is looked at by itself: files that begin with {}",
                    each.len(),
                    each.join("; with ")
                )
            }
            Self::Duplicate { rank, used, unused } => {
                write!(
                    f,
                    "rank {rank} has two dumps: {} is used, and {} is not",
                    used.display(),
                    unused.display()
                )
            }
            Self::CutOff { rank, path, error, entries } => {
                let path = path.display();
                write!(
                    f,
                    "rank {rank}: {path} ends too early, and only the {entries} calls before that are known ({error})"
                )
            }
            Self::NoEntries { ranks } => {
                write!(f, "no calls are in the dumps of ranks {}", display_ranks(ranks))
            }
            Self::Versions { versions } => {
                let each = versions
                    .iter()
                    .map(|(version, ranks)| format!("{version} of ranks {}", display_ranks(ranks)));
                write!(f, "the dumps are of several versions: {}", each.collect::<Vec<_>>().join(", "))
            }
            Self::UnknownFields { fields } => {
                let each = fields.iter().map(|(field, times)| format!("`{field}` ({times} times)"));
                write!(
                    f,
                    "these fields are not known and were not looked at: {}",
                    each.collect::<Vec<_>>().join(", ")
                )
            }
            Self::Missing { ranks, by_groups } => {
                let why =
                    if *by_groups { "the groups of others have them" } else { "others have higher numbers" };
                write!(f, "ranks {} have no dump here that was read; {why}", display_ranks(ranks))
            }
        }
    }
}

/// Returns what stands before the rank in the name of a file, and the rank: the number behind the last `rank`, or the
/// number at the end, before an ending of letters.
#[must_use]
pub fn rank_in_name(name: &str) -> Option<(&str, u32)> {
    let number = |from: usize| {
        let rest = &name[from..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some((&name[..from], rest[..digits].parse().ok()?))
    };
    let lower = name.to_ascii_lowercase();
    let behind = lower.rmatch_indices("rank").find_map(|(at, word)| {
        let from = at + word.len();
        let separated = lower[from..].starts_with(['_', '-', '=', '.']);
        number(from + usize::from(separated))
    });
    behind.or_else(|| {
        let is_ending = |ending: &str| ending.chars().all(|c| c.is_ascii_alphabetic());
        let stem =
            name.rsplit_once('.').filter(|(_, ending)| is_ending(ending)).map_or(name, |(stem, _)| stem);
        let from = stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        if from < stem.len() { number(from) } else { None }
    })
}

/// A file that was looked at.
struct LookedAt {
    path: PathBuf,
    /// What stands before the rank in its name, with the folder.
    prefix: String,
    named: Option<u32>,
    read: Result<Dump, DumpFileError>,
}

/// Reads files, and all files in folders.
///
/// # Errors
///
/// If a path that is given does not exist, or a folder cannot be listed. Files that cannot be read are notes.
pub fn read_folder(paths: &[PathBuf]) -> Result<DumpFolder, DumpFolderError> {
    let mut files = Vec::new();
    for path in paths {
        list(path, DEPTH, &mut files)?;
    }
    files.sort();
    files.dedup();
    Ok(place(read_files(&files)))
}

/// Returns whether a path is a file that begins as a dump does and is one, or a folder that has such a file in it and no
/// specs.
#[must_use]
pub fn holds_dumps(path: &Path) -> bool {
    let mut files = Vec::new();
    if list(path, DEPTH, &mut files).is_err() {
        return false;
    }
    let is_one = |read: Result<Dump, DumpFileError>| match read {
        Ok(_) => true,
        Err(DumpFileError::Dump(error)) => !error.is_something_else(),
        Err(_) => false,
    };
    let named = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| rank_in_name(&name.to_string_lossy()).is_some())
    };
    let (named, others): (Vec<&PathBuf>, Vec<&PathBuf>) = files.iter().partition(named);
    named.into_iter().chain(others).filter(|path| begins_as_dump(path)).any(|path| is_one(read_file(path)))
}

/// Returns whether the first bytes of a file may be those of a dump.
fn begins_as_dump(path: &Path) -> bool {
    let mut first = Vec::new();
    let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    is_file
        && File::open(path).and_then(|file| file.take(64).read_to_end(&mut first)).is_ok()
        && may_be_dump(&first)
}

fn may_be_dump(first: &[u8]) -> bool {
    // Recordings, which may lie beside dumps and be large, have a table near their beginning too.
    let recording = first.starts_with(&rankcheck_recording::layout::MAGIC[..7]);
    !recording && (first.first() == Some(&0x80) || first.contains(&b'{'))
}

/// Lists the files at a path.
fn list(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), DumpFolderError> {
    let error = |source| DumpFolderError { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(error)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(error)? {
        let entry = entry.map_err(error)?.path();
        // A link may lead nowhere, and then it is a file that cannot be read.
        let is_folder = entry.is_dir();
        if is_folder && depth > 0 {
            list(&entry, depth - 1, files)?;
        } else if !is_folder {
            files.push(entry);
        }
    }
    Ok(())
}

/// Reads files, by several threads where there is much to read.
fn read_files(paths: &[PathBuf]) -> Vec<LookedAt> {
    let bytes: u64 = paths.iter().map(|path| std::fs::metadata(path).map_or(0, |file| file.len())).sum();
    let mut read: Vec<LookedAt> = match bytes < WORTH_THREADS {
        true => paths.iter().map(|path| look_at(path)).collect(),
        false => in_parallel(paths.len(), |at| look_at(&paths[at])),
    };
    read.sort_by(|one, other| one.path.cmp(&other.path));
    read
}

fn look_at(path: &Path) -> LookedAt {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (before, named) = rank_in_name(&name).map_or((&*name, None), |(before, rank)| (before, Some(rank)));
    let prefix = path.with_file_name(before).display().to_string();
    LookedAt { path: path.to_owned(), prefix, named, read: read_file(path) }
}

/// Reads a file if it begins as a dump does.
fn read_file(path: &Path) -> Result<Dump, DumpFileError> {
    // What a pipe would give nobody may ever write.
    if !std::fs::metadata(path)?.is_file() {
        return Err(DumpFileError::NotRegular);
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(64).read_to_end(&mut bytes)?;
    if may_be_dump(&bytes) {
        if length > MOST_BYTES {
            return Err(DumpFileError::TooLarge(length));
        }
        file.take(MOST_BYTES - bytes.len() as u64).read_to_end(&mut bytes)?;
    }
    Ok(read_dump(&bytes)?)
}

/// What the groups and transfers of a dump say of its rank.
struct Evidence {
    /// The only rank that it can be.
    rank: Option<u32>,
    /// The ranks that are in all of its groups, if it has groups and there is any.
    members: Option<FxHashSet<u32>>,
}

fn evidence(dump: &Dump) -> Evidence {
    let mut lists: Vec<&Arc<[u32]>> = Vec::new();
    let mut by_name = FxHashMap::default();
    let mut known = FxHashSet::default();
    for group in &dump.groups {
        if let Some(ranks) = &group.ranks {
            by_name.insert(&*group.name, ranks);
            // Equal lists of one dump are one list, mostly.
            if known.insert(Arc::as_ptr(ranks)) {
                lists.push(ranks);
            }
        }
    }
    let mut members: Option<FxHashSet<u32>> = None;
    for list in lists {
        members = Some(match members {
            None => list.iter().copied().collect(),
            Some(members) => list.iter().copied().filter(|rank| members.contains(rank)).collect(),
        });
    }
    let members = members.filter(|members| !members.is_empty());
    let callers = dump.entries.iter().filter_map(|entry| {
        let caller = usize::try_from(entry.name.kind.caller()?).ok()?;
        by_name.get(&*entry.group)?.get(caller).copied()
    });
    let mut callers: Vec<u32> = callers.collect::<FxHashSet<_>>().into_iter().collect();
    let sole = members
        .as_ref()
        .filter(|members| members.len() == 1)
        .and_then(|members| members.iter().next().copied());
    let caller = callers.pop().filter(|_| callers.is_empty());
    let caller = caller.filter(|caller| members.as_ref().is_some_and(|members| members.contains(caller)));
    Evidence { rank: sole.or(caller), members }
}

/// The rank that a dump is of by whom its transfers name, or by the only rank that is in all of its groups.
pub(super) fn rank_by_transfers(dump: &Dump) -> Option<u32> {
    evidence(dump).rank
}

/// Finds out which rank of which job each dump is of.
fn place(files: Vec<LookedAt>) -> DumpFolder {
    let mut folder = DumpFolder::default();
    let of_dumps: FxHashSet<String> = files
        .iter()
        .filter(|file| file.read.is_ok() && file.named.is_some())
        .map(|file| file.prefix.clone())
        .collect();
    let (mut ignored, mut unreadable, mut dumps) = (Vec::new(), Vec::new(), Vec::new());
    for LookedAt { path, prefix, named, read } in files {
        match read {
            Ok(dump) => dumps.push((path, prefix, named, dump)),
            Err(error) => {
                let something_else = match &error {
                    DumpFileError::Dump(error) => error.is_something_else(),
                    DumpFileError::NotRegular => true,
                    DumpFileError::Io(_) | DumpFileError::TooLarge(_) => false,
                };
                let named_like_one = named.is_some() && of_dumps.contains(&prefix);
                if something_else && !named_like_one {
                    ignored.push(DumpNote::Ignored { path, error });
                } else {
                    unreadable.push(DumpNote::Unreadable { path, rank: named, error });
                }
            }
        }
    }
    folder.notes.extend(unreadable.into_iter().chain(ignored));
    let placed = place_ranks(dumps, &mut folder);
    folder.jobs = jobs(placed, &mut folder.notes);
    for job in &mut folder.jobs {
        finish(job, &mut folder.notes);
    }
    folder
}

/// The dumps whose names begin alike, by rank; a rank may have several.
type Series = BTreeMap<String, BTreeMap<u32, Vec<RankDump>>>;

fn place_ranks(dumps: Vec<(PathBuf, String, Option<u32>, Dump)>, folder: &mut DumpFolder) -> Series {
    let evidence: Vec<Evidence> = dumps.iter().map(|(.., dump)| evidence(dump)).collect();
    let mut claims: FxHashMap<u32, usize> = FxHashMap::default();
    for ((_, _, named, _), evidence) in dumps.iter().zip(&evidence) {
        if let Some(rank) = evidence.rank.or(*named) {
            *claims.entry(rank).or_default() += 1;
        }
    }
    let mut series = Series::new();
    for ((path, prefix, named, dump), Evidence { rank: found, members }) in dumps.into_iter().zip(evidence) {
        let rank = match (named, found) {
            (Some(named), Some(found)) if named != found => {
                let used = if claims[&found] == 1 { found } else { named };
                folder.notes.push(DumpNote::RankDisagrees { path: path.clone(), named, found, used });
                Some(used)
            }
            (Some(named), None) => {
                Some(named).filter(|named| members.is_none_or(|members| members.contains(named)))
            }
            (Some(_), Some(found)) | (None, Some(found)) => Some(found),
            (None, None) => None,
        };
        match rank {
            Some(rank) => {
                let ranks = series.entry(prefix).or_default();
                ranks.entry(rank).or_default().push(RankDump { path, dump });
            }
            None => {
                folder.notes.push(DumpNote::NoRank { path: path.clone(), named });
                folder.unplaced.push((path, dump));
            }
        }
    }
    series
}

/// Returns the ranks of the largest group that any of the dumps is in: those of the job, as far as one can know.
fn world<'a>(dumps: impl Iterator<Item = &'a RankDump>) -> Option<Arc<[u32]>> {
    let groups = dumps.flat_map(|dump| &dump.dump.groups).filter_map(|group| group.ranks.as_ref());
    groups.max_by_key(|ranks| ranks.len()).cloned()
}

/// Joins series of files into jobs: series in which no rank is twice, and whose largest groups have the same ranks.
fn jobs(series: Series, notes: &mut Vec<DumpNote>) -> Vec<DumpedJob> {
    let mut jobs: Vec<(DumpedJob, Option<Arc<[u32]>>)> = Vec::new();
    for (prefix, ranks) in series {
        let mut chosen = BTreeMap::new();
        for (rank, dumps) in ranks {
            chosen.insert(rank, choose(rank, dumps, notes));
        }
        let world = world(chosen.values());
        let fits = |(job, other): &&mut (DumpedJob, Option<Arc<[u32]>>)| {
            let same = world.is_none() || other.is_none() || world == *other;
            same && !chosen.keys().any(|rank| job.ranks.contains_key(rank))
        };
        match jobs.iter_mut().find(fits) {
            Some((job, other)) => {
                job.prefixes.insert(prefix);
                job.ranks.extend(chosen);
                *other = other.take().or(world);
            }
            None => {
                let prefixes = BTreeSet::from([prefix]);
                jobs.push((DumpedJob { prefixes, ranks: chosen, ..DumpedJob::default() }, world));
            }
        }
    }
    let jobs: Vec<DumpedJob> = jobs.into_iter().map(|(job, _)| job).collect();
    let joined = jobs.iter().filter(|job| job.prefixes.len() > 1);
    notes.extend(joined.map(|job| DumpNote::PrefixesJoined { prefixes: job.prefixes.clone() }));
    if jobs.len() > 1 {
        let prefixes = jobs.iter().map(|job| job.prefixes.clone()).collect();
        notes.push(DumpNote::SeveralJobs { prefixes });
    }
    jobs
}

/// Chooses one of the dumps of a rank.
fn choose(rank: u32, dumps: Vec<RankDump>, notes: &mut Vec<DumpNote>) -> RankDump {
    let value = |dump: &RankDump| {
        let last = dump.dump.entries.iter().map(|entry| (entry.time_created_ns, entry.state)).max();
        (dump.dump.cut.is_none(), last)
    };
    let mut dumps = dumps.into_iter();
    let mut used = dumps.next().expect("a rank is there because of a dump");
    for mut other in dumps {
        if value(&other) > value(&used) {
            std::mem::swap(&mut used, &mut other);
        }
        notes.push(DumpNote::Duplicate { rank, used: used.path.clone(), unused: other.path });
    }
    used
}

/// Says what is odd about the dumps of one job, and which ranks have none.
fn finish(job: &mut DumpedJob, notes: &mut Vec<DumpNote>) {
    job.strays = take_out(&mut job.ranks);
    let mut expected: BTreeSet<u32> = job.strays.iter().flat_map(Strays::ranks).collect();
    let is_stray = |path: &Path| job.strays.iter().any(|stray| stray.has(path));
    notes.retain(|note| !matches!(note, DumpNote::RankDisagrees { path, .. } if is_stray(path)));
    for (rank, RankDump { path, dump }) in &job.ranks {
        if let Some(error) = dump.cut.clone() {
            let (rank, path, entries) = (*rank, path.clone(), dump.entries.len());
            notes.push(DumpNote::CutOff { rank, path, error, entries });
        }
    }
    let empty = job.ranks.iter().filter(|(_, rank)| rank.dump.entries.is_empty() && rank.dump.cut.is_none());
    let empty = ranges(empty.map(|(rank, _)| *rank));
    if !empty.is_empty() {
        notes.push(DumpNote::NoEntries { ranks: empty });
    }
    let mut versions: BTreeMap<DumpVersion, Vec<u32>> = BTreeMap::new();
    let mut fields: BTreeMap<String, u64> = BTreeMap::new();
    for (rank, RankDump { dump, .. }) in &job.ranks {
        versions.entry(dump.version).or_default().push(*rank);
        for (field, times) in &dump.unknown_fields {
            *fields.entry(field.clone()).or_default() += times;
        }
    }
    if versions.len() > 1 {
        let versions = versions.into_iter().map(|(version, of)| (version, ranges(of))).collect();
        notes.push(DumpNote::Versions { versions });
    }
    if !fields.is_empty() {
        notes.push(DumpNote::UnknownFields { fields });
    }
    let mut lists = FxHashSet::default();
    let groups = job.ranks.values().flat_map(|rank| &rank.dump.groups);
    lists.extend(groups.filter_map(|group| group.ranks.as_deref()));
    job.size_known = !lists.is_empty();
    job.missing = if job.size_known {
        expected.extend(lists.into_iter().flatten().copied());
        ranges(expected.into_iter().filter(|rank| !job.ranks.contains_key(rank)))
    } else {
        let known: BTreeSet<u32> = job.ranks.keys().chain(&expected).copied().collect();
        let mut missing = gaps(known.into_iter());
        missing.extend(ranges(expected));
        missing.sort_by_key(|range| *range.start());
        missing
    };
    if !job.missing.is_empty() {
        notes.push(DumpNote::Missing { ranks: job.missing.clone(), by_groups: job.size_known });
    }
}

/// Returns the ranks from 0 on that are left out of a sorted list.
fn gaps(ranks: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for rank in ranks {
        if next < rank {
            gaps.push(next..=rank - 1);
        }
        next = rank.saturating_add(1);
    }
    gaps
}
