//! Whether a program is right: loads specs, explores every nondeterministic choice, and reports.
//!
//! Reading order: [`spec`] (programs in Starlark, and the builder and the verbs that they share with Rust),
//! [`closure`] (programs in Rust), [`mod@test`] (both under `cargo test`), [`search`] (from a check to an `Explained`:
//! verdict, witnesses, the shortest run that shows a finding), [`report`] (what people read, a function of it),
//! `device` (what devices do), [`runs`] (runs of other people's programs), [`dumps`] (what PyTorch kept of them), [`logs`] (what
//! NCCL printed of them), [`together`] (whether a recording and dumps agree).
//!
//! Features: `cli` has the command, `device` what devices do. Both are on by default; a crate that tests its protocols
//! needs neither.
//! Not here: what an operation means (`rankcheck-model`).
// Not `forbid`: starlark's derive(ProvidesStaticType) writes an `unsafe impl` for every value type. Modules that
// need it say so in `spec.rs`; nothing here is unsafe by hand.
#![deny(unsafe_code)]

pub mod closure;
#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "device")]
pub mod device;
pub mod dumps;
mod joined_sets;
pub mod launches;
pub mod logs;
#[cfg(feature = "cli")]
pub mod page;
mod parallel;
#[cfg(feature = "cli")]
pub(crate) mod pull_request;
pub mod report;
pub mod rules;
pub mod runs;
pub mod search;
#[cfg(feature = "device")]
pub mod shard;
pub mod spec;
pub mod test;
mod timeline;
pub mod together;
pub mod trace;
mod whole_file;
