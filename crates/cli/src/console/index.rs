//! What the pages about the whole federation show, kept current from watches. One task owns it; no I/O here.

use std::collections::BTreeMap;

use atoll_api::binding::{ResourceBindingSpec, ResourceBindingStatus, ResourceHealth};
use atoll_api::{Cluster, MemberState, marks};
use atoll_console::data::{
    Cell, Count, MAP_COLUMNS, MAP_ROWS, MapRow, Overview, Paged, Placement, PlacementFilter, ROWS,
    Share, Tone, Word, WorkloadId,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::rows;
use crate::read::work::{self, Work};
use crate::status::concern::{self, Concern, State};

/// Tiles of one page of the overview.
const TILES: usize = 60;
/// Rows of one page of concerns.
const CONCERNS: usize = 20;

/// Namespace and name of a binding.
pub(super) type Key = (Option<String>, String);

/// A binding, as far as pages show it.
#[derive(Debug, Clone)]
pub(super) struct Brief {
    pub(super) id: WorkloadId,
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
    let of = &spec.resource;
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

/// Members and workloads.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) clusters: BTreeMap<String, Cluster>,
    pub(super) bindings: BTreeMap<Key, Brief>,
    /// What cannot be read, by kind.
    pub(super) problems: BTreeMap<&'static str, String>,
}

impl Index {
    pub(super) fn notes(&self) -> Vec<String> {
        self.problems.values().cloned().collect()
    }

    /// Replicas and workloads of each member.
    fn totals(&self) -> BTreeMap<&str, (i64, usize)> {
        let mut totals: BTreeMap<&str, (i64, usize)> = BTreeMap::new();
        for work in self.bindings.values().flat_map(|brief| &brief.work) {
            let (replicas, workloads) = totals.entry(&work.member).or_default();
            *replicas = replicas.saturating_add(work.replicas.unwrap_or(0));
            *workloads += 1;
        }
        totals
    }

    /// The overview, without leader and decisions.
    pub(super) fn overview(&self, members: usize, concerns: usize, now: Timestamp) -> Overview {
        let totals = self.totals();
        let ready = |cluster: &Cluster| {
            let held = cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            let gone = cluster.metadata.deletion_timestamp.is_some();
            MemberState::of(&cluster.spec, held, gone).state == "Ready"
        };
        let mut sorted: Vec<(bool, &String, &Cluster)> =
            self.clusters.iter().map(|(name, cluster)| (ready(cluster), name, cluster)).collect();
        sorted.sort_by_key(|(ready, name, _)| (*ready, *name));
        let mut all: Vec<(&Concern, Option<&WorkloadId>)> = Vec::new();
        let held: Vec<Concern> = self.clusters.values().filter_map(concern::of_member).collect();
        all.extend(held.iter().map(|concern| (concern, None)));
        let mut counts: BTreeMap<State, usize> = BTreeMap::new();
        for brief in self.bindings.values() {
            all.extend(brief.concerns.iter().map(|concern| (concern, Some(&brief.id))));
            if let Some(state) = brief.state() {
                *counts.entry(state).or_default() += 1;
            }
        }
        all.sort_by_key(|(concern, _)| concern.urgency());
        Overview {
            leader: None,
            members: Paged::of(&sorted, members, TILES, |(_, name, cluster)| {
                let (replicas, workloads) = totals.get(name.as_str()).copied().unwrap_or_default();
                rows::tile(cluster, replicas, workloads, now)
            }),
            ready: sorted.iter().filter(|(ready, ..)| *ready).count(),
            workloads: self.bindings.len(),
            counts: counts
                .into_iter()
                .map(|(state, count)| Count { state: rows::state_word(state), count })
                .collect(),
            concerns: Paged::of(&all, concerns, CONCERNS, |(of, id)| rows::concern(of, *id, now)),
            held: Vec::new(),
            more_held: 0,
            recent: Vec::new(),
            notes: self.notes(),
        }
    }

    /// The heat map.
    pub(super) fn placement(&self, filter: &PlacementFilter) -> Placement {
        let names: Vec<&String> = self.clusters.keys().collect();
        let members = Paged::of(&names, filter.columns, MAP_COLUMNS, |name| (*name).clone());
        let found: Vec<&Brief> =
            self.bindings.values().filter(|brief| matches(brief, filter)).collect();
        let rows = Paged::of(&found, filter.page, MAP_ROWS, |brief| map_row(brief, &members.rows));
        let cells = rows.rows.iter().flat_map(|row| &row.cells).flatten();
        let most = cells.filter_map(|cell| cell.replicas).max().unwrap_or(1);
        Placement { members, rows, most, notes: self.notes() }
    }

    /// Replicas, workloads and a page of what runs on a member.
    pub(super) fn work_on(&self, member: &str, page: usize) -> (i64, Paged<Share>) {
        let on = |brief: &Brief| brief.work.iter().position(|work| work.member == member);
        let found: Vec<(&Brief, usize)> =
            self.bindings.values().filter_map(|brief| Some((brief, on(brief)?))).collect();
        let replicas = found.iter().fold(0_i64, |sum, (brief, at)| {
            sum.saturating_add(brief.work[*at].replicas.unwrap_or(0))
        });
        let shares = Paged::of(&found, page, ROWS, |(brief, at)| {
            rows::share(&brief.work[*at], Some(brief.id.clone()))
        });
        (replicas, shares)
    }

    /// Workloads by the policy that claims them.
    pub(super) fn claims(&self) -> BTreeMap<String, Vec<WorkloadId>> {
        let mut claims: BTreeMap<String, Vec<WorkloadId>> = BTreeMap::new();
        for brief in self.bindings.values() {
            if let Some(policy) = &brief.policy {
                claims.entry(policy.clone()).or_default().push(brief.id.clone());
            }
        }
        claims
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
        && is(&filter.state, &brief.word().text)
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
        let cluster = |name: &str| (name.to_owned(), Cluster::new(name, Default::default()));
        Index {
            clusters: ["a", "b", "c"].map(cluster).into(),
            bindings: [
                brief("web", &[("a", 3), ("b", 1)], "Healthy"),
                brief("db", &[("b", 4)], "Unhealthy"),
            ]
            .into(),
            problems: BTreeMap::new(),
        }
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
        assert_eq!(index.claims()["PropagationPolicy shop/p"].len(), 2);
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
