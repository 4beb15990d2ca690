//! `atoll sim`: adds simulated members to a running `atoll up`, and injects faults into them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::args::Format;
use crate::print::{Printer, Text, Tone};
use crate::up::control::{self, MemberState, Power, Request};
use crate::up::folder;

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    verb: Verb,
    /// Data folder of the running `atoll up`
    #[arg(long, global = true, value_name = "FOLDER", default_value = folder::DEFAULT)]
    data_dir: PathBuf,
    /// How to print the answer
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the simulated members
    List,
    /// Add a member, with the next number. It stays: the next `atoll up` on the folder starts it too
    Add,
    /// Take a member down: nothing runs on it and its API server does not answer
    Stop {
        /// The member
        #[arg(value_name = "MEMBER")]
        member: String,
    },
    /// Restart a stopped member, or reconnect one whose network is cut
    Start {
        /// The member
        #[arg(value_name = "MEMBER")]
        member: String,
    },
    /// Cut the network of a member's agent; its workloads continue
    Cut {
        /// The member
        #[arg(value_name = "MEMBER")]
        member: String,
    },
}

pub(crate) async fn run(args: SimArgs, out: &Printer) -> anyhow::Result<()> {
    let request = match args.verb {
        Verb::List => Request::List,
        Verb::Add => Request::Add,
        Verb::Stop { member } => Request::Stop(member),
        Verb::Start { member } => Request::Start(member),
        Verb::Cut { member } => Request::Cut(member),
    };
    let members = control::ask(&args.data_dir, &request).await?;
    match args.output {
        Format::Table => {
            out.table(&["MEMBER", "STATE", "API SERVER"], members.iter().map(row).collect())
        }
        format => out.object(format, &json!({ "members": members })),
    }
}

fn row(member: &MemberState) -> Vec<Text> {
    let tone = match member.power {
        Power::Running => Tone::Good,
        Power::Cut => Tone::Warn,
        Power::Stopped => Tone::Bad,
    };
    vec![(&member.name).into(), Text::toned(member.power, tone), (&member.server).into()]
}
