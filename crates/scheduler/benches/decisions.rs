//! Microseconds per decision on one thread, next to a peer's figures for the same work on one core.
//!
//! Half of the clusters match the label selector; each serves 40 API groups; 20 replicas; the explanation is part of
//! the decision. "changed snapshot" is the first decision after one cluster changed, including that change. `-- --json`
//! prints one object per line. `-- --once CLUSTERS STRATEGY N` decides N times and prints nothing, for a profiler that
//! counts instructions; with the strategy `change` it applies N changes of a cluster instead, and with `with-FEATURE` or
//! `without-FEATURE` it makes the decisions of an optional feature's ratio.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use atoll_api::Cluster;
use atoll_api::binding::Outcome;
use atoll_scheduler::divide::webster::{Party, deal};
use atoll_scheduler::select::groups::{Candidate, Grouping, choose};
use atoll_scheduler::state::affinity_group::memberships;
use atoll_scheduler::state::cluster_sets::ClusterSets;
use atoll_scheduler::{
    BindingFacts, BindingKey, Decision, LiveCluster, Previous, PriorityClass, Profiles, Report,
    Request, Scheduler, SchedulerConfiguration, Snapshot, Tables, Template,
};
use serde_json::{Value, json};

const REPLICAS: i64 = 20;
const API_GROUPS: usize = 40;
/// Time spent per figure.
const BUDGET_MS: u128 = 300;

fn cluster(n: usize) -> Cluster {
    let apis: Vec<Value> = (0..API_GROUPS)
        .map(|group| {
            let name = if group == 0 { "apps/v1".to_owned() } else { format!("g{group}.example.io/v1") };
            json!({"groupVersion": name, "resources": [
                {"name": "deployments", "kind": "Deployment"}, {"name": "things", "kind": "Thing"}]})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": format!("member-{n:04}"),
            "labels": {"env": if n.is_multiple_of(2) { "prod" } else { "dev" }, "domain": format!("d{}", n % 4)}},
        "spec": {"region": format!("region-{}", n % 10), "provider": "cloud"},
        "status": {"apiEnablements": apis, "resourceSummary": {
            "allocatable": {"cpu": (64 + n * 7919 % 512).to_string(), "memory": "512Gi", "pods": "500"},
            "allocated": {"cpu": (n * 31 % 60).to_string(), "memory": "100Gi", "pods": "50"}}},
    }))
    .expect("the bench's own cluster is well formed")
}

fn request(strategy: &str) -> Request {
    let mut placement =
        json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}});
    let divided = |rest: Value| {
        let mut scheduling = json!({"replicaSchedulingType": "Divided"});
        for (name, value) in rest.as_object().into_iter().flatten() {
            scheduling[name] = value.clone();
        }
        scheduling
    };
    match strategy {
        "static" => {
            placement["replicaScheduling"] =
                divided(json!({"weightPreference": {"staticWeightList": [
            {"targetCluster": {"labelSelector": {"matchLabels": {"domain": "d0"}}}, "weight": 3},
            {"targetCluster": {}, "weight": 1}]}}))
        }
        "dynamic" => {
            placement["replicaScheduling"] =
                divided(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}));
        }
        "aggregated" => {
            placement["replicaScheduling"] =
                divided(json!({"replicaDivisionPreference": "Aggregated"}));
        }
        "region-spread" => {
            placement["replicaScheduling"] =
                divided(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}));
            placement["spreadConstraints"] =
                json!([{"spreadByField": "region", "minGroups": 2, "maxGroups": 3}]);
        }
        _ => {}
    }
    Request {
        key: BindingKey::new("shop", "web-deployment"),
        template: Template {
            uid: "7fc369c1-ad03-43c7-a280-5264ef90a270".into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
            pod_labels: BTreeMap::from([("app".into(), "web".into())]),
            replicas: Some(REPLICAS),
            requirements: serde_json::from_value(
                json!({"resourceRequest": {"cpu": "500m", "memory": "1Gi"}}),
            )
            .ok(),
            workload_policy: (strategy == "workload-policy").then(|| "policy".into()),
            ..Template::default()
        },
        placement: serde_json::from_value(placement).expect("the bench's own placement"),
        scheduler_name: "default".into(),
        now: "2026-08-21T12:00:00Z".parse().expect("a date"),
        ..Request::default()
    }
}

