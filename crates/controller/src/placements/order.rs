//! What one member must hold of a binding: the rendered manifest, with the namespace that it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::TargetCluster;
use atoll_api::marks::CONFLICT_RESOLUTION;
use atoll_api::policy::ConflictResolution;
use atoll_api::selector::Selector;
use atoll_api::{Cluster, ClusterName, WorkloadSpread};
use atoll_render::overrides::Applied;
use atoll_render::{Overrides, RenderError, Share};
use serde_json::Value;

use super::plan::Wanted;
use super::special::Special;
use crate::index::extract::Conflicts;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::packed::Packed;

/// What one member must hold of a binding.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    /// The namespace that the object needs, if it is in one.
    pub namespace: Option<Arc<Packed>>,
    /// The object.
    pub object: Arc<Packed>,
    /// Rules of override policies in it.
    pub applied: Vec<Applied>,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
}

impl Order {
    /// Everything that the member must hold, in the order in which it is created.
    pub(super) fn objects(&self) -> Vec<Arc<Packed>> {
        self.namespace.iter().chain([&self.object]).cloned().collect()
    }

    /// What the agent does where an object that Atoll does not manage is in the way.
    #[must_use]
    pub(crate) fn conflict_resolution(&self) -> ConflictResolution {
        match self.overwrite {
            true => ConflictResolution::Overwrite,
            false => ConflictResolution::Abort,
        }
    }
}

/// A cluster's subset: the first whose selector matches it.
#[must_use]
pub(crate) fn subset_of(spread: &WorkloadSpread, cluster: &Cluster) -> Option<usize> {
    let labels = cluster.metadata.labels.clone().unwrap_or_default();
    spread.spec.subsets.iter().position(|subset| {
        let required = subset.required_cluster_selector.as_ref();
        // An invalid selector matches nothing, as in the scheduler.
        required.is_none_or(|s| Selector::parse(s).is_ok_and(|s| s.matches(&labels)))
    })
}

/// The number of replicas on the clusters before each of these, subset by subset in order and by name within one: the
/// start of the StatefulSet's ordinals there. Clusters of no subset come last.
#[must_use]
pub(crate) fn ordinals_before<'a>(
    shares: &'a [TargetCluster],
    clusters: impl IntoIterator<Item = &'a str>,
    subset: impl Fn(&str) -> Option<usize>,
) -> BTreeMap<&'a str, i64> {
    let place = |name: &'a str| (subset(name).unwrap_or(usize::MAX), name);
    let mut order: Vec<_> =
        shares.iter().map(|share| (place(&share.name), share.replicas)).collect();
    order.sort_unstable();
    // Total replicas of each prefix.
    let mut before = vec![0_i64];
    for (_, replicas) in &order {
        before.push(before[before.len() - 1].saturating_add(*replicas));
    }
    let begins = |name: &'a str| {
        let own = place(name);
        before[order.partition_point(|(place, _)| *place < own)]
    };
    clusters.into_iter().map(|name| (name, begins(name))).collect()
}

/// Labels of a cluster's copy in addition to the template's: the preserved state of a copy that failed elsewhere.
#[must_use]
pub(crate) fn labels_for(binding: &Binding, cluster: &ClusterName) -> BTreeMap<String, String> {
    let state = binding.spec.preserved_state.as_ref();
    let state = state.filter(|state| state.clusters.iter().any(|name| name == cluster));
    state.map(|state| state.labels.clone()).unwrap_or_default()
}

/// Whether copies may take over objects that Atoll does not manage: by the template's annotation, else by the policy.
///
/// # Errors
/// The annotation has another value.
pub(crate) fn overwrites(binding: &Binding, template: &Template) -> Result<bool, RenderError> {
    let of_policy = binding.spec.conflict_resolution;
    match template.extract.conflicts {
        Conflicts::AsPolicySays => Ok(of_policy == ConflictResolution::Overwrite),
        Conflicts::Resolved(how) => Ok(how == ConflictResolution::Overwrite),
        Conflicts::Malformed => Err(RenderError::Malformed {
            field: format!("metadata.annotations[{CONFLICT_RESOLUTION:?}]"),
            expected: "\"overwrite\" or \"abort\"",
            found: "another value",
        }),
    }
}

