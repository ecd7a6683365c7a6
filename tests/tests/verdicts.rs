//! Recordings that a test wrote, with the verdict that they have.

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::Run;

/// Saves a run under a name that no other test uses, and judges it.
pub(crate) fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(name);
    judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged")
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
