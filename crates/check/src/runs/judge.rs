//! Runs what was recorded in the machine: which rules it broke, where it stands, and what that rests on.
//!
//! A recorded run leaves nothing open, so nothing is explored: where a value is open, it is the one that was recorded.
//! A finding about a run that ended in order is latent: that run happened to get through. A rank whose recording was
//! cut may have done anything afterwards, so whoever waits for it alone waits for nobody in vain.
//! Not here: how calls become operations ([`super::lower`]), and how a verdict is printed ([`super::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankcheck_model::machine::Standing;
use rankcheck_model::{
    Answer, Block, Choice, Config, Connections, Explain, Finding, Freed, Interruption, Loc, LocId, Machine,
    Nondet, ObjectKind, OpRef, Platform, Rank, Rule, Source, SourceError, State, Symmetry, Thread,
    ThreadStart, Token, actors_per_rank, ranks_in_words,
};
use rankcheck_recording::{Argument, ProcessFile};
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::RunError;
use super::accesses;
use super::call::CallKind;
use super::coverage::{Coverage, LeftOut};
use super::divergence::{self, Divergence};
use super::fold::{self, CallRole, Folded, Folding};
use super::jobs::{self, ReadProcess};
use super::lower::{self, Abort, Lacks, Origin, RankRun, RecordingEnd};
use super::returned::{self, Contradiction};
use super::sequence::{self, ReadUntil, Remainder, Sequence, Symbol};
use super::stuck::Standstill;
use super::vendor;
use super::waits;
use super::world::{self, RankProcess, RunCommId, World};
use crate::parallel::each_in_parallel;
use crate::search::Replayed;
use crate::search::replay::over;
use crate::spec::builder::SourceNames;

/// What was recorded, as a program.
#[derive(Debug)]
pub struct RunProgram {
    /// The texts of tokens.
    pub names: SourceNames,
    /// What each rank runs, indexed by rank in the world.
    pub ranks: Vec<RankRun>,
    default: Token,
}

impl RunProgram {
    fn of(&self, loc: LocId) -> Option<(&RankRun, &Origin)> {
        let at = self.ranks.partition_point(|rank| rank.base <= loc.0).checked_sub(1)?;
        let rank = &self.ranks[at];
        Some((rank, rank.origins.get((loc.0 - rank.base) as usize)?))
    }

    /// The call of an operation.
    #[must_use]
    pub fn origin(&self, loc: LocId) -> Option<Origin> {
        self.of(loc).map(|(_, origin)| *origin)
    }
}

impl Source for RunProgram {
    fn block(&self, rank: Rank, start: ThreadStart, _: &[Answer]) -> Result<Arc<Block>, SourceError> {
        let found = self.ranks.get(rank.at()).and_then(|rank| rank.blocks.get(start.0 as usize));
        Ok(Arc::clone(found.expect("a recorded run has no questions, and spawns what it has")))
    }

    fn token(&self, token: Token) -> Arc<str> {
        self.names.text(token)
    }

    fn loc(&self, loc: LocId) -> Loc {
        match self.of(loc) {
            Some((rank, origin)) => rank.loc(origin, &self.names),
            None => Loc { file: "before its first call".into(), line: 0, column: 0, called_at: None },
        }
    }

    fn default_stream(&self) -> Token {
        self.default
    }

    fn hides_order(&self) -> bool {
        true
    }

    fn is_ordered(&self, at: LocId) -> bool {
        let ordered =
            |(rank, origin): (&RankRun, &Origin)| rank.roles.of(origin.number) == Some(CallRole::Ordered);
        self.of(at).is_some_and(ordered)
    }

    fn freed(&self, open: LocId) -> Freed {
        let freed = self.of(open).and_then(|(rank, _)| rank.freed.get(&open));
        // What an exchange maps has shareable handles, so that it lives on as long as it is mapped.
        freed.copied().unwrap_or(Freed::AfterClosed)
    }

    /// Nobody promises that, and on every device where it was measured the call returned once the device was idle.
    fn waits_to_close(&self, close: LocId) -> bool {
        let name = self.origin(close).map(|origin| self.names.text(origin.name));
        name.is_some_and(|name| CallKind::of(&name) == CallKind::IpcClose)
    }

    fn skipped(&self, of: LocId, before: LocId) -> u32 {
        self.of(of).map_or(0, |(rank, _)| rank.skipped(of, before))
    }

    fn replay(&self, replay: LocId) -> Option<u32> {
        let (rank, _) = self.of(replay)?;
        rank.replay(replay)
    }

    fn ended(&self, rank: Rank) -> Arc<str> {
        self.ranks[rank.at()].ended().into()
    }

