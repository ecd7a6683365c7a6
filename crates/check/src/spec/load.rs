//! Reads a spec file and what it loads.
//!
//! Not here: evaluating programs (`source.rs`).

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankcheck_model::{Loc, SourceError};
use sha2::{Digest, Sha256};
use starlark::codemap::FileSpanRef;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{BeforeStmtFunc, BeforeStmtFuncDyn, Evaluator, ReturnFileLoader};
use starlark::syntax::ast::{AstExpr, AstStmt, ExprP, StmtP};
use starlark::syntax::{AstModule, Dialect, DialectTypes};

use crate::spec::alive::Alive;
use crate::spec::compare::{Text, rewrite};
use crate::spec::error::{
    MAX_DEPTH, MAX_HEAP_BYTES, MAX_NESTING, MAX_TICKS, SpecError, Texts, explain, heap_exceeded, loc_of,
    panicked, spec_error, wrong,
};
use crate::spec::evaluation::Evaluation;
use crate::spec::file::{Collector, globals};
use crate::spec::nesting::deepest;
use crate::spec::source::ProgramBody;
use crate::spec::stack;
use crate::spec::unbounded;
use crate::spec::{Anchor, Check, Spec};

const DIALECT: Dialect = Dialect {
    enable_keyword_only_arguments: true,
    enable_types: DialectTypes::Enable,
    enable_top_level_stmt: true,
    enable_f_strings: true,
    ..Dialect::Standard
};

/// Reads a spec file, evaluates its top level, and gives what it states.
///
/// # Errors
/// When a file cannot be read, or says something that is not a spec, or states no check.
pub fn load(path: &Path) -> Result<Spec, SpecError> {
    let spec = load_any(path)?;
    if spec.checks.is_empty() {
        let help = "state one: check(name, program, expect = holds())";
        let message = format!("{} states no check", path.display());
        return Err(SpecError::new(message, Some(help.to_owned())));
    }
    Ok(spec)
}

/// The same for a file that may be there to be loaded by others, and then states no check.
///
/// # Errors
/// When a file cannot be read, or says something that is not a spec.
pub fn load_any(path: &Path) -> Result<Spec, SpecError> {
    let read = || catch_unwind(|| read_spec(path));
    stack::deep(read).unwrap_or_else(|payload| {
        let message = format!("{}: the interpreter cannot go on: {}", path.display(), panicked(&*payload));
        Err(SpecError::new(message, Some("make its values and expressions smaller".to_owned())))
    })
}

fn read_spec(path: &Path) -> Result<Spec, SpecError> {
    let mut loader = Loader {
        globals: globals(),
        open: Vec::new(),
        done: HashMap::new(),
        texts: Texts::new(),
        anchors: Vec::new(),
        digest: Sha256::new(),
    };
    let text = read(path).map_err(|message| SpecError::new(message, None))?;
    let (module, collector) = loader.module(path, &text, Collector::default())?;
    let texts = Arc::new(loader.texts);
    let mut checks = Vec::new();
    for draft in collector.drafts.take() {
        let programs = draft.programs.iter().map(|name| module.get(name));
        let programs = programs.collect::<Result<Vec<_>, _>>();
        checks.push(Check {
            name: draft.name,
            loc: loc_of(&draft.span, &texts),
            kind: draft.kind,
            ranks: draft.ranks,
            params: draft.params,
            faults: draft.faults,
            faults_at_most: draft.faults_at_most,
            assume: draft.assume,
            platform: draft.platform,
            waive: draft.waive,
            programs: programs
                .expect("check() stored its programs in the module")
                .into_iter()
                .map(ProgramBody::Starlark)
                .collect(),
            texts: texts.clone(),
            words: Arc::default(),
        });
    }
    let mut anchors = loader.anchors;
    anchors.extend(anchors_of(&collector, &texts));
    let digest = loader.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Spec { path: path.display().to_string(), text: text.into(), digest, checks, anchors, texts })
}

