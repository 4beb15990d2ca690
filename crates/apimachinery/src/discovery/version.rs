//! What a server says about itself.

use std::fmt;

use serde_json::{Value, json};

/// The version that `/version` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major number, `1` on every Kubernetes so far.
    pub major: u32,
    /// Minor number. Clients compare it with their own, so it names the release whose rules are mirrored.
    pub minor: u32,
}

impl Default for Version {
    fn default() -> Self {
        Version { major: 1, minor: 33 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.0+atoll", self.major, self.minor)
    }
}

impl Version {
    /// `/version`.
    pub(super) fn document(&self) -> Value {
        json!({
            "major": self.major.to_string(),
            "minor": self.minor.to_string(),
            "gitVersion": self.to_string(),
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        })
    }
}

/// What an OpenAPI v2 document defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// Everything that the kinds refer to.
    #[default]
    All,
    /// Only the kinds themselves, for an aggregator: shared schemas would have the same name as the aggregator's but
    /// different text, and it would keep both.
    OwnKinds,
}
