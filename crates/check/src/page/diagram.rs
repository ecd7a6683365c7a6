//! The data of a page: what happened in a run, lane by lane, and what is wrong with it.
//!
//! Explained checks, recorded runs and dumps each fill a [`Diagram`]; what they do not know stays empty. Whatever draws
//! one needs nothing else. Texts, places and memory that repeat stand once, in tables.
//! Not here: where rows come from (`layout`), and how it is drawn (`html`, `script/`).

use serde::Serialize;

/// All that a page shows.
#[derive(Debug, Clone, Serialize)]
pub struct Diagram {
    /// What it is about.
    pub about: AboutFinding,
    /// Texts that steps name.
    pub texts: Vec<String>,
    /// Lines of programs that steps name.
    pub places: Vec<SourcePlace>,
    /// Host threads and streams, rank by rank.
    pub lanes: Vec<DiagramLane>,
    /// Ranks that do the same, the first of each in the order of ranks.
    pub folds: Vec<RankFold>,
    /// What was done, in the order in which the run did it.
    pub steps: Vec<DiagramStep>,
    /// Steps that met: each a list of positions in `steps`, at least two.
    pub meetings: Vec<Vec<usize>>,
    /// Which step is ordered after which, the earlier one first, as positions in `steps`.
    pub order: Vec<(usize, usize)>,
    /// What is not over at the end.
    pub blocked: Vec<DiagramWait>,
    /// Those that wait for one another in a circle, as positions in `blocked`, in the order of their waits.
    pub cycle: Vec<usize>,
    /// What the memory of each rank holds.
    pub memory: DiagramMemory,
    /// Lines of programs that a reader should look at, the most important last.
    pub lines: Vec<MarkedLine>,
    /// The lines of programs, as far as they can be read.
    pub sources: Vec<SourceText>,
    /// What devices did beside what the model says.
    pub devices: Vec<DeviceSide>,
    /// What does not stand here although it happened, one sentence each.
    pub left_out: Vec<String>,
    /// The text report of the same finding.
    pub report: String,
}

/// What a page is about, in words.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AboutFinding {
    /// `spec`, `run` or `dumps`.
    pub origin: &'static str,
    /// `FAILS`, `HANGS`, `UNKNOWN` or `HOLDS`; `DIFFER` where two programs differ.
    pub verdict: &'static str,
    /// The rule that is broken.
    pub rule: Option<RuleText>,
    /// What goes wrong, in a sentence for somebody who knows no rule.
    pub headline: String,
    /// The name of the check, or the folder.
    pub title: String,
    /// Where the check stands.
    pub place: String,
    /// Rank count and parameters.
    pub setting: String,
    /// What follows, as in `GPU hang`.
    pub outcome: String,
    /// Whether somebody stated that it is so.
    pub stated: Stated,
    /// What is wrong, in one sentence; the first one that is said.
    pub sentence: String,
    /// What else is known, each with the label that it has in the text report.
    pub facts: Vec<Fact>,
}

impl AboutFinding {
    /// Adds where ranks diverge and what to look at, behind what decided the finding.
    pub(super) fn add_paths(&mut self, diverge: Option<String>, look_at: Option<String>) {
        /// Labels of rows that come before.
        const BEFORE: [&str; 5] = ["not as expected", "root", "cycle", "because", "diverge"];
        let before = |fact: &Fact| BEFORE.contains(&fact.label.as_str());
        let mut at = self.facts.iter().rposition(before).map_or(0, |at| at + 1);
        for (label, text) in [("diverge", diverge), ("look at", look_at)] {
            let Some(text) = text else { continue };
            match self.facts.iter_mut().find(|fact| fact.label == label) {
                Some(fact) => fact.lines.insert(0, text),
                None => {
                    self.facts.insert(at, Fact { label: label.to_owned(), lines: vec![text] });
                    at += 1;
                }
            }
        }
    }
}

/// Whether a check states what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stated {
    /// It states something else, or it says nothing and something is wrong.
    #[default]
    No,
    /// It is not known: a bound was hit, or too little was recorded.
    Unknown,
    /// It states this failure.
    Failure,
    /// It states that it holds, and it does.
    Holds,
}

/// A rule, and what it says.
#[derive(Debug, Clone, Serialize)]
pub struct RuleText {
    /// The id that reports name it by.
    pub id: &'static str,
    /// What it demands, in a line.
    pub title: &'static str,
    /// Its section of the documentation, in Markdown.
    pub text: String,
}

/// A line of a program that a reader should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkedLine {
    /// Its position in `places`.
    pub place: usize,
    /// Why it is marked.
    pub sign: LineSign,
    /// The same in words, which stand beside it.
    pub words: String,
}

/// Why a line is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineSign {
    /// It is the last that ranks have in common before they diverge.
    Common,
    /// It is the first that some ranks go to and others do not.
    Diverges,
    /// What is decided there decided the finding.
    Cause,
    /// A change there was explored, and the program with it holds.
    Repair,
}

/// Lines of a report under one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The label that the text report has.
    pub label: String,
    /// What stands in each of its rows.
    pub lines: Vec<String>,
}

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct SourcePlace {
    /// The file, as steps name it.
    pub file: String,
    /// From 1; 0 where none is known.
    pub line: u32,
    /// Where that is called, if it stands in a library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_at: Option<(String, u32)>,
}

/// A host thread, a stream, or the collectives of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct DiagramLane {
    /// The rank that it belongs to.
    pub rank: u32,
    /// What the rank does in it.
    pub kind: LaneKind,
    /// What it is called, without its rank.
    pub name: String,
}

