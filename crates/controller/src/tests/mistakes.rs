//! Mistakes in policies and bindings: reported once, where users look, and neither obeyed nor retried endlessly.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::members::Withdrawal;
use crate::queue::FLUSH;
use crate::testing::eventually;
use crate::testing::hub::Hub;
use crate::testing::members::Order;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

/// A condition of an object.
fn condition(object: &Value, type_: &str) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|c| c["type"] == type_).cloned().unwrap_or_default()
}

async fn accepted(federation: &Federation, name: &str) -> Value {
    let policy = federation.hub.get(POLICY.0, POLICY.1, Some("shop"), name).await;
    condition(&policy, "Accepted")
}

async fn until_accepted(federation: &Federation, name: &str, status: &str, reason: &str) -> String {
    eventually(&format!("{name} is Accepted={status}, {reason}"), SOON, || async {
        let accepted = accepted(federation, name).await;
        accepted["status"] == status && accepted["reason"] == reason
    })
    .await;
    accepted(federation, name).await["message"].as_str().unwrap().to_owned()
}

/// Messages of the Events with this reason about an object of this name.
async fn events(hub: &Hub, namespace: &str, reason: &str, name: &str) -> Vec<String> {
    let (api, _) = hub.api("v1", "Event", Some(namespace)).await;
    let events = api.list(&Default::default()).await.unwrap().items;
    let about = events.into_iter().map(|event| serde_json::to_value(event).unwrap());
    about
        .filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == name)
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

