//! What a process did, as a number: the same for processes that did the same, wherever their memory and their handles lie.
//!
//! Calls are compared by their names ([`super::names`]), so what says nothing beyond the process is left out here too: launches
//! of kernels, polls of no consequence, addresses of memory whose accesses are ordered. Addresses that are left are
//! numbered as they come: a handle by itself, memory by the allocation that it lies in and where. Who a process is, is no part of
//! what it did: its rank, the ids of its communicators, keys of stores.
//! Not here: who meets whom ([`super::copies`]).

use std::hash::{Hash as _, Hasher as _};

use rankcheck_model::id::ContentHasher;
use rankcheck_recording::{Argument, Shape};
use rustc_hash::FxHashMap;

use super::names::{CallNames, NOTHING, Reference};
use crate::runs::call::{CallKind, FoldClass, Thing, failure, row};
use crate::runs::sequence::{Sequence, Symbol};
use crate::runs::world::RankProcess;

/// Numbers below are no addresses: streams that always exist, null.
const NO_ADDRESS: u64 = 4096;

/// What a process did; none if it shares more with others than communicators, or if not all that it did is known.
pub(super) fn fingerprint(member: &RankProcess, sequence: &Sequence, names: &CallNames) -> Option<u128> {
    let known = sequence.dictionary().iter().all(|symbol| is_followed(sequence, *symbol));
    if !known || !sequence.cuts.is_empty() || member.share.is_some() || member.shared.is_shared() {
        return None;
    }
    let mut numbering = Numbering::new(sequence);
    let mut hasher = ContentHasher::default();
    (sequence.header.driver, member.births().len()).hash(&mut hasher);
    let mut met: Vec<u32> = vec![u32::MAX; names.what.len() + 1];
    let mut fresh = 0;
    // By position, how many calls with names come before it; only where calls return behind others.
    let late = &names.late;
    let mut named = 0_u32;
    let mut before: FxHashMap<u32, u32> =
        late.iter().flat_map(|&(at, until)| [(at, 0), (until, 0)]).collect();
    for (at, &name) in (0_u32..).zip(&names.of) {
        if !late.is_empty()
            && let Some(before) = before.get_mut(&at)
        {
            *before = named;
        }
        if name == NOTHING {
            continue;
        }
        named += 1;
        let number = &mut met[name as usize];
        if *number == u32::MAX {
            *number = fresh;
            fresh += 1;
            numbering.name(names, name, &mut hasher);
        }
        hasher.write_u32(*number);
    }
    for &(at, until) in late {
        // One that is late beyond the last position is late to the end.
        let position = |at: u32| if at as usize >= names.of.len() { named } else { before[&at] };
        (position(at), position(until)).hash(&mut hasher);
    }
    Some(hasher.fingerprint())
}

/// Whether all that follows from a symbol for others goes through communicators.
#[expect(clippy::wildcard_enum_match_arm, reason = "few calls concern others in another way")]
fn is_followed(sequence: &Sequence, symbol: Symbol) -> bool {
    let (call, result) = match symbol {
        Symbol::Never { .. } | Symbol::Lost { .. } | Symbol::Folded { .. } => return false,
        Symbol::Call { call, result, .. } | Symbol::Leave { call, result, .. } => (call, result),
        Symbol::Enter { call, .. } | Symbol::Note { call, .. } | Symbol::Noted { call, .. } => (call, None),
    };
    let (call, result) = (sequence.shape(call), result.map(|result| sequence.shape(result)));
    match CallKind::of(&call.name) {
        CallKind::InitAll
        | CallKind::Shrink
        | CallKind::Exists
        | CallKind::IpcExport
        | CallKind::IpcOpen
        | CallKind::IpcClose
        | CallKind::Share(_)
        | CallKind::Rendezvous
        | CallKind::Signal(_)
        | CallKind::EventExport
        | CallKind::EventOpen
        | CallKind::Exception => false,
        kind @ CallKind::Destroy => !kind.aborts(call),
        kind => !(kind.makes_comm(call) && failure(result).is_some()),
    }
}

/// Numbers for addresses, as they come.
struct Numbering<'a> {
    sequence: &'a Sequence,
    /// Memory that was ever allocated, from and to, in order; what overlaps is one.
    memory: Vec<(u64, u64)>,
    numbers: FxHashMap<NumberedThing, u32>,
}

/// What gets a number when it comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NumberedThing {
    Handle(u64),
    /// Memory, by its index in `memory`.
    Memory(usize),
    /// As [`super::order`] counts streams.
    Stream(u32),
}

