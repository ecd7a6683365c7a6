//! Recordings of processes that never ran, written with the real writer: a few lines for each rank.
//!
//! Not here: what is found in them.

use std::path::{Path, PathBuf};

use rankcheck_recording::layout::encode_header;
use rankcheck_recording::{EventWriter, ExtentStream, Field, Header, Signature};

/// `ncclFloat32`, as the argument `dtype` is recorded.
pub const F32: u64 = 7;
/// `NCCL_WIN_COLL_SYMMETRIC`, as the argument `flags` is recorded.
pub const SYMMETRIC: u64 = 1;

/// The processes of a run.
pub struct Run {
    /// One process for each rank, indexed by rank.
    pub ranks: Vec<Process>,
}

/// The file of one process, while it is written.
pub struct Process {
    /// What the file says of itself.
    pub header: Header,
    threads: Vec<EventWriter<ExtentStream<Vec<u8>>>>,
    /// The thread that calls.
    pub thread: usize,
    /// Nanoseconds since the process began.
    pub time: u64,
    handles: u64,
    /// The values that were written so far: the call and the name of the value.
    pub values: Vec<(&'static str, &'static str)>,
    /// The index of a value that is written as not known.
    pub forgotten: Option<usize>,
}

macro_rules! signature {
    ($name:literal $(, $key:literal)*) => {{
        const SIGNATURE: Signature = Signature { name: $name, keys: &[$($key),*], instant: false };
        &SIGNATURE
    }};
}

// It needs the macro.
mod graphs;

const PROCESS: Signature =
    Signature { name: "process", keys: &["rank", "ranks", "nccl_version", "torch_version"], instant: true };
const WINDOW: Signature = Signature { name: "ncclGroupEnd.window", keys: &["window"], instant: true };
const HOST_FUNCTION: Signature = Signature { name: "host_function", keys: &["function"], instant: true };
const EXIT: Signature = Signature { name: "exit", keys: &["code"], instant: true };
const EXCEPTION: Signature =
    Signature { name: "exception", keys: &["type", "message", "place"], instant: true };
const COMMUNICATOR: Signature = Signature {
    name: "communicator",
    keys: &["comm", "id", "rank", "ranks", "collectives", "set_ups"],
    instant: true,
};
const FAILED: Signature = Signature { name: "failed", keys: &["code"], instant: false };
const PYTHON: Signature = Signature { name: "torch.distributed.step", keys: &["place"], instant: false };

impl Run {
    /// Processes that have not called anything.
    ///
    /// # Panics
    /// Never with the few ranks of tests.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        let process = |rank| {
            let header = Header {
                running: None,
                rank: Some(rank),
                ranks: Some(ranks),
                pid: 100 + rank,
                run: "a run".to_owned(),
                began: 1_000_000_000,
                driver: true,
                ..Header::default()
            };
            let mut process = Process {
                header,
                threads: Vec::new(),
                thread: 0,
                time: 0,
                handles: 0x7f00_0000_0000 + (u64::from(rank) << 32),
                values: Vec::new(),
                forgotten: None,
            };
            let (rank, ranks) = (Field::Number(rank.into()), Field::Number(ranks.into()));
            process.note(&PROCESS, &[rank, ranks, Field::Number(22_809), Field::None]);
            process
        };
        Self { ranks: (0..ranks).map(process).collect() }
    }

    /// Every rank does the same; the function is given its number.
    pub fn all(&mut self, mut each: impl FnMut(&mut Process, u32)) {
        for (rank, process) in (0..).zip(&mut self.ranks) {
            each(process, rank);
        }
    }

    /// Every rank says that it ends.
    pub fn exit(&mut self) {
        self.all(|process, _| process.exit());
    }

    /// Writes the files into a directory, which is there as long as the result.
    ///
    /// # Panics
    /// If the directory for temporary files cannot be written to.
    #[must_use]
    pub fn save(self, name: &str) -> Saved {
        let folder = std::env::temp_dir().join(format!("rankcheck-run-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be written");
        for (rank, process) in (0..).zip(self.ranks) {
            process.save(&folder.join(format!("rankrec.{rank}")));
        }
        Saved { folder }
    }
}

/// A directory of recordings; it goes when this goes.
pub struct Saved {
    /// The directory that holds a file of each process.
    pub folder: PathBuf,
}

impl Drop for Saved {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Process {
    /// Writes the file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn save(self, path: &Path) {
        let mut bytes = encode_header(&self.header).expect("a short header");
        for mut thread in self.threads {
            thread.finish();
            bytes.extend(thread.into_space().end().expect("memory takes everything"));
        }
        std::fs::write(path, bytes).expect("the directory was made");
    }

