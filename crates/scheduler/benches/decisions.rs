//! Microseconds per decision on one thread, next to a peer's figures for the same work on one core.
//!
//! Half of the clusters match the label selector; each serves 40 API groups; 20 replicas; the explanation is part of
//! the decision. "changed snapshot" is the first decision after one cluster changed, including that change. `-- --json`
//! prints one object per line. `-- --once CLUSTERS STRATEGY N` decides N times and prints nothing, for a profiler that
//! counts instructions; with the strategy `change` it applies N changes of a cluster instead.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use atoll_api::Cluster;
use atoll_scheduler::divide::webster::{Party, deal};
use atoll_scheduler::select::groups::{Candidate, Grouping, choose};
use atoll_scheduler::{
    BindingFacts, Decision, LiveCluster, Previous, Profiles, Request, Scheduler, Tables, Template,
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
        key: atoll_scheduler::BindingKey::new("shop", "web-deployment"),
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

fn measure(mut work: impl FnMut()) -> f64 {
    work();
    // The best of five runs, because the machine is shared.
    (0..5)
        .map(|_| {
            let start = Instant::now();
            let (ran, mut rounds) = (thread_time(start), 0_u32);
            while start.elapsed().as_millis() < BUDGET_MS / 5 || rounds < 3 {
                work();
                rounds += 1;
            }
            (thread_time(start) - ran) as f64 / 1e3 / f64::from(rounds)
        })
        .fold(f64::INFINITY, f64::min)
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
        key: atoll_scheduler::BindingKey::new("shop", format!("b{}", n % 16)),
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
