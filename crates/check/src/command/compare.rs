//! `rankcheck compare`: how the checks of one revision differ from those of another.
//!
//! Not here: what is compared ([`crate::pull_request::comparison`]), and what git knows (`git`).

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::git::{Git, GitError};
use super::output;
use super::results::ending;
use super::search::{SearchJob, at_least_one, search_each};
use crate::pull_request::comparison::{CheckSeen, Comparison, compare};
use crate::pull_request::markdown;
use crate::search::{Detail, Options};
use crate::spec::{Spec, SpecError};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rankcheck compare [OPTIONS] OLD NEW\n       \
                      rankcheck compare [OPTIONS] --repo DIR OLD NEW PATH…",
    after_help = "Exit codes: 0 nothing is worse · 1 a check is no longer as it states, or breaks another rule · \
                  2 a spec of NEW is bad, or bad usage · 3 a check that changed is inconclusive · 4 git is missing"
)]
pub(super) struct CompareArguments {
    /// A spec file or a folder of specs, as it was before; with --repo, a revision.
    old: PathBuf,
    /// The same as it is now; with --repo, a revision.
    new: PathBuf,
    /// With --repo: spec files and folders of specs, relative to DIR.
    paths: Vec<PathBuf>,
    /// Compare revisions of the git repository that this folder belongs to.
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// The format of the comparison.
    #[arg(long, value_enum, default_value = "text")]
    format: CompareFormat,
    /// Give up on a check after this many states [default: 20,000,000].
    #[arg(long)]
    max_states: Option<u64>,
    /// How many checks run at the same time [default: the number of cores].
    #[arg(long, value_parser = at_least_one)]
    jobs: Option<NonZero<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompareFormat {
    /// Text for people to read.
    Text,
    /// Markdown, for a comment on a pull request.
    Markdown,
    /// For tools; see docs/pull-requests.md.
    Json,
}

/// The specs of one revision.
struct Revision {
    /// The folder from which files are named.
    root: PathBuf,
    specs: Vec<Spec>,
    bad: Vec<SpecError>,
}

/// A folder that is removed when it is no longer needed.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("rankcheck-compare-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Revision {
    /// The specs of a folder or file.
    fn at(path: &Path) -> Self {
        // Reports name whole paths then, of which the root can be told from a part of a name.
        let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let root = if path.is_file() { path.parent().unwrap_or(path) } else { path };
        let (specs, bad) = super::load_each(std::slice::from_ref(path));
        Self { root: root.to_owned(), specs, bad }
    }

    /// The specs of a revision, under those of the paths that it has.
    fn of(git: &Git, revision: &Path, paths: &[PathBuf], into: &Path) -> Result<Self, GitError> {
        let revision = revision.to_string_lossy();
        let written =
            |error: std::io::Error| GitError::Refused(format!("cannot write {}: {error}", into.display()));
        std::fs::create_dir(into).map_err(written)?;
        // As locations name it: without `.` and empty parts.
        let plain = |path: PathBuf| path.components().collect::<PathBuf>();
        let root = plain(git.specs_of(&revision, into)?);
        let paths: Vec<PathBuf> =
            paths.iter().map(|path| plain(root.join(path))).filter(|path| path.exists()).collect();
        let (specs, bad) = super::load_each(&paths);
        Ok(Self { root, specs, bad })
    }

