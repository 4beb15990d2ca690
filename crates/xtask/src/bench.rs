//! `cargo xtask bench NAME`: the measurements behind docs/benchmarks.md, each in the crate it measures.

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::postgres::{self, Server};
use crate::run::cargo_with;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    bench: Bench,
    /// Passed to the benchmark, for example `-- --json`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// One scheduling decision, by clusters and strategy, beside the peer's
    Decisions,
    /// Rendering with 20 override policies, beside rendering without
    Overrides,
    /// Sessions of 1,000 and 5,000 agents, and the memory of a real agent
    Members,
    /// History: how fast it takes decisions, how far behind it is, how long its answers take
    History,
    /// What decisions read: its bytes and its time for 10,000 decisions in a day
    Inputs,
    /// One of 50 members dies and 1,000, 10,000 and 100,000 workloads move
    Failover,
    /// A federation of 1,000 members and 100,000 workloads: memory, idle CPU, restart, edits, lists
    Scale,
    /// Plans of a change of a federation with 100,000 workloads
    Planning,
    /// Pages of the console with 5,000 members and 100,000 bindings
    Console,
    /// 200 log streams through one member, and whether they delay its session
    Streams,
}

impl Bench {
    /// The crate and the name of the benchmark in it.
    fn target(self) -> (&'static str, &'static str) {
        match self {
            Self::Decisions => ("atoll-scheduler", "decisions"),
            Self::Overrides => ("atoll-render", "overrides"),
            Self::Members => ("atoll-cli", "members"),
            Self::History => ("atoll-history", "history"),
            Self::Inputs => ("atoll-history", "inputs"),
            Self::Failover => ("atoll-controller", "failover"),
            Self::Planning => ("atoll-controller", "planning"),
            Self::Scale => ("atoll-cli", "scale"),
            Self::Console => ("atoll-cli", "console"),
            Self::Streams => ("atoll-controller", "streams"),
        }
    }

    /// Whether it writes to PostgreSQL.
    fn needs_postgres(self) -> bool {
        match self {
            Self::Decisions
            | Self::Overrides
            | Self::Members
            | Self::Failover
            | Self::Planning
            | Self::Scale
            | Self::Console
            | Self::Streams => false,
            Self::History | Self::Inputs => true,
        }
    }
}

/// Builds a benchmark, with the profile `bench`, and runs it.
///
/// # Errors
/// When it fails, or when the PostgreSQL that it needs cannot be started.
pub(crate) fn run(root: &Path, args: &BenchArgs) -> anyhow::Result<()> {
    let given = std::env::var_os(postgres::VARIABLE).is_some();
    let server =
        if args.bench.needs_postgres() && !given { Server::start_durable(root)? } else { None };
    let environment: Vec<(&str, &str)> =
        server.iter().map(|server| (postgres::VARIABLE, server.url.as_str())).collect();
    if args.bench == Bench::Members {
        // It measures this program too, which is another package's.
        cargo_with(root, &["build", "--profile", "agent", "-p", "atoll-program"], &[])?;
    }
    let (package, bench) = args.bench.target();
    let extra: Vec<&str> =
        args.args.iter().map(String::as_str).filter(|arg| *arg != "--").collect();
    cargo_with(
        root,
        &[&["bench", "-p", package, "--bench", bench, "--"], &extra[..]].concat(),
        &environment,
    )
}
