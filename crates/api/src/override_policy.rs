//! `OverridePolicy` and `ClusterOverridePolicy`: how objects differ from their template on some members.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::ClusterAffinity;
use crate::policy::ResourceSelector;

/// Changes objects of its namespace on the way to members.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "OverridePolicy",
    plural = "overridepolicies",
    shortname = "op",
    category = "atoll",
    namespaced,
    status = "OverridePolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Matched","type":"integer","jsonPath":".status.matched"}"#,
    printcolumn = r#"{"name":"Applied","type":"integer","jsonPath":".status.applied"}"#,
    printcolumn = r#"{"name":"Failing","type":"integer","jsonPath":".status.failing"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicySpec {
    /// The objects to change. An object that matches any entry is selected. Empty = all objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// The changes, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub override_rules: Vec<OverrideRule>,
    /// Deprecated: use overrideRules. The clusters of `overriders`. Ignored if there are overrideRules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// Deprecated: use overrideRules. One rule for the clusters of `targetCluster`. Ignored if there are overrideRules.
    #[serde(default, skip_serializing_if = "Overriders::is_empty")]
    pub overriders: Overriders,
}

crate::twin::cluster_scoped_twin!(
    /// Changes cluster-scoped objects and objects of any namespace on the way to members.
    ClusterOverridePolicy of OverridePolicy { OverridePolicySpec, OverridePolicyStatus },
    "clusteroverridepolicies", "cop"
);

/// Changes for some clusters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideRule {
    /// The clusters of this rule. Default: all clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// The changes.
    #[serde(default)]
    pub overriders: Overriders,
}

/// Changes by type. They are made in this order: image, command, args, labels, annotations, field, plaintext.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// Changes parts of images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub image_overrider: Vec<ImageOverrider>,
    /// Changes the command of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Changes the arguments of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Changes the labels of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes the annotations of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes JSON or YAML that is the text of a field, for example in the data of a ConfigMap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub field_overrider: Vec<FieldOverrider>,
    /// Changes any field by its path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub plaintext: Vec<PlaintextOverrider>,
}

impl Overriders {
    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverriderOperator {
    /// Adds the value.
    Add,
    /// Removes the value.
    Remove,
    /// Replaces the value.
    Replace,
}

/// Changes one component of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrider {
    /// The one image to change. Absent: the images of `scope`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// The images to change if there is no predicate. Default Containers.
    #[serde(default, skip_serializing_if = "ImageScope::is_default")]
    pub scope: ImageScope,
    /// The component to change.
    pub component: ImageComponent,
    /// `add` appends the value to the component, `replace` sets it, `remove` removes it.
    pub operator: OverriderOperator,
    /// The value; none for `remove`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub value: String,
    /// Computes the value from properties of the cluster, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// The images that an image overrider without predicate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ImageScope {
    /// The containers of a Pod, ReplicaSet, Deployment, StatefulSet, DaemonSet or Job, without init and ephemeral
    /// containers, as in Karmada.
    #[default]
    Containers,
    /// Containers, init containers and ephemeral containers of every kind with a pod template.
    AllContainers,
}

impl ImageScope {
    fn is_default(&self) -> bool {
        *self == Self::Containers
    }
}

/// Selects one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePredicate {
    /// JSON pointer to the image, for example `/spec/template/spec/initContainers/0/image`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// A component of an image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageComponent {
    /// Host and port: `registry.example.com:5000` in `registry.example.com:5000/team/app:1.0`.
    Registry,
    /// `team/app` in `registry.example.com:5000/team/app:1.0`.
    Repository,
    /// Tag or digest: `1.0` in `registry.example.com:5000/team/app:1.0`.
    Tag,
}

/// Changes the command or the arguments of the containers with one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandArgsOverrider {
    /// Name of the container.
    #[schemars(length(min = 1, max = 253))]
    pub container_name: String,
    /// `add` appends the values, `remove` removes every word that equals one of them.
    pub operator: AddOrRemove,
    /// The words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub value: Vec<String>,
}

/// The type of a change of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddOrRemove {
    /// Appends words.
    Add,
    /// Removes words.
    Remove,
}

/// Changes labels or annotations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelAnnotationOverrider {
    /// `add` sets the entries. `replace` and `remove` change only entries whose key exists; values do not matter for
    /// `remove`.
    pub operator: OverriderOperator,
    /// The entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub value: BTreeMap<String, String>,
}

/// Changes JSON or YAML that is the text of a field. If both `yaml` and `json` are given, `json` is ignored, as in
/// Karmada.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    /// JSON pointer to the text field, for example `/data/config.json`.
    #[schemars(length(min = 1, max = 1024))]
    pub field_path: String,
    /// Changes of a text that is JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub json: Vec<SubPathOperation>,
    /// Changes of a text that is YAML. Comments are lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub yaml: Vec<SubPathOperation>,
}

/// A change of one value within a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubPathOperation {
    /// JSON pointer to the value within the text.
    #[schemars(length(min = 1, max = 1024))]
    pub sub_path: String,
    /// The change.
    pub operator: OverriderOperator,
    /// The value; none for `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub value: Option<Value>,
}

/// Changes one field by its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaintextOverrider {
    /// JSON pointer to the field, for example `/spec/template/spec/containers/0/imagePullPolicy`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// `add` sets a field or inserts into a list, `replace` sets a field that exists, `remove` removes it.
    pub operator: OverriderOperator,
    /// The value; none for `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub value: Option<Value>,
    /// Computes the value from properties of the cluster, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValueFrom {
    /// Properties of the member's Cluster.
    pub cluster: ClusterValue,
}

/// A value computed from a Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterValue {
    /// CEL expression over `cluster`, which has name, labels, provider, region and zones, for example
    /// `cluster.region + '.registry.example.com'`.
    #[schemars(length(min = 1, max = 1024))]
    pub cel: String,
}

/// Status of an override policy, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicyStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Propagated templates that the selectors match.
    #[serde(default)]
    pub matched: i64,
    /// Members on which a rule of this policy is applied to at least one object.
    #[serde(default)]
    pub applied: i64,
    /// Objects on members that a rule of this policy holds back because it cannot be applied.
    #[serde(default)]
    pub failing: i64,
    /// The first of these objects; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub failures: Vec<OverrideFailure>,
}

/// An object that is held back on one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideFailure {
    /// Name of the member's Cluster.
    pub cluster: String,
    /// The object, for example `Deployment.apps shop/web`.
    pub object: String,
    /// Index of the rule in `spec.overrideRules`; 0 for the deprecated `spec.overriders`.
    pub rule: i64,
    /// The field and its problem.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_reading_and_writing() {
        let spec = serde_json::json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "overrideRules": [{
                "targetCluster": {"clusterNames": ["member1"]},
                "overriders": {
                    "imageOverrider": [{"component": "Registry", "operator": "replace", "scope": "AllContainers",
                        "valueFrom": {"cluster": {"cel": "cluster.region + '.example.com'"}}}],
                    "commandOverrider": [{"containerName": "web", "operator": "remove", "value": ["-v"]}],
                    "labelsOverrider": [{"operator": "add", "value": {"zone": "a"}}],
                    "fieldOverrider": [{"fieldPath": "/data/a", "yaml": [{"subPath": "/x", "operator": "remove"}]}],
                    "plaintext": [{"path": "/spec/paused", "operator": "add", "value": true}]
                }
            }]
        });
        let read: OverridePolicySpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), spec);
        let wrong = serde_json::json!({"containerName": "web", "operator": "replace"});
        assert!(serde_json::from_value::<CommandArgsOverrider>(wrong).is_err());
    }
}
