//! The calls of one process become operations of the model.
//!
//! The calls of all host threads of a process make one list, in the order in which they returned: what that
//! order forbids is not found. A call that makes a communicator, registers, or never returned, while other
//! threads went on, is a thread of its own from its enter to its return. A group is written where it ends. A
//! query that said "done" waits; one that said "not yet" is left out, and so is a kernel, because nobody knows
//! what it reads. Not here: what operations mean, and who is who ([`super::world`]).

mod agreed;
mod call;
mod device;
mod graphs;
mod group;
mod memory;
mod program;
mod ranks;
mod symmetric;
mod touches;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rankcheck_model::{
    Block, Declared, FlagAct, FlagOp, Loc, MapOp, Op, Operand, Rank, Slot, Statement, StreamOp, Terminator,
    Test, ThreadOp, ThreadStart, Token,
};
use rankcheck_recording::{Argument, CallEvent, ProcessFile, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{CallKind, Unjudged, failure, signed};
use super::regions::RegionMap;
use super::sequence::Remainder;
use super::shared_events::SharedEventCall;
use super::vendor;
use super::waits::MayWait;
use super::world::{RankProcess, RunCommId, World};
use crate::spec::builder::SourceNames;

pub(super) use touches::TouchedBytes;

pub(super) use program::FoldedRounds;
pub use program::{
    Abort, Exception, Failure, KnownUntil, Lacks, ModelSays, OpenCallAtEnd, OpenWait, Origin, RankRun,
    RecordingEnd,
};
pub(super) use ranks::{leave_out_untold, lower_all};

/// What becomes of an operation's result.
#[derive(Debug, Clone)]
enum Bind {
    Nothing,
    Comm(RunCommId),
    Window(u64),
    /// A window whose handle is noted when the group ends.
    Unnamed,
    /// A registration that failed.
    Failed(RunCommId),
    /// A call that does not say these.
    Open(Vec<&'static str>),
    /// An exchange of an allocation that the call of this number made, in this line.
    Exchanged((u32, u32)),
    /// Other ranks wait for this flag, which it sets.
    Tells(Token),
    /// It waits for this flag, which another rank sets; if none does, the rank may have waited in this way.
    Awaits(Token, MayWait),
}

/// An operation that is about to be written.
#[derive(Debug, Clone)]
struct Lowered {
    op: Arc<Op>,
    origin: Origin,
    bind: Bind,
}

impl Lowered {
    /// An operation whose result nobody asks for.
    fn of(op: impl Into<Arc<Op>>, origin: Origin) -> Self {
        Self { op: op.into(), origin, bind: Bind::Nothing }
    }
}

/// A stream, or else the host, has come so far: other ranks wait for this flag.
fn tells(flag: Token, stream: Option<Token>, origin: Origin) -> Lowered {
    let op = Op::Flag(FlagOp { flag, act: FlagAct::Write(1), stream });
    Lowered { op: op.into(), origin, bind: Bind::Tells(flag) }
}

/// A stream, or else the host, waits for what [`tells`] says of another rank.
fn awaits(flag: Token, stream: Option<Token>, way: MayWait, origin: Origin) -> Lowered {
    let op = Op::Flag(FlagOp { flag, act: FlagAct::Wait(Test::Equal, 1), stream });
    Lowered { op: op.into(), origin, bind: Bind::Awaits(flag, way) }
}

/// Operations on events, and starts and ends of groups, that were written already, by any rank. Other calls share what
/// a call of their shape became. What an event is to a call depends on its role, and groups are written when they end,
/// so neither is found by its shape.
#[derive(Debug)]
struct SharedOps<'a> {
    /// Written by any rank.
    written: &'a Mutex<FxHashSet<Arc<Op>>>,
    /// Of those the ones that this rank has written too: ranks become programs at the same time.
    own: FxHashSet<Arc<Op>>,
}

impl SharedOps<'_> {
    fn share(&mut self, op: Arc<Op>) -> Arc<Op> {
        if !matches!(
            &*op,
            Op::Event(_) | Op::Stream(StreamOp::Wait { .. } | StreamOp::Synchronize { .. }) | Op::Group(_)
        ) {
            return op;
        }
        if let Some(own) = self.own.get(&op) {
            return Arc::clone(own);
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = written.get(&op).cloned().unwrap_or_else(|| {
            written.insert(Arc::clone(&op));
            op
        });
        drop(written);
        self.own.insert(Arc::clone(&shared));
        shared
    }
}

/// What the programs of all ranks are made from.
#[derive(Clone, Copy)]
struct OfAllRanks<'a> {
    world: &'a World,
    names: &'a SourceNames,
    /// Operations that are shared; see [`SharedOps`].
    shared: &'a Mutex<FxHashSet<Arc<Op>>>,
    /// Members by rank in the communicator, by communicator.
    members: &'a [Vec<Option<Rank>>],
    /// Members as the model numbers them, by communicator.
    orders: &'a [Vec<Rank>],
}

