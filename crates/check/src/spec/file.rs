//! The builtins at the level of a file: checks, what is expected of them, anchors in code.
//!
//! Not here: reading files (`load.rs`), the verbs of programs (`noun.rs`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroI32;

use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::codemap::FileSpan;
use starlark::collections::SmallMap;
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::eval::Evaluator;
use starlark::values::list::{ListRef, UnpackList};
use starlark::values::none::NoneType;
use starlark::values::range::Range;
use starlark::values::tuple::{TupleRef, UnpackTuple};
use starlark::values::{NoSerialize, StarlarkValue, UnpackValue, Value, starlark_value};
use starlark::{starlark_module, starlark_simple_value};

use crate::spec::argument::{expected, for_each_leaf, given};
use crate::spec::compare::comparison_calls;
use crate::spec::error::{MAX_LENGTH, did_you_mean, unknown, wrong};
use crate::spec::evaluation::Evaluation;
use crate::spec::{Assumption, CheckKind, Expect, Observed, Param, RANKS_AT_MOST};
use rankcheck_model::machine::FaultOf;
use rankcheck_model::{Class, Platform, Rule};

/// What evaluating a file collects.
#[derive(Debug, Default, ProvidesStaticType)]
pub(crate) struct Collector {
    pub(crate) drafts: RefCell<Vec<Draft>>,
    pub(crate) anchors: RefCell<Vec<(String, String, FileSpan)>>,
    /// The statement before which the values of the file had become too many.
    pub(crate) exceeded: RefCell<Option<FileSpan>>,
    /// Whether another file loads this one.
    pub(crate) loaded: bool,
}

/// A check before its module is frozen: the programs are module variables of these names.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) span: FileSpan,
    pub(crate) kind: CheckKind,
    pub(crate) programs: Vec<String>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) params: Vec<(String, Vec<Param>)>,
    pub(crate) faults: Vec<FaultOf>,
    pub(crate) faults_at_most: u32,
    pub(crate) assume: Vec<Assumption>,
    pub(crate) platform: Option<String>,
    pub(crate) waive: BTreeMap<Rule, String>,
}

macro_rules! plain_value {
    ($wrapper:ident($inner:ty), $name:literal) => {
        #[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
        #[allocative(skip)]
        struct $wrapper($inner);
        starlark_simple_value!($wrapper);
        impl fmt::Display for $wrapper {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!("<", $name, ">"))
            }
        }
        #[starlark_value(type = $name)]
        impl<'v> StarlarkValue<'v> for $wrapper {}
    };
}

plain_value!(ExpectValue(Expect), "expectation");
plain_value!(EachValue(Vec<Param>), "each");
plain_value!(AssumptionValue(Assumption), "assumption");

/// The globals of every spec file.
pub(crate) fn globals() -> Globals {
    let extensions = [
        LibraryExtension::StructType,
        LibraryExtension::SetType,
        LibraryExtension::Map,
        LibraryExtension::Filter,
    ];
    GlobalsBuilder::extended_by(&extensions)
        .with(constants)
        .with(checks)
        .with(expectations)
        .with(comparison_calls)
        .with(bounded)
        .build()
}

/// The globals that are ours, for the docs.
#[cfg(test)]
pub(crate) fn our_globals() -> Globals {
    GlobalsBuilder::new().with(constants).with(checks).with(expectations).build()
}

fn constants(builder: &mut GlobalsBuilder) {
    builder.set("KiB", 1_i32 << 10);
    builder.set("MiB", 1_i32 << 20);
    builder.set("GiB", 1_i32 << 30);
    builder.set("job_ends_with_a_rank", AssumptionValue(Assumption::JobEndsWithARank));
}

