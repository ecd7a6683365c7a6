//! The sentence of a deadlock: who waits in what for whom, every hop of it.
//!
//! What ranks do alike is told once, with all their numbers: a cycle of 64 ranks takes a line, and leaves nobody out.
//! Not here: what is a deadlock, and which rule it breaks.

use std::sync::Arc;

use super::{Never, WaitNode, Who};
use crate::display::ranks_in_words;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::noun::flag::{FlagAct, Test};
use crate::noun::thread::Next;
use crate::op::{FlagOp, Op};
use crate::rank::{LocId, Rank};
use crate::state::State;

/// What is blocked on each of some ranks in the same way.
struct ToldTogether {
    lane: WaitingLane,
    /// What it waits in, where they are several as where there is one.
    text: String,
    /// As positions among the nodes, in the order of their ranks.
    nodes: Vec<usize>,
}

/// A thread or stream, whatever its rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum WaitingLane {
    Thread(u32),
    Stream(String),
}

impl WaitingLane {
    /// It on some ranks; of a rank's first thread nothing is said.
    fn on(&self, ranks: &str) -> String {
        let several = if ranks.starts_with("ranks ") { "s" } else { "" };
        match self {
            Self::Thread(0) => ranks.to_owned(),
            Self::Thread(thread) => format!("thread{several} {thread} of {ranks}"),
            Self::Stream(stream) if stream == "default" => format!("the default stream{several} of {ranks}"),
            Self::Stream(stream) => format!("stream{several} {stream} of {ranks}"),
        }
    }

    /// It on the rank that was just named.
    fn own(&self) -> String {
        match self {
            Self::Thread(thread) => format!("its thread {thread}"),
            Self::Stream(stream) if stream == "default" => "its default stream".to_owned(),
            Self::Stream(stream) => format!("its stream {stream}"),
        }
    }
}

