//! The JSON report: one object, documented in `docs/json-report.md`.

use std::collections::BTreeMap;

use rankcheck_model::{Data, RankOutcome};
use serde::Serialize;

use crate::runs;
use crate::spec::{Assumption, Param, Spec};
use crate::verify::{Checked, Run, Verdict, cost, predicted};

/// Raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the command.
    pub rankcheck: &'static str,
    /// One entry for each exploration.
    pub checks: Vec<Entry>,
    /// One entry for each recorded run.
    pub recordings: Vec<runs::report::RunEntry>,
}

/// One exploration of a check.
#[derive(Debug, Serialize)]
pub struct Entry {
    file: String,
    name: String,
    ranks: u32,
    params: BTreeMap<String, Value>,
    platform: String,
    verdict: &'static str,
    reason: Option<String>,
    rules: Vec<&'static str>,
    primary: Option<&'static str>,
    class: Option<&'static str>,
    outcomes: Vec<Predicted>,
    assumptions: Vec<Assumed>,
    costs: BTreeMap<String, i64>,
    contended: Vec<String>,
    expected: bool,
    unexpected: Option<String>,
    steps: u64,
    states: u64,
    executions: u64,
    milliseconds: u64,
}

/// A parameter's value.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Str(String),
    List(Vec<Value>),
}

#[derive(Debug, Serialize)]
struct Assumed {
    assumption: String,
    without: &'static str,
    rules_without: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Predicted {
    class: &'static str,
    ranks: Vec<String>,
    errors: Vec<Vec<String>>,
    data: Option<Vec<String>>,
}

fn value(param: &Param) -> Value {
    match param {
        Param::None => Value::None,
        Param::Bool(truth) => Value::Bool(*truth),
        Param::Int(number) => Value::Int(*number),
        Param::Str(text) => Value::Str(text.clone()),
        Param::List(items) => Value::List(items.iter().map(value).collect()),
    }
}

fn rules(verdict: &Verdict) -> Vec<&'static str> {
    match verdict {
        Verdict::Fails { rules, .. } => rules.iter().map(|rule| rule.id()).collect(),
        Verdict::Holds | Verdict::Unknown(_) => Vec::new(),
    }
}

fn entry(spec: &Spec, checked: &Checked, run: &Run) -> Entry {
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
        names.iter().filter_map(|name| Some(((*name).to_owned(), cost(run, name)?))).collect();
    costs.extend(run.exploration.measured.clone());
    let outcomes = predicted(run).into_iter().map(|outcome| Predicted {
        class: outcome.class.name(),
        ranks: outcome
            .ranks
            .iter()
            .map(|end| match end {
                RankOutcome::Finishes => "finishes".to_owned(),
                RankOutcome::HostHang(call) => format!("host hang: {call}"),
                RankOutcome::GpuHang(op) => format!("gpu hang: {op}"),
                RankOutcome::Dead(code) => format!("dead: {code}"),
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
    let assumptions = checked.check.assume.iter().map(|assumption| {
        let text = match assumption {
            Assumption::Named(text) => text.clone(),
            Assumption::Coresident(kernels) => format!("coresident({kernels})"),
        };
        let verdict = checked.without.iter().find(|(a, _)| a == assumption).map(|(_, verdict)| verdict);
        Assumed {
            assumption: text,
            without: verdict.map_or("unknown", Verdict::word),
            rules_without: verdict.map(rules).unwrap_or_default(),
        }
    });
    Entry {
        file: spec.path.clone(),
        name: checked.check.name.clone(),
        ranks: run.ranks,
        params: run.params.iter().map(|(name, param)| (name.clone(), value(param))).collect(),
        platform: run.platform.name().to_owned(),
        verdict: run.verdict.word(),
        reason: match &run.verdict {
            Verdict::Unknown(bound) => Some(bound.to_string()),
            Verdict::Holds | Verdict::Fails { .. } => None,
        },
        rules: rules(&run.verdict),
        primary: match &run.verdict {
            Verdict::Fails { primary, .. } => Some(primary.id()),
            Verdict::Holds | Verdict::Unknown(_) => None,
        },
        class: if run.verdict.latent() { Some("latent") } else { run.verdict.class().map(|c| c.name()) },
        outcomes: outcomes.collect(),
        assumptions: assumptions.collect(),
        costs,
        contended: run.exploration.contended.iter().cloned().collect(),
        expected: checked.unexpected.is_none() && !matches!(run.verdict, Verdict::Unknown(_)),
        unexpected: checked.unexpected.clone(),
        steps: run.exploration.steps,
        states: run.exploration.states,
        executions: run.exploration.executions,
        milliseconds: u64::try_from(run.milliseconds).unwrap_or(u64::MAX),
    }
}

/// The JSON of all checks and recorded runs.
#[must_use]
pub fn json<'a>(
    checked: impl IntoIterator<Item = (&'a Spec, &'a Checked)>,
    recordings: impl IntoIterator<Item = &'a runs::judge::Judged>,
) -> Report {
    let checks = checked
        .into_iter()
        .flat_map(|(spec, checked)| {
            checked.runs.iter().chain(&checked.elsewhere).map(move |run| entry(spec, checked, run))
        })
        .collect();
    let recordings = recordings.into_iter().map(runs::report::entry).collect();
    Report { schema_version: SCHEMA_VERSION, rankcheck: env!("CARGO_PKG_VERSION"), checks, recordings }
}
