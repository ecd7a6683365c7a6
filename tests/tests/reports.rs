//! What a report shows of a finding: the operands of calls, places in memory, lines of source, waivers.
//!
//! Not here: the reports of specs, which are goldens (`specs.rs`), and cycles (`deadlocks.rs`).

use rankcheck::closure::{Payload, Program, ReduceOp, Rule, WindowFlags, fails, holds};
use rankcheck::report;

use crate::deadlocks::failure;

const MIB: u64 = 1 << 20;

fn wants(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
}

#[test]
fn lanes_carry_the_operands_that_tell_calls_apart() {
    let (_, text) = failure(2, |r| {
        let tp = r.comm("tp", r.world())?;
        let (plain, x) = (r.malloc("plain", MIB)?, r.mem_alloc("x", 4 * MIB)?);
        let side = r.stream("side");
        let half = x.slice(r, 2 * MIB..4 * MIB)?;
        tp.broadcast(r, Payload::of(&plain).count(if r.rank() == 0 { 0 } else { 9 }), 1)?;
        let op = if r.rank() == 0 { ReduceOp::Max } else { ReduceOp::Sum };
        tp.all_reduce(r, Payload::of(&half).op(op).on(&side))?;
        Ok(())
    });
    wants(
        &text,
        &["plain = malloc(1 MiB)", "x = mem_alloc(4 MiB)", "tp.broadcast(plain, count = 9, root = 1)"],
    );
    let (_, text) = failure(2, |r| {
        let tp = r.comm("tp", r.world())?;
        let x = r.mem_alloc("x", 4 * MIB)?;
        let side = r.stream("side");
        let half = x.slice(r, 2 * MIB..4 * MIB)?;
        let op = if r.rank() == 0 { ReduceOp::Max } else { ReduceOp::Sum };
        tp.all_reduce(r, Payload::of(&half).op(op).on(&side))?;
        Ok(())
    });
    let max = "tp.all_reduce(x[2097152:4194304], op = max, stream = side)";
    wants(&text, &[max, "tp.all_reduce(x[2097152:4194304], stream = side)", "6 of 6 operations shown"]);
    let (_, text) = failure(2, |r| {
        let tp = r.comm("tp", r.world())?;
        let x = r.mem_alloc("x", 4 * MIB)?;
        let flags = if r.rank() == 0 { WindowFlags::Default } else { WindowFlags::CollSymmetric };
        tp.register_with(r, &x, flags)?;
        Ok(())
    });
    wants(&text, &["tp.register(x, flags = default)", "tp.register(x)"]);
}

/// What is left of a buffer after halves of it went through windows that were mixed up: every place counts from where
/// the buffer starts, and nothing is a hash.
#[test]
fn contents_have_absolute_places() {
    let (_, text) = failure(2, |r| {
        let ep = r.comm("ep", r.world())?;
        let (u, v) = (r.mem_alloc("u", 8 * MIB)?, r.mem_alloc("v", 8 * MIB)?);
        for buffer in if r.rank() == 0 { [&u, &v] } else { [&v, &u] } {
            ep.register(r, buffer)?;
        }
        let upper = u.slice(r, 4 * MIB..8 * MIB)?;
        ep.all_reduce(r, &upper)?;
        // And once more, a quarter of it.
        let inner = upper.slice(r, MIB..2 * MIB)?;
        r.copy(&u.slice(r, 0..MIB)?, &inner, None)
    });
    let held = "r0.u = [0:1048576] share 0: r0.u[5242880:6291456]+r1.v[5242880:6291456] share 1: r0.u[5242880:6291456]";
    wants(&text, &[held, ", [1048576:4194304] r0.u[1048576:4194304], [4194304:8388608] share 0: "]);
    assert!(
        !text.contains('#') || !text.lines().any(|line| line.contains(" = ") && line.contains("(#")),
        "{text}"
    );
}

#[test]
fn the_lines_of_a_finding_are_shown_with_marks() {
    let (_, text) = failure(2, |r| {
        let tp = r.comm("tp", r.world())?;
        let x = r.mem_alloc("x", 4 * MIB)?;
        if r.rank() == 0 {
            tp.register(r, &x)?; // one rank alone
        }
        Ok(())
    });
    wants(&text, &["╭─[reports.rs:", "tp.register(r, &x)?; // one rank alone", "╰── rank 0"]);
}

#[test]
fn a_waiver_is_repeated_and_must_waive_something() {
    let program = || {
        Program::new(2, |r| {
            let tp = r.comm("tp", r.world())?;
            let x = r.mem_alloc("x", 4 * MIB)?;
            let window = tp.register(r, &x)?;
            tp.deregister(r, &window)?;
            tp.deregister(r, &window)?;
            r.expect(&x, "never", 0, None)
        })
    };
    program().expect(fails(Rule::Win9).also(Rule::Mem5));
    let reason = "the buffer is filled by a later step";
    let waived = program().waive(Rule::Mem5, reason).expect(fails(Rule::Win9));
    wants(&report::text(&waived), &[&format!("waived    MEM-5: {reason}")]);
    let both = program().waive(Rule::Mem5, reason).waive(Rule::Win9, "it is refused").expect(holds());
    wants(&report::text(&both), &["HOLDS", "WIN-9: it is refused", reason]);
    let vain = program().waive(Rule::Mem5, reason).waive(Rule::Ipc3, "no").check().expect("it is a program");
    assert_eq!(vain.unexpected.as_deref().map(|why| why.contains("waives IPC-3")), Some(true));
    let vain = Program::new(2, |r| r.barrier(None)).waive(Rule::Ipc3, "no").check().expect("a program");
    assert_eq!(vain.unexpected.as_deref(), Some("waives IPC-3, which no run breaks"));
}
