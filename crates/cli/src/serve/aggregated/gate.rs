//! Authenticates by the front proxy's headers and authorises by the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::{Attributes, Gate};
use atoll_apimachinery::identity::Identity;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::HeaderMap;
use kube::Client;

use super::proxy::{FrontProxy, Trust};
use crate::access_review::{self, Decision};

/// Maximum number of user headers of one request, all kinds together. kube-apiserver sends one per group.
const MOST: usize = 1_000;
/// The unauthenticated user.
const ANONYMOUS: &str = "system:anonymous";

/// Trusts the front proxy for identity and asks the hub for rights. Nothing is cached: a revoked right takes effect
/// with the next request.
pub(super) struct FrontProxyGate {
    client: Client,
    proxy: Arc<FrontProxy>,
}

impl FrontProxyGate {
    pub(super) fn new(client: Client, proxy: Arc<FrontProxy>) -> Self {
        Self { client, proxy }
    }
}

/// The user that the front proxy names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Reads the user headers of an authenticated proxy.
pub(super) fn user(trust: &Trust, headers: &HeaderMap) -> Option<User> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let name = trust
        .users
        .iter()
        .find_map(|header| headers.get(header).and_then(text).filter(|name| !name.is_empty()))?;
    let groups = trust.groups.iter().flat_map(|header| headers.get_all(header));
    let groups: Vec<String> = groups.filter_map(text).take(MOST).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers.iter().take(MOST) {
        let key = trust.extras.iter().find_map(|prefix| header.as_str().strip_prefix(prefix));
        if let Some((key, value)) = key.filter(|key| !key.is_empty()).zip(text(value)) {
            extra.entry(unescaped(key)).or_default().push(value);
        }
    }
    let uid = trust.uids.iter().find_map(|header| headers.get(header).and_then(text));
    Some(User { name, uid: uid.unwrap_or_default(), groups, extra })
}

/// An extra key as the client's authenticator named it: header names cannot hold `/`, `:` or capitals, so
/// kube-apiserver escapes them with `%`. An invalid escape is kept unchanged, as upstream's authenticator does.
fn unescaped(key: &str) -> String {
    let bytes = key.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        if bytes[at] != b'%' {
            decoded.push(bytes[at]);
            at += 1;
            continue;
        }
        let escape = hex(at + 1).zip(hex(at + 2)).and_then(|(h, l)| u8::try_from(h * 16 + l).ok());
        let Some(byte) = escape else { return key.to_owned() };
        decoded.push(byte);
        at += 3;
    }
    String::from_utf8(decoded).unwrap_or_else(|_| key.to_owned())
}

impl Gate for FrontProxyGate {
    fn admit<'a>(
        &'a self,
        peer: Option<&'a Identity>,
        headers: &'a HeaderMap,
        wanted: &'a Attributes,
    ) -> BoxFuture<'a, Result<Identity, ApiError>> {
        async move {
            let (Some(peer), Some(trust)) = (peer, self.proxy.trust()) else {
                return Err(ApiError::unauthorized());
            };
            // A certificate of the same authority for another purpose proves nothing about users.
            if !trust.names.is_empty() && !trust.names.contains(&peer.user) {
                return Err(ApiError::unauthorized());
            }
            let user = user(&trust, headers).ok_or_else(ApiError::unauthorized)?;
            let identity = match user.name.as_str() {
                ANONYMOUS => Identity::anonymous(),
                name => Identity { uid: user.uid, ..Identity::user(name, user.groups) },
            };
            let identity = Identity { extra: user.extra, ..identity };
            self.ask(&identity, wanted).await?;
            Ok(identity)
        }
        .boxed()
    }
}

impl FrontProxyGate {
    async fn ask(&self, identity: &Identity, wanted: &Attributes) -> Result<(), ApiError> {
        let reason = match access_review::review(&self.client, identity, wanted).await? {
            Decision::Allowed => return Ok(()),
            Decision::Denied(reason) => reason,
        };
        let why = Some(reason).filter(|reason| !reason.is_empty());
        let why = why.map_or(String::new(), |reason| format!(": {reason}"));
        Err(match &wanted.resource {
            Some(resource) => {
                let place = match resource.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                let text = format!(
                    "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}{why}",
                    identity.user, wanted.verb, resource.resource, resource.group
                );
                ApiError::forbidden(&resource.group, &resource.resource, &resource.name, text)
            }
            None => {
                let text = format!(
                    "User \"{}\" cannot {} path \"{}\"{why}",
                    identity.user, wanted.verb, wanted.path
                );
                ApiError::forbidden("", "", "", text)
            }
        })
    }
}
