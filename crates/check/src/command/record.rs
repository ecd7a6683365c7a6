//! `rankcheck record -- COMMAND`: runs a command with the recorder in all of its processes.
//!
//! The recorder is a library of its own, loaded into processes of others, so it cannot be part of this command;
//! it lies beside it. What runs in Python is text, and is part of it. Not here: what is recorded
//! (`crates/record`, `python/`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rankcheck_real::ffi::process;
use rankcheck_recording::read::read_header;
use rankcheck_recording::{Header, Packed, folded};
use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};
use thiserror::Error;

use super::output;
use crate::parallel::in_parallel;

/// The name of the recorder's file.
const LIBRARY: &str = "librankcheck_record.so";
/// How the files of a recording end.
const EXTENSION: &str = "rankrec";

/// How often is looked which processes still run: who hangs is known to have hung to within this.
const LOOK: Duration = Duration::from_secs(1);

/// What every Python process of the command loads.
const PYTHON: [(&str, &str); 10] = [
    ("sitecustomize.py", include_str!("../../../../python/activate/sitecustomize.py")),
    ("rankcheck_record/__init__.py", include_str!("../../../../python/rankcheck_record/__init__.py")),
    ("rankcheck_record/folded.py", include_str!("../../../../python/rankcheck_record/folded.py")),
    ("rankcheck_record/frames.py", include_str!("../../../../python/rankcheck_record/frames.py")),
    ("rankcheck_record/hooks.py", include_str!("../../../../python/rankcheck_record/hooks.py")),
    ("rankcheck_record/places.py", include_str!("../../../../python/rankcheck_record/places.py")),
    ("rankcheck_record/raised.py", include_str!("../../../../python/rankcheck_record/raised.py")),
    ("rankcheck_record/reader.py", include_str!("../../../../python/rankcheck_record/reader.py")),
    ("rankcheck_record/symmetric.py", include_str!("../../../../python/rankcheck_record/symmetric.py")),
    ("rankcheck_record/tell.py", include_str!("../../../../python/rankcheck_record/tell.py")),
];

#[derive(Debug, clap::Args)]
pub(super) struct RecordArguments {
    /// The folder for the recording, which must be empty or not exist [default: recording-<date>].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not fold the recording when the command ends. It is then many times as large, and no faster to read.
    #[arg(long)]
    no_fold: bool,
    /// The command, such as `torchrun --nproc-per-node 2 train.py`.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RecordArguments {
    /// Standard output is the command's; what this one has to say goes to the other.
    pub(super) fn run(self) -> u8 {
        let recorded = match record(self.out, !self.no_fold, &self.command) {
            Ok(recorded) => recorded,
            Err(error) => {
                output::usage(&error);
                return if matches!(error, RecordError::Start { .. }) { 127 } else { 125 };
            }
        };
        for left in &recorded.left {
            output::note(format_args!("rankcheck: {left}"));
        }
        if recorded.lost > 0 {
            let lost = recorded.lost;
            output::note(format_args!("rankcheck: the disk was full: {lost} events are missing"));
        }
        let RecordingSummary { processes, calls, bytes, .. } = recorded;
        let folder = recorded.folder.display();
        if processes == 0 {
            output::note(
                "rankcheck: nothing was recorded: no process called NCCL or CUDA through shared libraries",
            );
        } else {
            output::note(format_args!(
                "rankcheck: recorded {}, {}, {bytes} bytes in {folder}; next: rankcheck check {folder}",
                count(processes, "process", "processes"),
                count(calls, "call", "calls")
            ));
        }
        recorded.code
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Why nothing was run, or nothing can be said of it.
#[derive(Debug, Error)]
enum RecordError {
    /// The folder has something in it.
    #[error("{0} is not empty; a recording needs a folder of its own: choose another with --out")]
    NotEmpty(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use {path}: {source}")]
    Folder {
        /// The folder that was to hold the recording.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The recorder is not there.
    #[error(
        "{LIBRARY} is not beside this command nor in ../lib/rankcheck: build it with `cargo build --release -p \
         rankcheck-record`, or name it in RANKCHECK_RECORD_LIB"
    )]
    NoLibrary,
    /// The dynamic linker would take it for several.
    #[error("{0} has a space or a colon in its path, which LD_PRELOAD cannot have: copy it elsewhere")]
    Unloadable(PathBuf),
    /// The command did not start.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The program, as it was named on the command line.
        program: String,
        /// What the operating system says.
        source: io::Error,
    },
}

/// What a recording run of a command left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordingSummary {
    /// The folder of the recording.
    folder: PathBuf,
    /// The command's exit code; 128 and the signal's number if one ended it.
    code: u8,
    /// Processes that called something.
    processes: u64,
    /// How many calls its processes made.
    calls: u64,
    /// Events that found no room on the disk.
    lost: u64,
    /// The size of all its files together.
    bytes: u64,
    /// Files that were left as they are, and why.
    left: Vec<String>,
}

