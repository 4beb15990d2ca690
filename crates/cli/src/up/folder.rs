//! The data folder of `atoll up`: its layout and its lock.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Default data folder, relative to the working directory.
pub(crate) const DEFAULT: &str = "./.atoll";

/// A locked data folder; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    /// The lock ends with the file handle, even when the process is killed.
    _lock: File,
}

impl Folder {
    /// Creates the folder if needed and locks it.
    ///
    /// # Errors
    /// When it cannot be created or written, and when another `atoll up` holds it.
    pub(crate) fn take(root: &Path) -> anyhow::Result<Self> {
        let shown = root.display();
        private_folder(root).with_context(|| {
            format!("cannot create data folder {shown}: choose another with --data-dir")
        })?;
        restrict(root).with_context(|| format!("restrict the data folder {shown} to its owner"))?;
        let root = root.canonicalize().with_context(|| format!("resolve the path {shown}"))?;
        let mut lock = File::options()
            .mode(0o600)
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join("lock"))
            .with_context(|| {
                format!("cannot write to data folder {shown}: choose another with --data-dir")
            })?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The process id is only a hint for the user; the message is true without it.
                let _ = lock.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "another process" } else { holder };
                bail!(
                    "data folder {shown} is in use by `atoll up` ({holder}): \
                     stop that one, or choose another folder with --data-dir"
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock the data folder {shown}"));
            }
        }
        lock.set_len(0).context("write the lock file")?;
        lock.rewind().context("write the lock file")?;
        writeln!(lock, "pid {}", std::process::id()).context("write the lock file")?;
        Ok(Self { root, _lock: lock })
    }

    /// The seed of the uids of this folder's servers: drawn when the folder is first used, and kept, so that no two
    /// federations share a uid.
    ///
    /// # Errors
    /// When the file `seed` cannot be read, created or parsed.
    pub(crate) fn seed(&self) -> anyhow::Result<u64> {
        let path = self.root.join("seed");
        let shown = path.display();
        match std::fs::read_to_string(&path) {
            Ok(text) => u64::from_str_radix(text.trim(), 16).with_context(|| {
                format!("{shown} is not a hexadecimal number: delete it to get a new one")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let seed = fastrand::u64(..);
                let write = || -> std::io::Result<()> {
                    // Written and renamed: a half-written file would not parse.
                    let draft = path.with_extension("new");
                    let mut options = File::options();
                    let mut file =
                        options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
                    writeln!(file, "{seed:016x}")?;
                    file.sync_all()?;
                    std::fs::rename(&draft, &path)
                };
                write().with_context(|| format!("write {shown}"))?;
                Ok(seed)
            }
            Err(error) => Err(error).with_context(|| format!("read {shown}")),
        }
    }

    /// Certificates and keys of the hub's API server, and of the clients in the kubeconfig.
    pub(crate) fn pki(&self, server: &str) -> PathBuf {
        self.root.join("pki").join(server)
    }

    /// Objects of the hub.
    pub(crate) fn hub(&self) -> PathBuf {
        self.root.join("hub")
    }

    /// Objects of a member.
    pub(crate) fn member(&self, name: &str) -> PathBuf {
        self.root.join("members").join(name)
    }

    /// Key, certificate and highest term of a member's agent.
    pub(crate) fn agent(&self, name: &str) -> PathBuf {
        self.root.join("agents").join(name)
    }

    /// How many members this folder had when it was used last; 0 at first.
    ///
    /// # Errors
    /// When the file `count` cannot be read or parsed.
    pub(crate) fn members(&self) -> anyhow::Result<u16> {
        let path = self.root.join("count");
        let shown = path.display();
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().with_context(|| {
                format!("{shown} is not a number of members: delete it, and give --members")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("read {shown}")),
        }
    }

    /// Stores how many members there are, for the next start.
    ///
    /// # Errors
    /// When the file `count` cannot be written.
    pub(crate) fn set_members(&self, count: usize) -> anyhow::Result<()> {
        let path = self.root.join("count");
        let write = || -> std::io::Result<()> {
            let draft = path.with_extension("new");
            let mut options = File::options();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            writeln!(file, "{count}")?;
            file.sync_all()?;
            std::fs::rename(&draft, &path)
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    /// The history database.
    pub(crate) fn history(&self) -> PathBuf {
        self.root.join("history.db")
    }

    /// The kubeconfig with a context for the hub and one for each member.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The socket by which `atoll sim` speaks to this process.
    pub(crate) fn control_socket(&self) -> PathBuf {
        control_socket(&self.root)
    }
}

/// Creates the folder with access for its owner only from the start.
fn private_folder(root: &Path) -> std::io::Result<()> {
    if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && root.is_dir() => Ok(()),
        other => other,
    }
}

/// Restricts an existing folder: it holds keys and objects.
fn restrict(root: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o700))
}

/// The control socket of a data folder.
pub(crate) fn control_socket(root: &Path) -> PathBuf {
    root.join("control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_has_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("data");
        let first = Folder::take(&root).unwrap();
        let refused = format!("{:#}", Folder::take(&root).unwrap_err());
        assert!(refused.contains("in use"), "{refused}");
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        Folder::take(&root).unwrap();
    }

    #[test]
    fn every_folder_draws_a_seed_of_its_own_and_keeps_it() {
        let parent = tempfile::tempdir().unwrap();
        let seed = |name: &str| Folder::take(&parent.path().join(name)).unwrap().seed().unwrap();
        let first = seed("a");
        assert_ne!(first, seed("b"), "two federations would share their uids");
        assert_eq!(first, seed("a"), "the same after a restart");
        std::fs::write(parent.path().join("a/seed"), "none").unwrap();
        let error = Folder::take(&parent.path().join("a")).unwrap().seed().unwrap_err();
        assert!(format!("{error:#}").contains("delete it"), "{error:#}");
    }

    #[test]
    fn only_its_owner_reads_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("data");
        let folder = Folder::take(&root).unwrap();
        folder.seed().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        for file in ["lock", "seed"] {
            assert_eq!(mode(&root.join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_flag_that_helps() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = format!("{:#}", Folder::take(&file.join("data")).unwrap_err());
        assert!(refused.contains("--data-dir") && refused.contains("file/data"), "{refused}");
    }
}
