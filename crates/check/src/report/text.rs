//! The text report of one check: a headline, a sentence, the source, lanes, and a line for each further fact.

mod because;
mod contents;
mod lanes;
mod prediction;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rankcheck_model::machine::bytes;
use rankcheck_model::{Class, Rule};

use self::because::because;
pub(super) use self::because::cause;
use self::contents::data;
use self::lanes::draw;
pub(super) use self::lanes::lanes;
#[cfg(feature = "cli")]
pub(crate) use self::prediction::ends;
use self::prediction::prediction;
use crate::search::repair::Repairs;
use crate::search::{
    Asked, Assumed, BoundHit, Counterexample, Explained, Explored, IdleSide, Located, Verdict, Warning,
    taken_for_one_below,
};
use crate::spec::Assumption;

/// A warning in words.
pub(super) fn warning(warning: Warning<'_>) -> String {
    match warning {
        Warning::NothingJudged => "nothing was judged: no rank completed a collective, transfer, registration, mapping, barrier, store call, flag or mutex".to_owned(),
        Warning::AnotherOrder(told) => told.to_owned(),
    }
}

/// The last component of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The report of a check, without a trailing newline.
#[must_use]
pub fn text(explained: &Explained) -> String {
    let run = explained.run();
    let mut out = String::new();
    let title = format!("{} \"{}\"", file_name(&explained.file), explained.name);
    if explained.asked == Asked::SameOperations {
        let word = if explained.unexpected.is_none() { "SAME  " } else { "DIFFER" };
        let _ = write!(out, "{word} {title}");
    } else {
        match &run.verdict {
            Verdict::Holds => holds(&mut out, explained, &title),
            Verdict::Unknown(bound) => {
                let _ = write!(out, "UNKNOWN  {title}   {}\n  reason    {bound}", run.setting());
                searched(&mut out, run);
            }
            Verdict::Fails { primary, .. } => fails(&mut out, explained, &title, *primary),
        }
        unfinished(&mut out, explained);
    }
    if explained.asked == Asked::Rules && explained.states_nothing {
        let _ = write!(out, "\n  expect    nothing is stated");
        if let Some(expectation) = expectation(explained) {
            let _ = match explained.run().verdict {
                Verdict::Holds => write!(out, "; to keep it so: expect = {expectation}"),
                Verdict::Fails { .. } | Verdict::Unknown(_) => {
                    write!(out, "; a test that wants this failure would say: expect = {expectation}")
                }
            };
        }
    }
    if let Some(why) = &explained.unexpected {
        let Explained { file, line, .. } = explained;
        let _ = write!(out, "\n  NOT AS EXPECTED  {why}\n            stated at {file}:{line}");
    }
    out
}

/// What a check could state that states nothing, if all of its runs end alike.
fn expectation(explained: &Explained) -> Option<String> {
    let first = &explained.run().verdict;
    let alike = |run: &Explored| match (&run.verdict, first) {
        (Verdict::Holds, Verdict::Holds) => true,
        (Verdict::Fails { primary, rules, .. }, Verdict::Fails { primary: first, rules: all, .. }) => {
            primary == first && rules == all
        }
        _ => false,
    };
    if explained.inconclusive() || !explained.runs.iter().all(alike) {
        return None;
    }
    match first {
        Verdict::Holds => Some("holds()".to_owned()),
        Verdict::Fails { primary, rules, .. } => {
            let others = rules.iter().filter(|rule| *rule != primary);
            let others: Vec<String> = others.map(|rule| format!("{:?}", rule.id())).collect();
            let also = match others.is_empty() {
                true => String::new(),
                false => format!(", also = [{}]", others.join(", ")),
            };
            Some(format!("fails({:?}{also})", primary.id()))
        }
        Verdict::Unknown(_) => None,
    }
}

