//! Groups of a program: what NCCL runs when they end.
//!
//! Not here: how communicators are made ([`super::comm`]).

use std::sync::Arc;

use rankcheck_model::host::value::{Buffer, CommId};
use rankcheck_model::{GroupOp, Rank, Resources};

use super::comm::BegunInit;
use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::tables::CommLifetime;
use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;
use crate::Error;
use crate::comm::PendingComm;
use crate::group;
use crate::window::PendingWindow;

/// `ncclInvalidArgument`: what NCCL would return for a call that cannot even be made.
pub(crate) const INVALID_ARGUMENT: i32 = 4;

/// An open group of a thread.
#[derive(Debug, Default)]
pub(crate) struct OpenGroup {
    pub(crate) depth: u32,
    pub(crate) inits: Vec<GroupedInit>,
    pub(crate) splits: Vec<GroupedSplit>,
    pub(crate) registrations: Vec<Grouped>,
    /// Whether a call inside was impossible, so that NCCL will carry out none.
    pub(crate) spoiled: bool,
    /// What is launched when the group ends.
    pub(crate) launches: Vec<GroupedLaunch>,
}

/// A launch of a group.
#[derive(Debug)]
pub(crate) struct GroupedLaunch {
    stream: usize,
    index: u32,
    of: LaunchOf,
}

/// What NCCL launches: transfers of one communicator and group are one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchOf {
    Collective(CommId),
    Transfer(CommId),
}

impl LaunchOf {
    fn comm(self) -> CommId {
        match self {
            Self::Collective(comm) | Self::Transfer(comm) => comm,
        }
    }
}

/// An init inside a group. Who the others are is asked at its end, as only the end waits for them.
#[derive(Debug)]
pub(crate) struct GroupedInit {
    pub(crate) slot: usize,
    pub(crate) name: Arc<str>,
    pub(crate) nth: u32,
    pub(crate) members: Arc<[Rank]>,
    pub(crate) children: Resources,
    pub(crate) position: usize,
}

/// A split inside a group.
#[derive(Debug)]
pub(crate) struct GroupedSplit {
    pub(crate) slot: usize,
    pub(crate) name: Arc<str>,
    pub(crate) pending: PendingComm,
}

/// A registration inside a group.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) slot: usize,
    pub(crate) comm: CommId,
    pub(crate) buffer: Option<Arc<Buffer<OnDevice>>>,
    pub(crate) pending: PendingWindow,
}

impl Execute for GroupOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Start => thread.group_start(text)?,
            Self::End => thread.group_end(text)?,
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    fn group_start(&mut self, text: &str) -> Result<(), Halt> {
        let result = self.inside(text, WaitsFor::Hosts, |thread| group::start(&thread.run.shared.libraries));
        if self.noted("group_start", result)?.is_some() {
            self.group.depth += 1;
        }
        Ok(())
    }

    fn group_end(&mut self, text: &str) -> Result<(), Halt> {
        self.end_turn()?;
        let inits = if self.group.depth == 1 { std::mem::take(&mut self.group.inits) } else { Vec::new() };
        let spoiled = self.group.spoiled;
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            let begun = inits.into_iter().filter(|_| !spoiled).map(|init| thread.begin_init(init));
            let begun: Vec<BegunInit> = begun.collect::<Result<_, _>>()?;
            thread.meet_for_kept(&begun)?;
            thread.unrelaxed(|| group::end(&thread.run.shared.libraries))?;
            Ok(begun)
        });
        let ended = self.noted("group_end", result)?;
        self.group.depth = self.group.depth.saturating_sub(1);
        if self.group.depth > 0 {
            return Ok(());
        }
        let group = std::mem::take(&mut self.group);
        if let Some(inits) = ended {
            for init in inits {
                self.end_init(init)?;
            }
            for GroupedSplit { slot, name, pending } in group.splits {
                let Some(child) = pending.take()? else { continue };
                let value = self.entered(name, Arc::new(child), CommLifetime::Case);
                self.run.tables().threads[self.number as usize].slots[slot] = value;
            }
            for Grouped { slot, comm, buffer, pending } in group.registrations {
                let Some(window) = pending.take()? else { continue };
                let value = self.registered(comm, window, buffer);
                self.run.tables().threads[self.number as usize].slots[slot] = value;
            }
        }
        // After an error some launches may have been made and some not; a mark behind nothing does no harm. All marks are behind
        // all launches, and those on one communicator run on one stream, for which the others wait: so of several nobody can tell
        // which one never ends.
        for launch in &group.launches {
            let beside = |other: &&GroupedLaunch| {
                let together = other.stream == launch.stream || other.of.comm() == launch.of.comm();
                together && other.index != launch.index
            };
            let mut others = group.launches.iter().filter(beside);
            let is_one =
                others.all(|other| matches!(launch.of, LaunchOf::Transfer(_)) && other.of == launch.of);
            self.launched(launch.stream, is_one.then_some(launch.index))?;
        }
        Ok(())
    }

    /// Notes that NCCL has taken a launch: a group launches it at its end.
    pub(crate) fn launched_by_nccl(&mut self, stream: usize, of: LaunchOf) -> Result<(), Halt> {
        let index = self.at().index;
        if self.group.depth > 0 {
            self.group.launches.push(GroupedLaunch { stream, index, of });
            return Ok(());
        }
        self.launched(stream, Some(index))
    }

    /// A call that cannot be made for want of a communicator or buffer: it fails as it would have, and takes
    /// its group with it. It produces nothing.
    pub(crate) fn impossible(&mut self, call: String) -> Produced {
        self.failed(call, INVALID_ARGUMENT, None);
        if self.group.depth == 0 {
            return Ok(Vec::new());
        }
        self.group.spoiled = true;
        match group::spoil(&self.run.shared.libraries) {
            Ok(()) | Err(Error::Nccl { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
