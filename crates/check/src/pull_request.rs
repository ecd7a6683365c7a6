//! What a pull request shows: annotations at lines, test cases, and how one revision differs from another.
//!
//! All of it is a function of what was found, and starts nothing. [`TestCase`] is what every format begins with;
//! [`Annotation`] is what is shown at a line; [`comparison`] puts two revisions side by side.
//! Not here: the text report ([`crate::report`]), and what git knows ([`crate::command`]).

pub(crate) mod comparison;
mod github;
mod junit;
mod markdown;
mod sarif;

pub(crate) use github::github;
pub(crate) use junit::junit;
pub(crate) use markdown::markdown;
pub(crate) use sarif::sarif;

use serde::{Deserialize, Serialize};

/// A file of a repository, and a line of it where there is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Spot {
    /// The path from the root of the repository; empty where it is about no file.
    pub file: String,
    /// The line, from 1 on.
    pub line: Option<u32>,
}

impl Spot {
    /// A line of a file, whose path is told as a pull request names it: from the current directory, without `./`.
    pub(crate) fn new(file: &str, line: Option<u32>) -> Self {
        let here = std::env::current_dir().ok();
        let path = std::path::Path::new(file);
        let below = here.as_deref().and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path);
        let parts = below.components().filter(|part| *part != std::path::Component::CurDir);
        let path: std::path::PathBuf = parts.collect();
        Self { file: path.display().to_string(), line }
    }
}

/// How bad what an annotation says is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The pull request must not go on like this.
    Error,
    /// Somebody has to look at it.
    Warning,
}

impl Severity {
    /// The word that GitHub and SARIF have for it.
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// What a pull request shows at a line.
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    /// How bad it is.
    pub severity: Severity,
    /// The rule that is broken, or what else this is about: [`UNKNOWN`], [`BAD_SPEC`], [`QUOTE`].
    pub rule: String,
    /// One line that says what is wrong.
    pub title: String,
    /// All that is to be said.
    pub message: String,
    /// Where it is shown.
    pub at: Spot,
    /// Other lines that it is about, each with what it is.
    pub related: Vec<(Spot, String)>,
}

/// What annotations are about where a bound was hit.
pub(crate) const UNKNOWN: &str = "unknown";
/// What annotations are about where a spec cannot be read or evaluated.
pub(crate) const BAD_SPEC: &str = "bad-spec";
/// What annotations are about where a line is quoted that changed.
pub(crate) const QUOTE: &str = "quote";
/// What annotations are about where a check is not as stated although no rule is broken.
pub(crate) const NOT_AS_STATED: &str = "not-as-stated";

/// How something that was tested ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CaseEnd {
    /// It is as stated.
    #[serde(rename = "passed")]
    Passed,
    /// It is not as stated.
    #[serde(rename = "failed")]
    Failed,
    /// A bound was hit, or too little was recorded. It is no pass.
    #[serde(rename = "unknown")]
    Unknown,
    /// It could not be read or evaluated.
    #[serde(rename = "bad")]
    Bad,
}

/// A check, a recorded run, or a file that could not be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TestCase {
    /// The spec file, or the folder of a run.
    pub file: String,
    /// The name of the check.
    pub name: String,
    /// Whether it is as stated.
    pub ending: CaseEnd,
    /// The rule that is broken, or what else there is to say; as in [`Annotation`].
    pub rule: String,
    /// One line that says what is wrong, if anything is.
    pub summary: String,
    /// All that the text report says.
    pub report: String,
    /// Where it is shown.
    pub at: Spot,
    /// Other lines that it is about, each with what it is.
    pub related: Vec<(Spot, String)>,
    /// Lines that it is about, and that are not in the repository, in words.
    pub elsewhere: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

impl TestCase {
    /// What a pull request shows of it; nothing where it is as stated.
    pub(crate) fn annotation(&self) -> Option<Annotation> {
        let severity = match self.ending {
            CaseEnd::Passed => return None,
            CaseEnd::Failed | CaseEnd::Bad => Severity::Error,
            CaseEnd::Unknown => Severity::Warning,
        };
        Some(Annotation {
            severity,
            rule: self.rule.clone(),
            title: format!("{}: {}", self.name, self.summary),
            message: [&self.report, &self.elsewhere.join("\n")]
                .map(String::as_str)
                .join("\n")
                .trim_end()
                .to_owned(),
            at: self.at.clone(),
            related: self.related.clone(),
        })
    }
}

/// What a pull request shows of all of them.
pub(crate) fn annotations(cases: &[TestCase]) -> Vec<Annotation> {
    cases.iter().filter_map(TestCase::annotation).collect()
}