    fn symmetry(&self) -> Symmetry {
        Symmetry::Distinct
    }
}

/// A recording that was read.
pub struct Recording {
    /// The folder that the recording was read from.
    pub folder: PathBuf,
    /// Which of the jobs in it this is, if there are several.
    pub job: Option<RecordedJob>,
    /// Which process is which rank, and which communicator is which.
    pub world: World,
    /// Iterations and ranks that are not judged again.
    pub folded: Folded,
    /// What every rank did.
    pub program: Arc<RunProgram>,
    /// The version of NCCL that it says it ran on.
    pub nccl: Option<String>,
    /// When the processes began: nanoseconds since 1970, by rank.
    pub began: Vec<u64>,
    /// The machines that they ran on, by rank.
    pub hosts: Vec<String>,
    /// The files of its processes.
    files: Vec<PathBuf>,
    folding: Folding,
}

/// One of several jobs that were recorded together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedJob {
    /// Its position among them, from 1, in the order in which they began.
    pub nth: usize,
    /// How many there are.
    pub of: usize,
    /// What was typed to start its first process, nearly.
    pub command: String,
}

impl fmt::Display for RecordedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nth, of, command } = self;
        write!(f, "job {nth} of {of}: {command}")
    }
}

/// The first communicator that anybody aborted, where a run is judged as it stood then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstAbort {
    /// The rank that aborted it.
    pub rank: Rank,
    /// The call of the rank that did.
    pub abort: Abort,
}

/// What a recording shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunVerdict {
    /// No rule is broken in what was recorded, and all of it was recorded.
    Holds,
    /// Some rule is broken.
    Fails,
    /// No rule is known to be broken, and yet the run stood still.
    Hangs,
    /// Too little was recorded.
    Unknown,
}

/// A recording that was judged.
pub struct Judged {
    /// What was read of the recording, and the program made of it.
    pub recording: Recording,
    /// Whether the run broke a rule, hangs, or is not known well enough.
    pub verdict: RunVerdict,
    /// Rules that are broken, the one with the smallest causal past first.
    pub findings: Vec<Finding>,
    /// Rules that seem broken, each with the reason why that cannot be said.
    pub doubted: Vec<(Finding, String)>,
    /// What was not over at the end.
    pub standing: Vec<Standing>,
    /// Who waits for whom at the end.
    pub stuck: Standstill,
    /// Where two ranks first diverge on a communicator, set-up events and collectives apart.
    pub divergences: Vec<Divergence>,
    /// The first two accesses of different ranks to memory that they share that nothing recorded orders.
    pub taken_for_ordered: Option<[OpRef; 2]>,
    /// The first close of a mapping that had to wait for what used it, and what that was.
    pub closed_in_use: Option<[OpRef; 2]>,
    /// Nobody specifies what follows a finding.
    pub undefined: bool,
    /// The platform whose facts were taken.
    pub platform: Platform,
    /// Operations that the machine ran.
    pub steps: u64,
    /// Why too little is known; empty if not.
    pub unknown: Vec<String>,
    /// What was judged, by kind of call.
    pub coverage: Coverage,
    /// Calls that were not judged, each kind with the reason.
    pub left_out: Vec<LeftOut>,
    /// Whether the platform is the one that was asked for.
    pub asked: Asked,
    /// In which order the communicators are taken to be on which groups launch.
    hashes: AssumedOrder,
    /// Communicators of which it matters in which order groups launch on them, if there are more than two.
    orders_left: usize,
    /// The rules that are broken and were waived, each with its reason.
    pub waived: BTreeMap<Rule, String>,
    /// Waivers that are not as expected, because no run breaks their rules.
    pub waived_in_vain: Vec<Rule>,
    /// The call before which the run stood still, where that is how it is judged.
    pub aborted: Option<FirstAbort>,
}

/// Who decided on the platform that a run is judged as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The version that was recorded, or the nearest that is modelled.
    No,
    /// Somebody asked for it.
    Yes,
}

/// Reads the recording in a directory.
///
/// # Errors
/// If it is none, or no recording of one job.
pub fn read(folder: &Path) -> Result<Recording, RunError> {
    read_folded(folder, Folding::default())
}

