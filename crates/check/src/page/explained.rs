//! The diagram of a check: a function of its [`Explained`].
//!
//! Not here: what devices did with it (`devices`), which stands in files of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::Rule;

use super::diagram::{About, Diagram, Fact, Place, RuleText, SourceText, Stated};
use super::layout;
use super::replayed::{Marks, RunPart};
use crate::report;
use crate::rules;
use crate::search::{Asked, Cause, Counterexample, Explained, Located, Verdict};

/// Lines around one that is named, where a file is too long to be shown whole.
const AROUND: u32 = 12;
/// Lines of a file that is shown whole.
const WHOLE: usize = 400;

/// Returns the diagram of a check.
#[must_use]
pub fn diagram(explained: &Explained) -> Diagram {
    let shown = explained.counterexample.as_ref();
    let part = shown.map_or_else(RunPart::default, |shown| RunPart::of(&shown.run, &marks(shown)));
    let places: Vec<&Place> = part.places.all.iter().collect();
    let sources = shown.map_or_else(Vec::new, |shown| sources(&shown.sources, &places));
    let RunPart { texts, places, lanes, steps, meetings, order, blocked, cycle, memory } = part;
    let mut diagram = Diagram {
        about: about(explained),
        texts: texts.all,
        places: places.all,
        lanes,
        folds: Vec::new(),
        steps,
        meetings,
        order,
        blocked,
        cycle,
        memory,
        sources,
        devices: Vec::new(),
        left_out: Vec::new(),
        report: report::text(explained),
    };
    layout::finish(&mut diagram);
    diagram
}

fn marks(shown: &Counterexample) -> Marks<'_> {
    let at = |decision: &usize| &shown.run.decisions[*decision].at;
    let cause: Vec<&Located> = match &shown.cause {
        None => Vec::new(),
        Some(Cause::Value { decision, peer, .. }) => {
            std::iter::once(at(decision)).chain(peer.as_ref().map(|(peer, _)| at(peer))).collect()
        }
        Some(Cause::Order { decision, .. }) => vec![at(decision)],
        Some(Cause::Extra { at, .. }) => vec![at],
        Some(Cause::Difference { at, peer }) => vec![at, peer],
    };
    Marks { finding: &shown.broken.ops, essential: &shown.essential, cause }
}

/// The rule with its text.
pub(super) fn rule_text(rule: Rule) -> RuleText {
    RuleText { id: rule.id(), title: rule.title(), text: rules::text_of(rule.id()).unwrap_or_default() }
}

/// Whether a check states what it shows.
#[must_use]
pub fn stated(explained: &Explained) -> Stated {
    let fails = explained.runs.iter().any(|run| matches!(run.verdict, Verdict::Fails { .. }));
    match (explained.unexpected.is_some() || explained.states_nothing && fails, explained.inconclusive()) {
        (true, _) => Stated::No,
        (false, true) => Stated::Unknown,
        (false, false) if fails => Stated::Failure,
        (false, false) => Stated::Holds,
    }
}

/// Returns what the page of a check is about.
#[must_use]
pub fn about(explained: &Explained) -> About {
    let run = explained.run();
    let shown = explained.counterexample.as_ref();
    let verdict = match (&explained.asked, &run.verdict) {
        (Asked::SameOperations, _) if explained.unexpected.is_some() => "DIFFER",
        (Asked::SameOperations, _) => "SAME",
        (Asked::Rules, Verdict::Holds) => "HOLDS",
        (Asked::Rules, Verdict::Fails { .. }) => "FAILS",
        (Asked::Rules, Verdict::Unknown(_)) => "UNKNOWN",
    };
    let rule = shown.map(|shown| shown.broken.rule).or_else(|| run.verdict.primary());
    let outcome = match run.verdict.class() {
        Some(_) if run.verdict.latent() => "latent: this NCCL happens to get through".to_owned(),
        Some(class) => class.name().to_owned(),
        None => String::new(),
    };
    let sentence = match (&run.verdict, shown, &explained.unexpected) {
        (_, Some(shown), _) => format!("{}.", shown.broken.sentence),
        (Verdict::Unknown(bound), ..) => format!("Not known: {bound}."),
        (_, None, Some(why)) => why.clone(),
        (_, None, None) => String::new(),
    };
    let mut facts = Vec::new();
    if let Some(why) = explained.unexpected.as_ref().filter(|_| shown.is_some()) {
        facts.push(Fact { label: "not as expected".to_owned(), lines: vec![why.clone()] });
    }
    facts.extend(report::facts(explained));
    About {
        origin: "spec",
        verdict,
        rule: rule.map(rule_text),
        title: explained.name.clone(),
        place: format!("{}:{}", explained.file, explained.line),
        setting: run.setting(),
        outcome,
        stated: stated(explained),
        sentence,
        facts,
    }
}

/// The lines around the places that a run comes by.
fn sources(texts: &BTreeMap<Arc<str>, Arc<str>>, places: &[&Place]) -> Vec<SourceText> {
    let of = |(file, text): (&Arc<str>, &Arc<str>)| {
        let lines: Vec<&str> = text.lines().collect();
        let total = u32::try_from(lines.len()).ok()?;
        let mut wanted: BTreeSet<u32> = BTreeSet::new();
        for place in places {
            let called = place.called_at.iter().map(|(file, line)| (file, *line));
            for (named, line) in std::iter::once((&place.file, place.line)).chain(called) {
                if **named == **file && (1..=total).contains(&line) {
                    wanted.extend(line.saturating_sub(AROUND).max(1)..=(line + AROUND).min(total));
                }
            }
        }
        if wanted.is_empty() {
            return None;
        }
        if lines.len() <= WHOLE {
            wanted = (1..=total).collect();
        }
        let mut parts: Vec<(u32, Vec<String>)> = Vec::new();
        for line in wanted {
            let text = lines[line as usize - 1].to_owned();
            match parts.last_mut() {
                Some((first, part)) if *first as usize + part.len() == line as usize => part.push(text),
                _ => parts.push((line, vec![text])),
            }
        }
        Some(SourceText { file: file.to_string(), parts })
    };
    texts.iter().filter_map(of).collect()
}
