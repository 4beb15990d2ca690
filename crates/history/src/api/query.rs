//! Converts selectors to a filter.

use super::Kind;
use crate::filter::check;
use crate::{Filter, FilterError, MemberEventKind, Scope};

/// Label of a Decision: its trigger.
pub(super) const LABEL_TRIGGER: &str = "history.atoll.dev/trigger";
/// Label of a Decision: its outcome.
pub(super) const LABEL_OUTCOME: &str = "history.atoll.dev/outcome";
/// Label of a Decision: kind of its workload.
pub(super) const LABEL_KIND: &str = "history.atoll.dev/workload-kind";
/// Label of a Decision: name of its workload, if it is a valid label value.
pub(super) const LABEL_WORKLOAD: &str = "history.atoll.dev/workload";
/// Selects the decisions that changed a cluster's share, like a label. No object carries it, because a decision changes
/// many clusters.
pub const LABEL_CLUSTER: &str = "history.atoll.dev/cluster";

/// Selectable fields of member events.
pub(super) const MEMBER_FIELDS: [&str; 4] = ["spec.cluster", "spec.event", "since", "until"];

/// The filter for a client's selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub(super) kind: Kind,
    filter: Filter,
    /// `metadata.name`: a list of at most one.
    pub(super) name: Option<String>,
    /// `spec.event` of member events.
    pub(super) event: Option<MemberEventKind>,
}

impl Query {
    /// All objects of a kind: of one namespace, or of all.
    #[must_use]
    pub fn new(kind: Kind, namespace: Option<&str>) -> Self {
        let scope = match (kind, namespace) {
            (Kind::ClusterDecision | Kind::MemberEvent | Kind::DecisionInput, _) => Scope::Cluster,
            (Kind::Decision, Some(namespace)) => Scope::Namespace(namespace.to_owned()),
            (Kind::Decision, None) => Scope::Namespaced,
        };
        Self { kind, filter: Filter { scope, ..Filter::default() }, name: None, event: None }
    }

    /// Requires a label to have this value.
    ///
    /// # Errors
    /// When decisions cannot be selected by this label or value.
    pub fn label(&mut self, key: &str, value: &str) -> Result<(), FilterError> {
        let decisions = !matches!(self.kind, Kind::MemberEvent | Kind::DecisionInput);
        let field = match key {
            LABEL_TRIGGER if decisions => "spec.trigger",
            LABEL_OUTCOME if decisions => "spec.outcome",
            LABEL_KIND if decisions => "spec.workload.kind",
            LABEL_WORKLOAD if decisions => "spec.workload.name",
            LABEL_CLUSTER if self.kind != Kind::DecisionInput => "spec.cluster",
            _ => {
                let labels =
                    [LABEL_TRIGGER, LABEL_OUTCOME, LABEL_KIND, LABEL_WORKLOAD, LABEL_CLUSTER];
                let labels = match self.kind {
                    Kind::DecisionInput => &labels[5..],
                    Kind::MemberEvent => &labels[4..],
                    Kind::Decision | Kind::ClusterDecision => &labels[..],
                };
                let problem =
                    format!("is not a label of the selector; labels are {}", labels.join(", "));
                return Err(FilterError::new("labelSelector", key, problem));
            }
        };
        self.filter
            .set(field, value)
            .map_err(|error| FilterError { field: key.to_owned(), ..error })
    }

