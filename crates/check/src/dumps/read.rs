//! One dump, read from bytes: which groups the process was in, how far it came in each, and its last calls.
//!
//! Pickle and JSON are told apart by the bytes. Fields that a version lacks are `None`; fields that are not known here
//! are counted. A field of another type than it has is an error that says where in the dump it stands.
//! Work and memory are linear in the bytes: what a dump mentions many times is read once.
//! Not here: which rank it is of (`folder`), and what is wrong in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use super::operation::EntryName;
use super::pickle::{PickleError, read_pickle};
use super::plain::{Arena, ListAt, Plain, TableAt, TextAt, read_json};

/// What one process wrote down.
#[derive(Debug, Clone)]
pub struct Dump {
    /// How it is encoded.
    pub encoding: Encoding,
    /// The version of the format.
    pub version: DumpVersion,
    /// The version of the communication library (`comm_lib_version`, and `nccl_version` before 2.10).
    pub comm_lib_version: Option<Arc<str>>,
    /// The groups that the process is in (`pg_config`), in the order of the dump.
    pub groups: Vec<DumpGroup>,
    /// How far the process came in each group (`pg_status`), by the group's number in this process.
    pub progress: BTreeMap<i64, GroupProgress>,
    /// What the library said of its communicators (`nccl_comm_state`), by communicator.
    pub communicators: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>,
    /// The calls that the ring still has, oldest first.
    pub entries: Vec<DumpEntry>,
    /// How often each field occurs that is not known here, by its place in the dump.
    pub unknown_fields: BTreeMap<String, u64>,
    /// Where the file ends too early, if it does. What is there is whole, but later entries may be lost: that a call
    /// is missing here says nothing.
    pub cut: Option<PickleError>,
}

/// How a dump is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Python's pickle, which torch writes to files; the only one that has stacks.
    Pickle,
    /// JSON, which torch and torchcomms give to those who ask over HTTP.
    Json,
}

/// The version of a dump's format; the second number grows where fields are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DumpVersion {
    /// It grows where fields change their meaning.
    pub major: u32,
    /// It grows where fields are added.
    pub minor: u32,
}

/// A group of ranks as `pg_config` has it. One name may belong to several groups of a job, with other ranks each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpGroup {
    /// Its name, unique in the process.
    pub name: Arc<str>,
    /// What the program calls it (`undefined` if it does not).
    pub desc: Option<Arc<str>>,
    /// The ranks of the job that are in it; a rank's place in the list is its rank in the group. `None` where the
    /// dump does not say.
    pub ranks: Option<Arc<[u32]>>,
}

/// How far the process came in one group. Counts of collectives and of transfers are mixed: each is the
/// `collective_seq_id` or the `p2p_seq_id` of the last work, whichever kind it was. -1 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// The last one that the host launched.
    pub last_enqueued: Option<i64>,
    /// The last one that was seen to have begun; -1 unless `TORCH_NCCL_ENABLE_TIMING` is set.
    pub last_started: Option<i64>,
    /// The last one that was seen to have ended.
    pub last_completed: Option<i64>,
}

