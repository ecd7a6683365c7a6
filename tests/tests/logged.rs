//! Jobs of which there are logs of NCCL: real ones, and made ones in the lines of all versions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankcheck::launches::compare::CallDifference;
use rankcheck::launches::judge::{JudgedJob, judge};
use rankcheck::launches::report;
use rankcheck::launches::waits::CircleStep;
use rankcheck::logs::job::jobs;
use rankcheck::logs::judge_logs;
use rankcheck::logs::line::{LogMessage, records};
use rankcheck::logs::read::Logs;
use rankcheck::runs::judge::RunVerdict;
use rankcheck_tests::damage::Random;
use rankcheck_tests::dumps::logged::{LOG_FORMS, LogForm};
use rankcheck_tests::dumps::{Call, DumpedRun, DumpsSaved, sum};
use rankcheck_tests::repository::{differs_from_golden, enter};
use rankcheck_tests::schedules::{Fault, Scheduled, scheduled};

use crate::reported::wrong_in;

/// Judges logs that are one job.
fn judge_texts(texts: &[impl AsRef<[u8]>]) -> JudgedJob {
    let mut logs = Logs::default();
    for (at, text) in texts.iter().enumerate() {
        logs.read(text.as_ref(), Path::new(&format!("log.{at}"))).expect("memory can be read");
    }
    let mut judged: Vec<JudgedJob> = jobs(&logs, Path::new("logs")).into_iter().map(judge).collect();
    // What is damaged may look like several jobs; the worst of them is what it says.
    let order = |judged: &JudgedJob| match judged.verdict {
        RunVerdict::Holds => 0,
        RunVerdict::Unknown => 1,
        RunVerdict::Hangs => 2,
        RunVerdict::Fails => 3,
    };
    judged.sort_by_key(order);
    judged.pop().expect("there is one at least")
}

fn texts(run: &DumpedRun, form: LogForm, done: bool) -> Vec<String> {
    (0..).zip(&run.ranks).map(|(rank, _)| run.log(rank, form, done)).collect()
}

fn rules(judged: &JudgedJob) -> Vec<&'static str> {
    judged.rules().iter().map(|rule| rule.id()).collect()
}

fn roots(judged: &JudgedJob) -> BTreeSet<u32> {
    judged.waits.roots.iter().map(|root| root.rank).collect()
}

/// A job of four ranks with a pair, which went well.
fn healthy() -> DumpedRun {
    let mut run = DumpedRun::new(4);
    let all = run.all();
    for size in [64, 8, 32] {
        run.everywhere(all, &sum(size));
    }
    run.everywhere(all, &Call::new("broadcast").tensor(&[16]));
    let pair = run.group("PAIR", &[1, 3]);
    run.everywhere(pair, &Call::new("_all_gather_base").input(&[8]).output(&[16]));
    run.send(1, pair, 3, &Call::new("").tensor(&[5]));
    run.recv(3, pair, 1, &Call::new("").tensor(&[5]));
    run.everywhere(all, &Call::new("all_to_all").input(&[32]).output(&[32]));
    run
}

#[test]
fn healthy_logs_of_every_version_have_nothing_wrong() {
    let run = healthy();
    for form in LOG_FORMS {
        let judged = judge_texts(&texts(&run, form, true));
        let text = format!("{form:?}: {}", report::text(&judged));
        // Where the pair has no name, its calls are not compared, and that is said.
        let expected = if form.names_splits() { RunVerdict::Holds } else { RunVerdict::Unknown };
        assert_eq!(judged.verdict, expected, "{text}");
        assert_eq!(judged.compared.collectives, if form.names_splits() { 5 } else { 4 }, "{text}");
        assert_eq!(judged.job.processes.len(), 4, "{text}");
        assert!(judged.job.library.as_deref().is_some_and(|library| library.starts_with("2.")), "{text}");
        let value =
            serde_json::to_value(rankcheck::report::json([], [], [&judged], &[])).expect("it is data");
        assert_eq!(wrong_in(&value), [""; 0], "{text}");
        for seed in 0..10 {
            let mixed = run.mixed_log(form, true, &mut Random(seed));
            let mixed = judge_texts(&[&mixed]);
            assert_eq!(mixed.verdict, expected, "{form:?} mixed: {}", report::text(&mixed));
            assert_eq!(mixed.compared.transfers, judged.compared.transfers, "{form:?}");
            assert_eq!(mixed.calls(), judged.calls(), "{form:?}");
        }
    }
}

