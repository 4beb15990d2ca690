//! Each mistake is reported under its field; sound policies have no findings.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

use atoll_api::ReservedNamespaces;
use atoll_scheduler::lint_policy::{Finding, Severity, world};
use atoll_scheduler::offline::{Document, World, documents};

const SOUND: &str = r"
kind: List
items:
- {apiVersion: cluster.atoll.dev/v1alpha1, kind: Cluster, metadata: {name: m1, labels: {tier: gold}}, spec: {region: north}}
- {apiVersion: cluster.atoll.dev/v1alpha1, kind: Cluster, metadata: {name: m2, labels: {tier: iron}}, spec: {region: south}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, labels: {app: web}}
  spec: {replicas: 4, template: {metadata: {labels: {app: web}}}}
";

fn found(text: &str) -> Vec<Finding> {
    let (documents, errors) = documents::read("test", &format!("{SOUND}---\n{text}"));
    assert!(errors.is_empty(), "{errors:?}");
    let mut all = World::default();
    documents.into_iter().for_each(|document: Document| all.add(document).unwrap());
    world(&all)
}

fn policy(placement: &str) -> Vec<Finding> {
    found(&format!(
        "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {{name: p}}\nspec:\n  \
         resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: web}}]\n  placement: {placement}\n"
    ))
}

#[test]
fn priority_classes_that_nobody_looks_up_are_named() {
    let with = |source: &str| {
        found(&format!(
            "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {{name: p}}\nspec:\n  \
             resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: web}}]\n  \
             schedulePriority: {{priorityClassSource: {source}, priorityClassName: gold}}\n"
        ))
    };
    assert_eq!(with("KubePriorityClass"), []);
    for source in ["FederatedPriorityClass", "PodPriorityClass"] {
        let field = "spec.schedulePriority.priorityClassSource";
        one(&with(source), Severity::Error, field, &format!("{source} is not supported"));
    }
}

#[test]
fn requests_that_cannot_be_counted_are_named_with_their_value() {
    for (cpu, replicas, problem) in [
        ("1e30", 1, "quantity 1e30 is too large"),
        ("1e99", 1, "quantity \"1e99\" is out of range"),
        ("9e12", 1_000_000, "quantity 9000000000000 for each of 1000000 replicas"),
        ("-1", 1, "quantity -1 is negative"),
    ] {
        let findings = found(&format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: big}}\nspec:\n  replicas: {replicas}\n  \
             template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}\n"
        ));
        one(&findings, Severity::Error, "replicaRequirements.resourceRequest.cpu", problem);
    }
}

/// The only finding for a field.
fn one(findings: &[Finding], severity: Severity, field: &str, problem: &str) {
    let hits = findings.iter().filter(|finding| {
        finding.severity == severity
            && finding.field == field
            && finding.problem.contains(problem)
            && !finding.fix.is_empty()
    });
    assert_eq!(hits.count(), 1, "{severity:?} {field} {problem:?} in {findings:#?}");
}

#[test]
fn sound_policies_are_left_alone() {
    assert_eq!(found(""), []);
    for placement in [
        "{}",
        "{clusterAffinity: {clusterNames: [m1, m2]}, replicaScheduling: {replicaSchedulingType: Divided}}",
        "{clusterTolerations: [{operator: Exists}, {key: a, effect: NoExecute, tolerationSeconds: 5}]}",
        "{spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}]}",
        "{replicaScheduling: {replicaSchedulingType: Divided, bounds: [{targetCluster: {clusterNames: [m1]}, min: 1, max: 3}]}}",
        "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [north]}]}}}",
    ] {
        assert_eq!(policy(placement), [], "{placement}");
    }
}

