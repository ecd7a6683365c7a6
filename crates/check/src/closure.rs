//! Programs written as Rust closures, and what is expected of them.
//!
//! A closure is a program as a function of a spec is one. It has every verb of the spec language: `x.verb(a)` of a spec
//! is `x.verb(r, a)?` here, where `r` is the [`Builder`], and what stands on `r` itself is a method of it
//! (`r.store.set` is [`r.store_set`](Builder::store_set)). Arguments that may be left out are options: `None` is what
//! a spec takes without them, [`Payload`] and [`Caching`] have the longer lists.
//!
//! Each verb is handed up with `?`, because an evaluation stops at a question that has no answer yet. The closure is
//! called again with the answer, so it may depend on its rank and on answers only, and must not keep anything.
//!
//! ```
//! use rankcheck::closure::{Builder, Caching, Flow, Payload, Program, Rule, fails, holds};
//!
//! const MIB: u64 = 1 << 20;
//!
//! // A pool that registers what it grows by: whether it grows is up to each rank.
//! fn serve(r: &Builder, preallocated: u64) -> Flow {
//!     let tp = r.comm("tp", r.world())?;
//!     let registers = {
//!         let tp = tp.clone();
//!         Caching::named("symm").on_segment(move |r, segment| tp.register(r, segment).map(|_| ()))
//!     };
//!     let pool = r.pool(registers)?;
//!     let mut blocks = Vec::new();
//!     for n in 0..preallocated {
//!         blocks.push(pool.alloc(r, (format!("p{n}").as_str(), 4 * MIB))?);
//!     }
//!     for block in blocks {
//!         block.free(r, None)?;
//!     }
//!     let mut tensors = Vec::new();
//!     for n in 0..r.choose("tensors in flight", &[1, 2])? {
//!         tensors.push(pool.alloc(r, (format!("t{n}").as_str(), 4 * MIB))?);
//!     }
//!     tp.all_reduce(r, Payload::of(&tensors[0]).symmetric())?;
//!     Ok(())
//! }
//!
//! // As `#[test]`s: they panic with the report of the check if it is not as expected.
//! let explained = Program::new(2, |r| serve(r, 0)).expect(fails(Rule::Win1));
//! let example = explained.counterexample.expect("what fails has one");
//! assert_eq!(example.broken.rule, Rule::Win1);
//! assert!(example.run.operations.iter().any(|o| o.text == "tp.register(symm.S1)"));
//!
//! Program::new([2, 4], |r| serve(r, 2)).expect(holds().costs("registrations", 0));
//!
//! // Both in one: for every value of a parameter, and from which on it holds.
//! Program::new(2, |r| serve(r, r.param("segments")))
//!     .named("how many segments")
//!     .param("segments", [0, 1, 2, 3])
//!     .expect(holds().from("segments", 2));
//!
//! // Transfers of a group progress together.
//! let exchange = |r: &Builder| {
//!     let tp = r.comm("tp", r.world())?;
//!     let (x, y) = (r.malloc("x", MIB)?, r.malloc("y", MIB)?);
//!     let peer = 1 - r.rank();
//!     r.group(|| {
//!         tp.send(r, &x, peer)?;
//!         tp.recv(r, &y, peer)
//!     })?;
//!     r.synchronize()
//! };
//! Program::new(2, exchange).expect(holds());
//! ```
//! Not here: the verbs ([`crate::spec::noun`]), tests of a whole crate ([`mod@crate::test`]).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

pub use rankcheck_model::machine::FaultOf;
pub use rankcheck_model::{
    CaptureMode, Class, Dtype, MapOrder, MemoryKind, Platform, ReduceOp, Rule, SizeClasses, TieBreak,
    WindowFlags,
};

pub use crate::search::{Counterexample, Explained, Verdict};
pub use crate::spec::builder::{Builder, Flow, Stop};
pub use crate::spec::noun::barrier::Agreed;
pub use crate::spec::noun::collective::{LaunchId, Payload};
pub use crate::spec::noun::comm::Comm;
pub use crate::spec::noun::container::{List, Map};
pub use crate::spec::noun::event::Event;
pub use crate::spec::noun::flag::Flag;
pub use crate::spec::noun::graph::{Capture, Graph};
pub use crate::spec::noun::ipc::IpcHandle;
pub use crate::spec::noun::memory::{Address, Buffer, ExpectedData, Segment};
pub use crate::spec::noun::mutex::Mutex;
pub use crate::spec::noun::pool::{BlockRequest, Caching, Pool};
pub use crate::spec::noun::stream::Stream;
pub use crate::spec::noun::thread::Thread;
pub use crate::spec::noun::value::{Fetched, Holdable};
pub use crate::spec::noun::window::Window;

