//! A program that is kept in text: why, how it is run, what is found, and what it does.
//!
//! A file of `tests/kept` opens with comments; then come lines that say how the program is run, the verdict, and the
//! program. What is run is what the file says, whatever becomes of the generator that once drew it.
//! Not here: who finds the verdict.

use std::fmt::Write as _;
use std::sync::Arc;

use rankcheck_model::machine::{FaultOf, Launcher};
use rankcheck_model::{Config, Connections, InFlight, Platform};

use super::Script;
use super::listing::Listing;

/// A program and how it is run.
#[derive(Debug)]
pub struct Trial {
    /// The program that all ranks run.
    pub script: Arc<Script>,
    /// How it is run.
    pub config: Config,
}

/// A program that is kept.
#[derive(Debug)]
pub struct Kept {
    /// Why; lines that begin with `#`.
    pub why: String,
    /// The program and its configuration.
    pub trial: Trial,
}

const FAULTS: [(&str, FaultOf); 4] = [
    ("alloc", FaultOf::Alloc),
    ("register", FaultOf::Register),
    ("init", FaultOf::Init),
    ("death", FaultOf::Death),
];

impl Kept {
    /// Reads a kept program. Its verdict is left out.
    ///
    /// # Errors
    /// When it is not written as [`Kept::text`] writes it.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut why = String::new();
        let mut body = String::new();
        let mut config = Config::new(0);
        for line in text.lines() {
            let to = match line {
                _ if line.starts_with("rank ") || line.starts_with("every rank") || !body.is_empty() => {
                    &mut body
                }
                _ if line.starts_with('#') => &mut why,
                _ => {
                    let known = line.is_empty() || of_verdict(line) || setting(&mut config, line).is_some();
                    if !known {
                        return Err(format!("`{line}` says nothing that is known here"));
                    }
                    continue;
                }
            };
            to.push_str(line);
            to.push('\n');
        }
        let script = Listing::read(&body, config.ranks as usize)?.script()?;
        Ok(Self { why, trial: Trial { script: Arc::new(script), config } })
    }

    /// The text that is kept, with a [`verdict`](crate::agreement::verdict).
    #[must_use]
    pub fn text(&self, verdict: &str) -> String {
        let gap = if self.why.is_empty() { "" } else { "\n" };
        let program = Listing::of(&self.trial.script).text();
        format!("{}{gap}{}\n{verdict}\n{program}", self.why, settings(&self.trial.config))
    }
}

fn of_verdict(line: &str) -> bool {
    ["breaks: ", "reduced: ", "naive: "].iter().any(|begin| line.starts_with(begin))
}

/// How a program is run, one line for each setting that differs from the default.
///
/// # Panics
/// If a setting differs that no random program has: its line is missing here.
fn settings(config: &Config) -> String {
    let Config { ranks, platform, faults, coresident, launcher, connections, .. } = config;
    let Config { in_flight, planned_together, .. } = config;
    let silent = (*platform, *coresident, *connections) == (Platform::default(), 1, Connections::OnFirstUse);
    assert!(silent, "no line says so: {config:?}");
    let mut lines = format!("ranks: {ranks}\n");
    if !faults.of.is_empty() {
        let of: Vec<&str> =
            FAULTS.iter().filter(|(_, fault)| faults.of.contains(fault)).map(|(name, _)| *name).collect();
        let _ = writeln!(lines, "faults: at most {} of {}", faults.at_most, of.join(", "));
    }
    if *launcher == Launcher::EndsJob {
        lines.push_str("launcher: ends the job\n");
    }
    if *in_flight == InFlight::OfPlatform {
        lines.push_str("in flight: what the platform can\n");
    }
    if let Some(pairs) = planned_together {
        let _ = writeln!(lines, "planned together: {pairs}");
    }
    if config.launches_kept != Config::new(*ranks).launches_kept {
        let _ = writeln!(lines, "launches kept: {}", config.launches_kept);
    }
    lines
}

fn setting(config: &mut Config, line: &str) -> Option<()> {
    let (name, value) = line.split_once(": ")?;
    match name {
        "ranks" => config.ranks = value.parse().ok()?,
        "faults" => {
            let (at_most, of) = value.strip_prefix("at most ")?.split_once(" of ")?;
            config.faults.at_most = at_most.parse().ok()?;
            for name in of.split(", ") {
                config.faults.of.insert(FAULTS.iter().find(|(known, _)| *known == name)?.1);
            }
        }
        "launcher" if value == "ends the job" => config.launcher = Launcher::EndsJob,
        "in flight" if value == "what the platform can" => config.in_flight = InFlight::OfPlatform,
        "planned together" => config.planned_together = Some(value.parse().ok()?),
        "launches kept" => config.launches_kept = value.parse().ok()?,
        _ => return None,
    }
    Some(())
}
