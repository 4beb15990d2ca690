//! Secrets that the controller may not read. Its ClusterRole excludes them unless an administrator grants them
//! (deploy/controller/secrets.yaml), so that a compromised controller does not expose every Secret of the hub.

use std::collections::BTreeSet;

use atoll_scheduler::detect::Which;

use crate::index::key::{GroupKind, TemplateKey};
use crate::index::rows::Policy;
use crate::index::template::Template;
use crate::index::{Index, Source};

/// Reason of conditions.
pub(crate) const NOT_READABLE: &str = "SecretsNotReadable";
/// Limit of Secrets in a message.
const MOST: usize = 5;
/// How to fix it.
const FIX: &str =
    "grant the right with deploy/controller/secrets.yaml, or remove the selector of Secrets";

fn secrets() -> GroupKind {
    GroupKind { group: String::new(), kind: "Secret".to_owned() }
}

/// Why Secrets cannot be read, if so.
fn unreadable(index: &Index) -> Option<String> {
    index.reading(&Source::Templates(secrets())).unreadable
}

/// What a policy cannot propagate because Secrets cannot be read: the Secrets that its selectors name, those that it
/// propagated before, and those that its claimed workloads need.
#[must_use]
pub(crate) fn of_policy(index: &Index, policy: &Policy, claimed: &[&Template]) -> Option<String> {
    let kind = secrets();
    let selectors: Vec<_> =
        policy.selectors().iter().filter(|s| s.kind.as_ref() == Some(&kind)).collect();
    if selectors.is_empty() {
        return None;
    }
    let why = unreadable(index)?;
    let mut names = BTreeSet::new();
    for selector in &selectors {
        if let Which::Name(name) = &selector.which {
            let namespace = policy.key.namespace.as_ref().or(selector.namespace.as_ref());
            names.insert(full_name(namespace.map(String::as_str), name));
        }
    }
    for binding in index.bindings_of(&policy.key) {
        let template = &binding.template;
        if template.group_kind() == kind {
            names.insert(full_name(template.namespace(), template.name()));
        }
    }
    let needed = claimed.iter().filter_map(|template| index.references(template)).flatten();
    for (needed, _) in needed.filter(|(needed, _)| needed.group_kind() == kind) {
        names.insert(full_name(needed.namespace(), needed.name()));
    }
    Some(message(&names, &why))
}

/// Why the binding of a Secret is not processed.
#[must_use]
pub(crate) fn of_binding(index: &Index, template: &TemplateKey) -> Option<String> {
    if template.group_kind() != secrets() {
        return None;
    }
    let why = unreadable(index)?;
    let name = full_name(template.namespace(), template.name());
    Some(message(&BTreeSet::from([name]), &why))
}

fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

fn message(names: &BTreeSet<String>, why: &str) -> String {
    let shown: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    let more = names.len().saturating_sub(MOST);
    let what = match (shown.as_slice(), more) {
        ([], _) => "no Secret is propagated".to_owned(),
        (shown, 0) => format!("Secret {} is not propagated", shown.join(", ")),
        (shown, more) => format!("Secret {} and {more} more are not propagated", shown.join(", ")),
    };
    format!("{what}: the controller may not read Secrets ({why}); what members hold stays; {FIX}")
}
