//! What a state is where histories merge: all that may still matter, and nothing else.
//!
//! Told apart by their histories, two states are equal if their threads stand in the same place after the same answers
//! ([`crate::state`]). That is cheap, and right as long as few histories lead to one future. Here they are equal if what
//! is left to run is ([`crate::position`]), if nouns' tables are, and if all clocks say the same of the accesses that
//! somebody may still ask about: instead of a count a clock has the number of the last of those accesses that it knows.
//! Which accesses these are depends on all ranks. So each rank has a sketch, in which the numbers are left open, and which is
//! kept until the rank changes; the identity of the whole is hashed of sketches and numbers.
//! Not here: what is asked about ([`crate::remembered`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::{Actor, Clock};
use crate::host::value::CommId;
use crate::id::{ContentHasher, ThreadStart, Token, fingerprint};
use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::members::MemberList;
use crate::noun::memory::ReachableMemory;
use crate::order::ahead::UsedAhead;
use crate::order::dependence::Object;
use crate::rank::{LocId, Rank};
use crate::remembered::{Forgotten, RememberedPast};
use crate::state::RankState;
use crate::walk::Rows;

/// What of a value belongs to the identity of a state in which histories merge.
pub(crate) trait Identify {
    /// Adds the value to an identity.
    fn identify(&self, to: &mut StateIdentity<'_>);
}

/// What of a part of a state belongs to its identity, but for the numbers of operations that may be asked about: those
/// depend on all other parts. So what is said of one part is kept until it changes.
#[derive(Debug)]
pub(crate) struct Sketch {
    outline: SketchOutline,
    /// Whether the numbers of ranks are left open too, so that it says what the part is on its own.
    alone: bool,
    /// The clocks in it.
    clocks: Box<[Clock]>,
    /// The operations in it about which somebody may ask whether they happened before.
    asked: Box<[(Actor, u32)]>,
    /// What was asked of the knowledge of everybody, and the answers.
    known: Box<[(Actor, u32, bool)]>,
    /// The least count of each counter in it.
    counted: Box<[(Counter, u32)]>,
    /// What all know who may use the tables that were looked at.
    here: KnownToAll,
}

/// What is hashed of a sketch.
#[derive(Debug, PartialEq, Eq)]
struct SketchOutline {
    /// The hash of all but the numbers.
    hash: u128,
    /// Where numbers stand, in an order that follows from what is hashed.
    open: Box<[OpenNumber]>,
}

/// What is counted from the beginning of a run on, where only how far counts lie apart makes a difference to what comes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Counter {
    /// Collectives that each member launched on a communicator.
    Collectives(CommId),
    /// Host barriers and agreements that each of these ranks entered.
    HostBarriers(MemberList),
    /// Exchanges of handles that each of these ranks entered.
    HandleExchanges(MemberList),
    /// What a rank launched on the channels of a family of communicators.
    Family(Rank, CommId),
    /// All that a rank launched.
    Launches(Rank),
    /// Records of an event of a rank.
    Records(Rank, Token),
}

impl Counter {
    /// How many ranks count, each for itself.
    fn ranks(&self, machine: &Machine) -> usize {
        match self {
            Self::Collectives(comm) => machine.members(*comm).len(),
            Self::HostBarriers(members) | Self::HandleExchanges(members) => members.len(),
            Self::Family(..) | Self::Launches(_) | Self::Records(..) => 1,
        }
    }
}

/// What stands in a sketch for numbers.
#[derive(Debug, PartialEq, Eq)]
enum OpenNumber {
    /// How often something happened, counted from where all counts of it begin.
    Counted(Counter, u32),
    /// The number of an operation.
    AskedAbout(Actor, u32),
    /// Of each actor, the number of the last operation that a clock of the sketch knows.
    Clock(usize),
    /// What names a rank by its number, as it is hashed.
    RankNumber(u128),
    /// Values whose order says nothing, and that differ in their numbers at most.
    Alike(Box<[Box<[OpenNumber]>]>),
    /// A value that makes no difference if all who may use it know what this clock knows.
    UnlessKnown(usize, SketchOutline),
}

