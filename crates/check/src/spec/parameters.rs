//! What builtins take, for what is said where an argument does not fit.

use starlark::docs::{DocFunction, DocItem, DocMember, DocParam};
use starlark::typing::Ty;
use starlark::values::StarlarkValue as _;

use crate::spec::error::did_you_mean;
use crate::spec::file::globals;
use crate::spec::handle::every_noun;
use crate::spec::noun::pool::PoolValue;
use crate::spec::rank::RankValue;

/// What a call says that gives arguments of names that the function does not take.
const EXTRA_NAMES: (&str, &str) = ("Found `", "` extra named parameter(s) for call to ");

/// Of an argument that a builtin does not take, what is wrong, and what it takes; none for another error and for a
/// function of the spec, whose text the reader has.
pub(crate) fn extra_argument(text: &str) -> Option<(String, Option<String>)> {
    let (names, function) = text.strip_prefix(EXTRA_NAMES.0)?.split_once(EXTRA_NAMES.1)?;
    let name = names.split("` `").next()?;
    let message = format!("`{name}` is no argument of {function}");
    let of_name = functions(function);
    let known = of_name.iter().flat_map(parameters).map(|parameter| parameter.name.as_str());
    let near = did_you_mean(name, known).map(|near| format!("did you mean `{near}`?"));
    let signature = match &of_name[..] {
        [one] => Some(format!("{function} takes ({})", signature(one))),
        _ => None,
    };
    let help: Vec<String> = near.into_iter().chain(signature).collect();
    Some((message, (!help.is_empty()).then(|| help.join(" "))))
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
