//! What was evaluated before, and whether a program does the same the second time.
//!
//! Not here: the evaluation itself ([`super::Builder`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rankcheck_model::{Answer, Block, Loc, LocId, Question, Rank, SourceError, Terminator, ThreadStart};
use rustc_hash::FxHashMap;

use crate::spec::builder::Evaluated;
use crate::spec::builder::names::{SourceNames, lock};
use crate::spec::standing::StandingAtQuestion;

pub(super) fn impure(loc: Option<Loc>) -> SourceError {
    SourceError {
        message: "impure evaluation: with the same answers the program did something else".to_owned(),
        loc,
        help: Some(
            "a program may depend on its arguments and on answers only, not on time, randomness or \
                    state that outlives an evaluation"
                .to_owned(),
        ),
    }
}

/// Blocks that were evaluated, by rank (or for all ranks, where the function never read its rank), start
/// and answers.
#[derive(Debug, Default)]
pub struct Memo {
    known: Mutex<FxHashMap<(Option<Rank>, ThreadStart), ByAnswers>>,
}

/// What a thread runs, how many answers it was given, and which.
type Node<'a> = (ThreadStart, usize, &'a [Answer]);

type ByAnswers = FxHashMap<Box<[Answer]>, Remembered>;

#[derive(Debug, Clone)]
struct Remembered {
    block: Arc<Block>,
    hash: u64,
    standing: StandingAtQuestion,
}

impl Memo {
    fn known(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Option<Remembered> {
        let known = lock(&self.known);
        let of = |rank| known.get(&(rank, start)).and_then(|by_answers| by_answers.get(answers));
        of(None).or_else(|| of(Some(rank))).cloned()
    }

    /// What was evaluated for these arguments before.
    pub fn get(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Option<Arc<Block>> {
        self.known(rank, start, answers).map(|known| known.block)
    }

    /// How the program stands behind what was evaluated for these arguments.
    pub fn standing(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> StandingAtQuestion {
        self.known(rank, start, answers).map(|known| known.standing).unwrap_or_default()
    }

    /// Remembers an evaluation.
    ///
    /// # Errors
    /// When what comes before the last answer is not what was evaluated the last time.
    pub fn put(
        &self,
        names: &SourceNames,
        rank: Rank,
        start: ThreadStart,
        answers: &[Answer],
        evaluated: Evaluated,
    ) -> Result<Arc<Block>, SourceError> {
        if let (Some((_, before)), Some((hash, loc))) = (answers.split_last(), evaluated.prefix)
            && let Some(known) = self.known(rank, start, before)
            && known.hash != hash
        {
            return Err(impure(Some(names.loc(loc))));
        }
        let block = Arc::new(evaluated.block);
        let known = Remembered { block: block.clone(), hash: evaluated.hash, standing: evaluated.standing };
        let rank = evaluated.read_rank.then_some(rank);
        lock(&self.known).entry((rank, start)).or_default().insert(answers.into(), known);
        Ok(block)
    }

    /// The answers after which no rank acts, to questions that have another answer after which one does.
    pub fn idle_sides(&self) -> Vec<(Question, LocId, Answer)> {
        let known = lock(&self.known);
        // A function that reads its rank after a question was known for all ranks before it: sides of one start are joined.
        let mut nodes: BTreeMap<Node<'_>, (bool, Option<&Terminator>)> = BTreeMap::new();
        for ((_, start), by_answers) in known.iter() {
            for (answers, Remembered { block, .. }) in by_answers {
                let acts = block.ops.iter().any(|statement| statement.op.acts());
                let node = nodes.entry((*start, answers.len(), answers)).or_default();
                node.0 |= acts;
                node.1.get_or_insert(&block.terminator);
            }
        }
        // The longest first, so that what comes after an answer is known before what comes before it.
        let keys: Vec<_> = nodes.keys().rev().copied().collect();
        let mut sides: BTreeMap<(LocId, Answer), (bool, &Question)> = BTreeMap::new();
        for (start, len, answers) in keys {
            let acts = nodes[&(start, len, answers)].0;
            let Some((answer, before)) = answers.split_last() else { continue };
            let Some(parent) = nodes.get_mut(&(start, len - 1, before)) else { continue };
            parent.0 |= acts;
            if let Some(Terminator::Ask(question, loc)) = parent.1 {
                let side = sides.entry((*loc, *answer)).or_insert((false, question));
                side.0 |= acts;
            }
        }
        let acting: Vec<LocId> =
            sides.iter().filter(|(_, (acts, _))| *acts).map(|((loc, _), _)| *loc).collect();
        let idle = sides.into_iter().filter(|((loc, _), (acts, _))| !acts && acting.contains(loc));
        idle.map(|((loc, answer), (_, question))| (question.clone(), loc, answer)).collect()
    }
}
