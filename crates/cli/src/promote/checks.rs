//! What must hold before an object is taken to the hub.

use std::collections::BTreeMap;

use anyhow::bail;
use atoll_api::{Cluster, ClusterName, ClusterSet, ReservedNamespaces, marks};
use atoll_scheduler::state::cluster_sets::{ClusterSets, Reach};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::hub::Hub;
use crate::reach::{Failure, Member};
use crate::read::fleet;
use crate::read::workload::Workload;

/// Built-in kinds that are taken over as they are. Pods and Jobs have fields that their member's controllers set.
const KINDS: [(&str, &str); 7] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "CronJob"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
];
/// Type of a Secret that belongs to a ServiceAccount of its cluster.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// Whether the hub has the namespace. Checks that it may be used, and the member by it.
///
/// # Errors
/// When the namespace is reserved, its ClusterSets do not have the member, or the hub does not answer.
pub(super) async fn namespace(hub: &Hub, member: &ClusterName) -> anyhow::Result<bool> {
    let name = &hub.namespace;
    if ReservedNamespaces::default().contains(name) {
        bail!("namespace {name} is reserved: Atoll sends nothing to it");
    }
    let namespaces: Api<Namespace> = Api::all(hub.client.clone());
    let found = hub.call(&format!("get namespace {name}"), namespaces.get_opt(name)).await?;
    let labels = found.as_ref().map(|found| found.labels().clone()).unwrap_or_default();
    let sets: Api<ClusterSet> = Api::all(hub.client.clone());
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let sets = hub.call("list the ClusterSets", sets.list(&ListParams::default())).await?.items;
    let cluster = hub.call(&format!("get member {member}"), clusters.get(member.as_str())).await?;
    allowed(&sets, name, labels, &cluster)?;
    Ok(found.is_some())
}

fn allowed(
    sets: &[ClusterSet],
    namespace: &str,
    labels: BTreeMap<String, String>,
    member: &Cluster,
) -> anyhow::Result<()> {
    let mut rules = ClusterSets::default();
    for set in sets {
        // The controller reports an invalid set on it.
        let _ = rules.upsert(&set.name_any(), set);
    }
    rules.set_namespace(namespace, Some(labels));
    let reach = rules.reach(Some(namespace));
    if !reach.has(member.labels())
        && let Reach::Sets(sets) = reach
    {
        bail!("namespace {namespace} may not use member {}: {}", member.name_any(), sets.outside);
    }
    Ok(())
}

/// Checks that objects of this kind can be promoted.
pub(super) fn kind(workload: &Workload) -> anyhow::Result<()> {
    let kind = &workload.kind;
    if workload.namespace.is_none() {
        bail!("{workload} is in no namespace: apply it to the hub with a ClusterPropagationPolicy");
    }
    let is_custom = kind.group.contains('.')
        && !kind.group.ends_with(".k8s.io")
        && !kind.group.ends_with(".atoll.dev");
    let is_known = KINDS.contains(&(kind.group.as_str(), kind.kind.as_str()));
    if !is_custom && !is_known {
        let known: Vec<&str> = KINDS.iter().map(|(_, kind)| *kind).collect();
        bail!("{workload} cannot be promoted: of the built-in kinds {} can", known.join(", "));
    }
    Ok(())
}

/// Checks an object as the member has it.
pub(super) fn object(workload: &Workload, object: &Value) -> Result<(), &'static str> {
    let metadata = &object["metadata"];
    let is_asked_for = metadata["name"] == workload.name.as_str()
        && metadata["namespace"].as_str() == workload.namespace.as_deref()
        && object["kind"] == workload.kind.kind.as_str();
    if !is_asked_for {
        return Err("the member answered with another object");
    }
    if metadata["labels"][marks::MANAGED_BY] == marks::MANAGED_BY_VALUE {
        return Err("Atoll manages it already");
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Err("it is being deleted");
    }
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    if owners.any(|owner| owner["controller"] == true) {
        return Err("another object controls it: promote that one");
    }
    if workload.kind.kind == "Secret" && object["type"] == TOKEN {
        return Err("it belongs to a ServiceAccount of the member");
    }
    Ok(())
}

