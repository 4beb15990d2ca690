//! How far the watches are: a reply to a write may arrive after events that are newer than it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::index::Source;

/// The highest version that each source has delivered since its last list.
#[derive(Debug, Default)]
pub(super) struct Delivered(BTreeMap<Source, u64>);

impl Delivered {
    /// The source is listed again. A hub that was restored from a backup has lower versions.
    pub(super) fn restart(&mut self, source: &Source) {
        self.0.remove(source);
    }

    /// A list or an event had this object.
    pub(super) fn note(&mut self, source: &Source, object: &Value) {
        let Some(version) = version(object) else { return };
        match self.0.get_mut(source) {
            Some(highest) => *highest = version.max(*highest),
            None => drop(self.0.insert(source.clone(), version)),
        }
    }

    /// Whether the source has delivered what happened to this object up to this version: a watch delivers the changes of
    /// all its objects in the order of their versions.
    pub(super) fn has(&self, source: &Source, object: &Value) -> bool {
        let delivered = self.0.get(source).zip(version(object));
        delivered.is_some_and(|(highest, version)| *highest >= version)
    }
}

/// The version as a number, which Kubernetes 1.35 guarantees.
fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_newer_than_the_last_event_was_not_delivered() {
        let of = |version: &str| json!({"metadata": {"resourceVersion": version}});
        let mut delivered = Delivered::default();
        let source = Source::ChangeGuards;
        assert!(!delivered.has(&source, &of("1")));
        delivered.note(&source, &of("9"));
        // Lists are not in the order of versions.
        delivered.note(&source, &of("7"));
        let has = [of("8"), of("9"), of("10")].map(|object| delivered.has(&source, &object));
        assert_eq!(has, [true, true, false]);
        assert!(!delivered.has(&Source::Quotas, &of("8")));
        assert!(!delivered.has(&source, &of("x")), "a version that is no number");
        delivered.restart(&source);
        delivered.note(&source, &of("3"));
        assert!(!delivered.has(&source, &of("8")));
    }
}
