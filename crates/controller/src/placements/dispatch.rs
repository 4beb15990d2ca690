//! Sends a binding's committed decision to its members, where it differs from what they were sent: [`Dispatch::prepare`] finds the
//! shares that differ, [`Dispatch::render`] makes their manifests, and [`Dispatch::pass_on`] gives these to the members. The second
//! step is pure and takes most of the time, so a new leader renders many bindings at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::policy::PurgeMode;
use atoll_api::{ClusterName, WorkloadSpread};
use atoll_render::overrides::{ClusterProperties, Policies};
use atoll_render::{NodeRules, Overrides, RenderError};
use serde_json::Value;
use tokio::time::Instant;

use super::order::{self, Order, ordinals_before, subset_of};
use super::plan::{self, Presence, Wanted};
use super::revisions::{Origin, Revision};
use super::sent::{Inputs, Sent};
use super::special::Special;
use super::{Placements, Removal, eviction};
use crate::detect::dependencies::waits_for;
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::lifecycle::rollouts::{Cause, Rollouts};
use crate::members::{Proof, Withdrawal as How};
use crate::packed::Packed;
use crate::status::warnings;
use crate::telemetry::DecisionTraces;

/// A binding's members, for plans and eviction tasks.
pub(crate) struct MembersOf<'a> {
    pub(crate) hub: &'a HubState,
    pub(crate) placements: &'a Placements,
    pub(crate) key: &'a BindingKey,
}

impl plan::Members for MembersOf<'_> {
    fn connected(&self, cluster: &str) -> bool {
        self.hub.is_connected(cluster)
    }

    fn sent(&self, cluster: &str) -> Option<Option<i64>> {
        self.placements.sent(self.key, cluster).map(Sent::replicas)
    }
}

impl eviction::Members for MembersOf<'_> {
    fn is_healthy(&self, cluster: &str, replicas: Option<i64>) -> bool {
        let placement = self.placements.get(self.key, cluster);
        placement.is_some_and(|placement| placement.is_healthy(replicas))
    }

    fn has_confirmed(&self, cluster: &str) -> bool {
        let placement = self.placements.get(self.key, cluster);
        placement.is_some_and(|placement| placement.removal == Removal::Confirmed)
    }

    fn exists(&self, cluster: &str) -> bool {
        self.hub.index.cluster(cluster).is_some()
    }
}

/// What a committed decision wants of the members.
struct Intent {
    plan: BTreeMap<ClusterName, Presence>,
    /// Departing members whose copy stays there without our marks.
    freed: BTreeSet<ClusterName>,
}

/// A binding's template, and what shapes it on each member.
struct Source {
    /// `None` if it does not exist, or is another one of the same name.
    template: Option<Arc<Template>>,
    spread: Option<Arc<WorkloadSpread>>,
    /// The kind cannot be read, or the template is missing: nothing is sent or removed.
    frozen: bool,
}

impl Source {
    fn of(hub: &HubState, binding: &Binding) -> Self {
        let key = &binding.template;
        let template = hub.index.template(key).cloned();
        let template = template.filter(|template| {
            binding.spec.resource.uid.as_deref().is_none_or(|uid| uid == template.uid)
        });
        let spread = template.as_ref().and_then(|t| hub.index.spread_in_force(&t.key)).cloned();
        let frozen = hub.index.frozen(key.group_kind()).is_some() || template.is_none();
        Self { template, spread, frozen }
    }

    /// Whether a WorkloadPolicy or WorkloadSpread divides the replicas.
    fn is_steered(&self) -> bool {
        self.spread.is_some()
            || self
                .template
                .as_ref()
                .is_some_and(|template| template.extract.workload_policy.is_some())
    }
}

/// A committed decision on its way to members.
pub(crate) struct Dispatch<'a> {
    binding: Arc<Binding>,
    template: Arc<Template>,
    intent: Intent,
    /// The manifest of the template's namespace, if it is in one.
    namespace: Option<Arc<Packed>>,
    overriding: Option<Overriding<'a>>,
    /// The shares that differ from what their members were sent.
    shares: Vec<Share>,
    /// Whether others differ only by overrides, and wait for their turn.
    waits: bool,
}

/// What one member must be sent.
struct Share {
    cluster: ClusterName,
    inputs: Inputs,
    /// The object that is rendered in place of the template, if a rule of a user wrote the replicas.
    revised: Option<Arc<Value>>,
    /// Why overrides make another manifest, if nothing else changed.
    cause: Option<Cause>,
}

