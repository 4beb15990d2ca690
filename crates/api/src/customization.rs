//! `ResourceInterpreterCustomization`: what a kind means, written by users. Karmada's format with Lua scripts, and CEL
//! expressions, paths and pointers where those are enough.
//!
//! [`ResourceInterpreterCustomizationSpec::problems`] checks everything that needs no language. `atoll-customize`
//! compiles and runs the rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest script or expression, in bytes. The largest that Karmada ships has 10 KiB.
pub const MAX_RULE_BYTES: usize = 64 * 1024;

/// Tells Atoll how to read and change objects of one kind.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.atoll.dev",
    version = "v1alpha1",
    kind = "ResourceInterpreterCustomization",
    plural = "resourceinterpretercustomizations",
    shortname = "ric",
    category = "atoll",
    status = "ResourceInterpreterCustomizationStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Target-Api-Version","type":"string","jsonPath":".spec.target.apiVersion"}"#,
    printcolumn = r#"{"name":"Target-Kind","type":"string","jsonPath":".spec.target.kind"}"#,
    printcolumn = r#"{"name":"Compiled","type":"string","jsonPath":".status.conditions[?(@.type==\"Compiled\")].status"}"#,
    printcolumn = r#"{"name":"Failing","type":"string","jsonPath":".status.conditions[?(@.type==\"Failing\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterCustomizationSpec {
    /// The kind.
    pub target: CustomizationTarget,
    /// The rules, one for each operation.
    pub customizations: CustomizationRules,
}

/// A kind.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationTarget {
    /// For example `apps/v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// For example `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// The rules of a customization. An operation without a rule is answered by the next layer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationRules {
    /// Fields whose values on the member are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// The number of replicas, and what one replica requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_resource: Option<Script>,
    /// The components of an object with several pod templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_resource: Option<Script>,
    /// How the number of replicas is written into an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_revision: Option<ReplicaRevision>,
    /// The part of a member's status that is reported to the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reflection: Option<Script>,
    /// How the template's status is computed from the members'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_aggregation: Option<LuaScript>,
    /// Whether an object on a member is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_interpretation: Option<Script>,
    /// The objects that an object needs. Those of all customizations of a kind are united.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency_interpretation: Option<Script>,
}

/// A rule in Lua or CEL.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.luaScript) != has(self.cel)",
    "message": "exactly one of luaScript and cel is required"
}]))]
pub struct Script {
    /// A Lua 5.1 script that defines the operation's function: GetReplicas(object), GetComponents(object),
    /// ReflectStatus(object), InterpretHealth(object) or GetDependencies(object).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub lua_script: Option<String>,
    /// A CEL expression over the variable `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub cel: Option<String>,
}

impl Script {
    fn text(rule: Option<&Self>) -> Option<RuleText<'_>> {
        let lua = rule?.lua_script.as_deref().map(RuleText::Lua);
        lua.or(rule?.cel.as_deref().map(RuleText::Cel))
    }
}

/// A rule in Lua.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LuaScript {
    /// A Lua 5.1 script that defines the operation's function: AggregateStatus(object, items).
    #[schemars(length(min = 1, max = 65536))]
    pub lua_script: String,
}

/// Fields whose values on the member are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.luaScript) != has(self.paths)",
    "message": "exactly one of luaScript and paths is required"
}]))]
pub struct Retention {
    /// A Lua 5.1 script that defines Retain(desired, observed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub lua_script: Option<String>,
    /// JSON pointers to the fields, for example `/spec/clusterIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "set", "items" = {"type": "string", "maxLength": 1024})
    )]
    pub paths: Option<Vec<String>>,
}

/// How the number of replicas is written into an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.luaScript) != has(self.jsonPointer)",
    "message": "exactly one of luaScript and jsonPointer is required"
}]))]
pub struct ReplicaRevision {
    /// A Lua 5.1 script that defines ReviseReplica(object, replicas).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub lua_script: Option<String>,
    /// JSON pointer to the field with the number, for example `/spec/replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 1024))]
    pub json_pointer: Option<String>,
}

