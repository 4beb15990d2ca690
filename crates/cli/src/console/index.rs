//! What the pages about the whole federation show, kept current from watches. One task owns it; no I/O here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::binding::{
    ObjectReference, ResourceBindingSpec, ResourceBindingStatus, ResourceHealth,
};
use atoll_api::{Cluster, MemberState, marks};
use atoll_console::data::{
    Cell, Count, MAP_COLUMNS, MAP_ROWS, MapRow, Overview, Paged, Placement, PlacementFilter,
    Policies, Policy, ROWS, Share, Tone, Word, WorkloadId,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::policies::{Check, Checks, Rule};
use super::rows;
use crate::read::work::{self, Work};
use crate::status::concern::{self, Concern, State};

/// Tiles of one page of the overview.
const TILES: usize = 60;
/// Rows of one page of concerns.
const CONCERNS: usize = 20;
/// Workloads that are named as examples of what a policy claims.
const EXAMPLES: usize = 3;

/// Namespace and name of a binding.
pub(super) type Key = (Option<String>, String);

/// A binding, as far as pages show it.
#[derive(Debug, Clone)]
pub(super) struct Brief {
    pub(super) id: WorkloadId,
    resource: ObjectReference,
    policy: Option<String>,
    labels: BTreeMap<String, String>,
    replicas: Option<i64>,
    work: Vec<Work>,
    concerns: Vec<Concern>,
}

impl Brief {
    pub(super) fn of(
        metadata: &ObjectMeta,
        spec: &ResourceBindingSpec,
        status: Option<&ResourceBindingStatus>,
    ) -> Self {
        let mut work = work::of(metadata.name.as_deref().unwrap_or_default(), spec, status);
        // Pages of the whole federation do not show it, and it is the largest part.
        for report in work.iter_mut().filter_map(|work| work.report.as_mut()) {
            report.status = None;
        }
        Self {
            id: id(spec),
            resource: spec.resource.clone(),
            policy: policy(metadata),
            labels: metadata.labels.clone().unwrap_or_default(),
            replicas: spec.replicas,
            work,
            concerns: concern::of_binding(spec, status),
        }
    }

    /// Its most urgent state.
    fn state(&self) -> Option<State> {
        self.concerns.iter().map(|concern| concern.state).min()
    }

    fn word(&self) -> Word {
        self.state().map_or_else(|| Word::new(FINE, Tone::Good), rows::state_word)
    }
}

/// The state of a workload that is as it should be.
const FINE: &str = "Fine";

/// The workload of a binding.
pub(super) fn id(spec: &ResourceBindingSpec) -> WorkloadId {
    id_of(&spec.resource)
}

/// The workload that a reference names.
pub(super) fn id_of(of: &ObjectReference) -> WorkloadId {
    WorkloadId {
        group: of.group().to_owned(),
        kind: of.kind.clone(),
        namespace: of.namespace.clone(),
        name: of.name.clone(),
    }
}

/// The policy that claims a binding.
pub(super) fn policy(metadata: &ObjectMeta) -> Option<String> {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let name = annotation(marks::POLICY_NAME)?;
    Some(match annotation(marks::POLICY_NAMESPACE) {
        Some(namespace) => format!("PropagationPolicy {namespace}/{name}"),
        None => format!("ClusterPropagationPolicy {name}"),
    })
}

/// Whose concern it is. Members' own come first among equal ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Member(String),
    /// The binding, and the place in its list.
    Workload(Arc<Key>, usize),
}

/// What a member has.
#[derive(Debug, Default)]
struct On {
    replicas: i64,
    keys: BTreeSet<Arc<Key>>,
}

/// A member, and what pages ask about all of them.
#[derive(Debug)]
struct Member {
    cluster: Cluster,
    ready: bool,
    concern: Option<Concern>,
}

/// Members and workloads, with what each page needs of all of them: a page must not depend on their number.
#[derive(Debug, Default)]
pub(super) struct Index {
    clusters: BTreeMap<String, Member>,
    /// Those that are not ready first.
    order: BTreeSet<(bool, String)>,
    bindings: BTreeMap<Arc<Key>, Brief>,
    on: BTreeMap<String, On>,
    by_policy: BTreeMap<String, BTreeSet<Arc<Key>>>,
    counts: BTreeMap<State, usize>,
    /// The most urgent first.
    urgent: BTreeSet<((State, Timestamp), Whose)>,
    policies: BTreeMap<String, Rule>,
    /// Number of changes of policies.
    changes: u64,
    pub(super) checks: Checks,
    /// What cannot be read, by kind.
    pub(super) problems: BTreeMap<&'static str, String>,
    /// What is not listed completely, by kind.
    pub(super) reading: Vec<&'static str>,
}