/// A call that was entered.
struct OpenCall {
    shape: ShapeId,
    origin: Origin,
    time: u64,
    /// How many operations were written by then.
    mark: usize,
    /// Whether a placeholder stands for it, in case that it turns out to be a thread of its own.
    held: bool,
    /// The location in source that it says.
    loc: u32,
    /// How many process groups the process had made by then, this one included.
    groups_made: u32,
    /// What it carries out.
    carries: Declared,
}

/// A host thread of the process.
#[derive(Default)]
struct HostThread {
    open: Vec<OpenCall>,
    /// Groups that are open.
    depth: u32,
    grouped: Vec<Lowered>,
    calls: u64,
    /// When it was last seen to go on with the program: nanoseconds since the process began.
    acted: Option<u64>,
}

const NO_LOC: u32 = u32::MAX;

/// What all calls of one shape have in common.
struct KnownShape {
    kind: CallKind,
    name: Token,
    /// The index of the location that they say themselves, once that was asked for: locations are numbered as they come.
    own_loc: Option<u32>,
}

/// One process, while it is read.
pub(super) struct Lowering<'a> {
    world: &'a World,
    member: &'a RankProcess,
    names: &'a SourceNames,
    /// What there is to lower.
    left: &'a Remainder,
    shared: SharedOps<'a>,
    /// Members by rank in the communicator, by communicator.
    members: &'a [Vec<Option<Rank>>],
    /// Members as the model numbers them, by communicator.
    orders: &'a [Vec<Rank>],
    ops: Vec<Statement>,
    own_threads: Vec<Arc<Block>>,
    slots: u32,
    program: RankRun,
    threads: FxHashMap<u32, HostThread>,
    /// The locations of backward passes that are under way, whichever thread began them.
    backward: Vec<u32>,
    by_loc: FxHashMap<Box<str>, u32>,
    /// Of collectives that do not say from where they are called, by function, communicator and count: the line of their callers;
    /// none if there are several.
    callers: FxHashMap<(Token, RunCommId, u64), Option<u32>>,
    /// What calls have in common, by the number of their shape.
    shapes: Vec<KnownShape>,
    /// "nothing", which stands where a thread may begin.
    nothing: Token,
    /// The operation that a call became, as long as nothing changed what its addresses mean.
    cache: FxHashMap<ShapeId, Arc<Op>>,
    born: u32,
    comms: FxHashMap<u64, RunCommId>,
    of_comm: FxHashMap<RunCommId, Operand>,
    /// Communicators whose calls go on behind the caller's back.
    not_blocking: FxHashSet<RunCommId>,
    /// Threads that still make a communicator, to be joined when somebody uses it.
    under_way: Vec<(RunCommId, Operand)>,
    windows: FxHashMap<u64, Operand>,
    /// Windows of a group that ended, until their handles are noted, in order.
    unnamed: VecDeque<Operand>,
    memory: RegionMap,
    /// The call that allocated what is, or was last, at an address.
    allocated_at: FxHashMap<u64, Origin>,
    symmetric: symmetric::SymmetricBuffers,
    /// The last call that exported memory, if no exchange is known that it was for.
    exported_at: Option<u32>,
    /// Memory that nobody was seen to allocate.
    unseen: Option<Operand>,
    allocations: u32,
    device: device::DeviceHandles,
    /// The calls before this one were looked at, whichever device of the process they are on.
    looked_at: u64,
}

impl<'a> Lowering<'a> {
    fn new(of_all: OfAllRanks<'a>, member: &'a RankProcess, left: &'a Remainder) -> Self {
        let OfAllRanks { world, names, shared, members, orders } = of_all;
        Self {
            members,
            world,
            member,
            names,
            left,
            shared: SharedOps { written: shared, own: FxHashSet::default() },
            orders,
            ops: Vec::new(),
            own_threads: Vec::new(),
            slots: 0,
            program: RankRun::empty(),
            threads: FxHashMap::default(),
            backward: Vec::new(),
            by_loc: FxHashMap::default(),
            callers: FxHashMap::default(),
            shapes: Vec::new(),
            nothing: names.token("nothing"),
            cache: FxHashMap::default(),
            born: 0,
            comms: FxHashMap::default(),
            of_comm: FxHashMap::default(),
            not_blocking: FxHashSet::default(),
            under_way: Vec::new(),
            windows: FxHashMap::default(),
            unnamed: VecDeque::new(),
            memory: RegionMap::default(),
            allocated_at: FxHashMap::default(),
            symmetric: symmetric::SymmetricBuffers::default(),
            exported_at: None,
            unseen: None,
            allocations: 0,
            device: device::DeviceHandles::new(names),
            looked_at: 0,
        }
    }