/// Reads each of the jobs that were recorded into a directory, in the order in which they began.
///
/// A job whose processes do not fit together is an error of its own; so is a recording that there is not, or that cannot be read.
pub fn read_jobs(folder: &Path) -> Vec<Result<Recording, RunError>> {
    let read = match processes_of(folder) {
        Ok(read) => read,
        Err(error) => return vec![Err(error)],
    };
    let jobs = jobs::jobs(&read);
    let mut whole: Vec<Option<ReadProcess>> = read.into_iter().map(Some).collect();
    let of = jobs.len();
    let recorded = jobs.into_iter().zip(1..).map(|(processes, nth)| {
        let processes: Vec<ReadProcess> = processes.into_iter().filter_map(|at| whole[at].take()).collect();
        let command =
            processes.first().map_or_else(String::new, |(_, sequence, _)| sequence.header.command.join(" "));
        let job = (of > 1).then_some(RecordedJob { nth, of, command });
        program_of(folder, job, processes, Folding::default(), ReadUntil::End)
    });
    recorded.collect()
}

/// The processes of the recording in a directory.
fn processes_of(folder: &Path) -> Result<Vec<ReadProcess>, RunError> {
    let files = world::files(folder).map_err(RunError::naming_those_below)?;
    sequence::read_processes(&files, ReadUntil::End)
}

/// Reads the recording in a directory, and takes out of it what need not be judged.
///
/// # Errors
/// If it is none, or no recording of one job.
pub fn read_folded(folder: &Path, folding: Folding) -> Result<Recording, RunError> {
    let processes = processes_of(folder)?;
    let jobs = jobs::jobs(&processes);
    if jobs.len() > 1 {
        let file = |at: &usize| processes[*at].0.file_name().unwrap_or_default().to_string_lossy();
        let command = |job: &Vec<usize>| {
            let mut files: Vec<_> = job.iter().map(file).collect();
            files.dedup();
            format!("{}: {}", processes[job[0]].1.header.command.join(" "), files.join(", "))
        };
        return Err(RunError::SeveralJobs {
            path: folder.to_owned(),
            jobs: jobs.len(),
            commands: jobs.iter().map(command).collect::<Vec<_>>().join("; "),
        });
    }
    program_of(folder, None, processes, folding, ReadUntil::End)
}

/// The program of a job of which these processes were read.
fn program_of(
    folder: &Path,
    job: Option<RecordedJob>,
    processes: Vec<ReadProcess>,
    folding: Folding,
    until: ReadUntil,
) -> Result<Recording, RunError> {
    let mut files: Vec<PathBuf> = processes.iter().map(|(path, ..)| path.clone()).collect();
    files.dedup();
    let (mut world, mut sequences) = sequence::join(processes, until)?;
    let folded = fold::fold(&mut world, &mut sequences, folding);
    let left: Vec<Remainder> = sequences.iter_mut().map(Sequence::remainder).collect();
    let headers: Vec<(u64, String)> =
        sequences.iter().map(|sequence| (sequence.header.began, sequence.header.host.clone())).collect();
    name_groups(&mut world, &sequences);
    drop(sequences);
    let names = SourceNames::default();
    let default = names.token("default");
    let mut ranks = lower::lower_all(&world, &names, left, until)?;
    for (rank, calls) in &world.copies {
        ranks[rank.at()].calls = *calls;
    }
    let nccl = ranks.iter().find_map(|rank| rank.nccl.clone());
    let mut began = vec![0; world.ranks as usize];
    let mut hosts = vec![String::new(); world.ranks as usize];
    for (member, (time, host)) in world.members.iter().zip(headers) {
        began[member.rank.at()] = time;
        hosts[member.rank.at()] = host;
    }
    let program = Arc::new(RunProgram { names, ranks, default });
    let folder = folder.to_owned();
    Ok(Recording { folder, job, world, program, folded, nccl, began, hosts, files, folding })
}