    /// The path of a spec from the root on.
    fn name_of(&self, spec: &Spec) -> String {
        let path = Path::new(&spec.path);
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// What is wrong, with paths from the root on.
    fn told(&self, errors: &[SpecError]) -> Vec<String> {
        let told = |error: &SpecError| {
            let place = error.loc().map_or_else(String::new, |loc| format!("{}:{}: ", loc.file, loc.line));
            format!("{place}{error}").replace(&format!("{}/", self.root.display()), "")
        };
        errors.iter().map(told).collect()
    }
}

impl CompareArguments {
    pub(super) fn run(&self) -> u8 {
        let scratch;
        let (mut old, mut new) = match &self.repo {
            None => {
                if let Some(path) = self.paths.first() {
                    return output::usage(format_args!(
                        "{} is one too many: give two folders, or --repo DIR and two revisions before it",
                        path.display()
                    ));
                }
                if let Some(gone) = [&self.old, &self.new].into_iter().find(|path| !path.exists()) {
                    return output::usage(format_args!(
                        "no file or folder {}; if it is a revision, give --repo DIR and the folder of the specs: \
                         rankcheck compare --repo . OLD NEW specs",
                        gone.display()
                    ));
                }
                (Revision::at(&self.old), Revision::at(&self.new))
            }
            Some(repo) => {
                if self.paths.is_empty() {
                    return output::usage(
                        "give spec files or folders of them after the two revisions (--repo)",
                    );
                }
                scratch = match Scratch::new() {
                    Ok(scratch) => scratch,
                    Err(error) => {
                        return output::usage(format_args!(
                            "cannot make a folder in {}: {error}; set TMPDIR",
                            std::env::temp_dir().display()
                        ));
                    }
                };
                let read = || {
                    let git = Git::of(repo)?;
                    let one =
                        |revision, name| Revision::of(&git, revision, &self.paths, &scratch.0.join(name));
                    Ok((one(&self.old, "old")?, one(&self.new, "new")?))
                };
                match read() {
                    Ok(revisions) => revisions,
                    Err(error) => return GitError::report(&error),
                }
            }
        };
        if [&old, &new].iter().all(|revision| revision.specs.is_empty() && revision.bad.is_empty()) {
            return output::usage("neither revision has a spec (*.star) there");
        }
        let comparison = self.compare(&mut old, &mut new);
        match self.format {
            CompareFormat::Text => output::line(comparison.text()),
            CompareFormat::Markdown => output::line(markdown(&comparison)),
            CompareFormat::Json => match serde_json::to_string_pretty(&comparison) {
                Ok(text) => output::line(text),
                Err(error) => return output::usage(error),
            },
        }
        comparison.exit_code()
    }

    fn compare(&self, old: &mut Revision, new: &mut Revision) -> Comparison {
        // The same text ends alike.
        let digests = |revision: &Revision| -> BTreeSet<(String, String)> {
            revision.specs.iter().map(|spec| (revision.name_of(spec), spec.digest.clone())).collect()
        };
        let both: BTreeSet<_> = digests(old).intersection(&digests(new)).cloned().collect();
        let mut unchanged = 0;
        for revision in [&mut *old, &mut *new] {
            let specs = std::mem::take(&mut revision.specs);
            let (same, other): (Vec<Spec>, Vec<Spec>) = specs
                .into_iter()
                .partition(|spec| both.contains(&(revision.name_of(spec), spec.digest.clone())));
            unchanged = same.iter().map(|spec| spec.checks.len()).sum();
            revision.specs = other;
        }
        let (before, bad_before) = self.search(old);
        let (now, bad) = self.search(new);
        Comparison { unchanged, bad_before, bad, ..compare(&before, &now) }
    }

    /// Searches every check of a revision. Returns what is wrong with the others, too.
    fn search(&self, revision: &Revision) -> (Vec<CheckSeen>, Vec<String>) {
        let mut options = Options::telling(Detail::Reason);
        options.bounds.states = self.max_states.unwrap_or(options.bounds.states);
        let jobs: Vec<SearchJob<'_>> = revision
            .specs
            .iter()
            .flat_map(|spec| spec.checks.iter().map(move |check| (spec, check)))
            .collect();
        let root = revision.root.display().to_string();
        let results = search_each(&jobs, &options, self.jobs, |(spec, _), explained| {
            CheckSeen::of(&explained, ending(&explained), revision.name_of(spec), &root)
        });
        let (mut seen, mut bad) = (Vec::new(), revision.bad.clone());
        for result in results.into_values() {
            match result {
                Ok(found) => seen.push(found),
                Err(error) => bad.push(error),
            }
        }
        let mut told = revision.told(&bad);
        told.sort();
        (seen, told)
    }
}
