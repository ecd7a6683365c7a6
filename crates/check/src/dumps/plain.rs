//! Plain data of any shape, as pickle and JSON can say it: the common ground of the two encodings of a dump.
//!
//! All of it lies in one [`Arena`] and refers to its parts by number. A pickle may mention one part many times, or
//! mention a list inside itself; neither makes the data larger here, and nothing walks it by recursion.
//! Not here: what a dump says with it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

/// One value: a number, or where in the arena the rest of it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plain {
    /// Python's `None`, or JSON's `null`.
    Nothing,
    /// A truth value, `True` or `False`.
    Truth(bool),
    /// An integer of at most 64 bits.
    Whole(i64),
    /// A number with a fraction.
    Fraction(f64),
    /// A text in the arena.
    Text(TextAt),
    /// A list or a tuple.
    List(ListAt),
    /// A table from values to values.
    Table(TableAt),
    /// A string of bytes, which no dump has; what it holds is not kept.
    Bytes,
}

/// Where a text lies in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextAt(u32);

/// Where a list or a tuple lies in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListAt(u32);

/// Where a table lies in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableAt(u32);

impl Plain {
    /// Returns what kind of value it is, in words for a message.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Truth(_) => "a truth value",
            Self::Whole(_) => "an integer",
            Self::Fraction(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Bytes => "a string of bytes",
        }
    }
}

/// Everything that was read of one file.
#[derive(Debug, Default)]
pub struct Arena {
    texts: Vec<Arc<str>>,
    known: FxHashSet<Arc<str>>,
    lists: Vec<Vec<Plain>>,
    tables: Vec<Vec<(Plain, Plain)>>,
}

/// Returns the number of the next part. Each part takes a byte of the file at least, and files are shorter than that.
fn next<T>(parts: &[T]) -> u32 {
    u32::try_from(parts.len()).expect("a file has fewer parts than bytes, and `MOST_BYTES` fits")
}

impl Arena {
    /// Keeps a text; equal texts are kept once.
    pub fn add_text(&mut self, text: &str) -> Plain {
        let at = TextAt(next(&self.texts));
        let shared = self.known.get(text).cloned().unwrap_or_else(|| {
            let shared: Arc<str> = text.into();
            self.known.insert(Arc::clone(&shared));
            shared
        });
        self.texts.push(shared);
        Plain::Text(at)
    }

    /// Keeps a list or a tuple.
    pub fn add_list(&mut self, items: Vec<Plain>) -> Plain {
        let at = ListAt(next(&self.lists));
        self.lists.push(items);
        Plain::List(at)
    }

    /// Keeps a table with its items.
    pub fn add_table(&mut self, items: Vec<(Plain, Plain)>) -> Plain {
        let at = TableAt(next(&self.tables));
        self.tables.push(items);
        Plain::Table(at)
    }

    /// Returns a text, shared.
    #[must_use]
    pub fn text(&self, at: TextAt) -> &Arc<str> {
        &self.texts[at.0 as usize]
    }

    /// Returns the items of a list.
    #[must_use]
    pub fn list(&self, at: ListAt) -> &[Plain] {
        &self.lists[at.0 as usize]
    }

    /// Returns the keys and values of a table, in the order in which they were set.
    #[must_use]
    pub fn table(&self, at: TableAt) -> &[(Plain, Plain)] {
        &self.tables[at.0 as usize]
    }

    /// Returns the items of a list, to be added to.
    pub fn list_mut(&mut self, at: ListAt) -> &mut Vec<Plain> {
        &mut self.lists[at.0 as usize]
    }

    /// Returns the keys and values of a table, to be added to.
    pub fn table_mut(&mut self, at: TableAt) -> &mut Vec<(Plain, Plain)> {
        &mut self.tables[at.0 as usize]
    }
}

/// Reads JSON into an arena. Nesting is bounded by the parser.
///
/// # Errors
///
/// If the bytes are not one JSON value, with line and column.
pub fn read_json(bytes: &[u8]) -> Result<(Arena, Plain), serde_json::Error> {
    let mut arena = Arena::default();
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let root = IntoArena(&mut arena).deserialize(&mut parser)?;
    parser.end()?;
    Ok((arena, root))
}

/// The arena that a JSON value is read into.
struct IntoArena<'a>(&'a mut Arena);

impl<'de> DeserializeSeed<'de> for IntoArena<'_> {
    type Value = Plain;

    fn deserialize<D: serde::Deserializer<'de>>(self, parser: D) -> Result<Plain, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for IntoArena<'_> {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Plain, E> {
        Ok(Plain::Truth(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Plain, E> {
        Ok(Plain::Whole(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Plain, E> {
        let fits = i64::try_from(value)
            .map_err(|_| E::custom("an integer does not fit into 64 bits with a sign"))?;
        Ok(Plain::Whole(fits))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Plain, E> {
        Ok(Plain::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Plain, E> {
        Ok(self.0.add_text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Plain, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(IntoArena(self.0))? {
            list.push(item);
        }
        Ok(self.0.add_list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Plain, A::Error> {
        let mut table = Vec::new();
        while let Some(key) = items.next_key_seed(IntoArena(self.0))? {
            let Plain::Text(name) = key else { return Err(A::Error::custom("a key is not a text")) };
            if &**self.0.text(name) == NUMBER {
                let number: Cow<'_, str> = items.next_value()?;
                let fraction = || number.parse().map(Plain::Fraction);
                return number.parse().map(Plain::Whole).or_else(|_| fraction()).map_err(A::Error::custom);
            }
            table.push((key, items.next_value_seed(IntoArena(self.0))?));
        }
        Ok(self.0.add_table(table))
    }
}

/// The only key of the table as which `serde_json` hands over a number with a fraction, where some crate of the build
/// asks it to keep all digits (its feature `arbitrary_precision`).
const NUMBER: &str = "$serde_json::private::Number";
