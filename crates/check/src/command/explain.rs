//! `rankcheck explain`: prints a rule.
//!
//! Not here: the texts of the rules ([`crate::rules`]).

use super::output;
use crate::rules;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArguments {
    /// For example WIN-2.
    rule: String,
}

impl ExplainArguments {
    pub(super) fn run(&self) -> u8 {
        match rules::text_of(&self.rule) {
            Some(text) => {
                output::line(text);
                0
            }
            None => output::usage(rules::unknown(&self.rule)),
        }
    }
}
