//! Where a thread stands, told by what is left to run instead of by how it got there.
//!
//! A program is only known by what it says for given answers. So two histories are taken for one as soon as their
//! blocks end in the same question, and what is remembered of them is the same; and whenever one of them gets an
//! answer, all that were taken for it are asked what they would do. If one would do something else, the search starts
//! again and remembers the answer in which they differ. What is left in the end is exact: every continuation of
//! every history that was taken for another has been looked at, but for those behind which the program is known to
//! stand as behind another one ([`Source::standing`](crate::Source::standing)).
//! Not here: tables, clocks, and when a search merges histories at all ([`crate::identity`]).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use crate::describe::{Describe, NamesOf, Naming, description, uses};
use crate::host::value::{MemoryId, Owner};
use crate::id::{ContentHasher, ThreadStart, Token};
use crate::machine::{Machine, Pending, locked};
use crate::order::dependence::Object;
use crate::order::persistent::SharedUse;
use crate::program::{Answer, Block, RenamedDigest, Slot, StandingDigest, Symmetry, Terminator};
use crate::rank::{LocId, Rank};
use crate::remembered::{Forgotten, ProgramPoint, RememberedPast};
use crate::term::Content;

/// How many histories are compared at most. Where it is not known how a program stands each is evaluated, and a thread that
/// decides twenty times has a million.
const PLACES: usize = 30_000;

/// An answer that a thread was given, and where it was asked for.
#[derive(Debug, Clone, Copy)]
struct GivenAnswer {
    loc: LocId,
    /// What stands there, which is the same in another numbering of places.
    place: u128,
    answer: Answer,
}

impl GivenAnswer {
    fn content(&self) -> (u128, Answer) {
        (self.place, self.answer)
    }
}

/// A result of a thread: where it was produced, and after how many answers.
#[derive(Debug, Clone, Copy)]
struct ProducedResult {
    loc: LocId,
    place: u128,
    answers: u32,
}

/// The answers of a history that matter.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct RememberedAnswers {
    /// Each with how many were given since.
    given: Vec<(u32, (u128, Answer))>,
    /// How often each question was answered of which that matters.
    counts: BTreeMap<u128, u32>,
}

/// A block of a program, and the history that led to it.
#[derive(Debug)]
pub(crate) struct ProgramPlace {
    rank: Rank,
    start: ThreadStart,
    block: Arc<Block>,
    given: Vec<GivenAnswer>,
    /// How many places were entered before.
    nth: usize,
    /// All results, those of the block included.
    produced: Vec<ProducedResult>,
    /// How many of them there are before each operation of the block, and behind the last.
    produced_before: Vec<u32>,
    /// What operations of the block, and the question at its end, have to do with what threads share, by their numbers.
    uses: Vec<(u32, SharedUse)>,
    /// What the question at the end of the block is, and what is remembered there: histories are merged by it.
    end: u128,
    /// How the program stands there, and which results it still holds, if that is known.
    standing: Option<StandingDigest>,
    /// Whether that tells it apart, in place of the answers that were given.
    told_by_standing: bool,
    /// A place that was entered before, behind which the program stands as behind this one, and of which the same is remembered.
    alike: Option<Arc<ProgramPlace>>,
    /// What is left of the block from an operation on; made when it is asked for.
    rests: Mutex<FxHashMap<u32, Rest>>,
}

/// What is left to run from an operation of a block on.
#[derive(Debug, Clone)]
pub(crate) struct Rest {
    /// The operations, and the end of the block.
    pub(crate) hash: u128,
    /// The slots of the results that are there and that it uses, in their order.
    pub(crate) kept: Arc<[u32]>,
}

pub(crate) type HistoryKey = (Rank, ThreadStart, Vec<Answer>);

