//! What the rules of users say about a template, for its decision.

use atoll_api::customization::Operation;
use atoll_customize::{Dependency, Failure, Request, Response, RuleError};
use serde_json::Value;

use super::{Interpreter, RuleFailed};
use crate::index::rows::Template;
use crate::index::rules::Meaning;
use crate::index::rules::Rules;

/// The answers of all rules for a template.
#[derive(Debug)]
pub(crate) struct Interpreted {
    /// `None`: too many rules wait, so it has to be asked again.
    pub(crate) meaning: Option<Meaning>,
    /// Rules that failed.
    pub(crate) failed: Vec<RuleFailed>,
}

impl Interpreter {
    /// Asks the rules that must answer before a template is decided on.
    pub(crate) async fn interpret(&self, rules: &Rules, template: &Template) -> Interpreted {
        let object = template.object();
        let hash = rules.deciding(&object).unwrap_or_default();
        let mut failed = Vec::new();
        let replicas = self.ask(rules, Request::Replicas(object.clone())).await;
        let components = self.ask(rules, Request::Components(object.clone())).await;
        let dependencies = self.ask(rules, Request::Dependencies(object.clone())).await;
        let is_busy = replicas.is_busy || components.is_busy || dependencies.is_busy;
        failed.extend(replicas.failed);
        failed.extend(components.failed);
        failed.extend(dependencies.failed);
        let replicas = match replicas.response {
            Some(Response::Replicas(replicas)) => Some(replicas),
            _ => None,
        };
        let components = match components.response {
            Some(Response::Components(components)) => Some(components),
            _ => None,
        };
        let dependencies = match dependencies.response {
            Some(Response::Dependencies(found)) => match check(&object, &found) {
                Ok(()) => Some(found),
                Err(why) => {
                    failed.extend(self.unusable(rules, &object, why));
                    None
                }
            },
            _ => None,
        };
        let meaning = Meaning {
            content: template.content(),
            rules: hash,
            replicas,
            components,
            dependencies,
        };
        Interpreted { meaning: (!is_busy).then_some(meaning), failed }
    }

    /// The failure of dependencies that cannot be followed.
    fn unusable(&self, rules: &Rules, object: &Value, why: String) -> Option<RuleFailed> {
        let operation = Operation::InterpretDependency;
        let customization = rules.compiled().answering(object, operation)?.to_owned();
        let failure = Failure { customization, operation, error: RuleError::Result(why) };
        self.failed(rules, &object["metadata"], failure)
    }
}

/// Whether the references can be followed. Whoever may write the object must not be able to send objects of other
/// namespaces to members.
fn check(object: &Value, found: &[Dependency]) -> Result<(), String> {
    let home = object["metadata"]["namespace"].as_str();
    for (at, reference) in found.iter().enumerate() {
        let Dependency { kind, namespace, name, label_selector, .. } = reference;
        if name.is_none() || label_selector.is_some() {
            return Err(format!(
                "[{at}] of kind {kind} has no name: labelSelector is not supported here"
            ));
        }
        if home.is_some() && namespace.as_deref() != home {
            let namespace = namespace.as_deref().unwrap_or("none");
            return Err(format!(
                "[{at}] of kind {kind} is in namespace {namespace:?}: an object can depend only on objects of its own \
                 namespace"
            ));
        }
    }
    Ok(())
}
