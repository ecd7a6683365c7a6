//! Whether a recorded run is one that a spec's program allows, and where it leaves the program's tree.
//!
//! Each rank is walked for itself: what it does on communicators has to be what its program does, in that order,
//! for some answers to the program's questions. Memory, streams and what is only of the spec's language are
//! passed over. Not here: whether the program is right.

use rankcheck_model::{
    Answer, CollectiveKind, CommOp, Direction, Dtype, GroupOp, LocId, Op, Operand, Rank, ReduceOp, Slot,
    Source, Terminator, ThreadOp, ThreadStart, WindowFlags, WindowOp,
};
use rustc_hash::FxHashMap;

use super::judge::Recording;
use super::lower::RankRun;
use super::world::RunCommId;

/// Walks of one rank that are tried at most.
const WALKS: usize = 20_000;
/// Numbers that a question for one may be answered with, as far as they are tried.
const NUMBERS: u32 = 4;

/// What is compared of an operation, apart from its communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Does {
    Init(Vec<Rank>),
    Split(Option<i64>),
    Destroy,
    Register(WindowFlags),
    Deregister,
    Collect(CollectiveKind, u64, Dtype, Option<ReduceOp>),
    Transfer(Direction, u32, u64, Dtype),
    GroupStart,
    GroupEnd,
}

/// An operation that both programs and recordings have.
struct ProgramStep<'a> {
    does: Does,
    comm: Option<&'a Operand>,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "few operations are on communicators")]
fn step(verb: &Op) -> Option<ProgramStep<'_>> {
    let (does, comm) = match verb {
        Op::Comm(CommOp::Init { members, .. }) => (Does::Init(members.to_vec()), None),
        Op::Comm(CommOp::Split { comm, color, .. }) => (Does::Split(*color), Some(comm)),
        Op::Comm(CommOp::Destroy { comm, .. }) => (Does::Destroy, Some(comm)),
        Op::Window(WindowOp::Register { comm, flags, .. }) => (Does::Register(*flags), Some(comm)),
        Op::Window(WindowOp::Deregister { comm, .. }) => (Does::Deregister, Some(comm)),
        Op::Collective(call) => {
            let op = call.kind.reduces().then_some(call.op);
            (Does::Collect(call.kind, call.count, call.dtype, op), Some(&call.comm))
        }
        Op::Transfer(call) => {
            (Does::Transfer(call.direction, call.peer, call.count, call.dtype), Some(&call.comm))
        }
        Op::Group(GroupOp::Start) => (Does::GroupStart, None),
        Op::Group(GroupOp::End) => (Does::GroupEnd, None),
        _ => return None,
    };
    Some(ProgramStep { does, comm })
}

/// What is done, with the communicator's name.
fn display(does: &Does, comm: &str) -> String {
    match does {
        Does::Init(members) => {
            let members: Vec<String> = members.iter().map(|rank| rank.0.to_string()).collect();
            format!("an init of ranks {}", members.join(", "))
        }
        Does::Split(Some(color)) => format!("a split of {comm} with color {color}"),
        Does::Split(None) => format!("a split of {comm} without color"),
        Does::Destroy => format!("the destruction of {comm}"),
        Does::Register(WindowFlags::Default) => format!("a registration with {comm}"),
        Does::Register(WindowFlags::CollSymmetric) => format!("a symmetric registration with {comm}"),
        Does::Deregister => format!("a deregistration from {comm}"),
        Does::Collect(kind, count, dtype, op) => {
            let op = op.map_or_else(String::new, |op| format!(" ({})", op.name()));
            format!("{} of {count} {}{op}{} on {comm}", kind.name(), dtype.name(), kind.way())
        }
        Does::Transfer(direction, peer, count, dtype) => {
            format!("{} of {count} {} with rank {peer} of {comm}", direction.name(), dtype.name())
        }
        Does::GroupStart => "the start of a group".to_owned(),
        Does::GroupEnd => "the end of a group".to_owned(),
    }
}

/// An operation of a recorded rank.
struct Did {
    does: Does,
    comm: Option<RunCommId>,
    makes: Option<RunCommId>,
    loc: LocId,
}

/// What a rank did, in the order of its calls.
fn did(program: &RankRun) -> Vec<Did> {
    let mut out = Vec::new();
    collect(program, ThreadStart(0), &mut out);
    out
}

fn collect(program: &RankRun, start: ThreadStart, out: &mut Vec<Did>) {
    let mut slots = 0;
    for op in &program.blocks[start.0 as usize].ops {
        if let Op::Thread(ThreadOp::Spawn { start }) = &*op.op {
            collect(program, *start, out);
        }
        if let Some(step) = step(&op.op) {
            let of = |slot: &Slot| program.comms.get(slot).copied();
            let comm = match step.comm {
                Some(Operand::Slot(slot)) => of(slot),
                Some(_) | None => None,
            };
            let makes = of(&Slot { start, index: slots });
            out.push(Did { does: step.does, comm, makes, loc: op.loc });
        }
        slots += op.op.slots();
    }
}