/// The dumps of such jobs do not have reductions and roots.
#[test]
fn what_differs_is_named_with_both_lines() {
    let changes = [
        ("AllReduce", " op 0 ", " op 2 ", "COLL-3", "AllReduce of 64 bf16, max on rank 2"),
        ("Broadcast", " root 0 ", " root 3 ", "COLL-3", "Broadcast of 16 bf16, root rank 3 on rank 2"),
        ("AllReduce", " count 64 ", " count 65 ", "COLL-3", "AllReduce of 65 bf16, sum on rank 2"),
        ("AllReduce", " datatype 9 ", " datatype 6 ", "COLL-3", "AllReduce of 64 f16, sum on rank 2"),
        ("AllReduce", "AllReduce: ", "AllGather: ", "COLL-2", "AllGather of 64 bf16 on rank 2"),
    ];
    for form in LOG_FORMS {
        for (function, from, to, rule, said) in changes {
            let mut texts = texts(&healthy(), form, false);
            let at = texts[2].find(&format!("{function}: ")).expect("it was called");
            let changed = texts[2][at..].replacen(from, to, 1);
            texts[2].replace_range(at.., &changed);
            let judged = judge_texts(&texts);
            let text = format!("{form:?}, {to}: {}", report::text(&judged));
            assert_eq!(rules(&judged), [rule], "{text}");
            assert!(text.contains(said) && text.contains("on ranks 0, 1 and 3"), "{text}");
            assert!(text.contains("most ranks called the first"), "{text}");
        }
        // A root of a reduction that has none, and a reduction that a program brings, agree with everything.
        let mut texts = texts(&healthy(), form, true);
        texts[1] = texts[1].replacen(" op 0 ", " op 1000 ", 1);
        texts[2] = texts[2].replacen(" op 0 root 0 ", " op 0 root 1 ", 1);
        assert_eq!(rules(&judge_texts(&texts)), [""; 0], "{form:?}");
    }
}

/// One that destroyed its communicator can launch nothing more in it. One whose log merely ends may be late.
#[test]
fn who_launched_less_is_a_root_and_a_hang_only_if_it_is_done() {
    let mut run = healthy();
    let all = run.all();
    for rank in [0, 1, 3] {
        run.collective(rank, all, &sum(7));
    }
    for form in LOG_FORMS.into_iter().filter(|form| form.names_splits()) {
        for done in [false, true] {
            let texts: Vec<String> = (0..4).map(|rank| run.log(rank, form, done && rank == 2)).collect();
            let judged = judge_texts(&texts);
            let text = format!("{form:?}: {}", report::text(&judged));
            assert_eq!(roots(&judged), BTreeSet::from([2]), "{text}");
            assert_eq!(judged.verdict, if done { RunVerdict::Hangs } else { RunVerdict::Unknown }, "{text}");
            assert!(text.contains("rank 2 did not launch AllReduce #5"), "{text}");
        }
        // Torch says itself that it gave up.
        let mut mixed = run.mixed_log(form, false, &mut Random(1));
        mixed.push_str("[rank0]:[E1123 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9) ran for 8000 milliseconds before timing out.\n");
        let judged = judge_texts(&[mixed]);
        let text = format!("{form:?}: {}", report::text(&judged));
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
        assert_eq!(roots(&judged), BTreeSet::from([2]), "{text}");
        assert!(text.contains("timed out rank 0: WorkNCCL(SeqNum=9)"), "{text}");
    }
}

