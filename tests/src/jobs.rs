//! Programs of large jobs, whose blocks lie ready, so that the engine alone is measured.

use std::sync::Arc;

use rankcheck_model::{
    Answer, Block, Collective, CollectiveKind, CommOp, Declared, Dtype, Loc, LocId, MemoryKind, MemoryOp, Op,
    Operand, Rank, ReduceOp, Resources, Slot, Source, SourceError, Statement, Symmetry, Terminator,
    ThreadStart, Token,
};

use crate::script::Script;

/// A program whose blocks lie ready, as they do once a spec has been evaluated: the engine alone is timed.
pub struct Evaluated {
    program: Arc<dyn Source>,
    blocks: Vec<Arc<Block>>,
}

impl Evaluated {
    /// Evaluates all of a program that asks nothing.
    ///
    /// # Panics
    /// If it does not evaluate.
    #[must_use]
    pub fn new(program: Arc<dyn Source>, ranks: u32) -> Self {
        let whole = |rank| program.block(Rank(rank), ThreadStart(0), &[]).expect("a script evaluates");
        let blocks = (0..ranks).map(whole).collect();
        Self { program, blocks }
    }
}

impl Source for Evaluated {
    fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError> {
        match (start, answers) {
            (ThreadStart(0), []) => Ok(Arc::clone(&self.blocks[rank.at()])),
            _ => self.program.block(rank, start, answers),
        }
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.program.token(token)
    }

    fn loc(&self, loc: LocId) -> Loc {
        self.program.loc(loc)
    }

    fn default_stream(&self) -> Token {
        self.program.default_stream()
    }

    fn symmetry(&self) -> Symmetry {
        self.program.symmetry()
    }
}

/// An all-reduce of 4 MiB in place.
#[must_use]
pub fn all_reduce(comm: Operand, x: Operand, stream: Token) -> Collective {
    Collective {
        kind: CollectiveKind::AllReduce,
        comm,
        send: x.clone(),
        recv: x,
        count: 1 << 20,
        dtype: Dtype::F32,
        op: ReduceOp::Sum,
        stream,
        declared: Declared::Nothing,
    }
}

/// Each rank does so many all-reduces, one after the other, on the communicators of a mesh in turn: tensor parallel over
/// 8, pipeline over 4, the rest are copies.
#[must_use]
pub fn mesh(ranks: u32, count: u32) -> Arc<dyn Source> {
    const TENSOR: u32 = 8;
    const PIPELINE: u32 = 4;
    let names = Script::new(1);
    let (stream, x) = (names.name("default"), names.name("x"));
    let stage = TENSOR * PIPELINE;
    let members = |first: u32, step: u32, count: u32| (0..count).map(|at| Rank(first + at * step)).collect();
    let tensor: Vec<Arc<[Rank]>> = (0..ranks / TENSOR).map(|at| members(at * TENSOR, 1, TENSOR)).collect();
    let pipeline: Vec<Arc<[Rank]>> = (0..ranks / PIPELINE)
        .map(|at| members(at / TENSOR * stage + at % TENSOR, TENSOR, PIPELINE))
        .collect();
    let data: Vec<Arc<[Rank]>> = (0..stage).map(|at| members(at, stage, ranks / stage)).collect();
    let block = |rank: u32| {
        let lists = [
            ("tp", &tensor[(rank / TENSOR) as usize]),
            ("pp", &pipeline[(rank / stage * TENSOR + rank % TENSOR) as usize]),
            ("dp", &data[(rank % stage) as usize]),
        ];
        let slot = |index| Operand::Slot(Slot { start: ThreadStart(0), index });
        let mut ops: Vec<Op> = lists
            .iter()
            .map(|(name, members)| {
                let (name, members) = (names.name(name), Arc::clone(members));
                Op::Comm(CommOp::Init { name, members, children: Resources::Own })
            })
            .collect();
        ops.push(Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }));
        let calls = [0, 1, 2].map(|comm| Arc::new(all_reduce(slot(comm), slot(3), stream)));
        let in_turn = calls.iter().cycle().take(count as usize);
        ops.extend(in_turn.map(|call| Op::Collective(Arc::clone(call))));
        let ops = (0..).map(LocId).zip(ops).map(|(loc, op)| Statement { op: op.into(), loc }).collect();
        Arc::new(Block { ops, terminator: Terminator::Return })
    };
    let blocks = (0..ranks).map(block).collect();
    Arc::new(Evaluated { program: Arc::new(names), blocks })
}
