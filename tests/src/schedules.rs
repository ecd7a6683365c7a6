//! Jobs as people run them, simulated: hosts run ahead of devices, each group has a stream of its own, and a fault may be
//! injected. What the processes called is written down as dumps.
//!
//! A call begins on a device when those before it on its stream are over, and those that the program waited for before
//! it was made. A collective is over when all members have begun it.
//! Not here: what is found in the dumps.

use std::collections::BTreeMap;

use crate::damage::Random;
use crate::dumps::{Call, DumpedRun, RunGroupAt};

/// What a host does next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Act {
    /// It calls a collective. What follows on the device waits for it if it is joined.
    Collect { group: RunGroupAt, word: &'static str, size: i64, joined: bool },
    /// It sends and receives, each by itself.
    Transfers(RunGroupAt, Vec<Transfer>),
    /// It sends and receives in one bracket.
    Bracket(RunGroupAt, Vec<Transfer>),
    /// What follows on the device waits for everything before.
    Join,
    /// The host waits for its device.
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transfer {
    sends: bool,
    peer: u32,
}

/// A mistake or a failure in a simulated job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Nothing,
    /// A host makes no more calls.
    HostStops,
    /// A device is not over with a collective that the others finish, and does nothing more.
    DeviceStands,
    /// A rank leaves out a collective.
    Skips,
    /// A rank calls a collective with another size.
    OtherSize,
    /// A rank calls two collectives of different groups in the opposite order.
    OppositeOrder,
}

/// A simulated job.
#[derive(Debug)]
pub struct Scheduled {
    /// What its processes called.
    pub run: DumpedRun,
    /// What was injected.
    pub fault: Fault,
    /// Where.
    pub rank: u32,
    /// What kind of job it is, and its sizes.
    pub name: String,
}