    /// Requires a field to have this value.
    ///
    /// # Errors
    /// When decisions cannot be selected by this field or value.
    pub fn field(&mut self, field: &str, value: &str) -> Result<(), FilterError> {
        check(field, value)?;
        match field {
            // A row without a namespace belongs to a cluster-scoped binding: another kind, with its own permissions.
            "metadata.name" | "metadata.namespace" if value.is_empty() => {
                Err(FilterError::new(field, value, "is empty: give a name, or leave the field out"))
            }
            "metadata.name" => {
                let fresh = self.name.as_deref().is_none_or(|name| name == value);
                self.name = Some(value.to_owned());
                match fresh {
                    true => Ok(()),
                    false => Err(FilterError::new(field, value, "contradicts another name")),
                }
            }
            "metadata.namespace" => match &self.filter.scope {
                Scope::Namespace(own) if own != value => {
                    Err(FilterError::new(field, value, "contradicts the namespace of the request"))
                }
                Scope::Cluster => {
                    Err(FilterError::new(field, value, "cannot select objects without namespace"))
                }
                _ => {
                    self.filter.scope = Scope::Namespace(value.to_owned());
                    Ok(())
                }
            },
            _ if self.kind == Kind::DecisionInput => {
                Err(FilterError::new(field, value, "selects no inputs: name the id of a decision"))
            }
            _ if self.kind == Kind::MemberEvent && !MEMBER_FIELDS.contains(&field) => {
                let fields = MEMBER_FIELDS.join(", ");
                let problem = format!("is not a field of the selector; fields are {fields}");
                Err(FilterError::new(field, value, problem))
            }
            "spec.event" if self.kind == Kind::MemberEvent => {
                let kind = MemberEventKind::from_name(value);
                if self.event.as_ref().is_some_and(|held| *held != kind) {
                    return Err(FilterError::new(field, value, "contradicts another event"));
                }
                self.event = Some(kind);
                Ok(())
            }
            _ => self.filter.set(field, value),
        }
    }

    /// The error for a requirement other than equality with one value.
    #[must_use]
    pub fn unsupported(key: &str) -> FilterError {
        FilterError::new("selector", key, "takes one value only: KEY=VALUE")
    }

    /// The filter.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_narrow_and_refuse() {
        let mut query = Query::new(Kind::Decision, Some("shop"));
        query.label(LABEL_TRIGGER, "Failover").unwrap();
        query.label(LABEL_CLUSTER, "member1").unwrap();
        query.field("spec.workload.name", "web").unwrap();
        query.field("metadata.namespace", "shop").unwrap();
        assert_eq!(query.filter().cluster.as_deref(), Some("member1"));
        for (label, value, part) in [
            (LABEL_TRIGGER, "Later", LABEL_TRIGGER),
            (LABEL_TRIGGER, "Scale", "contradicts"),
            ("app", "web", "labels are history.atoll.dev/trigger"),
        ] {
            let error = query.label(label, value).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for (field, value, part) in [
            ("metadata.namespace", "bank", "contradicts the namespace"),
            ("spec.nothing", "x", "spec.workload.name"),
            ("since", "now", "RFC 3339"),
        ] {
            let error = query.field(field, value).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = Query::new(Kind::Decision, None).field("metadata.namespace", "").unwrap_err();
        assert!(error.to_string().contains("leave the field out"), "{error}");
        let mut cluster = Query::new(Kind::ClusterDecision, None);
        assert!(cluster.field("metadata.namespace", "shop").is_err());
        assert_eq!(cluster.filter().scope, Scope::Cluster);
    }

    proptest::proptest! {
        #[test]
        fn selectors_and_tokens_of_any_text_never_leave_the_requests_scope(
            field in proptest::sample::select(&[
                "metadata.name", "metadata.namespace", "spec.cluster", "spec.trigger", "spec.outcome",
                "spec.workload.name", "spec.binding.uid", "since", "until", "x",
            ][..]),
            value in "\\PC{0,300}",
            token in "[0-9a-f.x-]{0,40}",
        ) {
            for kind in Kind::ALL {
                let mut query = Query::new(kind, Some("shop"));
                let scope = query.filter().scope.clone();
                let _ = query.field(field, &value);
                let _ = query.label(field, &value);
                let _ = query.label(LABEL_WORKLOAD, &value);
                proptest::prop_assert_eq!(&query.filter().scope, &scope);
                let mut all = Query::new(Kind::Decision, None);
                let _ = all.field(field, &value);
                let (namespace, only_namespaced) = all.filter().scope.columns();
                proptest::prop_assert!(only_namespaced && namespace != Some(""));
            }
            for token in [token, value] {
                if let Ok(position) = token.parse::<crate::Position>() {
                    proptest::prop_assert_eq!(position.to_string().parse(), Ok(position));
                }
            }
        }
    }
}