/// Builtins of the language that know a bound here.
#[starlark_module]
fn bounded(builder: &mut GlobalsBuilder) {
    /// A longer range is walked to its end by no loop, and makes a list that no memory holds.
    fn range(
        #[starlark(require = pos)] first: i32,
        #[starlark(require = pos)] second: Option<i32>,
        #[starlark(require = pos, default = 1)] step: i32,
    ) -> starlark::Result<Range> {
        let (start, stop) = second.map_or((0, first), |stop| (first, stop));
        let step = NonZeroI32::new(step)
            .ok_or_else(|| wrong("the step of a range is zero", "range(start, stop, step)"))?;
        if u64::from(start.abs_diff(stop)) / u64::from(step.unsigned_abs().get()) > MAX_LENGTH {
            return Err(wrong(
                format!("a range of more than {MAX_LENGTH} numbers"),
                "a loop may make that many turns; give a smaller range",
            ));
        }
        Ok(Range::new(start, stop, step))
    }
}

fn collector<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Collector> {
    eval.extra.and_then(|extra| extra.downcast_ref::<Collector>()).ok_or_else(|| {
        wrong("a program cannot state checks", "checks belong at the level of the file, outside functions")
    })
}

fn span(eval: &Evaluator<'_, '_, '_>) -> starlark::Result<FileSpan> {
    eval.call_stack_top_location().ok_or_else(|| wrong("called from nowhere", "call it from a spec file"))
}

fn param(name: &str, value: Value<'_>) -> starlark::Result<Param> {
    for_each_leaf(value, |_| Ok(()))?;
    param_of(name, value)
}

fn param_of(name: &str, value: Value<'_>) -> starlark::Result<Param> {
    if value.is_none() {
        return Ok(Param::None);
    }
    if let Some(bool) = value.unpack_bool() {
        return Ok(Param::Bool(bool));
    }
    if let Some(int) = i64::unpack_value(value)? {
        return Ok(Param::Int(int));
    }
    if let Some(text) = value.unpack_str() {
        return Ok(Param::Str(text.to_owned()));
    }
    let items = |items: &mut dyn Iterator<Item = Value<'_>>| {
        items.map(|item| param_of(name, item)).collect::<starlark::Result<Vec<_>>>()
    };
    if let Some(list) = ListRef::from_value(value) {
        return items(&mut list.iter()).map(Param::List);
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        return items(&mut tuple.iter()).map(Param::List);
    }
    Err(expected(name, "an int, string, bool, None or a list of these", value))
}

fn params(given: &SmallMap<String, Value<'_>>) -> starlark::Result<Vec<(String, Vec<Param>)>> {
    let mut params = Vec::new();
    for (name, value) in given {
        let values = match EachValue::from_value(*value) {
            Some(each) => each.0.clone(),
            None => vec![param(name, *value)?],
        };
        params.push((name.clone(), values));
    }
    Ok(params)
}

fn rank_counts(ranks: Option<Value<'_>>) -> starlark::Result<Vec<u32>> {
    let Some(ranks) = ranks else { return Ok(vec![2]) };
    let values = match ListRef::from_value(ranks) {
        Some(list) => list.content().to_vec(),
        None => vec![ranks],
    };
    let mut counts = Vec::new();
    for value in values {
        let count: i64 = i64::unpack_value(value)?
            .ok_or_else(|| expected("ranks", "a number or a list of numbers, such as `[2, 4]`", value))?;
        let count = u32::try_from(count).ok().filter(|count| (1..=RANKS_AT_MOST).contains(count));
        let count = count.ok_or_else(|| {
            let help = format!("give between 1 and {RANKS_AT_MOST} ranks");
            wrong(format!("a check cannot run {} ranks", value.to_repr()), help)
        })?;
        if counts.contains(&count) {
            return Err(wrong(format!("`ranks` lists {count} twice"), "list every rank count once"));
        }
        counts.push(count);
    }
    if counts.is_empty() {
        return Err(wrong("`ranks` is empty", "give a number of ranks, or several: ranks = [2, 4]"));
    }
    Ok(counts)
}

