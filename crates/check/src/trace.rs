//! Trace files: a run as a list of choices that survives edits of the spec.
//!
//! No indices: each choice is recorded by rank, thread, operation in words, location and values. What is written is a
//! function of an [`Explained`]. A replay aligns by these and names the first that no longer fits. Documented in
//! `docs/trace-file.md`.
//! Not here: how a run is explained.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::Diagnostic;
use rankcheck_model::platform::UnknownPlatform;
use rankcheck_model::{Choice, Config, Loc, Machine, OpRef, Platform, Rank, Source, State, Thread};
use serde::{Deserialize, Serialize};

use crate::search::replay::{ReplayError, Subject, replay, subject};
use crate::search::verdict::{config, or_freer};
use crate::search::{Asked, Bounds, Decided, Decision, Explained, Operation, Replayed, explore};
use crate::spec::{self, Check, Param, Spec, SpecError};
use crate::whole_file;

/// Raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// A run of a check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trace {
    /// The [`SCHEMA_VERSION`] of the command that wrote the trace.
    pub schema_version: u32,
    /// The spec file, as its path was given.
    pub file: String,
    /// Digest of the spec's text and of what it loads.
    pub digest: String,
    /// Name of the check.
    pub check: String,
    /// How many ranks the check ran on.
    pub ranks: u32,
    /// Parameters, as they print.
    pub params: Vec<(String, String)>,
    /// The NCCL version whose facts were taken.
    pub platform: String,
    /// Rule that the run breaks.
    pub rule: String,
    /// The choices of the run, in order.
    pub choices: Vec<Chosen>,
    /// What the ranks did, in this run's order.
    pub steps: Vec<TraceStep>,
}

/// A choice of the run, in words that survive edits of the spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// World rank of the host thread or the stream.
    pub rank: u32,
    /// Host thread; of the head of a stream, the one that launched the operation.
    pub thread: u32,
    /// The stream whose head runs; absent where a host thread goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The operation or question, in words.
    pub at: String,
    /// `file:line` in the spec.
    #[serde(rename = "place")]
    pub loc: String,
    /// Its nondeterministic values; absent where only the order was chosen.
    #[serde(rename = "picks")]
    pub values: Option<Vec<u32>>,
}

/// An operation of the run. A replay does not read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// World rank that ran the operation.
    pub rank: u32,
    /// Host thread that called it, by its number on the rank.
    pub thread: u32,
    /// The operation, in words.
    pub op: String,
    /// `file:line` in the spec.
    #[serde(rename = "place")]
    pub loc: String,
    /// The steps that it met in a rendezvous, collective or transfer, as positions in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meets: Vec<usize>,
    /// The steps of other threads and streams that it, or the work that it launched, is ordered after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<usize>,
}

/// Returns the steps of a trace: the operations of a run, with whom each met and what it is ordered after.
fn steps(run: &Replayed) -> Vec<TraceStep> {
    let key = |op: &OpRef| (op.rank, op.thread, op.index);
    let positions: BTreeMap<_, usize> =
        run.operations.iter().zip(0..).map(|(operation, nth)| (key(&operation.at.op), nth)).collect();
    // What a host thread launches and what a stream runs of it are two steps of a run and one of a trace.
    let position = |step: usize| positions.get(&key(&run.steps[step].at.op)).copied();
    let mut meets = vec![BTreeSet::new(); run.operations.len()];
    for meeting in &run.meetings {
        let met: BTreeSet<usize> = meeting.iter().filter_map(|step| position(*step)).collect();
        for one in &met {
            meets[*one].extend(met.iter().filter(|other| *other != one));
        }
    }
    let mut after = vec![BTreeSet::new(); run.operations.len()];
    for (earlier, later) in &run.order {
        if let (Some(earlier), Some(later)) = (position(*earlier), position(*later))
            && earlier != later
        {
            after[later].insert(earlier);
        }
    }
    let step = |((operation, meets), after): ((&Operation, BTreeSet<usize>), BTreeSet<usize>)| TraceStep {
        rank: operation.at.op.rank.0,
        thread: operation.at.op.thread.0,
        op: operation.text.clone(),
        loc: line(&operation.at.loc),
        meets: meets.into_iter().collect(),
        after: after.into_iter().collect(),
    };
    run.operations.iter().zip(meets).zip(after).map(step).collect()
}

impl Trace {
    /// The trace of a check that fails; none if its run was not explained, and for checks that run no program.
    #[must_use]
    pub fn of(explained: &Explained) -> Option<Self> {
        let shown = explained.counterexample.as_ref().filter(|_| explained.asked == Asked::Rules)?;
        let run = explained.run();
        Some(Self {
            schema_version: SCHEMA_VERSION,
            file: explained.file.clone(),
            digest: explained.digest.clone(),
            check: explained.name.clone(),
            ranks: run.ranks,
            params: printed(&run.params),
            platform: run.platform.name().to_owned(),
            rule: shown.broken.rule.id().to_owned(),
            choices: shown.run.decisions.iter().map(Chosen::of).collect(),
            steps: steps(&shown.run),
        })
    }
}

