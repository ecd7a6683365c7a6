//! The border to C: which libraries are there, and owners of what they hand out.
//!
//! cudarc's `sys` and `result` layers are used; its safe layers insert event waits and abort in `Drop`.
//! cudarc panics when a library or a symbol is missing, so every owner here is made from [`Libraries`],
//! which only a successful [`probe`] gives out.
//!
//! Device addresses are numbers here and are never read on the host. So a broken rule can spoil device
//! memory, hang a stream or lose the CUDA context, but does not touch the memory of the process.
//!
//! Not here: what the calls are for. The nouns beside this module say it.

use std::ffi::c_int;

use libloading::Library;

use crate::Error;

pub mod cuda;
pub(crate) mod descriptor;
pub mod graph;
pub(crate) mod host_words;
pub(crate) mod inventory;
pub(crate) mod ipc;
pub(crate) mod kernel;
pub mod nccl;
pub(crate) mod placed;
pub mod process;
pub(crate) mod shareable;

/// A library that could be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The name under which the loader found it.
    pub name: String,
    /// The version as the library encodes it.
    pub code: i32,
    /// The version as people write it.
    pub version: String,
}

/// What a machine has: for each library what was found, or what is missing.
#[derive(Debug)]
pub struct Probe {
    /// `libcuda`, whose version comes from `cuDriverGetVersion`.
    pub cuda: Result<FoundLibrary, Error>,
    /// `libnccl`, whose version comes from `ncclGetVersion`.
    pub nccl: Result<FoundLibrary, Error>,
}

impl Probe {
    /// Both libraries, or the first one that is missing.
    ///
    /// # Errors
    /// [`Error::Missing`] with the names that were tried, or the error of the version call.
    pub fn require(self) -> Result<Libraries, Error> {
        Ok(Libraries { cuda: self.cuda?, nccl: self.nccl? })
    }
}

/// Evidence that libcuda and libnccl are there with the calls that this crate makes.
#[derive(Debug, Clone)]
pub struct Libraries {
    /// The CUDA driver that was loaded.
    pub cuda: FoundLibrary,
    /// NCCL. cudarc takes the first name that opens, so this is the library that later calls use.
    pub nccl: FoundLibrary,
}

/// Looks for both libraries. Needs no GPU and starts nothing.
#[must_use]
pub fn probe() -> Probe {
    Probe { cuda: cuda::probe(), nccl: nccl::probe() }
}

/// Bytes of device memory: an address and a length. Never read on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRange {
    address: u64,
    len_bytes: u64,
}

impl DeviceRange {
    pub(crate) fn new(address: u64, len_bytes: u64) -> Self {
        Self { address, len_bytes }
    }

    /// No memory: the null pointer and no length. Registrations of it are a rule that can be broken.
    pub const NULL: Self = Self { address: 0, len_bytes: 0 };

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// A part of the range, or nothing if it does not lie inside.
    #[must_use]
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Option<Self> {
        let end = offset_bytes.checked_add(len_bytes)?;
        (end <= self.len_bytes).then(|| Self { address: self.address + offset_bytes, len_bytes })
    }
}

/// The candidates for a library, and the folders that the loader was told to search before its own.
fn looked_for(names: &[String]) -> Vec<String> {
    let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let path = if path.is_empty() {
        "LD_LIBRARY_PATH (empty)".to_owned()
    } else {
        format!("LD_LIBRARY_PATH={path}")
    };
    names.iter().cloned().chain([path, "the loader's default folders".to_owned()]).collect()
}

/// Opens the first of `names` that opens.
fn open(names: &[String]) -> Option<(Library, String)> {
    names.iter().find_map(|name| {
        // SAFETY: the initializers of libcuda and libnccl have no preconditions; nothing else of the
        // candidates' names exists in practice.
        let library = unsafe { Library::new(name) }.ok()?;
        Some((library, name.clone()))
    })
}

/// Calls a function of the shape `int f(int *version)`, which both libraries have. Nothing if it is not there.
fn version_of(library: &Library, symbol: &str) -> Option<(c_int, c_int)> {
    // SAFETY: `cuDriverGetVersion` and `ncclGetVersion` both take one `int *` and return an enum of int size.
    let call = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(symbol.as_bytes()) }.ok()?;
    let mut version = 0;
    // SAFETY: `version` is a valid int for the length of the call; neither function needs initialization.
    let code = unsafe { call(&raw mut version) };
    Some((code, version))
}

/// The first of `symbols` that the library lacks.
fn lacks(library: &Library, symbols: &[&'static str]) -> Option<&'static str> {
    symbols.iter().copied().find(|symbol| {
        // SAFETY: the symbol is only looked up, as an untyped address, and never called through this type.
        unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_library_says_what_was_looked_for() {
        let probe = probe();
        for result in [&probe.cuda, &probe.nccl] {
            match result {
                Ok(found) => assert!(found.code > 0, "{found:?}"),
                Err(Error::Missing { looked_for, .. }) => assert!(looked_for.len() > 2),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_slice_lies_inside() {
        let range = DeviceRange::new(4096, 1024);
        assert_eq!(range.slice(512, 512), Some(DeviceRange::new(4608, 512)));
        assert_eq!(range.slice(512, 513), None);
        assert_eq!(range.slice(u64::MAX, 2), None);
    }
}
