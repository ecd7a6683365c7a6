//! Records the operations of one evaluation of a program until a question has no answer yet.
//!
//! Starlark ([`crate::spec`]) and Rust closures ([`crate::closure`]) share it. Evaluation always starts from
//! the beginning: what comes before the last answered question is only hashed, so that a program that does
//! something else the second time is caught. Not here: how programs are written, what operations mean.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rankcheck_model::{
    Answer, BarrierOp, CollectiveKind, CommOp, End, Entry, ExchangeOp, IpcOp, MemoryOp, Op, Operation, Place,
    PlaceId, Question, Rank, Slot, SourceError, Statement, Stretch, Symmetry, ThreadOp, Token,
};
use rustc_hash::{FxHashMap, FxHasher};

/// How many operations one evaluation may record.
pub const MAX_OPERATIONS: usize = 1_000_000;

/// The strings, places and flags of one source, shared by all its evaluations. Numbers are given out in
/// order of first use and stay as they are.
#[derive(Debug, Default)]
pub struct Names {
    tokens: Mutex<Tokens>,
    places: Mutex<Places>,
    distinct: AtomicBool,
    mentioned: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Tokens {
    by_text: FxHashMap<Arc<str>, Token>,
    texts: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
struct Places {
    by_place: FxHashMap<Place, PlaceId>,
    places: Vec<Place>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no evaluation panics while it holds this lock")
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 entries: each takes an operation to make")
}

impl Names {
    /// The token of a text.
    pub fn token(&self, text: &str) -> Token {
        let mut tokens = lock(&self.tokens);
        if let Some(token) = tokens.by_text.get(text) {
            return *token;
        }
        let token = Token(index(tokens.texts.len()));
        let text: Arc<str> = text.into();
        tokens.texts.push(text.clone());
        tokens.by_text.insert(text, token);
        token
    }

    /// The text of a token that [`Names::token`] gave out.
    pub fn text(&self, token: Token) -> Arc<str> {
        lock(&self.tokens).texts.get(token.at()).expect("tokens come from this source").clone()
    }

    /// The number of a place.
    pub fn place_id(&self, place: &Place) -> PlaceId {
        let mut places = lock(&self.places);
        if let Some(id) = places.by_place.get(place) {
            return *id;
        }
        let id = PlaceId(index(places.places.len()));
        places.places.push(place.clone());
        places.by_place.insert(place.clone(), id);
        id
    }

    /// The place of a number that [`Names::place_id`] gave out.
    pub fn place(&self, id: PlaceId) -> Place {
        lock(&self.places).places.get(id.at()).expect("places come from this source").clone()
    }

    /// Some program looked at who it is.
    pub fn make_distinct(&self) {
        self.distinct.store(true, Ordering::Relaxed);
    }

    /// Whether ranks are interchangeable, as far as evaluated.
    pub fn symmetry(&self) -> Symmetry {
        if self.distinct.load(Ordering::Relaxed) { Symmetry::Distinct } else { Symmetry::Interchangeable }
    }

    /// Notes that an evaluation came by this named assumption.
    pub fn mention(&self, assumption: &str) {
        let mut mentioned = lock(&self.mentioned);
        if !mentioned.contains(assumption) {
            mentioned.insert(assumption.to_owned());
        }
    }

    /// The named assumptions that evaluations came by so far.
    pub fn mentioned(&self) -> BTreeSet<String> {
        lock(&self.mentioned).clone()
    }
}

/// Why an evaluation does not go on. The details are in the [`Recorder`]; hand it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A question has no answer yet, or the process ended.
    Asked,
    /// The program raised; [`Recorder::take_raise`] catches it.
    Raised,
    /// The program is wrong as a program.
    Wrong,
}

/// One evaluation of one thread.
pub struct Recorder {
    /// The rank that is evaluated.
    pub rank: Rank,
    /// How many ranks there are.
    pub ranks: u32,
    /// Where the thread starts. Slots name their thread by this number: each spawn makes an entry of its
    /// own, so on one rank an entry runs at most once.
    pub entry: Entry,
    /// Shared by all evaluations of the source.
    pub names: Arc<Names>,
    /// Set when the program looks at its rank number.
    pub read_rank: Arc<AtomicBool>,
    answers: Vec<Answer>,
    tape: RefCell<Tape>,
}

struct Tape {
    ops: Vec<Statement>,
    recorded: usize,
    asked: usize,
    next_slot: u32,
    hasher: FxHasher,
    /// Hash of everything up to the last answered question, which stood at this place.
    prefix: Option<(u64, PlaceId)>,
    end: Option<End>,
    raised: Option<(String, PlaceId)>,
    wrong: Option<SourceError>,
}

/// What one evaluation found.
#[derive(Debug)]
pub struct Evaluated {
    stretch: Stretch,
    prefix: Option<(u64, PlaceId)>,
    hash: u64,
    read_rank: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("rank", &self.rank)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

/// Whether an operation tells ranks apart: a root, a peer, a child communicator, or only some of the ranks.
fn names_ranks(verb: &Op, ranks: u32) -> bool {
    let world = |members: &[Rank]| members.iter().copied().eq((0..ranks).map(Rank));
    if let Op::Comm(CommOp::Init { members, .. })
    | Op::Barrier(BarrierOp::Enter { members })
    | Op::Barrier(BarrierOp::AllAgree { members, .. }) = verb
    {
        return !world(members);
    }
    // A broadcast and a reduce have a root; a gather and a scatter give each rank the place of its number in a buffer.
    let numbered = |kind| match kind {
        CollectiveKind::Broadcast { .. }
        | CollectiveKind::Reduce { .. }
        | CollectiveKind::AllGather
        | CollectiveKind::ReduceScatter => true,
        CollectiveKind::AllReduce => false,
    };
    // Memory of another rank is memory of one of them.
    let reaches = matches!(
        verb,
        Op::Ipc(IpcOp::Open { .. }) | Op::Exchange(ExchangeOp { .. }) | Op::Memory(MemoryOp::Expect { .. })
    );
    reaches
        || matches!(verb, Op::Comm(CommOp::Split { .. }) | Op::Transfer(_))
        || matches!(verb, Op::Collective(call) if numbered(call.kind))
}

impl Recorder {
    /// Starts an evaluation.
    pub fn new(names: Arc<Names>, rank: Rank, ranks: u32, entry: Entry, answers: &[Answer]) -> Self {
        let tape = Tape {
            ops: Vec::new(),
            recorded: 0,
            asked: 0,
            next_slot: 0,
            hasher: FxHasher::default(),
            prefix: None,
            end: None,
            raised: None,
            wrong: None,
        };
        let read_rank = Arc::new(AtomicBool::new(false));
        Self { rank, ranks, entry, names, read_rank, answers: answers.to_vec(), tape: RefCell::new(tape) }
    }

