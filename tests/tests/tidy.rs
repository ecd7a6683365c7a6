//! The repository keeps its own rules: ids, goldens, headers, names, and who may name which dependency.
//!
//! Not here: what formatter and linter check.

mod code;
mod documents;
mod files;
mod specs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankcheck_tests::repository::{enter, files_under};

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(enter().join(path)).unwrap_or_default()
}

fn rust_files() -> Vec<PathBuf> {
    let files = files_under("crates").into_iter().chain(files_under("tests"));
    files.filter(|path| has_extension(path, "rs")).collect()
}

/// Returns everything that people write: the files that git keeps or would take, so nothing that is built.
fn all_files() -> Vec<PathBuf> {
    let git = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(git).current_dir(enter()).output().expect("git is there");
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    // A file that was removed is listed until that is committed.
    let paths = names.split_terminator('\0').map(PathBuf::from);
    let files: Vec<PathBuf> = paths.filter(|path| enter().join(path).exists()).collect();
    assert!(files.len() > 100, "{} files: {}", files.len(), String::from_utf8_lossy(&listed.stderr));
    files
}

/// Returns the code of a line: no comment, nothing that stands in quotes; nothing at all of an attribute.
fn code_of(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default().trim();
    if line.starts_with("#[") || line.starts_with("#![") {
        return String::new();
    }
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns whether a line of code has this word, whatever stands around it.
fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
