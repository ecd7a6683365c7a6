//! Which shapes a process has, and which of them a thread names by which number.
//!
//! Not here: how shapes are decoded ([`super::thread`]).

use std::hash::BuildHasher as _;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::bytes::Bytes;
use super::{Shape, ShapeId};
use crate::value::Argument;

/// The shapes of a process, each once.
#[derive(Default)]
pub(super) struct Dictionary {
    pub(super) shapes: Vec<Shape>,
    /// By hash; where another shape has that hash, the next number that is free.
    known: FxHashMap<u64, ShapeId>,
}

impl Dictionary {
    pub(super) fn intern(&mut self, shape: Shape) -> ShapeId {
        let mut hash = FxBuildHasher.hash_one(&shape);
        while let Some(&id) = self.known.get(&hash) {
            if self.shapes[id.0 as usize] == shape {
                return id;
            }
            hash = hash.wrapping_add(1);
        }
        let id = ShapeId(u32::try_from(self.shapes.len()).expect("a file has fewer than 2^32 shapes"));
        self.shapes.push(shape);
        self.known.insert(hash, id);
        id
    }
}

/// The shapes that a thread has defined.
#[derive(Default)]
pub(super) struct Numbered {
    /// By number; [`OPEN`] for those that leave an address open.
    ids: Vec<ShapeId>,
    /// Those by number, and where among the values the address is.
    open: FxHashMap<u32, (Shape, usize)>,
    /// What those became with an address, by number and address.
    closed: FxHashMap<(u32, u64), ShapeId>,
}

/// No shape has this number: each call tells the rest of its own.
pub(super) const OPEN: ShapeId = ShapeId(u32::MAX);

/// How long texts and bytes of a shape may be that leaves an address open.
const OPEN_BYTES_MAX: usize = 512;

impl Numbered {
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<ShapeId> {
        self.ids.get(usize::try_from(number).ok()?).copied()
    }

    /// The next shape, and which of its values it leaves open.
    pub(super) fn push(
        &mut self,
        shape: Shape,
        open: Option<usize>,
        dictionary: &mut Dictionary,
    ) -> Result<(), String> {
        let id = if let Some(at) = open {
            // Each address makes a shape of its own, so none of them may be long.
            if shape.values.iter().map(Argument::length_bytes).sum::<usize>() > OPEN_BYTES_MAX {
                return Err("a long call that leaves an address open".to_owned());
            }
            let number = u32::try_from(self.ids.len()).map_err(|_| "too many shapes".to_owned())?;
            self.open.insert(number, (shape, at));
            OPEN
        } else {
            dictionary.intern(shape)
        };
        self.ids.push(id);
        Ok(())
    }

    /// The shape of this number, with the address that follows if it leaves one open.
    pub(super) fn called(
        &mut self,
        number: u64,
        bytes: &mut Bytes<'_>,
        dictionary: &mut Dictionary,
    ) -> Result<ShapeId, String> {
        let known = self.get(number);
        let known = known.ok_or_else(|| format!("a call of shape {number}, which was not defined"))?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let Some((shape, at)) = self.open.get(&number).filter(|_| known == OPEN) else { return Ok(known) };
        let address = bytes.varint()?;
        Ok(*self.closed.entry((number, address)).or_insert_with(|| {
            let mut shape = shape.clone();
            shape.values[*at] = Argument::Address(address);
            dictionary.intern(shape)
        }))
    }

    /// As [`Numbered::called`], if the same was called before.
    #[inline]
    pub(super) fn called_again(&self, number: u64, bytes: &mut Bytes<'_>) -> Option<ShapeId> {
        let address = bytes.varint().ok()?;
        self.closed.get(&(u32::try_from(number).ok()?, address)).copied()
    }
}
