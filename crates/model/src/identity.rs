//! What a state is where histories merge: all that may still matter, and nothing else.
//!
//! Told apart by their histories, two states are equal if their threads stand in the same place after the same answers
//! ([`crate::state`]). That is cheap, and right as long as few histories lead to one future. Here they are equal if what
//! is left to run is ([`crate::position`]), if nouns' tables are, and if all clocks say the same of the accesses that
//! somebody may still ask about: instead of a count a clock has the number of the last of those accesses that it knows.
//! Not here: what is asked about ([`crate::remembered`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::clock::{Actor, Clock};
use crate::id::{ContentHasher, ThreadStart};
use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::rank::LocId;
use crate::remembered::{Forgotten, RememberedPast};
use crate::state::RankState;
use crate::walk::Rows;

/// What of a value belongs to the identity of a state in which histories merge.
pub(crate) trait Identify {
    /// Adds the value to an identity.
    fn identify(&self, to: &mut StateIdentity<'_>);
}

/// Operations about which somebody may still ask whether they happened before, by actor and count.
///
/// Whoever will ask has a clock that is joined from those of the state, so operations of one actor that no clock of the
/// state tells apart get one number.
#[derive(Debug, Default)]
pub(crate) struct AskedAbout(Vec<AskedOperation>);

/// An operation, and its number among those of its actor, from 1.
#[derive(Debug, Clone, Copy)]
struct AskedOperation {
    actor: Actor,
    epoch: u32,
    number: u32,
}

/// What the tables of a state hold that decides how operations are numbered.
#[derive(Debug, Default)]
struct Unnumbered {
    asked: Vec<(Actor, u32)>,
    clocks: Vec<Clock>,
}

impl AskedAbout {
    fn of(Unnumbered { mut asked, clocks }: Unnumbered, told_apart: bool) -> Self {
        asked.sort_unstable();
        asked.dedup();
        let mut numbered = Vec::with_capacity(asked.len());
        for of_actor in asked.chunk_by(|one, other| one.0 == other.0) {
            // Before which of them some clock ends.
            let mut ends = vec![false; of_actor.len() + 1];
            if of_actor.len() > 1 && told_apart {
                for clock in &clocks {
                    let knows = clock.knows(of_actor[0].0);
                    ends[of_actor.partition_point(|(_, epoch)| *epoch <= knows)] = true;
                }
            }
            let mut number = 1;
            for (at, (actor, epoch)) in of_actor.iter().enumerate() {
                number += u32::from(at > 0 && ends[at]);
                numbered.push(AskedOperation { actor: *actor, epoch: *epoch, number });
            }
        }
        Self(numbered)
    }

    /// The number of the last one of an actor up to a count; 0 if there is none.
    fn up_to(&self, actor: Actor, epoch: u32) -> u32 {
        let before = self.0.partition_point(|asked| (asked.actor, asked.epoch) <= (actor, epoch));
        let last = before.checked_sub(1).map(|last| self.0[last]);
        last.filter(|last| last.actor == actor).map_or(0, |last| last.number)
    }

    /// Those of a range of actors, by actor.
    fn by_actor(&self, actors: &Range<u32>) -> impl Iterator<Item = (Actor, &[AskedOperation])> {
        let from = self.0.partition_point(|asked| asked.actor.0 < actors.start);
        let to = self.0.partition_point(|asked| asked.actor.0 < actors.end);
        self.0[from..to].chunk_by(|one, other| one.actor == other.actor).map(|asked| (asked[0].actor, asked))
    }
}

/// What an identity is made for.
#[derive(Debug)]
enum IdentityPart<'a> {
    /// The operations that may be asked about are gathered, and all clocks.
    Gathering(&'a mut Unnumbered),
    /// Everything is hashed, and clocks by what was gathered.
    Whole(&'a AskedAbout),
    /// A rank is hashed on its own: nobody's number, and of clocks what is known of these actors, which are its own.
    Alone(&'a AskedAbout, Range<u32>),
}

/// How far everybody knows each actor who may still do something: nobody asks about what lies before.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownToAll(Option<Arc<Vec<u32>>>);

impl KnownToAll {
    /// Of so many actors, also what this clock does not know may be asked about.
    pub(crate) fn lower(&mut self, actors: usize, clock: &Clock) {
        let actors = (0..u32::try_from(actors).expect("few actors")).map(Actor);
        match &mut self.0 {
            Some(known) => {
                Arc::make_mut(known)
                    .iter_mut()
                    .zip(actors)
                    .for_each(|(known, actor)| *known = (*known).min(clock.knows(actor)));
            }
            None => self.0 = Some(Arc::new(actors.map(|actor| clock.knows(actor)).collect())),
        }
    }

    pub(crate) fn includes(&self, actor: Actor, epoch: u32) -> bool {
        self.0.as_ref().is_none_or(|known| known[actor.0 as usize] >= epoch)
    }
}

/// An identity as it comes together.
pub(crate) struct StateIdentity<'a> {
    /// None while operations are gathered, of which no hash is asked for.
    hasher: Option<ContentHasher>,
    part: IdentityPart<'a>,
    pub(crate) machine: &'a Machine,
    pub(crate) remembered: &'a RememberedPast,
    /// What everybody knows who may still do something.
    everywhere: KnownToAll,
    /// What those know who may use the tables that are looked at.
    here: KnownToAll,
    /// How many answers each thread was given of the rank whose tables are looked at.
    answers: Vec<(ThreadStart, u32)>,
}

macro_rules! forward_if_any {
    ($($write:ident $number:ident,)*) => {$(
        #[inline]
        fn $write(&mut self, number: $number) {
            if let Some(hasher) = &mut self.hasher {
                hasher.$write(number);
            }
        }
    )*};
}

impl Hasher for StateIdentity<'_> {
    fn finish(&self) -> u64 {
        self.hasher.as_ref().map_or(0, Hasher::finish)
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.write(bytes);
        }
    }

