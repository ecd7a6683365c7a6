//! The devices of this machine as commands see them: what is there, what is missing, and who runs cases.
//!
//! Not here: CUDA and NCCL (`rankcheck-real`), and what a report means ([`mod@super::compare`]).

use std::fmt::Write as _;
use std::time::Duration;

use rankcheck_real::case::{Case, Report};
use rankcheck_real::execute::{RankDevice, execute};
use rankcheck_real::ffi::{Probe, probe};
use rankcheck_real::job::{Job, JobConfig, Limits, WorkerCommand, agent};
use rankcheck_real::launch::{Cluster, ProcessRole};
use rankcheck_real::worker::{self, WorkerConfig};

use super::digest::ProgramName;
use super::observation::{Multicast, Testbed};

/// The variable that keeps NCCL from using multicast.
pub const MULTICAST_VARIABLE: &str = "NCCL_NVLS_ENABLE";

/// Whoever runs a case: a job of worker processes, or a test.
pub trait Runner {
    /// Runs a case to its end or its deadline.
    ///
    /// # Errors
    /// If the case could not be run. The next one may still run.
    fn run(&mut self, case: &Case) -> Result<Report, rankcheck_real::Error>;
}

/// What this machine has.
#[derive(Debug)]
pub struct Devices {
    /// The CUDA driver and NCCL, as far as they were found.
    pub libraries: Probe,
    /// Names of the GPUs, in the driver's order.
    pub gpus: Vec<String>,
    /// For each GPU, whether it reaches each other one.
    pub reaches: Vec<Vec<bool>>,
    /// Whether NCCL may use multicast.
    pub multicast: Multicast,
    /// The processes of torchrun or srun among which this one is rank 0.
    pub cluster: Option<Cluster>,
}

/// Something without which a command cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{what} {looked_for}")]
#[diagnostic(help("`rankcheck doctor` shows what this machine has"))]
pub struct Missing {
    /// What is missing, in words.
    pub what: String,
    /// Where it was looked for.
    pub looked_for: String,
}

impl Missing {
    fn library(error: &rankcheck_real::Error) -> Self {
        let rankcheck_real::Error::Missing { what, looked_for } = error else {
            return Self {
                what: error.to_string(),
                looked_for: "(a library was found and does not work)".to_owned(),
            };
        };
        // Dozens of names for every version there ever was, then the folders.
        let (names, folders): (Vec<&String>, Vec<&String>) =
            looked_for.iter().partition(|name| name.starts_with("lib"));
        let folders: Vec<&str> = folders.into_iter().map(String::as_str).collect();
        let first = names.first().map_or("nothing", |name| name.as_str());
        let others = names.len().saturating_sub(1);
        let looked_for = format!("(looked for {first} and {others} other names in {})", folders.join(", "));
        Self { what: format!("missing: {what}"), looked_for }
    }

    fn gpus(ranks: u32, found: u32, driver: &str) -> Self {
        let what = format!("missing: {ranks} ranks need {ranks} GPUs, this machine has {found}");
        Self { what, looked_for: format!("(the driver, {driver}, was asked)") }
    }
}

/// Looks for libraries and GPUs. Starts nothing on them.
#[must_use]
pub fn find() -> Devices {
    let off = std::env::var(MULTICAST_VARIABLE).is_ok_and(|value| value == "0");
    let multicast = if off { Multicast::Off } else { Multicast::Allowed };
    let libraries = probe();
    let machine =
        libraries.cuda.as_ref().ok().and_then(|driver| rankcheck_real::machine::machine(driver).ok());
    let (gpus, reaches) = machine.map_or_else(Default::default, |machine| {
        (machine.devices.into_iter().map(|device| device.name).collect(), machine.reaches)
    });
    let cluster = match ProcessRole::from_environment() {
        Ok(ProcessRole::Coordinator(cluster)) => Some(cluster),
        Ok(ProcessRole::Local | ProcessRole::Agent(_)) | Err(_) => None,
    };
    Devices { libraries, gpus, reaches, multicast, cluster }
}

