//! The line `because`: a decision or a difference between ranks that makes the finding go away where it falls otherwise.
//!
//! Not here: how that is tried ([`crate::search::explain`]).

use std::fmt::Write as _;

use rankcheck_model::{Rank, Thread, ranks_in_words};

use super::words;
use crate::search::{Cause, Counterexample, Decided, Located};

/// What decided the finding: a decision or a difference that makes it go away where it falls otherwise.
pub(super) fn because(out: &mut String, shown: &Counterexample) {
    if let Some(text) = cause(shown) {
        let _ = write!(out, "\n  because   {text}");
    }
}

/// What decided the finding, in words.
pub(in crate::report) fn cause(shown: &Counterexample) -> Option<String> {
    let cause = shown.cause.as_ref()?;
    let decisions = &shown.run.decisions;
    let value = |decision: usize, nth: usize| match &decisions[decision].decided {
        Decided::Values { words, .. } => words.get(nth).map_or("", String::as_str),
        Decided::Order(words) => words,
    };
    let apart = |own: (usize, usize), peer: (usize, usize)| {
        let of = |(decision, nth): (usize, usize)| (decisions[decision].at.op.rank, value(decision, nth));
        let (first, second) = in_order(of(own), of(peer));
        let at = &decisions[own.0].at.loc;
        format!("on rank {} {}, on rank {} {} ({at})", first.0.0, first.1, second.0.0, second.1)
    };
    let text = match cause {
        &Cause::Value { decision, nth, peer: Some(peer), .. } => apart((decision, nth), peer),
        &Cause::Disagreement { decision, peer } => apart(decision, peer),
        Cause::Value { decision, nth, peer: None, instead, each_time } => {
            let at = &decisions[*decision].at;
            let other = instead.rsplit_once(" = ").map_or(instead.as_str(), |(_, other)| other);
            let otherwise = if *each_time { format!(" and not always {other}") } else { String::new() };
            format!("on rank {}: {} ({}){otherwise}", at.op.rank.0, value(*decision, *nth), at.loc)
        }
        Cause::Answer { at: (at, answer), peer: (peer, other) } => {
            let answered = |at: &Located, answer| (at.op.rank, answer);
            let (first, second) = in_order(answered(at, answer), answered(peer, other));
            let (asked, at) = (words(shown, at), &at.loc);
            let colon = if asked.ends_with('?') { "" } else { ":" };
            let ((one, first), (other, second)) = (first, second);
            format!("{asked}{colon} {first} on rank {}, {second} on rank {} ({at})", one.0, other.0)
        }
        Cause::Order { decision, instead: (other, op) } => {
            let at = &decisions[*decision].at;
            let (rank, thread) = (at.op.rank, at.op.thread);
            let theirs =
                if other.op.rank == rank { String::new() } else { format!("rank {}'s ", other.op.rank.0) };
            // Two threads may stand in one line.
            let apart = other.op.rank == rank && other.op.thread != thread;
            let in_thread = |of: Thread| if apart { format!(" in thread {}", of.0) } else { String::new() };
            let first = format!("{}{} ({})", value(*decision, 0), in_thread(thread), at.loc);
            let second = format!("{theirs}{op}{} ({})", in_thread(other.op.thread), other.loc);
            format!("on rank {}: {first}, and not {second}", rank.0)
        }
        Cause::Extra { at, again, also, peer } => {
            let times = again.len() + 1;
            let text = words(shown, at);
            let ranks = ranks_in_words(also.iter().map(|at| at.rank).chain([at.op.rank]));
            let does = if also.is_empty() { "does" } else { "do" };
            let made = |rank: Rank| {
                let operations = shown.run.operations.iter();
                operations.filter(|other| other.at.op.rank == rank && other.call == text).count()
            };
            let peers = made(*peer);
            let counted = |rank: Rank| made(rank) == peers + times;
            if peers > 0 && !also.iter().map(|at| at.rank).chain([at.op.rank]).all(counted) {
                // They make it equally often, and what tells them apart the words do not say.
                return None;
            }
            let (more, each) = match times {
                1 => ("once more".to_owned(), String::new()),
                _ if counted(at.op.rank) => (format!("{times} times more"), format!(" {times} times")),
                // It waits in one of them, and has not come to the others.
                _ => (String::new(), " each time that it comes by".to_owned()),
            };
            if peers > 0 {
                format!("{ranks} {does} {text} {more} ({}) than rank {}", at.loc, peer.0)
            } else {
                format!("{ranks} {does} {text}{each} ({}), and rank {} does not", at.loc, peer.0)
            }
        }
        Cause::Difference { at, peer } => {
            let does = |at: &Located| (at.op.rank, format!("{} ({})", words(shown, at), at.loc));
            let (first, second) = in_order(does(at), does(peer));
            format!("rank {} does {} where rank {} does {}", first.0.0, first.1, second.0.0, second.1)
        }
    };
    Some(text)
}

/// What two ranks do, the smaller rank first.
fn in_order<T: Ord>(one: (Rank, T), other: (Rank, T)) -> ((Rank, T), (Rank, T)) {
    if other.0 < one.0 { (other, one) } else { (one, other) }
}
