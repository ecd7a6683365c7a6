//! A worker: one rank, one process, one case after the other until the coordinator ends it.
//!
//! The thread that calls [`serve`] runs the cases. Another one reads what the coordinator says, whatever the
//! first is stuck in: it hands out answers, has the state inspected, and ends the process at once when the
//! connection ends. So no worker outlives its coordinator.
//! Not here: what a case does on the device; that is the function given to [`serve`].

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rankcheck_model::{Rank, Resources};
use serde_json::Value;

use crate::Error;
use crate::case::{At, Case, CommTicket, Ended, Host, Inspect, RankReport, Vote};
use crate::ffi::process;
use crate::flag::WordPosition;
use crate::wire::{
    self, FromWorker, Hello, MessageReader, MessageWriter, Reply, Request, Role, TOKEN, ToWorker,
};

/// How long a worker tries again to reach its coordinator, which listens before it starts any. One that is not
/// there has died since, perhaps before the worker was bound to die with it.
const CONNECT: Duration = Duration::ZERO;

/// What a worker has to know: it comes from the arguments and, for the token, from the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Host and port of the coordinator.
    pub coordinator: String,
    /// The world rank that it runs.
    pub rank: Rank,
    /// Which of the processes that this rank has had.
    pub number: u64,
    /// The CUDA device to use.
    pub device: u32,
    /// The secret of the job.
    pub token: String,
}

impl WorkerConfig {
    /// The arguments that [`Self::from_arguments`] reads. The token is not among them.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<String> {
        let Self { coordinator, rank, number, device, token: _ } = self;
        let words = [
            ("--connect", coordinator.clone()),
            ("--rank", rank.0.to_string()),
            ("--number", number.to_string()),
            ("--device", device.to_string()),
        ];
        words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Reads the arguments of a worker, and the token from the environment.
    ///
    /// # Errors
    /// [`Error::Environment`] if something is missing: nobody but a coordinator or an agent starts workers.
    pub fn from_arguments(arguments: &[String]) -> Result<Self, Error> {
        let unusable = |variable: &str, why: &str| Error::Environment {
            variable: variable.to_owned(),
            why: format!("{why}; workers are started by a coordinator"),
        };
        let text = |name: &str| {
            let mut after = arguments.iter().skip_while(|word| *word != name).skip(1);
            after.next().ok_or_else(|| unusable(name, "is missing among the arguments"))
        };
        let wrong = |name: &str| unusable(name, "is no number");
        Ok(Self {
            coordinator: text("--connect")?.clone(),
            rank: Rank(text("--rank")?.parse().map_err(|_| wrong("--rank"))?),
            number: text("--number")?.parse().map_err(|_| wrong("--number"))?,
            device: text("--device")?.parse().map_err(|_| wrong("--device"))?,
            token: std::env::var(TOKEN).map_err(|_| unusable(TOKEN, "is not set"))?,
        })
    }
}

/// Where an executor leaves what tells how far it is.
#[derive(Default)]
pub struct Inspection {
    inspect: Mutex<Option<Arc<dyn Inspect>>>,
}

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").finish_non_exhaustive()
    }
}

impl Inspection {
    /// From now on until the case is over the coordinator may ask this.
    pub fn open(&self, inspect: Arc<dyn Inspect>) {
        *self.lock() = Some(inspect);
    }

    fn close(&self) {
        *self.lock() = None;
    }

    fn inspect(&self) -> Option<RankReport> {
        let inspect = self.lock().clone();
        inspect.map(|inspect| inspect.inspect())
    }

