//! What Atoll's hub must grant before objects move: rights of the controller, and the way to members.

use std::collections::BTreeSet;

use anyhow::bail;
use atoll_api::{PROXY_GROUP, VERSION};
use atoll_migrate::check::{Finding, Severity};
use atoll_migrate::estate::Estate;
use atoll_migrate::members as plan;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::discovery::ApiCapabilities;
use serde_json::{Value, json};

use super::source::served;
use super::{Migration, verify};
use crate::hub::{self, Hub};
use crate::install::record;
use crate::print::causes;
use crate::reach::Member;

/// Name of the controller's ServiceAccount in the manifests.
const ACCOUNT: &str = "atoll-controller";
/// What the controller does with the objects that policies select.
const READS: [&str; 3] = ["get", "list", "watch"];
/// What `verify` and `finish` do with members' objects.
const REACHES: [&str; 2] = ["get", "patch"];

/// Kinds that move and that the controller may not read, with the role that it lacks.
pub(super) async fn of_controller(hub: &Hub, estate: &Estate) -> anyhow::Result<Vec<Finding>> {
    match unread(hub, estate).await {
        // Who migrates need not be an administrator of the hub.
        Err(error) if hub::status(&error) == Some(403) => Ok(vec![Finding {
            severity: Severity::Changes,
            object: "rights of Atoll's controller".to_owned(),
            problem: format!(
                "not checked: {}. After `prepare`, `check` shows what the controller says it cannot read",
                causes(&error)
            ),
        }]),
        found => found,
    }
}

/// Without the ServiceAccount of the manifests nobody but the controller knows its rights: then the status of the policies
/// shows what it cannot read.
async fn unread(hub: &Hub, estate: &Estate) -> anyhow::Result<Vec<Finding>> {
    let place = record::find(hub).await?.map(|record| record.namespace);
    let place = place.unwrap_or_else(|| atoll_api::marks::SYSTEM_NAMESPACE.to_owned());
    let accounts: Api<ServiceAccount> = Api::namespaced(hub.client.clone(), &place);
    let doing = format!("look for ServiceAccount {place}/{ACCOUNT}");
    if hub.call(&doing, accounts.get_opt(ACCOUNT)).await?.is_none() {
        return Ok(Vec::new());
    }
    let user = format!("system:serviceaccount:{place}:{ACCOUNT}");
    let kinds: BTreeSet<(&str, &str)> =
        estate.moving().map(|binding| (&*binding.api_version, &*binding.of.kind)).collect();
    let mut found = Vec::new();
    for (api_version, kind) in kinds {
        // A kind that the hub does not serve is another finding.
        let Some((resource, capabilities)) = served(hub, api_version, kind).await? else {
            continue;
        };
        let mut lacks = Vec::new();
        for (name, verbs) in rights(&resource.group, &resource.plural, &capabilities) {
            for verb in verbs {
                if !may(hub, &user, verb, &resource.group, &name).await? {
                    lacks.push((name.clone(), *verb));
                }
            }
        }
        found.extend(lacking(kind, &resource.group, &resource.plural, &lacks));
    }
    Ok(found)
}

/// Resources of a kind, with the verbs that the controller uses. It writes the status that members report, of custom
/// resources too if they have one.
fn rights(
    group: &str,
    plural: &str,
    capabilities: &ApiCapabilities,
) -> Vec<(String, &'static [&'static str])> {
    let mut all: Vec<(String, &'static [&'static str])> = vec![(plural.to_owned(), &READS)];
    let is_custom = group.contains('.') && !group.ends_with(".k8s.io");
    let has_status = capabilities.subresources.iter().any(|(below, _)| below.plural == "status");
    if is_custom && has_status {
        all.push((format!("{plural}/status"), &["patch"]));
    }
    all
}

/// The finding for a kind, with the role that grants what is lacking.
fn lacking(kind: &str, group: &str, plural: &str, lacks: &[(String, &str)]) -> Option<Finding> {
    let (_, verb) = lacks.first()?;
    let reads = lacks.iter().any(|(name, _)| name == plural);
    let names: BTreeSet<&String> = lacks.iter().map(|(name, _)| name).collect();
    let rules: Vec<Value> = names
        .iter()
        .map(|name| {
            let verbs = lacks.iter().filter(|(of, _)| of == *name).map(|(_, verb)| *verb);
            json!({"apiGroups": [group], "resources": [name], "verbs": verbs.collect::<Vec<_>>()})
        })
        .collect();
    let title = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": format!("{ACCOUNT}-{title}"),
            "labels": {"rbac.atoll.dev/aggregate-to-controller": "true"},
        },
        "rules": rules,
    });
    let (severity, effect) = match reads {
        true => (Severity::Blocks, format!("may not {verb} {title}")),
        false => {
            let effect = "may not write the status that members report of them";
            (Severity::Changes, effect.to_owned())
        }
    };
    let problem = format!(
        "Atoll's controller {effect}. Grant it on Atoll's hub: `echo '{role}' | kubectl apply -f -`"
    );
    Some(Finding { severity, object: format!("kind {kind}"), problem })
}

