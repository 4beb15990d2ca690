//! What the rules of users say about a template, for its decision.

use atoll_api::customization::Operation;
use atoll_customize::{Dependency, Failure, Request, Response, RuleError};
use serde_json::Value;

use super::{Interpreter, RuleFailed, RuleNews};
use crate::index::rules::{Meaning, RuleSource, Rules};
use crate::index::template::Template;

/// The answers of all rules for a template.
#[derive(Debug)]
pub(crate) struct Interpreted {
    /// `None`: too many rules wait, so it has to be asked again.
    pub(crate) meaning: Option<Meaning>,
    /// What is to be shown of the rules.
    pub(crate) news: Vec<RuleNews>,
    /// A webhook did not answer: it has to be asked again later.
    pub(crate) unreachable: bool,
}

impl Interpreter {
    /// Asks the rules that must answer before a template is decided on.
    pub(crate) async fn interpret(&self, rules: &Rules, template: &Template) -> Interpreted {
        let object = template.object();
        let hash = rules.deciding(template.kind());
        let replicas = self.ask(rules, Request::Replicas(object.clone())).await;
        let components = self.ask(rules, Request::Components(object.clone())).await;
        let dependencies = self.ask(rules, Request::Dependencies(object.clone())).await;
        let all = [&replicas, &components, &dependencies];
        let is_busy = all.iter().any(|answer| answer.is_busy);
        let unreachable = all.iter().any(|answer| answer.unreachable);
        let mut news = replicas.news;
        news.extend(components.news);
        news.extend(dependencies.news);
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
                    news.extend(self.unusable(rules, &object, why));
                    None
                }
            },
            _ => None,
        };
        let content = template.content();
        let meaning = Meaning { content, rules: hash, replicas, components, dependencies };
        Interpreted { meaning: (!is_busy).then_some(meaning), news, unreachable }
    }

    /// The failure of dependencies that cannot be followed.
    fn unusable(&self, rules: &Rules, object: &Value, why: String) -> Option<RuleNews> {
        let operation = Operation::InterpretDependency;
        let error = RuleError::Result(why);
        if let Some(customization) = rules.compiled().answering(object, operation) {
            let failure = Failure { customization: customization.to_owned(), operation, error };
            return self.failed(rules, &object["metadata"], failure);
        }
        let hook = rules.webhooks().asked(object, operation)?;
        Some(RuleNews::Failed(RuleFailed {
            source: RuleSource::from(&**hook),
            hash: hook.hash.clone(),
            unreachable: false,
            failure: self.failure(&object["metadata"], operation, error.to_string()),
        }))
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
