//! PostgreSQL for tests: each has its own database.

use std::io::Write as _;

use sqlx::{Connection, Executor, PgConnection};

/// Address of a server on which tests may create databases; set by `cargo xtask test`.
const SERVER: &str = "ATOLL_TEST_POSTGRES";

/// A database of one test.
pub(crate) struct Database {
    pub(crate) url: String,
    server: String,
    name: String,
}

impl Database {
    /// An empty database; without a server `None`, with a note on the terminal.
    pub(crate) async fn make(test: &str) -> Option<Self> {
        let Ok(server) = std::env::var(SERVER) else {
            // Bypass the test runner's capture: a skipped test must not look like a run one.
            let note = format!("LEFT OUT {test}: {SERVER} is not set, run `cargo xtask test`\n");
            std::io::stderr().write_all(note.as_bytes()).unwrap();
            return None;
        };
        let name = format!("{test}_{}", std::process::id())
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        // PostgreSQL truncates names at 63 bytes; the end distinguishes them.
        let name = format!("t{}", &name[name.len().saturating_sub(60)..]);
        let database = Self { url: with_database(&server, &name), server, name };
        database
            .on_server(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.name))
            .await;
        database.on_server(&format!("CREATE DATABASE {}", database.name)).await;
        Some(database)
    }

    /// A connection beside the store's.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Runs SQL in the database, on a connection of its own.
    pub(crate) async fn run(&self, sql: &str) {
        self.connect().await.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
    }

    /// Closes the store's connections like a server restart, and applies new settings for connections.
    pub(crate) async fn cut_connections(&self) {
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    }

    async fn on_server(&self, sql: &str) {
        let mut server = PgConnection::connect(&self.server).await.unwrap();
        server.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Drops the database of a successful test. That of a failed one stays for inspection while the server runs.
    pub(crate) async fn drop(self) {
        self.on_server(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

/// The server's address with another database name.
fn with_database(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').unwrap_or((server, ""));
    let authority = base.find("://").map_or(0, |at| at + 3);
    let end = base[authority..].find('/').map_or(base.len(), |at| authority + at);
    format!("{}/{name}?{query}", &base[..end])
}
