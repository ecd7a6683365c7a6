//! Random programs: a few fragments in a row, each a piece of protocol with something bent.
//!
//! A fragment is four small numbers, so that a failing program shrinks by dropping fragments and lowering
//! numbers. Not here: what is compared.

mod graph;
mod peers;

use std::sync::Arc;

use rankcheck_model::machine::FaultOf;
use rankcheck_model::{
    BarrierOp, Collective, CollectiveKind, CommOp, Config, Declared, Dtype, Entry, EventOp, ExchangeOp,
    Faults, FlagAct, FlagOp, GroupOp, InFlight, IpcOp, ListOp, MapOp, MapOrder, MemoryKind, MemoryOp,
    MutexOp, Op, Operand, PoolOp, Question, Rank, ReduceOp, Release, Resources, SizeClasses, StoreOp,
    StreamOp, Test, ThreadOp, TieBreak, Token, WindowFlags, WindowOp,
};

use crate::script::{Item, Script};

mod p2p;

/// Kind and three parameters.
pub type Fragment = (u8, u8, u8, u8);

/// Number of kinds of fragment.
pub const KINDS: u8 = MANY + 1;

/// The kind of a group of many transfers.
const MANY: u8 = peers::FIRST + peers::KINDS;

/// Kinds whose rules few others break: drawn more often, so that every rule is broken now and then.
pub const RARE: [u8; 7] = [16, 17, 34, 54, peers::FIRST + 2, peers::FIRST + 5, MANY];

const MIB: u64 = 1 << 20;

const OWN: Resources = Resources::Own;

struct Builder {
    script: Script,
    ranks: u32,
    /// Per rank.
    comms: Vec<Operand>,
    others: Vec<Operand>,
    a: Vec<Operand>,
    b: Vec<Operand>,
    pooled: Vec<Vec<Operand>>,
    windows: Vec<Vec<Operand>>,
    second: Vec<bool>,
    fresh: u32,
    peers: peers::Peers,
}

/// The program of these fragments on 2 or 3 ranks, and how it is run.
#[must_use]
pub fn program(ranks: u32, fragments: &[Fragment]) -> (Script, Config) {
    let mut b = Builder {
        script: Script::new(ranks as usize),
        ranks,
        comms: Vec::new(),
        others: Vec::new(),
        a: Vec::new(),
        b: Vec::new(),
        pooled: vec![Vec::new(); ranks as usize],
        windows: vec![Vec::new(); ranks as usize],
        second: vec![false; ranks as usize],
        fresh: 0,
        peers: peers::Peers::default(),
    };
    // What may be forgotten is, at once; the naive semantics keeps all.
    let mut config = Config { launches_kept: 1, ..Config::new(ranks) };
    b.set_up(fragments);
    for fragment in fragments {
        if fragment.0 % KINDS == 33 {
            let of = if fragment.1.is_multiple_of(2) { FaultOf::Alloc } else { FaultOf::Register };
            config.faults = Faults { of: [of].into(), at_most: 1 };
        }
        if fragment.0 % KINDS == 52 {
            config.in_flight = InFlight::OfPlatform;
        }
        if fragment.0 % KINDS == MANY {
            config.planned_together = Some(2);
        }
        b.fragment(*fragment);
    }
    (b.script, config)
}

/// The program of these fragments in which every rank runs what the first fragment's rank runs, without what
/// tells ranks apart.
#[must_use]
pub fn interchangeable(ranks: u32, fragments: &[Fragment]) -> (Script, Config) {
    let (mut script, config) = program(ranks, fragments);
    let all: Arc<[Rank]> = (0..ranks).map(Rank).collect();
    let of = fragments.first().map_or(0, |fragment| usize::from(fragment.1) % ranks as usize);
    let mut threads = script.ranks[of].clone();
    for item in threads.iter_mut().flatten() {
        match item {
            Item::Do(Op::Comm(CommOp::Split { name, .. })) => {
                *item = Item::Do(Op::Comm(CommOp::Init {
                    name: *name,
                    members: Arc::clone(&all),
                    children: OWN,
                }));
            }
            // Memory of another rank is memory of one of them.
            Item::Do(
                verb @ (Op::Ipc(IpcOp::Open { .. })
                | Op::Exchange(ExchangeOp { .. })
                | Op::Memory(MemoryOp::Expect { .. })),
            ) => {
                let (slots, label) = (verb.slots(), script.name("left out"));
                *item = match slots {
                    0 => Item::Do(Op::Thread(ThreadOp::Step { label })),
                    // Something that produces as many slots, and no memory.
                    _ => Item::Nulls(slots),
                };
            }
            Item::Do(Op::Collective(call)) => Arc::make_mut(call).kind = CollectiveKind::AllReduce,
            // A transfer names a rank.
            Item::Do(Op::Transfer(_)) => *item = Item::Do(Op::Thread(ThreadOp::Step { label: Token(0) })),
            Item::Do(_) | Item::If(..) | Item::Nulls(_) => {}
        }
    }
    script.ranks = vec![threads; ranks as usize];
    script.interchangeable = true;
    (script, config)
}

