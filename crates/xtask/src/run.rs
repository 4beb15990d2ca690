//! Runs other programs, with visible output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

/// The cargo that started us, which has the selected toolchain.
fn program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// A cargo command with the environment of the user's shell. `cargo run` adds variables about this package; the build script of
/// `ring` depends on them, so it and most crates would be compiled again by the next `cargo test` without xtask.
pub(crate) fn command() -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Prints the current step.
#[allow(clippy::print_stderr, reason = "progress of a developer command")]
pub(crate) fn say(text: impl AsRef<str>) {
    eprintln!("==> {}", text.as_ref());
}

/// Runs cargo in the workspace's folder, without stdin, so that it cannot wait for input.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    cargo_with(root, args, &[])
}

/// Like [`cargo`], with additional environment variables.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn cargo_with(
    root: &Path,
    args: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<()> {
    let mut args = args.to_vec();
    // In CI the lock file must be up to date. That of another workspace is a part of ours.
    let own = !args.contains(&"--manifest-path");
    if std::env::var_os("CI").is_some() && own && args[0] != "fmt" && args[0] != "deny" {
        args.insert(if args[0] == "nextest" { 2 } else { 1 }, "--locked");
    }
    let shown = format!("cargo {}", args.join(" "));
    say(&shown);
    let started = Instant::now();
    let status = command()
        .args(&args)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    say(format!("done in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// Cargo's target directory.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |set| root.join(set))
}

/// Whether cargo has this subcommand.
pub(crate) fn cargo_has(subcommand: &str) -> bool {
    answers(&program(), &[subcommand, "--version"])
}

/// Whether a program is installed and runs.
pub(crate) fn answers(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_gets_no_variables_about_this_package() {
        // Cargo, which runs the tests, sets it.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = command();
        let removed = |name: &str| command.get_envs().any(|entry| entry == (name.as_ref(), None));
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
    }
}
