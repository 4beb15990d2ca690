//! The output of `kubectl get -o yaml` can be applied, and applied again after a change.

use serde_json::{Value, json};

use crate::kubectl::{nginx, widgets, with_server};

/// A Deployment with two ways of saying the same, a Service, a ConfigMap and a custom object, as one List.
fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_the_list_that_it_prints() {
    with_server(async |kubectl, _| {
        let crd = kubectl.manifest("crd.yaml", &[widgets()]);
        kubectl.run(&["apply", "-f", &crd]).await;
        let wait =
            ["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s"];
        kubectl.run(&wait).await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "nginx"}, "ports": [{"port": 80, "targetPort": "http"}]},
        });
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
            "data": {"a": "1"}, "binaryData": {"b": "AA=="},
        });
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"size": 2},
        });
        let all = [nginx(2), service, settings, widget];
        let file = kubectl.manifest("list.json", &[list(&all)]);
        let created = kubectl.run(&["apply", "-f", &file]).await;
        assert_eq!(created.matches(" created").count(), 4, "{created}");

        let get = ["get", "deployments,services,configmaps,widgets", "-o", "yaml"];
        let printed = kubectl.run(&get).await;
        assert!(printed.contains("kind: List"), "{printed}");
        std::fs::write(kubectl.folder.join("printed.yaml"), printed).unwrap();
        let again = kubectl.run(&["apply", "-f", "printed.yaml"]).await;
        assert_eq!(again.lines().count(), 4, "{again}");

        let mut wrong = nginx(2);
        wrong["spec"]["replica"] = 3.into();
        let file = kubectl.manifest("wrong.json", &[list(&[wrong])]);
        let error = kubectl.fail(&["apply", "-f", &file]).await;
        assert!(error.contains("replica"), "the field that does not exist is named: {error}");
    })
    .await;
}

/// kubectl computes patches with the merge keys of the server's schemas: without them it would replace whole lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_apply_merges_lists_by_their_keys_and_keeps_what_others_added() {
    with_server(async |kubectl, _| {
        let file = kubectl.manifest("nginx.yaml", &[nginx(1)]);
        kubectl.run(&["apply", "-f", &file]).await;
        // Another owner adds a container, a volume and a variable, which are in no manifest.
        let added = json!({"spec": {"template": {"spec": {
            "containers": [
                {"name": "sidecar", "image": "sidecar:1"},
                {"name": "nginx", "env": [{"name": "INJECTED", "value": "1"}]},
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        }}}});
        kubectl.run(&["patch", "deploy/nginx", "-p", &added.to_string()]).await;

        let mut changed = nginx(1);
        changed["spec"]["strategy"] = json!({"type": "Recreate"});
        let pod = &mut changed["spec"]["template"]["spec"];
        pod["containers"][0]["image"] = "nginx:1.26".into();
        pod["containers"][0]["ports"] = json!([{"containerPort": 443}]);
        pod["containers"][0]["env"] = json!([{"name": "OWN", "value": "2"}]);
        let file = kubectl.manifest("nginx.yaml", &[changed]);
        let out = kubectl.output(&["apply", "-f", &file]).await;
        let warned = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && !warned.contains("openapi"), "{warned}");

        let now = kubectl.json(&["get", "deploy/nginx", "-o", "json"]).await;
        assert_eq!(now["spec"]["strategy"], json!({"type": "Recreate"}));
        let pod = &now["spec"]["template"]["spec"];
        let named = |list: &Value, name: &str| {
            let found = list.as_array().unwrap().iter().find(|item| item["name"] == name);
            found.unwrap_or_else(|| panic!("no {name}: {list}")).clone()
        };
        let own = named(&pod["containers"], "nginx");
        named(&pod["containers"], "sidecar");
        named(&pod["volumes"], "scratch");
        named(&own["env"], "INJECTED");
        assert_eq!(named(&own["env"], "OWN")["value"], "2");
        assert_eq!(own["image"], "nginx:1.26");
        assert_eq!(own["ports"], json!([{"containerPort": 443, "protocol": "TCP"}]));
    })
    .await;
}
