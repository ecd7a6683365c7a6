//! `--checkpoint`: a search that was cut or killed goes on where it was, and comes to what an undisturbed one finds.
//!
//! Not here: what happens to files that a command writes once ([`crate::cli`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rankcheck_tests::repository::enter;
use rstest::rstest;

use crate::built::{command, folder};
use crate::shards::{Said, said};

/// Programs of which each has another kind of choices: what ranks decide, in which order they come to the store, and threads.
const PROGRAMS: [(&str, &str); 4] = [
    ("batches", "registered, 6 batches, 4 ranks"),
    ("batches", "as long as they are, 4 batches"),
    ("exchange", "store calls and copies"),
    ("mutexes", "twice"),
];

fn spec(family: &str) -> String {
    enter().join("tests/growth").join(family).with_extension("star").display().to_string()
}

/// Checks one check of a family, with these options beside.
fn checked(at: &Path, (family, check): (&str, &str), more: &[&str]) -> Said {
    let spec = spec(family);
    let only = ["check", &spec, "--only", check, "--format", "json", "--repairs", "never"];
    said(at, &[&only, more].concat())
}

#[rstest]
#[case::as_it_is(&PROGRAMS, 120, &[])]
#[case::merged(&PROGRAMS[..1], 300, &["--merge-from", "0"])]
#[case::told_apart(&PROGRAMS[1..3], 120, &["--merge-from", "100000000"])]
fn a_search_that_a_bound_cuts_goes_on(
    #[case] programs: &[(&str, &str)],
    #[case] step: usize,
    #[case] how: &[&str],
) {
    let folder = folder(&format!("cut_and_gone_on_{}", how.concat()));
    let file = folder.join("kept").display().to_string();
    for &program in programs {
        let whole = checked(&folder, program, how);
        let mut times = 0;
        for states in (60..).step_by(step) {
            let keep = ["--checkpoint", &file, "--max-states", &states.to_string()];
            let part = checked(&folder, program, &[how, &keep].concat());
            assert_eq!(part.err.contains(" states in "), times > 0, "{program:?}: {}", part.err);
            if part.code != 3 {
                assert_eq!((part.out, part.code), (whole.out, whole.code), "{program:?}");
                assert!(!Path::new(&file).exists(), "nothing is left to go on with");
                break;
            }
            assert!(Path::new(&file).exists(), "{}", part.err);
            times += 1;
        }
        assert!(times > 0, "{program:?} was never cut");
    }
}