/// What the verdict is about, over all runs: what was executed, and what never did anything.
fn coverage(out: &mut String, explained: &Explained) {
    let Some(all) = explained.runs.iter().map(|run| run.coverage.clone()).reduce(|a, b| a.max(&b)) else {
        return;
    };
    if !all.nothing() {
        let _ = write!(out, "\n  judged    {all}");
    }
    warnings(out, explained);
    if explained.nothing_judged().next().is_some() {
        return;
    }
    // That all are idle is said by what was judged.
    let some = |run: &&Explored| (1..run.ranks as usize).contains(&run.coverage.idle_ranks.len());
    let idle = explained.runs.iter().filter(some).map(|run| {
        let ranks: Vec<String> = run.coverage.idle_ranks.iter().map(|rank| rank.0.to_string()).collect();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {} of {}", ranks.join(", "), run.setting())
    });
    let sides = all
        .idle_sides
        .iter()
        .map(|IdleSide { answer, loc }| format!("no rank does any of what is judged after {answer} ({loc})"));
    settings(out, "idle", idle.chain(sides));
}

/// Each warning once, with the runs that it is about where these are not all.
fn warnings(out: &mut String, explained: &Explained) {
    const SHOWN: usize = 4;
    let mut runs: BTreeMap<Warning<'_>, Vec<&Explored>> = BTreeMap::new();
    for (run, of) in explained.warnings() {
        runs.entry(of).or_default().push(run);
    }
    for (of, runs) in runs.iter().take(SHOWN) {
        let _ = write!(out, "\n  WARNING   {}", warning(*of));
        if runs.len() < explained.runs.len() {
            settings(out, "", runs.iter().map(|run| run.setting()));
        }
    }
    if runs.len() > SHOWN {
        let _ = write!(out, "\n            … {} more", runs.len() - SHOWN);
    }
}

/// The runs whose verdict the headline does not give although a bound has cut them, and, where the headline is about a
/// run that was cut, those that hold.
fn unfinished(out: &mut String, explained: &Explained) {
    let run = explained.run();
    if matches!(run.verdict, Verdict::Unknown(_)) {
        let holding = explained.runs.iter().filter(|run| run.verdict == Verdict::Holds);
        settings(out, "holds", holding.map(Explored::setting));
    }
    if let (Verdict::Fails { .. }, Some(bound)) = (&run.verdict, &run.bound) {
        let _ = write!(out, "\n  unknown   what else is broken: {bound}");
        decides(out, run);
    }
    let others = explained.cut().filter(|(other, _)| !std::ptr::eq(*other, run));
    let bound = |(other, bound): (&Explored, &BoundHit)| match other.platform == run.platform {
        true => format!("{} ({bound})", other.setting()),
        false => format!("{} with NCCL {} ({bound})", other.setting(), other.platform),
    };
    settings(out, "unknown", others.map(bound));
}

/// One line for each of a few settings, and how many more there are.
fn settings(out: &mut String, label: &str, settings: impl Iterator<Item = String>) {
    const SHOWN: usize = 4;
    let all: Vec<String> = settings.collect();
    for (nth, setting) in all.iter().take(SHOWN).enumerate() {
        let _ = write!(out, "\n  {:<9} {setting}", if nth == 0 { label } else { "" });
    }
    if all.len() > SHOWN {
        let _ = write!(out, "\n            … {} more", all.len() - SHOWN);
    }
}

/// Rank counts and parameters of all runs, in words.
fn span(explained: &Explained) -> String {
    let counts: Vec<String> = explained.ranks.iter().map(u32::to_string).collect();
    let mut text = format!("{} {}", counts.join(", "), if counts == ["1"] { "rank" } else { "ranks" });
    for (name, values) in &explained.params {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        if values.len() > 1 {
            let _ = write!(text, ", {name} = {}", values.join(" | "));
        }
    }
    text
}

/// The rules that are broken and waived, each with the reason that the check gives.
fn waived(out: &mut String, run: &Explored) {
    for (nth, (rule, reason)) in run.waived.iter().enumerate() {
        let label = if nth == 0 { "waived" } else { "" };
        let _ = write!(out, "\n  {label:<9} {rule}: {reason}");
    }
}

