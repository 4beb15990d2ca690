//! The rules for kinds that Karmada has (ResourceInterpreterCustomizations), run here: Atoll will read objects by them.

use std::sync::Arc;

use atoll_api::customization::{Operation, ResourceInterpreterCustomizationSpec};
use atoll_customize::{Customizations, Request, Response};
use atoll_migrate::check::{Finding, Severity};
use atoll_migrate::estate::ObjectRef;
use atoll_migrate::meaning::{BuiltIn, Meaning};
use serde::Deserialize;
use serde_json::Value;

use crate::input::customized;

/// The rules that move.
pub(super) struct Rules {
    customizations: Customizations,
    /// Customizations that Atoll would not accept.
    pub(super) problems: Vec<Finding>,
}

impl Rules {
    /// Those among the prepared objects.
    pub(super) fn of(prepared: &[Value]) -> Self {
        let (mut specs, mut problems) = (Vec::new(), Vec::new());
        let customizations =
            prepared.iter().filter(|one| one["kind"] == "ResourceInterpreterCustomization");
        for object in customizations {
            let Some(of) = ObjectRef::of(object) else { continue };
            let spec = ResourceInterpreterCustomizationSpec::deserialize(&object["spec"]);
            let problem = match &spec {
                Ok(spec) => spec.problems().first().map(ToString::to_string),
                Err(error) => Some(format!("spec: {error}")),
            };
            match (spec, problem) {
                (Ok(spec), None) => specs.push((of.name, spec)),
                (_, problem) => problems.push(Finding {
                    severity: Severity::Blocks,
                    object: of.to_string(),
                    problem: problem.unwrap_or_default(),
                }),
            }
        }
        let named = specs.iter().map(|(name, spec)| (name.as_str(), spec));
        Self { customizations: Customizations::new(named), problems }
    }
}

impl Meaning for Rules {
    fn replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        if !self.customizations.handles(object, Operation::InterpretReplica) {
            return BuiltIn.replicas(object);
        }
        match self.customizations.answer(&Request::Replicas(Arc::new(object.clone()))) {
            Some(Ok(Response::Replicas(found))) => Ok(Some(found.replicas)),
            Some(Err(failure)) => Err(failure.to_string()),
            Some(Ok(_)) | None => BuiltIn.replicas(object),
        }
    }

    fn revised(&self, object: &Value, replicas: i64) -> Result<Option<Value>, String> {
        customized::revised(&self.customizations, object, replicas)
    }
}
