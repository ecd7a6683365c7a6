//! How long dumps of many ranks take to be read and judged: `cargo bench -p rankcheck-tests --bench dumps`. Figures, not
//! tests.
//!
//! Two jobs of 128 ranks with 2,000 calls each: one where all is over but the last, and one where nothing is over and a rank
//! stopped.
#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::time::Instant;

use rankcheck::dumps::folder::read_folder;
use rankcheck::dumps::job::jobs;
use rankcheck::launches::judge::judge;
use rankcheck::launches::report;
use rankcheck_tests::dumps::{Call, DumpedRun, Written};

/// The one that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RANKS: u32 = 128;
const CALLS: usize = 2_000;

fn main() {
    for over in [true, false] {
        let mut run = DumpedRun::new(RANKS);
        let pairs: Vec<_> = (0..RANKS / 2).map(|at| run.group("PAIR", &[2 * at, 2 * at + 1])).collect();
        let eights: Vec<_> =
            (0..RANKS / 8).map(|at| run.group("EIGHT", &(8 * at..8 * at + 8).collect::<Vec<_>>())).collect();
        for nth in 0..CALLS {
            let call =
                Call::new("all_reduce").tensor(&[64, 8]).line(1 + u32::try_from(nth % 50).expect("below 50"));
            for rank in 0..RANKS {
                let group = match nth % 20 {
                    0 => run.all(),
                    nth if nth % 3 == 0 => eights[rank as usize / 8],
                    _ => pairs[rank as usize / 2],
                };
                if (rank, nth) != (77, CALLS - 1) {
                    let at = run.collective(rank, group, &call);
                    if over && nth + 1 < CALLS {
                        run.complete(rank, at);
                    }
                }
            }
        }
        let saved = run.save("bench", Written::Torch);
        let start = Instant::now();
        let folder = read_folder(std::slice::from_ref(&saved.folder)).expect("it was just written");
        let read = start.elapsed();
        let job = jobs(&folder, &saved.folder).into_iter().next().expect("one was written");
        let converted = start.elapsed() - read;
        let judged = judge(job);
        let text = report::text(&judged);
        let all = start.elapsed();
        let open = if over { "one call open" } else { "all calls open" };
        println!(
            "{RANKS} ranks of {CALLS} calls, {open}: {all:?} (read in {read:?}, put together in {converted:?})"
        );
        println!("{}", text.lines().take(3).collect::<Vec<_>>().join("\n"));
    }
}
