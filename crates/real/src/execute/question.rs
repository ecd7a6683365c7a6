//! The answers to a program's questions.
//!
//! Not here: what values are true or equal, which no device decides ([`rankcheck_model::host`]).

use std::borrow::Cow;
use std::convert::Infallible;

use rankcheck_model::host::order::walk;
use rankcheck_model::host::value::Value;
use rankcheck_model::{Answer, MapOrder, Question, Token};

use super::nondet::{NondetKind, number};
use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;
use crate::case::NondetValue;

/// An answer, with the values that the question produces.
type Answered = (Answer, Vec<Value<OnDevice>>);

impl ProgramThread<'_, '_> {
    pub(super) fn ask(&mut self, question: &Question) -> Result<Answered, Halt> {
        let answer = match question {
            Question::Choose { options, .. } => {
                let wanted = self.wanted(NondetKind::Choose);
                let last = u32::try_from(options.len()).expect("few options").saturating_sub(1);
                let option = wanted.as_ref().map_or(0, number).min(last);
                self.took(wanted, NondetValue::Choose { option });
                option
            }
            Question::Grew(of) => Answer::from(self.value(of).grew()),
            Question::Failed(of) => Answer::from(self.value(of) == Value::Null),
            Question::Equal(a, b) => Answer::from(self.value(a).same(&self.value(b))),
            Question::Truth(of) => Answer::from(self.value(of).truth()),
            // The model refuses to judge a program that asks this of anything else.
            Question::Number(of) => self.value(of).number().unwrap_or(0),
            Question::MapHas { map, key } => {
                let key = self.value(key);
                Answer::from(self.run.tables().containers.has(*map, &key))
            }
            Question::MapItems { map, order } => return Ok(self.items(*map, *order)),
            Question::ListLen { list } => self.run.tables().containers.len(*list),
            Question::Trimmed(of) => {
                let segments = self.value(of).trimmed();
                return Ok((u32::try_from(segments.len()).expect("few segments"), segments));
            }
            Question::HasWindow { comm, buffer } => {
                let tables = self.run.tables();
                let source = &*self.run.source;
                let found = tables.comm_of(source, comm).zip(tables.buffer(source, buffer));
                Answer::from(found.is_some_and(|(comm, buffer)| tables.has_window(comm, &buffer)))
            }
            Question::EventQuery { event } => Answer::from(self.query(*event)?),
        };
        Ok((answer, Vec::new()))
    }

    /// Walks a map; addresses lie as they really do.
    fn items(&self, map: Token, order: MapOrder) -> Answered {
        let mut tables = self.run.tables();
        let entries = tables.containers.entries(map).to_vec();
        let kind = if order == MapOrder::Hash { NondetKind::HashOrder } else { NondetKind::AddressOrder };
        let known = if order == MapOrder::Hash { &mut tables.hash_order } else { &mut tables.address_order };
        let mut placed = Cow::Borrowed(&known[..]);
        let Ok(entries) = walk(entries, order, &mut placed, |placed, value| {
            Ok::<_, Infallible>(self.position(placed, value, kind))
        });
        *known = placed.into_owned();
        let count = u32::try_from(entries.len()).expect("few entries");
        (count, entries.into_iter().flat_map(|(key, value)| [key, value]).collect())
    }
}
