//! A count for each actor, as a tree of which equal parts are shared.
//!
//! Clocks of a large job differ in the few actors that did something since they last met, so joining two of them
//! looks only at what they do not share, and what comes out shares the rest.
//! Not here: whose counts they are, and what they say.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

/// Counts in a leaf, and children of a branch.
const FAN: usize = 16;

/// The counts of all actors, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts(Arc<Node>);

/// The counts of some actors in a row. The hash comes first: what differs nearly always differs in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    /// Of the counts and their places in the row.
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
        let mut node = Arc::new(Node::leaf([0; FAN]));
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
    pub(super) fn at(&self, mut at: usize) -> u32 {
        let mut node = &self.0;
        loop {
            match &node.part {
                Part::Leaf(counts) => return counts[at],
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
            self.raise_all(&[(at, to)]);
        }
    }

    /// Makes the counts at places, which are in order, so large at least: as [`Counts::raise`] of each, with one
    /// visit to what several stand in.
    pub(super) fn raise_all(&mut self, to: &[(usize, u32)]) {
        raise_all(&mut self.0, 0, to);
    }

    /// Makes each count as large as the other's at least.
    pub(super) fn join(&mut self, other: &Self) {
        if let Some(joined) = joined(&self.0, &other.0) {
            self.0 = joined;
        }
    }
}

impl Node {
    fn leaf(counts: [u32; FAN]) -> Self {
        let mut hasher = FxBuildHasher.build_hasher();
        for pair in counts.chunks_exact(2) {
            hasher.write_u64(u64::from(pair[0]) << 32 | u64::from(pair[1]));
        }
        let sum = counts.iter().map(|&count| u64::from(count)).sum();
        Self { hash: hasher.finish(), sum, part: Part::Leaf(counts) }
    }

    fn branch(span: usize, children: [Arc<Self>; FAN]) -> Self {
        let hash = (0..).zip(&children).map(|(at, child)| placed(at, child.hash));
        let hash = hash.fold(0, u64::wrapping_add);
        let sum = children.iter().map(|child| child.sum).sum();
        Self { hash, sum, part: Part::Branch(span, children) }
    }

    /// Puts a child in the place of another.
    fn replace(&mut self, at: usize, child: Arc<Self>) {
        self.change(at, |old| *old = child);
    }

    /// Changes a child.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Arc<Self>)) {
        let Part::Branch(_, children) = &mut self.part else { unreachable!("a leaf has no children") };
        let child = &mut children[at];
        let (hash, sum) = (child.hash, child.sum);
        change(child);
        self.hash = self.hash.wrapping_sub(placed(at, hash)).wrapping_add(placed(at, child.hash));
        self.sum = self.sum - sum + child.sum;
    }
}

/// What a child adds to the hash: a sum of these changes with one child without a look at the others.
fn placed(at: usize, hash: u64) -> u64 {
    let mixed =
        (hash ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// As [`Counts::raise_all`], of the counts from `first` on; in place where nobody else has the node.
fn raise_all(node: &mut Arc<Node>, first: usize, mut to: &[(usize, u32)]) {
    if let Part::Leaf(mut counts) = node.part {
        for (at, to) in to {
            let count = &mut counts[at - first];
            *count = (*count).max(*to);
        }
        let leaf = Node::leaf(counts);
        match Arc::get_mut(node) {
            Some(node) => *node = leaf,
            None => *node = Arc::new(leaf),
        }
        return;
    }
    let node = Arc::make_mut(node);
    let Part::Branch(span, _) = node.part else { unreachable!("it is no leaf") };
    while let Some((at, _)) = to.first() {
        let of = (at - first) / span;
        let behind = first + (of + 1) * span;
        let (here, rest) = to.split_at(to.partition_point(|(at, _)| *at < behind));
        node.change(of, |child| raise_all(child, behind - span, here));
        to = rest;
    }
}

/// Without a call: a leaf is short.
fn same(one: &[u32; FAN], other: &[u32; FAN]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// The larger of each two counts; `None` if these are all of `mine`.
fn joined(mine: &Arc<Node>, theirs: &Arc<Node>) -> Option<Arc<Node>> {
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
                Some(Arc::new(Node::leaf(counts)))
            }
        }
        (Part::Branch(_, ones), Part::Branch(_, others)) => {
            // Of `mine`, as soon as a child of it is not what comes out.
            let mut node: Option<Node> = None;
            let mut all_theirs = true;
            for (at, (one, other)) in ones.iter().zip(others).enumerate() {
                let child = joined(one, other);
                all_theirs &= Arc::ptr_eq(child.as_ref().unwrap_or(one), other);
                if let Some(child) = child {
                    node.get_or_insert_with(|| Node::clone(mine)).replace(at, child);
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
        let places: Vec<(usize, u32)> = plain.iter().copied().enumerate().collect();
        counts.raise_all(&places);
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
