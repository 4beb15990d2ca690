//! Headers of streams: all blocks of one direction are one zlib text, with a dictionary that the protocol fixes.
//!
//! This end writes only uncompressed parts, which every decompressor reads. For the other direction the dictionary is given
//! to a plain decompressor as an uncompressed part before the client's text: references then lead into it.

use std::collections::BTreeMap;

use flate2::{Decompress, FlushDecompress, Status};

use super::SpdyError;

/// Headers of one stream: they have a few.
const MOST: usize = 64;
/// Limit of a block in bytes, decompressed.
const MOST_BYTES: usize = 64 << 10;
/// Beginning of a zlib text with a dictionary: window and method, flags, and the checksum of the dictionary.
const BEGIN: [u8; 6] = [0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2];
/// The method in the first byte, and the flag of a dictionary in the second.
const METHOD: (u8, u8) = (0x0f, 0x08);
const WITH_DICTIONARY: u8 = 0x20;
/// Bytes that are decompressed at once.
const CHUNK: usize = 4 << 10;

/// The words at the beginning of the dictionary. Their lengths stand before each.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|\
    accept-language|accept-ranges|age|allow|authorization|cache-control|connection|content-base|\
    content-encoding|content-language|content-length|content-location|content-md5|content-range|\
    content-type|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|\
    if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|proxy-authenticate|\
    proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|\
    user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|\
    public|set-cookie|keep-alive|origin";
/// The rest of the dictionary.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417\
    502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request\
    401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented\
    503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, \
    Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary of the protocol.
pub(super) fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for word in WORDS.split('|') {
        put_text(&mut all, word);
    }
    all.extend_from_slice(TAIL.as_bytes());
    all
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    // Words are a few bytes.
    to.extend_from_slice(&(text.len() as u32).to_be_bytes());
    to.extend_from_slice(text.as_bytes());
}

/// An uncompressed part of a text, which others follow.
pub(super) fn stored(bytes: &[u8]) -> Vec<u8> {
    // Both callers have less than 64 KiB.
    let size = bytes.len() as u16;
    let mut part = vec![0];
    part.extend_from_slice(&size.to_le_bytes());
    part.extend_from_slice(&(!size).to_le_bytes());
    part.extend_from_slice(bytes);
    part
}

/// A block without headers. An empty part makes a decompressor give out what it has: some read on before they do, and then
/// fail at the end of the frame.
pub(super) fn none(first: bool) -> Vec<u8> {
    let begin: &[u8] = if first { &BEGIN } else { &[] };
    let count = 0_u32.to_be_bytes();
    [begin, &stored(&count), &stored(&[])].concat()
}

/// Reads the blocks of a client, in order.
#[derive(Default)]
pub(super) struct HeaderReader(Option<Decompress>);

impl HeaderReader {
    /// The headers of the next block, with names in lower case.
    ///
    /// # Errors
    /// When it is damaged, or has too much.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, SpdyError> {
        let (text, known) = match &mut self.0 {
            Some(known) => (block, known),
            None => (begun(block)?, self.0.insert(primed()?)),
        };
        parse(&decompress(known, text)?)
    }
}

/// The text after its beginning.
fn begun(block: &[u8]) -> Result<&[u8], SpdyError> {
    let (begin, text) =
        block.split_first_chunk::<6>().ok_or(SpdyError::Headers("they are too short"))?;
    if begin[0] & METHOD.0 != METHOD.1
        || begin[1] & WITH_DICTIONARY == 0
        || begin[2..] != BEGIN[2..]
    {
        return Err(SpdyError::Headers("they need the dictionary of SPDY/3"));
    }
    Ok(text)
}

/// A decompressor that knows the dictionary.
fn primed() -> Result<Decompress, SpdyError> {
    let mut decompressor = Decompress::new(false);
    decompress(&mut decompressor, &stored(&dictionary()))?;
    Ok(decompressor)
}

fn decompress(decompressor: &mut Decompress, mut text: &[u8]) -> Result<Vec<u8>, SpdyError> {
    let (mut all, mut chunk) = (Vec::new(), [0; CHUNK]);
    loop {
        let (read, written) = (decompressor.total_in(), decompressor.total_out());
        let status = decompressor.decompress(text, &mut chunk, FlushDecompress::Sync);
        let status = status.map_err(|_| SpdyError::Headers("they cannot be decompressed"))?;
        // Both are at most as long as what was passed.
        let (read, written) = (
            (decompressor.total_in() - read) as usize,
            (decompressor.total_out() - written) as usize,
        );
        text = &text[read..];
        all.extend_from_slice(&chunk[..written]);
        if all.len() > MOST_BYTES {
            return Err(SpdyError::Headers("they are too long"));
        }
        if status == Status::StreamEnd {
            return Err(SpdyError::Headers("their text ends"));
        }
        // It may write less than there is room for, and go on.
        if read == 0 && written == 0 {
            return match text.is_empty() {
                true => Ok(all),
                false => Err(SpdyError::Headers("they cannot be decompressed")),
            };
        }
    }
}

fn parse(mut block: &[u8]) -> Result<BTreeMap<String, String>, SpdyError> {
    const SHORT: SpdyError = SpdyError::Headers("they are too short");
    fn number(block: &mut &[u8]) -> Result<usize, SpdyError> {
        let (number, rest) = block.split_first_chunk::<4>().ok_or(SHORT)?;
        *block = rest;
        Ok(u32::from_be_bytes(*number) as usize)
    }
    fn text(block: &mut &[u8]) -> Result<String, SpdyError> {
        let size = number(block)?;
        let (text, rest) = block.split_at_checked(size).ok_or(SHORT)?;
        *block = rest;
        String::from_utf8(text.to_vec()).map_err(|_| SpdyError::Headers("they are not UTF-8"))
    }
    let count = number(&mut block)?;
    if count > MOST {
        return Err(SpdyError::Headers("they are too many"));
    }
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let name = text(&mut block)?.to_ascii_lowercase();
        headers.insert(name, text(&mut block)?);
    }
    Ok(headers)
}
