//! What an NCCL version and its hardware decide: *facts*, fixed for a run, in contrast to what is *nondeterministic*.
//!
//! Facts (here): what unequal registrations do, what null registrations return, whether repeated
//! registrations are deduplicated, which buffers a symmetric kernel needs, where it switches from the LL
//! to the LSA kernel, how many transfers of a group certainly make one launch, what is held of data that nobody takes,
//! what a call does without a rank whose process has ended. Nondeterministic (explored
//! by the machine): address and hash order, reuse of addresses, order of communicator hashes, timing of polls, where
//! larger groups of transfers are cut into launches, orders of unordered operations on contended objects; co-residency
//! of kernels and early completion of one-sided collectives are never relied on.
//! Not here: rules, which hold on every platform.

use crate::noun::collective::SymmetricKernel;
use crate::op::CollectiveKind;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::program::{Dtype, ReduceOp};

/// An NCCL version whose semantics are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Platform {
    /// NCCL 2.27.7, whose facts were read in its source and not measured.
    #[serde(rename = "2.27.7")]
    V2_27_7,
    /// NCCL 2.28.9, the version that was measured.
    #[default]
    #[serde(rename = "2.28.9")]
    V2_28_9,
    /// NCCL 2.30.7, whose facts were read in its source and not measured.
    #[serde(rename = "2.30.7")]
    V2_30_7,
}

/// No platform has this name.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no platform {0:?}; known are 2.27.7, 2.28.9 and 2.30.7")]
pub struct UnknownPlatform(pub String);

impl FromStr for Platform {
    type Err = UnknownPlatform;

    fn from_str(text: &str) -> Result<Self, UnknownPlatform> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownPlatform(text.to_owned()))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a registration of null or of no bytes does on the rank that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullRegistration {
    /// It succeeds and registers nothing.
    NoOp,
    /// It returns `ncclInvalidArgument` and registers nothing.
    InvalidArgument,
}

/// What happens when paired registrations differ in size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnequalSizes {
    /// Every rank gets an error and no window (measured on 2.28.9: CUDA 801 or 1 out of the call).
    Error,
    /// Every rank succeeds and gets a window.
    Success,
}

/// What a second registration of the same memory on one communicator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeated {
    /// The rank skips the exchange.
    Deduplicated,
    /// A new mapping each time.
    NewMapping,
}

/// What a registration does while a capture forbids unsafe calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationInCapture {
    /// It returns an error and invalidates the capture (measured on 2.28.9).
    Refused,
    /// It is done at once and not recorded.
    Done,
}

/// Slots of a pair in which data wait until they are taken: `NCCL_STEPS` (`include/device.h`).
pub const HAND_OVER_SLOTS: u32 = 8;

/// What a split does without a member whose process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitWithTheDead {
    /// It returns this `ncclResult_t` on the others.
    Error(i32),
    /// An error on some, and others may wait for ever.
    Unspecified,
}

/// Which kernel a rank chooses for a collective, from local state alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KernelPath {
    /// Ring or tree: needs a connection on first use.
    Ordinary,
    /// Symmetric, through NCCL's internal LL slots: immune to windows that are paired wrongly.
    SymmetricLl,
    /// Symmetric, loads and stores through the peers' windows.
    SymmetricLsa,
}

impl Platform {
    /// Every modelled version, oldest first.
    pub const ALL: [Self; 3] = [Self::V2_27_7, Self::V2_28_9, Self::V2_30_7];

