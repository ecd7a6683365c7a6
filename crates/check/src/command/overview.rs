//! A line for each folder, where there are more reports than anybody reads.
//!
//! Not here: the reports.

use std::collections::BTreeMap;
use std::path::Path;

use super::output;
use super::results::{Conclusion, Format};

/// More checks and runs than this are told by folder.
const MANY: usize = 20;

/// Whether so many checks and runs are told by folder, and of these only the reports of what is not as it should be;
/// `detailed` says that somebody asked for other reports.
pub(super) fn is_told_by_folder(reports: usize, format: Format, detailed: bool) -> bool {
    reports > MANY && format == Format::Text && !detailed && output::is_terminal()
}

/// How many checks and runs of each folder are as they should be.
#[derive(Debug, Default)]
pub(super) struct Overview(BTreeMap<String, [usize; 3]>);

impl Overview {
    pub(super) fn add(&mut self, file: &str, conclusion: Conclusion) {
        let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).display().to_string();
        let counts = self.0.entry(folder).or_default();
        match conclusion {
            Conclusion::AsStated => counts[0] += 1,
            Conclusion::Otherwise => counts[1] += 1,
            Conclusion::Unknown => counts[2] += 1,
        }
    }

    /// One line for each folder.
    pub(super) fn text(&self) -> String {
        let widest = self.0.keys().map(|folder| folder.chars().count()).max().unwrap_or(0);
        let line = |(folder, [stated, otherwise, unknown]): (&String, &[usize; 3])| {
            let mut line = format!("{folder:<widest$}  {stated:>4} as expected");
            if *otherwise > 0 {
                line.push_str(&format!(", {otherwise} not"));
            }
            if *unknown > 0 {
                line.push_str(&format!(", {unknown} unknown"));
            }
            line
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_counted_apart() {
        let mut overview = Overview::default();
        overview.add("specs/a/x.star", Conclusion::AsStated);
        overview.add("specs/a/y.star", Conclusion::Otherwise);
        overview.add("z.star", Conclusion::Unknown);
        assert_eq!(overview.text(), ".           0 as expected, 1 unknown\nspecs/a     1 as expected, 1 not");
    }
}
