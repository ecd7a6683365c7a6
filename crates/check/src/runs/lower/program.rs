//! What a process did, as the program of one rank, and what is known of it beside.
//!
//! Not here: how it is read off a recording ([`mod@super`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::{Block, Freed, Loc, LocId, Op, Operand, Slot, Statement, Terminator, Token};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::runs::world::RunCommId;
use crate::spec::builder::SourceNames;

/// Where an operation was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The calls of a process are counted from 0, notes included.
    pub number: u32,
    /// What it is called.
    pub name: Token,
    /// The index of its location in the user's source; `u32::MAX` where none was recorded.
    pub(super) loc: u32,
}

/// A call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The recorded call that the operation was made of.
    pub origin: Origin,
    /// The vendor's number of the error.
    pub code: i64,
}

/// How the recording of a process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The process said that it ends.
    Exit(i64),
    /// It does not say: the process was killed, or the file was cut.
    Cut {
        /// Calls that had not returned, outermost first.
        inside: Vec<Origin>,
    },
}

/// The program of one rank, and what is known of it beside.
#[derive(Debug)]
pub struct RankRun {
    /// The block of each thread, indexed by [`ThreadStart`](rankcheck_model::ThreadStart).
    pub blocks: Vec<Arc<Block>>,
    /// Indexed by operation, counted over all blocks in order.
    pub origins: Vec<Origin>,
    /// The number of the first location of this rank.
    pub base: u32,
    /// Locations in the user's source.
    pub locs: Vec<Loc>,
    /// The nondeterministic values of operations of the first thread.
    pub nondet: FxHashMap<u32, u32>,
    /// Calls that returned errors.
    pub failures: Vec<Failure>,
    /// Calls that are not judged, and how many there were.
    pub unjudged: BTreeMap<Arc<str>, u64>,
    /// How the recording of the rank ends.
    pub ending: RecordingEnd,
    /// The last call, polls aside.
    pub last: Option<Origin>,
    /// When that was, and when the last of all: nanoseconds since the process began.
    pub times: (u64, u64),
    /// When the process was last seen to run, if somebody looked: nanoseconds since it began.
    pub alive: Option<u64>,
    /// Keys of stores that it set.
    pub keys: FxHashSet<Arc<str>>,
    /// Keys of the calls of stores that it was inside when its recording ended, by the number of the call.
    pub awaited: Vec<(u32, Arc<str>)>,
    /// Host threads whose calls were merged.
    pub threads: usize,
    /// Events that were not recorded.
    pub lost: u64,
    /// Calls that returned, polls and notes included.
    pub calls: u64,
    /// Streams that something was launched on.
    pub streams: usize,
    /// What the slots of communicators hold.
    pub comms: FxHashMap<Slot, RunCommId>,
    /// The version of NCCL that it says it ran on.
    pub nccl: Option<String>,
    /// Where collectives were left out: the operation that follows, the communicator, and how many.
    pub(super) skipped: Vec<(LocId, RunCommId, u32)>,
    /// When memory was freed that operations opened.
    pub freed: FxHashMap<LocId, Freed>,
    /// Registrations that failed: operations of the first thread, by communicator.
    pub(super) failed: FxHashMap<RunCommId, Vec<usize>>,
}

impl RankRun {
    pub(super) fn empty(base: u32) -> Self {
        Self {
            blocks: vec![Arc::new(Block { ops: Vec::new(), terminator: Terminator::Cut })],
            origins: Vec::new(),
            base,
            locs: Vec::new(),
            nondet: FxHashMap::default(),
            failures: Vec::new(),
            unjudged: BTreeMap::new(),
            ending: RecordingEnd::Cut { inside: Vec::new() },
            last: None,
            times: (0, 0),
            alive: None,
            keys: FxHashSet::default(),
            awaited: Vec::new(),
            threads: 0,
            lost: 0,
            calls: 0,
            streams: 0,
            comms: FxHashMap::default(),
            nccl: None,
            skipped: Vec::new(),
            freed: FxHashMap::default(),
            failed: FxHashMap::default(),
        }
    }

    /// How many collectives on the communicator of the operation `of` were left out before the operation `before`.
    #[must_use]
    pub fn skipped(&self, of: LocId, before: LocId) -> u32 {
        let mut ops = self.blocks.iter().flat_map(|block| &block.ops);
        let comm = ops.find(|op| op.loc == of).and_then(|op| self.collects_on(op));
        let skipped = self.skipped.iter().filter(|(at, on, _)| *at <= before && Some(*on) == comm);
        skipped.map(|(.., times)| times).sum()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "one operation is a collective")]
    pub(super) fn collects_on(&self, op: &Statement) -> Option<RunCommId> {
        match &op.op {
            Op::Collective(call) => match &call.comm {
                Operand::Slot(slot) => self.comms.get(slot).copied(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Where a call was made: in the user's source if that is known, else by its number.
    #[must_use]
    pub fn loc(&self, origin: &Origin, names: &SourceNames) -> Loc {
        match self.locs.get(origin.loc as usize) {
            Some(loc) => loc.clone(),
            None => {
                let file = format!("call {} ({})", origin.number, names.text(origin.name));
                Loc { file: file.into(), line: 0, column: 0, called_at: None }
            }
        }
    }

    /// The location of the operation that was written last.
    pub(super) fn last_loc(&self) -> LocId {
        LocId(
            self.base.saturating_add(u32::try_from(self.origins.len()).unwrap_or(u32::MAX)).saturating_sub(1),
        )
    }

    pub(super) fn origin(&mut self, origin: Origin) -> LocId {
        let at = u32::try_from(self.origins.len()).expect("checked when the next rank begins");
        self.origins.push(origin);
        LocId(self.base.saturating_add(at))
    }
}
