//! The text report of one check: a headline, and at most twelve lines below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use rankcheck_model::machine::{Kind, Logged, bytes};
use rankcheck_model::{Data, OpRef, Outcome, Rank, Rule, Source};

use crate::search::explain::{Explanation, ReplayError, explain};
use crate::search::verdict::{Checked, Options, Run, Verdict, at, predicted};
use crate::spec::{Assumption, CheckKind, Spec};

/// Lines of lanes, and operations in one, beyond which a lane is cut in the middle.
const LANE_WIDTH: usize = 96;

/// The last component of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The report of a check, without a trailing newline.
///
/// # Errors
/// If the program cannot be evaluated again.
pub fn text(spec: &Spec, checked: &Checked, options: &Options) -> Result<String, ReplayError> {
    let run = checked.run();
    let mut out = String::new();
    let title = format!("{} \"{}\"", file_name(&spec.path), checked.check.name);
    if checked.check.kind == CheckKind::SameOperations {
        let word = if checked.unexpected.is_none() { "SAME  " } else { "DIFFER" };
        let _ = write!(out, "{word} {title}");
    } else {
        match &run.verdict {
            Verdict::Holds => holds(&mut out, checked, &title),
            Verdict::Unknown(bound) => {
                let _ = write!(out, "UNKNOWN  {title}   {}\n  reason    {bound}", at(run));
            }
            Verdict::Fails { primary, .. } => fails(&mut out, checked, &title, *primary, options)?,
        }
    }
    if let Some(why) = &checked.unexpected {
        let _ = write!(out, "\n  NOT AS EXPECTED  {why}\n            {}", place_line(spec, checked));
    }
    Ok(out)
}

fn place_line(spec: &Spec, checked: &Checked) -> String {
    format!("stated at {}:{}", spec.path, checked.check.place.line)
}

/// Rank counts and parameters of all runs, in words.
fn span(checked: &Checked) -> String {
    let counts: Vec<String> = checked.check.ranks.iter().map(u32::to_string).collect();
    let mut text = format!("{} {}", counts.join(", "), if counts == ["1"] { "rank" } else { "ranks" });
    for (name, values) in &checked.check.params {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        if values.len() > 1 {
            let _ = write!(text, ", {name} = {}", values.join(" | "));
        }
    }
    text
}

fn holds(out: &mut String, checked: &Checked, title: &str) {
    let _ = write!(out, "HOLDS {title}   {}", span(checked));
    for (assumption, verdict) in &checked.without {
        let what = match assumption {
            Assumption::Named(text) => text.clone(),
            Assumption::Coresident(kernels) => format!("{kernels} kernels are co-resident"),
        };
        let then = match verdict {
            Verdict::Holds => "dropping it: still holds".to_owned(),
            Verdict::Fails { primary, .. } => format!("dropping it: FAILS {primary}"),
            Verdict::Unknown(bound) => format!("dropping it: UNKNOWN, {bound}"),
        };
        let _ = write!(out, "\n  rests on  {what} ({then})");
    }
    let run = checked.runs.last().unwrap_or_else(|| checked.run());
    let _ = write!(out, "\n  explored  {}", effort(run));
    let costs = &run.exploration.costs;
    let mut parts = Vec::new();
    if costs.communicators > 0 {
        parts.push(format!("communicators {}", costs.communicators));
    }
    if costs.registrations_warm_up + costs.registrations > 0 {
        let when = if costs.steady {
            format!("registrations {} in warm-up, {} after", costs.registrations_warm_up, costs.registrations)
        } else {
            format!("registrations {}", costs.registrations_warm_up)
        };
        parts.push(when);
    }
    if costs.reserved_bytes_max > 0 {
        parts.push(format!("reserved {}", bytes(costs.reserved_bytes_max)));
    }
    parts.extend(run.exploration.measured.iter().map(|(name, value)| format!("{name} {value}")));
    if !parts.is_empty() {
        let _ = write!(out, "\n  costs     {}", parts.join("; "));
    }
}

fn effort(run: &Run) -> String {
    let e = &run.exploration;
    let plural = |n: u64, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
    let mut text = format!("{}, {}", plural(e.states, "state"), plural(e.executions, "execution"));
    if !e.contended.is_empty() {
        let names: Vec<&str> = e.contended.iter().map(String::as_str).collect();
        let _ = write!(text, "; contended: {}", names.join(", "));
    }
    text
}

