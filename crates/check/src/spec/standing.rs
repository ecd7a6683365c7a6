//! How an evaluation stands when it asks: a digest of all that the rest of the program depends on.
//!
//! Between two statements of the function that a thread runs, everything that the interpreter holds of the program is in the
//! variables of this function which may still be read ([`crate::spec::alive`]), in the loops that it is in, and in the builder. So
//! two evaluations that stood alike there, and were given the same answers since, go on alike. What cannot be digested, a
//! function that was made on the way for one, leaves an evaluation without a digest.
//! Not here: what follows for histories of a thread (`position.rs` of the model).

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use rankcheck_model::id::{ContentHasher, fingerprint};
use rankcheck_model::{Answer, RenamedDigest, Slot, StandingDigest, ThreadStart};
use rustc_hash::FxHashMap;
use starlark::codemap::{CodeMapId, FileSpanRef};
use starlark::eval::Evaluator;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::structs::StructRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Value, ValueIdentity, ValueLike};

use crate::spec::alive::{Alive, AliveAt, bounds};
use crate::spec::builder::Builder;
use crate::spec::error::Texts;
use crate::spec::handle::Handle;
use crate::spec::noun::pool::PoolValue;
use crate::spec::rank::RankValue;

/// So many answers before the last that is given, variables are looked at: a statement that asks more often has no digest.
const ASKED_IN_A_STATEMENT: usize = 16;

/// Values of a variable are looked at up to so many.
const VALUES_AT_MOST: usize = 1_000;

/// How an evaluation stands where it ends with a question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StandingAtQuestion {
    /// Nobody wanted to know: to look at all variables before each statement takes as long as the statements do.
    #[default]
    NotFollowed,
    /// It cannot be digested.
    Unknown,
    /// It is known what the rest of the program depends on.
    Known(StandingDigest),
}

/// What is followed of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct ProgramStanding {
    /// How deep the calls are where the function of the thread runs.
    depth: Option<usize>,
    file: Option<(CodeMapId, Arc<Alive>)>,
    /// The loops that the function is in.
    loops: Vec<OpenLoop>,
    /// How the evaluation stood at the last statement, after so many answers.
    last: Option<(StandingDigest, usize)>,
    /// After how many answers every function that an object keeps was made, and everything that functions read had its value.
    functions_made: Option<usize>,
    /// How many objects kept functions at the last statement.
    functions_kept: u32,
    /// Whether the last statement may have given a value to what a function reads.
    captures: bool,
}

#[derive(Debug)]
struct OpenLoop {
    lines: Range<u32>,
    /// How the evaluation stood where the loop began, and what was answered before its first turn.
    begun: Option<StandingDigest>,
    answered: usize,
    /// Where the first statement of a turn begins, and how often it did.
    first: Option<u32>,
    turns: u32,
}

/// How many objects keep functions of the program.
#[derive(Debug, Default)]
pub(crate) struct FunctionsKept(Cell<u32>);

impl FunctionsKept {
    /// An object keeps functions of the program; gives its number among those that do.
    pub(crate) fn count(&self) -> u32 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

impl ProgramStanding {
    /// The evaluation comes to a statement.
    pub(crate) fn comes_to(
        &mut self,
        statement: FileSpanRef<'_>,
        eval: &Evaluator<'_, '_, '_>,
        builder: &Builder,
        texts: &Texts,
    ) {
        let depth = eval.call_stack_count();
        if *self.depth.get_or_insert(depth) != depth {
            return;
        }
        let answers = builder.answers_so_far();
        let asked = answers.len();
        // The statement before may have made a function, or given a value to what one reads.
        let kept = builder.functions_kept.0.get();
        let makes = std::mem::replace(&mut self.functions_kept, kept) != kept;
        if std::mem::replace(&mut self.captures, true) || makes {
            self.functions_made = Some(asked);
        }
        self.last = None;
        let Some(alive) = self.alive(statement, texts) else { return };
        let begin = statement.span.begin().get();
        self.loops.retain(|open| open.lines.contains(&begin) && open.lines.start != begin);
        for open in &mut self.loops {
            let first = *open.first.get_or_insert_with(|| {
                let between = &answers[open.answered..];
                let begun = open.begun.take().map(|begun| answered(begun, between));
                open.begun = begun.map(|begun| holding_new(begun, builder.next_slot()));
                begin
            });
            open.turns += u32::from(first == begin);
        }
        let Some(at) = alive.at(statement.span).filter(|at| at.loops == self.loops.len()) else { return };
        self.captures = at.captures;
        // A function may change a list that it captured, and a turn one that the loop goes through.
        let hidden = self.functions_made.is_some() || at.captured || (at.is_loop && !at.counts);
        let changes = hidden && texts.values().any(|text| text.alive.mutates);
        if at.is_loop || asked + ASKED_IN_A_STATEMENT >= builder.answers_given() {
            let digest = || self.digest(at, bounds(statement.span), eval, builder, answers);
            let stands = (!changes).then(digest).flatten();
            self.last = stands.clone().map(|stands| (stands, asked));
            if at.is_loop {
                let lines = begin..statement.span.end().get();
                self.loops.push(OpenLoop { lines, begun: stands, answered: asked, first: None, turns: 0 });
            }
        }
    }

