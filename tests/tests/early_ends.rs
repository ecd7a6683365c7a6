//! Calls of NCCL that end before others come to them: a send that fits, a broadcast at its root. Whoever may see that is
//! told, whatever it is seen in, and of the runs in which it is seen all is said that is said of others.
//!
//! Not here: for which calls that was measured (`specs/rules/contract`).

use std::path::PathBuf;

use rankcheck::search::{Detail, Explained, Options, Verdict, search};
use rankcheck::spec::load;

use crate::built::folder;
use crate::cli::{run, wants};

/// Rank 0 sends, and goes on at once. Rank 1 receives once rank 0 has done all else.
const SENDS: &str = r#"
def connected(r):
    c, x = r.comm("c", r.world), r.malloc("x", 4)
    if r.rank == 0:
        c.send(x, 1)
    else:
        c.recv(x, 0)
    r.synchronize()
    return c, x

def does(r, what):
    if type(what) == "int":
        r.list("order").push(what)
    else:
        for lock in what:
            r.mutex(lock).lock()
        for lock in what:
            r.mutex(lock).unlock()

def sends(r, c, x, then):
    stream = r.stream("s")
    c.send(x, 1, stream = stream)
    stream.synchronize()
    does(r, then)

def receives(r, c, x, then, meanwhile):
    if r.rank == 0:
        sender = r.thread("sender", sends, c, x, then)
        does(r, meanwhile)
        r.barrier()
        sender.join()
    else:
        r.barrier()
        c.recv(x, 0)
    r.synchronize()
"#;

fn written(name: &str, text: &str) -> PathBuf {
    let path = folder(&format!("early_ends_{name}")).join("early.star");
    std::fs::write(&path, format!("{SENDS}\n{text}\n")).expect("a file can be written");
    path
}

fn searched(name: &str, text: &str, naive: bool) -> Vec<Explained> {
    let spec = load(&written(name, text)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let options = Options { naive, ..Options::telling(Detail::Verdict) };
    let of = |check| search(&spec, check, &options).expect("it evaluates");
    spec.checks.iter().map(of).collect()
}

/// A thread that was let go comes to a lock or a list of its rank while another one is there.
#[test]
fn an_early_end_is_seen_in_whatever_threads_share() {
    let text = r#"
def mutexes(r):
    c, x = connected(r)
    receives(r, c, x, ["a", "b"], ["b", "a"])

def registers(r):
    c, x = connected(r)
    receives(r, c, x, 1, 2)
    if r.rank == 0 and r.number(r.list("order").get(0)) == 1:
        c.register(r.mem_alloc("w", 4 * MiB))

check("mutexes", mutexes, expect = fails("MUTEX-1"))
check("a list", registers, expect = fails("WIN-1"))
"#;
    for explained in searched("shared", text, false) {
        assert!(explained.as_stated(), "{}: {:?}", explained.name, explained.run().verdict);
    }
    // The search without reductions follows no early ends, so the other one is made beside it.
    for explained in searched("shared", text, true) {
        assert!(matches!(explained.run().verdict, Verdict::Fails { .. }), "{}", explained.name);
    }
}

/// Where a program holds with early ends too, what it reaches and costs then counts.
#[test]
fn what_runs_with_early_ends_do_is_told() {
    let text = r#"
def polls(r):
    c, x = connected(r)
    r.steady()
    r.barrier()
    if r.rank == 0:
        event = r.event("sent")
        c.send(x, 1)
        event.record()
        if event.query():
            r.reach("early")
            r.store.set("k", 1)
        r.barrier()
    else:
        r.barrier()
        c.recv(x, 0)
    r.synchronize()

check("polls", polls, expect = holds(reaches = ["early"], store_calls = 1))
"#;
    for explained in searched("polls", text, false) {
        assert!(explained.as_stated(), "{}: {:?}", explained.name, explained.unexpected);
    }
}

/// A trace of a run with an early end is replayed with one.
#[test]
fn a_trace_of_an_early_end_breaks_the_rule_again() {
    let text = r#"
def writes(r):
    c, x = connected(r)
    flag = r.flag("f")
    if r.rank == 1:
        flag.write(2)
        c.recv(x, 0)
    else:
        c.send(x, 1)
    r.synchronize()
    if r.rank == 0:
        flag.write(1)
    r.barrier()
    flag.wait(1)

check("writes", writes, expect = fails("FLAG-1"))
"#;
    let path = written("trace", text);
    let folder = path.parent().expect("it is in a folder");
    wants(&run(folder, &["check", "early.star", "--trace-out", "traces"]), 0, &["FAILS FLAG-1"]);
    wants(&run(folder, &["replay", "traces/early.writes.trace"]), 0, &["again breaks FLAG-1"]);
}

/// What threads of a rank do under a lock multiplies nothing where NCCL lets go, either.
#[test]
fn early_ends_leave_the_locks_of_a_rank_to_it() {
    let text = r#"
def pushes(r):
    mutex, order = r.mutex("m"), r.list("order")
    for n in range(2):
        mutex.lock()
        order.push(n)
        mutex.unlock()

def roots(r):
    r.step("rank %d" % r.rank)
    tp = r.comm("tp", r.world)
    x = r.mem_alloc("x", 4 * MiB)
    thread = r.thread("pushes", pushes)
    pushes(r)
    thread.join()
    tp.broadcast(x, root = 0)
    r.synchronize()

check("roots", roots, ranks = [8], expect = holds())
"#;
    for explained in searched("locks", text, false) {
        assert_eq!((&explained.run().verdict, explained.run().states), (&Verdict::Holds, 119));
    }
}
