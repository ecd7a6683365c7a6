//! Recorded processes that drive several devices: each is a rank on every one of them.
//!
//! Not here: processes of one device (`tests/tests/runs.rs`).

use std::path::PathBuf;

use rankcheck::runs::judge::{RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};
use rankcheck_tests::repository::{differs_from_golden, enter};
use rstest::rstest;

use crate::verdicts;

fn judged(mut run: Run, name: &str) -> (RunVerdict, String) {
    run.exit();
    let judged = verdicts::judged(run, &format!("devices-{name}"));
    (judged.verdict, text(&judged))
}

/// Calls of a process with these communicators, and a buffer and a stream on each device.
type OnBoth = fn(&mut Process, &[u64], &[(u64, u64); 2]);

/// One process on two devices that does this.
fn on_both(calls: impl Fn(&mut Process, &[u64], &[(u64, u64); 2])) -> Run {
    let mut run = Run::new(1);
    run.all(|process, _| {
        process.header.rank = None;
        let comms = process.init_on(&[0, 1]);
        let buffers = process.buffers_on([0, 1]);
        calls(process, &comms, &buffers);
    });
    run
}

/// How a process comes to two communicators.
#[derive(Debug, Clone, Copy)]
enum Made {
    InAGroup,
    AtOnce,
    ByTwoThreads,
    ThroughTheDriver,
}

/// The communicators of both devices; device 1 is the first rank, so that the order of devices says nothing.
fn comms(process: &mut Process, made: Made) -> [u64; 2] {
    match made {
        Made::InAGroup => {
            let mut comms = [0; 2];
            process.group(|process| {
                for device in [0, 1] {
                    process.set_device(device);
                    comms[device as usize] = process.init(1, 1 - device, 2);
                }
            });
            comms
        }
        Made::AtOnce => {
            let comms = process.init_on(&[1, 0]);
            [comms[1], comms[0]]
        }
        Made::ByTwoThreads => {
            let comms = [process.handle(), process.handle()];
            for device in [0, 1] {
                process.thread = device as usize;
                process.set_device(device);
                process.enter_init(1, 1 - device, 2);
            }
            for device in [1, 0] {
                process.thread = device;
                process.leave_init(comms[device]);
            }
            comms
        }
        Made::ThroughTheDriver => {
            let contexts = [process.context(0), process.context(1)];
            let mut comms = [0; 2];
            process.group(|process| {
                for device in [0, 1] {
                    process.set_context(contexts[device as usize]);
                    comms[device as usize] = process.init(1, 1 - device, 2);
                }
            });
            comms
        }
    }
}

/// One process on two devices that all-reduces so many elements on each.
fn reduces(made: Made, counts: [u64; 2]) -> Run {
    let mut run = Run::new(1);
    run.all(|process, _| {
        process.header.rank = None;
        let comms = comms(process, made);
        process.thread = 0;
        let buffers = process.buffers_on([0, 1]);
        process.all_reduce_on_each(&comms, &buffers, &counts);
        for (device, (buffer, stream)) in [0, 1].into_iter().zip(buffers) {
            process.set_device(device);
            process.synchronize(stream);
            process.cuda_free(buffer);
            process.destroy(comms[device as usize]);
        }
    });
    run
}

#[rstest]
#[case::in_a_group(Made::InAGroup)]
#[case::at_once(Made::AtOnce)]
#[case::by_two_threads(Made::ByTwoThreads)]
#[case::through_the_driver(Made::ThroughTheDriver)]
fn a_process_is_a_rank_on_each_device(#[case] made: Made) {
    let (verdict, text) = judged(reduces(made, [1024, 1024]), &format!("{made:?}"));
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("1 collective on 1 communicator by 2 ranks"), "{text}");
    let (verdict, text) = judged(reduces(made, [1024, 2048]), &format!("{made:?}-differ"));
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    // Device 1 has the first rank.
    assert!(
        text.contains("of 2048 f32 (sum) on rank 0") && text.contains("of 1024 f32 (sum) on rank 1"),
        "{text}"
    );
}

/// Calls keep the numbers that they have in the recording, whichever device they are on.
#[test]
fn calls_are_numbered_as_in_the_recording() {
    let (_, text) = judged(reduces(Made::InAGroup, [1024, 2048]), "numbers");
    // process, group, two devices and inits, group end, two devices, mallocs and streams, group, then these.
    assert!(text.contains("call 14 (ncclAllReduce)") && text.contains("call 15 (ncclAllReduce)"), "{text}");
}

