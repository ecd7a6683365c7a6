//! The joint run of all members of a collective: what meets, what is judged, and who learns what.
//! Not here: what data results ([`super::data`]).

use crate::clock::{Clock, Gathered, Knowledge};
use crate::display::ranks_in_words;
use crate::history::{Lane, Moment};
use crate::host::value::CommId;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Condition, Explain, Machine};
use crate::noun::collective::{Launch, Recorded};
use crate::noun::launch_order::Ran;
use crate::noun::memory::ByteRange;
use crate::noun::stream::{Queued, Work};
use crate::noun::window::LastUse;
use crate::order::dependence::Access;
use crate::platform::KernelPath;
use crate::rank::Rank;
use crate::state::State;
use crate::term::Content;
use std::sync::Arc;

use super::Declared;
use super::hand_over::HandedOver;
use super::kind::{CollectiveKind, Counting, Root, SymmetricKernel};

/// How many ways of calling one collective a sentence tells.
const WAYS_TOLD: usize = 4;

/// A member of a running collective, with what stood at the head of its stream.
pub(super) struct Member {
    pub(super) rank: Rank,
    pub(super) stream: usize,
    pub(super) launch: Arc<Launch>,
    pub(super) issue: Clock,
    pub(super) op: OpRef,
    pub(super) replay: Option<OpRef>,
    /// What it handed over, and what its stream knew then, where that is over.
    pub(super) handed_over: Option<Box<(Content, Clock)>>,
}

/// What members know of each other after a collective.
enum Order {
    AllToAll(Knowledge),
    FromRoot(Clock),
    /// The root learns what all know, and the others nothing.
    ToRoot(Option<Rank>, Knowledge),
}

/// How the kernels of a collective's members fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernels {
    /// The same kernel, on the same parameters.
    Together,
    /// The same kernel on different parameters: it may end, and nobody specifies with what.
    Undefined,
    /// Different kernels: none of them ends.
    Apart,
}

impl Machine {
    /// The stream at whose head a member stands ready to run the next collective of a communicator.
    pub(crate) fn ready_stream(&self, state: &State, rank: Rank, comm: CommId) -> Option<usize> {
        state.rank(rank).streams().iter().position(|(_, stream)| {
            !stream.is_hung()
                && matches!(stream.work(),
                    Some(Work::Collective(launch))
                        if launch.comm == comm && state.rank(rank).is_next_launch(launch))
        })
    }

