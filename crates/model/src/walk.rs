//! The one walk over what a state is made of: from it come identity (`Hash`) and renumbering.
//!
//! A type of the state lists its fields once, in [`walk!`], and says two words of each. The list is taken apart
//! without `..`, so a field that is forgotten does not compile.
//! Not here: when ranks are interchangeable ([`crate::order::symmetry`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use crate::clock::{Actor, Clock};
use crate::judge::finding::{About, Finding, FindingKey, OpRef};
use crate::machine::{Config, locked};
use crate::order::condition::Condition;
use crate::rank::{Rank, Thread};
use crate::term::{Content, Term, Terms};

/// Derives `Hash` and [`Renumber`] from a list of all fields. The first word of each says whether it belongs to the
/// identity of a state:
///
/// - `hashed`: it does;
/// - `(projection)`: what this function makes of it does;
/// - `derived`: it does not, because it is a function of the positions of the threads; where histories merge
///   ([`crate::identity`]), it does;
/// - `explains`: it never does, because it only explains, or follows from the rest.
///
/// After `apart`, how the value is identified where histories merge is written by hand. The second says whether it names ranks or their actors:
///
/// - `moved`: it is renumbered;
/// - `fixed`: it names none, or only where ranks are told apart and never renumbered.
macro_rules! walk {
    (struct $name:ident { $($field:ident: $identity:tt $numbers:ident),* $(,)? }) => {
        impl $crate::identity::Identify for $name {
            fn identify(&self, to: &mut $crate::identity::StateIdentity<'_>) {
                let Self { $($field),* } = self;
                let _ = &to;
                $(walk!(@identify $identity $field to);)*
            }
        }

        walk!(apart struct $name { $($field: $identity $numbers),* });
    };
    (apart struct $name:ident { $($field:ident: $identity:tt $numbers:ident),* $(,)? }) => {
        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                let Self { $($field),* } = self;
                let _ = &state;
                $(walk!(@hash $identity $field state);)*
            }
        }

        impl $crate::walk::Renumber for $name {
            fn renumber(&mut self, by: &mut $crate::walk::Renumbering<'_>) {
                let Self { $($field),* } = self;
                $(walk!(@renumber $numbers $field by);)*
                let _ = by;
            }

            fn stays(&self, by: &mut $crate::walk::Renumbering<'_>) -> bool {
                let Self { $($field),* } = self;
                let _ = &by;
                true $(&& walk!(@stays $numbers $field by))*
            }
        }
    };
    (enum $name:ident { $(
        $variant:ident
        $(( $($item:ident: $item_identity:tt $item_numbers:ident),* ))?
        $({ $($field:ident: $identity:tt $numbers:ident),* })?
    ),* $(,)? }) => {
        impl $crate::identity::Identify for $name {
            fn identify(&self, to: &mut $crate::identity::StateIdentity<'_>) {
                std::hash::Hash::hash(&std::mem::discriminant(self), to);
                match self { $(
                    Self::$variant $(( $($item),* ))? $({ $($field),* })? => {
                        $($(walk!(@identify $item_identity $item to);)*)?
                        $($(walk!(@identify $identity $field to);)*)?
                    }
                )* }
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                std::mem::discriminant(self).hash(state);
                match self { $(
                    Self::$variant $(( $($item),* ))? $({ $($field),* })? => {
                        $($(walk!(@hash $item_identity $item state);)*)?
                        $($(walk!(@hash $identity $field state);)*)?
                    }
                )* }
            }
        }

        impl $crate::walk::Renumber for $name {
            fn renumber(&mut self, by: &mut $crate::walk::Renumbering<'_>) {
                match self { $(
                    Self::$variant $(( $($item),* ))? $({ $($field),* })? => {
                        $($(walk!(@renumber $item_numbers $item by);)*)?
                        $($(walk!(@renumber $numbers $field by);)*)?
                    }
                )* }
            }

            fn stays(&self, by: &mut $crate::walk::Renumbering<'_>) -> bool {
                match self { $(
                    Self::$variant $(( $($item),* ))? $({ $($field),* })? => {
                        true
                        $($(&& walk!(@stays $item_numbers $item by))*)?
                        $($(&& walk!(@stays $numbers $field by))*)?
                    }
                )* }
            }
        }
    };
    (@hash hashed $field:ident $state:ident) => { std::hash::Hash::hash($field, $state) };
    (@hash derived $field:ident $state:ident) => {{ let _ = $field; }};
    (@hash explains $field:ident $state:ident) => {{ let _ = $field; }};
    (@hash ($projection:expr) $field:ident $state:ident) => { std::hash::Hash::hash(&$projection($field), $state) };
    (@identify explains $field:ident $to:ident) => {{ let _ = $field; }};
    (@identify $identity:tt $field:ident $to:ident) => { $crate::identity::Identify::identify($field, $to) };
    (@renumber moved $field:ident $by:ident) => { $crate::walk::Renumber::renumber($field, $by) };
    (@renumber fixed $field:ident $by:ident) => {{ let _ = $field; }};
    (@stays moved $field:ident $by:ident) => { $crate::walk::Renumber::stays($field, $by) };
    (@stays fixed $field:ident $by:ident) => {{ let _ = $field; true }};
}
pub(crate) use walk;

