//! Stretches of a tape with a period.
//!
//! A word that is rare, but not too rare, is an *anchor*: it cuts the tape into pieces, equal pieces get equal
//! numbers, and a period of the tape is a period of the short list of those numbers. Rarer anchors come
//! first, because they see the outer loop of a loop in a loop, and buffers that take turns. What an anchor
//! proposes is compared word by word before it is believed.
//! Not here: whether a stretch may be folded.

use std::hash::{BuildHasher, Hasher};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::runs::sequence::WordId;

/// A part of a tape in which every word but those of the last period stands again a period later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first word.
    pub(super) from: usize,
    /// The first word behind it.
    pub(super) to: usize,
    /// Words.
    pub(super) period: usize,
}

/// Fewer repetitions are no stretch: two iterations stay, and the search for a cut costs up to two.
const REPEATS: usize = 4;
/// Shorter stretches are not worth the trouble.
const WORDS: usize = 256;
/// How many later pieces that are equal to a piece are tried as the beginning of the next period.
const HOPS: usize = 32;
/// Counts of anchors that are tried grow by an eighth at least, so that a tape without repetitions is not
/// searched once for every word.
const GROWTH: usize = 8;

/// The stretches of a tape that one anchor sees: the first that covers half of it, or the one that covers most.
pub(super) fn stretches(words: &[WordId]) -> Vec<Stretch> {
    let mut best: (usize, Vec<Stretch>) = (0, Vec::new());
    for anchor in anchors(words) {
        let found = seen_by(anchor, words);
        let covered = found.iter().map(|stretch| stretch.to - stretch.from).sum::<usize>();
        if covered > best.0 {
            best = (covered, found);
        }
        if best.0 * 2 > words.len() {
            break;
        }
    }
    best.1
}

/// A word for each of some counts, the rarest first. Those that stand all over the tape come before those that
/// only a part of it has.
fn anchors(words: &[WordId]) -> Vec<WordId> {
    #[derive(Clone, Copy)]
    struct Seen {
        count: usize,
        first: usize,
        last: usize,
    }
    let highest = words.iter().map(|word| word.0).max().map_or(0, |highest| highest as usize + 1);
    let mut seen = vec![Seen { count: 0, first: usize::MAX, last: 0 }; highest];
    for (at, word) in words.iter().enumerate() {
        let seen = &mut seen[word.0 as usize];
        seen.count += 1;
        seen.first = seen.first.min(at);
        seen.last = at;
    }
    let mut candidates: Vec<(bool, usize, WordId)> = (0..)
        .zip(seen)
        .filter(|(_, seen)| seen.count >= REPEATS && seen.last - seen.first >= WORDS / 2)
        .map(|(word, seen)| ((seen.last - seen.first) * 2 < words.len(), seen.count, WordId(word)))
        .collect();
    candidates.sort();
    let mut least = (false, 0);
    let mut anchors = Vec::new();
    for (part, count, word) in candidates {
        if part != least.0 || count >= least.1 {
            anchors.push(word);
            least = (part, count + (count / GROWTH).max(1));
        }
    }
    anchors
}

fn seen_by(anchor: WordId, words: &[WordId]) -> Vec<Stretch> {
    let at: Vec<usize> =
        words.iter().enumerate().filter(|&(_, &word)| word == anchor).map(|(at, _)| at).collect();
    let pieces = pieces(&at, words);
    let mut later: FxHashMap<u32, usize> = FxHashMap::default();
    let mut next = vec![usize::MAX; pieces.len()];
    for (piece, &content) in pieces.iter().enumerate().rev() {
        if let Some(later) = later.insert(content, piece) {
            next[piece] = later;
        }
    }
    let mut found: Vec<Stretch> = Vec::new();
    let mut piece = 0;
    while piece < pieces.len() {
        let Some((step, last)) = period(piece, &pieces, &next) else {
            piece += 1;
            continue;
        };
        let floor = found.last().map_or(0, |stretch| stretch.to);
        let stretch = Stretch { from: at[piece], to: at[last], period: at[piece + step] - at[piece] };
        if let Some(stretch) = stretch.confirmed(floor, words) {
            found.push(stretch);
        }
        piece = last;
    }
    found
}

/// The pieces between anchors: equal ones have equal numbers.
fn pieces(at: &[usize], words: &[WordId]) -> Vec<u32> {
    let mut numbers: FxHashMap<(usize, u64), u32> = FxHashMap::default();
    let content = |piece: &[WordId]| {
        let mut hasher = FxBuildHasher.build_hasher();
        for pair in piece.chunks(2) {
            let second = pair.get(1).map_or(u32::MAX, |word| word.0);
            hasher.write_u64(u64::from(pair[0].0) << 32 | u64::from(second));
        }
        hasher.finish()
    };
    at.windows(2)
        .map(|ends| {
            let piece = &words[ends[0]..ends[1]];
            let fresh = u32::try_from(numbers.len()).expect("a tape has fewer than 2^32 words");
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

impl Stretch {
    /// Compares the words, and goes on to both sides as far as they repeat.
    fn confirmed(mut self, floor: usize, words: &[WordId]) -> Option<Self> {
        if words[self.from..self.to - self.period] != words[self.from + self.period..self.to] {
            return None;
        }
        while self.to < words.len() && words[self.to] == words[self.to - self.period] {
            self.to += 1;
        }
        while self.from > floor && words[self.from - 1] == words[self.from - 1 + self.period] {
            self.from -= 1;
        }
        (self.to - self.from >= WORDS).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape(parts: &[(&[u32], usize)]) -> Vec<WordId> {
        let part = |(words, times): &(&[u32], usize)| words.repeat(*times);
        parts.iter().flat_map(part).map(WordId).collect()
    }

    #[test]
    fn a_loop_is_found_with_its_ends() {
        let words = tape(&[(&[9, 8, 7], 1), (&[1, 2, 3, 2], 100), (&[1, 2, 5], 1)]);
        assert_eq!(stretches(&words), [Stretch { from: 3, to: 405, period: 4 }]);
    }

    #[test]
    fn buffers_that_take_turns_make_the_period_longer() {
        let words: Vec<WordId> =
            (0..6000).flat_map(|i| [WordId(0), WordId(10 + i % 3), WordId(20 + i % 5)]).collect();
        assert_eq!(stretches(&words), [Stretch { from: 0, to: 18_000, period: 45 }]);
    }

    #[test]
    fn a_loop_in_a_loop_is_seen_from_outside() {
        let outer = tape(&[(&[1, 2, 3, 4], 50), (&[5], 1)]);
        let words: Vec<WordId> = outer.iter().copied().cycle().take(outer.len() * 20).collect();
        assert_eq!(stretches(&words), [Stretch { from: 0, to: words.len(), period: outer.len() }]);
    }

    #[test]
    fn what_never_repeats_has_no_stretch() {
        let mut random = 1_u32;
        let words: Vec<WordId> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            WordId(random >> 26)
        })
        .take(20_000)
        .collect();
        assert_eq!(stretches(&words), []);
    }
}
