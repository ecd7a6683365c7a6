//! `rankcheck record` as people use it: a command and its processes, however they end, and what goes wrong before.
//!
//! Not here: what the library writes (`recorder.rs`), and what is made of it (`recorded.rs`).

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rankcheck_recording::{Argument, CallEvent, ProcessFile};
use rstest::rstest;

use crate::built::{command, folder, recorder, stand_ins};

/// `rankcheck record --out run` in this folder, with the stand-ins in reach; what is run comes next.
fn record(folder: &Path) -> Command {
    let mut command = Command::new(command());
    command
        .args(["record", "--out", "run", "--"])
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .env("LD_LIBRARY_PATH", stand_ins())
        .env("RANKCHECK_RECORD_LIB", recorder())
        .env_remove("LD_PRELOAD")
        .env_remove("VLLM_NCCL_SO_PATH")
        .env_remove("SGLANG_NCCL_SO_PATH");
    command
}

fn program() -> PathBuf {
    stand_ins().join("program")
}

/// Its exit code, and what it says.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the command starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("the command writes UTF-8"))
}

/// How often something is called in each file of the recording, by its beginning.
fn calls(folder: &Path) -> Vec<usize> {
    let files = fs::read_dir(folder.join("run")).expect("it was made");
    let mut processes: Vec<ProcessFile> = files
        .map(|entry| ProcessFile::open(&entry.expect("it can be listed").path()).expect("a recording"))
        .collect();
    processes.sort_by_key(|process| process.header.began);
    let count = |mut process: ProcessFile| {
        let mut calls = 0;
        while let Some(event) = process.next_event().expect("a recording") {
            let called = matches!(event, CallEvent::Enter { call, .. } if !process.shape(call).instant);
            calls += usize::from(called);
        }
        calls
    };
    processes.into_iter().map(count).collect()
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let folder = folder("record-exit");
    let (code, said) = ended(record(&folder).arg(program()).arg("exit"));
    assert_eq!(code, Some(9), "{said}");
    assert!(said.contains("recorded 1 process, 5 calls"), "{said}");
    assert_eq!(calls(&folder), [5]);
    // The Python part was there for the run alone.
    assert!(!folder.join("run/.python").exists());
}

#[rstest]
#[case::abort("abort", 6, 1000)]
#[case::crash("crash", 11, 1000)]
#[case::killed("killed", 9, 100_000)]
fn what_a_crash_leaves_is_kept_and_its_signal_is_told(
    #[case] way: &str,
    #[case] signal: i32,
    #[case] made: usize,
) {
    let folder = folder(&format!("record-{way}"));
    let (code, said) = ended(record(&folder).arg(program()).arg(way));
    assert_eq!(code, Some(128 + signal), "{said}");
    assert_eq!(calls(&folder), [made], "{said}");
}

/// Starts it and waits until it says that it is ready.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("it is a pipe");
    BufReader::new(out).read_line(&mut line).expect("it can be read");
    assert_eq!(line, "ready\n");
    child
}

/// Waits for its exit code. Waiting would close the pipe that its processes wait for, so that stays open till then.
fn code_with_input(mut child: Child) -> Option<i32> {
    let input = child.stdin.take();
    let code = child.wait().expect("it was started").code();
    drop(input);
    code
}

