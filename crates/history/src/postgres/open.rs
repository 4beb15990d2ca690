//! Connecting to the database: its address, the connections, the schema.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};

use super::PostgresStore;
use crate::StoreError;
use crate::sql::SqlDatabase;

/// A later version may have migrated already: its migrations only add, or declare that they do not.
fn migrations() -> Migrator {
    let mut migrations = crate::migrations::postgres();
    migrations.set_ignore_missing(true);
    migrations
}

/// Longest wait of a sweep for the tables' locks: readers wait behind it.
const SWEEP_LOCK: Duration = Duration::from_secs(5);

/// Connections for readers. Lists take milliseconds.
const READERS: u32 = 4;
/// Batches that are not durable yet: one being written, one being flushed.
const FLUSHERS: u32 = 2;
/// Longest wait for another migrating process, and for the tables' locks.
const MIGRATION_LOCK: Duration = Duration::from_secs(60);
/// Longest wait for the migrating connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit of a migration or sweep: an index over some ten million rows takes minutes.
pub(super) const MIGRATION: Duration = Duration::from_secs(30 * 60);
/// PostgreSQL's code for a transaction that was ended because of a deadlock.
const DEADLOCK: &str = "40P01";
/// How much earlier than the client the server cancels a statement, so that it can still report why.
const SERVER_FIRST: Duration = Duration::from_millis(500);

/// Connections of one store.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) writer: PgPool,
    /// Each waits for one batch to become durable.
    pub(super) flushers: PgPool,
    pub(super) readers: PgPool,
}

/// Counts the writer's connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    made: Arc<AtomicU64>,
    /// The count when records were last written.
    known: AtomicU64,
}

impl Connections {
    /// Whether the connection differs from the one that last wrote records. True once for each.
    pub(super) fn is_another(&self) -> bool {
        let made = self.made.load(Ordering::Relaxed);
        let known = self.known.swap(made, Ordering::Relaxed);
        known != 0 && known != made
    }
}

/// Where the database is.
#[derive(Debug, Clone)]
pub(super) struct Address {
    options: PgConnectOptions,
    /// For display: without user and password.
    pub(super) shown: String,
}

impl Address {
    /// Parses `postgres://user:password@host:port/database?sslmode=...`. Over a network the server's certificate is
    /// verified, unless the address disables that.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let mut options: PgConnectOptions = url.parse().map_err(|source: sqlx::Error| {
            // The address may contain a password: do not repeat it.
            StoreError::Open { path: "postgres://…".to_owned(), source: Box::new(source) }
        })?;
        let said = url.contains("sslmode=")
            || url.contains("ssl-mode=")
            || std::env::var_os("PGSSLMODE").is_some();
        let local = options.get_socket().is_some() || options.get_host().starts_with('/');
        if !said && !local {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let database = options.get_database().unwrap_or_else(|| options.get_username());
        let shown = format!("postgres://{host}/{database}");
        options = options.application_name("atoll").disable_statement_logging();
        Ok(Self { options, shown })
    }

    /// The connections, opened on demand.
    pub(super) fn pools(&self, operation: Duration, connections: &Connections) -> Pools {
        let limit = operation.saturating_sub(SERVER_FIRST).max(SERVER_FIRST).min(operation);
        let limit = limit.as_millis().to_string();
        let pool = |connections| {
            PgPoolOptions::new().max_connections(connections).acquire_timeout(operation)
        };
        let bounded = self.options.clone().options([("statement_timeout", limit.as_str())]);
        let flushers = pool(FLUSHERS).connect_lazy_with(bounded.clone());
        let reading = bounded.clone().options([("default_transaction_read_only", "on")]);
        // The writer's few statements look rows up by key. A plan made while tables were empty would scan them.
        let writing =
            bounded.options([("enable_seqscan", "off"), ("plan_cache_mode", "force_generic_plan")]);
        let made = Arc::clone(&connections.made);
        let writer = pool(1).after_connect(move |_, _| {
            made.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        });
        let readers = pool(READERS).connect_lazy_with(reading);
        Pools { writer: writer.connect_lazy_with(writing), flushers, readers }
    }

    /// Migrates the schema to this version, under a lock against other processes.
    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        let wait = MIGRATION_LOCK.as_millis().to_string();
        let options = self.options.clone().options([("lock_timeout", wait.as_str())]);
        let work = async {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(CONNECT)
                .connect_with(options)
                .await
                .map_err(|source| PostgresStore::classify("connect to", source))?;
            let migrated = self.migrate_on(&pool).await;
            pool.close().await;
            migrated
        };
        match tokio::time::timeout(MIGRATION, work).await {
            Ok(done) => done,
            Err(_) => Err(StoreError::TimedOut { doing: "migrate", after: MIGRATION }),
        }
    }

    async fn migrate_on(&self, pool: &PgPool) -> Result<(), StoreError> {
        self.check(pool, CONNECT).await?;
        loop {
            match migrations().run(pool).await {
                // A reader had one table and waited for another. The server waits a second before it ends a transaction, so
                // this does not repeat at once.
                Err(error) if is_deadlock(&error) => {
                    tracing::info!(
                        "the migration of history ran into a deadlock with a reader and runs again"
                    );
                }
                done => return done.map_err(|error| self.migrate_error(error)),
            }
        }
    }

    /// Whether this version may write the database.
    pub(super) async fn check(&self, pool: &PgPool, limit: Duration) -> Result<(), StoreError> {
        let own = migrations().iter().map(|migration| migration.version).max().unwrap_or(0);
        let asked = sqlx::query_scalar(super::sql::NOT_FOR_US).bind(own).fetch_optional(pool);
        let oldest: Option<i64> = match tokio::time::timeout(limit, asked).await {
            Ok(Ok(oldest)) => oldest,
            // No such table: never migrated, or by an early version.
            Ok(Err(sqlx::Error::Database(error))) if error.code().as_deref() == Some("42P01") => {
                None
            }
            Ok(Err(error)) => return Err(PostgresStore::classify("check", error)),
            Err(_) => return Err(StoreError::TimedOut { doing: "check", after: limit }),
        };
        let Some(oldest) = oldest else { return Ok(()) };
        let source = format!(
            "it needs a version of atoll that knows schema {oldest}; this one knows {own}: run a later one"
        );
        Err(StoreError::Migrate { path: self.shown.clone(), source: source.into() })
    }

    /// A connection for long operations. It must not wait for locks: readers wait behind it.
    pub(super) async fn keeper(&self) -> Result<PgPool, StoreError> {
        let (lock, limit) = (SWEEP_LOCK.as_millis().to_string(), MIGRATION.as_millis().to_string());
        let options = self
            .options
            .clone()
            .options([("lock_timeout", lock.as_str()), ("statement_timeout", limit.as_str())]);
        PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT)
            .connect_with(options)
            .await
            .map_err(|source| PostgresStore::classify("connect to", source))
    }

    fn migrate_error(&self, error: MigrateError) -> StoreError {
        let source: Box<dyn std::error::Error + Send + Sync> = match error {
            // Unreachable, locked, read-only: the next insert tries again.
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
                return PostgresStore::classify("migrate", source);
            }
            MigrateError::VersionMissing(version) => {
                format!("it was migrated to {version} by a later version of atoll; run that one")
                    .into()
            }
            error => Box::new(error),
        };
        StoreError::Migrate { path: self.shown.clone(), source }
    }
}

fn is_deadlock(error: &MigrateError) -> bool {
    let (MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) = error else {
        return false;
    };
    source.as_database_error().is_some_and(|error| error.code().as_deref() == Some(DEADLOCK))
}
