//! A PostgreSQL server for one run of the tests: private, on a socket in its own folder, removed afterwards.
//!
//! A shell owns the server and holds the other end of a pipe of ours. When this process ends, for whatever reason, the
//! pipe closes: the shell stops the server and removes the folder. No other server is ever touched.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::debian::{self, apt_get};
use crate::run::say;

/// The environment variable with the server's address for tests.
pub(crate) const VARIABLE: &str = "ATOLL_TEST_POSTGRES";
/// Maximum path length of a Unix socket in the kernel, in bytes.
const SOCKET_PATH: usize = 107;
/// The socket's name within its folder; the number stands for a port.
const SOCKET: &str = ".s.PGSQL.5432";
/// Startup timeout. A server on an empty folder is ready after a second, on a busy machine after several.
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Name and database of the tests' superuser.
const USER: &str = "atoll";
/// Where Debian installs its versions.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Waits for the end of its input, which is the end of the run. $0: the server's program, $1: its folder, $2: whether
/// commits are flushed to disk.
const KEEPER: &str = r#"
"$0" -D "$1/data" -k "$1" -c listen_addresses= -c port=5432 -c max_connections=200 \
    -c fsync="$2" -c full_page_writes="$2" -c synchronous_commit="$2" >"$1/log" 2>&1 &
server=$!
read -r _
kill -INT $server
wait $server
cd / && rm -rf "$1"
"#;

/// A running server; dropping it stops the server.
pub(crate) struct Server {
    keeper: Child,
    folder: PathBuf,
    /// Its address for tests.
    pub(crate) url: String,
}

/// The user that the server runs as: it refuses to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

impl Server {
    /// Starts a server; `None`, with a printed reason, if PostgreSQL is not installed.
    ///
    /// # Errors
    /// When PostgreSQL is installed and does not start; when it is missing and this is CI.
    pub(crate) fn start(root: &Path) -> anyhow::Result<Option<Self>> {
        Self::start_as(root, false)
    }

    /// Like [`Server::start`], for measurements: commits are flushed to disk, as in production.
    pub(crate) fn start_durable(root: &Path) -> anyhow::Result<Option<Self>> {
        Self::start_as(root, true)
    }

    fn start_as(root: &Path, durable: bool) -> anyhow::Result<Option<Self>> {
        if let Some(programs) = find_or_install()? {
            return Self::start_with(&programs, root, durable).map(Some);
        }
        let what = "PostgreSQL is neither on the PATH nor in /usr/lib/postgresql";
        if std::env::var_os("CI").is_some() {
            bail!("{what}, and could not be installed: CI leaves no test out");
        }
        say(format!("{what}: TESTS OF HISTORY ON POSTGRESQL ARE LEFT OUT"));
        Ok(None)
    }

    fn start_with(programs: &Path, root: &Path, durable: bool) -> anyhow::Result<Self> {
        let started = Instant::now();
        let user = unprivileged()?;
        let folder = folder(&crate::run::target(root), user.is_some());
        make(&folder, user)?;
        let mut server = match keep(programs, &folder, user, durable) {
            Ok(server) => server,
            Err(error) => {
                // Nothing uses it any more.
                let removed = std::fs::remove_dir_all(&folder);
                return match removed {
                    Ok(()) => Err(error),
                    Err(left) => {
                        Err(error.context(format!("{} is left: {left}", folder.display())))
                    }
                };
            }
        };
        server.wait_until_ready()?;
        say(format!(
            "PostgreSQL from {} is ready after {:.1} s",
            programs.display(),
            started.elapsed().as_secs_f32()
        ));
        Ok(server)
    }

    /// Follows the server's log file until it is ready.
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let state = self.folder.join("data/postmaster.pid");
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            let text = std::fs::read_to_string(&state).unwrap_or_default();
            if text.lines().last().is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        bail!("PostgreSQL is not ready after {} s; it says:\n{log}", READY.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing the pipe stops the server.
        drop(self.keeper.stdin.take());
        match self.keeper.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                say(format!("stopping PostgreSQL in {}: {status}", self.folder.display()))
            }
            Err(error) => say(format!("stopping PostgreSQL in {}: {error}", self.folder.display())),
        }
    }
}

