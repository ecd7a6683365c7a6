//! Observations: what a device did with the program of a check, kept so that the model can be compared later.
//!
//! One JSON document says what was run, where, and which distinct reports came back how often. Documented in
//! `docs/observations.md`. A run writes them as lines of one file; [`unpack`] files them by GPU, NCCL version
//! and spec. An observation whose program is no longer the recorded one is *stale* and says nothing.
//! Not here: how a report is compared ([`mod@super::compare`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rankcheck_model::Platform;
use rankcheck_real::case::{CommHistory, Ended, Forced, RankReport, Report};
use serde::{Deserialize, Serialize};

use super::digest::ProgramName;
use super::{Agreement, ComparedType, Difference, Judgement, PredictionQuery, Predictions, compare, predict};
use crate::spec::{self, Spec, SpecError};

/// Raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// The file that a run writes into the folder that it is given.
pub const FILE_NAME: &str = "observations.jsonl";

/// Where observations are kept, from the root of the repository.
pub const FOLDER: &str = "specs/observations";

/// The list of stale observations, in [`FOLDER`].
pub const STALE: &str = "stale.txt";

/// Where every committed observation that disagrees with the model is explained.
pub const DISAGREEMENTS: &str = "docs/disagreements.md";

/// What a device did with one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The [`SCHEMA_VERSION`] of the command that wrote the observation.
    pub schema_version: u32,
    /// Digest of the recorded program.
    pub digest: String,
    /// The program that was run.
    pub program: ProgramName,
    /// New or used communicators.
    pub comms: CommHistory,
    /// The facts that the program was recorded with.
    pub platform: Platform,
    /// Why contents are not compared, if they are not.
    pub contents_not_compared: Option<String>,
    /// Where it was run.
    pub machine: Testbed,
    /// Day of the run, in UTC.
    pub date: String,
    /// The command line that ran the program, without folders of the machine.
    pub command: String,
    /// What was seen, most frequent first.
    pub seen: Vec<ObservedBehaviour>,
}

/// Where an observation was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testbed {
    /// Name of the GPUs.
    pub gpu: String,
    /// CUDA version of the driver.
    pub driver: String,
    /// NCCL version, as the library says.
    pub nccl: String,
    /// Whether NCCL could use multicast.
    pub multicast: Multicast,
}

/// Whether NCCL could use multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multicast {
    /// It was switched off by `NCCL_NVLS_ENABLE=0`.
    Off,
    /// It was not switched off.
    Allowed,
}

/// One distinct behaviour: equal reports of all ranks for equal forced values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedBehaviour {
    /// In how many runs.
    pub count: u32,
    /// The nondeterminism that was forced.
    pub forced: Forced,
    /// What each rank reported, without what differs from run to run.
    pub ranks: Vec<RankReport>,
}

/// Why observations cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObservationError {
    /// A file or folder.
    #[error("{path}: {cause}")]
    File {
        /// The file or folder.
        path: String,
        /// What the operating system says.
        cause: std::io::Error,
    },
    /// A document is none.
    #[error("{path}:{line} is no observation: {cause}")]
    Document {
        /// The file that holds the document.
        path: String,
        /// The line, from 1.
        line: usize,
        /// Why the line cannot be read as an observation.
        cause: serde_json::Error,
    },
    /// A document of another schema.
    #[error("{path}:{line} has schema version {found}, this command reads {SCHEMA_VERSION}")]
    Schema {
        /// The file that holds the document.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The schema version that the file has.
        found: u32,
    },
}

impl Observation {
    /// An observation of nothing yet.
    #[must_use]
    pub fn new(program: ProgramName, predictions: &Predictions, machine: &Testbed, command: &str) -> Self {
        let contents_not_compared = match &predictions.element {
            ComparedType::Of(_) => None,
            ComparedType::None(why) => Some(why.clone()),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            digest: predictions.digest.clone(),
            program,
            comms: predictions.comms,
            platform: predictions.platform,
            contents_not_compared,
            machine: machine.clone(),
            date: today(),
            command: command.to_owned(),
            seen: Vec::new(),
        }
    }

