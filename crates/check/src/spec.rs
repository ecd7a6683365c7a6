//! Spec files: Starlark that defines programs and states what is expected of them.
//!
//! [`load`] reads a file with what it loads; [`Check::source`] turns a check into a
//! [`rankcheck_model::Source`]. Not here: whether a check holds.

mod alive;
mod argument;
pub mod builder;
mod compare;
mod error;
#[expect(unsafe_code, reason = "derive(ProvidesStaticType) writes an unsafe impl")]
mod evaluation;
#[expect(unsafe_code, reason = "derive(ProvidesStaticType) writes an unsafe impl")]
#[expect(clippy::too_many_arguments, reason = "builtins take what the language gives them")]
mod file;
mod files;
#[expect(unsafe_code, reason = "derive(ProvidesStaticType) writes an unsafe impl")]
mod handle;
mod load;
mod nesting;
#[expect(unsafe_code, reason = "derive(ProvidesStaticType) writes an unsafe impl")]
#[expect(clippy::too_many_arguments, reason = "builtins take what the language gives them")]
pub mod noun;
mod parameters;
#[expect(unsafe_code, reason = "derive(ProvidesStaticType) writes an unsafe impl")]
mod rank;
mod source;
pub(crate) mod stack;
mod standing;
mod unbounded;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use builder::Words;
use rankcheck_model::machine::FaultOf;
use rankcheck_model::{Class, Loc, Rule, SourceError};

pub use error::SpecError;
pub(crate) use error::did_you_mean;
pub(crate) use error::loc_of_caller;
pub(crate) use error::span_from;
#[cfg(feature = "cli")]
pub(crate) use error::{DRAWN_WIDTH, drawn};
#[cfg(feature = "cli")]
pub(crate) use files::has_specs;
pub use files::spec_files;
pub use load::{load, load_any};
pub use source::SpecSource;
pub use unbounded::{Unbounded, answer, unbounded};

use noun::thread::Body;

/// The most ranks that a check may run.
pub const RANKS_AT_MOST: u32 = 65_536;

/// A spec file that was read.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The path as it was given.
    pub path: String,
    /// The text of the file itself.
    pub text: Arc<str>,
    /// SHA-256 of the texts of the file and of all that it loads, in hexadecimal.
    pub digest: String,
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The lines of code that the spec describes.
    pub anchors: Vec<Anchor>,
    texts: Arc<error::Texts>,
}

impl Spec {
    /// The error of an evaluation, with the text that it points into.
    #[must_use]
    pub fn diagnose(&self, error: &SourceError) -> SpecError {
        SpecError::of_source(error, &self.texts)
    }

    /// An error of the spec that only running it shows.
    #[must_use]
    pub fn error(&self, message: String, loc: &Loc, help: Option<String>) -> SpecError {
        let error = SourceError { message, loc: Some(loc.clone()), help };
        self.diagnose(&error)
    }

    /// The text of one of the files, by the name that locations give it.
    #[must_use]
    pub fn text_of(&self, file: &str) -> Option<&Arc<str>> {
        self.texts.get(file).map(|text| &text.original)
    }

    /// The text of a file in which an operation stands, one of Rust too, where it can be read.
    pub(crate) fn readable(&self, file: &str) -> Option<Arc<str>> {
        self.text_of(file).cloned().or_else(|| source::read_near(file).map(Into::into))
    }
}

/// A line of somebody's code that the spec describes: `code(path, quote)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The file in their repository.
    pub path: String,
    /// The line, or a part of it.
    pub quote: String,
    /// Where the spec says so.
    pub loc: Loc,
}

/// One statement about a program.
#[derive(Debug, Clone)]
pub struct Check {
    /// Its name, which no other check of the file has.
    pub name: String,
    /// Where the check was written.
    pub loc: Loc,
    /// What the check states.
    pub kind: CheckKind,
    /// Rank counts to run, in the order given.
    pub ranks: Vec<u32>,
    /// Parameters with the values to run for; one value for plain ones.
    pub params: Vec<(String, Vec<Param>)>,
    /// The calls that may fail.
    pub faults: Vec<FaultOf>,
    /// How many of them in one run.
    pub faults_at_most: u32,
    /// The assumptions that restrict the adversary.
    pub assume: Vec<Assumption>,
    /// The platform to check for, by name; none means the default.
    pub platform: Option<String>,
    /// The rules that may be broken, each with the reason.
    pub waive: BTreeMap<Rule, String>,
    programs: Vec<source::ProgramBody>,
    texts: Arc<error::Texts>,
    words: Arc<Words>,
}

