//! Objects of the hub on their way to the tables, from lists, events and replies. A large hub has many bindings and
//! templates, which would take ten times the memory as JSON trees. The task that reads them from the hub makes their rows,
//! so that each object is parsed once, and not by the task that owns the tables. The exception is a single event of a
//! binding, which the tables parse if they need it: mostly they have its row already, from the reply to the same write.

use std::fmt;
use std::sync::Arc;

use atoll_history::LastChange;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Source;
use super::binding_object::{BindingObject, BindingText};
use super::key::{uid_of, version_of};
use super::rows::{Binding, RowError};
use super::secondary::name_of;
use super::template::{RecentlyParsed, Template};
use crate::authors;
use crate::object::Object;

/// One object.
#[derive(Debug)]
pub struct Received {
    /// Its namespace and name.
    pub(crate) name: (Option<String>, String),
    pub(crate) uid: Option<String>,
    /// Who changed it last.
    pub(crate) changed: Option<LastChange>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Binding(Box<Binding>),
    /// A binding, not read yet.
    UnreadBinding {
        version: Option<String>,
        text: Box<RawValue>,
    },
    Template(Box<Template>),
    /// Not read yet.
    Object(Arc<Value>),
    /// A binding or template that cannot be read, and why.
    Unreadable {
        version: Option<String>,
        error: RowError,
    },
}

impl Received {
    /// An object of a stream; of a template, its row is made.
    pub(crate) fn read(source: &Source, object: Arc<Value>, parsed: &RecentlyParsed) -> Self {
        let mut received = Self::from(Arc::clone(&object));
        if let Source::Templates(kind) = source {
            received.content = match Template::read(kind, &object, parsed) {
                Ok(row) => Content::Template(Box::new(row)),
                Err(error) => {
                    let version = version_of(&object).map(str::to_owned);
                    Content::Unreadable { version, error }
                }
            };
        }
        received
    }

    /// A binding with these names; `content` is made of its version.
    fn binding(names: ObjectMeta, content: impl FnOnce(Option<String>) -> Content) -> Self {
        let name = (names.namespace, names.name.unwrap_or_default());
        Self { name, uid: names.uid, changed: None, content: content(names.resource_version) }
    }

    /// Makes the row of a binding.
    pub(crate) fn read_binding(&mut self) {
        let Content::UnreadBinding { version, text } = &mut self.content else { return };
        self.content = match Binding::parse(text.get()) {
            Ok(row) => Content::Binding(Box::new(row)),
            Err(error) => Content::Unreadable { version: version.take(), error },
        };
    }

    /// Shares what it has in common with the object before it in a list.
    pub(crate) fn share(&mut self, previous: &Self) {
        match (&mut self.content, &previous.content) {
            (Content::Binding(row), Content::Binding(previous)) => row.share(previous),
            (Content::Template(row), Content::Template(previous)) => row.share(previous),
            _ => {}
        }
    }

    /// Its version.
    pub(crate) fn resource_version(&self) -> Option<&str> {
        match &self.content {
            Content::Binding(row) => Some(row.resource_version()),
            Content::Template(row) => Some(&row.resource_version),
            Content::Object(object) => version_of(object),
            Content::UnreadBinding { version, .. } | Content::Unreadable { version, .. } => {
                version.as_deref()
            }
        }
    }

    /// The object, if it was not read yet.
    pub(crate) fn object(&self) -> Option<&Value> {
        match &self.content {
            Content::Object(object) => Some(object),
            Content::Binding(_)
            | Content::UnreadBinding { .. }
            | Content::Template(_)
            | Content::Unreadable { .. } => None,
        }
    }
}

/// A type in which an answer of the hub is read.
pub(crate) trait Reply:
    Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
    + DeserializeOwned
    + Clone
    + fmt::Debug
{
    /// As the tables take it.
    fn received(self, resource: &ApiResource) -> Received;
}

impl Reply for Object {
    fn received(self, resource: &ApiResource) -> Received {
        Received::from(self.complete(resource, |_| None))
    }
}

impl Reply for BindingObject {
    fn received(self, _: &ApiResource) -> Received {
        self.into()
    }
}

impl Reply for BindingText {
    fn received(self, _: &ApiResource) -> Received {
        self.into()
    }
}

impl From<BindingText> for Received {
    fn from(object: BindingText) -> Self {
        let text = object.content;
        Self::binding(*object.metadata, |version| Content::UnreadBinding { version, text })
    }
}

impl From<BindingObject> for Received {
    fn from(object: BindingObject) -> Self {
        let row = object.content;
        Self::binding(*object.metadata, |version| match row {
            Ok(row) => Content::Binding(row),
            Err(error) => Content::Unreadable { version, error },
        })
    }
}

impl From<Arc<Value>> for Received {
    fn from(object: Arc<Value>) -> Self {
        let uid = uid_of(&object).map(str::to_owned);
        let changed = authors::last_change(&object);
        Self { name: name_of(&object), uid, changed, content: Content::Object(object) }
    }
}
