//! The API `proxy.atoll.dev`: members' API servers below `clusters/NAME/proxy`, and all of them below `fleet/all/proxy`, for
//! the embedded hub and for the aggregated API. The server in front authenticates and authorises; this passes on to the
//! controller.

mod ending;

use std::io;
use std::sync::Arc;

use atoll_access::headers::{HeaderError, Upgrade};
use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_api::{PROXY_GROUP, VERSION};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::{Attributes, Resource};
use atoll_apimachinery::identity::Identity;
use atoll_apimachinery::raw::{RawApi, RawNames, RawResource, RequestBody};
use atoll_apimachinery::request::query;
use atoll_apimachinery::response::{Body, refusal};
use atoll_controller::members::{MemberAnswer, MemberRequest, Members, ProxyError};
use atoll_http::upgrade::{self, Upgrading};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use http::header::{CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use kube::Client;
use tokio::sync::mpsc;

use crate::fleet_api::FleetApi;

/// The resource.
const CLUSTERS: &str = "clusters";
/// All members together, under the name [`ALL`].
const FLEET: &str = "fleet";
const ALL: &str = "all";
/// Its subresource. kube-apiserver treats requests to a subresource of this name as long-running.
const PROXY: &str = "proxy";
/// Beginning of the content types of JSON.
const JSON: &[u8] = b"application/json";
/// Chunks from an upgraded connection of a user that wait for the tunnel.
const QUEUED: usize = 4;
/// Seconds after which a client tries again when there is no leader, or a limit is reached.
const RETRY: u32 = 1;

/// The API over a controller's members.
pub(crate) struct MemberApi {
    members: Members,
    fleet: FleetApi,
}

impl MemberApi {
    /// The hub decides which members a user reaches in a request to all of them.
    pub(crate) fn over(members: Members, hub: Client) -> Arc<dyn RawApi> {
        let fleet = FleetApi::new(hub, Arc::new(members.clone()));
        Arc::new(Self { members, fleet })
    }
}

/// A path of the API.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    /// `None` = all of them.
    member: Option<&'a str>,
    /// Path of the member's root on the hub.
    base: &'a str,
    /// Path and query on the member.
    rest: String,
}

impl<'a> Place<'a> {
    fn parse(path: &'a str, query: Option<&str>) -> Option<Self> {
        let prefix = format!("/apis/{PROXY_GROUP}/{VERSION}/");
        let (resource, below) = path.strip_prefix(&prefix)?.split_once('/')?;
        let (name, below) = below.split_once('/')?;
        let member = match resource {
            CLUSTERS => Some(name),
            FLEET if name == ALL => None,
            _ => return None,
        };
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let rest = below.strip_prefix(PROXY)?;
        if name.is_empty()
            || !name.chars().all(allowed)
            || !(rest.is_empty() || rest.starts_with('/'))
        {
            return None;
        }
        let base = &path[..path.len() - rest.len()];
        let rest = if rest.is_empty() { "/" } else { rest };
        let rest = query.map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
        Some(Self { member, base, rest })
    }
}

/// What the API serves.
pub(crate) const NAMES: RawNames = RawNames {
    group: PROXY_GROUP,
    version: VERSION,
    resources: &[
        RawResource {
            resource: CLUSTERS,
            subresource: PROXY,
            kind: "ClusterProxy",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        RawResource { resource: FLEET, subresource: PROXY, kind: "FleetProxy", verbs: &["get"] },
    ],
};

/// What a request does, for authorisation.
pub(crate) fn attributes(parts: &Parts) -> Result<Attributes, ApiError> {
    let place = Place::parse(parts.uri.path(), None).ok_or_else(ApiError::no_such_path)?;
    let upgrades = Upgrade::of(&parts.headers).map_err(|error| invalid(&error))?.is_some();
    let verb = match parts.method {
        Method::GET if place.member.is_none() && !upgrades => "get",
        _ if place.member.is_none() => return Err(ApiError::method_not_allowed()),
        // A session in a pod changes things, whatever its method: WebSockets are always opened with GET.
        _ if upgrades => "create",
        Method::GET | Method::HEAD | Method::OPTIONS => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return Err(ApiError::method_not_allowed()),
    };
    let resource = Resource {
        group: PROXY_GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: if place.member.is_some() { CLUSTERS } else { FLEET }.to_owned(),
        subresource: PROXY.to_owned(),
        namespace: String::new(),
        name: place.member.unwrap_or(ALL).to_owned(),
    };
    let path = parts.uri.path().to_owned();
    Ok(Attributes { verb: verb.to_owned(), path, resource: Some(resource) })
}

impl RawApi for MemberApi {
    fn names(&self) -> RawNames {
        NAMES
    }

    fn attributes(&self, parts: &Parts) -> Result<Attributes, ApiError> {
        attributes(parts)
    }

    fn answer(
        &self,
        caller: Identity,
        parts: Parts,
        body: RequestBody,
    ) -> BoxFuture<'_, Response<Body>> {
        async move {
            let answered = self.pass_on(caller, parts, body).await;
            answered.unwrap_or_else(|error| refusal(&error))
        }
        .boxed()
    }
}

