//! Numbers of as many bytes as they need: seven bits a byte, the lowest first; all bytes but the last have bit 7.

/// Puts a number behind the bytes.
#[inline]
pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// A number for one that may be negative: 0, -1, 1, -2, … become 0, 1, 2, 3, …
#[inline]
#[must_use]
pub fn of_signed(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// The number that [`of_signed`] made this of.
#[inline]
#[must_use]
pub fn to_signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Numbers and bytes in a row.
#[derive(Debug, Clone)]
pub struct Varints<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Varints<'a> {
    /// Begins at the first of the bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Whether all of them were taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next number; `None` if there is none that is whole and has 64 bits at most.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        // Most have one byte.
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Some(byte.into());
        }
        self.written().map(|(number, _)| number)
    }

    /// The next number, and the bytes that it is written in, of which there may be more than it needs.
    #[inline]
    pub fn written(&mut self) -> Option<(u64, &'a [u8])> {
        let (begin, mut number) = (self.at, 0);
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((number, &self.bytes[begin..self.at]));
            }
        }
        None
    }

    /// Puts the next number behind the bytes, as it is written.
    #[inline]
    pub fn copy(&mut self, to: &mut Vec<u8>) -> Option<()> {
        const ENDS: u64 = 0x8080_8080_8080_8080;
        // Bytes of which all but the last have bit 7, eight at most: copied without a loop.
        if let Some(bytes) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk)
            && let ends = !u64::from_le_bytes(*bytes) & ENDS
            && ends != 0
        {
            let length = ends.trailing_zeros() as usize / 8 + 1;
            let before = to.len();
            to.extend_from_slice(bytes);
            to.truncate(before + length);
            self.at += length;
            return Some(());
        }
        to.extend_from_slice(self.written()?.1);
        Some(())
    }

    /// How many bytes were taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.at
    }

    /// The next so many bytes, as they are; `None` if there are fewer.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(bytes)
    }
}
