//! The coordinator: runs cases on worker processes, one a rank, and ends what hangs. It never touches CUDA.
//!
//! ```text
//!            Load, Go, answers, Inspect                     spawn, kill, wait
//!   worker ◀────────────────────────────▶ coordinator ───────────────────────▶ processes of this host
//!            Enter, Leave, requests, Report        └──────── agent of another host ──▶ its processes
//! ```
//!
//! Workers are reused after a case in which every rank finished without an error. After any other the processes
//! of the case are killed, because nobody knows what state CUDA and NCCL are in; others stand by.
//!
//! Reading order: [`Job::run`], `job/watch.rs` (how long ranks may be silent), `job/exchange.rs` (what ranks ask
//! of each other), `job/workers.rs` (who works), `job/process.rs` (the only file that spawns), `job/listener.rs`
//! (connections), [`agent`] (one process a rank under torchrun and srun).
//!
//! Not here: what a case means. A hang is a result, not an error.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rankcheck_model::Rank;

use crate::Error;
use crate::case::{Case, Ended, RankReport, Report};
use crate::launch::Cluster;
use crate::wire::{FromWorker, Reply, ToWorker};

pub mod agent;
mod exchange;
mod listener;
mod process;
mod watch;
mod workers;

use exchange::{Asker, Exchange, Tickets};
use watch::Watch;
use workers::{WorkerEvent, WorkerSet};

/// What a job is made of.
#[derive(Debug, Clone)]
pub struct JobConfig {
    /// How many ranks there are, each with a worker. A case may use fewer.
    pub ranks: u32,
    /// How one is started.
    pub worker: WorkerCommand,
    /// The processes among which this one is rank 0; nothing if it starts all workers itself.
    pub cluster: Option<Cluster>,
    /// How many workers of each rank stand by, to take over at once when one had to be killed.
    pub spares: u32,
    /// How long things may take.
    pub limits: Limits,
}

/// The command that becomes a worker once the arguments of [`crate::worker::WorkerConfig`] are appended. It gets
/// the environment of this process without what begins with `RANKCHECK_`, and multicast off unless
/// `NCCL_NVLS_ENABLE` is set.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// The program that is started, found as a shell finds it.
    pub program: PathBuf,
    /// Arguments before those of the worker, for example a subcommand.
    pub arguments: Vec<OsString>,
    /// Variables that are added, for example which libraries are loaded.
    pub environment: Vec<(OsString, OsString)>,
}

/// How long things may take. A case has its own deadline beside these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// All agents and workers to connect, and a worker to take the place of another.
    pub start: Duration,
    /// All ranks to load a program.
    pub load: Duration,
    /// The members of a communicator, all of which have arrived, to make it.
    pub making: Duration,
    /// A whole case, however much progress it makes.
    pub case: Duration,
    /// A worker to say where it is stuck.
    pub inspect: Duration,
    /// A killed process to be gone.
    pub exit: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            load: Duration::from_secs(60),
            making: Duration::from_secs(30),
            case: Duration::from_secs(120),
            inspect: Duration::from_millis(500),
            exit: Duration::from_secs(10),
        }
    }
}

/// The workers of all ranks, ready for cases.
#[derive(Debug)]
pub struct Job {
    /// Nothing once it was ended.
    workers: Option<WorkerSet>,
    tickets: Tickets,
    limits: Limits,
    ranks: u32,
    /// The number of the case that was begun last, from 1; messages carry it.
    nth: u64,
}

impl Job {
    /// Starts the workers and waits until each rank has one.
    ///
    /// # Errors
    /// [`Error::Worker`] if one ends instead, with its last words; [`Error::TimedOut`] if somebody does not come
    /// in time; [`Error::Connection`] if the port cannot be listened on.
    pub fn start(config: JobConfig) -> Result<Self, Error> {
        let (limits, ranks) = (config.limits.clone(), config.ranks);
        let workers = WorkerSet::start(config, random_token()?)?;
        Ok(Self { workers: Some(workers), tickets: Tickets::default(), limits, ranks, nth: 0 })
    }

    /// What the worker of each rank said about its device; nothing for a rank that has none at the moment.
    #[must_use]
    pub fn devices(&self) -> Vec<Option<serde_json::Value>> {
        let workers = self.workers.as_ref().expect("a job has workers until it is ended");
        workers.devices().into_iter().map(|device| device.cloned()).collect()
    }

