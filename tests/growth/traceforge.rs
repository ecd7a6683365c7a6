//! Families of `tests/growth` for TraceForge, of which `ci/benchmarks` makes a crate: `families decisions|agreement|batches RANKS`. It
//! prints how many executions there are.
//!
//! A rank is a thread. What it enters, a collective or an agreement, is the main thread, which takes the ranks' messages in the order
//! of ranks, so that their order is no choice, and answers them. Not here: families with mutexes, stores and streams, because
//! TraceForge's programs share no memory.

use traceforge::thread::{self, ThreadId};
use traceforge::{Config, nondet, recv_msg_block, recv_tagged_msg_block, send_msg, send_tagged_msg, verify};

/// A rank enters a collective with a vote, and gets what all agree on.
fn enter(hub: &ThreadId, rank: u32, vote: bool) -> bool {
    send_tagged_msg(hub.clone(), rank, vote);
    recv_msg_block()
}

/// A collective of all ranks: the conjunction of what they vote.
fn collective(ranks: &[ThreadId]) {
    let mut agreed = true;
    for rank in 0..u32::try_from(ranks.len()).expect("fewer than 2^32 ranks") {
        agreed &= recv_tagged_msg_block::<_, bool>(move |_, tag| tag == Some(rank));
    }
    for rank in ranks {
        send_msg(rank.clone(), agreed);
    }
}

/// A program: what a rank does, and how many collectives it enters.
type Family = (fn(&ThreadId, u32), usize);

/// One decision, which nobody else sees.
fn decisions(hub: &ThreadId, rank: u32) {
    nondet();
    enter(hub, rank, true);
}

/// One decision, which ranks agree on, and a collective.
fn agreement(hub: &ThreadId, rank: u32) {
    enter(hub, rank, nondet());
    enter(hub, rank, true);
}

/// Three batches: a decision and a collective each.
fn batches(hub: &ThreadId, rank: u32) {
    for _ in 0..3 {
        nondet();
        enter(hub, rank, true);
    }
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let (program, collectives): Family = match given[1].as_str() {
        "decisions" => (decisions, 1),
        "agreement" => (agreement, 2),
        "batches" => (batches, 3),
        other => panic!("there is no family {other}"),
    };
    let ranks: u32 = given[2].parse().expect("a number of ranks");
    let found = verify(Config::builder().build(), move || {
        let hub = thread::current().id();
        let spawned: Vec<_> = (0..ranks)
            .map(|rank| {
                let hub = hub.clone();
                thread::spawn(move || program(&hub, rank))
            })
            .collect();
        let ids: Vec<_> = spawned.iter().map(|thread| thread.thread().id()).collect();
        for _ in 0..collectives {
            collective(&ids);
        }
        for thread in spawned {
            thread.join().expect("no rank panics");
        }
    });
    println!("{}", found.execs);
}
