//! `rankcheck conform`: tells where a recorded run leaves the program of a spec.
//!
//! Not here: the comparison ([`crate::runs::conformance`]).

use std::path::PathBuf;

use super::output;
use crate::runs::conformance::conform;

#[derive(Debug, clap::Args)]
pub(super) struct ConformArguments {
    /// A spec file.
    spec: PathBuf,
    /// The folder of a recorded run.
    folder: PathBuf,
    /// Compare only with checks whose names contain this.
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
}

impl ConformArguments {
    pub(super) fn run(&self) -> u8 {
        let compared = match conform(&self.spec, &self.folder, self.check.as_deref()) {
            Ok(compared) => compared,
            Err(error) => return output::usage(error),
        };
        for one in &compared {
            output::line(one.text());
        }
        match compared.iter().filter_map(|one| one.leaves.as_ref()).collect::<Vec<_>>()[..] {
            [] => output::usage("no check of this spec is for as many ranks as were recorded"),
            ref all if all.iter().any(|leaves| leaves.is_some()) => 1,
            _ => 0,
        }
    }
}
