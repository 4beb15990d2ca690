//! What decisions read, recorded beside them: enough to make a decision again.
//!
//! A decision's inputs are named objects: the request, a few objects for each cluster, and what else the scheduler read.
//! Between two decisions little of that changes, so a row holds a [`Frame`]: the differences from the inputs of an earlier
//! decision, compressed. Now and then, and at the start of each week, a frame is whole. Each frame has a hash of its content and of the
//! frame before it, so a damaged or a wrong one is noticed. This costs less than chunks with keys of their own: one
//! decision a few seconds after another sees some hundred bytes of news, and a key with its index is a hundred bytes.
//!
//! Frames go with the rows that hold them. Inputs that were not stored, or whose earlier frames are gone, are reported as
//! missing.

mod chain;
mod diff;
mod encoder;

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{Read, Write};

use atoll_api::hex;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};

pub use chain::{Chain, Link, MissingInputs, chain};
pub(crate) use encoder::Encoder;

/// First byte: the format of the rest.
const FORMAT: u8 = 1;
/// Flags in the second byte: the frame has all objects; its body is not compressed.
const WHOLE: u8 = 1;
const PLAIN: u8 = 2;
/// Bytes of a hash: enough to notice damage. Nobody can choose the frames of others.
const CHECK: usize = 8;
/// Bytes of a decision's id.
const ID: usize = 16;
/// Largest inputs, in bytes: 5,000 clusters with twenty nodes each take a quarter of it.
const MAX_STATE: usize = 256 << 20;

/// What one decision read.
pub trait Inputs: Any + Send + Sync + std::fmt::Debug {
    /// The objects that differ from those of earlier inputs, or all of them; without content those that are gone. Objects
    /// that are the same may be among them.
    fn differences(&self, before: Option<&dyn Inputs>) -> Vec<(String, Option<Vec<u8>>)>;
}

/// The inputs of a decision as a row holds them.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

/// Why inputs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Written by a later version, or no frame.
    #[error("the inputs have format {0:?}, this version reads format {FORMAT}")]
    Format(Option<u8>),
    /// The compressed bytes are damaged.
    #[error("unpack the inputs")]
    Unpack(#[source] std::io::Error),
    /// They are larger than `MAX_STATE`.
    #[error("the inputs unpack to more than {MAX_STATE} bytes")]
    TooLarge,
    /// They are not what was written, or another frame is before them.
    #[error("the inputs are damaged, or do not follow the frame before them")]
    Damaged,
}

/// Parts of a frame.
struct Parts<'a> {
    flags: u8,
    check: [u8; CHECK],
    base: Option<&'a [u8]>,
    body: &'a [u8],
}

impl Frame {
    /// From a database. The bytes are checked when they are read.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The form stored in databases.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// id of the decision whose inputs it changes; `None` for a whole frame.
    ///
    /// # Errors
    /// When it is no frame of this version.
    pub fn base(&self) -> Result<Option<String>, FrameError> {
        Ok(self.parts()?.base.map(hex::encode))
    }

    fn parts(&self) -> Result<Parts<'_>, FrameError> {
        let [FORMAT, flags, rest @ ..] = self.0.as_slice() else {
            return Err(FrameError::Format(self.0.first().copied()));
        };
        if flags & !(WHOLE | PLAIN) != 0 {
            return Err(FrameError::Damaged);
        }
        let (check, rest) = rest.split_first_chunk::<CHECK>().ok_or(FrameError::Damaged)?;
        let (base, body) = match flags & WHOLE {
            0 => {
                let (base, body) = rest.split_at_checked(ID).ok_or(FrameError::Damaged)?;
                (Some(base), body)
            }
            _ => (None, rest),
        };
        Ok(Parts { flags: *flags, check: *check, base, body })
    }

    /// A frame with this content. `base` and the hash of its frame, or neither for a whole one.
    fn pack(
        base: Option<([u8; ID], [u8; CHECK])>,
        content: &[u8],
        deflate: &mut Deflate,
    ) -> (Self, [u8; CHECK]) {
        let before = base.map(|(_, check)| check).unwrap_or_default();
        let check = checksum(before, content);
        let packed = deflate.pack(content);
        let plain = packed.len() >= content.len();
        let flags = if base.is_none() { WHOLE } else { 0 } | if plain { PLAIN } else { 0 };
        let mut bytes = vec![FORMAT, flags];
        bytes.extend(check);
        if let Some((base, _)) = base {
            bytes.extend(base);
        }
        bytes.extend(if plain { content } else { &packed });
        (Self(bytes), check)
    }

    fn content(&self) -> Result<(Vec<u8>, Parts<'_>), FrameError> {
        let parts = self.parts()?;
        let mut content = Vec::new();
        if parts.flags & PLAIN != 0 {
            content.extend(parts.body);
        } else {
            let most = MAX_STATE as u64;
            let read = DeflateDecoder::new(parts.body)
                .take(most + 1)
                .read_to_end(&mut content)
                .map_err(FrameError::Unpack)?;
            if read > MAX_STATE {
                return Err(FrameError::TooLarge);
            }
        }
        Ok((content, parts))
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({} bytes)", self.0.len())
    }
}

