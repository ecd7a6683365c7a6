//! `rankcheck explain`: prints a rule, or lists them all.
//!
//! Not here: the texts of the rules ([`crate::rules`]).

use rankcheck_model::Rule;

use super::output;
use crate::rules;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArguments {
    /// The rule, such as WIN-2; without it, all rules are listed.
    rule: Option<String>,
}

impl ExplainArguments {
    pub(super) fn run(&self) -> u8 {
        let Some(rule) = &self.rule else {
            for rule in Rule::ALL {
                output::line(format_args!("{:<9} {}", rule.id(), rule.title()));
            }
            return 0;
        };
        match rules::text_of(rule) {
            Some(text) => {
                output::line(text);
                0
            }
            None => output::usage(rules::unknown(rule)),
        }
    }
}
