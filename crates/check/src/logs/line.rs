//! One line of a log: who printed it, and what it says.
//!
//! NCCL begins a line with `host:pid:tid [device] NCCL INFO`, a warning with the place in its sources before `NCCL WARN`.
//! Launchers put labels before it (`[rank3]:`, `3: `, `[1,3]<stdout>:`), NCCL a time if it is told to, and programs
//! print on the same line. So what is looked for is the beginning, wherever it stands.
//! Not here: which communicator a pointer stands for.

/// What one process said at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The rank of the job that a launcher put before the line.
    pub label: Option<u32>,
    /// When it was printed, in nanoseconds since 1970 of its host's local time, if it says so.
    pub time: Option<i64>,
    /// The host that the process ran on.
    pub host: &'a str,
    /// The number of the process on its host.
    pub pid: u32,
    /// Whether it stands behind another record on one line: then a newline is lost, and what stands before it runs into the
    /// name of its host.
    pub follows: bool,
    /// What the rest of the line says.
    pub said: LogMessage<'a>,
}

/// What a process says in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMessage<'a> {
    /// A call to the library.
    Call(CallLine<'a>),
    /// A communicator is made.
    Init(InitLine),
    /// The process is done with a communicator: this one, destroyed or aborted.
    End {
        /// The communicator that it is done with.
        comm: u64,
        /// Whether it was aborted.
        aborted: bool,
    },
    /// The version of the library.
    Version(&'a str),
    /// A warning, without the place in NCCL's sources.
    Warning(&'a str),
    /// It looks like a call, and is not whole.
    Torn,
    /// Anything else that NCCL prints.
    Other,
}

/// A call to the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLine<'a> {
    /// The function, without `nccl`.
    pub name: &'a str,
    /// How many elements it is given.
    pub count: u64,
    /// The number of their type.
    pub dtype: u32,
    /// The number of the reduction.
    pub reduction: u32,
    /// The root, or the other rank of a transfer.
    pub root: u32,
    /// The communicator, as its process knows it.
    pub comm: u64,
    /// How many ranks it has.
    pub nranks: u32,
    /// The stream that it is given to.
    pub stream: Option<u64>,
    /// The rank of the job that calls, which RCCL says.
    pub global_rank: Option<u32>,
}

/// A communicator that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitLine {
    /// The communicator, as its process knows it.
    pub comm: u64,
    /// The rank of the process in it.
    pub rank: u32,
    /// How many ranks it has.
    pub nranks: u32,
    /// The device that the rank uses.
    pub device: Option<u32>,
    /// What all of its members know it by.
    pub id: Option<u64>,
    /// What it was split from.
    pub split: Option<SplitOf>,
    /// Whether the line is the one that NCCL prints when it has begun to make it.
    pub begins: bool,
}

/// What a communicator was split from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitOf {
    /// The communicator that was split.
    pub parent: u64,
    /// How many were made of that one before, if the version prints it.
    pub nth: Option<u64>,
    /// What its members have in common.
    pub color: i64,
}

/// Words of which two show that a line was meant to be a call.
const MARKS: [&str; 9] = [
    ": opCount ",
    " sendbuff ",
    " recvbuff ",
    " count ",
    " datatype ",
    " op ",
    " root ",
    " comm ",
    "[nranks=",
];

/// Returns whether a text was meant to be a call.
#[must_use]
pub fn looks_like_call(text: &str) -> bool {
    MARKS.iter().filter(|mark| text.contains(*mark)).count() > 1
}

/// Takes away what colours a terminal.
#[must_use]
pub fn without_colours(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&rest[..at]);
        let sequence = rest[at + 1..].strip_prefix('[');
        rest = sequence.map_or(&rest[at + 1..], |sequence| {
            sequence.trim_start_matches(|c: char| c.is_ascii_digit() || ";:?".contains(c))
        });
        if sequence.is_some() {
            let mut letters = rest.chars();
            letters.next();
            rest = letters.as_str();
        }
    }
    out.push_str(rest);
    out
}

/// Where a record begins and where its text does.
struct Head<'a> {
    begins: usize,
    text: usize,
    warns: bool,
    host: &'a str,
    pid: u32,
}