/// Runs a command, and packs and folds what was recorded.
///
/// # Errors
///
/// If it could not be started. How it ended is no error.
fn record(out: Option<PathBuf>, folds: bool, command: &[OsString]) -> Result<RecordingSummary, RecordError> {
    let library = library()?;
    let folder = out.unwrap_or_else(|| PathBuf::from(format!("recording-{}", date())));
    let in_folder = |source| RecordError::Folder { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(in_folder)?;
    if fs::read_dir(&folder).map_err(in_folder)?.next().is_some() {
        return Err(RecordError::NotEmpty(folder));
    }
    let folder = folder.canonicalize().map_err(in_folder)?;
    let python = folder.join(".python");
    write_python(&python).map_err(in_folder)?;
    let (status, alive) = thread::scope(|scope| {
        let (over, ended) = mpsc::channel();
        let folder = &folder;
        let watch = scope.spawn(move || watch(folder, &ended));
        let status = run(command, &library, folder, &python);
        drop(over);
        (status, watch.join().expect("the watch does not panic"))
    });
    // What cannot be removed is no recording, and nobody reads it.
    let _ = fs::remove_dir_all(&python);
    let mut recorded = pack_all(&folder, &alive, folds).map_err(in_folder)?;
    if recorded.processes == 0 {
        // It goes if nothing is in it.
        let _ = fs::remove_dir(&folder);
    }
    recorded.code = code(status?);
    Ok(recorded)
}

fn run(
    command: &[OsString],
    library: &Path,
    folder: &Path,
    python: &Path,
) -> Result<ExitStatus, RecordError> {
    let (program, arguments) = command.split_first().expect("clap wants a command");
    let failed = |source| RecordError::Start { program: program.to_string_lossy().into_owned(), source };
    let mut process = Command::new(program);
    process
        .args(arguments)
        .env("RANKCHECK_RECORD_DIR", folder)
        .env("RANKCHECK_RECORD_LIB", library)
        .env("RANKCHECK_RECORD_RUN", run_id())
        .env("LD_PRELOAD", before(library.as_os_str(), "LD_PRELOAD"))
        .env("PYTHONPATH", before(python.as_os_str(), "PYTHONPATH"));
    // These open NCCL by its path. Whoever named one wants that one.
    for variable in ["VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH"] {
        if std::env::var_os(variable).is_none() {
            process.env(variable, library);
        }
    }
    let mut child = process::spawn_with_signals(&mut process).map_err(failed)?;
    child.wait().map_err(failed)
}

/// When each process of this machine was last seen to run, by its file: nanoseconds since 1970. Looks until the
/// sender is gone. A process that hangs may call nothing that is recorded, so its file does not say how long it hung.
fn watch(folder: &Path, ended: &Receiver<()>) -> BTreeMap<PathBuf, u64> {
    let mut alive = BTreeMap::new();
    let mut known: BTreeMap<PathBuf, Option<(u32, u64)>> = BTreeMap::new();
    loop {
        for path in recorded_files(folder).unwrap_or_default() {
            if !known.contains_key(&path) {
                // It may have been made just now, without what it says of its process.
                let Ok((header, _)) = read_header(&path) else { continue };
                let process = local(&header);
                // It lived then, however soon it was gone.
                alive.extend(process.map(|_| (path.clone(), header.began)));
                known.insert(path.clone(), process);
            }
            if known[&path].is_some_and(runs) {
                alive.insert(path, now());
            }
        }
        if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return alive;
        }
    }
}

