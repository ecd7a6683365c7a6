//! The part of pickle that says plain data: what torch's C++ pickler writes for a dump, and what Python's protocols 2
//! to 5 write for the same data.
//!
//! A pickle is a program for a machine with a stack. Opcodes that name a class, call something or ask another program
//! for a value are refused with their offset: nothing of a file is ever executed. Nothing here recurses, a length that
//! a file claims is compared with the bytes that are there before anything is allocated, and a value that a file
//! mentions again is the same value ([`Arena`]), so that work and memory are linear in the bytes of the file.
//! Source of the opcodes: `torch/csrc/jit/serialization/pickler.h` and CPython's `Lib/pickle.py`.
//! Not here: what a dump says (`read`).

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::plain::{Arena, Plain};

/// Why a pickle is not read. Offsets are bytes from the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PickleError {
    /// The opcode would make or call something.
    #[error(
        "byte {offset}: the opcode {opcode} would execute code, and a dump has no reason to; nothing of it is executed"
    )]
    Executes {
        /// Where the opcode stands.
        offset: usize,
        /// Its name in Python's documentation.
        opcode: &'static str,
    },
    /// The opcode says what no dump says, or no opcode has this number.
    #[error("byte {offset}: {byte:#04x} is no opcode of plain data in pickle's protocols 2 to 5")]
    NotPlain {
        /// Where the byte stands.
        offset: usize,
        /// The byte in the place of an opcode.
        byte: u8,
    },
    /// The bytes end before the pickle does.
    #[error("byte {offset}: the file is cut off: {needed} more bytes belong here, and {left} follow")]
    CutOff {
        /// Where the opcode stands for which bytes are missing, or where the file ends.
        offset: usize,
        /// How many bytes belong behind it.
        needed: u64,
        /// How many there are.
        left: usize,
    },
    /// The pickle is of a protocol that is not known.
    #[error("byte {offset}: protocol {protocol} of pickle is not known; 2 to 5 are")]
    Protocol {
        /// Where the number stands.
        offset: usize,
        /// The number that stands there.
        protocol: u8,
    },
    /// The opcode finds on the stack what it has no use for.
    #[error("byte {offset}: {problem}")]
    Malformed {
        /// Where the opcode stands.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
}

/// What was read of a pickle.
#[derive(Debug)]
pub struct Pickled {
    /// The values that were read.
    pub arena: Arena,
    /// The one that the others are parts of.
    pub root: Plain,
    /// Where the file ends too early, if it does. The value is then a table of what stands whole before that place.
    pub cut: Option<PickleError>,
}

/// Reads a pickle. Of one that is cut off, what is complete before the cut is kept, if it begins with a table as dumps
/// do: the values of the table, and the items of a list that is its last value. A value that is not complete is left
/// out, and so is a table or a list of which it is not known whether more belonged to it, unless it is that last list.
///
/// # Errors
///
/// If it is no pickle of plain data, or if it is cut off and nothing of it is whole.
pub fn read_pickle(bytes: &[u8]) -> Result<Pickled, PickleError> {
    let mut machine = Unpickler { bytes, ..Unpickler::default() };
    match machine.run() {
        Ok(root) => Ok(Pickled { arena: machine.arena, root, cut: None }),
        Err(cut @ PickleError::CutOff { .. }) => match machine.whole_part() {
            Some(root) => Ok(Pickled { arena: machine.arena, root, cut: Some(cut) }),
            None => Err(cut),
        },
        Err(error) => Err(error),
    }
}

/// The machine that a pickle is a program for.
#[derive(Default)]
struct Unpickler<'a> {
    bytes: &'a [u8],
    /// Where the next byte is read.
    at: usize,
    /// Where the opcode in work stands.
    opcode_at: usize,
    arena: Arena,
    stack: Vec<Plain>,
    /// How high the stack was at each open mark.
    marks: Vec<usize>,
    memo: Mentions,
}

/// The values that were remembered. They are numbered from 0 on, mostly; a file may number them as it likes.
#[derive(Default)]
struct Mentions {
    in_order: Vec<Plain>,
    others: FxHashMap<usize, Plain>,
}

impl Mentions {
    fn set(&mut self, number: usize, value: Plain) {
        let next = self.in_order.len();
        if number < next {
            self.in_order[number] = value;
        } else if number == next && !self.others.contains_key(&number) {
            self.in_order.push(value);
        } else {
            self.others.insert(number, value);
        }
    }

    fn get(&self, number: usize) -> Option<Plain> {
        self.in_order.get(number).or_else(|| self.others.get(&number)).copied()
    }
}

/// The opcodes that make or call something, or ask somebody for a value.
fn executing(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return None,
    })
}

