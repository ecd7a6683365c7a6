//! The file of `--checkpoint`: what large searches have found so far, so that a command that is killed goes on.
//!
//! Whoever keeps a search writes the file anew, with the other searches that are in it, and it has its name only once it is
//! whole. Not here: what is kept of a search (`search/kept.rs`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::output;
use crate::search::{SearchKeeper, SearchName};
use crate::whole_file;

/// What a checkpoint begins with. The build follows, and the end of the line.
const BEGIN: &str = "rankcheck checkpoint, format 1, build ";

/// The searches that this command keeps in a file.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    path: PathBuf,
    every: Duration,
    /// The digest of the program that runs: fingerprints of another build may mean other states.
    build: String,
    /// Held by whoever reads or writes the file: the searches of this command, by their words.
    own: Mutex<BTreeSet<String>>,
}

/// What stands before a search in the file.
#[derive(Debug, Serialize, Deserialize)]
struct SectionHead {
    words: String,
    /// What all that decides its outcome is made to, in hexadecimal digits.
    digest: String,
}

/// Where a search lies in the file.
#[derive(Debug)]
struct Section {
    head: SectionHead,
    first: u64,
    bytes: u64,
}

/// Why a file cannot be used as a checkpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    #[error("cannot read the checkpoint {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("cannot write the checkpoint {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error(
        "{} is no checkpoint, or not all of one; it is left as it is: name another file with --checkpoint, or remove it",
        path.display()
    )]
    NoCheckpoint { path: PathBuf },
    #[error(
        "the checkpoint {} was written by another build of rankcheck, whose states may be others: run that build, name \
         another file with --checkpoint, or remove this one",
        path.display()
    )]
    OtherBuild { path: PathBuf },
}

impl CheckpointFile {
    /// A file, which need not be there yet.
    ///
    /// # Errors
    /// If it is something else, of another build, or cannot be read or written.
    pub(super) fn new(path: &Path, every: Duration) -> Result<Self, CheckpointError> {
        let path = path.to_owned();
        let build = match build() {
            Ok(build) => build,
            Err(error) => return Err(CheckpointError::Unreadable { path, error }),
        };
        let file = Self { path, every, build, own: Mutex::default() };
        match File::open(&file.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(CheckpointError::Unreadable { path: file.path, error }),
            Ok(mut opened) => file.begins(&mut opened)?,
        }
        if file.sections().is_err() {
            return Err(CheckpointError::NoCheckpoint { path: file.path });
        }
        let folder = file.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Err(error) = whole_file::prepare_folder(folder.unwrap_or_else(|| Path::new("."))) {
            return Err(CheckpointError::Unwritable { path: file.path, error });
        }
        Ok(file)
    }

