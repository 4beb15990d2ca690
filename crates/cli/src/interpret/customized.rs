//! Rules of users: the flags `-f`, `--customizations` and `--check`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use atoll_api::customization::{Operation, ResourceInterpreterCustomizationSpec};
use atoll_customize::{Customizations, Request, compile_problems};
use atoll_scheduler::offline::documents;
use serde_json::{Value, json};

use crate::args::Format;
use crate::input;
use crate::print::{self, Printer, Text};

/// Kind of the objects that have the rules.
const KIND: &str = "ResourceInterpreterCustomization";
/// Groups that they are read from: Atoll's, and Karmada's because the format is the same.
const GROUPS: [&str; 2] = ["config.atoll.dev/", "config.karmada.io/"];

/// The rules of files, by the name of their customization.
pub(crate) struct Rules(BTreeMap<String, ResourceInterpreterCustomizationSpec>);

impl Rules {
    /// Reads all customizations of files and folders.
    ///
    /// # Errors
    /// A file cannot be read, or has anything but customizations with names of their own.
    pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut rules = BTreeMap::new();
        for path in paths {
            for (name, text) in input::texts(path)? {
                let (found, broken) = documents::read(&name, &text);
                if let Some(error) = broken.first() {
                    bail!("{error}");
                }
                for document in found {
                    let (name, spec) =
                        customization(&document.object).with_context(|| document.origin.clone())?;
                    ensure!(
                        rules.insert(name.clone(), spec).is_none(),
                        "{}: there are two customizations with the name {name}",
                        document.origin
                    );
                }
            }
        }
        ensure!(!rules.is_empty(), "the files have no {KIND}");
        Ok(Self(rules))
    }

    /// Compiles every rule and prints what is wrong.
    ///
    /// # Errors
    /// A rule is wrong.
    pub(crate) fn check(&self, format: Format, out: &Printer) -> anyhow::Result<()> {
        let mut problems: Vec<[String; 3]> = Vec::new();
        for (name, spec) in &self.0 {
            for problem in spec.problems() {
                problems.push([name.clone(), problem.field, problem.problem]);
            }
            for failure in compile_problems(name, spec) {
                let field = format!("spec.customizations.{}", failure.operation.field());
                problems.push([name.clone(), field, failure.error.to_string()]);
            }
        }
        match format {
            Format::Table if problems.is_empty() => {
                let rules = self.0.values().flat_map(|spec| {
                    Operation::ALL.into_iter().filter_map(|op| spec.customizations.rule(op))
                });
                let rules = print::counted(rules.count(), "rule", "rules");
                out.line(format!("No problems found in {rules}."))?;
            }
            Format::Table => {
                let rows = problems.iter().map(|row| row.iter().map(Text::from).collect());
                out.table_keeping(2, &["CUSTOMIZATION", "FIELD", "PROBLEM"], rows.collect())?;
            }
            format => {
                let problems: Vec<Value> = problems
                    .iter()
                    .map(|[name, field, problem]| {
                        json!({ "customization": name, "field": field, "problem": problem })
                    })
                    .collect();
                out.object(format, &json!({ "problems": problems }))?;
            }
        }
        let found = print::counted(problems.len(), "problem", "problems");
        ensure!(problems.is_empty(), "{found} found");
        Ok(())
    }

    /// The answer to a recorded case, which names its customizations.
    ///
    /// # Errors
    /// The case is malformed, no rule fits it, or the rule fails.
    pub(crate) fn answer_case(&self, input: &Value) -> anyhow::Result<Value> {
        let Some(names) = input["customizations"].as_array() else {
            bail!("customizations must be a list of names");
        };
        let named = names.iter().map(|name| {
            let name = name.as_str().unwrap_or_default();
            let (name, spec) = self.0.get_key_value(name).with_context(|| {
                format!("there is no customization {name:?} in the file of --customizations")
            })?;
            Ok((name.as_str(), spec))
        });
        let named: Vec<_> = named.collect::<anyhow::Result<_>>()?;
        answer(&Customizations::new(named), input)
    }

    /// The answer of all rules to an operation, whose input has the form of the built-in ones.
    ///
    /// # Errors
    /// No rule fits the object, or the rule fails.
    pub(crate) fn answer(&self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        let object = ["object", "desired", "template"].map(|field| &input[field]);
        let object = object.into_iter().find(|object| object.is_object());
        let function = match operation {
            "retain" => "Retain",
            "aggregate" => "AggregateStatus",
            "reflect" => "ReflectStatus",
            "health" => "InterpretHealth",
            "dependencies" => "GetDependencies",
            "components" => "GetComponents",
            "replicas" => input["operation"].as_str().unwrap_or("GetReplicas"),
            other => bail!("customizations have no rules for operation {other}"),
        };
        let mut input = input.clone();
        input["object"] = object.cloned().unwrap_or_default();
        input["operation"] = json!(function);
        let all = self.0.iter().map(|(name, spec)| (name.as_str(), spec));
        answer(&Customizations::new(all), &input)
    }
}

fn customization(object: &Value) -> anyhow::Result<(String, ResourceInterpreterCustomizationSpec)> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    ensure!(
        text("kind") == KIND && GROUPS.iter().any(|group| text("apiVersion").starts_with(group)),
        "{} of {} is no {KIND} of config.atoll.dev",
        text("kind"),
        text("apiVersion")
    );
    let Some(name) = object["metadata"]["name"].as_str().filter(|name| !name.is_empty()) else {
        bail!("metadata.name is required");
    };
    let spec = serde_json::from_value(object["spec"].clone())
        .with_context(|| format!("{name}: spec is malformed"))?;
    Ok((name.to_owned(), spec))
}

fn answer(rules: &Customizations, input: &Value) -> anyhow::Result<Value> {
    let request = Request::from_json(input).map_err(anyhow::Error::msg)?;
    match rules.answer(&request) {
        Some(Ok(response)) => Ok(response.to_json()),
        Some(Err(failure)) => Err(failure.into()),
        None => {
            let object = request.object();
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            bail!(
                "no customization has {} for {} of {}",
                request.operation().field(),
                text("kind"),
                text("apiVersion")
            )
        }
    }
}
