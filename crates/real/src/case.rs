//! A case: one program on real devices, what is forced while it runs, and what each rank reports.
//!
//! These types cross process borders as JSON and are the whole interface between who runs programs
//! (`execute`, `worker`, `job`) and who compares them with the model (the checker).
//! Not here: how a program is run, and what was predicted.

use std::collections::BTreeMap;
use std::time::Duration;

use rankcheck_model::{Dtype, Rank, Resources};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::flag::WordPosition;

/// One run of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Which program: understood by whoever loads programs in a worker, opaque here.
    pub program: serde_json::Value,
    /// Ranks of the program.
    pub ranks: u32,
    /// Whether communicators are new, with cold connections, or may have served earlier cases.
    pub comms: CommHistory,
    /// The element type that buffers are filled, kernels compute and contents are reported in.
    pub element: Dtype,
    /// The nondeterminism that is forced.
    pub forced: Forced,
    /// How long no rank may make progress.
    #[serde(with = "seconds")]
    pub deadline: Duration,
}

/// Whether communicators are reused between cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommHistory {
    /// New ones: nothing is connected yet.
    Fresh,
    /// Reused ones: every pair is connected, no window is registered.
    Warm,
}

/// Where an operation of a case stands. The same numbers as in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct At {
    /// World rank that runs the operation.
    pub rank: Rank,
    /// Host thread that runs it, by its number on the rank.
    pub thread: u32,
    /// Operations and questions of the thread before it.
    pub index: u32,
}

/// The nondeterminism that is forced. What is not named here happens as it happens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forced {
    /// Values of operations, in the order in which the operation needs them.
    #[serde(with = "pairs", rename = "picks")]
    pub nondet: BTreeMap<At, Vec<NondetValue>>,
    /// For each rank the segments in the wanted order of their addresses, lowest first.
    pub addresses: Vec<Vec<SegmentName>>,
    /// Operations that run in this order, each after the one before: the threads are delayed.
    pub turns: Vec<At>,
}

/// A segment, by who made it: a pool or the program, and the n-th of that name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentName {
    /// The pool, or the buffer of `mem_alloc`.
    pub owner: String,
    /// Position among the owner's, from 0.
    pub nth: u32,
}

/// A nondeterministic value; [`rankcheck_model::machine::Nondet`] says what of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum NondetValue {
    /// The option of a `choose`, by position.
    Choose {
        /// The position among the options, from 0.
        option: u32,
    },
    /// An allocation, a registration or an init fails before it is made.
    Fault {
        /// Whether the call fails.
        fails: bool,
    },
    /// The process of the rank is killed before the operation.
    Death {
        /// Whether the process is killed.
        dies: bool,
    },
    /// The event of a query, or of a deferred free, is seen complete.
    Poll {
        /// Whether the event is seen complete.
        done: bool,
    },
    /// The position of an address among those already compared; [`Forced::addresses`] makes it come true.
    AddressOrder {
        /// How many of those compared come before it.
        position: u32,
    },
    /// The position of a key in hash order among those already compared.
    HashOrder {
        /// How many of those compared come before it.
        position: u32,
    },
    /// The position of a communicator's hash among those already compared. Nobody can force it or tell.
    CommOrder {
        /// How many of those compared come before it.
        position: u32,
    },
    /// A new segment gets a fresh address (0) or the n-th of those that were freed, oldest first.
    AddressReuse {
        /// 0 for a fresh address, n for the n-th freed one.
        which: u32,
    },
    /// How much of a send NCCL holds before it is received. Nobody can force it or tell.
    InFlight {
        /// All that was not measured to hang, or no more than was measured to finish.
        all: bool,
    },
    /// Whether transfers of a group that need not progress together do. Nobody can force it or tell.
    #[serde(rename = "in_turn")]
    Serialized {
        /// Whether they are serialized where they can be.
        all: bool,
    },
    /// A pool's history left nothing more behind (0) or a free segment of the n-th size.
    Havoc {
        /// 0 for nothing, n for a free segment of the n-th size.
        which: u32,
    },
}

/// A nondeterministic value on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The operation that it came up at.
    pub at: At,
    /// What was wanted, if anything was.
    pub wanted: Option<NondetValue>,
    /// The value that came up.
    #[serde(rename = "pick")]
    pub value: NondetValue,
}