impl MemberApi {
    async fn pass_on(
        &self,
        caller: Identity,
        mut parts: Parts,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        let uri = parts.uri.clone();
        let place = Place::parse(uri.path(), uri.query()).ok_or_else(ApiError::no_such_path)?;
        let Some(member) = place.member else {
            return Ok(self.fleet.answer(caller, &parts, &place.rest).await);
        };
        let path = MemberPath::parse(&place.rest)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let asked = Upgrade::of(&parts.headers).map_err(|error| invalid(&error))?;
        let connection = match asked {
            None => None,
            Some(_) => Some(upgrade::take(&mut parts.extensions).ok_or_else(|| {
                ApiError::bad_request("this connection cannot be upgraded: use HTTP/1.1")
            })?),
        };
        let (input, received) = mpsc::channel(QUEUED);
        let body = match asked {
            None => body.into_data_stream().map_err(io::Error::other).boxed(),
            Some(_) => received_chunks(received),
        };
        let Identity { user: name, groups, uid, extra } = caller;
        let user = User { name, uid, groups, extra };
        let asks = Asks {
            member: member.to_owned(),
            is_safe: matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS),
            is_watch: is_watch(&parts),
        };
        let request = MemberRequest {
            user,
            method: parts.method,
            path,
            headers: parts.headers,
            upgrade: asked,
            body,
            base: place.base.to_owned(),
        };
        let answer = self.members.proxy(member, request).await;
        let answer = answer.map_err(|error| asks.api_error(&error))?;
        Ok(match connection {
            Some(connection) if answer.status == StatusCode::SWITCHING_PROTOCOLS => {
                upgraded(answer, connection, input, asks)
            }
            _ => plain(answer, asks),
        })
    }
}

fn received_chunks(
    received: mpsc::Receiver<io::Result<Bytes>>,
) -> stream::BoxStream<'static, io::Result<Bytes>> {
    stream::unfold(received, |mut received| async move {
        received.recv().await.map(|chunk| (chunk, received))
    })
    .boxed()
}

