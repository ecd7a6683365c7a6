//! What reports say of a finding's reasons is what trials show: each operation that is marked takes the finding with
//! it, each that does so is marked, and a cause that falls otherwise makes the finding go away.
//!
//! Not here: the layout of reports, which the goldens pin (`specs.rs`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use rankcheck::search::explain::counterexample;
use rankcheck::search::explore::{Exploration, explore};
use rankcheck::search::trial::{TrialResult, Trials};
use rankcheck::search::verdict::{config, freer};
use rankcheck::search::{Bounds, Cause, Counterexample, Decided, Detail, Located, Operation, Verdict};
use rankcheck_model::edit::OpPosition;
use rankcheck_model::machine::Kind;
use rankcheck_model::{Choice, Op, Rank, Rule, Source};
use rankcheck_tests::agreement::bounds;
use rankcheck_tests::random::Family;
use rankcheck_tests::repository::{enter, files_under};

use crate::laws::{programs, runner};
use crate::specs::verified;

/// What the reports of many findings say, counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    findings: usize,
    /// Reports in which no operation is marked.
    unmarked: usize,
    /// Reports that name no cause.
    without_cause: usize,
    /// Reports in which something was not tried.
    untried: usize,
}

/// A finding and how it is tried.
struct Finding<'a> {
    source: &'a Arc<dyn Source>,
    exploration: &'a Exploration,
    shown: &'a Counterexample,
}

