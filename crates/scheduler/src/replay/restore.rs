//! Inputs from their objects, and the decision made again.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::placement::Placement;
use atoll_decision::{Applied, BindingKey, Decision};
use serde::de::DeserializeOwned;

use super::stored::{ReadRequest, StoredBinding, StoredCluster};
use super::{Scope, name};
use crate::framework::config::{ProfileSpec, SchedulerConfiguration};
use crate::framework::profile::Profiles;
use crate::request::Request;
use crate::request::objects::Claim;
use crate::scheduler::Scheduler;
use crate::state::cluster_sets::StoredSets;
use crate::state::member_quotas::{ByMember, MemberQuotas};
use crate::state::quotas::StoredQuotas;
use crate::state::row::Row;
use crate::state::snapshot::{ReadContent, Snapshot};
use crate::state::standing;
use crate::state::tables::BindingFacts;

/// Recorded inputs that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("input {object}: {problem}")]
pub struct RestoreError {
    /// Name of the object.
    pub object: String,
    /// The problem.
    pub problem: String,
}

impl RestoreError {
    fn new(object: &str, problem: impl ToString) -> Self {
        Self { object: object.to_owned(), problem: problem.to_string() }
    }
}

/// Inputs that were read.
#[derive(Debug, Clone)]
pub struct Restored {
    /// What the decision saw.
    pub snapshot: Snapshot,
    /// What was asked.
    pub request: Request,
    /// The profiles that were configured.
    pub profiles: Vec<ProfileSpec>,
}

impl Restored {
    /// The profiles of that time.
    ///
    /// # Errors
    /// This version does not know a plugin or argument of theirs.
    pub fn profiles(&self) -> Result<Profiles, RestoreError> {
        let config = SchedulerConfiguration {
            profiles: self.profiles.clone(),
            ..SchedulerConfiguration::default()
        };
        Profiles::read(&config).map_err(|error| RestoreError::new(name::PROFILES, error))
    }

    /// Asks what a changed policy asks for. False if that makes the decision read more than was recorded.
    #[must_use]
    pub fn ask(&mut self, claim: &Claim, profiles: &Profiles) -> bool {
        let read = Scope::of(&self.request, profiles, false);
        let request = &mut self.request;
        request.placement = claim.placement.clone();
        request.policies.clone_from(&claim.policies);
        request.scheduler_name.clone_from(&claim.scheduler_name);
        request.failover.clone_from(&claim.failover);
        request.suspended = claim.suspension.as_ref().is_some_and(|s| s.scheduling);
        Scope::of(&self.request, profiles, false) <= read
    }

    /// Whether the decision would read no more with these profiles than was recorded.
    #[must_use]
    pub fn covers(&self, recorded: &Profiles, profiles: &Profiles) -> bool {
        Scope::of(&self.request, profiles, false) <= Scope::of(&self.request, recorded, false)
    }

    /// Makes the decision again.
    #[must_use]
    pub fn decide(&self, profiles: &Profiles) -> Decision {
        Scheduler::new(profiles.clone()).decide(&self.snapshot, &self.request)
    }
}

/// Reads the objects of [`super::Inputs::differences`].
///
/// # Errors
/// The object that is missing or cannot be read.
pub fn restore<'a>(
    objects: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Restored, RestoreError> {
    let mut parts = Parts::default();
    for (name, content) in objects {
        parts.take(name, content)?;
    }
    parts.finish()
}

#[derive(Default)]
struct Parts {
    rows: BTreeMap<String, Row>,
    /// Room and reservations, which may precede their cluster.
    rooms: Vec<(String, Row)>,
    bindings: Vec<Arc<BindingFacts>>,
    request: Option<ReadRequest>,
    /// Earlier versions wrote the placements into the request.
    placement: Option<Placement>,
    applied: Option<Applied>,
    profiles: Vec<ProfileSpec>,
    quotas: Option<StoredQuotas>,
    workload_policy: Option<atoll_api::WorkloadPolicy>,
    workload_spread: Option<atoll_api::WorkloadSpread>,
    cluster_sets: Option<StoredSets>,
    claims: Vec<(BindingKey, Vec<standing::Claim>)>,
    member_quotas: Option<ByMember>,
}

fn parse<T: DeserializeOwned>(name: &str, content: &[u8]) -> Result<T, RestoreError> {
    serde_json::from_slice(content).map_err(|error| RestoreError::new(name, error))
}

fn applied(content: &[u8]) -> Result<Applied, RestoreError> {
    let text = str::from_utf8(content).map_err(|error| RestoreError::new(name::APPLIED, error))?;
    Applied::read(text).map_err(|error| RestoreError::new(name::APPLIED, error))
}

