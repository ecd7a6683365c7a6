//! Flight Recorder dumps of jobs that never ran: calls are counted and numbered as `ProcessGroupNCCL` does it, and
//! written as torch's pickler, Python's or torch's JSON writes them.
//!
//! ```text
//! let mut run = DumpedRun::new(4);
//! let pair = run.group("PIPELINE", &[0, 2]);
//! let send = run.send(0, pair, 2, &Call::new("").tensor(&[8, 16]));
//! run.complete(0, send);
//! run.save("name", Written::Torch)
//! ```
//! Not here: what is found in them.

pub mod logged;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::damage::Random;

/// How a dump is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// As torch's C++ pickler writes it.
    Torch,
    /// As Python's pickler writes the same data, by a protocol from 2 to 5.
    Python(u8),
    /// As torch's JSON.
    Json,
    /// As torchcomms' JSON.
    Torchcomms,
}

/// A job whose processes write dumps.
#[derive(Debug, Clone)]
pub struct DumpedRun {
    /// The processes, by rank.
    pub ranks: Vec<DumpedRank>,
    groups: Vec<RunGroup>,
    /// The second number of the version; the first is 2.
    pub minor: u32,
    /// How many calls a ring keeps.
    pub ring: usize,
    /// Whether only calls that did not complete are written.
    pub active_only: bool,
    /// Whether stacks are written. JSON never has them.
    pub stacks: bool,
    /// Nanoseconds; each call and each event takes a thousand.
    pub time: i64,
    /// The version of NCCL.
    pub nccl: &'static str,
    /// Whether a batch of transfers counts as a collective, and not as a transfer: until torch 2.5.
    pub batches_raise_collectives: bool,
    /// Whether the status names groups in which nothing was called: by -1.
    pub status_of_unused: bool,
}

/// A group of a job, by the order in which they were made; 0 has all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunGroupAt(pub usize);

#[derive(Debug, Clone)]
struct RunGroup {
    name: String,
    desc: String,
    ranks: Vec<u32>,
}

/// One process of a job.
#[derive(Debug, Clone, Default)]
pub struct DumpedRank {
    /// Everything that it called, oldest first. Tests may change what they like.
    pub calls: Vec<DumpedCall>,
    /// What it counts for each group that it is in; a group's place is its `pg_id`.
    counts: Vec<(RunGroupAt, Counts)>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    collectives: u64,
    transfers: u64,
    calls: u64,
    enqueued: i64,
    completed: i64,
    /// The bracket that is open, if one is.
    bracket: Option<Bracket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Empty,
    Collectives,
    Transfers,
}

/// What is called: the word of the operation, its tensors and its place.
#[derive(Debug, Clone)]
pub struct Call {
    /// The operation in torch's words (`all_reduce`, `_all_gather_base`); of transfers it is not looked at.
    pub word: String,
    /// The sizes of each tensor that goes in.
    pub inputs: Vec<Vec<i64>>,
    /// The sizes of each tensor that comes out.
    pub outputs: Vec<Vec<i64>>,
    /// The type of all their elements.
    pub dtype: &'static str,
    /// Function, file and line, innermost first.
    pub frames: Vec<(&'static str, &'static str, u32)>,
    /// The name of the thread that calls.
    pub thread: &'static str,
}

/// A call that was made.
#[derive(Debug, Clone)]
pub struct DumpedCall {
    /// What was called.
    pub call: Call,
    /// The whole `profiling_name`.
    pub name: String,
    /// The number of its group in its process.
    pub pg_id: usize,
    group: RunGroupAt,
    /// The number of the launch of collectives in its group.
    pub collective_seq_id: u64,
    /// The number of the launch of transfers in its group.
    pub p2p_seq_id: u64,
    /// The number of the call in its group.
    pub op_id: u64,
    /// Whether it is a transfer.
    pub is_p2p: bool,
    /// When it was called.
    pub created: i64,
    /// When it was seen to have begun.
    pub started: Option<i64>,
    /// When it was seen to have ended.
    pub completed: Option<i64>,
    /// Whether the watchdog is done with it.
    pub retired: bool,
}