    fn event(&mut self, process: &ProcessFile, number: u64, event: CallEvent) {
        match event {
            CallEvent::Enter { time, thread, call } => {
                if let Some(share) = &self.member.share
                    && share.waited_elsewhere(self.looked_at..number, thread)
                {
                    self.program.waits.may_wait(MayWait::OtherDevice, self.ops.len());
                }
                self.looked_at = self.looked_at.max(number);
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                self.enter(process, number, time, thread, call);
            }
            CallEvent::Return { time, thread, values } => {
                self.program.times.1 = self.program.times.1.max(time);
                self.program.calls += 1;
                if let Some(open) = self.threads.entry(thread).or_default().open.pop() {
                    self.leave(process, thread, open, values);
                }
            }
            CallEvent::Lost { events, .. } => {
                self.program.lost += events;
                self.known_until(self.program.last, Lacks::Events);
            }
        }
    }

    /// Calls were passed over: what is numbered here is numbered as in the whole run.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls launch collectives")]
    fn skipped(&mut self, process: &ProcessFile, passed_over: &[(ShapeId, u64)]) {
        let before = self.program.next_loc();
        let mut by_comm: BTreeMap<RunCommId, u64> = BTreeMap::new();
        for &(shape, times) in passed_over {
            let call = process.shape(shape);
            let line = match self.own_loc(process, shape) {
                NO_LOC => self.line_of_callers(process, shape),
                own => Some(own),
            };
            if let Some(line) = line {
                self.program.folded_lines.entry(line).or_insert(before);
            }
            match self.kind(process, shape) {
                kind if kind.is_empty(call) => {}
                CallKind::Unjudged(why) if self.program.until.is_none() => {
                    *self.program.unjudged.entry((why, Arc::clone(&call.name))).or_default() += times;
                }
                CallKind::Collective(_) => {
                    if let Some(comm) = self.comm(call::number(call, "comm")) {
                        *by_comm.entry(comm).or_default() += times;
                        match line {
                            Some(line) => {
                                let folded = self.program.folded_at.entry((comm, line));
                                let folded = folded.or_insert(FoldedRounds { times: 0, before });
                                folded.times += times;
                                folded.before = before;
                            }
                            None => _ = self.program.folded_elsewhere.insert(comm),
                        }
                    }
                }
                CallKind::GraphLaunch => {
                    for comm in self.device.collectives_of(call::number(call, "executable")) {
                        *by_comm.entry(comm).or_default() += times;
                    }
                }
                _ => {}
            }
        }
        let times = |times: u64| u32::try_from(times).unwrap_or(u32::MAX);
        self.program.skipped.extend(by_comm.into_iter().map(|(comm, more)| (before, comm, times(more))));
    }

    /// Which collectives are of one kind where nobody says who calls them.
    fn caller(&mut self, process: &ProcessFile, shape: ShapeId) -> Option<(Token, RunCommId, u64)> {
        let name = self.of_shape(process, shape).name;
        let call = process.shape(shape);
        Some((name, self.comm(call::number(call, "comm"))?, call::number(call, "count")))
    }

    /// The line from which a collective was called that does not say it, as others of its kind were; none if these were called
    /// from several, or there are none.
    fn line_of_callers(&mut self, process: &ProcessFile, shape: ShapeId) -> Option<u32> {
        let kind = self.caller(process, shape)?;
        *self.callers.get(&kind)?
    }

    /// A collective that does not say it is called from a line.
    fn called_from(&mut self, process: &ProcessFile, shape: ShapeId, line: u32) {
        let Some(kind) = self.caller(process, shape) else { return };
        let known = self.callers.entry(kind).or_insert(Some(line));
        *known = known.filter(|known| *known == line);
    }

    fn of_shape(&mut self, process: &ProcessFile, shape: ShapeId) -> &mut KnownShape {
        let at = shape.0 as usize;
        while self.shapes.len() <= at {
            let next = ShapeId(u32::try_from(self.shapes.len()).expect("shapes are numbered in 32 bits"));
            let name = &process.shape(next).name;
            let (kind, name) = (CallKind::of(name), self.names.token(name));
            self.shapes.push(KnownShape { kind, name, own_loc: None });
        }
        &mut self.shapes[at]
    }

    fn kind(&mut self, process: &ProcessFile, shape: ShapeId) -> CallKind {
        self.of_shape(process, shape).kind
    }

    /// The location that a call says itself.
    fn own_loc(&mut self, process: &ProcessFile, shape: ShapeId) -> u32 {
        if let Some(loc) = self.of_shape(process, shape).own_loc {
            return loc;
        }
        let loc = match process.shape(shape).get("place").and_then(Argument::text) {
            Some(text) if !text.is_empty() => self.loc(text),
            Some(_) | None => NO_LOC,
        };
        self.of_shape(process, shape).own_loc = Some(loc);
        loc
    }