    /// Counts a report of one run: as one more of a behaviour seen before, or as a new one.
    pub fn add(&mut self, forced: &Forced, report: &Report) {
        let ranks: Vec<RankReport> = report.ranks.iter().map(lasting).collect();
        match self.seen.iter_mut().find(|seen| seen.forced == *forced && seen.ranks == ranks) {
            Some(seen) => seen.count += 1,
            None => self.seen.push(ObservedBehaviour { count: 1, forced: forced.clone(), ranks }),
        }
        self.seen.sort_by_key(|seen| std::cmp::Reverse(seen.count));
    }

    /// What was run, for people: the same for every machine.
    #[must_use]
    pub fn title(&self) -> String {
        title(&self.program, self.comms)
    }

    /// The folder of its machine.
    #[must_use]
    pub fn folder(&self) -> String {
        let gpu = self.machine.gpu.to_lowercase();
        let gpu = gpu.strip_prefix("nvidia ").unwrap_or(&gpu);
        format!("{}-nccl-{}", slug(gpu), self.machine.nccl)
    }

    /// Its file, under [`FOLDER`].
    #[must_use]
    pub fn file(&self) -> PathBuf {
        Path::new(&self.folder()).join(file_name(&self.program.spec))
    }

    fn key(&self) -> (&ProgramName, bool) {
        (&self.program, self.comms == CommHistory::Warm)
    }

    fn replaces(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// The name of the file in which observations of a spec stand.
#[must_use]
pub fn file_name(spec: &str) -> String {
    let spec = spec.strip_prefix("specs/").unwrap_or(spec);
    let stem = spec.strip_suffix(".star").unwrap_or(spec).trim_matches(['.', '/']);
    format!("{}.json", stem.replace('/', "."))
}

/// What was run, for people.
#[must_use]
pub fn title(program: &ProgramName, comms: CommHistory) -> String {
    let mut title = format!("{} \"{}\", {} ranks", program.spec, program.check, program.ranks);
    for (name, value) in &program.params {
        let _ = write!(title, ", {name} = {value}");
    }
    title.push_str(match comms {
        CommHistory::Fresh => ", fresh",
        CommHistory::Warm => ", warm",
    });
    title
}

fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// A report without what differs from run to run: addresses in the texts of libraries.
fn lasting(rank: &RankReport) -> RankReport {
    let mut rank = rank.clone();
    for failed in &mut rank.errors {
        failed.detail = None;
    }
    rank
}

/// How a run ended, for people.
#[must_use]
pub fn ends(ranks: &[RankReport]) -> String {
    let mut ranks_by_end: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (rank, report) in ranks.iter().enumerate() {
        let end = match &report.ended {
            Ended::HostHang { .. } => "host hang",
            Ended::GpuHang { .. } => "gpu hang",
            Ended::Dead { .. } => "dead",
            Ended::Broken { .. } => "cuda error",
            Ended::Lost { .. } => "lost",
            Ended::Finishes if !report.errors.is_empty() => "error",
            Ended::Finishes => "finishes",
        };
        ranks_by_end.entry(end).or_default().push(rank.to_string());
    }
    if let [(end, _)] = ranks_by_end.iter().collect::<Vec<_>>()[..] {
        return (*end).to_owned();
    }
    let ends: Vec<String> =
        ranks_by_end.into_iter().map(|(end, ranks)| format!("{end} on {}", ranks.join(", "))).collect();
    ends.join("; ")
}

/// Today's date in UTC, as `2026-11-21`.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    date(since.as_secs() / 86_400)
}

/// The date of a day since 1970-01-01.
fn date(mut day: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < len {
            break;
        }
        day -= len;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

/// The facts that stand for an NCCL version: those of its minor version. None if no such was modelled.
#[must_use]
pub fn platform_of(nccl: &str) -> Option<Platform> {
    let minor = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    Platform::ALL.into_iter().find(|platform| minor(platform.name()) == minor(nccl))
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> ObservationError + use<'_> {
    move |cause| ObservationError::File { path: path.display().to_string(), cause }
}

/// The observations of a file: one document a line, or the array that [`unpack`] writes.
///
/// # Errors
/// If the file cannot be read or holds something else.
pub fn read(path: &Path) -> Result<Vec<Observation>, ObservationError> {
    let text = std::fs::read_to_string(path).map_err(file_error(path))?;
    let mut observations = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let document = line.trim().trim_end_matches(',');
        if ["", "[", "]"].contains(&document) {
            continue;
        }
        let (name, line) = (path.display().to_string(), nth + 1);
        let wrong = |cause| ObservationError::Document { path: name.clone(), line, cause };
        let value: serde_json::Value = serde_json::from_str(document).map_err(wrong)?;
        if let Some(found) = value["schema_version"].as_u64()
            && found != u64::from(SCHEMA_VERSION)
        {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(ObservationError::Schema { path: name, line, found });
        }
        observations.push(Observation::deserialize(value).map_err(wrong)?);
    }
    Ok(observations)
}

fn line(observation: &Observation) -> String {
    serde_json::to_string(observation).expect("observations have string keys only")
}

/// Appends an observation to the file of a run.
///
/// # Errors
/// If the folder cannot be written to.
pub fn append(folder: &Path, observation: &Observation) -> Result<(), ObservationError> {
    let path = folder.join(FILE_NAME);
    std::fs::create_dir_all(folder).map_err(file_error(folder))?;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.map_err(file_error(&path))?;
    file.write_all((line(observation) + "\n").as_bytes()).map_err(file_error(&path))
}

/// Files of observations under a folder, sorted; none where there is no folder.
///
/// # Errors
/// If a folder cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>, ObservationError> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder).map_err(file_error(&folder))? {
            let path = entry.map_err(file_error(&folder))?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Files the observations of a run under a folder; newer ones replace older ones of the same program. Returns
/// the files that changed, each with how many observations it was given.
///
/// # Errors
/// If a file cannot be read or written.
pub fn unpack(observed: &Path, root: &Path) -> Result<BTreeMap<PathBuf, usize>, ObservationError> {
    let mut by_file: BTreeMap<PathBuf, Vec<Observation>> = BTreeMap::new();
    for observation in read(observed)? {
        by_file.entry(root.join(observation.file())).or_default().push(observation);
    }
    let mut changed = BTreeMap::new();
    for (path, new) in by_file {
        let mut all = if path.exists() { read(&path)? } else { Vec::new() };
        changed.insert(path.clone(), new.len());
        for observation in new {
            all.retain(|old| !observation.replaces(old));
            all.push(observation);
        }
        all.sort_by(|a, b| a.key().cmp(&b.key()));
        let lines: Vec<String> = all.iter().map(line).collect();
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).map_err(file_error(folder))?;
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        std::fs::write(&path, text).map_err(file_error(&path))?;
    }
    Ok(changed)
}

