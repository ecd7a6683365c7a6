//! Every file has its place, says what it is, and is short enough to be read.
//!
//! Not here: what stands in files (`code.rs`, `documents.rs`, `specs.rs`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use glob::{MatchOptions, Pattern};

use super::{all_files, assert_none, has_extension, rust_files, text};

/// Where files belong: a pattern of paths, and what lies there. `*` stands for a part of a name, `**` for folders.
/// Patterns do not overlap, and each has a file.
const PLACES: &[(&str, &str)] = &[
    ("crates/check/src/command/init/*", "what `rankcheck init` writes"),
    (".gitignore", "what git leaves alone"),
    ("Cargo.{toml,lock}", "the workspace"),
    ("{clippy,deny,rustfmt,pyproject}.toml", "settings of tools that look for them in the root"),
    ("{ARCHITECTURE,CHANGELOG,CONTRIBUTING,README}.md", "the documents that everybody looks for"),
    ("LICENSE", "Apache-2.0"),
    (".ci/{bench,run}", "what continuous integration runs"),
    ("ci/*", "what is run every night and before a release"),
    ("docs/*.md", "documents"),
    ("docs/images/*.png", "pictures of what people look at"),
    ("docs/workflow.yml", "a workflow for pull requests, which a test runs"),
    ("tests/schemas/*.json", "schemas of others, against which output is held"),
    ("tests/schemas/README.md", "where they come from, and their licences"),
    ("docs/*.schema.json", "JSON schemas of what is printed"),
    ("crates/*/Cargo.toml", "a crate"),
    ("crates/*/build.rs", "what cargo runs before it builds a crate"),
    ("crates/*/src/**/*.rs", "its code"),
    ("crates/check/src/page/*.{css,html,js}", "what pages are made of"),
    ("crates/check/src/page/script/*.js", "what the script of a page does, by topic"),
    ("crates/*/tests/*.rs", "its tests that need processes of their own"),
    ("crates/*/examples/*.rs", "programs that its tests start"),
    ("examples/*/Cargo.{toml,lock}", "a crate of somebody who uses this one"),
    ("examples/*/README.md", "what it shows"),
    ("examples/cluster/*.{sbatch,yaml}", "a check on many machines, for Slurm and Kubernetes"),
    ("examples/hung-job/train.py", "a job that hangs"),
    ("examples/hung-job/{dumps,log}/*", "what it left on devices"),
    ("examples/*/{src,tests}/*.rs", "its code"),
    ("examples/*/{specs,unexpected}/*.star", "its specs"),
    ("python/pyproject.toml", "the Python package"),
    ("python/rankcheck_record/*.py", "its code"),
    ("python/activate/sitecustomize.py", "what Python runs at its start in a recorded process"),
    ("specs/lib/*.star", "what specs load"),
    ("specs/rules/**/*.{star,report}", "each rule, broken and kept, with golden reports"),
    ("specs/rules/**/*.md", "the text of each rule"),
    ("specs/systems/*/*.{star,report}", "protocols, with golden reports"),
    ("specs/systems/*/README.md", "what a protocol is and where it comes from"),
    ("specs/observations/*/*.json", "what devices did, by GPU and NCCL"),
    ("specs/observations/stale.txt", "which of them are of programs that have changed"),
    ("tests/Cargo.toml", "the tests of the workspace"),
    ("tests/src/**/*.rs", "what tests share"),
    ("tests/tests/**/*.rs", "tests"),
    ("tests/benches/*.{rs,star}", "benchmarks"),
    ("tests/growth/*.star", "families of programs that grow"),
    ("tests/growth/counts.txt", "how much is explored of each"),
    ("tests/growth/large.txt", "why a search is large, in words"),
    ("tests/growth/promela/*.pml", "the same protocols as models for SPIN"),
    ("tests/growth/traceforge.rs", "and for TraceForge"),
    ("tests/examples/*.rs", "what runs for as long as one likes"),
    ("tests/broken/uses/*.txt", "wrong uses of the command: text, JSON and exit code of each"),
    ("tests/broken/**/*.{star,stderr}", "bad specs and bad commands, with golden diagnostics"),
    ("tests/well_formed/*.star", "specs that use every builtin"),
    ("tests/pages/*.{star,json}", "a spec, and the data of its page"),
    ("tests/programs.star", "programs that are recorded by tests"),
    ("tests/kept/*.txt", "programs on which two semantics differed once"),
    ("tests/kept/README.md", "how such a program is kept"),
    ("tests/stand_in/*.rs", "libraries in place of CUDA and NCCL, and a program that calls them"),
    ("tests/recordings/*.{c,py,sh}", "how runs were recorded on GPUs"),
    ("tests/recordings/programs/*.py", "the programs that were recorded"),
    ("tests/recordings/foreign/*.py", "how programs of others are started, to be recorded"),
    ("tests/recordings/devices/*/process-*.rankrec", "runs of others' programs on several devices"),
    ("tests/recordings/devices/*.report", "golden reports of these"),
    ("tests/recordings/jobs/process-*.rankrec", "several jobs that were recorded together"),
    ("tests/recordings/jobs.report", "golden reports of these"),
    ("tests/recordings/symmetric/*/rank*.rankrec", "programs with symmetric memory, recorded on two GPUs"),
    ("tests/recordings/symmetric/*.report", "golden reports of those that are wrong"),
    ("tests/recordings/training/*/rank*.rankrec", "training, recorded on two GPUs and folded"),
    ("tests/recordings/runs/*/*/rank-*.rankrec", "the runs"),
    ("tests/recordings/runs/*/*.report", "golden reports of the runs"),
    ("tests/dumps/*.py", "how dumps were made on GPUs"),
    ("tests/dumps/runs/*/rank_*", "some of them"),
    ("tests/dumps/runs/*/recording/*.rankrec", "recordings of some of the same jobs"),
    ("tests/dumps/runs/*.report", "golden reports of them"),
    ("tests/dumps/together.report", "what recordings and dumps say together"),
    ("tests/logs/runs/*/vm.*", "logs that NCCL wrote on GPUs"),
    ("tests/logs/runs/*.report", "golden reports of them"),
];

