//! The kinds that ship with Kubernetes, from the table in `builtin.txt`.
//!
//! The table states facts of the published API (field types and list types as in client-go's apply
//! configurations, merge keys as in the struct tags of k8s.io/api), one type a line, continued on
//! indented lines:
//!
//! ```text
//! @apps/v1 Deployment spec:DeploymentSpec     a kind: its apiVersion comes first
//! LabelSelector! matchLabels:{s}              `!`: an object that is one value (map-type atomic)
//! ```
//!
//! Field types: `s` string, `i` integer, `b` boolean, `o` int-or-string, `q` quantity, `t` time, `*`
//! anything, `!` anything as one value, `[T]` atomic list, `[T]set`, `[T](k1,k2)` list told apart by
//! keys, `{T}` map, `{T}!` atomic map, or the name of a type. After the type: `=value` default, `~key`
//! strategic merge by that key, `~` of scalars, `~!` strategic merge replaces.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use serde_json::Value;

use super::{ListType, Node, PatchRule, Schema, Type, Unknown};

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("builtin.txt")));

struct Table {
    types: BTreeMap<&'static str, Line>,
    /// Maps `apiVersion kind` to the name of the type.
    kinds: BTreeMap<(&'static str, &'static str), &'static str>,
}

/// A type whose schema is built on first use.
struct Line {
    atomic: bool,
    fields: Vec<(&'static str, &'static str)>,
    schema: OnceLock<Schema>,
}

pub(super) fn lookup(group: &str, version: &str, kind: &str) -> Option<Schema> {
    let joined;
    let api_version = if group.is_empty() {
        version
    } else {
        joined = format!("{group}/{version}");
        &joined
    };
    let key = TABLE.kinds.keys().find(|(v, k)| *v == api_version && *k == kind)?;
    Some(TABLE.schema(TABLE.kinds[key]))
}

/// Group and kind of every row of the table.
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.kinds.keys().map(|(api_version, kind)| {
        (api_version.rsplit_once('/').map_or("", |(group, _)| group), *kind)
    })
}

pub(super) fn object_meta() -> Schema {
    TABLE.schema("ObjectMeta")
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let mut table = Self { types: BTreeMap::new(), kinds: BTreeMap::new() };
        let mut current = "";
        for row in text.lines() {
            let mut words = row.split_whitespace().peekable();
            if !row.starts_with(' ') {
                let api_version = words.next_if(|w| w.starts_with('@'));
                let head = words.next().unwrap_or_default();
                current = head.trim_end_matches('!');
                if let Some(version) = api_version {
                    let kind = current.rsplit('.').next().unwrap_or(current);
                    table.kinds.insert((&version[1..], kind), current);
                }
                let atomic = head.ends_with('!');
                let line = Line { atomic, fields: Vec::new(), schema: OnceLock::new() };
                table.types.insert(current, line);
            }
            if let Some(line) = table.types.get_mut(current) {
                line.fields.extend(words.filter_map(|w| w.split_once(':')));
            }
        }
        table
    }

    fn schema(&self, name: &str) -> Schema {
        // A missing name is a mistake in the table; a test checks for that.
        let Some(line) = self.types.get(name) else { return Schema::untyped().clone() };
        let build = || {
            let fields = line.fields.iter();
            let properties = fields.map(|(name, spec)| ((*name).to_owned(), self.field(spec)));
            Node {
                kind: Type::Object,
                properties: properties.collect(),
                atomic_map: line.atomic,
                ..Node::default()
            }
            .into()
        };
        line.schema.get_or_init(build).clone()
    }

    fn field(&self, spec: &str) -> Schema {
        let (spec, patch) = match spec.split_once('~') {
            None => (spec, PatchRule::Usual),
            Some((spec, "!")) => (spec, PatchRule::Replace),
            Some((spec, "")) => (spec, PatchRule::MergeItems(None)),
            Some((spec, key)) => (spec, PatchRule::MergeItems(Some(key.to_owned()))),
        };
        let (spec, default) = match spec.split_once('=') {
            None => (spec, None),
            Some((spec, text)) => (spec, Some(default_value(text))),
        };
        if patch == PatchRule::Usual && default.is_none() {
            return self.value(spec);
        }
        let plain = self.value(spec);
        let node = plain.node();
        Node {
            kind: node.kind,
            nullable: node.nullable,
            properties: node.properties.clone(),
            unknown: node.unknown.clone(),
            items: node.items.clone(),
            list: node.list.clone(),
            atomic_map: node.atomic_map,
            default,
            patch,
            ..Node::default()
        }
        .into()
    }

    fn value(&self, spec: &str) -> Schema {
        let scalar = |kind| Node { kind, ..Node::default() }.into();
        match spec {
            "s" | "t" => scalar(Type::String),
            "i" => scalar(Type::Integer),
            "b" => scalar(Type::Boolean),
            "o" => scalar(Type::IntOrString),
            "q" => scalar(Type::Quantity),
            "*" => Schema::untyped().clone(),
            "!" => {
                Node { nullable: true, unknown: Unknown::Kept, atomic_map: true, ..Node::default() }
                    .into()
            }
            _ => match spec.as_bytes()[0] {
                b'[' => self.list(spec),
                b'{' => self.map(spec),
                _ => self.schema(spec),
            },
        }
    }

    fn list(&self, spec: &str) -> Schema {
        let (items, suffix) = spec[1..].rsplit_once(']').unwrap_or((&spec[1..], ""));
        let list = match suffix {
            "" => ListType::Atomic,
            "set" => ListType::Set,
            keys => {
                let keys = keys.trim_start_matches('(').trim_end_matches(')');
                ListType::Map(keys.split(',').map(str::to_owned).collect())
            }
        };
        Node { kind: Type::Array, items: Some(self.value(items)), list, ..Node::default() }.into()
    }

    fn map(&self, spec: &str) -> Schema {
        let (values, suffix) = spec[1..].rsplit_once('}').unwrap_or((&spec[1..], ""));
        Node {
            kind: Type::Object,
            unknown: Unknown::Values(self.value(values)),
            atomic_map: suffix == "!",
            ..Node::default()
        }
        .into()
    }
}

