//! Ids that are made from contents, and the hash that they are made with.
//!
//! Whoever numbers things as he comes by them numbers them in the order in which he explores. So what stands in a state
//! is named by a hash of what it is: a name by its text, a term by its structure, a communicator by how it came about,
//! a thread by the function and the arguments that it runs. Two searches, two threads and two processes then call equal
//! things the same, and equal states have equal fingerprints. [`ContentIds`] keeps what each id stands for, and
//! notices if one stands for two things.
//! Not here: what ids are made of, which their nouns say.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use rustc_stable_hash::FromStableHash;
use rustc_stable_hash::hashers::{SipHasher128Hash, StableSipHasher128};
use serde::{Deserialize, Serialize};

/// A hash of 128 bits.
struct Wide(u128);

impl FromStableHash for Wide {
    type Hash = SipHasher128Hash;

    fn from(SipHasher128Hash([low, high]): SipHasher128Hash) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

/// Hashes contents to 128 bits, in the same way in every process and on every platform that stores numbers low byte first:
/// `SipHash`.
#[derive(Debug, Default)]
pub struct ContentHasher(StableSipHasher128);

impl ContentHasher {
    /// The hash of all that was written.
    #[must_use]
    pub fn fingerprint(self) -> u128 {
        let Wide(hash) = self.0.finish();
        hash
    }
}

/// Forwards what a hasher is given to another, in whichever width it comes.
macro_rules! forward {
    ($field:tt) => {
        forward! {
            $field: write_u8 u8, write_u16 u16, write_u32 u32, write_u64 u64, write_u128 u128, write_usize usize,
            write_i8 i8, write_i16 i16, write_i32 i32, write_i64 i64, write_i128 i128, write_isize isize,
        }
    };
    ($field:tt: $($write:ident $number:ident,)*) => { $(
        #[inline]
        fn $write(&mut self, number: $number) {
            std::hash::Hasher::$write(&mut self.$field, number);
        }
    )* };
}

impl Hasher for ContentHasher {
    fn finish(&self) -> u64 {
        Hasher::finish(&self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    forward! { 0 }
}

/// What a value is, in 128 bits.
#[must_use]
pub fn fingerprint(of: &(impl Hash + ?Sized)) -> u128 {
    let mut hasher = ContentHasher::default();
    of.hash(&mut hasher);
    hasher.fingerprint()
}

/// An id that is made from what it stands for.
pub trait ContentId: Copy + Eq + Hash {
    /// What such ids stand for, in the plural.
    const NOUN: &'static str;

    /// The id with this hash.
    fn of_hash(hash: u64) -> Self;
}

/// What ids stand for.
#[derive(Debug)]
pub struct ContentIds<I, C> {
    contents: FxHashMap<I, C>,
}

impl<I, C> Default for ContentIds<I, C> {
    fn default() -> Self {
        Self { contents: FxHashMap::default() }
    }
}

impl<I: ContentId, C> ContentIds<I, C> {
    /// What an id stands for that this table gave out.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&C> {
        self.contents.get(&id)
    }

    /// What the ids stand for, in no order.
    pub fn contents(&self) -> impl Iterator<Item = &C> {
        self.contents.values()
    }

    /// How many things there are.
    pub(crate) fn len(&self) -> usize {
        self.contents.len()
    }

    /// The id of a content that is kept as `keep` makes it.
    ///
    /// # Panics
    /// If it is the id of another content, too: of a million contents, once in thirty million programs.
    pub fn id_of<Q>(&mut self, content: &Q, keep: impl FnOnce(&Q) -> C) -> I
    where
        Q: Hash + Eq + ?Sized,
        C: Borrow<Q>,
    {
        let id = I::of_hash(fingerprint(content) as u64);
        let known: &C = self.contents.entry(id).or_insert_with(|| keep(content));
        let known = known.borrow();
        assert!(
            *content == *known,
            "two {} have one id of 64 bits by chance: give one another name",
            I::NOUN
        );
        id
    }
}

/// An interned string: a name that the spec chose. Resolved by [`Source::token`](crate::Source::token), which must give
/// equal texts equal tokens in every run: made from the text, or numbered in a program that is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Token(pub u64);

impl Token {
    /// Tokens from here on are the machine's own; no source gives one out.
    const OWN: u64 = 1 << 63;

    /// Whether the machine made it up.
    pub(crate) fn is_own(self) -> bool {
        self.0 >= Self::OWN
    }

    /// The same content as a token of the machine.
    pub(crate) fn own(self) -> Self {
        Self(self.0 | Self::OWN)
    }

    /// The token that was made the machine's own.
    pub(crate) fn plain(self) -> Self {
        Self(self.0 & !Self::OWN)
    }
}

impl ContentId for Token {
    const NOUN: &'static str = "texts";

    fn of_hash(hash: u64) -> Self {
        Self(hash).plain()
    }
}

/// The function and the arguments that a thread runs. Number 0 is the program itself, which every rank starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ThreadStart(pub u64);

impl ContentId for ThreadStart {
    const NOUN: &'static str = "functions of threads";

    fn of_hash(hash: u64) -> Self {
        Self(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id of which there are two.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Parity(u64);

    impl ContentId for Parity {
        const NOUN: &'static str = "sides";

        fn of_hash(hash: u64) -> Self {
            Self(hash % 2)
        }
    }

    #[test]
    fn one_id_for_two_contents_is_noticed() {
        let mut sides: ContentIds<Parity, u32> = ContentIds::default();
        let first = sides.id_of(&0, u32::clone);
        assert_eq!((sides.id_of(&0, u32::clone), sides.get(first), sides.len()), (first, Some(&0), 1));
        let all = std::panic::AssertUnwindSafe(|| (1..50_u32).map(|n| sides.id_of(&n, u32::clone)).count());
        let panicked = std::panic::catch_unwind(all).expect_err("there are two ids");
        let told = panicked.downcast_ref::<String>().expect("a sentence");
        assert_eq!(told, "two sides have one id of 64 bits by chance: give one another name");
    }

    #[test]
    fn fingerprints_are_what_they_were() {
        let whole = fingerprint(&("tp", 4_usize, -1_isize, Some(Token(7))));
        assert_eq!(format!("{whole:032x}"), "fc63eff8965a1217d458697c696bb55c");
    }
}