async fn may(
    hub: &Hub,
    user: &str,
    verb: &str,
    group: &str,
    resource: &str,
) -> anyhow::Result<bool> {
    let groups = ["system:authenticated", "system:serviceaccounts"].map(str::to_owned);
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(attributes(verb, group, resource)),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(hub.client.clone());
    let answer = hub
        .call("ask for the controller's rights", reviews.create(&PostParams::default(), &review))
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn attributes(verb: &str, group: &str, resource: &str) -> ResourceAttributes {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, below)) => (resource, Some(below.to_owned())),
        None => (resource, None),
    };
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        ..ResourceAttributes::default()
    }
}

/// Fails if a member that `verify` and `finish` reach through the hub cannot be reached there.
pub(super) async fn reaches_members(migration: &Migration, estate: &Estate) -> anyhow::Result<()> {
    match way_to_members(migration, estate).await?.first() {
        Some(one) => bail!("{}: {}", one.object, one.problem),
        None => Ok(()),
    }
}

/// What keeps `verify` and `finish` from members that they reach through the hub: all but those whose agent runs beside the
/// controller.
pub(super) async fn way_to_members(
    migration: &Migration,
    estate: &Estate,
) -> anyhow::Result<Vec<Finding>> {
    let (hub, clusters) = (&migration.target.hub, migration.target.clusters().await?);
    let is_hosted = |name: &&str| clusters.get(*name).is_some_and(plan::is_hosted);
    let names: Vec<&str> =
        plan::holders(estate).into_iter().filter(|name| !is_hosted(name)).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let blocks = |object: String, problem: String| Finding {
        severity: Severity::Blocks,
        object,
        problem: format!("{problem}. `verify` and `finish` reach members by it"),
    };
    if let Some(problem) = no_way(hub).await? {
        return Ok(vec![blocks(format!("APIService {VERSION}.{PROXY_GROUP}"), problem)]);
    }
    // A member that has not joined, or is disconnected, is another finding.
    let ready = names.into_iter().filter(|name| clusters.get(*name).is_some_and(plan::is_ready));
    let mut found = Vec::new();
    for name in ready {
        let held = estate.moving().find(|binding| binding.holders().any(|holder| holder == name));
        let Some(binding) = held else { continue };
        let Some(plural) = migration.target.plural(binding).await? else { continue };
        let read = Member::of(hub, name).get(&verify::path(binding, &plural), None).await;
        if let Err(failure) = read
            && !failure.is_not_found()
        {
            found.push(blocks(format!("Cluster {name}"), format!("{}: {failure}", binding.of)));
        }
    }
    Ok(found)
}

/// Why members cannot be reached, and what to do.
async fn no_way(hub: &Hub) -> anyhow::Result<Option<String>> {
    let request = http::Request::get(format!("/apis/{PROXY_GROUP}/{VERSION}")).body(Vec::new())?;
    match hub.call("look for the aggregated API", hub.client.request::<Value>(request)).await {
        Ok(_) => {}
        Err(error) => {
            let why = match hub::status(&error) {
                Some(404) => "the aggregated API is not installed: run the controller with --api-address and apply \
                              deploy/controller/api.yaml"
                    .to_owned(),
                Some(503) => format!(
                    "the aggregated API is not available: `kubectl get apiservice {VERSION}.{PROXY_GROUP} -o yaml` says why"
                ),
                _ => return Err(error),
            };
            return Ok(Some(why));
        }
    }
    for verb in REACHES {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes(verb, PROXY_GROUP, "clusters/proxy")),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(hub.client.clone());
        let params = PostParams::default();
        let asked = reviews.create(&params, &review);
        let answer = hub.call("ask for your rights", asked).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(Some(format!(
                "you may not {verb} clusters/proxy of {PROXY_GROUP}: bind ClusterRole atoll-members-access"
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_with_the_exact_role_and_a_status_does_not_block() {
        let reads = READS.map(|verb| ("widgets".to_owned(), verb));
        let status = ("widgets/status".to_owned(), "patch");
        let role = |finding: &Finding| -> Value {
            let (_, text) = finding.problem.split_once("`echo '").unwrap();
            serde_json::from_str(text.split_once("' | kubectl apply -f -`").unwrap().0).unwrap()
        };
        let all = [reads.to_vec(), vec![status.clone()]].concat();
        let found = lacking("Widget", "example.com", "widgets", &all).unwrap();
        assert_eq!(found.severity, Severity::Blocks);
        assert!(found.problem.contains("may not get widgets.example.com"), "{}", found.problem);
        let role_of_all = role(&found);
        assert_eq!(
            role_of_all["rules"],
            json!([
                {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["example.com"], "resources": ["widgets/status"], "verbs": ["patch"]},
            ])
        );
        assert_eq!(role_of_all["metadata"]["name"], "atoll-controller-widgets.example.com");
        let found = lacking("Widget", "example.com", "widgets", &[status]).unwrap();
        assert_eq!(found.severity, Severity::Changes);
        assert_eq!(role(&found)["rules"][0]["verbs"], json!(["patch"]));
        assert_eq!(lacking("Widget", "example.com", "widgets", &[]), None);
    }
}
