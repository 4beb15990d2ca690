//! Every line gets one line as its answer, whatever its content, without panics.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

use atoll_scheduler::Profiles;
use atoll_scheduler::offline::Settings;
use atoll_scheduler::offline::batch::{MAX_LINE, Summary, run};
use proptest::prelude::*;
use serde_json::{Value, json};

fn answers(input: &[u8]) -> (Vec<Value>, Summary) {
    let settings = Settings { profile: None, now: "2026-08-21T12:00:00Z".parse().unwrap() };
    let mut output = Vec::new();
    let summary = run(input, &mut output, &Profiles::default(), &settings).unwrap();
    let lines = std::str::from_utf8(&output).unwrap().lines();
    (lines.map(|line| serde_json::from_str(line).unwrap()).collect(), summary)
}

/// Numbers at the limits of arithmetic, and ordinary ones.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0_i64..30).prop_map(Value::from),
        1 => (-3_i64..0).prop_map(Value::from),
        1 => prop::sample::select(vec![
            json!(1_000_000), json!(i32::MAX), json!(i64::MAX), json!(i64::MIN), json!(u64::MAX), json!(1e300), json!(0.5),
        ]),
    ]
}

fn quantity() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!("4"),
        json!("64Gi"),
        json!("100m"),
        json!(7),
        json!("-5"),
        json!("1e400"),
        json!("99999999999999999999Ei"),
        json!(""),
        json!("abc"),
        json!(-1),
        json!("9223372036854775807"),
    ])
}

fn label() -> impl Strategy<Value = Value> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(|value| json!({"k": value}))
}

fn affinity() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        label().prop_map(|labels| json!({"labelSelector": {"matchLabels": labels}})),
        Just(json!({"clusterNames": ["m0", "m1", "gone"], "exclude": ["m1"]})),
        Just(json!({"labelSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}})),
    ]
}

fn taint() -> impl Strategy<Value = Value> {
    prop::sample::select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule", "Other"]).prop_map(
        |effect| json!({"key": "t", "effect": effect, "timeAdded": "2026-08-21T11:59:00Z"}),
    )
}

fn cluster() -> impl Strategy<Value = Value> {
    (label(), quantity(), quantity(), prop::collection::vec(taint(), 0..2), 0..4_u8).prop_map(
        |(labels, room, used, taints, region)| {
            let mut cluster = json!({
                "metadata": {"labels": labels}, "spec": {"taints": taints},
                "status": {"apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "d"}]}],
                    "resourceSummary": {"allocatable": {"cpu": room, "pods": "50"}, "allocated": {"cpu": used}}},
            });
            if region > 0 {
                cluster["spec"]["region"] = json!(format!("r{region}"));
            }
            cluster
        },
    )
}

fn clusters() -> impl Strategy<Value = Value> {
    (prop::collection::vec(cluster(), 0..6), 0..10_u8).prop_map(|(mut clusters, twins)| {
        for (at, cluster) in clusters.iter_mut().enumerate() {
            let at = if twins == 0 { at / 2 } else { at };
            cluster["metadata"]["name"] = json!(format!("m{at}"));
        }
        Value::Array(clusters)
    })
}

fn replica_scheduling() -> impl Strategy<Value = Value> {
    let bound = (affinity(), number(), number())
        .prop_map(|(target, min, max)| json!({"targetCluster": target, "min": min, "max": max}));
    let weight = (affinity(), number())
        .prop_map(|(target, weight)| json!({"targetCluster": target, "weight": weight}));
    prop_oneof![
        Just(Value::Null),
        Just(json!({"replicaSchedulingType": "Duplicated"})),
        Just(
            json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"})
        ),
        Just(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}})),
        prop::collection::vec(bound, 0..3).prop_map(|bounds| json!({"bounds": bounds})),
        (prop::collection::vec(weight, 0..4), any::<bool>()).prop_map(|(list, respect)| json!({
            "weightPreference": {"staticWeightList": list}, "respectCapacity": respect})),
    ]
}

