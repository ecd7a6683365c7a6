//! The repository as tests see it: its root, its files, its goldens.
//!
//! Not here: what the files say.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Makes the root of the repository the current directory, once, and returns it. Reports then name specs the
/// way that somebody who stands there does.
///
/// # Panics
/// If the repository was moved after the build.
pub fn enter() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package has a parent folder");
        std::env::set_current_dir(root).expect("the repository is where it was built");
        root.to_owned()
    })
}

/// All files under a folder or a file of the repository, sorted, with paths relative to the root.
///
/// # Panics
/// If a folder cannot be read.
#[must_use]
pub fn files_under(path: &str) -> Vec<PathBuf> {
    let root = enter();
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(path)];
    while let Some(path) = open.pop() {
        if root.join(&path).is_dir() {
            let entries = std::fs::read_dir(root.join(&path)).expect("folders of the repository can be read");
            open.extend(entries.map(|entry| path.join(entry.expect("entries can be listed").file_name())));
        } else if root.join(&path).is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The specs that state something: all `*.star` files under `specs`, apart from libraries.
#[must_use]
pub fn specs() -> Vec<PathBuf> {
    files_under("specs")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "star"))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "lib"))
        .collect()
}

/// Compares a text with its golden file, or writes it where `UPDATE_GOLDEN` is set. Returns what to say if
/// they differ.
///
/// # Panics
/// If the golden cannot be written.
#[must_use]
pub fn differs_from_golden(golden: &Path, text: &str) -> Option<String> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, text).expect("goldens can be written");
    }
    let known = std::fs::read_to_string(golden).unwrap_or_default();
    if known == text {
        return None;
    }
    let same = known.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("the end").to_owned();
    Some(format!(
        "{} differs in line {} (UPDATE_GOLDEN=1 writes it anew)\n  golden: {}\n  now:    {}",
        golden.display(),
        same + 1,
        line(&known),
        line(text)
    ))
}
