//! Where the bytes lie: the file's header, the extents' headers, and the codes of events.
//!
//! Not here: how they are written and read.

use serde::{Deserialize, Serialize};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"rankrec\n";
/// The version of everything in this crate.
pub const VERSION: u32 = 1;
/// The version of files that were folded ([`crate::folded`]).
pub const FOLDED_VERSION: u32 = 2;
/// Where the first extent begins: magic, version, length of the JSON header, the header, zeros.
pub const HEADER_BYTES: usize = 4096;
/// The first bytes of an extent.
pub const EXTENT_MAGIC: [u8; 4] = *b"xtnt";
/// An extent's header: magic, thread, sequence, length, used, checksum, each four bytes; then the time.
pub const EXTENT_HEADER_BYTES: usize = 32;
/// The extents that the recorder writes, header included. Packed files have shorter ones.
pub const EXTENT_BYTES: usize = 64 * 1024;
/// The longest event, so that a damaged length cannot ask for memory without bound.
pub const EVENT_BYTES_MAX: usize = 16 * 1024;

/// Nothing more in this extent.
pub const END: u8 = 0;
/// A signature: instant (one byte), name, number of keys, keys.
pub const SIGNATURE: u8 = 1;
/// A shape: number of its signature, one value for each key. It gets the next number of the thread.
pub const SHAPE: u8 = 2;
/// The innermost open call returned with nothing worth a word: nanoseconds since the event before.
pub const RETURN: u8 = 3;
/// The innermost open call returned: nanoseconds since the event before, signature, values.
pub const RETURN_VALUES: u8 = 4;
/// The numbers of signatures and shapes start again.
pub const FORGET: u8 = 5;
/// So many events were not written.
pub const LOST: u8 = 6;
/// A call was entered that may return within this event: number of its shape, nanoseconds since the event before,
/// and four bytes that are zero until it returns, and then one more than the nanoseconds that it took. They stay
/// zero where a return of another kind follows, or none. Then the address that the shape leaves open, if it does.
pub const CALL: u8 = 7;
/// How many bytes tell when a call returned.
pub const TOOK_BYTES: usize = 4;
/// This and above: the call of shape `code - ENTER` was entered: nanoseconds since the event before, and the address
/// that the shape leaves open, if it does.
pub const ENTER: u64 = 8;

/// The first byte of a value, which says how the bytes behind it are read.
pub mod tag {
    /// No value; no byte follows.
    pub const NONE: u8 = 0;
    /// An unsigned number, as a varint.
    pub const NUMBER: u8 = 1;
    /// A number that may be negative, as a zigzag varint.
    pub const SIGNED: u8 = 2;
    /// A varint, an address.
    pub const ADDRESS: u8 = 3;
    /// A text: its length in bytes as a varint, then UTF-8.
    pub const TEXT: u8 = 4;
    /// Bytes: their number as a varint, then they themselves.
    pub const BYTES: u8 = 5;
    /// An address that each event of the shape tells: nothing here.
    pub const VARYING: u8 = 6;
}

/// What a file says of its process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The rank that the launcher gave it (`RANK`, `OMPI_COMM_WORLD_RANK`, `SLURM_PROCID`).
    pub rank: Option<u32>,
    /// How many ranks the launcher started.
    pub ranks: Option<u32>,
    /// The process's id, as the operating system numbers it.
    pub pid: u32,
    /// The machine's name; `unknown` if it has none.
    pub host: String,
    /// The command line of the process, a word each.
    pub command: Vec<String>,
    /// The run that it belongs to: the same in all files of a recording.
    pub run: String,
    /// Whether its calls of the driver are recorded by which a program waits, orders, copies and allocates. Older
    /// recorders left them out.
    #[serde(default)]
    pub driver: bool,
    /// When it began: nanoseconds since 1970. Times of events are nanoseconds since this.
    pub began: u64,
    /// When it began by a clock that nobody sets. Older recorders did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningTime>,
    /// The version of rankcheck that wrote it.
    pub recorder: String,
    /// When the process was last seen to run: nanoseconds since 1970. Not known of a file that was not packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<u64>,
    /// How long the file is, in bytes, so that it shows if its end is cut off. Not known of a file that was not packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A time of the kernel's clock that runs from when the machine was started (`CLOCK_MONOTONIC`): processes of one machine agree in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningTime {
    /// Nanoseconds of that clock.
    pub began: u64,
    /// Which start of which machine it is (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

/// The header of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The host thread, numbered from 0 in the order of first events.
    pub thread: u32,
    /// The extents of a thread are numbered from 0.
    pub sequence: u32,
    /// Bytes from one extent to the next, this header included.
    pub length: u32,
    /// Bytes of events; 0 while it is written.
    pub used: u32,
    /// CRC-32 of the events, once `used` is there.
    pub checksum: u32,
    /// Of the first event: nanoseconds since the process began.
    pub time: u64,
}

impl Extent {
    /// Returns the header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; EXTENT_HEADER_BYTES] {
        let mut bytes = [0; EXTENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&EXTENT_MAGIC);
        for (at, word) in
            [self.thread, self.sequence, self.length, self.used, self.checksum].into_iter().enumerate()
        {
            bytes[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }

    /// From bytes; `None` if they are no extent's.
    #[must_use]
    pub fn decode(bytes: &[u8; EXTENT_HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let time = u64::from(word(24)) | u64::from(word(28)) << 32;
        (bytes[0..4] == EXTENT_MAGIC).then_some(Self {
            thread: word(4),
            sequence: word(8),
            length: word(12),
            used: word(16),
            checksum: word(20),
            time,
        })
    }
}

/// The file's header as bytes, or `None` if it is too long.
#[must_use]
pub fn encode_header(header: &Header) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(header).expect("a header is plain data");
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(json.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&json);
    if bytes.len() > HEADER_BYTES {
        return None;
    }
    bytes.resize(HEADER_BYTES, 0);
    Some(bytes)
}
