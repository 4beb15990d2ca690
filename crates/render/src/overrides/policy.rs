//! Override policies of either scope, read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::override_policy::{
    CommandArgsOverrider, FieldOverrider, ImageComponent, ImageOverrider, ImageScope,
    LabelAnnotationOverrider, OverriderOperator, PlaintextOverrider, SubPathOperation, ValueFrom,
};
use atoll_api::policy::ResourceSelector;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::matching::{ObjectSelector, Strength, Target};
use super::pointer::Pointer;
use super::value::Source;

/// Most expressions of a policy. Compiling one takes up to a millisecond.
const MAX_EXPRESSIONS: usize = 128;

/// Why a policy or a cluster could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct PolicyError {
    /// Path of the field.
    pub field: String,
    /// Its problem.
    pub problem: String,
}

impl PolicyError {
    pub(super) fn new(field: impl Into<String>, problem: impl ToString) -> Self {
        Self { field: field.into(), problem: problem.to_string() }
    }
}

/// The scope of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// ClusterOverridePolicy.
    Cluster,
    /// OverridePolicy.
    Namespace,
}

impl Scope {
    /// The kind of the policies with this scope.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterOverridePolicy",
            Self::Namespace => "OverridePolicy",
        }
    }
}

/// A policy that is ready to be applied.
#[derive(Debug)]
pub struct Policy {
    /// Its namespace; `None` for a ClusterOverridePolicy.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid; empty if the object has none.
    pub uid: String,
    /// Its generation; 0 if the object has none.
    pub generation: i64,
    /// Empty = every object.
    selectors: Vec<ObjectSelector>,
    pub(super) rules: Vec<Rule>,
}

/// One entry of `spec.overrideRules`, or the deprecated pair of `targetCluster` and `overriders`.
#[derive(Debug)]
pub(super) struct Rule {
    /// Path of the rule, `spec.overrideRules[0]` or `spec`.
    pub(super) path: String,
    pub(super) target: Target,
    pub(super) images: Vec<Image>,
    pub(super) commands: Vec<CommandArgsOverrider>,
    pub(super) args: Vec<CommandArgsOverrider>,
    pub(super) labels: Vec<LabelAnnotationOverrider>,
    pub(super) annotations: Vec<LabelAnnotationOverrider>,
    pub(super) fields: Vec<Field>,
    pub(super) plaintext: Vec<Plaintext>,
}

/// An image overrider. An invalid path is an error when the rule is applied.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) predicate: Option<Result<Pointer, String>>,
    pub(super) scope: ImageScope,
    pub(super) component: ImageComponent,
    pub(super) operator: OverriderOperator,
    pub(super) value: Source,
}

/// A field overrider.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: Result<Pointer, String>,
    pub(super) json: Vec<SubPathOperation>,
    pub(super) yaml: Vec<SubPathOperation>,
}

/// A plaintext overrider.
#[derive(Debug)]
pub(super) struct Plaintext {
    pub(super) path: Result<Pointer, String>,
    /// The path starts with a slash.
    pub(super) absolute: bool,
    pub(super) operator: OverriderOperator,
    pub(super) value: Source,
}

impl Policy {
    /// Reads a policy of either scope; a namespace makes it an OverridePolicy. Invalid selectors of clusters and
    /// objects select nothing, and invalid paths and expressions are errors of the objects that they would change;
    /// [`super::check`] reports all of them.
    ///
    /// # Errors
    /// A field of the wrong type.
    pub fn read(object: &Value) -> Result<Self, PolicyError> {
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let name = text("/metadata/name")
            .ok_or_else(|| PolicyError::new("metadata.name", "is missing"))?;
        let spec = object.get("spec").unwrap_or(&Value::Null);
        if !spec.is_object() && !spec.is_null() {
            return Err(PolicyError::new("spec", "must be a map"));
        }
        let selectors: Vec<ResourceSelector> = items(spec, "resourceSelectors", "spec")?;
        let listed = list(spec, "overrideRules", "spec")?;
        limit_expressions(spec, listed)?;
        let rules = if listed.is_empty() {
            // Karmada's deprecated form: one rule for the whole policy.
            vec![Rule::read(spec, "spec".to_owned())?]
        } else {
            let path = |at| format!("spec.overrideRules[{at}]");
            let rules = listed.iter().enumerate();
            rules.map(|(at, rule)| Rule::read(rule, path(at))).collect::<Result<_, _>>()?
        };
        let cluster_scoped = object.get("kind").is_some_and(|kind| kind == Scope::Cluster.kind());
        Ok(Self {
            namespace: text("/metadata/namespace").filter(|_| !cluster_scoped),
            name,
            uid: text("/metadata/uid").unwrap_or_default(),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0),
            selectors: selectors.iter().map(ObjectSelector::of).collect(),
            rules,
        })
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> Scope {
        if self.namespace.is_some() { Scope::Namespace } else { Scope::Cluster }
    }

    /// Whether the selectors match an object. Policies of other namespaces match nothing.
    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        (self.namespace.is_none() || self.namespace.as_deref() == namespace)
            && self.strength(object).is_some()
    }

    /// How strongly the selectors match an object; `None` if they do not.
    pub(super) fn strength(&self, object: &Value) -> Option<Strength> {
        if self.selectors.is_empty() {
            return Some(Strength::All);
        }
        self.selectors.iter().filter_map(|selector| selector.selects(object)).max()
    }
}

