//! A deadlock is told in full: every rank and object of a cycle, under the name of the rule that is broken.
//!
//! Not here: who waits for whom (`explained.rs`), and the layout of reports, which the goldens pin (`specs.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use rankcheck::closure::{Builder, Flow, Payload, Program, Rule};
use rankcheck::report;
use rankcheck::search::explore::explore;
use rankcheck::search::{Bounds, BrokenRule, Counterexample, Replayed, Verdict, replay};
use rankcheck_model::{Config, Source};
use rankcheck_tests::agreement::bounds;
use rankcheck_tests::random::Family;

use crate::laws::{programs, runner};
use crate::specs::verified;

const MIB: u64 = 1 << 20;

/// The ranks that a text names, ranges included: `ranks 0, 2 and 4 to 6`.
pub(crate) fn ranks_said(text: &str) -> BTreeSet<u32> {
    let mut said = BTreeSet::new();
    for (at, word) in text.match_indices("rank ").chain(text.match_indices("ranks ")) {
        let mut list = text[at + word.len()..].split([' ', ',', ';', ':']).filter(|word| !word.is_empty());
        let (mut last, mut to) = (None, false);
        for word in list.by_ref() {
            match word.trim_end_matches(['.', ')']).parse::<u32>() {
                Ok(number) if to => said.extend(last.unwrap_or(number)..=number),
                Ok(number) => {
                    last = Some(number);
                    said.insert(number);
                }
                Err(_) if word == "and" => {}
                Err(_) if word == "to" => {
                    to = true;
                    continue;
                }
                Err(_) => break,
            }
            to = false;
        }
    }
    said
}

/// The blocked threads and streams from which the first of a finding can be reached and that it can reach.
fn cycle<'a>(run: &'a Replayed, broken: &BrokenRule) -> Vec<&'a rankcheck::search::Blocked> {
    let reached = |from: &rankcheck::search::Blocked| {
        let mut reached: Vec<usize> = Vec::new();
        let mut open = vec![from];
        while let Some(blocked) = open.pop() {
            for to in &blocked.waits_for {
                for (at, other) in run.blocked.iter().enumerate() {
                    if other.at.is(to) && !reached.contains(&at) {
                        reached.push(at);
                        open.push(other);
                    }
                }
            }
        }
        reached
    };
    let Some(first) = run.blocked_at(&broken.ops[0]) else { return Vec::new() };
    let back = |other: &&rankcheck::search::Blocked| {
        reached(other).iter().any(|at| run.blocked[*at].at.is(&first.at))
    };
    reached(first).into_iter().map(|at| &run.blocked[at]).filter(back).collect()
}

/// What the sentence of a cycle leaves out; none for findings that are no cycle.
fn left_out(run: &Replayed, broken: &BrokenRule) -> Option<Vec<String>> {
    let sentence = &broken.sentence;
    if !sentence.contains(": a cycle") {
        return None;
    }
    let said = ranks_said(sentence);
    let mut missing = Vec::new();
    let cycle = cycle(run, broken);
    if cycle.len() < 2 {
        missing.push(format!("{} of a cycle are blocked", cycle.len()));
    }
    for blocked in cycle {
        let rank = blocked.at.op.rank.0;
        if !said.contains(&rank) {
            missing.push(format!("rank {rank}"));
        }
        // Of transfers that are told together only the communicator is said, and whom they wait for.
        let object = blocked.text.split(" from rank ").next().unwrap_or_default();
        if !sentence.contains(object) {
            missing.push(blocked.text.clone());
        }
    }
    Some(missing)
}

/// The ranks that have a lane in a report.
fn ranks_with_lanes(text: &str) -> BTreeSet<u32> {
    let lanes = text.lines().filter(|line| line.starts_with("  rank"));
    lanes.flat_map(|line| ranks_said(line.split("  ").nth(1).unwrap_or_default())).collect()
}

