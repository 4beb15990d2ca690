//! The digest of an inventory: 32 bytes by which controller and agent verify that they agree.
//!
//! An object without claims (a namespace created because an object needed it) is not part of the inventory: nothing
//! ever removes it, so nothing has to be tracked.

use sha2::{Digest as _, Sha256};

/// SHA-256 over an inventory's entries in key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// The fields of an object that the digest covers: everything that an upsert can change. Object uids are not covered: a
/// controller that has just started does not know them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Hash of the rendered manifest.
    pub hash: &'a str,
    /// uids of the bindings that claim it, in any order.
    pub claims: Vec<&'a str>,
    /// Whether it stays when its binding is deleted.
    pub preserve: bool,
}

impl Digest {
    /// The digest of these entries, in any order.
    #[must_use]
    pub fn of<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        for entry in &mut entries {
            entry.claims.sort_unstable();
            entry.claims.dedup();
        }
        entries.sort_unstable();
        let mut hash = Sha256::new();
        // Prefix each text with its length, so that different inventories have different bytes.
        let mut text = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        for entry in &entries {
            for field in [entry.group, entry.kind, entry.namespace, entry.name, entry.hash] {
                text(field);
            }
            text(if entry.preserve { "preserve" } else { "" });
            text(&entry.claims.len().to_string());
            for claim in &entry.claims {
                text(claim);
            }
        }
        Self(hash.finalize().into())
    }

    /// Protobuf form.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// Whether these received bytes equal this digest.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.0 == bytes
    }
}

impl<'a> Entry<'a> {
    /// An entry in the agent's report; `None` if it lacks a key, which no Atoll agent sends.
    #[must_use]
    pub fn from_wire(entry: &'a crate::v1::InventoryEntry) -> Option<Self> {
        let key = entry.key.as_ref()?;
        Some(Self {
            group: &key.group,
            kind: &key.kind,
            namespace: &key.namespace,
            name: &key.name,
            hash: &entry.hash,
            claims: entry.claims.iter().map(String::as_str).collect(),
            preserve: entry.preserve,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(name: &'a str, hash: &'a str, claims: &[&'a str]) -> Entry<'a> {
        let (group, kind, namespace) = ("apps", "Deployment", "shop");
        Entry { group, kind, namespace, name, hash, claims: claims.to_vec(), preserve: false }
    }

    #[test]
    fn order_does_not_matter_and_content_does() {
        let (a, b) = (entry("a", "1", &["x", "y"]), entry("b", "2", &["x"]));
        let digest = Digest::of([a.clone(), b.clone()]);
        assert_eq!(digest, Digest::of([b.clone(), entry("a", "1", &["y", "x", "y"])]));
        for other in [
            vec![a.clone()],
            vec![a.clone(), b.clone(), b.clone()],
            vec![a.clone(), entry("b", "3", &["x"])],
            vec![a.clone(), entry("b", "2", &["xx"])],
            vec![entry("a", "1", &["x"]), entry("b", "2", &["x"])],
            vec![a.clone(), Entry { preserve: true, ..b.clone() }],
            vec![a.clone(), Entry { namespace: "sho", name: "pb", ..b.clone() }],
        ] {
            assert_ne!(digest, Digest::of(other.clone()), "{other:?}");
        }
        assert!(digest.matches(&digest.to_vec()));
        assert!(!digest.matches(&[]));
    }
}
