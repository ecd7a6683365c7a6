//! Evaluations that ask for more memory than there is.
//!
//! What the interpreter prints of a list that holds another twice, and so on sixty times, is a text that no memory holds.
//! It writes that text in one go, and nothing is asked on the way but the allocator, which can answer only by ending the
//! process. A program whose allocator asks [`unbounded`] first can start again and say by [`answer`] how that evaluation
//! ends: as an error of the spec.
//! Not here: starting again.

use std::cell::RefCell;
use std::sync::OnceLock;

use rankcheck_model::{Loc, SourceError};
use serde::{Deserialize, Serialize};
use starlark::codemap::{FileSpan, FileSpanRef};

use crate::spec::error::{Texts, loc_of};

/// An evaluation that cannot be made, because one text or list of it is too large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbounded {
    /// The check whose program is evaluated, or the file (as line 0 of it).
    evaluated: Loc,
    /// The file in which the statement stands that makes the text or list.
    file: String,
    /// The line of that statement, from 1.
    line: usize,
}

/// Which evaluation a thread is in.
struct Current {
    evaluated: Loc,
    statement: Option<FileSpan>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

static ANSWERED: OnceLock<Vec<Unbounded>> = OnceLock::new();

/// Returns the evaluation that this thread is in, if it is in one and has begun a statement.
#[must_use]
pub fn unbounded() -> Option<Unbounded> {
    CURRENT.with_borrow(|current| {
        let Current { evaluated, statement } = current.as_ref()?;
        let statement = statement.as_ref()?;
        let line = statement.resolve_span().begin.line + 1;
        Some(Unbounded { evaluated: evaluated.clone(), file: statement.filename().to_owned(), line })
    })
}

/// Ends these evaluations with an error, from now on; the first call counts.
pub fn answer(evaluations: Vec<Unbounded>) {
    // A second call would come from a second start of one process.
    let _ = ANSWERED.set(evaluations);
}

/// Runs an evaluation of this check or file, unless it is known for asking too much.
pub(super) fn evaluate<T>(
    evaluated: &Loc,
    texts: &Texts,
    work: impl FnOnce() -> T,
) -> Result<T, SourceError> {
    let known = ANSWERED.get().into_iter().flatten().find(|known| known.evaluated == *evaluated);
    if let Some(known) = known {
        return Err(known.error(texts));
    }
    let outer = CURRENT.replace(Some(Current { evaluated: evaluated.clone(), statement: None }));
    let result = work();
    CURRENT.set(outer);
    Ok(result)
}

/// Where the statement stands that this thread is in.
pub(super) fn statement() -> Option<Loc> {
    CURRENT.with_borrow(|current| {
        let statement = current.as_ref()?.statement.as_ref()?;
        // Of no use here are texts, by which columns count characters.
        Some(loc_of(statement, &Texts::new()))
    })
}

/// Takes down which statement comes next.
pub(super) fn comes_to(next: FileSpanRef<'_>) {
    CURRENT.with_borrow_mut(|current| {
        let Some(current) = current else { return };
        match &mut current.statement {
            // Most statements follow one of the same file, and to hold that once is cheaper.
            Some(statement) if statement.file.id() == next.file.id() => statement.span = next.span,
            statement => *statement = Some(next.to_file_span()),
        }
    });
}

impl Unbounded {
    fn error(&self, texts: &Texts) -> SourceError {
        let text = texts.get(self.file.as_str()).map_or("", |text| &text.original);
        let line = text.lines().nth(self.line - 1).unwrap_or_default();
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        let number = |n: usize| u32::try_from(n).expect("files have fewer than 2^32 lines and columns");
        let file = self.file.as_str().into();
        let loc = Loc { file, line: number(self.line), column: number(indent + 1), called_at: None };
        SourceError {
            message: "a text or list that this makes does not end before the memory does".to_owned(),
            loc: Some(loc),
            help: Some(
                "a value that holds another twice, and so on, doubles at each step when it is printed; make a smaller one"
                    .to_owned(),
            ),
        }
    }
}
