//! Graphs that programs put together, and copies of rows: what they touch, and in which order.
//!
//! Not here: captures that are launched as they are (`runs.rs`).

use rankcheck_tests::recording::{Process, Run};

use crate::verdicts::{fails, holds, is_unknown};

const MIB: u64 = 1 << 20;
const EVENT: u64 = 0xe0;

/// What each rank has: a communicator, a buffer, and two streams.
#[derive(Clone, Copy)]
struct Has {
    comm: u64,
    buffer: u64,
    streams: [u64; 2],
}

/// Two ranks in which this happens; they wait for all in the end.
fn both(each: impl Fn(&mut Process, u32, Has)) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let buffer = process.alloc(4 * MIB);
        let streams = [process.stream(), process.stream()];
        each(process, rank, Has { comm, buffer, streams });
        process.synchronize(streams[0]);
        process.synchronize(streams[1]);
    });
    run.exit();
    run
}

/// A graph that fills what a collective works on meanwhile, unless its stream waits, or the node was changed.
#[test]
fn nodes_touch_what_they_name() {
    let run = |waits: bool, changed: bool, copies: bool| {
        both(move |process, _, Has { comm, buffer, streams: [stream, other] }| {
            let graph = process.graph();
            let first = process.kernel_node((graph, &[]));
            let node = match copies {
                true => process.copy_node((graph, &[first]), (buffer, buffer + MIB, 4096)),
                false => process.fill_node((graph, &[first]), buffer, 4096),
            };
            let executable = process.instantiate(graph);
            if changed {
                process.change_fill(executable, node, buffer + 2 * MIB, 4096);
            }
            process.from("step.py:4", |p| p.all_reduce(comm, buffer, 1024, stream));
            if waits {
                process.record(EVENT, stream);
                process.wait(other, EVENT);
            }
            process.from("step.py:5", |p| p.replay(executable, other));
        })
    };
    holds(run(true, false, false), "fill-waits");
    holds(run(true, false, true), "copy-waits");
    holds(run(false, true, false), "fill-is-changed");
    fails(run(false, false, false), "fill-races", "MEM-2", &["step.py:4", "step.py:5"]);
    fails(run(false, false, true), "copy-races", "MEM-2", &["step.py:4", "step.py:5"]);
}

/// What comes behind a launch on its stream comes behind all nodes.
#[test]
fn a_launch_is_over_as_a_whole() {
    let run = both(|process, _, Has { comm, buffer, streams: [stream, _] }| {
        let graph = process.graph();
        process.fill_node((graph, &[]), buffer, 4096);
        process.fill_node((graph, &[]), buffer + MIB, 4096);
        let executable = process.instantiate(graph);
        for _ in 0..2 {
            process.replay(executable, stream);
            process.all_reduce(comm, buffer, MIB / 2, stream);
        }
    });
    holds(run, "over-as-a-whole");
}

/// Nodes that touch the same bytes have to be ordered by edges; whether they are is known of direct and indirect ones.
#[test]
fn nodes_without_an_edge_are_not_ordered() {
    let run = |edges: usize| {
        both(move |process, _, Has { comm, buffer, streams: [stream, _] }| {
            let graph = process.graph();
            let one = process.fill_node((graph, &[]), buffer, 4096);
            let behind = if edges > 0 { vec![one] } else { Vec::new() };
            let between = process.kernel_node((graph, &behind));
            let other = process.fill_node((graph, &[]), buffer + 1024, 4096);
            if edges > 1 {
                process.edge(graph, between, other);
            }
            let executable = process.instantiate(graph);
            process.replay(executable, stream);
            process.all_reduce(comm, buffer, 1024, stream);
        })
    };
    holds(run(2), "nodes-in-order");
    let words = ["not judged: 2 cudaGraphLaunch", "nothing orders"];
    is_unknown(run(1), "nodes-in-half-order", &words);
    is_unknown(run(0), "nodes-in-no-order", &words);
}

/// A capture becomes a node of another graph, as compilers do it: its collectives take part.
#[test]
fn collectives_of_a_child_graph_take_part() {
    let run = |count: [u64; 2], launches: [u32; 2], inside: bool| {
        both(move |process, rank, Has { comm, buffer, streams: [stream, _] }| {
            let at = rank as usize;
            let graph = process.graph();
            let first = process.kernel_node((graph, &[]));
            let reduces = |p: &mut Process| {
                p.from("model.py:8", |p| p.all_reduce(comm, buffer, count[at], stream));
            };
            if inside {
                process.capture_to((graph, &[first]), stream, reduces);
            } else {
                let child = process.captured(stream, reduces);
                process.child_node((graph, &[first]), child);
            }
            let executable = process.instantiate(graph);
            for _ in 0..launches[at] {
                process.from("model.py:12", |p| p.replay(executable, stream));
            }
            process.all_reduce(comm, buffer, 64, stream);
        })
    };
    for inside in [false, true] {
        holds(run([1024, 1024], [3, 3], inside), &format!("child-{inside}"));
        let words = ["model.py:8", "2048"];
        fails(run([1024, 2048], [3, 3], inside), &format!("child-count-{inside}"), "COLL-3", &words);
        let words = ["rank 0", "rank 1"];
        fails(run([1024, 1024], [3, 2], inside), &format!("child-once-less-{inside}"), "COLL-3", &words);
    }
}