impl Index {
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.problems.values().cloned().collect();
        if !self.reading.is_empty() {
            let (what, workloads) = (self.reading.join(", "), self.bindings.len());
            let members = self.clusters.len();
            notes.push(format!(
                "{what} are still being read from the hub: {workloads} workloads and {members} members so far"
            ));
        }
        notes
    }

    /// A member.
    pub(super) fn put_cluster(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        self.remove_cluster(&name);
        let held = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let gone = cluster.metadata.deletion_timestamp.is_some();
        let ready = MemberState::of(&cluster.spec, held, gone).state == "Ready";
        let concern = concern::of_member(&cluster);
        if let Some(concern) = &concern {
            self.urgent.insert((concern.urgency(), Whose::Member(name.clone())));
        }
        self.order.insert((ready, name.clone()));
        self.clusters.insert(name, Member { cluster, ready, concern });
    }

    /// A member is gone.
    pub(super) fn remove_cluster(&mut self, name: &str) {
        let Some(member) = self.clusters.remove(name) else { return };
        self.order.remove(&(member.ready, name.to_owned()));
        if let Some(concern) = member.concern {
            self.urgent.remove(&(concern.urgency(), Whose::Member(name.to_owned())));
        }
    }

    /// All members are listed again.
    pub(super) fn clear_clusters(&mut self) {
        for name in self.clusters.keys().cloned().collect::<Vec<_>>() {
            self.remove_cluster(&name);
        }
    }

    /// A workload.
    pub(super) fn put(&mut self, key: Key, brief: Brief) {
        let key = Arc::new(key);
        self.remove(&key);
        for work in &brief.work {
            if !self.on.contains_key(&work.member) {
                self.on.insert(work.member.clone(), On::default());
            }
            if let Some(on) = self.on.get_mut(&work.member) {
                on.replicas = on.replicas.saturating_add(work.replicas.unwrap_or(0));
                on.keys.insert(key.clone());
            }
        }
        if let Some(policy) = &brief.policy {
            match self.by_policy.get_mut(policy) {
                Some(all) => all.insert(key.clone()),
                None => self.by_policy.insert(policy.clone(), [key.clone()].into()).is_none(),
            };
        }
        for (at, concern) in brief.concerns.iter().enumerate() {
            self.urgent.insert((concern.urgency(), Whose::Workload(key.clone(), at)));
        }
        if let Some(state) = brief.state() {
            *self.counts.entry(state).or_default() += 1;
        }
        self.bindings.insert(key, brief);
    }

    /// A workload is gone.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some((key, brief)) = self.bindings.remove_entry(key) else { return };
        for work in &brief.work {
            let Some(on) = self.on.get_mut(&work.member) else { continue };
            on.replicas = on.replicas.saturating_sub(work.replicas.unwrap_or(0));
            on.keys.remove(&key);
            if on.keys.is_empty() {
                self.on.remove(&work.member);
            }
        }
        if let Some(policy) = &brief.policy
            && let Some(all) = self.by_policy.get_mut(policy)
        {
            all.remove(&key);
            if all.is_empty() {
                self.by_policy.remove(policy);
            }
        }
        for (at, concern) in brief.concerns.iter().enumerate() {
            self.urgent.remove(&(concern.urgency(), Whose::Workload(key.clone(), at)));
        }
        if let Some(state) = brief.state()
            && let Some(count) = self.counts.get_mut(&state)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&state);
            }
        }
    }

    /// All workloads are listed again, with or without a namespace.
    pub(super) fn clear(&mut self, global: bool) {
        let keys: Vec<Arc<Key>> =
            self.bindings.keys().filter(|key| key.0.is_none() == global).cloned().collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    /// A policy, or that it is gone.
    pub(super) fn set_policy(&mut self, name: String, rule: Option<Rule>) {
        let before = match rule.clone() {
            Some(rule) => self.policies.insert(name, rule),
            None => self.policies.remove(&name),
        };
        self.changes += u64::from(before != rule);
    }

    /// All policies of a kind are listed again.
    pub(super) fn clear_policies(&mut self, kind: &str) {
        self.policies.retain(|name, _| !name.starts_with(kind));
        self.changes += 1;
    }

    /// Another number means that policies have changed.
    pub(super) fn policies_state(&self) -> u64 {
        self.changes
    }

    /// The page Policies.
    pub(super) fn policies(&self, page: usize, findings: usize, now: Timestamp) -> Policies {
        let none = Check::default();
        let check = self.checks.last.as_deref().unwrap_or(&none);
        let all = self.policies.iter();
        let rows = Paged::pick(all, self.policies.len(), page, ROWS, |(name, rule)| {
            let (claims, examples) = self.claims(name, EXAMPLES);
            let by = check.shadows.get(name).into_iter().flatten();
            Some(Policy {
                name: name.clone(),
                priority: rule.priority,
                selects: rule.selects.clone(),
                claims,
                examples,
                shadowed_by: by.map(|(by, count)| (by.clone(), *count)).collect(),
            })
        });
        let mut notes = self.notes();
        notes.extend(check.notes.iter().cloned());
        Policies {
            rows,
            findings: Paged::of(&check.findings, findings, ROWS, Clone::clone),
            checked: self.checks.last.as_ref().map(|check| rows::when(check.at, now)),
            notes,
        }
    }

    /// Number of workloads.
    pub(super) fn workloads(&self) -> usize {
        self.bindings.len()
    }

    /// All members, by name.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values().map(|member| &member.cluster)
    }

    /// The overview, without leader and decisions.
    pub(super) fn overview(&self, members: usize, concerns: usize, now: Timestamp) -> Overview {
        let concern = |(_, whose): &((State, Timestamp), Whose)| match whose {
            Whose::Member(name) => {
                let of = self.clusters.get(name)?.concern.as_ref()?;
                Some(rows::concern(of, None, now))
            }
            Whose::Workload(key, at) => {
                let brief = self.bindings.get(key)?;
                Some(rows::concern(brief.concerns.get(*at)?, Some(&brief.id), now))
            }
        };
        Overview {
            leader: None,
            members: Paged::pick(
                self.order.iter(),
                self.order.len(),
                members,
                TILES,
                |(_, name)| {
                    let (replicas, workloads) =
                        self.on.get(name).map_or((0, 0), |on| (on.replicas, on.keys.len()));
                    Some(rows::tile(&self.clusters.get(name)?.cluster, replicas, workloads, now))
                },
            ),
            ready: self.order.range((true, String::new())..).count(),
            workloads: self.bindings.len(),
            counts: self
                .counts
                .iter()
                .map(|(state, count)| Count { state: rows::state_word(*state), count: *count })
                .collect(),
            concerns: Paged::pick(
                self.urgent.iter(),
                self.urgent.len(),
                concerns,
                CONCERNS,
                concern,
            ),
            held: Vec::new(),
            more_held: 0,
            recent: Vec::new(),
            notes: self.notes(),
        }
    }

    /// The heat map.
    pub(super) fn placement(&self, filter: &PlacementFilter) -> Placement {
        let names = self.clusters.keys();
        let members =
            Paged::pick(names, self.clusters.len(), filter.columns, MAP_COLUMNS, |name| {
                Some(name.clone())
            });
        let found: Vec<&Brief> = self.selected(filter).filter(|b| matches(b, filter)).collect();
        let rows = Paged::of(&found, filter.page, MAP_ROWS, |brief| map_row(brief, &members.rows));
        let cells = rows.rows.iter().flat_map(|row| &row.cells).flatten();
        let most = cells.filter_map(|cell| cell.replicas).max().unwrap_or(1);
        Placement { members, rows, most, notes: self.notes() }
    }

    /// Workloads that a filter may select: those of its namespace, if it has one.
    fn selected<'a>(
        &'a self,
        filter: &'a PlacementFilter,
    ) -> Box<dyn Iterator<Item = &'a Brief> + 'a> {
        match &filter.namespace {
            None => Box::new(self.bindings.values()),
            Some(name) => {
                let first = Arc::new((Some(name.to_lowercase()), String::new()));
                let of = move |key: &Key| {
                    key.0.as_deref().is_some_and(|of| name.eq_ignore_ascii_case(of))
                };
                Box::new(
                    self.bindings
                        .range(first..)
                        .take_while(move |(key, _)| of(key))
                        .map(|(_, brief)| brief),
                )
            }
        }
    }

    /// Replicas, workloads and a page of what runs on a member.
    pub(super) fn work_on(&self, member: &str, page: usize) -> (i64, Paged<Share>) {
        let Some(on) = self.on.get(member) else { return (0, Paged::default()) };
        let share = |key: &Arc<Key>| {
            let brief = self.bindings.get(key)?;
            let work = brief.work.iter().find(|work| work.member == member)?;
            Some(rows::share(work, Some(brief.id.clone())))
        };
        (on.replicas, Paged::pick(on.keys.iter(), on.keys.len(), page, ROWS, share))
    }

    /// How many workloads a policy claims, and the first of them.
    fn claims(&self, policy: &str, examples: usize) -> (usize, Vec<WorkloadId>) {
        let Some(keys) = self.by_policy.get(policy) else { return (0, Vec::new()) };
        let first = keys.iter().take(examples).filter_map(|key| self.bindings.get(key));
        (keys.len(), first.map(|brief| brief.id.clone()).collect())
    }

    /// The first workloads, with the policies that claim them.
    pub(super) fn claimed(&self, most: usize) -> Vec<(ObjectReference, Option<String>)> {
        let first = self.bindings.values().take(most);
        first.map(|brief| (brief.resource.clone(), brief.policy.clone())).collect()
    }
}

