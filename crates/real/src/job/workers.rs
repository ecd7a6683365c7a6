//! The workers of a job: who is at work, who stands by, who has to go.
//!
//! Each rank has a worker at its post and, ready or getting ready, spares that take over when it goes. A
//! worker that is dismissed is killed at once and waited for while others start.
//! Not here: what workers do, and why one is dismissed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rankcheck_model::Rank;

use super::JobConfig;
use super::listener::{Listener, PeerEvent, Secrets};
use super::process::Spawner;
use crate::Error;
use crate::launch::Cluster;
use crate::wire::{FromWorker, MessageWriter, ToAgent, ToWorker};
use crate::worker::WorkerConfig;

/// How long a worker that was told to end may take before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);

/// What whoever waits hears about the workers.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A worker says something.
    Said(u64, FromWorker),
    /// A worker is gone, although it was not dismissed.
    Gone(u64, Rank, String),
    /// Somebody came, or ended who had to.
    Changed,
}

/// One worker process: which rank it runs, how it is reached, and whether it still runs.
#[derive(Debug)]
struct Worker {
    rank: Rank,
    /// The connection, from when it is made to when it ends.
    writer: Option<MessageWriter>,
    device: serde_json::Value,
    stands: Stands,
    /// How the process ended.
    exited: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// It was started, and has not connected yet.
    Starting,
    /// It is connected, and is at work or stands by.
    Ready,
    /// Killed; its end is awaited.
    Dismissed,
}

/// The workers of one rank, by number.
#[derive(Debug, Default)]
struct Post {
    at_work: Option<u64>,
    spares: VecDeque<u64>,
}

/// The workers of all ranks, those that stand by included, and what starts and hears them.
#[derive(Debug)]
pub(super) struct WorkerSet {
    spares: u32,
    token: String,
    cluster: Option<Cluster>,
    listener: Listener,
    events: Receiver<PeerEvent>,
    spawner: Spawner,
    /// The agents of the other processes that a launcher started.
    agents: BTreeMap<Rank, MessageWriter>,
    workers: BTreeMap<u64, Worker>,
    posts: Vec<Post>,
    next: u64,
}

impl WorkerSet {
    /// Listens, waits for the agents, and starts the workers.
    pub(super) fn start(config: JobConfig, token: String) -> Result<Self, Error> {
        let (sender, events) = mpsc::channel();
        let JobConfig { ranks, worker, cluster, spares, limits } = config;
        let secrets =
            Secrets { token: token.clone(), job: cluster.as_ref().map(|cluster| cluster.secret.clone()) };
        let port = cluster.as_ref().map_or(0, |cluster| cluster.port);
        let listener = Listener::open(port, secrets, sender.clone())?;
        let spawner = Spawner::start(worker, move |number, how| {
            // Nobody hears the events of a coordinator that has ended.
            let _ = sender.send(PeerEvent::Exited { number, how });
        });
        let posts = (0..ranks).map(|_| Post::default()).collect();
        let (agents, workers) = (BTreeMap::new(), BTreeMap::new());
        let mut workers =
            Self { spares, token, cluster, listener, events, spawner, agents, workers, posts, next: 0 };
        let until = Instant::now() + limits.start;
        let started = workers.await_agents(until, limits.start).and_then(|()| {
            workers.replenish()?;
            workers.man(ranks, limits.start)
        });
        match started {
            Ok(()) => Ok(workers),
            Err(error) => {
                // Why it did not start says more than why it cannot be taken down.
                if let Err(second) = workers.end(limits.exit) {
                    tracing::error!(error = %second, "after a failed start");
                }
                Err(error)
            }
        }
    }

    fn await_agents(&mut self, until: Instant, patience: Duration) -> Result<(), Error> {
        let Some(Cluster { rank, ranks, .. }) = self.cluster else { return Ok(()) };
        if self.posts.len() > ranks as usize {
            let why = format!("the launcher started {ranks} processes, one a rank");
            return Err(Error::Worker { rank: ranks, why });
        }
        loop {
            let missing: Vec<String> = (0..ranks)
                .filter(|other| *other != rank && !self.agents.contains_key(&Rank(*other)))
                .map(|other| other.to_string())
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            if self.next(until).is_none() {
                let what = format!("the process of rank {}", missing.join(", "));
                return Err(Error::TimedOut { what, after: patience });
            }
        }
    }

    /// Starts workers until each post has its number.
    pub(super) fn replenish(&mut self) -> Result<(), Error> {
        for rank in 0..self.posts.len() {
            let rank = Rank(u32::try_from(rank).expect("ranks are counted in 32 bits"));
            loop {
                let post = &self.posts[rank.at()];
                if post.spares.len() + usize::from(post.at_work.is_some()) > self.spares as usize {
                    break;
                }
                let number = self.spawn(rank)?;
                self.posts[rank.at()].spares.push_back(number);
            }
        }
        Ok(())
    }

