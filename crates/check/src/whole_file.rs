//! Files that are whole or not there, whenever the command is killed.
//!
//! Not here: what stands in them, and what is said where they cannot be written.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// Writes a file, which has its name only once it is complete.
///
/// # Errors
/// If it cannot be written, or the path names no file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    write_with(path, |file| file.write_all(text.as_bytes()))
}

/// What a path leads to, and whether that is a device or a pipe: no file may take its place.
pub(crate) fn target(path: &Path) -> (PathBuf, bool) {
    /// More links in a row lead nowhere.
    const LINKS: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or_else(|| Path::new("")).join(next);
    }
    let is_device = fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir());
    (target, is_device)
}

/// Writes a file as [`write`] does, piece by piece.
///
/// # Errors
/// If it cannot be written, or the path names no file.
pub(crate) fn write_with(path: &Path, contents: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let (path, is_device) = target(path);
    if is_device {
        return contents(&mut File::options().write(true).open(path)?);
    }
    let path = &path;
    let name = path.file_name().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "it names no file"))?;
    let partial = path.with_file_name(format!(".{}.partial", name.display()));
    File::create(&partial)
        .and_then(|mut file| contents(&mut file))
        .and_then(|()| fs::rename(&partial, path))
        .inspect_err(|_| {
            // What is half written helps nobody; if it cannot be removed either, the first error says more.
            let _ = fs::remove_file(&partial);
        })
}

/// Makes a folder, and tries whether files can be written into it.
///
/// # Errors
/// If it cannot be made, or not be written to.
pub(crate) fn prepare_folder(folder: &Path) -> Result<()> {
    let tried = folder.join(".rankcheck.partial");
    fs::create_dir_all(folder).and_then(|()| fs::write(&tried, "")).and_then(|()| fs::remove_file(&tried))
}
