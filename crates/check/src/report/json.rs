//! The JSON report: one object, documented in `docs/json-report.md`.

use std::collections::BTreeMap;

use miette::Diagnostic as _;
use rankcheck_model::{Data, RankOutcome};
use serde::Serialize;

use crate::runs;
use crate::search::{Assumed, Explained, Explored, PredictedEnd, Verdict};
use crate::spec::{Assumption, Param, SpecError};

/// Raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole report of `--format json`; `docs/json-report.md` describes its fields.
#[derive(Debug, Serialize)]
pub struct JsonReport {
    /// The [`SCHEMA_VERSION`] of the command that wrote the report.
    pub schema_version: u32,
    /// Version of the command.
    pub rankcheck: &'static str,
    /// One entry for each exploration.
    pub checks: Vec<CheckEntry>,
    /// One entry for each recorded run.
    pub recordings: Vec<runs::report::RunEntry>,
    /// One entry for each file that could not be read, and each program that could not be evaluated.
    pub errors: Vec<ErrorEntry>,
}

/// Something that is wrong with a spec.
#[derive(Debug, Serialize)]
pub struct ErrorEntry {
    message: String,
    help: Option<String>,
    /// File and line, if it is known.
    at: Option<String>,
}

/// One exploration of a check.
#[derive(Debug, Serialize)]
pub struct CheckEntry {
    file: String,
    name: String,
    ranks: u32,
    params: BTreeMap<String, ParamValue>,
    platform: String,
    verdict: &'static str,
    reason: Option<String>,
    rules: Vec<&'static str>,
    primary: Option<&'static str>,
    class: Option<&'static str>,
    outcomes: Vec<OutcomeEntry>,
    /// The bound that cut the search for outcomes, where the verdict was known before.
    outcomes_bound: Option<String>,
    /// The classes of runs that break a rule with other values or another schedule.
    other_runs: Vec<&'static str>,
    /// What devices were seen to do, where nobody specifies what follows.
    seen: Vec<String>,
    assumptions: Vec<AssumptionEntry>,
    costs: BTreeMap<String, i64>,
    contended: Vec<String>,
    expected: bool,
    unexpected: Option<String>,
    steps: u64,
    states: u64,
    executions: u64,
    milliseconds: u64,
}

/// A parameter's value, which becomes the JSON value of the same kind.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ParamValue {
    None,
    Bool(bool),
    Int(i64),
    Str(String),
    List(Vec<ParamValue>),
}

#[derive(Debug, Serialize)]
struct AssumptionEntry {
    assumption: String,
    without: &'static str,
    rules_without: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct OutcomeEntry {
    class: &'static str,
    basis: &'static str,
    decided_by: Vec<String>,
    ranks: Vec<String>,
    errors: Vec<Vec<String>>,
    data: Option<Vec<String>>,
}

fn value(param: &Param) -> ParamValue {
    match param {
        Param::None => ParamValue::None,
        Param::Bool(truth) => ParamValue::Bool(*truth),
        Param::Int(number) => ParamValue::Int(*number),
        Param::Str(text) => ParamValue::Str(text.clone()),
        Param::List(items) => ParamValue::List(items.iter().map(value).collect()),
    }
}

fn rules(verdict: &Verdict) -> Vec<&'static str> {
    match verdict {
        Verdict::Fails { rules, .. } => rules.iter().map(|rule| rule.id()).collect(),
        Verdict::Holds | Verdict::Unknown(_) => Vec::new(),
    }
}

fn entry(explained: &Explained, run: &Explored) -> CheckEntry {
    let names = [
        "communicators",
        "registrations",
        "registrations_warm_up",
        "barriers",
        "store_calls",
        "collectives",
        "reserved_bytes",
    ];
    let mut costs: BTreeMap<String, i64> =
        names.iter().filter_map(|name| Some(((*name).to_owned(), run.cost(name)?))).collect();
    costs.extend(run.measured.clone());
    let outcomes = run.ends.iter().map(|PredictedEnd { outcome, decided_by, basis }| OutcomeEntry {
        class: outcome.class.name(),
        basis: basis.name(),
        decided_by: decided_by.iter().cloned().collect(),
        ranks: outcome
            .ranks
            .iter()
            .map(|end| match end {
                RankOutcome::Finishes => "finishes".to_owned(),
                RankOutcome::HostHang(call) => format!("host hang: {call}"),
                RankOutcome::GpuHang(op) => format!("gpu hang: {op}"),
                RankOutcome::Dead(code) => format!("dead: {code}"),
                RankOutcome::Undefined => "undefined".to_owned(),
            })
            .collect(),
        errors: outcome
            .errors
            .iter()
            .map(|errors| errors.iter().map(|error| format!("{} = {}", error.call, error.code)).collect())
            .collect(),
        data: match &outcome.data {
            Data::Known(rows) => {
                Some(rows.iter().map(|(rank, name, text)| format!("r{}.{name} = {text}", rank.0)).collect())
            }
            Data::Undefined => None,
        },
    });
    let assumptions = explained.assumed.iter().map(|Assumed { assumption, without }| AssumptionEntry {
        assumption: match assumption {
            Assumption::Named(text) => text.clone(),
            Assumption::Coresident(kernels) => format!("coresident({kernels})"),
        },
        without: without.word(),
        rules_without: rules(without),
    });
    CheckEntry {
        file: explained.file.clone(),
        name: explained.name.clone(),
        ranks: run.ranks,
        params: run.params.iter().map(|(name, param)| (name.clone(), value(param))).collect(),
        platform: run.platform.name().to_owned(),
        verdict: run.verdict.word(),
        reason: match &run.verdict {
            Verdict::Unknown(bound) => Some(bound.to_string()),
            Verdict::Holds | Verdict::Fails { .. } => None,
        },
        rules: rules(&run.verdict),
        primary: run.verdict.primary().map(|rule| rule.id()),
        class: if run.verdict.latent() { Some("latent") } else { run.verdict.class().map(|c| c.name()) },
        outcomes: outcomes.collect(),
        other_runs: run.other_runs.iter().map(|class| class.name()).collect(),
        seen: run.seen.clone(),
        outcomes_bound: run.ends_bound.as_ref().map(ToString::to_string),
        assumptions: assumptions.collect(),
        costs,
        contended: run.contended.iter().cloned().collect(),
        expected: explained.unexpected.is_none() && !matches!(run.verdict, Verdict::Unknown(_)),
        unexpected: explained.unexpected.clone(),
        steps: run.steps,
        states: run.states,
        executions: run.executions,
        milliseconds: u64::try_from(run.milliseconds).unwrap_or(u64::MAX),
    }
}

/// The JSON of all checks and recorded runs.
#[must_use]
pub fn json<'a>(
    checks: impl IntoIterator<Item = &'a Explained>,
    recordings: impl IntoIterator<Item = &'a runs::judge::Judged>,
    bad: &[SpecError],
) -> JsonReport {
    let of = |explained: &'a Explained| {
        explained.runs.iter().chain(&explained.elsewhere).map(move |run| entry(explained, run))
    };
    let checks = checks.into_iter().flat_map(of).collect();
    let recordings = recordings.into_iter().map(runs::report::entry).collect();
    let errors = bad.iter().map(|error| ErrorEntry {
        message: error.to_string(),
        help: error.help().map(|help| help.to_string()),
        at: error.loc().map(ToString::to_string),
    });
    let errors = errors.collect();
    JsonReport {
        schema_version: SCHEMA_VERSION,
        rankcheck: env!("CARGO_PKG_VERSION"),
        checks,
        recordings,
        errors,
    }
}
