//! The webhooks of all configurations: whom to ask about an operation of a kind.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use atoll_api::customization::Operation;
use atoll_api::interpreter_webhook::{InterpreterWebhook, WebhookConfigurationStatus};
use rustc_hash::FxHasher;
use serde_json::Value;

use super::key::{Kind, kind_of};

/// A webhook of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// Name of the configuration.
    pub configuration: Arc<str>,
    /// SHA-256 of the webhook as JSON, in hex.
    pub hash: Arc<str>,
    /// The webhook.
    pub webhook: InterpreterWebhook,
}

/// A configuration of webhooks.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookConfiguration {
    /// uid.
    pub uid: String,
    /// Generation of the webhooks.
    pub generation: Option<i64>,
    /// The webhooks, in order.
    pub hooks: Vec<Arc<Hook>>,
    /// As last written by a leader.
    pub status: WebhookConfigurationStatus,
}

/// The webhooks of all configurations: by name of the configuration, then in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Webhooks(Vec<Arc<Hook>>);

impl Webhooks {
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a Arc<WebhookConfiguration>>) -> Self {
        Self(rows.flat_map(|row| row.hooks.iter().cloned()).collect())
    }

    /// All webhooks.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.0.iter()
    }

    /// The webhook that is asked about an operation of the object's kind: the first with a rule for it.
    #[must_use]
    pub fn asked(&self, object: &Value, operation: Operation) -> Option<&Arc<Hook>> {
        self.asked_about(kind_of(object), operation)
    }

    /// The same by API version and kind.
    #[must_use]
    pub fn asked_about(
        &self,
        (api_version, kind): Kind<'_>,
        operation: Operation,
    ) -> Option<&Arc<Hook>> {
        self.0.iter().find(|hook| hook.webhook.is_asked(api_version, kind, operation))
    }

    /// Whether any of them is asked about objects of a kind.
    #[must_use]
    pub fn concern(&self, api_version: &str, kind: &str) -> bool {
        let asks = |hook: &Hook| {
            Operation::ALL
                .iter()
                .any(|operation| hook.webhook.is_asked(api_version, kind, *operation))
        };
        self.0.iter().any(|hook| asks(hook))
    }

    /// A hash of the webhooks that are asked about these operations of a kind, and of `before`.
    #[must_use]
    pub(super) fn hash(
        &self,
        before: Option<u64>,
        kind: Kind<'_>,
        operations: &[Operation],
    ) -> Option<u64> {
        let asked = |operation: &Operation| self.asked_about(kind, *operation);
        operations.iter().filter_map(asked).fold(before, |before, hook| {
            let mut hasher = FxHasher::default();
            (before, &hook.configuration, &hook.hash).hash(&mut hasher);
            Some(hasher.finish())
        })
    }

    /// API versions and kinds whose health or status webhooks read: agents report their statuses as they are.
    #[must_use]
    pub fn read_kinds(&self) -> BTreeSet<(String, String)> {
        let reading = [Operation::InterpretHealth, Operation::InterpretStatus];
        let mut kinds = BTreeSet::new();
        for hook in &self.0 {
            let rules = hook.webhook.rules.iter();
            let rules = rules.filter(|rule| reading.iter().any(|operation| rule.names(*operation)));
            for kind in rules.filter_map(|rule| rule.exact_kinds()).flatten() {
                if reading.iter().any(|op| hook.webhook.is_asked(&kind.0, &kind.1, *op)) {
                    kinds.insert(kind);
                }
            }
        }
        kinds
    }
}
