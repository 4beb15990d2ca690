//! What a leader would know from objects alone: for benchmarks, which have no hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{Clock, Few, RunsOn};
use atoll_scheduler::{LiveCluster, Profiles, RecoverAfter, Tables};
use kube::Client;
use serde_json::Value;

use super::types::{Known, PlanError, Settings};
use crate::hub_state::derived;
use crate::index::{Index, Source};
use crate::interpret::Interpreter;
use crate::interpret::webhooks::{WebhookCaller, WebhookMetrics, WebhookTimes};
use crate::leader::LeaderTerm;
use crate::schedule::extend::Extensions;

/// Knows these objects and no reports of members. The hub is asked only for kinds that are not among them.
pub(super) fn known(hub: Client, objects: Vec<Value>) -> Result<Known, PlanError> {
    let profiles = Profiles::default();
    let extensions = Extensions::new(&profiles, &[]);
    let clock = Clock::system();
    let caller = WebhookCaller::new(WebhookTimes::default(), WebhookMetrics::default());
    let mut index = Index::default();
    let mut by_source: BTreeMap<Source, Vec<Arc<Value>>> = BTreeMap::new();
    for object in objects {
        if let Some(source) = Source::of_object(&object) {
            by_source.entry(source).or_default().push(Arc::new(object));
        }
    }
    for (source, objects) in by_source {
        index.replace(&source, objects);
    }
    let (mut tables, mut live) = (Tables::default(), BTreeMap::new());
    tables.set_cluster_sets(index.cluster_rules().clone());
    for (name, cluster) in index.clusters() {
        let of = LiveCluster::from_status(cluster);
        tables.upsert_cluster(cluster, of.clone());
        live.insert(name.clone(), of);
    }
    let keys: Vec<_> = index.bindings().map(|binding| binding.key.clone()).collect();
    for key in &keys {
        derived::refresh_binding(&mut tables, &index, key, Few::default());
    }
    Ok(Known {
        settings: Settings {
            client: hub,
            interpreter: Arc::new(Interpreter::new(clock.clone(), RunsOn::Thread, caller)),
            clock,
            extensions: Arc::new(extensions.map_err(|e| PlanError::Profiles(e.to_string()))?),
            profiles,
            recover_after: RecoverAfter::default(),
        },
        term: LeaderTerm::default(),
        index: Arc::new(index),
        tables,
        live,
        resources: BTreeMap::new(),
        reported: Arc::default(),
        waiting: Vec::new(),
        due: Vec::new(),
        gated: Vec::new(),
    })
}
