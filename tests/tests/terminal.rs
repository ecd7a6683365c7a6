//! What people at a terminal see: colours, wrapped lines, folders, filters, what Ctrl-C leaves.
//!
//! Not here: what reports say (`specs.rs`), and exit codes of what is piped (`cli.rs`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rankcheck::report::terminal::{Appearance, appearing};
use rankcheck_tests::repository::enter;
use rstest::rstest;
use serde_json::Value;

use crate::built::{command, folder};
use crate::reported::wrong_in;
use crate::specs::verified;

/// Twenty-five checks, of which the last is not as it states.
fn many(folder: &Path) {
    let mut text = "def meets(r):\n    r.barrier()\n\n".to_owned();
    for nth in 0..24 {
        text += &format!("check(\"meets {nth}\", meets, expect = holds())\n");
    }
    text += "check(\"never met\", meets, expect = fails(\"HOST-1\"))\n";
    fs::create_dir_all(folder.join("inner")).expect("a folder can be made");
    fs::write(folder.join("inner/many.star"), text).expect("a file can be written");
}

/// Runs a command line in a terminal of this many columns; returns what it shows and its exit code.
fn on_terminal(folder: &Path, columns: u32, line: &str) -> (String, i32) {
    let output = Command::new("script")
        .args(["-qec", &format!("{} {line}", command().display()), "/dev/null"])
        .current_dir(folder)
        .env("COLUMNS", columns.to_string())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .expect("`script` of util-linux is there");
    let text = String::from_utf8(output.stdout).expect("the command writes UTF-8");
    (text.replace("\r\n", "\n"), output.status.code().unwrap_or(-1))
}

fn piped(folder: &Path, arguments: &[&str]) -> (String, String, i32) {
    let output = Command::new(command()).args(arguments).current_dir(folder).env_remove("NO_COLOR").output();
    let output = output.expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code().unwrap_or(-1))
}

fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out += before;
        rest = after.split_once('m').expect("a colour ends").1;
    }
    out + rest
}

/// Words and the spaces that indent, without where lines end.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn no_word_of_a_report_is_lost_at_any_width() {
    for explained in verified().iter().flat_map(|file| &file.explained) {
        let text = rankcheck::report::text(explained);
        assert_eq!(appearing(&text, Appearance::default()), text);
        let coloured = appearing(&text, Appearance { width: None, colour: true });
        assert_ne!(coloured, text);
        assert_eq!(without_colours(&coloured), text);
        for width in [40, 80, 120] {
            let wrapped = appearing(&text, Appearance { width: Some(width), colour: false });
            assert_eq!(words(&wrapped), words(&text));
            let coloured = appearing(&text, Appearance { width: Some(width), colour: true });
            assert_eq!(without_colours(&coloured), wrapped);
            let is_picture =
                |line: &&str| line.contains('│') || line.trim_start().starts_with(['╭', '╰', '·']);
            for line in wrapped.lines().filter(|line| !is_picture(line)) {
                // A word may be longer than a line; a label and spaces stand before it.
                let is_word = !line.get(12..).unwrap_or(line).trim().contains(' ');
                assert!(line.chars().count() <= width || is_word, "{width}: {line}");
            }
        }
    }
}

#[test]
fn what_follows_a_label_stays_beside_it() {
    let text = "FAILS WIN-1  x.star \"a\"   2 ranks\n  rank 0    … [tp.all_reduce(x, y)]  y = p.alloc(4 MiB)";
    let wrapped = appearing(text, Appearance { width: Some(40), colour: false });
    let shown = "FAILS WIN-1  x.star \"a\"   2 ranks\n  rank 0    … [tp.all_reduce(x, y)]\n            y = p.alloc(4 MiB)";
    assert_eq!(wrapped, shown);
    let coloured = appearing("FAILS WIN-1  x", Appearance { width: None, colour: true });
    assert_eq!(coloured, "\u{1b}[1m\u{1b}[31mFAILS WIN-1\u{1b}[0m  x");
    // A word that only begins as a verdict does is none.
    let plain = "HOLDSTEIN is a place";
    assert_eq!(appearing(plain, Appearance { width: None, colour: true }), plain);
}