/// A part of a state as it is written down.
#[derive(Debug, Default)]
struct SketchDraft {
    /// What is hashed as it is.
    bytes: Vec<u8>,
    /// What else there is, and where it stands among the bytes.
    marks: Vec<(u32, DraftMark)>,
    clocks: Vec<Clock>,
    known: Vec<(Actor, u32, bool)>,
    counted: Vec<(Counter, u32)>,
}

/// What stands among the bytes of a draft.
#[derive(Debug, Clone, Copy)]
enum DraftMark {
    AskedAbout(Actor, u32),
    /// A count stands here, the next one of the draft.
    Counted,
    Clock,
    /// So many bytes follow that name a rank by its number.
    RankNumber(u32),
    /// The first of several values follows whose order says nothing.
    Unordered,
    /// One of them ends.
    EndOfValue,
    /// The last of them has ended.
    EndOfUnordered,
    /// A value follows that makes no difference if all know what the next clock does.
    UnlessKnown,
    /// The value that may make no difference ends.
    EndOfUnlessKnown,
}

/// The part of a draft that is being read: the whole, or one of several values whose order says nothing.
#[derive(Default)]
struct DraftReading {
    hasher: ContentHasher,
    open: Vec<OpenNumber>,
    /// The values that have ended of those inside it that are being read.
    values: Vec<SketchOutline>,
    /// The clock of the value inside it that is being read and makes no difference if it is known.
    awaited: Option<usize>,
}

impl DraftReading {
    fn outline(self) -> SketchOutline {
        SketchOutline { hash: self.hasher.fingerprint(), open: self.open.into() }
    }

    /// Adds values whose order says nothing, equal ones once.
    fn add_unordered(&mut self, mut values: Vec<SketchOutline>) {
        values.sort_unstable_by_key(|value| value.hash);
        let mut values = values.into_iter().peekable();
        while let Some(value) = values.next() {
            value.hash.hash(&mut self.hasher);
            let mut alike = vec![value.open];
            while let Some(next) = values.next_if(|next| next.hash == value.hash) {
                alike.push(next.open);
            }
            // However many there are: in another state the numbers of several may be equal.
            if !alike[0].is_empty() {
                self.open.push(OpenNumber::Alike(alike.into()));
            }
        }
        // None has this hash.
        0_u8.hash(&mut self.hasher);
    }
}

/// Few bytes and how many they are, or the hash of many.
fn whole_or_hash(bytes: &[u8]) -> u128 {
    let mut whole = [0; 16];
    match (whole.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
        (Some(few), Ok(len @ 0..16)) => {
            few.copy_from_slice(bytes);
            whole[15] = len;
            u128::from_le_bytes(whole)
        }
        _ => fingerprint(bytes),
    }
}

impl SketchDraft {
    fn outline(&self, alone: bool) -> SketchOutline {
        let (mut at, mut clocks) = (0, 0);
        let mut counted = self.counted.iter();
        let mut inner = DraftReading::default();
        let mut outer: Vec<DraftReading> = Vec::new();
        for (before, mark) in &self.marks {
            let before = *before as usize;
            inner.hasher.write(&self.bytes[at..before]);
            at = before;
            match mark {
                DraftMark::AskedAbout(actor, epoch) => {
                    1_u8.hash(&mut inner.hasher);
                    inner.open.push(OpenNumber::AskedAbout(*actor, *epoch));
                }
                DraftMark::Counted => {
                    3_u8.hash(&mut inner.hasher);
                    let (counter, count) = counted.next().expect("each mark has its count");
                    inner.open.push(OpenNumber::Counted(counter.clone(), *count));
                }
                DraftMark::Clock => {
                    2_u8.hash(&mut inner.hasher);
                    inner.open.push(OpenNumber::Clock(clocks));
                    clocks += 1;
                }
                DraftMark::RankNumber(len) if alone => {
                    at += *len as usize;
                    inner.open.push(OpenNumber::RankNumber(whole_or_hash(&self.bytes[before..at])));
                }
                DraftMark::RankNumber(_) => {}
                DraftMark::UnlessKnown => {
                    inner.awaited = Some(clocks);
                    clocks += 1;
                    outer.push(std::mem::take(&mut inner));
                }
                DraftMark::EndOfUnlessKnown => {
                    let value = std::mem::replace(&mut inner, outer.pop().expect("it has begun")).outline();
                    let clock = inner.awaited.take().expect("it has begun");
                    inner.open.push(OpenNumber::UnlessKnown(clock, value));
                }
                DraftMark::Unordered => outer.push(std::mem::take(&mut inner)),
                DraftMark::EndOfValue => {
                    let around = outer.last_mut().expect("it is one of several");
                    around.values.push(std::mem::take(&mut inner).outline());
                }
                DraftMark::EndOfUnordered => {
                    inner = outer.pop().expect("they have begun");
                    let values = std::mem::take(&mut inner.values);
                    inner.add_unordered(values);
                }
            }
        }
        inner.hasher.write(&self.bytes[at..]);
        inner.outline()
    }