fn holds(out: &mut String, explained: &Explained, title: &str) {
    let _ = write!(out, "HOLDS {title}   {}", span(explained));
    for Assumed { assumption, without } in &explained.assumed {
        let what = match assumption {
            Assumption::Named(text) => text.clone(),
            Assumption::Coresident(kernels) => {
                format!("{kernels} kernels are co-resident, and more if more wait for one another")
            }
            Assumption::JobEndsWithARank => "the launcher ends the job when a rank dies".to_owned(),
        };
        let then = match without {
            Verdict::Holds => "dropping it: still holds".to_owned(),
            Verdict::Fails { primary, .. } => format!("dropping it: FAILS {primary}"),
            Verdict::Unknown(bound) => format!("dropping it: UNKNOWN, {bound}"),
        };
        let _ = write!(out, "\n  rests on  {what} ({then})");
    }
    let run = explained.runs.last().unwrap_or_else(|| explained.run());
    let waiving = explained.runs.iter().max_by_key(|run| run.waived.len()).unwrap_or(run);
    waived(out, waiving);
    coverage(out, explained);
    searched(out, run);
    let costs = &run.costs;
    let mut parts = Vec::new();
    if costs.communicators > 0 {
        parts.push(format!("communicators {}", costs.communicators));
    }
    if costs.registrations_warm_up + costs.registrations > 0 {
        // By the names that an expectation has for them.
        let mut when = format!("registrations_warm_up {}", costs.registrations_warm_up);
        if costs.steady {
            let _ = write!(when, ", registrations {}", costs.registrations);
        }
        parts.push(when);
    }
    if costs.reserved_bytes_max > 0 {
        parts.push(format!("reserved {}", bytes(costs.reserved_bytes_max)));
    }
    let left = &costs.left;
    let counts = [
        ("communicators_left", left.communicators),
        ("registrations_left", left.registrations),
        ("mappings_left", left.mappings),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    parts.extend(counts.map(|(name, count)| format!("{name} {count}")));
    if left.reserved_bytes > 0 {
        parts.push(format!("left {}", bytes(left.reserved_bytes)));
    }
    parts.extend(run.measured.iter().map(|(name, value)| format!("{name} {value}")));
    if !parts.is_empty() {
        let _ = write!(out, "\n  costs     {}", parts.join("; "));
    }
}

/// How much was explored, and what makes it so many states, where these are many.
fn searched(out: &mut String, run: &Explored) {
    let _ = write!(out, "\n  explored  {}", effort(run));
    decides(out, run);
}

fn decides(out: &mut String, run: &Explored) {
    if let Some(decisions) = &run.decisions {
        let _ = write!(out, "\n  decides   {}", decisions.words());
    }
}

fn effort(run: &Explored) -> String {
    let plural = |n: u64, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
    let mut text = format!("{}, {}", plural(run.states, "state"), plural(run.executions, "execution"));
    // Of fewer it is less than anybody fears of his memory chips.
    if run.states >= 1_000_000 {
        let below = taken_for_one_below(run.states);
        let _ = write!(
            text,
            "; the chance that two different states were taken for one is below 1 in 10^{below}"
        );
    }
    if !run.contended.is_empty() {
        let names: Vec<&str> = run.contended.iter().map(String::as_str).collect();
        let _ = write!(text, "; contended: {}", names.join(", "));
    }
    text
}

fn fails(out: &mut String, explained: &Explained, title: &str, primary: Rule) {
    let run = explained.run();
    let Some(shown) = &explained.counterexample else {
        let _ = write!(out, "FAILS {primary}  {title}   {}", run.setting());
        return;
    };
    let rule = shown.broken.rule;
    let class = if run.is_latent() {
        "latent (it finishes all the same)".to_owned()
    } else {
        run.at_worst(run.verdict.class().map_or("", Class::name))
    };
    let lanes = lanes(shown, run.ranks);
    let drawn = draw(shown, &lanes);
    let operations = shown.run.operations.iter().filter(|operation| !operation.asks).count();
    let _ = write!(
        out,
        "FAILS {rule}  {title}   {}, {class}; {} of {operations} operations shown\n{}",
        run.setting(),
        drawn.shown,
        format_args!("{}.", shown.broken.sentence)
    );
    source::source(out, shown);
    let widest = drawn.lines.iter().map(|(ranks, _)| ranks.chars().count()).max().unwrap_or(0);
    for (ranks, calls) in &drawn.lines {
        let _ = write!(out, "\n  {ranks:<width$} {calls}", width = widest.max(9));
    }
    after_lanes(out, explained, shown);
}

/// The rows below the lanes: contents, cause, rule, repairs, predictions.
fn after_lanes(out: &mut String, explained: &Explained, shown: &Counterexample) {
    let (run, rule) = (explained.run(), shown.broken.rule);
    data(out, &shown.run.outcome, &shown.broken.sentence);
    because(out, shown);
    if shown.untried > 0 {
        let what = if shown.untried == 1 { "operation or cause was" } else { "operations and causes were" };
        let _ = write!(
            out,
            "\n  untried   {} {what} not tried to the end: it would take too long",
            shown.untried
        );
    }
    let _ = write!(out, "\n  rule      {rule}: {}", rule.title());
    let also: Vec<String> = run
        .broken
        .keys()
        .filter(|other| **other != rule)
        .map(|other| format!("{other} (--rule {other})"))
        .collect();
    if !also.is_empty() {
        let _ = write!(out, "\n  also      {}", also.join(", "));
    }
    waived(out, run);
    if let Some(repairs) = &shown.repairs {
        repaired(out, repairs);
    }
    if let Some(passes) = passes(explained) {
        let _ = write!(out, "\n  passes    {passes}");
    }
    prediction(out, explained);
}

/// What stands below the lanes of a failure, row by row, each with its label; nothing for what has no run to show.
#[cfg(feature = "cli")]
pub(crate) fn facts(explained: &Explained) -> Vec<crate::page::Fact> {
    let mut out = String::new();
    match &explained.counterexample {
        Some(shown) => after_lanes(&mut out, explained, shown),
        None => {
            let report = text(explained);
            out.extend(report.split_once('\n').map(|(_, rows)| format!("\n{rows}")));
        }
    }
    crate::page::labelled(&out)
}

fn words<'a>(shown: &'a Counterexample, at: &Located) -> &'a str {
    shown.run.operation(at).map_or("", |operation| &operation.call)
}

