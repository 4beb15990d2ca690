//! Derives the name of a binding from its template, and checks label keys and values.

use sha2::{Digest, Sha256};

use crate::hex;

/// Longest object name in Kubernetes (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
/// Groups whose kinds need no suffix, because their kind names are distinct.
const PLAIN_GROUPS: [&str; 3] = ["", "apps", "batch"];

/// Name of the binding of a template: `name-kind` in lower case, with `.` for `:`. Kinds outside core, apps and batch
/// get 8 hex digits of the group's hash. Names over 253 characters are truncated and get a hash of the whole name.
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
    // Template names are ASCII, but names that no API server checked may not be. Truncates at a character boundary.
    let mut end = MAX_NAME - hash.len() - 1;
    while !full.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", full[..end].trim_end_matches(['-', '.']))
}

/// Longest name part of a label key, and longest label value.
const MAX_LABEL: usize = 63;

/// Why a text cannot be a label key (apimachinery's `IsQualifiedName`); `None` if it can.
///
/// ```
/// assert_eq!(atoll_api::names::label_key_problem("example.io/job"), None);
/// ```
#[must_use]
pub fn label_key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let part = |part: &str| {
            part.starts_with(lower)
                && part.ends_with(lower)
                && part.chars().all(|c| lower(c) || c == '-')
        };
        if prefix.len() > MAX_NAME || !prefix.split('.').all(part) {
            return Some(format!(
                "the part before the slash, {prefix:?}, is not a lower-case DNS name"
            ));
        }
    }
    if name.is_empty() {
        return Some("it has no name".to_owned());
    }
    if name.len() > MAX_LABEL {
        return Some(format!(
            "its name has {} characters, at most {MAX_LABEL} are allowed",
            name.len()
        ));
    }
    (!is_label_text(name)).then(|| {
        format!("{name:?} must be letters, digits, '-', '_' and '.', and begin and end with a letter or digit")
    })
}

/// Whether a text can be a label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || text.len() <= MAX_LABEL && is_label_text(text)
}

fn is_label_text(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(end)
        && text.ends_with(end)
        && text.chars().all(|c| end(c) || matches!(c, '-' | '_' | '.'))
}

/// First 8 hex digits of SHA-256.
fn short_hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels_are_those_that_kubernetes_takes() {
        for good in ["a", "A.b_c-9", "example.io/job", "x-1.y/Z"] {
            assert_eq!(label_key_problem(good), None, "{good}");
        }
        let long = "x".repeat(64);
        for (bad, why) in [
            ("", "no name"),
            ("a/", "no name"),
            ("/a", "before the slash"),
            ("Example.io/a", "before the slash"),
            ("a..b/c", "before the slash"),
            ("a/b/c", "letters, digits"),
            ("job id", "letters, digits"),
            ("-a", "begin and end"),
            (&long, "64 characters"),
        ] {
            let problem = label_key_problem(bad).unwrap();
            assert!(problem.contains(why), "{bad}: {problem}");
        }
        assert!(is_label_value("") && is_label_value("a1-b2") && !is_label_value("a b"));
    }

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
