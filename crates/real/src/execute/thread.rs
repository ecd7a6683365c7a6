//! A host thread of a program: its walk through the blocks, what it waits for, and how calls and values are noted.
//!
//! Not here: what operations do, which stands with each noun ([`super::dispatch`]).

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::Duration;

use rankcheck_model::host::value::Value;
use rankcheck_model::{Answer, Op, Operand, Rank, Source, Terminator, ThreadOp, ThreadStart};

use super::device::{SharedDevice, locked};
use super::dispatch::{Execute, Produced};
use super::group::OpenGroup;
use super::inspect::{ThreadPosition, WaitsFor};
use super::naming;
use super::nondet::{ForcedValues, NondetKind};
use super::tables::{Tables, ThreadRow};
use super::value::OnDevice;
use crate::Error;
use crate::case::{At, CallFailed, Case, Host, NondetValue, Taken};
use crate::ffi::cuda::{Completion, Device};
use crate::ffi::nccl;
use crate::kernel::ComputeType;

/// How long a thread that waits for another of its rank sleeps before it looks whether the case is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Polls before a thread that waits for the device gives the processor away.
const BUSY_POLLS: u32 = 2000;

/// Why a thread goes no further.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The program ended it.
    Exited(String),
    /// The context is lost, with this `CUresult`.
    Broken(u32),
    /// The work cannot be done.
    Failed(String),
    /// Another thread stopped for one of the two reasons above.
    Others,
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        match error.cuda_code() {
            Some(code) if loses_context(code) => Self::Broken(code),
            Some(_) | None => Self::Failed(error.to_string()),
        }
    }
}

/// `CUresult`s after which the process has to end (`cuda.h`): an uncorrectable error, and what kernels do
/// wrong.
pub(crate) fn loses_context(code: u32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719)
}

/// `CUresult`s of calls that a capture forbids, or that do not fit it (`cuda.h`).
pub(crate) fn refused_by_capture(code: u32) -> bool {
    matches!(code, 401 | 900..=908)
}

/// A case as one rank runs it.
pub(crate) struct RunningCase<'e> {
    pub(crate) shared: &'e SharedDevice,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) rank: Rank,
    pub(crate) case: &'e Case,
    pub(crate) element: ComputeType,
    pub(crate) tables: Mutex<Tables>,
    /// Some thread changed what another may wait for.
    pub(crate) changed: Condvar,
    pub(crate) nondet: Mutex<ForcedValues>,
}

impl RunningCase<'_> {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        locked(&self.tables)
    }
}

/// Whether a scheduled operation still keeps the next one waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForcedTurn {
    Held,
    No,
}

/// A host thread of the program, which runs on a thread of this process.
pub(crate) struct ProgramThread<'s, 'e> {
    pub(crate) run: &'e RunningCase<'e>,
    scope: &'s Scope<'s, 'e>,
    pub(crate) device: Device,
    pub(crate) number: u32,
    start: ThreadStart,
    /// Operations and questions done so far.
    index: u32,
    turn: ForcedTurn,
    pub(crate) group: OpenGroup,
}

/// Starts a host thread of the program. Its row is in the tables already.
pub(crate) fn spawn_thread<'s, 'e>(
    scope: &'s Scope<'s, 'e>,
    run: &'e RunningCase<'e>,
    number: u32,
    start: ThreadStart,
) {
    run.shared.inspect.stand(number, ThreadPosition::Running);
    scope.spawn(move || {
        let result = run.shared.context.enter().map_err(Halt::from).and_then(|device| {
            let group = OpenGroup::default();
            let mut thread =
                ProgramThread { run, scope, device, number, start, index: 0, turn: ForcedTurn::No, group };
            thread.walk()
        });
        let inspect = &run.shared.inspect;
        let position = match result {
            Ok(()) | Err(Halt::Others) => ThreadPosition::Done,
            Err(Halt::Exited(message)) => ThreadPosition::Exited(message),
            Err(Halt::Broken(code)) => {
                inspect.broke(code);
                ThreadPosition::Done
            }
            Err(Halt::Failed(why)) => {
                inspect.gave_up(why);
                ThreadPosition::Done
            }
        };
        inspect.stand(number, position);
        run.tables().threads[number as usize].ended = true;
        run.changed.notify_all();
    });
}

