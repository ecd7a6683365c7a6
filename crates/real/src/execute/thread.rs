//! A host thread of a program: its walk through the stretches, and the dispatch of verbs and questions.
//!
//! Not here: what the verbs of the nouns do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::Duration;

use rankcheck_model::{
    Answer, BarrierOp, CommOp, End, Entry, EventOp, ExchangeOp, FlagOp, GraphOp, GroupOp, IpcOp, ListOp,
    MAX_NUMBER, MapOp, MemoryOp, MutexOp, Op, Operand, OverlapOp, PoolOp, Question, Rank, Source, StoreOp,
    StreamOp, ThreadOp, WindowOp,
};

use super::device::{Shared, locked};
use super::inspect::{Standing, WaitsFor};
use super::luck::{Kind, Luck, number};
use super::map;
use super::tables::{Tables, ThreadRow};
use super::value::Value;
use super::words;
use crate::Error;
use crate::case::{At, CallFailed, Case, Host, Pick, Taken, Vote};
use crate::ffi::cuda::{Device, Progress};
use crate::ffi::nccl;
use crate::kernel::Element;
use crate::window::Pending;

/// How long a thread that waits for another of its rank sleeps before it looks whether the case is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Polls before a thread that waits for the device gives the processor away.
const BUSY_POLLS: u32 = 2000;

/// Why a thread goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The program ended it.
    Exited(String),
    /// The context is lost, with this `CUresult`.
    Broken(u32),
    /// The work cannot be done.
    Failed(String),
    /// Another thread stopped for one of the two reasons above.
    Others,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.cuda_code() {
            Some(code) if loses_context(code) => Self::Broken(code),
            Some(_) | None => Self::Failed(error.to_string()),
        }
    }
}

/// `CUresult`s after which the process has to end (`cuda.h`): an uncorrectable error, and what kernels do
/// wrong.
pub(crate) fn loses_context(code: u32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719)
}

/// `CUresult`s of calls that a capture forbids, or that do not fit it (`cuda.h`).
pub(crate) fn refused_by_capture(code: u32) -> bool {
    matches!(code, 401 | 900..=908)
}

/// A case as one rank runs it.
pub(crate) struct Run<'e> {
    pub(crate) shared: &'e Shared,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) rank: Rank,
    pub(crate) case: &'e Case,
    pub(crate) element: Element,
    pub(crate) tables: Mutex<Tables>,
    /// Some thread changed what another may wait for.
    pub(crate) changed: Condvar,
    pub(crate) luck: Mutex<Luck>,
}

impl Run<'_> {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        locked(&self.tables)
    }
}

/// An open group of a thread.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) depth: u32,
    pub(crate) registrations: Vec<Grouped>,
    /// Streams and indices of what is launched when the group ends.
    pub(crate) launches: Vec<(usize, u32)>,
}

/// A registration inside a group.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) slot: usize,
    pub(crate) comm: usize,
    pub(crate) buffer: Option<Arc<super::value::Buffer>>,
    pub(crate) pending: Pending,
}

/// Whether the operation still has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Held,
    No,
}

/// A host thread.
pub(crate) struct Thread<'s, 'e> {
    pub(crate) run: &'e Run<'e>,
    scope: &'s Scope<'s, 'e>,
    pub(crate) device: Device,
    pub(crate) number: u32,
    entry: Entry,
    /// Operations and questions done so far.
    index: u32,
    turn: Turn,
    pub(crate) group: Group,
}

/// Starts a host thread of the program. Its row is in the tables already.
pub(crate) fn start<'s, 'e>(scope: &'s Scope<'s, 'e>, run: &'e Run<'e>, number: u32, entry: Entry) {
    run.shared.inspect.stand(number, Standing::Running);
    scope.spawn(move || {
        let result = run.shared.context.enter().map_err(Stop::from).and_then(|device| {
            let group = Group::default();
            let mut thread = Thread { run, scope, device, number, entry, index: 0, turn: Turn::No, group };
            thread.walk()
        });
        let inspect = &run.shared.inspect;
        let standing = match result {
            Ok(()) | Err(Stop::Others) => Standing::Done,
            Err(Stop::Exited(message)) => Standing::Exited(message),
            Err(Stop::Broken(code)) => {
                inspect.broke(code);
                Standing::Done
            }
            Err(Stop::Failed(why)) => {
                inspect.gave_up(why);
                Standing::Done
            }
        };
        inspect.stand(number, standing);
        run.tables().threads[number as usize].ended = true;
        run.changed.notify_all();
    });
}

