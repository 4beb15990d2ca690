//! Namespaces whose objects Atoll never propagates.

use std::fmt;
use std::sync::Arc;

/// Patterns that always apply: Kubernetes' own namespaces and Atoll's own.
const BUILT_IN: [&str; 2] = ["kube-*", "atoll-*"];
/// Most patterns that a process accepts, because every object is compared with all of them.
const MOST_PATTERNS: usize = 64;
/// Longest namespace name (RFC 1123 label), and therefore the longest useful pattern.
const LONGEST: usize = 63;

/// The reserved namespaces: a built-in minimum that no setting removes, and additional patterns.
#[derive(Clone, PartialEq, Eq)]
pub struct ReservedNamespaces(Arc<[String]>);

impl Default for ReservedNamespaces {
    /// The built-in minimum.
    fn default() -> Self {
        Self(BUILT_IN.map(str::to_owned).into())
    }
}

impl ReservedNamespaces {
    /// The built-in minimum plus additional patterns: names in which `*` stands for any text, including none.
    ///
    /// ```
    /// let reserved = atoll_api::ReservedNamespaces::with(["istio-system", "*-infra"]).unwrap();
    /// assert!(reserved.contains("team-infra") && reserved.contains("kube-system"));
    /// assert!(!reserved.contains("shop"));
    /// ```
    ///
    /// # Errors
    /// A pattern can match no namespace or would reserve all of them, or there are too many patterns.
    pub fn with<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, String> {
        let mut all: Vec<String> = BUILT_IN.map(str::to_owned).into();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            if let Some(problem) = problem(pattern) {
                return Err(format!("{pattern:?} is not a namespace pattern: {problem}"));
            }
            if !all.iter().any(|held| held == pattern) {
                all.push(pattern.to_owned());
            }
        }
        if all.len() > MOST_PATTERNS {
            return Err(format!("{} patterns, at most {MOST_PATTERNS} are accepted", all.len()));
        }
        Ok(Self(all.into()))
    }

    /// Whether objects of this namespace, and the namespace itself, are never propagated.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, namespace))
    }
}

impl fmt::Debug for ReservedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl fmt::Display for ReservedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

fn problem(pattern: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '*';
    if pattern.is_empty() {
        return Some("it is empty".to_owned());
    }
    if pattern.len() > LONGEST {
        return Some(format!("it has {} characters, at most {LONGEST} are allowed", pattern.len()));
    }
    if let Some(other) = pattern.chars().find(|c| !allowed(*c)) {
        return Some(format!(
            "{other:?} cannot occur in a namespace's name; use a-z, 0-9, '-' and '*'"
        ));
    }
    pattern
        .chars()
        .all(|c| c == '*')
        .then(|| "it matches every namespace, so nothing would be propagated".to_owned())
}

/// Whether a text matches a pattern in which `*` stands for any text. Takes pattern times text steps at most: on a
/// mismatch only the last `*` is extended.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Position after the last `*`, and the first character of the text that it does not cover yet.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((behind, covered)) = star else { return false };
                star = Some((behind, covered + 1));
                (p, t) = (behind, covered + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_and_the_built_in_minimum_stays() {
        let reserved = ReservedNamespaces::with(["infra", "*-system", "a*b*c", "kube-*"]).unwrap();
        for name in
            ["kube-system", "kube-public", "atoll-system", "infra", "x-system", "abc", "axbbyc"]
        {
            assert!(reserved.contains(name), "{name}");
        }
        for name in ["shop", "infra2", "my-infra", "x-systems", "ab", "kubernetes", "atoll"] {
            assert!(!reserved.contains(name), "{name}");
        }
        assert_eq!(reserved.to_string(), "kube-*, atoll-*, infra, *-system, a*b*c");
        assert!(!ReservedNamespaces::default().contains("infra"));
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused_with_the_reason() {
        let long = "x".repeat(64);
        for (bad, why) in [
            ("", "empty"),
            ("*", "every namespace"),
            ("**", "every namespace"),
            ("Team", "'T' cannot occur"),
            ("a.b", "'.' cannot occur"),
            ("a/b", "'/' cannot occur"),
            (&*long, "64 characters"),
        ] {
            let error = ReservedNamespaces::with([bad]).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        let many = (0..MOST_PATTERNS).map(|at| format!("n{at}"));
        assert!(ReservedNamespaces::with(many).unwrap_err().contains("at most 64"));
    }
}
