//! Who is calling: the host thread whose operation is looked at, on the machine and in the state that it runs in.
//!
//! [`Here`] looks, [`Cx`] changes. Whatever belongs to one thread is a method of these two; what belongs to a
//! whole rank, a stream or the job is a method of [`Machine`].
//! Not here: what operations mean ([`crate::noun`]).

use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::noun::thread::ThreadState;
use crate::op::Show;
use crate::order::dependence::{Access, Object};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State};

/// A host thread in a state that is only looked at.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) m: &'a Machine,
    pub(crate) state: &'a State,
    pub(crate) rank: Rank,
    pub(crate) thread: u32,
}

/// A host thread whose next operation runs.
pub(crate) struct Cx<'a> {
    pub(crate) m: &'a Machine,
    pub(crate) state: &'a mut State,
    pub(crate) rank: Rank,
    pub(crate) thread: u32,
    /// The operation that runs, as findings and accesses name it.
    pub(crate) op: OpRef,
    #[cfg(debug_assertions)]
    footprint: Vec<(Object, Access)>,
}

impl Machine {
    /// A thread to look at.
    pub(crate) fn here<'a>(&'a self, state: &'a State, rank: Rank, thread: u32) -> Here<'a> {
        Here { m: self, state, rank, thread }
    }

    /// A thread whose next operation runs.
    pub(crate) fn cx<'a>(&'a self, state: &'a mut State, rank: Rank, thread: u32) -> Cx<'a> {
        let here = self.here(state, rank, thread);
        let op = here.op_ref();
        #[cfg(debug_assertions)]
        let footprint = here.footprint_of_several();
        Cx {
            m: self,
            state,
            rank,
            thread,
            op,
            #[cfg(debug_assertions)]
            footprint,
        }
    }
}

impl<'a> Here<'a> {
    /// The rank of the thread.
    pub(crate) fn me(self) -> &'a RankState {
        self.state.rank(self.rank)
    }

    /// Returns the state of the thread, which is one of its rank's.
    pub(crate) fn this(self) -> &'a ThreadState {
        self.me().thread(self.thread)
    }

    /// What the thread touches next; nothing where it is the only one of its rank, for then nobody contends.
    #[cfg(debug_assertions)]
    fn footprint_of_several(self) -> Vec<(Object, Access)> {
        let mut footprint = Vec::new();
        if self.me().threads().len() > 1 {
            self.footprint(&mut |object, how| footprint.push((object, how)));
        }
        footprint
    }

    /// Calls with what names and operands are called here and now.
    pub(crate) fn show(self, with: &mut dyn FnMut(&Show<'_>) -> String) -> String {
        let operand = |operand: &Operand| self.m.operand_name(self.state, self.rank, operand);
        with(&Show { token: &|token| self.m.name(token), operand: &operand })
    }
}

impl Cx<'_> {
    /// Holds the operation to its footprint, wherever debug assertions are on.
    pub(crate) fn assert_in_footprint(&self, object: Object, how: Access) {
        #[cfg(debug_assertions)]
        {
            let declared = self.footprint.iter().any(|(of, most)| {
                *of == object && (*most == Access::Write || how == Access::Read || *most == how)
            });
            assert!(declared, "{object:?} is accessed ({how:?}) and not in the footprint of {:?}", self.op);
        }
        #[cfg(not(debug_assertions))]
        let _ = (object, how);
    }

    /// Returns the thread in a context that cannot change the state.
    pub(crate) fn here(&self) -> Here<'_> {
        Here { m: self.m, state: self.state, rank: self.rank, thread: self.thread }
    }

    /// The rank of the thread.
    pub(crate) fn me(&self) -> &RankState {
        self.state.rank(self.rank)
    }

    /// The rank of the thread, to be changed.
    pub(crate) fn me_mut(&mut self) -> &mut RankState {
        self.state.rank_mut(self.rank)
    }

    /// Returns the state of the thread, which is one of its rank's.
    pub(crate) fn this(&self) -> &ThreadState {
        self.me().thread(self.thread)
    }

    /// The thread, to be changed.
    pub(crate) fn this_mut(&mut self) -> &mut ThreadState {
        let thread = self.thread;
        self.me_mut().thread_mut(thread)
    }
}
