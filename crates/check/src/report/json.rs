//! The JSON report: one object, documented in `docs/json-report.md`.

mod counterexample;

use std::collections::BTreeMap;

use miette::Diagnostic as _;
use rankcheck_model::{Data, Loc, RankOutcome};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::together::TogetherEntry;
use crate::{launches, runs};
use counterexample::CounterexampleEntry;

use crate::search::{
    Assumed, Coverage, DecisionPlace, Explained, Explored, IdleSide, PredictedEnd, RunDecisions, Verdict,
    taken_for_one_below,
};
use crate::spec::{Param, SpecError};

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
    pub checks: Vec<JsonEntry<CheckEntry>>,
    /// One entry for each recorded run.
    pub recordings: Vec<JsonEntry<runs::report::RunEntry>>,
    /// One entry for each job of which there are dumps.
    pub jobs: Vec<JsonEntry<launches::report::JobEntry>>,
    /// One entry for each recording and dumps that were given together.
    pub together: Vec<JsonEntry<TogetherEntry>>,
    /// One entry for each file that could not be read, and each program that could not be evaluated.
    pub errors: Vec<ErrorEntry>,
    /// The checks that were not begun before somebody interrupted the command; it is there only if that happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Vec<NotChecked>>,
    /// Which part of all cases the report is of; it is there only if that is not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardOfReport>,
    /// The shards whose reports were not there when reports were merged; it is there only if some were not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_shards: Vec<MissingShard>,
}

/// An entry of the report.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum JsonEntry<T> {
    /// It was made here.
    Made(T),
    /// It was read from the file of a shard, and is printed as it was.
    Kept(Box<RawValue>),
}

/// A shard, which is one of several.
#[derive(Debug, Serialize)]
pub struct ShardOfReport {
    /// Its number, from 1 on.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// How many cases all of them have together.
    pub cases: usize,
}

/// A shard whose report was not there.
#[derive(Debug, Clone, Serialize)]
pub struct MissingShard {
    /// Its number, from 1 on.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// How many cases it has, of which nothing is known.
    pub cases: usize,
}

/// A check that was wanted and not begun.
#[derive(Debug, Clone, Serialize)]
pub struct NotChecked {
    /// The file that it stands in.
    pub file: String,
    /// The name that it has there.
    pub name: String,
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
    /// The rules that are broken and waived, each with the reason that the check gives.
    waived: BTreeMap<&'static str, String>,
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
    /// Where the check stands.
    place: String,
    /// Whether the check states what it expects.
    stated: bool,
    warnings: Vec<String>,
    coverage: CoverageEntry,
    counterexample: Option<CounterexampleEntry>,
    /// What one run decides, where the search is large.
    #[serde(skip_serializing_if = "Option::is_none")]
    decisions: Option<DecisionsEntry>,
    steps: u64,
    states: u64,
    /// Below which power of ten the chance is that two of them were taken for one.
    taken_for_one: f64,
    executions: u64,
    milliseconds: u64,
}

/// What was executed of that which a verdict is about.
#[derive(Debug, Serialize)]
struct CoverageEntry {
    communicators: u32,
    windows: u32,
    collectives: u32,
    transfers: u32,
    mappings: u32,
    other_calls: u32,
    idle_ranks: Vec<u32>,
    idle_sides: Vec<IdleSideEntry>,
}

#[derive(Debug, Serialize)]
struct IdleSideEntry {
    answer: String,
    place: String,
}

impl CoverageEntry {
    fn of(coverage: &Coverage) -> Self {
        let side = |side: &IdleSide| IdleSideEntry { answer: side.answer.clone(), place: place(&side.loc) };
        Self {
            communicators: coverage.communicators,
            windows: coverage.windows,
            collectives: coverage.executed.collectives,
            transfers: coverage.executed.transfers,
            mappings: coverage.executed.mappings,
            other_calls: coverage.executed.others,
            idle_ranks: coverage.idle_ranks.iter().map(|rank| rank.0).collect(),
            idle_sides: coverage.idle_sides.iter().map(side).collect(),
        }
    }
}

