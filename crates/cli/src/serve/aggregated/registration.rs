//! The APIServices of history and of members: they must name the authority of the serving certificate.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::{VERSION, marks};
use atoll_protocol::authorities::Authorities;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::proxy::HUB_TIMEOUT;

/// Check interval: the APIService may be applied again.
const LOOK: Duration = Duration::from_secs(60);
/// Pause after a failed check.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps `spec.caBundle` of a group's APIService right until the token is cancelled. The manifests create it; this code
/// only updates it.
pub(super) async fn keep(
    client: Client,
    group: &'static str,
    mut authorities: watch::Receiver<Option<Arc<Authorities>>>,
    token: CancellationToken,
) {
    let services: Api<APIService> = Api::all(client);
    let name = format!("{VERSION}.{group}");
    let mut logged = None;
    loop {
        // All that are trusted: controllers change to a new one within seconds of each other.
        let bundle = authorities.borrow_and_update().as_ref().map(|all| all.bundle_pem());
        let Some(bundle) = bundle else { return };
        let pause = match look(&services, &name, &bundle).await {
            Ok(()) => {
                logged = None;
                LOOK
            }
            Err(why) => {
                if logged.as_ref() != Some(&why) {
                    tracing::warn!(
                        api_service = name,
                        why,
                        "an API of Atoll is not registered on the hub"
                    );
                    logged = Some(why);
                }
                RETRY
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            Ok(()) = authorities.changed() => (),
            () = tokio::time::sleep(pause) => (),
        }
    }
}

async fn look(services: &Api<APIService>, name: &str, authority: &str) -> Result<(), String> {
    let attempt = async {
        let Some(service) = services.get_opt(name).await? else { return Ok(false) };
        let bundle = service.spec.and_then(|spec| spec.ca_bundle);
        let wanted = k8s_openapi::ByteString(authority.as_bytes().to_vec());
        if bundle.as_ref() != Some(&wanted) {
            let patch = json!({"spec": {"caBundle": wanted}});
            let params = PatchParams {
                field_manager: Some(marks::MANAGER.to_owned()),
                ..PatchParams::default()
            };
            services.patch(name, &params, &Patch::Merge(&patch)).await?;
            tracing::info!(api_service = name, "caBundle updated");
        }
        Ok::<_, kube::Error>(true)
    };
    match tokio::time::timeout(HUB_TIMEOUT, attempt).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => {
            Err("there is no such APIService: apply deploy/controller/api.yaml".to_owned())
        }
        // The hub's message is a sentence; the whole status would be a page.
        Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the hub gave no answer in time".to_owned()),
    }
}
