//! Processes whose log is there twice: copied, or printed and written to a file too. One of them is used.
//!
//! Not here: which rank a process is.

use std::collections::BTreeSet;

use super::read::{LogCall, LogProcess, Logs};

/// The processes of logs that are not used, because others are the same.
#[derive(Debug, Default)]
pub struct Copies {
    /// The processes that are not used, by their places.
    pub unused: BTreeSet<usize>,
    /// What is said of copies that make no difference.
    pub notes: Vec<String>,
    /// What is said of logs of one process that do not say the same.
    pub gaps: Vec<String>,
}

/// Finds the processes that are there twice.
#[must_use]
pub fn copies(logs: &Logs) -> Copies {
    let mut copies = Copies::default();
    for (at, process) in logs.processes.iter().enumerate() {
        let mut before = (0..at).filter(|before| !copies.unused.contains(before));
        let Some(other) = before.find(|before| is_same(&logs.processes[*before], process)) else { continue };
        let length = |process: usize| {
            let process = &logs.processes[process];
            (process.calls.len(), process.comms.len())
        };
        let (used, unused) = if length(at) > length(other) { (at, other) } else { (other, at) };
        copies.unused.insert(unused);
        let path = |process: usize| logs.files[logs.processes[process].file].path.display();
        let (one, two, of) = (path(used), path(unused), format!("{}:{}", process.host, process.pid));
        if agree(&logs.processes[used], &logs.processes[unused]) {
            copies
                .notes
                .push(format!("{one} and {two} both have the log of process {of}: the first is used"));
        } else {
            copies.gaps.push(format!(
                "what process {of} called: {one} and {two} both have its log and say different things; the first is used"
            ));
        }
    }
    copies
}

/// Whether two processes of different files are one: they have one host and number, and began with the same communicator.
fn is_same(one: &LogProcess, other: &LogProcess) -> bool {
    let named = one.host == other.host && one.pid == other.pid && one.file != other.file;
    let labelled = one.label.zip(other.label).is_none_or(|(one, other)| one == other);
    let begin = match (one.comms.first(), other.comms.first()) {
        (Some(one), Some(other)) => one.init == other.init,
        (None, None) => !one.calls.is_empty() && !other.calls.is_empty() && agree(one, other),
        (Some(_), None) | (None, Some(_)) => false,
    };
    named && labelled && begin
}

/// Whether one of them says what the other does, as far as both go.
fn agree(one: &LogProcess, other: &LogProcess) -> bool {
    let same_call = |(one, other): (&LogCall, &LogCall)| {
        let of = |call: &LogCall| (call.comm, call.count, call.dtype, call.reduction, call.root);
        one.name == other.name && of(one) == of(other)
    };
    one.calls.iter().zip(&other.calls).all(same_call)
        && one.comms.iter().zip(&other.comms).all(|(one, other)| one.init == other.init)
}
