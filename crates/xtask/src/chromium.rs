//! The browser in which tests open the console: Debian's chromium.

use std::path::PathBuf;

use anyhow::bail;

use crate::debian;
use crate::run::say;

/// Names of the program; `e2e/console_browser.rs` looks for the same.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Installs it where that is possible; says so where tests are left out.
///
/// # Errors
/// When it cannot be installed, or is missing and this is CI.
pub(crate) fn provide() -> anyhow::Result<()> {
    if find().is_some() {
        return Ok(());
    }
    if debian::can_install() {
        say("chromium is not installed: installing it by apt-get");
        debian::apt_get(&["update"])?;
        debian::apt_get(&["install", "-y", "--no-install-recommends", "chromium"])?;
    }
    if find().is_none() {
        if std::env::var_os("CI").is_some() {
            bail!("chromium is not installed: CI leaves no test out");
        }
        say("chromium is not installed: THE CONSOLE IS NOT TESTED IN A BROWSER");
    }
    Ok(())
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files =
        std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}