/// One call of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpEntry {
    /// Its number in the process, from 0; the ring keeps the last ones.
    pub record_id: u64,
    /// The number of its group in this process: another process has other numbers.
    pub pg_id: i64,
    /// The name of its group, as in [`DumpGroup::name`].
    pub group: Arc<str>,
    /// What the program calls the group.
    pub group_desc: Arc<str>,
    /// How many launches of collectives its group had with this one; the calls of a bracket have one number.
    pub collective_seq_id: u64,
    /// How many launches of transfers its group had with this one; the calls of a bracket have one number.
    pub p2p_seq_id: u64,
    /// How many calls its group had with this one; each call of a bracket counts, its end does not.
    pub op_id: u64,
    /// What was called, and of whom.
    pub name: EntryName,
    /// When the host called it, in nanoseconds of its own clock.
    pub time_created_ns: i64,
    /// How long the device took, where that is measured.
    pub duration_ms: Option<f64>,
    /// The tensors that go in.
    pub inputs: Tensors,
    /// The tensors that come out.
    pub outputs: Tensors,
    /// How far it is known to have come.
    pub state: EntryState,
    /// When somebody saw that it had started.
    pub time_started_ns: Option<i64>,
    /// When somebody saw that it had completed.
    pub time_completed_ns: Option<i64>,
    /// Whether torch's watchdog no longer looks after it. If it did not complete, it timed out.
    pub retired: bool,
    /// How long torch waits for it.
    pub timeout_ms: Option<i64>,
    /// Whether it is a transfer; of a bracket's end, whether its calls are. Versions before 2.2 may lack it.
    pub is_p2p: Option<bool>,
    /// The thread that called it.
    pub thread_id: Option<Arc<str>>,
    /// What that thread is called.
    pub thread_name: Option<Arc<str>>,
    /// Where it was called, innermost first; `None` if the dump was written without stacks.
    pub frames: Option<Arc<[StackFrame]>>,
}

/// The tensors on one side of a call: shapes, and the types of their elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tensors {
    /// The extents of each tensor.
    pub sizes: Arc<[Arc<[i64]>]>,
    /// The type of the elements of each in torch's words (`BFloat16`), where the dump says it.
    pub dtypes: Option<Arc<[Arc<str>]>>,
}

impl Tensors {
    /// Returns how many elements all of them have together, if that is a number.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let elements = |sizes: &Arc<[i64]>| {
            let mut sizes = sizes.iter().map(|size| u64::try_from(*size).ok());
            sizes.try_fold(1_u64, |product, size| product.checked_mul(size?))
        };
        self.sizes.iter().try_fold(0_u64, |sum, sizes| sum.checked_add(elements(sizes)?))
    }
}

/// How far a call is known to have come. Torch learns it from events that it asks when it writes the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryState {
    /// The host called it. Whether the device began is known only with `TORCH_NCCL_ENABLE_TIMING`; a call inside a
    /// bracket stays here for ever.
    Scheduled,
    /// The device began with it.
    Started,
    /// The device has done it.
    Completed,
}

/// One line of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFrame {
    /// The function that stands there.
    pub function: Arc<str>,
    /// The file that it is in.
    pub file: Arc<str>,
    /// The line that it is at.
    pub line: i64,
}

/// Why a file is not read as a dump.
#[derive(Debug, Error)]
pub enum DumpError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is something else.
    #[error("it is no Flight Recorder dump: {0}")]
    NotADump(&'static str),
    /// It is pickle that cannot be read.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// It is JSON that cannot be read.
    #[error("it is no whole JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a version whose fields may mean something else.
    #[error("its version is `{0}`, and 2.1 to 2.10 are known")]
    Version(String),
    /// A field holds what it cannot hold.
    #[error("{path} is {found}, and {expected} belongs there")]
    Field {
        /// Where the field stands in the dump.
        path: String,
        /// What belongs there instead.
        expected: &'static str,
        /// What was found there.
        found: String,
    },
    /// A field is missing that every version has.
    #[error("{path} is missing")]
    Missing {
        /// Where the field belongs.
        path: String,
    },
}

impl DumpError {
    /// Returns whether the file looks like something else rather than like a dump with damage.
    #[must_use]
    pub const fn is_something_else(&self) -> bool {
        matches!(self, Self::Empty | Self::NotADump(_))
    }
}

