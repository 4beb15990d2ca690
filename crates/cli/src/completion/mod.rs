//! `atoll completion SHELL`: the shell asks the program itself for candidates, so names of members and workloads are those
//! of the hub.

mod names;

use std::path::Path;

use anyhow::Context;
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, CompletionCandidate};

use crate::args::Cli;
use crate::print::Printer;

/// With this variable the program prints candidates instead of running. The scripts of [`run`] set it.
const VARIABLE: &str = "ATOLL_COMPLETE";
/// Name of the program in the scripts.
const PROGRAM: &str = "atoll";

#[derive(Debug, Args)]
#[command(after_help = "\
bash, in ~/.bashrc:                    source <(atoll completion bash)
zsh, in ~/.zshrc:                      source <(atoll completion zsh)
fish, in ~/.config/fish/config.fish:   atoll completion fish | source")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }
}

/// Prints the script that makes the shell ask.
pub(crate) fn run(args: &CompletionArgs, out: &Printer) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let name = args.shell.name();
    let shell = shells.completer(name).with_context(|| format!("completion for {name}"))?;
    let mut script = Vec::new();
    let written = shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
    written.context("write the script")?;
    out.line(String::from_utf8(script).context("write the script")?.trim_end())
}

/// Answers a shell that asks for candidates; returns `false` when none asked.
pub(crate) fn answered() -> bool {
    let completing = CompleteEnv::with_factory(command).var(VARIABLE);
    let folder = std::env::current_dir().ok();
    let asked = completing.try_complete(std::env::args_os(), folder.as_deref().map(Path::new));
    asked.unwrap_or_else(|error| error.exit())
}

/// The command line with the sources of its names.
fn command() -> Command {
    with_names(Cli::command())
}

/// Arguments of the same name mean the same in every verb.
fn with_names(command: Command) -> Command {
    let verb = command.get_name().to_owned();
    let mut command = command.mut_args(|arg| match (verb.as_str(), arg.get_id().as_str()) {
        (_, "member" | "members")
        | ("rejoin", "name")
        | ("get", "names")
        | ("promote", "from")
        | ("plan", "without" | "drain") => {
            arg.add(ArgValueCandidates::new(|| candidates(names::members)))
        }
        (_, "workload" | "workloads") => {
            arg.add(ArgValueCandidates::new(|| candidates(names::workloads)))
        }
        (_, "plan") => arg.add(ArgValueCandidates::new(|| candidates(names::plans))),
        _ => arg,
    });
    let verbs: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in verbs {
        command = command.mut_subcommand(verb, with_names);
    }
    command
}

/// Names from the hub. A shell cannot show an error while it completes; without an answer there are no candidates.
fn candidates(names: fn(&[String]) -> anyhow::Result<Vec<String>>) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().collect();
    names(&words).unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_name_members_and_workloads_ask_the_hub() {
        let command = command();
        command.clone().debug_assert();
        let asks = |verb: &str, id: &str| {
            let verb = command.find_subcommand(verb).unwrap();
            let arg = verb.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            arg.get::<ArgValueCandidates>().is_some()
        };
        for (verb, id) in [
            ("drain", "member"),
            ("cordon", "member"),
            ("unjoin", "member"),
            ("rejoin", "name"),
            ("get", "names"),
            ("promote", "from"),
            ("plan", "without"),
            ("plan", "drain"),
            ("explain", "workload"),
            ("history", "workload"),
            ("timeline", "workload"),
            ("approve", "plan"),
        ] {
            assert!(asks(verb, id), "{verb} {id}");
        }
        // The name of a new member is none that exists.
        assert!(!asks("join", "name"));
    }
}
