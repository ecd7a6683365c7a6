//! Programs that are another program with something changed: ranks told apart, one operation exchanged, a line moved.
//!
//! Not here: what is changed, and why.

use std::sync::{Arc, Mutex, PoisonError};

use rankcheck_model::{
    Answer, Block, Freed, Loc, LocId, Rank, Source, SourceError, Symmetry, ThreadStart, Token,
};
use rustc_hash::FxHashMap;

/// Whose block is being changed, and after which answers.
#[derive(Clone, Copy)]
pub(crate) struct BlockOf<'a> {
    /// World rank that runs it.
    pub(crate) rank: Rank,
    /// What its thread runs.
    pub(crate) start: ThreadStart,
    answers: &'a [Answer],
    source: &'a dyn Source,
}

impl BlockOf<'_> {
    /// How many operations and questions of the unchanged thread come before the block.
    pub(crate) fn first(self) -> Result<u32, SourceError> {
        let before = (0..self.answers.len()).map(|known| {
            let block = self.source.block(self.rank, self.start, &self.answers[..known])?;
            Ok(u32::try_from(block.ops.len()).expect("fewer than 2^32 operations") + 1)
        });
        before.sum()
    }
}

/// What a block becomes; none if it stays.
type BlockChange = dyn Fn(&Block, BlockOf<'_>) -> Result<Option<Block>, SourceError> + Send + Sync;

/// A program with its ranks told apart: a device's ranks have numbers, and so has what they write.
pub(crate) fn distinct(source: &Arc<dyn Source>) -> Arc<dyn Source> {
    let (inner, change) = (Arc::clone(source), None);
    Arc::new(Changed { inner, change, alike: false, known: Mutex::default() })
}

/// A program with some of its blocks changed. Its ranks are told apart.
pub(crate) fn changed(
    source: &Arc<dyn Source>,
    change: impl Fn(&Block, BlockOf<'_>) -> Result<Option<Block>, SourceError> + Send + Sync + 'static,
) -> Arc<dyn Source> {
    let (inner, change) = (Arc::clone(source), Box::new(change));
    Arc::new(Changed { inner, change: Some(change), alike: false, known: Mutex::default() })
}

/// A program that is changed in the same way on every rank, so that ranks stay interchangeable where they are.
pub(crate) fn alike(
    source: &Arc<dyn Source>,
    change: impl Fn(&Block) -> Option<Block> + Send + Sync + 'static,
) -> Arc<dyn Source> {
    let change = Box::new(move |block: &Block, _: BlockOf<'_>| Ok(change(block)));
    Arc::new(Changed {
        inner: Arc::clone(source),
        change: Some(change),
        alike: true,
        known: Mutex::default(),
    })
}

type ChangedBlocks = FxHashMap<(Rank, ThreadStart, Vec<Answer>), Arc<Block>>;

struct Changed {
    inner: Arc<dyn Source>,
    /// None where blocks stay as they are.
    change: Option<Box<BlockChange>>,
    /// Whether every rank is changed in the same way.
    alike: bool,
    known: Mutex<ChangedBlocks>,
}

impl Source for Changed {
    fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError> {
        let Some(change) = &self.change else { return self.inner.block(rank, start, answers) };
        let at = (rank, start, answers.to_vec());
        if let Some(block) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&at) {
            return Ok(Arc::clone(block));
        }
        let block = self.inner.block(rank, start, answers)?;
        let of = BlockOf { rank, start, answers, source: &*self.inner };
        let block = change(&block, of)?.map_or(block, Arc::new);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(at, Arc::clone(&block));
        Ok(block)
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.inner.token(token)
    }

    fn loc(&self, loc: LocId) -> Loc {
        self.inner.loc(loc)
    }

    fn folder(&self) -> &str {
        self.inner.folder()
    }

    fn default_stream(&self) -> Token {
        self.inner.default_stream()
    }

    fn symmetry(&self) -> Symmetry {
        if self.alike { self.inner.symmetry() } else { Symmetry::Distinct }
    }

    fn told_apart_at(&self) -> Option<Loc> {
        self.inner.told_apart_at()
    }

    fn waits_to_close(&self, close: LocId) -> bool {
        self.inner.waits_to_close(close)
    }

    fn skipped(&self, of: LocId, before: LocId) -> u32 {
        self.inner.skipped(of, before)
    }

    fn hides_order(&self) -> bool {
        self.inner.hides_order()
    }

    fn is_ordered(&self, at: LocId) -> bool {
        self.inner.is_ordered(at)
    }

    fn freed(&self, open: LocId) -> Freed {
        self.inner.freed(open)
    }

    fn declares_overlap(&self) -> bool {
        self.inner.declares_overlap()
    }
}
