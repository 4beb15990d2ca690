//! `ResourceInterpreterWebhookConfiguration`. The servers stay as they are: Atoll calls them with Karmada's messages.

use serde_json::Value;

use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;

/// The version of Karmada's messages, without and with its group.
const VERSION: &str = "v1alpha1";
const KARMADA: &str = "config.karmada.io/v1alpha1";
/// An operation that Atoll asks of customizations only.
const RETAIN: &str = "Retain";
/// Operations that Atoll does not have.
const UNKNOWN: [&str; 2] = ["Prune", "ReviseComponents"];

/// Names the group of Karmada's messages, and reports what Atoll treats differently.
pub(super) fn prepare(draft: &mut Draft) {
    let webhooks = Path::of("webhooks");
    for at in 0..draft.len(&webhooks) {
        let webhook = webhooks.item(at);
        versions(draft, &webhook.field("interpreterContextVersions"));
        client(draft, &webhook.field("clientConfig"));
        let rules = webhook.field("rules");
        for at in 0..draft.len(&rules) {
            operations(draft, &rules.item(at).field("operations"));
        }
    }
}

fn versions(draft: &mut Draft, field: &Path) {
    let Some(Value::Array(mut versions)) = draft.get(field).cloned() else { return };
    let mut changed = false;
    for version in versions.iter_mut().filter(|version| **version == VERSION) {
        *version = KARMADA.into();
        changed = true;
    }
    if changed {
        let note = "the version with its group: the server gets Karmada's messages, as before";
        draft.take(field, Class::Changed, note);
        draft.set(field, versions.into());
    }
}

fn client(draft: &mut Draft, config: &Path) {
    let url = config.field("url");
    if draft.get(&config.field("service")).is_some() {
        draft.take(&url, Class::Changed, "left out: the service takes precedence in Karmada, too");
        let note = "called by its DNS name, which the controller's cluster must resolve; its ClusterIP is not looked up";
        draft.line(&config.field("service"), Class::Changed, note);
    } else if draft.get(&url).and_then(Value::as_str).is_some_and(|url| !url.starts_with("https:"))
    {
        draft.line(&url, Class::NoEquivalent, "refused: a URL must start with https://");
    }
    let bundle = config.field("caBundle");
    if draft.get(&bundle).is_none() {
        let note = "required: the certificate of the authority that issued the server's";
        draft.line(&bundle, Class::NoEquivalent, note);
    }
}

fn operations(draft: &mut Draft, field: &Path) {
    for at in 0..draft.len(field) {
        let item = field.item(at);
        let name = draft.get(&item).and_then(Value::as_str).unwrap_or_default();
        let note = match name {
            RETAIN => "webhooks are not asked: use a ResourceInterpreterCustomization",
            name if UNKNOWN.contains(&name) => "Atoll has no such operation",
            _ => continue,
        };
        draft.line(&item, Class::NoEquivalent, note);
    }
}
