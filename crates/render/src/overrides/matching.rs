//! Which objects and clusters a policy selects, and how strongly.

use std::collections::BTreeMap;

use atoll_api::Cluster;
use atoll_api::policy::ResourceSelector;
use atoll_api::selector::{Requirement, Selector};
use serde::Deserialize;
use serde_json::Value;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::policy::PolicyError;

/// The properties of a member by which rules select it and from which values are computed. They come from the
/// Cluster's metadata and spec, never from its status, so that a report of the member changes no manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterProperties {
    /// Name of the Cluster.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.provider`.
    pub provider: Option<String>,
    /// `spec.region`.
    pub region: Option<String>,
    /// `spec.zones`.
    pub zones: Vec<String>,
}

impl From<&Cluster> for ClusterProperties {
    fn from(cluster: &Cluster) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            name: cluster.metadata.name.clone().unwrap_or_default(),
            labels: cluster.metadata.labels.clone().unwrap_or_default(),
            provider: given(&cluster.spec.provider),
            region: given(&cluster.spec.region),
            zones: cluster.spec.zones.clone(),
        }
    }
}

impl ClusterProperties {
    /// Reads a Cluster of Atoll or Karmada. Karmada's deprecated `spec.zone` counts as one of `spec.zones`.
    ///
    /// # Errors
    /// A field of the wrong type.
    pub fn read(cluster: &Value) -> Result<Self, PolicyError> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: String,
            #[serde(default)]
            labels: Option<BTreeMap<String, String>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Spec {
            provider: Option<String>,
            region: Option<String>,
            zone: Option<String>,
            zones: Option<Vec<String>>,
        }
        let Wire { metadata, spec } =
            Wire::deserialize(cluster).map_err(|error| PolicyError::new("cluster", error))?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let mut zones = spec.zones.unwrap_or_default();
        zones.extend(
            given(spec.zone).filter(|zone| !zones.contains(zone)).into_iter().collect::<Vec<_>>(),
        );
        Ok(Self {
            name: metadata.name,
            labels: metadata.labels.unwrap_or_default(),
            provider: given(spec.provider),
            region: given(spec.region),
            zones,
        })
    }

    /// The value of a field with at most one value.
    fn field(&self, key: &str) -> Option<&str> {
        match key {
            "provider" => self.provider.as_deref(),
            "region" => self.region.as_deref(),
            _ => None,
        }
    }
}

/// How specifically a policy selects an object. Later variants are stronger and are applied later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    All,
    Labels,
    Name,
}

/// One entry of `spec.resourceSelectors`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObjectSelector {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    which: Which,
}

#[derive(Debug, Clone, PartialEq)]
enum Which {
    All,
    Labels(Selector),
    Name(String),
    /// The label selector is invalid.
    Nothing,
}

impl ObjectSelector {
    pub(super) fn of(selector: &ResourceSelector) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let which = match (given(&selector.name), &selector.label_selector) {
            (Some(name), _) => Which::Name(name),
            (None, None) => Which::All,
            (None, Some(labels)) => Selector::parse(labels).map_or(Which::Nothing, Which::Labels),
        };
        Self {
            api_version: selector.api_version.clone(),
            kind: selector.kind.clone(),
            namespace: given(&selector.namespace),
            which,
        }
    }

    /// How strongly the object is selected; `None` if it is not.
    pub(super) fn selects(&self, object: &Value) -> Option<Strength> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let is = |field: &str, want: &str| {
            object.get(field).and_then(Value::as_str).is_some_and(|text| text == want)
        };
        if !is("apiVersion", &self.api_version) || !is("kind", &self.kind) {
            return None;
        }
        let metadata = object.get("metadata")?;
        if self.namespace.is_some() && self.namespace != text(metadata.get("namespace")) {
            return None;
        }
        match &self.which {
            Which::All => Some(Strength::All),
            Which::Name(name) => (metadata.get("name").and_then(Value::as_str) == Some(name))
                .then_some(Strength::Name),
            Which::Labels(selector) => {
                let labels = metadata.get("labels");
                let matches =
                    selector.matches_by(|key| labels.and_then(|labels| labels.get(key)?.as_str()));
                matches.then_some(Strength::Labels)
            }
            Which::Nothing => None,
        }
    }
}

