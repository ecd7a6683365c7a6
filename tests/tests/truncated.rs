//! Recordings whose files are cut off at any byte: nothing is found in them that is not found in the whole, and what was
//! called before the cut is still found.
//!
//! Not here: files that are damaged, which are errors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_recording::layout::{EXTENT_HEADER_BYTES, Extent, HEADER_BYTES};
use rankcheck_recording::{CallEvent, ProcessFile, pack};
use rankcheck_tests::recording::{Process, Run, Saved};
use rankcheck_tests::repository::{enter, files_under};

use crate::built::folder;

const MIB: u64 = 1 << 20;

/// Files that are cut, if nobody says otherwise.
const CUTS: usize = 300;

fn cuts() -> usize {
    std::env::var("RANKCHECK_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(CUTS)
}

/// A recording that is cut, and what is found in the whole.
struct Whole {
    saved: Saved,
    files: Vec<PathBuf>,
    judged: Judged,
    /// Of each file: before which byte no failing call of its rank is missing; none of a rank that has none.
    behind: Vec<Option<u64>>,
}

/// A run with two threads in each process: one calls, the other makes communicators and polls.
fn two_threads(name: &str, each: impl Fn(&mut Process, u32, u32, [u64; 3])) -> Saved {
    let mut run = Run::new(3);
    run.all(|process, rank| {
        let (comm, buffer, stream) = (process.init(1, rank, 3), process.alloc(4 * MIB), process.stream());
        for step in 0..40 {
            process.thread = 0;
            process.from("step.py:4", |p| p.all_reduce(comm, buffer, 64 + u64::from(step), stream));
            process.thread = 1;
            if step % 8 == 3 {
                let side = process.init(u8::try_from(20 + step).expect("few steps"), rank, 3);
                process.all_reduce(side, buffer + MIB, 8, stream);
            }
            let event = process.handle();
            process.record(event, stream);
            process.query_not_ready(event);
            process.query_done(event);
            process.thread = 0;
            each(process, rank, step, [comm, buffer, stream]);
            process.synchronize(stream);
        }
    });
    run.exit();
    run.save(&format!("cut-{name}"))
}

/// Recordings of runs that hold and of runs that fail, those of this repository among them.
fn recordings() -> Vec<Saved> {
    enter();
    let mut folders: Vec<PathBuf> = files_under("tests/recordings/runs")
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rankrec"))
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    folders.dedup();
    let chosen = ["data_parallel-2", "graph_replay-2", "two_groups-4", "registered_pool-4", "hang-2"];
    folders
        .retain(|folder| chosen.iter().any(|name| folder.parent().is_some_and(|path| path.ends_with(name))));
    let copy = |folder: &PathBuf| {
        let name = folder.display().to_string().replace('/', "-");
        let to = std::env::temp_dir().join(format!("rankcheck-cut-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&to).expect("the directory for temporary files can be written");
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("there is room");
        }
        Saved { folder: to }
    };
    let mut saved: Vec<Saved> = folders.iter().map(copy).collect();
    saved.push(two_threads("clean", |_, _, _, _| {}));
    saved.push(two_threads("count", |p, rank, step, [comm, buffer, stream]| {
        let more = u64::from(rank == 1 && step == 20);
        p.from("step.py:9", |p| p.all_reduce(comm, buffer, 512 + more, stream));
    }));
    saved.push(two_threads("kind", |p, rank, step, [comm, buffer, stream]| {
        if rank == 2 && step == 9 {
            p.from("step.py:12", |p| p.all_gather(comm, (buffer, buffer + MIB), 64, stream));
        } else {
            p.from("step.py:9", |p| p.all_reduce(comm, buffer, 512, stream));
        }
    }));
    saved.push(two_threads("race", |p, rank, step, [_, buffer, _]| {
        if rank == 0 && step == 5 {
            let other = p.stream();
            p.from("step.py:14", |p| p.copy(buffer, buffer + 2 * MIB, 256, other));
        }
    }));
    saved
}

fn whole(saved: Saved) -> Whole {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&saved.folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in &files {
        let alive = ProcessFile::open(file).expect("a recording").header.alive;
        pack(file, alive).expect("it can be packed");
    }
    let judged = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    let behind = files.iter().map(|file| behind(&judged, file)).collect();
    Whole { saved, files, judged, behind }
}

/// Where in a file all calls are over that the first finding names.
fn behind(judged: &Judged, file: &Path) -> Option<u64> {
    let member = judged.recording.world.members.iter().find(|member| member.path == *file)?;
    let ops = judged.findings.first()?.ops.iter().filter(|op| op.rank == member.rank);
    let number =
        ops.filter_map(|op| judged.recording.program.origin(op.loc)).map(|origin| origin.number).max()?;
    let mut process = ProcessFile::open(file).expect("a recording");
    let (mut next, mut at) = (0, None);
    while let Some(event) = process.next_event().expect("an undamaged file") {
        if let CallEvent::Enter { time, thread, .. } = event {
            if next == number {
                at = Some((time, thread));
            }
            next += 1;
        }
    }
    let (time, thread) = at?;
    let bytes = std::fs::read(file).expect("it is there");
    let (mut begin, mut end) = (HEADER_BYTES, HEADER_BYTES);
    while let Some(head) = bytes.get(begin..begin + EXTENT_HEADER_BYTES) {
        let extent = Extent::decode(head.try_into().expect("as long")).expect("an extent");
        begin += extent.length as usize;
        if extent.thread == thread && extent.time <= time {
            end = begin;
        }
    }
    Some(end as u64)
}

#[test]
fn a_file_that_is_cut_invents_nothing_and_keeps_what_was_before() {
    let wholes: Vec<Whole> = recordings().into_iter().map(whole).collect();
    assert!(wholes.len() >= 10, "{} recordings", wholes.len());
    let failing = wholes.iter().filter(|whole| whole.judged.verdict == RunVerdict::Fails).count();
    assert!(failing >= 6 && failing + 3 <= wholes.len(), "{failing} of {} recordings fail", wholes.len());
    let (mut tried, mut after, mut kept) = (0, 0, 0);
    let (mut wrong, mut lost) = (Vec::new(), Vec::new());
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    while tried < cuts() {
        let whole = &wholes[tried % wholes.len()];
        tried += 1;
        let at = usize::try_from(draw(whole.files.len() as u64)).expect("few files");
        let bytes = std::fs::read(&whole.files[at]).expect("it is there");
        // Every other cut of a failing run is behind its failing calls.
        let all = bytes.len() as u64;
        let length = match whole.behind[at] {
            Some(behind) if draw(2) == 0 => behind + draw((all - behind).max(1)),
            Some(_) | None => draw(all),
        };
        std::fs::write(&whole.files[at], &bytes[..usize::try_from(length).expect("short")])
            .expect("as before");
        // A cut header is no recording, and which process is which rank may not be known.
        let cut =
            read(&whole.saved.folder).ok().map(|recording| judge(recording, None).expect("it can be judged"));
        std::fs::write(&whole.files[at], &bytes).expect("as before");
        let fails = cut.as_ref().is_some_and(|cut| cut.verdict == RunVerdict::Fails);
        if let Some(cut) = &cut {
            let rules =
                |judged: &Judged| judged.findings.iter().map(|finding| finding.rule).collect::<BTreeSet<_>>();
            let invents = !rules(cut).is_subset(&rules(&whole.judged))
                || fails && whole.judged.verdict != RunVerdict::Fails
                || cut.verdict == RunVerdict::Hangs && !whole.judged.stuck.is_proven()
                || cut.verdict == RunVerdict::Holds
                // Nothing is named that has no name.
                || [" of  (", " on  (", " in  ("].iter().any(|part| text(cut).contains(part));
            if invents {
                wrong.push(format!(
                    "{} cut at {length} of {}: {}",
                    whole.files[at].display(),
                    bytes.len(),
                    text(cut)
                ));
            }
        }
        if whole.behind[at].is_some_and(|behind| length >= behind) {
            after += 1;
            kept += usize::from(fails);
            if !fails {
                let says = cut.as_ref().map_or_else(String::new, text);
                lost.push(format!(
                    "{} cut at {length} of {}: {says}",
                    whole.files[at].display(),
                    bytes.len()
                ));
            }
        }
    }
    println!("{tried} cuts, {after} of them behind the failing calls, of which {kept} fail");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong[..wrong.len().min(4)].join("\n"));
    assert!(after * 10 >= tried, "{after} of {tried} cuts were behind the failing calls");
    let first = lost[..lost.len().min(4)].join("\n");
    assert!(kept * 100 >= after * 95, "{kept} of {after} still fail:\n{first}");
}

#[test]
fn a_packed_file_has_every_event_of_the_recorded_one() {
    let saved = two_threads("packed", |_, _, _, _| {});
    let path = saved.folder.join("rankrec.1");
    let events = || {
        let mut process = ProcessFile::open(&path).expect("a recording");
        let mut events = Vec::new();
        while let Some(event) = process.next_event().expect("an undamaged file") {
            let called = match event {
                CallEvent::Enter { call, .. } => Some(process.shape(call).clone()),
                CallEvent::Return { values, .. } => values.map(|values| process.shape(values).clone()),
                CallEvent::Lost { .. } => None,
            };
            let told = match event {
                CallEvent::Enter { time, thread, .. } => (time, thread, "enter"),
                CallEvent::Return { time, thread, .. } => (time, thread, "return"),
                CallEvent::Lost { thread, events } => (events, thread, "lost"),
            };
            events.push((told, called));
        }
        (events, process.cuts().len(), process.truncated())
    };
    let before = events();
    let packed = pack(&path, Some(7)).expect("it can be packed");
    assert_eq!(std::fs::metadata(&path).expect("it is there").len(), packed.bytes);
    assert!(packed.bytes < 64 * 1024);
    assert_eq!(before, events());
    // And again.
    pack(&path, Some(7)).expect("it can be packed");
    assert_eq!(before, events());
}

/// Who is not seen to communicate may have done so behind the cut.
#[test]
fn no_recording_of_memory_that_is_shared_holds_with_a_cut() {
    for name in ["cuda-simple-ipc-clocks", "cuda-mapped-ipc", "cuda-pool-ipc"] {
        let copy = folder(&format!("cut-{name}"));
        let files = files_under(&format!("tests/recordings/devices/{name}"));
        let mut judged_so = 0;
        for path in &files {
            for other in &files {
                let to = copy.join(other.file_name().expect("it is a file"));
                std::fs::copy(other, to).expect("it can be copied");
            }
            let bytes = std::fs::read(path).expect("it is there");
            let cut = copy.join(path.file_name().expect("it is a file"));
            for nth in 1..=20 {
                let length = bytes.len() * nth / 21;
                std::fs::write(&cut, &bytes[..length]).expect("as before");
                let Ok(recording) = read(&copy) else { continue };
                let judged = judge(recording, None).expect("it can be judged");
                judged_so += 1;
                let text = text(&judged);
                assert_ne!(judged.verdict, RunVerdict::Holds, "{} at {length}: {text}", cut.display());
                assert!(!text.contains("made no call"), "{} at {length}: {text}", cut.display());
            }
        }
        assert!(judged_so >= 10, "{name}: {judged_so}");
    }
}