/// Whether an autoscaler of the member sets the replicas. A member without the API has none.
///
/// # Errors
/// When the member does not say: to take its number for the user's would undo what an autoscaler does.
pub(super) async fn is_autoscaled(member: &Member, workload: &Workload) -> Result<bool, Failure> {
    let namespace = workload.namespace.as_deref().unwrap_or_default();
    let path = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    let list = match member.get(&path, None).await {
        Ok(list) => list,
        Err(failure) if failure.is_not_found() => return Ok(false),
        Err(failure) => return Err(failure),
    };
    Ok(fleet::items(&list).any(|autoscaler| {
        let target = &autoscaler["spec"]["scaleTargetRef"];
        target["kind"] == workload.kind.kind.as_str() && target["name"] == workload.name.as_str()
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::read::workload::Kind;

    fn workload(group: &str, kind: &str) -> Workload {
        let kind = Kind::named(group, "v1", kind);
        let namespace = Some("shop".to_owned());
        Workload { kind, decisions_served: false, namespace, name: "web".to_owned() }
    }

    #[test]
    fn only_kinds_that_a_member_does_not_complete_are_promoted() {
        for (group, name) in [("apps", "Deployment"), ("", "Secret"), ("example.com", "Widget")] {
            kind(&workload(group, name)).unwrap();
        }
        for (group, name) in [
            ("", "Pod"),
            ("batch", "Job"),
            ("policy.atoll.dev", "PropagationPolicy"),
            ("rbac.authorization.k8s.io", "Role"),
        ] {
            assert!(kind(&workload(group, name)).is_err(), "{name}");
        }
        let nowhere = Workload { namespace: None, ..workload("example.com", "Widget") };
        assert!(kind(&nowhere).unwrap_err().to_string().contains("ClusterPropagationPolicy"));
    }

    #[test]
    fn objects_of_others_and_answers_with_other_objects_are_refused() {
        let deployment = workload("apps", "Deployment");
        let with = |metadata: Value| {
            let mut object =
                json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}});
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .extend(metadata.as_object().unwrap().clone());
            super::object(&deployment, &object)
        };
        with(json!({"labels": {"app": "web"}})).unwrap();
        for (metadata, part) in [
            (json!({"name": "other"}), "another object"),
            (json!({"namespace": "kube-system"}), "another object"),
            (json!({"labels": {"atoll.dev/managed-by": "atoll"}}), "already"),
            (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), "deleted"),
            (json!({"ownerReferences": [{"controller": true}]}), "controls it"),
        ] {
            let why = with(metadata).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let token = json!({"kind": "Secret", "type": TOKEN, "metadata": {"name": "web", "namespace": "shop"}});
        assert!(super::object(&workload("", "Secret"), &token).is_err());
    }

    #[test]
    fn cluster_sets_apply() {
        let set: ClusterSet = serde_json::from_value(json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "ClusterSet", "metadata": {"name": "team"},
            "spec": {"clusterSelector": {"matchLabels": {"team": "a"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}}))
        .unwrap();
        let member = |labels: Value| -> Cluster {
            serde_json::from_value(
                json!({"apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m1", "labels": labels}, "spec": {}}),
            )
            .unwrap()
        };
        let sets = [set];
        let check =
            |namespace: &str, labels| allowed(&sets, namespace, BTreeMap::new(), &member(labels));
        check("shop", json!({"team": "a"})).unwrap();
        check("other", json!({})).unwrap();
        let refused = check("shop", json!({"team": "b"})).unwrap_err().to_string();
        assert!(refused.contains("may not use member m1"), "{refused}");
    }

    #[tokio::test]
    async fn an_autoscaler_of_the_member_is_found() {
        let list =
            json!({"items": [{"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}}]});
        let member = Member::answering("m1", move |_| (200, list.to_string()));
        let deployment = workload("apps", "Deployment");
        assert_eq!(is_autoscaled(&member, &deployment).await, Ok(true));
        assert_eq!(is_autoscaled(&member, &workload("apps", "StatefulSet")).await, Ok(false));
        let without = Member::answering("m1", |_| (404, "{}".to_owned()));
        assert_eq!(is_autoscaled(&without, &deployment).await, Ok(false));
        // Unknown is not "no".
        let refuses = Member::answering("m1", |_| (403, "{}".to_owned()));
        assert!(is_autoscaled(&refuses, &deployment).await.is_err());
        assert!(is_autoscaled(&Member::nowhere("m1"), &deployment).await.is_err());
    }
}
