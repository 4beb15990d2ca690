//! Other policies of the hub that affect a promoted object: one that claims it in place of its own policy, and overrides that
//! change its manifest on the member.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use atoll_api::ReservedNamespaces;
use atoll_render::overrides::{self, ClusterProperties, Division, Policies};
use atoll_scheduler::detect::{self, Claim, KindRef, Policy, PolicyKey, Subject, TemplateKey};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::Promotion;
use crate::hub::Hub;

/// Group of the policies.
const GROUP: &str = "policy.atoll.dev";
/// Policies of one kind that are read: a hub has fewer.
const MOST: u32 = 5_000;

/// The hub's policies, and the member.
pub(super) struct Others {
    namespace: BTreeMap<String, String>,
    policies: Vec<Arc<Policy>>,
    overrides: Policies,
    member: ClusterProperties,
}

impl Others {
    /// Reads what concerns objects of the hub's namespace.
    pub(super) async fn read(hub: &Hub, member: &str) -> anyhow::Result<Self> {
        let of = hub.namespace.as_str();
        let mut policies = list(hub, "PropagationPolicy", Some(of)).await?;
        policies.extend(list(hub, "ClusterPropagationPolicy", None).await?);
        let mut overrides = list(hub, "OverridePolicy", Some(of)).await?;
        overrides.extend(list(hub, "ClusterOverridePolicy", None).await?);
        let namespaces: Api<Namespace> = Api::all(hub.client.clone());
        let namespace = hub.call(&format!("get namespace {of}"), namespaces.get_opt(of)).await?;
        let labels = namespace.and_then(|namespace| namespace.metadata.labels).unwrap_or_default();
        let clusters = api(hub, "cluster.atoll.dev", "Cluster", None);
        let cluster = hub.call(&format!("get member {member}"), clusters.get(member)).await?;
        Self::of(labels, &policies, &overrides, &serde_json::to_value(cluster)?)
    }

    fn of(
        mut namespace: BTreeMap<String, String>,
        policies: &[Value],
        overrides: &[Value],
        member: &Value,
    ) -> anyhow::Result<Self> {
        let mut known = Policies::default();
        // The hub's validation admits no others; the controller reports one that cannot be read on it.
        overrides.iter().filter_map(|object| overrides::Policy::read(object).ok()).for_each(
            |policy| {
                known.insert(policy);
            },
        );
        if let Some(name) =
            policies.iter().find_map(|policy| policy["metadata"]["namespace"].as_str())
        {
            // Every API server sets it; a namespace that is not there yet has no labels.
            namespace
                .entry("kubernetes.io/metadata.name".to_owned())
                .or_insert_with(|| name.to_owned());
        }
        let policies = policies.iter().filter_map(|object| Policy::read(object).ok());
        Ok(Self {
            namespace,
            policies: policies.map(Arc::new).collect(),
            overrides: known,
            member: ClusterProperties::read(member).context("read the member's Cluster")?,
        })
    }

    /// What they do to an object that the user may not expect.
    pub(super) fn warnings(&self, promotion: &Promotion) -> Vec<String> {
        let (template, workload) = (&promotion.template, &promotion.workload);
        let mut warnings = Vec::new();
        let Ok(own) = Policy::read(&promotion.policy).map(Arc::new) else { return warnings };
        for winner in self.claims(template, &own) {
            let kind = match winner.key.namespace {
                Some(_) => "PropagationPolicy",
                None => "ClusterPropagationPolicy",
            };
            let (name, priority) = (&winner.key.name, winner.spec.priority);
            warnings.push(format!(
                "{workload}: {kind} {name} (priority {priority}) will claim it instead of {}, and decides where it runs",
                own.key.name
            ));
        }
        let applied =
            overrides::apply(template.clone(), &self.member, &self.overrides, Division::default());
        match applied {
            Ok((manifest, applied)) if manifest != *template => {
                let mut names: Vec<String> = applied
                    .iter()
                    .map(|applied| format!("{} {}", applied.scope.kind(), applied.policy))
                    .collect();
                names.dedup();
                warnings.push(format!(
                    "{workload}: {} will change it on {}, which may restart its pods",
                    names.join(", "),
                    self.member.name
                ));
            }
            Ok(_) => {}
            Err(error) => {
                warnings.push(format!(
                    "{workload}: the member keeps what it has, because an override fails: {error}"
                ));
            }
        }
        warnings
    }

