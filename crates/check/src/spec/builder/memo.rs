//! What was evaluated before, and whether a program does the same the second time.
//!
//! Not here: the evaluation itself ([`super::Builder`]).

use std::sync::{Arc, Mutex};

use rankcheck_model::{Answer, Block, Loc, Rank, SourceError, ThreadStart};
use rustc_hash::FxHashMap;

use crate::spec::builder::Evaluated;
use crate::spec::builder::names::{SourceNames, lock};

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

type ByAnswers = FxHashMap<Box<[Answer]>, Remembered>;

#[derive(Debug, Clone)]
struct Remembered {
    block: Arc<Block>,
    hash: u64,
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
        let known = Remembered { block: block.clone(), hash: evaluated.hash };
        let rank = evaluated.read_rank.then_some(rank);
        lock(&self.known).entry((rank, start)).or_default().insert(answers.into(), known);
        Ok(block)
    }
}
