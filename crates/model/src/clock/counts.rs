//! A count for each actor, as a tree of which equal parts are shared.
//!
//! Clocks of a large job differ in the few actors that did something since they last met, so joining two of them
//! looks only at what they do not share, and what comes out shares the rest.
//! Not here: whose counts they are, and what they say.

use std::sync::Arc;

use super::{NEAR, Row};

/// Rows in a leaf.
const ROWS: usize = 2;
/// Counts in a leaf, and children of a branch.
const FAN: usize = ROWS * NEAR;

/// The counts of all actors, in their order.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(super) struct Counts(Arc<CountNode>);

/// The counts of some actors in a row.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq, Eq))]
struct CountNode {
    /// The sum of [`hash`] of the counts.
    hash: u128,
    sum: u64,
    part: Part,
}

#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq, Eq))]
enum Part {
    /// Zeros stand where there is no actor.
    Leaf([Row; ROWS]),
    /// Children with the counts of so many actors each. Behind the last actor one child of zeros stands everywhere.
    Branch(usize, [Arc<CountNode>; FAN]),
}

impl Counts {
    /// Of so many actors: zeros.
    pub(super) fn zeros(width: usize) -> Self {
        let mut node = Arc::new(CountNode::leaf(0, [[0; NEAR]; ROWS]));
        let mut span = FAN;
        while span < width {
            node = Arc::new(CountNode::branch(span, std::array::from_fn(|_| Arc::clone(&node))));
            span *= FAN;
        }
        Self(node)
    }

    /// Equal counts have equal hashes.
    pub(super) fn hash(&self) -> u128 {
        self.0.hash
    }

    /// Returns the sum of all counts.
    pub(super) fn sum(&self) -> u64 {
        self.0.sum
    }

