//! The JSON report is what docs/json-report.schema.json says: of every check of the repository, of what is not as stated,
//! of errors and of recorded runs.
//!
//! Not here: what stands in the fields.

use std::sync::OnceLock;

use jsonschema::Validator;
use rankcheck::report;
use rankcheck::runs::judge::{judge, read};
use rankcheck::search::{Detail, Options, search};
use rankcheck::spec::load;
use rankcheck_tests::recording::Run;
use rankcheck_tests::repository::enter;
use serde_json::{Value, json};

use crate::built::folder;
use crate::recordings::folders;
use crate::specs::verified;

fn schema() -> &'static Validator {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = std::fs::read_to_string(enter().join("docs/json-report.schema.json"));
        let text = text.expect("the schema is part of the documentation");
        let schema: Value = serde_json::from_str(&text).expect("it is JSON");
        jsonschema::draft202012::meta::validate(&schema).expect("it is a schema");
        jsonschema::draft202012::new(&schema).expect("it is a schema")
    })
}

/// What is wrong with a report, by the schema.
pub(crate) fn wrong_in(report: &Value) -> Vec<String> {
    let told = |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    schema().iter_errors(report).map(told).collect()
}

fn as_json(report: &report::JsonReport) -> Value {
    serde_json::to_value(report).expect("a report is strings and numbers")
}

#[test]
fn every_report_of_the_repository_fits_the_schema() {
    let (mut entries, mut counterexamples, mut steps) = (0, 0, 0);
    for file in verified() {
        let report = as_json(&report::json(&file.explained, [], [], &[]));
        assert_eq!(wrong_in(&report), [""; 0], "{}", file.path.display());
        for entry in report["checks"].as_array().expect("checks are a list") {
            entries += 1;
            let shown = &entry["counterexample"];
            counterexamples += usize::from(shown.is_object());
            steps += shown["steps"].as_array().map_or(0, Vec::len);
        }
    }
    println!("{entries} entries, {counterexamples} counterexamples of {steps} steps");
    assert!(entries > 500 && counterexamples > 200 && steps > 2000);
}

#[test]
fn every_report_of_a_recording_fits_the_schema() {
    let mut left_out = 0;
    let mut runs = folders();
    let mut cut = Run::new(2);
    cut.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(1 << 20), process.stream());
        process.all_reduce(comm, buffer, 64, stream);
    });
    let cut = cut.save("reported-cut");
    runs.push(cut.folder.clone());
    for folder in &runs {
        let judged = judge(read(folder).expect("a recording"), None).expect("a run of one program");
        let report = as_json(&report::json([], [&judged], [], &[]));
        assert_eq!(wrong_in(&report), [""; 0], "{}", folder.display());
        let entry = &report["recordings"][0];
        left_out += entry["not_judged"].as_array().map_or(0, Vec::len);
        assert!(entry["judged"]["collectives"].is_u64(), "{entry}");
        for path in ["/recordings/0", "/recordings/0/judged"] {
            let mut edited = report.clone();
            edited.pointer_mut(path).expect("it is there")["another"] = json!(1);
            assert!(!wrong_in(&edited).is_empty(), "another field in {path:?}");
        }
    }
    assert!(runs.len() > 40 && left_out > 0, "{} recordings, {left_out} calls not judged", runs.len());
}

#[test]
fn a_field_that_is_not_documented_does_not_fit_the_schema() {
    let file = &verified()[0];
    let report = as_json(&report::json(&file.explained, [], [], &[]));
    assert_eq!(wrong_in(&report), [""; 0]);
    for path in ["", "/checks/0", "/checks/0/coverage", "/checks/0/outcomes/0"] {
        let mut edited = report.clone();
        edited.pointer_mut(path).expect("it is there")["another"] = json!(1);
        assert!(!wrong_in(&edited).is_empty(), "another field in {path:?}");
    }
    for path in ["/checks/0/verdict", "/checks/0/place", "/schema_version"] {
        let mut edited = report.clone();
        *edited.pointer_mut(path).expect("it is there") = json!("another");
        assert!(!wrong_in(&edited).is_empty(), "another value of {path:?}");
    }
}

/// Two ranks that use two communicators in opposite order.
const OPPOSITE: &str = r#"def program(r):
    a = r.comm("a", r.world)
    b = r.comm("b", r.world)
    x = r.mem_alloc("x", 4 * MiB)
    first, second = (a, b) if r.rank == 0 else (b, a)
    first.all_reduce(x, stream = r.stream("s"))
    r.synchronize()
    second.all_reduce(x, stream = r.stream("s"))
    r.synchronize()

check("opposite", program)
"#;

#[test]
fn a_counterexample_has_the_finding_its_places_and_who_waits_for_whom() {
    let path = folder("reported").join("opposite.star");
    std::fs::write(&path, OPPOSITE).expect("a file can be written");
    let spec = load(&path).expect("a good spec");
    let explained = search(&spec, &spec.checks[0], &Options::telling(Detail::Reason)).expect("it evaluates");
    let report = as_json(&report::json([&explained], [], [], &[]));
    assert_eq!(wrong_in(&report), [""; 0]);
    let entry = &report["checks"][0];
    assert_eq!(
        (&entry["verdict"], &entry["stated"], &entry["expected"]),
        (&json!("fails"), &json!(false), &json!(false))
    );
    let shown = &entry["counterexample"];
    assert_eq!(shown["rule"], entry["primary"]);
    assert!(shown["sentence"].as_str().is_some_and(|text| text.contains("rank 0")), "{shown}");
    let place = |line: u32| json!(format!("{}:{line}", path.display()));
    let blocked = shown["blocked"].as_array().expect("a list");
    let stands = |rank: u32| {
        let of = |entry: &&Value| entry["rank"] == rank && entry["thread"] == 0;
        blocked.iter().find(of).expect("its host is blocked")
    };
    for (rank, other) in [(0, 1), (1, 0)] {
        assert_eq!(stands(rank)["place"], place(6));
        assert!(
            stands(rank)["waits_for"].as_array().is_some_and(|on| on.iter().any(|at| at["rank"] == other)),
            "{blocked:?}"
        );
    }
    // The inits met, and each names the other.
    let steps = shown["steps"].as_array().expect("a list");
    let met = |nth: usize, step: &Value| {
        step["meets"].as_array().expect("a list").iter().all(|other| {
            let other = &steps[usize::try_from(other.as_u64().expect("a number")).expect("a position")];
            other["rank"] != step["rank"]
                && other["meets"].as_array().is_some_and(|all| all.contains(&json!(nth)))
        })
    };
    assert!(steps.iter().enumerate().all(|(nth, step)| met(nth, step)), "{steps:?}");
    let inits = steps.iter().filter(|step| step["call"] == "a.init" && step["meets"] != json!([]));
    assert_eq!(inits.count(), 2, "{steps:?}");
    // Both ranks have a lane with what they launch and where.
    let lanes = shown["lanes"].as_array().expect("a list");
    assert_eq!(lanes.len(), 2);
    let launches = |lane: &Value| {
        let calls = lane["calls"].as_array().expect("a list");
        calls.iter().any(|call| call["place"] == place(6) && call["stream"] == "s")
    };
    assert!(lanes.iter().all(launches), "{lanes:?}");
}