/// Returns the records of a line, and what stands outside of them.
#[must_use]
pub fn records(line: &str) -> (Vec<LogRecord<'_>>, Vec<&str>) {
    let mut heads: Vec<Head<'_>> = Vec::new();
    for (at, mark) in line.match_indices("NCCL ") {
        let rest = &line[at + mark.len()..];
        let warns = rest.starts_with("WARN ");
        if !(warns || rest.starts_with("INFO ")) {
            continue;
        }
        let from = heads.last().map_or(0, |head| head.text);
        if at < from {
            continue;
        }
        if let Some((begins, host, pid)) = head(&line[from..at], warns) {
            let text = at + "NCCL INFO ".len();
            heads.push(Head { begins: from + begins, text, warns, host, pid });
        }
    }
    let mut records = Vec::with_capacity(heads.len());
    let mut between = Vec::new();
    let mut end = 0;
    for (nth, head) in heads.iter().enumerate() {
        let before = &line[end..head.begins];
        let following = heads.get(nth + 1);
        let next = following.map_or(line.len(), |next| next.begins);
        let joined = following.and_then(|next| whole(&line[head.text..next.begins + next.host.len()]));
        let text = joined.unwrap_or_else(|| line[head.text..next].trim_end());
        // What stands before a second record is the first one's text.
        let label = if nth == 0 { label(before) } else { None };
        if nth == 0 {
            between.push(before);
        }
        end = next;
        let said = if head.warns { LogMessage::Warning(text) } else { said(text) };
        let (host, pid, follows) = (head.host, head.pid, nth > 0);
        records.push(LogRecord { label, time: time(before), host, pid, follows, said });
    }
    if heads.is_empty() {
        between.push(line);
    }
    (records, between)
}

/// Returns a text up to its last word, where that is known and a host's name runs into it.
fn whole(text: &str) -> Option<&str> {
    const LAST: [&str; 4] = ["- Init START", "- Init COMPLETE", "- Destroy COMPLETE", "- Abort COMPLETE"];
    LAST.iter().find_map(|last| text.rfind(last).map(|at| &text[..at + last.len()]))
}

/// Finds `host:pid:tid [device]` at the end of what stands before `NCCL`.
fn head(before: &str, warns: bool) -> Option<(usize, &str, u32)> {
    let before = before.strip_suffix(' ')?;
    let open = if warns {
        // The place in NCCL's sources stands between.
        before.rmatch_indices(" [").map(|(at, _)| at).find(|at| {
            let device = before[at + 2..].split(']').next().unwrap_or_default();
            is_number(device) && process(&before[..*at]).is_some()
        })?
    } else {
        let device = before.strip_suffix(']')?;
        let open = device.rfind(" [")?;
        is_number(&device[open + 2..]).then_some(open)?
    };
    process(&before[..open])
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Finds `host:pid:tid` at the end of a text.
fn process(text: &str) -> Option<(usize, &str, u32)> {
    let (text, tid) = text.rsplit_once(':')?;
    let (text, pid) = text.rsplit_once(':')?;
    if !is_number(tid) {
        return None;
    }
    let host = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)));
    let begins = host.map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let host = &text[begins..];
    (!host.is_empty()).then_some((begins, host, pid.parse().ok()?))
}

/// The rank that a launcher put before a line: torch's `[rank3]:`, Slurm's `3: `, Open MPI's `[1,3]<stdout>:`.
fn label(before: &str) -> Option<u32> {
    if let Some(at) = before.find("[rank") {
        return before[at + 5..].split(']').next()?.parse().ok();
    }
    let before = before.trim_start();
    if let Some((number, _)) = before.split_once(':').filter(|(number, _)| is_number(number)) {
        return number.parse().ok();
    }
    let (job, rest) = before.strip_prefix('[')?.split_once(',')?;
    let (rank, rest) = rest.split_once(']')?;
    (is_number(job) && rest.starts_with("<std")).then(|| rank.parse().ok())?
}