/// The order of each share.
pub(crate) type Orders = Vec<Result<Order, RenderError>>;

impl<'a> Dispatch<'a> {
    /// Finds what must be sent, and records what the binding wants, for verdicts. Uses the binding only as read from the hub or its
    /// watch: only durable decisions reach a member.
    pub(crate) fn prepare(
        hub: &'a HubState,
        placements: &mut Placements,
        rollouts: &Rollouts,
        key: &BindingKey,
    ) -> Option<Self> {
        let binding = hub.index.binding(key).cloned()?;
        if binding.deleting() {
            return None;
        }
        if hub.index.refusal(&binding).is_some() {
            placements.verdicts.set(&binding, BTreeSet::new(), BTreeSet::new(), true);
            return None;
        }
        if binding.spec.decision.is_none() && !binding.is_attached() {
            return None;
        }
        let source = Source::of(hub, &binding);
        let steered = source.is_steered();
        let intent = intent(hub, placements, &binding, steered);
        let (mut wanted, mut left) = (BTreeSet::new(), intent.freed.clone());
        for (cluster, presence) in &intent.plan {
            match presence {
                Presence::Want(_) => wanted.insert(cluster.clone()),
                Presence::Leave(_) => left.insert(cluster.clone()),
            };
        }
        placements.verdicts.set(&binding, wanted, left, source.frozen);
        let template = source.template.filter(|_| !source.frozen)?;
        let spread = source.spread.as_deref();
        let divided = plan::is_divided(&binding.spec, steered);
        let mut dispatch = Self {
            overriding: Overriding::of(hub, &template, divided),
            namespace: namespace_of(hub, &template),
            binding,
            template,
            intent,
            shares: Vec::new(),
            waits: false,
        };
        dispatch.find_shares(hub, placements, rollouts, spread);
        Some(dispatch)
    }

    fn find_shares(
        &mut self,
        hub: &HubState,
        placements: &mut Placements,
        rollouts: &Rollouts,
        spread: Option<&WorkloadSpread>,
    ) {
        let (binding, template, plan) = (&*self.binding, &*self.template, &self.intent.plan);
        let key = &binding.key;
        let source = placements.source(key, template);
        let groups = Groups::of(hub, binding, template, spread, plan);
        let revising = revising(hub, placements, key, template, source, plan);
        let wanted = plan.iter().filter_map(|(name, presence)| Some((name, presence.wanted()?)));
        for (cluster, wanted) in wanted {
            let begins =
                placements.get(key, cluster).is_none_or(|copy| copy.sent.is_none() && !copy.held);
            if begins && !may_begin(hub, key, cluster) {
                continue;
            }
            let Some(shape) = shape(placements, key, revising, wanted) else {
                continue; // the rule's answer brings the binding back here
            };
            let overrides =
                self.overriding.map(|held| (held.fingerprint, hub.index.properties(cluster)));
            let special = groups.special(spread, cluster);
            let special = Special { overrides, revising: shape.rules, ..special };
            let (namespace, share) = (self.namespace.as_deref(), (cluster, wanted));
            let inputs = Inputs::of((binding, template), source, namespace, share, special);
            let sent = placements.sent(key, cluster);
            let same = sent.is_some_and(|sent| sent.is_of(&inputs));
            let cause = sent.and_then(|sent| sent.overrides_changed(&inputs));
            let waits = cause.is_some() && rollouts.waits(key);
            if same || waits {
                self.waits |= waits;
                placements.keep(key, cluster);
                continue;
            }
            let (cluster, revised) = (cluster.clone(), shape.object);
            self.shares.push(Share { cluster, inputs, revised, cause });
        }
    }

    /// Renders the shares.
    pub(crate) fn render(&self) -> Orders {
        self.shares.iter().map(|share| self.order(share)).collect()
    }

    fn order(&self, share: &Share) -> Result<Order, RenderError> {
        let Share { cluster, inputs, revised, .. } = share;
        let overrides = self.overriding.zip(inputs.overrides());
        order::order(
            &self.binding,
            (&self.template, revised.as_deref()),
            self.namespace.as_ref(),
            inputs.special.as_deref(),
            (cluster, inputs.wanted),
            overrides.map(|(held, (_, on))| held.on(on)),
        )
    }

