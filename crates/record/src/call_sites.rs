//! Call sites: where in the user's Python a call was made.
//!
//! A thread remembers what its frames are by the instruction that they are at, so that a call site costs a look at each
//! frame down to the user's. Not here: how frames are read ([`crate::ffi::frames`]).

use std::path::{Component, Path, PathBuf};

use crate::ffi::frames::{self, Frame, frames};

/// A call site, by its number in its thread from 1; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallSiteId(pub(crate) u32);

impl CallSiteId {
    pub(crate) const NONE: Self = Self(0);
    /// A frame that is never the user's.
    const INNER: Self = Self(u32::MAX);
    /// Set in what a thread knows of a frame of an installed package: it counts where no frame is the user's.
    const PACKAGE: u32 = 1 << 31;

    fn is_package(self) -> bool {
        self != Self::INNER && self.0 & Self::PACKAGE != 0
    }

    fn plain(self) -> Self {
        Self(self.0 & !Self::PACKAGE)
    }
}

/// Whose a frame is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Users,
    Package,
}

/// What a frame at an instruction is.
#[derive(Clone, Copy)]
struct KnownFrame {
    instruction: usize,
    site: CallSiteId,
}

/// Those that share a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Set([KnownFrame; 4]);

/// What a thread knows of its frames.
pub(crate) struct CallSites {
    known: Box<[Set; CallSites::SETS]>,
    /// [`frames::changes`] when it knew nothing.
    since: usize,
    /// By number, from 1 on. There are as many as lines of the program that call something.
    texts: Vec<Box<str>>,
    /// What names of files begin with that reports leave out.
    here: PathBuf,
}

impl CallSites {
    /// A power of two. Programs call from some dozens of lines.
    const SETS: usize = 256;
    /// No instruction lies there.
    const NOTHING: Set = Set([KnownFrame { instruction: usize::MAX, site: CallSiteId::INNER }; 4]);

    pub(crate) fn new() -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        Self { known: Box::new([Self::NOTHING; Self::SETS]), since: 0, texts: Vec::new(), here }
    }

    /// `train.py:12`; none if there is no site.
    pub(crate) fn text(&self, site: CallSiteId) -> Option<&str> {
        let at = usize::try_from(site.0).ok()?.checked_sub(1)?;
        self.texts.get(at).map(AsRef::as_ref)
    }

    /// The innermost line in the user's code. `None` if a frame on the way there is not known.
    #[inline]
    pub(crate) fn here(&self) -> Option<CallSiteId> {
        if self.since != frames::changes() {
            return None;
        }
        let mut package = CallSiteId::NONE;
        for frame in frames() {
            match self.known(frame)? {
                CallSiteId::INNER => {}
                site if !site.is_package() => return Some(site),
                site if package == CallSiteId::NONE => package = site.plain(),
                _ => {}
            }
        }
        Some(package)
    }

    #[inline]
    fn known(&self, frame: Frame) -> Option<CallSiteId> {
        let instruction = frame.instruction();
        let known =
            self.known[Self::set(instruction)].0.iter().find(|known| known.instruction == instruction);
        known.map(|known| known.site)
    }

    /// As [`CallSites::here`]; frames that are not known become so.
    pub(crate) fn learn(&mut self) -> CallSiteId {
        let changes = frames::changes();
        if self.since != changes {
            self.known.fill(Self::NOTHING);
            self.since = changes;
        }
        let mut package = CallSiteId::NONE;
        for frame in frames() {
            let site = self.known(frame).unwrap_or_else(|| self.learn_frame(frame));
            if site.is_package() {
                if package == CallSiteId::NONE {
                    package = site.plain();
                }
            } else if site != CallSiteId::INNER {
                return site;
            }
        }
        package
    }

    fn learn_frame(&mut self, frame: Frame) -> CallSiteId {
        let known = frame.location().and_then(|(file, line)| {
            let (name, whose) = name(&self.here, &file)?;
            Some((format!("{name}:{line}"), whose))
        });
        let site = known.map_or(CallSiteId::INNER, |(text, whose)| {
            let at = self.texts.iter().position(|known| **known == *text).unwrap_or_else(|| {
                self.texts.push(text.into());
                self.texts.len() - 1
            });
            let bit = if whose == Whose::Package { CallSiteId::PACKAGE } else { 0 };
            u32::try_from(at + 1).map_or(CallSiteId::INNER, |site| CallSiteId(site | bit))
        });
        let Set(set) = &mut self.known[Self::set(frame.instruction())];
        // The oldest goes.
        set.rotate_right(1);
        set[0] = KnownFrame { instruction: frame.instruction(), site };
        frame.keep_watch();
        site
    }

    /// Instructions are two bytes long.
    #[inline]
    fn set(instruction: usize) -> usize {
        (instruction >> 1 ^ instruction >> 9) % Self::SETS
    }
}

/// A file as reports name it, and whose it is; none if it is torch's or the recorder's, or of the standard library, which
/// stands between callers and torch.
fn name(here: &Path, file: &str) -> Option<(String, Whose)> {
    const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
    const INNER: [&str; 3] = ["/site-packages/torch/", "/dist-packages/torch/", "/rankcheck_record/"];
    const LIBRARY: [&str; 2] = ["/lib/python3.", "/lib64/python3."];
    let mut path = PathBuf::new();
    for part in here.join(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => path.push(part),
        }
    }
    let whole = path.to_str()?;
    let has = |parts: &[&str]| parts.iter().any(|part| whole.contains(part));
    let installed = has(&INSTALLED);
    let inner = file.starts_with('<') || has(&INNER) || !installed && has(&LIBRARY);
    let below = path.strip_prefix(here).unwrap_or(Path::new(whole));
    let whose = if installed { Whose::Package } else { Whose::Users };
    (!inner).then(|| (below.display().to_string(), whose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_users_unless_they_are_installed() {
        let whose = |file: &str| name(Path::new("/srv/job"), file).map(|(name, whose)| (name, whose as u8));
        assert_eq!(whose("train.py"), Some(("train.py".to_owned(), Whose::Users as u8)));
        assert_eq!(whose("/srv/job/./a/../b.py"), Some(("b.py".to_owned(), Whose::Users as u8)));
        for file in [
            "/usr/lib/python3.12/multiprocessing/process.py",
            "/opt/conda/lib/python3.11/threading.py",
            "/usr/lib64/python3.13/contextlib.py",
            "/venv/lib/python3.12/site-packages/torch/_tensor.py",
            "<frozen runpy>",
        ] {
            assert_eq!(whose(file), None, "{file}");
        }
        let package = "/venv/lib/python3.12/site-packages/transformers/trainer.py";
        assert_eq!(whose(package), Some((package.to_owned(), Whose::Package as u8)));
    }
}
