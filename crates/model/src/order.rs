//! In which order operations run: what commutes, what waits, and what is a choice.
//! Not here: what operations mean ([`crate::noun`]).

pub(crate) mod advance;
pub(crate) mod ahead;
pub(crate) mod condition;
pub(crate) mod dependence;
pub(crate) mod persistent;
pub(crate) mod placing;
pub(crate) mod poll;
pub(crate) mod symmetry;
