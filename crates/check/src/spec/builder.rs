//! Builds programs: the one way in which what somebody wrote becomes operations.
//!
//! A [`Builder`] evaluates one host thread of one rank until a question has no answer yet. Starlark programs and
//! Rust closures call the same verbs, which stand with their nouns ([`crate::spec::noun`]) and add their operations
//! here. An evaluation always starts from the beginning: what comes before the last answered question is only
//! hashed, so that a program that does something else the second time is caught. Not here: what operations mean.

mod memo;
mod names;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::Arc;

use rankcheck_model::{
    Answer, Block, LocId, Op, Operand, Operation, Question, Rank, Slot, SourceError, Statement, Terminator,
    ThreadOp, ThreadStart, Token,
};
use rustc_hash::FxHasher;

pub use memo::Memo;
pub use names::{SourceNames, Words};

use crate::spec::Param;
use crate::spec::error::{Wrong, loc_of_caller};
use crate::spec::handle::{take_tested, tested_message};
use crate::spec::noun::thread::Spawned;
use crate::spec::rank::RankRead;
use crate::spec::standing::{FunctionsKept, StandingAtQuestion};

/// How many operations one evaluation may add.
pub const MAX_OPERATIONS: usize = 1_000_000;

/// Why an evaluation does not go on. The details are in the [`Builder`]; hand it up with `?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A question has no answer yet, or the process ended.
    Asked,
    /// The program raised; [`Builder::attempt`] catches it.
    Raised,
    /// The program is wrong as a program.
    Wrong,
}

/// What every verb gives: its result, or the reason for which the evaluation stops here, which is handed up with `?`.
pub type Flow<T = ()> = Result<T, Stop>;

/// What all evaluations of one source share.
#[derive(Debug)]
pub(crate) struct Setting {
    /// How many ranks there are.
    pub(crate) ranks: u32,
    /// Names, locations and flags.
    pub(crate) names: SourceNames,
    /// The functions from which threads start.
    pub(crate) threads: Spawned,
    /// Parameters of the check.
    pub(crate) params: Vec<(String, Param)>,
    /// Assumptions that `may` takes to be false.
    pub(crate) assumed: Vec<String>,
    /// Whether some rank may declare an overlap.
    pub(crate) declares_overlap: bool,
}

/// Builds the program of one host thread of one rank: `r` of specs and of closures.
pub struct Builder {
    pub(crate) setting: Arc<Setting>,
    pub(crate) rank: Rank,
    /// What the thread runs. Slots name their thread by this number: each spawn makes one of its own, so on one
    /// rank at most one thread runs it.
    pub(crate) start: ThreadStart,
    /// Set when the program looks at its rank number.
    pub(crate) read_rank: Arc<RankRead>,
    answers: Vec<Answer>,
    /// The line that a verb is called from, where Rust cannot know.
    line: Cell<Option<LocId>>,
    /// How many blocks each pool gave.
    blocks: RefCell<BTreeMap<Token, u32>>,
    /// Whether objects keep functions of the program.
    pub(crate) functions_kept: FunctionsKept,
    /// How the evaluation stands where it asks.
    standing: RefCell<StandingAtQuestion>,
    progress: RefCell<Unfinished>,
}

/// How far an evaluation came.
struct Unfinished {
    ops: Vec<Statement>,
    added: usize,
    asked: usize,
    /// Where something was asked.
    asked_at: BTreeSet<LocId>,
    next_slot: u32,
    hasher: FxHasher,
    /// Hash of everything up to the last answered question, which stood at this location.
    prefix: Option<(u64, LocId)>,
    terminator: Option<Terminator>,
    raised: Option<(String, LocId)>,
    wrong: Option<SourceError>,
}

