//! OverridePolicies and ClusterOverridePolicies: how a manifest differs from its template on one member. Pure.
//!
//! ClusterOverridePolicies come first, then the OverridePolicies of the object's namespace, which see what the first
//! changed. Within each scope the least specific policy comes first (all objects, then labels, then name), then by
//! name, so that the most specific one wins. One failure fails the object on this member.

mod check;
mod command;
mod containers;
mod field;
mod guard;
mod image;
mod labels;
mod matching;
mod plaintext;
mod pointer;
mod policy;
mod reference;
mod types;
mod value;

use atoll_api::override_policy::OverriderOperator;
use atoll_api::static_assignment;
use serde::Serialize;
use serde_json::Value;

pub use check::{Problem, check, left_out};
pub use guard::Division;
use guard::Guard;
pub use matching::ClusterProperties;
use policy::{Image, Rule};
pub use policy::{Policies, Policy, PolicyError, Scope};
use value::Values;

/// A rule that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Scope of the policy.
    pub scope: Scope,
    /// Name of the policy. An OverridePolicy is in the object's namespace.
    pub policy: String,
    /// Index of the rule in `spec.overrideRules`; 0 for the deprecated `spec.overriders`.
    pub rule: usize,
}

/// A rule that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {}{policy}: {field}: {problem}", scope.kind(), namespace.as_ref().map_or_else(String::new, |n| format!("{n}/")))]
pub struct OverrideError {
    /// Scope of the policy.
    pub scope: Scope,
    /// Namespace of an OverridePolicy.
    pub namespace: Option<String>,
    /// Name of the policy.
    pub policy: String,
    /// Index of the rule, as in [`Applied`].
    pub rule: usize,
    /// Path of the field in the policy.
    pub field: String,
    /// The problem, with the field of the object.
    pub problem: String,
}

/// A problem below a rule: the rest of the field's path, and the text.
type Failure = (String, String);

/// The only OverridePolicy of its namespace that applies to an object, if it is the ResourceQuota of a
/// FederatedResourceQuota: the users of a namespace cannot change what an administrator assigned to it.
pub(crate) fn assigned_by(manifest: &Value) -> Option<String> {
    let metadata = &manifest["metadata"];
    let of = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (group, kind) = match manifest["apiVersion"].as_str() {
        Some("v1") => (String::new(), of(&manifest["kind"])),
        _ => return None,
    };
    let has_label = |label: &str| metadata["labels"].get(label).is_some();
    static_assignment::policy_for((&group, &kind, &of(&metadata["name"])), has_label)
}

/// Changes a manifest for a cluster. Returns it with the applied rules in order. Rules without overriders are applied
/// too.
///
/// # Errors
/// The first rule that cannot be applied.
pub fn apply(
    manifest: Value,
    cluster: &ClusterProperties,
    policies: &Policies,
    division: Division,
) -> Result<(Value, Vec<Applied>), OverrideError> {
    let assigned = assigned_by(&manifest);
    apply_to(manifest, cluster, policies, division, assigned.as_deref())
}

/// As [`apply`], for an object whose only policy is known: its manifest has no marks any more.
pub(crate) fn apply_to(
    mut manifest: Value,
    cluster: &ClusterProperties,
    policies: &Policies,
    division: Division,
    assigned: Option<&str>,
) -> Result<(Value, Vec<Applied>), OverrideError> {
    let mut applied = Vec::new();
    let mut state = None;
    for scope in [Scope::Cluster, Scope::Namespace] {
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespace => match manifest.pointer("/metadata/namespace") {
                Some(Value::String(namespace)) if !namespace.is_empty() => Some(namespace.clone()),
                _ => break,
            },
        };
        for policy in policies.selecting(namespace.as_deref(), &manifest) {
            let applies = match assigned {
                Some(own) => scope == Scope::Cluster || own == policy.name,
                None => !static_assignment::is_policy_name(&policy.name),
            };
            if !applies {
                continue;
            }
            let rules = policy.rules.iter().enumerate();
            for (rule, change) in rules.filter(|(_, rule)| rule.target.selects(cluster)) {
                let state = state.get_or_insert_with(|| State {
                    guard: Guard::new(&manifest, division),
                    values: Values::new(cluster),
                    typed: false,
                });
                state.apply(change, &mut manifest).map_err(|(field, problem)| OverrideError {
                    scope,
                    namespace: policy.namespace.clone(),
                    policy: policy.name.clone(),
                    rule,
                    field: format!("{}.overriders.{field}", change.path),
                    problem,
                })?;
                applied.push(Applied { scope, policy: policy.name.clone(), rule });
            }
        }
    }
    Ok((manifest, applied))
}

