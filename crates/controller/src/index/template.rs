//! Users' objects. A hub holds many, and as JSON trees they would take ten times their size: they are kept as text and
//! parsed when they are needed. The last ones that were needed stay parsed, because one decision needs its template
//! several times.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use atoll_api::binding::ObjectReference;
use atoll_api::{TemplateUid, share_equal, static_assignment};
use atoll_render::Rendered;
use atoll_scheduler::detect::{KindRef, ObjectError as RowError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::extract::Extract;
use super::key::{GroupKind, Kind, TemplateKey};
use super::meta::Texts;
use crate::delta::DeltaText;
use crate::object::string_map;
use atoll_scheduler::detect::ServedKinds;

/// Limit of templates that stay parsed: four times the commits that are on their way to the hub at once, and then dispatched.
const MOST_PARSED: usize = 256;
/// Limit of their texts in bytes, above that of an object. Parsed they take about ten times that.
const MOST_PARSED_BYTES: usize = 2 * 1024 * 1024;

/// A user's object.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its key in the tables.
    pub key: TemplateKey,
    /// uid.
    pub uid: TemplateUid,
    /// resourceVersion.
    pub resource_version: String,
    /// generation; 0 for kinds that have none (ConfigMap).
    pub generation: i64,
    /// Labels.
    pub labels: Texts,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Another object controls it, so it is not a user's own.
    pub controlled: bool,
    /// It has an ownerReference.
    pub owned: bool,
    /// What each change of its binding needs of it.
    pub extract: Arc<Extract>,
    api_version: Arc<str>,
    text: Arc<Text>,
}

impl Template {
    /// Parses an object of this kind. `parsed` is where it stays parsed for a while.
    ///
    /// # Errors
    /// When metadata that every API server sets is missing.
    pub fn read(
        kind: &GroupKind,
        object: &Arc<Value>,
        parsed: &RecentlyParsed,
    ) -> Result<Self, RowError> {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let labels = string_map(&metadata["labels"]);
        let owners = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let controlled = owners.iter().any(|owner| owner["controller"] == true);
        let stored = Arc::new(Text::of(object, parsed));
        let namespace = text("namespace").filter(|namespace| !namespace.is_empty());
        let name = text("name").ok_or(RowError::Metadata("name"))?;
        Ok(Self {
            key: TemplateKey::new(kind.borrowed(), namespace.as_deref(), &name),
            uid: text("uid").ok_or(RowError::Metadata("uid"))?.into(),
            resource_version: text("resourceVersion").unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            extract: Arc::new(Extract::of(&stored.value(), &labels)),
            labels: Texts::from(&labels),
            controlled,
            owned: !owners.is_empty(),
            api_version: object["apiVersion"].as_str().unwrap_or_default().into(),
            text: stored,
        })
    }

    /// As returned by the API server, with apiVersion and kind.
    #[must_use]
    pub fn object(&self) -> Arc<Value> {
        self.text.value()
    }

    /// Keeps its text as the difference from the version that it replaces: mostly only the status changed.
    #[must_use]
    pub(super) fn near(mut self, before: &Self) -> Self {
        if self.content() == before.content() {
            self.extract = before.extract.clone();
        } else {
            self.share_extract(before);
        }
        self.share_texts(before);
        // The other tables hold these of the first version.
        share_equal(&mut self.key, &before.key);
        if let Some(text) = Arc::get_mut(&mut self.text) {
            text.json = DeltaText::near(&text.json.text(), &before.text.json);
        }
        self
    }

    /// Shares what it has in common with another template: those of a namespace are often alike.
    pub(super) fn share(&mut self, other: &Self) {
        self.share_extract(other);
        self.share_texts(other);
        if let Some(text) = Arc::get_mut(&mut self.text)
            && !text.json.has_root_of(&other.text.json)
        {
            text.json = DeltaText::beside(&text.json.text(), &other.text.json);
        }
    }

    fn share_texts(&mut self, other: &Self) {
        self.labels.share(&other.labels);
        share_equal(&mut self.api_version, &other.api_version);
    }

