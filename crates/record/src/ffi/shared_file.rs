//! Which file descriptor of one process is which of another's.
//!
//! Memory goes to other processes as an open file of the driver's, and every process numbers it in its own way: the kernel
//! shows nothing by which two of them could be told apart. But a lock of an open file goes wherever the file goes, and the
//! kernel shows where it lies. So an exported file is marked by a lock for reading of one byte at a random place, which
//! shuts nobody out, and ends with the file.
//! Not here: what the files are of.

use libc::{c_int, c_short, off_t};

/// Marks an open file. None where it cannot be locked.
pub(super) fn mark(descriptor: c_int) -> Option<[u8; 16]> {
    let mut random = [0; 8];
    // SAFETY: as many bytes are written as there is room for.
    let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    // Positive, and with room for the byte behind it.
    let at = (u64::from_le_bytes(random) >> 2) | 1 << 60;
    if got != 8 {
        return None;
    }
    // SAFETY: all zeros is a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = off_t::try_from(at).ok()?;
    lock.l_len = 1;
    // SAFETY: it is a lock, and the kernel says so of what is no descriptor.
    let code = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    (code == 0).then(|| name(at))
}

/// The mark of an open file, which whoever exported it made.
pub(super) fn marked(descriptor: c_int) -> Option<[u8; 16]> {
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let locks = shown.lines().filter(|line| line.starts_with("lock:") && line.contains("OFDLCK"));
    let mut places = locks.filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let (end, start) = (words.next()?, words.next()?);
        start.parse::<u64>().ok().filter(|_| start == end)
    });
    places.find(|place| place >> 60 & 1 == 1).map(name)
}

fn name(place: u64) -> [u8; 16] {
    crate::digest::digest(&place.to_le_bytes())
}
