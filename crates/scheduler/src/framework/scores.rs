//! Scores of candidates, by plugin.

use std::sync::Arc;

/// Highest score after normalization.
pub const MAX: i64 = 100;

/// The scores of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginScores {
    /// The plugin.
    pub plugin: &'static str,
    /// Its weight in the profile.
    pub weight: i64,
    /// The scores of all candidates.
    pub values: Values,
}

/// Scores in the order of the candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// All candidates have this score.
    Same(i64),
    /// One score for each candidate.
    Each(Arc<[i64]>),
}

impl Values {
    /// The score of a candidate.
    #[must_use]
    pub fn get(&self, at: usize) -> i64 {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => values.get(at).copied().unwrap_or(0),
        }
    }

    /// Clamps the scores to 0..=100. Returns how many were out of range; each is a bug in the plugin.
    pub fn clamp(&mut self) -> usize {
        let fix = |value: &mut i64| {
            let inside = (*value).clamp(0, MAX);
            std::mem::replace(value, inside) != inside
        };
        match self {
            Self::Same(value) => usize::from(fix(value)),
            Self::Each(values) if values.iter().all(|value| (0..=MAX).contains(value)) => 0,
            Self::Each(values) => {
                Arc::make_mut(values).iter_mut().filter_map(|v| fix(v).then_some(())).count()
            }
        }
    }
}

/// The output of a score plugin.
#[derive(Debug)]
pub struct Scores<'a> {
    /// Rows of the candidates, ascending.
    pub candidates: &'a [u32],
    /// The plugin's scores so far.
    pub values: Values,
}
