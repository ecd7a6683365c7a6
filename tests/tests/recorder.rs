//! The library in programs: what it writes, and that they do not notice. NCCL and CUDA are stand-ins.
//!
//! Not here: the format (`rankcheck-recording`), and `rankcheck record` (`tests/tests/record.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_recording::{Argument, CallEvent, ProcessFile};

use crate::built::{folder, recorder, stand_ins};

/// A run of the program: how it ended, and what each of its processes wrote, oldest first.
struct Ran {
    code: Option<i32>,
    processes: Vec<Read>,
}

/// What one process wrote.
struct Read {
    process: ProcessFile,
    events: Vec<CallEvent>,
}

impl Read {
    /// Calls and what they returned, in words; notes as well.
    fn words(&self) -> Vec<String> {
        let words = |id| {
            let shape = self.process.shape(id);
            let values = shape.keys.iter().zip(&*shape.values).map(|(key, value)| format!(" {key}={value}"));
            format!("{}{}", shape.name, values.collect::<String>())
        };
        let events = self.events.iter().map(|event| match event {
            CallEvent::Enter { call, .. } => words(*call),
            CallEvent::Return { values: None, .. } => "returned".to_owned(),
            CallEvent::Return { values: Some(values), .. } => format!("returned {}", words(*values)),
            CallEvent::Lost { events, .. } => format!("lost {events}"),
        });
        events.collect()
    }

    fn calls(&self) -> usize {
        self.events
            .iter()
            .filter(
                |event| matches!(event, CallEvent::Enter { call, .. } if !self.process.shape(*call).instant),
            )
            .count()
    }
}

/// Runs the program in this way, with the recorder, after these shell commands.
fn run(test: &str, before: &str, way: &[&str]) -> Ran {
    let folder = folder(&format!("recorder-{test}"));
    let preload = if before.contains("RANKCHECK_NCCL") { "" } else { "LD_PRELOAD=\"$RECORDER\"" };
    let output = Command::new("sh")
        .args(["-c", &format!("{before}\n{preload} exec \"$0\" \"$@\"")])
        .arg(stand_ins().join("program"))
        .args(way)
        .env("RECORDER", recorder())
        .env("LD_LIBRARY_PATH", stand_ins())
        .env("RANKCHECK_RECORD_DIR", &folder)
        .env("RANK", "3")
        .output()
        .expect("the shell starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    let files =
        fs::read_dir(&folder).expect("it was made").map(|entry| entry.expect("it can be listed").path());
    let mut processes: Vec<Read> = files
        .map(|path| {
            let mut process = ProcessFile::open(&path).expect("a recording");
            let mut events = Vec::new();
            while let Some(event) = process.next_event().expect("a recording") {
                events.push(event);
            }
            Read { process, events }
        })
        .collect();
    processes.sort_by_key(|read| read.process.header.began);
    Ran { code: output.status.code(), processes }
}

const CALLS: [&str; 11] = [
    "ncclGroupStart",
    "returned",
    "ncclGroupEnd",
    "returned failed code=5",
    "ncclMemAlloc bytes=64",
    "returned ncclMemAlloc address=0x1040",
    "ncclCommInitRank id=",
    "returned ncclCommInitRank comm=0xc003",
    "process nccl_version=22809",
    "cudaSetDevice device=2",
    "returned",
];

#[test]
fn calls_are_written_with_what_they_return() {
    let ran = run("calls", "", &["calls"]);
    assert_eq!((ran.code, ran.processes.len()), (Some(0), 1));
    let words = ran.processes[0].words();
    assert_eq!(words.len(), CALLS.len() + 1, "{words:?}");
    for (found, wanted) in words.iter().zip(CALLS) {
        assert!(found.starts_with(wanted), "{found} is not {wanted}");
    }
    assert!(words[6].ends_with(" rank=3 ranks=4 blocking=1"), "{}", words[6]);
    assert_eq!(words[11], "exit code=0");
    assert_eq!(ran.processes[0].process.header.rank, Some(3));
    assert!(ran.processes[0].process.cuts().is_empty());
}

#[test]
fn the_exit_code_stays_and_is_noted() {
    let ran = run("exit", "", &["exit"]);
    assert_eq!(ran.code, Some(9));
    assert_eq!(ran.processes[0].words().last().map(String::as_str), Some("exit code=9"));
}

/// A handler of a signal may be what leaves: it must not wait for what its thread was in the midst of.
#[test]
fn a_thread_that_recorded_nothing_leaves_without_a_word() {
    let ran = run("leaves", "", &["leaves"]);
    assert_eq!((ran.code, ran.processes.len()), (Some(3), 1));
    let words = ran.processes[0].words();
    assert_eq!(words.len(), CALLS.len(), "{words:?}");
    assert!(ran.processes[0].process.cuts().is_empty());
}

#[test]
fn a_process_that_calls_nothing_writes_nothing() {
    let ran = run("nothing", "", &["nothing"]);
    assert_eq!((ran.code, ran.processes.len()), (Some(0), 0));
}

#[test]
fn each_function_of_a_name_is_forwarded_to_itself() {
    let ran = run("driver", "", &["driver"]);
    assert_eq!(ran.code, Some(0));
    let words = ran.processes[0].words();
    let made = [5, 10, 5].map(|handle| format!("returned cuMemCreate memory={handle:#x}"));
    let wanted: Vec<&str> =
        made.iter().flat_map(|made| ["cuMemCreate bytes=4096", made]).chain(["exit code=0"]).collect();
    assert_eq!(words, wanted);
}

/// The calls of a program, each with what it returned if that says something, without the end.
fn calls_of(ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code, Some(0));
    let words = ran.processes[0].words();
    words.into_iter().filter(|words| words != "returned" && words != "exit code=0").collect()
}

