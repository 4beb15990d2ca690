//! Names that Atoll derives: the name of a binding from its template.

use sha2::{Digest, Sha256};

/// Longest object name that Kubernetes takes (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
/// Groups whose kinds need no suffix: their kind names do not clash with one another.
const PLAIN_GROUPS: [&str; 3] = ["", "apps", "batch"];

/// Name of the binding of a template: `name-kind`, lower case, `:` as `.`, with 8 hex digits of the group's hash for
/// kinds outside core, apps and batch; cut to 253 characters with a hash of the whole where that is longer.
///
/// ```
/// assert_eq!(atoll_api::names::binding_name("nginx", "Deployment", "apps"), "nginx-deployment");
/// ```
#[must_use]
pub fn binding_name(name: &str, kind: &str, group: &str) -> String {
    let mut full = format!("{name}-{kind}").to_lowercase().replace(':', ".");
    if !PLAIN_GROUPS.contains(&group) {
        full.push('-');
        full.push_str(&short_hash(group));
    }
    if full.len() <= MAX_NAME {
        return full;
    }
    let hash = short_hash(&full);
    // Template names are ASCII, but a name that never passed a server may not be: cut at a character.
    let mut end = MAX_NAME - hash.len() - 1;
    while !full.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", full[..end].trim_end_matches(['-', '.']))
}

/// First 8 hex digits of SHA-256.
fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes())[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_names_are_distinct_by_kind_and_group_and_fit() {
        assert_eq!(binding_name("nginx", "Deployment", "apps"), "nginx-deployment");
        assert_eq!(binding_name("system:aggregate", "ConfigMap", ""), "system.aggregate-configmap");
        let foreign = binding_name("web", "Deployment", "example.io");
        assert!(foreign.starts_with("web-deployment-"), "{foreign}");
        assert_ne!(foreign, binding_name("web", "Deployment", "example.com"));
        let (a, b) = (format!("{}a", "x".repeat(252)), format!("{}b", "x".repeat(252)));
        let (a, b) = (binding_name(&a, "ConfigMap", ""), binding_name(&b, "ConfigMap", ""));
        assert!(a.len() <= MAX_NAME && b.len() <= MAX_NAME && a != b);
    }
}