fn slice(of: &Operand, offset_bytes: u64, len_bytes: u64) -> Operand {
    Operand::Slice { of: Arc::new(of.clone()), offset_bytes, len_bytes }
}

impl Builder {
    fn all(&self) -> Arc<[Rank]> {
        (0..self.ranks).map(Rank).collect()
    }

    fn init(&mut self, rank: u32, name: &str, children: Resources) -> Operand {
        let verb = Op::Comm(CommOp::Init { name: self.script.name(name), members: self.all(), children });
        self.script.push(rank, 0, verb)
    }

    fn memory(&mut self, rank: u32, name: &str, len_bytes: u64, memory: MemoryKind) -> Operand {
        self.memory_of(rank, 0, name, len_bytes, memory)
    }

    fn memory_of(
        &mut self,
        rank: u32,
        thread: u32,
        name: &str,
        len_bytes: u64,
        memory: MemoryKind,
    ) -> Operand {
        let verb = Op::Memory(MemoryOp::Alloc { name: self.script.name(name), len_bytes, memory });
        self.script.push(rank, thread, verb)
    }

    /// Makes only what the fragments need: each operation multiplies the interleavings.
    fn set_up(&mut self, fragments: &[Fragment]) {
        let uses = |kinds: &[u8]| fragments.iter().any(|f| kinds.contains(&(f.0 % KINDS)));
        let comm =
            uses(&[5, 6, 7, 13, 14, 19, 20, 21, 22, 23, 24, 25, 27, 29, 31, 32, 37, 38, 39, 40, 41, 42, 54])
                || uses(&p2p::KINDS);
        let memory = comm || uses(&[9, 11, 26, 30, 44, 53, 55]);
        for rank in 0..self.ranks {
            let tp = if comm { self.init(rank, "tp", p2p::children(fragments)) } else { Operand::Null };
            self.comms.push(tp);
            let ep = if uses(&[25, 39, 51]) { self.init(rank, "ep", OWN) } else { Operand::Null };
            self.others.push(ep);
            let a = if memory { self.memory(rank, "a", 4 * MIB, MemoryKind::Nccl) } else { Operand::Null };
            self.a.push(a);
            let b = if memory { self.memory(rank, "b", 4 * MIB, MemoryKind::Nccl) } else { Operand::Null };
            self.b.push(b);
        }
        self.set_up_peers(fragments);
        for fragment in fragments {
            let (kind, p, q, _) = *fragment;
            let rank = u32::from(p) % self.ranks;
            let threaded =
                matches!(kind % KINDS, 16 | 17 | 26 | 28 | 30 | 31 | 35..=44 | 50 | 55) || q % 8 == 7;
            if threaded && !self.second[rank as usize] {
                self.second[rank as usize] = true;
                self.script.thread(rank);
                self.script.push(rank, 0, Op::Thread(ThreadOp::Spawn { entry: Entry(1) }));
            }
        }
    }

    /// Thread 1 where the rank has one and `p` says so.
    fn thread_of(&self, rank: u32, p: u8) -> u32 {
        u32::from(self.second[rank as usize] && p % 2 == 1)
    }

    fn reduce(&self, comm: &Operand, x: &Operand, count: u64, stream: &str) -> Collective {
        Collective {
            kind: CollectiveKind::AllReduce,
            comm: comm.clone(),
            send: x.clone(),
            recv: x.clone(),
            count,
            dtype: Dtype::F32,
            op: ReduceOp::Sum,
            stream: self.script.name(stream),
            declared: Declared::Nothing,
        }
    }