#[test]
fn a_communicator_that_is_not_made_keeps_who_began_it() {
    let run = healthy();
    for form in [LogForm::Nccl2_18, LogForm::Nccl2_28, LogForm::Nccl2_29] {
        let mut texts = texts(&run, form, false);
        for rank in [1, 3] {
            let at = texts[rank].rfind("- Init COMPLETE").expect("it made the pair last");
            let line = texts[rank][..at].rfind('\n').expect("it is not the first line");
            texts[rank].truncate(line + 1);
        }
        // The other began nothing.
        let at = texts[3].rfind("- Init START").expect("it began the pair last");
        let line = texts[3][..at].rfind('\n').expect("it is not the first line");
        texts[3].truncate(line + 1);
        for rank in [0, 2] {
            let at = texts[rank].find("AllReduce").expect("it called");
            let line = texts[rank][..at].rfind('\n').expect("it is not the first line");
            texts[rank].truncate(line + 1);
        }
        texts[0].push_str("node0:1000:2000 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 1 datatype 7 op 0 root 0 comm 0x5600ab0000 [nranks=4] stream (nil)\n");
        let judged = judge_texts(&texts);
        let text = format!("{form:?}: {}", report::text(&judged));
        assert_ne!(judged.verdict, RunVerdict::Holds, "{text}");
        assert!(text.contains("rank 1 is in init #1 of communicator"), "{text}");
    }
}

#[test]
fn sends_and_receives_may_be_of_one_group_or_not() {
    let mut run = healthy();
    let all = run.all();
    for (rank, peer) in [(0, 2), (2, 0)] {
        run.send(rank, all, peer, &Call::new("").tensor(&[9]));
        run.recv(rank, all, peer, &Call::new("").tensor(&[9]));
    }
    let judged = judge_texts(&texts(&run, LogForm::Nccl2_28, true));
    assert_eq!(judged.verdict, RunVerdict::Holds, "{}", report::text(&judged));
    let judged = judge_texts(&texts(&run, LogForm::Nccl2_28, false));
    let text = report::text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("one by one they wait for one another"), "{text}");
    let mut run = healthy();
    run.send(1, run.all(), 2, &Call::new("").tensor(&[9]));
    run.recv(2, run.all(), 1, &Call::new("").tensor(&[8]));
    let judged = judge_texts(&texts(&run, LogForm::Nccl2_28, true));
    assert_eq!(rules(&judged), ["P2P-4"], "{}", report::text(&judged));
}

/// Where a circle rests on sends and receives being done one by one, what does not fit in number is told.
#[test]
fn a_send_to_the_wrong_rank_is_counted() {
    let mut run = DumpedRun::new(4);
    let all = run.all();
    let call = Call::new("").tensor(&[8]);
    for step in 0..3 {
        for rank in 0..4 {
            let to = if (step, rank) == (2, 2) { 0 } else { (rank + 1) % 4 };
            run.send(rank, all, to, &call);
            run.recv(rank, all, (rank + 3) % 4, &call);
        }
    }
    let judged = judge_texts(&texts(&run, LogForm::Nccl2_28, false));
    let text = report::text(&judged);
    assert!(judged.waits.all_circles().next().is_some(), "{text}");
    assert!(text.contains("rank 2 sends once to rank 0 in communicator"), "{text}");
    assert!(text.contains("and rank 0 receives never from it"), "{text}");
    assert!(text.contains("rank 2 sends 2 times to rank 3 in communicator"), "{text}");
    assert!(text.contains("and rank 3 receives 3 times from it"), "{text}");
}

/// Two communicators of one name are told apart, or not compared.
#[test]
fn what_cannot_be_found_to_be_one_is_not_compared() {
    let mut run = healthy();
    let (one, other) = (run.group("ONE", &[0, 2]), run.group("OTHER", &[0, 2]));
    run.everywhere(one, &sum(3));
    run.everywhere(other, &sum(4));
    let same_id = |text: String| text.replace("commId 0xf67d716f4a560003", "commId 0xf67d716f4a560002");
    let both: Vec<String> = texts(&run, LogForm::Nccl2_18, true).into_iter().map(same_id).collect();
    assert_eq!(judge_texts(&both).verdict, RunVerdict::Holds, "{}", report::text(&judge_texts(&both)));
    let judged = judge_texts(&both[..2]);
    let text = report::text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("ranks 2 and 3 have no log here"), "{text}");
    // Parts of two communicators are no whole one, though their ranks would fit.
    let mut parts = healthy();
    let (one, other) = (parts.group("ONE", &[0, 2]), parts.group("OTHER", &[0, 3]));
    parts.everywhere(one, &sum(3));
    parts.everywhere(other, &sum(4));
    let mut parts: Vec<String> = texts(&parts, LogForm::Nccl2_18, true).into_iter().map(same_id).collect();
    for missing in [None, Some(2)] {
        if let Some(missing) = missing {
            parts.remove(missing);
        }
        let judged = judge_texts(&parts);
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{}", report::text(&judged));
    }
    // One log alone says nothing of others; nor do logs that begin in the middle.
    let judged = judge_texts(&both[..1]);
    assert!(
        report::text(&judged).contains("nothing of one rank could be compared"),
        "{}",
        report::text(&judged)
    );
    assert_eq!(judged.verdict, RunVerdict::Unknown);
    let middle: Vec<String> =
        both.iter().map(|text| text[text.find("AllReduce").expect("it called")..].to_owned()).collect();
    let judged = judge_texts(&middle);
    let text = report::text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("calls are not compared: the members of their groups are not known"), "{text}");
}

