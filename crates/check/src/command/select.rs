//! Which checks are wanted: by name and system before anything is searched, by rule and verdict after it.
//!
//! What is not shown counts all the same: a filter hides no failure from the exit code. Without a search (`--list`) rule and
//! verdict are those that checks state. A name that no check has is an error that says which there are; that nothing was found
//! of what is to be shown is none.
//! Not here: searching, and what reports look like.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::ValueEnum;
use rankcheck_model::Rule;
use serde::{Deserialize, Serialize};

use super::results::Conclusion;
use crate::launches::judge::JudgedJob;
use crate::rules;
use crate::runs::judge::{Judged, RunVerdict};
use crate::search::{Explained, Verdict};
use crate::spec::{Check, CheckKind, Expect, Spec, did_you_mean};

#[derive(Debug, clap::Args)]
pub(super) struct CheckSelection {
    /// Check only checks whose names contain this.
    #[arg(long, value_name = "NAME")]
    pub(super) only: Option<String>,
    /// Check only specs in folders whose names contain this, such as sglang-9358.
    #[arg(long, value_name = "NAME")]
    pub(super) system: Option<String>,
    /// Show only what breaks this rule. Where several rules are broken, show the run that breaks this one.
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub(super) rule: Option<Rule>,
    /// Show only what has this verdict.
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub(super) verdict: Option<WantedVerdict>,
}

/// Reads the id of a rule, in capitals or not.
pub(super) fn rule(id: &str) -> Result<Rule, String> {
    id.to_uppercase().parse().map_err(|_| rules::unknown(id))
}

/// The verdicts that may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(super) enum WantedVerdict {
    /// No rule is broken.
    #[serde(rename = "holds")]
    Holds,
    /// A rule is broken.
    #[serde(rename = "fails")]
    Fails,
    /// A recorded run that stood still.
    #[serde(rename = "hangs")]
    Hangs,
    /// Too little is known.
    #[serde(rename = "unknown")]
    Unknown,
    /// Not what the check states, or a finding where nothing is stated.
    #[serde(rename = "unexpected")]
    Unexpected,
}

impl WantedVerdict {
    fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Hangs => "hangs",
            Self::Unknown => "unknown",
            Self::Unexpected => "unexpected",
        }
    }
}

/// What a filter looks at: of a check, a recorded run, or a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FilterFacts {
    #[serde(with = "rule_ids")]
    rules: BTreeSet<Rule>,
    verdict: WantedVerdict,
    unexpected: bool,
}

/// Rules are written by their ids.
mod rule_ids {
    use std::collections::BTreeSet;

