//! The words of a description: the tree behind the text that `rankcheck_model::describe` makes of an operation.
//!
//! A slot or an operation may stand there by a label, `$tp`, as kept programs have it.
//! Not here: which operations there are.

use std::fmt;

use rankcheck_model::describe::{Describe, Naming, description};

/// A described value, by the shape of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Words {
    /// A single word, such as `Null`, `17` or `true`.
    Word(String),
    /// A quoted name, such as `"tp"`.
    Name(String),
    /// `$tp`, or `$given.1` for the second of several slots.
    Label(String, u32),
    /// A description behind the word `thread`, such as `thread Some(1)`.
    Thread(Box<Words>),
    /// A name with values in parentheses, such as `Rank(0)`.
    Parts(String, Vec<Words>),
    /// `StoreGet { key: "k" }`.
    Call(String, Vec<(String, Words)>),
    /// Values in brackets, such as `[Rank(0), Rank(1)]`.
    List(Vec<Words>),
}

impl Words {
    /// The words that describe a value.
    pub(super) fn of(value: &dyn Describe, naming: &dyn Naming) -> Self {
        Self::read(&description(value, naming)).expect("descriptions can be read")
    }

    /// The words of a text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text };
        let words = reader.words()?;
        if reader.rest.is_empty() { Ok(words) } else { Err(format!("`{}` is too much", reader.rest)) }
    }

    /// The words with `change` done to each part, innermost first.
    pub(super) fn map(self, change: &mut impl FnMut(Self) -> Self) -> Self {
        let words = match self {
            Self::Word(_) | Self::Name(_) | Self::Label(..) => self,
            Self::Thread(of) => Self::Thread(Box::new(of.map(change))),
            Self::Parts(name, parts) => {
                Self::Parts(name, parts.into_iter().map(|part| part.map(change)).collect())
            }
            Self::Call(name, fields) => {
                let fields = fields.into_iter().map(|(field, value)| (field, value.map(change)));
                Self::Call(name, fields.collect())
            }
            Self::List(items) => Self::List(items.into_iter().map(|item| item.map(change)).collect()),
        };
        change(words)
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Label(label, 0) => write!(f, "${label}"),
            Self::Label(label, nth) => write!(f, "${label}.{nth}"),
            Self::Thread(of) => write!(f, "thread {of}"),
            Self::Parts(name, parts) => {
                write!(f, "{name}(")?;
                separated(f, parts)?;
                f.write_str(")")
            }
            Self::Call(name, fields) => {
                write!(f, "{name} {{ ")?;
                for (nth, (field, value)) in fields.iter().enumerate() {
                    f.write_str(if nth == 0 { "" } else { ", " })?;
                    write!(f, "{field}: {value}")?;
                }
                f.write_str(" }")
            }
            Self::List(items) => {
                f.write_str("[")?;
                separated(f, items)?;
                f.write_str("]")
            }
        }
    }
}

fn separated(f: &mut fmt::Formatter<'_>, items: &[Words]) -> fmt::Result {
    for (nth, item) in items.iter().enumerate() {
        f.write_str(if nth == 0 { "" } else { ", " })?;
        write!(f, "{item}")?;
    }
    Ok(())
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn demand(&mut self, text: &str) -> Result<(), String> {
        if self.take(text) { Ok(()) } else { Err(format!("`{text}` is missing before `{}`", self.rest)) }
    }

    /// Takes what belongs to a word, a number or a label.
    fn word(&mut self) -> Result<String, String> {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if word.is_empty() {
            return Err(format!("a word is missing before `{rest}`"));
        }
        self.rest = rest;
        Ok(word.to_owned())
    }

    fn name(&mut self) -> Result<Words, String> {
        let end = self.rest.find('"').ok_or("a name does not end")?;
        let (name, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        if name.contains('\\') {
            return Err(format!("the name `{name}` has a sign that is not supported here"));
        }
        self.rest = rest;
        Ok(Words::Name(name.to_owned()))
    }

    fn label(&mut self) -> Result<Words, String> {
        let label = self.word()?;
        let nth = if self.take(".") { self.word()?.parse().map_err(|_| "a slot has no number")? } else { 0 };
        Ok(Words::Label(label, nth))
    }

    fn words(&mut self) -> Result<Words, String> {
        if self.take("\"") {
            return self.name();
        }
        if self.take("$") {
            return self.label();
        }
        if self.take("[") {
            return Ok(Words::List(self.items("]")?));
        }
        let word = self.word()?;
        if self.take("(") {
            return Ok(Words::Parts(word, self.items(")")?));
        }
        if self.take(" { ") {
            return Ok(Words::Call(word, self.fields()?));
        }
        if word == "thread" {
            self.demand(" ")?;
            return Ok(Words::Thread(Box::new(self.words()?)));
        }
        Ok(Words::Word(word))
    }

    fn items(&mut self, end: &str) -> Result<Vec<Words>, String> {
        let mut items = Vec::new();
        while !self.take(end) {
            if !items.is_empty() {
                self.demand(", ")?;
            }
            items.push(self.words()?);
        }
        Ok(items)
    }

    fn fields(&mut self) -> Result<Vec<(String, Words)>, String> {
        let mut fields = Vec::new();
        while !self.take(" }") {
            if !fields.is_empty() {
                self.demand(", ")?;
            }
            let field = self.word()?;
            self.demand(": ")?;
            fields.push((field, self.words()?));
        }
        Ok(fields)
    }
}