/// Several devices of one process are ranks of their own, and a collective without elements is no call.
#[test]
fn threads_of_one_process_are_ranks() {
    let mut texts = texts(&healthy(), LogForm::Nccl2_28, true);
    for (rank, text) in texts.iter_mut().enumerate() {
        *text = text.replace(&format!("node0:{}:", 1000 + rank), "node0:1000:");
    }
    texts[1] = texts[1].replacen("AllReduce: opCount 1f", "AllReduce: opCount 1e sendbuff 0x1 recvbuff 0x1 count 0 datatype 9 op 0 root 0 comm 0x5601ab0000 [nranks=4] stream (nil)\nnode0:1000:2001 [1] NCCL INFO AllReduce: opCount 1f", 1);
    let judged = judge_texts(&[texts.concat()]);
    let text = report::text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
    assert_eq!((judged.known(), judged.compared.collectives), (4, 5), "{text}");
}

#[test]
fn a_line_says_who_and_what() {
    let said = |line: &str| {
        let (records, _) = records(line);
        records.iter().map(|one| (one.label, one.time, one.host.to_owned(), one.pid)).collect::<Vec<_>>()
    };
    let line =
        "[rank3]: loss 0.3 [2026-11-23 02:31:51.25] gpu-1.cluster:77:78 [5] NCCL INFO NCCL version 2.28.9";
    let time = 1_795_401_111_250_000_000;
    assert_eq!(said(line), [(Some(3), Some(time), "gpu-1.cluster".to_owned(), 77)]);
    let two = "a:1:2 [0] NCCL INFO Using network Socketb:3:4 [1] NCCL INFO Using network Socket";
    assert_eq!(said(two).len(), 2);
    let warning =
        "vm:1:2 [0] misc/socket.cc:64 (ncclSocketConnect) NCCL WARN socketProgress: Connection closed";
    let (found, _) = records(warning);
    assert_eq!(found[0].said, LogMessage::Warning("socketProgress: Connection closed"));
    for none in ["NCCL INFO", "a:b:c [0] NCCL INFO x", "vm:1:1 [x] NCCL INFO x", "vm:1 [0] NCCL INFO x"] {
        assert_eq!(said(none), [], "{none}");
    }
    let cut = "vm:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 1 datatype 7 op 0";
    assert_eq!(records(cut).0[0].said, LogMessage::Torn);
}

/// A log that was copied, or printed and written to a file too, is one.
#[test]
fn a_log_that_is_there_twice_is_used_once() {
    let texts = texts(&healthy(), LogForm::Nccl2_28, true);
    let judged_with = |other: &str| {
        let mut all: Vec<&str> = texts.iter().map(String::as_str).collect();
        all.push(other);
        let judged = judge_texts(&all);
        let text = report::text(&judged);
        (judged, text)
    };
    for other in [&texts[2], &texts[2][..texts[2].find("Broadcast: ").expect("it was called")]] {
        let (judged, text) = judged_with(other);
        assert_eq!((judged.verdict, judged.job.processes.len()), (RunVerdict::Holds, 4), "{text}");
        assert!(
            text.contains("log.2 and log.4 both have the log of process node0:1002: the first is used"),
            "{text}"
        );
    }
    let (judged, text) = judged_with(&texts[2].replacen(" count 64 ", " count 65 ", 1));
    assert_eq!((judged.verdict, judged.job.processes.len()), (RunVerdict::Unknown, 4), "{text}");
    assert!(text.contains("both have its log and say different things"), "{text}");
}

