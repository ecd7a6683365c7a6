//! What a call is called when iterations are compared, and how what is left of a run is lowered.
//!
//! Two calls have one name if nothing but addresses tells them apart, and these say nothing: a wait is named by the stream
//! of the record that it meets, and how many records back it is there, an access that is known to be ordered by what it is. A call of which nothing follows
//! for others has no name.
//! Not here: what is known of events and accesses ([`super::order`]).

use std::collections::BTreeSet;
use std::mem::Discriminant;
use std::sync::Arc;

use rankcheck_recording::varint::{self, Varints};
use rankcheck_recording::{Argument, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::order::{EventCall, EventHistory, EventUse, Relations};
use super::{joined, within};
use crate::runs::call::{CallKind, CopyReturns, FoldClass, Unjudged, failure, row};
use crate::runs::sequence::{Sequence, Symbol, SymbolId};

/// A record that is met so many records later, or more, is named by which of the process it is: it was made before the loop.
const FAR: u32 = 256;

/// The name of a call of which nothing follows.
pub(super) const NOTHING: u32 = 0;

/// What a call is in the run that is left, where its addresses do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runs) enum CallRole {
    /// It records or meets the event of this number.
    Event(u32),
    /// Nothing follows from it.
    Nothing,
    /// Its accesses to memory are ordered behind all others.
    Ordered,
}

/// What calls are, by their numbers in the recording.
#[derive(Debug, Clone, Default)]
pub(in crate::runs) struct CallRoles {
    /// In the order of the numbers.
    of: Vec<(u32, CallRole)>,
    /// Numbers of events up to this one are given out.
    pub(in crate::runs) events: u32,
}

impl CallRoles {
    /// What a call is, if its addresses do not say it.
    pub(in crate::runs) fn of(&self, number: u32) -> Option<CallRole> {
        let at = self.of.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.of[at].1)
    }
}

/// What is known of the calls of one process.
#[derive(Debug, Default)]
pub(super) struct CallNames {
    /// The name of each call, by its position in the sequence.
    pub(super) of: Vec<u32>,
    /// What each name stands for, by the name less one.
    pub(super) what: Vec<NamedCall>,
    pub(super) links: CallLinks,
    /// Calls that returned behind others of other threads, by position: the one that was reached by then.
    pub(super) late: Vec<(u32, u32)>,
    events: EventHistory,
    /// Positions between which a poll matters.
    spans: Vec<(u32, u32)>,
}

/// Calls that later ones refer to, in some two bytes each: the position of the call, and that of the last which refers to it.
#[derive(Debug, Default)]
pub(super) struct CallLinks {
    /// Of each call: how far it is from the one before, and how far the last that refers to it is from there.
    written: Vec<u8>,
}

impl CallLinks {
    /// Of several from one position the one that goes furthest.
    fn new(mut links: Vec<(u32, u32)>) -> Self {
        // Nearly all are in their order already.
        links.sort();
        let mut written = Vec::new();
        let mut last = 0;
        let mut links = links.into_iter().peekable();
        while let Some((from, to)) = links.next() {
            if links.peek().is_some_and(|next| next.0 == from) {
                continue;
            }
            varint::put(&mut written, (from - last).into());
            varint::put(&mut written, varint::of_signed(i64::from(to) - i64::from(from)));
            last = from;
        }
        written.shrink_to_fit();
        Self { written }
    }

    /// In the order of the positions.
    pub(super) fn iter(&self) -> LinkReader<'_> {
        LinkReader { written: Varints::new(&self.written), last: 0 }
    }
}

/// How far some links were read.
#[derive(Debug, Clone)]
pub(super) struct LinkReader<'a> {
    written: Varints<'a>,
    last: u32,
}

impl Iterator for LinkReader<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        self.last += u32::try_from(self.written.number()?).ok()?;
        let to = i64::from(self.last) + varint::to_signed(self.written.number()?);
        Some((self.last, u32::try_from(to).ok()?))
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedCall {
    /// One of the symbols that have the name.
    pub(super) symbol: SymbolId,
    /// What is said instead of its addresses; none if these are part of the name.
    pub(super) how: Option<Reference>,
}

/// How a call refers to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reference {
    /// It makes the record that others refer to.
    Made,
    /// The record on a stream that is so many back there, of those that somebody meets.
    Back { stream: u32, records: u32 },
    /// The record of the process of this number.
    Nth(u32),
    /// Memory that is its own, and how far what is written lies behind what is read.
    Bytes { in_place: Option<u64> },
}

/// What a symbol is, whatever it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SymbolClass {
    Nothing,
    Polls,
    /// It touches memory, and does nothing else: nobody waits for it.
    Touches,
    Other,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "few calls are of a class of their own")]
