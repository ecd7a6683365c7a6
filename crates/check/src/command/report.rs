//! `rankcheck report`: writes an index of specs, recorded runs and dumps, and a page for each finding.
//!
//! Not here: what stands in a page ([`crate::page`]).

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use miette::Diagnostic as _;

use super::output;
use super::search::{at_least_one, search_each};
use crate::device::Agreement;
use crate::device::beside::{self, RankBeside, SeenOfCheck, beside};
use crate::dumps::{holds_dumps, judge_dumps};
use crate::launches::judge::JudgedJob;
use crate::logs::{holds_logs, judge_logs};
use crate::page::diagram::{AboutFinding, DeviceRank, DeviceSide, Diagram, Stated};
use crate::page::folder::{self, FolderError, INDEX};
use crate::page::html::{Among, page};
use crate::page::index::{IndexRow, Unread, index};
use crate::page::{explained, launched, recorded, sources};
use crate::runs::RunError;
use crate::runs::judge::{self, Judged};
use crate::search::{Detail, Explained, KeptOfRun, Options};
use crate::spec::{Check, Spec, SpecError, has_specs};
use crate::{runs, search};

#[derive(Debug, clap::Args)]
pub(super) struct ReportArguments {
    /// Spec files (*.star), recorded runs, dumps of PyTorch's Flight Recorder, NCCL logs, and folders of any of these.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The folder for index.html and the pages; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The folder that holds the programs of recorded runs and dumps, so that pages can show their lines.
    #[arg(long, value_name = "DIR")]
    sources: Option<PathBuf>,
    /// How many checks run at the same time [default: the number of cores].
    #[arg(long, value_parser = at_least_one)]
    jobs: Option<NonZero<usize>>,
}

/// What lies at the paths.
#[derive(Default)]
struct Inputs {
    specs: Vec<PathBuf>,
    recordings: Vec<PathBuf>,
    dumps: Vec<PathBuf>,
    logs: Vec<PathBuf>,
}

impl Inputs {
    fn of(paths: &[PathBuf]) -> Self {
        let mut inputs = Self::default();
        for path in paths {
            if runs::is_recording(path) {
                inputs.recordings.push(path.clone());
                continue;
            }
            let before = inputs.recordings.len();
            inputs.recordings.extend(runs::recordings_below(path));
            let (dumps, logs) = (holds_dumps(path), holds_logs(path));
            if dumps {
                inputs.dumps.push(path.clone());
            }
            if logs {
                inputs.logs.push(path.clone());
            }
            let runs = dumps || logs || inputs.recordings.len() > before;
            if !runs || has_specs(path) {
                inputs.specs.push(path.clone());
            }
        }
        inputs
    }
}

impl ReportArguments {
    pub(super) fn run(&self) -> u8 {
        if let Some(folder) = &self.sources
            && let Err(code) = output::wants_folder(folder, "--sources")
        {
            return code;
        }
        self.write().unwrap_or_else(|error| output::bad(&error))
    }

    fn write(&self) -> Result<u8, FolderError> {
        folder::prepare(&self.out)?;
        let inputs = Inputs::of(&self.paths);
        let sources = self.sources.as_deref();
        let mut report = ReportWriter {
            out: &self.out,
            sources,
            rows: Vec::new(),
            unread: Vec::new(),
            names: BTreeSet::new(),
        };
        report.names.insert(INDEX.to_owned());
        if !inputs.specs.is_empty() {
            report.specs(&inputs.specs, self.jobs)?;
        }
        for run in &inputs.recordings {
            report.recording(run)?;
        }
        if !inputs.dumps.is_empty() {
            report.jobs(judge_dumps(&inputs.dumps).map_err(|error| error.to_string()))?;
        }
        if !inputs.logs.is_empty() {
            report.jobs(judge_logs(&inputs.logs).map_err(|error| error.to_string()))?;
        }
        folder::write(&self.out, INDEX, &index(&report.rows, &report.unread))?;
        folder::remove_others(&self.out, &report.names)?;
        output::line(self.out.join(INDEX).display());
        output::line(report.summary());
        Ok(report.exit_code())
    }
}

/// A report that is being written.
struct ReportWriter<'a> {
    out: &'a Path,
    sources: Option<&'a Path>,
    rows: Vec<IndexRow>,
    unread: Vec<Unread>,
    names: BTreeSet<String>,
}