    /// Whether the file begins as one of this build.
    fn begins(&self, opened: &mut File) -> Result<(), CheckpointError> {
        let path = self.path.clone();
        let mut begin = vec![0; self.begin().len()];
        match opened.read_exact(&mut begin) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(CheckpointError::Unreadable { path, error })
            }
            Err(_) => Err(CheckpointError::NoCheckpoint { path }),
            Ok(()) if begin == self.begin().as_bytes() => Ok(()),
            Ok(()) if begin.starts_with(BEGIN.as_bytes()) => Err(CheckpointError::OtherBuild { path }),
            Ok(()) => Err(CheckpointError::NoCheckpoint { path }),
        }
    }

    fn begin(&self) -> String {
        format!("{BEGIN}{}\n", self.build)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The searches in the file.
    fn sections(&self) -> io::Result<Vec<Section>> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let end = file.metadata()?.len();
        let mut at = file.seek(SeekFrom::Start(self.begin().len() as u64))?;
        let mut sections = Vec::new();
        while at < end {
            let mut length = [0; 8];
            file.read_exact(&mut length)?;
            let mut head = Vec::new();
            Read::by_ref(&mut file).take(u64::from_le_bytes(length)).read_to_end(&mut head)?;
            let head: SectionHead = serde_json::from_slice(&head)?;
            file.read_exact(&mut length)?;
            let (first, bytes) = (file.stream_position()?, u64::from_le_bytes(length));
            at = first.checked_add(bytes).filter(|next| *next <= end).ok_or(io::ErrorKind::UnexpectedEof)?;
            file.seek(SeekFrom::Start(at))?;
            sections.push(Section { head, first, bytes });
        }
        Ok(sections)
    }

    /// What is in a section.
    fn section(&self, of: &Section) -> io::Result<io::Take<File>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(of.first))?;
        Ok(file.take(of.bytes))
    }

    fn write(
        &self,
        which: &SearchName,
        search: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let _held = self.locked();
        self.write_beside(
            |head| head.words != which.words,
            |to| {
                begin_section(to, &SectionHead { words: which.words.clone(), digest: hexadecimal(which) })?;
                // How long it is comes out once it is written.
                let length_at = to.stream_position()?;
                to.write_all(&[0; 8])?;
                search(to)?;
                let bytes = to.stream_position()? - length_at - 8;
                to.seek(SeekFrom::Start(length_at))?;
                to.write_all(&bytes.to_le_bytes())
            },
        )
    }

    /// Writes the file anew, with the searches that stay and what is added.
    fn write_beside(
        &self,
        stays: impl Fn(&SectionHead) -> bool,
        add: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let staying: Vec<Section> =
            self.sections()?.into_iter().filter(|section| stays(&section.head)).collect();
        whole_file::write_with(&self.path, |file| {
            let mut to = BufWriter::new(file);
            to.write_all(self.begin().as_bytes())?;
            for section in staying {
                begin_section(&mut to, &section.head)?;
                to.write_all(&section.bytes.to_le_bytes())?;
                io::copy(&mut self.section(&section)?, &mut to)?;
            }
            add(&mut to)?;
            to.flush()
        })
    }

    /// Removes the searches of this command if they are over, and the file once nothing is left in it; says what else it is for.
    pub(super) fn end(&self, all_is_done: bool) {
        if !all_is_done {
            if self.path.exists() {
                output::note(format_args!(
                    "{} has what searches found so far: with it the same command goes on from there",
                    self.path.display()
                ));
            }
            return;
        }
        let own = self.locked();
        let Ok(sections) = self.sections() else { return };
        let others = sections.iter().filter(|section| !own.contains(&section.head.words)).count();
        if others == 0 {
            // It is in nobody's way but as a file that is there.
            let _ = fs::remove_file(&self.path);
            return;
        }
        if others < sections.len()
            && let Err(error) = self.write_beside(|head| !own.contains(&head.words), |_| Ok(()))
        {
            let path = self.path.clone();
            output::note(CheckpointError::Unwritable { path, error });
        }
        let (searches, are) = if others == 1 { ("a search", "is") } else { ("searches", "are") };
        output::note(format_args!(
            "{} stays: it has {searches} of checks that {are} no part of this command",
            self.path.display()
        ));
    }
}

fn begin_section(to: &mut impl Write, head: &SectionHead) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    to.write_all(&(head.len() as u64).to_le_bytes())?;
    to.write_all(&head)
}

fn hexadecimal(of: &SearchName) -> String {
    format!("{:032x}", of.digest)
}

/// The digest of the program that runs.
fn build() -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut program = File::open(std::env::current_exe()?)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match program.read(&mut piece)? {
            0 => break,
            read => digest.update(&piece[..read]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl SearchKeeper for CheckpointFile {
    fn every(&self) -> Duration {
        self.every
    }

    fn kept(&self, of: &SearchName) -> Option<Box<dyn Read>> {
        let mut own = self.locked();
        own.insert(of.words.clone());
        let sections = self.sections().ok()?;
        let section = sections.iter().find(|section| section.head.words == of.words)?;
        if section.head.digest != hexadecimal(of) {
            output::note(format_args!(
                "{} was another text when it was kept: its search begins anew",
                of.words
            ));
            return None;
        }
        Some(Box::new(BufReader::new(self.section(section).ok()?)))
    }

    fn goes_on(&self, which: &SearchName, from: Option<u64>) {
        let path = self.path.display();
        output::note(match from {
            Some(states) => format!("{} goes on from {states} states in {path}", which.words),
            None => format!("what {path} has of {} is damaged: its search begins anew", which.words),
        });
    }

    fn keep(&self, which: &SearchName, search: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) {
        if let Err(error) = self.write(which, search) {
            let path = self.path.clone();
            output::note(CheckpointError::Unwritable { path, error });
        }
    }
}