fn class(sequence: &Sequence, symbol: Symbol) -> SymbolClass {
    let (call, result) = match symbol {
        Symbol::Call { call, result, .. } => (call, result),
        Symbol::Note { call, .. } => (call, None),
        Symbol::Enter { .. }
        | Symbol::Leave { .. }
        | Symbol::Never { .. }
        | Symbol::Noted { .. }
        | Symbol::Lost { .. }
        | Symbol::Folded { .. } => return SymbolClass::Other,
    };
    if failure(result.map(|result| sequence.shape(result))).is_some() {
        return SymbolClass::Other;
    }
    let call = sequence.shape(call);
    let kind = CallKind::of(&call.name);
    match kind {
        CallKind::Unjudged(Unjudged::Kernel | Unjudged::Foreign)
        | CallKind::Current(_)
        | CallKind::EventDestroy => SymbolClass::Nothing,
        CallKind::Nothing if row(&call.name).folded == FoldClass::Local => SymbolClass::Nothing,
        kind if kind.polls() => SymbolClass::Polls,
        CallKind::Copy(CopyReturns::AtOnce) => SymbolClass::Touches,
        _ => SymbolClass::Other,
    }
}

/// The class of each symbol.
fn classes(sequence: &Sequence) -> Vec<SymbolClass> {
    sequence.dictionary().iter().map(|&symbol| class(sequence, symbol)).collect()
}

/// Keys of which an ordered access, or a wait whose record is known, says nothing.
pub(super) const ADDRESSES: [&str; 7] = ["event", "send", "recv", "address", "to", "from", "symbol"];

/// What a symbol is without its addresses.
#[derive(PartialEq, Eq, Hash)]
struct StrippedSymbol {
    thread: u32,
    /// Whether it is a call, its end, or one that did not return.
    form: Discriminant<Symbol>,
    name: Arc<str>,
    arguments: Vec<(Box<str>, Argument)>,
    result: Option<ShapeId>,
}

/// Numbers for what symbols are without their addresses.
struct Stripped<'a> {
    sequence: &'a Sequence,
    of_symbol: Vec<Option<u32>>,
    known: FxHashMap<StrippedSymbol, u32>,
}

impl Stripped<'_> {
    fn of(&mut self, symbol: SymbolId) -> u32 {
        if let Some(known) = self.of_symbol[symbol.0 as usize] {
            return known;
        }
        let what = self.sequence.symbol(symbol);
        let call = what.shape().expect("what records, meets or touches is a call");
        let result = match what {
            Symbol::Call { result, .. } | Symbol::Leave { result, .. } => result,
            Symbol::Enter { .. }
            | Symbol::Never { .. }
            | Symbol::Note { .. }
            | Symbol::Noted { .. }
            | Symbol::Lost { .. }
            | Symbol::Folded { .. } => None,
        };
        let shape: &Shape = self.sequence.shape(call);
        let kept =
            shape.keys.iter().zip(shape.values.iter()).filter(|(key, _)| !ADDRESSES.contains(&&***key));
        let arguments = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let (thread, form) = (what.thread(), std::mem::discriminant(&what));
        let key = StrippedSymbol { thread, form, name: Arc::clone(&shape.name), arguments, result };
        let fresh = u32::try_from(self.known.len()).expect("fewer than 2^32 symbols");
        let known = *self.known.entry(key).or_insert(fresh);
        self.of_symbol[symbol.0 as usize] = Some(known);
        known
    }
}

/// Each call that has to do with an event, and how it refers to its record; none where the record keeps its handle, or where
/// nobody meets it.
fn references(
    events: &EventHistory,
    matters: impl Fn(u32) -> bool,
) -> impl Iterator<Item = (EventCall, Option<Reference>)> {
    let records = &events.records;
    // A record that only polls of no consequence meet is met by nobody.
    let mut met = vec![false; records.len()];
    for call in events.calls.iter() {
        met[call.does.record() as usize] |= match call.does {
            EventUse::Records(_) => false,
            EventUse::Meets(_) => true,
            EventUse::Polls(_) => matters(call.at),
        };
    }
    let mut nth = vec![0_u32; records.len()];
    let mut furthest = vec![0_u32; records.len()];
    let mut made = MadeOn::default();
    for call in events.calls.iter() {
        let at = call.does.record() as usize;
        let made = made.on(records[at].stream());
        match call.does {
            EventUse::Records(_) if met[at] && !records[at].kept() => {
                nth[at] = *made;
                *made += 1;
            }
            EventUse::Records(_) => {}
            EventUse::Meets(_) | EventUse::Polls(_) => furthest[at] = furthest[at].max(*made - nth[at]),
        }
    }
    let mut made = MadeOn::default();
    let mut reference = move |call: &EventCall| {
        let record = call.does.record();
        let at = record as usize;
        if records[at].kept() || !met[at] {
            return None;
        }
        let stream = records[at].stream();
        if let EventUse::Records(_) = call.does {
            *made.on(stream) += 1;
            return Some(Reference::Made);
        }
        if matches!(call.does, EventUse::Polls(_)) && !matters(call.at) {
            return None;
        }
        let back = Reference::Back { stream, records: *made.on(stream) - nth[at] };
        Some(if furthest[at] > FAR { Reference::Nth(record) } else { back })
    };
    events.calls.iter().map(move |call| (call, reference(&call)))
}

