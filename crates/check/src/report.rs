//! What people read: text for a pull request, JSON for tools.
//!
//! Both are functions of an [`Explained`](crate::search::Explained) and start nothing.
//! The order is a reviewer's: who waits for whom, lanes, data, because, rule, what passes, devices, replay.
//! Not here: how any of it was found.

mod json;
#[cfg(feature = "cli")]
pub mod terminal;
mod text;

#[cfg(feature = "cli")]
pub(crate) use json::check_entries;
#[cfg(feature = "cli")]
pub(crate) use json::costs;
pub use json::{JsonEntry, JsonReport, MissingShard, NotChecked, SCHEMA_VERSION, ShardOfReport, json};
#[cfg(feature = "cli")]
pub(crate) use text::ends;
#[cfg(feature = "cli")]
pub(crate) use text::facts;
pub use text::{summary, text};