#[test]
fn what_goes_through_the_driver_is_recorded() {
    let ran = run("through-driver", "", &["through-driver"]);
    let wanted = [
        "cuMemAlloc bytes=64",
        "returned cuMemAlloc address=0x20000040",
        "cuMemcpyHtoDAsync to=0x20000040 from=0x77 bytes=64 stream=0x5",
        "cuEventRecord event=0xe0 stream=0x5",
        "cuStreamWaitEvent stream=0x6 event=0xe0",
        "cuMemsetD32Async address=0x20000040 bytes=64 stream=0x6",
        "cuStreamSynchronize stream=0x6",
        "cuMemcpyDtoH to=0x77 from=0x20000040 bytes=64 stream=0x0",
        "cuCtxSynchronize",
        "cuMemFree address=0x20000040",
    ];
    assert_eq!(calls_of(&ran), wanted);
    assert!(ran.processes[0].process.header.driver);
}

#[test]
fn a_lookup_says_what_a_null_stream_is() {
    let ran = run("through-lookup", "", &["through-lookup"]);
    let wanted = [
        "cuMemAlloc bytes=64",
        "returned cuMemAlloc address=0x20000040",
        "cuMemsetD32Async address=0x20000040 bytes=64 stream=0x0",
        "cuStreamSynchronize stream=0x0",
        "cuMemsetD32Async address=0x20000040 bytes=64 stream=0x2",
        "cuStreamSynchronize stream=0x2",
        "cuStreamSynchronize stream=0x5",
        "cuMemFree address=0x20000040",
    ];
    assert_eq!(calls_of(&ran), wanted);
}

/// What the runtime calls of the driver is its own affair.
#[test]
fn every_form_of_a_launch_is_recorded_once() {
    let ran = run("launches", "", &["launches"]);
    let wanted = [
        "cudaLaunchKernel function=0xf0 stream=0x5",
        "cudaLaunchKernel function=0xf0 stream=0x2",
        "cudaLaunchCooperativeKernel function=0xf1 stream=0x5",
        "cudaLaunchHostFunc stream=0x5",
        "host_function",
        "cudaStreamSynchronize stream=0x5",
        "ncclCommInitAll ranks=1 devices=unknown",
        "returned ncclCommInitAll comm=0xd000 comms=00d0000000000000",
        "process nccl_version=22809",
        "ncclCommInitAll ranks=2 devices=unknown",
        "returned ncclCommInitAll comm=unknown comms=00d000000000000001d0000000000000",
    ];
    // By what a function of the host is known is another number each time.
    let unnumbered = |words: String| match words.split_once("host_function").or(words.split_once("HostFunc"))
    {
        Some(_) => words.split(" function=").next().unwrap_or_default().to_owned(),
        None => words,
    };
    let calls: Vec<String> = calls_of(&ran).into_iter().map(unnumbered).collect();
    assert_eq!(calls, wanted);
}

/// What comes behind calls that nobody wrote may rest on them.
#[test]
fn calls_of_a_pause_are_missing() {
    let ran = run("pauses", "", &["pauses"]);
    let words: Vec<String> =
        calls_of(&ran).into_iter().map(|words| words.replace("cudaSetDevice ", "")).collect();
    assert_eq!(words, ["device=0", "device=1", "lost 5", "device=0", "device=0"]);
}

