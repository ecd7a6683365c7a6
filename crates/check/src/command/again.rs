//! A process that starts again, because the memory does not hold what an evaluation asks for.
//!
//! The allocator may not unwind, and to end there would lose what all other files came to. So the process is replaced by
//! one that is told which evaluation it was: that one ends as an error, and all else runs as before.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::spec::{Unbounded, answer, unbounded};

/// The variable by which a process tells its successor, as JSON.
const TOLD: &str = "RANKCHECK_UNBOUNDED";

/// Larger than all that an evaluation needs, which has at most a million operations and 128 MiB of values.
const LARGEST: usize = 256 << 20;

/// Returns what the predecessor of this process could not evaluate.
fn told() -> Vec<Unbounded> {
    let told = std::env::var(TOLD).unwrap_or_default();
    serde_json::from_str(&told).unwrap_or_default()
}

/// Takes in what the predecessor of this process could not evaluate.
pub(super) fn take() {
    answer(told());
}

/// Looks at what the allocator is asked for. It starts the process again if an evaluation asks for more than any needs.
#[inline]
pub fn allocates(bytes: usize) {
    if bytes > LARGEST {
        starts_again();
    }
}

#[cold]
fn starts_again() {
    let Some(unbounded) = unbounded() else { return };
    let mut known = told();
    if known.contains(&unbounded) {
        return;
    }
    known.push(unbounded);
    if let (Ok(json), Ok(program)) = (serde_json::to_string(&known), std::env::current_exe()) {
        // It returns only if that fails, and then the allocator has its say.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(TOLD, json).exec();
    }
}