/// A way through the program of a rank that fits what was recorded so far.
#[derive(Debug, Clone)]
struct ProgramWalk {
    answers: Vec<Answer>,
    /// Recorded operations behind it.
    behind: usize,
    slots: u32,
    /// Which recorded communicator a slot of the program holds.
    comms: FxHashMap<Slot, RunCommId>,
}

/// Where a recorded run leaves the tree of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The rank whose recording leaves the tree.
    pub rank: Rank,
    /// Its n-th operation on communicators, from 0.
    pub nth: usize,
    /// What the program allows there, with locations.
    pub allowed: Vec<String>,
    /// What was recorded, with its location.
    pub recorded: String,
}

impl std::fmt::Display for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "rank {} leaves the spec at its operation #{}: recorded is {}; the spec allows {}",
            self.rank.0,
            self.nth,
            self.recorded,
            self.allowed.join(", or ")
        )
    }
}

/// Follows a recorded run through a program of as many ranks; gives where it leaves it first.
///
/// # Errors
/// If the program cannot be evaluated, or has too many ways through it.
pub fn follow(recording: &Recording, source: &dyn Source) -> Result<Option<Leaving>, String> {
    for member in &recording.world.members {
        let program = &recording.program.ranks[member.rank.at()];
        let did = did(program);
        let mut one =
            Following { recording, source, rank: member.rank, did: &did, best: 0, allowed: Vec::new() };
        if !one.walk(program.is_known_to_its_end())? {
            return Ok(Some(one.leaving()));
        }
    }
    Ok(None)
}

struct Following<'a> {
    recording: &'a Recording,
    source: &'a dyn Source,
    rank: Rank,
    did: &'a [Did],
    /// The most recorded operations that some walk has behind it, and what the program allows there.
    best: usize,
    allowed: Vec<String>,
}

impl Following<'_> {
    /// Whether some walk gets to the end of what was recorded.
    fn walk(&mut self, ended: bool) -> Result<bool, String> {
        let start = ProgramWalk { answers: Vec::new(), behind: 0, slots: 0, comms: FxHashMap::default() };
        let mut open = vec![start];
        let mut walks = 0;
        while let Some(mut walk) = open.pop() {
            walks += 1;
            if walks > WALKS {
                return Err(format!("rank {} has more than {WALKS} ways through the spec", self.rank.0));
            }
            let block = self.source.block(self.rank, ThreadStart(0), &walk.answers);
            let block = block.map_err(|error| error.to_string())?;
            if !self.block(&mut walk, &block.ops) {
                continue;
            }
            if walk.behind == self.did.len() && !ended {
                return Ok(true);
            }
            match &block.terminator {
                Terminator::Return | Terminator::Cut if walk.behind == self.did.len() => return Ok(true),
                Terminator::Return | Terminator::Cut => self.allows(walk.behind, "its end".to_owned()),
                Terminator::Ask(question, _) => {
                    for answer in (0..question.answers().unwrap_or(NUMBERS)).rev() {
                        let mut next = walk.clone();
                        next.answers.push(answer);
                        next.slots += question.slots(answer);
                        open.push(next);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Walks over operations; whether what was recorded fits them.
    fn block(&mut self, walk: &mut ProgramWalk, ops: &[rankcheck_model::Statement]) -> bool {
        for op in ops {
            if let Some(step) = step(&op.op)
                && !self.step(walk, &step, op.loc)
            {
                return false;
            }
            walk.slots += op.op.slots();
        }
        true
    }

    fn step(&mut self, walk: &mut ProgramWalk, step: &ProgramStep<'_>, loc: LocId) -> bool {
        let known = match step.comm {
            Some(Operand::Slot(slot)) => walk.comms.get(slot).copied(),
            Some(_) | None => None,
        };
        // A communicator that comes out of a container of the spec may be any.
        let fits = self
            .did
            .get(walk.behind)
            .filter(|did| did.does == step.does && known.is_none_or(|known| did.comm == Some(known)));
        let Some(did) = fits else {
            let name = known.map_or("a communicator", |comm| self.recording.world.comm(comm).name.as_str());
            let text = format!("{} ({})", display(&step.does, name), self.source.loc(loc));
            self.allows(walk.behind, text);
            return false;
        };
        if let Some(makes) = did.makes {
            walk.comms.insert(Slot { start: ThreadStart(0), index: walk.slots }, makes);
        }
        walk.behind += 1;
        true
    }

    fn allows(&mut self, at: usize, text: String) {
        if at > self.best {
            self.best = at;
            self.allowed.clear();
        }
        if at == self.best && !self.allowed.contains(&text) {
            self.allowed.push(text);
        }
    }

    fn leaving(self) -> Leaving {
        let program = &self.recording.program;
        let recorded = match self.did.get(self.best) {
            Some(did) => {
                let name =
                    did.comm.map_or("a communicator", |comm| self.recording.world.comm(comm).name.as_str());
                format!("{} ({})", display(&did.does, name), program.loc(did.loc))
            }
            None => "its end".to_owned(),
        };
        Leaving { rank: self.rank, nth: self.best, allowed: self.allowed, recorded }
    }
}
