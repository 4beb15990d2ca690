//! StatefulSet: Pods with ordinals and their own volumes, one after the other unless configured otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::children::{PodDraft, claim, is_running_and_ready, owner_reference, put_count};
use super::revisions::{self, REVISION_LABEL, Revisions, revisions, template_of};
use crate::engine::brain::View;
use crate::index::fields::{list, selector, strings, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::{Plan, Write};

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// A StatefulSet as its controller reads it.
#[derive(Debug)]
struct Set<'a> {
    object: &'a Object,
    /// First ordinal and the one after the last.
    range: std::ops::Range<i64>,
    /// One Pod at a time, each after its predecessor is available.
    ordered: bool,
    /// Pods below this ordinal stay on the current revision.
    partition: i64,
    on_delete: bool,
    min_ready_seconds: i64,
    /// Names of the revisions: the one being replaced and the new one.
    current: String,
    update: String,
}

/// Reconciles a StatefulSet.
pub(crate) fn reconcile(view: &View<'_>, object: &Object) -> Plan {
    let Some(selector) = selector(&object.data, "/spec/selector") else {
        return Plan::default();
    };
    let claim =
        claim(view, object, Kind::Pod, &selector, |orphan| ordinal_in(object, orphan).is_some());
    if !claim.writes.is_empty() {
        return Plan::of(claim.writes);
    }
    let revisions = revisions(view, object);
    let Some(update) = revisions.update.clone().filter(|_| !object.is_deleting()) else {
        return if object.is_deleting() { Plan::default() } else { Plan::of(revisions.writes) };
    };
    let set = Set::read(object, &revisions, &update);
    let pods: BTreeMap<i64, Arc<Object>> =
        claim.owned.into_iter().filter_map(|pod| Some((ordinal_in(object, &pod)?, pod))).collect();
    let mut plan = Plan::of(set.step(view, &pods, &revisions));
    if plan.writes.is_empty() {
        plan.push(set.report(view, &pods));
    }
    if plan.writes.is_empty() {
        let mut in_use: Vec<&str> =
            pods.values().filter_map(|pod| pod.label(REVISION_LABEL)).collect();
        in_use.extend([set.current.as_str(), set.update.as_str()]);
        plan.push(revisions::clean_up(object, &revisions, &in_use));
    }
    if let Some(at) =
        super::children::next_available(pods.values(), set.min_ready_seconds, view.now)
    {
        plan.again_at(at);
    }
    plan
}

/// The ordinal of a Pod of this set, by its name.
fn ordinal_in(set: &Object, pod: &Object) -> Option<i64> {
    let (parent, ordinal) = pod.key.name.rsplit_once('-')?;
    (parent == set.key.name).then(|| ordinal.parse().ok()).flatten()
}

impl<'a> Set<'a> {
    fn read(object: &'a Object, revisions: &Revisions, update: &Object) -> Self {
        let start = object.count("/spec/ordinals/start");
        let replicas = object.int("/spec/replicas").unwrap_or(1);
        // A current revision that is no longer kept cannot be returned to.
        let current = object
            .text("/status/currentRevision")
            .filter(|name| revisions.all.iter().any(|revision| revision.key.name == *name))
            .unwrap_or(&update.key.name)
            .to_owned();
        Self {
            object,
            range: start..start + replicas,
            ordered: object.text("/spec/podManagementPolicy") != Some("Parallel"),
            partition: object.count("/spec/updateStrategy/rollingUpdate/partition"),
            on_delete: object.text("/spec/updateStrategy/type") == Some("OnDelete"),
            min_ready_seconds: object.count("/spec/minReadySeconds"),
            current,
            update: update.key.name.clone(),
        }
    }

    fn is_available(&self, pod: &Object, now: Timestamp) -> bool {
        is_running_and_ready(pod) && pod.pod().is_available(self.min_ready_seconds, now)
    }

    /// The next writes: creates missing Pods in rising order, deletes surplus ones in falling order, then replaces
    /// those of another revision in falling order. In an ordered set each step waits for the previous one.
    fn step(
        &self,
        view: &View<'_>,
        pods: &BTreeMap<i64, Arc<Object>>,
        revisions: &Revisions,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        for ordinal in self.range.clone() {
            match pods.get(&ordinal) {
                None => {
                    writes.extend(self.create(view, ordinal, revisions));
                    if self.ordered {
                        return writes;
                    }
                }
                Some(pod) if pod.pod().is_finished() && !pod.is_deleting() => {
                    writes.push(Write::delete(pod));
                    if self.ordered {
                        return writes;
                    }
                }
                Some(pod)
                    if self.ordered && (pod.is_deleting() || !self.is_available(pod, view.now)) =>
                {
                    return writes;
                }
                Some(_) => {}
            }
        }
        let first_unhealthy =
            pods.iter().find(|(_, pod)| !is_healthy(pod)).map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in pods.iter().rev().filter(|(ordinal, _)| !self.range.contains(ordinal))
        {
            if pod.is_deleting() {
                if self.ordered {
                    return writes;
                }
                continue;
            }
            if self.ordered && !is_running_and_ready(pod) && first_unhealthy != Some(*ordinal) {
                return writes;
            }
            writes.push(Write::delete(pod));
            if self.ordered {
                return writes;
            }
        }
        if self.on_delete || !writes.is_empty() {
            return writes;
        }
        for ordinal in
            self.range.clone().rev().take_while(|ordinal| *ordinal >= self.first_updated())
        {
            let Some(pod) = pods.get(&ordinal) else {
                return writes;
            };
            if !pod.is_deleting() && pod.label(REVISION_LABEL) != Some(&self.update) {
                return vec![Write::delete(pod)];
            }
            if !is_healthy(pod) {
                return writes;
            }
        }
        writes
    }

