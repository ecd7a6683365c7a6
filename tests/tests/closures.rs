//! Closures and specs do the same, verb by verb; and what is wrong with a closure is told.
//!
//! Not here: whether what they do is right.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use rankcheck_model::describe::{NamesOf, description};
use rankcheck_model::{Answer, Op, Question, Rank, Source, Symmetry, Terminator, ThreadOp, ThreadStart};

use rankcheck::closure::{
    BlockRequest, Buffer, Builder, Caching, Capture, CaptureMode, Comm, Dtype, Flow, IpcHandle, MapOrder,
    MemoryKind, Payload, Platform, Program, ReduceOp, Rule, SizeClasses, TieBreak, Verdict, Window,
    WindowFlags, fails, holds,
};
use rankcheck::report;
use rankcheck::spec::{Param, SpecSource, load};
use rankcheck_tests::repository::enter;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn source(ranks: u32, body: impl Fn(&Builder) -> Flow + Send + Sync + 'static) -> SpecSource {
    Program::new(ranks, body).source(ranks, &[]).expect("it has no parameters")
}

/// What a thread does with these answers, and how many can be given to what it asks then.
fn told(
    (source, names): (&SpecSource, &NamesOf<'_>),
    rank: u32,
    start: ThreadStart,
    answers: &[Answer],
) -> (Vec<String>, Vec<ThreadStart>, u32) {
    let block = source.block(Rank(rank), start, answers).expect("both are programs");
    let mut words: Vec<String> = block.ops.iter().map(|op| description(&op.op, names)).collect();
    let started = block.ops.iter().filter_map(|op| {
        if let Op::Thread(ThreadOp::Spawn { start }) = &*op.op { Some(*start) } else { None }
    });
    let started = started.collect();
    let Terminator::Ask(question, _) = &block.terminator else { return (words, started, 0) };
    words.push(description(question, names));
    let options = if let Question::Choose { options, .. } = question {
        u32::try_from(options.len()).expect("few")
    } else if matches!(question, Question::MapItems { .. } | Question::ListLen { .. } | Question::Trimmed(_))
    {
        3
    } else {
        2
    };
    (words, started, options)
}

/// Walks both with the same answers, taken from the digits of a number.
fn assert_same(spec: &SpecSource, closure: &SpecSource, rank: u32, walk: u32) {
    let (spec, closure) = ((spec, &NamesOf::new(spec)), (closure, &NamesOf::new(closure)));
    // A function of a spec and a closure are told apart, so each program has starts of its own.
    let (mut open, mut known) = (vec![(ThreadStart(0), ThreadStart(0))], BTreeSet::new());
    while let Some(starts) = open.pop() {
        if !known.insert(starts) {
            continue;
        }
        let mut answers = Vec::new();
        loop {
            let (words, started, options) = told(spec, rank, starts.0, &answers);
            let of_closure = told(closure, rank, starts.1, &answers);
            let alike = (&words, started.len(), options) == (&of_closure.0, of_closure.1.len(), of_closure.2);
            assert!(alike, "rank {rank}, after {answers:?}: {words:?}, {of_closure:?}");
            open.extend(started.into_iter().zip(of_closure.1));
            let Some(digit) = (walk >> (2 * answers.len() as u32 % 30)).checked_rem(options) else { break };
            answers.push(digit);
        }
    }
}

fn leaf(r: &Builder, window: &Window) -> Flow {
    r.map("seen", MapOrder::Insertion).put(r, window, ())
}

fn worker(r: &Builder, window: &Window, key: &str, n: i64) -> Flow {
    r.step(&format!("worker {n}"))?;
    r.mutex("m").locked(r, || r.step(key))?;
    let window = window.clone();
    r.thread("inner", move |r| leaf(r, &window))?;
    Ok(())
}

fn everything(r: &Builder) -> Flow {
    let tp = r.comm("tp", r.world())?;
    let ep = tp.split(r, "ep", Some(0))?;
    let tracked = r.map("tracked", MapOrder::Hash);
    let done = r.list("done");
    let caching = Caching::named("symm")
        .classes(SizeClasses::Torch)
        .tie(TieBreak::Address)
        .on_segment(move |r, s| tracked.put(r, s.address(), s))
        .on_segment_free(move |r, s| tracked.pop(r, s.address()).map(|_| ()));
    let pool = r.pool(caching)?;
    let (s, e) = (r.stream("side"), r.event("ready"));
    let x = r.require(pool.alloc(r, BlockRequest::from(("x", 4 * MIB)).on(&s))?)?;
    for (address, segment) in tracked.items(r)? {
        if !tracked.has(r, (&address, tp.address()))? {
            let w = tp.register(r, &segment)?;
            done.push(r, &w)?;
        }
    }
    for w in done.items(r)? {
        tp.deregister(r, &Window::from(&w))?;
    }
    let window = tp.register_with(r, x.slice(r, 512..4096)?, WindowFlags::Default)?;
    tp.register(r, Buffer::null())?;
    tp.register(r, x.slice(r, 0..0)?)?;
    tp.all_reduce(r, Payload::of(&x).symmetric())?;
    tp.all_gather(r, Payload::of(x.slice(r, 0..MIB)?).recv(&x).dtype(Dtype::Bf16).on(&s))?;
    tp.reduce_scatter(r, Payload::of(&x).recv(x.slice(r, 0..2 * MIB)?).op(ReduceOp::Max))?;
    let (low, high, few) = (x.slice(r, 0..MIB)?, x.slice(r, MIB..2 * MIB)?, x.slice(r, 0..KIB)?);
    tp.all_to_all(r, Payload::of(&low).recv(&high).count(16))?;
    tp.gather(r, (&few, &high), 1)?;
    tp.scatter(r, (&high, &few), 1)?;
    tp.broadcast(r, (&few, &high), 1)?;
    tp.broadcast(r, Payload::of(&x).count(4), 1)?;
    tp.reduce(r, Payload::of(&x).recv(x.slice(r, 4096..8192)?).count(4).op(ReduceOp::Max), 1)?;
    if tp.has_window(r, &x)? && r.grew(&x)? && r.equal(x.address(), x.segment().address())? {
        r.reach("hit")?;
    }
    r.kernel("k", &[&x], &[&x.slice(r, 0..512)?], Some(&s))?;
    e.record(r, Some(&s))?;
    s.wait(r, &e)?;
    s.synchronize(r)?;
    e.synchronize(r)?;
    if e.query(r)? {
        r.step("done")?;
    }
    r.synchronize()?;
    if r.may("no segment is freed before the pool")? {
        pool.trim(r)?;
    }
    pool.havoc(r, 2, Some(&[2 * MIB, 20 * MIB]))?;
    let m = r.mutex("m");
    m.lock(r)?;
    m.unlock(r)?;
    r.store_set("key", "value")?;
    if r.truth(r.all_agree(true, None)?)? && r.failed(r.store_get("key")?)? {
        r.store_delete("key")?;
    }
    r.flag("f").write(r, 1, None)?;
    r.flag("f").wait(r, 1, None)?;
    let t = r.thread("worker", move |r| worker(r, &window, "step", 1))?;
    t.join(r)?;
    r.group(|| tp.all_reduce(r, &x))?;
    r.group_start()?;
    r.group_end()?;
    r.barrier(None)?;
    r.steady()?;
    r.measure("tokens", r.choose("tokens", &[3, 5])?)?;
    r.measure("len", done.len(r)?)?;
    done.set(r, 0, 1)?;
    if r.number(done.get(r, 0)?)? == 7 {
        done.pop(r)?;
    }
    done.clear(r)?;
    tracked.get(r, x.address(), &x)?;
    tracked.clear(r)?;
    let raised: Result<(), String> =
        r.attempt(|| r.context(|| r.step("enter"), || r.step("leave"), || r.raises("no")))?;
    assert_eq!(raised, Err("no".to_owned()));
    r.malloc("y", KIB)?;
    r.mem_alloc("z", x.len_bytes().expect("of a block it is known"))?;
    r.mem_create("v", KIB)?;
    x.free(r, Some(&e))?;
    ep.finalize(r)?;
    ep.destroy(r)?;
    if r.rank() == 1 {
        return r.exit("bye");
    }
    r.raises("uncaught")
}

fn peers(r: &Builder) -> Flow {
    let tp = r.comm_split_share("tp", r.world())?;
    if r.size() > 1 {
        r.step("not alone")?;
    }
    let (x, y) = (r.malloc("x", 4 * KIB)?, r.malloc("y", 4 * KIB)?);
    let s = r.stream("side");
    let (sent, received) = r.group(|| {
        let sent = tp.send(r, Payload::of(&x).count(4).on(&s), 1)?;
        Ok((sent, tp.recv(r, Payload::of(&y).dtype(Dtype::I8), 0)?))
    })?;
    r.overlap(sent, received)?;
    r.copy(&y, x.slice(r, 0..8)?, None)?;
    r.copy(&y, &x, Some(&s))?;
    r.expect(&y, "k", 1, Some(&s))?;
    r.expect_gathered(&y, &x, &tp, None)?;
    r.expect_reduced(&y, "k", (&tp, ReduceOp::Max), Some(&s))?;
    for mapping in r.exchange("peers", &x, Some(&[0, 1]))? {
        r.copy(&y, mapping.at(&x.slice(r, 0..8)?), None)?;
    }
    r.store_set("handle", r.ipc_export(&x)?)?;
    let mapping = r.ipc_open(&IpcHandle::from(&r.store_get("handle")?))?;
    r.kernel("k", &[&mapping], &[&y], None)?;
    r.ipc_close(&mapping)?;
    let g = r.graph("g");
    let pool = r.pool(Caching::named("cached").memory(MemoryKind::Cuda))?;
    g.begin(r, Capture::default().on(&s).mode(CaptureMode::Relaxed).pool(&pool))?;
    let block = pool.alloc(r, 512)?;
    if r.failed(g.end(r)?)? {
        r.reach("invalid")?;
    }
    g.replay(r, None)?;
    g.destroy(r)?;
    pool.trim(r)?;
    pool.havoc(r, 1, None)?;
    let f = r.flag("f");
    f.write(r, 1, Some(&s))?;
    f.wait_at_least(r, 2, None)?;
    f.swap(r, 1, 2, Some(&s))?;
    let m = r.map("m", MapOrder::Insertion);
    m.put(r, "k", (1, true))?;
    let held = m.pop(r, "k")?;
    let l = r.list("l");
    l.push(r, &held)?;
    l.push(r, block.segment())?;
    if r.choose("again", &["True", "False"])? == "True" {
        r.event("e").record(r, None)?;
    }
    r.barrier(Some(&[0, 1]))?;
    if r.truth(r.all_agree(&held, Some(&[1, 0]))?)? {
        r.require(l.pop(r)?)?;
    }
    let kept = r.map("kept", MapOrder::Insertion);
    kept.put(r, "comm", &tp)?;
    Comm::from(&kept.get(r, "comm", ())?).destroy(r)
}

#[test]
fn every_verb_does_the_same_in_both() {
    let path = enter().join("tests/well_formed/everything.star");
    let spec = load(&path).unwrap_or_else(|error| panic!("{}", error.drawn()));
    let of = |name: &str| spec.checks.iter().find(|check| check.name == name).expect("it has this check");
    let order = [("order".to_owned(), Param::from("hash"))];
    let same = |ranks| of("same").source(ranks, &order, &[]).expect("its one parameter");
    let alone = |ranks| of("peers").source(ranks, &[], &[]).expect("it has no parameters");
    let closure = |ranks| {
        let program = Program::new(ranks, peers).declares_overlap();
        program.source(ranks, &[]).expect("it has no parameters")
    };
    for walk in [0, u32::MAX].into_iter().chain((1..40).map(|n: u32| n.wrapping_mul(0x9e37_79b9))) {
        for rank in 0..2 {
            assert_same(&same(2), &source(2, everything), rank, walk);
            assert_same(&alone(2), &closure(2), rank, walk);
        }
    }
    assert_eq!(alone(2).symmetry(), closure(2).symmetry());
}

#[test]
fn impure_evaluation_is_an_error_at_the_question() {
    let times = AtomicU32::new(0);
    let program = source(2, move |r| {
        r.step(&times.fetch_add(1, Ordering::Relaxed).to_string())?;
        r.choose("which", &["a", "b"])?;
        Ok(())
    });
    program.block(Rank(0), ThreadStart(0), &[]).expect("the first evaluation has nothing to differ from");
    let error = program.block(Rank(0), ThreadStart(0), &[0]).expect_err("the second does another step");
    assert!(error.message.starts_with("impure evaluation"), "{error}");
    assert_eq!(error.loc.map(|loc| loc.file).as_deref(), Some("tests/tests/closures.rs"));
}

#[test]
fn a_block_is_what_comes_after_the_last_answer() {
    let program = source(2, |r| {
        r.step("before")?;
        if r.choose("which", &["a", "b"])? == "b" {
            return r.raises("b is wrong");
        }
        r.step("after")
    });
    let ops = |answers: &[Answer]| told((&program, &NamesOf::new(&program)), 1, ThreadStart(0), answers).0;
    assert_eq!(ops(&[0]).len(), 1, "{:?}", ops(&[0]));
    assert!(ops(&[0])[0].contains("after") && ops(&[1])[0].contains("b is wrong"));
    assert!(ops(&[])[0].contains("before"));
    assert_eq!(program.symmetry(), Symmetry::Interchangeable);
}

/// What is wrong with a closure, and the line.
fn wrong(body: impl Fn(&Builder) -> Flow + Send + Sync + 'static) -> (String, u32) {
    let error = Program::new(2, body).check().expect_err("the closure is wrong");
    (error.to_string(), error.loc().expect("it has a place").line)
}

#[test]
fn what_is_wrong_with_a_closure_is_told_at_its_line() {
    let back = Range { start: 9, end: 4 };
    let line = line!();
    let cases = [
        (wrong(|r| r.comm("tp", [0, 2]).map(|_| ())), "there is no rank 2"),
        (wrong(|r| r.comm("tp", [0, 0]).map(|_| ())), "rank 0 is listed twice"),
        (wrong(|r| r.choose::<i32>("none", &[]).map(|_| ())), "nothing to choose from"),
        (wrong(move |r| r.malloc("x", 8)?.slice(r, back.clone()).map(|_| ())), "before it starts: [9:4]"),
        (wrong(|r| r.comm("c", r.world())?.all_reduce(r, &r.malloc("x", 7)?).map(|_| ())), "`x` has 7 bytes"),
        (wrong(|r| r.comm("c", r.world())?.all_gather(r, &r.malloc("x", 8)?).map(|_| ())), "has no output"),
    ];
    for (nth, ((message, at), expected)) in cases.into_iter().enumerate() {
        assert!(message.contains(expected), "{message}");
        assert_eq!(at, line + 2 + u32::try_from(nth).expect("few"), "{message}");
    }
    let endless = |r: &Builder| {
        loop {
            r.step("endless")?;
        }
    };
    assert!(wrong(endless).0.contains("more than 1000000 operations"));
}

#[test]
fn a_panic_of_a_closure_is_an_error_and_not_a_finding() {
    let (message, _) = wrong(|_| panic!("by itself"));
    assert_eq!(message, "the program panicked: by itself");
}

#[test]
fn a_leader_that_dies_takes_its_job_along() {
    let leader = |r: &Builder| {
        if r.rank() != 0 {
            return r.store_get(if r.rank() == 1 { "one" } else { "two" }).map(drop);
        }
        if r.choose("the disk is full", &[false, true])? {
            return r.exit("no space left");
        }
        r.store_set("one", 1)?;
        r.store_set("two", 1)
    };
    let verdict = |program: Program| program.check().expect("it is a program").run().verdict.clone();
    let alone = verdict(Program::new(3, leader));
    assert!(matches!(alone, Verdict::Fails { primary: Rule::Store1, .. }), "{alone:?}");
    assert_eq!(verdict(Program::new(3, leader).job_ends_with_a_rank()), Verdict::Holds);
}

/// An error in a thread ends that thread: its process lives as long as its program does, or another of its threads.
#[test]
fn a_thread_that_raises_takes_nobody_along() {
    let fails = |in_thread: bool| {
        let program = move |r: &Builder| {
            if r.rank() != 0 {
                return r.store_get("go").map(drop);
            }
            let thread = r.thread("loader", move |r| match in_thread {
                true => r.exit("bad input"),
                false => r.store_get("never").map(drop),
            })?;
            if in_thread { thread.join(r) } else { r.exit("bad input") }
        };
        let program = Program::new(2, program).job_ends_with_a_rank();
        program.check().expect("it is a program").run().verdict.clone()
    };
    for in_thread in [true, false] {
        let verdict = fails(in_thread);
        assert!(matches!(verdict, Verdict::Fails { primary: Rule::Store1, .. }), "{in_thread}: {verdict:?}");
    }
}

#[test]
fn a_peer_reads_what_its_owner_released() {
    let kinds = [MemoryKind::Cuda, MemoryKind::CuMem, MemoryKind::Nccl];
    for kind in kinds {
        // The segments of a pool go back to the driver while the next rank has one mapped.
        let trims = move |r: &Builder| {
            let pool = r.pool(Caching::named("symm").memory(kind))?;
            let (x, out) = (pool.alloc(r, ("x", MIB))?, r.malloc("out", MIB)?);
            let peers = r.exchange("x", &x, None)?;
            x.free(r, None)?;
            pool.trim(r)?;
            r.barrier(None)?;
            let next = (r.rank() + 1) % r.size();
            r.copy(&out, peers[next as usize].slice(r, 0..MIB)?, None)
        };
        let verdict = Program::new(2, trims).check().expect("it is a program").run().verdict.clone();
        match kind {
            MemoryKind::Cuda => {
                assert!(matches!(verdict, Verdict::Fails { primary: Rule::Ipc3, .. }), "{verdict:?}")
            }
            MemoryKind::CuMem | MemoryKind::Nccl => assert_eq!(verdict, Verdict::Holds, "{kind:?}"),
        }
    }
}

#[test]
fn overlap_is_declared_before_it_is_used() {
    let overlapping = |r: &Builder| {
        let tp = r.comm("tp", r.world())?;
        let x = r.malloc("x", MIB)?;
        let (one, other) = (tp.all_reduce(r, &x)?, tp.all_reduce(r, &x)?);
        r.overlap(one, other)
    };
    let error = Program::new(2, overlapping).check().expect_err("it does not say so");
    assert_eq!(error.to_string(), "this program does not say that it declares overlap");
    Program::new(2, overlapping).declares_overlap().check().expect("it says so");
}

#[test]
fn the_report_of_a_closure_names_its_lines() {
    let late = |r: &Builder| {
        let tp = r.comm("tp", r.world())?;
        let x = r.malloc("x", MIB)?;
        if r.choose("late", &[true, false])? {
            tp.all_reduce(r, &x)?;
        }
        r.synchronize()
    };
    let program = Program::new([2, 3], late).named("late");
    let explained = program.check().expect("it is a program");
    let Verdict::Fails { primary, .. } = &explained.run().verdict else { panic!("ranks differ") };
    let report = report::text(&explained);
    assert!(report.starts_with(&format!("FAILS {primary}  closures.rs \"late\"   2 ranks")), "{report}");
    assert!(report.contains("(closures.rs:"), "{report}");
    let (unexpected, expected) = (
        program.clone(),
        program.expect(
            fails(*primary)
                .outcome(Platform::default(), explained.run().ends.iter().map(|end| end.outcome.class)),
        ),
    );
    assert_eq!(expected.counterexample, explained.counterexample);
    let panicked = catch_unwind(AssertUnwindSafe(|| unexpected.expect(holds()))).expect_err("it fails");
    let text = panicked.downcast_ref::<String>().expect("a report");
    assert!(text.contains("NOT AS EXPECTED  expected to hold, but it fails"), "{text}");
}

#[test]
fn threads_of_equal_ranks_start_at_the_same_entry() {
    let program = source(2, |r| {
        let which = r.choose("which", &["a", "b"])?;
        r.thread("t", move |r| r.step(which))?.join(r)
    });
    let known = (&program, &NamesOf::new(&program));
    let started = |rank, answer| told(known, rank, ThreadStart(0), &[answer]).1;
    assert_eq!(started(0, 0), started(1, 0));
    assert_ne!(started(0, 0), started(0, 1), "they captured something else");
    let start = *started(1, 1).first().expect("one is started");
    assert!(told(known, 1, start, &[]).0[0].contains('b'));
}

#[test]
fn programs_with_other_operations_are_told_apart() {
    let step = |label: &'static str| move |r: &Builder| r.step(label);
    Program::new(2, step("a")).expect_same_operations(step("a"));
    let other = || Program::new(2, step("a")).expect_same_operations(step("b"));
    catch_unwind(other).expect_err("their steps differ");
}
