//! How the work of a search grows with ranks, threads and streams: pinned counts, which no other work on the machine changes.
//!
//! Not here: how long it takes (`benches/engine.rs`).

use std::fmt::Write as _;

use rankcheck::search::{Options, Verdict, search};
use rankcheck::spec::load;
use rankcheck_tests::repository::{differs_from_golden, enter};

#[test]
fn searches_grow_as_they_are_known_to() {
    let folder = enter().join("tests/growth");
    let mut text = String::from("states  executions\n");
    for family in ["decisions", "mutexes", "pairs", "polls"] {
        let spec = load(&folder.join(family).with_extension("star")).expect("the family is good");
        for check in &spec.checks {
            let explained = search(&spec, check, &Options::default()).expect("it evaluates");
            for run in &explained.runs {
                assert_eq!(run.verdict, Verdict::Holds, "{family} \"{}\"", check.name);
                let of = format!("{family} \"{}\", {}", check.name, run.setting());
                writeln!(text, "{:>6}  {:>10}  {of}", run.states, run.executions).expect("a text takes all");
            }
        }
    }
    let differs = differs_from_golden(&folder.join("counts.txt"), &text);
    assert!(differs.is_none(), "{}", differs.unwrap_or_default());
}
