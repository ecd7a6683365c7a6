//! The file in which a shard of `check` keeps what it found, for `rankcheck merge`.
//!
//! It is lines of JSON. The first says which shard of how many this is, of which list of cases, and by which command and options;
//! then comes a line for each case, and the last one says how many those are. A file is written under another name and renamed
//! when it is complete, so a shard that is killed leaves none. Where a copy lost its end, the last line is missing.
//!
//! Each line has what every format prints of the case ([`KeptReport`]). So merging needs neither the specs nor the engine, and says
//! what was said on the machine of the shard. The list of cases is known by a digest of their identities: of a check its file,
//! its name, and the text of the file and of all that it loads; of runs the names and lengths of their files, because nobody wants to read
//! every recording on every machine. Bounds are no part of what has to be equal: whoever repeats a shard that ran out of memory
//! gives it more.
//! Not here: which case is in which shard ([`crate::shard`]), and what is printed (`results`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rankcheck_model::Rule;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::check::LookForRepairs;
use super::results::{CaseResults, KeptComparison, KeptReport, Reported, RunComparison};
use super::select::{CheckSelection, WantedVerdict};
use crate::shard::Shard;
use crate::spec::SpecError;
use crate::whole_file;

/// Raised whenever the lines change.
const SCHEMA_VERSION: u32 = 1;

/// What tells a case from others of a list.
pub(super) struct CaseIdentity(Vec<String>);

impl CaseIdentity {
    pub(super) fn of_text(parts: &[&str]) -> Self {
        Self(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    /// The paths of files and folders, with the names and lengths of the files.
    pub(super) fn of_files<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Self {
        let mut parts = Vec::new();
        for path in paths {
            parts.push(path.display().to_string());
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let files: BTreeSet<PathBuf> = match path.is_dir() {
                true => entries.map(|entry| entry.path()).collect(),
                false => [path.clone()].into(),
            };
            for file in files {
                if let Ok(metadata) = fs::metadata(&file)
                    && metadata.is_file()
                {
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    parts.push(format!("{name} {}", metadata.len()));
                }
            }
        }
        Self(parts)
    }
}

/// The options that decide what is found, or how it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardOptions {
    pub(super) platform: Option<String>,
    pub(super) naive: bool,
    pub(super) rule: Option<String>,
    pub(super) verdict: Option<WantedVerdict>,
    pub(super) repairs: LookForRepairs,
    pub(super) waive: Vec<String>,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
}

impl ShardOptions {
    /// Returns the filters among them.
    pub(super) fn selection(&self) -> Option<CheckSelection> {
        let rule = self.rule.as_deref().map(str::parse::<Rule>).transpose().ok()?;
        Some(CheckSelection { only: None, system: None, rule, verdict: self.verdict })
    }
}

/// The first line of a file, which says what the file is of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ShardHeader {
    shard_schema: u32,
    number: u32,
    of: u32,
    rankcheck: String,
    /// How many cases all shards have together.
    pub(super) cases: usize,
    /// The digest of their identities, in order.
    digest: String,
    pub(super) options: ShardOptions,
}

/// The line that a case has in the file.
#[derive(Serialize, Deserialize)]
struct CaseLine {
    /// Its position in the list, from 0 on.
    case: usize,
    reported: Vec<KeptReport>,
    together: Vec<KeptComparison>,
    bad: Vec<SpecError>,
}

/// The last line of a file. Without it the file is not complete.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastLine {
    /// How many lines of cases there are.
    lines: usize,
}

/// Why a file cannot be taken for that of a shard.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShardFileError {
    #[error("cannot read {}: {cause}", .path.display())]
    File { path: PathBuf, cause: std::io::Error },
    #[error(
        "{} was not written by a shard: its first line names none; give files that `rankcheck check --shard K/N \
         --shard-out FILE` wrote", .path.display()
    )]
    NoShard { path: PathBuf },
    #[error(
        "{} was written by another version of the file format, {found}, and this command knows {SCHEMA_VERSION}; merge with the \
         rankcheck that checked", .path.display()
    )]
    Schema { path: PathBuf, found: u32 },
}

/// What the first line of a shard begins with.
const SHARD_BEGINS: &str = "{\"shard_schema\":";

/// Why a file of a shard was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error("cannot write {} (--shard-out): {cause}; check shard {shard} again with a file that can be written", .path.display())]
    File { path: PathBuf, shard: Shard, cause: std::io::Error },
    #[error("{} is not written, because not all of shard {shard} was done; check it again", .path.display())]
    Incomplete { path: PathBuf, shard: Shard },
    #[error("{} holds something else than a shard (--shard-out); it is left as it is: name another file, or remove it", .path.display())]
    SomethingElse { path: PathBuf },
}

/// A file that a shard is about to write.
pub(super) struct ShardFile {
    path: PathBuf,
    shard: Shard,
    header: ShardHeader,
}

