//! What the builtins find behind the evaluator while a program is evaluated: the builder, and the line of Starlark.
//!
//! Not here: the builtins themselves.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rankcheck_model::{Line, Loc, LocId};
use rustc_hash::FxHashMap;
use starlark::any::ProvidesStaticType;
use starlark::codemap::{CodeMapId, FileSpan, FileSpanRef};
use starlark::eval::Evaluator;
use starlark::values::Value;

use crate::spec::builder::{Builder, Stop};
use crate::spec::error::{Texts, explain, loc_of, wrong};
use crate::spec::standing::{ProgramStanding, StandingAtQuestion};

/// File and position, and the position in the program's file where that is another.
type CallSite = (CodeMapId, u32, Option<u32>);

/// One evaluation of one thread of a Starlark program.
#[derive(Debug, ProvidesStaticType)]
pub(crate) struct Evaluation {
    pub(crate) builder: Builder,
    texts: Arc<Texts>,
    locs: RefCell<FxHashMap<CallSite, LocId>>,
    /// The file of the program.
    file: Cell<Option<CodeMapId>>,
    /// How the program stands, if somebody wants to know.
    standing: Option<RefCell<ProgramStanding>>,
}

/// The error that carries a [`Stop`] through the interpreter. What it means stands in the builder.
#[derive(Debug, thiserror::Error)]
#[error("the evaluation stops here")]
struct Stopped;

impl From<Stop> for starlark::Error {
    fn from(_: Stop) -> Self {
        Self::new_native(Stopped)
    }
}

impl Evaluation {
    pub(crate) fn new(builder: Builder, texts: Arc<Texts>, follows_standing: bool) -> Self {
        let standing = follows_standing.then(RefCell::default);
        Self { builder, texts, locs: RefCell::default(), file: Cell::new(None), standing }
    }

    /// The evaluation behind an evaluator.
    pub(crate) fn of<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Self> {
        eval.extra.and_then(|extra| extra.downcast_ref::<Self>()).ok_or_else(|| {
            wrong(
                "operations are recorded inside programs only",
                "call it from the function that is given to check()",
            )
        })
    }

    /// The interpreter comes to a statement.
    pub(crate) fn comes_to(&self, statement: FileSpanRef<'_>, eval: &Evaluator<'_, '_, '_>) {
        if let Some(standing) = &self.standing {
            standing.borrow_mut().comes_to(statement, eval, &self.builder, &self.texts);
        }
    }

    /// The evaluation is over; the builder knows how it stood.
    pub(crate) fn into_builder(self) -> Builder {
        if let Some(standing) = &self.standing {
            let stands = standing.borrow().at_question(&self.builder);
            self.builder.stands(stands.map_or(StandingAtQuestion::Unknown, StandingAtQuestion::Known));
        }
        self.builder
    }

    /// Ends the evaluation with an error of this statement.
    pub(crate) fn fails_at(&self, statement: &FileSpan, error: &starlark::Error) {
        let (message, help) = explain(error);
        let loc = self.builder.setting.names.loc_id(&loc_of(statement, &self.texts));
        self.builder.fail(message, Some(loc), help);
    }

    /// The innermost line of Starlark; if it stands in a library, with the innermost line of the program's own file.
    fn loc(&self, eval: &Evaluator<'_, '_, '_>) -> LocId {
        let names = &self.builder.setting.names;
        let Some(span) = eval.call_stack_top_location() else {
            let loc = Loc { file: "".into(), line: 1, column: 1, called_at: None };
            return names.loc_id(&loc);
        };
        let caller = self.caller(eval, &span);
        let key = (span.file.id(), span.span.begin().get(), caller.as_ref().map(|at| at.span.begin().get()));
        let known = self.locs.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let mut loc = loc_of(&span, &self.texts);
            loc.called_at = caller.map(|at| {
                let Loc { file, line, .. } = loc_of(&at, &self.texts);
                Line { file, line }
            });
            let id = names.loc_id(&loc);
            self.locs.borrow_mut().insert(key, id);
            id
        })
    }

    /// The innermost line of the program's file, where what runs stands in another.
    fn caller(&self, eval: &Evaluator<'_, '_, '_>, span: &FileSpan) -> Option<FileSpan> {
        if self.file.get() == Some(span.file.id()) {
            return None;
        }
        let calls = || eval.call_stack().frames.into_iter().filter_map(|frame| frame.location);
        // The first call that has a location stands in the program.
        let file = self.file.get().or_else(|| calls().next().map(|at| at.file.id()));
        self.file.set(file);
        calls().filter(|at| Some(at.file.id()) == file && at.file.id() != span.file.id()).last()
    }
}

/// The builder, for a verb that is called from the innermost line of Starlark.
pub(crate) fn builder<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Builder> {
    let evaluation = Evaluation::of(eval)?;
    evaluation.builder.called_from(evaluation.loc(eval));
    Ok(&evaluation.builder)
}

/// Calls a function of the spec.
pub(crate) fn call<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    function: Value<'v>,
    args: &[Value<'v>],
) -> starlark::Result<Value<'v>> {
    eval.eval_function(function, args, &[])
}