    /// The sketch of what was written down of tables whose users know so much. Then the draft is empty.
    fn take(&mut self, alone: bool, here: &KnownToAll) -> Sketch {
        let outline = self.outline(alone);
        let asked = |(_, mark): &(u32, DraftMark)| {
            let DraftMark::AskedAbout(actor, epoch) = mark else { return None };
            (*epoch > 0).then_some((*actor, *epoch))
        };
        let asked = self.marks.iter().filter_map(asked).collect();
        self.bytes.clear();
        self.marks.clear();
        let (clocks, known) = (self.clocks.drain(..).collect(), self.known.drain(..).collect());
        let mut counted: Vec<(Counter, u32)> = Vec::new();
        for (counter, count) in self.counted.drain(..) {
            match counted.iter_mut().find(|(of, _)| *of == counter) {
                Some((_, least)) => *least = (*least).min(count),
                None => counted.push((counter, count)),
            }
        }
        Sketch { outline, alone, clocks, asked, known, counted: counted.into(), here: here.clone() }
    }
}

impl Sketch {
    /// Whether both say the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.outline == other.outline
    }

    /// Whether it says what is asked where everybody knows this.
    pub(crate) fn is_of(&self, everybody: &KnownToAll, alone: bool) -> bool {
        self.alone == alone
            && self.known.iter().all(|(actor, epoch, known)| everybody.includes(*actor, *epoch) == *known)
    }
}

/// Operations about which somebody may still ask whether they happened before, by actor and count.
///
/// Whoever will ask has a clock that is joined from those of the state, so operations of one actor that no clock of the
/// state tells apart get one number.
#[derive(Debug)]
pub(crate) struct AskedAbout<'a> {
    sketches: &'a [&'a Sketch],
    operations: Vec<AskedOperation>,
    /// Of each actor of these, where its operations are.
    actors: Vec<(Actor, Range<usize>)>,
    /// For the clocks of all sketches in their order, of each actor, the number of the last of its operations that the clock
    /// knows; 0 if there is none.
    known: Vec<u32>,
    /// Where the counts of each counter begin.
    begin: FxHashMap<&'a Counter, u32>,
}

/// An operation, and its number among those of its actor, from 1.
#[derive(Debug, Clone, Copy)]
struct AskedOperation {
    epoch: u32,
    number: u32,
}

