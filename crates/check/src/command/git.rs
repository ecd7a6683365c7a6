//! What git knows: the specs of a revision, and what changed since one.
//!
//! Nothing of a repository is written: a revision is read through an index of its own.
//! Not here: what is made of it.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::output;

/// The exit code where something is missing that the command needs.
const MISSING: u8 = 4;

/// A folder in a work tree.
#[derive(Debug)]
pub(super) struct Git {
    /// The root of the work tree.
    top: PathBuf,
    /// Where the folder is in it.
    prefix: PathBuf,
}

/// Why git did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GitError {
    /// There is no git to start.
    #[error(
        "git cannot be started ({0}), and this command reads revisions with it; install git, or compare two folders"
    )]
    Missing(#[source] std::io::Error),
    /// It ran and said no.
    #[error("{0}")]
    Refused(String),
}

impl GitError {
    /// Prints the error and returns the exit code.
    pub(super) fn report(&self) -> u8 {
        let bad = output::usage(self);
        match self {
            Self::Missing(_) => MISSING,
            Self::Refused(_) => bad,
        }
    }
}

/// Lines of a file before a change, and lines after it in their place, both as first and number. A number of 0 means
/// the place behind the first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Those before the change.
    pub old: (u32, u32),
    /// Those after the change.
    pub new: (u32, u32),
}

/// A file that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangedFile {
    /// Its path before, from the root of the work tree; none if it is new.
    pub old: Option<PathBuf>,
    /// Its path now; none if it is gone.
    pub new: Option<PathBuf>,
}

fn run(folder: &Path, index: Option<&Path>, arguments: &[&OsStr], input: &[u8]) -> Result<Vec<u8>, GitError> {
    let mut git = Command::new("git");
    git.arg("--literal-pathspecs").arg("-C").arg(folder).args(arguments).env("LC_ALL", "C");
    // A hook of git says which repository it is about; this is about another folder.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        git.env_remove(name);
    }
    if let Some(index) = index {
        git.env("GIT_INDEX_FILE", index);
    }
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().map_err(GitError::Missing)?;
    let mut pipe = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // It may answer before it has read everything, and may end without reading.
        scope.spawn(move || pipe.take().map(|mut pipe| pipe.write_all(input)));
        child.wait_with_output()
    });
    let output = output.map_err(GitError::Missing)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let asked: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    Err(GitError::Refused(format!("git {} in {}: {}", asked.join(" "), folder.display(), said.trim())))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

impl Git {
    /// The work tree in which a folder lies.
    pub(super) fn of(folder: &Path) -> Result<Self, GitError> {
        let ask = |what: &str| run(folder, None, &["rev-parse".as_ref(), what.as_ref()], &[]);
        let top = path(without_newline(&ask("--show-toplevel")?));
        let prefix = path(without_newline(&ask("--show-prefix")?));
        Ok(Self { top, prefix })
    }

    fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        run(&self.top, None, &arguments, &[])
    }

    /// A path below the folder, from the root of the work tree.
    pub(super) fn below_top(&self, below: &Path) -> PathBuf {
        self.prefix.join(below)
    }

    /// The root of the work tree.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// The commit that a revision names.
    fn commit(&self, revision: &str) -> Result<String, GitError> {
        let wanted = format!("{revision}^{{commit}}");
        let found = self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted]);
        let found = found.map_err(|error| match error {
            GitError::Refused(_) => GitError::Refused(format!(
                "there is no commit {revision:?} in {}; check its name. In a shallow clone, fetch the history first: git \
                 fetch --unshallow, or fetch-depth: 0 for actions/checkout",
                self.top.display()
            )),
            GitError::Missing(error) => GitError::Missing(error),
        })?;
        Ok(String::from_utf8_lossy(&found).trim().to_owned())
    }

    /// The last commit that the work tree and a revision have in common.
    pub(super) fn base(&self, revision: &str) -> Result<String, GitError> {
        let commit = self.commit(revision)?;
        let found = self.ask(&["merge-base", &commit, "HEAD"]).map_err(|error| match error {
            GitError::Refused(_) => GitError::Refused(format!(
                "{revision:?} and HEAD have no commit in common in {}; if the clone is shallow, fetch more: \
                 git fetch --unshallow, or fetch-depth: 0 for actions/checkout",
                self.top.display()
            )),
            GitError::Missing(error) => GitError::Missing(error),
        })?;
        Ok(String::from_utf8_lossy(&found).trim().to_owned())
    }

    /// Writes all spec files of a revision below a folder, and returns where this one's are in it.
    pub(super) fn specs_of(&self, revision: &str, into: &Path) -> Result<PathBuf, GitError> {
        let commit = self.commit(revision)?;
        let index = into.join("index");
        let ask = |arguments: &[&OsStr], input: &[u8]| run(&self.top, Some(&index), arguments, input);
        ask(&["read-tree".as_ref(), commit.as_ref()], &[])?;
        let files = ask(&["ls-files".as_ref(), "-z".as_ref()], &[])?;
        let specs: Vec<&[u8]> =
            files.split(|byte| *byte == 0).filter(|path| path.ends_with(b".star")).collect();
        let tree = into.join("tree");
        std::fs::create_dir_all(tree.join(&self.prefix))
            .map_err(|error| GitError::Refused(format!("cannot write {}: {error}", tree.display())))?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(&tree);
        prefix.push("/");
        let arguments = ["checkout-index".as_ref(), "-z".as_ref(), "--stdin".as_ref(), prefix.as_ref()];
        ask(&arguments, &specs.join(&0))?;
        Ok(tree.join(&self.prefix))
    }

    /// The files of the work tree that are not as they were in a commit, new ones that git does not know included.
    pub(super) fn changed(&self, commit: &str) -> Result<Vec<ChangedFile>, GitError> {
        let told = self.ask(&["diff", "--no-ext-diff", "--name-status", "-z", "-M", commit, "--"])?;
        let mut words = told.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let mut changed = Vec::new();
        while let Some(status) = words.next() {
            let mut next = || words.next().map(path);
            changed.push(match status.first() {
                Some(b'R' | b'C') => ChangedFile { old: next(), new: next() },
                Some(b'A') => ChangedFile { old: None, new: next() },
                Some(b'D') => ChangedFile { old: next(), new: None },
                Some(_) | None => {
                    let path = next();
                    ChangedFile { old: path.clone(), new: path }
                }
            });
        }
        let untracked = self.ask(&["ls-files", "-z", "--others", "--exclude-standard"])?;
        let untracked = untracked.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        changed.extend(untracked.map(|word| ChangedFile { old: None, new: Some(path(word)) }));
        Ok(changed)
    }

    /// The text of a file of a commit.
    pub(super) fn text(&self, commit: &str, file: &Path) -> Result<String, GitError> {
        let mut object = OsString::from(format!("{commit}:"));
        object.push(file);
        let text = run(&self.top, None, &["cat-file".as_ref(), "blob".as_ref(), &object], &[])?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What changed in a file since a commit.
    pub(super) fn hunks(&self, commit: &str, file: &ChangedFile) -> Result<Vec<Hunk>, GitError> {
        let options =
            ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--text", "-U0", "-M", commit, "--"];
        let mut arguments: Vec<&OsStr> = options.iter().map(AsRef::as_ref).collect();
        arguments.extend(file.old.iter().chain(&file.new).map(|path| path.as_os_str()));
        let told = run(&self.top, None, &arguments, &[])?;
        Ok(String::from_utf8_lossy(&told).lines().filter_map(hunk).collect())
    }
}

/// Reads `@@ -12,3 +14,0 @@`. Lines of the files themselves begin with `-`, `+` or a backslash.
fn hunk(line: &str) -> Option<Hunk> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut lines = |sign: char| {
        let word = words.next()?.strip_prefix(sign)?;
        let (first, number) = word.split_once(',').unwrap_or((word, "1"));
        Some((first.parse().ok()?, number.parse().ok()?))
    };
    Some(Hunk { old: lines('-')?, new: lines('+')? })
}
