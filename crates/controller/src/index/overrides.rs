//! Override policies, and which manifests depend on them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use atoll_api::ClusterName;
use atoll_api::static_assignment::is_policy_name;
use atoll_render::overrides::{ClusterProperties, Policies, Policy};
use rustc_hash::FxHasher;
use serde_json::Value;

use super::key::{PolicyKey, TemplateKey};
use super::rows::{Policy as PolicyRow, RowError};
use super::template::Template;
use super::{Index, Touched};

impl Index {
    /// All override policies; `None` while there are none.
    #[must_use]
    pub fn overrides(&self) -> Option<&Policies> {
        (!self.overrides.rows.is_empty()).then_some(&self.overrides.policies)
    }

    /// Keys of all override policies that the hub has.
    pub fn override_policies(&self) -> impl Iterator<Item = &PolicyKey> {
        self.overrides.rows.keys().filter(|key| !is_policy_name(&key.name))
    }

    /// The override policies that a policy depends on and that do not exist, by kind and name.
    #[must_use]
    pub fn missing_overrides(&self, policy: &PolicyRow) -> Vec<String> {
        let namespace = &policy.key.namespace;
        let kind = if namespace.is_some() { "OverridePolicy" } else { "ClusterOverridePolicy" };
        let missing = policy.spec.dependent_overrides.iter().filter(|name| {
            let key = PolicyKey { namespace: namespace.clone(), name: (*name).clone() };
            self.override_policy(&key).is_none()
        });
        missing.map(|name| format!("{kind} {name}")).collect()
    }

    /// An override policy as the hub holds it.
    #[must_use]
    pub fn override_policy(&self, key: &PolicyKey) -> Option<&Arc<Value>> {
        self.overrides.rows.get(key)
    }

    /// All override policies as objects, with those made from `staticAssignments`.
    pub fn override_objects(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.overrides.rows.values()
    }

    /// The properties of a cluster that overrides depend on.
    #[must_use]
    pub fn properties(&self, cluster: &ClusterName) -> ClusterProperties {
        let known = self.cluster(cluster).map(|cluster| ClusterProperties::from(&**cluster));
        known.unwrap_or_else(|| ClusterProperties {
            name: cluster.to_string(),
            ..ClusterProperties::default()
        })
    }

    /// A fingerprint of the override policies that may concern a template; `None` if none does. Cluster-scoped
    /// policies may change the labels by which those of the namespace select, so all of the namespace count.
    #[must_use]
    pub fn overrides_fingerprint(&self, template: &Template) -> Option<u64> {
        let mut hasher = FxHasher::default();
        let mut any = false;
        for policy in self.overrides()?.iter() {
            if may_concern(policy, &template.key, &template.object()) {
                any = true;
                (&policy.name, &policy.uid, policy.generation).hash(&mut hasher);
            }
        }
        any.then(|| hasher.finish())
    }

    /// The override policies that select a template as it is on the hub.
    pub fn overrides_selecting(&self, template: &Template) -> impl Iterator<Item = PolicyKey> {
        let object = self.overrides().map(|_| template.object());
        let all = self.overrides().into_iter().flat_map(Policies::iter);
        all.filter(move |policy| {
            object.as_ref().is_some_and(|object| {
                may_concern(policy, &template.key, object) && policy.selects(object)
            })
        })
        .map(|policy| PolicyKey { namespace: policy.namespace.clone(), name: policy.name.clone() })
    }

    pub(super) fn set_override(
        &mut self,
        key: &PolicyKey,
        object: Option<Arc<Value>>,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let policy = object.as_deref().map(Policy::read).transpose();
        let policy = policy.map_err(|error| RowError::Shape(error.to_string()))?;
        let version = |object: &Arc<Value>| {
            (object["metadata"]["uid"].clone(), object["metadata"]["generation"].clone())
        };
        let before = match &object {
            Some(object) => self.overrides.rows.insert(key.clone(), object.clone()),
            None => self.overrides.rows.remove(key),
        };
        touched.override_policies.insert(key.clone());
        if before.as_ref().map(version) == object.as_ref().map(version) {
            return Ok(()); // only its status or its metadata changed
        }
        self.touch_overridden(key, touched);
        match policy {
            Some(policy) => self.overrides.policies.insert(policy),
            None => self.overrides.policies.remove(key.namespace.as_deref(), &key.name),
        }
        self.touch_overridden(key, touched);
        Ok(())
    }

    /// Bindings whose manifests may depend on an override policy as it is now.
    fn touch_overridden(&self, key: &PolicyKey, touched: &mut Touched) {
        let Some(policy) = self.overrides.policies.get(key.namespace.as_deref(), &key.name) else {
            return;
        };
        let concerned = self.bindings.iter().filter(|(_, binding)| {
            let template = self.templates.rows.get(&binding.template);
            template.is_some_and(|row| may_concern(policy, &row.key, &row.object()))
        });
        touched.keys.extend(concerned.map(|(key, _)| key.clone()));
    }
}

/// Whether a policy may change an object. Labels by which a policy of a namespace selects may come from another policy.
fn may_concern(policy: &Policy, key: &TemplateKey, object: &Value) -> bool {
    match &policy.namespace {
        None => policy.selects(object),
        Some(namespace) => key.namespace() == Some(namespace),
    }
}
