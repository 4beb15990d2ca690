//! The uid of an object on a member, in little room: there is one for each workload on each member.

use std::fmt;

use uuid::Uuid;

/// A uid as an API server gave it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ObjectUid {
    #[default]
    Unknown,
    /// As most API servers write it, in a third of the room of its text.
    Uuid(Uuid),
    Other(Box<str>),
}

impl From<&str> for ObjectUid {
    fn from(text: &str) -> Self {
        match Uuid::try_parse(text) {
            _ if text.is_empty() => Self::Unknown,
            // Other spellings are valid, too, and must come back as they were.
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
                Self::Uuid(uuid)
            }
            _ => Self::Other(text.into()),
        }
    }
}

/// Nothing if it is unknown.
impl fmt::Display for ObjectUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_comes_back_as_it_was_whatever_a_member_says() {
        let usual = "5a5f2c1e-8e0d-4c0b-9b1e-5d1f0f4d9a11";
        let upper = usual.to_uppercase();
        let bare = usual.replace('-', "");
        for text in ["", usual, &upper, &bare, "uid-7", "\u{0}"] {
            assert_eq!(ObjectUid::from(text).to_string(), text);
        }
        assert!(matches!(ObjectUid::from(usual), ObjectUid::Uuid(_)));
        assert_ne!(ObjectUid::from(usual), ObjectUid::from(&*upper));
        assert_eq!(size_of::<ObjectUid>(), 24, "as much as a String without its text");
    }
}