/// Calls are there, and nothing says of which communicators they are.
#[test]
fn a_log_without_communicators_says_what_to_set() {
    let calls = |text: &String| {
        text.lines()
            .filter(|line| line.contains("opCount"))
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let texts: Vec<String> = texts(&healthy(), LogForm::Nccl2_28, true).iter().map(calls).collect();
    let judged = judge_texts(&texts);
    let text = report::text(&judged);
    assert_eq!((judged.verdict, judged.job.processes.len()), (RunVerdict::Unknown, 4), "{text}");
    assert!(
        text.contains("of ranks 0 to 3 fit: no line says how their communicators were made; NCCL_DEBUG"),
        "{text}"
    );
    assert!(!text.contains("called anything"), "{text}");
}

/// Docker writes each line down as JSON.
#[test]
fn what_docker_wrote_down_is_read() {
    let json = |text: &String| {
        let line = |line: &str| {
            let log = serde_json::Value::from(format!("{line}\n"));
            format!("{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"2026-11-28T02:11:11Z\"}}\n")
        };
        text.lines().map(line).collect::<String>()
    };
    let texts: Vec<String> = texts(&healthy(), LogForm::Nccl2_28, true).iter().map(json).collect();
    let judged = judge_texts(&texts);
    let text = report::text(&judged);
    assert_eq!((judged.verdict, judged.compared.collectives), (RunVerdict::Holds, 5), "{text}");
}

/// Who gives up is told with the call.
#[test]
fn the_ranks_that_give_up_are_told() {
    let mut texts = texts(&healthy(), LogForm::Nccl2_28, false);
    for rank in [0, 2, 3] {
        texts[rank] += &format!(
            "[rank{rank}]:[E1128 02:11:11.1 ProcessGroupNCCL.cpp:629] [PG ID 1 PG GUID 3 Rank 0] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE) ran for 600029 milliseconds before timing out.\n"
        );
    }
    let text = report::text(&judge_texts(&texts));
    assert!(
        text.contains("\n  timed out ranks 0, 2 and 3: WorkNCCL(SeqNum=6, OpType=ALLREDUCE) ran for"),
        "{text}"
    );
}

/// What is printed without a newline runs into the name of a host. That makes no process, and ends the counting of none.
#[test]
fn what_runs_into_the_name_of_a_host_makes_no_process() {
    let mut wrong = texts(&healthy(), LogForm::Nccl2_28, true);
    wrong[2] = wrong[2].replacen("Broadcast: opCount 1f", "Reduce: opCount 1f", 1);
    for (name, texts) in [("healthy", texts(&healthy(), LogForm::Nccl2_28, true)), ("wrong", wrong)] {
        let whole = texts.concat();
        let lines: Vec<&str> = whole.lines().collect();
        for printed in ["Epoch 3", "step 5 loss=3.2", "loading...", "0x55aa", "10%|#   | 1/10 "] {
            for at in 0..lines.len() {
                let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                lines[at].insert_str(0, printed);
                let judged = judge_texts(&[lines.join("\n")]);
                let text = format!("{name}, {printed} before {}: {}", lines[at], report::text(&judged));
                assert_eq!(judged.job.processes.len(), 4, "{text}");
                assert_eq!(rules(&judged), if name == "wrong" { &["COLL-2"][..] } else { &[] }, "{text}");
            }
        }
        // A newline is lost between two processes.
        for at in 0..lines.len() - 1 {
            let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let next = lines.remove(at + 1);
            lines[at].push_str(&next);
            let judged = judge_texts(&[lines.join("\n")]);
            let text = format!("{name}, {}: {}", lines[at], report::text(&judged));
            assert_eq!(judged.job.processes.len(), 4, "{text}");
            assert_eq!(rules(&judged), if name == "wrong" { &["COLL-2"][..] } else { &[] }, "{text}");
        }
    }
}

/// A process of a host whose name ends with another's is one of its own.
#[test]
fn hosts_of_which_one_ends_with_another_are_two() {
    let mut texts = texts(&healthy(), LogForm::Nccl2_28, true);
    texts[0] = texts[0].replace("node0:1000:", "a:7:");
    texts[1] = texts[1].replace("node0:1001:", "b-a:7:");
    texts[2] = texts[2].replace("node0:1002:", "c-b-a:7:");
    let judged = judge_texts(&[texts.concat()]);
    let text = report::text(&judged);
    assert_eq!((judged.verdict, judged.job.processes.len()), (RunVerdict::Holds, 4), "{text}");
}

/// A log may be cut where it likes: that makes less known, and accuses nobody.
#[test]
fn a_log_that_is_cut_accuses_nobody() {
    let texts = texts(&healthy(), LogForm::Nccl2_28, true);
    for rank in [0, 1] {
        for end in 0..texts[rank].len() {
            let mut cut: Vec<&str> = texts.iter().map(String::as_str).collect();
            cut[rank] = &texts[rank][..end];
            let judged = judge_texts(&cut);
            let accuses = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
            assert!(!accuses, "rank {rank} up to {end}: {}", report::text(&judged));
        }
    }
    let mixed = healthy().mixed_log(LogForm::Nccl2_28, true, &mut Random(3));
    for end in 0..mixed.len() {
        let judged = judge_texts(&[&mixed.as_bytes()[..end]]);
        let accuses = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
        // Whoever was first to say that it is done may have been the last to be read.
        assert!(!accuses, "up to {end}: {}", report::text(&judged));
    }
}

/// Bytes that were turned in a number may say anything; whatever shows that something is missing, accuses nobody.
#[test]
fn damaged_logs_are_judged_without_panic() {
    let texts: Vec<Vec<u8>> =
        texts(&healthy(), LogForm::Nccl2_28, true).into_iter().map(String::into_bytes).collect();
    let (mut accused, mut tried) = (0, 0);
    let many =
        std::env::var("RANKCHECK_DAMAGED_LOGS").ok().and_then(|many| many.parse().ok()).unwrap_or(2_000);
    for number in 0..many {
        let mut random = Random(u64::wrapping_mul(number, 0x9e37_79b9_7f4a_7c15) ^ 31);
        let mut damaged = texts.clone();
        let one = &mut damaged[random.below(4)];
        for _ in 0..=random.below(3) {
            let at = random.below(one.len());
            match random.below(4) {
                0 => one[at] ^= 1 << random.below(8),
                1 => {
                    one.remove(at);
                }
                2 => one.insert(at, [b'\n', 0, b' ', 0xff, b'0'][random.below(5)]),
                _ => {
                    let end = (at + random.below(200)).min(one.len());
                    one.drain(at..end);
                }
            }
        }
        let judged = judge_texts(&damaged);
        assert!(!report::text(&judged).is_empty());
        tried += 1;
        accused += usize::from(matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs));
    }
    println!("damaged logs: {tried} judged, {accused} accuse somebody");
    assert!(accused * 10 < tried, "{accused} of {tried}");
}

