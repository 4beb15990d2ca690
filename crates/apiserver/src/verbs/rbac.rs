//! Authorization by RBAC (kubernetes `plugin/pkg/auth/authorizer/rbac`, `pkg/registry/rbac`), for servers that enforce
//! it: the rules of Roles and ClusterRoles, aggregation, and the check that users grant only rights that they have.

use atoll_apimachinery::{ApiError, identity::Identity, meta};
use http::Method;
use serde_json::{Value, json};

use super::call::Call;
use crate::{
    bootstrap::RBAC_GROUP,
    core::Core,
    kinds::rules::selects,
    options::Authorization,
    store::{ObjectKey, TableId},
};

/// Group of the users that RBAC does not limit.
const MASTERS: &str = "system:masters";

/// What a request does, in RBAC's words.
struct Attributes<'a> {
    verb: &'a str,
    group: &'a str,
    /// With the subresource: `deployments/scale`.
    resource: String,
    /// `None` for cluster-scoped requests, and for lists over all namespaces.
    namespace: Option<&'a str>,
    name: &'a str,
}

/// Whether RBAC does not limit this user on this server.
pub(crate) fn is_unlimited(core: &Core, identity: &Identity) -> bool {
    core.authorization == Authorization::Authenticated
        || identity.groups.iter().any(|group| group == MASTERS)
}

/// Refuses a request that the user's roles do not allow.
pub(crate) fn check(call: &Call, method: &Method) -> Result<(), ApiError> {
    // Reviews of the caller itself (role system:basic-user).
    if is_unlimited(&call.core, &call.identity) || call.kind.kind.starts_with("SelfSubject") {
        return Ok(());
    }
    let collection = call.name.is_empty();
    let verb = match *method {
        Method::GET | Method::HEAD if call.query.watch => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => return Err(ApiError::method_not_allowed()),
    };
    allow(call, verb)
}

/// Whether a user may do what the `resourceAttributes` or `nonResourceAttributes` of a review's spec describe.
pub(crate) fn may(core: &Core, identity: &Identity, spec: &Value) -> bool {
    if is_unlimited(core, identity) {
        return true;
    }
    let text =
        |path: &str| spec.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(path) = text("/nonResourceAttributes/path") {
        let verb = text("/nonResourceAttributes/verb").unwrap_or_default();
        let held = rules(core, identity, None);
        return held
            .iter()
            .any(|rule| has(&rule["verbs"], verb) && has_url(&rule["nonResourceURLs"], path));
    }
    let resource = text("/resourceAttributes/resource").unwrap_or_default();
    let wanted = Attributes {
        verb: text("/resourceAttributes/verb").unwrap_or_default(),
        group: text("/resourceAttributes/group").unwrap_or_default(),
        resource: match text("/resourceAttributes/subresource") {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        },
        namespace: text("/resourceAttributes/namespace"),
        name: text("/resourceAttributes/name").unwrap_or_default(),
    };
    rules(core, identity, wanted.namespace).iter().any(|rule| allows(rule, &wanted))
}

/// Whether a user may do this.
pub(crate) fn may_do(
    core: &Core,
    identity: &Identity,
    wanted: &atoll_apimachinery::gate::Attributes,
) -> bool {
    let spec = match &wanted.resource {
        None => json!({"nonResourceAttributes": {"verb": wanted.verb, "path": wanted.path}}),
        Some(resource) => json!({"resourceAttributes": {
            "verb": wanted.verb,
            "group": resource.group,
            "resource": resource.resource,
            "subresource": resource.subresource,
            "namespace": resource.namespace,
            "name": resource.name,
        }}),
    };
    may(core, identity, &spec)
}

/// Refuses a request that creates an object without a POST, if the user may not create it.
pub(crate) fn check_create(call: &Call) -> Result<(), ApiError> {
    if is_unlimited(&call.core, &call.identity) { Ok(()) } else { allow(call, "create") }
}

fn allow(call: &Call, verb: &str) -> Result<(), ApiError> {
    let kind = &call.kind;
    let resource = match &call.subresource {
        Some(subresource) => format!("{}/{subresource}", kind.plural),
        None => kind.plural.clone(),
    };
    let wanted = Attributes {
        verb,
        group: &kind.group,
        resource,
        namespace: call.namespace.as_deref(),
        name: &call.name,
    };
    let held = rules(&call.core, &call.identity, wanted.namespace);
    if held.iter().any(|rule| allows(rule, &wanted)) {
        return Ok(());
    }
    let place = match wanted.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User {:?} cannot {verb} resource {:?} in API group {:?} {place}",
        call.identity.user, wanted.resource, kind.group
    );
    Err(ApiError::forbidden(&kind.group, &kind.plural, &call.name, why))
}

