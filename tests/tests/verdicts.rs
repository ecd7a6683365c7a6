//! Recordings that a test wrote, with the verdict that they have.

use std::collections::BTreeSet;

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read, replayed};
use rankcheck::runs::report::text;
use rankcheck_model::{Class, Rule};
use rankcheck_tests::recording::Run;

/// Saves a run under a name that no other test uses, and judges it.
pub(crate) fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(name);
    let judged = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    contents_decide_nothing(&judged);
    judged
}

/// Where a run is judged, what memory holds is followed only if it decides something; where it is shown, always. The same is found.
fn contents_decide_nothing(judged: &Judged) {
    let followed = replayed(judged).expect("it was judged");
    let findings = judged.findings.iter().chain(judged.doubted.iter().map(|(finding, _)| finding));
    let found: BTreeSet<Rule> = findings.map(|finding| finding.rule).collect();
    let broken: BTreeSet<Rule> = followed.broken.iter().map(|broken| broken.rule).collect();
    assert_eq!(found, broken, "{}", text(judged));
    if followed.outcome.class == Class::Undefined && !judged.findings.is_empty() {
        assert!(judged.undefined, "{}", text(judged));
    }
}

/// A run in which nothing is wrong.
pub(crate) fn holds(run: Run, name: &str) {
    let judged = judged(run, name);
    assert_eq!(judged.verdict, RunVerdict::Holds, "{}", text(&judged));
}

/// A run of which too little is known; its report has all of these words.
pub(crate) fn is_unknown(run: Run, name: &str, words: &[&str]) {
    let judged = judged(run, name);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{}", text(&judged));
    has(&judged, words);
}

/// A run that breaks this rule first; its report has all of these words.
pub(crate) fn fails(run: Run, name: &str, rule: &str, words: &[&str]) {
    failing(run, name, rule, words);
}

/// What else there is to say of a run that breaks this rule first, and has these words in its report.
pub(crate) fn failing(run: Run, name: &str, rule: &str, words: &[&str]) -> Judged {
    let judged = judged(run, name);
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Fails, "{text}");
    assert_eq!(judged.findings.first().map(|finding| finding.rule.id()), Some(rule), "{text}");
    has(&judged, words);
    judged
}

fn has(judged: &Judged, words: &[&str]) {
    let text = text(judged);
    for word in words {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
}
