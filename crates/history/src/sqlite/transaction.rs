//! A write transaction of the file.

use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, SqliteConnection};

use crate::sql::PooledConnection;

/// A write transaction. If it is dropped before its commit, its connection is closed, which rolls it back.
pub(super) struct WriteTransaction(PooledConnection<Sqlite>);

impl WriteTransaction {
    /// Takes the write lock at the start: a transaction that begins with a read could not upgrade to it.
    pub(super) async fn begin(writer: &SqlitePool) -> Result<Self, sqlx::Error> {
        let mut connection = PooledConnection::acquire(writer).await?;
        sqlx::query("BEGIN IMMEDIATE").execute(connection.get()).await?;
        Ok(Self(connection))
    }

    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        self.0.get()
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(self.0.get()).await?;
        self.0.mark_sound();
        Ok(())
    }
}
