//! Objects from files, folders and stdin, for the verbs that need no hub.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atoll_scheduler::offline::{InputError, World, documents};
use clap::Args;

/// Names that a folder's files must end with.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The flag `-f`.
#[derive(Debug, Args)]
pub(crate) struct FilesFlag {
    /// Objects as YAML or JSON: a file, a folder (its .yaml, .yml and .json files), or - for stdin; may be repeated, or
    /// several with commas between them.
    /// Clusters with their status, PropagationPolicies and ClusterPropagationPolicies, WorkloadPolicies,
    /// WorkloadSpreads, bindings, and workloads of any kind; Karmada's API groups are taken for Atoll's
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", value_delimiter = ',')]
    pub(crate) files: Vec<PathBuf>,
}

/// Reads everything that the flag names. What cannot be used is listed and the rest kept.
///
/// # Errors
/// When a file cannot be opened.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<(World, Vec<InputError>)> {
    let mut world = World::default();
    let mut errors = Vec::new();
    for path in paths {
        for (name, text) in texts(path)? {
            let (found, broken) = documents::read(&name, &text);
            errors.extend(broken);
            errors.extend(found.into_iter().filter_map(|document| world.add(document).err()));
        }
    }
    Ok((world, errors))
}

fn texts(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("-f -: read stdin")?;
        return Ok(vec![("stdin".to_owned(), text)]);
    }
    let named = |path: &Path| format!("-f {}", path.display());
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).with_context(|| named(path))?;
        return Ok(vec![(path.display().to_string(), text)]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| named(path))? {
        let file = entry.with_context(|| named(path))?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) && file.is_file() {
            files.push(file);
        }
    }
    // The order of a folder is the file system's whim; decisions follow the order of the input.
    files.sort();
    anyhow::ensure!(!files.is_empty(), "{}: no .yaml, .yml or .json file in it", named(path));
    files
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).with_context(|| named(&file))?;
            Ok((file.display().to_string(), text))
        })
        .collect()
}
