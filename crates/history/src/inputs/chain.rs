//! The frames of one decision, from the database.

use super::Frame;
use crate::{Store, StoreError};

/// More frames than any decision needs: a database that says otherwise is damaged.
const MOST: usize = 4_096;

/// A frame and its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// id of the decision.
    pub decision: String,
    /// Its frame.
    pub frame: Frame,
}

/// The inputs of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Chain {
    /// There is no such decision.
    NoDecision,
    /// The inputs are missing, for this reason.
    Missing(MissingInputs),
    /// The frames, oldest first. The first is whole, unless the reader has the one before it.
    Frames(Vec<Link>),
}

/// Why inputs are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingInputs {
    /// They were not stored with the decision.
    #[error(
        "they were not stored: the history database was unreachable for long, the leader changed before they were written, \
         an earlier version decided, or the decision had no inputs"
    )]
    NotStored,
    /// Those of an earlier decision, which they are differences from, are not there.
    #[error("those of decision {0}, which they build on, are not stored any more")]
    Base(String),
    /// A frame cannot be read.
    #[error("those of decision {decision} cannot be read: {problem}")]
    Unreadable {
        /// id of the decision.
        decision: String,
        /// The problem.
        problem: String,
    },
}

/// Reads the frames of a decision. With `after`, frames up to that decision's are left out, if they lead to it.
///
/// # Errors
/// When the database fails.
pub async fn chain(
    store: &dyn Store,
    decision: &str,
    after: Option<&str>,
) -> Result<Chain, StoreError> {
    let mut links: Vec<Link> = Vec::new();
    let mut wanted = decision.to_owned();
    while links.len() < MOST {
        let frame = match store.inputs(&wanted).await? {
            Some(Some(frame)) => frame,
            found if links.is_empty() => {
                return Ok(match found {
                    None => Chain::NoDecision,
                    Some(_) => Chain::Missing(MissingInputs::NotStored),
                });
            }
            _ => return Ok(Chain::Missing(MissingInputs::Base(wanted))),
        };
        let base = match frame.base() {
            Ok(base) => base,
            Err(error) => {
                let problem = error.to_string();
                return Ok(Chain::Missing(MissingInputs::Unreadable { decision: wanted, problem }));
            }
        };
        links.push(Link { decision: wanted, frame });
        match base {
            Some(base) if after != Some(base.as_str()) => wanted = base,
            Some(_) | None => {
                links.reverse();
                return Ok(Chain::Frames(links));
            }
        }
    }
    let problem = format!("more than {MOST} build on each other");
    Ok(Chain::Missing(MissingInputs::Unreadable { decision: wanted, problem }))
}
