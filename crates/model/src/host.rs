//! What the host of a rank computes by itself: no device decides any of it, so the model and the executor on
//! devices share it.
//!
//! Reading order: [`value`], [`operand`], [`container`], [`order`], [`best_fit`], [`lookup`],
//! [`naming`].
//! Not here: the tables of the machine (`crate::state`), and nondeterminism.

pub mod best_fit;
pub mod container;
pub mod lookup;
pub mod naming;
pub mod operand;
pub mod order;
pub mod value;
