//! History: what happened in a run, in the order in which it did, who met whom, and what is ordered before what.
//! It is kept only for a run that is explained, never while states are explored.
//! Not here: who is blocked at the end (`judge/deadlock.rs`), and what operations are called.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::{Actor, Clock};
use crate::judge::finding::OpRef;
use crate::machine::{Machine, locked};
use crate::rank::{Rank, Thread};
use crate::state::State;

/// Where an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// On a host thread of a rank.
    Thread(Rank, Thread),
    /// On a stream of a rank, by the position in which the streams were first used.
    Stream(Rank, u32),
}

impl Lane {
    pub(crate) fn stream(rank: Rank, at: usize) -> Self {
        Self::Stream(rank, u32::try_from(at).expect("few streams a rank"))
    }
}

/// One step of one lane: a call on a host thread, or the work that a call left on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The call; of work that a graph replays, the call that was captured.
    pub op: OpRef,
    /// The launch of the graph that replays it.
    pub replay: Option<OpRef>,
    /// The thread or stream that takes the step.
    pub lane: Lane,
}

/// What happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Every step, in an order in which they may have happened.
    pub moments: Vec<Moment>,
    /// Steps that met: each a set of positions in `moments`, at least two.
    pub meetings: Vec<Vec<usize>>,
    /// What is ordered before what, as positions in `moments` with the earlier one first. Steps of one lane are ordered
    /// as they stand and not listed, nor is what follows from other steps.
    pub order: Vec<(usize, usize)>,
}

/// A step as it is noted, with what its lane knew before it.
#[derive(Debug)]
struct Noted {
    moment: Moment,
    actor: Actor,
    epoch: u32,
    before: Clock,
}

/// Steps and rendezvous as they are noted.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    steps: Vec<Noted>,
    meetings: Vec<Vec<usize>>,
    /// The last step of each lane.
    last: FxHashMap<Lane, usize>,
    /// Steps on streams that have met nobody yet, oldest first, by their calls.
    alone: FxHashMap<OpRef, VecDeque<usize>>,
}

impl Notes {
    pub(crate) fn steps_so_far(&self) -> usize {
        self.steps.len()
    }
}

impl Machine {
    /// Notes that a lane takes a step. Its clock has ticked for it, and learned nothing by it yet.
    #[inline]
    pub(crate) fn note(&self, moment: Moment, clock: &Clock) {
        if self.config.explain.tells_steps() {
            self.note_step(moment, clock);
        }
    }

    fn note_step(&self, moment: Moment, clock: &Clock) {
        let mut notes = locked(&self.notes);
        let step = notes.steps.len();
        match moment.lane {
            // A call that waits runs in parts, and is one step.
            Lane::Thread(..)
                if notes.last.get(&moment.lane).is_some_and(|last| notes.steps[*last].moment == moment) =>
            {
                return;
            }
            Lane::Thread(..) => {}
            Lane::Stream(..) => notes.alone.entry(moment.op).or_default().push_back(step),
        }
        notes.last.insert(moment.lane, step);
        let (actor, epoch) = (clock.actor(), clock.epoch());
        notes.steps.push(Noted { moment, actor, epoch, before: clock.clone() });
    }

    /// Notes that host threads met in their last steps.
    pub(crate) fn note_threads_met(&self, threads: &[(Rank, u32)]) {
        self.note_meeting(|notes| {
            let lanes = threads.iter().map(|(rank, thread)| Lane::Thread(*rank, Thread(*thread)));
            lanes.filter_map(|lane| notes.last.get(&lane).copied()).collect()
        });
    }

    /// Notes that what these calls left on streams met. A graph may run one call again and again, and NCCL may hold
    /// what it sends: the first step that has met nobody yet is meant.
    pub(crate) fn note_streams_met(&self, calls: impl IntoIterator<Item = OpRef>) {
        self.note_meeting(|notes| {
            let steps = calls.into_iter().filter_map(|call| notes.alone.get_mut(&call)?.pop_front());
            steps.collect()
        });
    }

    fn note_meeting(&self, of: impl FnOnce(&mut Notes) -> Vec<usize>) {
        if !self.config.explain.tells_steps() {
            return;
        }
        let mut notes = locked(&self.notes);
        let steps = of(&mut notes);
        if steps.len() > 1 {
            notes.meetings.push(steps);
        }
    }

    /// What happened in the run that ends in this state, with [`Explain::Yes`](crate::Explain::Yes).
    #[must_use]
    pub fn history(&self, state: &State) -> History {
        let notes = locked(&self.notes);
        let order = order(&notes, |lane| match lane {
            Lane::Thread(rank, thread) => state.rank(rank).thread(thread.0).clock(),
            Lane::Stream(rank, stream) => state.rank(rank).stream(stream as usize).clock(),
        });
        let moments = notes.steps.iter().map(|noted| noted.moment).collect();
        History { moments, meetings: notes.meetings.clone(), order }
    }
}

/// What each step is ordered after at once: what it brought its lane to know, less what that itself knew.
fn order<'a>(notes: &'a Notes, last: impl Fn(Lane) -> &'a Clock) -> Vec<(usize, usize)> {
    let steps = &notes.steps;
    let mut of_actor: FxHashMap<Actor, Vec<usize>> = FxHashMap::default();
    for (at, noted) in steps.iter().enumerate() {
        of_actor.entry(noted.actor).or_default().push(at);
    }
    // What a lane knew after each step is what it knew before its next, or what it knows at the end.
    let mut after: Vec<&Clock> = steps.iter().map(|noted| last(noted.moment.lane)).collect();
    for own in of_actor.values() {
        for pair in own.windows(2) {
            after[pair[0]] = &steps[pair[1]].before;
        }
    }
    let mut met: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for meeting in &notes.meetings {
        for step in meeting {
            met.entry(*step).or_default().extend(meeting.iter().filter(|other| *other != step));
        }
    }
    let mut order = Vec::new();
    for (at, noted) in steps.iter().enumerate() {
        let known = after[at];
        // What a lane knows as it begins, it has from the step that began it.
        let begins = of_actor[&noted.actor][0] == at;
        let knew = |actor| if begins { 0 } else { noted.before.knows(actor) };
        let partners = met.get(&at).map_or(&[][..], Vec::as_slice);
        let learned: Vec<usize> = of_actor
            .iter()
            .filter(|(actor, _)| **actor != noted.actor && known.knows(**actor) > knew(**actor))
            .filter_map(|(actor, own)| {
                let count = own.partition_point(|step| steps[*step].epoch <= known.knows(*actor));
                let step = *own.get(count.checked_sub(1)?)?;
                // What was known already is nothing that this step is the first to come after.
                (steps[step].epoch > knew(*actor) && !partners.contains(&step)).then_some(step)
            })
            .collect();
        let is_after = |known: &Clock, step: usize| known.after(steps[step].actor, steps[step].epoch);
        // Of steps that met each is after the other: the one of the own rank stands for them.
        let rank_of = |step: usize| steps[step].moment.op.rank;
        let stands_first = |step: usize| (rank_of(step) != rank_of(at), step);
        let follows = |step: usize| {
            let through = learned.iter().any(|other| {
                is_after(after[*other], step)
                    && (!is_after(after[step], *other) || stands_first(*other) < stands_first(step))
            });
            through || partners.iter().any(|partner| is_after(&steps[*partner].before, step))
        };
        order.extend(learned.iter().copied().filter(|step| !follows(*step)).map(|step| (step, at)));
    }
    order.sort_unstable();
    order
}