    /// The cell is written as a whole, so a thread that panicked left it whole.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Inspect>>> {
        self.inspect.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a coordinator until it says that nothing more is to do.
///
/// `device` is shown to whoever holds the job. `load` makes a program of a case's JSON, or says why it cannot.
/// `run` runs this rank's part; it should open the [`Inspection`] before its first call that may block.
///
/// The process dies, without a return from here, when the connection or the process that started it ends. So
/// this must be the only thing that the process is for.
///
/// # Errors
/// If the coordinator cannot be reached or refuses this worker.
pub fn serve<P>(
    config: &WorkerConfig,
    device: Value,
    load: impl Fn(&Value, Rank) -> Result<P, String>,
    mut run: impl FnMut(&Case, P, Arc<dyn Host>, &Inspection) -> RankReport,
) -> Result<(), Error> {
    process::die_with_parent()?;
    let role = Role::Worker { rank: config.rank, number: config.number, device };
    let hello = Hello { version: wire::VERSION, secret: config.token.clone(), role };
    let (reader, writer, _) = wire::connect(&config.coordinator, &hello, CONNECT)?;
    let line = Arc::new(CoordinatorLink {
        writer: Mutex::new(writer),
        waiting: Mutex::default(),
        next: AtomicU64::new(0),
        inspection: Inspection::default(),
    });
    let (orders, inbox) = mpsc::channel();
    let reading = Arc::clone(&line);
    std::thread::spawn(move || read(reader, &reading, &orders));
    while let Some((nth, case)) = next_case(&inbox) {
        let program = load(&case.program, config.rank);
        let wrong = program.as_ref().err().cloned();
        line.send(&FromWorker::Loaded { nth, wrong });
        match (inbox.recv(), program) {
            (Ok(CaseOrder::Go), Ok(program)) => {
                let report = run(&case, program, Arc::clone(&line) as Arc<dyn Host>, &line.inspection);
                line.inspection.close();
                let exits = matches!(report.ended, Ended::Dead { .. });
                line.send(&FromWorker::Report { nth, report: Box::new(report) });
                if exits {
                    // The others are to meet what a process that ended leaves behind, not one that only does nothing.
                    process::die();
                }
            }
            (Ok(CaseOrder::Skip), _) => {}
            (Ok(CaseOrder::Go), Err(_)) => panic!("the coordinator runs a program that could not be loaded"),
            (Ok(CaseOrder::Load(..)), _) => panic!("the coordinator starts a case inside another"),
            (Ok(CaseOrder::End) | Err(_), _) => return Ok(()),
        }
    }
    Ok(())
}

/// What the reading thread leaves to the one that runs cases.
enum CaseOrder {
    Load(u64, Box<Case>),
    Go,
    Skip,
    End,
}

fn next_case(inbox: &Receiver<CaseOrder>) -> Option<(u64, Box<Case>)> {
    match inbox.recv() {
        Ok(CaseOrder::Load(nth, case)) => Some((nth, case)),
        Ok(CaseOrder::Go | CaseOrder::Skip) => {
            panic!("the coordinator goes on with a case that it did not start")
        }
        Ok(CaseOrder::End) | Err(_) => None,
    }
}

/// Reads until the coordinator ends the work or is gone.
fn read(mut reader: MessageReader, line: &Arc<CoordinatorLink>, orders: &Sender<CaseOrder>) {
    loop {
        let order = match reader.receive() {
            Ok(Some(ToWorker::Load { nth, case })) => CaseOrder::Load(nth, case),
            Ok(Some(ToWorker::Go { .. })) => CaseOrder::Go,
            Ok(Some(ToWorker::Skip { .. })) => CaseOrder::Skip,
            Ok(Some(ToWorker::Answer { id, answer })) => {
                line.answer(id, answer);
                continue;
            }
            Ok(Some(ToWorker::Inspect { nth })) => {
                // What is inspected may be stuck itself; this thread must not be.
                let line = Arc::clone(line);
                std::thread::spawn(move || {
                    let report = line.inspection.inspect().map(Box::new);
                    line.send(&FromWorker::Inspected { nth, report });
                });
                continue;
            }
            Ok(Some(ToWorker::End)) => CaseOrder::End,
            // Nobody is there any more to whom anything could be said, and the other threads may hang.
            Ok(None) | Err(_) => process::die(),
        };
        let last = matches!(order, CaseOrder::End);
        // The other end is dropped only when this process ends its work anyway.
        let _ = orders.send(order);
        if last {
            return;
        }
    }
}

/// The connection, as the threads of the program see it.
struct CoordinatorLink {
    writer: Mutex<MessageWriter>,
    /// Requests without an answer yet.
    waiting: Mutex<BTreeMap<u64, Sender<Reply>>>,
    next: AtomicU64,
    inspection: Inspection,
}

thread_local! {
    /// The host thread of the program that is inside a call on this thread of the process.
    static INSIDE: Cell<Option<u32>> = const { Cell::new(None) };
}

impl CoordinatorLink {
    /// If this fails the connection is gone, and the reading thread, which sees that too, ends the process.
    fn send(&self, message: &FromWorker) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writer.send(message) {
            tracing::error!(%error, "the coordinator is gone");
        }
    }