/// File and line, with the path of the file as it was found.
fn place(loc: &Loc) -> String {
    format!("{}:{}", loc.file, loc.line)
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

fn outcome_entry(PredictedEnd { outcome, decided_by, basis }: &PredictedEnd) -> OutcomeEntry {
    OutcomeEntry {
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
    }
}

/// What a run costs, by the names that specs use.
pub(crate) fn costs(run: &Explored) -> BTreeMap<String, i64> {
    let names = [
        "communicators",
        "registrations",
        "registrations_warm_up",
        "barriers",
        "store_calls",
        "collectives",
        "reserved_bytes",
        "communicators_left",
        "registrations_left",
        "mappings_left",
        "reserved_bytes_left",
    ];
    let mut costs: BTreeMap<String, i64> =
        names.iter().filter_map(|name| Some(((*name).to_owned(), run.cost(name)?))).collect();
    costs.extend(run.measured.clone());
    costs
}

/// 1 in 10^`n`, as the number that is written so.
fn power_of_ten(n: u32) -> f64 {
    format!("1e-{n}").parse().expect("a number")
}

fn entry(explained: &Explained, run: &Explored) -> CheckEntry {
    let assumptions = explained.assumed.iter().map(|Assumed { assumption, without }| AssumptionEntry {
        assumption: assumption.text(),
        without: without.word(),
        rules_without: rules(without),
    });
    let found = explained.states_nothing && matches!(run.verdict, Verdict::Fails { .. });
    let warnings = explained.warnings().filter(|(other, _)| std::ptr::eq(*other, run));
    let shown = explained.counterexample.as_ref().filter(|_| std::ptr::eq(explained.run(), run));
    CheckEntry {
        file: explained.file.clone(),
        name: explained.name.clone(),
        ranks: run.ranks,
        params: run.params.iter().map(|(name, param)| (name.clone(), value(param))).collect(),
        platform: run.platform.name().to_owned(),
        verdict: run.verdict.word(),
        reason: run.bound.as_ref().map(ToString::to_string),
        rules: rules(&run.verdict),
        primary: run.verdict.primary().map(|rule| rule.id()),
        class: if run.is_latent() { Some("latent") } else { run.verdict.class().map(|c| c.name()) },
        outcomes: run.ends.iter().map(outcome_entry).collect(),
        other_runs: run.other_runs.iter().map(|class| class.name()).collect(),
        seen: run.seen.clone(),
        waived: run.waived.iter().map(|(rule, reason)| (rule.id(), reason.clone())).collect(),
        outcomes_bound: run.ends_bound.as_ref().map(ToString::to_string),
        assumptions: assumptions.collect(),
        costs: costs(run),
        contended: run.contended.iter().cloned().collect(),
        expected: explained.unexpected.is_none() && !found && run.bound.is_none(),
        unexpected: explained.unexpected.clone(),
        place: format!("{}:{}", explained.file, explained.line),
        stated: !explained.states_nothing,
        warnings: warnings.map(|(_, warning)| super::text::warning(warning)).collect(),
        coverage: CoverageEntry::of(&run.coverage),
        counterexample: shown.map(|shown| CounterexampleEntry::of(shown, run.ranks)),
        decisions: run.decisions.as_ref().map(decisions_entry),
        steps: run.steps,
        states: run.states,
        taken_for_one: power_of_ten(taken_for_one_below(run.states)),
        executions: run.executions,
        milliseconds: u64::try_from(run.milliseconds).unwrap_or(u64::MAX),
    }
}

/// What one run of a large search decides.
#[derive(Debug, Serialize)]
struct DecisionsEntry {
    places: Vec<DecisionPlaceEntry>,
    /// The power of two that the number of histories does not exceed.
    histories_log2: u32,
    told_apart: bool,
    told_apart_at: Option<String>,
}

/// What it decides at one place.
#[derive(Debug, Serialize)]
struct DecisionPlaceEntry {
    what: String,
    at: String,
    times: u64,
    ranks: usize,
    alternatives: usize,
}

fn decisions_entry(decisions: &RunDecisions) -> DecisionsEntry {
    let RunDecisions { places, histories_log2, told_apart_at, told_apart } = decisions;
    let place = |place: &DecisionPlace| {
        let DecisionPlace { what, at, times, ranks, alternatives } = place;
        let (what, at) = (what.clone(), at.to_string());
        DecisionPlaceEntry { what, at, times: *times, ranks: *ranks, alternatives: *alternatives }
    };
    DecisionsEntry {
        places: places.iter().map(place).collect(),
        histories_log2: *histories_log2,
        told_apart: *told_apart,
        told_apart_at: told_apart_at.as_ref().map(ToString::to_string),
    }
}

/// The entries of a check, one for each exploration.
pub(crate) fn check_entries(explained: &Explained) -> impl Iterator<Item = CheckEntry> {
    explained.runs.iter().chain(&explained.elsewhere).map(move |run| entry(explained, run))
}

/// The JSON of all checks and recorded runs; nothing is said of recordings and dumps together.
#[must_use]
pub fn json<'a>(
    checks: impl IntoIterator<Item = &'a Explained>,
    recordings: impl IntoIterator<Item = &'a runs::judge::Judged>,
    jobs: impl IntoIterator<Item = &'a launches::judge::JudgedJob>,
    bad: impl IntoIterator<Item = &'a SpecError>,
) -> JsonReport {
    let error = |error: &SpecError| ErrorEntry {
        message: error.to_string(),
        help: error.help().map(|help| help.to_string()),
        at: error.loc().map(ToString::to_string),
    };
    JsonReport {
        schema_version: SCHEMA_VERSION,
        rankcheck: env!("CARGO_PKG_VERSION"),
        checks: checks.into_iter().flat_map(check_entries).map(JsonEntry::Made).collect(),
        recordings: recordings.into_iter().map(runs::report::entry).map(JsonEntry::Made).collect(),
        jobs: jobs.into_iter().map(launches::report::entry).map(JsonEntry::Made).collect(),
        together: Vec::new(),
        errors: bad.into_iter().map(error).collect(),
        interrupted: None,
        shard: None,
        missing_shards: Vec::new(),
    }
}
