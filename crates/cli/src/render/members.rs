//! The copies of all objects on their members.

use std::collections::BTreeMap;

use atoll_api::WorkloadSpread;
use atoll_api::binding::TargetCluster;
use atoll_api::marks;
use atoll_api::placement::{Placement, ReplicaSchedulingType};
use atoll_api::selector::Selector;
use atoll_customize::Customizations;
use atoll_render::overrides::{Applied, ClusterProperties, Policies, Policy};
use atoll_render::{NodeRules, Overrides, Share, render, render_overridden};
use atoll_scheduler::offline::{Answer, Fate, Workload, World};
use serde_json::Value;

use crate::input::customized::revised;

/// The object on one member.
pub(crate) struct Copy {
    /// `Deployment.apps shop/web`.
    pub(crate) object: String,
    pub(crate) cluster: String,
    /// The manifest, or why nothing is sent.
    pub(crate) result: Result<Rendered, String>,
}

/// A manifest without Atoll's marks, which contain ids that only a hub knows.
pub(crate) struct Rendered {
    /// Without overrides.
    pub(crate) plain: Value,
    pub(crate) manifest: Value,
    pub(crate) applied: Vec<Applied>,
}

/// All copies, and the objects and policies for which there are none.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) copies: Vec<Copy>,
    pub(crate) problems: Vec<String>,
}

/// Renders every placed object for its members, or for `only` one of them.
pub(crate) fn copies(
    world: &World,
    answers: &[Answer],
    rules: &Customizations,
    only: Option<&str>,
) -> Copies {
    let mut all = Copies::default();
    let mut policies = Policies::default();
    let assigned: Vec<Value> = world.assigned_overrides().collect();
    for object in world.overrides.iter().chain(&assigned) {
        match Policy::read(object) {
            Ok(policy) => policies.insert(policy),
            Err(error) => all.problems.push(format!("{}: {error}", crate::input::title(object))),
        }
    }
    for answer in answers {
        let object = answer.object.to_string();
        let (shares, counted) = match &answer.fate {
            Fate::Decided(decision) => (decision.clusters(), decision.desired.is_some()),
            Fate::Attached(on) => (on.as_slice(), false),
            Fate::NotClaimed(why) | Fate::Unusable(why) => {
                all.problems.push(format!("{object}: {why}"));
                continue;
            }
        };
        let Some(workload) = world.workload(&answer.object) else {
            all.problems.push(format!("{object}: the input has its binding but not the object"));
            continue;
        };
        let placed = Placed::of(world, workload, shares, counted);
        for target in shares {
            if only.is_some_and(|only| only != target.name) {
                continue;
            }
            let result = placed.render(world, target, rules, &policies);
            let cluster = target.name.clone();
            all.copies.push(Copy { object: object.clone(), cluster, result });
        }
    }
    all
}

/// A workload and what all of its copies share.
struct Placed<'a> {
    workload: &'a Workload,
    shares: &'a [TargetCluster],
    /// Shares are numbers of replicas.
    counted: bool,
    /// The replicas are divided among the members.
    divided: bool,
    spread: Option<&'a WorkloadSpread>,
}

impl<'a> Placed<'a> {
    fn of(
        world: &'a World,
        workload: &'a Workload,
        shares: &'a [TargetCluster],
        counted: bool,
    ) -> Self {
        let binding = world.bindings.get(&workload.key.binding());
        let claim = world.claim(workload);
        let asked = claim.asked(binding.map(|binding| &binding.spec));
        let spread = world.spreads_of(&workload.key).next();
        let steered = workload.template.workload_policy.is_some() || spread.is_some();
        let divided = counted && (steered || is_divided(&asked.placement));
        Self { workload, shares, counted, divided, spread }
    }

    fn render(
        &self,
        world: &World,
        target: &TargetCluster,
        rules: &Customizations,
        policies: &Policies,
    ) -> Result<Rendered, String> {
        let cluster = world
            .clusters
            .get(&target.name)
            .ok_or_else(|| "the input does not have its Cluster".to_owned())?;
        let properties = ClusterProperties::from(cluster);
        let mut share = self.share(world, target);
        let object = &self.workload.object;
        let written = share.replicas.map(|replicas| revised(rules, object, replicas));
        let written = written.transpose()?.flatten();
        share.revised = written.is_some();
        let object = written.as_ref().unwrap_or(object);
        let plain = render(object, &share).map_err(|error| error.to_string())?;
        let overrides = Overrides { cluster: &properties, policies, divided: self.divided };
        let (rendered, applied) =
            render_overridden(object, &share, &overrides).map_err(|error| error.to_string())?;
        Ok(Rendered {
            plain: without_marks(plain.manifest),
            manifest: without_marks(rendered.manifest),
            applied,
        })
    }

    fn share(&self, world: &World, target: &TargetCluster) -> Share {
        let shares = self.shares;
        let subset = |name: &str| subset_of(self.spread?, world, name);
        let place = |name: &str| (subset(name).unwrap_or(usize::MAX), name.to_owned());
        let sum_before = |comes_before: &dyn Fn(&str) -> bool| {
            let earlier = shares.iter().filter(|share| comes_before(&share.name));
            earlier.map(|share| share.replicas).sum::<i64>()
        };
        let own = place(&target.name);
        Share {
            cluster: target.name.clone(),
            replicas: self.counted.then_some(target.replicas),
            before: if self.divided { sum_before(&|name| *name < *target.name) } else { 0 },
            ordinals: self.spread.map(|_| sum_before(&|name| place(name) < own)),
            claim: String::new(),
            preserve: false,
            patch: subset(&target.name)
                .and_then(|at| self.spread?.spec.subsets.get(at)?.patch.clone()),
            nodes: subset(&target.name).and_then(|at| NodeRules::of(&self.spread?.spec, at)),
            labels: BTreeMap::new(),
            revised: false,
        }
    }
}

fn is_divided(placement: &Placement) -> bool {
    placement.replica_scheduling.as_ref().is_some_and(|scheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    })
}

/// A cluster's subset: the first whose selector matches it.
fn subset_of(spread: &WorkloadSpread, world: &World, cluster: &str) -> Option<usize> {
    let labels = world.clusters.get(cluster)?.metadata.labels.clone().unwrap_or_default();
    spread.spec.subsets.iter().position(|subset| {
        let required = subset.required_cluster_selector.as_ref();
        // An invalid selector matches nothing, as in the scheduler.
        required.is_none_or(|s| Selector::parse(s).is_ok_and(|s| s.matches(&labels)))
    })
}

fn without_marks(mut manifest: Value) -> Value {
    for map in ["labels", "annotations"] {
        let Some(entries) = manifest["metadata"][map].as_object_mut() else { continue };
        entries.retain(|key, _| !marks::is_own(key));
        if entries.is_empty()
            && let Some(metadata) = manifest["metadata"].as_object_mut()
        {
            metadata.remove(map);
        }
    }
    manifest
}
