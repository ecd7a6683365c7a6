//! What real runs of PyTorch recorded on GPUs, clean and with one rank departing, is judged as the report beside
//! it says. `UPDATE_GOLDEN=1` writes the reports anew.
//!
//! Not here: how the recordings were made (`tests/recordings/record.sh`).

use std::path::{Path, PathBuf};

use rankcheck::runs::judge::{RunVerdict, judge, read};
use rankcheck::runs::report;
use rankcheck_tests::repository::{differs_from_golden, enter, files_under};

const RUNS: &str = "tests/recordings/runs";

/// Folders of recordings: one for each program and number of ranks, with `clean` and `divergent` in it.
pub(crate) fn folders() -> Vec<PathBuf> {
    enter();
    let mut folders: Vec<PathBuf> = files_under(RUNS)
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rankrec"))
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    folders.dedup();
    folders
}

#[test]
fn recorded_runs_are_judged_as_their_reports_say() {
    let mut wrong = Vec::new();
    let folders = folders();
    for folder in &folders {
        let judged = judge(read(folder).expect("a recording"), None).expect("a run of one program");
        let clean = folder.ends_with("clean");
        let expected = if clean { RunVerdict::Holds } else { RunVerdict::Fails };
        if judged.verdict != expected {
            wrong.push(format!("{}: {:?}", folder.display(), judged.verdict));
        }
        wrong.extend(differs_from_golden(&folder.with_extension("report"), &report::text(&judged)));
    }
    assert!(folders.len() >= 14, "only {} recordings were found", folders.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_divergence_is_told_with_its_call_and_two_ranks() {
    for folder in folders().iter().filter(|folder| folder.ends_with("divergent")) {
        let judged = judge(read(folder).expect("a recording"), None).expect("a run of one program");
        let text = report::text(&judged);
        let sentence = text.lines().nth(1).expect("a sentence follows the verdict");
        let one = (0..4).filter(|rank| sentence.contains(&format!("rank {rank}"))).count();
        assert!(one >= 2 || one == 1 && sentence.contains("ranks "), "{}: {sentence}", folder.display());
        assert!(sentence.contains(".py:"), "{}: {sentence}", folder.display());
    }
}
