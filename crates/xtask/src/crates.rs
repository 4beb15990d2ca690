//! Checks the dependency rules between crates against cargo's metadata. See "Crates" in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::run::{command, say};

/// The workspace crates that each crate may use. Development dependencies are not restricted.
const MAY_USE: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("merge", &[]),
    ("expression", &[]),
    ("http", &[]),
    ("access", &[]),
    ("apimachinery", &["api", "http"]),
    ("interpreter", &["api"]),
    ("customize", &["api", "interpreter", "merge"]),
    ("decision", &["api"]),
    ("scheduler", &["api", "decision", "interpreter"]),
    ("render", &["api", "expression", "interpreter", "merge"]),
    ("convert", &["api", "merge"]),
    ("migrate", &["api", "convert", "interpreter", "render"]),
    ("install", &["api"]),
    ("history", &["api", "decision"]),
    ("protocol", &["api"]),
    ("traces", &["api", "http"]),
    (
        "controller",
        &[
            "access",
            "api",
            "customize",
            "decision",
            "http",
            "interpreter",
            "merge",
            "scheduler",
            "render",
            "history",
            "protocol",
            "traces",
        ],
    ),
    ("agent", &["access", "api", "customize", "interpreter", "protocol", "traces"]),
    ("apiserver", &["api", "apimachinery", "expression", "http", "merge"]),
    // It knows no Kubernetes API: the binary reads for it.
    ("console", &["http"]),
    ("envtest", &["apiserver"]),
    ("stub-agent", &["api", "protocol"]),
    (
        "simulator",
        &[
            "api",
            "apiserver",
            "interpreter",
            "merge",
            "protocol",
            "agent",
            "controller",
            "history",
            "scheduler",
        ],
    ),
    ("program", &["agent", "api", "http", "protocol", "traces"]),
    (
        "cli",
        &[
            "access",
            "api",
            "apimachinery",
            "console",
            "convert",
            "customize",
            "decision",
            "http",
            "install",
            "interpreter",
            "merge",
            "migrate",
            "scheduler",
            "render",
            "history",
            "protocol",
            "controller",
            "agent",
            "program",
            "apiserver",
            "simulator",
            "traces",
        ],
    ),
    ("vectors", &[]),
    ("xtask", &["api", "install"]),
];

/// Crates without async runtime, clock, network, database and randomness.
pub(crate) const PURE: [&str; 7] =
    ["convert", "decision", "interpreter", "merge", "migrate", "render", "scheduler"];
/// External dependencies of pure crates: data types, formats, hashes, error types.
const PURE_MAY_USE: [&str; 11] = [
    "arcstr",
    "jiff",
    "json-patch",
    "k8s-openapi",
    "regex",
    "rustc-hash",
    "serde",
    "serde-saphyr",
    "serde_json",
    "sha2",
    "thiserror",
];

/// External crates that only some of ours may use.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("sqlx", &["history"], "SQL is spoken by history only"),
    ("tonic", &["protocol", "controller", "agent", "stub-agent"], "gRPC stays at the edges"),
    (
        "prost",
        &["protocol", "stub-agent"],
        "generated types stay in protocol; recorded sessions are test data",
    ),
    ("redb", &["apiserver"], "only the embedded API server has a file of objects"),
    ("clap", &["cli", "program", "xtask"], "arguments are read by programs"),
    ("anyhow", &["cli", "program", "xtask"], "libraries have an error type for each failed step"),
];

/// Dependencies of each of our crates, without development ones.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Fails when a crate has a forbidden dependency.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let broken = broken(&graph(root)?);
    if !broken.is_empty() {
        bail!("{}", broken.join("; "));
    }
    say("rules between crates hold");
    Ok(())
}

fn broken(graph: &Graph) -> Vec<String> {
    let ours = |name: &str| name.strip_prefix("atoll-").unwrap_or(name).to_owned();
    let mut broken = Vec::new();
    for (package, uses) in graph {
        let name = ours(package);
        let Some((_, may_use)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            broken.push(format!("crate {name} is new: say in xtask's crates.rs what it may use"));
            continue;
        };
        for used in uses {
            if graph.contains_key(used) && !may_use.contains(&ours(used).as_str()) {
                broken.push(format!("{name} uses {}", ours(used)));
            }
            let outside = !graph.contains_key(used);
            if outside && PURE.contains(&name.as_str()) && !PURE_MAY_USE.contains(&used.as_str()) {
                broken.push(format!("{name} is pure and uses {used}"));
            }
            let reserved = RESERVED.iter().find(|(reserved, ..)| reserved == used);
            if let Some((_, allowed, why)) = reserved
                && !allowed.contains(&name.as_str())
            {
                broken.push(format!("{name} uses {used}: {why}"));
            }
        }
    }
    broken
}

fn graph(root: &Path) -> anyhow::Result<Graph> {
    let output = command()
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed ({})", output.status);
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("read the answer of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let mut graph = Graph::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has a name")?;
        let uses = package["dependencies"].as_array().into_iter().flatten();
        // `kind` is null for normal dependencies.
        let uses = uses.filter(|dependency| dependency["kind"].is_null());
        let names = uses.filter_map(|dependency| dependency["name"].as_str());
        graph.insert(name.to_owned(), names.map(str::to_owned).collect());
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_the_rules() {
        let graph = graph(&crate::root().unwrap()).unwrap();
        assert_eq!(graph.len(), MAY_USE.len());
        assert_eq!(broken(&graph), Vec::<String>::new());
    }

    /// `cargo bench -p CRATE -- ARGS` passes ARGS to every target that it benchmarks, including the library's own
    /// harness, which refuses `--json`.
    #[test]
    fn only_benchmarks_take_the_arguments_of_cargo_bench() {
        let crates = crate::root().unwrap().join("crates");
        let mut with_benches = 0;
        for folder in std::fs::read_dir(crates).unwrap() {
            let folder = folder.unwrap().path();
            let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            if !manifest.contains("[[bench]]") {
                continue;
            }
            with_benches += 1;
            for (source, section) in [("src/lib.rs", "[lib]"), ("src/main.rs", "[[bin]]")] {
                let text = manifest.split_once(section).map_or("", |(_, rest)| rest);
                let text = text.split_once("\n[").map_or(text, |(text, _)| text);
                let quiet = text.lines().any(|line| line == "bench = false");
                let has = folder.join(source).exists();
                assert!(!has || quiet, "{}: {section} needs `bench = false`", folder.display());
            }
        }
        assert!(with_benches >= 4);
    }

    #[test]
    fn every_rule_is_held() {
        let graph = |edges: &[(&str, &[&str])]| -> Graph {
            let edge = |(name, uses): &(&str, &[&str])| {
                ((*name).to_owned(), uses.iter().map(|used| (*used).to_owned()).collect())
            };
            edges.iter().map(edge).collect()
        };
        for (edges, part) in [
            (
                &[("atoll-agent", &["atoll-controller"][..]), ("atoll-controller", &[])][..],
                "agent uses controller",
            ),
            (&[("atoll-scheduler", &["tokio"])], "scheduler is pure and uses tokio"),
            (&[("atoll-controller", &["sqlx"])], "SQL is spoken by history only"),
            (&[("atoll-shiny", &[])], "crate shiny is new"),
        ] {
            let found = broken(&graph(edges));
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }
}
