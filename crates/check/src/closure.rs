//! Programs written as Rust closures, for unit tests of somebody's protocol.
//!
//! Not here: words that Rust has already (threads of a rank, contexts, attempts) and hooks of pools.
//!
//! ```
//! use rankcheck::closure::Program;
//! use rankcheck::search::verdict::Verdict;
//! use rankcheck_model::Rule;
//!
//! const MIB: u64 = 1 << 20;
//!
//! // A pool that registers what it grows by: whether it grows is up to each rank.
//! let grows_alone = Program::new(2, |r| {
//!     let tp = r.comm("tp", &r.world());
//!     let pool = r.pool("symm");
//!     let kept = r.choose("earlier batches", &["none", "one"])?;
//!     for batch in 0..=kept {
//!         let x = r.alloc(pool, &format!("x{batch}"), 4 * MIB);
//!         r.register(&tp, &x);
//!     }
//!     Ok(())
//! });
//! let Verdict::Fails { primary, .. } = grows_alone.check()? else { panic!("one rank registers alone") };
//! assert_eq!(primary, Rule::Win1);
//!
//! // The repaired protocol allocates for the largest batch first, on every rank.
//! let preallocates = Program::new(2, |r| {
//!     let tp = r.comm("tp", &r.world());
//!     let pool = r.pool("symm");
//!     let x = r.alloc(pool, "x", 8 * MIB);
//!     r.register(&tp, &x);
//!     r.all_reduce(&tp, &x);
//!     Ok(())
//! });
//! assert_eq!(preallocates.check()?, Verdict::Holds);
//! # Ok::<(), rankcheck_model::SourceError>(())
//! ```
#![forbid(unsafe_code)]

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rankcheck_model::{
    Answer, BarrierOp, Collective, CollectiveKind, CommOp, Config, Declared, Dtype, Entry, EventOp, FlagAct,
    FlagOp, ListOp, MapOp, MapOrder, MemoryKind, MemoryOp, MutexOp, Op, Operand, Place, PlaceId, PoolOp,
    Question, Rank, ReduceOp, Resources, SizeClasses, Slot, Source, SourceError, StoreOp, StreamOp, Stretch,
    Symmetry, Test, ThreadOp, TieBreak, Token, WindowFlags, WindowOp,
};

use crate::recorder::{Memo, Names, Recorder, Stop};
use crate::search::explore::{Bounds, explore};
use crate::search::verdict::Verdict;

/// What a program gives back: `Ok(())` at its end, or the stop of a question that it passes up with `?`.
pub type Flow = Result<(), Stop>;

/// A program that every rank runs.
pub struct Program {
    ranks: u32,
    body: Box<dyn Fn(&mut RankProgram) -> Flow + Send + Sync>,
    names: Arc<Names>,
    memo: Memo,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl Program {
    /// A program of so many ranks. The closure must be pure: it may depend on its rank and on answers only.
    pub fn new(ranks: u32, body: impl Fn(&mut RankProgram) -> Flow + Send + Sync + 'static) -> Self {
        Self { ranks, body: Box::new(body), names: Arc::default(), memo: Memo::default() }
    }

    /// How many ranks run it.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
}

impl Program {
    /// Explores every choice of the program on the default platform, within the default bounds.
    ///
    /// # Errors
    /// If the program is not a function of the answers that it is given.
    pub fn check(self) -> Result<Verdict, SourceError> {
        let config = Config::new(self.ranks);
        let source: Arc<dyn Source> = Arc::new(self);
        Ok(Verdict::of(&explore(&source, config, &Bounds::default())?))
    }
}

impl Source for Program {
    fn stretch(&self, rank: Rank, entry: Entry, answers: &[Answer]) -> Result<Arc<Stretch>, SourceError> {
        if let Some(known) = self.memo.get(rank, entry, answers) {
            return Ok(known);
        }
        let recorder = Recorder::new(self.names.clone(), rank, self.ranks, entry, answers);
        let mut program = RankProgram { recorder };
        // How it ended stands in the recorder.
        let (Ok(()) | Err(Stop::Asked | Stop::Raised | Stop::Wrong)) = (self.body)(&mut program);
        self.memo.put(&self.names, rank, entry, answers, program.recorder.finish()?)
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.names.text(token)
    }

