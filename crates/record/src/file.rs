//! The file of this process, and the extents that its threads claim in it.
//!
//! A thread writes into memory that the file is mapped to, so what was written is in the file whatever becomes
//! of the process. Not here: what is written.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rankcheck_recording::layout::{EXTENT_BYTES, HEADER_BYTES, encode_header};
use rankcheck_recording::{Header, RunningTime, Space};

use crate::ffi::clock;
use crate::ffi::process::FileMapping;

/// Events after a full disk until the next attempt to get an extent.
const PATIENCE: u32 = 4096;

/// The file of one process.
pub(crate) struct RecordingFile {
    file: File,
    path: PathBuf,
    /// How many extents were claimed.
    extents: AtomicU64,
    /// Of the monotonic clock, when times begin.
    pub(crate) began: u64,
}

impl RecordingFile {
    /// Makes the file in the folder that `rankcheck record` names. Its times begin now, at `began`. `None` if no
    /// folder is named, or nothing can be written there: the program goes on without.
    pub(crate) fn create(began: u64) -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os("RANKCHECK_RECORD_DIR")?);
        let began_at = clock::since_1970();
        let header = header(began_at, began);
        let bytes = encode_header(&header)?;
        let (host, pid) = (&header.host, header.pid);
        // A process number comes back when containers share a folder and a name of the machine.
        let names = (0..100).map(|nth| match nth {
            0 => format!("{host}-{pid}.rankrec"),
            nth => format!("{host}-{pid}-{nth}.rankrec"),
        });
        for path in names.map(|name| folder.join(name)) {
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    if std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).is_err() {
                        return None;
                    }
                    return Some(Self { file, path, extents: AtomicU64::new(0), began });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Takes the file away again: another thread was quicker.
    pub(crate) fn remove(&self) {
        // What cannot be removed stays as a file without events.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The extents of one thread.
pub(crate) struct Extents {
    recording: &'static RecordingFile,
    mapping: Option<FileMapping>,
    /// Events to let pass before the disk is asked again.
    patience: u32,
}

impl Extents {
    pub(crate) fn new(recording: &'static RecordingFile) -> Self {
        Self { recording, mapping: None, patience: 0 }
    }
}

impl Space for Extents {
    fn advance(&mut self) -> bool {
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        let nth = self.recording.extents.fetch_add(1, Ordering::Relaxed);
        let at = HEADER_BYTES as u64 + nth * EXTENT_BYTES as u64;
        let file = self.recording.file.as_raw_fd();
        match FileMapping::new(file, at, EXTENT_BYTES) {
            Some(mapping) => {
                self.mapping = Some(mapping);
                true
            }
            None => {
                self.patience = PATIENCE;
                false
            }
        }
    }

    #[inline]
    fn extent(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], FileMapping::bytes)
    }
}

/// What was typed, nearly: launchers put whole paths where people type names.
fn command() -> Vec<String> {
    let here = std::env::current_dir().unwrap_or_default();
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    // Its last word ends in a zero too. The header has one page: long arguments (`python -c …`) are told by their
    // beginnings.
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).take(16);
    let word = |(nth, word): (usize, &[u8])| {
        let path = Path::new(OsStr::from_bytes(word));
        let path = match (nth, path.file_name()) {
            (0, Some(name)) => Path::new(name),
            _ => path.strip_prefix(&here).unwrap_or(path),
        };
        path.to_string_lossy().chars().take(100).collect()
    };
    words.enumerate().map(word).collect()
}

/// The header of this process, which began then: nanoseconds since 1970, and of the monotonic clock.
fn header(began: u64, monotonic: u64) -> Header {
    let number = |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(64).collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let running = boot.map(|boot| RunningTime { began: monotonic, boot: boot.trim().to_owned() });
    Header {
        driver: true,
        rank: number(&["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]),
        ranks: number(&["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"]),
        pid: std::process::id(),
        host: if host.is_empty() { "unknown".to_owned() } else { host },
        command: command(),
        run: std::env::var("RANKCHECK_RECORD_RUN").unwrap_or_default(),
        began,
        running,
        recorder: env!("CARGO_PKG_VERSION").to_owned(),
        alive: None,
        bytes: None,
    }
}
