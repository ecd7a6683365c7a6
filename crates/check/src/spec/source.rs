//! A program of a spec as the machine asks for it: block by block.
//!
//! Not here: what the builtins record.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rankcheck_model::{
    Answer, Block, EvaluatedProgram, Loc, LocId, Question, Rank, Source, SourceError, StandingDigest,
    Symmetry, ThreadStart, Token,
};
use starlark::environment::Module;
use starlark::eval::Evaluator;
use starlark::values::{FrozenValue, Heap, OwnedFrozenValue, Value};

use crate::search::IdleSide;
use crate::spec::builder::{Builder, Memo, Setting, SourceNames, Stop, Words};
use crate::spec::compare::Text;
use crate::spec::error::{Texts, explain, loc_of, panicked, wrong};
use crate::spec::evaluation::Evaluation;
use crate::spec::handle::{take_tested, tested_message};
use crate::spec::load::limit;
use crate::spec::noun::thread::{Body, Datum, Runs, Spawned};
use crate::spec::rank::RankValue;
use crate::spec::stack;
use crate::spec::standing::StandingAtQuestion;
use crate::spec::unbounded;
use crate::spec::{Assumption, Param, SpecError};

/// What every rank runs.
#[derive(Clone)]
pub(crate) enum ProgramBody {
    /// A function of a spec.
    Starlark(OwnedFrozenValue),
    /// A closure of a Rust program.
    Rust {
        body: Body,
        /// Whether it may declare an overlap; of a spec, its text says.
        declares_overlap: bool,
    },
}

impl ProgramBody {
    /// Whether both are one function.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Starlark(one), Self::Starlark(other)) => one.value().ptr_eq(other.value()),
            (Self::Rust { body: one, .. }, Self::Rust { body: other, .. }) => Arc::ptr_eq(one, other),
            (Self::Starlark(_), Self::Rust { .. }) | (Self::Rust { .. }, Self::Starlark(_)) => false,
        }
    }
}

impl std::fmt::Debug for ProgramBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starlark(_) => "Starlark",
            Self::Rust { .. } => "Rust",
        })
    }
}

/// A program of a check, for one rank count and one value of each parameter.
#[derive(Debug)]
pub struct SpecSource {
    program: ProgramBody,
    setting: Arc<Setting>,
    memo: Memo,
    /// Whether somebody asked how the program stands where it asks: only searches that take histories for one do.
    follows_standing: AtomicBool,
    texts: Arc<Texts>,
    /// Where the check stands: the location of errors that have none of their own.
    check: Loc,
}

fn alloc<'v>(param: &Param, heap: Heap<'v>) -> Value<'v> {
    match param {
        Param::None => Value::new_none(),
        Param::Bool(bool) => Value::new_bool(*bool),
        Param::Int(int) => heap.alloc(*int),
        Param::Str(text) => heap.alloc(text.as_str()),
        Param::List(items) => heap.alloc(items.iter().map(|item| alloc(item, heap)).collect::<Vec<_>>()),
    }
}

/// The text of the file of a closure, where it can be read: errors show the line.
pub(crate) fn text_around(loc: &Loc) -> Texts {
    let text = read_near(&loc.file);
    text.into_iter().map(|text| (loc.file.clone(), Text::plain(&text))).collect()
}

/// Reads a file by the name that the compiler gave it, which counts from the root of the workspace, while tests run in
/// the folder of their package.
pub(crate) fn read_near(file: &str) -> Option<String> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
}

impl SpecSource {
    pub(crate) fn new(
        program: &ProgramBody,
        ranks: u32,
        params: &[(String, Param)],
        assume: &[Assumption],
        (texts, words): (&Arc<Texts>, &Arc<Words>),
        check: &Loc,
    ) -> Self {
        let assumed = assume.iter().filter_map(|assumption| match assumption {
            Assumption::Named(text) => Some(text.clone()),
            Assumption::Coresident(_) | Assumption::JobEndsWithARank => None,
        });
        let declares_overlap = match program {
            ProgramBody::Starlark(_) => texts.values().any(|text| text.original.contains(".overlap(")),
            ProgramBody::Rust { declares_overlap, .. } => *declares_overlap,
        };
        let setting = Setting {
            ranks,
            names: SourceNames::of(words),
            threads: Spawned::by(texts),
            params: params.to_vec(),
            assumed: assumed.collect(),
            declares_overlap,
        };
        let (program, setting) = (program.clone(), Arc::new(setting));
        Self {
            program,
            setting,
            memo: Memo::default(),
            follows_standing: AtomicBool::new(false),
            texts: Arc::clone(texts),
            check: check.clone(),
        }
    }

