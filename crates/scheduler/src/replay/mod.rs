//! What a decision read, as data: enough to make it again, byte for byte.
//!
//! [`Inputs`] takes from a snapshot what a request can read. It only shares values, so it is cheap and holds up no change
//! of the tables. [`Inputs::differences`] turns it into named objects, as differences from earlier inputs: a cluster is
//! encoded once for each version. [`restore`] reads such objects. How they are stored is the reader's task.
//!
//! Plugins of other crates that read more than the built-in ones are not covered: their decisions may differ when they
//! are made again.

mod restore;
mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::placement::Placement;
use atoll_api::{Shared, WorkloadPolicy, WorkloadSpread};
use atoll_decision::{Applied, BindingKey};

pub use restore::{RestoreError, Restored, restore};

use self::stored::{StoredBinding, StoredCluster, StoredRequest, json};
use crate::framework::plugin::Point;
use crate::framework::profile::Profiles;
use crate::request::Request;
use crate::state::cluster_sets::{ClusterSets, StoredSets};
use crate::state::member_quotas::ByMember;
use crate::state::quotas::{Quotas, StoredQuotas};
use crate::state::row::Row;
use crate::state::snapshot::Snapshot;
use crate::state::standing::Claim;
use crate::state::supply::Supply;
use crate::state::tables::BindingFacts;

/// Prefixes and names of the objects.
pub(crate) mod name {
    /// What changes rarely in a cluster: labels, taints, session, kinds.
    pub(crate) const CLUSTER: &str = "cluster/";
    /// Free room of a cluster.
    pub(crate) const SUPPLY: &str = "supply/";
    /// Reservations on a cluster.
    pub(crate) const RESERVED: &str = "reserved/";
    /// Another binding.
    pub(crate) const BINDING: &str = "binding/";
    /// The binding that is decided on. It has one name for all, so that one decision's is close to the next one's.
    pub(crate) const OWN: &str = "own";
    pub(crate) const REQUEST: &str = "request";
    /// The request's placement. Most decisions have that of the decision before.
    pub(crate) const PLACEMENT: &str = "placement";
    /// The placement that was in force before the decision.
    pub(crate) const APPLIED: &str = "applied";
    pub(crate) const PROFILES: &str = "profiles";
    pub(crate) const QUOTAS: &str = "quotas";
    pub(crate) const WORKLOAD_POLICY: &str = "workloadpolicy";
    pub(crate) const WORKLOAD_SPREAD: &str = "workloadspread";
    pub(crate) const CLUSTER_SETS: &str = "clustersets";
    pub(crate) const CLAIMS: &str = "claims";
    pub(crate) const MEMBER_QUOTAS: &str = "memberquotas";
}

/// The most other bindings of one decision that are recorded: a decision that reads more is not recorded with inputs,
/// because that would cost more than the decision.
pub const MOST_BINDINGS: usize = 20_000;

/// What one decision read.
#[derive(Debug, Clone)]
pub struct Inputs {
    version: u64,
    chunks: Vec<Arc<[Arc<Row>]>>,
    /// Without its placement and the one that was in force before.
    request: Arc<Request>,
    placement: Shared<Placement>,
    applied: Option<Applied>,
    own: Option<Arc<BindingFacts>>,
    bindings: Vec<Arc<BindingFacts>>,
    claims: Vec<(BindingKey, Vec<Claim>)>,
    quotas: Option<Arc<Quotas>>,
    workload_policy: Option<Arc<WorkloadPolicy>>,
    workload_spread: Option<Arc<WorkloadSpread>>,
    cluster_sets: Option<Arc<ClusterSets>>,
    member_quotas: Option<Arc<ByMember>>,
    profiles: Arc<str>,
}

/// An object whose content changed; `None` = it is gone.
pub type Difference = (String, Option<Vec<u8>>);