    fn writer(&mut self) -> &mut EventWriter<ExtentStream<Vec<u8>>> {
        while self.threads.len() <= self.thread {
            let number = u32::try_from(self.threads.len()).expect("few threads");
            self.threads.push(EventWriter::new(ExtentStream::new(Vec::new()), number, 0));
        }
        &mut self.threads[self.thread]
    }

    fn tick(&mut self) -> u64 {
        self.time += 1000;
        self.time
    }

    /// Returns a pointer that the process did not have yet.
    pub fn handle(&mut self) -> u64 {
        self.handles += 0x100;
        self.handles
    }

    fn note(&mut self, signature: &Signature, fields: &[Field<'_>]) {
        let (time, fields) = (self.tick(), self.told(signature, fields));
        self.writer().enter(time, signature, &fields);
    }

    /// The fields as they are written: without the one that is forgotten.
    fn told<'a>(&mut self, signature: &Signature, fields: &[Field<'a>]) -> Vec<Field<'a>> {
        let first = self.values.len();
        self.values.extend(signature.keys.iter().map(|key| (signature.name, *key)));
        let told = |(at, field): (usize, &Field<'a>)| match self.forgotten {
            Some(forgotten) if forgotten == first + at => Field::None,
            Some(_) | None => *field,
        };
        fields.iter().enumerate().map(told).collect()
    }

    /// A call that is entered.
    pub fn enter(&mut self, signature: &Signature, fields: &[Field<'_>]) {
        self.note(signature, fields);
    }

    /// The innermost call returns.
    pub fn leave(&mut self) {
        let time = self.tick();
        self.writer().leave(time);
    }

    fn leave_with(&mut self, signature: &Signature, address: u64) {
        let (time, fields) = (self.tick(), self.told(signature, &[Field::Address(address)]));
        self.writer().leave_with(time, signature, &fields);
    }

    /// The innermost call returns an error.
    pub fn fails(&mut self, code: i64) {
        let time = self.tick();
        self.writer().leave_with(time, &FAILED, &[Field::Signed(code)]);
    }

    /// A call and its return.
    pub fn call(&mut self, signature: &Signature, fields: &[Field<'_>]) {
        self.enter(signature, fields);
        self.leave();
    }

    /// Calls from a line of Python.
    pub fn from(&mut self, loc: &str, calls: impl FnOnce(&mut Self)) {
        self.enter(&PYTHON, &[Field::Text(loc)]);
        calls(self);
        self.leave();
    }

    /// Calls from a line of Python, of which the last has not returned: neither has the line.
    pub fn from_open(&mut self, loc: &str, calls: impl FnOnce(&mut Self)) {
        self.enter(&PYTHON, &[Field::Text(loc)]);
        calls(self);
    }

    /// The process ends in order.
    pub fn exit(&mut self) {
        self.note(&EXIT, &[Field::Signed(0)]);
    }

    /// `ncclCommInitRankConfig` of a communicator that does not block.
    pub fn init_in_background(&mut self, id: u8, rank: u32, ranks: u32) -> u64 {
        let signature = signature!("ncclCommInitRankConfig", "id", "rank", "ranks", "blocking");
        let (rank, ranks) = (Field::Number(rank.into()), Field::Number(ranks.into()));
        self.enter(signature, &[Field::Bytes(&[id; 16]), rank, ranks, Field::Number(0)]);
        let comm = self.handle();
        self.leave_with(signature!("ncclCommInitRankConfig", "comm"), comm);
        comm
    }

    /// Enters `ncclCommInitRank`, with an id of sixteen such bytes.
    pub fn enter_init(&mut self, id: u8, rank: u32, ranks: u32) {
        let signature = signature!("ncclCommInitRank", "id", "rank", "ranks", "blocking");
        let fields = [
            Field::Bytes(&[id; 16]),
            Field::Number(rank.into()),
            Field::Number(ranks.into()),
            Field::Number(1),
        ];
        self.enter(signature, &fields);
    }

    /// `ncclCommInitRank` returns this communicator.
    pub fn leave_init(&mut self, comm: u64) {
        self.leave_with(signature!("ncclCommInitRank", "comm"), comm);
    }

    /// Records `ncclCommInitRank`, and returns the new communicator.
    pub fn init(&mut self, id: u8, rank: u32, ranks: u32) -> u64 {
        let comm = self.handle();
        self.enter_init(id, rank, ranks);
        self.leave_init(comm);
        comm
    }

    /// Records `ncclCommSplit`, and returns the child: null for a color below 0.
    pub fn split(&mut self, comm: u64, color: i64, key: i64) -> u64 {
        let signature = signature!("ncclCommSplit", "comm", "color", "key", "share");
        let fields = [Field::Address(comm), Field::Signed(color), Field::Signed(key), Field::Number(0)];
        self.enter(signature, &fields);
        let child = if color < 0 { 0 } else { self.handle() };
        self.leave_with(signature!("ncclCommSplit", "comm"), child);
        child
    }

    /// Notes a communicator that existed when the recording began, with its rank and size, and how many collectives and
    /// set-up events there had been.
    pub fn exists(
        &mut self,
        id: u8,
        (rank, ranks): (u32, u32),
        (collectives, set_ups): (Option<u64>, Option<u64>),
    ) -> u64 {
        let comm = self.handle();
        let number = |number: Option<u64>| number.map_or(Field::None, Field::Number);
        let id = [id; 16];
        let fields = [
            Field::Address(comm),
            Field::Bytes(&id),
            Field::Number(rank.into()),
            Field::Number(ranks.into()),
            number(collectives),
            number(set_ups),
        ];
        self.note(&COMMUNICATOR, &fields);
        comm
    }

    /// Enters `ncclCommDestroy`; it does not return yet.
    pub fn enter_destroy(&mut self, comm: u64) {
        self.enter(signature!("ncclCommDestroy", "comm"), &[Field::Address(comm)]);
    }

    /// Enters `ncclCommSplit`; it does not return yet.
    pub fn enter_split(&mut self, comm: u64, color: i64, key: i64) {
        let signature = signature!("ncclCommSplit", "comm", "color", "key", "share");
        let fields = [Field::Address(comm), Field::Signed(color), Field::Signed(key), Field::Number(0)];
        self.enter(signature, &fields);
    }

    /// Enters `torch.distributed.new_group` with these members at a location; it does not return yet.
    pub fn enter_new_group(&mut self, members: &str, loc: &str) {
        let fields = [Field::Text(members), Field::Number(0), Field::Text(loc)];
        self.enter(signature!("torch.distributed.new_group", "members", "local", "place"), &fields);
    }

    /// Calls inside a call of Python of this name, at a location.
    pub fn inside(&mut self, name: &'static str, loc: &str, calls: impl FnOnce(&mut Self)) {
        self.enter(&Signature { name, keys: &["place"], instant: false }, &[Field::Text(loc)]);
        calls(self);
        self.leave();
    }

    /// Notes the exception that ends the program.
    pub fn raises(&mut self, kind: &str, message: &str, loc: &str) {
        let fields = [Field::Text(kind), Field::Text(message), Field::Text(loc)];
        self.note(&EXCEPTION, &fields);
    }

    /// The process ends with a code.
    pub fn exit_with(&mut self, code: i64) {
        self.note(&EXIT, &[Field::Signed(code)]);
    }

    /// The process was seen to run for so long after what it did last.
    pub fn lives_for(&mut self, nanoseconds: u64) {
        self.header.alive = Some(self.header.began + self.time + nanoseconds);
    }

    /// Records `ncclCommDestroy`, as one call that succeeds.
    pub fn destroy(&mut self, comm: u64) {
        self.call(signature!("ncclCommDestroy", "comm"), &[Field::Address(comm)]);
    }

    /// Records `ncclCommAbort`, as one call that succeeds; no communicator is 0.
    pub fn abort(&mut self, comm: u64) {
        self.call(signature!("ncclCommAbort", "comm"), &[Field::Address(comm)]);
    }

    /// `ncclMemAlloc` returns this address.
    pub fn alloc_at(&mut self, bytes: u64, address: u64) -> u64 {
        self.enter(signature!("ncclMemAlloc", "bytes"), &[Field::Number(bytes)]);
        self.leave_with(signature!("ncclMemAlloc", "address"), address);
        address
    }

    /// Records `ncclMemAlloc`, and returns an address that no allocation had before.
    pub fn alloc(&mut self, bytes: u64) -> u64 {
        self.handles = self.handles.next_multiple_of(2 << 20) + bytes.next_multiple_of(2 << 20);
        let address = self.handles - bytes.next_multiple_of(2 << 20);
        self.alloc_at(bytes, address)
    }

    /// Records `ncclMemFree`, as one call that succeeds.
    pub fn free(&mut self, address: u64) {
        self.call(signature!("ncclMemFree", "address"), &[Field::Address(address)]);
    }

    /// An address for so many bytes at which nothing was yet.
    fn room(&mut self, bytes: u64) -> u64 {
        let address = self.handles.next_multiple_of(2 << 20);
        self.handles = address + bytes.next_multiple_of(2 << 20);
        address
    }

    /// `cudaMalloc` returns this address.
    pub fn malloc_at(&mut self, bytes: u64, address: u64) -> u64 {
        self.enter(signature!("cudaMalloc", "bytes"), &[Field::Number(bytes)]);
        self.leave_with(signature!("cudaMalloc", "address"), address);
        address
    }

    /// Records `cudaMalloc`, and returns an address that no allocation had before.
    pub fn malloc(&mut self, bytes: u64) -> u64 {
        let address = self.room(bytes);
        self.malloc_at(bytes, address)
    }

    /// Records `cudaFree`, as one call that succeeds.
    pub fn cuda_free(&mut self, address: u64) {
        self.call(signature!("cudaFree", "address"), &[Field::Address(address)]);
    }

    /// Records `cudaFree`, which returns this error.
    pub fn refused_free(&mut self, address: u64, code: i64) {
        self.enter(signature!("cudaFree", "address"), &[Field::Address(address)]);
        self.fails(code);
    }

    /// `cudaMallocAsync` on a stream returns this address.
    pub fn malloc_on(&mut self, bytes: u64, address: u64, stream: u64) -> u64 {
        let fields = [Field::Number(bytes), Field::Address(stream)];
        self.enter(signature!("cudaMallocAsync", "bytes", "stream"), &fields);
        self.leave_with(signature!("cudaMallocAsync", "address"), address);
        address
    }

    /// Records `cudaFreeAsync`, which returns at once.
    pub fn free_on(&mut self, address: u64, stream: u64) {
        let fields = [Field::Address(address), Field::Address(stream)];
        self.call(signature!("cudaFreeAsync", "address", "stream"), &fields);
    }

    /// `cudaIpcGetMemHandle` gives a handle of this digest.
    pub fn export(&mut self, address: u64, digest: u8) {
        self.enter(signature!("cudaIpcGetMemHandle", "address"), &[Field::Address(address)]);
        let signature = signature!("cudaIpcGetMemHandle", "handle");
        let digest = [digest; 16];
        let (time, fields) = (self.tick(), self.told(signature, &[Field::Bytes(&digest)]));
        self.writer().leave_with(time, signature, &fields);
    }

    /// `cudaIpcOpenMemHandle` of this digest returns this address.
    pub fn open_at(&mut self, digest: u8, address: u64) -> u64 {
        self.enter(signature!("cudaIpcOpenMemHandle", "handle"), &[Field::Bytes(&[digest; 16])]);
        self.leave_with(signature!("cudaIpcOpenMemHandle", "address"), address);
        address
    }

    /// `cudaIpcOpenMemHandle` of this digest, of memory of so many bytes.
    pub fn open(&mut self, digest: u8, bytes: u64) -> u64 {
        let address = self.room(bytes);
        self.open_at(digest, address)
    }

    /// Records `cudaIpcCloseMemHandle` of the address that an open returned.
    pub fn close(&mut self, address: u64) {
        self.call(signature!("cudaIpcCloseMemHandle", "address"), &[Field::Address(address)]);
    }

    /// `cudaMemPoolExportToShareableHandle` gives a handle of this digest.
    pub fn export_pool(&mut self, pool: u64, digest: u8) {
        self.enter(signature!("cudaMemPoolExportToShareableHandle", "pool"), &[Field::Address(pool)]);
        self.gives_handle(signature!("cudaMemPoolExportToShareableHandle", "handle"), digest);
    }

    /// `cudaMemPoolImportFromShareableHandle` of this digest returns this pool.
    pub fn import_pool(&mut self, digest: u8, pool: u64) {
        let signature = signature!("cudaMemPoolImportFromShareableHandle", "handle");
        self.enter(signature, &[Field::Bytes(&[digest; 16])]);
        self.leave_with(signature!("cudaMemPoolImportFromShareableHandle", "pool"), pool);
    }

    /// `cudaMallocFromPoolAsync` on the default stream returns this address.
    pub fn malloc_from_pool(&mut self, bytes: u64, address: u64, pool: u64) {
        let fields = [Field::Number(bytes), Field::Address(pool), Field::Address(0)];
        self.enter(signature!("cudaMallocFromPoolAsync", "bytes", "pool", "stream"), &fields);
        self.leave_with(signature!("cudaMallocFromPoolAsync", "address"), address);
    }

    /// `cudaMemPoolExportPointer` gives a handle of this digest.
    pub fn export_pointer(&mut self, address: u64, digest: u8) {
        self.enter(signature!("cudaMemPoolExportPointer", "address"), &[Field::Address(address)]);
        self.gives_handle(signature!("cudaMemPoolExportPointer", "handle"), digest);
    }

    /// `cudaMemPoolImportPointer` of this digest returns this address.
    pub fn import_pointer(&mut self, pool: u64, digest: u8, address: u64) {
        let fields = [Field::Address(pool), Field::Bytes(&[digest; 16])];
        self.enter(signature!("cudaMemPoolImportPointer", "pool", "handle"), &fields);
        self.leave_with(signature!("cudaMemPoolImportPointer", "address"), address);
    }

    fn gives_handle(&mut self, signature: &'static Signature, digest: u8) {
        let time = self.tick();
        self.writer().leave_with(time, signature, &[Field::Bytes(&[digest; 16])]);
    }

    /// `cudaIpcGetEventHandle` gives a handle of this digest.
    pub fn export_event(&mut self, event: u64, digest: u8) {
        self.enter(signature!("cudaIpcGetEventHandle", "event"), &[Field::Address(event)]);
        let time = self.tick();
        let signature = signature!("cudaIpcGetEventHandle", "handle");
        self.writer().leave_with(time, signature, &[Field::Bytes(&[digest; 16])]);
    }

    /// `cudaIpcOpenEventHandle` of this digest returns this event.
    pub fn open_event(&mut self, digest: u8, event: u64) {
        self.enter(signature!("cudaIpcOpenEventHandle", "handle"), &[Field::Bytes(&[digest; 16])]);
        self.leave_with(signature!("cudaIpcOpenEventHandle", "event"), event);
    }

    /// `cudaMemcpyAsync` on a device: to, from, bytes.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64, stream: u64) {
        let signature = signature!("cudaMemcpyAsync", "to", "from", "bytes", "kind", "stream");
        let fields = [
            Field::Address(to),
            Field::Address(from),
            Field::Number(bytes),
            Field::Number(3),
            Field::Address(stream),
        ];
        self.call(signature, &fields);
    }

    /// Enters `ncclCommWindowRegister` of symmetric memory; it does not return yet.
    pub fn enter_register(&mut self, comm: u64, address: u64, bytes: u64) {
        let signature = signature!("ncclCommWindowRegister", "comm", "address", "bytes", "flags");
        let fields =
            [Field::Address(comm), Field::Address(address), Field::Number(bytes), Field::Number(SYMMETRIC)];
        self.enter(signature, &fields);
    }

    /// Records `ncclCommWindowRegister` of symmetric memory, and returns the window.
    pub fn register(&mut self, comm: u64, address: u64, bytes: u64) -> u64 {
        self.enter_register(comm, address, bytes);
        let window = self.handle();
        self.leave_with(signature!("ncclCommWindowRegister", "window"), window);
        window
    }

    /// Registrations of addresses and lengths in one group: their windows are noted when it ends.
    pub fn register_grouped(&mut self, comm: u64, memory: &[(u64, u64)]) -> Vec<u64> {
        self.group(|process| {
            for (address, bytes) in memory {
                process.enter_register(comm, *address, *bytes);
                let time = process.tick();
                let signature = signature!("ncclCommWindowRegister", "window");
                process.writer().leave_with(time, signature, &[Field::None]);
            }
        });
        let windows: Vec<u64> = memory.iter().map(|_| self.handle()).collect();
        for window in &windows {
            self.note(&WINDOW, &[Field::Address(*window)]);
        }
        windows
    }

    /// Records `ncclCommWindowDeregister`, as one call that succeeds.
    pub fn deregister(&mut self, comm: u64, window: u64) {
        let fields = [Field::Address(comm), Field::Address(window)];
        self.call(signature!("ncclCommWindowDeregister", "comm", "window"), &fields);
    }

    /// Enters `ncclAllReduce`, in place, of f32.
    pub fn enter_all_reduce(&mut self, comm: u64, address: u64, count: u64, stream: u64) {
        let signature = signature!("ncclAllReduce", "send", "recv", "count", "dtype", "op", "comm", "stream");
        let fields = [
            Field::Address(address),
            Field::Address(address),
            Field::Number(count),
            Field::Number(F32),
            Field::Number(0),
            Field::Address(comm),
            Field::Address(stream),
        ];
        self.enter(signature, &fields);
    }

    /// `ncclAllReduce`, in place, of f32.
    pub fn all_reduce(&mut self, comm: u64, address: u64, count: u64, stream: u64) {
        self.enter_all_reduce(comm, address, count, stream);
        self.leave();
    }

    /// Records `ncclAllGather` of `count` f32 from each rank.
    pub fn all_gather(&mut self, comm: u64, (send, recv): (u64, u64), count: u64, stream: u64) {
        let signature = signature!("ncclAllGather", "send", "recv", "count", "dtype", "comm", "stream");
        self.moves(signature, comm, (send, recv), count, stream);
    }

    /// Records `ncclAlltoAll` of so many f32 for each rank, in place.
    pub fn all_to_all(&mut self, comm: u64, buffer: u64, count: u64, stream: u64) {
        let signature = signature!("ncclAlltoAll", "send", "recv", "count", "dtype", "comm", "stream");
        self.moves(signature, comm, (buffer, buffer), count, stream);
    }

    /// A collective of f32 that neither reduces nor has a root.
    fn moves(&mut self, signature: &Signature, comm: u64, (send, recv): (u64, u64), count: u64, stream: u64) {
        let fields = [
            Field::Address(send),
            Field::Address(recv),
            Field::Number(count),
            Field::Number(F32),
            Field::Address(comm),
            Field::Address(stream),
        ];
        self.call(signature, &fields);
    }

    /// `ncclReduce` of f32: send, recv, and the root.
    pub fn reduce(&mut self, comm: u64, (send, recv): (u64, u64), count: u64, (root, stream): (u64, u64)) {
        let signature =
            signature!("ncclReduce", "send", "recv", "count", "dtype", "op", "root", "comm", "stream");
        let fields = [
            Field::Address(send),
            Field::Address(recv),
            Field::Number(count),
            Field::Number(F32),
            Field::Number(0),
            Field::Number(root),
            Field::Address(comm),
            Field::Address(stream),
        ];
        self.call(signature, &fields);
    }

    /// Records `ncclSend` of f32, to a peer on a communicator and a stream.
    pub fn send(&mut self, address: u64, count: u64, to: (u32, u64, u64)) {
        let signature = signature!("ncclSend", "address", "count", "dtype", "peer", "comm", "stream");
        self.call(signature, &transfer(address, count, to));
    }

    /// Records `ncclRecv` of f32, from a peer on a communicator and a stream.
    pub fn recv(&mut self, address: u64, count: u64, from: (u32, u64, u64)) {
        let signature = signature!("ncclRecv", "address", "count", "dtype", "peer", "comm", "stream");
        self.call(signature, &transfer(address, count, from));
    }

    /// Enters `ncclRecv` of f32; it does not return yet.
    pub fn enter_recv(&mut self, address: u64, count: u64, from: (u32, u64, u64)) {
        let signature = signature!("ncclRecv", "address", "count", "dtype", "peer", "comm", "stream");
        self.enter(signature, &transfer(address, count, from));
    }

    /// Calls between `ncclGroupStart` and `ncclGroupEnd`.
    pub fn group(&mut self, calls: impl FnOnce(&mut Self)) {
        self.call(signature!("ncclGroupStart"), &[]);
        calls(self);
        self.call(signature!("ncclGroupEnd"), &[]);
    }

    /// Calls of a group whose end does not return yet.
    pub fn enter_group(&mut self, calls: impl FnOnce(&mut Self)) {
        self.call(signature!("ncclGroupStart"), &[]);
        calls(self);
        self.enter(signature!("ncclGroupEnd"), &[]);
    }

    /// Records `cudaStreamCreateWithFlags`, and returns the non-blocking stream.
    pub fn stream(&mut self) -> u64 {
        self.stream_with(1)
    }

    /// Records `cudaStreamCreateWithFlags` of a stream that waits for the legacy default stream, and that waits for it.
    pub fn blocking_stream(&mut self) -> u64 {
        self.stream_with(0)
    }

    fn stream_with(&mut self, flags: u64) -> u64 {
        let stream = self.handle();
        self.enter(signature!("cudaStreamCreateWithFlags", "flags"), &[Field::Number(flags)]);
        self.leave_with(signature!("cudaStreamCreateWithFlags", "stream"), stream);
        stream
    }

    /// Enters `cudaStreamSynchronize`; it does not return yet.
    pub fn enter_synchronize(&mut self, stream: u64) {
        self.enter(signature!("cudaStreamSynchronize", "stream"), &[Field::Address(stream)]);
    }

    /// Records `cudaStreamSynchronize`, which returns at once.
    pub fn synchronize(&mut self, stream: u64) {
        self.enter_synchronize(stream);
        self.leave();
    }

    /// `Store.get` of Python at a location; it does not return.
    pub fn enter_store_get(&mut self, key: &str, loc: &str) {
        let fields = [Field::Text(key), Field::Text(loc)];
        self.enter(signature!("torch.distributed.Store.get", "key", "place"), &fields);
    }

    /// Records `Store.set` of Python, without a location.
    pub fn store_set(&mut self, key: &str) {
        self.call(signature!("torch.distributed.Store.set", "key"), &[Field::Text(key)]);
    }

    /// Records `cudaEventRecord`, of an event that need not have been made.
    pub fn record(&mut self, event: u64, stream: u64) {
        let fields = [Field::Varying(event), Field::Address(stream)];
        self.call(signature!("cudaEventRecord", "event", "stream"), &fields);
    }

    /// Records `cudaStreamWaitEvent` of what was recorded last.
    pub fn wait(&mut self, stream: u64, event: u64) {
        let fields = [Field::Address(stream), Field::Varying(event)];
        self.call(signature!("cudaStreamWaitEvent", "stream", "event"), &fields);
    }

    /// `cudaEventQuery` that says "not yet".
    pub fn query_not_ready(&mut self, event: u64) {
        self.enter(signature!("cudaEventQuery", "event"), &[Field::Address(event)]);
        self.fails(600);
    }

    /// `cudaEventQuery` that says "done".
    pub fn query_done(&mut self, event: u64) {
        self.call(signature!("cudaEventQuery", "event"), &[Field::Varying(event)]);
    }

    /// Records `cudaStreamBeginCapture`, in the mode of the calling thread.
    pub fn begin_capture(&mut self, stream: u64) {
        let fields = [Field::Address(stream), Field::Number(1)];
        self.call(signature!("cudaStreamBeginCapture", "stream", "mode"), &fields);
    }

    /// Records `cudaStreamEndCapture`, and returns the graph.
    pub fn end_capture(&mut self, stream: u64) -> u64 {
        let graph = self.handle();
        self.enter(signature!("cudaStreamEndCapture", "stream"), &[Field::Address(stream)]);
        self.leave_with(signature!("cudaStreamEndCapture", "graph"), graph);
        graph
    }

    /// `cudaStreamEndCapture` returns this error.
    pub fn end_capture_fails(&mut self, stream: u64, code: i64) {
        self.enter(signature!("cudaStreamEndCapture", "stream"), &[Field::Address(stream)]);
        self.fails(code);
    }

    /// A capture of calls on a stream; what can be launched of it.
    pub fn capture(&mut self, stream: u64, calls: impl FnOnce(&mut Self)) -> u64 {
        self.begin_capture(stream);
        calls(self);
        let (graph, executable) = (self.end_capture(stream), self.handle());
        self.enter(signature!("cudaGraphInstantiate", "graph"), &[Field::Address(graph)]);
        self.leave_with(signature!("cudaGraphInstantiate", "executable"), executable);
        executable
    }

    /// Records `cudaGraphLaunch` of what an instantiation returned.
    pub fn replay(&mut self, executable: u64, stream: u64) {
        let fields = [Field::Address(executable), Field::Address(stream)];
        self.call(signature!("cudaGraphLaunch", "executable", "stream"), &fields);
    }

    /// Records `cudaGraphExecDestroy`, as one call that succeeds.
    pub fn destroy_graph(&mut self, executable: u64) {
        self.call(signature!("cudaGraphExecDestroy", "executable"), &[Field::Address(executable)]);
    }

    /// `ncclCommInitAll` of so many devices: returns the communicator if it is one.
    pub fn init_all(&mut self, ranks: u32) -> u64 {
        self.enter(signature!("ncclCommInitAll", "ranks"), &[Field::Number(ranks.into())]);
        let (signature, comm, time) = (signature!("ncclCommInitAll", "comm"), self.handle(), self.tick());
        let made = if ranks == 1 { Field::Address(comm) } else { Field::None };
        self.writer().leave_with(time, signature, &[made]);
        comm
    }

    /// Makes a device current for the thread.
    pub fn set_device(&mut self, device: u32) {
        self.call(signature!("cudaSetDevice", "device"), &[Field::Number(device.into())]);
    }

    /// A buffer of 1 MiB and a stream on each device.
    pub fn buffers_on<const N: usize>(&mut self, devices: [u32; N]) -> [(u64, u64); N] {
        devices.map(|device| {
            self.set_device(device);
            (self.malloc(1 << 20), self.stream())
        })
    }

    /// A group of all-reduces, one on each communicator with its buffer and stream, of so many f32.
    pub fn all_reduce_on_each(&mut self, comms: &[u64], buffers: &[(u64, u64)], counts: &[u64]) {
        self.group(|process| {
            for ((comm, (buffer, stream)), count) in comms.iter().zip(buffers).zip(counts) {
                process.all_reduce(*comm, *buffer, *count, *stream);
            }
        });
    }

    /// Makes a context of the driver current for the thread.
    pub fn set_context(&mut self, context: u64) {
        self.call(signature!("cuCtxSetCurrent", "context"), &[Field::Address(context)]);
    }

    /// `cuDevicePrimaryCtxRetain`: returns the context of a device.
    pub fn context(&mut self, device: u32) -> u64 {
        let context = self.handle();
        self.enter(signature!("cuDevicePrimaryCtxRetain", "device"), &[Field::Number(device.into())]);
        self.leave_with(signature!("cuDevicePrimaryCtxRetain", "context"), context);
        context
    }

    /// `ncclCommInitAll` of these devices: returns their communicators.
    pub fn init_on(&mut self, devices: &[u32]) -> Vec<u64> {
        let comms: Vec<u64> = devices.iter().map(|_| self.handle()).collect();
        let bytes: Vec<u8> = devices.iter().flat_map(|device| device.to_le_bytes()).collect();
        let ranks = Field::Number(devices.len() as u64);
        self.enter(signature!("ncclCommInitAll", "ranks", "devices"), &[ranks, Field::Bytes(&bytes)]);
        let made: Vec<u8> = comms.iter().flat_map(|comm| comm.to_le_bytes()).collect();
        let signature = signature!("ncclCommInitAll", "comm", "comms");
        let (time, fields) = (self.tick(), [Field::None, Field::Bytes(&made)]);
        self.writer().leave_with(time, signature, &fields);
        comms
    }

    /// A graph that is put together of a kernel, and maybe another node; returns what can be launched of it.
    pub fn put_together(&mut self, other: bool) -> u64 {
        let (graph, executable) = (self.handle(), self.handle());
        self.enter(signature!("cuGraphCreate"), &[]);
        self.leave_with(signature!("cuGraphCreate", "graph"), graph);
        self.call(signature!("cuGraphAddKernelNode", "graph"), &[Field::Address(graph)]);
        if other {
            self.call(signature!("cuGraphAddNode", "graph"), &[Field::Address(graph)]);
        }
        self.enter(signature!("cuGraphInstantiate", "graph"), &[Field::Address(graph)]);
        self.leave_with(signature!("cuGraphInstantiate", "executable"), executable);
        executable
    }

    /// Records `cudaLaunchHostFunc`: the stream calls a function when it gets there.
    pub fn host_function(&mut self, stream: u64) {
        self.call(signature!("cudaLaunchHostFunc", "stream"), &[Field::Address(stream)]);
    }

    /// Records `cudaLaunchHostFunc` of a function that is noted when it runs.
    pub fn watched_function(&mut self, stream: u64, function: u64) {
        let fields = [Field::Address(stream), Field::Varying(function)];
        self.call(signature!("cudaLaunchHostFunc", "stream", "function"), &fields);
    }

    /// Notes that such a function runs.
    pub fn function_runs(&mut self, function: u64) {
        self.note(&HOST_FUNCTION, &[Field::Varying(function)]);
    }

    /// Records `cuLaunchKernel`, of which nothing is known.
    pub fn driver_kernel(&mut self, stream: u64) {
        let fields = [Field::Address(0x10), Field::Address(stream)];
        self.call(signature!("cuLaunchKernel", "function", "stream"), &fields);
    }

    /// A kernel, of which nothing is known.
    pub fn kernel(&mut self, stream: u64) {
        let fields = [Field::Address(0x10), Field::Address(stream)];
        self.call(signature!("cudaLaunchKernel", "function", "stream"), &fields);
    }
}

/// What a transfer of f32 is given, with its peer, its communicator and its stream.
fn transfer(address: u64, count: u64, (peer, comm, stream): (u32, u64, u64)) -> [Field<'static>; 6] {
    [
        Field::Address(address),
        Field::Number(count),
        Field::Number(F32),
        Field::Number(peer.into()),
        Field::Address(comm),
        Field::Address(stream),
    ]
}
