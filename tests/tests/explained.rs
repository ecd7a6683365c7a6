//! An explained run says who met whom, what is ordered after what, and who is blocked and waits for whom.
//!
//! Not here: how a report shows it.

use std::collections::BTreeSet;

use rankcheck::closure::{Builder, Flow, Program};
use rankcheck::search::{Detail, Lane, Located, Options, Replayed, Step, search};
use rankcheck::spec::{load, spec_files};
use rankcheck_model::{Rank, Thread};

const KIB: u64 = 1 << 10;

/// The only run of a program without choices that breaks a rule.
fn run(ranks: u32, body: impl Fn(&Builder) -> Flow + Send + Sync + 'static) -> Replayed {
    let explained = Program::new(ranks, body).check().expect("the program is good");
    explained.counterexample.expect("it breaks a rule").run
}

/// An operation by its rank and text, with those it is found beside.
fn named(run: &Replayed, at: &Located) -> String {
    let text = run.operation(at).map_or("nothing", |operation| &operation.text);
    format!("r{} {text}", at.op.rank.0)
}

/// The pairs of steps of other lanes that are ordered, in words.
fn ordered(run: &Replayed) -> BTreeSet<String> {
    let words = |step: &Step| {
        let on = match &step.lane {
            Lane::Thread(_, Thread(0)) => String::new(),
            Lane::Thread(_, thread) => format!(" on thread {}", thread.0),
            Lane::Stream(_, stream) => format!(" on {stream}"),
        };
        format!("{}{on}", named(run, &step.at))
    };
    let pairs = run.order.iter();
    pairs
        .map(|(before, after)| format!("{} < {}", words(&run.steps[*before]), words(&run.steps[*after])))
        .collect()
}

fn partners(run: &Replayed, rank: u32, text: &str) -> Vec<String> {
    let operation = run.operations.iter().find(|o| o.at.op.rank == Rank(rank) && o.text == text);
    let operation = operation.unwrap_or_else(|| {
        let known: Vec<&str> = run.operations.iter().map(|o| o.text.as_str()).collect();
        panic!("rank {rank} does no {text}, but {known:?}")
    });
    run.partners(&operation.at).into_iter().map(|at| named(run, at)).collect()
}

#[test]
fn a_collective_and_a_transfer_have_partners() {
    let run = run(3, |r| {
        let tp = r.comm("tp", r.world())?;
        let x = r.malloc("x", KIB)?;
        tp.all_reduce(r, &x)?;
        match r.rank() {
            0 => tp.send(r, &x, 2).map(|_| ())?,
            2 => tp.recv(r, &x, 0).map(|_| ())?,
            _ => {}
        }
        r.synchronize()?;
        if r.rank() == 1 { Ok(()) } else { tp.all_reduce(r, &x).map(|_| ()) }
    });
    assert_eq!(partners(&run, 0, "tp.init"), ["r1 tp.init", "r2 tp.init"]);
    assert_eq!(partners(&run, 0, "tp.send(x, 2)"), ["r2 tp.recv(x, 0)"]);
    assert_eq!(partners(&run, 2, "tp.recv(x, 0)"), ["r0 tp.send(x, 2)"]);
    assert_eq!(partners(&run, 0, "device.synchronize"), Vec::<String>::new());
    // The last collective met nobody, and stands on the streams of both.
    let blocked: Vec<(String, &str)> =
        run.blocked.iter().map(|b| (named(&run, &b.at), b.text.as_str())).collect();
    assert_eq!(
        blocked,
        [
            ("r0 tp.all_reduce(x)".to_owned(), "on the GPU in a collective of tp"),
            ("r2 tp.all_reduce(x)".to_owned(), "on the GPU in a collective of tp"),
        ]
    );
    for blocked in &run.blocked {
        assert_eq!(blocked.lane, Lane::Stream(blocked.at.op.rank, "default".to_owned()));
        assert_eq!(blocked.waits_in_vain_for, [Rank(1)]);
        assert_eq!(blocked.waits_for, []);
        assert_eq!(run.operation(&blocked.at).and_then(|o| o.stream.as_deref()), Some("default"));
    }
}

