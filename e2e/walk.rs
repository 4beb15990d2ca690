//! The walk-through of the README, step by step, on the real binary over real sockets.

mod access;
mod draining;
mod growing;
mod guarding;
mod namespaces;
mod planning;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cli::{atoll, example, fail, has_kubectl, run};
use crate::support::federation::{
    Federation, bindings, cluster_objects, deployments, free_ports, objects,
};
use crate::support::lines::Lines;
use crate::support::wait::{until, until_gone};

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;

/// Shares of a binding, by cluster.
fn shares(binding: &Value) -> Vec<(String, i64)> {
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let share =
        |c: &Value| (c["name"].as_str().unwrap().to_owned(), c["replicas"].as_i64().unwrap());
    let mut shares: Vec<_> = clusters.iter().map(share).collect();
    shares.sort();
    shares
}

fn are(binding: &Value, expected: &[(&str, i64)]) -> bool {
    let expected: Vec<_> = expected.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    shares(binding) == expected
}

fn condition(object: &Value, type_: &str) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == type_)?;
    found["status"].as_str().map(str::to_owned)
}

fn ready(deployment: &Value, replicas: i64) -> bool {
    deployment["status"]["readyReplicas"].as_i64().unwrap_or(0) == replicas
        && deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
}

/// Triggers that `atoll history` lists, oldest first.
fn triggers(federation: &Federation, workload: &str) -> Vec<String> {
    let text = run(&mut federation.atoll(&["history", workload, "-o", "json"]));
    let list: Value = serde_json::from_str(&text).expect("history is JSON");
    let items = list["items"].as_array().expect("history is a list").iter().rev();
    items.map(|item| item["spec"]["trigger"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_the_readme() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("atoll");
    let federation = Federation::start(&folder, free_ports(PORTS));
    if !has_kubectl() {
        return without_kubectl(&federation).await;
    }
    let kubectl = |args: &[&str]| run(federation.kubectl("hub").args(args));
    let hub = federation.client("hub").await;
    let members = [
        federation.client("member1").await,
        federation.client("member2").await,
        federation.client("member3").await,
    ];
    let deployment = deployments(&hub, "default");
    let binding = bindings(&hub, "default");
    let on = |member: usize| deployments(&members[member - 1], "default");

    // 1. Two thirds and one third.
    kubectl(&["apply", "-f", &example("01-nginx.yaml")]);
    kubectl(&["rollout", "status", "deployment/nginx", "--timeout=90s"]);
    let hubs = until(&deployment, "nginx", "3 of 3 ready", |d| ready(d, 3)).await;
    assert_eq!(hubs["status"]["replicas"], 3);
    assert_eq!(on(1).get("nginx").await.unwrap().data["spec"]["replicas"], 2);
    assert_eq!(on(2).get("nginx").await.unwrap().data["spec"]["replicas"], 1);
    assert!(on(3).get_opt("nginx").await.unwrap().is_none());
    let bound = until(&binding, "nginx-deployment", "fully applied", |b| {
        condition(b, "FullyApplied").as_deref() == Some("True")
            && b["status"]["summary"]["ready"] == 3
    })
    .await;
    assert!(are(&bound, &[("member1", 2), ("member2", 1)]), "{bound:#}");
    assert_eq!(bound["spec"]["decision"]["trigger"], "First");
    assert_eq!(bound["spec"]["decision"]["outcome"], "Placed");
    assert_eq!(condition(&bound, "Scheduled").as_deref(), Some("True"));
    let applied = &bound["metadata"]["annotations"]["policy.atoll.dev/applied-placement"];
    let applied: Value = serde_json::from_str(applied.as_str().unwrap()).unwrap();
    assert_eq!(applied["clusterAffinity"]["clusterNames"], json!(["member1", "member2"]));
    assert_eq!(bound["status"]["aggregatedStatus"].as_array().unwrap().len(), 2);
    assert!(kubectl(&["get", "deployment", "nginx"]).contains("3/3"));
    let pods = run(&mut federation.atoll(&["get", "pods", "-A"]));
    assert_eq!(pods.lines().filter(|line| line.contains("nginx-")).count(), 3, "{pods}");
    let logs = run(&mut federation.atoll(&["logs", "deploy/nginx"]));
    assert_eq!(logs.lines().filter(|line| line.contains("starts on node")).count(), 3, "{logs}");

    // 2. Scale.
    kubectl(&["scale", "deployment/nginx", "--replicas=9"]);
    kubectl(&["rollout", "status", "deployment/nginx", "--timeout=90s"]);
    let bound = binding.get("nginx-deployment").await.unwrap();
    let bound = serde_json::to_value(bound).unwrap();
    assert!(are(&bound, &[("member1", 6), ("member2", 3)]), "{bound:#}");
    assert_eq!(bound["spec"]["decision"]["trigger"], "Scale");

    // 3. A third member. The old copies leave after the new ones are healthy: member1 keeps its 6 until then.
    kubectl(&["apply", "-f", &example("03-add-member3.yaml")]);
    let moved = until(&binding, "nginx-deployment", "the new split", |b| {
        are(b, &[("member1", 5), ("member2", 2), ("member3", 2)])
    })
    .await;
    assert_eq!(moved["spec"]["decision"]["trigger"], "Reconcile");
    until(&on(3), "nginx", "2 ready on member3", |d| ready(d, 2)).await;
    until(&binding, "nginx-deployment", "no evictions left", |b| {
        b["spec"].get("gracefulEvictionTasks").is_none_or(|tasks| tasks == &json!([]))
    })
    .await;
    until(&on(1), "nginx", "5 on member1", |d| d["spec"]["replicas"] == 5 && ready(d, 5)).await;
    until(&on(2), "nginx", "2 on member2", |d| d["spec"]["replicas"] == 2 && ready(d, 2)).await;

    // 4. A member goes down and its share moves; it comes back and its old copy is removed.
    run(&mut federation.sim(&["stop", "member1"]));
    let failed_over = until(&binding, "nginx-deployment", "member1's share elsewhere", |b| {
        let shares = shares(b);
        shares.iter().all(|(name, _)| name != "member1")
            && shares.iter().map(|(_, replicas)| replicas).sum::<i64>() == 9
    })
    .await;
    assert_eq!(failed_over["spec"]["decision"]["trigger"], "Failover");
    until(&deployment, "nginx", "9 ready without member1", |d| ready(d, 9)).await;
    run(&mut federation.sim(&["start", "member1"]));
    until_gone(&on(1), "nginx").await;
    let after = binding.get("nginx-deployment").await.unwrap();
    assert!(
        shares(&serde_json::to_value(after).unwrap()).iter().all(|(name, _)| name != "member1")
    );

    let live = history(&federation, &kubectl);

    // 8 and 9. Without the policy everything keeps running; without the template everything is removed.
    kubectl(&["delete", "propagationpolicy", "nginx-propagation"]);
    let unclaimed = until(&binding, "nginx-deployment", "Claimed=False", |b| {
        condition(b, "Claimed").as_deref() == Some("False")
    })
    .await;
    assert_eq!(shares(&unclaimed).iter().map(|(_, replicas)| replicas).sum::<i64>(), 9);
    assert!(on(2).get_opt("nginx").await.unwrap().is_some());
    kubectl(&["delete", "deployment", "nginx"]);
    until_gone(&on(2), "nginx").await;
    until_gone(&on(3), "nginx").await;
    until_gone(&binding, "nginx-deployment").await;
    // 7. The follower shows the end, too.
    live.until(&["Withdrawn", "default deployment/nginx"]);
    drop(live);

    workload_policy(&federation).await;
    shop(&federation).await;
    many_fail_over_and_come_back(&federation).await;

    // A stop is quick and clean, and loses nothing; neither does a kill.
    let port = federation.port;
    let (took, code) = federation.signal("-TERM");
    assert_eq!(code, Some(0));
    assert!(took.as_secs() < 10, "a stop took {took:?}");
    let federation = Federation::start(&folder, port);
    let hub = federation.client("hub").await;
    let floater = deployments(&hub, "workload-test");
    until(&floater, "clusterlink-floater-mix", "it is still there", |d| {
        d["status"]["readyReplicas"] == 4
    })
    .await;
    let config = objects(&hub, "", "v1", "ConfigMap", "default");
    let acknowledged = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    config.create(&Default::default(), &acknowledged).await.unwrap();
    federation.signal("-KILL");
    let federation = Federation::start(&folder, port);
    let config = objects(&federation.client("hub").await, "", "v1", "ConfigMap", "default");
    assert!(config.get_opt("kept").await.unwrap().is_some(), "an acknowledged object was lost");

    // Failures explain themselves in one line.
    let refused = fail(atoll().args(["up", "--data-dir"]).arg(&folder));
    assert!(refused.contains("in use") && refused.contains("--data-dir"), "{refused}");
    let other = data.path().join("other");
    let busy = port.to_string();
    let refused = fail(atoll().args(["up", "--port", &busy, "--data-dir"]).arg(&other));
    assert!(refused.contains(&busy) && refused.contains("--port"), "{refused}");
}

/// 5, 6 and 7: the decisions, their reasons, how long they took, and their effects, with live updates.
fn history(federation: &Federation, kubectl: &dyn Fn(&[&str]) -> String) -> Lines {
    let atoll = |args: &[&str]| run(&mut federation.atoll(args));
    let narrow = |text: &str| {
        assert!(text.lines().all(|line| line.chars().count() <= 100), "wider than 100:\n{text}");
        assert!(!text.contains('\u{1b}'), "colours where no terminal is:\n{text}");
    };
    // Newest first, a line or more for each, with before and after.
    let listed: Vec<_> = triggers(federation, "deploy/nginx");
    let named: Vec<_> =
        listed.iter().filter(|t| *t != "EvictionDone").map(String::as_str).collect();
    assert_eq!(named, ["First", "Scale", "Reconcile", "Failover"]);
    let table = atoll(&["history", "deploy/nginx"]);
    narrow(&table);
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("TIME ID TRIGGER OUTCOME DECISION"), "{table}");
    assert!(words.contains("member1 6, member2 3 -> member1 5, member2 2, member3 2"), "{table}");
    let wide = atoll(&["history", "deploy/nginx", "-o", "wide"]);
    assert!(wide.contains("HEALTHY") && wide.contains("SLOWEST"), "{wide}");
    let yaml = atoll(&["history", "deploy/nginx", "-o", "yaml"]);
    assert!(yaml.contains("kind: DecisionList") && yaml.contains("trigger: Failover"), "{yaml}");
    // Filtered by every flag.
    let count = |args: &[&str]| {
        let args = [&["history", "deploy/nginx", "-o", "json"], args].concat();
        let list: Value = serde_json::from_str(&atoll(&args)).unwrap();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--trigger", "Failover"]), 1);
    assert_eq!(count(&["--outcome", "Placed", "--trigger", "First"]), 1);
    assert_eq!(count(&["--outcome", "NoFit"]), 0);
    assert_eq!(count(&["--since", "1h"]), listed.len());
    assert_eq!(count(&["--until", "1h"]), 0);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--member", "member3", "--trigger", "Scale"]), 0);
    for (args, part) in [
        (&["--trigger", "Sometimes"][..], "--trigger"),
        (&["--outcome", "x' OR '1'='1"], "--outcome"),
        (&["--since", "soon"], "--since"),
        (&["--since", "1h", "--until", "2h"], "is not after --since"),
        (&["--limit", "0"], "--limit"),
    ] {
        let args = [&["history", "deploy/nginx"], args].concat();
        let refused = fail(&mut federation.atoll(&args));
        assert!(refused.contains(part), "{args:?}: {refused}");
    }

    // The reason for every cluster, the inputs, the author, and how long it took on which member.
    let explained = atoll(&["explain", "deploy/nginx"]);
    narrow(&explained);
    for part in
        ["member1", "member2", "member3", "Failover", "Made from", "What followed", "healthy"]
    {
        assert!(explained.contains(part), "{part} is not explained:\n{explained}");
    }
    let refused = atoll(&["explain", "deploy/nginx", "--cluster", "member1"]);
    assert!(refused.contains("refused") && refused.contains("what would change it"), "{refused}");
    let explained: Value =
        serde_json::from_str(&atoll(&["explain", "deploy/nginx", "-o", "json"])).unwrap();
    assert_eq!(explained["spec"]["trigger"], "Failover");
    let sources = explained["spec"]["provenance"]["sources"].as_array().unwrap();
    assert!(sources[0]["changed"]["manager"].as_str().unwrap().contains("kubectl"), "{sources:?}");
    let decisions = kubectl(&["get", "decisions"]);
    assert!(
        decisions.contains("Failover") && decisions.contains("deployment/nginx"),
        "{decisions}"
    );

    // The picture, and a comparison of two decisions.
    let drawn = atoll(&["timeline", "deploy/nginx"]);
    narrow(&drawn);
    for part in ["member1", "member2", "member3", "Failover"] {
        assert!(drawn.contains(part), "{part} is not drawn:\n{drawn}");
    }
    let list: Value =
        serde_json::from_str(&atoll(&["history", "deploy/nginx", "-o", "json"])).unwrap();
    let items = list["items"].as_array().unwrap();
    let of = |trigger: &str| {
        let found = items.iter().find(|item| item["spec"]["trigger"] == trigger);
        found.unwrap_or_else(|| panic!("no {trigger}: {list:#}"))
    };
    let id = |item: &Value| item["metadata"]["name"].as_str().unwrap()[..12].to_owned();
    let diff = atoll(&["diff", &id(of("First")), &id(of("Scale"))]);
    narrow(&diff);
    assert!(diff.contains("First -> Scale") && diff.contains("member1"), "{diff}");
    let one = atoll(&["explain", "deploy/nginx", "--decision", &id(of("First"))]);
    assert!(one.contains("First"), "{one}");
    // The first was healthy on both of its members, and each step has its time.
    let life = &of("First")["status"];
    for step in ["decided", "committed", "dispatched", "applied", "healthy", "superseded"] {
        assert!(life[step].is_string(), "{step}: {life:#}");
    }

    // A member: the decisions about it, and its events.
    let member = atoll(&["history", "--member", "member1"]);
    narrow(&member);
    for part in ["Failover", "Lost", "Ready"] {
        assert!(member.contains(part), "{part}: {member}");
    }
    let events = kubectl(&["get", "memberevents"]);
    assert!(events.contains("Ready") && events.contains("Lost"), "{events}");

    let live = Lines::of("atoll history -w", federation.atoll(&["history", "-w", "-A"]));
    live.until(&["First", "default deployment/nginx"]);
    live.until(&["Failover"]);
    live
}

/// The WorkloadPolicy of the Kosmos documentation, both of its tests.
async fn workload_policy(federation: &Federation) {
    let kubectl = |args: &[&str]| run(federation.kubectl("hub").args(args));
    let hub = federation.client("hub").await;
    let binding = bindings(&hub, "workload-test");
    let name = "clusterlink-floater-mix-deployment";
    // member1 was down: it accepts new work shortly after its return.
    let clusters = cluster_objects(&hub);
    until(&clusters, "member1", "no taints", |c| {
        c["spec"].get("taints").is_none_or(|taints| taints == &json!([]))
    })
    .await;
    kubectl(&["label", "cluster", "member1", "workload-test=member"]);
    kubectl(&["label", "cluster", "member2", "member3", "workload-test=host"]);

    kubectl(&["apply", "-f", &example("06-workload-policy.yaml")]);
    let soft =
        until(&binding, name, "6 placed", |b| b["spec"]["decision"]["outcome"] == "Placed").await;
    assert!(are(&soft, &[("member1", 2), ("member2", 2), ("member3", 2)]), "{soft:#}");
    let floater = deployments(&hub, "workload-test");
    until(&floater, "clusterlink-floater-mix", "6 ready", |d| ready(d, 6)).await;
    kubectl(&["delete", "namespace", "workload-test"]);

    kubectl(&["apply", "-f", &example("07-workload-policy-required.yaml")]);
    let hard =
        until(&binding, name, "4 of 6 placed", |b| b["spec"]["decision"]["outcome"] == "Partial")
            .await;
    let hard_shares = shares(&hard);
    let host: i64 = hard_shares.iter().filter(|(name, _)| name != "member1").map(|(_, n)| n).sum();
    assert_eq!((hard_shares[0].clone(), host), (("member1".to_owned(), 1), 3), "{hard:#}");
    let pending = hard["spec"]["decision"]["pending"].as_array().unwrap();
    assert_eq!(pending.iter().map(|group| group["replicas"].as_i64().unwrap()).sum::<i64>(), 2);
    until(&floater, "clusterlink-floater-mix", "4 ready", |d| d["status"]["readyReplicas"] == 4)
        .await;
}

/// 14: an application with its dependencies, an image registry for each region, and a label that protects it.
async fn shop(federation: &Federation) {
    let kubectl = |args: &[&str]| run(federation.kubectl("hub").args(args));
    let region = r#"{"spec":{"region":"north"}}"#;
    kubectl(&["patch", "cluster", "member1", "--type", "merge", "-p", region]);
    kubectl(&["apply", "-f", &example("14-shop.yaml")]);
    let hub = federation.client("hub").await;
    until(&deployments(&hub, "storefront"), "web", "6 ready", |d| ready(d, 6)).await;
    for (member, registry, region) in
        [("member1", "north.registry.example", "north"), ("member2", "registry.example", "unknown")]
    {
        let client = federation.client(member).await;
        let core = |kind: &str| objects(&client, "", "v1", kind, "storefront");
        for (kind, name) in [
            ("Secret", "payment"),
            ("Secret", "registry"),
            ("ServiceAccount", "web"),
            ("Service", "web"),
        ] {
            until(&core(kind), name, "with the Deployment", |_| true).await;
        }
        let settings = core("ConfigMap").get("settings").await.unwrap();
        assert_eq!(settings.data["data"], json!({"currency": "EUR", "region": region}));
        let web = deployments(&client, "storefront").get("web").await.unwrap();
        let image = &web.data["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, format!("{registry}/storefront/web:1.4"));
        assert_eq!(web.data["spec"]["replicas"], 2);
    }
    let delete = ["delete", "deployment", "web", "-n", "storefront"];
    let refused = fail(federation.kubectl("hub").args(delete));
    assert!(refused.contains("protected from deletion"), "{refused}");
    let label = "resourcetemplate.atoll.dev/deletion-protected-";
    kubectl(&["label", "deployment", "web", "-n", "storefront", label]);
    kubectl(&["delete", "namespace", "storefront"]);
    let member1 = federation.client("member1").await;
    until_gone(&deployments(&member1, "storefront"), "web").await;
}

/// 13: more objects than the limit on mass removals allows fail over, and a returning member removes all of them.
async fn many_fail_over_and_come_back(federation: &Federation) {
    const MANY: usize = 300;
    let kubectl = |args: &[&str]| run(federation.kubectl("hub").args(args));
    let template = std::fs::read_to_string(example("13-many-app.yaml")).unwrap();
    let names: Vec<String> = (1..=MANY).map(|number| format!("app-{number}")).collect();
    let all: String = names.iter().map(|name| template.replace("APP", name)).collect();
    let file = federation.folder.join("many.yaml");
    std::fs::write(&file, all).unwrap();
    kubectl(&["apply", "-f", &example("13-many-policy.yaml")]);
    kubectl(&["apply", "-f", file.to_str().unwrap()]);
    let hub = federation.client("hub").await;
    let (deployment, binding) = (deployments(&hub, "many"), bindings(&hub, "many"));
    for name in &names {
        until(&deployment, name, "it is ready", |d| ready(d, 1)).await;
    }
    let mut pods = Vec::new();
    for member in ["member1", "member2", "member3"] {
        pods.push(objects(&federation.client(member).await, "", "v1", "Pod", "many"));
    }
    let first = deployments(&federation.client("member1").await, "many");
    assert_eq!(first.list(&Default::default()).await.unwrap().items.len(), MANY);

    run(&mut federation.sim(&["stop", "member1"]));
    for name in &names {
        until(&binding, &format!("{name}-deployment"), "it runs elsewhere", |b| {
            let shares = shares(b);
            !shares.is_empty() && shares.iter().all(|(name, _)| name != "member1")
        })
        .await;
        until(&deployment, name, "it is ready elsewhere", |d| ready(d, 1)).await;
    }
    run(&mut federation.sim(&["start", "member1"]));
    let back = Instant::now();
    loop {
        let mut counts = Vec::new();
        for objects in pods.iter().chain([&first]) {
            // A member that was just started may refuse a connection.
            let listed = objects.list(&Default::default()).await;
            counts.push(listed.map(|list| list.items.len()).ok());
        }
        let running = counts[..pods.len()].iter().copied().sum::<Option<usize>>();
        if running == Some(MANY) && counts.last() == Some(&Some(0)) {
            break;
        }
        assert!(
            back.elapsed() < Duration::from_secs(60),
            "{MANY} pods are asked for; pods on each member, and old copies on member1: {counts:?}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    kubectl(&["delete", "namespace", "many"]);
}

/// The first steps with the client library alone.
async fn without_kubectl(federation: &Federation) {
    let hub = federation.client("hub").await;
    let text = std::fs::read_to_string(example("01-nginx.yaml")).unwrap();
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let (group, version) =
            object["apiVersion"].as_str().unwrap().split_once('/').expect("a group and a version");
        let api = objects(&hub, group, version, object["kind"].as_str().unwrap(), "default");
        api.create(&Default::default(), &serde_json::from_value(object.clone()).unwrap())
            .await
            .unwrap();
    }
    let deployment = deployments(&hub, "default");
    until(&deployment, "nginx", "3 of 3 ready", |d| ready(d, 3)).await;
    let bound = bindings(&hub, "default").get("nginx-deployment").await.unwrap();
    let bound = serde_json::to_value(bound).unwrap();
    assert!(are(&bound, &[("member1", 2), ("member2", 1)]), "{bound:#}");
}
