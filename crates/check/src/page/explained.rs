//! The diagram of a check: a function of its [`Explained`].
//!
//! Not here: what devices did with it (`devices`), which stands in files of its own.

use rankcheck_model::Rule;

use super::diagram::{AboutFinding, Diagram, Fact, RuleText, Stated};
use super::replayed::{Marks, RunPart};
use super::{layout, sources};
use crate::report;
use crate::rules;
use crate::search::{Asked, Cause, Counterexample, Explained, Located, Verdict};

/// Returns the diagram of a check.
#[must_use]
pub fn diagram(explained: &Explained) -> Diagram {
    let shown = explained.counterexample.as_ref();
    let part = shown.map_or_else(RunPart::default, |shown| RunPart::of(&shown.run, &marks(shown)));
    let sources = shown.map_or_else(Vec::new, |shown| sources::of(&shown.sources, &part.places.all));
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
pub fn about(explained: &Explained) -> AboutFinding {
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
    AboutFinding {
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
