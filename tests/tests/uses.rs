//! Wrong uses of the command: what each prints, as text and as JSON, and its exit code. `UPDATE_GOLDEN=1` writes it anew.
//!
//! Not here: what is wrong with one spec (`broken.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rankcheck_tests::repository::{differs_from_golden, enter};
use rstest::{Context, rstest};
use serde_json::Value;

use crate::built::{command, folder};
use crate::reported::wrong_in;

const HOLDS: &str = r#"def meet(r):
    r.barrier()

check("all meet", meet, expect = holds())
"#;

const FAILS: &str = r#"def meet(r):
    if r.rank > 0:
        r.barrier()

check("one is late", meet, expect = fails("HOST-1"))
"#;

/// Returns a folder with what is used wrongly, made once.
fn used() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = folder("uses");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file can be written");
        write("holds.star", HOLDS);
        write("fails.star", FAILS);
        write("syntax.star", "def meet(r)\n    r.barrier()\n");
        write("helper.star", "def meet(r):\n    r.barrier()\n");
        let depth = 1500;
        write("nested.star", &format!("\nx = (1 +\n     {}1{})\n{HOLDS}", "[".repeat(depth), "]".repeat(depth)));
        write("sum.star", &format!("def long(r):\n    return (0{})\n{HOLDS}", "\n        + 1".repeat(20_000)));
        let doubles = "def doubles(r):\n    text = \"ab\"\n    for _ in range(60):\n        text += text\n    r.step(text)\n";
        write("doubles.star", &format!("{doubles}{HOLDS}check(\"doubles\", doubles)\n"));
        let grows = "def grows(r):\n    sizes = [1, 2]\n    for _ in range(60):\n        sizes.extend(sizes)\n";
        write("grows.star", &format!("{grows}{HOLDS}check(\"grows\", grows)\n"));
        let repeats = "def repeats(r):\n    zeros = [0, 0] * 1000000000\n";
        write("repeats.star", &format!("{repeats}{HOLDS}check(\"repeats\", repeats)\n"));
        let many = "def many(r):\n    for n in range(6):\n        r.choose(str(n), [\"a\", \"b\", \"c\", \"d\"])\n    r.barrier()\n";
        write("many.star", &format!("{HOLDS}{many}check(\"many\", many, ranks = 8, expect = holds())\n"));
        let file = "sizes = [1, 2]\ndef grow():\n    for _ in range(60):\n        sizes.extend(sizes)\ngrow()\n";
        write("top.star", &format!("{file}{HOLDS}"));
        let nest = "def nest(depth):\n    value = ()\n    for _ in range(depth):\n        value = (value,)\n    return value\n";
        write("deep.star", &format!("{nest}deep = nest(300000)\n{HOLDS}"));
        let pushes = "def pushes(r):\n    r.list(\"values\").push(nest(300000))\n";
        write("pushes.star", &format!("{nest}{pushes}{HOLDS}check(\"pushes\", pushes)\n"));
        let doubles = "def doubles(r):\n    pair = (1, 2)\n    for _ in range(60):\n        pair = (pair, pair)\n    r.list(\"values\").push(pair)\n";
        write("pairs.star", &format!("{doubles}{HOLDS}check(\"doubles\", doubles)\n"));
        let joins = "def joins():\n    part = \"x\" * 5000000\n    return \",\".join([part for _ in range(50000)])\n";
        write("joins.star", &format!("{joins}def joined(r):\n    r.step(joins())\n{HOLDS}check(\"joined\", joined)\n"));
        write("joined.star", &format!("{joins}TEXT = joins()\n{HOLDS}"));
        write("file", "");
        let letters: Vec<u8> = "\u{feff}vm:1:1 [0] NCCL INFO Bootstrap".encode_utf16().flat_map(u16::to_le_bytes).collect();
        fs::write(folder.join("windows.log"), letters).expect("a file can be written");
        folder
    })
}

/// Runs a command line of bash in which `rankcheck` is the command, and tells what became of it.
fn ran(script: &str) -> (String, String) {
    let bash = |script: &str| {
        let script = format!("rankcheck() {{ {:?} \"$@\"; }}; set -o pipefail; {script}", command());
        let output =
            Command::new("bash").args(["-c", &script]).current_dir(used()).env("NO_COLOR", "1").output();
        output.expect("bash starts")
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command writes UTF-8");
    let output = bash(script);
    let printed = text(output.stdout);
    let told = format!(
        "$ {script}\n{printed}--- standard error\n{}--- exit code {}\n",
        text(output.stderr),
        output.status.code().expect("the command is not killed")
    );
    (told, printed)
}

/// Whatever differs from run to run.
fn steady(text: &str) -> String {
    // How long something took, and how far it came until a bound was noticed.
    let varies = ["\"milliseconds\": ", "\"steps\": "];
    let line = |line: &str| match varies
        .iter()
        .find_map(|key| line.split_once(key).map(|(before, _)| (before, key)))
    {
        Some((before, key)) => format!("{before}{key}0\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The golden of `a_case` is `tests/broken/uses/a_case.txt`. Each case is run as text and, where it checks, as JSON, which
/// fits the schema where there is any.
#[rstest]
#[case::unknown_flag("check holds.star --max-state 5")]
#[case::missing_file("check nowhere.star holds.star")]
#[case::bad_spec("check syntax.star holds.star")]
#[case::helper_alone("check helper.star")]
#[case::traces_into_a_file("check fails.star --trace-out file/below")]
#[case::unknown_rule("explain COLL-99")]
#[case::unknown_platform("check holds.star --platform 2.29.1")]
#[case::spec_as_recording("timeline holds.star -o timeline.json")]
#[case::bad_bound("check holds.star --max-memory lots")]
#[case::reader_that_leaves("check fails.star | head -c 5")]
#[case::no_jobs("check holds.star --jobs 0")]
#[case::full_disk("check holds.star > /dev/full")]
#[case::nested_too_deep("check nested.star holds.star -q")]
#[case::sum_too_long("check sum.star holds.star -q")]
#[case::string_that_doubles("check doubles.star")]
#[case::list_that_doubles("check grows.star")]
#[case::list_of_a_file_that_doubles("check top.star holds.star -q")]
#[case::list_that_no_memory_holds("check repeats.star")]
#[case::value_of_a_file_that_is_nested_deep("check deep.star")]
#[case::value_that_is_nested_too_deep("check pushes.star")]
#[case::value_that_doubles("check pairs.star")]
#[case::text_that_no_memory_holds("check joins.star joined.star")]
#[case::waiver_for_a_spec("check fails.star --waive HOST-1=restarted")]
#[case::waiver_without_a_reason("check fails.star --waive HOST-1")]
#[case::waiver_of_no_rule("check fails.star --waive HOST-99=restarted")]
#[case::log_of_two_bytes_a_letter("check windows.log")]
#[case::memory_that_ends("check many.star --max-memory 10MiB")]
fn a_wrong_use_is_told(#[context] context: Context, #[case] arguments: &str) {
    let (mut told, _) = ran(&format!("rankcheck {arguments}"));
    if let Some(rest) = arguments.strip_prefix("check") {
        let (as_json, printed) = ran(&format!("rankcheck check --format json{rest}"));
        told += &as_json;
        if let Ok(report) = serde_json::from_str::<Value>(&printed) {
            assert_eq!(wrong_in(&report), [""; 0]);
        }
    }
    let name = context.description.expect("every case has a name");
    let golden = enter().join(format!("tests/broken/uses/{name}.txt"));
    assert_eq!(differs_from_golden(&golden, &steady(&told)), None);
}
