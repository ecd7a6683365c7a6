//! What the host of a rank computes by itself; no device decides any of it.
//! Not here: the tables of the machine ([`crate::state`]).

pub(crate) mod value;
