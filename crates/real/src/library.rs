//! Which libnccl a worker loads. The bindings open the name `libnccl.so` through the loader, so a library of
//! the user's choice is put first in its path, under that name.
//!
//! Not here: looking for the library ([`crate::ffi::probe`]).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// The loader's variable.
pub const VARIABLE: &str = "LD_LIBRARY_PATH";

/// A folder with one link, `libnccl.so`.
#[derive(Debug)]
pub struct LibraryFolder {
    folder: PathBuf,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::File { path: path.display().to_string(), message: error.to_string() }
}

/// Makes the folder, for the library at this path.
///
/// # Errors
/// [`Error::File`] if there is no such library, or the folder cannot be made.
pub fn library_path(nccl: &Path) -> Result<LibraryFolder, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let library = nccl.canonicalize().map_err(failed(nccl))?;
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("rankcheck-nccl-{}-{nth}", std::process::id()));
    std::fs::create_dir(&folder).map_err(failed(&folder))?;
    let made = LibraryFolder { folder };
    for name in ["libnccl.so", "libnccl.so.2"] {
        let link = made.folder.join(name);
        std::os::unix::fs::symlink(&library, &link).map_err(failed(&link))?;
    }
    Ok(made)
}

impl LibraryFolder {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The value of [`VARIABLE`] for a child process: the folder first, then what is there now.
    #[must_use]
    pub fn value(&self) -> OsString {
        let mut value = self.folder.clone().into_os_string();
        if let Some(rest) = std::env::var_os(VARIABLE).filter(|rest| !rest.is_empty()) {
            value.push(":");
            value.push(rest);
        }
        value
    }

    /// Removes the folder. Processes that have opened the library keep it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn end(self) -> Result<(), Error> {
        let this = std::mem::ManuallyDrop::new(self);
        std::fs::remove_dir_all(&this.folder).map_err(failed(&this.folder))
    }
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        tracing::warn!(folder = %self.folder.display(), "the folder of a library was not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_comes_first_and_goes_away() {
        let file = std::env::temp_dir().join(format!("rankcheck-library-{}", std::process::id()));
        std::fs::write(&file, "not a library").expect("the folder for temporary files can be written");
        let folder = library_path(&file).expect("the file is there");
        let path = folder.path().to_owned();
        assert!(folder.value().to_string_lossy().starts_with(&*path.to_string_lossy()));
        assert_eq!(std::fs::read_to_string(path.join("libnccl.so")).expect("a link"), "not a library");
        folder.end().expect("the folder was made above");
        assert!(!path.exists());
        std::fs::remove_file(&file).expect("written above");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = library_path(Path::new("/no/such/libnccl.so")).expect_err("it is not there");
        assert!(error.to_string().contains("/no/such/libnccl.so"));
    }
}