/// An operation of interpreters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Operation {
    /// `retention`.
    Retain,
    /// `replicaResource`.
    InterpretReplica,
    /// `componentResource`.
    InterpretComponent,
    /// `replicaRevision`.
    ReviseReplica,
    /// `statusReflection`.
    InterpretStatus,
    /// `statusAggregation`.
    AggregateStatus,
    /// `healthInterpretation`.
    InterpretHealth,
    /// `dependencyInterpretation`.
    InterpretDependency,
}

impl Operation {
    /// All operations, in the order of the fields of [`CustomizationRules`].
    pub const ALL: [Self; 8] = [
        Self::Retain,
        Self::InterpretReplica,
        Self::InterpretComponent,
        Self::ReviseReplica,
        Self::InterpretStatus,
        Self::AggregateStatus,
        Self::InterpretHealth,
        Self::InterpretDependency,
    ];

    /// Karmada's name of the operation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::InterpretReplica => "InterpretReplica",
            Self::InterpretComponent => "InterpretComponent",
            Self::ReviseReplica => "ReviseReplica",
            Self::InterpretStatus => "InterpretStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "InterpretDependency",
        }
    }

    /// The field of [`CustomizationRules`].
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Retain => "retention",
            Self::InterpretReplica => "replicaResource",
            Self::InterpretComponent => "componentResource",
            Self::ReviseReplica => "replicaRevision",
            Self::InterpretStatus => "statusReflection",
            Self::AggregateStatus => "statusAggregation",
            Self::InterpretHealth => "healthInterpretation",
            Self::InterpretDependency => "dependencyInterpretation",
        }
    }

    /// The function that a Lua script defines.
    #[must_use]
    pub fn function(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::InterpretReplica => "GetReplicas",
            Self::InterpretComponent => "GetComponents",
            Self::ReviseReplica => "ReviseReplica",
            Self::InterpretStatus => "ReflectStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "GetDependencies",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The rule of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleText<'a> {
    /// A Lua script.
    Lua(&'a str),
    /// A CEL expression.
    Cel(&'a str),
    /// Paths of fields.
    Paths(&'a [String]),
    /// A JSON pointer.
    Pointer(&'a str),
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RuleProblem {
    /// Path of the field, for example `spec.customizations.retention.paths[1]`.
    pub field: String,
    /// What is wrong and how to correct it.
    pub problem: String,
}

impl CustomizationRules {
    /// The rule of an operation; `None` if it has none.
    #[must_use]
    pub fn rule(&self, operation: Operation) -> Option<RuleText<'_>> {
        match operation {
            Operation::Retain => {
                let rule = self.retention.as_ref()?;
                let lua = rule.lua_script.as_deref().map(RuleText::Lua);
                lua.or(rule.paths.as_deref().map(RuleText::Paths))
            }
            Operation::ReviseReplica => {
                let rule = self.replica_revision.as_ref()?;
                let lua = rule.lua_script.as_deref().map(RuleText::Lua);
                lua.or(rule.json_pointer.as_deref().map(RuleText::Pointer))
            }
            Operation::AggregateStatus => {
                Some(RuleText::Lua(&self.status_aggregation.as_ref()?.lua_script))
            }
            Operation::InterpretReplica => Script::text(self.replica_resource.as_ref()),
            Operation::InterpretComponent => Script::text(self.component_resource.as_ref()),
            Operation::InterpretStatus => Script::text(self.status_reflection.as_ref()),
            Operation::InterpretHealth => Script::text(self.health_interpretation.as_ref()),
            Operation::InterpretDependency => Script::text(self.dependency_interpretation.as_ref()),
        }
    }

    /// How many of the alternatives of an operation's rule are given, and their names; `None` without a rule.
    fn given(&self, operation: Operation) -> Option<(usize, &'static str)> {
        let script = |script: &Option<Script>| {
            let script = script.as_ref()?;
            let given =
                usize::from(script.lua_script.is_some()) + usize::from(script.cel.is_some());
            Some((given, "luaScript and cel"))
        };
        match operation {
            Operation::Retain => self.retention.as_ref().map(|rule| {
                let given =
                    usize::from(rule.lua_script.is_some()) + usize::from(rule.paths.is_some());
                (given, "luaScript and paths")
            }),
            Operation::ReviseReplica => self.replica_revision.as_ref().map(|rule| {
                let pointer = usize::from(rule.json_pointer.is_some());
                (usize::from(rule.lua_script.is_some()) + pointer, "luaScript and jsonPointer")
            }),
            Operation::AggregateStatus => {
                self.status_aggregation.as_ref().map(|_| (1, "luaScript"))
            }
            Operation::InterpretReplica => script(&self.replica_resource),
            Operation::InterpretComponent => script(&self.component_resource),
            Operation::InterpretStatus => script(&self.status_reflection),
            Operation::InterpretHealth => script(&self.health_interpretation),
            Operation::InterpretDependency => script(&self.dependency_interpretation),
        }
    }
}

impl ResourceInterpreterCustomizationSpec {
    /// Everything that is wrong without looking into scripts and expressions. Empty = valid.
    #[must_use]
    pub fn problems(&self) -> Vec<RuleProblem> {
        let mut problems = Vec::new();
        let mut add =
            |field: String, problem: String| problems.push(RuleProblem { field, problem });
        let required = "is required, for example";
        if self.target.api_version.is_empty() {
            add("spec.target.apiVersion".into(), format!("{required} apps.example.io/v1"));
        }
        if self.target.kind.is_empty() {
            add("spec.target.kind".into(), format!("{required} WebApp"));
        }
        let mut rules = 0;
        for operation in Operation::ALL {
            let field = format!("spec.customizations.{}", operation.field());
            let Some((given, names)) = self.customizations.given(operation) else { continue };
            rules += 1;
            if given != 1 {
                add(field.clone(), format!("exactly one of {names} is required, {given} are set"));
            }
            match self.customizations.rule(operation) {
                Some(RuleText::Lua(text)) => {
                    text_problem(text, &format!("{field}.luaScript"), &mut add);
                }
                Some(RuleText::Cel(text)) => text_problem(text, &format!("{field}.cel"), &mut add),
                Some(RuleText::Pointer(pointer)) => {
                    if let Err(why) = pointer_tokens(pointer) {
                        add(format!("{field}.jsonPointer"), why);
                    }
                }
                Some(RuleText::Paths(paths)) => {
                    if paths.is_empty() {
                        add(format!("{field}.paths"), "must name at least one field".into());
                    }
                    for (at, path) in paths.iter().enumerate() {
                        if let Err(why) = pointer_tokens(path) {
                            add(format!("{field}.paths[{at}]"), why);
                        }
                    }
                }
                None => {}
            }
        }
        if self.target.api_version == "v1" && self.target.kind == "Secret" {
            for operation in ON_MEMBERS {
                if self.customizations.rule(operation).is_some() {
                    let field = format!("spec.customizations.{}", operation.field());
                    let problem = "is not allowed for Secrets: what it returns, or the message of an error, \
                                   could copy a member's token to the hub";
                    add(field, problem.into());
                }
            }
        }
        if rules == 0 {
            add("spec.customizations".into(), "must have at least one rule".into());
        }
        problems
    }
}

/// Operations of rules that run on members.
const ON_MEMBERS: [Operation; 3] =
    [Operation::Retain, Operation::InterpretStatus, Operation::InterpretHealth];

fn text_problem(text: &str, field: &str, add: &mut impl FnMut(String, String)) {
    if text.trim().is_empty() {
        add(field.to_owned(), "must not be empty; remove the rule instead".into());
    } else if text.len() > MAX_RULE_BYTES {
        add(
            field.to_owned(),
            format!("has {} bytes, at most {MAX_RULE_BYTES} are allowed", text.len()),
        );
    }
}

/// The tokens of a JSON pointer to a field that a rule may change: not the whole object, its type or its identity.
///
/// # Errors
/// The text is not a pointer, or points to one of these.
pub fn pointer_tokens(pointer: &str) -> Result<Vec<String>, String> {
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(format!(
            "{pointer:?} is not a JSON pointer: it must start with /, as in /spec/replicas"
        ));
    };
    let tokens: Vec<String> =
        rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let parts: Vec<&str> = tokens.iter().map(String::as_str).collect();
    match parts[..] {
        ["apiVersion" | "kind" | "metadata" | ""]
        | ["metadata", "name" | "namespace" | "uid", ..] => {
            Err(format!("{pointer:?} is part of the object's identity, which a rule cannot change"))
        }
        _ => Ok(tokens),
    }
}

/// Status of a customization, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterCustomizationStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Compiled`: every rule compiles. `Failing`: a rule failed since the spec last changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What this customization is used for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["operation"]))]
    pub used_for: Vec<OperationUse>,
    /// The last failure of a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<RuleFailure>,
}

/// Whether a rule is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationUse {
    /// The operation.
    pub operation: Operation,
    /// The rule answers this operation.
    pub used: bool,
    /// The customization whose rule answers instead: the first by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruled_by: Option<String>,
}

/// A failure of a rule, and the object that caused it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleFailure {
    /// The operation that failed.
    pub operation: Operation,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// The member on which the object is, for operations that run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Why the rule failed.
    pub message: String,
    /// When it failed.
    pub time: Time,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(rules: serde_json::Value) -> ResourceInterpreterCustomizationSpec {
        serde_json::from_value(json!({
            "target": {"apiVersion": "apps.example.io/v1", "kind": "WebApp"},
            "customizations": rules,
        }))
        .unwrap()
    }

    #[test]
    fn every_problem_of_a_customization_names_its_field() {
        let cases = [
            (json!({}), "spec.customizations"),
            (json!({"retention": {}}), "spec.customizations.retention"),
            (
                json!({"healthInterpretation": {"luaScript": "x", "cel": "true"}}),
                "spec.customizations.healthInterpretation",
            ),
            (
                json!({"retention": {"paths": ["/spec/a", "spec.b"]}}),
                "spec.customizations.retention.paths[1]",
            ),
            (
                json!({"replicaRevision": {"jsonPointer": "/metadata/name"}}),
                "spec.customizations.replicaRevision.jsonPointer",
            ),
            (
                json!({"statusAggregation": {"luaScript": " "}}),
                "spec.customizations.statusAggregation.luaScript",
            ),
            (
                json!({"replicaResource": {"luaScript": "-".repeat(MAX_RULE_BYTES + 1)}}),
                "spec.customizations.replicaResource.luaScript",
            ),
        ];
        for (rules, field) in cases {
            let problems = spec(rules.clone()).problems();
            assert_eq!(problems.len(), 1, "{rules}: {problems:?}");
            assert_eq!(problems[0].field, field);
        }
        let fine = json!({
            "retention": {"paths": ["/spec/a"]}, "replicaRevision": {"jsonPointer": "/spec/replicas"},
            "replicaResource": {"cel": "object.spec.replicas"},
        });
        assert_eq!(spec(fine).problems(), []);
    }

    #[test]
    fn no_rule_reads_secrets_on_members() {
        for field in ["retention", "statusReflection", "healthInterpretation"] {
            let mut secret =
                spec(json!({field: {"luaScript": "x"}, "replicaResource": {"cel": "1"}}));
            assert_eq!(secret.problems(), []);
            secret.target = CustomizationTarget { api_version: "v1".into(), kind: "Secret".into() };
            let problems = secret.problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].field, format!("spec.customizations.{field}"));
        }
    }

    #[test]
    fn a_pointer_is_unescaped_and_cannot_reach_the_identity() {
        assert_eq!(pointer_tokens("/spec/a~1b/~0c").unwrap(), ["spec", "a/b", "~c"]);
        assert_eq!(pointer_tokens("/metadata/annotations/x").unwrap().len(), 3);
        for identity in ["/", "", "/kind", "/metadata", "/metadata/namespace", "spec"] {
            assert!(pointer_tokens(identity).is_err(), "{identity}");
        }
    }
}
