//! The parts of a sequence that repeat with a period.
//!
//! A symbol that is rare, but not too rare, is an *anchor*: it cuts the sequence into pieces, equal pieces get equal
//! numbers, and a period of the sequence is a period of the short list of those numbers. Rarer anchors come
//! first, because they see the outer loop of a loop in a loop, and buffers that take turns. What an anchor
//! proposes is compared symbol by symbol before it is believed.
//! Not here: whether a repeat may be folded.

use std::hash::{BuildHasher, Hasher};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::runs::sequence::SymbolId;

/// A repeated part of a sequence: every symbol but those of the last period stands again a period later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    /// The position of the first symbol in the sequence.
    pub(super) from: usize,
    /// The first symbol behind it.
    pub(super) to: usize,
    /// The length of a period in symbols.
    pub(super) period: usize,
}

/// Fewer repetitions are not taken: two iterations stay, and the search for a cut costs up to two.
const REPEATS: usize = 4;
/// Shorter repeats are not worth the trouble.
const SYMBOLS: usize = 256;
/// How many later pieces that are equal to a piece are tried as the beginning of the next period.
const HOPS: usize = 32;
/// Counts of anchors that are tried grow by an eighth at least, so that a sequence without repetitions is not
/// searched once for every symbol.
const GROWTH: usize = 8;

/// The repeats of a sequence that one anchor sees: the first that covers half of it, or the one that covers most.
pub(super) fn repeats(symbols: &[SymbolId]) -> Vec<Repeat> {
    let mut best: (usize, Vec<Repeat>) = (0, Vec::new());
    for anchor in anchors(symbols) {
        let found = seen_by(anchor, symbols);
        let covered = found.iter().map(|repeat| repeat.to - repeat.from).sum::<usize>();
        if covered > best.0 {
            best = (covered, found);
        }
        if best.0 * 2 > symbols.len() {
            break;
        }
    }
    best.1
}

/// A symbol for each of some counts, the rarest first. Those that stand all over the sequence come before those that
/// only a part of it has.
fn anchors(symbols: &[SymbolId]) -> Vec<SymbolId> {
    #[derive(Clone, Copy)]
    struct Occurrences {
        count: usize,
        first: usize,
        last: usize,
    }
    let highest = symbols.iter().map(|symbol| symbol.0).max().map_or(0, |highest| highest as usize + 1);
    let mut seen = vec![Occurrences { count: 0, first: usize::MAX, last: 0 }; highest];
    for (at, symbol) in symbols.iter().enumerate() {
        let seen = &mut seen[symbol.0 as usize];
        seen.count += 1;
        seen.first = seen.first.min(at);
        seen.last = at;
    }
    let mut candidates: Vec<(bool, usize, SymbolId)> = (0..)
        .zip(seen)
        .filter(|(_, seen)| seen.count >= REPEATS && seen.last - seen.first >= SYMBOLS / 2)
        .map(|(symbol, seen)| ((seen.last - seen.first) * 2 < symbols.len(), seen.count, SymbolId(symbol)))
        .collect();
    candidates.sort();
    let mut least = (false, 0);
    let mut anchors = Vec::new();
    for (part, count, symbol) in candidates {
        if part != least.0 || count >= least.1 {
            anchors.push(symbol);
            least = (part, count + (count / GROWTH).max(1));
        }
    }
    anchors
}

fn seen_by(anchor: SymbolId, symbols: &[SymbolId]) -> Vec<Repeat> {
    let at: Vec<usize> =
        symbols.iter().enumerate().filter(|&(_, &symbol)| symbol == anchor).map(|(at, _)| at).collect();
    let pieces = pieces(&at, symbols);
    let mut later: FxHashMap<u32, usize> = FxHashMap::default();
    let mut next = vec![usize::MAX; pieces.len()];
    for (piece, &content) in pieces.iter().enumerate().rev() {
        if let Some(later) = later.insert(content, piece) {
            next[piece] = later;
        }
    }
    let mut found: Vec<Repeat> = Vec::new();
    let mut piece = 0;
    while piece < pieces.len() {
        let Some((step, last)) = period(piece, &pieces, &next) else {
            piece += 1;
            continue;
        };
        let floor = found.last().map_or(0, |repeat| repeat.to);
        let repeat = Repeat { from: at[piece], to: at[last], period: at[piece + step] - at[piece] };
        if let Some(repeat) = repeat.confirmed(floor, symbols) {
            found.push(repeat);
        }
        piece = last;
    }
    found
}