/// What one device does is waited for by a synchronization with it. That the other is done with its part of a collective says nothing of
/// this one's output.
#[rstest]
#[case::with_its_own(Some(0), RunVerdict::Holds)]
#[case::with_the_other(Some(1), RunVerdict::Fails)]
#[case::with_none(None, RunVerdict::Fails)]
fn waiting_for_one_device_is_no_wait_for_another(#[case] waited: Option<usize>, #[case] wanted: RunVerdict) {
    let run = on_both(|process, comms, buffers| {
        process.all_reduce_on_each(comms, buffers, &[1024, 1024]);
        process.set_device(0);
        if let Some(waited) = waited {
            process.synchronize(buffers[waited].1);
        }
        let other = process.stream();
        process.copy(buffers[0].0, buffers[0].0 + 4096, 4096, other);
        process.synchronize(other);
        process.synchronize(buffers[0].1);
    });
    let (verdict, text) = judged(run, &format!("waits-{waited:?}"));
    assert_eq!(verdict, wanted, "{text}");
}

/// Within one call, and within one group, nobody waits, whatever the host waits for elsewhere.
#[rstest]
#[case::one_call("call", |process: &mut Process, comms: &[u64], buffers: &[(u64, u64); 2]| {
    for device in [0, 1] {
        process.all_to_all(comms[device], buffers[device].0, 1024, buffers[device].1);
    }
})]
#[case::one_group("group", |process: &mut Process, comms: &[u64], buffers: &[(u64, u64); 2]| {
    for device in [0, 1] {
        let peer = 1 - device as u32;
        process.send(buffers[device].0, 1024, (peer, comms[device], buffers[device].1));
        process.recv(buffers[device].0, 1024, (peer, comms[device], buffers[device].1));
    }
})]
fn what_runs_together_is_waited_for_by_nobody(#[case] name: &str, #[case] calls: OnBoth) {
    let run = on_both(|process, comms, buffers| {
        process.group(|process| calls(process, comms, buffers));
        for (_, stream) in buffers {
            process.synchronize(*stream);
        }
    });
    let (verdict, text) = judged(run, &format!("together-{name}"));
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.starts_with("FAILS MEM-2"), "{text}");
}

/// An event goes to another device and back. Without the first half nothing waits for what device 0 writes.
#[rstest]
#[case::there_and_back(true, RunVerdict::Holds)]
#[case::back_alone(false, RunVerdict::Fails)]
fn events_order_devices(#[case] there: bool, #[case] wanted: RunVerdict) {
    let run = on_both(|process, comms, buffers| {
        process.all_reduce_on_each(comms, buffers, &[1024, 1024]);
        let (forth, back) = (process.handle(), process.handle());
        process.set_device(0);
        let other = process.stream();
        process.record(forth, buffers[0].1);
        if there {
            process.wait(buffers[1].1, forth);
        }
        process.record(back, buffers[1].1);
        process.wait(other, back);
        process.copy(buffers[0].0, buffers[0].0 + 4096, 4096, other);
        process.synchronize(other);
        process.synchronize(buffers[0].1);
    });
    let (verdict, text) = judged(run, &format!("events-{there}"));
    assert_eq!(verdict, wanted, "{text}");
}

/// The host waits for a stream of device 1, which waits for device 0.
#[rstest]
#[case::that_waits(true, RunVerdict::Holds)]
#[case::that_does_not(false, RunVerdict::Fails)]
fn the_host_carries_order_from_device_to_device(#[case] waits: bool, #[case] wanted: RunVerdict) {
    let run = on_both(|process, comms, buffers| {
        process.all_reduce_on_each(comms, buffers, &[1024, 1024]);
        let event = process.handle();
        process.set_device(0);
        process.record(event, buffers[0].1);
        if waits {
            process.wait(buffers[1].1, event);
        }
        process.synchronize(buffers[1].1);
        let other = process.stream();
        process.copy(buffers[0].0, buffers[0].0 + 4096, 4096, other);
        process.synchronize(other);
        process.synchronize(buffers[0].1);
    });
    let (verdict, text) = judged(run, &format!("host-carries-{waits}"));
    assert_eq!(verdict, wanted, "{text}");
}

/// Two processes of two devices each: the ranks are those of the communicator that has all four.
/// A thread that is in a call of one device makes none of another's; another thread may.
#[rstest]
#[case::in_its_first_collective(0, "ncclAllReduce", RunVerdict::Hangs)]
#[case::in_a_wait(0, "cudaStreamSynchronize", RunVerdict::Hangs)]
#[case::by_another_thread(1, "cudaStreamSynchronize", RunVerdict::Unknown)]
fn a_thread_that_needs_itself_hangs(#[case] thread: usize, #[case] inside: &str, #[case] wanted: RunVerdict) {
    let run = on_both(|process, comms, buffers| {
        let (buffer, stream) = buffers[0];
        if inside != "ncclAllReduce" {
            process.all_reduce_on_each(comms, buffers, &[1024, 1024]);
        }
        process.thread = thread;
        process.set_device(1);
        process.malloc(64);
        process.thread = 0;
        process.set_device(0);
        process.enter_all_reduce(comms[0], buffer, 1024, stream);
        if inside != "ncclAllReduce" {
            process.leave();
            process.enter_synchronize(stream);
        }
    });
    let judged = verdicts::judged(run, &format!("devices-itself-{thread}-{inside}"));
    let text = text(&judged);
    assert_eq!(judged.verdict, wanted, "{text}");
    let says = format!("for rank 1, which waits behind {inside} on the same host thread");
    assert_eq!(text.contains(&says), wanted == RunVerdict::Hangs, "{text}");
}

