//! The real kubectl, where it is installed, against a server on loopback TLS; no test needs `--validate=false`.

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use atoll_apiserver::{Options, Server};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{io::AsyncBufReadExt, process::Command};

use crate::tls::Listening;

/// Timeout of one command; on a busy machine kubectl itself needs a second or two.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Kubectl<'a> {
    pub(crate) folder: &'a Path,
}

impl Kubectl<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .env("HOME", self.folder)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn output(&self, arguments: &[&str]) -> Output {
        let run = self.command(arguments).output();
        tokio::time::timeout(LIMIT, run).await.expect("kubectl hangs").unwrap()
    }

    /// Output of a success.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        let out = self.output(arguments).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "kubectl {arguments:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    /// What a failure prints.
    pub(crate) async fn fail(&self, arguments: &[&str]) -> String {
        let out = self.output(arguments).await;
        assert!(!out.status.success(), "kubectl {arguments:?} succeeded");
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments).await).unwrap()
    }

    /// Writes a manifest; returns its file name.
    pub(crate) fn manifest(&self, name: &str, objects: &[Value]) -> String {
        let text: Vec<String> = objects.iter().map(Value::to_string).collect();
        std::fs::write(self.folder.join(name), text.join("\n---\n")).unwrap();
        name.to_owned()
    }
}

fn installed() -> bool {
    let found = std::process::Command::new("kubectl")
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|s| s.success()) {
        return true;
    }
    println!("skipped: kubectl is not installed");
    false
}

/// Lines of a table as words.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

pub(crate) fn nginx(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "nginx", "labels": {"app": "nginx"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "nginx"}},
            "template": {
                "metadata": {"labels": {"app": "nginx"}},
                "spec": {"containers": [{
                    "name": "nginx", "image": "nginx:1.25",
                    "ports": [{"containerPort": 80}, {"containerPort": 443}],
                }]},
            },
        },
    })
}

pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["example"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {
                        "type": "object", "description": "What the widget should be.",
                        "required": ["size"],
                        "properties": {
                            "size": {"type": "integer", "minimum": 1, "description": "How large it is."},
                            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        },
                    },
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

pub(crate) async fn with_server<F: AsyncFnOnce(&Kubectl<'_>, &Listening)>(test: F) {
    if !installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(Options::memory()).unwrap();
    let listening = Listening::start(folder.path(), server).await;
    std::fs::write(folder.path().join("kubeconfig"), &listening.kubeconfig).unwrap();
    test(&Kubectl { folder: folder.path() }, &listening).await;
    listening.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_walks_a_deployment_from_apply_to_delete() {
    with_server(async |kubectl, listening| {
        let file = kubectl.manifest("nginx.yaml", &[nginx(3)]);
        assert!(kubectl.run(&["apply", "-f", &file]).await.contains("created"));
        assert!(kubectl.run(&["apply", "-f", &file]).await.contains("unchanged"));
        let file = kubectl.manifest("nginx.yaml", &[nginx(2)]);
        assert!(kubectl.run(&["apply", "-f", &file]).await.contains("configured"));
        let ports = kubectl.json(&["get", "deploy/nginx", "-o", "json"]).await;
        assert_eq!(
            ports["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len(),
            2
        );

        let table = kubectl.run(&["get", "deployments"]).await;
        let rows = rows(&table);
        assert_eq!(rows[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
        assert_eq!(rows[1][..4], ["nginx", "0/2", "0", "0"]);
        let wide = kubectl.run(&["get", "deploy", "-A", "-o", "wide"]).await;
        assert!(wide.starts_with("NAMESPACE") && wide.contains("nginx:1.25"), "{wide}");
        assert_eq!(
            kubectl.run(&["get", "deploy", "-o", "name"]).await.trim(),
            "deployment.apps/nginx"
        );
        let path = "jsonpath={.items[*].spec.replicas}";
        assert_eq!(kubectl.run(&["get", "deploy", "-l", "app=nginx", "-o", path]).await, "2");
        let by_name = ["get", "deploy", "--field-selector", "metadata.name=other", "-o", "name"];
        assert_eq!(kubectl.run(&by_name).await, "");
        assert!(
            kubectl.run(&["get", "deploy/nginx", "-o", "yaml"]).await.contains("kind: Deployment")
        );

        kubectl.run(&["scale", "deploy/nginx", "--replicas=5"]).await;
        kubectl.run(&["label", "deploy/nginx", "tier=web"]).await;
        kubectl.run(&["annotate", "deploy/nginx", "note=hello"]).await;
        kubectl.run(&["set", "image", "deploy/nginx", "nginx=nginx:1.26"]).await;
        kubectl.run(&["patch", "deploy/nginx", "-p", r#"{"spec":{"paused":false}}"#]).await;
        kubectl
            .run(&[
                "patch",
                "deploy/nginx",
                "--type=merge",
                "-p",
                r#"{"spec":{"minReadySeconds":1}}"#,
            ])
            .await;
        let ops = r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#;
        kubectl.run(&["patch", "deploy/nginx", "--type=json", "-p", ops]).await;
        let now = kubectl.json(&["get", "deploy/nginx", "-o", "json"]).await;
        assert_eq!(
            (&now["spec"]["replicas"], &now["metadata"]["labels"]["tier"]),
            (&json!(4), &json!("web"))
        );
        assert_eq!(now["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.26");

        let described = kubectl.run(&["describe", "deploy/nginx"]).await;
        assert!(described.contains("4 desired") && described.contains("Events:"), "{described}");

        // A rollout ends when the status says so.
        let mut waiting = kubectl
            .command(&["rollout", "status", "deploy/nginx", "--timeout=50s"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = tokio::io::BufReader::new(waiting.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(first.contains("Waiting for deployment"), "{first}");
        let generation = now["metadata"]["generation"].as_i64().unwrap();
        let status = json!({"status": {
            "observedGeneration": generation, "replicas": 4, "updatedReplicas": 4,
            "readyReplicas": 4, "availableReplicas": 4,
            "conditions": [{"type": "Available", "status": "True"}],
        }});
        let deployments: Api<Deployment> = Api::default_namespaced(listening.client().await);
        deployments
            .patch_status("nginx", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
        let end = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(end.contains("successfully rolled out"), "{end}");
        assert!(waiting.wait().await.unwrap().success());
        kubectl.run(&["wait", "--for=condition=Available", "deploy/nginx", "--timeout=30s"]).await;

        assert!(kubectl.run(&["delete", "-f", &file, "--timeout=30s"]).await.contains("deleted"));
        assert!(kubectl.fail(&["get", "deploy/nginx"]).await.contains("NotFound"));
        kubectl.run(&["create", "deployment", "web", "--image=nginx"]).await;
        let foreground = ["delete", "deploy/web", "--cascade=foreground", "--timeout=30s"];
        kubectl.run(&foreground).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_installs_a_crd_and_is_told_what_is_wrong_with_objects() {
    with_server(async |kubectl, _| {
        let crd = kubectl.manifest("crd.yaml", &[widgets()]);
        kubectl.run(&["apply", "-f", &crd]).await;
        let wait = ["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s"];
        kubectl.run(&wait).await;
        let widget = |name: &str, spec: Value| {
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
        };
        let good = kubectl.manifest("good.yaml", &[widget("good", json!({"size": 3}))]);
        kubectl.run(&["apply", "-f", &good]).await;
        assert!(kubectl.run(&["apply", "-f", &good]).await.contains("unchanged"));
        let table = kubectl.run(&["get", "wd", "-o", "wide"]).await;
        assert_eq!(rows(&table), [vec!["NAME", "SIZE", "COLOR"], vec!["good", "3", "red"]]);
        assert_eq!(kubectl.run(&["get", "example", "-o", "name"]).await.trim(), "widget.example.com/good");

        for (spec, complaint) in [
            (json!({"size": "three"}), "spec.size"),
            (json!({"size": 0}), "spec.size"),
            (json!({"size": 1, "color": "green"}), "Unsupported value: \"green\""),
            (json!({}), "spec.size: Required value"),
            (json!({"size": 1, "typo": 1}), "unknown field \"spec.typo\""),
        ] {
            let bad = kubectl.manifest("bad.yaml", &[widget("bad", spec)]);
            let error = kubectl.fail(&["apply", "-f", &bad]).await;
            assert!(error.contains(complaint), "{error}");
        }
        kubectl.run(&["scale", "widget/good", "--replicas=7"]).await;
        let path = "jsonpath={.spec.size}";
        assert_eq!(kubectl.run(&["get", "widget", "good", "-o", path]).await, "7");

        let explained = kubectl.run(&["explain", "widget.spec"]).await;
        assert!(explained.contains("What the widget should be.") && explained.contains("size"), "{explained}");
        let explained = kubectl.run(&["explain", "deployment.spec.strategy"]).await;
        assert!(explained.contains("rollingUpdate"), "{explained}");
        let resources = kubectl.run(&["api-resources"]).await;
        let line = resources.lines().find(|l| l.starts_with("widgets")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["widgets", "wd", "example.com/v1", "true", "Widget"]
        );
        assert!(kubectl.run(&["describe", "widget", "good"]).await.contains("Size:"));
        kubectl.run(&["delete", "crd", "widgets.example.com", "--timeout=30s"]).await;
        let error = kubectl.fail(&["get", "widgets"]).await;
        // Which of the two depends on kubectl's discovery cache.
        let gone = ["the server doesn't have a resource type", "could not find the requested resource"];
        assert!(gone.iter().any(|g| error.contains(g)), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_server_side_and_sees_conflicts() {
    with_server(async |kubectl, _| {
        let file = kubectl.manifest("nginx.yaml", &[nginx(3)]);
        let apply = ["apply", "--server-side", "-f", &file];
        assert!(kubectl.run(&apply).await.contains("serverside-applied"));
        kubectl.run(&["scale", "deploy/nginx", "--replicas=5"]).await;
        let error = kubectl.fail(&apply).await;
        assert!(error.contains("conflict with") && error.contains(".spec.replicas"), "{error}");
        kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", &file]).await;
        let path = "jsonpath={.spec.replicas}";
        assert_eq!(kubectl.run(&["get", "deploy/nginx", "-o", path]).await, "3");
        let managers = "jsonpath={.metadata.managedFields[*].manager}";
        let shown =
            kubectl.run(&["get", "deploy/nginx", "--show-managed-fields", "-o", managers]).await;
        assert_eq!(shown, "kubectl");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_creates_lists_watches_edits_and_asks() {
    with_server(async |kubectl, _| {
        kubectl.run(&["create", "namespace", "shop"]).await;
        kubectl.run(&["create", "configmap", "settings", "-n", "shop", "--from-literal=a=1"]).await;
        kubectl.run(&["create", "secret", "generic", "s", "-n", "shop", "--from-literal=p=x"]).await;
        kubectl.run(&["create", "service", "clusterip", "svc", "-n", "shop", "--tcp=80:8080"]).await;
        kubectl.run(&["create", "serviceaccount", "robot", "-n", "shop"]).await;
        assert!(kubectl.run(&["create", "token", "robot", "-n", "shop"]).await.contains('.'));
        kubectl.run(&["run", "box", "-n", "shop", "--image=busybox"]).await;
        let table = kubectl.run(&["get", "pods", "-n", "shop"]).await;
        assert_eq!(rows(&table)[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
        assert_eq!(rows(&table)[1][..4], ["box", "0/1", "Pending", "0"]);
        let all = kubectl.run(&["get", "all", "-n", "shop"]).await;
        assert!(all.contains("pod/box") && all.contains("service/svc"), "{all}");
        kubectl.run(&["describe", "pod", "box", "-n", "shop"]).await;
        kubectl.run(&["describe", "namespace", "shop"]).await;
        assert_eq!(kubectl.run(&["auth", "can-i", "delete", "pods"]).await.trim(), "yes");
        assert!(kubectl.run(&["auth", "whoami"]).await.contains("kubernetes-admin"));
        assert!(kubectl.run(&["version"]).await.contains("Server Version: v1.33"));
        kubectl.run(&["cluster-info"]).await;

        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
            "involvedObject": {"kind": "Pod", "name": "box", "namespace": "shop", "apiVersion": "v1"},
            "reason": "Scheduled", "message": "it was", "type": "Normal", "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let file = kubectl.manifest("event.yaml", &[event]);
        kubectl.run(&["create", "-f", &file]).await;
        let events = kubectl.run(&["get", "events", "-n", "shop"]).await;
        assert!(events.contains("Scheduled") && events.contains("pod/box"), "{events}");
        assert!(kubectl.run(&["events", "-n", "shop", "--for", "pod/box"]).await.contains("it was"));

        // -w prints rows as they come.
        let mut watching = kubectl
            .command(&["get", "configmaps", "-n", "shop", "-w"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = tokio::io::BufReader::new(watching.stdout.take().unwrap()).lines();
        let mut line = async || {
            tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap()
        };
        assert!(line().await.starts_with("NAME"));
        assert!(line().await.starts_with("settings"));
        kubectl.run(&["create", "configmap", "later", "-n", "shop"]).await;
        assert!(line().await.starts_with("later"));
        watching.kill().await.unwrap();

        let editor = kubectl.folder.join("editor.sh");
        std::fs::write(&editor, "#!/bin/sh\nsed -i 's/a: \"1\"/a: \"2\"/' \"$1\"\n").unwrap();
        let mut permissions = std::fs::metadata(&editor).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&editor, permissions).unwrap();
        let edited = kubectl
            .command(&["edit", "configmap", "settings", "-n", "shop"])
            .env("KUBE_EDITOR", &editor)
            .output()
            .await
            .unwrap();
        assert!(edited.status.success(), "{edited:?}");
        let path = "jsonpath={.data.a}";
        assert_eq!(kubectl.run(&["get", "cm/settings", "-n", "shop", "-o", path]).await, "2");
        kubectl.run(&["delete", "namespace", "shop", "--timeout=30s"]).await;
        assert!(kubectl.fail(&["get", "namespace", "shop"]).await.contains("NotFound"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_generators_and_node_commands_work() {
    with_server(async |kubectl, _| {
        for arguments in [
            &["create", "deployment", "web", "--image=nginx:1", "--replicas=2"][..],
            &["expose", "deployment", "web", "--port=80"],
            &["autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu-percent=50"],
            &["create", "job", "once", "--image=busybox"],
            &["create", "cronjob", "often", "--image=busybox", "--schedule=*/5 * * * *"],
            &["create", "job", "now", "--from=cronjob/often"],
            &["create", "role", "reader", "--verb=get", "--resource=pods"],
            &["create", "rolebinding", "read", "--role=reader", "--serviceaccount=default:robot"],
            &["create", "clusterrole", "all", "--verb=*", "--resource=*"],
            &["create", "clusterrolebinding", "admins", "--clusterrole=all", "--group=admins"],
            &["create", "quota", "q", "--hard=pods=5"],
            &["create", "ingress", "in", "--rule=a.example.com/=web:80"],
            &["create", "poddisruptionbudget", "pdb", "--selector=app=web", "--min-available=1"],
            &["create", "priorityclass", "high", "--value=10"],
            &["rollout", "restart", "deployment/web"],
            &["set", "env", "deployment/web", "A=b"],
            &["set", "resources", "deployment/web", "--limits=cpu=200m,memory=64Mi"],
            &["rollout", "pause", "deployment/web"],
            &["rollout", "resume", "deployment/web"],
            &["get", "deploy,svc,hpa,job,cronjob,role,rolebinding,quota,ingress,pdb", "-o", "wide"],
            &[
                "describe",
                "svc/web",
                "hpa/web",
                "job/once",
                "cronjob/often",
                "ingress/in",
                "pdb/pdb",
                "quota/q",
            ],
        ] {
            kubectl.run(arguments).await;
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        });
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "busybox"}]},
        });
        let file = kubectl.manifest("node.yaml", &[node, pod.clone()]);
        kubectl.run(&["apply", "-f", &file]).await;
        kubectl.run(&["taint", "node", "n1", "a=b:NoSchedule"]).await;
        kubectl.run(&["cordon", "n1"]).await;
        let table = kubectl.run(&["get", "nodes"]).await;
        assert_eq!(rows(&table)[1][1], "Ready,SchedulingDisabled");
        kubectl.run(&["describe", "node", "n1"]).await;
        kubectl.run(&["drain", "n1", "--force", "--timeout=30s"]).await;
        assert!(kubectl.fail(&["get", "pod", "p"]).await.contains("NotFound"));
        kubectl.run(&["uncordon", "n1"]).await;

        pod["spec"]["containers"][0]["image"] = "busybox:2".into();
        let file = kubectl.manifest("pod.yaml", &[pod]);
        kubectl.run(&["create", "-f", &file]).await;
        kubectl.run(&["replace", "--force", "-f", &file, "--timeout=30s"]).await;
        let jsonpath = "--for=jsonpath={.spec.nodeName}=n1";
        kubectl.run(&["wait", jsonpath, "pod/p", "--timeout=30s"]).await;
        let mut waiting = kubectl
            .command(&["wait", "--for=delete", "pod/p", "--timeout=50s"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        kubectl.run(&["delete", "pods", "--all", "--timeout=30s"]).await;
        assert!(tokio::time::timeout(LIMIT, waiting.wait()).await.unwrap().unwrap().success());
        let who = kubectl.run(&["auth", "whoami", "--as=someone", "--as-group=team"]).await;
        assert!(who.contains("someone") && who.contains("team"), "{who}");
        kubectl.run(&["delete", "all", "--all", "--timeout=30s"]).await;
        assert!(kubectl.run(&["get", "--raw", "/readyz"]).await.contains("ok"));
    })
    .await;
}