fn plain(answer: MemberAnswer, asks: Asks) -> Response<Body> {
    let MemberAnswer { status, headers, body } = answer;
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
    let body = match asks.is_watch && status == StatusCode::OK && is_json {
        true => ending::of_watch(body, move |error| asks.api_error(error).status()).boxed(),
        false => body,
    };
    let frames = body.map_ok(http_body::Frame::data).map_err(Into::into);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Answers 101 and joins the user's connection with the tunnel.
fn upgraded(
    answer: MemberAnswer,
    connection: Upgrading,
    input: mpsc::Sender<io::Result<Bytes>>,
    asks: Asks,
) -> Response<Body> {
    let MemberAnswer { status, headers, body } = answer;
    // SPDY has no place for a text.
    let output = match Upgrade::of(&headers) == Ok(Some(Upgrade::WebSocket)) {
        true => {
            let protocol = headers.get(SEC_WEBSOCKET_PROTOCOL);
            let protocol = protocol.and_then(|name| name.to_str().ok()).unwrap_or_default();
            let status = move |error: &ProxyError| asks.api_error(error).status();
            ending::of_web_socket(body, protocol, status).boxed()
        }
        false => body,
    };
    // Ends with the user's connection or with the tunnel, whose end the controller owns.
    tokio::spawn(async move {
        if let Err(error) = connection.join(input, output).await {
            tracing::debug!(%error, "an upgraded connection of a user ended");
        }
    });
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn is_watch(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    query::pairs(query).any(|(name, value)| {
        name == "watch" && query::boolean(&name, &value).is_ok_and(|watch| watch)
    })
}

fn invalid(error: &HeaderError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

/// What an error depends on.
#[derive(Debug)]
struct Asks {
    member: String,
    /// The request changes nothing.
    is_safe: bool,
    is_watch: bool,
}

impl Asks {
    /// The error as kubectl shows it.
    fn api_error(&self, error: &ProxyError) -> ApiError {
        let (member, text) = (self.member.as_str(), error.to_string());
        match error {
            // The member has not seen the request.
            ProxyError::NotLeader => ApiError::unavailable_for(text, RETRY),
            ProxyError::Unknown(_) => ApiError::not_found(PROXY_GROUP, CLUSTERS, member),
            ProxyError::NotConnected(_) | ProxyError::NotAllowed(_) => ApiError::unavailable(text),
            ProxyError::Busy(_) => ApiError::too_many_requests(text, RETRY),
            ProxyError::Invalid(_) => ApiError::bad_request(text),
            ProxyError::Forbidden(_) => ApiError::forbidden(PROXY_GROUP, CLUSTERS, member, text),
            ProxyError::TooLarge(_) => ApiError {
                code: 413,
                reason: "RequestEntityTooLarge",
                ..ApiError::bad_request(text)
            },
            ProxyError::Timeout { .. } => ApiError::gateway_timeout(text),
            ProxyError::Lost { .. } | ProxyError::LeaderChanged if self.is_safe => {
                ApiError::unavailable_for(text, RETRY)
            }
            // Clients repeat whatever has Retry-After, and would do this twice.
            ProxyError::Lost { .. } | ProxyError::LeaderChanged => {
                ApiError::unavailable(format!("{text}; the request may have been carried out"))
            }
            ProxyError::BadAnswer { .. } => ApiError::bad_gateway(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/apis/proxy.atoll.dev/v1alpha1";

    #[test]
    fn a_path_names_a_member_and_the_path_there() {
        let place = |path: &str, query| {
            let path = format!("{PREFIX}{path}");
            Place::parse(&path, query).map(|place| {
                let member = place.member.unwrap_or("*");
                format!("{member} {} {}", place.base.len() - PREFIX.len(), place.rest)
            })
        };
        assert_eq!(
            place("/clusters/m1/proxy/api/v1/pods", Some("watch=1")).as_deref(),
            Some("m1 18 /api/v1/pods?watch=1")
        );
        assert_eq!(place("/clusters/m1/proxy", None).as_deref(), Some("m1 18 /"));
        assert_eq!(place("/clusters/m1/proxy/", None).as_deref(), Some("m1 18 /"));
        assert_eq!(
            place("/fleet/all/proxy/api/v1/pods", None).as_deref(),
            Some("* 16 /api/v1/pods")
        );
        for path in [
            "/clusters",
            "/clusters/m1",
            "/clusters/m1/",
            "/clusters/m1/status",
            "/clusters/m1/proxyx",
            "/clusters//proxy/api",
            "/clusters/M1/proxy/",
            "/clusters/m%2f/proxy/",
            "/fleet/some/proxy/api",
            "/fleets/all/proxy/api",
        ] {
            assert_eq!(place(path, None), None, "{path}");
        }
    }

    #[test]
    fn all_members_together_can_only_be_read() {
        let verb = |method: Method, path: &str, upgrade: bool| {
            let mut request =
                http::Request::builder().method(method).uri(format!("{PREFIX}{path}"));
            if upgrade {
                request = request.header("connection", "upgrade").header("upgrade", "websocket");
            }
            let parts = request.body(()).unwrap().into_parts().0;
            let wanted = attributes(&parts).map_err(|error| error.code)?;
            Ok(format!("{} {}", wanted.verb, wanted.resource.unwrap().resource))
        };
        let fleet = "/fleet/all/proxy/api/v1/pods";
        assert_eq!(verb(Method::GET, fleet, false), Ok("get fleet".to_owned()));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD] {
            assert_eq!(verb(method.clone(), fleet, false), Err(405), "{method}");
        }
        assert_eq!(verb(Method::GET, fleet, true), Err(405));
        let one = "/clusters/m1/proxy/api/v1/pods/web/exec";
        assert_eq!(verb(Method::GET, one, true), Ok("create clusters".to_owned()));
    }

    #[test]
    fn only_what_changes_nothing_is_repeated_after_a_connection_was_lost() {
        let lost = ProxyError::Lost { member: "m1".to_owned(), why: "cut".to_owned() };
        let asks = |is_safe| Asks { member: "m1".to_owned(), is_safe, is_watch: false };
        for error in [lost, ProxyError::LeaderChanged] {
            assert_eq!(asks(true).api_error(&error).retry_after(), Some(1), "{error}");
            let changes = asks(false).api_error(&error);
            assert_eq!((changes.code, changes.retry_after()), (503, None), "{error}");
            assert!(changes.message.contains("may have been carried out"), "{}", changes.message);
        }
        assert_eq!(asks(false).api_error(&ProxyError::NotLeader).retry_after(), Some(1));
    }
}
