//! Karmada's members and those of Atoll's hub.

use std::collections::{BTreeMap, BTreeSet};

use atoll_convert::Converter;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::check::{Finding, Severity};
use crate::estate::Estate;
use crate::hub::is_made;
use crate::{FROM, FROM_KARMADA};

/// Members that hold an object which moves, and that do not serve Atoll as they serve Karmada. `hub`: the Clusters of
/// Atoll's hub, by name.
#[must_use]
pub fn findings(
    converter: &Converter,
    estate: &Estate,
    hub: &BTreeMap<String, Value>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in holders(estate) {
        let mut blocks = |problem: String| {
            found.push(Finding {
                severity: Severity::Blocks,
                object: format!("Cluster {name}"),
                problem,
            });
        };
        let known = cluster_of(estate, name);
        let theirs = known.and_then(|cluster| converter.convert(cluster.clone()).object);
        let (Some(known), Some(theirs)) = (known, theirs) else {
            blocks("Karmada places work on it but does not have it".to_owned());
            continue;
        };
        let Some(ours) = hub.get(name) else {
            let or = match Access::of(known) {
                Ok(_) => ", or `prepare --take-credentials`, with which Atoll uses Karmada's",
                Err(_) => "",
            };
            blocks(format!(
                "it has not joined Atoll: `{}`, with `--rights workloads,proxy -o yaml` so that `verify` and `finish` reach it \
                 through the hub{or}",
                join(name, &theirs)
            ));
            continue;
        };
        for problem in unlike(&theirs, ours) {
            blocks(problem);
        }
        if !is_ready(ours) {
            blocks("it is not Ready on Atoll's hub: `atoll get members` says why".to_owned());
        }
    }
    found
}

/// The members that hold what moves.
#[must_use]
pub fn holders(estate: &Estate) -> BTreeSet<&str> {
    estate.moving().flat_map(|binding| binding.holders().collect::<Vec<_>>()).collect()
}

fn cluster_of<'a>(estate: &'a Estate, name: &str) -> Option<&'a Value> {
    estate.clusters.iter().find(|cluster| cluster["metadata"]["name"] == name)
}

/// Members that hold an object which moves and that have not joined, with the Cluster that Atoll's hub would get and how
/// Karmada reaches them. One that an earlier run registered is among them until it has joined.
#[must_use]
pub fn to_take<'a>(
    converter: &Converter,
    estate: &'a Estate,
    hub: &BTreeMap<String, Value>,
) -> Vec<(Value, Result<Access<'a>, String>)> {
    let waits = |name: &&str| match hub.get(*name) {
        None => true,
        Some(ours) => is_made(ours) && ours["status"]["clusterId"].is_null(),
    };
    let mut found = Vec::new();
    for name in holders(estate).into_iter().filter(waits) {
        let Some(known) = cluster_of(estate, name) else { continue };
        if let Some(mut cluster) = converter.convert(known.clone()).object {
            cluster["metadata"]["annotations"][FROM] = json!(FROM_KARMADA);
            found.push((cluster, Access::of(known)));
        }
    }
    found
}

/// How Karmada reaches a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access<'a> {
    /// Namespace of the Secret with its credentials.
    pub namespace: &'a str,
    /// Name of that Secret.
    pub secret: &'a str,
    server: &'a str,
    insecure: bool,
}

/// Keys of that Secret.
const TOKEN: &str = "token";
const AUTHORITY: &str = "caBundle";

impl<'a> Access<'a> {
    /// # Errors
    /// Why Atoll cannot use it.
    fn of(cluster: &'a Value) -> Result<Self, String> {
        let spec = &cluster["spec"];
        let text = |value: &'a Value| value.as_str().filter(|text| !text.is_empty());
        if spec["syncMode"] == "Pull" {
            return Err("an agent serves it (syncMode Pull), so Karmada has no credentials of it"
                .to_owned());
        }
        if text(&spec["proxyURL"]).is_some() {
            return Err("Karmada reaches it through a proxy (spec.proxyURL), which Atoll has not"
                .to_owned());
        }
        let missing = |field: &str| format!("spec.{field} is missing in Karmada");
        let reference = &spec["secretRef"];
        Ok(Self {
            namespace: text(&reference["namespace"])
                .ok_or_else(|| missing("secretRef.namespace"))?,
            secret: text(&reference["name"]).ok_or_else(|| missing("secretRef.name"))?,
            server: text(&spec["apiEndpoint"]).ok_or_else(|| missing("apiEndpoint"))?,
            insecure: spec["insecureSkipTLSVerification"] == true,
        })
    }