/// The controller's log lines of this thread, from now on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures until the guard is dropped.
    fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    /// Number of the controller's lines with this level and text.
    fn count(&self, level: Level, text: &str) -> usize {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let head = format!(" {level} atoll_controller");
        log.lines().filter(|line| line.contains(&head) && line.contains(text)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decisions, both committed and unchanged ones.
fn decisions(federation: &Federation) -> u64 {
    let lines = federation.metrics();
    let counted = lines.iter().filter(|line| line.starts_with("atoll_decisions"));
    counted.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn orders(federation: &Federation) -> usize {
    federation.members.orders().len()
}

#[tokio::test(start_paused = true)]
async fn a_binding_for_another_resource_than_its_own_reaches_no_member() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    federation.hub.deployment("web", 1).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let secret = json!({"metadata": {"name": "atoll-ca"}, "stringData": {"key": "secret"}});
    federation.hub.apply("v1", "Secret", Some("atoll-system"), secret).await;
    federation.hub.apply("v1", "Namespace", None, json!({"metadata": {"name": "bank"}})).await;
    let secret = json!({"metadata": {"name": "kept"}, "stringData": {"key": "secret"}});
    federation.hub.apply("v1", "Secret", Some("bank"), secret).await;
    let before = orders(&federation);
    let decision = json!({
        "id": "0123456789abcdef", "at": "2026-01-01T00:00:00Z", "term": 1, "trigger": "First",
        "mode": "Fresh", "outcome": "Placed", "profile": "default",
    });
    let forged = |name: &str, resource: Value| {
        json!({
            "metadata": {"name": name},
            "spec": {"resource": resource, "clusters": [{"name": "m1", "replicas": 0}],
                     "decision": decision},
        })
    };
    let resource = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name});
    let bindings = [
        ("shop", "atoll-ca-secret", resource("atoll-system", "atoll-ca")),
        ("atoll-system", "atoll-ca-secret", resource("atoll-system", "atoll-ca")),
        ("shop", "kept-secret", resource("bank", "kept")),
        ("shop", "mine", resource("shop", "db")),
    ];
    for (namespace, name, resource) in bindings {
        let body = forged(name, resource);
        federation.hub.apply(BINDING.0, BINDING.1, Some(namespace), body).await;
        eventually(&format!("{namespace}/{name} is refused"), SOON, || async {
            let binding = federation.hub.get(BINDING.0, BINDING.1, Some(namespace), name).await;
            ["Scheduled", "FullyApplied", "Claimed"].iter().all(|type_| {
                let condition = condition(&binding, type_);
                condition["status"] == "False" && condition["reason"] == "BindingRefused"
            })
        })
        .await;
        let said = events(&federation.hub, namespace, "BindingRefused", name).await;
        assert_eq!(said.len(), 1, "{namespace}/{name}: {said:?}");
        assert!(said[0].contains("nothing is sent to or removed from members"), "{}", said[0]);
    }
    assert_eq!(orders(&federation), before, "nothing was sent or taken back");

    // A new leader reports and does the same.
    let federation = federation.restart().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let secrets = federation.members.orders().into_iter().filter(|order| match order {
        Order::Set { replicas, .. } => replicas.is_none(),
        Order::Withdraw { .. } => true,
    });
    assert_eq!(secrets.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_edited_to_another_resource_keeps_what_members_hold_until_it_is_mended() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    federation.hub.deployment("web", 1).await;
    federation.hub.deployment("other", 1).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    federation.until(BINDING, "other-deployment", "/status/summary/ready", json!(3)).await;
    let before = orders(&federation);
    let name = |name: &str| json!({"metadata": {"name": "web-deployment"}, "spec": {"resource": {"name": name}}});
    federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), name("other")).await;
    let refused = json!("BindingRefused");
    eventually("it is refused", SOON, || async {
        condition(&federation.hub.binding("web-deployment").await, "Scheduled")["reason"] == refused
    })
    .await;
    assert_eq!(orders(&federation), before);
    assert_eq!(federation.members.replicas().len(), 3);
    federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), name("web")).await;
    eventually("it is mended", SOON, || async {
        condition(&federation.hub.binding("web-deployment").await, "FullyApplied")["status"]
            == "True"
    })
    .await;
    let withdrawn =
        |order: &Order| matches!(order, Order::Withdraw { how: Withdrawal::Remove, .. });
    assert!(!federation.members.orders().iter().any(withdrawn));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_else_garbled_is_written_again() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    federation.hub.deployment("web", 1).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let sound = federation.hub.binding("web-deployment").await["status"].clone();
    let orders_before = orders(&federation);
    let (log, _guard) = Log::capture();
    let (api, _) = federation.hub.api(BINDING.0, BINDING.1, Some("shop")).await;
    let garbled = json!({"summary": {"ready": "all"}, "aggregatedStatus": 3, "truncated": {}});
    let patch = Patch::Merge(json!({"status": garbled}));
    api.patch_status("web-deployment", &PatchParams::default(), &patch).await.unwrap();
    eventually("the status is as before", SOON, || async {
        federation.hub.binding("web-deployment").await["status"] == sound
    })
    .await;
    assert_eq!(log.count(Level::WARN, "the binding's status is malformed"), 1);
    assert_eq!(log.count(Level::WARN, "status.aggregatedStatus: "), 1);
    assert_eq!(orders(&federation), orders_before);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_scheduler_is_said_on_the_policy_and_the_workload_with_the_profiles_that_exist()
{
    let federation = Federation::start().await;
    let policy = |profile: &str| {
        json!({"metadata": {"name": "all"}, "spec": {
            "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
            "placement": {}, "schedulerName": profile,
        }})
    };
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy("defualt")).await;
    federation.hub.deployment("web", 1).await;
    let message = until_accepted(&federation, "all", "False", "UnknownScheduler").await;
    assert!(message.contains("\"defualt\"") && message.contains("default, karmada"), "{message}");
    eventually("Events on both", SOON, || async {
        let policy = events(&federation.hub, "shop", "UnknownScheduler", "all").await;
        let workload = events(&federation.hub, "shop", "SchedulingGated", "web").await;
        policy.len() == 1 && workload.len() == 1 && workload[0].contains("default, karmada")
    })
    .await;
    assert!(federation.hub.binding("web-deployment").await.is_null());
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy("karmada")).await;
    until_accepted(&federation, "all", "True", "Accepted").await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_cluster_is_named_and_nothing_is_decided_without_a_changed_input() {
    let federation = Federation::start().await;
    let misspelt = json!({"clusterAffinity": {"clusterNames": ["m1", "membr1"]}});
    federation.hub.policy("some", DEPLOYMENT, misspelt).await;
    let message = until_accepted(&federation, "some", "True", "UnknownClusters").await;
    assert!(
        message.contains("clusterAffinity.clusterNames: there is no Cluster \"membr1\""),
        "{message}"
    );
    let misspelt = json!({"clusterAffinity": {"clusterNames": ["membr2"]}});
    let selector = json!([{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1, "name": "lost"}]);
    let policy = json!({"metadata": {"name": "none"}, "spec": {
        "resourceSelectors": selector, "placement": misspelt,
    }});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy).await;
    until_accepted(&federation, "none", "True", "UnknownClusters").await;
    federation.hub.deployment("lost", 3).await;
    eventually("it is decided", SOON, || async {
        let binding = federation.hub.binding("lost-deployment").await;
        condition(&binding, "Scheduled")["status"] == "False"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = decisions(&federation);
    // Other members' changes are not an input of it.
    for state in ["Lost", "Connected", "Lost", "Connected"] {
        let session = json!({"session": {"state": state, "epoch": 1}});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", "m2", session).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(decisions(&federation), before, "decided because another member flapped");
    tokio::time::sleep(FLUSH - Duration::from_secs(40)).await;
    assert_eq!(decisions(&federation), before, "{:#?}", federation.metrics());

    federation.hub.cluster("membr2").await;
    federation.members.connect("membr2").await;
    until_accepted(&federation, "none", "True", "Accepted").await;
    federation.until(BINDING, "lost-deployment", "/status/summary/ready", json!(3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_answered_within_about_a_second() {
    let federation = Federation::start().await;
    for (name, kind) in [("known", DEPLOYMENT), ("unserved", ("example.io/v1", "Widget"))] {
        let began = Instant::now();
        federation.hub.policy(name, kind, json!({})).await;
        eventually("an answer", SOON, || async { accepted(&federation, name).await.is_object() })
            .await;
        let took = began.elapsed();
        assert!(took < Duration::from_millis(1500), "{name}: {took:?}");
    }
    let known = accepted(&federation, "known").await;
    assert_eq!(known["status"], "True", "it was not answered before its kind was listed: {known}");
}

#[tokio::test(start_paused = true)]
async fn kinds_that_the_hub_does_not_serve_are_said_once() {
    let (log, _guard) = Log::capture();
    let federation = Federation::start().await;
    for (name, kind) in [("a", "Widget"), ("b", "Gadget")] {
        federation.hub.policy(name, ("example.io/v1", kind), json!({})).await;
        let message = until_accepted(&federation, name, "False", "KindUnreadable").await;
        assert!(message.contains(kind), "{message}");
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    federation.spy.take_writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(federation.spy.take_writes(), Vec::<String>::new());
    for kind in ["Widget", "Gadget"] {
        assert_eq!(log.count(Level::WARN, kind), 1, "{kind}");
        assert!(log.count(Level::DEBUG, kind) > 1, "{kind} is tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_that_the_controller_may_not_read_are_named_and_lose_nothing() {
    let federation = Federation::start().await;
    let spec = json!({
        "resourceSelectors": [
            {"apiVersion": "v1", "kind": "Secret", "name": "db"},
            {"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1},
        ],
        "placement": {},
    });
    let secret = json!({"metadata": {"name": "db"}, "stringData": {"key": "secret"}});
    federation.hub.apply("v1", "Secret", Some("shop"), secret).await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [
            {"groupVersion": "v1", "resources": [{"name": "secrets", "kind": "Secret"}]},
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
        ]});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", name, apis).await;
    }
    let policy = json!({"metadata": {"name": "app"}, "spec": spec});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), policy.clone()).await;
    federation.until(BINDING, "db-secret", "/status/summary/applied", json!(3)).await;
    assert_eq!(federation.members.replicas().len(), 3);

    // The next controller starts without the role.
    let federation = federation.restart_without("/api/v1/secrets").await;
    let web = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx", "envFrom": [
                {"secretRef": {"name": "token"}}]}]},
        }},
    });
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), web).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    eventually("the policy names both Secrets", SOON, || async {
        let accepted = accepted(&federation, "app").await;
        let message = accepted["message"].as_str().unwrap_or_default();
        accepted["reason"] == "SecretsNotReadable"
            && message.contains("shop/db, shop/token")
            && message.contains("deploy/controller/secrets.yaml")
    })
    .await;
    let secret = federation.hub.binding("db-secret").await;
    let applied = condition(&secret, "FullyApplied");
    assert_eq!(applied["reason"], "SecretsNotReadable", "{applied}");
    assert!(applied["message"].as_str().unwrap().contains("shop/db"), "{applied}");
    assert!(!events(&federation.hub, "shop", "SecretsNotReadable", "app").await.is_empty());
    let withdrawn = |order: &Order| matches!(order, Order::Withdraw { .. });
    assert!(!federation.members.orders().iter().any(withdrawn), "members keep their copies");
    federation.spy.allow_all();
    until_accepted(&federation, "app", "True", "Accepted").await;
}

