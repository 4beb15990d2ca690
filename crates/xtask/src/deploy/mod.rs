//! `cargo xtask deploy`: the generated forms of the manifests, from the templates of `atoll install`.

mod chart;
mod kustomize;
#[cfg(test)]
mod observe;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use atoll_install::{History, Hub, Options, Part};

use crate::run::say;

/// Folders in which every file is generated.
const FOLDERS: [&str; 4] = ["deploy/kustomize", "deploy/chart", "deploy/bundled", DASHBOARDS];
/// What `atoll install --hub bundled` prints without other flags.
const BUNDLED: &str = "deploy/bundled/bundled.yaml";
/// Folder of the Grafana dashboards.
const DASHBOARDS: &str = "deploy/observe/dashboards";
/// Generated, beside the files that the templates are made from.
const CONTROLLER: &str = "deploy/controller/controller.yaml";
/// First line of every generated file that may have a comment.
const HEADER: &str = "# Generated from crates/install by `cargo xtask deploy`. Do not edit.\n";
/// Name of the Secret with the URL of PostgreSQL, in forms that cannot ask for it.
const HISTORY_SECRET: &str = "atoll-history";

/// Path below the root, and content, of every generated file.
type Files = BTreeMap<String, String>;

fn files() -> anyhow::Result<Files> {
    let mut files = Files::new();
    let standard = standard();
    files.insert(CONTROLLER.to_owned(), generated(part(&standard, "controller")?)?);
    for (name, dashboard) in atoll_install::dashboards() {
        let text = serde_json::to_string_pretty(&dashboard).context("write a dashboard")?;
        files.insert(format!("{DASHBOARDS}/{name}.json"), format!("{text}\n"));
    }
    let parts = atoll_install::text(&atoll_install::parts(&bundled())?)?;
    files.insert(BUNDLED.to_owned(), format!("{HEADER}{parts}"));
    kustomize::files(&mut files)?;
    chart::files(&mut files)?;
    Ok(files)
}

/// What `atoll install` without flags prints.
fn standard() -> Options {
    Options::new(atoll_install::IMAGE)
}

/// The same with a hub in the cluster.
fn bundled() -> Options {
    Options { hub: Hub::Bundled { volume: "10Gi".to_owned() }, ..standard() }
}

/// The same with PostgreSQL, and with every optional part.
fn postgres() -> Options {
    Options {
        history: History::Secret(HISTORY_SECRET.to_owned()),
        secrets: true,
        cluster_kinds: true,
        replica_sync: true,
        observe: true,
        service_monitor: true,
        ..standard()
    }
}

fn part(options: &Options, name: &str) -> anyhow::Result<Part> {
    let mut parts = atoll_install::parts(options)?.into_iter();
    parts.find(|part| part.name == name).with_context(|| format!("there is no part {name}"))
}

fn generated(part: Part) -> anyhow::Result<String> {
    Ok(format!("{HEADER}{}", part.text()?))
}

/// Writes the files and removes those that are no longer made.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let files = files()?;
    for path in present(root)?.into_keys().filter(|path| !files.contains_key(path)) {
        std::fs::remove_file(root.join(&path)).with_context(|| format!("remove {path}"))?;
    }
    for (path, content) in &files {
        let file = root.join(path);
        let folder = file.parent().with_context(|| format!("{path} is in a folder"))?;
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        std::fs::write(&file, content).with_context(|| format!("write {path}"))?;
    }
    say(format!("deploy/ has {} generated files", files.len()));
    Ok(())
}

/// Fails when a file differs from the output of `write`.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let (files, mut present) = (files()?, present(root)?);
    let controller = std::fs::read_to_string(root.join(CONTROLLER)).unwrap_or_default();
    present.insert(CONTROLLER.to_owned(), controller);
    let gone = present.keys().filter(|path| !files.contains_key(*path));
    let changed = files.iter().filter(|(path, content)| present.get(*path) != Some(content));
    let wrong: Vec<&str> = gone.chain(changed.map(|(path, _)| path)).map(String::as_str).collect();
    if !wrong.is_empty() {
        bail!("deploy/ is not up to date, run `cargo xtask deploy`: {}", wrong.join(", "));
    }
    say("the generated files of deploy/ are up to date");
    Ok(())
}

/// Path and content of every file in the generated folders.
fn present(root: &Path) -> anyhow::Result<Files> {
    let mut found = Files::new();
    let mut folders: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
    while let Some(folder) = folders.pop() {
        if !root.join(&folder).exists() {
            continue;
        }
        let doing = || format!("list {folder}");
        for entry in std::fs::read_dir(root.join(&folder)).with_context(doing)? {
            let entry = entry.with_context(doing)?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().with_context(doing)?.is_dir() {
                folders.push(path);
            } else {
                let read = std::fs::read_to_string(entry.path());
                let content = read.with_context(|| format!("read {path}"))?;
                found.insert(path, content);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::Value;

    use super::*;

    /// Objects by kind, namespace and name.
    pub(super) fn keyed(objects: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
        let key = |o: &Value| {
            format!("{} {}/{}", o["kind"], o["metadata"]["namespace"], o["metadata"]["name"])
        };
        objects.into_iter().map(|object| (key(&object), object)).collect()
    }

    /// Numbers as kustomize writes them: 1.0 is 1.
    fn plain(value: &Value) -> Value {
        match value {
            Value::Number(number) => number.as_f64().unwrap().to_string().into(),
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn objects(options: &Options) -> BTreeMap<String, Value> {
        let parts = atoll_install::parts(options).unwrap();
        keyed(parts.into_iter().flat_map(|part| part.objects))
    }

    #[test]
    fn the_committed_files_are_what_the_templates_make() {
        check(&crate::root().unwrap()).unwrap();
    }

    #[test]
    fn kubectl_kustomize_makes_what_atoll_install_prints() {
        let root = crate::root().unwrap();
        let small = Options { history: postgres().history, ..standard() };
        for (folder, options) in [
            ("deploy/kustomize", standard()),
            ("deploy/kustomize/postgres", small),
            ("deploy/bundled", bundled()),
        ] {
            let built = Command::new("kubectl").arg("kustomize").arg(root.join(folder)).output();
            let Ok(built) = built else {
                say("kubectl is not installed: deploy/kustomize is not built");
                return;
            };
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            let built = String::from_utf8(built.stdout).unwrap();
            let built: Vec<Value> = serde_saphyr::from_multiple(&built).unwrap();
            let (built, printed) = (keyed(built), objects(&options));
            assert_eq!(
                built.keys().collect::<Vec<_>>(),
                printed.keys().collect::<Vec<_>>(),
                "{folder}"
            );
            for (key, object) in printed {
                assert!(plain(&built[&key]) == plain(&object), "{folder}: {key} differs");
            }
        }
    }
}
