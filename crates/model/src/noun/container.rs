//! Maps and lists of a rank, shared by its threads: where programs keep what they registered.
//! Not here: which order a protocol should have walked them in.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::identity::{Identify, StateIdentity};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use std::borrow::Cow;

use crate::host::container::{Containers, Entries, OutOfRange};
use crate::host::order::walk;
use crate::host::value::{Modelled, Value};
use crate::id::Token;
use crate::judge::finding::{About, Rule};
use crate::machine::Machine;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{Nondet, NondetValues, Poll};
use crate::program::{Answer, Operand, Question};
use crate::rank::Rank;
use crate::state::{RankState, State, Table};
use crate::walk::{LocalHash, walk};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// In which order a map is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapOrder {
    /// The order of insertion.
    Insertion,
    /// The order of the keys' hashes, chosen for each rank by the adversary.
    Hash,
    /// The order of addresses, chosen for each rank by the adversary, consistent with `TieBreak::Address`.
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

/// Operations on maps of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MapOp {
    /// Puts a value under a key, replacing.
    Put {
        /// Name of the map. A map exists from its first use on.
        map: Token,
        /// The key. Buffers are equal if they start at one offset of one allocation, whatever their lengths.
        key: Operand,
        /// The value that is kept.
        value: Operand,
    },
    /// Removes a key. Produces its value or null.
    Pop {
        /// Name of the map. A map exists from its first use on.
        map: Token,
        /// The key. Buffers are equal if they start at one offset of one allocation, whatever their lengths.
        key: Operand,
    },
    /// Produces the value under a key, or the default.
    Get {
        /// Name of the map. A map exists from its first use on.
        map: Token,
        /// The key. Buffers are equal if they start at one offset of one allocation, whatever their lengths.
        key: Operand,
        /// What the operation produces if the map does not have the key.
        default: Operand,
    },
    /// Removes every key of a map.
    Clear {
        /// Name of the map. A map exists from its first use on.
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
    pub(crate) fn object(&self) -> Object {
        let (Self::Put { map, .. } | Self::Pop { map, .. } | Self::Clear { map, .. } | Self::Get { map, .. }) =
            self;
        Object::named(ObjectKind::Map, *map)
    }

    pub(crate) fn how(&self) -> Access {
        match self {
            Self::Put { .. } | Self::Pop { .. } | Self::Clear { .. } => Access::Write,
            Self::Get { .. } => Access::Read,
        }
    }
}

impl Question {
    /// The list or the map that it looks into.
    pub(crate) fn container(&self) -> Option<Object> {
        match self {
            Self::MapHas { map, .. } | Self::MapItems { map, .. } => {
                Some(Object::named(ObjectKind::Map, *map))
            }
            Self::ListLen { list } => Some(Object::named(ObjectKind::List, *list)),
            Self::Choose { .. }
            | Self::Grew(_)
            | Self::Failed(_)
            | Self::Equal(..)
            | Self::Truth(_)
            | Self::Number(_)
            | Self::Trimmed(_)
            | Self::HasWindow { .. }
            | Self::EventQuery { .. } => None,
        }
    }
}

/// Operations on lists of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListOp {
    /// Appends to a list.
    Push {
        /// Name of the list. A list exists from its first use on.
        list: Token,
        /// The value that is kept.
        value: Operand,
    },
    /// Produces the element at an index; past the end is a finding and produces null.
    Get {
        /// Name of the list. A list exists from its first use on.
        list: Token,
        /// The position of the element, from 0. One that the list does not have breaks LIST-1.
        index: Operand,
    },
    /// Replaces the element at an index; past the end is a finding.
    Set {
        /// Name of the list. A list exists from its first use on.
        list: Token,
        /// The position of the element, from 0. One that the list does not have breaks LIST-1.
        index: Operand,
        /// The value that is kept.
        value: Operand,
    },
    /// Removes the last element. Produces it, or null from an empty list.
    Pop {
        /// Name of the list. A list exists from its first use on.
        list: Token,
    },
    /// Removes every element of a list.
    Clear {
        /// Name of the list. A list exists from its first use on.
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
    pub(crate) fn object(&self) -> Object {
        let (Self::Push { list, .. }
        | Self::Set { list, .. }
        | Self::Pop { list, .. }
        | Self::Clear { list, .. }
        | Self::Get { list, .. }) = self;
        Object::named(ObjectKind::List, *list)
    }

    pub(crate) fn how(&self) -> Access {
        match self {
            Self::Push { .. } | Self::Set { .. } | Self::Pop { .. } | Self::Clear { .. } => Access::Write,
            Self::Get { .. } => Access::Read,
        }
    }
}