impl Finding<'_> {
    fn trials(&self) -> Trials<'_> {
        let broken = &self.shown.broken;
        let choices = &self.exploration.broken[&broken.rule].choices;
        let of = (broken.rule, broken.about.as_str(), broken.by);
        let trials = Trials::new(self.source, &self.exploration.config, choices, of, u64::MAX);
        trials.expect("it was evaluated before").expect("the run shows the finding")
    }

    /// Operations of the program: no questions, and no locks that the pool takes for its hooks.
    fn operations(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.shown.run.operations.iter();
        operations.filter(|operation| !operation.asks && !operation.text.contains("allocator's lock"))
    }

    /// Each operation is left out once, whoever does the same.
    fn marks(&self, wrong: &mut Vec<String>) {
        let mut trials = self.trials();
        let (mut gone, mut makers): (Vec<(OpPosition, &Located)>, BTreeSet<OpPosition>) = Default::default();
        for operation in self.operations() {
            let Some(at) = trials.position(&operation.at.op) else { continue };
            if trials.without(at).expect("it evaluates") == TrialResult::Gone {
                makers.extend(trials.makers(at));
                gone.push((at, &operation.at));
            }
        }
        let wanted: Vec<&Located> =
            gone.iter().filter(|(at, _)| !makers.contains(at)).map(|(_, at)| *at).collect();
        for at in &wanted {
            if !self.shown.essential.iter().any(|marked| marked.is(at)) {
                wrong.push(format!("{:?} takes the finding with it and is not marked", at.op));
            }
        }
        for marked in &self.shown.essential {
            if !wanted.iter().any(|at| at.is(marked)) {
                wrong.push(format!("{:?} is marked and does not take the finding with it", marked.op));
            }
        }
    }

    /// The cause is tried once more; where none is named, everything that can be one is.
    fn cause(&self, wrong: &mut Vec<String>) {
        let mut trials = self.trials();
        let decisions = &self.shown.run.decisions;
        match &self.shown.cause {
            Some(Cause::Value { decision, each_time: true, .. }) => {
                let choice = trials.choice_of(*decision).expect("it is of the run");
                let others = trials.alternatives(choice).expect("it evaluates");
                let mut gone = |other| trials.instead_each_time(choice, other).expect("it evaluates");
                if !others.iter().any(|other| gone(other) == TrialResult::Gone) {
                    wrong
                        .push(format!("decision {decision} falls otherwise each time and the finding stays"));
                }
            }
            Some(Cause::Value { decision, .. } | Cause::Order { decision, .. }) => {
                if !self.falls_otherwise(&mut trials, *decision) {
                    wrong.push(format!("decision {decision} falls otherwise and the finding stays"));
                }
            }
            Some(Cause::Disagreement { decision: (decision, _), .. }) => {
                let at = &decisions[*decision].at.loc;
                if trials.agreeing(at).expect("it evaluates") != TrialResult::Gone {
                    wrong.push(format!("ranks decide alike at {at} and the finding stays"));
                }
            }
            Some(Cause::Answer { at: (at, _), peer: (peer, _) }) => {
                let asked = [at, peer].map(|at| trials.position(&at.op).expect("it is of the run"));
                let answer = |of: &OpPosition| {
                    let performed = trials.performed_at(*of).and_then(|performed| performed.answered.clone());
                    performed.expect("it is a question").1
                };
                let [one, other] = [answer(&asked[0]), answer(&asked[1])];
                let alike = [(asked[0], other), (asked[1], one)];
                let mut gone = |(at, answer)| trials.answered(at, answer).expect("it evaluates");
                if one == other || !alike.into_iter().any(|alike| gone(alike) == TrialResult::Gone) {
                    wrong.push(format!(
                        "{:?} and {:?} are answered alike and the finding stays",
                        at.op, peer.op
                    ));
                }
            }
            Some(Cause::Extra { at, again, also, .. }) => {
                let position = trials.position(&at.op).expect("it is of the run");
                let trial = match again.is_empty() && also.is_empty() {
                    true => trials.without(position),
                    false => trials.repaired_without(&[&[position], &**again, &**also].concat()),
                };
                if trial.expect("it evaluates") != TrialResult::Gone {
                    wrong.push(format!("without {:?} the finding stays", at.op));
                }
            }
            Some(Cause::Difference { at, peer }) => {
                let position = trials.position(&at.op).expect("it is of the run");
                let other = trials.position(&peer.op).expect("it is of the run");
                let op = trials
                    .performed_at(other)
                    .and_then(|performed| performed.op.clone())
                    .expect("it is an operation");
                if trials.exchanged(position, &op) != TrialResult::Gone {
                    wrong.push(format!("with {:?} in place of {:?} the finding stays", peer.op, at.op));
                }
                if !self.both_count(&mut trials, at, peer) {
                    wrong.push(format!("{:?} and {:?} have nothing to do with the finding", at.op, peer.op));
                }
            }
            None => {
                for decision in 0..decisions.len() {
                    if self.falls_otherwise(&mut trials, decision) {
                        wrong.push(format!("decision {decision} is a cause, and none is named"));
                    }
                }
                if let Some((first, second)) = self.first_difference() {
                    for (own, other) in [(first, second), (second, first)] {
                        let at = trials.position(&own.op).expect("it is of the run");
                        if let Some(op) = self.exchangeable(&trials, first, own, other)
                            && trials.exchanged(at, &op) == TrialResult::Gone
                            && self.both_count(&mut trials, own, other)
                        {
                            wrong.push(format!(
                                "{:?} for {:?} is a cause, and none is named",
                                other.op, own.op
                            ));
                        }
                    }
                }
            }
        }
    }

    /// Whether the finding goes away where a decision falls otherwise in one thing.
    fn falls_otherwise(&self, trials: &mut Trials<'_>, decision: usize) -> bool {
        let Some(choice) = trials.choice_of(decision) else { return false };
        let values = match &self.shown.run.decisions[decision].decided {
            Decided::Values { values, .. } => Some(values.clone()),
            Decided::Order(_) => None,
        };
        let one_differs = |other: &Choice| match (&values, other) {
            (Some(values), Choice::Value(_, _, others)) => {
                (0..values.len()).any(|nth| values[..nth] == others[..nth.min(others.len())])
            }
            _ => true,
        };
        let others = trials.alternatives(choice).expect("it evaluates");
        others
            .iter()
            .filter(|other| one_differs(other))
            .any(|other| trials.instead(choice, other).expect("it evaluates") == TrialResult::Gone)
    }

    /// Whether two operations differ in what the finding is about: they are of one kind, or the finding names each or goes away
    /// without it. The peer's need not where it is a matter of one rank.
    fn both_count(&self, trials: &mut Trials<'_>, own: &Located, peer: &Located) -> bool {
        let ops = [own, peer].map(|at| self.op_at(trials, at).expect("it is an operation"));
        if ops[0].makes_what_is_made_by(&ops[1]) {
            return true;
        }
        let broken = &self.shown.broken.ops;
        let alone = broken.iter().all(|at| at.op.rank == own.op.rank);
        let mut counts = |at: &Located| {
            let position = trials.position(&at.op).expect("it is of the run");
            broken.iter().any(|named| named.is(at))
                || trials.without(position).expect("it evaluates") != TrialResult::Stays
        };
        counts(own) && (alone || counts(peer))
    }

    /// The other operation, if it can be done where `own` is: what it uses is in the same slots there.
    fn exchangeable(
        &self,
        trials: &Trials<'_>,
        first: &Located,
        own: &Located,
        other_at: &Located,
    ) -> Option<Op> {
        let performed = |at: &Located| trials.performed_at(trials.position(&at.op)?);
        let (first, own_one, other) = (performed(first)?, performed(own)?, performed(other_at)?);
        let (is, be) = (own_one.op.as_ref()?, other.op.as_ref()?);
        let known = own_one.produces.start == other.produces.start
            || other.uses.iter().all(|slot| slot.index < first.produces.start);
        // Whoever uses what it makes has to go on with what the other makes, and words have to tell the two apart.
        let usable = be.makes_what_is_made_by(is) || !trials.is_used(own_one);
        let call = |at: &Located| self.shown.run.operation(at).map(|operation| &operation.call);
        let possible = known && be.slots() <= is.slots() && be.admits(own.op.rank);
        let told_apart = call(own) != call(other_at) && !be.is_but_for_its_name(is);
        (possible && usable && told_apart).then(|| be.clone())
    }

    fn op_at(&self, trials: &Trials<'_>, at: &Located) -> Option<Op> {
        let position = trials.position(&at.op)?;
        trials.performed_at(position)?.op.clone()
    }

    /// The first operations in which the first two ranks of the finding differ.
    fn first_difference(&self) -> Option<(&Located, &Located)> {
        let mut ranks: BTreeSet<Rank> = self.shown.broken.ops.iter().map(|at| at.op.rank).collect();
        if ranks.len() < 2 {
            ranks.extend([Rank(0), Rank(1)]);
        }
        let trials = self.trials();
        let mut ranks = ranks.into_iter();
        let of = |rank: Rank| {
            let alike =
                move |o: &&Operation| o.at.op.rank == rank && o.at.op.thread.0 == 0 && o.kind == Kind::Alike;
            self.operations().filter(alike).map(|operation| &operation.at)
        };
        let (first, second) = (ranks.next()?, ranks.next()?);
        of(first).zip(of(second)).find(|(a, b)| self.op_at(&trials, a) != self.op_at(&trials, b))
    }
}

