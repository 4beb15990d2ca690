//! Objects of a kustomization.
//!
//! A kustomization that only lists files and folders is read here. For one that changes objects (patches, prefixes,
//! generators) or names URLs, `kubectl kustomize` builds the objects.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::print;

/// The names that kustomize looks for.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Fields that change no object.
const PLAIN: [&str; 5] = ["apiVersion", "kind", "metadata", "resources", "bases"];
/// Maximum nesting of kustomizations. Deeper nesting is a mistake, for example a circle.
const MAX_DEPTH: usize = 32;
/// Timeout of `kubectl kustomize`, which may fetch remote resources.
const BUILD: Duration = Duration::from_secs(120);

/// The texts of a kustomization, each with its name.
///
/// # Errors
/// When a file cannot be read, or the kustomization needs kubectl and kubectl is missing or fails.
pub(crate) async fn texts(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    match plain(folder, 0, &mut texts)? {
        None => Ok(texts),
        Some(why) => build(folder, &why).await,
    }
}

/// Reads a kustomization that changes no object. Otherwise returns why it needs kustomize.
fn plain(
    folder: &Path,
    depth: usize,
    texts: &mut Vec<(String, String)>,
) -> anyhow::Result<Option<String>> {
    let named = || format!("-k {}", folder.display());
    ensure!(depth < MAX_DEPTH, "{}: kustomizations are nested more than {MAX_DEPTH} deep", named());
    let file = NAMES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    let Some(file) = file else { bail!("{}: no kustomization.yaml in it", named()) };
    let text = std::fs::read_to_string(&file).with_context(named)?;
    let kustomization: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("{}: not YAML", file.display()))?;
    let Some(fields) = kustomization.as_object() else {
        bail!("{}: not a kustomization: give it a list `resources`", file.display());
    };
    if let Some(field) = fields.keys().find(|field| !PLAIN.contains(&field.as_str())) {
        return Ok(Some(format!("{} has `{field}`", file.display())));
    }
    for list in ["resources", "bases"] {
        for entry in fields.get(list).and_then(Value::as_array).into_iter().flatten() {
            let Some(entry) = entry.as_str() else {
                bail!("{}: {list}: {entry} is not the name of a file or folder", file.display());
            };
            let path: PathBuf = folder.join(entry);
            if path.is_dir() {
                if let Some(why) = plain(&path, depth + 1, texts)? {
                    return Ok(Some(why));
                }
            } else if path.is_file() {
                let text =
                    std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                texts.push((path.display().to_string(), text));
            } else if entry.contains("//") || entry.contains('@') || entry.starts_with("github.com")
            {
                return Ok(Some(format!("{} names the URL {entry}", file.display())));
            } else {
                bail!("{}: {list}: {} does not exist", file.display(), path.display());
            }
        }
    }
    Ok(None)
}

/// Lets kubectl build the objects.
async fn build(folder: &Path, why: &str) -> anyhow::Result<Vec<(String, String)>> {
    let shown = folder.display();
    let mut command = Command::new("kubectl");
    command.arg("kustomize").arg(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(BUILD, command.output()).await {
        Err(_) => bail!("-k {shown}: `kubectl kustomize` did not end within {} s", BUILD.as_secs()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "-k {shown}: {why}, which needs kubectl, and kubectl is not installed; install it, or run \
             `kustomize build {shown} | atoll convert -f -`"
        ),
        Ok(output) => output.with_context(|| format!("-k {shown}: run kubectl kustomize"))?,
    };
    ensure!(
        output.status.success(),
        "-k {shown}: kubectl kustomize: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    print::note(format!("{shown}: built by kubectl kustomize, because {why}"));
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("-k {shown}: kubectl kustomize"))?;
    Ok(vec![(format!("kubectl kustomize {shown}"), text)])
}
