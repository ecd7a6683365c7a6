//! The lines of source that a finding is about, with marks, as errors in specs have them.
//!
//! Not here: where the texts come from ([`crate::search`]); what cannot be read is left out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, NamedSource, SourceCode,
    SourceSpan, SpanContents,
};
use rankcheck_model::{Rank, ranks_in_words};

use super::file_name;
use crate::search::{Counterexample, Located};
use crate::spec::span_from;

/// Places that are marked at most: those of the finding come first.
const MARKS: usize = 4;
/// Lines between two places of a file up to which they share an excerpt.
const NEAR: u32 = 4;

/// Some places of one file.
#[derive(Debug)]
struct Excerpt {
    source: Lines,
    labels: Vec<LabeledSpan>,
}

/// A text of which whole lines are shown: without context, miette begins where the first mark does.
#[derive(Debug)]
struct Lines {
    text: String,
    source: NamedSource<String>,
}

impl SourceCode for Lines {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let line = self.text[..span.offset()].rfind('\n').map_or(0, |at| at + 1);
        let last = span.offset() + span.len();
        let end = self.text[last..].find('\n').map_or(self.text.len(), |at| last + at);
        let whole = SourceSpan::from((line, end - line));
        self.source.read_span(&whole, before, after)
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("source")
    }
}

impl std::error::Error for Excerpt {}

impl Diagnostic for Excerpt {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// Draws the lines on which the operations of a finding stand.
pub(super) fn source(out: &mut String, shown: &Counterexample) {
    let mut places: Vec<(&Located, Vec<Rank>)> = Vec::new();
    for at in &shown.broken.ops {
        match places.iter_mut().find(|(known, _)| known.loc == at.loc) {
            Some((_, ranks)) => ranks.push(at.op.rank),
            None => places.push((at, vec![at.op.rank])),
        }
    }
    let mut files: BTreeMap<&Arc<str>, Vec<(u32, SourceSpan, String)>> = BTreeMap::new();
    for (at, ranks) in places.into_iter().take(MARKS) {
        let Some(text) = shown.sources.get(&at.loc.file) else { continue };
        let span = span_from(text, &at.loc);
        if !span.is_empty() {
            let ranks = ranks_in_words(ranks.into_iter());
            files.entry(&at.loc.file).or_default().push((at.loc.line, span, ranks));
        }
    }
    let near = |a: &(u32, SourceSpan, String), b: &(u32, SourceSpan, String)| b.0 - a.0 <= NEAR;
    let excerpts = files.into_iter().flat_map(|(file, mut marks)| {
        marks.sort_by_key(|(line, ..)| *line);
        marks.chunk_by(near).map(|marks| (file, marks.to_vec())).collect::<Vec<_>>()
    });
    for (file, marks) in excerpts {
        let label = |(_, span, ranks)| LabeledSpan::new_with_span(Some(ranks), span);
        let excerpt = Excerpt {
            source: Lines {
                text: shown.sources[file].to_string(),
                source: NamedSource::new(file_name(file), shown.sources[file].to_string()),
            },
            labels: marks.into_iter().map(label).collect(),
        };
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
            .with_width(100)
            .with_context_lines(0)
            .with_links(false);
        let mut drawn = String::new();
        if handler.render_report(&mut drawn, &excerpt).is_ok() {
            // The finding is said already: only what is drawn below a message is wanted.
            for line in drawn.lines().skip_while(|line| !line.contains('╭')) {
                // Lines are whole, so their column says nothing.
                let line = line.trim_end();
                let line =
                    line.strip_suffix(":1]").map_or_else(|| line.to_owned(), |head| format!("{head}]"));
                out.push('\n');
                out.push_str(&line);
            }
        }
    }
}
