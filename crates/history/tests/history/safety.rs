//! Guards against SQL built from strings, and against servers without a trusted certificate.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use atoll_history::{Filter, PostgresStore, Store};
use rcgen::{CertificateParams, KeyPair};
use sqlx::{Connection, PgConnection};

use crate::server::Server;
use crate::support::{ids, record};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// sqlx accepts only static text, unless one of these marks a string as safe.
const VOUCHERS: [&str; 3] = ["AssertSqlSafe", "QueryBuilder", "raw_sql("];

fn vouches(text: &str) -> Option<&'static str> {
    // Tests build statements for databases of their own.
    let program = text.split("#[cfg(test)]").next().unwrap_or_default();
    VOUCHERS.into_iter().find(|voucher| program.contains(voucher))
}

#[test]
fn no_statement_is_built_of_strings() {
    let mut found = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut found);
        }
    }
    assert!(found.len() > 100, "{} files: this looks in the wrong place", found.len());
    for file in found {
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(vouches(&text), None, "{} builds SQL of strings", file.display());
    }
    assert_eq!(vouches("sqlx::query(AssertSqlSafe(text))"), Some("AssertSqlSafe"));
}

/// A self-signed certificate for this name.
fn certificate(server: &Server, name: &str) -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    for (file, text) in [("tls.crt", signed.pem()), ("tls.key", key.serialize_pem())] {
        let path = server.path().join(file);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        server.own(&path);
    }
    // Only its user can read the server's folder; clients have a copy.
    server.path().join("tls.crt")
}

#[tokio::test]
async fn over_a_network_only_a_server_that_somebody_vouches_for_gets_rows() {
    let Some(mut server) = Server::start("") else { return };
    for (name, trusted) in [("127.0.0.1", true), ("elsewhere.example", false)] {
        let root = certificate(&server, name);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        server.down();
        let folder = server.path().display();
        server.set(&format!(
            "-c ssl=on -c ssl_cert_file={folder}/tls.crt -c ssl_key_file={folder}/tls.key \
             -c listen_addresses=127.0.0.1 -c port={port}"
        ));
        server.up();
        let plain = format!("postgres://atoll@127.0.0.1:{port}/postgres");
        let vouched = format!("{plain}?sslrootcert={}", root.display());
        // Untrusted: no row is written, and the error states the reason.
        let store = PostgresStore::new(&plain).unwrap();
        let error = store.insert(&[record("stolen", 1, "web", 10)]).await.unwrap_err();
        let text = format!("{error:?}").to_lowercase();
        assert!(text.contains("certificate") || text.contains("unknownissuer"), "{text}");
        store.close().await;

        let store = PostgresStore::new(&vouched).unwrap();
        let inserted = store.insert(&[record("one", 1, "web", 10)]).await;
        if trusted {
            inserted.unwrap();
            let all = store.page(&Filter::default(), 10, None).await.unwrap();
            assert_eq!(ids(&all.rows), ["one"]);
            let mut connection =
                PgConnection::connect(&format!("{vouched}&sslmode=verify-full")).await.unwrap();
            let encrypted: bool =
                sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                    .fetch_one(&mut connection)
                    .await
                    .unwrap();
            assert!(encrypted);
            // Trusting another authority fails, whatever the name.
            let other = KeyPair::generate().unwrap();
            let other =
                CertificateParams::new([name.to_owned()]).unwrap().self_signed(&other).unwrap();
            let path = server.path().join("other.crt");
            std::fs::write(&path, other.pem()).unwrap();
            for mode in ["verify-full", "verify-ca"] {
                let url = format!("{plain}?sslmode={mode}&sslrootcert={}", path.display());
                let store = PostgresStore::new(&url).unwrap();
                let error = store.insert(&[record("stolen", 1, "web", 10)]).await.unwrap_err();
                let text = format!("{error:?}").to_lowercase();
                assert!(text.contains("certificate") || text.contains("unknownissuer"), "{text}");
                store.close().await;
            }
        } else {
            // A trusted certificate, but for another host.
            let text = format!("{:?}", inserted.unwrap_err()).to_lowercase();
            assert!(text.contains("name"), "{text}");
        }
        store.close().await;
        // These modes explicitly disable the check, or the encryption.
        for mode in ["require", "disable"] {
            let store = PostgresStore::new(&format!("{plain}?sslmode={mode}")).unwrap();
            store.last().await.unwrap_or_else(|error| panic!("{mode}: {error:?}"));
            store.close().await;
        }
    }
    // A server without TLS receives no data from a client that requires it.
    server.down();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    server.set(&format!("-c ssl=off -c listen_addresses=127.0.0.1 -c port={port}"));
    server.up();
    for mode in ["", "?sslmode=require", "?sslmode=verify-full"] {
        let url = format!("postgres://atoll@127.0.0.1:{port}/postgres{mode}");
        let store = PostgresStore::new(&url).unwrap();
        let error = store.insert(&[record("plain", 1, "web", 10)]).await.unwrap_err();
        let text = format!("{error:?}").to_lowercase();
        assert!(text.contains("tls") || text.contains("ssl"), "{mode}: {text}");
        store.close().await;
    }
}
