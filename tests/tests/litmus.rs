//! Litmus tables: small programs, the exact set of their outcomes, and the number of states.
use std::collections::BTreeSet;
use std::sync::Arc;

use rankcheck::search::Bounds;
use rankcheck::search::explore::{Exploration, explore};
use rankcheck::search::naive;
use rankcheck_model::*;
use rankcheck_tests::script::Script;

fn all(ranks: u32) -> Arc<[Rank]> {
    (0..ranks).map(Rank).collect()
}

fn both(script: Script, config: Config) -> (Exploration, Exploration) {
    let source: Arc<dyn Source> = Arc::new(script);
    let reduced = explore(&source, config.clone(), &Bounds::default()).expect("a script evaluates");
    let naive = naive::explore(&source, config, &Bounds::default()).expect("a script evaluates");
    (reduced, naive)
}

fn all_reduce(s: &Script, comm: Operand, x: Operand, count: u64) -> Op {
    Op::Collective(Arc::new(Collective {
        kind: CollectiveKind::AllReduce,
        comm,
        send: x.clone(),
        recv: x,
        count,
        dtype: Dtype::F32,
        op: ReduceOp::Sum,
        stream: s.name("default"),
        declared: Declared::Nothing,
    }))
}

#[test]
fn rounds_of_all_reduce() {
    let ranks = 3;
    let mut s = Script::new(ranks as usize);
    for r in 0..ranks {
        let name = s.name("tp");
        let comm =
            s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(ranks), children: Resources::Own }));
        let x = s.name("x");
        let x = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        for _ in 0..3 {
            for _ in 0..3 {
                let label = s.name("local");
                s.push(r, 0, Op::Thread(ThreadOp::Step { label }));
            }
            let ar = all_reduce(&s, comm.clone(), x.clone(), 1 << 20);
            s.push(r, 0, ar);
            let stream = s.name("default");
            s.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
        }
    }
    let (reduced, naive) = both(s, Config::new(ranks));
    println!("reduced {} naive {} outcomes {:#?}", reduced.states, naive.states, reduced.outcomes.keys());
    assert_eq!(reduced.states, 1);
    assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
}

#[test]
fn opposite_registration_order() {
    let ranks = 2;
    let mut s = Script::new(ranks as usize);
    for r in 0..ranks {
        let name = s.name("tp");
        let comm =
            s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(ranks), children: Resources::Own }));
        let (a, b) = (s.name("a"), s.name("b"));
        let a = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: a, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        let b = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: b, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        let (first, second) = if r == 0 { (&a, &b) } else { (&b, &a) };
        for m in [first, second] {
            s.push(
                r,
                0,
                Op::Window(WindowOp::Register {
                    comm: comm.clone(),
                    memory: m.clone(),
                    flags: WindowFlags::CollSymmetric,
                }),
            );
        }
        let ar = all_reduce(&s, comm.clone(), a.clone(), 1 << 20);
        s.push(r, 0, ar);
        let stream = s.name("default");
        s.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
    }
    let (reduced, naive) = both(s, Config::new(ranks));
    println!("{:#?}", reduced.outcomes.keys());
    assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
}

/// An outcome in short: its class and the rules that it breaks.
fn short(outcome: &Outcome) -> String {
    let rules: BTreeSet<&str> = outcome.findings.iter().map(|(rule, _)| rule.id()).collect();
    let rules: Vec<&str> = rules.into_iter().collect();
    format!("{} {}", outcome.class.name(), rules.join(" ")).trim_end().to_owned()
}

/// Both semantics give exactly these outcomes, and the reduced one takes exactly so many states.
fn decides(script: Script, config: Config, outcomes: &[&str], states: u64) {
    let (reduced, naive) = both(script, config);
    println!("{} states reduced, {} naive; contended: {:?}", reduced.states, naive.states, reduced.contended);
    assert!(reduced.bound.is_none() && naive.bound.is_none(), "no bound is hit");
    let shorts = |exploration: &Exploration| exploration.outcomes.keys().map(short).collect::<BTreeSet<_>>();
    let wanted: BTreeSet<String> = outcomes.iter().map(|words| (*words).to_owned()).collect();
    assert_eq!((shorts(&reduced), shorts(&naive)), (wanted.clone(), wanted));
    assert!(reduced.outcomes.keys().eq(naive.outcomes.keys()), "the same outcomes in full");
    assert_eq!(reduced.states, states);
}

