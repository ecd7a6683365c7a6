//! The numbers that a device holds where the model holds a term.
//!
//! A device run writes [`initial_number`] for what a buffer held at first and adds [`kernel_number`] in
//! kernels. All are small whole numbers, so sums and products are exact until they pass what the element type
//! can tell apart; beyond that, and where lengths do not fit, there is no number and nothing is compared.
//! Not here: terms ([`crate::term`]), and what a device held.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::id::Token;
use crate::program::Dtype;
use crate::term::{Content, Term, TermNode, Terms, initial_number, kernel_number};

/// Bytes of one share before the next begins: measured for the symmetric all-reduce on 2.28.9.
pub const STRIPE_BYTES: u64 = 2048;

/// Bytes that hold one number, or one number for each share.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// One number for each share, in communicator order; one alone where all shares are equal.
    pub shares: Vec<f64>,
    /// How many bytes the run covers.
    pub len_bytes: u64,
}

/// The largest number up to which an element type has every whole number; none for types that no program is
/// compared in.
#[must_use]
pub fn exact_up_to(element: Dtype) -> Option<f64> {
    match element {
        Dtype::F32 => Some(f64::from(1_u32 << 24)),
        Dtype::I32 => Some(f64::from(i32::MAX)),
        Dtype::F64 | Dtype::I64 => Some((1_u64 << 53) as f64),
        Dtype::F16 | Dtype::Bf16 | Dtype::I8 | Dtype::U8 | Dtype::Fp8 | Dtype::Invalid => None,
    }
}

/// Turns terms into numbers.
pub struct Numbers<'a> {
    terms: &'a Terms,
    name: &'a dyn Fn(Token) -> Arc<str>,
    element: Dtype,
    /// Terms share parts; each is looked at once for each length.
    known: FxHashMap<(Term, u64), Option<Vec<Run>>>,
}

impl<'a> Numbers<'a> {
    /// The numbers of these terms, in this element type.
    #[must_use]
    pub fn new(terms: &'a Terms, name: &'a dyn Fn(Token) -> Arc<str>, element: Dtype) -> Self {
        Self { terms, name, element, known: FxHashMap::default() }
    }

    /// What a range of this length holds.
    pub fn content(&mut self, content: &Content, len_bytes: u64) -> Option<Vec<Run>> {
        match content {
            Content::Whole(term) => self.term(*term, len_bytes),
            Content::Shares(terms) => self.striped(terms, len_bytes),
        }
    }

    fn term(&mut self, term: Term, len_bytes: u64) -> Option<Vec<Run>> {
        if let Some(known) = self.known.get(&(term, len_bytes)) {
            return known.clone();
        }
        let runs = self.node(self.terms.node(term), len_bytes).filter(|runs| self.exact(runs));
        self.known.insert((term, len_bytes), runs.clone());
        runs
    }

    fn node(&mut self, node: &TermNode, len_bytes: u64) -> Option<Vec<Run>> {
        match node {
            TermNode::Initial(rank, token) => {
                Some(everywhere(f64::from(initial_number(*rank, &(self.name)(*token))), len_bytes))
            }
            TermNode::Kernel(token, rank, reads) => {
                let own = f64::from(kernel_number(*rank, &(self.name)(*token)));
                let reads = self.all(reads, len_bytes)?;
                fold(&reads, len_bytes, |read| Some(own + read.sum::<f64>()))
            }
            TermNode::Reduced(op, parts) => {
                let count = parts.len() as f64;
                let parts = self.all(parts, len_bytes)?;
                fold(&parts, len_bytes, |parts| match *op {
                    "sum" => Some(parts.sum()),
                    "prod" => Some(parts.product()),
                    "min" => parts.reduce(f64::min),
                    "max" => parts.reduce(f64::max),
                    // Only halves of halves are exact in every order of multiplication and addition.
                    "avg" => Some(parts.sum::<f64>() / count).filter(|_| exactly_divides(count)),
                    other => unreachable!("no reduction is called {other}"),
                })
            }
            // What nobody wrote, and what nobody looked at.
            TermNode::Row(parts) if parts.is_empty() => None,
            TermNode::Forgotten(_) => None,
            TermNode::Row(parts) => {
                // Where nothing was written yet, nothing is known.
                if parts.iter().map(|(_, len)| len).sum::<u64>() < len_bytes {
                    return None;
                }
                let mut row = Vec::new();
                for (part, len) in parts {
                    row.extend(self.term(*part, *len)?);
                }
                Some(row)
            }
            TermNode::Part(of, offset, len) => cut(&self.term(*of, offset + len)?, *offset, *len),
            TermNode::Striped(parts) => self.striped(parts, len_bytes),
        }
    }

