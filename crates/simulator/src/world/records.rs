//! Whether history has every committed decision once and in order (I10).

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::DecisionId;
use atoll_history::inputs::{Chain, State, chain};
use atoll_history::{Filter, MemoryStore, Record, Store};
use atoll_scheduler::replay::restore;
use tokio::time::{Instant, timeout_at};

use super::World;
use super::ledger::Committed;
use super::mirror::Mirror;

/// How long the recorder may take for a committed decision.
const RECORDED: Duration = Duration::from_secs(30);
/// More rows than any World writes.
const ROWS: usize = 1_000_000;
/// The trigger of a withdrawn binding, which is recorded without a commit.
const WITHDRAWN: &str = "Withdrawn";

impl World {
    /// The history database, for faults and inspection.
    #[must_use]
    pub fn history_store(&self) -> &MemoryStore {
        &self.plan.history
    }

    /// Rows of history in the order in which they were written.
    ///
    /// # Panics
    /// When a row cannot be read.
    pub async fn history(&self) -> Vec<Record> {
        let rows = match self.plan.history.tail(&Filter::default(), 0, ROWS).await {
            Ok(rows) => rows,
            Err(error) => panic!("read history: {error}"),
        };
        let read = |row: atoll_history::Row| match row.entry.record() {
            Some(record) => record.clone(),
            None => panic!("a row of history cannot be read: {row:?}"),
        };
        rows.into_iter().map(read).collect()
    }

    /// Triggers of a binding's decisions (`ns/name`), oldest first.
    pub async fn triggers(&self, binding: &str) -> Vec<String> {
        let is_it = |record: &Record| {
            let of = &record.binding;
            format!("{}/{}", of.namespace.as_deref().unwrap_or_default(), of.name) == binding
        };
        let rows = self.history().await;
        rows.iter().filter(|row| is_it(row)).map(|row| row.record.trigger.to_string()).collect()
    }

    /// Checks I10: history has exactly one row for every committed decision, each after its parent; apart from them
    /// only
    /// withdrawals.
    ///
    /// # Panics
    /// When that does not hold within 30 s.
    pub async fn check_history(&self) {
        let mut written = self.plan.history.written();
        let until = Instant::now() + RECORDED;
        loop {
            written.borrow_and_update();
            let committed = self.ledger.decisions();
            let rows = self.history().await;
            let Err(how) = complete(&committed, &rows) else {
                let replayed = replayed(&self.plan.history, &rows).await;
                replayed.unwrap_or_else(|how| panic!("I11: {how}"));
                return;
            };
            if timeout_at(until, written.changed()).await.is_err() {
                panic!(
                    "I10: {how}\ncommitted: {committed:#?}\n{}",
                    self.mirror.read(super::View::summary)
                );
            }
        }
    }
}

/// Makes every recorded decision again from its inputs: the bytes must be the same. Returns how many were made; the
/// others have no inputs, because they were lost in a fault or need none.
///
/// # Errors
/// Which decision differs.
pub(super) async fn replayed(store: &MemoryStore, rows: &[Record]) -> Result<usize, String> {
    let mut count = 0;
    let mut state = State::default();
    let mut have: Option<DecisionId> = None;
    for row in rows {
        let id = &row.record.id;
        let failed = |how: String| format!("decision {id} of {}: {how}", row.binding.name);
        let read = chain(store, id, have.as_deref()).await.map_err(|e| failed(e.to_string()))?;
        let Chain::Frames(links) = read else { continue };
        for link in links {
            state.apply(&link.frame).map_err(|error| failed(error.to_string()))?;
        }
        have = Some(id.clone());
        let stored = store.get(id).await.map_err(|error| failed(error.to_string()))?;
        let detail = stored.as_ref().and_then(|row| row.entry.record()?.detail.as_ref());
        let Some(detail) = detail else { continue };
        let recorded = detail.decode().map_err(|error| failed(error.to_string()))?;
        let inputs = restore(state.objects()).map_err(|error| failed(error.to_string()))?;
        let profiles = inputs.profiles().map_err(|error| failed(error.to_string()))?;
        let again = serde_json::json!(inputs.decide(&profiles));
        if again != recorded {
            return Err(failed(format!("was\n{recorded:#}\nand is now\n{again:#}")));
        }
        count += 1;
    }
    Ok(count)
}