impl Call {
    /// A call without tensors, from line 1 of `train.py`.
    #[must_use]
    pub fn new(word: &str) -> Self {
        let frames = vec![("wrapper", "/torch/distributed/c10d_logger.py", 83), ("step", "train.py", 1)];
        let word = word.to_owned();
        Self { word, inputs: Vec::new(), outputs: Vec::new(), dtype: "BFloat16", frames, thread: "python3" }
    }

    /// A tensor goes in and out.
    #[must_use]
    pub fn tensor(self, sizes: &[i64]) -> Self {
        self.input(sizes).output(sizes)
    }

    /// One more tensor goes in.
    #[must_use]
    pub fn input(mut self, sizes: &[i64]) -> Self {
        self.inputs.push(sizes.to_vec());
        self
    }

    /// One more tensor comes out.
    #[must_use]
    pub fn output(mut self, sizes: &[i64]) -> Self {
        self.outputs.push(sizes.to_vec());
        self
    }

    /// The elements are of another type than `BFloat16`.
    #[must_use]
    pub fn dtype(self, dtype: &'static str) -> Self {
        Self { dtype, ..self }
    }

    /// Another line of `train.py` calls it.
    #[must_use]
    pub fn line(mut self, line: u32) -> Self {
        self.frames.last_mut().expect("a call has a place").2 = line;
        self
    }

    /// Another thread calls it.
    #[must_use]
    pub fn thread(self, thread: &'static str) -> Self {
        Self { thread, ..self }
    }
}

impl DumpedRank {
    /// Whether a call is inside of a bracket, whose end has the state.
    fn is_inside(&self, call: usize) -> bool {
        let one = &self.calls[call];
        let is_end = |call: &DumpedCall| call.name.ends_with("coalesced");
        let launch = |call: &DumpedCall| (call.group, call.collective_seq_id, call.p2p_seq_id);
        !is_end(one) && self.calls[call..].iter().any(|end| is_end(end) && launch(end) == launch(one))
    }
}

/// A sum over all ranks of a group, of so many elements.
#[must_use]
pub fn sum(size: i64) -> Call {
    Call::new("all_reduce").tensor(&[size])
}

/// A job of some ranks that did three collectives together, which are over.
#[must_use]
pub fn begun(ranks: u32) -> DumpedRun {
    let mut run = DumpedRun::new(ranks);
    let all = run.all();
    for line in 1..=3 {
        run.everywhere(all, &sum(64).line(line));
    }
    run.complete_everything();
    run
}

