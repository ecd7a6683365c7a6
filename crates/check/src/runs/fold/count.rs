//! What one period of a repeat does to the communicators, and whether it leaves everything as it was.
//!
//! A process counts its uses of each communicator and of each link. The n-th use of a communicator meets the
//! n-th of the other members, the n-th send on a link its n-th receive, so these numbers say where the
//! processes are in relation to one another.
//! Not here: which processes go together.

use rankcheck_model::Rank;
use rankcheck_recording::{Argument, Shape};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

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
pub(super) struct CountWalk<'a> {
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
    groups: u64,
    entered: u64,
    captures: u64,
    /// What the open capture counts.
    captured: Vec<usize>,
    graphs: FxHashMap<u64, Vec<usize>>,
    alive: u128,
    /// The number of the next call.
    number: u64,
}

/// A number for a thing, such that sums of different things differ but for odds of one to 2^128.
fn marked(thing: Thing, id: u64) -> u128 {
    let half = |seed: u64| {
        let mut hasher = FxHasher::default();
        (seed, thing, id, seed.rotate_left(17)).hash(&mut hasher);
        let mixed = hasher.finish();
        (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    u128::from(half(0x243f_6a88_85a3_08d3)) << 64 | u128::from(half(0x1319_8a2e_0370_7344))
}

/// What a symbol counts here and now.
#[derive(Debug, Clone)]
pub(super) enum Resolved {
    Nothing,
    One(usize),
    Many(Vec<usize>),
    Doubtful,
}

impl<'a> CountWalk<'a> {
    pub(super) fn new(world: &'a World, member: &'a RankProcess, sequence: &'a Sequence) -> Self {
        let effects: Vec<Effect> =
            sequence.dictionary().iter().map(|&symbol| effect(sequence, symbol)).collect();
        let resolved = vec![(0, Resolved::Nothing); effects.len()];
        Self {
            world,
            member,
            sequence,
            effects,
            resolved,
            age: 1,
            numbers: FxHashMap::default(),
            keys: Vec::new(),
            groups: 0,
            entered: 0,
            captures: 0,
            captured: Vec::new(),
            graphs: FxHashMap::default(),
            alive: 0,
            number: 0,
        }
    }

    /// Whether no call, group or capture is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.groups + self.entered + self.captures == 0
    }

    /// How often what symbols mean may have changed: communicators, streams and graphs came and went.
    pub(super) fn age(&self) -> u32 {
        self.age
    }

    /// What exists that was made, as a number: the same for the same things.
    pub(super) fn alive(&self) -> u128 {
        self.alive
    }

    /// What a counter counts.
    pub(super) fn key(&self, counter: usize) -> UseKey {
        self.keys[counter]
    }

    /// Walks over a symbol, and says what it counts.
    pub(super) fn step(&mut self, at: usize) -> Resolved {
        let symbol = self.sequence.symbols[at];
        let this = self.number;
        self.number += self.sequence.symbol(symbol).calls();
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
            Effect::Doubtful => {
                self.age += 1;
                counted = Resolved::Doubtful;
            }
            Effect::Enter => self.entered += 1,
            Effect::Makes(thing, id) | Effect::Ends(thing, id) => self.alive ^= marked(*thing, *id),
            Effect::Registers { window, .. } => self.alive ^= marked(Thing::Window, *window),
            Effect::Local
            | Effect::Meets(_)
            | Effect::Sends { .. }
            | Effect::Receives { .. }
            | Effect::Launch(_) => {}
        }
        if let Symbol::Leave { .. } = self.sequence.symbol(symbol) {
            self.entered = self.entered.saturating_sub(1);
        }
        match &counted {
            Resolved::One(counter) if self.captures > 0 => {
                self.captured.push(*counter);
                counted = Resolved::Nothing;
            }
            Resolved::One(_) | Resolved::Many(_) | Resolved::Nothing | Resolved::Doubtful => {}
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
        }
        Resolved::One(counter)
    }
}
