//! What time it is: nanoseconds of the kernel's monotonic clock, mostly without asking for it.
//!
//! Where the kernel tells time by the processor's counter, this does so too, at less than half the price. From
//! counter to time leads a *line*. A line is used for a while; the next begins where it ends or later, with the
//! rate that the kernel's clock had meanwhile. All threads use the same one, so times of this process never run
//! backwards from one thread to another; from the kernel's clock they differ by a microsecond or so.
//!
//! Not here: when times of a recording begin.

/// Nanoseconds of a clock that nobody sets.
#[cfg(target_arch = "x86_64")]
pub(crate) use counter::{forked, now};
/// Nanoseconds of a clock that nobody sets.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn now() -> u64 {
    kernel()
}

/// This process is the child of a fork.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn forked() {}

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

/// Nanoseconds since 1970.
pub(crate) fn since_1970() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::_rdtsc;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use super::kernel;
    use crate::ffi::process::Errno;

    /// For how many ticks a line is used: a fraction of a second.
    const SPAN: u64 = 1 << 30;
    /// How many ticks tell the first rate to a millionth: some twenty milliseconds.
    const FIRST_SPAN: u64 = 1 << 26;
    /// Lines that are kept. Who reads one while so many others come, which takes seconds, reads again.
    const LINES: usize = 8;

    /// Time by ticks.
    #[derive(Clone, Copy)]
    struct Line {
        /// Ticks where it begins.
        from: u64,
        /// What the kernel's clock said there.
        kernel: u64,
        /// The time there: as `kernel`, or a little later.
        time: u64,
        /// Nanoseconds for 2³² ticks.
        rate: u64,
    }

    impl Line {
        #[inline]
        fn at(&self, since: u64) -> u64 {
            let passed = (u128::from(since) * u128::from(self.rate)) >> 32;
            self.time.wrapping_add(u64::try_from(passed).unwrap_or(0))
        }
    }

    static KEPT: [[AtomicU64; 4]; LINES] = [const { [const { AtomicU64::new(0) }; 4] }; LINES];
    /// How many lines there were. The place of the last one follows from it.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    /// Whether a thread makes the next line.
    static RENEWING: AtomicBool = AtomicBool::new(false);
    /// Ticks and the kernel's clock, from which the first line gets its rate. Zeros before.
    static FIRST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    #[inline]
    fn line(count: usize) -> Line {
        let [from, kernel, time, rate] = &KEPT[count % LINES];
        let get = |number: &AtomicU64| number.load(Ordering::Acquire);
        Line { from: get(from), kernel: get(kernel), time: get(time), rate: get(rate) }
    }

    #[inline]
    fn ticks() -> u64 {
        // SAFETY: every processor of this architecture has it; `trusted` has seen that the process may use it.
        unsafe { _rdtsc() }
    }

    #[inline]
    pub(crate) fn now() -> u64 {
        let count = COUNT.load(Ordering::Acquire);
        if count > 0 {
            let line = line(count);
            // The processor may have looked at its counter a little before it looked at the line.
            let since = ticks().saturating_sub(line.from);
            if since < SPAN && COUNT.load(Ordering::Acquire) == count {
                return line.at(since);
            }
        }
        renewed()
    }

    /// This process is the child of a fork; another thread of its parent may have been making a line.
    pub(crate) fn forked() {
        RENEWING.store(false, Ordering::Relaxed);
    }

    /// The time, and a new line for those who ask next, if it is due.
    #[cold]
    fn renewed() -> u64 {
        let _errno = Errno::kept();
        if !trusted() {
            return kernel();
        }
        let end = || match COUNT.load(Ordering::Acquire) {
            0 => 0,
            count => line(count).at(SPAN),
        };
        if RENEWING.swap(true, Ordering::Acquire) {
            // Another thread is at it, or this one is, and a signal came.
            return kernel().max(end());
        }
        let (from, clock) = together();
        let time = clock.max(end());
        let count = COUNT.load(Ordering::Relaxed);
        let (since, last) = match count {
            0 => (FIRST[0].load(Ordering::Relaxed), FIRST[1].load(Ordering::Relaxed)),
            count => (line(count).from, line(count).kernel),
        };
        let passed = from.saturating_sub(since);
        if count == 0 && last == 0 {
            FIRST[0].store(from, Ordering::Relaxed);
            FIRST[1].store(clock, Ordering::Relaxed);
        } else if passed >= if count == 0 { FIRST_SPAN } else { SPAN } {
            let rate = (u128::from(clock.saturating_sub(last)) << 32) / u128::from(passed);
            let new = [from, clock, time, u64::try_from(rate).unwrap_or(0)];
            for (place, value) in KEPT[(count + 1) % LINES].iter().zip(new) {
                place.store(value, Ordering::Relaxed);
            }
            COUNT.store(count + 1, Ordering::Release);
        }
        RENEWING.store(false, Ordering::Release);
        time
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
