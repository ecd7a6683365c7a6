//! What one period of a stretch does to the communicators, and whether it leaves everything as it was.
//!
//! A process counts its uses of each communicator and of each link. The n-th use of a communicator meets the
//! n-th of the other members, the n-th send on a link its n-th receive, so these numbers say where the
//! processes are in relation to one another.
//! Not here: which processes go together.

use rankcheck_model::Rank;
use rankcheck_recording::{Shape, Value};
use rustc_hash::FxHashMap;

use super::repeat::Stretch;
use crate::runs::kind::Kind;
use crate::runs::sequence::{Tape, Word, WordId};
use crate::runs::world::{CommId, Member, World};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// Uses of a communicator that all members make together.
    Comm(CommId),
    /// Messages from one rank to another. The one counts what it sends, the other what it receives.
    Link { comm: CommId, from: Rank, to: Rank },
}

/// A stretch with what a period of it does.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    /// The first word that may be folded.
    pub(super) from: usize,
    /// The first word behind the stretch.
    pub(super) to: usize,
    /// Words.
    pub(super) period: usize,
    /// Whether a period leaves everything as it was, as far as is known.
    pub(super) whole: bool,
    /// What a period counts; nothing with zero.
    pub(super) counters: FxHashMap<Key, Counter>,
    /// Where the stretch begins: places in `open` and in counters are counted from here.
    base: usize,
    /// By place in the period: whether a call, a group or a capture is open before that word.
    open: Vec<bool>,
}

/// The uses that a period makes of one communicator or link.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    /// How many there were before the stretch.
    before: u64,
    /// By use: the place in the period of the word that makes it.
    pub(super) offsets: Vec<u32>,
}

impl Counter {
    /// How many uses were made before the word at a place of the tape.
    pub(super) fn at(&self, of: &Loop, place: usize) -> u64 {
        let (periods, rest) = ((place - of.base) / of.period, (place - of.base) % of.period);
        let in_rest = self.offsets.partition_point(|&offset| (offset as usize) < rest);
        self.before + periods as u64 * self.offsets.len() as u64 + in_rest as u64
    }

    /// The first place of the tape before which so many uses were made; it may lie behind the stretch.
    pub(super) fn reaches(&self, of: &Loop, uses: u64) -> Option<usize> {
        let Some(more) = uses.checked_sub(self.before + 1) else { return Some(of.base) };
        let rate = self.offsets.len() as u64;
        let (periods, rest) = (usize::try_from(more / rate).ok()?, usize::try_from(more % rate).ok()?);
        of.base.checked_add(periods.checked_mul(of.period)?)?.checked_add(self.offsets[rest] as usize + 1)
    }
}

impl Loop {
    /// How many periods may be folded at most.
    pub(super) fn repeats(&self) -> u64 {
        ((self.to - self.from) / self.period) as u64
    }

    /// The first place from here on at which nothing is open.
    pub(super) fn quiet(&self, place: usize) -> Option<usize> {
        (place..place + self.period).find(|place| !self.open[(place - self.base) % self.period])
    }
}

/// What a word does, as far as its name and arguments tell.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Effect {
    /// Nothing that is counted.
    Local,
    /// A call with others inside begins.
    Enter,
    /// All members of the communicator at this address do this together.
    Meets(u64),
    /// A message to a rank of the communicator at this address.
    Sends {
        comm: u64,
        peer: u64,
    },
    /// A message from a rank of the communicator at this address.
    Receives {
        comm: u64,
        peer: u64,
    },
    GroupStart,
    GroupEnd,
    BeginCapture,
    /// Gives the graph at this address.
    EndCapture(u64),
    /// Makes the second out of the first.
    Instantiate {
        graph: u64,
        executable: u64,
    },
    Launch(u64),
    /// Something of a kind now exists: its identity.
    Makes(Thing, u64),
    /// It does not exist any more.
    Ends(Thing, u64),
    /// Does what `Meets` and `Makes` do.
    Registers {
        comm: u64,
        window: u64,
    },
    /// May concern other processes, or what comes later, in a way that is not counted here.
    Doubtful,
}

/// What is made and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
    Memory,
    Block,
    Segment,
    Registration,
    Window,
}

