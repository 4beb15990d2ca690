//! The objects that an object's pods need to start.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    kind::Kind,
    pod,
    read::{list, text},
    third_party,
};

/// A reference to an object by name, or to all objects with some labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DependentRef {
    /// For example `v1`.
    pub api_version: Cow<'static, str>,
    /// For example `ConfigMap`.
    pub kind: Cow<'static, str>,
    /// Namespace of the referring object.
    pub namespace: String,
    /// Name; empty if the labels select the objects.
    pub name: String,
    /// Labels that the objects have; empty for a reference by name.
    pub match_labels: BTreeMap<String, String>,
}

/// Paths at which a volume refers to a Secret.
const VOLUME_SECRETS: [&[&str]; 10] = [
    &["secret", "secretName"],
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
];

/// Every cluster creates it in every namespace, so it is never propagated.
const ROOT_CA: &str = "kube-root-ca.crt";
const DEFAULT_ACCOUNT: &str = "default";

/// Label of an EndpointSlice: the Service whose endpoints it has.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Prefix of the Service that a ServiceImport creates on members.
const DERIVED_SERVICE: &str = "derived-";

/// The ConfigMaps, Secrets, PersistentVolumeClaims and ServiceAccounts that an object's pods refer to, the Secrets of
/// an Ingress's TLS, and the Service of a ServiceImport with its EndpointSlices; in order. Objects that every cluster
/// creates itself are left out, and so are the claims that a StatefulSet creates from its templates. Each is listed
/// once, but the Secret of an Ingress as often as the Ingress names it.
#[must_use]
pub fn dependencies(obj: &Value) -> Vec<DependentRef> {
    let mut found = Found { namespace: text(obj, &["metadata", "namespace"]), refs: Vec::new() };
    let kind = Kind::of(obj);
    if !(kind == Kind::Other && third_party::dependencies(obj, &mut found))
        && let Some(template) = pod::template(obj)
    {
        found.pod(&template["spec"]);
    }
    found.refs.sort_unstable();
    found.refs.dedup();
    match kind {
        Kind::Ingress => {
            for tls in list(obj, &["spec", "tls"]) {
                found.add("Secret", text(tls, &["secretName"]));
            }
        }
        Kind::ServiceImport => found.derived_service(text(obj, &["metadata", "name"])),
        _ => {}
    }
    if kind == Kind::StatefulSet {
        let made: Vec<&str> = list(obj, &["spec", "volumeClaimTemplates"])
            .iter()
            .map(|claim| text(claim, &["metadata", "name"]))
            .collect();
        found
            .refs
            .retain(|r| r.kind != "PersistentVolumeClaim" || !made.contains(&r.name.as_str()));
    }
    found.refs.sort_unstable();
    found.refs
}

/// The references found so far.
pub(crate) struct Found<'a> {
    namespace: &'a str,
    refs: Vec<DependentRef>,
}

impl Found<'_> {
    pub(crate) fn add(&mut self, kind: &'static str, name: &str) {
        let everywhere = (kind == "ConfigMap" && name == ROOT_CA)
            || (kind == "ServiceAccount" && name == DEFAULT_ACCOUNT);
        if !name.is_empty() && !everywhere {
            self.refs.push(DependentRef {
                api_version: Cow::Borrowed("v1"),
                kind: Cow::Borrowed(kind),
                namespace: self.namespace.to_owned(),
                name: name.to_owned(),
                match_labels: BTreeMap::new(),
            });
        }
    }

    fn derived_service(&mut self, import: &str) {
        if import.is_empty() {
            return;
        }
        let service = format!("{DERIVED_SERVICE}{import}");
        self.add("Service", &service);
        self.refs.push(DependentRef {
            api_version: Cow::Borrowed("discovery.k8s.io/v1"),
            kind: Cow::Borrowed("EndpointSlice"),
            namespace: self.namespace.to_owned(),
            name: String::new(),
            match_labels: BTreeMap::from([(SERVICE_NAME.to_owned(), service)]),
        });
    }

    pub(crate) fn pod(&mut self, spec: &Value) {
        for secret in list(spec, &["imagePullSecrets"]) {
            self.add("Secret", text(secret, &["name"]));
        }
        for volume in list(spec, &["volumes"]) {
            self.volume(volume);
        }
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            for container in list(spec, &[kind]) {
                self.container(container);
            }
        }
        // An API server copies the old field `serviceAccount` to the new one.
        self.add("ServiceAccount", text(spec, &["serviceAccountName"]));
    }

    fn volume(&mut self, volume: &Value) {
        for path in VOLUME_SECRETS {
            self.add("Secret", text(volume, path));
        }
        self.add("ConfigMap", text(volume, &["configMap", "name"]));
        self.add("PersistentVolumeClaim", text(volume, &["persistentVolumeClaim", "claimName"]));
        for source in list(volume, &["projected", "sources"]) {
            self.add("Secret", text(source, &["secret", "name"]));
            self.add("ConfigMap", text(source, &["configMap", "name"]));
        }
    }

    fn container(&mut self, container: &Value) {
        for from in list(container, &["envFrom"]) {
            self.add("Secret", text(from, &["secretRef", "name"]));
            self.add("ConfigMap", text(from, &["configMapRef", "name"]));
        }
        for variable in list(container, &["env"]) {
            self.add("Secret", text(variable, &["valueFrom", "secretKeyRef", "name"]));
            self.add("ConfigMap", text(variable, &["valueFrom", "configMapKeyRef", "name"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(obj: &Value) -> Vec<String> {
        dependencies(obj).iter().map(|r| format!("{}/{}", r.kind, r.name)).collect()
    }

    fn pod() -> Value {
        json!({
            "serviceAccountName": "runner",
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "tls"}},
                {"name": "b", "configMap": {"name": "conf"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "d", "projected": {"sources": [
                    {"secret": {"name": "p-secret"}}, {"configMap": {"name": "kube-root-ca.crt"}},
                    {"serviceAccountToken": {}},
                ]}},
                {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "f", "emptyDir": {}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "conf"}}]}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "from"}}], "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}},
            ]}],
        })
    }

    #[test]
    fn everything_that_a_pod_template_names_once() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop"},
            "spec": {"template": {"spec": pod()}},
        });
        let expected = [
            "ConfigMap/conf",
            "ConfigMap/map",
            "PersistentVolumeClaim/data",
            "Secret/csi",
            "Secret/from",
            "Secret/key",
            "Secret/p-secret",
            "Secret/pull",
            "Secret/tls",
            "ServiceAccount/runner",
        ];
        assert_eq!(names(&deployment), expected);
        assert!(dependencies(&deployment).iter().all(|r| r.namespace == "shop"));
    }

    #[test]
    fn a_stateful_set_does_not_depend_on_the_claims_that_it_makes() {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": {
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
                "template": {"spec": {"serviceAccountName": "default", "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "other", "persistentVolumeClaim": {"claimName": "shared"}},
                ]}},
            },
        });
        assert_eq!(names(&set), ["PersistentVolumeClaim/shared"]);
    }

    #[test]
    fn an_ingress_depends_on_its_certificates_and_a_cron_job_on_its_pods() {
        let ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "spec": {"tls": [{"secretName": "cert"}, {"hosts": ["a"]}]},
        });
        assert_eq!(names(&ingress), ["Secret/cert"]);
        let cron = json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "spec": {"jobTemplate": {"spec": {"template": {"spec": {"serviceAccountName": "old"}}}}},
        });
        assert_eq!(names(&cron), ["ServiceAccount/old"]);
        assert!(names(&json!({"apiVersion": "v1", "kind": "ConfigMap"})).is_empty());
    }
}
