//! The one test binary.
#![forbid(unsafe_code)]

mod litmus;
