//! The command starts and says what it is. Cargo builds the command for this test, and `rankcheck-tests` runs the same
//! file.
//!
//! Not here: what the command does (`tests/tests/cli.rs`).

use std::process::Command;

/// Returns what the command prints with this argument.
fn printed(argument: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rankcheck")).arg(argument).output();
    let output = output.expect("the command starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("the command writes UTF-8")
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(printed("--version"), concat!("rankcheck ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn exit_codes_are_in_the_help() {
    assert!(printed("--help").contains("4 a GPU, a library or a tool is missing"));
}
