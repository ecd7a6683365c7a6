//! Whether a program is right: specs, and the search for what they rule out.
//!
//! Reading order: [`recorder`] (how an evaluation becomes a list of operations), [`spec`] (Starlark files),
//! [`closure`] (the same from Rust). Not here: what an operation means (`rankcheck-model`).
// Not `forbid`: starlark's derive(ProvidesStaticType) writes an `unsafe impl` for every value type. Modules that
// need it say so in `spec.rs`; nothing here is unsafe by hand.
#![deny(unsafe_code)]

pub mod closure;
pub mod recorder;
pub mod spec;
