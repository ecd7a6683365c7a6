//! Writes the events of one host thread into extents.
//!
//! Not here: where extents come from ([`Space`]), and what time it is.

use std::num::NonZeroUsize;
use std::sync::atomic::{Ordering, compiler_fence};

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher as _;

use crate::layout::{
    CALL, ENTER, EVENT_BYTES_MAX, EXTENT_HEADER_BYTES, Extent, FORGET, LOST, RETURN, RETURN_VALUES, SHAPE,
    SIGNATURE, TOOK_BYTES, tag,
};
use crate::value::{Field, Signature};
use crate::varint;

/// Where extents come from.
pub trait Space {
    /// Goes on to the next extent: zeroed, longer than its header. Returns whether there is one; if not, the
    /// extent before it stays the current one.
    fn advance(&mut self) -> bool;

    /// The extent, header included. Not called before [`Space::advance`] has returned true.
    fn extent(&mut self) -> &mut [u8];
}

/// How many shapes a thread's dictionary holds before it starts again.
const SHAPES_MAX: usize = 1 << 16;

/// What each extent keeps free, so that it can end with the number of events that found no room.
const RESERVE: usize = 32;

/// A call with its arguments, in one number. Two are taken for one if they agree in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallContent(u64);

impl CallContent {
    /// Of a signature, which its address identifies, and a value for each of its keys.
    #[must_use]
    #[inline(always)]
    pub fn of(signature: &Signature, fields: &[Field<'_>]) -> Self {
        debug_assert_eq!(signature.keys.len(), fields.len(), "{} has a value for each key", signature.name);
        let (name, keys) = addresses(signature);
        let mut content = mixed(name as u64, keys as u64, 0);
        // Pairs are mixed apart, so that a processor does them side by side.
        for (nth, pair) in (1..).zip(fields.chunks(2)) {
            content ^= mixed(number(pair[0]), pair.get(1).copied().map_or(0, number), nth);
        }
        Self(content)
    }

    /// The same call, made at the call site of this number.
    #[must_use]
    #[inline]
    pub fn at(self, site: u32) -> Self {
        Self(mixed(self.0, site.into(), 0))
    }

    /// Returns the slot of this content among the [`Recent::MANY`] that are remembered.
    #[inline]
    fn slot(self) -> usize {
        // Bits from the middle depend on most of the content.
        (self.0 >> 24) as usize % Recent::MANY
    }
}

/// Two numbers in one that depends on every bit of them, and on their position.
#[inline(always)]
fn mixed(one: u64, other: u64, position: u64) -> u64 {
    // Halves of digits of pi, which have no pattern.
    let one = one ^ 0x243f_6a88_85a3_08d3_u64.wrapping_mul(2 * position + 1);
    let other = other ^ 0x1319_8a2e_0370_7344_u64.wrapping_add(position).wrapping_mul(2 * position + 1);
    let product = u128::from(one) * u128::from(other);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let halves = (product as u64, (product >> 64) as u64);
    halves.0 ^ halves.1
}

/// A value and its kind as a number.
#[inline(always)]
fn number(field: Field<'_>) -> u64 {
    // Kinds are kept apart where numbers seldom have bits.
    match field {
        Field::None => 1 << 56,
        Field::Number(number) => number ^ 2 << 56,
        Field::Signed(number) => number.cast_unsigned() ^ 3 << 56,
        Field::Address(address) => address ^ 4 << 56,
        // Calls are the same but for this.
        Field::Varying(_) => 7 << 56,
        Field::Text(text) => hashed(text.as_bytes()) ^ 5 << 56,
        Field::Bytes(bytes) => hashed(bytes) ^ 6 << 56,
    }
}

fn hashed(bytes: &[u8]) -> u64 {
    FxBuildHasher.hash_one(bytes)
}

fn addresses(signature: &Signature) -> (usize, usize) {
    (signature.name.as_ptr().addr(), signature.keys.as_ptr().addr())
}

/// How it becomes known that a call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// [`EventWriter::leave`] or [`EventWriter::leave_with`] follows.
    Later,
    /// It waits for nobody and succeeds, so it is written as over when it is entered. If it was not,
    /// [`EventWriter::leave_after_all`] follows at once.
    AtOnce,
}

/// A shape that was written lately.
#[derive(Debug, Clone, Copy)]
struct Recent {
    content: CallContent,
    /// Its number, from 1; 0 for none.
    nth: u32,
}

