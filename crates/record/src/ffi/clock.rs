//! What time it is: nanoseconds of the kernel's monotonic clock, mostly without asking for it.
//!
//! Where the kernel tells time by the processor's counter, this does so too, at less than half the price. From
//! counter to time leads a *line*. A line is used for a while; the next begins where it ends or later, with the
//! rate that the kernel's clock had meanwhile. All threads use the same one, so times of this process never run
//! backwards from one thread to another; from the kernel's clock they differ by a microsecond or so.
//!
//! Not here: when times of a recording begin.

/// Tells nanoseconds of a clock that nobody sets.
#[cfg(target_arch = "x86_64")]
pub(crate) use counter::RunningClock;

/// Tells nanoseconds of a clock that nobody sets.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) struct RunningClock;

#[cfg(not(target_arch = "x86_64"))]
impl RunningClock {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn now(&self) -> u64 {
        kernel()
    }

    /// This process is the child of a fork.
    pub(crate) fn forked(&self) {}
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is written by the call.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The monotonic clock, as the kernel tells it.
fn kernel() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns nanoseconds since 1970, by a clock that can be set.
pub(crate) fn since_1970() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::_rdtsc;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

    use super::kernel;
    use crate::ffi::process::Errno;

    /// For how many ticks a line is used: a fraction of a second.
    const SPAN: u64 = 1 << 30;
    /// How many ticks tell the first rate to a millionth: some twenty milliseconds.
    const FIRST_SPAN: u64 = 1 << 26;
    /// How often a line is looked at that another thread is writing, or that a signal found half written.
    const ATTEMPTS: usize = 100;

    /// A line that gives the time at each tick, renewed after [`SPAN`] ticks.
    #[derive(Clone, Copy)]
    struct ClockLine {
        /// Ticks where it begins.
        from: u64,
        /// The time there: as the kernel's clock, or a little later.
        time: u64,
        /// Nanoseconds for 2³² ticks; zero where there is no line yet.
        rate: u64,
    }

    impl ClockLine {
        /// The time so many ticks after it began.
        #[inline]
        fn at(&self, since: u64) -> u64 {
            let passed = (u128::from(since) * u128::from(self.rate)) >> 32;
            self.time.wrapping_add(u64::try_from(passed).unwrap_or(0))
        }

        /// The time at these ticks, while the next line is made. None if this one ended long before: it would be
        /// too far from the kernel's clock.
        fn beyond(&self, ticks: u64) -> Option<u64> {
            let since = ticks.saturating_sub(self.from);
            (self.rate > 0 && since < 2 * SPAN).then(|| self.at(since))
        }
    }

    /// Tells nanoseconds of a clock that nobody sets.
    #[repr(C)]
    pub(crate) struct RunningClock {
        /// Odd while the line is written.
        sequence: AtomicUsize,
        /// The current [`ClockLine`], one atomic for each field.
        from: AtomicU64,
        time: AtomicU64,
        rate: AtomicU64,
        /// Whether a thread makes the next line.
        renewing: AtomicBool,
        /// Ticks and the kernel's clock, from which the next line gets its rate. Zeros before the first.
        last: [AtomicU64; 2],
    }

    impl RunningClock {
        pub(crate) const fn new() -> Self {
            Self {
                sequence: AtomicUsize::new(0),
                from: AtomicU64::new(0),
                time: AtomicU64::new(0),
                rate: AtomicU64::new(0),
                renewing: AtomicBool::new(false),
                last: [const { AtomicU64::new(0) }; 2],
            }
        }

        #[inline]
        pub(crate) fn now(&self) -> u64 {
            if let Some(line) = self.line() {
                // The processor may have looked at its counter a little before it looked at the line.
                let since = ticks().saturating_sub(line.from);
                if since < SPAN && line.rate > 0 {
                    return line.at(since);
                }
            }
            self.renewed()
        }

        /// The line; none if it is being written.
        #[inline]
        fn line(&self) -> Option<ClockLine> {
            let before = self.sequence.load(Ordering::Acquire);
            let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let line = ClockLine { from: get(&self.from), time: get(&self.time), rate: get(&self.rate) };
            fence(Ordering::Acquire);
            (before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before).then_some(line)
        }

        /// This process is the child of a fork; another thread of its parent may have been making a line.
        pub(crate) fn forked(&self) {
            self.rate.store(0, Ordering::Relaxed);
            self.last.iter().for_each(|number| number.store(0, Ordering::Relaxed));
            self.sequence.store(0, Ordering::Relaxed);
            self.renewing.store(false, Ordering::Relaxed);
        }

        /// The time, and a new line for those who ask next, if it is due.
        #[cold]
        fn renewed(&self) -> u64 {
            let _errno = Errno::kept();
            if !trusted() {
                return kernel();
            }
            if self.renewing.swap(true, Ordering::Acquire) {
                // Another thread is at it, or this one is, and a signal came.
                let line = (0..ATTEMPTS).find_map(|_| self.line());
                return line.and_then(|line| line.beyond(ticks())).unwrap_or_else(kernel);
            }
            let time = self.renew();
            self.renewing.store(false, Ordering::Release);
            time
        }

        /// As [`RunningClock::renewed`], by one thread at a time.
        fn renew(&self) -> u64 {
            let (from, clock) = together();
            let old = self.line().filter(|line| line.rate > 0);
            let time = old.and_then(|old| old.beyond(from)).map_or(clock, |time| clock.max(time));
            let [since, last] = &self.last;
            let passed = from.saturating_sub(since.load(Ordering::Relaxed));
            let is_first = last.load(Ordering::Relaxed) == 0;
            if !is_first && passed < if old.is_some() { SPAN } else { FIRST_SPAN } {
                return time;
            }
            if !is_first {
                let elapsed = clock.saturating_sub(last.load(Ordering::Relaxed));
                let rate = (u128::from(elapsed) << 32) / u128::from(passed);
                let sequence = self.sequence.load(Ordering::Relaxed);
                self.sequence.store(sequence + 1, Ordering::Relaxed);
                fence(Ordering::Release);
                self.from.store(from, Ordering::Relaxed);
                self.time.store(time, Ordering::Relaxed);
                self.rate.store(u64::try_from(rate).unwrap_or(0), Ordering::Relaxed);
                self.sequence.store(sequence + 2, Ordering::Release);
            }
            since.store(from, Ordering::Relaxed);
            last.store(clock, Ordering::Relaxed);
            time
        }
    }

    #[inline]
    fn ticks() -> u64 {
        // SAFETY: every processor of this architecture has it; `trusted` has seen that the process may use it.
        unsafe { _rdtsc() }
    }

    /// Ticks and the kernel's clock at the same time: of a few attempts the one that nothing interrupted.
    fn together() -> (u64, u64) {
        let attempts = (0..4).map(|_| {
            let (before, clock, after) = (ticks(), kernel(), ticks());
            (after.saturating_sub(before), before.midpoint(after), clock)
        });
        let (_, ticks, clock) = attempts.min().expect("there are four");
        (ticks, clock)
    }

    /// Whether the kernel uses the counter for its own clock, which it does only where all processors agree in it,
    /// and lets this process read it.
    fn trusted() -> bool {
        static TRUSTED: OnceLock<bool> = OnceLock::new();
        *TRUSTED.get_or_init(|| {
            let source = std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
            let mut access = 0;
            // SAFETY: `access` is written by the call.
            let asked = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut access) };
            source.is_ok_and(|name| name.trim_ascii() == b"tsc")
                && asked == 0
                && access == libc::PR_TSC_ENABLE
        })
    }
}