/// Communicators get the names of process groups of their members: of several with the same members the first
/// group names the one that was made first.
fn name_groups(world: &mut World, sequences: &[Sequence]) {
    let mut groups: Vec<(String, Vec<u32>)> = Vec::new();
    for sequence in sequences {
        for symbol in sequence.dictionary() {
            let Symbol::Note { call, .. } = symbol else { continue };
            let note = sequence.shape(*call);
            if CallKind::of(&note.name) != CallKind::ProcessGroup {
                continue;
            }
            let text = |key: &str| note.get(key).and_then(Argument::text).unwrap_or_default();
            let mut ranks: Vec<u32> =
                text("ranks").split(',').filter_map(|rank| rank.trim().parse().ok()).collect();
            ranks.sort_unstable();
            let group = (text("name").to_owned(), ranks);
            if !group.0.is_empty() && !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    let mut births: Vec<RunCommId> = Vec::new();
    let mut seen = FxHashSet::default();
    births.extend(world.members.iter().flat_map(RankProcess::births).filter(|comm| seen.insert(**comm)));
    for comm in births {
        let comm = &mut world.comms[comm.0 as usize];
        let mut members: Vec<u32> = comm.members.iter().flatten().map(|rank| rank.0).collect();
        members.sort_unstable();
        if let Some(at) = groups.iter().position(|(_, ranks)| *ranks == members) {
            comm.name = format!("group {}", groups.remove(at).0);
        }
    }
}

/// The modelled version that is nearest to one that was recorded.
#[must_use]
pub fn platform_of(nccl: Option<&str>) -> Platform {
    let mut parts = nccl.unwrap_or_default().split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match (major, minor) {
        (0, _) => Platform::default(),
        (2, 30..) | (3.., _) => Platform::V2_30_7,
        (2, 28..) => Platform::V2_28_9,
        _ => Platform::V2_27_7,
    }
}

/// Ranks that made more calls than that and do what others do are not judged to be told of as well.
const COPIED_AT_MOST: u64 = 1 << 25;

/// Judges the jobs of a recording, as [`judge`] does, on all cores. The results are in their order.
///
/// # Panics
///
/// If a thread that judges panics.
pub fn judge_jobs(
    jobs: Vec<Result<Recording, RunError>>,
    platform: Option<Platform>,
) -> Vec<Result<Judged, RunError>> {
    each_in_parallel(jobs, |_, job| job.and_then(|job| judge(job, platform)))
}

/// Judges a recording.
///
/// Where ranks are left out because they do what others do, the run that is left breaks the rules that the whole breaks. If it does not
/// hold, the whole is judged, so that what is wrong is told of all ranks; unless that is very long, and then the report says who was left out.
///
/// A communicator that is aborted lets go whoever stood in it, so a run that was aborted does not show at its end that it
/// stood still. If nothing else is wrong with it, it is judged as it stood when the first communicator was aborted: if that
/// is a standstill, it is the answer.
///
/// # Errors
/// If it has more operations than one run may have, or cannot be read again.
pub fn judge(recording: Recording, platform: Option<Platform>) -> Result<Judged, RunError> {
    let mut judged = judge_as_read(recording, platform)?;
    let copied: u64 = judged.recording.world.copies.values().sum();
    let whole = match judged.verdict {
        RunVerdict::Holds => false,
        RunVerdict::Hangs => copied > 0,
        RunVerdict::Fails | RunVerdict::Unknown => (1..=COPIED_AT_MOST).contains(&copied),
    };
    if whole {
        let whole = judged.recording.again(Folding::Iterations, ReadUntil::End)?;
        judged = judge_as_read(whole, platform)?;
    }
    if matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs) {
        return Ok(judged);
    }
    let Some((first, time)) = judged.recording.first_abort() else { return Ok(judged) };
    let folding = match judged.recording.folding {
        Folding::Nothing => Folding::Nothing,
        Folding::Iterations | Folding::IterationsAndRanks { .. } => Folding::Iterations,
    };
    let then = judge_as_read(judged.recording.again(folding, ReadUntil::Time(time))?, platform)?;
    match then.verdict {
        RunVerdict::Hangs => Ok(Judged { aborted: Some(first), ..then }),
        RunVerdict::Holds | RunVerdict::Fails | RunVerdict::Unknown => Ok(judged),
    }
}

/// Judges a recording as it was read, and nothing else.
///
/// # Errors
/// If it has more operations than one run may have.
pub fn judge_as_read(mut recording: Recording, platform: Option<Platform>) -> Result<Judged, RunError> {
    let asked = if platform.is_some() { Asked::Yes } else { Asked::No };
    let platform = platform.unwrap_or_else(|| platform_of(recording.nccl.as_deref()));
    let (ran, otherwise) = loop {
        let (ran, otherwise) = OneRun::of(&recording, platform)?;
        // Where nobody specifies what follows, the model has said nothing.
        if ran.contradictions.is_empty() || ran.machine.undefined(&ran.state) {
            break (ran, otherwise);
        }
        let contradictions = ran.contradictions;
        drop((ran.machine, ran.state));
        let program = Arc::get_mut(&mut recording.program).expect("the machine that ran it is gone");
        for found in contradictions {
            program.ranks[found.rank.at()].cut_off_at(found.loc, Lacks::Model(found.says), found.at);
        }
        lower::leave_out_untold(&mut program.ranks);
    };
    let order_matters = ran.order_matters();
    let OneRun { machine, state, standing, hashes, .. } = ran;
    let mut findings: Vec<Finding> =
        machine.findings(&state).into_iter().map(|(_, finding)| finding.clone()).collect();
    findings.sort_by_key(|finding| (finding.past, finding.rule));
    let mut doubted = Vec::new();
    findings.retain(|finding| match waits::doubt(finding, &recording.program) {
        Some(why) => {
            doubted.push((finding.clone(), why));
            false
        }
        None => true,
    });
    for finding in otherwise {
        let known = |of: &Finding| (of.rule, of.about) == (finding.rule, finding.about);
        if !findings.iter().any(known) {
            doubted.push((finding, IN_ANOTHER_ORDER.to_owned()));
        }
    }
    // Of ranks that make one mistake, the first is told.
    let mut told = BTreeSet::new();
    findings.retain(|finding| told.insert((finding.rule, finding.about)));
    doubted.retain(|(finding, _)| told.insert((finding.rule, finding.about)));
    for finding in findings.iter_mut().chain(doubted.iter_mut().map(|(finding, _)| finding)) {
        complete(finding, &recording.program);
    }
    let divergences = divergence::divergences(&recording);
    let undefined = machine.undefined(&state) && !findings.is_empty();
    let mut judged = Judged {
        verdict: RunVerdict::Holds,
        findings,
        stuck: Standstill::of(&recording, &standing),
        doubted,
        standing,
        divergences,
        undefined,
        platform,
        taken_for_ordered: machine.taken_for_ordered(),
        closed_in_use: machine.closed_in_use(),
        steps: state.steps,
        unknown: Vec::new(),
        coverage: Coverage::of(&recording),
        left_out: LeftOut::of(&recording),
        asked,
        waived: BTreeMap::new(),
        waived_in_vain: Vec::new(),
        hashes,
        orders_left: if order_matters && state.compared_comms() > 2 { state.compared_comms() } else { 0 },
        aborted: None,
        recording,
    };
    judged.unknown = judged.why_unknown();
    judged.verdict = judged.conclude();
    Ok(judged)
}

/// Runs what was judged once more, and tells every step of it and what memory held. It takes far more memory than judging.
///
/// # Errors
/// If it has more operations than one run may have.
pub fn replayed(judged: &Judged) -> Result<Replayed, RunError> {
    let (machine, mut state) = run(&judged.recording, judged.platform, Explain::Memory, judged.hashes)?;
    Ok(over(&machine, &mut state))
}

/// Waives rules in runs that were judged together. A rule that none of them breaks is waived in vain, unless one is not
/// known well enough: the waiver would hide the next run that breaks it.
pub fn waive(runs: &mut [Judged], waivers: &BTreeMap<Rule, String>) {
    for run in &mut *runs {
        run.waive(waivers);
    }
    if runs.iter().any(|run| run.verdict == RunVerdict::Unknown) {
        return;
    }
    let in_vain = |rule: &&Rule| !runs.iter().any(|run| run.waived.contains_key(rule));
    let in_vain: Vec<Rule> = waivers.keys().filter(in_vain).copied().collect();
    for run in runs {
        run.waived_in_vain.clone_from(&in_vain);
    }
}

/// In which order a run takes the hashes of communicators to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssumedOrder {
    /// Each communicator that a group comes to lies before those that groups came to before it.
    Descending,
    /// It lies behind them.
    Ascending,
}

