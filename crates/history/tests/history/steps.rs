//! kill -9 between every two steps of recording a decision: commit on the hub, insert into the database,
//! acknowledgement, and the next commit that drops acknowledged decisions. On every store.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::DecisionId;
use atoll_api::binding::{ResourceBindingSpec, TargetCluster, UnrecordedDecision};
use atoll_history::{BindingRef, Filter, MemoryStore, PostgresStore, SqliteStore, Store, outbox};

use crate::database::Database;
use crate::support::record;

/// Decisions of one binding.
const DECISIONS: usize = 3;

/// Stops its caller at one of the steps, counted from 0.
struct Fuse {
    left: Option<usize>,
    steps: usize,
}

impl Fuse {
    fn new(at: Option<usize>) -> Self {
        Self { left: at, steps: 0 }
    }

    /// The end of a leader, which loses everything that is in no database.
    fn step(&mut self) -> Result<(), Dead> {
        self.steps += 1;
        match &mut self.left {
            Some(0) => Err(Dead),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Dead;

/// The content of the hub: besides the database, the only state that outlives a leader.
struct Hub {
    binding: BindingRef,
    spec: ResourceBindingSpec,
    made: usize,
}

impl Hub {
    fn new(uid: &str) -> Self {
        let binding = BindingRef { uid: uid.into(), ..record("", 0, "web", 1).binding };
        Self { binding, spec: ResourceBindingSpec::default(), made: 0 }
    }

    fn id(&self, n: usize) -> DecisionId {
        format!("{}-{n}", self.binding.uid).into()
    }

    /// One write: the next decision, and the earlier ones that are not acknowledged.
    fn commit(&mut self, acknowledged: &BTreeSet<DecisionId>) {
        let n = self.made;
        let mut decision = record(&self.id(n), 0, "web", 1_790_000_000).record;
        decision.parent = n.checked_sub(1).map(|n| self.id(n));
        if let Some(last) = self.spec.decision.replace(decision) {
            let clusters = std::mem::take(&mut self.spec.clusters);
            let held = UnrecordedDecision { decision: last, clusters, count: 1, from: None };
            self.spec.unrecorded.push(held);
        }
        self.spec.unrecorded.retain(|held| !acknowledged.contains(&held.decision.id));
        let replicas = i64::try_from(n).unwrap();
        self.spec.clusters = vec![TargetCluster { name: "a".to_owned(), replicas }];
        self.made += 1;
    }
}

/// A leader: writes what the binding holds, then decides until all is decided. It continues while the database is
/// unreachable.
async fn lead(store: &dyn Store, hub: &mut Hub, fuse: &mut Fuse, away: bool) -> Result<(), Dead> {
    let mut acknowledged = BTreeSet::new();
    loop {
        let held = outbox::records(&hub.binding, &hub.spec);
        fuse.step()?; // before the insert
        if !away && !held.is_empty() {
            store.insert(&held).await.unwrap();
        }
        fuse.step()?; // inserted, not acknowledged
        if !away {
            acknowledged.extend(held.into_iter().map(|record| record.record.id));
        }
        fuse.step()?; // acknowledged, and the binding still holds it
        if hub.made == DECISIONS {
            return Ok(());
        }
        hub.commit(&acknowledged);
        fuse.step()?; // committed, not yet passed on
    }
}

async fn every_row_once_and_in_order(store: &dyn Store, hub: &Hub, case: &str) {
    let filter = Filter { binding_uid: Some(hub.binding.uid.clone()), ..Filter::default() };
    let rows = store.tail(&filter, 0, 100).await.unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let record = row.entry.record().unwrap();
            (record.record.id.clone(), record.record.parent.clone(), record.after[0].replicas)
        })
        .collect();
    let expected: Vec<_> = (0..DECISIONS)
        .map(|n| (hub.id(n), n.checked_sub(1).map(|n| hub.id(n)), i64::try_from(n).unwrap()))
        .collect();
    assert_eq!(found, expected, "{case}");
}

/// Two leaders die, each at any of its steps, with the database reachable or not for the first; the third one
/// continues.
async fn any_two_deaths(store: &dyn Store, name: &str) {
    let mut whole = Fuse::new(None);
    lead(&MemoryStore::default(), &mut Hub::new("counted"), &mut whole, false).await.unwrap();
    let steps = whole.steps;
    assert_eq!(steps, 4 * DECISIONS + 3, "the steps of a life without a death");
    for away in [false, true] {
        for first in 0..steps {
            for second in 0..=steps {
                let case = format!("{name}: {first}, then {second}, database away: {away}");
                let mut hub = Hub::new(&format!("{first}-{second}-{away}"));
                lead(store, &mut hub, &mut Fuse::new(Some(first)), away).await.unwrap_err();
                // The second has less to do: if it finishes before its fuse burns down, it ends normally.
                let _ends = lead(store, &mut hub, &mut Fuse::new(Some(second)), false).await;
                lead(store, &mut hub, &mut Fuse::new(None), false).await.unwrap();
                every_row_once_and_in_order(store, &hub, &case).await;
            }
        }
    }
}

#[tokio::test]
async fn a_death_between_any_two_steps_leaves_no_row_out_and_none_twice() {
    any_two_deaths(&MemoryStore::default(), "memory").await;
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
    any_two_deaths(&file, "SQLite").await;
    file.close().await;
    let Some(database) = Database::make("steps").await else { return };
    let server = Arc::new(PostgresStore::new(&database.url).unwrap());
    any_two_deaths(&*server, "PostgreSQL").await;
    server.close().await;
    database.drop().await;
}
