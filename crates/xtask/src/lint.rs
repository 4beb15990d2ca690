//! `cargo xtask lint`: all checks other than tests.

use std::path::Path;

use anyhow::bail;

use crate::run::{cargo, cargo_has, say};
use crate::test::PLUGIN;
use crate::{crates, crds, deploy, protocol, sources, structure};

/// Runs every check, even after a failure, to report all problems at once.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let plugin = format!("{PLUGIN}/Cargo.toml");
    let mut checks: Vec<(&str, anyhow::Result<()>)> = vec![
        ("format", cargo(root, &["fmt", "--all", "--check"])),
        ("format of the plugin", cargo(root, &["fmt", "--manifest-path", &plugin, "--check"])),
        ("clippy", cargo(root, &clippy)),
        ("generated code", protocol::check(root)),
        ("generated CRDs", crds::check(root)),
        ("generated manifests", deploy::check(root)),
        ("rules between crates", crates::check(root)),
        ("pure crates", sources::check(root)),
        ("structure", structure::check(root)),
    ];
    if cargo_has("deny") {
        // Advisories change without a commit of ours, so they must not fail the build of an old commit.
        checks.push(("deny", cargo(root, &["deny", "check", "bans", "licenses", "sources"])));
    } else {
        say("cargo-deny is not installed: licences and duplicate crates are not checked");
    }
    let mut failed = Vec::new();
    for (name, result) in checks {
        if let Err(error) = result {
            say(format!("{name}: {error:#}"));
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Checks the dependencies against the advisory database.
pub(crate) fn audit(root: &Path) -> anyhow::Result<()> {
    if !cargo_has("deny") {
        bail!("cargo-deny is not installed: `cargo install --locked cargo-deny`");
    }
    cargo(root, &["deny", "check", "advisories"])
}