    fn answer(&self, id: u64, answer: Reply) {
        if let Some(waiting) = self.waiting().remove(&id) {
            // Who asked waits until it is answered.
            let _ = waiting.send(answer);
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = mpsc::channel();
        self.waiting().insert(id, answer);
        self.send(&FromWorker::Request { id, thread: INSIDE.get(), request });
        wait.recv().map_err(|_| unfit("nothing"))
    }

    /// Every change is one call of the map, so a thread that panicked left it whole.
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Sender<Reply>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_done(&self, request: Request) -> Result<(), Error> {
        let answer = self.ask(request)?;
        if answer == Reply::Done { Ok(()) } else { Err(unfit(&answer)) }
    }
}

/// The coordinator answered something else than was asked.
fn unfit(answer: &(impl std::fmt::Debug + ?Sized)) -> Error {
    Error::Connection { what: "an answer of the coordinator".to_owned(), why: format!("it is {answer:?}") }
}

impl Host for CoordinatorLink {
    fn enter(&self, thread: u32, index: u32, call: &str) {
        INSIDE.set(Some(thread));
        self.send(&FromWorker::Enter { thread, index, call: call.to_owned() });
    }

    fn leave(&self, thread: u32, index: u32) {
        INSIDE.set(None);
        self.send(&FromWorker::Leave { thread, index });
    }

    fn init(&self, name: &str, nth: u32, members: &[Rank], children: Resources) -> Result<CommTicket, Error> {
        let request = Request::Init { name: name.to_owned(), nth, members: members.to_vec(), children };
        let answer = self.ask(request)?;
        if let Reply::Comm(ticket) = answer { Ok(ticket) } else { Err(unfit(&answer)) }
    }

    fn announce(
        &self,
        name: &str,
        nth: u32,
        members: &[Rank],
        children: Resources,
    ) -> Result<CommTicket, Error> {
        let request = Request::Announce { name: name.to_owned(), nth, members: members.to_vec(), children };
        let answer = self.ask(request)?;
        if let Reply::Comm(ticket) = answer { Ok(ticket) } else { Err(unfit(&answer)) }
    }

    fn unique_id(&self, ticket: &CommTicket, own: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        let answer = self.ask(Request::UniqueId { ticket: ticket.id, own })?;
        if let Reply::UniqueId(bytes) = answer { Ok(bytes) } else { Err(unfit(&answer)) }
    }

    fn agree(&self, members: &[Rank], nth: u32, vote: Vote) -> Result<Vote, Error> {
        let answer = self.ask(Request::Agree { members: members.to_vec(), nth, vote })?;
        if let Reply::Agreed(vote) = answer { Ok(vote) } else { Err(unfit(&answer)) }
    }

    fn store_set(&self, key: &str, value: Value) -> Result<(), Error> {
        self.ask_done(Request::StoreSet { key: key.to_owned(), value })
    }

    fn store_get(&self, key: &str) -> Result<Value, Error> {
        let answer = self.ask(Request::StoreGet { key: key.to_owned() })?;
        if let Reply::Value(value) = answer { Ok(value) } else { Err(unfit(&answer)) }
    }

    fn store_delete(&self, key: &str) -> Result<(), Error> {
        self.ask_done(Request::StoreDelete { key: key.to_owned() })
    }

    fn gather(&self, members: &[Rank], nth: u32, brought: Value) -> Result<Vec<Value>, Error> {
        let answer = self.ask(Request::Gather { members: members.to_vec(), nth, brought })?;
        if let Reply::Gathered(all) = answer { Ok(all) } else { Err(unfit(&answer)) }
    }

    fn word(&self, flag: &str) -> Result<WordPosition, Error> {
        let answer = self.ask(Request::Word { flag: flag.to_owned() })?;
        if let Reply::Word(word) = answer { Ok(word) } else { Err(unfit(&answer)) }
    }

    fn rest(&self) -> Result<(), Error> {
        self.ask_done(Request::Rest)
    }

    fn turn(&self, at: At) -> Result<(), Error> {
        self.ask_done(Request::Turn { at })
    }

    fn turn_over(&self, at: At) -> Result<(), Error> {
        self.ask_done(Request::TurnOver { at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_are_written() {
        let config = WorkerConfig {
            coordinator: "127.0.0.1:5".to_owned(),
            rank: Rank(1),
            number: 7,
            device: 3,
            token: "t".to_owned(),
        };
        let arguments = config.to_arguments();
        assert!(!arguments.contains(&config.token), "arguments are seen by every user of the machine");
        let error = WorkerConfig::from_arguments(&arguments[2..]).expect_err("no address");
        assert!(error.to_string().contains("--connect is missing"), "{error}");
    }
}