impl<'a> Unpickler<'a> {
    fn run(&mut self) -> Result<Plain, PickleError> {
        loop {
            self.opcode_at = self.at;
            let opcode = self.byte()?;
            match opcode {
                b'.' => return self.pop(),
                0x80 => {
                    let protocol = self.byte()?;
                    if !(2..=5).contains(&protocol) {
                        return Err(PickleError::Protocol { offset: self.at - 1, protocol });
                    }
                }
                // A frame only says how much may be read at once.
                0x95 => drop(self.take(8)?),
                b'N' => self.stack.push(Plain::Nothing),
                0x88 => self.stack.push(Plain::Truth(true)),
                0x89 => self.stack.push(Plain::Truth(false)),
                b'K' | b'M' | b'J' | 0x8a | 0x8b | b'G' => self.number(opcode)?,
                b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e => self.text(opcode)?,
                b'(' => self.marks.push(self.stack.len()),
                b'0' | b'1' | b'2' => self.stack_only(opcode)?,
                b']' | b'}' | b')' | b'l' | b'd' | b't' | 0x85..=0x87 => self.container(opcode)?,
                b'a' | b'e' | b's' | b'u' => self.fill(opcode)?,
                b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(opcode)?,
                _ => {
                    let offset = self.opcode_at;
                    return Err(match executing(opcode) {
                        Some(opcode) => PickleError::Executes { offset, opcode },
                        None => PickleError::NotPlain { offset, byte: opcode },
                    });
                }
            }
        }
    }

    fn malformed<T>(&self, problem: &'static str) -> Result<T, PickleError> {
        Err(PickleError::Malformed { offset: self.opcode_at, problem })
    }

