//! How a page becomes one file: everything is in it, and nothing is fetched.
//!
//! Its policy names the digests of the one style and the one script, so a browser runs nothing else, whatever names and
//! sources hold. Without JavaScript the verdict, the sentence, the facts and the report stand there.
//! Not here: what is on it ([`super::diagram`]), and what the script does (`script/`).

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::diagram::{AboutFinding, Diagram, Fact, Stated};
use super::folder::GENERATOR;
use super::legend::legend;
use super::tables;

const SHELL: &str = include_str!("page.html");
const FINDING: &str = include_str!("finding.html");
const STYLE: &str = include_str!("page.css");
/// The parts of the script share one scope, so that each is a file of one topic.
const SCRIPT: &str = concat!(
    include_str!("theme.js"),
    "(() => {\n\"use strict\";\n",
    include_str!("script/words.js"),
    include_str!("script/run.js"),
    include_str!("script/lanes.js"),
    include_str!("script/lines.js"),
    include_str!("script/source.js"),
    include_str!("script/memory.js"),
    include_str!("script/steps.js"),
    "})();\n",
);

/// Text as it stands in HTML, between tags or in an attribute.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Data as JSON that may stand in a script element: nothing in it ends the element or begins a comment.
///
/// # Panics
/// Never: the keys of what pages hold are strings.
#[must_use]
pub fn embedded(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("the keys of what pages hold are strings");
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Fills the holes of a template; what is put into one hole is not looked at for others.
fn filled(template: &str, holes: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("a hole of a template is closed");
        let hole = holes.iter().find(|(hole, _)| *hole == name);
        let (_, text) = hole.unwrap_or_else(|| panic!("nothing fills {name}"));
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out + rest
}

/// A whole file around the body of a page.
pub(super) fn document(title: &str, body: &str, script: &str) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(script)
    );
    let holes = [
        ("generator", GENERATOR),
        ("policy", policy.as_str()),
        ("title", &escaped(title)),
        ("style", STYLE),
        ("body", body),
        ("script", script),
    ];
    filled(SHELL, &holes)
}

/// The digest of a text, as a policy names it.
fn digest(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text.as_bytes());
    let mut out = String::new();
    for three in digest.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for nth in 0..4 {
            let letter = char::from(LETTERS[(bits >> (18 - 6 * nth)) as usize & 63]);
            out.push(if nth > three.len() { '=' } else { letter });
        }
    }
    out
}

/// Whether there is more than one page, and so an index to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// It is one of several, beside an `index.html`.
    Several,
    /// It is a file of its own.
    Alone,
}

/// Returns the file of a page.
#[must_use]
pub fn page(diagram: &Diagram, among: Among) -> String {
    let about = &diagram.about;
    let rule = about.rule.as_ref();
    let verdict = match rule {
        Some(rule) if about.verdict == "FAILS" => format!("FAILS {}", rule.id),
        _ => about.verdict.to_owned(),
    };
    let mut marks = String::new();
    for mark in
        [about.outcome.as_str(), stated_words(about.stated, about.origin), &about.setting, &about.place]
    {
        if !mark.is_empty() {
            let _ = write!(marks, "<span>{}</span>", escaped(mark));
        }
    }
    let (facts, more) = facts(about);
    let left_out: String = diagram.left_out.iter().map(|why| format!("<li>{}</li>", escaped(why))).collect();
    let left_out =
        if left_out.is_empty() { left_out } else { format!("<ul class=\"left-out\">{left_out}</ul>") };
    let crumbs = match among {
        Among::Several => "<a href=\"index.html\">All findings</a>",
        Among::Alone => "rankcheck",
    };
    let tone = if about.verdict == "HOLDS" { "good" } else { "bad" };
    let footer = format!("rankcheck {}. Steps are linked as #step=12.", env!("CARGO_PKG_VERSION"));
    let body = filled(
        FINDING,
        &[
            ("crumbs", crumbs),
            ("origin", about.origin),
            ("tone", tone),
            ("verdict", &escaped(&verdict)),
            ("marks", &marks),
            ("headline", &escaped(&about.headline)),
            ("title", &escaped(&about.title)),
            ("rule", &rule_line(about)),
            ("sentence", &escaped(&about.sentence)),
            ("facts", &facts),
            ("more", &more),
            ("left_out", &left_out),
            ("legend", &legend(diagram)),
            ("ends", &tables::ends(diagram)),
            ("devices", &tables::devices(&diagram.devices)),
            ("report", &escaped(&diagram.report)),
            ("footer", &footer),
            ("data", &embedded(&PageData::of(diagram))),
        ],
    );
    document(&format!("{verdict} · {}", about.title), &body, SCRIPT)
}

