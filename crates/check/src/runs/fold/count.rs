//! What one period of a repeat does to the communicators, and whether it leaves everything as it was.
//!
//! A process counts its uses of each communicator and of each link. The n-th use of a communicator meets the
//! n-th of the other members, the n-th send on a link its n-th receive, so these numbers say where the
//! processes are in relation to one another.
//! Not here: which processes go together.

use rankcheck_model::Rank;
use rankcheck_recording::{Argument, Shape};
use rustc_hash::FxHashMap;

use super::repeat::Repeat;
use crate::runs::call::{CallKind, FoldClass, Thing, failure, row};
use crate::runs::sequence::{Sequence, Symbol, SymbolId};
use crate::runs::world::{RankProcess, RunCommId, World};

/// What uses are counted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum UseKey {
    /// Uses of a communicator that all members make together.
    Comm(RunCommId),
    /// Messages from one rank to another. The one counts what it sends, the other what it receives.
    Link { comm: RunCommId, from: Rank, to: Rank },
}

/// A repeat with what a period of it does.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    /// The first symbol that may be folded.
    pub(super) from: usize,
    /// The first symbol behind the repeat.
    pub(super) to: usize,
    /// The length of a period in symbols.
    pub(super) period: usize,
    /// Whether a period leaves everything as it was, as far as is known.
    pub(super) whole: bool,
    /// What a period counts; nothing with zero.
    pub(super) counters: FxHashMap<UseKey, Counter>,
    /// Where the repeat begins: positions in `open` and in counters are counted from here.
    base: usize,
    /// By position in the period: whether a call, a group or a capture is open before that symbol.
    open: Vec<bool>,
}

/// The uses that a period makes of one communicator or link.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    /// How many there were before the repeat.
    before: u64,
    /// By use: the position in the period of the symbol that makes it.
    pub(super) offsets: Vec<u32>,
}

impl Counter {
    /// How many uses were made before the symbol at a position of the sequence.
    pub(super) fn at(&self, of: &Loop, position: usize) -> u64 {
        let (periods, rest) = ((position - of.base) / of.period, (position - of.base) % of.period);
        let in_rest = self.offsets.partition_point(|&offset| (offset as usize) < rest);
        self.before + periods as u64 * self.offsets.len() as u64 + in_rest as u64
    }

    /// The first position of the sequence before which so many uses were made; it may lie behind the repeat.
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

    /// The first position from here on at which nothing is open.
    pub(super) fn quiet(&self, position: usize) -> Option<usize> {
        (position..position + self.period).find(|position| !self.open[(position - self.base) % self.period])
    }
}

/// What a symbol does, as far as its name and arguments tell.
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

fn effect(sequence: &Sequence, symbol: Symbol) -> Effect {
    let (call, result) = match symbol {
        Symbol::Call { call, result, .. } | Symbol::Leave { call, result, .. } => (call, result),
        Symbol::Note { call, .. } | Symbol::Noted { call, .. } => (call, None),
        Symbol::Enter { .. } => return Effect::Enter,
        Symbol::Folded { .. } => return Effect::Local,
        Symbol::Never { .. } | Symbol::Lost { .. } => return Effect::Doubtful,
    };
    let (call, result) = (sequence.shape(call), result.map(|result| sequence.shape(result)));
    if call.name.starts_with("nccl") && failure(result).is_some() {
        return Effect::Doubtful;
    }
    known_effect(call, result).unwrap_or(Effect::Doubtful)
}

/// The effect that the call's row says; `None` if the call lacks something that it should have.
fn known_effect(call: &Shape, result: Option<&Shape>) -> Option<Effect> {
    let kind = CallKind::of(&call.name);
    if kind.lacks(call).is_some() || !kind.open(call).is_empty() {
        return None;
    }
    if kind.is_empty(call) {
        return Some(Effect::Local);
    }
    let of_call = |key: &str| call.get(key).and_then(Argument::number);
    let of_result = |key: &str| result?.get(key)?.number();
    let effect = match row(&call.name).folded {
        FoldClass::Local => Effect::Local,
        FoldClass::Meets => Effect::Meets(of_call("comm")?),
        FoldClass::Sends => Effect::Sends { comm: of_call("comm")?, peer: of_call("peer")? },
        FoldClass::Receives => Effect::Receives { comm: of_call("comm")?, peer: of_call("peer")? },
        FoldClass::Registers => Effect::Registers { comm: of_call("comm")?, window: of_result("window")? },
        FoldClass::Makes(thing, key) => match result.and_then(|result| result.get(key)) {
            Some(made) => Effect::Makes(thing, made.number()?),
            // It failed, and made nothing.
            None => Effect::Local,
        },
        FoldClass::Notes(thing, key) => Effect::Makes(thing, of_call(key)?),
        FoldClass::Ends(thing, key) => Effect::Ends(thing, of_call(key)?),
        FoldClass::GroupStart => Effect::GroupStart,
        FoldClass::GroupEnd => Effect::GroupEnd,
        FoldClass::BeginCapture => Effect::BeginCapture,
        FoldClass::EndCapture => Effect::EndCapture(of_result("graph")?),
        FoldClass::Instantiate => {
            Effect::Instantiate { graph: of_call("graph")?, executable: of_result("executable")? }
        }
        FoldClass::Launch => Effect::Launch(of_call("executable")?),
        FoldClass::Doubtful => Effect::Doubtful,
    };
    Some(effect)
}

