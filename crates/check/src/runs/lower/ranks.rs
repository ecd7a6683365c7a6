//! The programs of all ranks, out of the files of all processes.
//!
//! Not here: what a call becomes ([`super::call`]).

use std::sync::{Arc, Mutex};

use rankcheck_model::{FlagAct, MapOp, Op, Operand, Rank, Token};
use rustc_hash::FxHashSet;

use super::{Lowering, OfAllRanks, RankRun};
use crate::parallel::in_parallel;
use crate::runs::RunError;
use crate::runs::gaps::Outside;
use crate::runs::sequence::{ReadUntil, Remainder};
use crate::runs::world::{RankProcess, RunComm, RunCommId, World};
use crate::spec::builder::SourceNames;

/// The programs of all ranks, without what was folded away; `left` says what there is to lower of each of the world's members.
///
/// Names are numbered by what they say, so ranks become programs on all cores, in any order. Locations are numbered from zero on
/// each rank, and moved behind those of the ranks before it when all are there.
pub(in crate::runs) fn lower_all(
    world: &World,
    names: &SourceNames,
    left: Vec<Remainder>,
    until: ReadUntil,
) -> Result<Vec<RankRun>, RunError> {
    let members = members(world);
    let orders = orders(world, &members);
    let shared = Mutex::default();
    let of_all = OfAllRanks { world, names, shared: &shared, members: &members, orders: &orders };
    let lowered = in_parallel(world.members.len(), |at| lower(of_all, &world.members[at], &left[at], until));
    // What ranks did that were not recorded is not known.
    let mut programs: Vec<RankRun> = (0..world.ranks).map(|_| RankRun::empty()).collect();
    for ((member, program), left) in world.members.iter().zip(lowered).zip(left) {
        programs[member.rank.at()] = RankRun { roles: left.roles, ..program? };
    }
    let mut base = 0_u32;
    for program in &mut programs {
        let length = u32::try_from(program.origins.len() + 1).unwrap_or(u32::MAX);
        let next = base.checked_add(length).ok_or(RunError::TooMany)?;
        program.begin_at(base);
        base = next;
    }
    leave_out_failed(&orders, &mut programs, names.token("nothing"));
    leave_out_untold(&mut programs);
    super::window::align(&orders, &mut programs, names);
    super::symmetric::name(&mut programs, names);
    super::agreed::settle(&orders, &mut programs, names);
    Ok(programs)
}

/// What one rank did, without what was folded away.
fn lower(
    of_all: OfAllRanks<'_>,
    member: &RankProcess,
    left: &Remainder,
    until: ReadUntil,
) -> Result<RankRun, RunError> {
    let mut process = until.open(&member.path)?;
    let mut lowering = Lowering::new(of_all, member, left);
    let header = &process.header;
    lowering.program.alive = header.alive.map(|alive| alive.saturating_sub(header.began));
    let mut outside = Outside::new(&left.gaps, member.share.as_ref());
    while let Some((number, event)) = outside.next(&mut process)? {
        let passed_over = outside.take_passed_over();
        if !passed_over.is_empty() {
            lowering.skipped(&process, &passed_over);
        }
        lowering.event(&process, number, event);
    }
    lowering.program.calls += outside.folded();
    Ok(lowering.finish(&process))
}

/// Registrations that failed equally often on all members have met, so that rules may say why. Others failed on
/// their rank alone: they met nobody, and are left out.
fn leave_out_failed(orders: &[Vec<Rank>], programs: &mut [RankRun], map: Token) {
    for (comm, members) in orders.iter().enumerate() {
        let comm = RunCommId(u32::try_from(comm).expect("communicators are numbered in 32 bits"));
        let count = |rank: &Rank| programs[rank.at()].failed.get(&comm).map_or(0, Vec::len);
        if members.iter().all(|rank| count(rank) == count(&members[0])) {
            continue;
        }
        for rank in members {
            let program = &mut programs[rank.at()];
            let Some(failed) = program.failed.remove(&comm) else { continue };
            let block = Arc::get_mut(&mut program.blocks[0]).expect("nobody runs it yet");
            for at in failed {
                // It produced a slot.
                let nothing = Op::Map(MapOp::Get { map, key: Operand::Null, default: Operand::Null });
                block.ops[at].op = nothing.into();
            }
        }
    }
}

/// What a rank waits for that no other tells, because its call was folded away or is not known, is left out: it may have waited there.
pub(in crate::runs) fn leave_out_untold(programs: &mut [RankRun]) {
    let is_there = |program: &RankRun, at: usize| at < program.blocks[0].ops.len();
    let told: FxHashSet<Token> = programs
        .iter()
        .flat_map(|program| program.tells.iter().filter(|(at, _)| is_there(program, *at)))
        .map(|(_, flag)| *flag)
        .collect();
    for program in programs {
        for (at, flag, way) in std::mem::take(&mut program.awaits) {
            if !is_there(program, at) || told.contains(&flag) {
                program.awaits.push((at, flag, way));
                continue;
            }
            let block = Arc::get_mut(&mut program.blocks[0]).expect("nobody runs it yet");
            if let Op::Flag(op) = Arc::make_mut(&mut block.ops[at].op) {
                op.act = FlagAct::Write(1);
            }
            program.waits.may_wait(way, at);
        }
    }
}

/// Members of each communicator by rank in it. Of a communicator that spans the world, who did not come is known
/// too.
fn members(world: &World) -> Vec<Vec<Option<Rank>>> {
    let of = |comm: &RunComm| {
        let mut members = comm.members.clone();
        if comm.parent.is_none() && members.len() == world.ranks as usize {
            let came: FxHashSet<Rank> = members.iter().flatten().copied().collect();
            let mut absent = world.members.iter().map(|m| m.rank).filter(|rank| !came.contains(rank));
            if absent.clone().count() == members.len() - came.len() {
                for member in members.iter_mut().filter(|member| member.is_none()) {
                    *member = absent.next();
                }
            }
        }
        members
    };
    world.comms.iter().map(of).collect()
}

/// Members in the order of the model: of an init by rank in it, of a split by rank in the parent; without those that
/// were not recorded.
fn orders(world: &World, members: &[Vec<Option<Rank>>]) -> Vec<Vec<Rank>> {
    let mut orders: Vec<Vec<Rank>> = Vec::with_capacity(world.comms.len());
    for (comm, members) in world.comms.iter().zip(members) {
        let mut members: Vec<Rank> = members.iter().flatten().copied().collect();
        if let (Some(parent), false) = (comm.parent, comm.shrunk) {
            let of = &orders[parent.0 as usize];
            members.sort_by_key(|rank| of.iter().position(|other| other == rank));
        }
        orders.push(members);
    }
    orders
}
