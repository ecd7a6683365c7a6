//! Fragments about the store.
//! Not here: flags.

use rankcheck_model::{FlagAct, FlagOp, ListOp, Op, Operand, Question, StoreOp, ThreadOp};

use super::builder::{At, Builder, first};
use super::draw::{Below, By, Who, drawn};

drawn! {
    /// A piece of protocol that uses the store.
    pub(super) enum Fragment {
        4 => Set { rank: Who, by: By, key: StoreKey, value: Below<2> },
        4 => Get { rank: Who, by: By, key: StoreKey },
        4 => Delete { rank: Who, by: By, key: StoreKey },
        /// The adversary chooses whether the key is set.
        4 => Choose { rank: Who, by: By, key: StoreKey, value: Below<2> },
        /// A reader, and two writers that nothing orders with it.
        7 => Race { rank: Who, second: SecondWrite },
    }
}

drawn! {
    /// The key that an act is on.
    pub(super) enum StoreKey {
        1 => K,
        1 => L,
    }
}

drawn! {
    /// What follows the first write of a race.
    pub(super) enum SecondWrite {
        1 => Nothing,
        1 => Set,
        1 => Delete,
    }
}

impl StoreKey {
    fn name(self) -> &'static str {
        match self {
            Self::K => "k",
            Self::L => "l",
        }
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Set { rank, by, key, value } => {
                let at = b.at(rank, by);
                b.store(at, key.name(), Operand::Int(value.int() + 1));
            }
            Self::Get { rank, by, key } => {
                let at = b.at(rank, by);
                get(b, at, key.name());
            }
            Self::Delete { rank, by, key } => {
                let at = b.at(rank, by);
                let key = b.name(key.name());
                b.push(at, Op::Store(StoreOp::Delete { key }));
            }
            Self::Choose { rank, by, key, value } => {
                let at = b.at(rank, by);
                let options = [b.name("no"), b.name("yes")].into();
                let (name, key, value) =
                    (b.name("choice"), b.name(key.name()), Operand::Int(value.int() + 1));
                let then = vec![Op::Store(StoreOp::Set { key, value })];
                b.ask(at, Question::Choose { name, options }, then);
            }
            Self::Race { rank, second } => {
                let rank = b.rank(rank);
                b.store(first(rank), "shared", Operand::Int(1));
                let key = b.name("shared");
                let second = match second {
                    SecondWrite::Nothing => Op::Thread(ThreadOp::Step { label: key }),
                    SecondWrite::Set => Op::Store(StoreOp::Set { key, value: Operand::Int(2) }),
                    SecondWrite::Delete => Op::Store(StoreOp::Delete { key }),
                };
                b.push(first(rank), second);
                b.fetch(first(b.next(rank)), "shared");
            }
        }
    }
}

/// What was read decides what is written, so that outcomes tell orders apart.
fn get(b: &mut Builder, at: At, key: &str) {
    let got = b.fetch(at, key);
    let (flag, list) = (b.name("saw"), b.name("seen"));
    let mark = Op::Flag(FlagOp { flag, act: FlagAct::Write(at.rank.into()), stream: None });
    let then = vec![mark, Op::List(ListOp::Push { list, value: Operand::Int(1) })];
    b.ask(at, Question::Equal(got, Operand::Int(1)), then);
    b.exit_if(at, Question::ListLen { list }, key);
}
