//! What builtins take, for what is said where an argument does not fit.

use rankcheck_model::Rule;
use starlark::docs::{DocFunction, DocItem, DocMember, DocParam};
use starlark::environment::Methods;
use starlark::typing::Ty;
use starlark::values::StarlarkValue as _;

use crate::spec::error::did_you_mean;
use crate::spec::file::globals;
use crate::spec::handle::{a, every_noun};
use crate::spec::noun::pool::PoolValue;
use crate::spec::rank::RankValue;

/// What a call says that gives arguments of names that the function does not take.
const EXTRA_NAMES: (&str, &str) = ("Found `", "` extra named parameter(s) for call to ");

/// How calls of builtins go wrong: a name, or an argument that is not taken, lacks, or is of another type. What is wrong, and what
/// to write; none for another error. `call` is what stands where it happened.
pub(crate) fn misuse(text: &str, call: Option<&str>) -> Option<(String, Option<String>)> {
    let called = || call?.split_once('(')?.0.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
    let wrong = extra_argument(text).or_else(|| missing_argument(text)).or_else(|| too_many(text, call));
    wrong.or_else(|| argument_of_type(text, called())).or_else(|| misplaced(text))
}

/// What Starlark says of a call of a function of its own that is given more or less than it takes.
const WRONG_NUMBER: &str = "Wrong number of positional arguments";

/// Starlark's own function is called where one of the rank of the same name is meant.
fn too_many(text: &str, call: Option<&str>) -> Option<(String, Option<String>)> {
    let (called, _) = call.filter(|_| text.starts_with(WRONG_NUMBER))?.split_once('(')?;
    RankValue::get_methods()?.documentation(Ty::any()).members.shift_remove(called)?;
    let help = format!("`{called}` is Starlark's own; the one of the rank is `r.{called}(…)`");
    Some((text.to_owned(), Some(help)))
}

/// What a call says that gives more arguments than the function takes.
const EXTRA_POSITIONS: &str = " extra positional argument(s) for call to ";

/// Of an argument that a builtin does not take, what is wrong, and what it takes; none for another error and for a
/// function of the spec, whose text the reader has.
fn extra_argument(text: &str) -> Option<(String, Option<String>)> {
    if let Some((_, function)) = text.split_once(EXTRA_POSITIONS) {
        return Some((text.to_owned(), takes(function, &functions(function))));
    }
    let (names, function) = text.strip_prefix(EXTRA_NAMES.0)?.split_once(EXTRA_NAMES.1)?;
    let name = names.split("` `").next()?;
    let message = format!("`{name}` is no argument of {function}");
    let of_name = functions(function);
    let known = of_name.iter().flat_map(parameters).map(|parameter| parameter.name.as_str());
    let near = did_you_mean(name, known).map(|near| format!("did you mean `{near}`?"));
    let help: Vec<String> = near.into_iter().chain(takes(function, &of_name)).collect();
    Some((message, (!help.is_empty()).then(|| help.join(" "))))
}

/// What a call says that lacks an argument.
const MISSING: (&str, &str) = ("Missing parameter `", "` for call to `");

fn missing_argument(text: &str) -> Option<(String, Option<String>)> {
    let (name, function) = text.strip_prefix(MISSING.0)?.split_once(MISSING.1)?;
    let function = function.trim_end_matches('`');
    Some((format!("{function} lacks its argument `{name}`"), takes(function, &functions(function))))
}

/// What a call says of an argument of another type.
const OF_TYPE: [&str; 4] = ["Type of parameter `", "` doesn't match, expected `", "`, actual `", " (repr: "];

fn argument_of_type(text: &str, called: Option<&str>) -> Option<(String, Option<String>)> {
    let [begin, expected, actual, value] = OF_TYPE;
    let (name, rest) = text.strip_prefix(begin)?.split_once(expected)?;
    let (wanted, rest) = rest.split_once(actual)?;
    let (of, value) = rest.trim_end_matches('`').split_once(value)?;
    let wanted = match wanted {
        "str" => "a string".to_owned(),
        "int" => "a number".to_owned(),
        "bool" => "True or False".to_owned(),
        list if list.starts_with("list") => "a list".to_owned(),
        dict if dict.starts_with("dict") => "a dict".to_owned(),
        other => format!("`{other}`"),
    };
    let help = called.and_then(|called| takes(called, &functions(called)));
    Some((format!("`{name}` must be {wanted}, not {}: {}", a(of), value.trim_end_matches(')')), help))
}

/// What is said of a name that nothing has, and of one that a noun does not have; a guess may follow.
const NOT_FOUND: (&str, &str) = ("Variable `", "` not found");
const NOT_OF: (&str, &str) = ("Object of type `", "` has no attribute `");