/// Nanoseconds that this thread has run, on Linux: other processes do not count. Otherwise the wall clock.
fn thread_time(start: Instant) -> u128 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ran = stat.as_deref().and_then(|text| text.split(' ').next()?.parse().ok());
    ran.unwrap_or_else(|| start.elapsed().as_nanos())
}

/// Runs per figure. The best counts, because the machine is shared.
const RUNS: u32 = 5;

/// Microseconds per round, over one run.
fn run(work: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    let (ran, mut rounds) = (thread_time(start), 0_u32);
    while start.elapsed().as_millis() < BUDGET_MS / u128::from(RUNS) || rounds < 3 {
        work();
        rounds += 1;
    }
    (thread_time(start) - ran) as f64 / 1e3 / f64::from(rounds)
}

fn measure(mut work: impl FnMut()) -> f64 {
    work();
    (0..RUNS).map(|_| run(&mut work)).fold(f64::INFINITY, f64::min)
}

/// A peer's microseconds for the same work on one core, if known.
fn peer(clusters: usize, strategy: &str) -> Option<f64> {
    let row = match clusters {
        100 => [1_150.0, 1_190.0, 1_250.0],
        1_000 => [17_500.0, 18_700.0, 16_300.0],
        5_000 => [95_500.0, 98_400.0, 94_400.0],
        _ => return None,
    };
    let column =
        ["duplicated", "dynamic", "aggregated"].iter().position(|name| *name == strategy)?;
    Some(row[column])
}

fn print(json: bool, clusters: usize, strategy: &str, us: f64) {
    let peer = peer(clusters, strategy);
    let ratio = peer.map(|peer| peer / us);
    if json {
        println!(
            "{}",
            json!({"clusters": clusters, "strategy": strategy, "us": us, "peer_us": peer, "ratio": ratio})
        );
    } else {
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        println!("{clusters:>8}  {strategy:<28}{us:>10.1}{:>10}{:>10}", text(peer), text(ratio));
    }
}

/// Tables with these clusters and the WorkloadPolicy of the benchmark.
fn tables(clusters: &[Cluster]) -> Tables {
    let mut tables = Tables::default();
    for cluster in clusters {
        tables.upsert_cluster(cluster, LiveCluster::default());
    }
    let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadPolicy",
        "metadata": {"name": "policy", "namespace": "shop"},
        "spec": {"topologyKey": "domain", "labelSelector": {"matchLabels": {"app": "web"}},
            "allocationPolicy": [{"name": "d0", "replicas": 5}, {"name": "d2", "replicas": 10}]}});
    tables.upsert_workload_policy(&serde_json::from_value(policy).expect("a policy"));
    tables
}

/// Applies one change of a cluster per call: a member's report that changes its room.
fn change(clusters: &[Cluster]) -> impl FnMut(&mut Tables) {
    let mut changed = clusters[clusters.len() / 2].clone();
    let mut flip = false;
    move |tables| {
        flip = !flip;
        let pods = atoll_api::quantity::Quantity::from_units(if flip { 499 } else { 500 });
        let summary = changed.status.as_mut().and_then(|status| status.resource_summary.as_mut());
        if let Some(summary) = summary {
            summary.allocatable.insert("pods".into(), pods);
        }
        tables.upsert_cluster(&changed, LiveCluster::default());
    }
}