/// Histories whose blocks end alike.
#[derive(Debug, Default)]
struct MergedHistories {
    /// Of those behind which the program stands alike, the first.
    members: Vec<Arc<ProgramPlace>>,
    /// By how the program stands.
    standing: FxHashMap<u128, Arc<ProgramPlace>>,
    /// Where each answer that some thread was given leads the first member.
    after: BTreeMap<Answer, Arc<ProgramPlace>>,
}

/// All places that a search has come by.
#[derive(Debug, Default)]
pub(crate) struct Places {
    known: FxHashMap<HistoryKey, Arc<ProgramPlace>>,
    merged: FxHashMap<u128, MergedHistories>,
    /// Whether ranks were told apart when the first place was entered.
    distinct: Option<bool>,
}

/// Names for what is left to run: earlier results by their order among those that are remembered, later ones by how
/// many come between.
struct RenamedResults<'a> {
    machine: &'a Machine,
    of: ThreadStart,
    /// Which of the results that are there may still be used.
    kept: &'a [u32],
    /// How many are there.
    produced: u32,
}

impl Naming for RenamedResults<'_> {
    fn name(&self, token: Token) -> Arc<str> {
        self.machine.name(token)
    }

    fn thread(&self, start: ThreadStart) -> Option<usize> {
        // As it is made from contents, it is the same in every order.
        Some(start.0 as usize)
    }

    fn slot(&self, slot: Slot) -> Slot {
        if slot.start != self.of {
            return slot;
        }
        let index = match self.kept.binary_search(&slot.index) {
            Ok(at) => u32::try_from(at).expect("few results"),
            // Beyond all that can be kept.
            Err(_) => (1_u32 << 31).wrapping_add(slot.index.wrapping_sub(self.produced)),
        };
        Slot { index, ..slot }
    }
}

/// What comes behind a block.
pub(crate) enum Behind {
    /// No more operations: the thread has returned after its last one.
    Nothing,
    /// What follows the question that is asked there.
    Question(ProgramPoint),
    /// A recording ends here.
    Unknown,
}

impl ProgramPlace {
    /// What operations of the block from one on, and its question, have to do with what threads share.
    pub(crate) fn uses_from(&self, next: u32) -> impl Iterator<Item = SharedUse> {
        let from = self.uses.partition_point(|(at, _)| *at < next);
        self.uses[from..].iter().map(|(_, used)| *used)
    }

    /// What comes behind the block.
    pub(crate) fn behind(&self) -> Behind {
        match &self.block.terminator {
            Terminator::Return => Behind::Nothing,
            Terminator::Cut => Behind::Unknown,
            Terminator::Ask(_, loc) => {
                Behind::Question(ProgramPoint { rank: self.rank, start: self.start, asked: Some(*loc) })
            }
        }
    }

    /// Where the thread starts that an operation starts.
    pub(crate) fn starts(&self, used: SharedUse) -> Option<ProgramPoint> {
        let SharedUse::Spawn(start) = used else { return None };
        Some(ProgramPoint { rank: self.rank, start, asked: None })
    }

    /// What the block does to what threads share that was not found to follow the points that led to it.
    fn unforeseen(&self, remembered: &RememberedPast) -> BTreeMap<ProgramPoint, BTreeSet<SharedUse>> {
        let mut more: BTreeMap<ProgramPoint, BTreeSet<SharedUse>> = BTreeMap::new();
        if self.uses.is_empty() {
            return more;
        }
        let asked: BTreeSet<LocId> = self.given.iter().map(|given| given.loc).collect();
        for asked in std::iter::once(None).chain(asked.into_iter().map(Some)) {
            let point = ProgramPoint { rank: self.rank, start: self.start, asked };
            let known = remembered.follows.get(&point);
            let new = self.uses.iter().map(|(_, used)| *used);
            let new: BTreeSet<SharedUse> =
                new.filter(|used| known.is_none_or(|known| !known.contains(used))).collect();
            if !new.is_empty() {
                more.insert(point, new);
            }
        }
        more
    }

