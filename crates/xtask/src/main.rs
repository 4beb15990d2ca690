//! Developer commands: `cargo xtask --help`.

mod bench;
mod chromium;
mod crates;
mod crds;
mod debian;
mod deploy;
mod lint;
mod postgres;
mod protocol;
mod run;
mod skew;
mod sources;
mod structure;
mod test;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer commands", max_term_width = 100)]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write crds/*.yaml from the types, and what `deploy` writes
    Crds {
        /// Write nothing, fail when a file is not what it would be
        #[arg(long)]
        check: bool,
    },
    /// Write deploy/kustomize, deploy/chart and deploy/controller/controller.yaml from the templates of `atoll install`
    Deploy {
        /// Write nothing, fail when a file is not what it would be
        #[arg(long)]
        check: bool,
    },
    /// Write the code of crates/protocol from proto/
    Protocol {
        /// Write nothing, fail when the code is not what it would be
        #[arg(long)]
        check: bool,
    },
    /// Run all tests, or those that the arguments name
    Test(test::TestArgs),
    /// Measure: the figures of docs/benchmarks.md
    Bench(bench::BenchArgs),
    /// Play random histories of whole federations: everything fails, every invariant is checked
    World(world::WorldArgs),
    /// Run controllers and agents of this and of an earlier version together, in both directions. Part of a release
    Skew(skew::SkewArgs),
    /// Format, clippy, generated files, rules between crates and on the structure of the sources
    Lint,
    /// Look up known vulnerabilities of the dependencies. Needs cargo-deny and the network; CI does not run it, because new
    /// advisories would turn old commits red
    Audit,
    /// All that CI runs: tests, then lint
    Ci,
}

fn main() -> ExitCode {
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            run::say(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn command() -> anyhow::Result<()> {
    let root = root()?;
    match Xtask::parse().command {
        Command::Crds { check: false } => {
            crds::write(&root)?;
            // They contain the CRDs.
            deploy::write(&root)
        }
        Command::Crds { check: true } => crds::check(&root),
        Command::Deploy { check: false } => deploy::write(&root),
        Command::Deploy { check: true } => deploy::check(&root),
        Command::Protocol { check: false } => protocol::write(&root),
        Command::Protocol { check: true } => protocol::check(&root),
        Command::Test(args) => test::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
        Command::World(args) => world::run(&root, &args),
        Command::Skew(args) => skew::run(&root, &args),
        Command::Lint => lint::run(&root),
        Command::Audit => lint::audit(&root),
        Command::Ci => {
            test::run(&root, &test::TestArgs::default())?;
            lint::run(&root)
        }
    }
}

/// The workspace's folder.
fn root() -> anyhow::Result<PathBuf> {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().nth(2).context("find the workspace above crates/xtask")?;
    Ok(root.to_owned())
}