/// A workload of 20 replicas whose cluster is gone.
fn bereaved(tables: &mut Tables, scheduler: &mut Scheduler, strategy: &str) -> Request {
    let mut request = request(strategy);
    let decision = scheduler.decide(&tables.snapshot(), &request);
    let lost = decision.clusters().first().map(|share| share.name.clone());
    request.previous = Some(Previous {
        clusters: decision.clusters().to_vec(),
        decision: Some(decision.record(1)),
        applied_placement: serde_json::from_str(&decision.applied_placement()).ok(),
        ..Previous::default()
    });
    tables.remove_cluster(&lost.expect("the bench's own workload is placed"));
    request
}

/// Puts the decision of the n-th workload into the tables. There are 16 workloads, so that the clusters do not fill up.
/// Every other round each has one replica more, so that something changes every time.
fn commit(tables: &mut Tables, request: &Request, decision: &Decision, n: usize) {
    let mut shares = decision.clusters().to_vec();
    if let Some(share) = shares.first_mut() {
        share.replicas += (n / 16 % 2) as i64;
    }
    tables.upsert_binding(BindingFacts {
        key: BindingKey::new("shop", &format!("b{}", n % 16)),
        requirements: request.template.requirements.clone(),
        shares,
        ..BindingFacts::default()
    });
}

