//! The lines of a program that a verdict about dumps names. A log names none.
//!
//! Not here: lines of recorded runs ([`crate::runs::lines`]).

use rankcheck_model::{Rank, Rule};

use super::job::CallPlace;
use super::judge::JudgedJob;
use super::waits::{CallAt, LaunchAt, RootKind};
use crate::runs::lines::{ProgramLine, ProgramLines};

struct NamedBy<'a> {
    judged: &'a JudgedJob,
    lines: ProgramLines,
}

impl NamedBy<'_> {
    fn add(&mut self, why: &str, rank: u32, place: Option<&CallPlace>) {
        let Some(CallPlace { file, line }) = place else { return };
        self.lines.add(why, Rank(rank), file, u32::try_from(*line).unwrap_or(0));
    }

    fn launch(&mut self, why: &str, at: LaunchAt) {
        let process = &self.judged.job.processes[at.process];
        let calls = &process.launches[at.launch as usize].calls;
        self.add(why, process.rank, calls.iter().find_map(|call| call.place.as_ref()));
    }

    fn call(&mut self, why: &str, CallAt { at, call }: CallAt) {
        let process = &self.judged.job.processes[at.process];
        self.add(why, process.rank, process.launches[at.launch as usize].calls[call].place.as_ref());
    }

    fn rules(&mut self) {
        let compared = &self.judged.compared;
        for difference in &compared.differences {
            // Who does otherwise than most is more likely to be wrong.
            let rest = usize::from(difference.majority().is_some());
            for side in difference.sides.iter().skip(rest).chain(difference.sides.iter().take(rest)) {
                if let Some(rank) = side.ranks.first() {
                    self.add(difference.rule.id(), *rank, side.place.as_ref());
                }
            }
        }
        for step in compared.inversions.iter().flat_map(|inversion| &inversion.steps) {
            let Some(process) = self.judged.job.process_at(step.rank) else { continue };
            for launch in [step.before, step.after] {
                self.launch(Rule::Coll4.id(), LaunchAt { process, launch });
            }
        }
    }

    fn waits(&mut self) {
        const WAITING: &str = "waiting here";
        let waits = &self.judged.waits;
        for step in waits.all_circles().flatten() {
            self.call(WAITING, CallAt { at: step.waits_in, call: step.call });
        }
        for root in &waits.roots {
            match root.kind {
                RootKind::DidNotLaunch(Some(of)) | RootKind::NotKnown(of) => self.call(WAITING, of),
                RootKind::DidNotLaunch(None) => {}
                RootKind::Stands(stands) => self.launch("not finished", stands.launch),
                RootKind::HasNotBegun(at, _) => self.launch("not begun", at),
            }
        }
        for at in &self.judged.timed_out {
            self.launch("timed out here", *at);
        }
        for (at, _) in &waits.waiting {
            self.launch(WAITING, *at);
        }
        for root in &waits.roots {
            let last = self.judged.job.process_at(root.rank).map(|at| &self.judged.job.processes[at]);
            self.add("last call", root.rank, last.and_then(|process| process.last_place()));
        }
    }
}

/// Returns the lines that a verdict about a job names: of the calls that break rules, those in which ranks wait, and the last
/// calls of those whom they wait for.
#[must_use]
pub fn of(judged: &JudgedJob) -> Vec<ProgramLine> {
    let mut named = NamedBy { judged, lines: ProgramLines::default() };
    named.rules();
    named.waits();
    named.lines.into_lines()
}
