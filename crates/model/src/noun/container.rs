//! Maps and lists of a rank, shared by its threads: where programs keep what they registered.
//! Not here: which order a protocol should have walked them in.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use std::borrow::Cow;
use std::sync::Arc;

use crate::host::value::{Address, Value};
use crate::judge::finding::{About, Rule};
use crate::machine::Machine;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{PickOf, Picks, Poll};
use crate::program::{Answer, Operand, Question};
use crate::rank::{Rank, Token};
use crate::state::{RankState, State, find};

/// In which order a map is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapOrder {
    /// The order of insertion.
    Insertion,
    /// The order of the keys' hashes, chosen for each rank by the adversary.
    Hash,
    /// The order of addresses, chosen for each rank by the adversary, consistent with [`TieBreak::Address`].
    Address,
}

impl Describe for MapOrder {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Insertion => "Insertion",
            Self::Hash => "Hash",
            Self::Address => "Address",
        });
    }
}

/// What can be done with maps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MapOp {
    /// Puts a value under a key, replacing.
    Put {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
        /// Value.
        value: Operand,
    },
    /// Removes a key. Produces its value or null.
    Pop {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
    },
    /// Produces the value under a key, or the default.
    Get {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
        /// Default.
        default: Operand,
    },
    /// Empties a map.
    Clear {
        /// The map.
        map: Token,
    },
}

impl Describe for MapOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Put { map, key, value } => {
                to.call("MapPut", &[("map", map), ("key", key), ("value", value)])
            }
            Self::Pop { map, key } => to.call("MapPop", &[("map", map), ("key", key)]),
            Self::Get { map, key, default } => {
                to.call("MapGet", &[("map", map), ("key", key), ("default", default)])
            }
            Self::Clear { map } => to.call("MapClear", &[("map", map)]),
        }
    }
}

impl Verb for MapOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Put { .. } | Self::Clear { .. } => 0,
            Self::Pop { .. } | Self::Get { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Bookkeeping
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Put { map, key, .. } => format!("{}.put({})", name(map), of(key)),
            Self::Pop { map, key } => format!("{}.pop({})", name(map), of(key)),
            Self::Get { map, key, .. } => format!("{}.get({})", name(map), of(key)),
            Self::Clear { map } => format!("{}.clear", name(map)),
        }
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(self.object(), self.how());
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.run_map(self);
    }
}

impl MapOp {
    fn object(&self) -> Object {
        let (Self::Put { map, .. } | Self::Pop { map, .. } | Self::Clear { map, .. } | Self::Get { map, .. }) =
            self;
        Object::named(ObjectKind::Map, *map)
    }

    fn how(&self) -> Access {
        match self {
            Self::Put { .. } | Self::Pop { .. } | Self::Clear { .. } => Access::Write,
            Self::Get { .. } => Access::Read,
        }
    }
}

/// What can be done with lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListOp {
    /// Appends to a list.
    Push {
        /// The list.
        list: Token,
        /// Value.
        value: Operand,
    },
    /// Produces the element at an index; past the end is a finding and produces null.
    Get {
        /// The list.
        list: Token,
        /// Index.
        index: Operand,
    },
    /// Replaces the element at an index; past the end is a finding.
    Set {
        /// The list.
        list: Token,
        /// Index.
        index: Operand,
        /// Value.
        value: Operand,
    },
    /// Removes the last element. Produces it, or null from an empty list.
    Pop {
        /// The list.
        list: Token,
    },
    /// Empties a list.
    Clear {
        /// The list.
        list: Token,
    },
}

impl Describe for ListOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Push { list, value } => to.call("ListPush", &[("list", list), ("value", value)]),
            Self::Get { list, index } => to.call("ListGet", &[("list", list), ("index", index)]),
            Self::Set { list, index, value } => {
                to.call("ListSet", &[("list", list), ("index", index), ("value", value)])
            }
            Self::Pop { list } => to.call("ListPop", &[("list", list)]),
            Self::Clear { list } => to.call("ListClear", &[("list", list)]),
        }
    }
}

impl Verb for ListOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Push { .. } | Self::Set { .. } | Self::Clear { .. } => 0,
            Self::Get { .. } | Self::Pop { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Bookkeeping
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Push { list, value } => format!("{}.push({})", name(list), of(value)),
            Self::Get { list, index } => format!("{}[{}]", name(list), of(index)),
            Self::Set { list, index, .. } => format!("{}[{}] =", name(list), of(index)),
            Self::Pop { list } => format!("{}.pop", name(list)),
            Self::Clear { list } => format!("{}.clear", name(list)),
        }
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(self.object(), self.how());
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.run_list(self);
    }
}

