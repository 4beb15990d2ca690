//! Fields of objects that belong to the member.

use atoll_protocol::v1::ApplyResult;
use serde_json::json;

use crate::member::{deployment, deployment_path, marked};
use crate::setup::Setup;

#[tokio::test(start_paused = true)]
async fn replicas_stay_as_the_member_has_them_where_the_template_says_so() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let labelled = |hash: &str, replicas: i64| {
        let mut manifest = deployment("web", hash, replicas);
        manifest["metadata"]["labels"]["resourcetemplate.atoll.dev/retain-replicas"] =
            json!("true");
        manifest
    };
    let key = session.apply(&labelled("h1", 2)).await;
    let path = deployment_path("web");

    // While no other manager owns the count, the next version keeps it too.
    session.apply(&labelled("h2", 3)).await;
    assert_eq!(setup.member.get(&path).await.unwrap()["spec"]["replicas"], 2);

    // A count that was written on the member is not reverted.
    let scale = format!("{path}/scale");
    setup.member.edit(&scale, "kubectl", json!({"spec": {"replicas": 7}})).await;
    session.upsert(&labelled("h3", 4), false).await;
    let mut applied = session.applied(&key).await;
    while applied.hash != "h3" {
        applied = session.applied(&key).await;
    }
    assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 0));
    let web = setup.member.get(&path).await.unwrap();
    assert_eq!(web["spec"]["replicas"], 7);
    let owners = web["metadata"]["managedFields"].as_array().unwrap();
    let ours = owners.iter().find(|entry| entry["manager"] == "atoll").unwrap();
    assert!(ours["fieldsV1"]["f:spec"]["f:replicas"].is_null(), "{ours}");

    // Without the label it is a field like others.
    session.apply(&deployment("web", "h4", 4)).await;
    assert_eq!(setup.member.get(&path).await.unwrap()["spec"]["replicas"], 4);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_keeps_the_volume_that_the_member_bound() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let claim = |hash: &str| {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        marked(claim, hash, "claim-1")
    };
    session.apply(&claim("h1")).await;
    let path = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
    let bound = json!({"spec": {"volumeName": "pv-of-the-member"}});
    setup.member.edit(path, "kube-controller-manager", bound).await;
    let mut next = claim("h2");
    next["spec"]["volumeName"] = json!("pv-of-the-hub");
    next["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
    session.apply(&next).await;
    let data = setup.member.get(path).await.unwrap();
    assert_eq!(data["spec"]["volumeName"], "pv-of-the-member");
    assert_eq!(data["spec"]["resources"]["requests"]["storage"], "2Gi");
    agent.stop().await;
}
