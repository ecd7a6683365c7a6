//! Groups that launch on several communicators, and groups of which one call uses what another one writes: in specs and in
//! recorded runs.
//!
//! Not here: groups that make communicators (`specs/rules/group.star`).

use rankcheck::closure::{Builder, Flow, Payload, Program, Rule};
use rankcheck::report;
use rankcheck::runs::fold::Folding;
use rankcheck::runs::judge::{Judged, RunVerdict, judge, read, read_folded};
use rankcheck::runs::report::text;
use rankcheck::search::Verdict;
use rankcheck_tests::recording::{Process, Run};
use rstest::rstest;

const MIB: u64 = 1 << 20;

/// How a rank makes two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Grouped,
    GroupedTheOtherFirst,
    Alone,
    AloneTheOtherFirst,
}

impl Made {
    fn is_grouped(self) -> bool {
        matches!(self, Self::Grouped | Self::GroupedTheOtherFirst)
    }

    fn order(self) -> [usize; 2] {
        match self {
            Self::Grouped | Self::Alone => [0, 1],
            Self::GroupedTheOtherFirst | Self::AloneTheOtherFirst => [1, 0],
        }
    }
}

/// All ranks but the last make the calls in a group, the last one so. Both orders of the hashes are tried: made alone, in
/// whichever order, the calls stand in the other one for one of them. In groups the order that is written counts.
#[rstest]
fn the_order_of_a_group_is_that_of_all_ranks(
    #[values(Made::Grouped, Made::GroupedTheOtherFirst, Made::Alone, Made::AloneTheOtherFirst)] last: Made,
    #[values(2, 3)] ranks: u32,
) {
    let program = Program::new([ranks], move |r: &Builder| -> Flow {
        let comms = [r.comm("tp", r.world())?, r.comm("dp", r.world())?];
        let buffers = [r.mem_alloc("x", MIB)?, r.mem_alloc("y", MIB)?];
        let made = if r.rank() + 1 == ranks { last } else { Made::Grouped };
        if made.is_grouped() {
            r.group_start()?;
        }
        for at in made.order() {
            comms[at].all_reduce(r, Payload::of(&buffers[at]))?;
        }
        if made.is_grouped() {
            r.group_end()?;
        }
        r.synchronize()
    });
    let checked = program.check().expect("it evaluates");
    let told = report::text(&checked);
    if last == Made::Grouped {
        assert!(matches!(checked.run().verdict, Verdict::Holds), "{told}");
        return;
    }
    assert!(matches!(checked.run().verdict, Verdict::Fails { primary: Rule::Coll4, .. }), "{told}");
    // Groups get through, as NCCL is; where one rank has none, an order is found in which it does not.
    assert_eq!(told.contains("hang"), !last.is_grouped(), "{told}");
    if last == Made::Alone {
        assert!(told.contains("in the hash order of communicators"), "{told}");
    }
}

/// As many all-reduces in a group of ranks' own as there are in `groups`, each on the communicator and the half of a buffer
/// of these numbers; folded and whole.
fn recorded(name: &str, rounds: u32, groups: impl Fn(u32) -> Vec<Vec<(usize, u64)>>) -> Judged {
    let mut run = Run::new(2);
    run.all(|p: &mut Process, rank| {
        let comms = [p.init(1, rank, 2), p.init(2, rank, 2)];
        let (x, stream) = (p.malloc(2 * MIB), p.stream());
        for _ in 0..rounds {
            for group in groups(rank) {
                let calls = |p: &mut Process| {
                    for (comm, half) in &group {
                        p.all_reduce(comms[*comm], x + half * MIB, 1024, stream);
                    }
                };
                if group.len() == 1 { calls(p) } else { p.group(calls) }
            }
            p.synchronize(stream);
        }
    });
    run.exit();
    let saved = run.save(&format!("grouped-{name}-{rounds}"));
    let whole = judge(read_folded(&saved.folder, Folding::Nothing).expect("a recording"), None)
        .expect("it can be judged");
    let folded = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    assert_eq!(folded.verdict, whole.verdict, "{}\n{}", text(&folded), text(&whole));
    folded
}

fn rules(judged: &Judged) -> Vec<Rule> {
    judged.findings.iter().map(|finding| finding.rule).collect()
}

#[rstest]
fn recorded_groups_launch_in_one_order(#[values(1, 60)] rounds: u32) {
    let (a, b) = ((0, 0), (1, 1));
    let alike = recorded("alike", rounds, |_| vec![vec![a, b]]);
    assert_eq!(alike.verdict, RunVerdict::Holds, "{}", text(&alike));
    let fails = |name, groups: &dyn Fn(u32) -> Vec<Vec<(usize, u64)>>| {
        let judged = recorded(name, rounds, groups);
        assert_eq!(
            (judged.verdict, rules(&judged)),
            (RunVerdict::Fails, vec![Rule::Coll4]),
            "{}",
            text(&judged)
        );
    };
    fails("turned", &|rank| vec![if rank == 0 { vec![a, b] } else { vec![b, a] }]);
    fails("forth", &|rank| if rank == 0 { vec![vec![a, b]] } else { vec![vec![a], vec![b]] });
    fails("back", &|rank| if rank == 0 { vec![vec![a, b]] } else { vec![vec![b], vec![a]] });
}

#[rstest]
fn recorded_calls_of_one_group_are_in_no_order(#[values(1, 60)] rounds: u32) {
    for (name, group) in [("one", vec![(0, 0), (0, 0)]), ("two", vec![(0, 0), (1, 0)])] {
        let grouped = recorded(name, rounds, |_| vec![group.clone()]);
        assert_eq!(
            (grouped.verdict, rules(&grouped)),
            (RunVerdict::Fails, vec![Rule::Mem2; 2]),
            "{}",
            text(&grouped)
        );
        let apart =
            recorded(&format!("{name}-apart"), rounds, |_| group.iter().map(|call| vec![*call]).collect());
        assert_eq!(apart.verdict, RunVerdict::Holds, "{}", text(&apart));
    }
}
