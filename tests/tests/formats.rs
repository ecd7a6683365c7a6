//! What `rankcheck check` writes for build servers and pull requests: JUnit, SARIF, annotations of GitHub.
//!
//! Not here: what a whole pull request shows (`pull_request.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use jsonschema::Validator;
use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use rankcheck_tests::repository::enter;
use serde_json::Value;

use crate::built::{command, folder};

fn schema() -> &'static Validator {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = fs::read_to_string(enter().join("tests/schemas/sarif-2.1.0.json")).expect("it is there");
        let mut schema: Value = serde_json::from_str(&text).expect("it is JSON");
        // The pattern of a language's name, which nothing here gives, has a bracket too many for a regular expression.
        for owner in ["run", "toolComponent"] {
            let language = schema.pointer_mut(&format!("/definitions/{owner}/properties/language"));
            let language = language.and_then(Value::as_object_mut);
            language.and_then(|language| language.remove("pattern")).expect("the schema has the pattern");
        }
        jsonschema::draft7::new(&schema).expect("it is a schema")
    })
}

/// Reads SARIF, which has to fit its schema, and returns its results.
pub(crate) fn results_of(text: &str) -> Vec<Value> {
    let log: Value = serde_json::from_str(text).expect("it is JSON");
    let wrong: Vec<String> =
        schema().iter_errors(&log).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(wrong, [""; 0]);
    log["runs"][0]["results"].as_array().expect("results are a list").clone()
}

/// Runs the command in a folder. Returns its exit code and what it printed.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(command()).args(arguments).current_dir(folder).output().expect("it starts");
    let code = output.status.code().expect("the command is not killed");
    (code, String::from_utf8(output.stdout).expect("the command writes UTF-8"))
}

/// A check that passes, one that fails as stated, one that does not, one that a bound cuts, and a file that is bad.
fn mixed() -> &'static Path {
    static FOLDER: OnceLock<std::path::PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = folder("formats");
        fs::create_dir_all(folder.join("my specs")).expect("a folder can be made");
        let spec = r#"code("engine/a b.py", "def second(")
code("engine/a b.py", "def gone(")

def alone(r):
    if r.rank == 0:
        r.barrier()

def wide(r):
    for n in range(6):
        r.choose("n%d" % n, ["a", "b", "c", "d"])
    r.barrier()

check("as stated", alone, expect = fails("HOST-1"))
check("passes, at 100%", lambda r: r.barrier(), expect = holds())
check("<not> as stated: \"x\" & y", alone, expect = holds())
check("cut", wide, expect = holds())
"#;
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("it can be written");
        write("my specs/mixed.star", spec);
        write("my specs/bad.star", "\ndef program(r)\n    pass\n");
        fs::create_dir_all(folder.join("engine")).expect("a folder can be made");
        write("engine/a b.py", "def first(x):\n    pass\ndef second(x):\n    pass\n");
        folder
    })
}

#[test]
fn junit_has_a_case_for_each_check_and_nothing_is_skipped() {
    let (code, text) = run(mixed(), &["check", "my specs", "--format", "junit", "--max-states", "300"]);
    assert_eq!(code, 2, "{text}");
    let report = Report::deserialize_from_str(&text).expect("it is JUnit's XML");
    let cases: Vec<_> = report.test_suites.iter().flat_map(|suite| &suite.test_cases).collect();
    assert_eq!((report.tests, report.failures, report.errors), (5, 1, 2));
    let ended = |name: &str| {
        let case = cases.iter().find(|case| case.name.as_str() == name);
        let case = case.unwrap_or_else(|| panic!("no case {name:?} in {text}"));
        match &case.status {
            TestCaseStatus::Success { .. } => ("passed", String::new(), String::new()),
            TestCaseStatus::NonSuccess { kind, ty, description, .. } => {
                let kind = if *kind == NonSuccessKind::Failure { "failure" } else { "error" };
                let told = description.as_ref().map_or("", |text| text.as_str()).to_owned();
                (kind, ty.as_ref().map_or("", |text| text.as_str()).to_owned(), told)
            }
            TestCaseStatus::Skipped { .. } => panic!("{name} is skipped"),
        }
    };
    assert_eq!(ended("as stated").0, "passed");
    assert_eq!(ended("passes, at 100%").0, "passed");
    let (kind, rule, told) = ended("<not> as stated: \"x\" & y");
    assert_eq!((kind, rule.as_str()), ("failure", "HOST-1"));
    assert!(told.contains("FAILS HOST-1") && told.contains("NOT AS EXPECTED"), "{told}");
    let (kind, rule, told) = ended("cut");
    assert_eq!((kind, rule.as_str()), ("error", "unknown"));
    assert!(told.contains("UNKNOWN") && told.contains("--max-states"), "{told}");
    let (kind, rule, told) = ended("bad spec");
    assert_eq!((kind, rule.as_str()), ("error", "bad-spec"));
    assert!(told.contains("bad.star"), "{told}");
}