#[test]
fn a_read_may_be_enabled_by_either_of_two_writes() {
    let mut s = Script::new(3);
    let key = s.name("k");
    for r in 0..2 {
        s.push(r, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(r.into()) }));
    }
    let got = s.push(2, 0, Op::Store(StoreOp::Get { key }));
    let code = s.name("saw the second");
    s.ask(2, 0, Question::Truth(got), vec![Op::Thread(ThreadOp::Exit { code })]);
    decides(s, Config::new(3), &["finishes STORE-2", "dead STORE-2"], 11);
}

#[test]
fn a_poll_sees_a_running_kernel_or_its_end() {
    let mut s = Script::new(1);
    let (event, stream, name) = (s.name("e"), s.name("default"), s.name("work"));
    s.push(0, 0, Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: [].into(), stream }));
    s.push(0, 0, Op::Event(EventOp { event, stream }));
    let code = s.name("done");
    s.ask(0, 0, Question::EventQuery { event }, vec![Op::Thread(ThreadOp::Exit { code })]);
    decides(s, Config::new(1), &["finishes", "dead"], 3);
}

#[test]
fn a_poll_after_the_synchronize_sees_the_end() {
    let mut s = Script::new(1);
    let (event, stream, name) = (s.name("e"), s.name("default"), s.name("work"));
    s.push(0, 0, Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: [].into(), stream }));
    s.push(0, 0, Op::Event(EventOp { event, stream }));
    s.push(0, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
    let code = s.name("done");
    s.ask(0, 0, Question::EventQuery { event }, vec![Op::Thread(ThreadOp::Exit { code })]);
    decides(s, Config::new(1), &["dead"], 1);
}

#[test]
fn a_second_round_on_a_flag_may_overwrite_the_first() {
    let mut s = Script::new(2);
    let flag = s.name("ready");
    for (rank, act) in [(0, FlagAct::Write(1)), (0, FlagAct::Write(0)), (1, FlagAct::Wait(Test::Equal, 1))] {
        s.push(rank, 0, Op::Flag(FlagOp { flag, act, stream: None }));
    }
    decides(s, Config::new(2), &["finishes", "host hang FLAG-1"], 5);
}

#[test]
fn two_mutexes_in_opposite_order_deadlock_in_one_order_only() {
    let mut s = Script::new(1);
    let (m, n) = (s.name("m"), s.name("n"));
    s.thread(0);
    s.push(0, 0, Op::Thread(ThreadOp::Spawn { start: ThreadStart(1) }));
    for (thread, first, second) in [(0, m, n), (1, n, m)] {
        s.push(0, thread, Op::Mutex(MutexOp::Lock { mutex: first }));
        s.push(0, thread, Op::Mutex(MutexOp::Lock { mutex: second }));
        s.push(0, thread, Op::Mutex(MutexOp::Unlock { mutex: second }));
        s.push(0, thread, Op::Mutex(MutexOp::Unlock { mutex: first }));
    }
    decides(s, Config::new(1), &["finishes", "host hang MUTEX-1"], 21);
}

/// Blocking order never shows it, since the root waits here: only the clocks say that nothing orders them.
#[test]
fn the_root_of_a_broadcast_may_run_ahead() {
    let mut s = Script::new(2);
    let (name, x, key, stream) = (s.name("tp"), s.name("x"), s.name("k"), s.name("default"));
    s.push(0, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(0) }));
    for r in 0..2 {
        let comm = s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(2), children: Resources::Own }));
        let buffer = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        if r == 1 {
            let got = s.push(1, 0, Op::Store(StoreOp::Get { key }));
            let code = s.name("saw the second");
            s.ask(1, 0, Question::Truth(got), vec![Op::Thread(ThreadOp::Exit { code })]);
        }
        let Op::Collective(mut call) = all_reduce(&s, comm, buffer, 1 << 20) else {
            unreachable!("a collective")
        };
        Arc::make_mut(&mut call).kind = CollectiveKind::Broadcast { root: 0 };
        s.push(r, 0, Op::Collective(call));
        s.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
    }
    s.push(0, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(1) }));
    decides(s, Config::new(2), &["finishes STORE-2"], 4);
}

