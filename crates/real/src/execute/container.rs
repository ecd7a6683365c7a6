//! Maps and lists of a program.
//!
//! Not here: what they do, which no device decides ([`rankcheck_model::host::container`]).

use rankcheck_model::host::value::Value;
use rankcheck_model::{ListOp, MapOp, Operand};

use super::dispatch::{Execute, Produced};
use super::tables::Tables;
use super::thread::ProgramThread;
use super::value::OnDevice;

impl Execute for MapOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, _: &str) -> Produced {
        let value = |tables: &Tables, operand: &Operand| tables.value(&*thread.run.source, operand);
        let mut tables = thread.run.tables();
        let mut produced = Vec::new();
        match self {
            Self::Put { map, key, value: of } => {
                let (key, of) = (value(&tables, key), value(&tables, of));
                tables.containers.put(*map, key, of);
            }
            Self::Pop { map, key } => {
                let key = value(&tables, key);
                produced.push(tables.containers.pop(*map, &key));
            }
            Self::Get { map, key, default } => {
                let (key, default) = (value(&tables, key), value(&tables, default));
                produced.push(tables.containers.get(*map, &key, default));
            }
            Self::Clear { map } => tables.containers.clear_map(*map),
        }
        Ok(produced)
    }
}

/// Past the end there is nothing, and on a device that is no finding.
fn or_null<E>(element: Result<Value<OnDevice>, E>) -> Value<OnDevice> {
    element.unwrap_or(Value::Null)
}

impl Execute for ListOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, _: &str) -> Produced {
        let value = |tables: &Tables, operand: &Operand| tables.value(&*thread.run.source, operand);
        let mut tables = thread.run.tables();
        let mut produced = Vec::new();
        match self {
            Self::Push { list, value: of } => {
                let of = value(&tables, of);
                tables.containers.push(*list, of);
            }
            Self::Get { list, index } => {
                let index = value(&tables, index);
                produced.push(or_null(tables.containers.element(*list, &index)));
            }
            Self::Set { list, index, value: of } => {
                let (index, of) = (value(&tables, index), value(&tables, of));
                // Past the end nothing is replaced.
                tables.containers.replace(*list, &index, of).unwrap_or_default();
            }
            Self::Pop { list } => produced.push(tables.containers.pop_last(*list)),
            Self::Clear { list } => tables.containers.clear_list(*list),
        }
        Ok(produced)
    }
}