/// Creates the database's files and starts the shell that owns the server.
fn keep(
    programs: &Path,
    folder: &Path,
    user: Option<User>,
    durable: bool,
) -> anyhow::Result<Server> {
    let mut init = Command::new(programs.join("initdb"));
    init.args(["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale"])
        .args(["--no-sync", "-D"])
        .arg(folder.join("data"));
    let made =
        as_user(&mut init, folder, user).stdin(Stdio::null()).output().context("start initdb")?;
    if !made.status.success() {
        bail!("initdb failed ({}): {}", made.status, String::from_utf8_lossy(&made.stderr));
    }
    let mut keeper = Command::new("/bin/sh");
    keeper.args(["-c", KEEPER]).arg(programs.join("postgres")).arg(folder).arg(if durable {
        "on"
    } else {
        "off"
    });
    // Its own process group: Ctrl-C ends this process, whose end stops the server.
    let keeper = as_user(&mut keeper, folder, user)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start the shell that keeps PostgreSQL")?;
    let host = percent(folder.as_os_str().as_bytes());
    let url = format!("postgres://{USER}@{host}/postgres");
    Ok(Server { keeper, folder: folder.to_owned(), url })
}

/// Sets a working directory that this user can enter.
fn as_user<'a>(command: &'a mut Command, folder: &Path, user: Option<User>) -> &'a mut Command {
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command.current_dir(folder).env("LC_ALL", "C")
}

/// The server's folder: in cargo's target directory, or, if the server's user has no access or the socket's path gets
/// too long, in the directory for temporary files.
fn folder(target: &Path, as_other: bool) -> PathBuf {
    let name = format!("atoll-postgres-{}", std::process::id());
    let own = target.join(&name);
    let fits = own.join(SOCKET).as_os_str().len() <= SOCKET_PATH;
    if fits && !as_other { own } else { std::env::temp_dir().join(name) }
}

fn make(folder: &Path, user: Option<User>) -> anyhow::Result<()> {
    let doing = || format!("make {}", folder.display());
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent).with_context(doing)?;
    }
    // Fails if the folder exists, so that no other user can have put files into it.
    std::fs::DirBuilder::new().mode(0o700).create(folder).with_context(doing)?;
    if let Some(user) = user {
        std::os::unix::fs::chown(folder, Some(user.uid), Some(user.gid)).with_context(doing)?;
    }
    Ok(())
}

/// The user to run as for root; `None` for any other user.
fn unprivileged() -> anyhow::Result<Option<User>> {
    let me = std::fs::metadata("/proc/self").context("look who we are in /proc/self")?;
    if me.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let found = ["postgres", "nobody"].into_iter().find_map(|name| user(&users, name));
    found
        .map(Some)
        .context("PostgreSQL refuses root, and /etc/passwd has neither postgres nor nobody")
}

fn user(passwd: &str, name: &str) -> Option<User> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { uid, gid })
}

/// The folder of `initdb` and `postgres`.
fn find_or_install() -> anyhow::Result<Option<PathBuf>> {
    if let Some(found) = find() {
        return Ok(Some(found));
    }
    if !debian::can_install() {
        return Ok(None);
    }
    say("PostgreSQL is not installed: installing it by apt-get");
    install()?;
    Ok(find())
}

/// On the PATH, or else the newest of Debian's versions.
fn find() -> Option<PathBuf> {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let has =
        |folder: &PathBuf| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file());
    if let Some(found) = std::env::split_paths(&path).find(has) {
        return Some(found);
    }
    let versions = std::fs::read_dir(DEBIAN).ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin"))).filter(|(_, folder)| has(folder))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, folder)| folder)
}

/// Installs only the server, without the cluster that Debian's package would create and start.
fn install() -> anyhow::Result<()> {
    const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/atoll-tests.conf";
    let install = ["install", "-y", "--no-install-recommends"];
    apt_get(&["update"])?;
    apt_get(&[&install[..], &["postgresql-common"]].concat())?;
    let doing = || format!("write {NO_CLUSTER}");
    std::fs::create_dir_all("/etc/postgresql-common/createcluster.d").with_context(doing)?;
    std::fs::write(NO_CLUSTER, "create_main_cluster = false\n").with_context(doing)?;
    let installed = apt_get(&[&install[..], &["postgresql"]].concat());
    std::fs::remove_file(NO_CLUSTER).with_context(|| format!("remove {NO_CLUSTER}"))?;
    installed
}

/// A path as the host of a connection string.
fn percent(path: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    path.iter()
        .map(
            |byte| {
                if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nnobody2:x:7:8::/:/\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(user(passwd, "nobody"), Some(User { uid: 65534, gid: 65533 }));
        assert_eq!(user(passwd, "postgres"), None);
    }

    #[test]
    fn a_socket_always_fits() {
        let short = Path::new("/clone/target");
        assert!(folder(short, false).starts_with(short));
        // Not where another user has no access, and not where the path is too long.
        assert!(!folder(short, true).starts_with(short));
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        assert!(!folder(&long, false).starts_with(&long));
        assert_eq!(percent("/tmp/ä b".as_bytes()), "%2Ftmp%2F%C3%A4%20b");
    }
}