impl DumpedRun {
    /// Processes that have not called anything, in one group.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        let mut run = Self {
            ranks: (0..ranks).map(|_| DumpedRank::default()).collect(),
            groups: Vec::new(),
            minor: 10,
            ring: 2_000,
            active_only: false,
            stacks: true,
            time: 1_700_000_000_000_000_000,
            nccl: "2.27.3",
            batches_raise_collectives: false,
            status_of_unused: false,
        };
        run.group("default_pg", &(0..ranks).collect::<Vec<_>>());
        run
    }

    /// The group of all ranks.
    #[must_use]
    pub const fn all(&self) -> RunGroupAt {
        RunGroupAt(0)
    }

    /// Makes a group; its name is the next number.
    pub fn group(&mut self, desc: &str, ranks: &[u32]) -> RunGroupAt {
        self.named_group(&self.groups.len().to_string(), desc, ranks)
    }

    /// Makes a group with a name, which another group of other ranks may have too, as after `split_group`.
    pub fn named_group(&mut self, name: &str, desc: &str, ranks: &[u32]) -> RunGroupAt {
        let at = RunGroupAt(self.groups.len());
        self.groups.push(RunGroup { name: name.to_owned(), desc: desc.to_owned(), ranks: ranks.to_vec() });
        let counts =
            Counts { collectives: 0, transfers: 0, calls: 0, enqueued: -1, completed: -1, bracket: None };
        for rank in ranks {
            self.ranks[*rank as usize].counts.push((at, counts));
        }
        at
    }

    /// The ranks of a group.
    #[must_use]
    pub fn ranks_of(&self, group: RunGroupAt) -> &[u32] {
        &self.groups[group.0].ranks
    }

    fn tick(&mut self) -> i64 {
        self.time += 1_000;
        self.time
    }

    fn counts(&mut self, rank: u32, group: RunGroupAt) -> (usize, &mut Counts) {
        let counts = &mut self.ranks[rank as usize].counts;
        let found = counts.iter_mut().enumerate().find(|(_, (at, _))| *at == group);
        let (pg_id, (_, counts)) = found.expect("only members of a group call it");
        (pg_id, counts)
    }

    /// The rank that a rank of the job has in a group.
    fn rank_in(&self, group: RunGroupAt, rank: u32) -> usize {
        let found = self.groups[group.0].ranks.iter().position(|member| *member == rank);
        found.expect("only members of a group call it")
    }

    /// Calls a collective. Returns the call's place among the calls of the rank.
    pub fn collective(&mut self, rank: u32, group: RunGroupAt, call: &Call) -> usize {
        self.call(rank, group, format!("nccl:{}", call.word), call, false)
    }

    /// Every rank of a group calls the same. Returns the places of the calls, in the order of the group.
    pub fn everywhere(&mut self, group: RunGroupAt, call: &Call) -> Vec<usize> {
        let ranks = self.groups[group.0].ranks.clone();
        ranks.into_iter().map(|rank| self.collective(rank, group, call)).collect()
    }

    /// Sends to a rank of the job.
    pub fn send(&mut self, rank: u32, group: RunGroupAt, to: u32, call: &Call) -> usize {
        let name = format!("nccl:send {}->{}", self.rank_in(group, rank), self.rank_in(group, to));
        self.call(rank, group, name, call, true)
    }

    /// Receives from a rank of the job.
    pub fn recv(&mut self, rank: u32, group: RunGroupAt, from: u32, call: &Call) -> usize {
        let name = format!("nccl:recv {}<-{}", self.rank_in(group, rank), self.rank_in(group, from));
        self.call(rank, group, name, call, true)
    }

    /// Opens a bracket: the next calls of the rank in this group are launched as one.
    pub fn begin_bracket(&mut self, rank: u32, group: RunGroupAt) {
        self.counts(rank, group).1.bracket = Some(Bracket::Empty);
    }

    /// Closes a bracket. Returns the place of its end, which alone is started and completed.
    ///
    /// # Panics
    /// If no bracket is open, or nothing was called in it.
    pub fn end_bracket(&mut self, rank: u32, group: RunGroupAt) -> usize {
        let bracket = self.counts(rank, group).1.bracket.take().expect("a bracket is open");
        assert!(bracket != Bracket::Empty, "torch writes no end of a bracket without calls");
        let call = Call::new("coalesced");
        self.write_down(rank, group, "nccl:coalesced".to_owned(), &call, bracket == Bracket::Transfers, true)
    }

    fn call(&mut self, rank: u32, group: RunGroupAt, name: String, call: &Call, is_p2p: bool) -> usize {
        let raises_collectives = self.batches_raise_collectives;
        let counts = self.counts(rank, group).1;
        counts.calls += 1;
        let kind = if is_p2p { Bracket::Transfers } else { Bracket::Collectives };
        // A bracket counts once, at its first call.
        if counts.bracket != Some(kind) {
            let as_transfer = is_p2p && !(raises_collectives && counts.bracket.is_some());
            *(if as_transfer { &mut counts.transfers } else { &mut counts.collectives }) += 1;
        }
        counts.bracket = counts.bracket.map(|_| kind);
        let alone = counts.bracket.is_none();
        self.write_down(rank, group, name, call, is_p2p, alone)
    }

    /// Writes an entry; `enqueued` if it is a launch of its own.
    fn write_down(
        &mut self,
        rank: u32,
        group: RunGroupAt,
        name: String,
        call: &Call,
        is_p2p: bool,
        enqueued: bool,
    ) -> usize {
        let created = self.tick();
        let (pg_id, counts) = self.counts(rank, group);
        if enqueued {
            counts.enqueued = (if is_p2p { counts.transfers } else { counts.collectives }).cast_signed();
        }
        let call = DumpedCall {
            call: call.clone(),
            name,
            pg_id,
            group,
            collective_seq_id: counts.collectives,
            p2p_seq_id: counts.transfers,
            op_id: counts.calls,
            is_p2p,
            created,
            started: None,
            completed: None,
            retired: false,
        };
        let calls = &mut self.ranks[rank as usize].calls;
        calls.push(call);
        calls.len() - 1
    }

    /// A call is seen to have begun on the device.
    pub fn start(&mut self, rank: u32, call: usize) {
        let time = self.tick();
        self.ranks[rank as usize].calls[call].started = Some(time);
    }

    /// A call is seen to have ended, and the watchdog puts it away.
    pub fn complete(&mut self, rank: u32, call: usize) {
        let time = self.tick();
        let call = &mut self.ranks[rank as usize].calls[call];
        (call.completed, call.retired) = (Some(time), true);
        let number = if call.is_p2p { call.p2p_seq_id } else { call.collective_seq_id };
        let group = call.group;
        self.counts(rank, group).1.completed = number.cast_signed();
    }

    /// Every call of every rank is seen to have ended, apart from those inside of brackets.
    pub fn complete_everything(&mut self) {
        for rank in 0..u32::try_from(self.ranks.len()).expect("few ranks") {
            for call in 0..self.ranks[rank as usize].calls.len() {
                let process = &self.ranks[rank as usize];
                if process.calls[call].completed.is_none() && !process.is_inside(call) {
                    self.complete(rank, call);
                }
            }
        }
    }

    /// The watchdog of each process finds the oldest call that is not over to be so for longer than it may be, and gives
    /// it up.
    pub fn give_up(&mut self) {
        for process in &mut self.ranks {
            let open = |call: &usize| process.calls[*call].completed.is_none() && !process.is_inside(*call);
            if let Some(call) = (0..process.calls.len()).find(open) {
                process.calls[call].retired = true;
            }
        }
    }

    /// The dump of one rank, as data.
    #[must_use]
    pub fn datum(&self, rank: u32) -> Datum {
        let text = |text: &str| Datum::Text(text.to_owned());
        let process = &self.ranks[rank as usize];
        let (mut config, mut status) = (Vec::new(), Vec::new());
        for (pg_id, (group, counts)) in process.counts.iter().enumerate() {
            let RunGroup { name, desc, ranks } = &self.groups[group.0];
            let said = vec![
                (text("name"), text(name)),
                (text("desc"), text(desc)),
                (text("ranks"), Datum::Text(format!("{ranks:?}"))),
            ];
            config.push((text(name), Datum::Table(said)));
            if counts.calls > 0 || self.status_of_unused {
                let said = vec![
                    (text("last_enqueued_collective"), Datum::Whole(counts.enqueued)),
                    (text("last_started_collective"), Datum::Whole(-1)),
                    (text("last_completed_collective"), Datum::Whole(counts.completed)),
                ];
                status.push((Datum::Text(pg_id.to_string()), Datum::Table(said)));
            }
        }
        let library = if self.minor >= 10 { "comm_lib_version" } else { "nccl_version" };
        let calls = process.calls.iter().enumerate();
        let calls = calls.skip(process.calls.len().saturating_sub(self.ring));
        let calls = calls.filter(|(_, call)| !self.active_only || call.completed.is_none());
        let entries = calls.map(|(record_id, call)| self.entry(record_id, call)).collect();
        Datum::Table(vec![
            (text("version"), Datum::Text(format!("2.{}", self.minor))),
            (text("pg_config"), Datum::Table(config)),
            (text(library), text(self.nccl)),
            (text("pg_status"), Datum::Table(status)),
            (text("entries"), Datum::List(entries)),
        ])
    }

    fn entry(&self, record_id: usize, made: &DumpedCall) -> Datum {
        let text = |text: &str| Datum::Text(text.to_owned());
        let count = |count: u64| Datum::Whole(count.cast_signed());
        let time = |time: Option<i64>| time.map_or(Datum::Nothing, Datum::Whole);
        let sizes = |tensors: &[Vec<i64>]| {
            let one = |sizes: &Vec<i64>| Datum::List(sizes.iter().copied().map(Datum::Whole).collect());
            Datum::List(tensors.iter().map(one).collect())
        };
        let dtypes =
            |tensors: &[Vec<i64>]| Datum::List(tensors.iter().map(|_| text(made.call.dtype)).collect());
        let RunGroup { name, desc, .. } = &self.groups[made.group.0];
        let state = match (made.started, made.completed) {
            (_, Some(_)) => "completed",
            (Some(_), None) => "started",
            (None, None) => "scheduled",
        };
        let mut fields = Vec::new();
        if self.stacks {
            let line = |(function, file, line): &(&str, &str, u32)| {
                let said = vec![
                    (text("name"), text(function)),
                    (text("filename"), text(file)),
                    (text("line"), Datum::Whole((*line).into())),
                ];
                Datum::Shared(Box::new(Datum::Table(said)))
            };
            fields.push(("frames", Datum::List(made.call.frames.iter().map(line).collect())));
        }
        fields.extend([
            ("record_id", Datum::Whole(i64::try_from(record_id).expect("few calls"))),
            ("pg_id", Datum::Whole(i64::try_from(made.pg_id).expect("few groups"))),
            ("process_group", Datum::Tuple(vec![text(name), text(desc)])),
        ]);
        if self.minor >= 9 {
            fields.extend([("thread_name", text(made.call.thread)), ("thread_id", text("23456244340032"))]);
        }
        fields.extend([
            ("collective_seq_id", count(made.collective_seq_id)),
            ("p2p_seq_id", count(made.p2p_seq_id)),
            ("op_id", count(made.op_id)),
            ("profiling_name", text(&made.name)),
            ("time_created_ns", Datum::Whole(made.created)),
            ("input_sizes", sizes(&made.call.inputs)),
            ("input_dtypes", dtypes(&made.call.inputs)),
            ("output_sizes", sizes(&made.call.outputs)),
            ("output_dtypes", dtypes(&made.call.outputs)),
            ("state", text(state)),
            ("time_discovered_started_ns", time(made.started)),
            ("time_discovered_completed_ns", time(made.completed)),
            ("retired", Datum::Truth(made.retired)),
        ]);
        if let (Some(started), Some(completed)) = (made.started, made.completed) {
            #[expect(clippy::cast_precision_loss, reason = "durations are short")]
            fields.push(("duration_ms", Datum::Fraction((completed - started) as f64 / 1e6)));
        }
        if self.minor >= 2 {
            fields.extend([("timeout_ms", Datum::Whole(600_000)), ("is_p2p", Datum::Truth(made.is_p2p))]);
        }
        Datum::Table(fields.into_iter().map(|(name, value)| (text(name), value)).collect())
    }

    /// The bytes of the dump of one rank.
    #[must_use]
    pub fn bytes(&self, rank: u32, written: Written) -> Vec<u8> {
        match written {
            Written::Torch => torch_pickle(&self.datum(rank)),
            Written::Python(protocol) => python_pickle(&self.datum(rank), protocol),
            Written::Json => {
                let mut run = self.clone();
                run.stacks = false;
                serde_json::to_vec(&torch_json(&run.datum(rank))).expect("JSON can be written")
            }
            Written::Torchcomms => {
                let mut run = self.clone();
                run.stacks = false;
                serde_json::to_vec(&torchcomms_json(torch_json(&run.datum(rank))))
                    .expect("JSON can be written")
            }
        }
    }

    /// Writes a dump of every rank into a folder: `nccl_trace_rank_3`, and `.json` behind it if it is that.
    #[must_use]
    pub fn save(&self, name: &str, written: Written) -> DumpsSaved {
        let saved = DumpsSaved::new(name);
        for rank in 0..u32::try_from(self.ranks.len()).expect("few ranks") {
            let ending = match written {
                Written::Json | Written::Torchcomms => ".json",
                Written::Torch | Written::Python(_) => "",
            };
            saved.write(&format!("nccl_trace_rank_{rank}{ending}"), &self.bytes(rank, written));
        }
        saved
    }
}