#[test]
fn placements_that_cannot_be_are_named_with_field_and_fix() {
    use Severity::{Error, Warning};
    let list =
        "replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: ";
    let bounds = "replicaScheduling: {replicaSchedulingType: Divided, bounds: ";
    for (placement, severity, field, problem) in [
        (
            "clusterAffinity: {clusterNames: [m1], exclude: [m1]}",
            Error,
            "clusterAffinity.exclude",
            "excludes every cluster",
        ),
        (
            "clusterAffinity: {clusterNames: [m9]}",
            Error,
            "clusterAffinity",
            "none of the 2 clusters",
        ),
        (
            "clusterAffinity: {clusterNames: [m1, m9]}",
            Warning,
            "clusterAffinity.clusterNames",
            "no Cluster \"m9\"",
        ),
        (
            "clusterAffinity: {labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}",
            Error,
            "clusterAffinity.labelSelector",
            "can never match",
        ),
        (
            "clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}",
            Error,
            "clusterAffinity.labelSelector",
            "must exist and must not",
        ),
        (
            "clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Near}]}}",
            Error,
            "placement.clusterAffinity.labelSelector",
            "Near",
        ),
        (
            "clusterAffinities: [{affinityName: a, clusterNames: [m1]}, {affinityName: b, clusterNames: [m1]}]",
            Warning,
            "clusterAffinities[1]",
            "never used",
        ),
        (
            "clusterAffinities: [{affinityName: a}, {affinityName: a, clusterNames: [m1]}]",
            Error,
            "clusterAffinities[1].affinityName",
            "earlier term",
        ),
        (
            "spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 2}]",
            Error,
            "spreadConstraints[0]",
            "above",
        ),
        (
            "spreadConstraints: [{spreadByField: region, minGroups: 3}]",
            Error,
            "spreadConstraints[0].minGroups",
            "clusters form 2",
        ),
        (
            "spreadConstraints: [{spreadByField: cluster, maxGroups: 1}, {spreadByField: region, minGroups: 2}]",
            Error,
            "spreadConstraints[1].minGroups",
            "maxGroups by cluster is 1",
        ),
        (
            "topologySpreadConstraints: [{maxSkew: 0, topologyKey: region}]",
            Error,
            "topologySpreadConstraints[0].maxSkew",
            "at least 1",
        ),
        (
            "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack}]",
            Error,
            "topologySpreadConstraints[0].topologyKey",
            "no cluster",
        ),
        (
            "clusterTolerations: [{operator: Equal}]",
            Error,
            "clusterTolerations[0].key",
            "the toleration has no effect",
        ),
        (
            &format!("{bounds}[{{targetCluster: {{}}, min: 5, max: 2}}]}}"),
            Error,
            "replicaScheduling.bounds[0]",
            "min 5 is above max 2",
        ),
        (
            &format!(
                "{bounds}[{{targetCluster: {{clusterNames: [m1]}}, min: 3}}, {{targetCluster: {{clusterNames: [m2]}}, min: 3}}]}}"
            ),
            Error,
            "replicaScheduling.bounds",
            "add up to 6",
        ),
        (
            &format!("{bounds}[{{targetCluster: {{}}, max: 3}}]}}"),
            Error,
            "replicaScheduling.bounds",
            "add up to 3",
        ),
        (
            &format!("{bounds}[{{targetCluster: {{clusterNames: [m9]}}, min: 1}}]}}"),
            Error,
            "replicaScheduling.bounds[0].targetCluster",
            "but sets a min",
        ),
        (
            &format!(
                "{list}[{{targetCluster: {{}}, weight: 5}}, {{targetCluster: {{clusterNames: [m1]}}, weight: 2}}]}}}}"
            ),
            Warning,
            "replicaScheduling.weightPreference.staticWeightList[1]",
            "shadowed: staticWeightList[0]",
        ),
        (
            &format!("{list}[{{targetCluster: {{clusterNames: [m9]}}, weight: 5}}]}}}}"),
            Warning,
            "replicaScheduling.weightPreference.staticWeightList[0].targetCluster",
            "none of the 2",
        ),
        (
            "replicaScheduling: {replicaSchedulingType: Duplicated, weightPreference: {dynamicWeight: AvailableReplicas}}",
            Warning,
            "replicaScheduling.weightPreference",
            "ignored",
        ),
    ] {
        let path = if field.starts_with("placement.") {
            field.to_owned()
        } else {
            format!("placement.{field}")
        };
        one(&policy(&format!("{{{placement}}}")), severity, &format!("spec.{path}"), problem);
    }
}

#[test]
fn policies_without_a_place_in_the_sun_are_named() {
    use Severity::{Error, Warning};
    let pp = |name: &str, selector: &str, rest: &str| {
        format!(
            "---\napiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {{name: {name}}}\nspec: \
             {{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment{selector}}}], placement: {{}}{rest}}}\n"
        )
    };
    let both = pp("a", "", "") + &pp("b", ", name: web", ", priority: 1");
    let findings = found(&both);
    one(
        &findings,
        Warning,
        "spec.resourceSelectors",
        "shadowed as a whole: PropagationPolicy default/b",
    );
    assert_eq!(findings.len(), 1, "{findings:#?}");
    one(
        &found(&pp("a", ", name: other", "")),
        Warning,
        "spec.resourceSelectors[0]",
        "no Deployment.apps \"other\"",
    );
    one(
        &found(&pp("a", ", namespace: far", "")),
        Error,
        "spec.resourceSelectors[0].namespace",
        "own namespace",
    );
}

fn workload_policy(spec: &str, workload: &str, rest: &str) -> Vec<Finding> {
    found(&format!(
        "apiVersion: policy.atoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {{name: wp}}\nspec: {spec}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: api}}\nspec: {{replicas: 6, template: {{metadata: \
         {{labels: {workload}}}}}}}\n{rest}"
    ))
}