fn placement() -> impl Strategy<Value = Value> {
    let spread = (number(), number()).prop_map(
        |(min, max)| json!([{"spreadByField": "region", "minGroups": min, "maxGroups": max}]),
    );
    let skew = number().prop_map(|skew| json!([{"topologyKey": "region", "maxSkew": skew}]));
    let maybe = |strategy: BoxedStrategy<Value>| prop_oneof![3 => Just(Value::Null), 1 => strategy];
    (maybe(affinity().boxed()), maybe(spread.boxed()), maybe(skew.boxed()), replica_scheduling())
        .prop_map(|(affinity, spread, skew, scheduling)| {
            let mut placement = json!({});
            for (field, value) in [
                ("clusterAffinity", affinity),
                ("spreadConstraints", spread),
                ("topologySpreadConstraints", skew),
                ("replicaScheduling", scheduling),
            ] {
                if !value.is_null() {
                    placement[field] = value;
                }
            }
            placement
        })
}

fn binding() -> impl Strategy<Value = Value> {
    let shares = prop::collection::vec((0..7_u8, number()), 0..4);
    (shares, number(), placement(), any::<bool>(), quantity()).prop_map(
        |(shares, replicas, placement, karmada, cpu)| {
            let shares: Vec<_> =
                shares.iter().map(|(at, n)| json!({"name": format!("m{at}"), "replicas": n})).collect();
            json!({"metadata": {"name": "web-deployment", "namespace": "default"}, "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "default", "uid": "u"},
                "replicas": replicas, "replicaRequirements": {"resourceRequest": {"cpu": cpu}},
                "clusters": shares, "placement": placement, "schedulerName": if karmada { "karmada" } else { "default" },
                "gracefulEvictionTasks": [{"fromCluster": "m2", "reason": "x"}]}})
        },
    )
}

fn steering() -> impl Strategy<Value = (Value, Value)> {
    let domain = (prop::sample::select(vec!["r1", "r2", "r3"]), number())
        .prop_map(|(name, replicas)| json!({"name": name, "replicas": replicas}));
    let policy = (prop::collection::vec(domain, 0..3), any::<bool>(), any::<bool>()).prop_map(
        |(list, required, fill)| {
            json!([{"metadata": {"name": "wp"}, "spec": {"topologyKey": "region",
            "labelSelector": {"matchLabels": {"app": "web"}}, "allocationPolicy": list,
            "allocationType": if required { "Required" } else { "Preferred" },
            "allocationMethod": if fill { "Fill" } else { "Balance" }}}])
        },
    );
    let most = prop_oneof![number(), Just(json!("40%")), Just(json!("999%")), Just(json!("x"))];
    let subset = (prop::sample::select(vec!["a", "b", "c"]), most, label()).prop_map(|(name, max, labels)| {
        json!({"name": name, "maxReplicas": max, "requiredClusterSelector": {"matchLabels": labels}})
    });
    let spread = (prop::collection::vec(subset, 0..3), any::<bool>()).prop_map(|(mut subsets, adaptive)| {
        subsets.push(json!({"name": "rest"}));
        json!([{"metadata": {"name": "ws"}, "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "subsets": subsets, "scheduleStrategy": {"type": if adaptive { "Adaptive" } else { "Fixed" }}}}])
    });
    prop_oneof![
        policy.prop_map(|policies| (policies, json!([]))),
        spread.prop_map(|spreads| (json!([]), spreads)),
        Just((json!([]), json!([]))),
    ]
}

fn case() -> impl Strategy<Value = Value> {
    (clusters(), binding(), steering(), number(), 0..3_u8, placement()).prop_map(
        |(clusters, binding, (policies, spreads), replicas, form, placement)| {
            let mut case = json!({"id": 1, "clusters": clusters, "workloadPolicies": policies, "workloadSpreads": spreads});
            if form != 0 {
                case["workload"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                    "spec": {"replicas": replicas, "template": {"metadata": {"labels":
                        {"app": "web", "policy.atoll.dev/workload-policy": "wp"}}}}});
                let mut other = binding.clone();
                other["metadata"]["name"] = json!("other");
                other["metadata"]["labels"] = json!({"app": "web"});
                case["otherBindings"] = json!([other]);
                if form == 2 {
                    case["policy"] = json!({"metadata": {"name": "p"}, "spec": {"placement": placement}});
                }
            }
            if form != 1 {
                case["binding"] = binding;
            }
            case
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number(), quantity()];
    let keys = prop::sample::select(vec![
        "id",
        "clusters",
        "binding",
        "workload",
        "policy",
        "spec",
        "metadata",
        "status",
        "name",
        "replicas",
        "now",
        "otherBindings",
        "placement",
        "resource",
        "kind",
        "apiVersion",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(keys.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => case().prop_map(|case| case.to_string()),
        2 => any_json().prop_map(|json| json.to_string()),
        1 => "[ -~]{0,60}".prop_map(|text| format!("{text}.")),
    ]
}

/// Number of cases, unless PROPTEST_CASES sets another.
fn cases() -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok();
    given.and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_line_is_answered_and_nothing_panics(lines in prop::collection::vec(line(), 1..6)) {
        let (answers, summary) = answers(lines.join("\n").as_bytes());
        prop_assert_eq!(answers.len(), lines.len());
        prop_assert_eq!(summary.lines, lines.len() as u64);
        for answer in answers {
            let shares = answer["clusters"].as_array().unwrap();
            prop_assert!(shares.iter().all(|share| share["replicas"].as_i64().unwrap() >= 0), "{}", answer);
            prop_assert!(answer["pending"].as_i64().unwrap() >= 0, "{}", answer);
        }
    }
}

fn big(clusters: Value, replicas: i64) -> Value {
    json!({"id": "big", "clusters": clusters,
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas}},
        "policy": {"metadata": {"name": "p"}, "spec": {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}}})
}

fn plain(at: usize) -> Value {
    json!({"metadata": {"name": format!("m{at}")}, "spec": {}, "status": {"apiEnablements":
        [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]}]}})
}

