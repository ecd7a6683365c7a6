//! Flags of a program: words of the host that every rank maps.
//!
//! Not here: which word a flag is (the coordinator says), what is done to it ([`crate::flag`]).

use std::sync::Arc;

use rankcheck_model::{FlagAct, Op, Token};

use super::inspect::WaitsFor;
use super::thread::{Stop, Thread};
use crate::ffi::cuda::Progress;
use crate::flag::{Tried, Words};

impl Thread<'_, '_> {
    /// The words of the case, and which of them a flag is.
    fn word(&self, flag: Token) -> Result<(Arc<Words>, u32), Stop> {
        let place = self.run.host.word(&self.run.source.token(flag))?;
        let mut tables = self.run.tables();
        if let Some(words) = &tables.words {
            return Ok((Arc::clone(words), place.nth));
        }
        let words = Arc::new(Words::open(&place.file)?);
        tables.words = Some(Arc::clone(&words));
        Ok((words, place.nth))
    }

    pub(crate) fn flag(
        &mut self,
        verb: &Op,
        flag: Token,
        act: FlagAct,
        stream: Option<Token>,
    ) -> Result<(), Stop> {
        let text = self.words(verb);
        let (words, nth) = self.word(flag)?;
        let Some(stream) = stream else {
            return self.inside(&text, WaitsFor::Hosts, |thread| {
                thread.poll_until(|| {
                    Ok(match words.attempt(nth, act) {
                        Tried::Done => Progress::Complete,
                        Tried::NotYet => Progress::Pending,
                    })
                })
            });
        };
        let (at, stream) = self.stream(stream)?;
        let result =
            self.inside(&text, WaitsFor::Hosts, |thread| words.launch(&thread.device, nth, act, &stream));
        if self.noted(&text, result)?.is_some() {
            self.launched(at, self.at().index)?;
        }
        Ok(())
    }
}
