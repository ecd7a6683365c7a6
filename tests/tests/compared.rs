//! `rankcheck compare`: what differs between two folders or revisions, as text, Markdown and JSON, and its exit codes.
//!
//! Not here: what a whole pull request shows (`pull_request.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use jsonschema::Validator;
use rankcheck_tests::repository::enter;
use serde_json::{Value, json};

use crate::built::{command, folder};
use crate::pull_request::git;

/// Runs the command in a folder. Returns its exit code, what it printed, and what it complained about.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(command()).args(arguments).current_dir(folder).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    (output.status.code().expect("it is not killed"), text(output.stdout), text(output.stderr))
}

fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder can be made");
    fs::write(path, text).expect("a file can be written");
}

/// A check in which all ranks come to so many barriers, and rank 0 to one more if it says so.
fn spec(name: &str, barriers: u32, one_more: bool, expect: &str) -> String {
    format!(
        r#"def program(r):
    r.steady()
    for _ in range({barriers}):
        r.barrier()
    if {more} and r.rank == 0:
        r.barrier()

check("{name}", program, ranks = [2, 4], expect = {expect})
"#,
        more = if one_more { "True" } else { "False" },
    )
}

fn schema() -> &'static Validator {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = fs::read_to_string(enter().join("docs/comparison.schema.json"));
        let text = text.expect("the schema is part of the documentation");
        let schema: Value = serde_json::from_str(&text).expect("it is JSON");
        jsonschema::draft202012::meta::validate(&schema).expect("it is a schema");
        jsonschema::draft202012::new(&schema).expect("it is a schema")
    })
}

/// What is wrong with a comparison, by the schema.
fn wrong_in(comparison: &Value) -> Vec<String> {
    let told = |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    schema().iter_errors(comparison).map(told).collect()
}

/// Runs `compare` with these arguments. What it prints has to fit the schema.
fn as_json(folder: &Path, arguments: &[&str]) -> (i32, Value) {
    let (code, out, err) = run(folder, &[&["compare", "--format", "json"], arguments].concat());
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!(wrong_in(&told), [""; 0], "{told:#}");
    (code, told)
}

fn compared(folder: &Path) -> (i32, Value) {
    as_json(folder, &["old", "new"])
}

