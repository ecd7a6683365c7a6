//! Damages recordings and reads them: `cargo run --release -p rankcheck-tests --example fuzz_recording -- 600`
//! does so for ten minutes. It ends with the seed of the first file that makes the reader panic, needs more than
//! a second, or a GiB of memory.
#![expect(clippy::print_stdout, reason = "it says how far it is")]

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use rankcheck_tests::damage::{Random, damaged, read, seeds};

/// The most memory that this process has used, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let seconds = arguments.next().unwrap_or(60);
    let first = arguments.next().unwrap_or(1);
    let directory = std::env::temp_dir().join(format!("rankcheck-fuzz-{}", std::process::id()));
    let seeds = seeds(&directory).expect("the directory for temporary files can be written");
    std::fs::create_dir_all(&directory).expect("as before");
    let file = directory.join("damaged.rankrec");
    let (started, mut read_whole, mut refused, mut words) = (Instant::now(), 0_u64, 0_u64, 0_usize);
    let mut number = first;
    let mut told = Duration::ZERO;
    while started.elapsed() < Duration::from_secs(seconds) {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = damaged(&seeds[random.below(seeds.len())], &mut random);
        let begun = Instant::now();
        let result = catch_unwind(|| read(&bytes, &file));
        match result {
            Ok(Ok(more)) => {
                read_whole += 1;
                words += more;
            }
            Ok(Err(error)) => {
                assert!(!error.to_string().is_empty(), "an error says what is wrong");
                refused += 1;
            }
            Err(_) => stop(number, "the reader panics"),
        }
        if begun.elapsed() > Duration::from_secs(1) {
            stop(number, "it needs more than a second");
        }
        if peak() > 1 << 20 {
            stop(number, "it needs more than a GiB");
        }
        number += 1;
        if started.elapsed() > told + Duration::from_secs(30) {
            told = started.elapsed();
            println!("{:.0?}: {read_whole} read, {refused} refused, {words} words", started.elapsed());
        }
    }
    std::fs::remove_dir_all(&directory).expect("it was made");
    println!(
        "{} files in {:.0?}: {read_whole} read, {refused} refused, {words} words; most memory {} MiB",
        number - first,
        started.elapsed(),
        peak() / 1024
    );
}

fn stop(number: u64, what: &str) -> ! {
    println!("file {number}: {what}; see it again with `-- 1 {number}`");
    std::process::exit(1);
}