/// In which order a device begins with two nodes that nothing orders nobody knows.
#[test]
fn collectives_of_two_children_are_in_order() {
    let run = |ordered: bool, crossed: bool| {
        both(move |process, rank, Has { comm, buffer, streams: [stream, other] }| {
            let second = process.init(2, rank, 2);
            // Connected: a capture waits for nobody then.
            for (nth, comm) in (0..).zip([comm, second]) {
                process.all_reduce(comm, buffer + nth * MIB, 1024, stream);
            }
            process.synchronize(stream);
            let mut comms = [comm, second];
            if crossed && rank == 1 {
                comms.reverse();
            }
            let graph = process.graph();
            let mut behind = Vec::new();
            for (nth, comm) in (0..).zip(comms) {
                let child =
                    process.captured(stream, |p| p.all_reduce(comm, buffer + nth * MIB, 1024, stream));
                let node = process.child_node((graph, &behind), child);
                behind.extend(ordered.then_some(node));
            }
            let executable = process.instantiate(graph);
            process.replay(executable, other);
        })
    };
    holds(run(true, false), "children-in-order");
    fails(run(true, true), "children-crossed", "COLL-4", &[]);
    is_unknown(run(false, true), "children-in-no-order", &["cudaGraphLaunch"]);
}

/// Through a function of the host that a graph calls the program may wait, each time that it is launched.
#[test]
fn a_host_node_may_be_waited_through() {
    let run = |node: bool, waits: bool| {
        both(move |process, _, Has { comm, buffer, streams: [stream, other] }| {
            let executable = if node {
                let graph = process.graph();
                process.host_node((graph, &[]));
                process.instantiate(graph)
            } else {
                process.capture(stream, |p| p.host_function(stream))
            };
            process.all_reduce(comm, buffer, 1024, stream);
            process.replay(executable, stream);
            if waits {
                process.synchronize(stream);
            }
            process.copy(buffer, buffer + MIB, 4096, other);
        })
    };
    for node in [true, false] {
        holds(run(node, true), &format!("host-node-waits-{node}"));
        is_unknown(run(node, false), &format!("host-node-{node}"), &["MEM-2 may be broken"]);
    }
}

/// A graph that records an event orders who waits for it; which launch that was is not followed.
#[test]
fn an_event_of_a_graph_accuses_nobody() {
    let run = both(|process, _, Has { comm, buffer, streams: [stream, other] }| {
        let graph = process.graph();
        process.record_node((graph, &[]), EVENT);
        let executable = process.instantiate(graph);
        process.all_reduce(comm, buffer, 1024, stream);
        process.replay(executable, stream);
        process.wait(other, EVENT);
        process.copy(buffer, buffer + MIB, 4096, other);
    });
    is_unknown(run, "record-node", &["not judged: 2 cuGraphAddEventRecordNode"]);
}

/// What a graph allocates is there for others once they stand behind its launch.
#[test]
fn memory_of_a_graph_is_there_behind_its_launch() {
    let run = |waits: bool| {
        both(move |process, _, Has { comm, streams: [stream, other], .. }| {
            let (graph, freeing) = (process.graph(), process.graph());
            let address = 0x7d00_0000_0000;
            process.alloc_node((graph, &[]), address, MIB);
            process.free_node((freeing, &[]), address);
            let executables = [process.instantiate(graph), process.instantiate(freeing)];
            for _ in 0..2 {
                process.replay(executables[0], stream);
                process.record(EVENT, stream);
                if waits {
                    process.wait(other, EVENT);
                }
                process.from("pool.py:9", |p| p.all_reduce(comm, address, 1024, other));
                process.record(EVENT + 1, other);
                process.wait(stream, EVENT + 1);
                process.replay(executables[1], stream);
            }
        })
    };
    holds(run(true), "graph-allocates");
    fails(run(false), "graph-allocates-too-late", "MEM-2", &["pool.py:9"]);
}

/// Columns of a matrix that lie beside one another are not in each other's way.
#[test]
fn copies_of_rows_touch_their_rows() {
    let run = |rows: u64, from: u64, waits: bool| {
        both(move |process, _, Has { buffer, comm, streams: [stream, other] }| {
            let matrix = process.alloc(16 * MIB);
            process.from("copy.py:3", |p| {
                p.copy_rows((matrix, 64, 256, rows), (buffer, 64, 64, rows), stream);
            });
            if waits {
                process.synchronize(stream);
            }
            process.from("copy.py:4", |p| {
                p.copy_rows((matrix + from, 64, 256, rows), (buffer, 64, 64, rows), other);
            });
            process.synchronize(other);
            process.synchronize(stream);
            process.all_reduce(comm, buffer, 1024, stream);
        })
    };
    holds(run(32, 64, false), "columns-beside");
    holds(run(32, 32, true), "columns-after");
    fails(run(32, 32, false), "columns-over", "MEM-2", &["copy.py:3", "copy.py:4"]);
    is_unknown(run(10_000, 64, false), "too-many-rows", &["not judged: 4 cudaMemcpy2DAsync", "rows"]);
}
