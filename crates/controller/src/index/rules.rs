//! The rules of users, and their answers: the table behind `customizations` and `meanings`.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use atoll_api::binding::Component;
use atoll_api::customization::{
    Operation, ResourceInterpreterCustomizationSpec, ResourceInterpreterCustomizationStatus,
};
use atoll_customize::{Customizations, Dependency, Replicas};
use rustc_hash::FxHasher;

use super::key::{Kind, TemplateKey};
use super::template::Content;
use super::webhooks::{Hook, WebhookConfiguration, Webhooks};

/// Operations whose answers the tables need before a template is decided on.
pub(crate) const DECIDING: [Operation; 3] =
    [Operation::InterpretReplica, Operation::InterpretComponent, Operation::InterpretDependency];

/// What users' rules say about a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    /// Content of the template that they were asked about.
    pub content: Content,
    /// Hash of the rules; `None` if they have to be asked again.
    pub rules: Option<u64>,
    /// Its replicas; `None` without a rule, or if it failed.
    pub replicas: Option<Replicas>,
    /// Its components; `None` without a rule, or if it failed.
    pub components: Option<Vec<Component>>,
    /// The objects that it refers to; `None` without a rule, or if it failed.
    pub dependencies: Option<Vec<Dependency>>,
}

/// A customization.
#[derive(Debug, Clone, PartialEq)]
pub struct Customization {
    /// uid.
    pub uid: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Its rules.
    pub spec: Arc<ResourceInterpreterCustomizationSpec>,
    /// SHA-256 of the spec, in hex. The same for all controllers, so agents can compare it.
    pub hash: Arc<str>,
    /// As last written by a leader.
    pub status: ResourceInterpreterCustomizationStatus,
}

/// What has a rule for an operation of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleSource {
    /// A customization, by name.
    Customization(String),
    /// A webhook: names of its configuration and its own.
    Webhook(String, String),
}

impl From<&Hook> for RuleSource {
    fn from(hook: &Hook) -> Self {
        Self::Webhook(hook.configuration.to_string(), hook.webhook.name.clone())
    }
}

/// All customizations and webhooks in force. Immutable: a change makes a new one.
#[derive(Debug, Default)]
pub struct Rules {
    specs: BTreeMap<String, (Arc<ResourceInterpreterCustomizationSpec>, Arc<str>)>,
    compiled: Arc<Customizations>,
    /// By API version and kind: hashes of the rules whose answers are kept.
    kinds: BTreeMap<(String, String), KindHashes>,
    webhooks: Webhooks,
}

/// Hashes of the rules of one kind; `None` without a rule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct KindHashes {
    deciding: Option<u64>,
    revising: Option<u64>,
}

impl Rules {
    pub(super) fn of(
        rows: &BTreeMap<String, Arc<Customization>>,
        webhooks: &BTreeMap<String, Arc<WebhookConfiguration>>,
    ) -> Self {
        let specs: BTreeMap<_, _> = rows
            .iter()
            .map(|(name, row)| (name.clone(), (row.spec.clone(), row.hash.clone())))
            .collect();
        let named = specs.iter().map(|(name, (spec, _))| (name.as_str(), spec.clone()));
        let compiled = Arc::new(Customizations::of(named));
        let mut kinds: BTreeMap<_, KindHashes> = BTreeMap::new();
        for (name, (spec, hash)) in &specs {
            let target = (spec.target.api_version.clone(), spec.target.kind.clone());
            let hashes = kinds.entry(target).or_default();
            if DECIDING.iter().any(|operation| spec.customizations.rule(*operation).is_some()) {
                hashes.deciding = Some(mix(hashes.deciding, name, hash));
            }
            if spec.customizations.rule(Operation::ReviseReplica).is_some() {
                hashes.revising = Some(mix(hashes.revising, name, hash));
            }
        }
        Self { specs, compiled, kinds, webhooks: Webhooks::of(webhooks.values()) }
    }

    /// The same customizations, as compiled, with other webhooks.
    pub(super) fn with_webhooks(
        &self,
        webhooks: &BTreeMap<String, Arc<WebhookConfiguration>>,
    ) -> Self {
        Self {
            specs: self.specs.clone(),
            compiled: self.compiled.clone(),
            kinds: self.kinds.clone(),
            webhooks: Webhooks::of(webhooks.values()),
        }
    }

    /// Names, specs and hashes of the specs, in order of names.
    pub fn specs(
        &self,
    ) -> impl Iterator<Item = (&str, &Arc<ResourceInterpreterCustomizationSpec>, &Arc<str>)> {
        self.specs.iter().map(|(name, (spec, hash))| (name.as_str(), spec, hash))
    }

    /// Hash of a customization's spec.
    #[must_use]
    pub fn hash(&self, name: &str) -> Option<&Arc<str>> {
        self.specs.get(name).map(|(_, hash)| hash)
    }

    /// Hash of a customization's spec, or of a webhook.
    #[must_use]
    pub fn hash_of(&self, source: &RuleSource) -> Option<&Arc<str>> {
        match source {
            RuleSource::Customization(name) => self.hash(name),
            RuleSource::Webhook(configuration, name) => {
                let mut hooks = self.webhooks.all();
                let hook = hooks.find(|hook| {
                    *hook.configuration == **configuration && hook.webhook.name == *name
                });
                hook.map(|hook| &hook.hash)
            }
        }
    }

    /// Whether a customization or a webhook has a rule for this operation of a kind.
    #[must_use]
    pub fn handles(&self, (api_version, kind): Kind<'_>, operation: Operation) -> bool {
        self.compiled.handles_kind(api_version, kind, operation)
            || self.webhooks.asked_about((api_version, kind), operation).is_some()
    }

    /// The webhooks.
    #[must_use]
    pub fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    /// Hash of the rules that must answer before a template of this kind is decided on; `None` without one.
    #[must_use]
    pub fn deciding(&self, kind: Kind<'_>) -> Option<u64> {
        self.webhooks.hash(self.of_kind(kind).deciding, kind, &DECIDING)
    }

    /// Hash of the rules that write replicas into objects of this kind; `None` without one.
    #[must_use]
    pub fn revising(&self, kind: Kind<'_>) -> Option<u64> {
        self.webhooks.hash(self.of_kind(kind).revising, kind, &[Operation::ReviseReplica])
    }

    fn of_kind(&self, (api_version, kind): Kind<'_>) -> KindHashes {
        if self.kinds.is_empty() {
            return KindHashes::default();
        }
        self.kinds.get(&(api_version.to_owned(), kind.to_owned())).copied().unwrap_or_default()
    }

    /// The rules, for a [`atoll_customize::Pool`].
    #[must_use]
    pub fn compiled(&self) -> &Arc<Customizations> {
        &self.compiled
    }
}

/// The customizations and webhooks. `rules` is a function of `rows` and `webhooks`.
#[derive(Debug, Clone, Default)]
pub(super) struct CustomizationTable {
    pub(super) rows: BTreeMap<String, Arc<Customization>>,
    pub(super) webhooks: BTreeMap<String, Arc<WebhookConfiguration>>,
    pub(super) rules: Arc<Rules>,
    /// Answers of the rules.
    pub(super) meanings: BTreeMap<TemplateKey, Meaning>,
}

impl PartialEq for CustomizationTable {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows && self.webhooks == other.webhooks
    }
}

fn mix(before: Option<u64>, name: &str, hash: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (before, name, hash).hash(&mut hasher);
    hasher.finish()
}