    /// The answers that led here.
    fn answers(&self) -> Vec<Answer> {
        self.given.iter().map(|given| given.answer).collect()
    }

    /// The history that goes on from here with an answer.
    fn answered(&self, answer: Answer) -> HistoryKey {
        let mut answers = self.answers();
        answers.push(answer);
        (self.rank, self.start, answers)
    }

    /// How many answers led here.
    fn age(&self) -> u32 {
        u32::try_from(self.given.len()).expect("few answers")
    }

    /// The results, by their slots, that are there before an operation of the block and may be used from there on.
    fn kept_at(&self, next: u32, remembered: &RememberedPast, names: &NamesOf<'_>) -> Vec<u32> {
        let there = self.produced_before[next as usize];
        if remembered.shared.contains(&self.start) {
            return (0..there).collect();
        }
        let used: BTreeSet<Slot> = self.ahead(next).flat_map(|of| uses(of, names)).collect();
        let keeps = |slot: &u32| {
            let ProducedResult { loc, place: _, answers } = self.produced[*slot as usize];
            remembered.keeps_result(loc, self.age() - answers + 1) && self.may_hold(*slot)
                || used.contains(&Slot { start: self.start, index: *slot })
        };
        (0..there).filter(keeps).collect()
    }

    /// Whether the program may still hold a result behind the block.
    fn may_hold(&self, slot: u32) -> bool {
        self.renamed().is_none_or(|renamed| renamed.called(slot).is_some())
    }

    /// How the program stands behind the block without the numbers of results, if that is known.
    fn renamed(&self) -> Option<&RenamedDigest> {
        self.standing.as_ref().and_then(|standing| standing.renamed.as_ref())
    }

    /// The operations of the block from one on, and its question.
    fn ahead(&self, next: u32) -> impl Iterator<Item = &dyn Describe> {
        let question: Option<&dyn Describe> = match &self.block.terminator {
            Terminator::Ask(question, _) => Some(question),
            Terminator::Return | Terminator::Cut => None,
        };
        let ops = self.block.ops[next as usize..].iter().map(|statement| &statement.op as &dyn Describe);
        ops.chain(question)
    }

    fn described(&self, machine: &Machine, of: &dyn Describe, next: u32, kept: &[u32]) -> String {
        let produced = self.produced_before[next as usize];
        description(of, &RenamedResults { machine, of: self.start, kept, produced })
    }

    /// What is left to run from an operation of the block on.
    pub(crate) fn rest(&self, machine: &Machine, next: u32, remembered: &RememberedPast) -> Rest {
        if let Some(known) = locked(&self.rests).get(&next) {
            return known.clone();
        }
        let kept = self.kept_at(next, remembered, &NamesOf::new(&*machine.source));
        let mut hasher = ContentHasher::default();
        self.hash_kept(&kept, &mut hasher);
        for statement in &self.block.ops[next as usize..] {
            self.described(machine, &statement.op, next, &kept).hash(&mut hasher);
            machine.place_hash(statement.loc).hash(&mut hasher);
        }
        self.end.hash(&mut hasher);
        let rest = Rest { hash: hasher.fingerprint(), kept: kept.into() };
        locked(&self.rests).insert(next, rest.clone());
        rest
    }

