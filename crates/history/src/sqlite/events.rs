//! Writes events.

use sqlx::SqliteConnection;

use super::sql;
use crate::events::Event;

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    event: &Event,
) -> Result<(), sqlx::Error> {
    let statement = match event {
        Event::Milestone(step) => sqlx::query(sql::NOTE_MILESTONE)
            .bind(step.decision.as_str())
            .bind(step.decided_at.as_microsecond())
            .bind(step.cluster.as_deref().unwrap_or(""))
            .bind(step.stage.as_str())
            .bind(step.at.as_microsecond()),
        Event::Member(event) => sqlx::query(sql::NOTE_MEMBER)
            .bind(event.cluster.as_str())
            .bind(event.uid.as_deref().unwrap_or(""))
            .bind(event.at.as_microsecond())
            .bind(event.kind.as_str())
            .bind(&event.reason)
            .bind(&event.message),
    };
    statement.execute(connection).await.map(|_| ())
}
