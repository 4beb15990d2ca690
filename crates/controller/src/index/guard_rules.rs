//! A ChangeGuard, parsed once: which workloads it guards, and what it allows.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::ChangeGuard;
use atoll_api::change_guard::{ChangeGuardSpec, Freeze, HeldChange, ReleasedPlan};
use atoll_api::cron::{self, Schedule};
use atoll_api::selector::Selector;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::key::PolicyKey;
use super::rows::RowError;

/// Longest window: a week.
const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Longest freeze: a month.
const MAX_FREEZE: SignedDuration = SignedDuration::from_hours(31 * 24);

/// A ChangeGuard.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The object.
    pub object: ChangeGuard,
    /// What it says, or which field is wrong. A guard with a mistake holds nothing.
    pub rules: Result<GuardRules, String>,
}

/// What a guard says.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardRules {
    policies: Option<(Vec<PolicyKey>, Option<Selector>)>,
    namespaces: Option<Selector>,
    /// Most replicas in a window.
    pub replicas: Option<i64>,
    /// Most per cent of the guarded replicas in a window.
    pub percent: Option<i64>,
    /// Most workloads in a window.
    pub workloads: Option<i64>,
    /// How long a move counts.
    pub window: SignedDuration,
    freezes: Vec<(Schedule, TimeZone, SignedDuration)>,
}

impl Guard {
    pub(super) fn read(object: &Value) -> Result<Self, RowError> {
        let object =
            ChangeGuard::deserialize(object).map_err(|e| RowError::Shape(e.to_string()))?;
        let rules = GuardRules::read(&object.spec);
        Ok(Self { object, rules })
    }

    /// The plans that were released.
    pub fn released(&self) -> &[ReleasedPlan] {
        self.object.status.as_ref().map_or(&[], |status| &status.released)
    }

    /// Whether the plan of a change was released: by an approval, or because it fits. A release of an equal plan that
    /// waited before does not count.
    #[must_use]
    pub fn releases(&self, held: &HeldChange, approved: bool) -> bool {
        self.released().iter().any(|one| {
            one.plan == held.plan && one.at.0 > held.since.0 && one.by.is_some() == approved
        })
    }

    /// Plans without an approval that count now: those of the window, and those that are not finished.
    pub fn counted(
        &self,
        live: &BTreeSet<String>,
        now: Timestamp,
    ) -> impl Iterator<Item = &ReleasedPlan> {
        let window = self.rules.as_ref().map_or(MAX_WINDOW, |rules| rules.window);
        let counts = move |one: &&ReleasedPlan| {
            let recent = now.duration_since(one.at.0) < window;
            one.by.is_none() && (recent || live.contains(&one.plan))
        };
        self.released().iter().filter(counts)
    }
}

impl GuardRules {
    /// Reads a spec.
    ///
    /// # Errors
    /// The field that is wrong, and how to mend it.
    pub fn read(spec: &ChangeGuardSpec) -> Result<Self, String> {
        let selector = |selector: &_, field: &str| {
            Selector::parse(selector).map_err(|error| format!("{field}: {error}"))
        };
        let policies = match &spec.policies {
            None => None,
            Some(of) => {
                let parsed = of.selector.as_ref();
                let parsed = parsed.map(|s| selector(s, "spec.policies.selector")).transpose()?;
                if parsed.is_none() && of.names.is_empty() {
                    return Err(
                        "spec.policies: selects nothing; give names or a selector, or remove it to guard all policies"
                            .to_owned(),
                    );
                }
                Some((of.names.iter().map(|name| policy_key(name)).collect(), parsed))
            }
        };
        let namespaces = spec.namespace_selector.as_ref();
        let namespaces = namespaces.map(|s| selector(s, "spec.namespaceSelector")).transpose()?;
        let freezes = spec.freeze.iter().enumerate();
        let rules = Self {
            policies,
            namespaces,
            replicas: spec.max_moved_replicas,
            percent: spec.max_moved_percent,
            workloads: spec.max_workloads,
            window: duration(&spec.window, MAX_WINDOW, "spec.window")?,
            freezes: freezes.map(|(at, one)| freeze(one, at)).collect::<Result<_, _>>()?,
        };
        let limits = [rules.replicas, rules.percent, rules.workloads];
        if limits.iter().all(Option::is_none) && rules.freezes.is_empty() {
            return Err(
                "spec: limits nothing; give maxMovedReplicas, maxMovedPercent, maxWorkloads or freeze".to_owned()
            );
        }
        Ok(rules)
    }

