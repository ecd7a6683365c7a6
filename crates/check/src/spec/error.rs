//! What is wrong with a spec: message, location, help, ready to be drawn by miette.
//!
//! Not here: findings about the program that a spec describes, which are data and not errors.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode, SourceSpan,
};
use rankcheck_model::{Loc, Rule, SourceError};
use serde::{Deserialize, Serialize};
use starlark::ErrorKind;
use starlark::codemap::FileSpan;

use crate::spec::compare::Text;
use crate::spec::parameters::misuse;

/// The files of a spec by name.
pub(crate) type Texts = BTreeMap<Arc<str>, Text>;

/// A spec that cannot be read or evaluated.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{}", .0.message)]
#[serde(from = "WrittenError", into = "WrittenError")]
pub struct SpecError(Box<SpecReport>);

/// What a [`SpecError`] says, and the text that it points into.
#[derive(Debug, Clone)]
struct SpecReport {
    message: String,
    help: Option<String>,
    loc: Option<Loc>,
    source: Option<NamedSource<String>>,
    /// What in the text it is about, the first what it is about most, each with what is said there.
    labels: Vec<(String, SourceSpan)>,
    /// In which run of which check it came up, in words, if it did in one.
    run: Option<String>,
}

/// A [`SpecError`] as it is written into files.
#[derive(Serialize, Deserialize)]
struct WrittenError {
    message: String,
    help: Option<String>,
    loc: Option<Loc>,
    /// The name of the file, and its text.
    source: Option<(String, String)>,
    /// What is said of a part of the text, where that begins, and its length in bytes.
    labels: Vec<(String, usize, usize)>,
    run: Option<String>,
}

impl From<SpecError> for WrittenError {
    fn from(error: SpecError) -> Self {
        let SpecReport { message, help, loc, source, labels, run } = *error.0;
        let source = source.map(|source| (source.name().to_owned(), source.inner().clone()));
        let labels = labels.into_iter().map(|(said, span)| (said, span.offset(), span.len())).collect();
        Self { message, help, loc, source, labels, run }
    }
}

impl From<WrittenError> for SpecError {
    fn from(written: WrittenError) -> Self {
        let WrittenError { message, help, loc, source, labels, run } = written;
        let source = source.map(|(name, text)| NamedSource::new(name, text));
        let labels = labels.into_iter().map(|(said, begin, len)| (said, (begin, len).into())).collect();
        Self(Box::new(SpecReport { message, help, loc, source, labels, run }))
    }
}

impl SpecError {
    pub(crate) fn new(message: impl Into<String>, help: Option<String>) -> Self {
        let (message, labels) = (message.into(), Vec::new());
        Self(Box::new(SpecReport { message, help, loc: None, source: None, labels, run: None }))
    }