/// Why it is not known whether a finding is one of the run.
const IN_ANOTHER_ORDER: &str = "a group launches on several communicators in the order of their hashes, which was not recorded, and \
                                in another order than the one that fits what returned";

/// A run of the program to where nothing can go on.
struct OneRun {
    machine: Machine,
    state: State,
    standing: Vec<Standing>,
    /// What returned in the recorded run and cannot have.
    contradictions: Vec<Contradiction>,
    hashes: AssumedOrder,
}

impl OneRun {
    /// Runs a recording. Where it matters in which order groups launch on several communicators, the run is the one that
    /// fits what returned, or else the one that breaks a rule; and what is found in the other one comes with it.
    fn of(recording: &Recording, platform: Platform) -> Result<(Self, Vec<Finding>), RunError> {
        let one = Self::in_order(recording, platform, AssumedOrder::Ascending)?;
        if !one.order_matters() {
            return Ok((one, Vec::new()));
        }
        let other = Self::in_order(recording, platform, AssumedOrder::Descending)?;
        let rank = |ran: &Self| (!ran.contradictions.is_empty(), ran.findings().is_empty());
        let (taken, left) = if rank(&other) < rank(&one) { (other, one) } else { (one, other) };
        Ok((taken, left.findings()))
    }

    fn in_order(recording: &Recording, platform: Platform, hashes: AssumedOrder) -> Result<Self, RunError> {
        let (machine, mut state) = run(recording, platform, Explain::Sentences, hashes)?;
        machine.finish(&mut state);
        let standing = machine.standing(&state);
        let contradictions = returned::contradictions(recording, &state, &standing);
        Ok(Self { machine, state, standing, contradictions, hashes })
    }