#[tokio::test(start_paused = true)]
async fn service_accounts_are_selected_without_the_one_that_every_cluster_has() {
    let federation = Federation::start_on(Hub::open().await, Setup::default()).await;
    federation.hub.policy("accounts", ("v1", "ServiceAccount"), json!({})).await;
    for name in ["default", "builder"] {
        let account = json!({"metadata": {"name": name}});
        federation.hub.apply("v1", "ServiceAccount", Some("shop"), account).await;
    }
    eventually("builder is bound", SOON, || async {
        !federation.hub.binding("builder-serviceaccount").await.is_null()
    })
    .await;
    eventually("the policy says what it leaves out", SOON, || async {
        let accepted = accepted(&federation, "accounts").await;
        let message = accepted["message"].as_str().unwrap_or_default();
        accepted["status"] == "True"
            && message.contains("the ServiceAccount \"default\" is not propagated")
    })
    .await;
    assert!(federation.hub.binding("default-serviceaccount").await.is_null());
}

#[tokio::test(start_paused = true)]
async fn what_a_user_wrote_into_a_service_reaches_members_and_what_the_hub_allocated_does_not() {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [
            {"groupVersion": "v1", "resources": [{"name": "services", "kind": "Service"}]}]});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", name, apis).await;
    }
    let service = |name: &str, port: Value| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [port]}});
    let chosen = service("chosen", json!({"port": 80, "nodePort": 30080}));
    let allocated = service("allocated", json!({"port": 80}));
    for service in [chosen, allocated] {
        federation.hub.apply("v1", "Service", Some("shop"), service).await;
    }
    let held = federation.hub.get("v1", "Service", Some("shop"), "allocated").await;
    assert!(held["spec"]["ports"][0]["nodePort"].is_i64(), "the hub allocates: {held}");
    federation.hub.policy("services", ("v1", "Service"), json!({})).await;
    for name in ["chosen", "allocated"] {
        let binding = format!("{name}-service");
        federation.until(BINDING, &binding, "/status/summary/applied", json!(3)).await;
    }
    let port = |name: &str| {
        let manifest = federation.members.manifest_of("m1", name);
        manifest["spec"]["ports"][0]["nodePort"].clone()
    };
    assert_eq!(port("chosen"), 30080);
    assert_eq!(port("allocated"), Value::Null);
}
