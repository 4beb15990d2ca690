//! Checks objects against the schemas of their kinds and reports what Atoll would ignore.

use std::collections::BTreeMap;

use atoll_convert::without_indices;
use atoll_merge::schema::{self, FieldReason, Schema};
use serde_json::Value;

/// A field or value that would have no effect, or that the kind does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The field, `spec.list[0].name`; empty for the whole object.
    pub(crate) path: String,
    /// The problem and the fix.
    pub(crate) text: String,
    /// Whether the field or kind is unknown, as opposed to an invalid value.
    unknown: bool,
}

/// Fields of Karmada's Clusters that describe how to reach a member; Atoll's agents need none.
const KARMADA_CLUSTER: [&str; 9] = [
    "spec.apiEndpoint",
    "spec.id",
    "spec.impersonatorSecretRef",
    "spec.insecureSkipTLSVerification",
    "spec.proxyHeader",
    "spec.proxyURL",
    "spec.secretRef",
    "spec.syncMode",
    "spec.zone",
];
/// Fields in bindings that Karmada's controllers use among themselves.
const KARMADA_BINDING: [&str; 9] = [
    "spec.components",
    "spec.gracefulEvictionTasks[].clustersBeforeFailover",
    "spec.gracefulEvictionTasks[].gracePeriodSeconds",
    "spec.gracefulEvictionTasks[].message",
    "spec.gracefulEvictionTasks[].preservedLabelState",
    "spec.gracefulEvictionTasks[].producer",
    "spec.gracefulEvictionTasks[].suppressDeletion",
    "spec.requiredBy[].clusters[].replicas",
    "spec.scheduleResult",
];

/// Fields of a scheduling case. `expect` is the answer that a test expects; it is ignored here.
const CASE: [&str; 10] = [
    "binding",
    "clusters",
    "expect",
    "id",
    "now",
    "otherBindings",
    "policy",
    "workload",
    "workloadPolicies",
    "workloadSpreads",
];

/// The schemas of all known kinds.
pub(crate) struct Schemas {
    /// Schemas of Atoll's kinds, by the first label of their group (`policy`) and their kind.
    own: BTreeMap<(String, String), Schema>,
}

/// The origin of an object, by its group.
enum Origin<'a> {
    /// A kind of Atoll, or of Karmada or Kosmos with the same fields; with the first label of its group.
    Own(&'a str),
    Kubernetes,
    /// A user's custom resource: only its metadata is known.
    Custom,
}