impl Rule {
    fn read(rule: &Value, path: String) -> Result<Self, PolicyError> {
        let target = Target::read(rule.get("targetCluster"))
            .map_err(|error| PolicyError::new(format!("{path}.targetCluster"), error))?;
        let overriders = rule.get("overriders").unwrap_or(&Value::Null);
        let below = format!("{path}.overriders");
        let images: Vec<ImageOverrider> = items(overriders, "imageOverrider", &below)?;
        let fields: Vec<FieldOverrider> = items(overriders, "fieldOverrider", &below)?;
        let plaintext: Vec<PlaintextOverrider> = items(overriders, "plaintext", &below)?;
        Ok(Self {
            target,
            images: images.into_iter().map(Image::of).collect(),
            commands: items(overriders, "commandOverrider", &below)?,
            args: items(overriders, "argsOverrider", &below)?,
            labels: items(overriders, "labelsOverrider", &below)?,
            annotations: items(overriders, "annotationsOverrider", &below)?,
            fields: fields.into_iter().map(Field::of).collect(),
            plaintext: plaintext.into_iter().map(Plaintext::of).collect(),
            path,
        })
    }
}

impl Image {
    fn of(image: ImageOverrider) -> Self {
        let given = Some(image.value).filter(|value| !value.is_empty()).map(Value::String);
        let predicate = image.predicate.as_ref();
        Self {
            predicate: predicate.map(|predicate| Pointer::field(&predicate.path)),
            scope: image.scope,
            component: image.component,
            operator: image.operator,
            value: source(given, image.value_from),
        }
    }
}

impl Field {
    fn of(field: FieldOverrider) -> Self {
        let FieldOverrider { field_path, json, yaml } = field;
        Self { path: Pointer::field(&field_path), json, yaml }
    }
}

impl Plaintext {
    fn of(plaintext: PlaintextOverrider) -> Self {
        Self {
            path: Pointer::patch(&plaintext.path),
            absolute: plaintext.path.starts_with('/'),
            operator: plaintext.operator,
            value: source(plaintext.value, plaintext.value_from),
        }
    }
}

fn source(value: Option<Value>, from: Option<ValueFrom>) -> Source {
    Source::of(value, from.map(|from| from.cluster.cel))
}

/// Refuses a policy whose expressions would take too long to compile.
fn limit_expressions(spec: &Value, rules: &[Value]) -> Result<(), PolicyError> {
    let rules = rules.iter().chain(Some(spec));
    let overriders = rules.flat_map(|rule| {
        let lists = [&rule["overriders"]["imageOverrider"], &rule["overriders"]["plaintext"]];
        lists.into_iter().filter_map(Value::as_array).flatten()
    });
    if overriders.filter(|change| !change["valueFrom"].is_null()).count() > MAX_EXPRESSIONS {
        let problem = format!("has more than {MAX_EXPRESSIONS} values with valueFrom");
        return Err(PolicyError::new("spec.overrideRules", problem));
    }
    Ok(())
}

/// The list under a field; absent and null are empty.
fn list<'a>(parent: &'a Value, field: &str, path: &str) -> Result<&'a [Value], PolicyError> {
    match parent.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(PolicyError::new(format!("{path}.{field}"), "must be a list")),
    }
}

fn items<T: DeserializeOwned>(
    parent: &Value,
    field: &str,
    path: &str,
) -> Result<Vec<T>, PolicyError> {
    let parse = |(at, item): (usize, &Value)| {
        T::deserialize(item)
            .map_err(|error| PolicyError::new(format!("{path}.{field}[{at}]"), error))
    };
    list(parent, field, path)?.iter().enumerate().map(parse).collect()
}

/// All override policies of a hub. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// By namespace (`None` for ClusterOverridePolicies) and name.
    by_namespace: BTreeMap<Option<String>, BTreeMap<String, Arc<Policy>>>,
}

impl Policies {
    /// Adds a policy, or replaces the one of its namespace and name.
    pub fn insert(&mut self, policy: Policy) {
        let policies = self.by_namespace.entry(policy.namespace.clone()).or_default();
        policies.insert(policy.name.clone(), Arc::new(policy));
    }

    /// Removes a policy.
    pub fn remove(&mut self, namespace: Option<&str>, name: &str) {
        let namespace = namespace.map(str::to_owned);
        if let Some(policies) = self.by_namespace.get_mut(&namespace) {
            policies.remove(name);
            if policies.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }

    /// A policy.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<&Policy> {
        self.by_namespace.get(&namespace.map(str::to_owned))?.get(name).map(Arc::as_ref)
    }

    /// All policies, cluster-scoped first, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.by_namespace.values().flat_map(BTreeMap::values).map(Arc::as_ref)
    }

    /// The policies that select an object in its present state: the least specific first, then by name.
    pub(super) fn selecting(&self, namespace: Option<&str>, object: &Value) -> Vec<&Policy> {
        let namespace = namespace.map(str::to_owned);
        let policies = self
            .by_namespace
            .get(&namespace)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(Arc::as_ref);
        let mut selecting: Vec<(Strength, &Policy)> =
            policies.filter_map(|policy| Some((policy.strength(object)?, policy))).collect();
        // Stable: policies of one strength stay in the order of their names.
        selecting.sort_by_key(|(strength, _)| *strength);
        selecting.into_iter().map(|(_, policy)| policy).collect()
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        let mut all = Self::default();
        policies.into_iter().for_each(|policy| all.insert(policy));
        all
    }
}