fn effect(tape: &Tape, word: Word) -> Effect {
    let (call, result) = match word {
        Word::Call { call, result, .. } | Word::Leave { call, result, .. } => (call, result),
        Word::Note { call, .. } | Word::Noted { call, .. } => (call, None),
        Word::Enter { .. } => return Effect::Enter,
        Word::Folded { .. } => return Effect::Local,
        Word::Never { .. } | Word::Lost { .. } => return Effect::Doubtful,
    };
    let (call, result) = (tape.shape(call), result.map(|result| tape.shape(result)));
    if call.name.starts_with("nccl") && result.is_some_and(|result| &*result.name == "failed") {
        return Effect::Doubtful;
    }
    known_effect(call, result).unwrap_or(Effect::Doubtful)
}

/// `None` if the call is not known, or lacks something that it should have.
///
/// Streams and communicators that come and go are left to doubt: that one iteration is ordered before the
/// next rests on the streams that both work on. So are exports and opens of memory, which no count of both sides
/// brings together.
fn known_effect(call: &Shape, result: Option<&Shape>) -> Option<Effect> {
    let of_call = |key: &str| call.get(key).and_then(Value::number);
    let made = |thing: Thing, key: &str| match result.and_then(|result| result.get(key)) {
        Some(made) => made.number().map(|made| Effect::Makes(thing, made)),
        // It failed, and made nothing.
        None => Some(Effect::Local),
    };
    let noted = |thing: Thing| of_call("address").map(|made| Effect::Makes(thing, made));
    let ended = |thing: Thing, key: &str| of_call(key).map(|ended| Effect::Ends(thing, ended));
    match Kind::of(&call.name) {
        Kind::Collect | Kind::Exchange => of_call("comm").map(Effect::Meets),
        Kind::Send => Some(Effect::Sends { comm: of_call("comm")?, peer: of_call("peer")? }),
        Kind::Receive => Some(Effect::Receives { comm: of_call("comm")?, peer: of_call("peer")? }),
        Kind::Register => {
            let window = result?.get("window")?.number()?;
            Some(Effect::Registers { comm: of_call("comm")?, window })
        }
        Kind::Deregister => ended(Thing::Window, "window"),
        Kind::RegisterBuffer => made(Thing::Registration, "handle"),
        Kind::DeregisterBuffer => ended(Thing::Registration, "handle"),
        Kind::GroupStart => Some(Effect::GroupStart),
        Kind::GroupEnd => Some(Effect::GroupEnd),
        Kind::Allocate => made(Thing::Memory, "address"),
        Kind::Free => ended(Thing::Memory, "address"),
        Kind::BlockAlloc => noted(Thing::Block),
        Kind::BlockFree => ended(Thing::Block, "address"),
        Kind::SegmentAlloc => noted(Thing::Segment),
        Kind::SegmentFree => ended(Thing::Segment, "address"),
        Kind::BeginCapture => Some(Effect::BeginCapture),
        Kind::EndCapture => Some(Effect::EndCapture(result?.get("graph")?.number()?)),
        Kind::Instantiate => Some(Effect::Instantiate {
            graph: of_call("graph")?,
            executable: result?.get("executable")?.number()?,
        }),
        Kind::GraphLaunch => of_call("executable").map(Effect::Launch),
        // Of Python only the place in source of the calls inside.
        // What an event stands for at the end of an iteration is the same after each.
        Kind::Query | Kind::EventDestroy | Kind::Work | Kind::Kernel | Kind::Nothing | Kind::Python => {
            Some(Effect::Local)
        }
        Kind::Init
        | Kind::Split
        | Kind::Shrink
        | Kind::Destroy
        | Kind::Map
        | Kind::Unmap
        | Kind::Stream
        | Kind::GraphDestroy
        | Kind::IpcExport
        | Kind::IpcOpen
        | Kind::IpcClose
        | Kind::Handle
        | Kind::Store
        | Kind::Unknown => None,
    }
}

/// A walk along a tape.
struct Walk<'a> {
    world: &'a World,
    member: &'a Member,
    tape: &'a Tape,
    /// By word.
    effects: Vec<Effect>,
    /// By word: what it counts, and in which age that was found.
    resolved: Vec<(u32, Resolved)>,
    /// Goes up when communicators or graphs may have changed.
    age: u32,
    numbers: FxHashMap<Key, usize>,
    keys: Vec<Key>,
    counts: Vec<u64>,
    groups: u64,
    entered: u64,
    captures: u64,
    /// What the open capture counts.
    captured: Vec<usize>,
    graphs: FxHashMap<u64, Vec<usize>>,
}

