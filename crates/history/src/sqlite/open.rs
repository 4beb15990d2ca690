//! Opening the file: connections, and the schema.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::StoreError;
use crate::migrations;
use crate::sql::OPERATION;

/// Connections for readers. Lists take milliseconds.
const READERS: u32 = 4;
/// How long a connection waits for another process that holds the file lock.
const BUSY: Duration = Duration::from_secs(3);
/// Time limit of a migration: an index over some ten million rows takes minutes.
const MIGRATION: Duration = Duration::from_secs(30 * 60);
/// Mode of the database's files.
const OWNER_ONLY: u32 = 0o600;
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
    private(path).map_err(|source| open_error(path, source))?;
    let writer = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(OPERATION)
        .connect_with(options.clone())
        .await
        .map_err(|source| open_error(path, source))?;
    match tokio::time::timeout(MIGRATION, migrations::sqlite().run(&writer)).await {
        Ok(migrated) => migrated.map_err(|error| migrate_error(path, error))?,
        Err(_) => return Err(StoreError::TimedOut { doing: "migrate", after: MIGRATION }),
    }
    drop(lock);
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(OPERATION)
        .connect_with(options.pragma("query_only", "ON"))
        .await
        .map_err(|source| open_error(path, source))?;
    Ok((writer, readers))
}

/// A file beside the database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    PathBuf::from(beside)
}

/// Restricts the database to its owner: history names every workload of every namespace. SQLite creates the files
/// beside the database with the same mode; those of an earlier version are restricted too.
fn private(path: &Path) -> io::Result<()> {
    // Do not open an existing file: closing any handle of it releases all locks that this process has on it.
    match File::options().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        match std::fs::metadata(&file) {
            Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                std::fs::set_permissions(&file, Permissions::from_mode(OWNER_ONLY))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file lock beside the database: SQLite has none that spans several migrations. Released with the handle.
async fn lock(path: &Path) -> Result<File, StoreError> {
    let beside = beside(path, ".lock");
    let mut options = File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWNER_ONLY)
        .open(&beside)
        .map_err(|source| open_error(&beside, source))?;
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
        assert_eq!(usize::try_from(applied).unwrap(), migrations::sqlite().iter().count());
    }

    #[tokio::test]
    async fn only_its_owner_reads_the_database_and_what_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        // With the mode of an earlier version.
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut pools = Vec::new();
        for path in [path, folder.path().join("new.db")] {
            let (writer, readers) = open(&path).await.unwrap();
            sqlx::query("CREATE TABLE probe (id INTEGER)").execute(&writer).await.unwrap();
            // While the database is open, there are files beside it.
            pools.push((writer, readers));
        }
        let mut seen = 0;
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?} has mode {mode:o}", file.file_name());
            seen += 1;
        }
        assert!(seen >= 8, "database, -wal, -shm and .lock of both: {seen}");
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
