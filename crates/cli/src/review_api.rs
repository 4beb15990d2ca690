//! The API `review.atoll.dev`: `create` of `plans` says what a change would move, and `create` of `plans/ID/approval` approves a
//! plan that ChangeGuards hold. The server in front authenticates and authorises. Every controller approves, for the user
//! of the request; the leader plans, because only it knows what is being placed.

use std::sync::Arc;

use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_api::{Clock, REVIEW_GROUP, VERSION};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::{Attributes, Resource};
use atoll_apimachinery::identity::Identity;
use atoll_apimachinery::raw::{RawApi, RawNames, RawResource, RequestBody};
use atoll_apimachinery::response::{Body, refusal};
use atoll_controller::members::{LeaderApi, MemberAnswer, MemberRequest, Members, ProxyError};
use atoll_controller::{Approval, ApproveError, Planner, approve};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use http::request::Parts;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use serde_json::{Value, json};

use crate::plan::request::{self, PlanObject};
use crate::plan::serve;

/// The resource, and its subresource.
const PLANS: &str = "plans";
const APPROVAL: &str = "approval";
/// Kind of the answer, and of a body that a client may send.
const KIND: &str = "PlanApproval";
/// Most bytes of an approval: an object without content.
const MOST_BODY: usize = 16 * 1024;
/// Most bytes of a request for a plan, as for any object of the hub.
const MOST_PLAN: usize = 3 * 1024 * 1024;
/// Longest id of a plan.
const LONGEST_ID: usize = 64;
/// Seconds after which a client tries again.
const RETRY: u32 = 5;

/// What the API serves.
pub(crate) const NAMES: RawNames = RawNames {
    group: REVIEW_GROUP,
    version: VERSION,
    resources: &[
        RawResource { resource: PLANS, subresource: "", kind: request::KIND, verbs: &["create"] },
        RawResource { resource: PLANS, subresource: APPROVAL, kind: KIND, verbs: &["create"] },
    ],
};

/// The path of plans.
pub(crate) fn plans() -> String {
    format!("/apis/{REVIEW_GROUP}/{VERSION}/{PLANS}")
}

/// The path of a plan's approval.
pub(crate) fn path(plan: &str) -> String {
    format!("/apis/{REVIEW_GROUP}/{VERSION}/{PLANS}/{plan}/{APPROVAL}")
}

/// Whether a text may be the id of a plan: it becomes part of a path.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase())
}

/// The API over a hub.
pub(crate) struct ReviewApi {
    hub: Client,
    clock: Clock,
    planner: Planner,
    /// The way to the leader; `None` where there is no controller.
    members: Option<Members>,
}

impl ReviewApi {
    /// The API of a controller. It also answers what other controllers pass on to this one while it leads.
    pub(crate) fn over(
        hub: Client,
        clock: Clock,
        planner: Planner,
        members: &Members,
    ) -> Arc<dyn RawApi> {
        let api = Arc::new(Self { hub, clock, planner, members: Some(members.clone()) });
        members.serve_leader_api(api.clone());
        api
    }

    /// The API without a controller, which approves and does not plan.
    #[cfg(test)]
    pub(crate) fn alone(hub: Client, clock: Clock) -> Arc<dyn RawApi> {
        Arc::new(Self { hub, clock, planner: Planner::default(), members: None })
    }

    /// Plans here if this controller leads, else asks the one that does.
    async fn plan(
        &self,
        caller: Identity,
        parts: Parts,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        let body = read(body, MOST_PLAN).await?;
        let Some(members) = self.members.as_ref().filter(|members| !members.leads()) else {
            return self.plan_here(&caller, &body).await;
        };
        let Identity { user: name, groups, uid, extra } = caller;
        let path = MemberPath::parse(parts.uri.path())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let request = MemberRequest {
            user: User { name, uid, groups, extra },
            method: Method::POST,
            path,
            headers: parts.headers,
            upgrade: None,
            body: stream::iter([Ok(Bytes::from(body))]).boxed(),
            base: String::new(),
        };
        let answer = members.ask_leader(request).await.map_err(|error| leader_error(&error))?;
        let frames = answer.body.map_ok(http_body::Frame::data).map_err(Into::into);
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
        Ok(response)
    }

