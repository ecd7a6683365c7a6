//! What was folded away, by the numbers of the recording; and the events of a process without it.
//!
//! Not here: what is folded ([`super::fold`]).

use std::ops::Range;

use rankcheck_recording::{CallEvent, ProcessFile, ReadError, ShapeId};

use super::device_share::{DeviceShare, ShareFilter};

/// Which calls of a process were folded away, and need not be looked at again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Numbers of calls and notes: counted from 0 in the order of the recording, polls included.
    calls: Vec<Range<u64>>,
    /// Numbers of what was noted later, counted from 0 in the order in which it happened.
    noted: Vec<Range<u64>>,
}

impl Gaps {
    /// Ranges in their order, one of each for each gap. Of the one or the other a gap may have none.
    pub(super) fn new(mut calls: Vec<Range<u64>>, mut noted: Vec<Range<u64>>) -> Self {
        calls.retain(|range| !range.is_empty());
        noted.retain(|range| !range.is_empty());
        Self { calls, noted }
    }

    /// Whether a note that says when it happened (`at`) was folded away. These are counted from 0 in the order
    /// of what they say.
    #[must_use]
    pub fn has_noted(&self, number: u64) -> bool {
        let after = self.noted.partition_point(|range| range.start <= number);
        self.noted[..after].last().is_some_and(|range| number < range.end)
    }
}

/// The events of a process outside its gaps.
///
/// What was entered in a gap does not show, nor does its return. What another thread entered before a gap
/// returns where it did.
#[derive(Debug)]
pub struct Outside<'a> {
    gaps: std::slice::Iter<'a, Range<u64>>,
    gap: Range<u64>,
    number: u64,
    folded: u64,
    /// Which calls are this device's.
    filter: ShareFilter<'a>,
    /// Whether all calls of the process are.
    whole: bool,
    /// By call: how often it was passed over since somebody asked.
    passed_over: Vec<u64>,
    /// By thread: calls that were entered in the gap and have not returned.
    inside: Vec<(u32, u32)>,
}

impl<'a> Outside<'a> {
    /// From the beginning of a process.
    #[must_use]
    pub(super) fn new(gaps: &'a Gaps, share: Option<&'a DeviceShare>) -> Self {
        let (filter, whole) = (ShareFilter::new(share), share.is_none());
        let mut gaps = gaps.calls.iter();
        let gap = gaps.next().cloned().unwrap_or(u64::MAX..u64::MAX);
        Self { gaps, gap, filter, whole, number: 0, folded: 0, passed_over: Vec::new(), inside: Vec::new() }
    }

    /// The next event, and how many calls and notes were entered before it: the number of a call.
    ///
    /// # Errors
    ///
    /// If the file is damaged there.
    pub fn next(&mut self, process: &mut ProcessFile) -> Result<Option<(u64, CallEvent)>, ReadError> {
        loop {
            if self.whole && self.number >= self.gap.start {
                let left = self.gap.end - self.number;
                let passed_over = process.plain_calls(left, |plain| {
                    count(&mut self.passed_over, plain.call);
                    true
                })?;
                self.folded += passed_over;
                self.pass_over(passed_over);
            }
            let Some(event) = process.next_event()? else { return Ok(None) };
            let mine = self.filter.passes(self.number, &event, process);
            match event {
                CallEvent::Enter { thread, call, .. } => {
                    let number = self.number;
                    if number < self.gap.start {
                        self.number += 1;
                        if mine {
                            return Ok(Some((number, event)));
                        }
                        continue;
                    }
                    self.pass_over(1);
                    let instant = process.shape(call).instant;
                    if mine {
                        count(&mut self.passed_over, call);
                        self.folded += u64::from(!instant);
                    }
                    if !instant {
                        *self.inside(thread) += 1;
                    }
                }
                CallEvent::Return { thread, .. } => {
                    let inside = self.inside(thread);
                    if *inside > 0 {
                        *inside -= 1;
                    } else if mine {
                        return Ok(Some((self.number, event)));
                    }
                }
                CallEvent::Lost { .. } if mine => return Ok(Some((self.number, event))),
                CallEvent::Lost { .. } => {}
            }
        }
    }

    /// So many calls and notes of the gap.
    fn pass_over(&mut self, calls: u64) {
        self.number += calls;
        if self.number >= self.gap.end {
            self.gap = self.gaps.next().cloned().unwrap_or(u64::MAX..u64::MAX);
        }
    }

    /// How often each call was passed over since this was asked last.
    pub fn take_passed_over(&mut self) -> Vec<(ShapeId, u64)> {
        let counts = std::mem::take(&mut self.passed_over);
        (0..).map(ShapeId).zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// How many calls were passed over.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    fn inside(&mut self, thread: u32) -> &mut u32 {
        let known = self.inside.iter().position(|&(other, _)| other == thread);
        let at = known.unwrap_or_else(|| {
            self.inside.push((thread, 0));
            self.inside.len() - 1
        });
        &mut self.inside[at].1
    }
}

/// One more call of a shape.
#[inline]
fn count(counts: &mut Vec<u64>, call: ShapeId) {
    let at = call.0 as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += 1;
}
