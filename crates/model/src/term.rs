//! Symbolic contents of memory: what each byte holds, as a term over the values that programs wrote.
//!
//! A range holds one term, or one term for each *share*: the elements that one rank's part of a kernel
//! writes. So a misregistration predicts *which* wrong data it leaves.
//! Not here: which kernel writes what.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::id::{ContentId, ContentIds, Token};
use crate::rank::Rank;

/// An interned term: made from its structure, which [`Terms`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

impl ContentId for Term {
    const NOUN: &'static str = "contents of memory";

    fn of_hash(hash: u64) -> Self {
        Self(hash)
    }
}

/// What a term is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TermNode {
    /// What a buffer of a rank held when it was allocated.
    Initial(Rank, Token),
    /// What a kernel writes: its name, the rank it ran on, and what it read.
    Kernel(Token, Rank, Vec<Term>),
    /// A reduction of one term for each member, in communicator order.
    Reduced(&'static str, Vec<Term>),
    /// Several pieces in a row, each with its length in bytes.
    Row(Vec<(Term, u64)>),
    /// Part of a term: byte offset and length.
    Part(Term, u64, u64),
    /// One term for each share of a range: [`Content::Shares`] as one term.
    Striped(Vec<Term>),
    /// What memory of this name held when nobody expected it to hold anything any more. As far as a search knows in which
    /// histories merge ([`crate::remembered`]), nobody looks at it.
    Forgotten(Token),
}

/// The number that a device run writes for [`TermNode::Initial`]: small, so that sums stay exact in `f32`.
#[must_use]
pub fn initial_number(rank: Rank, name: &str) -> u32 {
    1 + number((rank.0, name, 0_u8)) % 4093
}

/// What a device run adds for [`TermNode::Kernel`]: every element becomes this plus the elements read.
#[must_use]
pub fn kernel_number(rank: Rank, name: &str) -> u32 {
    1 + number((rank.0, name, 1_u8)) % 1021
}

fn number(of: impl Hash) -> u32 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    // The high half of a product depends on all bits of the hash.
    (hasher.finish().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// The contents of a range.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// One term in the whole range.
    Whole(Term),
    /// One term for each share, in communicator order; shares are interleaved stripes.
    Shares(Arc<[Term]>),
}

/// The table of terms.
#[derive(Debug, Default)]
pub struct Terms {
    nodes: ContentIds<Term, TermNode>,
    /// Whether any of them was forgotten.
    forgets: bool,
    /// Terms that were looked at and of which no part was forgotten.
    remembered: FxHashSet<Term>,
}

impl Terms {
    /// What a term is made of.
    ///
    /// # Panics
    /// If it is no term of this table.
    #[must_use]
    pub fn node(&self, term: Term) -> &TermNode {
        self.nodes.get(term).expect("a term of this table")
    }

    /// The term of a node.
    ///
    /// # Panics
    /// If another node has the same id by chance.
    pub fn intern(&mut self, node: TermNode) -> Term {
        // A part of a part is a part of the whole: what a range holds does not depend on the order in which its
        // neighbours were written.
        if let TermNode::Part(of, offset, len) = node {
            if let TermNode::Part(whole, base, _) = *self.node(of) {
                return self.intern(TermNode::Part(whole, base + offset, len));
            }
            // Nothing tells one part of it from another.
            if let TermNode::Forgotten(_) = self.node(of) {
                return of;
            }
        }
        self.forgets |= matches!(node, TermNode::Forgotten(_));
        self.nodes.id_of(&node, TermNode::clone)
    }

    /// What tells a content apart from others: equal for equal ones, in whatever order terms were made.
    pub(crate) fn shape_of(&self, content: &Content) -> Vec<u64> {
        let shares = match content {
            Content::Whole(term) => std::slice::from_ref(term),
            Content::Shares(shares) => shares,
        };
        shares.iter().map(|term| term.0).collect()
    }

    /// Whether all of a content was forgotten at once.
    pub(crate) fn is_forgotten(&self, content: &Content) -> bool {
        match content {
            Content::Whole(term) => self.forgets && matches!(self.node(*term), TermNode::Forgotten(_)),
            Content::Shares(_) => false,
        }
    }

