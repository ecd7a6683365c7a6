//! The one test binary.
#![forbid(unsafe_code)]

mod laws;
mod litmus;
