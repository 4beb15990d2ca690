//! The running controllers.

use std::num::NonZero;
use std::sync::Arc;

use atoll_api::{RunsOn, marks};
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{Arrival, HealthTimes, Incoming, Metrics};
use atoll_controller::schedule::Profiles;
use atoll_controller::{Controller, ControllerError, Hub, MembersSide, Planner};
use atoll_history::MemoryStore;
use atoll_protocol::identity::TrustDomain;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::clocks::Clocks;
use super::database::Reached;
use super::line::{Line, Lists, Who};

/// Bindings that a new leader passes on at a time: few, so that a World has several slices.
const SLICE: NonZero<usize> = NonZero::new(2).expect("it is not zero");
/// Connections waiting for a controller.
const BACKLOG: usize = 64;

/// What every controller of a World is built from.
pub(super) struct Plan {
    pub(super) clocks: Clocks,
    pub(super) lists: Lists,
    pub(super) history: Arc<MemoryStore>,
    pub(super) health: HealthTimes,
    pub(super) lease: LeaseTimes,
    pub(super) trust_domain: TrustDomain,
    pub(super) seed: u64,
    /// Whether the kind Widget exists everywhere.
    pub(super) customized: bool,
    pub(super) profiles: Profiles,
    /// Only one controller runs at a time, so a restarted one does not wait for the Lease.
    pub(super) alone: bool,
}

/// A running controller.
pub(super) struct Running {
    token: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
    leadership: watch::Receiver<Option<atoll_controller::leader::Leadership>>,
    pub(super) planner: Planner,
    pub(super) line: Arc<Line>,
    pub(super) arrivals: mpsc::Sender<Arrival>,
    /// Cancelled to break its connections.
    pub(super) alive: CancellationToken,
}

impl Running {
    /// Starts a controller at this place; `number` counts the starts in the World.
    pub(super) fn start(
        plan: &Plan,
        client: kube::Client,
        line: Arc<Line>,
        place: u32,
        number: u32,
    ) -> Result<Self, ControllerError> {
        let (arrivals, incoming) = mpsc::channel(BACKLOG);
        let token = CancellationToken::new();
        let hub = Hub {
            client,
            clock: plan.clocks.of(Who::Controller(place)),
            retention: atoll_history::RETENTION,
            history: Arc::new(Reached { rows: plan.history.clone(), line: line.clone() }),
            candidate: Candidate {
                namespace: marks::SYSTEM_NAMESPACE.to_owned(),
                name: "atoll-controller".to_owned(),
                place: format!("world{place}"),
                incarnation: number.to_string(),
                address: None,
                exclusive_place: plan.alone,
                times: plan.lease,
            },
            profiles: plan.profiles.clone(),
            runs_on: RunsOn::Task,
            seed: plan.seed,
        };
        let members = MembersSide {
            incoming: Incoming::Streams(incoming),
            health: plan.health,
            trust_domain: plan.trust_domain.clone(),
            metrics: Metrics::default(),
        };
        let controller = Controller::new(hub, members, token.clone())?.with_slice(SLICE);
        let leadership = controller.leadership();
        let planner = controller.planner();
        let task = tokio::spawn(controller.run());
        let alive = line.dead();
        Ok(Self { token, task, leadership, planner, line, arrivals, alive })
    }

    /// Whether it believes that it leads.
    pub(super) fn leads(&self) -> bool {
        self.leadership.borrow().is_some_and(|leadership| leadership.in_force().is_some())
    }

    /// Stops it gracefully.
    pub(super) async fn stop(self) {
        self.token.cancel();
        let ended = self.task.await;
        self.alive.cancel();
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("the controller ended: {error}"),
            Err(error) => panic!("the controller failed: {error}"),
        }
    }

    /// Disconnects it from the hub and the members at once, so that nothing in flight is written or sent any more, as
    /// in a crash.
    pub(super) async fn crash(self) {
        self.line.cut();
        self.token.cancel();
        // How it ends without a hub does not matter, only that it ends.
        if let Err(error) = self.task.await {
            panic!("the controller failed: {error}");
        }
    }
}
