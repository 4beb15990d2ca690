//! Attached bindings: the bindings of objects that a workload needs and that no policy claims.
//!
//! [`plan`] computes, without any access to a hub, what one reconciliation of a workload's binding writes: the recorded
//! dependencies, and `requiredBy`, the conflict resolution and the preservation of every attached binding. The clusters
//! of an attached binding are the union over its `requiredBy`.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{ObjectReference, TargetCluster};
use atoll_api::names::binding_name;
use atoll_api::policy::ConflictResolution;
use serde_json::Value;

use crate::{DependentRef, dependencies};

/// Namespace and name of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The strategy that a workload's policy sets and its dependencies inherit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strategy {
    /// What happens with an object of somebody else on a member.
    pub conflict: Option<ConflictResolution>,
    /// Whether objects stay when the binding is deleted.
    pub preserve: Option<bool>,
}

/// The binding of a workload.
#[derive(Debug, Clone)]
pub struct Parent {
    /// Its key.
    pub key: BindingKey,
    /// The clusters that its dependencies go to.
    pub clusters: Vec<TargetCluster>,
    /// Its own strategy.
    pub strategy: Strategy,
    /// Whether its policy propagates dependencies.
    pub propagates: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A parent as its dependency's binding records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredBy {
    /// The parent.
    pub parent: BindingKey,
    /// The clusters to which it needs the dependency.
    pub clusters: Vec<TargetCluster>,
}

/// A binding that is or may become attached.
#[derive(Debug, Clone, PartialEq)]
pub struct Attached {
    /// Its key.
    pub key: BindingKey,
    /// Its template.
    pub resource: ObjectReference,
    /// uid of the object that owns it; absent for a binding that no object owns.
    pub owner: Option<String>,
    /// Whether a policy places it: it keeps its own strategy.
    pub placed: bool,
    /// Its strategy.
    pub strategy: Strategy,
    /// Who needs it.
    pub required_by: Vec<RequiredBy>,
}

/// An object on the hub.
#[derive(Debug, Clone)]
pub struct HubObject {
    /// Its identity, with its uid.
    pub reference: ObjectReference,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// What one reconciliation writes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The recorded dependencies, also those that do not exist; `None` if they are not computed.
    pub dependencies: Option<Vec<DependentRef>>,
    /// Whether the parent keeps a finalizer until its dependencies are released; `None` = as it is.
    pub finalizer: Option<bool>,
    /// Bindings to create or update. All others stay as they are.
    pub writes: Vec<Attached>,
    /// Why parts of the plan are missing.
    pub problems: Vec<String>,
}

/// The state that a plan is computed from.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The workload; `None` if it does not exist.
    pub template: Option<&'a Value>,
    /// Whether the interpreter knows what objects of the workload's kind need.
    pub interpreted: bool,
    /// Objects on the hub that may be dependencies.
    pub objects: &'a [HubObject],
    /// The other bindings, attached ones too.
    pub bindings: &'a [Attached],
    /// Strategies of the bindings that may be parents. A parent that is missing here is gone.
    pub parents: &'a BTreeMap<BindingKey, Strategy>,
}

/// Plans one reconciliation of `parent`.
#[must_use]
pub fn plan(parent: &Parent, state: State<'_>) -> Plan {
    if parent.deleting || !parent.propagates {
        let held = state.bindings.iter().filter(|binding| is_required(binding, &parent.key));
        let writes = held.map(|binding| released(binding, parent, state)).collect();
        return Plan { finalizer: Some(false), writes, ..Plan::default() };
    }
    let Some(template) = state.template else {
        let problem = format!("the template of {} does not exist", parent.key.name);
        return Plan { problems: vec![problem], ..Plan::default() };
    };
    if !state.interpreted {
        return Plan::default();
    }
    let needed = dependencies(template);
    let mut plan = Plan { finalizer: Some(true), ..Plan::default() };
    for binding in state.bindings.iter().filter(|binding| is_required(binding, &parent.key)) {
        if !needed.iter().any(|reference| selects_binding(reference, binding, state.objects)) {
            plan.writes.push(released(binding, parent, state));
        }
    }
    let mut seen = BTreeSet::new();
    for object in state.objects {
        if !needed.iter().any(|reference| selects(reference, object)) {
            continue;
        }
        let key = key_of(&object.reference);
        if !seen.insert(key.clone()) {
            continue;
        }
        let to = &object.reference;
        let existing = state.bindings.iter().find(|binding| is_template(&binding.resource, to));
        match attached(key, existing, object, parent, state) {
            Ok(binding) => plan.writes.push(binding),
            Err(problem) => plan.problems.push(problem),
        }
    }
    plan.dependencies = Some(needed);
    plan
}

