//! The diagram of a check: a function of its [`Explained`].
//!
//! Not here: what devices did with it (`devices`), which stands in files of its own.

use rankcheck_model::machine::Kind;
use rankcheck_model::{Class, Loc, Rule};

use super::diagram::{AboutFinding, Diagram, Fact, LineSign, MarkedLine, RuleText, Stated};
use super::paths::{PathPoint, PathSeed, RepairsTried};
use super::replayed::{Marks, RunPart, place};
use super::{headline, layout, paths, sources};
use crate::report;
use crate::rules;
use crate::search::{Asked, Cause, Counterexample, Explained, Located, Replayed, Verdict};

/// Returns the diagram of a check.
#[must_use]
pub fn diagram(explained: &Explained) -> Diagram {
    let shown = explained.counterexample.as_ref();
    let mut part = shown.map_or_else(RunPart::default, |shown| RunPart::of(&shown.run, &marks(shown)));
    let lines = shown.map_or_else(Vec::new, |shown| lines(shown, &mut part));
    let sources = shown.map_or_else(Vec::new, |shown| sources::of(&shown.sources, &part.places.all));
    let mut diagram = part.diagram(about(explained), report::text(explained));
    diagram.lines = lines;
    diagram.sources = sources;
    if let Some(shown) = shown {
        let diverge = seeds(shown).iter().find_map(|seeds| paths::mark(&mut diagram, seeds));
        let tried = match &shown.repairs {
            None => Some(RepairsTried::NotAsked),
            Some(repairs) if repairs.found.is_empty() => Some(RepairsTried::Changes),
            Some(_) => None,
        };
        let look_at = tried.map(|tried| paths::look_at(&diagram, tried));
        diagram.about.add_paths(diverge, look_at);
    }
    layout::finish(&mut diagram);
    diagram
}

/// The lines of what decided the finding and of each repair.
fn lines(shown: &Counterexample, part: &mut RunPart) -> Vec<MarkedLine> {
    let cause =
        cause(shown).into_iter().map(|at| (at.loc.clone(), LineSign::Cause, "this decided it".to_owned()));
    let repairs = shown.repairs.iter().flat_map(|repairs| repairs.found.iter().zip(1..));
    let repairs = repairs.flat_map(|(repair, nth)| {
        repair
            .change
            .locs()
            .into_iter()
            .map(move |loc| (loc.clone(), LineSign::Repair, format!("repair {nth}")))
    });
    let all: Vec<(Loc, LineSign, String)> = cause.chain(repairs).collect();
    let mut lines: Vec<MarkedLine> = Vec::new();
    for (loc, sign, words) in all {
        let line = MarkedLine { place: part.places.number(place(&loc)), sign, words };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A rank, and where the finding or what decided it is on its way.
fn seed(run: &Replayed, at: &Located) -> PathSeed {
    let step = run.steps.iter().position(|step| step.at.is(at)).map(PathPoint::Step);
    let wait = || run.blocked.iter().position(|blocked| blocked.at.is(at)).map(PathPoint::Wait);
    PathSeed { rank: at.op.rank.0, at: step.or_else(wait) }
}

/// Where to look for the lines in which ranks diverge: at what decided the finding, and else before it.
fn seeds(shown: &Counterexample) -> [Vec<PathSeed>; 2] {
    let mut decided: Vec<PathSeed> = match &shown.cause {
        // Which operation goes first, the lines of no rank say.
        None | Some(Cause::Order { .. }) => Vec::new(),
        Some(_) => cause(shown).into_iter().map(|at| seed(&shown.run, at)).collect(),
    };
    if let Some(Cause::Extra { peer, .. }) = &shown.cause {
        decided.push(PathSeed { rank: peer.0, at: None });
    }
    [decided, shown.broken.ops.iter().map(|at| seed(&shown.run, at)).collect()]
}

/// The operations that decided the finding.
fn cause(shown: &Counterexample) -> Vec<&Located> {
    let at = |decision: &usize| &shown.run.decisions[*decision].at;
    match &shown.cause {
        None => Vec::new(),
        Some(Cause::Value { decision, peer, .. }) => {
            std::iter::once(at(decision)).chain(peer.as_ref().map(|(peer, _)| at(peer))).collect()
        }
        Some(Cause::Disagreement { decision, peer }) => vec![at(&decision.0), at(&peer.0)],
        Some(Cause::Answer { at, peer }) => vec![&at.0, &peer.0],
        Some(Cause::Order { decision, .. }) => vec![at(decision)],
        Some(Cause::Extra { at, .. }) => vec![at],
        Some(Cause::Difference { at, peer }) => vec![at, peer],
    }
}

fn marks(shown: &Counterexample) -> Marks<'_> {
    let (finding, essential) = (&shown.broken.ops, &shown.essential);
    Marks { finding, essential, cause: cause(shown), quiet: &[Kind::Bookkeeping] }
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
        Some(_) if run.is_latent() => "latent: it finishes all the same".to_owned(),
        Some(class) => run.at_worst(class.name()),
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
    number_repairs(&mut facts, shown);
    AboutFinding {
        origin: "spec",
        verdict,
        rule: rule.map(rule_text),
        headline: headline(explained, rule),
        title: explained.name.clone(),
        place: format!("{}:{}", explained.file, explained.line),
        setting: run.setting(),
        outcome,
        stated: stated(explained),
        sentence,
        facts,
    }
}

/// What goes wrong, in a sentence.
fn headline(explained: &Explained, rule: Option<Rule>) -> String {
    let run = explained.run();
    match (explained.asked, &run.verdict, rule) {
        (Asked::SameOperations, ..) if explained.unexpected.is_some() => {
            "Two programs that should do the same do different things.".to_owned()
        }
        (Asked::SameOperations, ..) => "Two programs do the same.".to_owned(),
        (_, Verdict::Fails { .. }, Some(rule)) => {
            let follows = headline::follows(run.verdict.class().unwrap_or(Class::Undefined));
            headline::headline(rule, &run.at_worst(follows))
        }
        (_, Verdict::Fails { .. }, None) => "A rule is broken.".to_owned(),
        (_, Verdict::Unknown(_), _) => {
            "Whether this program is right is not known: a bound was hit first.".to_owned()
        }
        (_, Verdict::Holds, _) if explained.unexpected.is_some() => {
            "The program keeps every rule, and the check states otherwise.".to_owned()
        }
        (_, Verdict::Holds, _) => "The program keeps every rule.".to_owned(),
    }
}

/// Gives repairs the numbers by which marked lines name them.
fn number_repairs(facts: &mut [Fact], shown: Option<&Counterexample>) {
    let found = shown.and_then(|shown| shown.repairs.as_ref()).map_or(0, |repairs| repairs.found.len());
    for fact in facts.iter_mut().filter(|fact| fact.label == "repairs") {
        for (line, nth) in fact.lines.iter_mut().take(found).zip(1..) {
            *line = format!("{nth}. {line}");
        }
    }
}
