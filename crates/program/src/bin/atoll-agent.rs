//! `atoll-agent`: one member's agent, as `atoll agent`, in a program that contains nothing else. It is a third of the
//! size, and needs less memory on members.

use std::path::PathBuf;
use std::process::ExitCode;

use atoll_program::agent::{self, AgentArgs};
use atoll_program::flags::HubFlags;
use atoll_program::{logging, text};
use clap::Parser;

/// Exit code when the agent fails. Invalid arguments exit with 2, as clap defines.
const FAILED: u8 = 1;

/// Runs the agent of one member of an Atoll federation.
#[derive(Debug, Parser)]
#[command(name = "atoll-agent", version)]
struct Program {
    /// Kubeconfig file of the member [default in a Pod: its service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the member in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

fn main() -> ExitCode {
    match run(Program::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            text::error(&error);
            ExitCode::from(FAILED)
        }
    }
}

fn run(program: Program) -> anyhow::Result<()> {
    let _logs = logging::start("info", program.agent.log.log_format)?;
    // All TLS in this process uses this provider; installing it twice is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It waits nearly all the time. A second thread would keep buffers of its own, and rules run on blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Program { kubeconfig, context, agent } = program;
    let member = HubFlags { kubeconfig, context, namespace: None };
    runtime.block_on(agent::run(&member, agent))
}
