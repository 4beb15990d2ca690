//! What no override may change: the identity of the object, Atoll's marks, and what the division of replicas decides.

use atoll_api::marks;
use serde_json::Value;

/// Pointers to the fields that identify an object.
const IDENTITY: [(&str, &str); 4] = [
    ("/apiVersion", "apiVersion"),
    ("/kind", "kind"),
    ("/metadata/name", "metadata.name"),
    ("/metadata/namespace", "metadata.namespace"),
];
/// Pointers to the fields that division sets, in the kinds of Kubernetes.
const DIVIDED: [(&str, &str); 3] = [
    ("/spec/replicas", "spec.replicas"),
    ("/spec/parallelism", "spec.parallelism"),
    ("/spec/completions", "spec.completions"),
];
/// Set by division if a WorkloadSpread numbers the Pods of a StatefulSet.
const ORDINALS: (&str, &str) = ("/spec/ordinals/start", "spec.ordinals.start");
/// Maps with Atoll's marks.
const MARKED: [&str; 2] = ["labels", "annotations"];

/// What is decided outside overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Division {
    /// The replicas are divided among members, so that replicas, parallelism and completions cannot be overridden.
    pub replicas: bool,
    /// The members have disjoint ordinals, so that the first ordinal cannot be overridden.
    pub ordinals: bool,
}

/// The protected fields before the overrides.
pub(super) struct Guard {
    identity: [Option<Value>; 4],
    /// Atoll's marks on the object: map, key and value.
    marks: Vec<(&'static str, String, Value)>,
    divided: Vec<(&'static str, &'static str, Option<Value>)>,
    /// Replicas of a kind whose field is not in [`DIVIDED`].
    replicas: Option<i64>,
    division: Division,
}

impl Guard {
    pub(super) fn new(manifest: &Value, division: Division) -> Self {
        let fields = DIVIDED.iter().filter(|_| division.replicas);
        let fields = fields.chain(Some(&ORDINALS).filter(|_| division.ordinals));
        Self {
            identity: IDENTITY.map(|(pointer, _)| manifest.pointer(pointer).cloned()),
            marks: own_marks(manifest)
                .map(|(map, key, value)| (map, key.clone(), value.clone()))
                .collect(),
            divided: fields
                .map(|(pointer, name)| (*pointer, *name, manifest.pointer(pointer).cloned()))
                .collect(),
            replicas: atoll_interpreter::replicas(manifest).filter(|_| division.replicas),
            division,
        }
    }

    /// Fails if a change of a field below `first` changed something protected.
    pub(super) fn check(&self, manifest: &Value, first: &str) -> Result<(), String> {
        match first {
            "apiVersion" | "kind" => self.identity(manifest),
            "metadata" => {
                self.identity(manifest)?;
                self.marks(manifest)
            }
            "spec" => self.division(manifest),
            _ => Ok(()),
        }
    }

    fn identity(&self, manifest: &Value) -> Result<(), String> {
        for ((pointer, name), before) in IDENTITY.iter().zip(&self.identity) {
            if manifest.pointer(pointer) != before.as_ref() {
                return Err(format!("{name} identifies the object and cannot be overridden"));
            }
        }
        Ok(())
    }

    /// Removed marks are no problem: those that matter are set after the overrides.
    fn marks(&self, manifest: &Value) -> Result<(), String> {
        for (map, key, value) in own_marks(manifest) {
            let known = |(m, k, v): &(&str, String, Value)| *m == map && k == key && v == value;
            if !self.marks.iter().any(known) {
                return Err(format!("metadata.{map}[{key:?}] is a mark that only Atoll sets"));
            }
        }
        Ok(())
    }

    fn division(&self, manifest: &Value) -> Result<(), String> {
        let decided = |name: &str| {
            format!(
                "{name} is decided by the division of replicas and cannot be overridden: use weights in the \
                 placement, or replicaSchedulingType Duplicated"
            )
        };
        for (pointer, name, before) in &self.divided {
            if manifest.pointer(pointer) != before.as_ref() {
                return Err(decided(name));
            }
        }
        if self.division.replicas && atoll_interpreter::replicas(manifest) != self.replicas {
            return Err(decided("the field with the replicas"));
        }
        Ok(())
    }
}

fn own_marks(manifest: &Value) -> impl Iterator<Item = (&'static str, &String, &Value)> {
    let metadata = manifest.get("metadata");
    MARKED.into_iter().flat_map(move |map| {
        let entries = metadata.and_then(|metadata| metadata.get(map)?.as_object());
        let own = entries.into_iter().flatten().filter(|(key, _)| marks::is_own(key));
        own.map(move |(key, value)| (map, key, value))
    })
}
