//! Names and hashes derived by controllers: same format as the real ones, but deterministic.

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Letters and digits that Kubernetes uses in generated names: no vowels and no similar characters.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of the random part of a generated name.
const SUFFIX: usize = 5;
/// Longest prefix that leaves room for the suffix in a DNS label.
const MAX_PREFIX: usize = 63 - SUFFIX;

/// Hash of a pod template as used in names and in `pod-template-hash`. `collisions` is the workload's
/// `status.collisionCount`, which changes the hash after a name clash; none and zero are the same.
pub(crate) fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut digest = Sha256::new();
    // serde_json keeps maps sorted, so equal templates have equal text.
    digest.update(template.to_string());
    if let Some(collisions) = collisions.filter(|collisions| *collisions != 0) {
        digest.update(collisions.to_be_bytes());
    }
    let hash = digest.finalize();
    let number = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    number
        .to_string()
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

/// A name with a generated suffix, determined by seed, owner, time and number.
pub(crate) fn generated(
    prefix: &str,
    seed: u64,
    owner: &str,
    now: Timestamp,
    number: u64,
) -> String {
    let prefix: String = prefix.chars().take(MAX_PREFIX).collect();
    let mut digest = Sha256::new();
    digest.update(seed.to_be_bytes());
    digest.update(owner);
    digest.update(now.as_nanosecond().to_be_bytes());
    digest.update(number.to_be_bytes());
    format!("{prefix}{}", letters(&digest.finalize()))
}

/// A five-letter hash of `text`.
pub(crate) fn fingerprint(text: &str) -> String {
    letters(&Sha256::digest(text))
}

fn letters(hash: &[u8]) -> String {
    hash.iter()
        .take(SUFFIX)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hashes_follow_content_and_collisions() {
        let (a, b) = (json!({"x": 1, "y": 2}), json!({"y": 2, "x": 1}));
        assert_eq!(template_hash(&a, None), template_hash(&b, None));
        assert_eq!(template_hash(&a, None), template_hash(&a, Some(0)));
        assert_ne!(template_hash(&a, None), template_hash(&a, Some(1)));
        assert_ne!(template_hash(&a, None), template_hash(&json!({"x": 2}), None));
    }

    #[test]
    fn generated_names_differ_by_number_and_fit() {
        let name = |number| generated(&"x".repeat(80), 1, "uid", Timestamp::UNIX_EPOCH, number);
        assert_eq!(name(0), name(0));
        assert_ne!(name(0), name(1));
        assert_eq!(name(0).len(), 63);
    }
}
