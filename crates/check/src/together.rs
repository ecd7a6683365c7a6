//! A recording and dumps that are given together: whether they are of one job, and whether they agree on it.
//!
//! Neither names the other: dumps have no processes and no machines, a recording has no numbers of a group's calls. What they
//! share are the calls themselves. torch writes a call down right before it makes it, so the dumps of a job have its
//! recorded calls at their times, rank by rank.
//!
//! Nothing is judged again. Each has seen what the other has not: a recording the reductions, streams and waits of hosts, dumps
//! what a process did after its recording was cut. So where one names something and the other nothing, that is no
//! contradiction unless the other would have seen it.
//! Not here: what either says by itself ([`crate::runs`], [`crate::launches`]).

use std::collections::BTreeSet;
use std::path::PathBuf;

use rankcheck_model::{Rank, Rule, ranks_in_words};
use serde::Serialize;

use crate::launches::job::KnownCompletion;
use crate::launches::judge::JudgedJob;
use crate::runs::RunError;
use crate::runs::judge::{Judged, RunVerdict};
use crate::runs::launched::{launch_times, shows_in_launches};
use crate::runs::report::rows;

/// How near to each other the times of one call are. On devices they were 0.13 ms apart at most; a host that is interrupted
/// between the two is rare.
const NEAR_NS: i64 = 2_000_000;

/// A recording and dumps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// The folder of the recording.
    pub recording: PathBuf,
    /// Where the dumps lie.
    pub dumps: PathBuf,
    /// Whether they are of one job, and why.
    pub one_job: OneJob,
    /// What they say of it together, if they are.
    pub answer: Option<JointAnswer>,
}

/// Whether a recording and dumps are of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneJob {
    /// They are, by this.
    Yes(String),
    /// They are not, or nothing shows that they are.
    No(String),
}

/// What a recording and the dumps of one job say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JointAnswer {
    /// This is what both of them say.
    Agree(String),
    /// One of them alone says this, and the other cannot know.
    Alone(String),
    /// They contradict each other in this.
    Differ(String),
}

impl JointAnswer {
    /// Returns how reports name it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Agree(_) => "agree",
            Self::Alone(_) => "alone",
            Self::Differ(_) => "differ",
        }
    }

    /// Returns what is said.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Agree(text) | Self::Alone(text) | Self::Differ(text) => text,
        }
    }
}

/// What one of the two says of the job.
#[derive(Debug)]
struct Said {
    whose: &'static str,
    verdict: RunVerdict,
    rules: BTreeSet<Rule>,
    roots: BTreeSet<u32>,
    /// Who waits for one another.
    circle: BTreeSet<u32>,
    /// The ranks whose calls break the rules.
    breaking: BTreeSet<u32>,
}

impl Said {
    fn of_recording(judged: &Judged) -> Self {
        let fails = judged.verdict == RunVerdict::Fails;
        // Where a rule is broken, who may still come is no cause.
        let roots = judged.stuck.roots.iter().filter(|root| !fails || root.end.is_gone());
        let rules = judged.findings.iter().map(|finding| finding.rule);
        let ops = judged.findings.iter().flat_map(|finding| &finding.ops);
        Self {
            whose: "the recording",
            verdict: judged.verdict,
            rules: rules.chain(judged.waived.keys().copied()).collect(),
            roots: roots.map(|root| root.rank.0).collect(),
            circle: judged.stuck.cycles.iter().flatten().map(|hop| hop.rank.0).collect(),
            breaking: ops.map(|op| op.rank.0).collect(),
        }
    }

    fn of_dumps(judged: &JudgedJob) -> Self {
        let rank = |process: usize| judged.job.processes[process].rank;
        let sides = judged.compared.differences.iter().flat_map(|difference| &difference.sides);
        let steps = judged.compared.inversions.iter().flat_map(|inversion| &inversion.steps);
        let breaking = sides.flat_map(|side| side.ranks.iter().copied()).chain(steps.map(|step| step.rank));
        Self {
            whose: "the dumps",
            verdict: judged.verdict,
            rules: judged.rules(),
            roots: judged.waits.roots.iter().map(|root| root.rank).collect(),
            circle: judged.waits.circles.iter().flatten().map(|step| rank(step.waits_in.process)).collect(),
            breaking: breaking.collect(),
        }
    }

    fn names_anything(&self) -> bool {
        let wrong = matches!(self.verdict, RunVerdict::Fails | RunVerdict::Hangs);
        wrong || !self.rules.is_empty() || !self.roots.is_empty() || !self.circle.is_empty()
    }

    /// Whom it names, in whatever part.
    fn named(&self) -> BTreeSet<u32> {
        [&self.roots, &self.circle, &self.breaking].into_iter().flatten().copied().collect()
    }

