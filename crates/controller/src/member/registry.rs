//! The members in the hub, by name and by uid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::{Cluster, ClusterName};
use atoll_protocol::identity::ClusterUid;
use jiff::Timestamp;
use tokio::time::Instant;

use super::state::Member;
use crate::enrolment::identity::ClusterIdError;
use crate::health::terms;
use crate::leader::LeaderTerm;

#[derive(Debug, Default)]
struct IdentityTables {
    by_uid: BTreeMap<String, Arc<Member>>,
    /// kube-system uid to name.
    by_cluster_id: BTreeMap<String, ClusterName>,
    /// Terms above ours that enrolled members name, by the uids of their Clusters.
    named_terms: BTreeMap<String, LeaderTerm>,
}

/// The lock of `identities` may be held while a member's state is locked; the lock of `names` never is, so that the
/// event loop finds a member without waiting for another one's session.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    names: Mutex<BTreeMap<ClusterName, Arc<Member>>>,
    identities: Mutex<IdentityTables>,
}

impl Registry {
    fn names(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Arc<Member>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identities(&self) -> MutexGuard<'_, IdentityTables> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member of this name. It may be named before its Cluster was seen here.
    pub(crate) fn named(&self, name: &ClusterName) -> Arc<Member> {
        let mut names = self.names();
        let new = || Arc::new(Member::new(name.clone(), Instant::now()));
        names.entry(name.clone()).or_insert_with(new).clone()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Member>> {
        self.names().get(name).cloned()
    }

    /// The member whose Cluster has exactly this uid.
    pub(crate) fn by_uid(&self, uid: &ClusterUid) -> Option<Arc<Member>> {
        self.identities().by_uid.get(uid.as_str()).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Member>> {
        self.names().values().cloned().collect()
    }

    /// Stores a version of a Cluster. Returns the member and whether it was newer; `None` without a name and a uid.
    pub(crate) fn take(
        &self,
        cluster: &Cluster,
        now: (Instant, Timestamp),
    ) -> Option<(Arc<Member>, bool)> {
        let (name, uid) = (cluster.metadata.name.as_deref()?.into(), cluster.metadata.uid.clone()?);
        let member = self.named(&name);
        let mut tables = self.identities();
        let mut state = member.lock();
        let other = state.uid().filter(|old| *old != uid).map(str::to_owned);
        if let Some(old) = other {
            tables.by_uid.remove(&old);
            tables.named_terms.remove(&old);
        }
        let before = state.identity.cluster_id.clone();
        let newer = state.take(&Arc::new(cluster.clone()), now);
        let after = state.identity.cluster_id.clone();
        drop(state);
        if before != after {
            if let Some(id) = before {
                tables.by_cluster_id.remove(&id);
            }
            if let Some(id) = after {
                // The hub's content takes precedence over an agent's claim in its first Hello. Of two Clusters with one
                // id in the hub (created by hand, or by an older controller) the first keeps it.
                let owner = tables.by_cluster_id.get(&id).filter(|owner| **owner != name);
                let rival = owner.and_then(|owner| self.get(owner));
                let mut rival = rival.as_ref().map(|rival| rival.lock());
                if rival.as_ref().is_none_or(|rival| !rival.is_cluster_id_stored(&id)) {
                    if let Some(rival) = &mut rival {
                        let error = ClusterIdError::Duplicate { other: name.clone() };
                        rival.drop_cluster_id(&error);
                    }
                    tables.by_cluster_id.insert(id, name);
                }
            }
        }
        tables.by_uid.insert(uid, member.clone());
        Some((member, newer))
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Member>> {
        let mut tables = self.identities();
        let member = self.names().remove(name)?;
        let (uid, id) = {
            let state = member.lock();
            (state.uid().map(str::to_owned), state.identity.cluster_id.clone())
        };
        if let Some(uid) = uid {
            tables.by_uid.remove(&uid);
            tables.named_terms.remove(&uid);
        }
        if let Some(id) = id
            && tables.by_cluster_id.get(&id).is_some_and(|owner| owner == name)
        {
            tables.by_cluster_id.remove(&id);
        }
        Some(member)
    }

    /// An enrolled member names this term; returns the highest term above `ours` that is believed now.
    pub(crate) fn name_term(
        &self,
        uid: &str,
        named: LeaderTerm,
        ours: LeaderTerm,
    ) -> Option<LeaderTerm> {
        let mut tables = self.identities();
        tables.named_terms.insert(uid.to_owned(), named);
        let enrolled = tables.by_cluster_id.len();
        terms::believed(tables.named_terms.values().copied(), enrolled, ours)
    }

    /// The member no longer names a term above ours.
    pub(crate) fn forget_term(&self, uid: &str) {
        self.identities().named_terms.remove(uid);
    }

    /// Assigns `id` permanently as the kube-system uid of `member`, at its first contact.
    pub(crate) fn claim_cluster_id(&self, member: &Member, id: &str) -> Result<(), ClusterIdError> {
        let mut tables = self.identities();
        let mut state = member.lock();
        match &state.identity.cluster_id {
            Some(known) if known == id => return Ok(()),
            Some(known) => return Err(ClusterIdError::Changed { known: known.clone() }),
            None => (),
        }
        match tables.by_cluster_id.get(id) {
            Some(other) if *other != member.name => {
                Err(ClusterIdError::Duplicate { other: other.clone() })
            }
            _ => {
                // The token was for the member that enrolled with it, not for any member that the agent names later.
                if let Some(known) =
                    state.identity.enrolled_id.clone().filter(|enrolled| enrolled != id)
                {
                    return Err(ClusterIdError::Changed { known });
                }
                tables.by_cluster_id.insert(id.to_owned(), member.name.clone());
                state.identity.cluster_id = Some(id.to_owned());
                Ok(())
            }
        }
    }

    /// Checks that no other Cluster represents the member with this id.
    pub(crate) fn check_unknown(&self, name: &ClusterName, id: &str) -> Result<(), ClusterIdError> {
        match self.identities().by_cluster_id.get(id) {
            Some(other) if other != name => Err(ClusterIdError::Duplicate { other: other.clone() }),
            _ => Ok(()),
        }
    }

    /// The Cluster represents the member with this id from now on: an administrator said so.
    ///
    /// # Errors
    /// Another Cluster has claimed the id since [`Registry::check_unknown`].
    pub(crate) fn taken_over(&self, name: &str, id: &str) -> Result<(), ClusterIdError> {
        let Some(member) = self.get(name) else { return Ok(()) };
        let mut tables = self.identities();
        if let Some(other) = tables.by_cluster_id.get(id).filter(|other| **other != member.name) {
            return Err(ClusterIdError::Duplicate { other: other.clone() });
        }
        let mut state = member.lock();
        if let Some(old) = state.identity.cluster_id.replace(id.to_owned())
            && tables.by_cluster_id.get(&old).is_some_and(|owner| *owner == member.name)
        {
            tables.by_cluster_id.remove(&old);
        }
        tables.by_cluster_id.insert(id.to_owned(), member.name.clone());
        // What the old member held says nothing about this one.
        state.facts = None;
        state.agreed = false;
        Ok(())
    }

    /// Checks [`Registry::claim_cluster_id`] without assigning the id.
    pub(crate) fn check_cluster_id(
        &self,
        name: &ClusterName,
        id: &str,
    ) -> Result<(), ClusterIdError> {
        let tables = self.identities();
        let known = self.get(name).and_then(|member| member.lock().identity.cluster_id.clone());
        match (known, tables.by_cluster_id.get(id)) {
            (Some(known), _) if known != id => Err(ClusterIdError::Changed { known }),
            (None, Some(other)) if other != name => {
                Err(ClusterIdError::Duplicate { other: other.clone() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_id_that_another_cluster_has_claimed_meanwhile_is_not_taken_over() {
        let registry = Registry::default();
        let [rebuilt, other] = ["rebuilt", "other"].map(|name| registry.named(&name.into()));
        registry.claim_cluster_id(&rebuilt, "before").unwrap();
        registry.check_unknown(&rebuilt.name, "new").unwrap();
        registry.claim_cluster_id(&other, "new").unwrap();
        let error = registry.taken_over("rebuilt", "new").unwrap_err();
        assert_eq!(error, ClusterIdError::Duplicate { other: "other".into() });
        assert_eq!(rebuilt.lock().identity.cluster_id.as_deref(), Some("before"));
        registry.taken_over("rebuilt", "newer").unwrap();
        registry.check_unknown(&other.name, "before").expect("the old one is free");
    }
}
