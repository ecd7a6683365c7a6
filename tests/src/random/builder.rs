//! Builds a program of fragments: what several of them use is made once, before them.
//!
//! Not here: the fragments.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rankcheck_model::{
    BarrierOp, Collective, CollectiveKind, CommOp, Config, Declared, Dtype, EventOp, ExchangeOp, FlagAct,
    FlagOp, GroupOp, ListOp, MemoryKind, MemoryOp, Op, Operand, Parting, Question, Rank, ReduceOp, Resources,
    Slot, StoreOp, StreamOp, ThreadOp, ThreadStart, Token, WindowFlags, WindowOp,
};

use super::Fragment;
use super::draw::{By, Either, Who};
use crate::script::{Recall, Script};

pub(super) const MIB: u64 = 1 << 20;

/// What several fragments use. Only what is used is made: each operation multiplies the interleavings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Common {
    /// A communicator of all ranks.
    Comm,
    /// Its children share its channels.
    SharedChannels,
    /// A second communicator of all ranks.
    OtherComm,
    /// A buffer of a rank.
    A(u32),
    /// Another buffer of a rank.
    B(u32),
    /// A buffer of each rank that all have open.
    Mapped,
    /// The second thread of a rank.
    SecondThread(u32),
}

/// A thread of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) rank: u32,
    pub(super) thread: u32,
}

/// The first thread of a rank.
pub(super) fn first(rank: u32) -> At {
    At { rank, thread: 0 }
}

pub(super) fn slice(of: &Operand, offset_bytes: u64, len_bytes: u64) -> Operand {
    Operand::Slice { of: Arc::new(of.clone()), offset_bytes, len_bytes }
}

/// What was made of [`Common`] for one rank, null where it was not.
#[derive(Debug)]
struct Made {
    comm: Operand,
    other_comm: Operand,
    a: Operand,
    b: Operand,
    mapped: Operand,
    /// The mappings of what the ranks have open.
    maps: Vec<Operand>,
    /// Windows that fragments registered.
    windows: Vec<Operand>,
    /// The second thread, as the first knows it.
    second: Operand,
    /// The result of the last agreement of the first thread.
    agreed: Option<Operand>,
}

pub(super) struct Builder {
    pub(super) script: Script,
    pub(super) config: Config,
    ranks: u32,
    made: BTreeSet<Common>,
    used: BTreeSet<Common>,
    of: Vec<Made>,
    fresh: u32,
    /// The first rank that a fragment is about.
    about: Option<u32>,
    asked_last: Vec<(At, Question)>,
}

/// A program of fragments.
pub(super) struct Built {
    pub(super) script: Script,
    pub(super) config: Config,
    /// The rank that the first of them is about: what it does is seldom what all do.
    pub(super) about: u32,
}

/// The program of these fragments.
pub(super) fn built(ranks: u32, fragments: &[Fragment]) -> Built {
    let mut made = BTreeSet::new();
    // What fragments use is seen when they are built; then it is made, and they are built again.
    loop {
        let mut b = Builder::new(ranks, made.clone());
        for fragment in fragments {
            fragment.build(&mut b);
        }
        if b.used.is_subset(&made) {
            return b.finished();
        }
        made.append(&mut b.used);
    }
}

impl Builder {
    fn new(ranks: u32, made: BTreeSet<Common>) -> Self {
        let mut b = Self {
            script: Script::new(ranks as usize),
            // What may be forgotten is, at once; the naive semantics keeps all.
            config: Config { launches_kept: 1, ..Config::new(ranks) },
            ranks,
            made,
            used: BTreeSet::new(),
            of: Vec::new(),
            fresh: 0,
            about: None,
            asked_last: Vec::new(),
        };
        for rank in 0..ranks {
            let made = b.make(rank);
            b.of.push(made);
        }
        if b.made.contains(&Common::Mapped) {
            for rank in 0..ranks {
                let mapped = b.alloc(first(rank), "mine", MIB, MemoryKind::Cuda);
                let maps = b.exchange(rank, "mine", mapped.clone());
                let of = &mut b.of[rank as usize];
                (of.mapped, of.maps) = (mapped, maps);
            }
        }
        for rank in 0..ranks {
            if b.made.contains(&Common::SecondThread(rank)) {
                b.script.thread(rank);
                let spawned = b.push(first(rank), Op::Thread(ThreadOp::Spawn { start: ThreadStart(1) }));
                b.of[rank as usize].second = spawned;
            }
        }
        b
    }

