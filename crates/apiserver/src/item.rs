//! Objects in answers.

use std::{borrow::Cow, sync::Arc};

use atoll_apimachinery::{response::encode, view};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    kinds::{Kind, served},
    store::Record,
};

/// An object for an answer.
#[derive(Clone)]
pub(crate) enum Item {
    /// From the store, in stored form.
    Stored(Arc<Record>),
    /// From anywhere else, in the form of the request's version.
    Plain(Arc<Value>),
}

impl Item {
    pub(crate) fn plain(value: Value) -> Self {
        Item::Plain(Arc::new(value))
    }
}

impl view::Item<Kind> for Item {
    fn value(&self, kind: &Kind) -> Arc<Value> {
        match self {
            Item::Stored(record) => {
                let stored = record.value();
                match kind.outgoing(&stored) {
                    Cow::Borrowed(_) => stored,
                    Cow::Owned(shown) => Arc::new(shown),
                }
            }
            Item::Plain(value) => value.clone(),
        }
    }

    fn json(&self, kind: &Kind) -> Bytes {
        match self {
            Item::Stored(record) if kind.shows_as_is(record.api_version()) => record.json().clone(),
            item => encode(&item.value(kind)),
        }
    }

    /// Cells are computed from the stored form, whose fields the kind's printer reads.
    fn cells(&self, kind: &Kind, now: Timestamp) -> Vec<Value> {
        match self {
            Item::Stored(record) => served::cells(kind, &record.value(), now),
            Item::Plain(value) => served::cells(kind, value, now),
        }
    }
}