    /// Whether some share differs of which nothing was forgotten.
    pub(crate) fn differ_surely(&mut self, one: &Content, other: &Content) -> bool {
        let pairs: Vec<(Term, Term)> = match (one, other) {
            (Content::Whole(one), Content::Whole(other)) => vec![(*one, *other)],
            (Content::Shares(shares), Content::Whole(whole))
            | (Content::Whole(whole), Content::Shares(shares)) => {
                shares.iter().map(|share| (*share, *whole)).collect()
            }
            (Content::Shares(one), Content::Shares(other)) if one.len() == other.len() => {
                one.iter().copied().zip(other.iter().copied()).collect()
            }
            (Content::Shares(_), Content::Shares(_)) => return false,
        };
        let mut known = |term: Term| self.forgotten_in(&Content::Whole(term)).is_empty();
        pairs.into_iter().any(|(one, other)| one != other && known(one) && known(other))
    }

    /// The names of the memory of which something was forgotten that a content is made of.
    pub(crate) fn forgotten_in(&mut self, content: &Content) -> BTreeSet<Token> {
        let mut names = BTreeSet::new();
        if !self.forgets {
            return names;
        }
        let mut open = match content {
            Content::Whole(term) => vec![*term],
            Content::Shares(shares) => shares.to_vec(),
        };
        let mut seen = FxHashSet::default();
        while let Some(term) = open.pop() {
            if self.remembered.contains(&term) || !seen.insert(term) {
                continue;
            }
            match self.node(term) {
                TermNode::Forgotten(name) => {
                    names.insert(*name);
                }
                TermNode::Initial(..) => {}
                TermNode::Kernel(_, _, parts) | TermNode::Reduced(_, parts) | TermNode::Striped(parts) => {
                    open.extend(parts);
                }
                TermNode::Row(parts) => open.extend(parts.iter().map(|(part, _)| part)),
                TermNode::Part(of, ..) => open.push(*of),
            }
        }
        if names.is_empty() {
            self.remembered.extend(seen);
        }
        names
    }

    /// One term for a content.
    pub(crate) fn whole(&mut self, content: &Content) -> Term {
        match content {
            Content::Whole(term) => *term,
            Content::Shares(shares) => self.intern(TermNode::Striped(shares.to_vec())),
        }
    }

    /// The same term after ranks were renumbered: `to[old] = new`.
    pub fn renumbered(&mut self, term: Term, to: &[Rank], memo: &mut FxHashMap<Term, Term>) -> Term {
        if let Some(done) = memo.get(&term) {
            return *done;
        }
        if let TermNode::Initial(rank, name) = *self.node(term) {
            return self.intern(TermNode::Initial(to[rank.at()], name));
        }
        let node = match self.node(term).clone() {
            TermNode::Initial(..) => unreachable!("renumbered above"),
            TermNode::Forgotten(name) => TermNode::Forgotten(name),
            TermNode::Kernel(name, rank, reads) => {
                TermNode::Kernel(name, to[rank.at()], self.renumber_all(&reads, to, memo))
            }
            TermNode::Reduced(op, parts) => TermNode::Reduced(op, self.renumber_members(&parts, to, memo)),
            TermNode::Striped(parts) => TermNode::Striped(self.renumber_members(&parts, to, memo)),
            TermNode::Row(parts) => {
                let moved = parts.into_iter().map(|(part, len)| (self.renumbered(part, to, memo), len));
                TermNode::Row(moved.collect())
            }
            TermNode::Part(of, offset, len) => TermNode::Part(self.renumbered(of, to, memo), offset, len),
        };
        let renumbered = self.intern(node);
        memo.insert(term, renumbered);
        renumbered
    }

    /// Members are the whole world in rank order wherever ranks are interchangeable.
    fn renumber_members(
        &mut self,
        terms: &[Term],
        to: &[Rank],
        memo: &mut FxHashMap<Term, Term>,
    ) -> Vec<Term> {
        let mut moved = terms.to_vec();
        for (old, term) in terms.iter().enumerate() {
            moved[to[old].at()] = self.renumbered(*term, to, memo);
        }
        moved
    }

