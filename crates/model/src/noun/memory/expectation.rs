//! What the author of a program says that a buffer holds: where its data come from, and what was made of them on the way.
//! Not here: what it does hold ([`super`]).

use std::cell::RefCell;
use std::sync::Arc;

use super::{Accessed, overlap};
use crate::clock::Clock;
use crate::cx::Cx;
use crate::host::value::{Buffer, CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Machine, locked};
use crate::noun::memory::ByteRange;
use crate::noun::stream::Work;
use crate::order::dependence::Access;
use crate::program::{Operand, ReduceOp};
use crate::rank::Rank;
use crate::state::State;
use crate::term::{Term, TermNode, Terms};

/// Where data come from on a rank that gave some.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DataOrigin {
    /// The kernel of this name wrote them.
    Kernel(Token),
    /// A buffer of the name of this one held them when it was allocated.
    Allocated(Operand),
}

/// What was made of data of one rank or of several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Made {
    /// Nothing: they are those of this rank.
    By(Rank),
    /// One part from each member of this communicator, in their order, all of one length.
    Gathered(Operand),
    /// The reduction over all members of this communicator, or a part of it.
    Reduced(Operand, ReduceOp),
}

/// An [`DataOrigin`] that was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum From {
    Kernel(Token),
    /// The name of a buffer.
    Allocated(Token),
}

/// A [`Made`] that was looked up. A communicator that is none has no members, and nothing is made over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Over {
    Rank(Rank),
    Gathered(Option<CommId>),
    Reduced(Option<CommId>, ReduceOp),
}

/// What the author says that a buffer holds, on its way to the stream that it is said of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Expectation {
    pub(crate) buffer: Arc<Buffer>,
    from: From,
    over: Over,
}

impl Terms {
    /// Whether all that some bytes of a term hold is as `holds` says of each thing in them: the thing, where it starts,
    /// and which bytes of the whole it holds.
    fn all_pieces(
        &self,
        term: Term,
        start: i128,
        (from, to): (i128, i128),
        holds: &dyn Fn(Term, i128, (i128, i128)) -> bool,
    ) -> bool {
        match self.node(term) {
            TermNode::Part(of, offset, len) => {
                let to = to.min(start + i128::from(*len));
                self.all_pieces(*of, start - i128::from(*offset), (from, to), holds)
            }
            TermNode::Row(parts) => {
                let mut next = start;
                // What nobody has written since the memory was made is an empty row.
                !parts.is_empty()
                    && parts.iter().all(|(part, len)| {
                        let (begin, end) = (next, next + i128::from(*len));
                        next = end;
                        let range = (from.max(begin), to.min(end));
                        range.0 >= range.1 || self.all_pieces(*part, begin, range, holds)
                    })
            }
            TermNode::Striped(shares) => {
                shares.iter().all(|share| self.all_pieces(*share, start, (from, to), holds))
            }
            TermNode::Initial(..) | TermNode::Kernel(..) | TermNode::Reduced(..) | TermNode::Forgotten(_) => {
                holds(term, start, (from, to))
            }
        }
    }

    /// Whether some bytes of a term come from there, on this rank.
    fn comes_from(&self, (term, start): (Term, i128), range: (i128, i128), from: From, rank: Rank) -> bool {
        self.all_pieces(term, start, range, &|term, _, _| match (self.node(term), from) {
            (TermNode::Kernel(name, by, _), From::Kernel(kernel)) => (*name, *by) == (kernel, rank),
            (TermNode::Initial(by, name), From::Allocated(buffer)) => (*name, *by) == (buffer, rank),
            _ => false,
        })
    }

    /// Whether each byte is a reduction of bytes of all members that come from there, in whatever order and however nested:
    /// a reduction within nodes and then between them is one of all.
    fn is_reduced(&self, term: Term, len: i128, from: From, (members, op): (&[Rank], ReduceOp)) -> bool {
        let mut all = members.to_vec();
        all.sort_unstable();
        self.all_pieces(term, 0, (0, len), &|term, start, range| {
            let is_reduction = matches!(self.node(term), TermNode::Reduced(..));
            is_reduction && self.reduced_of((term, start), range, from, op).is_some_and(|of| of == all)
        })
    }

    /// The ranks whose bytes are reduced there, in ascending order, if each byte is a reduction of those that come from
    /// there on the same ranks. What is a maximum or a minimum once is it twice.
    fn reduced_of(
        &self,
        (term, start): (Term, i128),
        range: (i128, i128),
        from: From,
        op: ReduceOp,
    ) -> Option<Vec<Rank>> {
        let found: RefCell<Option<Vec<Rank>>> = RefCell::new(None);
        let is_same = |ranks: Vec<Rank>| found.borrow_mut().get_or_insert_with(|| ranks.clone()) == &ranks;
        let all = self.all_pieces(term, start, range, &|term, start, range| match (self.node(term), from) {
            (TermNode::Kernel(name, by, _), From::Kernel(kernel)) => *name == kernel && is_same(vec![*by]),
            (TermNode::Initial(by, name), From::Allocated(buffer)) => *name == buffer && is_same(vec![*by]),
            (TermNode::Reduced(by, parts), _) if *by == op.name() => {
                let of = |part: &Term| self.reduced_of((*part, start), range, from, op);
                let Some(of) = parts.iter().map(of).collect::<Option<Vec<_>>>() else { return false };
                // An average of averages is one of all if each of them is of as many.
                if op == ReduceOp::Avg && of.iter().any(|ranks| ranks.len() != of[0].len()) {
                    return false;
                }
                let mut ranks = of.concat();
                ranks.sort_unstable();
                if matches!(op, ReduceOp::Max | ReduceOp::Min) {
                    ranks.dedup();
                }
                is_same(ranks)
            }
            _ => false,
        });
        found.into_inner().filter(|_| all)
    }

