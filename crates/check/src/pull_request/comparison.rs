//! How the checks of one revision differ from those of another.
//!
//! Checks are matched by file and name; those of a file that was renamed, by its contents and name. What did not change is
//! not explored again: a spec with the same text, and the same text in all that it loads, ends alike.
//! Not here: reading revisions ([`crate::command`]), and how a comment looks (`markdown`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::CaseEnd;
use crate::report;
use crate::search::{Asked, Explained, Explored, Verdict};

/// Raised whenever a field changes its meaning or goes away.
pub(crate) const COMPARISON_SCHEMA_VERSION: u32 = 1;

/// What is compared of an exploration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunSeen {
    verdict: String,
    costs: BTreeMap<String, i64>,
}

/// A run that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FoundIn {
    /// The rule that it breaks.
    pub rule: &'static str,
    /// How, in a sentence.
    pub sentence: String,
}

impl FoundIn {
    /// Whether both say the same, on whichever lines.
    fn is(&self, other: &Self) -> bool {
        self.rule == other.rule && without_lines(&self.sentence) == without_lines(&other.sentence)
    }
}

/// A text without the numbers of lines: they change with every line above.
fn without_lines(text: &str) -> String {
    let mut parts = text.split(".star:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(".star:");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

/// A check of one revision.
#[derive(Debug, Clone)]
pub(crate) struct CheckSeen {
    /// The spec file, from the root of what is compared.
    pub file: String,
    /// The name of the check.
    pub name: String,
    digest: String,
    ending: CaseEnd,
    /// By rank count, parameters and platform.
    runs: BTreeMap<String, RunSeen>,
    found: Option<FoundIn>,
    report: String,
}

impl CheckSeen {
    /// What is compared of a check, with paths from this root on.
    pub(crate) fn of(explained: &Explained, ending: CaseEnd, file: String, root: &str) -> Self {
        let told = |text: &str| text.replace(&format!("{root}/"), "");
        let runs = explained.runs.iter().chain(&explained.elsewhere);
        let shown = explained.counterexample.as_ref();
        Self {
            file,
            name: explained.name.clone(),
            digest: explained.digest.clone(),
            ending,
            runs: runs.map(|run| ran(explained, run)).collect(),
            found: shown.map(|shown| FoundIn {
                rule: shown.broken.rule.id(),
                sentence: told(&shown.broken.sentence),
            }),
            report: told(&report::text(explained)),
        }
    }

    fn check(&self) -> CheckName {
        CheckName { file: self.file.clone(), name: self.name.clone() }
    }

    /// Its verdicts, each once.
    fn verdicts(&self) -> String {
        let verdicts: BTreeSet<&str> = self.runs.values().map(|run| run.verdict.as_str()).collect();
        verdicts.into_iter().collect::<Vec<_>>().join(" or ")
    }
}

fn ran(explained: &Explained, run: &Explored) -> (String, RunSeen) {
    let verdict = match (&run.verdict, explained.asked) {
        (Verdict::Unknown(bound), _) => format!("unknown ({bound})"),
        (_, Asked::SameOperations) if explained.unexpected.is_none() => "same".to_owned(),
        (_, Asked::SameOperations) => "differ".to_owned(),
        (Verdict::Holds, Asked::Rules) => "holds".to_owned(),
        (Verdict::Fails { rules, .. }, Asked::Rules) => {
            let rules: Vec<&str> = rules.iter().map(|rule| rule.id()).collect();
            format!("fails {}", rules.join(", "))
        }
    };
    let costs = report::costs(run);
    (format!("{}, NCCL {}", run.setting(), run.platform.name()), RunSeen { verdict, costs })
}

/// Which check something is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct CheckName {
    /// The spec file, as it is in the new revision.
    pub file: String,
    /// The name of the check.
    pub name: String,
}

impl std::fmt::Display for CheckName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.file, self.name)
    }
}

/// A verdict or a cost that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Moved<T> {
    /// The check that it is about.
    #[serde(flatten)]
    pub check: CheckName,
    /// What moved: `verdict`, or the name of the cost.
    pub what: String,
    /// What it was; none where this was not explored.
    pub old: Option<T>,
    /// What it is now.
    pub new: Option<T>,
    /// Rank counts, parameters and platforms.
    pub settings: Vec<String>,
}

/// A counterexample that is there in one revision only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CounterexampleSeen {
    /// The check that it is about.
    #[serde(flatten)]
    pub check: CheckName,
    /// The rule, and how it is broken.
    #[serde(flatten)]
    pub found: FoundIn,
    /// Whether the check is as it states.
    pub expected: bool,
    /// The text report of the check.
    pub report: String,
}

/// A check that is there in one revision only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OnlyHere {
    /// Which check that is.
    #[serde(flatten)]
    pub check: CheckName,
    /// Its verdict, or verdicts.
    pub verdict: String,
    /// Whether the check is as it states.
    pub expected: bool,
}