    fn renumber_all(&mut self, terms: &[Term], to: &[Rank], memo: &mut FxHashMap<Term, Term>) -> Vec<Term> {
        terms.iter().map(|term| self.renumbered(*term, to, memo)).collect()
    }

    /// Contents in words: `r0.x`, `r0.x+r1.y`, `scale@r0(r0.x)`.
    ///
    /// `[4:8]` after something are its bytes 4 to 8, counted from where the memory starts that held it; before something,
    /// the bytes of the range that hold it. `8×` before a part of a sum says how often it is added. `share n` are the stripes
    /// that rank n's part of a kernel wrote.
    pub fn show(&self, content: &Content, name: &dyn Fn(Token) -> Arc<str>) -> String {
        let shares = match content {
            Content::Whole(term) => std::slice::from_ref(term),
            Content::Shares(shares) => shares,
        };
        let mut out = String::new();
        let printed = Printed { terms: self, name };
        printed.contents(&mut out, shares, None, 0);
        out
    }

    /// Where, within a range of a term, one thing ends and another begins, as deep as terms are printed.
    fn bounds(&self, term: Term, (start, end): (u64, u64), depth: u32, found: &mut TermBounds) {
        match self.node(term) {
            TermNode::Initial(..) | TermNode::Kernel(..) | TermNode::Forgotten(_) => {}
            // Stripes at the top are printed without going deeper: one level more than is printed is looked at.
            TermNode::Reduced(..) | TermNode::Striped(_) if depth > DEPTH + 1 => {}
            // The members of a job reduce the same terms again and again.
            TermNode::Reduced(..) | TermNode::Striped(_) if !found.of.insert((term, start, end, depth)) => {}
            TermNode::Reduced(_, parts) | TermNode::Striped(parts) => {
                parts.iter().for_each(|part| self.bounds(*part, (start, end), depth + 1, found));
            }
            TermNode::Part(of, offset, len) => {
                let end = end.min(*len);
                let mut inner = TermBounds::default();
                self.bounds(*of, (start + offset, end.saturating_add(*offset)), depth, &mut inner);
                found.at.extend(inner.at.into_iter().map(|at| at - offset));
                found.at.insert(end);
            }
            TermNode::Row(parts) => {
                let mut from = 0;
                for (part, len) in parts {
                    let to = from + len;
                    if to > start && from < end {
                        let mut inner = TermBounds::default();
                        let range = (start.saturating_sub(from), end.min(to) - from);
                        self.bounds(*part, range, depth, &mut inner);
                        found.at.extend(inner.at.into_iter().map(|at| at + from));
                        found.at.extend([from.max(start), to.min(end)]);
                    }
                    from = to;
                }
            }
        }
    }
}

/// Where things in a range end and begin, as they are found.
#[derive(Default)]
struct TermBounds {
    at: BTreeSet<u64>,
    /// The reductions and stripes that were looked into: which bytes, and how deep they lie.
    of: FxHashSet<(Term, u64, u64, u32)>,
}

/// How many reductions, kernels and stripes are printed within one another.
const DEPTH: u32 = 3;

/// So many equal parts of a sum in a row are counted.
const COUNTED_FROM: usize = 3;

/// Behind so many bytes of text what lies within a reduction is printed by a short name: eight of eight of eight are more than
/// anybody reads, and a report has a text for each buffer of each rank.
const LONG: usize = 500;

/// The parts of a sum, each with how often it is added in a row: members that hold the same bring equal ones.
fn counted(parts: &[Term]) -> Vec<(usize, Term)> {
    let alike = parts.chunk_by(|one, next| one == next);
    let counted = |run: &[Term]| {
        let (rows, times) = if run.len() < COUNTED_FROM { (run.len(), 1) } else { (1, run.len()) };
        std::iter::repeat_n((times, run[0]), rows)
    };
    alike.flat_map(counted).collect()
}

/// Terms on their way into words.
struct Printed<'a> {
    terms: &'a Terms,
    name: &'a dyn Fn(Token) -> Arc<str>,
}

