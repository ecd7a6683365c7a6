//! Where in the user's Python a call was made.
//!
//! A thread remembers what its frames are by the instruction that they are at, so that a place costs a look at each
//! frame down to the user's. Not here: how frames are read ([`crate::ffi::frames`]).

use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use crate::ffi::frames::{Frame, frames};

/// A place, by its number from 1; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlaceId(pub(crate) u32);

impl PlaceId {
    pub(crate) const NONE: Self = Self(0);
    /// A frame that is never the user's.
    const INNER: Self = Self(u32::MAX);

    /// `train.py:12`; none if there is no place.
    pub(crate) fn text(self) -> Option<&'static str> {
        let at = usize::try_from(self.0).ok()?.checked_sub(1)?;
        TEXTS.lock().ok()?.get(at).copied()
    }
}

/// Places by their numbers, from 1 on. There are as many as lines of the program that call something.
static TEXTS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// What a frame at an instruction is.
#[derive(Clone, Copy)]
struct Known {
    instruction: usize,
    /// [`Frame::lines`], where it is the user's.
    lines: usize,
    place: PlaceId,
}

/// What a thread knows of its frames.
pub(crate) struct Places {
    known: Box<[Known; Places::MANY]>,
}

impl Places {
    /// A power of two. Programs call from some dozens of places.
    const MANY: usize = 1024;

    pub(crate) fn new() -> Self {
        // No instruction lies there.
        let nothing = Known { instruction: usize::MAX, lines: 0, place: PlaceId::INNER };
        Self { known: Box::new([nothing; Self::MANY]) }
    }

    /// The innermost place in the user's code. `None` if a frame on the way there is not known.
    #[inline]
    pub(crate) fn here(&self) -> Option<PlaceId> {
        for frame in frames() {
            let known = &self.known[Self::at(frame)];
            if known.instruction != frame.instruction() {
                return None;
            }
            if known.place != PlaceId::INNER {
                return (known.lines == frame.lines()).then_some(known.place);
            }
        }
        Some(PlaceId::NONE)
    }

    /// As [`Places::here`]; frames that are not known become so.
    pub(crate) fn learn(&mut self) -> PlaceId {
        for frame in frames() {
            let place =
                frame.place().and_then(|(file, line)| Some(place_of(&format!("{}:{line}", name(&file)?))));
            let lines = if place.is_some() { frame.lines() } else { 0 };
            let place = place.unwrap_or(PlaceId::INNER);
            self.known[Self::at(frame)] = Known { instruction: frame.instruction(), lines, place };
            if place != PlaceId::INNER {
                return place;
            }
        }
        PlaceId::NONE
    }

    /// Instructions are two bytes long.
    #[inline]
    fn at(frame: Frame) -> usize {
        let instruction = frame.instruction() >> 1;
        (instruction ^ instruction >> 10) % Self::MANY
    }
}

fn place_of(text: &str) -> PlaceId {
    let Ok(mut texts) = TEXTS.lock() else { return PlaceId::NONE };
    let at = texts.iter().position(|known| *known == text).unwrap_or_else(|| {
        texts.push(text.to_owned().leak());
        texts.len() - 1
    });
    u32::try_from(at + 1).map_or(PlaceId::NONE, PlaceId)
}

/// A file as reports name it; none if it is torch's or the recorder's, or of the standard library where that stands
/// between callers and torch.
fn name(file: &str) -> Option<String> {
    const INNER: [&str; 3] = ["/site-packages/torch/", "/dist-packages/torch/", "/rankcheck_record/"];
    const LIBRARY: [&str; 3] = ["/contextlib.py", "/functools.py", "/threading.py"];
    let here = std::env::current_dir().unwrap_or_default();
    let mut path = PathBuf::new();
    for part in here.join(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => path.push(part),
        }
    }
    let whole = path.to_str()?;
    let inner = file.starts_with('<')
        || INNER.iter().any(|part| whole.contains(part))
        || LIBRARY.iter().any(|end| file.ends_with(end));
    let below = path.strip_prefix(&here).unwrap_or(Path::new(whole));
    (!inner).then(|| below.display().to_string())
}