use crate::report;
use crate::search::{Bounds, Detail, Options, search};
use crate::spec::{
    Assumption, Check, CheckKind, Expect, Observed, Param, RANKS_AT_MOST, SpecError, SpecSource,
    loc_of_caller,
};

/// Rank counts for which a program is checked: a number, or several.
#[derive(Debug, Clone)]
pub struct RankCounts(Vec<u32>);

impl From<u32> for RankCounts {
    fn from(ranks: u32) -> Self {
        Self(vec![ranks])
    }
}

impl<const N: usize> From<[u32; N]> for RankCounts {
    fn from(ranks: [u32; N]) -> Self {
        Self(ranks.to_vec())
    }
}

impl From<Vec<u32>> for RankCounts {
    fn from(ranks: Vec<u32>) -> Self {
        Self(ranks)
    }
}

/// A program that every rank runs, and for what it is checked.
#[derive(Debug, Clone)]
pub struct Program {
    check: Check,
    options: Options,
}

impl Program {
    /// A program for these rank counts.
    ///
    /// # Panics
    /// Without rank counts, or with one that no check runs.
    #[track_caller]
    pub fn new(
        ranks: impl Into<RankCounts>,
        body: impl Fn(&Builder) -> Flow + Send + Sync + 'static,
    ) -> Self {
        let RankCounts(ranks) = ranks.into();
        assert!(!ranks.is_empty(), "give a number of ranks");
        for count in &ranks {
            let allowed = (1..=RANKS_AT_MOST).contains(count);
            assert!(allowed, "a check cannot run {count} ranks, give between 1 and {RANKS_AT_MOST}");
        }
        let loc = loc_of_caller(Location::caller());
        let options = Options::telling(Detail::Reason);
        Self { check: Check::of_closure(loc, ranks, Arc::new(body)), options }
    }

    /// Called so in reports; otherwise by the line on which it stands.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.check.name);
        self
    }

    /// Runs for each of these values of a parameter; with several parameters, for every combination. The closure gets
    /// it with [`Builder::param`].
    #[must_use]
    pub fn param<T: Into<Param>>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        self.check.params.push((name.to_owned(), values.into_iter().map(Into::into).collect()));
        self
    }

    /// These may fail, one of them in a run unless [`Program::faults_at_most`] says otherwise.
    #[must_use]
    pub fn faults(mut self, of: impl IntoIterator<Item = FaultOf>) -> Self {
        self.check.faults.extend(of);
        self
    }

    /// So many faults in one run.
    #[must_use]
    pub fn faults_at_most(mut self, faults: u32) -> Self {
        self.check.faults_at_most = faults;
        self
    }

    /// Takes for granted that this does not happen, for which the closure asks with [`Builder::may`].
    #[must_use]
    pub fn assume(mut self, assumption: &str) -> Self {
        self.check.assume.push(Assumption::Named(assumption.to_owned()));
        self
    }

    /// Takes for granted that so many kernels of one device run at the same time.
    #[must_use]
    pub fn coresident(mut self, kernels: u32) -> Self {
        self.check.assume.push(Assumption::Coresident(kernels));
        self
    }

    /// Takes for granted that the launcher ends the job when the process of a rank ends with an error: who waits for that
    /// rank hangs nowhere.
    #[must_use]
    pub fn job_ends_with_a_rank(mut self) -> Self {
        self.check.assume.push(Assumption::JobEndsWithARank);
        self
    }

    /// This rule may be broken, for this reason, which reports repeat. A rule that no run breaks cannot be waived.
    #[must_use]
    pub fn waive(mut self, rule: Rule, reason: &str) -> Self {
        self.check.waive.insert(rule, reason.to_owned());
        self
    }

    /// Returns the program, checked on this platform instead of the default one.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> Self {
        self.check.platform = Some(platform.name().to_owned());
        self
    }

    /// Some rank may declare that launches overlap, with [`Builder::overlap`].
    #[must_use]
    pub fn declares_overlap(mut self) -> Self {
        self.check.declare_overlap();
        self
    }

    /// Returns the program, explored within these bounds.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.options.bounds = bounds;
        self
    }

    /// The program as a search takes it, for one rank count and one value of each parameter.
    ///
    /// # Errors
    /// When `params` does not name exactly the parameters of the program.
    pub fn source(&self, ranks: u32, params: &[(String, Param)]) -> Result<SpecSource, SpecError> {
        self.check.source(ranks, params, &self.check.assume)
    }

    /// Explores every choice of the program: the verdict, and a counterexample if it fails.
    ///
    /// # Errors
    /// If the program is wrong as a program: it is no function of the answers that it is given, or a verb is called
    /// with what it cannot take.
    pub fn check(&self) -> Result<Explained, SpecError> {
        let spec = self.check.clone().alone();
        search(&spec, &spec.checks[0], &self.options)
    }

    /// Explores every choice of the program, and gives what was found if that is as expected.
    ///
    /// # Panics
    /// With the report of the check, if it is not, or if a bound was hit.
    #[track_caller]
    pub fn expect(&self, expected: impl Into<Expect>) -> Explained {
        as_expected(self.expecting(expected).check())
    }

    /// Explores nothing, but walks both programs with every answer, and gives what was found if they do the same.
    ///
    /// # Panics
    /// With the first operation in which they differ.
    #[track_caller]
    pub fn expect_same_operations(
        &self,
        other: impl Fn(&Builder) -> Flow + Send + Sync + 'static,
    ) -> Explained {
        let mut both = self.clone();
        both.check.compare_with(Arc::new(other));
        as_expected(both.check())
    }

    /// Returns the same check with this expectation.
    pub(crate) fn expecting(&self, expected: impl Into<Expect>) -> Self {
        let mut stated = self.clone();
        stated.check.kind = CheckKind::Program(expected.into());
        stated
    }
}