impl Recent {
    const NONE: Self = Self { content: CallContent(0), nth: 0 };
    /// How many are remembered: one for each slot that a content has. Libraries take turns with a thousand events.
    const MANY: usize = 4096;
}

/// What becomes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    /// There is no extent yet.
    Fresh,
    /// The space has an extent that is not sealed.
    Open,
    /// Nothing more is written.
    Ended,
}

/// Writes the events of one host thread.
///
/// What each call needs stands together: programs leave nothing of it in the nearer caches.
#[repr(C)]
pub struct EventWriter<S: Space> {
    space: S,
    /// The offset of the next event in the extent, in bytes.
    at: usize,
    time: u64,
    /// Where the last event says when its call returned, if that is to come.
    took: Option<NonZeroUsize>,
    /// Where the last event says that its call is over, if that is to come.
    over: Option<NonZeroUsize>,
    recent: Box<[Recent]>,
    state: WriterState,
    thread: u32,
    sequence: u32,
    /// When times of the recording begin.
    began: u64,
    first_time: u64,
    lost: u64,
    signatures: FxHashMap<(usize, usize), u32>,
    /// [`CallContent`] of shapes, and their numbers.
    shapes: FxHashMap<u64, u32>,
    scratch: Vec<u8>,
}

impl<S: Space> EventWriter<S> {
    /// A writer for a thread that has written nothing. Times are nanoseconds of a clock that nobody sets, and are
    /// written since `began`.
    pub fn new(space: S, thread: u32, began: u64) -> Self {
        Self {
            space,
            at: 0,
            time: began,
            took: None,
            over: None,
            recent: vec![Recent::NONE; Recent::MANY].into(),
            state: WriterState::Fresh,
            thread,
            sequence: 0,
            began,
            first_time: 0,
            lost: 0,
            signatures: FxHashMap::default(),
            shapes: FxHashMap::default(),
            scratch: Vec::with_capacity(512),
        }
    }

