//! `rankcheck fold` and `rankcheck unfold`: the files of a recording in little room, and back.
//!
//! Not here: how a file is folded ([`rankcheck_recording::folded`]), and which iterations are judged once ([`crate::runs::fold`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankcheck_recording::folded::{self, FoldedFile};
use rankcheck_recording::{ReadError, pack};

use super::output;
use super::record::{is_written, recorded_files};
use crate::parallel::in_parallel;

#[derive(Debug, clap::Args)]
pub(super) struct FoldArguments {
    /// The folder of a recording.
    folder: PathBuf,
    /// Where the folded files are written, under their names; without it they take the places of those that they were made of.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl FoldArguments {
    /// Makes each file small. `check` takes it as it took the other, and `unfold` gives that back.
    pub(super) fn fold(&self) -> u8 {
        self.each("folded", |from, to| {
            if from != to {
                fs::copy(from, to).map_err(|source| ReadError::Io { path: to.to_owned(), source })?;
            }
            // What was not packed was recorded by a command that was killed.
            pack_if_open(to)?;
            folded::fold(to, to)
        })
    }

    /// Makes each file what it was.
    pub(super) fn unfold(&self) -> u8 {
        self.each("unfolded", folded::unfold)
    }

    fn each(&self, done: &str, of: impl Fn(&Path, &Path) -> Result<FoldedFile, ReadError> + Sync) -> u8 {
        let out = self.out.as_deref().unwrap_or(&self.folder);
        let files = match fs::create_dir_all(out).and_then(|()| recorded_files(&self.folder)) {
            Ok(files) => files,
            Err(error) => return output::usage(format_args!("cannot use {}: {error}", out.display())),
        };
        if files.is_empty() {
            let folder = self.folder.display();
            return output::usage(format_args!("{folder} holds no recording: no file ends in .rankrec"));
        }
        let results = in_parallel(files.len(), |at| {
            let from = &files[at];
            if is_written(from) {
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
        output::line(format_args!("{done} {made} files: {before} bytes became {after} in {}", out.display()));
        if made == files.len() { 0 } else { 2 }
    }
}

fn pack_if_open(path: &Path) -> Result<(), ReadError> {
    let process = rankcheck_recording::ProcessFile::open(path)?;
    if process.header.bytes.is_none() {
        pack(path, None)?;
    }
    Ok(())
}

/// Folds the files of a recording where they lie. What cannot be folded stays as it is. Gives how many bytes all have then.
pub(super) fn fold_all(folder: &Path) -> io::Result<u64> {
    let files = recorded_files(folder)?;
    let bytes = in_parallel(files.len(), |at| {
        // A file that its process still writes, and one that is damaged, are told when they are packed and read.
        let folded = if is_written(&files[at]) { None } else { folded::fold(&files[at], &files[at]).ok() };
        let length = || fs::metadata(&files[at]).map_or(0, |file| file.len());
        folded.map_or_else(length, |file| file.after)
    });
    Ok(bytes.into_iter().sum())
}
