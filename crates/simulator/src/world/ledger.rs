//! Records all writes with their author, and the decisions that the hub has acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_api::{Clock, DecisionId, marks};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::guarded::Guarded;

/// The author of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The controller, on the hub.
    Controller,
    /// An agent, on its member.
    Agent,
    /// Nodes, scheduler and workload controllers of a member.
    Machinery,
}

/// A request that may have changed something, including refused ones, but not dry runs and reviews.
#[derive(Debug, Clone)]
pub struct Write {
    /// When it was sent.
    pub at: Timestamp,
    /// `hub` or the member's name.
    pub site: String,
    /// Who sent it.
    pub actor: Actor,
    /// Number of the controller that sent it; 0 for others.
    pub controller: u32,
    /// HTTP method.
    pub method: String,
    /// Plural of the kind, with `/SUBRESOURCE` where it was for one.
    pub resource: String,
    /// `ns/name`, or what of it the request's path has.
    pub key: String,
    /// HTTP status of the answer; 0 while there is none.
    pub status: u16,
    instant: Instant,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, site, actor, method, resource, key, status, .. } = self;
        write!(f, "{at} {actor:?} {method} {site} {resource} {key} -> {status}")
    }
}

/// A position in the ledger; later writes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

/// A committed decision, from an acknowledged write of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) id: DecisionId,
    pub(super) parent: Option<DecisionId>,
}

#[derive(Default)]
struct Book {
    writes: Vec<Write>,
    /// Every distinct request, including reads, as `METHOD uri`.
    asked: BTreeSet<(Actor, String)>,
    /// Replicas that any acknowledged decision gave a cluster, including kept ones, by (binding's uid, cluster). `None`
    /// for a kind without replicas.
    shares: BTreeMap<(String, String), BTreeSet<Option<i64>>>,
    decisions: BTreeMap<String, Vec<Committed>>,
    /// Clusters with a share or task in the last acknowledged decision of a binding, by the binding's uid.
    wanted: BTreeMap<String, BTreeSet<String>>,
    /// (binding's uid, cluster) of shares that an acknowledged decision ended.
    ended: BTreeSet<(String, String)>,
    /// Templates by the uid of their binding: `kind ns/name`.
    templates: BTreeMap<String, String>,
    /// Templates that a user deleted, and bindings that the controller deleted.
    deleted: BTreeSet<String>,
    /// What the ChangeGuard allows, and what was moved under it.
    guarded: Guarded,
    /// Number of stale answers received.
    stale: BTreeMap<Actor, u64>,
    violations: Vec<String>,
}

/// The ledger of a World. Entries are made where requests pass, so they are in the order of events.
pub(super) struct Ledger {
    clock: Clock,
    book: Mutex<Book>,
}

