//! Rules that are checked on the text of the sources.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::crates::PURE;
use crate::run::say;

/// Names that pure crates must not use: clocks, randomness, threads, I/O, and maps with random order. (`FxHashMap` is
/// unseeded; its output is sorted where order matters.)
const IMPURE: [&str; 12] = [
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "std::time::Instant",
    "TcpStream",
    "UdpSocket",
    "std::env::",
    "std::process",
    "std::thread",
    "RandomState",
    " HashMap",
    " HashSet",
];

/// Crates of `atoll up` and of tests, which the rest of the binary must not use.
const TRIAL_ONLY: [&str; 2] = ["atoll_apiserver", "atoll_simulator"];
/// The certificates of an API server, which a bundled hub needs too.
const SHARED: &str = "atoll_apiserver::pki";

/// Fails when a pure crate uses an impure name, or the binary uses a crate of `atoll up` elsewhere.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut broken = outside_up(root)?;
    for krate in PURE {
        for file in rust_files(&root.join("crates").join(krate).join("src"))? {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("read {}", file.display()))?;
            let shown = file.strip_prefix(root).unwrap_or(&file).display();
            broken.extend(impure(&text).map(|(line, word)| format!("{shown}:{line} names {word}")));
        }
    }
    if !broken.is_empty() {
        bail!("{}", broken.join("; "));
    }
    say(
        "pure crates name nothing impure, and only `up` uses the embedded API server and the simulator",
    );
    Ok(())
}

/// Files of the binary that use a crate of `atoll up` without being part of it. Test modules may.
fn outside_up(root: &Path) -> anyhow::Result<Vec<String>> {
    let source = root.join("crates/cli/src");
    let mut broken = Vec::new();
    for file in rust_files(&source)? {
        if file.starts_with(source.join("up")) || file.ends_with("tests.rs") {
            continue;
        }
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display();
        broken.extend(trial_only(&text).map(|name| format!("{shown} uses {name} outside `up`")));
    }
    Ok(broken)
}

/// The crates of `atoll up` that code outside test modules uses.
fn trial_only(text: &str) -> impl Iterator<Item = &'static str> + '_ {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().replace(SHARED, "");
    TRIAL_ONLY.into_iter().filter(move |name| code.contains(*name))
}

/// Numbers of the lines that use an impure name outside a comment.
fn impure(text: &str) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    text.lines().enumerate().flat_map(|(index, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let named = IMPURE.into_iter().filter(move |word| code.contains(word));
        named.map(move |word| (index + 1, word.trim()))
    })
}

/// All Rust files below a folder.
pub(crate) fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.file_name().is_some_and(|name| name == "generated") {
            continue; // written by a program, and not read by people
        }
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_random_maps_are_found_and_comments_are_not() {
        let text = "let a = Timestamp::now();\n// Timestamp::now\nlet m: HashMap<K, V>;\nlet f: FxHashMap<K, V>;";
        let found: Vec<_> = impure(text).collect();
        assert_eq!(found, [(1, "Timestamp::now"), (3, "HashMap")]);
    }

    #[test]
    fn a_use_of_the_embedded_api_server_is_found_and_one_in_tests_is_not() {
        let found = |text: &str| trial_only(text).collect::<Vec<_>>();
        assert_eq!(found("use atoll_apiserver::Server;"), ["atoll_apiserver"]);
        assert!(
            found("fn a() {}\n#[cfg(test)]\nmod tests { use atoll_apiserver::Server; }").is_empty()
        );
    }

    #[test]
    fn the_sources_keep_the_rules() {
        check(&crate::root().unwrap()).unwrap();
    }
}
