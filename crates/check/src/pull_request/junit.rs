//! Test cases as JUnit's XML: a suite for each file, a case for each check.
//!
//! What is unknown is an error of type `unknown` and never skipped: most readers count what is skipped as passed.
//! Not here: which checks there are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{CaseEnd, TestCase};

/// Returns the whole document.
#[must_use]
pub(crate) fn junit(cases: &[TestCase]) -> String {
    let mut suites: BTreeMap<&str, Vec<&TestCase>> = BTreeMap::new();
    for case in cases {
        suites.entry(&case.file).or_default().push(case);
    }
    let all: Vec<&TestCase> = cases.iter().collect();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites name=\"rankcheck\" {}>", counts(&all));
    for (file, cases) in suites {
        let _ = writeln!(out, "  <testsuite name=\"{}\" {}>", escaped(file), counts(&cases));
        for case in cases {
            testcase(&mut out, case);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>");
    out
}

fn counts(cases: &[&TestCase]) -> String {
    let count = |wanted: &[CaseEnd]| cases.iter().filter(|case| wanted.contains(&case.ending)).count();
    let milliseconds: u64 = cases.iter().map(|case| case.milliseconds).sum();
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{}\"",
        cases.len(),
        count(&[CaseEnd::Failed]),
        count(&[CaseEnd::Unknown, CaseEnd::Bad]),
        seconds(milliseconds)
    )
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

fn testcase(out: &mut String, case: &TestCase) {
    let TestCase { file, name, ending, rule, summary, report, milliseconds, .. } = case;
    let (name, file, time) = (escaped(name), escaped(file), seconds(*milliseconds));
    let _ = write!(out, "    <testcase name=\"{name}\" classname=\"{file}\" time=\"{time}\"");
    let element = match ending {
        CaseEnd::Passed => {
            out.push_str("/>\n");
            return;
        }
        CaseEnd::Failed => "failure",
        CaseEnd::Unknown | CaseEnd::Bad => "error",
    };
    let (rule, summary, report) = (escaped(rule), escaped(summary), escaped(report));
    let _ = writeln!(out, ">");
    let _ = writeln!(out, "      <{element} type=\"{rule}\" message=\"{summary}\">{report}</{element}>");
    let _ = writeln!(out, "    </testcase>");
}

/// A text as a value of an attribute or the content of an element. XML has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}