    fn make(&mut self, rank: u32) -> Made {
        let has = |common| self.made.contains(&common);
        let (comm, other) = (has(Common::Comm), has(Common::OtherComm));
        let (a, b) = (has(Common::A(rank)), has(Common::B(rank)));
        let children = if has(Common::SharedChannels) { Resources::Shared } else { Resources::Own };
        let at = first(rank);
        Made {
            comm: if comm { self.init(at, "tp", children) } else { Operand::Null },
            other_comm: if other { self.init(at, "ep", Resources::Own) } else { Operand::Null },
            a: if a { self.alloc(at, "a", 4 * MIB, MemoryKind::Nccl) } else { Operand::Null },
            b: if b { self.alloc(at, "b", 4 * MIB, MemoryKind::Nccl) } else { Operand::Null },
            mapped: Operand::Null,
            maps: vec![Operand::Null; self.ranks as usize],
            windows: Vec::new(),
            second: Operand::Null,
            agreed: None,
        }
    }

    fn finished(mut self) -> Built {
        for (at, question) in std::mem::take(&mut self.asked_last) {
            self.ask(at, question, Vec::new());
        }
        Built { script: self.script, config: self.config, about: self.about.unwrap_or(0) }
    }

    // Who and what there is.

    pub(super) fn ranks(&self) -> Range<u32> {
        0..self.ranks
    }

    pub(super) fn all(&self) -> Arc<[Rank]> {
        self.ranks().map(Rank).collect()
    }

    pub(super) fn rank(&mut self, who: Who) -> u32 {
        let rank = who.0 % self.ranks;
        self.about.get_or_insert(rank);
        rank
    }

    pub(super) fn next(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }

    /// All ranks but one.
    pub(super) fn all_but(&self, rank: u32) -> Arc<[Rank]> {
        self.ranks().filter(|r| *r != rank).map(Rank).collect()
    }

    pub(super) fn at(&mut self, who: Who, by: By) -> At {
        let rank = self.rank(who);
        self.by(rank, by)
    }

    pub(super) fn by(&mut self, rank: u32, by: By) -> At {
        match by {
            By::First => first(rank),
            By::SecondIfThere if self.has_second(rank) => At { rank, thread: 1 },
            By::SecondIfThere => first(rank),
            By::Second => self.second(rank),
        }
    }

    pub(super) fn has_second(&self, rank: u32) -> bool {
        self.made.contains(&Common::SecondThread(rank))
    }

    /// The second thread of a rank, which is started at the beginning.
    pub(super) fn second(&mut self, rank: u32) -> At {
        self.used.insert(Common::SecondThread(rank));
        At { rank, thread: 1 }
    }

    /// The first thread waits for the end of the second.
    pub(super) fn join(&mut self, rank: u32) {
        self.second(rank);
        let thread = self.of[rank as usize].second.clone();
        self.push(first(rank), Op::Thread(ThreadOp::Join { thread }));
    }

    pub(super) fn comm(&mut self, rank: u32) -> Operand {
        self.used.insert(Common::Comm);
        self.of[rank as usize].comm.clone()
    }

    /// The same, of which what is split shares its channels.
    pub(super) fn comm_that_shares(&mut self, rank: u32) -> Operand {
        self.used.insert(Common::SharedChannels);
        self.comm(rank)
    }

    pub(super) fn other_comm(&mut self, rank: u32) -> Operand {
        self.used.insert(Common::OtherComm);
        self.of[rank as usize].other_comm.clone()
    }

    pub(super) fn a(&mut self, rank: u32) -> Operand {
        self.used.insert(Common::A(rank));
        self.of[rank as usize].a.clone()
    }

    pub(super) fn b(&mut self, rank: u32) -> Operand {
        self.used.insert(Common::B(rank));
        self.of[rank as usize].b.clone()
    }

    pub(super) fn either(&mut self, rank: u32, which: Either) -> Operand {
        match which {
            Either::A => self.a(rank),
            Either::B => self.b(rank),
        }
    }