/// Nothing tells the others of a reduce that its root has come: the later of two writes may overtake it.
#[test]
fn the_others_of_a_reduce_may_run_ahead() {
    let mut s = Script::new(2);
    let (name, x, key, stream) = (s.name("tp"), s.name("x"), s.name("k"), s.name("default"));
    s.push(1, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(0) }));
    for r in 0..2 {
        let comm = s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(2), children: Resources::Own }));
        let buffer = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        if r == 0 {
            let got = s.push(0, 0, Op::Store(StoreOp::Get { key }));
            let code = s.name("saw the second");
            s.ask(0, 0, Question::Truth(got), vec![Op::Thread(ThreadOp::Exit { code })]);
        }
        let Op::Collective(mut call) = all_reduce(&s, comm, buffer, 1 << 20) else {
            unreachable!("a collective")
        };
        Arc::make_mut(&mut call).kind = CollectiveKind::Reduce { root: 0 };
        s.push(r, 0, Op::Collective(call));
        s.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
    }
    s.push(1, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(1) }));
    decides(s, Config::new(2), &["finishes STORE-2"], 4);
}

#[test]
fn a_block_reused_on_another_stream_races_with_the_kernel() {
    let mut s = Script::new(1);
    let (pool, stream, side, name) = (s.name("pool"), s.name("default"), s.name("side"), s.name("work"));
    let declared = Op::Pool(PoolOp::Declare {
        pool,
        classes: SizeClasses::Exact,
        tie: TieBreak::Counter,
        memory: MemoryKind::Nccl,
    });
    s.push(0, 0, declared);
    for on in [stream, side] {
        let block = s.push(0, 0, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 << 20, stream }));
        s.push(
            0,
            0,
            Op::Stream(StreamOp::Kernel {
                name,
                reads: [].into(),
                writes: [block.clone()].into(),
                stream: on,
            }),
        );
        s.push(0, 0, Op::Memory(MemoryOp::Free { buffer: block, after: None }));
    }
    decides(s, Config::new(1), &["undefined MEM-1 MEM-2"], 1);
}

#[test]
fn a_deferred_free_is_seen_or_not() {
    let mut s = Script::new(1);
    let (pool, stream, name, event) = (s.name("pool"), s.name("default"), s.name("x"), s.name("e"));
    let declared = Op::Pool(PoolOp::Declare {
        pool,
        classes: SizeClasses::Exact,
        tie: TieBreak::Counter,
        memory: MemoryKind::Nccl,
    });
    s.push(0, 0, declared);
    let block = s.push(0, 0, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 << 20, stream }));
    s.push(
        0,
        0,
        Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: [block.clone()].into(), stream }),
    );
    s.push(0, 0, Op::Event(EventOp { event, stream }));
    s.push(0, 0, Op::Memory(MemoryOp::Free { buffer: block, after: Some(event) }));
    let next = s.push(0, 0, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 << 20, stream }));
    let code = s.name("grew");
    s.ask(0, 0, Question::Grew(next), vec![Op::Thread(ThreadOp::Exit { code })]);
    decides(s, Config::new(1), &["finishes", "dead"], 3);
}

/// A group registers in one hash order of communicators on all ranks; what is not grouped in the order written.
#[test]
fn a_group_against_single_registrations_holds_in_one_hash_order() {
    let mut s = Script::new(2);
    for r in 0..2 {
        let (tp, ep, x) = (s.name("tp"), s.name("ep"), s.name("x"));
        let memory = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        let comms = [tp, ep].map(|name| {
            s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(2), children: Resources::Own }))
        });
        if r == 0 {
            s.push(r, 0, Op::Group(GroupOp::Start));
        }
        for comm in comms {
            let flags = WindowFlags::CollSymmetric;
            s.push(r, 0, Op::Window(WindowOp::Register { comm, memory: memory.clone(), flags }));
        }
        if r == 0 {
            s.push(r, 0, Op::Group(GroupOp::End));
        }
    }
    decides(s, Config::new(2), &["finishes", "host hang WIN-1"], 3);
}

/// N ranks that each choose one of two are N + 1 different ends, not 2^N.
#[test]
fn interchangeable_ranks_are_counted_once() {
    for ranks in 2..=4 {
        let program = |interchangeable| {
            let mut s = Script::new(ranks as usize);
            s.interchangeable = interchangeable;
            for r in 0..ranks {
                let options = [s.name("stay"), s.name("leave")].into();
                let (name, code) = (s.name("what"), s.name("left"));
                s.ask(r, 0, Question::Choose { name, options }, vec![Op::Thread(ThreadOp::Exit { code })]);
                s.push(r, 0, Op::Barrier(BarrierOp::Enter { members: all(ranks) }));
            }
            s
        };
        let (merged, naive) = both(program(true), Config::new(ranks));
        let (apart, _) = both(program(false), Config::new(ranks));
        println!("{ranks} ranks: {} ends instead of {}", merged.executions, apart.executions);
        assert_eq!((merged.executions, apart.executions), (u64::from(ranks) + 1, 1 << ranks));
        assert!(merged.broken.keys().eq(naive.broken.keys()) && apart.broken.keys().eq(naive.broken.keys()));
        let classes = |e: &Exploration| e.outcomes.keys().map(|o| o.class).collect::<BTreeSet<_>>();
        assert_eq!((classes(&merged), classes(&apart)), (classes(&naive), classes(&naive)));
    }
}

