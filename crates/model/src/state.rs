//! The state: the product of the tables of the nouns, and nothing that no rule reads.
//!
//! Each rank is shared until it is written, so a copy of a state costs one pointer a rank. Logs of past
//! accesses are functions of the positions of the threads and stay out of the hash.
//! Not here: how states follow one another.

use crate::host::value::Buffer;
use crate::id::{ContentHasher, Token, fingerprint};
use crate::identity::{AskedAbout, Identify, KnownToAll, Sketch, StateIdentity};
use crate::judge::finding::{Finding, FindingKey, OpRef};
use crate::judge::ledger::{Ledger, Tally};
use crate::machine::Machine;
use crate::noun::address::{FreedAddresses, KnownAddresses};
use crate::noun::barrier::Barriers;
use crate::noun::collective::{DifferentOperands, HandedOverParts};
use crate::noun::comm::{CommCalls, Comms};
use crate::noun::container::Kept;
use crate::noun::event::Events;
use crate::noun::exchange::Exchanges;
use crate::noun::flag::Flags;
use crate::noun::graph::Graphs;
use crate::noun::group::GroupOrder;
use crate::noun::ipc::Mappings;
use crate::noun::launch_order::{Executions, LaunchOrders};
use crate::noun::memory::Memories;
use crate::noun::mutex::Mutexes;
use crate::noun::overlap::Overlaps;
use crate::noun::p2p::Transit;
use crate::noun::pool::Pools;
use crate::noun::store::Keys;
use crate::noun::stream::StreamQueues;
use crate::noun::thread::Threads;
use crate::order::dependence::Touches;
use crate::program::Symmetry;
use crate::rank::Rank;
use crate::remembered::Forgotten;
use crate::term::Content;
use crate::walk::{LocalHash, Renumber, Renumbering, walk};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

mod part;

use self::part::StatePart;

/// A table, as its noun reaches it in the whole that it is part of. What a table holds is its noun's own.
pub(crate) trait Table<In> {
    fn of(whole: &In) -> &Self;
    fn of_mut(whole: &mut In) -> &mut Self;
}

