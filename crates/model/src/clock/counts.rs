//! A count for each actor, as a tree of which equal parts are shared.
//!
//! Clocks of a large job differ in the few actors that did something since they last met, so joining two of them
//! looks only at what they do not share, and what comes out shares the rest.
//! Not here: whose counts they are, and what they say.

use std::sync::Arc;

use smallvec::SmallVec;

/// Counts in a leaf, and children of a branch.
const FAN: usize = 16;

/// The counts of all actors, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts(Arc<Node>);

/// The counts of some actors in a row. The hash comes first: what differs nearly always differs in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    /// The sum of [`hash`] of the counts.
    hash: u64,
    sum: u64,
    part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Zeros stand where there is no actor.
    Leaf([u32; FAN]),
    /// Children with the counts of so many actors each. Behind the last actor one child of zeros stands everywhere.
    Branch(usize, [Arc<Node>; FAN]),
}

impl Counts {
    /// Of so many actors: zeros.
    pub(super) fn zeros(width: usize) -> Self {
        let mut node = Arc::new(Node::leaf(0, [0; FAN]));
        let mut span = FAN;
        while span < width {
            node = Arc::new(Node::branch(span, std::array::from_fn(|_| Arc::clone(&node))));
            span *= FAN;
        }
        Self(node)
    }

    /// Equal counts have equal hashes.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// Of all counts.
    pub(super) fn sum(&self) -> u64 {
        self.0.sum
    }

    /// The count at a place.
    #[inline]
    pub(super) fn at(&self, at: usize) -> u32 {
        self.leaf(at)[at % FAN]
    }

    /// The counts from a place on, as many as there is room for.
    pub(super) fn read(&self, first: usize, into: &mut [u32]) {
        for (at, into) in leaves(first, into.len()).zip(into.chunks_mut(FAN)) {
            into.copy_from_slice(&self.leaf(at)[at % FAN..][..into.len()]);
        }
    }

    #[inline]
    fn leaf(&self, mut at: usize) -> &[u32; FAN] {
        let mut node = &self.0;
        loop {
            match &node.part {
                Part::Leaf(counts) => return counts,
                Part::Branch(span, children) => {
                    node = &children[at / span];
                    at %= span;
                }
            }
        }
    }

    /// Whether they are one and the same, which is more than equal.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes the count at a place so large at least.
    pub(super) fn raise(&mut self, at: usize, to: u32) {
        if self.at(at) < to {
            raise(&mut self.0, 0, &[(at, &[to])]);
        }
    }

    /// Makes the counts of rows so large at least, each from a place on. They are in order, and none lies in two
    /// leaves unless it fills the first.
    pub(super) fn raise_rows<'a>(&mut self, rows: impl IntoIterator<Item = (usize, &'a [u32])>) {
        let parts = |(first, row): (usize, &'a [u32])| leaves(first, row.len()).zip(row.chunks(FAN));
        let higher = |(at, row): &(usize, &[u32])| {
            let leaf = &self.leaf(*at)[at % FAN..];
            row.iter().zip(leaf).any(|(count, known)| count > known)
        };
        let parts: SmallVec<[(usize, &[u32]); 2]> = rows.into_iter().flat_map(parts).filter(higher).collect();
        raise(&mut self.0, 0, &parts);
    }

    /// Makes each count as large as the other's at least.
    pub(super) fn join(&mut self, other: &Self) {
        if let Some(joined) = joined(0, &self.0, &other.0) {
            self.0 = joined;
        }
    }
}

/// Where the parts of a row begin that lie in one leaf each.
fn leaves(first: usize, len: usize) -> impl Iterator<Item = usize> {
    (first..first + len).step_by(FAN)
}

/// The hash of the counts from a place on: a sum, so that what is known of some actors can be taken out, and one count
/// changes it without a look at the others. Nothing known adds nothing.
pub(super) fn hash(first: usize, counts: &[u32]) -> u64 {
    (first..).zip(counts).fold(0, |sum, (at, &count)| sum.wrapping_add(placed(at, count)))
}

/// What a count adds to the hash.
fn placed(at: usize, count: u32) -> u64 {
    let mixed = ((at as u64) << 32 | u64::from(count)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    if count == 0 { 0 } else { mixed ^ mixed >> 29 }
}

impl Node {
    /// Of the counts from `first` on.
    fn leaf(first: usize, counts: [u32; FAN]) -> Self {
        let sum = counts.iter().map(|&count| u64::from(count)).sum();
        Self { hash: hash(first, &counts), sum, part: Part::Leaf(counts) }
    }

    fn branch(span: usize, children: [Arc<Self>; FAN]) -> Self {
        let hash = children.iter().map(|child| child.hash).fold(0, u64::wrapping_add);
        let sum = children.iter().map(|child| child.sum).sum();
        Self { hash, sum, part: Part::Branch(span, children) }
    }

    /// Changes a child.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Arc<Self>)) {
        let Part::Branch(_, children) = &mut self.part else { unreachable!("a leaf has no children") };
        let child = &mut children[at];
        let (hash, sum) = (child.hash, child.sum);
        change(child);
        self.hash = self.hash.wrapping_sub(hash).wrapping_add(child.hash);
        self.sum = self.sum - sum + child.sum;
    }
}

