//! The `atoll` binary: parses arguments, wires the crates, prints. One module per verb; the logic is in the crates
//! below.

mod accept_term;
mod access_review;
mod approve;
mod args;
mod bounded;
mod ca;
mod check;
mod cluster;
mod completion;
mod confirm;
mod confirm_lost;
mod console;
mod convert;
mod cordon;
mod decisions;
mod drain;
mod events;
mod fleet_api;
mod hub_setup;
mod input;
mod install;
mod interpret;
mod join;
mod kubeconfig;
mod kubectl;
mod leader;
mod lint;
mod logs;
mod man;
mod member_api;
mod member_config;
mod migrate;
mod orphans;
mod plan;
mod print;
mod promote;
mod reach;
mod read;
mod rebalance;
mod render;
mod replay;
mod review_api;
mod revoke;
mod rollout;
mod schedule;
mod serve;
mod sim;
mod status;
mod token;
mod top;
mod uninstall;
mod unjoin;
mod up;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
pub(crate) use atoll_program::hub;
use atoll_program::{agent, logging};
use print::Printer;

/// Exit code when a verb fails. Invalid arguments exit with 2, as clap defines.
const FAILED: u8 = 1;
/// Exit code when parts of the input of `convert` have no equivalent.
const INCOMPLETE: u8 = 3;

fn main() -> ExitCode {
    if completion::answered() {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse().and_then(|cli| cli.check().map(|()| cli)) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, for example `atoll history x | head -1`.
        Err(error) if print::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The plan or the replay is printed.
            if error.is::<plan::Changes>() {
                return ExitCode::from(plan::CHANGES);
            }
            // kubectl has printed its own error.
            if let Some(failed) = error.downcast_ref::<kubectl::KubectlFailed>() {
                return ExitCode::from(failed.0);
            }
            print::error(&error);
            let incomplete = error.downcast_ref::<convert::Incomplete>().is_some();
            ExitCode::from(if incomplete { INCOMPLETE } else { FAILED })
        }
    }
}

/// Prints what is wrong with the arguments, or the help that was asked for.
fn refused(error: &clap::Error) -> ExitCode {
    // Nobody reads it if that fails.
    let _ = error.print();
    let arguments = Cli::command().ignore_errors(true).try_get_matches();
    let plans = arguments.is_ok_and(|all| matches!(all.subcommand_name(), Some("plan" | "replay")));
    // The usual code says that something changes.
    let code = if plans && error.use_stderr() { FAILED.into() } else { error.exit_code() };
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let _logs = logging::start(cli.command.default_log(), cli.command.log_format())?;
    // All TLS in this process uses this provider; installing it twice is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let out = Printer::stdout();
    runtime.block_on(async {
        match cli.command {
            Command::Up(args) => up::run(args, &out).await,
            Command::Sim(args) => sim::run(args, &out).await,
            Command::Install(args) => install::run(&cli.hub, args, &out),
            Command::Check(args) => check::run(&cli.hub, args, &out).await,
            Command::Uninstall(args) => uninstall::run(&cli.hub, args, &out).await,
            Command::Man(args) => man::run(&args, &out),
            Command::Version(args) => version::run(&cli.hub, args, &out).await,
            Command::Completion(args) => completion::run(&args, &out),
            Command::Controller(args) => serve::controller::run(&cli.hub, args).await,
            Command::Agent(args) => agent::run(&cli.hub, args).await,
            Command::Kubeconfig(args) => kubeconfig::run(&cli.hub, args, &out).await,
            Command::Logs(args) => logs::run(&cli.hub, args, &out).await,
            Command::Top(args) => top::run(&cli.hub, args, &out).await,
            Command::Events(args) => events::run(&cli.hub, args, &out).await,
            Command::Exec(args) => kubectl::exec(&cli.hub, args).await,
            Command::Attach(args) => kubectl::attach(&cli.hub, args).await,
            Command::PortForward(args) => kubectl::port_forward(&cli.hub, args).await,
            Command::Cp(args) => kubectl::copy(&cli.hub, args).await,
            Command::Describe(args) => kubectl::describe(&cli.hub, args).await,
            Command::Rollout(args) => rollout::run(&cli.hub, args, &out).await,
            Command::Promote(args) => promote::run(&cli.hub, args, &out).await,
            Command::Join(args) => join::run(&cli.hub, args, &out).await,
            Command::Rejoin(args) => join::again(&cli.hub, args, &out).await,
            Command::Revoke(args) => revoke::run(&cli.hub, args, &out).await,
            Command::Unjoin(args) => unjoin::run(&cli.hub, args, &out).await,
            Command::Orphans(args) => orphans::list(&cli.hub, args, &out).await,
            Command::Prune(args) => orphans::prune(&cli.hub, args, &out).await,
            Command::AcceptTerm(args) => accept_term::run(&cli.hub, args, &out).await,
            Command::ConfirmLost(args) => confirm_lost::run(&cli.hub, args, &out).await,
            Command::HubSetup(args) => hub_setup::run(args, &out).await,
            Command::HubBackups(args) => hub_setup::backups(&args, &out),
            Command::Ca(args) => ca::run(&cli.hub, args, &out).await,
            Command::Token(args) => token::run(&cli.hub, args, &out).await,
            Command::Cordon(args) => cordon::cordon(&cli.hub, args, &out).await,
            Command::Drain(args) => drain::run(&cli.hub, args, &out).await,
            Command::Rebalance(args) => rebalance::run(&cli.hub, args, &out).await,
            Command::Plan(args) => plan::run(&cli.hub, args, &out).await,
            Command::Guards(args) => approve::guards(&cli.hub, args, &out).await,
            Command::Approve(args) => approve::approve(&cli.hub, args, &out).await,
            Command::Uncordon(args) => cordon::uncordon(&cli.hub, args, &out).await,
            Command::History(args) => read::history::run(&cli.hub, args, &out).await,
            Command::Explain(args) => read::explain::run(&cli.hub, args, &out).await,
            Command::Timeline(args) => read::timeline::run(&cli.hub, args, &out).await,
            Command::Replay(args) => replay::run(&cli.hub, args, &out).await,
            Command::Diff(args) => read::diff::run(&cli.hub, args, &out).await,
            Command::Work(args) => read::work::run(&cli.hub, args, &out).await,
            Command::Schedule(args) => schedule::run(args, &out),
            Command::Lint(args) => lint::run(args, &out),
            Command::Render(args) => render::run(args, &out),
            Command::Interpret(args) => interpret::run(args, &out),
            Command::Convert(args) => convert::run(&cli.hub, args, &out).await,
            Command::Migrate(args) => migrate::run(&cli.hub, args, &out).await,
            Command::Console(args) => console::run(&cli.hub, args, &out).await,
            Command::Status(args) => status::run(&cli.hub, args, &out).await,
            Command::Get(args) => read::get::run(&cli.hub, args, &out).await,
        }
    })
}