#[test]
fn workload_policies_that_steer_nothing_or_cannot_are_named() {
    use Severity::{Error, Warning};
    let spec = |more: &str| {
        format!("{{topologyKey: tier, labelSelector: {{matchLabels: {{app: api}}}}, {more}}}")
    };
    let good = spec("allocationPolicy: [{name: gold, replicas: 1}, {name: iron, replicas: 3}]");
    let steered = "{app: api, policy.atoll.dev/workload-policy: wp}";
    assert_eq!(workload_policy(&good, steered, ""), []);
    one(
        &workload_policy(&good, "{app: api}", ""),
        Warning,
        "spec.template.metadata.labels",
        "does not place",
    );
    one(&workload_policy(&good, "{app: api}", ""), Warning, "metadata.name", "has no effect");
    let other = "{app: x, policy.atoll.dev/workload-policy: wp}";
    one(
        &workload_policy(&good, other, ""),
        Error,
        "spec.template.metadata.labels",
        "app=api does not hold",
    );
    let missing = "{app: api, policy.atoll.dev/workload-policy: nope}";
    one(
        &workload_policy(&good, missing, ""),
        Error,
        "spec.template.metadata.labels",
        "no WorkloadPolicy \"nope\"",
    );
    let empty = spec("allocationPolicy: [{name: lead, replicas: 9}]");
    one(
        &workload_policy(&empty, steered, ""),
        Warning,
        "spec.allocationPolicy[0].name",
        "\"lead\" is empty",
    );
    let none = spec("allocationPolicy: []");
    one(&workload_policy(&none, steered, ""), Error, "spec.allocationPolicy", "at least one");
    let required = spec("allocationType: Required, allocationPolicy: [{name: gold, replicas: 1}]");
    one(&workload_policy(&required, steered, ""), Warning, "spec.replicas", "add up to 1");
    let duplicated = "---\napiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: p}\nspec: \
        {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: api}], placement: {replicaScheduling: \
        {replicaSchedulingType: Duplicated}}}\n";
    one(
        &workload_policy(&good, steered, duplicated),
        Error,
        "spec.placement.replicaScheduling.replicaSchedulingType",
        "contradicts a WorkloadPolicy",
    );
}

fn spread(name: &str, rest: &str) -> String {
    format!(
        "---\napiVersion: policy.atoll.dev/v1alpha1\nkind: WorkloadSpread\nmetadata: {{name: {name}}}\nspec: \
         {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, {rest}}}\n"
    )
}

#[test]
fn workload_spreads_with_empty_subsets_or_wrong_sums_are_named() {
    use Severity::{Error, Warning};
    let (gold, iron) = (
        "requiredClusterSelector: {matchLabels: {tier: gold}}",
        "requiredClusterSelector: {matchLabels: {tier: iron}}",
    );
    assert_eq!(
        found(&spread(
            "s",
            &format!("subsets: [{{name: a, {gold}, maxReplicas: 2}}, {{name: b, {iron}}}]")
        )),
        []
    );
    // Neighbours that select nodes of the same clusters share them.
    let nodes = |kind: &str| {
        format!(
            "requiredNodeSelectorTerm: {{matchExpressions: [{{key: type, operator: In, values: [{kind}]}}]}}"
        )
    };
    let (ecs, eci) = (nodes("ecs"), nodes("eci"));
    assert_eq!(
        found(&spread("s", &format!("subsets: [{{name: a, {ecs}}}, {{name: b, {eci}}}]"))),
        []
    );
    for (rest, severity, field, problem) in [
        (format!("subsets: [{{name: a, maxReplicas: 2}}, {{name: b, {ecs}}}, {{name: c, {eci}}}]"), Error,
            "spec.subsets[1].requiredClusterSelector", "takes them all"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 80%}}, {{name: b, {iron}, maxReplicas: 30%}}]"), Error, "spec.subsets", "110%"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 1}}, {{name: b, {iron}, maxReplicas: 30%}}]"), Error, "spec.subsets", "not both"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 1}}, {{name: a, {iron}}}]"), Error, "spec.subsets[1].name", "unique"),
        (format!("subsets: [{{name: a, {gold}}}, {{name: b, {iron}}}]"), Error, "spec.subsets", "only the last"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 1}}, {{name: b, {gold}}}]"), Error, "spec.subsets[1].requiredClusterSelector", "takes them all"),
        ("subsets: [{name: a, requiredClusterSelector: {matchLabels: {tier: lead}}, maxReplicas: 1}, {name: b}]".to_owned(),
            Warning, "spec.subsets[0].requiredClusterSelector", "\"a\" is empty"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 1}}, {{name: b, {iron}, maxReplicas: 2}}]"), Warning, "spec.subsets", "add up to 3"),
        (format!("subsets: [{{name: a, {gold}, maxReplicas: 0}}, {{name: b, {iron}}}]"), Warning, "spec.subsets[0].maxReplicas", "is 0"),
    ] {
        one(&found(&spread("s", &rest)), severity, field, problem);
    }
    let two = spread("s", "subsets: [{name: a}]") + &spread("t", "subsets: [{name: a}]");
    one(&found(&two), Error, "spec.targetRef", "\"s\" already targets");
}

