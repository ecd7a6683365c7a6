//! The one test binary.
#![forbid(unsafe_code)]

mod broken;
mod cuts;
mod laws;
mod litmus;
mod named;
mod recorded;
mod tidy;
mod cli;
mod specs;
