//! The full Decision of a record, compressed.

use std::cell::RefCell;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde_json::Value;

/// First byte: encoding of the rest. 1 = zlib over JSON.
const FORMAT: u8 = 1;
/// Largest unpacked detail, in bytes. A decision over 5,000 clusters takes about 2 MiB; anything larger than this was
/// not written by Atoll.
const MAX_UNPACKED: u64 = 64 << 20;

/// A Decision as compressed JSON: about a tenth of its size, because clusters are rejected for the same few reasons.
#[derive(Clone, PartialEq, Eq)]
pub struct Detail(Vec<u8>);

thread_local! {
    /// Its tables take some hundred KiB: allocating them for every decision would cost more than the compression.
    static ENCODER: RefCell<ZlibEncoder<Vec<u8>>> =
        RefCell::new(ZlibEncoder::new(vec![FORMAT], Compression::fast()));
}

/// Why a stored detail cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DetailError {
    /// Written by a later version, or not a detail.
    #[error("detail has format {0:?}, this version reads format {FORMAT}")]
    Format(Option<u8>),
    /// The compressed bytes are damaged.
    #[error("unpack the detail")]
    Unpack(#[source] std::io::Error),
    /// It unpacks to more than `MAX_UNPACKED`.
    #[error("detail unpacks to more than {MAX_UNPACKED} bytes")]
    TooLarge,
    /// The unpacked bytes are not JSON.
    #[error("read the detail")]
    Json(#[source] serde_json::Error),
}

impl Detail {
    /// Compresses a Decision. Takes microseconds to a millisecond: call it off the scheduling thread.
    #[must_use]
    pub fn encode(decision: &Value) -> Self {
        Self::pack(&serde_json::to_vec(decision).expect("JSON values have string keys"))
    }

    /// As [`Detail::encode`], without a JSON value in between.
    ///
    /// # Errors
    /// When the Decision cannot be written as JSON.
    pub fn of(decision: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::pack(&serde_json::to_vec(decision)?))
    }

    /// In one piece: passing the compressor every small write takes several times as long.
    fn pack(json: &[u8]) -> Self {
        // All steps write to memory and cannot fail.
        Self(ENCODER.with_borrow_mut(|encoder| {
            encoder.write_all(json).expect("writes to memory succeed");
            encoder.reset(vec![FORMAT]).expect("writes to memory succeed")
        }))
    }

    /// Unpacks the Decision.
    ///
    /// # Errors
    /// When the bytes are damaged or of a later version.
    pub fn decode(&self) -> Result<Value, DetailError> {
        let [FORMAT, packed @ ..] = self.0.as_slice() else {
            return Err(DetailError::Format(self.0.first().copied()));
        };
        let mut json = Vec::new();
        let read = ZlibDecoder::new(packed)
            .take(MAX_UNPACKED + 1)
            .read_to_end(&mut json)
            .map_err(DetailError::Unpack)?;
        if read as u64 > MAX_UNPACKED {
            return Err(DetailError::TooLarge);
        }
        serde_json::from_slice(&json).map_err(DetailError::Json)
    }

    /// The form stored in databases.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From a database. The bytes are validated when the detail is read, so that a damaged one does not break a list.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for Detail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Detail({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_come_back_and_damaged_ones_say_so() {
        let decision = json!({"trigger": "Scale", "rejections": vec!["taint"; 1000]});
        let detail = Detail::encode(&decision);
        assert_eq!(detail.decode().unwrap(), decision);
        assert!(detail.as_bytes().len() < 200, "{detail:?}");
        let other = json!({"trigger": "First"});
        assert_eq!(Detail::encode(&other).decode().unwrap(), other);
        assert_eq!(Detail::encode(&decision), detail, "nothing of an earlier one is left");
        let mut cut = detail.as_bytes().to_vec();
        cut.truncate(20);
        assert!(matches!(Detail::from_bytes(cut).decode(), Err(DetailError::Unpack(_))));
        assert!(matches!(Detail::from_bytes(vec![]).decode(), Err(DetailError::Format(None))));
        assert!(matches!(Detail::from_bytes(vec![9]).decode(), Err(DetailError::Format(Some(9)))));
    }
}
