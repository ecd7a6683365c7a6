//! An agent: starts and kills the workers of its rank for a coordinator in another process.
//!
//! torchrun and srun start one process a rank. That of rank 0 coordinates, the others serve it here.
//! Not here: cases; workers talk to the coordinator themselves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rankcheck_model::Rank;

use super::WorkerCommand;
use super::process::Spawner;
use crate::Error;
use crate::launch::Cluster;
use crate::wire::{self, FromAgent, Hello, Role, ToAgent};
use crate::worker::WorkerConfig;

/// Serves the coordinator until it ends the job or is gone; all workers have ended then.
///
/// # Errors
/// [`Error::Connection`] if the coordinator does not come within `timeout` or goes without ending the job;
/// [`Error::Refused`] if this process belongs to another job.
pub fn serve(cluster: &Cluster, worker: WorkerCommand, timeout: Duration) -> Result<(), Error> {
    let Cluster { rank, local_rank, host, port, secret, ranks: _ } = cluster;
    let role = Role::Agent { rank: Rank(*rank) };
    let hello = Hello { version: wire::VERSION, secret: secret.clone(), role };
    let coordinator = format!("{host}:{port}");
    let (mut reader, writer, token) = wire::connect(&coordinator, &hello, timeout)?;
    let writer = Arc::new(Mutex::new(writer));
    let telling = Arc::clone(&writer);
    let spawner = Spawner::start(worker, move |number, how| {
        let mut writer = telling.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody is left to hear it once the coordinator has ended the job.
        let _ = writer.send(&FromAgent::Exited { number, how });
    });
    let ended = loop {
        match reader.receive() {
            Ok(Some(ToAgent::Spawn { number })) => spawner.spawn(WorkerConfig {
                coordinator: coordinator.clone(),
                rank: Rank(*rank),
                number,
                device: *local_rank,
                token: token.clone(),
            }),
            Ok(Some(ToAgent::Kill { number })) => spawner.kill(number),
            Ok(Some(ToAgent::End)) => break Ok(()),
            Ok(None) => {
                let why = "it ended without ending the job".to_owned();
                break Err(Error::Connection { what: format!("the coordinator at {coordinator}"), why });
            }
            Err(error) => break Err(error),
        }
    };
    spawner.end();
    ended
}