fn matches(brief: &Brief, filter: &PlacementFilter) -> bool {
    let is = |wanted: &Option<String>, have: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(have))
    };
    let label = |wanted: &String| match wanted.split_once('=') {
        Some((key, value)) => brief.labels.get(key.trim()).is_some_and(|have| have == value.trim()),
        None => brief.labels.contains_key(wanted.trim()),
    };
    // With or without the kind and the namespace of the policy.
    let policy = |wanted: &String| {
        brief.policy.as_deref().is_some_and(|have| {
            let full = have.split_once(' ').map_or(have, |(_, name)| name);
            let short = full.rsplit_once('/').map_or(full, |(_, name)| name);
            [have, full, short].contains(&wanted.as_str())
        })
    };
    is(&filter.namespace, brief.id.namespace.as_deref().unwrap_or_default())
        && (is(&filter.kind, &brief.id.kind) || is(&filter.kind, &brief.id.type_()))
        && filter.name.as_ref().is_none_or(|part| brief.id.name.contains(part.as_str()))
        && filter.policy.as_ref().is_none_or(policy)
        && filter.state.as_ref().is_none_or(|state| state.eq_ignore_ascii_case(&brief.word().text))
        && filter.label.as_ref().is_none_or(label)
}

fn map_row(brief: &Brief, members: &[String]) -> MapRow {
    let cell = |work: &Work| Cell {
        replicas: work.replicas,
        tone: match work.report.as_ref().map(|report| report.health) {
            Some(ResourceHealth::Healthy) => Tone::Good,
            Some(ResourceHealth::Unhealthy) => Tone::Bad,
            Some(ResourceHealth::Unknown) | None => Tone::Plain,
        },
    };
    let on = |member: &String| brief.work.iter().find(|work| work.member == *member).map(cell);
    MapRow {
        workload: brief.id.clone(),
        state: brief.word(),
        replicas: brief.replicas,
        cells: members.iter().map(on).collect(),
        elsewhere: brief.work.iter().filter(|work| !members.contains(&work.member)).count(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn brief(name: &str, on: &[(&str, i64)], health: &str) -> (Key, Brief) {
        let clusters: Vec<_> =
            on.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
        let spec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
            "replicas": 4, "clusters": clusters,
        }))
        .unwrap();
        let reports: Vec<_> = on
            .iter()
            .map(|(name, _)| json!({"clusterName": name, "applied": true, "health": health, "status": {"big": 1}}))
            .collect();
        let status = serde_json::from_value(json!({"aggregatedStatus": reports})).unwrap();
        let metadata = serde_json::from_value(json!({
            "name": format!("{name}-deployment"), "labels": {"team": "a"},
            "annotations": {"policy.atoll.dev/name": "p", "policy.atoll.dev/namespace": "shop"},
        }))
        .unwrap();
        ((Some("shop".to_owned()), name.to_owned()), Brief::of(&metadata, &spec, Some(&status)))
    }

    fn index() -> Index {
        let mut index = Index::default();
        for name in ["a", "b", "c"] {
            index.put_cluster(Cluster::new(name, Default::default()));
        }
        for (key, brief) in
            [brief("web", &[("a", 3), ("b", 1)], "Healthy"), brief("db", &[("b", 4)], "Unhealthy")]
        {
            index.put(key, brief);
        }
        index
    }

    #[test]
    fn workloads_are_counted_by_member_and_state() {
        let index = index();
        let now = Timestamp::UNIX_EPOCH;
        let overview = index.overview(0, 0, now);
        let totals: Vec<_> = overview
            .members
            .rows
            .iter()
            .map(|m| (m.name.as_str(), m.replicas, m.workloads))
            .collect();
        assert_eq!(totals, [("a", 3, 1), ("b", 5, 2), ("c", 0, 0)]);
        assert_eq!((overview.workloads, overview.counts.len(), overview.concerns.all), (2, 1, 1));
        assert_eq!(overview.concerns.rows[0].workload.as_ref().unwrap().name, "db");
        let (replicas, shares) = index.work_on("b", 0);
        assert_eq!((replicas, shares.all), (5, 2));
        assert_eq!(index.claims("PropagationPolicy shop/p", 1).0, 2);
        assert_eq!(index.claims("PropagationPolicy shop/p", 1).1.len(), 1);
        assert_eq!(index.claimed(1)[0].0.name, "db");
    }

    #[test]
    fn what_pages_need_of_all_follows_every_change() {
        let mut index = index();
        let now = Timestamp::UNIX_EPOCH;
        let (key, healthy) = brief("db", &[("c", 4)], "Healthy");
        index.put(key.clone(), healthy);
        let overview = index.overview(0, 0, now);
        let on: Vec<_> = overview.members.rows.iter().map(|m| (m.replicas, m.workloads)).collect();
        assert_eq!((&on[..], overview.counts.len()), (&[(3, 1), (1, 1), (4, 1)][..], 0));
        assert_eq!(overview.concerns.all, 0);
        index.remove(&key);
        index.remove_cluster("a");
        let overview = index.overview(0, 0, now);
        assert_eq!((overview.members.all, overview.workloads), (2, 1));
        index.clear(false);
        index.clear_clusters();
        let overview = index.overview(0, 0, now);
        assert_eq!((overview.members.all, overview.workloads, overview.ready), (0, 0, 0));
        assert_eq!((index.claims("PropagationPolicy shop/p", 1).0, index.on.len()), (0, 0));
    }

    #[test]
    fn filters_of_the_heat_map_select() {
        let index = index();
        let names = |filter: PlacementFilter| -> Vec<String> {
            index.placement(&filter).rows.rows.iter().map(|row| row.workload.name.clone()).collect()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(names(PlacementFilter::default()), ["db", "web"]);
        assert_eq!(names(PlacementFilter { state: some("Fine"), ..Default::default() }), ["web"]);
        assert_eq!(names(PlacementFilter { name: some("d"), ..Default::default() }), ["db"]);
        for (filter, count) in [
            (PlacementFilter { namespace: some("shop"), ..Default::default() }, 2),
            (PlacementFilter { namespace: some("other"), ..Default::default() }, 0),
            (PlacementFilter { kind: some("deployment"), ..Default::default() }, 2),
            (PlacementFilter { kind: some("Deployment.apps"), ..Default::default() }, 2),
            (PlacementFilter { policy: some("shop/p"), ..Default::default() }, 2),
            (PlacementFilter { policy: some("q"), ..Default::default() }, 0),
            (PlacementFilter { label: some("team=a"), ..Default::default() }, 2),
            (PlacementFilter { label: some("team=b"), ..Default::default() }, 0),
        ] {
            assert_eq!(names(filter.clone()).len(), count, "{filter:?}");
        }
        let map = index.placement(&PlacementFilter::default());
        assert_eq!(map.most, 4);
        let web: Vec<_> = map.rows.rows[1].cells.iter().map(|c| c.map(|c| c.replicas)).collect();
        assert_eq!(web, [Some(Some(3)), Some(Some(1)), None]);
    }
}