    fn spawn(&mut self, rank: Rank) -> Result<u64, Error> {
        self.next += 1;
        let number = self.next;
        match &self.cluster {
            Some(cluster) if cluster.rank != rank.0 => {
                let gone = || Error::Worker { rank: rank.0, why: "its agent is gone".to_owned() };
                self.agents.get_mut(&rank).ok_or_else(gone)?.send(&ToAgent::Spawn { number })?;
            }
            cluster => self.spawner.spawn(WorkerConfig {
                coordinator: format!("127.0.0.1:{}", self.listener.port()),
                rank,
                number,
                device: cluster.as_ref().map_or(rank.0, |cluster| cluster.local_rank),
                token: self.token.clone(),
            }),
        }
        let stands = Stands::Starting;
        let device = serde_json::Value::Null;
        self.workers.insert(number, Worker { rank, writer: None, device, stands, exited: None });
        Ok(number)
    }

    /// Waits until the first `ranks` posts have a worker and those who had to leave them are gone.
    pub(super) fn man(&mut self, ranks: u32, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        while let Ok(event) = self.events.try_recv() {
            let _ = self.take(event);
        }
        self.replenish()?;
        loop {
            let Some(missing) = self.missing(ranks) else { return Ok(()) };
            match self.next(until) {
                None => return Err(Error::TimedOut { what: missing, after: patience }),
                Some(WorkerEvent::Gone(_, rank, why)) if rank.0 < ranks => {
                    let post = &self.posts[rank.at()];
                    if post.at_work.is_none() && post.spares.is_empty() {
                        return Err(Error::Worker { rank: rank.0, why });
                    }
                }
                Some(WorkerEvent::Gone(..) | WorkerEvent::Said(..) | WorkerEvent::Changed) => {}
            }
        }
    }

    /// Puts spares to posts that are empty. What is still missing then.
    fn missing(&mut self, ranks: u32) -> Option<String> {
        for rank in 0..ranks {
            let post = &mut self.posts[rank as usize];
            if post.at_work.is_none() {
                let ready = |number: &u64| self.workers[number].stands == Stands::Ready;
                let Some(spare) = post.spares.iter().position(ready) else {
                    return Some(format!("the worker of rank {rank}"));
                };
                post.at_work = post.spares.remove(spare);
            }
        }
        let leaving = self.workers.values().find(|w| w.stands == Stands::Dismissed && w.rank.0 < ranks);
        leaving.map(|worker| format!("the end of a killed worker of rank {}", worker.rank.0))
    }

    /// The workers at the first `ranks` posts; all are manned.
    pub(super) fn at_work(&self, ranks: u32) -> Vec<u64> {
        let posts = self.posts.iter().take(ranks as usize);
        posts.map(|post| post.at_work.expect("posts are manned before a case")).collect()
    }

    /// All workers that are at work.
    pub(super) fn present(&self) -> BTreeSet<u64> {
        self.posts.iter().filter_map(|post| post.at_work).collect()
    }

    /// What the worker of each rank said about its device.
    pub(super) fn devices(&self) -> Vec<Option<&serde_json::Value>> {
        self.posts.iter().map(|post| Some(&self.workers[&post.at_work?].device)).collect()
    }

    /// Sends a message to a worker. If the connection is broken its end is noticed like everybody's.
    pub(super) fn send(&mut self, number: u64, message: &ToWorker) {
        let writer = self.workers.get_mut(&number).and_then(|worker| worker.writer.as_mut());
        if let Some(Err(error)) = writer.map(|writer| writer.send(message)) {
            tracing::debug!(number, %error, "a worker does not listen");
        }
    }

    /// Kills these workers and starts as many.
    pub(super) fn dismiss(&mut self, numbers: &BTreeSet<u64>) {
        for number in numbers {
            let Some(worker) = self.workers.get_mut(number) else { continue };
            worker.stands = Stands::Dismissed;
            self.vacate(*number);
            self.kill(*number);
        }
        // Whatever is wrong with starting is wrong at the next case as well, and is reported there.
        if let Err(error) = self.replenish() {
            tracing::warn!(%error, "no worker can be started");
        }
    }

    fn vacate(&mut self, number: u64) {
        for post in &mut self.posts {
            post.at_work.take_if(|at_work| *at_work == number);
            post.spares.retain(|spare| *spare != number);
        }
    }