    /// Tells the end of a block apart: by its question, and by what is remembered there. Where some answer matters, and it is
    /// known how the program stands, that says all that follows from the answers, and says it of few values where these are
    /// many.
    fn tell_end(&mut self, machine: &Machine, remembered: &RememberedPast) {
        let last = u32::try_from(self.block.ops.len()).expect("few operations");
        let kept = self.kept_at(last, remembered, &NamesOf::new(&*machine.source));
        // Behind the last question nothing depends on answers any more.
        let answers = match self.block.terminator {
            Terminator::Return | Terminator::Cut => RememberedAnswers::default(),
            Terminator::Ask(..) => self.remembered_answers(remembered),
        };
        let told = self.standing.as_ref().filter(|_| answers != RememberedAnswers::default());
        let told =
            told.map(|standing| (standing.numbered, standing.renamed.as_ref().map(|renamed| renamed.digest)));
        self.told_by_standing = told.is_some();
        let mut hasher = ContentHasher::default();
        (self.rank, self.start).hash(&mut hasher);
        match &self.block.terminator {
            Terminator::Return => 0_u8.hash(&mut hasher),
            Terminator::Cut => 1_u8.hash(&mut hasher),
            Terminator::Ask(question, loc) => {
                self.described(machine, question, last, &kept).hash(&mut hasher);
                machine.place_hash(*loc).hash(&mut hasher);
            }
        }
        match told {
            Some((_, Some(renamed))) if !remembered.numbered => renamed.hash(&mut hasher),
            Some((numbered, _)) => numbered.hash(&mut hasher),
            None => answers.hash(&mut hasher),
        }
        self.hash_kept(&kept, &mut hasher);
        self.end = hasher.fingerprint();
    }

    /// The answers that matter behind the block.
    fn remembered_answers(&self, remembered: &RememberedPast) -> RememberedAnswers {
        let mut answers = RememberedAnswers::default();
        for (age, given) in (0..).zip(self.given.iter().rev()) {
            if remembered.keeps_answer(given.loc, age) {
                answers.given.push((age, given.content()));
            }
            if remembered.counted.contains(&given.loc) {
                *answers.counts.entry(given.place).or_default() += 1;
            }
        }
        answers
    }

    /// How long each result is remembered from here on: the rest of the program calls them by their order. Where programs stand
    /// alike, results have the same numbers, or the same places among those that are held, however many answers were given since.
    fn hash_kept(&self, kept: &[u32], hasher: &mut ContentHasher) {
        if self.told_by_standing {
            return match self.renamed() {
                Some(renamed) => kept.iter().for_each(|slot| renamed.called(*slot).hash(hasher)),
                None => kept.hash(hasher),
            };
        }
        for slot in kept {
            let ProducedResult { loc: _, place, answers } = self.produced[*slot as usize];
            (place, self.age() - answers).hash(hasher);
        }
    }
}

/// What was found about two histories that were taken for one.
enum EnteredPlace {
    There(Arc<ProgramPlace>),
    /// The program has no block there.
    Nothing,
    /// Something that was forgotten matters.
    Remember(Box<RememberedPast>),
}

impl Machine {
    /// Something that was forgotten matters: the search starts again and remembers it.
    fn begin_again(&self, what: Forgotten, more: impl FnOnce(&mut RememberedPast)) {
        if self.config.declared_forgotten.contains(&what) {
            return;
        }
        let more = |pending: &mut Pending| more(pending.remembered.get_or_insert_default());
        if self.config.scouts {
            more(&mut locked(&self.pending));
        } else {
            self.interrupt(more);
        }
    }

    /// What is missing among what is remembered; none where histories are told apart.
    fn forgets(&self, missing: impl FnOnce(&RememberedPast) -> bool) -> bool {
        self.config.remembered.as_deref().is_some_and(missing)
    }

    /// Somebody compares his clock with an access that was made at this place.
    pub(crate) fn ask_about(&self, access: LocId) {
        if self.forgets(|remembered| !remembered.asked.contains(&access)) {
            self.begin_again(Forgotten::Accesses, |more| more.asked.extend([access]));
        }
    }

    /// A thread looks whether an event is complete that was recorded at this place, after so many further questions of
    /// the thread that recorded it.
    pub(crate) fn poll_record(&self, recorded: LocId, age: u32) {
        if self.forgets(|remembered| !remembered.keeps_record(recorded, age)) {
            self.begin_again(Forgotten::Records, |more| {
                more.records.insert(recorded, age);
            });
        }
    }

