//! Repairs that reports show: they hold where the report says, and are found for most of what has a passing twin.
//!
//! Not here: how a repair is written in a report, which a golden pins (`cli.rs`).

use std::time::Duration;

use rankcheck::search::repair::Repair;
use rankcheck::search::{Detail, Options, Verdict, search};
use rankcheck::spec::{Check, CheckKind, Expect};
use rankcheck_tests::repository::{enter, files_under};

use rankcheck::spec;

/// Of the failing checks of the systems that have a passing twin, so many in a hundred are repaired at 2, 4 and 8 ranks.
const REPAIRED_PERCENT: usize = 57;

fn fails(check: &Check) -> bool {
    matches!(check.kind, CheckKind::Program(Expect::Fails { .. }))
}

fn holds(check: &Check) -> bool {
    matches!(check.kind, CheckKind::Program(Expect::Holds { .. }))
}

#[test]
fn most_failing_checks_with_a_passing_twin_are_repaired() {
    enter();
    // What is found is the same on a machine that is busy.
    let repair_time = Some(Duration::from_secs(30));
    let options = Options { repair_time, ..Options::telling(Detail::Repair) };
    let (mut all, mut repaired, mut text) = (0, 0, Vec::new());
    for path in
        files_under("specs/systems").into_iter().filter(|path| path.extension().is_some_and(|e| e == "star"))
    {
        let spec = spec::load(&path).expect("the spec is good");
        for check in spec.checks.iter().filter(|check| fails(check)) {
            let twin = |other: &&Check| holds(other) && check.has_program_of(other);
            if !spec.checks.iter().any(|other| twin(&other)) {
                continue;
            }
            all += 1;
            let explained = search(&spec, check, &options).expect("the spec is good");
            assert!(matches!(explained.run().verdict, Verdict::Fails { .. }), "{}", check.name);
            let shown = explained.counterexample.as_ref().expect("it is explained");
            let repairs = shown.repairs.as_ref().expect("they were asked for");
            // Some programs are written for a number of ranks.
            let everywhere = |repair: &&Repair| {
                let known = |ranks| repair.holds_at.contains(ranks) || repair.not_written_for.contains(ranks);
                [2, 4, 8].iter().all(known)
            };
            let good = repairs.found.iter().find(everywhere);
            repaired += usize::from(good.is_some());
            let words = repairs
                .found
                .iter()
                .map(|r| format!("{} {:?} {:?}", r.change.words(), r.holds_at, r.unknown_at));
            let words: Vec<String> = words.collect();
            text.push(format!(
                "{} {} \"{}\": {} tried{}: {}",
                if good.is_some() { "YES" } else { "no " },
                path.display(),
                check.name,
                repairs.tried,
                if repairs.gave_up_after.is_some() { ", gave up" } else { "" },
                words.join(" | ")
            ));
        }
    }
    println!("{}\n{repaired} of {all}", text.join("\n"));
    assert!(repaired * 100 >= all * REPAIRED_PERCENT, "{repaired} of {all}");
}
