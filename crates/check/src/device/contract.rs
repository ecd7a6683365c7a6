//! `rankcheck contract`: what this NCCL does when each rule is broken, against what others did.
//!
//! Not here: running the checks ([`super::diff`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use rankcheck_real::case::RankReport;

use super::observation::{self, Observation, ObservationError, ends};

/// What ranks did, as far as versions can be compared by it: ends, errors, values.
fn behaviour(ranks: &[RankReport]) -> String {
    let mut text = String::new();
    for rank in ranks {
        let errors: Vec<(&str, i32)> = rank.errors.iter().map(|e| (e.call.as_str(), e.code)).collect();
        let held: Vec<_> = rank.held.iter().map(|held| (&held.name, &held.values)).collect();
        let _ = write!(text, "{:?} {errors:?} {held:?};", rank.ended);
    }
    text
}

fn behaviours(observation: &Observation) -> BTreeSet<String> {
    observation.seen.iter().map(|seen| behaviour(&seen.ranks)).collect()
}

fn seen_ends(observation: &Observation) -> String {
    let ends: BTreeSet<String> = observation.seen.iter().map(|seen| ends(&seen.ranks)).collect();
    ends.into_iter().collect::<Vec<_>>().join(" or ")
}

/// What two observations of a program differ in; the ends of both say nothing where only data differ.
fn difference(old: &Observation, new: &Observation) -> String {
    match (seen_ends(old), seen_ends(new)) {
        (there, here) if there == here => format!("{here} there and here, with other data or errors"),
        (there, here) => format!("there {there}, here {here}"),
    }
}

/// What differs between new observations and the kept ones of other machines, by the folder of the others.
///
/// # Errors
/// If kept observations cannot be read.
pub fn changes(new: &[Observation], root: &Path) -> Result<BTreeMap<String, Vec<String>>, ObservationError> {
    let mut changed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in observation::files(root)? {
        for old in observation::read(&path)? {
            let same = |new: &&Observation| {
                (&new.program, new.comms, &new.digest) == (&old.program, old.comms, &old.digest)
            };
            let Some(new) = new.iter().find(same).filter(|new| new.folder() != old.folder()) else {
                continue;
            };
            let rows = changed.entry(old.folder()).or_default();
            if behaviours(new) != behaviours(&old) {
                rows.push(format!("{}: {}", old.title(), difference(&old, new)));
            }
        }
    }
    Ok(changed)
}

/// The changes as text, without a trailing newline.
#[must_use]
pub fn text(changed: &BTreeMap<String, Vec<String>>) -> String {
    if changed.is_empty() {
        return format!("{} has no observation of another version to compare with", observation::FOLDER);
    }
    let mut out = String::new();
    for (folder, rows) in changed {
        let _ = writeln!(out, "against {folder}: {} changed", rows.len());
        for row in rows {
            let _ = writeln!(out, "  {row}");
        }
    }
    out.trim_end().to_owned()
}
