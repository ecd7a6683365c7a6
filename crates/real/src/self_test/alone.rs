//! A program of one rank that goes through most of what the executor does, with nondeterminism forced, and the host of
//! a rank that is alone.
//!
//! Not here: anything that needs a second rank.

use std::sync::Arc;
use std::time::Duration;

use rankcheck_model::term::{initial_number, kernel_number};
use rankcheck_model::{
    Answer, Block, Collective, CollectiveKind, CommOp, Declared, Dtype, EventOp, GroupOp, Loc, LocId, MapOp,
    MapOrder, MemoryKind, MemoryOp, Op, Operand, PoolOp, Question, Rank, ReduceOp, Resources, SizeClasses,
    Slot, Source, SourceError, Statement, StreamOp, Symmetry, Terminator, ThreadOp, ThreadStart, TieBreak,
    Token, WindowFlags, WindowOp,
};

use crate::Error;
use crate::case::{
    At, Case, CommHistory, CommTicket, Ended, Forced, Host, NondetValue, RankReport, SegmentName, Vote,
};
use crate::execute::{RankDevice, execute};
use crate::ffi::Libraries;
use crate::flag::WordPosition;

const MIB: u64 = 1 << 20;
const SIDE: ThreadStart = ThreadStart(1);

/// The names of tokens, by number.
const NAMES: [&str; 11] =
    ["default", "symm", "a", "b", "c", "tp", "add", "event", "addresses", "step", "side"];

fn token(name: &str) -> Token {
    let at = NAMES.iter().position(|known| *known == name).expect("a name of the list");
    Token(at as u64)
}

fn slot(index: u32) -> Operand {
    Operand::Slot(Slot { start: ThreadStart(0), index })
}

fn address(index: u32) -> Operand {
    Operand::Address(Arc::new(slot(index)))
}

/// The blocks of the first thread; the second one takes a step.
struct AloneProgram {
    blocks: Vec<Arc<Block>>,
}

