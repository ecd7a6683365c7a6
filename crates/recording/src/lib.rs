//! What one process of a real run called, and when: the format of recordings, version 1.
//!
//! A *recording* is a directory with one file for each process. A file is a header and *extents*; an extent
//! holds consecutive events of one host thread. An event is the *enter* or the *return* of a call. The call
//! with all its arguments is a *shape*, written once in a thread's dictionary and then named by its number:
//! a program that repeats itself costs a few bytes a call, and a reader compares two calls by two numbers.
//!
//! A writer fills extents in place, in memory that the file is mapped to; nothing needs to be flushed, so
//! SIGKILL loses nothing. An extent without its checksum was open when the process ended: it is read up to
//! its last whole event, which is how a cut file is read too. `docs/recording-format.md` has every byte.
//!
//! Reading order: [`mod@value`], [`mod@varint`], [`mod@layout`], [`mod@write`], [`mod@extent_stream`], [`mod@read`],
//! [`mod@pack`], [`mod@folded`].
//!
//! Not here: how calls are caught, and what they mean.
#![forbid(unsafe_code)]

pub mod extent_stream;
pub mod folded;
pub mod layout;
pub mod pack;
pub mod read;
pub mod value;
pub mod varint;
mod whole_file;
pub mod write;

pub use extent_stream::ExtentStream;
pub use layout::{Header, RunningTime};
pub use pack::{Packed, pack};
pub use read::{CallEvent, Cut, PlainCall, ProcessFile, ReadError, Shape, ShapeId};
pub use value::{Argument, Field, Signature};
pub use write::{CallContent, EventWriter, Returns, Space};
