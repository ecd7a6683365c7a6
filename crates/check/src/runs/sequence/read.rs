//! The events of one file become a sequence of symbols.
//!
//! Calls that return, calls inside calls, calls that never return; notes that say when they happened are put
//! there afterwards. Not here: what is made of a sequence.

use std::path::Path;

use rankcheck_recording::{Argument, CallEvent, PlainCall, ProcessFile, ReadError, Shape, ShapeId};
use rustc_hash::FxHashMap;

use super::{ReadUntil, Sequence, Symbol, SymbolId, intern};
use crate::runs::call::{CallKind, failure};
use crate::runs::device_share::{DeviceShare, ShareFilter};
use crate::runs::fold::CallRoles;
use crate::runs::ipc::Span;
use crate::runs::vendor;
use crate::runs::world::CommListener;

/// Reads a file, and what the process says of its communicators.
pub(super) fn sequence(
    path: &Path,
    until: ReadUntil,
    share: Option<&DeviceShare>,
) -> Result<(Sequence, CommListener), ReadError> {
    let (mut process, mut reading) = Reading::of(path, until, share, Times::NotKept)?;
    if !reading.late.is_empty() {
        // Where things happened that were noted later is not known without the times of all others.
        (process, reading) = Reading::of(path, until, share, Times::Kept(Vec::new()))?;
    }
    let local = std::mem::take(&mut reading.local);
    let cuts = process.cuts().to_vec();
    let (header, mut shapes) = process.into_parts();
    reading.sort_in(&mut shapes);
    let left_out = reading.leave_out();
    let acts_from = reading.threads.iter().filter_map(|(thread, of)| Some((*thread, of.acts_from?)));
    let acts_from = acts_from.collect();
    let watchdogs = reading.threads.iter().filter(|(_, of)| of.watches).count();
    let Reading { mut symbols, dictionary, numbers, ended, returned, late_returns: late, .. } = reading;
    symbols.shrink_to_fit();
    let roles = CallRoles::default();
    let sequence = Sequence {
        header,
        symbols,
        cuts,
        ended,
        returned,
        left_out,
        dictionary,
        numbers,
        shapes,
        late,
        acts_from,
        watchdogs,
        roles,
    };
    Ok((sequence, local))
}

/// What a call means for the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallClass {
    /// [`CommListener`] wants to know.
    Listened,
    /// Asks whether something is done, and does not wait.
    Poll,
    /// Noted, and says when it happened: nanoseconds since the process began.
    Late(u64),
    /// It was noted, not called.
    Instant,
    Other,
}

fn class(shape: &Shape) -> CallClass {
    match CallKind::of(&shape.name) {
        kind if CommListener::listens(kind) => CallClass::Listened,
        kind if kind.polls() => CallClass::Poll,
        _ => match shape.get("at").and_then(Argument::number) {
            Some(at) if shape.instant => CallClass::Late(at),
            _ if shape.instant => CallClass::Instant,
            _ => CallClass::Other,
        },
    }
}

/// A call that was entered.
#[derive(Debug, Clone, Copy)]
struct EnteredCall {
    call: ShapeId,
    number: u64,
    time: u64,
    /// Its position in the sequence.
    at: usize,
    /// Whether a call of the same thread was entered since.
    outer: bool,
}

#[derive(Debug, Default)]
struct OfThread {
    open: Vec<EnteredCall>,
    /// The number of the first call with which it did something else than poll.
    acts_from: Option<u64>,
    /// Whether something was over when it asked, and it had done nothing but poll.
    watches: bool,
}

/// In the sequence while it is read: a call that has not returned.
const PENDING: SymbolId = SymbolId(u32::MAX);
/// In the sequence while it is read: a call that is left out.
const LEFT_OUT: SymbolId = SymbolId(u32::MAX - 1);

/// When each symbol was entered.
#[derive(Debug, Default)]
enum Times {
    #[default]
    NotKept,
    Kept(Vec<u64>),
}