impl Check {
    /// A check of closures, which states nothing until it is told otherwise.
    pub(crate) fn of_closure(loc: Loc, ranks: Vec<u32>, body: Body) -> Self {
        Self {
            name: format!("line {}", loc.line),
            texts: Arc::new(source::text_around(&loc)),
            words: Arc::default(),
            loc,
            kind: CheckKind::Program(Expect::Nothing),
            ranks,
            params: Vec::new(),
            faults: Vec::new(),
            faults_at_most: 1,
            assume: Vec::new(),
            platform: None,
            waive: BTreeMap::new(),
            programs: vec![source::ProgramBody::Rust { body, declares_overlap: false }],
        }
    }

    /// Whether both run the same program, maybe with other parameters.
    #[must_use]
    pub fn has_program_of(&self, other: &Self) -> bool {
        self.programs.iter().zip(&other.programs).all(|(one, other)| one.is(other))
    }

    /// The closures may declare overlap.
    pub(crate) fn declare_overlap(&mut self) {
        for program in &mut self.programs {
            if let source::ProgramBody::Rust { declares_overlap, .. } = program {
                *declares_overlap = true;
            }
        }
    }

    /// States that another closure does the same operations.
    pub(crate) fn compare_with(&mut self, body: Body) {
        self.kind = CheckKind::SameOperations;
        self.programs.push(source::ProgramBody::Rust { body, declares_overlap: false });
    }

    /// A spec with this check alone.
    pub(crate) fn alone(self) -> Spec {
        Spec {
            path: self.loc.file.to_string(),
            text: "".into(),
            digest: String::new(),
            anchors: Vec::new(),
            texts: self.texts.clone(),
            checks: vec![self],
        }
    }

    /// The program of this check for one rank count and one value of each parameter. `assume` is what this
    /// run assumes, which may be less than what the check does.
    ///
    /// # Errors
    /// When `params` does not name exactly the parameters of the check.
    pub fn source(
        &self,
        ranks: u32,
        params: &[(String, Param)],
        assume: &[Assumption],
    ) -> Result<SpecSource, SpecError> {
        self.nth_source(0, ranks, params, assume)
    }

    /// The second program of `same_operations`; none for other checks.
    ///
    /// # Errors
    /// As [`Check::source`].
    pub fn other_source(
        &self,
        ranks: u32,
        params: &[(String, Param)],
    ) -> Result<Option<SpecSource>, SpecError> {
        match self.kind {
            CheckKind::Program(_) => Ok(None),
            CheckKind::SameOperations => self.nth_source(1, ranks, params, &[]).map(Some),
        }
    }

    /// Every combination of the values of the parameters, the last one varying fastest.
    #[must_use]
    pub fn combinations(&self) -> Vec<Vec<(String, Param)>> {
        let mut all = vec![Vec::new()];
        for (name, values) in &self.params {
            all = all
                .into_iter()
                .flat_map(|before: Vec<(String, Param)>| {
                    values.iter().map(move |value| {
                        let mut next = before.clone();
                        next.push((name.clone(), value.clone()));
                        next
                    })
                })
                .collect();
        }
        all
    }

    fn nth_source(
        &self,
        program: usize,
        ranks: u32,
        params: &[(String, Param)],
        assume: &[Assumption],
    ) -> Result<SpecSource, SpecError> {
        let given: Vec<&String> = params.iter().map(|(name, _)| name).collect();
        let known: Vec<&String> = self.params.iter().map(|(name, _)| name).collect();
        if given != known {
            let message = format!("check \"{}\" has the parameters {known:?}, not {given:?}", self.name);
            return Err(SpecError::new(message, None));
        }
        Ok(SpecSource::new(
            &self.programs[program],
            ranks,
            params,
            assume,
            (&self.texts, &self.words),
            &self.loc,
        ))
    }
}

/// What a check states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// A program holds or fails.
    Program(Expect),
    /// Two programs do the same operations.
    SameOperations,
}

