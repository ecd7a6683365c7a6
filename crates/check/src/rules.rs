//! The rules as `specs/rules/*.md` states them, built into the command.
//! Not here: what a rule means; that is said once, in those files.

use rankcheck_model::Rule;

use crate::spec::did_you_mean;

const TEXTS: [&str; 15] = [
    include_str!("../../../specs/rules/collective.md"),
    include_str!("../../../specs/rules/comm.md"),
    include_str!("../../../specs/rules/exchange.md"),
    include_str!("../../../specs/rules/flag.md"),
    include_str!("../../../specs/rules/graph.md"),
    include_str!("../../../specs/rules/group.md"),
    include_str!("../../../specs/rules/host.md"),
    include_str!("../../../specs/rules/ipc.md"),
    include_str!("../../../specs/rules/list.md"),
    include_str!("../../../specs/rules/memory.md"),
    include_str!("../../../specs/rules/mutex.md"),
    include_str!("../../../specs/rules/overlap.md"),
    include_str!("../../../specs/rules/p2p.md"),
    include_str!("../../../specs/rules/store.md"),
    include_str!("../../../specs/rules/window.md"),
];

/// The section of a rule, from its heading to the next.
#[must_use]
pub fn text_of(id: &str) -> Option<String> {
    let wanted = id.to_uppercase();
    for text in TEXTS {
        let mut section: Option<Vec<&str>> = None;
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                if section.is_some() {
                    break;
                }
                if heading.split_whitespace().next() == Some(wanted.as_str()) {
                    section = Some(vec![heading]);
                }
            } else if let Some(lines) = &mut section
                && !line.starts_with("<!--")
            {
                lines.push(line);
            }
        }
        if let Some(lines) = section {
            return Some(lines.join("\n").trim_end().to_owned());
        }
    }
    None
}

/// What to say to somebody who asks for a rule that is none.
#[must_use]
pub fn unknown(id: &str) -> String {
    let near = did_you_mean(id, Rule::ALL.iter().map(|rule| rule.id()));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    format!("there is no rule {id:?}; {near}`rankcheck explain` lists the rules")
}
