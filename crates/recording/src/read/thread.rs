//! The events of one host thread, decoded one after another.
//!
//! Not here: which thread is next ([`super::ProcessFile`]), and where its bytes come from.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bytes::{Bytes, plain_event, returned_at};
use super::shapes::{Dictionary, Numbered, OPEN};
use super::{CallEvent, PlainCall, Shape, ShapeId};
use crate::layout::{
    CALL, END, ENTER, Extent, FORGET, LOST, RETURN, RETURN_VALUES, SHAPE, SIGNATURE, TOOK_BYTES,
};
use crate::value::Argument;

/// How far a thread is read.
pub(super) struct ThreadReader {
    pub(super) number: u32,
    pub(super) extents: std::vec::IntoIter<(u64, Extent)>,
    pub(super) bytes: Vec<u8>,
    /// Of the extent in the file.
    pub(super) offset: u64,
    pub(super) at: usize,
    pub(super) sealed: bool,
    /// Whether its end is still to be told in [`ProcessFile::cuts`].
    pub(super) cut: bool,
    pub(super) time: u64,
    signatures: Vec<ReadSignature>,
    shapes: Numbered,
    /// What calls returned, as it is written, since the numbers of signatures began.
    returned: FxHashMap<Box<[u8]>, ShapeId>,
    /// When the call returned that the event before entered, if it says so.
    pub(super) returns: Option<u64>,
    pub(super) next: Option<CallEvent>,
    /// When the event in `next` happened, in nanoseconds since the process began; if there is none, when the next extent begins.
    pub(super) next_time: u64,
}

/// The name of a call and of its arguments, and whether it was only noted.
struct ReadSignature {
    name: Arc<str>,
    keys: Arc<[Box<str>]>,
    instant: bool,
}

/// How many different results of a thread are known as they are written. More are decoded each time.
const RETURNED_MAX: usize = 1 << 16;

impl ThreadReader {
    /// Before the first of these extents.
    pub(super) fn new(number: u32, extents: Vec<(u64, Extent)>) -> Self {
        let mut thread = Self {
            number,
            extents: extents.into_iter(),
            bytes: Vec::new(),
            offset: 0,
            at: 0,
            sealed: true,
            cut: false,
            time: 0,
            signatures: Vec::new(),
            shapes: Numbered::default(),
            returned: FxHashMap::default(),
            returns: None,
            next: None,
            next_time: 0,
        };
        thread.awaits_extent();
        thread
    }

    /// Its next event is in the next extent.
    pub(super) fn awaits_extent(&mut self) {
        self.next_time = self.extents.as_slice().first().map_or(0, |(_, extent)| extent.time);
    }