/// What nothing in a program orders does not end up ordered, and what something orders does, once.
#[test]
fn order_is_told_where_it_comes_from() {
    let run = run(2, |r| {
        let (side, ready) = (r.stream("side"), r.event("ready"));
        let x = r.malloc("x", KIB)?;
        if r.rank() == 0 {
            r.kernel("fill", &[], &[&x], Some(&side))?;
            ready.record(r, Some(&side))?;
            r.stream("main").wait(r, &ready)?;
            r.kernel("scale", &[&x], &[&x], Some(&r.stream("main")))?;
            r.stream("main").synchronize(r)?;
            r.store_set("done", 1)?;
        } else {
            r.store_get("done")?;
            r.step("after")?;
        }
        x.free(r, None)?;
        x.free(r, None)
    });
    let expected = [
        // A call comes before what it leaves on its stream.
        "r0 kernel fill < r0 kernel fill on side",
        "r0 ready.record(side) < r0 ready.record(side) on side",
        "r0 main.wait(ready) < r0 main.wait(ready) on main",
        "r0 kernel scale < r0 kernel scale on main",
        "r0 ready.record(side) on side < r0 main.wait(ready) on main",
        "r0 kernel scale on main < r0 main.synchronize",
        "r0 store.set(done, 1) < r1 store.get(done)",
    ];
    assert_eq!(ordered(&run), expected.map(str::to_owned).into());
}

#[test]
fn a_cycle_names_whom_each_waits_for() {
    let run = run(2, |r| {
        let (a, b) = (r.comm("a", r.world())?, r.comm("b", r.world())?);
        let x = r.malloc("x", KIB)?;
        let (first, second) = if r.rank() == 0 { (&a, &b) } else { (&b, &a) };
        first.all_reduce(r, &x)?;
        second.all_reduce(r, &x)?;
        Ok(())
    });
    let blocked: Vec<(String, Vec<String>)> = run
        .blocked
        .iter()
        .map(|b| (named(&run, &b.at), b.waits_for.iter().map(|at| named(&run, at)).collect()))
        .collect();
    let expected =
        [("r0 a.all_reduce(x)", ["r1 b.all_reduce(x)"]), ("r1 b.all_reduce(x)", ["r0 a.all_reduce(x)"])];
    assert_eq!(blocked, expected.map(|(at, other)| (at.to_owned(), other.map(str::to_owned).to_vec())));
}

/// A thread begins after the call that starts it, and a wait for the device ends after what ran there: of what met, after what ran
/// on its own rank.
#[test]
fn threads_and_waits_come_after_what_they_wait_for() {
    let run = run(2, |r| {
        let c = r.comm("c", r.world())?;
        let x = r.malloc("x", KIB)?;
        let thread = {
            let (c, x) = (c.clone(), x.clone());
            r.thread("t", move |r| {
                c.all_reduce(r, &x)?;
                r.synchronize()
            })?
        };
        thread.join(r)?;
        if r.rank() == 0 {
            c.all_reduce(r, &x)?;
        }
        Ok(())
    });
    let ordered = ordered(&run);
    for wanted in [
        "r0 thread < r0 c.all_reduce(x) on thread 1",
        "r0 c.all_reduce(x) on default < r0 device.synchronize on thread 1",
        "r1 c.all_reduce(x) on default < r1 device.synchronize on thread 1",
        "r0 device.synchronize on thread 1 < r0 thread 1.join",
    ] {
        assert!(ordered.contains(wanted), "{wanted} in {ordered:#?}");
    }
}

/// Of the counterexamples to all rules: steps stand in an order in which they can have happened, those that met are of
/// several ranks or of a rank that sends to itself, and what is blocked is an operation of the run.
#[test]
fn every_counterexample_is_consistent() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/rules");
    let (mut runs, mut orders, mut meetings, mut blocked) = (0, 0, 0, 0);
    for file in spec_files(&[root]).0 {
        let spec = load(&file).expect("a good spec");
        for check in &spec.checks {
            let explained = search(&spec, check, &Options::telling(Detail::Run)).expect("it evaluates");
            let Some(shown) = explained.counterexample else { continue };
            let run = shown.run;
            runs += 1;
            orders += run.order.len();
            meetings += run.meetings.len();
            blocked += run.blocked.len();
            for (before, after) in &run.order {
                assert!(
                    before < after,
                    "{}: {:?} after {:?}",
                    check.name,
                    run.steps[*before],
                    run.steps[*after]
                );
                assert_ne!(run.steps[*before].lane, run.steps[*after].lane, "{}", check.name);
            }
            for meeting in &run.meetings {
                let steps: BTreeSet<usize> = meeting.iter().copied().collect();
                assert!(steps.len() > 1, "{}: {meeting:?}", check.name);
            }
            for step in &run.steps {
                assert!(run.operation(&step.at).is_some(), "{}: {step:?}", check.name);
            }
            for blocked in &run.blocked {
                assert!(run.operation(&blocked.at).is_some(), "{}: {blocked:?}", check.name);
                for other in &blocked.waits_for {
                    assert!(run.blocked_at(other).is_some(), "{}: {other:?}", check.name);
                }
            }
        }
    }
    println!("{runs} counterexamples: {orders} pairs in order, {meetings} meetings, {blocked} blocked");
    assert!([runs, orders, meetings, blocked].iter().all(|count| *count > 50));
}