fn anchors_of(collector: &Collector, texts: &Texts) -> Vec<Anchor> {
    let anchors = collector.anchors.take().into_iter();
    anchors.map(|(path, quote, span)| Anchor { path, quote, loc: loc_of(&span, texts) }).collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

struct Loader {
    globals: Globals,
    /// Files on the way from the spec to the one that is read.
    open: Vec<PathBuf>,
    done: HashMap<PathBuf, FrozenModule>,
    texts: Texts,
    anchors: Vec<Anchor>,
    digest: Sha256,
}

impl Loader {
    fn module(
        &mut self,
        path: &Path,
        text: &str,
        collector: Collector,
    ) -> Result<(FrozenModule, Collector), SpecError> {
        let name = path.display().to_string();
        self.texts.insert(name.as_str().into(), Text::plain(text));
        self.digest.update((text.len() as u64).to_le_bytes());
        self.digest.update(text);
        if let Some((line, depth)) = deepest(text).filter(|(_, depth)| *depth > MAX_NESTING) {
            let loc = Loc { file: name.as_str().into(), line, column: 1, called_at: None };
            let message = format!("what stands here is nested {depth} deep; the limit is {MAX_NESTING}");
            let help = "give parts of it names, or build it in a loop".to_owned();
            let error = SourceError { message, loc: Some(loc), help: Some(help) };
            return Err(SpecError::of_source(&error, &self.texts));
        }
        let parse = |text: String| AstModule::parse(&name, text, &DIALECT);
        let ast = parse(text.to_owned()).map_err(|error| spec_error(&error, &self.texts))?;
        if let Some(named) = named_only(ast.statement()) {
            let span = ast.file_span(named.span);
            let called = format!("{}()", span.source_span());
            let help = format!("a name alone calls nothing: write `{called}`, with what it takes");
            return Err(SpecError::at(&span, &self.texts, "this statement does nothing", Some(help)));
        }
        let (evaluated, text) = rewrite(text, &ast);
        self.texts.insert(name.as_str().into(), text);
        let ast = parse(evaluated).map_err(|error| spec_error(&error, &self.texts))?;
        if let Some(text) = self.texts.get_mut(name.as_str()) {
            text.alive = Arc::new(Alive::of(ast.statement()));
        }
        self.open.push(canonical(path));
        let mut modules = HashMap::new();
        for load in ast.loads() {
            let texts = self.texts.clone();
            let at = |message: String, help: &str| {
                SpecError::at(&load.span, &texts, message, Some(help.to_owned()))
            };
            let found = find(path, load.module_id).ok_or_else(|| {
                at(
                    format!("there is no directory named specs above {name}"),
                    "paths with // start at the nearest parent folder named specs, or at an installed one",
                )
            })?;
            modules.insert(load.module_id, self.loaded(&found, &at)?);
        }
        self.open.pop();
        let modules = modules.iter().map(|(id, module)| (*id, module)).collect();
        let files = ReturnFileLoader { modules: &modules };
        let file = Loc { file: name.as_str().into(), line: 0, column: 0, called_at: None };
        let evaluate = || {
            Module::with_temp_heap(|module| {
                {
                    let mut eval = Evaluator::new(&module);
                    eval.set_loader(&files);
                    eval.extra = Some(&collector);
                    limit(&mut eval);
                    eval.eval_module(ast.clone(), &self.globals)?;
                }
                module.freeze().map_err(|error| wrong(error.err_msg, "keep such values inside programs"))
            })
        };
        let frozen = unbounded::evaluate(&file, &self.texts, evaluate)
            .map_err(|error| SpecError::of_source(&error, &self.texts))?;
        let located = |error: starlark::Error| match collector.exceeded.take() {
            Some(statement) => {
                let (message, help) = explain(&error);
                SpecError::at(&statement, &self.texts, message, help)
            }
            None => spec_error(&error, &self.texts),
        };
        Ok((frozen.map_err(located)?, collector))
    }

    fn loaded(
        &mut self,
        path: &Path,
        at: &dyn Fn(String, &str) -> SpecError,
    ) -> Result<FrozenModule, SpecError> {
        let key = canonical(path);
        if let Some(module) = self.done.get(&key) {
            return Ok(module.clone());
        }
        if self.open.contains(&key) {
            let message =
                format!("files load each other in a circle: {} is being read already", path.display());
            return Err(at(message, "move what both need into a third file"));
        }
        let text = read(path)
            .map_err(|message| at(message, "\"//\" is the directory specs; else paths are relative"))?;
        let collector = Collector { loaded: true, ..Collector::default() };
        let (module, collector) = self.module(path, &text, collector)?;
        self.anchors.extend(anchors_of(&collector, &self.texts));
        self.done.insert(key, module.clone());
        Ok(module)
    }
}

/// A statement that is no more than a name, or what a value has by a name: somebody forgot to call it.
fn named_only(statement: &AstStmt) -> Option<&AstExpr> {
    if let StmtP::Expression(expr) = &statement.node
        && matches!(expr.node, ExprP::Dot(..) | ExprP::Identifier(_))
    {
        return Some(expr);
    }
    let mut found = None;
    statement.visit_stmt(|inner| found = found.or_else(|| named_only(inner)));
    found
}

/// Looks at the heap before each statement, and takes down which one comes: the interpreter does so every thousand calls and turns of a loop, and a list
/// that doubles as often needs no more than thirty.
struct HeapLimit;

impl<'e> BeforeStmtFuncDyn<'e> for HeapLimit {
    fn call<'v>(
        &mut self,
        statement: FileSpanRef<'_>,
        goes_on: bool,
        eval: &mut Evaluator<'v, '_, 'e>,
    ) -> starlark::Result<()> {
        if eval.heap().allocated_bytes() > MAX_HEAP_BYTES {
            // The interpreter knows no place for what it is stopped by.
            let error = heap_exceeded();
            if let Ok(evaluation) = Evaluation::of(eval) {
                evaluation.fails_at(&statement.to_file_span(), &error);
            } else if let Some(collector) = eval.extra.and_then(|extra| extra.downcast_ref::<Collector>()) {
                collector.exceeded.replace(Some(statement.to_file_span()));
            }
            return Err(error);
        }
        unbounded::comes_to(statement);
        // A statement goes on when a call in it has returned.
        if !goes_on && let Ok(evaluation) = Evaluation::of(eval) {
            evaluation.comes_to(statement, eval);
        }
        Ok(())
    }
}

