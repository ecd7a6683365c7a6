//! A recorded run compared with the checks of a spec: `rankcheck conform`.
//!
//! Not here: how a run is followed through one program ([`mod@super::follow`]), arguments and exit codes.

use std::path::Path;

use super::follow::{Leaving, follow};
use super::judge::{Recording, read};
use crate::spec::{self, Spec};

/// What a recorded run is, compared with one check of a spec.
pub struct Conformance {
    /// The name of the check that the run is compared with.
    pub check: String,
    /// Where the run leaves it; nothing if it does not. None if the check is not for as many ranks.
    pub leaves: Option<Option<Leaving>>,
}

impl Conformance {
    /// One line for people.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.leaves {
            None => format!("SKIPPED   \"{}\": it is for another number of ranks", self.check),
            Some(None) => format!("CONFORMS  \"{}\"", self.check),
            Some(Some(leaving)) => format!("LEAVES    \"{}\"\n  {leaving}.", self.check),
        }
    }
}

/// Compares a recorded run with the checks of a spec whose names contain `only`.
///
/// # Errors
/// If the spec or the recording cannot be read, or no check has such a name.
pub fn conform(path: &Path, folder: &Path, only: Option<&str>) -> Result<Vec<Conformance>, String> {
    let spec = spec::load(path).map_err(|error| error.to_string())?;
    let recording = read(folder).map_err(|error| error.to_string())?;
    let wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    let checks = spec.checks.iter().filter(|check| wanted(&check.name));
    let all: Result<Vec<Conformance>, String> =
        checks.map(|check| compared(&spec, check, &recording)).collect();
    let all = all?;
    if all.is_empty() {
        let names: Vec<String> = spec.checks.iter().map(|check| format!("\"{}\"", check.name)).collect();
        return Err(format!("no check has a name like that (--check); known: {}", names.join(", ")));
    }
    Ok(all)
}

/// A run that fits the program for some parameters conforms; otherwise the result says where it leaves the program
/// in which it came furthest.
fn compared(spec: &Spec, check: &spec::Check, recording: &Recording) -> Result<Conformance, String> {
    let ranks = recording.world.ranks;
    let name = check.name.clone();
    if !check.ranks.contains(&ranks) {
        return Ok(Conformance { check: name, leaves: None });
    }
    let mut furthest: Option<Leaving> = None;
    for params in check.combinations() {
        let source = check.source(ranks, &params, &check.assume).map_err(|error| error.to_string())?;
        match follow(recording, &source).map_err(|error| format!("{}: {error}", spec.path))? {
            None => return Ok(Conformance { check: name, leaves: Some(None) }),
            Some(leaving) => {
                let key = |leaving: &Leaving| (leaving.rank, leaving.nth);
                if furthest.as_ref().is_none_or(|best| key(best) < key(&leaving)) {
                    furthest = Some(leaving);
                }
            }
        }
    }
    Ok(Conformance { check: name, leaves: Some(furthest) })
}
