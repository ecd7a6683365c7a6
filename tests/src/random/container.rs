//! Fragments about maps and lists of a rank.
//! Not here: the store, which all ranks share.

use rankcheck_model::{ListOp, MapOp, MapOrder, Op, Operand, Question};

use super::builder::{At, Builder, first};
use super::draw::{Below, Who, drawn};

drawn! {
    /// A piece of protocol with a container.
    pub(super) enum Fragment {
        /// One thread puts what another asks for.
        4 => PutAndAsk { rank: Who, by: OfTwo, key: Below<2>, value: Below<3> },
        2 => Ask { rank: Who, by: OfTwo, key: Below<2> },
        4 => PushAndAsk { rank: Who, by: OfTwo, value: Below<3> },
        4 => Get { rank: Who, by: OfTwo, index: Below<2> },
        /// A walk in hash order.
        2 => Items { rank: Who, by: OfTwo, value: Below<3> },
    }
}

drawn! {
    /// One of two threads.
    pub(super) enum OfTwo {
        1 => First,
        1 => Second,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let (map, list) = (b.name("map"), b.name("list"));
        match self {
            Self::PutAndAsk { rank, by, key, value } => {
                let (at, other) = threads(b, rank, by);
                let (key, value) = (Operand::Int(key.int()), Operand::Int(value.int()));
                b.push(at, Op::Map(MapOp::Put { map, key: key.clone(), value }));
                b.exit_if(other, Question::MapHas { map, key }, "stop");
            }
            Self::Ask { rank, by, key } => {
                let (at, _) = threads(b, rank, by);
                b.exit_if(at, Question::MapHas { map, key: Operand::Int(key.int()) }, "stop");
            }
            Self::PushAndAsk { rank, by, value } => {
                let (at, other) = threads(b, rank, by);
                b.append(at, "list", value.int());
                b.exit_if(other, Question::ListLen { list }, "stop");
            }
            Self::Get { rank, by, index } => {
                let (at, _) = threads(b, rank, by);
                let got = b.push(at, Op::List(ListOp::Get { list, index: Operand::Int(index.int()) }));
                b.exit_if(at, Question::Failed(got), "stop");
            }
            Self::Items { rank, by, value } => {
                let (at, _) = threads(b, rank, by);
                for key in [7, 8] {
                    let (key, value) = (Operand::Int(key), Operand::Int(value.int()));
                    b.push(at, Op::Map(MapOp::Put { map, key, value }));
                }
                b.ask_last(at, Question::MapItems { map, order: MapOrder::Hash });
            }
        }
    }
}

/// The thread that acts, and the other one.
fn threads(b: &mut Builder, rank: Who, by: OfTwo) -> (At, At) {
    let rank = b.rank(rank);
    let second = b.second(rank);
    match by {
        OfTwo::First => (first(rank), second),
        OfTwo::Second => (second, first(rank)),
    }
}
