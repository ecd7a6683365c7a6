//! A group: calls of one thread that NCCL runs together when the group ends.
//!
//! What inits, splits ([`crate::comm::PendingComm`]) and registrations ([`crate::window::NcclWindow::register_later`])
//! make is there once the group has ended. Not here: ends of communicators, which are refused with
//! [`Error::InsideGroup`] because other calls of the group may be on them.

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

/// `ncclGroupStart`, for callers whose groups do not nest like functions.
///
/// # Errors
/// [`Error::Nccl`].
pub fn start(libraries: &Libraries) -> Result<(), Error> {
    nccl::group_start(libraries)
}

/// `ncclGroupEnd`; without a start NCCL answers with an error.
///
/// # Errors
/// [`Error::Nccl`]: one invalid call discards all of the group.
pub fn end(libraries: &Libraries) -> Result<(), Error> {
    nccl::group_end(libraries)
}

/// Makes the open group invalid, as a call without a communicator does.
///
/// # Errors
/// [`Error::Nccl`] always: invalid argument.
pub fn spoil(libraries: &Libraries) -> Result<(), Error> {
    nccl::group_spoil(libraries)
}
