//! Memory that is allocated and freed in the order of streams: what may be used where, and when it is gone.
//!
//! Not here: memory of pools that a program keeps itself.

use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};

use crate::verdicts::{self, holds};

const MIB: u64 = 1 << 20;
/// Where the allocator of the driver puts what it hands out first, and behind that.
const FIRST: u64 = 0x7e00_0000_0000;
const EVENT: u64 = 0xe0;

/// Two ranks, each with a communicator and two streams, in which this happens.
fn both(each: impl Fn(&mut Process, u64, [u64; 2])) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let streams = [process.stream(), process.stream()];
        each(process, comm, streams);
        process.synchronize(streams[0]);
        process.synchronize(streams[1]);
    });
    run.exit();
    run
}

/// A run that breaks this rule and no other.
fn fails(run: Run, name: &str, rule: &str, words: &[&str]) {
    let judged = verdicts::failing(run, name, rule, words);
    assert!(judged.findings.iter().all(|finding| finding.rule.id() == rule), "{}", text(&judged));
}

/// Everything on one stream is in order, and what is freed there may be handed out again at once.
#[test]
fn what_a_stream_frees_it_may_have_again() {
    let run = both(|process, comm, [stream, _]| {
        for _ in 0..3 {
            let buffer = process.malloc_on(4 * MIB, FIRST, stream);
            process.all_reduce(comm, buffer, 1024, stream);
            process.free_on(buffer, stream);
        }
    });
    holds(run, "on-one-stream");
}

/// A use on another stream has to be over where the first one frees: an event says so, and the host does.
#[test]
fn a_free_waits_for_uses_on_other_streams() {
    let run = |told: fn(&mut Process, [u64; 2])| {
        both(move |process, comm, [stream, other]| {
            let buffer = process.malloc_on(4 * MIB, FIRST, stream);
            process.record(EVENT, stream);
            process.wait(other, EVENT);
            process.from("pool.py:20", |p| p.all_reduce(comm, buffer, 1024, other));
            told(process, [stream, other]);
            process.from("pool.py:22", |p| p.free_on(buffer, stream));
        })
    };
    let by_event = |process: &mut Process, [stream, other]: [u64; 2]| {
        process.record(EVENT + 1, other);
        process.wait(stream, EVENT + 1);
    };
    holds(run(by_event), "free-behind-an-event");
    holds(run(|process, [_, other]| process.synchronize(other)), "free-behind-the-host");
    let early = |process: &mut Process, [stream, _]: [u64; 2]| process.synchronize(stream);
    fails(run(early), "free-too-early", "MEM-1", &["rank 0 frees", "pool.py:20", "pool.py:22"]);
}

/// What was freed is gone for every later use, in order or not.
#[test]
fn what_a_stream_freed_is_not_used_again() {
    let run = |waits: bool| {
        both(move |process, comm, [stream, other]| {
            let buffer = process.malloc_on(4 * MIB, FIRST, stream);
            process.all_reduce(comm, buffer, 1024, stream);
            process.record(EVENT, stream);
            process.wait(other, EVENT);
            process.from("pool.py:30", |p| p.free_on(buffer, stream));
            process.record(EVENT, stream);
            if waits {
                process.wait(other, EVENT);
            }
            process.from("pool.py:31", |p| p.all_reduce(comm, buffer, 1024, other));
        })
    };
    fails(run(true), "used-behind-its-free", "MEM-1", &["pool.py:31", "freed"]);
    fails(run(false), "used-beside-its-free", "MEM-1", &["pool.py:31"]);
}

/// Memory is there where the stream gets to its allocation, and not before for others.
#[test]
fn other_streams_wait_for_the_allocation() {
    let run = |waits: bool| {
        both(move |process, comm, [stream, other]| {
            let buffer = process.malloc_on(4 * MIB, FIRST, stream);
            process.record(EVENT, stream);
            if waits {
                process.wait(other, EVENT);
            }
            process.from("pool.py:41", |p| p.all_reduce(comm, buffer, 1024, other));
            process.synchronize(other);
            process.free_on(buffer, stream);
        })
    };
    holds(run(true), "used-behind-its-allocation");
    fails(run(false), "used-before-its-allocation", "MEM-2", &["pool.py:41", "cudaMallocAsync"]);
}

/// An address that comes back on another stream is other memory: the driver has brought both in order.
#[test]
fn an_address_that_comes_back_is_other_memory() {
    let run = both(|process, comm, [stream, other]| {
        let first = process.malloc_on(4 * MIB, FIRST, stream);
        process.all_reduce(comm, first, 1024, stream);
        process.free_on(first, stream);
        process.record(EVENT, stream);
        process.wait(other, EVENT);
        let second = process.malloc_on(2 * MIB, FIRST, other);
        process.all_reduce(comm, second, 1024, other);
        process.free_on(second, other);
        // The part behind it goes to somebody else.
        let third = process.malloc_on(2 * MIB, FIRST + 2 * MIB, other);
        process.all_reduce(comm, third, 1024, other);
        process.free_on(third, other);
    });
    holds(run, "an-address-comes-back");
}

#[test]
fn memory_is_freed_once_whoever_frees_it() {
    let run = |again: bool| {
        both(move |process, comm, [stream, _]| {
            let buffer = process.malloc_on(4 * MIB, FIRST, stream);
            process.all_reduce(comm, buffer, 1024, stream);
            if again {
                process.free_on(buffer, stream);
            }
            process.from("pool.py:60", |p| p.cuda_free(buffer));
        })
    };
    holds(run(false), "freed-by-the-host");
    fails(run(true), "freed-twice", "MEM-3", &["pool.py:60"]);
}

/// A graph allocates anew with every launch what it frees.
#[test]
fn a_graph_frees_what_it_allocates_with_every_launch() {
    let run = |waits: bool| {
        both(move |process, comm, [stream, other]| {
            let graph = process.capture(stream, |p| {
                let buffer = p.malloc_on(4 * MIB, FIRST, stream);
                p.record(EVENT, stream);
                p.wait(other, EVENT);
                p.from("step.py:5", |p| p.all_reduce(comm, buffer, 1024, other));
                p.record(EVENT + 1, other);
                if waits {
                    p.wait(stream, EVENT + 1);
                }
                p.from("step.py:7", |p| p.free_on(buffer, stream));
                p.wait(stream, EVENT + 1);
            });
            for _ in 0..3 {
                process.replay(graph, stream);
            }
        })
    };
    holds(run(true), "freed-in-a-graph");
    fails(run(false), "freed-in-a-graph-too-early", "MEM-2", &["step.py:5", "step.py:7"]);
}
