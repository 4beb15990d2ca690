//! Reaching the database: its address, the connections, the schema.

use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};

use crate::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// Connections that read beside the writer. Lists take milliseconds.
const READERS: u32 = 4;
/// Longest wait for another process that migrates, and for the tables' locks.
const MIGRATION_LOCK: Duration = Duration::from_secs(60);
/// Longest wait for the connection that migrates.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest migration: an index over some ten million rows takes minutes.
const MIGRATION: Duration = Duration::from_secs(30 * 60);
/// How much earlier than the client the server gives a statement up, so that it still tells why.
const SERVER_FIRST: Duration = Duration::from_millis(500);

/// Where the database is.
#[derive(Debug, Clone)]
pub(super) struct Address {
    options: PgConnectOptions,
    /// For people: without user and password.
    pub(super) shown: String,
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?sslmode=...`. Over a network the server's certificate is
    /// checked, unless the address says otherwise.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let mut options: PgConnectOptions = url.parse().map_err(|source: sqlx::Error| {
            // The address may hold a password: it is not repeated.
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

    /// The writer's and the readers' connections, made when they are needed.
    pub(super) fn pools(&self, operation: Duration) -> (PgPool, PgPool) {
        let limit = operation.saturating_sub(SERVER_FIRST).max(SERVER_FIRST).min(operation);
        let limit = limit.as_millis().to_string();
        let pool = |connections, options: PgConnectOptions| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(operation)
                .connect_lazy_with(options)
        };
        let bounded = self.options.clone().options([("statement_timeout", limit.as_str())]);
        let reading = bounded.clone().options([("default_transaction_read_only", "on")]);
        (pool(1, bounded), pool(READERS, reading))
    }

    /// Brings the schema to this version's, under a lock that keeps other processes from doing the same.
    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        let wait = MIGRATION_LOCK.as_millis().to_string();
        let options = self.options.clone().options([("lock_timeout", wait.as_str())]);
        let work = async {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(CONNECT)
                .connect_with(options)
                .await
                .map_err(|source| super::classify("connect to", source))?;
            let migrated = MIGRATIONS.run(&pool).await;
            pool.close().await;
            migrated.map_err(|error| self.migrate_error(error))
        };
        match tokio::time::timeout(MIGRATION, work).await {
            Ok(done) => done,
            Err(_) => Err(StoreError::TimedOut { doing: "migrate", after: MIGRATION }),
        }
    }

    fn migrate_error(&self, error: MigrateError) -> StoreError {
        let source: Box<dyn std::error::Error + Send + Sync> = match error {
            // Away, locked, read-only: the next insert tries again.
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
                return super::classify("migrate", source);
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