    fn share_extract(&mut self, other: &Self) {
        if let Some(extract) = Arc::get_mut(&mut self.extract) {
            extract.share(&other.extract);
        }
    }

    /// Its text, which texts made from it are near to.
    pub(crate) fn text(&self) -> &DeltaText {
        &self.text.json
    }

    /// Whether it is the ResourceQuota of a FederatedResourceQuota's `staticAssignments`.
    #[must_use]
    pub fn is_assigned(&self) -> bool {
        let KindRef { group, kind } = self.key.group_kind();
        let has_label = |label: &str| self.labels.get(label).is_some();
        static_assignment::policy_for((group, kind, self.key.name()), has_label).is_some()
    }

    /// Digest of its content. Two versions of a template with the same digest differ at most in status, managedFields and,
    /// for kinds with a generation, resourceVersion.
    #[must_use]
    pub fn content(&self) -> Content {
        self.text.content
    }

    /// Whether both have the same status.
    #[must_use]
    pub fn has_status_of(&self, other: &Self) -> bool {
        self.text.status == other.text.status
    }

    /// Gives what was rendered from it the texts that the tables have.
    pub(crate) fn share_identity(&self, rendered: &mut Rendered) {
        share_equal(&mut rendered.key, self.key.on_members());
        share_equal(&mut rendered.api_version, &self.api_version);
    }

    /// apiVersion under which it was read.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// apiVersion and kind, by which rules of users are found.
    #[must_use]
    pub fn kind(&self) -> Kind<'_> {
        (&self.api_version, self.key.group_kind().kind)
    }

    /// A reference to this object.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: self.api_version().to_owned(),
            kind: self.key.group_kind().kind.to_owned(),
            namespace: self.key.namespace().map(str::to_owned),
            name: self.key.name().to_owned(),
            uid: Some((&self.uid).into()),
        }
    }

    /// Its generation for observers: for kinds without one every version counts as new.
    #[must_use]
    pub fn revision(&self) -> i64 {
        if self.generation > 0 {
            self.generation
        } else {
            self.resource_version.parse().unwrap_or_default()
        }
    }
}

/// Digest of the content of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content([u8; 16]);

/// An object as JSON text.
#[derive(Debug)]
struct Text {
    json: DeltaText,
    bytes: usize,
    content: Content,
    status: Content,
    /// The parsed object, while it is in use or among the last ones.
    held: Mutex<Weak<Value>>,
    parsed: RecentlyParsed,
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Text {
    fn of(object: &Arc<Value>, parsed: &RecentlyParsed) -> Self {
        let json = object.to_string();
        let mut held = Weak::new();
        // Every reader must see the same value, so one with a fraction always comes from the text.
        if !has_fraction(object) {
            parsed.keep(object.clone(), json.len());
            held = Arc::downgrade(object);
        }
        Self {
            bytes: json.len(),
            json: DeltaText::whole(json.as_bytes()),
            content: content(object),
            status: digest(&object["status"]),
            held: Mutex::new(held),
            parsed: parsed.clone(),
        }
    }

    fn value(&self) -> Arc<Value> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = held.upgrade() {
            return value;
        }
        // It was written by `of` from a value, so it can be parsed.
        let value = Arc::new(serde_json::from_slice(&self.json.text()).unwrap_or_default());
        *held = Arc::downgrade(&value);
        self.parsed.keep(value.clone(), self.bytes);
        value
    }
}

fn content(object: &Value) -> Content {
    let mut hash = Sha256::new();
    let metadata = &object["metadata"];
    let has_generation = metadata["generation"].as_i64().is_some_and(|generation| generation > 0);
    // Kinds without a generation show their resourceVersion as revision.
    let passes =
        |field: &str| field == "managedFields" || (field == "resourceVersion" && has_generation);
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(field, _)| !matches!(field.as_str(), "metadata" | "status"));
    let metadata = metadata.as_object().into_iter().flatten().filter(|(field, _)| !passes(field));
    for (field, value) in fields.chain(metadata) {
        hash.update(field);
        hash.update(value.to_string());
    }
    short(hash)
}