fn default_value(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{default, prune};

    #[test]
    fn every_type_that_the_table_names_is_in_it() {
        for (name, line) in &TABLE.types {
            assert!(
                !line.fields.is_empty() || name.starts_with("Workload"),
                "{name} has no fields"
            );
            for (field, spec) in &line.fields {
                let spec = spec.split(['~', '=']).next().unwrap();
                let spec = spec.trim_start_matches(['[', '{']);
                let inner = spec.split([']', '}']).next().unwrap();
                let scalar = ["s", "t", "i", "b", "o", "q", "*", "!"].contains(&inner);
                assert!(scalar || TABLE.types.contains_key(inner), "{name}.{field}: {inner}");
            }
        }
    }

    #[test]
    fn kinds_are_found_by_group_and_version() {
        for (group, version, kind) in [
            ("", "v1", "Service"),
            ("apps", "v1", "Deployment"),
            ("autoscaling", "v1", "HorizontalPodAutoscaler"),
            ("autoscaling", "v2", "HorizontalPodAutoscaler"),
            ("events.k8s.io", "v1", "Event"),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ] {
            let schema = Schema::builtin(group, version, kind).expect(kind);
            assert!(schema.property("metadata").is_some(), "{kind}");
        }
        assert!(Schema::builtin("apps", "v1", "Pod").is_none());
        assert!(Schema::builtin("", "v1", "Deployment").is_none());
    }

    #[test]
    fn pod_template_lists_have_their_keys_and_defaults() {
        let schema = Schema::builtin("apps", "v1", "Deployment").unwrap();
        let at = |path: &str| {
            path.split('.').fold(schema.clone(), |s, name| {
                let items = s.items().cloned();
                items.unwrap_or(s).property(name).expect(path).clone()
            })
        };
        let containers = at("spec.template.spec.containers");
        assert_eq!(*containers.list_type(), ListType::Map(vec!["name".into()]));
        let ports = at("spec.template.spec.containers.ports");
        assert_eq!(ports.node().patch, PatchRule::MergeItems(Some("containerPort".into())));
        assert_eq!(*at("metadata.finalizers").list_type(), ListType::Set);
        assert!(at("spec.selector").node().atomic_map);

        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
            "containers": [{"name": "a", "prots": 1, "ports": [{"containerPort": 80}]}],
        }, "metadata": {"creationTimestamp": null}});
        let pod_schema = Schema::builtin("", "v1", "Pod").unwrap();
        assert_eq!(prune(&mut pod, &pod_schema), ["spec.containers[0].prots"]);
        default(&mut pod, &pod_schema);
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(pod["metadata"], json!({}));
    }
}
