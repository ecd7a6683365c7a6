//! Which keys of the store and which flags somebody may still use, as far as a search has found: what was done to others makes
//! no difference any more.
//!
//! Not here: which uses clash ([`super::persistent`]).

use rustc_hash::FxHashSet;

use crate::machine::Machine;
use crate::noun::stream::Work;
use crate::order::dependence::{Object, ObjectKind};
use crate::order::persistent::SharedUse;
use crate::position::{Behind, ProgramPlace};
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
        match used {
            SharedUse::Read(key) | SharedUse::Write(key) => {
                self.objects.insert(Object::named(ObjectKind::StoreKey, key));
            }
            SharedUse::Flag(flag, _) | SharedUse::Queued(flag, _) => {
                self.objects.insert(Object::named(ObjectKind::Flag, flag));
            }
            SharedUse::Replay => self.replays = true,
            SharedUse::Spawn(_) => {}
        }
    }
}

impl Machine {
    /// The keys and flags that somebody may still use.
    pub(crate) fn shared_ahead(&self, state: &State) -> UsedAhead {
        let mut ahead = UsedAhead::default();
        let mut points: Vec<ProgramPoint> = Vec::new();
        for rank in state.ranks() {
            for thread in rank.threads().iter().filter(|thread| thread.running()) {
                match thread.place() {
                    Some(place) => add_place(&mut ahead, &mut points, place, thread.next()),
                    None => ahead.unknown = true,
                }
            }
            for queued in rank.queued() {
                if let Work::Flag(flag, act) = queued.work {
                    ahead.add(SharedUse::Queued(flag, act));
                }
            }
        }
        let follows = self.config.remembered.as_deref().map(|remembered| &remembered.follows);
        let mut at = 0;
        while let Some(point) = points.get(at).copied() {
            at += 1;
            for used in follows.and_then(|follows| follows.get(&point)).into_iter().flatten() {
                ahead.add(*used);
                if let SharedUse::Spawn(start) = *used {
                    add_point(&mut points, ProgramPoint { start, asked: None, ..point });
                }
            }
        }
        ahead
    }
}

/// Adds what a thread may still do, from an operation of its block on.
fn add_place(ahead: &mut UsedAhead, points: &mut Vec<ProgramPoint>, place: &ProgramPlace, next: u32) {
    for used in place.uses_from(next) {
        ahead.add(used);
        if let Some(started) = place.starts(used) {
            add_point(points, started);
        }
    }
    match place.behind() {
        Behind::Nothing => {}
        Behind::Question(asked) => add_point(points, asked),
        Behind::Unknown => ahead.unknown = true,
    }
}

fn add_point(points: &mut Vec<ProgramPoint>, point: ProgramPoint) {
    if !points.contains(&point) {
        points.push(point);
    }
}
