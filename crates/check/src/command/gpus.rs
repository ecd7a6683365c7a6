//! What the commands have in common that run programs on GPUs: libraries, launchers, workers, the run itself.
//!
//! Not here: how a program runs on a device (`rankcheck-real`), and what is made of it ([`crate::device`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankcheck_model::Platform;
use rankcheck_real::case::CommHistory;
use rankcheck_real::library;

use super::output;
use crate::device::diff::{self, DiffEvent, DiffRow, PlannedRun, Selection, Settings, Summary};
use crate::device::observation;
use crate::device::testbed::{self, Served};
use crate::shard::Shard;
use crate::spec::Spec;

#[derive(Debug, clap::Args)]
pub(super) struct WorkerArguments {
    /// What the coordinator says.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl WorkerArguments {
    pub(super) fn run(&self) -> u8 {
        testbed::work(&self.arguments).map_or_else(|error| not_started(&error), |()| 0)
    }
}

/// Serves rank 0 if a launcher started this process as another one; its exit code, if so.
pub(super) fn served() -> Option<u8> {
    match testbed::serve_as_agent() {
        Ok(Served::NotAsked) => None,
        Ok(Served::ToTheEnd) => Some(0),
        Err(error) => Some(not_started(&error)),
    }
}

/// Says what is missing and returns the exit code for it.
pub(super) fn missing(missing: &testbed::Missing) -> u8 {
    output::bad(missing);
    4
}

/// Says why workers cannot run here, and returns the exit code for it.
pub(super) fn not_started(error: &rankcheck_real::Error) -> u8 {
    output::note(format_args!("error: {error}"));
    4
}

/// Has the loader find this NCCL library first, in this process and in all that it starts: a library that was
/// loaded once cannot be replaced, so the command starts over.
pub(super) fn with_nccl(nccl: Option<&Path>) -> Result<(), String> {
    use std::os::unix::process::CommandExt as _;
    const VARIABLE: &str = "LD_LIBRARY_PATH";
    let Some(nccl) = nccl else { return Ok(()) };
    let wrong = |error: std::io::Error| format!("{} (--nccl): {error}", nccl.display());
    let named = |error: rankcheck_real::Error| {
        let rankcheck_real::Error::File { path, message } = &error else { return error.to_string() };
        format!("{path} (--nccl): {message}")
    };
    let folder = library::folder_with(nccl).map_err(named)?;
    let path = std::env::var(VARIABLE).unwrap_or_default();
    if path.split(':').next().is_some_and(|first| Path::new(first) == folder) {
        return Ok(());
    }
    let path = format!("{}:{path}", folder.display());
    let program = std::env::current_exe().map_err(wrong)?;
    let mut again = std::process::Command::new(program);
    again.args(std::env::args_os().skip(1)).env(VARIABLE, path.trim_end_matches(':'));
    Err(wrong(again.exec()))
}

/// What is run on GPUs, and how.
pub(super) struct Batch {
    /// Spec files, or folders of them.
    pub(super) paths: Vec<PathBuf>,
    /// Only checks whose name contains this.
    pub(super) only: Option<String>,
    /// Only checks of at most so many ranks; as many as there are GPUs if not given.
    pub(super) ranks_at_most: Option<u32>,
    /// New communicators, used ones, or both.
    pub(super) comms: Vec<CommHistory>,
    /// Runs of each check.
    pub(super) runs: u32,
    /// No check begins after this time.
    pub(super) budget: Option<Duration>,
    /// How long no rank may make progress before a run counts as hung.
    pub(super) deadline: Duration,
    /// The NCCL library to use.
    pub(super) nccl: Option<PathBuf>,
    /// Folder for what is observed.
    pub(super) kept_in: Option<PathBuf>,
    /// What becomes of checks that this folder has already.
    pub(super) known: AlreadyObserved,
    /// Which rows are printed.
    pub(super) rows: ShownRows,
    /// The part of all programs that is run here, where several machines take part.
    pub(super) shard: Option<Shard>,
}

/// What becomes of checks that were observed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlreadyObserved {
    RunAgain,
    LeftOut,
}