#[test]
fn sarif_fits_its_schema_and_leads_to_specs_and_quoted_lines() {
    let (code, text) = run(mixed(), &["check", "my specs", "--format", "sarif", "--max-states", "300"]);
    assert_eq!(code, 2, "{text}");
    let results = results_of(&text);
    let of = |rule: &str| {
        let found: Vec<&Value> = results.iter().filter(|result| result["ruleId"] == rule).collect();
        assert_eq!(found.len(), 1, "{rule} in {text}");
        found[0]
    };
    let place = |location: &Value| {
        let physical = &location["physicalLocation"];
        let uri = physical["artifactLocation"]["uri"].as_str().expect("a location is in a file").to_owned();
        (uri, physical["region"]["startLine"].as_u64())
    };
    assert_eq!(results.len(), 3);
    let failed = of("HOST-1");
    assert_eq!(failed["level"], "error");
    // Where the rank waits, the check, and what the spec quotes.
    assert_eq!(place(&failed["locations"][0]), ("my%20specs/mixed.star".to_owned(), Some(6)));
    let related: Vec<_> = failed["relatedLocations"].as_array().expect("a list").iter().map(place).collect();
    assert_eq!(
        related,
        [
            ("my%20specs/mixed.star".to_owned(), Some(15)),
            ("engine/a%20b.py".to_owned(), Some(3)),
            ("engine/a%20b.py".to_owned(), None),
        ]
    );
    assert_eq!(of("unknown")["level"], "warning");
    assert_eq!(place(&of("bad-spec")["locations"][0]).0, "my%20specs/bad.star");
    let log: Value = serde_json::from_str(&text).expect("it is JSON");
    let invocation = &log["runs"][0]["invocations"][0];
    assert_eq!((&invocation["executionSuccessful"], &invocation["exitCode"]), (&false.into(), &2.into()));
}