    /// The version, as in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V2_27_7 => "2.27.7",
            Self::V2_28_9 => "2.28.9",
            Self::V2_30_7 => "2.30.7",
        }
    }

    /// Whether devices have been observed on this platform.
    #[must_use]
    pub fn observed(self) -> bool {
        self == Self::V2_28_9
    }

    /// NULL or size 0: 2.29.2 turned the no-op into an error (`dev_runtime.cc:1336-1340`).
    #[must_use]
    pub fn null_registration(self) -> NullRegistration {
        match self {
            Self::V2_27_7 | Self::V2_28_9 => NullRegistration::NoOp,
            Self::V2_30_7 => NullRegistration::InvalidArgument,
        }
    }

    /// Sizes are exchanged since 2.30.7 (`dev_runtime.cc:588-599`).
    #[must_use]
    pub fn unequal_sizes(self) -> UnequalSizes {
        match self {
            Self::V2_27_7 | Self::V2_28_9 => UnequalSizes::Error,
            Self::V2_30_7 => UnequalSizes::Success,
        }
    }

    /// Local deduplication by memory handle until 2.30.4 (`v2.28.9:dev_runtime.cc:368-375`).
    #[must_use]
    pub fn repeated(self) -> Repeated {
        match self {
            Self::V2_27_7 | Self::V2_28_9 => Repeated::Deduplicated,
            Self::V2_30_7 => Repeated::NewMapping,
        }
    }

    /// Bytes of a transfer up to which the small (LL) protocol is taken, which copies through NCCL's own slots
    /// whatever is registered. Source: `enqueue.cc:909-951`, `NCCL_P2P_LL_THRESHOLD`; a part has at least
    /// 64 KiB, so that larger ones never stay below it.
    #[must_use]
    pub fn small_transfer_bytes(self) -> u64 {
        match self {
            Self::V2_27_7 | Self::V2_28_9 | Self::V2_30_7 => 16 << 10,
        }
    }

    /// Bytes of a pair that its sender can hand over before anybody receives, on a communicator of so many ranks: so
    /// much certainly, and certainly less than so much. What lies between is not measured.
    ///
    /// Measured on H200s with 2.28.9 (`rules.contract.transfers`): T1 finishes with 64 MiB between two ranks and with
    /// 32 MiB of four, T6 hangs with 72 MiB between two, T1 hangs with 64 MiB of four. A pair of three ranks has the
    /// channels of one of four (`v2.28.9:init.cc`, `p2pnChannelsPerPeer` is a power of two), of larger communicators
    /// no more.
    #[must_use]
    pub fn in_flight_bytes(self, ranks: usize) -> (u64, u64) {
        let (fits, never) = match ranks {
            0..=2 => (64, 72),
            3 | 4 => (32, 64),
            _ => (1, 64),
        };
        match self {
            Self::V2_27_7 | Self::V2_28_9 | Self::V2_30_7 => (fits << 20, never << 20),
        }
    }

    /// How many slots of a pair the data of one broadcast or reduction take at least and at most, on a communicator of
    /// so many ranks, of the [`HAND_OVER_SLOTS`] that there are. Whoever only hands over is through once all its data
    /// lie in slots, whether or not anybody takes them.
    ///
    /// Measured on H200s with 2.28.9 (`rules.contract.roots`): between two ranks one launch of up to 64 MiB is through
    /// alone, and none of 128 MiB; eight of 1 KiB are, and the ninth is not; four of 1 MiB are, and the fifth is not.
    /// Of a broadcast to three others only a few bytes were seen to be
    /// (`systems.pytorch-129147-p2p-communicators.eager`).
    #[must_use]
    pub fn hand_over_slots(self, ranks: usize, len_bytes: u64) -> (u32, u32) {
        const NEVER: u32 = HAND_OVER_SLOTS + 1;
        match (self, ranks, len_bytes) {
            (_, _, 0..=64) | (_, 0..=2, 0..=0x400) => (1, 1),
            (_, 0..=2, 0..0x10_0000) => (1, 2),
            (_, 0..=2, 0x10_0000) => (2, 2),
            (_, 0..=2, 0..=0x400_0000) => (2, HAND_OVER_SLOTS),
            (_, _, 0x800_0000..) => (NEVER, NEVER),
            (_, _, _) => (1, NEVER),
        }
    }

    /// What a split does of which another member's process has ended. Between two ranks it returns `ncclRemoteError`
    /// (measured with 2.28.9, `rules.contract.death` X2). Among more, the neighbours of the dead one are told by their
    /// sockets (`v2.28.9:bootstrap.cc`, a ring), and the others wait for ranks that have left: not measured.
    ///
    /// Other calls hang: a registration and a first all-reduce did for 75 seconds (X3, X4), a first broadcast, send or
    /// receive for ten (X5 to X7), after which they were ended. An init was not measured: the exchange of its id comes first.
    #[must_use]
    pub fn split_with_the_dead(self, ranks: usize) -> SplitWithTheDead {
        match ranks {
            0..=2 => SplitWithTheDead::Error(6),
            _ => SplitWithTheDead::Unspecified,
        }
    }

    /// Sends and receives of a group on one communicator that certainly progress together, counted as NCCL plans
    /// them: a send and a receive in one, and only the first of each link. A batch of a channel has room for so many
    /// (`include/device.h:391`), and later ones of a link are in a later batch (`enqueue.cc:121-150`). Which
    /// batches wait for which depends on channels, and on budgets of bytes (`enqueue.cc:1184`, `1608-1610`).
    #[must_use]
    pub fn planned_together(self) -> u32 {
        match self {
            Self::V2_27_7 | Self::V2_28_9 | Self::V2_30_7 => 8,
        }
    }

    /// 2.30.7 registers with the thread's capture mode relaxed (`dev_runtime.cc:860-862`).
    #[must_use]
    pub fn registration_in_capture(self) -> RegistrationInCapture {
        match self {
            Self::V2_27_7 | Self::V2_28_9 => RegistrationInCapture::Refused,
            Self::V2_30_7 => RegistrationInCapture::Done,
        }
    }

    /// The kernel that a rank chooses, given whether its own buffers lie in symmetric windows.
    ///
    /// `len_bytes` is one rank's part. Source: `enqueue.cc:3014-3122`, `symmetric_sched.cc`,
    /// `sym_kernels.cc:511-641`; the switch points are the cost model's, for Hopper without multicast.
    #[must_use]
    pub fn kernel_path(self, call: &PathQuery) -> KernelPath {
        let averages = call.op == ReduceOp::Avg && self == Self::V2_30_7;
        let reducible = (call.op == ReduceOp::Sum || averages)
            && matches!(call.dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::Fp8);
        let Some(kernel) = call.kind.symmetric().filter(|_| reducible || !call.kind.reduces()) else {
            return KernelPath::Ordinary;
        };
        let both = call.send_registered && call.recv_registered;
        let registered = match self {
            Self::V2_27_7 | Self::V2_28_9 => both,
            Self::V2_30_7 => match kernel {
                SymmetricKernel::AllReduce => both,
                SymmetricKernel::AllGather => call.recv_registered,
                SymmetricKernel::ReduceScatter => call.send_registered,
            },
        };
        if !registered || call.ranks < 2 {
            return KernelPath::Ordinary;
        }
        let kib = if kernel == SymmetricKernel::AllReduce { [70, 47, 35, 17] } else { [66, 46, 35, 18] };
        let limit_kib = match call.ranks {
            2 => kib[0],
            3 => kib[1],
            4..=7 => kib[2],
            _ => kib[3],
        };
        if call.len_bytes < limit_kib * 1024 { KernelPath::SymmetricLl } else { KernelPath::SymmetricLsa }
    }
}

/// What a rank knows when it chooses a kernel.
#[derive(Debug, Clone, Copy)]
pub struct PathQuery {
    /// The collective that the kernel computes.
    pub kind: CollectiveKind,
    /// The reduction that it does.
    pub op: ReduceOp,
    /// The type of the elements that it works on.
    pub dtype: Dtype,
    /// Bytes of one rank's part.
    pub len_bytes: u64,
    /// Size of the communicator.
    pub ranks: usize,
    /// The input starts inside a symmetric window.
    pub send_registered: bool,
    /// The output starts inside a symmetric window.
    pub recv_registered: bool,
}
