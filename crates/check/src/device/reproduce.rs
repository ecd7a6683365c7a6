//! `rankcheck replay TRACE --gpu`: whether a device does what a trace shows.
//!
//! Not here: the replay in the model ([`crate::trace`]).

use std::path::Path;
use std::time::Duration;

use rankcheck_real::case::{Case, CommHistory};

use super::Runner;
use super::digest::ProgramName;
use super::observation::ends;
use super::predict::Defined;
use super::{Agreement, PredictionQuery, compare, predict};
use crate::trace::{Loaded, TraceError};

/// What came out of the tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reproduced {
    /// The device took the answers of the trace and ended as it does.
    Confirmed {
        /// In which try, from 1.
        attempt: u32,
        /// How the run on the device ended, in words.
        ends: String,
    },
    /// It did something else in every try.
    NotReproduced {
        /// How often it was tried.
        tries: u32,
        /// What it did last.
        last: String,
    },
    /// No run can tell, for this reason.
    Impossible(String),
}

impl Reproduced {
    /// Returns one line about it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Confirmed { attempt, ends } => format!("confirmed in try {attempt}: {ends}"),
            Self::NotReproduced { tries, last } => format!("not reproduced after {tries} tries: {last}"),
            Self::Impossible(why) => format!("impossible: {why}"),
        }
    }

    /// 0 if confirmed, 1 if not, 3 if nothing can be said.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Confirmed { .. } => 0,
            Self::NotReproduced { .. } => 1,
            Self::Impossible(_) => 3,
        }
    }
}

/// How many ranks a trace needs.
///
/// # Errors
/// If the file is no trace, or its spec is bad.
pub fn ranks(path: &Path) -> Result<u32, TraceError> {
    Ok(Loaded::load(path)?.trace.ranks)
}

/// Runs a trace on a device until it is confirmed.
///
/// # Errors
/// If the file is no trace, the spec is bad, or the trace no longer fits.
pub fn reproduce(
    runner: &mut dyn Runner,
    path: &Path,
    tries: u32,
    deadline: Duration,
) -> Result<Reproduced, TraceError> {
    let loaded = Loaded::load(path)?;
    let (spec, check, ranks, params) = (&loaded.spec, loaded.check(), loaded.trace.ranks, &loaded.params);
    let (platform, comms) = (loaded.platform, CommHistory::Fresh);
    let predictions = predict(&PredictionQuery { spec, check, ranks, params, platform, comms })?;
    let run = predictions.of_choices(loaded.choices()?.into());
    if run.defined == Defined::No {
        let why = "nobody specifies what follows, so no end of a device can be told from another";
        return Ok(Reproduced::Impossible(why.to_owned()));
    }
    let name = ProgramName::new(spec, check, ranks, params);
    let case = Case {
        program: serde_json::to_value(name).expect("a name is strings and numbers"),
        ranks,
        comms,
        element: predictions.element.filled(),
        forced: run.forced.clone(),
        deadline,
    };
    let mut last = String::new();
    for attempt in 1..=tries {
        let report = match runner.run(&case) {
            Ok(report) => report,
            Err(error) => return Ok(Reproduced::Impossible(error.to_string())),
        };
        let judgement = compare(&predictions, &run.forced, &report);
        last = match judgement.agreement {
            Agreement::Agrees => {
                let ends = judgement.class.map_or_else(|| ends(&report.ranks), |class| class.to_string());
                return Ok(Reproduced::Confirmed { attempt, ends });
            }
            Agreement::AgreesOtherwise => {
                format!("another value than the forced one came: {}", ends(&report.ranks))
            }
            Agreement::Disagrees(difference) => difference.to_string(),
            Agreement::NotComparable(why) => why,
            Agreement::Undefined => ends(&report.ranks),
        };
    }
    Ok(Reproduced::NotReproduced { tries, last })
}
