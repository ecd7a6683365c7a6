//! PyTorch's Flight Recorder dumps: what the processes of a job had called when it was asked, or when it timed out.
//!
//! Reading order: [`pickle`] and [`plain`] (the two encodings become plain data; nothing of a file is executed),
//! [`operation`] (what an entry's name says), [`read`] (one dump, with the fields of versions 2.1 to 2.10), [`folder`]
//! (files become the ranks of jobs, and whatever is odd about them is said).
//! Sources: `torch/csrc/distributed/c10d/FlightRecorder.hpp` and `FlightRecorderDetail.hpp`, and torchcomms'
//! `comms/torchcomms/hooks/fr/FlightRecorder.cpp`.
//! Not here: what is wrong with a job.

pub mod folder;
pub mod operation;
pub mod pickle;
pub mod plain;
pub mod read;
