//! Objects of a list on their way to the tables. The list of all bindings or templates of a large hub is kept as text: as
//! trees it would take ten times the memory, once for each start and each interrupted watch.

use std::sync::Arc;

use serde_json::Value;

use super::secondary::name_of;
use super::template::has_fraction;

/// One object of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(super) name: (Option<String>, String),
    pub(super) uid: Option<String>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Text(Box<str>),
    Object(Arc<Value>),
}

impl Listed {
    /// An object that is kept as text until it enters the tables; but for one with a fraction, which may change in its last
    /// bit when it is printed and parsed, while a watch delivers it unchanged.
    pub(crate) fn packed(object: Arc<Value>) -> Self {
        let text = (!has_fraction(&object)).then(|| object.to_string());
        let mut listed = Self::from(object);
        if let Some(text) = text {
            listed.content = Content::Text(text.into());
        }
        listed
    }

    /// The object.
    pub(super) fn object(self) -> Arc<Value> {
        match self.content {
            // It was written from a value, so it can be parsed.
            Content::Text(text) => Arc::new(serde_json::from_str(&text).unwrap_or_default()),
            Content::Object(object) => object,
        }
    }
}

impl From<Arc<Value>> for Listed {
    fn from(object: Arc<Value>) -> Self {
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        Self { name: name_of(&object), uid, content: Content::Object(object) }
    }
}