    pub(crate) fn at(
        span: &FileSpan,
        texts: &Texts,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Self {
        let mut error = Self::new(message, help);
        error.0.loc = Some(loc_of(span, texts));
        let Some(text) = texts.get(span.filename()) else { return error };
        let begin = text.original(span.span.begin().get() as usize);
        let end = text.original(span.span.end().get() as usize);
        let text = &text.original;
        // A call that goes over several lines is marked on its first.
        let line = text[begin..].find('\n').unwrap_or(text.len() - begin);
        error.0.source = Some(NamedSource::new(span.filename(), text.to_string()));
        error.0.labels = vec![("here".to_owned(), (begin, (end - begin).min(line)).into())];
        error
    }

    /// Points to the white space that the next line begins with, instead of what it points to.
    fn of_next_line(mut self) -> Self {
        let (Some(source), [(_, span)]) = (&self.0.source, self.0.labels.as_mut_slice()) else { return self };
        let text = source.inner();
        let Some(line) = text[span.offset()..].find('\n').map(|end| span.offset() + end + 1) else {
            return self;
        };
        let blank = text[line..].find(|char| char != ' ' && char != '\t').unwrap_or(0);
        *span = (line, blank.max(1)).into();
        if let Some(loc) = &mut self.0.loc {
            loc.line += 1;
            loc.column = 1;
        }
        self
    }

    /// Also points to a bracket that is opened before the error, and never closed.
    fn names_open_bracket(mut self) -> Self {
        if let (Some(source), [(_, error)]) = (&self.0.source, self.0.labels.as_slice())
            && let Some(open) = never_closed(source.inner(), error.offset())
        {
            self.0.labels.push(("opened here, and never closed".to_owned(), (open, 1).into()));
        }
        self
    }

    /// An error of an evaluation, with the text that it points into.
    pub(crate) fn of_source(error: &SourceError, texts: &Texts) -> Self {
        let mut report = Self::new(error.message.clone(), error.help.clone());
        report.0.loc.clone_from(&error.loc);
        if let Some((loc, text)) =
            error.loc.as_ref().and_then(|loc| texts.get(&loc.file).map(|text| (loc, text)))
        {
            report.0.source = Some(NamedSource::new(&loc.file, text.original.to_string()));
            report.0.labels = vec![("here".to_owned(), span_from(&text.original, loc))];
        }
        report
    }

    /// The error as one that came up in a run of a check, which is told in words.
    pub(crate) fn in_run(mut self, run: String) -> Self {
        self.0.run = Some(run);
        self
    }

    /// The error where it came up in so many other runs as well.
    #[cfg(feature = "cli")]
    pub(crate) fn in_others(mut self, others: usize) -> Self {
        if let Some(run) = self.0.run.as_mut().filter(|_| others > 0) {
            run.push_str(&format!(", and in {others} more"));
        }
        self
    }

    /// The error, whichever run it came up in: what is wrong with a program is wrong in every check of it.
    #[cfg(feature = "cli")]
    pub(crate) fn of_any_run(&self) -> Self {
        let mut error = self.clone();
        error.0.run = None;
        error
    }

    /// The error with the lines that it points into, in plain text.
    #[must_use]
    pub fn drawn(&self) -> String {
        drawn(self, false, DRAWN_WIDTH)
    }

    /// Returns where the error is, if that is known.
    #[must_use]
    pub fn loc(&self) -> Option<&Loc> {
        self.0.loc.as_ref()
    }
}

/// From a location to the end of the expression on that line, as far as brackets tell.
pub(crate) fn span_from(text: &str, loc: &Loc) -> SourceSpan {
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if number + 1 == loc.line as usize {
            let column = line.char_indices().nth(loc.column as usize - 1).map_or(0, |(at, _)| at);
            let rest = line[column..].trim_end();
            let mut depth = 0_i32;
            let mut len = rest.len();
            for (at, c) in rest.char_indices() {
                match c {
                    '(' | '[' => depth += 1,
                    ')' | ']' => {
                        depth -= 1;
                        if depth <= 0 {
                            len = at + usize::from(depth == 0);
                            break;
                        }
                    }
                    '#' | ':' if depth == 0 => {
                        len = rest[..at].trim_end().len();
                        break;
                    }
                    _ => {}
                }
            }
            return (start + column, len).into();
        }
        start += line.len();
    }
    (0, 0).into()
}

impl Diagnostic for SpecError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.0.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let ((said, span), others) = self.0.labels.split_first()?;
        let run = self.0.run.as_ref().map_or_else(String::new, |run| format!(", in {run}"));
        let first = LabeledSpan::new_primary_with_span(Some(format!("{said}{run}")), *span);
        let others = others.iter().map(|(said, span)| LabeledSpan::new_with_span(Some(said.clone()), *span));
        Some(Box::new(std::iter::once(first).chain(others)))
    }
}

/// How many columns an error takes at most.
pub(crate) const DRAWN_WIDTH: usize = 100;

/// A diagnostic with the lines that it points into, as it is printed: it begins as errors about arguments do.
pub(crate) fn drawn(error: &dyn Diagnostic, colour: bool, width: usize) -> String {
    let mut theme = match colour {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    "error:".clone_into(&mut theme.characters.error);
    let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false);
    let mut text = String::new();
    match handler.render_report(&mut text, error) {
        Ok(()) => text.trim().to_owned(),
        Err(_) => format!("error: {error}"),
    }
}

/// Where the innermost bracket stands that is open at a place of a text, and still is at its end.
fn never_closed(text: &str, at: usize) -> Option<usize> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut open_there = None;
    let mut rest = text.char_indices().peekable();
    while let Some((place, char)) = rest.next() {
        if place >= at {
            open_there.get_or_insert_with(|| open.clone());
        }
        let opened_by = match char {
            ')' => '(',
            ']' => '[',
            '}' => '{',
            '(' | '[' | '{' => {
                open.push((place, char));
                continue;
            }
            '#' => {
                while rest.next_if(|(_, char)| *char != '\n').is_some() {}
                continue;
            }
            '"' | '\'' => {
                let three = [char; 3].iter().collect::<String>();
                let delimiter = if text[place..].starts_with(&three) { three } else { char.to_string() };
                // Of brackets behind a text that is never closed nothing is known.
                let end = end_of_string(&text[place..], &delimiter)? + place;
                while rest.next_if(|(place, _)| *place < end).is_some() {}
                continue;
            }
            _ => continue,
        };
        if open.last().is_some_and(|(_, last)| *last == opened_by) {
            open.pop();
        }
    }
    let open_there = open_there.unwrap_or_else(|| open.clone());
    open_there.iter().rev().find(|bracket| open.contains(bracket)).map(|(place, _)| *place)
}

