//! The program `atoll`: parses arguments, wires the crates, prints. One module per verb; the logic is in the crates
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

use std::pin::Pin;
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

/// The program: parses the arguments, runs the verb, returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
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
    // Each verb in a box of its own: as one future, all verbs are one huge function with as huge a drop.
    let verb: Pin<Box<dyn Future<Output = anyhow::Result<()>> + '_>> = match cli.command {
        Command::Up(args) => Box::pin(up::run(args, &out)),
        Command::Sim(args) => Box::pin(sim::run(args, &out)),
        Command::Install(args) => return install::run(&cli.hub, args, &out),
        Command::Check(args) => Box::pin(check::run(&cli.hub, args, &out)),
        Command::Uninstall(args) => Box::pin(uninstall::run(&cli.hub, args, &out)),
        Command::Man(args) => return man::run(&args, &out),
        Command::Version(args) => Box::pin(version::run(&cli.hub, args, &out)),
        Command::Completion(args) => return completion::run(&args, &out),
        Command::Controller(args) => Box::pin(serve::controller::run(&cli.hub, args)),
        Command::Agent(args) => Box::pin(agent::run(&cli.hub, args)),
        Command::Kubeconfig(args) => Box::pin(kubeconfig::run(&cli.hub, args, &out)),
        Command::Logs(args) => Box::pin(logs::run(&cli.hub, args, &out)),
        Command::Top(args) => Box::pin(top::run(&cli.hub, args, &out)),
        Command::Events(args) => Box::pin(events::run(&cli.hub, args, &out)),
        Command::Exec(args) => Box::pin(kubectl::exec(&cli.hub, args)),
        Command::Attach(args) => Box::pin(kubectl::attach(&cli.hub, args)),
        Command::PortForward(args) => Box::pin(kubectl::port_forward(&cli.hub, args)),
        Command::Cp(args) => Box::pin(kubectl::copy(&cli.hub, args)),
        Command::Describe(args) => Box::pin(kubectl::describe(&cli.hub, args)),
        Command::Rollout(args) => Box::pin(rollout::run(&cli.hub, args, &out)),
        Command::Promote(args) => Box::pin(promote::run(&cli.hub, args, &out)),
        Command::Join(args) => Box::pin(join::run(&cli.hub, args, &out)),
        Command::Rejoin(args) => Box::pin(join::again(&cli.hub, args, &out)),
        Command::Revoke(args) => Box::pin(revoke::run(&cli.hub, args, &out)),
        Command::Unjoin(args) => Box::pin(unjoin::run(&cli.hub, args, &out)),
        Command::Orphans(args) => Box::pin(orphans::list(&cli.hub, args, &out)),
        Command::Prune(args) => Box::pin(orphans::prune(&cli.hub, args, &out)),
        Command::AcceptTerm(args) => Box::pin(accept_term::run(&cli.hub, args, &out)),
        Command::ConfirmLost(args) => Box::pin(confirm_lost::run(&cli.hub, args, &out)),
        Command::HubSetup(args) => Box::pin(hub_setup::run(args, &out)),
        Command::HubBackups(args) => return hub_setup::backups(&args, &out),
        Command::Ca(args) => Box::pin(ca::run(&cli.hub, args, &out)),
        Command::Token(args) => Box::pin(token::run(&cli.hub, args, &out)),
        Command::Cordon(args) => Box::pin(cordon::cordon(&cli.hub, args, &out)),
        Command::Drain(args) => Box::pin(drain::run(&cli.hub, args, &out)),
        Command::Rebalance(args) => Box::pin(rebalance::run(&cli.hub, args, &out)),
        Command::Plan(args) => Box::pin(plan::run(&cli.hub, args, &out)),
        Command::Guards(args) => Box::pin(approve::guards(&cli.hub, args, &out)),
        Command::Approve(args) => Box::pin(approve::approve(&cli.hub, args, &out)),
        Command::Uncordon(args) => Box::pin(cordon::uncordon(&cli.hub, args, &out)),
        Command::History(args) => Box::pin(read::history::run(&cli.hub, args, &out)),
        Command::Explain(args) => Box::pin(read::explain::run(&cli.hub, args, &out)),
        Command::Timeline(args) => Box::pin(read::timeline::run(&cli.hub, args, &out)),
        Command::Replay(args) => Box::pin(replay::run(&cli.hub, args, &out)),
        Command::Diff(args) => Box::pin(read::diff::run(&cli.hub, args, &out)),
        Command::Work(args) => Box::pin(read::work::run(&cli.hub, args, &out)),
        Command::Schedule(args) => return schedule::run(args, &out),
        Command::Lint(args) => return lint::run(args, &out),
        Command::Render(args) => return render::run(args, &out),
        Command::Interpret(args) => return interpret::run(args, &out),
        Command::Convert(args) => Box::pin(convert::run(&cli.hub, args, &out)),
        Command::Migrate(args) => Box::pin(migrate::run(&cli.hub, args, &out)),
        Command::Console(args) => Box::pin(console::run(&cli.hub, args, &out)),
        Command::Status(args) => Box::pin(status::run(&cli.hub, args, &out)),
        Command::Get(args) => Box::pin(read::get::run(&cli.hub, args, &out)),
    };
    runtime.block_on(verb)
}