impl fmt::Display for DumpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Reads a dump. Of a pickle that is cut off, what is whole is read, and [`Dump::cut`] says so.
///
/// # Errors
///
/// If the bytes are no dump, or one with damage.
pub fn read_dump(bytes: &[u8]) -> Result<Dump, DumpError> {
    if bytes.is_empty() {
        return Err(DumpError::Empty);
    }
    let json = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let (encoding, arena, root, cut) = if bytes[0] == 0x80 {
        let pickled = read_pickle(bytes)?;
        (Encoding::Pickle, pickled.arena, pickled.root, pickled.cut)
    } else if json.first() == Some(&b'{') {
        let (arena, root) = read_json(json).map_err(|error| {
            // Many files are JSON up to some place. A dump that is cut off has this word near its beginning.
            let of_dump: [&[u8]; 2] = [b"\"profiling_name\"", b"\"pg_config\""];
            let is_dump = of_dump.iter().any(|word| json.windows(word.len()).any(|bytes| bytes == *word));
            if is_dump { DumpError::Json(error) } else { DumpError::NotADump("it is no JSON of a dump") }
        })?;
        (Encoding::Json, arena, root, None)
    } else {
        return Err(DumpError::NotADump("it begins neither as pickle nor as JSON does"));
    };
    let Plain::Table(root) = root else {
        return Err(DumpError::NotADump("its outermost value is no table"));
    };
    let has = |name: &str| {
        let is_name = |key: &Plain| matches!(key, Plain::Text(at) if &**arena.text(*at) == name);
        arena.table(root).iter().any(|(key, _)| is_name(key))
    };
    if !has("version") || !["entries", "pg_config", "pg_status"].into_iter().any(has) {
        return Err(match cut {
            Some(cut) => cut.into(),
            None => DumpError::NotADump("it has no `version`, or neither `entries` nor `pg_config`"),
        });
    }
    Reader::new(&arena).dump(root, encoding, cut)
}

