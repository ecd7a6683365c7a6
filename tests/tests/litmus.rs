//! Litmus tables: small programs, the exact set of their outcomes, and the number of states.
use std::sync::Arc;

use rankcheck::explore::{Bounds, Exploration, explore};
use rankcheck::naive;
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

fn all_reduce(s: &Script, comm: Operand, x: Operand, count: u64) -> Verb {
    Verb::Collect(Arc::new(Collective {
        kind: CollectiveKind::AllReduce, comm, send: x.clone(), recv: x, count, dtype: Dtype::F32,
        op: ReduceOp::Sum, stream: s.name("default"), declared: Declared::Nothing,
    }))
}

#[test]
fn rounds_of_all_reduce() {
    let ranks = 3;
    let mut s = Script::new(ranks as usize);
    for r in 0..ranks {
        let name = s.name("tp");
        let comm = s.push(r, 0, Verb::CommInit { name, members: all(ranks) });
        let x = s.name("x");
        let x = s.push(r, 0, Verb::MemAlloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl });
        for _ in 0..3 {
            for _ in 0..3 {
                let label = s.name("local");
                s.push(r, 0, Verb::Step { label });
            }
            let ar = all_reduce(&s, comm.clone(), x.clone(), 1 << 20);
            s.push(r, 0, ar);
            let stream = s.name("default");
            s.push(r, 0, Verb::Synchronize { what: Operand::Stream(stream) });
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
        let comm = s.push(r, 0, Verb::CommInit { name, members: all(ranks) });
        let (a, b) = (s.name("a"), s.name("b"));
        let a = s.push(r, 0, Verb::MemAlloc { name: a, len_bytes: 4 << 20, memory: MemoryKind::Nccl });
        let b = s.push(r, 0, Verb::MemAlloc { name: b, len_bytes: 4 << 20, memory: MemoryKind::Nccl });
        let (first, second) = if r == 0 { (&a, &b) } else { (&b, &a) };
        for m in [first, second] {
            s.push(r, 0, Verb::Register { comm: comm.clone(), memory: m.clone(), flags: WindowFlags::CollSymmetric });
        }
        let ar = all_reduce(&s, comm.clone(), a.clone(), 1 << 20);
        s.push(r, 0, ar);
        let stream = s.name("default");
        s.push(r, 0, Verb::Synchronize { what: Operand::Stream(stream) });
    }
    let (reduced, naive) = both(s, Config::new(ranks));
    println!("{:#?}", reduced.outcomes.keys());
    assert_eq!(reduced.outcomes.keys().collect::<Vec<_>>(), naive.outcomes.keys().collect::<Vec<_>>());
}
