//! Questions: what control flow asks, and what the adversary chooses.
//!
//! Not here: questions about one noun, which stand with it.

use std::fmt::Display;

use rankcheck_model::{Operand, Question};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::UnpackList;

use crate::spec::argument::{expected, operand};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::Wrong;
use crate::spec::evaluation::builder;
use crate::spec::handle::a;
use crate::spec::noun::value::Holdable;
use crate::spec::rank::RankValue;

/// Nouns of which a program cannot ask for a value.
const NO_VALUES: [&str; 8] = ["buffer", "segment", "comm", "window", "handle", "stream", "event", "thread"];

impl Builder {
    /// Asks: the adversary chooses one of these.
    #[track_caller]
    pub fn choose<T: Clone + Display>(&self, name: &str, options: &[T]) -> Flow<T> {
        let texts: Vec<String> = options.iter().map(ToString::to_string).collect();
        let chosen = self.choose_one(name, &texts)?;
        Ok(options[chosen].clone())
    }

    #[track_caller]
    fn choose_one(&self, name: &str, options: &[String]) -> Flow<usize> {
        if options.is_empty() {
            return Err(self.wrong(Wrong::new("nothing to choose from", "give at least one option")));
        }
        let tokens = options.iter().map(|option| self.token(option)).collect();
        let name = self.token(name);
        let (answer, _) = self.ask(Question::Choose { name, options: tokens })?;
        let chosen = answer as usize;
        if chosen < options.len() {
            return Ok(chosen);
        }
        Err(self.wrong(Wrong::new(
            format!("the answer {answer} is none of the options"),
            "the answers do not fit this program",
        )))
    }

    /// Asks: the adversary may do it, unless the check assumes this text; then it is false.
    #[track_caller]
    pub fn may(&self, assumption: &str) -> Flow<bool> {
        self.setting.names.mention(assumption);
        if self.setting.assumed.iter().any(|assumed| assumed == assumption) {
            return Ok(false);
        }
        let options = [self.token("no"), self.token("yes")].into();
        self.ask_whether(Question::Choose { name: self.token(assumption), options })
    }

    /// Asks whether a result is null.
    #[track_caller]
    pub fn failed(&self, x: impl Holdable) -> Flow<bool> {
        let x = x.operand(self);
        if x == Operand::Null { Ok(true) } else { self.ask_whether(Question::Failed(x)) }
    }

    /// Gives it back, or raises if it is null.
    #[track_caller]
    pub fn require<T: Holdable>(&self, x: T) -> Flow<T> {
        if self.failed(&x)? {
            return Err(self.raise_at(format!("required {} is null", x.noun()), self.loc()));
        }
        Ok(x)
    }

    /// Asks whether two values are equal.
    #[track_caller]
    pub fn equal(&self, a: impl Holdable, b: impl Holdable) -> Flow<bool> {
        let (a, b) = (a.operand(self), b.operand(self));
        self.ask_whether(Question::Equal(a, b))
    }

    /// Asks whether a value is true.
    #[track_caller]
    pub fn truth(&self, x: impl Holdable) -> Flow<bool> {
        self.require_value("r.truth", x.noun())?;
        let x = x.operand(self);
        if let Operand::Bool(known) = x { Ok(known) } else { self.ask_whether(Question::Truth(x)) }
    }

    /// Memory, communicators and the like decide nothing: what a kernel wrote is not known.
    #[track_caller]
    pub(crate) fn require_value(&self, asks: &str, noun: &str) -> Flow<()> {
        if !NO_VALUES.contains(&noun) {
            return Ok(());
        }
        Err(self.wrong(Wrong::new(
            format!("{asks} of {}, which has no value that is known: data are not computed", a(noun)),
            "let the run decide by r.choose(name, options), or r.all_agree(r.choose(…)) for all ranks alike; r.failed(x) asks \
             whether a pointer is null",
        )))
    }

    /// Asks which number it is, from 0 on.
    #[track_caller]
    pub fn number(&self, x: impl Holdable) -> Flow<i64> {
        self.require_value("r.number", x.noun())?;
        let x = x.operand(self);
        if let Operand::Int(known) = x {
            return Ok(known);
        }
        self.ask(Question::Number(x)).map(|(answer, _)| answer.into())
    }
}

#[starlark_module]
pub(crate) fn questions_of_rank(methods: &mut MethodsBuilder) {
    fn choose<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        options: UnpackList<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut texts = Vec::new();
        for option in &options.items {
            let known = option.unpack_str().map(str::to_owned).or_else(|| {
                let number = matches!(option.get_type(), "int" | "bool");
                number.then(|| option.to_repr())
            });
            texts
                .push(known.ok_or_else(|| expected("options", "a list of ints, strings or bools", *option))?);
        }
        let chosen = builder(eval)?.choose_one(name, &texts)?;
        Ok(options.items[chosen])
    }

    fn may<'v>(
        #[starlark(this)] _this: &RankValue,
        assumption: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        Ok(builder(eval)?.may(assumption)?)
    }

    fn failed<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let x = operand(eval, x)?;
        Ok(builder(eval)?.failed(x)?)
    }

    fn require<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let of = Typed(operand(eval, x)?, x.get_type());
        builder(eval)?.require(of)?;
        Ok(x)
    }

    fn equal<'v>(
        #[starlark(this)] _this: &RankValue,
        a: Value<'v>,
        b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let (a, b) = (operand(eval, a)?, operand(eval, b)?);
        Ok(builder(eval)?.equal(a, b)?)
    }

    fn truth<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let x = Typed(operand(eval, x)?, x.get_type());
        Ok(builder(eval)?.truth(x)?)
    }

    fn number<'v>(
        #[starlark(this)] _this: &RankValue,
        x: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<i64> {
        let x = Typed(operand(eval, x)?, x.get_type());
        Ok(builder(eval)?.number(x)?)
    }
}

/// A value of Starlark with its type.
struct Typed(Operand, &'static str);

impl Holdable for Typed {
    fn operand(&self, _r: &Builder) -> Operand {
        self.0.clone()
    }

    fn noun(&self) -> &'static str {
        self.1
    }
}