/// How many records were made on each stream.
#[derive(Default)]
struct MadeOn(Vec<u32>);

impl MadeOn {
    fn on(&mut self, stream: u32) -> &mut u32 {
        let at = stream as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        &mut self.0[at]
    }
}

/// Positions from one access that is judged by its address to another: whatever orders these may matter there.
fn spans(relations: &Relations) -> Vec<(u32, u32)> {
    let judged = || relations.touches.iter().filter(|touch| !touch.ordered).map(|touch| touch.at);
    let outermost = judged().min().zip(judged().max());
    joined(
        relations.unordered.iter().copied().chain(outermost).map(|(first, last)| (first, last + 1)).collect(),
    )
}

impl CallNames {
    pub(super) fn new(sequence: &Sequence, relations: Relations) -> Self {
        let symbols = &sequence.symbols;
        let classes = classes(sequence);
        let spans = spans(&relations);
        let matters = |at: u32| within(&spans, at);
        let mut numbers: FxHashMap<(u32, Option<Reference>), u32> = FxHashMap::default();
        let mut what: Vec<NamedCall> = Vec::new();
        let mut named = |number: u32, symbol: SymbolId, how: Option<Reference>| {
            *numbers.entry((number, how)).or_insert_with(|| {
                what.push(NamedCall { symbol, how });
                u32::try_from(what.len()).expect("fewer than 2^32 names")
            })
        };
        let mut plain = vec![NOTHING; classes.len()];
        let mut of: Vec<u32> = Vec::with_capacity(symbols.len());
        for (at, &symbol) in symbols.iter().enumerate() {
            let at_symbol = symbol.0 as usize;
            let nothing = match classes[at_symbol] {
                SymbolClass::Nothing => true,
                SymbolClass::Polls => !matters(u32::try_from(at).unwrap_or(u32::MAX)),
                SymbolClass::Touches | SymbolClass::Other => false,
            };
            if !nothing && plain[at_symbol] == NOTHING {
                plain[at_symbol] = named(symbol.0, symbol, None);
            }
            of.push(if nothing { NOTHING } else { plain[at_symbol] });
        }
        let Relations { events, touches, in_place, unordered, mut late } = relations;
        // By record: the call that made it, and the last that refers to it.
        let mut referred: Vec<(u32, Option<u32>)> = Vec::with_capacity(events.records.len());
        let mut stripped =
            Stripped { sequence, of_symbol: vec![None; classes.len()], known: FxHashMap::default() };
        for (call, reference) in references(&events, matters) {
            let at = call.at as usize;
            let record = events.record(&call);
            match call.does {
                EventUse::Records(_) => referred.push((call.at, None)),
                EventUse::Meets(met) | EventUse::Polls(met) if record.kept() || reference.is_some() => {
                    let (_, last) = &mut referred[met as usize];
                    *last = (*last).max(Some(call.at));
                }
                EventUse::Meets(_) | EventUse::Polls(_) => {}
            }
            if record.kept() {
                continue;
            }
            of[at] = match reference {
                Some(how) => named(stripped.of(symbols[at]), symbols[at], Some(how)),
                None => NOTHING,
            };
        }
        for touch in touches.iter().filter(|touch| touch.ordered) {
            let at = touch.at as usize;
            of[at] = match classes[symbols[at].0 as usize] {
                SymbolClass::Touches => NOTHING,
                SymbolClass::Nothing | SymbolClass::Polls | SymbolClass::Other => {
                    let in_place = in_place[symbols[at].0 as usize];
                    let how = Reference::Bytes { in_place };
                    named(stripped.of(symbols[at]), symbols[at], Some(how))
                }
            };
        }
        let links = referred.into_iter().filter_map(|(record, last)| Some((record, last?)));
        let links = CallLinks::new(links.chain(unordered).collect());
        // Behind what nothing follows from a call may return as late as it likes.
        late.retain(|&(at, until)| {
            let between = of.get(at as usize + 1..until as usize).unwrap_or_default();
            of[at as usize] != NOTHING && between.iter().any(|name| *name != NOTHING)
        });
        late.sort_unstable();
        Self { of, what, links, late, events, spans }
    }

