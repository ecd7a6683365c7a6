//! `rankcheck drift`: lists the quotes of code that no longer stand where the specs say.
//!
//! Not here: the quotes themselves, which specs state ([`crate::spec::Anchor`]).

use std::path::PathBuf;

use miette::MietteDiagnostic;

use super::output;
use crate::spec::{self, Anchor};

#[derive(Debug, clap::Args)]
pub(super) struct DriftArguments {
    /// Folder of the repository that the specs describe.
    #[arg(long)]
    repo: PathBuf,
    /// Spec files or folders.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl DriftArguments {
    pub(super) fn run(&self) -> u8 {
        let (files, bad) = spec::spec_files(&self.paths);
        if let Some(error) = bad.first() {
            return output::bad(error);
        }
        if !self.repo.is_dir() {
            let message = format!("no folder {} (--repo)", self.repo.display());
            return output::bad(&MietteDiagnostic::new(message));
        }
        let (mut moved, mut total) = (Vec::new(), 0);
        for path in &files {
            let spec = match spec::load(path) {
                Ok(spec) => spec,
                Err(error) => return output::bad(&error),
            };
            total += spec.anchors.len();
            moved.extend(spec.anchors.iter().filter_map(|anchor| self.drifted(anchor)));
        }
        for line in &moved {
            output::line(line);
        }
        output::line(format_args!("{total} quotes, {} moved or gone", moved.len()));
        u8::from(!moved.is_empty())
    }

    /// Why a quote no longer fits, if it does not.
    fn drifted(&self, Anchor { path, quote, loc }: &Anchor) -> Option<String> {
        let why = match std::fs::read_to_string(self.repo.join(path)) {
            Err(error) => format!("{path}: {error}"),
            Ok(code) if code.contains(quote) => return None,
            Ok(_) => format!("{path} has no longer {quote:?}"),
        };
        Some(format!("{}:{}  {why}", loc.file, loc.line))
    }
}
