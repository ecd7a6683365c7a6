//! What a program holds where it ends, beyond what it held at `r.steady()`: a loop that gives nothing back leaks.
//!
//! Not here: what is given back too early (`specs/rules`).

use crate::built::folder;
use crate::cli::{run, wants};

const STEPS: &str = r#"
def steps(r, gives_back):
    x, y = r.mem_alloc("x", 2 * MiB), r.malloc("y", 2 * MiB)
    r.store.set("y of %d" % r.rank, r.ipc.export(y))
    r.steady()
    for step in range(3):
        comm = r.comm("step %d" % step, r.world)
        window = comm.register(x)
        comm.all_reduce(x)
        mapping = r.ipc.open(r.store.get("y of %d" % (1 - r.rank)))
        z = r.malloc("z", 2 * MiB)
        r.synchronize()
        if gives_back:
            r.ipc.close(mapping)
            comm.deregister(window)
            comm.destroy()
            z.free()
    r.barrier()
"#;

/// Runs a check, and looks for its exit code and these words.
fn is(name: &str, check: &str, code: i32, words: &[&str]) {
    let folder = folder(name);
    std::fs::write(folder.join("steps.star"), format!("{STEPS}\n{check}\n")).expect("a file can be written");
    wants(&run(&folder, &["check", "steps.star"]), code, words);
}

#[test]
fn what_a_loop_does_not_give_back_is_counted() {
    let left =
        "communicators_left = 3, registrations_left = 3, mappings_left = 1, reserved_bytes_left = 6 * MiB";
    is(
        "left_behind",
        &format!(r#"check("leaks", steps, gives_back = False, expect = holds({left}))"#),
        0,
        &["communicators_left 3; registrations_left 3; mappings_left 1; left 6 MiB"],
    );
    is(
        "left_nothing",
        r#"check("leaks", steps, gives_back = False, expect = holds(communicators_left = 0))"#,
        1,
        &["expected communicators_left = 0, found 3"],
    );
}

#[test]
fn what_is_given_back_is_not_left() {
    let none = "communicators_left = 0, registrations_left = 0, mappings_left = 0, reserved_bytes_left = 0";
    is(
        "given_back",
        &format!(r#"check("gives back", steps, gives_back = True, expect = holds({none}))"#),
        0,
        &["1 passed"],
    );
}
