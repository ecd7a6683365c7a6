//! A check that is split over machines: which shard has what, what merged reports say, and what they never hide.
//!
//! Not here: shards of programs on GPUs (`diff.rs`), wrong numbers of shards at the prompt (`cli.rs`), and the files of
//! examples/cluster (`cluster.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;

use rankcheck_tests::repository::enter;
use rstest::rstest;
use serde_json::Value;

use crate::built::{command, folder};
use crate::reported::wrong_in;

/// What a command line prints, without how long it took, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

/// Returns a text in which nothing took any time.
fn timeless(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        for begins in ["\"milliseconds\": ", " time=\""] {
            if let Some((before, rest)) = line.split_once(begins) {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                line = format!("{before}{begins}0{rest}");
            }
        }
        line + "\n"
    };
    text.lines().map(line).collect()
}

pub(crate) fn said(at: &Path, arguments: &[&str]) -> Said {
    let output = Command::new(command()).args(arguments).current_dir(at).env("NO_COLOR", "1").output();
    let output = output.expect("the command starts");
    let text = |bytes| timeless(&String::from_utf8(bytes).expect("the command writes UTF-8"));
    let code = output.status.code().expect("the command is not killed");
    Said { out: text(output.stdout), err: text(output.stderr), code }
}

/// Checks these arguments in so many shards, and returns their files, those in the middle first.
fn sharded(at: &Path, into: &Path, of: u32, arguments: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    for number in 1..=of {
        let (shard, file) = (format!("{number}/{of}"), into.join(format!("{number}-of-{of}.jsonl")));
        let file = file.display().to_string();
        let ran = said(at, &[&["check", "--shard", &shard, "--shard-out", &file], arguments].concat());
        assert!(Path::new(&file).exists(), "{ran:?}");
        files.push(file);
    }
    files.rotate_left(of as usize / 2);
    files
}

fn merged(at: &Path, files: &[String], more: &[&str]) -> Said {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    said(at, &[&["merge"], files.as_slice(), more].concat())
}

#[test]
fn shards_of_the_rules_say_what_one_machine_says() {
    let folder = folder("shards_of_rules");
    let whole =
        ["text", "json"].map(|format| (format, said(enter(), &["check", "specs/rules", "--format", format])));
    for of in [3, 7] {
        let files = sharded(enter(), &folder, of, &["specs/rules"]);
        for (format, whole) in &whole {
            // Not in one line: a difference would be printed with megabytes around it.
            let merged = merged(enter(), &files, &["--format", format]);
            let pairs = whole.out.lines().zip(merged.out.lines());
            let differ = pairs.enumerate().find(|(_, (whole, merged))| whole != merged);
            assert_eq!(differ, None, "{of} shards as {format}");
            assert_eq!(whole.out.len(), merged.out.len(), "{of} shards as {format}");
            assert_eq!((&whole.err, whole.code), (&merged.err, merged.code));
        }
    }
}

