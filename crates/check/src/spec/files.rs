//! Finds spec files.
//!
//! Not here: reading them (`load.rs`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::spec::SpecError;

/// Returns the spec files under paths, sorted, and what is wrong with the other paths: those that do not exist, and
/// folders without spec files.
#[must_use]
pub fn spec_files(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<SpecError>) {
    let mut files = Vec::new();
    let mut bad = Vec::new();
    for path in paths {
        if path.is_file() {
            files.push(path.clone());
            continue;
        }
        if !path.is_dir() {
            bad.push(SpecError::new(format!("no file or folder {}", path.display()), None));
            continue;
        }
        let before = files.len();
        let unread = walk(path, &mut files, &mut HashSet::new());
        if unread.is_empty() && files.len() == before {
            bad.push(nothing_in(path));
        }
        bad.extend(unread.into_iter().map(|(folder, error)| {
            SpecError::new(format!("cannot read {}: {error}", folder.display()), None)
        }));
    }
    files.sort();
    files.dedup();
    (files, bad)
}

/// Whether a folder has spec files, at whatever depth.
#[cfg(feature = "cli")]
pub(crate) fn has_specs(folder: &Path) -> bool {
    let mut files = Vec::new();
    walk(folder, &mut files, &mut HashSet::new());
    !files.is_empty()
}

/// Why a folder is neither specs nor a recording, and what to give instead.
fn nothing_in(folder: &Path) -> SpecError {
    let entries = || std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let recordings = |folder: &Path| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "rankrec")).count()
    };
    let help = if recordings(folder) > 0 {
        "its *.rankrec files are empty or cut off: record the program again".to_owned()
    } else {
        let mut below: Vec<String> = entries()
            .filter(|path| path.is_dir() && recordings(path) > 0)
            .map(|path| path.display().to_string())
            .collect();
        below.sort();
        match below.as_slice() {
            [] => {
                let FilesBelow { files, unread, empty, named } = looked_at(folder);
                let unread = unread.map_or_else(String::new, |(count, path, error)| {
                    format!(", and {count} cannot be read ({}: {error})", path.display())
                });
                let empty = match empty {
                    0 => String::new(),
                    1 if files > 1 => ", and 1 of them is empty".to_owned(),
                    _ if empty == files => {
                        ", and all of them are empty: whoever wrote them may have been killed, or the disk been full"
                            .to_owned()
                    }
                    _ => format!(", and {empty} of them are empty"),
                };
                let named = match named {
                    0 => String::new(),
                    _ => format!(", {named} of them named like dumps of ranks that are none"),
                };
                format!(
                    "{files} {} looked at{unread}{empty}{named}. Give spec files (*.star), a folder that `rankcheck record` wrote, dumps \
                     of PyTorch's Flight Recorder (as …_rank_0), or logs of NCCL that were written with NCCL_DEBUG=INFO",
                    if files == 1 { "file was" } else { "files were" }
                )
            }
            _ => format!("give the folder of each recording: {}", below.join(" ")),
        }
    };
    let message = format!("no spec, recording, dump or log in {}", folder.display());
    SpecError::new(message, Some(help))
}

/// The files below a folder that is nothing that can be checked.
#[derive(Default)]
struct FilesBelow {
    files: usize,
    /// How many cannot be opened, with the first of them.
    unread: Option<(usize, PathBuf, std::io::Error)>,
    /// How many have nothing in them.
    empty: usize,
    /// How many of the others are named like a dump.
    named: usize,
}

fn is_named_as_dump(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let before = crate::dumps::folder::rank_in_name(&name).map(|(before, _)| before.to_ascii_lowercase());
    before.is_some_and(|before| before.contains("rank"))
}

fn looked_at(folder: &Path) -> FilesBelow {
    let mut found = FilesBelow::default();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
                continue;
            }
            found.files += 1;
            match std::fs::File::open(&path).and_then(|file| file.metadata()) {
                Ok(file) if file.is_file() && file.len() == 0 => found.empty += 1,
                Ok(_) => found.named += usize::from(is_named_as_dump(&path)),
                Err(error) => {
                    let (count, ..) = found.unread.get_or_insert((0, path, error));
                    *count += 1;
                }
            }
        }
    }
    found
}

/// Adds the spec files under a folder, each once: a link may lead back to where the walk has been. Returns the folders that
/// cannot be read.
fn walk(
    folder: &Path,
    files: &mut Vec<PathBuf>,
    seen: &mut HashSet<PathBuf>,
) -> Vec<(PathBuf, std::io::Error)> {
    let entries = folder.canonicalize().and_then(|place| match seen.insert(place) {
        true => std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect(),
        false => Ok(Vec::new()),
    });
    let entries: Vec<PathBuf> = match entries {
        Ok(entries) => entries,
        Err(error) => return vec![(folder.to_owned(), error)],
    };
    let mut unread = Vec::new();
    for path in entries {
        if path.is_dir() {
            // What is loaded by others has no checks of its own.
            if path.file_name().is_none_or(|name| name != "lib") {
                unread.extend(walk(&path, files, seen));
            }
        } else if path.extension().is_some_and(|extension| extension == "star")
            && seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone()))
        {
            files.push(path);
        }
    }
    unread
}
