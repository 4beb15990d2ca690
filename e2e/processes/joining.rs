//! Registering members: `atoll join` and the verbs around it, on a hub without members.

use atoll_api::Clock;
use atoll_controller::members;
use atoll_protocol::identity::TrustDomain;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::cli::{atoll, fail, run};
use crate::support::federation::cluster_objects;
use crate::support::servers::ApiServer;

/// Taints of a Cluster as `key=value:effect`, ascending.
fn taints(cluster: &Value) -> Vec<String> {
    let list = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
    let brief =
        |t: &Value| format!("{}={}:{}", text(&t["key"]), text(&t["value"]), text(&t["effect"]));
    let mut taints: Vec<_> = list.iter().map(brief).collect();
    taints.sort();
    taints
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_registered_cordoned_and_invited_again() {
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    let verb = |args: &[&str]| {
        let mut command = atoll();
        command.args(args).arg("--kubeconfig").arg(&hub.kubeconfig);
        command
    };
    let clusters = cluster_objects(&hub.client);
    let cluster = async || serde_json::to_value(clusters.get("east").await.unwrap()).unwrap();

    // Without a controller no member can join, and nothing is left behind.
    let join = ["join", "east", "--address", "hub.example:7443"];
    assert!(fail(&mut verb(&join)).contains("start `atoll controller` first"));
    assert!(clusters.get_opt("east").await.unwrap().is_none());
    let domain = TrustDomain::new("atoll.local").unwrap();
    let authority = members::load_or_create(&hub.client, &Clock::system(), &domain).await.unwrap();

    // Errors name the flag and the fix, before anything is written.
    for (flag, value, fix) in [
        ("--taints", "gpu", "gpu=only:NoSchedule"),
        ("--labels", "prod", "KEY=VALUE"),
        ("--address", "hub.example", "HOST:PORT"),
        ("--token-life", "1441", "1..=1440"),
    ] {
        let refused = fail(verb(&join).args([flag, value]));
        assert!(refused.contains(flag) && refused.contains(fix), "{refused}");
    }
    assert!(clusters.get_opt("east").await.unwrap().is_none());

    let described = [
        "--provider",
        "acme",
        "--region",
        "north",
        "--zones",
        "a,b",
        "--labels",
        "env=prod,tier=1",
        "--taints",
        "gpu=only:NoSchedule,old:NoExecute",
        "-o",
        "json",
    ];
    let printed: Value = serde_json::from_str(&run(verb(&join).args(described))).unwrap();
    assert_eq!(printed["caHash"], authority.signing().hash().to_string());
    let token = printed["token"].as_str().unwrap();
    let command = printed["command"].as_str().unwrap();
    assert!(command.contains("--address hub.example:7443"), "{command}");
    assert!(command.contains("--token-file -") && !command.contains(token), "{command}");
    let made = cluster().await;
    assert_eq!(made["metadata"]["labels"], json!({"env": "prod", "tier": "1"}));
    assert_eq!(made["spec"]["provider"], "acme");
    assert_eq!(made["spec"]["region"], "north");
    assert_eq!(made["spec"]["zones"], json!(["a", "b"]));
    assert_eq!(taints(&made), ["gpu=only:NoSchedule", "old=:NoExecute"]);

    // No agent came: another token, and no silent change of what is there.
    let refused = fail(verb(&join).args(["--region", "south"]));
    assert!(refused.contains("--region") && refused.contains("kubectl edit"), "{refused}");
    let manifest = run(verb(&join).args(["-o", "yaml", "--image", "registry.example/atoll:1"]));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
    let kinds: Vec<_> = documents.iter().map(|d| d["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["Namespace", "ServiceAccount"]);
    assert_eq!(kinds[kinds.len() - 2..], ["Secret", "Deployment"]);
    let pod = &documents.last().unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/atoll:1");
    assert_eq!(pod["serviceAccountName"], documents[1]["metadata"]["name"]);
    assert!(fail(&mut verb(&["rejoin", "west", "--address", "a:1"])).contains("atoll join west"));

    // Tokens: what is out, and how it is taken back.
    let list = || {
        let text = run(&mut verb(&["token", "list", "-o", "json"]));
        let list: Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains(token.split_once('.').unwrap().1), "a secret is shown");
        list["tokens"].as_array().unwrap().clone()
    };
    assert_eq!(list().len(), 2);
    let again: Value =
        serde_json::from_str(&run(&mut verb(&["token", "create", "east", "-o", "json"]))).unwrap();
    let id = again["token"].as_str().unwrap().split_once('.').unwrap().0;
    let tokens = list();
    let named = tokens.iter().find(|token| token["id"] == id).unwrap();
    assert_eq!((&named["cluster"], &named["state"]), (&json!("east"), &json!("Open")));
    run(&mut verb(&["token", "revoke", id]));
    assert!(list().iter().all(|token| token["id"] != id));
    assert!(fail(&mut verb(&["token", "revoke", id])).contains("atoll token list"));
    assert!(fail(&mut verb(&["token", "create", "west"])).contains("atoll join west"));

    // A cordon leaves other taints alone, and says so when it cannot go.
    run(&mut verb(&["cordon", "east"]));
    let cordoned = "cluster.atoll.dev/cordoned=:NoSchedule";
    assert_eq!(taints(&cluster().await), [cordoned, "gpu=only:NoSchedule", "old=:NoExecute"]);
    run(&mut verb(&["uncordon", "east"]));
    assert_eq!(taints(&cluster().await), ["gpu=only:NoSchedule", "old=:NoExecute"]);
    // A drain is two taints, which a cordon leaves as they are and an uncordon takes away.
    let nothing = run(&mut verb(&["drain", "east", "--dry-run"]));
    assert!(nothing.contains("Nothing runs on east"), "{nothing}");
    run(&mut verb(&["drain", "east", "--no-wait"]));
    run(&mut verb(&["cordon", "east"]));
    let drained = "cluster.atoll.dev/drain=:NoExecute";
    let expected = [cordoned, drained, "gpu=only:NoSchedule", "old=:NoExecute"];
    assert_eq!(taints(&cluster().await), expected);
    let unheard = fail(&mut verb(&["drain", "east", "--timeout", "1s"]));
    assert!(unheard.contains("no controller reported any progress"), "{unheard}");
    run(&mut verb(&["uncordon", "east"]));
    assert_eq!(taints(&cluster().await), ["gpu=only:NoSchedule", "old=:NoExecute"]);
    let theirs = json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"},
        "spec": {"taints": [{"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"}]},
    });
    let params = PatchParams::apply("gitops");
    clusters.patch("east", &params, &Patch::Apply(&theirs)).await.unwrap();
    run(&mut verb(&["cordon", "east"]));
    assert!(fail(&mut verb(&["uncordon", "east"])).contains("kubectl edit cluster east"));
    assert!(fail(&mut verb(&["cordon", "west"])).contains("atoll get members"));
}
