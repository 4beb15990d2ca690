//! `staticAssignments` of FederatedResourceQuotas: keeps the objects on the hub that carry them out. From there on they
//! are objects like those of users: decided, sent, recorded and withdrawn in the same way.
//!
//! A task beside the event loop, active while this process leads. Each pass compares what the quotas ask for with what
//! the hub has and writes the differences, so a leader that dies between two writes leaves nothing behind that the next
//! one does not finish. Objects without the label and without a quota as owner are never changed or deleted.

mod objects;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use atoll_api::override_policy::OverridePolicy;
use atoll_api::policy::PropagationPolicy;
use atoll_api::{FederatedResourceQuota, marks};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::objects::{Adopt, Objects};
pub(crate) use self::objects::{is_owned, name_of};
use crate::leader::{LeaderTerm, while_leading};
use crate::manager;
use crate::member::hub::{HubError, in_time};

/// Wait after a failed request or watch.
const RETRY: Duration = Duration::from_secs(5);
/// Wait for the end of a deletion.
const SOON: Duration = Duration::from_secs(1);
/// Interval of passes while a quota has static assignments: what users changed in the objects is undone.
const INTERVAL: Duration = Duration::from_secs(30);

/// The task.
pub(crate) struct StaticQuotas {
    pub(crate) client: Client,
    /// The term while this process leads.
    pub(crate) terms: watch::Receiver<Option<LeaderTerm>>,
}

/// Namespace and name.
type Name = (String, String);
type Quotas = BTreeMap<Name, FederatedResourceQuota>;

/// The objects of the hub that have the label and a quota as owner.
struct Held {
    overrides: BTreeMap<Name, OverridePolicy>,
    policies: BTreeMap<Name, PropagationPolicy>,
    quotas: BTreeMap<Name, ResourceQuota>,
}