    fn place(&self, place: PlaceId) -> Place {
        self.names.place(place)
    }

    fn default_stream(&self) -> Token {
        self.names.token("default")
    }

    fn symmetry(&self) -> Symmetry {
        self.names.symmetry()
    }
}

/// One rank of a [`Program`], like `r` in a spec. Places are the lines of the caller.
#[derive(Debug)]
pub struct RankProgram {
    recorder: Recorder,
}

/// The result of an operation. It has no equality: [`RankProgram::equal`] asks.
#[derive(Debug, Clone)]
pub struct Held(Operand);

/// Memory with its length.
#[derive(Debug, Clone)]
pub struct Buffer {
    of: Operand,
    len_bytes: u64,
}

impl Buffer {
    /// `len_bytes` bytes from `offset_bytes` on.
    ///
    /// # Panics
    /// When they do not lie in the buffer.
    #[must_use]
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Self {
        assert!(offset_bytes + len_bytes <= self.len_bytes, "slice out of the buffer");
        let (of, before) = if let Operand::Slice { of, offset_bytes, .. } = &self.of {
            (of.clone(), *offset_bytes)
        } else {
            (Arc::new(self.of.clone()), 0)
        };
        let of = Operand::Slice { of, offset_bytes: before + offset_bytes, len_bytes };
        Self { of, len_bytes }
    }

    /// Its address, an opaque value.
    #[must_use]
    pub fn address(&self) -> Held {
        Held(Operand::Address(self.of.clone().into()))
    }

    /// The value that questions and maps take.
    #[must_use]
    pub fn held(&self) -> Held {
        Held(self.of.clone())
    }
}

macro_rules! named {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])* #[derive(Debug, Clone, Copy)] pub struct $name(Token);)*
    };
}
named! {
    /// A pool of this rank.
    Pool
    /// A stream of this rank.
    Stream
    /// An event of this rank.
    Event
    /// A mutex of this rank.
    Mutex
    /// A flag that all ranks see.
    Flag
    /// A list of this rank.
    List
}

/// A map of this rank.
#[derive(Debug, Clone, Copy)]
pub struct Map(Token, MapOrder);

impl RankProgram {
    #[track_caller]
    fn place(&self) -> PlaceId {
        let at = Location::caller();
        let place = Place { file: at.file().into(), line: at.line(), column: at.column(), called_at: None };
        self.recorder.names.place_id(&place)
    }

    fn token(&self, text: &str) -> Token {
        self.recorder.names.token(text)
    }

    #[track_caller]
    fn record(&mut self, verb: Op) {
        let place = self.place();
        // A stop stays in the recorder, which then records nothing more.
        let (Ok(_) | Err(Stop::Asked | Stop::Raised | Stop::Wrong)) = self.recorder.record(verb, place);
    }

    #[track_caller]
    fn record_slot(&mut self, verb: Op) -> Operand {
        let slot = self.recorder.slot(self.recorder.next_slot());
        self.record(verb);
        Operand::Slot(slot)
    }

    #[track_caller]
    fn ask(&mut self, question: Question) -> Result<(Answer, Slot), Stop> {
        let place = self.place();
        self.recorder.ask(question, place)
    }

    /// The rank number. Reading it makes ranks distinct.
    pub fn rank(&self) -> u32 {
        self.recorder.read_rank.store(true, Ordering::Relaxed);
        self.recorder.rank.0
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.recorder.ranks
    }

    /// All ranks.
    #[must_use]
    pub fn world(&self) -> Vec<u32> {
        (0..self.recorder.ranks).collect()
    }

