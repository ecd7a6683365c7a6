//! What the threads of a run came by.
//!
//! Not here: how it is changed and tried ([`super::Trials`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rankcheck_model::describe::{NamesOf, uses};
use rankcheck_model::edit::OpPosition;
use rankcheck_model::{
    Answer, Config, Op, Question, Rank, Slot, Source, SourceError, State, Statement, Terminator,
};

/// An operation that the shown run came by, done or blocked.
#[derive(Debug, Clone)]
pub struct Performed {
    /// Its rank, thread and position in the run.
    pub at: OpPosition,
    /// What is done; none for a question.
    pub op: Option<Op>,
    /// What is asked, and the answer; none for an operation.
    pub answered: Option<(Question, Answer)>,
    /// Slots that it uses.
    pub uses: Vec<Slot>,
    /// Slots of its thread that it produces.
    pub produces: Range<u32>,
}

pub(super) type PerformedOps = BTreeMap<OpPosition, Performed>;

/// What every thread of a run came by, and the answers that it was given.
pub(super) fn performed(
    source: &Arc<dyn Source>,
    config: &Config,
    state: &State,
) -> Result<(PerformedOps, BTreeMap<OpPosition, Answer>), SourceError> {
    let (mut all, mut given) = (BTreeMap::new(), BTreeMap::new());
    let names = NamesOf::new(&**source);
    for rank in (0..config.ranks).map(Rank) {
        for thread in state.rank(rank).threads() {
            let (start, answers) = (thread.start(), thread.answers());
            let (mut index, mut slots) = (0, 0);
            // The operation that it is blocked in counts.
            let end = thread.index() + u32::from(thread.running());
            for known in 0..=answers.len() {
                let block = source.block(rank, start, &answers[..known])?;
                for Statement { op, .. } in &block.ops {
                    if index == end {
                        break;
                    }
                    let made = slots + op.slots();
                    let at = OpPosition { rank, start, index };
                    let uses = uses(op, &names);
                    let op = Some(Op::clone(op));
                    all.insert(at, Performed { at, op, answered: None, uses, produces: slots..made });
                    (index, slots) = (index + 1, made);
                }
                if let Terminator::Ask(question, _) = &block.terminator
                    && let Some(answer) = answers.get(known)
                {
                    let made = slots + question.slots(*answer);
                    let at = OpPosition { rank, start, index };
                    given.insert(at, *answer);
                    let uses = uses(question, &names);
                    let answered = Some((question.clone(), *answer));
                    all.insert(at, Performed { at, op: None, answered, uses, produces: slots..made });
                    (index, slots) = (index + 1, made);
                }
            }
        }
    }
    Ok((all, given))
}