    fn register(&mut self, rank: u32, thread: u32, memory: Operand, flags: WindowFlags) {
        let comm = self.comms[rank as usize].clone();
        let window = self.script.push(rank, thread, Op::Window(WindowOp::Register { comm, memory, flags }));
        if thread == 0 {
            self.windows[rank as usize].push(window);
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each kind of fragment")]
    fn fragment(&mut self, (kind, p, q, s): Fragment) {
        let rank = u32::from(p) % self.ranks;
        let thread = self.thread_of(rank, q);
        let symmetric = WindowFlags::CollSymmetric;
        match kind % KINDS {
            0..=4 | 18 => self.store(kind % KINDS, rank, thread, s),
            5 => {
                for r in 0..self.ranks {
                    if q % 3 != 0 || r != rank {
                        self.init(r, "late", OWN);
                    }
                }
            }
            6 => {
                for r in 0..self.ranks {
                    let other = q % 3 == 1 && r == rank;
                    let memory = if other { &self.b } else { &self.a }[r as usize].clone();
                    if q % 4 != 0 || r != rank {
                        self.register(r, 0, memory, symmetric);
                    }
                }
            }
            7 => self.all_reduce(rank, q, s),
            8 => {
                let what = [Operand::Device, Operand::Stream(self.script.name("default"))]
                    [usize::from(s % 2)]
                .clone();
                self.script.push(rank, thread, Op::Stream(StreamOp::Synchronize { what }));
            }
            9 => self.kernels(rank, thread, q, s),
            10 => self.events(rank, thread, q),
            11 => {
                let buffer = if q % 2 == 0 { &self.a } else { &self.b }[rank as usize].clone();
                for _ in 0..=(s % 2) {
                    self.script.push(
                        rank,
                        thread,
                        Op::Memory(MemoryOp::Free { buffer: buffer.clone(), after: None }),
                    );
                }
            }
            12 => self.pool(rank, thread, q, s),
            13 => {
                if self.windows[rank as usize].is_empty() {
                    for r in 0..self.ranks {
                        self.register(r, 0, self.a[r as usize].clone(), symmetric);
                        if s % 2 == 0 {
                            let (comm, a) = (self.comms[r as usize].clone(), self.a[r as usize].clone());
                            let call = self.reduce(&comm, &a, 1 << 20, "default");
                            self.script.push(r, 0, Op::Collective(Arc::new(call)));
                        }
                    }
                }
                if let Some(window) = self.windows[rank as usize].first().cloned() {
                    let comm = self.comms[rank as usize].clone();
                    for _ in 0..=(q % 2) {
                        let verb =
                            Op::Window(WindowOp::Deregister { comm: comm.clone(), window: window.clone() });
                        self.script.push(rank, 0, verb);
                    }
                }
            }
            14 => self.group(rank, q),
            15 => {
                for r in 0..self.ranks {
                    if q % 3 != 0 || r != rank {
                        self.script.push(r, 0, Op::Barrier(BarrierOp::Enter { members: self.all() }));
                    }
                }
            }
            16 => self.mutexes(rank, q, s),
            17 => self.containers(rank, thread, q, s),
            19 => {
                let comm = self.comms[rank as usize].clone();
                if q % 2 == 0 {
                    self.script.push(rank, 0, Op::Comm(CommOp::Destroy { comm: comm.clone() }));
                }
                let comm = if q % 2 == 0 { comm } else { Operand::Null };
                let call = self.reduce(&comm, &self.a[rank as usize].clone(), 1 << 20, "default");
                self.script.push(rank, 0, Op::Collective(Arc::new(call)));
            }
            20 => {
                let name = self.script.name("half");
                for r in 0..self.ranks {
                    if r == rank && q % 2 == 0 {
                        self.register(r, 0, self.b[r as usize].clone(), symmetric);
                    } else {
                        let comm = self.comms[r as usize].clone();
                        self.script.push(r, 0, Op::Comm(CommOp::Split { comm, name, color: Some(0) }));
                    }
                }
            }
            21 => {
                for r in 0..self.ranks {
                    let memory = match q % 4 {
                        0 => Operand::Null,
                        1 => slice(&self.a[r as usize], 512, 4096),
                        2 => slice(&self.a[r as usize], 0, 0),
                        _ => self.memory(r, "c", MIB, MemoryKind::Cuda),
                    };
                    if s % 3 != 0 || r == rank {
                        self.register(r, 0, memory, symmetric);
                    }
                }
            }
            53 => self.graph(rank, thread, q, s),
            54 => self.graph_of_all(rank, q, s),
            55 => self.graph_of_two(rank, q, s),
            22 => self.offsets(rank, q),
            23 => self.stale(q),
            24 => {
                for r in 0..self.ranks {
                    let mut call = self.reduce(
                        &self.comms[r as usize].clone(),
                        &self.a[r as usize].clone(),
                        1 << 20,
                        "default",
                    );
                    call.declared = Declared::Symmetric;
                    self.script.push(r, 0, Op::Collective(Arc::new(call)));
                }
            }
            25 => self.two_comms(rank, q),
            26 => self.event_across_threads(rank, s),
            27 => {
                let x = if q % 2 == 0 { slice(&self.a[rank as usize], 0, 4096) } else { Operand::Null };
                let call = self.reduce(&self.comms[rank as usize].clone(), &x, 1 << 20, "default");
                self.script.push(rank, 0, Op::Collective(Arc::new(call)));
            }
            28 => {
                self.pool(rank, 0, q, 5);
                self.pool(rank, 1, q, if s % 2 == 0 { 4 } else { s });
            }
            29 => self.unequal(rank, q),
            30 => {
                for t in 0..2 {
                    let reads: Arc<[Operand]> = [].into();
                    let writes: Arc<[Operand]> = [self.a[rank as usize].clone()].into();
                    let name = self.script.name(["left", "right"][t as usize]);
                    let stream = self.script.name("shared");
                    self.script.push(rank, t, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
                }
            }
            31 => {
                for r in 0..self.ranks {
                    let threads = if self.second[r as usize] { 2 } else { 1 };
                    for t in 0..2 {
                        let memory = if t == 0 { &self.a } else { &self.b }[r as usize].clone();
                        self.register(r, t % threads, memory, symmetric);
                    }
                }
            }
            32 => {
                for r in 0..self.ranks {
                    let mut call = self.reduce(
                        &self.comms[r as usize].clone(),
                        &self.a[r as usize].clone(),
                        1 << 18,
                        "default",
                    );
                    if r == rank && q % 2 == 0 {
                        call.kind = CollectiveKind::Broadcast { root: 0 };
                    }
                    if q % 4 == 3 {
                        // Out of place on the root; what the others give for an output does not matter.
                        call.kind = CollectiveKind::Reduce { root: 0 };
                        let output = &self.b[r as usize];
                        call.recv = if r == 0 || s % 2 == 0 { output.clone() } else { Operand::Null };
                    }
                    self.script.push(r, 0, Op::Collective(Arc::new(call)));
                }
            }
            37 => {
                for r in 0..self.ranks {
                    self.register(r, 0, self.a[r as usize].clone(), symmetric);
                }
                let buffer = self.a[rank as usize].clone();
                self.script.push(rank, 0, Op::Memory(MemoryOp::Free { buffer, after: None }));
                let name = self.script.name("again");
                let verb = Op::Memory(MemoryOp::Alloc { name, len_bytes: 4 * MIB, memory: MemoryKind::Nccl });
                let buffer = self.script.push(rank, 1, verb);
                let question = Question::HasWindow { comm: self.comms[rank as usize].clone(), buffer };
                let code = self.script.name("found");
                self.script.ask(rank, 1, question, vec![Op::Thread(ThreadOp::Exit { code })]);
            }
            45..=52 | MANY => self.transfers(kind % KINDS, rank, thread, (q, s)),
            38..=42 => self.beside(kind % KINDS, rank, q, s),
            kind @ peers::FIRST.. => self.peers(kind, rank, thread, (q, s)),
            43 => self.pool_of_two(rank, q, s),
            44 => self.free_that_waits(rank, q, s),
            35 | 36 => self.two_threads_meet(kind % KINDS == 35, rank),
            34 => {
                // A reader, and two writers that nothing orders with it.
                let key = self.script.name("shared");
                let other = (rank + 1) % self.ranks;
                if s % 2 == 0 {
                    let flag = self.script.name("signal");
                    for (by, act) in [
                        (rank, FlagAct::Write(1)),
                        (rank, FlagAct::Write(i64::from(q % 3))),
                        (other, FlagAct::Wait(Test::Equal, 1)),
                    ] {
                        self.script.push(by, 0, Op::Flag(FlagOp { flag, act, stream: None }));
                    }
                    return;
                }
                self.script.push(rank, 0, Op::Store(StoreOp::Set { key, value: Operand::Int(1) }));
                let verb = match q % 3 {
                    0 => Op::Store(StoreOp::Set { key, value: Operand::Int(2) }),
                    1 => Op::Store(StoreOp::Delete { key }),
                    _ => Op::Thread(ThreadOp::Step { label: key }),
                };
                self.script.push(rank, 0, verb);
                self.script.push(other, 0, Op::Store(StoreOp::Get { key }));
            }
            _ => {}
        }
    }

    /// All ranks do one thing; thread 1 of one rank does its part of it, or something else beside it.
    fn beside(&mut self, kind: u8, rank: u32, q: u8, s: u8) {
        let symmetric = WindowFlags::CollSymmetric;
        for r in 0..self.ranks {
            let at = r as usize;
            let (comm, other) = (self.comms[at].clone(), self.others[at].clone());
            let (a, b) = (self.a[at].clone(), self.b[at].clone());
            let beside = u32::from(r == rank);
            match kind {
                // Two launches, on one communicator or on two.
                38 | 39 => {
                    let second = if kind == 38 { comm.clone() } else { other };
                    let stream = if q.is_multiple_of(2) { "default" } else { "side" };
                    let calls = [
                        self.reduce(&comm, &a, 1 << 20, "default"),
                        self.reduce(&second, &b, 1 << 20, stream),
                    ];
                    for (call, thread) in calls.into_iter().zip([0, beside]) {
                        self.script.push(r, thread, Op::Collective(Arc::new(call)));
                    }
                }
                // A registration that may fail, and a free.
                40 => {
                    let odd = r != rank && q.is_multiple_of(2);
                    let x = if odd { self.memory(r, "odd", 8 * MIB, MemoryKind::Nccl) } else { a.clone() };
                    self.register(r, 0, x, symmetric);
                    if r == rank {
                        self.script.push(r, 1, Op::Memory(MemoryOp::Free { buffer: a, after: None }));
                    }
                }
                // A group, and a registration.
                41 => {
                    self.script.push(r, beside, Op::Group(GroupOp::Start));
                    self.register(r, beside, b.clone(), symmetric);
                    let x = if s.is_multiple_of(4) && r == rank { Operand::Null } else { b };
                    let call = self.reduce(&comm, &x, 1 << 20, "default");
                    self.script.push(r, beside, Op::Collective(Arc::new(call)));
                    self.script.push(r, beside, Op::Group(GroupOp::End));
                    self.register(r, 0, a, symmetric);
                }
                // A registration or a launch, and the end of its communicator.
                _ => {
                    if q.is_multiple_of(2) {
                        self.register(r, 0, a, symmetric);
                    } else {
                        let call = self.reduce(&comm, &a, 1 << 20, "default");
                        self.script.push(r, 0, Op::Collective(Arc::new(call)));
                    }
                    if r == rank {
                        self.script.push(r, 1, Op::Comm(CommOp::Destroy { comm }));
                    }
                }
            }
        }
    }

    /// Two threads take blocks of one pool and write them.
    fn pool_of_two(&mut self, rank: u32, q: u8, s: u8) {
        let pool = self.script.name("pool");
        for thread in 0..2 {
            let stream = self.script.name(if q >> thread & 1 == 0 { "default" } else { "side" });
            self.fresh += 1;
            let name = self.script.name(&format!("p{}", self.fresh));
            let block = self.script.push(
                rank,
                thread,
                Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }),
            );
            let writes: Arc<[Operand]> = [block.clone()].into();
            let kernel = self.script.name(["left", "right"][thread as usize]);
            self.script.push(
                rank,
                thread,
                Op::Stream(StreamOp::Kernel { name: kernel, reads: [].into(), writes, stream }),
            );
            if s >> thread & 1 == 0 {
                self.script.push(rank, thread, Op::Memory(MemoryOp::Free { buffer: block, after: None }));
            }
        }
    }

    /// Thread 1 frees what waits for the device; thread 0 launches.
    fn free_that_waits(&mut self, rank: u32, q: u8, s: u8) {
        let stream = self.script.name(if q.is_multiple_of(2) { "default" } else { "side" });
        let x = self.memory_of(rank, 1, "waits", MIB, MemoryKind::Cuda);
        let a: Arc<[Operand]> = [self.a[rank as usize].clone()].into();
        let name = self.script.name("fill");
        self.script.push(
            rank,
            0,
            Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: a.clone(), stream }),
        );
        self.script.push(rank, 1, Op::Memory(MemoryOp::Free { buffer: x, after: None }));
        if s.is_multiple_of(2) {
            let name = self.script.name("scan");
            let stream = self.script.name("default");
            self.script.push(
                rank,
                1,
                Op::Stream(StreamOp::Kernel { name, reads: a, writes: [].into(), stream }),
            );
        }
    }

    /// Two threads of one rank enter what pairs by order; the others enter it twice.
    fn two_threads_meet(&mut self, agree: bool, rank: u32) {
        let members = self.all();
        let (name, label, code) =
            (self.script.name("twin"), self.script.name("met"), self.script.name("disagreed"));
        for r in 0..self.ranks {
            for turn in 0..2 {
                let thread = if r == rank { turn } else { 0 };
                if agree {
                    let value = Operand::Bool(r != rank || turn == 0);
                    let verb = Op::Barrier(BarrierOp::AllAgree { members: Arc::clone(&members), value });
                    let agreed = self.script.push(r, thread, verb);
                    self.script.ask(r, thread, Question::Failed(agreed.clone()), vec![]);
                    let then = vec![Op::Thread(ThreadOp::Exit { code })];
                    self.script.ask(r, thread, Question::Equal(agreed, Operand::Bool(false)), then);
                } else {
                    let comm = self.script.push(
                        r,
                        thread,
                        Op::Comm(CommOp::Init { name, members: Arc::clone(&members), children: OWN }),
                    );
                    if turn == 0 {
                        self.script.push(
                            r,
                            thread,
                            Op::Comm(CommOp::Split { comm, name: label, color: Some(0) }),
                        );
                    }
                }
            }
        }
    }

    fn store(&mut self, kind: u8, rank: u32, thread: u32, s: u8) {
        let key = self.script.name(["k", "l"][usize::from(s % 2)]);
        let flag = self.script.name(["f", "g"][usize::from(s % 2)]);
        let value = i64::from(s / 2 % 2) + 1;
        let verb = match kind {
            0 => Op::Store(StoreOp::Set { key, value: Operand::Int(value) }),
            1 => Op::Store(StoreOp::Get { key }),
            2 => Op::Store(StoreOp::Delete { key }),
            3 => Op::Flag(FlagOp { flag, act: FlagAct::Write(value), stream: None }),
            4 => {
                let act = FlagAct::Wait(Test::Equal, value - i64::from(s.is_multiple_of(3)));
                Op::Flag(FlagOp { flag, act, stream: None })
            }
            _ => {
                let options = [self.script.name("no"), self.script.name("yes")].into();
                let question = Question::Choose { name: self.script.name("choice"), options };
                self.script.ask(
                    rank,
                    thread,
                    question,
                    vec![Op::Store(StoreOp::Set { key, value: Operand::Int(value) })],
                );
                return;
            }
        };
        let got = self.script.push(rank, thread, verb.clone());
        if matches!(verb, Op::Store(StoreOp::Get { .. })) {
            // What was read decides what is written, so that outcomes tell orders apart.
            let seen = Question::Equal(got, Operand::Int(1));
            let act = FlagAct::Write(i64::from(rank));
            let mark = Op::Flag(FlagOp { flag: self.script.name("saw"), act, stream: None });
            let list = self.script.name("seen");
            self.script.ask(
                rank,
                thread,
                seen,
                vec![mark, Op::List(ListOp::Push { list, value: Operand::Int(1) })],
            );
            self.script.ask(
                rank,
                thread,
                Question::ListLen { list },
                vec![Op::Thread(ThreadOp::Exit { code: key })],
            );
        }
    }

    fn all_reduce(&mut self, rank: u32, q: u8, s: u8) {
        for r in 0..self.ranks {
            let at = r as usize;
            let bent = r == rank;
            if bent && q % 9 == 1 {
                continue;
            }
            let x = if bent && q % 9 == 2 { self.b[at].clone() } else { self.a[at].clone() };
            let count = if s.is_multiple_of(3) { 1024 } else { 1 << 20 };
            let mut call = self.reduce(&self.comms[at].clone(), &x, count, "default");
            match q % 9 {
                3 if bent => call.count /= 2,
                4 if bent => call.dtype = Dtype::I32,
                5 if bent => call.kind = CollectiveKind::Broadcast { root: 0 },
                6 => {
                    call.kind = CollectiveKind::AllGather;
                    call.count /= 4;
                    call.recv = self.b[at].clone();
                }
                7 => call.kind = CollectiveKind::Reduce { root: u32::from(bent) },
                8 => call.kind = CollectiveKind::Reduce { root: 1 },
                _ => {}
            }
            self.script.push(r, 0, Op::Collective(Arc::new(call)));
            if s.is_multiple_of(2) {
                self.script.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
            }
        }
    }

    fn kernels(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let at = rank as usize;
        for nth in 0..2_u8 {
            let buffer = if q >> nth & 1 == 0 { self.a[at].clone() } else { self.b[at].clone() };
            let stream = self.script.name(["default", "side"][usize::from(s >> nth & 1)]);
            let write = (q ^ s) >> (nth + 2) & 1 == 0;
            let none: Arc<[Operand]> = [].into();
            let one: Arc<[Operand]> = [buffer].into();
            let (reads, writes) = if write { (none, one) } else { (one, none) };
            let name = self.script.name(["fill", "scan"][usize::from(!write)]);
            self.script.push(rank, thread, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
        }
    }

    fn events(&mut self, rank: u32, thread: u32, q: u8) {
        let event = self.script.name("e");
        let (one, two) = (self.script.name("default"), self.script.name("side"));
        match q % 4 {
            0 => {
                self.script.push(rank, thread, Op::Event(EventOp { event, stream: one }));
                self.script.push(rank, thread, Op::Stream(StreamOp::Wait { stream: two, event }));
            }
            1 => {
                self.script.push(
                    rank,
                    thread,
                    Op::Stream(StreamOp::Synchronize { what: Operand::Event(event) }),
                );
            }
            2 => {
                self.script.push(rank, thread, Op::Event(EventOp { event, stream: two }));
            }
            _ => {
                self.script.push(rank, thread, Op::Event(EventOp { event, stream: one }));
                let list = self.script.name("polls");
                self.script.ask(
                    rank,
                    thread,
                    Question::EventQuery { event },
                    vec![Op::List(ListOp::Push { list, value: Operand::Int(1) })],
                );
                let code = self.script.name("seen");
                self.script.ask(
                    rank,
                    thread,
                    Question::ListLen { list },
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
        }
    }

    fn pool(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let pool = self.script.name("pool");
        let stream = self.script.name("default");
        let tie = if q.is_multiple_of(2) { TieBreak::Address } else { TieBreak::Counter };
        self.script.push(
            rank,
            thread,
            Op::Pool(PoolOp::Declare { pool, classes: SizeClasses::Exact, tie, memory: MemoryKind::Nccl }),
        );
        self.fresh += 1;
        let name = self.script.name(&format!("p{}", self.fresh));
        let block = self.script.push(
            rank,
            thread,
            Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }),
        );
        match s % 6 {
            0 => {
                let writes: Arc<[Operand]> = [block.clone()].into();
                self.script.push(
                    rank,
                    thread,
                    Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes, stream }),
                );
                if thread == 0 {
                    self.pooled[rank as usize].push(block);
                }
            }
            1 => {
                self.script.push(rank, thread, Op::Memory(MemoryOp::Free { buffer: block, after: None }));
                self.script.push(rank, thread, Op::Pool(PoolOp::Trim { pool, release: Release::Now }));
            }
            2 => {
                let event = self.script.name("freed");
                self.script.push(rank, thread, Op::Event(EventOp { event, stream }));
                self.script.push(
                    rank,
                    thread,
                    Op::Memory(MemoryOp::Free { buffer: block, after: Some(event) }),
                );
                let next = self.script.push(
                    rank,
                    thread,
                    Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }),
                );
                let code = self.script.name("grew");
                self.script.ask(
                    rank,
                    thread,
                    Question::Grew(next),
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            3 => {
                let sizes_bytes: Arc<[u64]> = [2 * MIB].into();
                self.script.push(rank, thread, Op::Pool(PoolOp::Havoc { pool, max: 1, sizes_bytes }));
                let next = self.script.push(
                    rank,
                    thread,
                    Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }),
                );
                let code = self.script.name("grew");
                self.script.ask(
                    rank,
                    thread,
                    Question::Grew(next),
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            4 => {
                let code = self.script.name("grew");
                self.script.ask(
                    rank,
                    thread,
                    Question::Grew(block),
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            _ => {
                let code = self.script.name("grew");
                self.script.push(
                    rank,
                    thread,
                    Op::Memory(MemoryOp::Free { buffer: block.clone(), after: None }),
                );
                self.script.ask(
                    rank,
                    thread,
                    Question::Grew(block),
                    vec![Op::Thread(ThreadOp::Reach { label: code })],
                );
            }
        }
    }

    fn group(&mut self, rank: u32, q: u8) {
        match q % 4 {
            0 => {
                self.script.push(rank, 0, Op::Group(GroupOp::End));
            }
            1 => {
                self.script.push(rank, 0, Op::Group(GroupOp::Start));
            }
            _ => {
                for r in 0..self.ranks {
                    let at = r as usize;
                    self.script.push(r, 0, Op::Group(GroupOp::Start));
                    self.register(r, 0, self.a[at].clone(), WindowFlags::CollSymmetric);
                    let comm = if q % 4 == 2 && r == rank { Operand::Null } else { self.comms[at].clone() };
                    let call = self.reduce(&comm, &self.a[at].clone(), 1 << 20, "default");
                    self.script.push(r, 0, Op::Collective(Arc::new(call)));
                    self.script.push(r, 0, Op::Group(GroupOp::End));
                }
            }
        }
    }

    fn mutexes(&mut self, rank: u32, q: u8, s: u8) {
        let (m, n) = (self.script.name("m"), self.script.name("n"));
        let list = self.script.name("order");
        for thread in 0..2 {
            let (first, second) = if thread == 0 || q.is_multiple_of(2) { (m, n) } else { (n, m) };
            self.script.push(rank, thread, Op::Mutex(MutexOp::Lock { mutex: first }));
            if s.is_multiple_of(2) {
                self.script.push(rank, thread, Op::Mutex(MutexOp::Lock { mutex: second }));
                self.script.push(rank, thread, Op::Mutex(MutexOp::Unlock { mutex: second }));
            } else {
                self.script.push(
                    rank,
                    thread,
                    Op::List(ListOp::Push { list, value: Operand::Int(thread.into()) }),
                );
            }
            self.script.push(rank, thread, Op::Mutex(MutexOp::Unlock { mutex: first }));
            if s % 3 == 1 {
                self.script.push(rank, thread, Op::Mutex(MutexOp::Unlock { mutex: second }));
            }
        }
        if s % 2 == 1 {
            let got = self.script.push(rank, 0, Op::List(ListOp::Get { list, index: Operand::Int(0) }));
            let code = self.script.name("first");
            self.script.ask(rank, 0, Question::Truth(got), vec![Op::Thread(ThreadOp::Exit { code })]);
        }
    }

    fn containers(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let (map, list) = (self.script.name("map"), self.script.name("list"));
        let (key, value) = (Operand::Int(i64::from(s % 2)), Operand::Int(i64::from(q)));
        let code = self.script.name("stop");
        match q % 5 {
            0 => {
                self.script.push(rank, thread, Op::Map(MapOp::Put { map, key: key.clone(), value }));
                if self.second[rank as usize] {
                    let question = Question::MapHas { map, key };
                    self.script.ask(rank, 1 - thread, question, vec![Op::Thread(ThreadOp::Exit { code })]);
                }
            }
            1 => {
                self.script.ask(
                    rank,
                    thread,
                    Question::MapHas { map, key },
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            2 => {
                self.script.push(rank, thread, Op::List(ListOp::Push { list, value }));
                if self.second[rank as usize] {
                    let question = Question::ListLen { list };
                    self.script.ask(rank, 1 - thread, question, vec![Op::Thread(ThreadOp::Exit { code })]);
                }
            }
            3 => {
                let index = Operand::Int(i64::from(s % 2));
                let got = self.script.push(rank, thread, Op::List(ListOp::Get { list, index }));
                self.script.ask(
                    rank,
                    thread,
                    Question::Failed(got),
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            _ => {
                self.script.push(
                    rank,
                    thread,
                    Op::Map(MapOp::Put { map, key: Operand::Int(7), value: value.clone() }),
                );
                self.script.push(rank, thread, Op::Map(MapOp::Put { map, key: Operand::Int(8), value }));
                let question = Question::MapItems { map, order: MapOrder::Hash };
                self.script.ask(rank, thread, question, vec![]);
            }
        }
    }

    fn offsets(&mut self, rank: u32, q: u8) {
        for r in 0..self.ranks {
            let at = r as usize;
            let whole = self.a[at].clone();
            let (registered, used) = match q % 3 {
                0 => (whole.clone(), slice(&whole, if r == rank { 65536 } else { 0 }, MIB)),
                1 => (slice(&whole, 0, 65536), slice(&whole, 0, MIB)),
                _ => (whole.clone(), slice(&whole, 4096, MIB)),
            };
            self.register(r, 0, registered, WindowFlags::CollSymmetric);
            let call = self.reduce(&self.comms[at].clone(), &used, 1 << 18, "default");
            self.script.push(r, 0, Op::Collective(Arc::new(call)));
        }
    }

    fn stale(&mut self, q: u8) {
        for r in 0..self.ranks {
            let at = r as usize;
            self.register(r, 0, self.a[at].clone(), WindowFlags::CollSymmetric);
            if r == 0 || q.is_multiple_of(2) {
                self.script.push(
                    r,
                    0,
                    Op::Memory(MemoryOp::Free { buffer: self.a[at].clone(), after: None }),
                );
                let x = self.memory(r, "back", 4 * MIB, MemoryKind::Nccl);
                let call = self.reduce(&self.comms[at].clone(), &x, 1 << 20, "default");
                self.script.push(r, 0, Op::Collective(Arc::new(call)));
            }
        }
    }

    fn two_comms(&mut self, rank: u32, q: u8) {
        for r in 0..self.ranks {
            let at = r as usize;
            for memory in [&self.a, &self.b] {
                let memory = memory[at].clone();
                for comm in [self.comms[at].clone(), self.others[at].clone()] {
                    let flags = WindowFlags::CollSymmetric;
                    self.script.push(
                        r,
                        0,
                        Op::Window(WindowOp::Register { comm, memory: memory.clone(), flags }),
                    );
                }
            }
            let first = self.reduce(&self.comms[at].clone(), &self.a[at].clone(), 1 << 20, "default");
            let stream = if q.is_multiple_of(3) { "default" } else { "side" };
            let second = self.reduce(&self.others[at].clone(), &self.b[at].clone(), 1 << 20, stream);
            let order = if r == rank && q.is_multiple_of(2) { [second, first] } else { [first, second] };
            for call in order {
                self.script.push(r, 0, Op::Collective(Arc::new(call)));
            }
        }
    }

    fn event_across_threads(&mut self, rank: u32, s: u8) {
        let event = self.script.name("across");
        let (one, two) = (self.script.name("default"), self.script.name("side"));
        let a: Arc<[Operand]> = [self.a[rank as usize].clone()].into();
        let name = self.script.name("produce");
        self.script.push(
            rank,
            0,
            Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: a.clone(), stream: one }),
        );
        self.script.push(rank, 0, Op::Event(EventOp { event, stream: one }));
        if s.is_multiple_of(2) {
            self.script.push(rank, 1, Op::Stream(StreamOp::Wait { stream: two, event }));
        } else {
            self.script.push(rank, 1, Op::Stream(StreamOp::Synchronize { what: Operand::Event(event) }));
        }
        let name = self.script.name("consume");
        self.script.push(
            rank,
            1,
            Op::Stream(StreamOp::Kernel { name, reads: a, writes: [].into(), stream: two }),
        );
    }

    fn unequal(&mut self, rank: u32, q: u8) {
        for r in 0..self.ranks {
            let len = if r == rank && q.is_multiple_of(2) { 8 * MIB } else { 4 * MIB };
            let x = self.memory(r, "u", len, MemoryKind::Nccl);
            let flags =
                if r == rank && q % 2 == 1 { WindowFlags::Default } else { WindowFlags::CollSymmetric };
            self.register(r, 0, x.clone(), flags);
            let call = self.reduce(&self.comms[r as usize].clone(), &x, 1 << 20, "default");
            self.script.push(r, 0, Op::Collective(Arc::new(call)));
        }
    }
}
