//! What a report says of small programs that tell its sentences apart: who is meant, what it comes from, and what is not known.
//!
//! Not here: the layout of reports, which the goldens pin (`specs.rs`).

use crate::built::folder;
use crate::cli::{run, wants};

/// Checks a spec, and looks for the exit code and for these words; the others must not be there.
fn says(name: &str, spec: &str, (code, words, others): (i32, &[&str], &[&str])) {
    says_with(name, spec, &[], (code, words, others));
}

fn says_with(name: &str, spec: &str, options: &[&str], (code, words, others): (i32, &[&str], &[&str])) {
    let folder = folder(name);
    std::fs::write(folder.join("said.star"), spec).expect("a file can be written");
    let ran = run(&folder, &[&["check", "said.star"], options].concat());
    wants(&ran, code, words);
    for other in others {
        assert!(!ran.out.contains(other), "{other:?} in:\n{}", ran.out);
    }
}

#[test]
fn nobody_is_waited_for_who_has_no_such_call_to_come() {
    let spec = r#"
def other(r, lock):
    lock.lock()
    r.barrier()
    lock.unlock()

def program(r):
    c, x = r.comm("c", r.world), r.malloc("x", 1 * MiB)
    c.all_reduce(x)
    r.synchronize()
    lock = r.mutex("lock")
    if r.rank == 1:
        thread = r.thread("other", other, lock)
        lock.lock()
        c.all_reduce(x)
        r.synchronize()
        lock.unlock()
        thread.join()
    else:
        c.all_reduce(x)
        r.synchronize()
        r.barrier()

check("a lock around a collective", program, expect = fails("MUTEX-1", also = ["COLL-1"]))
"#;
    let awaited = "waits on the GPU in a collective of c (said.star:20) for rank 1: a cycle";
    says("nobody_else", spec, (1, &["MUTEX-1", awaited], &["thread 1 of rank 1: a cycle"]));
}

#[test]
fn a_call_that_was_let_on_is_left_out_whole() {
    let spec = r#"
def program(r):
    c = r.comm("c", r.world)
    pool = r.pool("gpu", classes = "torch", memory = "cuda")
    s, n, e, e2 = r.stream("s"), r.stream("nccl"), r.event("e"), r.event("e2")
    a = pool.alloc(256 * MiB, name = "a")
    r.kernel("a", writes = [a])
    e.record()
    s.wait(e)
    e2.record(stream = s)
    n.wait(e2)
    c.all_reduce(a, stream = n)
    a.free()
    r.synchronize()

check("freed too early", program)
"#;
    let both = ["[»c.all_reduce(a, stream = nccl)]  [»a.free]", "  [c.all_reduce(a, stream = nccl)]  a.free"];
    says("left_out_whole", spec, (1, &both, &["[a = gpu.alloc"]));
}

#[test]
fn an_answer_that_differs_between_ranks_is_a_cause() {
    let spec = r#"
def cached(r):
    world = r.comm("world", r.world)
    cache = r.map("cliques")
    if r.rank == 0:
        cache.put("k", world)
    if not cache.has("k"):
        cache.put("k", world.split("sub", color = 0))
    cache.get("k").all_reduce(r.malloc("x", 1 * MiB))

def grows(r):
    comm, pool = r.comm("c", r.world), r.pool("p")
    if r.rank == 0:
        pool.alloc(4 * MiB, name = "old").free()
    x = pool.alloc(4 * MiB, name = "x")
    if r.grew(x):
        comm.register(x.segment)
    comm.all_reduce(x)

# Both ranks ask, and do the same whatever they are told.
def asks_in_vain(r):
    comm, cache = r.comm("c", r.world), r.map("cache")
    if r.rank == 0:
        cache.put("k", comm)
    if not cache.has("k"):
        r.step("misses")
    if r.rank == 0:
        comm.all_reduce(r.malloc("x", 1 * MiB))

check("a cache", cached)
check("a pool", grows)
check("in vain", asks_in_vain)
"#;
    let words = [
        "because   k in cliques? yes on rank 0, no on rank 1 (said.star:7)",
        "because   x grew the pool? no on rank 0, yes on rank 1 (said.star:16)",
        "because   rank 0 does c.all_reduce(x) (said.star:28), and rank 1 does not",
    ];
    says("answers", spec, (1, &words, &["k in cache?"]));
}