/// The pieces between anchors: equal ones have equal numbers.
fn pieces(at: &[usize], symbols: &[SymbolId]) -> Vec<u32> {
    let mut numbers: FxHashMap<(usize, u64), u32> = FxHashMap::default();
    let content = |piece: &[SymbolId]| {
        let mut hasher = FxBuildHasher.build_hasher();
        for pair in piece.chunks(2) {
            let second = pair.get(1).map_or(u32::MAX, |symbol| symbol.0);
            hasher.write_u64(u64::from(pair[0].0) << 32 | u64::from(second));
        }
        hasher.finish()
    };
    at.windows(2)
        .map(|ends| {
            let piece = &symbols[ends[0]..ends[1]];
            let fresh = u32::try_from(numbers.len()).expect("a sequence has fewer than 2^32 symbols");
            *numbers.entry((piece.len(), content(piece))).or_insert(fresh)
        })
        .collect()
}

/// The smallest period, in pieces, that begins at a piece, and the first piece behind its last repetition.
fn period(piece: usize, pieces: &[u32], next: &[usize]) -> Option<(usize, usize)> {
    let mut later = next[piece];
    for _ in 0..HOPS {
        if later == usize::MAX {
            return None;
        }
        let step = later - piece;
        if step * REPEATS > pieces.len() - piece {
            return None;
        }
        let equal =
            pieces[piece..].iter().zip(&pieces[later..]).take_while(|(one, other)| one == other).count();
        if equal >= step * (REPEATS - 1) {
            return Some((step, later + equal));
        }
        later = next[later];
    }
    None
}

impl Repeat {
    /// Compares the symbols, and goes on to both sides as far as they repeat.
    fn confirmed(mut self, floor: usize, symbols: &[SymbolId]) -> Option<Self> {
        if symbols[self.from..self.to - self.period] != symbols[self.from + self.period..self.to] {
            return None;
        }
        while self.to < symbols.len() && symbols[self.to] == symbols[self.to - self.period] {
            self.to += 1;
        }
        while self.from > floor && symbols[self.from - 1] == symbols[self.from - 1 + self.period] {
            self.from -= 1;
        }
        (self.to - self.from >= SYMBOLS).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(parts: &[(&[u32], usize)]) -> Vec<SymbolId> {
        let part = |(symbols, times): &(&[u32], usize)| symbols.repeat(*times);
        parts.iter().flat_map(part).map(SymbolId).collect()
    }

    #[test]
    fn a_loop_is_found_with_its_ends() {
        let symbols = sequence(&[(&[9, 8, 7], 1), (&[1, 2, 3, 2], 100), (&[1, 2, 5], 1)]);
        assert_eq!(repeats(&symbols), [Repeat { from: 3, to: 405, period: 4 }]);
    }

    #[test]
    fn buffers_that_take_turns_make_the_period_longer() {
        let symbols: Vec<SymbolId> =
            (0..6000).flat_map(|i| [SymbolId(0), SymbolId(10 + i % 3), SymbolId(20 + i % 5)]).collect();
        assert_eq!(repeats(&symbols), [Repeat { from: 0, to: 18_000, period: 45 }]);
    }

    #[test]
    fn a_loop_in_a_loop_is_seen_from_outside() {
        let outer = sequence(&[(&[1, 2, 3, 4], 50), (&[5], 1)]);
        let symbols: Vec<SymbolId> = outer.iter().copied().cycle().take(outer.len() * 20).collect();
        assert_eq!(repeats(&symbols), [Repeat { from: 0, to: symbols.len(), period: outer.len() }]);
    }

    #[test]
    fn what_never_repeats_has_no_repeat() {
        let mut random = 1_u32;
        let symbols: Vec<SymbolId> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            SymbolId(random >> 26)
        })
        .take(20_000)
        .collect();
        assert_eq!(repeats(&symbols), []);
    }
}
