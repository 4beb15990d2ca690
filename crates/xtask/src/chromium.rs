//! The browser in which tests open the console: Debian's chromium.

use std::path::PathBuf;

use crate::debian;
use crate::run::say;

/// Names of the program; `e2e/console/browser.rs` looks for the same.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Installs it where that is possible; says so where tests are left out.
pub(crate) fn provide() {
    if find().is_some() {
        return;
    }
    if debian::can_install() {
        say("chromium is not installed: installing it by apt-get");
        let install = ["install", "-y", "--no-install-recommends", "chromium"];
        if let Err(error) = debian::apt_get(&["update"]).and_then(|()| debian::apt_get(&install)) {
            say(format!("{error:#}"));
        }
    }
    if find().is_none() {
        say("chromium is not installed: THE CONSOLE IS NOT TESTED IN A BROWSER");
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files =
        std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}