    fn all(&mut self, terms: &[Term], len_bytes: u64) -> Option<Vec<Vec<Run>>> {
        terms.iter().map(|term| self.term(*term, len_bytes)).collect()
    }

    /// The n-th share holds what the n-th term holds there.
    fn striped(&mut self, terms: &[Term], len_bytes: u64) -> Option<Vec<Run>> {
        let parts = self.all(terms, len_bytes)?;
        let count = parts.len();
        let pieces = aligned(&parts, len_bytes)?;
        let runs = pieces.into_iter().map(|(len_bytes, pieces)| {
            let shares = pieces.iter().enumerate().map(|(nth, shares)| match shares.len() {
                1 => Some(shares[0]),
                same if same == count => Some(shares[nth]),
                _ => None,
            });
            Some(Run { shares: merged(shares.collect::<Option<_>>()?), len_bytes })
        });
        runs.collect()
    }

    fn exact(&self, runs: &[Run]) -> bool {
        let Some(limit) = exact_up_to(self.element) else { return false };
        let whole = matches!(self.element, Dtype::I32 | Dtype::I64);
        runs.iter()
            .flat_map(|run| &run.shares)
            .all(|number| number.abs() <= limit && (!whole || number.fract() == 0.0))
    }
}

fn everywhere(number: f64, len_bytes: u64) -> Vec<Run> {
    vec![Run { shares: vec![number], len_bytes }]
}

fn exactly_divides(count: f64) -> bool {
    count.log2().fract() == 0.0
}

/// One number where all shares are equal.
fn merged(shares: Vec<f64>) -> Vec<f64> {
    match shares.split_first() {
        Some((first, rest)) if rest.iter().all(|share| share == first) => vec![*first],
        Some(_) | None => shares,
    }
}

/// A part of a range; shares are cut only between full cycles of their stripes.
fn cut(runs: &[Run], offset_bytes: u64, len_bytes: u64) -> Option<Vec<Run>> {
    let (start, end) = (offset_bytes, offset_bytes + len_bytes);
    let mut out = Vec::new();
    let mut at = 0;
    for run in runs {
        let (from, to) = (at.max(start), (at + run.len_bytes).min(end));
        if from < to {
            let cycle = run.shares.len() as u64 * STRIPE_BYTES;
            // The length of a run that is alone is a guess of whoever asked.
            let whole = runs.len() > 1 && to - from == run.len_bytes;
            let between = (from - at).is_multiple_of(cycle) && (to - from).is_multiple_of(cycle);
            if run.shares.len() > 1 && !whole && !between {
                return None;
            }
            out.push(Run { shares: run.shares.clone(), len_bytes: to - from });
        }
        at += run.len_bytes;
    }
    (out.iter().map(|run| run.len_bytes).sum::<u64>() == len_bytes).then_some(out)
}

/// All parts cut at the same offsets: for each piece its length and the shares of every part.
fn aligned(parts: &[Vec<Run>], len_bytes: u64) -> Option<Vec<(u64, Vec<Vec<f64>>)>> {
    // A part that is the same everywhere fits any length.
    if parts.iter().all(|part| part.len() == 1) {
        return Some(vec![(len_bytes, parts.iter().map(|part| part[0].shares.clone()).collect())]);
    }
    let mut ends: Vec<u64> = Vec::new();
    for part in parts.iter().filter(|part| part.len() != 1) {
        let mut at = 0;
        ends.extend(part.iter().map(|run| {
            at += run.len_bytes;
            at
        }));
        if at != len_bytes {
            return None;
        }
    }
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut pieces = Vec::new();
    for end in ends {
        let shares = parts.iter().map(|part| {
            let whole = Run { len_bytes, ..part[0].clone() };
            let runs = if part.len() == 1 { std::slice::from_ref(&whole) } else { part.as_slice() };
            Some(cut(runs, start, end - start)?.swap_remove(0).shares)
        });
        pieces.push((end - start, shares.collect::<Option<_>>()?));
        start = end;
    }
    Some(pieces)
}

