//! Calls to the hub, with their time limit.

use std::time::Duration;

use tokio::time::timeout;

/// Limit of one call to the hub.
pub(crate) const HUB_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call to the hub failed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The hub did not answer in time.
    #[error("the hub did not answer within {} s", HUB_TIMEOUT.as_secs())]
    Timeout,
    /// The hub rejected the request, or could not be reached.
    #[error("the request to the hub failed")]
    Failed(#[source] Box<kube::Error>),
}

impl HubError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Failed(error) => match &**error {
                kube::Error::Api(status) => Some(&**status),
                _ => None,
            },
            Self::Timeout => None,
        }
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_conflict)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_not_found)
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }
}

/// Waits for the answer, at most [`HUB_TIMEOUT`].
pub(crate) async fn in_time<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, HubError> {
    let answer = timeout(HUB_TIMEOUT, call).await.map_err(|_| HubError::Timeout)?;
    answer.map_err(|error| HubError::Failed(Box::new(error)))
}
