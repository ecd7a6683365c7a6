//! What coordinator, workers and agents say to each other: one JSON document a line over TCP.
//!
//! Everybody who connects opens with a [`Hello`]; who does not know the secret of the job is refused. The
//! secret keeps out strangers that happen upon the port; it is no protection on a hostile network, because
//! nothing is encrypted.
//!
//! Not here: what the messages make anybody do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rankcheck_model::{Rank, Resources};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::case::{At, Case, CommTicket, RankReport, Vote};
use crate::flag::WordPosition;

/// Changes whenever a message changes; the sides must agree on it.
pub(crate) const VERSION: u32 = 3;

/// The environment variable through which a worker gets the secret of its job. An argument could be read by
/// every user of the machine.
pub(crate) const TOKEN: &str = "RANKCHECK_TOKEN";

/// How long the other side may take over its part of the opening.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);

/// The coordinator that does not listen yet is tried again after this.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// A stranger may send anything, so the opening is short.
const HELLO_BYTES: u64 = 64 << 10;

/// No program and no report comes near this; it bounds what a broken peer can make us hold.
const LINE_BYTES: u64 = 1 << 30;

/// A peer that does not read for so long is as good as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The opening of whoever connects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) secret: String,
    pub(crate) role: Role,
}

/// Who connects to the coordinator, which the first message says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Runs programs; `number` tells the processes of one rank apart.
    Worker { rank: Rank, number: u64, device: serde_json::Value },
    /// Starts and kills the workers of its rank.
    Agent { rank: Rank },
}

/// The answer to a [`Hello`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Greeting {
    /// The secret that an agent hands to its workers.
    Welcome { token: String },
    /// And the connection is closed.
    Refused { why: String },
}

/// From the coordinator to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToWorker {
    /// Load the program of the `nth` case.
    Load { nth: u64, case: Box<Case> },
    /// All ranks have loaded: run it.
    Go { nth: u64 },
    /// Some rank could not load: forget it.
    Skip { nth: u64 },
    /// To the request of this id.
    Answer { id: u64, answer: Reply },
    /// Say where the threads and streams stand, whatever they do.
    Inspect { nth: u64 },
    /// Nothing more to do.
    End,
}

/// From a worker to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromWorker {
    /// The program is loaded, or why not.
    Loaded { nth: u64, wrong: Option<String> },
    /// A thread is about to make a call.
    Enter { thread: u32, index: u32, call: String },
    /// The thread has come back from the call that it entered last.
    Leave { thread: u32, index: u32 },
    /// Wants an answer; several may be open at a time. `thread` is the host thread that asks, if it is inside
    /// a call.
    Request { id: u64, thread: Option<u32>, request: Request },
    /// The case is over for this rank.
    Report { nth: u64, report: Box<RankReport> },
    /// To [`ToWorker::Inspect`]; nothing if nobody can tell.
    Inspected { nth: u64, report: Option<Box<RankReport>> },
}

/// What [`crate::case::Host`] asks the coordinator, which answers with a [`Reply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Init { name: String, nth: u32, members: Vec<Rank>, children: Resources },
    Announce { name: String, nth: u32, members: Vec<Rank>, children: Resources },
    UniqueId { ticket: u64, own: Option<Vec<u8>> },
    Agree { members: Vec<Rank>, nth: u32, vote: Vote },
    StoreSet { key: String, value: serde_json::Value },
    StoreGet { key: String },
    StoreDelete { key: String },
    Gather { members: Vec<Rank>, nth: u32, brought: serde_json::Value },
    Word { flag: String },
    Rest,
    Turn { at: At },
    TurnOver { at: At },
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Comm(CommTicket),
    UniqueId(Vec<u8>),
    Agreed(Vote),
    Gathered(Vec<serde_json::Value>),
    Word(WordPosition),
    Value(serde_json::Value),
}

/// From the coordinator to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToAgent {
    /// Start a worker of the agent's rank, under this number.
    Spawn { number: u64 },
    /// Kill the worker of this number.
    Kill { number: u64 },
    /// Nothing more to do.
    End,
}

/// From an agent to the coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgent {
    /// A worker is gone, and was waited for.
    Exited { number: u64, how: String },
}