#[test]
fn ranks_that_are_renumbered_between_two_collectives_are_warned_of() {
    let spec = r#"
def one(r, c, x):
    r.mutex("m").locked(lambda: c.all_reduce(x))

def program(r):
    c, x, y = r.comm("c", r.world), r.malloc("x", 4 * KiB), r.malloc("y", 4 * KiB)
    thread = r.thread("w", one, c, x)
    r.mutex("m").locked(lambda: c.all_reduce(y))
    thread.join()

check("two threads", program, expect = holds())
"#;
    let warned = ["WARNING", "both ranks use the same buffers, in another order"];
    says("renumbered", spec, (0, &warned, &[]));
    says_with("renumbered_merged", spec, &["--merge-from", "1"], (0, &warned, &[]));
}

#[test]
fn memory_of_no_pool_had_no_other_block() {
    let spec = r#"
def program(r):
    x = r.malloc("x", 4 * KiB)
    mapped = r.exchange("x", x)
    if r.rank == 0:
        r.kernel("w", writes = [x])
    r.barrier()
    if r.rank == 1:
        r.kernel("rd", reads = [mapped[0].at(x)])
        r.synchronize()
    r.barrier()

check("unordered", program)
"#;
    says("no_other_block", spec, (1, &["MEM-2", "the accesses to x of rank 0"], &["another block"]));
}

#[test]
fn what_was_found_before_a_bound_was_hit_stands() {
    let spec = r#"
def program(r):
    y = r.malloc("y", 4 * KiB)
    r.kernel("a", writes = [y])
    r.kernel("b", writes = [y], stream = r.stream("s"))
    for n in range(30):
        if r.choose("step %d" % n, [0, 1]) == 1:
            r.store.set("%d of %d" % (n, r.rank), 1)

check("a race", program)
check("as stated", program, expect = fails("MEM-2"))
check("holds instead", program, expect = holds())
"#;
    let cut = "unknown   what else is broken: stopped at 300 states (--max-states)";
    let options = |only| ["--max-states", "300", "--only", only];
    says_with("cut_race", spec, &options("a race"), (1, &["FAILS MEM-2", cut], &["would say: expect"]));
    says_with("cut_expected", spec, &options("as stated"), (3, &["FAILS MEM-2", cut], &["NOT AS EXPECTED"]));
    says_with(
        "cut_holds",
        spec,
        &options("holds instead"),
        (1, &["FAILS MEM-2", cut, "NOT AS EXPECTED"], &[]),
    );
}

#[test]
fn more_decisions_are_no_other_repair() {
    let spec = r#"
def program(r):
    c, x = r.comm("c", r.world), r.malloc("x", 1 * MiB)
    unused = r.choose("unused", [0, 1])
    for epoch in range(2):
        if r.choose("save", [True, False]):
            c.all_gather(x, r.malloc("full", r.size * MiB))
            r.synchronize()
        c.all_reduce(x)
        r.synchronize()

check("saves", program, ranks = [2, 4])
"#;
    says(
        "more_decisions",
        spec,
        (1, &["the same decision on all ranks: save (said.star:6): holds"], &["and unused"]),
    );
}

#[test]
fn what_ranks_do_in_roles_is_no_cause() {
    let spec = r#"
def two_levels(r):
    node, lane = r.rank // 2, r.rank % 2
    world = r.comm("world", r.world)
    intra = r.comm("node%d" % node, [2 * node, 2 * node + 1])
    inter = r.comm("lane%d" % lane, [lane, lane + 2])
    g = r.malloc("g", 2 * MiB)
    r.kernel("backward", writes = [g])
    mine = g[lane * MiB:(lane + 1) * MiB]
    intra.reduce_scatter(g, mine)
    inter.all_reduce(g[node * MiB:(node + 1) * MiB])
    intra.all_gather(mine, g)
    r.expect(g, "backward", reduced = world)
    r.synchronize()

def last_consumer(r):
    if r.rank == 0:
        x = r.malloc("x", MiB)
        r.store.set("x", r.ipc.export(x))
        r.store.get("closed2")
        x.free()
    else:
        r.ipc.close(r.ipc.open(r.store.get("x")))
        r.store.set("closed%d" % r.rank, True)

check("the slice of another", two_levels, ranks = [4])
check("one consumer is waited for", last_consumer, ranks = [3])
"#;
    says("roles", spec, (1, &["FAILS MEM-5", "FAILS IPC-2"], &["because"]));
    let spec = r#"
def program(r):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    c.all_reduce(x)
    if r.rank == 0:
        c.all_reduce(x[0:4])
    c.broadcast(x, root = 0)
    r.synchronize()

def logs(r):
    c = r.comm("c", r.world)
    x, loss = r.malloc("x", MiB), r.malloc("loss", MiB)
    for step in range(3):
        c.all_reduce(x)
        if r.rank == 0:
            c.all_reduce(loss)
        r.synchronize()

def stops(r):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    c.all_reduce(x)
    if r.rank != 1:
        c.all_reduce(x[0:4])
    r.synchronize()
    r.barrier()

check("one more on rank 0", program)
check("in each round on rank 0", logs)
check("not on rank 1", stops, ranks = [3])
"#;
    let one_more = "because   rank 0 does c.all_reduce(x[0:4]) (said.star:7), and rank 1 does not";
    // What rank 0 would do in rounds to which it does not come is left out too, and not counted.
    let each_round = "because   rank 0 does c.all_reduce(loss) each time that it comes by (said.star:17), and rank 1 does not";
    let not_on_1 = "because   rank 0 does c.all_reduce(x[0:4]) (said.star:25), and rank 1 does not";
    says("one_more", spec, (1, &[one_more, each_round, not_on_1], &[]));
}