/// Checks that the function takes what it will be given.
fn fits(program: Value<'_>, given: &SmallMap<String, Value<'_>>, known: &[&str]) -> starlark::Result<()> {
    if program.get_type() != "function" {
        return Err(expected("program", "a function", program));
    }
    let Some(spec) = program.parameters_spec() else { return Ok(()) };
    let names: Vec<&str> = given.keys().map(String::as_str).collect();
    if spec.can_fill_with_args(1, &names) {
        return Ok(());
    }
    let signature = spec.parameters_str();
    let own: Vec<&str> =
        signature.split(',').map(|p| p.trim().split(['=', ':', ' ']).next().unwrap_or("").trim()).collect();
    let title = program.function_name().unwrap_or("the program");
    for name in &names {
        if !own.contains(name) && !signature.contains("**") {
            let near = did_you_mean(name, known.iter().chain(&own[1.min(own.len())..]).copied());
            let help = near.map_or_else(
                || format!("{title} takes ({signature})"),
                |near| format!("did you mean `{near}`? {title} takes ({signature})"),
            );
            return Err(wrong(format!("`{name}` is neither an argument of check() nor of {title}"), help));
        }
    }
    let given = names.iter().map(|name| format!(", {name} =")).collect::<String>();
    let help = format!("check() calls {title}(r{given}), and it takes ({signature})");
    Err(wrong(format!("{title} cannot be called with these arguments"), help))
}

fn fault_verbs(faults: Option<UnpackList<String>>) -> starlark::Result<Vec<FaultOf>> {
    let known = ["alloc", "register", "init", "death"];
    let mut verbs = Vec::new();
    for fault in faults.map_or_else(Vec::new, |faults| faults.items) {
        verbs.push(match fault.as_str() {
            "alloc" => FaultOf::Alloc,
            "register" => FaultOf::Register,
            "init" => FaultOf::Init,
            "death" => FaultOf::Death,
            other => return Err(unknown("fault", other, &known)),
        });
    }
    Ok(verbs)
}

fn assumptions(assume: Option<UnpackList<Value<'_>>>) -> starlark::Result<Vec<Assumption>> {
    let mut assumptions = Vec::new();
    for value in assume.map_or_else(Vec::new, |assume| assume.items) {
        assumptions.push(match (value.unpack_str(), AssumptionValue::from_value(value)) {
            (Some(text), _) => Assumption::Named(text.to_owned()),
            (None, Some(assumption)) => assumption.0.clone(),
            (None, None) => {
                return Err(expected(
                    "assume",
                    "a list of strings, coresident(n) and job_ends_with_a_rank",
                    value,
                ));
            }
        });
    }
    Ok(assumptions)
}

fn waivers(waive: Option<Value<'_>>) -> starlark::Result<BTreeMap<Rule, String>> {
    let mut waivers = BTreeMap::new();
    let waive = given(waive).map(|waive| {
        let reasons = SmallMap::<String, String>::unpack_value(waive)?;
        reasons.ok_or_else(|| {
            expected(
                "waive",
                "a dict of rules, each with its reason: {\"MEM-5\": \"the peers are restarted\"}",
                waive,
            )
        })
    });
    let waive = waive.transpose()?;
    for (id, reason) in waive.into_iter().flatten() {
        let rule = rule(&id)?.parse().expect("it was just looked up");
        if reason.trim().is_empty() {
            return Err(wrong(
                format!("`waive` gives no reason for {id}"),
                format!("say why it may be broken: waive = {{\"{id}\": \"the peers are restarted\"}}"),
            ));
        }
        waivers.insert(rule, reason);
    }
    Ok(waivers)
}

fn add(eval: &mut Evaluator<'_, '_, '_>, draft: Draft) -> starlark::Result<NoneType> {
    let collector = collector(eval)?;
    if collector.loaded {
        return Err(wrong(
            "a file that is loaded states a check, which would never run",
            "keep checks in the file that is checked, and functions in the files that it loads",
        ));
    }
    let mut drafts = collector.drafts.borrow_mut();
    if let Some(first) = drafts.iter().find(|known| known.name == draft.name) {
        return Err(wrong(
            format!("there are two checks named \"{}\"", draft.name),
            format!("the first is on line {}", first.span.resolve_span().begin.line + 1),
        ));
    }
    drafts.push(draft);
    Ok(NoneType)
}

