//! The leader's own Pod carries a label that the agents' Service selects. While the label is wrong, agents need some
//! extra attempts: a controller that does not lead refuses them at once.

use std::time::Duration;

use atoll_api::marks;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::leadership::Leadership;
use crate::manager;

/// Limit of one write.
const LIMIT: Duration = Duration::from_secs(5);
/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(2);

/// The Pod that this process runs in.
#[derive(Clone)]
pub struct OwnPod {
    /// The Pod's cluster, which need not be the hub.
    pub client: Client,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Keeps the label in step with the leadership until cancelled; then removes it.
pub(crate) async fn keep(
    pod: OwnPod,
    mut state: watch::Receiver<Option<Leadership>>,
    token: CancellationToken,
) {
    // The label on the Pod; unknown at first, because an earlier process may have left one.
    let mut labelled = None;
    loop {
        let leads = state.borrow_and_update().is_some();
        if labelled != Some(leads) {
            labelled = write(&pod, leads).await.then_some(leads);
        }
        let again = async {
            if labelled == Some(leads) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RETRY).await;
        };
        tokio::select! {
            biased;
            () = token.cancelled() => break,
            changed = state.changed() => if changed.is_err() { break },
            () = again => (),
        }
    }
    if labelled != Some(false) {
        write(&pod, false).await;
    }
}

/// Writes the label; returns whether that succeeded.
async fn write(pod: &OwnPod, leads: bool) -> bool {
    let pods: Api<Pod> = Api::namespaced(pod.client.clone(), &pod.namespace);
    let value = leads.then_some("true");
    let patch = Patch::Merge(json!({"metadata": {"labels": {marks::LEADER: value}}}));
    let params = manager::patch(marks::MANAGER);
    let error = match timeout(LIMIT, pods.patch_metadata(&pod.name, &params, &patch)).await {
        Ok(Ok(_)) => return true,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    tracing::warn!(pod = pod.name, error, "the Pod's label {} is not written", marks::LEADER);
    false
}

#[cfg(test)]
mod tests {
    use atoll_apiserver::{Options, Server};
    use kube::api::PostParams;
    use tokio::time::Instant;

    use super::*;
    use crate::leader::term::LeaderTerm;

    #[tokio::test(start_paused = true)]
    async fn only_the_leaders_pod_has_the_label() {
        let server = Server::open(Options::memory()).unwrap();
        let pods: Api<Pod> = Api::namespaced(server.client(), "atoll-system");
        // Left by an earlier process of the Pod.
        let left: Pod = serde_json::from_value(json!({
            "metadata": {"name": "atoll-0", "labels": {marks::LEADER: "true", "app": "atoll"}},
            "spec": {"containers": [{"name": "atoll", "image": "atoll"}]},
        }))
        .unwrap();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(server.client());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "atoll-system"}}));
        namespaces.create(&PostParams::default(), &namespace.unwrap()).await.unwrap();
        pods.create(&PostParams::default(), &left).await.unwrap();
        let (leads, state) = watch::channel(None);
        let token = CancellationToken::new();
        let pod = OwnPod {
            client: server.client(),
            namespace: "atoll-system".to_owned(),
            name: "atoll-0".to_owned(),
        };
        let keeping = tokio::spawn(keep(pod, state, token.clone()));
        let has = async |wanted: bool| {
            let look = async {
                loop {
                    let labels = pods.get("atoll-0").await.unwrap().metadata.labels.unwrap();
                    assert_eq!(labels["app"], "atoll");
                    if labels.contains_key(marks::LEADER) == wanted {
                        return;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            };
            timeout(Duration::from_secs(60), look).await.expect("the label follows");
        };
        has(false).await;
        for _ in 0..2 {
            leads.send_replace(Some(Leadership {
                term: LeaderTerm::new(1),
                deadline: Instant::now(),
            }));
            has(true).await;
            leads.send_replace(None);
            has(false).await;
        }
        leads.send_replace(Some(Leadership { term: LeaderTerm::new(2), deadline: Instant::now() }));
        has(true).await;
        token.cancel();
        keeping.await.unwrap();
        has(false).await;
    }
}
