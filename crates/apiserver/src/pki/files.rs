//! PEM files: `<name>.crt` and `<name>.key`, keys readable by their owner only.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use super::credentials::{Credentials, PkiError};

fn failed(path: &Path) -> impl FnOnce(io::Error) -> PkiError + '_ {
    move |source| PkiError::File { path: path.to_owned(), source }
}

pub(super) fn make_folder(folder: &Path) -> Result<(), PkiError> {
    fs::create_dir_all(folder).map_err(failed(folder))
}

fn paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")))
}

/// `None` when either file is missing.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Credentials>, PkiError> {
    let text = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(path)(e)),
    };
    let (certificate, key) = paths(folder, name);
    Ok(match (text(&certificate)?, text(&key)?) {
        (Some(certificate), Some(key)) => Some(Credentials { certificate, key }),
        _ => None,
    })
}

pub(super) fn write(folder: &Path, name: &str, credentials: &Credentials) -> Result<(), PkiError> {
    let (certificate, key) = paths(folder, name);
    replace(&key, &credentials.key, 0o600)?;
    replace(&certificate, &credentials.certificate, 0o644)
}

/// Writes a new file and renames it, so that a crash leaves the old file or the new one.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let beside = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let work = || -> io::Result<()> {
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    work().map_err(failed(path))
}
