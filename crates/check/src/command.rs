//! What the commands do, apart from printing: finding files, writing and replaying traces, drift; `record`
//! in a file of its own. What commands do on devices stands in [`crate::device`], and with recorded runs in
//! [`crate::runs`].
//! Not here: arguments and exit codes.

pub mod record;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::Diagnostic;
use rankcheck_model::{Choice, Config, Platform, Source};

use crate::device::digest::printed;
use crate::search::replay::Replayed;
use crate::search::{Bounds, explore, verdict};
use crate::spec::{self, Spec};
use crate::trace::{self, Trace};

/// Spec files under paths, sorted; a folder without any is an error.
///
/// # Errors
/// A path that does not exist, or a folder without spec files.
pub fn spec_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_file() {
            files.push(path.clone());
            continue;
        }
        if !path.is_dir() {
            return Err(format!("no file or folder {}", path.display()));
        }
        let before = files.len();
        walk(path, &mut files).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if files.len() == before {
            return Err(format!("no *.star file under {}", path.display()));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            // What is loaded by others has no checks of its own.
            if path.file_name().is_none_or(|name| name != "lib") {
                walk(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "star") {
            files.push(path);
        }
    }
    Ok(())
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum CommandError {
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// A trace file is not one.
    #[error("{path} is no trace file: {cause}")]
    #[diagnostic(help("write one with `rankcheck check SPEC --trace-out DIR`"))]
    NoTrace {
        /// The file.
        path: String,
        /// Why.
        cause: serde_json::Error,
    },
    /// A trace of another schema.
    #[error("{path} has schema version {found}, this command reads {known}", known = trace::SCHEMA_VERSION)]
    #[diagnostic(help("record the trace again with this version"))]
    Schema {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
    },
    /// A path or a folder that is not there.
    #[error("{0}")]
    Usage(String),
    /// The trace speaks of something that the spec no longer has.
    #[error("{0}")]
    #[diagnostic(help("the spec was edited since the trace was recorded; record it again"))]
    Misfit(String),
}

pub(crate) fn boxed(error: impl Diagnostic + Send + Sync + 'static) -> Box<dyn Diagnostic + Send + Sync> {
    Box::new(error)
}

/// Writes a trace file, named after the check, whole or not at all.
///
/// # Errors
/// If the folder cannot be written to.
pub fn write_trace(folder: &Path, recorded: &Trace) -> Result<(), String> {
    let slug: String = recorded
        .check
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let stem = Path::new(&recorded.file).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    let path = folder.join(format!("{stem}.{slug}.trace"));
    let text = serde_json::to_string_pretty(recorded).map_err(|error| error.to_string())?;
    let partial = path.with_extension("trace.partial");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&partial, text + "\n"))
        .and_then(|()| std::fs::rename(&partial, &path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// A trace with the program that it is of.
pub(crate) struct Loaded {
    pub(crate) spec: Spec,
    pub(crate) trace: Trace,
    pub(crate) params: Vec<(String, spec::Param)>,
    pub(crate) platform: Platform,
    source: Arc<dyn Source>,
    /// With the objects that the exploration found contended.
    config: Config,
}

impl Loaded {
    /// The check of the trace.
    pub(crate) fn check(&self) -> &spec::Check {
        let named = |check: &&spec::Check| check.name == self.trace.check;
        self.spec.checks.iter().find(named).expect("it was found when the trace was loaded")
    }

    /// The choices of the trace, in the program as it is now.
    pub(crate) fn choices(&self) -> Result<Vec<Choice>, CommandError> {
        trace::aligned(&self.source, &self.config, &self.trace.choices)
            .map_err(|error| CommandError::Misfit(error.to_string()))
    }
}

pub(crate) fn load_trace(path: &Path) -> Result<Loaded, Box<dyn Diagnostic + Send + Sync>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|cause| boxed(CommandError::File { path: name.clone(), cause }))?;
    let recorded: Trace = serde_json::from_str(&text)
        .map_err(|cause| boxed(CommandError::NoTrace { path: name.clone(), cause }))?;
    if recorded.schema_version != trace::SCHEMA_VERSION {
        return Err(boxed(CommandError::Schema { path: name, found: recorded.schema_version }));
    }
    let spec = spec::load(Path::new(&recorded.file)).map_err(boxed)?;
    let misfit = |message: String| boxed(CommandError::Misfit(message));
    let check = spec
        .checks
        .iter()
        .find(|check| check.name == recorded.check)
        .ok_or_else(|| misfit(format!("{} has no check {:?}", spec.path, recorded.check)))?;
    let params =
        check.combinations().into_iter().find(|params| printed(params) == recorded.params).ok_or_else(
            || misfit(format!("check {:?} has no parameters {:?}", check.name, recorded.params)),
        )?;
    let platform = recorded
        .platform
        .parse()
        .map_err(|error: rankcheck_model::platform::UnknownPlatform| misfit(error.to_string()))?;
    let source: Arc<dyn Source> =
        Arc::new(check.source(recorded.ranks, &params, &check.assume).map_err(boxed)?);
    let config = verdict::config(check, recorded.ranks, platform, &check.assume);
    let exploration =
        explore(&source, config, &Bounds::default()).map_err(|error| boxed(spec.diagnose(&error)))?;
    Ok(Loaded { params, platform, source, config: exploration.config, trace: recorded, spec })
}

