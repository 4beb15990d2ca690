//! Whether controller and agent agree on the inventory, which is required before anything is removed.
//!
//! Both start from the inventory that the agent last sent (or whose digest it sent) and apply every message since then:
//! an upsert adds a line, a remove or release deletes one. Whether an upsert succeeded is ignored, or one object that
//! always fails would block every removal.

use std::collections::BTreeMap;

use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::v1;

use crate::key::Key;

/// One line of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Hash of the manifest.
    pub hash: String,
    /// uids of the bindings that claim the object.
    pub claims: Vec<String>,
    /// Kept when its binding is deleted.
    pub preserve: bool,
    /// uid of the object; empty before it is applied.
    pub uid: String,
}

/// The shared inventory. Objects without claims are not part of it (see `atoll_protocol::digest`).
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    lines: BTreeMap<Key, Line>,
    agreed: bool,
}

impl Agreement {
    /// Restarts from what the member holds.
    pub(crate) fn begin(&mut self, lines: BTreeMap<Key, Line>) {
        self.lines = lines;
        self.lines.retain(|_, line| !line.claims.is_empty());
        self.agreed = false;
    }

    /// Adds the line of an upsert.
    pub(crate) fn put(&mut self, key: Key, line: Line) {
        if line.claims.is_empty() {
            self.lines.remove(&key);
        } else {
            self.lines.insert(key, line);
        }
    }

    /// Removes the line of a remove or release.
    pub(crate) fn take(&mut self, key: &Key) {
        self.lines.remove(key);
    }

    /// Compares the controller's digest with ours. From a match on, removals are carried out.
    pub(crate) fn compare(&mut self, digest: &[u8]) -> bool {
        self.agreed = self.digest().matches(digest);
        self.agreed
    }

    /// Whether the digests matched since the last restart.
    #[must_use]
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// The digest of the inventory.
    #[must_use]
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.lines.iter().map(|(key, line)| Entry {
            group: &key.kind.group,
            kind: &key.kind.kind,
            namespace: &key.namespace,
            name: &key.name,
            hash: &line.hash,
            claims: line.claims.iter().map(String::as_str).collect(),
            preserve: line.preserve,
        }))
    }

    /// The inventory in pages of at most `size` entries and `most` bytes, for the controller; at least one page.
    #[must_use]
    pub(crate) fn pages(&self, size: usize, most: usize) -> Vec<v1::Inventory> {
        let (mut pages, mut page, mut bytes) = (Vec::new(), v1::Inventory::default(), 0);
        for (key, line) in &self.lines {
            let entry = v1::InventoryEntry {
                key: Some(key.to_wire()),
                hash: line.hash.clone(),
                object_uid: line.uid.clone(),
                claims: line.claims.clone(),
                preserve: line.preserve,
            };
            let more = bytes_of(&entry);
            if page.entries.len() >= size || (bytes + more > most && !page.entries.is_empty()) {
                pages.push(std::mem::take(&mut page));
                bytes = 0;
            }
            bytes += more;
            page.entries.push(entry);
        }
        page.last = true;
        pages.push(page);
        pages
    }
}

/// Size of an entry in a message: its texts, and a tag and a length for each.
fn bytes_of(entry: &v1::InventoryEntry) -> usize {
    const HEAD: usize = 4;
    let key = entry.key.iter().flat_map(|key| [&key.group, &key.kind, &key.namespace, &key.name]);
    let texts = key.chain([&entry.hash, &entry.object_uid]).chain(&entry.claims);
    texts.map(|text| text.len() + HEAD).sum::<usize>() + 3 * HEAD
}

/// Parses the annotation's comma-separated claims.
#[must_use]
pub(crate) fn claims(annotation: &str) -> Vec<String> {
    annotation.split(',').map(str::trim).filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::GroupKind;

    fn key(name: &str) -> Key {
        Key { kind: GroupKind::new("", "ConfigMap"), namespace: "a".into(), name: name.into() }
    }

    fn line(hash: &str, wanted_by: &str) -> Line {
        Line { hash: hash.into(), claims: claims(wanted_by), preserve: false, uid: String::new() }
    }

    #[test]
    fn both_ends_agree_after_the_same_messages_and_not_before() {
        let (mut agent, mut controller) = (Agreement::default(), Agreement::default());
        agent.begin(BTreeMap::from([(key("a"), line("1", "x")), (key("b"), line("1", "x, y"))]));
        controller.begin(BTreeMap::from([(key("a"), line("1", "x")), (key("c"), line("2", "y"))]));
        let digest = controller.digest().to_vec();
        assert!(!agent.compare(&digest) && !agent.is_agreed());
        agent.take(&key("b"));
        assert!(!agent.compare(&digest));
        agent.put(key("c"), line("2", "y"));
        assert!(agent.compare(&digest) && agent.is_agreed());
        // Objects without claims are not part of it.
        agent.put(key("namespace"), line("3", ""));
        assert!(agent.compare(&digest));
        agent.begin(BTreeMap::new());
        assert!(!agent.is_agreed());
    }

    #[test]
    fn pages_are_bounded_and_the_last_one_says_so() {
        let mut agreement = Agreement::default();
        assert_eq!(agreement.pages(2, 1 << 20), [v1::Inventory { entries: vec![], last: true }]);
        agreement.begin((0..5).map(|n| (key(&n.to_string()), line("1", "x"))).collect());
        let sizes = |entries, bytes| {
            let pages = agreement.pages(entries, bytes);
            pages.iter().map(|page| (page.entries.len(), page.last)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(2, 1 << 20), [(2, false), (2, false), (1, true)]);
        let one = bytes_of(&agreement.pages(5, 1 << 20)[0].entries[0]);
        assert_eq!(sizes(5, 3 * one), [(3, false), (2, true)], "bounded in bytes too");
        assert_eq!(sizes(5, 0).len(), 5, "an entry that is too long goes alone");
    }
}
