//! How far the watches are: a reply to a write may arrive after events that are newer than it.

use std::collections::BTreeMap;

use crate::index::Source;

/// The highest version that each source has delivered since its last list.
#[derive(Debug, Default)]
pub(super) struct Delivered(BTreeMap<Source, u64>);

impl Delivered {
    /// The source is listed again. A hub that was restored from a backup has lower versions.
    pub(super) fn restart(&mut self, source: &Source) {
        self.0.remove(source);
    }

    /// A list or an event had an object in this version.
    pub(super) fn note(&mut self, source: &Source, version: Option<&str>) {
        let Some(version) = number(version) else { return };
        match self.0.get_mut(source) {
            Some(highest) => *highest = version.max(*highest),
            None => drop(self.0.insert(source.clone(), version)),
        }
    }

    /// Whether the source has delivered what happened to an object up to this version: a watch delivers the changes of
    /// all its objects in the order of their versions.
    pub(super) fn has(&self, source: &Source, version: Option<&str>) -> bool {
        let delivered = self.0.get(source).zip(number(version));
        delivered.is_some_and(|(highest, version)| *highest >= version)
    }
}

/// The version as a number, which Kubernetes 1.35 guarantees.
fn number(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_than_the_last_event_was_not_delivered() {
        let mut delivered = Delivered::default();
        let source = Source::ChangeGuards;
        assert!(!delivered.has(&source, Some("1")));
        delivered.note(&source, Some("9"));
        // Lists are not in the order of versions.
        delivered.note(&source, Some("7"));
        let has = ["8", "9", "10"].map(|version| delivered.has(&source, Some(version)));
        assert_eq!(has, [true, true, false]);
        assert!(!delivered.has(&Source::Quotas, Some("8")));
        assert!(!delivered.has(&source, Some("x")), "a version that is no number");
        assert!(!delivered.has(&source, None));
        delivered.restart(&source);
        delivered.note(&source, Some("3"));
        assert!(!delivered.has(&source, Some("8")));
    }
}
