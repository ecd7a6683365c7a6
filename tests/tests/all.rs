//! The one test binary.
#![forbid(unsafe_code)]

mod broken;
mod cli;
mod cuts;
mod laws;
mod litmus;
mod named;
mod recorded;
mod specs;
mod tidy;
