//! What a process did, as the program of one rank, and what is known of it beside.
//!
//! Not here: how it is read off a recording ([`mod@super`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rankcheck_model::{
    Block, Freed, GraphOp, GroupOp, Loc, LocId, Op, Operand, Slot, Statement, Terminator, Token,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::symmetric::Exchanged;
use super::window::Before;
use crate::runs::call::Unjudged;
use crate::runs::fold::CallRoles;
use crate::runs::waits::{MayWait, RecordedWaits};
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

/// A call of `ncclCommAbort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The communicator that it ends.
    pub comm: RunCommId,
    /// Which call it is, and where it was made.
    pub origin: Origin,
    /// When it was entered: nanoseconds since the process began.
    pub time: u64,
}

/// A call that had not returned when the recording of its process ended: the innermost of its thread, or one that every
/// rank has to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCallAtEnd {
    /// Which call it is, and where it was made.
    pub origin: Origin,
    /// The host thread that is in it, by its number in the process.
    pub thread: u32,
    /// When it was entered: nanoseconds since the process began.
    pub entered: u64,
    /// For what it waits, where no operation says so.
    pub waits: OpenWait,
}

/// For what a call waits that had not returned, where no operation of the model says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenWait {
    /// Its operation says so, or nobody knows.
    Other,
    /// Somebody sets this key of a store.
    Key(Arc<str>),
    /// The other members destroy the communicator too (`ncclCommDestroy` is "an intra-node collective call").
    Destroys(RunCommId),
    /// The other ranks make as many process groups; the n-th, from 1.
    MakesGroup {
        /// How many the rank made, this one included.
        nth: u32,
        /// The members that it gave, as the program wrote them.
        members: Option<Arc<str>>,
    },
}

/// The exception that ended the program of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// Its type and the first line of what it says.
    pub text: String,
    /// The innermost line of the user's that it came from.
    pub loc: Option<Loc>,
}

/// Where the recording of a rank stops to say what it did: it may have done anything from there on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownUntil {
    /// The call of which too little is known; none before the first.
    pub origin: Option<Origin>,
    /// What is not known of it.
    pub lacks: Lacks,
    /// How many calls come after it.
    pub calls: u64,
    /// How many operations come before it in the first thread.
    pub(super) ops: usize,
}

/// What the recording of a call does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// A value that it was given or returned, by its name in the recording.
    Value(&'static str),
    /// What the object is that it names, by its kind.
    Origin(&'static str),
    /// Whether it has elements, and so whether it launches anything.
    Elements,
    /// Events behind it, which were lost.
    Events,
    /// How many calls it comes after that were made before the recording began.
    Numbers,
    /// Which of the ranks that it makes in one process a later call is of.
    Ranks,
    /// What a graph keeps of what was launched behind it: the capture that it begins was lost.
    Capture,
    /// Nothing: it returned otherwise than the model says.
    Model(ModelSays),
}

/// What the model says of a call that the recording contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelSays {
    /// The call returns an error.
    Fails,
    /// The call returns no error.
    Succeeds,
}

impl fmt::Display for ModelSays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fails => "it says that this call fails, and it succeeded",
            Self::Succeeds => "it says that this call succeeds, and it failed",
        })
    }
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(name) => write!(f, "its `{name}` was not recorded"),
            Self::Origin(kind) => write!(f, "its {kind} is none that was seen to be made"),
            Self::Elements => f.write_str("whether it has elements was not recorded"),
            Self::Numbers => f.write_str(
                "how many came before it on its communicator, before the recording began, is not known",
            ),
            Self::Events => f.write_str("events behind it were lost while recording"),
            Self::Ranks => f.write_str(
                "which communicator it made for which device was not recorded; record the run again with this version",
            ),
            Self::Capture => f.write_str("the capture that it begins was lost"),
            Self::Model(says) => write!(f, "the model is wrong here: {says}"),
        }
    }
}

