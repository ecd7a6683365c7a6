//! What the ranks of a multi-GPU program may do, and what it means.
//!
//! A [`Source`] says what each rank does: a tree of operation lists whose edges are answers. A
//! [`Machine`] runs them: host threads, streams and the tables of the nouns, on the facts of a
//! [`Platform`]. NCCL matches by order only; the machine does the same and then judges, so it also says
//! what happens after a rule is broken. Findings accumulate; a run ends when nothing can go on.
//!
//! Whatever is left open is a [`Choice`]: a nondeterministic *value*, or the *schedule* of operations that do
//! not commute. Whoever drives the machine takes choices until there are none; without any, one run decides.
//!
//! Reading order: [`program`], [`rank`], [`id`], [`machine`], [`clock`], [`term`], [`number`], `judge`, [`platform`].
//!
//! Which way it can be wrong: `docs` and `ARCHITECTURE.md` list what is not modelled. Two states are taken
//! for equal if their 128-bit fingerprints are.
//!
//! Not here: where a program comes from, that it is explored, and that CUDA exists.
#![forbid(unsafe_code)]

pub mod clock;
pub(crate) mod cx;
pub mod describe;
pub(crate) mod display;
pub mod edit;
pub mod history;
pub mod host;
pub mod id;
pub(crate) mod identity;
pub(crate) mod judge;
pub mod known;
pub mod machine;
pub mod members;
pub(crate) mod noun;
pub mod number;
pub mod op;
pub(crate) mod order;
pub mod platform;
pub(crate) mod position;
pub mod program;
pub mod rank;
pub mod remembered;
pub mod snapshot;
pub(crate) mod state;
pub mod term;
pub(crate) mod walk;

pub use display::ranks_in_words;
pub use id::{ThreadStart, Token};
pub use judge::finding::{About, Finding, FindingKey, OpRef, Rule};
pub use machine::{
    CallError, Choice, Class, CommId, Condition, Config, Connections, Costs, Data, Ending, Explain, Faults,
    InFlight, Interruption, Machine, Mode, Nondet, Object, ObjectKind, Outcome, RankOutcome, State,
    actors_per_rank,
};
pub use op::*;
pub use platform::Platform;
pub use program::*;
pub use rank::*;
pub use remembered::{Forgotten, RememberedPast};