/// What the script needs: what stands in the HTML already is left out.
#[derive(Serialize)]
struct PageData<'a> {
    about: AboutData,
    #[serde(flatten)]
    run: RunData<'a>,
}

#[derive(Serialize)]
struct AboutData {
    /// What is wrong where the run ends, in a few words.
    ends: String,
}

/// What is wrong where a run ends: the rule that it breaks, or that it stands still.
fn ends(about: &AboutFinding) -> String {
    match (&about.rule, about.verdict) {
        (Some(rule), "FAILS") => format!("It breaks {}: {}.", rule.id, rule.title),
        (_, "HANGS") => "It hangs.".to_owned(),
        (_, "UNKNOWN") => "What is wrong with it is not known.".to_owned(),
        _ => String::new(),
    }
}

/// The fields of a diagram that the script reads.
#[derive(Serialize)]
struct RunData<'a> {
    texts: &'a [String],
    places: &'a [super::diagram::SourcePlace],
    lanes: &'a [super::diagram::DiagramLane],
    folds: &'a [super::diagram::RankFold],
    steps: &'a [super::diagram::DiagramStep],
    meetings: &'a [Vec<usize>],
    order: &'a [(usize, usize)],
    blocked: &'a [super::diagram::DiagramWait],
    cycle: &'a [usize],
    memory: &'a super::diagram::DiagramMemory,
    lines: &'a [super::diagram::MarkedLine],
    sources: &'a [super::diagram::SourceText],
}

impl<'a> PageData<'a> {
    fn of(diagram: &'a Diagram) -> Self {
        Self {
            about: AboutData { ends: ends(&diagram.about) },
            run: RunData {
                texts: &diagram.texts,
                places: &diagram.places,
                lanes: &diagram.lanes,
                folds: &diagram.folds,
                steps: &diagram.steps,
                meetings: &diagram.meetings,
                order: &diagram.order,
                blocked: &diagram.blocked,
                cycle: &diagram.cycle,
                memory: &diagram.memory,
                lines: &diagram.lines,
                sources: &diagram.sources,
            },
        }
    }
}

/// The rule that is broken, in a line.
fn rule_line(about: &AboutFinding) -> String {
    about.rule.as_ref().map_or_else(String::new, |rule| {
        format!("<p class=\"rule\"><span>breaks {}</span> {}</p>", rule.id, escaped(rule.title))
    })
}

/// Whether a finding is expected, in words.
pub(super) fn stated_words(stated: Stated, origin: &str) -> &'static str {
    match (stated, origin) {
        (Stated::Failure, _) => "expected: the check states this failure",
        (Stated::No, "spec") => "not as expected",
        (Stated::No | Stated::Unknown | Stated::Holds, _) => "",
    }
}

/// What a reader wants first, and what else there is.
fn facts(about: &AboutFinding) -> (String, String) {
    /// Labels of what a verdict rests on, and of what the page shows elsewhere.
    const LATER: [&str; 9] =
        ["at end", "data", "rule", "judged", "rests on", "explored", "costs", "idle", "untried"];
    /// Lines of one label that come first.
    const FIRST: usize = 3;
    let (mut first, mut later) = (String::new(), String::new());
    for Fact { label, lines } in &about.facts {
        let lines: Vec<&String> = lines.iter().filter(|line| **line != about.sentence).collect();
        let at = if LATER.contains(&label.as_str()) { 0 } else { FIRST.min(lines.len()) };
        for (out, lines) in [(&mut first, &lines[..at]), (&mut later, &lines[at..])] {
            if !lines.is_empty() && label != "rule" {
                out.push_str(&fact(label, lines));
            }
        }
    }
    if let Some(rule) = &about.rule {
        let _ = write!(
            first,
            "<dt>rule</dt><dd><details class=\"rule\"><summary>what {} says</summary><pre>{}</pre></details></dd>",
            rule.id,
            escaped(&rule.text)
        );
    }
    if !later.is_empty() {
        later = format!(
            "<details class=\"more\"><summary>What the verdict rests on, and more</summary><dl class=\"facts\">{later}</dl></details>"
        );
    }
    (first, later)
}

fn fact(label: &str, lines: &[&String]) -> String {
    let lines: String = lines.iter().map(|line| format!("<div>{}</div>", escaped(line))).collect();
    format!("<dt>{}</dt><dd>{lines}</dd>", escaped(label))
}
