//! Fragments in which host processes vote, and decide before what they vote for.
//! Not here: barriers, and threads that vote for their rank.

use rankcheck_model::{BarrierOp, Op, Operand, Question, ThreadOp};

use super::answer::{choice, decide};
use super::builder::{At, Builder, first};
use super::draw::{By, Who, drawn};

drawn! {
    /// A piece of protocol in which ranks agree.
    pub(super) enum Fragment {
        8 => Vote { rank: Who, by: By, who: Voters, deciders: Deciders, then: AfterVote },
        /// The last agreement matters once more, after another decision.
        3 => Remember { rank: Who },
        /// A rank decides something that nothing depends on.
        2 => Decide { rank: Who },
    }
}

drawn! {
    /// Which ranks take part.
    pub(super) enum Voters {
        4 => All,
        1 => AllButOne,
    }
}

drawn! {
    /// Which ranks decide for themselves what they vote for; the others agree.
    pub(super) enum Deciders {
        3 => All,
        1 => One,
        /// What one of them voted for it knows later.
        1 => OneOfThemLater,
        /// One does not agree, and the others decide.
        1 => AllButOne,
    }
}

drawn! {
    /// What the result is for.
    pub(super) enum AfterVote {
        2 => ExitIfAgreed,
        2 => ExitIfNot,
        3 => Nothing,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Vote { rank, by, who, deciders, then } => {
                let rank = b.rank(rank);
                let members = if who == Voters::All { b.all() } else { b.all_but(b.next(rank)) };
                for r in members.iter().map(|member| member.0) {
                    let at = if r == rank { b.by(r, by) } else { first(r) };
                    let decides = match deciders {
                        Deciders::All => true,
                        Deciders::One | Deciders::OneOfThemLater => r == rank,
                        Deciders::AllButOne => r != rank,
                    };
                    let vote = |value| {
                        Op::Barrier(BarrierOp::AllAgree {
                            members: members.clone(),
                            value: Operand::Bool(value),
                        })
                    };
                    let agreed = if decides {
                        let question = choice(b, &["no", "yes"]);
                        b.ask(at, question, Vec::new());
                        b.recall(at, 0, vec![vote(true)], vec![vote(false)])
                    } else {
                        b.push(at, vote(deciders != Deciders::AllButOne))
                    };
                    b.has_agreed(at, &agreed);
                    match then {
                        AfterVote::Nothing => {}
                        AfterVote::ExitIfAgreed => b.exit_if(at, Question::Truth(agreed), "agreed"),
                        AfterVote::ExitIfNot => {
                            b.exit_if(at, Question::Equal(agreed, Operand::Bool(false)), "disagreed");
                        }
                    }
                    if decides && deciders == Deciders::OneOfThemLater {
                        recalled(b, at);
                    }
                }
            }
            Self::Remember { rank } => {
                let rank = b.rank(rank);
                if let Some(agreed) = b.agreed(first(rank)) {
                    decide(b, first(rank));
                    b.exit_if(first(rank), Question::Truth(agreed), "had agreed");
                }
            }
            Self::Decide { rank } => {
                let rank = b.rank(rank);
                decide(b, first(rank));
            }
        }
    }
}

/// Whoever voted decides something else, and comes back to the vote.
fn recalled(b: &mut Builder, at: At) {
    decide(b, at);
    let code = b.name("had voted for it");
    b.recall(at, 1, vec![Op::Thread(ThreadOp::Exit { code })], Vec::new());
}