    forward_if_any! {
        write_u8 u8, write_u16 u16, write_u32 u32, write_u64 u64, write_u128 u128, write_usize usize,
        write_i8 i8, write_i16 i16, write_i32 i32, write_i64 i64, write_i128 i128, write_isize isize,
    }
}

impl<'a> StateIdentity<'a> {
    fn new(part: IdentityPart<'a>, machine: &'a Machine, everywhere: &KnownToAll) -> Self {
        let remembered = machine.config.remembered.as_deref().expect("histories merge");
        let (everywhere, here) = (everywhere.clone(), everywhere.clone());
        let gathers = matches!(part, IdentityPart::Gathering(_));
        Self {
            hasher: (!gathers).then(ContentHasher::default),
            part,
            machine,
            remembered,
            everywhere,
            here,
            answers: Vec::new(),
        }
    }

    /// What may be asked about in a whole, of which everybody knows so much who may still do something.
    pub(crate) fn asked(
        machine: &Machine,
        known: &KnownToAll,
        of: impl FnOnce(&mut StateIdentity<'_>),
    ) -> AskedAbout {
        let mut gathered = Unnumbered::default();
        of(&mut StateIdentity::new(IdentityPart::Gathering(&mut gathered), machine, known));
        AskedAbout::of(gathered, !machine.config.declared_forgotten.contains(&Forgotten::Between))
    }

    /// The identity of a whole, of which everybody knows so much who may still do something.
    pub(crate) fn whole(machine: &Machine, known: &KnownToAll, of: impl Fn(&mut StateIdentity<'_>)) -> u128 {
        let asked = Self::asked(machine, known, &of);
        let mut whole = StateIdentity::new(IdentityPart::Whole(&asked), machine, known);
        of(&mut whole);
        whole.fingerprint()
    }

    /// What a rank looks like on its own, whose actors these are.
    pub(crate) fn alone(
        machine: &Machine,
        known: &KnownToAll,
        (asked, actors): (&AskedAbout, Range<u32>),
        of: impl FnOnce(&mut StateIdentity<'_>),
    ) -> u128 {
        let mut alone = StateIdentity::new(IdentityPart::Alone(asked, actors), machine, known);
        of(&mut alone);
        alone.fingerprint()
    }

    fn fingerprint(&mut self) -> u128 {
        self.hasher.take().expect("hashes are asked for").fingerprint()
    }

    /// The tables that follow are used by those only who know so much: the threads of a rank.
    pub(crate) fn enter(&mut self, rank: &RankState, known: &KnownToAll) {
        self.here = known.clone();
        self.answers = rank.threads().iter().map(|thread| (thread.start(), thread.asked())).collect();
    }

    /// How many answers a thread was given, of the rank whose tables are looked at.
    pub(crate) fn answers_of(&self, start: ThreadStart) -> u32 {
        self.answers.iter().find(|(of, _)| *of == start).map_or(0, |(_, answers)| *answers)
    }

    /// The tables that follow are used by everybody.
    pub(crate) fn enter_shared(&mut self) {
        self.here = self.everywhere.clone();
    }

    /// Whether everybody who may still do something knows an operation.
    pub(crate) fn is_known(&self, actor: Actor, epoch: u32) -> bool {
        self.declares_known() || self.everywhere.includes(actor, epoch)
    }

    /// Whether all know it who use the tables that are looked at.
    pub(crate) fn is_known_here(&self, actor: Actor, epoch: u32) -> bool {
        self.declares_known() || self.here.includes(actor, epoch)
    }

    fn declares_known(&self) -> bool {
        self.machine.config.declared_forgotten.contains(&Forgotten::Known)
    }

    /// Adds an operation about which somebody may ask whether it happened before; 0 for none.
    pub(crate) fn asked_about(&mut self, actor: Actor, epoch: u32) {
        match &mut self.part {
            IdentityPart::Gathering(gathered) => {
                if epoch > 0 {
                    gathered.asked.push((actor, epoch));
                }
            }
            IdentityPart::Whole(asked) => {
                (actor, asked.up_to(actor, epoch), epoch > 0).hash(self);
            }
            IdentityPart::Alone(asked, own) => {
                if own.contains(&actor.0) {
                    (actor.0 - own.start, asked.up_to(actor, epoch), epoch > 0).hash(self);
                }
            }
        }
    }

    /// Adds values whose order says nothing, equal ones once.
    pub(crate) fn unordered<T>(
        &mut self,
        values: impl IntoIterator<Item = T>,
        mut identify: impl FnMut(T, &mut Self),
    ) {
        let Some(outer) = self.hasher.take() else {
            return values.into_iter().for_each(|value| identify(value, self));
        };
        let mut hashes = Vec::new();
        for value in values {
            self.hasher = Some(ContentHasher::default());
            identify(value, self);
            hashes.push(self.fingerprint());
        }
        hashes.sort_unstable();
        hashes.dedup();
        self.hasher = Some(outer);
        hashes.hash(self);
    }
}

impl Identify for Clock {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let (asked, actors, first) = match &mut to.part {
            IdentityPart::Gathering(gathered) => return gathered.clocks.push(self.clone()),
            IdentityPart::Whole(asked) => (*asked, 0..u32::MAX, 0),
            IdentityPart::Alone(asked, own) => (*asked, own.clone(), own.start),
        };
        for (actor, operations) in asked.by_actor(&actors) {
            let knows = self.knows(actor);
            let known = operations.partition_point(|asked| asked.epoch <= knows);
            if let Some(last) = known.checked_sub(1) {
                (actor.0 - first, operations[last].number).hash(to);
            }
        }
        u32::MAX.hash(to);
    }
}

/// Where it was written: what a finding about it would say. Its position in the run is history.
impl Identify for OpRef {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rank, thread, index: _, loc } = self;
        rank.identify(to);
        thread.hash(to);
        loc.identify(to);
    }
}