fn checksum(before: [u8; CHECK], content: &[u8]) -> [u8; CHECK] {
    let digest = Sha256::new().chain_update(before).chain_update(content).finalize();
    let mut check = [0; CHECK];
    check.copy_from_slice(&digest[..CHECK]);
    check
}

/// Compresses one frame after the other. Its tables take some hundred KiB: allocating them takes longer than compressing
/// most frames.
#[derive(Debug)]
struct Deflate(DeflateEncoder<Vec<u8>>);

impl Default for Deflate {
    fn default() -> Self {
        Self(DeflateEncoder::new(Vec::new(), Compression::default()))
    }
}

impl Deflate {
    fn pack(&mut self, content: &[u8]) -> Vec<u8> {
        self.0.write_all(content).expect("writes to memory succeed");
        self.0.reset(Vec::new()).expect("writes to memory succeed")
    }
}

/// The bytes of an id. `None` for ids that Atoll did not make: it writes lower-case digits.
fn id_bytes(id: &str) -> Option<[u8; ID]> {
    if id.bytes().any(|digit| digit.is_ascii_uppercase()) {
        return None;
    }
    hex::decode(id)
}

/// The objects after some frames. Names have numbers in the order in which they appeared.
#[derive(Debug, Clone, Default)]
pub struct State {
    names: Vec<String>,
    objects: BTreeMap<String, (usize, Vec<u8>)>,
    bytes: usize,
    check: [u8; CHECK],
}

impl State {
    /// The objects by name.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.objects.iter().map(|(name, (_, content))| (name.as_str(), content.as_slice()))
    }

    /// Applies the next frame. A whole one replaces everything.
    ///
    /// # Errors
    /// When the frame is damaged or belongs elsewhere. The state is then not to be used any more.
    pub fn apply(&mut self, frame: &Frame) -> Result<(), FrameError> {
        let (content, parts) = frame.content()?;
        if parts.base.is_none() {
            *self = Self::default();
        }
        if checksum(self.check, &content) != parts.check {
            return Err(FrameError::Damaged);
        }
        self.check = parts.check;
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            self.take(&mut rest).ok_or(FrameError::Damaged)?;
            if self.bytes > MAX_STATE {
                return Err(FrameError::TooLarge);
            }
        }
        Ok(())
    }

    /// Reads one change.
    fn take(&mut self, rest: &mut &[u8]) -> Option<()> {
        let tag = usize::try_from(diff::read_number(rest)?).ok()?;
        let (number, gone) = (tag >> 1, tag & 1 == 1);
        if number == self.names.len() {
            let length = usize::try_from(diff::read_number(rest)?).ok()?;
            let (name, after) = rest.split_at_checked(length)?;
            self.names.push(std::str::from_utf8(name).ok()?.to_owned());
            *rest = after;
        }
        let name = self.names.get(number)?.clone();
        let old = self.objects.remove(&name).map(|(_, old)| old).unwrap_or_default();
        self.bytes -= old.len();
        if !gone {
            let new = diff::read(&old, rest, MAX_STATE)?;
            self.bytes += new.len();
            self.objects.insert(name, (number, new));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
