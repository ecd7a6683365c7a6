//! Files become processes: the communicators that each made, and its calls in the order of its lines.
//!
//! A file is of one process (`NCCL_DEBUG_FILE=log.%h.%p`) or of many, as a launcher mixes what they print. Lines that
//! cannot be read are not passed over: from the first of them on, the calls of whoever may have printed it have no
//! numbers. Not here: which communicators of different processes are one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::line::{
    CallLine, InitLine, LogMessage, LogRecord, looks_like_call, records, version, without_colours,
};

/// How deep folders are looked into.
const DEPTH: usize = 8;

/// How much of a file is looked at to find out what it is.
const LOOKED_AT: u64 = 4 << 20;

/// The longest piece of a line that is looked at in one.
const LONGEST_LINE: u64 = 1 << 16;

/// What `nccl` stands before in the names of NCCL's functions, and RCCL's.
const FUNCTIONS: [&str; 15] = [
    "AllReduce",
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AlltoAll",
    "AllToAll",
    "AllToAllv",
    "Gather",
    "Scatter",
    "Send",
    "Recv",
    "PutSignal",
    "Signal",
    "WaitSignal",
];

/// What torch prints when it gives up waiting for a call.
const GIVEN_UP: &str = "Watchdog caught collective operation timeout";

/// Why nothing can be read.
#[derive(Debug, Error)]
#[error("cannot read {path}: {source}")]
pub struct LogError {
    /// The path that was given, or a file or folder in it.
    pub path: PathBuf,
    /// What the operating system says.
    pub source: io::Error,
}

/// All that was read.
#[derive(Debug, Default)]
pub struct Logs {
    /// The files, by their paths.
    pub files: Vec<LogFile>,
    /// The processes, in the order in which they are met.
    pub processes: Vec<LogProcess>,
}

/// One file that is a log.
#[derive(Debug, Default)]
pub struct LogFile {
    /// Where the file is.
    pub path: PathBuf,
    /// The version of the library.
    pub version: Option<Arc<str>>,
    /// Calls that torch gave up, in its words, with the rank of the job that did.
    pub gave_up: Vec<(Option<u32>, String)>,
    /// How many lines were meant to be calls and are not whole, and are of nobody.
    pub torn: u64,
}

/// What one process printed.
#[derive(Debug, Default)]
pub struct LogProcess {
    /// The file, by its place.
    pub file: usize,
    /// The rank that a launcher put before its lines.
    pub label: Option<u32>,
    /// The host that it ran on.
    pub host: String,
    /// Its number on that host.
    pub pid: u32,
    /// Its communicators, in the order in which they were made.
    pub comms: Vec<LogComm>,
    /// Its calls, in the order of its lines.
    pub calls: Vec<LogCall>,
    /// From which call on its calls have no numbers, because something is missing there.
    pub torn: Option<usize>,
    /// Whether the file ends in the middle of a line that may be its.
    pub cut: bool,
    /// The last warning that it printed.
    pub warning: Option<Arc<str>>,
}

/// A communicator of a process.
#[derive(Debug)]
pub struct LogComm {
    /// What is said of it.
    pub init: InitLine,
    /// What it was split from, by its place.
    pub parent: Option<usize>,
    /// How many calls the process had made when it began to make it.
    pub calls_before: usize,
    /// Whether the line is there that it is made.
    pub made: bool,
    /// Whether lines say different things of it.
    pub contradicts: bool,
    /// How its process was done with it.
    pub end: Option<CommEnd>,
}

/// How a process was done with a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommEnd {
    /// It was destroyed, as at an orderly end.
    Destroyed,
    /// It was aborted, whatever it had open.
    Aborted,
}

/// A call of a process.
#[derive(Debug)]
pub struct LogCall {
    /// The communicator, by its place, if the line that it is made is there.
    pub comm: Option<usize>,
    /// The function, without `nccl`.
    pub name: Arc<str>,
    /// How many elements it is given.
    pub count: u64,
    /// The number of their type.
    pub dtype: u32,
    /// The number of the reduction.
    pub reduction: u32,
    /// The root, or the other rank of a transfer.
    pub root: u32,
    /// The stream that it is given to.
    pub stream: Option<u64>,
    /// When the line was printed.
    pub time: Option<i64>,
}

/// Returns whether a path is a log, or a folder that has one in it.
#[must_use]
pub fn holds_logs(path: &Path) -> bool {
    let mut files = Vec::new();
    let is_spec = |path: &PathBuf| path.extension().is_some_and(|end| end == "star");
    // Folders of specs are for others, whatever lies beside them.
    list(path, 0, &mut files).is_ok() && !files.iter().any(is_spec) && files.iter().any(|path| is_log(path))
}

/// Lists the files of a folder, sorted.
fn list(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), LogError> {
    let wrong = |source| LogError { path: path.to_owned(), source };
    let kind = path.metadata().map_err(wrong)?;
    if kind.is_file() {
        files.push(path.to_owned());
    }
    if !kind.is_dir() || depth > DEPTH {
        return Ok(());
    }
    let mut inside = Vec::new();
    for entry in path.read_dir().map_err(wrong)? {
        inside.push(entry.map_err(wrong)?.path());
    }
    inside.sort();
    for path in inside {
        // What vanishes while one looks was not there.
        if path.exists() {
            list(&path, depth + 1, files)?;
        }
    }
    Ok(())
}