    /// A kubeconfig with the credentials in the Secret.
    ///
    /// # Errors
    /// What the Secret lacks.
    pub fn kubeconfig(&self, secret: &Secret) -> Result<Value, String> {
        let data = secret.data.as_ref();
        let given = |key: &str| {
            let value = data.and_then(|data| data.get(key)).filter(|value| !value.0.is_empty());
            value.ok_or_else(|| format!("Secret {}/{} has no {key}", self.namespace, self.secret))
        };
        let token = std::str::from_utf8(&given(TOKEN)?.0).map_err(|_| {
            format!("Secret {}/{}: {TOKEN} is no text", self.namespace, self.secret)
        })?;
        let cluster = match self.insecure {
            true => json!({"server": self.server, "insecure-skip-tls-verify": true}),
            false => {
                json!({"server": self.server, "certificate-authority-data": given(AUTHORITY)?})
            }
        };
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "member",
            "contexts": [{"name": "member", "context": {"cluster": "member", "user": "member"}}],
            "clusters": [{"name": "member", "cluster": cluster}],
            "users": [{"name": "member", "user": {"token": token.trim()}}],
        }))
    }
}

/// Whether a Cluster of the hub is Ready.
#[must_use]
pub fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether the agent of a Cluster of the hub runs beside the controller. The hub has no way to such a member for users.
#[must_use]
pub fn is_hosted(cluster: &Value) -> bool {
    cluster["spec"]["mode"] == "Hosted"
}

/// The command with which the member joins.
fn join(name: &str, cluster: &Value) -> String {
    let mut command = format!("atoll join {name}");
    let spec = &cluster["spec"];
    for field in ["provider", "region"] {
        if let Some(value) = spec[field].as_str().filter(|value| !value.is_empty()) {
            command.push_str(&format!(" --{field} {value}"));
        }
    }
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
    let zones = spec["zones"].as_array().into_iter().flatten();
    let zones = zones.filter_map(Value::as_str).map(str::to_owned).collect();
    let labels = labels(cluster).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let taints = spec["taints"].as_array().into_iter().flatten();
    let taints = taints.map(|taint| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let value = match text("value") {
            "" => String::new(),
            value => format!("={value}"),
        };
        format!("{}{value}:{}", text("key"), text("effect"))
    });
    for (flag, value) in
        [("zones", list(zones)), ("labels", list(labels)), ("taints", list(taints.collect()))]
    {
        if let Some(value) = value {
            command.push_str(&format!(" --{flag} {value}"));
        }
    }
    command
}

fn labels(cluster: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(cluster["metadata"]["labels"].clone()).unwrap_or_default()
}

/// What policies and overrides may select by, and that differs.
fn unlike(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let here = labels(ours);
    for (key, value) in labels(theirs) {
        if here.get(&key) != Some(&value) {
            found.push(format!(
                "it lacks the label {key}={value} on Atoll's hub: `kubectl label clusters.cluster.atoll.dev {} {key}={value}`",
                ours["metadata"]["name"].as_str().unwrap_or_default()
            ));
        }
    }
    for field in ["provider", "region", "zones"] {
        let (wanted, given) = (&theirs["spec"][field], &ours["spec"][field]);
        let is_nothing = |value: &Value| {
            value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty)
        };
        if wanted != given && !is_nothing(wanted) {
            found.push(format!(
                "spec.{field} is {wanted} in Karmada and {given} on Atoll's hub: make them equal"
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn cluster(spec: Value) -> Value {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"}, "spec": spec})
    }

    #[test]
    fn karmadas_credentials_become_a_kubeconfig_or_the_reason_why_not_is_given() {
        let reference = json!({"namespace": "karmada-cluster", "name": "m1"});
        let push = json!({"syncMode": "Push", "apiEndpoint": "https://192.0.2.1:6443", "secretRef": reference});
        let with = |field: &str, value: Value| {
            let mut spec = push.clone();
            spec[field] = value;
            cluster(spec)
        };
        let secret =
            |data: Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
        // "CA" and "secret" with a line end.
        let whole = secret(json!({"caBundle": "Q0E=", "token": "c2VjcmV0Cg=="}));

        let verified = cluster(push.clone());
        let config = Access::of(&verified).unwrap().kubeconfig(&whole).unwrap();
        assert_eq!(
            config["clusters"][0]["cluster"],
            json!({"server": "https://192.0.2.1:6443", "certificate-authority-data": "Q0E="})
        );
        assert_eq!(config["users"][0]["user"], json!({"token": "secret"}));
        let trusted = with("insecureSkipTLSVerification", json!(true));
        let config = Access::of(&trusted).unwrap().kubeconfig(&whole).unwrap();
        assert_eq!(
            config["clusters"][0]["cluster"],
            json!({"server": "https://192.0.2.1:6443", "insecure-skip-tls-verify": true})
        );

        let access = Access::of(&verified).unwrap();
        for (data, key) in [
            (json!({"token": "YQ=="}), "caBundle"),
            (json!({"caBundle": "YQ==", "token": ""}), "token"),
        ] {
            let why = access.kubeconfig(&secret(data)).unwrap_err();
            assert_eq!(why, format!("Secret karmada-cluster/m1 has no {key}"));
        }
        for (field, value, why) in [
            ("syncMode", json!("Pull"), "syncMode Pull"),
            ("proxyURL", json!("http://192.0.2.9:3128"), "spec.proxyURL"),
            ("apiEndpoint", json!(""), "spec.apiEndpoint is missing"),
            ("secretRef", Value::Null, "spec.secretRef.namespace is missing"),
        ] {
            assert!(Access::of(&with(field, value)).unwrap_err().contains(why), "{field}");
        }
    }
}