/// What a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// Calls of one host thread.
    Thread,
    /// A stream of a device.
    Stream,
    /// What a host gave to its device for one group.
    Group,
}

/// Ranks that do the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankFold {
    /// The ranks, in ascending order.
    pub ranks: Vec<u32>,
    /// The one that stands for all: one of which something is marked, if there is any.
    pub shown: u32,
    /// Whether their operands are the same too, and not only their lines.
    pub alike: bool,
}

/// Something that a lane does.
#[derive(Debug, Clone, Serialize)]
pub struct DiagramStep {
    /// Its position in `lanes`.
    pub lane: usize,
    /// Its position in `texts`.
    pub text: usize,
    /// Its position in `places`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// How far down it is drawn; what comes after something is below it.
    pub row: usize,
    /// What makes it stand out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Where it stands on the way of its rank: before ranks diverge, or right behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathSign>,
    /// What is said of it, as a position in `texts`: what was decided there, or what it was called with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<usize>,
    /// Whether it is of no concern to others: what a program remembers, and its questions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// What it is to other ranks.
    #[serde(skip)]
    pub role: StepRole,
    /// Nanoseconds since the start of the run at which it began and was over; an open end where it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<(u64, Option<u64>)>,
}

/// What makes a step stand out, the most important last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It decides something that nobody determines.
    Decision,
    /// The same run without it does not show the finding.
    Essential,
    /// What decided the finding.
    Cause,
    /// The finding is about it.
    Finding,
}

/// What a step is to other ranks, where their ways are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepRole {
    /// Ranks usually do it alike.
    #[default]
    Alike,
    /// Ranks do it in roles: with other operands, and all the same on one way.
    InRole,
    /// It is of no concern to others.
    Own,
}

/// Where a step stands on the way of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathSign {
    /// It is the last that ranks have in common before they diverge.
    Common,
    /// It is the first behind that.
    Diverges,
}

/// Something that is not over when nothing can go on.
#[derive(Debug, Clone, Serialize)]
pub struct DiagramWait {
    /// Its position in `lanes`.
    pub lane: usize,
    /// The step that is not over, if it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Its position in `texts`.
    pub text: usize,
    /// Its position in `places`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// What it waits in, in words.
    pub waits_in: String,
    /// What it waits for, as positions in `blocked`.
    pub waits_for: Vec<usize>,
    /// Ranks that it waits for in vain: they exited, or go on somewhere else.
    pub in_vain: Vec<u32>,
    /// How far down it is drawn.
    pub row: usize,
    /// Whether the finding is about it.
    pub finding: bool,
    /// Where it stands on the way of its rank, if no step began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathSign>,
}

/// What memory holds, and when that changed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiagramMemory {
    /// Contents that memory has: one text for all of a range, or one for each stripe.
    pub contents: Vec<Vec<String>>,
    /// Pieces of memory as they are at some time.
    pub pieces: Vec<MemoryPiece>,
    /// All memory of a rank as it is at some time.
    pub views: Vec<MemoryOfRank>,
    /// After so many steps, the memory of this rank is that view.
    pub changes: Vec<(usize, u32, usize)>,
}

/// A piece of physical memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct MemoryPiece {
    /// As reports name it.
    pub name: String,
    /// The vendor's call that allocated it.
    pub allocator: &'static str,
    /// Length of the whole memory.
    pub len_bytes: u64,
    /// Whose address it has, where it is not the first there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_of: Option<String>,
    /// Whether it went back to the driver.
    pub released: bool,
    /// Start, length and buffer of each block; no buffer where it is free.
    pub blocks: Vec<(u64, u64, Option<String>)>,
    /// Start and length of a range, and its position in `contents`.
    pub contents: Vec<(u64, u64, usize)>,
    /// Which of these is not what the program meant to lie there, and what it meant, as a position in `contents` of all
    /// memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<(usize, usize)>,
}

/// The memory of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct MemoryOfRank {
    /// Each as a position in `pieces`.
    pub pieces: Vec<usize>,
    /// Registrations that a lookup finds.
    pub windows: Vec<WindowOfRank>,
    /// Memory of other ranks that is open: its rank and name, and how often it was opened.
    pub mappings: Vec<(u32, String, u32)>,
}

/// A registration of a rank, as a lookup finds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct WindowOfRank {
    /// Communicator and number, as in `tp#1`.
    pub name: String,
    /// The memory that was registered.
    pub memory: String,
    /// Start in that memory.
    pub offset_bytes: u64,
    /// Length of what was registered.
    pub len_bytes: u64,
    /// Whether symmetric kernels may use it.
    pub symmetric: bool,
    /// Whether it is gone and a lookup still finds it.
    pub dangling: bool,
}

/// Lines of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceText {
    /// The file, as places name it.
    pub file: String,
    /// Runs of lines: the number of the first, and the lines.
    pub parts: Vec<(u32, Vec<String>)>,
}

/// What a device did with a program, beside what the model says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceSide {
    /// NCCL version, GPU, and how the program was run.
    pub machine: String,
    /// How many runs did this.
    pub runs: u32,
    /// Whether the model has it.
    pub agrees: Option<bool>,
    /// Where the two diverge, or why that is not known.
    pub difference: Option<String>,
    /// One row for each rank.
    pub ranks: Vec<DeviceRank>,
}

/// What a device did with the part of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceRank {
    /// How the rank ends, as the model says.
    pub predicted: String,
    /// How it ended on the device.
    pub ended: String,
    /// What its memory held on the device, buffer by buffer; empty where it was not read.
    pub held: Vec<String>,
}
