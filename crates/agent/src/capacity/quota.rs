//! What the ResourceQuotas of the member leave to pods.

use std::collections::BTreeMap;

use atoll_api::federated_resource_quota::counted_resource;
use atoll_api::quantity::Quantity;
use atoll_protocol::v1;
use serde_json::Value;

use super::amounts::Amounts;

/// Limit of the namespaces that are reported, as in the protocol. Further ones count as unlimited.
const MAX_NAMESPACES: usize = 1_000;
/// Limit of the resources of one quota. Kubernetes has about 20 names.
const MAX_RESOURCES: usize = 64;

/// What each quota leaves, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Quotas(BTreeMap<(String, String), Amounts>);

impl Quotas {
    /// Stores a quota, or removes it.
    pub(super) fn put(&mut self, name: (String, String), free: Option<Amounts>) {
        match free {
            Some(free) => self.0.insert(name, free),
            None => self.0.remove(&name),
        };
    }

    /// Keeps only these quotas.
    pub(super) fn retain(&mut self, keep: impl Fn(&(String, String)) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// The least that the quotas of each namespace leave.
    pub(super) fn to_wire(&self) -> Vec<v1::NamespaceQuota> {
        let mut free: BTreeMap<&String, Amounts> = BTreeMap::new();
        for ((namespace, _), amounts) in &self.0 {
            let least = free.entry(namespace).or_default();
            for (resource, milli) in amounts {
                let known = least.entry(resource.clone()).or_insert(*milli);
                *known = (*milli).min(*known);
            }
        }
        let each = free.into_iter().take(MAX_NAMESPACES);
        each.map(|(namespace, free_milli)| v1::NamespaceQuota {
            namespace: namespace.clone(),
            free_milli,
        })
        .collect()
    }
}

/// What a ResourceQuota leaves, in thousandths. `None` if it limits nothing that counts for every pod: a quota with
/// scopes concerns only some pods.
#[must_use]
pub(super) fn read(quota: &Value) -> Option<Amounts> {
    let given = |field: &str| match &quota["spec"][field] {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    if given("scopes") || given("scopeSelector") {
        return None;
    }
    // What is enforced now; a new quota has no status yet.
    let hard = quota["status"]["hard"].as_object().or_else(|| quota["spec"]["hard"].as_object())?;
    let milli = |value: &Value| Quantity::new(value.as_str()?).milli().ok();
    let mut free = Amounts::new();
    for (name, value) in hard.iter().take(MAX_RESOURCES) {
        let (Some(resource), Some(hard)) = (counted_resource(name), milli(value)) else { continue };
        let used = milli(&quota["status"]["used"][name]).unwrap_or(0);
        let left = i64::try_from((hard - used).max(0)).unwrap_or(i64::MAX);
        let known = free.entry(resource.to_owned()).or_insert(left);
        *known = left.min(*known);
    }
    (!free.is_empty()).then_some(free)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quota(spec: Value, status: Value) -> Option<Amounts> {
        read(&json!({"spec": spec, "status": status}))
    }

    #[test]
    fn the_least_that_quotas_of_a_namespace_leave_is_reported() {
        let mut quotas = Quotas::default();
        let name = |name: &str| ("shop".to_owned(), name.to_owned());
        let hard =
            json!({"requests.cpu": "4", "memory": "1Gi", "limits.cpu": "1", "services": "2"});
        let used = json!({"requests.cpu": "3500m", "memory": "2Gi"});
        quotas.put(name("a"), quota(json!({"hard": {}}), json!({"hard": hard, "used": used})));
        quotas.put(name("b"), quota(json!({"hard": {"cpu": "300m", "pods": "7"}}), Value::Null));
        let wire = quotas.to_wire();
        assert_eq!((wire.len(), wire[0].namespace.as_str()), (1, "shop"));
        let expected = [("cpu", 300), ("memory", 0), ("pods", 7_000)];
        let expected = expected.map(|(resource, milli)| (resource.to_owned(), milli));
        assert_eq!(wire[0].free_milli, expected.into());
        quotas.retain(|(_, name)| name == "a");
        assert_eq!(quotas.to_wire()[0].free_milli["cpu"], 500);
    }

    #[test]
    fn quotas_that_concern_only_some_pods_or_nothing_counted_are_left_out() {
        for spec in [
            json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
            json!({"hard": {"cpu": "1"}, "scopeSelector": {"matchExpressions": []}}),
            json!({"hard": {"services": "1"}}),
            json!({"hard": {"cpu": "much"}}),
            json!({}),
        ] {
            assert_eq!(quota(spec.clone(), Value::Null), None, "{spec}");
        }
    }

    #[test]
    fn at_most_as_many_namespaces_are_reported_as_the_protocol_allows() {
        let mut quotas = Quotas::default();
        for n in 0..MAX_NAMESPACES + 5 {
            let free = quota(json!({"hard": {"pods": "1"}}), Value::Null);
            quotas.put((format!("n{n}"), "q".into()), free);
        }
        assert_eq!(quotas.to_wire().len(), MAX_NAMESPACES);
    }
}