    use rankcheck_model::Rule;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(rules: &BTreeSet<Rule>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(rules.iter().map(|rule| rule.id()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<Rule>, D::Error> {
        let ids = Vec::<String>::deserialize(from)?;
        ids.iter().map(|id| id.parse().map_err(D::Error::custom)).collect()
    }
}

impl FilterFacts {
    pub(super) fn of(explained: &Explained, conclusion: Conclusion) -> Self {
        let rules = explained.runs.iter().flat_map(|run| run.broken.keys().copied()).collect();
        let verdict = match explained.run().verdict {
            Verdict::Holds => WantedVerdict::Holds,
            Verdict::Fails { .. } => WantedVerdict::Fails,
            Verdict::Unknown(_) => WantedVerdict::Unknown,
        };
        Self { rules, verdict, unexpected: conclusion == Conclusion::Otherwise }
    }

    pub(super) fn of_run(run: &Judged, conclusion: Conclusion) -> Self {
        let rules = run.findings.iter().map(|finding| finding.rule).collect();
        Self { rules, verdict: of_run(run.verdict), unexpected: conclusion == Conclusion::Otherwise }
    }

    pub(super) fn of_job(job: &JudgedJob, conclusion: Conclusion) -> Self {
        let rules = job.rules().into_iter().collect();
        Self { rules, verdict: of_run(job.verdict), unexpected: conclusion == Conclusion::Otherwise }
    }
}

fn of_run(verdict: RunVerdict) -> WantedVerdict {
    match verdict {
        RunVerdict::Holds => WantedVerdict::Holds,
        RunVerdict::Fails => WantedVerdict::Fails,
        RunVerdict::Hangs => WantedVerdict::Hangs,
        RunVerdict::Unknown => WantedVerdict::Unknown,
    }
}

impl CheckSelection {
    /// Whether only a part of what is searched is shown.
    pub(super) fn filters(&self) -> bool {
        self.rule.is_some() || self.verdict.is_some()
    }

    /// Whether a check, a recorded run or a job is shown.
    pub(super) fn shows(&self, facts: &FilterFacts) -> bool {
        let verdict =
            |wanted| facts.verdict == wanted || wanted == WantedVerdict::Unexpected && facts.unexpected;
        self.rule.is_none_or(|rule| facts.rules.contains(&rule)) && self.verdict.is_none_or(verdict)
    }

    /// Says what there is where a filter shows nothing.
    pub(super) fn nothing(&self, all: &[FilterFacts]) -> String {
        let broken: BTreeSet<Rule> = all.iter().flat_map(|facts| facts.rules.iter().copied()).collect();
        let ids: Vec<&str> = broken.iter().map(|rule| rule.id()).collect();
        if let Some(rule) = self.rule.filter(|rule| !broken.contains(rule)) {
            return match ids.as_slice() {
                [] => format!("no run breaks {rule} (--rule), nor any other rule"),
                ids => {
                    format!("no run breaks {rule} (--rule); the rules that are broken: {}", ids.join(", "))
                }
            };
        }
        let mut counts: BTreeMap<WantedVerdict, usize> = BTreeMap::new();
        for facts in all.iter().filter(|facts| self.rule.is_none_or(|rule| facts.rules.contains(&rule))) {
            *counts.entry(facts.verdict).or_default() += 1;
            *counts.entry(WantedVerdict::Unexpected).or_default() += usize::from(facts.unexpected);
        }
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> =
            counts.map(|(verdict, count)| format!("{count} {}", verdict.word())).collect();
        let wanted = self.verdict.map_or("", WantedVerdict::word);
        match self.rule {
            Some(rule) => {
                format!(
                    "nothing that breaks {rule} has the verdict {wanted:?} (--verdict); there are: {}",
                    counts.join(", ")
                )
            }
            None => {
                format!("nothing has the verdict {wanted:?} (--verdict); there are: {}", counts.join(", "))
            }
        }
    }

    /// Returns the checks that are wanted, as far as that is known before they are searched.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn checks<'a>(&self, specs: &'a [Spec]) -> Result<Vec<(&'a Spec, &'a Check)>, String> {
        let all = specs.iter().flat_map(|spec| spec.checks.iter().map(move |check| (spec, check)));
        let in_system = |spec: &Spec| {
            self.system.as_deref().is_none_or(|wanted| folders(spec).any(|folder| folder.contains(wanted)))
        };
        let in_system: Vec<_> = all.filter(|(spec, _)| in_system(spec)).collect();
        if let Some(wanted) = self.system.as_deref().filter(|_| in_system.is_empty()) {
            let known: BTreeSet<&str> = specs.iter().filter_map(|spec| folders(spec).last()).collect();
            let what = format!("no check lies in a folder with a name like \"{wanted}\" (--system)");
            return Err(format!("{what}{}", nearest(wanted, known.iter().copied())));
        }
        let named = |check: &Check| self.only.as_deref().is_none_or(|part| check.name.contains(part));
        let wanted: Vec<_> = in_system.iter().copied().filter(|(_, check)| named(check)).collect();
        match self.only.as_deref().filter(|_| wanted.is_empty()) {
            Some(only) => {
                let names = in_system.iter().map(|(_, check)| check.name.as_str());
                Err(format!("no check has a name like that (--only){}", nearest(only, names)))
            }
            None => Ok(wanted),
        }
    }

    /// Says what checks state where a list has none of them.
    fn nothing_stated(&self, checks: &[(&Spec, &Check)]) -> String {
        let mut ids: Vec<&str> = checks.iter().flat_map(|(_, check)| stated(check).1).collect();
        ids.sort_unstable();
        ids.dedup();
        if let Some(rule) = self.rule.filter(|rule| !ids.contains(&rule.id())) {
            return match ids.as_slice() {
                [] => format!("no check states that it breaks {rule} (--rule), or any other rule"),
                ids => format!(
                    "no check states that it breaks {rule} (--rule); the rules that checks state: {}",
                    ids.join(", ")
                ),
            };
        }
        let wanted = self.verdict.map_or("", WantedVerdict::word);
        let verdicts = checks.iter().map(|(_, check)| stated(check).0.map_or("nothing", WantedVerdict::word));
        format!(
            "no check states that it {} (--verdict; --list searches nothing); checks state: {}",
            match self.verdict {
                Some(WantedVerdict::Unknown | WantedVerdict::Unexpected) => format!("is {wanted}"),
                Some(WantedVerdict::Holds | WantedVerdict::Fails | WantedVerdict::Hangs) | None =>
                    wanted.to_owned(),
            },
            counted(verdicts)
        )
    }

    /// Returns a line for each check, in the order of the files: its place, what it states, its name.
    ///
    /// # Errors
    /// If none states what is wanted.
    pub(super) fn list(&self, checks: &[(&Spec, &Check)]) -> Result<Vec<String>, String> {
        let states = |check: &Check| {
            let (verdict, rules) = stated(check);
            self.rule.is_none_or(|rule| rules.iter().any(|id| *id == rule.id()))
                && self.verdict.is_none_or(|wanted| verdict == Some(wanted))
        };
        let listed: Vec<&(&Spec, &Check)> = checks.iter().filter(|(_, check)| states(check)).collect();
        if listed.is_empty() && !checks.is_empty() {
            return Err(self.nothing_stated(checks));
        }
        let place = |spec: &Spec, check: &Check| format!("{}:{}", spec.path, check.loc.line);
        let line = |(spec, check): &&(&Spec, &Check)| {
            let states = match stated(check) {
                (Some(WantedVerdict::Fails), rules) => format!("fails {}", rules.join(", ")),
                (Some(verdict), _) => format!("{}{}", verdict.word(), bounds(check)),
                (None, _) if check.kind == CheckKind::SameOperations => "same operations".to_owned(),
                (None, _) => "nothing stated".to_owned(),
            };
            format!("{}: {states}: {}", place(spec, check), check.name)
        };
        Ok(listed.iter().map(line).collect())
    }
}

/// How often each of these is there, in words.
fn counted(words: impl Iterator<Item = &'static str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// What a check states: its verdict, and the rules that are broken.
fn stated(check: &Check) -> (Option<WantedVerdict>, Vec<&str>) {
    match &check.kind {
        CheckKind::Program(Expect::Holds { .. }) => (Some(WantedVerdict::Holds), Vec::new()),
        CheckKind::Program(Expect::Fails { rule, also, .. }) => {
            let rules = std::iter::once(rule).chain(also).map(String::as_str);
            (Some(WantedVerdict::Fails), rules.collect())
        }
        CheckKind::Program(Expect::Nothing) | CheckKind::SameOperations => (None, Vec::new()),
    }
}

/// From which values of its parameters on a check states that it holds.
fn bounds(check: &Check) -> String {
    let CheckKind::Program(Expect::Holds { holds_from, .. }) = &check.kind else { return String::new() };
    let bounds: Vec<String> = holds_from.iter().map(|(name, from)| format!("{name} = {from}")).collect();
    if bounds.is_empty() { String::new() } else { format!(" from {} on, fails below", bounds.join(", ")) }
}

/// The names of the folders that a spec lies in, the outermost first.
fn folders(spec: &Spec) -> impl Iterator<Item = &str> {
    let above = Path::new(&spec.path).parent().unwrap_or(Path::new(""));
    above.iter().filter_map(std::ffi::OsStr::to_str)
}

/// The nearest of the names, or all of them where there are few, for the end of an error.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    const FEW: usize = 8;
    // Who gives a part of a name means how it begins, or a word of it.
    let parts = |name: &'a str| {
        let begins = name.char_indices().nth(word.chars().count()).map_or(name, |(end, _)| &name[..end]);
        let words = name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        words.chain([begins, name]).map(move |part| (part, name))
    };
    let parts: Vec<(&str, &str)> = known.clone().flat_map(parts).collect();
    let near = did_you_mean(word, parts.iter().map(|(part, _)| *part));
    match near.and_then(|near| parts.iter().find(|(part, _)| *part == near)) {
        Some((_, name)) => format!("; did you mean \"{name}\"?"),
        None if known.clone().count() <= FEW => {
            let names: Vec<String> = known.map(|name| format!("\"{name}\"")).collect();
            format!("; known: {}", names.join(", "))
        }
        None => "; with --list, the same command shows the names".to_owned(),
    }
}
