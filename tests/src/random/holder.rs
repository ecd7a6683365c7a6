//! Fragments about memory that somebody comes by later, or nobody: by a variable, a list, the store, a graph, a mapping.
//! What was done to it is decided before, and histories that differ in nothing else merge in between.
//! Not here: other fragments about memory ([`super::memory`], [`super::segments`]).

use rankcheck_model::{
    CaptureMode, FlagAct, FlagOp, GraphOp, ListOp, MapOp, MemoryKind, MemoryOp, Op, Operand, PoolOp,
    StreamOp, Test,
};

use super::answer::{choice, decide};
use super::builder::{At, Builder, MIB, first};
use super::draw::{Who, drawn};

drawn! {
    /// A rank does something to one of two buffers, and comes by the first of them later.
    pub(super) enum Fragment {
        1 => Held { rank: Who, made: Made, done: Done, holder: Holder, ends: Ends },
    }
}

drawn! {
    /// Where the buffers come from.
    pub(super) enum Made {
        3 => Cuda,
        1 => Pool,
    }
}

drawn! {
    /// What is done to one of the buffers.
    pub(super) enum Done {
        /// Which leaves nothing in it.
        4 => Read,
        2 => Written,
        1 => WrittenAndSynchronized,
        2 => Freed,
    }
}

drawn! {
    /// How somebody comes by a buffer.
    pub(super) enum Holder {
        1 => Nobody,
        2 => Variable,
        2 => List,
        1 => Map,
        1 => Store,
        2 => Mapping,
        /// Work waits on a stream.
        2 => Queue,
        2 => Graph,
        /// The rank allocates once more: perhaps at an address that was freed.
        1 => Address,
    }
}

drawn! {
    /// What follows then.
    pub(super) enum Ends {
        3 => Nothing,
        1 => Freed,
        1 => Allocates,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let Self::Held { rank, made, done, holder, ends } = self;
        let rank = b.rank(rank);
        let at = first(rank);
        let buffers = ["one", "other"].map(|name| make(b, at, made, name));
        let [x, y] = &buffers;
        let mappings = hold(b, at, x, holder);
        let question = choice(b, &["the first", "the other"]);
        b.ask(at, question, Vec::new());
        let (then, otherwise) = (does(b, y, done), does(b, x, done));
        b.recall(at, 0, then, otherwise);
        decide(b, at);
        comes_by(b, at, (x, &mappings), holder);
        match ends {
            Ends::Nothing => {}
            Ends::Freed => b.free(at, x),
            Ends::Allocates => {
                let z = make(b, at, made, "one");
                b.writes(at, "fill", &z, "default");
            }
        }
    }
}

fn make(b: &mut Builder, at: At, made: Made, name: &str) -> Operand {
    match made {
        Made::Cuda => b.alloc(at, name, MIB, MemoryKind::Cuda),
        Made::Pool => {
            let (pool, name, stream) = (b.name("held"), b.name(name), b.name("default"));
            b.push(at, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }))
        }
    }
}

fn does(b: &Builder, x: &Operand, done: Done) -> Vec<Op> {
    let kernel = |name, reads: &[Operand], writes: &[Operand]| {
        let (name, stream) = (b.name(name), b.name("side"));
        Op::Stream(StreamOp::Kernel { name, reads: reads.into(), writes: writes.into(), stream })
    };
    let x = std::slice::from_ref(x);
    match done {
        Done::Read => vec![kernel("scan", x, &[])],
        Done::Written => vec![kernel("fill", &[], x)],
        Done::WrittenAndSynchronized => {
            vec![kernel("fill", &[], x), Op::Stream(StreamOp::Synchronize { what: Operand::Device })]
        }
        Done::Freed => vec![Op::Memory(MemoryOp::Free { buffer: x[0].clone(), after: None })],
    }
}

/// Somebody gets hold of a buffer; returns who has mapped it.
fn hold(b: &mut Builder, at: At, x: &Operand, holder: Holder) -> Vec<(At, Operand)> {
    match holder {
        Holder::Nobody | Holder::Variable | Holder::Address => {}
        Holder::List => {
            let list = b.name("held");
            b.push(at, Op::List(ListOp::Push { list, value: x.clone() }));
        }
        Holder::Map => {
            let map = b.name("held");
            b.push(at, Op::Map(MapOp::Put { map, key: Operand::Int(1), value: x.clone() }));
        }
        Holder::Store => b.store(at, "held", x.clone()),
        Holder::Mapping => {
            let mut mappings = Vec::new();
            for rank in b.ranks() {
                let own = if rank == at.rank { x.clone() } else { make(b, first(rank), Made::Cuda, "lent") };
                let all = b.exchange(rank, "lent", own);
                if rank != at.rank {
                    mappings.push((first(rank), all[at.rank as usize].clone()));
                }
            }
            return mappings;
        }
        Holder::Queue => {
            b.flag(at, "go", FlagAct::Wait(Test::Equal, 1), Some("default"));
            b.writes(at, "late", x, "default");
        }
        Holder::Graph => {
            let (graph, stream, mode) = (b.name("held"), b.name("default"), CaptureMode::Global);
            b.push(at, Op::Graph(GraphOp::Begin { graph, stream, mode, pool: None }));
            b.writes(at, "late", x, "default");
            b.push(at, Op::Graph(GraphOp::End { graph }));
        }
    }
    Vec::new()
}

/// It is used, by whoever has it.
fn comes_by(b: &mut Builder, at: At, (x, mappings): (&Operand, &[(At, Operand)]), holder: Holder) {
    let found = match holder {
        Holder::Nobody => return,
        Holder::Variable => x.clone(),
        Holder::List => {
            let list = b.name("held");
            b.push(at, Op::List(ListOp::Get { list, index: Operand::Int(0) }))
        }
        Holder::Map => {
            let map = b.name("held");
            b.push(at, Op::Map(MapOp::Get { map, key: Operand::Int(1), default: Operand::Null }))
        }
        Holder::Store => b.fetch(at, "held"),
        Holder::Mapping => {
            // Whether the owner has done something to it by then is known where it says so.
            let flag = b.name("done");
            b.push(at, Op::Flag(FlagOp { flag, act: FlagAct::Write(1), stream: None }));
            for (peer, mapping) in mappings {
                b.flag(*peer, "done", FlagAct::Wait(Test::Equal, 1), None);
                b.reads(*peer, "scan", mapping, "default");
            }
            return;
        }
        Holder::Queue => return b.flag(at, "go", FlagAct::Write(1), None),
        Holder::Graph => {
            let (graph, stream) = (b.name("held"), b.name("default"));
            b.push(at, Op::Graph(GraphOp::Replay { graph, stream }));
            return;
        }
        Holder::Address => make(b, at, Made::Cuda, "third"),
    };
    b.writes(at, "late", &found, "default");
}
