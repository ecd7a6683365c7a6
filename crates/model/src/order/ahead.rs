//! What threads share and somebody may still use, as far as a search has found: what was done to the rest makes no difference
//! any more. Keys of the store and flags are shared by all threads, the rest by those of a rank.
//!
//! Not here: which uses clash ([`super::persistent`]).

use rustc_hash::FxHashSet;

use crate::machine::Machine;
use crate::noun::stream::Work;
use crate::order::dependence::{Object, ObjectKind};
use crate::order::persistent::SharedUse;
use crate::position::Behind;
use crate::remembered::ProgramPoint;
use crate::state::RankState;

/// What somebody may still use of what threads share.
#[derive(Debug, Default)]
pub(crate) struct UsedAhead {
    objects: FxHashSet<Object>,
    /// A graph may work on any flag.
    replays: bool,
    /// Memory is allocated, or a pool may grow.
    allocates: bool,
    /// A map is gone through.
    walks: bool,
    /// What somebody may still do is not known.
    unknown: bool,
}

impl UsedAhead {
    /// Anything may still be used.
    pub(crate) fn unknown() -> Self {
        Self { unknown: true, ..Self::default() }
    }

    /// Whether somebody may still use an object of which that is followed.
    pub(crate) fn has(&self, object: Object) -> bool {
        self.unknown || self.replays && object.kind == ObjectKind::Flag || self.objects.contains(&object)
    }

    /// Whether somebody may still allocate memory.
    pub(crate) fn allocates(&self) -> bool {
        self.unknown || self.allocates
    }

    /// Whether somebody may still go through a map.
    pub(crate) fn walks(&self) -> bool {
        self.unknown || self.walks
    }

    fn add(&mut self, used: SharedUse) {
        self.walks |= matches!(used, SharedUse::Walk(_));
        self.replays |= matches!(used, SharedUse::Replay(_));
        let of_allocation = |object: Object| matches!(object.kind, ObjectKind::Memory | ObjectKind::Pool);
        self.allocates |= used.object().is_some_and(of_allocation);
        self.objects.extend(used.object());
    }
}

impl Machine {
    /// What these ranks may still use of what threads share.
    pub(crate) fn shared_ahead<'a>(&self, ranks: impl IntoIterator<Item = &'a RankState>) -> UsedAhead {
        let Some(follows) = self.config.remembered.as_deref().map(|remembered| &remembered.follows) else {
            return UsedAhead::unknown();
        };
        let mut ahead = UsedAhead::default();
        let mut points: Vec<ProgramPoint> = Vec::new();
        // Behind most points of a program nothing of it is used.
        let add_point = |points: &mut Vec<ProgramPoint>, point: ProgramPoint| {
            if follows.contains_key(&point) && !points.contains(&point) {
                points.push(point);
            }
        };
        for rank in ranks {
            for thread in rank.threads().iter().filter(|thread| thread.running()) {
                let Some(place) = thread.place() else { return UsedAhead::unknown() };
                for used in place.uses_from(thread.next()) {
                    ahead.add(used);
                    place.starts(used).into_iter().for_each(|started| add_point(&mut points, started));
                }
                match place.behind() {
                    Behind::Nothing => {}
                    Behind::Question(asked) => add_point(&mut points, asked),
                    Behind::Unknown => return UsedAhead::unknown(),
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
