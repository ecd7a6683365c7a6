//! A program in text: for each thread of each rank one operation a line, in the words of its description.
//!
//! ```text
//! rank 0, thread 0
//!   $a = MemAlloc { name: "a", len_bytes: 4096, memory: Cuda }
//!   if EventQuery { event: "e" }
//!     Free { buffer: $a, after: None }
//! ```
//!
//! What follows an `if` deeper to the right runs only if the answer is not 0. A label names what the operation of its
//! line produces, or that operation; it holds in its rank. `if $choose` asks nothing: it recalls the answer to the question of that
//! label, and an `else` may follow. Programs whose ranks are interchangeable say `every rank`.
//! Not here: how a program is run, and what is found.
#![expect(clippy::wildcard_enum_match_arm, reason = "other words are what this is not")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use rankcheck_model::describe::{Describe, Naming};
use rankcheck_model::{Op, Operation, Slot, Source, ThreadStart, Token};

use super::verbs::{Labelled, Read, Scope};
use super::words::Words;
use super::{Item, Recall, Script};

/// An operation or a question of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) label: Option<String>,
    pub(super) words: Words,
    /// What runs if the answer is not 0; none for an operation.
    pub(super) then: Option<Vec<Words>>,
    /// What runs if an answer that is recalled is 0.
    pub(super) otherwise: Vec<Words>,
}

/// A program as its text has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    /// `threads[rank][thread]`; of one rank alone if all are alike.
    pub(super) threads: Vec<Vec<Vec<Row>>>,
    /// How many ranks there are, if they are interchangeable.
    pub(super) alike: Option<usize>,
}

/// The names of a script, whose threads have numbers.
struct ScriptNames<'a>(&'a Script);

impl Naming for ScriptNames<'_> {
    fn name(&self, token: Token) -> Arc<str> {
        self.0.token(token)
    }

    fn thread(&self, start: ThreadStart) -> Option<usize> {
        usize::try_from(start.0).ok()
    }
}

impl Listing {
    pub(super) fn of(script: &Script) -> Self {
        let alike = script.interchangeable.then_some(script.ranks.len());
        let ranks = if alike.is_some() { &script.ranks[..1] } else { &script.ranks };
        Self { threads: ranks.iter().map(|threads| rows(script, threads)).collect(), alike }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (rank, threads) in self.threads.iter().enumerate() {
            let rank = if self.alike.is_some() { "every rank".to_owned() } else { format!("rank {rank}") };
            for (thread, rows) in threads.iter().enumerate() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{rank}, thread {thread}");
                for row in rows {
                    let asks = if row.then.is_some() { "if " } else { "" };
                    let label = row.label.as_ref().map(|label| format!("${label} = ")).unwrap_or_default();
                    let _ = writeln!(text, "  {label}{asks}{}", row.words);
                    for op in row.then.iter().flatten() {
                        let _ = writeln!(text, "    {op}");
                    }
                    if !row.otherwise.is_empty() {
                        text.push_str("  else\n");
                    }
                    for op in &row.otherwise {
                        let _ = writeln!(text, "    {op}");
                    }
                }
            }
        }
        text
    }

    /// Reads what [`Listing::text`] writes, for so many ranks.
    pub(super) fn read(text: &str, ranks: usize) -> Result<Self, String> {
        let mut listing = Self { threads: vec![Vec::new(); ranks], alike: None };
        let (mut rank, mut in_else) = (0, false);
        for line in text.lines().filter(|line| !line.is_empty()) {
            let in_line = |why: String| format!("{why}, in `{line}`");
            if let Some(op) = line.strip_prefix("    ") {
                let row = listing.last(rank).filter(|row| row.then.is_some());
                row.ok_or_else(|| in_line("no question stands before".to_owned()))?
                    .branch(in_else)
                    .push(Words::read(op).map_err(in_line)?);
                continue;
            }
            in_else = line == "  else";
            if in_else {
                listing
                    .last(rank)
                    .filter(|row| row.recalls())
                    .ok_or_else(|| in_line("no answer is recalled before".to_owned()))?;
            } else if let Some(row) = line.strip_prefix("  ") {
                let rows = listing.threads.get_mut(rank).and_then(|threads| threads.last_mut());
                rows.ok_or_else(|| in_line("no thread is named before".to_owned()))?
                    .push(Row::read(row).map_err(in_line)?);
            } else {
                rank = listing
                    .header(line, ranks)
                    .ok_or_else(|| in_line("no such thread comes here".to_owned()))?;
            }
        }
        Ok(listing)
    }

    fn last(&mut self, rank: usize) -> Option<&mut Row> {
        self.threads.get_mut(rank)?.last_mut()?.last_mut()
    }

    /// Begins a thread; returns its rank.
    fn header(&mut self, line: &str, ranks: usize) -> Option<usize> {
        let (of, thread) = line.split_once(", thread ")?;
        let rank = if of == "every rank" {
            self.alike = Some(ranks);
            self.threads.truncate(1);
            0
        } else {
            of.strip_prefix("rank ")?.parse().ok()?
        };
        let threads = self.threads.get_mut(rank)?;
        let next = threads.len();
        threads.push(Vec::new());
        (thread.parse() == Ok(next)).then_some(rank)
    }

    pub(super) fn script(&self) -> Result<Script, String> {
        let mut script = Script::new(self.alike.unwrap_or(self.threads.len()));
        let mut ranks = Vec::new();
        for threads in &self.threads {
            ranks.push(items(&script, threads)?);
        }
        script.interchangeable = self.alike.is_some();
        script.ranks = match self.alike {
            Some(alike) => vec![ranks.swap_remove(0); alike],
            None => ranks,
        };
        Ok(script)
    }
}

