//! What it costs a program to be recorded, in nanoseconds a call: stand-ins that do nothing, called without and with
//! the recorder.
//!
//! Not here: calls of real libraries (`tests/recordings/cost.py`).
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::process::Command;

#[path = "../tests/built.rs"]
#[expect(dead_code, reason = "tests use all of it")]
mod built;

/// What each call costs: called again and again, and after others.
fn measure(preload: &str) -> Vec<(String, [f64; 2])> {
    let folder = built::folder("bench-recorder");
    let output = Command::new(built::stand_ins().join("program"))
        .arg("measure")
        .env("LD_LIBRARY_PATH", built::stand_ins())
        .env("LD_PRELOAD", preload)
        .env("RANKCHECK_RECORD_DIR", &folder)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(folder).expect("it was made");
    let text = String::from_utf8(output.stdout).expect("the program writes UTF-8");
    let line = |line: &str| {
        let mut words = line.split(' ');
        let call = words.next().expect("a name").to_owned();
        (call, [(); 2].map(|()| words.next().expect("two numbers").parse().expect("a number")))
    };
    text.lines().map(line).collect()
}

fn main() {
    let recorder = built::recorder().to_str().expect("UTF-8");
    for ((call, without), (_, with)) in measure("").into_iter().zip(measure(recorder)) {
        let [warm, cold] = [0, 1].map(|at| with[at] - without[at]);
        println!(
            "{call}: {warm:.0} ns for being recorded ({:.0} without, {:.0} with), {cold:.0} with cold caches",
            without[0], with[0]
        );
    }
}