    /// How the evaluation stands where it ends with a question.
    pub(crate) fn at_question(&self, builder: &Builder) -> Option<StandingDigest> {
        let (stood, asked) = self.last.clone()?;
        Some(answered(stood, &builder.answers_so_far()[asked..]))
    }

    fn alive(&mut self, statement: FileSpanRef<'_>, texts: &Texts) -> Option<Arc<Alive>> {
        let id = statement.file.id();
        if self.file.is_none() {
            let text = texts.get(statement.file.filename())?;
            self.file = Some((id, Arc::clone(&text.alive)));
        }
        // A function of another file may have been put in place of its call.
        self.file.as_ref().filter(|(known, _)| *known == id).map(|(_, alive)| Arc::clone(alive))
    }

    fn digest(
        &self,
        at: &AliveAt,
        statement: (u32, u32),
        eval: &Evaluator<'_, '_, '_>,
        builder: &Builder,
        answers: &[Answer],
    ) -> Option<StandingDigest> {
        let hasher = DigestHasher::default();
        let (met, held) = (FxHashMap::default(), Vec::new());
        let mut digest = ValueDigest { hasher, of: builder.start, met, held, left: VALUES_AT_MOST };
        statement.hash(&mut digest.hasher);
        // Objects keep functions as they were made, and these what they captured.
        answers[..self.functions_made.unwrap_or(0)].hash(&mut digest.hasher);
        let mut renamed = self.functions_made.is_none();
        for open in &self.loops {
            (open.lines.start, open.turns).hash(&mut digest.hasher);
            let begun = open.begun.as_ref()?;
            begun.numbered.hash(&mut digest.hasher.numbered);
            match &begun.renamed {
                // What the loop goes through it may still come to.
                Some(begun) => {
                    (begun.digest, begun.held.len()).hash(&mut digest.hasher.renamed);
                    begun.held.iter().for_each(|slot| digest.hold(*slot));
                }
                None => renamed = false,
            }
        }
        builder.hash_counts(&mut digest.hasher);
        builder.next_slot().hash(&mut digest.hasher.numbered);
        let variables = eval.local_variables();
        for name in &at.variables {
            match variables.get(&**name) {
                Some(value) => {
                    name.hash(&mut digest.hasher);
                    digest.add(*value)?;
                }
                // A variable of the file, or one without a value.
                None => 0_u8.hash(&mut digest.hasher),
            }
        }
        let (numbered, digest_renamed) = digest.hasher.fingerprints();
        let renamed = renamed.then(|| RenamedDigest {
            digest: digest_renamed,
            held: digest.held.into(),
            since: builder.next_slot(),
        });
        Some(StandingDigest { numbered, renamed })
    }
}

/// How a program stands that stood so and was given these answers since.
fn answered(stood: StandingDigest, since: &[Answer]) -> StandingDigest {
    let StandingDigest { numbered, renamed } = stood;
    let answered =
        |renamed: RenamedDigest| RenamedDigest { digest: fingerprint(&(renamed.digest, since)), ..renamed };
    StandingDigest { numbered: fingerprint(&(numbered, since)), renamed: renamed.map(answered) }
}

/// How a program stands that holds all results that were made since.
fn holding_new(stood: StandingDigest, next: u32) -> StandingDigest {
    let holding = |renamed: RenamedDigest| RenamedDigest {
        held: renamed.held.iter().copied().chain(renamed.since..next).collect(),
        since: next,
        ..renamed
    };
    StandingDigest { renamed: stood.renamed.map(holding), ..stood }
}

/// Hashes with the numbers of results and without them.
#[derive(Default)]
struct DigestHasher {
    numbered: ContentHasher,
    renamed: ContentHasher,
}

impl DigestHasher {
    fn fingerprints(self) -> (u128, u128) {
        (self.numbered.fingerprint(), self.renamed.fingerprint())
    }
}

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.numbered.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.numbered.write(bytes);
        self.renamed.write(bytes);
    }
}