#[test]
fn colours_are_where_they_are_asked_for() {
    let folder = folder("colours");
    many(&folder);
    let (plain, _, code) = piped(&folder, &["check", "."]);
    assert_eq!((plain.contains('\u{1b}'), code), (false, 1));
    let (always, _, _) = piped(&folder, &["check", ".", "--color", "always"]);
    assert!(always.contains("\u{1b}[1m\u{1b}[32mHOLDS\u{1b}[0m"), "{always}");
    assert_eq!(without_colours(&always), plain);
    let forced = Command::new(command())
        .args(["check", "."])
        .current_dir(&folder)
        .env_remove("NO_COLOR")
        .env("CLICOLOR_FORCE", "1")
        .output();
    let forced = String::from_utf8(forced.expect("it starts").stdout).expect("UTF-8");
    assert_eq!(forced, always);
    let (json, _, _) = piped(&folder, &["check", ".", "--color", "always", "--format", "json"]);
    serde_json::from_str::<Value>(&json).expect("JSON has no colours");
    let (never, _) = on_terminal(&folder, 100, "check . --color never 2>/dev/null");
    assert!(!never.contains('\u{1b}'), "{never}");
}

#[test]
fn many_checks_are_told_by_folder_on_a_terminal() {
    let folder = folder("by_folder");
    many(&folder);
    let (text, code) = on_terminal(&folder, 60, "check . 2>/dev/null");
    let text = without_colours(&text);
    assert_eq!(code, 1, "{text}");
    for wanted in
        ["./inner    24 as expected, 1 not", "NOT AS EXPECTED", "\"never met\"", "24 passed, 1 failed"]
    {
        assert!(text.contains(wanted), "{wanted:?} is missing: {text}");
    }
    assert!(!text.contains("meets 7"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    let (all, _) = on_terminal(&folder, 60, "check . -v 2>/dev/null");
    assert!(all.contains("\"meets 7\"") && !all.contains("as expected,"), "{all}");
    let (piped, _, _) = piped(&folder, &["check", "."]);
    assert!(piped.contains("\"meets 7\"") && !piped.contains("as expected,"), "{piped}");
}

#[test]
fn help_and_errors_are_wrapped_between_words() {
    let narrow = |line: &str| {
        // What the terminal itself says counts for help, `COLUMNS` for errors.
        let output = Command::new("script")
            .args(["-qec", &format!("stty cols 60; {} {line}", command().display()), "/dev/null"])
            .current_dir(enter())
            .env("COLUMNS", "60")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("`script` of util-linux is there");
        String::from_utf8(output.stdout).expect("the command writes UTF-8").replace("\r\n", "\n")
    };
    for line in ["--help", "check --help", "check specs --list --system nothing-like-it"] {
        let text = narrow(line);
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 60).collect();
        assert!(long.is_empty() && text.lines().count() > 3, "{line}: {long:?}: {text}");
    }
    // A name is never cut at a hyphen.
    let text = narrow("check specs --list --system nothing-like-it");
    assert!(text.contains("\"pytorch-138029-persistent-comm-buffers\""), "{text}");
    let (_, err, _) = piped(enter(), &["check", "specs", "--list", "--system", "nothing-like-it"]);
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn what_is_over_at_once_shows_no_progress() {
    let folder = folder("no_progress");
    many(&folder);
    let (text, _) = on_terminal(&folder, 80, "check . --only 'meets 7' --color never");
    assert!(!text.contains('░') && !text.contains('█') && text.contains("HOLDS"), "{text}");
    let (text, _) = on_terminal(&folder, 80, &format!("check {} --max-seconds 3 --jobs 1", long(&folder)));
    assert!(text.contains(" in work, ") && !text.contains(" 0s "), "{text}");
}

/// Each line: arguments, exit code, what is printed, and what is not.
#[rstest]
#[case("--list --rule WIN-1 --system sglang-9358", 0, ": fails WIN-1", ": holds: ")]
#[case("--list --verdict holds --system nvfuser", 0, ": holds: ", ": fails ")]
#[case("--list --system sglang-9538", 2, "did you mean \"sglang-9358-dp-symmetric-memory\"", "passed")]
#[case(
    "--list --verdict unexpected --system sglang-20153",
    2,
    "no check states that it is unexpected (--verdict; --list searches nothing); checks state: 24 fails, 18 holds",
    "passed"
)]
#[case("--jobs 0", 2, "give a number from 1 on", "passed")]
#[case("--list --rule OVERLAP-1 --system sglang-9358", 2, "the rules that checks state: ", ": holds: ")]
#[case(
    "--only deregistered-twice --system sglang-9358",
    2,
    "no check has a name like that (--only)",
    "passed"
)]
#[case(
    "--system sglang-20153 --verdict unexpected",
    0,
    "nothing has the verdict \"unexpected\" (--verdict); there are: ",
    "FAILS"
)]
#[case("--system sglang-20153 --verdict holds", 0, "of these not shown", "FAILS WIN-2")]
#[case("--system sglang-20153 --rule WIN-2", 0, "FAILS WIN-2", "\nHOLDS")]
#[case("--verdict fail", 2, "fails", "passed")]
fn a_filter_leaves_what_it_says(
    #[case] line: &str,
    #[case] code: i32,
    #[case] has: &str,
    #[case] has_not: &str,
) {
    let mut arguments = vec!["check", "specs/systems"];
    arguments.extend(line.split(' '));
    let (out, err, ended) = piped(enter(), &arguments);
    assert_eq!(ended, code, "{out}{err}");
    assert!(format!("{out}{err}").contains(has), "{has:?} is missing: {out}{err}");
    assert!(!out.contains(has_not), "{has_not:?} is there: {out}");
}