    /// A call was entered, or something was noted. Other events may come before its return.
    pub fn enter(&mut self, time: u64, signature: &Signature, fields: &[Field<'_>]) {
        self.enter_known(time, CallContent::of(signature, fields), signature, fields);
    }

    /// As [`EventWriter::enter`], where the content is known.
    pub fn enter_known(
        &mut self,
        time: u64,
        content: CallContent,
        signature: &Signature,
        fields: &[Field<'_>],
    ) {
        if let Some(number) = self.number(content, signature, fields) {
            self.timed(time, |event, passed| {
                event.varint(ENTER + u64::from(number));
                event.varint(passed);
                if let Some(varying) = Field::varying(fields) {
                    event.varint(varying);
                }
            });
        }
    }

    /// A call was entered. Its return is most probably the next event, and is then written within this one.
    pub fn call(&mut self, time: u64, signature: &Signature, fields: &[Field<'_>]) {
        self.call_known(time, CallContent::of(signature, fields), signature, fields, Returns::Later);
    }

    /// As [`EventWriter::call`], where the content is known.
    pub fn call_known(
        &mut self,
        time: u64,
        content: CallContent,
        signature: &Signature,
        fields: &[Field<'_>],
        returns: Returns,
    ) {
        if let Some(number) = self.number(content, signature, fields) {
            if self.room(Short::BYTES, time) {
                self.write_call(time, number, Field::varying(fields), returns);
            } else {
                self.lost += 1;
            }
        }
    }

    /// As [`EventWriter::call_known`], if the call was made lately and there is room; nothing else is touched for it.
    /// Returns whether that was so.
    #[inline]
    pub fn call_again(
        &mut self,
        time: u64,
        content: CallContent,
        varying: Option<u64>,
        returns: Returns,
    ) -> bool {
        let recent = self.recent[content.slot()];
        let again = recent.content == content && recent.nth > 0 && self.fits(Short::BYTES);
        if again {
            self.write_call(time, recent.nth - 1, varying, returns);
        }
        again
    }

    #[inline]
    fn write_call(&mut self, time: u64, number: u32, varying: Option<u64>, returns: Returns) {
        (self.took, self.over) = (None, None);
        let passed = time.saturating_sub(self.time);
        if passed.max(varying.unwrap_or(0)) > LONG_MAX {
            // Decades, or no address: the numbers below would overflow.
            return self.lost += 1;
        }
        let ((number, number_bits), (passed_told, passed_bits)) = (long(number.into()), long(passed));
        let head_bits = 8 + number_bits + passed_bits;
        let all_bits = head_bits + 8 * TOOK_BYTES as u32;
        let (varying, varying_bits) = varying.map_or((0, 0), long);
        // Where it does not fit, its end is beyond.
        let event = u128::from(CALL)
            | u128::from(number) << 8
            | u128::from(passed_told) << (8 + number_bits)
            | u128::from(returns == Returns::AtOnce) << head_bits
            | u128::from(varying).checked_shl(all_bits).unwrap_or(0);
        let beyond = u128::from(varying) >> (u128::BITS - all_bits);
        let took = self.at + head_bits as usize / 8;
        let end = self.at + (all_bits + varying_bits) as usize / 8;
        let Some(to) = self.space.extent().get_mut(self.at..self.at + Short::BYTES) else { return };
        let (first, rest) = to.split_at_mut(8);
        let bytes = event.to_le_bytes();
        rest[..8].copy_from_slice(&bytes[8..]);
        rest[8..].copy_from_slice(&beyond.to_le_bytes());
        compiler_fence(Ordering::Release);
        first.copy_from_slice(&bytes[..8]);
        self.at = end;
        self.time += passed;
        match returns {
            Returns::Later => self.took = NonZeroUsize::new(took),
            Returns::AtOnce => self.over = NonZeroUsize::new(took),
        }
    }

    /// The innermost open call returned, with nothing that is not known from its arguments.
    #[inline]
    pub fn leave(&mut self, time: u64) {
        let took = time.saturating_sub(self.time);
        if let Some(at) = self.took.take()
            && let Ok(told) = u32::try_from(took + 1)
            && let Some(to) = self.space.extent().get_mut(at.get()..at.get() + TOOK_BYTES)
        {
            to.copy_from_slice(&told.to_le_bytes());
            self.time += took;
            return;
        }
        self.leave_apart(time);
    }

    #[cold]
    fn leave_apart(&mut self, time: u64) {
        self.timed(time, |event, passed| {
            event.byte(RETURN);
            event.varint(passed);
        });
    }

    /// The innermost open call returned these values.
    pub fn leave_with(&mut self, time: u64, signature: &Signature, fields: &[Field<'_>]) {
        let Some(number) = self.signature(signature) else { return };
        if let [field] = fields
            && let Some((tag, value)) = short(*field)
        {
            self.timed(time, |event, passed| {
                event.byte(RETURN_VALUES);
                event.varint(passed);
                event.varint(u64::from(number));
                event.byte(tag);
                event.varint(value);
            });
            return;
        }
        self.scratch.clear();
        self.scratch.push(RETURN_VALUES);
        varint::put(&mut self.scratch, time.saturating_sub(self.time));
        varint::put(&mut self.scratch, u64::from(number));
        for field in fields {
            encode(&mut self.scratch, *field);
        }
        if self.put() {
            self.time = time.max(self.time);
        }
    }

    /// The call that was entered last was written as over, and returned these values.
    pub fn leave_after_all(&mut self, time: u64, signature: &Signature, fields: &[Field<'_>]) {
        // If there was no room for the call, there is nothing to return from; readers pass over that.
        if let Some(at) = self.over.take() {
            self.space.extent()[at.get()..at.get() + TOOK_BYTES].fill(0);
        }
        self.leave_with(time, signature, fields);
    }

    /// So many calls were made that nobody wrote.
    pub fn missed(&mut self, time: u64, calls: u64) {
        self.lost += calls;
        if self.room(Short::BYTES, time) && self.lost > 0 {
            self.write_lost();
        }
    }

    /// Ends the last extent, with the number of events that found no room after it. What comes later is not
    /// written.
    pub fn finish(&mut self) {
        if self.state == WriterState::Open {
            if self.lost > 0 {
                self.write_lost();
            }
            self.seal();
        }
        (self.state, self.took, self.over) = (WriterState::Ended, None, None);
    }

    /// What it wrote to.
    pub fn into_space(self) -> S {
        self.space
    }

    /// Says how much of the extent is used, and what its checksum is. What it says may be said again.
    fn seal(&mut self) {
        let extent = self.space.extent();
        let events = &extent[EXTENT_HEADER_BYTES..self.at];
        let header = Extent {
            thread: self.thread,
            sequence: self.sequence,
            length: u32::try_from(extent.len()).expect("an extent is short"),
            used: u32::try_from(events.len()).expect("an extent is short"),
            checksum: crc32fast::hash(events),
            time: self.first_time.saturating_sub(self.began),
        };
        extent[..EXTENT_HEADER_BYTES].copy_from_slice(&header.encode());
    }

    /// The reserve is for this.
    fn write_lost(&mut self) {
        let mut event = Short::at(self.space.extent(), self.at);
        event.byte(LOST);
        event.varint(self.lost);
        self.at += event.done();
        self.lost = 0;
    }

    /// An event that is written with the nanoseconds since the one before.
    fn timed(&mut self, time: u64, tell: impl FnOnce(&mut Short<'_>, u64)) {
        if self.room(Short::BYTES, time) {
            self.timed_here(time, tell);
        } else {
            self.lost += 1;
        }
    }

    /// As [`EventWriter::timed`], where there is room.
    #[inline]
    fn timed_here(&mut self, time: u64, tell: impl FnOnce(&mut Short<'_>, u64)) {
        // An extent that begins here begins with this event's time.
        let passed = time.saturating_sub(self.time);
        let mut event = Short::at(self.space.extent(), self.at);
        tell(&mut event, passed);
        self.at += event.done();
        (self.took, self.over) = (None, None);
        self.time += passed;
    }

    /// The number of a shape, which is defined if it has none. `None` if there is no room for that.
    fn number(&mut self, content: CallContent, signature: &Signature, fields: &[Field<'_>]) -> Option<u32> {
        (self.took, self.over) = (None, None);
        let number = self.known_or_new(content, signature, fields)?;
        self.recent[content.slot()] = Recent { content, nth: number + 1 };
        Some(number)
    }

    fn known_or_new(
        &mut self,
        content: CallContent,
        signature: &Signature,
        fields: &[Field<'_>],
    ) -> Option<u32> {
        if let Some(&number) = self.shapes.get(&content.0) {
            return Some(number);
        }
        if self.shapes.len() >= SHAPES_MAX {
            self.forget();
        }
        if !self.define(signature, fields) {
            return None;
        }
        let number = u32::try_from(self.shapes.len()).expect("at most SHAPES_MAX");
        self.shapes.insert(content.0, number);
        Some(number)
    }

    #[cold]
    fn define(&mut self, signature: &Signature, fields: &[Field<'_>]) -> bool {
        let Some(number) = self.signature(signature) else { return false };
        self.scratch.clear();
        self.scratch.push(SHAPE);
        varint::put(&mut self.scratch, u64::from(number));
        for field in fields {
            encode(&mut self.scratch, *field);
        }
        self.put()
    }

    fn signature(&mut self, signature: &Signature) -> Option<u32> {
        let key = addresses(signature);
        if let Some(&number) = self.signatures.get(&key) {
            return Some(number);
        }
        self.scratch.clear();
        self.scratch.push(SIGNATURE);
        self.scratch.push(u8::from(signature.instant));
        text(&mut self.scratch, signature.name.as_bytes());
        varint::put(&mut self.scratch, signature.keys.len() as u64);
        for key in signature.keys {
            text(&mut self.scratch, key.as_bytes());
        }
        if !self.put() {
            return None;
        }
        let number = u32::try_from(self.signatures.len()).expect("few signatures");
        self.signatures.insert(key, number);
        Some(number)
    }

    fn forget(&mut self) {
        self.scratch.clear();
        self.scratch.push(FORGET);
        if self.put() {
            self.signatures.clear();
            self.shapes.clear();
            self.recent.fill(Recent::NONE);
        }
    }

    /// Writes `scratch`. The first byte comes last: a process that is killed in between leaves an end, not half
    /// an event.
    fn put(&mut self) -> bool {
        if self.scratch.len() > EVENT_BYTES_MAX || !self.room(self.scratch.len(), self.time) {
            self.lost += 1;
            return false;
        }
        let scratch = std::mem::take(&mut self.scratch);
        self.append(&scratch);
        self.scratch = scratch;
        true
    }

    /// Puts an event where there is room for it.
    fn append(&mut self, from: &[u8]) {
        (self.took, self.over) = (None, None);
        let to = &mut self.space.extent()[self.at..self.at + from.len()];
        to[1..].copy_from_slice(&from[1..]);
        compiler_fence(Ordering::Release);
        to[0] = from[0];
        self.at += from.len();
    }

    /// Makes sure that `length` bytes fit into the extent.
    fn room(&mut self, length: usize, time: u64) -> bool {
        self.fits(length) || self.advance(time)
    }

    #[inline]
    fn fits(&mut self, length: usize) -> bool {
        self.state == WriterState::Open && self.at + length + RESERVE <= self.space.extent().len()
    }

    #[cold]
    fn advance(&mut self, time: u64) -> bool {
        // The extent of before is not written to any more, whether or not there is another.
        (self.took, self.over) = (None, None);
        let has_one = match self.state {
            WriterState::Ended => return false,
            WriterState::Open => true,
            WriterState::Fresh => false,
        };
        if has_one {
            // Before the next one: a process that is killed in between leaves this one whole.
            self.seal();
        }
        if !self.space.advance() {
            return false;
        }
        self.sequence += u32::from(has_one);
        self.first_time = time.max(self.time);
        self.time = self.first_time;
        let extent = self.space.extent();
        let header = Extent {
            thread: self.thread,
            sequence: self.sequence,
            length: u32::try_from(extent.len()).expect("an extent is short"),
            used: 0,
            checksum: 0,
            time: self.first_time.saturating_sub(self.began),
        };
        extent[..EXTENT_HEADER_BYTES].copy_from_slice(&header.encode());
        self.at = EXTENT_HEADER_BYTES;
        self.state = WriterState::Open;
        if self.lost > 0 {
            self.write_lost();
        }
        true
    }
}

/// An event of a few numbers, as it is written to an extent. Its first byte comes last: a process
/// that is killed in between leaves an end, not half an event.
struct Short<'a> {
    bytes: &'a mut [u8; Short::BYTES],
    first: u8,
    length: usize,
}

impl<'a> Short<'a> {
    /// A code, three numbers and a tag. A power of two.
    const BYTES: usize = 32;

    /// An event in the extent, from there on.
    #[inline]
    fn at(extent: &'a mut [u8], at: usize) -> Self {
        let bytes = extent[at..].first_chunk_mut().expect("`room` has seen to it, or there is the reserve");
        Self { bytes, first: 0, length: 0 }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        if self.length == 0 {
            self.first = byte;
        } else {
            self.bytes[self.length % Self::BYTES] = byte;
        }
        self.length += 1;
    }

    #[inline]
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.byte(number.to_le_bytes()[0]);
    }

    /// Returns how long it is.
    #[inline]
    fn done(self) -> usize {
        compiler_fence(Ordering::Release);
        self.bytes[0] = self.first;
        self.length
    }
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    varint::put(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

/// The largest number that [`long`] takes: one of eight bytes.
const LONG_MAX: u64 = (1 << 56) - 1;

/// A varint and its length in bits, without a loop.
#[inline]
fn long(number: u64) -> (u64, u32) {
    let bytes = (u64::BITS - (number | 1).leading_zeros()).div_ceil(7);
    let halves = number & 0x0fff_ffff | (number & 0xff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    let eighths = quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    let goes_on = 0x8080_8080_8080_8080 & ((1_u64 << (8 * (bytes - 1))) - 1);
    (eighths | goes_on, 8 * bytes)
}

/// The tag and the number of a value that is one.
#[inline]
fn short(field: Field<'_>) -> Option<(u8, u64)> {
    match field {
        Field::Number(number) => Some((tag::NUMBER, number)),
        Field::Signed(number) => Some((tag::SIGNED, varint::of_signed(number))),
        Field::Address(address) => Some((tag::ADDRESS, address)),
        Field::None | Field::Varying(_) | Field::Text(_) | Field::Bytes(_) => None,
    }
}

fn encode(bytes: &mut Vec<u8>, field: Field<'_>) {
    if let Some((tag, number)) = short(field) {
        bytes.push(tag);
        varint::put(bytes, number);
        return;
    }
    let (tag, content) = match field {
        Field::Text(text) => (tag::TEXT, text.as_bytes()),
        Field::Bytes(bytes) => (tag::BYTES, bytes),
        Field::Varying(_) => return bytes.push(tag::VARYING),
        Field::None | Field::Number(_) | Field::Signed(_) | Field::Address(_) => {
            return bytes.push(tag::NONE);
        }
    };
    bytes.push(tag);
    text(bytes, content);
}

#[cfg(test)]
mod tests;
