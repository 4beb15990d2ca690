//! The web console on a whole federation: over HTTP, and in a real browser.

mod browser;
mod http;

use std::collections::{BTreeSet, VecDeque};

use browser::{Browser, Scheme};
use http::Session;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::cli::{fail, run};
use crate::support::federation::{
    Federation, bindings, cluster_objects, deployments, free_ports, objects,
};
use crate::support::lines::Lines;
use crate::support::wait::until;

/// Ports that `atoll up` takes with three members.
const PORTS: u16 = 5;
/// What must never become markup.
const HOSTILE: &str = "<script>document.title='owned'</script>";

/// A federation with a workload on two members, and a console.
struct Scene {
    federation: Federation,
    hub: Client,
    _data: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
        let hub = federation.client("hub").await;
        let scene = Self { federation, hub, _data: data };
        let policies =
            objects(&scene.hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default");
        create(
            &policies,
            json!({"metadata": {"name": "web"}, "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "placement": {
                    "clusterAffinity": {"clusterNames": ["member1", "member2"]},
                    "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
                },
            }}),
        )
        .await;
        create(
            &deployments(&scene.hub, "default"),
            json!({"metadata": {"name": "web"}, "spec": {
                "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                    {"name": "web", "image": "nginx:1.27", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
                ]}},
            }}),
        )
        .await;
        scene.until_ready(4).await;
        let hostile = json!({"spec": {"region": HOSTILE}});
        let clusters = cluster_objects(&scene.hub);
        let params = PatchParams::default();
        clusters.patch("member3", &params, &Patch::Merge(hostile)).await.unwrap();
        scene
    }

    /// More workloads, one of which fails.
    async fn furnish(&self) {
        let policies =
            objects(&self.hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default");
        create(
            &policies,
            json!({"metadata": {"name": "everything"}, "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {
                    "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
                },
            }}),
        )
        .await;
        let all = [
            ("api", 9, "shop:2.1"),
            ("cart", 3, "shop:2.1"),
            ("checkout", 5, "nginx:nosuch"),
            ("images", 12, "shop:2.0"),
            ("mail", 1, "shop:2.1"),
            ("search", 6, "shop:2.1"),
        ];
        for (name, replicas, image) in all {
            create(
                &deployments(&self.hub, "default"),
                json!({"metadata": {"name": name}, "spec": {
                    "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [
                        {"name": name, "image": image, "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}},
                    ]}},
                }}),
            )
            .await;
        }
        let bindings = bindings(&self.hub, "default");
        until(&bindings, "images-deployment", "all ready", |b| {
            b["status"]["summary"]["ready"] == 12
        })
        .await;
        until(&bindings, "checkout-deployment", "a failure", |b| {
            let reports = b["status"]["aggregatedStatus"].as_array();
            reports.is_some_and(|reports| reports.iter().any(|r| r["healthMessage"].is_string()))
        })
        .await;
    }

    async fn until_ready(&self, replicas: i64) {
        until(&bindings(&self.hub, "default"), "web-deployment", "all replicas ready", |b| {
            b["status"]["summary"]["ready"] == replicas
        })
        .await;
    }

    async fn scale(&self, replicas: i64) {
        let patch = json!({"spec": {"replicas": replicas}});
        let deployments = deployments(&self.hub, "default");
        deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The address that `atoll up` printed.
    fn console(&self) -> &str {
        let banner = &self.federation.banner;
        let line = banner.lines().find_map(|line| line.strip_prefix("console")).expect("printed");
        line.trim()
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let mut object = object;
    let (kind, version) = match object["spec"]["resourceSelectors"].is_null() {
        true => ("Deployment", "apps/v1"),
        false => ("PropagationPolicy", "policy.atoll.dev/v1alpha1"),
    };
    object["kind"] = kind.into();
    object["apiVersion"] = version.into();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn taints(cluster: &Value) -> usize {
    cluster["spec"]["taints"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_federation_answers_and_actions_act() {
    let scene = Scene::start().await;
    let session = Session::enter(scene.console()).await;
    let web = "/workloads/default/Deployment.apps/web";

    // Every address on every page answers, with its headers.
    let mut seen: BTreeSet<String> = BTreeSet::from(["/".to_owned()]);
    let mut open: VecDeque<String> = VecDeque::from(["/".to_owned()]);
    while let Some(path) = open.pop_front() {
        let reply = session.get(&path).await;
        // The addresses of actions that would do nothing now say so.
        let idle = path.starts_with("/act/confirm-lost") || path.starts_with("/act/uncordon");
        assert!(reply.status == 200 || idle && reply.status == 400, "{path}: {}", reply.body);
        assert!(reply.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert!(!reply.body.contains(HOSTILE), "{path}");
        for link in reply.links() {
            if seen.insert(link.clone()) {
                assert!(seen.len() < 400, "the pages have a bounded number of addresses: {seen:?}");
                open.push_back(link);
            }
        }
    }
    for part in
        [web, "/on/member1", "/members/member3", "/decisions/default/", "/act/drain", "/policies"]
    {
        assert!(seen.iter().any(|path| path.contains(part)), "{part} is linked: {seen:?}");
    }

    let page = session.get("/").await.body;
    assert!(page.contains("atoll-up, term"), "the leader is shown");
    let page = session.get(web).await.body;
    for part in
        ["PropagationPolicy default/web", "svg class=\"timeline\"", "member3", "ClusterAffinity"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = session.get(&format!("{web}/on/member1")).await.body;
    assert!(page.contains("replicas: 2") && page.contains("readyReplicas"), "{page}");
    let page = session.get("/policies").await.body;
    assert!(
        page.contains("PropagationPolicy default/web")
            && page.contains("apps/v1 Deployment named web"),
        "{page}"
    );
    session.until("/members/member1", "cpu requested, percent").await;
    let page = session.get("/placement?name=web").await.body;
    assert!(page.contains("heat5"), "{page}");
    for (path, status) in [
        ("/members/nobody", 404),
        ("/members/..%2Fmember1", 404),
        ("/workloads/default/Deployment.apps/nobody", 404),
        ("/workloads/default/Nothing.example.com/web", 404),
        ("/decisions/default/00000000000000000000000000000000", 404),
        ("/decisions?since=tomorrow", 400),
        ("/diff?from=zz&to=zz", 400),
    ] {
        assert_eq!(session.get(path).await.status, status, "{path}");
    }

    // A change is announced and shown.
    let mut changes = session.follow().await;
    changes.next().await;
    scene.scale(6).await;
    changes.next().await;
    scene.until_ready(6).await;
    loop {
        let page = session.get("/decisions?kind=Deployment&trigger=Scale").await.body;
        if page.contains("member1 3") {
            break;
        }
        changes.next().await;
    }

    console_verb(&scene).await;

    // Plans and actions.
    let csrf = session.csrf().await;
    let plan = session.post("/what-if", &format!("csrf={csrf}&scale=default%2Fweb%3D8")).await;
    assert_eq!(plan.status, 200, "{}", plan.body);
    assert!(plan.body.contains("member1: 3 -&gt; 4"), "{}", plan.body);
    let plan = session.post("/what-if", &format!("csrf={csrf}&objects=kind%3A+%5B")).await;
    assert_eq!(plan.status, 422, "{}", plan.body);
    let preview = session.get("/act/drain?member=member1").await.body;
    assert!(preview.contains("member1: 3 -&gt; -"), "{preview}");
    let act = async |verb: &str| {
        let form = format!("csrf={csrf}&member=member1&confirm=member1");
        let reply = session.post(&format!("/act/{verb}"), &form).await;
        assert_eq!(reply.status, 303, "{}", reply.body);
    };
    let clusters = cluster_objects(&scene.hub);
    act("cordon").await;
    until(&clusters, "member1", "its taint", |cluster| taints(cluster) == 1).await;
    act("uncordon").await;
    until(&clusters, "member1", "no taint", |cluster| taints(cluster) == 0).await;
    let form = format!("csrf={csrf}&namespace=default&type=Deployment.apps&name=web&confirm=web");
    let reply = session.post("/act/rebalance", &form).await;
    assert_eq!(reply.status, 303, "{}", reply.body);
    until(&bindings(&scene.hub, "default"), "web-deployment", "the rebalance", |binding| {
        binding["spec"]["rescheduleTriggeredAt"].is_string()
    })
    .await;
}

/// `atoll console` as a process of its own.
async fn console_verb(scene: &Scene) {
    let refused = fail(&mut scene.federation.atoll(&["console", "--address", "0.0.0.0"]));
    assert!(refused.contains("loopback"), "{refused}");
    let lines = Lines::of("atoll console", scene.federation.atoll(&["console", "--read-only"]));
    let line = lines.until(&["console", "?token="]);
    let session = Session::enter(line.trim_start_matches("console").trim()).await;
    let page = session.get("/members/member1").await;
    assert!(
        page.body.contains("read-only") && page.body.contains("default/deployment/web"),
        "{page:?}"
    );
    let csrf = session.csrf().await;
    let form = format!("csrf={csrf}&member=member1&confirm=member1");
    assert_eq!(session.post("/act/cordon", &form).await.status, 403);
    // Limited to a namespace that has nothing.
    let only = scene.federation.atoll(&["console", "--namespace", "kube-public"]);
    let lines = Lines::of("atoll console", only);
    let line = lines.until(&["console", "?token="]);
    let session = Session::enter(line.trim_start_matches("console").trim()).await;
    assert!(session.get("/placement").await.body.contains("No workload matches"));
    assert!(session.get("/decisions").await.body.contains("No decision matches"));
    assert_eq!(session.get("/decisions?namespace=default").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_in_a_browser() {
    let Some(mut browser) = Browser::start().await else {
        println!("SKIPPED: no chromium is installed, so the console is not tested in a browser");
        return;
    };
    let scene = Scene::start().await;
    scene.furnish().await;
    let tab = &mut browser;
    tab.open(scene.console()).await;
    let origin = scene.console().split("/?").next().unwrap().to_owned();
    tab.until("location.search === ''", "the token leaves the address").await;

    // By clicking: overview, workload, decision, and back.
    tab.until("document.querySelectorAll('.tile').length === 3", "three members").await;
    tab.click("a[href='/decisions']").await;
    tab.until("document.querySelector('h1').innerText === 'Decisions'", "the decisions").await;
    tab.click("a[href='/workloads/default/Deployment.apps/web']").await;
    tab.until("!!document.querySelector('svg.timeline')", "the timeline").await;

    // A change appears without a reload.
    tab.evaluate("window.mark = 1").await;
    tab.until("document.getElementById('live-state').innerText === 'live'", "it is live").await;
    scene.scale(6).await;
    let text = "document.querySelector('dl.facts').innerText.includes('6')";
    tab.until(text, "six replicas without a reload").await;
    assert_eq!(tab.evaluate("window.mark").await, json!(1), "the page was not loaded again");

    // But not while a button is down: a link that is replaced gets no click.
    tab.evaluate(
        "document.querySelector('h1').dataset.old = 'yes'; window.changes = 0; \
         window.watched = new EventSource(document.getElementById('main').dataset.live); \
         watched.addEventListener('open', () => window.changes = 0); \
         watched.addEventListener('changed', () => window.changes += 1); \
         document.querySelector('h1').dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}))",
    )
    .await;
    tab.until("watched.readyState === 1 && changes > 0", "the first event of the stream").await;
    tab.evaluate("window.changes = 0").await;
    scene.scale(5).await;
    tab.until("changes > 0", "an event of the change").await;
    assert_eq!(tab.evaluate("document.querySelector('h1').dataset.old").await, json!("yes"));
    tab.evaluate("watched.close(); dispatchEvent(new PointerEvent('pointerup'))").await;
    tab.until("!document.querySelector('h1').dataset.old", "the page after the release").await;
    tab.shot("workload", Scheme::Light).await;
    tab.shot("workload", Scheme::Dark).await;

    // The use of a member is recorded. The page follows the hub: a sample that history gets just after the page was made is on
    // the next one.
    let member = format!("{origin}/members/member1");
    let used = "[...document.querySelectorAll('svg.timeline title')].map(title => title.textContent) \
                .some(text => text.startsWith('cpu') && !text.endsWith('now 0'))";
    tab.until_on(&member, used, "the use after the workloads came").await;

    for (name, path) in [
        ("overview", "/"),
        ("placement", "/placement"),
        ("decisions", "/decisions"),
        ("policies", "/policies"),
        ("member", "/members/member1"),
        ("copy", "/workloads/default/Deployment.apps/web/on/member1"),
        ("what-if", "/what-if?without=member1"),
        ("drain", "/act/drain?member=member1"),
    ] {
        tab.open(&format!("{origin}{path}")).await;
        tab.shot(name, Scheme::Light).await;
        tab.shot(name, Scheme::Dark).await;
        tab.names_everything(name).await;
        tab.fits_a_phone(name).await;
    }

    // Hostile text stays text.
    tab.open(&format!("{origin}/members/member3")).await;
    assert_ne!(tab.evaluate("document.title").await, json!("owned"));
    let shown = format!("document.body.innerText.includes({})", json!(HOSTILE));
    assert_eq!(tab.evaluate(&shown).await, json!(true), "the hostile region is shown as text");

    // An action, with the form.
    tab.open(&format!("{origin}/act/cordon?member=member3")).await;
    tab.evaluate("document.querySelector('input[name=confirm]').value = 'member3'").await;
    tab.click("button.danger").await;
    tab.until("!!document.querySelector('p.done')", "what was done").await;
    until(&cluster_objects(&scene.hub), "member3", "its taint", |c| taints(c) == 1).await;
    // What was done stays on the page when the page is read again.
    tab.evaluate("document.querySelector('h1').dataset.old = 'yes'").await;
    run(&mut scene.federation.atoll(&["uncordon", "member3"]));
    tab.until("!document.querySelector('h1').dataset.old", "the page is read again").await;
    assert_eq!(tab.evaluate("!!document.querySelector('p.done')").await, json!(true));

    // Without scripts everything is readable.
    tab.without_scripts(&format!("{origin}/")).await;
    tab.complaints(&origin);
}