fn violations(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    shown: &Counterexample,
    counted: &mut Counted,
) -> Vec<String> {
    let finding = Finding { source, exploration, shown };
    let mut wrong = Vec::new();
    finding.marks(&mut wrong);
    finding.cause(&mut wrong);
    counted.findings += 1;
    counted.unmarked += usize::from(shown.essential.is_empty());
    counted.without_cause += usize::from(shown.cause.is_none());
    counted.untried += usize::from(shown.untried > 0);
    wrong
}

#[test]
fn reasons_of_failing_checks_were_tried() {
    let (mut wrong, mut counted) = (Vec::new(), Counted::default());
    for file in verified() {
        for (check, explained) in file.spec.checks.iter().zip(&file.explained) {
            let run = explained.run();
            let Verdict::Fails { .. } = run.verdict else { continue };
            let name = format!("{} \"{}\"", file.path.display(), check.name);
            let Some(shown) = &explained.counterexample else {
                wrong.push(format!("{name}: the witness does not break the rule again"));
                continue;
            };
            let source = check.source(run.ranks, &run.params, &check.assume).expect("the check was searched");
            let source: Arc<dyn Source> = Arc::new(source);
            let config = config(check, run.ranks, run.platform, &check.assume);
            let mut exploration =
                explore(&source, config, &Bounds::default()).expect("it was explored before");
            if !exploration.broken.contains_key(&shown.broken.rule) {
                // It is broken only where NCCL lets go whom it need not hold back.
                let again = explore(&source, freer(&exploration.config), &Bounds::default());
                exploration = again.expect("it was explored before");
            }
            for violation in violations(&source, &exploration, shown, &mut counted) {
                wrong.push(format!("{name}: {violation}"));
            }
        }
    }
    println!("{counted:?}");
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(counted, Counted { findings: 330, unmarked: 2, without_cause: 187, untried: 1 });
}