    /// Something depends on whether an event was ever recorded.
    pub(crate) fn ask_if_recorded(&self, event: Token) {
        if self.forgets(|remembered| !remembered.recorded.contains(&event)) {
            self.begin_again(Forgotten::Records, |more| more.recorded.extend([event]));
        }
    }

    /// A run ends in an agreement that was entered here, and tells how the rank votes.
    pub(crate) fn tell_vote(&self, entered: LocId) {
        if self.forgets(|remembered| !remembered.votes.contains(&entered)) {
            self.begin_again(Forgotten::Votes, |more| more.votes.extend([entered]));
        }
    }

    /// Somebody looks into a list or a map.
    pub(crate) fn look_into(&self, object: Object) {
        if self.forgets(|remembered| !remembered.reads(object)) {
            self.begin_again(Forgotten::Containers, |more| more.read.extend([object]));
        }
    }

    /// Whether the numbers of a pool's segments, in the order in which they were made, are forgotten.
    pub(crate) fn forgets_numbers(&self, pool: Token) -> bool {
        self.forgets(|remembered| !remembered.numbers.contains(&pool))
    }

    /// Something depends on the number of a pool's segment.
    pub(crate) fn look_at_numbers(&self, memory: MemoryId) {
        if let Owner::Pool(pool) = memory.owner
            && self.forgets_numbers(pool)
        {
            self.begin_again(Forgotten::Numbers, |more| more.numbers.extend([pool]));
        }
    }

    /// Whether what memory of this name holds is forgotten once nobody expects it to hold anything.
    pub(crate) fn forgets_contents(&self, of: Token) -> bool {
        self.forgets(|remembered| !remembered.contents.contains(&of))
    }

    /// Whether two contents differ. Somebody looks at them unless they differ whatever was forgotten of them.
    pub(crate) fn differ_in_content(&self, one: &Content, other: &Content) -> bool {
        if self.forgets(|_| true) && !locked(&self.terms).differ_surely(one, other) {
            self.look_at(one);
            self.look_at(other);
        }
        one != other
    }

    /// Something depends on what some memory holds.
    pub(crate) fn look_at(&self, content: &Content) {
        if self.forgets(|_| true) {
            let names = locked(&self.terms).forgotten_in(content);
            if !names.is_empty() {
                self.begin_again(Forgotten::Contents, |more| more.contents.extend(names));
            }
        }
    }

    /// Somebody looks into all lists and maps of a rank.
    pub(crate) fn look_into_all(&self) {
        if self.forgets(|remembered| !remembered.reads_all) {
            self.begin_again(Forgotten::Containers, |more| more.reads_all = true);
        }
    }

    /// Where a thread of a rank stands that was given these answers; none where histories tell places apart, or where
    /// the search has to start again.
    pub(crate) fn place(
        &self,
        rank: Rank,
        start: ThreadStart,
        answers: &[Answer],
    ) -> Option<Arc<ProgramPlace>> {
        let remembered = self.config.remembered.as_deref()?;
        let distinct = self.source.symmetry() == Symmetry::Distinct;
        let mut places = locked(&self.places);
        if *places.distinct.get_or_insert(distinct) != distinct && !self.config.scouts {
            drop(places);
            self.interrupt(|pending| pending.remembered = Some(RememberedPast::default()));
            return None;
        }
        let rank = if distinct { rank } else { Rank(0) };
        let entered = self.enter(&mut places, remembered, (rank, start, answers.to_vec()));
        drop(places);
        match entered {
            EnteredPlace::There(place) => Some(place),
            EnteredPlace::Nothing => None,
            EnteredPlace::Remember(more) => {
                self.interrupt(|pending| pending.remembered.get_or_insert_default().extend(&more));
                None
            }
        }
    }