impl Chosen {
    fn of(decision: &Decision) -> Self {
        let Decision { at, op, stream, decided } = decision;
        Self {
            rank: at.op.rank.0,
            thread: at.op.thread.0,
            stream: stream.clone(),
            at: op.clone(),
            loc: line(&at.loc),
            values: match decided {
                Decided::Values { values, .. } => Some(values.clone()),
                Decided::Order(_) => None,
            },
        }
    }
}

fn line(loc: &Loc) -> String {
    format!("{}:{}", loc.file, loc.line)
}

/// Why a trace cannot be written or replayed.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}")]
    #[diagnostic(help("a trace is a file that `rankcheck check SPEC --trace-out DIR` writes"))]
    File {
        /// The path that could not be read.
        path: String,
        /// Why it could not be read.
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {cause}")]
    Write {
        /// The path that could not be written.
        path: String,
        /// Why it could not be written.
        cause: io::Error,
    },
    /// A file is no trace.
    #[error("{path} is no trace file: {cause}")]
    #[diagnostic(help("write one with `rankcheck check SPEC --trace-out DIR`"))]
    NoTrace {
        /// The path that was to be read as a trace.
        path: String,
        /// Why it is no trace.
        cause: serde_json::Error,
    },
    /// A trace of another schema.
    #[error("{path} has schema version {found}, this command reads {SCHEMA_VERSION}")]
    #[diagnostic(help("record the trace again with this version"))]
    Schema {
        /// The path of the trace.
        path: String,
        /// The schema version that the file has.
        found: u32,
    },
    /// The spec that the trace is of is not where the trace says.
    #[error("cannot read {path}, the spec of this trace: {cause}")]
    #[diagnostic(help(
        "a trace names its spec as the check was given it; run this in the folder in which the check ran"
    ))]
    NoSpec {
        /// The path of the spec.
        path: String,
        /// Why it could not be read.
        cause: io::Error,
    },
    /// The spec is bad.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] SpecError),
    /// The trace speaks of something that the spec no longer has.
    #[error("{0}")]
    #[diagnostic(help(
        "the spec was edited since the trace was written, and this is no run of it any more; `rankcheck check SPEC` says whether it \
         still fails, and `--trace-out DIR` writes a trace of that"
    ))]
    Misfit(String),
}

impl Trace {
    /// Writes a trace file, named after the check, whole or not at all. Returns its path, which is none of `beside`: where names
    /// of checks differ in more than files can tell, a number follows.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    ///
    /// # Panics
    /// Never: a trace is strings and numbers.
    pub fn write(&self, folder: &Path, beside: &BTreeSet<PathBuf>) -> Result<PathBuf, TraceError> {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let slug: String = self.check.chars().map(letter).collect();
        let stem = Path::new(&self.file).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
        let named = |nth: usize| match nth {
            1 => folder.join(format!("{stem}.{slug}.trace")),
            nth => folder.join(format!("{stem}.{slug}-{nth}.trace")),
        };
        let path = (1..).map(named).find(|path| !beside.contains(path)).expect("some number is free");
        let text = serde_json::to_string_pretty(self).expect("a trace is strings and numbers");
        std::fs::create_dir_all(folder)
            .and_then(|()| whole_file::write(&path, &(text + "\n")))
            .map_err(|cause| TraceError::Write { path: path.display().to_string(), cause })?;
        Ok(path)
    }

    /// Makes the folder into which traces are to be written, and tries whether they can be.
    ///
    /// # Errors
    /// If it cannot be made, or not be written to.
    pub fn prepare(folder: &Path) -> Result<(), TraceError> {
        whole_file::prepare_folder(folder)
            .map_err(|cause| TraceError::Write { path: folder.display().to_string(), cause })
    }

    fn read(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) => return Err(TraceError::File { path: name, cause }),
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(trace) if trace.schema_version == SCHEMA_VERSION => Ok(trace),
            Ok(Self { schema_version: found, .. }) => Err(TraceError::Schema { path: name, found }),
            Err(cause) => Err(TraceError::NoTrace { path: name, cause }),
        }
    }
}

/// A trace with the program that it is of.
pub struct Loaded {
    /// What stands in the file.
    pub trace: Trace,
    /// The spec as it is now.
    pub spec: Spec,
    /// The values of the parameters.
    pub params: Vec<(String, Param)>,
    /// The NCCL version that the trace names.
    pub platform: Platform,
    source: Arc<dyn Source>,
    /// With the objects that the exploration found contended.
    config: Config,
}