#[test]
fn processes_of_several_devices_make_one_job() {
    let job = |counts: [u64; 4]| {
        let mut run = Run::new(2);
        run.all(|process, nth| {
            let mut comms = [0; 2];
            process.group(|process| {
                for device in [0, 1] {
                    process.set_device(device);
                    comms[device as usize] = process.init(1, 2 * nth + device, 4);
                }
            });
            let buffers = process.buffers_on([0, 1]);
            process.all_reduce_on_each(&comms, &buffers, &counts[2 * nth as usize..]);
            for (buffer, stream) in buffers {
                process.synchronize(stream);
                process.cuda_free(buffer);
            }
        });
        run
    };
    let (verdict, text) = judged(job([1024; 4]), "job");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("by 4 ranks"), "{text}");
    let (verdict, text) = judged(job([1024, 1024, 1024, 512]), "job-differs");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.contains("of 512 f32 (sum) on rank 3"), "{text}");
}

/// On a time axis a call stands with the rank of its device alone, and groups with both.
#[test]
fn a_timeline_has_each_call_once() {
    let mut run = reduces(Made::InAGroup, [1024, 1024]);
    run.exit();
    let saved = run.save("devices-timeline");
    let judged = judge(read(&saved.folder).expect("a recording"), None).expect("a run of one job");
    let mut written = Vec::new();
    rankcheck::runs::timeline::write(&judged, &mut written).expect("memory takes everything");
    let events: serde_json::Value = serde_json::from_slice(&written).expect("it is JSON");
    let events = events.as_array().or(events["traceEvents"].as_array()).expect("a list of events");
    let of = |name: &str| {
        let calls = events.iter().filter(|event| event["ph"] == "X" && event["name"] == name);
        let mut ranks: Vec<u64> = calls.filter_map(|event| event["pid"].as_u64()).collect();
        ranks.sort_unstable();
        ranks
    };
    assert_eq!(of("ncclAllReduce"), [0, 1]);
    assert_eq!(of("cudaStreamCreateWithFlags").len() + of("cudaStreamCreate").len(), 2);
    // Two groups, which are everybody's.
    assert_eq!(of("ncclGroupEnd"), [0, 0, 1, 1]);
}

/// The folders of the recordings that are kept in one, in their order.
fn recordings_in(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("they are kept");
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it is listed").path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// What real programs of others recorded on two GPUs, most of them one process for both: nccl-tests, examples of NCCL, JAX, CuPy, and
/// samples of CUDA that share memory and events between processes without NCCL, one of them by a recorder that did not say when processes began by
/// a clock that nobody sets. Each is judged as the report beside it says.
#[test]
fn programs_of_others_are_judged_as_their_reports_say() {
    enter();
    let folders = recordings_in("tests/recordings/devices");
    assert!(folders.len() >= 12, "only {} recordings were found", folders.len());
    let differ: Vec<String> = folders
        .iter()
        .filter_map(|folder| {
            let judged = judge(read(folder).expect("a recording"), None).expect("a run of one job");
            differs_from_golden(&folder.with_extension("report"), &text(&judged))
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Programs with symmetric memory of PyTorch (`tests/recordings/symmetric.py`) that were recorded on two GPUs: those that
/// are right hold with nothing unjudged that matters, and the mistakes are told as the reports beside them say.
#[test]
fn programs_with_symmetric_memory_are_judged() {
    enter();
    let folders = recordings_in("tests/recordings/symmetric");
    let bad =
        |folder: &PathBuf| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bad"));
    assert!(folders.iter().filter(|folder| !bad(folder)).count() >= 30, "{} recordings", folders.len());
    let mut wrong = Vec::new();
    for folder in folders {
        let judged = judge(read(&folder).expect("a recording"), None).expect("a run of one job");
        if bad(&folder) {
            wrong.extend(differs_from_golden(&folder.with_extension("report"), &text(&judged)));
        } else if judged.verdict != RunVerdict::Holds {
            wrong.push(format!("{}: {}", folder.display(), text(&judged)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