    async fn plan_here(&self, caller: &Identity, body: &[u8]) -> Result<Response<Body>, ApiError> {
        let mut object: PlanObject = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("the body is no Plan: {error}")))?;
        object.check()?;
        let spec = std::mem::take(&mut object.spec);
        let now = self.clock.now_seconds();
        object.status = Some(serve::plan(&self.planner, &self.hub, caller, spec, now).await?);
        let text = serde_json::to_string(&object).map_err(ApiError::internal)?;
        Ok(json_created(text))
    }

    async fn approve(
        &self,
        caller: Identity,
        parts: Parts,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        let plan = plan_of(parts.uri.path()).ok_or_else(ApiError::no_such_path)?;
        check(plan, &read(body, MOST_BODY).await?)?;
        let clock = self.clock.clone();
        let approved = approve(&self.hub, plan, &caller.user, move || clock.now_seconds()).await;
        let approval = approved.map_err(|error| api_error(plan, &error))?;
        tracing::info!(plan, user = caller.user, guards = ?approval.guards, "a plan was approved");
        Ok(created(&approval, &caller.user))
    }
}

impl RawApi for ReviewApi {
    fn names(&self) -> RawNames {
        NAMES
    }

    fn attributes(&self, parts: &Parts) -> Result<Attributes, ApiError> {
        let path = parts.uri.path();
        let (subresource, plan) = match plan_of(path) {
            Some(plan) => (APPROVAL, plan),
            None if path == plans() => ("", ""),
            None => return Err(ApiError::no_such_path()),
        };
        if parts.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let resource = Resource {
            group: REVIEW_GROUP.to_owned(),
            version: VERSION.to_owned(),
            resource: PLANS.to_owned(),
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: plan.to_owned(),
        };
        Ok(Attributes {
            verb: "create".to_owned(),
            path: path.to_owned(),
            resource: Some(resource),
        })
    }

    fn answer(
        &self,
        caller: Identity,
        parts: Parts,
        body: RequestBody,
    ) -> BoxFuture<'_, Response<Body>> {
        async move {
            let answered = match parts.uri.path() == plans() {
                true => self.plan(caller, parts, body).await,
                false => self.approve(caller, parts, body).await,
            };
            answered.unwrap_or_else(|error| refusal(&error))
        }
        .boxed()
    }
}

impl LeaderApi for ReviewApi {
    fn answer(
        self: Arc<Self>,
        request: MemberRequest,
    ) -> BoxFuture<'static, Result<MemberAnswer, ProxyError>> {
        async move {
            let MemberRequest { user, method, path, mut body, .. } = request;
            if method != Method::POST || path.as_str() != plans() {
                return Err(ProxyError::Invalid("only plans are passed on".to_owned()));
            }
            let mut all = Vec::new();
            while let Some(chunk) = body.next().await {
                let chunk =
                    chunk.map_err(|_| ProxyError::Invalid("the body is incomplete".to_owned()))?;
                if all.len() + chunk.len() > MOST_PLAN {
                    let text = format!("the body is longer than {MOST_PLAN} bytes");
                    return Err(ProxyError::TooLarge(text));
                }
                all.extend_from_slice(&chunk);
            }
            let User { name, uid, groups, extra } = user;
            let caller = Identity { user: name, groups, uid, extra };
            let answered = self.plan_here(&caller, &all).await;
            let (parts, body) = answered.unwrap_or_else(|error| refusal(&error)).into_parts();
            let chunks = body.into_data_stream().map_err(|_| ProxyError::LeaderChanged);
            Ok(MemberAnswer { status: parts.status, headers: parts.headers, body: chunks.boxed() })
        }
        .boxed()
    }
}

