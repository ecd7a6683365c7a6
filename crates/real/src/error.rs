//! What can go wrong in doing the work.
//!
//! Not here: findings about a user's program. An error code that a rank is expected to get is an observation;
//! whoever calls decides that.

use std::time::Duration;

/// Our failure to do the work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A library or a symbol of it is not there.
    #[error("{what} is missing; looked for {}", looked_for.join(", "))]
    Missing {
        /// What is missing, and what to do if that is known.
        what: String,
        /// The names and folders that were tried, in order.
        looked_for: Vec<String>,
    },
    /// A call of the CUDA driver failed.
    #[error("{call} returned CUDA error {code}")]
    Cuda {
        /// Name of the call that failed.
        call: &'static str,
        /// The `CUresult` that it returned.
        code: u32,
    },
    /// A call of NCCL failed.
    #[error("{call} returned NCCL result {code}")]
    Nccl {
        /// Name of the call that failed.
        call: &'static str,
        /// The `ncclResult_t` that it returned.
        code: u32,
    },
    /// The call cannot be made between the start and the end of a group: its result would be written later.
    #[error("{call} inside a group is not supported")]
    InsideGroup {
        /// Name of the call that failed.
        call: &'static str,
    },
    /// A wait ended without what it waited for.
    #[error("{what} did not come within {after:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// A size of zero, or one so large that it cannot be rounded up.
    #[error("a size of {len_bytes} bytes cannot be allocated")]
    Size {
        /// The size in bytes that was asked for.
        len_bytes: u64,
    },
    /// A connection between the processes of a job broke or could not be made.
    #[error("{what}: {why}")]
    Connection {
        /// Of what, or to whom.
        what: String,
        /// What the operating system says.
        why: String,
    },
    /// The coordinator does not want this process in its job.
    #[error("the coordinator refused the connection: {why}")]
    Refused {
        /// The reason that the coordinator gave.
        why: String,
    },
    /// A worker or an agent could not be started, or was gone when it was needed.
    #[error("the worker of rank {rank}: {why}")]
    Worker {
        /// The rank whose worker it is.
        rank: u32,
        /// How it ended, with its last words.
        why: String,
    },
    /// A worker could not load the program of a case.
    #[error("rank {rank} cannot load the program: {why}")]
    Program {
        /// The rank whose worker cannot.
        rank: u32,
        /// What its loader says.
        why: String,
    },
    /// A launcher left an environment variable that cannot be used.
    #[error("the environment variable {variable} {why}")]
    Environment {
        /// Name of the environment variable.
        variable: String,
        /// What is wrong with it.
        why: String,
    },
    /// Memory cannot be placed at this address.
    #[error("{len_bytes} bytes at address {address:#x} are outside the reserved addresses")]
    Address {
        /// The address that was asked for.
        address: u64,
        /// The length in bytes that was asked for.
        len_bytes: u64,
    },
    /// Every address that segments are placed at is taken.
    #[error("no addresses are left for a segment of {len_bytes} bytes")]
    NoAddresses {
        /// The length in bytes that was asked for.
        len_bytes: u64,
    },
    /// A file or folder could not be made or read.
    #[error("{path}: {message}")]
    File {
        /// The file or folder.
        path: String,
        /// What the system says.
        message: String,
    },
    /// The device computed something else.
    #[error("{what}: expected {expected}, found {found}")]
    Differs {
        /// What was tried when it failed.
        what: &'static str,
        /// What should have come.
        expected: String,
        /// What the device computed instead.
        found: String,
    },
    /// What came from elsewhere cannot be used, for example an id of the wrong length.
    #[error("{what}")]
    Malformed {
        /// The whole message: what came, and what is wrong with it.
        what: String,
    },
}

impl Error {
    /// The `CUresult`, if a call of the CUDA driver failed.
    #[must_use]
    pub fn cuda_code(&self) -> Option<u32> {
        if let Self::Cuda { code, .. } = self { Some(*code) } else { None }
    }

    /// Whether it came from the device or a library, not from our own checks.
    #[must_use]
    pub fn is_of_a_call(&self) -> bool {
        matches!(self, Self::Cuda { .. } | Self::Nccl { .. })
    }
}
