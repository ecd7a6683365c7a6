//! A text report as a terminal shows it: wrapped to its width, what follows a label indented below it, verdicts in colour.
//!
//! Words are never changed, and where there is neither width nor colour, nothing is. Pictures of source are not wrapped:
//! what is marked would no longer stand below its line.
//! Not here: what a report says, and what kind of terminal there is.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use textwrap::core::display_width;

/// How a text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appearance {
    /// How many columns there are; none where lines may have any length.
    pub width: Option<usize>,
    /// Whether there are colours.
    pub colour: bool,
}

/// Fewer columns hold no report: labels alone take twelve.
const NARROWEST: usize = 40;

/// The columns that a label takes, with what stands around it.
const LABEL: usize = 12;

/// What begins a line of a report, and how it looks.
const HEADS: [(&str, AnsiColor); 9] = [
    ("  NOT AS EXPECTED", AnsiColor::Red),
    ("  WARNING", AnsiColor::Yellow),
    ("HOLDS", AnsiColor::Green),
    ("SAME", AnsiColor::Green),
    ("AGREE", AnsiColor::Green),
    ("FAILS", AnsiColor::Red),
    ("HANGS", AnsiColor::Red),
    ("DIFFER", AnsiColor::Red),
    ("UNKNOWN", AnsiColor::Yellow),
];

/// Returns a text as it is to look.
#[must_use]
pub fn appearing(text: &str, appearance: Appearance) -> String {
    let width = appearance.width.filter(|width| *width >= NARROWEST);
    let mut out = String::with_capacity(text.len());
    for (nth, line) in text.split('\n').enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        let rows = width.map_or_else(|| vec![line.to_owned()], |width| wrapped(line, width));
        for (nth, row) in rows.iter().enumerate() {
            if nth > 0 {
                out.push('\n');
            }
            match appearance.colour && nth == 0 {
                true => out.push_str(&coloured(row)),
                false => out.push_str(row),
            }
        }
    }
    out
}

/// Whether a line is part of a picture of source.
fn is_picture(line: &str) -> bool {
    line.contains('│') || line.trim_start().starts_with(['╭', '╰', '·'])
}

/// The rows that a line takes.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    if display_width(line) <= width || is_picture(line) {
        return vec![line.to_owned()];
    }
    let spaces = line.len() - line.trim_start_matches(' ').len();
    let hang = match spaces {
        0 => 2,
        2 => LABEL,
        indented => indented.min(width / 2),
    };
    let mut rows = Vec::new();
    let mut row = line[..spaces].to_owned();
    let mut begins = true;
    // The operations of a lane stand apart, and are not taken to pieces as long as they fit into a row.
    let apart = if line.starts_with("  rank") { "  " } else { " " };
    for (gap, word) in words(&line[spaces..], apart) {
        let pieces = if hang + display_width(word) > width { words(word, " ") } else { vec![("", word)] };
        for (nth, (within, piece)) in pieces.into_iter().enumerate() {
            let gap = if nth == 0 { gap } else { within };
            if !begins && display_width(&row) + gap.len() + display_width(piece) > width {
                rows.push(std::mem::replace(&mut row, " ".repeat(hang)));
            } else if !begins {
                row.push_str(gap);
            }
            row.push_str(piece);
            begins = false;
        }
    }
    rows.push(row);
    rows
}

/// The words of a text, each with the spaces before it. So many spaces, or more, stand between two words.
fn words<'a>(text: &'a str, apart: &str) -> Vec<(&'a str, &'a str)> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (gap, from) = rest.split_at(rest.len() - rest.trim_start_matches(' ').len());
        let (word, after) = from.split_at(from.find(apart).unwrap_or(from.len()));
        words.push((gap, word));
        rest = after;
    }
    words
}

/// A row with the colours of its verdict, its label or its numbers.
fn coloured(row: &str) -> String {
    let bold = |colour: AnsiColor| Style::new().fg_color(Some(colour.into())).bold();
    for (head, colour) in HEADS {
        if let Some(rest) = row.strip_prefix(head)
            && rest.chars().next().is_none_or(|next| next == ' ')
        {
            // The rule belongs to the verdict.
            let rule = match head == "FAILS" && rest.starts_with(' ') {
                true => rest[1..].find(' ').map_or(rest.len(), |end| end + 1),
                false => 0,
            };
            return painted(bold(colour), &row[..head.len() + rule], &rest[rule..]);
        }
    }
    if let Some((passed, rest)) = row.split_once(" passed, ")
        && let Some((failed, rest)) = rest.split_once(" failed")
        && passed.bytes().chain(failed.bytes()).all(|byte| byte.is_ascii_digit())
    {
        let failing = if failed == "0" { AnsiColor::Green } else { AnsiColor::Red };
        return painted(bold(AnsiColor::Green), &format!("{passed} passed"), ", ")
            + &painted(bold(failing), &format!("{failed} failed"), rest);
    }
    let begins =
        row.strip_prefix("  ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    if begins && !is_picture(row) && row.is_char_boundary(LABEL) && row.as_bytes()[LABEL - 1] == b' ' {
        return painted(Style::new().fg_color(Some(AnsiColor::Cyan.into())), &row[..LABEL], &row[LABEL..]);
    }
    row.to_owned()
}

fn painted(style: Style, text: &str, rest: &str) -> String {
    let mut out = String::new();
    let _ = write!(out, "{style}{text}{style:#}{rest}");
    out
}