impl ListOp {
    fn object(&self) -> Object {
        let (Self::Push { list, .. }
        | Self::Set { list, .. }
        | Self::Pop { list, .. }
        | Self::Clear { list, .. }
        | Self::Get { list, .. }) = self;
        Object::named(ObjectKind::List, *list)
    }

    fn how(&self) -> Access {
        match self {
            Self::Push { .. } | Self::Set { .. } | Self::Pop { .. } | Self::Clear { .. } => Access::Write,
            Self::Get { .. } => Access::Read,
        }
    }
}

type Entries = Vec<(Value, Value)>;

fn map_mut(rank: &mut RankState, map: Token) -> &mut Entries {
    let at = find(&rank.maps, &map).unwrap_or_else(|| {
        rank.maps.push((map, Vec::new()));
        rank.maps.len() - 1
    });
    &mut rank.maps[at].1
}

fn list_mut(rank: &mut RankState, list: Token) -> &mut Vec<Value> {
    let at = find(&rank.lists, &list).unwrap_or_else(|| {
        rank.lists.push((list, Vec::new()));
        rank.lists.len() - 1
    });
    &mut rank.lists[at].1
}

/// A decided walk: entries in order, and the order of addresses or hashes as known after it.
pub(crate) struct Walk<'a> {
    entries: Entries,
    addresses: Cow<'a, [Value]>,
    hashes: Cow<'a, [Value]>,
}

/// The position of a value in an order that luck extends: placed once, for ever.
pub(crate) fn place(
    order: &mut Cow<'_, [Value]>,
    value: &Value,
    picks: &mut Picks<'_>,
    of: fn() -> PickOf,
) -> Result<usize, Poll> {
    if let Some(at) = order.iter().position(|placed| placed == value) {
        return Ok(at);
    }
    let places = u32::try_from(order.len()).expect("few addresses");
    let at = picks.take(of, 0..=places)? as usize;
    order.to_mut().insert(at, value.clone());
    Ok(at)
}

impl Machine {
    pub(crate) fn decide_items<'a>(
        &self,
        state: &'a State,
        rank: Rank,
        map: Token,
        order: MapOrder,
        picks: &mut Picks<'_>,
    ) -> Result<Walk<'a>, Poll> {
        let r = state.rank(rank);
        let entries = find(&r.maps, &map).map_or_else(Vec::new, |at| r.maps[at].1.clone());
        let (addresses, hashes) = (Cow::Borrowed(&r.address_order[..]), Cow::Borrowed(&r.hash_order[..]));
        let mut walk = Walk { entries, addresses, hashes };
        if order == MapOrder::Insertion || walk.entries.len() < 2 {
            return Ok(walk);
        }
        let known = if order == MapOrder::Hash { &mut walk.hashes } else { &mut walk.addresses };
        let of = if order == MapOrder::Hash { || PickOf::HashOrder } else { || PickOf::AddressOrder };
        for (key, _) in &walk.entries {
            place(known, &base(key), picks, of)?;
        }
        let position = |key: &Value| known.iter().position(|placed| *placed == base(key));
        walk.entries.sort_by_key(|(key, _)| (position(key), offset(key)));
        Ok(walk)
    }
}

