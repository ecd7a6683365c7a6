//! Calls and their arguments.
//!
//! Not here: which calls exist; a recording carries their names and the names of their arguments.

use std::fmt;

/// The name of a call and of its arguments, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// As the vendor spells it, such as `ncclAllReduce`.
    pub name: &'static str,
    /// Names of the arguments that are kept.
    pub keys: &'static [&'static str],
    /// Whether it has no return: something that was noted, not called.
    pub instant: bool,
}

/// An argument, while it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field<'a> {
    /// The value is not known.
    None,
    /// Counts, sizes in bytes, enumerations, ranks.
    Number(u64),
    /// Numbers that may be negative.
    Signed(i64),
    /// Pointers and opaque handles; only their identity within the process has a meaning.
    Address(u64),
    /// An address that is another one at nearly every call: read as [`Argument::Address`]. A call has one at most, and
    /// not what it returns.
    Varying(u64),
    /// Names and source locations.
    Text(&'a str),
    /// Bytes that identify something across processes: a unique id, the digest of a handle.
    Bytes(&'a [u8]),
}

impl Field<'_> {
    /// The address that varies, if one does.
    #[must_use]
    #[inline(always)]
    pub fn varying(fields: &[Field<'_>]) -> Option<u64> {
        fields
            .iter()
            .find_map(|field| if let Field::Varying(address) = field { Some(*address) } else { None })
    }
}

/// An argument that was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Argument {
    /// The value is not known.
    None,
    /// Counts, sizes in bytes, enumerations, ranks.
    Number(u64),
    /// Numbers that may be negative.
    Signed(i64),
    /// Pointers and opaque handles; only their identity within the process has a meaning.
    Address(u64),
    /// Names and source locations.
    Text(Box<str>),
    /// Bytes that identify something across processes.
    Bytes(Box<[u8]>),
}

impl Argument {
    /// A count, a size or an address.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Address(number) => Some(*number),
            Self::Signed(number) => u64::try_from(*number).ok(),
            Self::None | Self::Text(_) | Self::Bytes(_) => None,
        }
    }

    /// Of text and of bytes.
    pub(crate) fn length_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::None | Self::Number(_) | Self::Signed(_) | Self::Address(_) => 0,
        }
    }

    /// Returns the text, if the argument is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::None | Self::Number(_) | Self::Signed(_) | Self::Address(_) | Self::Bytes(_) => None,
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("unknown"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