/// Why the leader did not plan.
fn leader_error(error: &ProxyError) -> ApiError {
    let text = error.to_string();
    match error {
        ProxyError::Busy(_) => ApiError::too_many_requests(text, RETRY),
        ProxyError::Invalid(_) | ProxyError::TooLarge(_) => ApiError::bad_request(text),
        _ => ApiError::unavailable_for(text, RETRY),
    }
}

/// The whole body, within its limit.
async fn read(body: RequestBody, most: usize) -> Result<Vec<u8>, ApiError> {
    let (mut chunks, mut all) = (body.into_data_stream(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::bad_request("the body is incomplete"))?;
        if all.len() + chunk.len() > most {
            let problem = format!("the body is longer than {most} bytes");
            return Err(ApiError::bad_request(problem));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

fn plan_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix(&format!("/apis/{REVIEW_GROUP}/{VERSION}/{PLANS}/"))?;
    let plan = below.strip_suffix(APPROVAL)?.strip_suffix('/')?;
    is_id(plan).then_some(plan)
}

/// A body may be missing. One that names another plan or kind is a mistake.
fn check(plan: &str, body: &[u8]) -> Result<(), ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let object: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))?;
    let wrong = |field: &str, expected: &str| {
        let given = object.pointer(field).filter(|value| !value.is_null())?;
        (given != expected).then(|| {
            let name = field.trim_start_matches('/').replace('/', ".");
            ApiError::bad_request(format!("{name}: is {given}, but must be {expected:?}"))
        })
    };
    let api_version = format!("{REVIEW_GROUP}/{VERSION}");
    let fields = [("/apiVersion", &*api_version), ("/kind", KIND), ("/metadata/name", plan)];
    match fields.into_iter().find_map(|(field, expected)| wrong(field, expected)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn created(approval: &Approval, user: &str) -> Response<Body> {
    let object = json!({
        "apiVersion": format!("{REVIEW_GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": {"name": approval.plan},
        "status": {
            "by": user,
            "guards": approval.guards,
            "workloads": approval.workloads,
            "replicas": approval.replicas,
        },
    });
    json_created(object.to_string())
}

fn json_created(text: String) -> Response<Body> {
    let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::CREATED;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn api_error(plan: &str, error: &ApproveError) -> ApiError {
    let text = error.to_string();
    match error {
        ApproveError::NotHeld { .. } => {
            ApiError { message: text, ..ApiError::not_found(REVIEW_GROUP, PLANS, plan) }
        }
        ApproveError::Full(_) => ApiError::too_many_requests(text, RETRY),
        ApproveError::Hub { .. } => ApiError::unavailable_for(text, RETRY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_approval_of_a_plan_is_a_path() {
        let prefix = "/apis/review.atoll.dev/v1alpha1/plans";
        assert_eq!(plan_of(&format!("{prefix}/5f0c/approval")), Some("5f0c"));
        assert_eq!(plan_of(&path("5f0c")), Some("5f0c"));
        for below in ["", "/5f0c", "/5f0c/approvals", "//approval", "/5F/approval", "/a/b/approval"]
        {
            assert_eq!(plan_of(&format!("{prefix}{below}")), None, "{below}");
        }
    }

    #[test]
    fn a_body_must_be_about_the_plan() {
        check("5f0c", b" \n").unwrap();
        check("5f0c", br#"{"kind": "PlanApproval", "metadata": {"name": "5f0c"}}"#).unwrap();
        for (body, expected) in [
            ("no", "the body is not JSON"),
            (r#"{"kind": "Pod"}"#, "kind: is \"Pod\""),
            (r#"{"metadata": {"name": "other"}}"#, "metadata.name: is \"other\""),
        ] {
            let error = check("5f0c", body.as_bytes()).unwrap_err();
            assert!(error.message.starts_with(expected), "{}", error.message);
        }
    }
}