#[derive(Debug, Default)]
struct Reading {
    symbols: Vec<SymbolId>,
    times: Times,
    /// Indexed by shape: the thread and the symbol of its last call that returned nothing, if it is of class `Other`.
    plain: Vec<Option<(u32, SymbolId)>>,
    dictionary: Vec<Symbol>,
    numbers: FxHashMap<Symbol, SymbolId>,
    /// The class of each shape that came so far, indexed by shape.
    classes: Vec<CallClass>,
    /// Few; the numbers come from the file, so they are no indices.
    threads: Vec<(u32, OfThread)>,
    /// The number of the next call or note.
    number: u64,
    /// What was noted later than it happened: when, by which thread, what.
    late: Vec<(u64, u32, ShapeId)>,
    /// Calls that returned behind others: their position, and the one that was reached by then.
    late_returns: Vec<(u32, u32)>,
    local: CommListener,
    /// When the last event was.
    ended: u64,
    /// How many calls returned.
    returned: u64,
}

impl Reading {
    fn of(
        path: &Path,
        until: ReadUntil,
        share: Option<&DeviceShare>,
        times: Times,
    ) -> Result<(ProcessFile, Self), ReadError> {
        let mut process = until.open(path)?;
        // One that grew would be copied, and touch twice the memory.
        let symbols = Vec::with_capacity(usize::try_from(process.events_about()).unwrap_or(0));
        let local = CommListener::of(&process.header, share);
        let mut reading = Self { times, symbols, local, ..Self::default() };
        let mut filter = ShareFilter::new(share);
        loop {
            if share.is_none() {
                let mut first = true;
                process.plain_calls(u64::MAX, |call| reading.plain_call(call, std::mem::take(&mut first)))?;
            }
            let Some(event) = process.next_event()? else { break };
            if filter.passes(reading.number, &event, &process) {
                reading.event(event, &process);
            } else if let CallEvent::Enter { time, .. } = event {
                reading.number += 1;
                reading.push(LEFT_OUT, time);
            }
        }
        reading.end(&process);
        Ok((process, reading))
    }

    fn intern(&mut self, symbol: Symbol) -> SymbolId {
        intern(symbol, &mut self.dictionary, &mut self.numbers)
    }

    fn push(&mut self, symbol: SymbolId, time: u64) {
        self.symbols.push(symbol);
        if let Times::Kept(times) = &mut self.times {
            times.push(time);
        }
    }

    /// Puts a call into the sequence that was over before anything else happened, if its symbol is known. The first of
    /// those that stand in a row may be inside another call.
    #[inline]
    fn plain_call(&mut self, call: PlainCall, first: bool) -> bool {
        let PlainCall { time, thread, call } = call;
        let Some(Some((of, symbol))) = self.plain.get(call.0 as usize).copied() else { return false };
        if of != thread {
            return false;
        }
        if first {
            self.inside(thread);
        }
        self.number += 1;
        self.returned += 1;
        self.ended = time;
        self.push(symbol, time);
        true
    }

    /// The symbol of a call that returned.
    fn call(&mut self, thread: u32, call: ShapeId, result: Option<ShapeId>) -> SymbolId {
        let symbol = self.intern(Symbol::Call { thread, call, result });
        let at = call.0 as usize;
        if result.is_none() && self.classes[at] == CallClass::Other {
            if self.plain.len() <= at {
                self.plain.resize(self.classes.len(), None);
            }
            self.plain[at] = Some((thread, symbol));
        }
        symbol
    }

    fn class(&mut self, call: ShapeId, process: &ProcessFile) -> CallClass {
        if self.classes.len() <= call.0 as usize {
            self.classes.extend(process.shapes()[self.classes.len()..].iter().map(class));
        }
        self.classes[call.0 as usize]
    }

    fn thread(&mut self, thread: u32) -> &mut OfThread {
        let known = self.threads.iter().position(|(number, _)| *number == thread);
        let at = known.unwrap_or_else(|| {
            self.threads.push((thread, OfThread::default()));
            self.threads.len() - 1
        });
        &mut self.threads[at].1
    }

