//! Whether a device does what the model predicts: forced answers, comparison, digests, and what is kept.
//!
//! Reading order: [`mod@predict`] makes the predictions of a check, each with what is forced for it.
//! [`mod@compare`] walks the model along the answers that a device gave and tells whether some end of that walk is
//! what was seen, or where the two diverge. [`digest`] names programs across processes and over time. [`testbed`] is
//! who runs them: what this machine has, and its workers. [`observation`] keeps what devices did. [`diff`],
//! [`contract`], [`reproduce`] and [`observed_rules`] are what commands make of all that.
//!
//! Which way it can be wrong: a device that reports fewer answers than it gave is compared with more ends; a
//! walk that a bound cuts short compares nothing, and says so.
//! Not here: how programs run on a device (`rankcheck-real`).

pub mod beside;
pub mod compare;
pub mod contract;
pub mod diff;
pub mod digest;
pub mod observation;
pub mod observed_rules;
pub mod predict;
pub mod reproduce;
pub mod seen;
pub mod testbed;

pub use compare::{Agreement, Difference, Judgement, compare};
pub use predict::{ComparedType, Prediction, PredictionQuery, Predictions, predict};
pub use testbed::Runner;