    /// Runs a case to its end or its deadline.
    ///
    /// What ranks do, hang and die included, is in the report.
    ///
    /// # Errors
    /// If the case could not be run: [`Error::Program`] if a rank cannot load it; [`Error::Worker`] or
    /// [`Error::TimedOut`] if workers that had to be replaced could not be. The next case may still run.
    ///
    /// # Panics
    /// If the case needs more ranks than the job has.
    pub fn run(&mut self, case: &Case) -> Result<Report, Error> {
        assert!(case.ranks <= self.ranks, "a case of {} ranks in a job of {}", case.ranks, self.ranks);
        self.nth += 1;
        let numbers = match self.load(case) {
            // A worker that died since its last case may not have been missed before it was spoken to.
            Err(Error::Worker { .. }) => self.load(case)?,
            loaded => loaded?,
        };
        let workers = self.workers.as_mut().expect("a job has workers until it is ended");
        let exchange = Exchange::new(&mut self.tickets, case.comms, &case.forced.turns, &numbers);
        let watch = Watch::new(case, &self.limits, Instant::now());
        let mut under_way = UnderWay { workers, numbers: &numbers, exchange, watch, nth: self.nth };
        let took = under_way.follow(&self.limits);
        let UnderWay { exchange, watch, .. } = under_way;
        let ranks = watch.reports();
        if ranks.iter().all(is_clean) {
            exchange.keep();
        } else {
            part_with_lost_communicators(workers, &mut self.tickets, numbers.iter().copied().collect());
        }
        Ok(Report { ranks, took })
    }

    /// Has a worker for each rank, all of whom have loaded the program.
    fn load(&mut self, case: &Case) -> Result<Vec<u64>, Error> {
        let workers = self.workers.as_mut().expect("a job has workers until it is ended");
        workers.man(case.ranks, self.limits.start)?;
        // Somebody may have been missing, with whom others shared communicators.
        if part_with_lost_communicators(workers, &mut self.tickets, BTreeSet::new()) {
            workers.man(case.ranks, self.limits.start)?;
        }
        let numbers = workers.at_work(case.ranks);
        match load(workers, &numbers, self.nth, case, self.limits.load) {
            Ok(()) => Ok(numbers),
            Err(error @ Error::Program { .. }) => {
                // Whoever has loaded it forgets it.
                for number in &numbers {
                    workers.send(*number, &ToWorker::Skip { nth: self.nth });
                }
                Err(error)
            }
            Err(error) => {
                part_with_lost_communicators(workers, &mut self.tickets, numbers.into_iter().collect());
                Err(error)
            }
        }
    }

    /// Ends all workers and waits until they are gone.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a killed process is still there after [`Limits::exit`].
    pub fn end(mut self) -> Result<(), Error> {
        let workers = self.workers.take().expect("a job is ended once");
        workers.end(self.limits.exit)
    }
}

impl Drop for Job {
    /// A job that was not ended is ended here, so that no process keeps a device; errors have nowhere to go.
    fn drop(&mut self) {
        if let Some(workers) = self.workers.take() {
            let ended = workers.end(self.limits.exit);
            tracing::warn!(?ended, "a job was dropped without being ended");
        }
    }
}

/// Whether CUDA and NCCL are in a state in which the process can go on.
fn is_clean(report: &RankReport) -> bool {
    report.ended == Ended::Finishes && report.errors.is_empty()
}

/// Dismisses these workers, and with them all who share a communicator with somebody who is not at work any
/// more: it can be neither used nor destroyed. Whether anybody was dismissed.
fn part_with_lost_communicators(
    workers: &mut WorkerSet,
    tickets: &mut Tickets,
    dismissed: BTreeSet<u64>,
) -> bool {
    let present = workers.present();
    let mut gone: BTreeSet<u64> = tickets.holders().difference(&present).copied().collect();
    gone.extend(dismissed);
    loop {
        let left = tickets.forget(&gone);
        if left.is_empty() {
            break;
        }
        gone.extend(left);
    }
    let leaving: BTreeSet<u64> = gone.intersection(&present).copied().collect();
    workers.dismiss(&leaving);
    !leaving.is_empty()
}

/// Has all ranks load the program before any starts.
fn load(
    workers: &mut WorkerSet,
    numbers: &[u64],
    nth: u64,
    case: &Case,
    patience: Duration,
) -> Result<(), Error> {
    for number in numbers {
        workers.send(*number, &ToWorker::Load { nth, case: Box::new(case.clone()) });
    }
    let until = Instant::now() + patience;
    let mut wanting: BTreeSet<u64> = numbers.iter().copied().collect();
    let mut unfit = None;
    while !wanting.is_empty() {
        match workers.next(until) {
            Some(WorkerEvent::Said(number, FromWorker::Loaded { nth: of, wrong })) if of == nth => {
                wanting.remove(&number);
                if let (Some(why), Some(rank)) = (wrong, rank_of(numbers, number)) {
                    unfit.get_or_insert(Error::Program { rank: rank.0, why });
                }
            }
            Some(WorkerEvent::Gone(number, rank, why)) if numbers.contains(&number) => {
                return Err(Error::Worker { rank: rank.0, why });
            }
            Some(WorkerEvent::Gone(..) | WorkerEvent::Said(..) | WorkerEvent::Changed) => {}
            None => {
                return Err(Error::TimedOut { what: "the loading of a program".to_owned(), after: patience });
            }
        }
    }
    unfit.map_or(Ok(()), Err)
}

