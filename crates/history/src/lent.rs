//! A writer's connection while somebody writes.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

/// A connection out of a pool. It goes back when it was said to be sound; otherwise it is closed, because two things are
/// not seen from here: a COPY that was given up half way, at a time-out, leaves answers behind that the next one would
/// take for its own; and SQLite ends a transaction by itself when the disk is full, after which none can be begun.
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

    /// Nothing is under way on it any more.
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
