//! What a rank has done so far, readable from another thread while the rank's own are stuck in calls.
//!
//! Not here: when somebody looks, and who kills the process afterwards.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::case::{CallFailed, Ended, Held, RankReport, Taken};
use crate::event::CudaEvent;
use crate::ffi::cuda::{Completion, Context};
use crate::graph::Capturing;
use crate::stream::CudaStream;

/// Launches after which those that are over are forgotten.
const FORGET_BEYOND: usize = 64;

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Other hosts or threads, or nothing.
    Hosts,
    /// Work on the device.
    Device,
}

/// Where a host thread stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadPosition {
    /// The thread is between two calls.
    Running,
    /// Inside a call: its index, its words.
    Inside(u32, String, WaitsFor),
    /// The thread's function returned, so it makes no further call.
    Done,
    /// Ended the process as far as the program goes, with this message.
    Exited(String),
}

/// A stream, and what was launched on it and was not seen complete.
#[derive(Debug, Clone)]
struct Queue {
    name: String,
    stream: Arc<CudaStream>,
    launched: VecDeque<Launched>,
}

#[derive(Debug, Clone)]
struct Launched {
    /// Thread and index of the operation, if it is known which one it is.
    at: Option<(u32, u32)>,
    over: Arc<CudaEvent>,
}

#[derive(Debug, Default)]
struct Record {
    threads: Vec<ThreadPosition>,
    queues: Vec<Queue>,
    errors: Vec<CallFailed>,
    taken: Vec<Taken>,
    answers: BTreeMap<u32, Vec<u32>>,
    reached: Vec<String>,
    broken: Option<u32>,
    failed: Option<String>,
}

/// A handle on what a rank has done so far.
#[derive(Debug)]
pub struct RankInspector {
    context: Context,
    record: Mutex<Record>,
}

impl crate::case::Inspect for RankInspector {
    fn inspect(&self) -> RankReport {
        self.report()
    }
}

impl RankInspector {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    /// Every change is whole, so a thread that panicked left the record whole.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the case before.
    pub(crate) fn reset(&self) {
        *self.record() = Record::default();
    }

    pub(crate) fn stand(&self, thread: u32, standing: ThreadPosition) {
        let mut record = self.record();
        let at = thread as usize;
        if record.threads.len() <= at {
            record.threads.resize(at + 1, ThreadPosition::Running);
        }
        record.threads[at] = standing;
    }

    pub(crate) fn stream(&self, name: &str, stream: &Arc<CudaStream>) {
        let queue = Queue { name: name.to_owned(), stream: Arc::clone(stream), launched: VecDeque::new() };
        self.record().queues.push(queue);
    }

    /// Something was launched on the n-th stream; `over` is recorded behind it.
    pub(crate) fn launched(&self, stream: usize, at: Option<(u32, u32)>, over: Arc<CudaEvent>) {
        let mut record = self.record();
        let launched = &mut record.queues[stream].launched;
        launched.push_back(Launched { at, over });
        if launched.len() > FORGET_BEYOND {
            while launched.front().is_some_and(|first| first.over.query() == Ok(Completion::Complete)) {
                launched.pop_front();
            }
        }
    }

    pub(crate) fn failed_call(&self, failed: CallFailed) {
        self.record().errors.push(failed);
    }

    pub(crate) fn took(&self, taken: Taken) {
        self.record().taken.push(taken);
    }

    pub(crate) fn answered(&self, thread: u32, answer: u32) {
        self.record().answers.entry(thread).or_default().push(answer);
    }

    pub(crate) fn reached(&self, label: &str) {
        let mut record = self.record();
        if !record.reached.iter().any(|known| known == label) {
            record.reached.push(label.to_owned());
        }
    }

    /// The context is lost.
    pub(crate) fn broke(&self, code: u32) {
        self.record().broken.get_or_insert(code);
    }

    /// The work cannot be done.
    pub(crate) fn gave_up(&self, why: String) {
        self.record().failed.get_or_insert(why);
    }

    /// Whether the rank's threads have to stop.
    pub(crate) fn stopped(&self) -> bool {
        let record = self.record();
        record.broken.is_some() || record.failed.is_some()
    }

    pub(crate) fn streams(&self) -> Vec<Arc<CudaStream>> {
        self.record().queues.iter().map(|queue| Arc::clone(&queue.stream)).collect()
    }

    /// What the rank would report if it were ended now. Without contents.
    #[must_use]
    pub fn report(&self) -> RankReport {
        self.report_with(Vec::new())
    }