    /// Records an operation; gives the slot that it produces, if it does.
    ///
    /// # Errors
    /// [`Stop::Wrong`] once there are more than [`MAX_OPERATIONS`], or after another stop.
    pub fn record(&self, verb: Op, place: PlaceId) -> Result<Option<Slot>, Stop> {
        let mut tape = self.tape.borrow_mut();
        tape.running()?;
        tape.recorded += 1;
        if tape.recorded > MAX_OPERATIONS {
            let message =
                format!("more than {MAX_OPERATIONS} operations between two answers or in one program");
            let help = "the limit stops endless loops; shorten the loop";
            return Err(tape.fail(&self.names, message, Some(place), Some(help.to_owned())));
        }
        if names_ranks(&verb, self.ranks) {
            self.names.make_distinct();
        }
        (&verb, place).hash(&mut tape.hasher);
        let slots = verb.slots();
        if tape.asked == self.answers.len() {
            tape.ops.push(Statement { op: verb, place });
        }
        let slot = tape.next_slot;
        tape.next_slot += slots;
        Ok((slots > 0).then_some(self.slot(slot)))
    }

    /// The operation that is recorded next.
    ///
    /// # Panics
    /// Never: a program has far fewer operations.
    pub fn next_operation(&self) -> Operation {
        let tape = self.tape.borrow();
        let index = u32::try_from(tape.recorded + tape.asked).expect("operations are counted and limited");
        Operation { entry: self.entry, index }
    }

    /// Asks: gives the answer, and the first of the slots that it produces.
    ///
    /// # Errors
    /// [`Stop::Asked`] if there is no answer yet.
    pub fn ask(&self, question: Question, place: PlaceId) -> Result<(Answer, Slot), Stop> {
        let mut tape = self.tape.borrow_mut();
        tape.running()?;
        (&question, place).hash(&mut tape.hasher);
        let Some(answer) = self.answers.get(tape.asked).copied() else {
            tape.end = Some(End::Ask(question, place));
            return Err(Stop::Asked);
        };
        tape.asked += 1;
        tape.prefix = Some((tape.hasher.finish(), place));
        answer.hash(&mut tape.hasher);
        let slot = tape.next_slot;
        tape.next_slot += question.slots(answer);
        Ok((answer, self.slot(slot)))
    }

    /// The slot of this thread at an index.
    pub fn slot(&self, index: u32) -> Slot {
        Slot { entry: self.entry, index }
    }

    /// The index that the next slot will have.
    pub fn next_slot(&self) -> u32 {
        self.tape.borrow().next_slot
    }

    /// The program raises.
    pub fn raise(&self, message: String, place: PlaceId) -> Stop {
        let mut tape = self.tape.borrow_mut();
        if let Err(stop) = tape.running() {
            return stop;
        }
        tape.raised = Some((message, place));
        Stop::Raised
    }