/// What an observation says about the model as it is now.
#[derive(Debug)]
pub enum Validity {
    /// Nothing: the check is gone, or its program is another one.
    Stale,
    /// For each distinct behaviour, whether it agrees.
    Judged(Vec<Judgement>),
}

impl Validity {
    /// The first behaviour that the model does not have.
    #[must_use]
    pub fn difference(&self) -> Option<&Difference> {
        let Self::Judged(judgements) = self else { return None };
        judgements.iter().find_map(|judgement| match &judgement.agreement {
            Agreement::Disagrees(difference) => Some(difference),
            Agreement::Agrees
            | Agreement::AgreesOtherwise
            | Agreement::Undefined
            | Agreement::NotComparable(_) => None,
        })
    }

    /// Whether one specified outcome was predicted for every behaviour.
    #[must_use]
    pub fn single(&self) -> bool {
        match self {
            Self::Stale => false,
            Self::Judged(judgements) => judgements.iter().all(Judgement::single),
        }
    }
}

/// An observation of the repository, and what it says now.
pub struct KeptObservation {
    /// The file that it stands in.
    pub path: PathBuf,
    /// The observation, as the file holds it.
    pub observation: Observation,
    /// What it says about the model.
    pub validity: Validity,
}

impl KeptObservation {
    /// The observation for people, with its machine: the heading of a disagreement and a line of the stale list.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}: {}", self.observation.folder(), self.observation.title())
    }
}

