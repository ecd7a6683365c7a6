//! Which buffers ranks use in a collective, and what they hold afterwards: programs whose calls fit and whose data do not.
//!
//! Not here: what a collective needs of all its members (`litmus.rs`).

use std::process::Command;

use rankcheck::closure::{
    BlockRequest, Builder, Caching, Flow, Payload, Program, ReduceOp, Rule, fails, holds,
};
use rankcheck::report;
use rankcheck::search::{Explained, Options, Warning, search};
use rankcheck::spec::load;
use serde_json::Value;

use crate::built::{command, folder};

/// Two tables of a model are looked up on all ranks, in some order.
const LOOKUP: &str = r#"def look_up(r, order, call = "reduce_scatter"):
    tp = r.comm("tp", r.world)
    pool = r.pool("cached")
    if order == "after a larger block" and r.rank == 0:
        pool.alloc(3 * MiB, name = "cache")
    rows = [pool.alloc(r.size * MiB, name = "rows_%d" % t) for t in range(2)]
    found = [pool.alloc(MiB, name = "found_%d" % t) for t in range(2)]
    scratch = pool.alloc(r.size * MiB, name = "scratch")
    for step in range(2):
        tables = [0, 1]
        if order == "last rank the other way round" and r.rank == r.size - 1:
            tables = [1, 0]
        elif order == "alternating":
            tables = [step, 1 - step]
        elif order == "chosen" and step == 0 and r.choose("table", ["first", "second"]) == "second":
            tables = [1, 0]
        elif order == "one of its own":
            tables = [r.rank % 2]
        for t in tables:
            given = scratch if order == "scratch on rank 0" and r.rank == 0 else rows[t]
            if call == "reduce_scatter":
                tp.reduce_scatter(given, found[t])
            elif call == "in place":
                tp.reduce_scatter(given, given[r.rank * MiB:(r.rank + 1) * MiB])
            elif call == "broadcast":
                tp.broadcast(given, root = 1)
            elif call == "halves":
                tp.all_reduce(rows[0][t * MiB // 2:(t + 1) * MiB // 2], op = "max")
    r.synchronize()

"#;

fn explained(name: &str, check: &str) -> Explained {
    let path = folder(name).join("look_up.star");
    std::fs::write(&path, format!("{LOOKUP}{check}\n")).expect("a file can be written");
    let spec = load(&path).expect("a good spec");
    search(&spec, &spec.checks[0], &Options::default()).expect("it evaluates")
}

/// What is told of the runs that use their buffers in another order.
fn told(explained: &Explained) -> Vec<String> {
    let told = explained.warnings().filter_map(|(_, warning)| match warning {
        Warning::AnotherOrder(told) => Some(told.to_owned()),
        Warning::NothingJudged => None,
    });
    told.collect()
}

#[test]
fn the_same_buffers_in_another_order_are_told() {
    let calls = [
        ("reduce_scatter", "rows_0 and found_0", "rows_1 and found_1"),
        ("in place", "rows_0", "rows_1"),
        ("broadcast", "rows_0", "rows_1"),
        ("halves", "rows_0[0:524288]", "rows_0[524288:1048576]"),
    ];
    for (call, first, second) in calls {
        let check = format!(
            "check(\"c\", look_up, ranks = 3, order = \"last rank the other way round\", call = {call:?}, \
             expect = holds())"
        );
        let mixed = explained("another_order", &check);
        assert!(mixed.as_stated(), "{}", report::text(&mixed));
        let all = told(&mixed);
        let wanted = [format!("over {first} on rank 0 "), format!("over {second} on rank 2 ")];
        assert!(all.len() == 1 && wanted.iter().all(|part| all[0].contains(part)), "{call}: {all:?}");
        assert!(all[0].starts_with("collective #0 of tp, "), "{all:?}");
        assert_eq!(report::text(&mixed).matches("WARNING").count(), 1);
    }
    let chosen = "check(\"c\", look_up, ranks = [2, 4], order = \"chosen\", expect = holds())";
    assert_eq!(told(&explained("chosen_order", chosen)).len(), 2);
}

#[test]
fn other_buffers_that_are_meant_are_not_told() {
    let orders = ["alike", "alternating", "one of its own", "scratch on rank 0", "after a larger block"];
    for order in orders {
        let check = format!(
            "check(\"c\", look_up, ranks = [2, 3], order = {order:?}, \
             call = each(\"reduce_scatter\", \"in place\", \"broadcast\", \"halves\"), expect = holds())"
        );
        let fine = explained("meant", &check);
        assert!(fine.as_stated(), "{}", report::text(&fine));
        let told = told(&fine);
        assert!(told.is_empty(), "{order}: {told:?}");
    }
}

#[test]
fn a_warning_is_printed_by_quiet_runs_and_in_json() {
    let folder = folder("quiet_order");
    let check = "check(\"c\", look_up, order = \"last rank the other way round\", expect = holds())";
    std::fs::write(folder.join("look_up.star"), format!("{LOOKUP}{check}\n")).expect("a file can be written");
    let run = |more: &[&str]| {
        let ran =
            Command::new(command()).args(["check", "look_up.star"]).args(more).current_dir(&folder).output();
        let output = ran.expect("the command starts");
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).expect("text")
    };
    let quiet = run(&["--quiet"]);
    assert!(quiet.contains("WARNING   collective #0 of tp, reduce_scatter, is over rows_0"), "{quiet}");
    let json: Value = serde_json::from_str(&run(&["--format", "json"])).expect("it is JSON");
    let warnings = json["checks"][0]["warnings"].as_array().expect("a list");
    assert!(warnings.len() == 1 && quiet.contains(warnings[0].as_str().expect("text")), "{warnings:?}");
}

/// Layers are gathered, used and scattered again, of which one rank takes the second first.
fn layers(r: &Builder, orders: &str, expected: &str) -> Flow {
    let dp = r.comm("dp", r.world())?;
    let size = u64::from(r.size());
    let part = |layer: usize| r.mem_alloc(&format!("part_{layer}"), 1 << 20);
    let whole = |layer: usize| r.mem_alloc(&format!("whole_{layer}"), size << 20);
    let (parts, wholes) = ([part(0)?, part(1)?], [whole(0)?, whole(1)?]);
    let turned = orders == "differ" && r.rank() == 1;
    for layer in if turned { [1, 0] } else { [0, 1_usize] } {
        r.kernel(&format!("step_{layer}"), &[], &[&parts[layer]], None)?;
        dp.all_gather(r, Payload::of(&parts[layer]).recv(&wholes[layer]))?;
    }
    for layer in 0..2 {
        let kernel = format!("step_{layer}");
        match expected {
            "gathered" => r.expect_gathered(&wholes[layer], kernel.as_str(), &dp, None)?,
            "of one rank" => r.expect(&wholes[layer], kernel.as_str(), 0, None)?,
            "reduced" => r.expect_reduced(&wholes[layer], kernel.as_str(), (&dp, ReduceOp::Sum), None)?,
            _ => r.expect_gathered(&wholes[layer], &parts[layer], &dp, None)?,
        }
    }
    r.synchronize()
}

#[test]
fn what_a_collective_should_have_made_can_be_expected() {
    let program = |orders: &'static str, expected: &'static str| {
        Program::new([2, 3], move |r: &Builder| layers(r, orders, expected))
    };
    program("agree", "gathered").expect(holds());
    for expected in ["of one rank", "reduced", "as allocated"] {
        program("agree", expected).expect(fails(Rule::Mem5));
    }
    let mixed = program("differ", "gathered").expect(fails(Rule::Mem5));
    let sentence = "the gather of what step_0 wrote on each member of dp";
    assert!(report::text(&mixed).contains(sentence), "{}", report::text(&mixed));
}

/// A batch is loaded on a stream of its own, used on another and given back, by the way that is said.
fn batches(r: &Builder, way: &str, rounds: u32) -> Flow {
    let (copies, ready, used) = (r.stream("copies"), r.event("ready"), r.event("used"));
    let train = r.stream("default");
    let pool = r.pool(Caching::named("staging"))?;
    for _ in 0..rounds {
        let batch = pool.alloc(r, BlockRequest::from(("batch", 1 << 20)).on(&copies))?;
        r.kernel("load", &[], &[&batch], Some(&copies))?;
        ready.record(r, Some(&copies))?;
        train.wait(r, &ready)?;
        if way == "before its use" {
            used.record(r, None)?;
        }
        r.kernel("train", &[&batch], &[], None)?;
        if way != "before its use" {
            used.record(r, None)?;
        }
        match way {
            "stream" => copies.wait(r, &used)?,
            "device" => r.synchronize()?,
            _ => {}
        }
        let recorded = way == "event" || way == "before its use";
        batch.free(r, recorded.then_some(&used))?;
    }
    r.synchronize()
}

#[test]
fn a_block_is_given_back_in_the_order_of_its_own_stream() {
    let program =
        |way: &'static str, rounds: u32| Program::new(1, move |r: &Builder| batches(r, way, rounds));
    for way in ["stream", "device", "event"] {
        for rounds in [1, 3] {
            program(way, rounds).expect(holds());
        }
    }
    let once = program("nothing", 1).expect(fails(Rule::Mem1).latent());
    assert!(report::text(&once).contains("gives batch back to its pool"), "{}", report::text(&once));
    program("nothing", 2).expect(fails(Rule::Mem1).also(Rule::Mem2));
    // An event that is recorded too early orders nothing: that shows where the block is handed out again.
    program("before its use", 1).expect(holds());
    program("before its use", 2).expect(fails(Rule::Mem2));
}

#[test]
fn cuda_free_waits_by_itself_and_nothing_else_does() {
    let program = |kind: &'static str, waits: bool| {
        Program::new(1, move |r: &Builder| {
            let (work, done) = (r.stream("work"), r.event("done"));
            let table =
                if kind == "cuda" { r.malloc("table", 1 << 20)? } else { r.mem_alloc("table", 1 << 20)? };
            r.kernel("hash", &[], &[&table], Some(&work))?;
            done.record(r, Some(&work))?;
            if waits {
                done.synchronize(r)?;
            }
            table.free(r, None)
        })
    };
    for kind in ["cuda", "nccl"] {
        program(kind, true).expect(holds());
    }
    program("cuda", false).expect(holds());
    let undefined = program("nccl", false).expect(fails(Rule::Mem1));
    assert!(!undefined.run().verdict.latent());
}
