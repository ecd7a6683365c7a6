//! The one test binary.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "tests say what they counted")]

mod broken;
mod buffers;
mod built;
mod cli;
mod closures;
mod conform;
mod cuts;
mod damaged;
mod deadlocks;
mod diff;
mod dumped;
mod dumps;
mod explained;
mod folded;
mod graphs;
mod judged;
mod known;
mod laws;
mod litmus;
mod midway;
mod observed;
mod page;
mod predicted;
mod reasons;
mod record;
mod recorded;
mod recorder;
mod recordings;
mod repairs;
mod reported;
mod reports;
mod returned;
mod runs;
mod shared;
mod specs;
mod stream_memory;
mod stuck;
mod tables;
mod tidy;
mod truncated;
mod uses;
mod wheel;
mod worlds;