/// Combines two runs element by element.
fn fold(
    parts: &[Vec<Run>],
    len_bytes: u64,
    each: impl Fn(&mut dyn Iterator<Item = f64>) -> Option<f64>,
) -> Option<Vec<Run>> {
    let pieces = aligned(parts, len_bytes)?;
    let runs = pieces.into_iter().map(|(len_bytes, pieces)| {
        let count = pieces.iter().map(Vec::len).max().unwrap_or(1);
        if pieces.iter().any(|shares| shares.len() != 1 && shares.len() != count) {
            return None;
        }
        let shares = (0..count).map(|share| {
            each(&mut pieces.iter().map(|shares| shares[if shares.len() == 1 { 0 } else { share }]))
        });
        Some(Run { shares: merged(shares.collect::<Option<_>>()?), len_bytes })
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Rank;

    fn name(token: Token) -> Arc<str> {
        ["x", "y", "add"][token.0 as usize].into()
    }

    fn numbers(terms: &Terms, content: &Content, len_bytes: u64) -> Option<Vec<Run>> {
        Numbers::new(terms, &name, Dtype::F32).content(content, len_bytes)
    }

    #[test]
    fn sums_and_kernels_are_element_by_element() {
        let mut terms = Terms::default();
        let x0 = terms.intern(TermNode::Initial(Rank(0), Token(0)));
        let x1 = terms.intern(TermNode::Initial(Rank(1), Token(0)));
        let sum = terms.intern(TermNode::Reduced("sum", vec![x0, x1]));
        let added = terms.intern(TermNode::Kernel(Token(2), Rank(1), vec![sum, x0]));
        let (n0, n1) = (initial_number(Rank(0), "x"), initial_number(Rank(1), "x"));
        let right = f64::from(2 * n0 + n1 + kernel_number(Rank(1), "add"));
        assert_eq!(numbers(&terms, &Content::Whole(added), 4096), Some(everywhere(right, 4096)));
    }

    #[test]
    fn shares_stay_apart_until_they_are_equal() {
        let mut terms = Terms::default();
        let x0 = terms.intern(TermNode::Initial(Rank(0), Token(0)));
        let x1 = terms.intern(TermNode::Initial(Rank(1), Token(0)));
        let (n0, n1) = (f64::from(initial_number(Rank(0), "x")), f64::from(initial_number(Rank(1), "x")));
        let shares = Content::Shares([x0, x1].into());
        assert_eq!(numbers(&terms, &shares, 8192), Some(vec![Run { shares: vec![n0, n1], len_bytes: 8192 }]));
        let striped = terms.intern(TermNode::Striped(vec![x0, x1]));
        let twisted = terms.intern(TermNode::Striped(vec![x1, x0]));
        let sum = terms.intern(TermNode::Reduced("sum", vec![striped, twisted]));
        assert_eq!(numbers(&terms, &Content::Whole(sum), 8192), Some(everywhere(n0 + n1, 8192)));
        let part = terms.intern(TermNode::Part(striped, 4096, 4096));
        let same = Run { shares: vec![n0, n1], len_bytes: 4096 };
        assert_eq!(numbers(&terms, &Content::Whole(part), 4096), Some(vec![same]));
        let inside_a_turn = terms.intern(TermNode::Part(striped, 0, 2048));
        assert_eq!(numbers(&terms, &Content::Whole(inside_a_turn), 2048), None);
    }

    #[test]
    fn rows_are_cut_where_any_of_them_changes() {
        let mut terms = Terms::default();
        let x = terms.intern(TermNode::Initial(Rank(0), Token(0)));
        let y = terms.intern(TermNode::Initial(Rank(0), Token(1)));
        let early = terms.intern(TermNode::Row(vec![(x, 1024), (y, 3072)]));
        let late = terms.intern(TermNode::Row(vec![(x, 3072), (y, 1024)]));
        let sum = terms.intern(TermNode::Reduced("sum", vec![early, late]));
        let runs = numbers(&terms, &Content::Whole(sum), 4096).expect("lengths fit");
        assert_eq!(runs.iter().map(|run| run.len_bytes).collect::<Vec<_>>(), [1024, 2048, 1024]);
        assert_eq!(numbers(&terms, &Content::Whole(sum), 8192), None, "nothing fills the rest");
    }

    #[test]
    fn what_an_element_cannot_tell_apart_has_no_number() {
        let mut terms = Terms::default();
        let x = terms.intern(TermNode::Initial(Rank(0), Token(0)));
        let mut power = x;
        for _ in 0..4 {
            power = terms.intern(TermNode::Reduced("prod", vec![power, power]));
        }
        assert_eq!(numbers(&terms, &Content::Whole(power), 4096), None);
    }
}
