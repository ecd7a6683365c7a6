//! What waits on a stream: the sum of what nouns launch.
//! Not here: the streams ([`super::table`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::value::{BlockId, Buffer};
use crate::id::Token;
use crate::identity::identify_as_hashed;
use crate::judge::finding::OpRef;
use crate::noun::collective::Launch;
use crate::noun::event::NthRecord;
use crate::noun::flag::FlagAct;
use crate::noun::memory::Expectation;
use crate::noun::p2p::Transfers;
use crate::rank::Thread;
use crate::walk::walk;

/// What waits on a stream.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Kernel(Arc<Kernel>),
    Copy {
        to: Arc<Buffer>,
        from: Arc<Buffer>,
    },
    Expect(Arc<Expectation>),
    Flag(Token, FlagAct),
    Collective(Arc<Launch>),
    Transfers(Arc<Transfers>),
    Record(NthRecord),
    Wait(NthRecord),
    /// A block is handed out: what it holds is its own initial term, once all before it is over. Whoever uses
    /// a block of a caching allocator fills it on its stream.
    Fresh(Arc<Buffer>),
    /// A block was given back to its pool, which may hand it out again for what is launched on this stream from here on;
    /// memory of no pool is free from here on.
    GiveBack(Arc<Buffer>),
}

identify_as_hashed!(Kernel, Expectation, FlagAct);
walk!(enum Work {
    Kernel(kernel: hashed fixed),
    Copy { to: hashed fixed, from: hashed fixed },
    // Whoever expects something names the ranks that it comes from: ranks are told apart then.
    Expect(expectation: hashed fixed),
    Flag(flag: hashed fixed, act: hashed fixed),
    Collective(launch: hashed moved),
    // A transfer names a rank: ranks are told apart then.
    Transfers(launch: hashed fixed),
    Record(record: hashed fixed),
    Wait(record: hashed fixed),
    Fresh(buffer: hashed fixed),
    GiveBack(buffer: hashed fixed),
});

impl Work {
    /// Whether a capture keeps it as a node of its graph. A record or a wait of an event only says what the next node
    /// stands behind.
    pub(crate) fn is_node(&self) -> bool {
        match self {
            Self::Kernel(_)
            | Self::Copy { .. }
            | Self::Flag(..)
            | Self::Collective(_)
            | Self::Transfers(_) => true,
            Self::Expect(_) | Self::Record(..) | Self::Wait(..) | Self::Fresh(_) | Self::GiveBack(_) => false,
        }
    }

    /// What it reads or writes.
    pub(crate) fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Kernel(kernel) => {
                kernel.reads.iter().chain(&kernel.writes).map(|buffer| &**buffer).collect()
            }
            Self::Copy { to, from } => vec![to, from],
            Self::Expect(expectation) => vec![&expectation.buffer],
            Self::Collective(launch) => vec![&launch.send, &launch.recv],
            Self::Transfers(launch) => launch.transfers.iter().map(|transfer| &*transfer.buffer).collect(),
            Self::Flag(..) | Self::Record(..) | Self::Wait(..) | Self::Fresh(_) | Self::GiveBack(_) => {
                Vec::new()
            }
        }
    }

    /// What it reads or writes, and blocks that are new from it on or go back.
    pub(crate) fn buffers_and_blocks(&self) -> Vec<&Buffer> {
        match self {
            Self::Fresh(block) | Self::GiveBack(block) => vec![block],
            Self::Kernel(_)
            | Self::Copy { .. }
            | Self::Expect(_)
            | Self::Collective(_)
            | Self::Transfers(_)
            | Self::Flag(..)
            | Self::Record(..)
            | Self::Wait(..) => self.buffers(),
        }
    }

    /// What it reads or writes lies where blocks were, and is no use of them, if they are among these.
    pub(crate) fn forget_blocks(&mut self, freed: &BTreeSet<BlockId>) {
        match self {
            Self::Kernel(kernel) => {
                let Kernel { name: _, reads, writes } = Arc::make_mut(kernel);
                reads.iter_mut().chain(writes).for_each(|buffer| forget_block(buffer, freed));
            }
            Self::Copy { to, from } => {
                forget_block(to, freed);
                forget_block(from, freed);
            }
            Self::Expect(expectation) => forget_block(&mut Arc::make_mut(expectation).buffer, freed),
            Self::Collective(launch) => {
                let launch = Arc::make_mut(launch);
                forget_block(&mut launch.send, freed);
                forget_block(&mut launch.recv, freed);
            }
            Self::Transfers(launch) => {
                let halves = Arc::make_mut(launch).transfers.iter_mut();
                halves.for_each(|half| forget_block(&mut half.buffer, freed));
            }
            Self::Flag(..) | Self::Record(..) | Self::Wait(..) | Self::Fresh(_) | Self::GiveBack(_) => {}
        }
    }
}

/// A buffer is no use of its block if that is among these.
fn forget_block(buffer: &mut Arc<Buffer>, freed: &BTreeSet<BlockId>) {
    if buffer.block.is_some_and(|block| freed.contains(&block)) {
        Arc::make_mut(buffer).block = None;
    }
}

/// A kernel of the program, and what it uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) name: Token,
    pub(crate) reads: Vec<Arc<Buffer>>,
    pub(crate) writes: Vec<Arc<Buffer>>,
}

/// Work with who put it there.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) work: Work,
    pub(crate) issue: Clock,
    pub(crate) op: OpRef,
    /// The replay that put it there; `op` then is where it was recorded.
    pub(crate) replay: Option<OpRef>,
}

walk!(struct Queued {
    work: hashed moved,
    issue: hashed moved,
    op: (OpRef::position) moved,
    replay: (position_of_replay) moved,
});

impl Queued {
    /// The operation of a host thread that put it there.
    pub(crate) fn issuer(&self) -> OpRef {
        self.replay.unwrap_or(self.op)
    }
}

fn position_of_replay(replay: &Option<OpRef>) -> Option<(Thread, u32)> {
    replay.as_ref().map(OpRef::position)
}
