//! How much memory the process holds, and how much a search may let it hold.
//!
//! Not here: what happens when it is too much ([`mod@super::explore`]).

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// How old a measurement may be. A search does not hold much more after that time, and looking costs it nothing.
const FRESH: Duration = Duration::from_millis(5);

/// A measurement of the memory that the process holds.
struct Measured {
    system: System,
    pid: Pid,
    at: Instant,
    bytes: u64,
}

impl Measured {
    fn first() -> Option<Self> {
        let pid = sysinfo::get_current_pid().ok()?;
        let mut measured = Self { system: System::new().ok()?, pid, at: Instant::now(), bytes: 0 };
        measured.again();
        Some(measured)
    }

    fn again(&mut self) {
        let memory = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.pid]), false, memory);
        self.bytes = self.system.process(self.pid).map_or(0, sysinfo::Process::memory);
        self.at = Instant::now();
    }
}

/// Returns how many bytes the process holds; none where the system does not say.
pub(super) fn held() -> Option<u64> {
    static MEASURED: OnceLock<Option<Mutex<Measured>>> = OnceLock::new();
    let measured = MEASURED.get_or_init(|| Measured::first().map(Mutex::new)).as_ref()?;
    let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
    if measured.at.elapsed() > FRESH {
        measured.again();
    }
    Some(measured.bytes)
}

/// Returns three quarters of the memory of the machine, or of what the process may take of it; none where the system
/// does not say.
pub(super) fn share() -> Option<u64> {
    static SHARE: OnceLock<Option<u64>> = OnceLock::new();
    *SHARE.get_or_init(|| {
        let mut system = System::new().ok()?;
        system.refresh_memory();
        let whole = system.total_memory();
        let allowed = system.cgroup_limits().map(|limits| limits.total_memory).filter(|limit| *limit > 0);
        let most = allowed.map_or(whole, |allowed| allowed.min(whole));
        (most > 0).then_some(most / 4 * 3)
    })
}
