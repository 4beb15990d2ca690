//! A member cluster: its nodes and controllers as one owned task.

mod nodes;
pub(crate) mod options;

use atoll_api::quantity::QuantityError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::{self, Engine};
use crate::writes::execute::WriteError;

pub(crate) use options::Settings;
pub use options::{
    JOB_DURATION, MemberOptions, NodeCapacity, NodeOptions, READY_AFTER, STANDARD_NODES, STOP_AFTER,
};

/// Why a member did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A node's capacity is not a valid quantity.
    #[error("node {node}: capacity {resource}")]
    Capacity {
        /// The node.
        node: String,
        /// The resource.
        resource: &'static str,
        /// The parse error.
        source: QuantityError,
    },
    /// The API server did not serve the required kinds.
    #[error("read the member's objects")]
    Sync(#[from] engine::SyncError),
    /// A node could not be registered.
    #[error("register node {node}")]
    Register {
        /// The node.
        node: String,
        /// The API server's error.
        source: RegisterError,
    },
    /// The start was cancelled.
    #[error("cancelled while starting")]
    Cancelled,
}

/// Why a node could not be registered.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RegisterError(#[from] WriteError);

/// A running member. Dropping it leaves it running until its token is cancelled.
#[derive(Debug)]
pub struct Member {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Member {
    /// Starts the controllers on the member's API server: reads the existing objects, registers missing nodes, and from
    /// then on acts as nodes, scheduler and controllers. On existing data it continues where it stopped.
    ///
    /// The API server has its own controllers for namespaces and garbage collection.
    ///
    /// # Errors
    /// When a capacity is not a quantity, the API server does not answer within 30 s, or it refuses a node.
    pub async fn start(
        client: kube::Client,
        options: MemberOptions,
        token: CancellationToken,
    ) -> Result<Self, StartError> {
        for node in &options.nodes {
            node.capacity.check().map_err(|(resource, source)| StartError::Capacity {
                node: node.name.clone(),
                resource,
                source,
            })?;
        }
        let token = token.child_token();
        let mut engine = Engine::new(client, Settings::of(&options), options.clock.clone());
        let started = async {
            engine.sync().await?;
            nodes::register(&mut engine, &options.nodes).await
        };
        tokio::select! {
            biased;
            () = token.cancelled() => return Err(StartError::Cancelled),
            started = started => started?,
        }
        let tracker = TaskTracker::new();
        tracker.spawn(engine.run(token.clone()));
        tracker.close();
        Ok(Self { token, tracker })
    }

    /// Stops the member at its next await. The owner of the API server stops that separately.
    pub fn stop(&self) {
        self.token.cancel();
    }

    /// Waits until the member has stopped.
    pub async fn stopped(&self) {
        self.tracker.wait().await;
    }
}
