//! Recorded runs: what the processes of a real run called, judged by the same rules as a spec.
//!
//! Reading order: [`world`] (which process is which rank, which communicator is which), [`ipc`] (which memory of
//! another process one has open), [`sequence`] (the calls of one process in a row), [`mod@fold`] (iterations that
//! repeat are judged once), [`lower`] (calls become operations of the model), [`mod@judge`] (what they break),
//! `returned` (where the model was contradicted), `waits` (which findings rest on waits that may not have been recorded),
//! [`coverage`] (how much of it was judged), [`stuck`] and [`hosts`] (who waits for whom at its end, and in which calls), [`rounds`]
//! (loops that ranks leave),
//! [`divergence`] (where ranks diverge), [`mod@follow`] and [`conformance`] (where a run leaves a spec), [`report`],
//! [`lines`] (lines of the program that a verdict names), [`timeline`], [`launched`] (what of it can be seen from outside).
//! Not here: the bytes of a recording (`rankcheck-recording`), and how calls are caught.

mod accesses;
mod call;
pub mod conformance;
pub mod coverage;
pub mod device_share;
pub mod divergence;
pub mod fold;
pub mod follow;
pub mod gaps;
pub mod hosts;
pub mod ipc;
mod jobs;
pub mod judge;
pub mod launched;
pub mod lines;
pub mod lower;
mod regions;
pub mod report;
mod returned;
pub mod rounds;
pub mod sequence;
mod shared_events;
pub mod stuck;
pub mod timeline;
mod vendor;
mod waits;
pub mod world;

use std::path::PathBuf;

use rankcheck_recording::ReadError;
use thiserror::Error;

/// Why a directory is not the recording of one run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The directory cannot be listed.
    #[error("cannot read {path}: {source}; give the folder of a recorded run")]
    Directory {
        /// The directory that was given.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// There is nothing to judge.
    #[error(
        "{path} holds no recording: no file in it begins with `rankrec`; record a run with `rankcheck record`"
    )]
    Empty {
        /// The directory that was given.
        path: PathBuf,
    },
    /// The folder holds folders of recordings.
    #[error("{path} holds several runs; give the folder of one: {}", listed(below))]
    Below {
        /// The directory that was given.
        path: PathBuf,
        /// The folders in it that hold a recording each.
        below: Vec<PathBuf>,
    },
    /// A file was given, and not the folder that it lies in.
    #[error(
        "{path} is the file of one process, and a run is judged with all its processes; give the folder: {folder}"
    )]
    OneFile {
        /// The file that was given.
        path: PathBuf,
        /// The folder that it lies in.
        folder: PathBuf,
    },
    /// One of the files.
    #[error(transparent)]
    File(#[from] ReadError),
    /// Files of two runs lie in one directory.
    #[error(
        "two runs lie together: {first} belongs to run `{first_run}`, {second} to run `{second_run}`; \
         keep one run a directory"
    )]
    TwoRuns {
        /// A file of the one.
        first: PathBuf,
        /// The id of the run that it belongs to.
        first_run: String,
        /// A file of the other.
        second: PathBuf,
        /// The id of the run that the other belongs to.
        second_run: String,
    },
    /// Several jobs were recorded into one directory, and one is wanted.
    #[error("{path} has {jobs} jobs ({commands}); copy the files of one into a directory of its own")]
    SeveralJobs {
        /// The directory that they lie in.
        path: PathBuf,
        /// How many there are.
        jobs: usize,
        /// What was typed to start each, and its files.
        commands: String,
    },
    /// Two processes that both communicate say that they are the same rank.
    #[error("{first} and {second} both say that they are rank {rank}; remove the one that is not")]
    TwoFiles {
        /// The rank that both claim to be.
        rank: u32,
        /// The file of the first that does.
        first: PathBuf,
        /// The file of the second.
        second: PathBuf,
    },
    /// Nobody said which rank a process is.
    #[error(
        "{path} does not say which rank it is, and no communicator has all {files} processes; \
         start them with RANK set, as torchrun does"
    )]
    NoRank {
        /// The file of the process whose rank is not known.
        path: PathBuf,
        /// How many processes were recorded.
        files: usize,
    },
    /// A process has more than one rank of a communicator on one device.
    #[error(
        "{path}, call {call}: a second rank of a communicator on one device of one process; \
         a device is one rank"
    )]
    TwoRanks {
        /// The file of the process.
        path: PathBuf,
        /// The number of the call.
        call: u64,
    },
    /// More operations than can be numbered.
    #[error("this run has more than 4,294,967,295 calls that are judged")]
    TooMany,
    /// Two processes joined a communicator with the same rank.
    #[error("{first} and {second} both joined communicator {id} as rank {rank}")]
    SameRank {
        /// The communicator's unique id.
        id: String,
        /// The rank in it.
        rank: u32,
        /// The file of one process that says so.
        first: PathBuf,
        /// The file of the other process.
        second: PathBuf,
    },
    /// The members of a communicator do not agree on how many they are.
    #[error(
        "communicator {id} has {first_ranks} ranks according to {first} and {second_ranks} according to {second}"
    )]
    Sizes {
        /// The communicator's unique id.
        id: String,
        /// The file of one member.
        first: PathBuf,
        /// How many ranks it says the communicator has.
        first_ranks: u32,
        /// The file of a member that says otherwise.
        second: PathBuf,
        /// How many ranks that member says it has.
        second_ranks: u32,
    },
}

/// How many folders an error names.
const NAMED: usize = 8;

fn listed(folders: &[PathBuf]) -> String {
    let named = folders.iter().take(NAMED).map(|folder| folder.display().to_string());
    let more = folders.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("and {more} more"));
    named.chain(more).collect::<Vec<_>>().join(" ")
}

impl RunError {
    /// Says which folders in a folder without a recording hold some.
    fn naming_those_below(self) -> Self {
        let Self::Empty { path } = self else { return self };
        let below = recordings_below(&path);
        if below.is_empty() { Self::Empty { path } } else { Self::Below { path, below } }
    }
}

/// Returns the folders in a folder, at whatever depth, that hold a recording each.
#[must_use]
pub fn recordings_below(path: &std::path::Path) -> Vec<PathBuf> {
    const DEPTH: usize = 8;
    let (mut found, mut open) = (Vec::new(), vec![(path.to_owned(), DEPTH)]);
    while let Some((folder, depth)) = open.pop() {
        if world::files(&folder).is_ok() {
            found.push(folder.clone());
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        // A link may lead back to where the walk has been.
        let is_folder =
            |entry: &std::fs::DirEntry| depth > 0 && entry.file_type().is_ok_and(|of| of.is_dir());
        open.extend(entries.filter(is_folder).map(|entry| (entry.path(), depth - 1)));
    }
    found.sort();
    found
}

/// Whether a path is a directory that holds a recording, or the file of one of its processes.
#[must_use]
pub fn is_recording(path: &std::path::Path) -> bool {
    match path.is_dir() {
        true => world::files(path).is_ok(),
        false => world::is_one_file(path),
    }
}