impl ReportWriter<'_> {
    fn specs(&mut self, paths: &[PathBuf], threads: Option<NonZero<usize>>) -> Result<(), FolderError> {
        let (specs, bad) = super::load_each(paths);
        self.cannot(&bad);
        let checks = specs.iter().flat_map(|spec| spec.checks.iter().map(move |check| (spec, check)));
        let jobs: Vec<(&Spec, &Check)> = checks.collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let options = Options { kept: KeptOfRun::Memory, ..Options::telling(Detail::Repair) };
        let results = search_each(&jobs, &options, threads, |_, explained| explained);
        let (mut found, mut bad) = (Vec::new(), Vec::new());
        for (nth, result) in results {
            match result {
                Ok(explained) => found.push((jobs[nth], explained)),
                Err(error) => bad.push(error),
            }
        }
        self.cannot(&bad);
        for ((spec, check), explained) in &found {
            match beside(spec, check) {
                Ok(seen) => self.check(explained, &seen)?,
                Err(error) => self.cannot(&[error]),
            }
        }
        Ok(())
    }

    fn cannot(&mut self, bad: &[SpecError]) {
        for error in bad {
            output::bad(error);
            self.unread.push(Unread {
                message: error.to_string(),
                at: error.loc().map(ToString::to_string),
                help: error.help().map(|help| help.to_string()),
            });
        }
    }

    fn check(&mut self, of: &Explained, seen: &SeenOfCheck) -> Result<(), FolderError> {
        let mut row = check_row(of, seen);
        if of.counterexample.is_some() || row.stated != Stated::Holds || seen.disagrees() {
            let mut diagram = explained::diagram(of);
            diagram.devices = device_sides(of, seen);
            row.page = Some(self.page(&diagram, &of.file)?);
        }
        self.rows.push(row);
        Ok(())
    }

    fn recording(&mut self, folder: &Path) -> Result<(), FolderError> {
        let judged = judge::judge_jobs(judge::read_jobs(folder), None);
        judged.into_iter().try_for_each(|job| self.recorded_job(job))
    }

    fn recorded_job(&mut self, judged: Result<Judged, RunError>) -> Result<(), FolderError> {
        let diagram = judged.and_then(|judged| Ok((recorded::diagram(&judged)?, judged)));
        match diagram {
            Ok((diagram, judged)) => {
                let never = judged.left_out.iter().map(ToString::to_string).collect();
                let row = run_row(&diagram, judged_of(&judged), never);
                self.run(row, diagram)
            }
            Err(error) => {
                self.cannot(&[SpecError::new(error.to_string(), None)]);
                Ok(())
            }
        }
    }

    fn jobs(&mut self, judged: Result<Vec<JudgedJob>, String>) -> Result<(), FolderError> {
        let jobs: Vec<JudgedJob> = match judged {
            Ok(jobs) => jobs,
            Err(error) => {
                self.cannot(&[SpecError::new(error, None)]);
                return Ok(());
            }
        };
        for job in &jobs {
            let diagram = launched::diagram(job);
            let judged = fact(&diagram, "judged").join(" ");
            let row = run_row(&diagram, judged, Vec::new());
            self.run(row, diagram)?;
        }
        Ok(())
    }

    fn run(&mut self, mut row: IndexRow, mut diagram: Diagram) -> Result<(), FolderError> {
        if row.stated != Stated::Holds {
            if let Some(folder) = self.sources {
                sources::add(&mut diagram, folder);
            }
            row.page = Some(self.page(&diagram, &diagram.about.place)?);
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes a page, and returns its name.
    fn page(&mut self, diagram: &Diagram, subject: &str) -> Result<String, FolderError> {
        let name = folder::file_name(&diagram.about.title, subject);
        folder::write(self.out, &name, &page(diagram, Among::Several))?;
        self.names.insert(name.clone());
        Ok(name)
    }

    fn count(&self, stated: Stated) -> usize {
        self.rows.iter().filter(|row| row.stated == stated).count()
    }

    fn summary(&self) -> String {
        let pages = self.names.len() - 1;
        let (failed, unknown) = (self.count(Stated::No), self.count(Stated::Unknown));
        let expected = self.count(Stated::Failure);
        let passed = self.count(Stated::Holds) + expected;
        let text = crate::report::summary(passed, failed, unknown, expected);
        let bad = match self.unread.len() {
            0 => String::new(),
            bad => format!("; {bad} could not be judged"),
        };
        format!("{text}{bad}; {pages} {}", if pages == 1 { "page" } else { "pages" })
    }

    fn exit_code(&self) -> u8 {
        match (self.unread.len(), self.count(Stated::No), self.count(Stated::Unknown)) {
            (0, 0, 0) => 0,
            (0, 0, _) => 3,
            (0, ..) => 1,
            _ => output::BAD,
        }
    }
}

fn fact<'a>(diagram: &'a Diagram, label: &str) -> &'a [String] {
    let facts = diagram.about.facts.iter();
    facts.filter(|fact| fact.label == label).map(|fact| fact.lines.as_slice()).next().unwrap_or_default()
}

