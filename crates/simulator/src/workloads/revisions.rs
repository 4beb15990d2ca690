//! ControllerRevisions: the past and current pod templates of a StatefulSet or DaemonSet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::children::owner_reference;
use super::names;
use crate::engine::brain::View;
use crate::index::fields::strings;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::Write;

/// Label of a Pod: the revision that it was made from.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";
/// Label of a ControllerRevision: the hash of its template.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The revisions of a workload.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// The revision of the current template; `None` while it must be created or renumbered.
    pub(crate) update: Option<Arc<Object>>,
    /// All, oldest first.
    pub(crate) all: Vec<Arc<Object>>,
    /// Writes that make the current template's revision the newest.
    pub(crate) writes: Vec<Write>,
}

fn number(revision: &Object) -> i64 {
    revision.count("/revision")
}

/// Finds the revisions of a workload, and the writes that make the current template's the newest.
pub(crate) fn revisions(view: &View<'_>, owner: &Object) -> Revisions {
    let mut all: Vec<_> =
        view.index.owned(&owner.uid, Kind::ControllerRevision).map(Arc::clone).collect();
    all.sort_by(|a, b| (number(a), a.created(), &a.key).cmp(&(number(b), b.created(), &b.key)));
    let collisions = owner.int("/status/collisionCount");
    let template = owner.data.pointer("/spec/template").unwrap_or(&Value::Null);
    let hash = names::template_hash(template, collisions);
    let last = all.last().map_or(0, |revision| number(revision));
    let found = all.iter().find(|revision| revision.label(HASH_LABEL) == Some(&hash)).cloned();
    let mut writes = Vec::new();
    let update = match found {
        Some(found) if number(&found) == last => Some(found),
        Some(found) => {
            // Back to an earlier template: its revision becomes the newest again.
            writes.extend(Write::fields(&found, json!({"revision": last + 1})));
            None
        }
        None => {
            let key = Key::new(&owner.key.namespace, format!("{}-{hash}", owner.key.name));
            if view.index.get(Kind::ControllerRevision, &key).is_some() {
                let mut status = owner.status();
                status["collisionCount"] = json!(collisions.unwrap_or(0) + 1);
                writes.extend(Write::status(owner, status));
            } else {
                writes.push(create(owner, key, template, &hash, last + 1));
            }
            None
        }
    };
    Revisions { update, all, writes }
}

fn create(owner: &Object, key: Key, template: &Value, hash: &str, revision: i64) -> Write {
    let mut labels = strings(template, "/metadata/labels");
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    let metadata = json!({"labels": labels, "ownerReferences": [owner_reference(owner)]});
    let mut template = template.clone();
    template["$patch"] = json!("replace");
    let data = json!({"spec": {"template": template}});
    let rest = json!({"data": data, "revision": revision});
    Write::create(Kind::ControllerRevision, key, metadata, rest)
}

/// The pod template that a revision holds.
pub(crate) fn template_of(revision: &Object) -> Value {
    let mut template = revision.data.pointer("/data/spec/template").cloned().unwrap_or_default();
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    template
}

/// Deletes the oldest unused revisions beyond the workload's limit.
pub(crate) fn clean_up(owner: &Object, revisions: &Revisions, in_use: &[&str]) -> Vec<Write> {
    let limit = usize::try_from(owner.int("/spec/revisionHistoryLimit").unwrap_or(10)).unwrap_or(0);
    let idle: Vec<_> = revisions
        .all
        .iter()
        .filter(|revision| !in_use.contains(&revision.key.name.as_str()) && !revision.is_deleting())
        .collect();
    let surplus = idle.len().saturating_sub(limit);
    idle.into_iter().take(surplus).map(|revision| Write::delete(revision)).collect()
}
