//! The store of a program.
//!
//! Not here: its keys, which the coordinator has.

use rankcheck_model::StoreOp;

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::naming;
use super::thread::ProgramThread;
use super::value::{from_store, to_store};

impl Execute for StoreOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let (source, host) = (&*thread.run.source, &*thread.run.host);
        thread.inside(text, WaitsFor::Hosts, |thread| match self {
            Self::Set { key, value } => {
                let value = thread.value(value);
                let tables = thread.run.tables();
                let in_words = |value: &_| naming::value(&tables, source, value);
                let stored = to_store(&value, thread.run.rank, &in_words);
                drop(tables);
                host.store_set(&source.token(*key), stored)?;
                Ok(Vec::new())
            }
            Self::Get { key } => Ok(vec![from_store(&host.store_get(&source.token(*key))?)]),
            Self::Delete { key } => {
                host.store_delete(&source.token(*key))?;
                Ok(Vec::new())
            }
        })
    }
}
