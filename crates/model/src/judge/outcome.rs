//! Outcomes: what a complete run leaves behind, for each rank, in the data, and as findings.
//! Not here: which outcomes a check expects.

use crate::cx::Here;
use crate::op::{Op, PoolOp};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::host::value::Buffer;
use crate::id::Token;
use crate::judge::finding::{About, Finding, FindingKey, Rule};
use crate::judge::ledger::CallError;
use crate::machine::{Launcher, Machine, Owner, locked};
use crate::noun::memory::ByteRange;
use crate::noun::stream::Work;
use crate::noun::thread::{Next, Status, ThreadState};
use crate::order::poll::Poll;
use crate::program::Question;
use crate::rank::Rank;
use crate::state::{RankState, State};
use crate::term::{Content, TermNode};

/// How bad an outcome is, from harmless to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Every rank finishes with right data.
    Finishes,
    /// Right, but on the slower path although a faster one was declared.
    Slow,
    /// Success codes everywhere, wrong data.
    SilentCorruption,
    /// Some call returned an error.
    Error,
    /// CUDA refuses all further work of a process: an illegal address, for example. No run of the model ends so, but
    /// devices do after what nobody specifies.
    CudaError,
    /// Some rank's process died.
    Dead,
    /// Some stream never drains.
    GpuHang,
    /// Some host thread never returns from a call.
    HostHang,
    /// Nobody specifies what follows. Nothing outranks it: a hang that the model has behind such a point is one of
    /// the things that may happen.
    Undefined,
}

impl Class {
    /// Every class, from the best to the worst.
    pub const ALL: [Self; 9] = [
        Self::Finishes,
        Self::Slow,
        Self::SilentCorruption,
        Self::Error,
        Self::CudaError,
        Self::Dead,
        Self::GpuHang,
        Self::HostHang,
        Self::Undefined,
    ];

    /// The words in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finishes => "finishes",
            Self::Slow => "slow",
            Self::SilentCorruption => "silent corruption",
            Self::Error => "error",
            Self::CudaError => "cuda error",
            Self::Undefined => "undefined",
            Self::Dead => "dead",
            Self::GpuHang => "gpu hang",
            Self::HostHang => "host hang",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No outcome has this name.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no outcome {0:?}")]
pub struct UnknownClass(pub String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        Self::ALL.into_iter().find(|class| class.name() == text).ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// How a rank ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankOutcome {
    /// Its program returned and its streams drained.
    Finishes,
    /// A host thread is inside this call for ever.
    HostHang(Arc<str>),
    /// A stream never drains past this operation.
    GpuHang(Arc<str>),
    /// Its process ended with this message.
    Dead(Arc<str>),
    /// Nobody specifies how the rank ends.
    Undefined,
}

/// What a buffer holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldContent {
    /// In words, as deep as contents are printed.
    pub text: Arc<str>,
    /// What tells contents apart whose words are the same.
    shape: Arc<[u64]>,
}

impl std::fmt::Display for HeldContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What the buffers hold that the program still has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    /// Rank, buffer, contents; those that were written.
    Known(Vec<(Rank, Arc<str>, HeldContent)>),
    /// Contents are undefined, because some finding leaves open what follows.
    Undefined,
}

/// All that is kept of a complete run: what it breaks, how its ranks end and what they leave in memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// The rules broken, and on what, in words.
    pub findings: BTreeSet<(Rule, Arc<str>)>,
    /// How each rank ends.
    pub ranks: Vec<RankOutcome>,
    /// Calls that returned errors, for each rank.
    pub errors: Vec<Vec<CallError>>,
    /// What is left in memory.
    pub data: Data,
    /// Wrong data without an error.
    pub corrupt: bool,
    /// The class of the whole.
    pub class: Class,
}

impl Outcome {
    /// The outcome of a run in which nobody specifies what follows some operation: what the model has behind that
    /// point is no more than one of the things that may happen, so nothing of it is told.
    fn undefined(findings: BTreeSet<(Rule, Arc<str>)>, ranks: usize) -> Self {
        Self {
            findings,
            ranks: vec![RankOutcome::Undefined; ranks],
            errors: vec![Vec::new(); ranks],
            data: Data::Undefined,
            corrupt: false,
            class: Class::Undefined,
        }
    }
}