/// The program of one rank, and what is known of it beside.
#[derive(Debug)]
pub struct RankRun {
    /// The block of each thread, indexed by [`ThreadStart`](rankcheck_model::ThreadStart).
    pub blocks: Vec<Arc<Block>>,
    /// Indexed by operation, counted over all blocks in order.
    pub origins: Vec<Origin>,
    /// What calls are where their addresses do not say it.
    pub(in crate::runs) roles: CallRoles,
    /// The number of the first location of this rank.
    pub base: u32,
    /// Locations in the user's source.
    pub locs: Vec<Loc>,
    /// The nondeterministic values of operations of the first thread.
    pub nondet: FxHashMap<u32, u32>,
    /// Calls that returned errors.
    pub failures: Vec<Failure>,
    /// Calls that are not judged, why, and how many there were.
    pub(in crate::runs) unjudged: BTreeMap<(Unjudged, Arc<str>), u64>,
    /// What is not known from somewhere on; none if all is.
    pub until: Option<KnownUntil>,
    /// How the recording of the rank ends.
    pub ending: RecordingEnd,
    /// The last call, polls aside.
    pub last: Option<Origin>,
    /// The host thread that made the last call but polls and those that make a device current, by its number in the process,
    /// and the number of that call.
    pub last_by: Option<(u32, u32)>,
    /// The last call of its first thread or from a line of the user's source, polls aside: threads of a library go on
    /// where the program stands.
    pub last_own: Option<Origin>,
    /// When that was, and when the last of all: nanoseconds since the process began.
    pub times: (u64, u64),
    /// When the process was last seen to run, if somebody looked: nanoseconds since it began.
    pub alive: Option<u64>,
    /// The first communicator that it aborted.
    pub aborted: Option<Abort>,
    /// Keys of stores that it set.
    pub keys: FxHashSet<Arc<str>>,
    /// Calls that had not returned when its recording ended, one of each thread.
    pub open_calls: Vec<OpenCallAtEnd>,
    /// What it had done on communicators that existed when its recording began.
    pub(in crate::runs) before: BTreeMap<RunCommId, Before>,
    /// Whether somebody interrupted its program (`KeyboardInterrupt`).
    pub interrupted: bool,
    /// The exception that ended its program.
    pub exception: Option<Exception>,
    /// Whether its file was cut: it did more than is known.
    pub truncated: bool,
    /// How many process groups it made or began to make, by calls that every rank takes part in.
    pub groups_made: u32,
    /// The communicators that it destroyed or began to destroy.
    pub destroyed: FxHashSet<RunCommId>,
    /// The last work of which nothing is known, by its stream: the number of the call.
    pub(in crate::runs) unknown_work: FxHashMap<Token, u32>,
    /// Host threads whose calls were merged.
    pub threads: usize,
    /// Host threads that had done nothing but poll when they found something over.
    pub watchdogs: usize,
    /// Events that were not recorded.
    pub lost: u64,
    /// Calls that returned, polls included.
    pub calls: u64,
    /// Streams that something was launched on.
    pub streams: usize,
    /// What of its ways of waiting was recorded.
    pub(in crate::runs) waits: RecordedWaits,
    /// What the slots of communicators hold.
    pub comms: FxHashMap<Slot, RunCommId>,
    /// The communicators that operations make.
    pub makes: FxHashMap<LocId, RunCommId>,
    /// The version of NCCL that it says it ran on.
    pub nccl: Option<String>,
    /// What calls do not say that all who meet in them have to agree on, by their operations.
    pub(super) open: FxHashMap<LocId, Vec<&'static str>>,
    /// Where collectives were left out: the operation that follows, the communicator, and how many.
    pub(super) skipped: Vec<(LocId, RunCommId, u32)>,
    /// Collectives that were left out, by communicator and the index of their line.
    pub(in crate::runs) folded_at: BTreeMap<(RunCommId, u32), FoldedRounds>,
    /// Communicators of collectives that were left out of which it is not known from which line they were called.
    pub(in crate::runs) folded_elsewhere: FxHashSet<RunCommId>,
    /// Lines from which calls were made that were left out, by their index in `locs`, with the operation that follows the first
    /// of those calls.
    pub(in crate::runs) folded_lines: FxHashMap<u32, LocId>,
    /// Calls that opened memory of other processes which was freed too close to its use for the clocks to tell which came
    /// first, and what the memory is called.
    pub(in crate::runs) too_close: Vec<(Origin, Arc<str>)>,
    /// When memory was freed that operations opened.
    pub freed: FxHashMap<LocId, Freed>,
    /// Registrations that failed: operations of the first thread, by communicator.
    pub(super) failed: FxHashMap<RunCommId, Vec<usize>>,
    /// Exchanges of handles, in their order.
    pub(super) exchanges: Vec<Exchanged>,
    /// Operations of the first thread that set flags for which other ranks wait.
    pub(super) tells: Vec<(usize, Token)>,
    /// Operations of the first thread that wait for flags of other ranks, and how the rank waited there.
    pub(super) awaits: Vec<(usize, Token, MayWait)>,
}

/// Collectives of one line that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runs) struct FoldedRounds {
    /// How many there were.
    pub(in crate::runs) times: u64,
    /// The operation that follows the last of them.
    pub(in crate::runs) before: LocId,
}

