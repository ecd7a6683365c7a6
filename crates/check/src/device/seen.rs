//! What devices were seen to do with the programs of a check: for where nobody specifies what follows.
//!
//! Not here: whether the model has it ([`mod@super::compare`]).

use std::collections::BTreeSet;
use std::path::Path;

use rankcheck_model::Class;
use rankcheck_real::case::CommHistory;

use super::digest::ProgramName;
use super::observation::{self, Observation, ObservationError, Validity};
use crate::search::{Explained, Explored};
use crate::spec::{Check, Spec, SpecError};

/// Adds what devices were seen to do to the runs of a check for which nobody specifies what follows: from the
/// observations beside the specs, as far as they are of the same program.
///
/// # Errors
/// If the program cannot be evaluated. Observations that cannot be read are told as such.
pub fn add_seen(explained: &mut Explained, spec: &Spec, check: &Check) -> Result<(), SpecError> {
    let undefined = |run: &Explored| run.ends.iter().any(|end| end.outcome.class == Class::Undefined);
    if !explained.runs.iter().any(undefined) {
        return Ok(());
    }
    let Some((from_above, observations)) = observed(Path::new(&spec.path)) else { return Ok(()) };
    for run in explained.runs.iter_mut().filter(|run| undefined(run)) {
        let name = ProgramName::new(spec, check, run.ranks, &run.params);
        let name = ProgramName { spec: from_above.clone(), ..name };
        let mut lines = BTreeSet::new();
        match &observations {
            Err(error) => {
                lines.insert(format!("not known: {error}"));
            }
            Ok(all) => {
                let same = |o: &&Observation| o.program == name && o.platform == run.platform;
                for observation in all.iter().filter(same) {
                    if let Validity::Judged(_) = observation::validity(observation, Some(spec))? {
                        lines.insert(line(observation));
                    }
                }
            }
        }
        run.seen = lines.into_iter().collect();
    }
    Ok(())
}

/// The observations beside a spec, with the name that they have for it. None for a spec in no folder `specs`.
pub(super) fn observed(path: &Path) -> Option<(String, Result<Vec<Observation>, ObservationError>)> {
    let root = path.ancestors().find(|folder| folder.ends_with("specs"))?;
    // Observations name specs from the folder above.
    let from_above = Path::new("specs").join(path.strip_prefix(root).unwrap_or(path)).display().to_string();
    let observations = of_spec(root, &from_above);
    Some((from_above, observations))
}

/// The observations of a spec, on all machines. Files are named after the spec, so the others need not be read.
fn of_spec(root: &Path, spec: &str) -> Result<Vec<Observation>, ObservationError> {
    let name = observation::file_name(spec);
    let files = observation::files(&root.join("observations"))?.into_iter();
    let mut all = Vec::new();
    for path in files.filter(|path| path.file_name().is_some_and(|file| file == name.as_str())) {
        all.extend(observation::read(&path)?);
    }
    Ok(all)
}

fn line(observation: &Observation) -> String {
    let ends: BTreeSet<String> = observation.seen.iter().map(|seen| observation::ends(&seen.ranks)).collect();
    let ends: Vec<String> = ends.into_iter().collect();
    let used = if observation.comms == CommHistory::Warm { ", used communicators" } else { "" };
    let ranks = observation.program.ranks;
    let machine = &observation.machine;
    format!("NCCL {}, {}, {ranks} ranks{used}: {}", machine.nccl, machine.gpu, ends.join(" or "))
}
