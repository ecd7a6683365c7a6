//! Fragments about flags, of the host and on streams.
//! Not here: the store.

use rankcheck_model::{FlagAct, Test};

use super::builder::{Builder, first};
use super::draw::{Below, By, On, Who, drawn};

drawn! {
    /// A piece of protocol that uses flags.
    pub(super) enum Fragment {
        4 => Write { rank: Who, by: By, flag: FlagName, value: Below<2> },
        4 => Wait { rank: Who, by: By, flag: FlagName, value: Below<3> },
        4 => Act { rank: Who, by: By, flag: FlagName, act: FlagActs, value: Below<3>, on: HostOrStream },
        /// A reader, and two writers that nothing orders with it.
        7 => Race { rank: Who, second: Below<3> },
    }
}

drawn! {
    /// The flag that an act is on.
    pub(super) enum FlagName {
        1 => F,
        1 => G,
    }
}

drawn! {
    /// What can be done with a flag.
    pub(super) enum FlagActs {
        3 => Write,
        2 => Wait,
        1 => WaitAtLeast,
        2 => Swap,
    }
}

drawn! {
    /// Whether the host acts on a flag, or a stream does.
    pub(super) enum HostOrStream {
        1 => Host,
        3 => Stream { stream: On },
    }
}

impl FlagName {
    fn name(self) -> &'static str {
        match self {
            Self::F => "f",
            Self::G => "g",
        }
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Write { rank, by, flag, value } => {
                let at = b.at(rank, by);
                b.flag(at, flag.name(), FlagAct::Write(value.int() + 1), None);
            }
            Self::Wait { rank, by, flag, value } => {
                let at = b.at(rank, by);
                b.flag(at, flag.name(), FlagAct::Wait(Test::Equal, value.int()), None);
            }
            Self::Act { rank, by, flag, act, value, on } => {
                let value = value.int();
                let act = match act {
                    FlagActs::Write => FlagAct::Write(value),
                    FlagActs::Wait => FlagAct::Wait(Test::Equal, value),
                    FlagActs::WaitAtLeast => FlagAct::Wait(Test::AtLeast, value),
                    FlagActs::Swap => FlagAct::Swap { from: value, to: (value + 1) % 3 },
                };
                let stream = match on {
                    HostOrStream::Host => None,
                    HostOrStream::Stream { stream } => Some(stream.name()),
                };
                let at = b.at(rank, by);
                b.flag(at, flag.name(), act, stream);
            }
            Self::Race { rank, second } => {
                let rank = b.rank(rank);
                b.flag(first(rank), "signal", FlagAct::Write(1), None);
                b.flag(first(rank), "signal", FlagAct::Write(second.int()), None);
                b.flag(first(b.next(rank)), "signal", FlagAct::Wait(Test::Equal, 1), None);
            }
        }
    }
}