impl Inputs {
    /// What a decision on this request reads. `None` if that is too much: see [`MOST_BINDINGS`].
    #[must_use]
    pub fn of(snapshot: &Snapshot, mut request: Request, profiles: &Profiles) -> Option<Self> {
        let template = &request.template;
        let namespace = request.key.namespace().unwrap_or_default();
        let of_template = template.namespace.as_deref().unwrap_or_default();
        let workload_spread = snapshot
            .workload_spread(of_template, template.group(), &template.kind, &template.name)
            .cloned();
        let named = template.workload_policy.as_deref();
        let workload_policy =
            named.and_then(|name| snapshot.workload_policy(of_template, name)).cloned();
        let quotas = snapshot.shared_quotas(namespace);
        let member_quotas = snapshot.member_quotas().shared(namespace);
        let own = snapshot.binding(&request.key).cloned();
        let scope = Scope::of(&request, profiles, member_quotas.is_some());
        let bindings = others(snapshot, &request, scope)?;
        let claims = match scope {
            Scope::All => snapshot.all_claims().clone().into_iter().collect(),
            Scope::Namespace | Scope::Own => {
                let held = snapshot.claims(&request.key).to_vec();
                if held.is_empty() { Vec::new() } else { vec![(request.key.clone(), held)] }
            }
        };
        let sets = snapshot.shared_cluster_sets();
        Some(Self {
            version: snapshot.version(),
            chunks: snapshot.chunks().to_vec(),
            own: own.filter(|_| scope != Scope::Own || quotas.is_some()),
            bindings,
            claims,
            quotas,
            workload_policy,
            workload_spread,
            cluster_sets: (!sets.limits_nothing()).then_some(sets),
            member_quotas,
            profiles: profiles.configured().clone(),
            placement: std::mem::take(&mut request.placement),
            applied: request.previous.as_mut().and_then(|p| p.applied_placement.take()),
            request: Arc::new(request),
        })
    }

    /// The objects that differ from those of earlier inputs, or all. An object that is the same may be among them.
    #[must_use]
    pub fn differences(&self, before: Option<&Self>) -> Vec<Difference> {
        let mut differences = Differences::default();
        differences.clusters(self, before);
        differences.bindings(self, before);
        differences.placements(self, before);
        let namespace = self.request.key.namespace().unwrap_or_default();
        let sets = self.cluster_sets.as_ref();
        let of_namespace = |sets: &Arc<ClusterSets>| json(&StoredSets::of(sets, namespace));
        let claims = (!self.claims.is_empty()).then(|| json(&self.claims));
        let quotas = self.quotas.as_ref().map(|quotas| json(&StoredQuotas::from(&**quotas)));
        let request = StoredRequest { snapshot: self.version, request: &self.request };
        for (name, content) in [
            (name::OWN, self.own.as_ref().map(|facts| json(&StoredBinding::from(&**facts)))),
            (name::CLAIMS, claims),
            (name::QUOTAS, quotas),
            (name::WORKLOAD_POLICY, self.workload_policy.as_ref().map(|policy| json(&**policy))),
            (name::WORKLOAD_SPREAD, self.workload_spread.as_ref().map(|spread| json(&**spread))),
            (name::CLUSTER_SETS, sets.map(of_namespace)),
            (name::MEMBER_QUOTAS, self.member_quotas.as_ref().map(|quotas| json(&**quotas))),
            (
                name::PROFILES,
                (!self.profiles.is_empty()).then(|| self.profiles.as_bytes().to_vec()),
            ),
            (name::REQUEST, Some(json(&request))),
        ] {
            differences.0.push((name.to_owned(), content));
        }
        differences.0
    }

    fn applied_text(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| &**applied.text())
    }

    fn rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

/// Which other bindings a decision reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// None, but for those that the request names.
    Own,
    /// Those of its namespace.
    Namespace,
    /// All, and all claims.
    All,
}

impl Scope {
    fn of(request: &Request, profiles: &Profiles, member_quotas: bool) -> Self {
        let profile = profiles.get(&request.scheduler_name);
        if profile.is_some_and(|profile| !profile.at(Point::PostFilter).is_empty()) {
            return Self::All;
        }
        let placement = &request.placement;
        let counts = member_quotas
            || profiles.spread_by_themselves()
            || request.template.workload_policy.is_some()
            || placement.workload_affinity.is_some()
            || !placement.topology_spread_constraints.is_empty();
        if counts { Self::Namespace } else { Self::Own }
    }
}

