//! The form of the rules of a third-party kind.

use super::projects;

/// The rules of one kind. Paths are those of [`super::path`].
#[derive(Debug)]
pub(crate) struct Rules {
    /// API group.
    pub(crate) group: &'static str,
    /// Kind.
    pub(crate) kind: &'static str,
    /// The field of the spec with the replicas that may be divided.
    pub(crate) replicas: Option<&'static str>,
    /// Paths of the pod templates.
    pub(crate) templates: &'static [&'static str],
    /// Paths of pod specs that are not part of a template.
    pub(crate) pod_specs: &'static [&'static str],
    /// Objects that the object names.
    pub(crate) references: &'static [Reference],
    /// How its health is judged.
    pub(crate) health: HealthRule,
    /// Integers of the status that add up over members.
    pub(crate) counts: &'static [&'static str],
    /// A word of the status, of which the first in the order of precedence counts.
    pub(crate) phase: Option<Phase>,
    /// Fields of the status that are sent, beside the conditions and the observed generation; empty = all.
    pub(crate) reflect: &'static [&'static str],
    /// Its parts with pod templates of their own.
    pub(crate) components: Components,
}

/// A row without any rule, to build others on.
pub(crate) const NONE: Rules = Rules {
    group: "",
    kind: "",
    replicas: None,
    templates: &[],
    pod_specs: &[],
    references: &[],
    health: HealthRule::Exists,
    counts: &[],
    phase: None,
    reflect: &[],
    components: Components::None,
};

/// Objects that an object names.
#[derive(Debug)]
pub(crate) enum Reference {
    /// The kind is fixed, the path leads to names.
    Named(&'static str, &'static str),
    /// The path leads to maps with `kind` (ConfigMap or Secret) and `name`.
    Typed(&'static str),
}

/// How health is judged. Every rule first waits until the controller has observed the current generation, if it
/// reports what it observed.
#[derive(Debug)]
pub(crate) enum HealthRule {
    /// It is healthy when it exists.
    Exists,
    /// All counts of pods reach their desired numbers.
    Counts(&'static [Count]),
    /// A condition is true.
    Condition(&'static str),
    /// A word of the status.
    Phase {
        /// Path of the word.
        path: &'static str,
        /// Words of a healthy object.
        healthy: &'static [&'static str],
        /// Words of a failed one. All others mean that it is in progress.
        failed: &'static [&'static str],
    },
    /// Conditions of a job: true ones decide, failures first.
    Job {
        /// Conditions of a failed job.
        failed: &'static [&'static str],
        /// Conditions of a healthy one.
        healthy: &'static [&'static str],
    },
}

/// A count of pods and the number that it must reach.
#[derive(Debug)]
pub(crate) struct Count {
    /// Path of the count.
    pub(crate) path: &'static str,
    /// Its name in messages; `updated` means a rollout.
    pub(crate) name: &'static str,
    /// Paths of the desired number; the first that exists counts.
    pub(crate) desired: &'static [&'static str],
    /// Path of the number of pods that keep the old template intentionally (a partition); empty = none.
    pub(crate) kept: &'static str,
}

/// A word of the status that is combined over members.
#[derive(Debug)]
pub(crate) struct Phase {
    /// Path within the status.
    pub(crate) path: &'static [&'static str],
    /// Words in order of precedence. A member that has not reported counts as `waiting`.
    pub(crate) order: &'static [&'static str],
    /// The word of a member that has not reported.
    pub(crate) waiting: &'static str,
}

/// The parts of an object that have pod templates of their own.
#[derive(Debug)]
pub(crate) enum Components {
    /// None.
    None,
    /// A list of parts with `name`, `replicas` and a template.
    List {
        /// Path of the list's items.
        items: &'static str,
        /// Field with the name, and the prefix of the name of an item without one.
        name: (&'static str, &'static str),
        /// Path of the template within an item.
        template: &'static str,
    },
    /// A map from the role to `replicas` and `template`.
    Map(&'static str),
    /// A Flink deployment.
    Flink,
    /// A Ray cluster at this path.
    Ray(&'static str),
    /// A Spark application.
    Spark,
}

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Rules> {
    projects::ALL.iter().flat_map(|project| project.iter())
}
