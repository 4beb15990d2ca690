//! `cargo xtask crds`: the CRDs as files, for `kubectl apply -f crds/`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};

use crate::run::say;

const FOLDER: &str = "crds";
const HEADER: &str = "# Generated from crates/api by `cargo xtask crds`. Do not edit.\n";

/// Name and content of every file.
fn files() -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for crd in atoll_api::crds::all() {
        let name = crd.metadata.name.clone().context("a CRD has a name")?;
        // Through a `Value`, whose maps are sorted, so that a diff shows only real changes.
        let value = serde_json::to_value(&crd).with_context(|| format!("write {name} as JSON"))?;
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("write {name} as YAML"))?;
        files.insert(format!("{name}.yaml"), format!("{HEADER}{}\n", yaml.trim_end()));
    }
    Ok(files)
}

/// Writes the files and removes those of deleted kinds.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let files = files()?;
    for name in present(&folder)?.into_iter().filter(|name| !files.contains_key(name)) {
        std::fs::remove_file(folder.join(&name)).with_context(|| format!("remove {name}"))?;
    }
    for (name, content) in &files {
        std::fs::write(folder.join(name), content).with_context(|| format!("write {name}"))?;
    }
    say(format!("{FOLDER}/ has {} CRDs", files.len()));
    Ok(())
}

/// Fails when the folder differs from the output of `write`.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    let files = files()?;
    let mut wrong: Vec<String> =
        present(&folder)?.into_iter().filter(|name| !files.contains_key(name)).collect();
    for (name, content) in &files {
        let on_disk = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        if on_disk != *content {
            wrong.push(name.clone());
        }
    }
    if !wrong.is_empty() {
        bail!("{FOLDER}/ is not up to date, run `cargo xtask crds`: {}", wrong.join(", "));
    }
    say(format!("{FOLDER}/ is up to date"));
    Ok(())
}

fn present(folder: &Path) -> anyhow::Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let listed = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in listed {
        let entry = entry.with_context(|| format!("list {}", folder.display()))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
