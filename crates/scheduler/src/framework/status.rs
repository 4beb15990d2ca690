//! What a plugin may answer.

pub use atoll_decision::Code;

/// A code and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// Why, for people. Empty for success.
    pub reason: String,
}

impl Status {
    /// Fine.
    #[must_use]
    pub fn success() -> Self {
        Self { code: Code::Success, reason: String::new() }
    }

    /// Not this plugin's business.
    #[must_use]
    pub fn skip() -> Self {
        Self { code: Code::Skip, reason: String::new() }
    }

    /// A code with its reason.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// Whether the cycle goes on.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self.code, Code::Success | Code::Skip | Code::Partial(_))
    }
}