fn complete(committed: &BTreeMap<String, Vec<Committed>>, rows: &[Record]) -> Result<(), String> {
    let mut recorded: BTreeMap<String, Vec<Committed>> = BTreeMap::new();
    for row in rows {
        let of = recorded.entry(row.binding.uid.to_string()).or_default();
        let record = &row.record;
        if record.parent != of.last().map(|last| last.id.clone()) {
            return Err(format!(
                "row {} stands behind {:?}, its parent is {:?}",
                record.id,
                of.last(),
                record.parent
            ));
        }
        let ended = record.trigger.to_string() == WITHDRAWN;
        let entry = Committed { id: record.id.clone(), parent: record.parent.clone() };
        if ended && !committed.get(row.binding.uid.as_str()).is_some_and(|all| all.contains(&entry))
        {
            continue;
        }
        of.push(entry);
    }
    let different = committed.iter().find(|(uid, decisions)| recorded.get(*uid) != Some(decisions));
    // A binding without a decision of its own, of an object that others need, has a withdrawal only.
    let mut strangers = recorded.iter().filter(|(_, rows)| !rows.is_empty());
    match (different, strangers.find(|(uid, _)| !committed.contains_key(*uid))) {
        (Some((uid, _)), _) => Err(format!("binding {uid} has rows {:#?}", recorded.get(uid))),
        (None, Some((uid, rows))) => {
            Err(format!("rows of binding {uid}, which was never committed: {rows:#?}"))
        }
        (None, None) => Ok(()),
    }
}

/// Everything that a run observed: the watch log of each site, then history.
pub(super) async fn account(world: &World, mirror: &Mirror) -> Vec<String> {
    let mut lines = mirror.log();
    for row in world.history().await {
        let detail = row.detail.as_ref().map(|detail| format!("{detail:?}"));
        lines.push(format!(
            "history {} {:?} {:?} {:?} {detail:?}",
            row.binding.name, row.record, row.after, row.reason
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(id: &str, parent: Option<&str>) -> Record {
        let decision = json!({
            "id": id, "parent": parent, "trigger": "Scale", "mode": "Steady", "outcome": "Placed",
            "at": "2026-01-01T00:00:00Z",
        });
        let binding = json!({"kind": "ResourceBinding", "namespace": "d", "name": "x", "uid": "b"});
        Record {
            record: serde_json::from_value(decision).unwrap(),
            binding: serde_json::from_value(binding).unwrap(),
            workload: Default::default(),
            before: None,
            after: Vec::new(),
            reason: None,
            gap: None,
            withdrawal: None,
            provenance: None,
            rejections: None,
            detail: None,
            inputs: None,
        }
    }

    #[test]
    fn a_missing_a_second_and_a_misplaced_row_are_found() {
        let of = |rows: &[Record]| {
            let committed = [("1", None), ("2", Some("1"))].map(|(id, parent)| Committed {
                id: id.into(),
                parent: parent.map(DecisionId::from),
            });
            complete(&BTreeMap::from([("b".to_owned(), committed.to_vec())]), rows)
        };
        let (one, two) = (record("1", None), record("2", Some("1")));
        assert_eq!(of(&[one.clone(), two.clone()]), Ok(()));
        assert!(of(std::slice::from_ref(&one)).is_err());
        assert!(of(&[one.clone(), two.clone(), record("3", Some("2"))]).is_err());
        assert!(of(&[one.clone(), two.clone(), two.clone()]).is_err());
        assert!(of(&[two, one]).is_err());
        assert!(of(&[]).is_err());
    }
}
