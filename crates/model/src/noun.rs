//! The nouns of the vendors' interfaces: one file each, with what its operations mean.
//! Not here: in which order operations run ([`crate::order`]).

pub(crate) mod address;
pub(crate) mod barrier;
pub(crate) mod cell;
pub(crate) mod collective;
pub(crate) mod collision;
pub(crate) mod comm;
pub(crate) mod container;
pub(crate) mod event;
pub(crate) mod exchange;
pub(crate) mod flag;
pub(crate) mod graph;
pub(crate) mod group;
pub(crate) mod ipc;
pub(crate) mod launch_cycle;
pub(crate) mod launch_order;
pub(crate) mod memory;
pub(crate) mod mutex;
pub(crate) mod overlap;
pub(crate) mod p2p;
pub(crate) mod parting;
pub(crate) mod pool;
pub(crate) mod rendezvous;
pub(crate) mod store;
pub(crate) mod stream;
pub(crate) mod thread;
pub(crate) mod window;