    /// First ordinal that a rolling update replaces; a partition counts from the first ordinal.
    fn first_updated(&self) -> i64 {
        self.range.start + self.partition
    }

    /// The Pod of an ordinal, and the claims for its volumes that do not exist yet.
    fn create(&self, view: &View<'_>, ordinal: i64, revisions: &Revisions) -> Vec<Write> {
        let of_current = !self.on_delete && ordinal < self.first_updated();
        let revision = if of_current { &self.current } else { &self.update };
        let template =
            revisions.all.iter().find(|r| r.key.name == *revision).map(|r| template_of(r));
        let template = template.unwrap_or_default();
        let name = format!("{}-{ordinal}", self.object.key.name);
        let mut draft = PodDraft::from_template(&template, name.clone());
        draft.labels.insert(REVISION_LABEL.to_owned(), json!(revision));
        draft.labels.insert(POD_NAME_LABEL.to_owned(), json!(name));
        draft.labels.insert(POD_INDEX_LABEL.to_owned(), json!(ordinal.to_string()));
        draft.spec["hostname"] = json!(name);
        if let Some(service) = self.object.text("/spec/serviceName").filter(|name| !name.is_empty())
        {
            draft.spec["subdomain"] = json!(service);
        }
        let mut writes = Vec::new();
        let mut volumes = list(&draft.spec, "/volumes").to_vec();
        for claim in list(&self.object.data, "/spec/volumeClaimTemplates") {
            let Some(volume) = text(claim, "/metadata/name") else { continue };
            let key = Key::new(&self.object.key.namespace, format!("{volume}-{name}"));
            volumes.retain(|other| text(other, "/name") != Some(volume));
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": key.name}}));
            if view.index.get(Kind::PersistentVolumeClaim, &key).is_none() {
                writes.push(self.create_claim(claim, key));
            }
        }
        if !volumes.is_empty() {
            draft.spec["volumes"] = Value::Array(volumes);
        }
        writes.push(draft.create(self.object));
        writes
    }

    /// A volume claim outlives its Pod and, unless the retention policy says otherwise, the set.
    fn create_claim(&self, claim: &Value, key: Key) -> Write {
        let mut labels = strings(claim, "/metadata/labels");
        labels.extend(strings(&self.object.data, "/spec/selector/matchLabels"));
        let mut metadata =
            json!({"labels": labels, "annotations": strings(claim, "/metadata/annotations")});
        if self.object.text("/spec/persistentVolumeClaimRetentionPolicy/whenDeleted")
            == Some("Delete")
        {
            metadata["ownerReferences"] = json!([owner_reference(self.object)]);
        }
        let spec = claim.get("spec").cloned().unwrap_or_default();
        Write::create(Kind::PersistentVolumeClaim, key, metadata, json!({"spec": spec}))
    }

    fn report(&self, view: &View<'_>, pods: &BTreeMap<i64, Arc<Object>>) -> Option<Write> {
        let count = |test: &dyn Fn(&Object) -> bool| {
            i64::try_from(pods.values().filter(|pod| test(pod)).count()).unwrap_or(i64::MAX)
        };
        let of = |revision: &str| {
            count(&|pod| !pod.is_deleting() && pod.label(REVISION_LABEL) == Some(revision))
        };
        let replicas = count(&|_| true);
        let ready = count(&is_running_and_ready);
        let (mut current, updated) = (of(&self.current), of(&self.update));
        let mut current_revision = self.current.as_str();
        // The rollout is complete: the update revision becomes the current one.
        if !self.on_delete && updated == replicas && ready == replicas {
            current_revision = &self.update;
            current = updated;
        }
        let mut status = self.object.status();
        status["replicas"] = json!(replicas);
        status["availableReplicas"] = json!(count(&|pod| self.is_available(pod, view.now)));
        put_count(&mut status, "readyReplicas", ready);
        put_count(&mut status, "currentReplicas", current);
        put_count(&mut status, "updatedReplicas", updated);
        put_count(&mut status, "observedGeneration", self.object.generation());
        status["currentRevision"] = json!(current_revision);
        status["updateRevision"] = json!(self.update);
        if status.get("collisionCount").is_none() {
            status["collisionCount"] = json!(0);
        }
        Write::status(self.object, status)
    }
}

fn is_healthy(pod: &Object) -> bool {
    is_running_and_ready(pod) && !pod.is_deleting()
}