    /// Whether it matters in which order groups launch on several communicators.
    fn order_matters(&self) -> bool {
        !self.machine.config.contended.is_empty()
    }

    fn findings(&self) -> Vec<Finding> {
        self.machine.findings(&self.state).into_iter().map(|(_, finding)| finding.clone()).collect()
    }
}

/// Runs the program to where nothing can go on. Where it matters in which order communicators are, the machine knows them
/// as contended.
fn run(
    recording: &Recording,
    platform: Platform,
    explain: Explain,
    hashes: AssumedOrder,
) -> Result<(Machine, State), RunError> {
    let ranks = &recording.program.ranks;
    let actors = ranks.iter().map(|rank| rank.blocks.len() + rank.streams).max().unwrap_or(0);
    let mut config = Config {
        platform,
        explain,
        // No rule is about what memory holds, and real programs cut it into thousands of pieces.
        follows_contents: explain == Explain::Memory,
        // The order of threads is the recorded one, so it is no choice.
        declared_commuting: ObjectKind::ALL
            .into_iter()
            .filter(|kind| *kind != ObjectKind::CommHashes)
            .collect(),
        // A communicator that existed before the recording began was used.
        connections: match ranks.iter().any(|rank| !rank.before.is_empty()) {
            true => Connections::Made,
            false => Connections::OnFirstUse,
        },
        actors_per_rank: u32::try_from(actors).map(actors_per_rank).map_err(|_| RunError::TooMany)?,
        ..Config::new(recording.world.ranks)
    };
    loop {
        let source: Arc<dyn Source> = Arc::<RunProgram>::clone(&recording.program);
        let machine = Machine::new(source, config.clone());
        let mut state = machine.init();
        machine.advance(&mut state);
        while let Some(choice) = recorded(&machine, &state, ranks, hashes) {
            machine.take(&mut state, &choice);
            machine.advance(&mut state);
        }
        match machine.interruption() {
            None => return Ok((machine, state)),
            Some(Interruption::Actors(actors)) => config.actors_per_rank = actors,
            Some(Interruption::Contents) => config.follows_contents = true,
            Some(Interruption::Steps(_)) => return Err(RunError::TooMany),
            Some(Interruption::Contended(objects)) => config.contended.extend(objects),
            Some(Interruption::Remember(_) | Interruption::Source(_)) => {
                unreachable!("no histories merge, and every operation is there")
            }
        }
    }
}

/// Returns the choice that was made in the recorded run.
fn recorded(machine: &Machine, state: &State, ranks: &[RankRun], hashes: AssumedOrder) -> Option<Choice> {
    if machine.interrupted() {
        return None;
    }
    let mut choices = machine.choices(state);
    let Choice::Value(rank, thread, values) = choices.first()? else { return Some(choices.swap_remove(0)) };
    let (rank, thread) = (*rank, *thread);
    let open = machine.nondet_of(state, rank, thread, values);
    if let Some((Nondet::CommOrder(_), _)) = open.last() {
        choices.retain(|choice| matches!(choice, Choice::Value(of, by, _) if (*of, *by) == (rank, thread)));
        return match hashes {
            AssumedOrder::Descending => Some(choices.swap_remove(0)),
            AssumedOrder::Ascending => choices.pop(),
        };
    }
    let op = machine.next_op(state, rank, thread);
    let recorded = if thread == Thread(0) { ranks[rank.at()].nondet.get(&op.index) } else { None };
    let wanted: Vec<u32> = vec![recorded.copied().unwrap_or(0)];
    let is = |choice: &Choice| matches!(choice, Choice::Value(_, _, values) if *values == wanted);
    let at = choices.iter().position(is).unwrap_or(0);
    Some(choices.swap_remove(at))
}

/// A sentence names the ranks and locations of all operations that it is about; of accesses that nothing orders, what
/// they are and which bytes they touch.
fn complete(finding: &mut Finding, program: &RunProgram) {
    let mut named = BTreeSet::new();
    for op in &finding.ops {
        let at = program.loc(op.loc).to_string();
        let there = names_rank(&finding.sentence, op.rank) && finding.sentence.contains(&at);
        if !there && named.insert((op.rank, at.clone())) {
            finding.sentence.push_str(&format!("; rank {} at {at}", op.rank.0));
        }
    }
    if finding.rule == Rule::Mem2
        && let Some(raced) = accesses::raced(program, &finding.ops)
    {
        finding.sentence.push_str(&format!(": {raced}"));
    }
}

