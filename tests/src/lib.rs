//! Programs as plain lists, for tests: the smallest source there is, and a generator of random ones; and what
//! tests read of the repository.
//! Not here: the tests.
#![forbid(unsafe_code)]

pub mod random;
pub mod repository;
pub mod script;
