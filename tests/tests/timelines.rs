//! Timelines: what met is joined, every flow goes from slice to slice, and the verdict is there.
//!
//! Not here: whether Perfetto's own protos take them (`ci/perfetto`).

use std::collections::BTreeMap;

use rankcheck::runs::judge::{judge, read};
use rankcheck::runs::timeline;
use rankcheck_tests::recording::Run;
use serde_json::Value;

/// A slice: rank, track, and when it begins and ends, in nanoseconds.
type Slice = (u64, u64, i64, i64);

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"))
}

fn nanoseconds(event: &Value, key: &str) -> i64 {
    (event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}")) * 1000.0).round() as i64
}

fn slices(events: &[Value]) -> Vec<Slice> {
    let of = |event: &Value| {
        let begin = nanoseconds(event, "ts");
        (number(event, "pid"), number(event, "tid"), begin, begin + nanoseconds(event, "dur"))
    };
    events.iter().filter(|event| event["ph"] == "X").map(of).collect()
}

/// What is wrong with a timeline, and how many ranks each flow joins, by its name.
pub(crate) fn looked_at(timeline: &Value) -> (Vec<String>, BTreeMap<String, Vec<usize>>) {
    let events = timeline["traceEvents"].as_array().expect("a list of events");
    let slices = slices(events);
    let mut wrong = Vec::new();
    // Viewers lose slices that are over after the one that they begin in.
    for (nth, a) in slices.iter().enumerate() {
        let crosses = |b: &&Slice| (a.0, a.1) == (b.0, b.1) && a.2 < b.2 && b.2 < a.3 && a.3 < b.3;
        wrong.extend(slices.iter().find(crosses).map(|b| format!("slice {nth}, {a:?}, crosses {b:?}")));
    }
    let mut flows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| ["s", "t", "f"].iter().any(|phase| event["ph"] == *phase)) {
        let at = (number(event, "pid"), number(event, "tid"), nanoseconds(event, "ts"));
        if !slices
            .iter()
            .any(|slice| (slice.0, slice.1) == (at.0, at.1) && slice.2 <= at.2 && at.2 <= slice.3)
        {
            wrong.push(format!("in no slice: {event}"));
        }
        flows.entry(number(event, "id")).or_default().push(event);
    }
    let mut joined: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (id, ends) in flows {
        let phases: String = ends.iter().filter_map(|end| end["ph"].as_str()).collect();
        let between = phases.strip_prefix('s').and_then(|rest| rest.strip_suffix('f'));
        if between.is_none_or(|between| between.chars().any(|phase| phase != 't')) {
            wrong.push(format!("flow {id} is {phases}"));
        }
        if !ends.iter().map(|end| nanoseconds(end, "ts")).is_sorted() {
            wrong.push(format!("flow {id} goes back in time"));
        }
        let name = ends[0]["name"].as_str().expect("flows have names").to_owned();
        joined.entry(name).or_default().push(ends.len());
    }
    let verdicts = events.iter().filter(|event| event["cat"] == "verdict" && event["ph"] == "i").count();
    if verdicts != 1 {
        wrong.push(format!("{verdicts} verdicts"));
    }
    (wrong, joined)
}

fn written(run: Run, name: &str) -> Value {
    let saved = run.save(name);
    let judged = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    let mut out = Vec::new();
    timeline::write(&judged, &mut out).expect("memory can be written");
    serde_json::from_slice(&out).expect("it is JSON")
}

#[test]
fn calls_that_met_are_joined_and_others_are_not() {
    let mut run = Run::new(3);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 3);
        let (buffer, stream) = (process.alloc(4 << 20), process.stream());
        process.all_reduce(comm, buffer, 1024, stream);
        // Rank 2 does not come to the second one.
        if rank < 2 {
            process.all_reduce(comm, buffer, 1024, stream);
        }
        process.enter_synchronize(stream);
    });
    let timeline = written(run, "timeline_joins");
    let (wrong, joined) = looked_at(&timeline);
    assert_eq!(wrong, [""; 0]);
    assert_eq!(joined["ncclAllReduce"], [3, 2]);
    let events = timeline["traceEvents"].as_array().expect("a list of events");
    let named = |text: &str| events.iter().filter(|event| event["args"]["name"] == text).count();
    assert_eq!((named("rank 2"), named("host thread 0")), (1, 3));
    let streams = events.iter().filter(|event| {
        event["name"] == "thread_name"
            && event["args"]["name"].as_str().is_some_and(|name| name.contains("stream"))
    });
    assert_eq!(streams.count(), 3);
    let verdict = events.iter().find(|event| event["cat"] == "verdict").expect("there is one");
    assert!(verdict["name"].as_str().is_some_and(|name| name.starts_with("UNKNOWN")), "{verdict}");
}

#[test]
fn a_flow_with_one_end_is_found_by_this_test() {
    let event =
        |phase: &str| serde_json::json!({"ph": phase, "id": 1, "name": "x", "pid": 0, "tid": 0, "ts": 5.0});
    let slice = serde_json::json!({"ph": "X", "name": "x", "pid": 0, "tid": 0, "ts": 5.0, "dur": 1.0});
    let verdict =
        serde_json::json!({"ph": "i", "cat": "verdict", "name": "HOLDS", "pid": 0, "tid": 0, "ts": 6.0});
    let wrong = |events: Vec<Value>| looked_at(&serde_json::json!({"traceEvents": events})).0.len();
    assert_eq!(wrong(vec![slice.clone(), event("s"), event("f"), verdict.clone()]), 0);
    assert_eq!(wrong(vec![slice.clone(), event("s"), verdict.clone()]), 1);
    assert_eq!(wrong(vec![slice.clone(), event("s"), event("f")]), 1);
    assert_eq!(wrong(vec![event("s"), event("f"), verdict]), 2);
}