    pub(crate) fn report_with(&self, held: Vec<Held>) -> RankReport {
        // Nothing is asked of the driver while the record is locked: a thread may hang in there.
        let queues = self.record().queues.clone();
        let stuck = self.stuck(&queues);
        let record = self.record();
        RankReport {
            ended: ended(&record, stuck),
            errors: record.errors.clone(),
            taken: record.taken.clone(),
            answers: record.answers.clone(),
            held,
            reached: record.reached.clone(),
        }
    }

    /// The streams that have not drained, with their first operations, or how the context was lost.
    fn stuck(&self, queues: &[Queue]) -> Result<Vec<Stuck>, u32> {
        let code = |error: Error| error.cuda_code().unwrap_or(0);
        let _device = self.context.enter().map_err(code)?;
        let mut stuck = Vec::new();
        for queue in queues {
            // A stream that records runs nothing, and must not be asked.
            let captures = queue.stream.capturing().map_err(code)? != Capturing::No;
            if captures || queue.stream.query().map_err(code)? == Completion::Complete {
                continue;
            }
            let mut head = None;
            for launched in &queue.launched {
                if launched.over.query().map_err(code)? == Completion::Pending {
                    head = launched.at;
                    break;
                }
            }
            stuck.push((queue.name.clone(), head));
        }
        Ok(stuck)
    }
}

/// A stream with the thread and index of its first operation that is not over, if it is known.
type Stuck = (String, Option<(u32, u32)>);

/// As the model judges it: the first thread that has not returned decides between host and device.
fn ended(record: &Record, stuck: Result<Vec<Stuck>, u32>) -> Ended {
    if let Some(code) = record.broken {
        return Ended::Broken { code };
    }
    if let Some(why) = &record.failed {
        return Ended::Lost { why: why.clone() };
    }
    let stuck = match stuck {
        Ok(stuck) => stuck,
        Err(code) => return Ended::Broken { code },
    };
    let first = record.threads.iter().find_map(|thread| match thread {
        ThreadPosition::Running => Some(WaitsFor::Hosts),
        ThreadPosition::Inside(_, _, waits) => Some(*waits),
        ThreadPosition::Done | ThreadPosition::Exited(_) => None,
    });
    match first {
        Some(WaitsFor::Device) | None if !stuck.is_empty() => Ended::GpuHang { streams: stuck },
        Some(_) => Ended::HostHang { inside: inside(record) },
        // An error in a thread that the program started ends that thread alone.
        None => match record.threads.first() {
            Some(ThreadPosition::Exited(message)) => Ended::Dead { message: message.clone() },
            Some(ThreadPosition::Running | ThreadPosition::Inside(..) | ThreadPosition::Done) | None => {
                Ended::Finishes
            }
        },
    }
}

fn inside(record: &Record) -> Vec<(u32, u32, String)> {
    let threads = record.threads.iter().enumerate().filter_map(|(number, thread)| match thread {
        ThreadPosition::Inside(index, words, _) => {
            Some((u32::try_from(number).expect("few threads"), *index, words.clone()))
        }
        ThreadPosition::Running | ThreadPosition::Done | ThreadPosition::Exited(_) => None,
    });
    threads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(threads: Vec<ThreadPosition>) -> Record {
        Record { threads, ..Record::default() }
    }

    #[test]
    fn the_first_thread_decides_where_it_hangs() {
        let host = ThreadPosition::Inside(3, "tp.register(x)".to_owned(), WaitsFor::Hosts);
        let device = ThreadPosition::Inside(5, "default.synchronize".to_owned(), WaitsFor::Device);
        let stuck = vec![("default".to_owned(), Some((0, 4)))];
        let inside = ended(&record(vec![ThreadPosition::Done, host.clone()]), Ok(stuck.clone()));
        assert_eq!(inside, Ended::HostHang { inside: vec![(1, 3, "tp.register(x)".to_owned())] });
        let waits = ended(&record(vec![device, host]), Ok(stuck.clone()));
        assert_eq!(waits, Ended::GpuHang { streams: stuck.clone() });
        assert_eq!(
            ended(&record(vec![ThreadPosition::Done]), Ok(stuck.clone())),
            Ended::GpuHang { streams: stuck }
        );
    }

    #[test]
    fn an_exit_counts_once_everything_is_over() {
        let exited = || ThreadPosition::Exited("out of memory".to_owned());
        let dead = Ended::Dead { message: "out of memory".to_owned() };
        assert_eq!(ended(&record(vec![exited(), ThreadPosition::Done]), Ok(Vec::new())), dead);
        assert_eq!(ended(&record(vec![ThreadPosition::Done, exited()]), Ok(Vec::new())), Ended::Finishes);
        assert_eq!(ended(&record(vec![ThreadPosition::Done]), Ok(Vec::new())), Ended::Finishes);
        assert_eq!(ended(&record(vec![ThreadPosition::Done]), Err(700)), Ended::Broken { code: 700 });
    }
}