impl Machine {
    /// A cycle, from the call that breaks the rule around to itself.
    pub(super) fn cycle(
        &self,
        state: &State,
        nodes: &[WaitNode],
        component: &[usize],
        first: usize,
    ) -> String {
        let one = &nodes[first];
        if one.rule == Rule::Store1 && component.iter().all(|n| nodes[*n].about == one.about) {
            let (ranks, what) = (self.ranks_of(nodes, component), self.waiting_text(state, one));
            return format!("{ranks} wait {what} ({}), and nobody is left to set it", self.at(&one.op));
        }
        let groups = self.alike(state, nodes, component, first);
        let group_of = |n: usize| groups.iter().position(|group| group.nodes.contains(&n));
        let mut told = vec![false; groups.len()];
        let mut open = vec![0];
        let mut text = String::new();
        while let Some(next) = open.iter().position(|group| !told[*group]).map(|at| open.remove(at)) {
            let group = &groups[next];
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&group.lane.on(&self.ranks_of(nodes, &group.nodes)));
            let mut at = next;
            // Whether the clause before ended with what each of several waits for.
            let mut each = false;
            loop {
                told[at] = true;
                let group = &groups[at];
                let many = group.nodes.len() > 1 && !each;
                let verb = if many { "wait" } else { "waits" };
                let what = if many { group.text.replace("in its ", "in their ") } else { group.text.clone() };
                let loc = self.at(&nodes[group.nodes[0]].op);
                let whom = self.whom(state, nodes, component, group);
                text.push_str(&format!(" {verb} {what} ({loc}) {whom}"));
                each = whom.starts_with("each ");
                let mut targets: Vec<usize> = group
                    .nodes
                    .iter()
                    .flat_map(|n| nodes[*n].waits_for.iter().filter_map(|to| group_of(*to)))
                    .collect();
                targets.sort_unstable();
                targets.dedup();
                match targets.as_slice() {
                    // Whom the clause ends with is who waits next.
                    [one] if !told[*one] && covers(nodes, group, &groups[*one]) => {
                        text.push_str(", which");
                        at = *one;
                    }
                    _ => {
                        open.extend(targets);
                        break;
                    }
                }
            }
        }
        if nodes[first].rule == Rule::P2p6 {
            text.push_str(": a cycle, since transfers of a group take turns");
        } else {
            text.push_str(": a cycle");
        }
        text.push_str(&self.different_members(state, nodes, component, first));
        text
    }

    /// Whom each rank names as members of that in which it waits, where they name others: none of them is where the others
    /// are.
    fn different_members(
        &self,
        state: &State,
        nodes: &[WaitNode],
        component: &[usize],
        first: usize,
    ) -> String {
        let named = |n: &usize| {
            let Who::Thread(rank, thread) = nodes[*n].who else { return None };
            let rendezvous = state.rank(rank).thread(thread).waits().next()?;
            (nodes[*n].about == nodes[first].about).then(|| (rank, self.invited(rendezvous)))
        };
        let mut lists: Vec<(Vec<Rank>, Arc<[Rank]>)> = Vec::new();
        for (rank, members) in component.iter().filter_map(named) {
            match lists.iter_mut().find(|(_, known)| *known == members) {
                Some((ranks, _)) => ranks.push(rank),
                None => lists.push((vec![rank], members)),
            }
        }
        if lists.len() < 2 {
            return String::new();
        }
        lists.sort();
        let in_words = |members: &[Rank]| {
            let numbers: Vec<String> = members.iter().map(|rank| rank.0.to_string()).collect();
            numbers.join(", ")
        };
        let told = lists.iter().map(|(ranks, members)| {
            let verb = if ranks.len() == 1 { "names" } else { "name" };
            format!("{} {verb} {}", ranks_in_words(ranks.iter().copied()), in_words(members))
        });
        format!("; the members differ: {}", told.collect::<Vec<_>>().join(", "))
    }

    /// What is blocked in a component, by what it does; what breaks the rule comes first.
    fn alike(
        &self,
        state: &State,
        nodes: &[WaitNode],
        component: &[usize],
        first: usize,
    ) -> Vec<ToldTogether> {
        let mut sorted = component.to_vec();
        sorted.sort_by_key(|n| nodes[*n].op);
        let mut groups: Vec<(ToldTogether, LocId, Rule)> = Vec::new();
        for n in std::iter::once(first).chain(sorted.into_iter().filter(|n| *n != first)) {
            let node = &nodes[n];
            let lane = self.lane(state, node);
            let text = match node.about {
                // Who the other end is, the targets say.
                Some(About::Pair(comm, from, to)) => {
                    let way = if from == to {
                        "to itself"
                    } else if from == node.op.rank {
                        "to another rank"
                    } else {
                        "from another rank"
                    };
                    self.waiting_in(state, node, &format!("{} {way}", self.comm_name(comm)))
                }
                _ => self.waiting_text(state, node),
            };
            let same = |(group, loc, rule): &&mut (ToldTogether, LocId, Rule)| {
                (&group.lane, &group.text, *loc, *rule) == (&lane, &text, node.op.loc, node.rule)
            };
            match groups.iter_mut().find(same) {
                Some((group, ..)) => group.nodes.push(n),
                None => groups.push((ToldTogether { lane, text, nodes: vec![n] }, node.op.loc, node.rule)),
            }
        }
        let alone = |mut group: ToldTogether| {
            group.nodes.sort_by_key(|n| nodes[*n].op);
            if let [one] = group.nodes.as_slice() {
                group.text = self.waiting_text(state, &nodes[*one]);
            }
            group
        };
        groups.into_iter().map(|(group, ..)| alone(group)).collect()
    }

    fn ranks_of(&self, nodes: &[WaitNode], group: &[usize]) -> String {
        ranks_in_words(group.iter().map(|n| nodes[*n].op.rank))
    }

    /// Whom the members of a group wait for, each and every one.
    fn whom(&self, state: &State, nodes: &[WaitNode], component: &[usize], group: &ToldTogether) -> String {
        let targets = |n: usize| {
            let mut targets: Vec<usize> =
                nodes[n].waits_for.iter().filter(|to| component.contains(to)).copied().collect();
            targets.sort_unstable();
            targets.dedup();
            targets
        };
        let of_each: Vec<Vec<usize>> = group.nodes.iter().map(|n| targets(*n)).collect();
        let rank = |n: usize| nodes[n].op.rank;
        // It waits for something from somebody, or in something for somebody.
        let of = if group.text.contains("for ") { "from" } else { "for" };
        if let [n] = group.nodes.as_slice() {
            let own = of_each[0].iter().all(|to| rank(*to) == rank(*n));
            let whom =
                if own { self.own(state, nodes, &of_each[0]) } else { self.these(state, nodes, &of_each[0]) };
            return format!("{of} {whom}");
        }
        if of_each.iter().all(|of| *of == of_each[0]) {
            return format!("{of} {}", self.these(state, nodes, &of_each[0]));
        }
        // Each for streams or threads of its own rank, which go by one name.
        let own = |(n, of): (&usize, &Vec<usize>)| of.iter().all(|to| rank(*to) == rank(*n));
        if group.nodes.iter().zip(&of_each).all(own) {
            let named: Vec<String> = of_each.iter().map(|of| self.own(state, nodes, of)).collect();
            if named.iter().all(|name| *name == named[0]) {
                return format!("each {of} {}", named[0]);
            }
        }
        // All of them for one another, and for the same others.
        let outside = |of: &[usize]| -> Vec<usize> {
            of.iter().filter(|to| !group.nodes.contains(to)).copied().collect()
        };
        let inside = |(n, of): (&usize, &Vec<usize>)| {
            group.nodes.iter().filter(|other| *other != n).all(|other| of.contains(other))
        };
        let beyond = outside(&of_each[0]);
        if group.nodes.iter().zip(&of_each).all(inside) && of_each.iter().all(|of| outside(of) == beyond) {
            return match beyond.is_empty() {
                true => format!("{of} one another"),
                false => format!("{of} one another and {}", self.these(state, nodes, &beyond)),
            };
        }
        if let Some(whom) = self.at_one_distance(state, nodes, group, &of_each) {
            return format!("each {of} {whom}");
        }
        let pairs = group.nodes.iter().zip(&of_each);
        let pairs: Vec<String> = pairs
            .map(|(n, of)| format!("rank {} for {}", rank(*n).0, self.these(state, nodes, of)))
            .collect();
        format!("{of} others ({})", pairs.join(", "))
    }

    /// Whom each waits for, where that is for each the rank at one distance.
    fn at_one_distance(
        &self,
        state: &State,
        nodes: &[WaitNode],
        group: &ToldTogether,
        of_each: &[Vec<usize>],
    ) -> Option<String> {
        let ranks = self.config.ranks;
        let mut distances = group.nodes.iter().zip(of_each).map(|(n, of)| match of.as_slice() {
            [to] => {
                let distance = (nodes[*to].op.rank.0 + ranks - nodes[*n].op.rank.0) % ranks;
                Some((distance, self.lane(state, &nodes[*to])))
            }
            _ => None,
        });
        let one = distances.next()??;
        if !distances.all(|other| other.as_ref() == Some(&one)) {
            return None;
        }
        let (distance, lane) = one;
        let neighbour = match distance {
            1 => "the next rank".to_owned(),
            distance if distance == ranks - 1 => "the rank before".to_owned(),
            distance => format!("the rank that is {distance} further on"),
        };
        Some(format!("{} (of {ranks})", lane.on(&neighbour)))
    }

    fn lane(&self, state: &State, node: &WaitNode) -> WaitingLane {
        match node.who {
            Who::Thread(_, thread) => WaitingLane::Thread(thread),
            Who::Stream(rank, stream) => {
                WaitingLane::Stream(self.name_behind_stream(state.rank(rank).streams()[stream].0))
            }
        }
    }

    /// Threads and streams of several ranks.
    fn these(&self, state: &State, nodes: &[WaitNode], these: &[usize]) -> String {
        let mut lanes: Vec<(WaitingLane, Vec<Rank>)> = Vec::new();
        for n in these {
            let lane = self.lane(state, &nodes[*n]);
            match lanes.iter_mut().find(|(known, _)| *known == lane) {
                Some((_, ranks)) => ranks.push(nodes[*n].op.rank),
                None => lanes.push((lane, vec![nodes[*n].op.rank])),
            }
        }
        lanes.sort();
        let named: Vec<String> =
            lanes.into_iter().map(|(lane, ranks)| lane.on(&ranks_in_words(ranks.into_iter()))).collect();
        named.join(" and ")
    }

    /// Threads and streams of the rank that was just named.
    fn own(&self, state: &State, nodes: &[WaitNode], these: &[usize]) -> String {
        let mut named: Vec<String> = these.iter().map(|n| self.lane(state, &nodes[*n]).own()).collect();
        named.sort();
        named.join(" and ")
    }

    /// What waits for something that does not come.
    pub(super) fn in_vain(&self, state: &State, node: &WaitNode, last: Option<OpRef>) -> String {
        let what = self.waiting_text(state, node);
        let mut text = format!("rank {} waits {what} ({})", node.op.rank.0, self.at(&node.op));
        // It waits for something from somebody, or in something for somebody.
        let of = if what.contains("for ") { "from" } else { "for" };
        match (node.never, last) {
            (Some(Never::Ended(rank)), Some(last)) if node.rule == Rule::Win7 => text.push_str(&format!(
                " while rank {} launched it on the symmetric kernel ({}): the buffer is registered there and not here",
                rank.0,
                self.at(&last)
            )),
            (Some(Never::Ended(rank)), last) => {
                let (ended, without) = (self.source.ended(rank), Self::without(node));
                text.push_str(&format!(" {of} rank {}, which {ended} without {without}", rank.0));
                if let Some(refused) = self.refused(state, node, rank) {
                    text.push_str(&format!(": its {refused}"));
                }
                if let Some(last) = last {
                    text.push_str(&format!(" (last at {})", self.at(&last)));
                }
            }
            (Some(Never::Missing(rank)), _) if node.rule == Rule::Win7 => text.push_str(&format!(
                " {of} rank {}, which launched it on the symmetric kernel: the buffer is registered there and not here",
                rank.0
            )),
            (Some(Never::Missing(rank)), _) => {
                let lacks = match node.about {
                    Some(About::Pair(_, from, _)) if from == rank => "has no send for it".to_owned(),
                    Some(About::Pair(..)) => "has no receive for it".to_owned(),
                    Some(About::Comm(comm)) => {
                        format!("launches no more collectives on {}", self.comm_name_on(rank, comm))
                    }
                    _ => "does not launch it".to_owned(),
                };
                text.push_str(&format!(" {of} rank {}, which {lacks}", rank.0));
            }
            (Some(Never::Nobody), last) => text.push_str(&self.nobody(state, node, last)),
            // It waits for itself.
            (None, _) if node.rule == Rule::Mutex1 && !node.waits_for.is_empty() => {
                text.push_str(", which it holds itself");
            }
            (None, _) => {}
        }
        text
    }

    /// A call of a rank on the communicator that somebody waits on, which returned an error, and with which one.
    fn refused(&self, state: &State, node: &WaitNode, rank: Rank) -> Option<String> {
        let Some(About::Comm(comm)) = node.about else { return None };
        let of = format!("{}.", self.comm_name_on(rank, comm));
        let refused = state.rank(rank).errors().iter().find(|error| error.call.starts_with(&of))?;
        Some(format!("{} returned {}", refused.call, refused.code))
    }

    /// What a rank did not do that had to.
    fn without(node: &WaitNode) -> &'static str {
        match (node.rule, node.who) {
            (Rule::P2p2 | Rule::P2p3 | Rule::P2p6, _) => "its half of the transfer",
            (Rule::Coll1 | Rule::Coll2 | Rule::Coll4 | Rule::Win7, _) | (_, Who::Stream(..)) => {
                "launching it"
            }
            (_, Who::Thread(..)) => "entering it",
        }
    }

    /// That nobody is left who does what is waited for.
    fn nobody(&self, state: &State, node: &WaitNode, last: Option<OpRef>) -> String {
        match (node.rule, node.about) {
            (Rule::Store1, _) => ", and nobody is left to set it".to_owned(),
            (Rule::Mutex1, _) => ", and nobody is left to unlock it".to_owned(),
            (Rule::Flag1, Some(About::Named(flag))) => match last {
                Some(last) => format!(
                    ", which is {}, and nobody writes it again: rank {} was the last to write it ({})",
                    state.flag_word(flag),
                    last.rank.0,
                    self.at(&last)
                ),
                None => ", and nobody writes it".to_owned(),
            },
            _ => ", and nobody is left to come".to_owned(),
        }
    }

    /// What a thread or stream waits in, as in "in the set-up of tp".
    pub(super) fn waiting_text(&self, state: &State, node: &WaitNode) -> String {
        let object = match node.about {
            Some(About::Comm(comm)) => self.comm_name(comm).to_string(),
            Some(about @ About::Pair(..)) => self.about(about),
            Some(About::Window(comm, nth)) => format!("{} #{nth}", self.comm_name(comm)),
            Some(About::Named(token) | About::Of(_, token)) => self.name(token).to_string(),
            Some(About::Hosts) => "the host barrier".to_owned(),
            Some(About::Memory(..) | About::Rank(_)) | None => String::new(),
        };
        let replay = match node.who {
            Who::Stream(rank, stream) => state.rank(rank).stream(stream).head().and_then(|head| head.replay),
            Who::Thread(..) => None,
        };
        let text = self.waiting_in(state, node, &object);
        match replay.and_then(|replay| Some((self.source.replay(replay.loc)?, self.at(&replay)))) {
            Some((nth, loc)) => format!("{text} in replay {nth} of its graph at {loc}"),
            None => text,
        }
    }

    fn waiting_in(&self, state: &State, node: &WaitNode, object: &str) -> String {
        if node.about.is_none() {
            return self.waiting_for_others(state, node);
        }
        match (node.rule, node.who) {
            (Rule::Win1, _) => format!("in registration {object}"),
            (Rule::Comm1, _) => format!("in the set-up of {object}"),
            (Rule::Host1, Who::Thread(rank, thread)) if matches!(state.rank(rank).thread(thread).upcoming(), Next::Op(op) if op.op.is_vote()) => {
                "in the agreement".to_owned()
            }
            (Rule::Host1, _) => format!("in {object}"),
            (Rule::Store1, _) => format!("for key {object}"),
            (Rule::Exchange1, _) => format!("in the exchange for {object}"),
            (Rule::Flag1, who) => {
                let on = if let Who::Stream(..) = who { "on the GPU " } else { "" };
                format!("{on}for flag {object}{}", self.awaited_word(state, who))
            }
            (Rule::Mutex1, _) => format!("for lock {object}"),
            (Rule::P2p3, _) => format!("in the first use of {object}"),
            (Rule::P2p2, Who::Thread(..)) => format!("in the first use of {object}"),
            (Rule::P2p2 | Rule::P2p6, Who::Stream(..)) => format!("on the GPU in a transfer of {object}"),
            (Rule::Graph4 | Rule::Comm6, _) => format!("in the destruction of {object}"),
            (_, Who::Stream(..)) => format!("on the GPU in a collective of {object}"),
            (rule, Who::Thread(rank, thread)) => {
                let call = match state.rank(rank).thread(thread).upcoming() {
                    // Which of them differ is what is wrong.
                    Next::Op(op) if rule == Rule::Coll2 => format!(", {}", self.op_name(state, rank, &op.op)),
                    Next::Op(_) | Next::Ask(..) | Next::Return | Next::Unknown => String::new(),
                };
                format!(
                    "in its first collective on {object}{call} (regular kernel: connections are set up here)"
                )
            }
        }
    }

    /// What a flag is to be, for which a thread or stream waits, to stand behind its name. Flags of recorded runs stand for
    /// signals, and are named by what happens.
    fn awaited_word(&self, state: &State, who: Who) -> String {
        if self.source.hides_order() {
            return String::new();
        }
        let act = match who {
            Who::Thread(rank, thread) => match state.rank(rank).thread(thread).upcoming().op() {
                Some(Op::Flag(FlagOp { act, .. })) => Some(*act),
                _ => None,
            },
            Who::Stream(rank, stream) => Self::flag_at_head(state, rank, stream).map(|(_, act)| act),
        };
        match act {
            Some(FlagAct::Wait(Test::Equal, value) | FlagAct::Swap { from: value, .. }) => {
                format!(" to be {value}")
            }
            Some(FlagAct::Wait(Test::AtLeast | Test::AtLeastAround, value)) => {
                format!(" to be at least {value}")
            }
            Some(FlagAct::Write(_)) | None => String::new(),
        }
    }

    /// What waits for streams or threads of its own rank.
    fn waiting_for_others(&self, state: &State, node: &WaitNode) -> String {
        match node.who {
            Who::Thread(rank, thread) => match state.rank(rank).thread(thread).upcoming() {
                Next::Op(op) => format!("in {}", self.op_name(state, rank, &op.op)),
                Next::Ask(question, _) => format!("at {}", self.question_name(state, rank, question)),
                Next::Return | Next::Unknown => "at its end".to_owned(),
            },
            Who::Stream(rank, stream) => match state.rank(rank).stream(stream).head() {
                Some(head) => format!("on the GPU in {}", self.work_name(state, rank, &head.work)),
                None => "on the GPU".to_owned(),
            },
        }
    }
}

/// Whether the nodes that a group waits for are all of another one, so that a clause about it can follow.
fn covers(nodes: &[WaitNode], group: &ToldTogether, other: &ToldTogether) -> bool {
    let targets = |n: &usize| nodes[*n].waits_for.iter();
    other.nodes.iter().all(|wanted| group.nodes.iter().flat_map(targets).any(|to| to == wanted))
}
