//! The manifests of the hub side. `atoll install`, `deploy/kustomize` and the Helm chart are made from these templates.
//!
//! Rights and policies do not depend on flags, apart from the namespace: their source is the commented YAML in
//! `deploy/controller`. What depends on flags is built here.

mod bundled;
mod namespace;
mod observe;
mod options;
mod restore;
mod workload;

use atoll_api::marks::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

pub use bundled::{
    BUNDLED, CERTIFICATES, CONTROLLER_KUBECONFIG, HUB, HUB_PORT, hub_names, hub_objects,
};
pub use observe::dashboards;
pub use options::{Address, Error, History, Hub, Options, ServiceType};
pub use restore::restore;
pub use workload::{
    API_PORT, API_SERVICE, CONTROLLER, HEALTH_PORT, HISTORY_KEY, METRICS_PORT, record_of,
};

/// The image that the README builds.
pub const IMAGE: &str = concat!("atoll:", env!("CARGO_PKG_VERSION"));
/// Name of the ConfigMap in `atoll-system` that records how Atoll was installed.
pub const RECORD: &str = "atoll-install";
/// Port on which agents connect, unless the address for agents names another one.
pub const AGENTS_PORT: u16 = 7443;

const RBAC: &str = include_str!("../../../deploy/controller/rbac.yaml");
const USERS: &str = include_str!("../../../deploy/controller/users.yaml");
const SECRETS: &str = include_str!("../../../deploy/controller/secrets.yaml");
const KINDS: &str = include_str!("../../../deploy/controller/kinds.yaml");
const REPLICA_SYNC: &str = include_str!("../../../deploy/controller/replica-sync.yaml");
const PROTECTION: &str = include_str!("../../../deploy/controller/deletion-protection.yaml");
const NETWORK: &str = include_str!("../../../deploy/controller/network.yaml");
const API: &str = include_str!("../../../deploy/controller/api.yaml");

/// Objects that belong together: one file of the generated forms.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Name of the file, without its ending.
    pub name: &'static str,
    /// What the objects are for, as YAML comment lines.
    pub comment: String,
    /// The objects, in the order in which they must be applied.
    pub objects: Vec<Value>,
}

/// All parts, in the order in which they must be applied.
///
/// # Errors
/// When options contradict each other or are invalid.
pub fn parts(options: &Options) -> Result<Vec<Part>, Error> {
    options.check()?;
    match &options.hub {
        Hub::Existing => all_parts(options),
        Hub::Bundled { volume } => {
            let mut parts = bundled::host_parts(options, volume)?;
            if options.service_monitor {
                parts.push(workload::monitoring(options));
            }
            if options.observe {
                parts.push(observe::part(options)?);
            }
            Ok(parts)
        }
    }
}

/// The same without the check, for generators that put placeholders in place of values.
///
/// # Errors
/// When a template cannot be read.
pub fn all_parts(options: &Options) -> Result<Vec<Part>, Error> {
    let mut parts = vec![crds()?, fixed("rbac", RBAC, options)?, fixed("users", USERS, options)?];
    if options.secrets {
        parts.push(fixed("secrets", SECRETS, options)?);
    }
    if options.cluster_kinds {
        parts.push(fixed("kinds", KINDS, options)?);
    }
    if options.replica_sync {
        parts.push(fixed("replica-sync", REPLICA_SYNC, options)?);
    }
    parts.push(fixed("deletion-protection", PROTECTION, options)?);
    parts.push(network(options)?);
    parts.push(workload::part(options));
    parts.push(fixed("api", API, options)?);
    if options.service_monitor {
        parts.push(workload::monitoring(options));
    }
    if options.observe {
        parts.push(observe::part(options)?);
    }
    Ok(parts)
}

/// The parts as one stream of YAML documents.
///
/// # Errors
/// When an object cannot be written.
pub fn text(parts: &[Part]) -> Result<String, Error> {
    let texts: Result<Vec<String>, Error> = parts.iter().map(Part::text).collect();
    Ok(texts?.join("---\n"))
}

impl Part {
    /// The documents of this part, after its comment.
    ///
    /// # Errors
    /// When an object cannot be written.
    pub fn text(&self) -> Result<String, Error> {
        let mut text = self.comment.clone();
        for (at, object) in self.objects.iter().enumerate() {
            if at > 0 {
                text.push_str("---\n");
            }
            let object = serde_saphyr::to_string(object)
                .map_err(|error| Error::template(self.name, &error))?;
            text.push_str(object.trim_end());
            text.push('\n');
        }
        Ok(text)
    }
}

fn crds() -> Result<Part, Error> {
    let objects: Result<Vec<Value>, _> =
        atoll_api::crds::all().iter().map(serde_json::to_value).collect();
    Ok(Part {
        name: "crds",
        comment: "# Atoll's kinds.\n".to_owned(),
        objects: objects.map_err(|error| Error::template("crds", &error))?,
    })
}

/// A part whose objects depend on the namespace only.
fn fixed(name: &'static str, source: &str, options: &Options) -> Result<Part, Error> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(source).map_err(|error| Error::template(name, &error))?;
    let objects = match options.namespace.as_str() {
        SYSTEM_NAMESPACE => objects,
        namespace => namespace::moved(objects, namespace),
    };
    let comment: String = source
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(Part { name, comment, objects })
}

/// Metrics are read from the namespace that the options name.
fn network(options: &Options) -> Result<Part, Error> {
    let mut part = fixed("network", NETWORK, options)?;
    for object in &mut part.objects {
        let rules = object["spec"]["ingress"].as_array_mut().into_iter().flatten();
        for rule in rules.filter(|rule| rule["ports"][0]["port"] == "metrics") {
            rule["from"] = json!([{"namespaceSelector": {"matchLabels": {
                "kubernetes.io/metadata.name": options.metrics_namespace,
            }}}]);
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests;
