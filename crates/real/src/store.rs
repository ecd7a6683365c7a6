//! A store of keys and values between the threads of one process.
//!
//! Keys have no generation, as in the stores that real runtimes use. Not here: a store between processes.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    entries: Mutex<BTreeMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, replacing what was there.
    pub fn set(&self, key: &str, value: Vec<u8>) {
        self.lock().insert(key.to_owned(), value);
        self.changed.notify_all();
    }

    /// Waits until the key is there; its value at that time.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when it does not come within `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        let wait =
            self.changed.wait_timeout_while(self.lock(), timeout, |entries| !entries.contains_key(key));
        let (entries, _) = wait.unwrap_or_else(PoisonError::into_inner);
        let value = entries.get(key).cloned();
        value.ok_or_else(|| Error::TimedOut { what: format!("key {key:?}"), after: timeout })
    }

    /// Deletes a key; whether it was there.
    pub fn delete(&self, key: &str) -> bool {
        self.lock().remove(key).is_some()
    }

    /// Every change is one call of the map, so a thread that panicked left the map whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_waits_for_set() {
        let store = Store::new();
        std::thread::scope(|scope| {
            let getter = scope.spawn(|| store.get("handle", Duration::from_secs(60)));
            store.set("handle", vec![7]);
            assert_eq!(getter.join().expect("the getter does not panic"), Ok(vec![7]));
        });
    }

    #[test]
    fn a_deleted_key_does_not_come() {
        let store = Store::new();
        store.set("handle", vec![7]);
        assert!(store.delete("handle"));
        assert!(!store.delete("handle"));
        assert!(matches!(store.get("handle", Duration::ZERO), Err(Error::TimedOut { .. })));
    }
}