impl<'a> AskedAbout<'a> {
    /// What is asked about in all parts of a state.
    pub(crate) fn of(sketches: &'a [&'a Sketch], machine: &Machine) -> Self {
        let told_apart = !machine.config.declared_forgotten.contains(&Forgotten::Between);
        let mut asked: Vec<_> = sketches.iter().flat_map(|sketch| &*sketch.asked).copied().collect();
        asked.sort_unstable();
        asked.dedup();
        let mut actors = Vec::new();
        for of_actor in asked.chunk_by(|one, other| one.0 == other.0) {
            let from = actors.last().map_or(0, |(_, before): &(Actor, Range<usize>)| before.end);
            actors.push((of_actor[0].0, from..from + of_actor.len()));
        }
        // Before which of them some clock ends.
        let mut ends = vec![false; asked.len() + 1];
        let clocks = sketches.iter().map(|sketch| sketch.clocks.len()).sum::<usize>();
        let mut known = Vec::with_capacity(clocks * actors.len());
        for clock in sketches.iter().flat_map(|sketch| &*sketch.clocks) {
            for (actor, operations) in &actors {
                let knows = clock.knows(*actor);
                let before = asked[operations.clone()].partition_point(|(_, epoch)| *epoch <= knows);
                ends[operations.start + before] |= before < operations.len();
                known.push(u32::try_from(before).expect("few operations are asked about"));
            }
        }
        let mut operations = Vec::with_capacity(asked.len());
        for (_, of_actor) in &actors {
            let mut number = 1;
            for at in of_actor.clone() {
                number += u32::from(at > of_actor.start && told_apart && ends[at]);
                operations.push(AskedOperation { epoch: asked[at].1, number });
            }
        }
        if !actors.is_empty() {
            for of_clock in known.chunks_mut(actors.len()) {
                for (known, (_, of_actor)) in of_clock.iter_mut().zip(&actors) {
                    let last = (*known as usize).checked_sub(1);
                    *known = last.map_or(0, |last| operations[of_actor.start + last].number);
                }
            }
        }
        Self { sketches, operations, actors, known, begin: begin_of_counts(sketches, machine) }
    }

    /// The number of the last one of an actor up to a count; 0 if there is none.
    fn up_to(&self, actor: Actor, epoch: u32) -> u32 {
        let Ok(at) = self.actors.binary_search_by_key(&actor, |(actor, _)| *actor) else { return 0 };
        let operations = &self.operations[self.actors[at].1.clone()];
        let before = operations.partition_point(|asked| asked.epoch <= epoch);
        before.checked_sub(1).map_or(0, |last| operations[last].number)
    }

    /// Whether those who know so much know all that a clock says of the operations that are asked about.
    fn is_known_here(&self, clock: usize, here: &KnownToAll) -> bool {
        let says = &self.known[clock * self.actors.len()..][..self.actors.len()];
        let knows = |actor: Actor| here.up_to(actor).map_or(u32::MAX, |epoch| self.up_to(actor, epoch));
        self.actors.iter().zip(says).all(|((actor, _), says)| *says <= knows(*actor))
    }

    /// The identity of the whole.
    pub(crate) fn whole(&self) -> u128 {
        let mut hasher = ContentHasher::default();
        // Clocks have a number for each of these.
        self.actors.iter().for_each(|(actor, _)| actor.hash(&mut hasher));
        let (mut numbers, mut clocks) = (Vec::new(), 0);
        for sketch in self.sketches {
            sketch.outline.hash.hash(&mut hasher);
            self.add_numbers(&sketch.outline.open, (sketch, clocks), None, &mut numbers);
            clocks += sketch.clocks.len();
        }
        numbers.hash(&mut hasher);
        hasher.fingerprint()
    }

    /// What each of the first sketches looks like on its own: those of ranks, with so many actors each.
    pub(crate) fn alone(&self, actors_per_rank: u32) -> Vec<u128> {
        let (mut numbers, mut clocks) = (Vec::new(), 0);
        let alone = |(rank, sketch): (u32, &&Sketch)| {
            let own = rank * actors_per_rank..(rank + 1) * actors_per_rank;
            numbers.clear();
            self.add_numbers(&sketch.outline.open, (sketch, clocks), Some(&own), &mut numbers);
            clocks += sketch.clocks.len();
            fingerprint(&(sketch.outline.hash, &numbers))
        };
        let of_ranks = self.sketches.iter().take_while(|sketch| sketch.alone);
        (0..).zip(of_ranks).map(alone).collect()
    }

    /// Adds the numbers of a sketch whose clocks begin there. Of `own`, the actors of a rank, only what is known of these.
    fn add_numbers(
        &self,
        open: &[OpenNumber],
        (sketch, clocks): (&Sketch, usize),
        own: Option<&Range<u32>>,
        to: &mut Vec<u32>,
    ) {
        let is_told = |actor: Actor| own.is_none_or(|own| own.contains(&actor.0));
        let first = own.map_or(0, |own| own.start);
        for open in open {
            match open {
                OpenNumber::AskedAbout(actor, epoch) => {
                    if is_told(*actor) {
                        to.extend([actor.0 - first, self.up_to(*actor, *epoch), u32::from(*epoch > 0)]);
                    }
                }
                OpenNumber::Counted(counter, count) => {
                    let begin = self.begin.get(counter).copied().unwrap_or(0);
                    to.push(count - begin);
                }
                OpenNumber::Clock(at) => {
                    let actors = self.actors.len();
                    let known = &self.known[(clocks + at) * actors..][..actors];
                    if own.is_none() {
                        to.extend(known);
                        continue;
                    }
                    let of_own = self.actors.iter().zip(known).filter(|((actor, _), _)| is_told(*actor));
                    for ((actor, _), known) in of_own.filter(|(_, known)| **known > 0) {
                        to.extend([actor.0 - first, *known]);
                    }
                    to.push(u32::MAX);
                }
                OpenNumber::RankNumber(hash) => {
                    if own.is_none() {
                        to.extend(hash.to_le_bytes().as_chunks().0.iter().copied().map(u32::from_le_bytes));
                    }
                }
                OpenNumber::UnlessKnown(clock, value) => {
                    if !self.is_known_here(clocks + clock, &sketch.here) {
                        to.push(u32::MAX);
                        to.extend(
                            value.hash.to_le_bytes().as_chunks().0.iter().copied().map(u32::from_le_bytes),
                        );
                        self.add_numbers(&value.open, (sketch, clocks), own, to);
                    }
                }
                OpenNumber::Alike(values) => {
                    let mut alike: Vec<Vec<u32>> = Vec::with_capacity(values.len());
                    for value in values {
                        let mut numbers = Vec::new();
                        self.add_numbers(value, (sketch, clocks), own, &mut numbers);
                        alike.push(numbers);
                    }
                    alike.sort_unstable();
                    alike.dedup();
                    to.push(u32::try_from(alike.len()).expect("few values"));
                    for numbers in alike {
                        to.push(u32::try_from(numbers.len()).expect("few numbers"));
                        to.extend(numbers);
                    }
                }
            }
        }
    }
}

