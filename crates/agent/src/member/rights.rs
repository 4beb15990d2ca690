//! Calls that the member's RBAC refused: adds the rule that would allow them to the error, ready to apply.

use kube::core::ApiResource;
use serde_json::{Value, json};

use super::error::MemberError;
use crate::key::Key;

/// What the agent needs on a kind to propagate it.
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// Group of the RBAC kinds.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Label of the ClusterRoles that make up the agent's rights (`deploy/agent/rbac.yaml`).
const AGGREGATE: &str = "rbac.atoll.dev/aggregate-to-agent";
/// Longest message in bytes. The controller accepts 1,024, and an Event names the members before it.
const MOST: usize = 900;
/// Bytes of the server's own words that are always kept.
const WORDS: usize = 250;

/// The same error. If RBAC refused the call, its message ends with the missing ClusterRole. `manifest` is what was to be
/// written, if anything was.
#[must_use]
pub(super) fn explained(
    mut error: MemberError,
    resource: &ApiResource,
    key: &Key,
    manifest: Option<&Value>,
) -> MemberError {
    if let MemberError::Api(status) = &mut error
        && status.code == 403
        && let Some(role) = missing(&status.message, resource, key, manifest)
    {
        let role = format!(". The agent lacks this ClusterRole on the member: {role}");
        if role.len() + WORDS <= MOST {
            let words = status.message.floor_char_boundary(MOST - role.len());
            status.message.truncate(words);
            status.message.push_str(&role);
        }
    }
    error
}

/// The ClusterRole that allows a call, by RBAC's words about its refusal. JSON, because that is YAML in one line, whatever
/// a name contains. Other refusals (quotas, admission) have no such words.
fn missing(
    refusal: &str,
    resource: &ApiResource,
    key: &Key,
    manifest: Option<&Value>,
) -> Option<Value> {
    let (name, rule) = if refusal.contains("not currently held") {
        let (verb, plural, name) = grant(resource, key, manifest)?;
        let rule = json!({
            "apiGroups": [RBAC], "resources": [plural], "resourceNames": [name], "verbs": [verb],
        });
        (format!("atoll-agent-{verb}-{plural}-{name}"), rule)
    } else if refusal.contains(&format!(" resource \"{}\"", resource.plural)) {
        let rule = json!({
            "apiGroups": [resource.group], "resources": [resource.plural], "verbs": VERBS,
        });
        let group = if resource.group.is_empty() { "core" } else { &resource.group };
        (format!("atoll-agent-{}.{group}", resource.plural), rule)
    } else {
        return None;
    };
    Some(json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {AGGREGATE: "true"}},
        "rules": [rule],
    }))
}

/// The verb that lets the agent apply a role or a binding which grants more than the agent's own rights, and the role on
/// which it needs the verb.
fn grant(
    resource: &ApiResource,
    key: &Key,
    manifest: Option<&Value>,
) -> Option<(&'static str, String, String)> {
    if key.kind.is(RBAC, "Role") || key.kind.is(RBAC, "ClusterRole") {
        return Some(("escalate", resource.plural.clone(), key.name.clone()));
    }
    let role = &manifest?["roleRef"];
    let plural = match role["kind"].as_str()? {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        _ => return None,
    };
    Some(("bind", plural.to_owned(), role["name"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::key::GroupKind;

    fn refused(message: &str, kind: &str, plural: &str, manifest: &Value) -> String {
        let resource = ApiResource {
            group: RBAC.into(),
            version: "v1".into(),
            api_version: format!("{RBAC}/v1"),
            kind: kind.into(),
            plural: plural.into(),
        };
        let key =
            Key { kind: GroupKind::new(RBAC, kind), namespace: String::new(), name: "app".into() };
        let status = Status { code: 403, message: message.to_owned(), ..Status::default() };
        explained(MemberError::Api(Box::new(status)), &resource, &key, Some(manifest)).message()
    }

    fn role(message: &str) -> Value {
        let (_, role) =
            message.split_once("on the member: ").unwrap_or_else(|| panic!("{message}"));
        serde_json::from_str(role).unwrap()
    }

    #[test]
    fn a_refusal_by_rbac_names_the_missing_rule_and_other_refusals_stay_as_they_are() {
        let words = |what: &str| {
            format!("clusterroles.rbac.authorization.k8s.io \"app\" is forbidden: {what}")
        };
        let manifest = json!({"roleRef": {"kind": "ClusterRole", "name": "it's;1"}});
        let verb = words(
            "User \"a\" cannot get resource \"clusterroles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope",
        );
        let message = refused(&verb, "ClusterRole", "clusterroles", &manifest);
        assert!(message.starts_with(&verb), "{message}");
        let found = role(&message);
        assert_eq!(found["metadata"]["labels"][AGGREGATE], "true");
        assert_eq!(
            found["rules"],
            json!([{"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": VERBS}])
        );
        // The server lists every rule that is not held, which may be long.
        let grants = words(&format!(
            "user \"a\" is attempting to grant RBAC permissions not currently held:\n{}",
            "{\"é\"}".repeat(400)
        ));
        let escalates = refused(&grants, "ClusterRole", "clusterroles", &manifest);
        assert!(escalates.len() <= MOST, "{}", escalates.len());
        let rule = |resource: &str, name: &str, verb: &str| {
            json!([{
                "apiGroups": [RBAC], "resources": [resource], "resourceNames": [name], "verbs": [verb],
            }])
        };
        assert_eq!(role(&escalates)["rules"], rule("clusterroles", "app", "escalate"));
        let binds = refused(&grants, "RoleBinding", "rolebindings", &manifest);
        assert_eq!(role(&binds)["rules"], rule("clusterroles", "it's;1", "bind"));

        let quota = "pods \"a\" is forbidden: exceeded quota: small";
        assert_eq!(refused(quota, "ClusterRole", "clusterroles", &manifest), quota);
    }
}
