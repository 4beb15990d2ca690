//! Every namespace has a ServiceAccount named `default`.

use serde_json::json;

use crate::engine::brain::View;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::{Plan, Write};

/// Reconciles a namespace.
pub(crate) fn reconcile(view: &View<'_>, namespace: &Object) -> Plan {
    let key = Key::new(&namespace.key.name, "default");
    if namespace.is_deleting() || view.index.get(Kind::ServiceAccount, &key).is_some() {
        return Plan::default();
    }
    Plan::of([Write::create(Kind::ServiceAccount, key, json!({}), json!({}))])
}
