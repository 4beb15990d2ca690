//! Paths on a member's API server.

use std::fmt;

use http::uri::PathAndQuery;

/// Limit of path and query in bytes. kube-apiserver's clients stay far below; selectors are the longest part.
const MAX_LENGTH: usize = 16 << 10;

/// A path with its query that every server reads in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPath(PathAndQuery);

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with one slash: an absolute URI or another authority.
    #[error("the path must begin with one \"/\"")]
    Start,
    /// It is too long.
    #[error("path and query have more than {MAX_LENGTH} bytes")]
    Length,
    /// A segment is `.`, `..` or empty.
    #[error("the path must not have empty segments, \".\" or \"..\"")]
    Segment,
    /// A segment has an encoded slash, backslash, dot-segment or control character, or an invalid escape.
    #[error(
        "the path must not have encoded slashes, backslashes or control characters, or invalid escapes"
    )]
    Escape,
    /// A character that URIs do not have.
    #[error("the path has an invalid character")]
    Character,
}

impl MemberPath {
    /// Checks a path with an optional query.
    ///
    /// # Errors
    /// When two servers could read it differently, or it leads elsewhere.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > MAX_LENGTH {
            return Err(PathError::Length);
        }
        let (path, _) = text.split_once('?').unwrap_or((text, ""));
        let segments = path.strip_prefix('/').ok_or(PathError::Start)?;
        if segments.starts_with('/') {
            return Err(PathError::Start);
        }
        if text.bytes().any(|byte| byte <= b' ' || byte >= 0x7f || b"\\#\"<>^`{|}".contains(&byte))
        {
            return Err(PathError::Character);
        }
        let count = segments.split('/').count();
        for (at, segment) in segments.split('/').enumerate() {
            let decoded = decode(segment)?;
            // The last segment may be empty: a trailing slash, or the root.
            let empty = decoded.is_empty() && at + 1 < count;
            if empty || decoded == b"." || decoded == b".." {
                return Err(PathError::Segment);
            }
            if decoded.iter().any(|byte| b"/\\".contains(byte) || *byte < b' ' || *byte == 0x7f) {
                return Err(PathError::Escape);
            }
        }
        PathAndQuery::try_from(text).map(Self).map_err(|_| PathError::Character)
    }

    /// Path and query.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The path alone.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// The session in a pod that a request with this path opens, if it does. The path is compared as servers read it:
    /// without escapes, and without a slash at the end.
    #[must_use]
    pub fn pod_session(&self) -> Option<PodSession> {
        let path = self.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        // `parse` has refused invalid escapes.
        let decoded = |segment| String::from_utf8(decode(segment).ok()?).ok();
        let parts: Vec<String> = path.split('/').skip(1).map(decoded).collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (namespace, pod, verb) = match parts[..] {
            ["api", "v1", "namespaces", namespace, "pods", pod, verb] => (namespace, pod, verb),
            // The kubelet's own API, for users with `nodes/proxy`.
            ["api", "v1", "nodes", _, "proxy", verb, namespace, pod, ..] => (namespace, pod, verb),
            _ => return None,
        };
        let kind = match verb {
            "exec" | "run" => SessionKind::Exec,
            "attach" => SessionKind::Attach,
            "portforward" | "portForward" => SessionKind::PortForward,
            _ => return None,
        };
        Some(PodSession { namespace: namespace.to_owned(), pod: pod.to_owned(), kind })
    }
}

/// A request that opens a session in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSession {
    /// Namespace of the pod.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// What is opened.
    pub kind: SessionKind,
}

