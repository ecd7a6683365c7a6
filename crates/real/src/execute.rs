//! Runs one rank's part of a case on a device: every operation of its program becomes calls, every question
//! an answer, and values are those that the case forces.
//!
//! Host threads of the program are threads here. What they share lies behind one lock, which is not held
//! across a call that may wait for another rank or for the device. Memory holds
//! [`initial_number`](rankcheck_model::term::initial_number) when it is handed out, and
//! [`POISON_BYTE`] before.
//!
//! A call that hangs hangs its thread for ever; then [`execute`] does not return. Somebody else looks through
//! [`RankInspector`] and ends the process.
//!
//! Not here: other ranks ([`Host`]), what was predicted, deadlines.

mod barrier;
mod collective;
mod comm;
mod container;
mod contents;
mod device;
mod dispatch;
mod event;
mod exchange;
mod flag;
mod graph;
mod group;
mod inspect;
mod ipc;
mod memory;
mod mutex;
mod naming;
mod nondet;
mod order;
mod overlap;
mod p2p;
mod pool;
mod question;
mod store;
mod stream;
mod tables;
mod thread;
mod value;
mod window;

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};

use rankcheck_model::host::value::{Buffer, Value};
use rankcheck_model::{Rank, Source, ThreadStart};

pub use self::device::RankDevice;
pub use self::inspect::RankInspector;

use self::contents::Contents;
use self::device::{STAGING_BYTES, SharedDevice, locked};
use self::nondet::ForcedValues;
use self::tables::{Exports, Tables, ThreadRow};
use self::thread::{Halt, RunningCase};
use self::value::{OnDevice, range};
use crate::Error;
use crate::case::{Case, Ended, Held, Host, RankReport};
use crate::ffi::cuda::Completion;
use crate::kernel::ComputeType;

/// What every byte of new memory holds before anything is written: a number in every element type.
pub const POISON_BYTE: u8 = 0xA5;

/// Runs the program of `source` as `rank`. Returns once all its threads have returned and its streams have
/// drained, or its context is lost, or the work could not be done, which is [`Ended::Lost`].
///
/// The process is good for another case after [`Ended::Finishes`] and [`Ended::Dead`] only.
///
/// What the last case left is cleaned up first ([`RankDevice::clean`]), so every rank has to have reported
/// the end of that one.
pub fn execute(
    device: &mut RankDevice,
    source: Arc<dyn Source>,
    rank: Rank,
    case: &Case,
    host: Arc<dyn Host>,
) -> RankReport {
    let cleaned = device.clean();
    let shared = &device.shared;
    shared.inspect.reset();
    if let Err(error) = cleaned {
        shared.inspect.gave_up(format!("the last case could not be cleaned up: {error}"));
        return shared.inspect.report();
    }
    let mut tables = Tables::default();
    tables.threads.push(ThreadRow { start: ThreadStart(0), slots: Vec::new(), ended: false });
    let run = RunningCase {
        shared,
        source,
        host,
        rank,
        case,
        element: ComputeType::of(case.element),
        tables: Mutex::new(tables),
        changed: Condvar::new(),
        nondet: Mutex::new(ForcedValues::new(&case.forced, rank)),
    };
    // The first thread is a new one too: what NCCL keeps of a group that a program leaves open belongs to
    // its thread and ends with it.
    std::thread::scope(|scope| thread::spawn_thread(scope, &run, 0, ThreadStart(0)));
    let held = match finish(&run) {
        Ok(held) => held,
        Err(Halt::Broken(code)) => {
            shared.inspect.broke(code);
            Vec::new()
        }
        Err(Halt::Failed(why) | Halt::Exited(why)) => {
            shared.inspect.gave_up(why);
            Vec::new()
        }
        Err(Halt::Others) => Vec::new(),
    };
    let report = shared.inspect.report_with(held);
    device.left = Some(run.tables.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    report
}

/// All threads have returned: waits for the streams and reads what the program still holds.
fn finish(run: &RunningCase<'_>) -> Result<Vec<Held>, Halt> {
    let shared = run.shared;
    if shared.inspect.stopped() {
        return Err(Halt::Others);
    }
    shared.open_gate();
    run.tables().end_captures();
    let streams = shared.inspect.streams();
    for stream in &streams {
        while stream.query()? == Completion::Pending {
            std::thread::park_timeout(std::time::Duration::from_micros(20));
        }
    }
    let ended = shared.inspect.report().ended;
    if !matches!(ended, Ended::Finishes | Ended::Dead { .. }) {
        return Err(Halt::Others);
    }
    if run.tables().exports == Exports::Memory {
        // Other ranks may still work on memory of this one.
        run.host.rest()?;
    }
    let tables = run.tables();
    let mut held = Vec::new();
    for (at, buffer) in holds(&tables) {
        let name = run.source.token(buffer.name).to_string();
        held.push(read(shared, run.element, &buffer)?.held(at, name));
    }
    Ok(held)
}

/// Where a value stands: thread and slot.
type SlotPosition = (u32, u32);

/// The buffers that the program still has, each where a slot first names its allocation.
fn holds(tables: &Tables) -> Vec<(SlotPosition, Arc<Buffer<OnDevice>>)> {
    let mut listed = BTreeSet::new();
    let mut held = Vec::new();
    for (thread, row) in (0_u32..).zip(&tables.threads) {
        for (slot, value) in (0_u32..).zip(&row.slots) {
            let Value::Buffer(buffer) = value else { continue };
            let Some(block) = buffer.block else { continue };
            if tables.live.contains(&block) && listed.insert(block) {
                held.push(((thread, slot), Arc::clone(buffer)));
            }
        }
    }
    held
}

fn read(shared: &SharedDevice, element: ComputeType, buffer: &Buffer<OnDevice>) -> Result<Contents, Error> {
    let range = range(buffer);
    let mut contents = Contents::default();
    let mut staging = locked(&shared.staging);
    let mut at = 0;
    while at < range.len_bytes() {
        let len_bytes = STAGING_BYTES.min(range.len_bytes() - at);
        let piece = range.slice(at, len_bytes).expect("a piece lies inside");
        let bytes = staging.read(&piece, &shared.aside.owner, |_| shared.settle())?;
        contents.add(element, bytes);
        at += len_bytes;
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use rankcheck_model::Token;
    use rankcheck_model::host::value::{BlockId, MemoryId, Owner};

    use super::value::tests::block;
    use super::*;

    #[test]
    fn an_allocation_is_reported_where_it_is_named_first() {
        let mut tables = Tables::default();
        let slots = vec![Value::Int(3), block(0, 0, (0, 8)), block(1, 0, (0, 8)), block(0, 0, (0, 4))];
        tables.threads.push(ThreadRow { start: ThreadStart(0), slots, ended: true });
        let slots = vec![block(2, 0, (0, 8))];
        tables.threads.push(ThreadRow { start: ThreadStart(1), slots, ended: true });
        for nth in [0, 2] {
            tables.live.insert(BlockId(MemoryId { owner: Owner::Pool(Token(1)), nth }));
        }
        let held: Vec<(u32, u32)> = holds(&tables).into_iter().map(|(at, _)| at).collect();
        assert_eq!(held, [(0, 1), (1, 0)], "the second was freed");
    }
}
