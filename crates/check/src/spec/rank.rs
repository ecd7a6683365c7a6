//! `r`, the rank: the first argument of every program, and which verbs each value of the language has.
//!
//! Not here: the verbs, which stand with their nouns.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allocative::Allocative;
use rankcheck_model::Loc;
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder, MethodsStatic};
use starlark::values::{Heap, NoSerialize, StarlarkValue, Value, starlark_value};
use starlark::{starlark_module, starlark_simple_value};

use crate::spec::builder::Builder;
use crate::spec::error::loc_of_caller;
use crate::spec::handle::Handle;
use crate::spec::noun::{
    barrier, collective, comm, container, event, exchange, flag, graph, group, memory, mutex, overlap, p2p,
    pool, question, stream, thread, window,
};
use crate::spec::unbounded;

/// The rank that is evaluated.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
#[allocative(skip)]
pub(crate) struct RankValue {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Set once the program looks at `r.rank`.
    pub(crate) read: Arc<RankRead>,
}

/// Whether a program looked at the number of its rank, and where first.
#[derive(Debug, Default)]
pub(crate) struct RankRead {
    read: AtomicBool,
    at: OnceLock<Loc>,
}

impl RankRead {
    /// The program looks now, where this is written.
    pub(crate) fn note(&self, at: impl FnOnce() -> Option<Loc>) {
        if !self.read.swap(true, Ordering::Relaxed)
            && let Some(at) = at()
        {
            self.at.get_or_init(|| at);
        }
    }

    /// Whether it has looked.
    pub(crate) fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    /// Where it looked first, if that is known.
    pub(crate) fn at(&self) -> Option<Loc> {
        self.at.get().cloned()
    }
}

starlark_simple_value!(RankValue);

impl fmt::Display for RankValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<rank>")
    }
}

#[starlark_value(type = "rank")]
impl<'v> StarlarkValue<'v> for RankValue {
    fn get_methods() -> Option<&'static Methods> {
        static METHODS: MethodsStatic = MethodsStatic::new("RankValue", rank_methods);
        Some(METHODS.methods())
    }
}

impl Builder {
    /// The rank number. Ranks whose program never reads it are interchangeable.
    #[track_caller]
    pub fn rank(&self) -> u32 {
        let caller = Location::caller();
        self.read_rank.note(|| Some(loc_of_caller(caller)));
        self.rank.0
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.setting.ranks
    }

    /// Returns the numbers of all ranks.
    #[must_use]
    pub fn world(&self) -> Vec<u32> {
        (0..self.setting.ranks).collect()
    }
}

/// The methods of `r`.
fn rank_methods(methods: &mut MethodsBuilder) {
    identity(methods);
    barrier::barriers_of_rank(methods);
    comm::comms_of_rank(methods);
    container::containers_of_rank(methods);
    event::event_of_rank(methods);
    exchange::exchange_of_rank(methods);
    flag::flag_of_rank(methods);
    graph::graph_of_rank(methods);
    group::groups_of_rank(methods);
    memory::memory_of_rank(methods);
    mutex::mutex_of_rank(methods);
    overlap::overlap_of_rank(methods);
    pool::pools_of_rank(methods);
    question::questions_of_rank(methods);
    stream::streams_of_rank(methods);
    thread::marks_of_rank(methods);
    thread::control_of_rank(methods);
}

/// The methods of communicators.
pub(crate) fn comm_methods(methods: &mut MethodsBuilder) {
    comm::comm_methods(methods);
    window::window_methods(methods);
    collective::collective_methods(methods);
    p2p::transfer_methods(methods);
}

/// The methods of buffers.
pub(crate) fn buffer_methods(methods: &mut MethodsBuilder) {
    memory::buffer_methods(methods);
    memory::address_methods(methods);
}

/// What came out of a map, a list or the store may be anything.
pub(crate) fn slot_methods(methods: &mut MethodsBuilder) {
    comm_methods(methods);
    memory::buffer_methods(methods);
    thread::thread_methods(methods);
}

/// Adds no method, for the types of values that have none.
pub(crate) fn nothing(_methods: &mut MethodsBuilder) {}

#[starlark_module]
fn identity(methods: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn rank(this: &RankValue) -> starlark::Result<u32> {
        this.read.note(unbounded::statement);
        Ok(this.rank)
    }

    #[starlark(attribute)]
    fn size(this: &RankValue) -> starlark::Result<u32> {
        Ok(this.size)
    }

    #[starlark(attribute)]
    fn world(this: &RankValue) -> starlark::Result<Vec<u32>> {
        Ok((0..this.size).collect())
    }

    #[starlark(attribute)]
    fn store<'v>(this: &RankValue, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let _ = this;
        Ok(Handle::Store.alloc(heap))
    }

    #[starlark(attribute)]
    fn ipc<'v>(this: &RankValue, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let _ = this;
        Ok(Handle::Ipc.alloc(heap))
    }
}