/// Something went wrong with a connection.
fn broken(what: &str, cause: &dyn std::fmt::Display) -> Error {
    Error::Connection { what: what.to_owned(), why: cause.to_string() }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct MessageWriter(TcpStream);

impl MessageWriter {
    /// Sends one message, as a line of JSON.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(message).map_err(|error| broken("a message", &error))?;
        line.push(b'\n');
        self.0.write_all(&line).map_err(|error| broken("the connection", &error))
    }

    /// Closes both halves; the reader of either side sees the end.
    pub(crate) fn close(&self) {
        // A connection that is gone already is closed enough.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct MessageReader(BufReader<TcpStream>);

impl MessageReader {
    /// The next message, or nothing once the other side has closed the connection.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        self.receive_at_most(LINE_BYTES)
    }

    fn receive_at_most<T: DeserializeOwned>(&mut self, len_bytes: u64) -> Result<Option<T>, Error> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(len_bytes).read_until(b'\n', &mut line);
        read.map_err(|error| broken("the connection", &error))?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(broken("a message", &"it is cut off"));
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| broken("a message", &error))
    }

    /// For how long [`Self::receive`] waits; without end if nothing.
    fn patience(&self, patience: Option<Duration>) -> Result<(), Error> {
        self.0.get_ref().set_read_timeout(patience).map_err(|error| broken("the connection", &error))
    }
}

/// Both halves of a connection. Messages are small and awaited, so they are sent at once.
fn halves(stream: TcpStream) -> Result<(MessageReader, MessageWriter), Error> {
    let io = |error: std::io::Error| broken("the connection", &error);
    stream.set_nodelay(true).map_err(io)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(io)?;
    let writer = stream.try_clone().map_err(io)?;
    Ok((MessageReader(BufReader::new(stream)), MessageWriter(writer)))
}

/// Connects to the coordinator and says hello. Tries again until `timeout`: the coordinator may start later.
///
/// # Errors
/// [`Error::Connection`] if nobody answers in time, [`Error::Refused`] if the coordinator does not want us.
pub(crate) fn connect(
    address: &str,
    hello: &Hello,
    timeout: Duration,
) -> Result<(MessageReader, MessageWriter, String), Error> {
    let until = Instant::now() + timeout;
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= until => {
                return Err(broken(&format!("the coordinator at {address}"), &error));
            }
            Err(_) => std::thread::park_timeout(BETWEEN_TRIES),
        }
    };
    let (mut reader, mut writer) = halves(stream)?;
    writer.send(hello)?;
    reader.patience(Some(HANDSHAKE))?;
    let greeting = reader.receive()?;
    reader.patience(None)?;
    match greeting {
        Some(Greeting::Welcome { token }) => Ok((reader, writer, token)),
        Some(Greeting::Refused { why }) => Err(Error::Refused { why }),
        None => Err(broken(&format!("the coordinator at {address}"), &"it closed the connection")),
    }
}

/// Hears the hello of somebody who connected, and refuses who does not belong to the job.
pub(crate) fn accept(
    stream: TcpStream,
    admit: impl FnOnce(&Hello) -> Result<String, String>,
) -> Result<(MessageReader, MessageWriter, Role), Error> {
    let (mut reader, mut writer) = halves(stream)?;
    reader.patience(Some(HANDSHAKE))?;
    let hello = reader.receive_at_most::<Hello>(HELLO_BYTES);
    let admitted = match &hello {
        Ok(Some(hello)) if hello.version == VERSION => admit(hello),
        Ok(Some(hello)) => Err(format!("version {VERSION} is spoken here, not {}", hello.version)),
        Ok(None) | Err(_) => Err("this is no hello".to_owned()),
    };
    match (hello, admitted) {
        (Ok(Some(hello)), Ok(token)) => {
            writer.send(&Greeting::Welcome { token })?;
            reader.patience(None)?;
            Ok((reader, writer, hello.role))
        }
        (_, refused) => {
            let why = refused.err().unwrap_or_default();
            writer.send(&Greeting::Refused { why: why.clone() })?;
            writer.close();
            Err(Error::Refused { why })
        }
    }
}