    fn text(&self) -> String {
        let mut parts: Vec<String> = self.rules.iter().map(|rule| rule.id().to_owned()).collect();
        if !self.roots.is_empty() {
            parts.push(roots_text(&self.roots));
        }
        if !self.circle.is_empty() {
            parts.push(format!("a cycle of {}", in_words(&self.circle)));
        }
        match (self.verdict, parts.is_empty()) {
            (_, false) => parts.join(", "),
            (RunVerdict::Holds, true) => "nothing wrong".to_owned(),
            (RunVerdict::Hangs, true) => "a hang".to_owned(),
            (RunVerdict::Fails | RunVerdict::Unknown, true) => "nothing".to_owned(),
        }
    }
}

fn in_words(ranks: &BTreeSet<u32>) -> String {
    ranks_in_words(ranks.iter().copied().map(Rank))
}

fn roots_text(roots: &BTreeSet<u32>) -> String {
    format!("{} as the root{}", in_words(roots), if roots.len() == 1 { "" } else { "s" })
}

/// Compares every recording with all dumps. Of several, those that are of no job of the others are left out.
///
/// # Errors
/// If a file of a recording cannot be read any more.
pub fn together(recordings: &[Judged], jobs: &[JudgedJob]) -> Result<Vec<Together>, RunError> {
    let mut all = Vec::new();
    for recording in recordings {
        // Lines of a log have no times, as a rule: nothing would tell of which run they are.
        let seen = |job: &&JudgedJob| job.job.completion == KnownCompletion::Seen;
        for job in jobs.iter().filter(seen) {
            all.push(Together::of(recording, job)?);
        }
    }
    if all.len() > 1 {
        all.retain(|together| matches!(together.one_job, OneJob::Yes(_)));
    }
    Ok(all)
}

impl Together {
    /// Compares a recording with dumps.
    ///
    /// # Errors
    /// If a file of the recording cannot be read any more.
    pub fn of(recording: &Judged, job: &JudgedJob) -> Result<Self, RunError> {
        let one_job = one_job(recording, job)?;
        let answer = matches!(one_job, OneJob::Yes(_)).then(|| answer(recording, job));
        Ok(Self {
            recording: recording.recording.folder.clone(),
            dumps: job.job.source.clone(),
            one_job,
            answer,
        })
    }

    /// Returns what people read about it, without a trailing newline.
    #[must_use]
    pub fn text(&self) -> String {
        let what = self.answer.as_ref().map_or("NOT COMPARED", |answer| match answer {
            JointAnswer::Agree(_) => "AGREE",
            JointAnswer::Alone(_) => "DO NOT CONTRADICT",
            JointAnswer::Differ(_) => "DIFFER",
        });
        let mut out = format!("{what}  {} and {}", self.recording.display(), self.dumps.display());
        if let Some(answer) = &self.answer {
            rows(&mut out, answer.name(), &[answer.text().to_owned()]);
        }
        match &self.one_job {
            OneJob::Yes(why) => rows(&mut out, "one job", std::slice::from_ref(why)),
            OneJob::No(why) => rows(&mut out, "unknown", &[format!("whether they are of one job: {why}")]),
        }
        out
    }
}

/// Whether ranks and versions fit, and the calls of the dumps were recorded at their times.
fn one_job(recording: &Judged, job: &JudgedJob) -> Result<OneJob, RunError> {
    let no = |why: String| Ok(OneJob::No(why));
    let (recorded, dumped) = (recording.recording.world.ranks as usize, job.job.processes.len());
    let whole = job.job.groups.iter().any(|group| group.ranks.len() == dumped);
    if dumped > recorded || whole && dumped < recorded {
        return no(format!("{recorded} ranks were recorded, and the dumps are of {dumped}"));
    }
    if let (Some(recorded), Some(dumped)) = (&recording.recording.nccl, job.job.library.as_deref())
        && recorded.as_str() != dumped
    {
        return no(format!("the recording is of NCCL {recorded}, and the dumps are of {dumped}"));
    }
    let times = launch_times(&recording.recording)?;
    let (mut found, mut all) = (0_u64, 0_u64);
    for process in &job.job.processes {
        let Some(times) = times.get(&process.rank) else { continue };
        let (mut of_rank, mut near, mut next) = (0_u64, 0_u64, 0);
        // Each recorded call is one call of the dump at most.
        for created in process.launches.iter().filter_map(|launch| launch.created) {
            let early = |time: &i64| *time < created.saturating_sub(NEAR_NS);
            next += times[next..].partition_point(early);
            of_rank += 1;
            if times.get(next).is_some_and(|time| *time <= created.saturating_add(NEAR_NS)) {
                (near, next) = (near + 1, next + 1);
            }
        }
        // A graph that is replayed, or a clock that is set, has some calls elsewhere.
        if near * 4 < of_rank * 3 {
            return no(format!(
                "of {of_rank} calls in the dump of rank {}, {near} were recorded at their times",
                process.rank
            ));
        }
        (found, all) = (found + near, all + of_rank);
    }
    if all == 0 {
        return no("no call of a dump says when it was made".to_owned());
    }
    Ok(OneJob::Yes(format!("{found} of {all} calls of the dumps were recorded at their times, rank by rank")))
}

