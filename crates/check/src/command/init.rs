//! `rankcheck init`: writes a first spec and a workflow that checks it with every pull request.
//!
//! Nothing that is there is overwritten: where one of the files is, neither is written.
//! Not here: what may stand in a spec (docs/spec-language.md).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct InitArguments {
    /// The root of the repository.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// What is written, and where.
const FILES: [(&str, &str); 2] = [
    ("specs/first.star", include_str!("init/first.star")),
    (".github/workflows/rankcheck.yml", include_str!("init/rankcheck.yml")),
];

impl InitArguments {
    pub(super) fn run(&self) -> u8 {
        let in_folder = |path: &str| self.folder.strip_prefix(".").unwrap_or(&self.folder).join(path);
        let paths = FILES.map(|(path, text)| (in_folder(path), text));
        if let Some((there, _)) = paths.iter().find(|(path, _)| fs::symlink_metadata(path).is_ok()) {
            return output::usage(format_args!(
                "{} already exists, and nothing was written; move it away, or give another folder: \
                 rankcheck init DIR",
                there.display()
            ));
        }
        for (path, text) in &paths {
            if let Err(error) = write(path, text) {
                return output::usage(format_args!(
                    "{} cannot be written: {error}; give a folder that may be written to: rankcheck init DIR",
                    path.display()
                ));
            }
            output::line(path.display());
        }
        output::note(format_args!("now: rankcheck check {}", in_folder("specs").display()));
        if let Some(root) = repository_above(&self.folder) {
            let root = root.display();
            output::advice(format_args!(
                "GitHub runs workflows only from the root of a repository, which is {root}: move rankcheck.yml into \
                 {root}/.github/workflows, and name the folder of the specs in it from there on",
            ));
        }
        0
    }
}

/// The root of the git repository that a folder is in, if the folder is not the root itself.
fn repository_above(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let root = folder.ancestors().find(|above| above.join(".git").exists())?;
    (root != folder).then(|| root.to_owned())
}

/// Writes a file that is not there.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create_new(path)?.write_all(text.as_bytes())
}