impl Cx<'_> {
    pub(crate) fn ask_map(&mut self, question: &Question) {
        let (m, rank) = (self.m, self.rank);
        match question {
            Question::MapHas { map, key } => {
                self.access(Object::named(ObjectKind::Map, *map), Access::Read);
                let key = Machine::value(self.state, rank, key);
                let r = self.me();
                let has = find(&r.maps, map)
                    .is_some_and(|at| r.maps[at].1.iter().any(|(k, _)| Machine::same(k, &key)));
                self.answer(Answer::from(has), &[]);
            }
            Question::MapItems { map, order } => {
                self.access(Object::named(ObjectKind::Map, *map), Access::Read);
                let given = self.this().picks.clone();
                let Walk { entries, addresses, hashes } = m
                    .decide_items(self.state, rank, *map, *order, &mut Picks { given: &given })
                    .unwrap_or_else(|_| unreachable!("polled before it runs"));
                let (addresses, hashes) = (addresses.into(), hashes.into());
                let r = self.me_mut();
                (r.address_order, r.hash_order) = (addresses, hashes);
                let count = u32::try_from(entries.len()).expect("few entries");
                let slots: Vec<Value> = entries.into_iter().flat_map(|(key, value)| [key, value]).collect();
                self.answer(count, &slots);
            }
            Question::ListLen { list } => {
                self.access(Object::named(ObjectKind::List, *list), Access::Read);
                let r = self.me();
                let len = find(&r.lists, list).map_or(0, |at| r.lists[at].1.len());
                let len = u32::try_from(len).expect("few elements");
                self.answer(len, &[]);
            }
            _ => unreachable!("dispatched by question"),
        }
    }

    fn run_map(&mut self, verb: &MapOp) {
        let rank = self.rank;
        self.access(verb.object(), verb.how());
        let value_of = |state: &State, operand: &Operand| Machine::value(state, rank, operand);
        let mut slots: Vec<Value> = Vec::new();
        match verb {
            MapOp::Put { map, key, value } => {
                let (key, value) = (value_of(self.state, key), value_of(self.state, value));
                let entries = map_mut(self.me_mut(), *map);
                match entries.iter_mut().find(|(k, _)| Machine::same(k, &key)) {
                    Some(entry) => entry.1 = value,
                    None => entries.push((key, value)),
                }
            }
            MapOp::Pop { map, key } => {
                let key = value_of(self.state, key);
                let entries = map_mut(self.me_mut(), *map);
                let at = entries.iter().position(|(k, _)| Machine::same(k, &key));
                slots.push(at.map_or(Value::Null, |at| entries.remove(at).1));
            }
            MapOp::Get { map, key, default } => {
                let (key, default) = (value_of(self.state, key), value_of(self.state, default));
                let entries = map_mut(self.me_mut(), *map);
                let found = entries.iter().find(|(k, _)| Machine::same(k, &key));
                slots.push(found.map_or(default, |(_, value)| value.clone()));
            }
            MapOp::Clear { map } => map_mut(self.me_mut(), *map).clear(),
        }
        self.done(&slots);
    }

    fn run_list(&mut self, verb: &ListOp) {
        let rank = self.rank;
        self.access(verb.object(), verb.how());
        let value_of = |state: &State, operand: &Operand| Machine::value(state, rank, operand);
        let mut slots: Vec<Value> = Vec::new();
        match verb {
            ListOp::Push { list, value } => {
                let value = value_of(self.state, value);
                list_mut(self.me_mut(), *list).push(value);
            }
            ListOp::Get { list, index } => {
                let at = self.index((*list, index));
                let elements = list_mut(self.me_mut(), *list);
                slots.push(at.map_or(Value::Null, |at| elements[at].clone()));
            }
            ListOp::Set { list, index, value } => {
                let value = value_of(self.state, value);
                if let Some(at) = self.index((*list, index)) {
                    list_mut(self.me_mut(), *list)[at] = value;
                }
            }
            ListOp::Pop { list } => {
                slots.push(list_mut(self.me_mut(), *list).pop().unwrap_or(Value::Null));
            }
            ListOp::Clear { list } => list_mut(self.me_mut(), *list).clear(),
        }
        self.done(&slots);
    }

    /// The index of a list operation, if it is inside; a finding if not.
    fn index(&mut self, (list, index): (Token, &Operand)) -> Option<usize> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let len = list_mut(self.me_mut(), list).len();
        let number = match Machine::value(self.state, rank, index) {
            Value::Int(number) => number,
            _ => -1,
        };
        if let Ok(at) = usize::try_from(number)
            && at < len
        {
            return Some(at);
        }
        let past = self.here().past();
        m.find(self.state, Rule::List1, About::Of(rank, list), &[op], past, || {
            format!(
                "rank {} takes element {number} of {}, which has {len} ({})",
                rank.0,
                m.name(list),
                m.at(&op)
            )
        });
        None
    }
}

/// What is ordered about a key: its address without the offset, or the first part of a tuple.
fn base(key: &Value) -> Value {
    match key {
        Value::Address(Address::Memory(address, _)) => Value::Address(Address::Memory(*address, 0)),
        Value::Buffer(buffer) => Value::Address(Address::Memory(buffer.address, 0)),
        Value::Tuple(parts) => Value::Tuple(parts.iter().map(base).collect::<Arc<[Value]>>()),
        other => other.clone(),
    }
}

fn offset(key: &Value) -> u64 {
    match key {
        Value::Address(Address::Memory(_, offset)) => *offset,
        Value::Buffer(buffer) => buffer.offset_bytes,
        _ => 0,
    }
}