    /// The named assumptions that evaluations came by so far, with `r.may`.
    #[must_use]
    pub fn mentioned(&self) -> BTreeSet<String> {
        self.setting.names.mentioned()
    }

    /// The answers, as far as evaluated, after which no rank does anything that others may notice, to questions that have
    /// another answer after which one does.
    pub(crate) fn idle_sides(&self) -> Vec<IdleSide> {
        let names = &self.setting.names;
        let side = |(question, loc, answer): (Question, LocId, Answer)| {
            Some(IdleSide { answer: self.side(&question, answer)?, loc: names.loc(loc) })
        };
        let mut sides: Vec<IdleSide> = self.memo.idle_sides().into_iter().filter_map(side).collect();
        sides.sort_by(|one, other| {
            let place = |side: &IdleSide| (Arc::clone(&side.loc.file), side.loc.line, side.loc.column);
            place(one).cmp(&place(other))
        });
        sides
    }

    /// An answer in words; none for numbers, which only say how often something is done.
    fn side(&self, question: &Question, answer: Answer) -> Option<String> {
        let text = |token: &Token| self.setting.names.text(*token);
        let truth = if answer == 0 { "False" } else { "True" };
        Some(match question {
            Question::Choose { name, options } => {
                format!("{} = {}", text(name), options.get(answer as usize).map(text)?)
            }
            Question::Grew(_) => format!("grew(…) = {}", truth),
            Question::Failed(_) => format!("failed(…) = {}", truth),
            Question::Equal(..) => format!("equal(…) = {truth}"),
            Question::Truth(_) => format!("truth(…) = {}", truth),
            Question::MapHas { map, .. } => format!("{}.has(…) = {}", text(map), truth),
            Question::HasWindow { .. } => format!("has_window(…) = {}", truth),
            Question::EventQuery { event } => format!("{}.query() = {}", text(event), truth),
            Question::Number(_)
            | Question::MapItems { .. }
            | Question::ListLen { .. }
            | Question::Trimmed(_) => return None,
        })
    }