impl<'a> Numbering<'a> {
    fn new(sequence: &'a Sequence) -> Self {
        let mut memory: Vec<(u64, u64)> =
            sequence.dictionary().iter().filter_map(|&symbol| allocated(sequence, symbol)).collect();
        memory.sort_unstable();
        memory.dedup_by(|next, last| {
            let overlap = next.0 < last.1;
            if overlap {
                last.1 = last.1.max(next.1);
            }
            overlap
        });
        Self { sequence, memory, numbers: FxHashMap::default() }
    }

    fn number(&mut self, of: NumberedThing) -> u32 {
        let fresh = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(of).or_insert(fresh)
    }

    /// What a name stands for.
    fn name(&mut self, names: &CallNames, name: u32, to: &mut ContentHasher) {
        let named = &names.what[name as usize - 1];
        let symbol = self.sequence.symbol(named.symbol);
        (std::mem::discriminant(&symbol), symbol.thread()).hash(to);
        let stripped = named.how.is_some();
        if let Some(call) = symbol.shape() {
            self.shape(self.sequence.shape(call), stripped, to);
        }
        if let Symbol::Call { result, .. } | Symbol::Leave { result, .. } = symbol {
            result.is_some().hash(to);
            if let Some(result) = result {
                self.shape(self.sequence.shape(result), false, to);
            }
        }
        match named.how {
            None => to.write_u8(0),
            Some(Reference::Made) => to.write_u8(1),
            Some(Reference::Back { stream, records }) => {
                (2_u8, self.number(NumberedThing::Stream(stream)), records).hash(to);
            }
            Some(Reference::Nth(record)) => (3_u8, record).hash(to),
            Some(Reference::Bytes { in_place }) => (4_u8, in_place).hash(to),
        }
    }

    fn shape(&mut self, shape: &Shape, stripped: bool, to: &mut ContentHasher) {
        shape.name.hash(to);
        let kind = CallKind::of(&shape.name);
        for (key, value) in shape.keys.iter().zip(&shape.values) {
            if !tells(kind, key) || stripped && super::names::ADDRESSES.contains(&&**key) {
                continue;
            }
            key.hash(to);
            if let Argument::Address(address) = value
                && *address >= NO_ADDRESS
            {
                self.address(*address, key, to);
            } else {
                value.hash(to);
            }
        }
    }

    fn address(&mut self, address: u64, key: &str, to: &mut ContentHasher) {
        let after = self.memory.partition_point(|(from, _)| *from <= address);
        match after.checked_sub(1).map(|at| (at, self.memory[at])) {
            Some((at, (from, until))) if address < until => {
                // What is aligned to a page is so on each of them.
                let number = self.number(NumberedThing::Memory(at));
                (1_u8, number, address - from, address % NO_ADDRESS).hash(to);
            }
            // Of memory that was not seen allocated it is not known what lies beside it.
            Some(_) | None if super::names::ADDRESSES.contains(&key) && key != "event" => {
                (2_u8, address).hash(to);
            }
            Some(_) | None => (3_u8, self.number(NumberedThing::Handle(address))).hash(to),
        }
    }
}

/// Whether an argument says what the process does, and not who it is.
#[expect(clippy::wildcard_enum_match_arm, reason = "few calls say who a process is")]
fn tells(kind: CallKind, key: &str) -> bool {
    match kind {
        CallKind::Init => !matches!(key, "id" | "rank"),
        // Which child it is in, its members say.
        CallKind::Split => !matches!(key, "color" | "key"),
        CallKind::Process => key == "nccl_version",
        CallKind::ProcessGroup | CallKind::MakesGroup | CallKind::Store | CallKind::Note => key == "place",
        _ => true,
    }
}

/// Memory that a call allocates: from and to.
fn allocated(sequence: &Sequence, symbol: Symbol) -> Option<(u64, u64)> {
    let (call, result) = match symbol {
        Symbol::Call { call, result, .. } | Symbol::Leave { call, result, .. } => (call, result),
        Symbol::Enter { .. }
        | Symbol::Never { .. }
        | Symbol::Note { .. }
        | Symbol::Noted { .. }
        | Symbol::Lost { .. }
        | Symbol::Folded { .. } => return None,
    };
    let (call, result) = (sequence.shape(call), result.map(|result| sequence.shape(result)));
    let number = |shape: &Shape, key: &str| shape.get(key).and_then(Argument::number);
    let bytes = result.and_then(|result| number(result, "bytes")).or_else(|| number(call, "bytes"));
    let row = row(&call.name);
    let address = if let FoldClass::Makes(Thing::Memory, key) = row.folded {
        number(result?, key)?
    } else if row.kind == CallKind::Map {
        number(call, "address")?
    } else {
        return None;
    };
    Some((address, address.saturating_add(bytes.unwrap_or(1).max(1))))
}
