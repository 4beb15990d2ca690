//! The history database that `--history` names.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use atoll_history::{PostgresStore, SqliteStore, Store};

/// Where decisions are recorded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A connection string, which may contain a password.
    Postgres(String),
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(_) => f.write_str("postgres://…"),
        }
    }
}

/// Parses `--history`.
pub(crate) fn database(text: &str) -> Result<Database, String> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    match (scheme, text.strip_prefix("sqlite:")) {
        (Some("postgres" | "postgresql"), _) => Ok(Database::Postgres(text.to_owned())),
        (_, Some(file)) => sqlite(file.strip_prefix("//").unwrap_or(file)),
        (Some(scheme), None) => {
            Err(format!("{scheme}:// is not supported: use sqlite:FILE or postgres://…"))
        }
        (None, None) => sqlite(text),
    }
}

fn sqlite(file: &str) -> Result<Database, String> {
    match file {
        "" => Err("name a file".to_owned()),
        file => Ok(Database::Sqlite(file.into())),
    }
}

impl Database {
    /// Opens it. An unreachable PostgreSQL delays rows but not the start. The leader migrates the schema with its first
    /// write.
    pub(crate) async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        match self {
            Self::Sqlite(file) => {
                let store = SqliteStore::open(file).await.with_context(|| {
                    format!(
                        "--history {}: give a SQLite file that this user may write, or move a damaged one away: history \
                         then begins anew",
                        file.display()
                    )
                })?;
                Ok(Arc::new(store))
            }
            Self::Postgres(url) => {
                let store = PostgresStore::new(url).context("read --history")?;
                match store.check().await {
                    Ok(()) => {}
                    Err(error) if error.is_transient() => {
                        let reason = format!("{:#}", anyhow::Error::from(error));
                        tracing::warn!(
                            history = store.place(),
                            reason,
                            "history database unreachable: decisions wait in their bindings"
                        );
                    }
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("open --history {}", store.place()));
                    }
                }
                Ok(Arc::new(store))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_a_file_or_a_postgres() {
        let file = |name: &str| Ok(Database::Sqlite(name.into()));
        assert_eq!(database("atoll-history.db"), file("atoll-history.db"));
        assert_eq!(database("sqlite:h.db"), file("h.db"));
        assert_eq!(database("sqlite:///var/h.db"), file("/var/h.db"));
        let url = "postgres://atoll:secret@db/history";
        assert_eq!(database(url), Ok(Database::Postgres(url.to_owned())));
        assert!(!format!("{:?}", database(url)).contains("secret"));
        assert!(database("mysql://db/history").unwrap_err().contains("postgres://"));
        assert!(database("sqlite:").unwrap_err().contains("file"));
    }

    #[tokio::test]
    async fn a_postgres_that_is_away_does_not_stop_the_start() {
        let folder = tempfile::tempdir().unwrap();
        // A folder without a server socket.
        let host = folder.path().to_str().unwrap().replace('/', "%2F");
        let away = database(&format!("postgres://atoll@{host}/history")).unwrap();
        let store = away.open().await.unwrap();
        assert!(store.last().await.unwrap_err().is_transient());
        let wrong = database("postgres://atoll:secret@db:port/history").unwrap();
        let Err(error) = wrong.open().await else { panic!("opened") };
        let text = format!("{error:#}");
        assert!(text.contains("--history") && !text.contains("secret"), "{text}");
    }
}