/// Behind which byte a string ends that begins a text; none if it is not closed, one in single quotes on its line.
fn end_of_string(text: &str, delimiter: &str) -> Option<usize> {
    let mut at = delimiter.len();
    while let Some(rest) = text.get(at..) {
        if rest.starts_with(delimiter) {
            return Some(at + delimiter.len());
        }
        let next = rest.chars().next().filter(|next| *next != '\n' || delimiter.len() > 1)?;
        at += next.len_utf8();
        if next == '\\' {
            at += rest.chars().nth(1).map_or(0, char::len_utf8);
        }
    }
    None
}

/// The location of a span of Starlark, in the text as it was written.
pub(crate) fn loc_of(span: &FileSpan, texts: &Texts) -> Loc {
    let begin = span.resolve_span().begin;
    let number = |n: usize| u32::try_from(n + 1).expect("files have fewer than 2^32 lines and columns");
    let column = texts.get(span.filename()).map_or(begin.column, |text| {
        let before = &text.original[..text.original(span.span.begin().get() as usize)];
        before[before.rfind('\n').map_or(0, |at| at + 1)..].chars().count()
    });
    Loc { file: span.filename().into(), line: number(begin.line), column: number(column), called_at: None }
}

/// Where Rust calls from.
pub(crate) fn loc_of_caller(caller: &Location<'_>) -> Loc {
    Loc { file: caller.file().into(), line: caller.line(), column: caller.column(), called_at: None }
}

/// What is wrong with the arguments of a verb.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// On its way through the interpreter.
impl From<Wrong> for starlark::Error {
    fn from(wrong: Wrong) -> Self {
        Self::new_native(wrong)
    }
}

/// An error that a builtin gives.
pub(crate) fn wrong(message: impl Into<String>, help: impl Into<String>) -> starlark::Error {
    Wrong::new(message, help).into()
}

/// Message and help of what came out of the interpreter.
pub(crate) fn explain(error: &starlark::Error) -> (String, Option<String>) {
    let (ErrorKind::Native(inner) | ErrorKind::Other(inner) | ErrorKind::Value(inner)) = error.kind() else {
        return replace(error);
    };
    match inner.downcast_ref::<Wrong>() {
        Some(wrong) => (wrong.message.clone(), Some(wrong.help.clone())),
        None => replace(error),
    }
}

/// The limits of one evaluation, as they are set.
pub(crate) const MAX_TICKS: u64 = 50_000_000;
/// How deep calls of a spec may be nested.
pub(crate) const MAX_DEPTH: usize = 200;
/// How many bytes the values of a spec may take. The stack of an evaluation is as deep as they can be nested
/// ([`crate::spec::stack`]).
pub(crate) const MAX_HEAP_BYTES: usize = 128 << 20;
/// What is said where they take more.
const HEAP_EXCEEDED: (&str, &str) = (
    "the values of one evaluation take more than the limit of 128 MiB",
    "a list or string is too large; build a smaller one",
);

/// The error of values that take more than [`MAX_HEAP_BYTES`].
pub(crate) fn heap_exceeded() -> starlark::Error {
    wrong(HEAP_EXCEEDED.0, HEAP_EXCEEDED.1)
}

/// How many elements a list or range may have, and how many bytes a string.
pub(crate) const MAX_LENGTH: u64 = MAX_TICKS;
/// How deep expressions and blocks of a file may be nested.
pub(crate) const MAX_NESTING: usize = 1000;

/// What the interpreter says of a line, pointing to the end of the one before.
const TABS: &str = "tabs are not allowed";
const INDENTATION: &str = "incorrect indentation";

/// What the interpreter says without a guess at a name of one letter, which is near to every other one.
fn without_guess(text: String) -> String {
    let Some((told, _)) = text.split_once("did you mean `") else { return text };
    let letters = told.rsplit('`').nth(1).map_or(0, |name| name.chars().count());
    if letters == 1 { told.trim_end_matches([' ', ',']).to_owned() } else { text }
}

