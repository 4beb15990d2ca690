//! Opening the file: connections, and the schema.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// Connections for readers. Lists take milliseconds.
const READERS: u32 = 4;
/// How long a connection waits for another process that holds the file lock.
const BUSY: Duration = Duration::from_secs(3);
/// Time limit of a migration: an index over some ten million rows takes minutes.
const MIGRATION: Duration = Duration::from_secs(30 * 60);
/// How long to wait for the schema lock, and how often to try: another process may be migrating.
const LOCK: Duration = Duration::from_secs(30);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The writer's and the readers' connections to a file with the current schema.
pub(super) async fn open(path: &Path) -> Result<(SqlitePool, SqlitePool), StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // FULL: acknowledged rows survive a power cut. One sync for each batch, not for each row.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY);
    let lock = lock(path).await?;
    let writer = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(super::OPERATION)
        .connect_with(options.clone())
        .await
        .map_err(|source| open_error(path, source))?;
    match tokio::time::timeout(MIGRATION, MIGRATIONS.run(&writer)).await {
        Ok(migrated) => migrated.map_err(|error| migrate_error(path, error))?,
        Err(_) => return Err(StoreError::TimedOut { doing: "migrate", after: MIGRATION }),
    }
    drop(lock);
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(super::OPERATION)
        .connect_with(options.pragma("query_only", "ON"))
        .await
        .map_err(|source| open_error(path, source))?;
    Ok((writer, readers))
}

/// A file lock beside the database: SQLite has none that spans several migrations. Released with the handle.
async fn lock(path: &Path) -> Result<File, StoreError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    let file = File::create(&beside).map_err(|source| open_error(&beside, source))?;
    let locked = async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY).await,
                Err(TryLockError::Error(source)) => return Err(open_error(&beside, source)),
            }
        }
    };
    match tokio::time::timeout(LOCK, locked).await {
        Ok(Ok(())) => Ok(file),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(open_error(&beside, format!("locked by another process for {LOCK:?}"))),
    }
}

fn open_error(
    path: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Open { path: path.display().to_string(), source: source.into() }
}

fn migrate_error(path: &Path, error: MigrateError) -> StoreError {
    let source = match error {
        MigrateError::VersionMissing(version) => {
            format!("it has schema version {version}, written by a later version of atoll").into()
        }
        other => Box::new(other).into(),
    };
    StoreError::Migrate { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_that_open_at_once_migrate_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let (first, second) = tokio::join!(open(&path), open(&path));
        let ((writer, _), _) = (first.unwrap(), second.unwrap());
        let applied: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations")
            .fetch_one(&writer)
            .await
            .unwrap();
        assert_eq!(usize::try_from(applied).unwrap(), MIGRATIONS.iter().count());
    }

    #[tokio::test]
    async fn what_cannot_be_opened_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let text = |error: StoreError| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        };
        let nowhere = folder.path().join("absent/history.db");
        let error = text(open(&nowhere).await.err().unwrap());
        assert!(error.contains("absent/history.db") && error.contains("No such file"), "{error}");

        let later = folder.path().join("later.db");
        let (writer, _) = open(&later).await.unwrap();
        let row = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                   VALUES (9999, 'later', TRUE, x'00', 0)";
        sqlx::query(row).execute(&writer).await.unwrap();
        let error = text(open(&later).await.err().unwrap());
        assert!(error.contains("9999") && error.contains("later version"), "{error}");
    }
}
