//! Flags of a program: words of the host that every rank maps.
//!
//! Not here: which word a flag is (the coordinator says), what is done to it ([`crate::flag`]).

use std::sync::Arc;

use rankcheck_model::{FlagOp, Token};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::thread::{Halt, ProgramThread};
use crate::ffi::cuda::Completion;
use crate::flag::{HostWords, Tried};

impl Execute for FlagOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Self { flag, act, stream } = self;
        let (words, nth) = thread.word(*flag)?;
        match stream {
            Some(stream) => {
                thread.launch(text, *stream, |thread, on| words.launch(&thread.device, nth, *act, on))?;
            }
            None => thread.inside(text, WaitsFor::Hosts, |thread| {
                thread.poll_until(|| {
                    Ok(match words.attempt(nth, *act) {
                        Tried::Done => Completion::Complete,
                        Tried::NotYet => Completion::Pending,
                    })
                })
            })?,
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    /// The words of the case, and which of them a flag is.
    fn word(&self, flag: Token) -> Result<(Arc<HostWords>, u32), Halt> {
        let word = self.run.host.word(&self.run.source.token(flag))?;
        let mut tables = self.run.tables();
        if let Some(words) = &tables.host_words {
            return Ok((Arc::clone(words), word.nth));
        }
        let words = Arc::new(HostWords::open(&word.file)?);
        tables.host_words = Some(Arc::clone(&words));
        Ok((words, word.nth))
    }
}