/// A walk along a sequence.
struct CountWalk<'a> {
    world: &'a World,
    member: &'a RankProcess,
    sequence: &'a Sequence,
    /// What each symbol does to the counts, indexed by symbol.
    effects: Vec<Effect>,
    /// Indexed by symbol: what it counts, and in which age that was found.
    resolved: Vec<(u32, Resolved)>,
    /// Goes up when communicators or graphs may have changed.
    age: u32,
    numbers: FxHashMap<UseKey, usize>,
    keys: Vec<UseKey>,
    counts: Vec<u64>,
    groups: u64,
    entered: u64,
    captures: u64,
    /// What the open capture counts.
    captured: Vec<usize>,
    graphs: FxHashMap<u64, Vec<usize>>,
}

/// What a symbol counts here and now.
#[derive(Debug, Clone)]
enum Resolved {
    Nothing,
    One(usize),
    Many(Vec<usize>),
    Doubtful,
}

/// The repeats of a sequence as loops.
pub(super) fn loops(
    world: &World,
    member: &RankProcess,
    sequence: &Sequence,
    repeats: &[Repeat],
) -> Vec<Loop> {
    if repeats.is_empty() {
        return Vec::new();
    }
    let effects: Vec<Effect> = sequence.dictionary().iter().map(|&symbol| effect(sequence, symbol)).collect();
    let resolved = vec![(0, Resolved::Nothing); effects.len()];
    let mut walk = CountWalk {
        world,
        member,
        sequence,
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
    for repeat in repeats {
        while at < repeat.from {
            walk.step(at, &mut number);
            at += 1;
        }
        let this = walk.period(repeat, &mut number);
        at += repeat.period;
        if this.whole {
            // The other periods count the same.
            let more = (repeat.to - at) / repeat.period;
            for (key, counter) in &this.counters {
                walk.counts[walk.numbers[key]] += counter.offsets.len() as u64 * more as u64;
            }
            let calls: u64 =
                sequence.symbols[repeat.from..at].iter().map(|&symbol| sequence.symbol(symbol).calls()).sum();
            number += calls * more as u64;
            at += more * repeat.period;
        }
        found.push(this);
    }
    found
}

impl CountWalk<'_> {
    /// Walks the first period of a repeat.
    fn period(&mut self, repeat: &Repeat, number: &mut u64) -> Loop {
        let before = self.counts.clone();
        let depths = (self.groups, self.entered, self.captures);
        let mut offsets: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        let mut alive: FxHashMap<(Thing, u64), i64> = FxHashMap::default();
        let mut open = Vec::with_capacity(repeat.period);
        let mut whole = self.captures == 0;
        for position in 0..repeat.period {
            open.push(self.groups + self.entered + self.captures > 0);
            let symbol = self.sequence.symbols[repeat.from + position];
            match &self.effects[symbol.0 as usize] {
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
            let position = u32::try_from(position).expect("a sequence has fewer than 2^32 symbols");
            match self.step(repeat.from + position as usize, number) {
                Resolved::Nothing => {}
                Resolved::One(counter) => offsets.entry(counter).or_default().push(position),
                Resolved::Many(counters) => {
                    for counter in counters {
                        offsets.entry(counter).or_default().push(position);
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
            from: repeat.from,
            to: repeat.to,
            period: repeat.period,
            whole,
            counters,
            base: repeat.from,
            open,
        }
    }

    /// Walks over a symbol, and says what it counted.
    fn step(&mut self, at: usize, number: &mut u64) -> Resolved {
        let symbol = self.sequence.symbols[at];
        let this = *number;
        *number += self.sequence.symbol(symbol).calls();
        let mut counted = match &self.resolved[symbol.0 as usize] {
            (age, resolved) if *age == self.age => resolved.clone(),
            _ => {
                let resolved = self.resolve(symbol, self.sequence.recorded(this));
                self.resolved[symbol.0 as usize] = (self.age, resolved.clone());
                resolved
            }
        };
        match &self.effects[symbol.0 as usize] {
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
        if let Symbol::Leave { .. } = self.sequence.symbol(symbol) {
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

    fn resolve(&mut self, symbol: SymbolId, number: u64) -> Resolved {
        let me = self.member.rank;
        let (address, link) = match self.effects[symbol.0 as usize] {
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
            None => UseKey::Comm(comm),
            Some((peer, sends)) => {
                let peer = usize::try_from(peer).ok();
                let peer = peer.and_then(|peer| self.world.comm(comm).members.get(peer).copied());
                match peer {
                    Some(Some(peer)) if sends => UseKey::Link { comm, from: me, to: peer },
                    Some(Some(peer)) => UseKey::Link { comm, from: peer, to: me },
                    // Nobody recorded the peer.
                    Some(None) => return Resolved::Nothing,
                    None => return Resolved::Doubtful,
                }
            }
        };
        // A message to oneself is matched within a group, and nobody else counts it.
        if matches!(key, UseKey::Link { from, to, .. } if from == to) {
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
