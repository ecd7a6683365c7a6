//! Searches that are kept while they go on: one that is killed goes on in another process.
//!
//! Kept are the graph so far, by fingerprints, which of its states wait to be expanded, and what was found beside. States
//! are not: those that wait are made again along the shortest ways to them, and so is one state of each end that was seen.
//! Not here: the file in which searches are kept (`command/checkpoint.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankcheck_model::known::KnownOfProgram;
use rankcheck_model::{EvaluatedProgram, LocId, Machine, Object, RememberedPast, Source, State};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::complete::{CompleteRuns, KeptRuns};
use super::decisions::RunDecisions;
use super::explore::{ExploredState, Visit};
use super::graph::{EdgeLog, GraphWalk, Model, StateId, Waiting, WalkedState as _};
use super::tally::EdgeTally;

/// A search, as it is told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchName {
    /// The check and its setting.
    pub words: String,
    /// Made from all that decides what the search finds.
    pub digest: u128,
}

/// Where searches are kept.
pub trait SearchKeeper: Debug + Send + Sync {
    /// How often a search is kept.
    fn every(&self) -> Duration;

    /// What was kept of a search, if anything was.
    fn kept(&self, of: &SearchName) -> Option<Box<dyn Read>>;

    /// A search goes on from so many states; none if what was kept of it cannot be understood, so that it begins anew.
    fn goes_on(&self, which: &SearchName, from: Option<u64>);

    /// Keeps a search, in place of what was kept of it before.
    fn keep(&self, which: &SearchName, search: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>);
}

/// A search that is kept, and where.
#[derive(Clone, Copy)]
pub(super) struct Keeping<'a> {
    pub(super) keeper: &'a dyn SearchKeeper,
    pub(super) name: &'a SearchName,
}

/// What is kept of a search beside its graph.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFindings {
    root: u32,
    settings: KeptSettings,
    evaluated: EvaluatedProgram,
    known: KnownOfProgram,
    runs: KeptRuns,
}

/// What a search has found out about how to search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeptSettings {
    pub(super) contended: BTreeSet<Object>,
    pub(super) remembered: Option<RememberedPast>,
    pub(super) actors_per_rank: u32,
    /// Whether it is settled which histories merge.
    pub(super) merging_is_settled: bool,
    pub(super) decisions: Option<RunDecisions>,
}

/// A search as it was kept.
pub(super) struct KeptSearch {
    findings: KeptFindings,
    fingerprints: Vec<u128>,
    logs: Vec<EdgeLog>,
    waiting: Vec<StateId>,
    /// The complete runs, each with the number of its end.
    complete: Vec<(StateId, u32)>,
}

