//! A flag: one word between the threads of one process. A waiter sees the value that is there when it looks.
//!
//! Not here: flags in device memory, which streams write and await.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;

/// The flag, 0 at first.
#[derive(Debug, Default)]
pub struct Flag {
    word: Mutex<i64>,
    changed: Condvar,
}

impl Flag {
    /// A flag of value 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the word.
    pub fn write(&self, value: i64) {
        *self.lock() = value;
        self.changed.notify_all();
    }

    /// Waits until the word equals `value`. A value that was overwritten before this thread looked is lost.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when it does not come within `timeout`.
    pub fn wait(&self, value: i64, timeout: Duration) -> Result<(), Error> {
        let wait = self.changed.wait_timeout_while(self.lock(), timeout, |word| *word != value);
        let (word, _) = wait.unwrap_or_else(PoisonError::into_inner);
        let missed = || Error::TimedOut { what: format!("value {value} of the flag"), after: timeout };
        if *word == value { Ok(()) } else { Err(missed()) }
    }

    /// A word is never half written, so a thread that panicked left it whole.
    fn lock(&self) -> MutexGuard<'_, i64> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_sees_a_write() {
        let flag = Flag::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flag.wait(1, Duration::from_secs(60)));
            flag.write(1);
            assert_eq!(waiter.join().expect("the waiter does not panic"), Ok(()));
        });
    }

    #[test]
    fn an_overwritten_value_is_lost() {
        let flag = Flag::new();
        flag.write(1);
        flag.write(0);
        assert!(matches!(flag.wait(1, Duration::ZERO), Err(Error::TimedOut { .. })));
    }
}