/// Whose worker this is, if it is one of the case.
fn rank_of(numbers: &[u64], number: u64) -> Option<Rank> {
    let rank = numbers.iter().position(|worker| *worker == number)?;
    Some(Rank(u32::try_from(rank).expect("ranks are counted in 32 bits")))
}

/// A case that runs.
struct UnderWay<'a> {
    workers: &'a mut WorkerSet,
    numbers: &'a [u64],
    exchange: Exchange<'a>,
    watch: Watch<'a>,
    nth: u64,
}

impl UnderWay<'_> {
    /// Lets the ranks run until all have reported or the deadline has passed; how long that took.
    fn follow(&mut self, limits: &Limits) -> Duration {
        for number in self.numbers {
            self.workers.send(*number, &ToWorker::Go { nth: self.nth });
        }
        while !self.watch.unfinished().is_empty() {
            match self.workers.next(self.watch.expires()) {
                Some(heard) => self.hear(heard),
                None if Instant::now() >= self.watch.expires() => {
                    let took = self.watch.took(Instant::now());
                    self.inspect(limits.inspect);
                    return took;
                }
                None => {}
            }
        }
        self.watch.took(Instant::now())
    }

    fn hear(&mut self, heard: WorkerEvent) {
        match heard {
            WorkerEvent::Said(number, message) => {
                if let Some(rank) = rank_of(self.numbers, number) {
                    self.watch.progress(Instant::now());
                    self.hear_rank(rank, message);
                }
            }
            WorkerEvent::Gone(number, _, why) => {
                if let Some(rank) = rank_of(self.numbers, number) {
                    self.watch.progress(Instant::now());
                    self.watch.gone(rank, &why);
                    let answers = self.exchange.leaves(rank);
                    self.answer(answers);
                }
            }
            WorkerEvent::Changed => {}
        }
    }

    fn hear_rank(&mut self, rank: Rank, message: FromWorker) {
        match message {
            FromWorker::Enter { thread, index, call } => self.watch.enter(rank, thread, index, call),
            FromWorker::Leave { thread, index: _ } => self.watch.leave(rank, thread),
            FromWorker::Request { id, thread, request } => {
                let answers = self.exchange.ask(Asker { rank, thread, id }, request);
                self.answer(answers);
            }
            FromWorker::Report { nth, report } if nth == self.nth => {
                self.watch.reported(rank, *report);
                let answers = self.exchange.leaves(rank);
                self.answer(answers);
            }
            FromWorker::Inspected { nth, report: Some(report) } if nth == self.nth => {
                self.watch.reported(rank, *report);
            }
            FromWorker::Loaded { .. } | FromWorker::Report { .. } | FromWorker::Inspected { .. } => {}
        }
    }

    fn answer(&mut self, answers: Vec<(Asker, Reply)>) {
        let new =
            |answer: &Reply| matches!(answer, Reply::Comm(t) if t.comms == crate::case::CommHistory::Fresh);
        let making: Vec<_> =
            answers.iter().filter(|(_, a)| new(a)).map(|(asker, _)| (asker.rank, asker.thread)).collect();
        if !making.is_empty() {
            self.watch.makes(making);
        }
        for (Asker { rank, id, .. }, answer) in answers {
            self.workers.send(self.numbers[rank.at()], &ToWorker::Answer { id, answer });
        }
    }

    /// Asks all who have not reported where they stand. Nobody is answered any more.
    fn inspect(&mut self, patience: Duration) {
        for rank in self.watch.unfinished() {
            self.workers.send(self.numbers[rank.at()], &ToWorker::Inspect { nth: self.nth });
        }
        let until = Instant::now() + patience;
        let mut silent: BTreeSet<Rank> = self.watch.unfinished().into_iter().collect();
        while !silent.is_empty() {
            let Some(heard) = self.workers.next(until) else { return };
            let WorkerEvent::Said(number, message) = heard else {
                self.hear(heard);
                silent.retain(|rank| self.watch.unfinished().contains(rank));
                continue;
            };
            let Some(rank) = rank_of(self.numbers, number) else { continue };
            match message {
                FromWorker::Report { .. } | FromWorker::Inspected { .. } => {
                    silent.remove(&rank);
                    self.hear_rank(rank, message);
                }
                FromWorker::Enter { .. } | FromWorker::Leave { .. } => self.hear_rank(rank, message),
                FromWorker::Request { .. } | FromWorker::Loaded { .. } => {}
            }
        }
    }
}

/// 128 bits that nobody can guess.
fn random_token() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::Connection { what: source.to_owned(), why: error.to_string() })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
