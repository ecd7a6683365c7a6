//! The events of an extent, taken apart into columns and put together again.
//!
//! Not here: extents ([`super`]), and what events mean ([`crate::read`]).

use rustc_hash::FxHashMap;

use super::Columns;
use super::column::Column;
use crate::layout::{
    CALL, ENTER, EVENT_BYTES_MAX, FORGET, LOST, RETURN, RETURN_VALUES, SHAPE, SIGNATURE, TOOK_BYTES, tag,
};
use crate::varint::{self, Varints};

/// Moves the parts of events from where they are to where they go. `None` if there are no more.
pub(super) trait EventParts {
    /// A number of those that make the call.
    fn number(&mut self) -> Option<u64>;
    /// So many bytes of those that make the call.
    fn bytes(&mut self, length: usize) -> Option<&[u8]>;
    /// The time that passed before the event.
    fn time(&mut self) -> Option<()>;
    /// How long a call took.
    fn took(&mut self) -> Option<()>;
    /// An address that the shape leaves open.
    fn address(&mut self) -> Option<()>;
}

/// Takes the events of an extent apart, into the columns.
pub(super) struct TakeApart<'a> {
    events: Varints<'a>,
    columns: &'a mut Columns,
}

impl<'a> TakeApart<'a> {
    pub(super) fn new(events: &'a [u8], columns: &'a mut Columns) -> Self {
        Self { events: Varints::new(events), columns }
    }

    pub(super) fn is_over(&self) -> bool {
        self.events.is_over()
    }
}

impl EventParts for TakeApart<'_> {
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (number, written) = self.events.written()?;
        self.columns.calls.extend_from_slice(written);
        Some(number)
    }

    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        let bytes = self.events.take(length)?;
        self.columns.calls.extend_from_slice(bytes);
        Some(bytes)
    }

    #[inline]
    fn time(&mut self) -> Option<()> {
        self.events.copy(&mut self.columns.times)
    }

    #[inline]
    fn took(&mut self) -> Option<()> {
        let took = u32::from_le_bytes(*self.events.take(TOOK_BYTES)?.first_chunk()?);
        varint::put(&mut self.columns.took, took.into());
        Some(())
    }

    #[inline]
    fn address(&mut self) -> Option<()> {
        self.events.copy(&mut self.columns.addresses)
    }
}

/// Puts events together, out of the columns.
pub(super) struct PutTogether {
    /// The calls, and how far they were taken.
    calls: (Vec<u8>, usize),
    times: Column,
    took: Column,
    addresses: Column,
    /// What was put together so far.
    pub(super) out: Vec<u8>,
}

impl PutTogether {
    /// From the columns of calls, of times, of how long calls took and of addresses.
    pub(super) fn new(calls: Vec<u8>, [times, took, addresses]: [Column; 3]) -> Self {
        Self { calls: (calls, 0), times, took, addresses, out: Vec::new() }
    }

    /// What `of` makes of the calls that were not taken so far.
    #[inline]
    fn calls<T>(&mut self, of: impl FnOnce(&mut Varints<'_>) -> Option<T>) -> Option<T> {
        let (calls, taken) = &mut self.calls;
        let mut left = Varints::new(&calls[*taken..]);
        let made = of(&mut left);
        *taken += left.taken();
        made
    }
}

impl EventParts for PutTogether {
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (number, written) =
            self.calls(|calls| calls.written().map(|(number, written)| (number, written.len())))?;
        let begin = self.calls.1 - written;
        match written {
            1 => self.out.push(self.calls.0[begin]),
            _ => self.out.extend_from_slice(&self.calls.0[begin..self.calls.1]),
        }
        Some(number)
    }

    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        self.calls(|calls| calls.take(length).map(|_| ()))?;
        let bytes = &self.calls.0[self.calls.1 - length..self.calls.1];
        self.out.extend_from_slice(bytes);
        Some(bytes)
    }

    #[inline]
    fn time(&mut self) -> Option<()> {
        let out = &mut self.out;
        self.times.next(|times| times.copy(out))
    }

    #[inline]
    fn took(&mut self) -> Option<()> {
        let took = u32::try_from(self.took.next(|took| took.number())?).ok()?;
        self.out.extend_from_slice(&took.to_le_bytes());
        Some(())
    }

    #[inline]
    fn address(&mut self) -> Option<()> {
        let out = &mut self.out;
        self.addresses.next(|addresses| addresses.copy(out))
    }
}