fn answer(recording: &Judged, job: &JudgedJob) -> JointAnswer {
    let (recorded, dumped) = (Said::of_recording(recording), Said::of_dumps(job));
    let each = || format!("{}: {}; {}: {}", recorded.whose, recorded.text(), dumped.whose, dumped.text());
    match (recorded.names_anything(), dumped.names_anything()) {
        (true, true) => {
            both(&recorded, &dumped).map_or_else(|| JointAnswer::Differ(each()), JointAnswer::Agree)
        }
        (true, false) => {
            let would_show = judged_shows(recording);
            match (dumped.verdict, would_show) {
                (RunVerdict::Holds, true) => JointAnswer::Differ(each()),
                (RunVerdict::Holds, false) => JointAnswer::Alone(format!(
                    "{} has {}, which dumps do not show",
                    recorded.whose,
                    recorded.text()
                )),
                _ => JointAnswer::Alone(format!(
                    "{} has {}; too little is known of the dumps",
                    recorded.whose,
                    recorded.text()
                )),
            }
        }
        (false, true) if recorded.verdict == RunVerdict::Holds => match dumped.verdict {
            RunVerdict::Unknown => JointAnswer::Alone(format!(
                "{} have {}, and the recorded run got over it",
                dumped.whose,
                dumped.text()
            )),
            RunVerdict::Holds | RunVerdict::Fails | RunVerdict::Hangs => JointAnswer::Differ(each()),
        },
        (false, true) => JointAnswer::Alone(format!(
            "{} have {}; too little is known of the recording",
            dumped.whose,
            dumped.text()
        )),
        (false, false) if recorded.verdict == dumped.verdict => match recorded.verdict {
            RunVerdict::Holds => JointAnswer::Agree("nothing is wrong".to_owned()),
            RunVerdict::Fails | RunVerdict::Hangs | RunVerdict::Unknown => {
                JointAnswer::Alone("neither names anything: too little is known of both".to_owned())
            }
        },
        (false, false) => {
            let (holds, other) = if recorded.verdict == RunVerdict::Holds {
                (&recorded, &dumped)
            } else {
                (&dumped, &recorded)
            };
            JointAnswer::Alone(format!(
                "nothing is wrong by {}; too little is known of {}",
                holds.whose,
                other.whose.trim_start_matches("the ")
            ))
        }
    }
}

/// Whether dumps that hold all calls would show what the recording has.
fn judged_shows(recording: &Judged) -> bool {
    recording.findings.iter().any(|finding| shows_in_launches(recording, finding))
}

/// What both name: a rule, the same roots, or the ranks that are stuck.
fn both(recorded: &Said, dumped: &Said) -> Option<String> {
    let apart = |text: String| match recorded.text() == dumped.text() {
        true => text,
        false => {
            format!("{text} ({}: {}; {}: {})", recorded.whose, recorded.text(), dumped.whose, dumped.text())
        }
    };
    let rules: Vec<&str> = recorded.rules.intersection(&dumped.rules).map(|rule| rule.id()).collect();
    if !rules.is_empty() {
        return Some(apart(format!("both have {}", rules.join(", "))));
    }
    // Rules that dumps show are among those that a recording shows.
    if !dumped.rules.is_empty() {
        return None;
    }
    if recorded.roots == dumped.roots && !dumped.roots.is_empty() {
        return Some(apart(format!("both have {}", roots_text(&dumped.roots))));
    }
    if !recorded.roots.is_empty() && !dumped.roots.is_empty() {
        return None;
    }
    let common: BTreeSet<u32> = recorded.named().intersection(&dumped.named()).copied().collect();
    let whole = dumped.roots.iter().all(|root| common.contains(root));
    let named = whole && (!common.is_empty() || dumped.named().is_empty() || recorded.named().is_empty());
    named.then(|| apart("both have a hang or its cause at the same ranks".to_owned()))
}

/// A recording and dumps, in the JSON report.
#[derive(Debug, Serialize)]
pub struct TogetherEntry {
    recording: String,
    dumps: String,
    one_job: bool,
    because: String,
    answer: Option<&'static str>,
    text: Option<String>,
}

impl From<&Together> for TogetherEntry {
    fn from(together: &Together) -> Self {
        let (one_job, because) = match &together.one_job {
            OneJob::Yes(why) => (true, why.clone()),
            OneJob::No(why) => (false, why.clone()),
        };
        Self {
            recording: together.recording.display().to_string(),
            dumps: together.dumps.display().to_string(),
            one_job,
            because,
            answer: together.answer.as_ref().map(JointAnswer::name),
            text: together.answer.as_ref().map(|answer| answer.text().to_owned()),
        }
    }
}