    /// The histories that led to places so far, in the order in which they were entered.
    pub(crate) fn entered(&self) -> Vec<HistoryKey> {
        let places = locked(&self.places);
        let mut entered: Vec<(&HistoryKey, usize)> =
            places.known.iter().map(|(key, place)| (key, place.nth)).collect();
        entered.sort_unstable_by_key(|(_, nth)| *nth);
        entered.into_iter().map(|(key, _)| key.clone()).collect()
    }

    fn enter(&self, places: &mut Places, remembered: &RememberedPast, key: HistoryKey) -> EnteredPlace {
        if let Some(known) = places.known.get(&key) {
            return EnteredPlace::There(Arc::clone(known));
        }
        let (rank, start, answers) = &key;
        let before = match answers.split_last() {
            None => None,
            Some((_, earlier)) => match self.enter(places, remembered, (*rank, *start, earlier.to_vec())) {
                EnteredPlace::There(place) => Some(place),
                elsewhere @ (EnteredPlace::Nothing | EnteredPlace::Remember(_)) => return elsewhere,
            },
        };
        if let (Some(before), Some(answer)) = (before.as_deref(), answers.last()) {
            // What a thread does that stands as another did is known.
            let known = before.alike.as_deref().unwrap_or(before).answered(*answer);
            if known != key {
                let entered = self.enter(places, remembered, known);
                if let EnteredPlace::There(place) = &entered {
                    places.known.insert(key, Arc::clone(place));
                }
                return entered;
            }
        }
        let Ok(block) = self.source.block(*rank, *start, answers) else { return EnteredPlace::Nothing };
        let standing = self.source.standing(*rank, *start, answers);
        let (mut place, more) = self.new_place(&key, (block, standing), before.as_deref(), remembered);
        place.nth = places.known.len();
        let standing = place.standing.as_ref().map(|standing| standing.numbered);
        if let (Some(standing), Some(merged)) = (standing, places.merged.get(&place.end)) {
            place.alike = merged.standing.get(&standing).map(Arc::clone);
        }
        let place = Arc::new(place);
        if more != RememberedPast::default() {
            if !self.config.scouts {
                return EnteredPlace::Remember(Box::new(more));
            }
            locked(&self.pending).remembered.get_or_insert_default().extend(&more);
        }
        if self.config.scouts {
            places.known.insert(key, Arc::clone(&place));
            return EnteredPlace::There(place);
        }
        if places.known.len() >= PLACES {
            return EnteredPlace::Remember(Box::new(RememberedPast {
                gives_up: true,
                ..RememberedPast::default()
            }));
        }
        places.known.insert(key, Arc::clone(&place));
        if place.alike.is_none() {
            let merged = places.merged.entry(place.end).or_default();
            merged.members.push(Arc::clone(&place));
            if let Some(standing) = standing {
                merged.standing.insert(standing, Arc::clone(&place));
            }
            let answered: Vec<(Answer, Arc<ProgramPlace>)> =
                merged.after.iter().map(|(answer, to)| (*answer, Arc::clone(to))).collect();
            for (answer, to) in answered {
                if let Some(more) = self.leads_elsewhere(places, remembered, (&place, answer), &to) {
                    return EnteredPlace::Remember(more);
                }
            }
        }
        if let (Some(before), Some(answer)) = (before, place.given.last().map(|given| given.answer)) {
            let merged = places.merged.get_mut(&before.end).expect("its end was entered");
            let first = Arc::clone(merged.after.entry(answer).or_insert_with(|| Arc::clone(&place)));
            if !Arc::ptr_eq(&first, &place) {
                // Another history was given the answer first, and this one was asked about then, unless it is newer.
                return match self.differs(&place, &first, remembered) {
                    Some(more) => EnteredPlace::Remember(more),
                    None => EnteredPlace::There(place),
                };
            }
            for member in places.merged[&before.end].members.clone() {
                if let Some(more) = self.leads_elsewhere(places, remembered, (&member, answer), &place) {
                    return EnteredPlace::Remember(more);
                }
            }
        }
        EnteredPlace::There(place)
    }

