//! Which keys of the store and which flags somebody may still use, as far as a search has found: what was done to others makes
//! no difference any more.
//!
//! Not here: which uses clash ([`super::persistent`]).

use rustc_hash::FxHashSet;

use crate::machine::Machine;
use crate::noun::stream::Work;
use crate::order::dependence::{Object, ObjectKind};
use crate::order::persistent::SharedUse;
use crate::position::Behind;
use crate::remembered::ProgramPoint;
use crate::state::State;

/// The keys and flags that somebody may still use.
#[derive(Debug, Default)]
pub(crate) struct UsedAhead {
    objects: FxHashSet<Object>,
    /// A graph may work on any flag.
    replays: bool,
    /// What somebody may still do is not known.
    unknown: bool,
}

impl UsedAhead {
    /// Whether somebody may still use a key or a flag.
    pub(crate) fn has(&self, object: Object) -> bool {
        self.unknown || self.replays && object.kind == ObjectKind::Flag || self.objects.contains(&object)
    }

    fn add(&mut self, used: SharedUse) {
        self.replays |= used == SharedUse::Replay;
        self.objects.extend(used.object());
    }
}

impl Machine {
    /// The keys and flags that somebody may still use.
    pub(crate) fn shared_ahead(&self, state: &State) -> UsedAhead {
        let mut ahead = UsedAhead::default();
        let Some(follows) = self.config.remembered.as_deref().map(|remembered| &remembered.follows) else {
            return UsedAhead { unknown: true, ..ahead };
        };
        let mut points: Vec<ProgramPoint> = Vec::new();
        // Behind most points of a program nobody uses a key or a flag.
        let add_point = |points: &mut Vec<ProgramPoint>, point: ProgramPoint| {
            if follows.contains_key(&point) && !points.contains(&point) {
                points.push(point);
            }
        };
        for rank in state.ranks() {
            for thread in rank.threads().iter().filter(|thread| thread.running()) {
                let Some(place) = thread.place() else { return UsedAhead { unknown: true, ..ahead } };
                for used in place.uses_from(thread.next()) {
                    ahead.add(used);
                    place.starts(used).into_iter().for_each(|started| add_point(&mut points, started));
                }
                match place.behind() {
                    Behind::Nothing => {}
                    Behind::Question(asked) => add_point(&mut points, asked),
                    Behind::Unknown => return UsedAhead { unknown: true, ..ahead },
                }
            }
            for queued in rank.queued() {
                if let Work::Flag(flag, act) = queued.work {
                    ahead.add(SharedUse::Queued(flag, act));
                }
            }
        }
        let mut at = 0;
        while let Some(point) = points.get(at).copied() {
            at += 1;
            for used in &follows[&point] {
                ahead.add(*used);
                if let SharedUse::Spawn(start) = *used {
                    add_point(&mut points, ProgramPoint { start, asked: None, ..point });
                }
            }
        }
        ahead
    }
}