/// New numbers of ranks, and what follows for actors and terms.
pub(crate) struct Renumbering<'a> {
    /// The new number of each rank, indexed by the old one.
    ranks: &'a [Rank],
    /// `actors[old] = new`, which follows from the ranks.
    actors: Vec<u32>,
    terms: &'a Mutex<Terms>,
    /// The table of terms, from the first that was asked for on.
    held: Option<MutexGuard<'a, Terms>>,
    memo: FxHashMap<Term, Term>,
    declared_needless: &'a BTreeSet<Condition>,
}

impl<'a> Renumbering<'a> {
    pub(crate) fn new(ranks: &'a [Rank], config: &'a Config, terms: &'a Mutex<Terms>) -> Self {
        let Config { actors_per_rank, declared_needless, .. } = config;
        let actors = 0..u32::try_from(ranks.len()).expect("few ranks") * actors_per_rank;
        let of =
            |actor| ranks[(actor / actors_per_rank) as usize].0 * actors_per_rank + actor % actors_per_rank;
        let (actors, memo) = (actors.map(of).collect(), FxHashMap::default());
        Self { ranks, actors, terms, held: None, memo, declared_needless }
    }

    /// The new number of a rank.
    pub(crate) fn rank(&self, rank: Rank) -> Rank {
        self.ranks[rank.at()]
    }

    /// The new number of a rank that something names.
    fn named(&self, rank: Rank) -> Rank {
        if self.declared_needless.contains(&Condition::RanksRenumbered) { rank } else { self.rank(rank) }
    }

    fn actor(&self, actor: Actor) -> Actor {
        if self.declared_needless.contains(&Condition::ActorsRenumbered) {
            return actor;
        }
        Actor(self.actors[actor.0 as usize])
    }

    fn term(&mut self, term: Term) -> Term {
        if self.declared_needless.contains(&Condition::ContentsRenumbered) {
            return term;
        }
        let terms = self.held.get_or_insert_with(|| locked(self.terms));
        terms.renumbered(term, self.ranks, &mut self.memo)
    }

    /// Others may have the table of terms.
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }
}

/// What names ranks, and so changes where ranks get other numbers.
pub(crate) trait Renumber {
    /// Ranks get other numbers.
    fn renumber(&mut self, by: &mut Renumbering<'_>);

    /// Whether it certainly looks the same afterwards.
    fn stays(&self, by: &mut Renumbering<'_>) -> bool;
}

impl Renumber for Rank {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        *self = by.named(*self);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        by.named(*self) == *self
    }
}

impl Renumber for Actor {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        *self = by.actor(*self);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        by.actor(*self) == *self
    }
}

impl Renumber for Clock {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        *self = self.renumbered(&by.actors);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.alike(&by.actors)
    }
}

impl Renumber for OpRef {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self { rank, thread: _, index: _, loc: _ } = self;
        rank.renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.rank.stays(by)
    }
}

impl Renumber for FindingKey {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self { rule: _, about, by: rank } = self;
        about.renumber(by);
        if let Some(rank) = rank {
            rank.renumber(by);
        }
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        let Self { rule: _, about, by: rank } = self;
        about.stays(by) && rank.is_none_or(|rank| rank.stays(by))
    }
}

impl Renumber for About {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        match self {
            Self::Memory(rank, _) | Self::Of(rank, _) | Self::Rank(rank) => rank.renumber(by),
            Self::Pair(_, from, to) => {
                from.renumber(by);
                to.renumber(by);
            }
            Self::Comm(_) | Self::Window(..) | Self::Named(_) | Self::Hosts => {}
        }
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        match self {
            Self::Memory(rank, _) | Self::Of(rank, _) | Self::Rank(rank) => rank.stays(by),
            Self::Pair(_, from, to) => from.stays(by) && to.stays(by),
            Self::Comm(_) | Self::Window(..) | Self::Named(_) | Self::Hosts => true,
        }
    }
}

impl Renumber for Finding {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self { rule: _, about, ops, past: _, sentence: _ } = self;
        about.renumber(by);
        ops.renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.about.stays(by) && self.ops.stays(by)
    }
}