/// A registration that fails returns to nobody's window: a free by another thread comes before the call, while it is
/// under way, or after it, and each is another end.
#[test]
fn a_free_may_come_between_the_call_and_the_return_of_a_registration() {
    let mut s = Script::new(2);
    let tp = s.name("tp");
    for (rank, (name, len_bytes)) in [("a", 4 << 20), ("b", 8 << 20)].into_iter().enumerate() {
        let rank = u32::try_from(rank).expect("two ranks");
        let comm =
            s.push(rank, 0, Op::Comm(CommOp::Init { name: tp, members: all(2), children: Resources::Own }));
        let name = s.name(name);
        let memory =
            s.push(rank, 0, Op::Memory(MemoryOp::Alloc { name, len_bytes, memory: MemoryKind::Nccl }));
        if rank == 0 {
            s.thread(0);
            s.push(0, 0, Op::Thread(ThreadOp::Spawn { start: ThreadStart(1) }));
            s.push(0, 1, Op::Memory(MemoryOp::Free { buffer: memory.clone(), after: None }));
        }
        s.push(rank, 0, Op::Window(WindowOp::Register { comm, memory, flags: WindowFlags::CollSymmetric }));
    }
    let ends = ["undefined MEM-1 WIN-3", "error WIN-11 WIN-3", "error WIN-3"];
    decides(s, Config::new(2), &ends, 9);
}

/// A kernel reaches memory through windows that another rank's buffer was paired with. A free that nothing orders
/// with it is in flight, whichever comes first.
#[test]
fn a_free_races_with_a_kernel_that_comes_through_a_window() {
    let mut s = Script::new(2);
    let (tp, a, b) = (s.name("tp"), s.name("a"), s.name("b"));
    let flags = WindowFlags::CollSymmetric;
    for r in 0..2 {
        let comm =
            s.push(r, 0, Op::Comm(CommOp::Init { name: tp, members: all(2), children: Resources::Own }));
        let [a, b] = [a, b].map(|name| {
            s.push(r, 0, Op::Memory(MemoryOp::Alloc { name, len_bytes: 4 << 20, memory: MemoryKind::Nccl }))
        });
        let order = if r == 0 { [&b, &a] } else { [&a, &b] };
        for memory in order {
            s.push(
                r,
                0,
                Op::Window(WindowOp::Register { comm: comm.clone(), memory: memory.clone(), flags }),
            );
        }
        if r == 0 {
            s.thread(0);
            s.push(0, 0, Op::Thread(ThreadOp::Spawn { start: ThreadStart(1) }));
            s.push(0, 1, Op::Memory(MemoryOp::Free { buffer: b.clone(), after: None }));
        }
        let call = all_reduce(&s, comm, a, 1 << 20);
        s.push(r, 0, call);
    }
    decides(s, Config::new(2), &["undefined MEM-1 WIN-11 WIN-2"], 1);
}

/// Two ranks, each with a flag act on a stream: (rank, act).
fn on_streams(acts: &[(u32, FlagAct)]) -> Script {
    let mut s = Script::new(2);
    let (flag, stream) = (s.name("word"), s.name("s"));
    for (rank, act) in acts {
        s.push(*rank, 0, Op::Flag(FlagOp { flag, act: *act, stream: Some(stream) }));
    }
    s
}

/// A pair of swaps hands a word back and forth: every order is there, so nothing is a choice.
#[test]
fn swaps_that_take_turns_are_one_state() {
    let rounds = [(0, FlagAct::Swap { from: 0, to: 1 }), (1, FlagAct::Swap { from: 1, to: 0 })].repeat(5);
    let (reduced, naive) = both(on_streams(&rounds), Config::new(2));
    assert_eq!(reduced.states, 1);
    assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
    assert!(reduced.broken.is_empty());
}

