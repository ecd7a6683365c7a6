//! Flags: words of 32 bits that processes of one host share, worked on by host threads and by streams.
//!
//! A waiter sees the value that is there when it looks. On a stream a swap is a wait and then a write, which is
//! the same where only one waits for the value. Not here: which flag is which word ([`crate::job`]).

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use rankcheck_model::{FlagAct, Test};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::host_words::{Registered, SharedPage};
use crate::stream::CudaStream;

/// Bytes of a page of words.
const PAGE_BYTES: usize = 4096;

/// Where a flag lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordPosition {
    /// The file that all processes of the case map.
    pub file: PathBuf,
    /// The word in it.
    pub nth: u32,
}

/// What a try to work on a flag came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// The act took effect: the word was written, or had the awaited value.
    Done,
    /// The word has another value.
    NotYet,
}

/// The words of a case, all 0 at first.
#[derive(Debug)]
pub struct HostWords {
    registered: Mutex<Option<Registered>>,
    shared: SharedPage,
}

impl HostWords {
    /// Maps the file.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        Ok(Self { registered: Mutex::default(), shared: SharedPage::open(file, PAGE_BYTES)? })
    }

    /// Works on a word, if it has a value that allows it.
    #[must_use]
    pub fn attempt(&self, nth: u32, act: FlagAct) -> Tried {
        let word = self.shared.word(nth as usize);
        let bits = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        let done = match act {
            FlagAct::Write(value) => {
                word.store(bits(value), Ordering::SeqCst);
                true
            }
            FlagAct::Wait(..) => act.possible(word.load(Ordering::SeqCst).into()),
            FlagAct::Swap { from, to } => {
                word.compare_exchange(bits(from), bits(to), Ordering::SeqCst, Ordering::SeqCst).is_ok()
            }
        };
        if done { Tried::Done } else { Tried::NotYet }
    }

    /// Enqueues the act on a stream (`cuStreamWriteValue32`, `cuStreamWaitValue32`).
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn launch(&self, device: &Device, nth: u32, act: FlagAct, stream: &CudaStream) -> Result<(), Error> {
        let address = self.address(device)? + u64::from(nth) * 4;
        let bits = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        match act {
            FlagAct::Write(value) => stream.owner.write_word(address, bits(value)),
            FlagAct::Wait(test, value) => stream.owner.wait_word(address, test, bits(value)),
            FlagAct::Swap { from, to } => {
                stream.owner.wait_word(address, Test::Equal, bits(from))?;
                stream.owner.write_word(address, bits(to))
            }
        }
    }

    /// Where streams find the words; the driver learns of them at the first use.
    fn address(&self, device: &Device) -> Result<u64, Error> {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*registered {
            return Ok(known.address());
        }
        let new = Registered::register(device, &self.shared)?;
        Ok(registered.insert(new).address())
    }

    /// Gives the page back. No stream may work on it any more.
    ///
    /// # Errors
    /// [`Error::Cuda`] or [`Error::File`].
    pub fn end(self) -> Result<(), Error> {
        let registered = self.registered.into_inner().unwrap_or_else(PoisonError::into_inner);
        registered.map_or(Ok(()), Registered::end)?;
        self.shared.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_word() {
        let file = std::env::temp_dir().join(format!("rankcheck-flag-{}", std::process::id()));
        let (mine, yours) = (HostWords::open(&file), HostWords::open(&file));
        std::fs::remove_file(&file).expect("it was made above");
        let (mine, yours) = (mine.expect("a page"), yours.expect("the same page"));
        assert_eq!(yours.attempt(3, FlagAct::Wait(Test::Equal, 1)), Tried::NotYet);
        assert_eq!(mine.attempt(3, FlagAct::Write(1)), Tried::Done);
        assert_eq!(yours.attempt(3, FlagAct::Wait(Test::AtLeast, 1)), Tried::Done);
        assert_eq!(yours.attempt(3, FlagAct::Swap { from: 0, to: 2 }), Tried::NotYet);
        assert_eq!(yours.attempt(3, FlagAct::Swap { from: 1, to: 2 }), Tried::Done);
        assert_eq!(mine.attempt(3, FlagAct::Wait(Test::Equal, 2)), Tried::Done);
        assert_eq!(mine.end().and(yours.end()), Ok(()));
    }
}
