//! Queries to history by jobs of the leader.

use std::time::Duration;

use atoll_history::StoreError;

/// Limit of one query.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before history is queried again after a failure.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);

/// The result of a query, or why there is none.
pub(crate) async fn limited<T>(
    query: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, query).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}
