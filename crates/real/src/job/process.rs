//! Worker processes of this machine: started, killed, waited for, and cleaned up after. The only file that
//! spawns.
//!
//! A process that hangs in CUDA ends by SIGKILL alone. What NCCL left under `/dev/shm` for a peer that never
//! came goes with it.
//! Not here: what a worker does, and when it has to end.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, PipeReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::WorkerCommand;
use crate::wire::TOKEN;
use crate::worker::WorkerConfig;

/// Lines of a worker's output that are reported when it is gone.
const LAST_LINES: usize = 6;

/// Starts and ends processes, from a thread of its own: the kernel ends a worker when the *thread* that
/// started it ends.
#[derive(Debug)]
pub(super) struct Spawner {
    orders: Sender<SpawnOrder>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum SpawnOrder {
    Spawn(WorkerConfig),
    Kill(u64),
}

/// A worker that may still run.
#[derive(Debug)]
struct WorkerProcess {
    child: Arc<Mutex<Child>>,
    /// Files that it shares with others and that nobody else would delete.
    shared: Arc<Mutex<Vec<PathBuf>>>,
}

impl Spawner {
    /// `gone` hears of each worker once: its number and how it ended, after it was waited for.
    pub(super) fn start(command: WorkerCommand, gone: impl Fn(u64, String) + Send + Sync + 'static) -> Self {
        let (orders, inbox) = mpsc::channel();
        let gone: Arc<Gone> = Arc::new(gone);
        let thread = std::thread::spawn(move || attend(&command, &inbox, &gone));
        Self { orders, thread }
    }

    pub(super) fn spawn(&self, worker: WorkerConfig) {
        // The thread takes orders for as long as this end of the channel lives.
        let _ = self.orders.send(SpawnOrder::Spawn(worker));
    }

    pub(super) fn kill(&self, number: u64) {
        let _ = self.orders.send(SpawnOrder::Kill(number));
    }

    /// Kills what is left and waits for it. Dropping a spawner kills as well, but does not wait.
    pub(super) fn end(self) {
        drop(self.orders);
        if self.thread.join().is_err() {
            tracing::error!("the thread that starts workers panicked");
        }
    }
}

type Gone = dyn Fn(u64, String) + Send + Sync;

fn attend(command: &WorkerCommand, inbox: &Receiver<SpawnOrder>, gone: &Arc<Gone>) {
    let mut processes = BTreeMap::new();
    let mut waiters: Vec<JoinHandle<()>> = Vec::new();
    while let Ok(order) = inbox.recv() {
        waiters.retain(|waiter| !waiter.is_finished());
        match order {
            SpawnOrder::Spawn(worker) => match spawn(command, &worker) {
                Ok((child, output)) => {
                    let child = Arc::new(Mutex::new(child));
                    let process = WorkerProcess { child: Arc::clone(&child), shared: Arc::default() };
                    let (shared, gone) = (Arc::clone(&process.shared), Arc::clone(gone));
                    processes.insert(worker.number, process);
                    waiters.push(std::thread::spawn(move || {
                        let how = await_end(&worker, &child, output, &shared);
                        gone(worker.number, how);
                    }));
                }
                Err(error) => {
                    gone(worker.number, format!("{} did not start: {error}", command.program.display()));
                }
            },
            SpawnOrder::Kill(number) => {
                if let Some(process) = processes.remove(&number) {
                    kill(&process);
                }
            }
        }
    }
    for process in processes.values() {
        kill(process);
    }
    for waiter in waiters {
        if waiter.join().is_err() {
            tracing::error!("a thread that waits for a worker panicked");
        }
    }
}

/// A worker of its own process group, so that an interrupt from the terminal reaches the coordinator alone.
fn spawn(command: &WorkerCommand, worker: &WorkerConfig) -> std::io::Result<(Child, PipeReader)> {
    let (output, input) = std::io::pipe()?;
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        .args(worker.to_arguments())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RANKCHECK_") {
            process.env_remove(name);
        }
    }
    // Symmetric kernels over multicast are another platform, and a machine without it fails to set it up.
    if std::env::var_os("NCCL_NVLS_ENABLE").is_none() {
        process.env("NCCL_NVLS_ENABLE", "0");
    }
    process.envs(command.environment.iter().map(|(name, value)| (name, value)));
    process.env(TOKEN, OsString::from(&worker.token));
    // The command holds the writing ends of the pipe; it is dropped here, so that the pipe ends with the worker.
    Ok((process.spawn()?, output))
}

/// Follows the output of a worker until it ends, and waits for the process.
fn await_end(
    worker: &WorkerConfig,
    child: &Mutex<Child>,
    output: PipeReader,
    shared: &Mutex<Vec<PathBuf>>,
) -> String {
    let mut last: VecDeque<String> = VecDeque::new();
    // A panic's own words stand before its backtrace.
    let mut panicked = Vec::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        tracing::debug!(rank = worker.rank.0, number = worker.number, "{line}");
        if panicked.len() == 1 || (panicked.is_empty() && line.contains(" panicked at ")) {
            panicked.push(line.clone());
        }
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // A process closes its output only when it ends; should one do it earlier, it must not be waited for in
    // vain. What it ended with is decided by then, so a late signal does not change that.
    let status = child.kill().and_then(|()| child.wait());
    drop(child);
    for path in shared.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // Several members list the same file; the first removes it.
        let _ = std::fs::remove_file(path);
    }
    let how = match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("it cannot be waited for: {error}"),
    };
    let last = if panicked.is_empty() { Vec::from(last) } else { panicked }.join(" | ");
    if last.is_empty() { how } else { format!("{how}; its last words: {last}") }
}

fn kill(process: &WorkerProcess) {
    // The lock is held while the end of a process is awaited, which needs no further signal.
    let Ok(mut child) = process.child.try_lock() else { return };
    // The id of a process that was waited for may be another's by now.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let shared = shared_files(Path::new(&format!("/proc/{}/maps", child.id())));
    process.shared.lock().unwrap_or_else(PoisonError::into_inner).extend(shared);
    if let Err(error) = child.kill() {
        tracing::warn!(pid = child.id(), %error, "a worker cannot be killed");
    }
}

/// Shared memory of NCCL that a process maps and that has not been unlinked yet.
fn shared_files(maps: &Path) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string(maps).unwrap_or_default();
    let paths = maps.lines().filter(|line| !line.ends_with(" (deleted)")).filter_map(|line| {
        let start = line.find("/dev/shm/nccl-")?;
        Some(PathBuf::from(&line[start..]))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_nccl_that_still_have_a_name_are_left_behind() {
        let folder = std::env::temp_dir().join(format!("rankcheck-maps-{}", std::process::id()));
        let maps = "7f00-7f01 rw-s 00000000 00:19 7 /dev/shm/nccl-AbCdEf\n\
                    7f01-7f02 rw-s 00000000 00:19 8 /dev/shm/nccl-GhIjKl (deleted)\n\
                    7f02-7f03 rw-s 00000000 00:19 9 /dev/shm/other\n\
                    7f03-7f04 r-xp 00000000 00:19 9 /usr/lib/libnccl.so\n";
        std::fs::write(&folder, maps).expect("the folder for temporary files can be written");
        let found = shared_files(&folder);
        std::fs::remove_file(&folder).expect("it was written above");
        assert_eq!(found, [PathBuf::from("/dev/shm/nccl-AbCdEf")]);
    }
}
