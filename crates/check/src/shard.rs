//! A shard: the part of an ordered list of cases that one of several machines takes.
//!
//! Shard K of N has every Nth case, from the Kth on. So shards differ by one case at most, the cases that stand next to each
//! other, which are often alike and take equally long, come to different machines, and every machine that has the same
//! list computes the same shards without asking another. A case that is added in the middle moves those behind it by one shard.
//! Nothing is lost by that: reports are merged only if they are of one list, and what a machine has kept of
//! its last shard is no longer of use to it alone. A hash of the name would leave each case where it was, and with a few dozen
//! cases a shard give some machines half as many again as others.
//! Not here: what a case is ([`crate::device::diff`] and the command `check` have a list each), and how reports of shards become one.

use std::fmt;
use std::str::FromStr;

/// One of several parts of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 1 on.
    number: u32,
    of: u32,
}

impl Shard {
    /// The only shard where there is one machine.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Returns part `number` of `of`, counted from 1; none if there is no such part.
    #[must_use]
    pub fn new(number: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&number).then_some(Self { number, of })
    }

    /// Returns which part it is, from 1 on.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns how many parts there are.
    #[must_use]
    pub fn of(self) -> u32 {
        self.of
    }

    /// Returns whether the case at this position, from 0 on, is in it.
    #[must_use]
    pub fn has(self, position: usize) -> bool {
        position % self.of as usize == self.number as usize - 1
    }

    /// Returns how many of so many cases are in it.
    #[must_use]
    pub fn len_of(self, cases: usize) -> usize {
        (0..cases).filter(|position| self.has(*position)).count()
    }
}

/// As it is written on a command line: `3/16`.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Why a text names no shard.
#[derive(Debug, thiserror::Error)]
pub enum NoShard {
    /// It is not two numbers.
    #[error("give the number of a shard and how many there are: 3/16")]
    Form,
    /// There are no shards at all.
    #[error("there are no shards of 0; give how many machines take part: 1/16")]
    OfNone,
    /// The first shard is numbered 1, not 0.
    #[error("shards are counted from 1, so the first is 1/{0}; where an index begins with 0, add 1")]
    Zero(u32),
    /// There are fewer shards than that.
    #[error(
        "the last of {of} shards is {of}/{of}; give a number from 1 to {of} before the stroke, not {number}"
    )]
    TooHigh {
        /// The number that was given for it.
        number: u32,
        /// How many shards there are.
        of: u32,
    },
}

impl FromStr for Shard {
    type Err = NoShard;

    fn from_str(text: &str) -> Result<Self, NoShard> {
        let (number, of) = text.split_once('/').ok_or(NoShard::Form)?;
        // The parser of numbers takes a sign.
        let read = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| NoShard::Form),
            false => Err(NoShard::Form),
        };
        match (read(number)?, read(of)?) {
            (_, 0) => Err(NoShard::OfNone),
            (0, of) => Err(NoShard::Zero(of)),
            (number, of) => Self::new(number, of).ok_or(NoShard::TooHigh { number, of }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_in_one_shard_and_neighbours_are_apart() {
        for of in 1..9 {
            let shards: Vec<Shard> = (1..=of).map(|number| Shard::new(number, of).expect("it is")).collect();
            for cases in [0, 1, 7, 40] {
                let owner = |position| {
                    let mut owners = shards.iter().filter(|shard| shard.has(position));
                    let owner = owners.next().expect("some shard has it");
                    assert_eq!(owners.next(), None);
                    owner.number()
                };
                let owners: Vec<u32> = (0..cases).map(owner).collect();
                assert!(of == 1 || owners.windows(2).all(|pair| pair[0] != pair[1]));
                let sizes = || shards.iter().map(|shard| shard.len_of(cases));
                assert_eq!(sizes().sum::<usize>(), cases);
                assert!(sizes().max() <= sizes().min().map(|least| least + 1));
            }
        }
    }

    #[test]
    fn what_names_no_shard_is_told_with_what_does() {
        let told = |text: &str| text.parse::<Shard>().map_err(|error| error.to_string());
        assert_eq!(told("3/16").map(|shard| shard.to_string()).as_deref(), Ok("3/16"));
        for (text, remedy) in [
            ("0/3", "the first is 1/3"),
            ("4/3", "the last of 3 shards is 3/3"),
            ("1/0", "give how many machines"),
            ("0/0", "give how many machines"),
            ("x/3", "3/16"),
            ("3", "3/16"),
            ("", "3/16"),
            ("/", "3/16"),
            ("+1/3", "3/16"),
            ("-1/3", "3/16"),
            ("1/2/3", "3/16"),
            ("1/99999999999", "3/16"),
        ] {
            let error = told(text).expect_err(text);
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
