//! Size limits in bytes on data from members: per message, per session, and for all members together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_protocol::v1;
use tonic::Status;

/// Longest field of an object's key. Kubernetes allows 253 bytes for a name.
pub(crate) const MAX_KEY_FIELD: usize = 1 << 10;
/// Longest hash or uid.
pub(crate) const MAX_ID: usize = 256;
/// Limit of claims per object. A shared object has one for each binding that wants it.
pub(crate) const MAX_CLAIMS: usize = 10_000;
/// Limit of one inventory in bytes: half a million objects with long names.
pub(crate) const MAX_INVENTORY_BYTES: usize = 256 << 20;
/// Limit of all inventories being received, in bytes.
const ALL_INVENTORIES_BYTES: usize = 1 << 30;
/// Limit of a member's facts in bytes: 5,000 nodes with different free room take less than 2 MiB.
const MAX_FACTS_BYTES: usize = 4 << 20;
/// Limit of a member's kinds in bytes: they go into the Cluster's status, and etcd accepts 1.5 MiB.
const MAX_APIS_BYTES: usize = 512 << 10;
/// Limit of all members' facts in bytes.
const ALL_FACTS_BYTES: usize = 1 << 30;
/// Approximate size of a string, or of an entry of a list or map, without its content.
const OVERHEAD: usize = 32;

/// A shared budget of bytes.
#[derive(Debug)]
pub(crate) struct MemoryBudget(Arc<AtomicUsize>);

/// Bytes reserved from a budget; dropping releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl MemoryBudget {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// An empty reservation, to be grown.
    pub(crate) fn none(&self) -> Reservation {
        Reservation { room: self.0.clone(), bytes: 0 }
    }
}

impl Reservation {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves this many more bytes; returns whether there was room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.room.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// The budgets shared by all members.
#[derive(Debug)]
pub(crate) struct MemoryBudgets {
    pub(crate) inventories: MemoryBudget,
    pub(crate) facts: MemoryBudget,
}

impl Default for MemoryBudgets {
    fn default() -> Self {
        Self {
            inventories: MemoryBudget::new(ALL_INVENTORIES_BYTES),
            facts: MemoryBudget::new(ALL_FACTS_BYTES),
        }
    }
}

/// Reserves memory for a page of an inventory.
pub(crate) fn take_page(taken: &mut Reservation, page: &v1::Inventory) -> Result<(), Status> {
    let bytes: usize = page.entries.iter().map(entry_bytes).sum();
    if taken.bytes() + bytes > MAX_INVENTORY_BYTES {
        return Err(Status::resource_exhausted(format!(
            "the inventory takes more than {} MiB",
            MAX_INVENTORY_BYTES >> 20
        )));
    }
    if !taken.grow(bytes) {
        return Err(Status::resource_exhausted(
            "too many inventories are being received: connect again later",
        ));
    }
    Ok(())
}

/// Reserves memory for facts.
pub(crate) fn take_facts(room: &MemoryBudget, facts: &v1::Facts) -> Result<Reservation, Status> {
    let too_large = |what: &str, most: usize| {
        Status::resource_exhausted(format!("facts.{what} take more than {} KiB", most >> 10))
    };
    let apis = apis_bytes(facts);
    if apis > MAX_APIS_BYTES {
        return Err(too_large("apis", MAX_APIS_BYTES));
    }
    let all = apis + figures_bytes(facts);
    if all > MAX_FACTS_BYTES {
        return Err(too_large("*", MAX_FACTS_BYTES));
    }
    let mut taken = room.none();
    if !taken.grow(all) {
        return Err(Status::resource_exhausted(
            "the facts of all members take too much memory: connect again later",
        ));
    }
    Ok(taken)
}

fn entry_bytes(entry: &v1::InventoryEntry) -> usize {
    let key = entry
        .key
        .as_ref()
        .map_or(0, |key| key.group.len() + key.kind.len() + key.namespace.len() + key.name.len());
    let claims: usize = entry.claims.iter().map(|claim| claim.len() + OVERHEAD).sum();
    key + entry.hash.len() + entry.object_uid.len() + claims + 8 * OVERHEAD
}

fn apis_bytes(facts: &v1::Facts) -> usize {
    let apis = facts.apis.iter().map(|api| {
        let kinds = api.kinds.iter().map(|kind| kind.kind.len() + kind.plural.len() + 2 * OVERHEAD);
        api.group_version.len() + OVERHEAD + kinds.sum::<usize>()
    });
    apis.sum()
}

fn figures_bytes(facts: &v1::Facts) -> usize {
    let sums = [&facts.allocatable_milli, &facts.allocated_milli, &facts.allocating_milli];
    let sums =
        sums.into_iter().flatten().map(|(name, value)| name.len() + value.len() + 2 * OVERHEAD);
    let kinds = facts.unlisted_kinds.iter().map(|kind| kind.len() + OVERHEAD);
    let classes = facts.node_classes.iter().map(|class| {
        let taints = class
            .taints
            .iter()
            .map(|taint| taint.key.len() + taint.value.len() + taint.effect.len() + 3 * OVERHEAD);
        let labels = class.labels.iter().map(|(key, value)| key.len() + value.len() + 2 * OVERHEAD);
        let free = class.free.iter().map(|free| {
            OVERHEAD + free.milli.keys().map(|name| name.len() + OVERHEAD).sum::<usize>()
        });
        OVERHEAD + taints.sum::<usize>() + labels.sum::<usize>() + free.sum::<usize>()
    });
    let quotas = facts.quotas.iter().map(|quota| {
        let free = quota.free_milli.keys().map(|name| name.len() + OVERHEAD);
        2 * OVERHEAD + quota.namespace.len() + free.sum::<usize>()
    });
    let texts = facts.kubernetes_version.len() + facts.api_message.len();
    texts
        + quotas.sum::<usize>()
        + sums.sum::<usize>()
        + kinds.sum::<usize>()
        + classes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_takes_of_a_room_others_lack_until_it_is_given_back() {
        let room = MemoryBudget::new(10);
        let (mut one, mut other) = (room.none(), room.none());
        assert!(one.grow(7) && !other.grow(4) && other.grow(3));
        drop(one);
        assert!(other.grow(7) && !other.grow(1));
        assert_eq!(other.bytes(), 10);
    }

    #[test]
    fn facts_are_bounded_in_bytes() {
        let rooms = MemoryBudgets::default();
        let kind = v1::ApiKind { kind: "K".repeat(1 << 20), ..v1::ApiKind::default() };
        let apis = vec![v1::ApiGroupVersion { group_version: "v1".into(), kinds: vec![kind] }];
        let facts = v1::Facts { apis, ..v1::Facts::default() };
        let refused = take_facts(&rooms.facts, &facts).unwrap_err();
        assert_eq!(refused.message(), "facts.apis take more than 512 KiB");
        let free = vec![v1::FreeVector::default(); 200_000];
        let node_classes = vec![v1::NodeClass { free, ..v1::NodeClass::default() }];
        let facts = v1::Facts { node_classes, ..v1::Facts::default() };
        assert!(take_facts(&rooms.facts, &facts).is_err());
        assert!(take_facts(&rooms.facts, &v1::Facts::default()).is_ok());
    }
}