/// A folder of dumps; it goes when this goes.
pub struct DumpsSaved {
    /// Where the files lie.
    pub folder: PathBuf,
}

impl DumpsSaved {
    /// An empty folder.
    ///
    /// # Panics
    /// If the directory for temporary files cannot be written to.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rankcheck-dumps-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be written");
        Self { folder }
    }

    /// Writes a file, and the folders that it is in.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("."))).expect("as before");
        std::fs::write(path, bytes).expect("as before");
    }
}

impl Drop for DumpsSaved {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The data of a dump.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// `None`
    Nothing,
    /// `True` or `False`
    Truth(bool),
    /// `int`
    Whole(i64),
    /// `float`
    Fraction(f64),
    /// `str`
    Text(String),
    /// `list`
    List(Vec<Self>),
    /// `tuple`
    Tuple(Vec<Self>),
    /// `dict`
    Table(Vec<(Self, Self)>),
    /// One object, however often it is mentioned; torch has one for each line of code.
    Shared(Box<Self>),
}

impl Datum {
    /// The value of a field.
    ///
    /// # Panics
    /// If there is none.
    pub fn field(&mut self, name: &str) -> &mut Self {
        let Self::Table(fields) = self else { panic!("{name} of what has no fields") };
        let found = fields.iter_mut().find(|(key, _)| matches!(key, Self::Text(key) if key == name));
        &mut found.unwrap_or_else(|| panic!("no field is called {name}")).1
    }

