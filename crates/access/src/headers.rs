//! Headers of requests to a member and of its answers.

use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT,
    FORWARDED, HOST, HeaderName, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::identity::User;

/// Limit of the headers of a request, and of an answer.
pub const MAX_HEADERS: usize = 200;
/// Limit of their bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Prefixes of headers that name a user or a route, with `_` written as `-`: some servers read both alike.
const TRUSTED_PREFIXES: [&str; 6] =
    ["impersonate-", "x-remote-", "x-forwarded-", "x-original-", "x-envoy-", "proxy-"];
/// Headers with credentials or of the connection to the hub.
const TRUSTED: [HeaderName; 10] = [
    AUTHORIZATION,
    COOKIE,
    HOST,
    FORWARDED,
    EXPECT,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    PROXY_AUTHORIZATION,
    CONTENT_LENGTH,
];
/// Prefix of the WebSocket subprotocol in which browsers send a bearer token.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A protocol that replaces HTTP on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    /// SPDY/3.1: kubectl before 1.31, and port-forward.
    Spdy,
    /// WebSocket: kubectl since 1.31, browsers.
    WebSocket,
}

/// Why headers are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Too many or too large.
    #[error("the headers have more than {MAX_HEADERS} lines or {MAX_BYTES} bytes")]
    Size,
    /// An upgrade to another protocol, or to several.
    #[error("only upgrades to SPDY/3.1 and websocket are possible")]
    Upgrade,
    /// A redirect that leads to another server.
    #[error("the member answered with a redirect to another server")]
    Redirect,
    /// An upgrade that was not asked for, or to another protocol.
    #[error("the member switched to a protocol that the request did not ask for")]
    Switched,
    /// A name or value of the user cannot be a header.
    #[error("the user's name or a group cannot be sent as a header")]
    User,
}

impl Upgrade {
    /// The value of the header `Upgrade`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spdy => "SPDY/3.1",
            Self::WebSocket => "websocket",
        }
    }

    /// Reads the value of a header `Upgrade`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Spdy, Self::WebSocket]
            .into_iter()
            .find(|known| known.as_str().eq_ignore_ascii_case(text))
    }

    /// The upgrade that headers ask for, or confirm.
    ///
    /// # Errors
    /// When it is to another protocol (`h2c` would hide requests from the hub's checks), or to several.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, HeaderError> {
        let mut wanted = headers.get_all(UPGRADE).iter();
        let Some(first) = wanted.next() else { return Ok(None) };
        if !connection_names(headers).any(|name| name == "upgrade") {
            return Ok(None);
        }
        match (first.to_str().ok().and_then(Self::parse), wanted.next()) {
            (Some(known), None) => Ok(Some(known)),
            _ => Err(HeaderError::Upgrade),
        }
    }
}

/// The headers of a request that may reach the member: none that name a user, prove an identity, or belong to the
/// connection to the hub. The body's length is not one of them: whoever sends the body sets it.
///
/// # Errors
/// When they are too many or too large.
pub fn of_request(headers: &HeaderMap) -> Result<HeaderMap, HeaderError> {
    check_size(headers)?;
    let named: Vec<String> = connection_names(headers).collect();
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str().replace('_', "-");
        let trusted = TRUSTED.iter().any(|known| known.as_str() == text)
            || TRUSTED_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if trusted || is_hop(name) || (named.contains(&text) && !text.starts_with("sec-websocket-"))
        {
            continue;
        }
        if name != SEC_WEBSOCKET_PROTOCOL {
            passed.append(name, value.clone());
        } else if let Some(value) = without_bearer(value) {
            passed.append(name, value);
        }
    }
    Ok(passed)
}

/// Adds the headers that impersonate a user. The map must come from [`of_request`].
///
/// # Errors
/// When a name cannot be a header.
pub fn impersonate(headers: &mut HeaderMap, user: &User) -> Result<(), HeaderError> {
    let value =
        |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| HeaderError::User);
    headers.insert("impersonate-user", value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert("impersonate-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", escaped(key)));
        let name = name.map_err(|_| HeaderError::User)?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// The headers of a member's answer that may reach the user. A hostile member must not set cookies, ask for