impl Row {
    fn read(text: &str) -> Result<Self, String> {
        let labelled = text.strip_prefix('$').and_then(|text| text.split_once(" = "));
        let (label, text) = match labelled {
            Some((label, text)) => (Some(label.to_owned()), text),
            None => (None, text),
        };
        let question = text.strip_prefix("if ");
        let words = Words::read(question.unwrap_or(text))?;
        Ok(Self { label, words, then: question.map(|_| Vec::new()), otherwise: Vec::new() })
    }

    /// Whether it depends on an answer that was given before.
    pub(super) fn recalls(&self) -> bool {
        self.then.is_some() && matches!(self.words, Words::Label(..))
    }

    fn branch(&mut self, otherwise: bool) -> &mut Vec<Words> {
        if otherwise { &mut self.otherwise } else { self.then.get_or_insert_default() }
    }

    /// All operations behind the question.
    pub(super) fn behind(&mut self) -> impl Iterator<Item = &mut Words> {
        self.then.iter_mut().flatten().chain(&mut self.otherwise)
    }
}

/// The position of a question among the items of its thread, by that among the questions.
fn asked(items: &[Item], question: usize) -> u32 {
    let mut questions = items.iter().enumerate().filter(|(_, item)| matches!(item, Item::If(..)));
    let (at, _) = questions.nth(question).expect("what is recalled was asked");
    u32::try_from(at).expect("short threads")
}

/// The rows of a rank's threads, with labels on what others of them name.
fn rows(script: &Script, threads: &[Vec<Item>]) -> Vec<Vec<Row>> {
    let words = |value: &dyn Describe| Words::of(value, &ScriptNames(script));
    let all = |ops: &[Op]| ops.iter().map(|op| words(op)).collect::<Vec<Words>>();
    let row = |thread: usize, item: &Item| {
        let (words, then, otherwise) = match item {
            Item::Do(op) => (words(op), None, Vec::new()),
            Item::If(question, then) => (words(question), Some(all(then)), Vec::new()),
            Item::Recall(Recall { question, then, otherwise }) => {
                let index = asked(&threads[thread], *question);
                let of = Operation { start: ThreadStart(thread as u64), index };
                (words(&of), Some(all(then)), all(otherwise))
            }
        };
        Row { label: None, words, then, otherwise }
    };
    let of_thread =
        |(thread, items): (usize, &Vec<Item>)| items.iter().map(|item| row(thread, item)).collect();
    let mut rows: Vec<Vec<Row>> = threads.iter().enumerate().map(of_thread).collect();
    let mut taken = BTreeSet::new();
    for thread in 0..rows.len() {
        for at in 0..rows[thread].len() {
            let first: u32 = threads[thread][..at].iter().map(Item::slots).sum();
            let named = Named { thread, at, slots: first..first + threads[thread][at].slots() };
            let label = label(&rows[thread][at].words, &taken);
            let mut used = false;
            for row in rows.iter_mut().flatten() {
                let mut change = |words| named.labelled(words, &label, &mut used);
                row.words = row.words.clone().map(&mut change);
                row.behind().for_each(|op| *op = op.clone().map(&mut change));
            }
            if used {
                taken.insert(label.clone());
                rows[thread][at].label = Some(label);
            }
        }
    }
    rows
}