impl ShardFile {
    pub(super) fn new(
        path: &Path,
        shard: Shard,
        cases: impl Iterator<Item = CaseIdentity>,
        options: ShardOptions,
    ) -> Self {
        let (mut count, mut digest) = (0, Sha256::new());
        for CaseIdentity(parts) in cases {
            count += 1;
            digest.update((parts.len() as u64).to_le_bytes());
            for part in parts {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        let header = ShardHeader {
            shard_schema: SCHEMA_VERSION,
            number: shard.number(),
            of: shard.of(),
            rankcheck: env!("CARGO_PKG_VERSION").to_owned(),
            cases: count,
            digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            options,
        };
        Self { path: path.to_owned(), shard, header }
    }

    /// Writes what came out of the cases of the shard, by their positions.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(
        &self,
        results: &BTreeMap<usize, CaseResults<'_>>,
        repo: &Path,
    ) -> Result<(), NotWritten> {
        fn line(text: &mut String, of: &impl Serialize) {
            let json = serde_json::to_string(of).expect("what is kept is strings and numbers");
            let _ = writeln!(text, "{json}");
        }
        let mut text = String::new();
        line(&mut text, &self.header);
        for (case, CaseResults { reported, together, bad }) in results {
            let case = CaseLine {
                case: *case,
                reported: reported.iter().map(|reported| KeptReport::of(reported, repo)).collect(),
                together: together.iter().map(KeptComparison::of).collect(),
                bad: bad.clone(),
            };
            line(&mut text, &case);
        }
        line(&mut text, &LastLine { lines: results.len() });
        whole_file::write(&self.path, &text).map_err(|cause| self.cannot(cause))
    }

    /// Makes the folder of the file, tries whether it can be written to, and removes what an earlier run left: if this one is
    /// killed, nobody takes that for its report. A link stays, and so does a device.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn prepare(&self) -> Result<(), NotWritten> {
        whole_file::prepare_folder(self.path.parent().unwrap_or_else(|| Path::new("")))
            .map_err(|cause| self.cannot(cause))?;
        let (file, is_device) = whole_file::target(&self.path);
        if is_device {
            return Ok(());
        }
        if holds_something_else(&file) {
            return Err(NotWritten::SomethingElse { path: self.path.clone() });
        }
        match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.cannot(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn cannot(&self, cause: std::io::Error) -> NotWritten {
        NotWritten::File { path: self.path.clone(), shard: self.shard, cause }
    }

    /// Returns why nothing is written for a shard of which a part is missing.
    pub(super) fn not_written(&self) -> NotWritten {
        NotWritten::Incomplete { path: self.path.clone(), shard: self.shard }
    }
}

/// Whether a file is there that begins as no shard does, such as a spec.
fn holds_something_else(path: &Path) -> bool {
    let mut begin = Vec::new();
    let most = SHARD_BEGINS.len() as u64;
    let read = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut begin));
    read.is_ok() && !SHARD_BEGINS.as_bytes().starts_with(&begin)
}

/// The file of a shard, as it was read.
pub(super) struct ReadShard {
    pub(super) path: PathBuf,
    pub(super) shard: Shard,
    pub(super) header: ShardHeader,
    /// What came out of its cases, by their positions; none where the file has not all of them.
    pub(super) results: Option<BTreeMap<usize, CaseResults<'static>>>,
}

impl ReadShard {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or does not begin as files of shards do.
    pub(super) fn read(path: &Path) -> Result<Self, ShardFileError> {
        #[derive(Deserialize)]
        struct Schema {
            shard_schema: u32,
        }
        let text = fs::read(path).map_err(|cause| ShardFileError::File { path: path.to_owned(), cause })?;
        // A copy may end in the middle of a character.
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let none = || ShardFileError::NoShard { path: path.to_owned() };
        let found: Schema = serde_json::from_str(first).map_err(|_| none())?;
        if found.shard_schema != SCHEMA_VERSION {
            return Err(ShardFileError::Schema { path: path.to_owned(), found: found.shard_schema });
        }
        let header: ShardHeader = serde_json::from_str(first).map_err(|_| none())?;
        let shard = Shard::new(header.number, header.of).ok_or_else(none)?;
        let results = complete(lines, shard, header.cases);
        Ok(Self { path: path.to_owned(), shard, header, results })
    }

    /// Returns in what it differs from a shard of the same whole, in words; none if in nothing.
    pub(super) fn differs(&self, from: &Self) -> Option<String> {
        let (own, other) = (&self.header, &from.header);
        if own.of != other.of {
            return Some(format!("one of {} shards, and the other of {}", own.of, other.of));
        }
        if own.rankcheck != other.rankcheck {
            return Some(format!(
                "written by rankcheck {}, and the other by {}",
                own.rankcheck, other.rankcheck
            ));
        }
        if own.options != other.options {
            let told = |options| serde_json::to_string(options).unwrap_or_default();
            let (own, other) = (told(&own.options), told(&other.options));
            return Some(format!("made with the options {own}, and the other with {other}"));
        }
        if (own.cases, &own.digest) != (other.cases, &other.digest) {
            let counts = match own.cases == other.cases {
                true => String::new(),
                false => format!(" ({} and {} cases)", own.cases, other.cases),
            };
            return Some(format!(
                "made from other paths, or from another revision of what lies there{counts}"
            ));
        }
        None
    }
}

/// Returns the cases of a shard, by their positions, if the lines are all of them and whole.
fn complete<'a>(
    lines: impl Iterator<Item = &'a str>,
    shard: Shard,
    cases: usize,
) -> Option<BTreeMap<usize, CaseResults<'static>>> {
    fn read<T: DeserializeOwned>(line: &str) -> Option<T> {
        serde_json::from_str(line).ok()
    }
    let mut lines: Vec<&str> = lines.collect();
    let last: LastLine = read(lines.pop()?)?;
    let mut results = BTreeMap::new();
    for line in &lines {
        let CaseLine { case, reported, together, bad } = read(line)?;
        let reported = reported.into_iter().map(|kept| Reported::Kept(Box::new(kept))).collect();
        let together = together.into_iter().map(RunComparison::Kept).collect();
        results.insert(case, CaseResults { reported, together, bad });
    }
    let own = results.keys().all(|case| *case < cases && shard.has(*case));
    (own && last.lines == lines.len() && results.len() == shard.len_of(cases)).then_some(results)
}
