//! Progress of a member's departure from the federation, as its Cluster shows it.

use atoll_api::cluster::ObjectName;
use atoll_render::Key;
use tokio::time::Instant;

/// Limit of object names in a message.
const NAMED: usize = 5;

/// Progress of a departure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Decisions still place this many objects there; with the first of them.
    Moving { objects: usize, first: Vec<ObjectName> },
    /// The member was ordered to release this many.
    Emptying { objects: usize, first: Vec<ObjectName>, since: Instant },
    /// The member is disconnected.
    Unreachable { objects: usize },
    /// It leaves with these objects still on it.
    LeftBehind { objects: Vec<ObjectName> },
}

impl Departure {
    /// Reason of the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Moving { .. } => "WorkMovesAway",
            Self::Emptying { .. } => "Emptying",
            Self::Unreachable { .. } => "MemberUnreachable",
            Self::LeftBehind { .. } => "LeftBehind",
        }
    }

    /// Progress as text for users.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Moving { objects, first } => {
                let (objects, verb) = counted(*objects, "has", "have");
                format!("{objects} {verb} not moved to other members yet: {}", list(first))
            }
            Self::Emptying { objects, first, .. } => {
                let (objects, _) = counted(*objects, "", "");
                format!("the agent is removing or releasing {objects}: {}", list(first))
            }
            Self::Unreachable { objects } => {
                let (objects, _) = counted(*objects, "", "");
                let them = if objects == ONE { "it" } else { "them" };
                format!(
                    "no agent is connected, and the member may have {objects}: the agent removes {them} when it connects \
                     again; `atoll unjoin --force` leaves {them} on the member"
                )
            }
            Self::LeftBehind { objects } if objects.is_empty() => {
                "no objects are known to be left on the member".to_owned()
            }
            Self::LeftBehind { objects } => {
                let (count, verb) = counted(objects.len(), "is", "are");
                format!("{count} {verb} left on the member: {}", list(objects))
            }
        }
    }

    /// Objects that stay on the member for good.
    pub(crate) fn left(&self) -> Option<Vec<ObjectName>> {
        match self {
            Self::LeftBehind { objects } => Some(objects.clone()),
            Self::Moving { .. } | Self::Emptying { .. } | Self::Unreachable { .. } => None,
        }
    }
}

const ONE: &str = "1 object";

/// A number of objects, and the verb for it.
fn counted(objects: usize, singular: &'static str, plural: &'static str) -> (String, &'static str) {
    match objects {
        1 => (ONE.to_owned(), singular),
        _ => (format!("{objects} objects"), plural),
    }
}

fn list(objects: &[ObjectName]) -> String {
    let mut text =
        objects.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if objects.len() > NAMED {
        text.push_str(", ...");
    }
    text
}

pub(super) fn first(keys: &[&Key]) -> Vec<ObjectName> {
    // One more than is named, so that the text can indicate that there are more.
    names(&keys[..keys.len().min(NAMED + 1)])
}

/// Objects in the form of a Cluster's status.
pub(crate) fn names(keys: &[&Key]) -> Vec<ObjectName> {
    keys.iter().map(|key| name(key)).collect()
}

/// An object in the form of a Cluster's status.
pub(crate) fn name(key: &Key) -> ObjectName {
    ObjectName {
        group: key.group().to_owned(),
        kind: key.kind().to_owned(),
        namespace: key.namespace().map(str::to_owned),
        name: key.name().to_owned(),
    }
}