/// An operation and what it produces.
struct Named {
    thread: usize,
    at: usize,
    slots: std::ops::Range<u32>,
}

impl Named {
    /// The label in place of words that name the operation or one of its slots.
    fn labelled(&self, words: Words, label: &str, used: &mut bool) -> Words {
        let nth = match &words {
            Words::Call(name, fields) if name == "Slot" => position(fields)
                .filter(|(thread, index)| *thread == self.thread && self.slots.contains(index))
                .map(|(_, index)| index - self.slots.start),
            Words::Call(name, fields) if name == "Operation" => position(fields)
                .filter(|(thread, index)| *thread == self.thread && *index as usize == self.at)
                .map(|_| 0),
            Words::Parts(name, parts) => match &parts[..] {
                [Words::Label(inner, nth)] if name == "Slot" && inner == label => Some(*nth),
                _ => None,
            },
            _ => None,
        };
        *used |= nth.is_some();
        nth.map_or(words, |nth| Words::Label(label.to_owned(), nth))
    }
}

/// The thread and the index of a slot or an operation.
fn position(fields: &[(String, Words)]) -> Option<(usize, u32)> {
    let [(_, Words::Thread(thread)), (_, Words::Word(index))] = fields else { return None };
    let Words::Parts(_, thread) = &**thread else { return None };
    let [Words::Word(thread)] = &thread[..] else { return None };
    Some((thread.parse().ok()?, index.parse().ok()?))
}

/// A label for an operation: its name if it has one, or else its verb.
fn label(words: &Words, taken: &BTreeSet<String>) -> String {
    let mut label = String::new();
    let wanted = match words {
        Words::Call(verb, fields) => match fields.iter().find(|(field, _)| field == "name") {
            Some((_, Words::Name(name))) => name,
            _ => verb,
        },
        Words::Word(verb) | Words::Parts(verb, _) => verb,
        Words::Name(_) | Words::Label(..) | Words::Thread(_) | Words::List(_) => "it",
    };
    for sign in wanted.chars() {
        if sign.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(if sign.is_ascii_alphanumeric() { sign.to_ascii_lowercase() } else { '_' });
    }
    let numbered = (2..).map(|nth| format!("{label}_{nth}"));
    std::iter::once(label.clone()).chain(numbered).find(|label| !taken.contains(label)).expect("few labels")
}

/// The items of a rank's threads.
fn items(script: &Script, threads: &[Vec<Row>]) -> Result<Vec<Vec<Item>>, String> {
    let token = |name: &str| script.name(name);
    let collecting = Scope { token: &token, labels: None };
    let mut labels = BTreeMap::new();
    for (thread, rows) in threads.iter().enumerate() {
        let start = ThreadStart(thread as u64);
        let mut slots = 0;
        for (at, row) in rows.iter().enumerate() {
            let slots_of = |words| Op::read(words, &collecting).map(|op| op.slots());
            let produced = match &row.then {
                None => slots_of(&row.words)?,
                Some(then) if row.recalls() => then.iter().map(slots_of).sum::<Result<_, _>>()?,
                Some(_) => 0,
            };
            if let Some(label) = &row.label {
                let operation = Operation { start, index: u32::try_from(at).expect("short threads") };
                let slot = (produced > 0).then_some(Slot { start, index: slots });
                if labels.insert(label.clone(), Labelled { operation, slot }).is_some() {
                    return Err(format!("two lines are called ${label}"));
                }
            }
            slots += produced;
        }
    }
    let scope = Scope { token: &token, labels: Some(&labels) };
    let all =
        |ops: &[Words]| ops.iter().map(|op| Read::read(op, &scope)).collect::<Result<Vec<Op>, String>>();
    let item = |rows: &[Row], row: &Row| {
        Ok(match (&row.then, &row.words) {
            (None, words) => Item::Do(Read::read(words, &scope)?),
            (Some(then), Words::Label(label, _)) => {
                let of = labels.get(label).ok_or_else(|| format!("nothing is called ${label}"))?.operation;
                let earlier = &rows[..(of.index as usize).min(rows.len())];
                let question = earlier.iter().filter(|row| row.then.is_some() && !row.recalls()).count();
                Item::Recall(Recall { question, then: all(then)?, otherwise: all(&row.otherwise)? })
            }
            (Some(then), words) => Item::If(Read::read(words, &scope)?, all(then)?),
        })
    };
    threads.iter().map(|rows| rows.iter().map(|row| item(rows, row)).collect()).collect()
}