#[rstest]
#[case::term("TERM", 15)]
#[case::int("INT", 2)]
fn a_signal_goes_to_the_command(#[case] name: &str, #[case] number: i32) {
    let folder = folder(&format!("record-{name}"));
    let child = started(record(&folder).arg(program()).arg("wait").stderr(Stdio::null()));
    let kill = format!("kill -{name} {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status().expect("the shell starts");
    assert!(sent.success());
    assert_eq!(code_with_input(child), Some(128 + number));
    assert_eq!(calls(&folder), [1000]);
}

#[test]
fn a_file_says_how_long_its_process_ran() {
    let folder = folder("record-alive");
    // It is looked every second which processes still run.
    let deadline = ["timeout", "5"];
    let child = started(record(&folder).args(deadline).arg(program()).arg("wait").stderr(Stdio::null()));
    assert_eq!(code_with_input(child), Some(124));
    let file = fs::read_dir(folder.join("run")).expect("it was made").next().expect("one process");
    let mut process = ProcessFile::open(&file.expect("it can be listed").path()).expect("a recording");
    let mut last = 0;
    while let Some(event) = process.next_event().expect("a recording") {
        if let CallEvent::Enter { time, .. } | CallEvent::Return { time, .. } = event {
            last = last.max(time);
        }
    }
    let alive = process.header.alive.expect("it was seen");
    assert!(alive > process.header.began + last, "{alive}, {last}: {:?}", process.header);
}

#[test]
fn a_file_that_is_still_written_is_left_as_it_is() {
    let folder = folder("record-linger");
    let mut child = started(record(&folder).arg(program()).arg("linger").stderr(Stdio::piped()));
    let mut stderr = child.stderr.take().expect("it is a pipe");
    assert_eq!(code_with_input(child), Some(0));
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("it says UTF-8");
    assert!(said.contains("is still written by process"), "{said}");
    assert_eq!(calls(&folder), [10, 20]);
}

#[rstest]
#[case::vllm("VLLM_NCCL_SO_PATH")]
#[case::sglang("SGLANG_NCCL_SO_PATH")]
fn a_program_that_loads_nccl_by_its_path_is_recorded(#[case] variable: &str) {
    let folder = folder(&format!("record-{variable}"));
    let (code, said) = ended(record(&folder).arg(program()).args(["variable", variable]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(calls(&folder), [1], "{said}");
}

#[test]
fn a_path_that_somebody_named_stays() {
    // Being loaded first, the recorder answers for it all the same.
    let folder = folder("record-named");
    let named = stand_ins().join("libnccl.so.2");
    let mut command = record(&folder);
    command.env("VLLM_NCCL_SO_PATH", named).arg(program()).args(["variable", "VLLM_NCCL_SO_PATH"]);
    let (code, said) = ended(&mut command);
    assert_eq!((code, calls(&folder)), (Some(0), vec![1]), "{said}");
}

#[test]
fn what_goes_wrong_before_the_command_is_told_apart() {
    let folder = folder("record-wrong");
    fs::create_dir(folder.join("run")).expect("the folder is there");
    fs::write(folder.join("run/notes"), "").expect("it can be written");
    let (code, said) = ended(record(&folder).arg(program()).arg("exit"));
    assert_eq!(code, Some(125));
    assert!(said.contains("is not empty"), "{said}");
    fs::remove_dir_all(folder.join("run")).expect("it was made");

    let (code, said) = ended(record(&folder).arg("no-such-command"));
    assert_eq!(code, Some(127));
    assert!(said.contains("cannot run no-such-command"), "{said}");
    assert!(!folder.join("run").exists(), "a folder without a recording stays");

    // A place that nobody may write to, whoever runs this.
    let mut nowhere = Command::new(command());
    nowhere.args(["record", "--out", "/proc/nowhere", "--", "true"]).env("RANKCHECK_RECORD_LIB", recorder());
    let (code, said) = ended(&mut nowhere);
    assert_eq!(code, Some(125));
    assert!(said.contains("cannot use /proc/nowhere"), "{said}");

    // A command that has nothing beside it.
    let alone = folder.join("rankcheck");
    fs::copy(command(), &alone).expect("it can be copied");
    let (code, said) =
        ended(Command::new(&alone).args(["record", "--", "true"]).env_remove("RANKCHECK_RECORD_LIB"));
    assert_eq!(code, Some(125));
    assert!(said.contains("librankcheck_record.so is not beside this command"), "{said}");
    fs::create_dir_all(folder.join("lib/rankcheck")).expect("the folder is there");
    fs::create_dir_all(folder.join("bin")).expect("the folder is there");
    fs::rename(&alone, folder.join("bin/rankcheck")).expect("it was copied");
    fs::copy(recorder(), folder.join("lib/rankcheck/librankcheck_record.so")).expect("it can be copied");
    let mut installed = Command::new(folder.join("bin/rankcheck"));
    installed.args(["record", "--out", "installed", "--"]).arg(program()).arg("exit").current_dir(&folder);
    installed.env_remove("RANKCHECK_RECORD_LIB").env("LD_LIBRARY_PATH", stand_ins());
    let (code, said) = ended(&mut installed);
    assert_eq!(code, Some(9), "{said}");
    assert!(said.contains("recorded 1 process, "), "{said}");

    let spaced = folder.join("a space.so");
    fs::copy(recorder(), &spaced).expect("it can be copied");
    let (code, said) = ended(record(&folder).env("RANKCHECK_RECORD_LIB", spaced).arg("true"));
    assert_eq!(code, Some(125));
    assert!(said.contains("has a space or a colon in its path"), "{said}");

    for arguments in [&["record"][..], &["record", "--no-such-flag", "--", "true"]] {
        let (code, said) = ended(Command::new(command()).args(arguments));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("Usage:"), "{said}");
    }
}

#[test]
fn a_command_that_calls_nothing_is_told_so() {
    let folder = folder("record-nothing");
    let (code, said) = ended(record(&folder).arg(program()).arg("nothing"));
    assert_eq!(code, Some(0));
    assert!(said.contains("nothing was recorded"), "{said}");
}

#[test]
fn what_finds_no_room_is_told_and_the_command_goes_on() {
    let folder = folder("record-room");
    // In blocks of 512 bytes: the header and three extents.
    let script = "ulimit -f 400; exec \"$0\" many 100000";
    let (code, said) = ended(record(&folder).args(["sh", "-c", script]).arg(program()));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the disk was full"), "{said}");
    assert!(calls(&folder)[0] > 10_000);
}

/// Whether there is a Python; says so if not.
fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok();
    if !has {
        println!("skipped: there is no python3");
    }
    has
}

/// A Python whose frames can be read; it may not be the first on the path.
fn python_with_frames() -> Option<&'static str> {
    let script = "import sys; print(sys.version_info >= (3, 12))";
    let found = ["python3", "python3.14", "python3.13", "python3.12"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", script]).output();
        output.is_ok_and(|output| output.stdout.starts_with(b"True"))
    });
    if found.is_none() {
        println!("skipped: there is no Python from 3.12 on");
    }
    found
}

