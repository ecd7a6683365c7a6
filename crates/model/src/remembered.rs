//! What is remembered of a history where histories merge. It is found, not guessed: at first nothing is, and whoever
//! asks for something that was forgotten has the search start again with it remembered.
//!
//! Not here: what else tells states apart (`identity`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{ThreadStart, Token};
use crate::order::dependence::Object;
pub use crate::order::persistent::SharedUse;
use crate::rank::{LocId, Rank};

/// What may be forgotten of a history until somebody asks for it, and what is merged without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forgotten {
    /// The answers that a thread was given.
    Answers,
    /// The results of its operations.
    Results,
    /// Which accesses to memory an access is ordered behind.
    Accesses,
    /// Who knows that a record of an event is complete.
    Records,
    /// What is in lists and maps.
    Containers,
    /// Memory that a rank may still come by.
    Memory,
    /// What memory holds that was given back, or that a kernel wrote to beside the buffer it was given.
    Contents,
    /// How each rank voted in an agreement that is under way, beyond whether all agreed so far.
    Votes,
    /// What everybody knows who may still do something.
    Known,
    /// Which clocks end between two operations of one actor.
    Between,
    /// What threads may still do to what they share.
    Follows,
    /// In which order the segments of a pool were made.
    Numbers,
    /// How far counts lie apart.
    Counts,
}

impl Forgotten {
    /// All of them, in the order of declaration.
    pub const ALL: [Self; 13] = [
        Self::Answers,
        Self::Results,
        Self::Accesses,
        Self::Records,
        Self::Containers,
        Self::Memory,
        Self::Contents,
        Self::Votes,
        Self::Known,
        Self::Between,
        Self::Follows,
        Self::Numbers,
        Self::Counts,
    ];
}

/// A point in what a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProgramPoint {
    /// The rank of the thread; rank 0 where ranks are interchangeable.
    pub rank: Rank,
    /// What the thread runs.
    pub start: ThreadStart,
    /// Behind the question that is asked there; none for where the thread starts.
    pub asked: Option<LocId>,
}

/// What of the past makes a difference to what may still come, as far as a search has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedPast {
    /// For how many further questions of its thread an answer matters that was given here.
    pub answers: BTreeMap<LocId, u32>,
    /// Questions of which it matters how often they were asked here: in a loop, how much of it is left.
    pub counted: BTreeSet<LocId>,
    /// For how many further questions of its thread a result is used that an operation here produced.
    pub results: BTreeMap<LocId, u32>,
    /// What other threads use results of.
    pub shared: BTreeSet<ThreadStart>,
    /// Accesses to memory made here are compared with later ones of others.
    pub asked: BTreeSet<LocId>,
    /// For how many further questions of the thread that records an event here somebody looks whether it is complete.
    pub records: BTreeMap<LocId, u32>,
    /// Events of which it makes a difference whether they were ever recorded.
    pub recorded: BTreeSet<Token>,
    /// Lists and maps that somebody looks into.
    pub read: BTreeSet<Object>,
    /// Agreements entered here in which some run ends: how a rank votes that waits for ever is told of it.
    pub votes: BTreeSet<LocId>,
    /// Names of memory: somebody looks at what was forgotten of such.
    pub contents: BTreeSet<Token>,
    /// Pools of which somebody looks at the numbers of segments: then every order of their addresses is explored.
    pub numbers: BTreeSet<Token>,
    /// Whether somebody looks into all lists and maps of a rank.
    pub reads_all: bool,
    /// What threads do to what they share behind each point: not of the past, but found with it.
    #[serde(with = "as_pairs")]
    pub follows: BTreeMap<ProgramPoint, BTreeSet<SharedUse>>,
    /// Whether results are told by their numbers: they make a difference where threads are started with them.
    pub numbered: bool,
    /// Whether so many histories were compared that telling them apart is cheaper.
    pub gives_up: bool,
}

impl RememberedPast {
    /// Adds what another search found.
    pub fn extend(&mut self, other: &Self) {
        let longer = |lives: &mut BTreeMap<LocId, u32>, others: &BTreeMap<LocId, u32>| {
            for (loc, life) in others {
                let known = lives.entry(*loc).or_insert(*life);
                *known = (*known).max(*life);
            }
        };
        longer(&mut self.answers, &other.answers);
        longer(&mut self.results, &other.results);
        longer(&mut self.records, &other.records);
        self.counted.extend(&other.counted);
        self.shared.extend(&other.shared);
        self.asked.extend(&other.asked);
        self.recorded.extend(&other.recorded);
        self.read.extend(&other.read);
        self.votes.extend(&other.votes);
        self.contents.extend(&other.contents);
        self.numbers.extend(&other.numbers);
        self.reads_all |= other.reads_all;
        for (point, uses) in &other.follows {
            self.follows.entry(*point).or_default().extend(uses);
        }
        self.numbered |= other.numbered;
        self.gives_up |= other.gives_up;
    }

    /// The same with other numbers of places.
    #[must_use]
    pub fn renumbered(self, at: impl Fn(LocId) -> LocId) -> Self {
        let ages = |lives: BTreeMap<LocId, u32>| lives.into_iter().map(|(loc, age)| (at(loc), age)).collect();
        let places = |places: BTreeSet<LocId>| places.into_iter().map(&at).collect();
        let point = |point: ProgramPoint| ProgramPoint { asked: point.asked.map(&at), ..point };
        Self {
            answers: ages(self.answers),
            results: ages(self.results),
            records: ages(self.records),
            counted: places(self.counted),
            asked: places(self.asked),
            votes: places(self.votes),
            follows: self.follows.into_iter().map(|(of, uses)| (point(of), uses)).collect(),
            ..self
        }
    }

    /// Whether a result matters, or may, after so many further questions.
    pub(crate) fn keeps_result(&self, loc: LocId, age: u32) -> bool {
        lives(&self.results, loc, age)
    }

    /// Whether an answer does.
    pub(crate) fn keeps_answer(&self, loc: LocId, age: u32) -> bool {
        lives(&self.answers, loc, age)
    }

    /// Whether somebody may look whether an event is complete.
    pub(crate) fn keeps_record(&self, loc: LocId, age: u32) -> bool {
        lives(&self.records, loc, age)
    }

    /// Whether somebody looks into a list or a map.
    pub(crate) fn reads(&self, object: Object) -> bool {
        self.reads_all || self.read.contains(&object)
    }
}

/// Whether what was made at a place matters after so many further questions.
fn lives(lives: &BTreeMap<LocId, u32>, loc: LocId, age: u32) -> bool {
    lives.get(&loc).is_some_and(|life| age <= *life)
}

/// A map whose keys are no texts, where only texts can be keys.
mod as_pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