/// The time that NCCL prints with `NCCL_DEBUG_TIMESTAMP_LEVELS`, as it is if nobody asked for another form:
/// `[2026-11-23 02:31:51] `, or with a fraction.
fn time(before: &str) -> Option<i64> {
    let text = before.trim_end().strip_suffix(']')?;
    let text = &text[text.rfind('[')? + 1..];
    let (date, clock) = text.split_once(' ')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let fits = (1970..3000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !fits || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    // Days from the beginning of a year that begins in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let width = u32::try_from(fraction.len()).ok()?;
    let nanoseconds = fraction.parse::<i64>().ok()? * 10_i64.pow(9 - width);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn said(text: &str) -> LogMessage<'_> {
    if let Some(call) = call(text) {
        return LogMessage::Call(call);
    }
    if looks_like_call(text) {
        return LogMessage::Torn;
    }
    if let Some(version) = version(text) {
        return LogMessage::Version(version);
    }
    init(text).or_else(|| end(text)).unwrap_or(LogMessage::Other)
}

/// Returns the version that a text names.
#[must_use]
pub fn version(text: &str) -> Option<&str> {
    let at = text.find("CCL version ")?;
    text[at + "CCL version ".len()..].split_whitespace().next()
}

fn pointer(text: &str) -> Option<u64> {
    if text == "(nil)" { Some(0) } else { hexadecimal(text.strip_prefix("0x")?) }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// `AllReduce: opCount 1f sendbuff 0x… recvbuff 0x… count 8 datatype 7 op 0 root 0 comm 0x… [nranks=2] stream 0x…`, and
/// with more words of RCCL's.
fn call(text: &str) -> Option<CallLine<'_>> {
    let (name, rest) = text.split_once(": opCount ")?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let mut words = rest.split_whitespace();
    hexadecimal(words.next()?)?;
    let (mut count, mut dtype, mut reduction, mut root, mut comm) = (None, None, None, None, None);
    let nranks = loop {
        let word = words.next()?;
        if let Some(nranks) = word.strip_prefix("[nranks=") {
            break nranks.strip_suffix(']')?.parse().ok()?;
        }
        let value = words.next()?;
        match word {
            "sendbuff" | "recvbuff" | "acc" => {
                pointer(value)?;
            }
            "count" => count = Some(value.parse().ok()?),
            "datatype" => dtype = Some(value.parse().ok()?),
            "op" => reduction = Some(value.parse().ok()?),
            "root" => root = Some(value.parse().ok()?),
            "comm" => comm = Some(pointer(value)?),
            _ => return None,
        }
    };
    let (mut stream, mut global_rank) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "stream" => stream = words.next().and_then(pointer),
            "globalrank" => global_rank = words.next().and_then(|rank| rank.parse().ok()),
            _ => {}
        }
    }
    let (count, dtype, reduction) = (count?, dtype?, reduction?);
    Some(CallLine { name, count, dtype, reduction, root: root?, comm: comm?, nranks, stream, global_rank })
}

/// `… comm 0x… rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x… - Init START`, and what else versions know of it.
fn init(text: &str) -> Option<LogMessage<'_>> {
    let begins = text.ends_with("- Init START");
    let rest = text.strip_suffix("- Init START").or_else(|| text.strip_suffix("- Init COMPLETE"))?;
    let at = rest.find("comm 0x")?;
    let mut words = rest[at..].split_whitespace();
    let mut init = InitLine { comm: 0, rank: 0, nranks: 0, device: None, id: None, split: None, begins };
    let (mut rank, mut nranks, mut parent, mut nth, mut color) = (None, None, None, None, None);
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        match word {
            "comm" => init.comm = pointer(value)?,
            "rank" => rank = Some(value.parse().ok()?),
            "nranks" | "nRanks" => nranks = Some(value.parse().ok()?),
            "cudaDev" => init.device = Some(value.parse().ok()?),
            "commId" => init.id = Some(pointer(value)?),
            "parent" => parent = Some(pointer(value)?),
            "splitCount" | "childCount" => nth = Some(value.parse().ok()?),
            "color" => color = Some(value.parse().ok()?),
            _ => {}
        }
    }
    (init.rank, init.nranks) = (rank?, nranks?);
    if init.rank >= init.nranks {
        return None;
    }
    init.split = parent.map(|parent| SplitOf { parent, nth, color: color.unwrap_or(0) });
    Some(LogMessage::Init(init))
}

/// `comm 0x… rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE`, or an abort.
fn end(text: &str) -> Option<LogMessage<'_>> {
    let rest = text.strip_prefix("comm ")?;
    let aborted = rest.ends_with(" - Abort START") || rest.ends_with(" - Abort COMPLETE");
    if !aborted && !rest.ends_with(" - Destroy COMPLETE") {
        return None;
    }
    let comm = pointer(rest.split_whitespace().next()?)?;
    Some(LogMessage::End { comm, aborted })
}