/// What all rules for one object share.
struct State<'a> {
    guard: Guard,
    values: Values<'a>,
    /// The manifest has the types of its kind, and nothing that may change them happened since.
    typed: bool,
}

impl State<'_> {
    /// Applies the overriders of a rule in their order.
    fn apply(&mut self, rule: &Rule, manifest: &mut Value) -> Result<(), Failure> {
        for (at, image) in rule.images.iter().enumerate() {
            self.image(image, manifest)
                .map_err(|(field, problem)| (format!("imageOverrider[{at}]{field}"), problem))?;
        }
        for (list, field, changes) in
            [("commandOverrider", "command", &rule.commands), ("argsOverrider", "args", &rule.args)]
        {
            for (at, change) in changes.iter().enumerate() {
                command::apply(manifest, field, change)
                    .map_err(|problem| (format!("{list}[{at}]"), problem))?;
            }
        }
        for (list, field, changes) in [
            ("labelsOverrider", "labels", &rule.labels),
            ("annotationsOverrider", "annotations", &rule.annotations),
        ] {
            for (at, change) in changes.iter().enumerate() {
                labels::apply(manifest, field, change)
                    .map_err(|problem| (format!("{list}[{at}].value"), problem))?;
            }
        }
        for (at, change) in rule.fields.iter().enumerate() {
            let failed = |(field, problem)| (format!("fieldOverrider[{at}]{field}"), problem);
            let below = |problem| failed((".fieldPath".to_owned(), problem));
            let path = change.path.as_ref().map_err(|problem| below(problem.clone()))?;
            field::apply(manifest, path, &change.json, &change.yaml).map_err(failed)?;
            self.guard.check(manifest, path.first()).map_err(below)?;
        }
        for (at, change) in rule.plaintext.iter().enumerate() {
            self.plaintext(change, manifest)
                .map_err(|(field, problem)| (format!("plaintext[{at}]{field}"), problem))?;
        }
        Ok(())
    }

    fn image(&mut self, image: &Image, manifest: &mut Value) -> Result<(), Failure> {
        let at_path = |problem| (".predicate.path".to_owned(), problem);
        let value = match self.values.get(&image.value)? {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => {
                let problem = "the result is not a string".to_owned();
                return Err((".valueFrom.cluster.cel".to_owned(), problem));
            }
        };
        let predicate = image.predicate.as_ref().map(Result::as_ref).transpose();
        let predicate = predicate.map_err(|problem| at_path(problem.clone()))?;
        let change = image::Change {
            predicate,
            scope: image.scope,
            component: image.component,
            operator: image.operator,
            value: &value,
        };
        let Some(path) = predicate else {
            let done = self.require_types(manifest).and_then(|()| change.apply(manifest));
            return done.map_err(|problem| (String::new(), problem));
        };
        change.apply(manifest).map_err(at_path)?;
        self.guard.check(manifest, path.first()).map_err(at_path)
    }

    fn plaintext(
        &mut self,
        change: &policy::Plaintext,
        manifest: &mut Value,
    ) -> Result<(), Failure> {
        let at_path = |problem| (".path".to_owned(), problem);
        let path = change.path.as_ref().map_err(|problem| at_path(problem.clone()))?;
        plaintext::apply(manifest, path, change.operator, || self.values.get(&change.value))?;
        // A removed field has no type.
        let removes = change.operator == OverriderOperator::Remove;
        self.typed = self.typed && (removes || types::fits(manifest, path.parts()));
        self.guard.check(manifest, path.first()).map_err(at_path)
    }

    /// Fails if the manifest does not have the types of its kind.
    fn require_types(&mut self, manifest: &Value) -> Result<(), String> {
        if !self.typed {
            types::check(manifest)?;
            self.typed = true;
        }
        Ok(())
    }
}