    /// Takes bytes that are there, however many the file claims.
    fn take(&mut self, length: u64) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)) {
            Some((taken, _)) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(PickleError::CutOff { offset: self.opcode_at, needed: length, left: rest.len() }),
        }
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.take(1)?[0])
    }

    /// Takes a little-endian number without a sign.
    fn little(&mut self, length: u64) -> Result<u64, PickleError> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn number(&mut self, opcode: u8) -> Result<(), PickleError> {
        let length = match opcode {
            b'K' => 1,
            b'M' => 2,
            b'J' => 4,
            0x8a => self.little(1)?,
            0x8b => self.little(4)?,
            _ => 8,
        };
        if length > 8 {
            // The bytes are looked for first: a number that is too long and cut off is cut off.
            self.take(length)?;
            return self.malformed("an integer does not fit into 64 bits with a sign");
        }
        let number = if opcode == b'G' {
            let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
            Plain::Fraction(f64::from_be_bytes(bytes))
        } else {
            let signed = !matches!(opcode, b'K' | b'M');
            let number = self.little(length)?.cast_signed();
            // The highest bit of the bytes that are there is the sign.
            let unused = u32::try_from(64 - 8 * length).expect("it is 64 at most");
            Plain::Whole(match (signed, unused) {
                (false, _) | (true, 0) => number,
                (true, 64) => 0,
                (true, unused) => number << unused >> unused,
            })
        };
        self.stack.push(number);
        Ok(())
    }

    fn text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let length = match opcode {
            0x8c | b'C' => self.little(1)?,
            b'X' | b'B' => self.little(4)?,
            _ => self.little(8)?,
        };
        let bytes = self.take(length)?;
        let value = if matches!(opcode, b'X' | 0x8c | 0x8d) {
            let Ok(text) = std::str::from_utf8(bytes) else { return self.malformed("a text is not UTF-8") };
            self.arena.add_text(text)
        } else {
            Plain::Bytes
        };
        self.stack.push(value);
        Ok(())
    }

    /// Returns how far down the stack the opcode in work may reach.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Plain, PickleError> {
        if self.stack.len() <= self.floor() {
            return self.malformed("a value belongs here, and the stack has none");
        }
        Ok(self.stack.pop().expect("its length was compared"))
    }

    fn pop_mark(&mut self) -> Result<Vec<Plain>, PickleError> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.split_off(height)),
            None => self.malformed("a mark belongs here, and none is open"),
        }
    }

    /// Opcodes that nothing but the stack knows of.
    fn stack_only(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let value = self.pop()?;
                self.stack.extend([value, value]);
            }
            // POP takes a mark away where no value stands above it.
            _ if self.stack.len() == self.floor() && !self.marks.is_empty() => drop(self.pop_mark()?),
            _ => drop(self.pop()?),
        }
        Ok(())
    }

    fn container(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            b']' | b')' => self.arena.add_list(Vec::new()),
            b'}' => self.arena.add_table(Vec::new()),
            b'd' => {
                let items = self.pop_mark()?;
                let items = self.pairs(&items)?;
                self.arena.add_table(items)
            }
            b'l' | b't' => {
                let items = self.pop_mark()?;
                self.arena.add_list(items)
            }
            _ => {
                let length = usize::from(opcode - 0x84);
                let from = self.stack.len().checked_sub(length).filter(|from| *from >= self.floor());
                let Some(from) = from else { return self.malformed("the stack is too short for this tuple") };
                let items = self.stack.split_off(from);
                self.arena.add_list(items)
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn pairs(&self, items: &[Plain]) -> Result<Vec<(Plain, Plain)>, PickleError> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return self.malformed("a key has no value");
        }
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    }

    /// Opcodes that add to a list or a table on the stack: what stands above it, or above it and a mark.
    fn fill(&mut self, opcode: u8) -> Result<(), PickleError> {
        let from = match opcode {
            b'a' => self.stack.len().checked_sub(1),
            b's' => self.stack.len().checked_sub(2),
            _ => match self.marks.pop() {
                Some(height) => Some(height),
                None => return self.malformed("a mark belongs here, and none is open"),
            },
        };
        let at = from.and_then(|from| from.checked_sub(1)).filter(|at| *at >= self.floor());
        let Some(at) = at else { return self.malformed("a value belongs here, and the stack has none") };
        let items = &self.stack[at + 1..];
        match (self.stack[at], opcode) {
            (Plain::List(list), b'a' | b'e') => self.arena.list_mut(list).extend(items),
            (Plain::Table(table), b's' | b'u') => {
                let (pairs, rest) = items.as_chunks::<2>();
                if !rest.is_empty() {
                    return self.malformed("a key has no value");
                }
                self.arena.table_mut(table).extend(pairs.iter().map(|[key, value]| (*key, *value)));
            }
            _ => return self.malformed("what is to be added to is neither a list nor a table"),
        }
        self.stack.truncate(at + 1);
        Ok(())
    }

    /// Opcodes that remember a value, and those that mention one again.
    fn remember(&mut self, opcode: u8) -> Result<(), PickleError> {
        let number = match opcode {
            b'q' | b'h' => self.little(1)?,
            b'r' | b'j' => self.little(4)?,
            _ => (self.memo.in_order.len() + self.memo.others.len()) as u64,
        };
        let number = usize::try_from(number).expect("four bytes, or fewer values than a file has bytes");
        if matches!(opcode, b'h' | b'j') {
            let Some(value) = self.memo.get(number) else {
                return self.malformed("a value is mentioned again that was not remembered");
            };
            self.stack.push(value);
        } else {
            let value = self.pop()?;
            self.stack.push(value);
            self.memo.set(number, value);
        }
        Ok(())
    }

    /// Returns a table of what is whole in a pickle that is cut off: see [`read_pickle`].
    fn whole_part(&mut self) -> Option<Plain> {
        let Plain::Table(root) = *self.stack.first()? else { return None };
        let first = *self.marks.first()?;
        let second = self.marks.get(1).copied();
        if first != 1 {
            return None;
        }
        let mut pairs = self.arena.table(root).to_vec();
        // What stands above the second mark belongs to the value below it.
        let open = &self.stack[first..second.unwrap_or(self.stack.len())];
        let (whole, rest) = open.as_chunks::<2>();
        pairs.extend(whole.iter().map(|[key, value]| (*key, *value)));
        // The last value of all may not be finished. If a key follows it, it is.
        if let Some((_, last)) = pairs.last().copied().filter(|_| rest.is_empty()) {
            match last {
                Plain::List(list) => {
                    let third = self.marks.get(2).copied();
                    let pending = second
                        .map_or(&[][..], |second| &self.stack[second..third.unwrap_or(self.stack.len())]);
                    let mut items = [self.arena.list(list), pending].concat();
                    // So it is with its last item, unless that is a table that has been filled, and is not filled again.
                    let is_whole = |item: &Plain| match item {
                        Plain::Table(at) => third.is_none() && !self.arena.table(*at).is_empty(),
                        Plain::List(_) => false,
                        Plain::Nothing
                        | Plain::Truth(_)
                        | Plain::Whole(_)
                        | Plain::Fraction(_)
                        | Plain::Text(_)
                        | Plain::Bytes => true,
                    };
                    if items.last().is_some_and(|last| !is_whole(last)) {
                        items.pop();
                    }
                    let list = self.arena.add_list(items);
                    pairs.last_mut().expect("it was looked at").1 = list;
                }
                Plain::Table(_) => drop(pairs.pop()),
                Plain::Nothing
                | Plain::Truth(_)
                | Plain::Whole(_)
                | Plain::Fraction(_)
                | Plain::Text(_)
                | Plain::Bytes => {}
            }
        }
        Some(self.arena.add_table(pairs))
    }
}