/// Where the counts of each counter begin: at the least one of the state. Who has no count yet stands at 0.
fn begin_of_counts<'a>(sketches: &[&'a Sketch], machine: &Machine) -> FxHashMap<&'a Counter, u32> {
    let mut least: FxHashMap<&Counter, (u32, usize)> = FxHashMap::default();
    // The last sketch is of what ranks share, which counts nothing itself.
    let of_ranks = sketches.len().saturating_sub(1);
    for (at, sketch) in sketches.iter().enumerate() {
        for (counter, count) in &sketch.counted {
            let (least, ranks) = least.entry(counter).or_insert((*count, 0));
            *least = (*least).min(*count);
            *ranks += usize::from(at < of_ranks);
        }
    }
    let all_count = |(counter, (least, ranks)): (&'a Counter, (u32, usize))| {
        (ranks == counter.ranks(machine)).then_some((counter, least))
    };
    least.into_iter().filter_map(all_count).collect()
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

    /// Also what these do not know may be asked about.
    pub(crate) fn meet(&mut self, others: &Self) {
        match (&mut self.0, &others.0) {
            (_, None) => {}
            (None, Some(known)) => self.0 = Some(Arc::clone(known)),
            (Some(known), Some(others)) => {
                let lower = |(known, other): (&mut u32, &u32)| *known = (*known).min(*other);
                Arc::make_mut(known).iter_mut().zip(&**others).for_each(lower);
            }
        }
    }

    pub(crate) fn includes(&self, actor: Actor, epoch: u32) -> bool {
        self.up_to(actor).is_none_or(|known| known >= epoch)
    }

    /// Up to which of its operations an actor is known; none if nobody is left who might not know it.
    fn up_to(&self, actor: Actor) -> Option<u32> {
        self.0.as_ref().map(|known| known[actor.0 as usize])
    }
}