/// Replays a trace file and tells what happens.
///
/// # Errors
/// If the file is no trace, the spec is bad, or the trace no longer fits.
pub fn replay(path: &Path) -> Result<String, Box<dyn Diagnostic + Send + Sync>> {
    let loaded = load_trace(path)?;
    let run = trace::align(&loaded.source, &loaded.config, &loaded.trace.choices)
        .map_err(|error| boxed(CommandError::Misfit(error.to_string())))?;
    Ok(told(&loaded.spec, &loaded.trace, &run))
}

fn told(spec: &Spec, recorded: &Trace, run: &Replayed) -> String {
    let mut out = format!("{} \"{}\"   {} ranks", spec.path, recorded.check, recorded.ranks);
    if spec.digest != recorded.digest {
        out.push_str("\nnote: the spec was edited since; the choices still fit");
    }
    for operation in &run.operations {
        let (op, place) = (operation.at.op, &operation.at.place);
        let thread = if op.thread.0 == 0 { String::new() } else { format!(".{}", op.thread.0) };
        let _ = write!(
            out,
            "\n  rank {}{thread}  {:<48} {}:{}",
            op.rank.0, operation.text, place.file, place.line
        );
    }
    for broken in &run.broken {
        let _ = write!(out, "\n{}  {}", broken.rule, broken.sentence);
    }
    let _ = write!(out, "\nends: {}", crate::report::ends(&run.outcome));
    let again = run.broken.iter().any(|broken| broken.rule.id() == recorded.rule);
    let word = if again { "again breaks" } else { "no longer breaks" };
    let _ = write!(out, "\n{word} {}", recorded.rule);
    out
}

/// What drifted.
pub struct Drift {
    /// One line for each anchor that no longer fits, and a summary.
    pub text: String,
    /// How many.
    pub moved: usize,
}

/// Looks for the quotes of specs in a repository.
///
/// # Errors
/// If a spec is bad.
pub fn drift(repo: &Path, paths: &[PathBuf]) -> Result<Drift, Box<dyn Diagnostic + Send + Sync>> {
    let files = spec_files(paths).map_err(|message| boxed(CommandError::Usage(message)))?;
    if !repo.is_dir() {
        return Err(boxed(CommandError::Usage(format!("no folder {} (--repo)", repo.display()))));
    }
    let (mut text, mut moved, mut total) = (String::new(), 0, 0);
    for path in &files {
        let spec = spec::load(path).map_err(boxed)?;
        for anchor in &spec.anchors {
            total += 1;
            let target = repo.join(&anchor.path);
            let why = match std::fs::read_to_string(&target) {
                Err(error) => Some(format!("{}: {error}", anchor.path)),
                Ok(code) if code.contains(&anchor.quote) => None,
                Ok(_) => Some(format!("{} has no longer {:?}", anchor.path, anchor.quote)),
            };
            if let Some(why) = why {
                moved += 1;
                let _ = writeln!(text, "{}:{}  {why}", anchor.place.file, anchor.place.line);
            }
        }
    }
    let _ = write!(text, "{total} quotes, {moved} moved or gone");
    Ok(Drift { text, moved })
}
