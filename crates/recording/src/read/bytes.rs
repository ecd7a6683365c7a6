//! Numbers, texts and values out of the bytes of events.
//!
//! Not here: what an event is made of ([`super::thread`]).

use crate::layout::{CALL, EVENT_BYTES_MAX, TOOK_BYTES, tag};
use crate::value::Argument;
use crate::varint;

/// Bytes that are decoded.
pub(super) struct Bytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl Bytes<'_> {
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, String> {
        let byte = self.bytes.get(self.at).copied().ok_or("an event that is cut off")?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn bytes(&mut self) -> Result<&[u8], String> {
        let length = self.varint()?;
        let length = usize::try_from(length).ok().filter(|&length| length <= EVENT_BYTES_MAX);
        let length = length.ok_or("a text that is too long")?;
        let bytes = self.bytes.get(self.at..self.at + length).ok_or("an event that is cut off")?;
        self.at += length;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<Box<str>, String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(Box::from).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    pub(super) fn skip_value(&mut self) -> Result<(), String> {
        match self.byte()? {
            tag::NONE | tag::VARYING => {}
            tag::NUMBER | tag::SIGNED | tag::ADDRESS => {
                self.varint()?;
            }
            tag::TEXT | tag::BYTES => {
                self.bytes()?;
            }
            other => return Err(format!("a value of unknown kind {other}")),
        }
        Ok(())
    }

    /// A value; none if it is left open.
    pub(super) fn value(&mut self) -> Result<Option<Argument>, String> {
        Ok(Some(match self.byte()? {
            tag::VARYING => return Ok(None),
            tag::NONE => Argument::None,
            tag::NUMBER => Argument::Number(self.varint()?),
            tag::SIGNED => Argument::Signed(varint::to_signed(self.varint()?)),
            tag::ADDRESS => Argument::Address(self.varint()?),
            tag::TEXT => Argument::Text(self.text()?),
            tag::BYTES => Argument::Bytes(self.bytes()?.into()),
            other => return Err(format!("a value of unknown kind {other}")),
        }))
    }
}

/// The longest event that [`plain_event`] knows: a code, numbers of up to three bytes, and when the call returned.
const PLAIN_BYTES: usize = 1 + 3 + 3 + TOOK_BYTES;

/// An event of code [`CALL`]: its shape, the time that passed, how long it took, and its length.
#[inline]
pub(super) fn plain_event(event: &[u8; PLAIN_BYTES]) -> Option<(u64, u64, [u8; TOOK_BYTES], usize)> {
    let number = |at: usize| {
        let [low, middle, high] = [event[at], event[at + 1], event[at + 2]].map(u64::from);
        if low < 0x80 {
            Some((low, at + 1))
        } else if middle < 0x80 {
            Some((low & 0x7f | middle << 7, at + 2))
        } else {
            (high < 0x80).then_some((low & 0x7f | (middle & 0x7f) << 7 | high << 14, at + 3))
        }
    };
    if event[0] != CALL {
        return None;
    }
    let (shape, at) = number(1)?;
    let (passed, at) = number(at)?;
    let took = [event[at], event[at + 1], event[at + 2], event[at + 3]];
    Some((shape, passed, took, at + TOOK_BYTES))
}

/// When a call returned that was entered at this time, if its event says so.
#[inline]
pub(super) fn returned_at(time: u64, took: [u8; TOOK_BYTES]) -> Option<u64> {
    u32::from_le_bytes(took).checked_sub(1).map(|took| time.saturating_add(took.into()))
}