/// As [`Counts::raise_rows`], of the counts from `first` on; in place where nobody else has the node.
fn raise(node: &mut Arc<Node>, first: usize, mut rows: &[(usize, &[u32])]) {
    if let Part::Leaf(mut counts) = node.part {
        for (at, row) in rows {
            for (count, to) in counts[at - first..].iter_mut().zip(*row) {
                *count = (*count).max(*to);
            }
        }
        let leaf = Node::leaf(first, counts);
        match Arc::get_mut(node) {
            Some(node) => *node = leaf,
            None => *node = Arc::new(leaf),
        }
        return;
    }
    if rows.is_empty() {
        return;
    }
    let node = Arc::make_mut(node);
    let Part::Branch(span, _) = node.part else { unreachable!("it is no leaf") };
    while let Some((at, _)) = rows.first() {
        let of = (at - first) / span;
        let behind = first + (of + 1) * span;
        let (here, rest) = rows.split_at(rows.partition_point(|(at, _)| *at < behind));
        node.change(of, |child| raise(child, behind - span, here));
        rows = rest;
    }
}

/// Without a call: a leaf is short.
fn same(one: &[u32; FAN], other: &[u32; FAN]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// The larger of each two counts, from `first` on; `None` if these are all of `mine`.
fn joined(first: usize, mine: &Arc<Node>, theirs: &Arc<Node>) -> Option<Arc<Node>> {
    if Arc::ptr_eq(mine, theirs) {
        return None;
    }
    match (&mine.part, &theirs.part) {
        (Part::Leaf(one), Part::Leaf(other)) => {
            let mut counts = *one;
            for (count, other) in counts.iter_mut().zip(other) {
                *count = (*count).max(*other);
            }
            if same(&counts, one) {
                None
            } else if same(&counts, other) {
                Some(Arc::clone(theirs))
            } else {
                Some(Arc::new(Node::leaf(first, counts)))
            }
        }
        (Part::Branch(span, ones), Part::Branch(_, others)) => {
            // Of `mine`, as soon as a child of it is not what comes out.
            let mut node: Option<Node> = None;
            let mut all_theirs = true;
            for (at, (one, other)) in ones.iter().zip(others).enumerate() {
                let child = joined(first + at * span, one, other);
                all_theirs &= Arc::ptr_eq(child.as_ref().unwrap_or(one), other);
                if let Some(child) = child {
                    node.get_or_insert_with(|| Node::clone(mine)).change(at, |old| *old = child);
                }
            }
            if all_theirs { Some(Arc::clone(theirs)) } else { node.map(Arc::new) }
        }
        (Part::Leaf(_), Part::Branch(..)) | (Part::Branch(..), Part::Leaf(_)) => {
            unreachable!("clocks of one machine are equally wide")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(width: usize, random: &mut u32) -> (Counts, Vec<u32>) {
        let mut draw = || {
            *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *random >> 16
        };
        let plain: Vec<u32> = (0..width).map(|_| if draw() % 3 == 0 { draw() % 8 } else { 0 }).collect();
        (of(&plain), plain)
    }

    fn of(plain: &[u32]) -> Counts {
        let mut counts = Counts::zeros(plain.len());
        counts.raise_rows([(0, plain)]);
        counts
    }

    #[test]
    fn a_tree_does_what_a_list_does() {
        let mut random = 1;
        for width in [1, 2, 15, 16, 17, 256, 257, 300, 2048, 5000] {
            for _ in 0..20 {
                let ((mut one, mut plain), (other, other_plain)) =
                    (counts(width, &mut random), counts(width, &mut random));
                one.join(&other);
                for (mine, theirs) in plain.iter_mut().zip(&other_plain) {
                    *mine = (*mine).max(*theirs);
                }
                assert!((0..width).all(|at| one.at(at) == plain[at]));
                assert_eq!(one.sum(), plain.iter().map(|&count| u64::from(count)).sum::<u64>());
                let mut again = Counts::zeros(width);
                plain.iter().enumerate().rev().for_each(|(at, count)| again.raise(at, *count));
                assert_eq!((&one, one.hash()), (&again, again.hash()));
                assert!(other == one || other.hash() != one.hash());
                // What is known already changes nothing, and is not copied.
                let before = one.clone();
                one.join(&other);
                one.raise(width - 1, 0);
                assert!(one.is(&before));
            }
        }
    }
}