    /// The memory of a rank that all have open, as another one or itself sees it.
    pub(super) fn mapped(&mut self, of: u32, by: u32) -> Operand {
        self.used.insert(Common::Mapped);
        let seen = &self.of[by as usize];
        if of == by { &seen.mapped } else { &seen.maps[of as usize] }.clone()
    }

    /// The windows that the first thread of a rank has registered so far.
    pub(super) fn windows(&self, rank: u32) -> &[Operand] {
        &self.of[rank as usize].windows
    }

    pub(super) fn name(&self, name: &str) -> Token {
        self.script.name(name)
    }

    /// A name that nothing else has.
    pub(super) fn fresh(&mut self, prefix: &str) -> Token {
        self.fresh += 1;
        self.name(&format!("{prefix}{}", self.fresh))
    }

    // What is done.

    pub(super) fn push(&mut self, at: At, op: Op) -> Operand {
        // A second thread that is not made yet.
        if at.thread == 1 && !self.has_second(at.rank) {
            return Operand::Null;
        }
        self.script.push(at.rank, at.thread, op)
    }

    pub(super) fn ask(&mut self, at: At, question: Question, then: Vec<Op>) {
        if at.thread == 0 || self.has_second(at.rank) {
            self.script.ask(at.rank, at.thread, question, then);
        }
    }

    /// Does what depends on an answer that the thread was given before, to the last question or to one so far back, if it
    /// was asked so much; returns what the first operation produces.
    pub(super) fn recall(&mut self, at: At, back: usize, then: Vec<Op>, otherwise: Vec<Op>) -> Operand {
        if at.thread == 1 && !self.has_second(at.rank) {
            return Operand::Null;
        }
        let asked = self.script.questions(at.rank, at.thread);
        let Some(question) = asked.checked_sub(back + 1) else { return Operand::Null };
        self.script.recall(at.rank, at.thread, Recall { question, then, otherwise })
    }

    /// The first thread of a rank has taken part in an agreement.
    pub(super) fn has_agreed(&mut self, at: At, agreed: &Operand) {
        if at.thread == 0 {
            self.of[at.rank as usize].agreed = Some(agreed.clone());
        }
    }

    /// The result of its last agreement.
    pub(super) fn agreed(&self, at: At) -> Option<Operand> {
        self.of[at.rank as usize].agreed.clone()
    }

    /// Asks after all else: what produces a number of slots that only the answer says must not shift others.
    pub(super) fn ask_last(&mut self, at: At, question: Question) {
        self.asked_last.push((at, question));
    }

    /// The process ends if the answer is not 0.
    pub(super) fn exit_if(&mut self, at: At, question: Question, code: &str) {
        let code = self.name(code);
        self.ask(at, question, vec![Op::Thread(ThreadOp::Exit { code })]);
    }

    pub(super) fn init(&mut self, at: At, name: &str, children: Resources) -> Operand {
        let op = CommOp::Init { name: self.name(name), members: self.all(), children };
        self.push(at, Op::Comm(op))
    }

    pub(super) fn finalize(&mut self, at: At, comm: &Operand) {
        self.push(at, Op::Comm(CommOp::Finalize { comm: comm.clone() }));
    }

    pub(super) fn destroy(&mut self, at: At, comm: &Operand) {
        self.push(at, Op::Comm(CommOp::Destroy { comm: comm.clone(), parting: Parting::Together }));
    }

    pub(super) fn alloc(&mut self, at: At, name: &str, len_bytes: u64, memory: MemoryKind) -> Operand {
        let op = MemoryOp::Alloc { name: self.name(name), len_bytes, memory };
        self.push(at, Op::Memory(op))
    }

    pub(super) fn free(&mut self, at: At, buffer: &Operand) {
        self.push(at, Op::Memory(MemoryOp::Free { buffer: buffer.clone(), after: None }));
    }

    /// Registers memory in a symmetric window of the communicator of all ranks.
    pub(super) fn register(&mut self, at: At, memory: &Operand) -> Operand {
        self.register_with(at, memory, WindowFlags::CollSymmetric)
    }

    pub(super) fn register_with(&mut self, at: At, memory: &Operand, flags: WindowFlags) -> Operand {
        let (comm, memory) = (self.comm(at.rank), memory.clone());
        let window = self.push(at, Op::Window(WindowOp::Register { comm, memory, flags }));
        if at.thread == 0 {
            self.of[at.rank as usize].windows.push(window.clone());
        }
        window
    }

