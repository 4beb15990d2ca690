//! The controller of the day.

use std::sync::Arc;

use atoll_api::{Clock, marks};
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{Arrival, HealthTimes, Incoming, Metrics};
use atoll_controller::schedule::Place;
use atoll_controller::{Controller, ControllerError, Hub, MembersSide};
use atoll_history::MemoryStore;
use atoll_protocol::identity::TrustDomain;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::tap::Power;

/// Connections that may wait for the controller.
const BACKLOG: usize = 64;

/// What every controller of a World is made of.
pub(super) struct Plan {
    pub(super) clock: Clock,
    pub(super) history: Arc<MemoryStore>,
    pub(super) health: HealthTimes,
    pub(super) trust_domain: TrustDomain,
    pub(super) seed: u64,
}

/// A controller that runs.
pub(super) struct Running {
    token: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
    power: Power,
    pub(super) arrivals: mpsc::Sender<Arrival>,
}

impl Running {
    /// Starts the controller with this number, on a client whose `power` is its network to the hub.
    pub(super) fn start(
        plan: &Plan,
        client: kube::Client,
        power: Power,
        number: u32,
    ) -> Result<Self, ControllerError> {
        let (arrivals, incoming) = mpsc::channel(BACKLOG);
        let token = CancellationToken::new();
        let hub = Hub {
            client,
            clock: plan.clock.clone(),
            retention: atoll_history::RETENTION,
            history: plan.history.clone(),
            candidate: Candidate {
                namespace: marks::SYSTEM_NAMESPACE.to_owned(),
                name: "atoll-controller".to_owned(),
                place: "world".to_owned(),
                incarnation: number.to_string(),
                exclusive_place: true,
                times: LeaseTimes::default(),
            },
            profiles: Default::default(),
            place: Place::Task,
            seed: plan.seed,
        };
        let members = MembersSide {
            incoming: Incoming::Streams(incoming),
            health: plan.health,
            trust_domain: plan.trust_domain.clone(),
            metrics: Metrics::default(),
        };
        let controller = Controller::new(hub, members, token.clone())?;
        let task = tokio::spawn(controller.run());
        Ok(Self { token, task, power, arrivals })
    }

    /// Lets it end in order.
    pub(super) async fn stop(self) {
        self.token.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("the controller ended: {error}"),
            Err(error) => panic!("the controller failed: {error}"),
        }
    }

    /// Takes the hub away from it at once, so that nothing that is under way is written any more, as if it had died.
    pub(super) async fn crash(self) {
        self.power.set(false);
        self.token.cancel();
        // How it ends without a hub is its own matter; that it ends is not.
        if let Err(error) = self.task.await {
            panic!("the controller failed: {error}");
        }
    }
}
