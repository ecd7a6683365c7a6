//! What is known of a job: groups, processes, and the launches of each process in the order of its host.
//!
//! Whatever may be unknown is an `Option` or a case of its own. Nothing is taken to be zero or not to be there.
//! Not here: what follows from it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

/// The number of a group in [`LaunchedJob::groups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupAt(pub u32);

/// A group of ranks. Two groups of a job may have one name, with other ranks each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobGroup {
    /// What such a thing is called: a group of PyTorch's, or a communicator.
    pub noun: &'static str,
    /// The name that the library knows it by.
    pub name: Arc<str>,
    /// What the program calls it.
    pub desc: Option<Arc<str>>,
    /// Who is in it; a rank's place is its rank in the group. Nobody, if that is not known.
    pub ranks: Arc<[u32]>,
}

/// A job, as far as it is known.
#[derive(Debug, Default)]
pub struct LaunchedJob {
    /// Where it was read.
    pub source: PathBuf,
    /// The groups of all its processes.
    pub groups: Vec<JobGroup>,
    /// Its processes by rank, those of which nothing is known too.
    pub processes: Vec<Process>,
    /// The last time that anything in it says.
    pub latest: Option<i64>,
    /// The version of the communication library.
    pub library: Option<Arc<str>>,
    /// What is odd about what was read, and makes less of it known.
    pub gaps: Vec<String>,
    /// What is odd about what was read, and makes no difference.
    pub notes: Vec<String>,
    /// What no source of this kind ever says.
    pub limits: Vec<String>,
    /// How many calls are not compared with others', by the reason.
    pub left_out: FxHashMap<NotCompared, u64>,
    /// How it is known what is over.
    pub completion: KnownCompletion,
    /// Who gave up waiting, in words of what was read, if that says it apart from the launches.
    pub gave_up: Vec<String>,
}

/// How it is known which launches are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownCompletion {
    /// The processes saw it.
    #[default]
    Seen,
    /// It is concluded from who launched what: a launch is taken to be over once everybody could have come to it.
    Concluded,
}

/// Why calls are not compared with those of other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotCompared {
    /// The members of their group are not known.
    Members,
    /// Their numbers do not count what other members count.
    Numbers,
    /// They do not say with whom they meet.
    Peers,
    /// Whether they are over is not known: they are inside a group of calls whose end is not there.
    Inside,
}

/// One process of a job.
#[derive(Debug, Default)]
pub struct Process {
    /// Its rank in the job.
    pub rank: u32,
    /// How much of it is known.
    pub known: KnownPart,
    /// What it launched, oldest first.
    pub launches: Vec<DeviceLaunch>,
    /// How far it came in each group.
    pub reached: FxHashMap<GroupAt, GroupReached>,
    /// Whether its launches are there from the first on.
    pub from_start: bool,
    /// The groups of which all transfers that it launched are there, whatever else is lost.
    pub all_transfers: FxHashSet<GroupAt>,
    /// Whether its first launches are lost, and any of them may not be over: the oldest that is there is not.
    pub lost_may_be_open: bool,
    /// Whether what its device began is known.
    pub timed: bool,
    /// The latest time at which it is known to have done anything, by its own clock.
    pub latest: Option<i64>,
    /// The last warning that its library gave.
    pub warning: Option<Arc<str>>,
}

/// How much of a process is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownPart {
    /// Everything up to one moment: what is not there was not launched.
    Whole,
    /// What it launched later may be missing.
    Partly,
    /// Nothing of it is known.
    #[default]
    Nothing,
}

/// How far a process came with the collectives of a group, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupReached {
    /// The last that was launched.
    pub launched: Option<u64>,
    /// The last that is over; those before it are over too.
    pub finished: Option<u64>,
    /// Whether it is done with the group, and can launch nothing more in it.
    pub left: bool,
}

/// What a host gave to a device at once: one call, or a group of calls.
#[derive(Debug, Clone)]
pub struct DeviceLaunch {
    /// The group that all of its calls are in.
    pub group: GroupAt,
    /// The calls that it is made of.
    pub calls: Vec<LaunchedCall>,
    /// Whether it may have begun with calls that are lost.
    pub cut: bool,
    /// How far it is known to have come.
    pub state: LaunchState,
    /// When it was made, in nanoseconds of its process's clock.
    pub created: Option<i64>,
    /// The stream that it was given to, if that is known.
    pub stream: Option<u64>,
    /// When it was seen to be over.
    pub finished: Option<i64>,
    /// Until when it had to be over.
    pub deadline: Option<i64>,
    /// Whether somebody gave it up.
    pub timed_out: bool,
}

/// How far a launch is known to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchState {
    /// It is not over.
    Open,
    /// The device has begun with it, and it is not over.
    Begun,
    /// It is over on this device.
    Done,
    /// Whether it is over is not known.
    Unclear,
}

impl LaunchState {
    /// Returns whether it is known not to be over.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Begun)
    }
}