/// Whether a sentence names a rank, alone or among several as [`ranks_in_words`] writes them.
fn names_rank(sentence: &str, rank: Rank) -> bool {
    let begins = sentence.match_indices("rank").map(|(at, _)| &sentence[at + "rank".len()..]);
    let mut lists = begins.map(|list| list.trim_start_matches('s').trim_start());
    lists.any(|list| {
        let words = list.split([' ', ',']).filter(|word| !word.is_empty());
        let (mut last, mut to) = (None, false);
        for word in words {
            match (word, word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>()) {
                ("to", _) => to = true,
                ("and", _) => {}
                (_, Ok(number)) => {
                    if number == rank.0 || to && last.is_some_and(|last| (last..=number).contains(&rank.0)) {
                        return true;
                    }
                    (last, to) = (Some(number), false);
                }
                (_, Err(_)) => return false,
            }
        }
        false
    })
}

impl Recording {
    /// Reads it once more.
    fn again(&self, folding: Folding, until: ReadUntil) -> Result<Self, RunError> {
        let processes = sequence::read_processes(&self.files, until)?;
        program_of(&self.folder, self.job.clone(), processes, folding, until)
    }

    /// What was taken out of it, in words.
    pub(crate) fn folds(&self) -> impl Iterator<Item = String> {
        let ranks = self.folded.copies.iter().map(ToString::to_string);
        ranks.chain(self.folded.iterations.iter().map(ToString::to_string))
    }

    /// How many calls all ranks made, those that are not judged included.
    pub(crate) fn calls(&self) -> u64 {
        self.program.ranks.iter().map(|rank| rank.calls).sum()
    }

    /// The first communicator that anybody aborted, and when: nanoseconds since 1970.
    fn first_abort(&self) -> Option<(FirstAbort, u64)> {
        let of = |(rank, began): (usize, &u64)| {
            let abort = self.program.ranks[rank].aborted?;
            let rank = Rank(u32::try_from(rank).expect("ranks are numbered in 32 bits"));
            Some((FirstAbort { rank, abort }, began.saturating_add(abort.time)))
        };
        self.began.iter().enumerate().filter_map(of).min_by_key(|(_, time)| *time)
    }

    /// A call: where it was made, and its name.
    pub(super) fn called(&self, program: &RankRun, origin: &Origin) -> String {
        let (name, loc) = (self.program.names.text(origin.name), program.loc(origin, &self.program.names));
        let loc = loc.to_string();
        if loc.contains(&*name) { loc } else { format!("{name} ({loc})") }
    }
}

impl Judged {
    /// Takes the findings of waived rules away. Where ranks diverge, and that the run stood still, no rule says, and no
    /// waiver of a rule takes away.
    fn waive(&mut self, waivers: &BTreeMap<Rule, String>) {
        for finding in &self.findings {
            if let Some(reason) = waivers.get(&finding.rule) {
                self.waived.insert(finding.rule, reason.clone());
            }
        }
        self.findings.retain(|finding| !waivers.contains_key(&finding.rule));
        self.verdict = self.conclude();
    }

    fn conclude(&self) -> RunVerdict {
        if !self.findings.is_empty() || !self.divergences.is_empty() {
            RunVerdict::Fails
        } else if self.stuck.is_proven() {
            RunVerdict::Hangs
        } else if self.unknown.is_empty() {
            RunVerdict::Holds
        } else {
            RunVerdict::Unknown
        }
    }

    /// Whether every rank said that it ends, and no call returned an error.
    #[must_use]
    pub fn went_well(&self) -> bool {
        let well = |rank: &RankRun| matches!(rank.ending, RecordingEnd::Exit(0)) && rank.failures.is_empty();
        self.recording.world.missing().is_empty() && self.there().all(|(_, rank)| well(rank))
    }

