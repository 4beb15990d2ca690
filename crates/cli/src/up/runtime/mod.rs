//! What the kubelets and the metrics server of a simulated member answer: logs, sessions, and use of resources.

mod exec;
mod forward;
mod logs;
mod metrics;
mod terminal;
mod wire;

use std::sync::Arc;

use atoll_api::Clock;
use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::Body;
use atoll_apiserver::{Kubelets, PodRequest, Server};
use atoll_simulator::runtime::Disks;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Response;
use kube::Client;

use self::metrics::{Metrics, Of};

/// Lets a member's server answer these requests. The client reaches the member over its socket: one within the process
/// would keep the server alive.
pub(super) fn mount(server: &Server, client: &Client, clock: &Clock) {
    for of in [Of::Nodes, Of::Pods] {
        server.mount(Arc::new(Metrics { of, client: client.clone(), clock: clock.clone() }));
    }
    let disks = Arc::<Disks>::default();
    server.set_kubelets(Arc::new(Runtime { client: client.clone(), clock: clock.clone(), disks }));
}

/// The kubelets of a simulated member.
struct Runtime {
    client: Client,
    clock: Clock,
    /// What users copied into containers.
    disks: Arc<Disks>,
}

impl Kubelets for Runtime {
    fn answer(&self, request: PodRequest) -> BoxFuture<'_, Result<Response<Body>, ApiError>> {
        async move {
            match request.subresource.as_str() {
                "log" => logs::answer(&self.client, &self.clock, request),
                "exec" => exec::answer(request, &self.disks),
                "attach" => logs::attach(&self.client, &self.clock, request),
                "portforward" => forward::answer(&self.client, request),
                other => Err(ApiError::bad_request(format!(
                    "pods/{other} is not possible on simulated members"
                ))),
            }
        }
        .boxed()
    }
}