fn store<'v>(eval: &mut Evaluator<'v, '_, '_>, program: Value<'v>) -> starlark::Result<String> {
    let name =
        format!("program {} {}", collector(eval)?.drafts.borrow().len(), eval.module().names().count());
    eval.module().set(&name, program);
    Ok(name)
}

const CHECK_WORDS: [&str; 9] =
    ["name", "program", "ranks", "expect", "faults", "faults_at_most", "assume", "platform", "waive"];

#[starlark_module]
fn checks(builder: &mut GlobalsBuilder) {
    fn check<'v>(
        name: String,
        program: Value<'v>,
        ranks: Option<Value<'v>>,
        expect: Option<Value<'v>>,
        faults: Option<UnpackList<String>>,
        #[starlark(default = 1)] faults_at_most: u32,
        assume: Option<UnpackList<Value<'v>>>,
        platform: Option<String>,
        waive: Option<Value<'v>>,
        #[starlark(kwargs)] kwargs: SmallMap<String, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        // A name that is misspelt has a value of another type.
        fits(program, &kwargs, &CHECK_WORDS)?;
        let params = params(&kwargs)?;
        let of = |expect: Value<'v>| {
            let stated = ExpectValue::from_value(expect).map(|stated| stated.0.clone());
            stated.ok_or_else(|| expected("expect", "holds() or fails(rule)", expect))
        };
        let expect = expect.map_or(Ok(Expect::Nothing), of)?;
        if let Expect::Holds { holds_from, .. } = &expect
            && let Some((unknown, _)) =
                holds_from.iter().find(|(name, _)| !params.iter().any(|(known, _)| *known == **name))
        {
            return Err(wrong(
                format!("holds_from names `{unknown}`, which is no parameter of this check"),
                "give the parameter several values: n = each(1, 2, 3)",
            ));
        }
        let has_less = |name: &str, from: &i64| {
            let mut values = params.iter().filter(|(known, _)| known == name).flat_map(|(_, values)| values);
            values.any(|value| matches!(value, Param::Int(value) if value < from))
        };
        if let Expect::Holds { holds_from, .. } = &expect
            && let Some((name, from)) = holds_from.iter().find(|(name, from)| !has_less(name, from))
        {
            return Err(wrong(
                format!(
                    "holds_from says that the check fails where `{name}` is less than {from}, and no value of it is"
                ),
                "give the parameter such a value too, or leave holds_from out",
            ));
        }
        let draft = Draft {
            name,
            span: span(eval)?,
            kind: CheckKind::Program(expect),
            programs: vec![store(eval, program)?],
            ranks: rank_counts(ranks)?,
            params,
            faults: fault_verbs(faults)?,
            faults_at_most,
            assume: assumptions(assume)?,
            platform,
            waive: waivers(waive)?,
        };
        add(eval, draft)
    }

    fn same_operations<'v>(
        name: String,
        f: Value<'v>,
        g: Value<'v>,
        ranks: Option<Value<'v>>,
        #[starlark(kwargs)] kwargs: SmallMap<String, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        for program in [f, g] {
            fits(program, &kwargs, &["name", "ranks"])?;
        }
        let params = params(&kwargs)?;
        let draft = Draft {
            name,
            span: span(eval)?,
            kind: CheckKind::SameOperations,
            programs: vec![store(eval, f)?, store(eval, g)?],
            ranks: rank_counts(ranks)?,
            params,
            faults: Vec::new(),
            faults_at_most: 0,
            assume: Vec::new(),
            platform: None,
            waive: BTreeMap::new(),
        };
        add(eval, draft)
    }

    fn code<'v>(path: String, quote: String, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let Ok(collector) = collector(eval) else {
            Evaluation::of(eval)?;
            return Ok(NoneType);
        };
        collector.anchors.borrow_mut().push((path, quote, span(eval)?));
        Ok(NoneType)
    }
}