impl StaticQuotas {
    /// Runs until cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        while_leading(self.terms.clone(), token, || self.lead()).await;
    }

    /// Follows the quotas; ends only when it is dropped.
    async fn lead(&self) {
        let api: Api<FederatedResourceQuota> = Api::all(self.client.clone());
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        let (mut quotas, mut listed) = (Quotas::new(), Quotas::new());
        let mut due: Option<Instant> = None;
        loop {
            let pass = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        if take(&mut quotas, &mut listed, event) {
                            due = Some(Instant::now());
                        }
                    }
                    Some(Err(error)) => {
                        tracing::warn!(kind = "FederatedResourceQuota", %error, "cannot watch");
                        tokio::time::sleep(RETRY).await;
                    }
                    None => return std::future::pending().await,
                },
                () = pass => due = self.pass(&quotas).await.map(|wait| Instant::now() + wait),
            }
        }
    }

    /// Writes what differs. Returns when to look again; `None` = when a quota changes.
    async fn pass(&self, quotas: &Quotas) -> Option<Duration> {
        let held = match self.held().await {
            Ok(held) => held,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot list the objects of static quotas");
                return Some(RETRY);
            }
        };
        let mut wait = None;
        let mut sooner = |next: Duration| {
            wait = Some(wait.map_or(next, |wait: Duration| wait.min(next)));
        };
        for (name, quota) in quotas {
            let Some(wanted) = Objects::of(quota) else { continue };
            sooner(INTERVAL);
            if let Err(error) = self.write(&held, &wanted).await {
                tracing::warn!(
                    namespace = name.0,
                    quota = name.1,
                    error = &error as &dyn std::error::Error,
                    "cannot write the objects of the static assignments"
                );
                // A name that is taken is tried again with the next pass.
                if !error.is_already_exists() {
                    sooner(RETRY);
                }
            }
        }
        match self.delete_unwanted(quotas, &held).await {
            Ok(0) => {}
            Ok(_) => sooner(SOON),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot delete the objects of earlier static assignments");
                sooner(RETRY);
            }
        }
        wait
    }

    async fn held(&self) -> Result<Held, HubError> {
        Ok(Held {
            overrides: self.list().await?,
            policies: self.list().await?,
            quotas: self.list().await?,
        })
    }

    async fn list<K>(&self) -> Result<BTreeMap<Name, K>, HubError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let params = ListParams::default().labels(&format!("{}=true", marks::STATIC_ASSIGNMENT));
        let list = in_time(api.list(&params)).await?;
        let ours = list.items.into_iter().filter(|object| objects::owner(object.meta()).is_some());
        Ok(ours.map(|object| (name(object.meta()), object)).collect())
    }

    /// The ResourceQuota comes last: members then get it with their amounts.
    async fn write(&self, held: &Held, wanted: &Objects) -> Result<(), HubError> {
        let key = name(&wanted.quota.metadata);
        self.ensure(held.overrides.get(&key), &wanted.overrides).await?;
        self.ensure(held.policies.get(&key), &wanted.policy).await?;
        self.ensure(held.quotas.get(&key), &wanted.quota).await
    }

    async fn ensure<K>(&self, held: Option<&K>, wanted: &K) -> Result<(), HubError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Adopt,
        K: Clone + DeserializeOwned + Serialize + Debug + PartialEq,
    {
        let namespace = wanted.meta().namespace.clone().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let params = manager::create(marks::MANAGER);
        let Some(held) = held else {
            let created = in_time(api.create(&params, wanted)).await;
            return match created {
                Err(error) if error.is_already_exists() => {
                    self.take_back(&api, wanted, error).await
                }
                created => created.map(|_| ()),
            };
        };
        let mut next = held.clone();
        next.adopt(wanted);
        if next == *held {
            return Ok(());
        }
        in_time(api.replace(&wanted.name_any(), &params, &next)).await.map(|_| ())
    }

    /// An object without the label has the name. If the quota owns it, a user removed the label.
    async fn take_back<K>(&self, api: &Api<K>, wanted: &K, error: HubError) -> Result<(), HubError>
    where
        K: Resource<DynamicType = ()> + Adopt,
        K: Clone + DeserializeOwned + Serialize + Debug,
    {
        let Some(mut held) = in_time(api.get_opt(&wanted.name_any())).await? else {
            return Err(error);
        };
        let owner = wanted.owner_references().first();
        let owned =
            owner.is_some_and(|owner| is_owned(held.owner_references(), &owner.name, &owner.uid));
        if !owned {
            return Err(error);
        }
        held.adopt(wanted);
        let params = manager::create(marks::MANAGER);
        in_time(api.replace(&wanted.name_any(), &params, &held)).await.map(|_| ())
    }

    /// Deletes what belongs to no quota any more, the policies after the ResourceQuota: without a policy it would stay on
    /// the members until it is deleted. Returns the number of deletions.
    async fn delete_unwanted(&self, quotas: &Quotas, held: &Held) -> Result<usize, HubError> {
        let mut deleted = 0;
        for (key, object) in &held.quotas {
            if is_unwanted(quotas, &object.metadata) {
                self.delete(object).await?;
                deleted += 1;
                tracing::info!(namespace = key.0, name = key.1, "static assignments withdrawn");
            }
        }
        for (key, object) in &held.policies {
            if is_unwanted(quotas, &object.metadata) && !held.quotas.contains_key(key) {
                self.delete(object).await?;
                deleted += 1;
            }
        }
        for (key, object) in &held.overrides {
            if is_unwanted(quotas, &object.metadata) && !held.quotas.contains_key(key) {
                self.delete(object).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    async fn delete<K>(&self, object: &K) -> Result<(), HubError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match in_time(api.delete(&object.name_any(), &params)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

fn name(metadata: &kube::api::ObjectMeta) -> Name {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

/// Whether no quota asks for an object any more.
fn is_unwanted(quotas: &Quotas, metadata: &kube::api::ObjectMeta) -> bool {
    let Some((quota, uid)) = objects::owner(metadata) else { return false };
    let key = (metadata.namespace.clone().unwrap_or_default(), quota.to_owned());
    let quota = quotas.get(&key).filter(|quota| quota.metadata.uid.as_deref() == Some(uid));
    quota.is_none_or(|quota| Objects::of(quota).is_none())
}

/// Returns whether a pass is due.
fn take(
    quotas: &mut Quotas,
    listed: &mut Quotas,
    event: watcher::Event<FederatedResourceQuota>,
) -> bool {
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(quota) => {
            listed.insert(name(&quota.metadata), quota);
        }
        watcher::Event::InitDone => {
            *quotas = std::mem::take(listed);
            return true;
        }
        watcher::Event::Apply(quota) => {
            let asked = Objects::of(&quota);
            let before = quotas.insert(name(&quota.metadata), quota);
            return before.as_ref().and_then(Objects::of) != asked;
        }
        watcher::Event::Delete(quota) => {
            let before = quotas.remove(&name(&quota.metadata));
            return before.as_ref().and_then(Objects::of).is_some();
        }
    }
    false
}
