//! Which reported replicas the members' figures of free room include.
//!
//! A member reports the status of a workload within a fraction of a second, and counts its free room once per interval.
//! Replicas that it reported since its last count still need their reservation, or their room would be given twice.

use std::collections::BTreeMap;

use atoll_api::ClusterName;

use crate::index::key::BindingKey;

/// Reported replicas that are not in their member's last count.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Members that have counted in their present session, and when, by their own clocks.
    counting: BTreeMap<ClusterName, i64>,
    /// By member: the replicas of a binding in its last count, where it has reported more since.
    behind: BTreeMap<ClusterName, BTreeMap<BindingKey, i64>>,
}

impl Counted {
    /// A member counted its free room at a time of its clock. Returns the bindings whose reservations end with that.
    #[must_use]
    pub(crate) fn counted(&mut self, cluster: &ClusterName, at_ms: i64) -> Vec<BindingKey> {
        // Facts about kinds repeat the last count.
        if self.counting.insert(cluster.clone(), at_ms) == Some(at_ms) {
            return Vec::new();
        }
        self.take_behind(cluster)
    }

    /// The session ended: the next one counts before it reports. Returns the bindings whose reservations end with that.
    #[must_use]
    pub(crate) fn session_ended(&mut self, cluster: &ClusterName) -> Vec<BindingKey> {
        self.counting.remove(cluster);
        self.take_behind(cluster)
    }

    fn take_behind(&mut self, cluster: &ClusterName) -> Vec<BindingKey> {
        self.behind.remove(cluster).into_iter().flatten().map(|(key, _)| key).collect()
    }

    /// A member reported `after` replicas where it reported `before` until now.
    pub(super) fn reported(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        (before, after): (i64, i64),
    ) {
        if !self.counting.contains_key(cluster) {
            return;
        }
        let behind = self.behind.entry(cluster.clone()).or_default();
        let counted = behind.get(key).copied().unwrap_or(before);
        match after > counted {
            true => behind.insert(key.clone(), counted),
            false => behind.remove(key),
        };
    }

    /// How many of the reported replicas are in the member's last count.
    #[must_use]
    pub(super) fn of(&self, key: &BindingKey, cluster: &ClusterName, reported: i64) -> i64 {
        let behind = self.behind.get(cluster).and_then(|behind| behind.get(key));
        behind.map_or(reported, |counted| reported.min(*counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_with_the_next_figures_and_at_once_when_they_go() {
        let (m1, m2) = (ClusterName::from("m1"), ClusterName::from("m2"));
        let web = BindingKey::of(Some("shop"), "web");
        let mut counted = Counted::default();
        counted.reported(&web, &m1, (0, 3));
        assert_eq!(counted.of(&web, &m1, 3), 3, "a member without figures");
        assert!(counted.counted(&m1, 1).is_empty());
        counted.reported(&web, &m1, (3, 5));
        counted.reported(&web, &m1, (5, 7));
        assert_eq!((counted.of(&web, &m1, 7), counted.of(&web, &m2, 7)), (3, 7));
        counted.reported(&web, &m1, (7, 4));
        assert_eq!(counted.of(&web, &m1, 4), 3);
        assert!(counted.counted(&m1, 1).is_empty(), "the same count again");
        assert_eq!(counted.counted(&m1, 2), std::slice::from_ref(&web));
        assert_eq!(counted.of(&web, &m1, 4), 4);
        counted.reported(&web, &m1, (4, 6));
        counted.reported(&web, &m1, (6, 2));
        assert!(counted.counted(&m1, 3).is_empty(), "nothing is behind");
        counted.reported(&web, &m1, (2, 6));
        assert_eq!(counted.session_ended(&m1), std::slice::from_ref(&web));
        assert_eq!(counted.of(&web, &m1, 6), 6);
    }
}