fn rule(id: &str) -> starlark::Result<String> {
    let known: Vec<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    if known.contains(&id) {
        return Ok(id.to_owned());
    }
    let help = did_you_mean(id, known).map_or_else(
        || "rules are listed in specs/rules".to_owned(),
        |near| format!("did you mean \"{near}\"? rules are listed in specs/rules"),
    );
    Err(wrong(format!("there is no rule \"{id}\""), help))
}

fn outcome(word: &str) -> starlark::Result<Class> {
    Class::ALL.into_iter().find(|outcome| outcome.name() == word).ok_or_else(|| {
        let known: Vec<&str> = Class::ALL.into_iter().map(Class::name).collect();
        unknown("outcome", word, &known)
    })
}

fn outcomes(value: Value<'_>) -> starlark::Result<Vec<Class>> {
    if let Some(word) = value.unpack_str() {
        return Ok(vec![outcome(word)?]);
    }
    match UnpackList::<String>::unpack_value(value)? {
        Some(words) => words.items.iter().map(|word| outcome(word)).collect(),
        None => Err(expected("outcome", "a word or a list of words", value)),
    }
}

#[starlark_module]
fn expectations(builder: &mut GlobalsBuilder) {
    fn holds<'v>(
        #[starlark(require = named)] reaches: Option<UnpackList<String>>,
        #[starlark(require = named)] holds_from: Option<SmallMap<String, i64>>,
        #[starlark(kwargs)] costs: SmallMap<String, Value<'v>>,
    ) -> starlark::Result<ExpectValue> {
        let mut known = BTreeMap::new();
        for (name, value) in &costs {
            let cost = i64::unpack_value(*value)?.ok_or_else(|| expected(name, "a number", *value))?;
            known.insert(name.clone(), cost);
        }
        Ok(ExpectValue(Expect::Holds {
            reaches: reaches.map_or_else(Vec::new, |reaches| reaches.items),
            holds_from: holds_from.into_iter().flatten().collect(),
            costs: known,
        }))
    }

    fn fails<'v>(
        rule: &str,
        #[starlark(require = named)] also: Option<UnpackList<String>>,
        #[starlark(require = named)] outcome: Option<SmallMap<String, Value<'v>>>,
        #[starlark(require = named, default = false)] latent: bool,
    ) -> starlark::Result<ExpectValue> {
        let also = also.map_or_else(Vec::new, |also| also.items);
        let mut observed = Vec::new();
        for (platform, words) in outcome.into_iter().flatten() {
            if let Err(unknown) = platform.parse::<Platform>() {
                return Err(wrong(
                    unknown.to_string(),
                    "name the version of NCCL on which the outcome is predicted",
                ));
            }
            observed.push(Observed { platform, outcomes: outcomes(words)? });
        }
        Ok(ExpectValue(Expect::Fails {
            rule: self::rule(rule)?,
            also: also.iter().map(|id| self::rule(id)).collect::<starlark::Result<_>>()?,
            outcome: observed,
            latent,
        }))
    }

    fn each<'v>(#[starlark(args)] values: UnpackTuple<Value<'v>>) -> starlark::Result<EachValue> {
        if values.items.is_empty() {
            return Err(wrong(
                "each() has no values",
                "give every value that the check runs for: each(1, 2, 3)",
            ));
        }
        let params: Vec<Param> =
            values.items.iter().map(|value| param("each", *value)).collect::<starlark::Result<_>>()?;
        if params.iter().collect::<BTreeSet<_>>().len() < params.len() {
            return Err(wrong("each() lists a value twice", "list every value once"));
        }
        Ok(EachValue(params))
    }

    fn coresident(n: i32) -> starlark::Result<AssumptionValue> {
        match u32::try_from(n) {
            Ok(n) if n > 0 => Ok(AssumptionValue(Assumption::Coresident(n))),
            _ => Err(wrong(format!("coresident({n}) leaves no kernel running"), "give at least 1")),
        }
    }
}