#[test]
fn a_filter_hides_no_failure_from_the_exit_code() {
    let folder = folder("hides_nothing");
    many(&folder);
    let (out, _, code) = piped(&folder, &["check", ".", "--only", "me", "--verdict", "holds"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("24 passed, 1 failed"), "{out}");
    let (json, _, code) = piped(&folder, &["check", ".", "--verdict", "unexpected", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((json["checks"].as_array().map(Vec::len), code), (Some(1), 1));
}

/// A program with more states than anybody waits for, after one that is over at once.
const LONG: &str = r#"
def short(r):
    r.barrier()

def long(r):
    for nth in range(12):
        r.store.set("key %d" % (r.choose("n%d" % nth, list(range(8))) + 8 * nth), nth)
    r.barrier()

check("short", short, expect = holds())
check("long", long, ranks = 3, expect = holds())
check("never begun", short, expect = holds())
"#;

/// Writes that program, and returns its file.
fn long(folder: &Path) -> &'static str {
    fs::write(folder.join("long.star"), LONG).expect("a file can be written");
    "long.star"
}

fn interrupted(folder: &Path, more: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new("timeout")
        .args(["--preserve-status", "-s", "INT", "3"])
        .arg(command())
        .args(["check", long(folder), "--jobs", "1"])
        .args(more)
        .current_dir(folder)
        .output()
        .expect("`timeout` is there");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn what_is_interrupted_tells_what_was_done() {
    let folder = folder("interrupted");
    let (out, err, code) = interrupted(&folder, &[]);
    assert_eq!(code, Some(130), "{out}{err}");
    for wanted in [
        "HOLDS long.star \"short\"",
        "UNKNOWN  long.star \"long\"",
        "reason    interrupted after ",
        "1 passed, 0 failed, 1 unknown; interrupted, 1 check was not begun",
    ] {
        assert!(out.contains(wanted), "{wanted:?} is missing: {out}{err}");
    }
    assert!(err.contains("Ctrl-C again ends at once"), "{err}");
    let (out, _, code) = interrupted(&folder, &["--format", "json"]);
    let json: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(wrong_in(&json), [""; 0]);
    assert_eq!((json["interrupted"][0]["name"].as_str(), code), (Some("never begun"), Some(130)));
    assert_eq!(json["checks"][1]["verdict"], "unknown");
}

#[test]
fn what_init_writes_holds_and_is_never_overwritten() {
    let folder = folder("init");
    let (out, err, code) = piped(&folder, &["init"]);
    assert_eq!(code, 0, "{out}{err}");
    let (out, err, code) = piped(&folder, &["check", "specs"]);
    assert!(code == 0 && out.contains("1 passed, 0 failed"), "{out}{err}");
    // What the spec says of itself: with a rank's own answer it hangs.
    let spec = folder.join("specs/first.star");
    let text = fs::read_to_string(&spec).expect("it was written");
    let own = text.replace("    if not all_have_room:", "    if not has_room:");
    assert_ne!(own, text);
    fs::write(&spec, &own).expect("a file can be written");
    let (out, _, code) = piped(&folder, &["check", "specs"]);
    assert!(code == 1 && out.contains("FAILS WIN-1"), "{out}");
    fs::remove_file(folder.join(".github/workflows/rankcheck.yml")).expect("it was written");
    let (_, err, code) = piped(&folder, &["init"]);
    assert!(code == 2 && err.contains("specs/first.star already exists, and nothing was written"), "{err}");
    assert_eq!(fs::read_to_string(&spec).expect("it is there"), own);
    assert!(!folder.join(".github/workflows/rankcheck.yml").exists());
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let (out, _, code) = piped(enter(), &["completions", shell]);
        assert!(code == 0 && out.contains("timeline") && out.contains("max-memory"), "{shell}: {out}");
    }
    let (bash, _, _) = piped(enter(), &["completions", "bash"]);
    let read = format!("{bash}\ncomplete -p rankcheck");
    let shell = Command::new("bash").args(["-c", &read]).output().expect("bash starts");
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
}