    /// Whether a workload is guarded, by its policy and the labels of its namespace.
    pub(super) fn selects(
        &self,
        policy: Option<(&PolicyKey, Option<&BTreeMap<String, String>>)>,
        namespace: Option<&BTreeMap<String, String>>,
    ) -> bool {
        let here = match &self.namespaces {
            None => true,
            Some(selector) => namespace.is_some_and(|labels| selector.matches(labels)),
        };
        let by_policy = || match &self.policies {
            None => true,
            Some((names, selector)) => policy.is_some_and(|(key, labels)| {
                names.contains(key)
                    || selector.as_ref().is_some_and(|selector| {
                        labels.is_some_and(|labels| selector.matches(labels))
                    })
            }),
        };
        here && by_policy()
    }

    /// The end of the freeze that this time is in: the latest, if there are several.
    #[must_use]
    pub fn frozen_until(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.freezes.iter().filter_map(|(schedule, zone, duration)| {
            let began = schedule.last(now.checked_sub(*duration).ok()?, now, zone)?;
            began.checked_add(*duration).ok().filter(|end| *end > now)
        });
        ends.max()
    }

    /// When the next freeze begins, if it is within a month: the status shows when it has begun.
    #[must_use]
    pub fn next_freeze(&self, now: Timestamp) -> Option<Timestamp> {
        let begins = self.freezes.iter().filter_map(|(schedule, zone, _)| schedule.next(now, zone));
        begins.min().filter(|at| at.duration_since(now) < MAX_FREEZE)
    }
}

/// What is wrong with the spec of a ChangeGuard, as `FIELD: problem`.
#[must_use]
pub fn mistake(spec: &ChangeGuardSpec) -> Option<String> {
    GuardRules::read(spec).err()
}

fn policy_key(name: &str) -> PolicyKey {
    match name.split_once('/') {
        Some((namespace, name)) => {
            PolicyKey { namespace: Some(namespace.to_owned()), name: name.to_owned() }
        }
        None => PolicyKey { namespace: None, name: name.to_owned() },
    }
}

fn duration(text: &str, most: SignedDuration, field: &str) -> Result<SignedDuration, String> {
    match cron::go_duration(text) {
        Some(duration) if duration.is_positive() && duration <= most => Ok(duration),
        Some(_) => {
            Err(format!("{field}: is {text:?}, but must be between 1s and {}h", most.as_hours()))
        }
        None => Err(format!("{field}: {text:?} is not a duration such as 1h30m")),
    }
}

fn freeze(freeze: &Freeze, at: usize) -> Result<(Schedule, TimeZone, SignedDuration), String> {
    let field = format!("spec.freeze[{at}]");
    if freeze.schedule.starts_with("@every") {
        return Err(format!("{field}.schedule: @every has no fixed times; use five fields"));
    }
    let schedule = freeze.schedule.parse().map_err(|e| format!("{field}.schedule: {e}"))?;
    let zone = cron::zone(freeze.time_zone.as_deref());
    let zone = zone.map_err(|e| format!("{field}.timeZone: {e}"))?;
    Ok((schedule, zone, duration(&freeze.duration, MAX_FREEZE, &format!("{field}.duration"))?))
}

#[cfg(test)]
mod tests {
    use atoll_api::change_guard::GuardedPolicies;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;

    fn spec() -> ChangeGuardSpec {
        let window = "1h".to_owned();
        ChangeGuardSpec { max_moved_replicas: Some(10), window, ..ChangeGuardSpec::default() }
    }