    /// What has to be remembered because a history, given an answer, would not do what another does that was taken for it.
    fn leads_elsewhere(
        &self,
        places: &mut Places,
        remembered: &RememberedPast,
        (member, answer): (&ProgramPlace, Answer),
        to: &ProgramPlace,
    ) -> Option<Box<RememberedPast>> {
        match self.enter(places, remembered, member.answered(answer)) {
            EnteredPlace::There(place) => self.differs(&place, to, remembered),
            EnteredPlace::Nothing => {
                Some(or_numbers(difference(&member.given, &to.given[..to.given.len() - 1], 1), remembered))
            }
            EnteredPlace::Remember(more) => Some(more),
        }
    }

    /// What has to be remembered because two histories that were taken for one go on differently.
    fn differs(
        &self,
        one: &ProgramPlace,
        other: &ProgramPlace,
        remembered: &RememberedPast,
    ) -> Option<Box<RememberedPast>> {
        let declared = self.config.declared_forgotten.contains(&Forgotten::Answers);
        if declared || one.rest(self, 0, remembered).hash == other.rest(self, 0, remembered).hash {
            return None;
        }
        Some(or_numbers(
            self.responsible(one, other).unwrap_or_else(|| difference(&one.given, &other.given, 0)),
            remembered,
        ))
    }

    /// The one answer in which two histories differ and which alone makes the difference, if there is one.
    fn responsible(&self, one: &ProgramPlace, other: &ProgramPlace) -> Option<Box<RememberedPast>> {
        let asked = |place: &ProgramPlace| place.given.iter().map(|given| given.place).collect::<Vec<_>>();
        if asked(one) != asked(other) {
            return None;
        }
        let answers = one.answers();
        let differ = (0..answers.len()).filter(|at| one.given[*at].content() != other.given[*at].content());
        let differ: Vec<usize> = differ.collect();
        if differ.len() < 2 {
            return None;
        }
        let alone = differ.into_iter().rev().find(|at| {
            let mut answers = answers.clone();
            answers[*at] = other.given[*at].answer;
            self.source.block(one.rank, one.start, &answers).is_ok_and(|block| block != one.block)
        })?;
        let age = u32::try_from(answers.len() - 1 - alone).expect("few answers");
        Some(Box::new(RememberedPast {
            answers: [(one.given[alone].loc, age)].into(),
            ..RememberedPast::default()
        }))
    }

    fn new_place(
        &self,
        (rank, start, answers): &HistoryKey,
        (block, standing): (Arc<Block>, Option<StandingDigest>),
        before: Option<&ProgramPlace>,
        remembered: &RememberedPast,
    ) -> (ProgramPlace, RememberedPast) {
        let (mut given, mut produced) = match before {
            Some(before) => (before.given.clone(), before.produced.clone()),
            None => (Vec::new(), Vec::new()),
        };
        if let (Some(before), Some(answer)) = (before, answers.last())
            && let Terminator::Ask(question, loc) = &before.block.terminator
        {
            let at = self.place_hash(*loc);
            given.push(GivenAnswer { loc: *loc, place: at, answer: *answer });
            let slots = question.slots(*answer) as usize;
            let answers = u32::try_from(answers.len()).expect("few answers");
            produced.extend(std::iter::repeat_n(ProducedResult { loc: *loc, place: at, answers }, slots));
        }
        let age = u32::try_from(given.len()).expect("few answers");
        let mut produced_before = Vec::with_capacity(block.ops.len() + 1);
        for statement in &block.ops {
            produced_before.push(u32::try_from(produced.len()).expect("few results"));
            let slots = statement.op.slots() as usize;
            let loc = statement.loc;
            let result = ProducedResult { loc, place: self.place_hash(loc), answers: age };
            produced.extend(std::iter::repeat_n(result, slots));
        }
        produced_before.push(u32::try_from(produced.len()).expect("few results"));
        let (rank, start) = (*rank, *start);
        let rests = Mutex::default();
        let uses = shared_uses(&block);
        let mut place = ProgramPlace {
            rank,
            start,
            block,
            given,
            nth: 0,
            produced,
            produced_before,
            uses,
            end: 0,
            standing,
            told_by_standing: false,
            alike: None,
            rests,
        };
        let mut more = self.used_in(&place, remembered);
        if !self.config.declared_forgotten.contains(&Forgotten::Follows) {
            more.follows = place.unforeseen(remembered);
        }
        place.tell_end(self, remembered);
        (place, more)
    }