    /// `ncclCommInitRank` with these world ranks.
    ///
    /// # Panics
    /// When a rank does not exist.
    #[track_caller]
    pub fn comm(&mut self, name: &str, ranks: &[u32]) -> Held {
        assert!(ranks.iter().all(|rank| *rank < self.size()), "no such rank in {ranks:?}");
        if ranks != self.world() {
            self.recorder.names.make_distinct();
        }
        let members = ranks.iter().copied().map(Rank).collect();
        let name = self.token(name);
        Held(self.record_slot(Op::Comm(CommOp::Init { name, members, children: Resources::Own })))
    }

    /// A pool that takes one segment of `ncclMemAlloc` for each request.
    #[track_caller]
    pub fn pool(&mut self, name: &str) -> Pool {
        self.pool_with(name, SizeClasses::Exact, TieBreak::Counter, MemoryKind::Nccl)
    }

    /// A pool.
    #[track_caller]
    pub fn pool_with(&mut self, name: &str, classes: SizeClasses, tie: TieBreak, memory: MemoryKind) -> Pool {
        let pool = self.token(name);
        self.record(Op::Pool(PoolOp::Declare { pool, classes, tie, memory }));
        Pool(pool)
    }

    /// Allocates a block on the default stream.
    #[track_caller]
    pub fn alloc(&mut self, pool: Pool, name: &str, len_bytes: u64) -> Buffer {
        let (name, stream) = (self.token(name), self.token("default"));
        Buffer {
            of: self.record_slot(Op::Pool(PoolOp::Alloc { pool: pool.0, name, len_bytes, stream })),
            len_bytes,
        }
    }

    /// Gives a block back.
    #[track_caller]
    pub fn free(&mut self, buffer: &Buffer) {
        self.record(Op::Memory(MemoryOp::Free { buffer: buffer.of.clone(), after: None }));
    }

    /// `ncclMemAlloc`.
    #[track_caller]
    pub fn mem_alloc(&mut self, name: &str, len_bytes: u64) -> Buffer {
        let name = self.token(name);
        let verb = Op::Memory(MemoryOp::Alloc { name, len_bytes, memory: MemoryKind::Nccl });
        Buffer { of: self.record_slot(verb), len_bytes }
    }

    /// `ncclCommWindowRegister` with the symmetric flag. Gives the window.
    #[track_caller]
    pub fn register(&mut self, comm: &Held, memory: &Buffer) -> Held {
        let verb = Op::Window(WindowOp::Register {
            comm: comm.0.clone(),
            memory: memory.of.clone(),
            flags: WindowFlags::CollSymmetric,
        });
        Held(self.record_slot(verb))
    }

    /// `ncclCommWindowDeregister`.
    #[track_caller]
    pub fn deregister(&mut self, comm: &Held, window: &Held) {
        self.record(Op::Window(WindowOp::Deregister { comm: comm.0.clone(), window: window.0.clone() }));
    }

    /// Sum of the whole buffer as `f32`, in place, on the default stream, on any kernel path.
    #[track_caller]
    pub fn all_reduce(&mut self, comm: &Held, x: &Buffer) {
        self.all_reduce_declared(comm, x, Declared::Nothing);
    }

    /// As [`RankProgram::all_reduce`], with what is declared about the kernel path.
    #[track_caller]
    pub fn all_reduce_declared(&mut self, comm: &Held, x: &Buffer, declared: Declared) {
        let call = Collective {
            kind: CollectiveKind::AllReduce,
            comm: comm.0.clone(),
            send: x.of.clone(),
            recv: x.of.clone(),
            count: x.len_bytes / Dtype::F32.len_bytes(),
            dtype: Dtype::F32,
            op: ReduceOp::Sum,
            stream: self.token("default"),
            declared,
        };
        self.record(Op::Collective(Arc::new(call)));
    }

    /// Sets a key of the store.
    #[track_caller]
    pub fn store_set(&mut self, key: &str, value: &str) {
        let (key, value) = (self.token(key), Operand::Token(self.token(value)));
        self.record(Op::Store(StoreOp::Set { key, value }));
    }

