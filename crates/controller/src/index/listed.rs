//! Objects of a list on their way to the tables. A large hub has many bindings and templates, which would take ten times
//! the memory as JSON trees: the stream that reads the list makes their rows, so that each object is parsed once, and not
//! by the task that owns the tables.

use std::sync::Arc;

use atoll_history::LastChange;
use serde_json::Value;

use super::Source;
use super::key::{uid_of, version_of};
use super::rows::Binding;
use super::secondary::name_of;
use super::template::{RecentlyParsed, Template};
use crate::authors;

/// One object of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(super) name: (Option<String>, String),
    pub(crate) uid: Option<String>,
    /// Who changed it last.
    pub(crate) changed: Option<LastChange>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Binding(Box<Binding>),
    Template(Box<Template>),
    /// Of another kind, or one that cannot be read.
    Object(Arc<Value>),
}

impl Listed {
    /// Makes the row of an object that comes after `previous` in a list.
    pub(crate) fn read(
        source: &Source,
        object: Arc<Value>,
        parsed: &RecentlyParsed,
        previous: Option<&Self>,
    ) -> Self {
        let previous = previous.map(|listed| &listed.content);
        let row = match source {
            Source::ResourceBindings | Source::ClusterResourceBindings => {
                Binding::read(&object).ok().map(|mut row| {
                    if let Some(Content::Binding(previous)) = previous {
                        row.share(previous);
                    }
                    Content::Binding(Box::new(row))
                })
            }
            Source::Templates(kind) => Template::read(kind, &object, parsed).ok().map(|mut row| {
                if let Some(Content::Template(previous)) = previous {
                    row = row.beside(previous);
                }
                Content::Template(Box::new(row))
            }),
            _ => None,
        };
        let mut listed = Self::from(object);
        if let Some(row) = row {
            listed.content = row;
        }
        listed
    }

    /// Its version.
    pub(crate) fn resource_version(&self) -> Option<&str> {
        match &self.content {
            Content::Binding(row) => Some(row.resource_version()),
            Content::Template(row) => Some(&row.resource_version),
            Content::Object(object) => version_of(object),
        }
    }
}

impl From<Arc<Value>> for Listed {
    fn from(object: Arc<Value>) -> Self {
        let uid = uid_of(&object).map(str::to_owned);
        let changed = authors::last_change(&object);
        Self { name: name_of(&object), uid, changed, content: Content::Object(object) }
    }
}
