//! What HOLDS says that it judged, and checks that state nothing.
//!
//! Not here: what is judged wrong.

use std::process::Command;

use rankcheck::closure::{Builder, Flow, Payload, Program, Rule, Verdict};
use rankcheck::report;
use rankcheck::search::{Explained, Options, search};
use rankcheck::spec::load;

use crate::built::{command, folder};

/// Four ranks, of which some do something; the rest of the line says what is expected.
const PROGRAM: &str = r#"def serve(r, replays = 0, pairs = 0, way = "none"):
    tp = r.comm("tp", r.world)
    x = r.mem_alloc("x", 4 * MiB)
    s = r.stream("s")
    g = r.graph("g")
    g.begin(s)
    tp.all_reduce(x, stream = s)
    g.end()
    for _ in range(replays):
        g.replay(s)
    if r.rank < 2 and pairs:
        for _ in range(pairs):
            tp.send(x, 1) if r.rank == 0 else tp.recv(x, 0)
    if way == "asked" and r.choose("flush", ["now", "later"]) == "now":
        r.store.set("flushed by %d" % r.rank, 1)
    r.synchronize()

"#;

fn explained(name: &str, check: &str) -> Explained {
    let path = folder(name).join("serve.star");
    std::fs::write(&path, format!("{PROGRAM}{check}\n")).expect("a file can be written");
    let spec = load(&path).expect("a good spec");
    search(&spec, &spec.checks[0], &Options::default()).expect("it evaluates")
}

fn lines(explained: &Explained, label: &str) -> Vec<String> {
    let text = report::text(explained);
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix(label))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn what_is_only_captured_is_not_judged() {
    let check = |replays: u32| {
        explained(
            "captured",
            &format!("check(\"c\", serve, ranks = [2, 4], replays = {replays}, expect = holds())"),
        )
    };
    let never = check(0);
    assert_eq!(lines(&never, "WARNING").len(), 1, "{}", report::text(&never));
    assert_eq!(never.nothing_judged().count(), 2);
    let thrice = check(3);
    assert_eq!(lines(&thrice, "judged"), ["3 collectives on 1 communicator"]);
    assert_eq!(thrice.nothing_judged().count(), 0);
}

#[test]
fn ranks_and_answers_after_which_nothing_is_done_are_named() {
    let pairs = explained("idle_ranks", "check(\"p\", serve, ranks = 4, pairs = 2, expect = holds())");
    assert_eq!(lines(&pairs, "judged"), ["2 transfers on 1 communicator"]);
    assert_eq!(lines(&pairs, "idle"), ["ranks 2, 3 of 4 ranks, pairs = 2"]);
    let asked = explained("idle_side", "check(\"a\", serve, ranks = 2, way = \"asked\", expect = holds())");
    assert_eq!(
        lines(&asked, "idle"),
        ["no rank does any of what is judged after flush = later (serve.star:14)"],
        "{}",
        report::text(&asked)
    );
    // Some values of a parameter judge something, others nothing.
    let some = explained("some", "check(\"s\", serve, replays = each(0, 1), expect = holds())");
    assert_eq!(lines(&some, "judged"), ["1 collective on 1 communicator"]);
    assert_eq!(some.nothing_judged().map(|run| run.setting()).collect::<Vec<_>>(), ["2 ranks, replays = 0"]);
}

fn late(r: &Builder) -> Flow {
    let tp = r.comm("tp", r.world())?;
    let x = r.mem_alloc("x", 4 << 20)?;
    if r.choose("late", &[true, false])? {
        tp.all_reduce(r, Payload::of(&x))?;
    }
    r.synchronize()
}

#[test]
fn a_program_of_which_nothing_is_stated_tells_what_there_is() {
    let found = Program::new([2, 3], late).named("late").check().expect("it evaluates");
    assert_eq!(found.unexpected, None);
    assert!(!found.as_stated() && found.states_nothing);
    assert!(matches!(found.run().verdict, Verdict::Fails { primary: Rule::Coll1, .. }));
    assert_eq!(
        lines(&found, "expect"),
        ["nothing is stated; a test that wants this failure would say: expect = fails(\"COLL-1\")"]
    );
    let kept = Program::new(2, |r| r.barrier(None)).check().expect("it evaluates");
    assert!(kept.as_stated());
    assert_eq!(lines(&kept, "expect"), ["nothing is stated; to keep it so: expect = holds()"]);
}

#[test]
fn the_exit_code_of_a_check_that_states_nothing_tells_what_was_found() {
    let folder = folder("unstated");
    let kept = format!("{PROGRAM}check(\"kept\", serve, replays = 1)\n");
    let broken =
        format!("{PROGRAM}def half(r):\n    if r.rank == 0:\n        r.barrier()\n\ncheck(\"half\", half)\n");
    for (name, text, code) in [("kept.star", kept, 0), ("broken.star", broken, 1)] {
        std::fs::write(folder.join(name), text).expect("a file can be written");
        for more in [&[][..], &["--quiet"], &["--format", "json"]] {
            let ran = Command::new(command()).args(["check", name]).args(more).current_dir(&folder).output();
            assert_eq!(ran.expect("the command starts").status.code(), Some(code), "{name} {more:?}");
        }
    }
}