    /// Waits for a key of the store.
    #[track_caller]
    pub fn store_get(&mut self, key: &str) -> Held {
        let key = self.token(key);
        Held(self.record_slot(Op::Store(StoreOp::Get { key })))
    }

    /// A flag.
    pub fn flag(&self, name: &str) -> Flag {
        Flag(self.token(name))
    }

    /// Writes a flag.
    #[track_caller]
    pub fn flag_write(&mut self, flag: Flag, value: i64) {
        self.record(Op::Flag(FlagOp { flag: flag.0, act: FlagAct::Write(value), stream: None }));
    }

    /// Waits until a flag has this value.
    #[track_caller]
    pub fn flag_wait(&mut self, flag: Flag, value: i64) {
        let act = FlagAct::Wait(Test::Equal, value);
        self.record(Op::Flag(FlagOp { flag: flag.0, act, stream: None }));
    }

    /// A barrier of all ranks.
    #[track_caller]
    pub fn barrier(&mut self) {
        let members = self.world().into_iter().map(Rank).collect();
        self.record(Op::Barrier(BarrierOp::Enter { members }));
    }

    /// A local step.
    #[track_caller]
    pub fn step(&mut self, label: &str) {
        let label = self.token(label);
        self.record(Op::Thread(ThreadOp::Step { label }));
    }

    /// A place that some execution must come by.
    #[track_caller]
    pub fn reach(&mut self, label: &str) {
        let label = self.token(label);
        self.record(Op::Thread(ThreadOp::Reach { label }));
    }

    /// A stream by name.
    pub fn stream(&self, name: &str) -> Stream {
        Stream(self.token(name))
    }

    /// An event by name.
    pub fn event(&self, name: &str) -> Event {
        Event(self.token(name))
    }

    /// `cudaEventRecord`.
    #[track_caller]
    pub fn event_record(&mut self, event: Event, stream: Stream) {
        self.record(Op::Event(EventOp { event: event.0, stream: stream.0 }));
    }

    /// `cudaStreamWaitEvent`.
    #[track_caller]
    pub fn stream_wait(&mut self, stream: Stream, event: Event) {
        self.record(Op::Stream(StreamOp::Wait { stream: stream.0, event: event.0 }));
    }

    /// `cudaDeviceSynchronize`.
    #[track_caller]
    pub fn synchronize(&mut self) {
        self.record(Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
    }

    /// A kernel that reads and writes buffers.
    #[track_caller]
    pub fn kernel(&mut self, name: &str, reads: &[&Buffer], writes: &[&Buffer], stream: Stream) {
        let of = |buffers: &[&Buffer]| buffers.iter().map(|buffer| buffer.of.clone()).collect();
        let (name, reads, writes) = (self.token(name), of(reads), of(writes));
        self.record(Op::Stream(StreamOp::Kernel { name, reads, writes, stream: stream.0 }));
    }

    /// A mutex by name.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex(self.token(name))
    }

    /// Locks a mutex.
    #[track_caller]
    pub fn lock(&mut self, mutex: Mutex) {
        self.record(Op::Mutex(MutexOp::Lock { mutex: mutex.0 }));
    }

    /// Unlocks a mutex.
    #[track_caller]
    pub fn unlock(&mut self, mutex: Mutex) {
        self.record(Op::Mutex(MutexOp::Unlock { mutex: mutex.0 }));
    }

    /// A map by name.
    pub fn map(&self, name: &str, order: MapOrder) -> Map {
        Map(self.token(name), order)
    }

    /// Puts a value under a key.
    #[track_caller]
    pub fn map_put(&mut self, map: Map, key: &Held, value: &Held) {
        self.record(Op::Map(MapOp::Put { map: map.0, key: key.0.clone(), value: value.0.clone() }));
    }