/// Barriers of other ranks are other calls.
#[test]
fn a_barrier_says_of_which_ranks_it_is() {
    let spec = r#"
def wrong_barrier(r):
    part = r.world[1:]
    x = r.malloc("x", MiB)
    if r.rank > 0:
        r.comm("part", part).all_reduce(x)
        r.synchronize()
        r.barrier(None if r.rank == 1 else part)
    r.barrier()

check("a barrier of all", wrong_barrier, ranks = [3])
"#;
    let words = [
        "FAILS HOST-1",
        "»barrier(ranks 1 and 2)",
        "because   rank 1 does barrier (said.star:8) where rank 2 does barrier(ranks 1 and 2) (said.star:8)",
    ];
    says("barrier_of_ranks", spec, (1, &words, &[]));
}

/// Who dies before a call does not make it.
#[test]
fn a_rank_dies_before_a_call() {
    let spec = r#"
def program(r):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    c.all_reduce(x)

check("death", program, faults = ["death"])
"#;
    let words = ["FAILS COMM-1", "rank 0    [dies before c.init]", "rank 1    [»c.init]"];
    says("dies_before", spec, (1, &words, &["rank 0    [c.init]"]));
}

/// A launcher that ends the job ends whoever waits for a rank that is gone: a change that makes all wait for it repairs nothing.
#[test]
fn who_ends_the_job_repairs_nothing() {
    let spec = r#"
def program(r):
    if r.rank == 0:
        r.exit("out of memory")
    c = r.comm("c", [1, 2])
    x = r.malloc("x", 4 * KiB)
    if r.rank == 1:
        c.all_reduce(x)

check("another rank is gone", program, ranks = 3, assume = [job_ends_with_a_rank])
"#;
    says("ends_the_job", spec, (1, &["FAILS COLL-1", "repairs   none of "], &["a barrier of all ranks"]));
}

/// Of calls that are alike, the one that only one rank makes is on the line that only that rank comes by.
#[test]
fn the_call_too_many_is_on_its_own_line() {
    let spec = r#"
def program(r, who, more):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    for i in range(4):
        c.all_reduce(x)
        if (r.rank == who and i == 2) == more:
            c.all_reduce(x)
        r.synchronize()

check("once too often on 0", program, who = 0, more = True)
check("once too often on 1", program, who = 1, more = True)
check("once less on 0", program, who = 0, more = False)
"#;
    let words = [
        "because   rank 0 does c.all_reduce(x) once more (said.star:8) than rank 1",
        "because   rank 1 does c.all_reduce(x) once more (said.star:8) than rank 0",
    ];
    says("own_line", spec, (1, &words, &["once more (said.star:6)"]));
}

/// What one rank leaves out, all others miss.
#[test]
fn what_one_rank_leaves_out_is_a_cause() {
    let spec = r#"
def program(r, last):
    c = r.comm("c", r.world)
    x = r.malloc("x", MiB)
    c.all_reduce(x)
    r.synchronize()
    if r.rank != last:
        r.barrier()

check("the last", program, ranks = 4, last = 3)
check("one in the middle", program, ranks = 4, last = 2)
"#;
    let words = [
        "because   ranks 0 to 2 do barrier (said.star:8), and rank 3 does not",
        "because   ranks 0, 1 and 3 do barrier (said.star:8), and rank 2 does not",
    ];
    says("left_out", spec, (1, &words, &[]));
}