impl Schemas {
    /// Loads the schemas of Atoll's CRDs; those of Kubernetes are compiled in.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let mut own = BTreeMap::new();
        for crd in atoll_api::crds::all() {
            let group = crd.spec.group.split('.').next().unwrap_or_default().to_owned();
            let schema = Schema::from_openapi(&atoll_api::crds::full_schema(&crd))?;
            own.insert((group, crd.spec.names.kind), schema);
        }
        Ok(Self { own })
    }

    /// Problems of an object that has an apiVersion and a kind.
    pub(crate) fn problems(&self, object: &Value) -> Vec<Problem> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version.is_empty() || kind.is_empty() {
            return Vec::new();
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        match origin(group) {
            Origin::Own(short) => {
                let Some(schema) = self.own.get(&(short.to_owned(), kind.to_owned())) else {
                    return vec![self.unknown_kind(api_version, kind)];
                };
                let mut problems = check(object, schema, short == "policy");
                let foreign = !group.ends_with(".atoll.dev");
                problems.retain(|problem| !is_karmadas(kind, &problem.path, foreign));
                problems
            }
            Origin::Kubernetes => match Schema::builtin(group, version, kind) {
                Some(schema) => check(object, &schema, false),
                None if schema::builtin_kinds()
                    .any(|(known, name)| known == group && name == kind) =>
                {
                    // Another version of a known kind may have other fields.
                    check(object, &Schema::deduced(), false)
                }
                None => vec![self.unknown_kind(api_version, kind)],
            },
            Origin::Custom => check(object, &Schema::deduced(), false),
        }
    }

    /// Checks that every field of a scheduling case (a line of a batch) is known.
    ///
    /// # Errors
    /// Names the unknown fields.
    pub(crate) fn check_case(&self, case: &Value) -> Result<(), String> {
        let mut problems = Vec::new();
        for (name, value) in case.as_object().into_iter().flatten() {
            self.check_part(name, value, &mut problems);
        }
        let text: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.path, p.text)).collect();
        if text.is_empty() { Ok(()) } else { Err(text.join("; ")) }
    }

    fn check_part(&self, name: &str, value: &Value, problems: &mut Vec<Problem>) {
        let each = || value.as_array().into_iter().flatten().enumerate();
        let mut list = |group: &str, kind: &str| {
            for (at, object) in each() {
                self.check_as(group, kind, &format!("{name}[{at}]"), object, problems);
            }
        };
        match name {
            "clusters" => list("cluster", "Cluster"),
            "workloadPolicies" => list("policy", "WorkloadPolicy"),
            "workloadSpreads" => list("policy", "WorkloadSpread"),
            "binding" => self.check_as("work", "ResourceBinding", name, value, problems),
            "policy" => self.check_as("policy", "PropagationPolicy", name, value, problems),
            "workload" => add(name, self.unknowns(value), problems),
            "otherBindings" => {
                for (at, entry) in each() {
                    let path = format!("{name}[{at}]");
                    match entry.get("binding") {
                        None => self.check_as("work", "ResourceBinding", &path, entry, problems),
                        Some(binding) => {
                            let inner = format!("{path}.binding");
                            self.check_as("work", "ResourceBinding", &inner, binding, problems);
                            let workload = self.unknowns(&entry["workload"]);
                            add(&format!("{path}.workload"), workload, problems);
                        }
                    }
                }
            }
            _ if CASE.contains(&name) => {}
            _ => {
                let text = unknown(name, CASE.into_iter());
                problems.push(Problem { path: name.to_owned(), text, unknown: true });
            }
        }
    }

    /// Unknown fields of an object. Invalid values are reported by the code that reads them.
    fn unknowns(&self, object: &Value) -> Vec<Problem> {
        let mut problems = self.problems(object);
        problems.retain(|problem| problem.unknown);
        problems
    }

    /// Checks an object whose kind follows from its position.
    fn check_as(&self, group: &str, kind: &str, at: &str, object: &Value, to: &mut Vec<Problem>) {
        let Some(schema) = self.own.get(&(group.to_owned(), kind.to_owned())) else { return };
        let mut problems = unknown_fields(object, schema);
        problems.retain(|problem| !is_karmadas(kind, &problem.path, true));
        add(at, problems, to);
    }

    fn unknown_kind(&self, api_version: &str, kind: &str) -> Problem {
        let own = self.own.keys().map(|(_, kind)| kind.as_str());
        let known = own.chain(schema::builtin_kinds().map(|(_, kind)| kind));
        let hint = match nearest(kind, known) {
            Some(near) => format!("did you mean {near}?"),
            None => "Atoll and Kubernetes have no such kind; remove the object".to_owned(),
        };
        Problem {
            path: "kind".to_owned(),
            text: format!("unknown kind {kind:?} of {api_version}; {hint}"),
            unknown: true,
        }
    }
}

/// Adds the problems of an object at this path.
fn add(at: &str, found: Vec<Problem>, problems: &mut Vec<Problem>) {
    let below = |p: Problem| Problem { path: format!("{at}.{}", p.path), ..p };
    problems.extend(found.into_iter().map(below));
}

fn origin(group: &str) -> Origin<'_> {
    let own = group.strip_suffix(".atoll.dev").or_else(|| group.strip_suffix(".karmada.io"));
    match (own, group) {
        (Some(short), _) => Origin::Own(short),
        (None, "kosmos.io") => Origin::Own("policy"),
        (None, group) if schema::builtin_kinds().any(|(known, _)| known == group) => {
            Origin::Kubernetes
        }
        (None, _) => Origin::Custom,
    }
}

/// Unknown fields and values of the wrong type; for objects written by users (`whole`) also missing fields and unknown
/// enum values. The linter and the API server check limits of values.
fn check(object: &Value, schema: &Schema, whole: bool) -> Vec<Problem> {
    let mut problems = unknown_fields(object, schema);
    let mut object = object.clone();
    // Removes nulls, which every decoder treats as absent.
    schema::default(&mut object, schema);
    let wrong = schema::validate(&object, schema).into_iter().filter(|error| match error.reason {
        FieldReason::Type => true,
        FieldReason::Required | FieldReason::NotSupported => whole,
        _ => false,
    });
    problems.extend(wrong.map(|error| Problem {
        path: error.path,
        text: error.message,
        unknown: false,
    }));
    problems
}

fn unknown_fields(object: &Value, schema: &Schema) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(object, schema, &mut Vec::new(), &mut problems);
    problems
}

/// One step of the path to a field. Paths become text only for problems.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

fn written(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.extend([".", name]),
            Step::Item(at) => text.push_str(&format!("[{at}]")),
        }
    }
    text
}