impl Machine {
    /// Whether a run ended in a state that no execution reaches: a poll was chosen to see what never comes.
    #[must_use]
    pub fn infeasible(&self, state: &State) -> bool {
        (0..self.config.ranks).map(Rank).any(|rank| {
            (0..state.rank(rank).threads().len()).any(|at| {
                let thread = u32::try_from(at).expect("few threads");
                let t = state.rank(rank).thread(thread);
                let polls = match t.upcoming() {
                    Next::Ask(Question::EventQuery { .. }, _) => true,
                    Next::Op(op) => matches!(&*op.op, Op::Pool(PoolOp::Alloc { .. })),
                    Next::Ask(..) | Next::Return | Next::Unknown => false,
                };
                polls && !t.chosen().is_empty() && matches!(self.here(state, rank, thread).poll(), Poll::Wait)
            })
        })
    }

    /// Judges a state in which nothing can run any more: deadlocks, and groups left open.
    pub fn finish(&self, state: &mut State) {
        self.find_deadlocks(state);
        self.judge_connections(state);
        self.judge_blocked_calls(state);
        if state.undefined.is_some() {
            // Which contents a reader met is chance.
            Arc::make_mut(&mut state.findings).retain(|key, _| key.rule != Rule::Mem5);
        }
        self.fill_behind_hangs(state);
        for rank in (0..self.config.ranks).map(Rank) {
            for at in 0..state.rank(rank).threads().len() {
                let thread = u32::try_from(at).expect("few threads");
                let t = state.rank(rank).thread(thread);
                if *t.status() == Status::Done && t.group().is_open() {
                    let past = t.clock().past();
                    let last = self.here(state, rank, thread).op_ref();
                    let op = t.group().begun().unwrap_or(last);
                    self.find(state, Rule::Group2, About::Rank(rank), &[op], past, || {
                        format!(
                            "rank {} returns without ending the group that it begins at {}",
                            rank.0,
                            self.at(&op)
                        )
                    });
                }
            }
        }
    }

    /// A block that was handed out behind something that never ends holds nothing yet. It is reported as what its
    /// owner means it to hold, because nothing observes whether the launch or the allocation came first.
    fn fill_behind_hangs(&self, state: &mut State) {
        for rank in (0..self.config.ranks).map(Rank) {
            let queued = state.rank(rank).queued();
            let fresh: Vec<_> = queued
                .filter_map(|op| match &op.work {
                    Work::Fresh(buffer) => Some(Arc::clone(buffer)),
                    Work::Kernel(_)
                    | Work::Copy { .. }
                    | Work::Expect(_)
                    | Work::Flag(..)
                    | Work::Collective(_)
                    | Work::Transfers(_)
                    | Work::GiveBack(_)
                    | Work::Record(..)
                    | Work::Wait(..) => None,
                })
                .collect();
            for buffer in fresh {
                self.fresh_contents(state, rank, &buffer);
            }
        }
    }

    /// The outcome of a finished state.
    #[must_use]
    pub fn outcome(&self, state: &State) -> Outcome {
        let findings =
            state.findings.keys().map(|key| (key.rule, self.worded(self.about(key.about)))).collect();
        if state.undefined.is_some() {
            return Outcome::undefined(findings, self.config.ranks as usize);
        }
        let ranks: Vec<RankOutcome> =
            (0..self.config.ranks).map(|rank| self.rank_outcome(state, Rank(rank))).collect();
        let errors: Vec<Vec<CallError>> = state.ranks().map(|rank| rank.errors().to_vec()).collect();
        let corrupt = state.ranks().any(|rank| rank.is_corrupt());
        let worst = ranks.iter().map(|rank| match rank {
            RankOutcome::Finishes => Class::Finishes,
            RankOutcome::HostHang(_) => Class::HostHang,
            RankOutcome::GpuHang(_) => Class::GpuHang,
            RankOutcome::Dead(_) => Class::Dead,
            RankOutcome::Undefined => Class::Undefined,
        });
        let mut class = worst.max().unwrap_or(Class::Finishes);
        if errors.iter().flatten().next().is_some() {
            class = class.max(Class::Error);
        }
        if corrupt {
            class = class.max(Class::SilentCorruption);
        }
        if state.findings.keys().any(|key| matches!(key.rule, Rule::Win8 | Rule::Overlap1)) {
            class = class.max(Class::Slow);
        }
        Outcome { findings, ranks, errors, data: self.data(state), corrupt, class }
    }

