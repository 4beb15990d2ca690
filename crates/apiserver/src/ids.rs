//! Uids and generated name suffixes: a function of the seed, the opening and a counter, so that two runs of one seed
//! are equal.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

/// Upstream's alphabet for generated names: no vowels and no digits that look like letters.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated suffix.
const SUFFIX: usize = 5;
/// Longest prefix kept of `generateName`, so that name and suffix fit 63 characters.
const MAX_PREFIX: usize = 63 - SUFFIX;

/// Generates uids and names.
#[derive(Debug)]
pub(crate) struct Ids {
    seed: u64,
    opening: u64,
    next: AtomicU64,
}

impl Ids {
    /// `opening` counts how often the store has been opened: the counter restarts each time, so without it a restart
    /// would repeat its first uids.
    pub(crate) fn new(seed: u64, opening: u64) -> Self {
        Ids { seed, opening, next: AtomicU64::new(0) }
    }

    fn draw(&self, purpose: &str) -> [u8; 32] {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update(self.seed.to_be_bytes());
        hash.update(self.opening.to_be_bytes());
        hash.update(count.to_be_bytes());
        hash.finalize().into()
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let b = self.draw("uid");
        let mut id = u128::from_be_bytes(b[..16].try_into().expect("the slice has 16 bytes"));
        id = id & !(0xf << 76) | (0x4 << 76);
        id = id & !(0x3 << 62) | (0x2 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            id >> 96,
            (id >> 80) & 0xffff,
            (id >> 64) & 0xffff,
            (id >> 48) & 0xffff,
            id & 0xffff_ffff_ffff
        )
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u32) -> u32 {
        let b = self.draw("number");
        u32::from_be_bytes([b[0], b[1], b[2], b[3]]) % bound
    }

    /// `prefix` with a random suffix, for `metadata.generateName`.
    pub(crate) fn name(&self, prefix: &str) -> String {
        let b = self.draw("name");
        let mut end = prefix.len().min(MAX_PREFIX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let suffix = b[..SUFFIX].iter().map(|b| ALPHABET[usize::from(*b) % ALPHABET.len()] as char);
        prefix[..end].chars().chain(suffix).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4_and_follow_the_seed() {
        let (a, b, c) = (Ids::new(1, 0), Ids::new(1, 0), Ids::new(2, 0));
        let first = a.uid();
        assert_eq!(first, b.uid());
        assert_ne!(first, c.uid());
        assert_ne!(first, a.uid());
        assert_eq!(first.len(), 36);
        assert_eq!(&first[14..15], "4");
        assert!("89ab".contains(&first[19..20]));
    }

    #[test]
    fn generate_name_appends_five_characters_and_cuts_long_prefixes() {
        let ids = Ids::new(7, 0);
        let name = ids.name("job-");
        assert!(name.starts_with("job-") && name.len() == 9);
        assert_eq!(ids.name(&"x".repeat(80)).len(), 63);
    }
}
