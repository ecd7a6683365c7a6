//! Programs as plain lists, for tests: the smallest source there is, and a generator of random ones.
//! Not here: the tests.
#![forbid(unsafe_code)]

pub mod random;
pub mod script;