/// A spec file that has another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Renamed {
    /// Its path in the old revision.
    pub old: String,
    /// Its path in the new one.
    pub new: String,
}

/// What is different in the new revision.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Comparison {
    /// The [`COMPARISON_SCHEMA_VERSION`] of the command that wrote it.
    pub schema_version: u32,
    /// Checks that were explored in both revisions.
    pub compared: usize,
    /// Checks of specs that did not change.
    pub unchanged: usize,
    /// Checks that are not as they state, and were so before, or were not there, or broke another rule.
    pub worse: Vec<OnlyHere>,
    /// Changed checks that a bound cut in the new revision.
    pub unknown: Vec<CheckName>,
    /// Verdicts that are not what they were.
    pub verdicts: Vec<Moved<String>>,
    /// Counterexamples that are new.
    pub new_counterexamples: Vec<CounterexampleSeen>,
    /// Counterexamples that are gone.
    pub gone_counterexamples: Vec<CounterexampleSeen>,
    /// Checks that are new.
    pub added: Vec<OnlyHere>,
    /// Checks that are gone.
    pub removed: Vec<OnlyHere>,
    /// Spec files that have another name.
    pub renamed: Vec<Renamed>,
    /// Costs that are not what they were.
    pub costs: Vec<Moved<i64>>,
    /// What could not be read or evaluated in the old revision.
    pub bad_before: Vec<String>,
    /// What cannot be read or evaluated in the new revision.
    pub bad: Vec<String>,
}

impl Comparison {
    /// The exit code: as of `rankcheck check`, about what is worse.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.bad.is_empty(), self.worse.is_empty(), self.unknown.is_empty()) {
            (false, ..) => 2,
            (true, false, _) => 1,
            (true, true, false) => 3,
            (true, true, true) => 0,
        }
    }

    /// Everything in one line.
    pub(crate) fn summary(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |number: usize, one: &str, many: &str| {
            if number > 0 {
                parts.push(format!("{number} {}", if number == 1 { one } else { many }));
            }
        };
        add(self.bad.len(), "spec cannot be read", "specs cannot be read");
        add(self.worse.len(), "check is worse", "checks are worse");
        add(self.unknown.len(), "check is unknown", "checks are unknown");
        add(self.verdicts.len(), "verdict changed", "verdicts changed");
        add(self.new_counterexamples.len(), "new counterexample", "new counterexamples");
        add(self.gone_counterexamples.len(), "counterexample gone", "counterexamples gone");
        add(self.added.len(), "check added", "checks added");
        add(self.removed.len(), "check removed", "checks removed");
        add(self.renamed.len(), "file renamed", "files renamed");
        add(self.costs.len(), "cost moved", "costs moved");
        if parts.is_empty() {
            parts.push("nothing is different".to_owned());
        }
        let Self { compared, unchanged, .. } = self;
        format!("{}; {compared} compared, {unchanged} in specs that did not change", parts.join(", "))
    }

    /// The comparison for people, without a trailing newline.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for error in &self.bad_before {
            let _ = writeln!(out, "BAD BEFORE  {error}");
        }
        for error in &self.bad {
            let _ = writeln!(out, "BAD      {error}");
        }
        for OnlyHere { check, verdict, .. } in &self.worse {
            let _ = writeln!(out, "WORSE    {check}  {verdict}");
        }
        for check in &self.unknown {
            let _ = writeln!(out, "UNKNOWN  {check}");
        }
        for moved in &self.verdicts {
            let _ = writeln!(out, "verdict  {}", moved.words());
        }
        for CounterexampleSeen { check, found, .. } in &self.gone_counterexamples {
            let _ = writeln!(out, "gone     {check}  {}: {}", found.rule, found.sentence);
        }
        for OnlyHere { check, verdict, .. } in &self.added {
            let _ = writeln!(out, "added    {check}  {verdict}");
        }
        for OnlyHere { check, verdict, .. } in &self.removed {
            let _ = writeln!(out, "removed  {check}  {verdict}");
        }
        for Renamed { old, new } in &self.renamed {
            let _ = writeln!(out, "renamed  {old} -> {new}");
        }
        for moved in &self.costs {
            let _ = writeln!(out, "cost     {}", moved.words());
        }
        for CounterexampleSeen { report, .. } in &self.new_counterexamples {
            let _ = writeln!(out, "\nnew      {}", report.replace('\n', "\n         "));
        }
        out.push_str(&self.summary());
        out
    }
}

/// One side of a change, in words.
pub(crate) fn side<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "not explored".to_owned(), ToString::to_string)
}

impl<T: ToString> Moved<T> {
    fn words(&self) -> String {
        let Self { check, what, old, new, settings } = self;
        let (old, new) = (side(old.as_ref()), side(new.as_ref()));
        format!("{check}  {what}: {old} -> {new}  ({})", settings.join("; "))
    }
}

/// Checks by file and name.
type Checks<'a> = BTreeMap<(&'a str, &'a str), &'a CheckSeen>;