fn digest(value: &Value) -> Content {
    short(Sha256::new_with_prefix(value.to_string()))
}

fn short(hash: Sha256) -> Content {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    Content(short)
}

/// Whether it has a number with a fraction. Such a number may change in its last bit when it is printed and parsed.
pub(super) fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// The objects that were parsed last, oldest first. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecentlyParsed(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    objects: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
}

impl RecentlyParsed {
    fn keep(&self, object: Arc<Value>, bytes: usize) {
        let mut kept: MutexGuard<'_, Kept> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.objects.push_back((object, bytes));
        kept.bytes += bytes;
        while kept.objects.len() > MOST_PARSED || kept.bytes > MOST_PARSED_BYTES {
            let Some((_, bytes)) = kept.objects.pop_front() else { break };
            kept.bytes -= bytes;
        }
    }
}

// What is parsed has no effect on what the tables say.
impl PartialEq for RecentlyParsed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The templates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TemplateTable {
    pub(super) rows: BTreeMap<TemplateKey, Arc<Template>>,
    pub(super) parsed: RecentlyParsed,
    /// Kinds of the hub that `kind: "*"` selects.
    pub(super) served: ServedKinds,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(object: Value, parsed: &RecentlyParsed) -> Template {
        Template::read(&GroupKind::of("apps/v1", "Deployment"), &Arc::new(object), parsed).unwrap()
    }

    fn deployment(name: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "shop", "name": name, "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"replicas": 3},
        })
    }

    #[test]
    fn a_template_that_was_not_used_for_long_is_parsed_again_and_equal() {
        let parsed = RecentlyParsed::default();
        let first = template(deployment("first"), &parsed);
        assert!(Arc::ptr_eq(&first.object(), &first.object()));
        for number in 0..MOST_PARSED {
            template(deployment(&number.to_string()), &parsed);
        }
        assert!(first.text.held.lock().unwrap().upgrade().is_none(), "only its text is left");
        assert_eq!(*first.object(), deployment("first"));
        let kept = parsed.0.lock().unwrap();
        assert_eq!(kept.objects.len(), MOST_PARSED);
        assert_eq!(kept.bytes, kept.objects.iter().map(|(_, bytes)| bytes).sum::<usize>());
    }

    #[test]
    fn large_templates_do_not_stay_parsed_beyond_the_limit_in_bytes() {
        let parsed = RecentlyParsed::default();
        let mut large = deployment("large");
        large["metadata"]["annotations"] = json!({"note": "x".repeat(1024 * 1024)});
        let templates: Vec<_> = (0..10).map(|_| template(large.clone(), &parsed)).collect();
        assert!(parsed.0.lock().unwrap().bytes <= MOST_PARSED_BYTES);
        assert!(templates.iter().all(|template| *template.object() == large));
    }

    #[test]
    fn the_content_is_all_but_what_passes() {
        let parsed = RecentlyParsed::default();
        let content = |change: &dyn Fn(&mut Value)| {
            let mut object = deployment("web");
            change(&mut object);
            template(object, &parsed).content()
        };
        let same = content(&|_| {});
        assert_eq!(same, content(&|object| object["status"] = json!({"replicas": 3})));
        assert_eq!(same, content(&|object| object["metadata"]["resourceVersion"] = json!("2")));
        assert_eq!(same, content(&|object| object["metadata"]["managedFields"] = json!([{}])));
        assert_ne!(same, content(&|object| object["metadata"]["labels"] = json!({"a": "b"})));
        assert_ne!(same, content(&|object| object["spec"]["replicas"] = json!(4)));
        let no_generation = |version: &str| {
            content(&|object| {
                object["metadata"]["generation"] = Value::Null;
                object["metadata"]["resourceVersion"] = json!(version);
            })
        };
        assert_ne!(no_generation("1"), no_generation("2"));
    }
}