/// Of what belongs to a noun and is written without it, or of another one.
fn misplaced(text: &str) -> Option<(String, Option<String>)> {
    let of_type = text.strip_prefix(NOT_OF.0).and_then(|rest| Some(rest.split_once(NOT_OF.1)?.0));
    let (name, message) = match (text.strip_prefix(NOT_FOUND.0), text.strip_prefix(NOT_OF.0)) {
        (Some(rest), _) => {
            let (name, _) = rest.split_once(NOT_FOUND.1)?;
            (name, format!("{}{name}{}", NOT_FOUND.0, NOT_FOUND.1))
        }
        (None, Some(rest)) => (rest.split_once(NOT_OF.1)?.1.split_once('`')?.0, text.to_owned()),
        (None, None) => return None,
    };
    let family = |rule: &&Rule| rule.id().split_once('-').is_some_and(|(family, _)| family == name);
    let known = match name {
        "r" => Some("a program is given its rank: `def program(r):`".to_owned()),
        "print" => {
            Some("a program prints nothing; reports show `r.step(\"…\")` among what a rank does".to_owned())
        }
        "wait" if of_type == Some("store") => {
            Some("a key is awaited by reading it: write `r.store.get(key)`".to_owned())
        }
        "barrier" if of_type == Some("comm") => Some(
            "NCCL has no barrier: `r.barrier(…)` is one of host processes, and an `all_reduce` of one element \
             with a synchronize behind it is what PyTorch makes of one"
                .to_owned(),
        ),
        "add" if matches!(of_type, Some("store" | "flag")) => Some("nothing adds to a key or a flag: a counter is one key or flag for each rank".to_owned()),
        "read" if of_type == Some("flag") => Some("a flag is awaited and not read: write `f.wait(value)`".to_owned()),
        "memset" => Some("it is a kernel that writes: `r.kernel(\"memset\", writes = [x])`".to_owned()),
        "malloc_async" => Some(
            "stream-ordered memory of the driver is modelled in recorded runs; `r.pool(…)` is an allocator of the process"
                .to_owned(),
        ),
        "abort" | "revoke" | "host_func" => {
            Some("it is not modelled: see \"What HOLDS does not mean\" in docs/engine.md".to_owned())
        }
        _ => Rule::ALL.iter().find(family).map(|rule| format!("a rule is named by a text: `\"{rule}\"`")),
    };
    if known.is_some() {
        return Some((message, known));
    }
    let has = |of: &Methods| of.documentation(Ty::any()).members.shift_remove(name);
    let written = |noun: &str, member: DocMember| match member {
        DocMember::Function(_) => format!("`{noun}.{name}(…)`"),
        DocMember::Property(_) => format!("`{noun}.{name}`"),
    };
    let of_rank = RankValue::get_methods().and_then(has);
    let help = match of_rank {
        Some(member) => {
            format!("it belongs to the rank that a program is given: write {}", written("r", member))
        }
        None => {
            let mut nouns = every_noun().into_iter().filter_map(|(noun, of)| Some((noun, has(of)?)));
            let (noun, member) = nouns.next()?;
            format!("it belongs to {}: write {}", a(noun), written(noun, member))
        }
    };
    Some((message, Some(help)))
}

/// What a builtin takes, if there is one of that name.
fn takes(function: &str, of_name: &[DocFunction]) -> Option<String> {
    let [one] = of_name else { return None };
    Some(format!("{function} takes ({})", signature(one)))
}

/// The builtins of this name that take different things.
fn functions(name: &str) -> Vec<DocFunction> {
    let nouns = every_noun().into_iter().map(|(_, methods)| methods);
    let methods = nouns.chain(RankValue::get_methods()).chain(PoolValue::get_methods());
    let methods = methods.filter_map(|of| match of.documentation(Ty::any()).members.shift_remove(name) {
        Some(DocMember::Function(function)) => Some(function),
        Some(DocMember::Property(_)) | None => None,
    });
    let global = match globals().documentation().members.shift_remove(name) {
        Some(DocItem::Member(DocMember::Function(function))) => Some(function),
        Some(DocItem::Member(DocMember::Property(_)) | DocItem::Module(_) | DocItem::Type(_)) | None => None,
    };
    let mut different: Vec<DocFunction> = Vec::new();
    for function in methods.chain(global) {
        if different.iter().all(|known| signature(known) != signature(&function)) {
            different.push(function);
        }
    }
    different
}

/// What a function takes by name.
fn parameters(of: &DocFunction) -> impl Iterator<Item = &DocParam> {
    of.params.pos_or_named.iter().chain(&of.params.named_only)
}

/// What a function takes, in short: `x, peer, stream = …`.
fn signature(of: &DocFunction) -> String {
    let name = |parameter: &DocParam| {
        let optional = if parameter.default_value.is_some() { " = …" } else { "" };
        format!("{}{optional}", parameter.name)
    };
    let all = of.params.pos_only.iter().chain(parameters(of)).map(name);
    let any = of.params.kwargs.iter().map(|_| "…".to_owned());
    all.chain(any).collect::<Vec<_>>().join(", ")
}