fn by_name(checks: &[CheckSeen]) -> Checks<'_> {
    checks.iter().map(|check| ((check.file.as_str(), check.name.as_str()), check)).collect()
}

/// Puts the checks of two revisions side by side.
pub(crate) fn compare(old: &[CheckSeen], new: &[CheckSeen]) -> Comparison {
    let mut comparison = Comparison { schema_version: COMPARISON_SCHEMA_VERSION, ..Comparison::default() };
    let (mut before, mut now) = (by_name(old), by_name(new));
    let mut pairs: Vec<(&CheckSeen, &CheckSeen)> = Vec::new();
    for key in before.keys().copied().collect::<Vec<_>>() {
        if let Some(new) = now.remove(&key)
            && let Some(old) = before.remove(&key)
        {
            pairs.push((old, new));
        }
    }
    // Those that are left are of files, or have names, that the other revision has not.
    let mut renamed = BTreeSet::new();
    for key in before.keys().copied().collect::<Vec<_>>() {
        let old = before[&key];
        let twin = now.values().find(|new| new.digest == old.digest && new.name == old.name);
        if let Some(new) = twin.copied() {
            before.remove(&key);
            now.remove(&(new.file.as_str(), new.name.as_str()));
            renamed.insert(Renamed { old: old.file.clone(), new: new.file.clone() });
            pairs.push((old, new));
        }
    }
    comparison.renamed = renamed.into_iter().collect();
    comparison.compared = pairs.len();
    for (old, new) in pairs {
        comparison.pair(old, new);
    }
    for old in before.into_values() {
        comparison.removed.push(only_here(old));
        comparison.gone_counterexamples.extend(counted(old));
    }
    for new in now.into_values() {
        comparison.added.push(only_here(new));
        comparison.new_counterexamples.extend(counted(new));
        comparison.judge(None, new);
    }
    comparison
}

fn only_here(seen: &CheckSeen) -> OnlyHere {
    OnlyHere { check: seen.check(), verdict: seen.verdicts(), expected: seen.ending == CaseEnd::Passed }
}

fn counted(seen: &CheckSeen) -> Option<CounterexampleSeen> {
    let (check, expected, report) = (seen.check(), seen.ending == CaseEnd::Passed, seen.report.clone());
    seen.found.clone().map(|found| CounterexampleSeen { check, found, expected, report })
}

impl Comparison {
    /// Notes what is worse or unknown about a check of the new revision.
    fn judge(&mut self, old: Option<&CheckSeen>, new: &CheckSeen) {
        let another = |old: &CheckSeen| match (&old.found, &new.found) {
            (Some(old), Some(new)) => !old.is(new),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        match new.ending {
            CaseEnd::Passed => {}
            CaseEnd::Unknown => self.unknown.push(new.check()),
            CaseEnd::Failed | CaseEnd::Bad => {
                if old.is_none_or(|old| old.ending != new.ending || another(old)) {
                    self.worse.push(only_here(new));
                }
            }
        }
    }

    fn pair(&mut self, old: &CheckSeen, new: &CheckSeen) {
        self.judge(Some(old), new);
        let same = old.found.as_ref().zip(new.found.as_ref()).is_some_and(|(old, new)| old.is(new));
        if !same {
            self.gone_counterexamples.extend(counted(old));
            self.new_counterexamples.extend(counted(new));
        }
        let settings: BTreeSet<&String> = old.runs.keys().chain(new.runs.keys()).collect();
        for setting in settings {
            let (before, now) = (old.runs.get(setting), new.runs.get(setting));
            let verdict = |run: Option<&RunSeen>| run.map(|run| run.verdict.clone());
            add(&mut self.verdicts, new.check(), "verdict", (verdict(before), verdict(now)), setting);
            // What was not explored on one side has no costs to compare.
            let Some((before, now)) = before.zip(now) else { continue };
            let names: BTreeSet<&String> = before.costs.keys().chain(now.costs.keys()).collect();
            for name in names {
                let sides = (before.costs.get(name).copied(), now.costs.get(name).copied());
                add(&mut self.costs, new.check(), name, sides, setting);
            }
        }
    }
}

/// Adds a change, to the one that says the same of another setting if there is one.
fn add<T: PartialEq>(
    all: &mut Vec<Moved<T>>,
    check: CheckName,
    what: &str,
    (old, new): (Option<T>, Option<T>),
    setting: &str,
) {
    if old == new {
        return;
    }
    let alike = |moved: &&mut Moved<T>| {
        moved.check == check && moved.what == what && moved.old == old && moved.new == new
    };
    match all.iter_mut().find(alike) {
        Some(moved) => moved.settings.push(setting.to_owned()),
        None => {
            all.push(Moved { check, what: what.to_owned(), old, new, settings: vec![setting.to_owned()] })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_the_same_on_other_lines() {
        assert_eq!(without_lines("x (a.star:22) on rank 1 (b.star:7)"), "x (a.star:) on rank 1 (b.star:)");
        assert_eq!(without_lines("rank 12"), "rank 12");
    }
}
