//! A writer's connection during a write.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// A pooled connection. It returns to the pool only when marked as sound; otherwise it is closed, because two states
/// cannot be detected here: a COPY aborted by a time-out leaves responses behind that the next statement would read as
/// its own; and SQLite ends a transaction by itself when the disk is full, after which no new one can begin.
pub(crate) struct Lent<DB: Database> {
    connection: PoolConnection<DB>,
    sound: bool,
}

impl<DB: Database> Lent<DB> {
    pub(crate) async fn of(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, sound: false })
    }

    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }

    /// No statement is in progress any more.
    pub(crate) fn sound(&mut self) {
        self.sound = true;
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        if !self.sound {
            self.connection.close_on_drop();
        }
    }
}