/// What a word counts here and now.
#[derive(Debug, Clone)]
enum Resolved {
    Nothing,
    One(usize),
    Many(Vec<usize>),
    Doubtful,
}

/// The stretches of a tape as loops.
pub(super) fn loops(world: &World, member: &Member, tape: &Tape, stretches: &[Stretch]) -> Vec<Loop> {
    if stretches.is_empty() {
        return Vec::new();
    }
    let effects: Vec<Effect> = tape.dictionary().iter().map(|&word| effect(tape, word)).collect();
    let resolved = vec![(0, Resolved::Nothing); effects.len()];
    let mut walk = Walk {
        world,
        member,
        tape,
        effects,
        resolved,
        age: 1,
        numbers: FxHashMap::default(),
        keys: Vec::new(),
        counts: Vec::new(),
        groups: 0,
        entered: 0,
        captures: 0,
        captured: Vec::new(),
        graphs: FxHashMap::default(),
    };
    let mut at = 0;
    let mut number = 0;
    let mut found = Vec::new();
    for stretch in stretches {
        while at < stretch.from {
            walk.step(at, &mut number);
            at += 1;
        }
        let this = walk.period(stretch, &mut number);
        at += stretch.period;
        if this.whole {
            // The other periods count the same.
            let more = (stretch.to - at) / stretch.period;
            for (key, counter) in &this.counters {
                walk.counts[walk.numbers[key]] += counter.offsets.len() as u64 * more as u64;
            }
            let calls: u64 = tape.words[stretch.from..at].iter().map(|&word| tape.word(word).calls()).sum();
            number += calls * more as u64;
            at += more * stretch.period;
        }
        found.push(this);
    }
    found
}

