//! Files that are whole or not there, whenever who writes them is killed.
//!
//! Not here: what stands in them.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use crate::read::ReadError;

/// Writes a file, which takes its place only once it is complete and on the disk; one that is there stays until then.
pub(crate) fn write(
    path: &Path,
    contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), ReadError> {
    let partial = path.with_extension("partial");
    let write = || {
        let mut writer = BufWriter::new(File::create(&partial)?);
        contents(&mut writer)?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|source| {
        // It may not even have been made.
        let _ = fs::remove_file(&partial);
        ReadError::Io { path: path.to_owned(), source }
    })
}
