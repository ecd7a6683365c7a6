//! Knowledge that is recorded as it comes together, and worked out only for whoever asks.
//!
//! In a large job those who meet have each met others before, so no two of them share what they know, and joining it
//! would look at every actor of the job. Hardly anybody asks for it: nearly every question is about actors of one rank.
//! So a rendezvous leaves a *node*: the counts of its members and of those around them, and the nodes that they had come
//! from. Whoever asks about an actor far away looks through the nearest of them, and works the rest out once.
//! Not here: whose nodes they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashSet;

use super::counts::Counts;
use super::{NEAR, Row};

/// Nodes that are looked through for a count before all that is known is worked out: what was learned last is asked for
/// most often.
const LOOKED_THROUGH: usize = 32;

/// Tells nodes apart, also from those that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u64);

impl NodeId {
    /// The number of no node.
    pub(super) const NONE: Self = Self(0);

    fn next() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self(MADE.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A row of counts, with the index of its first.
pub(super) type PlacedRow = (usize, Row);

/// What is known after a rendezvous.
#[derive(Debug, Clone)]
pub(super) struct Deferred(Arc<KnowledgeNode>);

#[derive(Debug)]
struct KnowledgeNode {
    id: NodeId,
    /// Learned here; by place, each once.
    rows: Box<[PlacedRow]>,
    /// What was known before; nothing any more once `counts` are there.
    before: Mutex<Vec<Deferred>>,
    counts: OnceLock<Counts>,
}

impl Deferred {
    /// Counts that nothing is to be worked out of.
    pub(super) fn known(counts: Counts) -> Self {
        let node = KnowledgeNode {
            id: NodeId::next(),
            rows: Box::default(),
            before: Mutex::default(),
            counts: OnceLock::from(counts),
        };
        Self(Arc::new(node))
    }

    /// What these nodes know together, and these rows.
    pub(super) fn of(mut before: Vec<Self>, mut rows: Vec<PlacedRow>) -> Self {
        if !rows.is_sorted_by(|one, other| one.0 < other.0) {
            rows.sort_unstable_by_key(|(first, _)| *first);
            rows.dedup_by(|later, row| {
                let same = later.0 == row.0;
                if same {
                    super::raise(&mut row.1, &later.1);
                }
                same
            });
        }
        if let [only] = before.as_slice()
            && let Some(further) = only.behind(&rows)
        {
            before = further;
        }
        if before.len() < before.capacity() / 2 {
            before.shrink_to_fit();
        }
        let (before, counts) = (Mutex::new(before), OnceLock::new());
        Self(Arc::new(KnowledgeNode { id: NodeId::next(), rows: rows.into(), before, counts }))
    }

    /// What was known before this node, if these rows say all that its own say: so those who meet again and again leave
    /// no chain of nodes.
    fn behind(&self, rows: &[PlacedRow]) -> Option<Vec<Self>> {
        let own = &self.0.rows;
        let at_least = |(own, row): (&PlacedRow, &PlacedRow)| {
            own.0 == row.0 && own.1.iter().zip(&row.1).all(|(own, count)| own <= count)
        };
        if own.len() != rows.len() || !own.iter().zip(rows).all(at_least) {
            return None;
        }
        let before = self.before().clone();
        self.worked_out().is_none().then_some(before)
    }

    pub(super) fn id(&self) -> NodeId {
        self.0.id
    }

    /// The row from this index on, as far as it was learned at this node.
    pub(super) fn row_here(&self, first: usize) -> Option<&Row> {
        let rows = &self.0.rows;
        rows.binary_search_by_key(&first, |(first, _)| *first).ok().map(|at| &rows[at].1)
    }

    /// Whether the count at this index is known to be so large at least.
    pub(super) fn reaches(&self, at: usize, count: u32) -> bool {
        let enough = |row: &Row| row[at % NEAR] >= count;
        let first = at / NEAR * NEAR;
        let mut found: Vec<Self> = vec![self.clone()];
        let mut next = 0;
        while let Some(node) = found.get(next).cloned() {
            next += 1;
            if node.row_here(first).is_some_and(enough)
                || node.worked_out().is_some_and(|c| enough(c.row(at)))
            {
                return true;
            }
            let room = LOOKED_THROUGH - found.len().min(LOOKED_THROUGH);
            found.extend(node.before().iter().take(room).cloned());
        }
        enough(self.counts().row(at))
    }

    /// All counts, if somebody has asked for them.
    pub(super) fn worked_out(&self) -> Option<&Counts> {
        self.0.counts.get()
    }

    /// Returns all counts, which are worked out once.
    pub(super) fn counts(&self) -> &Counts {
        if let Some(counts) = self.worked_out() {
            return counts;
        }
        let counts = self.0.counts.get_or_init(|| self.work_out());
        let before = std::mem::take(&mut *self.before());
        // Not while it is locked: much may go with it.
        drop(before);
        counts
    }

    fn work_out(&self) -> Counts {
        let mut seen = FxHashSet::from_iter([self.id()]);
        let mut open = vec![self.clone()];
        let mut known: Vec<Self> = Vec::new();
        let mut rows: Vec<PlacedRow> = Vec::new();
        while let Some(node) = open.pop() {
            let before = node.before().clone();
            if node.worked_out().is_some() {
                known.push(node);
                continue;
            }
            rows.extend(&node.0.rows);
            open.extend(before.into_iter().filter(|before| seen.insert(before.id())));
        }
        let mut known = known.iter().filter_map(Self::worked_out);
        let mut counts = known.next().expect("every node comes from one that is known").clone();
        known.for_each(|others| counts.join(others));
        rows.sort_unstable_by_key(|(first, _)| *first);
        counts.raise_all(rows.iter().map(|(first, row)| (*first, row)));
        counts
    }

    fn before(&self) -> MutexGuard<'_, Vec<Self>> {
        self.0.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KnowledgeNode {
    fn drop(&mut self) {
        let before =
            |node: &mut Self| std::mem::take(node.before.get_mut().unwrap_or_else(PoisonError::into_inner));
        // A long chain would otherwise be dropped recursively.
        let mut open = before(self);
        while let Some(Deferred(node)) = open.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                open.append(&mut before(&mut node));
            }
        }
    }
}
