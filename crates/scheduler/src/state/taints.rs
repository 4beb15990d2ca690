//! The effect of a cluster's taints on a binding with some tolerations.

use atoll_api::marks::TAINT_UNREACHABLE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::row::{Row, Session};
use super::supply::tolerates;

/// The effect of a cluster's taints.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Whether new replicas may be placed here.
    pub no_schedule: Result<(), String>,
    /// Whether running replicas may stay.
    pub no_execute: Result<(), String>,
    /// When a NoExecute toleration expires, and the reason that applies from then on.
    pub expires: Option<(Timestamp, String)>,
    /// Untolerated PreferNoSchedule taints.
    pub prefer_not: u32,
}

fn text(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
        None => format!("{}:{}", taint.key, taint.effect),
    }
}

/// Evaluates a cluster's taints. A member with a lost session counts as tainted `unreachable:NoSchedule` even before
/// that taint is written.
#[must_use]
pub fn judge(tolerations: &[Toleration], row: &Row) -> Judgement {
    let mut judged =
        Judgement { no_schedule: Ok(()), no_execute: Ok(()), expires: None, prefer_not: 0 };
    let silent = (row.session == Session::Lost).then(|| Taint {
        key: TAINT_UNREACHABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    });
    for taint in row.taints.iter().chain(&silent) {
        let bearing: Vec<&Toleration> =
            tolerations.iter().filter(|toleration| tolerates(toleration, taint)).collect();
        let refuse = || Err(format!("untolerated taint {}", text(taint)));
        match (taint.effect.as_str(), bearing.is_empty()) {
            ("NoSchedule", true) if judged.no_schedule.is_ok() => judged.no_schedule = refuse(),
            ("NoExecute", true) if judged.no_execute.is_ok() => judged.no_execute = refuse(),
            ("NoExecute", false) => {
                // As in Kubernetes, the shortest toleration counts, and a toleration without seconds has no limit.
                let seconds = bearing.iter().filter_map(|t| t.toleration_seconds).min();
                let since = taint.time_added.as_ref().map(|time| time.0);
                if let (Some(seconds), Some(since)) = (seconds, since) {
                    let until = since
                        .checked_add(SignedDuration::from_secs(seconds.max(0)))
                        .unwrap_or(Timestamp::MAX);
                    if judged.expires.as_ref().is_none_or(|(first, _)| until < *first) {
                        let reason = format!("taint {} was tolerated until {until}", text(taint));
                        judged.expires = Some((until, reason));
                    }
                }
            }
            ("PreferNoSchedule", true) => judged.prefer_not += 1,
            _ => {}
        }
    }
    judged
}