/// Numbers of eight bytes, in hexadecimal digits.
fn eights(numbers: &[u64]) -> String {
    numbers.iter().flat_map(|number| number.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rows_are_read_from_the_vendors_structures() {
    let ran = run("rows", "", &["rows"]);
    let (from, to) = (eights(&[0x1200, 64, 256, 10, 0, 1]), eights(&[0x8090, 64, 128, 10, 0, 1]));
    let (solid, nothing) = (eights(&[0x8080, 8, 32, 3, 128, 2]), eights(&[0; 6]));
    let (filled, behind) = (eights(&[0x8000, 64, 512, 2, 0, 1]), eights(&[7]));
    let calls = calls_of(&ran);
    assert_eq!(calls[0], format!("cuMemcpy2DAsync reads={from} writes={to} stream=0x5"));
    assert_eq!(calls[1], format!("cuMemcpy3D reads={solid} writes={nothing} stream=0x0"));
    let node = format!("cuGraphAddNode graph=0xa0 behind={behind} kind=2 reads={nothing} writes={filled} ");
    assert!(calls[2].starts_with(&node), "{calls:?}");
}

/// What runs once is given back when it runs, so that its place is used again; what a graph may call again is not.
#[test]
fn a_function_of_the_host_is_given_back_when_it_ran() {
    let ran = run("host-functions", "", &["host-functions"]);
    let calls = calls_of(&ran);
    let function = |words: &String| words.rsplit_once("function=").map(|(_, function)| function.to_owned());
    let launched: Vec<String> =
        calls.iter().filter(|words| words.contains("HostFunc")).filter_map(function).collect();
    let ran: Vec<String> =
        calls.iter().filter(|words| words.starts_with("host_function")).filter_map(function).collect();
    assert_eq!(launched.len(), 4);
    assert_eq!(launched, ran);
    assert_ne!(launched[2], launched[3]);
}

/// Four ranks that reduce, wait in this way and free: what is said of them.
fn judged_step(wait: &str) -> Judged {
    let folder = folder(&format!("recorder-step-{wait}"));
    for rank in 0..4 {
        let status = Command::new(stand_ins().join("program"))
            .args(["step", wait])
            .env("LD_PRELOAD", recorder())
            .env("LD_LIBRARY_PATH", stand_ins())
            .env("RANKCHECK_RECORD_DIR", &folder)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "4")
            .status()
            .expect("the program starts");
        assert!(status.success());
    }
    judge(read(&folder).expect("a recording"), None).expect("it can be judged")
}

#[test]
fn who_waits_through_the_driver_has_waited() {
    for wait in ["driver", "context", "copy"] {
        let judged = judged_step(wait);
        assert_eq!(judged.verdict, RunVerdict::Holds, "{wait}: {}", text(&judged));
    }
    let judged = judged_step("not");
    assert_eq!(judged.verdict, RunVerdict::Fails, "{}", text(&judged));
    assert_eq!(judged.findings[0].rule.id(), "MEM-1");
}

#[test]
fn who_has_a_function_of_the_host_called_has_waited() {
    let judged = judged_step("function");
    assert_eq!(judged.verdict, RunVerdict::Holds, "{}", text(&judged));
}

#[test]
fn a_program_may_load_it_in_place_of_nccl() {
    let library = recorder().to_str().expect("UTF-8");
    for (test, before) in [
        ("path", String::new()),
        // Without being loaded first, and with an NCCL that nobody has loaded.
        ("path-alone", format!("export RANKCHECK_NCCL={}/libnccl.so.2", stand_ins().display())),
    ] {
        let ran = run(test, &before, &["path", library]);
        assert_eq!(ran.code, Some(0), "{test}");
        let words = ran.processes[0].words();
        assert!(words.starts_with(&["ncclGroupStart".to_owned(), "returned".to_owned()]), "{words:?}");
    }
}

#[test]
fn a_killed_process_leaves_everything() {
    let ran = run("killed", "", &["killed"]);
    let read = &ran.processes[0];
    assert_eq!((read.calls(), read.process.cuts().len()), (100_000, 1));
}

#[test]
fn threads_write_apart() {
    let ran = run("threads", "", &["threads"]);
    let read = &ran.processes[0];
    assert_eq!((ran.code, read.calls()), (Some(0), 400_000));
    assert!(read.process.cuts().is_empty());
    let mut of_thread = std::collections::BTreeMap::<u32, u64>::new();
    for event in &read.events {
        if let CallEvent::Enter { thread, call, .. } = event
            && let Some(Argument::Number(device)) = read.process.shape(*call).get("device")
        {
            let nth = of_thread.entry(*thread).or_default();
            assert_eq!(*device, *nth % 1000);
            *nth += 1;
        }
    }
    assert_eq!(of_thread.len(), 8);
}

#[test]
fn a_thread_that_still_calls_does_not_keep_a_process_from_ending() {
    let ran = run("running", "", &["running"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.processes[0].calls() >= 1000);
}

#[test]
fn a_child_of_a_fork_has_a_file_of_its_own() {
    let ran = run("fork", "", &["fork"]);
    assert_eq!(ran.code, Some(0));
    let calls: Vec<usize> = ran.processes.iter().map(Read::calls).collect();
    assert_eq!(calls, [15, 20]);
    // The child ends without its handlers, as those do that Python forks.
    let last: Vec<_> = ran.processes.iter().filter_map(|read| read.words().pop()).collect();
    assert_eq!(last, ["exit code=0", "exit code=7"]);
    assert!(ran.processes.iter().all(|read| read.process.cuts().is_empty()));
}

#[test]
fn where_there_is_no_room_the_recording_ends_and_the_program_does_not() {
    // In blocks of 512 bytes: the header and three extents.
    let ran = run("room", "ulimit -f 400", &["many", "100000"]);
    assert_eq!(ran.code, Some(0));
    let read = &ran.processes[0];
    let lost: u64 = read
        .events
        .iter()
        .map(|event| if let CallEvent::Lost { events, .. } = event { *events } else { 0 })
        .sum();
    assert!(read.calls() > 10_000);
    // The end of the process is noted as well.
    assert_eq!(read.calls() as u64 + lost, 100_001);
    assert!(read.process.cuts().is_empty());
}

#[test]
fn a_folder_that_is_not_there_changes_nothing() {
    let ran = run("folder", "export RANKCHECK_RECORD_DIR=/nowhere", &["calls"]);
    assert_eq!((ran.code, ran.processes.len()), (Some(0), 0));
}

#[test]
fn python_reads_the_same() {
    let ran = run("python", "", &["calls"]);
    let read = &ran.processes[0];
    let script = "import sys\n\
        from rankcheck_record import read\n\
        for process in read(sys.argv[1]):\n\
        \x20   for event in process.events():\n\
        \x20       print(event.time, event.thread, event.kind, event.call.name if event.call else '')\n";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(&read.process.path).env("PYTHONPATH", python);
    let Ok(output) = command.output() else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = |id| &*read.process.shape(id).name;
    let wanted = read.events.iter().map(|event| match event {
        CallEvent::Enter { time, thread, call } => format!("{time} {thread} enter {}", name(*call)),
        CallEvent::Return { time, thread, values } => {
            format!("{time} {thread} return {}", values.map_or("", name))
        }
        CallEvent::Lost { thread, .. } => format!("0 {thread} lost "),
    });
    let wanted: Vec<String> = wanted.collect();
    let found = String::from_utf8(output.stdout).expect("Python writes UTF-8");
    assert_eq!(found.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn windows_of_a_group_are_noted_when_it_ends() {
    let ran = run("windows", "", &["windows"]);
    assert_eq!(ran.code, Some(0));
    let words = ran.processes[0].words();
    let register = |address| format!("ncclCommWindowRegister comm=0xc0 address={address} bytes=64 flags=1");
    let wanted = [
        "ncclGroupStart",
        "returned",
        &register("0x1000"),
        "returned ncclCommWindowRegister window=unknown",
        &register("0x2000"),
        "returned ncclCommWindowRegister window=unknown",
        "ncclGroupEnd",
        "returned",
        "ncclGroupEnd.window window=0x1001",
        "ncclGroupEnd.window window=0x2001",
        "exit code=0",
    ];
    assert_eq!(words, wanted);
}

#[test]
fn an_answer_that_is_no_news_is_not_written() {
    let ran = run("polls", "", &["polls"]);
    assert_eq!(ran.code, Some(0));
    let words = ran.processes[0].words();
    let wanted: [&[&str]; 3] = [
        &["cudaEventQuery event=0xe0", "returned failed code=600", "cudaEventQuery event=0xe0", "returned"],
        &["cudaEventRecord event=0xe0 stream=0x5", "returned", "cudaEventQuery event=0xe0", "returned"],
        &["exit code=0"],
    ];
    assert_eq!(words, wanted.concat());
}