/// Our words for what the interpreter says in its own.
fn replace(error: &starlark::Error) -> (String, Option<String>) {
    let text = error.without_diagnostic().to_string();
    let text = text.strip_prefix("fail:").map_or(text.clone(), |rest| format!("fail: {}", rest.trim()));
    let text = without_guess(text);
    if let Some(found) = misuse(&text, error.span().map(|span| span.source_span())) {
        return found;
    }
    let says = |part: &str| text.contains(part);
    let (message, help) = if let Some(found) = keyword(error) {
        found
    } else if says("Immutable") || says("immutable") || says("Cannot mutate") {
        (
            "loaded modules and module-level values are frozen: a program cannot change them".to_owned(),
            "use r.map(name) or r.list(name), which belong to a rank, or a variable inside the function",
        )
    } else if matches!(error.kind(), ErrorKind::StackOverflow(_)) || says("call stack overflow") {
        (
            format!("calls nest deeper than the limit of {MAX_DEPTH}"),
            "a function probably calls itself without end; use a for loop",
        )
    } else if says("ticks has been exceeded") {
        (
            format!("more than {MAX_TICKS} loop turns and calls in one evaluation, which is the limit"),
            "the limit stops endless loops; shorten the loop",
        )
    } else if says("Heap memory limit") {
        (HEAP_EXCEEDED.0.to_owned(), HEAP_EXCEEDED.1)
    } else if text.strip_prefix("fail: ").is_some_and(|rule| rule.parse::<Rule>().is_ok()) {
        (text.clone(), "`fails(…)` is the expectation; `fail(…)` ends the evaluation with a message")
    } else if says(TABS) {
        (text.clone(), "indent with spaces")
    } else if says(INDENTATION) {
        (
            text.clone(),
            "this line is indented less than the one above it, and like none before: indent it like its block",
        )
    } else if says("unexpected new indentation block") {
        (text.clone(), "this line is indented deeper than the one above it, which begins no block")
    } else if says("expected new indentation block") {
        (text.clone(), "the line above begins a block: indent what belongs to it")
    } else if says("reserved keyword `is`") {
        (text.clone(), "`==` compares")
    } else if says("unexpected keyword 'if', expected symbol ':'") {
        (text.clone(), "write `elif` for `else if`")
    } else if says("unexpected symbol '=', expected symbol '('") {
        (text.clone(), "`load` is a word of the language, which reads another file: choose another name")
    } else if says("unexpected symbol '='") {
        (text.clone(), "`==` compares; `=` gives a name a value, in a statement of its own")
    } else if says("`call()` not supported on type") && !says("`function`") {
        (text.clone(), "what is to be called is a function: `lambda: …` makes one of a call")
    } else if says("parameter") {
        (text.clone(), "the arguments of every builtin are in docs/spec-language.md")
    } else if says("referenced before assignment") {
        (text.clone(), "a name that a function assigns is its own; give it a value first, or pass it in")
    } else {
        return (text, None);
    };
    (message, Some(help.to_owned()))
}

/// Keywords of Python that the language does not have.
fn keyword(error: &starlark::Error) -> Option<(String, &'static str)> {
    if !matches!(error.kind(), ErrorKind::Parser(_)) {
        return None;
    }
    let span = error.span()?;
    let source = span.file.source();
    let line = source[..span.span.begin().get() as usize].rfind('\n').map_or(0, |at| at + 1);
    let first = source[line..].trim_start().split(|c: char| !c.is_alphanumeric()).next()?;
    let help = match first {
        "while" => "write `for _ in range(limit):` with a bound, and `break`",
        "class" => "write functions; state of a rank lives in r.map(name) and r.list(name)",
        "try" | "except" | "finally" => {
            "write `message = r.attempt(body)` for except, `r.context(enter, leave, body)` for finally"
        }
        "raise" => "write `r.raises(message)`",
        "with" => "write `r.context(enter, leave, body)`, or `m.locked(body)` for a mutex",
        "import" | "from" => "write `load(\"//lib/file.star\", \"name\")`",
        "global" | "nonlocal" => "functions change no outer names; use r.map(name) or r.list(name)",
        "assert" => "write `r.reach(label)` for what must happen, `fail(message)` for what must not",
        "del" => "write `d.pop(key)`",
        "async" | "await" => "write `r.thread(name, f)` and `t.join()`",
        "yield" => "return a list",
        _ => return None,
    };
    Some((format!("the language has no `{first}`"), help))
}

/// What a panic says.
pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// What came out of the interpreter, as an error of the spec.
pub(crate) fn spec_error(error: &starlark::Error, texts: &Texts) -> SpecError {
    let (message, help) = explain(error);
    match error.span() {
        Some(span) if matches!(error.kind(), ErrorKind::Parser(_)) => {
            let of_next_line = [TABS, INDENTATION].iter().any(|said| message.contains(said));
            let error = SpecError::at(span, texts, message, help);
            if of_next_line { error.of_next_line() } else { error.names_open_bracket() }
        }
        Some(span) => SpecError::at(span, texts, message, help),
        None => SpecError::new(message, help),
    }
}

/// The nearest of the known words, if it is near.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|candidate| (distance(word, candidate), candidate)).min()?;
    let letters = word.chars().count();
    (near.0 <= 1 + letters / 3 && near.0 < letters).then_some(near.1)
}

/// Levenshtein's distance, case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, d) in b.iter().enumerate() {
            let here = (diagonal + usize::from(c != *d)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], here);
        }
    }
    row[b.len()]
}

/// The error for a word that is none of the known ones.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> starlark::Error {
    let help = match did_you_mean(word, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"? known: {}", known.join(", ")),
        None => format!("known: {}", known.join(", ")),
    };
    wrong(format!("unknown {what} \"{word}\""), help)
}