    fn enter(&mut self, process: &ProcessFile, number: u32, time: u64, thread: u32, shape: ShapeId) {
        let kind = self.kind(process, shape);
        let call = process.shape(shape);
        let own = self.own_loc(process, shape);
        let outer = self.threads.entry(thread).or_default().open.last().map_or(NO_LOC, |open| open.loc);
        // Threads of autograd have no frames of Python: what they call is called by the backward pass.
        let around = self.backward.last().copied().unwrap_or(NO_LOC);
        let loc = [own, outer, around].into_iter().find(|loc| *loc != NO_LOC).unwrap_or(NO_LOC);
        // Behind a gap it is not known who calls, if that began in the gap.
        if own == NO_LOC && loc != NO_LOC && matches!(kind, CallKind::Collective(_)) {
            self.called_from(process, shape, loc);
        }
        let carrier = self.carried(process, thread, kind);
        let carries = if carrier.is_some() { Declared::Barrier } else { Declared::Nothing };
        let name = match carrier {
            Some(carrier) => self.names.token(carrier),
            None => self.of_shape(process, shape).name,
        };
        let origin = Origin { number, name, loc };
        self.program.times.1 = self.program.times.1.max(time);
        if call.instant {
            self.note(process, shape, origin);
            return;
        }
        self.comes_after_others(origin);
        if !kind.polls() {
            self.program.last = Some(origin);
            if !matches!(kind, CallKind::Current(_)) {
                self.program.last_by = Some((thread, number));
            }
            if loc != NO_LOC || thread == 0 {
                self.program.last_own = Some(origin);
            }
            self.program.times.0 = time;
        }
        if kind == CallKind::Store
            && let Some(key) = key_set(call)
        {
            self.program.keys.insert(key.into());
        }
        if !self.under_way.is_empty()
            && let Some(comm) = call.get("comm").and_then(Argument::number).and_then(|comm| self.comm(comm))
        {
            self.joined(comm, origin);
        }
        let state = self.threads.entry(thread).or_default();
        let held = kind.meets() && (state.depth == 0 || kind == CallKind::Init)
            || kind == CallKind::GroupEnd && state.depth == 1;
        let mark = self.ops.len();
        if kind.acts() {
            state.acted = Some(time);
        }
        if kind == CallKind::Backward {
            self.backward.push(loc);
        }
        if kind.is_every_ranks(call) {
            self.program.groups_made += 1;
        }
        let groups_made = self.program.groups_made;
        if kind == CallKind::Destroy
            && let Some(comm) = self.comm(call::number(call, "comm"))
        {
            self.program.destroyed.insert(comm);
            if kind.aborts(call) {
                self.program.aborted.get_or_insert(Abort { comm, origin, time });
            }
        }
        let state = self.threads.entry(thread).or_default();
        if kind.is_call() {
            state.calls += 1;
            if let Some(until) = &mut self.program.until {
                until.calls += 1;
            }
        }
        state.open.push(OpenCall { shape, origin, time, mark, held, loc, groups_made, carries });
        if held {
            // It produces a slot, as the start of a thread does that may replace it.
            let map = self.nothing;
            let op = Op::Map(MapOp::Get { map, key: Operand::Null, default: Operand::Null });
            self.write(Lowered::of(op, origin));
        }
    }

    /// A call comes after what its thread has waited for on other devices of the process.
    fn comes_after_others(&mut self, origin: Origin) {
        let Some(share) = &self.member.share else { return };
        let waits: Vec<Token> =
            share.waited_before(origin.number.into()).iter().map(|wait| self.host_behind(*wait)).collect();
        for flag in waits {
            self.write(awaits(flag, None, MayWait::OtherDevice, origin));
        }
    }

    /// What says that a thread of the process has come so far, behind a wait.
    fn host_behind(&self, wait: u64) -> Token {
        let file = self.member.path.file_name().unwrap_or_default();
        self.names.token(&format!("the host thread of {} behind its call {wait}", file.display()))
    }

