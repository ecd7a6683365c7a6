//! The two semantics of a program side by side: what one of them finds and the other does not.
//!
//! Where ranks are interchangeable, what the reduced exploration finds stands for what it is under all numbers of the
//! ranks, and is compared with the oracle as such.
//! Not here: which programs are compared.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rankcheck::search::Bounds;
use rankcheck::search::explore::{Exploration, explore};
use rankcheck::search::naive;
use rankcheck_model::machine::ConcurrentCalls;
use rankcheck_model::{Class, Config, Machine, Outcome, Rank, Rule, Source};

use crate::script::Trial;

/// What both semantics show.
#[derive(Debug)]
pub struct Both {
    /// What is explored when a spec is checked.
    pub reduced: Exploration,
    /// The same, with every order of calls that break COMM-4: what shows all that the oracle shows.
    pub exact: Exploration,
    /// All interleavings of single steps: the oracle.
    pub naive: Exploration,
    /// As `exact`, where histories merge.
    pub merged: Exploration,
}

/// The result of a comparison.
#[derive(Debug)]
pub enum Compared {
    /// Both were explored to the end, and show the same.
    Agree(Box<Both>),
    /// The oracle hit a bound, so there is nothing to compare with.
    TooLarge,
    /// They show different things, or one of them panicked.
    Differ(Difference),
}

/// A difference between the two semantics.
#[derive(Debug)]
pub struct Difference {
    /// What of the two explorations differs.
    pub in_what: InWhat,
    /// The same in words.
    pub text: String,
    /// What is known of the program's verdict, for a file that keeps it.
    pub verdict: String,
}

/// What two semantics can differ in. A program that is made smaller must go on differing in the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InWhat {
    /// The sets of outcomes.
    Outcomes,
    /// What is found where histories merge, and where they are told apart.
    Merged,
    /// The reduced exploration hit a bound that the oracle did not hit.
    Bound,
    /// One of them does not come to an end, because the model is wrong.
    Panic,
}

/// Bounds within which the oracle explores most random programs in a fraction of a second. Histories are told apart.
#[must_use]
pub fn bounds() -> Bounds {
    Bounds { states: 30_000, merge_from: u64::MAX, ..Bounds::default() }
}

/// An outcome without the names of what breaks its rules, but for memory. By which of its calls a deadlock is named depends
/// on how large their pasts are, which is history: where histories merge, the one that came first names it.
#[must_use]
pub fn unnamed(outcome: Outcome) -> Outcome {
    let about_memory = |rule: Rule| rule.id().starts_with("MEM-");
    let name = |rule: Rule, name: &Arc<str>| if about_memory(rule) { Arc::clone(name) } else { "".into() };
    let findings = outcome.findings.iter().map(|(rule, of)| (*rule, name(*rule, of))).collect();
    Outcome { findings, ..outcome }
}

/// Compares the two semantics of a program.
#[must_use]
pub fn compare(trial: &Trial) -> Compared {
    let compared = catch_unwind(AssertUnwindSafe(|| explored(trial)));
    compared.unwrap_or_else(|panic| {
        let words =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let text = format!("a panic: {}", words.unwrap_or("without words"));
        let verdict = "breaks: ?\nreduced: ?\nnaive: ?\n".to_owned();
        Compared::Differ(Difference { in_what: InWhat::Panic, text, verdict })
    })
}

