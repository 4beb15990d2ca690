//! A writer's connection during a write.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// A pooled connection. It returns to the pool only when marked as sound; otherwise it is closed, because two states
/// cannot be detected here: a COPY aborted by a time-out leaves responses behind that the next statement would read as
/// its own; and SQLite ends a transaction by itself when the disk is full, after which no new one can begin.
pub(crate) struct PooledConnection<DB: Database> {
    connection: PoolConnection<DB>,
    sound: bool,
}

impl<DB: Database> PooledConnection<DB> {
    pub(crate) async fn acquire(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, sound: false })
    }

    pub(crate) fn get(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }

    /// The connection may return to the pool: no statement is in progress.
    pub(crate) fn mark_sound(&mut self) {
        self.sound = true;
    }
}

impl<DB: Database> Drop for PooledConnection<DB> {
    fn drop(&mut self) {
        if !self.sound {
            self.connection.close_on_drop();
        }
    }
}
