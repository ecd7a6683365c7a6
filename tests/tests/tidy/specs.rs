//! Rules, specs, reports and builtins agree with one another.
//!
//! Not here: what specs say of their protocols.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rankcheck::spec::{self, CheckKind, Expect};
use rankcheck_model::Rule;
use rankcheck_tests::repository::{enter, files_under, specs};

use super::{assert_none, has_extension, text};

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
                CheckKind::Program(Expect::Holds { .. } | Expect::Nothing) | CheckKind::SameOperations => {}
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