fn explored(trial: &Trial) -> Compared {
    let source: Arc<dyn Source> = trial.script.clone();
    let naive = naive::explore(&source, trial.config.clone(), &bounds()).expect("a script evaluates");
    if naive.bound.is_some() {
        return Compared::TooLarge;
    }
    let reduced = explore(&source, trial.config.clone(), &bounds()).expect("a script evaluates");
    let config = Config { concurrent_calls: ConcurrentCalls::InEveryOrder, ..trial.config.clone() };
    let exact = explore(&source, config.clone(), &bounds()).expect("a script evaluates");
    let merge = Bounds { merge_from: 0, ..bounds() };
    let merged = explore(&source, config, &merge).expect("a script evaluates");
    let both = Box::new(Both { reduced, exact, naive, merged });
    let differ = |in_what, text| {
        let verdict = verdict(&both);
        Compared::Differ(Difference { in_what, text, verdict })
    };
    if let Some(bound) = both.exact.bound.as_ref().or(both.reduced.bound.as_ref()) {
        return differ(InWhat::Bound, format!("{bound} by the reduced exploration, and not by the oracle"));
    }
    let interchangeable = trial.script.interchangeable;
    let text = if interchangeable { unfolded_difference(&source, &both) } else { difference(&both) };
    let shown = |exploration: &Exploration| {
        if interchangeable {
            unfolded(&source, exploration)
        } else {
            exploration.outcomes.keys().cloned().collect()
        }
    };
    let text = text.or_else(|| difference_in_one_order(&shown(&both.reduced), &shown(&both.exact)));
    if let Some(text) = text {
        return differ(InWhat::Outcomes, text);
    }
    let shown = |exploration: &Exploration| -> BTreeSet<Outcome> {
        shown(exploration).into_iter().map(unnamed).collect()
    };
    let (merged, exact) = (&both.merged, &both.exact);
    if (shown(merged), found(merged)) == (shown(exact), found(exact)) {
        return Compared::Agree(both);
    }
    let (shown, told_apart) = (shown(merged), shown(exact));
    let lost: Vec<_> = told_apart.difference(&shown).collect();
    let invented: Vec<_> = shown.difference(&told_apart).collect();
    let text = format!(
        "where histories merge, lost {lost:#?}\ninvented {invented:#?}\n{:#?}\ninstead of {:#?}",
        found(merged),
        found(exact),
    );
    differ(InWhat::Merged, text)
}

/// What an exploration finds beside outcomes.
fn found(exploration: &Exploration) -> impl PartialEq + std::fmt::Debug + use<> {
    let Exploration { broken, bound, reached, costs, executed, measured, idle_ranks, .. } = exploration;
    // Which rank chooses first depends on how far each has come, which is history: so do the lengths of witnesses.
    let broken: Vec<Rule> = broken.keys().copied().collect();
    let found = (bound.clone(), reached.clone(), *costs, *executed, measured.clone(), idle_ranks.clone());
    (broken, found)
}

/// The outcomes of an exploration.
#[must_use]
pub fn outcomes(exploration: &Exploration) -> BTreeSet<&Outcome> {
    exploration.outcomes.keys().collect()
}

/// What is pinned of a program beside it: the rules that some run breaks, and how much each semantics explored.
#[must_use]
pub fn verdict(both: &Both) -> String {
    let broken: Vec<&str> = both.naive.broken.keys().map(|rule| rule.id()).collect();
    let broken = if broken.is_empty() { "nothing".to_owned() } else { broken.join(", ") };
    let size = |of: &Exploration| format!("outcomes {}, states {}", of.outcomes.len(), of.states);
    format!("breaks: {broken}\nreduced: {}\nnaive: {}\n", size(&both.exact), size(&both.naive))
}

fn difference(both: &Both) -> Option<String> {
    let (r, n) = (outcomes(&both.exact), outcomes(&both.naive));
    (r != n).then(|| {
        let lost: Vec<_> = n.difference(&r).collect();
        let invented: Vec<_> = r.difference(&n).collect();
        format!(
            "lost {} of {}: {lost:#?}\ninvented {}: {invented:#?}\ncontended {:?}",
            lost.len(),
            n.len(),
            invented.len(),
            both.exact.contended
        )
    })
}