/// Two thirds of the programs that the laws compare.
#[test]
fn reasons_of_random_programs_were_tried() {
    let (mut runner, strategy) = (runner(17), Family::General.recipes());
    let (mut wrong, mut counted) = (Vec::new(), Counted::default());
    while counted.findings < programs() * 2 / 3 {
        let tree =
            proptest::strategy::Strategy::new_tree(&strategy, &mut runner).expect("a strategy generates");
        let recipe = proptest::strategy::ValueTree::current(&tree);
        let trial = recipe.trial();
        let source: Arc<dyn Source> = trial.script.clone();
        let exploration = explore(&source, trial.config.clone(), &bounds()).expect("a script evaluates");
        if exploration.bound.is_some() {
            continue;
        }
        let rules: Vec<Rule> = exploration.broken.keys().copied().collect();
        for rule in rules.into_iter().take(1) {
            let shown = counterexample(&source, &exploration, rule, Detail::Reason);
            let Some(shown) = shown.expect("a script evaluates") else {
                wrong.push(format!("{recipe:?}: the witness of {rule} does not break it again"));
                continue;
            };
            for violation in violations(&source, &exploration, &shown, &mut counted) {
                wrong.push(format!("{recipe:?}: {rule}: {violation}"));
            }
        }
        assert!(wrong.len() < 12, "{} violations:\n{}", wrong.len(), wrong.join("\n"));
    }
    println!("{counted:?}");
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
}

/// The second line of each failing report of the systems: who, and where the two operations are.
#[test]
fn every_failing_report_of_the_systems_says_who_and_where() {
    let is_report = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "report");
    let (mut wrong, mut sentences) = (Vec::new(), 0);
    for path in files_under("specs/systems").into_iter().filter(is_report) {
        let report = std::fs::read_to_string(enter().join(&path)).expect("it was just listed");
        let lines: Vec<&str> = report.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].starts_with("FAILS")) {
            sentences += 1;
            let numbered = |(at, word): &(usize, &str)| {
                pair[1][at + word.len()..].starts_with(|c: char| c.is_ascii_digit())
            };
            let counted = |word: &str| pair[1].match_indices(word).filter(numbered).count();
            // Ranks that do the same are told together.
            let (ranks, locs) = (counted("rank ") + 2 * counted("ranks "), counted(".star:"));
            if ranks == 0 || locs == 0 || !pair[1].ends_with('.') {
                wrong.push(format!("{}: {ranks} ranks, {locs} places: {}", path.display(), pair[1]));
            }
        }
    }
    println!("{sentences} sentences");
    assert!(sentences >= 60, "{sentences} failing reports");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
