//! A group: calls of one thread that NCCL runs together when the group ends.
//!
//! Not here: registrations and inits inside a group, whose results NCCL writes only at the group's end; they
//! are refused with [`Error::InsideGroup`].

use crate::Error;
use crate::ffi::{Libraries, nccl};

/// `ncclGroupStart`, the calls of `body`, `ncclGroupEnd`.
///
/// The group is ended also when `body` fails, because its depth belongs to the thread; the error of `body`
/// is then the one returned.
///
/// # Errors
/// What `body` returns, else [`Error::Nccl`] from the group's end: one invalid call discards all of them.
pub fn group<T>(libraries: &Libraries, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    nccl::group_start(libraries)?;
    let result = body();
    let end = nccl::group_end(libraries);
    match (result, end) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(error)) => Err(error),
        (Err(error), end) => {
            if let Err(at_end) = end {
                tracing::debug!(%at_end, "the group's end failed too");
            }
            Err(error)
        }
    }
}