#[test]
fn annotations_of_github_are_one_line_each_and_escaped() {
    let (code, text) = run(mixed(), &["check", "my specs", "--format", "github", "--max-states", "300"]);
    assert_eq!(code, 2, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let commands: Vec<&&str> = lines.iter().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    // What is no command is the summary.
    assert_eq!(lines.len(), 4, "{text}");
    let failed =
        "::error file=my specs/mixed.star,line=6,title=<not> as stated%3A \"x\" & y%3A expected to hold%2C ";
    assert!(commands.iter().any(|line| line.starts_with(failed)), "{text}");
    let message = commands.iter().find(|line| line.starts_with(failed)).expect("it was just found");
    assert!(message.contains("%0A") && message.contains("engine/a b.py:3"), "{message}");
    assert!(
        commands.iter().any(|line| line.starts_with("::warning file=my specs/mixed.star,line=16,")),
        "{text}"
    );
    assert!(commands.iter().any(|line| line.starts_with("::error file=my specs/bad.star,line=")), "{text}");
}

#[test]
fn recorded_runs_are_cases_and_annotations_too() {
    let folder = "tests/dumps/runs";
    let runs: Vec<_> = fs::read_dir(enter().join(folder)).expect("it is there").flatten().collect();
    let runs: Vec<String> = runs
        .iter()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
        .take(4)
        .collect();
    let given: Vec<&str> = runs.iter().map(String::as_str).collect();
    let with = |format| [&["check", "--format", format], &given[..]].concat();
    let (code, junit) = run(enter(), &with("junit"));
    let report = Report::deserialize_from_str(&junit).expect("it is JUnit's XML");
    assert!(report.tests >= 4, "{junit}");
    let (again, sarif) = run(enter(), &with("sarif"));
    assert_eq!(code, again);
    assert_eq!(results_of(&sarif).len(), report.failures + report.errors);
}

/// Where a finding is shown, and what its message says.
fn shown(folder: &Path, arguments: &[&str]) -> (String, Option<u64>, String) {
    let (_, text) = run(folder, &[&["check", "--format", "sarif"], arguments].concat());
    let results = results_of(&text);
    let first = results.first().unwrap_or_else(|| panic!("no result: {text}"));
    let at = &first["locations"][0]["physicalLocation"];
    let file = at["artifactLocation"]["uri"].as_str().expect("a location is in a file").to_owned();
    let message = first["message"]["text"].as_str().expect("a result has a message").to_owned();
    (file, at["region"]["startLine"].as_u64(), message)
}

#[test]
fn what_a_run_broke_is_shown_at_the_line_of_its_program() {
    // The recording has the path from the root on.
    let (file, line, _) = shown(enter(), &["tests/recordings/runs/hang-4/divergent"]);
    assert_eq!((file.as_str(), line), ("tests/recordings/programs/hang.py", Some(16)));
    let (_, text) = run(enter(), &["check", "--format", "github", "tests/recordings/runs/hang-4/divergent"]);
    assert!(text.starts_with("::error file=tests/recordings/programs/hang.py,line=16,title="), "{text}");
    assert!(text.contains("COLL-2: rank 3: tests/recordings/programs/hang.py:17"), "{text}");
    // Dumps have that of another machine, on which the repository was in /srv/train.
    let dumps = ["tests/dumps/runs/groups_in_another_order-piped"];
    let (file, line, message) = shown(enter(), &dumps);
    assert_eq!((file.as_str(), line), ("tests/recordings/mistakes.py", Some(289)));
    assert!(!message.contains("not in this repository"), "{message}");
    // A log names no lines.
    let log = "tests/logs/runs/stops_early";
    assert_eq!(shown(enter(), &[log]).0, log);
}

#[test]
fn a_line_of_a_file_that_is_not_there_is_told_in_the_message() {
    let folder = folder("formats_elsewhere");
    let dumps = enter().join("tests/dumps/runs/groups_in_another_order-piped");
    let dumps = dumps.to_str().expect("UTF-8");
    let is_at_the_folder = || {
        let (file, line, message) = shown(&folder, &[dumps]);
        assert_eq!((file.as_str(), line), (format!("file://{dumps}").as_str(), None));
        let told = "waiting here: ranks 0 and 1: /srv/train/tests/recordings/mistakes.py:289, not in this repository";
        assert!(message.lines().any(|line| line == told), "{message}");
    };
    is_at_the_folder();
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    };
    // A file of this name alone may be any, and one of fewer lines is another.
    write("mistakes.py", &"pass\n".repeat(400));
    is_at_the_folder();
    write("recordings/mistakes.py", &"pass\n".repeat(288));
    is_at_the_folder();
    write("recordings/mistakes.py", &"pass\n".repeat(289));
    assert_eq!(shown(&folder, &[dumps]).0, "recordings/mistakes.py");
    // The longest path counts, and `--repo` says where the repository is.
    write("tests/recordings/mistakes.py", &"pass\n".repeat(289));
    assert_eq!(shown(&folder, &[dumps]).0, "tests/recordings/mistakes.py");
    let above = folder.parent().expect("it lies in a folder");
    let (file, ..) = shown(above, &[dumps, "--repo", "formats_elsewhere"]);
    assert_eq!(file, "formats_elsewhere/tests/recordings/mistakes.py");
}
