//! `rankcheck replay`: runs a trace again, in the model or on GPUs, and tells what happens.
//!
//! Not here: the trace file ([`crate::trace`]), and runs on GPUs ([`crate::device::reproduce`]).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::{gpus, output};
use crate::device::reproduce::{ranks, reproduce};
use crate::device::testbed;
use crate::report;
use crate::search::{Decided, Replayed, setting};
use crate::trace::{Loaded, TraceError};

#[derive(Debug, clap::Args)]
pub(super) struct ReplayArguments {
    /// A file written by `check --trace-out`.
    trace: PathBuf,
    /// Replay on GPUs instead of in the model.
    #[arg(long)]
    gpu: bool,
    /// After how many runs a trace counts as not reproduced on GPUs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
}

impl ReplayArguments {
    pub(super) fn run(&self) -> u8 {
        let done = if self.gpu { self.on_gpus() } else { self.in_the_model() };
        done.unwrap_or_else(|error| output::bad(&error))
    }

    fn in_the_model(&self) -> Result<u8, TraceError> {
        let loaded = Loaded::load(&self.trace)?;
        output::line(text(&loaded, &loaded.replay()?));
        Ok(0)
    }

    fn on_gpus(&self) -> Result<u8, TraceError> {
        if let Some(code) = gpus::served() {
            return Ok(code);
        }
        let ranks = ranks(&self.trace)?;
        let devices = testbed::find();
        if let Err(error) = devices.require(ranks) {
            return Ok(gpus::missing(&error));
        }
        let mut runner = match testbed::start(&devices, ranks) {
            Ok(runner) => runner,
            Err(error) => return Ok(gpus::not_started(&error)),
        };
        let reproduced = reproduce(&mut *runner, &self.trace, self.tries, Duration::from_secs(2))?;
        output::line(reproduced.text());
        Ok(reproduced.exit_code())
    }
}

fn text(Loaded { spec, trace, .. }: &Loaded, run: &Replayed) -> String {
    let setting = setting(trace.ranks, &trace.params);
    let mut out = format!("{} \"{}\"   {setting}", spec.path, trace.check);
    if spec.digest != trace.digest {
        out.push_str("\nnote: the spec was edited since; the choices still fit");
    }
    for operation in &run.operations {
        let (op, loc) = (operation.at.op, &operation.at.loc);
        let thread = if op.thread.0 == 0 { String::new() } else { format!(".{}", op.thread.0) };
        let decided = run.decisions.iter().filter(|decision| decision.at.op == op);
        let words = decided.flat_map(|decision| match &decision.decided {
            Decided::Values { words, .. } => words.as_slice(),
            Decided::Order(_) => &[],
        });
        let words = words.map(String::as_str).collect::<Vec<_>>().join(", ");
        let text = match (words.is_empty(), operation.asks) {
            (true, _) => operation.text.clone(),
            (false, true) => words,
            (false, false) => format!("{}: {words}", operation.text),
        };
        let _ = write!(out, "\n  rank {}{thread}  {text:<48} {}:{}", op.rank.0, loc.file, loc.line);
    }
    for broken in &run.broken {
        let _ = write!(out, "\n{}  {}", broken.rule, broken.sentence);
    }
    let _ = write!(out, "\nends: {}", report::ends(&run.outcome));
    let again = run.broken.iter().any(|broken| broken.rule.id() == trace.rule);
    let word = if again { "again breaks" } else { "no longer breaks" };
    let _ = write!(out, "\n{word} {}", trace.rule);
    out
}