fn once(args: &[String]) {
    let [clusters, strategy, times] = args else { panic!("--once CLUSTERS STRATEGY N") };
    let number = |text: &str| text.parse::<usize>().expect("CLUSTERS and N are numbers");
    let (clusters, times) = (number(clusters), number(times));
    let all: Vec<Cluster> = (0..clusters).map(cluster).collect();
    let mut tables = tables(&all);
    let mut change = change(&all);
    if let Some((with, name)) =
        strategy.split_once("-").filter(|(with, _)| matches!(*with, "with" | "without"))
    {
        let feature = FEATURES.iter().find(|feature| feature.name == name).expect("a feature");
        let mut pair = feature.pair(&all);
        let decider = if with == "with" { &mut pair.1 } else { &mut pair.0 };
        return (0..times).for_each(|_| decider.decide());
    }
    let mut scheduler = Scheduler::new(Profiles::default());
    let request = request(strategy.trim_end_matches("-changed"));
    let mut snapshot = tables.snapshot();
    if let Some(strategy) = strategy.strip_prefix("failover-") {
        let request = bereaved(&mut tables, &mut scheduler, strategy);
        for n in 0..times {
            let decision = scheduler.decide(&tables.snapshot(), &request);
            commit(&mut tables, &request, &decision, n);
        }
        return;
    }
    for _ in 0..times {
        if strategy.ends_with("change") || strategy.ends_with("-changed") {
            change(&mut tables);
            snapshot = tables.snapshot();
        }
        if strategy != "change" {
            black_box(scheduler.decide(black_box(&snapshot), black_box(&request)));
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--once") {
        return once(&args[at + 1..]);
    }
    let json = args.iter().any(|arg| arg == "--json");
    if !json {
        println!(
            "{:>8}  {:<28}{:>10}{:>10}{:>10}",
            "clusters", "strategy", "us", "peer us", "ratio"
        );
    }
    for clusters in [10, 100, 1_000, 5_000] {
        let all: Vec<Cluster> = (0..clusters).map(cluster).collect();
        let mut tables = tables(&all);
        let mut change = change(&all);
        for strategy in
            ["duplicated", "static", "dynamic", "aggregated", "region-spread", "workload-policy"]
        {
            let request = request(strategy);
            let mut scheduler = Scheduler::new(Profiles::default());
            let snapshot = tables.snapshot();
            let us = measure(|| {
                black_box(scheduler.decide(black_box(&snapshot), black_box(&request)));
            });
            print(json, clusters, strategy, us);
            let us = measure(|| {
                change(&mut tables);
                black_box(scheduler.decide(&tables.snapshot(), &request));
            });
            print(json, clusters, &format!("{strategy}, changed snapshot"), us);
        }
    }
    extras(json);
    features(json);
}

fn extras(json: bool) {
    let all: Vec<Cluster> = (0..5_000).map(cluster).collect();
    let mut tables = tables(&all);
    let (mut first, mut flip) = (all[2_500].clone(), false);
    // Holds the previous snapshot, like a decision in progress, so that nothing can be changed in place.
    let mut held = tables.snapshot();
    let us = measure(|| {
        flip = !flip;
        first.spec.region = Some(if flip { "elsewhere" } else { "here" }.into());
        tables.upsert_cluster(&first, LiveCluster::default());
        held = tables.snapshot();
    });
    drop(held);
    print(json, 5_000, "one cluster's change", us);
    // Decides and commits one by one, as when a cluster with many workloads is lost.
    for strategy in ["static", "dynamic", "aggregated"] {
        let all: Vec<Cluster> = (0..50).map(cluster).collect();
        let mut tables = self::tables(&all);
        let mut scheduler = Scheduler::new(Profiles::default());
        let request = bereaved(&mut tables, &mut scheduler, strategy);
        let mut n = 0;
        let us = measure(|| {
            n += 1;
            let decision = scheduler.decide(&tables.snapshot(), &request);
            commit(&mut tables, &request, &decision, n);
        });
        print(json, 50, &format!("{strategy}, off a lost cluster and committed"), us);
    }
    let parties: Vec<Party> = (0..1_000_u64)
        .map(|n| Party { weight: 1 + n * 7919 % 97, seats: 0, cap: u64::MAX, floor: 0, tie: n })
        .collect();
    let us = measure(|| {
        let mut parties = parties.clone();
        black_box(deal(&mut parties, 100_000));
    });
    print(json, 1_000, "100,000 replicas", us);
    let candidates: Vec<Candidate> = (0..300)
        .map(|n| Candidate {
            seats: 0,
            target: false,
            score: n * 7919 % 100,
            room: Some(n * 31 % 50),
            full: false,
        })
        .collect();
    let grouping = Grouping {
        field: String::new(),
        key: "region".into(),
        of: (0..300).map(|n| n % 30).collect(),
        ties: (0..30).collect(),
        min: 15,
        max: Some(15),
    };
    let us = measure(|| {
        black_box(choose(&candidates, std::slice::from_ref(&grouping), Some(2_000)).is_ok());
    });
    print(json, 300, "15 of 30 regions", us);
}

/// An optional feature: what both decisions of its ratio have, and what the second has in addition.
struct Feature {
    name: &'static str,
    /// Further profile of the second decision.
    profile: Option<&'static str>,
    both: fn(&mut Tables, &mut Request),
    add: fn(&mut Tables, &mut Request),
}

const PREEMPTING: &str = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
    - schedulerName: preempting\n  plugins: {postFilter: {enabled: [{name: Preemption}]}}\n";

const FEATURES: [Feature; 11] = [
    Feature { name: "quota", profile: None, both: nothing, add: limit_by_quota },
    Feature { name: "ClusterSets", profile: None, both: nothing, add: limit_to_a_set },
    Feature { name: "workloadAffinity, required", profile: None, both: place_a_group, add: join },
    Feature {
        name: "workloadAffinity, preferred",
        profile: None,
        both: place_a_group,
        add: prefer,
    },
    Feature { name: "Unschedulable, reported", profile: None, both: scale, add: wait_for_a_node },
    Feature { name: "Unschedulable, moved", profile: None, both: scale, add: find_no_node },
    Feature {
        name: "preemption with room",
        profile: Some(PREEMPTING),
        both: nothing,
        add: outrank,
    },
    Feature { name: "topologySpreadConstraints", profile: None, both: nothing, add: spread },
    Feature {
        name: "topologySpreadConstraints, soft",
        profile: None,
        both: nothing,
        add: spread_softly,
    },
    Feature {
        name: "topologySpreadConstraints, two",
        profile: None,
        both: nothing,
        add: spread_twice,
    },
    Feature { name: "topologySpreadConstraints, scaled", profile: None, both: scale, add: spread },
];

/// One of the two decisions of a ratio.
struct Decider {
    scheduler: Scheduler,
    snapshot: Arc<Snapshot>,
    request: Request,
}

impl Decider {
    fn decide(&mut self) {
        black_box(self.scheduler.decide(black_box(&self.snapshot), black_box(&self.request)));
    }
}

impl Feature {
    /// The decision without the feature, and with it. Both place all replicas.
    fn pair(&self, clusters: &[Cluster]) -> (Decider, Decider) {
        let decider = |with: bool| {
            let (mut tables, mut request) = (tables(clusters), request("dynamic"));
            (self.both)(&mut tables, &mut request);
            let mut profiles = Profiles::default();
            if with {
                (self.add)(&mut tables, &mut request);
                if let Some(text) = self.profile {
                    let config =
                        SchedulerConfiguration::read(text).expect("the bench's own profile");
                    profiles = Profiles::read(&config).expect("the bench's own profile");
                }
            }
            let (mut scheduler, snapshot) = (Scheduler::new(profiles), tables.snapshot());
            let decision = scheduler.decide(&snapshot, &request);
            let name = self.name;
            assert_eq!(decision.outcome(), Outcome::Placed, "{name}: {}", decision.reason);
            Decider { scheduler, snapshot, request }
        };
        (decider(false), decider(true))
    }
}

/// The cost of each optional feature: a decision with it, relative to the same decision without it. Both are measured in
/// turn, so that other work on the machine falls on both.
fn features(json: bool) {
    if !json {
        println!(
            "\n{:>8}  {:<36}{:>10}{:>10}{:>10}",
            "clusters", "feature", "us", "without", "ratio"
        );
    }
    for clusters in [100, 1_000] {
        let all: Vec<Cluster> = (0..clusters).map(cluster).collect();
        for feature in &FEATURES {
            let (mut without, mut with) = feature.pair(&all);
            let mut best = [f64::INFINITY; 2];
            for _ in 0..RUNS {
                best[0] = best[0].min(run(&mut || without.decide()));
                best[1] = best[1].min(run(&mut || with.decide()));
            }
            let ([without, us], name) = (best, feature.name);
            let ratio = us / without;
            if json {
                println!(
                    "{}",
                    json!({"clusters": clusters, "feature": name, "us": us, "without_us": without, "ratio": ratio})
                );
            } else {
                println!("{clusters:>8}  {name:<36}{us:>10.1}{without:>10.1}{ratio:>10.2}");
            }
        }
    }
}

fn nothing(_: &mut Tables, _: &mut Request) {}

fn limit_by_quota(tables: &mut Tables, _: &mut Request) {
    let quota = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": "team", "namespace": "shop"},
        "spec": {"overall": {"cpu": "40", "memory": "80Gi", "pods": "200"}}});
    tables.upsert_quota(&serde_json::from_value(quota).expect("a quota"));
}

