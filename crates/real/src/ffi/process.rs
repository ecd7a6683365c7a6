//! What a worker asks of the operating system about its own process: to die, by itself and with its parent.
//!
//! Not here: other processes. Who started them ends them, through `std::process`.

use crate::Error;

/// From now on the kernel kills this process when the thread that started it ends. A hung CUDA call cannot
/// stop that.
///
/// # Errors
/// If the kernel refuses, which Linux does not for a valid signal.
pub fn die_with_parent() -> Result<(), Error> {
    let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    // SAFETY: PR_SET_PDEATHSIG takes one number and changes nothing but an attribute of this process.
    let code = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    if code == 0 {
        return Ok(());
    }
    let why = std::io::Error::last_os_error().to_string();
    Err(Error::Connection { what: "the parent process".to_owned(), why })
}

/// Ends this process at once, whatever its threads are doing. `std::process::exit` would run the exit handlers
/// of CUDA and NCCL, which wait for kernels that may never end.
pub fn die() -> ! {
    // SAFETY: kill has no memory preconditions; the target is this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    // SIGKILL of oneself is delivered before kill returns; this is for the type alone.
    std::process::abort()
}
