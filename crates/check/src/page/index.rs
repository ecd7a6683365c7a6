//! The index: one row for each check, recorded run and job, those first that are not as expected.
//!
//! It works from a folder: links lead to files beside it, and the filter is a few lines of script in the page.
//! Not here: where it is written to ([`super::folder`]).

use std::fmt::Write as _;

use super::diagram::Stated;
use super::html::{document, escaped};

const SCRIPT: &str = concat!(include_str!("theme.js"), include_str!("index.js"));

/// What columns and colours mean.
const KEY: &str = "<details class=\"legend\"><summary>What columns and colours mean</summary><dl>\
    <div><dt><b class=\"no\">FAILS COLL-1</b></dt><dd>red: not as expected. FAILS names the rule that is broken, HANGS a run that stands</dd></div>\
    <div><dt><b>FAILS COLL-1</b> expected</dt><dd>black: a check states this failure, and a program that shows it on purpose has it</dd></div>\
    <div><dt><b>HOLDS</b></dt><dd>nothing is wrong with what was tried; judged says what that is</dd></div>\
    <div><dt><b>UNKNOWN</b></dt><dd>too little is known, or a bound was hit: never a pass</dd></div>\
    <div><dt>check or run</dt><dd>its page, what goes wrong in a sentence, and where it stands</dd></div>\
    <div><dt>system</dt><dd>the folder that it lies in</dd></div>\
    <div><dt>what follows</dt><dd>what the model predicts, or what became of the recorded run</dd></div>\
    <div><dt>on devices</dt><dd>what GPUs did with the same program, if it was run on some</dd></div>\
    <div><dt>judged</dt><dd>how much the verdict is about, and below it what no run came by</dd></div>\
    </dl></details>";

/// A row of the index.
#[derive(Debug, Clone)]
pub struct IndexRow {
    /// Whether it is as stated; decides the order.
    pub stated: Stated,
    /// `FAILS WIN-2`, `HOLDS`, …
    pub verdict: String,
    /// The check, or the folder.
    pub title: String,
    /// The system that it belongs to: the folder that it lies in.
    pub system: String,
    /// File and line, or the folder.
    pub place: String,
    /// Rank counts and parameters.
    pub setting: String,
    /// What goes wrong, for somebody who knows no rule; empty if nothing does.
    pub headline: String,
    /// What is wrong, in one sentence; empty if nothing is.
    pub sentence: String,
    /// What follows, as predicted.
    pub outcome: String,
    /// What devices did with the same program.
    pub devices: String,
    /// What the verdict is about.
    pub judged: String,
    /// Branches, ranks and calls that nothing came by.
    pub never: Vec<String>,
    /// The file of its page.
    pub page: Option<String>,
}

/// Something that could not be judged.
#[derive(Debug, Clone)]
pub struct Unread {
    /// What is wrong with it.
    pub message: String,
    /// Where that is, if it is known.
    pub at: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
}

/// Returns the file of an index.
#[must_use]
pub fn index(rows: &[IndexRow], unread: &[Unread]) -> String {
    let count = |stated: Stated| rows.iter().filter(|row| row.stated == stated).count();
    let mut counts = String::new();
    for (number, what, class) in [
        (count(Stated::No), "not as expected", "bad"),
        (unread.len(), "could not be judged", "bad"),
        (count(Stated::Unknown), "not known", ""),
        (count(Stated::Failure), "expected failures", ""),
        (count(Stated::Holds), "hold", ""),
    ] {
        let class = if number == 0 { "" } else { class };
        let _ = write!(counts, "<li class=\"{class}\"><b>{number}</b> {what}</li>");
    }
    let mut errors = String::new();
    for Unread { message, at, help } in unread {
        let at = at.as_ref().map_or_else(String::new, |at| format!(" ({})", escaped(at)));
        let help = help.as_ref().map_or_else(String::new, |help| format!(" — {}", escaped(help)));
        let _ = write!(errors, "<li>{}{at}{help}</li>", escaped(message));
    }
    if !errors.is_empty() {
        errors = format!("<h2>Could not be judged</h2><ul class=\"left-out\">{errors}</ul>");
    }
    let mut sorted: Vec<&IndexRow> = rows.iter().collect();
    sorted.sort_by_key(|row| row.stated);
    let table: String = sorted.into_iter().map(row_text).collect();
    let body = format!(
        "<header class=\"page\"><div class=\"crumbs\"><span>rankcheck</span>\
         <span><button type=\"button\" class=\"quiet\" id=\"theme\" hidden>Theme</button></span></div>\
         <h1>Findings</h1><ul class=\"counts\">{counts}</ul>{KEY}</header>\
         <main><section aria-label=\"All checks and runs\">{errors}\
         <div class=\"filter\" id=\"filter\" hidden><label for=\"words\">Filter</label>\
         <input type=\"search\" id=\"words\" placeholder=\"rule, system, name …  ( / )\" title=\"the key / leads here\" autocomplete=\"off\">\
         <label><input type=\"checkbox\" id=\"unexpected\"> only what is not as expected</label>\
         <span id=\"shown\" role=\"status\" aria-live=\"polite\"></span></div>\
         <table class=\"index\"><caption>All checks, recorded runs and jobs; what is not as expected comes first.</caption><colgroup><col class=\"v\"><col><col class=\"s\"><col class=\"o\"><col class=\"d\"><col class=\"j\"></colgroup>\
         <thead><tr><th scope=\"col\">verdict</th><th scope=\"col\">check or run</th><th scope=\"col\">system</th>\
         <th scope=\"col\">what follows</th><th scope=\"col\">on devices</th><th scope=\"col\">judged</th></tr></thead>\
         <tbody>{table}</tbody></table></section></main>\
         <footer>rankcheck {}. HOLDS says nothing about what no run came by; that stands under judged.</footer>",
        env!("CARGO_PKG_VERSION")
    );
    document("rankcheck: findings", &body, SCRIPT)
}

fn row_text(row: &IndexRow) -> String {
    let class = match row.stated {
        Stated::No => "no",
        Stated::Unknown => "unknown",
        Stated::Failure => "failure",
        Stated::Holds => "holds",
    };
    let title = match &row.page {
        Some(page) => format!("<a href=\"{}\">{}</a>", escaped(page), escaped(&row.title)),
        None => escaped(&row.title),
    };
    let sub = |text: &str| match text {
        "" => String::new(),
        text => format!("<span class=\"sub\">{}</span>", escaped(text)),
    };
    let file = row.place.rsplit('/').next().filter(|_| row.place.contains(".star:")).unwrap_or(&row.place);
    let under = sub(&row.headline) + &sub(&row.sentence) + &sub(&format!("{file} · {}", row.setting));
    let expected = if row.stated == Stated::Failure { sub("expected") } else { String::new() };
    let never: String = row.never.iter().map(|text| sub(text)).collect();
    format!(
        "<tr class=\"{class}\"><td class=\"v\">{}{expected}</td><td class=\"t\">{title}{under}</td>{}{}{}{}</tr>",
        escaped(&row.verdict),
        cell("system", escaped(&row.system)),
        cell("what follows", escaped(&row.outcome)),
        cell("on devices", escaped(&row.devices)),
        cell("judged", escaped(&row.judged) + &never),
    )
}

/// A cell with the name of its column, which stands before it where rows are cards.
fn cell(column: &str, text: String) -> String {
    let class = if text.is_empty() { " class=\"empty\"" } else { "" };
    format!("<td{class} data-column=\"{column}\">{text}</td>")
}