/// Sets the limits of an evaluation.
pub(crate) fn limit(eval: &mut Evaluator<'_, '_, '_>) {
    eval.before_stmt_for_dap(BeforeStmtFunc::from_dyn(Box::new(HeapLimit)));
    eval.set_max_callstack_size(MAX_DEPTH).expect("set once, not zero");
    eval.set_max_tick_count(MAX_TICKS).expect("set once, not zero");
    eval.set_max_heap_size(MAX_HEAP_BYTES).expect("set once, not zero");
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The file that a load names: `//` is the nearest directory named specs above the loading file, and where the file is
/// not there, the specs that were installed with the command.
fn find(from: &Path, id: &str) -> Option<PathBuf> {
    let Some(below) = id.strip_prefix("//") else {
        return Some(from.parent().unwrap_or(Path::new("")).join(id));
    };
    let named = |path: &&Path| path.file_name().is_some_and(|name| name == "specs");
    let as_given = from.ancestors().find(named).map(Path::to_owned);
    let above = as_given.or_else(|| canonical(from).ancestors().find(named).map(Path::to_owned));
    let above = above.map(|root| root.join(below));
    if above.as_deref().is_some_and(Path::is_file) {
        return above;
    }
    installed().map(|root| root.join(below)).filter(|file| file.is_file()).or(above)
}

/// Where a wheel puts specs, seen from where it puts the command.
fn installed() -> Option<PathBuf> {
    let command = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    Some(command.parent()?.parent()?.join("share/rankcheck/specs"))
}