/// What a session in a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// A command.
    Exec,
    /// The streams of a running container.
    Attach,
    /// Ports.
    PortForward,
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decodes the escapes of a segment once, as servers do.
fn decode(segment: &str) -> Result<Vec<u8>, PathError> {
    let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let (mut decoded, mut bytes) = (Vec::with_capacity(segment.len()), segment.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (high, low) = hex(bytes.next()).zip(hex(bytes.next())).ok_or(PathError::Escape)?;
        decoded.push(u8::try_from(high * 16 + low).map_err(|_| PathError::Escape)?);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_kubernetes_clients_pass_unchanged() {
        for path in [
            "/",
            "/api",
            "/api/",
            "/api/v1/namespaces/shop/pods/web-0/log?follow=true&tailLines=10",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "/api/v1/namespaces/shop/services/https:web:443/proxy/index.html?x=%2F..%2F",
            "/api/v1/namespaces/shop/pods/web-0/exec?command=ls&command=%2F&stdin=true",
            "/openapi/v3/apis/apps/v1?hash=AB12",
        ] {
            assert_eq!(MemberPath::parse(path).map(|path| path.to_string()), Ok(path.to_owned()));
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in [
            "",
            "api",
            "*",
            "//evil.example/api",
            "http://169.254.169.254/latest",
            "https:evil",
            "/api/../../metrics",
            "/api/./v1",
            "/api/%2e%2e/metrics",
            "/api/%2E./metrics",
            "/api/v1/namespaces/a%2fb",
            "/api/v1/namespaces/a%5Cb",
            "/api\\v1",
            "/api//v1",
            "/api/v1/%00",
            "/api/v1/a%0d%0aHost:%20evil",
            "/api/v1/a b",
            "/api/v1/a\r\nHost: evil",
            "/api/v1/%",
            "/api/v1/%zz",
            "/api/v1#fragment",
            "/api/v1/ü",
        ] {
            assert!(MemberPath::parse(path).is_err(), "{path:?}");
        }
        assert_eq!(
            MemberPath::parse(&format!("/{}", "a".repeat(MAX_LENGTH))),
            Err(PathError::Length)
        );
    }

    proptest! {
        #[test]
        fn an_accepted_path_has_the_same_segments_before_and_after_decoding(
            text in "/?((%2[eEfF]|%5[cC]|%[0-9a-f]{2}|[.]|/|[a-z]|:|//|\\\\){0,12})([?]x=[a-z/.]{0,5})?",
        ) {
            if let Ok(path) = MemberPath::parse(&text) {
                prop_assert!(path.as_str() == text && text.starts_with('/') && !text.starts_with("//"));
                let raw: Vec<&str> = path.path()[1..].split('/').collect();
                let decoded: Vec<u8> = raw.iter().map(|s| decode(s).unwrap()).collect::<Vec<_>>().join(&b'/');
                let read: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
                prop_assert_eq!(read.len(), raw.len());
                prop_assert!(read.iter().all(|segment| *segment != b".." && *segment != b"."));
            }
        }
    }

    #[test]
    fn sessions_are_recognised_however_the_path_is_written() {
        let kind = |path: &str| MemberPath::parse(path).unwrap().pod_session();
        let web =
            |kind| Some(PodSession { namespace: "shop".to_owned(), pod: "web-0".to_owned(), kind });
        let pod = "/api/v1/namespaces/shop/pods/web-0";
        for path in [
            format!("{pod}/exec?command=sh"),
            format!("{pod}/%65xec?command=sh"),
            format!("{pod}/exec/?command=sh"),
            "/api/v1/namespaces/shop/p%6Fds/web%2D0/exec".to_owned(),
            "/api/v1/nodes/n1/proxy/exec/shop/web-0/main?command=sh".to_owned(),
            "/api/v1/nodes/n1/proxy/run/shop/web-0/main".to_owned(),
        ] {
            assert_eq!(kind(&path), web(SessionKind::Exec), "{path}");
        }
        assert_eq!(kind(&format!("{pod}/attach")), web(SessionKind::Attach));
        assert_eq!(kind(&format!("{pod}/portforward")), web(SessionKind::PortForward));
        let kubelet = "/api/v1/nodes/n1/proxy/portForward/shop/web-0";
        assert_eq!(kind(kubelet), web(SessionKind::PortForward));
        let service = "/api/v1/namespaces/shop/services/web-0/exec".to_owned();
        for path in [format!("{pod}/log"), pod.to_owned(), format!("{pod}/exec/more"), service] {
            assert_eq!(kind(&path), None, "{path}");
        }
    }
}
