//! Verbs that read: what was decided, why, and what the federation is made of. None of them writes to the hub.

pub(crate) mod get;

use jiff::Timestamp;

/// How long ago, as kubectl writes it: the largest unit, with the next one while the number is small.
fn age(then: Timestamp, now: Timestamp) -> String {
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