impl Ledger {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, book: Mutex::default() }
    }

    /// Records a request of any kind.
    pub(super) fn asked(&self, actor: Actor, method: &http::Method, uri: &http::Uri) {
        self.book().asked.insert((actor, format!("{method} {uri}")));
    }

    /// Records a stale answer.
    pub(super) fn answered_stale(&self, actor: Actor) {
        *self.book().stale.entry(actor).or_default() += 1;
    }

    /// Number of stale answers that an actor received.
    pub(super) fn stale_answers(&self, of: Actor) -> u64 {
        self.book().stale.get(&of).copied().unwrap_or(0)
    }

    /// All distinct requests of an actor.
    pub(super) fn requests(&self, of: Actor) -> Vec<String> {
        let book = self.book();
        book.asked.iter().filter(|(actor, _)| *actor == of).map(|(_, line)| line.clone()).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while it holds the lock.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request; `None` if it changes nothing.
    pub(super) fn sent(
        &self,
        site: &str,
        (actor, controller): (Actor, u32),
        method: &http::Method,
        uri: &http::Uri,
    ) -> Option<usize> {
        let dry = uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let (resource, key) = target(uri.path());
        if dry || resource.ends_with("reviews") {
            return None;
        }
        let mut book = self.book();
        book.writes.push(Write {
            at: self.clock.now(),
            site: site.to_owned(),
            actor,
            controller,
            method: method.to_string(),
            resource,
            key,
            status: 0,
            instant: Instant::now(),
        });
        Some(book.writes.len() - 1)
    }

    /// `METHOD`'s target of a write.
    pub(super) fn resource(&self, write: usize) -> String {
        self.book().writes[write].resource.clone()
    }

    pub(super) fn answered(&self, write: usize, status: u16) {
        self.book().writes[write].status = status;
    }

    /// A user deletes a template.
    pub(super) fn template_deleted(&self, kind: &str, key: &str) {
        self.book().deleted.insert(format!("{kind} {key}"));
    }

    /// Checks a deletion by an agent: an object that we applied may be deleted only if a decision ended its share, or
    /// if its binding or template is gone (I12).
    pub(super) fn deleting(&self, member: &str, object: &Value) {
        let unproven: Vec<String> = {
            let book = self.book();
            let proven = |claim: &&str| {
                let template = book.templates.get(*claim);
                book.ended.contains(&((*claim).to_owned(), member.to_owned()))
                    || book.deleted.contains(*claim)
                    || template.is_some_and(|template| book.deleted.contains(template))
            };
            claims(object).into_iter().filter(|claim| !proven(claim)).map(str::to_owned).collect()
        };
        if !unproven.is_empty() {
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            self.violation(format!(
                "I12: the agent of {member} deletes {name}, and nothing ended the share of {unproven:?}"
            ));
        }
    }

    /// Records a binding that the hub has acknowledged, or has `removed`.
    pub(super) fn committed(&self, object: &Value, removed: bool) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let Some(uid) = object["metadata"]["uid"].as_str() else { return };
        let broken = self.book().guarded.acknowledged(uid, object);
        broken.into_iter().for_each(|broken| self.violation(broken));
        if !matches!(kind, "ResourceBinding" | "ClusterResourceBinding") {
            return;
        }
        let spec = &object["spec"];
        let mut wanted: BTreeMap<&str, i64> = BTreeMap::new();
        for (list, name, counts) in
            [("clusters", "name", None), ("gracefulEvictionTasks", "fromCluster", Some("keep"))]
        {
            for entry in spec[list].as_array().into_iter().flatten() {
                if counts.is_none_or(|flag| entry[flag] == true) {
                    let cluster = entry[name].as_str().unwrap_or_default();
                    *wanted.entry(cluster).or_default() += entry["replicas"].as_i64().unwrap_or(0);
                }
            }
        }
        for cluster in required(object) {
            wanted.entry(cluster).or_default();
        }
        let has_replicas = spec["replicas"].is_i64();
        let now: BTreeSet<String> = wanted.keys().map(|cluster| (*cluster).to_owned()).collect();
        let mut book = self.book();
        if removed || object["metadata"]["deletionTimestamp"].is_string() {
            book.deleted.insert(uid.to_owned());
        }
        let resource = &spec["resource"];
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let template = format!("{} {}/{}", text("kind"), text("namespace"), text("name"));
        book.templates.insert(uid.to_owned(), template);
        let before = book.wanted.insert(uid.to_owned(), now.clone()).unwrap_or_default();
        for cluster in before.difference(&now) {
            book.ended.insert((uid.to_owned(), cluster.clone()));
        }
        for (cluster, replicas) in wanted {
            let shares = book.shares.entry((uid.to_owned(), cluster.to_owned())).or_default();
            shares.insert(has_replicas.then_some(replicas));
        }
        let text = |field: &str| spec["decision"][field].as_str().map(DecisionId::from);
        if let Some(id) = text("id") {
            let decisions = book.decisions.entry(uid.to_owned()).or_default();
            if decisions.last().is_none_or(|last| last.id != id) {
                decisions.push(Committed { id, parent: text("parent") });
            }
        }
    }

    /// Checks a request of an agent against the acknowledged decisions (I4, I5).
    pub(super) fn claimed(&self, member: &str, object: &Value) {
        let replicas = object["spec"]["replicas"].as_i64();
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        for claim in claims(object) {
            let book = self.book();
            let shares = book.shares.get(&(claim.to_owned(), member.to_owned()));
            let problem = match shares {
                None => Some("which no acknowledged decision gave to it".to_owned()),
                Some(shares) if replicas.is_some() && !shares.contains(&replicas) => {
                    Some(format!("acknowledged decisions gave it {shares:?} replicas"))
                }
                Some(_) => None,
            };
            drop(book);
            if let Some(problem) = problem {
                self.violation(format!(
                    "I5: the agent of {member} writes {name} with {replicas:?} replicas for {claim}: {problem}"
                ));
            }
        }
    }

    /// Whether any acknowledged decision gave the cluster a share of the binding.
    pub(super) fn ever_given(&self, claim: &str, cluster: &str) -> bool {
        self.book().shares.contains_key(&(claim.to_owned(), cluster.to_owned()))
    }

    pub(super) fn decisions(&self) -> BTreeMap<String, Vec<Committed>> {
        self.book().decisions.clone()
    }

    /// A user approved a plan.
    pub(super) fn approved(&self, plan: &str) {
        self.book().guarded.approved(plan);
    }

    /// Records a violated invariant.
    pub(super) fn violation(&self, text: String) {
        let text = format!("{} {text}", self.clock.now());
        self.book().violations.push(text);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.book().violations.clone()
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.book().writes.len())
    }

    pub(super) fn since(&self, mark: Mark, counts: impl Fn(&Write) -> bool) -> Vec<Write> {
        self.book().writes[mark.0..].iter().filter(|write| counts(write)).cloned().collect()
    }

    /// Time of the last matching write.
    pub(super) fn last(&self, counts: impl Fn(&Write) -> bool) -> Option<Instant> {
        let book = self.book();
        book.writes.iter().rev().find(|write| counts(write)).map(|write| write.instant)
    }
}

