//! Closures within ordinary tests: they call the code under test.

use in_your_crate::{Turn, ring};
use rankcheck::closure::{Builder, Buffer, Comm, Flow, Program, Rule, fails, holds};

const MIB: u64 = 1 << 20;

fn take_turn(r: &Builder, comm: &Comm, turn: Turn, (to, from): (&Buffer, &Buffer)) -> Flow {
    match turn {
        Turn::Send(peer) => comm.send(r, to, peer)?,
        Turn::Receive(peer) => comm.recv(r, from, peer)?,
    };
    Ok(())
}

/// A ring exchange; what a rank does is up to the crate.
fn exchange(r: &Builder, comm: &Comm) -> Flow {
    let (x, y) = (r.malloc("x", MIB)?, r.malloc("y", MIB)?);
    for turn in ring(r.rank(), r.size()) {
        take_turn(r, comm, turn, (&x, &y))?;
    }
    Ok(())
}

#[test]
fn in_a_group_the_ring_holds() {
    let program = |r: &Builder| {
        let comm = r.comm("ring", r.world())?;
        r.group(|| exchange(r, &comm))?;
        r.synchronize()
    };
    Program::new([2, 3, 4], program).expect(holds());
}

/// Everybody sends first, to a rank that it has not talked to before: what connects them waits for both.
#[test]
fn without_a_group_everybody_sends_first() {
    let program = |r: &Builder| {
        let comm = r.comm("ring", r.world())?;
        exchange(r, &comm)?;
        r.synchronize()
    };
    let explained = Program::new(2, program).named("sends first").expect(fails(Rule::P2p3));

    // The counterexample is a value.
    let example = explained.counterexample.as_ref().expect("what fails has one");
    assert_eq!(example.broken.rule, Rule::P2p3);
    let sends = example.run.operations.iter().filter(|operation| operation.text.contains(".send("));
    assert!(sends.clone().count() > 0 && sends.clone().all(|send| send.at.loc.file.ends_with("ring.rs")));

    // And so is what a failing test prints.
    let report = rankcheck::report::text(&explained);
    assert!(report.starts_with("FAILS P2P-3  ring.rs \"sends first\"   2 ranks"), "{report}");
}

#[test]
fn whoever_expects_something_else_gets_the_report() {
    let unexpected = std::panic::catch_unwind(|| {
        Program::new(2, |r| {
            let comm = r.comm("ring", r.world())?;
            exchange(r, &comm)
        })
        .expect(holds())
    });
    let payload = unexpected.expect_err("it does not hold");
    let report = payload.downcast_ref::<String>().expect("a report");
    assert!(report.contains("NOT AS EXPECTED  expected to hold, but it fails P2P-3"), "{report}");
}