fn limit_to_a_set(tables: &mut Tables, _: &mut Request) {
    let team = BTreeMap::from([("team".to_owned(), "shop".to_owned())]);
    let set = json!({"apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "ClusterSet",
        "metadata": {"name": "shop"}, "spec": {"namespaceSelector": {"matchLabels": team},
        "clusterSelector": {"matchLabels": {"env": "prod"}}}});
    let mut sets = ClusterSets::default();
    sets.set_namespace("shop", Some(team));
    sets.upsert("shop", &serde_json::from_value(set).expect("a set")).expect("a valid set");
    tables.set_cluster_sets(Arc::new(sets));
}

fn set_placement(request: &mut Request, change: impl FnOnce(&mut Value)) {
    let mut placement = serde_json::to_value(&*request.placement).expect("a placement");
    change(&mut placement);
    request.placement = serde_json::from_value(placement).expect("the bench's own placement");
}

/// Three workloads of a group, on the first twenty clusters that the label selector matches.
fn place_a_group(tables: &mut Tables, request: &mut Request) {
    request.template.labels = BTreeMap::from([("tier".into(), "front".into())]);
    let mut first = request.clone();
    set_placement(&mut first, |placement| {
        placement["workloadAffinity"] = json!({"affinity": {"groupByLabelKey": "tier"}});
    });
    let share = |n| json!({"name": format!("member-{:04}", 2 * n), "replicas": 1});
    let shares: Vec<Value> = (0..20).map(share).collect();
    for n in 0..3 {
        tables.upsert_binding(BindingFacts {
            key: BindingKey::new("shop", &format!("front-{n}")),
            groups: memberships(&first.placement, &first.template.labels),
            shares: serde_json::from_value(shares.clone().into()).expect("shares"),
            ..BindingFacts::default()
        });
    }
}

