//! In which calls the hosts of ranks were where their recordings end, and for how long.
//!
//! It is read off the recordings alone. Not here: for whom they wait ([`super::stuck`]).

use rankcheck_model::Rank;

use super::judge::Recording;
use super::lower::{OpenCallAtEnd, OpenWait, RankRun};
use super::stuck::{self, HostEnd};

/// Where the host of a rank is whose recording ends without its exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostStand {
    /// What it does, as in "in ncclBroadcast (train.py:9)".
    pub doing: HostDoing,
    /// For how long, in nanoseconds; 0 if that is not known.
    pub lasted: u64,
}

/// What the host of a rank did last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostDoing {
    /// It is inside these calls.
    Inside(String),
    /// It has returned from this call and made no other; none if it made no call at all.
    Between(Option<String>),
    /// It came to its end, as in "raised KeyError", or nobody knows how.
    Gone(String),
}

impl HostStand {
    pub(super) fn of(recording: &Recording, rank: Rank, end: HostEnd) -> Self {
        let program = &recording.program.ranks[rank.at()];
        let last = program.last_told().map(|last| recording.called(program, &last));
        let since = |entered: u64| {
            let until = stuck::seen_until(recording, rank);
            until.saturating_sub(stuck::at(recording, rank, entered))
        };
        let at_last = || last.as_ref().map_or_else(String::new, |last| format!(" (last at {last})"));
        let told = |doing| Self { doing, lasted: 0 };
        match end {
            HostEnd::Raised => return told(HostDoing::Gone(program.ended())),
            HostEnd::Died => {
                return told(HostDoing::Gone(format!("was gone before the others{}", at_last())));
            }
            _ if program.interrupted => {
                return told(HostDoing::Gone(format!("was interrupted{}", at_last())));
            }
            _ if program.truncated && last.is_none() => {
                return told(HostDoing::Gone("its file was cut before its first call".to_owned()));
            }
            _ if program.truncated => return told(HostDoing::Between(last)),
            HostEnd::Exited(_) | HostEnd::GoesOn | HostEnd::NotRecorded | HostEnd::Waits => {}
        }
        match program.open_calls.as_slice() {
            [] => Self {
                lasted: if last.is_some() { since(program.times.0) } else { 0 },
                doing: HostDoing::Between(last),
            },
            open => {
                let calls: Vec<String> =
                    open.iter().map(|open| open_call(recording, program, open)).collect();
                let entered = open.iter().map(|open| open.entered).max().unwrap_or(0);
                Self { doing: HostDoing::Inside(calls.join(", ")), lasted: since(entered) }
            }
        }
    }
}

/// A call that had not returned, with the key that it waited for, and whether anybody set it. Sets in C++ are not seen.
fn open_call(recording: &Recording, program: &RankRun, open: &OpenCallAtEnd) -> String {
    let OpenWait::Key(key) = &open.waits else { return recording.called(program, &open.origin) };
    let members = &recording.world.members;
    let set = members.iter().any(|member| recording.program.ranks[member.rank.at()].keys.contains(key));
    let unset = if set { "" } else { ", which no rank was seen to set" };
    let names = &recording.program.names;
    let (name, loc) = (names.text(open.origin.name), program.loc(&open.origin, names).to_string());
    let loc = if loc.contains(&*name) { String::new() } else { format!(" ({loc})") };
    format!("{name} of key \"{key}\"{unset}{loc}")
}
