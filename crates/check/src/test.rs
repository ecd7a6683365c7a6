//! Checks as tests of a crate: a test target of its own, in which each check is one test.
//!
//! ```toml
//! [dev-dependencies]
//! rankcheck = { version = "0.1", default-features = false }
//!
//! [[test]]
//! name = "protocols"
//! harness = false
//! ```
//!
//! ```no_run
//! // tests/protocols.rs
//! use rankcheck::closure::{Program, holds};
//! use rankcheck::test::{self, closure, specs};
//!
//! fn main() {
//!     let barrier = Program::new([2, 3, 4], |r| r.barrier(None));
//!     test::main([specs("specs"), closure("a barrier", barrier, holds())])
//! }
//! ```
//!
//! `cargo test --test protocols WORD` runs the tests whose name contains the word. The name of a check of a spec is
//! `file.star: check`. One that fails prints its report.
//! Not here: closures within `#[test]`, which need no target of their own ([`crate::closure::Program::expect`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use libtest2_mimic::{Harness, RunError, Trial};

use crate::closure::Program;
use crate::report;
use crate::search::{Detail, Explained, Options, search};
use crate::spec::{Expect, SpecError, load, load_any, spec_files};

/// What is tested, and what is wrong with it, if something is.
struct NamedTest {
    name: String,
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// Tests that have names, from a folder of specs or from closures.
pub struct Tests(Vec<NamedTest>);

/// A test for each check of the spec files in a folder, or of a file. Folders named `lib` are left out.
pub fn specs(path: impl AsRef<Path>) -> Tests {
    let path = path.as_ref();
    let (files, bad) = spec_files(&[path.to_owned()]);
    match bad.first() {
        None => Tests(files.iter().flat_map(|file| checks(path, file)).collect()),
        Some(error) => Tests(vec![wrong(path.display().to_string(), error.to_string())]),
    }
}

/// A test of a closure.
pub fn closure(name: &str, program: Program, expected: impl Into<Expect>) -> Tests {
    let program = program.named(name).expecting(expected);
    Tests(vec![NamedTest { name: name.to_owned(), run: Box::new(move || judged(program.check())) }])
}

/// Runs tests as the arguments of the process say, and ends it.
pub fn main(tests: impl IntoIterator<Item = Tests>) -> ! {
    // Nothing is printed but reports, which are shown in any case.
    let output = ["--nocapture", "--no-capture", "--show-output"];
    let arguments = std::env::args_os().filter(|argument| !output.iter().any(|known| argument == known));
    let trial =
        |NamedTest { name, run }: NamedTest| Trial::test(name, move |_| run().map_err(RunError::fail));
    // Two folders may have files of one name, and the harness tells running tests apart by their names.
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let named_apart = |mut test: NamedTest| {
        let times = seen.entry(test.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            test.name = format!("{} ({times})", test.name);
        }
        test
    };
    let trials = tests.into_iter().flat_map(|Tests(cases)| cases).map(named_apart).map(trial);
    Harness::with_args(arguments).discover(trials).main()
}

/// A test that fails because of what is wrong with its input.
fn wrong(name: String, message: String) -> NamedTest {
    NamedTest { name, run: Box::new(move || Err(message.clone())) }
}

fn checks(folder: &Path, file: &Path) -> Vec<NamedTest> {
    let name = file.strip_prefix(folder).ok().filter(|rest| !rest.as_os_str().is_empty());
    let name = name.unwrap_or(file).display().to_string();
    // A file that is found in the folder may be there to be loaded by others.
    let loaded = if folder == file { load(file) } else { load_any(file) };
    let spec = match loaded {
        Ok(spec) => Arc::new(spec),
        Err(error) => return vec![wrong(name, error.drawn())],
    };
    let case = |nth: usize| {
        let spec = Arc::clone(&spec);
        let name = format!("{name}: {}", spec.checks[nth].name);
        let options = Options { unstated: Detail::Reason, ..Options::default() };
        NamedTest { name, run: Box::new(move || judged(search(&spec, &spec.checks[nth], &options))) }
    };
    (0..spec.checks.len()).map(case).collect()
}

fn judged(found: Result<Explained, SpecError>) -> Result<(), String> {
    match found {
        Ok(explained) if explained.as_stated() => Ok(()),
        Ok(explained) => Err(report::text(&explained)),
        Err(error) => Err(error.drawn()),
    }
}