    /// Whether it has a next event, or an extent that was not read yet.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.next.is_some() || !self.extents.as_slice().is_empty()
    }

    /// Takes the return that the event before told, or decodes the next event if it is of a kind that nearly all
    /// are: a call of a known shape is entered, or returns nothing, and the numbers are short. Else it leaves everything as it is.
    #[inline]
    pub(super) fn frequent(&mut self) -> bool {
        if let Some(time) = self.returns.take() {
            self.time = time;
            self.next_time = time;
            self.next = Some(CallEvent::Return { time, thread: self.number, values: None });
            return true;
        }
        // A number of one or two bytes, and the position behind it.
        let number = |at: usize| match self.bytes.get(at..at + 2) {
            Some(&[low, _]) if low < 0x80 => Some((u64::from(low), at + 1)),
            Some(&[low, high]) if high < 0x80 => Some((u64::from(low & 0x7f) | u64::from(high) << 7, at + 2)),
            _ => None,
        };
        let Some((code, at)) = number(self.at) else { return false };
        let (shape, at) = if code == u64::from(CALL) {
            let Some((shape, at)) = number(at) else { return false };
            (Some(shape), at)
        } else {
            (code.checked_sub(ENTER), at)
        };
        let Some((passed, mut at)) = number(at) else { return false };
        let time = self.time.saturating_add(passed);
        let event = if code == u64::from(RETURN) {
            CallEvent::Return { time, thread: self.number, values: None }
        } else if let Some((shape, mut call)) = shape.and_then(|shape| Some((shape, self.shapes.get(shape)?)))
        {
            let mut returns = None;
            if code == u64::from(CALL) {
                let Some(took) = self.bytes.get(at..).and_then(<[u8]>::first_chunk) else { return false };
                returns = returned_at(time, *took);
                at += TOOK_BYTES;
            }
            if call == OPEN {
                let Some((closed, end)) = self.closed_at(shape, at) else { return false };
                (call, at) = (closed, end);
            }
            self.returns = returns;
            CallEvent::Enter { time, thread: self.number, call }
        } else {
            return false;
        };
        self.time = time;
        self.next_time = time;
        self.next = Some(event);
        self.at = at;
        true
    }

    /// Goes over calls that say in their own event when they returned, as [`ProcessFile::plain_calls`] says. What this
    /// does not know, such as what stands at the end of an extent, it leaves.
    #[inline]
    pub(super) fn plain(
        &mut self,
        before: u64,
        at_most: u64,
        mut take: impl FnMut(PlainCall) -> bool,
    ) -> u64 {
        let mut taken = 0;
        while taken < at_most {
            let Some(event) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) else { break };
            let Some((shape, passed, took, mut length)) = plain_event(event) else { break };
            let Some(mut call) = self.shapes.get(shape) else { break };
            if call == OPEN {
                let Some((closed, end)) = self.closed_at(shape, self.at + length) else { break };
                (call, length) = (closed, end - self.at);
            }
            let time = self.time.saturating_add(passed);
            let Some(returned) = returned_at(time, took).filter(|&returned| returned < before) else { break };
            if !take(PlainCall { time, thread: self.number, call }) {
                break;
            }
            self.time = returned;
            self.at += length;
            taken += 1;
        }
        taken
    }

    /// The shape of this number with the address that is told here, if it came before, and the position behind it.
    #[inline]
    fn closed_at(&self, shape: u64, at: usize) -> Option<(ShapeId, usize)> {
        let mut bytes = Bytes { bytes: &self.bytes, at };
        Some((self.shapes.called_again(shape, &mut bytes)?, bytes.at))
    }

    /// The next event; `None` after something that is none. Errors are words.
    pub(super) fn decode(&mut self, dictionary: &mut Dictionary) -> Result<Option<CallEvent>, String> {
        let mut bytes = Bytes { bytes: &self.bytes, at: self.at };
        let thread = self.number;
        let code = bytes.varint()?;
        let event = match u8::try_from(code).unwrap_or(u8::MAX) {
            _ if code >= ENTER => {
                let passed = bytes.varint()?;
                let call = self.shapes.called(code - ENTER, &mut bytes, dictionary)?;
                self.time = self.time.saturating_add(passed);
                Some(CallEvent::Enter { time: self.time, thread, call })
            }
            CALL => {
                let call = bytes.varint()?;
                let passed = bytes.varint()?;
                let took = [bytes.byte()?, bytes.byte()?, bytes.byte()?, bytes.byte()?];
                let call = self.shapes.called(call, &mut bytes, dictionary)?;
                self.time = self.time.saturating_add(passed);
                self.returns = returned_at(self.time, took);
                Some(CallEvent::Enter { time: self.time, thread, call })
            }
            END => {
                // In a sealed extent every byte is used.
                if self.sealed {
                    return Err("an end inside an extent".to_owned());
                }
                None
            }
            SIGNATURE => {
                let instant = match bytes.byte()? {
                    0 => false,
                    1 => true,
                    other => return Err(format!("{other} where 0 or 1 was due")),
                };
                let name = bytes.text()?;
                let count = bytes.varint()?;
                if count > 64 {
                    return Err(format!("a call with {count} arguments"));
                }
                let keys = (0..count).map(|_| bytes.text()).collect::<Result<_, _>>()?;
                self.signatures.push(ReadSignature { name: name.into(), keys, instant });
                None
            }
            SHAPE => {
                let (shape, open) = self.shape(&mut bytes)?;
                self.shapes.push(shape, open, dictionary)?;
                None
            }
            RETURN => {
                self.time = self.time.saturating_add(bytes.varint()?);
                Some(CallEvent::Return { time: self.time, thread, values: None })
            }
            RETURN_VALUES => {
                let passed = bytes.varint()?;
                let begin = bytes.at;
                self.skip(&mut bytes)?;
                let written = &bytes.bytes[begin..bytes.at];
                let values = match self.returned.get(written) {
                    Some(&values) => values,
                    None => {
                        let (values, open) = self.shape(&mut Bytes { bytes: written, at: 0 })?;
                        if open.is_some() {
                            return Err("a return that leaves an address open".to_owned());
                        }
                        let values = dictionary.intern(values);
                        if self.returned.len() < RETURNED_MAX {
                            self.returned.insert(written.into(), values);
                        }
                        values
                    }
                };
                self.time = self.time.saturating_add(passed);
                Some(CallEvent::Return { time: self.time, thread, values: Some(values) })
            }
            FORGET => {
                self.signatures.clear();
                self.shapes = Numbered::default();
                self.returned.clear();
                None
            }
            LOST => Some(CallEvent::Lost { thread, events: bytes.varint()? }),
            other => return Err(format!("an event of unknown kind {other}")),
        };
        self.at = bytes.at;
        Ok(event)
    }

    fn signature(&self, bytes: &mut Bytes<'_>) -> Result<&ReadSignature, String> {
        let number = bytes.varint()?;
        let known = usize::try_from(number).ok().and_then(|number| self.signatures.get(number));
        known.ok_or_else(|| format!("signature {number}, which was not defined"))
    }

    /// A shape, and which of its values it leaves open.
    fn shape(&self, bytes: &mut Bytes<'_>) -> Result<(Shape, Option<usize>), String> {
        let signature = self.signature(bytes)?;
        let mut open = None;
        let mut values = Vec::with_capacity(signature.keys.len());
        for at in 0..signature.keys.len() {
            let value = bytes.value()?;
            if value.is_none() && open.replace(at).is_some() {
                return Err("a call that leaves two addresses open".to_owned());
            }
            values.push(value.unwrap_or(Argument::None));
        }
        let shape = Shape {
            name: Arc::clone(&signature.name),
            keys: Arc::clone(&signature.keys),
            values: values.into(),
            instant: signature.instant,
        };
        Ok((shape, open))
    }

    /// Over a signature's number and its values.
    fn skip(&self, bytes: &mut Bytes<'_>) -> Result<(), String> {
        let signature = self.signature(bytes)?;
        signature.keys.iter().try_for_each(|_| bytes.skip_value())
    }
}
