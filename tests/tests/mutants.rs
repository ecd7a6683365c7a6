//! Mutants of the reductions: each leaves out one condition, and the law that is about it fails within the programs that it
//! compares in every `cargo test`.
//!
//! Not here: the laws, and what else a history may not forget (`growth.rs`).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rankcheck::search::Bounds;
use rankcheck::search::explore::{Exploration, explore};
use rankcheck_model::machine::ConcurrentCalls;
use rankcheck_model::{Condition, Config, Forgotten, ObjectKind, Outcome, Source};
use rankcheck_tests::agreement::{Compared, bounds, compare};
use rankcheck_tests::random::Recipe;
use rankcheck_tests::script::Trial;

use crate::laws::{
    AGREEMENTS, ALIKE, ANSWERS, ANSWERS_ALIKE, GENERAL, HOLDERS, Law, MUTEXES, SEGMENTS, is_the_same,
    with_joins,
};

/// A reduction without one of its conditions.
struct Mutant {
    /// The condition, in words.
    without: String,
    leave_out: Box<dyn Fn(&mut Config)>,
    /// The kind of object that must be contended if it is to make a difference.
    about: Option<ObjectKind>,
}

impl Mutant {
    fn new(without: String, leave_out: impl Fn(&mut Config) + 'static) -> Self {
        Self { without, leave_out: Box::new(leave_out), about: None }
    }

    fn about(self, kind: ObjectKind) -> Self {
        Self { about: Some(kind), ..self }
    }

    fn of(&self, trial: &Trial) -> Trial {
        let mut config = trial.config.clone();
        (self.leave_out)(&mut config);
        Trial { script: Arc::clone(&trial.script), config }
    }
}

/// Programs with more states are not tried: the oracle would take long.
const STATES: u64 = 2_000;

/// What the explorations find that the laws compare with the oracle: in every order, in one order of concurrent calls, and
/// where histories merge. None if one of them panics.
fn explored(trial: &Trial) -> Option<[Exploration; 3]> {
    let source: Arc<dyn Source> = trial.script.clone();
    let apart = Bounds { states: STATES, ..bounds() };
    let merge = Bounds { merge_from: 0, ..apart.clone() };
    let every = Config { concurrent_calls: ConcurrentCalls::InEveryOrder, ..trial.config.clone() };
    let explored = |config: &Config, bounds: &Bounds| {
        explore(&source, config.clone(), bounds).expect("a script evaluates")
    };
    let all = || [explored(&every, &apart), explored(&trial.config, &apart), explored(&every, &merge)];
    catch_unwind(AssertUnwindSafe(all)).ok()
}

fn outcomes(of: Option<&[Exploration; 3]>) -> Option<Vec<BTreeSet<&Outcome>>> {
    of.map(|all| all.iter().map(|exploration| exploration.outcomes.keys().collect()).collect())
}

/// Each mutant is caught by the law.
fn caught_by(law: &Law, mut mutants: Vec<Mutant>) {
    for (nth, recipe) in law.recipes_by_default().enumerate() {
        if mutants.is_empty() {
            break;
        }
        let trial = (law.trial)(&recipe);
        let right = explored(&trial).expect("the engine does not panic");
        if right.iter().any(|exploration| exploration.bound.is_some()) {
            continue;
        }
        let contends = |kind: ObjectKind| right[0].config.contended.iter().any(|object| object.kind == kind);
        mutants.retain(|mutant| {
            if mutant.about.is_some_and(|kind| !contends(kind)) {
                return true;
            }
            let wrong = mutant.of(&trial);
            // The oracle takes longest, and would say the same where nothing changes.
            let changes = outcomes(explored(&wrong).as_ref()) != outcomes(Some(&right));
            let caught = changes && matches!(compare(&wrong), Compared::Differ(_));
            if caught {
                println!("{}: caught by {} with program {}", mutant.without, law.name, nth + 1);
            }
            !caught
        });
    }
    let missed: Vec<&str> = mutants.iter().map(|mutant| &*mutant.without).collect();
    assert!(missed.is_empty(), "{} does not notice that these are left out: {missed:#?}", law.name);
}

/// Declaring one kind of object to commute although it does not.
fn commuting(kind: ObjectKind) -> Mutant {
    let without = format!("turns at {kind:?}");
    Mutant::new(without, move |config| _ = config.declared_commuting.insert(kind)).about(kind)
}

fn forgetting(what: Forgotten) -> Mutant {
    Mutant::new(format!("{what:?} of histories"), move |config| _ = config.declared_forgotten.insert(what))
}

fn needless(condition: Condition) -> Mutant {
    Mutant::new(format!("{condition:?}"), move |config| _ = config.declared_needless.insert(condition))
}

