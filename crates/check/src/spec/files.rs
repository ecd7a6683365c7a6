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
        if let Err(error) = walk(path, &mut files, &mut HashSet::new()) {
            bad.push(SpecError::new(format!("cannot read {}: {error}", path.display()), None));
        } else if files.len() == before {
            bad.push(nothing_in(path));
        }
    }
    files.sort();
    files.dedup();
    (files, bad)
}

/// Why a folder is neither specs nor a recording, and what to give instead.
fn nothing_in(folder: &Path) -> SpecError {
    let entries = || std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let recordings = |folder: &Path| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "rankrec")).count()
    };
    let help = if recordings(folder) > 0 {
        "its *.rankrec files are empty or damaged: record the program again".to_owned()
    } else {
        let mut below: Vec<String> = entries()
            .filter(|path| path.is_dir() && recordings(path) > 0)
            .map(|path| path.display().to_string())
            .collect();
        below.sort();
        match below.as_slice() {
            [] => "give spec files, folders of them, or folders that `rankcheck record` wrote".to_owned(),
            _ => format!("give the folder of each recording: {}", below.join(" ")),
        }
    };
    let message = format!("no spec (*.star) and no recording in {}", folder.display());
    SpecError::new(message, Some(help))
}

/// Adds the spec files under a folder, each once: a link may lead back to where the walk has been.
fn walk(folder: &Path, files: &mut Vec<PathBuf>, seen: &mut HashSet<PathBuf>) -> std::io::Result<()> {
    if !seen.insert(folder.canonicalize()?) {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            // What is loaded by others has no checks of its own.
            if path.file_name().is_none_or(|name| name != "lib") {
                walk(&path, files, seen)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "star")
            && seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone()))
        {
            files.push(path);
        }
    }
    Ok(())
}
