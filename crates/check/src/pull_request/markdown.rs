//! A comparison as a comment of a pull request: the worst first, reports folded, and never longer than a comment may be.
//!
//! Not here: what is compared.

use super::comparison::{CheckName, Comparison, CounterexampleSeen, Moved, OnlyHere, Renamed, side};

/// How long a comment may be, in characters. GitHub takes 65,536.
const MOST_CHARACTERS: usize = 60_000;
/// What the last line may take, which says what was left out.
const LAST_LINE: usize = 300;

/// A comment that is being written.
#[derive(Default)]
struct Comment {
    text: String,
    characters: usize,
    left_out: usize,
}

impl Comment {
    fn fits(&self, more: &str) -> bool {
        self.characters + more.chars().count() + LAST_LINE <= MOST_CHARACTERS
    }

    /// Adds a piece, if all of them fit.
    fn push(&mut self, pieces: &[&str]) {
        let text = pieces.concat();
        if self.fits(&text) {
            self.characters += text.chars().count();
            self.text.push_str(&text);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds rows with a heading, which is there if a row is.
    fn section(&mut self, heading: &str, rows: impl IntoIterator<Item = String>) {
        let mut heading = Some(heading);
        for row in rows {
            let (before, head) = (self.left_out, heading.unwrap_or_default());
            self.push(&[head, &row]);
            if self.left_out == before {
                heading = None;
            }
        }
    }
}

/// A text in a cell of a table or in a line, as it is.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '@' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A text in HTML, in which nothing else has a meaning.
fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(['\n', '\r'], " ")
}

/// A text between fences that it does not have.
fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}text\n{text}\n{fence}\n")
}

fn named(CheckName { file, name }: &CheckName) -> String {
    format!("{}, {}", plain(file), plain(&format!("\"{name}\"")))
}

fn row<T: ToString>(moved: &Moved<T>) -> String {
    let Moved { check, what, old, new, settings } = moved;
    let (old, new) = (plain(&side(old.as_ref())), plain(&side(new.as_ref())));
    format!("| {} | {} | {old} | {new} | {} |\n", named(check), plain(what), plain(&settings.join("; ")))
}

fn line(OnlyHere { check, verdict, .. }: &OnlyHere) -> String {
    format!("- {}: {}\n", named(check), plain(verdict))
}

fn details(CounterexampleSeen { check, found, expected, report }: &CounterexampleSeen) -> String {
    let stated = if *expected { ", as stated" } else { "" };
    let title = html(&format!("{}, {:?}: {}{stated}", check.file, check.name, found.rule));
    format!(
        "<details><summary>{title}</summary>\n\n{}\n\n{}\n</details>\n\n",
        plain(&found.sentence),
        fenced(report)
    )
}

/// Returns the comment as Markdown.
#[must_use]
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let Comparison { worse, unknown, verdicts, new_counterexamples, added, removed, costs, .. } = comparison;
    let mut out = Comment::default();
    let mark = match comparison.exit_code() {
        0 => "nothing is worse",
        3 => "**not known whether anything is worse**",
        2 => "**a spec cannot be read**",
        _ => "**something is worse**",
    };
    out.push(&["### rankcheck: ", mark, "\n\n", &plain(&comparison.summary()), ".\n"]);
    out.section(
        "\n**Cannot be read**\n\n",
        comparison.bad.iter().map(|error| format!("- {}\n", plain(error))),
    );
    out.section("\n**Worse**\n\n", worse.iter().map(line));
    out.section(
        "\n**Unknown, which is no pass**\n\n",
        unknown.iter().map(|check| format!("- {}\n", named(check))),
    );
    // What is unexpected is read first.
    let (stated, other): (Vec<&CounterexampleSeen>, Vec<&CounterexampleSeen>) =
        new_counterexamples.iter().partition(|counted| counted.expected);
    let table = |what: &str| {
        format!("\n**{what}**\n\n| check | what | before | now | where |\n| --- | --- | --- | --- | --- |\n")
    };
    out.section(&table("Verdicts that changed"), verdicts.iter().map(row));
    out.section("\n**New counterexamples**\n\n", other.into_iter().chain(stated).map(details));
    out.section(&table("Costs that moved"), costs.iter().map(row));
    let gone = comparison.gone_counterexamples.iter().map(|CounterexampleSeen { check, found, .. }| {
        format!("- {}: {}, {}\n", named(check), found.rule, plain(&found.sentence))
    });
    out.section("\n**Counterexamples that are gone**\n\n", gone);
    out.section("\n**Checks that are new**\n\n", added.iter().map(line));
    out.section("\n**Checks that are gone**\n\n", removed.iter().map(line));
    let renamed =
        comparison.renamed.iter().map(|Renamed { old, new }| format!("- {} is {}\n", plain(old), plain(new)));
    out.section("\n**Files with another name**\n\n", renamed);
    let before = comparison.bad_before.iter().map(|error| format!("- {}\n", plain(error)));
    out.section("\n**Could not be read before**\n\n", before);
    if out.left_out > 0 {
        out.text.push_str(&format!(
            "\n{} more did not fit into this comment; `rankcheck compare` without `--format markdown` prints all.\n",
            out.left_out
        ));
    }
    out.text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::comparison::FoundIn;
    use super::*;

    #[test]
    fn a_comment_is_never_too_long_and_says_what_it_leaves_out() {
        let counted = |nth: usize| CounterexampleSeen {
            check: CheckName { file: "a.star".to_owned(), name: format!("<b> | {nth}") },
            found: FoundIn { rule: "WIN-2", sentence: "x".to_owned() },
            expected: nth > 0,
            report: "é ``` fence\n".repeat(500),
        };
        let comparison = Comparison {
            new_counterexamples: (0..40).map(counted).collect(),
            added: vec![OnlyHere {
                check: CheckName { file: "b.star".to_owned(), name: "last".to_owned() },
                verdict: "holds".to_owned(),
                expected: true,
            }],
            ..Comparison::default()
        };
        let comment = markdown(&comparison);
        assert!(comment.chars().count() <= MOST_CHARACTERS, "{}", comment.chars().count());
        let shown = comment.matches("<details>").count();
        assert!(shown > 5 && comment.contains(&format!("{} more did not fit", 40 - shown)), "{shown}");
        assert_eq!(comment.matches("````text").count(), shown);
        assert!(comment.contains("a.star, \"&lt;b&gt; | 0\": WIN-2") && comment.contains("last"));
    }
}
