//! Image references: `REGISTRY/REPOSITORY:TAG@DIGEST`, with the grammar of the container registries.

use std::fmt;

/// Longest name (registry and repository), in bytes.
const MAX_NAME: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;
/// Fewest hexadecimal digits of a digest.
const MIN_DIGEST: usize = 32;

/// The components of an image reference; empty where absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reference {
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) tag: String,
    pub(super) digest: String,
}

impl Reference {
    /// Parses an image. The error names it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| {
            format!("{text:?} is not an image: it must be REGISTRY/REPOSITORY:TAG or ...@DIGEST")
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) if is_known_digest(digest) => (rest, digest),
            Some(_) => return None,
            None => (text, ""),
        };
        // A colon after the last slash starts the tag; one before it belongs to the registry's port.
        let last = rest.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match rest[last..].find(':') {
            Some(at) => (&rest[..last + at], &rest[last + at + 1..]),
            None => (rest, ""),
        };
        if (name.len() < rest.len() && !is_tag(tag)) || name.len() > MAX_NAME {
            return None;
        }
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => ("", name),
        };
        // The first part of a name without registry may have upper case, as a host name may.
        let parts_fit = repository.split('/').all(is_path_component)
            || repository.split_once('/').is_some_and(|(first, rest)| {
                is_domain(first) && rest.split('/').all(is_path_component)
            });
        let fits = parts_fit && (registry.is_empty() || is_domain(registry));
        fits.then(|| Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            digest: digest.to_owned(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.registry.is_empty() {
            write!(f, "{}/", self.registry)?;
        }
        f.write_str(&self.repository)?;
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)?;
        }
        if !self.digest.is_empty() {
            write!(f, "@{}", self.digest)?;
        }
        Ok(())
    }
}

/// Whether the first part of a name is a registry: it has a dot or a port, or is `localhost`.
fn is_registry(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

/// Host names separated by dots, and a port.
fn is_domain(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let number = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    host.split('.').all(label) && port.is_none_or(number)
}

/// Lower-case letters and digits with single separators between them: `.`, `_`, `__` or any number of `-`.
fn is_path_component(part: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends_fit =
        bytes.first().is_some_and(alphanumeric) && bytes.last().is_some_and(alphanumeric);
    let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let separator_fits = |separator: &str| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
    };
    ends_fit && separators.into_iter().all(separator_fits)
}

/// Whether the text can be a tag.
pub(super) fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut bytes = text.bytes();
    text.len() <= MAX_TAG
        && bytes.next().is_some_and(word)
        && bytes.all(|b| word(b) || b == b'.' || b == b'-')
}

/// Whether the text has the form of a digest: `ALGORITHM:HEX`.
pub(super) fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part)
        && hex.len() >= MIN_DIGEST
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether the text is a digest of an algorithm that registries use, with its length.
fn is_known_digest(text: &str) -> bool {
    let digits = match text.split_once(':') {
        Some(("sha256", hex)) => (hex, 64),
        Some(("sha384", hex)) => (hex, 96),
        Some(("sha512", hex)) => (hex, 128),
        _ => return false,
    };
    let (hex, length) = digits;
    hex.len() == length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_apart_and_put_together() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, registry, repository, tag) in [
            ("nginx", "", "nginx", ""),
            ("nginx:1.25", "", "nginx", "1.25"),
            ("team/app:1", "", "team/app", "1"),
            ("localhost/app", "localhost", "app", ""),
            ("localhost:5000/app:x", "localhost:5000", "app", "x"),
            ("10.0.0.7:443/x/y:z_1", "10.0.0.7:443", "x/y", "z_1"),
            ("docker.io/library/nginx:1", "docker.io", "library/nginx", "1"),
            ("a__b/c-d--e.f", "", "a__b/c-d--e.f", ""),
        ] {
            for suffix in ["".to_owned(), format!("@{digest}")] {
                let whole = format!("{text}{suffix}");
                let read = Reference::parse(&whole).unwrap();
                assert_eq!(
                    (&*read.registry, &*read.repository, &*read.tag),
                    (registry, repository, tag)
                );
                assert_eq!(read.digest.is_empty(), suffix.is_empty());
                assert_eq!(read.to_string(), whole);
            }
        }
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for text in [
            "",
            "a//b",
            "App",
            "a:",
            ":1",
            "a@sha256:12",
            "a:b c",
            "-a",
            "a-/b",
            "a...b",
            "a_._b",
            "x.y/",
            "ex..com/a",
            "a@md5:00000000000000000000000000000000",
            "host.io:port/a",
            "é",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
        assert!(Reference::parse(&"a".repeat(256)).is_err());
        assert!(is_tag("V1.0_x-y") && !is_tag(".x") && !is_tag("a b") && !is_tag(""));
    }
}