/// An operation that was launched.
struct Launched {
    stream: (usize, u32, u32),
    needs: Vec<usize>,
    meets: Vec<Meets>,
    joined: bool,
    done: bool,
    call: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Meets {
    Collective(usize, usize),
    /// Group, sender, receiver, which of them.
    Transfer(usize, u32, u32, usize),
}

struct Simulation {
    run: DumpedRun,
    acts: Vec<Vec<Act>>,
    next: Vec<usize>,
    ahead: usize,
    launched: Vec<Vec<Launched>>,
    counts: BTreeMap<(u32, Meets), usize>,
    met: BTreeMap<Meets, Vec<(u32, usize)>>,
    words: BTreeMap<(u32, Meets), (&'static str, i64)>,
    /// The rank and the act at which a host stops or a device stands.
    stops: Option<(u32, usize)>,
    stands: Option<(u32, usize)>,
    standing: Option<(u32, usize)>,
}

/// Simulates the job of a number.
#[must_use]
pub fn scheduled(seed: u64) -> Scheduled {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995);
    let (mut run, mut acts, mut name) = match seed % 3 {
        0 => pipeline(&mut random),
        1 => sharded(&mut random),
        _ => experts(&mut random),
    };
    let faults = [
        Fault::Nothing,
        Fault::HostStops,
        Fault::DeviceStands,
        Fault::Skips,
        Fault::OtherSize,
        Fault::OppositeOrder,
    ];
    let mut fault = faults[usize::try_from(seed / 3 % 6).expect("a number below 6")];
    let ranks = acts.len();
    let rank = random.below(ranks);
    let of_rank = acts[rank].clone();
    let collectives = |act: &(usize, &Act)| match act.1 {
        Act::Collect { group, .. } => run.ranks_of(*group).len() > 1,
        Act::Transfers(..) | Act::Bracket(..) | Act::Join | Act::Wait => false,
    };
    let places: Vec<usize> = of_rank.iter().enumerate().filter(collectives).map(|(at, _)| at).collect();
    let place = places[random.below(places.len() * 3 / 4)];
    let (mut stops, mut stands) = (None, None);
    let rank_number = u32::try_from(rank).expect("few ranks");
    match fault {
        Fault::Nothing => {}
        Fault::HostStops => stops = Some((rank_number, place)),
        Fault::DeviceStands => stands = Some((rank_number, place)),
        Fault::Skips => {
            acts[rank].remove(place);
        }
        Fault::OtherSize => {
            let sized: Vec<usize> = places
                .iter()
                .copied()
                .filter(|at| !matches!(&of_rank[*at], Act::Collect { word: "all_to_all", .. }))
                .collect();
            let place = sized[random.below(sized.len() * 3 / 4)];
            if let Act::Collect { size, .. } = &mut acts[rank][place] {
                *size += 8;
            }
        }
        Fault::OppositeOrder => {
            let members = |act: &Act| match act {
                Act::Collect { group, .. } => run.ranks_of(*group).to_vec(),
                Act::Transfers(..) | Act::Bracket(..) | Act::Join | Act::Wait => Vec::new(),
            };
            let swapped = places.windows(2).map(|pair| (pair[0], pair[1])).find(|(one, other)| {
                let (first, second) = (members(&of_rank[*one]), members(&of_rank[*other]));
                let differ = match (&of_rank[*one], &of_rank[*other]) {
                    (Act::Collect { group: one, .. }, Act::Collect { group: other, .. }) => one != other,
                    (_, _) => false,
                };
                differ && first.iter().filter(|rank| second.contains(rank)).count() > 1
            });
            match swapped {
                Some((one, other)) => acts[rank].swap(one, other),
                None => fault = Fault::Nothing,
            }
        }
    }
    run.active_only = random.below(2) == 0;
    name = format!("{name}, {fault:?} on rank {rank}, active only: {}", run.active_only);
    let mut simulation = Simulation {
        launched: (0..ranks).map(|_| Vec::new()).collect(),
        next: vec![0; ranks],
        ahead: 1 + random.below(12),
        counts: BTreeMap::new(),
        met: BTreeMap::new(),
        words: BTreeMap::new(),
        run,
        acts,
        stops,
        stands,
        standing: None,
    };
    // A healthy job may be looked at while it goes on, with some call under way.
    let looked_at = if fault == Fault::Nothing { 20 + random.below(2_000) } else { usize::MAX };
    simulation.go(&mut random, looked_at);
    Scheduled { run: simulation.run, fault, rank: rank_number, name }
}

impl Simulation {
    fn go(&mut self, random: &mut Random, looked_at: usize) {
        for step in 0.. {
            let over = self.can_be_over();
            if step >= looked_at && !over.is_empty() {
                return;
            }
            let hosts: Vec<u32> = (0..u32::try_from(self.acts.len()).expect("few"))
                .filter(|rank| self.may_act(*rank))
                .collect();
            match (over.len(), hosts.len()) {
                (0, 0) => return,
                (0, _) => self.act(hosts[random.below(hosts.len())]),
                (_, 0) => self.finish(&over[random.below(over.len())]),
                (_, _) if random.below(3) == 0 => self.finish(&over[random.below(over.len())]),
                (_, _) => self.act(hosts[random.below(hosts.len())]),
            }
        }
    }

    fn may_act(&self, rank: u32) -> bool {
        let at = rank as usize;
        let Some(act) = self.acts[at].get(self.next[at]) else { return false };
        let open = self.launched[at].iter().filter(|one| !one.done).count();
        let stopped = self.stops.is_some_and(|(stopped, place)| stopped == rank && self.next[at] >= place);
        !stopped && if *act == Act::Wait { open == 0 } else { open < self.ahead }
    }

