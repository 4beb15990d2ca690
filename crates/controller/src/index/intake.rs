//! Applies stream events to the tables.

use std::sync::Arc;

use atoll_api::static_assignment::is_policy_name;
use atoll_api::{FederatedResourceQuota, WorkloadPolicy, WorkloadSpread};
use serde::Deserialize;
use serde_json::Value;

use super::key::{BindingKey, NamespacedName, PolicyKey, TemplateKey};
use super::received::{Content, Received};
use super::rows::{Binding, Policy, RowError};
use super::secondary::name_of;
use super::template::Template;
use super::{Index, Source, Touched};

impl Index {
    /// Enters an object into the tables.
    pub(super) fn take_in(&mut self, source: &Source, object: Received, touched: &mut Touched) {
        match object.content {
            Content::Binding(row) => self.put_binding(*row, touched),
            Content::UnreadBinding { version, text } => {
                let (namespace, name) = object.name;
                let key = BindingKey::of(namespace.as_deref(), &name);
                if self.holds_binding(&key, version.as_deref().unwrap_or_default()) {
                    return;
                }
                match Binding::parse(text.get()) {
                    Ok(row) => self.share_and_set_binding(row, touched),
                    Err(error) => touched.unreadable.push((who(source, namespace, name), error)),
                }
            }
            Content::Template(row) => self.share_and_put_template(*row, touched),
            Content::Object(object) => self.put(source, object, touched),
            Content::Unreadable { error, .. } => {
                let (namespace, name) = object.name;
                touched.unreadable.push((who(source, namespace, name), error));
            }
        }
    }

    fn put(&mut self, source: &Source, object: Arc<Value>, touched: &mut Touched) {
        let result = match source {
            Source::Clusters => self.put_cluster(&object, touched),
            Source::PropagationPolicies | Source::ClusterPropagationPolicies => {
                Policy::read(&object).map(|policy| {
                    self.set_policy(&policy.key.clone(), Some(policy), touched);
                })
            }
            Source::WorkloadPolicies => read::<WorkloadPolicy>(&object).map(|policy| {
                self.set_workload_policy(&full_name(&object), Some(policy), touched);
            }),
            Source::WorkloadSpreads => read::<WorkloadSpread>(&object).map(|spread| {
                self.set_spread(&full_name(&object), Some(spread), touched);
            }),
            Source::OverridePolicies | Source::ClusterOverridePolicies => {
                let (namespace, name) = name_of(&object);
                self.set_override(&PolicyKey { namespace, name }, Some(object.clone()), touched)
            }
            Source::Customizations => self.put_customization(&name_of(&object).1, &object, touched),
            Source::Webhooks => self.put_webhooks(&name_of(&object).1, &object, touched),
            Source::ResourceBindings | Source::ClusterResourceBindings => {
                Binding::read(&object).map(|binding| self.put_binding(binding, touched))
            }
            Source::Templates(kind) => Template::read(kind, &object, &self.templates.parsed)
                .map(|template| self.share_and_put_template(template, touched)),
            Source::Namespaces => {
                self.put_namespace(&object, touched);
                Ok(())
            }
            Source::ClusterSets => self.put_cluster_set(&object, touched),
            Source::ChangeGuards => self.put_guard(&object, touched),
            Source::Quotas => read::<FederatedResourceQuota>(&object).map(|quota| {
                self.set_quota(&full_name(&object), Some(quota), touched);
            }),
            Source::Nodes => {
                if self.hub_workloads.nodes.insert(name_of(&object).1)
                    && self.hub_workloads.nodes.len() == 1
                {
                    self.touch_pod_makers(touched);
                }
                Ok(())
            }
            Source::ReplicaSets | Source::Pods => {
                self.put_controlled(source, &object, touched);
                Ok(())
            }
            Source::PriorityClasses => {
                let value = object["value"].as_i64().and_then(|value| i32::try_from(value).ok());
                let class = (value.unwrap_or(0), object["preemptionPolicy"] == "Never");
                self.set_priority_class(&name_of(&object).1, Some(class), touched);
                Ok(())
            }
            Source::Kinds => {
                self.put_served(&object, touched);
                Ok(())
            }
        };
        if let Err(error) = result {
            let (namespace, name) = name_of(&object);
            touched.unreadable.push((who(source, namespace, name), error));
        }
    }

