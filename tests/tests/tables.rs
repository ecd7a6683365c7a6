//! Every table of a state is its noun's own: no other file of the model names it, and nobody else sees its fields.
//!
//! Not here: that a table is renumbered and hashed whole, which the compiler sees to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rankcheck_tests::repository::{enter, files_under};

const MODEL: &str = "crates/model/src";

/// The code of the files of the model, by path below its root, without comments.
fn model() -> BTreeMap<String, String> {
    let root = enter();
    let files = files_under(MODEL).into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let code = |path: &Path| -> String {
        let text = fs::read_to_string(root.join(path)).expect("a listed file can be read");
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let named = files.map(|path| {
        let below = path.strip_prefix(MODEL).expect("listed below it").to_string_lossy().into_owned();
        (below, code(&path))
    });
    named.collect()
}

/// The types of the tables, as the state lists them: `field: Table = identity numbers,`.
fn tables(state: &str) -> Vec<String> {
    let blocks =
        state.split("\ntables! {").skip(1).map(|block| block.split("\n}").next().unwrap_or_default());
    let rows = blocks.flat_map(str::lines).filter_map(|line| line.split_once(" = ")?.0.split_once(": "));
    let mut tables: Vec<String> = rows.map(|(_, table)| table.trim().to_owned()).collect();
    tables.sort();
    tables.dedup();
    tables
}

/// The noun of a file: `noun/window` of `noun/window.rs` and of what stands in `noun/window/`.
fn noun(path: &str) -> String {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').take(2).collect();
    parts.join("/")
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}

#[test]
fn a_table_is_named_by_its_noun_alone() {
    let files = model();
    let tables = tables(&files["state.rs"]);
    assert!(tables.len() > 20, "the state lists its tables otherwise: {tables:?}");
    let mut wrong = Vec::new();
    for table in tables {
        let defines = |code: &str| code.contains(&format!("struct {table} {{"));
        let Some((home, code)) = files.iter().find(|(_, code)| defines(code)) else {
            wrong.push(format!("{table} is defined nowhere"));
            continue;
        };
        let body = code.split(&format!("struct {table} {{")).nth(1).unwrap_or_default();
        let body = body.split("\n}").next().unwrap_or_default();
        if body.lines().any(|line| line.trim().starts_with("pub(crate)") || line.trim().starts_with("pub ")) {
            wrong.push(format!("{home}: fields of {table} are open to all"));
        }
        for (path, code) in &files {
            if path != "state.rs" && noun(path) != noun(home) && has_word(code, &table) {
                wrong.push(format!("{path} names {table}, which is the table of {home}"));
            }
        }
    }
    // Through the trait itself, a table could be reached without its name.
    for (path, code) in &files {
        if code.contains("Table::of") {
            wrong.push(format!("{path} reaches a table without its name"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