#[test]
fn python_keeps_what_it_would_run_at_its_start() {
    let folder = folder("record-python");
    if !has_python() {
        return;
    }
    fs::create_dir(folder.join("mine")).expect("the folder is there");
    fs::write(folder.join("mine/sitecustomize.py"), "print('mine')\n").expect("it can be written");
    let script = "import ctypes, rankcheck_record\n\
        nccl = ctypes.CDLL('libnccl.so.2')\n\
        assert nccl.ncclGroupStart() == 0\n\
        assert nccl.ncclGroupEnd() == 5\n";
    let mut command = record(&folder);
    command.env("PYTHONPATH", folder.join("mine")).args(["python3", "-c", script]);
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\n");
    assert_eq!(calls(&folder), [2], "{said}");
}

/// As much of torch as is wrapped: a process group, and a collective that calls NCCL.
const TORCH: [(&str, &str); 3] = [
    (
        "site-packages/torch/__init__.py",
        "__version__ = '2.0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n",
    ),
    ("site-packages/torch/distributed/__init__.py", "from .distributed_c10d import *\n"),
    (
        "site-packages/torch/distributed/distributed_c10d.py",
        "import ctypes\n\
        nccl = ctypes.CDLL('libnccl.so.2')\n\
        class Group:\n\
        \x20   def __init__(self, name): self.group_name = name\n\
        class _world:\n\
        \x20   pg_group_ranks = {}\n\
        is_initialized = lambda: bool(_world.pg_group_ranks)\n\
        _get_default_group = lambda: next(iter(_world.pg_group_ranks))\n\
        get_rank = lambda: 0\n\
        get_world_size = lambda: 1\n\
        def new_group(name):\n\
        \x20   group = Group(name)\n\
        \x20   _world.pg_group_ranks[group] = {0: 0}\n\
        \x20   return group\n\
        def init_process_group(): _world.pg_group_ranks[Group('0')] = {0: 0}\n\
        def destroy_process_group(): _world.pg_group_ranks.clear()\n\
        def all_reduce(tensor, op=None, group=None, async_op=False):\n\
        \x20   if tensor is None: raise ValueError\n\
        \x20   assert nccl.ncclGroupStart() == 0\n",
    ),
];

const TRAINING: &str = "import torch.distributed as dist
dist.init_process_group()
other = dist.new_group('other')
for _ in range(2):
    dist.all_reduce(1)
    dist.all_reduce(1, group=other)
try:
    dist.all_reduce(None, None, other)
except ValueError:
    pass
dist.destroy_process_group()
dist.init_process_group()
# Code comes to lie where other code lay before.
for nth in range(18):
    exec(compile('x = 1\\ncall()\\n', f'file{nth % 6}.py', 'exec'), {'call': dist.nccl.ncclGroupStart})
";

/// Writes torch and the training into a folder.
fn with_torch(folder: &Path) {
    for (name, text) in TORCH.iter().chain(&[("train.py", TRAINING)]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }
}

/// What the training is told to have called, as `name group place`, by this Python with these variables.
fn trained(test: &str, python: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(test);
    with_torch(&folder);
    let mut command = record(&folder);
    // Where torch lies is how its frames are told from the user's.
    command.env("RANK", "0").env("PYTHONPATH", folder.join("site-packages"));
    command.envs(variables.iter().copied()).args([python, "train.py"]);
    let (code, said) = ended(&mut command);
    assert_eq!(code, Some(0), "{said}");
    let file = fs::read_dir(folder.join("run")).expect("it was made").next().expect("there is a process");
    let mut process = ProcessFile::open(&file.expect("it can be listed").path()).expect("a recording");
    assert_eq!(process.header.command[1..], ["train.py"]);
    let mut told = Vec::new();
    while let Some(event) = process.next_event().expect("a recording") {
        let CallEvent::Enter { call, .. } = event else { continue };
        let shape = process.shape(call);
        let value = |key: &str| shape.get(key).and_then(Argument::text).unwrap_or("-").to_owned();
        told.push(format!("{} {} {}", shape.name, value("group"), value("place")));
    }
    told
}