    /// Runs the next collective of a communicator on all members.
    pub(crate) fn run_collective(&self, state: &mut State, comm: CommId) {
        self.note_memory(state);
        state.steps += 1;
        let ranks = self.members(comm);
        // A large job does not fit a cache, so each member is looked at as seldom as possible.
        let mut members: Vec<Member> = Vec::with_capacity(ranks.len());
        let mut together = Gathered::of(ranks.len());
        if self.config.declared_needless.contains(&Condition::LaunchesMet) {
            together = together.declared_met();
        }
        for rank in ranks.iter() {
            if let Some(handed) = Self::take_handed_over(state, *rank, comm) {
                let HandedOver { launch, stream, issue, op, replay, clock, content } = handed;
                together.add(&clock);
                together.add(&issue);
                let handed_over = Some(Box::new((content, clock)));
                members.push(Member { rank: *rank, stream, launch, issue, op, replay, handed_over });
                continue;
            }
            let stream = self.ready_stream(state, *rank, comm).expect("every member is ready");
            let s = state.rank_mut(*rank).stream_mut(stream);
            s.clock_mut().tick();
            let Queued { work, issue, op, replay } = s.pop().expect("ready");
            self.note(Moment { op, replay, lane: Lane::stream(*rank, stream) }, s.clock());
            together.add_launched(s.clock(), &issue);
            let Work::Collective(launch) = work else { unreachable!("ready") };
            members.push(Member { rank: *rank, stream, launch, issue, op, replay, handed_over: None });
        }
        self.note_streams_met(members.iter().map(|member| member.op));
        let kernels = self.judge_kernels(state, comm, &members);
        if kernels == Kernels::Together {
            self.note_operands(state, comm, &members);
        }
        if kernels == Kernels::Apart {
            for Member { rank, stream, launch, issue, op, replay, handed_over } in members {
                if handed_over.is_some() {
                    continue;
                }
                let s = state.rank_mut(rank).stream_mut(stream);
                s.hang_in(Queued { work: Work::Collective(launch), issue, op, replay });
            }
            return;
        }
        let order = Self::order(state, &members, together);
        let part = members[0].launch.part_bytes();
        let mut inputs = Vec::with_capacity(members.len());
        for member in &members {
            if let Some(handed_over) = &member.handed_over {
                inputs.push(handed_over.0.clone());
                continue;
            }
            self.run_member(state, member, &order);
            if !self.config.follows_contents {
                continue;
            }
            let send = &member.launch.send;
            inputs.push(self.read(state, send.home(member.rank), &ByteRange::of(send).sub(0, part)));
        }
        // Whose parameters would count where they differ? No member is the first among equals.
        if kernels == Kernels::Together {
            self.judge_windows(state, comm, &members);
            self.move_data(state, &members, &inputs);
        }
        if self.keeps_runs(state) {
            let ran = members.into_iter().map(|member| {
                let Member { rank, stream, launch, issue: called, handed_over, .. } = member;
                let began = match handed_over {
                    Some(handed_over) => handed_over.1,
                    None => state.rank(rank).stream(stream).clock().clone(),
                };
                Ran { rank, issue: launch.issue, called, began, op: launch.op }
            });
            let ran = ran.collect();
            self.ran(state, comm, ran);
        }
    }

