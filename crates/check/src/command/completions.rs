//! `rankcheck completions`: prints what a shell needs to complete arguments.
//!
//! Not here: where shells look for it (docs/terminal.md).

use clap::{CommandFactory as _, ValueEnum};

use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArguments {
    /// The shell that completes arguments.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionsArguments {
    pub(super) fn run(&self) -> u8 {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut super::Arguments::command(), "rankcheck", &mut script);
        output::lines(String::from_utf8_lossy(&script));
        0
    }
}