/// Changes with which the program holds, each explored.
fn repaired(out: &mut String, repairs: &Repairs) {
    for (nth, repair) in repairs.found.iter().enumerate() {
        let counts = |of: &[u32]| of.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let label = if nth == 0 { "repairs" } else { "" };
        let _ = write!(
            out,
            "\n  {label:<9} {}: holds at {} ranks",
            repair.change.words(),
            counts(&repair.holds_at)
        );
        if !repair.unknown_at.is_empty() {
            let _ = write!(out, ", not known at {}", counts(&repair.unknown_at));
        }
        if !repair.fails_at.is_empty() {
            let _ = write!(out, ", and fails at {}, which the check does not name", counts(&repair.fails_at));
        }
    }
    if repairs.declares_overlap {
        out.push_str(
            "\n  repairs   not looked for: the file declares overlaps, which name launches by their numbers",
        );
    } else if repairs.found.is_empty() && repairs.gave_up_after.is_none() {
        match repairs.tried {
            0 => out.push_str("\n  repairs   there was no change to try"),
            1 => out.push_str("\n  repairs   the one change that was tried is none"),
            tried => {
                let _ = write!(out, "\n  repairs   none of {tried} changes that were tried");
            }
        }
    }
    if let Some(time) = repairs.gave_up_after {
        let (tried, seconds) = (repairs.tried, time.as_secs_f64());
        let label = if repairs.found.is_empty() { "repairs" } else { "" };
        let _ = write!(
            out,
            "\n  {label:<9} the search ended after {seconds:.1} s and {tried} change{} (--repairs)",
            if tried == 1 { "" } else { "s" }
        );
    }
}

fn passes(explained: &Explained) -> Option<String> {
    let holding = explained.runs.iter().find(|run| run.verdict == Verdict::Holds)?;
    Some(format!("{} (checked)", holding.setting()))
}

/// The closing line over all checks.
#[must_use]
pub fn summary(passed: usize, failed: usize, unknown: usize, expected_failures: usize) -> String {
    let mut text = format!("{passed} passed, {failed} failed");
    if unknown > 0 {
        let _ = write!(text, ", {unknown} unknown");
    }
    match expected_failures {
        0 => {}
        1 => text.push_str(" (1 of the passes is an expected failure)"),
        many => {
            let _ = write!(text, " ({many} of the passes are expected failures)");
        }
    }
    text
}
