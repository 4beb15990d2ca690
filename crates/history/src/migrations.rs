//! The migrations of both databases, from the files in `migrations/`.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Those of PostgreSQL.
#[must_use]
pub fn postgres() -> Migrator {
    migrator(&POSTGRES)
}

/// Those of SQLite.
#[must_use]
pub fn sqlite() -> Migrator {
    migrator(&SQLITE)
}

fn migrator(files: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migration = |(version, description, sql): &(i64, &'static str, &'static str)| {
        let description = Cow::Borrowed(*description);
        Migration::new(*version, description, MigrationType::Simple, (*sql).into_sql_str(), false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}
