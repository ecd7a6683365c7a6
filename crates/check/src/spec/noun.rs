//! The verbs of specs and closures: one file a noun, with what Rust calls and what Starlark calls.
//!
//! A verb is a method of a noun that takes the rank: `tp.all_reduce(x)` of a spec is `tp.all_reduce(r, &x)?` in Rust.
//! Its defaults and checks stand there once; the builtin of Starlark converts its arguments and calls it.
//! Not here: what the operations mean (`rankcheck-model`).

pub mod barrier;
pub mod collective;
pub mod comm;
pub mod container;
pub mod event;
pub mod exchange;
pub mod flag;
pub mod graph;
pub mod group;
pub mod ipc;
pub mod memory;
pub mod mutex;
pub mod overlap;
pub mod p2p;
pub mod pool;
pub mod question;
pub mod store;
pub mod stream;
pub mod thread;
pub mod value;
pub mod window;