impl RankRun {
    pub(super) fn empty() -> Self {
        Self {
            blocks: vec![Arc::new(Block { ops: Vec::new(), terminator: Terminator::Cut })],
            origins: Vec::new(),
            roles: CallRoles::default(),
            base: 0,
            locs: Vec::new(),
            nondet: FxHashMap::default(),
            failures: Vec::new(),
            unjudged: BTreeMap::new(),
            until: None,
            ending: RecordingEnd::Cut { inside: Vec::new() },
            last: None,
            last_by: None,
            last_own: None,
            times: (0, 0),
            alive: None,
            aborted: None,
            keys: FxHashSet::default(),
            open_calls: Vec::new(),
            before: BTreeMap::new(),
            interrupted: false,
            exception: None,
            truncated: false,
            groups_made: 0,
            destroyed: FxHashSet::default(),
            unknown_work: FxHashMap::default(),
            threads: 0,
            watchdogs: 0,
            lost: 0,
            calls: 0,
            streams: 0,
            waits: RecordedWaits::default(),
            comms: FxHashMap::default(),
            makes: FxHashMap::default(),
            nccl: None,
            open: FxHashMap::default(),
            skipped: Vec::new(),
            folded_at: BTreeMap::new(),
            folded_elsewhere: FxHashSet::default(),
            folded_lines: FxHashMap::default(),
            too_close: Vec::new(),
            freed: FxHashMap::default(),
            failed: FxHashMap::default(),
            exchanges: Vec::new(),
            tells: Vec::new(),
            awaits: Vec::new(),
        }
    }

    /// Whether all that it did was recorded, and is known.
    #[must_use]
    pub fn is_known_to_its_end(&self) -> bool {
        matches!(self.ending, RecordingEnd::Exit(_)) && self.until.is_none()
    }

    /// How many collectives on the communicator of the operation `of` were left out before the operation `before`.
    #[must_use]
    pub fn skipped(&self, of: LocId, before: LocId) -> u32 {
        let mut ops = self.blocks.iter().flat_map(|block| &block.ops);
        let comm = ops.find(|op| op.loc == of).and_then(|op| self.collects_on(op));
        let skipped = self.skipped.iter().filter(|(at, on, _)| *at <= before && Some(*on) == comm);
        skipped.map(|(.., times)| times).sum()
    }

    /// How many collectives of iterations were left out that repeat others, by communicator. What came before the first operation was
    /// not recorded, and repeats nothing.
    pub(in crate::runs) fn repeated_collectives(&self) -> impl Iterator<Item = (RunCommId, u32)> {
        let repeated = self.skipped.iter().filter(|(at, ..)| *at > LocId(self.base));
        repeated.map(|(_, comm, times)| (*comm, *times))
    }

    /// The end of the group that an operation is in. Groups are written as a whole, and none lies in another.
    pub(in crate::runs) fn end_of_group(&self, loc: LocId) -> Option<LocId> {
        let ops =
            self.blocks.iter().map(|block| &block.ops).find(|ops| ops.iter().any(|op| op.loc == loc))?;
        let at = ops.iter().position(|op| op.loc == loc)?;
        let mut bounds = ops[at..].iter().filter(|op| matches!(&*op.op, Op::Group(_)));
        bounds.next().filter(|op| matches!(&*op.op, Op::Group(GroupOp::End))).map(|end| end.loc)
    }

    /// The how-manieth replay of its graph an operation is, from 1; not known where replays may have been folded away.
    pub(in crate::runs) fn replay(&self, loc: LocId) -> Option<u32> {
        let Op::Graph(GraphOp::Replay { graph, .. }) = &*self.statement(loc)?.op else { return None };
        let of_it = |op: &&Statement| {
            op.loc <= loc
                && matches!(&*op.op, Op::Graph(GraphOp::Replay { graph: other, .. }) if other == graph)
        };
        let nth = self.blocks.iter().flat_map(|block| &block.ops).filter(of_it).count();
        let folded = self.skipped.iter().any(|(at, ..)| *at <= loc);
        u32::try_from(nth).ok().filter(|_| !folded)
    }

    /// The call that tells where a process was last.
    pub(in crate::runs) fn last_told(&self) -> Option<Origin> {
        self.last_own.or(self.last)
    }

    /// How the process came to its end, as far as it was recorded, as in "rank 1, which raised KeyError".
    pub(in crate::runs) fn ended(&self) -> String {
        let exception = self.exception.as_ref().map(|exception| {
            let loc = exception.loc.as_ref().map_or_else(String::new, |loc| format!(" ({loc})"));
            format!("raised {}{loc}", exception.text)
        });
        match (exception, &self.ending) {
            (Some(raised), _) => raised,
            (None, RecordingEnd::Exit(0)) => "ended in order with exit code 0".to_owned(),
            (None, RecordingEnd::Exit(code)) => format!("exited with code {code}"),
            (None, RecordingEnd::Cut { .. }) => "stopped".to_owned(),
        }
    }

