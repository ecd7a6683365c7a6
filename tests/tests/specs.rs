//! Every spec of the repository does what it states, and reads as its golden report.
//!
//! Not here: whether a report says what matters (`reasons.rs`), and that every rule has its specs (`tidy.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rankcheck::device::seen::add_seen;
use rankcheck::report;
use rankcheck::search::{Detail, Explained, Options, search, verdict};
use rankcheck::spec::{self, Spec};
use rankcheck_model::{Config, Source};
use rankcheck_tests::repository::{differs_from_golden, enter, specs};

/// A spec file, and what came out of each of its checks.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) spec: Spec,
    pub(crate) explained: Vec<Explained>,
}

fn verified_file(path: &Path) -> Result<File, String> {
    let wrong = |error| format!("{}: {error}", path.display());
    let spec = spec::load(path).map_err(wrong)?;
    let options = Options::telling(Detail::Reason);
    let explained = spec
        .checks
        .iter()
        .map(|check| {
            let mut explained = search(&spec, check, &options).map_err(wrong)?;
            add_seen(&mut explained, &spec, check).map_err(wrong)?;
            Ok(explained)
        })
        .collect::<Result<_, String>>()?;
    Ok(File { path: path.to_owned(), spec, explained })
}

/// A program that was explored for a check.
pub(crate) struct CheckedProgram {
    /// The file, the check, and for which ranks and parameters.
    pub(crate) name: String,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) config: Config,
}

/// The programs of all checks, each for every rank count and parameter.
pub(crate) fn checked_programs() -> impl Iterator<Item = CheckedProgram> {
    let checks = verified().iter().flat_map(|file| {
        file.spec.checks.iter().zip(&file.explained).map(move |(check, explained)| (file, check, explained))
    });
    checks.flat_map(|(file, check, explained)| {
        explained.runs.iter().map(move |run| {
            let source = check.source(run.ranks, &run.params, &check.assume).expect("the check was searched");
            CheckedProgram {
                name: format!("{} \"{}\" {}", file.path.display(), check.name, run.setting()),
                source: Arc::new(source),
                config: verdict::config(check, run.ranks, run.platform, &check.assume),
            }
        })
    })
}

/// Every spec file, verified once for all tests of this binary.
pub(crate) fn verified() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        enter();
        let paths = specs();
        let next = AtomicUsize::new(0);
        let done: Mutex<BTreeMap<usize, Result<File, String>>> = Mutex::default();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(path) = paths.get(at) else { break };
                        let file = verified_file(path);
                        done.lock().expect("no spec panics").insert(at, file);
                    }
                });
            }
        });
        let files = done.into_inner().expect("no spec panics").into_values();
        files.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("a spec is bad: {error}"))
    })
}

#[test]
fn every_check_is_as_it_states() {
    let (mut wrong, mut checks) = (Vec::new(), 0);
    for file in verified() {
        for explained in &file.explained {
            checks += 1;
            let name = format!("{} \"{}\"", file.path.display(), explained.name);
            if let Some(why) = &explained.unexpected {
                wrong.push(format!("{name}: {why}"));
            }
            if explained.inconclusive() {
                wrong.push(format!("{name}: a bound was hit"));
            }
        }
    }
    println!("{checks} checks of {} files", verified().len());
    assert!(checks > 0, "no spec was found");
    assert!(wrong.is_empty(), "{} of {checks} checks:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_spec_reads_as_its_golden_report() {
    let mut wrong = Vec::new();
    for file in verified() {
        let reports: Vec<String> = file.explained.iter().map(report::text).collect();
        let right = file.explained.iter().all(|c| c.unexpected.is_none() && !c.inconclusive());
        let golden = file.path.with_extension("report");
        if right || std::env::var_os("UPDATE_GOLDEN").is_none() {
            wrong.extend(differs_from_golden(&golden, &(reports.join("\n\n") + "\n")));
        } else {
            wrong.push(format!("{} is not written: a check is not as it states", golden.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
