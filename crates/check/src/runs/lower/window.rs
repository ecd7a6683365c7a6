//! Recordings that begin in the middle of a run: calls on communicators that existed before are numbered from where the
//! recording of each rank begins, and ranks do not begin at one number.
//!
//! A collective that met others before their recordings began is left out. Where it is not known how many there were,
//! all are; what else meets others on such a communicator is left out too, or ends what is judged of the rank.
//! Not here: what such a communicator is ([`crate::runs::world`]).

use std::sync::Arc;

use rankcheck_model::{
    CommOp, GraphOp, LocId, Op, Operand, Rank, Slot, Statement, ThreadOp, Token, WindowOp,
};

use super::{Lacks, RankRun};
use crate::runs::call::Unjudged;
use crate::runs::world::RunCommId;
use crate::spec::builder::SourceNames;

/// How much a rank had done on a communicator when its recording began, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::runs) struct Before {
    pub(super) collectives: Option<u64>,
    pub(super) set_ups: Option<u64>,
}

/// What meets others on one communicator, by the position in the first thread.
#[derive(Debug, Default)]
struct OnComm {
    collectives: Vec<LocId>,
    captured: bool,
    transfers: Vec<LocId>,
    set_up: Option<(usize, LocId)>,
}

/// Brings the numbers of all ranks together.
pub(super) fn align(orders: &[Vec<Rank>], programs: &mut [RankRun], names: &SourceNames) {
    let left_out = names.token("not judged");
    for (comm, members) in orders.iter().enumerate() {
        let comm = RunCommId(u32::try_from(comm).expect("communicators are numbered in 32 bits"));
        if members.iter().all(|rank| !programs[rank.at()].before.contains_key(&comm)) {
            continue;
        }
        // Who made it while it was recorded had done nothing on it.
        let none = Before { collectives: Some(0), set_ups: Some(0) };
        let before = |rank: &Rank| programs[rank.at()].before.get(&comm).copied().unwrap_or(none);
        let befores: Vec<Before> = members.iter().map(before).collect();
        let on: Vec<OnComm> = members.iter().map(|rank| on_comm(&programs[rank.at()], comm)).collect();
        let captured = on.iter().any(|on| on.captured);
        let counts: Option<Vec<u64>> = befores.iter().map(|before| before.collectives).collect();
        let last = counts.as_ref().and_then(|counts| counts.iter().max().copied());
        let equal = counts.as_ref().is_some_and(|counts| counts.iter().all(|count| Some(*count) == last));
        let set_up_once =
            befores.iter().all(|one| one.set_ups.is_some() && one.set_ups == befores[0].set_ups);
        for ((rank, on), before) in members.iter().zip(on).zip(befores) {
            let program = &mut programs[rank.at()];
            let missed = match (last, before.collectives) {
                (Some(_), Some(_)) if captured && !equal => on.collectives.len(),
                (Some(last), Some(count)) => usize::try_from(last - count).unwrap_or(usize::MAX),
                _ => on.collectives.len(),
            };
            let known = last.is_some() && (equal || !captured);
            let dropped: Vec<LocId> = on.collectives.iter().take(missed).copied().collect();
            for loc in &dropped {
                program.replace(*loc, Op::Thread(ThreadOp::Step { label: left_out }));
            }
            if !known {
                count(program, names, &dropped);
            }
            count(program, names, &on.transfers);
            for loc in &on.transfers {
                program.replace(*loc, Op::Thread(ThreadOp::Step { label: left_out }));
            }
            if let Some(last) = last.filter(|_| known) {
                let first = LocId(program.base);
                program.skipped.push((first, comm, u32::try_from(last).unwrap_or(u32::MAX)));
            }
            if let (false, Some((at, loc))) = (set_up_once, on.set_up) {
                program.cut_off_at(loc, Lacks::Numbers, at);
            }
        }
    }
}

/// Counts calls as not judged.
fn count(program: &mut RankRun, names: &SourceNames, locs: &[LocId]) {
    for loc in locs {
        let name: Arc<str> =
            program.origin_of(*loc).map_or_else(|| "a call".into(), |origin| names.text(origin.name));
        *program.unjudged.entry((Unjudged::Numbers, name)).or_default() += 1;
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "few operations meet others in their order")]
fn on_comm(program: &RankRun, comm: RunCommId) -> OnComm {
    let mut on = OnComm::default();
    let mut capturing: Option<Token> = None;
    walk(program, &program.blocks[0].ops, None, &mut |at, op| {
        let is =
            |operand: &Operand| matches!(operand, Operand::Slot(slot) if made(program, slot) == Some(comm));
        match &*op.op {
            Op::Graph(GraphOp::Begin { graph, .. }) => capturing = Some(*graph),
            Op::Graph(GraphOp::End { .. }) => capturing = None,
            Op::Collective(call) if is(&call.comm) && call.count > 0 => {
                on.captured |= capturing.is_some();
                on.collectives.push(op.loc);
            }
            Op::Transfer(call) if is(&call.comm) => on.transfers.push(op.loc),
            Op::Window(WindowOp::Register { comm, .. }) | Op::Comm(CommOp::Split { comm, .. })
                if is(comm) =>
            {
                on.set_up.get_or_insert((at, op.loc));
            }
            _ => {}
        }
    });
    on
}

fn made(program: &RankRun, slot: &Slot) -> Option<RunCommId> {
    program.comms.get(slot).copied()
}

/// All operations, with the position in the first thread of each, or of what begins its thread.
fn walk(
    program: &RankRun,
    ops: &[Statement],
    thread_at: Option<usize>,
    each: &mut dyn FnMut(usize, &Statement),
) {
    for (at, op) in ops.iter().enumerate() {
        let at = thread_at.unwrap_or(at);
        if let Op::Thread(ThreadOp::Spawn { start }) = &*op.op {
            walk(program, &program.blocks[start.0 as usize].ops, Some(at), each);
        } else {
            each(at, op);
        }
    }
}
