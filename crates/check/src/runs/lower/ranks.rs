//! The programs of all ranks, out of the files of all processes.
//!
//! Not here: what a call becomes ([`super::call`]).

use std::collections::VecDeque;
use std::sync::Arc;

use rankcheck_model::{FlagAct, MapOp, Op, Operand, Rank, Token};
use rankcheck_recording::{CallEvent, ProcessFile, ShapeId};
use rustc_hash::FxHashSet;

use super::{Lowering, RankRun, SharedOps};
use crate::runs::RunError;
use crate::runs::fold::CallRoles;
use crate::runs::gaps::{Gaps, Outside};
use crate::runs::sequence::ReadUntil;
use crate::runs::world::{RankProcess, RunComm, RunCommId, World};
use crate::spec::builder::SourceNames;

/// The programs of all ranks, without what was folded away; `left` says that, and what calls are in what is left, of
/// each of the world's members.
pub(in crate::runs) fn lower_all(
    world: &World,
    names: &SourceNames,
    left: Vec<(Gaps, CallRoles)>,
    until: ReadUntil,
) -> Result<Vec<RankRun>, RunError> {
    let (gaps, roles): (Vec<Gaps>, Vec<CallRoles>) = left.into_iter().unzip();
    let mut roles = roles.into_iter();
    let members = members(world);
    let orders = orders(world, &members);
    let mut programs = Vec::with_capacity(world.ranks as usize);
    let mut base = 0_u32;
    let mut shared = SharedOps::default();
    let mut lower = |read: Option<(&RankProcess, KeptEvents)>| {
        let program = match read {
            Some((member, kept)) => {
                let of = (&members[..], &orders[..]);
                let mut lowering = Lowering::new(world, member, (names, &mut shared), of, base);
                lowering.program.roles = roles.next().unwrap_or_default();
                let header = &kept.process.header;
                lowering.program.alive = header.alive.map(|alive| alive.saturating_sub(header.began));
                let mut gaps = kept.gaps.iter().peekable();
                for (at, (number, event)) in kept.events.into_iter().enumerate() {
                    if let Some((_, passed_over)) = gaps.next_if(|(before, _)| *before == at) {
                        lowering.skipped(&kept.process, passed_over);
                    }
                    lowering.event(&kept.process, number, event);
                }
                lowering.program.calls += kept.folded;
                lowering.finish(&kept.process)
            }
            // What it did is not known.
            None => RankRun::empty(base),
        };
        let length = u32::try_from(program.origins.len() + 1).unwrap_or(u32::MAX);
        base = base.checked_add(length).ok_or(RunError::TooMany)?;
        programs.push(program);
        Ok::<(), RunError>(())
    };
    // Names are numbered as they come, so ranks become programs in order; files are read ahead of that.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let mut files = world.members.iter().zip(&gaps);
        let mut ahead = VecDeque::new();
        let mut next = || {
            let (member, gaps) = files.next()?;
            Some((member, scope.spawn(move || KeptEvents::read(member, gaps, until))))
        };
        for rank in (0..world.ranks).map(Rank) {
            while ahead.len() <= workers
                && let Some(read) = next()
            {
                ahead.push_back(read);
            }
            let mine = match ahead.front() {
                Some((member, _)) if member.rank == rank => ahead.pop_front(),
                Some(_) | None => None,
            };
            let mine = mine.map(|(member, read)| {
                let kept = read.join().expect("a reader does not panic")?;
                Ok::<_, RunError>((member, kept))
            });
            lower(mine.transpose()?)?;
        }
        Ok::<(), RunError>(())
    })?;
    leave_out_failed(&orders, &mut programs, names.token("nothing"));
    leave_out_untold(&mut programs);
    super::window::align(&orders, &mut programs, names);
    super::symmetric::name(&mut programs, names);
    super::agreed::settle(&orders, &mut programs, names);
    Ok(programs)
}

/// What is left of a process without what was folded away.
struct KeptEvents {
    process: ProcessFile,
    /// The events that are left, with their numbers.
    events: Vec<(u64, CallEvent)>,
    /// Of which events others were passed over before, and how often each call.
    gaps: Vec<(usize, Vec<(ShapeId, u64)>)>,
    /// How many calls and notes are missing.
    folded: u64,
}

impl KeptEvents {
    fn read(member: &RankProcess, gaps: &Gaps, until: ReadUntil) -> Result<Self, RunError> {
        let mut process = until.open(&member.path)?;
        let mut outside = Outside::new(gaps, member.share.as_ref());
        let (mut events, mut gaps) = (Vec::new(), Vec::new());
        while let Some(event) = outside.next(&mut process)? {
            let passed_over = outside.take_passed_over();
            if !passed_over.is_empty() {
                gaps.push((events.len(), passed_over));
            }
            events.push(event);
        }
        Ok(Self { folded: outside.folded(), process, events, gaps })
    }
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