#[test]
fn what_is_worse_better_new_gone_and_costlier_is_told() {
    let folder = folder("compare_all");
    let (old, new) = (folder.join("old"), folder.join("new"));
    // The same, the same on other lines, worse, better, costlier, renamed, removed, added.
    let same = spec("same", 1, false, "holds()");
    write(old.join("same.star"), &same);
    write(new.join("same.star"), &same);
    let fails = spec("moved", 1, true, r#"fails("HOST-1")"#);
    write(old.join("moved.star"), &fails);
    write(new.join("moved.star"), &format!("# One line more.\n\n{fails}"));
    write(old.join("deep/worse.star"), &spec("worse", 1, false, "holds()"));
    write(new.join("deep/worse.star"), &spec("worse", 1, true, "holds()"));
    write(old.join("better.star"), &spec("better", 1, true, "holds()"));
    write(new.join("better.star"), &spec("better", 1, false, "holds()"));
    write(old.join("cost.star"), &spec("cost", 2, false, "holds()"));
    write(new.join("cost.star"), &spec("cost", 5, false, "holds()"));
    write(old.join("before.star"), &spec("renamed", 1, false, "holds()"));
    write(new.join("after.star"), &spec("renamed", 1, false, "holds()"));
    write(old.join("removed.star"), &spec("removed", 3, false, "holds()"));
    write(new.join("added.star"), &spec("added", 4, true, r#"fails("HOST-1")"#));
    let (code, told) = compared(&folder);
    assert_eq!(code, 1, "{told:#}");
    let names = |field: &str| -> Vec<String> {
        let entries = told[field].as_array().expect("a list").iter();
        entries
            .map(|entry| {
                format!("{} {}", entry["file"].as_str().unwrap_or("?"), entry["name"].as_str().unwrap_or("?"))
            })
            .collect()
    };
    assert_eq!(names("worse"), ["deep/worse.star worse"]);
    assert_eq!(names("verdicts"), ["better.star better", "deep/worse.star worse"]);
    assert_eq!(names("new_counterexamples"), ["deep/worse.star worse", "added.star added"]);
    assert_eq!(names("gone_counterexamples"), ["better.star better"]);
    assert_eq!(names("added"), ["added.star added"]);
    assert_eq!(names("removed"), ["removed.star removed"]);
    assert_eq!(told["renamed"], json!([{"old": "before.star", "new": "after.star"}]));
    assert_eq!((&told["unchanged"], &told["compared"]), (&json!(1), &json!(5)));
    let verdict = &told["verdicts"][1];
    assert_eq!((&verdict["old"], &verdict["new"]), (&json!("holds"), &json!("fails HOST-1")));
    assert_eq!(verdict["settings"], json!(["2 ranks, NCCL 2.28.9", "4 ranks, NCCL 2.28.9"]));
    let costs: Vec<&Value> =
        told["costs"].as_array().expect("a list").iter().filter(|cost| cost["file"] == "cost.star").collect();
    assert_eq!(costs.len(), 1, "{told:#}");
    assert_eq!(
        (&costs[0]["what"], &costs[0]["old"], &costs[0]["new"]),
        (&json!("barriers"), &json!(2), &json!(5))
    );

    let (code, text, _) = run(&folder, &["compare", "old", "new"]);
    assert_eq!(code, 1);
    for line in [
        "WORSE    deep/worse.star \"worse\"  fails HOST-1",
        "cost     cost.star \"cost\"  barriers: 2 -> 5  (2 ranks, NCCL 2.28.9; 4 ranks, NCCL 2.28.9)",
        "renamed  before.star -> after.star",
        "1 check is worse, 2 verdicts changed, 2 new counterexamples, 1 counterexample gone",
    ] {
        assert!(text.contains(line), "{line:?} is missing in:\n{text}");
    }
    let (code, comment, _) = run(&folder, &["compare", "old", "new", "--format", "markdown"]);
    assert_eq!(code, 1);
    for line in [
        "### rankcheck: **something is worse**",
        "<details><summary>deep/worse.star",
        "FAILS HOST-1",
        "| 2 | 5 |",
    ] {
        assert!(comment.contains(line), "{line:?} is missing in:\n{comment}");
    }
    // No path of this machine, and nothing of what did not change.
    assert!(!comment.contains(&*folder.to_string_lossy()) && !comment.contains("same.star"), "{comment}");

    // The other way round, what was worse is better; what stays wrong in the same way is not worse.
    let back = run(&folder, &["compare", "new", "old"]);
    assert!(
        back.0 == 1 && back.1.contains("WORSE    better.star") && !back.1.contains("WORSE    deep"),
        "{}",
        back.1
    );
    let (code, text, _) = run(&folder, &["compare", "new", "new"]);
    assert!(code == 0 && text.starts_with("nothing is different; 0 compared, 7 in specs"), "{text}");
}

#[test]
fn what_stays_wrong_is_not_worse_and_what_breaks_another_rule_is() {
    let folder = folder("compare_still_wrong");
    let wrong = spec("wrong", 1, true, "holds()");
    write(folder.join("old/a.star"), &wrong);
    write(folder.join("new/a.star"), &format!("# Another line.\n{wrong}"));
    let (code, told) = compared(&folder);
    assert_eq!((code, &told["worse"], &told["compared"]), (0, &json!([]), &json!(1)), "{told:#}");
    let twice = "def program(r):\n    x = r.malloc(\"x\", 4 * MiB)\n    x.free()\n    x.free()\n\n";
    write(
        folder.join("new/a.star"),
        &format!("{twice}check(\"wrong\", program, ranks = [2, 4], expect = holds())\n"),
    );
    let (code, told) = compared(&folder);
    assert_eq!((code, &told["worse"][0]["name"]), (1, &json!("wrong")), "{told:#}");
    assert_eq!(told["gone_counterexamples"][0]["rule"], "HOST-1");
}

#[test]
fn a_bad_spec_is_exit_code_2_where_it_is_new_and_a_note_where_it_was() {
    let folder = folder("compare_bad");
    write(folder.join("old/a.star"), "def program(r)\n");
    write(folder.join("new/a.star"), &spec("a", 1, false, "holds()"));
    let (code, text, _) = run(&folder, &["compare", "old", "new"]);
    assert!(
        code == 0 && text.contains("BAD BEFORE  a.star:1: ") && text.contains("added    a.star"),
        "{text}"
    );
    let (_, told) = compared(&folder);
    assert_eq!(
        (told["bad_before"].as_array().map(Vec::len), &told["bad"]),
        (Some(1), &json!([])),
        "{told:#}"
    );
    let (code, text, _) = run(&folder, &["compare", "new", "old"]);
    assert!(
        code == 2 && text.contains("BAD      a.star:1: ") && text.contains("1 spec cannot be read"),
        "{text}"
    );
}

#[test]
fn a_check_that_a_bound_cuts_is_exit_code_3() {
    let folder = folder("compare_unknown");
    write(folder.join("old/a.star"), &spec("endless", 1, false, "holds()"));
    let endless = r#"def program(r):
    for n in range(6):
        r.choose("n%d" % n, ["a", "b", "c", "d"])
    r.barrier()

check("endless", program, ranks = [2, 8], expect = holds())
"#;
    write(folder.join("new/a.star"), endless);
    let (code, text, _) = run(&folder, &["compare", "old", "new", "--max-states", "300"]);
    assert!(code == 3 && text.contains("UNKNOWN  a.star \"endless\""), "{text}");
    assert!(text.contains("8 ranks") && text.contains("not explored -> unknown"), "{text}");
    let (_, told) = as_json(&folder, &["old", "new", "--max-states", "300"]);
    assert_eq!(told["unknown"][0]["name"], "endless");
    // Of eight ranks nothing was explored before.
    let mut verdicts = told["verdicts"].as_array().expect("a list").iter();
    assert!(verdicts.any(|moved| moved["old"].is_null() && moved["new"].is_string()), "{told:#}");
}

#[test]
fn revisions_are_read_from_git_and_nothing_of_the_repository_is_written() {
    let folder = folder("compare_revisions");
    let repo = folder.join("repo");
    // What specs load lies beside them, and the folder of the specs below the root.
    write(repo.join("sub/specs/lib/more.star"), "MORE = 1\n");
    let loads = |expect: &str| {
        format!(
            "load(\"//lib/more.star\", \"MORE\")\n\ndef program(r):\n    for _ in range(MORE):\n        r.barrier()\n\n\
             check(\"loads\", program, expect = {expect})\n"
        )
    };
    write(repo.join("sub/specs/my loads.star"), &loads("holds(barriers = 0)"));
    git(&repo, &["init", "-q"]);
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "first"]);
    write(repo.join("sub/specs/lib/more.star"), "MORE = 3\n");
    write(repo.join("sub/specs/new.star"), &spec("new", 1, false, "holds()"));
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "second"]);
    // What is not committed is of neither revision.
    write(repo.join("sub/specs/new.star"), "def broken(\n");
    let status = || git(&repo, &["status", "--porcelain"]);
    let before = status();
    let at = |old: &str, new: &str| run(&repo, &["compare", "--repo", "sub", old, new, "specs"]);
    let (code, told) = as_json(&repo, &["--repo", "sub", "HEAD~1", "HEAD", "specs"]);
    assert_eq!(code, 0, "{told:#}");
    assert_eq!(
        (&told["compared"], &told["added"][0]["file"]),
        (&json!(1), &json!("specs/new.star")),
        "{told:#}"
    );
    assert_eq!((status(), before.lines().count()), (before.clone(), 1));
    // Revisions that are none say what to do.
    let (code, _, err) = at("origin/nothing", "HEAD");
    assert!(
        code == 2 && err.contains("there is no commit \"origin/nothing\" in") && err.contains("git fetch"),
        "{err}"
    );
    let (code, _, err) = run(&repo, &["compare", "HEAD~1", "HEAD"]);
    assert!(code == 2 && err.contains("no file or folder HEAD~1") && err.contains("--repo"), "{err}");
    let (code, _, err) = run(&repo, &["compare", "--repo", ".", "HEAD~1", "HEAD"]);
    assert!(code == 2 && err.contains("after the two revisions"), "{err}");
    let (code, _, err) = run(&repo, &["compare", "--repo", ".", "HEAD~1", "HEAD", "nowhere"]);
    assert!(code == 2 && err.contains("neither revision has a spec"), "{err}");
    let (code, _, err) = run(&folder, &["compare", "repo", "repo", "repo"]);
    assert!(code == 2 && err.contains("one too many"), "{err}");
}