/// The other bindings that a decision reads, by key. `None` if there are too many.
fn others(snapshot: &Snapshot, request: &Request, scope: Scope) -> Option<Vec<Arc<BindingFacts>>> {
    let namespaces = BTreeSet::from([
        request.key.namespace().unwrap_or_default(),
        request.template.namespace.as_deref().unwrap_or_default(),
    ]);
    let mut found: Vec<Arc<BindingFacts>> = match scope {
        Scope::All => snapshot.all_bindings().take(MOST_BINDINGS + 1).cloned().collect(),
        Scope::Namespace => namespaces
            .iter()
            .flat_map(|namespace| snapshot.bindings(namespace))
            .take(MOST_BINDINGS + 1)
            .cloned()
            .collect(),
        Scope::Own => Vec::new(),
    };
    for taken in request.previous.iter().flat_map(|previous| &previous.preempts) {
        let key = BindingKey::of(taken.namespace.as_deref(), &taken.name);
        found.extend(snapshot.binding(&key).cloned());
    }
    found.retain(|facts| facts.key != request.key);
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found.dedup_by(|a, b| a.key == b.key);
    (found.len() <= MOST_BINDINGS).then_some(found)
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn clusters(&mut self, now: &Inputs, before: Option<&Inputs>) {
        let chunks = before.map_or(&[][..], |before| &before.chunks);
        let aligned = chunks.len() == now.chunks.len()
            && chunks.iter().zip(&now.chunks).all(|(a, b)| {
                Arc::ptr_eq(a, b)
                    || a.len() == b.len() && a.iter().zip(&**b).all(|(a, b)| a.name == b.name)
            });
        if aligned {
            for (old, new) in chunks.iter().zip(&now.chunks).filter(|(a, b)| !Arc::ptr_eq(a, b)) {
                old.iter().zip(&**new).for_each(|(old, new)| self.cluster(new, Some(old)));
            }
            return;
        }
        let known: BTreeMap<&str, &Arc<Row>> =
            before.into_iter().flat_map(Inputs::rows).map(|row| (&*row.name, row)).collect();
        for row in now.rows() {
            self.cluster(row, known.get(&*row.name).copied());
        }
        let names: BTreeSet<&str> = now.rows().map(|row| &*row.name).collect();
        for gone in known.keys().filter(|name| !names.contains(*name)) {
            for prefix in [name::CLUSTER, name::SUPPLY, name::RESERVED] {
                self.0.push((format!("{prefix}{gone}"), None));
            }
        }
    }

    fn cluster(&mut self, row: &Arc<Row>, before: Option<&Arc<Row>>) {
        if before.is_some_and(|before| Arc::ptr_eq(before, row)) {
            return;
        }
        let mut put =
            |prefix: &str, content| self.0.push((format!("{prefix}{}", row.name), content));
        if before.is_none_or(|before| !same_facts(before, row)) {
            put(name::CLUSTER, Some(json(&StoredCluster::from(&**row))));
        }
        if before.is_none_or(|before| before.supply != row.supply) {
            put(name::SUPPLY, (row.supply != Supply::Unknown).then(|| json(&row.supply)));
        }
        if before.is_none_or(|before| before.reserved != row.reserved) {
            put(name::RESERVED, (!row.reserved.is_empty()).then(|| json(&row.reserved)));
        }
    }

    fn placements(&mut self, now: &Inputs, before: Option<&Inputs>) {
        if before.is_none_or(|before| before.placement != now.placement) {
            self.0.push((name::PLACEMENT.to_owned(), Some(json(&now.placement))));
        }
        if before.is_none_or(|before| before.applied_text() != now.applied_text()) {
            let content = now.applied_text().map(|text| text.as_bytes().to_vec());
            self.0.push((name::APPLIED.to_owned(), content));
        }
    }

    fn bindings(&mut self, now: &Inputs, before: Option<&Inputs>) {
        let name = |key: &BindingKey| {
            let namespace = key.namespace().unwrap_or_default();
            format!("{}{namespace}/{}", name::BINDING, key.name())
        };
        let mut old = before.map_or(&[][..], |before| &before.bindings).iter().peekable();
        for facts in &now.bindings {
            while let Some(gone) = old.next_if(|old| old.key < facts.key) {
                self.0.push((name(&gone.key), None));
            }
            let known = old.next_if(|old| old.key == facts.key);
            if !known.is_some_and(|known| Arc::ptr_eq(known, facts) || **known == **facts) {
                self.0.push((name(&facts.key), Some(json(&StoredBinding::from(&**facts)))));
            }
        }
        self.0.extend(old.map(|gone| (name(&gone.key), None)));
    }
}

/// Whether two rows of a cluster differ in nothing but room and reservations.
fn same_facts(a: &Row, b: &Row) -> bool {
    (a.terminating, a.session, a.ready) == (b.terminating, b.session, b.ready)
        && (&a.labels, &a.provider, &a.region, &a.zones)
            == (&b.labels, &b.provider, &b.region, &b.zones)
        && (&a.taints, &a.problems) == (&b.taints, &b.problems)
        && Arc::ptr_eq(&a.apis, &b.apis)
}
