//! The status that a plugin returns.

pub use atoll_decision::Code;

/// A status code with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The reason, for people. Empty for success.
    pub reason: String,
}

impl Status {
    /// Success without a reason.
    #[must_use]
    pub fn success() -> Self {
        Self { code: Code::Success, reason: String::new() }
    }

    /// The plugin does not apply.
    #[must_use]
    pub fn skip() -> Self {
        Self { code: Code::Skip, reason: String::new() }
    }

    /// A code with its reason.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// Whether the scheduling cycle continues.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self.code, Code::Success | Code::Skip | Code::Partial(_))
    }
}