    /// How many ranks run it.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.setting.ranks
    }

    /// The error of an evaluation, with the text that it points into.
    #[must_use]
    pub fn diagnose(&self, error: &SourceError) -> SpecError {
        SpecError::of_source(error, &self.texts)
    }

    /// The number of the location of the check.
    fn check_loc(&self) -> LocId {
        self.setting.names.loc_id(&self.check)
    }

    /// Evaluates the program, or the thread of the builder. How it ended stands in the builder.
    fn evaluate(&self, builder: Builder) -> Builder {
        let runs = self.setting.threads.runs(builder.start);
        assert!(
            runs.is_some() || builder.start == ThreadStart::default(),
            "a thread runs what this source started"
        );
        match (&self.program, runs) {
            (ProgramBody::Starlark(program), None) => self.evaluate_starlark(builder, program, None),
            (ProgramBody::Starlark(program), Some(Runs::Starlark { function, args })) => {
                self.evaluate_starlark(builder, program, Some((function, &args)))
            }
            (ProgramBody::Rust { body, .. }, None) => self.evaluate_rust(builder, body),
            (ProgramBody::Rust { .. }, Some(Runs::Rust { body, .. })) => self.evaluate_rust(builder, &body),
            (ProgramBody::Starlark(_), Some(Runs::Rust { .. }))
            | (ProgramBody::Rust { .. }, Some(Runs::Starlark { .. })) => {
                unreachable!("threads are in the language of their program")
            }
        }
    }

    /// Evaluates a block and remembers it.
    fn evaluated_block(
        &self,
        rank: Rank,
        start: ThreadStart,
        answers: &[Answer],
    ) -> Result<Arc<Block>, SourceError> {
        let builder = self.evaluate(Builder::new(self.setting.clone(), rank, start, answers));
        self.memo.put(&self.setting.names, rank, start, answers, builder.finish()?)
    }

    fn evaluate_rust(&self, builder: Builder, body: &Body) -> Builder {
        match catch_unwind(AssertUnwindSafe(|| body(&builder))) {
            // A stop is known to the builder, too. What a closure holds cannot be looked at.
            Ok(Ok(()) | Err(Stop::Asked | Stop::Raised | Stop::Wrong)) => {
                builder.stands(StandingAtQuestion::Unknown);
            }
            Err(payload) => {
                let help =
                    "a closure says what a rank does, and may be called often; it must not fail itself";
                let loc = self.check_loc();
                builder.fail(
                    format!("the program panicked: {}", panicked(&*payload)),
                    Some(loc),
                    Some(help.to_owned()),
                );
            }
        }
        builder
    }

    fn evaluate_starlark(
        &self,
        builder: Builder,
        program: &OwnedFrozenValue,
        thread: Option<(FrozenValue, &[Datum])>,
    ) -> Builder {
        let follows = self.follows_standing.load(Ordering::Relaxed);
        let evaluation = Evaluation::new(builder, self.texts.clone(), follows);
        take_tested();
        let interpret = || catch_unwind(AssertUnwindSafe(|| self.interpret(&evaluation, program, thread)));
        let result = unbounded::evaluate(&self.check, &self.texts, || stack::deep(interpret));
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let loc = error.loc.as_ref().map(|loc| self.setting.names.loc_id(loc));
                evaluation.builder.fail(error.message, loc, error.help);
                return evaluation.builder;
            }
        };
        let result = result.unwrap_or_else(|payload| {
            let message = format!("the interpreter cannot go on: {}", panicked(&*payload));
            Err(wrong(message, "make the values of the program smaller"))
        });
        let builder = evaluation.into_builder();
        let wrong = result.err().map(|error| (explain(&error), error));
        // An error that shows a value makes a text of it, which is no question of the program.
        let shown = |noun: &str| {
            wrong.as_ref().is_some_and(|((message, _), _)| message.contains(&format!("<{noun}>")))
        };
        if let Some(noun) = take_tested().filter(|noun| !shown(noun)) {
            let (message, help) = tested_message(noun);
            builder.fail(message, Some(self.check_loc()), Some(help));
        }
        if let Some(((message, help), error)) = wrong
            && !builder.stopped()
        {
            // The limits of the interpreter give no span, only the calls that they interrupt.
            let frames = &error.call_stack().frames;
            let call = frames.iter().rev().find_map(|frame| frame.location.as_ref());
            let loc = error.span().or(call);
            let loc = loc.map(|span| self.setting.names.loc_id(&loc_of(span, &self.texts)));
            builder.fail(message, Some(loc.unwrap_or_else(|| self.check_loc())), help);
        }
        builder
    }

    /// Runs the interpreter. An error is its own; ours are in the builder.
    fn interpret(
        &self,
        evaluation: &Evaluation,
        program: &OwnedFrozenValue,
        thread: Option<(FrozenValue, &[Datum])>,
    ) -> starlark::Result<()> {
        let builder = &evaluation.builder;
        Module::with_temp_heap(|module| {
            let heap = module.heap();
            let mut eval = Evaluator::new(&module);
            eval.extra = Some(evaluation);
            limit(&mut eval);
            let r = heap.alloc(RankValue {
                rank: builder.rank.0,
                size: self.setting.ranks,
                read: Arc::clone(&builder.read_rank),
            });
            if let Some((function, args)) = thread {
                let args = args.iter().map(|arg| arg.alloc(heap));
                let args: Vec<Value<'_>> = std::iter::once(r).chain(args).collect();
                // Alive: it belongs to the module of the program or to one that this refers to.
                heap.add_reference(program.owner());
                eval.eval_function(function.to_value(), &args, &[])?;
            } else {
                let program = heap.access_owned_frozen_value(program);
                let params = self.setting.params.iter();
                let named: Vec<(&str, Value<'_>)> =
                    params.map(|(name, value)| (name.as_str(), alloc(value, heap))).collect();
                eval.eval_function(program, &[r], &named)?;
            }
            Ok(())
        })
    }
}

impl Source for SpecSource {
    fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError> {
        if let Some(known) = self.memo.get(rank, start, answers) {
            return Ok(known);
        }
        self.evaluated_block(rank, start, answers)
    }

    fn standing(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Option<StandingDigest> {
        self.follows_standing.store(true, Ordering::Relaxed);
        let mut known = self.memo.standing(rank, start, answers);
        if known == StandingAtQuestion::NotFollowed {
            self.evaluated_block(rank, start, answers).ok()?;
            known = self.memo.standing(rank, start, answers);
        }
        match known {
            StandingAtQuestion::Known(standing) => Some(standing),
            StandingAtQuestion::Unknown | StandingAtQuestion::NotFollowed => None,
        }
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.setting.names.text(token)
    }

    fn loc(&self, loc: LocId) -> Loc {
        self.setting.names.loc(loc)
    }

    fn folder(&self) -> &str {
        self.check.file.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    fn evaluated(&self) -> Option<EvaluatedProgram> {
        Some(self.setting.names.evaluated())
    }

    fn take_over(&self, evaluated: &EvaluatedProgram) -> Vec<LocId> {
        self.setting.names.take_over(evaluated)
    }

    fn default_stream(&self) -> Token {
        self.setting.names.token("default")
    }

    fn symmetry(&self) -> Symmetry {
        self.setting.names.symmetry()
    }

    fn told_apart_at(&self) -> Option<Loc> {
        self.setting.names.told_apart_at()
    }

    fn declares_overlap(&self) -> bool {
        self.setting.declares_overlap
    }
}
