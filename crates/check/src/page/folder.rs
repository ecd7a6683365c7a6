//! Writes pages into a folder: each file whole or not at all, the index last.
//!
//! Pages that an earlier report left there and that nothing links to any more are removed. Files of others are left
//! alone, and none is overwritten.
//! Not here: what stands in a page.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::whole_file;

/// What tells a page of ours from a file of somebody else.
pub(super) const GENERATOR: &str = "<meta name=\"generator\" content=\"rankcheck\">";
/// Bytes of a file in which that has to stand.
const HEAD_BYTES: u64 = 1024;
/// The file that links to all others.
pub const INDEX: &str = "index.html";

/// Why pages cannot be written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FolderError {
    /// The folder or a file in it.
    #[error("cannot write {path}: {cause}")]
    #[diagnostic(help("give a folder that can be written to: --out DIR"))]
    Write {
        /// What was to be written.
        path: String,
        /// What the operating system says.
        cause: std::io::Error,
    },
    /// A file of somebody else has the name of a page.
    #[error("{path} is there already, and rankcheck did not write it")]
    #[diagnostic(help("give another folder with --out, or move the file away"))]
    Foreign {
        /// The file that is in the way.
        path: String,
    },
}

/// Returns the name of a page: the same for the same subject, whatever else is in the report.
#[must_use]
pub fn file_name(title: &str, subject: &str) -> String {
    /// Characters of a title that go into a name.
    const TITLE: usize = 60;
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = title.chars().map(letter).collect();
    let parts: Vec<&str> = slug.split('-').filter(|part| !part.is_empty()).collect();
    let mut slug = parts.join("-");
    slug.truncate(TITLE);
    let digest = Sha256::digest(format!("{subject}\0{title}").as_bytes());
    let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    match slug.trim_end_matches('-') {
        "" => format!("{short}.html"),
        slug => format!("{slug}-{short}.html"),
    }
}

/// Makes the folder, and tries whether it can be written to.
///
/// # Errors
/// If it cannot be made, or not be written to, or has an index of somebody else.
pub fn prepare(folder: &Path) -> Result<(), FolderError> {
    whole_file::prepare_folder(folder)
        .map_err(|cause| FolderError::Write { path: folder.display().to_string(), cause })?;
    ours_or_absent(&folder.join(INDEX))
}

/// Writes one page.
///
/// # Errors
/// If it cannot be written, or somebody else's file has its name.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<(), FolderError> {
    let path = folder.join(name);
    ours_or_absent(&path)?;
    whole_file::write(&path, text)
        .map_err(|cause| FolderError::Write { path: path.display().to_string(), cause })
}

/// Removes pages that an earlier report wrote and that are not among these.
///
/// # Errors
/// If the folder cannot be listed, or a page not be removed.
pub fn remove_others(folder: &Path, names: &BTreeSet<String>) -> Result<(), FolderError> {
    let wrong = |path: &Path| {
        let path = path.display().to_string();
        move |cause| FolderError::Write { path, cause }
    };
    for entry in std::fs::read_dir(folder).map_err(wrong(folder))? {
        let path = entry.map_err(wrong(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_page = path.extension().is_some_and(|ending| ending == "html");
        if is_page && !names.contains(&name) && is_ours(&path) {
            std::fs::remove_file(&path).map_err(wrong(&path))?;
        }
    }
    Ok(())
}

fn is_ours(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(GENERATOR)
}

fn ours_or_absent(path: &Path) -> Result<(), FolderError> {
    if path.exists() && !is_ours(path) {
        return Err(FolderError::Foreign { path: path.display().to_string() });
    }
    Ok(())
}