#[test]
fn a_million_replicas_and_ten_thousand_taints_are_answered_rightly() {
    let clusters: Vec<Value> = (0..100).map(plain).collect();
    let line = big(json!(clusters), 1_000_000).to_string();
    let answer = answers(line.as_bytes()).0.remove(0);
    let shares = answer["clusters"].as_array().unwrap();
    assert!(
        shares.len() == 100 && shares.iter().all(|share| share["replicas"] == 10_000),
        "{answer}"
    );

    let mut tainted = plain(1);
    let taints: Vec<Value> =
        (0..10_000).map(|n| json!({"key": format!("t{n}"), "effect": "NoSchedule"})).collect();
    tainted["spec"]["taints"] = json!(taints);
    let answer = answers(big(json!([plain(0), tainted]), 3).to_string().as_bytes()).0.remove(0);
    assert_eq!(answer["clusters"], json!([{"name": "m0", "replicas": 3}]));
}

#[test]
fn what_is_out_of_range_is_refused_with_its_field() {
    for (replicas, field) in [(-1, "spec.replicas"), (i64::MAX, "spec.replicas")] {
        let answer = answers(big(json!([plain(0)]), replicas).to_string().as_bytes()).0.remove(0);
        assert_eq!(answer["error"], "Invalid", "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(field), "{answer}");
    }
    let twins = answers(big(json!([plain(0), plain(0)]), 1).to_string().as_bytes()).0.remove(0);
    assert_eq!(twins["error"], "BadCase");
    assert!(twins["detail"].as_str().unwrap().contains("clusters[1].metadata.name"), "{twins}");
}

#[test]
fn a_line_beyond_the_limit_is_answered_without_being_held() {
    struct Endless(u64, &'static [u8]);
    impl std::io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return self.1.read(into);
            }
            let count = into.len().min(usize::try_from(self.0).unwrap_or(usize::MAX));
            into[..count].fill(b'x');
            self.0 -= count as u64;
            Ok(count)
        }
    }
    let settings = Settings { profile: None, now: "2026-08-21T12:00:00Z".parse().unwrap() };
    let input = std::io::BufReader::new(Endless(MAX_LINE + 10, b"\n{}\n"));
    let mut output = Vec::new();
    let summary = run(input, &mut output, &Profiles::default(), &settings).unwrap();
    assert_eq!((summary.lines, summary.bad), (2, 2));
    let text = String::from_utf8(output).unwrap();
    assert!(text.lines().next().unwrap().contains("longer than"), "{text}");
}