    /// Whether each member's share of the bytes comes from there on that member.
    fn is_gathered(&self, term: Term, len: i128, from: From, members: &[Rank]) -> bool {
        let count = i128::try_from(members.len()).expect("few members");
        if count == 0 || len % count != 0 {
            return false;
        }
        let part = len / count;
        let ranges = (0..).map(|nth: i128| (nth * part, (nth + 1) * part));
        members.iter().zip(ranges).all(|(member, range)| self.comes_from((term, 0), range, from, *member))
    }
}

impl Machine {
    /// What a buffer holds against what the author says. Which of two unordered writes it sees is a race, and
    /// judged as one: where nobody specifies what follows, nothing is found here ([`Machine::finish`]).
    pub(crate) fn judge_expectation(
        &self,
        state: &mut State,
        rank: Rank,
        expected: &Expectation,
        (op, issue): (OpRef, &Clock),
    ) {
        let Expectation { buffer, from, over } = expected;
        if !self.needs_contents() {
            return;
        }
        let content = self.held_in(state, rank, buffer);
        self.look_at(&content);
        let members = |comm: &Option<CommId>| comm.map_or_else(|| Arc::from([]), |comm| self.members(comm));
        let met = {
            let mut terms = locked(&self.terms);
            let (term, len) = (terms.whole(&content), i128::from(buffer.len_bytes));
            match over {
                Over::Rank(by) => terms.comes_from((term, 0), (0, len), *from, *by),
                Over::Gathered(comm) => terms.is_gathered(term, len, *from, &members(comm)),
                Over::Reduced(comm, op) => terms.is_reduced(term, len, *from, (&members(comm), *op)),
            }
        };
        if met {
            return;
        }
        let home = buffer.home(rank);
        let range = (buffer.offset_bytes, buffer.len_bytes);
        let accesses = state.rank(home).memory(buffer.memory).map(|memory| &memory.accesses);
        let writes =
            |a: &&Accessed| a.access == Access::Write && overlap((a.offset_bytes, a.len_bytes), range);
        let writer = accesses.and_then(|accesses| accesses.iter().rfind(writes)).map(|a| a.op);
        let mut ops = vec![op];
        ops.extend(writer);
        self.note_wrong(state, home, &ByteRange::of(buffer), || vec![self.expected(*from, *over)]);
        state.rank_mut(rank).spoil();
        self.find(state, Rule::Mem5, About::Memory(home, buffer.memory), &ops, issue.past(), || {
            let writer = writer.map_or_else(
                || "since it was allocated".to_owned(),
                |writer| format!("written by rank {} at {}", writer.rank.0, self.at(&writer)),
            );
            format!(
                "{} of rank {} holds {} ({writer}), where rank {} expects {} ({})",
                self.buffer_name(buffer),
                home.0,
                self.show(&content),
                rank.0,
                self.expected(*from, *over),
                self.at(&op),
            )
        });
    }

    /// What is expected, in words.
    fn expected(&self, from: From, over: Over) -> String {
        let comm = |comm: Option<CommId>| match comm {
            Some(comm) => self.comm_name(comm).to_string(),
            None => "no communicator".to_owned(),
        };
        let whose = match over {
            Over::Rank(rank) => format!("rank {}", rank.0),
            Over::Gathered(of) => format!("each member of {}", comm(of)),
            Over::Reduced(of, _) => format!("each member of {}", comm(of)),
        };
        let data = match from {
            From::Kernel(name) => format!("what {} wrote on {whose}", self.name(name)),
            From::Allocated(name) => format!("what {} of {whose} held at first", self.name(name)),
        };
        match over {
            Over::Rank(_) => data,
            Over::Gathered(_) => format!("the gather of {data}"),
            Over::Reduced(_, op) => format!("the reduction ({}) of {data}", op.name()),
        }
    }
}

impl Cx<'_> {
    pub(crate) fn expect(&mut self, (buffer, origin, made): (&Operand, &DataOrigin, &Made), stream: Token) {
        let op = self.op;
        let from = match origin {
            DataOrigin::Kernel(kernel) => Some(From::Kernel(*kernel)),
            DataOrigin::Allocated(of) => {
                let value = Machine::value(self.state, self.rank, of);
                value.buffer().map(|buffer| From::Allocated(buffer.name))
            }
        };
        let comm = |comm: &Operand| {
            let value = Machine::value(self.state, self.rank, comm);
            if let Value::Comm(comm) = value { Some(comm) } else { None }
        };
        let over = match made {
            Made::By(rank) => Over::Rank(*rank),
            Made::Gathered(of) => Over::Gathered(comm(of)),
            Made::Reduced(of, op) => Over::Reduced(comm(of), *op),
        };
        // What came of an allocation that failed is judged where it is used.
        if let (Some(buffer), Some(from)) = (self.given(buffer, op), from) {
            let work = Work::Expect(Arc::new(Expectation { buffer, from, over }));
            self.launch(stream, work);
        }
        self.done(&[]);
    }
}