/// Places are numbered as a program is evaluated: what counts is what stands there.
impl Identify for LocId {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        to.machine.place_hash(*self).hash(to);
    }
}

/// Values that name ranks: nothing of them is seen of a rank on its own.
macro_rules! identify_with_numbers {
    ($($of:ty),* $(,)?) => {$(
        impl Identify for $of {
            fn identify(&self, to: &mut StateIdentity<'_>) {
                if !matches!(to.part, IdentityPart::Alone(..)) {
                    self.hash(to);
                }
            }
        }
    )*};
}

identify_with_numbers!(crate::rank::Rank, Actor, crate::term::Term, crate::term::Content);

impl StateIdentity<'_> {
    /// Whether accesses at this place have ever been asked about.
    pub(crate) fn asks_about(&self, loc: LocId) -> bool {
        self.remembered.asked.contains(&loc)
    }
}

/// Values without clocks, operations, and what depends on them, are hashed as they are.
macro_rules! identify_as_hashed {
    ($($of:ty),* $(,)?) => {$(
        impl $crate::identity::Identify for $of {
            fn identify(&self, to: &mut $crate::identity::StateIdentity<'_>) {
                std::hash::Hash::hash(self, to);
            }
        }
    )*};
}
pub(crate) use identify_as_hashed;

identify_as_hashed! {
    bool, u8, u32, u64, i32, i64, usize, str,
    crate::rank::Thread, crate::id::Token, ThreadStart,
    crate::members::MemberList,
    crate::host::value::CommId, crate::host::value::MemoryId, crate::host::value::AddressId,
    crate::host::value::BlockId, crate::host::value::Buffer, crate::host::value::Value,
    crate::order::dependence::Object, crate::order::dependence::Access,
    crate::noun::rendezvous::Rendezvous, crate::noun::p2p::Link, crate::noun::p2p::Handshake,
    crate::program::Dtype, crate::program::ReduceOp, crate::program::Operation,
}

macro_rules! identify_each {
    ($($container:ty),* $(,)?) => {$(
        impl<T: Identify> Identify for $container {
            fn identify(&self, to: &mut StateIdentity<'_>) {
                self.iter().for_each(|part| {
                    1_u8.hash(to);
                    part.identify(to);
                });
                0_u8.hash(to);
            }
        }
    )*};
}

identify_each!(Option<T>, Vec<T>, VecDeque<T>, BTreeSet<T>, [T]);

impl<T: Identify + ?Sized> Identify for Arc<T> {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        (**self).identify(to);
    }
}

impl<T: Identify + ?Sized> Identify for Box<T> {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        (**self).identify(to);
    }
}

impl<T: Identify + ?Sized> Identify for &T {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        (**self).identify(to);
    }
}

impl<K: Identify, V: Identify> Identify for BTreeMap<K, V> {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        self.len().hash(to);
        for row in self {
            row.identify(to);
        }
    }
}

impl<K: Identify, V: Identify> Identify for Rows<K, V> {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        // Rows are looked up by their keys, and stand in the order of first use.
        to.unordered(self.iter(), |row, to| row.identify(to));
    }
}

macro_rules! identify_tuples {
    ($(($($part:ident),*);)*) => {$(
        impl<$($part: Identify),*> Identify for ($($part,)*) {
            #[expect(non_snake_case, reason = "each part is named by its type")]
            fn identify(&self, to: &mut StateIdentity<'_>) {
                let ($($part,)*) = self;
                $($part.identify(to);)*
            }
        }
    )*};
}

identify_tuples! {
    (A, B);
    (A, B, C);
}
