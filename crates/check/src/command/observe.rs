//! `rankcheck observe`: files what devices did, and lists what is stale of it.
//!
//! Not here: what an observation is ([`crate::device::observation`]).

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::output;
use crate::device::observation;

#[derive(Debug, Subcommand)]
pub(super) enum ObserveCommand {
    /// Sort the observations of a file into specs/observations.
    Unpack {
        /// A file written by `--observe`.
        file: PathBuf,
    },
    /// List observations of programs that have changed since.
    Stale {
        /// Write the list to specs/observations/stale.txt.
        #[arg(long)]
        write: bool,
    },
}

impl ObserveCommand {
    pub(super) fn run(&self) -> u8 {
        match self {
            Self::Unpack { file } => unpack(file),
            Self::Stale { write: false } => stale(None),
            Self::Stale { write: true } => {
                stale(Some(&Path::new(observation::FOLDER).join(observation::STALE)))
            }
        }
    }
}

fn unpack(file: &Path) -> u8 {
    match observation::unpack(file, Path::new(observation::FOLDER)) {
        Ok(changed) => {
            for (path, count) in changed {
                output::line(format_args!("{}: {count}", path.display()));
            }
            0
        }
        Err(error) => output::usage(error),
    }
}

fn stale(to: Option<&Path>) -> u8 {
    if let Err(code) = output::needs_folder(Path::new(observation::FOLDER)) {
        return code;
    }
    let kept = match observation::kept(Path::new(observation::FOLDER)) {
        Ok(kept) => kept,
        Err(error) => return output::bad(&error),
    };
    let list = observation::stale_list(&kept);
    if let Some(path) = to
        && let Err(error) = std::fs::write(path, &list)
    {
        return output::usage(format_args!("cannot write {}: {error}", path.display()));
    }
    output::lines(&list);
    output::line(format_args!("{} of {} observations are stale", list.lines().count(), kept.len()));
    0
}