#[test]
fn state_that_cannot_be_preserved_is_found_by_its_label_and_its_path() {
    let rules = |rules: &str| {
        found(&format!(
            "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {{name: p}}\nspec:\n  \
             resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: web}}]\n  \
             failover: {{application: {{statePreservation: {{rules: [{rules}]}}}}}}\n"
        ))
    };
    let sound = "{aliasLabelName: example.io/job, jsonPath: '{.jobStatus.jobID}'}";
    assert_eq!(rules(sound), []);
    let of_cluster = found(
        "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: p}\nspec:\n  \
         resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]\n  \
         failover: {cluster: {statePreservation: {rules: [{aliasLabelName: a, jsonPath: '{'}]}}}\n",
    );
    let field = "spec.failover.cluster.statePreservation.rules[0].jsonPath";
    one(&of_cluster, Severity::Error, field, "at character 2");
    let at = |index: usize, field: &str| {
        format!("spec.failover.application.statePreservation.rules[{index}].{field}")
    };
    let twice = rules(&format!("{sound}, {sound}"));
    one(&twice, Severity::Error, &at(1, "aliasLabelName"), "also the label of rules[0]");
    assert_eq!(twice.len(), 1, "{twice:#?}");
    for (label, problem) in
        [("'job id'", "is not a label key"), ("work.atoll.dev/x", "reserved by Atoll")]
    {
        let wrong = rules(&format!("{{aliasLabelName: {label}, jsonPath: '{{.a}}'}}"));
        one(&wrong, Severity::Error, &at(0, "aliasLabelName"), problem);
    }
    let wrong = rules(&format!("{sound}, {{aliasLabelName: b, jsonPath: '{{.jobs[*].id}}'}}"));
    one(&wrong, Severity::Error, &at(1, "jsonPath"), "at character 7 (\"[*].id\")");
}

#[test]
fn an_object_that_a_policy_names_in_a_reserved_namespace_is_reported() {
    let text = format!(
        "{SOUND}---\napiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {{name: p}}\nspec:\n  \
         resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: web}}]\n  placement: {{}}\n"
    );
    for (pattern, findings) in [("infra", 0), ("default", 1)] {
        let mut all = World::new(ReservedNamespaces::with([pattern]).unwrap());
        documents::read("test", &text).0.into_iter().for_each(|d| all.add(d).unwrap());
        let found = world(&all);
        assert_eq!(found.len(), findings, "{found:?}");
        if findings > 0 {
            one(&found, Severity::Warning, "metadata", "its namespace is reserved");
        }
    }
}

#[test]
fn amounts_of_quotas_that_limit_nothing_or_everything_are_named() {
    let quota = |overall: &str| {
        found(&format!(
            "apiVersion: policy.atoll.dev/v1alpha1\nkind: FederatedResourceQuota\nmetadata: {{name: q}}\n\
             spec: {{overall: {overall}}}\n"
        ))
    };
    assert_eq!(quota("{cpu: 4, requests.memory: 1Gi, nvidia.com/gpu: 2, pods: 9}"), []);
    let field = "spec.overall[limits.cpu]";
    one(&quota("{limits.cpu: 4}"), Severity::Warning, field, "decisions do not count");
    one(&quota("{cpu: -1}"), Severity::Error, "spec.overall[cpu]", "-1 is negative");
    one(&quota("{cpu: many}"), Severity::Error, "spec.overall[cpu]", "\"many\" is not a number");
}

#[test]
fn unschedulable_replicas_that_nothing_moves_are_named() {
    let on = "rescheduleOn: [ReplicasChange, Unschedulable]";
    let dynamic = "replicaScheduling: {weightPreference: {dynamicWeight: AvailableReplicas}}";
    assert_eq!(policy(&format!("{{{dynamic}, {on}, unschedulableAfterSeconds: 30}}")), []);
    let field = "spec.placement.unschedulableAfterSeconds";
    let findings = policy(&format!("{{{dynamic}, unschedulableAfterSeconds: 30}}"));
    one(&findings, Severity::Warning, field, "rescheduleOn does not list Unschedulable");
    for (division, problem) in [
        ("replicaScheduling: {replicaSchedulingType: Duplicated}", "Duplicated"),
        ("replicaScheduling: {}", "respectCapacity"),
        (&format!("{dynamic}, sticky: true"), "sticky"),
    ] {
        let findings = policy(&format!("{{{division}, {on}}}"));
        one(&findings, Severity::Warning, "spec.placement.rescheduleOn[1]", problem);
    }
}
