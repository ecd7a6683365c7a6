//! Whether a device does what the model predicts: forced answers, comparison, and the digest of a program.
//!
//! [`predict()`] makes the predictions of a check, each with what luck is forced to do for it. [`compare()`] walks
//! the model along the answers that a device gave and tells whether some end of that walk is what was seen,
//! or where the two part. [`program`] names programs across processes and over time.
//!
//! Which way it can be wrong: a device that reports fewer answers than it gave is compared with more ends; a
//! walk that a bound cuts short compares nothing, and says so.
//! Not here: how programs run on a device (`rankcheck-real`), and what is kept of a run
//! ([`crate::observation`]).

pub mod compare;
pub mod predict;
pub mod program;

pub use compare::{Agreement, Difference, Judgement, compare};
pub use predict::{Element, Prediction, Predictions, Question, predict};