#[track_caller]
fn as_expected(found: Result<Explained, SpecError>) -> Explained {
    match found {
        Ok(explained) if explained.as_stated() => explained,
        Ok(explained) => panic!("{}", report::text(&explained)),
        Err(error) => panic!("{}", error.drawn()),
    }
}

impl Builder {
    /// The value of a parameter of the check.
    ///
    /// # Panics
    /// If there is no parameter of this name, or it is of another type.
    #[must_use]
    pub fn param<T: TryFrom<Param>>(&self, name: &str) -> T {
        let found = self.setting.params.iter().find(|(known, _)| known == name);
        let (_, value) = found.unwrap_or_else(|| panic!("no parameter is named {name:?}"));
        T::try_from(value.clone())
            .unwrap_or_else(|_| panic!("the parameter {name:?} is {value}, which is of another type"))
    }
}

/// No execution breaks a rule.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    reaches: Vec<String>,
    holds_from: BTreeMap<String, i64>,
    costs: BTreeMap<String, i64>,
}

/// Expects that no execution breaks a rule.
#[must_use]
pub fn holds() -> Holds {
    Holds::default()
}

impl Holds {
    /// And some execution comes by this label, with [`Builder::reach`].
    #[must_use]
    pub fn reaches(mut self, label: &str) -> Self {
        self.reaches.push(label.to_owned());
        self
    }

    /// From this value of a parameter on; below it the program must fail.
    #[must_use]
    pub fn from(mut self, param: &str, value: i64) -> Self {
        self.holds_from.insert(param.to_owned(), value);
        self
    }

    /// And each rank pays exactly this: `communicators`, `registrations`, `barriers`, `store_calls`, `collectives`,
    /// `reserved_bytes`, what is left at the end (`communicators_left`), or a name that was given to [`Builder::measure`].
    #[must_use]
    pub fn costs(mut self, name: &str, cost: i64) -> Self {
        self.costs.insert(name.to_owned(), cost);
        self
    }
}

impl From<Holds> for Expect {
    fn from(Holds { reaches, holds_from, costs }: Holds) -> Self {
        Self::Holds { reaches, holds_from, costs }
    }
}

/// Some execution breaks a rule.
#[derive(Debug, Clone)]
pub struct Fails {
    rule: Rule,
    also: Vec<Rule>,
    outcome: Vec<Observed>,
    latent: bool,
}

/// Expects that some execution breaks this rule, and none another.
#[must_use]
pub fn fails(rule: Rule) -> Fails {
    Fails { rule, also: Vec::new(), outcome: Vec::new(), latent: false }
}

impl Fails {
    /// And some execution breaks this one as well.
    #[must_use]
    pub fn also(mut self, rule: Rule) -> Self {
        self.also.push(rule);
        self
    }

    /// And these are the ends of executions that break a rule on this platform.
    #[must_use]
    pub fn outcome(mut self, platform: Platform, classes: impl IntoIterator<Item = Class>) -> Self {
        let outcomes = classes.into_iter().collect();
        self.outcome.push(Observed { platform: platform.name().to_owned(), outcomes });
        self
    }

    /// And nothing visible happens.
    #[must_use]
    pub fn latent(mut self) -> Self {
        self.latent = true;
        self
    }
}

impl From<Fails> for Expect {
    fn from(Fails { rule, also, outcome, latent }: Fails) -> Self {
        let also = also.iter().map(|rule| rule.id().to_owned()).collect();
        Self::Fails { rule: rule.id().to_owned(), also, outcome, latent }
    }
}