impl Thread<'_, '_> {
    fn walk(&mut self) -> Result<(), Stop> {
        let mut answers: Vec<Answer> = Vec::new();
        loop {
            let stretch = self.run.source.stretch(self.run.rank, self.entry, &answers);
            let stretch = stretch.map_err(|error| Stop::Failed(error.to_string()))?;
            for op in &stretch.ops {
                self.begin()?;
                let produced = self.operation(&op.op)?;
                self.run.tables().produce(self.number, produced);
                self.end_turn()?;
                self.index += 1;
            }
            let End::Ask(question, _) = &stretch.end else { return Ok(()) };
            self.begin()?;
            let (answer, produced) = self.answer(question)?;
            self.run.tables().produce(self.number, produced);
            self.end_turn()?;
            self.run.shared.inspect.answered(self.number, answer);
            answers.push(answer);
            self.index += 1;
        }
    }

    /// Where the thread stands.
    pub(crate) fn at(&self) -> At {
        At { rank: self.run.rank, thread: self.number, index: self.index }
    }

    fn begin(&mut self) -> Result<(), Stop> {
        if self.run.shared.inspect.stopped() {
            return Err(Stop::Others);
        }
        let at = self.at();
        if locked(&self.run.luck).turns.contains(&at) {
            self.inside("waiting for its turn", WaitsFor::Hosts, |thread| thread.run.host.turn(at))?;
            self.turn = Turn::Held;
        }
        if let Some(pick) = self.wanted(Kind::Death) {
            let dies = pick == Pick::Death { dies: true };
            self.took(Some(pick.clone()), pick);
            if dies {
                self.run.host.enter(self.number, self.index, "death");
                std::process::abort();
            }
        }
        Ok(())
    }

    /// The operation goes on by itself, or waits for other ranks: the next turn may begin.
    pub(crate) fn end_turn(&mut self) -> Result<(), Stop> {
        if self.turn == Turn::Held {
            self.turn = Turn::No;
            self.run.host.turn_over(self.at())?;
        }
        Ok(())
    }

    /// Makes a call that others can see the thread inside of.
    pub(crate) fn inside<T>(&self, words: &str, waits: WaitsFor, call: impl FnOnce(&Self) -> T) -> T {
        let Run { shared, host, .. } = self.run;
        host.enter(self.number, self.index, words);
        shared.inspect.stand(self.number, Standing::Inside(self.index, words.to_owned(), waits));
        let result = call(self);
        shared.inspect.stand(self.number, Standing::Running);
        host.leave(self.number, self.index);
        result
    }

    pub(crate) fn words(&self, verb: &Op) -> String {
        words::operation(&self.run.tables(), &*self.run.source, verb)
    }

    pub(crate) fn value(&self, operand: &Operand) -> Value {
        self.run.tables().value(&*self.run.source, operand)
    }

    /// The forced pick of this operation, if it is of this kind.
    pub(crate) fn wanted(&self, kind: Kind) -> Option<Pick> {
        locked(&self.run.luck).take(self.at(), kind)
    }

    pub(crate) fn took(&self, wanted: Option<Pick>, pick: Pick) {
        self.run.shared.inspect.took(Taken { at: self.at(), wanted, pick });
    }

    /// Whether the call is made to fail without being made.
    pub(crate) fn fails(&self) -> bool {
        let Some(pick) = self.wanted(Kind::Fault) else { return false };
        let fails = pick == Pick::Fault { fails: true };
        self.took(Some(pick.clone()), pick);
        fails
    }