/// Returns whether a file has a line of NCCL's log. Specs and sources may quote one.
fn is_log(path: &Path) -> bool {
    let quotes =
        path.extension().is_some_and(|end| ["star", "py", "md", "rs"].iter().any(|other| end == *other));
    let Some(file) = File::open(path).ok().filter(|_| !quotes) else { return false };
    let mut file = BufReader::new(file.take(LOOKED_AT));
    // Recordings and dumps are no text. A log that was emptied while somebody wrote it begins with zeros alone.
    let is_data = |start: &[u8]| {
        let start = &start[..start.len().min(64)];
        start.iter().any(|byte| *byte == 0 || *byte == 0x80) && start.iter().any(|byte| *byte != 0)
    };
    if file.fill_buf().is_ok_and(is_data) {
        return false;
    }
    let mut line = Vec::new();
    while file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        if text.contains("NCCL ") && !records(&without_colours(&text)).0.is_empty() {
            return true;
        }
        line.clear();
    }
    false
}

/// Reads all logs at some paths.
///
/// # Errors
///
/// If a path does not exist, or a folder or a log cannot be read.
pub fn read_logs(paths: &[PathBuf]) -> Result<Logs, LogError> {
    let mut files = Vec::new();
    for path in paths {
        list(path, 0, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut logs = Logs::default();
    for path in files.into_iter().filter(|path| is_log(path)) {
        let file = File::open(&path).map_err(|source| LogError { path: path.clone(), source })?;
        logs.read(BufReader::new(file), &path).map_err(|source| LogError { path, source })?;
    }
    Ok(logs)
}

impl Logs {
    /// Reads one log.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read(&mut self, mut bytes: impl BufRead, path: &Path) -> io::Result<()> {
        let mut file = FileReader {
            place: self.files.len(),
            first: self.processes.len(),
            logs: self,
            file: LogFile { path: path.to_owned(), ..LogFile::default() },
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut bytes).take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            file.line(in_container(&text).as_deref().unwrap_or(&text), line.ends_with(b"\n"));
        }
        let read = file.file;
        self.files.push(read);
        Ok(())
    }
}

/// Returns the rank that torch says gives up: `[rank2]:[E1128 …] [Rank 2] `. Newer versions write the rank in the group there.
fn gave_up(before: &str) -> Option<u32> {
    let number = |mark: &str| {
        let at = before.find(mark)? + mark.len();
        before[at..].split(']').next()?.parse().ok()
    };
    number("[rank").or_else(|| number("[Rank "))
}

/// Returns what a container printed, of a line that Docker wrote down: `{"log":"…\\n","stream":"stdout","time":"…"}`.
fn in_container(line: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct DockerLine {
        log: String,
    }
    let is_json = line.starts_with("{\"log\":");
    is_json.then(|| serde_json::from_str(line).ok().map(|printed: DockerLine| printed.log))?
}

struct FileReader<'a> {
    logs: &'a mut Logs,
    file: LogFile,
    /// The place of the file.
    place: usize,
    /// The place of its first process.
    first: usize,
}