    /// Sends what was rendered, and orders removals. Returns the members that were sent a new manifest.
    pub(crate) fn pass_on(
        self,
        env: &Env,
        placements: &mut Placements,
        rollouts: &mut Rollouts,
        traces: &DecisionTraces,
        orders: Orders,
    ) -> Vec<ClusterName> {
        let Self { binding, template, intent, shares, waits, .. } = self;
        let key = &binding.key;
        let (mut sent, mut errors) = (Vec::new(), BTreeMap::new());
        // A binding has one turn to send what changed by overrides: asked for when it is first needed.
        let mut turn = waits.then_some(false);
        for (Share { cluster, inputs, cause, .. }, order) in shares.into_iter().zip(orders) {
            let order = match order {
                Ok(order) => order,
                Err(why) => {
                    tracing::warn!(%key, cluster = cluster.as_str(), error = %why, "cannot be rendered");
                    errors.insert(cluster, why);
                    continue;
                }
            };
            env.counters.renders.inc();
            let before = placements.sent(key, &cluster);
            let differs = before.is_some_and(|sent| sent.hash != order.object.hash);
            placements.keep(key, &cluster);
            if let Some(cause) = cause.filter(|_| differs) {
                if !*turn.get_or_insert_with(|| rollouts.may_send(key, Instant::now())) {
                    continue;
                }
                rollouts.sent(key, &cluster, cause, &order.applied, Instant::now());
            }
            if placements.send(key, &cluster, &order, inputs, template.revision()) {
                // The agent continues the decision's trace: said before, because the order may leave at once.
                if let Some(context) = traces.context(key, &cluster) {
                    env.outlet.trace(&cluster, &order.object.key, context);
                }
                let conflict = order.conflict_resolution();
                env.outlet.set_desired(&cluster, &binding.uid, order.objects(), conflict);
                sent.push(cluster);
            }
        }
        if placements.set_render_errors(key, errors) {
            warnings::of_render(env, &template, placements.render_errors(key));
        }
        if turn.is_none() {
            rollouts.forget(key); // nothing is left to send
        }
        remove(env, placements, &binding, &intent);
        sent
    }
}

fn intent(hub: &HubState, placements: &Placements, binding: &Binding, steered: bool) -> Intent {
    let members = MembersOf { hub, placements, key: &binding.key };
    let mut plan = plan::plan(&binding.spec, steered, &members);
    let departs = |cluster: &str| {
        let cluster = hub.index.cluster(cluster);
        cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
    };
    // A copy that is never purged would keep a departing member forever: it stays there, without our marks.
    let tasks = binding.spec.graceful_eviction_tasks.iter();
    let freed: BTreeSet<ClusterName> = tasks
        .filter(|task| task.purge_mode == PurgeMode::Never && departs(&task.from_cluster))
        .map(|task| ClusterName::from(&task.from_cluster))
        .filter(|cluster| binding.spec.clusters.iter().all(|target| target.name != *cluster))
        .collect();
    plan.retain(|cluster, _| !freed.contains(cluster));
    // All bindings share the text of a name.
    let plan = plan.into_iter().map(|(name, presence)| (hub.index.cluster_name(name), presence));
    Intent { plan: plan.collect(), freed }
}

/// Whether a binding may be sent to a cluster that holds no copy of it: its namespace may use the cluster, whoever wrote
/// the binding, and everything that its template refers to is committed there. Either touches the binding when it changes.
fn may_begin(hub: &HubState, key: &BindingKey, cluster: &str) -> bool {
    hub.index.may_use(key.namespace(), cluster) && waits_for(&hub.index, key, cluster).is_none()
}

/// The manifest of the template's namespace. The hub's may not have been read yet: then it has no labels.
fn namespace_of(hub: &HubState, template: &Template) -> Option<Arc<Packed>> {
    let name = template.key.namespace()?;
    Some(match hub.index.namespace(name) {
        Some(namespace) => namespace.manifest.clone(),
        None => Arc::new(Packed::prerequisite(&atoll_render::namespace(name, None))),
    })
}

/// The object that is rendered in place of the template, if a rule of a user writes the replicas.
struct Shape {
    /// Hash of the rule, and whether it answered.
    rules: Option<(u64, bool)>,
    object: Option<Arc<Value>>,
}

/// What is rendered for a share; `None` while a rule is being asked.
fn shape(
    placements: &Placements,
    key: &BindingKey,
    revising: Option<u64>,
    wanted: Wanted,
) -> Option<Shape> {
    let Some((rules, number)) = revising.zip(wanted.replicas.get()) else {
        return Some(Shape { rules: None, object: None });
    };
    match placements.revisions.get(key, number) {
        Revision::Pending => None,
        Revision::Failed => Some(Shape { rules: Some((rules, false)), object: None }),
        Revision::Object(object) => {
            Some(Shape { rules: Some((rules, true)), object: Some(object) })
        }
    }
}

