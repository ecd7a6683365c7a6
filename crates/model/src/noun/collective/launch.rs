//! A collective as one rank launched it.
//! Not here: what runs when all members have.

use std::sync::Arc;

use super::{Collective, CollectiveKind, Declared};
use crate::host::value::{Buffer, CommId};
use crate::id::Token;
use crate::identity::{Counter, Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::noun::launch_order::Issue;
use crate::platform::KernelPath;
use crate::program::{Dtype, ReduceOp};
use crate::walk::walk;
use std::hash::Hash;

/// The parameters of a collective. Copied out of the program, which a large job would otherwise read twice.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Call {
    pub(crate) kind: CollectiveKind,
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    pub(crate) op: ReduceOp,
    pub(crate) stream: Token,
    pub(crate) declared: Declared,
}

impl Call {
    /// Bytes of a part; as many as there can be where the count is larger than memory.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.count.saturating_mul(self.dtype.len_bytes())
    }
}

impl From<&Collective> for Call {
    fn from(call: &Collective) -> Self {
        let Collective { kind, count, dtype, op, stream, declared, .. } = *call;
        Self { kind, count, dtype, op, stream, declared }
    }
}

/// Whether the program runs a launch itself or a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Recorded {
    No,
    /// By the graph of this name.
    By(Token),
}

/// A collective as one rank launched it.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) call: Call,
    pub(crate) comm: CommId,
    /// The communicator whose channels it uses.
    pub(crate) family: CommId,
    /// Position among the launches of the communicator on this rank.
    pub(crate) nth: u32,
    /// The same position in the order of the program, from which groups depart.
    pub(crate) written: u32,
    /// Place in the launch order of the communicator's family on this rank.
    pub(crate) sequence: u32,
    pub(crate) issue: Issue,
    pub(crate) send: Arc<Buffer>,
    pub(crate) recv: Arc<Buffer>,
    /// Window number and offset in it.
    pub(crate) send_window: Option<(u32, u64)>,
    pub(crate) recv_window: Option<(u32, u64)>,
    pub(crate) path: KernelPath,
    /// Other collectives were launched by the same group.
    pub(crate) companions: bool,
    /// Whether a graph recorded it.
    pub(crate) recorded: Recorded,
    pub(crate) op: OpRef,
}

identify_as_hashed!(Call, KernelPath, Recorded);
walk!(apart struct Launch {
    // What the operation says follows from its position.
    call: derived fixed,
    comm: derived fixed,
    family: derived fixed,
    nth: hashed fixed,
    written: hashed fixed,
    sequence: hashed fixed,
    issue: hashed fixed,
    send: hashed fixed,
    recv: hashed fixed,
    send_window: hashed fixed,
    recv_window: hashed fixed,
    path: hashed fixed,
    companions: derived fixed,
    recorded: hashed fixed,
    op: (OpRef::position) moved,
});

impl Identify for Launch {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self {
            call,
            comm,
            family,
            nth,
            written,
            sequence,
            issue,
            send,
            recv,
            send_window,
            recv_window,
            path,
            companions,
            recorded,
            op,
        } = self;
        (call, comm, family).hash(to);
        to.counted(Counter::Collectives(*comm), *nth);
        to.counted(Counter::Collectives(*comm), *written);
        to.counted(Counter::Family(to.rank(), *family), *sequence);
        issue.identify(to.rank(), to);
        (send, recv, send_window, recv_window, path, companions, recorded).hash(to);
        op.identify(to);
    }
}
