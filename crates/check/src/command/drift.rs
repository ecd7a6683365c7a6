//! `rankcheck drift`: lists the quotes of code that no longer stand where the specs say, or that a change touches.
//!
//! Not here: the quotes themselves, which specs state ([`crate::spec::Anchor`]), and what git knows (`git`).

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::formats::line_of;
use super::git::{ChangedFile, Git, GitError, Hunk};
use super::output;
use crate::pull_request::{Annotation, QUOTE, Severity, Spot, github, sarif};
use crate::spec::Anchor;

#[derive(Debug, clap::Args)]
pub(super) struct DriftArguments {
    /// The repository that the specs quote.
    #[arg(long)]
    repo: PathBuf,
    /// List quotes whose lines changed since this revision while the spec did not. Changes count from the last commit that
    /// the revision and the work tree have in common.
    #[arg(long, value_name = "REVISION")]
    diff: Option<String>,
    /// The format of the list.
    #[arg(long, value_enum, default_value = "text")]
    format: DriftFormat,
    /// Spec files (*.star), and folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DriftFormat {
    /// Text for people to read.
    Text,
    /// Annotations of GitHub Actions.
    Github,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

impl DriftArguments {
    pub(super) fn run(&self) -> u8 {
        if let Err(code) = output::wants_folder(&self.repo, "--repo") {
            return code;
        }
        let (specs, bad) = super::load_each(&self.paths);
        if let Some(error) = bad.first() {
            return output::bad(error);
        }
        let mut anchors: Vec<Anchor> = specs.into_iter().flat_map(|spec| spec.anchors).collect();
        let found = match &self.diff {
            None => Ok(anchors.iter().filter_map(|anchor| self.drifted(anchor)).collect()),
            Some(base) => self.touched(base, &mut anchors),
        };
        match found {
            Ok(found) => self.print(&found, anchors.len()),
            Err(error) => error.report(),
        }
    }

    fn print(&self, found: &[Annotation], quotes: usize) -> u8 {
        // A quote that still stands in a changed line is to be looked at; whoever did can do nothing more.
        let code = u8::from(found.iter().any(|annotation| annotation.severity == Severity::Error));
        match self.format {
            DriftFormat::Text => {
                for Annotation { at: Spot { file, line }, message, .. } in found {
                    let line = line.map_or_else(String::new, |line| format!(":{line}"));
                    output::line(format_args!("{file}{line}  {message}"));
                }
            }
            DriftFormat::Github => output::lines(github(found)),
            DriftFormat::Sarif => match serde_json::to_string_pretty(&sarif(found, code)) {
                Ok(text) => output::line(text),
                Err(error) => return output::usage(error),
            },
        }
        if self.format != DriftFormat::Sarif {
            let what = if self.diff.is_some() { "changed without their spec" } else { "gone" };
            output::line(format_args!("{quotes} quotes, {} {what}", found.len()));
        }
        code
    }

    /// Why a quote no longer fits, if it does not.
    fn drifted(&self, Anchor { path, quote, loc }: &Anchor) -> Option<Annotation> {
        let message = match std::fs::read_to_string(self.repo.join(path)) {
            Err(error) => format!("{path}: {error}"),
            Ok(code) if code.contains(quote) => return None,
            Ok(_) => format!("{path} has no longer {quote:?}"),
        };
        Some(Annotation {
            severity: Severity::Error,
            rule: QUOTE.to_owned(),
            title: format!("{path} no longer has what this spec quotes"),
            message,
            at: Spot::new(&loc.file, Some(loc.line)),
            related: Vec::new(),
        })
    }

