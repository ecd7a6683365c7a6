//! Fragments in which host processes meet.
//! Not here: exchanges.

use rankcheck_model::machine::Launcher;
use rankcheck_model::{BarrierOp, Op, Operand, Question};

use super::builder::{At, Builder, first};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol in which host processes meet.
    pub(super) enum Fragment {
        4 => Enter { rank: Who, who: Entrants },
        /// A rank may die before all meet.
        4 => DiesBefore { rank: Who, launcher: RandomLauncher },
        /// Two threads of a rank agree with the others, who do so twice.
        4 => AgreeInTwoThreads { rank: Who },
    }
}

drawn! {
    /// Which ranks enter a barrier.
    pub(super) enum Entrants {
        2 => All,
        1 => AllButOne,
    }
}

drawn! {
    /// What the launcher of the job does when a rank dies.
    pub(super) enum RandomLauncher {
        1 => LeavesPeers,
        1 => EndsJob,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Enter { rank, who } => {
                let rank = b.rank(rank);
                for r in b.ranks().filter(|r| who == Entrants::All || *r != rank) {
                    b.barrier(first(r));
                }
            }
            Self::DiesBefore { rank, launcher } => {
                let rank = b.rank(rank);
                let (name, options) = (b.name("bad batch"), [b.name("no"), b.name("yes")].into());
                b.exit_if(first(rank), Question::Choose { name, options }, "died");
                for r in b.ranks() {
                    b.barrier(first(r));
                }
                match launcher {
                    RandomLauncher::EndsJob => b.config.launcher = Launcher::EndsJob,
                    RandomLauncher::LeavesPeers => {}
                }
            }
            Self::AgreeInTwoThreads { rank } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    agree(b, first(r), true);
                    let second = if r == rank { b.second(r) } else { first(r) };
                    agree(b, second, r != rank);
                }
            }
        }
    }
}

fn agree(b: &mut Builder, at: At, value: bool) {
    let op = BarrierOp::AllAgree { members: b.all(), value: Operand::Bool(value) };
    let agreed = b.push(at, Op::Barrier(op));
    b.ask(at, Question::Failed(agreed.clone()), Vec::new());
    b.exit_if(at, Question::Equal(agreed, Operand::Bool(false)), "disagreed");
}
