//! Files of containers: a few that describe the Pod, and those that users wrote.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tar::{self, Entry, TarError};

/// Limit of what users write into one container, in bytes of names and contents.
pub const OF_A_CONTAINER: usize = 4 << 20;
/// Limit of all containers together. Above it, the containers that were written to first lose their files.
const OF_ALL: usize = 64 << 20;

/// Files by their absolute paths. Folders exist by what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Files(BTreeMap<String, Arc<[u8]>>);

impl Files {
    pub(super) fn insert(&mut self, path: &str, content: &[u8]) {
        self.0.insert(path.to_owned(), content.into());
    }

    pub(super) fn add(&mut self, others: &Self) {
        self.0.extend(others.0.iter().map(|(path, content)| (path.clone(), content.clone())));
    }

    pub(super) fn text(&self, path: &str) -> Result<String, &'static str> {
        let path = absolute(path);
        match self.0.get(&path) {
            Some(content) => Ok(String::from_utf8_lossy(content).into_owned()),
            None if self.is_folder(&path) => Err("Is a directory"),
            None => Err("No such file or directory"),
        }
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        self.0.contains_key(&absolute(path))
    }

    pub(super) fn is_folder(&self, path: &str) -> bool {
        let path = absolute(path);
        let prefix = format!("{}/", path.trim_end_matches('/'));
        // Every image has it.
        path == "/tmp" || self.0.keys().any(|file| file.starts_with(&prefix))
    }

    pub(super) fn listed(&self, path: &str) -> Result<String, &'static str> {
        let path = absolute(path);
        if self.0.contains_key(&path) {
            return Ok(format!("{path}\n"));
        }
        if !self.is_folder(&path) {
            return Err("No such file or directory");
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let below = self.0.keys().filter_map(|file| file.strip_prefix(&prefix));
        let mut names: Vec<&str> = below.filter_map(|rest| rest.split('/').next()).collect();
        if prefix == "/" {
            names.push("tmp");
        }
        names.sort_unstable();
        names.dedup();
        Ok(names.iter().map(|name| format!("{name}\n")).collect())
    }

    /// A file, or all files of a folder, as an archive; `None` if there is none.
    pub(super) fn packed(&self, path: &str) -> Option<Vec<u8>> {
        let path = absolute(path);
        let bare = |path: &str| path.trim_matches('/').to_owned();
        if let Some(content) = self.0.get(&path) {
            return Some(tar::pack(&[Entry {
                path: bare(&path),
                content: Some(content.to_vec()),
            }]));
        }
        if !self.is_folder(&path) {
            return None;
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let below = self.0.iter().filter(|(file, _)| file.starts_with(&prefix));
        let files = below
            .map(|(file, content)| Entry { path: bare(file), content: Some(content.to_vec()) });
        let folder = Entry { path: bare(&path), content: None };
        let folder = (!folder.path.is_empty()).then_some(folder);
        Some(tar::pack(&folder.into_iter().chain(files).collect::<Vec<_>>()))
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(path, content)| path.len() + content.len()).sum()
    }
}

/// A path from the root, which is the only working folder.
fn absolute(path: &str) -> String {
    let trimmed = path.trim_start_matches("./").trim_matches('/');
    let trimmed = if trimmed == "." { "" } else { trimmed };
    format!("/{trimmed}")
}

/// Why files could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The archive is damaged.
    #[error(transparent)]
    Archive(#[from] TarError),
    /// The container holds too much already.
    #[error("No space left on device: a simulated container holds {} MiB", OF_A_CONTAINER >> 20)]
    Full,
}

/// A container: the uid of its Pod, and its name.
type Place = (String, String);

/// What users wrote into containers. It is held while the simulation runs; a new Pod begins without it.
#[derive(Debug, Default)]
pub struct Disks(Mutex<DiskTable>);

#[derive(Debug, Default)]
struct DiskTable {
    held: BTreeMap<Place, Files>,
    /// In the order of their first files.
    order: VecDeque<Place>,
    size: usize,
}

impl Disks {
    fn lock(&self) -> MutexGuard<'_, DiskTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written into a container.
    pub(super) fn of(&self, pod: &str, container: &str) -> Files {
        let place = (pod.to_owned(), container.to_owned());
        self.lock().held.get(&place).cloned().unwrap_or_default()
    }

    /// Writes the files of an archive below a folder of a container.
    ///
    /// # Errors
    /// When the archive is damaged, or the container would hold too much.
    pub fn unpack(
        &self,
        (pod, container): (&str, &str),
        folder: &str,
        archive: &[u8],
    ) -> Result<(), WriteError> {
        let entries = tar::unpack(archive)?;
        let place = (pod.to_owned(), container.to_owned());
        let mut table = self.lock();
        let DiskTable { held, order, size } = &mut *table;
        let mut files = held.get(&place).cloned().unwrap_or_default();
        let before = files.size();
        let folder = absolute(folder);
        for Entry { path, content } in entries {
            let Some(content) = content else { continue };
            files.insert(&format!("{}/{path}", folder.trim_end_matches('/')), &content);
        }
        if files.size() > OF_A_CONTAINER {
            return Err(WriteError::Full);
        }
        *size = *size + files.size() - before;
        if held.insert(place.clone(), files).is_none() {
            order.push_back(place);
        }
        while *size > OF_ALL {
            let Some(first) = order.pop_front() else { break };
            *size -= held.remove(&first).unwrap_or_default().size();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(path: &str, size: usize) -> Vec<u8> {
        tar::pack(&[Entry { path: path.to_owned(), content: Some(vec![b'x'; size]) }])
    }

    #[test]
    fn what_is_written_into_containers_is_bounded_for_each_and_for_all() {
        let disks = Disks::default();
        disks.unpack(("uid-0", "main"), "/tmp", &archive("a", 10)).unwrap();
        assert_eq!(disks.of("uid-0", "main").text("/tmp/a").unwrap().len(), 10);
        assert_eq!(disks.of("uid-1", "main"), Files::default());
        let much = archive("b", OF_A_CONTAINER);
        assert_eq!(disks.unpack(("uid-0", "main"), "/tmp", &much), Err(WriteError::Full));
        assert!(disks.of("uid-0", "main").is_file("/tmp/a"), "what was there stays");
        for number in 1..=16 {
            let large = archive("b", OF_A_CONTAINER - "/tmp/b".len());
            disks.unpack((&format!("uid-{number}"), "main"), "/tmp", &large).unwrap();
        }
        assert_eq!(disks.of("uid-0", "main"), Files::default(), "the first makes room");
        assert!(disks.of("uid-16", "main").is_file("/tmp/b"));
        assert!(disks.lock().size <= OF_ALL);
    }
}