    fn event(&mut self, event: CallEvent, process: &ProcessFile) {
        match event {
            CallEvent::Enter { time, thread, call } => {
                self.ended = self.ended.max(time);
                self.enter(time, thread, call, process);
            }
            CallEvent::Return { time, thread, values } => {
                self.ended = self.ended.max(time);
                self.leave(time, thread, values, process);
            }
            CallEvent::Lost { thread, events } => {
                let symbol = self.intern(Symbol::Lost { thread, events });
                let time = match &self.times {
                    Times::Kept(times) => times.last().copied().unwrap_or(0),
                    Times::NotKept => 0,
                };
                self.push(symbol, time);
                // Returns may be among what was lost, so what is open is not known any more.
                let open = std::mem::take(&mut self.thread(thread).open);
                self.never(thread, &open, process);
            }
        }
    }

    fn enter(&mut self, time: u64, thread: u32, call: ShapeId, process: &ProcessFile) {
        let class = self.class(call, process);
        let number = self.number;
        self.number += 1;
        if let CallClass::Late(at) = class {
            self.late.push((at, thread, call));
            self.push(LEFT_OUT, time);
            return;
        }
        if class == CallClass::Instant || class == CallClass::Listened && process.shape(call).instant {
            if class == CallClass::Listened {
                let at = Span { entered: time, returned: time };
                self.local.returned(number, at, process.shape(call), None);
            }
            let symbol = self.intern(Symbol::Note { thread, call });
            self.push(symbol, time);
            return;
        }
        // A poll goes into the sequence if it says "done".
        if class != CallClass::Poll {
            self.inside(thread);
            self.thread(thread).acts_from.get_or_insert(number);
        }
        let at = self.symbols.len();
        self.thread(thread).open.push(EnteredCall { call, number, time, at, outer: false });
        self.push(PENDING, time);
    }

    /// A call is about to go into the sequence inside the innermost open one.
    fn inside(&mut self, thread: u32) {
        if let Some(outer) = self.thread(thread).open.last_mut()
            && !outer.outer
        {
            outer.outer = true;
            let (call, at) = (outer.call, outer.at);
            self.symbols[at] = self.intern(Symbol::Enter { thread, call });
        }
    }

    fn leave(&mut self, time: u64, thread: u32, result: Option<ShapeId>, process: &ProcessFile) {
        self.returned += 1;
        let Some(open) = self.thread(thread).open.pop() else {
            // Its call was entered before events were lost.
            return;
        };
        let call = open.call;
        match self.class(call, process) {
            CallClass::Poll => {
                let failed = failure(result.map(|result| process.shape(result)));
                let unheeded = failed.is_none() && self.thread(thread).acts_from.is_none();
                self.thread(thread).watches |= unheeded;
                if failed == Some(vendor::NOT_READY) || unheeded {
                    self.symbols[open.at] = LEFT_OUT;
                    return;
                }
                self.inside(thread);
            }
            CallClass::Listened => {
                let result = result.map(|result| process.shape(result));
                let at = Span { entered: open.time, returned: time };
                self.local.returned(open.number, at, process.shape(call), result);
            }
            CallClass::Late(_) | CallClass::Instant | CallClass::Other => {}
        }
        if !open.outer && open.at + 1 < self.symbols.len() {
            let position = |at: usize| u32::try_from(at).expect("a sequence has fewer than 2^32 symbols");
            self.late_returns.push((position(open.at), position(self.symbols.len())));
        }
        if open.outer {
            let symbol = self.intern(Symbol::Leave { thread, call, result });
            self.push(symbol, time);
        } else {
            self.symbols[open.at] = self.call(thread, call, result);
        }
    }

