//! What documents say of the repository is so: the paths that they name, and what they count.
//!
//! Not here: the documents of rules (`specs.rs`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use rankcheck::device::observation;
use rankcheck::search::Bounds;
use rankcheck_tests::repository::{enter, files_under};

use super::{assert_none, has_extension, text};

/// Returns the paths of the repository that stand in backticks.
fn mentioned_paths(document: &str) -> Vec<String> {
    let tops = ["crates/", "tests/", "specs/", "docs/", "python/", "ci/", ".ci/"];
    let quoted = document.split('`').skip(1).step_by(2);
    quoted
        .filter(|words| tops.iter().any(|top| words.starts_with(top)))
        .filter(|words| !words.contains(['<', '*', ' ', '{', '…']))
        .map(|words| words.split(':').next().unwrap_or_default().trim_end_matches('/').to_owned())
        .collect()
}

/// Returns the documents of the root and of `docs`, apart from the history.
fn documents() -> Vec<PathBuf> {
    let root = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(PathBuf::from);
    root.into_iter().chain(files_under("docs").into_iter().filter(|path| has_extension(path, "md"))).collect()
}

#[test]
fn every_path_in_a_document_exists() {
    let mut wrong = Vec::new();
    for document in documents() {
        let name = document.display();
        let mut missing = mentioned_paths(&text(&document));
        missing.retain(|path| !enter().join(path).exists());
        wrong.extend(missing.iter().map(|path| format!("{name} names {path}, which does not exist")));
    }
    assert_none(&wrong);
}

#[test]
fn the_architecture_names_every_crate_and_its_folders() {
    assert!(
        text("ARCHITECTURE.md").len() <= 14_000,
        "the argument stands in docs/engine.md, history in CHANGELOG.md"
    );
    let named: BTreeSet<String> = mentioned_paths(&text("ARCHITECTURE.md")).into_iter().collect();
    let mut folders = BTreeSet::new();
    for file in files_under("crates") {
        let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        folders.insert(parts[..2].join("/"));
        if parts[2] == "src" && parts.len() > 4 {
            folders.insert(parts[..4].join("/"));
        }
    }
    let missing = folders.difference(&named).map(|folder| format!("ARCHITECTURE.md does not name {folder}"));
    assert_none(&missing.collect::<Vec<_>>());
}

/// A number in a document: the document, the words around the number, which is `{}` there, and what it has to be.
type Counted = (&'static str, &'static str, fn() -> u64);

/// What is counted in documents, and limits that they state.
const COUNTED: [Counted; 12] = [
    ("README.md", "{} runs on H200s", runs_on_devices),
    ("README.md", "All but {} did what the model predicts", disagreements),
    ("README.md", "## {} real protocols", protocols),
    ("README.md", "## {} ways in", ways_in),
    ("docs/engine.md", "**Bounds.** {} states", || Bounds::default().states),
    ("docs/engine.md", "{} choices in a run", || Bounds::default().choices.into()),
    ("docs/engine.md", "{} operations in a run by default", || Bounds::default().steps),
    ("docs/engine.md", "on {} random programs in each `cargo test`", random_programs),
    ("docs/spec-language.md", "may record {} operations", || {
        constant("crates/check/src/spec/builder.rs", "MAX_OPERATIONS")
    }),
    ("docs/spec-language.md", "make {} loop turns and calls", || constant(LIMITS, "MAX_TICKS")),
    ("docs/spec-language.md", "nest {} calls deep", || constant(LIMITS, "MAX_DEPTH")),
    ("docs/spec-language.md", "{} MiB of values", || constant(LIMITS, "MAX_HEAP_BYTES") >> 20),
];

/// Where the limits of an evaluation are set.
const LIMITS: &str = "crates/check/src/spec/error.rs";

fn runs_on_devices() -> u64 {
    let files = observation::files(&enter().join(observation::FOLDER)).expect("observations are there");
    files.iter().map(|path| observation::read(path).expect("observations are good").len() as u64).sum()
}

fn disagreements() -> u64 {
    text("docs/disagreements.md").lines().filter(|line| line.starts_with("## ")).count() as u64
}

fn protocols() -> u64 {
    let systems: BTreeSet<PathBuf> =
        files_under("specs/systems").iter().filter_map(|path| path.parent()).map(PathBuf::from).collect();
    systems.len() as u64
}

fn ways_in() -> u64 {
    let readme = text("README.md");
    let (_, section) = readme.split_once(" ways in\n").expect("the README says how to use it");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).count() as u64
}