impl Renumber for Content {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        *self = match self {
            Self::Whole(term) => Self::Whole(by.term(*term)),
            // Shares are those of the members, and these the whole world in rank order.
            Self::Shares(shares) => {
                let mut moved: Vec<Term> = shares.to_vec();
                for (old, term) in (0..).map(Rank).zip(shares.iter()) {
                    moved[by.rank(old).at()] = by.term(*term);
                }
                Self::Shares(moved.into())
            }
        };
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        match self {
            Self::Whole(term) => by.term(*term) == *term,
            Self::Shares(_) => false,
        }
    }
}

macro_rules! walk_containers {
    ($($container:ty, $each:ident, $each_mut:ident;)*) => { $(
        impl<T: Renumber> Renumber for $container {
            fn renumber(&mut self, by: &mut Renumbering<'_>) {
                self.$each_mut().for_each(|part| part.renumber(by));
            }

            fn stays(&self, by: &mut Renumbering<'_>) -> bool {
                self.$each().all(|part| part.stays(by))
            }
        }
    )* };
}

walk_containers! {
    Option<T>, iter, iter_mut;
    Vec<T>, iter, iter_mut;
    VecDeque<T>, iter, iter_mut;
}

impl<K, T: Renumber> Renumber for BTreeMap<K, T> {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        self.values_mut().for_each(|part| part.renumber(by));
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.values().all(|part| part.stays(by))
    }
}

/// A piece of memory: where it lies, and what it holds.
impl Renumber for (u64, u64, Content) {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        self.2.renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.2.stays(by)
    }
}

/// A row: its key names no rank, or all of them.
impl<K, T: Renumber> Renumber for (K, T) {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        self.1.renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.1.stays(by)
    }
}

impl<T: Renumber + Clone> Renumber for Arc<T> {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        Arc::make_mut(self).renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        (**self).stays(by)
    }
}

impl<T: Renumber + Clone> Renumber for Arc<[T]> {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        Arc::make_mut(self).iter_mut().for_each(|part| part.renumber(by));
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.iter().all(|part| part.stays(by))
    }
}

/// What tells ranks apart without knowledge of others, and without their numbers. What a table leaves out loses a
/// reduction and never a behaviour.
pub(crate) trait LocalHash {
    fn local_hash<H: Hasher>(&self, state: &mut H);
}

/// From so many rows on a table has an index.
const INDEXED_FROM: usize = 32;

/// The rows of a table, by key, in the order in which they came. Of a program's own tables rows are few, so a scan beats a
/// tree; but recorded processes have thousands of events.
#[derive(Debug, Clone)]
pub(crate) struct Rows<K, V> {
    rows: Vec<(K, V)>,
    /// Where the row of each key is, once they are many.
    index: Option<Box<FxHashMap<K, usize>>>,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Self { rows: Vec::new(), index: None }
    }
}

impl<K: Hash, V: Hash> Hash for Rows<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rows.hash(state);
    }
}

impl<K: Eq + Hash + Clone, V> Rows<K, V> {
    pub(crate) fn position(&self, key: &K) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.rows.iter().position(|(known, _)| known == key),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.position(key).map(|at| &self.rows[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.position(key).map(|at| &mut self.rows[at].1)
    }

    /// The row of a key, which is made if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, fresh: impl FnOnce() -> V) -> &mut V {
        let at = self.position(key).unwrap_or_else(|| {
            self.push(key.clone(), fresh());
            self.rows.len() - 1
        });
        &mut self.rows[at].1
    }

    /// A row whose key is new.
    pub(crate) fn push(&mut self, key: K, row: V) {
        let at = self.rows.len();
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), at);
        }
        self.rows.push((key, row));
        if self.index.is_none() && self.rows.len() == INDEXED_FROM {
            let keys = self.rows.iter().map(|(key, _)| key.clone());
            self.index = Some(Box::new(keys.zip(0..).collect()));
        }
    }
}

impl<K, V> Rows<K, V> {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, (K, V)> {
        self.rows.iter()
    }

    /// The rows in the order of their keys, which does not depend on what was used first.
    pub(crate) fn by_key(&self) -> Vec<&(K, V)>
    where
        K: Ord,
    {
        let mut rows: Vec<&(K, V)> = self.rows.iter().collect();
        rows.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        rows
    }
}

impl<K, V: Renumber> Renumber for Rows<K, V> {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        self.rows.renumber(by);
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.rows.stays(by)
    }
}

impl OpRef {
    /// What tells it from the other operations of its rank.
    pub(crate) fn position(&self) -> (Thread, u32) {
        (self.thread, self.index)
    }
}
