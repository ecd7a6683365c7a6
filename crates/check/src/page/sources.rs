//! The lines of programs that stand beside the steps of a run.
//!
//! A spec brings its texts. The programs of recorded runs and dumps are looked for below a folder that somebody names, and
//! nowhere else: a recording names any file, and a page is shown to others.
//! Not here: which line belongs to which step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagram::{Diagram, SourcePlace, SourceText};

/// Lines around one that is named, where a file is too long to be shown whole.
const AROUND: u32 = 12;
/// Lines of a file that is shown whole.
const WHOLE: usize = 400;

/// Returns what is shown of texts, by the names that places have for them.
pub(super) fn of(texts: &BTreeMap<Arc<str>, Arc<str>>, places: &[SourcePlace]) -> Vec<SourceText> {
    texts.iter().filter_map(|(file, text)| shown(file, text, places)).collect()
}

/// Adds the programs that a run names, as they lie below a folder now.
pub fn add(diagram: &mut Diagram, folder: &Path) {
    let files: BTreeSet<&String> = diagram.places.iter().map(|place| &place.file).collect();
    for file in files {
        let Some(path) = below(folder, file) else { continue };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        diagram.sources.extend(shown(file, &text, &diagram.places));
    }
}

/// The file below a folder whose path ends as another does, the more of it the better.
fn below(folder: &Path, file: &str) -> Option<PathBuf> {
    let root = folder.canonicalize().ok()?;
    let parts: Vec<&str> = file.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let ends = (0..parts.len()).map(|from| root.join(parts[from..].join("/")));
    let found = ends.filter_map(|path| path.canonicalize().ok());
    // Whatever leads out of the folder is none of its files.
    found.into_iter().find(|path| path.is_file() && path.starts_with(&root))
}

fn shown(file: &str, text: &str, places: &[SourcePlace]) -> Option<SourceText> {
    let lines: Vec<&str> = text.lines().collect();
    let total = u32::try_from(lines.len()).ok()?;
    let mut wanted: BTreeSet<u32> = BTreeSet::new();
    for place in places {
        let called = place.called_at.iter().map(|(file, line)| (file, *line));
        for (named, line) in std::iter::once((&place.file, place.line)).chain(called) {
            if named == file && (1..=total).contains(&line) {
                wanted.extend(line.saturating_sub(AROUND).max(1)..=(line + AROUND).min(total));
            }
        }
    }
    if wanted.is_empty() {
        return None;
    }
    if lines.len() <= WHOLE {
        wanted = (1..=total).collect();
    }
    let mut parts: Vec<(u32, Vec<String>)> = Vec::new();
    for line in wanted {
        let text = lines[line as usize - 1].to_owned();
        match parts.last_mut() {
            Some((first, part)) if *first as usize + part.len() == line as usize => part.push(text),
            _ => parts.push((line, vec![text])),
        }
    }
    Some(SourceText { file: file.to_owned(), parts })
}