    /// What a collective stands for that a call of Python makes of it: a barrier is one, whatever carries it.
    fn carried<'p>(&mut self, process: &'p ProcessFile, thread: u32, kind: CallKind) -> Option<&'p str> {
        let open = self.threads.entry(thread).or_default().open.last().map(|open| open.shape)?;
        let barrier =
            matches!(kind, CallKind::Collective(_)) && self.kind(process, open) == CallKind::Barrier;
        barrier.then(|| &*process.shape(open).name)
    }

    fn loc(&mut self, text: &str) -> u32 {
        if let Some(&loc) = self.by_loc.get(text) {
            return loc;
        }
        let (file, line) = match text.rsplit_once(':') {
            Some((file, line)) => (file, line.parse().unwrap_or(0)),
            None => (text, 0),
        };
        let loc = u32::try_from(self.program.locs.len()).expect("few places");
        self.program.locs.push(Loc { file: file.into(), line, column: 1, called_at: None });
        self.by_loc.insert(text.into(), loc);
        loc
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "few notes are of interest")]
    fn note(&mut self, process: &ProcessFile, shape: ShapeId, origin: Origin) {
        let note = process.shape(shape);
        match self.kind(process, shape) {
            CallKind::Exists => {
                // What was there before this recording began is not known: streams may wait for one another.
                self.device.begins_in_the_middle();
                self.exists(note, origin);
            }
            // The recorder tells of it, and PyTorch too.
            CallKind::Process => {
                let told = note.get("nccl_version").and_then(version);
                self.program.nccl = told.or(self.program.nccl.take());
            }
            CallKind::GroupWindow => {
                if let (window, Some(operand)) = (call::number(note, "window"), self.unnamed.pop_front())
                    && window != 0
                {
                    self.windows.insert(window, operand);
                }
            }
            CallKind::HostFunctionRuns => {
                for waited in self.host_function_runs(note, origin) {
                    self.write(waited);
                }
            }
            // Somebody stopped the program: what it would have done is not known.
            CallKind::Exception if note.get("type").and_then(Argument::text) == Some("KeyboardInterrupt") => {
                self.program.interrupted = true;
            }
            CallKind::Exception if self.program.exception.is_none() => {
                let text = |key: &str| note.get(key).and_then(Argument::text).filter(|text| !text.is_empty());
                let parts: Vec<&str> = ["type", "message"].into_iter().filter_map(text).collect();
                let loc = text("place").map(|place| self.loc(place));
                let loc = loc.and_then(|loc| self.program.locs.get(loc as usize).cloned());
                self.program.exception = Some(Exception { text: parts.join(": "), loc });
            }
            CallKind::Exit if self.program.interrupted => {}
            CallKind::Exit => self.program.ending = RecordingEnd::Exit(signed(note, "code")),
            _ => {}
        }
    }

    fn leave(&mut self, process: &ProcessFile, thread: u32, open: OpenCall, values: Option<ShapeId>) {
        let call = process.shape(open.shape);
        let kind = self.kind(process, open.shape);
        if kind == CallKind::Backward {
            self.backward.pop();
        }
        self.device.thread = thread;
        let share = self.member.share.as_ref();
        if kind == CallKind::InitAll && share.is_some_and(|share| share.nth_of(call).is_none()) {
            return;
        }
        let result = values.map(|values| process.shape(values));
        if let Some(code) = failure(result) {
            if code == vendor::NOT_READY && kind.polls() {
                return;
            }
            self.program.failures.push(Failure { origin: open.origin, code });
            if kind == CallKind::EndCapture && code == vendor::UNJOINED {
                let items = self.items(kind, (open.shape, call), None, open.origin);
                self.put(thread, kind, &open, items, Completed::Yes);
                return;
            }
            if kind == CallKind::EndCapture {
                self.capture_lost(call);
            }
            if kind != CallKind::Register {
                self.failed(thread, kind, call, &open);
                return;
            }
            let mut items = self.items(kind, (open.shape, call), None, open.origin);
            if let (Some(item), Some(comm)) = (items.first_mut(), self.comm(call::number(call, "comm"))) {
                item.bind = Bind::Failed(comm);
            }
            self.put(thread, kind, &open, items, Completed::Yes);
            return;
        }
        if kind.polls() && !self.left.heeds(thread, open.origin.number) {
            return;
        }
        self.program.waits.called(kind, &call.name);
        let own = share.filter(|_| kind == CallKind::InitAll).zip(result);
        let own = own.and_then(|(share, result)| share.of_result(call, result));
        if kind == CallKind::InitAll && own.is_none() && call::number(call, "ranks") > 1 {
            self.cut_before(&open, Lacks::Ranks);
        }
        let result = own.as_ref().or(result);
        let is_followed = matches!(
            self.member.event_calls.get(&u64::from(open.origin.number)),
            Some(SharedEventCall::Meets(_) | SharedEventCall::MeetsOwn | SharedEventCall::MeetsNothing)
        );
        if !is_followed && share.is_some_and(|share| share.waits_for_others(open.origin.number.into())) {
            self.program.waits.may_wait(MayWait::OtherDevice, self.ops.len());
            return;
        }
        let lacks = kind.lacks(call).or_else(|| self.lacks_result(kind, (thread, call), result));
        if let Some(lacks) = lacks {
            self.known_before(&open, lacks);
        }
        let items = self.items_of(kind, &open, call, result);
        self.put(thread, kind, &open, items, Completed::Yes);
        if share.is_some_and(|share| share.is_waited_for(open.origin.number.into())) {
            let flag = self.host_behind(open.origin.number.into());
            self.write(tells(flag, None, open.origin));
        }
    }

    /// The operations of a call, with what they carry out.
    fn items_of(
        &mut self,
        kind: CallKind,
        open: &OpenCall,
        call: &Shape,
        result: Option<&Shape>,
    ) -> Vec<Lowered> {
        let mut items = self.items(kind, (open.shape, call), result, open.origin);
        if open.carries == Declared::Nothing {
            return items;
        }
        for item in &mut items {
            if let Op::Collective(call) = Arc::make_mut(&mut item.op) {
                Arc::make_mut(call).declared = open.carries;
            }
        }
        items
    }

    /// What a call made and did not say. Windows of a group have no names before it ends.
    fn lacks_result(
        &mut self,
        kind: CallKind,
        (thread, call): (u32, &Shape),
        result: Option<&Shape>,
    ) -> Option<&'static str> {
        let made = kind.makes()?;
        let grouped = kind == CallKind::Register && self.threads.entry(thread).or_default().depth > 0;
        let nothing = kind == CallKind::Split && !kind.makes_comm(call);
        let value = result.and_then(|result| result.get(made)).filter(|value| **value != Argument::None);
        (value.is_none() && !grouped && !nothing).then_some(made)
    }

    /// A call does not say what it does.
    fn known_before(&mut self, open: &OpenCall, lacks: &'static str) {
        self.cut_before(open, Lacks::Value(lacks));
    }

    fn cut_before(&mut self, open: &OpenCall, lacks: Lacks) {
        self.known_until(Some(open.origin), lacks);
        if let (Some(until), true) = (&mut self.program.until, open.held) {
            until.ops = until.ops.min(open.mark);
        }
    }

    /// What the process does from this call on is not known. The first place counts.
    fn known_until(&mut self, origin: Option<Origin>, lacks: Lacks) {
        let ops = self.ops.len();
        self.program.until.get_or_insert(KnownUntil { origin, lacks, calls: 0, ops });
    }

    /// A call that failed did nothing, as far as others can see. One that makes a communicator counts.
    fn failed(&mut self, thread: u32, kind: CallKind, call: &rankcheck_recording::Shape, open: &OpenCall) {
        let parent = || self.comm(call::number(call, "comm")).is_some();
        if kind.makes_comm(call) && (kind == CallKind::Init || parent()) {
            self.born += 1;
        }
        if open.held {
            self.withdraw(open);
        }
        if kind == CallKind::GroupEnd {
            let state = self.threads.entry(thread).or_default();
            state.depth = state.depth.saturating_sub(1);
            if state.depth == 0 {
                state.grouped.clear();
            }
        }
    }

    /// Writes the operations of a call.
    fn put(
        &mut self,
        thread: u32,
        kind: CallKind,
        open: &OpenCall,
        items: Vec<Lowered>,
        returned: Completed,
    ) {
        let state = self.threads.entry(thread).or_default();
        if kind == CallKind::GroupStart {
            state.depth += 1;
            return;
        }
        if state.depth > 0 && kind.grouped() {
            state.grouped.extend(items);
            return;
        }
        let mut items = items;
        if kind == CallKind::GroupEnd {
            state.depth = state.depth.saturating_sub(1);
            if state.depth > 0 {
                return;
            }
            items = group::whole(std::mem::take(&mut state.grouped), open.origin);
        }
        if !open.held {
            if returned == Completed::NeverApart && !items.is_empty() {
                self.stands_apart(open, items);
                return;
            }
            for item in items {
                self.write(item);
            }
            return;
        }
        let background = items.iter().find_map(|item| match item.bind {
            Bind::Comm(comm) => Some(comm).filter(|comm| self.not_blocking.contains(comm)),
            Bind::Nothing
            | Bind::Window(_)
            | Bind::Unnamed
            | Bind::Failed(_)
            | Bind::Open(_)
            | Bind::Exchanged(_)
            | Bind::Tells(_)
            | Bind::Awaits(..) => None,
        });
        let alone = self.ops.len() == open.mark + 1 && returned != Completed::NeverApart;
        if alone && (background.is_none() || returned == Completed::Never) {
            self.withdraw(open);
            for item in items {
                self.write(item);
            }
            return;
        }
        let thread = self.own_thread(open, items, returned);
        match (background, thread, returned) {
            (Some(comm), Some(thread), Completed::Yes) => self.under_way.push((comm, thread)),
            (None, Some(thread), Completed::Yes) => {
                let op = Op::Thread(ThreadOp::Join { thread });
                self.write(Lowered::of(op, open.origin));
            }
            (_, None, _) | (_, _, Completed::Never | Completed::NeverApart) => {}
        }
    }

    /// A call that never returned, of a thread for which the others of its process do not wait.
    fn stands_apart(&mut self, open: &OpenCall, items: Vec<Lowered>) {
        let start = ThreadStart(self.own_threads.len() as u64 + 1);
        let mut ops = Vec::with_capacity(items.len());
        for item in items {
            ops.push(Statement { op: item.op, loc: self.program.origin(item.origin) });
        }
        self.own_threads.push(Arc::new(Block { ops, terminator: Terminator::Cut }));
        let op = Op::Thread(ThreadOp::Spawn { start });
        self.write(Lowered::of(op, open.origin));
    }

    /// Takes a call's placeholder back, if nothing was written since.
    fn withdraw(&mut self, open: &OpenCall) {
        if self.ops.len() == open.mark + 1 {
            self.ops.pop();
            self.program.origins.pop();
            self.slots -= 1;
        }
    }

    /// Somebody uses a communicator: what still makes it, or a child of it, has to be over.
    fn joined(&mut self, comm: RunCommId, origin: Origin) {
        let parent = |child: RunCommId| self.world.comm(child).parent;
        let meant = |made: RunCommId| made == comm || parent(made) == Some(comm);
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|(made, _)| meant(*made));
        self.under_way = later;
        for (_, thread) in now {
            self.write(Lowered::of(Op::Thread(ThreadOp::Join { thread }), origin));
        }
    }

    /// The call is a thread of its own from where its placeholder stands. Returns the thread.
    fn own_thread(&mut self, open: &OpenCall, items: Vec<Lowered>, returned: Completed) -> Option<Operand> {
        let start = ThreadStart(self.own_threads.len() as u64 + 1);
        let mut ops = Vec::with_capacity(items.len());
        let mut slots = 0;
        for item in items {
            self.bind(&item, Slot { start, index: slots });
            slots += item.op.slots();
            ops.push(Statement { op: item.op, loc: self.program.origin(item.origin) });
        }
        let terminator = if returned == Completed::Yes { Terminator::Return } else { Terminator::Cut };
        self.own_threads.push(Arc::new(Block { ops, terminator }));
        let held = self.ops.get_mut(open.mark)?;
        let Op::Map(MapOp::Get { .. }) = &*held.op else { return None };
        held.op = Op::Thread(ThreadOp::Spawn { start }).into();
        Some(Operand::Slot(Slot { start: ThreadStart(0), index: self.slots_before(open.mark) }))
    }

    fn slots_before(&self, at: usize) -> u32 {
        self.slots - self.ops[at..].iter().map(|op| op.op.slots()).sum::<u32>()
    }

    fn bind(&mut self, item: &Lowered, slot: Slot) {
        match &item.bind {
            Bind::Nothing => {}
            Bind::Open(keys) => {
                self.program.open.insert(self.program.next_loc(), keys.clone());
            }
            &Bind::Comm(comm) => {
                self.of_comm.insert(comm, Operand::Slot(slot));
                self.program.comms.insert(slot, comm);
                self.program.makes.insert(self.program.next_loc(), comm);
            }
            &Bind::Window(address) => {
                self.windows.insert(address, Operand::Slot(slot));
            }
            Bind::Unnamed => self.unnamed.push_back(Operand::Slot(slot)),
            &Bind::Failed(comm) if slot.start == ThreadStart(0) => {
                self.program.failed.entry(comm).or_default().push(self.ops.len());
            }
            Bind::Failed(_) => {}
            &Bind::Tells(flag) => self.program.tells.push((self.ops.len(), flag)),
            &Bind::Awaits(flag, way) => self.program.awaits.push((self.ops.len(), flag, way)),
            &Bind::Exchanged(allocated) => {
                if let Op::Exchange(op) = &*item.op {
                    let (loc, members) = (self.program.next_loc(), Arc::clone(&op.members));
                    self.program.exchanges.push(symmetric::Exchanged { loc, members, allocated });
                }
            }
        }
    }

    /// Writes an operation; returns what it produces.
    fn write(&mut self, item: Lowered) -> Operand {
        let slot = Slot { start: ThreadStart(0), index: self.slots };
        self.bind(&item, slot);
        self.slots += item.op.slots();
        let loc = self.program.origin(item.origin);
        let op = self.shared.share(item.op);
        self.ops.push(Statement { op, loc });
        Operand::Slot(slot)
    }

    /// The calls that never returned, and the end.
    fn finish(mut self, process: &ProcessFile) -> RankRun {
        self.program.threads = self.threads.values().filter(|thread| thread.calls > 0).count();
        self.program.watchdogs = self.left.watchdogs;
        let exited = matches!(self.program.ending, RecordingEnd::Exit(_));
        let mut open: Vec<(u32, OpenCall)> = Vec::new();
        for (thread, state) in &mut self.threads {
            open.extend(state.open.drain(..).map(|open| (*thread, open)));
        }
        open.sort_by_key(|(_, open)| open.origin.number);
        let mut inside = Vec::new();
        let (mut apart, mut stands, before) = (false, false, self.own_threads.len());
        self.program.truncated = process.truncated().is_some();
        let mut goes_on = self.program.truncated;
        self.open_at_end(process, &open);
        for (thread, open) in open {
            let kind = self.kind(process, open.shape);
            if kind.polls() {
                continue;
            }
            self.device.thread = thread;
            inside.push(open.origin);
            let ops = self.ops.len();
            if self.program.last.is_none_or(|last| last.number < open.origin.number) {
                self.program.times.0 = self.program.times.0.max(open.time);
            }
            if let Some(lacks) = kind.lacks(process.shape(open.shape)) {
                self.known_before(&open, lacks);
            }
            let items = self.items_of(kind, &open, process.shape(open.shape), None);
            // Who went on while another thread stood does not wait for it; and of a file that was cut nobody knows.
            let beside = |(other, state): (&u32, &HostThread)| {
                *other != thread && state.acted.is_some_and(|acted| acted > open.time)
            };
            let returned = if exited {
                Completed::Yes
            } else if self.program.truncated || self.threads.iter().any(beside) {
                goes_on = true;
                Completed::NeverApart
            } else {
                Completed::Never
            };
            self.put(thread, kind, &open, items, returned);
            apart |= self.own_threads.len() > before;
            stands |= self.ops.len() > ops;
        }
        // A process with a thread that stands apart from the others is taken to wait for it.
        let returns = exited || (apart && !stands && !goes_on);
        let terminator = if returns { Terminator::Return } else { Terminator::Cut };
        if !exited {
            self.program.ending = RecordingEnd::Cut { inside };
        }
        let mut blocks = vec![Arc::new(Block { ops: self.ops, terminator })];
        blocks.append(&mut self.own_threads);
        self.program.blocks = blocks;
        self.program.streams = self.device.used();
        self.program.waits.driver = process.header.driver;
        if let Some(until) = &self.program.until {
            self.program.cut_off(until.ops);
        }
        self.program
    }

    /// Notes the innermost call of each thread that never returned, and for what it waits.
    fn open_at_end(&mut self, process: &ProcessFile, open: &[(u32, OpenCall)]) {
        let mut threads: Vec<u32> = Vec::new();
        for (thread, _) in open {
            if !threads.contains(thread) {
                threads.push(*thread);
            }
        }
        for thread in threads {
            let calls = || open.iter().filter(|(other, _)| *other == thread).map(|(_, open)| open);
            let every_ranks = |open: &&OpenCall| {
                let shape = process.shape(open.shape);
                CallKind::of(&shape.name).is_every_ranks(shape)
            };
            let mut told: Vec<&OpenCall> = calls().filter(every_ranks).take(1).collect();
            let innermost = calls().next_back();
            told.extend(innermost.filter(|open| told.iter().all(|other| other.origin != open.origin)));
            for call in told {
                let (shape, kind) = (process.shape(call.shape), self.kind(process, call.shape));
                if kind.polls() {
                    continue;
                }
                let text = |key: &str| shape.get(key).and_then(Argument::text);
                let waits = match (kind, self.comm(call::number(shape, "comm"))) {
                    (kind, _) if kind.is_every_ranks(shape) => {
                        let members = text("members").map(Into::into);
                        OpenWait::MakesGroup { nth: call.groups_made, members }
                    }
                    (CallKind::Store, _) => OpenWait::Key(text("key").unwrap_or_default().into()),
                    (kind, Some(comm)) if kind.destroys_together(shape) => OpenWait::Destroys(comm),
                    (_, _) => OpenWait::Other,
                };
                let (origin, entered) = (call.origin, call.time);
                self.program.open_calls.push(OpenCallAtEnd { origin, thread, entered, waits });
            }
        }
    }

    fn unjudged(&mut self, why: Unjudged, name: &str) -> Vec<Lowered> {
        // What comes behind that place is counted there.
        if self.program.until.is_none() {
            *self.program.unjudged.entry((why, name.into())).or_default() += 1;
        }
        Vec::new()
    }
}

/// The key that a call of a store sets.
fn key_set(call: &Shape) -> Option<&str> {
    let sets = ["set", "add", "compare_set"];
    let method = call.name.rsplit('.').next()?;
    sets.contains(&method).then(|| call.get("key").and_then(Argument::text)).flatten()
}

/// Whether a call came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completed {
    Yes,
    Never,
    /// It never returned, and other threads of the process may go on.
    NeverApart,
}

/// `2.28.9`, from that or from NCCL's own number for it.
fn version(value: &Argument) -> Option<String> {
    match value {
        Argument::Text(text) => Some(text.to_string()),
        Argument::Number(code) => Some(format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)),
        Argument::None | Argument::Signed(_) | Argument::Address(_) | Argument::Bytes(_) => None,
    }
}