/// One call of a launch.
#[derive(Debug, Clone)]
pub struct LaunchedCall {
    /// What the library calls it.
    pub word: Arc<str>,
    /// What it does, and with whom.
    pub what: What,
    /// Its number among the collectives of its group, if it is one and the number is comparable.
    pub number: Option<u64>,
    /// How many elements, where those who take part have to agree on it.
    pub elements: Option<u64>,
    /// The type of the elements, where they have to agree on it.
    pub dtype: Option<Arc<str>>,
    /// How elements are reduced, where those who take part have to agree on it.
    pub reduction: Option<Arc<str>>,
    /// The rank of the job that it goes out from or comes together at.
    pub root: Option<u32>,
    /// The line of the program that made it.
    pub place: Option<CallPlace>,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// All members of the group take part.
    Collective(CalledKind),
    /// It sends to a rank of the job.
    Send(u32),
    /// It receives from a rank of the job.
    Recv(u32),
    /// It is not known who takes part.
    Unknown,
}

/// The kind of a collective. Those that the library cannot tell apart are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CalledKind {
    /// Everybody has the reduction.
    AllReduce,
    /// Everybody has what the root had.
    Broadcast,
    /// The root has the reduction.
    Reduce,
    /// Everybody has the inputs of everybody.
    AllGather,
    /// Everybody has a part of the reduction.
    ReduceScatter,
    /// Everybody has a part of everything.
    AllToAll,
    /// The root has everything.
    Gather,
    /// Everybody has a part of what the root had.
    Scatter,
    /// Everybody waits for everybody.
    Barrier,
    /// It is known by its name alone.
    Named,
}

impl CalledKind {
    /// Returns whether it can be over on one rank only if all have launched it. An all-to-all may be without elements
    /// between two ranks; that is taken not to be.
    #[must_use]
    pub const fn needs_everybody(self) -> bool {
        match self {
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Barrier => true,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter | Self::Named => false,
        }
    }
}

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace {
    /// The file that it is in.
    pub file: Arc<str>,
    /// Its number in that file.
    pub line: i64,
}

impl fmt::Display for CallPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl LaunchedJob {
    /// Returns a group.
    ///
    /// # Panics
    ///
    /// If it is another job's.
    #[must_use]
    pub fn group(&self, at: GroupAt) -> &JobGroup {
        &self.groups[at.0 as usize]
    }

    /// Returns the place of a rank's process in [`LaunchedJob::processes`].
    #[must_use]
    pub fn process_at(&self, rank: u32) -> Option<usize> {
        self.processes.binary_search_by_key(&rank, |process| process.rank).ok()
    }

    /// Returns how a group is called: its name, and what the program calls it.
    #[must_use]
    pub fn group_text(&self, at: GroupAt) -> String {
        let group = self.group(at);
        match group.desc.as_deref() {
            Some(desc) if desc != &*group.name && !desc.is_empty() && desc != "undefined" => {
                format!("{} {} ({desc})", group.noun, group.name)
            }
            Some(_) | None => format!("{} {}", group.noun, group.name),
        }
    }

    /// Returns what a call is, with its number and its group, and with its line if that is known.
    #[must_use]
    pub fn call_text(&self, group: GroupAt, call: &LaunchedCall) -> String {
        let place = call.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
        format!("{} of {}{place}", self.call_name(call), self.group_text(group))
    }

    /// Returns what a call is, with its number.
    #[must_use]
    pub fn call_name(&self, call: &LaunchedCall) -> String {
        match (call.what, call.number) {
            (What::Send(peer), _) => format!("send to rank {peer}"),
            (What::Recv(peer), _) => format!("recv from rank {peer}"),
            (What::Collective(_) | What::Unknown, Some(number)) => format!("{} #{number}", call.word),
            (What::Collective(_) | What::Unknown, None) => call.word.to_string(),
        }
    }

    /// Returns what a launch is: its first call, and how many more there are.
    #[must_use]
    pub fn launch_text(&self, launch: &DeviceLaunch) -> String {
        let Some(first) = launch.calls.first() else { return self.group_text(launch.group) };
        match launch.calls.len() {
            1 => self.call_text(launch.group, first),
            2 => {
                let place = first.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
                let [one, other] = [first, &launch.calls[1]].map(|call| self.call_name(call));
                format!("{one} with {other} of {}{place}", self.group_text(launch.group))
            }
            calls => format!("{} with {} more calls", self.call_text(launch.group, first), calls - 1),
        }
    }
}

impl Process {
    /// Returns whether all transfers that it launched in a group are there.
    #[must_use]
    pub fn has_all_transfers(&self, group: GroupAt) -> bool {
        self.from_start || self.all_transfers.contains(&group)
    }

    /// Returns the last line of the program that is known to have launched anything.
    #[must_use]
    pub fn last_place(&self) -> Option<&CallPlace> {
        self.launches
            .iter()
            .rev()
            .find_map(|launch| launch.calls.iter().rev().find_map(|call| call.place.as_ref()))
    }
}