    /// What calls are in the run that is left when `gone` is taken out: positions from and to, in their order.
    pub(super) fn roles(&self, sequence: &Sequence, gone: &[(u32, u32)]) -> CallRoles {
        let mut of: FxHashMap<u32, CallRole> = FxHashMap::default();
        let events = if gone.is_empty() { 0 } else { self.event_roles(gone, &mut of) };
        let classes = classes(sequence);
        let numbered = (0_u32..).zip(sequence.numbered()).filter_map(|(at, (number, _))| {
            let role = match of.get(&at) {
                Some(role) => *role,
                None if self.is_ordered(at as usize, sequence, &classes) && !within(gone, at) => {
                    CallRole::Ordered
                }
                None => return None,
            };
            Some((u32::try_from(number).ok()?, role))
        });
        CallRoles { of: numbered.collect(), events }
    }

    /// Whether a call is named as one whose accesses are ordered.
    fn is_ordered(&self, at: usize, sequence: &Sequence, classes: &[SymbolClass]) -> bool {
        match self.of[at].checked_sub(1) {
            Some(name) => matches!(self.what[name as usize].how, Some(Reference::Bytes { .. })),
            None => classes[sequence.symbols[at].0 as usize] == SymbolClass::Touches,
        }
    }

    /// By position: which event a call records or meets. An event has the number that the process's own has, unless that
    /// still stands for a record which an earlier iteration made. Returns how many numbers there are.
    ///
    /// A poll of which nothing follows says at least that the host got by, if the record before it is left.
    fn event_roles(&self, gone: &[(u32, u32)], of: &mut FxHashMap<u32, CallRole>) -> u32 {
        let events = &self.events;
        let matters = |at: u32| within(&self.spans, at);
        // First which record each call meets, then which numbers are free.
        let mut made: Vec<MadeRecord> = Vec::new();
        // By stream, which of them are counted when a call refers to one so many back.
        let mut counted: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut uses: Vec<(u32, usize)> = Vec::new();
        let mut by_record: FxHashMap<u32, usize> = FxHashMap::default();
        for (call, reference) in references(events, matters) {
            let record = call.does.record();
            if events.record(&call).kept() || within(gone, call.at) {
                continue;
            }
            if let EventUse::Records(_) = call.does {
                by_record.insert(record, made.len());
                let on = counted.entry(events.record(&call).stream()).or_default();
                on.extend(reference.is_some().then_some(made.len()));
                made.push(MadeRecord { at: call.at, last: call.at, event: call.event, number: None });
            }
            let met = match reference {
                Some(Reference::Back { stream, records }) => {
                    let on = counted.get(&stream).map_or(&[][..], Vec::as_slice);
                    on.len().checked_sub(records as usize).and_then(|at| on.get(at).copied())
                }
                Some(Reference::Nth(record)) => by_record.get(&record).copied(),
                Some(Reference::Made | Reference::Bytes { .. }) | None => {
                    let whole = |record: &usize| {
                        let between = gone.partition_point(|range| range.0 <= made[*record].at);
                        gone.get(between).is_none_or(|range| call.at < range.0)
                    };
                    by_record.get(&record).copied().filter(whole)
                }
            };
            match met {
                Some(met) => {
                    let record = &mut made[met];
                    (record.last, record.event) = (record.last.max(call.at), call.event);
                    uses.push((call.at, met));
                }
                None => _ = of.insert(call.at, CallRole::Nothing),
            }
        }
        let mut more = events.named;
        let mut free: Vec<u32> = Vec::new();
        let mut busy: FxHashSet<u32> = FxHashSet::default();
        let mut ends: BTreeSet<(u32, u32)> = BTreeSet::new();
        for (at, met) in uses {
            let MadeRecord { last, event, number, .. } = &mut made[met];
            let number = *number.get_or_insert_with(|| {
                while let Some(&(_, number)) = ends.first().filter(|(end, _)| *end < at) {
                    ends.pop_first();
                    busy.remove(&number);
                    free.extend((number > events.named).then_some(number));
                }
                let number = if busy.contains(event) { free.pop() } else { Some(*event) };
                let number = number.unwrap_or_else(|| {
                    more += 1;
                    more
                });
                busy.insert(number);
                ends.insert((*last, number));
                number
            });
            of.insert(at, CallRole::Event(number));
        }
        more
    }
}

/// A record in the run that is left.
struct MadeRecord {
    /// Where it is made.
    at: u32,
    /// Where it is met last.
    last: u32,
    /// The event that the last call names.
    event: u32,
    /// The number that it has in the run that is left.
    number: Option<u32>,
}