fn join(_: &mut Tables, request: &mut Request) {
    set_placement(request, |placement| {
        placement["workloadAffinity"] = json!({"affinity": {"groupByLabelKey": "tier"}});
    });
}

fn prefer(_: &mut Tables, request: &mut Request) {
    set_placement(request, |placement| {
        let wish = json!({"weight": 50, "affinity": {"groupByLabelKey": "tier"}});
        placement["workloadAffinity"] = json!({"preferred": [wish]});
    });
}

/// The workload is placed, and gets ten replicas more.
fn scale(tables: &mut Tables, request: &mut Request) {
    let mut scheduler = Scheduler::new(Profiles::default());
    let decision = scheduler.decide(&tables.snapshot(), request);
    commit(tables, request, &decision, 0);
    request.previous = Some(Previous {
        clusters: decision.clusters().to_vec(),
        decision: Some(decision.record(1)),
        ..Previous::default()
    });
    request.template.replicas = Some(REPLICAS + 10);
}

/// A replica on the first cluster has found no node for `seconds`.
fn report_stuck(request: &mut Request, seconds: i64) {
    set_placement(request, |placement| {
        placement["rescheduleOn"] =
            json!(["PolicyChange", "ReplicasChange", "ClusterFailure", "Unschedulable"]);
    });
    let shares = request.previous.iter().flat_map(|previous| &previous.clusters);
    let reports = shares.enumerate().map(|(at, share)| {
        let unschedulable = i64::from(at == 0);
        let report = Report {
            replicas: share.replicas,
            ready: share.replicas - unschedulable,
            unschedulable,
            unschedulable_since: (at == 0)
                .then(|| request.now - jiff::SignedDuration::from_secs(seconds)),
            ..Report::default()
        };
        (share.name.as_str().into(), report)
    });
    request.reports = reports.collect();
}

fn wait_for_a_node(_: &mut Tables, request: &mut Request) {
    report_stuck(request, 10);
}

/// Nothing but the unschedulable replica moves.
fn find_no_node(_: &mut Tables, request: &mut Request) {
    request.template.replicas = Some(REPLICAS);
    report_stuck(request, 100);
}

fn outrank(_: &mut Tables, request: &mut Request) {
    request.scheduler_name = "preempting".into();
    request.priority.value = 100;
    request.priority.class = Some(PriorityClass { name: "high".into(), never_preempts: false });
}

fn constrain(request: &mut Request, constraints: Value) {
    set_placement(request, |placement| placement["topologySpreadConstraints"] = constraints);
}

fn spread(_: &mut Tables, request: &mut Request) {
    constrain(request, json!([{"topologyKey": "region", "maxSkew": 1}]));
}

fn spread_softly(_: &mut Tables, request: &mut Request) {
    let when = "ScheduleAnyway";
    constrain(request, json!([{"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": when}]));
}

fn spread_twice(_: &mut Tables, request: &mut Request) {
    let by = |key| json!({"topologyKey": key, "maxSkew": 1});
    constrain(request, json!([by("region"), by("domain")]));
}
