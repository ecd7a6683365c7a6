//! What code may name and where: dependencies, dangers, types, text for people.
//!
//! Not here: what formatter and linter check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rankcheck_tests::repository::files_under;

use super::{assert_none, code_of, has_extension, has_word, rust_files, text};

/// A word, and the only paths in which code may have it.
const CONFINED: [(&str, &[&str]); 5] = [
    (
        "stateright",
        &[
            "crates/check/src/search/explore.rs",
            "crates/check/src/search/graph.rs",
            "crates/check/src/search/naive.rs",
        ],
    ),
    ("starlark", &["crates/check/src/spec.rs", "crates/check/src/spec/"]),
    ("cudarc", &["crates/real/"]),
    (
        "unsafe",
        &[
            "crates/real/src/ffi.rs",
            "crates/real/src/ffi/",
            // What implements `GlobalAlloc` cannot be safe.
            "crates/check/src/allocator.rs",
            // The recorder stands between a program and C, and so do the stand-ins that test it.
            "crates/record/src/ffi.rs",
            "crates/record/src/ffi/",
            "tests/stand_in/",
        ],
    ),
    ("println", &["crates/check/src/command/output.rs", "crates/record/build.rs", "tests/"]),
];

#[test]
fn dependencies_and_dangers_stay_where_the_tree_says() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let name = path.to_string_lossy().into_owned();
        for (nth, line) in text(&path).lines().enumerate() {
            let code = code_of(line);
            for (word, places) in CONFINED {
                if has_word(&code, word) && !places.iter().any(|place| name.starts_with(place)) {
                    wrong.push(format!("{name}:{} has {word}: {}", nth + 1, line.trim()));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn tests_are_run_and_do_not_wait() {
    // In pieces, so that this file does not have them.
    let banned = [concat!("#[", "ignore"), concat!("#[", "should_panic"), concat!("thread::", "sleep")];
    let mut wrong = Vec::new();
    for path in rust_files() {
        for (nth, line) in text(&path).lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{} has {word}", path.display(), nth + 1));
            }
        }
    }
    assert_none(&wrong);
}

/// Packages that the work stands on, the folder of the package that depends on each, and how its code names it.
const STANDS_ON: [(&str, &str, &str); 6] = [
    ("cudarc", "crates/real", "cudarc::nccl::sys"),
    ("proptest", "tests", "proptest::"),
    ("rstest", "tests", "#[rstest]"),
    ("serde", "crates/check", "serde::"),
    ("stateright", "crates/check", "stateright::"),
    ("tracing", "crates/real", "tracing::"),
];

#[test]
fn the_packages_that_the_work_stands_on_are_in_use() {
    let mut wrong = Vec::new();
    for (package, folder, name) in STANDS_ON {
        let manifest = text(format!("{folder}/Cargo.toml"));
        if !manifest.lines().any(|line| line == format!("{package}.workspace = true")) {
            wrong.push(format!("{folder} does not depend on {package}"));
        }
        let files = files_under(folder).into_iter().filter(|path| has_extension(path, "rs"));
        let mut lines = files.flat_map(|path| text(path).lines().map(str::to_owned).collect::<Vec<_>>());
        if !lines.any(|line| !line.trim_start().starts_with("//") && line.contains(name)) {
            wrong.push(format!("no code of {folder} has {name}"));
        }
    }
    assert_none(&wrong);
}

/// The most names that types of several files have. One thing has one name, and a name belongs to one thing: this
/// may become smaller only.
const SHARED_NAMES: usize = 19;

/// Returns the name of the type that a line defines, if it defines one.
fn defined_type(line: &str) -> Option<&str> {
    let mut words =
        line.split(|c: char| c.is_whitespace() || "(){:;<".contains(c)).filter(|word| !word.is_empty());
    let visible = ["pub", "crate", "super", "in", "unsafe"];
    let kind = words.find(|word| !visible.contains(word))?;
    // What a trait calls its types is its own business.
    let defines =
        ["struct", "enum", "trait", "union"].contains(&kind) || (kind == "type" && !line.starts_with(' '));
    defines.then(|| words.next()).flatten()
}

#[test]
fn names_of_types_are_not_shared() {
    assert_eq!(defined_type("pub(crate) struct Cx<'a> {"), Some("Cx"));
    assert_eq!(defined_type("    type Item = u8;"), None);
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for path in files_under("crates").into_iter().filter(|path| has_extension(path, "rs")) {
        for name in text(&path).lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().insert(path.clone());
        }
    }
    assert!(places.len() > 400, "{} types", places.len());
    let shared: Vec<String> = places
        .iter()
        .filter(|(_, paths)| paths.len() > 1)
        .map(|(name, paths)| {
            format!(
                "{name}: {}",
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    assert!(
        shared.len() <= SHARED_NAMES,
        "{} names are shared, and {SHARED_NAMES} at most:\n{}",
        shared.len(),
        shared.join("\n")
    );
}

/// The most doc comments of `crates` that have three words or fewer: this may become smaller only. What so few words
/// say is in the name already. Those that are left are help texts of the command.
const SHORT_COMMENTS: usize = 5;

/// Returns the marker of a line of a doc comment, and what stands behind it.
fn doc_comment(line: &str) -> Option<(&str, &str)> {
    let (marker, said) = line.trim_start().split_at_checked(3)?;
    (["///", "//!"].contains(&marker) && !said.starts_with('/')).then_some((marker, said))
}

/// Returns the first line, from 1, of each doc comment that has three words or fewer on all its lines together.
fn short_comments(source: &str) -> Vec<usize> {
    let lines: Vec<_> = source.lines().map(doc_comment).zip(1..).collect();
    let marker = |(comment, _): &(Option<(&str, &str)>, usize)| comment.map(|(marker, _)| marker.to_owned());
    let comments = lines.chunk_by(|one, next| marker(one) == marker(next));
    let short = comments.filter_map(|lines| {
        let said =
            lines.iter().map(|(comment, _)| comment.map(|(_, said)| said)).collect::<Option<Vec<_>>>()?;
        (said.iter().flat_map(|said| said.split_whitespace()).count() <= 3).then_some(lines[0].1)
    });
    short.collect()
}

#[test]
fn doc_comments_say_more_than_names() {
    assert_eq!(short_comments("/// The rule.\nrule: Rule,\n"), [1]);
    assert_eq!(short_comments("a\n/// The rule that\n/// is broken.\nrule: Rule,\n"), [0; 0]);
    assert_eq!(short_comments("//! A crate.\n\n// The rule.\n//// The rule.\n    /// An op.\nb"), [1, 5]);
    let files = files_under("crates").into_iter().filter(|path| has_extension(path, "rs"));
    let short: Vec<String> = files
        .flat_map(|path| {
            let found = short_comments(&text(&path));
            found.into_iter().map(move |line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert!(
        short.len() <= SHORT_COMMENTS,
        "{} doc comments have at most three words, and {SHORT_COMMENTS} may:\n{}",
        short.len(),
        short.join("\n")
    );
}

/// Where what is written is kept or goes to another process: digests, traces, reports for tools, recordings.
const KEPT: [&str; 11] = [
    "crates/check/src/device/digest.rs",
    "crates/check/src/device/observation.rs",
    "crates/check/src/report/json.rs",
    "crates/check/src/runs/report.rs",
    "crates/check/src/runs/timeline.rs",
    "crates/check/src/trace.rs",
    "crates/model/src/",
    "crates/real/src/case.rs",
    "crates/real/src/wire.rs",
    "crates/record/src/",
    "crates/recording/src/",
];

/// What is written there with `{…:?}` all the same: text and numbers, whose type is not ours.
const PLAIN: [(&str, &str); 8] = [
    ("crates/check/src/device/digest.rs", "answers"),
    ("crates/check/src/device/digest.rs", "check"),
    ("crates/check/src/device/digest.rs", "params"),
    ("crates/model/src/describe.rs", "name"),
    ("crates/model/src/judge/finding.rs", "0"),
    ("crates/model/src/judge/outcome.rs", "0"),
    ("crates/model/src/platform.rs", "0"),
    ("crates/recording/src/value.rs", "text"),
];

/// Returns the arguments that a line writes as `Debug` does.
fn debug_arguments(line: &str) -> Vec<&str> {
    line.match_indices("?}")
        .filter_map(|(end, _)| line[..end].rsplit_once('{')?.1.split(':').next())
        .collect()
}

#[test]
fn what_is_kept_does_not_depend_on_names_in_the_code() {
    assert_eq!(debug_arguments(r#"format!("{a} {b:?} {:#?} {0:02x?}", c)"#), ["b", "", "0"]);
    let (mut wrong, mut plain) = (Vec::new(), BTreeSet::<&(&str, &str)>::new());
    for path in rust_files() {
        let name = path.to_string_lossy().into_owned();
        if !KEPT.iter().any(|kept| name.starts_with(kept)) || name.ends_with("/tests.rs") {
            continue;
        }
        let source = text(&path);
        let (source, _tests) = source.split_once("#[cfg(test)]\nmod ").unwrap_or((&source, ""));
        for (nth, line) in source.lines().enumerate() {
            // What a broken assertion says is for people.
            let line = line.split("//").next().unwrap_or_default();
            let said = line.contains("assert") || line.contains("panic!");
            for argument in debug_arguments(line).into_iter().filter(|_| !said) {
                match PLAIN.iter().find(|known| **known == (name.as_str(), argument)) {
                    Some(known) => plain.extend([known]),
                    None => wrong.push(format!("{name}:{} writes {{{argument}:?}}", nth + 1)),
                }
            }
        }
    }
    let unused = PLAIN.iter().filter(|known| !plain.contains(known));
    wrong.extend(unused.map(|(file, argument)| format!("{file} has no {{{argument}:?}}")));
    assert_none(&wrong);
}
