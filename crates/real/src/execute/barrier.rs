//! Host barriers and agreements of a program.
//!
//! Not here: who has come, which the coordinator knows.

use std::sync::Arc;

use rankcheck_model::host::value::Value;
use rankcheck_model::{BarrierOp, Rank};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::thread::{Halt, ProgramThread};
use crate::case::Vote;

impl Execute for BarrierOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Enter { members } => thread.agree(text, members, Vote::Yes).map(|_| Vec::new()),
            Self::AllAgree { members, value } => {
                let vote = if thread.value(value).truth() { Vote::Yes } else { Vote::No };
                let agreed = thread.agree(text, members, vote)?;
                Ok(vec![Value::Bool(agreed == Vote::Yes)])
            }
        }
    }
}

impl ProgramThread<'_, '_> {
    fn agree(&mut self, text: &str, members: &Arc<[Rank]>, vote: Vote) -> Result<Vote, Halt> {
        let nth = {
            let mut tables = self.run.tables();
            let count = tables.hosts.entry(Arc::clone(members)).or_default();
            *count += 1;
            *count - 1
        };
        self.end_turn()?;
        let host = &*self.run.host;
        Ok(self.inside(text, WaitsFor::Hosts, |_| host.agree(members, nth, vote))?)
    }
}
