//! Services and Ingresses.

use serde_json::{Map, Value, json};

use super::{Member, reported};
use crate::{
    Health,
    conditions::{self, Merge},
    read::{list, text},
};

const ADDRESSES: [&str; 2] = ["loadBalancer", "ingress"];

fn has_address(status: &Value) -> bool {
    list(status, &ADDRESSES)
        .iter()
        .any(|i| !text(i, &["ip"]).is_empty() || !text(i, &["hostname"]).is_empty())
}

/// Only a load balancer waits for an address.
pub(super) fn service_health(obj: &Value) -> Health {
    if text(obj, &["spec", "type"]) != "LoadBalancer" {
        return Health::healthy("Exists");
    }
    ingress_health(obj)
}

pub(super) fn ingress_health(obj: &Value) -> Health {
    if has_address(&obj["status"]) {
        Health::healthy("AddressAssigned")
    } else {
        Health::progressing("NoAddress", "no load balancer address yet")
    }
}

/// The addresses of all members, each once, as the member reports it. A host name must stay resolvable, so it is never
/// replaced by a cluster name.
fn load_balancer(members: &[Member<'_>]) -> Map<String, Value> {
    let mut addresses: Vec<Value> = Vec::new();
    for (_, status) in reported(members) {
        for address in list(status, &ADDRESSES) {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
    }
    let content = if addresses.is_empty() { json!({}) } else { json!({"ingress": addresses}) };
    Map::from_iter([("loadBalancer".to_owned(), content)])
}

pub(super) fn aggregate_ingress(members: &[Member<'_>]) -> Map<String, Value> {
    load_balancer(members)
}

pub(super) fn aggregate_service(members: &[Member<'_>], old: &Value) -> Map<String, Value> {
    let mut out = load_balancer(members);
    let reports = reported(members);
    let mut kinds: Vec<&str> = reports
        .iter()
        .flat_map(|(_, s)| list(s, &["conditions"]))
        .map(|c| text(c, &["type"]))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let merged: Vec<Value> =
        kinds.iter().filter_map(|k| conditions::merge(k, Merge::Any, &reports, old)).collect();
    if !merged.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(merged));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing},
        kinds::testing::{aggregated, judged, object},
    };

    fn with_addresses(addresses: Value) -> Value {
        json!({"loadBalancer": {"ingress": addresses}})
    }

    #[test]
    fn only_load_balancers_and_ingresses_wait_for_an_address() {
        let ip = with_addresses(json!([{"ip": "1.2.3.4"}]));
        let service = |kind: &str, status: &Value| {
            object("v1", "Service", json!({"type": kind}), status.clone())
        };
        assert_eq!(judged(&service("ClusterIP", &json!({}))).0, Healthy);
        assert_eq!(judged(&service("LoadBalancer", &json!({}))).0, Progressing);
        assert_eq!(judged(&service("LoadBalancer", &ip)).0, Healthy);
        let ingress = |status: Value| object("networking.k8s.io/v1", "Ingress", json!({}), status);
        assert_eq!(judged(&ingress(json!({}))).1, "NoAddress");
        assert_eq!(judged(&ingress(with_addresses(json!([{"hostname": "h"}])))).0, Healthy);
        assert_eq!(judged(&ingress(with_addresses(json!([{"ports": []}])))).0, Progressing);
    }

    #[test]
    fn addresses_of_all_members_come_together_as_they_are() {
        for (api_version, kind) in [("v1", "Service"), ("networking.k8s.io/v1", "Ingress")] {
            let template = object(api_version, kind, json!({"type": "LoadBalancer"}), json!({}));
            let status = aggregated(
                &template,
                &[
                    ("east", with_addresses(json!([{"ip": "1.1.1.1"}]))),
                    ("north", Value::Null),
                    (
                        "west",
                        with_addresses(
                            json!([{"ip": "2.2.2.2", "hostname": "h"}, {"ip": "2.2.2.3"}]),
                        ),
                    ),
                ],
            );
            let expected = with_addresses(json!([
                {"ip": "1.1.1.1"}, {"ip": "2.2.2.2", "hostname": "h"}, {"ip": "2.2.2.3"},
            ]));
            assert_eq!(status, expected);
            assert_eq!(aggregated(&template, &[]), json!({"loadBalancer": {}}));
        }
    }

    #[test]
    fn a_conflict_of_ports_in_one_member_shows() {
        let template = object("v1", "Service", json!({}), json!({}));
        let conflict = json!({"conditions": [
            {"type": "LoadBalancerPortsError", "status": "True", "reason": "Taken"},
        ]});
        let status =
            aggregated(&template, &[("east", json!({"loadBalancer": {}})), ("west", conflict)]);
        assert_eq!(status["conditions"][0]["message"], "LoadBalancerPortsError is True in west");
    }
}
