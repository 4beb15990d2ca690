//! From the head of a tunnelled request to the request for the member.

use atoll_access::headers::{self, Upgrade};
use atoll_access::identity::{Passed, User};
use atoll_access::path::MemberPath;
use atoll_protocol::v1::{ProxyHeader, ProxyRequest, ProxyUser};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use tonic::Status;

/// A request without its body.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: http::request::Parts,
    pub(super) upgrade: Option<Upgrade>,
}

/// Checks a head and turns it into a request that impersonates its user.
///
/// # Errors
/// When a rule refuses it.
pub(super) fn prepare(passed: &Passed, head: ProxyRequest) -> Result<Prepared, Status> {
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(error.to_string());
    let method = Method::from_bytes(head.method.as_bytes()).map_err(|error| invalid(&error))?;
    if matches!(method, Method::CONNECT | Method::TRACE) {
        return Err(Status::invalid_argument(format!("method {method} is not possible")));
    }
    let path = MemberPath::parse(&head.path).map_err(|error| invalid(&error))?;
    let user = user(head.user.unwrap_or_default());
    let user =
        passed.impersonated(&user).map_err(|error| Status::permission_denied(error.to_string()))?;
    let given = header_map(head.headers)?;
    let mut sent = headers::of_request(&given).map_err(|error| invalid(&error))?;
    headers::impersonate(&mut sent, &user).map_err(|error| invalid(&error))?;
    let upgrade = match head.upgrade.as_str() {
        "" => None,
        text => Some(Upgrade::parse(text).ok_or_else(|| {
            Status::invalid_argument("only upgrades to SPDY/3.1 and websocket are possible")
        })?),
    };
    if let Some(protocol) = upgrade {
        sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        sent.insert(UPGRADE, HeaderValue::from_static(protocol.as_str()));
    }
    let uri = Uri::try_from(path.as_str()).map_err(|error| invalid(&error))?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = sent;
    Ok(Prepared { request: request.into_parts().0, upgrade })
}

fn user(user: ProxyUser) -> User {
    let extra = user.extra.into_iter().map(|extra| (extra.key, extra.values)).collect();
    User { name: user.name, uid: user.uid, groups: user.groups, extra }
}

fn header_map(headers: Vec<ProxyHeader>) -> Result<HeaderMap, Status> {
    let mut map = HeaderMap::new();
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(header.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Status::invalid_argument("a header is not valid"));
        };
        if map.try_append(name, value).is_err() {
            return Err(Status::invalid_argument("there are too many headers"));
        }
    }
    Ok(map)
}
