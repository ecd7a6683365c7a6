//! Programs as other processes and later versions know them: by name, and by a digest of what was recorded.
//!
//! The digest is over operations, answers, parameters and platform, never over the text of a file: a comment
//! or another check in the same file leaves an observation as good as it was.
//! Not here: the text of specs and its digest ([`crate::spec`]).

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use rankcheck_model::describe::{Naming, description};
use rankcheck_model::{Dtype, Machine, Op, Platform, Rank, SourceError, State, ThreadStart, Token};
use rankcheck_real::case::CommHistory;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::spec::{self, Check, Param, Spec, SpecError, SpecSource};

/// A program of a check, as it goes to worker processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProgramName {
    /// The spec file, from the folder that all processes of the job stand in.
    pub spec: String,
    /// The name of the check.
    pub check: String,
    /// How many ranks run the program.
    pub ranks: u32,
    /// Parameters, as they print.
    pub params: Vec<(String, String)>,
}

/// Why a name has no program.
#[derive(Debug, thiserror::Error)]
pub enum UnknownProgram {
    /// The name is none.
    #[error("a program is named by spec, check, ranks and params: {0}")]
    Name(#[from] serde_json::Error),
    /// The spec is bad.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// The spec has no such check, or the check no such parameters.
    #[error("{spec} has no check {check:?} with these parameters")]
    Check {
        /// The spec file, from the root of the repository.
        spec: String,
        /// The name of the check.
        check: String,
    },
}

/// Parameters as they print.
#[must_use]
pub fn printed(params: &[(String, Param)]) -> Vec<(String, String)> {
    params.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

impl ProgramName {
    /// The name of a program.
    #[must_use]
    pub fn new(spec: &Spec, check: &Check, ranks: u32, params: &[(String, Param)]) -> Self {
        Self { spec: spec.path.clone(), check: check.name.clone(), ranks, params: printed(params) }
    }

    /// The check of this name in its spec, with the values of its parameters.
    #[must_use]
    pub fn find<'a>(&self, spec: &'a Spec) -> Option<(&'a Check, Vec<(String, Param)>)> {
        let check = spec.checks.iter().find(|check| check.name == self.check)?;
        let params = check.combinations().into_iter().find(|params| printed(params) == self.params)?;
        check.ranks.contains(&self.ranks).then_some((check, params))
    }

    /// The program, for a worker process.
    ///
    /// # Errors
    /// If the spec cannot be loaded or has no such check.
    pub fn load(value: &serde_json::Value) -> Result<Arc<SpecSource>, UnknownProgram> {
        let name = Self::deserialize(value)?;
        let spec = spec::load(Path::new(&name.spec))?;
        let Some((check, params)) = name.find(&spec) else {
            return Err(UnknownProgram::Check { spec: name.spec, check: name.check });
        };
        Ok(Arc::new(check.source(name.ranks, &params, &check.assume)?))
    }
}

/// One thread of a run: the answers that it got, and everything it would do on these answers.
struct ThreadOps {
    heading: String,
    ops: Vec<Arc<Op>>,
    /// What each thread of the rank runs, by the thread's number.
    starts: Vec<ThreadStart>,
}

fn ops_of_threads(machine: &Machine, state: &State) -> Result<Vec<ThreadOps>, SourceError> {
    let mut all = Vec::new();
    for rank in (0..machine.config.ranks).map(Rank) {
        let threads = state.rank(rank).threads();
        let starts: Vec<ThreadStart> = threads.iter().map(|thread| thread.start()).collect();
        for (nth, thread) in threads.iter().enumerate() {
            let answers = thread.answers();
            let mut ops = Vec::new();
            for known in 0..=answers.len() {
                let block = machine.source.block(rank, thread.start(), &answers[..known])?;
                ops.extend(block.ops.iter().map(|op| Arc::clone(&op.op)));
            }
            let heading = format!("rank {} thread {nth} answers {answers:?}", rank.0);
            all.push(ThreadOps { heading, ops, starts: starts.clone() });
        }
    }
    Ok(all)
}

/// Names for the description of what one rank does.
struct Named<'a> {
    machine: &'a Machine,
    /// What each thread of the rank runs, by the thread's number.
    starts: &'a [ThreadStart],
}

impl Naming for Named<'_> {
    fn name(&self, token: Token) -> Arc<str> {
        self.machine.name(token)
    }

    fn thread(&self, start: ThreadStart) -> Option<usize> {
        self.starts.iter().position(|known| *known == start)
    }
}

/// Collects what runs of a program record.
#[derive(Default)]
pub(crate) struct DigestBuilder {
    hasher: Sha256,
    dtypes: Vec<Dtype>,
}

impl DigestBuilder {
    pub(crate) fn of(
        ranks: u32,
        params: &[(String, String)],
        platform: Platform,
        comms: CommHistory,
    ) -> Self {
        let mut digest = Self::default();
        // Spelt out: a digest must not change with the name of a variant.
        let comms = match comms {
            CommHistory::Fresh => "Fresh",
            CommHistory::Warm => "Warm",
        };
        digest.line(&format!("{ranks} ranks, {params:?}, {platform}, {comms}"));
        digest
    }

    fn line(&mut self, line: &str) {
        self.hasher.update(line.as_bytes());
        self.hasher.update(b"\n");
    }

    /// Adds a finished run.
    pub(crate) fn add(&mut self, machine: &Machine, state: &State) -> Result<(), SourceError> {
        for thread in ops_of_threads(machine, state)? {
            self.line(&thread.heading);
            let named = Named { machine, starts: &thread.starts };
            for op in &thread.ops {
                self.line(&description(op, &named));
            }
            self.dtypes.extend(dtypes(&thread.ops));
        }
        Ok(())
    }

    pub(crate) fn digest(self) -> String {
        self.hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// The element types of all collectives and transfers.
    pub(crate) fn dtypes(&self) -> Vec<Dtype> {
        let mut all = self.dtypes.clone();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn dtypes(ops: &[Arc<Op>]) -> impl Iterator<Item = Dtype> {
    ops.iter().filter_map(|op| {
        if let Op::Collective(call) = &**op {
            Some(call.dtype)
        } else if let Op::Transfer(call) = &**op {
            Some(call.dtype)
        } else {
            None
        }
    })
}