    pub(super) fn deregister(&mut self, at: At, window: &Operand) {
        let (comm, window) = (self.comm(at.rank), window.clone());
        self.push(at, Op::Window(WindowOp::Deregister { comm, window }));
    }

    /// An all-reduce in place of so many floats, on the default stream.
    pub(super) fn reduction(&self, comm: &Operand, x: &Operand, count: u64) -> Collective {
        Collective {
            kind: CollectiveKind::AllReduce,
            comm: comm.clone(),
            send: x.clone(),
            recv: x.clone(),
            count,
            dtype: Dtype::F32,
            op: ReduceOp::Sum,
            stream: self.name("default"),
            declared: Declared::Nothing,
        }
    }

    pub(super) fn launch(&mut self, at: At, call: Collective) {
        self.push(at, Op::Collective(Arc::new(call)));
    }

    /// An all-reduce of all of a buffer on the communicator of all ranks.
    pub(super) fn all_reduce(&mut self, at: At, x: &Operand) {
        let comm = self.comm(at.rank);
        self.launch(at, self.reduction(&comm, x, 1 << 20));
    }

    pub(super) fn group_start(&mut self, at: At) {
        self.push(at, Op::Group(GroupOp::Start));
    }

    pub(super) fn group_end(&mut self, at: At) {
        self.push(at, Op::Group(GroupOp::End));
    }

    pub(super) fn reads(&mut self, at: At, kernel: &str, x: &Operand, stream: &str) {
        let (name, stream) = (self.name(kernel), self.name(stream));
        let (reads, writes) = ([x.clone()].into(), [].into());
        self.push(at, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
    }

    pub(super) fn writes(&mut self, at: At, kernel: &str, x: &Operand, stream: &str) {
        let (name, stream) = (self.name(kernel), self.name(stream));
        let (reads, writes) = ([].into(), [x.clone()].into());
        self.push(at, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
    }

    pub(super) fn synchronize(&mut self, at: At, what: Operand) {
        self.push(at, Op::Stream(StreamOp::Synchronize { what }));
    }

    pub(super) fn record(&mut self, at: At, event: Token, stream: &str) {
        let stream = self.name(stream);
        self.push(at, Op::Event(EventOp { event, stream }));
    }

    pub(super) fn wait_event(&mut self, at: At, event: Token, stream: &str) {
        let stream = self.name(stream);
        self.push(at, Op::Stream(StreamOp::Wait { stream, event }));
    }

    pub(super) fn flag(&mut self, at: At, flag: &str, act: FlagAct, stream: Option<&str>) {
        let (flag, stream) = (self.name(flag), stream.map(|stream| self.name(stream)));
        self.push(at, Op::Flag(FlagOp { flag, act, stream }));
    }

    pub(super) fn store(&mut self, at: At, key: &str, value: Operand) {
        let key = self.name(key);
        self.push(at, Op::Store(StoreOp::Set { key, value }));
    }

    pub(super) fn fetch(&mut self, at: At, key: &str) -> Operand {
        let key = self.name(key);
        self.push(at, Op::Store(StoreOp::Get { key }))
    }

    /// Appends a number to a list of the rank.
    pub(super) fn append(&mut self, at: At, list: &str, value: i64) {
        let list = self.name(list);
        self.push(at, Op::List(ListOp::Push { list, value: Operand::Int(value) }));
    }

    pub(super) fn barrier(&mut self, at: At) {
        let members = self.all();
        self.push(at, Op::Barrier(BarrierOp::Enter { members }));
    }

    /// Exchanges a buffer with all ranks; returns the mapping of each rank's.
    pub(super) fn exchange(&mut self, rank: u32, name: &str, buffer: Operand) -> Vec<Operand> {
        let op = ExchangeOp { members: self.all(), name: self.name(name), buffer };
        let made = self.push(first(rank), Op::Exchange(op));
        let Operand::Slot(made) = made else { unreachable!("an exchange produces slots") };
        self.ranks().map(|nth| Operand::Slot(Slot { index: made.index + nth, ..made })).collect()
    }
}
