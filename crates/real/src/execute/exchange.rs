//! The exchange of shareable handles of a program: what every member brings goes to all of them, and each opens
//! the handles of the others.
//!
//! Members compare sizes and nothing else. Not here: handles that a program carries itself (`ipc.rs`).

use std::sync::Arc;

use rankcheck_model::host::value::{Buffer, Value};
use rankcheck_model::{ExchangeOp, Operand, Rank, Token};
use serde::{Deserialize, Serialize};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::ipc::INVALID_VALUE;
use super::thread::{Halt, ProgramThread};
use super::value::{ExportedHandle, OnDevice, own_memory};

/// What a member brings.
#[derive(Debug, Serialize, Deserialize)]
struct Contribution {
    /// Of the whole allocation.
    len_bytes: u64,
    #[serde(rename = "lent")]
    exported: ExportedHandle,
}

impl Execute for ExchangeOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Self { members, name, buffer } = self;
        thread.exchange(text, members, *name, buffer)
    }
}

impl ProgramThread<'_, '_> {
    fn exchange(
        &mut self,
        text: &str,
        members: &Arc<[Rank]>,
        name: Token,
        buffer: &Operand,
    ) -> Result<Vec<Value<OnDevice>>, Halt> {
        let nth = {
            let mut tables = self.run.tables();
            let count = tables.exchanges.entry(Arc::clone(members)).or_default();
            *count += 1;
            *count - 1
        };
        let value = self.value(buffer);
        let own = value.buffer().filter(|own| self.shareable(own));
        let mut whole = None;
        let mut brought = None;
        if let Some(own) = own {
            let row = own_memory(own).and_then(|memory| {
                let tables = self.run.tables();
                tables.memory.get(&memory).map(|row| (Arc::clone(&row.whole), row.asked_bytes))
            });
            if let (Some((all, asked_bytes)), Some(exported)) = (row, self.export(text, buffer)?) {
                brought = Some(Contribution { len_bytes: all.len_bytes, exported });
                whole = Some(Buffer { block: None, len_bytes: asked_bytes, ..Buffer::clone(&all) });
            }
        }
        let sent = serde_json::to_value(&brought).map_err(|error| Halt::Failed(error.to_string()))?;
        self.end_turn()?;
        let host = &*self.run.host;
        let all = self.inside(text, WaitsFor::Hosts, |_| host.gather(members, nth, sent))?;
        let all: Result<Vec<Option<Contribution>>, _> = all.into_iter().map(serde_json::from_value).collect();
        let all = all.map_err(|error| Halt::Failed(error.to_string()))?;
        let call = format!("exchange {}", self.run.source.token(name));
        let all: Option<Vec<Contribution>> = all.into_iter().collect();
        let (Some(all), Some(whole)) = (all, whole) else {
            self.failed(call, INVALID_VALUE, None);
            return Ok(vec![Value::Null; members.len()]);
        };
        if all.iter().any(|other| other.len_bytes != all[0].len_bytes) {
            self.failed(call, INVALID_VALUE, Some("the sizes differ".to_owned()));
            return Ok(vec![Value::Null; members.len()]);
        }
        let mut mapped = Vec::with_capacity(all.len());
        for (member, other) in members.iter().zip(&all) {
            mapped.push(if *member == self.run.rank {
                Value::Buffer(Arc::new(whole.clone()))
            } else {
                self.map_exported(text, &other.exported)?
            });
        }
        Ok(mapped)
    }
}
