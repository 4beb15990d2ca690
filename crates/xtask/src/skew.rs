//! `cargo xtask skew`: builds an earlier version, and runs it together with this one, both ways round.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

use crate::run::{cargo_with, command, say, target};

#[derive(Debug, Args)]
pub(crate) struct SkewArgs {
    /// The other version: a tag or a commit [default: the newest tag before this commit]
    #[arg(long, value_name = "REVISION")]
    rev: Option<String>,
}

/// Builds the other version and runs the test.
///
/// # Errors
/// When there is no other version, it cannot be built, or the versions do not work together.
pub(crate) fn run(root: &Path, args: &SkewArgs) -> anyhow::Result<()> {
    let revision = match &args.rev {
        Some(revision) => revision.clone(),
        None => git(root, &["describe", "--tags", "--abbrev=0", "HEAD^"])
            .context("find the newest tag before this commit; --rev names another version")?,
    };
    let commit = git(root, &["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
        .with_context(|| format!("find {revision}"))?;
    if commit == git(root, &["rev-parse", "HEAD"])? {
        bail!("{revision} is the present commit: name an earlier one with --rev");
    }
    let folder = target(root).join("skew");
    let (source, build) = (folder.join("source"), folder.join("build"));
    say(format!("{revision} ({commit}) against the present sources"));
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let shown = source.display().to_string();
    if source.exists() {
        git(root, &["worktree", "remove", "--force", &shown])?;
    }
    git(root, &["worktree", "add", "--detach", &shown, &commit])?;
    let built = command()
        .args(["build", "--locked", "-p", "atoll-cli", "--target-dir"])
        .arg(&build)
        .current_dir(&source)
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .context("start cargo for the other version");
    git(root, &["worktree", "remove", "--force", &shown])?;
    if !built?.success() {
        bail!("{revision} cannot be built");
    }
    let other = build.join("debug").join(format!("atoll{}", std::env::consts::EXE_SUFFIX));
    let other = other.to_str().context("the target folder has a name that is no text")?;
    let test = ["test", "-p", "atoll-cli", "--test", "e2e", "--", "--nocapture", "two_versions"];
    cargo_with(root, &test, &[("ATOLL_SKEW_OTHER", other)])
}

fn git(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let shown = format!("git {}", args.join(" "));
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.with_context(|| format!("start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
