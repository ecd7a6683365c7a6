//! The graphs of a rank: what each recorded, and which streams record into it.
//! Not here: what captures forbid, and replays.
#![expect(clippy::wildcard_enum_match_arm, reason = "work is looked at by the noun that launched it")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use super::CaptureMode;
use crate::host::value::{BlockId, CommId};
use crate::id::Token;
use crate::identity::{Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::noun::collective::Launch;
use crate::noun::stream::Work;
use crate::order::ahead::UsedAhead;
use crate::order::dependence::{Object, ObjectKind};
use crate::state::{RankState, Table};
use crate::walk::walk;

/// Where a graph stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Streams record into it.
    Recording,
    /// Something ended the recording, and its streams refuse work until the capture is ended.
    Invalid,
    /// It can be replayed.
    Made,
    /// Its capture ended without one.
    Failed,
    /// It was made, and destroyed since.
    Destroyed,
}

/// A recorded operation and the stream on which it was launched.
#[derive(Debug, Clone)]
pub(super) struct GraphNode {
    pub(super) stream: Token,
    pub(super) work: Work,
    /// Where it was recorded.
    pub(super) op: OpRef,
}

identify_as_hashed!(Stage, CaptureMode);
walk!(apart struct GraphNode { stream: hashed fixed, work: hashed moved, op: (OpRef::position) moved });

impl Identify for GraphNode {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { stream, work, op } = self;
        stream.identify(to);
        to.unnumbered(|to| work.identify(to));
        op.identify(to);
    }
}

/// How many nodes of each stream are over at a point of the recording.
pub(super) type Reach = BTreeMap<Token, u32>;

/// A graph of a rank.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub(super) stage: Stage,
    pub(super) mode: CaptureMode,
    /// The host thread that began the capture.
    pub(super) thread: u32,
    pub(super) begin: OpRef,
    pub(super) origin: Token,
    pub(super) pool: Option<Token>,
    pub(super) nodes: Arc<Vec<GraphNode>>,
    /// Blocks of the pool that were handed out while it recorded.
    pub(super) blocks: BTreeSet<BlockId>,
    /// The streams that record; what each knows.
    pub(super) streams: BTreeMap<Token, Reach>,
    /// The last record of each event; what it stands behind.
    pub(super) records: BTreeMap<Token, (u32, Reach)>,
}

walk!(struct Graph {
    stage: hashed fixed,
    mode: hashed fixed,
    thread: hashed fixed,
    begin: (OpRef::position) moved,
    origin: hashed fixed,
    pool: hashed fixed,
    nodes: hashed moved,
    blocks: hashed fixed,
    streams: hashed fixed,
    records: hashed fixed,
});

/// The graphs of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graphs {
    pub(super) rows: Vec<(Token, Graph)>,
}

walk!(apart struct Graphs { rows: hashed moved });

impl Identify for Graphs {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        for (name, graph) in &self.rows {
            if graph.may_run(*name, to.ahead()) || graph.keeps_something() {
                name.identify(to);
                graph.identify(to);
            }
        }
        u64::MAX.hash(to);
    }
}

impl RankState {
    /// What graphs have recorded that may still be replayed.
    pub(crate) fn captured<'a>(&'a self, ahead: &UsedAhead) -> impl Iterator<Item = &'a Work> {
        let graphs = Graphs::of(self).rows.iter().filter(|(name, graph)| graph.may_run(*name, ahead));
        graphs.flat_map(|(_, graph)| graph.nodes.iter().map(|node| &node.work))
    }

    /// The pools whose blocks graphs keep.
    pub(crate) fn pools_of_graphs(&self) -> impl Iterator<Item = Token> {
        Graphs::of(self).rows.iter().filter_map(|(_, graph)| graph.pool)
    }
}

impl Graph {
    /// Whether its streams take no work to run.
    pub(super) fn records(&self) -> bool {
        matches!(self.stage, Stage::Recording | Stage::Invalid)
    }

    /// Whether it records, or somebody may still do something with it.
    fn may_run(&self, name: Token, ahead: &UsedAhead) -> bool {
        self.records() || ahead.has(Object::named(ObjectKind::Graph, name))
    }

    /// Whether what it captured is kept for it while it lives: a pool, or a communicator.
    fn keeps_something(&self) -> bool {
        self.lives() && (self.pool.is_some() || self.nodes.iter().any(|node| node.work.sequence().is_some()))
    }

    /// Whether it may still be replayed.
    pub(super) fn lives(&self) -> bool {
        !matches!(self.stage, Stage::Failed | Stage::Destroyed)
    }

    /// Whether unsafe calls of a thread are forbidden.
    pub(super) fn forbids(&self, thread: u32) -> bool {
        self.records()
            && match self.mode {
                CaptureMode::Global => true,
                CaptureMode::ThreadLocal => self.thread == thread,
                CaptureMode::Relaxed => false,
            }
    }

    pub(super) fn push(&mut self, stream: Token, work: Work, op: OpRef) {
        let own = self.streams.get_mut(&stream).expect("the stream records into this graph");
        if work.is_node() {
            *own.entry(stream).or_default() += 1;
        }
        Arc::make_mut(&mut self.nodes).push(GraphNode { stream, work, op });
    }

    /// Whether its origin stands behind every node that its other streams recorded.
    pub(super) fn joined(&self) -> bool {
        let origin = &self.streams[&self.origin];
        self.streams.iter().all(|(stream, reach)| {
            reach.get(stream).is_none_or(|own| origin.get(stream).is_some_and(|known| known >= own))
        })
    }

    /// The collectives of a communicator that it recorded.
    pub(super) fn launches(&self, comm: CommId) -> impl Iterator<Item = &Arc<Launch>> {
        self.nodes.iter().filter_map(move |node| match &node.work {
            Work::Collective(launch) if launch.comm == comm => Some(launch),
            _ => None,
        })
    }
}

pub(super) fn merge(into: &mut Reach, from: &Reach) {
    for (stream, count) in from {
        let known = into.entry(*stream).or_default();
        *known = (*known).max(*count);
    }
}

/// The graph of a name.
pub(super) fn named(rank: &RankState, name: Token) -> Option<usize> {
    Graphs::of(rank).rows.iter().position(|(known, _)| *known == name)
}

/// The graph into which a stream records.
pub(super) fn recording(rank: &RankState, stream: Token) -> Option<usize> {
    Graphs::of(rank).rows.iter().position(|(_, graph)| graph.records() && graph.streams.contains_key(&stream))
}
