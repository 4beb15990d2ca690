//! `atoll man`: manual pages, from the same definitions as `--help`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::print::Printer;

#[derive(Debug, Args)]
#[command(
    after_help = "Read one: atoll man drain | man -l -\nInstall all: atoll man --folder /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Print the page of this verb, for example `drain` or `token create` [default: the page of the program]
    #[arg(value_name = "VERB", conflicts_with = "folder")]
    verb: Vec<String>,
    /// Write the pages of all verbs into this folder
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &Printer) -> anyhow::Result<()> {
    let program = program();
    if let Some(folder) = &args.folder {
        let shown = folder.display();
        std::fs::create_dir_all(folder).with_context(|| format!("--folder {shown}: make it"))?;
        return clap_mangen::generate_to(program, folder)
            .with_context(|| format!("--folder {shown}: write the pages"));
    }
    out.line(page(&program, &args.verb)?.trim_end())
}

/// The program with the full names of its verbs (`atoll-drain`), as pages have them.
fn program() -> Command {
    // Pages of `help` for each verb would be more than all others.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    program
}

/// The page of one verb.
fn page(program: &Command, verb: &[String]) -> anyhow::Result<String> {
    let mut command = program;
    for word in verb {
        command = match command.find_subcommand(word) {
            Some(found) => found,
            None => bail!("there is no verb {:?}: `atoll help` lists them", verb.join(" ")),
        };
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).context("write the page")?;
    String::from_utf8(page).context("write the page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page_with_its_flags() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let page = |verb: &str| super::page(&program(), &words(verb));
        assert!(page("").unwrap().contains(".TH atoll 1"));
        let drain = page("drain").unwrap();
        assert!(drain.contains(".TH atoll-drain 1") && drain.contains(r"\-\-timeout"), "{drain}");
        assert!(page("token create").unwrap().contains(".TH atoll-token-create 1"));
        assert!(page("dance").unwrap_err().to_string().contains("atoll help"));
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(program(), folder.path()).unwrap();
        let pages = std::fs::read_dir(folder.path()).unwrap();
        let names: Vec<_> = pages.map(|page| page.unwrap().file_name()).collect();
        let of_help = names.iter().filter(|name| name.to_string_lossy().contains("-help")).count();
        assert!(of_help == 0 && names.len() > 40, "{names:?}");
    }
}
