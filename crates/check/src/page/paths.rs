//! Where ranks diverge: the last line that they have in common before the finding, and the first that each goes to behind it.
//!
//! Hosts are compared line by line; where they take the same lines, call by call; jobs that were looked at from outside by
//! the collectives that met. All of it is a fact about the run that is drawn.
//! Not here: whether that decided the finding, which is tried (`crate::search::explain`) and never guessed.

use std::collections::BTreeMap;

use rankcheck_model::{Rank, ranks_in_words};
use rustc_hash::FxHashMap;

use super::diagram::{Diagram, LaneKind, LineSign, Mark, MarkedLine, PathSign, SourcePlace, StepRole};

/// Lines between the last that is common and the next up to which they are said to decide.
const NEAR: u32 = 40;

/// A rank at which to look, and how far its path goes before the finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathSeed {
    pub(super) rank: u32,
    /// What the finding is about on this rank, where it is known.
    pub(super) at: Option<PathPoint>,
}

/// A step or a wait of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathPoint {
    Step(usize),
    Wait(usize),
}

/// Something that a rank does on its way.
#[derive(Debug, Clone, Copy)]
struct PathItem {
    at: PathPoint,
    text: usize,
    place: Option<usize>,
    note: Option<usize>,
    met: Option<usize>,
    /// The first place of the same line.
    line: Option<usize>,
    /// The first lane of this name.
    group: usize,
    role: StepRole,
}

/// What has to be the same for two ranks to be on one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathLevel {
    /// The lines that they come by.
    Lines,
    /// The lines, and what they do there.
    Calls,
    /// The collectives and transfers in which they met.
    Meetings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum PathKey {
    /// A line, by a place that stands there.
    Line(usize),
    /// A line, what is called there, and what is decided in it or the group that it is for.
    Call(Option<usize>, usize, Option<usize>),
    /// A collective or transfer in which ranks met.
    Met(usize),
}

/// What a rank does, in order; what is of no concern to others is left out.
struct RankPath {
    rank: u32,
    items: Vec<PathItem>,
    /// How many of them come before the finding.
    before: usize,
    seeded: bool,
}

/// Ranks that go on alike behind the last that all have in common.
#[derive(Debug)]
struct PathSide {
    ranks: Vec<u32>,
    /// The first that each does; none if it makes no further call.
    next: Vec<PathPoint>,
    item: Option<PathItem>,
}

/// Where ranks diverge, and what they had in common before.
#[derive(Debug)]
struct DivergingPaths {
    compared: PathLevel,
    /// The last that they have in common, the how-manieth time it is, and where each of them does it.
    common: Option<(PathItem, u32, Vec<PathPoint>)>,
    sides: Vec<PathSide>,
}

/// Marks the last that ranks have in common and the first in which they differ, and returns rows about it.
pub(super) fn mark(diagram: &mut Diagram, seeds: &[PathSeed]) -> Option<String> {
    if seeds.is_empty() {
        return None;
    }
    let apart = find(diagram, seeds)?;
    let words = apart.words(diagram);
    if let Some((item, nth, steps)) = &apart.common {
        steps.iter().for_each(|at| sign(diagram, *at, PathSign::Common));
        line(diagram, item.place, LineSign::Common, format!("last line in common{}", time(*nth)));
    }
    for side in &apart.sides {
        side.next.iter().for_each(|at| sign(diagram, *at, PathSign::Diverges));
        let Some(item) = side.item else { continue };
        let ranks = in_words(&side.ranks);
        let words = match apart.compared {
            PathLevel::Lines | PathLevel::Meetings => {
                format!("{ranks} {} here", if side.ranks.len() == 1 { "goes" } else { "go" })
            }
            PathLevel::Calls if apart.decides(item) => "ranks decide differently here".to_owned(),
            PathLevel::Calls => format!("{ranks}: {}", apart.call(diagram, &item)),
        };
        line(diagram, item.place, LineSign::Diverges, words);
    }
    Some(words)
}

