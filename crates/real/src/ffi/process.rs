//! What is asked of the operating system about this process: to die, by itself and with its parent, and to
//! leave signals to a child that it starts.
//!
//! Not here: other processes. Who starts them ends them, through `std::process`.

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};

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

/// Who gets the signals that are sent to this process; 0 before it is known.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The signal that it has not got yet; 0 if it got all.
static KEPT: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: c_int, about: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a pointer to what it says of the signal.
    let by_process = unsafe { (*about).si_code } <= 0;
    // A signal from the terminal reaches the child as well, without this, if there is one.
    if by_process || CHILD.load(Ordering::SeqCst) == 0 {
        KEPT.store(signal, Ordering::SeqCst);
        deliver();
    }
}

/// Passes on the signal that is kept, once there is somebody to get it.
fn deliver() {
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        return;
    }
    let signal = KEPT.swap(0, Ordering::SeqCst);
    if signal != 0 {
        // SAFETY: kill has no memory preconditions, and may be called from a handler.
        unsafe { libc::kill(child, signal) };
    }
}

/// Starts a command. From now on signals that would end this process go to that one, so that it can end first;
/// one that comes while it starts reaches it as soon as it has a number.
///
/// # Errors
/// As of [`Command::spawn`].
pub fn spawn_with_signals(command: &mut Command) -> io::Result<Child> {
    // SAFETY: zeros are a value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = pass_on;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: the handler does what a handler may, and lives as long as the process.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    let child = command.spawn()?;
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    CHILD.store(number, Ordering::SeqCst);
    deliver();
    Ok(child)
}