    /// Calls that never returned.
    fn never(&mut self, thread: u32, open: &[EnteredCall], process: &ProcessFile) {
        for open in open {
            match self.class(open.call, process) {
                CallClass::Poll => {
                    self.symbols[open.at] = LEFT_OUT;
                    continue;
                }
                CallClass::Listened => self.local.call(open.number, process.shape(open.call), None),
                CallClass::Late(_) | CallClass::Instant | CallClass::Other => {}
            }
            if !open.outer {
                self.symbols[open.at] = self.intern(Symbol::Never { thread, call: open.call });
            }
        }
    }

    fn end(&mut self, process: &ProcessFile) {
        for at in 0..self.threads.len() {
            let (thread, of_thread) = &mut self.threads[at];
            let (thread, open) = (*thread, std::mem::take(&mut of_thread.open));
            self.never(thread, &open, process);
        }
    }

    /// Puts what was noted later where it happened.
    fn sort_in(&mut self, shapes: &mut Vec<Shape>) {
        let mut late = std::mem::take(&mut self.late);
        let Times::Kept(times) = std::mem::take(&mut self.times) else { return };
        late.sort_by_key(|&(at, ..)| at);
        let mut timeless: FxHashMap<Shape, ShapeId> = FxHashMap::default();
        let mut symbols = Vec::with_capacity(self.symbols.len() + late.len());
        let mut next = 0;
        // How many were put before a position, by the positions from which on it is so.
        let mut before: Vec<(usize, u32)> = Vec::new();
        for (at, thread, call) in late {
            while next < self.symbols.len() && times[next] <= at {
                symbols.push(self.symbols[next]);
                next += 1;
            }
            before.push((
                next,
                u32::try_from(before.len() + 1).expect("a sequence has fewer than 2^32 symbols"),
            ));
            let shape = without_time(&shapes[call.0 as usize]);
            let call = *timeless.entry(shape).or_insert_with_key(|shape| {
                shapes.push(shape.clone());
                ShapeId(u32::try_from(shapes.len() - 1).expect("a file has fewer than 2^32 shapes"))
            });
            symbols.push(self.intern(Symbol::Noted { thread, call }));
        }
        symbols.extend_from_slice(&self.symbols[next..]);
        self.symbols = symbols;
        let moved = |at: u32| {
            let after = before.partition_point(|(from, _)| *from <= at as usize);
            at + before[..after].last().map_or(0, |(_, more)| *more)
        };
        for (at, until) in &mut self.late_returns {
            (*at, *until) = (moved(*at), moved(*until));
        }
    }

    /// Takes the calls out that are left out. Gives for each how many calls before it are not.
    fn leave_out(&mut self) -> Vec<u32> {
        if !self.symbols.contains(&LEFT_OUT) {
            return Vec::new();
        }
        // Positions move with what is taken out before them.
        if !self.late_returns.is_empty() {
            let gone = (0_u32..).zip(&self.symbols).filter(|(_, symbol)| **symbol == LEFT_OUT);
            let gone: Vec<u32> = gone.map(|(at, _)| at).collect();
            let before = |at: u32| u32::try_from(gone.partition_point(|other| *other < at)).expect("32 bits");
            for (at, until) in &mut self.late_returns {
                (*at, *until) = (*at - before(*at), *until - before(*until));
            }
        }
        let mut left_out = Vec::new();
        let mut kept = 0_u64;
        let dictionary = &self.dictionary;
        self.symbols.retain(|&symbol| {
            if symbol == LEFT_OUT {
                left_out.push(u32::try_from(kept).unwrap_or(u32::MAX));
                return false;
            }
            kept += dictionary[symbol.0 as usize].calls();
            true
        });
        self.late_returns.retain(|(at, until)| at + 1 < *until);
        left_out
    }
}

/// A note without when it happened.
fn without_time(shape: &Shape) -> Shape {
    let stays = |at: &usize| &*shape.keys[*at] != "at";
    let kept: Vec<usize> = (0..shape.keys.len()).filter(stays).collect();
    Shape {
        name: shape.name.clone(),
        keys: kept.iter().map(|&at| shape.keys[at].clone()).collect(),
        values: kept.iter().map(|&at| shape.values[at].clone()).collect(),
        instant: shape.instant,
    }
}