/// Compares every observation under a folder with the model.
///
/// # Errors
/// If a file or a spec is bad.
pub fn kept(root: &Path) -> Result<Vec<KeptObservation>, KeptError> {
    let mut specs: BTreeMap<String, Option<Spec>> = BTreeMap::new();
    let mut all = Vec::new();
    for path in files(root)? {
        for observation in read(&path)? {
            let name = observation.program.spec.clone();
            if !specs.contains_key(&name) {
                let file = Path::new(&name);
                let loaded = if file.exists() { Some(spec::load(file)?) } else { None };
                specs.insert(name.clone(), loaded);
            }
            let validity = validity(&observation, specs[&name].as_ref())?;
            all.push(KeptObservation { path: path.clone(), observation, validity });
        }
    }
    Ok(all)
}

/// Why the kept observations cannot be compared.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum KeptError {
    /// A file cannot be read, or is none of observations.
    #[error(transparent)]
    Observation(#[from] ObservationError),
    /// A spec cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] SpecError),
}

impl Observation {
    /// What the model says of the program that was observed; none if the spec has another program now.
    ///
    /// # Errors
    /// If the spec is bad.
    pub fn predictions(&self, spec: &Spec) -> Result<Option<Predictions>, SpecError> {
        let Some((check, params)) = self.program.find(spec) else { return Ok(None) };
        let predictions = predict(&PredictionQuery {
            spec,
            check,
            ranks: self.program.ranks,
            params: &params,
            platform: self.platform,
            comms: self.comms,
        })?;
        Ok(Some(predictions).filter(|predictions| predictions.digest == self.digest))
    }
}

/// Compares one observation with the model.
///
/// # Errors
/// If the spec is bad.
pub fn validity(observation: &Observation, spec: Option<&Spec>) -> Result<Validity, SpecError> {
    let Some(spec) = spec else { return Ok(Validity::Stale) };
    let Some(predictions) = observation.predictions(spec)? else { return Ok(Validity::Stale) };
    let judged = observation.seen.iter().map(|seen| {
        let report = Report { ranks: seen.ranks.clone(), took: Duration::ZERO };
        compare(&predictions, &seen.forced, &report)
    });
    Ok(Validity::Judged(judged.collect()))
}

/// The list of stale observations, one a line.
#[must_use]
pub fn stale_list(kept: &[KeptObservation]) -> String {
    let stale = kept.iter().filter(|kept| matches!(kept.validity, Validity::Stale));
    stale.map(|kept| kept.title() + "\n").collect()
}

/// The disagreements that a document explains: the text of each `## ` heading, with its section.
#[must_use]
pub fn explained(document: &str) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut heading = None;
    for line in document.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = Some(title.trim().to_owned());
            sections.entry(title.trim().to_owned()).or_default();
        } else if let Some(section) = heading.as_ref().and_then(|heading| sections.get_mut(heading)) {
            section.push_str(line);
            section.push('\n');
        }
    }
    sections
}

/// What is wrong between the disagreements and the document that explains them.
#[must_use]
pub fn unexplained(kept: &[KeptObservation], document: &str) -> Vec<String> {
    let mut sections = explained(document);
    let mut wrong = Vec::new();
    for kept in kept {
        let title = kept.title();
        let section = sections.remove(&title);
        match (kept.validity.difference(), section) {
            (Some(difference), None) => {
                wrong.push(format!("{title} disagrees and is not in {DISAGREEMENTS}: {difference}"))
            }
            (Some(difference), Some(section)) if !section.contains(&difference.to_string()) => {
                wrong.push(format!("{DISAGREEMENTS} pins {title} to something else than {difference}"));
            }
            (None, Some(_)) => wrong.push(format!("{title} is in {DISAGREEMENTS} and does not disagree")),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    wrong.extend(
        sections.into_keys().map(|title| format!("{DISAGREEMENTS} has {title}, which nothing observed")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_778), "2026-11-21");
    }

    #[test]
    fn a_version_stands_for_its_minor_version() {
        assert_eq!(platform_of("2.28.3"), Some(Platform::V2_28_9));
        assert_eq!(platform_of("2.30.7"), Some(Platform::V2_30_7));
        assert_eq!(platform_of("2.29.1"), None);
    }

    #[test]
    fn sections_are_found_by_their_heading() {
        let sections = explained("# Disagreements\n\nText.\n\n## a: b\n\nSeen.\n\n## c\n");
        assert_eq!(sections.keys().collect::<Vec<_>>(), ["a: b", "c"]);
        assert!(sections["a: b"].contains("Seen."));
    }
}
