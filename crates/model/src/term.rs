//! Symbolic contents of memory: what each byte holds, as a term over the values that programs wrote.
//!
//! A range holds one term, or one term for each *share*: the elements that one rank's part of a kernel
//! writes. So a misregistration predicts *which* wrong data it leaves.
//! Not here: which kernel writes what.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::rank::{Rank, Token};

/// An interned term: its number in [`Terms`]. Terms of one structure have one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u32);

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
    nodes: Vec<TermNode>,
    /// A hash of each term's structure, the same however terms were numbered.
    shapes: Vec<u64>,
    index: FxHashMap<TermNode, Term>,
}

impl Terms {
    /// What a term is made of.
    #[must_use]
    pub fn node(&self, term: Term) -> &TermNode {
        &self.nodes[term.0 as usize]
    }

    /// The term of a node.
    ///
    /// # Panics
    /// Beyond 2^32 terms.
    pub fn intern(&mut self, node: TermNode) -> Term {
        if let Some(term) = self.index.get(&node) {
            return *term;
        }
        // A part of a part is a part of the whole: what a range holds does not depend on the order in which its
        // neighbours were written. No part of a part is in the table, so only new terms are looked at.
        if let TermNode::Part(of, offset, len) = node
            && let TermNode::Part(whole, base, _) = self.nodes[of.0 as usize]
        {
            return self.intern(TermNode::Part(whole, base + offset, len));
        }
        let term = Term(u32::try_from(self.nodes.len()).expect("fewer than 2^32 terms"));
        self.shapes.push(self.shape(&node));
        self.nodes.push(node.clone());
        self.index.insert(node, term);
        term
    }

    fn shape(&self, node: &TermNode) -> u64 {
        let mut hasher = FxHasher::default();
        std::mem::discriminant(node).hash(&mut hasher);
        let all = |hasher: &mut FxHasher, parts: &[Term]| {
            for part in parts {
                self.shapes[part.0 as usize].hash(hasher);
            }
        };
        match node {
            TermNode::Initial(rank, name) => (rank, name).hash(&mut hasher),
            TermNode::Kernel(name, rank, reads) => {
                (name, rank).hash(&mut hasher);
                all(&mut hasher, reads);
            }
            TermNode::Reduced(op, parts) => {
                op.hash(&mut hasher);
                all(&mut hasher, parts);
            }
            TermNode::Row(parts) => {
                for (part, len) in parts {
                    (self.shapes[part.0 as usize], len).hash(&mut hasher);
                }
            }
            TermNode::Striped(parts) => all(&mut hasher, parts),
            TermNode::Part(of, offset, len) => {
                (self.shapes[of.0 as usize], offset, len).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// One term for a content.
    pub(crate) fn whole(&mut self, content: &Content) -> Term {
        match content {
            Content::Whole(term) => *term,
            Content::Shares(shares) => self.intern(TermNode::Striped(shares.to_vec())),
        }
    }

    /// Whether every part of a term is what this kernel wrote on this rank.
    #[must_use]
    pub fn written_by(&self, term: Term, kernel: Token, by: Rank) -> bool {
        match self.node(term) {
            TermNode::Kernel(name, rank, _) => (*name, *rank) == (kernel, by),
            TermNode::Part(of, ..) => self.written_by(*of, kernel, by),
            TermNode::Row(parts) => {
                !parts.is_empty() && parts.iter().all(|(part, _)| self.written_by(*part, kernel, by))
            }
            TermNode::Striped(parts) => parts.iter().all(|part| self.written_by(*part, kernel, by)),
            TermNode::Initial(..) | TermNode::Reduced(..) => false,
        }
    }

    /// The same term after ranks were renumbered: `to[old] = new`.
    pub fn renumbered(&mut self, term: Term, to: &[Rank], memo: &mut FxHashMap<Term, Term>) -> Term {
        if let Some(done) = memo.get(&term) {
            return *done;
        }
        if let TermNode::Initial(rank, name) = self.nodes[term.0 as usize] {
            return self.intern(TermNode::Initial(to[rank.at()], name));
        }
        let node = match self.nodes[term.0 as usize].clone() {
            TermNode::Initial(..) => unreachable!("renumbered above"),
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

    /// A term in words: `r0.x`, `r0.x+r1.y`, `scale(r0.x)`.
    pub fn show(&self, term: Term, name: &dyn Fn(Token) -> Arc<str>) -> String {
        let mut out = String::new();
        self.write(term, name, &mut out, 0);
        out
    }

    fn write(&self, term: Term, name: &dyn Fn(Token) -> Arc<str>, out: &mut String, depth: u32) {
        // A chain of collectives doubles in print at each level; beyond three a short name says enough.
        if depth > 3 {
            let _ = write!(out, "#{:08x}", self.shapes[term.0 as usize] as u32);
            return;
        }
        match &self.nodes[term.0 as usize] {
            TermNode::Initial(rank, token) => {
                let _ = write!(out, "r{}.{}", rank.0, name(*token));
            }
            TermNode::Kernel(token, rank, reads) => {
                let _ = write!(out, "{}@r{}", name(*token), rank.0);
                self.list(reads, ", ", name, out, depth);
            }
            TermNode::Reduced(op, parts) => match *op {
                "sum" if depth == 0 => self.joined(parts, "+", name, out, depth),
                "sum" => {
                    out.push('(');
                    self.joined(parts, "+", name, out, depth);
                    out.push(')');
                }
                other => {
                    out.push_str(other);
                    self.list(parts, ", ", name, out, depth);
                }
            },
            TermNode::Row(parts) => {
                let parts: Vec<Term> = parts.iter().map(|(part, _)| *part).collect();
                out.push('[');
                self.joined(&parts, " ", name, out, depth);
                out.push(']');
            }
            TermNode::Striped(parts) => {
                out.push('[');
                self.joined(parts, " ", name, out, depth);
                out.push(']');
            }
            TermNode::Part(of, offset, len) => {
                self.write(*of, name, out, depth + 1);
                let _ = write!(out, "[{offset}:{}]", offset + len);
            }
        }
    }

    fn list(
        &self,
        parts: &[Term],
        between: &str,
        name: &dyn Fn(Token) -> Arc<str>,
        out: &mut String,
        depth: u32,
    ) {
        out.push('(');
        self.joined(parts, between, name, out, depth);
        out.push(')');
    }

    fn joined(
        &self,
        parts: &[Term],
        between: &str,
        name: &dyn Fn(Token) -> Arc<str>,
        out: &mut String,
        depth: u32,
    ) {
        for (position, part) in parts.iter().enumerate() {
            if position > 0 {
                out.push_str(between);
            }
            // Eight members say what a thousand would.
            if position == 8 && parts.len() > 9 {
                let _ = write!(out, "… {} more", parts.len() - position);
                break;
            }
            self.write(*part, name, out, depth + 1);
        }
    }
}