    /// A call returned an error, or would have.
    pub(crate) fn failed(&self, call: String, code: i32, detail: Option<String>) {
        let failed = CallFailed { call, code, thread: self.number, index: self.index, detail };
        self.run.shared.inspect.failed_call(failed);
    }

    /// Notes what a call returned; the result, or nothing if it was an error that the program goes on after.
    pub(crate) fn noted<T>(&self, call: &str, result: Result<T, Error>) -> Result<Option<T>, Stop> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        if !error.is_of_a_call() {
            return Err(error.into());
        }
        let (code, detail) = if let Error::Nccl { code, .. } = &error {
            (i32::try_from(*code).unwrap_or(i32::MAX), nccl::last_error(&self.run.shared.libraries))
        } else {
            // As NCCL says it: an unhandled CUDA error. What captures forbid keeps its own code.
            let code = error.cuda_code().filter(|code| refused_by_capture(*code)).unwrap_or(1);
            (i32::try_from(code).unwrap_or(i32::MAX), error.to_string())
        };
        self.failed(call.to_owned(), code, Some(detail));
        self.unbroken(&error)?;
        Ok(None)
    }

    /// Stops if an error has taken the context with it.
    pub(crate) fn unbroken(&self, error: &Error) -> Result<(), Stop> {
        // Every call of a lost context answers with the code that lost it.
        let now = self.run.shared.aside.query().err().and_then(|error| error.cuda_code());
        match error.cuda_code().into_iter().chain(now).find(|code| loses_context(*code)) {
            Some(code) => Err(Stop::Broken(code)),
            None => Ok(()),
        }
    }

    /// Waits until the tables are as wanted.
    pub(crate) fn wait_until(&self, ready: impl Fn(&Tables) -> bool) -> Result<MutexGuard<'_, Tables>, Stop> {
        let mut tables = self.run.tables();
        while !ready(&tables) {
            if self.run.shared.inspect.stopped() {
                return Err(Stop::Others);
            }
            let waited = self.run.changed.wait_timeout(tables, LOOK_AGAIN);
            tables = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(tables)
    }

    /// The same, seen from outside only if there is something to wait for.
    pub(crate) fn wait_inside(
        &self,
        words: &str,
        ready: impl Fn(&Tables) -> bool,
    ) -> Result<MutexGuard<'_, Tables>, Stop> {
        loop {
            let tables = self.run.tables();
            if ready(&tables) {
                return Ok(tables);
            }
            drop(tables);
            self.inside(words, WaitsFor::Hosts, |thread| thread.wait_until(&ready).map(drop))?;
        }
    }

    /// Waits until the device has got somewhere.
    pub(crate) fn poll_until(&self, mut query: impl FnMut() -> Result<Progress, Error>) -> Result<(), Stop> {
        let mut polls = 0_u32;
        while query()? == Progress::Pending {
            if self.run.shared.inspect.stopped() {
                return Err(Stop::Others);
            }
            polls = polls.saturating_add(1);
            if polls < BUSY_POLLS {
                std::thread::yield_now();
            } else {
                std::thread::park_timeout(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn operation(&mut self, verb: &Op) -> Result<Option<Value>, Stop> {
        let nothing = Ok(None);
        match verb {
            Op::Thread(ThreadOp::Step { .. })
            | Op::Thread(ThreadOp::Steady)
            | Op::Thread(ThreadOp::Measure { .. })
            | Op::Overlap(OverlapOp { .. }) => nothing,
            Op::Thread(ThreadOp::Spawn { entry }) => Ok(Some(self.spawn(*entry))),
            Op::Thread(ThreadOp::Join { thread }) => self.join(verb, thread).and(nothing),
            Op::Thread(ThreadOp::Exit { code }) => {
                Err(Stop::Exited(self.run.source.token(*code).to_string()))
            }
            Op::Thread(ThreadOp::Reach { label }) => {
                self.run.shared.inspect.reached(&self.run.source.token(*label));
                nothing
            }
            Op::Comm(CommOp::Init { name, members, children }) => {
                self.comm_init(verb, *name, members, *children).map(Some)
            }
            Op::Comm(CommOp::Split { comm, name, color }) => {
                self.comm_split(verb, comm, *name, *color).map(Some)
            }
            Op::Comm(CommOp::Destroy { comm }) => self.comm_destroy(verb, comm).and(nothing),
            Op::Window(WindowOp::Register { comm, memory, flags }) => {
                self.register(verb, comm, memory, *flags).map(Some)
            }
            Op::Window(WindowOp::Deregister { comm, window }) => {
                self.deregister(verb, comm, window).and(nothing)
            }
            Op::Group(GroupOp::Start) => self.group_start(verb).and(nothing),
            Op::Group(GroupOp::End) => self.group_end(verb).and(nothing),
            Op::Collective(call) => self.collect(verb, call).and(nothing),
            Op::Transfer(call) => self.transfer(verb, call).and(nothing),
            Op::Stream(StreamOp::Kernel { name, reads, writes, stream }) => {
                self.kernel(verb, *name, (reads, writes), *stream).and(nothing)
            }
            Op::Event(EventOp { event, stream }) => self.event_record(verb, *event, *stream).and(nothing),
            Op::Stream(StreamOp::Wait { stream, event }) => {
                self.stream_wait(verb, *stream, *event).and(nothing)
            }
            Op::Stream(StreamOp::Synchronize { what }) => self.synchronize(verb, what).and(nothing),
            Op::Graph(GraphOp::Begin { .. }) => self.graph_begin(verb).and(nothing),
            Op::Graph(GraphOp::End { graph }) => self.graph_end(verb, *graph).map(Some),
            Op::Graph(GraphOp::Replay { graph, stream }) => {
                self.graph_replay(verb, *graph, *stream).and(nothing)
            }
            Op::Graph(GraphOp::Destroy { graph }) => self.graph_destroy(verb, *graph).and(nothing),
            Op::Pool(PoolOp::Declare { pool, classes, tie, memory }) => {
                self.declare_pool(*pool, (*classes, *tie, *memory));
                nothing
            }
            Op::Pool(PoolOp::Lock { pool }) => self.pool_lock(verb, *pool).and(nothing),
            Op::Pool(PoolOp::Unlock { pool }) => {
                self.pool_unlock(*pool);
                nothing
            }
            Op::Pool(PoolOp::Alloc { pool, name, len_bytes, stream }) => {
                self.alloc(verb, *pool, *name, (*len_bytes, *stream)).map(Some)
            }
            Op::Memory(MemoryOp::Free { buffer, after }) => self.free(verb, buffer, *after).and(nothing),
            Op::Pool(PoolOp::Trim { pool, release }) => self.trim(verb, *pool, *release).map(Some),
            Op::Memory(MemoryOp::Release { segment }) => self.release_segment(verb, segment).and(nothing),
            Op::Pool(PoolOp::Havoc { pool, max, sizes_bytes }) => {
                self.havoc(verb, *pool, *max, sizes_bytes).and(nothing)
            }
            Op::Memory(MemoryOp::Alloc { name, len_bytes, memory }) => {
                self.mem_alloc(verb, *name, *len_bytes, *memory).map(Some)
            }
            Op::Barrier(BarrierOp::Enter { .. })
            | Op::Barrier(BarrierOp::AllAgree { .. })
            | Op::Store(StoreOp::Set { .. })
            | Op::Store(StoreOp::Get { .. })
            | Op::Store(StoreOp::Delete { .. }) => self.meet_hosts(verb),
            Op::Memory(MemoryOp::Expect { .. }) => nothing,
            Op::Flag(FlagOp { flag, act, stream }) => self.flag(verb, *flag, *act, *stream).and(nothing),
            Op::Memory(MemoryOp::Copy { to, from, stream }) => {
                self.copy(verb, (to, from), *stream).and(nothing)
            }
            Op::Ipc(IpcOp::Export { buffer }) => self.export(verb, buffer).map(Some),
            Op::Ipc(IpcOp::Open { handle }) => self.open(verb, handle).map(Some),
            Op::Ipc(IpcOp::Close { mapping }) => self.close(verb, mapping).and(nothing),
            Op::Exchange(ExchangeOp { members, name, buffer }) => {
                // The one operation that produces several slots.
                let produced = self.exchange(verb, members, *name, buffer)?;
                self.run.tables().produce(self.number, produced);
                nothing
            }
            Op::Mutex(MutexOp::Lock { mutex }) => {
                let words = self.words(verb);
                let mut tables = self.wait_inside(&words, |tables| !tables.mutexes.contains_key(mutex))?;
                tables.mutexes.insert(*mutex, self.number);
                nothing
            }
            Op::Mutex(MutexOp::Unlock { mutex }) => {
                let mut tables = self.run.tables();
                if tables.mutexes.get(mutex) == Some(&self.number) {
                    tables.mutexes.remove(mutex);
                    self.run.changed.notify_all();
                }
                nothing
            }
            Op::Map(MapOp::Put { .. })
            | Op::Map(MapOp::Pop { .. })
            | Op::Map(MapOp::Get { .. })
            | Op::Map(MapOp::Clear { .. })
            | Op::List(ListOp::Push { .. })
            | Op::List(ListOp::Get { .. })
            | Op::List(ListOp::Set { .. })
            | Op::List(ListOp::Pop { .. })
            | Op::List(ListOp::Clear { .. }) => Ok(map::run(&mut self.run.tables(), &*self.run.source, verb)),
        }
    }

    fn answer(&mut self, question: &Question) -> Result<(Answer, Vec<Value>), Stop> {
        let is = |truth: bool| Ok((Answer::from(truth), Vec::new()));
        match question {
            Question::Choose { options, .. } => {
                let wanted = self.wanted(Kind::Choose);
                let last = u32::try_from(options.len()).expect("few options").saturating_sub(1);
                let option = wanted.as_ref().map_or(0, number).min(last);
                self.took(wanted, Pick::Choose { option });
                Ok((option, Vec::new()))
            }
            Question::Grew(of) => {
                let value = self.value(of);
                is(if let Value::Buffer(buffer) = value { buffer.grew } else { false })
            }
            Question::Failed(of) => is(self.value(of) == Value::Null),
            Question::Equal(a, b) => is(self.value(a).same(&self.value(b))),
            Question::Truth(of) => is(self.value(of).truth()),
            Question::Number(of) => {
                let value = self.value(of);
                let number = if let Value::Int(number) = value { number } else { 0 };
                let number = u32::try_from(number.clamp(0, i64::from(MAX_NUMBER))).expect("clamped");
                Ok((number, Vec::new()))
            }
            Question::MapHas { .. } | Question::ListLen { .. } => {
                let answer = map::ask(&self.run.tables(), &*self.run.source, question);
                Ok((answer, Vec::new()))
            }
            Question::MapItems { map, order } => Ok(self.items(*map, *order)),
            Question::Trimmed(of) => {
                let value = self.value(of);
                let segments = if let Value::Trimmed(segments) = value { segments } else { [].into() };
                let produced: Vec<Value> = segments.iter().map(|s| Value::Buffer(Arc::clone(s))).collect();
                Ok((u32::try_from(produced.len()).expect("few segments"), produced))
            }
            Question::HasWindow { comm, buffer } => {
                let tables = self.run.tables();
                let source = &*self.run.source;
                let found = tables.comm_number(source, comm).zip(tables.buffer(source, buffer));
                is(found.is_some_and(|(comm, buffer)| tables.has_window(comm, &buffer)))
            }
            Question::EventQuery { event } => is(self.query(*event)?),
        }
    }

    fn spawn(&mut self, entry: Entry) -> Value {
        let number = {
            let mut tables = self.run.tables();
            tables.threads.push(ThreadRow { entry, slots: Vec::new(), ended: false });
            u32::try_from(tables.threads.len() - 1).expect("few threads")
        };
        start(self.scope, self.run, number, entry);
        Value::Thread(number)
    }

    fn join(&mut self, verb: &Op, thread: &Operand) -> Result<(), Stop> {
        let Value::Thread(child) = self.value(thread) else { return Ok(()) };
        let words = self.words(verb);
        self.wait_inside(&words, |tables| tables.threads[child as usize].ended).map(drop)
    }

    /// Walks a map; addresses lie as they really do.
    fn items(&self, map: rankcheck_model::Token, order: rankcheck_model::MapOrder) -> (Answer, Vec<Value>) {
        use rankcheck_model::MapOrder;
        let mut tables = self.run.tables();
        let mut entries = tables.maps.get(&map).cloned().unwrap_or_default();
        if map::compares(order, entries.len()) {
            let kind = if order == MapOrder::Hash { Kind::HashOrder } else { Kind::AddressOrder };
            for (key, _) in &entries {
                self.place(&mut tables, &key.without_offset(), kind);
            }
            let known = if order == MapOrder::Hash { &tables.hash_order } else { &tables.address_order };
            entries = map::sorted(entries, known);
        }
        let count = u32::try_from(entries.len()).expect("few entries");
        (count, entries.into_iter().flat_map(|(key, value)| [key, value]).collect())
    }

    /// Gives a value its place among those already compared, as luck wants it or as it really is.
    pub(crate) fn place(&self, tables: &mut Tables, value: &Value, kind: Kind) {
        let real = kind == Kind::AddressOrder;
        let order = if real { &mut tables.address_order } else { &mut tables.hash_order };
        if order.contains(value) {
            return;
        }
        // One possibility is no choice, and no pick is spent on it.
        let wanted = if order.is_empty() { None } else { self.wanted(kind) };
        let at = map::place(order, value, real, wanted.as_ref().map(number));
        if !order.is_empty() {
            let position = u32::try_from(at).expect("few values");
            let pick = if real { Pick::AddressOrder { position } } else { Pick::HashOrder { position } };
            self.took(wanted, pick);
        }
        order.insert(at, value.clone());
    }

    /// What passes through other hosts without a call of CUDA or NCCL.
    fn meet_hosts(&mut self, verb: &Op) -> Result<Option<Value>, Stop> {
        let words = self.words(verb);
        let name = |token: &rankcheck_model::Token| self.run.source.token(*token);
        let host = &*self.run.host;
        if let Op::Barrier(BarrierOp::Enter { members }) | Op::Barrier(BarrierOp::AllAgree { members, .. }) =
            verb
        {
            let nth = {
                let mut tables = self.run.tables();
                let count = tables.hosts.entry(Arc::clone(members)).or_default();
                *count += 1;
                *count - 1
            };
            let asked = if let Op::Barrier(BarrierOp::AllAgree { value, .. }) = verb {
                Some(self.value(value))
            } else {
                None
            };
            let no = asked.as_ref().is_some_and(|value| !value.truth());
            let vote = if no { Vote::No } else { Vote::Yes };
            self.end_turn()?;
            let agreed = self.inside(&words, WaitsFor::Hosts, |_| host.agree(members, nth, vote))?;
            return Ok(asked.map(|_| Value::Bool(agreed == Vote::Yes)));
        }
        self.inside(&words, WaitsFor::Hosts, |thread| {
            if let Op::Store(StoreOp::Set { key, value }) = verb {
                let value = thread.value(value);
                let tables = thread.run.tables();
                let in_words = |value: &Value| words::value(&tables, &*thread.run.source, value);
                let stored = value.to_store(thread.run.rank, &in_words);
                drop(tables);
                host.store_set(&name(key), stored)?;
            } else if let Op::Store(StoreOp::Get { key }) = verb {
                return Ok(Some(Value::from_store(&host.store_get(&name(key))?)));
            } else if let Op::Store(StoreOp::Delete { key }) = verb {
                host.store_delete(&name(key))?;
            }
            Ok(None)
        })
    }
}