/// credentials, or send clients elsewhere in the hub's name. `base` is the path of the member's root on the hub, for
/// redirects within the member.
///
/// # Errors
/// For a redirect to another server, and for headers that are too large.
pub fn of_answer(
    status: StatusCode,
    headers: &HeaderMap,
    base: &str,
) -> Result<HeaderMap, HeaderError> {
    check_size(headers)?;
    let named: Vec<String> = connection_names(headers).collect();
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str();
        let spoken_for =
            [SET_COOKIE, WWW_AUTHENTICATE, STRICT_TRANSPORT_SECURITY, PROXY_AUTHENTICATE, LOCATION]
                .contains(name)
                || [
                    "alt-svc",
                    "clear-site-data",
                    "refresh",
                    "content-location",
                    "link",
                    "expect-ct",
                ]
                .contains(&text)
                || text.starts_with(
                    ACCESS_CONTROL_ALLOW_ORIGIN.as_str().trim_end_matches("allow-origin"),
                )
                || text.starts_with("public-key-pins")
                || text.starts_with("x-remote-")
                || text.starts_with("proxy-");
        if !spoken_for && !is_hop(name) && !named.iter().any(|named| named == text) {
            passed.append(name, value.clone());
        }
    }
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        let target = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let target = target.and_then(|target| crate::path::MemberPath::parse(target).ok());
        let target = target.ok_or(HeaderError::Redirect)?;
        let target = HeaderValue::try_from(format!("{base}{target}"));
        passed.insert(LOCATION, target.map_err(|_| HeaderError::Redirect)?);
    }
    Ok(passed)
}

fn check_size(headers: &HeaderMap) -> Result<(), HeaderError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_BYTES { Err(HeaderError::Size) } else { Ok(()) }
}

/// The tokens of `Connection`, in lower case.
fn connection_names(headers: &HeaderMap) -> impl Iterator<Item = String> + '_ {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',').map(|name| name.trim().to_ascii_lowercase()))
}

/// Headers of one connection.
fn is_hop(name: &HeaderName) -> bool {
    [CONNECTION, UPGRADE, TE, TRAILER, TRANSFER_ENCODING].contains(name)
        || ["keep-alive", "proxy-connection", "http2-settings"].contains(&name.as_str())
}

/// The subprotocols without the one that carries a token; `None` if nothing is left.
fn without_bearer(value: &HeaderValue) -> Option<HeaderValue> {
    let kept: Vec<&str> = value
        .to_str()
        .ok()?
        .split(',')
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty() && !protocol.starts_with(BEARER_PROTOCOL))
        .collect();
    if kept.is_empty() { None } else { HeaderValue::try_from(kept.join(", ")).ok() }
}

