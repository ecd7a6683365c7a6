//! A folder of specs and a closure: each check is one test.

use rankcheck::closure::{Builder, Program, holds};
use rankcheck::test::{self, closure, specs};

fn main() {
    let agree = |r: &Builder| {
        let comm = r.comm("all", r.world())?;
        let x = r.malloc("x", 1 << 20)?;
        let vote = r.all_agree(r.choose("ready", &[true, false])?, None)?;
        if r.truth(&vote)? {
            comm.all_reduce(r, &x)?;
        }
        r.synchronize()
    };
    let mut tests = vec![specs("specs"), closure("ranks agree first", Program::new([2, 3], agree), holds())];
    // To see what a test prints that fails.
    if std::env::var_os("SHOW_A_FAILURE").is_some() {
        tests.push(specs("unexpected"));
    }
    test::main(tests)
}