/// However many ranks there are, the one that does something else is among those that are compared.
#[test]
fn the_rank_that_differs_is_found_among_many() {
    let spec = r#"
def extra(r, who):
    c = r.comm("c", r.world)
    x = r.malloc("x", 4 * KiB)
    for i in range(3):
        c.all_reduce(x)
        if r.rank == who and i == 1:
            c.all_reduce(x)
    r.synchronize()

def roots(r, who):
    c = r.comm("c", r.world)
    x = r.malloc("x", 4 * KiB)
    c.broadcast(x, root = 1 if r.rank == who else 0)
    r.synchronize()

check("once more on 4", extra, ranks = 8, who = 4)
check("once more on 37", extra, ranks = 64, who = 37)
check("another root", roots, ranks = 8, who = 7)
"#;
    let words = [
        "because   rank 4 does c.all_reduce(x) once more (said.star:8) than rank 0",
        "because   rank 37 does c.all_reduce(x) once more (said.star:8) than rank 0",
        "because   rank 0 does c.broadcast(x, root = 0) (said.star:14) where rank 7 does c.broadcast(x, root = 1)",
    ];
    says_with("among_many", spec, &["--repairs", "never"], (1, &words, &[]));
}

/// In a loop, what falls otherwise once may fall as before in the next round.
#[test]
fn what_is_decided_in_each_round_is_a_cause() {
    let spec = r#"
def train(r):
    dp = r.comm("dp", r.world)
    g = r.mem_alloc("g", 1 * MiB)
    for step in range(3):
        dp.all_reduce(g)
        if r.rank == 0 and r.may("converged"):
            break
    r.synchronize()

def skips(r):
    dp = r.comm("dp", r.world)
    g = r.mem_alloc("g", 1 * MiB)
    for step in range(3):
        if r.rank == 0 and r.may("bad batch"):
            continue
        dp.all_reduce(g)
    r.synchronize()

check("stops early", train)
check("skips a batch", skips)
"#;
    let words = [
        "because   on rank 0: converged = yes (said.star:7) and not always no",
        "because   on rank 0: bad batch = yes (said.star:15) and not always no",
    ];
    says("each_round", spec, (1, &words, &["3 times"]));
}

/// Who decides otherwise and has nothing to do with it is not held against the rank that decides.
#[test]
fn a_decision_that_nobody_reads_is_no_part_of_the_cause() {
    let spec = r#"
def halo(r):
    c = r.comm("c", r.world)
    x, y = r.mem_alloc("x", 1 * MiB), r.mem_alloc("y", 1 * MiB)
    open_end = r.may("open end")
    def body():
        if r.rank != 2 or not open_end:
            c.send(x, peer = (r.rank + 1) % 3)
        c.recv(y, peer = (r.rank - 1) % 3)
    r.group(body)

check("halo", halo, ranks = 3)
"#;
    says("halo", spec, (1, &["because   on rank 2: open end = yes (said.star:5)"], &["on rank 0 open end"]));
}

/// NCCL says of memory that it does not get that a call of CUDA failed, and CUDA that there is none.
#[test]
fn what_is_returned_without_memory_is_the_vendors_code() {
    let spec = r#"
def program(r, alloc):
    x = r.mem_alloc("x", MiB) if alloc == "nccl" else r.malloc("x", MiB)
    r.comm("c", r.world).all_reduce(x)

check("nccl", program, alloc = "nccl", faults = ["alloc"])
check("cuda", program, alloc = "cuda", faults = ["alloc"])
"#;
    says_with(
        "no_memory",
        spec,
        &["--repairs", "never"],
        (1, &["mem_alloc returns 1", " malloc returns 2"], &["mem_alloc returns 2"]),
    );
}

/// Where some run of the changed program goes well without a launcher, it is a repair.
#[test]
fn a_barrier_repairs_a_program_in_which_ranks_may_die() {
    let spec = r#"
def program(r):
    x = r.malloc("x", MiB)
    r.store.set("h%d" % r.rank, r.ipc.export(x))
    m = r.ipc.open(r.store.get("h%d" % (1 - r.rank)))
    r.kernel("use", reads = [m])
    r.synchronize()
    r.ipc.close(m)
    x.free()

check("deaths", program, faults = ["death"], assume = [job_ends_with_a_rank])
"#;
    says("dies_and_ends", spec, (1, &["FAILS IPC-2", "repairs   a barrier of all ranks before x.free"], &[]));
}