/// The key of the binding of an object, named like every binding.
fn key_of(object: &ObjectReference) -> BindingKey {
    BindingKey {
        namespace: object.namespace.clone().unwrap_or_default(),
        name: binding_name(&object.name, &object.kind, object.group()),
    }
}

fn is_template(resource: &ObjectReference, object: &ObjectReference) -> bool {
    resource.group() == object.group()
        && resource.kind == object.kind
        && resource.namespace == object.namespace
        && resource.name == object.name
}

fn is_required(binding: &Attached, parent: &BindingKey) -> bool {
    binding.required_by.iter().any(|required| required.parent == *parent)
}

fn selects(reference: &DependentRef, object: &HubObject) -> bool {
    let to = &object.reference;
    let names = if reference.match_labels.is_empty() {
        reference.name == to.name
    } else {
        reference.match_labels.iter().all(|(key, value)| object.labels.get(key) == Some(value))
    };
    names && same_kind(reference, to)
}

/// Whether a binding's template is still needed. An object that is missing on the hub stays needed while it is named.
fn selects_binding(reference: &DependentRef, binding: &Attached, objects: &[HubObject]) -> bool {
    let to = &binding.resource;
    if reference.match_labels.is_empty() {
        return same_kind(reference, to) && reference.name == to.name;
    }
    let same = |object: &&HubObject| {
        object.reference.kind == to.kind
            && object.reference.name == to.name
            && object.reference.namespace == to.namespace
    };
    objects.iter().find(same).is_some_and(|object| selects(reference, object))
}

fn same_kind(reference: &DependentRef, to: &ObjectReference) -> bool {
    reference.api_version == to.api_version
        && reference.kind == to.kind
        && to.namespace.as_deref().unwrap_or_default() == reference.namespace
}

/// The binding without this parent. One that nothing needs any more stays, without strategy, until its clusters are
/// empty.
fn released(binding: &Attached, parent: &Parent, state: State<'_>) -> Attached {
    let mut binding = binding.clone();
    binding.required_by.retain(|required| required.parent != parent.key);
    settle(&mut binding, parent, state);
    binding
}

/// The binding of a dependency with this parent.
fn attached(
    key: BindingKey,
    existing: Option<&Attached>,
    object: &HubObject,
    parent: &Parent,
    state: State<'_>,
) -> Result<Attached, String> {
    let uid = object.reference.uid.clone();
    let mut binding = match existing {
        Some(existing) => {
            if existing.owner.is_some() && existing.owner != uid {
                return Err(format!(
                    "binding {}/{} belongs to an earlier {} of this name: it is attached when that one is removed",
                    existing.key.namespace, existing.key.name, object.reference.kind
                ));
            }
            existing.clone()
        }
        None => Attached {
            key,
            resource: object.reference.clone(),
            owner: uid,
            placed: false,
            strategy: Strategy::default(),
            required_by: Vec::new(),
        },
    };
    let required = RequiredBy { parent: parent.key.clone(), clusters: parent.clusters.clone() };
    match binding.required_by.iter_mut().find(|held| held.parent == parent.key) {
        Some(held) => *held = required,
        None => binding.required_by.push(required),
    }
    settle(&mut binding, parent, state);
    Ok(binding)
}

