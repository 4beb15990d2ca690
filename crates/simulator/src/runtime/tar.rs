//! Archives as `kubectl cp` sends and expects them (POSIX ustar, with long names of pax).

/// Size of a block.
const BLOCK: usize = 512;
/// Longest name in a header.
const NAME: usize = 100;
/// Longest name with a pax header.
const LONG_NAME: usize = 4_096;

/// A file or a folder of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Without a leading slash.
    pub(super) path: String,
    /// `None` for a folder.
    pub(super) content: Option<Vec<u8>>,
}

/// An archive that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    /// A header is damaged.
    #[error("this does not look like a tar archive")]
    Header,
    /// It ends too early.
    #[error("unexpected end of the archive")]
    End,
    /// A name leads out of the folder, or is too long.
    #[error("a name in the archive is not possible")]
    Name,
    /// Links, devices and sparse files.
    #[error("only files and folders are possible in simulated containers")]
    Kind,
}

/// Writes an archive.
#[must_use]
pub(super) fn pack(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    for Entry { path, content } in entries {
        if path.len() > NAME {
            let record = pax_path(path);
            block(&mut archive, "pax", b'x', Some(&record));
        }
        let name: String = path.chars().take(NAME / 4).collect();
        let name = if path.len() > NAME { &name } else { path };
        match content {
            Some(content) => block(&mut archive, name, b'0', Some(content)),
            None => block(&mut archive, name, b'5', None),
        }
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

fn block(archive: &mut Vec<u8>, name: &str, kind: u8, content: Option<&[u8]>) {
    let size = content.map_or(0, <[u8]>::len);
    let mode = if kind == b'5' { 0o755 } else { 0o644 };
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum = checksum(&header);
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend_from_slice(&header);
    archive.extend_from_slice(content.unwrap_or_default());
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

/// `LENGTH path=NAME`, where the length counts itself.
fn pax_path(path: &str) -> Vec<u8> {
    let rest = format!(" path={path}\n");
    let digits = (1..).find(|digits| (rest.len() + digits).to_string().len() == *digits);
    let length = rest.len() + digits.unwrap_or_default();
    format!("{length}{rest}").into_bytes()
}

fn checksum(header: &[u8; BLOCK]) -> u32 {
    let counted = |(at, byte): (usize, &u8)| {
        // The field itself counts as spaces.
        u32::from(if (148..156).contains(&at) { b' ' } else { *byte })
    };
    header.iter().enumerate().map(counted).sum()
}

/// Whether an archive is complete: it ends with two empty blocks. `checked` is where the next entry begins; it saves the way
/// there when more bytes have arrived.
#[must_use]
pub fn is_complete(archive: &[u8], checked: &mut usize) -> bool {
    while let Some(header) = archive.get(*checked..*checked + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            return true;
        }
        let Ok(size) = size_of(header) else { return true };
        *checked += BLOCK + size.next_multiple_of(BLOCK);
    }
    false
}

/// Reads an archive.
///
/// # Errors
/// When it is damaged, or has more than files and folders.
pub(super) fn unpack(archive: &[u8]) -> Result<Vec<Entry>, TarError> {
    let (mut entries, mut rest, mut long) = (Vec::new(), archive, None);
    loop {
        let Some((header, after)) = rest.split_first_chunk::<BLOCK>() else {
            return if rest.is_empty() { Ok(entries) } else { Err(TarError::End) };
        };
        if header.iter().all(|byte| *byte == 0) {
            return Ok(entries);
        }
        if octal(&header[148..156])? != checksum(header) as usize {
            return Err(TarError::Header);
        }
        let size = size_of(header)?;
        let content = after.get(..size).ok_or(TarError::End)?;
        rest = after.get(size.next_multiple_of(BLOCK)..).ok_or(TarError::End)?;
        let kind = header[156];
        if kind == b'x' || kind == b'g' {
            long = long_path(content).or(long);
            continue;
        }
        let path = match long.take() {
            Some(path) => path,
            None => short_path(header),
        };
        let path = safe(&path)?;
        match kind {
            b'0' | 0 => entries.push(Entry { path, content: Some(content.to_vec()) }),
            b'5' => entries.push(Entry { path, content: None }),
            _ => return Err(TarError::Kind),
        }
    }
}

fn size_of(header: &[u8]) -> Result<usize, TarError> {
    octal(&header[124..136])
}

fn octal(field: &[u8]) -> Result<usize, TarError> {
    let text = std::str::from_utf8(field).map_err(|_| TarError::Header)?;
    let text = text.trim_matches(['\0', ' ']);
    match text {
        "" => Ok(0),
        // Far above what a container holds; a sum with it does not overflow.
        text => usize::from_str_radix(text, 8)
            .ok()
            .filter(|size| *size < 1 << 40)
            .ok_or(TarError::Header),
    }
}

/// A field until its end.
fn field(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn short_path(header: &[u8; BLOCK]) -> String {
    let (name, prefix) = (field(&header[..NAME]), field(&header[345..500]));
    let is_ustar = header[257..262] == *b"ustar";
    if is_ustar && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

fn long_path(records: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(records);
    let mut records = text.lines().filter_map(|record| record.split_once(' '));
    records.find_map(|(_, record)| record.strip_prefix("path=").map(str::to_owned))
}

/// A path below the folder of the archive. Names that lead out of it are refused.
fn safe(path: &str) -> Result<String, TarError> {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let wrong = path.len() > LONG_NAME || parts.contains(&"..") || path.contains('\0');
    if wrong { Err(TarError::Name) } else { Ok(parts.join("/")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &[u8]) -> Entry {
        Entry { path: path.to_owned(), content: Some(content.to_vec()) }
    }

    #[test]
    fn an_archive_is_read_as_it_was_written() {
        let long = format!("{}/x", "folder/".repeat(40));
        let long = long.replace("//", "/");
        let folder = Entry { path: "etc".to_owned(), content: None };
        let entries = [folder, file("etc/a", b"1"), file("b", &[7; 1_025]), file(&long, b"long")];
        let archive = pack(&entries);
        assert!(archive.len().is_multiple_of(BLOCK) && is_complete(&archive, &mut 0));
        assert_eq!(unpack(&archive).unwrap(), entries);
        assert!(!is_complete(&archive[..archive.len() - 2 * BLOCK], &mut 0));
        // Cut anywhere, it is shorter or an error, and never a panic.
        for end in 0..archive.len() {
            if let Ok(read) = unpack(&archive[..end]) {
                assert_eq!(read, entries[..read.len()]);
            }
        }
    }

    #[test]
    fn damaged_archives_and_names_that_lead_outside_are_refused() {
        assert_eq!(unpack(&[b'x'; BLOCK]), Err(TarError::Header));
        let mut archive = pack(&[file("a", b"1")]);
        archive[0] = b'b';
        assert_eq!(unpack(&archive), Err(TarError::Header), "the checksum is wrong");
        assert_eq!(unpack(&pack(&[file("../etc/passwd", b"")])), Err(TarError::Name));
        assert_eq!(unpack(&pack(&[file("/etc/./x", b"")])).unwrap()[0].path, "etc/x");
        let mut link = pack(&[file("a", b"")]);
        link[156] = b'2';
        let header: [u8; BLOCK] = link[..BLOCK].try_into().unwrap();
        let sum = format!("{:06o}\0 ", checksum(&header));
        link[148..156].copy_from_slice(sum.as_bytes());
        assert_eq!(unpack(&link), Err(TarError::Kind));
    }
}
