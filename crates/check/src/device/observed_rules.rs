//! `rankcheck rules --write`: what devices did when a rule was broken goes into the text of the rule.
//!
//! The text stands between `<!-- observed:ID -->` and `<!-- end -->`; nothing else of a file is touched.
//! Not here: what a rule says, which people write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Agreement;
use super::diff::behaviour_text;
use super::observation::{KeptObservation, ObservationError, Validity};

/// One line for each observed check of a rule, by rule.
#[must_use]
pub fn lines(kept: &[KeptObservation]) -> BTreeMap<String, BTreeSet<String>> {
    let mut lines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kept in kept {
        let program = &kept.observation.program;
        let (Validity::Judged(judgements), Some(rule)) = (&kept.validity, program.check.split(' ').next())
        else {
            continue;
        };
        let texts: BTreeSet<String> = kept
            .observation
            .seen
            .iter()
            .zip(judgements)
            .map(|(seen, judgement)| {
                let text = behaviour_text(&seen.ranks, judgement);
                match judgement.agreement {
                    Agreement::Disagrees(_) => format!("{text} (not as predicted)"),
                    Agreement::Agrees
                    | Agreement::AgreesOtherwise
                    | Agreement::Undefined
                    | Agreement::NotComparable(_) => text,
                }
            })
            .collect();
        let (machine, texts) = (&kept.observation.machine, texts.into_iter().collect::<Vec<_>>().join(", "));
        let title = kept.observation.title();
        let what = title.split_once(' ').map_or(title.as_str(), |(_, what)| what);
        lines
            .entry(rule.to_owned())
            .or_default()
            .insert(format!("- NCCL {}, {}: {what}: {texts}", machine.nccl, machine.gpu));
    }
    lines
}

/// A file of rules with the observed lines of each rule in place.
#[must_use]
pub fn filled(text: &str, lines: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut sections: Vec<Vec<&str>> = vec![Vec::new()];
    for line in text.lines() {
        if line.starts_with("## ") {
            sections.push(Vec::new());
        }
        sections.last_mut().expect("there is always one").push(line);
    }
    let filled = sections.into_iter().map(|section| {
        let heading = section.first().and_then(|line| line.strip_prefix("## "));
        let Some(id) = heading.and_then(|heading| heading.split_whitespace().next()) else {
            return section.join("\n");
        };
        section_with(&section, id, lines.get(id))
    });
    let all: Vec<String> = filled.filter(|section| !section.is_empty()).collect();
    all.join("\n") + "\n"
}

/// Writes the observed lines into the files of a folder. Returns how many changed.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write(folder: &Path, lines: &BTreeMap<String, BTreeSet<String>>) -> Result<usize, ObservationError> {
    let failed = |path: &Path, cause| ObservationError::File { path: path.display().to_string(), cause };
    let mut changed = 0;
    for entry in std::fs::read_dir(folder).map_err(|cause| failed(folder, cause))? {
        let path = entry.map_err(|cause| failed(folder, cause))?.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|cause| failed(&path, cause))?;
        let new = filled(&text, lines);
        if new != text {
            std::fs::write(&path, new).map_err(|cause| failed(&path, cause))?;
            changed += 1;
        }
    }
    Ok(changed)
}

fn section_with(section: &[&str], id: &str, lines: Option<&BTreeSet<String>>) -> String {
    let (open, close) = (format!("<!-- observed:{id} -->"), "<!-- end -->");
    let start = section.iter().position(|line| *line == open);
    let end = section.iter().position(|line| *line == close);
    let mut rest: Vec<&str> = match (start, end) {
        (Some(start), Some(end)) if start < end => {
            section[..start].iter().chain(&section[end + 1..]).copied().collect()
        }
        _ => section.to_vec(),
    };
    let Some(lines) = lines else { return rest.join("\n") };
    while rest.last().is_some_and(|line| line.is_empty()) {
        rest.pop();
    }
    let mut out: Vec<String> = rest.into_iter().map(str::to_owned).collect();
    out.extend([String::new(), open, "Observed:".to_owned(), String::new()]);
    out.extend(lines.iter().cloned());
    out.extend([close.to_owned(), String::new()]);
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "# Windows\n\n## WIN-1 A\n\nText.\n\n## WIN-2 B\n\nText.\n";

    #[test]
    fn lines_are_put_into_their_rule_and_replaced() {
        let with = |line: &str| [("WIN-1".to_owned(), BTreeSet::from([line.to_owned()]))].into();
        let first = filled(RULES, &with("- one"));
        assert!(first.contains(
            "## WIN-1 A\n\nText.\n\n<!-- observed:WIN-1 -->\nObserved:\n\n- one\n<!-- end -->\n\n## WIN-2"
        ));
        let second = filled(&first, &with("- two"));
        assert_eq!(second, first.replace("- one", "- two"));
        assert_eq!(filled(&second, &with("- two")), second);
        assert_eq!(filled(RULES, &BTreeMap::new()), RULES);
    }
}
