//! Which members a caller may reach.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_api::{PROXY_GROUP, VERSION};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::{Attributes, Resource};
use atoll_apimachinery::identity::Identity;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::access_review::{Decision, review};

/// How long a decision of the hub is kept: a request may need one for each member.
const KEPT: Duration = Duration::from_secs(30);
/// Decisions that are kept.
const MOST: usize = 50_000;
/// Questions to the hub at the same time, of one request.
const PARALLEL: usize = 16;

/// A question: the hash of all that an authoriser may look at of the caller, and the member if one is named.
type Question = ([u8; 32], String);

/// The hub's decisions about `get clusters/proxy`.
pub(super) struct Access {
    hub: Client,
    known: Mutex<HashMap<Question, (Instant, bool)>>,
}

impl Access {
    pub(super) fn new(hub: Client) -> Self {
        Self { hub, known: Mutex::default() }
    }

    /// Those of the members that the caller may reach.
    ///
    /// # Errors
    /// When the hub does not answer.
    pub(super) async fn reachable(
        &self,
        caller: &Identity,
        members: Vec<String>,
    ) -> Result<Vec<String>, ApiError> {
        // Whoever may reach all members needs no question for each.
        if self.may(caller, "").await? {
            return Ok(members);
        }
        let asked = members.into_iter().map(|member| async move {
            let may = self.may(caller, &member).await?;
            Ok::<_, ApiError>(may.then_some(member))
        });
        let asked: Vec<Option<String>> =
            stream::iter(asked).buffered(PARALLEL).try_collect().await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Whether the caller may reach the member of this name; all members if it is empty.
    async fn may(&self, caller: &Identity, member: &str) -> Result<bool, ApiError> {
        let question = (key(caller), member.to_owned());
        let now = Instant::now();
        if let Some((asked, may)) = self.lock().get(&question).copied()
            && now < asked + KEPT
        {
            return Ok(may);
        }
        let may = review(&self.hub, caller, &wanted(member)).await? == Decision::Allowed;
        let mut known = self.lock();
        if known.len() >= MOST {
            known.retain(|_, (asked, _)| now < *asked + KEPT);
        } else if member.is_empty() {
            // The first question of a request: the caller's expired answers are dropped, they would be asked for again anyway.
            known.retain(|(of, _), (asked, _)| *of != question.0 || now < *asked + KEPT);
        }
        // Still full of new ones: this one is asked again next time.
        if known.len() < MOST {
            known.insert(question, (now, may));
        }
        Ok(may)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Question, (Instant, bool)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller may have many groups: hashes take the same memory for all.
fn key(caller: &Identity) -> [u8; 32] {
    let all = serde_json::json!([caller.user, caller.uid, caller.groups, caller.extra]);
    Sha256::digest(all.to_string()).into()
}

fn wanted(member: &str) -> Attributes {
    let resource = Resource {
        group: PROXY_GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: "clusters".to_owned(),
        subresource: "proxy".to_owned(),
        namespace: String::new(),
        name: member.to_owned(),
    };
    let path = format!("/apis/{PROXY_GROUP}/{VERSION}/clusters/{member}/proxy");
    Attributes { verb: "get".to_owned(), path, resource: Some(resource) }
}
