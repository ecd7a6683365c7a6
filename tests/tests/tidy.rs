//! The repository keeps its own rules: ids, goldens, headers, names, and who may name which dependency.
//!
//! Not here: what formatter and linter check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rankcheck::spec::{self, CheckKind, Expect};
use rankcheck_model::Rule;
use rankcheck_tests::repository::{enter, files_under, specs};

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

fn text(path: &Path) -> String {
    fs::read_to_string(enter().join(path)).unwrap_or_default()
}

fn rust_files() -> Vec<PathBuf> {
    let files = files_under("crates").into_iter().chain(files_under("tests"));
    files.filter(|path| has_extension(path, "rs")).collect()
}

/// Everything that people write.
fn all_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(enter()).expect("the root can be read") {
        let name = entry.expect("entries can be listed").file_name().into_string().expect("ASCII names");
        if ["target", "shared", ".git"].contains(&name.as_str()) {
            continue;
        }
        files.extend(files_under(&name));
    }
    files
}

/// The code of a line, without comment and without what stands in quotes; nothing for lint attributes.
fn code_of(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default().trim();
    if line.starts_with("#[") || line.starts_with("#![") {
        return String::new();
    }
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Whether a line of code has this word, whatever stands around it.
fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rule_ids_are_the_same_everywhere() {
    let in_model: BTreeSet<String> = Rule::ALL.iter().map(|rule| rule.id().to_owned()).collect();
    let mut in_rules = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in files_under("specs/rules").iter().filter(|path| has_extension(path, "md")) {
        for heading in text(path).lines().filter_map(|line| line.strip_prefix("## ")) {
            let id = heading.split_whitespace().next().unwrap_or_default().to_owned();
            if !in_rules.insert(id.clone()) {
                wrong.push(format!("{id} has a second heading in {}", path.display()));
            }
        }
    }
    let (mut broken, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for path in specs() {
        let spec = spec::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for check in spec.checks {
            match check.kind {
                CheckKind::Program(Expect::Fails { rule, also, .. }) => {
                    broken.insert(rule);
                    broken.extend(also);
                }
                CheckKind::Program(Expect::Holds { .. }) if path.starts_with("specs/rules") => {
                    // "WIN-2 kept" and "WIN-2 kept: by one thread".
                    let mut words = check.name.split([' ', ':']);
                    if let (Some(id), Some("kept")) = (words.next(), words.next()) {
                        kept.insert(id.to_owned());
                    }
                }
                CheckKind::Program(Expect::Holds { .. }) | CheckKind::SameOperations => {}
            }
        }
    }
    let sets =
        [("the headings of specs/rules", &in_rules), ("failing checks", &broken), ("kept checks", &kept)];
    for (name, set) in sets {
        wrong.extend(in_model.difference(set).map(|id| format!("{id} is a rule, but not in {name}")));
        wrong.extend(set.difference(&in_model).map(|id| format!("{id} is in {name}, but no rule")));
    }
    assert_none(&wrong);
}

#[test]
fn every_spec_has_its_report_and_no_report_is_left_over() {
    let reports = files_under("specs").into_iter().filter(|path| has_extension(path, "report"));
    let found: BTreeSet<PathBuf> = reports.collect();
    let wanted: BTreeSet<PathBuf> = specs().iter().map(|path| path.with_extension("report")).collect();
    let mut wrong: Vec<String> =
        wanted.difference(&found).map(|path| format!("{} is missing", path.display())).collect();
    wrong.extend(found.difference(&wanted).map(|path| format!("{} has no spec", path.display())));
    for folder in ["tests/broken"] {
        for path in files_under(folder).iter().filter(|path| has_extension(path, "stderr")) {
            let input = path.with_extension("star");
            if !path.starts_with("tests/broken/command") && !enter().join(&input).exists() {
                wrong.push(format!("{} has no spec", path.display()));
            }
        }
    }
    assert_none(&wrong);
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

/// A word, and the only paths in which code may have it.
const CONFINED: [(&str, &[&str]); 5] = [
    ("stateright", &["crates/check/src/search/explore.rs"]),
    ("starlark", &["crates/check/src/spec.rs", "crates/check/src/spec/"]),
    ("cudarc", &["crates/real/"]),
    (
        "unsafe",
        &[
            "crates/real/src/ffi.rs",
            "crates/real/src/ffi/",
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

/// Paths of the repository in backticks.
fn mentioned_paths(document: &str) -> Vec<String> {
    let tops = ["crates/", "tests/", "specs/", "docs/", ".ci/", ".github/"];
    let quoted = document.split('`').skip(1).step_by(2);
    quoted
        .filter(|words| tops.iter().any(|top| words.starts_with(top)))
        .filter(|words| !words.contains(['<', '*', ' ', '{', '…']))
        .map(|words| words.split(':').next().unwrap_or_default().trim_end_matches('/').to_owned())
        .collect()
}

#[test]
fn the_architecture_names_every_source_file_and_nothing_else() {
    let path = Path::new("ARCHITECTURE.md");
    if !enter().join(path).exists() {
        println!("there is no ARCHITECTURE.md yet");
        return;
    }
    let mentioned = mentioned_paths(&text(path));
    let mut wrong = Vec::new();
    for name in &mentioned {
        if !enter().join(name).exists() {
            wrong.push(format!("ARCHITECTURE.md names {name}, which does not exist"));
        }
    }
    for file in files_under("crates").iter().filter(|path| has_extension(path, "rs")) {
        let in_source = file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
        // Naming the folder of a noun names its files; naming a whole crate does not.
        let named = mentioned.iter().any(|name| {
            let deep = Path::new(name).components().count() >= 3;
            file == Path::new(name) || (deep && !name.ends_with("/src") && file.starts_with(name))
        });
        if in_source && !named {
            wrong.push(format!("{} is not in ARCHITECTURE.md", file.display()));
        }
    }
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
    for line in text(Path::new("Cargo.lock")).lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != registry
        {
            wrong.push(format!("Cargo.lock has {line}"));
        }
    }
    assert_none(&wrong);
}

/// Builtins that one system alone uses, and what they are named after. Any other has to serve several systems: a
/// language that has a word for one design has its answer too.
const NAMED_AFTER: [(&str, &str); 22] = [
    ("all_gather", "ncclAllGather"),
    ("attempt", "Python's try"),
    ("context", "Python's with"),
    ("coresident", "an assumption about the device"),
    ("delete", "c10d::Store::deleteKey"),
    ("export", "cudaIpcGetMemHandle"),
    ("group_end", "ncclGroupEnd"),
    ("group_start", "ncclGroupStart"),
    ("ipc", "cudaIpc…"),
    ("lock", "std::mutex::lock"),
    ("locked", "std::lock_guard"),
    ("mem_alloc", "ncclMemAlloc"),
    ("mutex", "std::mutex"),
    ("open", "cudaIpcOpenMemHandle"),
    ("overlap", "a statement about time"),
    ("recv", "ncclRecv"),
    ("reduce_scatter", "ncclReduceScatter"),
    ("same_operations", "a statement about two programs"),
    ("send", "ncclSend"),
    ("split", "ncclCommSplit"),
    ("unlock", "std::mutex::unlock"),
    ("write", "cuStreamWriteValue32"),
];

/// The documented builtins: of the file, which are called by their names, and of values, which stand behind a dot.
fn builtins() -> BTreeMap<String, &'static str> {
    let document = text(Path::new("docs/spec-language.md"));
    let (mut found, mut before) = (BTreeMap::new(), "");
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            before = if heading == "The file" { "" } else { "." };
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split(" |").next()) else { continue };
        for word in format!("`{cell}").split('`').skip(1).step_by(2) {
            if word.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                found.insert(word.to_owned(), before);
            }
        }
    }
    found
}

/// The code of a spec and of all that it loads.
fn with_loaded(path: &Path, seen: &mut BTreeSet<PathBuf>) -> String {
    if !seen.insert(path.to_owned()) {
        return String::new();
    }
    let source = text(path);
    let mut code: String =
        source.lines().map(|line| line.split('#').next().unwrap_or_default().to_owned() + "\n").collect();
    for loaded in source.split("load(\"//").skip(1) {
        let name = loaded.split('"').next().unwrap_or_default();
        code += &with_loaded(&Path::new("specs").join(name), seen);
    }
    code
}

/// Whether code uses a builtin.
fn uses(code: &str, name: &str, before: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let (left, right) = (&code[..at], &code[at + name.len()..]);
        let begins = match before {
            "" => !left.ends_with(part_of_name) && !left.ends_with(['.', '"']) && right.starts_with('('),
            before => left.ends_with(before),
        };
        begins && !right.starts_with(part_of_name)
    })
}

