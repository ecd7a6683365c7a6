//! Annotations as commands that GitHub Actions reads in the log of a step.
//!
//! <https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>; what is escaped is what the runner takes back
//! (`src/Runner.Common/ActionCommand.cs` of actions/runner).
//! Not here: what annotations say.

use super::{Annotation, Spot};

/// The commands, one a line.
#[must_use]
pub(crate) fn github(annotations: &[Annotation]) -> String {
    let command =
        |Annotation { severity, title, message, at: Spot { file, line }, related, .. }: &Annotation| {
            let mut place = String::new();
            if !file.is_empty() {
                place = format!("file={},", property(file));
                place.extend(line.map(|line| format!("line={line},")));
            }
            let mut message = message.clone();
            for (Spot { file, line }, what) in related {
                let line = line.map_or_else(String::new, |line| format!(":{line}"));
                message.push_str(&format!("\n{what}: {file}{line}"));
            }
            format!("::{} {place}title={}::{}\n", severity.word(), property(title), data(&message))
        };
    annotations.iter().map(command).collect()
}

/// A message, which ends with its line.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A value of a property, which ends at a comma or colon, too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