/// What one evaluation found.
#[derive(Debug)]
pub struct Evaluated {
    block: Block,
    prefix: Option<(u64, LocId)>,
    hash: u64,
    read_rank: bool,
    /// How the program stands where it asks.
    standing: StandingAtQuestion,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("rank", &self.rank)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Starts an evaluation of one thread, whose questions get these answers in order.
    pub(crate) fn new(setting: Arc<Setting>, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Self {
        let progress = Unfinished {
            ops: Vec::new(),
            added: 0,
            asked: 0,
            asked_at: BTreeSet::new(),
            next_slot: 0,
            hasher: FxHasher::default(),
            prefix: None,
            terminator: None,
            raised: None,
            wrong: None,
        };
        Self {
            setting,
            rank,
            start,
            read_rank: Arc::default(),
            answers: answers.to_vec(),
            line: Cell::new(None),
            blocks: RefCell::default(),
            functions_kept: FunctionsKept::default(),
            standing: RefCell::new(StandingAtQuestion::NotFollowed),
            progress: RefCell::new(progress),
        }
    }

    /// The verbs that follow are called from this line.
    pub(crate) fn called_from(&self, line: LocId) {
        self.line.set(Some(line));
    }

    /// The line that the verb is called from.
    #[track_caller]
    pub(crate) fn loc(&self) -> LocId {
        if let Some(line) = self.line.get() {
            return line;
        }
        self.setting.names.loc_id(&loc_of_caller(Location::caller()))
    }

    /// The token of a text.
    pub(crate) fn token(&self, text: &str) -> Token {
        self.setting.names.token(text)
    }

    /// Adds an operation that produces nothing.
    #[track_caller]
    pub(crate) fn add(&self, op: Op) -> Flow {
        self.add_at(op, self.loc()).map(|_| ())
    }

    /// Adds an operation that produces a slot.
    #[track_caller]
    pub(crate) fn add_result(&self, op: Op) -> Flow<Operand> {
        let slot = self.add_at(op, self.loc())?;
        Ok(Operand::Slot(slot.expect("callers pass operations that produce a slot")))
    }

    /// Adds an operation at a location; gives the first of the slots that it produces. What verbs do after a body of
    /// other lines goes to the line of the verb.
    pub(crate) fn add_at(&self, op: Op, loc: LocId) -> Flow<Option<Slot>> {
        self.conditions_are_known(loc)?;
        let mut progress = self.progress.borrow_mut();
        progress.running()?;
        progress.added += 1;
        if progress.added > MAX_OPERATIONS {
            let message =
                format!("more than {MAX_OPERATIONS} operations between two answers or in one program");
            let help = "the limit stops endless loops; shorten the loop";
            return Err(progress.fail(&self.setting.names, message, Some(loc), Some(help.to_owned())));
        }
        (&op, loc).hash(&mut progress.hasher);
        let slots = op.slots();
        if progress.asked == self.answers.len() {
            progress.ops.push(Statement { op: op.into(), loc });
        }
        let slot = progress.next_slot;
        progress.next_slot += slots;
        Ok((slots > 0).then_some(self.slot(slot)))
    }

    /// Asks: gives the answer, and the first of the slots that it produces.
    #[track_caller]
    pub(crate) fn ask(&self, question: Question) -> Flow<(Answer, Slot)> {
        self.ask_at(question, self.loc())
    }

    /// Asks what is true or false.
    #[track_caller]
    pub(crate) fn ask_whether(&self, question: Question) -> Flow<bool> {
        self.ask_at(question, self.loc()).map(|(answer, _)| answer != 0)
    }

    /// Asks at a location, as [`Builder::add_at`] adds.
    pub(crate) fn ask_at(&self, question: Question, loc: LocId) -> Flow<(Answer, Slot)> {
        self.conditions_are_known(loc)?;
        let mut progress = self.progress.borrow_mut();
        progress.running()?;
        (&question, loc).hash(&mut progress.hasher);
        let Some(answer) = self.answers.get(progress.asked).copied() else {
            progress.terminator = Some(Terminator::Ask(question, loc));
            return Err(Stop::Asked);
        };
        progress.asked += 1;
        progress.asked_at.insert(loc);
        progress.prefix = Some((progress.hasher.finish(), loc));
        answer.hash(&mut progress.hasher);
        let slot = progress.next_slot;
        progress.next_slot += question.slots(answer);
        Ok((answer, self.slot(slot)))
    }

    /// An error if Starlark used a result as a condition since the last verb.
    fn conditions_are_known(&self, loc: LocId) -> Flow {
        let Some(handle) = take_tested() else { return Ok(()) };
        let (message, help) = tested_message(handle);
        Err(self.fail(message, Some(loc), Some(help)))
    }

    /// The operation that is added next.
    pub(crate) fn next_operation(&self) -> Operation {
        let progress = self.progress.borrow();
        let index =
            u32::try_from(progress.added + progress.asked).expect("operations are counted and limited");
        Operation { start: self.start, index }
    }

    fn slot(&self, index: u32) -> Slot {
        Slot { start: self.start, index }
    }

    /// The index that the next slot will have.
    pub(crate) fn next_slot(&self) -> u32 {
        self.progress.borrow().next_slot
    }

    /// The answers that were used so far.
    pub(crate) fn answers_so_far(&self) -> &[Answer] {
        &self.answers[..self.progress.borrow().asked]
    }

    /// How many answers the evaluation was given.
    pub(crate) fn answers_given(&self) -> usize {
        self.answers.len()
    }

    /// The evaluation is over, and stood so.
    pub(crate) fn stands(&self, standing: StandingAtQuestion) {
        *self.standing.borrow_mut() = standing;
    }

    /// Adds what it has counted to a digest of how the evaluation stands, but for results.
    pub(crate) fn hash_counts(&self, hasher: &mut impl Hasher) {
        let Unfinished { added, asked, asked_at, .. } = &*self.progress.borrow();
        self.read_rank.is_read().hash(hasher);
        // Launches that overlap are known by their numbers.
        self.setting.declares_overlap.then_some(added + asked).hash(hasher);
        // What may follow a question is known by where it was asked.
        asked_at.hash(hasher);
        self.blocks.borrow().hash(hasher);
    }

    /// Counts a block of a pool; gives how many there were before.
    pub(crate) fn count_block(&self, pool: Token) -> u32 {
        let mut blocks = self.blocks.borrow_mut();
        let count = blocks.entry(pool).or_default();
        *count += 1;
        *count - 1
    }

    /// Notes that the program tells ranks apart, with the verb that is called.
    #[track_caller]
    pub(crate) fn tell_ranks_apart(&self) {
        let at = self.setting.names.loc(self.loc());
        self.setting.names.make_distinct(Some(at));
    }

    /// Raises at a location.
    pub(crate) fn raise_at(&self, message: String, loc: LocId) -> Stop {
        let mut progress = self.progress.borrow_mut();
        if let Err(stop) = progress.running() {
            return stop;
        }
        progress.raised = Some((message, loc));
        Stop::Raised
    }

    /// Ends the process: nothing after this is added.
    pub(crate) fn end(&self) -> Stop {
        let mut progress = self.progress.borrow_mut();
        if progress.wrong.is_none() && progress.terminator.is_none() {
            progress.terminator = Some(Terminator::Return);
        }
        Stop::Asked
    }

    /// Whether the evaluation stopped, for whatever reason.
    pub(crate) fn stopped(&self) -> bool {
        self.progress.borrow().running().is_err()
    }

    /// Catches what was raised, if the evaluation is unwinding because of that.
    pub(crate) fn take_raise(&self) -> Option<(String, LocId)> {
        self.progress.borrow_mut().raised.take()
    }

    /// Runs `leave` after a body, also while what was raised unwinds. Never after a question without an answer.
    pub(crate) fn finally<T, E>(
        &self,
        body: impl FnOnce() -> Result<T, E>,
        leave: impl FnOnce() -> Result<(), E>,
    ) -> Result<T, E> {
        match body() {
            Ok(value) => leave().map(|()| value),
            Err(error) => {
                let Some((message, loc)) = self.take_raise() else { return Err(error) };
                leave()?;
                self.raise_at(message, loc);
                Err(error)
            }
        }
    }

    /// The program is wrong where the verb is called.
    #[track_caller]
    pub(crate) fn wrong(&self, wrong: Wrong) -> Stop {
        self.fail(wrong.message, Some(self.loc()), Some(wrong.help))
    }

    /// The program is wrong as a program; the first such error stays.
    pub(crate) fn fail(&self, message: String, loc: Option<LocId>, help: Option<String>) -> Stop {
        self.progress.borrow_mut().fail(&self.setting.names, message, loc, help)
    }

    /// Ends the evaluation, after the function returned or stopped. What was raised and not caught becomes
    /// [`ThreadOp::Exit`].
    pub(crate) fn finish(self) -> Result<Evaluated, SourceError> {
        if let Some((message, loc)) = self.take_raise() {
            let code = self.token(&message);
            let stopped = self.add_at(Op::Thread(ThreadOp::Exit { code }), loc);
            debug_assert_ne!(stopped, Err(Stop::Asked), "an evaluation that asked cannot raise");
        }
        let read_rank = self.read_rank.is_read();
        if read_rank {
            self.setting.names.make_distinct(self.read_rank.at());
        }
        let progress = self.progress.into_inner();
        if let Some(wrong) = progress.wrong {
            return Err(wrong);
        }
        if progress.asked < self.answers.len() {
            let loc = progress.prefix.map(|(_, loc)| self.setting.names.loc(loc));
            return Err(memo::impure(loc));
        }
        let hash = progress.hasher.finish();
        let block =
            Block { ops: progress.ops, terminator: progress.terminator.unwrap_or(Terminator::Return) };
        let standing = match block.terminator {
            Terminator::Ask(..) => self.standing.take(),
            Terminator::Return | Terminator::Cut => StandingAtQuestion::Unknown,
        };
        Ok(Evaluated { block, prefix: progress.prefix, hash, read_rank, standing })
    }
}

impl Unfinished {
    fn running(&self) -> Flow {
        if self.wrong.is_some() {
            Err(Stop::Wrong)
        } else if self.terminator.is_some() {
            Err(Stop::Asked)
        } else if self.raised.is_some() {
            Err(Stop::Raised)
        } else {
            Ok(())
        }
    }

    fn fail(
        &mut self,
        names: &SourceNames,
        message: String,
        loc: Option<LocId>,
        help: Option<String>,
    ) -> Stop {
        if self.wrong.is_none() {
            self.wrong = Some(SourceError { message, loc: loc.map(|id| names.loc(id)), help });
        }
        Stop::Wrong
    }
}
