//! Rules of users among the input: ResourceInterpreterCustomizations say what workloads mean, as in a controller.

use std::sync::Arc;

use atoll_api::customization::{Operation, ResourceInterpreterCustomizationSpec};
use atoll_customize::{Customizations, Request, Response};
use atoll_scheduler::offline::{InputError, World};
use serde::Deserialize;
use serde_json::Value;

use super::title;
use crate::print;

/// The rules of the input. Sets what they say about the replicas and components of workloads. Where one fails, the
/// built-in rule answers, as for a new workload in a controller, and the failure is an error.
pub(crate) fn interpret(world: &mut World, errors: &mut Vec<InputError>) -> Customizations {
    let mut specs = Vec::new();
    for object in &world.interpreters {
        let error = |problem: String| InputError { origin: title(object), problem };
        if object["kind"] == "ResourceInterpreterWebhookConfiguration" {
            print::note(format!(
                "warning: {}: webhooks are not called offline; the built-in rules answer",
                title(object)
            ));
            continue;
        }
        match ResourceInterpreterCustomizationSpec::deserialize(&object["spec"]) {
            Err(problem) => errors.push(error(format!("spec: {problem}"))),
            Ok(spec) => match spec.problems().first() {
                Some(problem) => errors.push(error(problem.to_string())),
                None => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    specs.push((name.to_owned(), spec));
                }
            },
        }
    }
    let named = specs.iter().map(|(name, spec)| (name.as_str(), spec));
    let rules = Customizations::new(named);
    for workload in &mut world.workloads {
        let asked = [Operation::InterpretReplica, Operation::InterpretComponent];
        if !asked.into_iter().any(|operation| rules.handles(&workload.object, operation)) {
            continue;
        }
        let object = workload.object.clone();
        let workload = Arc::make_mut(workload);
        for request in [Request::Replicas(object.clone()), Request::Components(object.clone())] {
            let template = &mut workload.template;
            match rules.answer(&request) {
                Some(Ok(Response::Replicas(found))) => {
                    template.replicas = Some(found.replicas);
                    template.requirements = found.requirements.map(Into::into);
                    template.components.clear();
                }
                Some(Ok(Response::Components(found))) if !found.is_empty() => {
                    template.components = found;
                    (template.replicas, template.requirements) = (None, None);
                }
                Some(Ok(_)) | None => {}
                Some(Err(failure)) => errors.push(InputError {
                    origin: title(&workload.object),
                    problem: failure.to_string(),
                }),
            }
        }
    }
    rules
}

/// The object with other replicas, if a rule writes them.
///
/// # Errors
/// The rule failed.
pub(crate) fn revised(
    rules: &Customizations,
    object: &Value,
    replicas: i64,
) -> Result<Option<Value>, String> {
    if !rules.handles(object, Operation::ReviseReplica) {
        return Ok(None);
    }
    let request = Request::Revise { object: Arc::new(object.clone()), replicas };
    match rules.answer(&request) {
        Some(Ok(Response::Object(object))) => Ok(Some(object)),
        Some(Err(failure)) => Err(failure.to_string()),
        Some(Ok(_)) | None => Ok(None),
    }
}