    /// The process ended: nothing after this is recorded.
    pub fn end(&self) -> Stop {
        let mut tape = self.tape.borrow_mut();
        if tape.wrong.is_none() && tape.end.is_none() {
            tape.end = Some(End::Return);
        }
        Stop::Asked
    }

    /// Whether the evaluation stopped, for whatever reason.
    pub fn stopped(&self) -> bool {
        self.tape.borrow().running().is_err()
    }

    /// Catches what was raised, if the evaluation is unwinding because of that.
    pub fn take_raise(&self) -> Option<(String, PlaceId)> {
        self.tape.borrow_mut().raised.take()
    }

    /// The program is wrong as a program; the first such error stays.
    pub fn fail(&self, message: String, place: Option<PlaceId>, help: Option<String>) -> Stop {
        self.tape.borrow_mut().fail(&self.names, message, place, help)
    }

    /// Ends the evaluation, after the function returned or stopped. What was raised and not caught becomes
    /// [`ThreadOp::Exit`].
    ///
    /// # Errors
    /// When the program was found to be wrong, or did not ask what it asked the last time.
    pub fn finish(self) -> Result<Evaluated, SourceError> {
        if let Some((message, place)) = self.take_raise() {
            let code = self.names.token(&message);
            let stopped = self.record(Op::Thread(ThreadOp::Exit { code }), place);
            debug_assert_ne!(stopped, Err(Stop::Asked), "an evaluation that asked cannot raise");
        }
        let read_rank = self.read_rank.load(Ordering::Relaxed);
        if read_rank {
            self.names.make_distinct();
        }
        let tape = self.tape.into_inner();
        if let Some(wrong) = tape.wrong {
            return Err(wrong);
        }
        if tape.asked < self.answers.len() {
            return Err(impure(tape.prefix.map(|(_, place)| self.names.place(place))));
        }
        let hash = tape.hasher.finish();
        let stretch = Stretch { ops: tape.ops, end: tape.end.unwrap_or(End::Return) };
        Ok(Evaluated { stretch, prefix: tape.prefix, hash, read_rank })
    }
}

impl Tape {
    fn running(&self) -> Result<(), Stop> {
        if self.wrong.is_some() {
            Err(Stop::Wrong)
        } else if self.end.is_some() {
            Err(Stop::Asked)
        } else if self.raised.is_some() {
            Err(Stop::Raised)
        } else {
            Ok(())
        }
    }

    fn fail(&mut self, names: &Names, message: String, place: Option<PlaceId>, help: Option<String>) -> Stop {
        if self.wrong.is_none() {
            self.wrong = Some(SourceError { message, place: place.map(|id| names.place(id)), help });
        }
        Stop::Wrong
    }
}

fn impure(place: Option<Place>) -> SourceError {
    SourceError {
        message: "impure evaluation: with the same answers the program did something else".to_owned(),
        place,
        help: Some(
            "a program may depend on its arguments and on answers only, not on time, randomness or \
                    state that outlives an evaluation"
                .to_owned(),
        ),
    }
}

/// Stretches that were evaluated, by rank (or for all ranks, where the function never read its rank), entry
/// and answers.
#[derive(Debug, Default)]
pub struct Memo {
    known: Mutex<FxHashMap<(Option<Rank>, Entry), ByAnswers>>,
}

type ByAnswers = FxHashMap<Box<[Answer]>, Known>;

#[derive(Debug, Clone)]
struct Known {
    stretch: Arc<Stretch>,
    hash: u64,
}

impl Memo {
    fn known(&self, rank: Rank, entry: Entry, answers: &[Answer]) -> Option<Known> {
        let known = lock(&self.known);
        let of = |rank| known.get(&(rank, entry)).and_then(|by_answers| by_answers.get(answers));
        of(None).or_else(|| of(Some(rank))).cloned()
    }

    /// What was evaluated for these arguments before.
    pub fn get(&self, rank: Rank, entry: Entry, answers: &[Answer]) -> Option<Arc<Stretch>> {
        self.known(rank, entry, answers).map(|known| known.stretch)
    }

    /// Remembers an evaluation.
    ///
    /// # Errors
    /// When what comes before the last answer is not what was evaluated the last time.
    pub fn put(
        &self,
        names: &Names,
        rank: Rank,
        entry: Entry,
        answers: &[Answer],
        evaluated: Evaluated,
    ) -> Result<Arc<Stretch>, SourceError> {
        if let (Some((_, before)), Some((hash, place))) = (answers.split_last(), evaluated.prefix)
            && let Some(known) = self.known(rank, entry, before)
            && known.hash != hash
        {
            return Err(impure(Some(names.place(place))));
        }
        let stretch = Arc::new(evaluated.stretch);
        let known = Known { stretch: stretch.clone(), hash: evaluated.hash };
        let rank = evaluated.read_rank.then_some(rank);
        lock(&self.known).entry((rank, entry)).or_default().insert(answers.into(), known);
        Ok(stretch)
    }
}
