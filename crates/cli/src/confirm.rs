//! The question before a verb changes something that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use clap::Args;

/// The flag `--yes`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct YesFlag {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl YesFlag {
    /// Asks the user, unless the flag is given.
    ///
    /// # Errors
    /// The user says no, or stdin is not interactive.
    pub(crate) fn confirm(self, question: &str) -> anyhow::Result<()> {
        confirm(self.yes, question)
    }
}

/// The same for a verb with a flag `--yes` of its own.
///
/// # Errors
/// As [`YesFlag::confirm`].
pub(crate) fn confirm(yes: bool, question: &str) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("{question} Input is not a terminal: add --yes to confirm");
    }
    let mut screen = std::io::stderr().lock();
    write!(screen, "{question} [y/N] ").and_then(|()| screen.flush()).context("ask")?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).context("read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was changed"),
    }
}