    /// The policy that claims an object at first, and one that takes it over then; without its own.
    fn claims(&self, template: &Value, own: &Arc<Policy>) -> Vec<Arc<Policy>> {
        let text = |pointer: &str| template.pointer(pointer).and_then(Value::as_str);
        let labels = template["metadata"]["labels"].clone();
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap_or_default();
        let key = TemplateKey::new(
            KindRef::of(text("/apiVersion").unwrap_or_default(), text("/kind").unwrap_or_default()),
            text("/metadata/namespace"),
            text("/metadata/name").unwrap_or_default(),
        );
        let subject = Subject {
            key: &key,
            labels: &labels,
            namespace_labels: Some(&self.namespace),
            object: detect::Whole::Here(template),
            reserved: &ReservedNamespaces::default(),
            controlled: false,
            owned: false,
            names_workload_policy: false,
            has_spread: false,
        };
        let all = || self.policies.iter().chain([own]);
        let claimed =
            |current: Option<&PolicyKey>| match detect::claim(all(), &subject, current, || None) {
                Claim::Policy(policy, _) | Claim::Waiting(policy) => Some(policy),
                _ => None,
            };
        let first = claimed(None);
        let then = first.as_ref().and_then(|first| claimed(Some(&first.key)));
        let mut others: Vec<_> = [first, then].into_iter().flatten().collect();
        others.retain(|policy| policy.key != own.key);
        others.dedup_by(|one, other| one.key == other.key);
        others
    }
}

fn api(hub: &Hub, group: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
        None => Api::all_with(hub.client.clone(), &resource),
    }
}

async fn list(hub: &Hub, kind: &str, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let api = api(hub, GROUP, kind, namespace);
    let params = ListParams::default().limit(MOST);
    let found = hub.call(&format!("list objects of kind {kind}"), api.list(&params)).await?;
    let items = found.items.into_iter().map(serde_json::to_value);
    items.collect::<Result<_, _>>().context("read policies")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::template;
    use super::*;
    use crate::read::workload::{Kind, Workload};

    fn promotion() -> Promotion {
        let kind = Kind::named("apps", "v1", "Deployment");
        let namespace = Some("shop".to_owned());
        let workload =
            Workload { kind, decisions_served: false, namespace, name: "web".to_owned() };
        let policy = template::policy(&workload, "m1");
        let template = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "main", "image": "web:1"}]}}}});
        Promotion { workload, template, policy }
    }

    fn policy(name: &str, namespace: Option<&str>, extra: Value) -> Value {
        let kind =
            if namespace.is_some() { "PropagationPolicy" } else { "ClusterPropagationPolicy" };
        let mut policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}});
        if let Some(namespace) = namespace {
            policy["metadata"]["namespace"] = namespace.into();
        }
        policy["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        policy
    }

    fn warnings(policies: &[Value], overrides: &[Value]) -> Vec<String> {
        let member = json!({"metadata": {"name": "m1", "labels": {"tier": "prod"}}, "spec": {}});
        let others = Others::of(BTreeMap::new(), policies, overrides, &member).unwrap();
        others.warnings(&promotion())
    }

    #[test]
    fn policies_that_claim_the_object_are_named() {
        let own = promotion().policy["metadata"]["name"].as_str().unwrap().to_owned();
        // Its own policy names the object and is in its namespace.
        assert_eq!(warnings(&[policy("all", Some("shop"), json!({}))], &[]), [""; 0]);
        assert_eq!(warnings(&[policy("all", None, json!({"priority": 9}))], &[]), [""; 0]);
        let strong = policy("strong", Some("shop"), json!({"priority": 1}));
        let found = warnings(&[strong], &[]);
        assert!(
            found.len() == 1 && found[0].contains("PropagationPolicy strong (priority 1)"),
            "{found:?}"
        );
        assert!(found[0].contains(&format!("instead of {own}")), "{found:?}");
        let other = policy(
            "strong",
            Some("shop"),
            json!({"priority": 1,
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"}]}),
        );
        assert_eq!(warnings(&[other], &[]), [""; 0]);
    }

    #[test]
    fn overrides_that_change_the_manifest_on_the_member_are_named() {
        let with = |names: Value, image: &str| {
            json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ClusterOverridePolicy",
                "metadata": {"name": "mirror"},
                "spec": {"overrideRules": [{"targetCluster": {"clusterNames": names}, "overriders": {
                    "plaintext": [{"path": "/spec/template/spec/containers/0/image", "operator": "replace", "value": image}]}}]}})
        };
        let found = warnings(&[], &[with(json!(["m1"]), "mirror/web:1")]);
        assert!(
            found.len() == 1
                && found[0].contains("ClusterOverridePolicy mirror will change it on m1"),
            "{found:?}"
        );
        assert_eq!(warnings(&[], &[with(json!(["m2"]), "mirror/web:1")]), [""; 0]);
        assert_eq!(warnings(&[], &[with(json!(["m1"]), "web:1")]), [""; 0], "it changes nothing");
    }
}
