//! Where workers and agents come in: the port of the coordinator.
//!
//! Every connection is read by a thread of its own; what arrives becomes a [`PeerEvent`].
//! Not here: what the coordinator does about events.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use rankcheck_model::Rank;

use crate::Error;
use crate::wire::{self, FromAgent, FromWorker, Hello, MessageReader, MessageWriter, Role};

/// What happens to the coordinator.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// A worker has connected.
    Joined { rank: Rank, number: u64, device: serde_json::Value, writer: MessageWriter },
    /// A worker says something.
    Said { number: u64, message: FromWorker },
    /// The connection of a worker has ended.
    Closed { number: u64 },
    /// The process of a worker has ended.
    Exited { number: u64, how: String },
    /// An agent has connected.
    AgentJoined { rank: Rank, writer: MessageWriter },
    /// The connection of an agent has ended.
    AgentGone { rank: Rank },
}

/// The port on which workers and agents connect, and the thread that accepts them.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What somebody must know to be let in.
#[derive(Debug, Clone)]
pub(super) struct Secrets {
    /// Drawn for this job; workers have it from who started them, agents get it in the greeting.
    pub(super) token: String,
    /// Agents know the job by what the launcher calls it. Nothing where there are no agents.
    pub(super) job: Option<String>,
}

impl Listener {
    /// Listens, on all addresses if agents of other hosts are to come, else on this machine only.
    pub(super) fn open(port: u16, secrets: Secrets, events: Sender<PeerEvent>) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Connection {
            what: format!("listening on port {port}"),
            why: error.to_string(),
        };
        let listener = match secrets.job {
            Some(_) => TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))),
            None => TcpListener::bind(("127.0.0.1", port)),
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let closing = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&closing);
        let thread = std::thread::spawn(move || {
            let secrets = Arc::new(secrets);
            for stream in listener.incoming() {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (secrets, events) = (Arc::clone(&secrets), events.clone());
                std::thread::spawn(move || attend(stream, &secrets, &events));
            }
        });
        Ok(Self { address, closing, thread })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn close(self) {
        self.closing.store(true, Ordering::Relaxed);
        // A last visitor wakes the thread, which then sees that the listener is closing. If that fails, the
        // thread must not be waited for.
        if TcpStream::connect(("127.0.0.1", self.address.port())).is_ok() && self.thread.join().is_err() {
            tracing::error!("the thread that accepts connections panicked");
        }
    }
}

fn admit(hello: &Hello, secrets: &Secrets) -> Result<String, String> {
    let expected = match hello.role {
        Role::Worker { .. } => Some(&secrets.token),
        Role::Agent { .. } => secrets.job.as_ref(),
    };
    if expected == Some(&hello.secret) {
        Ok(secrets.token.clone())
    } else {
        Err("the secret is of another job".to_owned())
    }
}

fn attend(stream: TcpStream, secrets: &Secrets, events: &Sender<PeerEvent>) {
    let (mut reader, writer, role) = match wire::accept(stream, |hello| admit(hello, secrets)) {
        Ok(admitted) => admitted,
        Err(error) => {
            tracing::warn!(%error, "somebody was not let in");
            return;
        }
    };
    // Nobody hears the events of a coordinator that has ended.
    let tell = |event| {
        let _ = events.send(event);
    };
    match role {
        Role::Worker { rank, number, device } => {
            tell(PeerEvent::Joined { rank, number, device, writer });
            listen(&mut reader, |message| tell(PeerEvent::Said { number, message }));
            tell(PeerEvent::Closed { number });
        }
        Role::Agent { rank } => {
            tell(PeerEvent::AgentJoined { rank, writer });
            listen(&mut reader, |FromAgent::Exited { number, how }| tell(PeerEvent::Exited { number, how }));
            tell(PeerEvent::AgentGone { rank });
        }
    }
}

fn listen<T: serde::de::DeserializeOwned>(reader: &mut MessageReader, mut hear: impl FnMut(T)) {
    loop {
        match reader.receive() {
            Ok(Some(message)) => hear(message),
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "a connection ended");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::mpsc::{self, Receiver};
    use std::time::Duration;

    use super::*;

    fn open(job: Option<&str>) -> (Listener, Receiver<PeerEvent>) {
        let (events, heard) = mpsc::channel();
        let secrets = Secrets { token: "of the workers".to_owned(), job: job.map(str::to_owned) };
        (Listener::open(0, secrets, events).expect("some port is free"), heard)
    }

    fn knock(listener: &Listener, secret: &str, version: u32, role: Role) -> Result<String, Error> {
        let hello = Hello { version, secret: secret.to_owned(), role };
        let address = format!("127.0.0.1:{}", listener.port());
        wire::connect(&address, &hello, Duration::from_secs(5)).map(|(_, _, token)| token)
    }

    fn worker() -> Role {
        Role::Worker { rank: Rank(0), number: 1, device: serde_json::Value::Null }
    }

    #[test]
    fn strangers_are_refused() {
        let (listener, heard) = open(None);
        let refused = |result: Result<String, Error>| matches!(result, Err(Error::Refused { .. }));
        assert!(refused(knock(&listener, "of another job", wire::VERSION, worker())));
        assert!(refused(knock(&listener, "of the workers", wire::VERSION + 1, worker())));
        let agent = Role::Agent { rank: Rank(1) };
        assert!(refused(knock(&listener, "", wire::VERSION, agent)), "this job has no agents");
        let mut browser = TcpStream::connect(("127.0.0.1", listener.port())).expect("the listener is open");
        browser.write_all(b"GET / HTTP/1.1\n\n").expect("it is read");
        let mut answer = String::new();
        browser.read_to_string(&mut answer).expect("it is answered and closed");
        assert!(answer.contains("this is no hello"), "{answer}");
        listener.close();
        assert!(heard.recv().is_err(), "no event came of any of them");
    }

    #[test]
    fn agents_know_the_job_and_learn_the_token() {
        let (listener, heard) = open(Some("slurm 7.0"));
        let agent = || Role::Agent { rank: Rank(1) };
        assert!(knock(&listener, "slurm 8.0", wire::VERSION, agent()).is_err());
        let token = knock(&listener, "slurm 7.0", wire::VERSION, agent()).expect("it belongs to the job");
        assert_eq!(token, "of the workers");
        assert!(matches!(heard.recv(), Ok(PeerEvent::AgentJoined { rank: Rank(1), .. })));
        assert!(matches!(heard.recv(), Ok(PeerEvent::AgentGone { rank: Rank(1) })), "it hung up at once");
        listener.close();
    }
}