#[test]
fn every_entry_of_the_commutation_table_is_needed() {
    caught_by(&GENERAL, ObjectKind::ALL.map(commuting).into());
}

#[test]
fn what_threads_share_under_mutexes_does_not_commute() {
    use ObjectKind::{List, Map, Mutex};
    caught_by(&MUTEXES, [Mutex, List, Map].map(commuting).into());
}

/// Taking what ranks share for a rank's own, whose turns come before all others'.
#[test]
fn what_ranks_share_is_nobodys_own() {
    let own = |kind| {
        let own = move |config: &mut Config| _ = config.declared_own.insert(kind);
        Mutant::new(format!("that {kind:?} is shared"), own).about(kind)
    };
    caught_by(&GENERAL, [ObjectKind::StoreKey, ObjectKind::Flag].map(own).into());
}

#[test]
fn what_matters_of_answers_is_remembered() {
    use Forgotten::{Accesses, Answers, Containers, Known, Memory};
    caught_by(&ANSWERS, [Answers, Accesses, Containers, Known, Memory].map(forgetting).into());
    caught_by(&ANSWERS_ALIKE, vec![forgetting(Containers)]);
}

/// Memory is out of reach only where nobody has it.
#[test]
fn memory_that_somebody_comes_by_is_remembered() {
    use Condition::{MemoryCaptured, MemoryContained, MemoryGivenAway, MemoryQueued};
    let conditions = [MemoryGivenAway, MemoryQueued, MemoryCaptured, MemoryContained];
    caught_by(&HOLDERS, conditions.map(needless).into());
    caught_by(&HOLDERS, [Forgotten::Memory, Forgotten::Follows].map(forgetting).into());
}

#[test]
fn what_matters_of_agreements_is_remembered() {
    caught_by(&AGREEMENTS, [Forgotten::Answers, Forgotten::Results, Forgotten::Votes].map(forgetting).into());
}

/// Orders of segments are one only where nobody can tell them apart.
#[test]
fn whoever_sees_an_order_of_segments_has_all() {
    caught_by(&SEGMENTS, vec![needless(Condition::SegmentsUnnamed), forgetting(Forgotten::Numbers)]);
}

#[test]
fn one_order_stands_for_all_behind_unordered_calls_alone() {
    caught_by(&GENERAL, vec![needless(Condition::UnorderedCalls)]);
}

/// Choices are left out only where nobody outside may come in between.
#[test]
fn persistent_sets_are_closed() {
    use Condition::{Clashes, Enablers, OwnObjects};
    caught_by(&GENERAL, [Clashes, Enablers].map(needless).into());
    caught_by(&MUTEXES, vec![needless(OwnObjects)]);
}

#[test]
fn launches_are_forgotten_under_their_conditions() {
    use Condition::{LaunchesQueued, LaunchesToCome};
    caught_by(&GENERAL, [LaunchesQueued, LaunchesToCome].map(needless).into());
}

#[test]
fn renumbering_changes_all_that_names_ranks() {
    use Condition::{ActorsRenumbered, ContentsRenumbered, RanksRenumbered};
    caught_by(&ALIKE, [ActorsRenumbered, ContentsRenumbered, RanksRenumbered].map(needless).into());
}

/// Asserts that the law notices programs whose ranks differ in `what` and are taken for interchangeable.
fn taken_for_alike(what: &str, wrong: fn(&Recipe) -> Trial) {
    let mut recipes = ALIKE.recipes_by_default();
    let caught = recipes.position(|recipe| matches!(compare(&wrong(&recipe)), Compared::Differ(_)));
    println!("{what}: caught by {} with program {caught:?}", ALIKE.name);
    assert!(caught.is_some(), "{} does not notice that {what} are taken for interchangeable", ALIKE.name);
}

/// Ranks that do not run one program, and ranks that do where a collective tells them apart, are not interchangeable.
#[test]
fn ranks_that_differ_are_not_interchangeable() {
    taken_for_alike("ranks that run other programs", Recipe::trial_taken_for_alike);
    taken_for_alike("collectives with a root", Recipe::trial_of_alike_with_roots);
}

/// The law that joins are recorded as they are made compares both with each other, because the oracle makes them too.
#[test]
fn what_is_recorded_leaves_out_only_what_was_met() {
    let mutant = needless(Condition::LaunchesMet);
    let caught = GENERAL.recipes_by_default().position(|recipe| {
        let wrong = mutant.of(&recipe.trial());
        !is_the_same(&with_joins(&wrong, u32::MAX), &with_joins(&wrong, 0))
    });
    println!("{}: caught by what_is_recorded_is_what_is_joined with program {caught:?}", mutant.without);
    assert!(caught.is_some());
}