#[test]
fn simulated_jobs_have_their_faults_found() {
    let (mut found, mut told, mut healthy) = (0, 0, 0);
    let mut wrong: Vec<String> = Vec::new();
    for seed in 0..200 {
        let Scheduled { run, fault, rank, name } = scheduled(seed);
        let form = LOG_FORMS[1 + usize::try_from(seed).expect("few") % 7];
        // Who stops may end, too.
        let ends = |of: u32| fault == Fault::HostStops && of == rank && seed % 2 == 0;
        let logs: Vec<String> = (0..).zip(&run.ranks).map(|(of, _)| run.log(of, form, ends(of))).collect();
        let judged = if seed % 5 == 0 && !ends(rank) {
            judge_texts(&[run.mixed_log(form, false, &mut Random(seed))])
        } else {
            judge_texts(&logs)
        };
        let text = format!("job {seed}, {name}, {form:?}\n{}", report::text(&judged));
        let broken = rules(&judged);
        let accuses = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
        let is_step = |step: &CircleStep| judged.job.processes[step.waits_in.process].rank == rank;
        let in_circle = judged.waits.all_circles().flatten().any(is_step);
        let root = roots(&judged) == BTreeSet::from([rank]);
        let right = match fault {
            // What is over is not known, so a device that stands is not.
            Fault::Nothing | Fault::DeviceStands => !accuses,
            Fault::HostStops => broken.is_empty() && root && accuses == ends(rank),
            Fault::Skips => {
                let named = |difference: &CallDifference| {
                    difference.sides.iter().any(|side| side.ranks.contains(&rank))
                };
                let ordered = judged.compared.inversions.iter().flat_map(|one| &one.steps);
                let ordered = ordered.into_iter().any(|step| step.rank == rank);
                judged.compared.differences.iter().any(named) || ordered || root || in_circle
            }
            Fault::OtherSize => broken == ["COLL-3"],
            Fault::OppositeOrder => broken.contains(&"COLL-4") || in_circle || root,
        };
        match (right, fault) {
            (false, _) => wrong.push(text),
            (true, Fault::Nothing | Fault::DeviceStands) => healthy += 1,
            (true, _) if accuses => found += 1,
            (true, _) => told += 1,
        }
    }
    println!(
        "simulated jobs: {found} faults found, {told} told and not certain, {healthy} without an accusation"
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// What the command prints, and with which code it ends.
#[test]
fn the_command_takes_logs() {
    let run = healthy();
    let saved = DumpsSaved::new("logged");
    for rank in 0..4 {
        saved.write(&format!("log.node0.{rank}"), run.log(rank, LogForm::Nccl2_28, true).as_bytes());
    }
    let command = |arguments: &[&str]| crate::built::ran(&saved.folder, arguments);
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("HOLDS  .   4 ranks"), "{text}");
    // Emptied while somebody wrote it.
    let emptied = [vec![0; 4096], run.log(3, LogForm::Nccl2_28, true).into_bytes()].concat();
    saved.write("log.node0.3", &emptied);
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = command(&["check", ".", "-q"]);
    assert_eq!((code, text.as_str()), (Some(0), "1 passed, 0 failed\n"));
    let (code, text) = command(&["check", ".", "--only", "one"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("does nothing for logs of a run"), "{text}");
    let (code, text) = command(&["timeline", "."]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("its lines have no times"), "{text}");
    let (code, text) = command(&["check", "log.node0.0"]);
    assert_eq!(code, Some(3), "{text}");
    let (code, text) = command(&["check", ".", "--format", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("a report is JSON");
    assert_eq!(json["jobs"][0]["verdict"], "holds", "{text}");
    for rank in 0..4 {
        let timed: String = run
            .log(rank, LogForm::Nccl2_28, true)
            .lines()
            .fold(String::new(), |text, line| text + &format!("[2026-11-23 02:31:5{rank}.5] {line}\n"));
        saved.write(&format!("log.node0.{rank}"), timed.as_bytes());
    }
    let (code, text) = command(&["timeline", "."]);
    assert_eq!(code, Some(0), "{text}");
    let text = std::fs::read(saved.folder.join("timeline.json")).expect("it was just written");
    let events: serde_json::Value = serde_json::from_slice(&text).expect("a timeline is JSON");
    assert!(events["traceEvents"].as_array().is_some_and(|events| events.len() > 20));
    let (wrong, joined) = crate::timelines::looked_at(&events);
    assert_eq!(wrong, [""; 0]);
    assert!(joined.values().flatten().all(|ranks| *ranks > 1) && !joined.is_empty(), "{joined:?}");
}

/// Logs that NCCL wrote of `tests/recordings/mistakes.py` on two GPUs, one file a rank.
#[test]
fn logs_of_devices_read_as_their_golden_reports() {
    let folder = enter().join("tests/logs/runs");
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let runs = entries.map(|entry| entry.expect("it can be read").path()).filter(|path| path.is_dir());
    let wrong: Vec<String> = runs
        .filter_map(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            let judged = judge_logs(&[PathBuf::from("tests/logs/runs").join(&name)]);
            let judged = judged.unwrap_or_else(|error| panic!("{error}"));
            let shown: Vec<String> = judged.iter().map(report::text).collect();
            differs_from_golden(&folder.join(format!("{name}.report")), &format!("{}\n", shown.join("\n\n")))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