const MEETS: &str = "def meets(r, late = False):
    if late and r.rank > 0:
        r.step(\"late\")
        return
    r.barrier()

def decides(r):
    for n in [\"first\", \"second\"]:
        r.choose(n, [\"a\", \"b\"])
    r.barrier()

";

/// A folder with everything that a report may have: what holds, what fails as stated and otherwise, what states nothing, what a
/// bound cuts, what judges nothing, a program that cannot be evaluated, and a file that cannot be read.
fn mixed(name: &str) -> std::path::PathBuf {
    let folder = folder(name);
    let checks = "check(\"all meet\", meets, ranks = [2, 4, 8], expect = holds())
check(\"one is late\", meets, late = True, expect = fails(\"HOST-1\"))
check(\"one is late, and nobody said so\", meets, late = True, expect = holds())
check(\"nothing is stated\", meets, late = True)
check(\"many choices\", decides, ranks = 4, expect = holds())
check(\"nothing to judge\", lambda r: r.step(\"work\"), expect = holds())
check(\"no program\", lambda r: r.nothing(), expect = holds())
";
    fs::create_dir_all(folder.join("specs")).expect("a folder can be made");
    let write =
        |name: &str, text: &str| fs::write(folder.join("specs").join(name), text).expect("it can be written");
    write("checks.star", &format!("{MEETS}{checks}"));
    write(
        "others.star",
        &format!("{MEETS}check(\"others meet\", meets, ranks = [2, 3], expect = holds())\n"),
    );
    write("syntax.star", "def meets(r)\n    r.barrier()\n");
    folder
}

#[rstest]
#[case::all(&[])]
#[case::briefly(&["--quiet"])]
#[case::of_one_rule(&["--rule", "HOST-1"])]
#[case::of_no_rule(&["--rule", "WIN-2"])]
#[case::of_one_verdict(&["--verdict", "unknown"])]
#[case::by_name(&["--only", "meet"])]
fn merged_shards_say_what_one_machine_says(#[case] options: &[&str]) {
    let folder = mixed(&format!("shards_mixed_{}", options.join("_").replace('-', "")));
    let arguments = [&["specs", "--max-choices", "7"], options].concat();
    let kept = folder.join("kept");
    let files = sharded(&folder, &kept, 4, &arguments);
    for format in ["text", "json", "junit", "sarif", "github"] {
        let whole = said(&folder, &[&["check"], arguments.as_slice(), &["--format", format]].concat());
        assert_eq!(whole, merged(&folder, &files, &["--format", format]), "{format}");
        assert_eq!(whole.code, 2, "syntax.star is bad in each of these: {whole:?}");
    }
    if options.is_empty() {
        let text = merged(&folder, &files, &[]);
        let seen = text.out + &text.err;
        for word in ["HOLDS", "FAILS", "UNKNOWN", "NOT AS EXPECTED", "WARNING", "syntax.star:1", "r.nothing"]
        {
            assert!(seen.contains(word), "{word} is missing, so it is not tried: {seen}");
        }
    }
}

/// Recordings are cases of their own; with dumps, logs or waivers they are one.
#[test]
fn runs_are_merged_with_the_checks_given_with_them() {
    let root = enter();
    let folder = folder("shards_of_runs");
    let runs = fs::read_dir(root.join("tests/dumps/runs")).expect("there are dumps").flatten();
    let mut dumps: Vec<_> =
        runs.map(|entry| entry.path()).filter(|path| path.join("recording").exists()).collect();
    dumps.sort();
    let recordings: Vec<String> =
        dumps.iter().take(3).map(|path| path.join("recording").display().to_string()).collect();
    let recordings: Vec<&str> = recordings.iter().map(String::as_str).collect();
    let dumped = dumps[0].display().to_string();
    let apart = [recordings.as_slice(), &["specs/rules/flag.star"]].concat();
    let told = said(root, &[&["check", "--shard", "2/3"], apart.as_slice()].concat());
    assert!(told.out.contains("recording   ") && told.out.contains(" of 14 cases"), "{told:?}");
    let compared = [&[dumped.as_str()], &recordings[1..], &["specs/rules/flag.star"]].concat();
    for (nth, arguments) in [apart, compared].iter().enumerate() {
        let files = sharded(root, &folder.join(nth.to_string()), 3, arguments);
        for format in ["text", "json", "junit"] {
            let whole = said(root, &[&["check"], arguments.as_slice(), &["--format", format]].concat());
            assert_eq!(whole, merged(root, &files, &["--format", format]), "{format}");
        }
        if nth == 1 {
            let json = merged(root, &files, &["--format", "json"]).out;
            assert!(json.contains("\"one_job\": true"), "recording and dumps are not compared: {json}");
        }
    }
}

#[test]
fn every_check_is_in_one_shard() {
    let list = |more: &[&str]| {
        let ran = said(enter(), &[&["check", "specs/rules", "--list"], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let all = list(&[]);
    let shards: Vec<Vec<String>> = (1..=3).map(|number| list(&["--shard", &format!("{number}/3")])).collect();
    for (position, line) in all.iter().enumerate() {
        assert_eq!(shards[position % 3].get(position / 3), Some(line));
    }
    assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), all.len());
}

/// Three shards of which everything is as stated.
fn good(name: &str) -> (std::path::PathBuf, Vec<String>) {
    let folder = folder(name);
    let checks: String =
        (0..8).map(|nth| format!("check(\"meets {nth}\", meets, expect = holds())\n")).collect();
    fs::write(folder.join("meets.star"), format!("{MEETS}{checks}")).expect("a file can be written");
    let mut files = sharded(&folder, &folder.join("kept"), 3, &["meets.star"]);
    files.sort();
    let whole = merged(&folder, &files, &[]);
    assert!(whole.code == 0 && whole.out.ends_with("8 passed, 0 failed\n"), "{whole:?}");
    (folder, files)
}

#[test]
fn a_missing_shard_is_never_a_pass() {
    let (folder, mut files) = good("shards_missing");
    files.remove(1);
    let text = merged(&folder, &files, &[]);
    assert_eq!(text.code, 3, "{text:?}");
    let summary = "5 passed, 0 failed; shard 2 of 3 is missing, with 3 cases that nobody checked\n";
    assert!(text.out.ends_with(summary), "{text:?}");
    assert!(
        text.err.contains("no file of shard 2/3 is given") && text.err.contains("--shard 2/3"),
        "{text:?}"
    );
    let json = merged(&folder, &files, &["--format", "json"]);
    let report: Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert_eq!(wrong_in(&report), [""; 0]);
    assert_eq!(report["missing_shards"], serde_json::json!([{"number": 2, "of": 3, "cases": 3}]));
    assert_eq!(json.code, 3);
    let junit = merged(&folder, &files, &["--format", "junit"]);
    assert!(
        junit.out.contains("name=\"shard 2/3\"") && junit.out.contains("<error type=\"unknown\""),
        "{junit:?}"
    );
    assert!(junit.out.contains("tests=\"6\" failures=\"0\" errors=\"1\""), "{junit:?}");
    let sarif = merged(&folder, &files, &["--format", "sarif"]);
    assert!(sarif.out.contains("shard 2/3: its report is missing"), "{sarif:?}");
    let github = merged(&folder, &files, &["--format", "github"]);
    assert!(github.out.starts_with("::warning ") && github.out.contains("shard 2/3"), "{github:?}");
    for of in [&sarif, &github, &junit] {
        assert_eq!(of.code, 3);
    }
    // One of three is no whole either, and what fails fails all the same.
    files.remove(1);
    assert!(merged(&folder, &files, &[]).out.contains("shards 2, 3 of 3 are missing, with 5 cases"));
    let mixed = mixed("shards_missing_mixed");
    fs::remove_file(mixed.join("specs/syntax.star")).expect("it is there");
    let files = sharded(&mixed, &mixed.join("kept"), 2, &["specs", "--only", "late"]);
    let codes: Vec<i32> =
        files.iter().map(|file| merged(&mixed, std::slice::from_ref(file), &[]).code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 1).count(), 1, "{codes:?}");
    assert!(codes.contains(&3), "{codes:?}");
}

#[test]
fn a_shard_that_is_given_twice_or_is_of_another_whole_is_not_merged() {
    let (folder, files) = good("shards_of_others");
    let refused = |files: &[String], words: &[&str]| {
        let ran = merged(&folder, files, &[]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        for word in words {
            assert!(ran.err.contains(word), "{word}: {}", ran.err);
        }
    };
    let copy = folder.join("copy.jsonl").display().to_string();
    fs::copy(&files[1], &copy).expect("it can be copied");
    refused(
        &[files.as_slice(), std::slice::from_ref(&copy)].concat(),
        &["shard 2/3 is given twice", "copy.jsonl"],
    );
    let with_other = |other: &[String]| [files[0].clone(), other[1].clone(), files[2].clone()];
    let again = |into: &str, of: u32, arguments: &[&str]| {
        let mut files = sharded(&folder, &folder.join(into), of, arguments);
        files.sort();
        files
    };
    let words = ["are not of one whole", "check all shards with the same arguments"];
    refused(&with_other(&again("more", 4, &["meets.star"])), &[&words[..], &["one of 4 shards"]].concat());
    let quiet = again("quiet", 3, &["meets.star", "--quiet"]);
    refused(&with_other(&quiet), &[&words[..], &["\"quiet\":true"]].concat());
    let some = again("some", 3, &["meets.star", "--only", "meets"]);
    assert_eq!(merged(&folder, &with_other(&some), &[]).code, 0, "the same checks are wanted by name");
    let few = again("few", 3, &["meets.star", "--only", "5"]);
    refused(&with_other(&few), &[&words[..], &["other paths", "1 and 8 cases"]].concat());
    let text = fs::read_to_string(&files[1]).expect("it is there");
    fs::write(&copy, text.replacen("\"rankcheck\":\"", "\"rankcheck\":\"9.", 1)).expect("it can be written");
    refused(&[files[0].clone(), copy.clone()], &[&words[..], &["written by rankcheck 9."]].concat());
    fs::write(&copy, text.replacen("\"shard_schema\":1", "\"shard_schema\":7", 1))
        .expect("it can be written");
    refused(std::slice::from_ref(&copy), &["another version of the file format, 7"]);
    let spec = fs::read_to_string(folder.join("meets.star")).expect("it is there");
    fs::write(folder.join("meets.star"), format!("{spec}# edited\n")).expect("it can be written");
    refused(&with_other(&again("edited", 3, &["meets.star"])), &[&words[..], &["another revision"]].concat());
    let spec = folder.join("meets.star").display().to_string();
    refused(&[files[0].clone(), spec], &["meets.star was not written by a shard", "--shard-out"]);
    refused(&["nowhere.jsonl".to_owned()], &["cannot read nowhere.jsonl"]);
}

#[test]
fn a_file_that_is_cut_off_counts_as_missing() {
    let (folder, files) = good("shards_cut");
    let text = fs::read_to_string(&files[1]).expect("it is there");
    let lines: Vec<&str> = text.lines().collect();
    let without = |nth: usize| {
        let left = lines.iter().enumerate().filter(|(at, _)| *at != nth).map(|(_, line)| format!("{line}\n"));
        left.collect::<String>()
    };
    assert_eq!(lines.len(), 5, "a first line, three cases and a last line");
    let cuts = [
        format!("{}\n", lines[0]),
        text[..text.len() / 2].to_owned(),
        text[..text.len() - 3].to_owned(),
        without(4),
        // A case in the middle, and a case twice in its place.
        without(2),
        text.replacen(lines[2], lines[1], 1),
    ];
    for cut in cuts {
        fs::write(&files[1], &cut).expect("it can be written");
        let ran = merged(&folder, &files, &[]);
        assert!(ran.code == 3 && ran.out.contains("shard 2 of 3 is missing, with 3 cases"), "{ran:?}");
        assert!(
            ran.err.contains("2-of-3.jsonl is not complete") && ran.err.contains("--shard 2/3"),
            "{ran:?}"
        );
    }
    fs::write(&files[1], "").expect("it can be written");
    let ran = merged(&folder, &files, &[]);
    assert!(ran.code == 2 && ran.err.contains("its first line names none"), "{ran:?}");
}

#[test]
fn a_shard_may_be_empty() {
    let folder = mixed("shards_empty");
    let arguments = ["specs/others.star", "specs/checks.star", "--only", "meet"];
    let files = sharded(&folder, &folder.join("kept"), 5, &arguments);
    let empty = said(&folder, &[&["check", "--shard", "4/5"], &arguments[..]].concat());
    assert_eq!((empty.code, empty.err.as_str()), (0, ""), "{empty:?}");
    assert_eq!(empty.out, "0 passed, 0 failed; shard 4/5 is empty, because there are 2 cases\n");
    let whole = said(&folder, &[&["check"], &arguments[..]].concat());
    assert_eq!(whole, merged(&folder, &files, &[]));
    // What an empty shard says, or does not, changes nothing.
    let some: Vec<String> =
        files.iter().filter(|file| file.contains("/1-of") || file.contains("/2-of")).cloned().collect();
    assert_eq!(whole, merged(&folder, &some, &[]));
    // A name that nothing has is a mistake in every shard.
    let none = said(&folder, &["check", "specs/others.star", "--only", "nobody", "--shard", "4/5"]);
    assert!(none.code == 2 && none.err.contains("no check has a name like that"), "{none:?}");
}

#[test]
fn a_shard_says_in_its_own_report_that_it_is_one() {
    let (folder, _) = good("shards_own");
    let ran = said(&folder, &["check", "meets.star", "--shard", "3/3", "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(wrong_in(&report), [""; 0]);
    assert_eq!(report["shard"], serde_json::json!({"number": 3, "of": 3, "cases": 8}));
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(2));
    let text = said(&folder, &["check", "meets.star", "--shard", "3/3"]);
    assert!(text.out.ends_with("2 passed, 0 failed; shard 3/3, 2 of 8 cases\n"), "{text:?}");
}

#[test]
fn a_shard_that_is_killed_leaves_no_file_and_one_that_cannot_write_says_so_at_once() {
    let folder = folder("shards_killed");
    let many = "def many(r):
    for n in range(12):
        r.choose(str(n), [\"a\", \"b\", \"c\", \"d\"])
    r.barrier()

check(\"many\", many, ranks = 8, expect = holds())
";
    fs::write(folder.join("many.star"), many).expect("a file can be written");
    fs::write(folder.join("shard.jsonl"), "{\"shard_schema\":0}").expect("a file can be written");
    // Killed, it cannot clean up.
    let line = "timeout --signal=KILL 2 \"$CHECK\" check many.star --naive --shard 1/1 --shard-out shard.jsonl; exit $?";
    let killed =
        Command::new("bash").args(["-c", line]).current_dir(&folder).env("CHECK", command()).output();
    let killed = killed.expect("bash starts");
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
    assert!(!folder.join("shard.jsonl").exists());
    let itself = said(&folder, &["check", "many.star", "--shard", "1/1", "--shard-out", "many.star"]);
    assert!(itself.code == 2 && itself.err.contains("something else than a shard"), "{itself:?}");
    assert_eq!(fs::read_to_string(folder.join("many.star")).expect("it is still there"), many);
    let refused = said(&folder, &["check", "many.star", "--shard", "1/1", "--shard-out", "many.star/below"]);
    assert!(refused.code == 2 && refused.out.is_empty(), "{refused:?}");
    assert!(refused.err.contains("cannot write many.star/below (--shard-out)"), "{refused:?}");
    // Where a trace cannot be written, the shard has not done its work.
    fs::write(
        folder.join("late.star"),
        format!("{MEETS}check(\"late\", meets, late = True, expect = fails(\"HOST-1\"))\n"),
    )
    .expect("a file can be written");
    fs::create_dir_all(folder.join("traces/late.late.trace/in the way")).expect("a folder can be made");
    let arguments =
        ["check", "late.star", "--trace-out", "traces", "--shard", "1/1", "--shard-out", "late.jsonl"];
    let lost = said(&folder, &arguments);
    assert!(lost.code == 2 && lost.err.contains("late.jsonl is not written"), "{lost:?}");
    assert!(!folder.join("late.jsonl").exists());
}