impl Keeping<'_> {
    /// The search as it was kept.
    pub(super) fn kept(self) -> Option<KeptSearch> {
        let mut from = self.keeper.kept(self.name)?;
        let kept = KeptSearch::read(&mut from).ok();
        if kept.is_none() {
            self.keeper.goes_on(self.name, None);
        }
        kept
    }

    /// Walks until nothing is left, or the walk is given up, and keeps it from time to time.
    pub(super) fn walk<M>(
        self,
        walk: &mut GraphWalk<M::State>,
        (model, visit): (&M, &Visit<'_>),
        threads: usize,
        settings: &KeptSettings,
    ) where
        M: Model + Sync,
        M::State: ExploredState + Send,
    {
        let mut every = self.keeper.every();
        let (began, mut kept) = (Instant::now(), walk.states() > 1);
        let (machine, runs) = (visit.machine, visit.runs);
        loop {
            // A scout makes one run.
            let until = if machine.config.scouts { None } else { Instant::now().checked_add(every) };
            walk.go_on(model, visit, threads, until);
            // Nothing of a walk is of use to the one that starts again.
            if machine.interrupted() || machine.config.scouts || runs.many.load(Ordering::Relaxed) {
                return;
            }
            let over = walk.waiting.is_empty();
            if !over || kept || began.elapsed() >= every {
                let started = Instant::now();
                self.keeper.keep(self.name, &mut |to| write(to, walk, visit, settings));
                every = every.max(started.elapsed() * 20);
                kept = true;
            }
            if over || runs.cut.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl KeptSearch {
    /// What the search has found out about how to search, with numbers that places have here.
    pub(super) fn settings(&self, source: &Arc<dyn Source>) -> KeptSettings {
        let here = source.take_over(&self.findings.evaluated);
        let at = |kept: LocId| here.get(kept.at()).copied().unwrap_or(kept);
        let settings = self.findings.settings.clone();
        KeptSettings { remembered: settings.remembered.map(|past| past.renumbered(at)), ..settings }
    }

    /// Makes the states again that wait, and takes over what was found. Returns the walk, which goes on; none if it is no
    /// walk of this model.
    pub(super) fn go_on<M>(
        self,
        of: Keeping<'_>,
        (model, machine): (&M, &Machine),
        runs: &CompleteRuns,
    ) -> Option<GraphWalk<M::State>>
    where
        M: Model,
        M::State: ExploredState + Clone + Send,
    {
        let states = (self.fingerprints.len() - self.waiting.len()) as u64;
        let walk = self.made_again(model, machine, runs);
        let whole = walk.is_some() && !machine.interrupted();
        of.keeper.goes_on(of.name, whole.then_some(states));
        walk.filter(|_| whole)
    }

    fn made_again<M>(self, model: &M, machine: &Machine, runs: &CompleteRuns) -> Option<GraphWalk<M::State>>
    where
        M: Model,
        M::State: ExploredState + Clone + Send,
    {
        let Self { findings, fingerprints, logs, waiting, complete } = self;
        let root = StateId(findings.root);
        let mut walk = GraphWalk::kept(model, root, &fingerprints, logs);
        let known = |state: &StateId| (state.0 as usize) < fingerprints.len();
        let ends_known = complete.iter().all(|(state, _)| known(state));
        if walk.states() != fingerprints.len() || !known(&root) || !ends_known || !waiting.iter().all(known) {
            return None;
        }
        let mut ends: BTreeMap<u32, StateId> = BTreeMap::new();
        for (state, end) in &complete {
            ends.entry(*end).or_insert(*state);
        }
        let graph = walk.graph_so_far();
        let order = graph.nearest_first();
        let wanted: BTreeSet<StateId> = waiting.iter().chain(ends.values()).copied().collect();
        if wanted.iter().any(|state| order.depth(*state) == u32::MAX) {
            return None;
        }
        let mut again: FxHashMap<StateId, M::State> = FxHashMap::default();
        graph.along_shortest_paths(model, &order, &wanted, |id, state| {
            if state.fingerprint() == fingerprints[id.0 as usize] {
                again.insert(id, state.clone());
            }
        });
        let shown = ends.iter().map(|(end, id)| Some((*end, again.get(id)?.as_ref().clone())));
        let shown = shown.collect::<Option<BTreeMap<u32, State>>>()?;
        let states = (fingerprints.len() - waiting.len()) as u64;
        if !runs.take_over(machine, findings.runs, (complete, states), &shown) {
            return None;
        }
        let waiting = waiting.into_iter().map(|id| Some((id, again.remove(&id)?)));
        walk.waiting = waiting.collect::<Option<Vec<Waiting<M::State>>>>()?;
        machine.take_over(&findings.known);
        Some(walk)
    }

    fn read(from: &mut dyn Read) -> io::Result<Self> {
        let mut summed = Summed { through: from, sum: Sha256::new() };
        let kept = Self::read_summed(&mut summed)?;
        let sum = summed.sum.finalize();
        let mut written = [0; 32];
        from.read_exact(&mut written)?;
        if sum[..] == written { Ok(kept) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn read_summed(from: &mut dyn Read) -> io::Result<Self> {
        let findings: KeptFindings = serde_json::from_slice(&read_bytes(from)?)?;
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let fingerprints = read_numbers(from, u128::from_le_bytes)?;
        let mut logs = Vec::new();
        for _ in 0..read_length(from)? {
            let (states, choices) = (read_numbers(from, u32::from_le_bytes)?, read_bytes(from)?);
            let counted = read_numbers(from, u32::from_le_bytes)?;
            let tallies = serde_json::from_slice(&read_bytes(from)?)?;
            let log = EdgeLog::kept(states, choices, (counted, tallies), fingerprints.len());
            logs.push(log.ok_or_else(damaged)?);
        }
        let waiting = read_numbers(from, u32::from_le_bytes)?.into_iter().map(StateId).collect();
        let complete = read_numbers(from, u64::from_le_bytes)?;
        let complete = complete.into_iter().map(|both| (StateId((both >> 32) as u32), both as u32));
        Ok(Self { findings, fingerprints, logs, waiting, complete: complete.collect() })
    }
}

/// Bytes that are read or written, with a sum of them: damage is noticed.
struct Summed<'a, T: ?Sized> {
    through: &'a mut T,
    sum: Sha256,
}

impl Read for Summed<'_, dyn Read + '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.through.read(into)?;
        self.sum.update(&into[..read]);
        Ok(read)
    }
}

impl Write for Summed<'_, dyn Write + '_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let written = self.through.write(from)?;
        self.sum.update(&from[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.through.flush()
    }
}

/// Writes what [`KeptSearch::read`] reads.
fn write<S: ExploredState + Send>(
    to: &mut dyn Write,
    walk: &GraphWalk<S>,
    visit: &Visit<'_>,
    settings: &KeptSettings,
) -> io::Result<()> {
    let mut summed = Summed { through: to, sum: Sha256::new() };
    write_summed(&mut summed, walk, visit, settings)?;
    let sum = summed.sum.finalize();
    to.write_all(&sum)
}

fn write_summed<S: ExploredState + Send>(
    to: &mut dyn Write,
    walk: &GraphWalk<S>,
    visit: &Visit<'_>,
    settings: &KeptSettings,
) -> io::Result<()> {
    let machine = visit.machine;
    let findings = KeptFindings {
        root: walk.root.0,
        settings: settings.clone(),
        evaluated: machine.source.evaluated().unwrap_or_default(),
        known: machine.known(),
        runs: visit.runs.kept(machine),
    };
    write_bytes(to, &serde_json::to_vec(&findings)?)?;
    write_numbers(to, walk.fingerprints().into_iter().map(u128::to_le_bytes))?;
    to.write_all(&(walk.logs.len() as u64).to_le_bytes())?;
    for log in &walk.logs {
        write_numbers(to, log.states.iter().map(|state| state.to_le_bytes()))?;
        write_bytes(to, &log.choices)?;
        write_numbers(to, log.counted.iter().map(|number| number.to_le_bytes()))?;
        let tallies: Vec<&EdgeTally> = log.tallies.all.iter().map(|tally| &**tally).collect();
        write_bytes(to, &serde_json::to_vec(&tallies)?)?;
    }
    write_numbers(to, walk.waiting.iter().map(|(id, _)| id.0.to_le_bytes()))?;
    let complete = visit.runs.ended();
    let both = complete.iter().map(|(state, end)| (u64::from(state.0) << 32) | u64::from(*end));
    write_numbers(to, both.map(u64::to_le_bytes))
}

fn write_bytes(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)
}

fn write_numbers<const N: usize>(
    to: &mut dyn Write,
    mut numbers: impl ExactSizeIterator<Item = [u8; N]>,
) -> io::Result<()> {
    to.write_all(&(numbers.len() as u64).to_le_bytes())?;
    numbers.try_for_each(|number| to.write_all(&number))
}

fn read_length(from: &mut dyn Read) -> io::Result<u64> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    Ok(u64::from_le_bytes(length))
}

fn read_bytes(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let length = read_length(from)?;
    let mut bytes = Vec::new();
    // What a damaged length promises is not reserved.
    match from.take(length).read_to_end(&mut bytes)? as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn read_numbers<const N: usize, T>(from: &mut dyn Read, number: fn([u8; N]) -> T) -> io::Result<Vec<T>> {
    let mut numbers = Vec::new();
    for _ in 0..read_length(from)? {
        let mut bytes = [0; N];
        from.read_exact(&mut bytes)?;
        numbers.push(number(bytes));
    }
    Ok(numbers)
}
