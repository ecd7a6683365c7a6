//! File descriptors on their way to another process of this host, over datagram sockets with abstract names.
//!
//! Not here: what the descriptors stand for.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::c_int;

use crate::Error;

/// How long a descriptor may take that another process has promised.
const PATIENCE: Duration = Duration::from_secs(30);
/// Words of eight bytes that hold the header and one descriptor: a control message has to be aligned.
const CONTROL_WORDS: usize = 4;

/// Where other processes send descriptors to.
#[derive(Debug)]
pub(crate) struct Inbox {
    socket: UnixDatagram,
    name: String,
}

fn failed(why: impl ToString) -> Error {
    Error::Connection { what: "a file descriptor of another rank".to_owned(), why: why.to_string() }
}

/// The bytes that one descriptor takes as a control message, and its length there.
fn control_bytes() -> (usize, usize) {
    let len = u32::try_from(mem::size_of::<c_int>()).expect("four bytes");
    // SAFETY: arithmetic on a number.
    let space = unsafe { libc::CMSG_SPACE(len) };
    // SAFETY: arithmetic on a number.
    let length = unsafe { libc::CMSG_LEN(len) };
    (space as usize, length as usize)
}

/// A message of `data` with room for control messages in `control`.
fn message(data: &mut libc::iovec, control: &mut [u64; CONTROL_WORDS]) -> libc::msghdr {
    // SAFETY: all zeros is a valid header: no name, no data, no control messages.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_bytes().0 as _;
    message
}

impl Inbox {
    /// One that nobody has written to.
    pub(crate) fn open() -> Result<Self, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("rankcheck-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
        let socket = UnixDatagram::bind_addr(&address).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self { socket, name })
    }

    /// The name under which other processes find it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next descriptor, and the number that came with it.
    pub(crate) fn receive(&self) -> Result<(u32, OwnedFd), Error> {
        let mut bytes = [0_u8; 4];
        let mut data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = [0_u64; CONTROL_WORDS];
        let mut message = message(&mut data, &mut control);
        // SAFETY: the header points to `bytes` and `control`, which live and are as long as it says.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if got < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: the header was filled in by the kernel.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        if got != 4 || header.is_null() {
            return Err(failed("a message without a descriptor"));
        }
        // SAFETY: it is not null, so it lies in `control`.
        let found = unsafe { header.read() };
        if (found.cmsg_level, found.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return Err(failed("a message of another kind"));
        }
        // SAFETY: as above; the data of a message follow its header.
        let place = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: a message of rights has at least one descriptor.
        let descriptor = unsafe { place.cast::<c_int>().read_unaligned() };
        // SAFETY: the kernel made it for this process and gave it to nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok((u32::from_ne_bytes(bytes), descriptor))
    }
}

/// Sends a descriptor to the inbox of this name, with a number.
pub(crate) fn send(inbox: &str, number: u32, descriptor: BorrowedFd<'_>) -> Result<(), Error> {
    let address = SocketAddr::from_abstract_name(inbox).map_err(failed)?;
    let socket = UnixDatagram::unbound().map_err(failed)?;
    socket.connect_addr(&address).map_err(failed)?;
    let mut bytes = number.to_ne_bytes();
    let mut data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    let message = message(&mut data, &mut control);
    // SAFETY: there is room for one header, which the message says.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let rights = libc::cmsghdr {
        cmsg_len: control_bytes().1 as _,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: the header lies in `control`, which is aligned for it.
    unsafe { header.write(rights) };
    // SAFETY: as above; the data of a message follow its header.
    let place = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: there is room for one descriptor behind the header.
    unsafe { place.cast::<c_int>().write_unaligned(descriptor.as_raw_fd()) };
    // SAFETY: the message points to `bytes` and `control`, which live and are as long as it says.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if sent < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives_with_its_number() {
        let inbox = Inbox::open().expect("sockets have names");
        let (mut here, there) = UnixStream::pair().expect("sockets");
        send(inbox.name(), 7, there.as_fd()).expect("somebody listens");
        drop(there);
        let (number, descriptor) = inbox.receive().expect("it was sent");
        here.write_all(b"x").expect("the other end is open");
        let mut read = [0];
        UnixStream::from(descriptor).read_exact(&mut read).expect("it is the other end");
        assert_eq!((number, read), (7, *b"x"));
    }

    #[test]
    fn nobody_listens_under_a_name_that_was_never_bound() {
        let (one, _other) = UnixStream::pair().expect("sockets");
        assert!(send("rankcheck-nobody", 0, one.as_fd()).is_err());
    }
}
