//! A program as a list of operations for each thread, with operations that run only if an answer is not 0.
//! Not here: what they mean, and where they come from.

mod kept;
mod listing;
mod shrink;
mod verbs;
mod words;

pub use kept::{Kept, Trial};
pub use shrink::shrunk;

use std::sync::{Arc, Mutex};

use rankcheck_model::{
    Answer, Block, Loc, LocId, Op, Operand, Operation, OverlapOp, Question, Rank, Slot, Source, SourceError,
    Statement, Symmetry, Terminator, ThreadStart, Token,
};

/// One item of a thread.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// An operation. What it says about others of its thread, it says by the indices of their items.
    Do(Op),
    /// A question; the operations run only if the answer is not 0. They may produce no slots.
    If(Question, Vec<Op>),
    /// What depends on an answer that was given before.
    Recall(Recall),
}

/// Operations that depend on the answer to an earlier question of their thread, and ask nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Recall {
    /// The position of the question among those of the thread.
    pub question: usize,
    /// What runs if the answer was not 0.
    pub then: Vec<Op>,
    /// What runs if it was 0. It produces as many slots.
    pub otherwise: Vec<Op>,
}

/// A program: for each rank the threads' items. Thread 0 starts by itself, thread n runs what is number n of its rank.
#[derive(Debug, Default)]
pub struct Script {
    /// The items in their order, as `ranks[rank][thread]`.
    pub ranks: Vec<Vec<Vec<Item>>>,
    names: Mutex<Vec<String>>,
    /// Whether ranks may be renumbered.
    pub interchangeable: bool,
}

impl Script {
    /// A program of so many ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        let script = Self { ranks: vec![vec![Vec::new()]; ranks], ..Self::default() };
        script.name("default");
        script
    }

    /// The token of a name.
    ///
    /// # Panics
    /// If another test panicked while naming.
    pub fn name(&self, name: &str) -> Token {
        let mut names = self.names.lock().expect("no test panics while naming");
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        Token(at as u64)
    }

    /// Adds an operation; returns the slot it produces, if it does.
    pub fn push(&mut self, rank: u32, thread: u32, verb: Op) -> Operand {
        self.add(rank, thread, Item::Do(verb))
    }

    /// Adds a question, and what is done where its answer is yes.
    pub fn ask(&mut self, rank: u32, thread: u32, question: Question, then: Vec<Op>) {
        self.ranks[rank as usize][thread as usize].push(Item::If(question, then));
    }

    /// Adds what depends on an earlier answer; returns the slot that its first operation produces, if it does.
    pub fn recall(&mut self, rank: u32, thread: u32, recall: Recall) -> Operand {
        self.add(rank, thread, Item::Recall(recall))
    }

    fn add(&mut self, rank: u32, thread: u32, item: Item) -> Operand {
        let items = &mut self.ranks[rank as usize][thread as usize];
        // Most calls produce nothing, and programs of benchmarks are long.
        let index = if item.slots() == 0 { 0 } else { items.iter().map(Item::slots).sum() };
        items.push(item);
        Operand::Slot(Slot { start: ThreadStart(thread.into()), index })
    }

    /// How many questions a thread has so far.
    #[must_use]
    pub fn questions(&self, rank: u32, thread: u32) -> usize {
        let items = &self.ranks[rank as usize][thread as usize];
        items.iter().filter(|item| matches!(item, Item::If(..))).count()
    }

    /// Adds a thread; the caller records the spawn.
    ///
    /// # Panics
    /// Never with the few threads of tests.
    pub fn thread(&mut self, rank: u32) -> u32 {
        let threads = &mut self.ranks[rank as usize];
        threads.push(Vec::new());
        u32::try_from(threads.len() - 1).expect("few threads")
    }
}

impl Item {
    /// The operations that it may run.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let (one, then, otherwise): (Option<&Op>, &[Op], &[Op]) = match self {
            Self::Do(op) => (Some(op), &[], &[]),
            Self::If(_, then) => (None, then, &[]),
            Self::Recall(Recall { then, otherwise, .. }) => (None, then, otherwise),
        };
        one.into_iter().chain(then).chain(otherwise)
    }

    fn slots(&self) -> u32 {
        match self {
            Self::Do(verb) => verb.slots(),
            Self::If(..) => 0,
            Self::Recall(recall) => recall.then.iter().map(Op::slots).sum(),
        }
    }
}

/// An operation as it is run: what it says about operations by their items, it says by their positions in the run.
fn located(op: &Op, start: ThreadStart, before: &[u32]) -> Op {
    let located = |of: &Operation| {
        let passed = before.get(of.index as usize).filter(|_| of.start == start);
        passed.map_or(*of, |passed| Operation { index: *passed, ..*of })
    };
    let Op::Overlap(OverlapOp { one, other }) = op else { return op.clone() };
    Op::Overlap(OverlapOp { one: located(one), other: located(other) })
}

impl Source for Script {
    fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError> {
        let items = &self.ranks[rank.at()][start.0 as usize];
        let mut given = answers.iter();
        let mut ops = Vec::with_capacity(items.len());
        // How many operations and questions stand before each item, with these answers.
        let (mut before, mut passed) = (Vec::with_capacity(items.len()), 0);
        // What ranks share has one location.
        let file = if self.interchangeable { 0 } else { rank.0 };
        for (line, item) in items.iter().enumerate() {
            let thread = u32::try_from(start.0).expect("few threads");
            let loc = LocId(file * 1_000_000 + thread * 10_000 + u32::try_from(line).expect("short"));
            before.push(passed);
            // What recalls an answer is no operation itself.
            passed += u32::from(!matches!(item, Item::Recall(_)));
            let statement = |op: &Op| Statement { op: located(op, start, &before).into(), loc };
            match item {
                Item::Do(op) => ops.push(statement(op)),
                Item::If(question, then) => match given.next() {
                    None => {
                        return Ok(Arc::new(Block {
                            ops,
                            terminator: Terminator::Ask(question.clone(), loc),
                        }));
                    }
                    Some(answer) => {
                        ops.clear();
                        if *answer != 0 {
                            ops.extend(then.iter().map(statement));
                            passed += u32::try_from(then.len()).expect("short");
                        }
                    }
                },
                Item::Recall(Recall { question, then, otherwise }) => {
                    // What was not asked was not answered with yes.
                    let yes = answers.get(*question).is_some_and(|answer| *answer != 0);
                    let run = if yes { then } else { otherwise };
                    ops.extend(run.iter().map(statement));
                    passed += u32::try_from(run.len()).expect("short");
                }
            }
        }
        Ok(Arc::new(Block { ops, terminator: Terminator::Return }))
    }

    fn token(&self, token: Token) -> Arc<str> {
        let names = self.names.lock().expect("no test panics while naming");
        names.get(token.0 as usize).map_or_else(|| "?".into(), |name| name.as_str().into())
    }

    fn loc(&self, loc: LocId) -> Loc {
        let file = format!("rank{}.thread{}", loc.0 / 1_000_000, loc.0 % 1_000_000 / 10_000);
        Loc { file: file.into(), line: loc.0 % 10_000 + 1, column: 1, called_at: None }
    }

    fn default_stream(&self) -> Token {
        Token(0)
    }

    fn symmetry(&self) -> Symmetry {
        if self.interchangeable { Symmetry::Interchangeable } else { Symmetry::Distinct }
    }

    fn declares_overlap(&self) -> bool {
        let declares = |item: &Item| matches!(item, Item::Do(Op::Overlap(OverlapOp { .. })));
        self.ranks.iter().flatten().flatten().any(declares)
    }
}