/// What is expected of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is stated: whoever writes the check asks what there is.
    Nothing,
    /// No execution breaks a rule.
    Holds {
        /// Labels that some execution must come by.
        reaches: Vec<String>,
        /// From this value of a parameter on; below it the check must fail.
        holds_from: BTreeMap<String, i64>,
        /// Exact costs by name.
        costs: BTreeMap<String, i64>,
    },
    /// Some execution breaks this rule.
    Fails {
        /// The id of the rule that is broken, such as `WIN-2`.
        rule: String,
        /// Rules that other executions may break as well.
        also: Vec<String>,
        /// What devices do in such an execution.
        outcome: Vec<Observed>,
        /// The rule is broken without anything visible happening.
        latent: bool,
    },
}

/// What a platform was seen to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// A platform, for example `2.28.9`.
    pub platform: String,
    /// The classes of the ends that are stated: each is possible, and no other.
    pub outcomes: Vec<Class>,
}

/// What a check takes for granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assumption {
    /// A `r.may(text)` that is taken to be false.
    Named(String),
    /// So many kernels of one device run at the same time.
    Coresident(u32),
    /// The launcher ends the job when the process of a rank ends with an error, as torchrun and mpirun do.
    JobEndsWithARank,
}

impl Assumption {
    /// The assumption as a spec states it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Named(text) => text.clone(),
            Self::Coresident(kernels) => format!("coresident({kernels})"),
            Self::JobEndsWithARank => "job_ends_with_a_rank".to_owned(),
        }
    }
}

/// The value of a parameter of a check.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// The value `None`, which is a value of its own and not a missing one.
    None,
    /// A truth value, `True` or `False` in a spec.
    Bool(bool),
    /// A whole number, which `holds_from` can bound.
    Int(i64),
    /// A text, passed to the program as it is.
    Str(String),
    /// Several values, passed to the program as one list.
    List(Vec<Param>),
}

macro_rules! param_of {
    ($($from:ty, $value:ident => $param:expr;)*) => {
        $(impl From<$from> for Param {
            fn from($value: $from) -> Self {
                $param
            }
        })*
    };
}
param_of! {
    bool, value => Self::Bool(value);
    i32, value => Self::Int(value.into());
    i64, value => Self::Int(value);
    u32, value => Self::Int(value.into());
    &str, value => Self::Str(value.to_owned());
    String, value => Self::Str(value);
}

/// The value is of another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherType;

macro_rules! of_param {
    ($($into:ty, $param:pat => $value:expr;)*) => {
        $(impl TryFrom<Param> for $into {
            type Error = OtherType;

            fn try_from(param: Param) -> Result<Self, OtherType> {
                let $param = param else { return Err(OtherType) };
                $value
            }
        })*
    };
}
of_param! {
    bool, Param::Bool(value) => Ok(value);
    i64, Param::Int(value) => Ok(value);
    u32, Param::Int(value) => value.try_into().map_err(|_| OtherType);
    u64, Param::Int(value) => value.try_into().map_err(|_| OtherType);
    String, Param::Str(value) => Ok(value);
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(int) => int.fmt(f),
            Self::Str(text) => write!(f, "{text:?}"),
            Self::List(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if n > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use starlark::typing::Ty;
    use starlark::values::StarlarkValue;

    use super::*;

    #[test]
    fn every_builtin_is_in_the_docs_and_in_the_spec_that_uses_all() {
        let docs = include_str!("../../../docs/spec-language.md");
        let mut names: Vec<String> =
            file::our_globals().names().map(|name| name.as_str().to_owned()).collect();
        let rank = rank::RankValue::get_methods().expect("r has methods");
        let pool = noun::pool::PoolValue::get_methods().expect("pools have methods");
        let nouns = handle::every_noun().into_iter().map(|(_, methods)| methods);
        for methods in [rank, pool].into_iter().chain(nouns) {
            names.extend(methods.documentation(Ty::any()).members.into_keys());
        }
        assert!(names.len() > 80, "{names:?}");
        let missing: Vec<&String> =
            names.iter().filter(|name| !docs.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "not in docs/spec-language.md: {missing:?}");
        // There its twin in Rust is compared with it.
        let everything = include_str!("../../../tests/well_formed/everything.star");
        let words: BTreeSet<&str> = everything.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let missing: Vec<&String> = names.iter().filter(|name| !words.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "not in tests/well_formed/everything.star: {missing:?}");
    }
}