/// The files of a recording.
pub(super) fn recorded_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    files.sort();
    Ok(files)
}

/// The value of a variable that is a list, with this at its beginning.
fn before(first: &OsStr, variable: &str) -> OsString {
    let mut value = first.to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

fn library() -> Result<PathBuf, RecordError> {
    let named = std::env::var_os("RANKCHECK_RECORD_LIB").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok());
    let folder = beside.as_deref().and_then(Path::parent);
    let beside = folder
        .into_iter()
        .flat_map(|folder| [folder.join(LIBRARY), folder.join("../lib/rankcheck").join(LIBRARY)]);
    let mut candidates = named.into_iter().chain(beside);
    let found = candidates.find(|path| path.is_file()).ok_or(RecordError::NoLibrary)?;
    let found = found.canonicalize().map_err(|source| RecordError::Folder { path: found, source })?;
    if found.to_string_lossy().contains([' ', ':']) {
        return Err(RecordError::Unloadable(found));
    }
    Ok(found)
}

fn write_python(folder: &Path) -> io::Result<()> {
    for (name, text) in PYTHON {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Packs every file of the folder, and folds it if that is wanted.
fn pack_all(folder: &Path, alive: &BTreeMap<PathBuf, u64>, folds: bool) -> io::Result<RecordingSummary> {
    let mut recorded = RecordingSummary {
        folder: folder.to_owned(),
        code: 0,
        processes: 0,
        calls: 0,
        lost: 0,
        bytes: 0,
        left: Vec::new(),
    };
    let files = recorded_files(folder)?;
    recorded.processes = files.len() as u64;
    for packed in in_parallel(files.len(), |at| packed(&files[at], alive.get(&files[at]).copied(), folds)) {
        match packed {
            Ok(packed) => {
                recorded.calls += packed.calls;
                recorded.lost += packed.lost;
                recorded.bytes += packed.bytes;
            }
            Err(left) => recorded.left.push(left),
        }
    }
    Ok(recorded)
}

/// Packs a file, and folds it if that is wanted. What was left as it is says why.
fn packed(path: &Path, alive: Option<u64>, folds: bool) -> Result<Packed, String> {
    if let Some(pid) = written_by(path) {
        return Err(format!("{} is still written by process {pid}", path.display()));
    }
    let mut packed = rankcheck_recording::pack(path, alive).map_err(|error| error.to_string())?;
    // A file whose end was cut off stays as it is, and is read up to there.
    if folds && let Ok(file) = folded::fold(path, path) {
        packed.bytes = file.after;
    }
    Ok(packed)
}

/// The number of a process, and when it began to record, if it is of this machine.
fn local(header: &Header) -> Option<(u32, u64)> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    (header.host == host.trim()).then_some((header.pid, header.began))
}

/// The process of this machine that still writes a file.
pub(super) fn written_by(path: &Path) -> Option<u32> {
    let (header, _) = read_header(path).ok()?;
    local(&header).filter(|process| runs(*process)).map(|(pid, _)| pid)
}

/// Whether the process has not ended that had this number at a time, in nanoseconds since 1970.
fn runs((pid, then): (u32, u64)) -> bool {
    /// Seconds by which the clock may have been set since.
    const SET_BY: u64 = 60;
    let Ok(mut system) = System::new() else { return false };
    let pid = Pid::from_u32(pid);
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, ProcessRefreshKind::nothing());
    system.process(pid).is_some_and(|process| {
        // A zombie does nothing any more, and a later process only has the same number.
        let ended = matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead);
        !ended && process.start_time() <= then / 1_000_000_000 + SET_BY
    })
}

/// Returns nanoseconds since 1970; 0 if the clock stands before it.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Tells the files of one run from those of another.
fn run_id() -> String {
    format!("{:x}-{:x}", now(), std::process::id())
}

/// Year, month, day, and the time of day, in UTC.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (day, time) = (seconds / 86_400, seconds % 86_400);
    // Days of an era of 400 years, which begins on a 1st of March.
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}-{:02}{:02}{:02}", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::{now, runs};

    #[test]
    fn a_later_process_with_the_same_number_is_another_one() {
        let own = std::process::id();
        assert!(runs((own, now())));
        assert!(!runs((own, 1_000_000_000)));
    }
}
