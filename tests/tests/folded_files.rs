//! `rankcheck fold` and `unfold`: files that say the same in less room.
//!
//! Not here: every byte of them (`rankcheck-recording`), and what is judged once (`folded.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankcheck_tests::repository::enter;

use crate::built::{folder, ran};

/// A recorded run of this repository, as it was recorded.
const RUN: &str = "tests/recordings/runs/two_groups-4/clean";

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries =
        fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it can be read").path());
    let mut all: Vec<(PathBuf, Vec<u8>)> = entries
        .map(|path| (path.file_name().expect("a file").into(), fs::read(&path).expect("it can be read")))
        .collect();
    all.sort();
    all
}

#[test]
fn what_was_folded_is_judged_alike_and_comes_back() {
    let run = enter().join(RUN);
    let at = folder("folded-files");
    let (small, back) = (at.join("small"), at.join("back"));
    let name = |path: &Path| path.to_str().expect("a short name").to_owned();
    let (code, said) = ran(enter(), &["fold", &name(&run), "--out", &name(&small)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("folded 4 files"), "{said}");
    let length = |folder: &Path| contents(folder).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    assert!(length(&small) < length(&run), "{} and {}", length(&small), length(&run));
    let judged = |folder: &Path| {
        let (code, text) = ran(enter(), &["check", &name(folder)]);
        (code, text.replace(&name(folder), ""))
    };
    assert_eq!(judged(&small), judged(&run));
    // What is folded already stays as it is.
    let once = contents(&small);
    assert_eq!(ran(enter(), &["fold", &name(&small)]).0, Some(0));
    assert_eq!(contents(&small), once);
    assert_eq!(ran(enter(), &["unfold", &name(&small), "--out", &name(&back)]).0, Some(0));
    let recorded: Vec<_> = contents(&run)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "rankrec"))
        .collect();
    assert_eq!(contents(&back), recorded);
}

#[test]
fn what_cannot_be_folded_stays_and_is_named() {
    let at = folder("folded-damaged");
    let run = enter().join(RUN);
    let files = contents(&run);
    let (path, bytes) =
        files.iter().find(|(path, _)| path.extension().is_some_and(|end| end == "rankrec")).expect("a file");
    let cut = &bytes[..bytes.len() - 100];
    fs::write(at.join(path), cut).expect("it can be written");
    let name = at.to_str().expect("a short name");
    let (code, said) = ran(enter(), &["fold", name]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no whole extent begins here") && said.contains("folded 0 files"), "{said}");
    assert_eq!(fs::read(at.join(path)).expect("it is there"), cut);
    let (code, said) = ran(enter(), &["fold", enter().join("docs").to_str().expect("a short name")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("holds no recording"), "{said}");
    let missing = at.join("missing");
    let (code, said) = ran(enter(), &["fold", missing.to_str().expect("a short name")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot use") && !missing.exists(), "{said}");
}

/// Of a folded file without its end nothing is known but whose it is; the others are judged, and nothing is taken to hold.
#[test]
fn a_folded_file_that_is_cut_off_is_as_good_as_none() {
    let at = folder("folded-cut-off");
    let name = at.to_str().expect("a short name");
    let run = enter().join(RUN);
    assert_eq!(ran(enter(), &["fold", run.to_str().expect("a short name"), "--out", name]).0, Some(0));
    let (path, bytes) = contents(&at).swap_remove(1);
    let whole = fs::read(at.join(&path)).expect("it is there");
    for length in [4, 12, 100, 4096, 4100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(at.join(&path), &whole[..length]).expect("it can be written");
        let (code, said) = ran(enter(), &["check", name]);
        assert_eq!(code, Some(3), "{length} bytes: {said}");
        assert!(said.contains("UNKNOWN"), "{length} bytes: {said}");
        for command in ["fold", "unfold"] {
            let to = at.join("elsewhere");
            let (code, said) = ran(enter(), &[command, name, "--out", to.to_str().expect("a short name")]);
            assert_eq!(code, Some(2), "{length} bytes: {said}");
            assert!(said.contains("3 files"), "{length} bytes: {said}");
            fs::remove_dir_all(to).expect("it is there");
        }
    }
}

#[test]
fn python_reads_the_same_of_both() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3");
        return;
    }
    let small = folder("folded-python").join("small");
    let run = enter().join(RUN);
    let (from, to) = (run.to_str().expect("a short name"), small.to_str().expect("a short name"));
    assert_eq!(ran(enter(), &["fold", from, "--out", to]).0, Some(0));
    let script = "import sys; from rankcheck_record import read\n\
                  one, other = ([list(process.events()) for process in read(folder)] for folder in sys.argv[1:])\n\
                  assert len(one) == 4 and all(one) and one == other";
    let python = Command::new("python3")
        .args(["-c", script, from, to])
        .env("PYTHONPATH", enter().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("it starts");
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
}