/// A signal on a stream that is overwritten: the other stream looks before, or hangs.
#[test]
fn a_signal_on_a_stream_is_lost_or_seen() {
    let acts = [(0, FlagAct::Write(1)), (0, FlagAct::Write(0)), (1, FlagAct::Wait(Test::Equal, 1))];
    let (reduced, naive) = both(on_streams(&acts), Config::new(2));
    assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
    let classes: BTreeSet<Class> = reduced.outcomes.keys().map(|outcome| outcome.class).collect();
    assert_eq!(classes, BTreeSet::from([Class::Finishes, Class::GpuHang]));
    assert_eq!(reduced.broken.keys().collect::<Vec<_>>(), [&Rule::Flag1]);
}

/// What a rank reads through a mapping that its owner writes again, unless something orders the two.
#[test]
fn accesses_through_a_mapping_race_with_the_owners() {
    for ordered in [false, true] {
        let mut s = Script::new(2);
        let (name, stream, done) = (s.name("x"), s.name("default"), s.name("done"));
        for r in 0..2 {
            let verb = Op::Memory(MemoryOp::Alloc { name, len_bytes: 4096, memory: MemoryKind::Cuda });
            let x = s.push(r, 0, verb);
            let Operand::Slot(first) =
                s.push(r, 0, Op::Exchange(ExchangeOp { members: all(2), name, buffer: x.clone() }))
            else {
                unreachable!("an exchange produces slots")
            };
            let peer = Operand::Slot(Slot { index: first.index + 1 - r, ..first });
            let (kernel, act) = (s.name("use"), FlagAct::Wait(Test::Equal, 1));
            if r == 0 {
                if ordered {
                    s.push(r, 0, Op::Flag(FlagOp { flag: done, act, stream: Some(stream) }));
                }
                s.push(
                    r,
                    0,
                    Op::Stream(StreamOp::Kernel {
                        name: kernel,
                        reads: [].into(),
                        writes: [x].into(),
                        stream,
                    }),
                );
            } else {
                s.push(
                    r,
                    0,
                    Op::Stream(StreamOp::Kernel {
                        name: kernel,
                        reads: [peer].into(),
                        writes: [].into(),
                        stream,
                    }),
                );
                s.push(r, 0, Op::Flag(FlagOp { flag: done, act: FlagAct::Write(1), stream: Some(stream) }));
            }
        }
        let (reduced, naive) = both(s, Config::new(2));
        assert_eq!(reduced.states, 1);
        assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
        let broken: Vec<Rule> = reduced.broken.keys().copied().collect();
        assert_eq!(broken, if ordered { vec![] } else { vec![Rule::Mem2] });
    }
}

/// Two threads of each rank register on one communicator and launch on one stream, and nothing orders them: that is
/// found without trying how the calls interleave.
#[test]
fn concurrent_calls_are_found_in_few_states() {
    let ranks = 3;
    let mut s = Script::new(ranks as usize);
    for r in 0..ranks {
        let name = s.name("tp");
        let comm =
            s.push(r, 0, Op::Comm(CommOp::Init { name, members: all(ranks), children: Resources::Own }));
        s.thread(r);
        s.push(r, 0, Op::Thread(ThreadOp::Spawn { start: ThreadStart(1) }));
        for thread in [0, 1] {
            let (name, len_bytes) = (s.name("x"), 4 << 20);
            let memory = MemoryKind::Nccl;
            let x = s.push(r, thread, Op::Memory(MemoryOp::Alloc { name, len_bytes, memory }));
            let (comm, memory, flags) = (comm.clone(), x.clone(), WindowFlags::CollSymmetric);
            s.push(r, thread, Op::Window(WindowOp::Register { comm: comm.clone(), memory, flags }));
            let ar = all_reduce(&s, comm, x, 1 << 20);
            s.push(r, thread, ar);
        }
    }
    let source: Arc<dyn Source> = Arc::new(s);
    let explored = |concurrent_calls| {
        let config = Config { concurrent_calls, ..Config::new(ranks) };
        explore(&source, config, &Bounds::default()).expect("a script evaluates")
    };
    let one = explored(machine::ConcurrentCalls::InOneOrder);
    let every = explored(machine::ConcurrentCalls::InEveryOrder);
    for exploration in [&one, &every] {
        assert!(exploration.broken.contains_key(&Rule::Comm4));
        assert!(exploration.outcomes.keys().all(|outcome| outcome.data == Data::Undefined));
    }
    println!("{} states in one order, {} in every order", one.states, every.states);
    assert!(one.states * 20 < every.states, "{} states in one order, {} in every", one.states, every.states);
}
