//! Bootstrap tokens: `id.secret`, shown once; the hub stores only a hash.

use std::fmt;
use std::str::FromStr;

use atoll_api::hex;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// Bytes of a secret: 256 bits, so that guessing is infeasible and no rate limit is needed.
const SECRET_BYTES: usize = 32;
/// Bytes of an id: enough to be unique; in hex, part of an object's name.
const ID_BYTES: usize = 6;

/// Public part of a token: 12 hex digits, part of the name of the Secret that holds the token's hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(String);

/// A token in clear text. `Debug` hides the secret; only [`BootstrapToken::reveal`] returns it.
#[derive(Clone)]
pub struct BootstrapToken {
    id: TokenId,
    secret: [u8; SECRET_BYTES],
}

/// SHA-256 of a token's secret, as stored by the hub.
#[derive(Debug, Clone, Copy)]
pub struct TokenHash([u8; 32]);

/// Why a token is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not `id.secret`. The error omits the text: it may be a secret with a typo.
    #[error("a token is 12 hex digits, a dot and 43 characters of base64url: copy it whole")]
    Form,
    /// Not the hash of a token.
    #[error("a token's hash is 64 hex digits")]
    Hash,
    /// The operating system returned no random numbers.
    #[error("the operating system's random number generator failed")]
    Random,
}

impl TokenId {
    /// Checks that the text has 12 lower case hex digits.
    ///
    /// # Errors
    /// When it is not.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 2 * ID_BYTES || !text.bytes().all(hex) {
            return Err(TokenError::Form);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BootstrapToken {
    /// Generates a token from the operating system's random numbers.
    ///
    /// # Errors
    /// When there are none.
    pub fn generate() -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        random.fill(&mut id).map_err(|_| TokenError::Random)?;
        random.fill(&mut secret).map_err(|_| TokenError::Random)?;
        Ok(Self { id: TokenId(hex::encode(&id)), secret })
    }

    /// The public part.
    #[must_use]
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The whole token, for the agent that joins. Never log it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id.0, URL_SAFE_NO_PAD.encode(self.secret))
    }

    /// The hash to store in its place.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.secret).into())
    }
}

impl FromStr for BootstrapToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let (id, secret) = text.split_once('.').ok_or(TokenError::Form)?;
        let secret = URL_SAFE_NO_PAD.decode(secret).map_err(|_| TokenError::Form)?;
        Ok(Self { id: TokenId::new(id)?, secret: secret.try_into().map_err(|_| TokenError::Form)? })
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.***)", self.id.0)
    }
}

impl TokenHash {
    /// Whether the hash is this token's, compared in constant time.
    #[must_use]
    pub fn matches(&self, token: &BootstrapToken) -> bool {
        let other = token.hash();
        let difference =
            self.0.iter().zip(other.0).fold(0, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl FromStr for TokenHash {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        hex::decode(text).map(Self).ok_or(TokenError::Hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_matches_its_own_hash_only() {
        let (token, other) =
            (BootstrapToken::generate().unwrap(), BootstrapToken::generate().unwrap());
        let copy: BootstrapToken = token.reveal().parse().unwrap();
        let kept: TokenHash = token.hash().to_string().parse().unwrap();
        assert_eq!(copy.id(), token.id());
        assert!(kept.matches(&copy));
        assert!(!kept.matches(&other));
        let mut near = token.clone();
        near.secret[31] ^= 1;
        assert!(!kept.matches(&near));
    }

    #[test]
    fn the_secret_does_not_show_in_debug_output_or_errors() {
        let token = BootstrapToken::generate().unwrap();
        let secret = token.reveal().split_once('.').unwrap().1.to_owned();
        assert!(!format!("{token:?}").contains(&secret));
        let error = format!("x{}", token.reveal()).parse::<BootstrapToken>().unwrap_err();
        assert!(!error.to_string().contains(&secret));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = BootstrapToken::generate().unwrap().reveal();
        let (id, secret) = good.split_once('.').unwrap();
        for text in [
            String::new(),
            ".".to_owned(),
            id.to_owned(),
            format!("{id}."),
            format!(".{secret}"),
            format!("{}.{secret}", id.to_uppercase().replace(char::is_numeric, "A")),
            format!("../{}.{secret}", &id[3..]),
            format!("{id}.{}", &secret[1..]),
            format!("{id}.{secret}="),
            format!("{id}.{secret} "),
        ] {
            assert!(text.parse::<BootstrapToken>().is_err(), "{text}");
        }
        assert!("sha256:00".parse::<TokenHash>().is_err());
        assert!("+1".repeat(32).parse::<TokenHash>().is_err());
    }
}
