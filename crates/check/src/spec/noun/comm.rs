//! Communicators: how they start, split and end.
//!
//! Not here: what is done with them (`collective.rs`, `p2p.rs`, `window.rs`).

use std::sync::Arc;

use rankcheck_model::{CommOp, Op, Operand, Parting, Rank, Resources};
use rustc_hash::FxHashSet;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{UnpackValue, Value};

use crate::spec::argument::{self, expected, given};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::Wrong;
use crate::spec::evaluation::builder;
use crate::spec::noun::memory::Address;
use crate::spec::rank::RankValue;

/// A communicator as a program holds it: what an init or a split produced.
#[derive(Debug, Clone)]
pub struct Comm(pub(crate) Operand);

impl Builder {
    /// `ncclCommInitRank` with these world ranks.
    #[track_caller]
    pub fn comm(&self, name: &str, ranks: impl AsRef<[u32]>) -> Flow<Comm> {
        self.init(name, &signed(ranks), Resources::Own)
    }

    /// As [`Builder::comm`], with `splitShare` in its configuration: what is split from it uses its channels and its
    /// launch order.
    #[track_caller]
    pub fn comm_split_share(&self, name: &str, ranks: impl AsRef<[u32]>) -> Flow<Comm> {
        self.init(name, &signed(ranks), Resources::Shared)
    }

    #[track_caller]
    fn init(&self, name: &str, ranks: &[i64], children: Resources) -> Flow<Comm> {
        let (name, members) = (self.token(name), self.members(Some(ranks))?);
        self.add_result(Op::Comm(CommOp::Init { name, members, children })).map(Comm)
    }

    /// A rank of this program.
    #[track_caller]
    pub(crate) fn known_rank(&self, number: i64) -> Flow<Rank> {
        let ranks = self.setting.ranks;
        if let Some(rank) = u32::try_from(number).ok().filter(|rank| *rank < ranks) {
            return Ok(Rank(rank));
        }
        Err(self.wrong(Wrong::new(
            format!("there is no rank {number}"),
            format!("this check runs {ranks} ranks, numbered from 0"),
        )))
    }

    /// World ranks that take part; nothing given means all.
    #[track_caller]
    pub(crate) fn members(&self, ranks: Option<&[i64]>) -> Flow<Arc<[Rank]>> {
        let world = || (0..self.setting.ranks).map(Rank);
        let list = |members: &[Rank]| self.setting.names.member_list(members);
        let Some(ranks) = ranks else { return Ok(list(&world().collect::<Vec<_>>())) };
        let mut members = Vec::with_capacity(ranks.len());
        for number in ranks {
            members.push(self.known_rank(*number)?);
        }
        if members.is_empty() {
            return Err(self.wrong(Wrong::new("`ranks` is empty", "list at least one rank")));
        }
        if let Some(twice) = twice_in(&members) {
            let what = format!("rank {} is listed twice", twice.0);
            return Err(self.wrong(Wrong::new(what, "list every member once")));
        }
        if !members.iter().copied().eq(world()) {
            self.tell_ranks_apart();
        }
        Ok(list(&members))
    }
}

impl Builder {
    /// World ranks that meet in a call of which this rank is one, in one order on all of them: they are a set.
    #[track_caller]
    pub(crate) fn members_who_meet(&self, call: &str, ranks: Option<&[i64]>) -> Flow<Arc<[Rank]>> {
        let mut members = self.members_with_this(call, ranks)?;
        if !members.is_sorted() {
            let mut sorted = members.to_vec();
            sorted.sort_unstable();
            members = self.setting.names.member_list(&sorted);
        }
        Ok(members)
    }

