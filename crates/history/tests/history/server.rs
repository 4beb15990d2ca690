//! A PostgreSQL server of one test, with controls to stop it, start it and lose its memory.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Where Debian installs its versions.
const DEBIAN: &str = "/usr/lib/postgresql";

pub(crate) struct Server {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    settings: String,
    /// Limit of a file's size in bytes, in place of a full disk.
    room: Option<u64>,
    /// Size in mebibytes of a disk of its own, mounted at `small` in its folder, visible only to the server.
    disk: Option<u64>,
    runs: bool,
}

impl Server {
    /// Creates and starts a server, on a socket in a folder of its own. `None` if PostgreSQL is not available in this
    /// run, with the note of the tests' database.
    pub(crate) fn start(settings: &str) -> Option<Self> {
        std::env::var_os("ATOLL_TEST_POSTGRES")?;
        let folder = tempfile::tempdir().unwrap();
        // It refuses to run as root.
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let user = root.then(|| id_of("postgres").or_else(|| id_of("nobody")).unwrap());
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let settings = settings.to_owned();
        let (room, disk) = (None, None);
        let mut server =
            Self { folder, programs: programs(), user, settings, room, disk, runs: false };
        server.run(
            "initdb",
            &[
                "--username",
                "atoll",
                "--auth",
                "trust",
                "--encoding",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ],
        );
        server.up();
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        let host = self.folder.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://atoll@{host}/postgres")
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Sets other settings for its next start.
    pub(crate) fn set(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    /// Sets the file size limit from its next start on; the operating system enforces it.
    pub(crate) fn set_room(&mut self, bytes: Option<u64>) {
        self.room = bytes;
    }

    /// Mounts a disk of this size from its next start on, at `small` in its folder, in a mount namespace of the
    /// server's own. False where the machine does not allow that.
    pub(crate) fn set_disk(&mut self, mebibytes: u64) -> bool {
        std::fs::create_dir_all(self.folder.path().join("small")).unwrap();
        let mut may = Command::new("unshare");
        may.args(["-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
        let may = may.arg(self.folder.path().join("small")).output();
        let may = self.user.is_some() && may.is_ok_and(|done| done.status.success());
        self.disk = may.then_some(mebibytes);
        may
    }

    /// Enlarges its disk while it runs.
    pub(crate) fn grow_disk(&self, mebibytes: u64) {
        let state = self.folder.path().join("data/postmaster.pid");
        let state = std::fs::read_to_string(state).unwrap();
        let namespace = format!("--mount=/proc/{}/ns/mnt", state.lines().next().unwrap());
        let size = format!("remount,size={mebibytes}m");
        let mut mount = Command::new("nsenter");
        mount.args([&namespace, "mount", "-o", &size]).arg(self.folder.path().join("small"));
        let done = mount.output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    /// Gives a file to the server's user.
    pub(crate) fn own(&self, path: &Path) {
        if let Some((uid, gid)) = self.user {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    pub(crate) fn up(&mut self) {
        let socket = self.folder.path().display();
        let options =
            format!("-k {socket} -c listen_addresses= -c port=5432 -c fsync=off {}", self.settings);
        let log = format!("{socket}/log");
        self.run("pg_ctl", &["start", "-w", "-l", &log, "-o", &options]);
        self.runs = true;
    }

    /// Like kill -9: no further writes, and the next start recovers from the log.
    pub(crate) fn die(&mut self) {
        self.run("pg_ctl", &["stop", "-m", "immediate"]);
        self.runs = false;
    }

    /// Stops it in an orderly way.
    pub(crate) fn down(&mut self) {
        self.run("pg_ctl", &["stop", "-m", "fast", "-w"]);
        self.runs = false;
    }

    /// Copies the stopped server's files, as a replica to fail over to.
    pub(crate) fn copy(&self) {
        self.shell("rm -rf copy && cp -a data copy");
    }

    /// Replaces the stopped server's files by the copy.
    pub(crate) fn fail_over(&self) {
        self.shell("rm -rf data && mv copy data");
    }

    fn shell(&self, script: &str) {
        assert!(!self.runs, "the server runs");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        self.finish(command);
    }

    fn run(&self, program: &str, args: &[&str]) {
        let program = self.programs.join(program);
        let mut command = match (self.room, self.disk.zip(self.user)) {
            (None, None) => Command::new(program),
            (_, Some((mebibytes, (uid, gid)))) => {
                let small = self.folder.path().join("small");
                let script = format!(
                    "mount -t tmpfs -o size={mebibytes}m,mode=700,uid={uid},gid={gid} tmpfs '{}' && \
                     exec setpriv --reuid {uid} --regid {gid} --clear-groups \"$0\" \"$@\"",
                    small.display()
                );
                let mut shell = Command::new("unshare");
                shell.args(["-m", "/bin/sh", "-c", &script]).arg(program);
                shell
            }
            (Some(bytes), None) => {
                let mut shell = Command::new("/bin/sh");
                // A shell counts blocks of 512 bytes.
                let script = format!("ulimit -S -f {} && exec \"$0\" \"$@\"", bytes / 512);
                shell.args(["-c", &script]).arg(program);
                shell
            }
        };
        command.arg("-D").arg(self.folder.path().join("data")).args(args);
        self.finish(command);
    }

    fn finish(&self, mut command: Command) {
        // The process that mounts a disk switches to the server's user by itself.
        if let Some((uid, gid)) = self.user.filter(|_| command.get_program() != "unshare") {
            command.uid(uid).gid(gid);
        }
        let null = std::process::Stdio::null;
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        // Not piped: a starting server would hold the pipe open.
        let status = command.stdin(null()).stdout(null()).stderr(null()).status().unwrap();
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        assert!(status.success(), "{command:?}: {status}\n{log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runs && !std::thread::panicking() {
            self.die();
        } else if self.runs {
            // A second panic would hide the first.
            let stop = Command::new(self.programs.join("pg_ctl"));
            let mut stop = stop;
            stop.arg("-D").arg(self.folder.path().join("data")).args(["stop", "-m", "immediate"]);
            if let Some((uid, gid)) = self.user {
                stop.uid(uid).gid(gid);
            }
            drop(stop.status());
        }
    }
}

fn id_of(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).filter_map(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn programs() -> PathBuf {
    let has = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).find(has) {
        return found;
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir(DEBIAN)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(has)
        .collect();
    versions.sort();
    versions.pop().expect("the run has a PostgreSQL, so its programs are somewhere")
}