impl Parts {
    fn take(&mut self, name: &str, content: &[u8]) -> Result<(), RestoreError> {
        if let Some(cluster) = name.strip_prefix(name::CLUSTER) {
            let stored: StoredCluster<'static> = parse(name, content)?;
            self.rows.insert(cluster.to_owned(), stored.read(cluster));
        } else if let Some(cluster) = name.strip_prefix(name::SUPPLY) {
            let row = Row { supply: parse(name, content)?, ..Row::default() };
            self.rooms.push((cluster.to_owned(), row));
        } else if let Some(cluster) = name.strip_prefix(name::RESERVED) {
            let row = Row { reserved: parse(name, content)?, ..Row::default() };
            self.rooms.push((cluster.to_owned(), row));
        } else if name.starts_with(name::BINDING) || name == name::OWN {
            let stored: StoredBinding<'static> = parse(name, content)?;
            self.bindings.push(Arc::new(stored.into()));
        } else {
            match name {
                name::REQUEST => self.request = Some(parse(name, content)?),
                name::PLACEMENT => self.placement = Some(parse(name, content)?),
                name::APPLIED => self.applied = Some(applied(content)?),
                name::PROFILES => self.profiles = parse(name, content)?,
                name::QUOTAS => self.quotas = Some(parse(name, content)?),
                name::WORKLOAD_POLICY => self.workload_policy = Some(parse(name, content)?),
                name::WORKLOAD_SPREAD => self.workload_spread = Some(parse(name, content)?),
                name::CLUSTER_SETS => self.cluster_sets = Some(parse(name, content)?),
                name::CLAIMS => self.claims = parse(name, content)?,
                name::MEMBER_QUOTAS => self.member_quotas = Some(parse(name, content)?),
                _ => {
                    let problem =
                        "this version does not know it: replay with the version that decided";
                    return Err(RestoreError::new(name, problem));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Restored, RestoreError> {
        let missing = || RestoreError::new(name::REQUEST, "is missing");
        let ReadRequest { snapshot: version, mut request } =
            self.request.take().ok_or_else(missing)?;
        if let Some(placement) = self.placement {
            request.placement = placement.into();
        }
        if let (Some(previous), applied @ Some(_)) = (&mut request.previous, self.applied) {
            previous.applied_placement = applied;
        }
        for (cluster, room) in self.rooms {
            let Some(row) = self.rows.get_mut(&cluster) else {
                let problem = format!("cluster {cluster} is missing");
                return Err(RestoreError::new(name::CLUSTER, problem));
            };
            if room.reserved.is_empty() {
                row.supply = room.supply;
            } else {
                row.reserved = room.reserved;
            }
        }
        let namespace = request.key.namespace().unwrap_or_default().to_owned();
        let quotas = self.quotas.map(StoredQuotas::read).transpose();
        let quotas = quotas.map_err(|problem| RestoreError::new(name::QUOTAS, problem))?;
        let sets = self.cluster_sets.map(|sets| sets.read(&namespace));
        let member_quotas =
            self.member_quotas.map(|by_member| MemberQuotas::of_one(&namespace, by_member));
        let content = ReadContent {
            version,
            rows: self.rows.into_values().map(Arc::new).collect(),
            bindings: self.bindings,
            quotas: quotas.map(|quotas| (namespace, quotas)),
            workload_policy: self.workload_policy,
            workload_spread: self.workload_spread,
            cluster_sets: sets.unwrap_or_default(),
            claims: self.claims.into_iter().collect(),
            member_quotas: member_quotas.unwrap_or_default(),
        };
        let snapshot = Snapshot::restored(content);
        Ok(Restored { snapshot, request, profiles: self.profiles })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Inputs;
    use super::*;
    use crate::request::Previous;

    /// The objects of a request with both placements.
    fn recorded() -> (Request, BTreeMap<String, Vec<u8>>) {
        let placement = json!({"clusterAffinity": {"clusterNames": ["m-1"]}});
        let request = Request {
            placement: serde_json::from_value(placement).unwrap(),
            previous: Some(Previous {
                applied_placement: Some(Applied::read(r#"{"clusterTolerations": []}"#).unwrap()),
                ..Previous::default()
            }),
            ..Request::default()
        };
        let inputs =
            Inputs::of(&Snapshot::default(), request.clone(), &Profiles::default()).unwrap();
        let objects = inputs.differences(None).into_iter();
        (request, objects.filter_map(|(name, content)| Some((name, content?))).collect())
    }

    fn read(objects: &BTreeMap<String, Vec<u8>>) -> Request {
        restore(objects.iter().map(|(name, content)| (&**name, &**content))).unwrap().request
    }

    #[test]
    fn placements_are_read_from_their_objects() {
        let (request, objects) = recorded();
        let text = str::from_utf8(&objects[name::REQUEST]).unwrap();
        assert!(!text.contains("m-1") && !text.contains("clusterTolerations"), "{text}");
        assert_eq!(read(&objects), request);
    }

    #[test]
    fn placements_are_read_from_requests_of_earlier_versions() {
        let (request, mut objects) = recorded();
        let mut earlier: Value = serde_json::from_slice(&objects[name::REQUEST]).unwrap();
        for (object, field) in [
            (name::PLACEMENT, "/request/placement"),
            (name::APPLIED, "/request/previous/applied_placement"),
        ] {
            let content = objects.remove(object).unwrap();
            *earlier.pointer_mut(field).unwrap() = serde_json::from_slice(&content).unwrap();
        }
        objects.insert(name::REQUEST.to_owned(), earlier.to_string().into_bytes());
        assert_eq!(read(&objects), request);
    }
}
