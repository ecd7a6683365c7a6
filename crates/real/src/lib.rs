//! The nouns of `rankcheck-model` on CUDA and NCCL: what the device does.
//!
//! Reading order: [`ffi`] (what is there, and the only unsafe code), [`segment`], [`placement`], [`memory`],
//! [`stream`], [`event`], [`kernel`], [`comm`], [`group`], [`window`], [`collective`],
//! [`flag`]; then [`case`] and [`execute`], which run programs on them; then [`job`], [`worker`] and
//! [`launch`], one process a rank; then [`machine`], [`library`] and [`self_test`].
//!
//! What exists today: owners of segments (from NCCL or at a chosen address), ordinary memory, streams, events,
//! communicators (init, split, abort, destroy, warm-up) and windows; all collectives of the model; point-to-point; groups,
//! registrations inside them included; graphs; IPC handles and mappings; device code; flags that
//! processes share; the execution of one rank's part of a case; worker processes and who coordinates them.
//! Everything builds without CUDA; the libraries are opened at run time by [`ffi::probe`].
//!
//! What does not exist yet: inits and splits inside a group.
//! No test of this crate needs a GPU; [`self_test`] does.
//!
//! Not here: the rules. This crate does what it is told and reports what happened; breaking a rule on the
//! device is one of its uses. So it never compares what ranks do and never checks a range against a window.
#![deny(unsafe_code)]

pub mod case;
pub mod collective;
pub mod comm;
pub mod error;
pub mod event;
pub mod execute;
#[expect(unsafe_code, reason = "CUDA and NCCL are C libraries; this module owns every call into them")]
pub mod ffi;
pub mod flag;
pub mod graph;
pub mod group;
pub mod ipc;
pub mod job;
pub mod kernel;
pub mod launch;
pub mod library;
pub mod machine;
pub mod memory;
pub mod placement;
pub mod segment;
pub mod self_test;
pub mod stream;
pub mod window;
mod wire;
pub mod worker;

pub use error::Error;
