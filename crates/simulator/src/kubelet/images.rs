//! Which images can be pulled. There is no registry, so the reference itself decides:
//!
//! * An invalid image reference is refused (`InvalidImageName`), as by every kubelet.
//! * An image is missing (`ImagePullBackOff`) when its registry is in the domain `.invalid`, in which no name exists
//!   (RFC 2606), when its name or tag contains `nosuch`, `nonexistent` or `doesnotexist` (with or without `-`, `_` or
//!   `.` between the words), or when its tag is `bad`, `broken`, `missing`, `nope` or `wrong`.
//!
//! Everything else can be pulled.

/// Words in the name or tag of a missing image.
const MISSING: [&str; 3] = ["nosuch", "nonexistent", "doesnotexist"];
/// Tags of a missing image, matched as a whole.
const MISSING_TAGS: [&str; 5] = ["bad", "broken", "missing", "nope", "wrong"];
/// Longest tag.
const MAX_TAG: usize = 128;

/// Why an image cannot be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageFault {
    /// The reference is invalid.
    Invalid,
    /// The image does not exist.
    Missing,
}

impl ImageFault {
    /// Reason and message of the waiting container.
    pub(super) fn waiting(self, image: &str) -> (&'static str, String) {
        match self {
            Self::Invalid => (
                "InvalidImageName",
                format!("couldn't parse image name {image:?}: invalid reference format"),
            ),
            Self::Missing => ("ImagePullBackOff", format!("Back-off pulling image {image:?}")),
        }
    }
}

/// Why an image cannot be pulled; `None` if it can, or if the container names none.
pub(super) fn fault(image: &str) -> Option<ImageFault> {
    if image.is_empty() {
        return None;
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    // A colon before the last slash belongs to the registry's port.
    let end = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[end..].find(':') {
        Some(colon) => (&name[..end + colon], Some(&name[end + colon + 1..])),
        None => (name, None),
    };
    if !(is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)) {
        return Some(ImageFault::Invalid);
    }
    let registry = registry(name).map(|host| host.split(':').next().unwrap_or(host));
    let words: String = format!("{name}:{}", tag.unwrap_or_default())
        .chars()
        .filter(|c| !matches!(c, '-' | '_' | '.'))
        .flat_map(char::to_lowercase)
        .collect();
    let missing = registry.is_some_and(|host| host.ends_with(".invalid"))
        || MISSING.iter().any(|word| words.contains(word))
        || tag.is_some_and(|tag| MISSING_TAGS.contains(&tag));
    missing.then_some(ImageFault::Missing)
}

/// The registry host of a name, if it has one: by the common rule of clients, the first part with a dot or a port, or
/// `localhost`.
fn registry(name: &str) -> Option<&str> {
    let (host, _) = name.split_once('/')?;
    (host.contains(['.', ':']) || host == "localhost").then_some(host)
}

fn is_name(name: &str) -> bool {
    let host = registry(name);
    let path = host.map_or(name, |host| &name[host.len() + 1..]);
    let good_host = |host: &str| {
        host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'))
    };
    let good_part = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge)
            && part.ends_with(edge)
            && part.chars().all(|c| edge(c) || matches!(c, '.' | '-' | '_'))
    };
    host.is_none_or(good_host) && path.split('/').all(good_part)
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= MAX_TAG
        && tag.starts_with(word)
        && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest
        .split_once(':')
        .is_some_and(|(_, hex)| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_says_whether_an_image_exists() {
        for image in [
            "",
            "nginx",
            "nginx:1.27-alpine",
            "nginx:V1_2",
            "registry.k8s.io/pause:3.10",
            "localhost:5000/shop/web:latest",
            "Registry.Example.io/web",
            "ghcr.io/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "such-a-bad-idea:1",
        ] {
            assert_eq!(fault(image), None, "{image}");
        }
        for image in [
            "nginx:nosuch",
            "nginx:no-such-tag",
            "nosuch/image",
            "nginx:does-not-exist",
            "shop/non_existent:1",
            "registry.invalid/web:1",
            "registry.invalid:5000/web",
            "nginx:bad",
        ] {
            assert_eq!(fault(image), Some(ImageFault::Missing), "{image}");
        }
        for image in ["Nginx", "nginx:", "nginx:a b", "a//b", "-x", "nginx@sha256:12", "nginx:a:b"]
        {
            assert_eq!(fault(image), Some(ImageFault::Invalid), "{image}");
        }
    }
}