/// Where a value stands, as a chain of places on the stack: it costs nothing as long as nobody asks.
#[derive(Clone, Copy)]
enum FieldAt<'a> {
    Top(&'a str),
    Key(&'a FieldAt<'a>, &'a str),
    Item(&'a FieldAt<'a>, usize),
}

impl fmt::Display for FieldAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(name) => f.write_str(&shortened(name)),
            Self::Key(outer, name) => write!(f, "{outer}.{}", shortened(name)),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

/// Returns a text for a message, which no dump can make long.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.len() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}

/// Reads the values of one arena, each once.
struct Reader<'a> {
    arena: &'a Arena,
    names: FxHashMap<TextAt, EntryName>,
    ranks: FxHashMap<TextAt, Arc<[u32]>>,
    sizes: FxHashMap<ListAt, Arc<[Arc<[i64]>]>>,
    extents: FxHashMap<ListAt, Arc<[i64]>>,
    dtypes: FxHashMap<ListAt, Arc<[Arc<str>]>>,
    stacks: FxHashMap<ListAt, Arc<[StackFrame]>>,
    same_stacks: FxHashMap<Vec<TableAt>, Arc<[StackFrame]>>,
    frames: FxHashMap<TableAt, StackFrame>,
    taken: FxHashSet<TableAt>,
    unknown: FxHashMap<(&'static str, TextAt), u64>,
}

fn wrong(place: FieldAt<'_>, expected: &'static str, found: impl Into<String>) -> DumpError {
    DumpError::Field { path: place.to_string(), expected, found: found.into() }
}

fn duration(value: Plain, place: FieldAt<'_>) -> Result<Option<f64>, DumpError> {
    match value {
        Plain::Nothing => Ok(None),
        Plain::Fraction(duration) => Ok(Some(duration)),
        // JSON may write a whole number without its point.
        Plain::Whole(duration) => Ok(Some(duration as f64)),
        Plain::Truth(_) | Plain::Text(_) | Plain::List(_) | Plain::Table(_) | Plain::Bytes => {
            Err(wrong(place, "a number", value.kind()))
        }
    }
}

impl<'a> Reader<'a> {
    fn new(arena: &'a Arena) -> Self {
        Self {
            arena,
            names: FxHashMap::default(),
            ranks: FxHashMap::default(),
            sizes: FxHashMap::default(),
            extents: FxHashMap::default(),
            dtypes: FxHashMap::default(),
            stacks: FxHashMap::default(),
            same_stacks: FxHashMap::default(),
            frames: FxHashMap::default(),
            taken: FxHashSet::default(),
            unknown: FxHashMap::default(),
        }
    }

    fn text(&self, value: Plain, place: FieldAt<'_>) -> Result<&'a Arc<str>, DumpError> {
        let Plain::Text(at) = value else { return Err(wrong(place, "a text", value.kind())) };
        Ok(self.arena.text(at))
    }

    /// Reads an integer. JSON has some of them as texts.
    fn whole(&self, value: Plain, place: FieldAt<'_>) -> Result<i64, DumpError> {
        if let Plain::Whole(number) = value {
            return Ok(number);
        }
        let Plain::Text(at) = value else { return Err(wrong(place, "an integer", value.kind())) };
        let text = self.arena.text(at);
        text.parse().map_err(|_| wrong(place, "an integer", format!("the text `{}`", shortened(text))))
    }

    fn count<T: TryFrom<i64>>(&self, value: Plain, place: FieldAt<'_>) -> Result<T, DumpError> {
        let number = self.whole(value, place)?;
        T::try_from(number).map_err(|_| wrong(place, "a count", number.to_string()))
    }

    /// Reads a time. JSON has 0 for a time that is not known.
    fn time(&self, value: Plain, place: FieldAt<'_>) -> Result<Option<i64>, DumpError> {
        if matches!(value, Plain::Nothing | Plain::Whole(0)) {
            return Ok(None);
        }
        self.whole(value, place).map(Some)
    }

    fn truth(value: Plain, place: FieldAt<'_>) -> Result<bool, DumpError> {
        let Plain::Truth(truth) = value else { return Err(wrong(place, "a truth value", value.kind())) };
        Ok(truth)
    }

    fn list(value: Plain, place: FieldAt<'_>) -> Result<ListAt, DumpError> {
        let Plain::List(at) = value else { return Err(wrong(place, "a list", value.kind())) };
        Ok(at)
    }

    /// Returns the fields of a table that nothing else in the dump is, so that none is read twice.
    fn own_table(&mut self, value: Plain, place: FieldAt<'_>) -> Result<&'a [(Plain, Plain)], DumpError> {
        let Plain::Table(at) = value else { return Err(wrong(place, "a table", value.kind())) };
        if !self.taken.insert(at) {
            return Err(wrong(place, "a table of its own", "a table that stands elsewhere too"));
        }
        Ok(self.arena.table(at))
    }

    fn key(&self, key: Plain, place: FieldAt<'_>) -> Result<(TextAt, &'a Arc<str>), DumpError> {
        let Plain::Text(at) = key else {
            let found = format!("a table with {} as a key", key.kind());
            return Err(wrong(place, "a table whose keys are texts", found));
        };
        Ok((at, self.arena.text(at)))
    }

    fn unknown(&mut self, scope: &'static str, key: TextAt) {
        *self.unknown.entry((scope, key)).or_default() += 1;
    }

    fn dump(
        mut self,
        root: TableAt,
        encoding: Encoding,
        cut: Option<PickleError>,
    ) -> Result<Dump, DumpError> {
        let mut version = None;
        let mut dump = Dump {
            encoding,
            version: DumpVersion { major: 0, minor: 0 },
            comm_lib_version: None,
            groups: Vec::new(),
            progress: BTreeMap::new(),
            communicators: BTreeMap::new(),
            entries: Vec::new(),
            unknown_fields: BTreeMap::new(),
            cut,
        };
        for (key, value) in self.arena.table(root) {
            let (at, name) = self.key(*key, FieldAt::Top("the dump"))?;
            let place = FieldAt::Top(name);
            match &**name {
                "version" => version = Some(self.text(*value, place)?),
                "comm_lib_version" | "nccl_version" => {
                    dump.comm_lib_version = Some(Arc::clone(self.text(*value, place)?));
                }
                "pg_config" => dump.groups = self.groups(*value, place)?,
                "pg_status" => dump.progress = self.progress(*value, place)?,
                "nccl_comm_state" => dump.communicators = self.communicators(*value, place)?,
                "entries" => dump.entries = self.entries(*value, place)?,
                _ => self.unknown("", at),
            }
        }
        let Some(version) = version else { return Err(DumpError::Missing { path: "version".to_owned() }) };
        let numbers = version.split_once('.').and_then(|(major, minor)| {
            Some(DumpVersion { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        match numbers.filter(|version| version.major == 2) {
            Some(version) => dump.version = version,
            None => return Err(DumpError::Version(shortened(version))),
        }
        for ((scope, key), times) in &self.unknown {
            let field = format!("{scope}{}", shortened(self.arena.text(*key)));
            *dump.unknown_fields.entry(field).or_default() += times;
        }
        Ok(dump)
    }

    fn groups(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Vec<DumpGroup>, DumpError> {
        let mut groups = Vec::new();
        for (key, value) in self.own_table(value, place)? {
            let (_, name) = self.key(*key, place)?;
            let place = FieldAt::Key(&place, name);
            let mut group = DumpGroup { name: Arc::clone(name), desc: None, ranks: None };
            for (key, value) in self.own_table(*value, place)? {
                let (at, field) = self.key(*key, place)?;
                let place = FieldAt::Key(&place, field);
                match &**field {
                    "name" => group.name = Arc::clone(self.text(*value, place)?),
                    "desc" => group.desc = Some(Arc::clone(self.text(*value, place)?)),
                    // A group of which torch was not told who is in it has an empty list.
                    "ranks" => {
                        group.ranks = Some(self.ranks(*value, place)?).filter(|ranks| !ranks.is_empty())
                    }
                    _ => self.unknown("pg_config[].", at),
                }
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// Reads the ranks of a group, which are a text: `[0, 1]`.
    fn ranks(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Arc<[u32]>, DumpError> {
        const EXPECTED: &str = "a list of ranks, each once";
        let Plain::Text(at) = value else { return Err(wrong(place, EXPECTED, value.kind())) };
        if let Some(ranks) = self.ranks.get(&at) {
            return Ok(Arc::clone(ranks));
        }
        let text = self.arena.text(at);
        let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let numbers = inside.filter(|inside| !inside.trim().is_empty()).map(|inside| inside.split(','));
        let ranks: Option<Vec<u32>> =
            numbers.into_iter().flatten().map(|number| number.trim().parse().ok()).collect();
        let mut known = FxHashSet::default();
        match ranks.filter(|ranks| inside.is_some() && ranks.iter().all(|rank| known.insert(*rank))) {
            Some(ranks) => Ok(Arc::clone(self.ranks.entry(at).or_insert(ranks.into()))),
            None => Err(wrong(place, EXPECTED, format!("the text `{}`", shortened(text)))),
        }
    }

    fn progress(
        &mut self,
        value: Plain,
        place: FieldAt<'_>,
    ) -> Result<BTreeMap<i64, GroupProgress>, DumpError> {
        let mut all = BTreeMap::new();
        for (key, value) in self.own_table(value, place)? {
            let id = self.whole(*key, place)?;
            let text = id.to_string();
            let place = FieldAt::Key(&place, &text);
            let mut progress = GroupProgress::default();
            for (key, value) in self.own_table(*value, place)? {
                let (at, field) = self.key(*key, place)?;
                let place = FieldAt::Key(&place, field);
                match &**field {
                    "last_enqueued_collective" => progress.last_enqueued = Some(self.whole(*value, place)?),
                    "last_started_collective" => progress.last_started = Some(self.whole(*value, place)?),
                    "last_completed_collective" => progress.last_completed = Some(self.whole(*value, place)?),
                    _ => self.unknown("pg_status[].", at),
                }
            }
            all.insert(id, progress);
        }
        Ok(all)
    }

    #[expect(clippy::type_complexity, reason = "it is the type of one field")]
    fn communicators(
        &mut self,
        value: Plain,
        place: FieldAt<'_>,
    ) -> Result<BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>, DumpError> {
        let mut all = BTreeMap::new();
        for (key, value) in self.own_table(value, place)? {
            let (_, name) = self.key(*key, place)?;
            let place = FieldAt::Key(&place, name);
            let mut said = BTreeMap::new();
            for (key, value) in self.own_table(*value, place)? {
                let (_, field) = self.key(*key, place)?;
                let value = self.text(*value, FieldAt::Key(&place, field))?;
                said.insert(Arc::clone(field), Arc::clone(value));
            }
            all.insert(Arc::clone(name), said);
        }
        Ok(all)
    }

    fn entries(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Vec<DumpEntry>, DumpError> {
        let items = self.arena.list(Self::list(value, place)?);
        let entries =
            items.iter().enumerate().map(|(index, item)| self.entry(*item, FieldAt::Item(&place, index)));
        entries.collect()
    }

    fn entry(&mut self, value: Plain, entry: FieldAt<'_>) -> Result<DumpEntry, DumpError> {
        let mut fields = Fields::default();
        for (key, value) in self.own_table(value, entry)? {
            let (at, name) = self.key(*key, entry)?;
            match fields.place(name) {
                Some(place) => *place = Some(*value),
                None => self.unknown("entries[].", at),
            }
        }
        let key = |name| FieldAt::Key(&entry, name);
        let needed = |value: Option<Plain>, name| {
            let value = value.ok_or_else(|| DumpError::Missing { path: key(name).to_string() })?;
            Ok::<_, DumpError>((value, name))
        };
        let count = |reader: &Self, value, name| {
            let (value, name) = needed(value, name)?;
            reader.count(value, key(name))
        };
        let text = |reader: &Self, value: Option<Plain>, name| {
            value.map(|value| reader.text(value, key(name)).cloned()).transpose()
        };
        let time = |reader: &Self, value: Option<Plain>, name| {
            value.map_or(Ok(None), |value| reader.time(value, key(name)))
        };
        let whole = |reader: &Self, value, name| {
            let (value, name) = needed(value, name)?;
            reader.whole(value, key(name))
        };
        let process_group = needed(fields.process_group, "process_group")?.0;
        let [group, group_desc] = self.group(process_group, key("process_group"))?;
        let profiling_name = needed(fields.profiling_name, "profiling_name")?.0;
        let input = [(fields.input_sizes, "input_sizes"), (fields.input_dtypes, "input_dtypes")];
        let output = [(fields.output_sizes, "output_sizes"), (fields.output_dtypes, "output_dtypes")];
        Ok(DumpEntry {
            record_id: count(self, fields.record_id, "record_id")?,
            pg_id: whole(self, fields.pg_id, "pg_id")?,
            group,
            group_desc,
            collective_seq_id: count(self, fields.collective_seq_id, "collective_seq_id")?,
            p2p_seq_id: count(self, fields.p2p_seq_id, "p2p_seq_id")?,
            op_id: count(self, fields.op_id, "op_id")?,
            name: self.name(profiling_name, key("profiling_name"))?,
            time_created_ns: whole(self, fields.time_created_ns, "time_created_ns")?,
            duration_ms: fields.duration_ms.map_or(Ok(None), |value| duration(value, key("duration_ms")))?,
            inputs: self.tensors(entry, input)?,
            outputs: self.tensors(entry, output)?,
            state: self.state(needed(fields.state, "state")?.0, key("state"))?,
            time_started_ns: time(self, fields.time_discovered_started_ns, "time_discovered_started_ns")?,
            time_completed_ns: time(
                self,
                fields.time_discovered_completed_ns,
                "time_discovered_completed_ns",
            )?,
            retired: Self::truth(needed(fields.retired, "retired")?.0, key("retired"))?,
            timeout_ms: fields.timeout_ms.map(|value| self.whole(value, key("timeout_ms"))).transpose()?,
            is_p2p: fields.is_p2p.map(|value| Self::truth(value, key("is_p2p"))).transpose()?,
            thread_id: text(self, fields.thread_id, "thread_id")?,
            thread_name: text(self, fields.thread_name, "thread_name")?,
            frames: fields.frames.map(|value| self.frames(value, key("frames"))).transpose()?,
        })
    }

    /// Reads the name of a group and what the program calls it.
    fn group(&self, value: Plain, place: FieldAt<'_>) -> Result<[Arc<str>; 2], DumpError> {
        let [name, desc] = self.arena.list(Self::list(value, place)?) else {
            return Err(wrong(place, "a name and a description", "a list of another length"));
        };
        let text = |value, index| self.text(value, FieldAt::Item(&place, index)).cloned();
        Ok([text(*name, 0)?, text(*desc, 1)?])
    }

    fn state(&self, value: Plain, place: FieldAt<'_>) -> Result<EntryState, DumpError> {
        match &**self.text(value, place)? {
            "scheduled" => Ok(EntryState::Scheduled),
            "started" => Ok(EntryState::Started),
            "completed" => Ok(EntryState::Completed),
            other => {
                let found = format!("the text `{}`", shortened(other));
                Err(wrong(place, "`scheduled`, `started` or `completed`", found))
            }
        }
    }

    fn name(&mut self, value: Plain, place: FieldAt<'_>) -> Result<EntryName, DumpError> {
        let Plain::Text(at) = value else { return Err(wrong(place, "a text", value.kind())) };
        let arena = self.arena;
        Ok(self.names.entry(at).or_insert_with(|| EntryName::new(Arc::clone(arena.text(at)))).clone())
    }

    /// Reads what an entry says of its tensors on one side.
    fn tensors(
        &mut self,
        entry: FieldAt<'_>,
        sides: [(Option<Plain>, &str); 2],
    ) -> Result<Tensors, DumpError> {
        let [(sizes, sizes_name), (dtypes, dtypes_name)] = sides;
        let [sizes_at, dtypes_at] = [sizes_name, dtypes_name].map(|name| FieldAt::Key(&entry, name));
        let Some(sizes) = sizes else { return Err(DumpError::Missing { path: sizes_at.to_string() }) };
        let sizes = self.sizes(sizes, sizes_at)?;
        let dtypes = dtypes.map(|dtypes| self.dtypes(dtypes, dtypes_at)).transpose()?;
        if dtypes.as_ref().is_some_and(|dtypes| dtypes.len() != sizes.len()) {
            return Err(wrong(dtypes_at, "one type for each tensor", "a list of another length"));
        }
        Ok(Tensors { sizes, dtypes })
    }

    fn sizes(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Arc<[Arc<[i64]>]>, DumpError> {
        let at = Self::list(value, place)?;
        if let Some(sizes) = self.sizes.get(&at) {
            return Ok(Arc::clone(sizes));
        }
        let mut tensors = Vec::new();
        for (index, tensor) in self.arena.list(at).iter().enumerate() {
            let place = FieldAt::Item(&place, index);
            let tensor = Self::list(*tensor, place)?;
            let extents = match self.extents.get(&tensor) {
                Some(extents) => Arc::clone(extents),
                None => {
                    let items = self.arena.list(tensor).iter().enumerate();
                    let extents: Result<Arc<[i64]>, _> = items
                        .map(|(index, extent)| self.whole(*extent, FieldAt::Item(&place, index)))
                        .collect();
                    Arc::clone(self.extents.entry(tensor).or_insert(extents?))
                }
            };
            tensors.push(extents);
        }
        Ok(Arc::clone(self.sizes.entry(at).or_insert(tensors.into())))
    }

    fn dtypes(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Arc<[Arc<str>]>, DumpError> {
        let at = Self::list(value, place)?;
        if let Some(dtypes) = self.dtypes.get(&at) {
            return Ok(Arc::clone(dtypes));
        }
        let items = self.arena.list(at).iter().enumerate();
        let dtypes: Result<Arc<[Arc<str>]>, _> =
            items.map(|(index, dtype)| self.text(*dtype, FieldAt::Item(&place, index)).cloned()).collect();
        Ok(Arc::clone(self.dtypes.entry(at).or_insert(dtypes?)))
    }

    /// Reads a stack. Torch writes a list for each call, and each line of code once; equal stacks are kept once.
    fn frames(&mut self, value: Plain, place: FieldAt<'_>) -> Result<Arc<[StackFrame]>, DumpError> {
        let at = Self::list(value, place)?;
        if let Some(stack) = self.stacks.get(&at) {
            return Ok(Arc::clone(stack));
        }
        let items = self.arena.list(at).iter().enumerate();
        let lines: Result<Vec<TableAt>, _> = items
            .map(|(index, frame)| {
                let Plain::Table(frame) = frame else {
                    return Err(wrong(FieldAt::Item(&place, index), "a table", frame.kind()));
                };
                Ok(*frame)
            })
            .collect();
        let lines = lines?;
        let stack = match self.same_stacks.get(&lines) {
            Some(stack) => Arc::clone(stack),
            None => {
                for (index, frame) in lines.iter().enumerate() {
                    if !self.frames.contains_key(frame) {
                        let read = self.frame(*frame, FieldAt::Item(&place, index))?;
                        self.frames.insert(*frame, read);
                    }
                }
                let stack: Arc<[StackFrame]> = lines.iter().map(|line| self.frames[line].clone()).collect();
                self.same_stacks.insert(lines, Arc::clone(&stack));
                stack
            }
        };
        self.stacks.insert(at, Arc::clone(&stack));
        Ok(stack)
    }

    fn frame(&mut self, frame: TableAt, frame_place: FieldAt<'_>) -> Result<StackFrame, DumpError> {
        let (mut function, mut file, mut line) = (None, None, None);
        for (key, value) in self.arena.table(frame) {
            let (at, field) = self.key(*key, frame_place)?;
            let place = FieldAt::Key(&frame_place, field);
            match &**field {
                "name" => function = Some(Arc::clone(self.text(*value, place)?)),
                "filename" => file = Some(Arc::clone(self.text(*value, place)?)),
                "line" => line = Some(self.whole(*value, place)?),
                _ => self.unknown("entries[].frames[].", at),
            }
        }
        let missing = |name| DumpError::Missing { path: FieldAt::Key(&frame_place, name).to_string() };
        Ok(StackFrame {
            function: function.ok_or_else(|| missing("name"))?,
            file: file.ok_or_else(|| missing("filename"))?,
            line: line.ok_or_else(|| missing("line"))?,
        })
    }
}

/// The fields that entries of versions 2.1 to 2.10 have, with a place for the value of each.
macro_rules! fields {
    ($($field:ident),* $(,)?) => {
        /// The fields of one entry, before they are looked at.
        #[derive(Default)]
        struct Fields {
            $($field: Option<Plain>,)*
        }

        impl Fields {
            /// Returns the place of a field that is known.
            fn place(&mut self, name: &str) -> Option<&mut Option<Plain>> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

fields! {
    record_id,
    pg_id,
    process_group,
    collective_seq_id,
    p2p_seq_id,
    op_id,
    profiling_name,
    time_created_ns,
    duration_ms,
    input_sizes,
    input_dtypes,
    output_sizes,
    output_dtypes,
    state,
    time_discovered_started_ns,
    time_discovered_completed_ns,
    retired,
    timeout_ms,
    is_p2p,
    thread_id,
    thread_name,
    frames,
}
