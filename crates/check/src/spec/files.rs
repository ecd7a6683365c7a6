//! Finds spec files.
//!
//! Not here: reading them (`load.rs`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

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
        walk(path, &mut files, &mut HashSet::new())
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if files.len() == before {
            return Err(format!("no *.star file under {}", path.display()));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
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
