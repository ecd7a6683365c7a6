//! A program of a spec as the machine asks for it: stretch by stretch.
//!
//! Not here: what the builtins record.

use std::collections::BTreeSet;
use std::sync::Arc;

use rankcheck_model::{Answer, Entry, Place, PlaceId, Rank, Source, SourceError, Stretch, Symmetry, Token};
use starlark::environment::Module;
use starlark::eval::Evaluator;
use starlark::values::{OwnedFrozenValue, Value};

use crate::recorder::{Memo, Names, Recorder};
use crate::spec::error::{Texts, explain, place_of};
use crate::spec::evaluation::{Datum, Entries, Evaluation};
use crate::spec::load::limit;
use crate::spec::noun::{take_tested, tested_message};
use crate::spec::rank::RankValue;
use crate::spec::{Assumption, Param, SpecError};

/// A program of a check, for one rank count and one value of each parameter.
#[derive(Debug)]
pub struct SpecSource {
    program: OwnedFrozenValue,
    ranks: u32,
    params: Vec<(String, Datum)>,
    assumed: Arc<[String]>,
    names: Arc<Names>,
    entries: Arc<Entries>,
    memo: Memo,
    texts: Arc<Texts>,
    /// Whether the files call `r.overlap` anywhere.
    declares_overlap: bool,
    /// Where the check stands: the place of errors that have none of their own.
    check: Place,
}

fn datum(param: &Param) -> Datum {
    match param {
        Param::None => Datum::None,
        Param::Bool(bool) => Datum::Bool(*bool),
        Param::Int(int) => Datum::Int(*int),
        Param::Str(text) => Datum::Str(text.clone()),
        Param::List(items) => Datum::List(items.iter().map(datum).collect()),
    }
}

impl SpecSource {
    pub(crate) fn new(
        program: &OwnedFrozenValue,
        ranks: u32,
        params: &[(String, Param)],
        assume: &[Assumption],
        texts: Arc<Texts>,
        check: &Place,
    ) -> Self {
        let assumed = assume.iter().filter_map(|assumption| match assumption {
            Assumption::Named(text) => Some(text.clone()),
            Assumption::Coresident(_) => None,
        });
        let declares_overlap = texts.values().any(|text| text.original.contains(".overlap("));
        Self {
            declares_overlap,
            program: program.clone(),
            ranks,
            params: params.iter().map(|(name, param)| (name.clone(), datum(param))).collect(),
            assumed: assumed.collect(),
            names: Arc::default(),
            entries: Arc::default(),
            memo: Memo::default(),
            texts,
            check: check.clone(),
        }
    }

    /// The named assumptions that evaluations came by so far, with `r.may`.
    #[must_use]
    pub fn mentioned(&self) -> BTreeSet<String> {
        self.names.mentioned()
    }

    /// How many ranks run it.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The error of an evaluation, with the text that it points into.
    #[must_use]
    pub fn diagnose(&self, error: &SourceError) -> SpecError {
        SpecError::of_source(error, &self.texts)
    }

    /// Evaluates into the recorder of `evaluation`. An error is the interpreter's; ours are in the recorder.
    fn run(&self, evaluation: &Evaluation) -> starlark::Result<()> {
        let recorder = &evaluation.recorder;
        Module::with_temp_heap(|module| {
            let heap = module.heap();
            let mut eval = Evaluator::new(&module);
            eval.extra = Some(evaluation);
            limit(&mut eval);
            let r = heap.alloc(RankValue {
                rank: recorder.rank.0,
                size: self.ranks,
                read: recorder.read_rank.clone(),
            });
            if recorder.entry == Entry(0) {
                let program = heap.access_owned_frozen_value(&self.program);
                let named: Vec<(&str, Value<'_>)> =
                    self.params.iter().map(|(name, value)| (name.as_str(), value.alloc(heap))).collect();
                eval.eval_function(program, &[r], &named)?;
            } else {
                let start = self.entries.start(recorder.entry).expect("entries come from this source");
                let args = start.args.iter().map(|arg| arg.alloc(heap));
                let args: Vec<Value<'_>> = std::iter::once(r).chain(args).collect();
                // Alive: it belongs to the module of the program or to one that this refers to.
                heap.add_reference(self.program.owner());
                eval.eval_function(start.function.to_value(), &args, &[])?;
            }
            Ok(())
        })
    }
}

impl Source for SpecSource {
    fn stretch(&self, rank: Rank, entry: Entry, answers: &[Answer]) -> Result<Arc<Stretch>, SourceError> {
        if let Some(known) = self.memo.get(rank, entry, answers) {
            return Ok(known);
        }
        let recorder = Recorder::new(self.names.clone(), rank, self.ranks, entry, answers);
        let evaluation =
            Evaluation::new(recorder, self.entries.clone(), self.assumed.clone(), self.texts.clone());
        take_tested();
        let result = self.run(&evaluation);
        let recorder = evaluation.recorder;
        if let Some(noun) = take_tested() {
            let (message, help) = tested_message(noun);
            let place = self.names.place_id(&self.check);
            recorder.fail(message, Some(place), Some(help));
        }
        if let Err(error) = result
            && !recorder.stopped()
        {
            let (message, help) = explain(&error);
            // The limits of the interpreter give no span, only the calls that they interrupt.
            let frames = &error.call_stack().frames;
            let call = frames.iter().rev().find_map(|frame| frame.location.as_ref());
            let place = error.span().or(call).map(|span| self.names.place_id(&place_of(span, &self.texts)));
            let place = place.unwrap_or_else(|| self.names.place_id(&self.check));
            recorder.fail(message, Some(place), help);
        }
        self.memo.put(&self.names, rank, entry, answers, recorder.finish()?)
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.names.text(token)
    }

    fn place(&self, place: PlaceId) -> Place {
        self.names.place(place)
    }

    fn default_stream(&self) -> Token {
        self.names.token("default")
    }

    fn symmetry(&self) -> Symmetry {
        self.names.symmetry()
    }

    fn declares_overlap(&self) -> bool {
        self.declares_overlap
    }
}