/// Specs with parameters, several platforms and real counterexamples, of which each is new, gone, the same or another.
#[test]
fn comparisons_of_systems_fit_the_schema_and_no_other_field_does() {
    let systems = enter().join("specs/systems");
    let folder = folder("compare_systems");
    for (nth, system) in ["sglang-20153-shared-pool", "pytorch-129147-p2p-communicators"].iter().enumerate() {
        let files = fs::read_dir(systems.join(system)).expect("it is there").flatten();
        for file in files.filter(|file| file.path().extension().is_some_and(|ending| ending == "star")) {
            let text = fs::read_to_string(file.path()).expect("it can be read");
            let name = file.file_name().to_string_lossy().into_owned();
            for into in ["old", "new"] {
                // A folder named `specs` is where `//lib/…` starts.
                write(folder.join(into).join("specs/systems").join(system).join(&name), &text);
            }
            // One system is gone, and in the other what fails was to hold.
            let changed = folder.join("new/specs/systems").join(system).join(&name);
            match nth {
                0 => fs::write(
                    changed,
                    text.replace("fails(\"WIN-1\"", "(lambda *rules, **more: holds())(\"WIN-1\""),
                ),
                _ => fs::remove_file(changed),
            }
            .expect("it can be changed");
        }
    }
    for file in fs::read_dir(enter().join("specs/lib")).expect("it is there").flatten() {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        for into in ["old", "new"] {
            write(folder.join(into).join("specs/lib").join(file.file_name()), &text);
        }
    }
    let (code, told) = compared(&folder);
    assert_eq!((code, &told["bad"]), (1, &json!([])), "{told:#}");
    let some = |field: &str| told[field].as_array().is_some_and(|entries| !entries.is_empty());
    for field in ["worse", "removed", "gone_counterexamples"] {
        assert!(some(field), "{field} is empty: {told:#}");
    }
    let (_, back) = as_json(&folder, &["new", "old"]);
    let some = |field: &str| back[field].as_array().is_some_and(|entries| !entries.is_empty());
    assert!(some("added") && some("new_counterexamples"), "{back:#}");
    for path in ["", "/worse/0", "/removed/0", "/gone_counterexamples/0"] {
        let mut edited = told.clone();
        edited.pointer_mut(path).expect("it is there")["another"] = json!(1);
        assert!(!wrong_in(&edited).is_empty(), "another field in {path:?}");
    }
    for path in ["/schema_version", "/worse/0/file", "/gone_counterexamples/0/rule"] {
        let mut edited = told.clone();
        *edited.pointer_mut(path).expect("it is there") = json!(7);
        assert!(!wrong_in(&edited).is_empty(), "another value of {path:?}");
    }
}

#[test]
fn without_git_revisions_cannot_be_read() {
    let arguments = ["compare", "--repo", ".", "HEAD~1", "HEAD", "specs"];
    let output = Command::new(command())
        .args(arguments)
        .current_dir(enter())
        .env("PATH", "/nowhere")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("git cannot be started") && said.contains("install git"), "{said}");
}
