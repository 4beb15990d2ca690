//! The kinds that the member serves, and whether the list is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::v1;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::client::{Member, READ_LIMIT, Target, api_version, limited};
use super::error::MemberError;
use crate::key::GroupKind;

/// How often the kinds are read without a trigger: a newly installed CRD is seen within this time.
const REFRESH: Duration = Duration::from_secs(60);
/// Minimum time between two triggered reads (an object of a kind that is not served): one bad object must not cause a
/// stream of discovery calls.
const LEAST: Duration = Duration::from_secs(1);

/// The kinds that a member serves.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Apis {
    /// Versions by kind, in the server's order of preference.
    kinds: BTreeMap<GroupKind, Vec<Target>>,
    /// Protobuf form for the controller.
    wire: Vec<v1::ApiGroupVersion>,
    /// Version of the API server, for example `v1.33.2`.
    version: String,
    /// False when a group could not be read: its kinds are unknown, not absent.
    complete: bool,
}

impl Apis {
    /// Endpoint of this kind, in the given version or in the preferred one.
    ///
    /// # Errors
    /// When the member does not serve it.
    pub(crate) fn resolve(
        &self,
        kind: &GroupKind,
        version: Option<&str>,
    ) -> Result<&Target, MemberError> {
        self.kinds
            .get(kind)
            .and_then(|targets| {
                targets.iter().find(|target| {
                    version.is_none_or(|version| target.resource.api_version == version)
                })
            })
            .ok_or_else(|| MemberError::NotServed {
                kind: kind.to_string(),
                version: version.unwrap_or("any version").to_owned(),
            })
    }

    /// Whether the member serves no version of the kind, according to a complete discovery.
    #[must_use]
    pub(crate) fn surely_lacks(&self, kind: &GroupKind) -> bool {
        self.complete && !self.kinds.contains_key(kind)
    }

    /// Every kind whose objects can be read and patched.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &GroupKind> {
        self.kinds.keys()
    }

    /// Whether these are all kinds; false when a group could not be read.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Version of the API server.
    #[must_use]
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Protobuf form for `Facts`.
    #[must_use]
    pub(crate) fn to_wire(&self) -> (Vec<v1::ApiGroupVersion>, bool) {
        (self.wire.clone(), self.complete)
    }

    fn from_aggregated(lists: [APIGroupDiscoveryList; 2]) -> Self {
        let mut apis = Self { complete: true, ..Self::default() };
        for group in lists.into_iter().flat_map(|list| list.items) {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            for version in group.versions {
                apis.complete &= version.freshness.as_deref() != Some("Stale");
                let Some(text) = version.version else { continue };
                let resources = version.resources.into_iter().filter_map(|resource| {
                    let kind = resource.response_kind?.kind?;
                    let namespaced = resource.scope.as_deref() == Some("Namespaced");
                    Some((kind, resource.resource?, namespaced, resource.verbs))
                });
                apis.add(&name, &text, resources);
            }
        }
        apis
    }

    fn add(
        &mut self,
        group: &str,
        version: &str,
        resources: impl Iterator<Item = (String, String, bool, Vec<String>)>,
    ) {
        let mut kinds = Vec::new();
        let mut seen = BTreeSet::new();
        for (kind, plural, namespaced, verbs) in resources {
            // Kinds that cannot be read and patched cannot be propagated (reviews, bindings); a kind's first resource
            // is the kind itself.
            let usable =
                ["get", "list", "patch"].iter().all(|verb| verbs.iter().any(|v| v == verb));
            if !usable || plural.contains('/') || !seen.insert(kind.clone()) {
                continue;
            }
            self.kinds
                .entry(GroupKind::new(group, &kind))
                .or_default()
                .push(Target::builtin(group, version, &kind, &plural, namespaced));
            kinds.push(v1::ApiKind { kind, plural, namespaced });
        }
        if !kinds.is_empty() {
            let group_version = api_version(group, version);
            self.wire.push(v1::ApiGroupVersion { group_version, kinds });
        }
    }
}

/// Keeps [`Apis`] current. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Discovery {
    apis: watch::Sender<Arc<Apis>>,
    wanted: Arc<Notify>,
}

impl Discovery {
    /// Reads the kinds once.
    ///
    /// # Errors
    /// When the member's API returns no list of kinds.
    pub(crate) async fn start(member: &Member) -> Result<Self, MemberError> {
        let apis = read(member).await?;
        Ok(Self { apis: watch::Sender::new(Arc::new(apis)), wanted: Arc::new(Notify::new()) })
    }

    /// The kinds as of the last read.
    #[must_use]
    pub(crate) fn current(&self) -> Arc<Apis> {
        self.apis.borrow().clone()
    }

    /// Receives changes.
    #[must_use]
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Apis>> {
        self.apis.subscribe()
    }

    /// Requests a read soon: something changed, or a kind is missing.
    pub(crate) fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// Reads the kinds periodically until cancelled.
    pub(crate) async fn run(self, member: Member, token: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.wanted.notified() => {}
                () = tokio::time::sleep(REFRESH) => {}
            }
            let read = tokio::select! {
                biased;
                () = token.cancelled() => return,
                read = read(&member) => read,
            };
            match read {
                Ok(apis) => {
                    self.apis.send_if_modified(|known| {
                        let changed = **known != apis;
                        if changed {
                            *known = Arc::new(apis);
                        }
                        changed
                    });
                }
                Err(error) => {
                    tracing::warn!(error = %error.message(), "cannot read the member's kinds")
                }
            }
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = tokio::time::sleep(LEAST) => {}
            }
        }
    }
}

/// Two requests where the server aggregates (1.30 and later), one per group and version elsewhere.
async fn read(member: &Member) -> Result<Apis, MemberError> {
    let client = &member.client;
    let core = limited("discovery", READ_LIMIT, client.list_core_api_versions_aggregated()).await;
    let groups = limited("discovery", READ_LIMIT, client.list_api_groups_aggregated()).await;
    let mut apis = match (core, groups) {
        // A server that does not support the format answers in the old one, which has no items.
        (Ok(core), Ok(groups)) if !core.items.is_empty() => Apis::from_aggregated([core, groups]),
        _ => read_each(member).await?,
    };
    apis.version = limited("version", READ_LIMIT, client.apiserver_version()).await?.git_version;
    Ok(apis)
}

async fn read_each(member: &Member) -> Result<Apis, MemberError> {
    let client = &member.client;
    let mut apis = Apis { complete: true, ..Apis::default() };
    let core = limited("discovery", READ_LIMIT, client.list_core_api_versions()).await?;
    for version in core.versions {
        match limited("discovery", READ_LIMIT, client.list_core_api_resources(&version)).await {
            Ok(list) => apis.add("", &version, resources(list)),
            Err(_) => apis.complete = false,
        }
    }
    let groups = limited("discovery", READ_LIMIT, client.list_api_groups()).await?;
    for group in groups.groups {
        let preferred = group.preferred_version.as_ref().map(|preferred| preferred.version.clone());
        let mut versions: Vec<_> = group.versions.into_iter().map(|each| each.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        for version in versions {
            let path = format!("{}/{version}", group.name);
            match limited("discovery", READ_LIMIT, client.list_api_group_resources(&path)).await {
                Ok(list) => apis.add(&group.name, &version, resources(list)),
                Err(_) => apis.complete = false,
            }
        }
    }
    Ok(apis)
}

fn resources(
    list: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList,
) -> impl Iterator<Item = (String, String, bool, Vec<String>)> {
    list.resources
        .into_iter()
        .map(|resource| (resource.kind, resource.name, resource.namespaced, resource.verbs))
}
