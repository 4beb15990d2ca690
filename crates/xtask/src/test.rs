//! `cargo xtask test`: every test of the workspace, with the tools that are installed.

use std::num::NonZero;
use std::path::Path;

use anyhow::Context;
use clap::Args;

use crate::chromium;
use crate::postgres::{self, Server};
use crate::run::{answers, cargo_has, cargo_with, say, target};

/// The example of a scheduling plugin.
pub(crate) const PLUGIN: &str = "examples/scheduler-plugin";
/// The environment variable for the number of tests that nextest runs at once. `--test-threads` takes precedence.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

#[derive(Debug, Default, Args)]
pub(crate) struct TestArgs {
    /// Passed to cargo, for example `-p atoll-render` or the name of a test; without it the whole workspace is tested
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Runs unit, integration and documentation tests.
///
/// # Errors
/// When a test fails.
pub(crate) fn run(root: &Path, args: &TestArgs) -> anyhow::Result<()> {
    // rustc and a C compiler are enough; these two tools enable more tests.
    let nextest = cargo_has("nextest");
    if !nextest {
        say("cargo-nextest is not installed: cargo test runs the tests, one crate after the other");
    }
    if !answers("kubectl", &["version", "--client"]) {
        say("kubectl is not installed: scenarios run with a Kubernetes client alone");
    }
    chromium::provide();
    // A server given by the user takes precedence; ours stops when it goes out of scope.
    let given = std::env::var_os(postgres::VARIABLE).is_some();
    let server = if given { None } else { Server::start(root)? };
    let at_once = tests_at_once().to_string();
    let mut environment: Vec<(&str, &str)> =
        server.iter().map(|server| (postgres::VARIABLE, server.url.as_str())).collect();
    if std::env::var_os(TEST_THREADS).is_none() {
        environment.push((TEST_THREADS, &at_once));
    }
    let cargo = |args: &[&str]| cargo_with(root, args, &environment);
    let extra: Vec<&str> = args.args.iter().map(String::as_str).collect();
    let scoped = extra.iter().any(|arg| is_scope(arg));
    let scope = if scoped { &[][..] } else { &["--workspace"] };
    if nextest {
        cargo(&[&["nextest", "run"], scope, &extra].concat())?;
    } else {
        // Documentation tests have their own run below.
        cargo(&[&["test", "--all-targets"], scope, &extra].concat())?;
    }
    // Arguments select tests or crates; documentation tests have other names, and a crate without a library has none.
    if extra.is_empty() {
        cargo(&["test", "--workspace", "--doc"])?;
        test_plugin(root)?;
    }
    Ok(())
}

/// Three for every two processors: the longest scenarios wait most of the time, for leases, timeouts and backoff.
fn tests_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get) * 3 / 2
}

/// Tests a plugin that is no member of the workspace, with the versions of the workspace's dependencies.
fn test_plugin(root: &Path) -> anyhow::Result<()> {
    let (lock, copy) = (root.join("Cargo.lock"), root.join(PLUGIN).join("Cargo.lock"));
    std::fs::copy(&lock, &copy)
        .with_context(|| format!("copy {} to {}", lock.display(), copy.display()))?;
    let manifest = format!("{PLUGIN}/Cargo.toml");
    let folder = target(root).join("plugin");
    let folder = folder.to_string_lossy();
    // All dependencies are there: the workspace has them too.
    let args = ["test", "--offline", "--manifest-path", &manifest, "--target-dir", &folder];
    cargo_with(root, &args, &[("CARGO_PROFILE_DEV_DEBUG", "false")])
}

/// Whether an argument chooses packages.
fn is_scope(arg: &str) -> bool {
    let flag = arg.split_once('=').map_or(arg, |(flag, _)| flag);
    matches!(flag, "-p" | "--package" | "--workspace" | "--all" | "--manifest-path")
        || (arg.starts_with("-p") && !arg.starts_with("--"))
}