    #[test]
    fn a_mistake_names_its_field() {
        let frozen = |schedule: &str, zone: Option<&str>, duration: &str| {
            let freeze = Freeze {
                schedule: schedule.to_owned(),
                time_zone: zone.map(str::to_owned),
                duration: duration.to_owned(),
            };
            ChangeGuardSpec { freeze: vec![freeze], ..spec() }
        };
        let nothing = ChangeGuardSpec { max_moved_replicas: None, ..spec() };
        let nobody = ChangeGuardSpec { policies: Some(GuardedPolicies::default()), ..spec() };
        let cases = [
            (nothing, "spec: limits nothing"),
            (nobody, "spec.policies: selects nothing"),
            (ChangeGuardSpec { window: "soon".into(), ..spec() }, "spec.window: \"soon\""),
            (ChangeGuardSpec { window: "169h".into(), ..spec() }, "spec.window: is \"169h\""),
            (ChangeGuardSpec { window: "0s".into(), ..spec() }, "spec.window: is \"0s\""),
            (frozen("0 18 * *", None, "1h"), "spec.freeze[0].schedule: expected exactly 5 fields"),
            (frozen("@every 1h", None, "1h"), "spec.freeze[0].schedule: @every"),
            (frozen("0 18 * * 5", Some("Mars/Base"), "1h"), "spec.freeze[0].timeZone"),
            (frozen("0 18 * * 5", None, "800h"), "spec.freeze[0].duration: is \"800h\""),
        ];
        for (spec, expected) in cases {
            let error = GuardRules::read(&spec).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        GuardRules::read(&frozen("0 18 * * 5", Some("Europe/Berlin"), "62h")).unwrap();
    }

    #[test]
    fn a_freeze_lasts_from_its_schedule_to_its_end() {
        let freeze = Freeze {
            schedule: "0 18 * * 5".to_owned(),
            time_zone: Some("Europe/Berlin".to_owned()),
            duration: "62h".to_owned(),
        };
        let rules = GuardRules::read(&ChangeGuardSpec { freeze: vec![freeze], ..spec() }).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        // Friday, 18:00 in Berlin is 17:00 UTC in winter; 62 h later is Monday, 08:00.
        let end = Some(at("2026-01-12T07:00:00Z"));
        assert_eq!(rules.frozen_until(at("2026-01-09T16:59:59Z")), None);
        assert_eq!(rules.frozen_until(at("2026-01-09T17:00:00Z")), end);
        assert_eq!(rules.frozen_until(at("2026-01-12T06:59:59Z")), end);
        assert_eq!(rules.frozen_until(at("2026-01-12T07:00:00Z")), None);
        assert_eq!(rules.next_freeze(at("2026-01-08T00:00:00Z")), Some(at("2026-01-09T17:00:00Z")));
    }

    #[test]
    fn policies_are_selected_by_name_or_labels_and_namespaces_in_addition() {
        let labels = |value: &str| BTreeMap::from([("tier".to_owned(), value.to_owned())]);
        let by_labels = |value: &str| LabelSelector {
            match_labels: Some(labels(value)),
            ..LabelSelector::default()
        };
        let policies = GuardedPolicies {
            names: vec!["shop/web".to_owned(), "all".to_owned()],
            selector: Some(by_labels("gold")),
        };
        let spec = ChangeGuardSpec {
            policies: Some(policies),
            namespace_selector: Some(by_labels("prod")),
            ..spec()
        };
        let rules = GuardRules::read(&spec).unwrap();
        let key = policy_key;
        let (gold, tin, prod, test) =
            (labels("gold"), labels("tin"), labels("prod"), labels("test"));
        for (policy, of_policy, of_namespace, expected) in [
            (Some("shop/web"), Some(&tin), Some(&prod), true),
            (Some("all"), None, Some(&prod), true),
            (Some("shop/all"), Some(&tin), Some(&prod), false),
            (Some("shop/all"), Some(&gold), Some(&prod), true),
            (Some("shop/web"), Some(&gold), Some(&test), false),
            (Some("all"), None, None, false),
            (None, None, Some(&prod), false),
        ] {
            let key = policy.map(key);
            let given = key.as_ref().map(|key| (key, of_policy));
            assert_eq!(rules.selects(given, of_namespace), expected, "{policy:?} {of_namespace:?}");
        }
    }
}