impl Execute for ThreadOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            // Costs are counted by the model.
            Self::Step { .. } | Self::Steady | Self::Measure { .. } => {}
            Self::Spawn { start } => return Ok(vec![thread.spawn(*start)]),
            Self::Join { thread: child } => thread.join(text, child)?,
            Self::Exit { code } => return Err(Halt::Exited(thread.run.source.token(*code).to_string())),
            Self::Reach { label } => thread.run.shared.inspect.reached(&thread.run.source.token(*label)),
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    fn walk(&mut self) -> Result<(), Halt> {
        let mut answers: Vec<Answer> = Vec::new();
        loop {
            let block = self.run.source.block(self.run.rank, self.start, &answers);
            let block = block.map_err(|error| Halt::Failed(error.to_string()))?;
            for op in &block.ops {
                self.begin()?;
                let produced = self.operation(&op.op)?;
                self.run.tables().produce(self.number, produced);
                self.end_turn()?;
                self.index += 1;
            }
            let Terminator::Ask(question, _) = &block.terminator else { return Ok(()) };
            self.begin()?;
            let (answer, produced) = self.ask(question)?;
            self.run.tables().produce(self.number, produced);
            self.end_turn()?;
            self.run.shared.inspect.answered(self.number, answer);
            answers.push(answer);
            self.index += 1;
        }
    }

    /// Where the thread stands.
    pub(crate) fn at(&self) -> At {
        At { rank: self.run.rank, thread: self.number, index: self.index }
    }

    fn begin(&mut self) -> Result<(), Halt> {
        if self.run.shared.inspect.stopped() {
            return Err(Halt::Others);
        }
        let at = self.at();
        if locked(&self.run.nondet).turns.contains(&at) {
            self.inside("waiting for its turn", WaitsFor::Hosts, |thread| thread.run.host.turn(at))?;
            self.turn = ForcedTurn::Held;
        }
        if let Some(value) = self.wanted(NondetKind::Death) {
            let dies = value == NondetValue::Death { dies: true };
            self.took(Some(value.clone()), value);
            if dies {
                self.run.host.enter(self.number, self.index, "death");
                std::process::abort();
            }
        }
        Ok(())
    }

    /// The operation goes on by itself, or waits for other ranks: the next of the schedule may begin.
    pub(crate) fn end_turn(&mut self) -> Result<(), Halt> {
        if self.turn == ForcedTurn::Held {
            self.turn = ForcedTurn::No;
            self.run.host.turn_over(self.at())?;
        }
        Ok(())
    }

    /// Makes a call that others can see the thread inside of.
    pub(crate) fn inside<T>(&self, text: &str, waits: WaitsFor, call: impl FnOnce(&Self) -> T) -> T {
        let RunningCase { shared, host, .. } = self.run;
        host.enter(self.number, self.index, text);
        shared.inspect.stand(self.number, ThreadPosition::Inside(self.index, text.to_owned(), waits));
        let result = call(self);
        shared.inspect.stand(self.number, ThreadPosition::Running);
        host.leave(self.number, self.index);
        result
    }

    /// An operation in words.
    pub(crate) fn text(&self, op: &Op) -> String {
        naming::operation(&self.run.tables(), &*self.run.source, op)
    }

    pub(crate) fn value(&self, operand: &Operand) -> Value<OnDevice> {
        self.run.tables().value(&*self.run.source, operand)
    }

    /// The forced value of this operation, if it is of this kind.
    pub(crate) fn wanted(&self, kind: NondetKind) -> Option<NondetValue> {
        locked(&self.run.nondet).take(self.at(), kind)
    }

    pub(crate) fn took(&self, wanted: Option<NondetValue>, value: NondetValue) {
        self.run.shared.inspect.took(Taken { at: self.at(), wanted, value });
    }

    /// Whether the call is made to fail without being made.
    pub(crate) fn fails(&self) -> bool {
        let Some(value) = self.wanted(NondetKind::Fault) else { return false };
        let fails = value == NondetValue::Fault { fails: true };
        self.took(Some(value.clone()), value);
        fails
    }

    /// A call returned an error, or would have.
    pub(crate) fn failed(&self, call: String, code: i32, detail: Option<String>) {
        let failed = CallFailed { call, code, thread: self.number, index: self.index, detail };
        self.run.shared.inspect.failed_call(failed);
    }

    /// Notes what a call returned; the result, or nothing if it was an error that the program goes on after.
    pub(crate) fn noted<T>(&self, call: &str, result: Result<T, Error>) -> Result<Option<T>, Halt> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        if !error.is_of_a_call() {
            return Err(error.into());
        }
        let (code, detail) = if let Error::Nccl { code, .. } = &error {
            (i32::try_from(*code).unwrap_or(i32::MAX), nccl::last_error(&self.run.shared.libraries))
        } else {
            // As NCCL says it: an unhandled CUDA error. What captures forbid keeps its own code.
            let code = error.cuda_code().filter(|code| refused_by_capture(*code)).unwrap_or(1);
            (i32::try_from(code).unwrap_or(i32::MAX), error.to_string())
        };
        self.failed(call.to_owned(), code, Some(detail));
        self.unbroken(&error)?;
        Ok(None)
    }

    /// Stops if an error has taken the context with it.
    pub(crate) fn unbroken(&self, error: &Error) -> Result<(), Halt> {
        // Every call of a lost context answers with the code that lost it.
        let now = self.run.shared.aside.query().err().and_then(|error| error.cuda_code());
        match error.cuda_code().into_iter().chain(now).find(|code| loses_context(*code)) {
            Some(code) => Err(Halt::Broken(code)),
            None => Ok(()),
        }
    }

    /// Waits until the tables are as wanted.
    pub(crate) fn wait_until(&self, ready: impl Fn(&Tables) -> bool) -> Result<MutexGuard<'_, Tables>, Halt> {
        let mut tables = self.run.tables();
        while !ready(&tables) {
            if self.run.shared.inspect.stopped() {
                return Err(Halt::Others);
            }
            let waited = self.run.changed.wait_timeout(tables, LOOK_AGAIN);
            tables = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(tables)
    }

    /// As [`wait_until`](Self::wait_until), but inspections see the thread inside the call if it has to wait.
    pub(crate) fn wait_inside(
        &self,
        text: &str,
        ready: impl Fn(&Tables) -> bool,
    ) -> Result<MutexGuard<'_, Tables>, Halt> {
        loop {
            let tables = self.run.tables();
            if ready(&tables) {
                return Ok(tables);
            }
            drop(tables);
            self.inside(text, WaitsFor::Hosts, |thread| thread.wait_until(&ready).map(drop))?;
        }
    }

    /// Waits until the device has got somewhere.
    pub(crate) fn poll_until(
        &self,
        mut query: impl FnMut() -> Result<Completion, Error>,
    ) -> Result<(), Halt> {
        let mut polls = 0_u32;
        while query()? == Completion::Pending {
            if self.run.shared.inspect.stopped() {
                return Err(Halt::Others);
            }
            polls = polls.saturating_add(1);
            if polls < BUSY_POLLS {
                std::thread::yield_now();
            } else {
                std::thread::park_timeout(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn spawn(&self, start: ThreadStart) -> Value<OnDevice> {
        let number = {
            let mut tables = self.run.tables();
            tables.threads.push(ThreadRow { start, slots: Vec::new(), ended: false });
            u32::try_from(tables.threads.len() - 1).expect("few threads")
        };
        spawn_thread(self.scope, self.run, number, start);
        Value::Thread(number)
    }

    fn join(&self, text: &str, thread: &Operand) -> Result<(), Halt> {
        let Value::Thread(child) = self.value(thread) else { return Ok(()) };
        self.wait_inside(text, |tables| tables.threads[child as usize].ended).map(drop)
    }
}