    fn kill(&mut self, number: u64) {
        let Some(worker) = self.workers.get(&number) else { return };
        match &self.cluster {
            Some(cluster) if cluster.rank != worker.rank.0 => {
                let agent = self.agents.get_mut(&worker.rank);
                // An agent that is gone has taken its workers with it.
                let _ = agent.map(|agent| agent.send(&ToAgent::Kill { number }));
            }
            _ => self.spawner.kill(number),
        }
    }

    /// Waits for something to happen; nothing if nothing does.
    pub(super) fn next(&mut self, until: Instant) -> Option<WorkerEvent> {
        loop {
            let event = match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            };
            if let Some(heard) = self.take(event) {
                return Some(heard);
            }
        }
    }

    fn take(&mut self, event: PeerEvent) -> Option<WorkerEvent> {
        match event {
            PeerEvent::Joined { rank, number, device, writer } => {
                let known = self.workers.get_mut(&number).filter(|worker| worker.rank == rank);
                let Some(worker) = known else {
                    writer.close();
                    return None;
                };
                worker.writer = Some(writer);
                worker.device = device;
                if worker.stands == Stands::Starting {
                    worker.stands = Stands::Ready;
                }
                Some(WorkerEvent::Changed)
            }
            PeerEvent::Said { number, message } => {
                let ready = self.workers.get(&number)?.stands == Stands::Ready;
                ready.then_some(WorkerEvent::Said(number, message))
            }
            PeerEvent::Closed { number } => {
                self.workers.get_mut(&number)?.writer = None;
                // A process that does not talk any more is of no use, if it lives at all.
                self.kill(number);
                self.gone(number)
            }
            PeerEvent::Exited { number, how } => {
                self.workers.get_mut(&number)?.exited = Some(how);
                self.gone(number)
            }
            PeerEvent::AgentJoined { rank, writer } => {
                self.agents.insert(rank, writer);
                Some(WorkerEvent::Changed)
            }
            PeerEvent::AgentGone { rank } => {
                self.agents.remove(&rank);
                for worker in self.workers.values_mut().filter(|worker| worker.rank == rank) {
                    worker.exited.get_or_insert_with(|| "its agent is gone".to_owned());
                    if let Some(writer) = worker.writer.as_ref() {
                        writer.close();
                    }
                }
                let silent = |(number, worker): (&u64, &Worker)| {
                    (worker.rank == rank && worker.writer.is_none()).then_some(*number)
                };
                let silent: Vec<u64> = self.workers.iter().filter_map(silent).collect();
                // Those that were connected follow when their connections end.
                silent
                    .into_iter()
                    .filter_map(|number| self.gone(number))
                    .last()
                    .or(Some(WorkerEvent::Changed))
            }
        }
    }

    /// A worker is gone once its process has ended and all that it said was read.
    fn gone(&mut self, number: u64) -> Option<WorkerEvent> {
        let worker = &self.workers[&number];
        if worker.writer.is_some() || worker.exited.is_none() {
            return None;
        }
        let worker = self.workers.remove(&number).expect("it was found above");
        self.vacate(number);
        Some(match (worker.stands, worker.exited) {
            (Stands::Starting | Stands::Ready, Some(why)) => WorkerEvent::Gone(number, worker.rank, why),
            (Stands::Dismissed, _) | (_, None) => WorkerEvent::Changed,
        })
    }

    /// Ends everybody: those who listen by a word, the others and those who take too long by SIGKILL.
    pub(super) fn end(mut self, patience: Duration) -> Result<(), Error> {
        let numbers: Vec<(u64, Stands)> =
            self.workers.iter().map(|(n, worker)| (*n, worker.stands)).collect();
        for (number, stands) in numbers {
            match stands {
                Stands::Ready => self.send(number, &ToWorker::End),
                Stands::Starting | Stands::Dismissed => self.kill(number),
            }
        }
        self.await_all(Instant::now() + FAREWELL.min(patience));
        for number in self.workers.keys().copied().collect::<Vec<_>>() {
            self.kill(number);
        }
        self.await_all(Instant::now() + patience);
        for agent in self.agents.values_mut() {
            // It ends when the connection does, if not now.
            let _ = agent.send(&ToAgent::End);
            agent.close();
        }
        self.listener.close();
        let left: Vec<String> = self.workers.values().map(|worker| worker.rank.0.to_string()).collect();
        if left.is_empty() {
            self.spawner.end();
            return Ok(());
        }
        let what = format!("the end of killed workers of rank {}", left.join(", "));
        Err(Error::TimedOut { what, after: patience })
    }

    fn await_all(&mut self, until: Instant) {
        while !self.workers.is_empty() && self.next(until).is_some() {}
    }
}