fn judged_of(judged: &Judged) -> String {
    judged.coverage.to_string()
}

/// The folder that a path lies in.
fn system(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && !part.contains('*')).collect();
    parts.len().checked_sub(2).map_or_else(String::new, |at| parts[at].to_owned())
}

fn verdict(diagram: &Diagram) -> String {
    match &diagram.about.rule {
        Some(rule) if diagram.about.verdict == "FAILS" => format!("FAILS {}", rule.id),
        _ => diagram.about.verdict.to_owned(),
    }
}

/// What goes wrong; nothing where nothing does.
fn headline(about: &AboutFinding) -> String {
    if about.stated == Stated::Holds { String::new() } else { about.headline.clone() }
}

fn run_row(diagram: &Diagram, judged: String, never: Vec<String>) -> IndexRow {
    let about = &diagram.about;
    IndexRow {
        stated: about.stated,
        verdict: verdict(diagram),
        title: about.title.clone(),
        system: system(&about.place),
        place: about.place.clone(),
        setting: about.setting.clone(),
        headline: headline(about),
        sentence: about.sentence.clone(),
        outcome: about.outcome.clone(),
        devices: String::new(),
        judged,
        never,
        page: None,
    }
}

fn check_row(of: &Explained, seen: &SeenOfCheck) -> IndexRow {
    let about = explained::about(of);
    let coverage =
        of.runs.iter().map(|run| run.coverage.clone()).reduce(|a, b| a.max(&b)).unwrap_or_default();
    let mut never: Vec<String> = coverage
        .idle_sides
        .iter()
        .map(|side| format!("never anything after {} ({})", side.answer, side.loc))
        .collect();
    let all_runs = of.runs.iter().all(|run| coverage.idle_ranks.len() < run.ranks as usize);
    if !coverage.idle_ranks.is_empty() && all_runs {
        let ranks = rankcheck_model::ranks_in_words(coverage.idle_ranks.iter().copied());
        never.push(format!("nothing by {ranks}"));
    }
    let counts: Vec<String> = of.ranks.iter().map(u32::to_string).collect();
    let many = of.runs.len() > 1;
    let setting = if many {
        format!("{} ranks, {} programs", counts.join(", "), of.runs.len())
    } else {
        about.setting.clone()
    };
    let judged = match (of.asked, coverage.nothing()) {
        (search::Asked::SameOperations, _) => "two programs are compared".to_owned(),
        (search::Asked::Rules, true) => "nothing".to_owned(),
        (search::Asked::Rules, false) => coverage.to_string(),
    };
    let verdict = match &about.rule {
        Some(rule) if about.verdict == "FAILS" => format!("FAILS {}", rule.id),
        _ => about.verdict.to_owned(),
    };
    IndexRow {
        stated: about.stated,
        verdict,
        headline: headline(&about),
        title: about.title,
        system: system(&of.file),
        place: about.place,
        setting,
        sentence: about.sentence,
        outcome: about.outcome,
        devices: beside::summary(seen),
        judged,
        never,
        page: None,
    }
}

/// What devices did with the program of the run that is shown, and whatever they did otherwise than the model says.
fn device_sides(of: &Explained, seen: &SeenOfCheck) -> Vec<DeviceSide> {
    let run = of.run();
    let params: Vec<(String, String)> =
        run.params.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let same = |beside: &&beside::Beside| beside.ranks == run.ranks && beside.params == params;
    let differs = |beside: &&beside::Beside| matches!(beside.judgement.agreement, Agreement::Disagrees(_));
    let wanted = seen.behaviours.iter().filter(|beside| same(beside) || differs(beside));
    let side = |of: &beside::Beside| {
        let (agrees, difference) = match &of.judgement.agreement {
            Agreement::Agrees | Agreement::AgreesOtherwise => (Some(true), None),
            Agreement::Undefined => (Some(true), Some("nobody specifies what follows".to_owned())),
            Agreement::Disagrees(difference) => (Some(false), Some(difference.to_string())),
            Agreement::NotComparable(why) => (None, Some(why.clone())),
        };
        let mut machine = format!("{}, {} ranks", of.machine, of.ranks);
        for (name, value) in &of.params {
            machine.push_str(&format!(", {name} = {value}"));
        }
        if !of.forced.is_empty() {
            machine.push_str(&format!(", forced: {}", of.forced));
        }
        let ranks = of.each.iter().cloned().map(|RankBeside { predicted, ended, held }| DeviceRank {
            predicted,
            ended,
            held,
        });
        DeviceSide { machine, runs: of.count, agrees, difference, ranks: ranks.collect() }
    };
    wanted.map(side).collect()
}
