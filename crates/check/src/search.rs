//! Searches what a program may do, and says what that shows.
//!
//! Reading order: [`explore`] takes every choice of a program, [`naive`] every interleaving, as its oracle.
//! [`verdict`] runs the explorations that a check asks for and judges them; [`explain`] finds out which operations
//! of a run matter.
//! Not here: what an operation means (`rankcheck-model`), and the layout of reports ([`crate::report`]).

pub mod explain;
pub mod explore;
pub mod naive;
pub mod verdict;