    fn act(&mut self, rank: u32) {
        let at = rank as usize;
        let place = self.next[at];
        self.next[at] += 1;
        match self.acts[at][place].clone() {
            Act::Wait => {}
            Act::Join => self.launched[at].iter_mut().for_each(|one| one.joined = true),
            Act::Collect { group, word, size, joined } => {
                let line = u32::try_from(place).expect("few acts") + 1;
                let members = i64::try_from(self.run.ranks_of(group).len()).expect("few ranks");
                let sizes = |word: &str| match word {
                    "_all_gather_base" => (size, size * members),
                    "_reduce_scatter_base" => (size * members, size),
                    "all_to_all" => (size + i64::from(rank), size + i64::from(rank) * 2),
                    _ => (size, size),
                };
                let (input, output) = sizes(word);
                let call = self.run.collective(
                    rank,
                    group,
                    &Call::new(word).input(&[input]).output(&[output]).line(line),
                );
                let nth = self.count(rank, Meets::Collective(group.0, 0));
                let meets = Meets::Collective(group.0, nth);
                self.words.insert((rank, meets.clone()), (word, size));
                self.launch(rank, (group.0, 0, 0), vec![meets], joined, call);
                if self.stands == Some((rank, place)) {
                    self.standing = Some((rank, self.launched[at].len() - 1));
                }
            }
            Act::Transfers(group, transfers) => {
                let first = self.launched[at].len();
                for transfer in transfers {
                    let (call, meets) = self.transfer(rank, group, transfer);
                    let pair = (rank.min(transfer.peer) + 1, rank.max(transfer.peer) + 1);
                    self.launch(rank, (group.0, pair.0, pair.1), vec![meets], false, call);
                }
                self.launched[at][first..].iter_mut().for_each(|one| one.joined = true);
            }
            Act::Bracket(group, transfers) => {
                self.run.begin_bracket(rank, group);
                let meets =
                    transfers.iter().map(|transfer| self.transfer(rank, group, *transfer).1).collect();
                let call = self.run.end_bracket(rank, group);
                self.launch(rank, (group.0, 0, 0), meets, true, call);
            }
        }
    }

    fn transfer(
        &mut self,
        rank: u32,
        group: RunGroupAt,
        Transfer { sends, peer }: Transfer,
    ) -> (usize, Meets) {
        let call = Call::new("").tensor(&[64, 8]).line(1_000);
        let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
        let nth = self.count(rank, Meets::Transfer(group.0, from, to, 0));
        let call = if sends {
            self.run.send(rank, group, peer, &call)
        } else {
            self.run.recv(rank, group, peer, &call)
        };
        (call, Meets::Transfer(group.0, from, to, nth))
    }

    fn count(&mut self, rank: u32, of: Meets) -> usize {
        let count = self.counts.entry((rank, of)).or_default();
        *count += 1;
        *count - 1
    }

    fn launch(&mut self, rank: u32, stream: (usize, u32, u32), meets: Vec<Meets>, joined: bool, call: usize) {
        let launched = &mut self.launched[rank as usize];
        let needs = (0..launched.len()).filter(|at| launched[*at].joined && !launched[*at].done).collect();
        for meeting in &meets {
            self.met.entry(meeting.clone()).or_default().push((rank, launched.len()));
        }
        launched.push(Launched { stream, needs, meets, joined, done: false, call });
    }

    fn begins(&self, rank: u32, at: usize) -> bool {
        let launched = &self.launched[rank as usize];
        let one = &launched[at];
        let stands = self.standing.is_some_and(|(stands, from)| stands == rank && at > from);
        !stands
            && one.needs.iter().all(|needed| launched[*needed].done)
            && launched[..at].iter().all(|other| other.done || other.stream != one.stream)
    }

    /// The launches that can be over now.
    fn can_be_over(&self) -> Vec<(u32, usize)> {
        let mut over = Vec::new();
        for (rank, launched) in self.launched.iter().enumerate() {
            let rank = u32::try_from(rank).expect("few ranks");
            for (at, one) in launched.iter().enumerate().filter(|(_, one)| !one.done) {
                let stands = self.standing == Some((rank, at));
                if !stands
                    && self.begins(rank, at)
                    && one.meets.iter().all(|meeting| self.meets(rank, meeting))
                {
                    over.push((rank, at));
                }
            }
        }
        over
    }

    /// Whether everybody who belongs to a meeting has begun with it, and called the same.
    fn meets(&self, rank: u32, meeting: &Meets) -> bool {
        let there = &self.met[meeting];
        let members = match meeting {
            Meets::Collective(group, _) => self.run.ranks_of(RunGroupAt(*group)).len(),
            Meets::Transfer(..) => 2,
        };
        let word = |rank: u32| self.words.get(&(rank, meeting.clone()));
        there.len() == members
            && there.iter().all(|(other, at)| {
                let begun = self.launched[*other as usize][*at].done || self.begins(*other, *at);
                begun && word(*other) == word(rank)
            })
    }