    /// Stores a row, unless the table has this version or a newer one. The reply to our own write and its watch event bring
    /// the same version.
    fn put_binding(&mut self, binding: Binding, touched: &mut Touched) {
        if !self.holds_binding(&binding.key, binding.resource_version()) {
            self.share_and_set_binding(binding, touched);
        }
    }

    /// A template shares what it has in common with its earlier version, or with another one.
    fn share_and_put_template(&mut self, mut template: Template, touched: &mut Touched) {
        let rows = &self.templates.rows;
        let key = template.key.clone();
        match (rows.get(&key), rows.range(..&key).next_back()) {
            (Some(before), _) => template = template.near(before),
            (None, Some((_, neighbour))) => template.share(neighbour),
            (None, None) => {}
        }
        self.put_template(&key, Some(template), touched);
    }

    pub(super) fn take(
        &mut self,
        source: &Source,
        (namespace, name): &(Option<String>, String),
        uid: Option<&str>,
        touched: &mut Touched,
    ) {
        let full = (namespace.clone().unwrap_or_default(), name.clone());
        match source {
            Source::Clusters => {
                if let Some((name, _)) = self.clusters.remove_entry(name.as_str()) {
                    self.touch_cluster(&name, touched);
                    self.touch_policies_naming(&name, touched);
                }
            }
            Source::PropagationPolicies | Source::ClusterPropagationPolicies => {
                let key = PolicyKey { namespace: namespace.clone(), name: name.clone() };
                self.set_policy(&key, None, touched);
            }
            Source::WorkloadPolicies => self.set_workload_policy(&full, None, touched),
            Source::WorkloadSpreads => self.set_spread(&full, None, touched),
            Source::OverridePolicies | Source::ClusterOverridePolicies => {
                let key = PolicyKey { namespace: namespace.clone(), name: name.clone() };
                // Without an object nothing has to be parsed.
                let _: Result<(), RowError> = self.set_override(&key, None, touched);
            }
            Source::Customizations => self.set_customization(name, None, touched),
            Source::Webhooks => self.set_webhooks(name, None, touched),
            Source::ResourceBindings | Source::ClusterResourceBindings => {
                let key = BindingKey::of(namespace.as_deref(), name);
                // A late event about an older binding's deletion does not affect the current one.
                let another = |row: &Arc<Binding>| uid.is_some_and(|uid| row.uid != uid);
                if !self.bindings.get(&key).is_some_and(another) {
                    self.set_binding(&key, None, touched);
                }
            }
            Source::Templates(kind) => {
                let key = TemplateKey::new(kind.borrowed(), namespace.as_deref(), name);
                self.put_template(&key, None, touched);
            }
            Source::Namespaces => self.take_namespace(name, touched),
            Source::ClusterSets => self.take_cluster_set(name, touched),
            Source::ChangeGuards => self.take_guard(name, touched),
            Source::Quotas => self.set_quota(&full, None, touched),
            Source::Nodes => {
                if self.hub_workloads.nodes.remove(name) && self.hub_workloads.nodes.is_empty() {
                    self.touch_pod_makers(touched);
                }
            }
            Source::ReplicaSets | Source::Pods => {
                let id = (source.clone(), format!("{}/{}", full.0, full.1));
                if let Some(owner) = self.hub_workloads.controlled.remove(&id) {
                    touched.keys.insert(owner.binding());
                }
            }
            Source::PriorityClasses => self.set_priority_class(name, None, touched),
            Source::Kinds => self.take_served(name, touched),
        }
    }