/// What a program keeps on a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    containers: Containers,
    /// The order in which hash maps are walked, as far as anybody looked.
    hash_order: Arc<[Value]>,
}

walk!(apart struct Kept { containers: hashed fixed, hash_order: hashed fixed });

impl Identify for Kept {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { containers, hash_order } = self;
        // Nobody else asks in which order keys lie.
        if to.ahead().walks() {
            hash_order.identify(to);
        }
        // What nobody ever looks into may hold anything.
        let maps: Vec<_> = containers
            .maps()
            .filter(|(map, _)| to.remembered.reads(Object::named(ObjectKind::Map, *map)))
            .collect();
        to.unordered(maps, |map, to| map.hash(to));
        let lists: Vec<_> = containers
            .lists()
            .filter(|(list, _)| to.remembered.reads(Object::named(ObjectKind::List, *list)))
            .collect();
        to.unordered(lists, |list, to| list.hash(to));
    }
}

impl LocalHash for Kept {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.hash_order.hash(state);
    }
}

impl RankState {
    /// All that maps and lists hold, keys included.
    pub(crate) fn contained(&self) -> impl Iterator<Item = &Value> {
        Kept::of(self).containers.values()
    }
}

/// A decided walk: entries in order, and the order of addresses or hashes as known after it.
pub(crate) struct Walk<'a> {
    entries: Entries<Modelled>,
    addresses: Cow<'a, [Value]>,
    hashes: Cow<'a, [Value]>,
}

impl Machine {
    pub(crate) fn decide_items<'a>(
        &self,
        state: &'a State,
        rank: Rank,
        map: Token,
        order: MapOrder,
        nondet: &mut NondetValues<'_>,
    ) -> Result<Walk<'a>, Poll> {
        let r = state.rank(rank);
        let own = Kept::of(r);
        let entries = own.containers.entries(map).to_vec();
        let mut addresses = Cow::Borrowed(r.address_order());
        let mut hashes = Cow::Borrowed(&own.hash_order[..]);
        let entries = match order {
            MapOrder::Hash => walk(entries, order, &mut hashes, nondet.position(Nondet::HashOrder))?,
            MapOrder::Insertion | MapOrder::Address => {
                walk(entries, order, &mut addresses, nondet.position(Nondet::AddressOrder))?
            }
        };
        Ok(Walk { entries, addresses, hashes })
    }
}