    /// Why the recording says too little.
    fn why_unknown(&self) -> Vec<String> {
        let mut why = Vec::new();
        if self.coverage.is_empty() {
            why.push(
                "nothing was judged: no communicator of NCCL was seen to be made, and no memory of another process \
                 to be opened"
                    .to_owned(),
            );
            // Nobody waits for it, so no root tells it.
            let raised = self.there().filter(|(_, program)| program.exception.is_some());
            why.extend(raised.map(|(rank, program)| format!("rank {rank} {}", program.ended())));
        }
        for (finding, doubt) in &self.doubted {
            why.push(format!(
                "{} may be broken: {}. It is not known, because {doubt}",
                finding.rule, finding.sentence
            ));
        }
        let mut too_little: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
        for (rank, program) in self.there() {
            if let Some(missing) = program.waits.missing() {
                too_little.entry(missing).or_default().push(Rank(rank));
            }
        }
        why.extend(too_little.into_iter().map(|(missing, ranks)| {
            format!("too little of {} was recorded: {missing}", ranks_in_words(ranks.into_iter()))
        }));
        why.extend(self.left_out.iter().filter(|left_out| left_out.matters()).map(ToString::to_string));
        why.extend(
            world::empty_files(&self.recording.folder).iter().map(|path| {
                let path = path.display();
                format!("{path} is empty or cut off before it says what process it is of, so nothing is known of that process")
            }),
        );
        // Who is not seen to communicate may have done so behind the cut.
        let is_cut =
            |path: &&PathBuf| ProcessFile::open(path).is_ok_and(|process| process.truncated().is_some());
        why.extend(self.recording.world.bystanders.iter().filter(is_cut).map(|path| {
            format!("{} was cut, and whether its process takes part is not known", path.display())
        }));
        if self.orders_left > 0 {
            why.push(format!(
                "groups launch on {} communicators in the order of their hashes, which was not recorded: one order and its reverse \
                 were tried",
                self.orders_left
            ));
        }
        let world = &self.recording.world;
        let missing: Vec<String> = world.missing().iter().map(|rank| rank.0.to_string()).collect();
        if !missing.is_empty() {
            let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
            why.push(format!(
                "{ranks} {} of {} not recorded: what the others did with {} is taken to fit",
                missing.join(", "),
                world.ranks,
                if missing.len() == 1 { "it" } else { "them" }
            ));
        }
        for (rank, program) in self.there() {
            if program.lost > 0 {
                why.push(format!("{} events of rank {rank} were lost while recording", program.lost));
            }
            if let Some(until) = &program.until {
                let at = until.origin.map_or_else(
                    || "only up to its first call".to_owned(),
                    |origin| format!("only up to {}", self.recording.called(program, &origin)),
                );
                why.push(format!(
                    "rank {rank} is judged {at}: {}; what it did from there on ({} calls) is taken to fit",
                    until.lacks, until.calls
                ));
            }
            for failure in &program.failures {
                let names = &self.recording.program.names;
                let cut_there =
                    program.until.as_ref().is_some_and(|until| until.origin == Some(failure.origin));
                let judged = cut_there || program.has_op_of(&failure.origin);
                if vendor::accuses(&names.text(failure.origin.name), failure.code) && !judged {
                    why.push(format!(
                        "rank {rank}: {} returned {}: why it failed is not judged, and what it would have done is left \
                         out",
                        self.recording.called(program, &failure.origin),
                        failure.code
                    ));
                }
            }
        }
        why.extend(self.ends_without_exit());
        why
    }

    /// Ranks whose recordings end without their exit; of those whose files were cut, what is not known.
    fn ends_without_exit(&self) -> Vec<String> {
        let mut why = Vec::new();
        let (mut stopped, mut interrupted) = (Vec::new(), Vec::new());
        for (rank, program) in self.there() {
            let (RecordingEnd::Cut { .. }, rank) = (&program.ending, Rank(rank)) else { continue };
            match program.last {
                Some(last) if program.truncated => why.push(format!(
                    "of rank {} the file was cut: what came after {} is not known",
                    rank.0,
                    self.recording.called(program, &last)
                )),
                None if program.truncated => {
                    why.push(format!("of rank {} the file was cut, and no call of it is left", rank.0));
                }
                _ if program.interrupted => interrupted.push(rank),
                _ => stopped.push(rank),
            }
        }
        let mut told = |ranks: Vec<Rank>, how: &str| {
            let (recordings, end) = match ranks.len() {
                0 => return,
                1 => ("recording", "ends without its exit"),
                _ => ("recordings", "end without their exit"),
            };
            why.push(format!("the {recordings} of {} {end}{how}", ranks_in_words(ranks.into_iter())));
        };
        told(stopped, "");
        told(interrupted, ", because somebody interrupted the program");
        why
    }

    /// Ranks that were recorded.
    pub fn there(&self) -> impl Iterator<Item = (u32, &RankRun)> {
        let members = &self.recording.world.members;
        members.iter().map(|member| (member.rank.0, &self.recording.program.ranks[member.rank.at()]))
    }

    /// Whether the run was stopped where ranks stood.
    pub(super) fn stood(&self) -> bool {
        self.there().any(|(_, program)| matches!(program.ending, RecordingEnd::Cut { .. }))
            && self.stood_still()
    }

    /// Whether ranks stood where their recordings end: somebody waits, or all that did not exit were inside a call.
    pub(super) fn stood_still(&self) -> bool {
        let inside = |(_, program): (u32, &RankRun)| match program.ending {
            RecordingEnd::Exit(_) => true,
            RecordingEnd::Cut { .. } => !program.truncated && !program.open_calls.is_empty(),
        };
        !self.standing.is_empty() || self.there().all(inside)
    }
}