    /// An item of a list.
    ///
    /// # Panics
    /// If there is none.
    pub fn item(&mut self, index: usize) -> &mut Self {
        let (Self::List(items) | Self::Tuple(items)) = self else { panic!("item {index} of no list") };
        &mut items[index]
    }

    /// Takes a field away.
    pub fn without(&mut self, name: &str) {
        if let Self::Table(fields) = self {
            fields.retain(|(key, _)| !matches!(key, Self::Text(key) if key == name));
        }
    }

    /// Adds a field.
    pub fn with(&mut self, name: &str, value: Self) {
        if let Self::Table(fields) = self {
            fields.push((Self::Text(name.to_owned()), value));
        }
    }
}

/// Writes what torch's `Pickler` writes: protocol 2, each text once and mentioned again by number.
#[must_use]
pub fn torch_pickle(datum: &Datum) -> Vec<u8> {
    let mut pickler = Pickler { bytes: vec![0x80, 2], ..Pickler::default() };
    pickler.torch(datum);
    pickler.put();
    pickler.bytes.push(b'.');
    pickler.bytes
}

/// Writes what Python's `pickle` writes for equal texts that are one object.
#[must_use]
pub fn python_pickle(datum: &Datum, protocol: u8) -> Vec<u8> {
    let mut pickler = Pickler { protocol, ..Pickler::default() };
    pickler.python(datum);
    pickler.bytes.push(b'.');
    let mut bytes = vec![0x80, protocol];
    if protocol >= 4 {
        bytes.push(0x95);
        bytes.extend((pickler.bytes.len() as u64).to_le_bytes());
    }
    bytes.extend(pickler.bytes);
    bytes
}