    /// World ranks that take part in a call, of which this rank is one.
    #[track_caller]
    pub(crate) fn members_with_this(&self, call: &str, ranks: Option<&[i64]>) -> Flow<Arc<[Rank]>> {
        let members = self.members(ranks)?;
        if members.len() < self.setting.ranks as usize {
            // Whether it is one of them, another rank answers otherwise.
            self.read_rank.note(|| Some(self.setting.names.loc(self.loc())));
        }
        if members.contains(&self.rank) {
            return Ok(members);
        }
        Err(self.wrong(Wrong::new(
            format!("rank {} calls `{call}` and is not among its `ranks`", self.rank.0),
            "list this rank too, or let only the ranks of the list call it",
        )))
    }
}

/// A rank that is listed more than once, if there is one.
fn twice_in(members: &[Rank]) -> Option<Rank> {
    // Nearly every list is in ascending order.
    if members.is_sorted_by(|one, next| one < next) {
        return None;
    }
    let mut met = FxHashSet::default();
    members.iter().copied().find(|rank| !met.insert(*rank))
}

/// Numbers of ranks as Starlark has them, where they may be negative.
pub(crate) fn signed(ranks: impl AsRef<[u32]>) -> Vec<i64> {
    ranks.as_ref().iter().map(|rank| i64::from(*rank)).collect()
}

impl Comm {
    /// `ncclCommSplit`. Gives the child, null without a color.
    #[track_caller]
    pub fn split(&self, r: &Builder, name: &str, color: Option<i64>) -> Flow<Comm> {
        r.tell_ranks_apart();
        let name = r.token(name);
        r.add_result(Op::Comm(CommOp::Split { comm: self.0.clone(), name, color })).map(Comm)
    }

    /// `ncclCommFinalize`: waits until what this rank launched on it is over. Only the destruction may follow.
    #[track_caller]
    pub fn finalize(&self, r: &Builder) -> Flow {
        r.add(Op::Comm(CommOp::Finalize { comm: self.0.clone() }))
    }

    /// `ncclCommDestroy`: ends this rank's use of the communicator.
    #[track_caller]
    pub fn destroy(&self, r: &Builder) -> Flow {
        r.add(Op::Comm(CommOp::Destroy { comm: self.0.clone(), parting: Parting::Together }))
    }

    /// Its address, an opaque value.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(Operand::Address(self.0.clone().into()))
    }
}

#[starlark_module]
pub(crate) fn comms_of_rank(methods: &mut MethodsBuilder) {
    fn comm<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        ranks: Value<'v>,
        #[starlark(default = false)] split_share: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Comm> {
        let Some(numbers) = argument::ranks(Some(ranks))? else {
            return Err(expected("ranks", "a list of rank numbers", ranks));
        };
        let children = if split_share { Resources::Shared } else { Resources::Own };
        Ok(builder(eval)?.init(name, &numbers, children)?)
    }
}

#[starlark_module]
pub(crate) fn comm_methods(methods: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn address<'v>(this: Value<'v>) -> starlark::Result<Address> {
        Ok(argument::comm(this)?.address())
    }

    fn split<'v>(
        this: Value<'v>,
        name: &str,
        color: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Comm> {
        let color = match given(color) {
            Some(color) => Some(
                UnpackValue::unpack_value(color)?
                    .ok_or_else(|| expected("color", "a number or None", color))?,
            ),
            None => None,
        };
        Ok(argument::comm(this)?.split(builder(eval)?, name, color)?)
    }

    fn finalize<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        argument::comm(this)?.finalize(builder(eval)?)?;
        Ok(NoneType)
    }

    fn destroy<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        argument::comm(this)?.destroy(builder(eval)?)?;
        Ok(NoneType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_listed_twice_is_found_in_any_order() {
        let twice =
            |ranks: &[u32]| twice_in(&ranks.iter().copied().map(Rank).collect::<Vec<_>>()).map(|rank| rank.0);
        assert_eq!(twice(&[0, 1, 5, 9]), None);
        assert_eq!(twice(&[9, 0, 5, 1]), None);
        assert_eq!(twice(&[0, 1, 1, 9]), Some(1));
        assert_eq!(twice(&[4, 0, 1, 4]), Some(4));
    }
}