/// What was tried to repair the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepairsTried {
    /// Changes, and none of them is known to repair it.
    Changes,
    /// Nothing, as nobody asked for it.
    NotAsked,
    /// Nothing: there is a run, and no program to change.
    Nothing,
}

/// What to look at where no repair is known: what stands between the last line that ranks have in common and those in which
/// they differ, or else these.
pub(super) fn look_at(diagram: &Diagram, tried: RepairsTried) -> String {
    let said = match tried {
        RepairsTried::Changes => "no change that was tried is known to repair it",
        RepairsTried::NotAsked => "no repair was looked for",
        RepairsTried::Nothing => "no repair was tried: this is one run, and not the program",
    };
    let of = |sign: LineSign| diagram.lines.iter().filter(move |line| line.sign == sign);
    let at = |line: &MarkedLine| at(&diagram.places[line.place]);
    let where_to = match (between(diagram), of(LineSign::Common).next(), of(LineSign::Diverges).next()) {
        (Some(lines), ..) => format!("{lines}: what decides which way a rank goes is evaluated there"),
        (None, Some(common), _) => {
            format!("{}, and what decides what a rank does after it", at(common))
        }
        (None, None, Some(first)) => format!("{}, and what comes before it", at(first)),
        (None, None, None) => {
            let lines = finding_lines(diagram);
            if lines.is_empty() {
                "the calls in red".to_owned()
            } else {
                format!("{}: the calls in red", lines.join(", "))
            }
        }
    };
    format!("{where_to} ({said})")
}