    /// The communicator on which an operation launches a collective.
    #[expect(clippy::wildcard_enum_match_arm, reason = "one operation is a collective")]
    pub(in crate::runs) fn collects_on(&self, op: &Statement) -> Option<RunCommId> {
        match &*op.op {
            Op::Collective(call) if call.count == 0 => None,
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

    /// The operation at a location.
    pub(in crate::runs) fn statement(&self, loc: LocId) -> Option<&Statement> {
        self.blocks.iter().flat_map(|block| &block.ops).find(|statement| statement.loc == loc)
    }

    /// Whether it was recorded where in the user's source a call was made.
    #[must_use]
    pub fn is_located(&self, origin: &Origin) -> bool {
        (origin.loc as usize) < self.locs.len()
    }

    /// The location of the operation that was written last.
    pub(super) fn last_loc(&self) -> LocId {
        LocId(self.next_loc().0.saturating_sub(1))
    }

    /// The location of the operation that is written next, before the rank has got its place among the others.
    pub(super) fn next_loc(&self) -> LocId {
        LocId(u32::try_from(self.origins.len()).expect("fewer than 2^32 operations of a rank"))
    }

    /// Moves the locations of the rank, which begin at zero, so that they begin at `base`.
    pub(super) fn begin_at(&mut self, base: u32) {
        let moved = |loc: LocId| LocId(loc.0 + base);
        self.base = base;
        for block in &mut self.blocks {
            let block = Arc::get_mut(block).expect("nobody runs it yet");
            block.ops.iter_mut().for_each(|statement| statement.loc = moved(statement.loc));
        }
        self.makes = self.makes.drain().map(|(loc, comm)| (moved(loc), comm)).collect();
        self.open = self.open.drain().map(|(loc, keys)| (moved(loc), keys)).collect();
        self.freed = self.freed.drain().map(|(loc, freed)| (moved(loc), freed)).collect();
        self.skipped.iter_mut().for_each(|(before, ..)| *before = moved(*before));
        self.folded_at.values_mut().for_each(|folded| folded.before = moved(folded.before));
        self.folded_lines.values_mut().for_each(|before| *before = moved(*before));
        self.exchanges.iter_mut().for_each(|exchange| exchange.loc = moved(exchange.loc));
    }

    pub(super) fn origin(&mut self, origin: Origin) -> LocId {
        let loc = self.next_loc();
        self.origins.push(origin);
        loc
    }

    /// Whether an operation was made of a call.
    pub(in crate::runs) fn has_op_of(&self, call: &Origin) -> bool {
        let mut ops = self.blocks.iter().flat_map(|block| &block.ops);
        ops.any(|op| self.origin_of(op.loc).is_some_and(|origin| origin.number == call.number))
    }

    /// The call of an operation of this rank.
    pub(in crate::runs) fn origin_of(&self, loc: LocId) -> Option<Origin> {
        self.origins.get(loc.0.checked_sub(self.base)? as usize).copied()
    }

    /// Puts another operation in the place of one.
    pub(super) fn replace(&mut self, loc: LocId, op: Op) {
        self.change(loc, |old| *old = op);
    }

    /// Changes an operation where it stands.
    pub(super) fn change(&mut self, loc: LocId, change: impl FnOnce(&mut Op)) {
        for block in &mut self.blocks {
            let block = Arc::get_mut(block).expect("nobody runs it yet");
            if let Some(statement) = block.ops.iter_mut().find(|statement| statement.loc == loc) {
                return change(Arc::make_mut(&mut statement.op));
            }
        }
    }

    /// Cuts off what comes from an operation on, of which too little is known. What was cut off before stays so.
    pub(in crate::runs) fn cut_off_at(&mut self, loc: LocId, lacks: Lacks, at: usize) {
        let behind = self.blocks[0].ops.get(at..).unwrap_or_default();
        let calls: FxHashSet<u32> =
            behind.iter().filter_map(|op| self.origin_of(op.loc)).map(|origin| origin.number).collect();
        let before = self.until.as_ref().map_or(0, |until| until.calls);
        let calls = before + (calls.len() as u64).saturating_sub(1);
        self.until = Some(KnownUntil { origin: self.origin_of(loc), lacks, calls, ops: at });
        self.cut_off(at);
    }

    /// Takes the operations of the first thread from one on out: what it does there is not known.
    pub(super) fn cut_off(&mut self, from: usize) {
        let block = Arc::get_mut(&mut self.blocks[0]).expect("nobody runs it yet");
        block.ops.truncate(from);
        block.terminator = Terminator::Cut;
        for failed in self.failed.values_mut() {
            failed.retain(|at| *at < from);
        }
    }
}