fn fails(
    out: &mut String,
    checked: &Checked,
    title: &str,
    primary: Rule,
    options: &Options,
) -> Result<(), ReplayError> {
    let run = checked.run();
    let source: Arc<dyn Source> = run.source.clone();
    let witness = &run.exploration.broken[&primary];
    let Some(explained) = explain(&source, &run.exploration, primary, witness, options)? else {
        let _ = write!(out, "FAILS {primary}  {title}   {}", at(run));
        return Ok(());
    };
    let class = if run.verdict.latent() {
        "latent".to_owned()
    } else {
        run.verdict.class().map_or_else(String::new, |class| class.name().to_owned())
    };
    let shown: usize = explained.lanes.iter().map(|(_, ops)| ops.len()).sum();
    let _ = write!(
        out,
        "FAILS {primary}  {title}   {}, {shown} of {} operations, {class}\n{}",
        at(run),
        explained.operations,
        sentence(&explained)
    );
    for (rank, ops) in &explained.lanes {
        let _ = write!(out, "\n  rank {:<4} {}", rank.0, lane(&explained, ops));
    }
    data(out, &explained);
    because(out, &explained);
    let _ = write!(out, "\n  rule      {primary}: {}", primary.title());
    let also: Vec<&str> =
        run.exploration.broken.keys().filter(|rule| **rule != primary).map(|rule| rule.id()).collect();
    if !also.is_empty() {
        let _ = write!(out, "\n  also      {}", also.join(", "));
    }
    if let Some(passes) = passes(checked) {
        let _ = write!(out, "\n  passes    {passes}");
    }
    prediction(out, checked, &explained);
    Ok(())
}

/// The finding's sentence; it ends in operations without which the verdict is another, where it does not name them.
fn sentence(explained: &Explanation) -> String {
    let mut text = explained.finding.sentence.clone();
    for op in &explained.named {
        let at = explained.replay.machine.place(op).to_string();
        let rank = format!("rank {}", op.rank.0);
        if !text.contains(&at) || !text.contains(&rank) {
            let _ = write!(text, "; it also takes {} on {rank} ({at})", words(explained, op));
        }
    }
    text.push('.');
    text
}

fn words(explained: &Explanation, op: &OpRef) -> String {
    let is = |o: &OpRef| (o.rank, o.thread, o.index) == (op.rank, op.thread, op.index);
    explained.replay.log.iter().find(|l| is(&l.op)).map_or_else(String::new, |l| l.text.clone())
}

fn lane(explained: &Explanation, ops: &[Logged]) -> String {
    let is = |a: &OpRef, b: &OpRef| (a.rank, a.thread, a.index) == (b.rank, b.thread, b.index);
    let marked = |op: &OpRef| explained.named.iter().any(|n| is(n, op));
    let mut cells: Vec<String> = Vec::new();
    let mut repeated = 0;
    for logged in ops {
        let cell = if marked(&logged.op) { format!("[{}]", logged.text) } else { logged.text.clone() };
        if cells.last() == Some(&cell) {
            repeated += 1;
            continue;
        }
        if repeated > 0
            && let Some(last) = cells.last_mut()
        {
            let _ = write!(last, " ×{}", repeated + 1);
        }
        repeated = 0;
        cells.push(cell);
    }
    let width = |cells: &[String]| cells.iter().map(|c| c.chars().count() + 2).sum::<usize>();
    let mut cut = false;
    while width(&cells) > LANE_WIDTH && cells.len() > 2 {
        // What is not named goes first, the oldest before the others.
        let at = cells.iter().position(|cell| !cell.starts_with('[')).unwrap_or(0);
        cells.remove(at);
        cut = true;
    }
    let text = cells.join("  ");
    if cut { format!("… {text}") } else { text }
}

fn data(out: &mut String, explained: &Explanation) {
    let outcome = &explained.replay.outcome;
    match &outcome.data {
        Data::Known(rows) if outcome.corrupt => {
            let shown = rows.iter().take(4);
            for (nth, (rank, name, content)) in shown.enumerate() {
                let label = if nth == 0 { "data" } else { "" };
                let _ = write!(out, "\n  {label:<9} r{}.{name} = {content}", rank.0);
            }
        }
        Data::Undefined => {
            let _ = write!(out, "\n  data      nobody specifies what the buffers hold from here on");
        }
        Data::Known(_) => {}
    }
}

/// The rank-local decision: a pick in which the ranks differ, else another pick, else an order, else the first
/// operation in which they part.
fn because(out: &mut String, explained: &Explanation) {
    let machine = &explained.replay.machine;
    let place = |op: &OpRef| machine.place(op).to_string();
    let picked: Vec<_> = explained.replay.steps.iter().filter(|step| step.picked).collect();
    let mut by_place: BTreeMap<(String, u32), Vec<(Rank, String)>> = BTreeMap::new();
    for (nth, step) in picked.iter().enumerate() {
        let earlier = picked[..nth].iter().filter(|s| s.rank == step.rank && place(&s.op) == place(&step.op));
        let occurrence = u32::try_from(earlier.count()).unwrap_or(0);
        by_place.entry((place(&step.op), occurrence)).or_default().push((step.rank, step.text.clone()));
    }
    let apart = by_place.iter().find(|(_, steps)| steps.iter().any(|(_, text)| *text != steps[0].1));
    if let Some(((at, _), steps)) = apart {
        let first = &steps[0];
        let other = steps.iter().find(|(_, text)| *text != first.1).unwrap_or(first);
        let _ = write!(
            out,
            "\n  because   on rank {} {}, on rank {} {} ({at})",
            first.0.0, first.1, other.0.0, other.1
        );
        return;
    }
    let unlucky = picked.iter().rev().find(|step| !step.text.ends_with("succeeds"));
    if let Some(step) = unlucky {
        let _ = write!(out, "\n  because   on rank {}: {} ({})", step.rank.0, step.text, place(&step.op));
        return;
    }
    let turns: Vec<_> = explained.replay.steps.iter().filter(|step| !step.picked).collect();
    if let Some(step) = turns.first() {
        let _ = write!(out, "\n  because   on rank {}: {} ({})", step.rank.0, step.text, place(&step.op));
        return;
    }
    if let Some((a, b)) = parting(explained) {
        let _ = write!(
            out,
            "\n  because   rank {} does {} ({}) where rank {} does {} ({})",
            a.rank.0,
            words(explained, &a),
            place(&a),
            b.rank.0,
            words(explained, &b),
            place(&b)
        );
    }
}

