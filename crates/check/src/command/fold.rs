//! `rankcheck fold` and `rankcheck unfold`: the files of a recording in little room, and back.
//!
//! Not here: how a file is folded ([`rankcheck_recording::folded`]), and which iterations are judged once ([`crate::runs::fold`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankcheck_recording::folded::{self, FoldedFile};
use rankcheck_recording::read::read_header;
use rankcheck_recording::{ReadError, pack};

use super::output;
use super::record::{recorded_files, written_by};
use crate::parallel::in_parallel;

#[derive(Debug, clap::Args)]
pub(super) struct FoldArguments {
    /// The folder of a recording.
    folder: PathBuf,
    /// Write the files to this folder, under the same names, instead of replacing the originals.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl FoldArguments {
    /// Makes each file small. `check` takes it as it took the other, and `unfold` gives that back.
    pub(super) fn fold(&self) -> u8 {
        self.each("folded", |from, to| {
            if read_header(from)?.0.bytes.is_some() {
                return folded::fold(from, to);
            }
            // It was recorded by a command that was killed before it packed.
            if from != to {
                fs::copy(from, to).map_err(|source| ReadError::Io { path: to.to_owned(), source })?;
            }
            pack(to, None)?;
            folded::fold(to, to)
        })
    }

    /// Makes each file what it was.
    pub(super) fn unfold(&self) -> u8 {
        self.each("unfolded", folded::unfold)
    }

    fn each(&self, done: &str, of: impl Fn(&Path, &Path) -> Result<FoldedFile, ReadError> + Sync) -> u8 {
        let out = self.out.as_deref().unwrap_or(&self.folder);
        let unusable = |folder: &Path, error: io::Error| {
            output::usage(format_args!("cannot use {}: {error}", folder.display()))
        };
        let files = match recorded_files(&self.folder) {
            Ok(files) => files,
            Err(error) => return unusable(&self.folder, error),
        };
        if files.is_empty() {
            let folder = self.folder.display();
            return output::usage(format_args!("{folder} holds no recording: no file ends in .rankrec"));
        }
        if let Err(error) = fs::create_dir_all(out) {
            return unusable(out, error);
        }
        let results = in_parallel(files.len(), |at| {
            let from = &files[at];
            if written_by(from).is_some() {
                return Err(format!("{}: its process still runs; it stays as it is", from.display()));
            }
            of(from, &out.join(from.file_name().unwrap_or_default())).map_err(|error| error.to_string())
        });
        let mut all = FoldedFile::default();
        let mut made = 0;
        for result in results {
            match result {
                Ok(file) => {
                    made += 1;
                    all.before += file.before;
                    all.after += file.after;
                }
                Err(error) => output::note(format_args!("rankcheck: {error}")),
            }
        }
        let FoldedFile { before, after } = all;
        let count = if made == 1 { "1 file".to_owned() } else { format!("{made} files") };
        output::line(format_args!("{done} {count}: {before} bytes became {after} in {}", out.display()));
        if made == files.len() { 0 } else { 2 }
    }
}
