//! The program `rankcheck`: reads arguments and does what they say.
//!
//! Not here: the commands ([`rankcheck::command`]).
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;
use rankcheck::command::Arguments;

/// Exploration copies states all the time; this allocator makes it a third faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Arguments::parse().run().into()
}