/// Some bytes of a term; none for all of it.
type Bytes = Option<(u64, u64)>;

impl Printed<'_> {
    /// What some bytes hold: one thing after the other, each by its shares.
    fn contents(&self, out: &mut String, shares: &[Term], range: Bytes, depth: u32) {
        let mut found = TermBounds::default();
        let (start, end) = range.unwrap_or((0, u64::MAX));
        shares.iter().for_each(|share| self.terms.bounds(*share, (start, end), 0, &mut found));
        let mut bounds = found.at;
        bounds.insert(start);
        bounds.extend(range.map(|(_, end)| end));
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let pieces: Vec<(u64, u64)> = bounds.windows(2).map(|pair| (pair[0], pair[1])).collect();
        match pieces.as_slice() {
            // Where nothing ends, all of it is meant.
            [] => self.shares(out, shares, range, depth),
            [one] => self.shares(out, shares, Some(*one), depth),
            several => {
                for (position, piece) in several.iter().enumerate() {
                    if !self.separated(out, ", ", position, several.len()) {
                        break;
                    }
                    let _ = write!(out, "[{}:{}] ", piece.0 - start, piece.1 - start);
                    self.shares(out, shares, Some(*piece), depth);
                }
            }
        }
    }

    fn shares(&self, out: &mut String, shares: &[Term], range: Bytes, depth: u32) {
        match shares {
            [one] => {
                let (one, range) = self.held(*one, range);
                if let TermNode::Striped(shares) = self.terms.node(one) {
                    self.shares(out, shares, range, depth);
                } else {
                    self.term(out, one, range, depth);
                }
            }
            several => {
                for (share, term) in several.iter().enumerate() {
                    if !self.separated(out, " ", share, several.len()) {
                        break;
                    }
                    let _ = write!(out, "share {share}: ");
                    self.term(out, *term, range, depth);
                }
            }
        }
    }

    /// What holds some bytes of a term, and which bytes of that, where no row of it ends among them.
    fn held(&self, mut term: Term, mut range: Bytes) -> (Term, Bytes) {
        loop {
            match self.terms.node(term) {
                TermNode::Part(of, offset, len) => {
                    let (start, end) = range.unwrap_or((0, *len));
                    (term, range) = (*of, Some((start + offset, end + offset)));
                }
                TermNode::Row(parts) => {
                    let (start, end) = range.unwrap_or((0, u64::MAX));
                    let mut from = 0;
                    let piece = parts.iter().find(|(_, len)| {
                        from += len;
                        start < from
                    });
                    let Some((part, len)) = piece else { return (term, range) };
                    let first = from - len;
                    let within = (start - first, end.min(from) - first);
                    (term, range) = (*part, (within != (0, *len)).then_some(within));
                }
                TermNode::Initial(..)
                | TermNode::Kernel(..)
                | TermNode::Reduced(..)
                | TermNode::Striped(_)
                | TermNode::Forgotten(_) => return (term, range),
            }
        }
    }

    /// A term in a range in which no row of it ends.
    fn term(&self, out: &mut String, term: Term, range: Bytes, depth: u32) {
        let (term, range) = self.held(term, range);
        let slice = |out: &mut String| {
            if let Some((start, end)) = range {
                let _ = write!(out, "[{start}:{end}]");
            }
        };
        match self.terms.node(term) {
            // No piece of a row is there: the range leaves the memory.
            TermNode::Part(..) | TermNode::Row(_) => out.push_str("(bytes of no buffer)"),
            TermNode::Forgotten(token) => {
                let _ = write!(out, "(what {} held)", (self.name)(*token));
            }
            TermNode::Initial(rank, token) => {
                let _ = write!(out, "r{}.{}", rank.0, (self.name)(*token));
                slice(out);
            }
            // A chain of collectives doubles in print at each level; beyond these a short name says enough.
            TermNode::Kernel(..) | TermNode::Reduced(..) | TermNode::Striped(_)
                if depth > DEPTH || (depth > 0 && out.len() > LONG) =>
            {
                let _ = write!(out, "#{:08x}", term.0 as u32);
                slice(out);
            }
            TermNode::Kernel(token, rank, reads) => {
                let _ = write!(out, "{}@r{}(", (self.name)(*token), rank.0);
                for (position, read) in reads.iter().enumerate() {
                    if !self.separated(out, ", ", position, reads.len()) {
                        break;
                    }
                    self.nested(out, *read, None, depth);
                }
                out.push(')');
                slice(out);
            }
            TermNode::Reduced("sum", parts) => {
                if depth > 0 {
                    out.push('(');
                }
                self.all(out, &counted(parts), "+", (range, depth));
                if depth > 0 {
                    out.push(')');
                }
            }
            TermNode::Reduced(op, parts) => {
                out.push_str(op);
                out.push('(');
                let parts: Vec<(usize, Term)> = parts.iter().map(|part| (1, *part)).collect();
                self.all(out, &parts, ", ", (range, depth));
                out.push(')');
            }
            TermNode::Striped(_) => {
                out.push('(');
                self.shares(out, &[term], range, depth + 1);
                out.push(')');
            }
        }
    }

    /// The parts of a reduction, each with how often it comes in a row there.
    fn all(&self, out: &mut String, parts: &[(usize, Term)], between: &str, (range, depth): (Bytes, u32)) {
        for (position, (times, part)) in parts.iter().enumerate() {
            if !self.separated(out, between, position, parts.len()) {
                break;
            }
            if *times > 1 {
                let _ = write!(out, "{times}×");
            }
            self.term(out, *part, range, depth + 1);
        }
    }

    /// Contents within contents; in brackets where there are several things in a row.
    fn nested(&self, out: &mut String, term: Term, range: Bytes, depth: u32) {
        let mut inner = String::new();
        self.contents(&mut inner, &[term], range, depth + 1);
        let several = inner.starts_with('[') || inner.starts_with("share ");
        let _ = if several { write!(out, "({inner})") } else { write!(out, "{inner}") };
    }

    /// Separates an element from the one before; false where it and all that follow are only counted: eight members
    /// say what a thousand would.
    fn separated(&self, out: &mut String, between: &str, position: usize, of: usize) -> bool {
        if position > 0 {
            out.push_str(between);
        }
        if position == 8 && of > 9 {
            let _ = write!(out, "… {} more", of - position);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_words(terms: &Terms, term: Term) -> String {
        terms.show(&Content::Whole(term), &|_| "x".into())
    }

    #[test]
    fn equal_parts_of_a_sum_are_counted_from_three_on() {
        let mut terms = Terms::default();
        let of = [0, 1].map(|rank| terms.intern(TermNode::Initial(Rank(rank), Token(0))));
        let mut sum = |parts: &[Term]| terms.intern(TermNode::Reduced("sum", parts.into()));
        let twice = sum(&[of[0], of[0], of[1]]);
        let often = sum(&[of[1], of[0], of[0], of[0]]);
        let nested = sum(&[twice, twice, twice, twice]);
        assert_eq!(in_words(&terms, twice), "r0.x+r0.x+r1.x");
        assert_eq!(in_words(&terms, often), "r1.x+3×r0.x");
        assert_eq!(in_words(&terms, nested), "4×(r0.x+r0.x+r1.x)");
    }

    #[test]
    fn what_ranks_reduce_again_and_again_takes_few_words() {
        const RANKS: u32 = 64;
        let mut terms = Terms::default();
        let mut held: Vec<Term> =
            (0..RANKS).map(|rank| terms.intern(TermNode::Initial(Rank(rank), Token(0)))).collect();
        // No two parts of a sum are equal, so none is counted.
        for _ in 0..8 {
            let sum = |by: usize| {
                let mut parts = held.clone();
                parts.rotate_left(by);
                terms.intern(TermNode::Reduced("sum", parts))
            };
            held = (0..held.len()).map(sum).collect();
        }
        let words = in_words(&terms, held[0]);
        assert!(words.len() < 1_000, "{} bytes: {words}", words.len());
        assert!(words.contains('#'), "{words}");
    }
}