/// The clusters of a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Target {
    names: Vec<String>,
    exclude: Vec<String>,
    labels: Option<Selector>,
    fields: Vec<Requirement>,
    zones: Vec<Zones>,
    /// A selector is invalid, so that no cluster is selected, as in Karmada.
    nothing: bool,
    /// The problems of the selectors, with their fields.
    pub(super) problems: Vec<(String, String)>,
}

/// A requirement on a cluster's zones.
#[derive(Debug, Clone, PartialEq)]
enum Zones {
    Any(Vec<String>),
    None(Vec<String>),
    Some,
    Nothing,
}

/// A field selector whose keys and operators are not checked yet.
#[derive(Deserialize, Default)]
struct LooseFields {
    #[serde(default, rename = "matchExpressions")]
    expressions: Option<Vec<LooseRequirement>>,
}

#[derive(Deserialize)]
struct LooseRequirement {
    #[serde(default)]
    key: String,
    #[serde(default)]
    operator: String,
    #[serde(default)]
    values: Option<Vec<String>>,
}

/// `ClusterAffinity` with a field selector that may have any keys and operators.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LooseAffinity {
    label_selector: Option<LabelSelector>,
    field_selector: Option<LooseFields>,
    cluster_names: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
}

impl Target {
    /// Reads a `targetCluster`. Absent, it selects every cluster.
    pub(super) fn read(target: Option<&Value>) -> Result<Self, serde_json::Error> {
        let Some(target) = target.filter(|target| !target.is_null()) else {
            return Ok(Self::default());
        };
        let loose = LooseAffinity::deserialize(target)?;
        let mut read = Self {
            names: loose.cluster_names.unwrap_or_default(),
            exclude: loose.exclude.unwrap_or_default(),
            ..Self::default()
        };
        if let Some(selector) = &loose.label_selector {
            match Selector::parse(selector) {
                Ok(selector) => read.labels = Some(selector),
                Err(error) => read.invalid("labelSelector".to_owned(), error.to_string()),
            }
        }
        let expressions = loose.field_selector.and_then(|fields| fields.expressions);
        for (at, requirement) in expressions.unwrap_or_default().into_iter().enumerate() {
            read.require(at, requirement);
        }
        Ok(read)
    }

    fn require(&mut self, at: usize, requirement: LooseRequirement) {
        let LooseRequirement { key, operator, values } = requirement;
        let values = values.unwrap_or_default();
        let field = format!("fieldSelector.matchExpressions[{at}]");
        // An unknown field is absent from every cluster, as in Karmada.
        if !matches!(key.as_str(), "provider" | "region" | "zone") {
            let problem = format!("key {key:?} must be provider, region or zone");
            self.problems.push((format!("{field}.key"), problem));
        }
        if key == "zone" {
            match operator.as_str() {
                "In" => return self.zones.push(Zones::Any(values)),
                "NotIn" => return self.zones.push(Zones::None(values)),
                "Exists" => return self.zones.push(Zones::Some),
                "DoesNotExist" => return self.zones.push(Zones::Nothing),
                _ => {}
            }
        }
        match Requirement::parse(&key, &operator, &values) {
            Ok(requirement) => self.fields.push(requirement),
            Err(error) => self.invalid(field, error.to_string()),
        }
    }

    fn invalid(&mut self, field: String, problem: String) {
        self.nothing = true;
        self.problems.push((field, problem));
    }

    /// Whether the cluster is selected.
    pub(super) fn selects(&self, cluster: &ClusterProperties) -> bool {
        let label = |key: &str| cluster.labels.get(key).map(String::as_str);
        !self.nothing
            && !self.exclude.contains(&cluster.name)
            && (self.names.is_empty() || self.names.contains(&cluster.name))
            && self.labels.as_ref().is_none_or(|selector| selector.matches_by(label))
            && self.fields.iter().all(|field| field.accepts(cluster.field(field.key())))
            && self.zones.iter().all(|zones| zones.accept(&cluster.zones))
    }

    /// Whether `exclude` names every cluster that `clusterNames` names.
    pub(super) fn excludes_all(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| self.exclude.contains(name))
    }
}

impl Zones {
    fn accept(&self, zones: &[String]) -> bool {
        let listed = |values: &[String]| zones.iter().any(|zone| values.contains(zone));
        match self {
            Self::Any(values) => listed(values),
            Self::None(values) => !listed(values),
            Self::Some => !zones.is_empty(),
            Self::Nothing => zones.is_empty(),
        }
    }
}
