//! Kinds as discovery, OpenAPI documents and tables show them.

use std::{borrow::Cow, collections::BTreeSet};

use atoll_apimachinery::{
    kind::{KindNames, KindSchema, ServedKind, Subresource},
    meta,
    read_only::Column,
};
use atoll_merge::schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    kind::{Kind, Origin},
    merge_keys,
};
use crate::crd;

/// Verbs of stored kinds, in discovery's order.
const STORED_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const REVIEW_VERBS: &[&str] = &["create"];

/// The subresources of a kind besides `/status` and `/scale`: (name, group, version, kind).
pub(crate) fn subresources(
    kind: &Kind,
) -> &'static [(&'static str, &'static str, &'static str, &'static str)] {
    if kind.is("", "Pod") {
        &[
            ("attach", "", "v1", "PodAttachOptions"),
            ("binding", "", "v1", "Binding"),
            ("eviction", "policy", "v1", "Eviction"),
            ("exec", "", "v1", "PodExecOptions"),
            ("log", "", "v1", "Pod"),
            ("portforward", "", "v1", "PodPortForwardOptions"),
        ]
    } else if kind.is("", "Namespace") {
        &[("finalize", "", "v1", "Namespace")]
    } else if kind.is("", "ServiceAccount") {
        &[("token", "authentication.k8s.io", "v1", "TokenRequest")]
    } else {
        &[]
    }
}

impl ServedKind for Kind {
    fn names(&self) -> &KindNames {
        &self.names
    }

    fn verbs(&self) -> &'static [&'static str] {
        match &self.origin {
            Origin::Builtin(b) if b.review => REVIEW_VERBS,
            Origin::Virtual(kind) => kind.verbs(),
            Origin::Builtin(_) | Origin::Custom(_) => STORED_VERBS,
        }
    }

    fn subresources(&self) -> Vec<Subresource> {
        let mut all = Vec::new();
        let mut add = |name, (group, version, kind): (&str, &str, &str), verbs| {
            let (group, version, kind) = (group.to_owned(), version.to_owned(), kind.to_owned());
            all.push(Subresource { name, group, version, kind, verbs });
        };
        if self.status {
            add("status", (&self.group, &self.version, &self.kind), &["get", "patch", "update"]);
        }
        if self.scale.is_some() {
            add("scale", ("autoscaling", "v1", "Scale"), &["get", "patch", "update"]);
        }
        for (name, group, version, kind) in subresources(self) {
            let verbs: &[&str] = match *name {
                "finalize" => &["update"],
                "log" => &["get"],
                "attach" | "exec" | "portforward" => &["create", "get"],
                _ => &["create"],
            };
            add(name, (group, version, kind), verbs);
        }
        all
    }

    fn openapi(&self) -> KindSchema<'_> {
        match &self.origin {
            Origin::Builtin(b) => KindSchema::Typed(b.openapi),
            Origin::Custom(custom) => KindSchema::Own(Cow::Borrowed(&custom.openapi)),
            Origin::Virtual(kind) => kind.openapi(),
        }
    }

    /// Adds what k8s-openapi lacks and kubectl needs.
    fn annotate(definitions: &mut Map<String, Value>, kinds: &[(String, &Self)]) {
        let mut annotated = BTreeSet::new();
        for (name, kind) in kinds {
            if let Some(fields) = Schema::builtin(&kind.group, &kind.version, &kind.kind) {
                merge_keys::annotate(definitions, name, &fields, &mut annotated);
            }
        }
    }

    fn columns(&self) -> Value {
        columns(self)
    }
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    let (format, description) = (format.to_owned(), description.to_owned());
    Column { name, kind, format, description, priority }.definition()
}

const NAME_HELP: &str =
    "Name must be unique within a namespace. It identifies the object and cannot be changed.";

/// `columnDefinitions` of a kind.
fn columns(kind: &Kind) -> Value {
    let name = || definition("Name", "string", "name", NAME_HELP, 0);
    match &kind.origin {
        Origin::Builtin(b) => b
            .printer
            .columns
            .iter()
            .map(|(heading, kind, priority)| match *heading {
                "Name" => definition("Name", "string", "name", NAME_HELP, *priority),
                other => definition(other, kind, "", other, *priority),
            })
            .collect(),
        Origin::Custom(custom) => std::iter::once(name())
            .chain(custom.columns.iter().map(|c| c.column.definition()))
            .collect(),
        Origin::Virtual(kind) => kind.columns(),
    }
}

/// The cells of one object.
pub(crate) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.origin {
        Origin::Builtin(b) => (b.printer.cells)(object, now),
        Origin::Custom(custom) => std::iter::once(Value::from(meta::name(object)))
            .chain(custom.columns.iter().map(|c| crd::columns::cell(c, object, now)))
            .collect(),
        Origin::Virtual(kind) => kind.cells(object, now),
    }
}
