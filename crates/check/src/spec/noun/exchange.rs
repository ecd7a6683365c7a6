//! Exchanges of handles, matched by order alone.
//!
//! Not here: handles that a program carries itself (`ipc.rs`).

use rankcheck_model::{ExchangeOp, Op, Operand, Slot};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;

use crate::spec::argument;
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::builder;
use crate::spec::noun::comm::signed;
use crate::spec::noun::memory::Buffer;
use crate::spec::rank::RankValue;

impl Builder {
    /// An exchange of handles of memory, of all ranks or of these. Gives mappings, one of each member's whole
    /// allocation; this rank's own is its own. The name says what it is for and matches nothing.
    #[track_caller]
    pub fn exchange(
        &self,
        name: &str,
        buffer: impl Into<Buffer>,
        ranks: Option<&[u32]>,
    ) -> Flow<Vec<Buffer>> {
        self.exchange_among(name, buffer.into(), ranks.map(signed).as_deref())
    }

    #[track_caller]
    fn exchange_among(&self, name: &str, buffer: Buffer, ranks: Option<&[i64]>) -> Flow<Vec<Buffer>> {
        let (name, members) = (self.token(name), self.members_with_this("r.exchange", ranks)?);
        // Memory of another rank is memory of one of them.
        self.tell_ranks_apart();
        let count = members.len();
        let op = Op::Exchange(ExchangeOp { members, name, buffer: buffer.of });
        let first = self.add_at(op, self.loc())?.expect("an exchange has members");
        let mapping = |index| Buffer { of: Operand::Slot(Slot { index, ..first }), len_bytes: None };
        Ok((first.index..).take(count).map(mapping).collect())
    }
}

#[starlark_module]
pub(crate) fn exchange_of_rank(methods: &mut MethodsBuilder) {
    fn exchange<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        buffer: Value<'v>,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Vec<Buffer>> {
        let (ranks, buffer) = (argument::ranks(ranks)?, argument::memory("buffer", buffer)?);
        Ok(builder(eval)?.exchange_among(name, buffer, ranks.as_deref())?)
    }
}