impl Loaded {
    /// Reads a trace file, and loads the spec that it names.
    ///
    /// # Errors
    /// If the file is no trace, the spec is bad, or has no such check any more.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let trace = Trace::read(path)?;
        let file = Path::new(&trace.file);
        if let Err(cause) = std::fs::metadata(file) {
            return Err(TraceError::NoSpec { path: trace.file, cause });
        }
        let spec = spec::load(file)?;
        let misfit = TraceError::Misfit;
        let named = spec.checks.iter().find(|check| check.name == trace.check);
        let check = named.ok_or_else(|| misfit(format!("{} has no check \"{}\"", spec.path, trace.check)))?;
        if !check.ranks.contains(&trace.ranks) {
            return Err(misfit(format!("check \"{}\" does not run with {} ranks", check.name, trace.ranks)));
        }
        let params = check.combinations().into_iter().find(|params| printed(params) == trace.params);
        let stated = || {
            let each = trace.params.iter().map(|(name, value)| format!("{name} = {value}"));
            each.collect::<Vec<_>>().join(", ")
        };
        let params = params
            .ok_or_else(|| misfit(format!("check \"{}\" does not run with {}", check.name, stated())))?;
        let platform = trace.platform.parse().map_err(|error: UnknownPlatform| misfit(error.to_string()))?;
        let source: Arc<dyn Source> = Arc::new(check.source(trace.ranks, &params, &check.assume)?);
        let config = config(check, trace.ranks, platform, &check.assume);
        let explored = |config| explore(&source, config, &Bounds::default());
        let explored = explored(config).and_then(|held| or_freer(held, explored));
        let explored = explored.map_err(|error| spec.diagnose(&error))?;
        Ok(Self { trace, params, platform, source, config: explored.config, spec })
    }

    /// The check of the trace.
    ///
    /// # Panics
    /// Never: it was found when the trace was loaded.
    #[must_use]
    pub fn check(&self) -> &Check {
        let named = |check: &&Check| check.name == self.trace.check;
        self.spec.checks.iter().find(named).expect("it was found when the trace was loaded")
    }

    /// The choices of the trace, in the program as it is now.
    ///
    /// # Errors
    /// If one no longer fits.
    pub fn choices(&self) -> Result<Vec<Choice>, TraceError> {
        aligned(&self.source, &self.config, &self.trace.choices)
            .map_err(|error| TraceError::Misfit(error.to_string()))
    }

    /// The run of these choices.
    ///
    /// # Errors
    /// If one no longer fits.
    pub fn replay(&self) -> Result<Replayed, TraceError> {
        replay(&self.source, &self.config, &self.choices()?)
            .map_err(|error| TraceError::Misfit(error.to_string()))
    }
}

/// Parameters as they print.
fn printed(params: &[(String, Param)]) -> Vec<(String, String)> {
    params.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

/// The choices of the program as it is now that recorded ones stand for; the error names the first that no longer
/// fits.
fn aligned(
    source: &Arc<dyn Source>,
    config: &Config,
    choices: &[Chosen],
) -> Result<Vec<Choice>, ReplayError> {
    let machine = Machine::new(Arc::clone(source), config.clone());
    let mut state = machine.init();
    machine.advance(&mut state);
    let mut aligned = Vec::new();
    for (nth, chosen) in choices.iter().enumerate() {
        let (rank, thread) = (Rank(chosen.rank), Thread(chosen.thread));
        let known = rank.0 < config.ranks;
        let stream = chosen.stream.as_ref().filter(|_| known);
        let stream = stream.map(|name| machine.stream_named(&state, rank, name).unwrap_or(u32::MAX));
        let choice = match (&chosen.values, stream) {
            (Some(values), _) => Choice::Value(rank, thread, values.clone()),
            (None, Some(stream)) => Choice::Stream(rank, stream),
            (None, None) => Choice::Thread(rank, thread),
        };
        // Locations move when a spec is edited; what is done there tells whether it is still the same choice.
        let now = known.then(|| stands_at(&machine, &state, &choice)).flatten();
        let fits = now.as_ref().is_some_and(|now| now.op == chosen.at) && machine.possible(&state, &choice);
        if !fits {
            return Err(ReplayError::Misfit {
                nth: nth + 1,
                recorded: format!("rank {} thread {}: {} ({})", rank.0, thread.0, chosen.at, chosen.loc),
                possible: now.map_or_else(
                    || "that thread or stream does not exist here".to_owned(),
                    |now| format!("rank {} stands at {} ({})", rank.0, now.op, line(&now.at.loc)),
                ),
            });
        }
        machine.take(&mut state, &choice);
        machine.advance(&mut state);
        aligned.push(choice);
    }
    Ok(aligned)
}

/// What a choice is about, if its thread or stream exists.
fn stands_at(machine: &Machine, state: &State, choice: &Choice) -> Option<Subject> {
    let exists = match choice {
        Choice::Value(rank, thread, _) | Choice::Thread(rank, thread) => {
            thread.at() < state.rank(*rank).threads().len()
        }
        Choice::Stream(..) => true,
        Choice::Transfer(_) | Choice::Meet(_) => false,
    };
    exists.then(|| subject(machine, state, choice)).flatten()
}