#[derive(Default)]
struct Pickler {
    protocol: u8,
    bytes: Vec<u8>,
    texts: BTreeMap<String, u32>,
    shared: BTreeMap<String, u32>,
    next: u32,
}

impl Pickler {
    fn number(&mut self, opcodes: [u8; 2], number: u32) {
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([opcodes[0], number]),
            Err(_) => {
                self.bytes.push(opcodes[1]);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    fn put(&mut self) -> u32 {
        if self.protocol >= 4 {
            self.bytes.push(0x94);
        } else {
            self.number([b'q', b'r'], self.next);
        }
        self.next += 1;
        self.next - 1
    }

    fn get(&mut self, number: u32) {
        self.number([b'h', b'j'], number);
    }

    fn whole(&mut self, number: i64) {
        if let Ok(number) = u8::try_from(number) {
            self.bytes.extend([b'K', number]);
        } else if let Ok(number) = u16::try_from(number) {
            self.bytes.push(b'M');
            self.bytes.extend(number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(number.to_le_bytes());
        } else {
            self.bytes.extend([0x8a, 8]);
            self.bytes.extend(number.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(number) = self.texts.get(text).copied() {
            self.get(number);
            return;
        }
        match u8::try_from(text.len()) {
            Ok(length) if self.protocol >= 4 => self.bytes.extend([0x8c, length]),
            _ => {
                self.bytes.push(b'X');
                self.bytes.extend(u32::try_from(text.len()).expect("short texts").to_le_bytes());
            }
        }
        self.bytes.extend(text.as_bytes());
        let number = self.put();
        self.texts.insert(text.to_owned(), number);
    }

    fn plain(&mut self, datum: &Datum) {
        match datum {
            Datum::Nothing => self.bytes.push(b'N'),
            Datum::Truth(true) => self.bytes.push(0x88),
            Datum::Truth(false) => self.bytes.push(0x89),
            Datum::Whole(number) => self.whole(*number),
            Datum::Fraction(number) => {
                self.bytes.push(b'G');
                self.bytes.extend(number.to_be_bytes());
            }
            Datum::Text(text) => self.text(text),
            Datum::List(_) | Datum::Tuple(_) | Datum::Table(_) | Datum::Shared(_) => {
                unreachable!("they have items")
            }
        }
    }

    /// Mentions an object that was written before.
    fn known(&mut self, datum: &Datum) -> bool {
        let number = self.shared.get(&format!("{datum:?}")).copied();
        number.inspect(|number| self.get(*number)).is_some()
    }

    fn torch(&mut self, datum: &Datum) {
        match datum {
            Datum::List(items) => {
                self.bytes.extend([b']', b'(']);
                items.iter().for_each(|item| self.torch(item));
                self.bytes.push(b'e');
            }
            Datum::Tuple(items) => {
                items.iter().for_each(|item| self.torch(item));
                self.bytes.push(0x84 + u8::try_from(items.len()).expect("tuples of up to three"));
            }
            Datum::Table(items) => {
                self.bytes.extend([b'}', b'(']);
                for (key, value) in items {
                    self.torch(key);
                    self.torch(value);
                }
                self.bytes.push(b'u');
            }
            Datum::Shared(shared) => {
                if !self.known(shared) {
                    self.torch(shared);
                    let number = self.put();
                    self.shared.insert(format!("{shared:?}"), number);
                }
            }
            Datum::Nothing | Datum::Truth(_) | Datum::Whole(_) | Datum::Fraction(_) | Datum::Text(_) => {
                self.plain(datum);
            }
        }
    }

    fn python(&mut self, datum: &Datum) {
        // Python adds a thousand items at a time, and a single one by an opcode of its own.
        const BATCH: usize = 1_000;
        match datum {
            Datum::List(items) => {
                self.bytes.push(b']');
                self.put();
                for items in items.chunks(BATCH) {
                    if let [item] = items {
                        self.python(item);
                        self.bytes.push(b'a');
                        continue;
                    }
                    self.bytes.push(b'(');
                    items.iter().for_each(|item| self.python(item));
                    self.bytes.push(b'e');
                }
            }
            Datum::Tuple(items) => {
                items.iter().for_each(|item| self.python(item));
                self.bytes.push(0x84 + u8::try_from(items.len()).expect("tuples of up to three"));
                self.put();
            }
            Datum::Table(items) => {
                self.bytes.push(b'}');
                self.put();
                for items in items.chunks(BATCH) {
                    let single = items.len() == 1;
                    self.bytes.extend((!single).then_some(b'('));
                    for (key, value) in items {
                        self.python(key);
                        self.python(value);
                    }
                    self.bytes.push(if single { b's' } else { b'u' });
                }
            }
            Datum::Shared(shared) => {
                if !self.known(shared) {
                    // A table remembers itself before its items.
                    let number = self.next;
                    self.python(shared);
                    self.shared.insert(format!("{shared:?}"), number);
                }
            }
            Datum::Nothing | Datum::Truth(_) | Datum::Whole(_) | Datum::Fraction(_) | Datum::Text(_) => {
                self.plain(datum);
            }
        }
    }
}

/// Writes a dump as torch's `dump_json` does: times that are not known are 0, what is known of groups is texts, and
/// entries are left out where there are none.
#[must_use]
pub fn torch_json(dump: &Datum) -> Value {
    let Datum::Table(fields) = dump else { return plain_json(dump) };
    let mut result = Map::new();
    for (key, value) in fields {
        let Datum::Text(key) = key else { continue };
        let mut json = plain_json(value);
        match key.as_str() {
            "entries" if json == json!([]) => continue,
            "pg_status" => {
                for said in json.as_object_mut().into_iter().flat_map(Map::values_mut) {
                    for number in said.as_object_mut().into_iter().flat_map(Map::values_mut) {
                        *number = Value::String(number.to_string());
                    }
                }
            }
            "entries" => {
                for entry in json.as_array_mut().into_iter().flatten() {
                    for time in ["time_discovered_started_ns", "time_discovered_completed_ns"] {
                        if entry[time].is_null() {
                            entry[time] = json!(0);
                        }
                    }
                }
            }
            _ => {}
        }
        result.insert(key.clone(), json);
    }
    Value::Object(result)
}

/// Turns a dump of torch's into what torchcomms' `FlightRecorder::dump_json` writes of the same calls, of which none are in
/// brackets: one number counts all calls, transfers do not say with whom, groups have no status, and what is over is
/// retired, though its events may not have been seen to be.
fn torchcomms_json(mut dump: Value) -> Value {
    dump["pg_status"] = json!({});
    for group in dump["pg_config"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        group["desc"] = json!("ncclx");
    }
    for (number, entry) in dump["entries"].as_array_mut().into_iter().flatten().enumerate() {
        let name = entry["profiling_name"].as_str().unwrap_or_default();
        let word = name.trim_start_matches("nccl:").split(' ').next().unwrap_or_default();
        let word = match word {
            "_all_gather_base" => "all_gather_single",
            "_reduce_scatter_base" => "reduce_scatter_single",
            word => word,
        };
        entry["profiling_name"] = json!(format!("ncclx:{word}"));
        entry["process_group"][1] = json!("ncclx");
        entry["collective_seq_id"] = json!(number);
        (entry["op_id"], entry["p2p_seq_id"]) = (json!(number), json!(0));
        (entry["is_p2p"], entry["timeout_ms"]) = (json!(false), json!(600_000));
        entry["retired"] = json!(entry["state"] == "completed");
        if entry["state"] == "completed" && number % 2 == 1 {
            entry["state"] = json!("started");
            entry["time_discovered_completed_ns"] = json!(0);
        }
    }
    dump
}

fn plain_json(datum: &Datum) -> Value {
    match datum {
        Datum::Nothing => Value::Null,
        Datum::Truth(truth) => json!(truth),
        Datum::Whole(number) => json!(number),
        Datum::Fraction(number) => json!(number),
        Datum::Text(text) => json!(text),
        Datum::List(items) | Datum::Tuple(items) => items.iter().map(plain_json).collect(),
        Datum::Table(items) => {
            let item = |(key, value): &(Datum, Datum)| {
                let Datum::Text(key) = key else { panic!("a key of JSON is a text") };
                (key.clone(), plain_json(value))
            };
            Value::Object(items.iter().map(item).collect())
        }
        Datum::Shared(shared) => plain_json(shared),
    }
}

/// Damages a dump: cuts it, turns bits, or puts opcodes of pickle where other bytes stood.
#[must_use]
pub fn damaged_dump(whole: &[u8], random: &mut Random) -> Vec<u8> {
    const OPCODES: &[u8] = b".(0123cKMJGXBCNRbiojQqrhtldesuae]})\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98";
    let mut bytes = whole.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                bytes.remove(at);
            }
            3 => {
                let from = random.below(bytes.len());
                let part = bytes[from.min(at)..from.max(at)].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part.into_iter().take(200));
            }
            _ => bytes[at] = OPCODES[random.below(OPCODES.len())],
        }
        if bytes.is_empty() {
            bytes.push(0x80);
        }
    }
    bytes
}