/// Renders what a member must hold. `revised` is the template with the share's replicas, if a rule of a user wrote them.
/// `namespace` is the manifest of the template's namespace, if it has one; `special` comes from the share's [`Inputs`](super::sent::Inputs).
///
/// # Errors
/// When the template cannot be rendered; the error names the field.
pub(crate) fn order(
    binding: &Binding,
    (template, revised): (&Template, Option<&Value>),
    namespace: Option<&Arc<Packed>>,
    special: Option<&Special>,
    (cluster, wanted): (&ClusterName, Wanted),
    overrides: Option<Overrides<'_>>,
) -> Result<Order, RenderError> {
    let overwrite = overwrites(binding, template)?;
    let share = Share {
        cluster: cluster.into(),
        replicas: wanted.replicas.get(),
        before: wanted.before,
        ordinals: special.and_then(|special| special.ordinals),
        claim: (&binding.uid).into(),
        preserve: binding.spec.preserve_resources_on_deletion,
        patch: special.and_then(|special| special.patch.clone()),
        nodes: special.and_then(|special| special.nodes.clone()),
        labels: special.map(|special| special.labels.clone()).unwrap_or_default(),
        revised: revised.is_some(),
    };
    let object = template.object();
    let source = revised.unwrap_or(&object);
    let (mut object, applied) = match &overrides {
        Some(overrides) => atoll_render::render_overridden(source, &share, overrides)?,
        None => (atoll_render::render(source, &share)?, Vec::new()),
    };
    template.share_identity(&mut object);
    let object = Packed::of(&object, Some(template.text()), Some(&binding.uid));
    Ok(Order { namespace: namespace.cloned(), object: Arc::new(object), applied, overwrite })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::key::GroupKind;

    #[test]
    fn the_templates_annotation_decides_on_conflicts_before_the_policy_and_a_wrong_value_is_an_error()
     {
        let binding = |resolution: &str| {
            Binding::read(&json!({
                "metadata": {"namespace": "shop", "name": "a-configmap", "uid": "b", "generation": 1},
                "spec": {
                    "resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"},
                    "conflictResolution": resolution,
                },
            }))
            .unwrap()
        };
        let template = |annotations: Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "namespace": "shop", "name": "a", "uid": "t", "resourceVersion": "1",
                    "annotations": annotations,
                },
            });
            Template::read(
                &GroupKind::of("v1", "ConfigMap"),
                &Arc::new(object),
                &Default::default(),
            )
            .unwrap()
        };
        let (abort, overwrite) = (binding("Abort"), binding("Overwrite"));
        let none = template(json!({}));
        assert!(overwrites(&overwrite, &none).unwrap() && !overwrites(&abort, &none).unwrap());
        let asks = template(json!({CONFLICT_RESOLUTION: "overwrite"}));
        assert!(overwrites(&abort, &asks).unwrap());
        let asks = template(json!({CONFLICT_RESOLUTION: "abort"}));
        assert!(!overwrites(&overwrite, &asks).unwrap());
        let wrong = template(json!({CONFLICT_RESOLUTION: "yes"}));
        let error = overwrites(&overwrite, &wrong).unwrap_err().to_string();
        assert!(error.contains(CONFLICT_RESOLUTION) && error.contains("overwrite"), "{error}");
    }

    #[test]
    fn ordinals_go_on_from_subset_to_subset_and_by_name_within_one() {
        let share = |name: &str, replicas| TargetCluster { name: name.to_owned(), replicas };
        let shares = [share("a", 1), share("b", 2), share("c", 4), share("d", 8)];
        // b and d are in the first subset, c in the second, a in none; e holds a kept copy and has no share.
        let subset = |name: &str| match name {
            "b" | "d" | "e" => Some(0),
            "c" => Some(1),
            _ => None,
        };
        let begins = ordinals_before(&shares, ["a", "b", "c", "d", "e"], subset);
        let begins: Vec<_> = begins.into_iter().collect();
        assert_eq!(begins, [("a", 14), ("b", 0), ("c", 10), ("d", 2), ("e", 10)]);
    }
}
