//! The legend of a page: every sign and colour that its diagram, its source and its memory have, drawn as they are drawn there.
//!
//! Not here: the signs themselves, which are classes of the style.

use std::fmt::Write as _;

use super::diagram::{Diagram, LaneKind, LineSign, Mark, PathSign};

/// An entry: whether the page has the sign, how it is drawn, and what it means.
type LegendSign = (bool, String, &'static str);

/// A call of a lane, as the diagram draws it.
fn call(class: &str, text: &str) -> String {
    format!("<span class=\"step done {class}\"><i></i><span>{text}</span></span>")
}

/// A line between calls, as the diagram draws it.
fn stroke(class: &str) -> String {
    format!(
        "<svg width=\"46\" height=\"12\" aria-hidden=\"true\"><path class=\"{class}\" d=\"M2 6 H44\"/></svg>"
    )
}

/// A mark of a line of the source.
fn line(class: &str, text: &str) -> String {
    format!("<span class=\"sign {class}\">{text}</span>")
}

fn calls(diagram: &Diagram) -> Vec<LegendSign> {
    let marked = |mark: Mark| diagram.steps.iter().any(|step| step.mark == Some(mark));
    let blocked = &diagram.blocked;
    let path = |sign: PathSign| {
        diagram.steps.iter().any(|step| step.path == Some(sign))
            || blocked.iter().any(|wait| wait.path == Some(sign))
    };
    let open = diagram.steps.iter().any(|step| step.time.is_some_and(|(_, over)| over.is_none()));
    vec![
        (true, call("", "call"), "done; a grey one is still to come"),
        (true, call("now", "call"), "the step that is told above the diagram"),
        (
            diagram.steps.iter().any(|step| step.quiet),
            call("quiet", "call"),
            "of no concern to other ranks; shown on demand",
        ),
        (path(PathSign::Common), call("common", "call"), "the last that ranks have in common"),
        (
            path(PathSign::Diverges),
            call("diverges", "call"),
            "where ranks diverge: the first that not all do",
        ),
        (marked(Mark::Essential), call("essential", "call"), "without it, the finding is gone"),
        (marked(Mark::Cause), call("cause", "call"), "it decided the finding"),
        (marked(Mark::Finding), call("finding", "call"), "the finding is about it"),
        (
            !blocked.is_empty() || open,
            call("never blocked", "call"),
            "it never returns, on a host or on a device; black: and the finding is not about it",
        ),
    ]
}

fn strokes(diagram: &Diagram) -> Vec<LegendSign> {
    let waits = diagram.blocked.iter().any(|wait| !wait.waits_for.is_empty());
    let finding = |step: &usize| diagram.steps[*step].mark == Some(Mark::Finding);
    let found = diagram.meetings.iter().any(|meeting| meeting.iter().all(finding));
    vec![
        (
            !diagram.meetings.is_empty(),
            stroke("met done"),
            "calls that met: a rendezvous, a collective, a transfer",
        ),
        (found, stroke("met finding"), "they met, and the finding is about them"),
        (!diagram.order.is_empty(), stroke("after done"), "the call at the arrow comes after the other"),
        (waits, stroke("waits cycle"), "it waits for the call at the arrow and will wait for ever"),
        (!diagram.blocked.is_empty(), stroke("line stuck"), "nothing happens here any more"),
    ]
}

fn lines(diagram: &Diagram) -> Vec<LegendSign> {
    let has = |sign: LineSign| diagram.lines.iter().any(|line| line.sign == sign);
    let wrong = diagram.memory.pieces.iter().any(|piece| !piece.wrong.is_empty());
    let grouped = diagram.lanes.iter().any(|lane| lane.kind == LaneKind::Group);
    vec![
        (has(LineSign::Common), line("common", "last line in common"), "ranks take the same way up to here"),
        (has(LineSign::Diverges), line("diverges", "rank 0 goes here"), "where ranks diverge"),
        (
            has(LineSign::Cause),
            line("cause", "this decided it"),
            "had it fallen otherwise, the finding would be gone; that was tried",
        ),
        (
            has(LineSign::Repair),
            line("repair", "repair 1"),
            "a change here was explored, and the program with it holds",
        ),
        (!diagram.places.is_empty(), line("fault", "12"), "a red number: a line of the finding"),
        (!grouped && !diagram.memory.changes.is_empty(), line("changed", "•"), "the step changed it"),
        (wrong, line("wrong", "wrong"), "not what the program meant to lie there"),
    ]
}

/// Returns the legend of a page.
pub(super) fn legend(diagram: &Diagram) -> String {
    let mut entries = String::new();
    for (there, sign, meaning) in calls(diagram).into_iter().chain(strokes(diagram)).chain(lines(diagram)) {
        if there {
            let _ = write!(entries, "<div><dt>{sign}</dt><dd>{meaning}</dd></div>");
        }
    }
    format!(
        "<details class=\"legend\" open><summary>Legend: what signs and colours mean</summary><dl>{entries}</dl></details>"
    )
}