/// What the training is told to have called, where its all-reduces are told so.
fn training(all_reduce: impl Fn(&str, u32) -> Vec<String>, failed: &[&str]) -> Vec<String> {
    let told = |calls: &[&str]| calls.iter().map(|&call| call.to_owned()).collect::<Vec<_>>();
    let iteration = || [all_reduce("0", 5), all_reduce("other", 6)].concat();
    [
        told(&[
            "torch.distributed.init_process_group - train.py:2",
            "process - -",
            "torch.process_group - -",
        ]),
        told(&["torch.distributed.new_group 0 train.py:3", "torch.process_group - -"]),
        iteration(),
        iteration(),
        told(failed),
        told(&["torch.distributed.destroy_process_group 0 train.py:11"]),
        // No group of before is taken for the default one.
        told(&["torch.distributed.init_process_group - train.py:12", "exit - -"]),
    ]
    .concat()
}

#[test]
fn calls_have_their_place_in_python() {
    let Some(python) = python_with_frames() else { return };
    let all_reduce = |_: &str, line| vec![format!("ncclGroupStart - train.py:{line}")];
    let again: Vec<String> = (0..18).map(|nth| format!("ncclGroupStart - file{}.py:2", nth % 6)).collect();
    let mut wanted = training(all_reduce, &[]);
    wanted.splice(wanted.len() - 1..wanted.len() - 1, again);
    assert_eq!(trained("record-places", python, &[]), wanted);
}

/// Writes a program that raises, with this line before it, and returns what is noted of its exception.
fn raised(test: &str, before: &str) -> Vec<(String, String, String)> {
    let folder = folder(test);
    let program = format!(
        "import ctypes, sys\n\
        ctypes.CDLL('libnccl.so.2').ncclGroupStart()\n\
        {before}\n\
        def step():\n\
        \x20   raise ValueError('batch 7 is empty\\nsee above')\n\
        step()\n"
    );
    fs::write(folder.join("train.py"), program).expect("it can be written");
    let (code, said) = ended(record(&folder).args(["python3", "train.py"]));
    assert_eq!(code, Some(1), "{said}");
    let file = fs::read_dir(folder.join("run")).expect("it was made").next().expect("there is a process");
    let mut process = ProcessFile::open(&file.expect("it can be listed").path()).expect("a recording");
    let mut noted = Vec::new();
    while let Some(event) = process.next_event().expect("a recording") {
        let CallEvent::Enter { call, .. } = event else { continue };
        let shape = process.shape(call);
        let value = |key: &str| shape.get(key).and_then(Argument::text).unwrap_or("-").to_owned();
        if &*shape.name == "exception" {
            noted.push((value("type"), value("message"), value("place")));
        }
    }
    noted
}

#[test]
fn the_exception_that_ends_a_program_is_noted_once() {
    if !has_python() {
        return;
    }
    let noted = vec![("ValueError".to_owned(), "batch 7 is empty".to_owned(), "train.py:5".to_owned())];
    assert_eq!(raised("record-raised", ""), noted);
    // A program may look at exceptions itself.
    assert_eq!(raised("record-raised-hook", "sys.excepthook = lambda *_: None"), noted);
}

#[test]
fn a_process_that_only_imports_torch_writes_nothing() {
    let folder = folder("record-import");
    if !has_python() {
        return;
    }
    with_torch(&folder);
    let mut command = record(&folder);
    command.env("PYTHONPATH", folder.join("site-packages"));
    let python = python_with_frames().unwrap_or("python3");
    let (code, said) = ended(command.args([python, "-c", "import torch.distributed"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing was recorded"), "{said}");
}

#[test]
fn where_frames_cannot_be_read_calls_of_python_are_told() {
    if !has_python() {
        return;
    }
    let told = trained("record-told", "python3", &[("RANKCHECK_RECORD_FRAMES", "0")]);
    let all_reduce = |group: &str, line| {
        vec![format!("torch.distributed.all_reduce {group} train.py:{line}"), "ncclGroupStart - -".to_owned()]
    };
    let mut wanted = training(all_reduce, &["torch.distributed.all_reduce other train.py:8"]);
    wanted.splice(wanted.len() - 1..wanted.len() - 1, vec!["ncclGroupStart - -".to_owned(); 18]);
    assert_eq!(told, wanted);
}