/// What the events of a thread so far say of how later ones are written.
#[derive(Debug, Default)]
struct WrittenThread {
    /// How many values each signature has.
    signatures: Vec<u64>,
    /// Whether each shape leaves an address open.
    open: Vec<bool>,
    /// How many extents there were.
    extents: u32,
    /// Whether one of them was kept as it is, so that nothing is known.
    kept: bool,
}

/// The threads of a file, up to an extent.
#[derive(Debug, Default)]
pub(super) struct WrittenThreads(FxHashMap<u32, WrittenThread>);

impl WrittenThreads {
    /// The number of the thread's next extent.
    pub(super) fn sequence(&mut self, thread: u32) -> u32 {
        let of = self.0.entry(thread).or_default();
        of.extents += 1;
        of.extents - 1
    }

    /// Whether all extents of the thread were of known events.
    pub(super) fn is_known(&self, thread: u32) -> bool {
        self.0.get(&thread).is_none_or(|of| !of.kept)
    }

    /// An extent of the thread is kept as it is.
    pub(super) fn keep(&mut self, thread: u32) {
        self.0.entry(thread).or_default().kept = true;
    }

    /// Moves so many events of a thread, or fewer if `ends` says so. Gives how many there were; `None` if the next is not known.
    pub(super) fn events<P: EventParts>(
        &mut self,
        thread: u32,
        at_most: u64,
        parts: &mut P,
        ends: impl Fn(&P) -> bool,
    ) -> Option<u64> {
        let of = self.0.entry(thread).or_default();
        let mut count = 0;
        while count < at_most && !ends(parts) {
            of.event(parts)?;
            count += 1;
        }
        Some(count)
    }
}

impl WrittenThread {
    #[inline]
    fn event(&mut self, parts: &mut impl EventParts) -> Option<()> {
        let code = parts.number()?;
        if code == u64::from(CALL) {
            let open = self.is_open(parts.number()?)?;
            parts.time()?;
            parts.took()?;
            return if open { parts.address() } else { Some(()) };
        }
        if code >= ENTER {
            let open = self.is_open(code - ENTER)?;
            parts.time()?;
            return if open { parts.address() } else { Some(()) };
        }
        match u8::try_from(code).ok()? {
            RETURN => parts.time()?,
            RETURN_VALUES => {
                parts.time()?;
                self.values(parts)?;
            }
            SIGNATURE => {
                parts.bytes(1)?;
                text(parts)?;
                let keys = parts.number()?;
                (0..keys).try_for_each(|_| text(parts))?;
                self.signatures.push(keys);
            }
            SHAPE => {
                let open = self.values(parts)?;
                self.open.push(open);
            }
            FORGET => (self.signatures, self.open) = (Vec::new(), Vec::new()),
            LOST => _ = parts.number()?,
            _ => return None,
        }
        Some(())
    }

    /// The number of a signature and its values. Whether one is left open.
    fn values(&self, parts: &mut impl EventParts) -> Option<bool> {
        let signature = usize::try_from(parts.number()?).ok()?;
        let mut open = false;
        for _ in 0..*self.signatures.get(signature)? {
            let [kind] = *parts.bytes(1)? else { return None };
            match kind {
                tag::NONE => {}
                tag::VARYING => open = true,
                tag::NUMBER | tag::SIGNED | tag::ADDRESS => _ = parts.number()?,
                tag::TEXT | tag::BYTES => text(parts)?,
                _ => return None,
            }
        }
        Some(open)
    }

    #[inline]
    fn is_open(&self, shape: u64) -> Option<bool> {
        self.open.get(usize::try_from(shape).ok()?).copied()
    }
}

fn text(parts: &mut impl EventParts) -> Option<()> {
    let length = usize::try_from(parts.number()?).ok().filter(|length| *length <= EVENT_BYTES_MAX)?;
    parts.bytes(length).map(|_| ())
}
