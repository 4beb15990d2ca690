//! The status of a template: the sum of its copies on the members, so that `kubectl get` and `kubectl rollout status`
//! on the hub show the real state.

use atoll_api::binding::Outcome;
use serde_json::{Value, json};

use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::placements::observed::{Certainty, Observed};

/// Inputs of a template's status.
pub(crate) trait Knowledge {
    /// The binding's state on a member.
    fn observed(&self, cluster: &str) -> Option<&Observed>;
    /// The newest template revision that renders to what the member holds.
    fn revision(&self, cluster: &str, held: &Observed) -> Option<i64>;
}

/// The desired status of the template; `None` if too little is known to improve on the existing one, and for kinds
/// whose status cannot be aggregated.
#[must_use]
pub(crate) fn status(
    binding: &Binding,
    template: &Template,
    knowledge: &impl Knowledge,
) -> Option<Value> {
    let mut parts: Vec<(String, Value)> = Vec::new();
    for cluster in clusters(binding) {
        match knowledge.observed(cluster) {
            // A seeded view may lack the raw status: it would look like missing replicas.
            Some(view) if view.certainty == Certainty::Seeded => return None,
            // What a lost member runs is unknown: it does not count as ready.
            Some(view) if view.certainty == Certainty::Fresh => {
                parts.push((cluster.to_owned(), view.status.value().unwrap_or_default()));
            }
            Some(_) | None => parts.push((cluster.to_owned(), Value::Null)),
        }
    }
    let parts: Vec<_> = parts.iter().map(|(cluster, status)| (cluster.clone(), status)).collect();
    let object = template.object();
    let before = &object["status"];
    let mut status = atoll_interpreter::aggregate(&object, &parts)?;
    let has_figure = |status: &Value| !status["observedGeneration"].is_null();
    let counts_generations = template.generation > 0
        && (template.key.group_kind().group == "apps"
            || has_figure(before)
            || parts.iter().any(|(_, status)| has_figure(status)));
    if counts_generations {
        let known = before["observedGeneration"].as_i64().unwrap_or_default();
        let observed = observed_generation(binding, template, known, knowledge);
        if observed > 0 {
            status["observedGeneration"] = json!(observed);
        }
    }
    Some(status)
}

/// The members' states of a template as rules of users see them; `None` if too little is known to improve on the
/// template's status.
#[must_use]
pub(crate) fn items(binding: &Binding, knowledge: &impl Knowledge) -> Option<Value> {
    let mut items = Vec::new();
    for cluster in clusters(binding) {
        items.push(match knowledge.observed(cluster) {
            Some(view) if view.certainty == Certainty::Seeded => return None,
            Some(view) if view.certainty == Certainty::Fresh => json!(view.whole_item(cluster)),
            // What a lost member runs is unknown.
            Some(_) | None => json!({"clusterName": cluster, "health": "Unknown"}),
        });
    }
    Some(Value::Array(items))
}

/// Clusters with a copy: targets, and those that eviction tasks keep.
fn clusters(binding: &Binding) -> Vec<&str> {
    let kept = binding.spec.graceful_eviction_tasks.iter().filter(|task| task.keep);
    let leaving = kept.map(|task| task.from_cluster.as_str());
    let mut clusters: Vec<&str> =
        binding.spec.clusters.iter().map(|target| target.name.as_str()).chain(leaving).collect();
    clusters.sort_unstable();
    clusters.dedup();
    clusters
}

/// The smallest generation that every target reports under the hash rendered from it, never below the previous value.
fn observed_generation(
    binding: &Binding,
    template: &Template,
    known: i64,
    knowledge: &impl Knowledge,
) -> i64 {
    let targets = &binding.spec.clusters;
    if targets.is_empty() {
        let decision = binding.spec.decision.as_ref();
        let nothing_wanted = decision.is_some_and(|decision| {
            decision.desired == 0
                && matches!(decision.outcome, Outcome::Placed | Outcome::Unchanged)
        });
        return if nothing_wanted { template.generation } else { known };
    }
    let observed = targets.iter().map(|target| {
        let view = knowledge.observed(&target.name)?;
        if view.certainty != Certainty::Fresh || !view.observed {
            return None;
        }
        knowledge.revision(&target.name, view)
    });
    // A target that is disconnected, or behind, keeps the figure at what all had reached before.
    let smallest = observed.min().flatten();
    smallest.unwrap_or(known).max(known).min(template.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::index::key::GroupKind;
    use crate::placements::observed::RawStatus;

    struct Fixed(BTreeMap<&'static str, (Observed, i64)>);

    impl Knowledge for Fixed {
        fn observed(&self, cluster: &str) -> Option<&Observed> {
            self.0.get(cluster).map(|(view, _)| view)
        }

        fn revision(&self, cluster: &str, held: &Observed) -> Option<i64> {
            self.0
                .get(cluster)
                .filter(|(view, _)| view.hash == held.hash)
                .map(|(_, revision)| *revision)
        }
    }

    fn view(certainty: Certainty, observed: bool, ready: i64) -> Observed {
        let status = json!({
            "observedGeneration": 1, "replicas": ready, "readyReplicas": ready,
            "updatedReplicas": ready, "availableReplicas": ready,
        });
        let mut view = Observed { certainty, observed, hash: "h".into(), ..Observed::default() };
        view.status = RawStatus::of(Some(&status));
        view
    }

    fn case(views: &[(&'static str, Observed, i64)]) -> Option<Value> {
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "t", "generation": 5},
            "spec": {"replicas": 3}, "status": {"observedGeneration": 3},
        });
        let kind = GroupKind::of("apps/v1", "Deployment");
        let template = Template::read(&kind, &Arc::new(template), &Default::default()).unwrap();
        let binding = Binding::read(&json!({
            "metadata": {"name": "web-deployment", "namespace": "shop", "uid": "b"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "replicas": 3,
                "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}],
            },
        }))
        .unwrap();
        let views = views.iter().map(|(name, view, at)| (*name, (view.clone(), *at))).collect();
        status(&binding, &template, &Fixed(views))
    }

    #[test]
    fn a_template_is_observed_when_its_last_target_follows() {
        use Certainty::{Fresh, Lost, Seeded};
        let generation =
            |views: &[_]| case(views).map(|status| status["observedGeneration"].clone());
        let fresh = |revision| view(Fresh, revision > 0, 1);
        assert_eq!(generation(&[("a", fresh(5), 5), ("b", fresh(5), 5)]), Some(json!(5)));
        assert_eq!(generation(&[("a", fresh(5), 5), ("b", fresh(4), 4)]), Some(json!(4)));
        assert_eq!(
            generation(&[("a", fresh(5), 5), ("b", fresh(0), 5)]),
            Some(json!(3)),
            "not seen yet"
        );
        assert_eq!(generation(&[("a", fresh(5), 5)]), Some(json!(3)), "b is not known");
        assert_eq!(
            generation(&[("a", fresh(5), 5), ("b", view(Lost, true, 1), 5)]),
            Some(json!(3))
        );
        assert_eq!(generation(&[("a", fresh(5), 5), ("b", view(Seeded, true, 1), 5)]), None);
    }

    #[test]
    fn replicas_of_a_lost_member_do_not_count_as_ready() {
        let views =
            [("a", view(Certainty::Fresh, true, 2), 5), ("b", view(Certainty::Lost, true, 1), 5)];
        assert_eq!(case(&views).unwrap()["readyReplicas"], 2);
    }
}
