//! What is found out about a run: findings, deadlocks, and what complete runs leave behind.
//! Not here: the rules' texts (`specs/rules`).

pub(crate) mod deadlock;
pub(crate) mod ending;
pub(crate) mod finding;
pub(crate) mod ledger;
pub(crate) mod outcome;