/// Returns the patterns that a pattern with one list in braces stands for.
fn spelt_out(pattern: &str) -> Vec<Pattern> {
    let one = |pattern: String| Pattern::new(&pattern).expect("the table has good patterns");
    let Some((before, rest)) = pattern.split_once('{') else { return vec![one(pattern.to_owned())] };
    let (list, after) = rest.split_once('}').expect("a brace is closed");
    list.split(',').map(|word| one(format!("{before}{word}{after}"))).collect()
}

#[test]
fn every_file_is_where_it_belongs() {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let places: Vec<(&str, Vec<Pattern>)> =
        PLACES.iter().map(|(pattern, _)| (*pattern, spelt_out(pattern))).collect();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for path in all_files() {
        let fits = |pattern: &Pattern| pattern.matches_path_with(&path, options);
        let mut known = places.iter().filter(|(_, patterns)| patterns.iter().any(fits));
        match (known.next(), known.next()) {
            (Some((pattern, _)), None) => used.extend([*pattern]),
            (None, _) => wrong.push(format!("nothing says what {} is", path.display())),
            (Some((one, _)), Some((other, _))) => {
                wrong.push(format!("{} fits {one} and {other}", path.display()));
            }
        }
    }
    let unused = places.iter().filter(|(pattern, _)| !used.contains(pattern));
    wrong.extend(unused.map(|(pattern, _)| format!("no file fits {pattern}")));
    assert_none(&wrong);
}

/// Returns whether a name looks like what a shell, an editor or a merge leaves behind.
fn is_accident(name: &str) -> bool {
    let left_behind = [".bak", ".log", ".orig", ".rej", ".swp", ".tmp"];
    !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '.')
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        || left_behind.iter().any(|end| name.ends_with(end))
}

#[test]
fn no_file_has_the_name_of_an_accident() {
    for name in ["20.128", "-1.79528e+09", "a file", "main.rs~", "#main.rs#", "main.rs.orig", "=0.3", "é.md"]
    {
        assert!(is_accident(name), "{name}");
    }
    let accident = |path: &&PathBuf| path.iter().any(|part| part.to_str().is_none_or(is_accident));
    let files = all_files();
    assert_none(&files.iter().filter(accident).map(|path| path.display().to_string()).collect::<Vec<_>>());
}

/// The most lines of a source file.
const MOST_LINES: usize = 1_000;

#[test]
fn no_source_file_is_too_long() {
    let is_source = |path: &&PathBuf| has_extension(path, "rs") || has_extension(path, "py");
    let files = all_files();
    let sources = files.iter().filter(is_source);
    let lines = sources.map(|path| (path, text(path).lines().count()));
    let long = lines.filter(|(_, lines)| *lines > MOST_LINES);
    assert_none(
        &long.map(|(path, lines)| format!("{} has {lines} lines", path.display())).collect::<Vec<_>>(),
    );
}

#[test]
fn every_source_file_says_what_it_is() {
    let files = rust_files();
    assert!(files.len() > 40, "{} files", files.len());
    let silent = files.iter().filter(|path| !text(path).starts_with("//!"));
    assert_none(
        &silent.map(|path| format!("{} does not start with //!", path.display())).collect::<Vec<_>>(),
    );
}

#[test]
fn no_file_is_named_after_nothing() {
    let banned = ["util", "utils", "helper", "helpers", "common", "misc", "types", "mod.rs"];
    let is_banned = |path: &&PathBuf| {
        path.components().any(|part| {
            let name = part.as_os_str().to_string_lossy();
            banned.contains(&&*name) || banned.contains(&name.split('.').next().unwrap_or_default())
        })
    };
    let files = all_files();
    let wrong: Vec<String> = files.iter().filter(is_banned).map(|path| path.display().to_string()).collect();
    assert_none(&wrong);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let machine = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/tm", "p/"),
        concat!("spar", "se+"),
        concat!("replace-", "with"),
        concat!("arti", "factory"),
    ];
    let mut wrong = Vec::new();
    for path in all_files() {
        for (nth, line) in text(&path).lines().enumerate() {
            for word in machine.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{} has {word}", path.display(), nth + 1));
            }
        }
    }
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    for line in text("Cargo.lock").lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != registry
        {
            wrong.push(format!("Cargo.lock has {line}"));
        }
    }
    assert_none(&wrong);
}