fn walk<'a>(
    value: &'a Value,
    schema: &Schema,
    path: &mut Vec<Step<'a>>,
    problems: &mut Vec<Problem>,
) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(Step::Field(name));
                match schema.property(name) {
                    Some(schema) => walk(value, schema, path, problems),
                    None => {
                        let text = unknown(name, schema.properties().map(|(name, _)| name));
                        problems.push(Problem { path: written(path), text, unknown: true });
                    }
                }
                path.pop();
            }
        }
        Value::Array(items) => {
            let schema = schema.items().unwrap_or(schema);
            for (at, item) in items.iter().enumerate() {
                path.push(Step::Item(at));
                walk(item, schema, path, problems);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The message for an unknown field.
fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown field; did you mean {near:?}?"),
        None => "unknown field".to_owned(),
    }
}

/// Whether a field is one of Karmada's that no decision needs. The status of Karmada's own objects is a report with
/// whatever its controllers write.
fn is_karmadas(kind: &str, path: &str, foreign: bool) -> bool {
    let general = without_indices(path);
    match kind {
        "Cluster" if KARMADA_CLUSTER.contains(&general.as_str()) => true,
        "ResourceBinding" | "ClusterResourceBinding"
            if KARMADA_BINDING.contains(&general.as_str()) =>
        {
            true
        }
        _ => foreign && (general == "status" || general.starts_with("status.")),
    }
}

/// The known name that a wrong one was probably meant to be.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // One typo in a short name, one more for every four letters.
    let most = 1 + given.chars().count() / 4;
    let lower = given.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= most && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(object: &Value) -> Vec<String> {
        let problems = Schemas::load().unwrap().problems(object);
        problems.into_iter().map(|p| format!("{}: {}", p.path, p.text)).collect()
    }

    #[test]
    fn unknown_fields_and_kinds_are_named_with_what_was_meant() {
        let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "p", "lables": {}}, "spec": {"resourceSelectors": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "nam": "web"}],
                "placment": {}}});
        assert_eq!(
            of(&policy),
            [
                "metadata.lables: unknown field; did you mean \"labels\"?",
                "spec.placment: unknown field; did you mean \"placement\"?",
                "spec.resourceSelectors[0].nam: unknown field; did you mean \"name\"?",
            ]
        );
        let kind = |api_version: &str, kind: &str| {
            of(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}))
        };
        for (api_version, wrong, near) in [
            ("policy.atoll.dev/v1alpha1", "PropagationPolcy", "did you mean PropagationPolicy?"),
            ("apps/v1", "Deploymnet", "did you mean Deployment?"),
            ("policy.karmada.io/v1alpha1", "Remedy", "remove the object"),
        ] {
            let said = kind(api_version, wrong);
            assert!(said.len() == 1 && said[0].contains(near), "{said:?}");
        }
        assert_eq!(kind("example.com/v1", "Anything"), [""; 0], "the user's own kinds");
        assert_eq!(kind("autoscaling/v1", "HorizontalPodAutoscaler"), [""; 0], "another version");
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"}, "spec": {"replica": 3, "replicas": "4"}});
        let said = of(&workload);
        assert!(
            said[0].starts_with("spec.replica: unknown field; did you mean \"replicas\""),
            "{said:?}"
        );
        assert!(said.iter().any(|text| text.starts_with("spec.replicas: ")), "{said:?}");
    }

    /// API servers do not check them, because the controller copies them from a policy.
    #[test]
    fn fields_of_a_bindings_placement_are_checked_in_files_and_cases() {
        let spec = json!({"placement": {"spreadConstraint": [], "replicaScheduling": 3}});
        let binding = json!({"apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": "b", "namespace": "shop"}, "spec": spec});
        let unknown =
            "spec.placement.spreadConstraint: unknown field; did you mean \"spreadConstraints\"?";
        let said = of(&binding);
        assert_eq!(said[0], unknown);
        assert!(said[1].starts_with("spec.placement.replicaScheduling: "), "{said:?}");
        let case = Schemas::load().unwrap().check_case(&json!({"binding": {"spec": spec}}));
        assert_eq!(case.unwrap_err(), format!("binding.{unknown}"));
    }

    #[test]
    fn what_karmada_writes_for_itself_is_no_mistake() {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m"}, "spec": {"syncMode": "Push", "apiEndpoint": "https://x", "tiants": []},
            "status": {"remedyActions": []}});
        assert_eq!(of(&cluster), ["spec.tiants: unknown field; did you mean \"taints\"?"]);
    }
}