    /// Keys and values in the map's order.
    ///
    /// # Errors
    /// The stop of a question without an answer.
    #[track_caller]
    pub fn map_items(&mut self, map: Map) -> Result<Vec<(Held, Held)>, Stop> {
        let (count, first) = self.ask(Question::MapItems { map: map.0, order: map.1 })?;
        let at = |n| Held(Operand::Slot(Slot { entry: first.entry, index: first.index + n }));
        Ok((0..count).map(|n| (at(2 * n), at(2 * n + 1))).collect())
    }

    /// A list by name.
    pub fn list(&self, name: &str) -> List {
        List(self.token(name))
    }

    /// Appends to a list.
    #[track_caller]
    pub fn list_push(&mut self, list: List, value: &Held) {
        self.record(Op::List(ListOp::Push { list: list.0, value: value.0.clone() }));
    }

    /// Raises: pass it up with `return Err(…)`. What nobody catches ends the rank.
    #[track_caller]
    pub fn raises(&mut self, message: &str) -> Stop {
        let place = self.place();
        self.recorder.raise(message.to_owned(), place)
    }

    /// The adversary chooses; gives the index of the option.
    ///
    /// # Errors
    /// The stop of a question without an answer.
    #[track_caller]
    pub fn choose(&mut self, name: &str, options: &[&str]) -> Result<usize, Stop> {
        let options = options.iter().map(|option| self.token(option)).collect();
        let name = self.token(name);
        self.ask(Question::Choose { name, options }).map(|(answer, _)| answer as usize)
    }

    /// Is this result null?
    ///
    /// # Errors
    /// The stop of a question without an answer.
    #[track_caller]
    pub fn failed(&mut self, x: &Held) -> Result<bool, Stop> {
        self.ask(Question::Failed(x.0.clone())).map(|(answer, _)| answer != 0)
    }

    /// Are these values equal?
    ///
    /// # Errors
    /// The stop of a question without an answer.
    #[track_caller]
    pub fn equal(&mut self, a: &Held, b: &Held) -> Result<bool, Stop> {
        self.ask(Question::Equal(a.0.clone(), b.0.clone())).map(|(answer, _)| answer != 0)
    }

    /// Did this allocation take a new segment?
    ///
    /// # Errors
    /// The stop of a question without an answer.
    #[track_caller]
    pub fn grew(&mut self, buffer: &Buffer) -> Result<bool, Stop> {
        self.ask(Question::Grew(buffer.of.clone())).map(|(answer, _)| answer != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn impure_evaluation_is_an_error_at_the_question() {
        let times = AtomicU32::new(0);
        let program = Program::new(2, move |r| {
            r.step(&times.fetch_add(1, Ordering::Relaxed).to_string());
            r.choose("which", &["a", "b"])?;
            Ok(())
        });
        program.stretch(Rank(0), Entry(0), &[]).expect("the first evaluation has nothing to differ from");
        let error = program.stretch(Rank(0), Entry(0), &[0]).expect_err("the second does another step");
        assert!(error.message.starts_with("impure evaluation"), "{error}");
        assert_eq!(error.place.map(|place| place.file).as_deref(), Some("crates/check/src/closure.rs"));
    }

    #[test]
    fn a_stretch_is_what_comes_after_the_last_answer() {
        let program = Program::new(2, |r| {
            r.step("before");
            if r.choose("which", &["a", "b"])? == 1 {
                return Err(r.raises("b is wrong"));
            }
            r.step("after");
            Ok(())
        });
        let ops = |answers: &[Answer]| {
            let stretch = program.stretch(Rank(1), Entry(0), answers).expect("pure");
            stretch.ops.iter().map(|op| op.op.clone()).collect::<Vec<_>>()
        };
        let token = |text| program.names.token(text);
        assert_eq!(ops(&[0]), [Op::Thread(ThreadOp::Step { label: token("after") })]);
        assert_eq!(ops(&[1]), [Op::Thread(ThreadOp::Exit { code: token("b is wrong") })]);
        assert_eq!(ops(&[]), [Op::Thread(ThreadOp::Step { label: token("before") })]);
        assert_eq!(program.symmetry(), Symmetry::Interchangeable);
    }
}