impl Devices {
    /// How many ranks can run: one a GPU here, or one for each process that a launcher started.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        let here = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        self.cluster.as_ref().map_or(here, |cluster| cluster.ranks)
    }

    /// The machine as observations name it, if it can run so many ranks.
    ///
    /// # Errors
    /// With the first thing that is missing.
    pub fn require(&self, ranks: u32) -> Result<Testbed, Missing> {
        let driver = self.libraries.cuda.as_ref().map_err(Missing::library)?;
        let nccl = self.libraries.nccl.as_ref().map_err(Missing::library)?;
        let found = self.ranks();
        let Some(gpu) = self.gpus.first().filter(|_| found >= ranks) else {
            return Err(Missing::gpus(ranks, found, &driver.name));
        };
        Ok(Testbed {
            gpu: gpu.clone(),
            driver: driver_version(&driver.version),
            nccl: nccl.version.clone(),
            // Workers switch it off wherever nobody decided.
            multicast: match std::env::var_os(MULTICAST_VARIABLE) {
                None => Multicast::Off,
                Some(_) => self.multicast,
            },
        })
    }

    /// What is there and what is missing for what, in a screen.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = match &self.libraries.cuda {
            Ok(found) => writeln!(out, "driver     {}, {}", driver_version(&found.version), found.name),
            Err(error) => writeln!(out, "driver     {}", Missing::library(error)),
        };
        let _ = match &self.libraries.nccl {
            Ok(found) => writeln!(out, "NCCL       {}, {}", found.version, found.name),
            Err(error) => writeln!(out, "NCCL       {}", Missing::library(error)),
        };
        let gpus = if self.gpus.is_empty() { "none found".to_owned() } else { self.gpus.join(", ") };
        let _ = writeln!(out, "{:<10} {gpus}", "GPUs");
        if !self.reaches.is_empty() {
            let _ = writeln!(out, "{:<10} from\\to {}", "P2P", columns(0..self.reaches.len()));
            for (from, row) in self.reaches.iter().enumerate() {
                let cells = row.iter().map(|reaches| if *reaches { "yes" } else { "no" });
                let _ = writeln!(out, "{:<10} {from:>7} {}", "", columns(cells));
            }
        }
        let multicast = match (std::env::var(MULTICAST_VARIABLE), self.multicast) {
            (Err(_), _) => format!("{MULTICAST_VARIABLE} is not set: workers switch it off"),
            (Ok(value), Multicast::Off) => format!("off ({MULTICAST_VARIABLE}={value})"),
            (Ok(value), Multicast::Allowed) => {
                format!("allowed ({MULTICAST_VARIABLE}={value}); predictions are for machines without")
            }
        };
        let _ = writeln!(out, "{:<10} {multicast}\n", "multicast");
        let needs = [("everything that needs no GPU", None), ("diff, contract, replay --gpu", Some(2))];
        for (commands, ranks) in needs {
            let state = match ranks.map(|ranks| self.require(ranks)) {
                None | Some(Ok(_)) => "can run".to_owned(),
                Some(Err(missing)) => format!("cannot run; {}", missing.what),
            };
            let _ = writeln!(out, "{commands:<40} {state}");
        }
        out
    }
}

/// The version of the kernel's driver, with the newest CUDA that it supports.
fn driver_version(cuda: &str) -> String {
    let kernel = std::fs::read_to_string("/sys/module/nvidia/version");
    kernel.map_or_else(|_| format!("CUDA {cuda}"), |kernel| format!("{} (CUDA {cuda})", kernel.trim()))
}

fn columns(cells: impl Iterator<Item = impl ToString>) -> String {
    cells.map(|cell| format!("{:>4}", cell.to_string())).collect()
}

/// The workers of a job, started by this process or by those that a launcher started with it.
struct Workers(Option<Job>);

impl Runner for Workers {
    fn run(&mut self, case: &Case) -> Result<Report, rankcheck_real::Error> {
        self.0.as_mut().expect("a job runs until it is dropped").run(case)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(Job::end) {
            tracing::warn!(%error, "the workers could not be ended");
        }
    }
}

/// How a worker is started: this program again.
fn worker() -> Result<WorkerCommand, rankcheck_real::Error> {
    let program = std::env::current_exe().map_err(|error| rankcheck_real::Error::File {
        path: "the path of this program".to_owned(),
        message: error.to_string(),
    })?;
    // A program that uses multicast can leave GPUs unusable, so it is off unless somebody decided otherwise.
    let off = std::env::var_os(MULTICAST_VARIABLE).is_none();
    let environment = off.then(|| (MULTICAST_VARIABLE.into(), "0".into())).into_iter().collect();
    Ok(WorkerCommand { program, arguments: vec!["worker".into()], environment })
}

/// Starts workers for so many ranks.
///
/// # Errors
/// If they cannot be started.
pub fn start(devices: &Devices, ranks: u32) -> Result<Box<dyn Runner>, rankcheck_real::Error> {
    let cluster = devices.cluster.clone();
    let ranks = cluster.as_ref().map_or(ranks, |cluster| cluster.ranks);
    // One stands by, so that the next case does not wait for the process that replaces a hung one.
    let config = JobConfig { ranks, worker: worker()?, cluster, spares: 1, limits: Limits::default() };
    Ok(Box::new(Workers(Some(Job::start(config)?))))
}

/// If a launcher started this process as another than rank 0: serves rank 0 until it has finished.
///
/// # Errors
/// If the launcher's environment is incomplete, or rank 0 cannot be reached or goes away.
pub fn serve_as_agent() -> Result<Served, rankcheck_real::Error> {
    /// Rank 0 may still be loading its specs.
    const TIMEOUT: Duration = Duration::from_secs(120);
    match ProcessRole::from_environment()? {
        ProcessRole::Local | ProcessRole::Coordinator(_) => Ok(Served::NotAsked),
        ProcessRole::Agent(cluster) => {
            agent::serve(&cluster, worker()?, TIMEOUT)?;
            Ok(Served::ToTheEnd)
        }
    }
}

/// Whether this process was there for rank 0 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It is rank 0, or no launcher started it.
    NotAsked,
    /// It was, and rank 0 has finished.
    ToTheEnd,
}

/// One rank of a job: opens its GPU and runs cases until the coordinator has no more.
///
/// # Errors
/// If a library or the GPU is missing, or the connection to the coordinator breaks.
pub fn work(arguments: &[String]) -> Result<(), rankcheck_real::Error> {
    let config = WorkerConfig::from_arguments(arguments)?;
    let libraries = probe().require()?;
    let ordinal = i32::try_from(config.device).unwrap_or(i32::MAX);
    let mut device = RankDevice::open(&libraries, ordinal)?;
    let load = |name: &serde_json::Value, _| ProgramName::load(name).map_err(|error| error.to_string());
    let rank = config.rank;
    worker::serve(&config, serde_json::Value::Null, load, |case, source, host, inspection| {
        inspection.open(device.inspect());
        execute(&mut device, source, rank, case, host)
    })
}
