//! `ci/nightly` without GPU and tools: what was not run is told so, and what is wrong outweighs it.
//!
//! Not here: what its parts try.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use rankcheck_tests::repository::enter;

use crate::built::folder;

/// What the script itself calls; nothing that any of its parts needs.
const TOOLS: [&str; 9] = ["bash", "cat", "date", "dirname", "env", "grep", "mkdir", "tail", "tee"];

/// Runs the script with a command that ends with this code, whatever it is asked. Returns the exit code and the summary.
fn nightly(folder: &Path, code: u8) -> (Option<i32>, String) {
    let tools = folder.join("tools");
    if !tools.exists() {
        fs::create_dir(&tools).expect("a folder can be made");
        for name in TOOLS {
            let path = std::env::var_os("PATH").expect("a test has a path");
            let there =
                std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.exists());
            symlink(there.expect("the tool is there"), tools.join(name)).expect("a link can be made");
        }
    }
    let command = folder.join("command");
    fs::write(&command, format!("#!/usr/bin/env bash\necho \"it ran $1\"\nexit {code}\n"))
        .expect("it can be written");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("it is there");
    let out = folder.join("out");
    let status = Command::new("bash")
        .arg(enter().join("ci/nightly"))
        .arg(&out)
        .env_clear()
        .env("PATH", &tools)
        .env("RANKCHECK", &command)
        .output()
        .expect("bash starts")
        .status;
    (status.code(), fs::read_to_string(out.join("summary.md")).expect("it is written"))
}

/// What the summary lists as not run.
fn not_run(summary: &str) -> Vec<&str> {
    let (_, list) = summary.split_once("\n## Not run\n").unwrap_or_default();
    list.lines().filter_map(|line| line.strip_prefix("- ")).collect()
}

#[test]
fn what_lacks_a_tool_is_told_as_not_run_and_never_as_passed() {
    const SCRIPTS: [&str; 5] = [
        "Pages: what people look at",
        "Timelines: as Perfetto reads them",
        "Workflows: as GitHub reads them",
        "Wheel: built and tried here",
        "Wheel: on an older system",
    ];
    let folder = folder("nightly");
    let (code, summary) = nightly(&folder, 0);
    assert_eq!((code, not_run(&summary)), (Some(4), SCRIPTS.to_vec()), "{summary}");
    for ran in ["doctor", "contract", "diff"] {
        assert!(summary.contains(&format!("it ran {ran}\n```\n\nExit code 0.\n")), "{ran}: {summary}");
    }
    let (_, scripts) = summary.split_once("## Pages").expect("pages are the first of them");
    assert!(!scripts.contains("Exit code 0") && scripts.matches("**Not run**").count() == 4, "{summary}");
    // Where there is no GPU, nothing is known of what runs on one.
    let (code, summary) = nightly(&folder, 4);
    assert_eq!((code, not_run(&summary).len()), (Some(4), 3 + SCRIPTS.len()), "{summary}");
    assert!(!summary.contains("it ran contract"), "{summary}");
}

#[test]
fn what_is_wrong_outweighs_what_was_not_run() {
    let folder = folder("nightly_wrong");
    // A disagreement, a bad spec, a panic.
    for code in [1, 2, 101] {
        assert_eq!(nightly(&folder, code).0, Some(1), "{code}");
    }
    // What could not be compared does not hide that something was not run.
    assert_eq!(nightly(&folder, 3).0, Some(4));
}