/// Digests values; lists and dicts that come again are named by when they came first.
struct ValueDigest<'v> {
    hasher: DigestHasher,
    /// The thread whose results are called by the order in which they are met.
    of: ThreadStart,
    held: Vec<u32>,
    met: FxHashMap<ValueIdentity<'v>, usize>,
    left: usize,
}

impl<'v> ValueDigest<'v> {
    /// Adds a value; none if it cannot be digested.
    fn add(&mut self, value: Value<'v>) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        value.get_type().hash(&mut self.hasher);
        if let Some(noun) = Handle::of(value) {
            noun.hash(&mut self.hasher.numbered);
            // Its type was added, so what it works on says the rest.
            match noun.operand() {
                Some(of) => {
                    let len_bytes = if let Handle::Buffer(_, len_bytes) = noun { *len_bytes } else { None };
                    let renamed = of.renamed(&mut |slot| self.called(slot));
                    (renamed, len_bytes).hash(&mut self.hasher.renamed);
                }
                None => noun.hash(&mut self.hasher.renamed),
            }
        } else if let Some(pool) = value.downcast_ref::<PoolValue<'v>>() {
            (pool.name, pool.keeps_functions).hash(&mut self.hasher);
        } else if value.downcast_ref::<RankValue>().is_some() || value.is_none() {
            // Its type says all.
        } else if let Some(text) = value.unpack_str() {
            text.hash(&mut self.hasher);
        } else if let Some(truth) = value.unpack_bool() {
            truth.hash(&mut self.hasher);
        } else if ["int", "range"].contains(&value.get_type()) {
            value.to_repr().hash(&mut self.hasher);
        } else if let Some(tuple) = TupleRef::from_value(value) {
            tuple.len().hash(&mut self.hasher);
            tuple.iter().try_for_each(|part| self.add(part))?;
        } else if let Some(fields) = StructRef::from_value(value) {
            for (name, part) in fields.iter() {
                name.as_str().hash(&mut self.hasher);
                self.add(part)?;
            }
            u8::MAX.hash(&mut self.hasher);
        } else if self.came_before(value) {
            // It was digested then.
        } else if let Some(list) = ListRef::from_value(value) {
            list.len().hash(&mut self.hasher);
            list.iter().try_for_each(|part| self.add(part))?;
        } else if let Some(dict) = DictRef::from_value(value) {
            dict.len().hash(&mut self.hasher);
            for (key, part) in dict.iter() {
                self.add(key)?;
                self.add(part)?;
            }
        } else if value.unpack_frozen().is_some() {
            // A function of a file, or what else a file holds: there is one of it.
            value.identity().hash(&mut self.hasher);
        } else {
            return None;
        }
        Some(())
    }

    /// Adds a result that is held.
    fn hold(&mut self, slot: u32) {
        let called = self.called(Slot { start: self.of, index: slot });
        called.index.hash(&mut self.hasher.renamed);
    }

    /// What a result is called that is held.
    fn called(&mut self, slot: Slot) -> Slot {
        if slot.start != self.of {
            return slot;
        }
        let at = self.held.iter().position(|held| *held == slot.index).unwrap_or_else(|| {
            self.held.push(slot.index);
            self.held.len() - 1
        });
        Slot { index: u32::try_from(at).expect("few results are held"), ..slot }
    }

    fn came_before(&mut self, value: Value<'v>) -> bool {
        // What a file holds cannot be changed.
        value.unpack_frozen().is_some().hash(&mut self.hasher);
        let next = self.met.len();
        let nth = *self.met.entry(value.identity()).or_insert(next);
        nth.hash(&mut self.hasher);
        nth < next
    }
}