    /// Whether the launcher ends whoever waits, because the process of a rank has ended with an error.
    pub(crate) fn job_ends(&self, state: &State) -> bool {
        self.config.launcher == Launcher::EndsJob && state.ranks().any(RankState::is_dead)
    }

    pub(crate) fn rank_outcome(&self, state: &State, rank: Rank) -> RankOutcome {
        let r = state.rank(rank);
        let died = if r.was_killed() {
            Some(RankOutcome::Dead("killed".into()))
        } else if let Some(Status::Exited(code)) = r.threads().first().map(ThreadState::status) {
            // An error in a thread that the program started ends that thread alone.
            Some(RankOutcome::Dead(self.name(*code)))
        } else {
            None
        };
        match self.hang_of(state, rank) {
            Some(_) if self.job_ends(state) => {
                died.unwrap_or_else(|| RankOutcome::Dead("the job ends (assumed)".into()))
            }
            Some(hang) => hang,
            None => died.unwrap_or(RankOutcome::Finishes),
        }
    }

    /// The call or the stream in which a rank would stay for ever.
    fn hang_of(&self, state: &State, rank: Rank) -> Option<RankOutcome> {
        let r = state.rank(rank);
        let shown = r.streams().iter().filter(|(name, _)| !Self::hidden(*name));
        let stuck = shown.filter(|(_, stream)| !stream.is_empty());
        // What waits for an event tells less than what the event is behind. Then by the words: the order in which threads
        // made streams is nothing that a run leaves behind.
        let gpu = stuck.map(|(name, stream)| {
            let head = stream.head().expect("not empty");
            let waits = matches!(head.work, Work::Record(..) | Work::Wait(..));
            let what = match &head.work {
                Work::Collective(launch) => self.call_name(launch),
                Work::Transfers(launch) => self.transfers_name(state, rank, launch),
                Work::Kernel(kernel) => self.name(kernel.name).to_string(),
                Work::Copy { to, .. } => format!("copy to {}", self.buffer_name(to)),
                Work::Expect(expected) => format!("expect in {}", self.buffer_name(&expected.buffer)),
                Work::Flag(flag, act) => format!("{}.{}", self.name(*flag), act.words()),
                Work::Fresh(buffer) | Work::GiveBack(buffer) => self.buffer_name(buffer),
                Work::Record(..) | Work::Wait(..) => "an event".to_owned(),
            };
            (waits, format!("{what} on stream {}", self.name_behind_stream(*name)))
        });
        let gpu = gpu.min().map(|(_, words)| RankOutcome::GpuHang(self.worded(words)));
        for (at, thread) in r.threads().iter().enumerate() {
            if !thread.running() || thread.cut() {
                continue;
            }
            if let (Next::Op(op), Some(gpu)) = (thread.upcoming(), &gpu)
                && *thread.status() == Status::Ready
                && op.op.verb().waits_for_device()
            {
                return Some(gpu.clone());
            }
            if let Next::Op(op) = thread.upcoming()
                && op.op.is_vote()
            {
                self.tell_vote(op.loc);
            }
            let thread = u32::try_from(at).expect("few threads");
            return Some(RankOutcome::HostHang(self.worded(self.here(state, rank, thread).verb_name())));
        }
        gpu
    }

    /// Words that many runs tell alike, kept once.
    fn worded(&self, words: String) -> Arc<str> {
        let mut told = locked(&self.told_words);
        if let Some(known) = told.get(&*words) {
            return Arc::clone(known);
        }
        let words: Arc<str> = words.into();
        told.insert(Arc::clone(&words));
        words
    }