/// How a rank ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// All threads returned and all streams drained.
    Finishes,
    /// Threads that were inside a call when the deadline passed, by thread and index.
    HostHang {
        /// The thread, the position of the call in it, and the call in words.
        inside: Vec<(u32, u32, String)>,
    },
    /// Threads returned, or wait for the device; these operations are at the heads of streams that did not drain.
    GpuHang {
        /// Stream, then thread and index of its first operation that did not complete, if known.
        streams: Vec<(String, Option<(u32, u32)>)>,
    },
    /// The program ended its process, with this message; `killed` where death was forced.
    Dead {
        /// What the program said when it ended its process.
        message: String,
    },
    /// CUDA refuses all further work of the process, with this `CUresult`.
    Broken {
        /// The `CUresult` that every further call returns.
        code: u32,
    },
    /// The process was gone although nobody asked for it.
    Lost {
        /// What is known, for example the signal.
        why: String,
    },
}

/// A call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallFailed {
    /// The call, with its object, in the model's words: `tp.register`.
    pub call: String,
    /// `ncclResult_t`; 2 for an allocation that ran out of memory.
    pub code: i32,
    /// The host thread that called it.
    pub thread: u32,
    /// The position of the call among the operations and questions of the thread.
    pub index: u32,
    /// `CUresult` or the library's text, where there is one.
    pub detail: Option<String>,
}

/// The contents of a buffer that the program still had at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The first slot that holds it: host thread.
    pub thread: u32,
    /// The first slot that holds it: position among the thread's slots.
    pub slot: u32,
    /// Its name in the spec.
    pub name: String,
    /// How many elements the buffer has.
    pub elements: u64,
    /// The distinct values with how often each stands and where first, most frequent first, at most
    /// [`Held::VALUES`] of them.
    #[serde(with = "values")]
    pub values: Vec<(f64, u64, u64)>,
    /// How many distinct values there are; more than [`Held::VALUES`] is reported as one more.
    pub distinct: u32,
    /// The first runs of equal elements: value and length, at most [`Held::RUNS`] of them.
    #[serde(with = "runs")]
    pub runs: Vec<(f64, u64)>,
}

impl Held {
    /// Distinct values that are listed.
    pub const VALUES: usize = 64;
    /// Runs that are listed.
    pub const RUNS: usize = 16;
}

/// What one rank did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// How the rank ended.
    pub ended: Ended,
    /// Calls that returned errors, in order.
    pub errors: Vec<CallFailed>,
    /// Nondeterministic values that came up.
    pub taken: Vec<Taken>,
    /// The answers of each thread's questions, in order.
    pub answers: BTreeMap<u32, Vec<u32>>,
    /// What its buffers held; empty unless all its threads returned or exited and its streams drained.
    pub held: Vec<Held>,
    /// Labels that it came by, for what a program says about itself.
    pub reached: Vec<String>,
}

/// What a case left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One for each rank.
    pub ranks: Vec<RankReport>,
    /// Wall time, from the start of the program to the last report or the deadline.
    #[serde(with = "seconds")]
    pub took: Duration,
}

/// What an executor needs of the other ranks: everything that is no call of CUDA or NCCL. Blocking calls
/// have no timeout of their own; the deadline of the case ends them by ending the process.
pub trait Host: Send + Sync {
    /// A thread is about to make a call, described in words.
    fn enter(&self, thread: u32, index: u32, call: &str);
    /// The thread has come back from the call that it entered last.
    fn leave(&self, thread: u32, index: u32);

    /// Meets the other members for the n-th init of a name; every member gets the same communicator.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn init(&self, name: &str, nth: u32, members: &[Rank], children: Resources) -> Result<CommTicket, Error>;
    /// Comes to the n-th init of a name at the end of a group, without waiting: the end waits for the others.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn announce(
        &self,
        name: &str,
        nth: u32,
        members: &[Rank],
        children: Resources,
    ) -> Result<CommTicket, Error>;
    /// The unique id of a new communicator: that of the first member who brought one, for which the others wait.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn unique_id(&self, ticket: &CommTicket, own: Option<Vec<u8>>) -> Result<Vec<u8>, Error>;
    /// A barrier of these ranks, the n-th; returns whether all votes were true.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn agree(&self, members: &[Rank], nth: u32, vote: Vote) -> Result<Vote, Error>;
    /// Sets a key.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn store_set(&self, key: &str, value: serde_json::Value) -> Result<(), Error>;
    /// Waits for a key and returns its value.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn store_get(&self, key: &str) -> Result<serde_json::Value, Error>;
    /// Deletes a key.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn store_delete(&self, key: &str) -> Result<(), Error>;
    /// The n-th exchange of these ranks: returns what each of them brought, in their order.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn gather(
        &self,
        members: &[Rank],
        nth: u32,
        brought: serde_json::Value,
    ) -> Result<Vec<serde_json::Value>, Error>;
    /// Where a flag lies, the same on every rank of this host.
    ///
    /// # Errors
    /// If the connection to the others is gone, or there are too many flags.
    fn word(&self, flag: &str) -> Result<WordPosition, Error>;
    /// Waits until no other rank works on memory of this one any more: all have come here or reported.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn rest(&self) -> Result<(), Error>;
    /// Waits until all operations that are scheduled before this one are over.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn turn(&self, at: At) -> Result<(), Error>;
    /// Says that this operation is over, so that the next of the schedule may begin.
    ///
    /// # Errors
    /// If the connection to the others is gone.
    fn turn_over(&self, at: At) -> Result<(), Error>;
}