#[test]
fn no_builtin_is_made_for_one_system() {
    let systems: BTreeSet<PathBuf> = specs()
        .iter()
        .filter(|path| path.starts_with("specs/systems"))
        .filter_map(|p| p.parent())
        .map(Path::to_owned)
        .collect();
    let code: BTreeMap<&PathBuf, String> = systems
        .iter()
        .map(|system| {
            let files = specs().into_iter().filter(|path| path.starts_with(system));
            (system, files.map(|path| with_loaded(&path, &mut BTreeSet::new())).collect())
        })
        .collect();
    let builtins = builtins();
    assert!(
        builtins.len() > 60 && systems.len() >= 5,
        "{} builtins, {} systems",
        builtins.len(),
        systems.len()
    );
    let mut wrong = Vec::new();
    for (name, before) in &builtins {
        let users: Vec<&&PathBuf> =
            code.iter().filter(|(_, code)| uses(code, name, before)).map(|(s, _)| s).collect();
        let excused = NAMED_AFTER.iter().any(|(of, _)| of == name);
        match users[..] {
            [user] if !excused => wrong.push(format!("{} alone uses {name}", user.display())),
            [_] => {}
            _ if excused => {
                wrong.push(format!("{name} is used by {} systems and needs no excuse", users.len()))
            }
            _ => {}
        }
    }
    wrong.extend(
        NAMED_AFTER
            .iter()
            .filter(|(name, _)| !builtins.contains_key(*name))
            .map(|(name, _)| format!("no builtin {name}")),
    );
    assert_none(&wrong);
}
