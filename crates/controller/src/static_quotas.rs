//! `staticAssignments` of FederatedResourceQuotas: keeps a ResourceQuota on the hub for each. From there on it is an object
//! like those of users: decided, sent, recorded and withdrawn in the same way, by the policies that the index makes from
//! the quota.
//!
//! A task beside the event loop, active while this process leads. Each pass compares what the quotas ask for with what
//! the hub has and writes the differences, so a leader that dies between two writes leaves nothing behind that the next
//! one does not finish. Objects without the label and without a quota as owner are never changed or deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::static_assignment::{self, Assigned, is_owned};
use atoll_api::{FederatedResourceQuota, marks};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Preconditions};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leader::{LeaderTerm, while_leading};
use crate::manager;
use crate::member::hub::{HubError, in_time};

/// Wait after a failed request or watch.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of passes while a quota has static assignments: what others changed in the objects is undone.
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
                tracing::warn!(error, "cannot list the ResourceQuotas of static assignments");
                return Some(RETRY);
            }
        };
        let mut wait = None;
        let mut sooner = |next: Duration| {
            wait = Some(wait.map_or(next, |wait: Duration| wait.min(next)));
        };
        for (name, quota) in quotas {
            let Some(wanted) = Assigned::of(quota) else { continue };
            sooner(INTERVAL);
            let held = held.get(&self::name(&wanted.quota.metadata));
            if let Err(error) = self.ensure(held, &wanted.quota).await {
                tracing::warn!(
                    namespace = name.0,
                    quota = name.1,
                    error = &error as &dyn std::error::Error,
                    "cannot write the ResourceQuota of the static assignments"
                );
                // A name that is taken is tried again with the next pass.
                if !error.is_already_exists() {
                    sooner(RETRY);
                }
            }
        }
        // One that is being deleted waits for its finalizers.
        let ended = |object: &&ResourceQuota| {
            object.metadata.deletion_timestamp.is_none() && is_unwanted(quotas, &object.metadata)
        };
        for object in held.values().filter(ended) {
            let (namespace, name) = self::name(&object.metadata);
            match self.delete(object).await {
                Ok(()) => tracing::info!(namespace, name, "static assignments withdrawn"),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(namespace, name, error, "cannot delete the ResourceQuota");
                    sooner(RETRY);
                }
            }
        }
        wait
    }

    /// The ResourceQuotas that have the label and a quota as owner.
    async fn held(&self) -> Result<BTreeMap<Name, ResourceQuota>, HubError> {
        let api: Api<ResourceQuota> = Api::all(self.client.clone());
        let params = ListParams::default().labels(&format!("{}=true", marks::STATIC_ASSIGNMENT));
        let list = in_time(api.list(&params)).await?;
        let ours = list.items.into_iter().filter(|object| {
            let named = |(quota, _)| static_assignment::name_of(quota) == Some(object.name_any());
            static_assignment::owner(&object.metadata).is_some_and(named)
        });
        Ok(ours.map(|object| (name(&object.metadata), object)).collect())
    }

    fn api(&self, object: &ResourceQuota) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }

    async fn ensure(
        &self,
        held: Option<&ResourceQuota>,
        wanted: &ResourceQuota,
    ) -> Result<(), HubError> {
        let (api, params) = (self.api(wanted), manager::create(marks::MANAGER));
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
        adopt(&mut next, wanted);
        if next == *held {
            return Ok(());
        }
        in_time(api.replace(&wanted.name_any(), &params, &next)).await.map(|_| ())
    }

    /// A ResourceQuota without the label has the name. If the quota owns it, somebody removed the label.
    async fn take_back(
        &self,
        api: &Api<ResourceQuota>,
        wanted: &ResourceQuota,
        error: HubError,
    ) -> Result<(), HubError> {
        let Some(mut held) = in_time(api.get_opt(&wanted.name_any())).await? else {
            return Err(error);
        };
        let owner = wanted.owner_references().first();
        let owned =
            owner.is_some_and(|owner| is_owned(held.owner_references(), &owner.name, &owner.uid));
        if !owned {
            return Err(error);
        }
        adopt(&mut held, wanted);
        let params = manager::create(marks::MANAGER);
        in_time(api.replace(&wanted.name_any(), &params, &held)).await.map(|_| ())
    }

    async fn delete(&self, object: &ResourceQuota) -> Result<(), HubError> {
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match in_time(self.api(object).delete(&object.name_any(), &params)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Makes a ResourceQuota of the hub what it must be; the rest of it stays.
fn adopt(held: &mut ResourceQuota, wanted: &ResourceQuota) {
    let labels = held.metadata.labels.get_or_insert_default();
    labels.extend(wanted.metadata.labels.clone().unwrap_or_default());
    held.metadata.owner_references.clone_from(&wanted.metadata.owner_references);
    // API servers may leave out a spec without amounts.
    if held.spec.clone().unwrap_or_default() != wanted.spec.clone().unwrap_or_default() {
        held.spec.clone_from(&wanted.spec);
    }
}

fn name(metadata: &ObjectMeta) -> Name {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

/// Whether no quota asks for an object any more.
fn is_unwanted(quotas: &Quotas, metadata: &ObjectMeta) -> bool {
    let Some((quota, uid)) = static_assignment::owner(metadata) else { return false };
    let key = (metadata.namespace.clone().unwrap_or_default(), quota.to_owned());
    let quota = quotas.get(&key).filter(|quota| quota.metadata.uid.as_deref() == Some(uid));
    quota.is_none_or(|quota| Assigned::of(quota).is_none())
}

/// Returns whether a pass is due.
fn take(
    quotas: &mut Quotas,
    listed: &mut Quotas,
    event: watcher::Event<FederatedResourceQuota>,
) -> bool {
    let wanted = |quota: Option<&FederatedResourceQuota>| Some(Assigned::of(quota?)?.quota);
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
            let asked = wanted(Some(&quota));
            let before = quotas.insert(name(&quota.metadata), quota);
            return wanted(before.as_ref()) != asked;
        }
        watcher::Event::Delete(quota) => {
            let before = quotas.remove(&name(&quota.metadata));
            return wanted(before.as_ref()).is_some();
        }
    }
    false
}