/// Drops parents that are gone and computes the strategy: any Overwrite wins, any preserve wins. A binding with a
/// placement of its own keeps its strategy.
fn settle(binding: &mut Attached, parent: &Parent, state: State<'_>) {
    let strategy_of = |key: &BindingKey| match *key == parent.key {
        true => Some(parent.strategy),
        false => state.parents.get(key).copied(),
    };
    binding.required_by.retain(|required| strategy_of(&required.parent).is_some());
    if binding.placed {
        return;
    }
    if binding.required_by.is_empty() {
        binding.strategy = Strategy::default();
        return;
    }
    let strategies: Vec<Strategy> =
        binding.required_by.iter().filter_map(|required| strategy_of(&required.parent)).collect();
    let overwrites = |s: &Strategy| s.conflict == Some(ConflictResolution::Overwrite);
    let conflict = match strategies.iter().any(overwrites) {
        true => ConflictResolution::Overwrite,
        false => ConflictResolution::Abort,
    };
    let preserve = strategies.iter().any(|strategy| strategy.preserve == Some(true));
    binding.strategy = Strategy { conflict: Some(conflict), preserve: Some(preserve) };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> BindingKey {
        BindingKey { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    fn cluster(name: &str) -> Vec<TargetCluster> {
        vec![TargetCluster { name: name.to_owned(), replicas: 1 }]
    }

    fn parent(name: &str) -> Parent {
        let strategy = Strategy { conflict: None, preserve: Some(true) };
        let (key, clusters) = (key(name), cluster("m1"));
        Parent { key, clusters, strategy, propagates: true, deleting: false }
    }

    fn config(uid: &str) -> HubObject {
        let reference = ObjectReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "conf".to_owned(),
            uid: Some(uid.to_owned()),
        };
        HubObject { reference, labels: BTreeMap::new() }
    }

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"template": {"spec": {"volumes": [
                {"name": "a", "configMap": {"name": "conf"}}, {"name": "b", "configMap": {"name": "missing"}},
            ]}}},
        })
    }

    fn planned(parent: &Parent, bindings: &[Attached], uid: &str) -> Plan {
        let (template, objects) = (deployment(), [config(uid)]);
        let others = BTreeMap::from([(
            key("api-deployment"),
            Strategy { conflict: Some(ConflictResolution::Overwrite), preserve: None },
        )]);
        let state = State {
            template: Some(&template),
            interpreted: true,
            objects: &objects,
            bindings,
            parents: &others,
        };
        plan(parent, state)
    }

    #[test]
    fn a_dependency_gets_a_binding_that_unites_its_parents_and_drops_those_that_are_gone() {
        let web = parent("web-deployment");
        let first = planned(&web, &[], "u1");
        assert_eq!(first.dependencies.map(|found| found.len()), Some(2), "the missing one too");
        let [binding] = &first.writes[..] else { panic!("one binding: {:?}", first.writes) };
        assert_eq!(binding.key, key("conf-configmap"));
        assert_eq!(binding.strategy.conflict, Some(ConflictResolution::Abort));
        assert_eq!(binding.strategy.preserve, Some(true));

        let mut shared = binding.clone();
        for name in ["gone-deployment", "api-deployment"] {
            shared.required_by.push(RequiredBy { parent: key(name), clusters: cluster("m2") });
        }
        let second = planned(&web, &[shared.clone()], "u1");
        let parents: Vec<_> =
            second.writes[0].required_by.iter().map(|r| r.parent.name.as_str()).collect();
        assert_eq!(parents, ["web-deployment", "api-deployment"]);
        assert_eq!(second.writes[0].strategy.conflict, Some(ConflictResolution::Overwrite));

        let leaving = Parent { deleting: true, ..web.clone() };
        let last = planned(&leaving, &[shared], "u1");
        assert_eq!(last.finalizer, Some(false));
        assert_eq!(last.writes[0].required_by.len(), 1, "the other parent still needs it");
    }

    #[test]
    fn the_binding_of_an_earlier_object_of_the_name_is_not_taken_over() {
        let web = parent("web-deployment");
        let binding = planned(&web, &[], "u1").writes.remove(0);
        let found = planned(&web, &[binding], "u2");
        assert!(found.writes.is_empty());
        assert!(found.problems[0].contains("conf-configmap"), "{:?}", found.problems);
    }
}