    fn finish(&mut self, (rank, at): &(u32, usize)) {
        let one = &mut self.launched[*rank as usize][*at];
        one.done = true;
        let call = one.call;
        let _ = &one.meets;
        self.run.complete(*rank, call);
    }
}

fn every(ranks: u32) -> Vec<u32> {
    (0..ranks).collect()
}

/// One forward, one backward: tensor parallel pairs in stages, replicated.
fn pipeline(random: &mut Random) -> (DumpedRun, Vec<Vec<Act>>, String) {
    let few = |random: &mut Random, from: usize, more: usize| {
        u32::try_from(from + random.below(more)).expect("few")
    };
    let (stages, tensor, data) = (few(random, 2, 3), few(random, 1, 2), few(random, 1, 2));
    let (batches, bracketed) = (few(random, 2, 5), random.below(2) == 0);
    let ranks = stages * tensor * data;
    let mut run = DumpedRun::new(ranks);
    let rank = |stage: u32, replica: u32, part: u32| (stage * data + replica) * tensor + part;
    let mut groups: BTreeMap<(char, u32), RunGroupAt> = BTreeMap::new();
    for at in 0..stages * data {
        let members: Vec<u32> = (0..tensor).map(|part| at * tensor + part).collect();
        groups.insert(('t', at), run.group("TENSOR", &members));
    }
    for at in 0..data * tensor {
        let members: Vec<u32> = (0..stages).map(|stage| stage * data * tensor + at).collect();
        groups.insert(('p', at), run.group("PIPELINE", &members));
    }
    for stage in 0..stages {
        for part in 0..tensor {
            let members: Vec<u32> = (0..data).map(|replica| rank(stage, replica, part)).collect();
            groups.insert(('d', stage * tensor + part), run.group("DATA", &members));
        }
    }
    let mut acts = vec![Vec::new(); ranks as usize];
    for me in every(ranks) {
        let (stage, replica, part) = (me / (data * tensor), me / tensor % data, me % tensor);
        let pipe = groups[&('p', replica * tensor + part)];
        let (tp, dp) = (groups[&('t', stage * data + replica)], groups[&('d', stage * tensor + part)]);
        let acts = &mut acts[me as usize];
        let before = (stage > 0).then(|| me - data * tensor);
        let behind = (stage + 1 < stages).then(|| me + data * tensor);
        let transfers = |acts: &mut Vec<Act>, transfers: &[(bool, Option<u32>)]| {
            let mut some: Vec<Transfer> = transfers
                .iter()
                .filter_map(|(sends, peer)| peer.map(|peer| Transfer { sends: *sends, peer }))
                .collect();
            // Neighbours take turns, so that both ends of a pair have one order.
            some.sort_by_key(|transfer| transfer.sends == (stage % 2 == 1));
            if !some.is_empty() {
                acts.push(if bracketed { Act::Bracket(pipe, some) } else { Act::Transfers(pipe, some) });
            }
        };
        let compute = |acts: &mut Vec<Act>| {
            for size in [512, 1_024] {
                acts.push(Act::Collect { group: tp, word: "all_reduce", size, joined: true });
            }
        };
        let warm_up = (stages - stage - 1).min(batches);
        for _ in 0..2 {
            for _ in 0..warm_up {
                transfers(acts, &[(false, before)]);
                compute(acts);
                transfers(acts, &[(true, behind)]);
            }
            let steady = batches - warm_up;
            if steady > 0 {
                transfers(acts, &[(false, before)]);
            }
            for batch in 0..steady {
                compute(acts);
                transfers(acts, &[(true, behind), (false, behind)]);
                compute(acts);
                let more = batch + 1 < steady;
                transfers(acts, &[(true, before), (false, before.filter(|_| more))]);
            }
            for _ in 0..warm_up {
                transfers(acts, &[(false, behind)]);
                compute(acts);
                transfers(acts, &[(true, before)]);
            }
            acts.push(Act::Collect { group: dp, word: "all_reduce", size: 4_096, joined: false });
            acts.push(Act::Join);
            acts.push(Act::Collect { group: run.all(), word: "all_reduce", size: 1, joined: true });
            acts.push(Act::Wait);
        }
    }
    let name = format!("{stages} stages of {tensor} by {data}, {batches} batches, bracketed: {bracketed}");
    (run, acts, name)
}

/// Parameters in shards: gathered ahead, gradients reduced behind.
fn sharded(random: &mut Random) -> (DumpedRun, Vec<Vec<Act>>, String) {
    let (shards, replicas) = ([2_u32, 4][random.below(2)], [1_u32, 2][random.below(2)]);
    let layers = 2 + random.below(5);
    let ranks = shards * replicas;
    let mut run = DumpedRun::new(ranks);
    let shard: Vec<RunGroupAt> = (0..replicas)
        .map(|at| run.group("SHARD", &(0..shards).map(|one| at * shards + one).collect::<Vec<_>>()))
        .collect();
    let replicate: Vec<RunGroupAt> = (0..shards)
        .map(|at| run.group("REPLICATE", &(0..replicas).map(|one| one * shards + at).collect::<Vec<_>>()))
        .collect();
    let mut acts = vec![Vec::new(); ranks as usize];
    for me in every(ranks) {
        let (shard, replicate) = (shard[(me / shards) as usize], replicate[(me % shards) as usize]);
        let acts = &mut acts[me as usize];
        let size = |layer: usize| 256 * (i64::try_from(layer).expect("few layers") + 1);
        for _ in 0..3 {
            for layer in 0..layers {
                acts.push(Act::Collect {
                    group: shard,
                    word: "_all_gather_base",
                    size: size(layer),
                    joined: false,
                });
                if layer > 0 {
                    acts.push(Act::Join);
                }
            }
            for layer in (0..layers).rev() {
                acts.push(Act::Collect {
                    group: shard,
                    word: "_all_gather_base",
                    size: size(layer),
                    joined: true,
                });
                acts.push(Act::Collect {
                    group: shard,
                    word: "_reduce_scatter_base",
                    size: size(layer),
                    joined: false,
                });
                acts.push(Act::Collect {
                    group: replicate,
                    word: "all_reduce",
                    size: size(layer),
                    joined: false,
                });
            }
            acts.push(Act::Join);
            acts.push(Act::Collect { group: run.all(), word: "all_reduce", size: 1, joined: true });
            acts.push(Act::Wait);
        }
    }
    (run, acts, format!("{shards} shards by {replicas}, {layers} layers"))
}

/// Experts: tokens go to other ranks and come back.
fn experts(random: &mut Random) -> (DumpedRun, Vec<Vec<Act>>, String) {
    let (experts, tensor) = ([2_u32, 4][random.below(2)], 2_u32);
    let layers = 1 + random.below(4);
    let ranks = experts * tensor;
    let mut run = DumpedRun::new(ranks);
    let expert: Vec<RunGroupAt> = (0..tensor)
        .map(|at| run.group("EXPERT", &(0..experts).map(|one| one * tensor + at).collect::<Vec<_>>()))
        .collect();
    let pair: Vec<RunGroupAt> = (0..experts)
        .map(|at| run.group("TENSOR", &(0..tensor).map(|one| at * tensor + one).collect::<Vec<_>>()))
        .collect();
    let mut acts = vec![Vec::new(); ranks as usize];
    for me in every(ranks) {
        let (expert, pair) = (expert[(me % tensor) as usize], pair[(me / tensor) as usize]);
        let acts = &mut acts[me as usize];
        for _ in 0..3 {
            for _ in 0..2 * layers {
                acts.push(Act::Collect { group: pair, word: "_all_gather_base", size: 512, joined: true });
                acts.push(Act::Collect { group: expert, word: "all_to_all", size: 64, joined: true });
                acts.push(Act::Collect { group: expert, word: "all_to_all", size: 64, joined: true });
                acts.push(Act::Collect {
                    group: pair,
                    word: "_reduce_scatter_base",
                    size: 512,
                    joined: true,
                });
                acts.push(Act::Collect { group: run.all(), word: "all_reduce", size: 16, joined: false });
            }
            acts.push(Act::Join);
            acts.push(Act::Collect { group: run.all(), word: "all_reduce", size: 2_048, joined: true });
            acts.push(Act::Wait);
        }
    }
    (run, acts, format!("{experts} experts by {tensor}, {layers} layers"))
}
