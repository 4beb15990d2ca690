//! What the caller may do on the hub.

use std::collections::BTreeSet;

use atoll_install::{IMAGE, Options};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, PostParams};
use serde_json::Value;

use super::{Fact, State};
use crate::hub::Hub;

/// What the verbs of this program need: verb, group, resource.
const OPERATOR: [(&str, &str, &str); 6] = [
    ("list", "cluster.atoll.dev", "clusters"),
    ("patch", "cluster.atoll.dev", "clusters"),
    ("list", "work.atoll.dev", "resourcebindings"),
    ("list", "work.atoll.dev", "clusterresourcebindings"),
    ("list", "policy.atoll.dev", "propagationpolicies"),
    ("list", "policy.atoll.dev", "clusterpropagationpolicies"),
];

/// One right: verb, group, resource, namespace.
type Right = (String, String, String, Option<String>);

/// Whether the caller may apply the manifests.
pub(super) async fn installer(hub: &Hub, namespace: Option<&str>) -> Fact {
    let standard = Options::new(IMAGE);
    let namespace = namespace.map_or(standard.namespace.clone(), str::to_owned);
    let parts = match atoll_install::parts(&Options { namespace, ..standard }) {
        Ok(parts) => parts,
        Err(error) => return Fact::unknown("your rights", &error.into()),
    };
    let rights = needed(parts.iter().flat_map(|part| &part.objects));
    let fix = "let a cluster-admin of the hub install";
    fact(hub, rights, State::Failed, "you may install", fix).await
}

/// Rights to apply these objects. The roles among them grant rights that the caller may not have, so they must also be
/// escalated and bound.
fn needed<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for object in objects {
        let role = object["kind"] == "ClusterRole" || object["kind"] == "Role";
        let verbs: &[&str] =
            if role { &["create", "patch", "escalate", "bind"] } else { &["create", "patch"] };
        rights.extend(verbs.iter().map(|verb| right(verb, object)));
    }
    rights
}

fn right(verb: &str, object: &Value) -> Right {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
    let plural = ApiResource::from_gvk(&kind).plural;
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    (verb.to_owned(), group.to_owned(), plural, namespace)
}

/// Whether the caller may operate the federation.
pub(super) async fn operator(hub: &Hub) -> Fact {
    let of = |(verb, group, resource): (&str, &str, &str)| {
        (verb.to_owned(), group.to_owned(), resource.to_owned(), None)
    };
    let rights = OPERATOR.into_iter().map(of).collect();
    let fix = "some verbs will be refused; ask an administrator of the hub for these rights";
    fact(hub, rights, State::Warning, "you may read the federation and change members", fix).await
}

async fn fact(
    hub: &Hub,
    rights: BTreeSet<Right>,
    state: State,
    good: &str,
    fix: &'static str,
) -> Fact {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(hub.client.clone());
    let mut lacks = Vec::new();
    for (verb, group, resource, namespace) in rights {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.clone()),
                    group: Some(group.clone()),
                    resource: Some(resource.clone()),
                    namespace: namespace.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let params = PostParams::default();
        match hub.call("ask for your rights", reviews.create(&params, &review)).await {
            Err(error) => return Fact::unknown("your rights", &error),
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                let place = namespace.map_or_else(String::new, |n| format!(" in {n}"));
                lacks.push(format!("{verb} {resource}{group}{place}"));
            }
        }
    }
    match lacks.is_empty() {
        true => Fact::ok("your rights", good),
        false => Fact::new("your rights", state, format!("you may not {}", lacks.join(", ")), fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installer_needs_to_escalate_and_bind_roles_of_namespaces_too() {
        let parts = atoll_install::parts(&Options::new(IMAGE)).unwrap();
        let rights = needed(parts.iter().flat_map(|part| &part.objects));
        for verb in ["create", "patch", "escalate", "bind"] {
            for (resource, namespace) in [("clusterroles", None), ("roles", Some("atoll-system"))] {
                let group = "rbac.authorization.k8s.io".to_owned();
                let right =
                    (verb.to_owned(), group, resource.to_owned(), namespace.map(str::to_owned));
                assert!(rights.contains(&right), "{right:?} is not in {rights:?}");
            }
        }
        let others = rights.iter().filter(|(_, _, resource, _)| !resource.ends_with("roles"));
        assert!(others.clone().all(|(verb, ..)| verb == "create" || verb == "patch"));
        assert!(others.count() > 0);
    }
}