/// Which rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownRows {
    All,
    Disagreeing,
}

impl ShownRows {
    fn show(self, row: &DiffRow) -> bool {
        match self {
            Self::All => true,
            Self::Disagreeing => row.disagrees(),
        }
    }
}

impl Batch {
    /// Runs everything, with one line of progress on a terminal and a row for each check that is over. Returns the
    /// exit code if nothing could be run.
    pub(super) fn run(&self) -> Result<Summary, u8> {
        with_nccl(self.nccl.as_deref()).map_err(output::usage)?;
        if let Some(code) = served() {
            return Err(code);
        }
        self.run_here(&super::load_all(&self.paths)?)
    }

    fn run_here(&self, specs: &[Spec]) -> Result<Summary, u8> {
        let devices = testbed::find();
        let gpus = devices.ranks();
        let ranks_at_most = self.ranks_at_most.unwrap_or(gpus.max(2));
        let wanted = Selection {
            only: self.only.clone(),
            ranks_at_most: ranks_at_most.min(gpus),
            comms: self.comms.clone(),
            shard: self.shard.unwrap_or(Shard::WHOLE),
        };
        let plan = diff::plan(specs, &wanted);
        if let Some(shard) = self.shard.filter(|shard| plan.programs > 0 && shard.len_of(plan.programs) == 0)
        {
            output::line(format_args!(
                "shard {shard} is empty, because there are {} programs",
                plan.programs
            ));
            return Err(0);
        }
        let machine = devices.require(ranks_at_most.min(gpus.max(2))).map_err(|error| missing(&error))?;
        let Some(most) = plan.items.iter().map(PlannedRun::ranks).max() else {
            if plan.programs > 0 && self.shard.is_some() {
                // Another shard has those that fit.
                return Ok(Summary { not_run: plan.left_out, ..Summary::default() });
            }
            let why = "no check fits: none has a name like that (--only), or all need more GPUs";
            return Err(output::usage(why));
        };
        let observed = match &self.kept_in {
            Some(folder)
                if self.known == AlreadyObserved::LeftOut && folder.join(observation::FILE_NAME).exists() =>
            {
                observation::read(&folder.join(observation::FILE_NAME)).map_err(output::usage)?
            }
            Some(_) | None => Vec::new(),
        };
        let platform = observation::platform_of(&machine.nccl).unwrap_or_else(|| {
            let default = Platform::default();
            output::note(format_args!("NCCL {} is not modelled; compared with {default}", machine.nccl));
            default
        });
        output::line(format_args!("{}, driver {}, NCCL {}", machine.gpu, machine.driver, machine.nccl));
        if let Some(shard) = self.shard {
            let own = shard.len_of(plan.programs);
            output::line(format_args!("shard {shard}, {own} of {} programs", plan.programs));
        }
        let settings = Settings {
            runs: self.runs,
            budget: self.budget,
            observe: self.kept_in.clone(),
            observed,
            machine,
            platform,
            command: command_line(),
            deadline: self.deadline,
        };
        let mut runner = testbed::start(&devices, most).map_err(|error| not_started(&error))?;
        let bar = output::progress(plan.items.len());
        output::show_progress(&bar, Duration::ZERO);
        bar.enable_steady_tick(Duration::from_secs(1));
        let summary = diff::run(&mut *runner, &plan, &settings, &mut |event| match event {
            DiffEvent::Begins(title) => {
                bar.inc(1);
                bar.set_message(title.to_owned());
            }
            DiffEvent::Over(row) if self.rows.show(row) => bar.suspend(|| output::line(row.text())),
            DiffEvent::Over(_) => {}
        });
        bar.finish_and_clear();
        summary.map_err(|error| output::bad(&error))
    }
}

/// The command as somebody else could give it: without the folders of this machine.
fn command_line() -> String {
    let name = |word: String| match Path::new(&word).file_name() {
        Some(name) if Path::new(&word).is_absolute() => name.to_string_lossy().into_owned(),
        Some(_) | None => word,
    };
    let words: Vec<String> = std::env::args().skip(1).map(name).collect();
    format!("rankcheck {}", words.join(" "))
}
