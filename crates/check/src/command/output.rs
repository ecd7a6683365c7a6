//! Everything that is printed: lines, diagnostics, progress.
//!
//! Nothing else of the crate writes to standard output or standard error. A reader that goes away is no error; output that
//! cannot be written is one.
//! Not here: what is said.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use miette::{Diagnostic, MietteDiagnostic};

use crate::report::terminal::{Appearance, appearing};
use crate::spec::{DRAWN_WIDTH, drawn};

/// The exit code for bad specs and bad usage.
pub(super) const BAD: u8 = 2;

/// Why not everything could be printed, if so.
static LOST: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Whether an option names a folder; if not, it is said so.
///
/// # Errors
/// The exit code.
pub(super) fn wants_folder(folder: &Path, option: &str) -> Result<(), u8> {
    if folder.is_dir() {
        return Ok(());
    }
    Err(bad(&MietteDiagnostic::new(format!("no folder {} ({option})", folder.display()))))
}

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum ColorWhen {
    /// On a terminal unless `NO_COLOR` is set, and everywhere if `CLICOLOR_FORCE` is.
    #[default]
    Auto,
    /// In pipes and files, too.
    Always,
    /// Nowhere, not even on a terminal.
    Never,
}

/// How reports look, and whether errors have colours.
static LOOK: OnceLock<(Appearance, bool)> = OnceLock::new();

/// Takes in how what is printed is to look, before anything is.
pub(super) fn appear(color: ColorWhen) {
    let wanted = |auto: ColorChoice| match color {
        ColorWhen::Auto => auto != ColorChoice::Never,
        ColorWhen::Always => true,
        ColorWhen::Never => false,
    };
    let width = is_terminal().then(columns).flatten();
    let colour = wanted(AutoStream::choice(&std::io::stdout()));
    let _ = LOOK.set((Appearance { width, colour }, wanted(AutoStream::choice(&std::io::stderr()))));
}

fn look() -> (Appearance, bool) {
    LOOK.get().copied().unwrap_or_default()
}

/// Whether somebody reads what is printed as it is printed. A pipe is read by programs, and by people who search and page:
/// they get everything, in lines as long as they are.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How many columns the terminal has: what `COLUMNS` says, or else the terminal itself.
fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|said| said.parse().ok());
    let of_terminal = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into());
    said.or_else(of_terminal).filter(|columns| *columns > 0)
}

/// Prints a report as it is to look.
pub(super) fn report(text: impl Display) {
    line(appearing(&text.to_string(), look().0));
}

/// Prints a line on standard output. Once one could not be printed, later ones are dropped.
pub(super) fn line(text: impl Display) {
    lines(format_args!("{text}\n"));
}

/// Prints a text that ends its lines itself.
pub(super) fn lines(text: impl Display) {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    if lost.is_none() {
        *lost = write!(std::io::stdout(), "{text}").err();
    }
}

/// Writes out what is still held, and returns the exit code: the one given, unless some of the output was lost. A reader
/// that has seen enough and goes away loses nothing.
pub(super) fn finish(code: u8) -> u8 {
    let flushed = std::io::stdout().flush().err();
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).take();
    match lost.or(flushed) {
        None => code,
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => code,
        Some(error) => usage(format_args!("the output is not complete: {error}")),
    }
}

/// Prints a line beside the output.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints an error as a diagnostic and returns the exit code for bad specs and usage.
pub(super) fn bad(error: &dyn Diagnostic) -> u8 {
    let width = look().0.width.filter(|_| std::io::stderr().is_terminal());
    let width = width.map_or(DRAWN_WIDTH, |width| width.clamp(DRAWN_WIDTH / 2, DRAWN_WIDTH));
    let text = drawn(error, look().1, width);
    // Lines that a frame is drawn around stand apart from what follows.
    let end = if text.contains('\n') { "\n" } else { "" };
    note(format_args!("{text}{end}"));
    BAD
}

/// Whether a folder of the repository is there; prints an error if not. A command that works on it has nothing to say
/// elsewhere.
///
/// # Errors
/// The exit code.
pub(super) fn needs_folder(folder: &Path) -> Result<(), u8> {
    let here = match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is no folder".to_owned(),
        Err(error) => error.to_string(),
    };
    let from = std::env::current_dir().map_or_else(|_| "here".to_owned(), |at| at.display().to_string());
    Err(usage(format_args!(
        "{} cannot be read from {from}: {here}; run this command in the root of a checkout of rankcheck",
        folder.display()
    )))
}

/// Prints an error and returns the exit code for bad specs and usage.
pub(super) fn usage(message: impl Display) -> u8 {
    advice(format_args!("error: {message}"));
    BAD
}

/// Prints a paragraph beside the output. On a terminal it is wrapped as reports are, and no word is cut.
pub(super) fn advice(text: impl Display) {
    let text = text.to_string();
    match columns().filter(|_| std::io::stderr().is_terminal()) {
        Some(width) => note(wrapped(&text, width)),
        None => note(text),
    }
}

fn wrapped(text: &str, width: usize) -> String {
    let options = textwrap::Options::new(width)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// How many columns there are for what is said of progress, behind the time, the bar and how many of so many are over.
pub(super) fn progress_columns(steps: usize) -> usize {
    let columns = terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| width.0.into());
    let before = "59m 59s ".len() + 16 + " / · ".chars().count() + 2 * steps.to_string().len();
    usize::saturating_sub(columns, before)
}

/// A duration in whole seconds, as in `7s`, `1m 30s` and `2h 5m`.
pub(super) fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A bar that is hidden until [`show_progress`].
pub(super) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{passed:>4} {bar:16} {pos}/{len} · {wide_msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    // indicatif rounds to minutes from 90 seconds on.
    bar.set_style(style.with_key("passed", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{}", in_words(state.elapsed()));
    }));
    bar
}

/// Shows a bar if there is a terminal and it began so long ago: what is over before needs none. Returns whether it is shown.
pub(super) fn show_progress(bar: &ProgressBar, after: Duration) -> bool {
    let shows = std::io::stderr().is_terminal() && bar.elapsed() >= after;
    if shows && bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    shows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_hyphens_stays_whole() {
        let told = "error: known: \"sglang-20153-shared-pool\", a/path/that-is/longer than the line is";
        assert_eq!(
            wrapped(told, 24),
            "error: known:\n\"sglang-20153-shared-pool\",\na/path/that-is/longer\nthan the line is"
        );
    }
}