/// A killed command has kept something once the file is there.
#[test]
fn a_command_that_is_killed_goes_on() {
    let folder = folder("killed_and_gone_on");
    let file = folder.join("kept");
    let program = PROGRAMS[0];
    let often = ["--checkpoint", "kept", "--checkpoint-every", "0.001"];
    let whole = checked(&folder, program, &[]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() && Instant::now() < deadline {
        let mut killed = Command::new(command());
        killed.args(["check", &spec(program.0), "--only", program.1, "-q"]).args(often).current_dir(&folder);
        let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        while !file.exists() && killed.try_wait().expect("it is a child").is_none() {
            std::thread::yield_now();
        }
        killed.kill().expect("it can be killed");
        killed.wait().expect("it ends");
    }
    let rest = checked(&folder, program, &often);
    assert!(rest.err.contains(" states in "), "{}", rest.err);
    assert_eq!((rest.out, rest.code), (whole.out, whole.code));
    assert!(!file.exists());
}

/// A file in which a search is kept.
fn kept(folder: &Path) -> PathBuf {
    let file = folder.join("kept");
    let cut = checked(folder, PROGRAMS[0], &["--checkpoint", "kept", "--max-states", "200"]);
    assert_eq!(cut.code, 3, "{}", cut.err);
    file
}

#[rstest]
#[case::something_else("else", |_: Vec<u8>| b"important".to_vec(), "is no checkpoint, or not all of one")]
#[case::cut_short("short", |all: Vec<u8>| all[..all.len() - 9].to_vec(), "is no checkpoint, or not all of one")]
#[case::of_another_build("build", |mut all: Vec<u8>| { all[50] ^= 1; all }, "written by another build")]
fn a_file_that_is_no_checkpoint_of_this_command_stays_as_it_is(
    #[case] name: &str,
    #[case] damage: fn(Vec<u8>) -> Vec<u8>,
    #[case] told: &str,
) {
    let folder = folder(&format!("no_checkpoint_{name}"));
    let file = kept(&folder);
    let damaged = damage(fs::read(&file).expect("it was kept"));
    fs::write(&file, &damaged).expect("it can be written");
    let refused = checked(&folder, PROGRAMS[0], &["--checkpoint", "kept"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains(told), "{}", refused.err);
    assert_eq!(fs::read(&file).expect("it is still there"), damaged);
}

/// What a command does not search stays in the file, whatever the command was asked for instead.
#[test]
fn searches_of_others_stay() {
    let folder = folder("checkpoint_of_others");
    let file = kept(&folder);
    let kept = || fs::read(&file).ok();
    let before = kept();
    for arguments in [&["check", "nowhere.star"][..], &["check", "bad.star"], &["check", "other.star"]] {
        fs::write(folder.join("bad.star"), "x = (").expect("it can be written");
        fs::write(folder.join("other.star"), "def f(r): r.barrier()\ncheck(\"other\", f, ranks = 2)\n")
            .expect("it can be written");
        let other = said(&folder, &[arguments, &["--checkpoint", "kept"]].concat());
        assert!(other.err.contains("kept stays: it has a search of checks"), "{arguments:?}: {}", other.err);
        assert!(kept() == before, "{arguments:?}");
    }
    // Once it has come to its end too, nothing is left.
    let own = checked(&folder, PROGRAMS[0], &["--checkpoint", "kept"]);
    assert!(own.err.contains(" states in "), "{}", own.err);
    assert_eq!(kept(), None);
}

/// Whatever stands in the file, a search comes to what it finds without one.
#[test]
fn a_damaged_search_begins_anew() {
    let folder = folder("damaged_checkpoint");
    let whole = checked(&folder, PROGRAMS[0], &[]);
    let file = kept(&folder);
    let all = fs::read(&file).expect("it was kept");
    // Behind the head of the section.
    for part in 2..10 {
        let mut damaged = all.clone();
        let at = all.len() * part / 10;
        damaged[at] ^= 0x55;
        fs::write(&file, &damaged).expect("it can be written");
        let said = checked(&folder, PROGRAMS[0], &["--checkpoint", "kept"]);
        assert!(said.err.contains("is damaged: its search begins anew"), "byte {at}: {}", said.err);
        assert_eq!((&said.out, said.code), (&whole.out, whole.code), "byte {at}");
    }
}

/// What was kept of another text of a check is of no use.
#[test]
fn a_check_that_was_changed_begins_anew() {
    let folder = folder("changed_checkpoint");
    let text = fs::read_to_string(spec("batches")).expect("it is a spec");
    let own = folder.join("own.star");
    fs::write(&own, &text).expect("it can be written");
    let check = |more: &[&str]| {
        let only = ["check", "own.star", "--only", PROGRAMS[0].1, "--format", "json", "--repairs", "never"];
        said(&folder, &[&only, more].concat())
    };
    assert_eq!(check(&["--checkpoint", "kept", "--max-states", "200"]).code, 3);
    fs::write(&own, text.replace("tokens * 4 * MiB", "tokens * 2 * MiB")).expect("it can be written");
    let (anew, whole) = (check(&["--checkpoint", "kept"]), check(&[]));
    assert!(anew.err.contains("was another text when it was kept: its search begins anew"), "{}", anew.err);
    assert_eq!((anew.out, anew.code), (whole.out, whole.code));
}