impl Cx<'_> {
    pub(crate) fn ask_map(&mut self, question: &Question) {
        let (m, rank) = (self.m, self.rank);
        match question {
            Question::MapHas { map, key } => {
                self.access(Object::named(ObjectKind::Map, *map), Access::Read);
                m.look_into(Object::named(ObjectKind::Map, *map));
                let key = Machine::value(self.state, rank, key);
                let has = Kept::of(self.me()).containers.has(*map, &key);
                self.answer(Answer::from(has), &[]);
            }
            Question::MapItems { map, order } => {
                self.access(Object::named(ObjectKind::Map, *map), Access::Read);
                m.look_into(Object::named(ObjectKind::Map, *map));
                let given = self.this().chosen().to_vec();
                let Walk { entries, addresses, hashes } = m
                    .decide_items(self.state, rank, *map, *order, &mut NondetValues { given: &given })
                    .unwrap_or_else(|_| unreachable!("polled before it runs"));
                let (addresses, hashes) = (addresses.into(), hashes.into());
                let r = self.me_mut();
                r.set_address_order(addresses);
                Kept::of_mut(r).hash_order = hashes;
                let count = u32::try_from(entries.len()).expect("few entries");
                let slots: Vec<Value> = entries.into_iter().flat_map(|(key, value)| [key, value]).collect();
                self.answer(count, &slots);
            }
            Question::ListLen { list } => {
                self.access(Object::named(ObjectKind::List, *list), Access::Read);
                m.look_into(Object::named(ObjectKind::List, *list));
                let len = Kept::of(self.me()).containers.len(*list);
                self.answer(len, &[]);
            }
            _ => unreachable!("dispatched by question"),
        }
    }

    fn run_map(&mut self, verb: &MapOp) {
        let rank = self.rank;
        self.access(verb.object(), verb.how());
        match verb {
            MapOp::Pop { .. } | MapOp::Get { .. } => self.m.look_into(verb.object()),
            MapOp::Put { .. } | MapOp::Clear { .. } => {}
        }
        let value_of = |state: &State, operand: &Operand| Machine::value(state, rank, operand);
        let mut slots: Vec<Value> = Vec::new();
        match verb {
            MapOp::Put { map, key, value } => {
                let (key, value) = (value_of(self.state, key), value_of(self.state, value));
                Kept::of_mut(self.me_mut()).containers.put(*map, key, value);
            }
            MapOp::Pop { map, key } => {
                let key = value_of(self.state, key);
                slots.push(Kept::of_mut(self.me_mut()).containers.pop(*map, &key));
            }
            MapOp::Get { map, key, default } => {
                let (key, default) = (value_of(self.state, key), value_of(self.state, default));
                slots.push(Kept::of_mut(self.me_mut()).containers.get(*map, &key, default));
            }
            MapOp::Clear { map } => Kept::of_mut(self.me_mut()).containers.clear_map(*map),
        }
        self.done(&slots);
    }

    fn run_list(&mut self, verb: &ListOp) {
        let rank = self.rank;
        self.access(verb.object(), verb.how());
        match verb {
            ListOp::Get { .. } | ListOp::Set { .. } | ListOp::Pop { .. } => self.m.look_into(verb.object()),
            ListOp::Push { .. } | ListOp::Clear { .. } => {}
        }
        let value_of = |state: &State, operand: &Operand| Machine::value(state, rank, operand);
        let mut slots: Vec<Value> = Vec::new();
        match verb {
            ListOp::Push { list, value } => {
                let value = value_of(self.state, value);
                Kept::of_mut(self.me_mut()).containers.push(*list, value);
            }
            ListOp::Get { list, index } => {
                let index = value_of(self.state, index);
                let element = Kept::of_mut(self.me_mut()).containers.element(*list, &index);
                slots.push(self.in_range(*list, "takes", element).unwrap_or(Value::Null));
            }
            ListOp::Set { list, index, value } => {
                let (index, value) = (value_of(self.state, index), value_of(self.state, value));
                let replaced = Kept::of_mut(self.me_mut()).containers.replace(*list, &index, value);
                self.in_range(*list, "sets", replaced);
            }
            ListOp::Pop { list } => slots.push(Kept::of_mut(self.me_mut()).containers.pop_last(*list)),
            ListOp::Clear { list } => Kept::of_mut(self.me_mut()).containers.clear_list(*list),
        }
        self.done(&slots);
    }

    /// What a list operation gave that takes or sets an element; a finding if the list has no such index.
    fn in_range<T>(&mut self, list: Token, does: &str, result: Result<T, OutOfRange>) -> Option<T> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let OutOfRange { index, len } = match result {
            Ok(element) => return Some(element),
            Err(error) => error,
        };
        let past = self.here().past();
        m.find(self.state, Rule::List1, About::Of(rank, list), &[op], past, || {
            format!(
                "rank {} {does} element {index} of {}, which has {len} ({})",
                rank.0,
                m.name(list),
                m.at(&op)
            )
        });
        Machine::undefine(self.state, op);
        None
    }
}
