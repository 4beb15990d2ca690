//! Objects from files, folders and stdin, for verbs that work without a hub. Objects of other federations (Karmada,
//! Kosmos, OpenKruise's WorkloadSpread) are converted.

pub(crate) mod customized;
mod locate;
#[cfg(test)]
mod properties;
mod strict;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atoll_convert::{Converter, Fault, Line, Options, Purpose, Report};
use atoll_scheduler::offline::{Document, InputError, World, documents};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::args::ReservedFlag;
use crate::print;
use locate::Places;
pub(crate) use strict::Schemas;

/// Name of the text of `-f -`.
const STDIN: &str = "stdin";
/// Suffixes of the files read from a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The flag `-f`.
#[derive(Debug, Args)]
pub(crate) struct FilesFlag {
    /// Objects as YAML or JSON: a file, a folder (its .yaml, .yml and .json files), or - for stdin; may be repeated, or
    /// several with commas between them.
    /// Clusters with their status, PropagationPolicies and ClusterPropagationPolicies, WorkloadPolicies,
    /// WorkloadSpreads, override policies, ResourceInterpreterCustomizations, bindings, and workloads of any kind; objects of Karmada's API groups are converted as by
    /// `atoll convert`, with warnings where they change
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
    let errors = read_each(paths, validation, &mut |document| world.add(document))?;
    Ok((world, errors))
}

/// Passes every object that the flag names to `take`, checked and converted. Returns what is unusable.
///
/// # Errors
/// When a file cannot be opened, or contains no object.
pub(crate) fn read_each(
    paths: &[PathBuf],
    validation: Validation,
    take: Take<'_>,
) -> anyhow::Result<Vec<InputError>> {
    read_texts(all_texts(paths)?, validation, take)
}

/// As [`read_each`], for texts with their names.
///
/// # Errors
/// When there is no object in them.
pub(crate) fn read_texts(
    texts: Vec<(String, String)>,
    validation: Validation,
    take: Take<'_>,
) -> anyhow::Result<Vec<InputError>> {
    let mut reader = Reader::load(validation)?;
    let mut objects = 0;
    for (name, text) in &texts {
        objects += reader.add(take, name, text);
    }
    for group in reader.report.groups() {
        print::note(format!("warning: {}", crate::convert::sentence(&group)));
    }
    let errors = reader.errors;
    if objects == 0 && errors.is_empty() {
        let flag = |(name, _): &(String, String)| match name.as_str() {
            STDIN => "-f -".to_owned(),
            name => format!("-f {name}"),
        };
        let names: Vec<_> = texts.iter().map(flag).collect();
        anyhow::bail!(
            "no objects in {}: give YAML or JSON with apiVersion, kind and metadata",
            names.join(", ")
        );
    }
    Ok(errors)
}

/// What receives the objects; it may refuse one.
pub(crate) type Take<'a> = &'a mut dyn FnMut(Document) -> Result<(), InputError>;

/// Reads objects from texts.
struct Reader {
    schemas: Schemas,
    converter: Converter,
    validation: Validation,
    errors: Vec<InputError>,
    /// What the conversion of other federations' objects changed.
    report: Report,
}

impl Reader {
    fn load(validation: Validation) -> anyhow::Result<Self> {
        let converter = Converter::new(Options::new(Purpose::Offline))
            .context("read the schemas of Atoll's kinds")?;
        let (errors, report) = (Vec::new(), Report::default());
        Ok(Self { schemas: Schemas::load()?, converter, validation, errors, report })
    }

    /// Adds the objects of one text. Returns their number.
    fn add(&mut self, take: Take<'_>, name: &str, text: &str) -> usize {
        let (found, broken) = documents::read(name, text);
        let objects = found.len();
        self.errors.extend(broken);
        let mut wrong = Vec::new();
        for document in found {
            self.add_document(take, name, document, &mut wrong);
        }
        self.errors.extend(located(name, text, wrong, self.validation));
        objects
    }

    fn add_document(
        &mut self,
        take: Take<'_>,
        name: &str,
        document: Document,
        wrong: &mut Vec<Wrong>,
    ) {
        let (place, title) = (Place::of(name, &document), title(&document.object));
        let Document { origin, object } = document;
        let converted = self.converter.convert(object);
        let mut problems = self.unknown_fields(converted.lines);
        let Some(object) = converted.object else { return };
        if self.validation != Validation::Ignore {
            let found = self.schemas.problems(&object);
            problems.extend(found.into_iter().map(|problem| (problem.path, problem.text)));
        }
        let unusable = self.validation == Validation::Strict && !problems.is_empty();
        if !unusable && let Err(error) = take(Document { origin, object }) {
            wrong.push(Wrong { place: place.clone(), schema: None, text: error.problem });
        }
        wrong.extend(problems.into_iter().map(|(path, text)| Wrong {
            place: place.clone(),
            text: format!("{title}: {path}: {text}"),
            schema: Some(path),
        }));
    }

    /// Keeps the lines for the report. Fields that no federation knows are mistakes like those in Atoll's own objects:
    /// returns their paths and texts. Values of the wrong type are found again in the converted object.
    fn unknown_fields(&mut self, lines: Vec<Line>) -> Vec<(String, String)> {
        let mut unknown = Vec::new();
        for line in lines {
            match line.fault {
                Some(Fault::UnknownField) if self.validation == Validation::Ignore => {}
                Some(Fault::UnknownField) => unknown.push((line.field, line.note)),
                Some(Fault::BadValue) => {}
                None => self.report.lines.push(line),
            }
        }
        unknown
    }
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

/// The texts that the paths name, each with the name of its file.
///
/// # Errors
/// When a file cannot be read, or a folder has none.
pub(crate) fn all_texts(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(texts(path)?);
    }
    Ok(all)
}

/// The files as given, and in place of each folder all folders in it that have files.
///
/// # Errors
/// When a folder cannot be read, or has no file.
pub(crate) fn folders(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" || !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let (mut found, mut open) = (Vec::new(), vec![path.clone()]);
        while let Some(folder) = open.pop() {
            let named = || format!("-f {}", folder.display());
            let mut has_files = false;
            for entry in std::fs::read_dir(&folder).with_context(named)? {
                let entry = entry.with_context(named)?;
                // A link could lead back to a folder above it.
                if entry.file_type().with_context(named)?.is_dir() {
                    open.push(entry.path());
                }
                has_files |= is_input(&entry.path());
            }
            if has_files {
                found.push(folder);
            }
        }
        let named = path.display();
        anyhow::ensure!(!found.is_empty(), "-f {named}: no .yaml, .yml or .json file below it");
        found.sort();
        all.extend(found);
    }
    Ok(all)
}

/// Whether a folder's file is read.
fn is_input(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&ending)) && file.is_file()
}

/// The texts of a file, of a folder's files, or of stdin, with their names.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn texts(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("-f -: read stdin")?;
        return Ok(vec![(STDIN.to_owned(), text)]);
    }
    let named = |path: &Path| format!("-f {}", path.display());
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).with_context(|| named(path))?;
        return Ok(vec![(path.display().to_string(), text)]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| named(path))? {
        let file = entry.with_context(|| named(path))?.path();
        if is_input(&file) {
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