/// Refuses a role or binding that grants rights which the user lacks (`escalate` and `bind` lift this).
pub(crate) fn check_grant(call: &Call, object: &Value) -> Result<(), ApiError> {
    if call.kind.group != RBAC_GROUP || is_unlimited(&call.core, &call.identity) {
        return Ok(());
    }
    let namespace = call.namespace.as_deref();
    let (name, verb, resource, granted) = match call.kind.kind.as_str() {
        "Role" | "ClusterRole" => {
            (meta::name(object), "escalate", call.kind.plural.clone(), own_rules(object))
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            let reference = &object["roleRef"];
            let kind = reference["kind"].as_str().unwrap_or_default();
            let resource = format!("{}s", kind.to_lowercase());
            let name = reference["name"].as_str().unwrap_or_default();
            (name, "bind", resource, referenced(&call.core, reference, namespace))
        }
        _ => return Ok(()),
    };
    let held = rules(&call.core, &call.identity, namespace);
    let lifted = Attributes { verb, group: RBAC_GROUP, resource, namespace, name };
    if held.iter().any(|rule| allows(rule, &lifted)) {
        return Ok(());
    }
    let missing: Vec<String> =
        granted.iter().filter(|rule| !covers(&held, rule)).map(Value::to_string).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
        call.identity.user,
        call.identity.groups,
        missing.join("\n")
    );
    Err(ApiError::forbidden(RBAC_GROUP, &call.kind.plural, meta::name(object), why))
}

/// The rules that a role grants by itself. Whoever writes an aggregation rule grants whatever roles others label.
fn own_rules(role: &Value) -> Vec<Value> {
    if role["aggregationRule"].is_object() {
        return vec![json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})];
    }
    role["rules"].as_array().cloned().unwrap_or_default()
}

/// The rules that a user has in a namespace, or in the whole cluster.
pub(crate) fn rules(core: &Core, identity: &Identity, namespace: Option<&str>) -> Vec<Value> {
    let mut found = Vec::new();
    let mut add = |plural: &str, place: Option<&str>| {
        for record in core.store.list(&TableId::new(RBAC_GROUP, plural), place).1 {
            let binding = record.value();
            let subjects = binding["subjects"].as_array();
            let home = place.unwrap_or_default();
            if subjects.into_iter().flatten().any(|subject| is_subject(subject, identity, home)) {
                found.extend(referenced(core, &binding["roleRef"], place));
            }
        }
    };
    add("clusterrolebindings", None);
    if namespace.is_some() {
        add("rolebindings", namespace);
    }
    found
}

fn is_subject(subject: &Value, identity: &Identity, home: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str().unwrap_or_default() {
        "User" => identity.user == name,
        "Group" => identity.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = subject["namespace"].as_str().unwrap_or(home);
            identity.user == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

/// The rules of a binding's role.
fn referenced(core: &Core, reference: &Value, namespace: Option<&str>) -> Vec<Value> {
    let name = reference["name"].as_str().unwrap_or_default();
    let (plural, place) = match reference["kind"].as_str() {
        Some("ClusterRole") => ("clusterroles", ""),
        _ => ("roles", namespace.unwrap_or_default()),
    };
    let table = TableId::new(RBAC_GROUP, plural);
    let Some(record) = core.store.get(&table, &ObjectKey::new(place, name)) else {
        return Vec::new();
    };
    let role = record.value();
    let mut rules = role["rules"].as_array().cloned().unwrap_or_default();
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
    for selector in selectors.and_then(Value::as_array).into_iter().flatten() {
        for other in core.store.list(&table, None).1 {
            let other = other.value();
            if meta::name(&other) != name && selects(Some(selector), &other) {
                rules.extend(other["rules"].as_array().cloned().unwrap_or_default());
            }
        }
    }
    rules
}

fn has(list: &Value, item: &str) -> bool {
    list.as_array().into_iter().flatten().any(|entry| entry == "*" || entry == item)
}

fn allows(rule: &Value, wanted: &Attributes<'_>) -> bool {
    let of_any_resource = wanted.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    has(&rule["verbs"], wanted.verb)
        && has(&rule["apiGroups"], wanted.group)
        && (has(&rule["resources"], &wanted.resource)
            || of_any_resource.is_some_and(|sub| has(&rule["resources"], &sub)))
        && names.is_none_or(|names| names.iter().any(|name| name == wanted.name))
}

/// Whether the held rules allow everything that a rule allows.
fn covers(held: &[Value], rule: &Value) -> bool {
    let list = |field: &str| -> Vec<&str> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let names = match list("resourceNames") {
        names if names.is_empty() => vec![""],
        names => names,
    };
    let urls_are_held = list("verbs").iter().all(|verb| {
        list("nonResourceURLs").iter().all(|url| {
            held.iter()
                .any(|rule| has(&rule["verbs"], verb) && has_url(&rule["nonResourceURLs"], url))
        })
    });
    urls_are_held
        && list("verbs").iter().all(|verb| {
            list("apiGroups").iter().all(|group| {
                list("resources").iter().all(|resource| {
                    names.iter().all(|name| {
                        let wanted = Attributes {
                            verb,
                            group,
                            resource: (*resource).to_owned(),
                            namespace: None,
                            name,
                        };
                        held.iter().any(|rule| allows(rule, &wanted))
                    })
                })
            })
        })
}

fn has_url(list: &Value, url: &str) -> bool {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).any(|held| {
        held == url || held.strip_suffix('*').is_some_and(|start| url.starts_with(start))
    })
}