    /// The quotes whose lines changed since a revision, where the file that quotes them did not.
    fn touched(&self, base: &str, anchors: &mut Vec<Anchor>) -> Result<Vec<Annotation>, GitError> {
        let git = Git::of(&self.repo)?;
        let base = git.base(base)?;
        let changed = git.changed(&base)?;
        let spec_changed = |anchor: &Anchor| {
            let file = Path::new(&*anchor.loc.file).canonicalize().ok();
            let top = git.top().canonicalize().ok();
            let below =
                file.as_deref().zip(top.as_deref()).and_then(|(file, top)| file.strip_prefix(top).ok());
            below.is_some_and(|below| changed.iter().any(|file| file.new.as_deref() == Some(below)))
        };
        // A file that several specs load is told once.
        anchors.sort_by(|a, b| (&a.loc.file, a.loc.line, &a.quote).cmp(&(&b.loc.file, b.loc.line, &b.quote)));
        anchors.dedup();
        let mut found = Vec::new();
        for anchor in anchors.iter().filter(|anchor| !spec_changed(anchor)) {
            let path = git.below_top(Path::new(&anchor.path));
            if let Some(file) = changed.iter().find(|file| file.old.as_ref() == Some(&path)) {
                let before = git.text(&base, &path)?;
                let hunks = git.hunks(&base, file)?;
                let now = file.new.as_ref().map(|new| git.top().join(new));
                let now = now.and_then(|now| std::fs::read_to_string(now).ok());
                found.extend(touching(anchor, file, &before, now.as_deref(), &hunks).map(
                    |mut annotation| {
                        if annotation.at.file.is_empty() {
                            // A file that is gone has no line to show it at.
                            annotation.at = Spot::new(&anchor.loc.file, Some(anchor.loc.line));
                        } else {
                            let there = git.top().join(&annotation.at.file);
                            annotation.at = Spot::new(&there.display().to_string(), annotation.at.line);
                        }
                        annotation
                    },
                ));
            }
        }
        Ok(found)
    }
}

/// The lines that a quote is on, as first and last, wherever it stands in a text.
fn lines_of(text: &str, quote: &str) -> Vec<(u32, u32)> {
    let mut lines = Vec::new();
    let mut from = 0;
    let more = u32::try_from(quote.trim_end_matches('\n').matches('\n').count()).unwrap_or(0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(quote)) {
        let number = text[..from + at].matches('\n').count() + 1;
        let first = u32::try_from(number).unwrap_or(u32::MAX);
        lines.push((first, first.saturating_add(more)));
        // The next one may begin on the next line only: one line is told once.
        let rest = &text[from + at..];
        match rest.find('\n') {
            Some(end) => from += at + end + 1,
            None => break,
        }
    }
    lines
}

/// Whether a change takes away one of these lines, or puts something between them.
fn touches(hunk: &Hunk, (first, last): (u32, u32)) -> bool {
    match hunk.old {
        (before, 0) => before >= first && before < last,
        (start, number) => start <= last && start + number > first,
    }
}

/// What is to be said of a quote in a file that changed. The file of the annotation counts from the root of the work
/// tree, and is empty where the file is gone.
fn touching(
    anchor: &Anchor,
    file: &ChangedFile,
    before: &str,
    now: Option<&str>,
    hunks: &[Hunk],
) -> Option<Annotation> {
    let Anchor { path, quote, loc } = anchor;
    let lines = lines_of(before, quote);
    // What did not stand there before is not this change's doing.
    let (first, _) = *lines.first()?;
    let by = |range: &(u32, u32)| hunks.iter().find(|hunk| touches(hunk, *range)).map(|hunk| (*range, *hunk));
    let touched = lines.iter().find_map(by);
    let moved = file.new != file.old;
    let stays = !moved && now.is_some_and(|now| now.contains(quote));
    let line = match touched {
        // The line in the place of the one that was quoted; where lines were only taken out, the one before.
        Some(((first, _), Hunk { old, new: (start, number) })) => {
            let offset = first.saturating_sub(old.0).min(number.saturating_sub(1));
            let inside = |line: &u32| (start..start + number).contains(line);
            let quoted = now.and_then(|now| line_of(now, quote)).filter(inside);
            quoted.unwrap_or(start + offset).max(1)
        }
        None if moved => now.and_then(|now| line_of(now, quote)).unwrap_or(first),
        None => return None,
    };
    let place = format!("{}:{}", loc.file, loc.line);
    let what = match (&file.new, touched.is_some()) {
        (None, _) => format!("{path}, of which {place} quotes {quote:?}, was removed"),
        (Some(new), false) => {
            format!("{path}, of which {place} quotes {quote:?}, is {} now", new.display())
        }
        (Some(_), true) if stays => {
            format!("this line changed or moved, and {place} quotes {quote:?} of it")
        }
        (Some(_), true) => format!("{place} quotes {quote:?}, which stood here"),
    };
    let remedy =
        if stays { "see whether the spec still describes the code" } else { "change the spec with the code" };
    Some(Annotation {
        severity: if stays { Severity::Warning } else { Severity::Error },
        rule: QUOTE.to_owned(),
        title: "a spec quotes this line and did not change with it".to_owned(),
        message: format!("{what}; {remedy}"),
        at: Spot {
            file: file.new.as_ref().map(|new| new.display().to_string()).unwrap_or_default(),
            line: Some(line),
        },
        related: vec![(Spot::new(&loc.file, Some(loc.line)), "the spec".to_owned())],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_touched_by_what_takes_its_lines_or_comes_between_them() {
        let hunk = |old| Hunk { old, new: (1, 1) };
        for (old, lines, expected) in [
            ((3, 1), (3, 3), true),
            ((1, 5), (3, 3), true),
            ((1, 2), (3, 3), false),
            ((4, 1), (3, 3), false),
            // Lines that are put in before it, between its lines, and behind it.
            ((2, 0), (3, 4), false),
            ((3, 0), (3, 4), true),
            ((4, 0), (3, 4), false),
            ((3, 0), (3, 3), false),
        ] {
            assert_eq!(touches(&hunk(old), lines), expected, "{old:?} {lines:?}");
        }
        assert_eq!(lines_of("a\nb a\nc\na", "a"), [(1, 1), (2, 2), (4, 4)]);
        assert_eq!(lines_of("x\na\nb\n", "a\nb"), [(2, 3)]);
    }
}