/// A key of an extra field as part of a header's name, as client-go writes it.
fn escaped(key: &str) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_digit() || byte.is_ascii_lowercase() || b"!#$&'*+-.^_`|~".contains(&byte)
    };
    key.bytes().fold(String::new(), |mut text, byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::try_from(*value).unwrap(),
            );
        }
        map
    }

    #[test]
    fn a_request_arrives_without_anything_that_names_a_user() {
        let sent = map(&[
            ("accept", "application/json;as=Table"),
            ("user-agent", "kubectl/v1.36"),
            ("kubectl-command", "kubectl get"),
            ("content-type", "application/json"),
            ("content-length", "12"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer secret"),
            ("cookie", "session=1"),
            ("host", "hub:6443"),
            ("impersonate-user", "admin"),
            ("Impersonate_Group", "system:masters"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1"),
            ("connection", "keep-alive, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("keep-alive", "5"),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
            ),
        ]);
        let passed = of_request(&sent).unwrap();
        let expected = map(&[
            ("accept", "application/json;as=Table"),
            ("user-agent", "kubectl/v1.36"),
            ("kubectl-command", "kubectl get"),
            ("content-type", "application/json"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ]);
        assert_eq!(passed, expected);
    }

    #[test]
    fn only_the_protocols_of_pods_may_replace_http() {
        let upgrade =
            |protocol: &str| Upgrade::of(&map(&[("connection", "Upgrade"), ("upgrade", protocol)]));
        assert_eq!(upgrade("SPDY/3.1"), Ok(Some(Upgrade::Spdy)));
        assert_eq!(upgrade("WebSocket"), Ok(Some(Upgrade::WebSocket)));
        for other in ["h2c", "h2c, websocket", "TLS/1.3", ""] {
            assert_eq!(upgrade(other), Err(HeaderError::Upgrade), "{other}");
        }
        assert_eq!(Upgrade::of(&map(&[("upgrade", "websocket")])), Ok(None));
        let twice = map(&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")]);
        assert_eq!(Upgrade::of(&twice), Err(HeaderError::Upgrade));
    }

    #[test]
    fn a_hostile_member_cannot_send_users_elsewhere_or_speak_for_the_hub() {
        let base = "/apis/proxy.atoll.dev/v1alpha1/clusters/m/proxy";
        let redirect = |to: &str| of_answer(StatusCode::FOUND, &map(&[("location", to)]), base);
        for away in [
            "https://evil.example/",
            "//evil.example",
            "/../../secrets",
            "/%2e%2e/x",
            "evil",
            "\\\\evil",
        ] {
            assert_eq!(redirect(away), Err(HeaderError::Redirect), "{away}");
        }
        assert_eq!(
            of_answer(StatusCode::FOUND, &HeaderMap::new(), base),
            Err(HeaderError::Redirect)
        );
        assert_eq!(redirect("/ui/").unwrap()["location"], format!("{base}/ui/"));
        let answer = map(&[
            ("content-type", "application/json"),
            ("warning", "299 - \"deprecated\""),
            ("set-cookie", "a=b"),
            ("www-authenticate", "Basic"),
            ("strict-transport-security", "max-age=1"),
            ("access-control-allow-origin", "*"),
            ("alt-svc", "h3=\"evil:443\""),
            ("location", "https://evil.example/"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
        ]);
        let passed = of_answer(StatusCode::OK, &answer, base).unwrap();
        assert_eq!(
            passed,
            map(&[("content-type", "application/json"), ("warning", "299 - \"deprecated\"")])
        );
    }

    #[test]
    fn a_user_is_impersonated_with_one_header_for_each_group() {
        let user = User {
            name: "jane".to_owned(),
            uid: "u-1".to_owned(),
            groups: vec!["devs".to_owned(), "ops".to_owned()],
            extra: [("example.io/Team".to_owned(), vec!["a".to_owned()])].into(),
        };
        let mut headers = HeaderMap::new();
        impersonate(&mut headers, &user).unwrap();
        let expected = map(&[
            ("impersonate-user", "jane"),
            ("impersonate-uid", "u-1"),
            ("impersonate-group", "devs"),
            ("impersonate-group", "ops"),
            ("impersonate-extra-example.io%2F%54eam", "a"),
        ]);
        assert_eq!(headers, expected);
        let forged = User {
            name: "jane\r\nImpersonate-Group: system:masters".to_owned(),
            ..User::default()
        };
        assert_eq!(impersonate(&mut HeaderMap::new(), &forged), Err(HeaderError::User));
    }

    proptest! {
        #[test]
        fn no_spelling_of_a_trusted_header_arrives(
            start in "(?i)(impersonate|x_remote|x-forwarded|proxy|authorization|cookie|host|content-length)",
            rest in "[-_](?i)(user|group|uid|extra-a)?",
        ) {
            for name in [start.clone(), format!("{start}{rest}")] {
                let Ok(header) = HeaderName::try_from(name.as_str()) else { continue };
                let mut headers = HeaderMap::new();
                headers.insert(header, HeaderValue::from_static("x"));
                let passed = of_request(&headers).unwrap();
                let left = passed.keys().map(|name| name.as_str().replace('_', "-"));
                for name in left {
                    prop_assert!(!TRUSTED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)), "{}", name);
                    prop_assert!(!["authorization", "cookie", "host", "content-length"].contains(&name.as_str()));
                }
            }
        }
    }
}
