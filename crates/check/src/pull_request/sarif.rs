//! Annotations as SARIF 2.1.0, which code scanning of GitHub and others show at lines.
//!
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>; a test holds it against the schema.
//! Not here: what annotations say.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Annotation, BAD_SPEC, NOT_AS_STATED, QUOTE, Spot, UNKNOWN};
use crate::rules;

/// The log of one run that ended with this exit code.
#[must_use]
pub(crate) fn sarif(annotations: &[Annotation], exit_code: u8) -> Value {
    let ids: BTreeSet<&str> = annotations.iter().map(|annotation| annotation.rule.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().collect();
    let result = |annotation: &Annotation| {
        let Annotation { severity, rule, title, message, at, related } = annotation;
        let related: Vec<Value> = related
            .iter()
            .enumerate()
            .map(|(id, (spot, what))| {
                let mut location = location(spot);
                location["id"] = json!(id);
                location["message"] = json!({ "text": what });
                location
            })
            .collect();
        json!({
            "ruleId": rule,
            "ruleIndex": ids.iter().position(|id| id == rule),
            "level": severity.word(),
            "message": { "text": format!("{title}\n\n{message}") },
            "locations": if at.file.is_empty() { Vec::new() } else { vec![location(at)] },
            "relatedLocations": related,
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "rankcheck",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": ids.iter().map(|id| described(id)).collect::<Vec<_>>(),
            } },
            // Whether the tool did its work, whatever it found.
            "invocations": [{ "executionSuccessful": exit_code != 2, "exitCode": exit_code }],
            "results": annotations.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn location(Spot { file, line }: &Spot) -> Value {
    let mut physical = json!({ "artifactLocation": { "uri": uri(file) } });
    if let Some(line) = line {
        physical["region"] = json!({ "startLine": line });
    }
    json!({ "physicalLocation": physical })
}

/// A path as a reference that is relative to the root of the repository, or absolute.
fn uri(path: &str) -> String {
    let mut out = String::new();
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What the log says of a rule.
fn described(id: &str) -> Value {
    let (short, full) = match id {
        UNKNOWN => {
            ("Inconclusive".to_owned(), "A bound was hit, or too little is known. It is no pass.".to_owned())
        }
        BAD_SPEC => ("Bad spec".to_owned(), "A spec could not be read or evaluated.".to_owned()),
        QUOTE => {
            let full = "A line changed that a spec quotes with code(…), and the spec did not.";
            ("Quoted line changed".to_owned(), full.to_owned())
        }
        NOT_AS_STATED => ("Not as stated".to_owned(), "A check does not end as it states.".to_owned()),
        rule => {
            let text = rules::text_of(rule).unwrap_or_else(|| rule.to_owned());
            let (heading, body) = text.split_once('\n').unwrap_or((&text, &text));
            (heading.to_owned(), body.trim().to_owned())
        }
    };
    json!({ "id": id, "shortDescription": { "text": short }, "fullDescription": { "text": full } })
}