impl FileReader<'_> {
    fn line(&mut self, line: &str, whole: bool) {
        let coloured = if line.contains('\u{1b}') { Some(without_colours(line)) } else { None };
        let line = coloured.as_deref().unwrap_or(line);
        let (records, between) = records(line);
        for text in between {
            if looks_like_call(text) {
                self.file.torn += 1;
                self.tear_all();
            }
            if let Some(at) = text.find(GIVEN_UP) {
                let said = text[at..].split_once(": ").map_or(&text[at..], |(_, said)| said);
                self.file.gave_up.push((gave_up(&text[..at]), said.trim_end().chars().take(200).collect()));
            }
            if let Some(version) = version(text) {
                self.file.version.get_or_insert_with(|| version.into());
            }
        }
        let mut last = None;
        for record in records {
            let process = self.process(&record);
            last = Some(process);
            self.record(process, &record);
        }
        if !whole {
            match last {
                Some(process) => self.logs.processes[process].cut = true,
                None => self.logs.processes[self.first..].iter_mut().for_each(|process| process.cut = true),
            }
        }
    }

    /// Returns the process that a record is of. Containers may give several of them one name and one number; then their
    /// labels tell them apart.
    fn process(&mut self, record: &LogRecord<'_>) -> usize {
        let named = |process: &LogProcess| process.host == record.host && process.pid == record.pid;
        let fits = |process: &LogProcess| match (process.label, record.label) {
            (Some(one), Some(other)) => one == other,
            (_, _) => true,
        };
        let processes = &mut self.logs.processes[self.first..];
        // Lines of one process often follow one another.
        let found = processes.iter().rposition(|process| named(process) && fits(process));
        let is_one = found.is_some_and(|at| !processes[at].comms.is_empty());
        let before = processes.iter().enumerate();
        let before = before.filter(|(_, process)| !is_one && runs_into(process, record, found.is_some()));
        let before = before.max_by_key(|(_, process)| process.host.len()).map(|(at, _)| at);
        if let Some(at) = before.or(found) {
            let process = &mut processes[at];
            process.label = process.label.or(record.label);
            return self.first + at;
        }
        let (label, host, pid) = (record.label, record.host.to_owned(), record.pid);
        self.logs.processes.push(LogProcess { file: self.place, label, host, pid, ..LogProcess::default() });
        self.logs.processes.len() - 1
    }

    fn tear_all(&mut self) {
        self.logs.processes[self.first..].iter_mut().for_each(LogProcess::tear);
    }

    /// What was printed in the name of a process may be of one with the same number, or on the same host; or of any, if there
    /// is no such.
    fn tear_like(&mut self, at: usize) {
        let (host, pid) = (self.logs.processes[at].host.clone(), self.logs.processes[at].pid);
        let like = |process: &LogProcess| process.host == host || process.pid == pid;
        let others = || self.first..self.logs.processes.len();
        let any = others().any(|other| other != at && like(&self.logs.processes[other]));
        for other in others() {
            let process = &mut self.logs.processes[other];
            if !any || like(process) {
                process.tear();
            }
        }
    }

    fn record(&mut self, at: usize, record: &LogRecord<'_>) {
        match record.said {
            LogMessage::Call(call) => self.call(at, &call, record),
            LogMessage::Init(init) => self.logs.processes[at].init(init),
            LogMessage::End { comm, aborted } => self.logs.processes[at].end(comm, aborted),
            LogMessage::Version(version) => {
                self.file.version.get_or_insert_with(|| version.into());
            }
            LogMessage::Warning(text) => self.logs.processes[at].warning = Some(text.into()),
            LogMessage::Torn => self.logs.processes[at].tear(),
            LogMessage::Other => {}
        }
    }

    fn call(&mut self, at: usize, call: &CallLine<'_>, record: &LogRecord<'_>) {
        let process = &mut self.logs.processes[at];
        let comm = process.comm(call.comm).filter(|comm| {
            let comm = &process.comms[*comm];
            comm.end.is_none() && comm.init.nranks == call.nranks
        });
        // A line is missing or damaged, and calls of its other communicators may be missing too.
        let is_odd = comm.is_none() && !process.comms.is_empty();
        // Whether a function that is not known counts among the collectives is not known either.
        if is_odd || !FUNCTIONS.contains(&call.name) {
            process.tear();
        }
        let unheard_of = comm.is_none() && process.comms.is_empty();
        process.label = process.label.or(call.global_rank);
        process.calls.push(LogCall {
            comm,
            name: call.name.into(),
            count: call.count,
            dtype: call.dtype,
            reduction: call.reduction,
            root: call.root,
            stream: call.stream,
            time: record.time,
        });
        if unheard_of && self.logs.processes[self.first..].iter().any(|process| !process.comms.is_empty()) {
            // Who printed it may be damaged.
            self.tear_like(at);
        }
    }
}

/// Whether a record is of a process, and what was printed before it without a newline runs into the name of its host: that name
/// ends with the host's, the number is the same, and what it says is of its communicators. A process of a host that is
/// really called so says something else before it makes its first.
fn runs_into(process: &LogProcess, record: &LogRecord<'_>, is_known: bool) -> bool {
    let is_named = record.host.len() > process.host.len()
        && record.host.ends_with(&process.host)
        && record.pid == process.pid
        && process.label.zip(record.label).is_none_or(|(one, other)| one == other);
    let of_it = |comm: u64| record.follows || process.comm(comm).is_some();
    let says = match record.said {
        LogMessage::Init(init) => !is_known || of_it(init.comm),
        LogMessage::Call(call) => of_it(call.comm),
        LogMessage::End { comm, .. } => of_it(comm),
        LogMessage::Warning(_) | LogMessage::Torn => true,
        LogMessage::Version(_) | LogMessage::Other => record.follows,
    };
    is_named && says
}

impl LogProcess {
    fn tear(&mut self) {
        self.torn.get_or_insert(self.calls.len());
    }

    /// The communicator that a pointer stands for now.
    fn comm(&self, pointer: u64) -> Option<usize> {
        self.comms.iter().rposition(|comm| comm.init.comm == pointer)
    }

    fn init(&mut self, init: InitLine) {
        if let Some(at) = self.comm(init.comm)
            && !init.begins
            && let Some(comm) = self.comms.get_mut(at).filter(|comm| !comm.made && comm.end.is_none())
        {
            comm.made = true;
            comm.contradicts |= InitLine { begins: true, ..init } != comm.init;
            return;
        }
        let parent = init.split.and_then(|split| self.comm(split.parent));
        let made = !init.begins;
        let calls_before = self.calls.len();
        self.comms.push(LogComm { init, parent, calls_before, made, contradicts: false, end: None });
    }

    fn end(&mut self, comm: u64, aborted: bool) {
        let Some(at) = self.comm(comm) else { return };
        let end = if aborted { CommEnd::Aborted } else { CommEnd::Destroyed };
        self.comms[at].end.get_or_insert(end);
    }
}
