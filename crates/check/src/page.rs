//! Pages: what people look at, one self-contained HTML file for a finding, and an index over all of them.
//!
//! A page is a function of one [`Diagram`]: lanes, steps, arrows, what is blocked, memory, source. An explained check, a
//! recorded run and the dumps of a job each fill one; nothing is run again for it, and a page fetches nothing.
//!
//! Reading order: [`diagram`] (the data), [`explained`], [`recorded`] and [`launched`] (who fills it), `paths` (where ranks
//! diverge), `headline`, `layout`
//! (where it is drawn), [`html`] (how it becomes a file), [`mod@index`] and [`folder`].
//! Not here: how anything was found.

pub mod diagram;
pub mod explained;
pub mod folder;
mod headline;
pub mod html;
pub mod index;
pub mod launched;
mod layout;
mod legend;
mod paths;
pub mod recorded;
mod replayed;
pub mod sources;
mod tables;

pub use diagram::{Diagram, Fact};

/// What a report of a run says below its headline: sentences, and rows by their labels.
pub(crate) fn said(report: &str) -> (Vec<String>, Vec<Fact>) {
    let lines = report.lines().skip(1);
    let (rows, sentences): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("  "));
    (sentences.into_iter().map(str::to_owned).collect(), labelled(&rows.join("\n")))
}

/// The rows of a report, by their labels.
pub(crate) fn labelled(rows: &str) -> Vec<Fact> {
    /// Columns before the text of a row.
    const INDENT: usize = 12;
    let mut facts: Vec<Fact> = Vec::new();
    for row in rows.lines().filter(|row| !row.trim().is_empty()) {
        let (label, text) = match row.char_indices().nth(INDENT) {
            Some((at, _)) if row.starts_with("  ") => row.split_at(at),
            _ => ("", row),
        };
        // A label that is longer than its column is set apart by two blanks.
        let (label, text) = match row.trim_start().split_once("  ") {
            Some((long, rest)) if long.len() > INDENT - 3 && !row.starts_with("   ") => (long, rest),
            _ => (label.trim(), text),
        };
        let text = text.trim().to_owned();
        match facts.last_mut() {
            Some(last) if label.is_empty() => last.lines.push(text),
            _ => facts.push(Fact { label: label.to_owned(), lines: vec![text] }),
        }
    }
    facts
}
