//! Mutexes of a program: names in a table, which threads of this rank wait for.
//!
//! Not here: the lock on the tables themselves ([`super::thread`]).

use rankcheck_model::MutexOp;

use super::dispatch::{Execute, Produced};
use super::thread::ProgramThread;

impl Execute for MutexOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Lock { mutex } => {
                let mut tables = thread.wait_inside(text, |tables| !tables.mutexes.contains_key(mutex))?;
                tables.mutexes.insert(*mutex, thread.number);
            }
            Self::Unlock { mutex } => {
                let mut tables = thread.run.tables();
                if tables.mutexes.get(mutex) == Some(&thread.number) {
                    tables.mutexes.remove(mutex);
                    thread.run.changed.notify_all();
                }
            }
        }
        Ok(Vec::new())
    }
}