/// What one order of calls that break COMM-4 shows, against every order: the same where they are not broken, nothing
/// that is not so, and COMM-4 itself. Where one of the calls leads to what nobody specifies, the other may never come in
/// another order, and so not break it.
fn difference_in_one_order(one: &BTreeSet<Outcome>, every: &BTreeSet<Outcome>) -> Option<String> {
    let breaks = |outcome: &&Outcome| outcome.findings.iter().any(|(rule, _)| *rule == Rule::Comm4);
    let invented: Vec<_> = one.difference(every).collect();
    let cut_short =
        |outcome: &&Outcome| outcome.class == Class::Undefined && every.iter().any(|of| breaks(&of));
    let lost: Vec<_> =
        every.difference(one).filter(|outcome| !breaks(outcome) && !cut_short(outcome)).collect();
    let found = one.iter().any(|outcome| breaks(&outcome)) == every.iter().any(|outcome| breaks(&outcome));
    (!invented.is_empty() || !lost.is_empty() || !found).then(|| {
        format!(
            "in one order of concurrent calls: lost {lost:#?}\ninvented {invented:#?}\nCOMM-4 found: {found}"
        )
    })
}

/// An outcome without the ranks in the names of what breaks its rules. A deadlock is named by the call with the smallest past,
/// and of several ranks on which it is as small by the lowest number. So a run in which two tie and one in which one is
/// alone have the same outcome, and under other numbers different ones: what one of them shows is not all.
fn unnumbered(outcome: &Outcome) -> (Outcome, Vec<(Rule, String)>) {
    let without_rank = |name: &str| {
        let rest = name.strip_prefix('r').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.filter(|rest| rest.starts_with('.')).unwrap_or(name).to_owned()
    };
    let names = outcome.findings.iter().map(|(rule, name)| (*rule, without_rank(name))).collect();
    (unnamed(outcome.clone()), names)
}

fn unfolded_difference(source: &Arc<dyn Source>, both: &Both) -> Option<String> {
    let unfolded = unfolded(source, &both.exact);
    let (r, n): (BTreeSet<_>, _) = (unfolded.iter().collect(), outcomes(&both.naive));
    let known: BTreeSet<_> = unfolded.iter().map(unnumbered).collect();
    let strange: Vec<_> = outcomes(&both.exact).difference(&r).copied().collect();
    let lost: Vec<_> = n.difference(&r).filter(|outcome| !known.contains(&unnumbered(outcome))).collect();
    let invented: Vec<_> = r.difference(&n).collect();
    (!lost.is_empty() || !invented.is_empty() || !strange.is_empty()).then(|| {
        format!(
            "lost {} of {}: {lost:#?}\ninvented {}: {invented:#?}\nnot of its own witness: {strange:#?}\ncontended {:?}",
            lost.len(),
            n.len(),
            invented.len(),
            both.exact.contended
        )
    })
}

/// All ways to renumber so many ranks: `to[old] = new`.
fn renumberings(ranks: u32) -> Vec<Vec<Rank>> {
    let mut all = vec![Vec::new()];
    for rank in (0..ranks).map(Rank) {
        let longer = |shorter: &Vec<Rank>| {
            let insert = |at: usize| {
                let mut longer = shorter.clone();
                longer.insert(at, rank);
                longer
            };
            (0..=shorter.len()).map(insert).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Everything that an exploration of interchangeable ranks stands for: its witnesses' ends under all numbers.
fn unfolded(source: &Arc<dyn Source>, exploration: &Exploration) -> BTreeSet<Outcome> {
    let machine = Machine::new(Arc::clone(source), exploration.config.clone());
    let mut outcomes = BTreeSet::new();
    for choices in exploration.outcomes.values() {
        let mut state = machine.init();
        machine.advance(&mut state);
        for choice in &**choices {
            assert!(machine.possible(&state, choice), "a witness fits its program");
            machine.take(&mut state, choice);
            machine.advance(&mut state);
        }
        for to in renumberings(exploration.config.ranks) {
            let mut state = state.clone();
            machine.renumber(&mut state, &to);
            machine.finish(&mut state);
            outcomes.insert(machine.outcome(&state));
        }
    }
    outcomes
}
