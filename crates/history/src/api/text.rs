//! Text for records, short enough for a table cell.

use atoll_api::binding::{TargetCluster, Trigger};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::Record;

/// Shares shown in a cell; the others are only counted.
const SHOWN: usize = 4;

/// Shares in a line: `member1 6, member2 3`; only names for a kind without replicas; `none`; `?` when unknown.
#[must_use]
pub fn shares(shares: Option<&[TargetCluster]>) -> String {
    let Some(shares) = shares else { return "?".to_owned() };
    if shares.is_empty() {
        return "none".to_owned();
    }
    list(shares, is_counted(shares))
}

/// Whether the shares have replica counts.
fn is_counted(shares: &[TargetCluster]) -> bool {
    shares.iter().any(|share| share.replicas > 0)
}

fn list(shares: &[TargetCluster], counted: bool) -> String {
    let mut parts: Vec<String> = shares
        .iter()
        .take(SHOWN)
        .map(|share| match counted {
            true => format!("{} {}", share.name, share.replicas),
            false => share.name.clone(),
        })
        .collect();
    if let Some(more) = shares.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// The change of shares in a line.
#[must_use]
pub fn change(before: Option<&[TargetCluster]>, after: &[TargetCluster]) -> String {
    match before {
        // Scaled to zero: the members stay, their replicas do not.
        Some(before) if is_counted(before) && !after.is_empty() => {
            format!("{} -> {}", shares(Some(before)), list(after, true))
        }
        _ => format!("{} -> {}", shares(before), shares(Some(after))),
    }
}

/// Why a decision was made, in a line: the Decision's own text if available, otherwise a text for the trigger.
#[must_use]
pub fn reason(record: &Record) -> String {
    let mut text = match &record.reason {
        Some(reason) => reason.clone(),
        None => trigger(record),
    };
    if let Some(gap) = &record.gap {
        text.push_str(&format!("; stands for {} decisions missing from history", gap.count));
    }
    if let Some(withdrawal) = record.withdrawal.as_ref().filter(|w| !w.unconfirmed.is_empty()) {
        text.push_str(&format!("; not confirmed by {}", withdrawal.unconfirmed.join(", ")));
    }
    for pending in &record.record.pending {
        // The Decision's own text may already contain it.
        if text.contains(&pending.reason) {
            continue;
        }
        text.push_str(&format!("; {} pending: {}", pending.replicas, pending.reason));
    }
    text
}

fn trigger(record: &Record) -> String {
    match record.record.trigger {
        Trigger::First => "nothing was placed before".to_owned(),
        Trigger::Rebalance => "a rebalance was requested, or skew was mended".to_owned(),
        Trigger::Reconcile => "the placement changed".to_owned(),
        Trigger::Scale => format!("desired replicas: {}", record.record.desired),
        Trigger::Failover => "a target failed".to_owned(),
        Trigger::OutsideClusterSet => {
            "the namespace may no longer use a target (ClusterSet)".to_owned()
        }
        Trigger::ApplicationFailure => "the workload stayed unhealthy on a target".to_owned(),
        Trigger::ClusterChange => "the placement now selects other clusters".to_owned(),
        Trigger::Overflow => "no node had room for some replicas".to_owned(),
        Trigger::Unschedulable => {
            "replicas stayed unschedulable on a member while another one had room".to_owned()
        }
        Trigger::Recover => "a preferred cluster is available again".to_owned(),
        Trigger::Retry => "a condition that the decision waited for was met".to_owned(),
        Trigger::EvictionDone => "the old copies could be removed".to_owned(),
        Trigger::Preempted => "a workload of higher priority took the room".to_owned(),
        Trigger::Withdrawn => "the binding was deleted".to_owned(),
        Trigger::Avoid => "no change was needed".to_owned(),
    }
}

/// Time from the commit (or from the decision if the commit is unknown) to a step of a decision's object: `1.25s`; `-`
/// if the step was not reached or not observed.
#[must_use]
pub fn took(object: &Value, step: &str) -> String {
    let time = |value: &Value| value.as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let (spec, status) = (&object["spec"], &object["status"]);
    let from = time(&status["committed"]).or_else(|| time(&spec["at"]));
    match from.zip(time(&status[step])) {
        Some((from, then)) => span(then.duration_since(from)),
        None => "-".to_owned(),
    }
}

/// A duration with at most two units: `1.25s`, `12s`, `3m20s`, `2h5m`, `3d4h`.
#[must_use]
pub fn span(span: SignedDuration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    let (sign, seconds, millis) =
        if span.is_negative() { ("-", -seconds, -millis) } else { ("", seconds, millis) };
    match seconds {
        0..10 if millis != 0 => {
            let text = format!("{seconds}.{millis:03}");
            format!("{sign}{}s", text.trim_end_matches('0'))
        }
        0..120 => format!("{sign}{seconds}s"),
        120..3600 if seconds % 60 == 0 => format!("{sign}{}m", seconds / 60),
        120..3600 => format!("{sign}{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{sign}{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{sign}{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Age in kubectl's format: the largest unit, with the next one while the number is small.
#[must_use]
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}m", minutes % 60),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_a_cell() {
        let share = |name: &str, replicas| TargetCluster { name: name.to_owned(), replicas };
        assert_eq!(shares(None), "?");
        assert_eq!(shares(Some(&[])), "none");
        assert_eq!(shares(Some(&[share("a", 0), share("b", 0)])), "a, b");
        assert_eq!(shares(Some(&[share("a", 2), share("b", 0)])), "a 2, b 0");
        let many: Vec<_> = (1..=9).map(|n| share(&format!("m{n}"), n)).collect();
        assert_eq!(shares(Some(&many)), "m1 1, m2 2, m3 3, m4 4, 5 more");
        assert_eq!(change(Some(&many[..1]), &[]), "m1 1 -> none");
    }

    #[test]
    fn spans_are_short() {
        for (millis, text) in [
            (0, "0s"),
            (1250, "1.25s"),
            (12_345, "12s"),
            (119_000, "119s"),
            (200_000, "3m20s"),
            (600_000, "10m"),
            (7_500_000, "2h5m"),
            (273_600_000, "3d4h"),
            (-1500, "-1.5s"),
        ] {
            assert_eq!(span(SignedDuration::from_millis(millis)), text);
        }
    }

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (3600, "60m"),
            (4 * 3600 + 120, "4h2m"),
            (30 * 3600, "30h"),
            (3 * 86_400 + 3600, "3d1h"),
            (20 * 86_400, "20d"),
        ] {
            let then = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(age(then, now), text);
        }
    }
}
