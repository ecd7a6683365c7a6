//! How far the searches of a command are, on a terminal, and what is done when somebody interrupts them.
//!
//! The first Ctrl-C ends the searches soon, and what they found is told; the second ends the process at once. What is left
//! is estimated only from checks that are over, and only while none takes longer than they did: one search says nothing
//! about how large another is.
//! Not here: what is searched, and what is told in the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::output;
use crate::search::{LargeSearch, StopRequest, states_so_far};

/// The exit code of a command that was interrupted, as shells count: 128 and the number of the signal.
pub(super) const INTERRUPTED: u8 = 130;

/// How soon after a signal another one is the same: what runs a command for somebody often passes on the signal that the
/// terminal has sent to both.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Returns what Ctrl-C asks for, and SIGTERM, with which batch systems end jobs. A second one ends the process.
pub(super) fn interruptible() -> StopRequest {
    let asked = StopRequest::default();
    // Where the system refuses, Ctrl-C ends the process as it did before.
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
        let request = asked.clone();
        std::thread::spawn(move || {
            let mut first: Option<Instant> = None;
            for _ in &mut signals {
                request.ask();
                if first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL {
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
    }
    asked
}

/// The searches of a command.
pub(super) struct SearchProgress {
    bar: ProgressBar,
    total: usize,
    now: Mutex<Now>,
    over: AtomicBool,
}

/// What goes on at some moment.
#[derive(Default)]
struct Now {
    /// By its number: the name of each, when it began, and whether it is large, until that is told.
    working: BTreeMap<usize, (String, Instant, Option<LargeSearch>)>,
    /// How long each took that is over.
    took: Vec<Duration>,
}

/// Searches that are over before this show no progress.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// A search that is over before this needs no explanation of its size.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// How often a line of progress is made anew.
const EVERY: Duration = Duration::from_millis(250);

impl SearchProgress {
    pub(super) fn new(total: usize) -> Self {
        Self { bar: output::progress(total), total, now: Mutex::default(), over: AtomicBool::new(false) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begins(&self, nth: usize, name: &str, large: &LargeSearch) {
        self.now().working.insert(nth, (name.to_owned(), Instant::now(), Some(large.clone())));
    }

    pub(super) fn ends(&self, nth: usize) {
        let mut now = self.now();
        if let Some((_, began, _)) = now.working.remove(&nth) {
            now.took.push(began.elapsed());
        }
        self.bar.inc(1);
    }

    /// Nothing is searched any more.
    pub(super) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }

    /// Tells how far the searches are until they are over. It is woken by whoever ends them.
    pub(super) fn watch(&self, stop: &StopRequest) {
        let mut told = false;
        let mut before = (Instant::now(), states_so_far());
        loop {
            // Searches that were interrupted may be over before this is woken.
            let over = self.over.load(Ordering::Relaxed);
            if stop.asked() && !std::mem::replace(&mut told, true) {
                self.bar.suspend(|| {
                    output::note("interrupted: what is done so far follows; Ctrl-C again ends at once");
                });
            }
            if over {
                break;
            }
            for large in self.large() {
                self.bar.suspend(|| output::note(&large));
            }
            if output::show_progress(&self.bar, SHOWN_AFTER) {
                let states = states_so_far();
                let rate =
                    states.saturating_sub(before.1) as f64 / before.0.elapsed().as_secs_f64().max(0.001);
                self.bar.set_message(self.message(states, rate));
                before = (Instant::now(), states);
            }
            std::thread::park_timeout(EVERY);
        }
    }

    /// What searches decide that are large and take long, each once.
    fn large(&self) -> Vec<String> {
        let mut now = self.now();
        let long = now.working.values_mut().filter(|(_, began, _)| began.elapsed() > TOLD_AFTER);
        let told = long.filter_map(|(name, _, large)| {
            let decisions = large.as_ref()?.decisions()?;
            *large = None;
            Some(format!("{name:?} is a large search: it decides {}", decisions.words()))
        });
        told.collect()
    }

    fn message(&self, states: u64, rate: f64) -> String {
        let now = self.now();
        let oldest = now.working.values().min_by_key(|(_, began, _)| *began);
        let ages: Vec<Duration> = now.working.values().map(|(_, began, _)| began.elapsed()).collect();
        let waiting = self.total.saturating_sub(now.took.len() + now.working.len());
        let left = left(&now.took, &ages, waiting)
            .map(|left| format!("about {} left", output::in_words(left.max(Duration::from_secs(1)))));
        let parts = left.into_iter().chain([
            format!("{} in work, {waiting} to come", now.working.len()),
            format!("{} states, {}/s", grouped(states), grouped(rate as u64)),
            oldest.map_or_else(String::new, |(name, ..)| name.clone()),
        ]);
        fitting(parts, output::progress_columns(self.total))
    }
}

/// As many of these, from the first on, as fit a line; a part that was cut would be read as another number.
fn fitting(parts: impl Iterator<Item = String>, columns: usize) -> String {
    let mut line = String::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let longer = if line.is_empty() { part } else { format!("{line} · {part}") };
        if longer.chars().count() > columns {
            break;
        }
        line = longer;
    }
    line
}

/// How long the rest takes, if it is like what is over; nothing where too few are over, or where one that goes on has taken
/// longer than any of them.
fn left(took: &[Duration], ages: &[Duration], waiting: usize) -> Option<Duration> {
    const ENOUGH: usize = 10;
    let longest = took.iter().max()?;
    let alike = ages.iter().all(|age| age <= longest);
    // A tenth of all, at least: specs of one kind lie together.
    let enough = took.len() >= ENOUGH && took.len() * 10 >= took.len() + ages.len() + waiting;
    if !alike || !enough {
        return None;
    }
    let mean = took.iter().sum::<Duration>().as_secs_f64() / took.len() as f64;
    let begun: f64 = ages.iter().map(|age| (mean - age.as_secs_f64()).max(0.0)).sum();
    let threads = ages.len().max(1) as f64;
    Duration::try_from_secs_f64((mean * waiting as f64 + begun) / threads).ok()
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_left_is_told_only_where_it_can_be_known() {
        let took = [SECOND; 10];
        // Two threads and 20 checks of one second each.
        assert_eq!(left(&took, &[SECOND, SECOND], 20), Some(10 * SECOND));
        // Too few are over.
        assert_eq!(left(&took[1..], &[SECOND, SECOND], 20), None);
        assert_eq!(left(&took, &[SECOND, SECOND], 200), None);
        // One goes on for longer than any of those took.
        assert_eq!(left(&took, &[SECOND, 2 * SECOND], 20), None);
    }

    #[test]
    fn a_line_has_whole_parts() {
        let parts = || ["2 in work", "1,234 states", "a name"].map(str::to_owned).into_iter();
        assert_eq!(fitting(parts(), 40), "2 in work · 1,234 states · a name");
        assert_eq!(fitting(parts(), 32), "2 in work · 1,234 states");
        assert_eq!(fitting(parts(), 23), "2 in work");
        assert_eq!(fitting(parts(), 8), "");
    }

    #[test]
    fn times_are_not_rounded_up() {
        let told = [0, 59, 60, 90, 3599, 3600, 7505].map(|seconds| output::in_words(seconds * SECOND));
        assert_eq!(told, ["0s", "59s", "1m 0s", "1m 30s", "59m 59s", "1h 0m", "2h 5m"]);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
