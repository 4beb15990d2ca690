//! The controller's members part in a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use atoll_api::cluster::Cluster;
use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Clock, ClusterName};
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    HealthTimes, Incoming, Key, MemberEvent, Members, MembersOptions, Metrics, Oracle, Rendered,
    Verdict,
};
use atoll_protocol::identity::TrustDomain;
use atoll_render::Share;
use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::child::{answer, cpu_ms, resident_kib, setting};
use crate::hub;

/// Events between the members part and its reader, as in the controller.
const EVENTS: usize = 1_024;

/// Members hold only what was set here.
struct NoOrphans;

impl Oracle for NoOrphans {
    fn verdict(&self, _: &ClusterName, _: &BindingUid, _: &Key) -> Verdict {
        Verdict::Unknown
    }
}

/// What members reported.
#[derive(Default)]
struct Reports {
    /// Members whose inventory both ends agree on.
    agreed: BTreeSet<ClusterName>,
    /// Objects applied, by their round and then member.
    applied: BTreeMap<String, BTreeMap<ClusterName, usize>>,
}

struct Receiver {
    reports: Mutex<Reports>,
    news: Notify,
}

impl Receiver {
    async fn until(&self, mut holds: impl FnMut(&Reports) -> bool) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if holds(&self.reports.lock().unwrap()) {
                return;
            }
            news.await;
        }
    }
}

/// One object of a round, rendered for a member.
fn object(cluster: &str, round: &str, n: usize, bytes: usize) -> (String, Arc<Rendered>) {
    let name = format!("{round}-{n}");
    let template = if n.is_multiple_of(2) {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"ballast": "x".repeat(bytes)},
        })
    } else {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": "default", "annotations": {"ballast": "x".repeat(bytes)},
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
                },
            },
        })
    };
    let claim = format!("claim-{name}");
    let share = Share {
        cluster: cluster.to_owned(),
        replicas: (n % 2 == 1).then_some(1),
        claim: claim.clone(),
        ..Share::default()
    };
    (claim, Arc::new(atoll_render::render(&template, &share).unwrap()))
}

/// Passes the hub's Clusters on, and notifies when the first list is complete.
async fn follow(clusters: Api<Cluster>, members: Members, listed: Arc<Notify>) {
    let mut events = std::pin::pin!(watcher(clusters, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitApply(cluster) | watcher::Event::Apply(cluster)) => {
                members.cluster_changed(&cluster);
            }
            Ok(watcher::Event::Delete(cluster)) => {
                members.cluster_deleted(&cluster.metadata.name.unwrap().into());
            }
            Ok(watcher::Event::InitDone) => listed.notify_one(),
            Ok(watcher::Event::Init) => (),
            Err(error) => panic!("watch Clusters: {error}"),
        }
    }
}

pub(crate) async fn run() {
    let started = Instant::now();
    let client = hub::client(Path::new(&setting("KUBECONFIG"))).await;
    let listener = TcpListener::bind(setting("ADDRESS")).await.unwrap();
    let (sender, mut events) = mpsc::channel(EVENTS);
    let leads = LeaderTerm::new(setting("TERM").parse().unwrap());
    let (_term, term) = watch::channel(Some(leads));
    let options = MembersOptions {
        client: client.clone(),
        clock: Clock::system(),
        incoming: Incoming::Tcp(listener),
        health: HealthTimes::default(),
        term,
        other_leader: watch::channel(None).1,
        trust_domain: TrustDomain::new("atoll.bench").unwrap(),
        metrics: Metrics::default(),
    };
    let token = CancellationToken::new();
    let members = Members::start(options, sender, token.clone()).unwrap();
    let receiver = Arc::new(Receiver { reports: Mutex::default(), news: Notify::new() });
    let sink = receiver.clone();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            let mut reports = sink.reports.lock().unwrap();
            match event {
                MemberEvent::Inventory { cluster, .. } => drop(reports.agreed.insert(cluster)),
                MemberEvent::Applied { cluster, key, current: true, .. } => {
                    let round = key.name().rsplit_once('-').map_or("", |(round, _)| round);
                    let round = reports.applied.entry(round.to_owned()).or_default();
                    *round.entry(cluster).or_default() += 1;
                }
                _ => continue,
            }
            drop(reports);
            sink.news.notify_waiters();
        }
    });
    let listed = Arc::new(Notify::new());
    tokio::spawn(follow(Api::all(client), members.clone(), listed.clone()));
    listed.notified().await;

    let set = |round: &str, from: usize, to: usize, objects: usize, bytes: usize| {
        for n in 0..objects {
            for member in from..to {
                let cluster = hub::name(member);
                let (claim, object) = object(&cluster, round, n, bytes);
                members.set_desired(
                    &cluster.into(),
                    &claim.into(),
                    vec![object],
                    ConflictResolution::Abort,
                );
            }
        }
    };
    // What the process before this one had set: after a restart the bindings give it again.
    let desired = setting("DESIRED");
    if !desired.is_empty() {
        set(&desired, 0, setting("MEMBERS").parse().unwrap(), 1, 1_000);
    }
    members.caches_complete(leads, Arc::new(NoOrphans));

    answer(async |words| match words {
        ["stats"] => json!({"resident_kib": resident_kib(std::process::id()), "cpu_ms": cpu_ms(std::process::id())}),
        ["agreed", count] => {
            let count: usize = count.parse().unwrap();
            receiver.until(|reports| reports.agreed.len() >= count).await;
            json!({"ms": started.elapsed().as_millis() as u64})
        }
        ["set", round, from, to, objects, bytes, rest @ ..] => {
            let [from, to, objects, bytes] =
                [from, to, objects, bytes].map(|word| word.parse::<usize>().unwrap());
            // A member that gets orders too, but is not waited for.
            let ignored = rest.first().map(|word| word.parse::<usize>().unwrap());
            let expected = to - from - usize::from(ignored.is_some());
            let (began, cpu) = (Instant::now(), cpu_ms(std::process::id()));
            set(round, from, to, objects, bytes);
            let whom = ignored.map(|member| hub::name(member).into());
            receiver
                .until(|reports| {
                    let Some(of_round) = reports.applied.get(*round) else { return false };
                    let done = of_round.iter().filter(|(cluster, count)| {
                        Some(*cluster) != whom.as_ref() && **count >= objects
                    });
                    done.count() >= expected
                })
                .await;
            json!({"ms": began.elapsed().as_millis() as u64, "cpu_ms": cpu_ms(std::process::id()) - cpu})
        }
        other => panic!("unknown command {other:?}"),
    } as Value)
    .await;
    token.cancel();
}
