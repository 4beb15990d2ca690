//! Objects from files, folders and stdin, for verbs that work without a hub.

mod locate;
#[cfg(test)]
mod properties;
mod strict;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atoll_scheduler::offline::{Document, InputError, World, documents};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::args::ReservedFlag;
use crate::print;
use locate::Places;
pub(crate) use strict::Schemas;

/// Suffixes of the files read from a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The flag `-f`.
#[derive(Debug, Args)]
pub(crate) struct FilesFlag {
    /// Objects as YAML or JSON: a file, a folder (its .yaml, .yml and .json files), or - for stdin; may be repeated, or
    /// several with commas between them.
    /// Clusters with their status, PropagationPolicies and ClusterPropagationPolicies, WorkloadPolicies,
    /// WorkloadSpreads, override policies, bindings, and workloads of any kind; Karmada's API groups are taken for Atoll's
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", value_delimiter = ',')]
    pub(crate) files: Vec<PathBuf>,
}

/// What happens with fields and kinds that are not understood, as `kubectl apply --validate` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Validation {
    /// They are errors
    #[default]
    #[value(alias = "true")]
    Strict,
    /// They are warnings, and are ignored
    Warn,
    /// They are ignored
    #[value(alias = "false")]
    Ignore,
}

/// The flag `--validate`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ValidateFlag {
    /// What to do with fields and kinds that are not understood
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_value = "strict",
        default_missing_value = "strict"
    )]
    pub(crate) validate: Validation,
}

/// Reads everything that the flag names. Unusable documents are listed; the rest is kept.
///
/// # Errors
/// When a file cannot be opened, or contains no object, or a reserved namespace is no pattern.
pub(crate) fn read(
    paths: &[PathBuf],
    validation: Validation,
    reserved: &ReservedFlag,
) -> anyhow::Result<(World, Vec<InputError>)> {
    let mut world = World::new(reserved.namespaces()?);
    let schemas = Schemas::load()?;
    let (mut errors, mut objects) = (Vec::new(), 0);
    for path in paths {
        for (name, text) in texts(path)? {
            objects += add(&mut world, &schemas, validation, (&name, &text), &mut errors);
        }
    }
    if objects == 0 && errors.is_empty() {
        let names: Vec<_> = paths.iter().map(|path| format!("-f {}", path.display())).collect();
        anyhow::bail!(
            "no objects in {}: give YAML or JSON with apiVersion, kind and metadata",
            names.join(", ")
        );
    }
    Ok((world, errors))
}

/// Adds the objects of one text, and what is wrong with it to `errors`. Returns the number of its objects.
fn add(
    world: &mut World,
    schemas: &Schemas,
    validation: Validation,
    (name, text): (&str, &str),
    errors: &mut Vec<InputError>,
) -> usize {
    let (found, broken) = documents::read(name, text);
    let objects = found.len();
    errors.extend(broken);
    let mut wrong = Vec::new();
    for document in found {
        let (place, object) = (Place::of(name, &document), title(&document.object));
        let problems = match validation {
            Validation::Ignore => Vec::new(),
            Validation::Strict | Validation::Warn => schemas.problems(&document.object),
        };
        let unusable = validation == Validation::Strict && !problems.is_empty();
        if !unusable && let Err(error) = world.add(document) {
            wrong.push(Wrong { place: place.clone(), schema: None, text: error.problem });
        }
        wrong.extend(problems.into_iter().map(|problem| Wrong {
            place: place.clone(),
            text: format!("{object}: {}: {}", problem.path, problem.text),
            schema: Some(problem.path),
        }));
    }
    errors.extend(located(name, text, wrong, validation));
    objects
}

/// Position of a document in its text: its number, and the path to it if it is an item of a list.
#[derive(Debug, Clone)]
struct Place {
    document: usize,
    path: String,
}

impl Place {
    /// Parses the document's origin, `app.yaml#2.items[1]`.
    fn of(name: &str, document: &Document) -> Self {
        let rest = document.origin.strip_prefix(name).and_then(|rest| rest.strip_prefix('#'));
        let rest = rest.unwrap_or("1");
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..end].parse::<usize>().unwrap_or(1);
        Self { document: number.saturating_sub(1), path: rest[end..].to_owned() }
    }
}

/// A problem with a document.
struct Wrong {
    place: Place,
    /// The field, if the kind's schema does not allow it.
    schema: Option<String>,
    text: String,
}

/// Errors with file, line and column: `app.yaml:12:5: Deployment shop/web: spec.replica: unknown field`. With
/// `--validate=warn`, schema errors are printed as warnings instead.
fn located(name: &str, text: &str, wrong: Vec<Wrong>, validation: Validation) -> Vec<InputError> {
    if wrong.is_empty() {
        return Vec::new();
    }
    let places = Places::read(text);
    let mut errors = Vec::new();
    for Wrong { place, schema, text } in wrong {
        let field = schema.as_ref().map_or_else(String::new, |field| format!(".{field}"));
        let path = format!("{}{field}", place.path);
        let origin = match places.find(place.document, &path) {
            Some(at) => format!("{name}:{}:{}", at.line, at.column),
            None => format!("{name}#{}{path}", place.document + 1),
        };
        let error = InputError { origin, problem: text };
        match schema.is_some() && validation == Validation::Warn {
            true => print::note(format!("warning: {error}")),
            false => errors.push(error),
        }
    }
    errors
}

/// `Deployment shop/web`.
pub(crate) fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) =
        (text("/kind").unwrap_or("object"), text("/metadata/name").unwrap_or("without a name"));
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// The texts of a file, of a folder's files, or of stdin, with their names.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn texts(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
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
    // File systems list folders in any order; decisions depend on the order of the input.
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