/// A few lines of what the finding is about.
fn finding_lines(diagram: &Diagram) -> Vec<String> {
    /// Lines that are named.
    const NAMED: usize = 3;
    let steps = diagram.steps.iter().filter(|step| step.mark == Some(Mark::Finding)).map(|step| step.place);
    let waits = diagram.blocked.iter().filter(|wait| wait.finding).map(|wait| wait.place);
    let mut lines: Vec<String> = Vec::new();
    for place in
        steps.chain(waits).flatten().map(|place| &diagram.places[place]).filter(|place| place.line > 0)
    {
        let line = at(place);
        if lines.len() < NAMED && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Lines between the last that ranks have in common and those in which they differ, where they stand in one file. A rank
/// that comes around a loop again passes them too.
fn between(diagram: &Diagram) -> Option<String> {
    let of =
        |sign: LineSign| diagram.lines.iter().filter(move |line| line.sign == sign).map(|line| line.place);
    let place = |at: usize| &diagram.places[at];
    let common = place(of(LineSign::Common).next()?);
    let sides = of(LineSign::Diverges).map(place);
    if sides.clone().any(|at| at.file != common.file || at.line < common.line) {
        return None;
    }
    let last = sides.map(|at| at.line).filter(|line| *line > common.line).min()?;
    let first = common.line + 1;
    let file = short(&common.file);
    // Farther apart, the range says nothing.
    if last - first > NEAR {
        return None;
    }
    Some(if first == last { format!("{file}:{last}") } else { format!("{file}, lines {first} to {last}") })
}

/// The last component of a path.
pub(super) fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn in_words(ranks: &[u32]) -> String {
    ranks_in_words(ranks.iter().map(|rank| Rank(*rank)))
}

fn sign(diagram: &mut Diagram, at: PathPoint, sign: PathSign) {
    match at {
        PathPoint::Step(step) => diagram.steps[step].path = Some(sign),
        PathPoint::Wait(wait) => diagram.blocked[wait].path = Some(sign),
    }
}

fn line(diagram: &mut Diagram, place: Option<usize>, sign: LineSign, words: String) {
    let known = |place: &usize| diagram.places[*place].line > 0;
    if let Some(place) = place.filter(known) {
        diagram.lines.push(MarkedLine { place, sign, words });
    }
}

/// The how-manieth time it is, where there was one before.
fn time(nth: u32) -> String {
    let ending = match (nth % 10, nth % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    if nth > 1 { format!(", for the {nth}{ending} time") } else { String::new() }
}

/// Where a line stands, in a few words.
fn at(place: &SourcePlace) -> String {
    let line = |file: &str, line: u32| {
        if line == 0 { short(file).to_owned() } else { format!("{}:{line}", short(file)) }
    };
    match &place.called_at {
        Some((file, number)) => format!("{}, in {}", line(file, *number), line(&place.file, place.line)),
        None => line(&place.file, place.line),
    }
}

impl DivergingPaths {
    /// Whether ranks do one and the same there, and something falls otherwise in it.
    fn decides(&self, item: PathItem) -> bool {
        let same =
            |side: &PathSide| side.item.is_some_and(|of| (of.place, of.text) == (item.place, item.text));
        self.compared == PathLevel::Calls && self.sides.iter().all(same)
    }

    fn words(&self, diagram: &Diagram) -> String {
        let after = match &self.common {
            None => "from the start".to_owned(),
            Some((item, nth, _)) => {
                format!("after {}{}", self.told(diagram, item), time(*nth))
            }
        };
        if let Some(item) = self.sides[0].item.filter(|item| self.decides(*item)) {
            return format!(
                "ranks diverge {after}: {} comes out differently on them",
                self.told(diagram, &item)
            );
        }
        let sides: Vec<String> = self.sides.iter().map(|side| self.side(diagram, side)).collect();
        format!("ranks diverge {after}: then {}", sides.join("; "))
    }

    /// What is called; with its operands only where the ranks differ in nothing else.
    fn call<'a>(&self, diagram: &'a Diagram, item: &PathItem) -> &'a str {
        let name = |item: &PathItem| {
            let text = diagram.texts[item.text].as_str();
            text.split('(').next().unwrap_or(text)
        };
        let all: Vec<&str> = self.sides.iter().filter_map(|side| side.item.as_ref().map(name)).collect();
        let differ = all.iter().enumerate().all(|(nth, name)| !all[..nth].contains(name));
        match self.compared {
            PathLevel::Lines => name(item),
            PathLevel::Calls if differ => name(item),
            PathLevel::Calls | PathLevel::Meetings => &diagram.texts[item.text],
        }
    }

    /// What is done and where.
    fn told(&self, diagram: &Diagram, item: &PathItem) -> String {
        let text = self.call(diagram, item);
        let text = match self.compared {
            PathLevel::Lines | PathLevel::Calls => text.to_owned(),
            PathLevel::Meetings => format!("{text} of {}", diagram.lanes[item.group].name),
        };
        match item.place {
            Some(place) => format!("{text} ({})", at(&diagram.places[place])),
            None => text,
        }
    }

    fn side(&self, diagram: &Diagram, side: &PathSide) -> String {
        let (ranks, one) = (in_words(&side.ranks), side.ranks.len() == 1);
        match &side.item {
            None => format!("{ranks} {} no further call that others see", if one { "makes" } else { "make" }),
            Some(item) => format!("{ranks} {} {}", if one { "does" } else { "do" }, self.told(diagram, item)),
        }
    }
}

fn find(diagram: &Diagram, seeds: &[PathSeed]) -> Option<DivergingPaths> {
    let paths = paths(diagram, seeds);
    let grouped = diagram.lanes.iter().any(|lane| lane.kind == LaneKind::Group);
    let compared: &[PathLevel] =
        if grouped { &[PathLevel::Meetings] } else { &[PathLevel::Lines, PathLevel::Calls] };
    compared.iter().find_map(|compared| diverging(&paths, *compared))
}

/// What each rank does, in order, as far as it concerns others or is decided.
fn items(diagram: &Diagram) -> BTreeMap<u32, Vec<PathItem>> {
    let mut items: BTreeMap<u32, Vec<PathItem>> = BTreeMap::new();
    let mut met: FxHashMap<usize, usize> = FxHashMap::default();
    for (nth, meeting) in diagram.meetings.iter().enumerate() {
        for step in meeting {
            met.entry(*step).or_insert(nth);
        }
    }
    let mut names: FxHashMap<&str, usize> = FxHashMap::default();
    let named = diagram.lanes.iter().enumerate();
    let groups: Vec<usize> = named.map(|(nth, lane)| *names.entry(&lane.name).or_insert(nth)).collect();
    let lines = lines_of(&diagram.places);
    let line = |place: Option<usize>| place.and_then(|place| lines[place]);
    for (nth, step) in diagram.steps.iter().enumerate() {
        let lane = &diagram.lanes[step.lane];
        if lane.kind != LaneKind::Stream && (step.role != StepRole::Own || step.note.is_some()) {
            // Calls that have one number and do not fit together did not meet.
            let met = met.get(&nth).copied().filter(|_| step.mark != Some(Mark::Finding));
            let (text, place, note, role) = (step.text, step.place, step.note, step.role);
            let (at, group, line) = (PathPoint::Step(nth), groups[step.lane], line(step.place));
            items.entry(lane.rank).or_default().push(PathItem {
                at,
                text,
                place,
                note,
                met,
                line,
                group,
                role,
            });
        }
    }
    for (nth, wait) in diagram.blocked.iter().enumerate() {
        let lane = &diagram.lanes[wait.lane];
        let there = |step: usize| diagram.steps[step].role != StepRole::Own;
        if lane.kind == LaneKind::Thread && !wait.step.is_some_and(there) {
            let (text, place, group) = (wait.text, wait.place, groups[wait.lane]);
            let (at, line, role) = (PathPoint::Wait(nth), line(place), StepRole::InRole);
            let item = PathItem { at, text, place, note: None, met: None, line, group, role };
            items.entry(lane.rank).or_default().push(item);
        }
    }
    items
}

/// The path of each rank, those first that a seed is about.
fn paths(diagram: &Diagram, seeds: &[PathSeed]) -> Vec<RankPath> {
    let items = items(diagram);
    let mut paths: Vec<RankPath> = items
        .into_iter()
        .map(|(rank, items)| {
            let own = seeds.iter().filter(|seed| seed.rank == rank);
            let limits = own.clone().filter_map(|seed| Some(limit(diagram, &items, seed.at?)));
            RankPath { rank, before: limits.min().unwrap_or(items.len()), seeded: own.count() > 0, items }
        })
        .collect();
    let first = seeds.iter().find(|seed| seed.at.is_some()).or_else(|| seeds.first()).map(|seed| seed.rank);
    paths.sort_by_key(|path| (Some(path.rank) != first, !path.seeded, path.rank));
    paths
}

/// How many items of a path come before a step or wait; before the call that launched it, if it is one of a stream.
fn limit(diagram: &Diagram, items: &[PathItem], point: PathPoint) -> usize {
    if let Some(at) = items.iter().position(|item| item.at == point) {
        return at;
    }
    let (step, text, place) = match point {
        PathPoint::Step(step) => (Some(step), diagram.steps[step].text, diagram.steps[step].place),
        PathPoint::Wait(wait) => {
            let wait = &diagram.blocked[wait];
            (wait.step, wait.text, wait.place)
        }
    };
    let before = |item: &PathItem| match (item.at, step) {
        (PathPoint::Step(at), Some(step)) => at < step,
        (PathPoint::Step(_), None) => true,
        (PathPoint::Wait(_), _) => false,
    };
    let launched = items.iter().rposition(|item| before(item) && (item.text, item.place) == (text, place));
    launched.unwrap_or_else(|| items.iter().filter(|item| before(item)).count())
}

/// Each item by what is compared, with how often that came before; nothing for what cannot be compared.
fn keyed(path: &RankPath, compared: PathLevel) -> Vec<Option<(PathKey, u32)>> {
    let mut times: FxHashMap<PathKey, u32> = FxHashMap::default();
    let mut key = |item: &PathItem| {
        let key = identity(item, compared)?;
        let time = times.entry(key).or_default();
        *time += 1;
        Some((key, *time))
    };
    path.items.iter().map(&mut key).collect()
}

fn identity(item: &PathItem, compared: PathLevel) -> Option<PathKey> {
    let line = item.line;
    match compared {
        PathLevel::Lines => line.map(PathKey::Line),
        PathLevel::Calls if item.role == StepRole::InRole => line.map(PathKey::Line),
        // Where no line is known, its number among the calls stands in its place, which differs from rank to rank.
        PathLevel::Calls => Some(PathKey::Call(line, item.text, item.note)),
        PathLevel::Meetings => item.met.map(PathKey::Met),
    }
}

/// For each place the first of the same line, if it is known. A line of a library counts as the line of the program that
/// calls it.
fn lines_of(places: &[SourcePlace]) -> Vec<Option<usize>> {
    let mut first: FxHashMap<(&str, u32), usize> = FxHashMap::default();
    let mut lines = Vec::with_capacity(places.len());
    for (nth, place) in places.iter().enumerate() {
        let (file, line) = match &place.called_at {
            Some((file, line)) => (file.as_str(), *line),
            None => (place.file.as_str(), place.line),
        };
        lines.push((line > 0).then(|| *first.entry((file, line)).or_insert(nth)));
    }
    lines
}

fn diverging(paths: &[RankPath], compared: PathLevel) -> Option<DivergingPaths> {
    let keys: Vec<Vec<Option<(PathKey, u32)>>> = paths.iter().map(|path| keyed(path, compared)).collect();
    // Of what cannot be compared by lines, nothing can be said; a call that met nobody differs from every other.
    let next = |rank: usize, from: usize| {
        (from..paths[rank].items.len()).find(|at| compared != PathLevel::Lines || keys[rank][*at].is_some())
    };
    let does = |rank: usize, at: Option<usize>| {
        at.map(|at| match (compared, keys[rank][at]) {
            (_, Some((key, _))) => key,
            (_, None) => {
                let PathItem { place, text, group, .. } = paths[rank].items[at];
                PathKey::Call(place, text, Some(group))
            }
        })
    };
    let own = paths.first()?;
    let others = 1..paths.len();
    // Ranks in different roles differ from early on; the one that goes the longest way with this rank says the most.
    let pairs = others.filter_map(|other| {
        let there: FxHashMap<(PathKey, u32), usize> = keys[other][..paths[other].before]
            .iter()
            .zip(0..)
            .filter_map(|(key, at)| Some(((*key)?, at)))
            .collect();
        let common = (0..own.before).rev().find_map(|at| Some((at, *there.get(&keys[0][at]?)?)));
        let (mine, theirs) = common.map_or((0, 0), |(mine, theirs)| (mine + 1, theirs + 1));
        (does(0, next(0, mine)) != does(other, next(other, theirs))).then_some(common)
    });
    let pair = pairs.max_by_key(|common| common.map(|(mine, _)| mine))?;
    let common = pair.and_then(|(mine, _)| Some((own.items[mine], keys[0][mine]?)));
    let mut steps = Vec::new();
    let mut sides: BTreeMap<Option<PathKey>, PathSide> = BTreeMap::new();
    for (rank, path) in paths.iter().enumerate() {
        let from = match common {
            None => 0,
            Some((_, key)) => {
                let Some(at) = keys[rank].iter().position(|other| *other == Some(key)) else { continue };
                steps.push(path.items[at].at);
                at + 1
            }
        };
        let at = next(rank, from);
        let item = at.map(|at| path.items[at]);
        let side = sides.entry(does(rank, at)).or_insert_with(|| PathSide {
            ranks: Vec::new(),
            next: Vec::new(),
            item,
        });
        side.ranks.push(path.rank);
        side.next.extend(item.map(|item| item.at));
    }
    let mut sides: Vec<PathSide> = sides.into_values().collect();
    sides.iter_mut().for_each(|side| side.ranks.sort_unstable());
    sides.sort_by_key(|side| side.ranks[0]);
    let common = common.map(|(item, (_, nth))| (item, nth, steps));
    (sides.len() > 1).then_some(DivergingPaths { compared, common, sides })
}
