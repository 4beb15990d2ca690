//! Bytes as hex digits.

use std::fmt::Write as _;

/// Lower-case hex digits.
///
/// ```
/// assert_eq!(atoll_api::hex::encode(&[0, 0xab]), "00ab");
/// ```
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of hex digits of either case; `None` if the text is anything but two digits a byte.
///
/// ```
/// assert_eq!(atoll_api::hex::decode("00Ab"), Some([0, 0xab]));
/// assert_eq!(atoll_api::hex::decode::<2>("00abc"), None);
/// assert_eq!(atoll_api::hex::decode::<1>("+1"), None);
/// ```
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(value(pair[0])? * 16 + value(pair[1])?).ok()?;
    }
    Some(bytes)
}