/// Hash of the user's rule that writes the replicas into a template, if there is one; the numbers that the plan needs are
/// asked for.
fn revising(
    hub: &HubState,
    placements: &mut Placements,
    key: &BindingKey,
    template: &Template,
    source: u64,
    plan: &BTreeMap<ClusterName, Presence>,
) -> Option<u64> {
    let Some(rules) = hub.index.rules().revising(template.kind()) else {
        placements.revisions.forget(key);
        return None;
    };
    let numbers = plan.values().filter_map(|presence| presence.wanted()?.replicas.get());
    placements.revisions.need(key, Origin { source, rules }, &template.object(), numbers);
    Some(rules)
}

/// The override policies that may concern a template.
#[derive(Clone, Copy)]
struct Overriding<'a> {
    policies: &'a Policies,
    fingerprint: u64,
    divided: bool,
}

impl<'a> Overriding<'a> {
    fn of(hub: &'a HubState, template: &Template, divided: bool) -> Option<Self> {
        let fingerprint = hub.index.overrides_fingerprint(template)?;
        Some(Self { policies: hub.index.overrides()?, fingerprint, divided })
    }

    fn on(self, cluster: &'a ClusterProperties) -> Overrides<'a> {
        Overrides { cluster, policies: self.policies, divided: self.divided }
    }
}

/// Orders members that the decision does not name any more to remove their copies.
fn remove(env: &Env, placements: &mut Placements, binding: &Binding, intent: &Intent) {
    let key = &binding.key;
    let Intent { plan, freed } = intent;
    let tasks = binding.spec.graceful_eviction_tasks.iter();
    let ended = tasks.filter(|task| !task.keep && task.purge_mode != PurgeMode::Never);
    let wanted = plan.iter().filter(|(_, presence)| presence.wanted().is_some());
    let unsent = placements.set_unsent(key, wanted.map(|(cluster, _)| cluster.clone()));
    let gone: BTreeSet<ClusterName> = placements
        .all_sent(key)
        .map(|(cluster, _)| cluster.clone())
        .chain(ended.map(|task| (&task.from_cluster).into()))
        .chain(freed.iter().cloned())
        .chain(unsent)
        .filter(|cluster| !plan.contains_key(cluster))
        .collect();
    for cluster in gone {
        if placements.remove(key, &cluster) {
            let how = if freed.contains(&cluster) { How::Release } else { How::Remove };
            env.outlet.withdraw(&cluster, &binding.uid, how, Proof::NotTargeted);
        }
    }
}

/// What a WorkloadSpread gives each cluster: computed for all at once, because each look-up parses the selectors of all
/// subsets.
struct Groups {
    subsets: BTreeMap<ClusterName, usize>,
    /// Start of a StatefulSet's ordinals, by cluster.
    ordinals: BTreeMap<ClusterName, i64>,
}

impl Groups {
    fn of(
        hub: &HubState,
        binding: &Binding,
        template: &Template,
        spread: Option<&WorkloadSpread>,
        plan: &BTreeMap<ClusterName, Presence>,
    ) -> Self {
        let shares = &binding.spec.clusters;
        let names = plan.keys().map(ClusterName::as_str);
        let concerned = names.clone().chain(shares.iter().map(|share| share.name.as_str()));
        let subset = |name: &str| subset_of(spread?, hub.index.cluster(name)?);
        let subsets: BTreeMap<ClusterName, usize> =
            concerned.filter_map(|name| Some((name.into(), subset(name)?))).collect();
        let ordinals = match spread.is_some() && template.key.group_kind().kind == "StatefulSet" {
            true => {
                let before = ordinals_before(shares, names, |name| subsets.get(name).copied());
                before.into_iter().map(|(name, start)| (name.into(), start)).collect()
            }
            false => BTreeMap::new(),
        };
        Self { subsets, ordinals }
    }

    fn special(&self, spread: Option<&WorkloadSpread>, cluster: &str) -> Special {
        let subset = spread.zip(self.subsets.get(cluster).copied());
        Special {
            patch: subset.and_then(|(spread, at)| spread.spec.subsets.get(at)?.patch.clone()),
            nodes: subset.and_then(|(spread, at)| NodeRules::of(&spread.spec, at)),
            ordinals: self.ordinals.get(cluster).copied(),
            ..Special::default()
        }
    }
}