impl Walk<'_> {
    /// Walks the first period of a stretch.
    fn period(&mut self, stretch: &Stretch, number: &mut u64) -> Loop {
        let before = self.counts.clone();
        let depths = (self.groups, self.entered, self.captures);
        let mut offsets: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        let mut alive: FxHashMap<(Thing, u64), i64> = FxHashMap::default();
        let mut open = Vec::with_capacity(stretch.period);
        let mut whole = self.captures == 0;
        for place in 0..stretch.period {
            open.push(self.groups + self.entered + self.captures > 0);
            let word = self.tape.words[stretch.from + place];
            match &self.effects[word.0 as usize] {
                Effect::Makes(thing, made) => *alive.entry((*thing, *made)).or_default() += 1,
                Effect::Registers { window, .. } => *alive.entry((Thing::Window, *window)).or_default() += 1,
                Effect::Ends(thing, ended) => *alive.entry((*thing, *ended)).or_default() -= 1,
                Effect::BeginCapture
                | Effect::EndCapture(_)
                | Effect::Instantiate { .. }
                | Effect::Doubtful => whole = false,
                Effect::Local
                | Effect::Enter
                | Effect::Meets(_)
                | Effect::Sends { .. }
                | Effect::Receives { .. }
                | Effect::GroupStart
                | Effect::GroupEnd
                | Effect::Launch(_) => {}
            }
            let place = u32::try_from(place).expect("a tape has fewer than 2^32 words");
            match self.step(stretch.from + place as usize, number) {
                Resolved::Nothing => {}
                Resolved::One(counter) => offsets.entry(counter).or_default().push(place),
                Resolved::Many(counters) => {
                    for counter in counters {
                        offsets.entry(counter).or_default().push(place);
                    }
                }
                Resolved::Doubtful => whole = false,
            }
        }
        whole &= depths == (self.groups, self.entered, self.captures);
        whole &= alive.values().all(|&more| more == 0);
        let counters = offsets
            .into_iter()
            .map(|(counter, offsets)| {
                let before = before.get(counter).copied().unwrap_or(0);
                (self.keys[counter], Counter { before, offsets })
            })
            .collect();
        Loop {
            from: stretch.from,
            to: stretch.to,
            period: stretch.period,
            whole,
            counters,
            base: stretch.from,
            open,
        }
    }

    /// Walks over a word, and says what it counted.
    fn step(&mut self, at: usize, number: &mut u64) -> Resolved {
        let word = self.tape.words[at];
        let this = *number;
        *number += self.tape.word(word).calls();
        let mut counted = match &self.resolved[word.0 as usize] {
            (age, resolved) if *age == self.age => resolved.clone(),
            _ => {
                let resolved = self.resolve(word, self.tape.recorded(this));
                self.resolved[word.0 as usize] = (self.age, resolved.clone());
                resolved
            }
        };
        match &self.effects[word.0 as usize] {
            Effect::GroupStart => self.groups += 1,
            Effect::GroupEnd => self.groups = self.groups.saturating_sub(1),
            Effect::BeginCapture => {
                self.captures += 1;
                self.captured.clear();
            }
            Effect::EndCapture(graph) => {
                // Of two captures at a time it is not known what belongs to which.
                if self.captures == 1 {
                    let captured = std::mem::take(&mut self.captured);
                    self.graphs.insert(*graph, captured);
                } else {
                    self.graphs.remove(graph);
                }
                self.captures = self.captures.saturating_sub(1);
                self.age += 1;
            }
            Effect::Instantiate { graph, executable } => {
                match self.graphs.get(graph).cloned() {
                    Some(captured) => self.graphs.insert(*executable, captured),
                    None => self.graphs.remove(executable),
                };
                self.age += 1;
            }
            // Communicators may have come and gone.
            Effect::Doubtful => self.age += 1,
            Effect::Enter => self.entered += 1,
            Effect::Local
            | Effect::Meets(_)
            | Effect::Sends { .. }
            | Effect::Receives { .. }
            | Effect::Launch(_)
            | Effect::Makes(..)
            | Effect::Ends(..)
            | Effect::Registers { .. } => {}
        }
        if let Word::Leave { .. } = self.tape.word(word) {
            self.entered = self.entered.saturating_sub(1);
        }
        match &counted {
            Resolved::One(counter) if self.captures > 0 => {
                self.captured.push(*counter);
                counted = Resolved::Nothing;
            }
            Resolved::One(counter) => self.counts[*counter] += 1,
            Resolved::Many(counters) => {
                for &counter in counters {
                    self.counts[counter] += 1;
                }
            }
            Resolved::Nothing | Resolved::Doubtful => {}
        }
        counted
    }

    fn resolve(&mut self, word: WordId, number: u64) -> Resolved {
        let me = self.member.rank;
        let (address, link) = match self.effects[word.0 as usize] {
            Effect::Meets(comm) | Effect::Registers { comm, .. } => (comm, None),
            Effect::Sends { comm, peer } => (comm, Some((peer, true))),
            Effect::Receives { comm, peer } => (comm, Some((peer, false))),
            Effect::Launch(executable) => {
                return match self.graphs.get(&executable) {
                    Some(captured) => Resolved::Many(captured.clone()),
                    None => Resolved::Doubtful,
                };
            }
            Effect::Local
            | Effect::Enter
            | Effect::GroupStart
            | Effect::GroupEnd
            | Effect::BeginCapture
            | Effect::EndCapture(_)
            | Effect::Instantiate { .. }
            | Effect::Makes(..)
            | Effect::Ends(..)
            | Effect::Doubtful => return Resolved::Nothing,
        };
        let Some(comm) = self.member.comm_at(address, number) else { return Resolved::Doubtful };
        let key = match link {
            None => Key::Comm(comm),
            Some((peer, sends)) => {
                let peer = usize::try_from(peer).ok();
                let peer = peer.and_then(|peer| self.world.comm(comm).members.get(peer).copied());
                match peer {
                    Some(Some(peer)) if sends => Key::Link { comm, from: me, to: peer },
                    Some(Some(peer)) => Key::Link { comm, from: peer, to: me },
                    // Nobody recorded the peer.
                    Some(None) => return Resolved::Nothing,
                    None => return Resolved::Doubtful,
                }
            }
        };
        // A message to oneself is matched within a group, and nobody else counts it.
        if matches!(key, Key::Link { from, to, .. } if from == to) {
            return Resolved::Nothing;
        }
        let fresh = self.keys.len();
        let counter = *self.numbers.entry(key).or_insert(fresh);
        if counter == fresh {
            self.keys.push(key);
            self.counts.push(0);
        }
        Resolved::One(counter)
    }
}