    /// Results that a block uses and that are not remembered.
    fn used_in(&self, place: &ProgramPlace, remembered: &RememberedPast) -> RememberedPast {
        let names = NamesOf::new(&*self.source);
        let mut more = RememberedPast::default();
        for of in place.ahead(0) {
            for slot in uses(of, &names) {
                if slot.start != place.start {
                    if !remembered.shared.contains(&slot.start) {
                        more.shared.insert(slot.start);
                    }
                } else if let Some(ProducedResult { loc, place: _, answers }) =
                    place.produced.get(slot.index as usize)
                    && !remembered.shared.contains(&place.start)
                    && !remembered.keeps_result(*loc, place.age() - answers)
                {
                    let life = more.results.entry(*loc).or_default();
                    *life = (*life).max(place.age() - answers);
                }
            }
        }
        if self.config.declared_forgotten.contains(&Forgotten::Results) {
            return RememberedPast::default();
        }
        more
    }
}

/// What operations of a block and its question have to do with what threads share.
fn shared_uses(block: &Block) -> Vec<(u32, SharedUse)> {
    let of_question = match &block.terminator {
        Terminator::Ask(question, _) => SharedUse::of_question(question),
        Terminator::Return | Terminator::Cut => None,
    };
    let of_ops = block.ops.iter().map(|statement| SharedUse::of(&statement.op));
    let each = (0..).zip(of_ops.chain([of_question]));
    each.filter_map(|(at, used)| Some((at, used?))).collect()
}

/// What has to be remembered; if that is remembered already, the numbers of results make the difference.
fn or_numbers(more: Box<RememberedPast>, remembered: &RememberedPast) -> Box<RememberedPast> {
    let mut both = remembered.clone();
    both.extend(&more);
    if both == *remembered { Box::new(RememberedPast { numbered: true, ..*more }) } else { more }
}

/// The last answers in which two histories differ, each to be remembered long enough to tell them apart, and `more`
/// questions longer; or how often there was such a question, if one history was asked it more often than the other.
fn difference<'a>(one: &'a [GivenAnswer], other: &'a [GivenAnswer], more: u32) -> Box<RememberedPast> {
    let mut remembered = RememberedPast::default();
    let latest_first =
        |history: &'a [GivenAnswer]| history.iter().rev().map(Some).chain(std::iter::repeat(None));
    let pairs = latest_first(one).zip(latest_first(other)).take(one.len().max(other.len()));
    let content = |given: Option<&GivenAnswer>| given.map(GivenAnswer::content);
    let Some((age, (a, b))) = pairs.enumerate().find(|(_, (a, b))| content(*a) != content(*b)) else {
        return Box::new(remembered);
    };
    let asked =
        |history: &[GivenAnswer], place: u128| history.iter().filter(|given| given.place == place).count();
    let differ = || [a, b].into_iter().flatten();
    let counted = differ().filter(|given| asked(one, given.place) != asked(other, given.place));
    remembered.counted.extend(counted.map(|given| given.loc));
    if remembered.counted.is_empty() {
        let age = u32::try_from(age).expect("few answers") + more;
        remembered.answers.extend(differ().map(|given| (given.loc, age)));
    }
    Box::new(remembered)
}
