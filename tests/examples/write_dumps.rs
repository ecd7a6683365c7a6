//! Writes dumps of jobs that never ran, and what is true of them: `cargo run -p rankcheck-tests --example write_dumps -- OUT`.
//! OUT has a folder for each job, and `truth.json`: for each, in words, the ranks that are to be named, and the rules of which one is.
//!
//! `tests/dumps/against_fr_trace.py` runs two tools on them.

use std::path::{Path, PathBuf};

use rankcheck_tests::dumps::{Call, DumpedRun, Written, begun, sum};
use rankcheck_tests::schedules::{Fault, Scheduled, scheduled};
use serde_json::{Map, Value, json};

/// How many simulated jobs are written.
const SIMULATED: u64 = 36;

/// The same job, in which some ranks call something.
fn with(ranks: u32, change: impl Fn(&mut DumpedRun)) -> DumpedRun {
    let mut run = begun(ranks);
    change(&mut run);
    run.give_up();
    run
}

struct Jobs {
    out: PathBuf,
    truth: Map<String, Value>,
}

impl Jobs {
    fn write(&mut self, name: &str, run: &DumpedRun, (truth, ranks, rules): (&str, &[u32], &[&str])) {
        let folder = self.out.join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be written");
        for rank in 0..u32::try_from(run.ranks.len()).expect("few ranks") {
            let to = folder.join(format!("nccl_trace_rank_{rank}"));
            std::fs::write(to, run.bytes(rank, Written::Torch)).expect("the folder can be written");
        }
        let said = json!({ "truth": truth, "ranks": ranks, "rules": rules });
        self.truth.insert(name.to_owned(), said);
    }

    fn remove(&self, name: &str, rank: u32) {
        let file = self.out.join(name).join(format!("nccl_trace_rank_{rank}"));
        std::fs::remove_file(file).expect("it was just written");
    }
}

fn main() {
    let out = std::env::args().nth(1).expect("give the folder to write to");
    let mut jobs = Jobs { out: Path::new(&out).to_owned(), truth: Map::new() };
    by_hand(&mut jobs);
    for seed in 0..SIMULATED {
        let Scheduled { mut run, fault, rank, name } = scheduled(seed);
        run.active_only = false;
        // A call that is left out shows in whatever comes next.
        let (kind, rules): (&str, &[&str]) = match fault {
            Fault::Nothing => ("nothing is wrong; looked at while it goes on", &[]),
            Fault::HostStops => ("a rank stops", &[]),
            Fault::DeviceStands => ("a device stands", &[]),
            Fault::Skips => ("a rank leaves out a call", &["COLL-2", "COLL-3", "COLL-4"]),
            Fault::OtherSize => ("a rank calls another size", &["COLL-3"]),
            Fault::OppositeOrder => ("a rank uses two groups in the other order", &["COLL-4"]),
        };
        if fault != Fault::Nothing {
            run.give_up();
        }
        let ranks = if fault == Fault::Nothing { vec![] } else { vec![rank] };
        let job = format!("simulated-{seed:02}");
        jobs.write(&job, &run, (kind, &ranks, rules));
        jobs.truth[&job]["name"] = json!(name.split(", active only").next());
    }
    let truth = serde_json::to_vec_pretty(&jobs.truth).expect("it is data");
    std::fs::write(jobs.out.join("truth.json"), truth).expect("the folder can be written");
}

fn by_hand(jobs: &mut Jobs) {
    let healthy = begun(4);
    jobs.write("healthy", &healthy, ("nothing is wrong", &[], &[]));
    let opposite = with(4, |run| {
        let (one, other) = (run.group("ONE", &[0, 1]), run.group("OTHER", &[0, 1]));
        for (rank, order) in [(0, [one, other]), (1, [other, one])] {
            for group in order {
                run.collective(rank, group, &sum(8));
            }
        }
    });
    jobs.write(
        "opposite-orders",
        &opposite,
        ("ranks 0 and 1 use two groups in opposite orders", &[0, 1], &["COLL-4"]),
    );
    let circle = with(3, |run| {
        let pairs: Vec<_> = (0..3_u32).map(|at| run.group("PAIR", &[at, (at + 1) % 3])).collect();
        for at in 0..3_usize {
            for group in [pairs[at], pairs[(at + 2) % 3]] {
                run.collective(u32::try_from(at).expect("few"), group, &sum(8));
            }
        }
    });
    jobs.write("three-groups", &circle, ("a cycle over three groups", &[0, 1, 2], &["COLL-4"]));
    let sends = with(2, |run| {
        let all = run.all();
        for rank in 0..2 {
            run.send(rank, all, 1 - rank, &Call::new("").tensor(&[1 << 20]).line(7));
        }
    });
    jobs.write("send-against-send", &sends, ("ranks 0 and 1 send first", &[0, 1], &[]));
    let changed = [
        ("other-size", sum(65).line(9), "COLL-3"),
        ("other-type", sum(64).dtype("Float").line(9), "COLL-3"),
        ("other-kind", Call::new("broadcast").tensor(&[64]).line(9), "COLL-2"),
    ];
    for (name, other, rule) in changed {
        let run = with(4, |run| {
            let all = run.all();
            for rank in 0..4 {
                run.collective(rank, all, &if rank == 0 { other.clone() } else { sum(64) });
            }
        });
        jobs.write(name, &run, ("rank 0 calls otherwise than the others", &[0], &[rule]));
    }
    let stops = with(4, |run| {
        let all = run.all();
        for rank in [0, 2, 3] {
            run.collective(rank, all, &sum(64).line(12));
        }
    });
    jobs.write("stops", &stops, ("rank 1 stops", &[1], &[]));
    jobs.write("no-dump", &stops, ("rank 1 stops, and has no dump", &[1], &[]));
    jobs.remove("no-dump", 1);
    let skips = with(4, |run| {
        let all = run.all();
        for rank in 0..4 {
            for line in 4..10 {
                let gather = Call::new("_all_gather_base").input(&[8]).output(&[32]);
                if (rank, line) != (3, 6) {
                    run.collective(rank, all, &if line % 2 == 0 { sum(64) } else { gather }.line(line));
                }
            }
        }
    });
    jobs.write("skips", &skips, ("rank 3 leaves out a call", &[3], &["COLL-2"]));
    let stands = with(4, |run| {
        let all = run.all();
        let calls = run.everywhere(all, &sum(64).line(20));
        for rank in [0, 1, 3_u32] {
            run.complete(rank, calls[rank as usize]);
            run.collective(rank, all, &sum(16));
        }
    });
    jobs.write("device-stands", &stands, ("the device of rank 2 stands", &[2], &[]));
    let waits = with(4, |run| {
        let pipe = run.group("PIPELINE", &[0, 1, 2, 3]);
        run.recv(2, pipe, 1, &Call::new("").tensor(&[8]));
    });
    jobs.write("no-send", &waits, ("rank 1 does not send what rank 2 receives", &[1], &[]));
    let mut large = DumpedRun::new(128);
    let pairs: Vec<_> = (0..64).map(|at| large.group("PAIR", &[2 * at, 2 * at + 1])).collect();
    for nth in 0..2_000 {
        for rank in (0..128).filter(|rank| (*rank, nth) != (77, 1_999)) {
            let group = if nth % 20 == 0 { large.all() } else { pairs[rank as usize / 2] };
            let call = large.collective(rank, group, &sum(64).line(1 + nth % 50));
            if nth < 1_999 {
                large.complete(rank, call);
            }
        }
    }
    large.give_up();
    jobs.write("large", &large, ("rank 77 of 128 stops after 1,999 calls", &[77], &[]));
}