#[test]
fn every_rank_and_object_of_a_cycle_is_said_and_has_a_lane() {
    let (mut wrong, mut cycles) = (Vec::new(), 0);
    for file in verified() {
        for explained in &file.explained {
            let Some(shown) = &explained.counterexample else { continue };
            let Some(missing) = left_out(&shown.run, &shown.broken) else { continue };
            cycles += 1;
            let lanes = ranks_with_lanes(&report::text(explained));
            let said = ranks_said(&shown.broken.sentence);
            let alone: Vec<&u32> = said.difference(&lanes).collect();
            if !missing.is_empty() || !alone.is_empty() {
                let name = format!("{} \"{}\"", file.path.display(), explained.name);
                wrong.push(format!(
                    "{name}: lacks {missing:?}, no lanes for {alone:?}: {}",
                    shown.broken.sentence
                ));
            }
        }
    }
    println!("{cycles} cycles");
    assert!(cycles >= 20, "{cycles} cycles");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rank_and_object_of_a_random_cycle_is_said() {
    let (mut runner, strategy) = (runner(19), Family::General.recipes());
    let (mut failing, mut cycles, mut wrong) = (0, 0, Vec::new());
    let wanted = programs().min(2_000);
    while failing < wanted {
        let trial = strategy.new_tree(&mut runner).expect("a strategy generates").current().trial();
        let source: Arc<dyn Source> = trial.script.clone();
        let explored = explore(&source, trial.config.clone(), &bounds()).expect("a script evaluates");
        if explored.bound.is_some() || explored.broken.is_empty() {
            continue;
        }
        failing += 1;
        for (rule, witness) in &explored.broken {
            let run = replay::replay(&source, &explored.config, &witness.choices).expect("it is a run of it");
            for broken in run.broken.iter().filter(|broken| broken.rule == *rule) {
                assert!(!broken.sentence.is_empty(), "{rule} says nothing");
                let Some(missing) = left_out(&run, broken) else { continue };
                cycles += 1;
                if !missing.is_empty() {
                    wrong.push(format!("{rule} lacks {missing:?}: {}", broken.sentence));
                }
            }
        }
    }
    println!("{failing} failing programs, {cycles} cycles");
    assert!(cycles * 20 >= wanted, "{cycles} cycles");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The failure of a closure, and its report.
pub(crate) fn failure(
    ranks: u32,
    body: impl Fn(&Builder) -> Flow + Send + Sync + 'static,
) -> (Counterexample, String) {
    let explained = Program::new(ranks, body).check().expect("the program is good");
    let text = report::text(&explained);
    assert!(matches!(explained.run().verdict, Verdict::Fails { .. }), "{text}");
    (explained.counterexample.expect("it is told"), text)
}

/// A cycle that says all, is named after this rule, and whose ranks all have a lane.
fn told_in_full(rule: Rule, ranks: u32, body: impl Fn(&Builder) -> Flow + Send + Sync + 'static) -> String {
    let (shown, text) = failure(ranks, body);
    assert_eq!(shown.broken.rule, rule, "{text}");
    assert_eq!(left_out(&shown.run, &shown.broken), Some(Vec::new()), "{text}");
    assert_eq!(ranks_with_lanes(&text), (0..ranks).collect(), "{text}");
    shown.broken.sentence
}

/// Three communicators of two ranks each, of which each rank launches its two in another order than its neighbours.
#[test]
fn three_communicators_in_a_circle_are_named_after_their_order() {
    let sentence = told_in_full(Rule::Coll4, 3, |r| {
        let x = r.mem_alloc("x", 4 * MIB)?;
        let mut mine = Vec::new();
        for (name, members) in [("ab", [0, 1]), ("bc", [1, 2]), ("ca", [0, 2])] {
            if members.contains(&r.rank()) {
                let comm = r.comm(name, members)?;
                // Connected here, so that only streams wait later.
                comm.all_reduce(r, &x)?;
                mine.push((name, comm));
            }
        }
        r.synchronize()?;
        let first = ["ab", "bc", "ca"][r.rank() as usize];
        mine.sort_by_key(|(name, _)| *name != first);
        for (_, comm) in mine {
            comm.all_reduce(r, &x)?;
        }
        Ok(())
    });
    for comm in ["ab", "bc", "ca"] {
        assert!(sentence.contains(&format!("a collective of {comm} ")), "{sentence}");
    }
}

/// On streams of their own nothing waits as long as kernels run together, and no two ranks turn two communicators round.
#[test]
fn a_circle_on_streams_of_their_own_rests_on_kernels_that_run_together() {
    let program = |turns: bool| {
        Program::new(3, move |r| {
            let mut mine = Vec::new();
            for (name, members) in [("ab", [0, 1]), ("bc", [1, 2]), ("ca", [0, 2])] {
                if members.contains(&r.rank()) {
                    let x = r.mem_alloc(name, 4 * MIB)?;
                    let comm = r.comm(name, members)?;
                    comm.all_reduce(r, &x)?;
                    mine.push((name, comm, x));
                }
            }
            r.synchronize()?;
            r.barrier(None)?;
            let first = ["ab", "bc", "ca"][r.rank() as usize];
            mine.sort_by_key(|(name, ..)| turns && *name != first);
            for (name, comm, x) in mine {
                comm.all_reduce(r, Payload::of(&x).on(&r.stream(name)))?;
            }
            Ok(())
        })
    };
    let turned = program(true).check().expect("the program is good");
    let text = report::text(&turned);
    let Verdict::Fails { rules, .. } = &turned.run().verdict else { panic!("{text}") };
    assert_eq!(rules, &BTreeSet::from([Rule::Coll4]), "{text}");
    assert!(text.contains("latent"), "{text}");
    for step in
        ["rank 0 launches ab before ca", "rank 1 launches bc before ab", "rank 2 launches ca before bc"]
    {
        assert!(text.contains(step), "{step} is missing in:\n{text}");
    }
    let kept = program(false).check().expect("the program is good");
    assert!(matches!(kept.run().verdict, Verdict::Holds), "{}", report::text(&kept));
    let assumed = program(true).coresident(2).check().expect("the program is good");
    assert!(matches!(assumed.run().verdict, Verdict::Holds), "{}", report::text(&assumed));
    // Whichever of the launches runs last.
    let source: Arc<dyn Source> = Arc::new(program(true).source(3, &[]).expect("the program is good"));
    let reduced = explore(&source, Config::new(3), &Bounds::default()).expect("the program is good");
    let found: Vec<Vec<Rule>> =
        reduced.outcomes.keys().map(|end| end.findings.iter().map(|(rule, _)| *rule).collect()).collect();
    assert_eq!(found, [vec![Rule::Coll4]]);
}

/// Registrations of many ranks in two orders: all of them are in the sentence, which stays short.
#[test]
fn a_cycle_of_many_ranks_is_short_and_leaves_nobody_out() {
    let sentence = told_in_full(Rule::Win1, 48, |r| {
        let (c, d) = (r.comm("c", r.world())?, r.comm("d", r.world())?);
        let x = r.mem_alloc("x", 4 * MIB)?;
        let order = if r.rank() < 17 { [&c, &d] } else { [&d, &c] };
        for comm in order {
            comm.register(r, &x)?;
        }
        Ok(())
    });
    assert!(sentence.starts_with("ranks 0 to 16 wait in registration c #0"), "{sentence}");
    assert!(sentence.contains("for ranks 17 to 47, which wait in registration d #0"), "{sentence}");
    assert!(sentence.len() < 300, "{sentence}");
}

/// A chain of first receives around a ring: each waits for the rank before.
#[test]
fn a_ring_is_told_by_its_distance() {
    let sentence = told_in_full(Rule::P2p3, 7, |r| {
        let c = r.comm("c", r.world())?;
        let (x, y) = (r.mem_alloc("x", MIB)?, r.mem_alloc("y", MIB)?);
        c.recv(r, &x, (r.rank() + 6) % 7)?;
        c.send(r, &y, (r.rank() + 1) % 7)?;
        Ok(())
    });
    assert!(sentence.contains("each for the rank before (of 7)"), "{sentence}");
}

/// A call that waits for its own streams has no rule of its own: the cycle is named after what waits on them.
#[test]
fn a_free_that_waits_for_a_kernel_is_no_lock() {
    let sentence = told_in_full(Rule::Flag1, 2, |r| {
        let c = r.comm("c", r.world())?;
        let (x, old) = (r.mem_alloc("x", 4 * MIB)?, r.malloc("old", 4 * MIB)?);
        c.all_reduce(r, &x)?;
        r.synchronize()?;
        let ready = r.flag("ready");
        if r.rank() == 0 {
            c.all_reduce(r, &x)?;
            old.free(r, None)?;
            ready.write(r, 1, None)?;
        } else {
            ready.wait(r, 1, None)?;
            c.all_reduce(r, &x)?;
        }
        Ok(())
    });
    assert!(sentence.contains("waits in old.free ("), "{sentence}");
    assert!(!sentence.contains("for lock"), "{sentence}");
}

/// A group of many transfers is in the cycle and not to blame: all of it stands behind a broadcast.
#[test]
fn a_group_that_stands_behind_something_else_takes_no_turns() {
    let sentence = told_in_full(Rule::P2p2, 2, |r| {
        let c = r.comm("c", r.world())?;
        let all = r.mem_alloc("all", 9 * 128 * MIB)?;
        let x = r.mem_alloc("x", 4 * MIB)?;
        c.all_reduce(r, &x)?;
        let transfer = |nth: u64| {
            let part = all.slice(r, nth * 128 * MIB..(nth + 1) * 128 * MIB)?;
            match r.rank() {
                0 => c.send(r, &part, 1),
                _ => c.recv(r, &part, 0),
            }
        };
        transfer(0)?;
        r.synchronize()?;
        let transfers = || (0..9).try_for_each(|nth| transfer(nth).map(drop));
        if r.rank() == 0 {
            c.all_reduce(r, &x)?;
            r.group(transfers)?;
        } else {
            r.group(transfers)?;
            c.all_reduce(r, &x)?;
        }
        Ok(())
    });
    assert!(!sentence.contains("take turns"), "{sentence}");
}