    /// Whether all members run the same kernel on the same parameters.
    fn judge_kernels(&self, state: &mut State, comm: CommId, members: &[Member]) -> Kernels {
        let first = &members[0].launch;
        let nth = first.nth;
        let about = About::Comm(comm);
        let differs = |f: &dyn Fn(&Launch) -> bool| members.iter().position(|m| f(&m.launch));
        let kind = |c: CollectiveKind| std::mem::discriminant(&c);
        let parameters = |l: &Launch| {
            (l.call.kind, l.call.count, l.call.dtype, l.call.kind.reduces().then_some(l.call.op))
        };
        let registered = Launch::registered;
        // The usual case in one pass, because a job has many ranks.
        let recorded = |l: &Launch| l.recorded != Recorded::No;
        let whole =
            |l: &Launch| (parameters(l), registered(l), recorded(l), l.path, l.written, l.call.declared);
        let expected = (
            parameters(first),
            registered(first),
            recorded(first),
            first.path,
            first.written,
            Declared::Nothing,
        );
        if members.iter().all(|m| whole(&m.launch) == expected) {
            return Kernels::Together;
        }
        let past = members[0].issue.past();
        if let Some(other) = differs(&|l| kind(l.call.kind) != kind(first.call.kind)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Coll2, about, &ops, past, || {
                self.differ(nth, members, |l| kind(l.call.kind), &|m| self.call_name(&m.launch))
            });
            // Ordinary kernels exchange what they find in each other's slots: one rank may finish with wrong
            // data while another hangs (measured).
            if members.iter().any(|m| m.launch.path == KernelPath::Ordinary) {
                Self::undefine(state, first.op);
            }
            return Kernels::Apart;
        }
        if let Some(other) = differs(&|l| parameters(l) != parameters(first)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Coll3, about, &ops, past, || {
                self.differ(nth, members, parameters, &|m| {
                    let (call, name) = (&m.launch.call, self.call_name(&m.launch));
                    if call.declared == Declared::Barrier {
                        return name;
                    }
                    let op =
                        if call.kind.reduces() { format!(" ({})", call.op.name()) } else { String::new() };
                    format!("{name} of {} {}{op}{}", call.count, call.dtype.name(), call.kind.way())
                })
            });
            if differs(&|l| l.path != first.path).is_some() {
                return Kernels::Apart;
            }
            Self::undefine(state, first.op);
            return Kernels::Undefined;
        }
        self.judge_written(state, members);
        self.judge_recorded(state, members);
        if let Some(other) = differs(&|l| l.path != first.path || registered(l) != registered(first)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Win7, about, &ops, past, || {
                self.differ(nth, members, |l| (l.path, registered(l)), &|m| {
                    let on = match registered(&m.launch) {
                        (false, false) => "on unregistered memory",
                        (true, true) => "on registered memory",
                        (true, false) | (false, true) => "with one buffer registered",
                    };
                    format!("{} {on}", self.call_name(&m.launch))
                })
            });
            return match differs(&|l| l.path != first.path) {
                Some(_) => Kernels::Apart,
                None => Kernels::Together,
            };
        }
        self.judge_declared(state, members);
        Kernels::Together
    }

    /// Whether a collective that its author declared symmetric is.
    fn judge_declared(&self, state: &mut State, members: &[Member]) {
        let declared = members.iter().position(|m| m.launch.call.declared == Declared::Symmetric);
        if let Some(declared) = declared
            && members[0].launch.path == KernelPath::Ordinary
        {
            let launch = &members[declared].launch;
            let (comm, past) = (launch.comm, members[0].issue.past());
            let (rank, other) = (members[declared].rank, &members[usize::from(declared == 0)]);
            let ops = [launch.op, other.launch.op];
            self.find(state, Rule::Win8, About::Comm(comm), &ops, past, || {
                let why = match (launch.send_window, launch.recv_window) {
                    (Some(_), Some(_)) => {
                        let call = &launch.call;
                        let reduction = match call.kind.reduces() {
                            true => format!(" ({})", call.op.name()),
                            false => String::new(),
                        };
                        let (kind, dtype) = (call.kind.name(), call.dtype.name());
                        format!("no symmetric kernel does {kind} of {dtype}{reduction}")
                    }
                    (send, _) => format!(
                        "no rank's {} lies in a symmetric window of {}",
                        self.buffer_name(if send.is_some() { &launch.recv } else { &launch.send }),
                        self.comm_name(comm)
                    ),
                };
                format!(
                    "rank {} declares {} symmetric ({}), but {why}: like rank {} ({}) it falls back to the \
                     regular kernel",
                    rank.0,
                    self.call_name(launch),
                    self.at(&ops[0]),
                    other.rank.0,
                    self.at(&ops[1]),
                )
            });
        }
    }

    /// Whether the collectives that meet have one position in the programs of all members: a group launches in
    /// an order of its own.
    fn judge_written(&self, state: &mut State, members: &[Member]) {
        let (a, comm) = (&members[0], members[0].launch.comm);
        let Some(b) = members.iter().find(|m| m.launch.written != a.launch.written) else { return };
        let ops = [a.launch.op, b.launch.op];
        let skipped = self.skipped(a);
        self.find(state, Rule::Coll3, About::Comm(comm), &ops, a.issue.past(), || {
            format!(
                "{} is collective #{} of {} in the program of rank {} ({}) and {} is #{} on rank {} ({}); \
                 they meet because a group launches large operations first, and of equal ones the last first",
                self.call_name(&a.launch),
                a.launch.written + skipped,
                self.comm_name(comm),
                a.rank.0,
                self.at(&a.launch.op),
                self.call_name(&b.launch),
                b.launch.written + skipped,
                b.rank.0,
                self.at(&b.launch.op),
            )
        });
        // A group's work is divided among blocks in the rank's own order, so parts may not meet (2.28.3 left some
        // unreduced, 2.28.9 none; both measured).
        Self::undefine(state, a.launch.op);
    }

    /// Whether all members replay a collective or none does (`usage/cudagraph.rst:18`).
    fn judge_recorded(&self, state: &mut State, members: &[Member]) {
        let graph = |m: &Member| match m.launch.recorded {
            Recorded::No => None,
            Recorded::By(graph) => Some(graph),
        };
        let first = &members[0];
        let differs = members.iter().position(|m| graph(m).is_some() != graph(first).is_some());
        let Some(other) = differs else { return };
        let (ops, comm) = ([first.launch.op, members[other].launch.op], first.launch.comm);
        self.find(state, Rule::Graph5, About::Comm(comm), &ops, first.issue.past(), || {
            self.differ(first.launch.nth, members, |l| l.recorded != Recorded::No, &|m| match graph(m) {
                Some(graph) => format!("{} replayed from {}", self.call_name(&m.launch), self.name(graph)),
                None => format!("{} launched as such", self.call_name(&m.launch)),
            })
        });
        // Buffers of recorded collectives are registered on the way (`transport/p2p.cc:1273-1319`), so ordinary
        // kernels may be given different ways to the data. Symmetric ones are given windows in either case.
        if members.iter().any(|m| m.launch.path == KernelPath::Ordinary) {
            Self::undefine(state, first.launch.op);
        }
    }

    /// Collectives before this one that are not in the program. All members left out as many.
    pub(super) fn skipped(&self, member: &Member) -> u32 {
        self.source.skipped(member.op.loc, member.replay.unwrap_or(member.op).loc)
    }

    /// What each member does of a collective that not all do alike, told once of those that do: no member is right because
    /// it is the first.
    fn differ<K: PartialEq>(
        &self,
        nth: u32,
        members: &[Member],
        key: impl Fn(&Launch) -> K,
        what: &dyn Fn(&Member) -> String,
    ) -> String {
        let mut alike: Vec<(K, String, Vec<&Member>)> = Vec::new();
        for member in members {
            let (key, text) = (key(&member.launch), what(member));
            match alike.iter_mut().find(|(other, told, _)| *other == key && *told == text) {
                Some((.., all)) => all.push(member),
                None => alike.push((key, text, vec![member])),
            }
        }
        // The first that does otherwise than the first member follows it.
        if let Some(at) = alike.iter().position(|(key, ..)| *key != alike[0].0) {
            alike[1..=at].rotate_right(1);
        }
        let ranks = |all: &[&Member]| ranks_in_words(all.iter().map(|member| member.rank));
        let told = |(_, text, all): &(K, String, Vec<&Member>)| {
            let loc = self.at(&all[0].launch.op);
            let here = all.iter().all(|member| self.at(&member.launch.op) == loc);
            let whose = if here { String::new() } else { format!("rank {} at ", all[0].rank.0) };
            let replay =
                all[0].replay.and_then(|replay| Some((self.source.replay(replay.loc)?, self.at(&replay))));
            let replay =
                replay.map_or_else(String::new, |(nth, loc)| format!(", replay {nth} of its graph at {loc}"));
            format!("{text} on {} ({whose}{loc}{replay})", ranks(all))
        };
        let mut told: Vec<String> = alike.iter().take(WAYS_TOLD).map(told).collect();
        if let Some(others) = alike.get(WAYS_TOLD..).filter(|others| !others.is_empty()) {
            let all: Vec<&Member> = others.iter().flat_map(|(.., all)| all).copied().collect();
            told.push(format!("otherwise on {}", ranks(&all)));
        }
        let last = told.pop().unwrap_or_default();
        let nth = nth + self.skipped(&members[0]);
        let comm = self.comm_name(members[0].launch.comm);
        format!("collective #{nth} of {comm} is {} and {last}", told.join(", "))
    }

    /// Happens-before: all to all where every rank needs every other; else from the root only, or to it.
    fn order(state: &State, members: &[Member], together: Gathered) -> Order {
        match members[0].launch.call.kind.root() {
            Root::None => Order::AllToAll(together.knowledge()),
            Root::From(root) => {
                let root = &members[(root as usize).min(members.len() - 1)];
                let mut source = match &root.handed_over {
                    Some(handed_over) => handed_over.1.clone(),
                    None => state.rank(root.rank).stream(root.stream).clock().clone(),
                };
                source.join(&root.issue);
                Order::FromRoot(source)
            }
            Root::To(root) => {
                Order::ToRoot(members.get(root as usize).map(|root| root.rank), together.knowledge())
            }
        }
    }

    /// The collective is over on this member.
    fn run_member(&self, state: &mut State, member: &Member, order: &Order) {
        let r = state.rank_mut(member.rank);
        let clock = r.stream_mut(member.stream).clock_mut();
        match order {
            Order::AllToAll(knowledge) => clock.learn_launched(knowledge, &member.issue),
            Order::FromRoot(source) => {
                clock.join(&member.issue);
                clock.join(source);
            }
            Order::ToRoot(root, knowledge) if *root == Some(member.rank) => {
                clock.learn_launched(knowledge, &member.issue);
            }
            Order::ToRoot(..) => clock.join(&member.issue),
        }
        let now = LastUse::now(clock);
        r.launch_is_over(&member.launch);
        for (nth, _) in [member.launch.send_window, member.launch.recv_window].into_iter().flatten() {
            r.comm_mut(member.launch.comm).windows_mut().use_by(nth, now);
        }
        self.access_buffers(state, (member.rank, member.stream), &member.launch);
        state.rank_mut(member.rank).completes_launch(member.launch.comm, member.stream);
    }

    pub(super) fn access_buffers(&self, state: &mut State, (rank, stream): (Rank, usize), launch: &Launch) {
        let counting = self.counting(rank, launch.comm, launch.call.kind);
        let in_place = Arc::ptr_eq(&launch.send, &launch.recv) || launch.send == launch.recv;
        if counting == Counting::Send || !in_place {
            self.access_memory(state, rank, stream, &launch.send, Access::Read, launch.op);
        }
        if counting != Counting::Send {
            // Whoever is over with it knows that inputs were read. Others may still write what comes out.
            state.rank_mut(rank).stream_mut(stream).clock_mut().tick();
            self.access_memory(state, rank, stream, &launch.recv, Access::Write, launch.op);
        }
    }

    /// Judges whether the windows of all members are the same one, at the same offset.
    fn judge_windows(&self, state: &mut State, comm: CommId, members: &[Member]) {
        let first = &members[0].launch;
        let symmetric = first.call.kind.symmetric().filter(|_| first.path != KernelPath::Ordinary);
        let Some(kernel) = symmetric else { return };
        type Look = fn(&Launch) -> Option<(u32, u64)>;
        // Which offsets a kernel adds to a peer's base: section 3.3 of the semantics.
        let (send_matters, recv_matters) = match kernel {
            SymmetricKernel::AllReduce => (true, true),
            SymmetricKernel::AllGather => (false, true),
            SymmetricKernel::ReduceScatter => (true, false),
        };
        let looks: [(bool, Look); 2] = [(send_matters, |l| l.send_window), (recv_matters, |l| l.recv_window)];
        for (_, look) in looks.iter().filter(|(matters, _)| *matters) {
            let found: Vec<(&Member, u32, u64)> = members
                .iter()
                .filter_map(|m| look(&m.launch).map(|(nth, offset_bytes)| (m, nth, offset_bytes)))
                .collect();
            let Some(&(one, nth, _)) = found.first() else { continue };
            // Different windows say more than different offsets in one, whichever members come first.
            if let Some((other, other_nth, _)) = found.iter().find(|(_, other, _)| *other != nth) {
                let lowest = found.iter().map(|(_, nth, _)| *nth).min().expect("found one");
                let ops = self.registrations(state, comm, (one.rank, nth), (other.rank, nth));
                let sentence = match self.config.explain {
                    Explain::Sentences | Explain::Yes | Explain::Memory => {
                        self.misregistered(state, &found, (one, nth), (other, *other_nth))
                    }
                    Explain::No => String::new(),
                };
                let past = members[0].issue.past();
                self.find(state, Rule::Win2, About::Window(comm, lowest), &ops, past, || sentence);
            } else {
                self.judge_offsets(state, (comm, nth), &found, &members[0].issue);
            }
        }
    }

    /// Judges whether members found their buffers at one offset of a window that starts at one offset.
    fn judge_offsets(
        &self,
        state: &mut State,
        (comm, nth): (CommId, u32),
        found: &[(&Member, u32, u64)],
        issue: &Clock,
    ) {
        let base = |member: &Member| {
            let comm_state = state.rank(member.rank).comm(comm).expect("a launch has a communicator");
            comm_state.window(nth).expect("found at the launch").buffer().offset_bytes
        };
        let (one, _, offset) = found[0];
        let differs = |(other, _, at): &&(&Member, u32, u64)| *at != offset || base(other) != base(one);
        let Some((other, _, other_offset)) = found.iter().find(differs) else { return };
        let past = issue.past();
        let (bases, about) = ([base(one), base(other)], About::Window(comm, nth));
        if *other_offset == offset {
            let ops = self.registrations(state, comm, (one.rank, nth), (other.rank, nth));
            self.find(state, Rule::Win4, about, &ops, past, || {
                format!(
                    "window #{nth} of {} starts at {} of its allocation on rank {} ({}) and at {} on \
                     rank {} ({}), where {} uses it",
                    self.comm_name(comm),
                    crate::noun::window::bytes(bases[0]),
                    one.rank.0,
                    self.at(&ops[0]),
                    crate::noun::window::bytes(bases[1]),
                    other.rank.0,
                    self.at(&ops[1]),
                    self.call_name(&one.launch),
                )
            });
            return;
        }
        let ops = [one.launch.op, other.launch.op];
        self.find(state, Rule::Win4, about, &ops, past, || {
            format!(
                "{} starts at {} of window #{nth} of {} on rank {} ({}) and at {} on rank {} ({})",
                self.call_name(&one.launch),
                crate::noun::window::bytes(offset),
                self.comm_name(comm),
                one.rank.0,
                self.at(&ops[0]),
                crate::noun::window::bytes(*other_offset),
                other.rank.0,
                self.at(&ops[1]),
            )
        });
    }

    /// The operations that registered the n-th window of a communicator on two ranks.
    fn registrations(&self, state: &State, comm: CommId, a: (Rank, u32), b: (Rank, u32)) -> Vec<OpRef> {
        [a, b]
            .iter()
            .filter_map(|(rank, nth)| state.rank(*rank).comm(comm)?.window(*nth).map(|w| w.op()))
            .collect()
    }

    fn misregistered(
        &self,
        state: &State,
        found: &[(&Member, u32, u64)],
        (a, nth): (&Member, u32),
        (member, other): (&Member, u32),
    ) -> String {
        let comm = a.launch.comm;
        let named = |rank: Rank, nth: u32| {
            let window = state.rank(rank).comm(comm)?.window(nth)?;
            Some((self.buffer_name(window.buffer()), self.at(&window.op())))
        };
        let unknown = || ("nothing".to_owned(), "nowhere".to_owned());
        let (a_name, a_at) = named(a.rank, nth).unwrap_or_else(unknown);
        let (b_name, b_at) = named(member.rank, nth).unwrap_or_else(unknown);
        if a_name == b_name {
            // The registrations agree; the buffers came from different ones.
            let (taken, taken_at) = named(member.rank, other).unwrap_or_else(unknown);
            return format!(
                "{} takes {comm}'s window #{nth}, {a_name}, on rank {} (registered at {a_at}) and window #{other}, \
                 {taken}, on rank {} (registered at {taken_at})",
                self.call_name(&a.launch),
                a.rank.0,
                member.rank.0,
                comm = self.comm_name(comm),
            );
        }
        let taking = |taken: u32| {
            let members = found.iter().filter(|(_, nth, _)| *nth == taken);
            ranks_in_words(members.map(|(member, ..)| member.rank))
        };
        format!(
            "{comm}'s window #{nth} is {a_name} on rank {} ({a_at}) and {b_name} on rank {} ({b_at}), \
             so {} takes window #{nth} on {} and #{other} on {}",
            a.rank.0,
            member.rank.0,
            self.call_name(&a.launch),
            taking(nth),
            taking(other),
            comm = self.comm_name(comm),
        )
    }
}
