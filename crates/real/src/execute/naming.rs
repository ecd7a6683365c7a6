//! Operations and values of a rank in the spec's own names, as the model words them.
//!
//! Not here: questions, which make no call.

use std::sync::Arc;

use rankcheck_model::host::naming::Names;
use rankcheck_model::host::value::{CommId, Value};
use rankcheck_model::{Op, Source, Token};

use super::tables::Tables;
use super::value::{Base, ExportedHandle, OnDevice, Provenance};

/// What a rank calls its objects.
struct RankNames<'a> {
    tables: &'a Tables,
    source: &'a dyn Source,
}

impl Names<OnDevice> for RankNames<'_> {
    fn token(&self, token: Token) -> Arc<str> {
        self.source.token(token)
    }

    fn name(&self, name: &Arc<str>) -> Arc<str> {
        Arc::clone(name)
    }

    fn comm(&self, comm: CommId) -> Arc<str> {
        Arc::clone(&self.tables.comm(comm).name)
    }

    fn memory(&self, memory: &Provenance) -> String {
        match memory {
            Provenance::Own(memory) => memory.display(|name| self.source.token(name)),
            Provenance::Mapped(mapping) => self.tables.mappings[mapping.nth as usize].name.clone(),
        }
    }

    fn address(&self, address: &Base) -> String {
        match address.first {
            Provenance::Own(memory) => memory.display(|name| self.source.token(name)),
            Provenance::Mapped(mapping) => format!("mapping {} of rank {}", mapping.nth, mapping.of.0),
        }
    }

    fn exported(&self, exported: &ExportedHandle) -> String {
        exported.name.clone()
    }

    fn foreign(&self, foreign: &Arc<str>) -> Arc<str> {
        Arc::clone(foreign)
    }
}

/// A value in words.
pub(crate) fn value(tables: &Tables, source: &dyn Source, of: &Value<OnDevice>) -> String {
    of.display(&RankNames { tables, source })
}

/// An operation in words.
pub(crate) fn operation(tables: &Tables, source: &dyn Source, op: &Op) -> String {
    op.display(&|token| source.token(token), &|operand| value(tables, source, &tables.value(source, operand)))
}

#[cfg(test)]
pub(super) mod tests {
    use rankcheck_model::host::value::{Address, MemoryId, Owner};
    use rankcheck_model::{Answer, Block, Loc, LocId, Rank, SourceError, Symmetry, ThreadStart};

    use super::*;

    /// Tokens are their numbers.
    pub(in super::super) struct NumberedTokens;

    impl Source for NumberedTokens {
        fn block(&self, _: Rank, _: ThreadStart, _: &[Answer]) -> Result<Arc<Block>, SourceError> {
            unreachable!("no program is run")
        }

        fn token(&self, token: Token) -> Arc<str> {
            token.0.to_string().into()
        }

        fn loc(&self, _: LocId) -> Loc {
            unreachable!("no program is run")
        }

        fn default_stream(&self) -> Token {
            Token(0)
        }

        fn symmetry(&self) -> Symmetry {
            Symmetry::Distinct
        }
    }

    #[test]
    fn an_address_goes_by_the_memory_that_was_first_there() {
        let first = Provenance::Own(MemoryId { owner: Owner::Pool(Token(7)), nth: 2 });
        let address = Value::Address(Address::Memory(Base { first, address: 4096 }, 512));
        assert_eq!(value(&Tables::default(), &NumberedTokens, &address), "&7.S2+512");
    }
}
