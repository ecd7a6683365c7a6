//! The nouns of `rankcheck-model` on CUDA and NCCL: what the device does.
//!
//! Reading order: [`ffi`] (what is there, and the only unsafe code), [`segment`], [`memory`], [`pool`],
//! [`stream`], [`comm`], [`group`], [`window`], [`collective`], [`store`], [`flag`].
//!
//! What exists today: owners of segments, ordinary memory, streams, communicators and windows; all-reduce;
//! groups of launches; a best-fit pool; a store and a flag for the threads of one process. Everything builds
//! without CUDA; the libraries are opened at run time by [`ffi::probe`].
//!
//! What does not exist yet: the execution of programs, worker processes, events, graphs, IPC handles,
//! point-to-point, splits of communicators, registrations inside a group, a store between processes. None of
//! the code that needs a GPU has been run on one by a test of this crate.
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
pub mod group;
pub mod kernel;
pub mod library;
pub mod machine;
pub mod memory;
pub mod placement;
pub mod pool;
pub mod segment;
pub mod self_test;
pub mod store;
pub mod stream;
pub mod window;

pub use error::Error;
