//! The command as people and pipelines see it: exit codes, what it prints, traces, drift.
//!
//! Not here: diagnostics of bad specs (`broken.rs`), and what the reports of specs say (`specs.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rankcheck_tests::recording::{Run, Saved};
use rankcheck_tests::repository::{differs_from_golden, enter};
use rstest::{Context, rstest};
use serde_json::Value;

use crate::built::{command, folder};
use crate::reported::wrong_in;

/// Fails if a rank leaves early.
const LEAVES: &str = r#"def program(r):
    if r.choose("leave", ["no", "yes"]) == "no":
        r.barrier()

check("a rank leaves early", program, ranks = 2, expect = fails("HOST-1"))
"#;

pub(crate) struct Ran {
    code: i32,
    pub(crate) out: String,
    err: String,
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ran {
    let output = Command::new(command())
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .expect("the command starts");
    Ran {
        code: output.status.code().expect("the command is not killed"),
        out: String::from_utf8(output.stdout).expect("the command writes UTF-8"),
        err: String::from_utf8(output.stderr).expect("the command writes UTF-8"),
    }
}

pub(crate) fn wants(ran: &Ran, code: i32, words: &[&str]) {
    let text = format!("{}\n{}", ran.out, ran.err);
    assert_eq!(ran.code, code, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("a file can be written");
}

#[test]
fn rules_are_as_expected() {
    let ran = run(enter(), &["check", "specs/rules"]);
    wants(&ran, 0, &[" passed, 0 failed"]);
}

#[test]
fn a_wrong_expectation_is_exit_code_1_with_its_reason() {
    let folder = folder("wrong_expectation");
    let text = fs::read_to_string(enter().join("specs/rules/flag.star")).expect("the rules are there");
    let right = r#"check("FLAG-1 broken", signal, acknowledge = False, expect = fails("FLAG-1"))"#;
    assert!(text.contains(right), "the spec was edited, so edit this test");
    write(&folder, "flag.star", &text.replace(right, &right.replace(r#"fails("FLAG-1")"#, "holds()")));
    let ran = run(&folder, &["check", "flag.star"]);
    let why = ["\"FLAG-1 broken\"", "NOT AS EXPECTED", "expected to hold, but it fails FLAG-1", "1 failed"];
    wants(&ran, 1, &why);
    let ran = run(&folder, &["check", "flag.star", "--quiet"]);
    wants(&ran, 1, &why);
    assert!(!ran.out.contains("FLAG-1 kept"), "{}", ran.out);
    wants(&run(&folder, &["check", "flag.star", "--only", "kept"]), 0, &["3 passed, 0 failed"]);
}

#[test]
fn an_error_of_several_checks_is_told_once() {
    let folder = folder("told_once");
    let checks = "check(\"one\", program)\ncheck(\"two\", program)\n";
    write(&folder, "twice.star", &format!("def program(r):\n    r.chose(\"a\", [1, 2])\n\n{checks}"));
    let ran = run(&folder, &["check", "twice.star"]);
    assert_eq!((ran.code, ran.err.matches("`chose`").count()), (2, 1), "{}", ran.err);
    wants(&ran, 2, &["here, in \"one\" with 2 ranks, and in 1 more"]);
}

#[test]
fn a_bad_spec_is_exit_code_2_whatever_else_is_right() {
    let folder = folder("bad_spec");
    write(&folder, "leaves.star", LEAVES);
    write(&folder, "bad.star", "def program(r)\n    pass\n");
    // A file that others load states nothing, wherever it lies.
    write(&folder, "shared.star", "def helper(r):\n    r.barrier()\n");
    let ran = run(&folder, &["check", "."]);
    wants(&ran, 2, &["bad.star:1", "a rank leaves early", "1 passed, 0 failed", "1 could not be checked"]);
    let ran = run(&folder, &["check", ".", "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(1));
    let errors = report["errors"].as_array().expect("errors are a list");
    assert_eq!(errors.len(), 1);
    assert!(errors[0]["at"].as_str().is_some_and(|at| at.contains("bad.star:1")), "{errors:?}");
    // Whoever names the file wants to know that it states nothing.
    wants(&run(&folder, &["check", "shared.star"]), 2, &["shared.star states no check"]);
}

#[test]
fn every_broken_rule_can_be_shown_and_waived() {
    let folder = folder("rules_of_one_check");
    let twice = r#"def program(r):
    x = r.malloc("x", 4 * MiB)
    r.ipc.open(r.ipc.export(x))
    x.free()
    x.free()

"#;
    write(
        &folder,
        "plain.star",
        &format!("{twice}check(\"t\", program, expect = fails(\"MEM-3\", also = [\"IPC-1\"]))\n"),
    );
    let ran = run(&folder, &["check", "plain.star"]);
    let (first, other) =
        if ran.out.contains("FAILS MEM-3") { ("MEM-3", "IPC-1") } else { ("IPC-1", "MEM-3") };
    wants(&ran, i32::from(first != "MEM-3"), &[&format!("also      {other} (--rule {other})")]);
    let shown = run(&folder, &["check", "plain.star", "--rule", other]);
    wants(
        &shown,
        ran.code,
        &[&format!("FAILS {other}"), &format!("rule      {other}"), &format!("also      {first}")],
    );
    wants(
        &run(&folder, &["check", "plain.star", "--rule", "WIN-2"]),
        ran.code,
        &["no run breaks WIN-2 (--rule)", "IPC-1", "MEM-3"],
    );
    wants(&run(&folder, &["check", "plain.star", "--rule", "WIN-99"]), 2, &["WIN-99"]);
    let check =
        |waive: &str| format!("{twice}check(\"t\", program, expect = holds(), waive = {{{waive}}})\n");
    write(&folder, "waived.star", &check(r#""MEM-3": "it is only freed", "IPC-1": "a test""#));
    wants(
        &run(&folder, &["check", "waived.star"]),
        0,
        &["HOLDS", "MEM-3: it is only freed", "IPC-1: a test"],
    );
    write(&folder, "no_reason.star", &check(r#""MEM-3": "", "IPC-1": "a test""#));
    wants(&run(&folder, &["check", "no_reason.star"]), 2, &["gives no reason for MEM-3"]);
    write(&folder, "unknown.star", &check(r#""MEM-33": "a test""#));
    wants(&run(&folder, &["check", "unknown.star"]), 2, &["there is no rule \"MEM-33\""]);
}

/// What documents show is what the command prints: the text of each block stands in the output as it is.
#[rstest]
#[case("README.md")]
#[case("docs/hung-job.md")]
fn a_document_shows_what_the_command_prints(#[case] document: &str) {
    let read = fs::read_to_string(enter().join(document)).expect("it is there");
    let mut shown = 0;
    for block in read.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let (command, text) = block.split_once('\n').expect("a command and what it prints");
        let command = command.split("  #").next().unwrap_or(command).trim();
        let Some(arguments) = command.strip_prefix("$ rankcheck ") else { continue };
        let output = Command::new("bash")
            .args(["-c", &format!("\"$CHECK\" {arguments}")])
            .current_dir(enter())
            .env("CHECK", crate::built::command())
            .env("NO_COLOR", "1")
            .output()
            .expect("bash starts");
        let printed = String::from_utf8(output.stdout).expect("the command writes UTF-8");
        assert!(
            printed.contains(text.trim_end()),
            "{command} prints\n{printed}\nand {document} shows\n{text}"
        );
        shown += 1;
    }
    assert!(shown > 1, "{document} shows {shown} reports");
}

#[test]
fn a_link_to_a_folder_above_is_followed_once() {
    let folder = folder("link");
    write(&folder, "leaves.star", LEAVES);
    std::os::unix::fs::symlink(".", folder.join("here")).expect("a link can be made");
    wants(&run(&folder, &["check", "."]), 0, &["1 passed, 0 failed"]);
}

#[test]
fn output_that_is_lost_is_an_error_and_a_reader_that_goes_away_is_none() {
    let folder = folder("lost_output");
    write(&folder, "leaves.star", LEAVES);
    let ran = |script: &str| {
        let shell =
            Command::new("bash").arg("-c").arg(script).current_dir(&folder).env("CHECK", command()).output();
        let output = shell.expect("bash starts");
        let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    };
    wants(&ran("$CHECK check leaves.star >/dev/full"), 2, &["the output is not complete"]);
    wants(&ran("$CHECK check leaves.star --format json >/dev/full"), 2, &["the output is not complete"]);
    for command in ["check leaves.star", "explain WIN-1", "explain HOST-1"] {
        let left = ran(&format!("$CHECK {command} | head -c 1; exit ${{PIPESTATUS[0]}}"));
        assert_eq!((left.code, left.err.as_str()), (0, ""), "{command}");
    }
    // Nothing is explored before the traces can be written.
    write(&folder, "file", "");
    wants(&run(&folder, &["check", "leaves.star", "--trace-out", "file/below"]), 2, &["cannot write"]);
}

/// Two four-way decisions of each rank: few states for two ranks, many for eight.
const TWO_DECISIONS: &str = r#"def decisions(r):
    for n in ["first", "second"]:
        r.choose(n, ["a", "b", "c", "d"])
    r.step(r.choose("third", ["a", "b"]))

def early(r, late):
    for n in ["first", "second"]:
        r.choose(n, ["a", "b", "c", "d"])
    if late or r.rank == 0:
        r.barrier()
"#;

#[test]
fn a_check_of_which_a_run_was_cut_does_not_hold() {
    let folder = folder("cut_run");
    let text = |checks: &str| format!("{TWO_DECISIONS}\n{checks}\n");
    write(&folder, "cut.star", &text(r#"check("t", decisions, ranks = [2, 8], expect = holds())"#));
    for quiet in [&[][..], &["--quiet"]] {
        let ran = run(
            &folder,
            &[&["check", "cut.star", "--merge-from", "1000000", "--max-states", "2000"][..], quiet].concat(),
        );
        wants(
            &ran,
            3,
            &["UNKNOWN  cut.star \"t\"   8 ranks", "holds     2 ranks", "0 passed, 0 failed, 1 unknown"],
        );
        assert!(!ran.out.contains("HOLDS"), "{}", ran.out);
    }
    // One parameter of several, and a failure beside a run that was cut.
    let each = r#"check("e", early, ranks = [2, 8], late = each([True]), expect = holds())"#;
    write(&folder, "cut.star", &text(each));
    wants(
        &run(&folder, &["check", "cut.star", "--merge-from", "1000000", "--max-states", "2000"]),
        3,
        &["UNKNOWN", "8 ranks", "holds     2 ranks"],
    );
    let fails = r#"check("f", early, ranks = [2, 8], late = False, expect = fails("HOST-1"))"#;
    write(&folder, "cut.star", &text(fails));
    let ran = run(&folder, &["check", "cut.star", "--merge-from", "1000000", "--max-states", "2000"]);
    wants(&ran, 3, &["FAILS HOST-1", "unknown   8 ranks", "--max-states"]);
}

#[test]
fn a_bound_is_exit_code_3_and_names_its_flag() {
    let folder = folder("bound");
    write(&folder, "leaves.star", LEAVES);
    let cases = [("--max-states", "1"), ("--max-choices", "0")];
    for (flag, value) in cases {
        let ran = run(&folder, &["check", "leaves.star", flag, value]);
        wants(&ran, 3, &["UNKNOWN", flag, "0 passed, 0 failed, 1 unknown"]);
        let ran = run(&folder, &["check", "leaves.star", flag, value, "--format", "json"]);
        wants(&ran, 3, &[r#""verdict": "unknown""#, r#""expected": false"#, flag]);
    }
    // Enough operations for the bound on a run.
    write(
        &folder,
        "leaves.star",
        &LEAVES.replace("    if", "    for _ in range(100):\n        r.step(\"work\")\n    if"),
    );
    wants(&run(&folder, &["check", "leaves.star", "--max-steps", "10"]), 3, &["UNKNOWN", "--max-steps"]);
    // A check that holds within the bound is not known to hold either.
    write(&folder, "leaves.star", &LEAVES.replace(r#"fails("HOST-1")"#, "holds()"));
    wants(&run(&folder, &["check", "leaves.star", "--max-states", "1"]), 3, &["UNKNOWN"]);
}

#[test]
fn the_json_report_has_the_documented_fields() {
    let ran = run(enter(), &["check", "specs/rules/window.star", "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(report["schema_version"], 1);
    let checks = report["checks"].as_array().expect("checks are a list");
    assert!(checks.len() > 10, "{} entries", checks.len());
    let fields = [
        "file",
        "name",
        "ranks",
        "params",
        "platform",
        "verdict",
        "rules",
        "class",
        "outcomes",
        "assumptions",
        "costs",
        "expected",
        "steps",
        "states",
        "executions",
        "milliseconds",
    ];
    for entry in checks {
        let entry = entry.as_object().expect("an entry is an object");
        for field in fields {
            assert!(entry.contains_key(field), "{field} is missing in {entry:?}");
        }
        let fails = entry["verdict"] == "fails";
        assert_eq!(entry["rules"].as_array().is_some_and(|rules| !rules.is_empty()), fails, "{entry:?}");
        assert_eq!(entry["file"], "specs/rules/window.star");
    }
}

#[test]
fn rules_are_explained_by_their_id() {
    wants(&run(enter(), &["explain", "WIN-2"]), 0, &["WIN-2 ", "Source:", "Spec:"]);
    wants(&run(enter(), &["explain", "win-2"]), 0, &["WIN-2 "]);
    wants(&run(enter(), &["explain", "COMM-4"]), 0, &["COMM-4 ", "threadsafety", "Source:", "Spec:"]);
    for rule in rankcheck_model::Rule::ALL {
        assert!(rankcheck::rules::text_of(rule.id()).is_some(), "the command knows no text of {rule}");
    }
}

fn recorded(folder: &Path, spec: &str) -> String {
    write(folder, "leaves.star", spec);
    let told =
        "wrote traces/leaves.a-rank-leaves-early.trace; to run it again: rankcheck replay traces/leaves";
    wants(&run(folder, &["check", "leaves.star", "--trace-out", "traces"]), 0, &["FAILS HOST-1", told]);
    let entries = fs::read_dir(folder.join("traces")).expect("the folder was made");
    let files: Vec<String> = entries
        .map(|entry| entry.expect("entries can be listed").file_name().into_string().expect("an ASCII name"))
        .collect();
    assert_eq!(files, ["leaves.a-rank-leaves-early.trace"], "one trace, and nothing partial");
    format!("traces/{}", files[0])
}

#[test]
fn a_trace_breaks_the_rule_again() {
    let folder = folder("replay");
    let trace = recorded(&folder, LEAVES);
    let ran = run(&folder, &["replay", &trace]);
    wants(&ran, 0, &["again breaks HOST-1", "ends: ", "leaves.star:3"]);
    assert!(!ran.out.contains("edited"), "{}", ran.out);
    // An edit that leaves the choices as they are.
    write(&folder, "leaves.star", &format!("# One line more.\n{LEAVES}"));
    wants(&run(&folder, &["replay", &trace]), 0, &["again breaks HOST-1", "edited since", "leaves.star:4"]);
    // The choice goes, and what it decided stays.
    let repaired = LEAVES.replace("        r.barrier()", "        r.step(\"left\")\n    r.barrier()");
    write(&folder, "leaves.star", &repaired);
    wants(&run(&folder, &["replay", &trace]), 0, &["no longer breaks HOST-1"]);
}

#[test]
fn a_trace_of_an_edited_spec_names_the_first_choice_that_no_longer_fits() {
    let folder = folder("misfit");
    let trace = recorded(&folder, LEAVES);
    let without = LEAVES.replace(r#"r.choose("leave", ["no", "yes"]) == "no""#, "True");
    write(&folder, "leaves.star", &without);
    let ran = run(&folder, &["replay", &trace]);
    wants(&ran, 2, &["choice 1 of the trace no longer fits", "leave", "the spec was edited"]);
}

#[test]
fn drift_lists_the_quotes_that_are_gone() {
    let folder = folder("drift");
    let quotes = "code(\"engine/pool.py\", \"def alloc(\")\ncode(\"engine/pool.py\", \"def grow(\")\n";
    write(&folder, "leaves.star", &format!("{quotes}{LEAVES}"));
    fs::create_dir_all(folder.join("repo/engine")).expect("a folder can be made");
    write(&folder, "repo/engine/pool.py", "def alloc(size):\n    pass\n");
    let ran = run(&folder, &["drift", "--repo", "repo", "leaves.star"]);
    wants(&ran, 1, &["leaves.star:2", "def grow(", "2 quotes, 1 gone"]);
    assert!(!ran.out.contains("def alloc("), "{}", ran.out);
    write(&folder, "repo/engine/pool.py", "def alloc(size):\ndef grow(self):\n");
    wants(&run(&folder, &["drift", "--repo", "repo", "leaves.star"]), 0, &["2 quotes, 0 gone"]);
}

#[test]
fn without_a_gpu_commands_say_what_is_missing() {
    if rankcheck::device::testbed::find().require(2).is_ok() {
        println!("this machine has GPUs");
        return;
    }
    let folder = folder("no_gpu");
    let trace = recorded(&folder, LEAVES);
    let looked_for = ["missing: ", "looked for", "LD_LIBRARY_PATH"];
    wants(&run(&folder, &["diff", "leaves.star"]), 4, &looked_for);
    wants(&run(&folder, &["replay", &trace, "--gpu"]), 4, &looked_for);
    wants(&run(enter(), &["contract"]), 4, &looked_for);
    wants(&run(&folder, &["doctor"]), 4, &["GPUs       none found", "can run", "cannot run; missing: "]);
}

fn edited(trace: &str, edit: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(trace).expect("a trace is JSON");
    edit(&mut value);
    value.to_string()
}

/// Returns a folder with what mistakes are about, made once.
fn mistakes() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = folder("mistakes");
        let trace = recorded(&folder, LEAVES);
        let trace = fs::read_to_string(folder.join(trace)).expect("it was just written");
        fs::create_dir_all(folder.join("empty")).expect("a folder can be made");
        write(&folder, "library.star", "def program(r):\n    r.barrier()\n");
        write(&folder, "truncated.trace", &trace[..trace.len() / 2]);
        write(&folder, "schema.trace", &edited(&trace, |t| t["schema_version"] = 99.into()));
        write(&folder, "renamed.trace", &edited(&trace, |t| t["check"] = "another".into()));
        write(&folder, "moved.trace", &edited(&trace, |t| t["file"] = "gone.star".into()));
        write(&folder, "ranks.trace", &edited(&trace, |t| t["ranks"] = 1.into()));
        write(&folder, "pick.trace", &edited(&trace, |t| t["choices"][0]["picks"][0] = 7.into()));
        folder
    })
}

/// The golden of `a_case` is `tests/broken/command/a_case.stderr`.
#[rstest]
#[case::empty_folder(&["check", "empty"])]
#[case::missing_file(&["check", "nowhere.star"])]
#[case::no_path(&["check"])]
#[case::wrong_flag(&["check", "leaves.star", "--max-state", "5"])]
#[case::wrong_platform(&["check", "leaves.star", "--platform", "2.29.1"])]
#[case::wrong_format(&["check", "leaves.star", "--format", "xml"])]
#[case::negative_time(&["check", "leaves.star", "--max-seconds=-1"])]
#[case::number_of_states_that_is_none(&["check", "leaves.star", "--max-states", "many"])]
#[case::no_check_of_that_name(&["check", "leaves.star", "--only", "nobody"])]
#[case::only_a_library(&["check", "library.star"])]
#[case::unknown_rule(&["explain", "WIN-99"])]
#[case::missing_trace(&["replay", "nowhere.trace"])]
#[case::truncated_trace(&["replay", "truncated.trace"])]
#[case::trace_of_another_schema(&["replay", "schema.trace"])]
#[case::trace_of_a_check_that_is_gone(&["replay", "renamed.trace"])]
#[case::trace_of_a_spec_that_is_gone(&["replay", "moved.trace"])]
#[case::trace_with_other_ranks(&["replay", "ranks.trace"])]
#[case::trace_with_a_pick_that_is_none(&["replay", "pick.trace"])]
#[case::budget_that_is_none(&["diff", "leaves.star", "--budget", "soon"])]
#[case::no_runs(&["diff", "leaves.star", "--runs", "0"])]
#[case::resume_without_record(&["diff", "leaves.star", "--resume"])]
#[case::missing_library(&["diff", "leaves.star", "--nccl", "nowhere/libnccl.so"])]
#[case::observations_that_are_none(&["observe", "unpack", "truncated.trace"])]
#[case::shard_before_the_first(&["check", "leaves.star", "--shard", "0/3"])]
#[case::shard_after_the_last(&["check", "leaves.star", "--shard", "4/3"])]
#[case::shard_of_none(&["check", "leaves.star", "--shard", "1/0"])]
#[case::shard_that_is_none(&["check", "leaves.star", "--shard", "one/3"])]
#[case::shard_out_without_shard(&["check", "leaves.star", "--shard-out", "shard.jsonl"])]
#[case::shard_of_programs_after_the_last(&["diff", "leaves.star", "--shard", "4/3"])]
#[case::merge_of_what_is_no_shard(&["merge", "truncated.trace"])]
#[case::drift_without_repository(&["drift", "--repo", "nowhere", "leaves.star"])]
fn a_mistake_at_the_prompt_gets_its_diagnostic(#[context] context: Context, #[case] arguments: &[&str]) {
    let ran = run(mistakes(), arguments);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let name = context.description.expect("every case has a name");
    let golden = enter().join(format!("tests/broken/command/{name}.stderr"));
    assert_eq!(differs_from_golden(&golden, &ran.err), None);
}

#[test]
fn a_directory_of_a_recorded_run_is_judged() {
    let mut recorded = Run::new(2);
    recorded.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(4 << 20), process.stream());
        process.from("train.py:3", |p| p.all_reduce(comm, buffer, 1024 << rank, stream));
        process.synchronize(stream);
    });
    recorded.exit();
    let saved = recorded.save("command");
    let path = saved.folder.to_string_lossy().into_owned();
    let ran = run(enter(), &["check", &path, "--format", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let json: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    let entry = &json["recordings"][0];
    assert_eq!(entry["verdict"], "fails");
    assert_eq!(entry["class"], "latent");
    assert_eq!(entry["primary"], "COLL-3");
    assert_eq!(entry["findings"][0]["at"][1]["place"], "train.py:3");
    let ran = run(enter(), &["check", &path, "specs/rules/group.star", "--quiet"]);
    wants(&ran, 1, &["FAILS COLL-3", "passed, 1 failed"]);
    let output = saved.folder.join("timeline.json").to_string_lossy().into_owned();
    wants(&run(enter(), &["timeline", &path, "-o", &output]), 0, &["timeline.json"]);
    let empty = folder("no_recording");
    wants(&run(&empty, &["timeline", "."]), 2, &["holds no recording"]);
    // The runs of a night lie in folders of one folder.
    for night in ["monday", "tuesday"] {
        fs::create_dir(empty.join(night)).expect("it can be made");
        let file = |name: &str| saved.folder.join(name);
        fs::copy(file("rankrec.0"), empty.join(night).join("rankrec.0")).expect("it was recorded");
    }
    wants(&run(&empty, &["timeline", "."]), 2, &["several runs", "./monday", "./tuesday"]);
}

#[test]
fn a_list_says_from_which_parameters_on_a_check_holds() {
    let listed = run(enter(), &["check", "specs/systems/sglang-20153-shared-pool/fifo.star", "--list"]);
    wants(&listed, 0, &["holds from preallocated = 3 on, fails below: g: preallocation"]);
}

#[test]
fn a_repair_names_operands_and_says_what_becomes_of_memory_that_is_not_freed() {
    let folder = folder("repairs_in_words");
    let lent = "def lend(r):
    if r.rank == 0:
        page = r.malloc(\"page\", 2 * MiB)
        r.store.set(\"page\", r.ipc.export(page))
        page.free()
    else:
        r.ipc.open(r.store.get(\"page\"))

check(\"lend\", lend)
";
    write(&folder, "lend.star", lent);
    let kept =
        "without page.free (lend.star:5), whose memory then stays to the end of the program: holds at 2";
    wants(
        &run(&folder, &["check", "lend.star"]),
        1,
        &["FAILS IPC-2", kept, "a test that wants this failure"],
    );
    let raced = "def step(r):
    tp = r.comm(\"tp\", r.world)
    grads, out, s = r.malloc(\"grads\", MiB), r.malloc(\"out\", MiB), r.stream(\"s\")
    tp.all_reduce(grads, stream = s)
    r.copy(out, grads)
    r.synchronize()

check(\"step\", step)
";
    write(&folder, "step.star", raced);
    wants(&run(&folder, &["check", "step.star"]), 1, &["FAILS MEM-2", "before copy grads to out"]);
}

/// A send that NCCL holds is over before its receive: it does not say that the other rank has set a key by then.
#[test]
fn what_only_blocks_says_nothing_of_a_key() {
    let folder = folder("send_as_acknowledgement");
    let program = "def epochs(r, by, meet):
    c = r.comm(\"c\", r.world)
    x, y = r.mem_alloc(\"x\", KiB), r.mem_alloc(\"y\", KiB)
    r.group(lambda: (c.send(x, 1 - r.rank), c.recv(y, 1 - r.rank)))
    c.all_reduce(x)
    r.synchronize()
    if r.rank == 1:
        r.store.set(\"epoch\", 0)
    r.barrier()
    if r.rank == 1:
        r.store.set(\"epoch\", 1)
    if meet:
        r.barrier()
    if by == \"broadcast\":
        c.broadcast(x, root = 0)
    elif r.rank == 0:
        c.send(x, 1)
    else:
        c.recv(y, 0)
    r.synchronize()
    if r.rank == 0 and r.number(r.store.get(\"epoch\")) != 1:
        r.raises(\"stale\")

check(\"blocks\", epochs, by = each(\"send\", \"broadcast\"), meet = False, expect = fails(\"STORE-2\"))
check(\"meets\", epochs, by = each(\"send\", \"broadcast\"), meet = True, expect = holds())
";
    write(&folder, "epochs.star", program);
    wants(&run(&folder, &["check", "epochs.star"]), 0, &["FAILS STORE-2", "stale", "2 passed, 0 failed"]);
}

/// What a map gives is known only when the ranks run.
#[test]
fn what_is_no_number_is_an_error_where_its_number_is_asked_for() {
    let folder = folder("numbers");
    let program = "def program(r, put):
    c = r.comm(\"tp\", r.world)
    index = r.map(\"index\")
    if put != None:
        index.put(\"n\", put + r.rank)
    c.all_reduce(r.malloc(\"x\", MiB), count = r.number(index.get(\"n\")))
    r.synchronize()
";
    for (put, code, words) in [
        ("None", 2, ["r.number asks for a number from 0 to 4294967295", "numbers.star:6:46"]),
        ("-2", 2, ["and this is -2", "with 2 ranks, put = -2"]),
        ("5000", 1, ["FAILS COLL-3", "5001 f32"]),
    ] {
        write(&folder, "numbers.star", &format!("{program}\ncheck(\"number\", program, put = {put})\n"));
        wants(&run(&folder, &["check", "numbers.star"]), code, &words);
    }
}

/// A folder may hold specs and what was recorded of their programs.
#[test]
fn recordings_below_a_folder_of_specs_are_judged_too() {
    let folder = folder("specs_and_runs");
    std::fs::create_dir_all(folder.join("all")).expect("the folder can be made");
    write(
        &folder,
        "all/meets.star",
        "def meets(r):\n    r.barrier()\n\ncheck(\"meets\", meets, expect = holds())\n",
    );
    wants(&run(&folder, &["check", "all"]), 0, &["1 passed, 0 failed"]);
    let mut recorded = Run::new(2);
    recorded.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(1 << 22), process.stream());
        process.all_reduce(comm, buffer, 64 + u64::from(rank), stream);
        process.synchronize(stream);
    });
    recorded.exit();
    let saved = recorded.save("below-specs");
    let below = folder.join("all/runs/first");
    std::fs::create_dir_all(&below).expect("the folder can be made");
    for rank in ["rankrec.0", "rankrec.1"] {
        std::fs::copy(saved.folder.join(rank), below.join(rank)).expect("it was saved");
    }
    wants(&run(&folder, &["check", "all"]), 1, &["FAILS COLL-3", "1 passed, 1 failed"]);
}

/// Whoever is no member makes the same call as one who is: nobody makes it once more.
#[test]
fn how_often_ranks_make_a_call_is_told_as_it_is() {
    let folder = folder("no_member");
    write(&folder, "own.star", "def own(r):\n    r.comm(\"c\", [1])\n\ncheck(\"own\", own)\n");
    let said = run(&folder, &["check", "own.star"]);
    assert!(said.out.contains("FAILS COMM-") && !said.out.contains("once more"), "{}", said.out);
}

/// What lists checks writes lines of text, whatever format is asked for.
#[test]
fn a_list_has_no_other_format() {
    let folder = folder("list_format");
    write(&folder, "leaves.star", LEAVES);
    for format in ["json", "junit", "sarif", "github"] {
        let said = run(&folder, &["check", "leaves.star", "--list", "--format", format]);
        assert!(said.code == 2 && said.err.contains("leave --format out"), "{format}: {}", said.err);
    }
}

/// A file that a command writes takes the place of a file, and not of the link that leads to it.
#[cfg(unix)]
#[test]
fn a_link_stays_where_a_shard_is_written() {
    let folder = folder("shard_through_link");
    write(&folder, "leaves.star", LEAVES);
    write(&folder, "target", "{\"shard_schema\":0}, an older one");
    std::os::unix::fs::symlink("target", folder.join("link")).expect("links can be made");
    run(&folder, &["check", "leaves.star", "--shard", "1/1", "--shard-out", "link"]);
    assert!(folder.join("link").is_symlink());
    let written = fs::read_to_string(folder.join("target")).expect("the link leads there");
    assert!(written.contains("leaves.star"), "{written}");
}

/// Whichever round falls otherwise alone, ranks may still part in a later one.
#[test]
fn what_ranks_decide_otherwise_in_rounds_is_told_as_the_cause() {
    let folder = folder("rounds_apart");
    let rounds = "def train(r, steps):
    c = r.comm(\"world\", r.world)
    x = r.mem_alloc(\"x\", 4 * MiB)
    for n in range(steps):
        if not r.may(\"skip\"):
            c.all_reduce(x)
    r.synchronize()

check(\"skips\", train, steps = 3)
";
    write(&folder, "skips.star", rounds);
    let because = "because   on rank 0 skip = no, on rank 1 skip = yes (skips.star:5)";
    wants(&run(&folder, &["check", "skips.star"]), 1, &["FAILS COLL-1", because]);
}

#[test]
fn a_file_of_a_recording_is_told_from_its_folder_and_an_empty_one_is_named() {
    let mut recorded = Run::new(2);
    recorded.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(1 << 22), process.stream());
        process.all_reduce(comm, buffer, 64, stream);
        process.synchronize(stream);
    });
    recorded.exit();
    let saved = recorded.save("one-file");
    let files = fs::read_dir(&saved.folder).expect("it was saved").flatten();
    let mut files: Vec<_> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    files.sort();
    let name = files[1].clone();
    let output = saved.folder.join("t.json").to_string_lossy().into_owned();
    for command in [&["check", &name][..], &["timeline", &name, "-o", &output]] {
        let ran = run(&saved.folder, command);
        assert_eq!(ran.code, 2, "{}", ran.err);
        let told = ran.err.replace("\n  │ ", " ");
        assert!(
            told.contains("the file of one process") && told.contains("give the folder: ."),
            "{}",
            ran.err
        );
        assert!(!told.contains("UTF-8"), "{}", ran.err);
    }
    wants(&run(&saved.folder, &["check", "."]), 0, &["HOLDS"]);
    fs::remove_file(saved.folder.join(&name)).expect("it can be removed");
    fs::write(saved.folder.join("rank-1.rankrec"), []).expect("it can be written");
    wants(&run(&saved.folder, &["check", "."]), 3, &["UNKNOWN", "rank-1.rankrec is empty or cut off"]);
}

#[test]
fn where_ranks_diverge_a_waived_rule_leaves_a_sentence() {
    let mut recorded = Run::new(2);
    recorded.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(1 << 22), process.stream());
        process.from("step.py:6", |p| p.all_reduce(comm, buffer, 64 << rank, stream));
        process.synchronize(stream);
    });
    recorded.exit();
    let saved = recorded.save("waived-divergence");
    let ran = run(&saved.folder, &["check", ".", "--waive", "COLL-3=known"]);
    wants(
        &ran,
        1,
        &["FAILS", "No waiver of a rule takes away that ranks diverge", "rank 1 makes all_reduce of 128"],
    );
    assert!(ran.out.lines().nth(1).is_some_and(|line| line.starts_with("No waiver")), "{}", ran.out);
}

/// A run of which rank 0 frees memory while a window holds it, and never deregisters the window.
fn freed_too_early(name: &str) -> Saved {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let buffer = process.alloc(1 << 22);
        let window = process.register(comm, buffer, 1 << 22);
        if rank == 0 {
            process.from("pool.py:5", |p| p.free(buffer));
        } else {
            process.deregister(comm, window);
        }
    });
    run.exit();
    run.save(name)
}

#[test]
fn a_rule_is_waived_in_a_recorded_run_with_a_reason() {
    let saved = freed_too_early("waived");
    let folder = &saved.folder;
    wants(&run(folder, &["check", "."]), 1, &["FAILS WIN-11"]);
    let reason = "WIN-11=the process ends right after";
    let ran = run(folder, &["check", ".", "--waive", reason]);
    wants(&ran, 0, &["HOLDS", "waived    WIN-11: the process ends right after", "1 passed"]);
    let ran = run(folder, &["check", ".", "--waive", reason, "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(wrong_in(&report), [""; 0]);
    let entry = &report["recordings"][0];
    assert_eq!(entry["waived"]["WIN-11"], "the process ends right after");
    assert_eq!((&entry["verdict"], &entry["rules"]), (&"holds".into(), &serde_json::json!([])));
}

#[test]
fn a_waiver_of_what_no_recorded_run_breaks_is_not_as_expected() {
    let saved = freed_too_early("waived-in-vain");
    let mut right = Run::new(2);
    right.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(1 << 20), process.stream());
        process.all_reduce(comm, buffer, 64, stream);
        process.synchronize(stream);
    });
    right.exit();
    let right = right.save("waived-in-vain-right");
    let waivers = ["--waive", "WIN-11=ends"];
    let ran = run(&right.folder, &[&["check", "."][..], &waivers].concat());
    wants(&ran, 1, &["HOLDS", "NOT AS EXPECTED  waives WIN-11, which no run breaks", "1 failed"]);
    // Of several runs one that breaks it is enough.
    let other = saved.folder.to_str().expect("UTF-8");
    let ran = run(&right.folder, &[&["check", ".", other][..], &waivers].concat());
    wants(&ran, 0, &["2 passed"]);
}

#[test]
fn a_replay_tells_what_was_chosen() {
    let folder = folder("chosen");
    let spec = "def program(r):\n    if r.choose(\"hit\", [True, False]):\n        r.barrier()\n\n\
                check(\"hit\", program, ranks = 2, expect = fails(\"HOST-1\"))\n";
    write(&folder, "hit.star", spec);
    wants(&run(&folder, &["check", "hit.star", "--trace-out", "traces"]), 0, &["FAILS HOST-1"]);
    let told = ["hit = True ", "hit = False ", "again breaks HOST-1"];
    wants(&run(&folder, &["replay", "traces/hit.hit.trace"]), 0, &told);
    wants(
        &run(&folder, &["check", "hit.star", "--only", "nothing", "--trace-out", "traces"]),
        2,
        &["no check"],
    );
}

#[test]
fn a_trace_names_the_partners_of_its_steps_and_one_without_them_is_replayed() {
    let folder = folder("partners");
    let spec = "def program(r):\n    c = r.comm(\"c\", r.world)\n    x = r.mem_alloc(\"x\", 1 * MiB)\n    \
                c.all_reduce(x)\n    r.barrier()\n    if r.rank == 1:\n        r.barrier()\n\n\
                check(\"one more\", program, ranks = 3, expect = fails(\"HOST-1\"))\n";
    write(&folder, "one.star", spec);
    wants(&run(&folder, &["check", "one.star", "--trace-out", "traces"]), 0, &["FAILS HOST-1"]);
    let text = fs::read_to_string(folder.join("traces/one.one-more.trace")).expect("it was written");
    let mut trace: Value = serde_json::from_str(&text).expect("a trace is JSON");
    let steps = trace["steps"].as_array().expect("a list");
    let numbers = |step: &Value, key: &str| -> Vec<usize> {
        let list = step[key].as_array().into_iter().flatten();
        list.map(|nth| usize::try_from(nth.as_u64().expect("a position")).expect("a position")).collect()
    };
    for op in ["c.all_reduce(x)", "c.init"] {
        let ranks: Vec<usize> = (0..steps.len()).filter(|nth| steps[*nth]["op"] == op).collect();
        assert_eq!(ranks.len(), 3, "{op}: {text}");
        for nth in &ranks {
            let others: Vec<usize> = ranks.iter().filter(|other| *other != nth).copied().collect();
            assert_eq!(numbers(&steps[*nth], "meets"), others, "{op}");
        }
    }
    // The barrier that all of them came to has partners, the second one of rank 1 has none.
    let barriers: Vec<&Value> = steps.iter().filter(|step| step["op"] == "barrier").collect();
    let alone: Vec<&&Value> = barriers.iter().filter(|step| numbers(step, "meets").is_empty()).collect();
    assert_eq!((barriers.len(), alone.len()), (4, 1), "{text}");
    assert_eq!(alone[0]["rank"], 1);
    wants(&run(&folder, &["replay", "traces/one.one-more.trace"]), 0, &["again breaks HOST-1"]);
    // As it was written before steps had partners.
    for step in trace["steps"].as_array_mut().expect("a list") {
        let step = step.as_object_mut().expect("an object");
        step.remove("meets");
        step.remove("after");
    }
    write(&folder, "older.trace", &trace.to_string());
    wants(&run(&folder, &["replay", "older.trace"]), 0, &["again breaks HOST-1"]);
}