    fn data(&self, state: &State) -> Data {
        debug_assert!(self.config.follows_contents, "outcomes tell what memory holds");
        let mut known: Vec<(Rank, Arc<str>, HeldContent)> = Vec::new();
        // After a right collective every rank holds the same term, and so do most runs: one text for all.
        let mut told = locked(&self.told_contents);
        for rank in (0..self.config.ranks).map(Rank) {
            for (_, _, buffer) in Self::held_buffers(state, rank) {
                let Some((name, content)) = self.told_content(state, rank, buffer) else { continue };
                self.look_at(&content);
                let text = told.entry(content).or_insert_with_key(|content| HeldContent {
                    text: self.show(content).into(),
                    shape: locked(&self.terms).shape_of(content).into(),
                });
                known.push((rank, self.name(name), text.clone()));
            }
        }
        known.sort();
        Data::Known(known)
    }

    /// What is told of a buffer that a rank holds at the end: its name, and what it holds if it was written.
    pub(crate) fn told_content(
        &self,
        state: &State,
        rank: Rank,
        buffer: &Buffer,
    ) -> Option<(Token, Content)> {
        let content = self.read(state, rank, &ByteRange::of(buffer));
        let initial = locked(&self.terms).intern(TermNode::Initial(rank, buffer.name));
        (content != Content::Whole(initial)).then_some((buffer.name, content))
    }

    /// An object in words.
    #[must_use]
    pub fn about(&self, about: About) -> String {
        match about {
            About::Comm(comm) => self.comm_name(comm).to_string(),
            About::Window(comm, nth) => format!("{} #{nth}", self.comm_name(comm)),
            About::Pair(comm, from, to) => {
                format!("{} from rank {} to rank {}", self.comm_name(comm), from.0, to.0)
            }
            About::Memory(rank, memory) => format!("r{}.{}", rank.0, self.memory_name(memory)),
            About::Named(token) => self.name(token).to_string(),
            About::Of(rank, token) => format!("r{}.{}", rank.0, self.name(token)),
            About::Rank(rank) => format!("rank {}", rank.0),
            About::Hosts => "hosts".to_owned(),
        }
    }

    /// The findings of a state in the order in which they are told: by rule, object and rank, and objects by their names.
    /// Ids have an order of their own, which means nothing.
    #[must_use]
    pub fn findings<'s>(&self, state: &'s State) -> Vec<(&'s FindingKey, &'s Finding)> {
        let mut all: Vec<_> = state.findings.iter().map(|(key, finding)| (key, &**finding)).collect();
        all.sort_by_cached_key(|(key, _)| (key.rule, self.order_of(key.about), key.by));
        all
    }

    /// Where an object comes among others: by kind, rank, name and number.
    pub(crate) fn order_of(&self, about: About) -> (u8, u32, Arc<str>, u32, u32) {
        let none = || "".into();
        match about {
            About::Comm(comm) => (0, 0, self.comm_name(comm), self.comm(comm).nth, 0),
            About::Window(comm, nth) => (1, 0, self.comm_name(comm), nth, 0),
            About::Pair(comm, from, to) => (2, 0, self.comm_name(comm), from.0, to.0),
            About::Memory(rank, memory) => {
                let (Owner::Pool(name) | Owner::Program(name)) = memory.owner;
                (3, rank.0, self.name(name), memory.nth, 0)
            }
            About::Named(name) => (4, 0, self.name(name), 0, 0),
            About::Of(rank, name) => (5, rank.0, self.name(name), 0, 0),
            About::Rank(rank) => (6, rank.0, none(), 0, 0),
            About::Hosts => (7, 0, none(), 0, 0),
        }
    }

    /// Memory in words: `symm.S0` for the first segment of pool `symm`.
    #[must_use]
    pub fn memory_name(&self, memory: crate::machine::MemoryId) -> String {
        memory.display(|name| self.name(name))
    }
}

impl<'a> Here<'a> {
    /// The operation a thread stands at, in the spec's names.
    fn verb_name(self) -> String {
        let Here { m, state, rank, .. } = self;
        let t = self.this();
        match t.upcoming() {
            Next::Op(op) => m.op_name(state, rank, &op.op),
            Next::Ask(..) | Next::Return | Next::Unknown => "a question".to_owned(),
        }
    }
}