    /// The row in which an index lies.
    #[inline]
    pub(super) fn row(&self, mut at: usize) -> &Row {
        let mut node = &self.0;
        loop {
            match &node.part {
                Part::Leaf(rows) => return &rows[at / NEAR],
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

    /// Makes the counts of the row that begins at an index so large at least.
    pub(super) fn raise(&mut self, first: usize, row: &Row) {
        if self.is_behind(first, row) {
            raise(&mut self.0, 0, &[(first, row)]);
        }
    }

    /// As [`Counts::raise`] of each, which are in order, with one visit to what several stand in.
    pub(super) fn raise_all<'a>(&mut self, rows: impl Iterator<Item = (usize, &'a Row)>) {
        let rows: Vec<(usize, &Row)> = rows.filter(|(first, row)| self.is_behind(*first, row)).collect();
        if !rows.is_empty() {
            raise(&mut self.0, 0, &rows);
        }
    }

    fn is_behind(&self, first: usize, row: &Row) -> bool {
        self.row(first).iter().zip(row).any(|(known, count)| known < count)
    }

    /// Makes each count as large as the other's at least.
    pub(super) fn join(&mut self, other: &Self) {
        if let Some(joined) = joined(0, &self.0, &other.0) {
            self.0 = joined;
        }
    }
}

/// The hash of the counts from an index on: a sum, so that what is known of some actors can be taken out, and one count
/// changes it without a look at the others. Nothing known adds nothing.
pub(super) fn hash(first: usize, counts: &[u32]) -> u128 {
    (first..).zip(counts).fold(0, |sum, (at, &count)| sum.wrapping_add(placed(at, count)))
}

/// What a count adds to the hash.
fn placed(at: usize, count: u32) -> u128 {
    if count == 0 {
        return 0;
    }
    let placed = (at as u64) << 32 | u64::from(count);
    u128::from(mixed(placed, 0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(mixed(placed, 0xd1b5_4a32_d192_ed03))
}

/// Half of what a count adds: each starts from another multiple.
fn mixed(placed: u64, start: u64) -> u64 {
    let mixed = placed.wrapping_mul(start);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // Once more: in a sum, what index and count add to the high half apart would cancel out.
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl CountNode {
    /// Of the counts from `first` on.
    fn leaf(first: usize, rows: [Row; ROWS]) -> Self {
        let counts = rows.as_flattened();
        let sum = counts.iter().map(|&count| u64::from(count)).sum();
        Self { hash: hash(first, counts), sum, part: Part::Leaf(rows) }
    }

    fn branch(span: usize, children: [Arc<Self>; FAN]) -> Self {
        let hash = children.iter().map(|child| child.hash).fold(0, u128::wrapping_add);
        let sum = children.iter().map(|child| child.sum).sum();
        Self { hash, sum, part: Part::Branch(span, children) }
    }

    /// Changes a child, and keeps the hash and the sum of the branch right.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Arc<Self>)) {
        let Part::Branch(_, children) = &mut self.part else { unreachable!("a leaf has no children") };
        let child = &mut children[at];
        let (hash, sum) = (child.hash, child.sum);
        change(child);
        self.hash = self.hash.wrapping_sub(hash).wrapping_add(child.hash);
        self.sum = self.sum - sum + child.sum;
    }
}

/// As [`Counts::raise_all`], of the counts from `first` on; in place where nobody else has the node.
fn raise(node: &mut Arc<CountNode>, first: usize, mut rows: &[(usize, &Row)]) {
    if let Part::Leaf(mut known) = node.part {
        for (at, row) in rows {
            super::raise(&mut known[(at - first) / NEAR], row);
        }
        let leaf = CountNode::leaf(first, known);
        match Arc::get_mut(node) {
            Some(node) => *node = leaf,
            None => *node = Arc::new(leaf),
        }
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
fn same(one: &[Row; ROWS], other: &[Row; ROWS]) -> bool {
    let pairs = one.as_flattened().iter().zip(other.as_flattened());
    pairs.fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// The larger of each two counts, from `first` on; `None` if these are all of `mine`.
fn joined(first: usize, mine: &Arc<CountNode>, theirs: &Arc<CountNode>) -> Option<Arc<CountNode>> {
    if Arc::ptr_eq(mine, theirs) {
        return None;
    }
    match (&mine.part, &theirs.part) {
        (Part::Leaf(one), Part::Leaf(other)) => {
            let mut counts = *one;
            for (row, other) in counts.iter_mut().zip(other) {
                super::raise(row, other);
            }
            if same(&counts, one) {
                None
            } else if same(&counts, other) {
                Some(Arc::clone(theirs))
            } else {
                Some(Arc::new(CountNode::leaf(first, counts)))
            }
        }
        (Part::Branch(span, ones), Part::Branch(_, others)) => {
            // Of `mine`, as soon as a child of it is not what comes out.
            let mut node: Option<CountNode> = None;
            let mut all_theirs = true;
            for (at, (one, other)) in ones.iter().zip(others).enumerate() {
                let child = joined(first + at * span, one, other);
                all_theirs &= Arc::ptr_eq(child.as_ref().unwrap_or(one), other);
                if let Some(child) = child {
                    node.get_or_insert_with(|| CountNode::clone(mine)).change(at, |old| *old = child);
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
        let mut plain: Vec<u32> = (0..width).map(|_| if draw() % 3 == 0 { draw() % 8 } else { 0 }).collect();
        plain.resize(width.next_multiple_of(NEAR), 0);
        let mut counts = Counts::zeros(width);
        counts.raise_all(rows(&plain));
        (counts, plain)
    }

    fn rows(plain: &[u32]) -> impl DoubleEndedIterator<Item = (usize, &Row)> {
        plain.as_chunks().0.iter().enumerate().map(|(at, row)| (at * NEAR, row))
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
                assert!(rows(&plain).all(|(first, row)| one.row(first) == row));
                assert_eq!(one.sum(), plain.iter().map(|&count| u64::from(count)).sum::<u64>());
                assert_eq!(one.hash(), hash(0, &plain));
                let mut again = Counts::zeros(width);
                rows(&plain).rev().for_each(|(first, row)| again.raise(first, row));
                assert_eq!((&one, one.hash()), (&again, again.hash()));
                assert!(other == one || other.hash() != one.hash());
                // What is known already changes nothing, and is not copied.
                let before = one.clone();
                one.join(&other);
                one.raise(0, &[0; NEAR]);
                assert!(one.is(&before));
            }
        }
    }
}
