//! Which libnccl a worker loads. The bindings open the name `libnccl.so` through the loader, so a library of
//! the user's choice is put first in its path, under that name.
//!
//! Not here: looking for the library ([`crate::ffi::probe`]).

use std::path::{Path, PathBuf};

use crate::Error;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::File { path: path.display().to_string(), message: error.to_string() }
}

/// A folder in which the loader finds this NCCL library, under every name by which it is looked for. The same
/// library always gets the same folder, so a command that starts over finds it made.
///
/// # Errors
/// [`Error::File`] if there is no such library, or the folder cannot be made.
pub fn folder_with(nccl: &Path) -> Result<PathBuf, Error> {
    let library = nccl.canonicalize().map_err(failed(nccl))?;
    let name = library.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let folder = std::env::temp_dir().join(format!("rankcheck-nccl{name}"));
    std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
    for name in ["libnccl.so", "libnccl.so.2"] {
        let link = folder.join(name);
        if std::fs::read_link(&link).ok().as_ref() != Some(&library) {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, &link).map_err(failed(&link))?;
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_the_library_and_is_made_once() {
        let file = std::env::temp_dir().join(format!("rankcheck-library-{}", std::process::id()));
        std::fs::write(&file, "not a library").expect("the folder for temporary files can be written");
        let folder = folder_with(&file).expect("the file is there");
        for name in ["libnccl.so", "libnccl.so.2"] {
            assert_eq!(std::fs::read_to_string(folder.join(name)).expect("a link"), "not a library");
        }
        assert_eq!(folder_with(&file).expect("the file is still there"), folder);
        std::fs::remove_dir_all(&folder).expect("the folder was made above");
        std::fs::remove_file(&file).expect("written above");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = folder_with(Path::new("/no/such/libnccl.so")).expect_err("it is not there");
        assert!(error.to_string().contains("/no/such/libnccl.so"));
    }
}