/// An identity as it comes together.
pub(crate) struct StateIdentity<'a> {
    draft: SketchDraft,
    pub(crate) machine: &'a Machine,
    pub(crate) remembered: &'a RememberedPast,
    /// What everybody knows who may still do something.
    everybody: &'a KnownToAll,
    /// What those know who may use the tables that are looked at.
    here: &'a KnownToAll,
    /// What somebody may still use of what threads share, of those who may use the tables that are looked at.
    ahead: UsedAhead,
    /// The memory that the rank may still come by whose tables are looked at.
    reachable: ReachableMemory,
    /// The rank whose tables are looked at.
    rank: Rank,
    /// Whether what is looked at is not numbered yet: it stands in a graph or in a group that is open.
    unnumbered: bool,
    /// How many answers each of its threads was given.
    answers: Vec<(ThreadStart, u32)>,
    /// Whether it is asked what a rank is on its own.
    alone: bool,
}

macro_rules! write_down {
    ($($write:ident $number:ident,)*) => {$(
        #[inline]
        fn $write(&mut self, number: $number) {
            self.draft.bytes.extend_from_slice(&number.to_le_bytes());
        }
    )*};
}

impl Hasher for StateIdentity<'_> {
    fn finish(&self) -> u64 {
        unreachable!("what is written down is hashed once all of it is known")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.draft.bytes.extend_from_slice(bytes);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_i64(number as i64);
    }

    write_down! {
        write_u8 u8, write_u16 u16, write_u32 u32, write_u64 u64, write_u128 u128,
        write_i8 i8, write_i16 i16, write_i32 i32, write_i64 i64, write_i128 i128,
    }
}

impl<'a> StateIdentity<'a> {
    /// The identity of a state of which everybody knows so much who may still do something. It may be asked what ranks are
    /// alone.
    pub(crate) fn new(machine: &'a Machine, everybody: &'a KnownToAll, alone: bool) -> Self {
        let remembered = machine.config.remembered.as_deref().expect("histories merge");
        Self {
            draft: SketchDraft::default(),
            machine,
            remembered,
            everybody,
            here: everybody,
            ahead: UsedAhead::default(),
            reachable: ReachableMemory::default(),
            rank: Rank(0),
            unnumbered: false,
            answers: Vec::new(),
            alone,
        }
    }

    /// What belongs to the identity of a rank, whose threads know so much.
    pub(crate) fn of_rank(
        &mut self,
        (rank, own): (Rank, &RankState),
        threads: &'a KnownToAll,
        identify: impl FnOnce(&mut Self),
    ) -> Sketch {
        (self.rank, self.here) = (rank, threads);
        self.answers.clear();
        self.answers.extend(own.threads().iter().map(|thread| (thread.start(), thread.asked())));
        self.ahead = self.machine.shared_ahead([own]);
        self.reachable = if self.machine.config.declared_forgotten.contains(&Forgotten::Memory) {
            ReachableMemory::default()
        } else {
            self.machine.reachable_memory((rank, own), &self.ahead, self.remembered)
        };
        identify(self);
        self.draft.take(self.alone, self.here)
    }

    /// What belongs to the identity of what everybody uses, of which this may still be used.
    pub(crate) fn of_shared(&mut self, ahead: UsedAhead, identify: impl FnOnce(&mut Self)) -> Sketch {
        (self.here, self.ahead) = (self.everybody, ahead);
        identify(self);
        self.draft.take(false, self.here)
    }

    fn mark(&mut self, mark: DraftMark) {
        let at = u32::try_from(self.draft.bytes.len()).expect("a rank is less than 4 GiB");
        self.draft.marks.push((at, mark));
    }

    /// How many answers a thread was given, of the rank whose tables are looked at.
    pub(crate) fn answers_of(&self, start: ThreadStart) -> u32 {
        self.answers.iter().find(|(of, _)| *of == start).map_or(0, |(_, answers)| *answers)
    }

    /// Whether everybody who may still do something knows an operation.
    pub(crate) fn is_known(&mut self, actor: Actor, epoch: u32) -> bool {
        if self.declares_known() {
            return true;
        }
        let known = self.everybody.includes(actor, epoch);
        self.draft.known.push((actor, epoch, known));
        known
    }

    /// Whether all know it who use the tables that are looked at.
    pub(crate) fn is_known_here(&self, actor: Actor, epoch: u32) -> bool {
        self.declares_known() || self.here.includes(actor, epoch)
    }

