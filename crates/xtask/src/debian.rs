//! Installing Debian's packages for tests.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Whether packages can be installed: on Debian, as root.
pub(crate) fn can_install() -> bool {
    use std::os::unix::fs::MetadataExt;
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    root && Path::new("/etc/debian_version").exists()
}

/// Runs `apt-get`.
///
/// # Errors
/// When it fails.
pub(crate) fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("start apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", args.join(" "));
    }
    Ok(())
}