impl Source for AloneProgram {
    fn block(&self, _: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError> {
        if start == SIDE {
            let step =
                Statement { op: Op::Thread(ThreadOp::Step { label: token("step") }).into(), loc: LocId(0) };
            return Ok(Arc::new(Block { ops: vec![step], terminator: Terminator::Return }));
        }
        Ok(Arc::clone(&self.blocks[answers.len()]))
    }

    fn token(&self, token: Token) -> Arc<str> {
        NAMES[token.0 as usize].into()
    }

    fn loc(&self, _: LocId) -> Loc {
        Loc { file: "self_test".into(), line: 1, column: 1, called_at: None }
    }

    fn default_stream(&self) -> Token {
        token("default")
    }

    fn symmetry(&self) -> Symmetry {
        Symmetry::Distinct
    }
}

/// The operations up to each question, and the questions.
fn program() -> Vec<(Vec<Op>, Option<Question>)> {
    let (default, event) = (token("default"), token("event"));
    let register =
        |memory| Op::Window(WindowOp::Register { comm: slot(2), memory, flags: WindowFlags::CollSymmetric });
    let sum = Collective {
        kind: CollectiveKind::AllReduce,
        comm: slot(2),
        send: slot(1),
        recv: slot(1),
        count: MIB,
        dtype: Dtype::F32,
        op: ReduceOp::Sum,
        stream: default,
        declared: Declared::Nothing,
    };
    let memory = MemoryKind::Nccl;
    let put = |of, value| {
        Op::Map(MapOp::Put { map: token("addresses"), key: address(of), value: Operand::Int(value) })
    };
    let seen = Question::EventQuery { event };
    vec![
        (
            vec![
                Op::Pool(PoolOp::Declare {
                    pool: token("symm"),
                    classes: SizeClasses::Exact,
                    tie: TieBreak::Address,
                    memory,
                }),
                Op::Pool(PoolOp::Alloc {
                    pool: token("symm"),
                    name: token("a"),
                    len_bytes: MIB,
                    stream: default,
                }),
                Op::Memory(MemoryOp::Alloc { name: token("b"), len_bytes: 4 * MIB, memory }),
                put(0, 0),
                put(1, 1),
                Op::Comm(CommOp::Init {
                    name: token("tp"),
                    members: [Rank(0)].into(),
                    children: Resources::Own,
                }),
                register(slot(1)),
                Op::Group(GroupOp::Start),
                register(Operand::Segment(Arc::new(slot(0)))),
                Op::Collective(Arc::new(sum)),
                Op::Group(GroupOp::End),
                Op::Stream(StreamOp::Kernel {
                    name: token("add"),
                    reads: [slot(0)].into(),
                    writes: [slot(0)].into(),
                    stream: default,
                }),
                Op::Event(EventOp { event, stream: default }),
            ],
            Some(seen.clone()),
        ),
        (vec![Op::Stream(StreamOp::Synchronize { what: Operand::Stream(default) })], Some(seen)),
        (vec![], Some(Question::MapItems { map: token("addresses"), order: MapOrder::Address })),
        // The slots of the walk follow the five of the operations: key and value, twice.
        (vec![], Some(Question::Number(slot(6)))),
        (
            vec![
                Op::Window(WindowOp::Deregister { comm: slot(2), window: slot(3) }),
                Op::Memory(MemoryOp::Free { buffer: slot(1), after: None }),
                Op::Memory(MemoryOp::Alloc { name: token("c"), len_bytes: 4 * MIB, memory }),
            ],
            Some(Question::Equal(address(1), address(9))),
        ),
        (
            vec![
                Op::Thread(ThreadOp::Spawn { start: SIDE }),
                Op::Thread(ThreadOp::Join { thread: slot(10) }),
            ],
            None,
        ),
    ]
}

/// What is forced: the order of two segments, an event that is not seen yet, an address that comes back.
fn forced(parts: &[(Vec<Op>, Option<Question>)]) -> Forced {
    let before = |part: usize| {
        let done: usize =
            parts[..part].iter().map(|(verbs, ask)| verbs.len() + usize::from(ask.is_some())).sum();
        u32::try_from(done).expect("few operations")
    };
    let at = |index| At { rank: Rank(0), thread: 0, index };
    let query = before(1) - 1;
    let walk = before(3) - 1;
    let again = before(4) + 2;
    let values = [
        (at(query), vec![NondetValue::Poll { done: false }]),
        (at(walk), vec![NondetValue::AddressOrder { position: 0 }]),
        (at(again), vec![NondetValue::AddressReuse { which: 1 }]),
    ];
    let segment = |owner: &str| SegmentName { owner: owner.to_owned(), nth: 0 };
    let addresses = vec![vec![segment("b"), segment("symm")]];
    Forced { nondet: values.into(), addresses, turns: Vec::new() }
}

/// Runs the program; what it should report is checked.
///
/// # Errors
/// [`Error::Differs`], or what opening or cleaning the device returned.
pub(super) fn run_alone(libraries: &Libraries, ordinal: i32, comms: CommHistory) -> Result<(), Error> {
    let parts = program();
    let case = Case {
        program: serde_json::Value::Null,
        ranks: 1,
        comms,
        element: Dtype::F32,
        forced: forced(&parts),
        deadline: Duration::from_secs(10),
    };
    let op = |verb: Op| Statement { op: verb.into(), loc: LocId(0) };
    let block = |(verbs, ask): (Vec<Op>, Option<Question>)| {
        let terminator = ask.map_or(Terminator::Return, |question| Terminator::Ask(question, LocId(0)));
        Arc::new(Block { ops: verbs.into_iter().map(op).collect(), terminator })
    };
    let source = Arc::new(AloneProgram { blocks: parts.into_iter().map(block).collect() });
    let mut device = RankDevice::open(libraries, ordinal)?;
    let report = execute(&mut device, source, Rank(0), &case, Arc::new(Alone));
    device.end()?;
    judge(&case, &report)
}

fn judge(case: &Case, report: &RankReport) -> Result<(), Error> {
    let differs = |what, expected: String, found: String| Err(Error::Differs { what, expected, found });
    if report.ended != Ended::Finishes || !report.errors.is_empty() {
        return differs("the program", "an end without errors".to_owned(), format!("{report:?}"));
    }
    // Not yet, complete, two entries, b first, the same address.
    let answers = report.answers.get(&0).cloned().unwrap_or_default();
    if answers != [0, 1, 2, 1, 1] {
        return differs("the answers", "0, 1, 2, 1, 1".to_owned(), format!("{answers:?}"));
    }
    let wanted: Vec<&NondetValue> = case.forced.nondet.values().flatten().collect();
    let taken: Vec<&NondetValue> = report.taken.iter().map(|taken| &taken.value).collect();
    if wanted != taken {
        return differs("the picks", format!("{wanted:?}"), format!("{:?}", report.taken));
    }
    let first = initial_number(Rank(0), "a") + kernel_number(Rank(0), "add");
    let other = initial_number(Rank(0), "c");
    let expected = [("a", MIB / 4, f64::from(first)), ("c", MIB, f64::from(other))];
    let found: Vec<(&str, u64, f64)> = report
        .held
        .iter()
        .map(|held| (&*held.name, held.elements, held.values.first().map_or(f64::NAN, |value| value.0)))
        .collect();
    if found != expected || report.held.iter().any(|held| held.distinct != 1) {
        return differs("the contents", format!("{expected:?}"), format!("{:?}", report.held));
    }
    Ok(())
}

/// The host of one rank: everybody agrees, and the store is not used.
struct Alone;

impl Host for Alone {
    fn enter(&self, thread: u32, index: u32, call: &str) {
        tracing::debug!(thread, index, call, "enter");
    }

    fn leave(&self, thread: u32, index: u32) {
        tracing::debug!(thread, index, "leave");
    }

    fn init(&self, _: &str, nth: u32, members: &[Rank], children: Resources) -> Result<CommTicket, Error> {
        Ok(CommTicket { id: u64::from(nth), members: members.to_vec(), children, comms: CommHistory::Fresh })
    }

    fn announce(
        &self,
        name: &str,
        nth: u32,
        members: &[Rank],
        children: Resources,
    ) -> Result<CommTicket, Error> {
        self.init(name, nth, members, children)
    }

    fn unique_id(&self, _: &CommTicket, own: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        own.ok_or_else(|| Error::Malformed { what: "the only member makes the id".to_owned() })
    }

    fn agree(&self, _: &[Rank], _: u32, vote: Vote) -> Result<Vote, Error> {
        Ok(vote)
    }

    fn store_set(&self, _: &str, _: serde_json::Value) -> Result<(), Error> {
        Ok(())
    }

    fn store_get(&self, key: &str) -> Result<serde_json::Value, Error> {
        Err(Error::Malformed { what: format!("nobody sets {key}") })
    }

    fn store_delete(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn gather(
        &self,
        _: &[Rank],
        _: u32,
        brought: serde_json::Value,
    ) -> Result<Vec<serde_json::Value>, Error> {
        Ok(vec![brought])
    }

    fn word(&self, flag: &str) -> Result<WordPosition, Error> {
        Err(Error::Malformed { what: format!("nobody else looks at {flag}") })
    }

    fn rest(&self) -> Result<(), Error> {
        Ok(())
    }

    fn turn(&self, _: At) -> Result<(), Error> {
        Ok(())
    }

    fn turn_over(&self, _: At) -> Result<(), Error> {
        Ok(())
    }
}
