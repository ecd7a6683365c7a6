//! The program `rankcheck`: reads arguments and does what they say.
//!
//! Not here: the commands ([`rankcheck::command`]).
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "an allocator is an unsafe impl")]
mod allocator;

use std::process::ExitCode;

use allocator::AskedAllocator;
use rankcheck::command::Arguments;

#[global_allocator]
static ALLOCATOR: AskedAllocator = AskedAllocator;

fn main() -> ExitCode {
    Arguments::of_process().run().into()
}