    /// Adds a value. If there is a clock, the value can only tell what that knows: where all know it already who may use the
    /// value, it is as if it was not there.
    pub(crate) fn unless_known(&mut self, clock: Option<&Clock>, identify: impl FnOnce(&mut Self)) {
        let Some(clock) = clock else { return identify(self) };
        self.mark(DraftMark::UnlessKnown);
        self.draft.clocks.push(clock.clone());
        identify(self);
        self.mark(DraftMark::EndOfUnlessKnown);
    }

    fn declares_known(&self) -> bool {
        self.machine.config.declared_forgotten.contains(&Forgotten::Known)
    }

    /// Adds an operation about which somebody may ask whether it happened before; 0 for none.
    pub(crate) fn asked_about(&mut self, actor: Actor, epoch: u32) {
        self.mark(DraftMark::AskedAbout(actor, epoch));
    }

    /// What somebody may still use of what threads share.
    pub(crate) fn ahead(&self) -> &UsedAhead {
        &self.ahead
    }

    /// Whether somebody may still use what threads share.
    pub(crate) fn is_used(&self, object: Object) -> bool {
        self.ahead.has(object)
    }

    /// The memory that the rank may still come by whose tables are looked at.
    pub(crate) fn reachable(&self) -> &ReachableMemory {
        &self.reachable
    }

    /// The rank whose tables are looked at.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// Adds how often the rank entered something, by the members.
    pub(crate) fn entered(&mut self, rows: &Rows<MemberList, u32>, counter: fn(MemberList) -> Counter) {
        self.unordered(rows.iter(), |(members, count), to| {
            members.identify(to);
            to.counted(counter(members.clone()), *count);
        });
    }

    /// Adds how often something happened, as far as it matters: how far it lies from other counts of the counter.
    pub(crate) fn counted(&mut self, counter: Counter, count: u32) {
        if self.machine.config.declared_forgotten.contains(&Forgotten::Counts) {
            return;
        }
        if self.unnumbered {
            return count.hash(self);
        }
        self.mark(DraftMark::Counted);
        self.draft.counted.push((counter, count));
    }

    /// Adds what has no numbers of its own yet: those that it will have are counted when it is launched.
    pub(crate) fn unnumbered(&mut self, identify: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.unnumbered, true);
        identify(self);
        self.unnumbered = before;
    }

    /// Adds values whose order says nothing, equal ones once.
    pub(crate) fn unordered<T>(
        &mut self,
        values: impl IntoIterator<Item = T>,
        mut identify: impl FnMut(T, &mut Self),
    ) {
        self.mark(DraftMark::Unordered);
        for value in values {
            identify(value, self);
            self.mark(DraftMark::EndOfValue);
        }
        self.mark(DraftMark::EndOfUnordered);
    }

    /// Adds what names a rank by its number: nothing of it is seen of a rank on its own.
    fn rank_number(&mut self, value: &impl Hash) {
        let (mark, from) = (self.draft.marks.len(), self.draft.bytes.len());
        self.mark(DraftMark::RankNumber(0));
        value.hash(self);
        let len = u32::try_from(self.draft.bytes.len() - from).expect("a value is small");
        self.draft.marks[mark].1 = DraftMark::RankNumber(len);
    }
}

impl Identify for Clock {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        to.mark(DraftMark::Clock);
        to.draft.clocks.push(self.clone());
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

/// Values that name ranks.
macro_rules! identify_with_numbers {
    ($($of:ty),* $(,)?) => {$(
        impl Identify for $of {
            fn identify(&self, to: &mut StateIdentity<'_>) {
                to.rank_number(self);
            }
        }
    )*};
}

identify_with_numbers!(Rank, Actor, crate::term::Term, crate::term::Content);

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
    crate::rank::Thread, Token, ThreadStart,
    MemberList,
    CommId, crate::host::value::MemoryId, crate::host::value::AddressId,
    crate::host::value::BlockId, crate::host::value::Buffer, crate::host::value::Value,
    crate::order::dependence::Object, crate::order::dependence::Access,
    crate::noun::p2p::Link, crate::noun::p2p::Handshake,
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
