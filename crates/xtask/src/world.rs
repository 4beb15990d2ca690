//! `cargo xtask world`: random histories of whole federations, until the time is up.

use std::path::Path;

use clap::Args;

use crate::run::cargo;

#[derive(Debug, Args)]
pub(crate) struct WorldArgs {
    /// Build in release mode first: some minutes once, then several times as many seeds per minute
    #[arg(long)]
    release: bool,
    /// Passed on: `--seeds N --from S --faults NAMES --jobs N --shrink SECONDS --keep-going --verbose`; `--help` explains
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Runs the histories.
///
/// # Errors
/// When one fails, or the program cannot be built.
pub(crate) fn run(root: &Path, args: &WorldArgs) -> anyhow::Result<()> {
    let mut words = vec!["run", "--quiet", "-p", "atoll-simulator", "--features", "world"];
    words.extend(["--example", "world"]);
    if args.release {
        words.push("--release");
    }
    words.push("--");
    words.extend(args.args.iter().map(String::as_str));
    cargo(root, &words)
}
