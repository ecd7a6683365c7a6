//! Whether two programs do the same operations: `same_operations` in a spec.
//!
//! Not here: what a program may do, which takes an exploration ([`mod@super::explore`]).

use rankcheck_model::describe::{NamesOf, description};
use rankcheck_model::{Block, Rank, Source, SourceError};

use crate::spec::{Check, Spec, SpecError, SpecSource};

/// Walks the trees of two programs side by side, with every answer.
pub(super) fn different_operations(spec: &Spec, check: &Check) -> Result<Option<String>, SpecError> {
    for ranks in &check.ranks {
        for params in check.combinations() {
            let one = check.source(*ranks, &params, &check.assume)?;
            let Some(other) = check.other_source(*ranks, &params)? else { continue };
            for rank in (0..*ranks).map(Rank) {
                let found = compare(&one, &other, rank).map_err(|error| spec.diagnose(&error))?;
                if let Some(difference) = found {
                    return Ok(Some(format!("{difference} (rank {} of {ranks})", rank.0)));
                }
            }
        }
    }
    Ok(None)
}

fn compare(one: &SpecSource, other: &SpecSource, rank: Rank) -> Result<Option<String>, SourceError> {
    /// Longest common sequence of answers that is looked at.
    const ANSWERS_AT_MOST: usize = 64;
    let (one_names, other_names) = (NamesOf::new(one), NamesOf::new(other));
    let mut open: Vec<Vec<u32>> = vec![Vec::new()];
    while let Some(answers) = open.pop() {
        let a = one.block(rank, rankcheck_model::ThreadStart(0), &answers)?;
        let b = other.block(rank, rankcheck_model::ThreadStart(0), &answers)?;
        let (a_words, b_words) = (plain(&one_names, &a), plain(&other_names, &b));
        if let Some(at) =
            (0..a_words.len().max(b_words.len())).find(|at| a_words.get(*at) != b_words.get(*at))
        {
            let nothing = "the end".to_owned();
            return Ok(Some(format!(
                "operation {at} differs: {} against {}",
                a_words.get(at).unwrap_or(&nothing),
                b_words.get(at).unwrap_or(&nothing)
            )));
        }
        if let rankcheck_model::Terminator::Ask(question, _) = &a.terminator
            && answers.len() < ANSWERS_AT_MOST
        {
            let options = match question {
                rankcheck_model::Question::Choose { options, .. } => {
                    u32::try_from(options.len()).unwrap_or(2)
                }
                // Whatever the count is, the programs must go on alike; three shows more than one round.
                rankcheck_model::Question::Number(_)
                | rankcheck_model::Question::MapItems { .. }
                | rankcheck_model::Question::ListLen { .. }
                | rankcheck_model::Question::Trimmed(_) => 4,
                rankcheck_model::Question::Grew(_)
                | rankcheck_model::Question::Failed(_)
                | rankcheck_model::Question::Equal(..)
                | rankcheck_model::Question::Truth(_)
                | rankcheck_model::Question::MapHas { .. }
                | rankcheck_model::Question::HasWindow { .. }
                | rankcheck_model::Question::EventQuery { .. } => 2,
            };
            open.extend((0..options).map(|answer| [answers.as_slice(), &[answer]].concat()));
        }
    }
    Ok(None)
}

/// The operations of a block without their locations, with names instead of tokens.
fn plain(named: &NamesOf<'_>, block: &Block) -> Vec<String> {
    let mut words: Vec<String> = block.ops.iter().map(|op| description(&op.op, named)).collect();
    if let rankcheck_model::Terminator::Ask(question, _) = &block.terminator {
        words.push(description(question, named));
    }
    words
}
