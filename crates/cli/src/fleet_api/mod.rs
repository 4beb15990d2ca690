//! `fleet/all/proxy/PATH` of `proxy.atoll.dev`: lists, tables and watches of the same path on all members that the caller
//! may reach, merged into one answer. A member that does not answer costs its own lines only.
//!
//! ```text
//!  caller ─▶ query ─▶ access (which members) ─▶ ask (a page of each) ─▶ merge ─▶ list: streamed JSON
//!                                             └▶ ask (a watch of each) ─▶ merge ─▶ watch: events as they come
//! ```

mod access;
mod ask;
mod list;
mod memory;
mod merge;
mod query;
mod versions;
mod walk;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use self::merge::annotate;
use atoll_access::identity::User;
use atoll_api::Cluster;
use atoll_apimachinery::ApiError;
use atoll_apimachinery::identity::Identity;
use atoll_apimachinery::response::{Body, refusal};
use atoll_controller::members::{MemberAnswer, MemberRequest, Members, ProxyError};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Response};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use self::access::Access;
use self::memory::{Memory, OpenRequest};
use self::query::FleetQuery;
use crate::reach::ANSWER;

/// The way to members, as the controller offers it.
pub(crate) trait Reach: Send + Sync + 'static {
    /// Sends a request to a member, and waits for the head of the answer.
    fn ask<'a>(
        &'a self,
        member: &'a str,
        request: MemberRequest,
    ) -> BoxFuture<'a, Result<MemberAnswer, ProxyError>>;
}

impl Reach for Members {
    fn ask<'a>(
        &'a self,
        member: &'a str,
        request: MemberRequest,
    ) -> BoxFuture<'a, Result<MemberAnswer, ProxyError>> {
        self.proxy(member, request).boxed()
    }
}

/// What all requests share.
struct Shared {
    hub: Client,
    reach: Arc<dyn Reach>,
    access: Access,
    memory: Memory,
}

/// The merged API.
#[derive(Clone)]
pub(crate) struct FleetApi(Arc<Shared>);

/// A caller's request, with what every member is asked.
struct FleetRequest {
    shared: Arc<Shared>,
    caller: Identity,
    query: FleetQuery,
    headers: HeaderMap,
    /// Its place among those of the user.
    _open: OpenRequest,
}

impl FleetApi {
    pub(crate) fn new(hub: Client, reach: Arc<dyn Reach>) -> Self {
        let memory = Memory::new();
        Self(Arc::new(Shared { access: Access::new(hub.clone()), hub, reach, memory }))
    }

    /// Answers a GET of a path and query of members.
    pub(crate) async fn answer(
        &self,
        caller: Identity,
        parts: &Parts,
        rest: &str,
    ) -> Response<Body> {
        let answered = async {
            let query = FleetQuery::parse(rest)?;
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, query::accepted(&parts.headers));
            let open = self.0.memory.enter(&caller.user)?;
            let shared = self.0.clone();
            let request = FleetRequest { shared, caller, query, headers, _open: open };
            let members = request.members().await?;
            if members.is_empty() {
                let why = "there is no member that you may `get` through clusters/proxy";
                return Err(ApiError::forbidden("proxy.atoll.dev", "fleet", "all", why));
            }
            match request.query.watch {
                true => Ok(watch::answer(request, members).await),
                false => list::answer(request, members).await,
            }
        };
        answered.await.unwrap_or_else(|error| refusal(&error))
    }
}

impl FleetRequest {
    /// The names of the members that the caller may reach, in order.
    async fn members(&self) -> Result<Vec<String>, ApiError> {
        let clusters: Api<Cluster> = Api::all(self.shared.hub.clone());
        let params = match &self.query.clusters {
            Some(selector) => ListParams::default().labels(selector),
            None => ListParams::default(),
        };
        let listed = tokio::time::timeout(ANSWER, clusters.list_metadata(&params)).await;
        let listed = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(kube::Error::Api(status))) if status.code == 400 => {
                return Err(ApiError::bad_request(format!("clusterSelector: {}", status.message)));
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the hub did not list its Clusters");
                return Err(ApiError::unavailable("the hub cannot list its Clusters now"));
            }
            Err(_) => {
                return Err(ApiError::unavailable("the hub did not list its Clusters in time"));
            }
        };
        let mut names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
        names.sort_unstable();
        self.shared.access.reachable(&self.caller, names).await
    }

    fn user(&self) -> User {
        let Identity { user: name, groups, uid, extra } = self.caller.clone();
        User { name, uid, groups, extra }
    }
}