    /// Everything that is affected when a source becomes readable or unreadable.
    pub(super) fn touch_source(&self, source: &Source, touched: &mut Touched) {
        if let Source::Templates(kind) = source {
            for template in self.templates_of(kind) {
                touched.keys.insert(template.key.binding());
            }
            let of_kind = self.bindings.values().filter(|b| b.template.group_kind() == *kind);
            touched.keys.extend(of_kind.map(|binding| binding.key.clone()));
            touched.policies.extend(self.policies_of(kind).map(|policy| policy.key.clone()));
            touched.waiting.extend(self.dependencies.on_kind(kind).cloned());
        }
        if *source == Source::Kinds {
            touched.policies.extend(self.policies_for_every_kind().map(|p| p.key.clone()));
        }
        if *source == Source::PriorityClasses {
            let named = |policy: &&Arc<Policy>| policy.spec.schedule_priority.is_some();
            touched.policies.extend(self.policies().filter(named).map(|p| p.key.clone()));
        }
    }

    pub(super) fn names(&self, source: &Source) -> Vec<(Option<String>, String)> {
        let plain = |name: &String| (None, name.clone());
        let full = |(namespace, name): &NamespacedName| (Some(namespace.clone()), name.clone());
        match source {
            Source::Clusters => self.clusters.keys().map(|name| (None, name.into())).collect(),
            Source::PropagationPolicies | Source::ClusterPropagationPolicies => {
                let namespaced = *source == Source::PropagationPolicies;
                let keys = self.policies.keys().filter(|key| !is_policy_name(&key.name));
                keys.filter(|key| key.namespace.is_some() == namespaced)
                    .map(|key| (key.namespace.clone(), key.name.clone()))
                    .collect()
            }
            Source::WorkloadPolicies => self.workload_policies.keys().map(full).collect(),
            Source::WorkloadSpreads => self.spreads.keys().map(full).collect(),
            Source::OverridePolicies | Source::ClusterOverridePolicies => {
                let namespaced = *source == Source::OverridePolicies;
                let keys = self.overrides.keys().filter(|key| !is_policy_name(&key.name));
                keys.filter(|key| key.namespace.is_some() == namespaced)
                    .map(|key| (key.namespace.clone(), key.name.clone()))
                    .collect()
            }
            Source::Customizations => self.customizations().map(plain).collect(),
            Source::Webhooks => self.webhook_configurations().map(plain).collect(),
            Source::ResourceBindings | Source::ClusterResourceBindings => {
                let namespaced = *source == Source::ResourceBindings;
                let keys = self.bindings.keys();
                keys.filter(|key| key.namespace().is_some() == namespaced)
                    .map(|key| (key.namespace().map(str::to_owned), key.name().to_owned()))
                    .collect()
            }
            Source::Templates(kind) => self
                .templates_of(kind)
                .map(|template| {
                    (template.key.namespace().map(str::to_owned), template.key.name().to_owned())
                })
                .collect(),
            Source::Namespaces => self.tenancy.namespaces.keys().map(plain).collect(),
            Source::ClusterSets => self.cluster_sets().map(plain).collect(),
            Source::ChangeGuards => self.tenancy.guards.keys().map(plain).collect(),
            Source::Quotas => self.quotas().map(|(key, _)| full(key)).collect(),
            Source::Nodes => self.hub_workloads.nodes.iter().map(plain).collect(),
            Source::PriorityClasses => self.priority_classes.keys().map(plain).collect(),
            Source::Kinds => self.templates.served.names().map(|name| (None, name)).collect(),
            Source::ReplicaSets | Source::Pods => {
                let ids = self.hub_workloads.controlled.keys().filter(|(held, _)| held == source);
                ids.filter_map(|(_, id)| id.split_once('/'))
                    .map(|(namespace, name)| (Some(namespace.to_owned()), name.to_owned()))
                    .collect()
            }
        }
    }
}

fn read<K: for<'a> Deserialize<'a>>(object: &Value) -> Result<K, RowError> {
    K::deserialize(object).map_err(|error| RowError::Shape(error.to_string()))
}

/// Names an object in a message.
fn who(source: &Source, namespace: Option<String>, name: String) -> String {
    format!("{source:?} {}", PolicyKey { namespace, name })
}

fn full_name(object: &Value) -> NamespacedName {
    let (namespace, name) = name_of(object);
    (namespace.unwrap_or_default(), name)
}
