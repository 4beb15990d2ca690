//! PersistentVolumeClaims: each gets its own volume at once, as from a provisioner that never fails.

use serde_json::{Value, json};

use crate::engine::brain::View;
use crate::index::fields::{list, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::{Plan, Write};

/// Reconciles the claim with this key and its volume.
pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    match view.index.get(Kind::PersistentVolumeClaim, key) {
        Some(claim) if !claim.is_deleting() => provide(view, claim),
        Some(_) => Plan::default(),
        None => Plan::of(
            view.index
                .all(Kind::PersistentVolume)
                .filter(|volume| is_made_for(volume, key) && !volume.is_deleting())
                .map(|volume| Write::delete(volume)),
        ),
    }
}

/// Whether a volume was provisioned for the claim with this key and is deleted with it (reclaim policy Delete).
fn is_made_for(volume: &Object, key: &Key) -> bool {
    volume.text("/spec/claimRef/namespace") == Some(&key.namespace)
        && volume.text("/spec/claimRef/name") == Some(&key.name)
        && volume.text("/spec/persistentVolumeReclaimPolicy") == Some("Delete")
}

/// Volume, then the claim's reference to it, then both statuses.
fn provide(view: &View<'_>, claim: &Object) -> Plan {
    let name = claim.text("/spec/volumeName").filter(|name| !name.is_empty());
    let key = Key::cluster(name.map_or_else(|| format!("pvc-{}", claim.uid), str::to_owned));
    let Some(volume) = view.index.get(Kind::PersistentVolume, &key) else {
        // A claim that names a volume waits for that one.
        return if name.is_some() { Plan::default() } else { Plan::of([create(claim, key)]) };
    };
    let mut plan = Plan::default();
    plan.push(Write::fields(claim, json!({"spec": {"volumeName": key.name}})));
    if !plan.writes.is_empty() {
        return plan;
    }
    let mut status = claim.status();
    status["phase"] = json!("Bound");
    status["accessModes"] = claim.data.pointer("/spec/accessModes").cloned().unwrap_or_default();
    status["capacity"] = volume.data.pointer("/spec/capacity").cloned().unwrap_or_default();
    plan.push(Write::status(claim, status));
    let mut status = volume.status();
    status["phase"] = json!("Bound");
    plan.push(Write::status(volume, status));
    plan
}

fn create(claim: &Object, key: Key) -> Write {
    let storage = claim.data.pointer("/spec/resources/requests/storage");
    let modes: Vec<&Value> = list(&claim.data, "/spec/accessModes").iter().collect();
    let mut spec = json!({
        "capacity": {"storage": storage.cloned().unwrap_or_else(|| json!("1Gi"))},
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": "Delete",
        "volumeMode": text(&claim.data, "/spec/volumeMode").unwrap_or("Filesystem"),
        "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.key.namespace,
            "name": claim.key.name, "uid": claim.uid,
        },
        "hostPath": {"path": format!("/var/lib/simulator/{}", key.name)},
    });
    if let Some(class) = text(&claim.data, "/spec/storageClassName") {
        spec["storageClassName"] = json!(class);
    }
    Write::create(Kind::PersistentVolume, key, json!({}), json!({"spec": spec}))
}