/// Defines a product of tables, each with the two words of its [`walk!`].
macro_rules! tables {
    (
        $(#[$doc:meta])* $visible:vis struct $name:ident {
            $($field:ident: $table:ty = $identity:tt $numbers:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        $visible struct $name { $($field: $table,)* }

        walk!(struct $name { $($field: $identity $numbers,)* });

        $(impl Table<$name> for $table {
            fn of(whole: &$name) -> &Self {
                &whole.$field
            }

            fn of_mut(whole: &mut $name) -> &mut Self {
                &mut whole.$field
            }
        })*
    };
}

tables! {
    /// One rank: the tables of the nouns that are its own.
    pub struct RankState {
        threads: Threads = hashed moved,
        streams: StreamQueues = hashed moved,
        events: Events = hashed moved,
        comms: Comms = hashed moved,
        comm_calls: CommCalls = derived moved,
        launch_orders: LaunchOrders = hashed moved,
        overlaps: Overlaps = hashed moved,
        // Whoever opens memory of another rank names it: ranks are told apart then.
        mappings: Mappings = hashed fixed,
        mutexes: Mutexes = hashed moved,
        graphs: Graphs = hashed moved,
        kept: Kept = hashed fixed,
        // Members are the whole world in rank order where ranks are renumbered.
        barriers: Barriers = hashed fixed,
        exchanges: Exchanges = hashed fixed,
        address_order: KnownAddresses = hashed fixed,
        freed_addresses: FreedAddresses = hashed fixed,
        memories: Memories = hashed moved,
        pools: Pools = hashed moved,
        ledger: Ledger = hashed fixed,
        touches: Touches = derived moved,
    }
}

tables! {
    /// What all ranks share.
    pub(crate) struct Shared {
        keys: Keys = hashed moved,
        flags: Flags = hashed moved,
        group_order: GroupOrder = hashed fixed,
        executions: Executions = derived moved,
        different_operands: DifferentOperands = derived moved,
        transit: Transit = hashed fixed,
        handed_over: HandedOverParts = hashed fixed,
        touches: Touches = derived moved,
    }
}

/// A choice that led to a state, newest first.
#[derive(Debug)]
pub struct Path {
    /// The choice, with the ranks' original numbers.
    pub choice: crate::machine::Choice,
    /// The choices before this one, the last first.
    pub before: Option<Arc<Path>>,
}

/// What those of a rank know who may still do something.
#[derive(Debug, Default)]
struct KnownOfRank {
    /// Its threads.
    threads: KnownToAll,
    /// Its threads and streams.
    everybody: KnownToAll,
}

impl KnownOfRank {
    fn of(rank: &RankState, actors: usize) -> Self {
        let mut threads = KnownToAll::default();
        for thread in rank.threads().iter().filter(|thread| thread.running()) {
            threads.lower(actors, thread.clock());
        }
        let mut everybody = threads.clone();
        for (_, stream) in rank.streams() {
            // Work behind it learns more on the way.
            let Some(head) = stream.head() else { continue };
            let mut clock = stream.clock().clone();
            clock.join(&head.issue);
            everybody.lower(actors, &clock);
        }
        Self { threads, everybody }
    }

    /// What all know, of these ranks.
    fn by_all(ranks: &[Arc<Self>]) -> KnownToAll {
        let mut all = KnownToAll::default();
        ranks.iter().for_each(|known| all.meet(&known.everybody));
        all
    }
}

/// What belongs to the identity of a rank where histories merge.
#[derive(Debug)]
struct SketchedRank {
    known: Arc<KnownOfRank>,
    sketch: Sketch,
}

/// What was worked out of a rank, as long as nobody writes to it.
#[derive(Debug, Clone, Default)]
struct Hashes {
    /// Of everything that rules read.
    whole: Option<u128>,
    /// Of what it is on its own.
    local: Option<u64>,
    /// What of it belongs to the identity of a state where histories merge.
    sketched: Option<Arc<SketchedRank>>,
    /// Whether nobody wrote to it since only choices were left.
    is_quiet: bool,
}

/// A state of the whole job.
#[derive(Debug, Clone)]
pub struct State {
    ranks: Vec<StatePart<RankState>>,
    /// Hashes of each rank, empty where the rank changed since they were taken.
    hashes: Vec<Hashes>,
    shared: Arc<Shared>,
    shared_hash: u128,
    shared_stale: bool,
    /// Of what ran that may still clash, which depends on ranks and on what they share.
    executed_hash: u128,
    /// How many faults there were when only choices were left, unless what ranks share was written since.
    quiet: Option<u32>,
    pub(crate) findings: Arc<BTreeMap<FindingKey, Arc<Finding>>>,
    /// Nobody specifies what follows this operation.
    pub(crate) undefined: Option<OpRef>,
    pub(crate) faults_used: u32,
    /// The choices that led here; not part of the identity.
    pub path: Option<Arc<Path>>,
    /// `original[rank]`: its number before ranks were renumbered; not part of the identity.
    pub(crate) original: Arc<[Rank]>,
    /// Operations executed; not part of the identity.
    pub steps: u64,
}

impl LocalHash for RankState {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.threads.local_hash(state);
        // Which of several alike ranks comes first depends on these values, and with it the number of states.
        self.address_order.local_hash(state);
        self.kept.local_hash(state);
        self.freed_addresses.local_hash(state);
        self.ledger.local_hash(state);
        self.pools.local_hash(state);
    }
}

impl State {
    /// So many ranks of which nothing is known.
    pub(crate) fn new(ranks: u32) -> Self {
        Self {
            ranks: (0..ranks).map(|_| StatePart::default()).collect(),
            hashes: vec![Hashes::default(); ranks as usize],
            shared: Arc::default(),
            shared_hash: 0,
            shared_stale: true,
            executed_hash: 0,
            quiet: None,
            findings: Arc::default(),
            undefined: None,
            faults_used: 0,
            path: None,
            original: (0..ranks).map(Rank).collect(),
            steps: 0,
        }
    }

    /// All ranks, in their order.
    pub(crate) fn ranks(&self) -> impl ExactSizeIterator<Item = &RankState> {
        self.ranks.iter().map(|rank| &**rank)
    }

    /// Whether a rank was not written since one of the two was a copy of the other.
    pub(crate) fn has_same_rank(&self, other: &Self, rank: Rank) -> bool {
        self.ranks[rank.at()].is(&other.ranks[rank.at()])
    }

    /// Notes that only choices are left in all ranks.
    pub(crate) fn is_quiet_now(&mut self) {
        self.hashes.iter_mut().for_each(|rank| rank.is_quiet = true);
        self.quiet = Some(self.faults_used);
    }

    /// Whether a rank is as it was when only choices were left, and all that it depends on: keys, flags, the order of
    /// communicators, faults so far.
    pub(crate) fn is_quiet(&self, rank: Rank) -> bool {
        self.hashes[rank.at()].is_quiet && self.quiet == Some(self.faults_used)
    }

    /// What all ranks share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns what belongs to one rank alone: its threads, and its table of each noun.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> &RankState {
        &self.ranks[rank.at()]
    }

    pub(crate) fn rank_mut(&mut self, rank: Rank) -> &mut RankState {
        self.hashes[rank.at()] = Hashes::default();
        self.ranks[rank.at()].own()
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        self.shared_stale = true;
        self.quiet = None;
        Arc::make_mut(&mut self.shared)
    }

    /// The findings so far.
    #[must_use]
    pub fn findings(&self) -> &BTreeMap<FindingKey, Arc<Finding>> {
        &self.findings
    }

    /// Lets copies share all that is here.
    pub fn share(&mut self) {
        self.ranks.iter_mut().for_each(StatePart::share);
    }

    /// Takes out what each rank has come to since the state was this one, a copy of it, or since it began.
    pub fn take_tallies(&mut self, before: Option<&Self>) -> Vec<Tally> {
        let ranks = (0..u32::try_from(self.ranks.len()).expect("few ranks")).map(Rank);
        let take = |rank: Rank| {
            if before.is_some_and(|before| self.has_same_rank(before, rank)) {
                return Tally::default();
            }
            let own = self.rank(rank);
            let tally = own.tally();
            if !own.counts_nothing() {
                // What was counted keeps nobody awake.
                let is_quiet = self.hashes[rank.at()].is_quiet;
                self.rank_mut(rank).count_anew();
                self.hashes[rank.at()].is_quiet = is_quiet;
            }
            tally
        };
        ranks.map(take).collect()
    }

    /// Host threads and streams for which it was worked out how far they know every other one. In a large job that takes as long as the
    /// job is wide, so a run that goes well leaves none.
    #[must_use]
    pub fn worked_out(&self) -> usize {
        let of_rank = |rank: &RankState| {
            let threads = rank.threads().iter().map(|thread| thread.clock());
            let streams = rank.streams().iter().map(|(_, stream)| stream.clock());
            threads.chain(streams).filter(|clock| clock.is_worked_out()).count()
        };
        self.ranks().map(of_rank).sum()
    }

    /// How far everybody knows each actor who may still do something.
    pub(crate) fn known_to_all(&self, machine: &Machine) -> KnownToAll {
        KnownOfRank::by_all(&self.known(machine).collect::<Vec<_>>())
    }

    /// What those of each rank know.
    fn known(&self, machine: &Machine) -> impl Iterator<Item = Arc<KnownOfRank>> {
        let actors = self.ranks.len() * machine.config.actors_per_rank as usize;
        self.ranks().zip(&self.hashes).map(move |(rank, hashes)| match &hashes.sketched {
            Some(sketched) => Arc::clone(&sketched.known),
            None => Arc::new(KnownOfRank::of(rank, actors)),
        })
    }

    /// What belongs to the identity of the whole: of each rank, if asked also alone, and then of what they share.
    fn sketch(&mut self, machine: &Machine, alone: bool) -> (Vec<Arc<SketchedRank>>, Sketch) {
        let known: Vec<_> = self.known(machine).collect();
        let everybody = KnownOfRank::by_all(&known);
        let mut identity = StateIdentity::new(machine, &everybody, alone);
        let mut ranks = Vec::with_capacity(known.len());
        for (rank, known) in (0..).map(Rank).zip(&known) {
            let before = self.hashes[rank.at()].sketched.as_ref();
            let before = before.filter(|before| before.sketch.is_of(&everybody, alone)).cloned();
            let mut anew = || {
                let identify = |to: &mut StateIdentity<'_>| self.identify_rank(rank, to);
                identity.of_rank((rank, self.rank(rank)), &known.threads, identify)
            };
            if let Some(before) = &before {
                debug_assert!(anew().is(&before.sketch), "a rank changed, and its sketch was kept");
            }
            let sketched =
                before.unwrap_or_else(|| Arc::new(SketchedRank { known: Arc::clone(known), sketch: anew() }));
            self.hashes[rank.at()].sketched = Some(Arc::clone(&sketched));
            ranks.push(sketched);
        }
        let ahead = machine.shared_ahead(self.ranks());
        let shared = identity.of_shared(ahead, |to| self.identify_shared(to));
        (ranks, shared)
    }

    fn identify_shared(&self, to: &mut StateIdentity<'_>) {
        let machine = to.machine;
        self.shared.identify(to);
        machine.identify_executed(self, to);
        if !machine.config.declared_forgotten.contains(&Forgotten::Votes) {
            for (rendezvous, agreed) in Machine::agreed_so_far(self) {
                rendezvous.identify(to);
                agreed.identify(to);
            }
            u64::MAX.hash(to);
        }
        self.findings.keys().for_each(|key| key.hash(to));
        (self.undefined.is_some(), self.faults_used).hash(to);
    }

    fn identify_rank(&self, rank: Rank, to: &mut StateIdentity<'_>) {
        self.rank(rank).identify(to);
        // What the program still holds is part of what a run leaves behind.
        let held: Vec<&Arc<Buffer>> = Machine::held_buffers(self, rank).map(|(.., buffer)| buffer).collect();
        let (used, left): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|buffer| to.reachable().has(buffer.memory));
        to.unordered(used, |buffer, to| buffer.identify(to));
        // Two that are told alike are told twice.
        let mut told: FxHashMap<(Token, Content), u32> = FxHashMap::default();
        for content in left.into_iter().filter_map(|buffer| to.machine.told_content(self, rank, buffer)) {
            *told.entry(content).or_default() += 1;
        }
        to.unordered(told, |told, to| told.identify(to));
    }

    /// What the state is where histories merge.
    #[must_use]
    pub fn merged_fingerprint(&mut self, machine: &Machine) -> u128 {
        let interchangeable = machine.source.symmetry() == Symmetry::Interchangeable;
        let (ranks, shared) = self.sketch(machine, interchangeable);
        let parts: Vec<&Sketch> = ranks.iter().map(|rank| &rank.sketch).chain([&shared]).collect();
        AskedAbout::of(&parts, machine).whole()
    }

    /// What the state is where histories merge, if its ranks are numbered by what they look like on their own; else the
    /// order in which they would be.
    pub(crate) fn merged_fingerprint_in_order(&mut self, machine: &Machine) -> Result<u128, Vec<u32>> {
        let (ranks, shared) = self.sketch(machine, true);
        let parts: Vec<&Sketch> = ranks.iter().map(|rank| &rank.sketch).chain([&shared]).collect();
        let asked = AskedAbout::of(&parts, machine);
        let alone = asked.alone(machine.config.actors_per_rank);
        // What few look like first: the rank that is being played through then stays where choices are taken first, and comes
        // to its end before another one begins.
        let mut like: FxHashMap<u128, u32> = FxHashMap::default();
        alone.iter().for_each(|looks| *like.entry(*looks).or_default() += 1);
        let place = |looks: &u128| (like[looks], *looks);
        if alone.is_sorted_by_key(place) {
            return Ok(asked.whole());
        }
        let mut order: Vec<u32> = (0..machine.config.ranks).collect();
        order.sort_by_key(|rank| place(&alone[*rank as usize]));
        Err(order)
    }

    /// Brings the cached hashes up to date.
    pub fn seal(&mut self) {
        self.share();
        for (hash, rank) in self.hashes.iter_mut().zip(&self.ranks) {
            hash.whole.get_or_insert_with(|| fingerprint(&**rank));
        }
        if self.shared_stale {
            self.shared_hash = fingerprint(&*self.shared);
            self.shared_stale = false;
        }
        self.executed_hash = Machine::executed_hash(self);
    }

    /// A fingerprint of everything that rules read: the same for equal states, in whatever order and in whichever process
    /// they were found.
    ///
    /// # Panics
    /// If the state was changed since [`State::seal`].
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        let Self {
            ranks: _,
            hashes,
            shared: _,
            shared_hash,
            shared_stale,
            executed_hash,
            quiet: _,
            findings,
            undefined,
            faults_used,
            // How it came about, and under which numbers, is not what it is.
            path: _,
            original: _,
            steps: _,
        } = self;
        assert!(!shared_stale, "seal before taking a fingerprint");
        let mut hasher = ContentHasher::default();
        for hash in hashes {
            hash.whole.expect("seal before taking a fingerprint").hash(&mut hasher);
        }
        (shared_hash, executed_hash).hash(&mut hasher);
        findings.len().hash(&mut hasher);
        for key in findings.keys() {
            key.hash(&mut hasher);
        }
        undefined.is_some().hash(&mut hasher);
        faults_used.hash(&mut hasher);
        hasher.fingerprint()
    }

    /// What a rank looks like on its own, without knowledge of others.
    pub(crate) fn local_hash(&mut self, rank: Rank) -> u64 {
        let own = &self.ranks[rank.at()];
        *self.hashes[rank.at()].local.get_or_insert_with(|| {
            let mut hasher = ContentHasher::default();
            own.local_hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Ranks get other numbers. Valid only where they are interchangeable.
    pub(crate) fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self {
            ranks,
            hashes,
            shared,
            shared_hash: _,
            shared_stale,
            executed_hash: _,
            quiet: _,
            findings,
            undefined,
            faults_used: _,
            path: _,
            original,
            steps: _,
        } = self;
        let before = (0..).map(Rank).zip(std::mem::take(ranks)).zip(hashes.clone()).zip(original.to_vec());
        let mut numbers = original.to_vec();
        let mut moved: Vec<Option<StatePart<RankState>>> = vec![None; numbers.len()];
        for (((old, mut rank), known), number) in before {
            let new = by.rank(old);
            numbers[new.at()] = number;
            // What a rank knows of others, and what its memory holds of them, may be alike for all.
            if new != old || !rank.stays(by) {
                rank.own().renumber(by);
                // What a rank looks like on its own does not depend on its number.
                hashes[new.at()] =
                    Hashes { local: known.local, is_quiet: known.is_quiet, ..Hashes::default() };
            }
            moved[new.at()] = Some(rank);
            by.let_go();
        }
        *ranks = moved.into_iter().map(|rank| rank.expect("every rank has a new number")).collect();
        *original = numbers.into();
        *shared_stale = true;
        shared.renumber(by);
        let moved = std::mem::take(Arc::make_mut(findings)).into_iter().map(|(mut key, mut finding)| {
            key.renumber(by);
            finding.renumber(by);
            (key, finding)
        });
        *findings = Arc::new(moved.collect());
        undefined.renumber(by);
    }

    /// The numbers that ranks had before they were renumbered.
    #[must_use]
    pub fn originals(&self) -> &[Rank] {
        &self.original
    }

    /// The number that a rank had before ranks were renumbered.
    #[must_use]
    pub fn original(&self, rank: Rank) -> Rank {
        self.original[rank.at()]
    }

    /// The number that a rank has now, by the one that it had before ranks were renumbered.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn now(&self, original: Rank) -> Rank {
        let at = self.original.iter().position(|rank| *rank == original).expect("a rank of the world");
        Rank(u32::try_from(at).expect("few ranks"))
    }

    /// The choices that led here, oldest first, with the ranks' original numbers.
    #[must_use]
    pub fn choices(&self) -> Vec<crate::machine::Choice> {
        let mut choices = Vec::new();
        let mut at = self.path.as_ref();
        while let Some(path) = at {
            choices.push(path.choice.clone());
            at = path.before.as_ref();
        }
        choices.reverse();
        choices
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // A long list would otherwise be dropped recursively.
        let mut before = self.before.take();
        while let Some(path) = before {
            match Arc::try_unwrap(path) {
                Ok(mut path) => before = path.before.take(),
                Err(_) => break,
            }
        }
    }
}