/// The first operations in which two ranks of the finding part, among those that ranks do alike. What they do in
/// roles is no decision: one sends and another receives, one sets a key and another gets it.
fn parting(explained: &Explanation) -> Option<(OpRef, OpRef)> {
    let alike = |rank: Rank| {
        let of = move |l: &&Logged| l.op.rank == rank && l.op.thread.0 == 0 && l.kind == Kind::Alike;
        explained.replay.log.iter().filter(of)
    };
    let ranks: Vec<Rank> = explained.lanes.iter().map(|(rank, _)| *rank).collect();
    let (a, b) = (*ranks.first()?, *ranks.get(1)?);
    let parts = |(x, y): &(&Logged, &Logged)| x.text != y.text || x.op.place != y.op.place;
    alike(a).zip(alike(b)).find(parts).map(|(x, y)| (x.op, y.op))
}

fn passes(checked: &Checked) -> Option<String> {
    let holding = checked.runs.iter().find(|run| run.verdict == Verdict::Holds)?;
    Some(format!("{} (checked)", at(holding)))
}

/// What each platform will do: the outcome of the run that is shown, and the classes of the others.
fn prediction(out: &mut String, checked: &Checked, explained: &Explanation) {
    let run = checked.run();
    let mut shown = vec![run];
    shown.extend(
        checked.elsewhere.iter().filter(|other| (other.ranks, &other.params) == (run.ranks, &run.params)),
    );
    for (nth, run) in shown.iter().enumerate() {
        let label = if nth == 0 { "predicts" } else { "" };
        let unverified = if run.platform.observed() { "" } else { " (unverified)" };
        // Outcomes of interchangeable ranks are known up to their numbers; the run that is shown has them.
        let told = match nth {
            0 if run.predicted.is_none() => Some(&explained.replay.outcome),
            _ => predicted(run).first().copied(),
        };
        let mut text = told.map_or_else(String::new, ends);
        let others: BTreeSet<&str> = predicted(run).iter().map(|outcome| outcome.class.name()).collect();
        let others: Vec<&str> =
            others.into_iter().filter(|class| told.is_none_or(|told| told.class.name() != *class)).collect();
        if !others.is_empty() {
            let _ = write!(text, "; other runs: {}", others.join(", "));
        }
        let _ = write!(out, "\n  {label:<9} NCCL {}{unverified}: {text}", run.platform);
    }
}

/// How the ranks of an outcome end, in words.
pub(crate) fn ends(outcome: &Outcome) -> String {
    use rankcheck_model::RankOutcome as End;
    if outcome.data == Data::Undefined {
        return "undefined".to_owned();
    }
    let mut parts = Vec::new();
    for (rank, end) in outcome.ranks.iter().enumerate() {
        match end {
            End::Finishes => {}
            End::HostHang(call) => parts.push(format!("rank {rank} host hang in {call}")),
            End::GpuHang(op) => parts.push(format!("rank {rank} GPU hang in {op}")),
            End::Dead(code) => parts.push(format!("rank {rank} dies: {code}")),
        }
    }
    for (rank, errors) in outcome.errors.iter().enumerate() {
        if let Some(error) = errors.first() {
            parts.push(format!("rank {rank} {} returns {}", error.call, error.code));
        }
    }
    if outcome.corrupt {
        parts.push("silent corruption".to_owned());
    }
    if parts.len() > 4 {
        let more = parts.len() - 3;
        parts.truncate(3);
        parts.push(format!("… {more} more"));
    }
    if parts.is_empty() { outcome.class.name().to_owned() } else { parts.join(", ") }
}

/// The closing line over all checks.
#[must_use]
pub fn summary(as_expected: usize, unexpected: usize, unknown: usize) -> String {
    let mut text = format!("{as_expected} as expected, {unexpected} not as expected");
    if unknown > 0 {
        let _ = write!(text, ", {unknown} unknown");
    }
    text
}
