//! A job as its processes launched it: what each of them gave to its devices, in order, and how far that came.
//!
//! This is what is left of a job that somebody looked at from outside, be it PyTorch's ring of calls or NCCL's own log: no
//! values, no streams, no waits of hosts, and often neither beginning nor end. So what is said rests on few facts:
//!
//! - the n-th collective of a group is the n-th of every member ([`compare`]);
//! - a collective that is over anywhere was launched by every member, and a device stands on which one is open that
//!   another's has finished;
//! - a device does what it was given in order, and a host that launches nothing waits for what its device has open, if
//!   there is any ([`waits`]). Neither is certain across groups, and the report says so where an answer rests on it;
//! - who launched nothing more, has nothing open and is waited for is a root.
//!
//! Reading order: [`job`] (the data), [`positions`] (how far each member of a group came), [`pairing`] (which transfers
//! meet), [`compare`] (calls that differ, and groups that are called in different orders), [`left_out`] (calls that only
//! lines tell apart), [`concluded`] (what can be over, where nobody saw it), [`waits`] (who waits for whom),
//! [`components`] (circles), [`judge`], [`report`], [`lines`], [`timeline`].
//! Not here: where the launches were read ([`super::dumps`], [`super::logs`]).

pub mod compare;
pub mod components;
pub mod concluded;
pub mod job;
pub mod judge;
pub mod left_out;
pub mod lines;
pub mod pairing;
pub mod positions;
pub mod report;
pub mod timeline;
pub mod waits;