fn random_programs() -> u64 {
    constant("tests/tests/laws.rs", "PROGRAMS")
}

/// Returns the value of a constant as a source file states it: a number, or one number moved by another.
fn constant(file: &str, name: &str) -> u64 {
    let source = text(file);
    let (_, stated) = source.split_once(&format!("const {name}: ")).expect("the file states the constant");
    let value = stated.split(['=', ';']).nth(1).expect("it has a value").replace('_', "");
    let mut numbers = value.split("<<").map(|number| number.trim().parse::<u64>().expect("a number"));
    let number = numbers.next().expect("splitting gives something");
    numbers.fold(number, |number, by| number << by)
}

/// Small numbers in words, from 0 on.
const WORDS: [&str; 13] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// Returns the number that a word of a text says, in figures or in letters.
fn number(word: &str) -> Option<u64> {
    let word = word.replace(',', "").to_lowercase();
    let said = WORDS.iter().zip(0..).find(|(said, _)| **said == word).map(|(_, number)| number);
    word.parse().ok().or(said)
}

/// Returns the text of a document without its line breaks.
fn flowing(document: &str) -> String {
    text(document).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first number that stands in a text between words that have `{}` in its place.
fn counted(text: &str, words: &str) -> Option<u64> {
    let (before, after) = words.split_once("{}").expect("the words have a place for a number");
    text.match_indices(after.trim_start()).find_map(|(at, _)| {
        let (front, word) = text[..at].trim_end().rsplit_once(' ')?;
        number(word).filter(|_| front.ends_with(before.trim_end()))
    })
}

#[test]
fn what_documents_count_is_right() {
    assert_eq!(counted("Of those, All but Five did it.", "All but {} did"), Some(5));
    let mut wrong = Vec::new();
    for (document, words, count) in COUNTED {
        match counted(&flowing(document), words) {
            Some(said) if said == count() => {}
            Some(said) => wrong.push(format!("{document}: \"{words}\" with {said}, and it is {}", count())),
            None => wrong.push(format!("{document} does not say \"{words}\"")),
        }
    }
    assert_none(&wrong);
}

/// What there may be more of tomorrow.
const GROWING: [&str; 12] = [
    "builtins",
    "checks",
    "crates",
    "fragments",
    "goldens",
    "laws",
    "nouns",
    "observations",
    "rules",
    "specs",
    "types",
    "verbs",
];

/// Returns the places where the prose of a document counts something that grows, as "five short rules".
fn counts(document: &str) -> Vec<String> {
    let prose: String = document.split("```").step_by(2).collect();
    let words: Vec<&str> = prose.split_whitespace().collect();
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if number(&bare(word)).is_none_or(|number| number < 3) {
            continue;
        }
        let next: Vec<String> = words[at + 1..].iter().take(2).map(|word| bare(word)).collect();
        if let Some(grows) = next.iter().position(|word| GROWING.contains(&word.as_str())) {
            found.push(format!("{} {}", bare(word), next[..=grows].join(" ")));
        }
    }
    found
}

#[test]
fn no_document_counts_what_is_not_checked() {
    assert_eq!(counts("It has five short rules, and 17 verbs."), ["five short rules", "17 verbs"]);
    let mut wrong = Vec::new();
    for document in documents() {
        for found in counts(&text(&document)) {
            let said = found.split_once(' ').map(|(_, what)| format!("{{}} {what}")).unwrap_or_default();
            if !COUNTED
                .iter()
                .any(|(in_document, words, _)| document.as_os_str() == *in_document && words.contains(&said))
            {
                wrong.push(format!(
                    "{} counts \"{found}\"; say it in COUNTED, or not at all",
                    document.display()
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_readme_says_what_each_dependency_saves() {
    let manifest = text("Cargo.toml");
    let (_, table) = manifest.split_once("[workspace.dependencies]\n").expect("versions are stated once");
    let table = table.split("\n[").next().unwrap_or_default();
    let theirs = table.lines().filter(|line| !line.contains("path = "));
    let depended: BTreeSet<String> =
        theirs.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect();
    let readme = text("README.md");
    let (_, section) = readme.split_once("## Dependencies\n").expect("the README has a table of them");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let explained: BTreeSet<String> =
        rows.flat_map(|cell| cell.split(", ")).map(|name| name.replace('`', "")).collect();
    let mut wrong: Vec<String> =
        depended.difference(&explained).map(|name| format!("README.md does not explain {name}")).collect();
    wrong.extend(
        explained.difference(&depended).map(|name| format!("README.md explains {name}, which nothing uses")),
    );
    assert_none(&wrong);
}
