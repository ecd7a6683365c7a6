//! Tables below a run: how ranks end, and what devices did.
//!
//! Not here: the diagram of the run, which the script draws.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rankcheck_model::{Rank, ranks_in_words};

use super::diagram::{DeviceRank, DeviceSide, Diagram, DiagramWait, LaneKind};
use super::html::escaped;
use super::paths::short;

/// The sign of what never returns, as lanes and the legend have it.
pub(super) const NEVER: &str = "<i class=\"never\" role=\"img\" aria-label=\"never returns\"></i>";

fn in_words(ranks: BTreeSet<u32>) -> String {
    ranks_in_words(ranks.into_iter().map(Rank))
}

/// Waits that a reader need not tell apart: the kind and name of their lanes, the call, and in what they wait.
type WaitKind<'a> = (LaneKind, &'a str, &'a str, &'a str);

/// What is not over where the run ends, those together that wait in the same; what the finding is about comes first.
pub(super) fn ends(diagram: &Diagram) -> String {
    if diagram.blocked.is_empty() {
        return String::new();
    }
    let mut kinds: BTreeMap<WaitKind<'_>, Vec<&DiagramWait>> = BTreeMap::new();
    for wait in &diagram.blocked {
        let lane = &diagram.lanes[wait.lane];
        let key = (lane.kind, lane.name.as_str(), diagram.texts[wait.text].as_str(), wait.waits_in.as_str());
        kinds.entry(key).or_default().push(wait);
    }
    let mut kinds: Vec<(WaitKind<'_>, Vec<&DiagramWait>)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, waits)| !waits.iter().any(|wait| wait.finding));
    let rows: String = kinds.iter().map(|(kind, waits)| end(diagram, *kind, waits)).collect();
    format!(
        "<section class=\"after-bench\" aria-labelledby=\"ends-title\"><h2 id=\"ends-title\">What never returns</h2>\
         <table class=\"plain\"><thead><tr><th scope=\"col\">who</th><th scope=\"col\">in</th><th scope=\"col\">call</th>\
         <th scope=\"col\">line</th><th scope=\"col\">waits</th><th scope=\"col\">for</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )
}

fn end(diagram: &Diagram, (_, lane, text, waits_in): WaitKind<'_>, waits: &[&DiagramWait]) -> String {
    let rank = |wait: &DiagramWait| diagram.lanes[wait.lane].rank;
    let ranks: BTreeSet<u32> = waits.iter().map(|wait| rank(wait)).collect();
    let gone: BTreeSet<u32> = waits.iter().flat_map(|wait| wait.in_vain.iter().copied()).collect();
    let waiting = waits.iter().flat_map(|wait| &wait.waits_for).map(|other| rank(&diagram.blocked[*other]));
    let awaited: BTreeSet<u32> = waiting.chain(gone.iter().copied()).collect();
    let place = waits.iter().find_map(|wait| wait.place).map(|at| &diagram.places[at]);
    let place = place.filter(|place| place.line > 0);
    let place = place.map_or_else(String::new, |place| format!("{}:{}", short(&place.file), place.line));
    let on_own_stream = |wait: &DiagramWait, other: usize| {
        let lane = &diagram.lanes[diagram.blocked[other].lane];
        lane.kind == LaneKind::Stream && lane.rank == rank(wait)
    };
    let own = gone.is_empty()
        && waits.iter().all(|wait| wait.waits_for.iter().all(|other| on_own_stream(wait, *other)));
    let awaited = match (awaited.is_empty(), gone.is_empty()) {
        (false, _) if own && ranks.len() == 1 => "its own device".to_owned(),
        (false, _) if own => "their own devices".to_owned(),
        (true, _) => String::new(),
        (false, true) => in_words(awaited),
        (false, false) => format!("{} (gone, or elsewhere for good)", in_words(awaited)),
    };
    let class = if waits.iter().any(|wait| wait.finding) { " class=\"finding\"" } else { "" };
    format!(
        "<tr{class}><th scope=\"row\">{}</th><td>{}</td><td>{NEVER} <code>{}</code></td><td class=\"nowrap\">{}</td><td>{}</td><td>{awaited}</td></tr>",
        in_words(ranks),
        escaped(lane),
        escaped(text),
        escaped(&place),
        escaped(waits_in),
    )
}

/// What devices did beside what the model says.
pub(super) fn devices(sides: &[DeviceSide]) -> String {
    if sides.is_empty() {
        return String::new();
    }
    let rows: String = sides.iter().map(side).collect();
    format!(
        "<section class=\"after-bench\" aria-labelledby=\"devices-title\"><h2 id=\"devices-title\">On devices</h2>\
         <p>The same program, run on GPUs: how each rank ended, and what its memory held then. Every buffer is compared with the \
         model in every element.</p>\
         <table class=\"plain devices\"><thead><tr><th scope=\"col\">rank</th><th scope=\"col\">may end, says the model</th>\
         <th scope=\"col\">ended on the device</th><th scope=\"col\">its memory held</th></tr></thead>{rows}</table></section>"
    )
}

fn side(side: &DeviceSide) -> String {
    let agrees = match side.agrees {
        Some(true) => "as the model says",
        Some(false) => "otherwise than the model says",
        None => "not comparable",
    };
    let times = if side.runs == 1 { "1 run".to_owned() } else { format!("{} runs", side.runs) };
    let why = side.difference.as_ref().map_or_else(String::new, |why| format!(". {}", escaped(why)));
    let mut rows = format!(
        "<tbody><tr><th scope=\"rowgroup\" colspan=\"4\">{}, {times}: {agrees}{why}</th></tr>",
        escaped(&side.machine)
    );
    for (rank, DeviceRank { predicted, ended, held }) in side.ranks.iter().enumerate() {
        let class = if side.agrees == Some(false) && predicted != ended { " class=\"differs\"" } else { "" };
        let held = match held.as_slice() {
            [] => "<span class=\"muted\">not read</span>".to_owned(),
            held => held.iter().map(|of| format!("<div>{}</div>", escaped(of))).collect(),
        };
        let _ = write!(
            rows,
            "<tr{class}><th scope=\"row\">{rank}</th><td>{}</td><td>{}</td><td>{held}</td></tr>",
            ending(predicted),
            ending(ended)
        );
    }
    rows + "</tbody>"
}

/// How a rank ends, with the sign of what never returns where it hangs.
fn ending(text: &str) -> String {
    let hangs = text.starts_with("host hang") || text.starts_with("GPU hang");
    format!("{}{}", if hangs { format!("{NEVER} ") } else { String::new() }, escaped(text))
}