/// Clusters on which other bindings need the object of this one.
pub(super) fn required(binding: &Value) -> impl Iterator<Item = &str> {
    let parents = binding["spec"]["requiredBy"].as_array().into_iter().flatten();
    let clusters = parents.flat_map(|parent| parent["clusters"].as_array().into_iter().flatten());
    clusters.filter_map(|cluster| cluster["name"].as_str())
}

/// uids of the bindings that claim an object.
pub(super) fn claims(object: &Value) -> Vec<&str> {
    let claims = object["metadata"]["annotations"][marks::CLAIMS].as_str().unwrap_or_default();
    claims.split(',').filter(|claim| !claim.is_empty()).collect()
}

/// Whether a path is a collection, of one namespace or of all.
pub(super) fn is_collection(path: &str) -> bool {
    let (resource, key) = target(path);
    let namespaced = resource != "namespaces" && path.contains("/namespaces/");
    resource != path
        && !resource.contains('/')
        && !key.contains('/')
        && namespaced != key.is_empty()
}

/// Resource and key of a path of the Kubernetes API.
fn target(path: &str) -> (String, String) {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let skip = if segments.next() == Some("api") { 1 } else { 2 };
    let rest: Vec<&str> = segments.skip(skip).collect();
    let (namespace, rest) = match rest.as_slice() {
        // `namespaces/x/status` and `namespaces/x/finalize` are subresources of the namespace itself.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => {
            (None, rest.as_slice())
        }
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let resource = match rest {
        [plural, _, subresource, ..] => format!("{plural}/{subresource}"),
        [plural, ..] => (*plural).to_owned(),
        [] => path.to_owned(),
    };
    let name = rest.get(1).copied();
    let key: Vec<&str> = namespace.into_iter().chain(name).collect();
    (resource, key.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resource_and_object() {
        let read = |path| {
            let (resource, key) = target(path);
            format!("{resource} {key}")
        };
        assert_eq!(read("/api/v1/namespaces/a/pods/b/status"), "pods/status a/b");
        assert_eq!(read("/api/v1/namespaces/a"), "namespaces a");
        assert_eq!(read("/api/v1/namespaces/a/finalize"), "namespaces/finalize a");
        assert_eq!(read("/apis/apps/v1/namespaces/a/deployments"), "deployments a");
        assert_eq!(read("/apis/cluster.atoll.dev/v1alpha1/clusters/m/status"), "clusters/status m");
    }

    #[test]
    fn a_collection_is_told_from_an_object() {
        for path in ["/api/v1/namespaces", "/api/v1/namespaces/a/pods", "/apis/apps/v1/deployments"]
        {
            assert!(is_collection(path), "{path}");
        }
        for path in [
            "/api/v1/namespaces/a",
            "/api/v1/namespaces/a/pods/b",
            "/api/v1/namespaces/a/pods/b/status",
            "/apis/cluster.atoll.dev/v1alpha1/clusters/m",
            "/apis/cluster.atoll.dev/v1alpha1/clusters/m/status",
            "/api/v1",
            "/apis",
            "/version",
        ] {
            assert!(!is_collection(path), "{path}");
        }
    }
}