/// Says where a rank stands, called from another thread while the rank's threads are inside calls that may
/// never return. Must not wait for them.
pub trait Inspect: Send + Sync {
    /// What is known so far. How it ended is [`Ended::HostHang`] or [`Ended::GpuHang`].
    fn inspect(&self) -> RankReport;
}

/// A vote in a host agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// True; a barrier votes so.
    Yes,
    /// False: one such vote makes the agreement false.
    No,
}

/// Which communicator the members of an init get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommTicket {
    /// A number that is equal on all members and unique in the job.
    pub id: u64,
    /// Members, in communicator order.
    pub members: Vec<Rank>,
    /// What splits of it use.
    pub children: Resources,
    /// Whether the members still have it from an earlier case, or make it now.
    pub comms: CommHistory,
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

/// JSON has only strings as keys.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::{At, NondetValue};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<At, Vec<NondetValue>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<At, Vec<NondetValue>>, D::Error> {
        Vec::<(At, Vec<NondetValue>)>::deserialize(from).map(|rows| rows.into_iter().collect())
    }
}

/// JSON has no numbers beyond the finite ones, but memory that was never written has.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    /// `NaN`, `inf` or `-inf`.
    Other(String),
}

/// By hand: what serde derives for an untagged enum cannot read fractions once any crate of the build asks
/// `serde_json` for arbitrary precision, as starlark does.
impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        match serde_json::Value::deserialize(from)? {
            serde_json::Value::String(text) => Ok(Self::Other(text)),
            serde_json::Value::Number(number) => {
                number.as_f64().map(Self::Finite).ok_or_else(|| D::Error::custom("a number out of range"))
            }
            other @ (serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_)) => Err(D::Error::custom(format!("{other} is no number"))),
        }
    }
}

impl Number {
    fn of(value: f64) -> Self {
        if value.is_finite() { Self::Finite(value) } else { Self::Other(value.to_string()) }
    }

    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Finite(value) => Ok(value),
            Self::Other(text) => text.parse().map_err(E::custom),
        }
    }
}

mod values {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Number;

    pub(super) fn serialize<S: Serializer>(rows: &[(f64, u64, u64)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(rows.iter().map(|(value, count, first)| (Number::of(*value), count, first)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(f64, u64, u64)>, D::Error> {
        let rows = Vec::<(Number, u64, u64)>::deserialize(from)?;
        rows.into_iter().map(|(value, count, first)| Ok((value.value()?, count, first))).collect()
    }
}

mod runs {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Number;

    pub(super) fn serialize<S: Serializer>(rows: &[(f64, u64)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(rows.iter().map(|(value, len)| (Number::of(*value), len)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(f64, u64)>, D::Error> {
        let rows = Vec::<(Number, u64)>::deserialize(from)?;
        rows.into_iter().map(|(value, len)| Ok((value.value()?, len))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_are_no_numbers_cross_the_border() {
        let held = Held {
            thread: 0,
            slot: 1,
            name: "x".to_owned(),
            elements: 4,
            values: vec![(0.1, 2, 0), (f64::INFINITY, 1, 2), (f64::NAN, 1, 3)],
            distinct: 3,
            runs: vec![(0.1, 2), (f64::INFINITY, 1), (f64::NAN, 1)],
        };
        let text = serde_json::to_string(&held).expect("it can be written");
        let back: Held = serde_json::from_str(&text).expect("it can be read");
        assert_eq!((&back.values[..2], &back.runs[..2]), (&held.values[..2], &held.runs[..2]));
        assert!(back.values[2].0.is_nan() && back.runs[2].0.is_nan(), "{text}");
    }
}
